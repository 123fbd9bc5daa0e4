-- Large outputs of tools: what stands between their ends is looked through by a job, first for secrets, then for the
-- parts that are searched. Until then it is shown in its own session only.

-- The kinds of secrets in the middle of a text, in stretches that overlap.
create or replace function _memoir.middle_secrets(p_text text, p_config jsonb)
returns text[] language plpgsql stable as $$
declare
  v_size constant integer := 60000; v_overlap constant integer := 500;
  v_at integer := _memoir.end_size() - v_overlap; v_end integer := length(p_text) - _memoir.end_size() + v_overlap;
  v_kinds text[] := '{}';
begin
  while v_at < v_end loop
    v_kinds := v_kinds || _memoir.secret_kinds(substr(p_text, v_at, least(v_size, v_end - v_at)), p_config);
    exit when v_kinds <> '{}';
    v_at := v_at + v_size - v_overlap;
  end loop;
  return v_kinds;
end $$;

-- One batch of the job scan.
create or replace function _memoir.step_scan(p_limit integer)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_work _memoir.work_items; v_turn _memoir.conversation_history; v_session _memoir.sessions; v_config jsonb;
  v_was _memoir.sensitivity; v_marks jsonb; v_scanned integer := 0; v_secret integer := 0; v_parts integer := 0;
  v_seen integer := 0;
begin
  for v_work in select * from _memoir.work_items w where w.kind = 'scan' and w.state = 'ready'
    order by w.run_after, w.work_id limit p_limit for update skip locked
  loop
    v_seen := v_seen + 1;
    -- Whoever writes to the user now has him for a moment: his turn comes with the next run.
    continue when not _memoir.lock_shortly(v_work.user_id);
    v_turn := _memoir.turn(v_work.user_id, (v_work.payload ->> 'session_id')::uuid,
      (v_work.payload ->> 'turn')::integer);
    if v_turn.message_id::text = v_work.dedup_key then
      select * into v_session from _memoir.sessions where user_id = v_work.user_id and session_id = v_turn.session_id;
      v_config := _memoir.config(v_work.user_id, v_session.settings);
      v_marks := _memoir.marks(v_work.user_id, v_turn.session_id);
      v_was := _memoir.sensitivity_now(v_turn.sensitivity, v_turn.turn_index, v_marks);
      -- What somebody has marked is as they say.
      if v_was < 'secret' and (v_marks ? v_turn.turn_index::text) is not true
        and (v_work.payload ->> 'scan')::boolean and (v_config ->> 'detect_secrets')::boolean
        and _memoir.middle_secrets(v_turn.content, v_config) <> '{}' then
        perform _memoir.set_mark(v_turn, v_was, 'secret', 'system', 'looks like it holds a secret', _memoir.login());
        v_secret := v_secret + 1;
        v_was := 'secret';
      end if;
      v_parts := v_parts + _memoir.index_middle(v_turn, v_was, v_config);
    end if;
    delete from _memoir.work_items where work_id = v_work.work_id;
    v_scanned := v_scanned + 1;
  end loop;
  return jsonb_build_object('more', v_seen = p_limit and v_scanned > 0, 'scanned', v_scanned, 'secret', v_secret,
    'parts', v_parts);
end $$;
