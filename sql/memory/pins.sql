-- Memories pinned in a session: always candidates, whatever the query.

create or replace function memoir.pin(p_user text, p_session text, p_memory uuid, p_turns integer default null,
  p_reason text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_memory _memoir.memory_store := _memoir.memory(v_caller, p_memory);
  v_until integer;
begin
  perform _memoir.check_pin_turns(p_turns);
  perform _memoir.check_size('reason', p_reason, 10000);
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  v_memory := _memoir.current(v_memory);
  if v_memory.state <> 'active' then
    perform _memoir.fail('PM014', format('memory %s is %s and can''t be pinned', p_memory, v_memory.state));
  end if;
  if v_memory.local_to is not null and not exists (select from _memoir.lineage(v_session) l
    where l.session_id = v_memory.local_to) then
    perform _memoir.fail('PM014', format('memory %s belongs to another session than %s', p_memory,
      _memoir.shown(p_session)));
  end if;
  v_until := (select c.turn_count + p_turns from _memoir.session_counters c where c.user_id = v_caller.user_id
    and c.session_id = v_session.session_id);
  insert into _memoir.session_objects (user_id, session_id, memory_id, pinned_until_turn, pin_reason)
  values (v_caller.user_id, v_session.session_id, v_memory.memory_id, coalesce(v_until, 2147483647), p_reason)
  on conflict (user_id, session_id, memory_id) do update set pinned_until_turn = excluded.pinned_until_turn,
    pin_reason = excluded.pin_reason;
  return jsonb_build_object('memory_id', v_memory.memory_id, 'session', p_session, 'until_turn', v_until);
end $$;
comment on function memoir.pin(text, text, uuid, integer, text) is
  'Pins a memory in a session, for its next p_turns turns or, null, until unpin. Pinning again replaces the former end.
A superseded memory stands for its successor. Returns {"memory_id", "session", "until_turn"}; until_turn null: for
good. Writes session_objects. Raises PM001, PM003, PM004, PM014.';

create or replace function memoir.unpin(p_user text, p_session text, p_memory uuid)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_memory _memoir.memory_store := _memoir.memory(v_caller, p_memory);
begin
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  update _memoir.session_objects set pinned_until_turn = null, pin_reason = null
  where user_id = v_caller.user_id and session_id = v_session.session_id
    and memory_id in (v_memory.memory_id, (_memoir.current(v_memory)).memory_id) and pinned_until_turn is not null;
  return found;
end $$;
comment on function memoir.unpin(text, text, uuid) is
  'Ends a memory''s pin in a session; true if there was one. Writes session_objects. Raises PM001, PM003, PM004.';
