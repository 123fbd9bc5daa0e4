-- Passages of large outputs that a question finds. The index knows of them the ends and the most distinctive parts, so
-- the stored texts are read.

-- The best passages for a question in the large outputs of a session, best first, at most p_most: which object, in
-- which turn, from which line to which, the share of the question's words that a passage holds (0 to 1), its text. The
-- newest outputs are read, 64 MB at most. Nothing above p_clearance.
create or replace function _memoir.large_passages(p_user_id uuid, p_session_id uuid, p_question text, p_most integer,
  p_clearance _memoir.sensitivity)
returns table (memory_id uuid, turn_index integer, first_line integer, last_line integer, score float8, body text)
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_terms text[] := _memoir.passage_terms(p_question); v_object record; v_text text; v_read bigint := 0;
  v_found jsonb := '[]';
begin
  if v_terms = '{}' then return; end if;
  for v_object in
    select m.memory_id, max(p.turn_index) as turn from _memoir.session_objects o
    join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = o.memory_id and m.is_object
      and m.state in ('active', 'superseded') and m.sensitivity <= p_clearance
    join _memoir.object_places p on p.user_id = p_user_id and p.memory_id = m.memory_id
    where o.user_id = p_user_id and o.session_id = p_session_id
      -- Of less, a large text can't have.
      and o.tokens > _memoir.end_size() / 4
    group by m.memory_id order by max(p.turn_index) desc
  loop
    v_text := _memoir.known_text(p_user_id, v_object.memory_id);
    continue when _memoir.is_large('tool', v_text) is not true;
    v_found := v_found || coalesce((select jsonb_agg(jsonb_build_array(v_object.memory_id, v_object.turn, q.first_line,
      q.last_line, q.score, q.body)) from _memoir.passages_in(v_text, v_terms, p_most) q), '[]');
    v_read := v_read + octet_length(v_text);
    exit when v_read > 64 * 1048576;
  end loop;
  return query
  select (f ->> 0)::uuid, (f ->> 1)::integer, (f ->> 2)::integer, (f ->> 3)::integer, (f ->> 4)::float8, f ->> 5
  from jsonb_array_elements(v_found) f order by (f ->> 4)::float8 desc, (f ->> 1)::integer desc limit p_most;
end $$;
