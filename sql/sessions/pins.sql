-- Turns pinned in a session: no compaction covers them, for good or a number of turns. Memories: memory/relations.sql.

create or replace function memoir.pin_turns(p_user text, p_session text, p_from_turn integer,
  p_to_turn integer default null, p_turns integer default null, p_reason text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_to integer := coalesce(p_to_turn, p_from_turn); v_count integer; v_until integer;
begin
  perform _memoir.check_range('turns', p_turns, 1, 1000000), _memoir.check_size('reason', p_reason, 10000);
  -- As compaction locks, so that a pin is before it or after it.
  select turn_count into v_count from _memoir.session_counters where user_id = v_caller.user_id
    and session_id = v_session.session_id for update;
  if p_from_turn is null or p_from_turn < 0 or v_to < p_from_turn or v_to >= v_count then
    perform _memoir.fail('PM014', format('turns %s to %s are not in session %s, which has %s turns',
      coalesce(p_from_turn::text, 'null'), coalesce(v_to::text, 'null'), _memoir.shown(p_session), v_count));
  end if;
  v_until := v_count + p_turns;
  insert into _memoir.turn_pins (user_id, session_id, from_turn, to_turn, until_turn, reason, actor, set_by,
    recorded_at)
  values (v_caller.user_id, v_session.session_id, p_from_turn, v_to, v_until, p_reason,
    _memoir.actor(v_caller, null, 'person'), v_caller.login, memoir.now())
  on conflict (user_id, session_id, from_turn, to_turn) do update set until_turn = excluded.until_turn,
    reason = excluded.reason, actor = excluded.actor, set_by = excluded.set_by, recorded_at = excluded.recorded_at;
  -- Summaries that cover it no longer count; the next compaction goes around it.
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  perform _memoir.refresh_summary(v_caller.user_id, v_session.session_id);
  update _memoir.session_counters set compact_after = 0 where user_id = v_caller.user_id
    and session_id = v_session.session_id and compact_after <> 0;
  return jsonb_build_object('session', p_session, 'from_turn', p_from_turn, 'to_turn', v_to, 'until_turn', v_until);
end $$;
comment on function memoir.pin_turns(text, text, integer, integer, integer, text) is
  'Keeps turns p_from_turn to p_to_turn (default: that one) of a session out of its compaction and, once the window has
left them behind, in its recall whatever the query, before all else that fits; for the next p_turns turns or, null,
until unpin_turns. Branches of the session keep to it for the turns they share. Returns {"session", "from_turn",
"to_turn", "until_turn"}. Writes turn_pins, sessions. Raises PM001, PM003, PM014.';

create or replace function memoir.unpin_turns(p_user text, p_session text, p_from_turn integer default null,
  p_to_turn integer default null)
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v_count integer;
begin
  perform from _memoir.session_counters where user_id = v_caller.user_id
    and session_id = v_session.session_id for update;
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  delete from _memoir.turn_pins where user_id = v_caller.user_id and session_id = v_session.session_id
    and to_turn >= coalesce(p_from_turn, 0) and from_turn <= coalesce(p_to_turn, p_from_turn, 2147483647);
  get diagnostics v_count = row_count;
  if v_count > 0 then perform _memoir.refresh_summary(v_caller.user_id, v_session.session_id); end if;
  return v_count;
end $$;
comment on function memoir.unpin_turns(text, text, integer, integer) is
  'Ends the pins that touch turns p_from_turn to p_to_turn of a session (default: all) and returns how many. Writes
turn_pins. Raises PM001, PM003.';

create or replace function memoir.set_working_memory(p_user text, p_session text, p_key text, p_content text,
  p_minutes integer default null)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_now timestamptz := memoir.now(); v_sensitivity _memoir.sensitivity := 'normal';
begin
  perform _memoir.check_name('key', p_key, 200);
  if p_content is null then
    delete from _memoir.memory_store_working
    where user_id = v_caller.user_id and session_id = v_session.session_id and key = p_key;
    return;
  end if;
  perform _memoir.check_size('content', p_content, 65536);
  if _memoir.detected(_memoir.config(v_caller.user_id, v_session.settings), p_content) <> '{}' then
    v_sensitivity := 'secret';
  end if;
  insert into _memoir.memory_store_working (user_id, session_id, key, recorded_at, expires_at, sensitivity, content,
    actor, written_by)
  values (v_caller.user_id, v_session.session_id, p_key, v_now, v_now + make_interval(mins => p_minutes), v_sensitivity,
    p_content, _memoir.actor(v_caller, null, 'agent'), v_caller.login)
  on conflict (user_id, session_id, key) do update set recorded_at = excluded.recorded_at,
    expires_at = excluded.expires_at, sensitivity = excluded.sensitivity, content = excluded.content,
    actor = excluded.actor, written_by = excluded.written_by;
end $$;
comment on function memoir.set_working_memory(text, text, text, text, integer) is
  'Sets (or with null content removes) a session''s working note: short-lived state shown in its recall, for p_minutes
or while it is open. Writes memory_store_working, unlogged: a crash empties it. Raises PM001, PM003, PM012, PM014.';
