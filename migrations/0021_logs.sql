-- What the logs say to their readers: the answer to a fault, with the items that it holds, the session and the turn of an
-- admission, and what an answer of a model cost.
drop function if exists memoir.list_faults(text, text, integer);
drop function if exists _memoir.note_fault(uuid, uuid, _memoir.memory_store, text, integer, integer, text, integer,
  timestamptz);
drop function if exists _memoir.admit(uuid, text, float8, float8, timestamptz, boolean, uuid, jsonb, boolean);

alter table _memoir.fault_history
  add column answer text,                             -- of a micro_fault: what was answered, at most 4,000 characters
  add column items jsonb,                             -- ids of what stands in it: where one leaves recall, it goes too
  add column clearance _memoir.sensitivity not null default 'normal';  -- of who asked
alter table _memoir.admission_scores
  add column in_session uuid,
  add column turn_number integer,
  add column type text;
create index admission_scores_by_session on _memoir.admission_scores (user_id, in_session);

alter table _memoir.conversation_history add column cost_microcents bigint;
-- Months that were archived and kept are put back as rows of the same type.
do $$
declare
  v_leaf regclass;
begin
  for v_leaf in select c.oid from pg_class c where c.relnamespace = '_memoir'::regnamespace and c.relkind = 'r'
    and c.relname like 'archived\_conversation\_history%' loop
    execute format('alter table %s add column if not exists cost_microcents bigint', v_leaf);
  end loop;
end $$;
