-- Types and small registries: identical on every server, no user data.

create type _memoir.actor as enum ('person', 'agent', 'tool', 'system');
create type _memoir.turn_role as enum ('system', 'user', 'assistant', 'tool');
create type _memoir.session_status as enum ('active', 'closed', 'expired');
create type _memoir.task_type as enum ('continuation', 'knowledge', 'new_session', 'tool_heavy');
create type _memoir.provenance as enum
  ('user_stated', 'correction', 'instruction', 'preference', 'fact', 'tool_output', 'system_inferred');
create type _memoir.scope as enum ('local', 'global');
create type _memoir.item_state as enum ('active', 'superseded', 'invalidated', 'expired', 'forgotten', 'erased');
create type _memoir.sensitivity as enum ('normal', 'private', 'secret');
create type _memoir.relation as enum
  ('supersedes', 'relates_to', 'contradicts', 'elaborates', 'caused_by', 'parent_of', 'references', 'depends_on');
create type _memoir.source_kind as enum ('turn', 'memory');

-- One row: what is fixed for the life of an install.
create table _memoir.installation (
  is_only boolean primary key default true check (is_only),
  modulus integer not null check (modulus between 1 and 4096 and (modulus & (modulus - 1)) = 0),
  installed_at timestamptz not null default now()
);
insert into _memoir.installation (modulus) values (:modulus);

create table _memoir.partitioned_tables (
  table_name name primary key,
  by_month boolean not null,
  unlogged boolean not null default false,
  options text not null default ''
);

create table _memoir.setting_definitions (
  key text primary key,
  kind text not null check (kind in ('number', 'integer', 'boolean', 'text', 'time', 'weights', 'tools')),
  default_value jsonb not null,
  min_value numeric,
  max_value numeric,
  allowed text[],
  overridable boolean not null default true,
  description text not null
);

create table _memoir.settings (
  key text primary key,
  value jsonb not null
);

-- Defaults, settings and learnt weights merged, so that a hot function reads one row.
create table _memoir.settings_merged (
  is_only boolean primary key default true check (is_only),
  clock timestamptz,              -- what config has of it, as every function that asks the time reads it
  config jsonb not null
);
-- Read by every call: neither packed nor moved out of its row.
alter table _memoir.settings_merged alter config set storage external, set (toast_tuple_target = 8160);

-- Learnt weights of the ranking: what the release ships, replaced on every install, and an install's own, which goes
-- before it. A user's own (users.ranking, the same keys) goes before both. started_from: the version of the shipped
-- profile that it began with.
create table _memoir.ranking_profiles (
  profile text primary key check (profile in ('shipped', 'install')),
  version integer not null,
  source text not null,           -- the command and the data that it was learnt from
  started_from integer not null,
  weights jsonb not null,         -- rank_weights, strength_weights, fit_weights, weight_access, weight_authority
  made_at timestamptz,
  made_by text
);

-- When jobs run. schedule: what an admin set, or off; null: the default, which is the release's.
create table _memoir.schedules (
  job text primary key,
  default_schedule text not null,
  schedule text,
  changed_at timestamptz,
  changed_by text
);

create table _memoir.models (
  model text primary key,
  provider text not null,
  context_window integer not null check (context_window > 0),
  max_output integer not null check (max_output > 0),
  tokenizer text not null,
  message_overhead integer not null check (message_overhead >= 0),
  images text not null check (images ~ '^(tiles:[0-9.]+|patches:[0-9.]+|area:[0-9]+:[0-9]+|flat:[0-9]+)$'),   -- see image_tokens
  prompt_microcents_per_1k bigint not null default 0 check (prompt_microcents_per_1k >= 0),
  completion_microcents_per_1k bigint not null default 0 check (completion_microcents_per_1k >= 0),
  built_in boolean not null default false
);

create table _memoir.embedding_models (
  model_id smallint generated always as identity primary key,
  name text not null unique,
  provider text not null check (provider in ('embedder', 'openai', 'in_process', 'none')),
  dimension integer not null check (dimension between 1 and 16000),
  query_prefix text not null default '',
  document_prefix text not null default '',
  endpoint text,
  languages text[],                      -- that it reads (ISO 639-1); null: any
  microcents_per_1k bigint not null default 0 check (microcents_per_1k >= 0),
  status text not null default 'backfilling' check (status in ('active', 'backfilling', 'retired'))
);
create unique index embedding_models_one_active on _memoir.embedding_models ((true)) where status = 'active';

create table _memoir.system_prompts (
  prompt_hash bytea primary key,         -- see prompt_hash()
  tenant text not null default '',       -- whose it is; empty: the services'
  content text not null,
  tokens jsonb not null default '{}',    -- {tokenizer: count}
  created_at timestamptz not null default now()
);

-- Who a database login is to us. A login without a row has only what its roles give.
create table _memoir.logins (
  login name primary key,
  namespace text not null default 'default',
  actor _memoir.actor,
  projects text[],
  clearance _memoir.sensitivity not null default 'private'
);
create table _memoir.login_users (
  login name not null references _memoir.logins on delete cascade,
  user_id uuid not null,
  primary key (login, user_id)
);
