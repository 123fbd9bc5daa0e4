-- Every weight, threshold, lifetime and schedule. Definitions are code (replaced on install); values are state.

create or replace function _memoir.define_settings()
returns void language plpgsql as $$
begin
  create temporary table pg_temp.wanted on commit drop as
  select * from (values
    -- key, kind, default, min, max, overridable per user and session, description
    ('clock', 'time', 'null'::jsonb, null::numeric, null::numeric, false, 'Fixed time of memoir.now(); null is the real clock. For tests and replays.'),
    ('partition_months_ahead', 'integer', '2', 0, 36, false, 'Months prepared ahead by ensure_partitions.'),

    ('default_model', 'text', '"default"', null, null, true, 'Chat model of a session opened without one.'),
    ('history_share_continuation', 'number', '0.85', 0, 1, true, 'Share of the budget for recent turns; the rest is recall.'),
    ('history_share_knowledge', 'number', '0.60', 0, 1, true, 'The same for knowledge-intensive tasks.'),
    ('history_share_new_session', 'number', '0.50', 0, 1, true, 'The same for a new session of a known user.'),
    ('history_share_tool_heavy', 'number', '0.90', 0, 1, true, 'The same for tool-heavy tasks: turns 0.70 and their tool results 0.20.'),
    ('recall_tokens_max', 'integer', '2000', 0, 1000000, true, 'Most tokens of one recall block unless p_memory_budget says otherwise; tasks with a smaller share for recall get proportionally less.'),
    ('profile_tokens', 'integer', '400', 0, 100000, true, 'Most tokens of the profile in the system message.'),
    ('summary_tokens', 'integer', '800', 0, 100000, true, 'Most tokens of the session summary in the system message.'),
    ('window_steps', 'integer', '4', 1, 16, true, 'The first shown turn moves in steps of history budget / window_steps.'),
    ('tool_result_share', 'number', '0.25', 0.01, 1, true, 'A tool result longer than this share of the history budget is shown as an excerpt.'),

    ('text_search_config', 'text', '"english"', null, null, true, 'PostgreSQL text-search configuration of the user''s language.'),
    ('chunk_tokens', 'integer', '120', 32, 2000, false, 'Longer texts are searched in chunks of about this many (estimated) tokens.'),
    ('embed_chunks_max', 'integer', '64', 0, 10000, false, 'Chunks of one text that get a vector; all are found by words.'),
    ('tail_items_max', 'integer', '256', 16, 10000, false, 'Unmerged items of a user before the merge job packs them.'),
    ('exact_vectors_max', 'integer', '10000', 0, 10000000, true, 'Items of a user up to which all vectors are compared; above, those nearest by their signs alone.'),
    ('sign_candidates', 'integer', '4', 1, 100, true, 'Vectors compared for each one wanted, where signs choose them.'),
    ('candidates', 'integer', '240', 20, 2000, true, 'Most candidates taken from the fused ranking; a recall budget below 2,000 tokens takes fewer, a store of long turns up to twice as many.'),
    ('bm25_k1', 'number', '1.2', 0, 3, true, 'BM25 term-frequency saturation.'),
    ('bm25_b', 'number', '0.5', 0, 1, true, 'BM25 length normalisation.'),
    ('rank_weights', 'weights', '{"constant": -3.871, "words": 0.729, "vector": 0.817, "words_before": 0.362, "vector_after": 0.198,
      "session": 1.248, "both": -0.828, "words_rank": 0.277, "vector_rank": 0.256, "cover": 0.874, "user": 0.387,
      "speaker": 0.303, "question": -0.205, "after_question": 0.194, "date": 1.089, "length": 0.112, "age": 0.069,
      "fresh": 0.051, "further": -0.398,
      "memory.constant": 0.886, "memory.words": -0.148, "memory.vector": -0.021, "memory.words_before": -0.048,
      "memory.vector_after": -0.123, "memory.session": -0.355, "memory.both": -0.094, "memory.words_rank": -0.117,
      "memory.vector_rank": 0.118, "memory.cover": -0.122, "memory.length": -0.04, "memory.age": -0.157,
      "memory.fresh": 0.22, "memory.last": 0.375,
      "unnamed.constant": 0.304, "unnamed.words": -0.296, "unnamed.vector": -0.12, "unnamed.words_before": -0.493,
      "unnamed.vector_after": 0.239, "unnamed.session": -0.088, "unnamed.both": 0.246, "unnamed.words_rank": 0.063,
      "unnamed.vector_rank": -0.027, "unnamed.cover": 0.061, "unnamed.user": 0.228, "unnamed.question": 0.171,
      "unnamed.after_question": -0.222, "unnamed.date": 0.004, "unnamed.length": -0.188, "unnamed.age": 0.119,
      "unnamed.fresh": -0.102, "unnamed.match_back": -0.163,
      "long.constant": 0.269, "long.words": -0.022, "long.vector": -0.055, "long.words_before": -0.124,
      "long.vector_after": -0.08, "long.session": 0.031, "long.both": 0.038, "long.words_rank": -0.062,
      "long.vector_rank": -0.231, "long.cover": 0.113, "long.user": -0.081, "long.speaker": -0.012,
      "long.question": 0.106, "long.after_question": -0.076, "long.date": 0.008, "long.length": -0.039,
      "long.age": -0.073, "long.fresh": 0.078}',
      -100, 100, true, 'Weights of the ranking''s signals, as bench/ranker/train.py learns them: for all items, more for memories, for turns of unnamed people and assistants, and for long questions.'),
    ('weight_access', 'number', '0.02', 0, 10, true, 'Weight of log(1+a)/log(1+a_max), memories only.'),
    ('weight_authority', 'number', '0.05', 0, 10, true, 'Weight of confidence times provenance authority.'),
    ('project_same', 'number', '1.5', 0, 10, true, 'Score factor of a memory of the session''s own project.'),
    ('project_global', 'number', '1.0', 0, 10, true, 'Score factor of a memory of project global.'),
    ('project_other', 'number', '0.7', 0, 10, true, 'Score factor of a memory of another project.'),
    ('type_weights', 'weights', '{"decision": 1.1, "architecture": 1.1, "preference": 1.1, "instruction": 1.1, "fact": 1.0, "document_chunk": 0.8}', 0, 10, true, 'Score factor by memory type; 1 where a type is absent.'),
    ('fidelity_worth', 'weights', '{"detailed": 0.9, "compact": 0.6, "stub": 0.1, "excerpt": 0.75, "rest": 0.3}', 0, 1, true, 'What showing less than the whole is worth: a share of the whole''s worth by fidelity (excerpt: times the root of its share of the text; 0: never shown so); rest: what the rest of a short turn gains from its best part.'),
    ('half_life_days', 'weights', '{"fact": 365, "preference": 365, "decision": 365, "architecture": 365, "instruction": 365, "bug_fix": 180, "code_context": 60, "tool_result": 14, "error_context": 30, "session_summary": 180, "document_chunk": 90}', 0.01, 100000, true, 'Half-life of a memory''s score by type, in days; 365 where a type is absent.'),
    ('frequent_memories', 'integer', '20', 0, 500, true, 'Most-accessed global memories that are candidates whatever the query.'),
    ('relevance_floor', 'number', '0.05', 0, 10, true, 'Candidates that score less are left out.'),
    ('relevance_share', 'number', '0.25', 0, 1, true, 'Candidates that score less than this share of the second best are left out of a compile.'),
    ('relevance_repeats', 'number', '0.8', 0, 1.1, true, 'What is closer to the query than this cosine repeats it, and is no measure for the others.'),
    ('strength_weights', 'weights', '{"constant": -9.47, "score": 10.36, "cosine": 12.96}', -100, 100, true, 'Log odds that the store answers the question, from the best score and the closest vector; bench/ranker/floor.py learns them, for the embedding model in use.'),
    ('weak_below', 'number', '0.12', 0, 1, true, 'A recall is weak where that is less likely than this; 0: never.'),
    ('weak_recall_tokens', 'integer', '300', 0, 1000000, true, 'A weak recall has as much less of its budget as its chance is less than weak_below, but so many tokens.'),
    ('small_talk_words', 'integer', '3', 0, 1000, true, 'A message of at most so many words (stop words apart) that is no question may be small talk; 0: nothing is.'),
    ('small_talk_cosine', 'number', '0.33', 0, 1, true, 'It is, and recalls nothing, where the closest item''s cosine is less.'),
    ('duplicate_similarity', 'number', '0.92', 0.5, 1, true, 'Cosine above which two memories may be near duplicates.'),
    ('conflict_similarity', 'number', '0.75', 0, 1, true, 'Cosine above which two memories may contradict each other.'),
    ('judge', 'text', '"rules"', null, null, false, 'What judges contradictions that no slot decides: rules alone, or a model for what they leave open: nli, llm.'),
    ('judge_threshold', 'number', '0.9', 0.5, 1, true, 'How sure a model must be of a contradiction.'),
    ('extraction', 'boolean', 'true', null, null, true, 'Whether memories are made of what is said in a session.'),
    ('admission_threshold', 'number', '0.4', 0, 1, true, 'Admission score below which what no person said is not kept.'),
    ('admission_weights', 'weights', '{"type": 0.35, "novelty": 0.25, "utility": 0.25, "recency": 0.15}', 0, 1, true, 'Weights of the admission score.'),
    ('admission_type_priors', 'weights', '{"instruction": 1, "preference": 0.9, "decision": 0.9, "design_decision": 0.9, "fact": 0.8, "profile": 0.8, "architecture": 0.8, "bug_fix": 0.8, "plan": 0.7, "error_context": 0.7, "event": 0.6, "file_context": 0.5, "code_context": 0.5, "tool_result": 0.3}', 0, 1, true, 'Part of a memory''s type in its admission score; 0.5 where a type is absent.'),
    ('query_timeout_ms', 'integer', '150', 1, 60000, true, 'How long compile waits for the query''s vector.'),

    ('embedder_socket', 'text', '""', null, null, false, 'Unix socket of the shared embedder; empty: no embedder on this server.'),
    ('detect_secrets', 'boolean', 'true', null, null, true, 'Mark what looks like a key, a card, an account or a personal number secret on its way in. Services and admins only.'),
    ('text_bytes_max', 'integer', '16777216', 1024, 134217728, false, 'Largest text or message accepted, in bytes.'),
    ('messages_max', 'integer', '2000', 1, 100000, false, 'Most messages in one call.'),
    ('idempotency_hours', 'integer', '72', 1, 8760, false, 'How long a receipt is kept.'),
    ('budget_microcents_session', 'integer', '0', 0, 9000000000000000, true, 'Cost limit of a session in microcents; 0 is none.'),
    ('budget_microcents_user', 'integer', '0', 0, 9000000000000000, true, 'Cost limit of a user in microcents; 0 is none.'),
    ('budget_action', 'text', '"warn"', null, null, true, 'What happens above a cost limit: warn or refuse.'),
    ('session_ttl_hours', 'integer', '720', 1, 876000, true, 'A session untouched for this long expires.'),
    ('history_days', 'integer', '0', 0, 36500, false, 'Months of turns that ended so many days ago may be archived; 0: turns stay for good.'),
    ('expired_memory_days', 'integer', '0', 0, 36500, false, 'Memories that expired so many days ago are archived, as archive_destination says; 0: they stay.'),
    ('archive_detach', 'text', '"lock"', null, null, false, 'How a month is taken out: lock (by the job, under a lock of milliseconds) or concurrently (by a statement of bare_statements, without any).'),
    ('archive_requires', 'text', '"compacted"', null, null, false, 'What a month needs to go: compacted (a summary for every turn) or nothing.'),
    ('archive_destination', 'text', '""', null, null, false, 'Where a month goes: empty (nowhere), keep (a table of its own), client (exported, then dropped), drop.'),
    ('consolidation_similarity', 'number', '0.8', 0.3, 1, true, 'Cosine from which memories are about one thing.'),
    ('consolidation_members', 'integer', '3', 2, 8, true, 'Fewest memories that become one.'),
    ('promotion_accesses_1', 'integer', '3', 0, 100000, true, 'Fewest recalls before a tier 1 memory is promoted.'),
    ('promotion_accesses_2', 'integer', '10', 0, 100000, true, 'The same for tier 2.'),
    ('promotion_threshold_1', 'number', '0.3', 0, 100, true, 'Utility above which tier 1 becomes tier 2.'),
    ('promotion_threshold_2', 'number', '0.5', 0, 100, true, 'Utility above which tier 2 becomes tier 3 or 4.'),
    ('promotion_lambda_1', 'number', '0.01', 0, 1, true, 'Discount of utility per hour of age in tier 1.'),
    ('promotion_lambda_2', 'number', '0.001', 0, 1, true, 'The same for tier 2.'),
    ('validated_confidence', 'number', '0.7', 0, 1, true, 'Least confidence of what promotion has validated.'),
    ('demotion_grace_days', 'integer', '7', 0, 36500, true, 'Tiers 1 and 2 are not demoted within this time of their last use; what has been demoted has as long again.'),
    ('demotion_floor_1', 'number', '0.003', 0, 100, true, 'Uses per hour since the last one below which tier 1 expires (0.003: one use in 14 days).'),
    ('demotion_floor_2', 'number', '0.0007', 0, 100, true, 'The same below which tier 2 is demoted (0.0007: one use in 60 days).'),
    ('profile_versions', 'integer', '10', 1, 10000, false, 'Versions of a profile that are kept.'),
    ('compaction_trigger', 'number', '0.9', 0.1, 20, true, 'A session is compacted when its turns pass this share of what history may take, at twice the window at the latest.'),
    ('compaction_target', 'number', '0.4', 0, 10, true, 'Down to this share of it, a window at most.'),
    ('compaction_tokens', 'integer', '24000', 256, 1000000, true, 'Most tokens of turns in one compaction.'),
    ('compaction_ratio', 'number', '8', 5, 1000, true, 'Tokens of turns to tokens of their summary, at least.'),
    ('session_summary_tokens', 'integer', '300', 24, 100000, true, 'Most tokens of the summary of a whole session.'),
    ('local_memory_hours', 'integer', '24', 0, 876000, true, 'Local memories live this long after their session.'),
    ('episodic_days', 'integer', '90', 1, 36500, true, 'Lifetime of tier 2.'),
    ('ledger_sample', 'number', '1', 0, 1, true, 'Share of compiles written to the ledger.'),
    ('ledger_days', 'integer', '30', 1, 3650, false, 'How long the ledger is kept; it goes by whole months.'),
    ('event_days', 'integer', '365', 1, 36500, false, 'How long faults, fidelity transitions and admission scores are kept; they go by whole months.'),
    ('dead_letter_days', 'integer', '90', 1, 3650, false, 'How long a dead letter of the queue is kept.'),
    ('stale_days', 'integer', '90', 1, 36500, false, 'A memory not used for so long counts as stale in the hygiene report.'),

    ('llm_provider', 'text', '"none"', null, null, false, 'Language model for extraction, judging and summaries: none (rules), anthropic, or openai (any compatible server).'),
    ('llm_model', 'text', '""', null, null, false, 'Its name for the provider; its prices come from register_model.'),
    ('llm_endpoint', 'text', '""', null, null, false, 'Base of its API, such as http://localhost:11434/v1; empty: the provider''s own.'),
    ('llm_timeout', 'integer', '60', 1, 600, false, 'Seconds to wait for one answer.'),
    ('llm_retries', 'integer', '2', 0, 10, false, 'Further tries of a call that found the server busy or gone.'),
    ('llm_cost_cap', 'integer', '100000000', 0, 9000000000000000, false, 'Microcents after which a run of job model ends; 0 is no limit.'),

    ('job_batch_ms', 'integer', '100', 1, 10000, false, 'About how many milliseconds a batch of a job may take: so long it holds the locks of its users.'),
    ('job_seconds_max', 'integer', '50', 1, 3600, false, 'A job begins no batch after this long; what is left waits for its next run.'),
    ('job_attempts_max', 'integer', '8', 1, 100, false, 'Attempts of a queued job before it is a dead letter.'),
    ('job_runs_days', 'integer', '14', 1, 3650, false, 'How long job_runs is kept; runs that found nothing to do go after a day.'),
    -- Cron expressions in UTC, or "N seconds" (a minute for pg_cron before 1.5); empty: not scheduled. enable_jobs applies them.
    ('schedule_embedder', 'text', '"* * * * *"', null, null, false, 'When the embedder is supervised.'),
    ('schedule_embed', 'text', '"* * * * *"', null, null, false, 'When the embedding backlog is worked on.'),
    ('schedule_extract', 'text', '"* * * * *"', null, null, false, 'When new turns are searched for memories.'),
    ('schedule_model', 'text', '"* * * * *"', null, null, false, 'When the language model''s backlog is worked on.'),
    ('schedule_merge', 'text', '"* * * * *"', null, null, false, 'When word tails are merged.'),
    ('schedule_flush', 'text', '"* * * * *"', null, null, false, 'When compile statistics are flushed.'),
    ('schedule_partitions', 'text', '"17 * * * *"', null, null, false, 'When partitions are made ahead.'),
    ('schedule_backfill', 'text', '"41 * * * *"', null, null, false, 'When vectors that lack are asked for.'),
    ('schedule_sweep', 'text', '"23 2 * * *"', null, null, false, 'When receipts, logs and other things past their time are removed.'),
    ('schedule_erase', 'text', '"11 3 * * *"', null, null, false, 'When the leaves that erases have touched are written anew; each is locked meanwhile.'),
    ('schedule_hygiene', 'text', '"47 4 * * *"', null, null, false, 'When the hygiene of memories is counted.'),
    ('schedule_promotion', 'text', '"*/15 * * * *"', null, null, false, 'When memories are promoted.'),
    ('schedule_demotion', 'text', '"7 * * * *"', null, null, false, 'When unused memories are demoted.'),
    ('schedule_expiry', 'text', '"37 * * * *"', null, null, false, 'When memories and sessions expire.'),
    ('schedule_profiles', 'text', '"*/5 * * * *"', null, null, false, 'When profiles are rebuilt.'),
    ('schedule_compaction', 'text', '"*/30 * * * *"', null, null, false, 'When long sessions are compacted.'),
    ('schedule_summaries', 'text', '"*/10 * * * *"', null, null, false, 'When ended sessions are summarised.'),
    ('schedule_consolidation', 'text', '"29 3 * * *"', null, null, false, 'When memories about one thing become one.'),
    ('schedule_archive', 'text', '"11 1 * * *"', null, null, false, 'When months past retention are archived.')
  ) as t(key, kind, default_value, min_value, max_value, overridable, description);

  delete from _memoir.setting_definitions d where not exists (select from pg_temp.wanted w where w.key = d.key);
  insert into _memoir.setting_definitions (key, kind, default_value, min_value, max_value, overridable, description)
  select key, kind, default_value, min_value, max_value, overridable, description from pg_temp.wanted
  on conflict (key) do update set kind = excluded.kind, default_value = excluded.default_value,
    min_value = excluded.min_value, max_value = excluded.max_value, overridable = excluded.overridable,
    description = excluded.description;
  update _memoir.setting_definitions set allowed = array['none', 'anthropic', 'openai'] where key = 'llm_provider';
  update _memoir.setting_definitions set allowed = array['warn', 'refuse'] where key = 'budget_action';
  update _memoir.setting_definitions set allowed = array['rules', 'nli', 'llm'] where key = 'judge';
  update _memoir.setting_definitions set allowed = array['compacted', 'nothing'] where key = 'archive_requires';
  update _memoir.setting_definitions set allowed = array['', 'keep', 'client', 'drop'] where key = 'archive_destination';
  update _memoir.setting_definitions set allowed = array['lock', 'concurrently'] where key = 'archive_detach';
  delete from _memoir.settings s where not exists (select from _memoir.setting_definitions d where d.key = s.key);
  drop table pg_temp.wanted;
  perform _memoir.merge_settings();
end $$;

create or replace function _memoir.merge_settings()
returns void language sql as $$
  insert into _memoir.settings_merged (is_only, clock, config)
  select true, (m.config ->> 'clock')::timestamptz, m.config
  from (select jsonb_object_agg(d.key, coalesce(s.value, d.default_value)) as config
        from _memoir.setting_definitions d left join _memoir.settings s on s.key = d.key) m
  on conflict (is_only) do update set clock = excluded.clock, config = excluded.config where settings_merged.config is distinct from excluded.config
$$;

-- A point in time that means the same to every session: with date, time and zone.
create or replace function _memoir.is_time(p_text text)
returns boolean language plpgsql stable as $$
begin
  return p_text ~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$'
    and p_text::timestamptz between '1970-01-01 00:00+00' and '2999-12-31 00:00+00';
exception when data_exception then
  return false;
end $$;

-- Raises PM015 unless the value fits the setting's kind and range.
create or replace function _memoir.check_setting(p_key text, p_value jsonb, p_override boolean)
returns void language plpgsql stable as $$
declare
  v_def _memoir.setting_definitions;
  v_ok boolean;
begin
  select * into v_def from _memoir.setting_definitions where key = p_key;
  if not found then
    perform _memoir.fail('PM015', format('unknown setting %s', _memoir.shown(p_key)), 'select * from memoir.list_settings()');
  end if;
  if p_override and not v_def.overridable then
    perform _memoir.fail('PM015', format('setting %s can''t be overridden per user or session', p_key));
  end if;
  v_ok := p_value is not null and case v_def.kind
    when 'number' then jsonb_typeof(p_value) = 'number'
    when 'integer' then jsonb_typeof(p_value) = 'number' and (p_value #>> '{}') ~ '^-?[0-9]+$'
    when 'boolean' then jsonb_typeof(p_value) = 'boolean'
    when 'text' then jsonb_typeof(p_value) = 'string'
    when 'interval' then jsonb_typeof(p_value) = 'string'
    when 'time' then jsonb_typeof(p_value) in ('string', 'null')
    when 'weights' then jsonb_typeof(p_value) = 'object'
      and not exists (select from jsonb_each(case when jsonb_typeof(p_value) = 'object' then p_value else '{}' end) where jsonb_typeof(value) <> 'number')
  end;
  if v_ok and v_def.kind in ('number', 'integer') then
    v_ok := (p_value #>> '{}')::numeric between coalesce(v_def.min_value, '-infinity') and coalesce(v_def.max_value, 'infinity');
  elsif v_ok and v_def.kind = 'weights' then
    v_ok := not exists (select from jsonb_each_text(p_value)
                        where value::numeric not between coalesce(v_def.min_value, '-infinity') and coalesce(v_def.max_value, 'infinity'));
  elsif v_ok and v_def.allowed is not null then
    v_ok := (p_value #>> '{}') = any (v_def.allowed);
  elsif v_ok and v_def.kind = 'time' and jsonb_typeof(p_value) = 'string' then
    v_ok := _memoir.is_time(p_value #>> '{}');
  elsif v_ok and p_key like 'schedule\_%' then
    v_ok := (p_value #>> '{}') = '' or _memoir.cron_last(p_value #>> '{}', now()) is not null;
  elsif v_ok and p_key = 'text_search_config' then
    -- As the functions' pinned search_path finds it: a configuration of one's own is given with its schema.
    v_ok := exists (select from pg_ts_config c join pg_namespace n on n.oid = c.cfgnamespace
                    where (p_value #>> '{}') in (case when pg_ts_config_is_visible(c.oid) then quote_ident(cfgname) end, format('%I.%I', nspname, cfgname)));
  elsif v_ok and p_key = 'default_model' then
    v_ok := exists (select from _memoir.models where model = p_value #>> '{}');
  end if;
  if not v_ok then
    perform _memoir.fail('PM015', format('setting %s can''t be %s', p_key, _memoir.shown(p_value::text)),
      format('%s%s%s', v_def.kind,
        case when v_def.min_value is not null then format(' from %s to %s', v_def.min_value, v_def.max_value) else '' end,
        case when v_def.allowed is not null then ': ' || array_to_string(v_def.allowed, ', ') else '' end));
  end if;
end $$;

create or replace function _memoir.put_setting(p_key text, p_value jsonb)
returns void language plpgsql as $$
begin
  perform _memoir.check_setting(p_key, p_value, false);
  insert into _memoir.settings (key, value, changed_by) values (p_key, p_value, _memoir.login())
  on conflict (key) do update set value = excluded.value, changed_at = now(), changed_by = excluded.changed_by;
  perform _memoir.merge_settings();
  insert into _memoir.audit_log (login, action, detail)
  values (_memoir.login(), 'set_setting', jsonb_build_object('key', p_key, 'value', p_value));
end $$;

create or replace function memoir.set_setting(p_key text, p_value jsonb)
returns void language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  perform _memoir.put_setting(p_key, p_value);
end $$;
comment on function memoir.set_setting(text, jsonb) is
  'Sets a setting for the whole install. Admin only. Raises PM001, PM015 (unknown key, wrong kind, out of range).';

create or replace function memoir.reset_setting(p_key text)
returns void language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  if not exists (select from _memoir.setting_definitions where key = p_key) then
    perform _memoir.fail('PM015', format('unknown setting %s', _memoir.shown(p_key)));
  end if;
  delete from _memoir.settings where key = p_key;
  perform _memoir.merge_settings();
  insert into _memoir.audit_log (login, action, detail) values (_memoir.login(), 'reset_setting', jsonb_build_object('key', p_key));
end $$;
comment on function memoir.reset_setting(text) is 'Returns a setting to its default. Admin only. Raises PM001, PM015.';

create or replace function memoir.list_settings()
returns table (key text, value jsonb, default_value jsonb, kind text, min_value numeric, max_value numeric, overridable boolean, description text)
language plpgsql stable security definer set search_path from current as $$
begin
  return query
  select d.key, coalesce(s.value, d.default_value), d.default_value, d.kind, d.min_value, d.max_value, d.overridable, d.description
  from _memoir.setting_definitions d left join _memoir.settings s on s.key = d.key order by d.key;
end $$;
comment on function memoir.list_settings() is 'All settings with value, default, range and meaning.';

-- {"key": value | null}: null removes the override.
create or replace function _memoir.merge_overrides(p_old jsonb, p_new jsonb)
returns jsonb language plpgsql stable as $$
declare
  v_key text; v_value jsonb;
begin
  if jsonb_typeof(coalesce(p_new, '{}')) <> 'object' then
    perform _memoir.fail('PM014', format('settings must be a JSON object, not %s', _memoir.shown(p_new::text)));
  end if;
  for v_key, v_value in select * from jsonb_each(coalesce(p_new, '{}')) loop
    -- Who is held to a cost limit does not move it, nor the guard against secrets.
    if (v_key like 'budget\_%' or v_key = 'detect_secrets') and not (pg_has_role(_memoir.login(), 'memoir_app', 'usage') or pg_has_role(_memoir.login(), 'memoir_admin', 'usage')) then
      perform _memoir.fail('PM001', format('login %s may not override setting %s', quote_ident(_memoir.login()), v_key));
    end if;
    if jsonb_typeof(v_value) <> 'null' then
      perform _memoir.check_setting(v_key, v_value, true);
    elsif not (p_old ? v_key or exists (select from _memoir.setting_definitions where key = v_key)) then
      perform _memoir.fail('PM015', format('unknown setting %s', _memoir.shown(v_key)), 'select * from memoir.list_settings()');
    end if;
  end loop;
  return jsonb_strip_nulls(p_old || coalesce(p_new, '{}'));
end $$;

create or replace function memoir.set_user_settings(p_user text, p_settings jsonb)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_settings jsonb;
begin
  perform _memoir.touch_user(v_caller, p_user);
  update _memoir.users set settings = _memoir.merge_overrides(settings, p_settings)
  where user_id = v_caller.user_id returning settings into v_settings;
  return v_settings;
end $$;
comment on function memoir.set_user_settings(text, jsonb) is
  'Overrides settings for one user ({"key": value}, null removes) and returns all overrides. Raises PM001, PM014, PM015.';

-- Defaults, install, user, session: later wins.
create or replace function _memoir.config(p_user_id uuid, p_session_settings jsonb)
returns jsonb language plpgsql stable as $$
begin
  return (select config from _memoir.settings_merged)
    || coalesce((select u.settings || jsonb_build_object('profile_version', u.profile_version) from _memoir.users u where u.user_id = p_user_id), '{}')
    || coalesce(p_session_settings, '{}');
end $$;

create or replace function memoir.set_clock(p_at timestamptz)
returns void language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  perform _memoir.put_setting('clock', coalesce(to_jsonb(p_at), 'null'));
end $$;
comment on function memoir.set_clock(timestamptz) is
  'Fixes memoir.now() at a time, for tests and replays; null returns to the real clock. Admin only. Raises PM001.';

create or replace function _memoir.history_share(p_config jsonb, p_task _memoir.task_type)
returns real language plpgsql immutable as $$
begin
  return (p_config ->> ('history_share_' || coalesce(p_task, 'continuation')))::real;
end $$;
