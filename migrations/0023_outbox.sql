-- Events for readers outside (work/events.sql): ids, kinds and times, no text. Empty as long as setting outbox_days is 0.
-- event_id gives the order of a user's events, xact_id says which readers have seen them. user_id is zeros for events of
-- the whole install. subject: the state of a memory, or the job that failed.
create table _memoir.outbox (
  user_id uuid not null,
  event_id bigserial,
  xact_id xid8 not null default pg_current_xact_id(),
  recorded_at timestamptz not null,
  type text not null,
  memory_id uuid,
  subject text,
  primary key (user_id, event_id)
) partition by hash (user_id);
create index outbox_by_event on _memoir.outbox (event_id);
create index outbox_by_xact on _memoir.outbox (xact_id);
insert into _memoir.partitioned_tables (table_name, by_month, unlogged) values ('outbox', false, false);
