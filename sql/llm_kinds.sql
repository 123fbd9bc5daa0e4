-- What each kind of model work asks and stores. A kind: a name here, its prompt in plpython/pg_memoir_server/prompts, a line in
-- _llm_input and _llm_store. Who asks for it does so with _enqueue where the setting llm_provider is not none, and has stored what
-- rules could make before: the model only makes it better.

create or replace function memoir._llm_kinds()
returns text[] language sql immutable as $$ select '{summarise}'::text[] $$;

-- The input of the kind's prompt; null: nothing is left to ask.
create or replace function memoir._llm_input(p_job memoir.jobs)
returns jsonb language plpgsql as $$
begin
  return case p_job.kind when 'summarise' then memoir._summarise_input(p_job) end;
end $$;

-- Stores what was answered; how many rows came of it.
create or replace function memoir._llm_store(p_job memoir.jobs, p_output jsonb, p_made_by text)
returns integer language plpgsql as $$
begin
  return case p_job.kind when 'summarise' then memoir._summarise_store(p_job, p_output, p_made_by) end;
end $$;

-- summarise: a compaction of level 1 that was made by extraction gets a row of the same range in the model's words, which then
-- counts instead. dedup_key is the compaction, payload {"session_id"}.

create or replace function memoir._ask_for_summary(p_row memoir.compactions, p_config jsonb)
returns void language plpgsql as $$
begin
  if p_config ->> 'llm_provider' = 'none' or p_row.level <> 1 or p_row.made_by <> 'extract' then return; end if;
  perform memoir._enqueue('summarise', p_row.user_id, p_row.compaction_id::text, jsonb_build_object('session_id', p_row.session_id));
end $$;

create or replace function memoir._summarised_row(p_job memoir.jobs)
returns memoir.compactions language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_row memoir.compactions;
begin
  select * into v_row from memoir.compactions c
  where c.user_id = p_job.user_id and c.session_id = (p_job.payload ->> 'session_id')::uuid and c.compaction_id = p_job.dedup_key::uuid
    and c.undone_at is null and c.level = 1 and c.made_by = 'extract'
    and not exists (select from memoir.compactions o where o.user_id = c.user_id and o.session_id = c.session_id and o.undone_at is null
      and o.from_turn = c.from_turn and o.to_turn = c.to_turn and o.level = 1 and o.made_by <> 'extract');
  return v_row;
end $$;

create or replace function memoir._summary_size(p_row memoir.compactions, p_config jsonb)
returns integer language sql immutable as $$
  select greatest(24, least((p_row.metadata ->> 'tokens')::bigint / (p_config ->> 'compaction_ratio')::real, (p_config ->> 'summary_tokens')::integer / 2))::integer
$$;

create or replace function memoir._summarise_input(p_job memoir.jobs)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_row memoir.compactions := memoir._summarised_row(p_job); v_session memoir.sessions; v_lines jsonb; v_excluded bigint;
begin
  if v_row.compaction_id is null then return null; end if;
  select * into v_session from memoir.sessions where user_id = p_job.user_id and session_id = v_row.session_id;
  v_excluded := memoir._count_excluded(v_session, v_row.from_turn, v_row.to_turn);
  select jsonb_agg(jsonb_build_object('who', t.label, 'date', memoir._day(t.created_at), 'text', t.body) order by t.turn_index) into v_lines
  from memoir._summary_turns(v_session, v_row.from_turn, v_row.to_turn) t where t.body is not null;
  if v_lines is null then return null; end if;
  -- A summary of what is forgotten while the model is at it must not be stored.
  update memoir.jobs set payload = payload || jsonb_build_object('excluded', v_excluded) where job_id = p_job.job_id;
  return jsonb_build_object('tokens', memoir._summary_size(v_row, memoir._config(p_job.user_id, v_session.settings)), 'lines', v_lines);
end $$;

create or replace function memoir._summarise_store(p_job memoir.jobs, p_output jsonb, p_made_by text)
returns integer language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_row memoir.compactions := memoir._summarised_row(p_job); v_session memoir.sessions; v_config jsonb; v_tokens integer; v_tokenizer text; v_said_at timestamptz;
  v_text text := btrim(p_output ->> 'summary');
begin
  if v_row.compaction_id is null then return 0; end if;
  select * into v_session from memoir.sessions where user_id = p_job.user_id and session_id = v_row.session_id;
  v_config := memoir._config(p_job.user_id, v_session.settings);
  v_tokenizer := memoir._tokenizer_used(v_session.tokenizer);
  -- Under its head line, as the extracted one.
  v_text := split_part(v_row.summary_text, E'\n', 1) || E'\n' || v_text;
  v_tokens := memoir._tokens_of(v_text, v_tokenizer);
  if v_tokens > memoir._summary_size(v_row, v_config) * 1.5 + 32 then
    perform memoir._fail('PM014', format('the summary has %s tokens, %s were asked for', v_tokens, memoir._summary_size(v_row, v_config)));
  end if;
  if not memoir._lock_for_summary(v_session, v_row.from_turn, v_row.to_turn, (p_job.payload ->> 'excluded')::bigint) then return 0; end if;
  v_row := memoir._summarised_row(p_job);
  if v_row.compaction_id is null then return 0; end if;
  select max(i.created_at) into v_said_at from memoir.search_items i where i.user_id = p_job.user_id and i.ref_id = v_row.compaction_id;
  v_row.sources := jsonb_build_array(jsonb_build_object('compaction_id', v_row.compaction_id)) || v_row.sources;
  v_row.compaction_id := gen_random_uuid(); v_row.made_by := p_made_by; v_row.summary_text := v_text; v_row.recorded_at := greatest(memoir.now(), v_row.recorded_at + interval '1 microsecond');
  v_row.metadata := v_row.metadata || jsonb_build_object('summary_tokens', v_tokens, 'tokenizer', v_tokenizer);
  perform memoir._add_compaction(v_row, v_session, coalesce(v_said_at, v_row.recorded_at), v_config);
  perform memoir._refresh_summary(p_job.user_id, v_row.session_id);
  return 1;
end $$;
