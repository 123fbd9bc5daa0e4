-- Queue, ledger, logs.

-- One plain table: claiming from hundreds of partitions costs forty times as much.
create table _memoir.work_items (
  work_id bigint generated always as identity primary key,
  kind text not null,
  user_id uuid not null,
  dedup_key text not null default '',
  state text not null default 'ready' check (state in ('ready', 'leased', 'dead')),
  priority smallint not null default 0,
  attempts smallint not null default 0,
  run_after timestamptz not null,
  leased_until timestamptz,
  lease_id uuid,
  payload jsonb not null default '{}',
  last_error text,
  created_at timestamptz not null
) with (fillfactor = 70);
create unique index work_items_one_waiting on _memoir.work_items (kind, user_id, dedup_key) where state = 'ready';
create index work_items_ready on _memoir.work_items (kind, priority desc, run_after) where state = 'ready';
create index work_items_leased on _memoir.work_items (leased_until) where state = 'leased';

-- What an erase has touched: leaves to be written anew once nobody can see the old rows any more, and prompts that may
-- have lost their last session. Rows are only added by erases, so that those of different users never wait for each
-- other.
create table _memoir.erase_queue (
  queue_id bigint generated always as identity primary key,
  leaf name,
  prompt_hash bytea,
  xact_id xid8 not null default pg_current_xact_id(),
  check ((leaf is null) <> (prompt_hash is null))
);

create table _memoir.admission_scores (
  user_id uuid not null,
  score_id uuid not null,
  recorded_at timestamptz not null,
  memory_id uuid,
  admitted boolean not null,
  score_total real not null,
  score_type real not null,
  score_novelty real not null,
  score_utility real not null,
  score_recency real not null,
  threshold real not null,
  primary key (user_id, score_id, recorded_at)
) partition by hash (user_id);

-- One row per compile, arrays over what was considered: numbers only, no text. Items are search_items of the user; a
-- position says where in the recall an item was shown, a reason why it was not.
create table _memoir.compile_ledger (
  user_id uuid not null,
  compile_id uuid not null,
  recorded_at timestamptz not null,
  session_id uuid not null,
  budget integer not null,
  tokens integer not null,
  recall_tokens integer not null,
  system_tokens integer not null,
  tools_tokens integer not null,
  turn_tokens integer[] not null,         -- of shown turns, by fidelity 0 to 3
  first_turn integer,                     -- the first that was shown; null: none was
  prefix_hash bytea not null,
  warnings text[] not null,
  items integer[] not null,
  scores real[] not null,
  words real[] not null,
  vectors real[] not null,
  around real[] not null,
  session_scores real[] not null,
  item_tokens integer[] not null,
  positions integer[] not null,
  forms text[] not null,                  -- the fidelity at which an item was shown
  reasons text[] not null,
  -- per item the signals that nothing else here tells (ledger_signals), in thousandths
  facts smallint[] not null,
  used integer[],                         -- items that the answer used; null: nobody said
  primary key (user_id, compile_id, recorded_at)
) partition by hash (user_id);

-- What compiles leave behind before a job moves it to the ledger and the counters: unlogged, so that a read costs no
-- WAL.
create unlogged table _memoir.compile_buffer (
  like _memoir.compile_ledger,
  buffer_id bigint generated always as identity primary key
);

-- One row per run, updated with the counts of each batch in the batch's own transaction. Unfinished rows are running or
-- lost.
create table _memoir.job_runs (
  run_id bigint generated always as identity primary key,
  job text not null,
  started_at timestamptz not null,
  until timestamptz,                      -- no new batch after this
  finished_at timestamptz,
  outcome text check (outcome in ('done', 'time over', 'cost cap', 'errors', 'failed', 'cancelled', 'lost',
    'still running')),
  counts jsonb not null default '{}',
  error text,
  batch integer                           -- p_limit of its next batch
) with (fillfactor = 70);
create index job_runs_by_job on _memoir.job_runs (job, run_id desc);
create index job_runs_unfinished on _memoir.job_runs (job) where finished_at is null;

-- Who runs a job, and until when unless it is heard of again: no lock, since any login could take one of its number.
create table _memoir.job_leases (
  job text primary key,
  run_id bigint not null,
  backend integer not null,               -- the process: gone, the lease is over
  leased_until timestamptz not null
) with (fillfactor = 50);

-- Where a job that goes through all users has got to, and what it has found on the way; the next run goes on from
-- there.
create table _memoir.job_cursors (
  job text primary key,
  after_user uuid,
  state jsonb not null default '{}'
);

-- Months of turns that were taken out, and which turns those were.
create table _memoir.archives (
  archive_id bigint generated always as identity primary key,
  leaf name not null,
  part integer not null,
  month date not null,
  state text not null check (state in ('ready', 'exported', 'detaching', 'kept', 'dropped', 'restored')),
  destination text not null,
  turns bigint,
  recorded_at timestamptz not null,
  restored_until timestamptz      -- brought back: it is not archived again before
);
create unique index archives_waiting on _memoir.archives (leaf) where state in ('ready', 'exported', 'detaching');

create table _memoir.archived_turns (
  user_id uuid not null,
  session_id uuid not null,
  from_turn integer not null,
  to_turn integer not null,
  turns integer not null,
  tokens bigint not null,
  archive_id bigint not null,
  recorded_at timestamptz not null,
  primary key (user_id, session_id, from_turn)
) partition by hash (user_id);

-- Expired memories that were taken out of memory_store, as they were, or without their text once dropped or confirmed.
create table _memoir.archived_memories (
  user_id uuid not null,
  memory_id uuid not null,
  session_id uuid,
  recorded_at timestamptz not null,
  memory jsonb,
  primary key (user_id, memory_id)
) partition by hash (user_id);

-- user_id is null for what concerns the whole install.
create table _memoir.audit_log (
  audit_id bigint generated always as identity primary key,
  recorded_at timestamptz not null default now(),
  xact_id xid8 not null default pg_current_xact_id(),
  login text not null default session_user,
  action text not null,
  user_id uuid,
  detail jsonb not null default '{}'
);
create index audit_log_by_user on _memoir.audit_log (user_id, recorded_at);
create index audit_log_by_xact on _memoir.audit_log (xact_id);

insert into _memoir.partitioned_tables (table_name, by_month, unlogged) values
  ('admission_scores', true, false),
  ('compile_ledger', true, false), ('archived_turns', false, false), ('archived_memories', false, false);
