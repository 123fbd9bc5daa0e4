-- Composite types that functions hand each other. State, since what depends on a type can't outlive it.

-- identity.sql
create type memoir.caller as (
  login name, user_id uuid, namespace text, actor memoir.actor, may_state_actor boolean,
  projects text[], clearance memoir.sensitivity);

-- messages.sql
-- text is what is searched and counted; parts keeps multimodal content exactly as sent.
create type memoir.message as (
  role memoir.turn_role, text text, parts jsonb, name text, tool_calls jsonb, tool_call_id text,
  created_at timestamptz, media_tokens integer, extra jsonb);

-- window.sql
create type memoir.shown_turn as (
  turn_index integer, exchange_start integer, message_id uuid, role memoir.turn_role, content text, parts jsonb, name text,
  tool_calls jsonb, tool_call_id text, tokens_before bigint, cost integer, excerpt boolean, created_at timestamptz);
create type memoir.shown_window as (
  turns memoir.shown_turn[], tokens integer, moved boolean, warnings text[]);

-- search.sql
create type memoir.ranked_item as (
  item_no integer, kind "char", ref_id uuid, session_id uuid, turn_index integer, chunk smallint, span_start integer,
  span_length integer, token_count integer, role memoir.turn_role, created_at timestamptz, recorded_at timestamptz, project text,
  score real, words real, vector real, around real, session_score real, words_rank integer, vector_rank integer);
create type memoir.search_scope as (
  kinds "char"[],                -- null: all
  hidden_sessions uuid[],        -- of these sessions ...
  hidden_from integer,           -- ... turns from here on are shown anyway
  local_sessions uuid[],         -- whose local memories may be candidates
  projects text[],               -- the caller's bound; null: all
  clearance memoir.sensitivity,
  as_of timestamptz,             -- what we knew then; null: now
  valid_at timestamptz,          -- what was true then
  said_after timestamptz, said_before timestamptz);

-- packing.sql
create type memoir.candidate as (
  item memoir.ranked_item, score real, parts jsonb, arms text[], tokens integer, header text, label text, body text,
  reason text, fidelity smallint, type text);
create type memoir.recall_block as (text text, tokens integer, candidates memoir.candidate[], chosen integer[]);
