-- pg_memoir: table of contents, in the order of calls.
--
-- State (tables) is made once, by migrations/. Everything below is code: replaced on every install, in one
-- transaction. Data is neither: tables (settings, built-in models, jobs, learnt weights) are in sql/data, rules and
-- word lists by language in plpython/pg_memoir_language/data; each has a README.md. The build makes functions
-- data_*(), list_*(), lists_*() and pattern_*() of them, ahead of all code. An area is a folder; it calls only itself
-- and areas above it (scripts/check_layers.py). Conventions: schema memoir is the API, _memoir is internal; `p_`
-- arguments, `v_` locals; every public function authorises its caller first (base/identity.sql) and raises the
-- SQLSTATEs listed in base/errors.sql.

\ir preamble.sql                       -- a fit server, the roles, the schema, the extensions; then the migrations

-- base: what everything stands on
\ir base/errors.sql                    -- the error contract, one check for each kind of argument, the clock
\ir base/schedule.sql                  -- cron expressions
\ir base/identity.sql                  -- texts to ids, who is calling, what they may do
\ir base/row_security.sql              -- whoever is granted a table sees the rows of its users only
\ir base/partitions.sql                -- leaves made ahead and on demand
\ir base/users.sql                     -- a user's own rows, the part they lie in, the features that the user ever used
\ir base/spaces.sql                    -- users that several people share: members, and what they may do
\ir base/settings.sql                  -- what an operator may turn: typed, range-checked, overridable
\ir base/ranking_profiles.sql          -- learnt weights of the ranking: shipped, the install's, users'
\ir base/models.sql                    -- chat models, embedding models
\ir base/outbox.sql                    -- events for readers outside: noted as they happen
\ir base/queue.sql                     -- work items: leases, heartbeats, backoff, dead letters

-- text: one text at a time: no user, no session
\ir text/tokens.sql                    -- what a text costs: exact where possible, else the documented estimate
\ir text/media.sql                     -- images, audio, files, thoughts: what they cost, how each format has them
\ir text/text.sql                      -- what may be stored, chunks, words
\ir text/fences.sql                    -- recalled text is data: fences, and nothing inside that passes for a mark
\ir text/secrets.sql                   -- what looks like a key, a password, or a number that is secret
\ir text/logprobs.sql                  -- how sure a model was: the entropy of its tokens
\ir text/messages.sql                  -- checks and normal form of chat messages
\ir text/tool_calls.sql                -- what a call of a tool does, and to what
\ir text/large.sql                     -- large outputs: their ends, their parts, passages that answer
\ir text/forms.sql                     -- shorter forms of a text: its kind, its lines by what they tell, its entities
\ir text/claims.sql                    -- what a sentence claims: the same in whatever words
\ir text/language.sql                  -- the language of a text
\ir text/terms.sql                     -- the words that search keeps of a text, in its language

-- history: turns as they lie: read, withheld, never changed
\ir history/history.sql                -- append-only: lineage, single turns, marks, what is withheld from whom
\ir history/tombstones.sql             -- what was rejected stays rejected, until a person lifts it

-- search: one user's items, by words and vectors
\ir search/aliases.sql                 -- other names of the same thing: learnt from what is said, given with remember
\ir search/index.sql                   -- what is searched: items, numbered per user
\ir search/vectors.sql                 -- vectors beside the items, their signs packed; the vector of a query
\ir search/question.sql                -- a question, read once: its words, its vector, what it is after

-- sessions: conversations
\ir sessions/active.sql                -- recalls that are kept for a while; which compactions are live
\ir sessions/sessions.sql              -- open, branch, close, inspect
\ir sessions/restated.sql              -- turns of a model or tool that say again what was rejected
\ir sessions/indexed.sql               -- what of a turn is searched, and when
\ir sessions/turns.sql                 -- turns appended: the stages, from what was asked to the receipt; history
\ir sessions/pins.sql                  -- turns pinned in a session; working notes
\ir sessions/extracts.sql              -- a summary within its budget, of the package's sentences
\ir sessions/compaction.sql            -- old turns of a long session give way to a summary beside them
\ir sessions/summaries.sql             -- summaries of sessions that ended, or on request

-- memory: what is known beyond the turns
\ir memory/profiles.sql                -- what is known about a user in any session
\ir memory/states.sql                  -- the states of a memory, its history, bounded copies
\ir memory/conflicts.sql               -- contradictions and near duplicates: who prevails, and why
\ir memory/judging.sql                 -- conflicts that a model judges: claim, store, fail
\ir memory/memories.sql                -- remember: the single door
\ir memory/relations.sql               -- relate, validate, pin
\ir memory/experience.sql              -- how something is done, and whether that worked: learn, report an outcome
\ir memory/consolidation.sql           -- memories about one thing become one, and back; the same in a model's words
\ir memory/corrections.sql             -- correct, retract, forget: what a correction changes
\ir memory/changes.sql                 -- what a turn changes of what was said before, and what it asks to forget
\ir memory/exclusions.sql               -- spans taken out of recall, or marked there; the profile with what is in doubt
\ir memory/extraction.sql              -- from turns to memories: rules, what they find, handed to the door
\ir memory/change_effects.sql          -- what changes do: spans marked or taken out, memories that give way
\ir memory/extraction_runs.sql         -- extraction of sessions: asked for, or as a job
\ir memory/lifecycle.sql               -- promotion, demotion, expiry

-- objects: what a session was shown, as memories whose text stays in the turns
\ir objects/objects.sql                -- which results, files, plans are objects; read again, edited, related
\ir objects/phases.sql                 -- plans and decisions in an assistant's words; phases of conversation
\ir objects/renditions.sql             -- their shorter forms, with what each lacks
\ir objects/render.sql                 -- the same in a language model's words; declared losses checked on samples
\ir objects/faults.sql                 -- what a model needed and was not shown: passages, faults, doubts
\ir objects/directives.sql            -- what a model says of its own window: drop, anchor, summarize, collapse
\ir objects/append.sql                 -- persist_turn, append_messages: turns, and the objects that come with them

-- compile: the list to send to the model
\ir compile/window.sql                 -- which turns of the session are shown, and from where the prefix is stable
\ir compile/lines.sql                  -- steps of agents as lines, and what left the list
\ir compile/moments.sql                -- the ladder: when the list shows less of the past, and of what
\ir compile/managed.sql                -- the window of a session with objects: forms, lines, whole steps
\ir compile/candidates.sql             -- what is there whatever is asked, and how many candidates are weighed
\ir compile/render.sql                 -- messages as the API wants them: OpenAI and Anthropic
\ir compile/experience.sql             -- the ways that worked for such a task, as rows and as a block
\ir compile/select_tools.sql           -- the tools of a request that its session used or named; one for the others
\ir compile/asked.sql                  -- what the kernel is asked for a user and spaces, and its answer
\ir compile/stages.sql                 -- the stages of a compile, from who asks to the list; where the budget is kept
\ir compile/traces.sql                 -- what a compile leaves behind: its exchange's recall, a row for the ledger
\ir compile/compile.sql                -- compile_context, context: the stages in their order; explain_context
\ir compile/beside.sql                 -- recall for a list that somebody else keeps, and its messages known again
\ir compile/recall.sql                 -- recall, match_memories: the same ranking, as rows
\ir compile/pressure.sql               -- session_pressure, window_forms, list_objects: how full it is
\ir compile/answers.sql                -- questions that a language model answers: asked, stored, query_answer
\ir compile/faults.sql                 -- memory_query, memory_restore, memory_release, list_events
\ir compile/outline.sql                -- a session in episodes (stretches about one thing) and themes (of several)
\ir compile/browse.sql                 -- lists; hits on one line, what stands around one, whole rows
\ir compile/inspect.sql                 -- who there is; a user in numbers; compiles that were made: a window over time
\ir compile/learning.sql               -- what was used of a recall; the ranking's weights learnt from it

-- privacy: who sees what; taking out, putting back
\ir privacy/marks.sql                  -- turns marked or taken back, and what was made of them; mark_turn
\ir privacy/scans.sql                  -- the middles of large outputs: looked through, indexed
\ir privacy/erasure.sql                -- erase_user, erase_session, erase_turn
\ir privacy/capture.sql                -- upstream calls, byte for byte
\ir privacy/archive.sql                -- months of turns past retention: compacted, exported, taken out
\ir privacy/export.sql                 -- export_user: everything of a user, as JSON lines
\ir privacy/import.sql                 -- import_user: puts it back, but for what may not come back

-- stores: what frameworks keep beside turns
\ir stores/documents.sql               -- JSON under namespaces and keys, searched by words and vectors
\ir stores/items.sql                   -- a framework's items as they came, with the turns that tell them; taken back

-- work: what runs unattended
\ir work/embedding.sql                 -- items without a vector: claim, store, fail; backfill; the shared embedder
\ir work/stretches.sql                -- stretches of conversation that a language model reads: what it is shown
\ir work/llm.sql                       -- work for a language model: what each kind asks and stores; claim, store, fail
\ir work/events.sql                    -- events behind a cursor; webhooks: registered, claimed, stored
\ir work/maintenance.sql               -- the jobs merge and flush; what ends by age; backfill; hygiene counts
\ir work/runs.sql                      -- run_job: the step of each job, its lease and batches, one row per run
\ir work/jobs.sql                      -- what pg_cron runs
\ir work/views.sql                     -- one view per question of whoever runs this

-- tools: what models are offered
\ir tools/quotations.sql               -- what a quotation of the user gives authority for
\ir tools/tools.sql                    -- the model keeps its own memory: definitions of tools, and what runs a call

-- install: last
\ir install/setup.sql                  -- what a dump does not carry: search_path, roles, grants; PUBLIC revoked last
