-- Faults: what a model needed and was not shown. Each is a row; what was needed again is pinned for a while, twice as
-- long the second time, so that the ladder does not take it away at once.

-- An object of a session as a model names it: its id, or at least six characters of its beginning. PM004 where there is
-- none, or more than one.
create or replace function _memoir.named_object(p_caller _memoir.caller, p_session _memoir.sessions, p_name text)
returns _memoir.memory_store language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_name text := lower(btrim(p_name)); v_found _memoir.memory_store[];
begin
  if v_name ~ '^[0-9a-f]{6,8}$|^[0-9a-f]{8}-[0-9a-f-]{0,27}$' then
    v_found := array(select m from _memoir.lineage(p_session) l
      join _memoir.session_objects o on o.user_id = p_caller.user_id and o.session_id = l.session_id
      join _memoir.memory_store m on m.user_id = o.user_id and m.memory_id = o.memory_id
      where m.is_object and left(m.memory_id::text, length(v_name)) = v_name and m.sensitivity <= p_caller.clearance
        and m.sensitivity < 'secret' and m.state in ('active', 'superseded')
      group by m limit 2);
  end if;
  if coalesce(cardinality(v_found), 0) <> 1 then
    perform _memoir.fail('PM004', format('session %s has %s object %s', _memoir.shown(p_session.external_id),
      case when cardinality(v_found) > 1 then 'more than one' else 'no' end, _memoir.shown(p_name)),
      'the forms of objects say their names, such as 3f2a91bc');
  end if;
  return v_found[1];
end $$;

-- Writes down a fault; false where the object was shown whole. A pin lasts p_pin turns, twice as long from the second
-- fault on.
create or replace function _memoir.note_fault(p_user_id uuid, p_session_id uuid, p_memory _memoir.memory_store,
  p_fault text, p_turn integer, p_pin integer, p_question text default null, p_answer integer default null,
  p_started timestamptz default null)
returns boolean language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_fidelity smallint; v_tokens integer; v_before bigint; v_at timestamptz := memoir.now();
begin
  select max(f.fidelity) into v_fidelity from _memoir.shown_forms f where f.user_id = p_user_id
    and f.session_id = p_session_id and f.memory_id = p_memory.memory_id;
  if v_fidelity is null and exists (select from _memoir.object_places p
      join _memoir.session_windows w on w.user_id = p_user_id and w.session_id = p_session_id
      where p.user_id = p_user_id and p.memory_id = p_memory.memory_id and p.turn_index <= w.lines_through) then
    v_fidelity := 4;
  end if;
  if v_fidelity is null and p_fault in ('page_fault', 'entropy_triggered') then return false; end if;
  select o.tokens into v_tokens from _memoir.session_objects o where o.user_id = p_user_id
    and o.session_id = p_memory.session_id and o.memory_id = p_memory.memory_id;
  select count(*) into v_before from _memoir.fault_history f where f.user_id = p_user_id
    and f.session_id = p_session_id and f.memory_id = p_memory.memory_id
    and f.fault_type in ('full_restore', 'page_fault');
  perform _memoir.ensure_month(p_user_id, v_at);
  insert into _memoir.fault_history (user_id, fault_id, recorded_at, session_id, memory_id, type, fault_type,
    turn_number, fidelity, content_hash, question, answer_tokens, avoided_tokens, latency_ms)
  values (p_user_id, gen_random_uuid(), v_at, p_session_id, p_memory.memory_id, p_memory.type, p_fault, p_turn,
    coalesce(v_fidelity, 0), p_memory.content_hash, left(p_question, 1000), p_answer,
    case when p_fault = 'micro_fault' then greatest(0, v_tokens - p_answer) end,
    (extract(epoch from clock_timestamp() - p_started) * 1000)::integer);
  if p_pin > 0 then
    insert into _memoir.session_objects (user_id, session_id, memory_id, tokens, pinned_until_turn, pin_reason)
    values (p_user_id, p_session_id, p_memory.memory_id, coalesce(v_tokens, 0),
      p_turn + p_pin * case when v_before > 0 then 2 else 1 end, p_fault)
    on conflict (user_id, session_id, memory_id) do update set fidelity_ceiling = 0,
      pinned_until_turn = greatest(session_objects.pinned_until_turn, excluded.pinned_until_turn),
      pin_reason = excluded.pin_reason;
  end if;
  return v_fidelity > 0;
end $$;

-- An object that need not be shown any more, from the next moment on.
create or replace function _memoir.release_object(p_user_id uuid, p_session_id uuid, p_memory _memoir.memory_store,
  p_reason text)
returns void language sql as $$
  insert into _memoir.session_objects (user_id, session_id, memory_id, fidelity_ceiling, pin_reason)
  values (p_user_id, p_session_id, p_memory.memory_id, 3, p_reason)
  on conflict (user_id, session_id, memory_id) do update set fidelity_ceiling = 3, pinned_until_turn = null,
    pin_reason = excluded.pin_reason
$$;
