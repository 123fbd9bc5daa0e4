-- Users, sessions, turns. Everything here is hashed by user_id; turns also by the month in which they were recorded.

create table _memoir.users (
  user_id uuid not null,
  namespace text not null,
  external_id text not null,
  created_at timestamptz not null,
  settings jsonb not null default '{}',
  ranking jsonb,                  -- weights of the user's own, as ranking_profiles has the install's; null: none
  profile_version integer not null default 0,
  primary key (user_id)
) partition by hash (user_id);

-- Counters change with every write, so they are narrow, unindexed beyond their key, and stay HOT.
create table _memoir.user_counters (
  user_id uuid not null,
  next_item integer not null default 1,
  items integer not null default 0,
  tail_items integer not null default 0,
  next_segment integer not null default 1,
  -- how many rows the words of a letter share in posting lists: the sum of the numbers that occur
  letter_rows integer not null default 0,
  memories integer not null default 0,
  aliases integer not null default 0,     -- ever noted: none means none to look up
  related boolean not null default false, -- memories of theirs were ever related, as recall follows it
  total_words bigint not null default 0,
  cost_microcents bigint not null default 0,
  profile_stale boolean not null default false,
  helper_tokens bigint not null default 0,      -- of models that judge, extract, summarise: a part of the costs
  helper_microcents bigint not null default 0,
  has_archive boolean not null default false,   -- turns of theirs were archived: what compile looks for then
  erasures integer not null default 0,    -- what was read before one leaves no trace after it
  last_session uuid,                      -- whose turn was indexed last, and whether it was a question
  last_question boolean not null default false,
  languages bigint not null default 0,    -- ever written in: bits by the numbers of search_items.language
  primary key (user_id)
) partition by hash (user_id);

-- A keyed hash needs a secret that dies with the user.
create table _memoir.user_keys (
  user_id uuid not null,
  secret bytea not null,
  primary key (user_id)
) partition by hash (user_id);

create table _memoir.profiles (
  user_id uuid not null,
  version integer not null,
  content text not null,
  tokens jsonb not null default '{}',
  made_by text not null,
  recorded_at timestamptz not null,
  fresh_until timestamptz,                -- when time alone changes what belongs in it
  memory_ids uuid[] not null default '{}',
  left_out uuid[] not null default '{}',  -- wishes and health for which it had no room
  primary key (user_id, version)
) partition by hash (user_id);

create table _memoir.sessions (
  user_id uuid not null,
  session_id uuid not null,
  external_id text not null,
  project text not null default 'global',
  status _memoir.session_status not null default 'active',
  task_type _memoir.task_type,
  model text not null,
  context_window integer not null,
  max_response_tokens integer not null,
  tokenizer text not null,
  system_prompt_hash bytea,
  temperature real,
  top_p real,
  created_at timestamptz not null,
  closed_at timestamptz,
  expires_at timestamptz,
  parent_session_id uuid,
  parent_turn integer,
  summary_text text,
  summary_through integer,
  settings jsonb not null default '{}',
  metadata jsonb not null default '{}',
  primary key (user_id, session_id)
) partition by hash (user_id);
create index sessions_by_age on _memoir.sessions (user_id, created_at desc);
create index sessions_by_expiry on _memoir.sessions (expires_at) where status <> 'expired';
create index sessions_by_parent on _memoir.sessions (user_id, parent_session_id) where parent_session_id is not null;

create table _memoir.session_counters (
  user_id uuid not null,
  session_id uuid not null,
  turn_count integer not null default 0,
  tokens bigint not null default 0,
  prompt_tokens bigint not null default 0,
  completion_tokens bigint not null default 0,
  cost_microcents bigint not null default 0,
  helper_tokens bigint not null default 0,
  helper_microcents bigint not null default 0,
  exchange_start integer not null default 0,
  last_role _memoir.turn_role,
  open_calls text[] not null default '{}',
  extracted_through integer not null default 0,
  compact_after bigint not null default 0,  -- tokens at which compaction looks at the session next
  has_objects boolean not null default false,  -- whether its window may be managed, shared turns included
  first_recorded_at timestamptz not null,
  last_recorded_at timestamptz not null,
  primary key (user_id, session_id)
) partition by hash (user_id);

create table _memoir.receipts (
  user_id uuid not null,
  idempotency_key text not null,
  request_hash bytea not null,
  result jsonb not null,
  recorded_at timestamptz not null,
  primary key (user_id, idempotency_key)
) partition by hash (user_id);

-- Append-only (see guard_history in sql/history/guard.sql). tokens_before is the session's running total, from which
-- the first shown turn is derived without storing a window; exchange_start is the turn of the user message that opened
-- the exchange.
create table _memoir.conversation_history (
  user_id uuid not null,
  session_id uuid not null,
  message_id uuid not null,
  recorded_at timestamptz not null,
  created_at timestamptz not null,
  tokens_before bigint not null,
  turn_index integer not null,
  exchange_start integer not null,
  token_count integer not null,
  prompt_tokens integer,
  completion_tokens integer,
  latency_ms integer,
  role _memoir.turn_role not null,
  actor _memoir.actor not null,
  sensitivity _memoir.sensitivity not null default 'normal',
  embeddable boolean not null default true,
  tokenizer text not null,
  content text,
  content_parts jsonb,
  name text,
  tool_calls jsonb,
  tool_call_id text,
  model text,
  finish_reason text,
  metadata jsonb,
  primary key (user_id, session_id, turn_index, recorded_at)
) partition by hash (user_id);

create table _memoir.compactions (
  user_id uuid not null,
  session_id uuid not null,
  compaction_id uuid not null,
  from_turn integer not null,
  to_turn integer not null check (to_turn >= from_turn),
  level smallint not null default 1,
  summary_text text not null,
  made_by text not null,
  sources jsonb not null default '[]',
  metadata jsonb not null default '{}',
  recorded_at timestamptz not null,
  undone_at timestamptz,
  primary key (user_id, session_id, compaction_id)
) partition by hash (user_id);

-- Turns and spans that a forget, correction or retraction took out of recall, extraction and summaries; changed: a later
-- turn (by_session, by_turn) says otherwise, so it is shown with a mark. change_id: what was excluded by one turn.
create table _memoir.recall_exclusions (
  user_id uuid not null,
  session_id uuid not null,
  turn_index integer not null,
  exclusion_id uuid not null,
  span_start integer,
  span_length integer,
  memory_id uuid,
  reason text not null,
  recorded_at timestamptz not null,
  lifted_at timestamptz,
  changed boolean not null default false,
  change_id uuid,
  by_session uuid,
  by_turn integer,
  primary key (user_id, session_id, turn_index, exclusion_id)
) partition by hash (user_id);

-- How secret a turn is now, where that is not what it was stored with: history is never updated, so it is said beside
-- the turn, and the newest mark counts. An erased turn leaves the mark that it was there, one that was taken back
-- is marked so.
create table _memoir.turn_marks (
  user_id uuid not null,
  session_id uuid not null,
  turn_index integer not null,
  recorded_at timestamptz not null,
  mark text not null check (mark in ('normal', 'private', 'secret', 'erased', 'retracted')),
  actor _memoir.actor not null,
  reason text,
  set_by text not null,
  since timestamptz,                       -- of an erased turn: when it was recorded
  primary key (user_id, session_id, turn_index, recorded_at, mark)
) partition by hash (user_id);

-- Turns that compaction must not cover, as ranges. until_turn: the pin counts while the session has fewer turns; null:
-- until unpinned.
create table _memoir.turn_pins (
  user_id uuid not null,
  session_id uuid not null,
  from_turn integer not null,
  to_turn integer not null check (to_turn >= from_turn),
  until_turn integer,
  reason text,
  actor _memoir.actor not null,
  set_by text not null,
  recorded_at timestamptz not null,
  primary key (user_id, session_id, from_turn, to_turn)
) partition by hash (user_id);

create table _memoir.api_calls (
  user_id uuid not null,
  call_id uuid not null,
  recorded_at timestamptz not null,
  session_id uuid not null,
  provider text,
  model text,
  status integer,
  latency_ms integer,
  started_at timestamptz,
  request_headers jsonb not null default '{}',
  response_headers jsonb not null default '{}',
  request bytea not null,
  response bytea,
  metadata jsonb not null default '{}',
  sensitivity _memoir.sensitivity not null default 'normal',
  session_name text not null,     -- the session need not be there
  primary key (user_id, call_id, recorded_at)
) partition by hash (user_id);
create index api_calls_by_session on _memoir.api_calls (user_id, session_id, recorded_at);

create table _memoir.stream_events (
  user_id uuid not null,
  call_id uuid not null,
  seq integer not null,
  recorded_at timestamptz not null,
  received_at timestamptz,
  event bytea not null,
  primary key (user_id, call_id, seq, recorded_at)
) partition by hash (user_id);

-- The recall an open exchange was started with, kept so that a continued compile repeats it byte for byte, and in a managed
-- window those of its exchanges since the last moment. May be lost in a crash (it is then made anew), hence unlogged.
create table _memoir.kept_recalls (
  user_id uuid not null,
  session_id uuid not null,
  at_turn integer not null,
  query_hash bytea not null,
  recall text not null,
  tokens integer not null,
  items jsonb not null,
  clearance _memoir.sensitivity not null default 'private',   -- of whom it was made for: others don't go on with it
  projects text[],
  primary key (user_id, session_id, at_turn)
) partition by hash (user_id);

-- Messages of a list that somebody else keeps (an agent's own), known again by a hash over all up to each: which session's
-- turns they are, and what was sent with them that is not in that list (added, jsonb whose texts are sent byte for byte).
create table _memoir.client_messages (
  user_id uuid not null,
  chain text not null,
  session_id uuid not null,
  turn_count integer not null,          -- of the session, up to and with this message
  added jsonb,
  items jsonb,                          -- ids of what a recall in it shows
  recorded_at timestamptz not null,
  primary key (user_id, chain, session_id)
) partition by hash (user_id);

insert into _memoir.partitioned_tables (table_name, by_month, unlogged) values
  ('users', false, false), ('user_counters', false, false), ('user_keys', false, false), ('profiles', false, false),
  ('sessions', false, false), ('session_counters', false, false), ('receipts', false, false),
  ('conversation_history', true, false), ('compactions', false, false), ('recall_exclusions', false, false),
    ('turn_marks', false, false),
  ('turn_pins', false, false),
  ('api_calls', true, false), ('stream_events', true, false), ('kept_recalls', false, true), ('client_messages', false, false);
update _memoir.partitioned_tables set options = 'fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05'
where table_name in ('user_counters', 'session_counters', 'kept_recalls');
