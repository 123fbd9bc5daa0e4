-- Composite types that functions hand each other. State, since what depends on a type can't outlive it.

-- identity.sql
create type _memoir.caller as (
  login name, user_id uuid, namespace text, actor _memoir.actor, may_state_actor boolean,
  projects text[], clearance _memoir.sensitivity);

-- messages.sql
-- text is what is searched and counted; parts keeps multimodal content exactly as sent.
create type _memoir.message as (
  role _memoir.turn_role, text text, parts jsonb, name text, tool_calls jsonb, tool_call_id text,
  created_at timestamptz, media_tokens integer, extra jsonb,
  sensitivity _memoir.sensitivity, embeddable boolean);

-- turns.sql
-- One append, stage by stage: what was asked, what was read once, what was counted, what is written.
create type _memoir.append_state as (
  user_id uuid, session_id uuid, caller _memoir.caller, user_name text, session_name text, actor _memoir.actor, metadata jsonb,
  used_model text, finish_reason text, prompt_tokens integer, completion_tokens integer, latency_ms integer,
  may_stay_open boolean, idempotency_key text, request_hash bytea,
  session _memoir.sessions, model _memoir.models, config jsonb,
  messages _memoir.message[], warnings jsonb,
  tokenizer text, costs integer[], cost_microcents bigint,
  counters _memoir.session_counters,      -- as they stand, then as each message moves them
  first_turn integer, recorded_at timestamptz,
  exchange_starts integer[], tokens_before bigint[], message_ids uuid[],   -- of each message
  result jsonb);

-- memories.sql
-- Whose word it is, as the write path and the caller's role have it; by_person: said by the person, or backed by their own turns.
create type _memoir.standing as (actor _memoir.actor, provenance _memoir.provenance, trust real, by_person boolean);

-- conflicts.sql
-- A memory and those like it, the most similar first, while it is judged; is_settled: a contradiction was found and
-- decided.
create type _memoir.judging_state as (
  memory _memoir.memory_store, others _memoir.memory_store[], similarities real[], is_settled boolean[],
  open uuid[], superseded uuid[], contradicts uuid[], result jsonb);

-- corrections.sql
-- What is put right, by whom, and what stands in its place. has_slot: the new value has the slot of the old one.
create type _memoir.correction as (
  caller _memoir.caller, user_name text, old _memoir.memory_store, standing _memoir.standing, reason text, corrected_at timestamptz,
  content text, remainder text, valid_from timestamptz, valid_to timestamptz, has_slot boolean, slot_value text,
  session_name text, source_turns integer[], stated_actor text, embedding real[]);

-- window.sql
create type _memoir.shown_turn as (
  turn_index integer, exchange_start integer, message_id uuid, role _memoir.turn_role, content text, parts jsonb, name text,
  tool_calls jsonb, tool_call_id text, tokens_before bigint, cost integer, excerpt boolean, created_at timestamptz, withheld boolean);
create type _memoir.shown_window as (
  turns _memoir.shown_turn[], tokens integer, moved boolean, warnings text[]);

-- search.sql
create type _memoir.item_place as (
  item_no integer, kind "char", ref_id uuid, session_id uuid, turn_index integer, recorded_at timestamptz, span_start integer, span_length integer);
create type _memoir.posting_list as (term text, first_item integer, postings integer[], lengths smallint[]);  -- as in search_postings
create type _memoir.item_scores as (items integer[], scores real[], covers real[], best real);  -- parallel, best first
create type _memoir.ranked_item as (
  item_no integer, kind "char", ref_id uuid, session_id uuid, turn_index integer, chunk smallint, span_start integer, span_length integer, tokens integer,
  role _memoir.turn_role, said_at timestamptz, recorded_at timestamptz, project text,
  score real, words real, vector real, around real, session_score real);
-- Of some items: what precedes those that match in meaning and is not among them, and those that match in words and nothing follows.
create type _memoir.item_ends as (before integer[], lasts integer[]);
create type _memoir.search_scope as (
  kinds "char"[],                -- null: all
  hidden_sessions uuid[],        -- of these sessions ...
  hidden_from integer,           -- ... turns from here on are shown anyway
  local_sessions uuid[],         -- whose local memories may be candidates
  projects text[],               -- the caller's bound; null: all
  clearance _memoir.sensitivity,
  as_of timestamptz,             -- what we knew then; null: now
  valid_at timestamptz,          -- what was true then
  said_after timestamptz, said_before timestamptz);

-- packing.sql
create type _memoir.memory_facts as (
  memory_id uuid, type text, importance text, tier smallint, sensitivity _memoir.sensitivity, active boolean, valid_from timestamptz, valid_to timestamptz,
  recorded_at timestamptz, trust real, confidence real, reinforced_at timestamptz, access_count integer);
-- A ranked item with what memories add: score is final, memory_parts says how it came about, reason why it can't be shown.
create type _memoir.candidate as (
  item_no integer, kind "char", ref_id uuid, session_id uuid, turn_index integer, chunk smallint, span_start integer, span_length integer, tokens integer,
  role _memoir.turn_role, said_at timestamptz, recorded_at timestamptz, project text,
  score real, words real, vector real, around real, session_score real,
  type text, memory_parts jsonb, is_frequent boolean, reason text);
-- Texts that could stand for items, and what share of their worth is left.
create type _memoir.reduced_texts as (items integer[], fidelities text[], texts text[], tokens integer[], shares float8[]);
-- What candidates look like, parallel arrays in the order in which to take them; places: which candidate it is; steps: 1, or which step up
-- from the line of the same candidate before it; copies: the candidates that say what another says.
create type _memoir.recall_lines as (
  places integer[], fidelities text[], steps smallint[], is_turn boolean[], sessions uuid[], turns integer[], chunks smallint[], refs uuid[], said timestamptz[], headers text[],
  labels text[], bodies text[], costs integer[], openings integer[], groups integer[], worths float8[], copies integer[]);
-- places: for each candidate its place in the order of choice, or null; reasons: why it was left out, or null; fidelities: what it is shown
-- as, or null; texts: what stands for it, where that is not all of it.
create type _memoir.recall_block as (text text, tokens integer, places integer[], reasons text[], worths float8[], fidelities text[], texts text[]);

-- learning.sql
-- A used item and one that was not: whether it is held out, its weight, the difference of scores (log odds) and of signals.
create type _memoir.weight_pair as (compile_id uuid, held boolean, weight float8, base float8, x float8[]);

-- compile.sql
create type _memoir.compiled as (
  user_id uuid, session_id uuid, at timestamptz, messages jsonb, prefix integer, is_open boolean, exchange_at integer,
  query_hash bytea, recall text, recall_tokens integer, recall_budget integer, tokens integer, budget integer, system_tokens integer,
  tools_tokens integer, tokenizer text, model text, task _memoir.task_type, warnings text[], arms jsonb, statistics_version text,
  shown _memoir.shown_turn[], candidates _memoir.candidate[], places integer[], reasons text[], worths float8[], fidelities text[], texts text[],
  clearance _memoir.sensitivity, projects text[]);

-- extraction.sql
-- What a rule found in a turn: the place of the text it was found in, which sentence, and the memory to be.
create type _memoir.extracted as (
  place integer, span_start integer, span_length integer, rule text, type text, provenance text, category text, importance text, utility real,
  content text, slot text, slot_value text, valid_from timestamptz, valid_to timestamptz, event_from date, event_to date);
