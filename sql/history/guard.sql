-- History is append-only: the trigger that refuses everything but an announced erase or archive.

-- History is append-only for everybody, its owner included. Only an erase or archive deletes, and those announce
-- themselves with an audit row of the same transaction first.
create or replace function _memoir.guard_history()
returns trigger language plpgsql set search_path from current as $$
begin
  if tg_op = 'DELETE' and exists (select from _memoir.audit_log
      where xact_id = pg_current_xact_id_if_assigned() and action in ('erase', 'archive')) then
    return old;
  end if;
  raise exception using errcode = 'PM024', message = format('conversation history is append-only: %s refused',
    lower(tg_op)),
    hint = 'forget, compact or erase instead';
end $$;
