-- Entropy: where a model was unsure of what it said, it may have lacked what was shown shorter. That is a fault like
-- others, and what it lacked is raised at the next moment; nothing is injected into what it is saying.

-- Objects shown shorter than they are whose forms lack what was said, or whose name it says, the best three.
create or replace function _memoir.objects_lacked(p_user_id uuid, p_session_id uuid, p_said text)
returns setof _memoir.memory_store language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  return query
  select m.* from (
    select f.memory_id, max(f.fidelity) as fidelity from _memoir.shown_forms f
    where f.user_id = p_user_id and f.session_id = p_session_id group by 1) f
  join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = f.memory_id and m.state = 'active'
    and m.sensitivity < 'secret'
  cross join lateral (select coalesce(strpos(p_said, nullif(regexp_replace(m.source_key, '^.*/', ''), '')) > 0, false)
      ::integer * 3 + (select count(distinct l) from _memoir.memory_renditions r,
        jsonb_array_elements_text(r.losses) l
      where r.user_id = p_user_id and r.memory_id = f.memory_id and r.fidelity = f.fidelity and length(l) >= 4
        and strpos(p_said, l) > 0) as hits) x
  where x.hits > 0 order by x.hits desc, m.recorded_at desc, m.memory_id limit 3;
end $$;

-- Doubted: what the model was most unsure of, more than 2.2 nats on the average of twenty tokens.
create or replace function _memoir.append_doubted(inout p_state _memoir.append_state, p_messages jsonb)
language plpgsql as $$
declare
  v_message _memoir.message; v_said text;
begin
  for i in 1 .. cardinality(p_state.messages) loop
    v_message := p_state.messages[i];
    continue when not p_messages -> (i - 1) ? 'logprobs' or v_message.sensitivity = 'secret'
      or (v_message.extra ->> 'entropy')::float8 > 2.2 is not true;
    v_said := (_memoir.doubt(format('messages[%s].logprobs', i - 1), p_messages -> (i - 1) -> 'logprobs')).said;
    -- The turn has what was said; a copy would outlive it.
    perform _memoir.note_fault(p_state.user_id, p_state.session_id, m, 'entropy_triggered', p_state.first_turn + i - 1,
      0) from _memoir.objects_lacked(p_state.user_id, p_state.session_id, v_said) m;
  end loop;
end $$;
