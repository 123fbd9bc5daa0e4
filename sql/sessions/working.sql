-- Working notes: what a session has in hand, shown in its recall until the session or the note ends.

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
  'Sets (or with null content removes) a working note of a session: short-lived state shown in its recall, for
p_minutes or as long as the session is open. Writes memory_store_working, which is unlogged: a crash empties it. Raises
PM001, PM003, PM012, PM014.';
