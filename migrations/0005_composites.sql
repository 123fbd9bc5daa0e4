-- Composite types that functions hand each other. State, since what depends on a type can't outlive it.

-- base/identity.sql
create type _memoir.caller as (
  login text, user_id uuid, namespace text, actor _memoir.actor, may_state_actor boolean,
  projects text[], clearance _memoir.sensitivity);

-- text/messages.sql
-- text is what is searched and counted; parts keeps multimodal content exactly as sent.
create type _memoir.message as (
  role _memoir.turn_role, text text, parts jsonb, name text, tool_calls jsonb, tool_call_id text,
  created_at timestamptz, media_tokens integer, extra jsonb,
  sensitivity _memoir.sensitivity, embeddable boolean);

-- text/tool_calls.sql
-- What a call of a tool does, and to what. keys: the files that it changes; lines: of the file that it reads, null: all
-- of it; texts: which of its arguments are texts of that file.
create type _memoir.tool_use as (
  tool text, does text, type text, key text, keys text[], first_line integer, last_line integer, texts text[],
  arguments jsonb);

-- sessions/turns.sql
-- One append, stage by stage: what was asked, what was read once, what was counted, what is written.
create type _memoir.append_state as (
  user_id uuid, session_id uuid, caller _memoir.caller, user_name text, session_name text, actor _memoir.actor,
    metadata jsonb,
  used_model text, finish_reason text, prompt_tokens integer, completion_tokens integer, latency_ms integer,
  may_stay_open boolean, idempotency_key text, request_hash bytea,
  session _memoir.sessions, model _memoir.models, config jsonb,
  messages _memoir.message[], warnings jsonb,
  tokenizer text, costs integer[], cost_microcents bigint,
  counters _memoir.session_counters,      -- as they stand, then as each message moves them
  first_turn integer, recorded_at timestamptz,
  exchange_starts integer[], tokens_before bigint[], message_ids uuid[],   -- of each message
  result jsonb);

-- memory/memories.sql
-- Whose word it is, as the write path and the caller's role have it; by_person: said by the person, or backed by their
-- own turns.
create type _memoir.standing as (actor _memoir.actor, provenance _memoir.provenance, trust real, by_person boolean);

-- memory/conflicts.sql
-- A memory and those like it, the most similar first, while it is reconciled with them; is_settled: a contradiction was
-- found and decided.
create type _memoir.judging_state as (
  memory _memoir.memory_store, others _memoir.memory_store[], similarities real[], is_settled boolean[],
  open uuid[], superseded uuid[], contradicts uuid[], result jsonb);

-- memory/corrections.sql
-- What is put right, by whom, and what stands in its place. has_slot: the new value has the slot of the old one.
create type _memoir.correction as (
  caller _memoir.caller, user_name text, old _memoir.memory_store, standing _memoir.standing, reason text,
    corrected_at timestamptz,
  content text, remainder text, valid_from timestamptz, valid_to timestamptz, has_slot boolean, slot_value text,
  session_name text, source_turns integer[], stated_actor text, embedding real[]);

-- text/clauses.sql
-- The values of a clause: of which kinds, in plain form and as written; names; the stems of what else it speaks of.
create type _memoir.said_values as (kinds text[], vals text[], raws text[], names text[], topics text[]);

-- A clause of one of several texts; clause 0 is the whole sentence, sentence_start and span_start count characters of the
-- text. inherits: it takes over the subject. is_last: of its sentence. asks: the sentence does.
create type _memoir.said_clause as (
  text_no integer, sentence_start integer, clause_no integer, span_start integer, span_length integer, said text,
  sentence text, plain text, inherits boolean, is_last boolean, asks boolean);

-- memory/changes.sql
-- A clause that asks to forget something, and what it names; is_all: everything about it.
create type _memoir.forget_request as (
  text_no integer, span_start integer, span_length integer, names text, is_all boolean, language text, said text);
-- A clause that may change what was said before: in plain form with what it refers to, what it says is over, whether it
-- sounds like a correction, and a sure one; whether it says that something is over, or only answers; the thing of which
-- it says there is a new one.
create type _memoir.change_candidate as (
  clause _memoir.said_clause, plain text, olds text[], cue boolean, is_sure boolean, new _memoir.said_values,
  context text[], is_over boolean, is_answer boolean, thing text);
-- A clause of an earlier turn: where it stands, and the whole that it stands in.
create type _memoir.said_unit as (
  message_id uuid, session_id uuid, turn_index integer, recorded_at timestamptz, created_at timestamptz,
  role _memoir.turn_role, span_start integer, span_length integer, said text, context text, is_question boolean);
-- What a clause of a turn changes: which clause, which earlier one, the values that are over, how sure that is.
create type _memoir.found_change as (
  span_start integer, span_length integer, said text, unit _memoir.said_unit, olds text[], kind text, score real);

-- objects/objects.sql
-- A text that may be an object: where it stands, what call it came with (call_turn, call_message: of a result), and how
-- secret either is.
create type _memoir.found_object as (
  turn_index integer, message_id uuid, call_no smallint, argument text[], body text, tokens integer,
  sensitivity _memoir.sensitivity, call_turn integer, call_message uuid, use _memoir.tool_use);

-- compile/window.sql
create type _memoir.shown_turn as (
  turn_index integer, exchange_start integer, message_id uuid, role _memoir.turn_role, content text, parts jsonb,
    name text,
  tool_calls jsonb, tool_call_id text, tokens_before bigint, cost integer, excerpt boolean, withheld boolean,
  fidelity smallint, why text);            -- of what is shown shorter: the least of its objects', and why
-- moment: why what is shown of the past should change now, null: it should not. note: what is said of turns that are not
-- shown, where no message of theirs is there to say it.
create type _memoir.shown_window as (
  turns _memoir.shown_turn[], tokens integer, warnings text[], moment text, note text, first_turn integer);

-- compile/moments.sql
-- A turn as the ladder weighs it: what it costs whole, what its forms save.
create type _memoir.past_turn as (turn_index integer, role _memoir.turn_role, exchange_start integer,
  recorded_at timestamptz, cost integer, calls boolean, saved integer);
-- A place of an object, as what it is shown (form: tokens of that), what speaks for showing it, and as what it should be
-- shown. over: why it is no longer of use.
create type _memoir.past_place as (turn_index integer, call_no smallint, argument text[], memory_id uuid,
  tokens integer, part_no smallint, type text, about text, recorded_at timestamptz, over text, pinned boolean,
  asked boolean, fidelity smallint, form integer, why text, value float8, target smallint);
-- The past of a session: shown: tokens of all that is shown; from fresh_from on nothing is touched.
create type _memoir.past as (turns _memoir.past_turn[], places _memoir.past_place[], shown integer,
  fresh_from integer, budget integer, overhead integer, recalls integer);

-- search/
create type _memoir.item_locator as (
  item_no integer, kind "char", ref_id uuid, session_id uuid, turn_index integer, recorded_at timestamptz,
    span_start integer, span_length integer);
-- as in search_postings
create type _memoir.posting_list as (term text, first_item integer, postings integer[], lengths smallint[]);
-- Parallel, best first. tellings: how rare the rarest word hit is that tells something, 1: in no other item.
create type _memoir.item_scores as (items integer[], scores real[], covers real[], tellings real[], best real);
-- The signals of the ranking, as weights name them and in the order of their sum: scorer, learner and trainer
-- (research/ranker) read this list.
create type _memoir.signals as (
  constant real, words real, vector real,
  words_before real, vector_after real,     -- of what stands before and after it
  "session" real, "both" real, words_rank real, vector_rank real,
  cover real,                               -- the share of the question's words, each weighing as it is rare
  "user" real, speaker real, question real, after_question real, date real, length real,
  age real, fresh real,
  further real,                             -- the how manieth chunk of its text it is
  match_back real,                          -- how far back its session is, by how well it matches
  last real);                               -- how few of its session or day come after it
-- facts: the signals that nothing else in the ledger tells (ledger_signals), in thousandths.
create type _memoir.ranked_item as (
  item_no integer, kind "char", ref_id uuid, session_id uuid, turn_index integer, chunk smallint, span_start integer,
    span_length integer, tokens integer,
  role _memoir.turn_role, said_at timestamptz, recorded_at timestamptz, project text,
  score real, words real, vector real, around real, session_score real, facts smallint[], telling real);
-- Of some items: what precedes those that match in meaning and is not among them, and those that match in words and
-- nothing follows.
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

-- What is asked, read once: its words, other names of what it names (loose: of what it calls by common words), its
-- vector or why there is none.
create type _memoir.question as (
  query text, language smallint, text_config regconfig, terms text[], common text[],
  forms text[], of text[],                  -- forms of terms in the user's other languages; of: of which
  kindred text[], kindred_of text[],        -- what else is said of the same topics: lexemes apart by blanks
  names text[], loose text[],
  -- unread: in a language that the model is not made for
  vector halfvec, model_id smallint, unread boolean, problem text);

-- compile/candidates.sql
-- What a session pins, memories and turns, and the fidelity ceilings of its memories.
create type _memoir.pins as (pinned uuid[], ceilings jsonb);
-- Below which fit a candidate is left out: by class of items (turns and summaries, memories) the weights of constant,
-- score, cosine and telling, and what a memory of another project than this one loses.
create type _memoir.fit_floor as (turns float8[], memories float8[], project text, elsewhere float8);
-- What a memory brings to its match: weight of its type and importance, freshness, authority, use.
create type _memoir.memory_facts as (
  memory_id uuid, type text, sensitivity _memoir.sensitivity, active boolean, valid_from timestamptz,
    valid_to timestamptz,
  weight float8, freshness float8, authority float8, access float8);
-- A ranked item with what memories add (score is final, memory_parts says how it came about), what showing it is worth,
-- and what becomes of it.
create type _memoir.candidate as (
  item_no integer, kind "char", ref_id uuid, session_id uuid, turn_index integer, chunk smallint, span_start integer,
    span_length integer, tokens integer,
  role _memoir.turn_role, said_at timestamptz, recorded_at timestamptz, project text,
  score real, words real, vector real, around real, session_score real, facts smallint[],
  type text, memory_parts jsonb, is_frequent boolean,
  worth float8,
  reason text,           -- why it can't be shown
  position integer,      -- in the order of choice, where it is shown
  fidelity text,         -- as what it is shown
  shown text);           -- what stands for it, where that is not all of it

-- compile/breadth.sql
-- What a question with many answers asks for (order, summary, several), whether it is what the speaker said, and its
-- numbers: the power of the odds, how worth falls within a session, an answer's share of its question's worth, the
-- shares of a stub and an excerpt, and the longest excerpt.
create type _memoir.breadth as (shape text, own boolean, power float8, fall float8, answer float8, stub float8,
  excerpt float8, longest integer);

-- compile/packing.sql
create type _memoir.item_text as (item_no integer, name text, body text);
create type _memoir.session_name as (session_id uuid, name text);
-- A text that could stand for an item, and what share of its worth is left.
create type _memoir.reduced_text as (item_no integer, fidelity text, body text, tokens integer, share float8);
-- What a candidate looks like at one fidelity. step: 1, or which step up from the line of the same candidate before it:
-- then cost and worth are what it adds.
create type _memoir.recall_line as (
  candidate_no integer,  -- which candidate it is
  step integer, cost integer, worth float8, group_no integer, opening integer,  -- what the header of its group costs
  fidelity text, is_turn boolean, session_id uuid, turn_index integer, chunk smallint, ref_id uuid, said_at timestamptz,
  header text, label text, body text);
create type _memoir.recall_block as (text text, tokens integer, candidates _memoir.candidate[]);

-- compile/learning.sql
-- A used item and one that was not: whether it is held out, its weight, the difference of scores (log odds) and of
-- signals.
create type _memoir.weight_pair as (compile_id uuid, held_out boolean, weight float8, base float8, x vector);

-- compile/compile.sql
-- A compile under way, and what came of it: each stage fills in its part and reads what those before it read.
create type _memoir.compile_state as (
  -- who asks, when
  caller _memoir.caller, clearance _memoir.sensitivity, user_id uuid, session_id uuid, session_name text,
  at timestamptz, as_of timestamptz, valid_at timestamptz,
  -- what was read
  session _memoir.sessions, counters _memoir.session_counters, user_counters _memoir.user_counters, config jsonb,
    model _memoir.models,
  tokenizer text,
  -- the newest message; open: the list ends with the open exchange instead, and query is what that asks
  is_open boolean, query text, newest _memoir.message, newest_tokens integer,
  -- room: the budget less system message and tools
  budget integer, tools_tokens integer, system text, system_tokens integer, room integer,
  -- turns that the list shows; unanswered: those that became part of the newest message
  shown _memoir.shown_turn[], unanswered _memoir.shown_turn[], exchange_at integer,
  said text,  -- what a list that somebody else keeps says beside these
  -- how the past is shown, since when; moment, note: as in shown_window; frozen: messages that the last moment left alone
  frame _memoir.session_windows, history_budget integer, moment text, note text, frozen integer,
  -- the list: messages, their tokens, together; recall_at: which one carries the recall
  messages jsonb[], costs integer[], total integer, recall_at integer,
  -- recall
  profile uuid[], left_out uuid[],   -- memories that stand in the profile, and for which it had no room
  task _memoir.task_type, query_hash bytea, recall_budget integer, recall text, recall_tokens integer,
    candidates _memoir.candidate[], arms jsonb,
  -- what is said of the list; prefix: how many messages stand before the one that carries the recall
  tokens integer, prefix integer, statistics_version text, warnings text[]);

-- memory/extraction.sql
-- What a rule found in a turn: the number of the text it was found in, which sentence, and the memory to be.
create type _memoir.extracted as (
  text_no integer, span_start integer, span_length integer, rule text, type text, provenance text, category text,
    importance text, utility real,
  content text, slot text, slot_value text, valid_from timestamptz, valid_to timestamptz, event_from date,
    event_to date, standing boolean);
