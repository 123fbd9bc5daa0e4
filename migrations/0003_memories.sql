-- Memories, what surrounds them, and the structures they are searched by.

create table _memoir.memory_store (
  user_id uuid not null,
  memory_id uuid not null,
  recorded_at timestamptz not null,
  valid_from timestamptz,
  valid_to timestamptz,
  expires_at timestamptz,
  state_at timestamptz not null,
  validated_at timestamptz,
  session_id uuid,
  local_to uuid,
  superseded_by uuid,
  trust real not null check (trust between 0 and 1),
  confidence real not null check (confidence between 0 and 1),
  token_count integer not null check (token_count >= 0),
  tier smallint not null check (tier between 1 and 4),
  scope _memoir.scope not null,
  state _memoir.item_state not null default 'active',
  provenance _memoir.provenance not null,
  actor _memoir.actor not null,
  sensitivity _memoir.sensitivity not null default 'normal',
  embeddable boolean not null default true,
  is_object boolean not null default false,       -- it stands for text of turns, which is where that lies (objects/)
  importance text not null default 'normal' check (importance in ('critical', 'important', 'normal', 'minor')),
  type text not null,
  project text not null default 'global',
  category text,
  tokenizer text not null,
  content text not null,
  content_hash bytea not null,
  slot text,
  slot_value text,
  source_tool text,
  source_key text,
  state_reason text,
  written_by text not null,
  aliases text[] not null default '{}',
  tags text[] not null default '{}',
  metadata jsonb not null default '{}',
  check ((scope = 'local') = (local_to is not null)),
  check (valid_to is null or valid_from is null or valid_to > valid_from),
  primary key (user_id, memory_id)
) partition by hash (user_id);
create unique index memory_store_by_hash on _memoir.memory_store (user_id, content_hash, project, local_to, valid_to)
  nulls not distinct where state = 'active';
create index memory_store_by_tier on _memoir.memory_store (user_id, scope, tier) where state = 'active';
create index memory_store_by_expiry on _memoir.memory_store (expires_at) where state = 'active'
  and expires_at is not null;
create index memory_store_by_end on _memoir.memory_store (user_id, state_at) where state = 'expired';
create index memory_store_by_slot on _memoir.memory_store (user_id, slot) where slot is not null and state = 'active';
create index memory_store_by_source_key on _memoir.memory_store (user_id, source_key) where source_key is not null;
create index memory_store_by_session on _memoir.memory_store (user_id, session_id) where session_id is not null;
create index memory_store_by_successor on _memoir.memory_store (user_id, superseded_by) where superseded_by is not null;

-- Tier 0, a session's working notes. Its leaves are unlogged: working state is rebuilt from the session, not recovered.
create table _memoir.memory_store_working (
  user_id uuid not null,
  session_id uuid not null,
  key text not null,
  recorded_at timestamptz not null,
  expires_at timestamptz,
  sensitivity _memoir.sensitivity not null default 'normal',
  content text not null,
  actor _memoir.actor not null,
  written_by text not null,
  primary key (user_id, session_id, key)
) partition by hash (user_id);

-- Counters beside the memories: reading never rewrites a memory, and an update here stays HOT.
create table _memoir.memory_stats (
  user_id uuid not null,
  memory_id uuid not null,
  access_count integer not null default 0,
  restatements integer not null default 0,
  relevance_sum real not null default 0,
  last_accessed_at timestamptz,
  reinforced_at timestamptz,
  primary key (user_id, memory_id)
) partition by hash (user_id);

-- Every state a memory was in, numbered, so that "what did we know then" has an answer: who set it, when, why, by what.
create table _memoir.memory_states (
  user_id uuid not null,
  memory_id uuid not null,
  seq integer not null,
  recorded_at timestamptz not null,
  state _memoir.item_state not null,
  superseded_by uuid,
  reason text,
  actor _memoir.actor,
  set_by text not null,
  primary key (user_id, memory_id, seq)
) partition by hash (user_id);

-- What was decided about two memories that might contradict each other or say the same, by what judge, and why. Nothing
-- is deleted for it.
create table _memoir.memory_judgements (
  user_id uuid not null,
  judgement_id uuid not null,
  recorded_at timestamptz not null,
  memory_id uuid not null,
  other_id uuid not null,
  judge text not null,                    -- slot, polarity, value, rules, person, or the model that was asked
  verdict text not null check (verdict in ('contradiction', 'compatible', 'duplicate')),
  score real,
  similarity real,
  decision text not null check (decision in ('superseded', 'contradicts', 'none')),
  winner_id uuid,
  reason text not null,
  primary key (user_id, judgement_id)
) partition by hash (user_id);
create index memory_judgements_by_memory on _memoir.memory_judgements (user_id, memory_id, recorded_at);
create index memory_judgements_by_other on _memoir.memory_judgements (user_id, other_id);

create table _memoir.memory_sources (
  user_id uuid not null,
  item_kind _memoir.source_kind not null,
  item_id uuid not null,
  source_kind _memoir.source_kind not null,
  source_id uuid not null,
  session_id uuid,
  turn_index integer,
  span_start integer,
  span_length integer,
  -- origin: the text stems from it; restated: it says the same text itself; merged: it says nearly the same
  link text not null default 'origin' check (link in ('origin', 'restated', 'merged')),
  primary key (user_id, item_kind, item_id, source_kind, source_id)
) partition by hash (user_id);
create index memory_sources_by_source on _memoir.memory_sources (user_id, source_kind, source_id);

-- Shorter forms of a memory. Of those recorded by a moment the newest counts, so that what is shown changes when that is
-- announced and not when something better was made.
create table _memoir.memory_renditions (
  user_id uuid not null,
  memory_id uuid not null,
  fidelity smallint not null check (fidelity between 0 and 4),
  content text not null,
  token_count integer not null,
  tokenizer text not null,
  losses jsonb not null default '[]',
  can_answer jsonb not null default '[]',
  fault_when jsonb not null default '[]',
  key_entities jsonb not null default '[]',
  made_by text not null,
  recorded_at timestamptz not null,
  primary key (user_id, memory_id, fidelity, recorded_at)
) partition by hash (user_id);

-- What a session has of memories: what it pins, and its objects: their tokens in full, since which turn they are stale
-- (a file that was edited).
create table _memoir.session_objects (
  user_id uuid not null,
  session_id uuid not null,
  memory_id uuid not null,
  tokens integer not null default 0,
  stale_turn integer,
  fidelity_ceiling smallint not null default 0 check (fidelity_ceiling between 0 and 4),
  pinned_until_turn integer,
  pin_reason text,
  primary key (user_id, session_id, memory_id)
) partition by hash (user_id);

-- Where the text of an object stands: in the content of a turn (call_no 0), or in an argument (a path of names and
-- numbers) of one of its tool calls. The same text may have been read more than once (reading), and neighbours may make
-- one object together (part_no).
create table _memoir.object_places (
  user_id uuid not null,
  session_id uuid not null,
  turn_index integer not null,
  call_no smallint not null default 0,
  argument text[] not null default '{}',
  memory_id uuid not null,
  reading smallint not null default 0,
  part_no smallint not null default 0,
  tokens integer not null,
  primary key (user_id, session_id, turn_index, call_no, argument)
) partition by hash (user_id);
create index object_places_by_memory on _memoir.object_places (user_id, memory_id);

-- How the list shows a session's past, since the last moment at which that changed: the moment (how manieth, why, at
-- which turn, for what budget, in which zone), from which turn on turns are shown at all (opening: the exchange
-- it belongs to, whose question stays), through which turn steps are lines, and through which nothing has changed since. lines:
-- {"exchange": their text}, null: to be made anew.
create table _memoir.session_windows (
  user_id uuid not null,
  session_id uuid not null,
  moments integer not null default 0,
  kind text not null,
  at_turn integer not null,
  moved_at timestamptz not null,
  budget integer not null,
  zone smallint not null,
  first_turn integer not null,
  opening integer not null default 0,
  lines_through integer not null default -1,
  frozen_through integer not null default -1,
  summary_through integer not null default -1,
  task text,
  line_tokens integer not null default 0,
  lines jsonb,
  primary key (user_id, session_id)
) partition by hash (user_id);

-- What is shown shorter than it is: an object at a place of it (object_places), as what and why.
create table _memoir.shown_forms (
  user_id uuid not null,
  session_id uuid not null,
  turn_index integer not null,
  call_no smallint not null,
  argument text[] not null,
  memory_id uuid not null,
  fidelity smallint not null check (fidelity between 1 and 4),
  tokens integer not null,
  reason text not null,
  shown_at timestamptz not null,
  primary key (user_id, session_id, turn_index, call_no, argument)
) partition by hash (user_id);

-- Every change of what is shown of an object.
create table _memoir.fidelity_transitions (
  user_id uuid not null,
  transition_id uuid not null,
  recorded_at timestamptz not null,
  session_id uuid not null,
  memory_id uuid not null,
  from_fidelity smallint not null,
  to_fidelity smallint not null,
  trigger text not null check (trigger in ('pressure', 'access', 'fault', 'cooperative', 'goal_change')),
  turn_number integer not null,
  pressure_zone text not null,
  token_count integer not null,
  primary key (user_id, transition_id, recorded_at)
) partition by hash (user_id);

-- Every time a model needed what it was not shown. The answer's text is in the turn that it was given in.
create table _memoir.fault_history (
  user_id uuid not null,
  fault_id uuid not null,
  recorded_at timestamptz not null,
  session_id uuid not null,
  memory_id uuid,
  type text,                               -- of the object
  fault_type text not null check (fault_type in ('full_restore', 'micro_fault', 'page_fault', 'entropy_triggered')),
  turn_number integer not null,
  fidelity smallint not null,              -- at which it was shown
  content_hash bytea,
  question text,
  answer_tokens integer,
  avoided_tokens integer,
  latency_ms integer,
  primary key (user_id, fault_id, recorded_at)
) partition by hash (user_id);
create index fault_history_by_session on _memoir.fault_history (user_id, session_id);
create index fidelity_transitions_by_session on _memoir.fidelity_transitions (user_id, session_id);

create table _memoir.memory_relationships (
  user_id uuid not null,
  source_id uuid not null,
  relation _memoir.relation not null,
  target_id uuid not null,
  weight real not null default 1,
  made_by text not null,
  metadata jsonb not null default '{}',
  recorded_at timestamptz not null,
  check (source_id <> target_id),
  primary key (user_id, source_id, relation, target_id)
) partition by hash (user_id);
create index memory_relationships_by_target on _memoir.memory_relationships (user_id, target_id);

create table _memoir.tombstones (
  user_id uuid not null,
  key_hash bytea not null,
  kind text not null check (kind in ('value', 'slot_value', 'turn')),
  memory_id uuid,
  reason text,
  actor _memoir.actor not null,
  set_by text not null,
  recorded_at timestamptz not null,
  lifted_at timestamptz,
  lifted_by text,
  primary key (user_id, key_hash, kind)
) partition by hash (user_id);

-- Search. An item is what is ranked: a memory, a session summary, or a turn, in chunks when it is long. Items are
-- numbered per user, so that posting lists are arrays of small integers. Numbers follow each other only within a
-- session: a gap stands wherever the next item continues nothing, so a neighbour in number is a neighbour in the
-- conversation. recorded_at makes an item a turn locator: fetching the turn touches one month.
create table _memoir.search_items (
  user_id uuid not null,
  ref_id uuid not null,
  session_id uuid,
  recorded_at timestamptz not null,
  created_at timestamptz not null,
  item_no integer not null,
  turn_index integer,
  previous_item integer,                  -- of a turn's chunk: what was said before it in the session
  span_start integer not null default 1,
  span_length integer not null,
  token_count integer not null,
  word_count smallint not null,
  language smallint not null default 0,   -- of text/language.sql, decided when it was indexed
  chunk smallint not null default 0,
  kind "char" not null check (kind in ('t', 'm', 's')),
  role _memoir.turn_role,
  speaker text,
  is_question boolean not null default false,
  after_question boolean not null default false,
  last_chunk boolean not null default true,
  dead boolean not null default false,
  embeddable boolean not null default true,
  echo boolean not null default false,    -- a memory in the words of a turn that is found by itself
  sensitivity _memoir.sensitivity not null default 'normal',
  project text not null default 'global',
  tags text[],                            -- of a turn; a memory has its own
  primary key (user_id, item_no)
) partition by hash (user_id);
create index search_items_by_sensitivity on _memoir.search_items (user_id, sensitivity, item_no)
  where sensitivity <> 'normal';
create index search_items_of_tags on _memoir.search_items (user_id, item_no) where tags is not null;
create index search_items_of_echoes on _memoir.search_items (user_id, item_no) include (word_count) where echo;
create index search_items_by_ref on _memoir.search_items (user_id, ref_id, chunk);

-- Words of items not yet merged into posting lists, those that were written together in one row, so that a word stands
-- once: item_no is the first one, word_counts has an entry for each (null: taken out since). A position in words means
-- 256 times an item's offset, from 0 on, plus how often the item has the word.
create table _memoir.search_tail (
  user_id uuid not null,
  item_no integer not null,
  word_counts smallint[] not null,
  words tsvector not null,
  primary key (user_id, item_no)
) partition by hash (user_id);
alter table _memoir.search_tail alter column words set storage main;

-- Posting lists: for each word the items that hold it, how often each does, and how many words each has; in segments,
-- by age. A word of many items is a row of its own, under itself. All others share rows, since a row of a few bytes
-- would cost the log hundreds: their key is made of their first letter and a hash (posting_keys), words are sorted, and
-- ends[n] is the entry at which the list of words[n] ends. A posting is 256 times the item's number after first_item,
-- plus how often; lengths runs parallel.
create table _memoir.search_postings (
  user_id uuid not null,
  segment integer not null,
  first_item integer not null,
  key text collate "C" not null,
  words text[] collate "C",
  ends integer[],
  postings integer[] not null,
  lengths smallint[] not null,
  primary key (user_id, key, segment)
) partition by hash (user_id);
-- Packed where it helps, but in the row: a list in a table beside it costs a look-up.
alter table _memoir.search_postings alter column words set storage main, alter column ends set storage main,
  alter column postings set storage main, alter column lengths set storage main;

-- Other names of things, as an item says them; lower case. Not stated: a phrase by its initials.
create table _memoir.search_aliases (
  user_id uuid not null,
  item_no integer not null,
  name text collate "C" not null,
  other text collate "C" not null,
  stated boolean not null,
  primary key (user_id, name, other, item_no)
) partition by hash (user_id);

-- The signs of a vector stand in the key's index too, where a user's rows lie together whatever the order of writing:
-- for a user of very many items the candidates are found there, without the vectors.
create table _memoir.embeddings (
  user_id uuid not null,
  item_no integer not null,
  model_id smallint not null,
  embedding halfvec not null,
  signs "bit" generated always as (binary_quantize(embedding)) stored,
  primary key (user_id, model_id, item_no) include (signs)
) partition by hash (user_id);
-- Inline at any dimension that fits a page: a TOASTed vector costs a look-up per comparison.
alter table _memoir.embeddings alter column embedding set storage main;

-- How far each user's items are embedded, per model.
create table _memoir.embedding_cursors (
  user_id uuid not null,
  model_id smallint not null,
  through_item integer not null default 0,
  primary key (user_id, model_id)
) partition by hash (user_id);

insert into _memoir.partitioned_tables (table_name, by_month, unlogged) values
  ('memory_store', false, false), ('memory_store_working', false, true), ('memory_stats', false, false),
  ('memory_states', false, false), ('memory_judgements', false, false), ('memory_sources', false, false),
    ('memory_renditions', false, false),
  ('session_objects', false, false), ('object_places', false, false), ('session_windows', false, false),
    ('shown_forms', false, false), ('fidelity_transitions', true, false), ('fault_history', true, false),
  ('memory_relationships', false, false), ('tombstones', false, false),
  ('search_items', false, false), ('search_tail', false, false), ('search_postings', false, false),
    ('search_aliases', false, false),
  ('embeddings', false, false), ('embedding_cursors', false, false);
update _memoir.partitioned_tables set options = 'fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05'
where table_name in ('memory_stats', 'embedding_cursors');
update _memoir.partitioned_tables set options = 'autovacuum_vacuum_scale_factor = 0.05'
where table_name = 'memory_store';
