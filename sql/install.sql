-- pg_memoir: table of contents, in reading order.
--
-- State (tables) is made once, by migrations/. Everything below is code: replaced on every install, in one transaction.
-- Conventions: functions are the API; `_name` is internal; `p_` arguments, `v_` locals; every public function authorises its
-- caller first (identity.sql) and raises the SQLSTATEs listed in errors.sql.

\ir errors.sql          -- the error contract: one place that raises
\ir settings.sql        -- every weight, threshold and lifetime: typed, range-checked, overridable
\ir clock.sql           -- the one clock, settable by an admin
\ir partitions.sql      -- part_of, leaves made ahead and on demand
\ir identity.sql        -- texts to ids, who is calling, what they may do
\ir row_security.sql    -- whoever is granted a table sees the rows of its users only
\ir models.sql          -- chat models, embedding models
\ir tokens.sql          -- what a text costs: exact where possible, else the documented estimate
\ir text.sql            -- what may be stored, fences, chunks, words
\ir secrets.sql         -- what looks like a key, a card, an account or a personal number
\ir messages.sql        -- checks and normal form of chat messages
\ir sessions.sql        -- open, branch, close, inspect
\ir turns.sql           -- persist_turn, append_messages; history is append-only
\ir memories.sql        -- remember: the single door
\ir states.sql          -- the states of a memory, its history, bounded copies
\ir tombstones.sql      -- what was rejected stays rejected, until a person lifts it
\ir conflicts.sql       -- contradictions and near duplicates: who prevails, and why
\ir judging.sql         -- conflicts that a model judges: claim, store, fail
\ir corrections.sql     -- correct, retract, forget
\ir relations.sql       -- relate, validate
\ir pins.sql            -- memories and turns pinned in a session
\ir sensitivity.sql     -- what is withheld from whom; mark_turn
\ir queue.sql           -- claim, heartbeat, complete, fail, retry: work that is waited for
\ir lifecycle.sql       -- promotion, demotion, expiry; the end of sessions
\ir consolidation.sql   -- memories about one thing become one, and back
\ir consolidation_model.sql -- the same in a language model's words
\ir profiles.sql        -- what is known about a user in any session
\ir sentences.sql       -- what a turn says in the speaker's own words; dates made absolute
\ir extraction_rules.sql -- what makes a sentence worth remembering, as a table
\ir extraction.sql      -- from turns to memories
\ir embedding.sql       -- vectors: given by the client or made by workers
\ir aliases.sql         -- other names of the same thing: learnt from what is said, given with remember
\ir search.sql          -- words and vectors of one user, fused into one ranking
\ir ranking.sql         -- signals of each candidate, weighed: the ranking itself
\ir floor.sql           -- what is recalled for nothing, where recall ends, when it is weak
\ir recall.sql          -- recall, match_memories
\ir window.sql          -- which turns of the session are shown, and from where the prefix is stable
\ir render.sql          -- messages as the API wants them: OpenAI and Anthropic
\ir packing.sql         -- the recall block: what is chosen, in what order, within its budget
\ir compile.sql         -- compile_context, context, explain_context
\ir learning.sql        -- what was used of a recall; the ranking's weights learnt from it
\ir summaries.sql       -- extractive summaries: which sentences say most
\ir compaction.sql      -- old turns of a long session give way to a summary beside them
\ir archive.sql         -- months of turns past retention: compacted, exported, taken out
\ir capture.sql         -- upstream calls, byte for byte
\ir erasure.sql         -- erase_user, erase_session, erase_turn, and the job that takes the bytes out of the files
\ir export.sql          -- export_user: everything of a user, as JSON lines
\ir import.sql          -- import_user: puts it back, but for what may not come back
\ir llm.sql             -- work for a language model: claim, store, fail, costs
\ir llm_kinds.sql       -- what each kind of that work asks and stores
\ir runs.sql            -- run_job: batches, commits, one row per run; cron expressions
\ir maintenance.sql     -- merging search structures, flushing statistics
\ir sweep.sql           -- what ends by age; backfill; hygiene counts
\ir jobs.sql            -- the list of jobs, what pg_cron runs, the shared embedder
\ir views.sql           -- one view per question of whoever runs this
\ir setup.sql           -- what a dump does not carry: search_path, roles
\ir privileges.sql      -- grants as data; PUBLIC revoked last
