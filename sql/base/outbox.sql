-- Notes an event for readers outside (work/events.sql) in the transaction of what happened: ids, never texts. Events
-- of memories are written under the user's lock. Writes nothing while setting outbox_days is 0. NOTIFY only wakes
-- readers, who look anyway. It makes commits wait for each other, so the one with the installation's row notifies.
create or replace function _memoir.emit(p_user_id uuid, p_type text, p_ids uuid[], p_subject text)
returns void language plpgsql as $$
begin
  if (select (config ->> 'outbox_days')::integer from _memoir.settings_merged) = 0 then return; end if;
  insert into _memoir.outbox (user_id, recorded_at, type, memory_id, subject)
  select p_user_id, memoir.now(), p_type, id, p_subject from unnest(coalesce(p_ids, '{null}')) id where not exists (
    select from _memoir.memory_store m where m.user_id = p_user_id and m.memory_id = id and m.is_object);
  if not found then return; end if;
  perform from _memoir.installation for update skip locked;
  if found then notify memoir_outbox; end if;
end $$;
