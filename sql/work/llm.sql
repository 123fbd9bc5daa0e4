-- Requests and results of each kind of model work. A kind: its prompt in plpython/pg_memoir_server/prompts, a name and
-- a line in claim_model_calls, a line in store_model_result. Who asks for it does so with enqueue where the setting
-- llm_provider is not none, and has stored what rules could make before: the model only makes it better.

-- summarise: a compaction that was made by extraction gets a row of the same range and level in the model's words,
-- which then counts instead. It is given what the row was made of: turns, summaries, or both. dedup_key is the
-- compaction, payload {"session_id"}.

create or replace function _memoir.summarised_row(p_work _memoir.work_items)
returns _memoir.compactions language plpgsql stable as $$
begin
  return (select c from _memoir.compactions c
  where c.user_id = p_work.user_id and c.session_id = (p_work.payload ->> 'session_id')::uuid
    and c.compaction_id = p_work.dedup_key::uuid
    and c.undone_at is null and c.made_by = 'extract'
    -- Nor what a model has put in its place, or a summary of summaries.
    and not exists (select from _memoir.compactions o where o.user_id = c.user_id and o.session_id = c.session_id
    and o.undone_at is null
      and o.from_turn <= c.from_turn and o.to_turn >= c.to_turn and (o.level = c.level and o.made_by <> 'extract'
      or c.level > 0 and o.level > c.level)));
end $$;

create or replace function _memoir.summary_size(p_row _memoir.compactions, p_config jsonb)
returns integer language sql immutable as $$
  select case when p_row.level > 1 then greatest(24, (p_row.metadata ->> 'summary_tokens')::integer)
    else greatest(24, least((p_row.metadata ->> 'tokens')::bigint / (p_config ->> 'compaction_ratio')::real,
      case p_row.level when 0 then (p_config ->> 'session_summary_tokens')::integer
      else (p_config ->> 'summary_tokens')::integer / 2 end))::integer end
$$;

-- Its lines: what the summary was made of, [{"who", "date", "text"}].
create or replace function _memoir.summarise_input(p_work _memoir.work_items)
returns jsonb language plpgsql as $$
declare
  v_row _memoir.compactions := _memoir.summarised_row(p_work); v_session _memoir.sessions; v_config jsonb;
  v_lines jsonb; v_excluded bigint; v_from integer := v_row.from_turn;
begin
  if v_row.compaction_id is null then return null; end if;
  select * into v_session from _memoir.sessions where user_id = p_work.user_id and session_id = v_row.session_id;
  v_config := _memoir.config(p_work.user_id, v_session.settings);
  v_excluded := _memoir.count_excluded(v_session, v_row.from_turn, v_row.to_turn);
  if v_row.level > 1 then
    v_lines := (select jsonb_agg(jsonb_build_object('who', 'summary', 'text', c.summary_text) order by c.from_turn)
      from jsonb_array_elements(v_row.sources) s join _memoir.compactions c on c.user_id = v_row.user_id
        and c.session_id = v_row.session_id and c.compaction_id = (s ->> 'compaction_id')::uuid
        and c.undone_at is null);
  else
    if v_row.level = 0 then v_from := _memoir.unsummarised_from(v_session, v_row.to_turn, v_config); end if;
    v_lines := (select jsonb_agg(jsonb_build_object('who', t.label, 'date', _memoir.day(t.created_at), 'text', t.body)
        order by t.turn_index)
      from _memoir.summary_turns(v_session, v_from, v_row.to_turn) t where t.body is not null);
    if v_row.level = 0 and v_session.summary_text is not null then
      v_lines := jsonb_build_array(jsonb_build_object('who', 'summary', 'text', v_session.summary_text))
        || coalesce(v_lines, '[]');
    end if;
  end if;
  if v_lines is null then return null; end if;
  -- A summary of what is forgotten while the model is at it must not be stored.
  update _memoir.work_items set payload = payload || jsonb_build_object('excluded', v_excluded)
  where work_id = p_work.work_id;
  return jsonb_build_object('tokens', _memoir.summary_size(v_row, v_config), 'lines', v_lines);
end $$;

create or replace function _memoir.summarise_store(p_work _memoir.work_items, p_output jsonb, p_made_by text)
returns integer language plpgsql as $$
declare
  v_row _memoir.compactions := _memoir.summarised_row(p_work); v_session _memoir.sessions; v_config jsonb;
  v_tokens integer; v_tokenizer text; v_said_at timestamptz; v_text text := btrim(p_output ->> 'summary');
begin
  if v_row.compaction_id is null then return 0; end if;
  select * into v_session from _memoir.sessions where user_id = p_work.user_id and session_id = v_row.session_id;
  v_config := _memoir.config(p_work.user_id, v_session.settings);
  v_tokenizer := _memoir.tokenizer_used(v_session.tokenizer);
  v_text := split_part(v_row.summary_text, E'\n', 1) || E'\n' || v_text;
  v_tokens := _memoir.tokens_of(v_text, v_tokenizer);
  perform _memoir.fail('PM014', format('the summary has %s tokens, %s were asked for', v_tokens,
    _memoir.summary_size(v_row, v_config))) where v_tokens > _memoir.summary_size(v_row, v_config) * 1.5 + 32;
  if not _memoir.lock_for_summary(v_session, v_row.from_turn, v_row.to_turn, (p_work.payload ->> 'excluded')::bigint,
      p_made_by) then return 0; end if;
  v_row := _memoir.summarised_row(p_work);
  if v_row.compaction_id is null then return 0; end if;
  select max(i.created_at) into v_said_at from _memoir.search_items i where i.user_id = p_work.user_id
    and i.ref_id = v_row.compaction_id;
  v_row.sources := jsonb_build_array(jsonb_build_object('compaction_id', v_row.compaction_id)) || v_row.sources;
  v_row.compaction_id := gen_random_uuid(); v_row.made_by := p_made_by; v_row.summary_text := v_text;
  v_row.recorded_at := greatest(memoir.now(), v_row.recorded_at + interval '1 microsecond');
  v_row.metadata := v_row.metadata || jsonb_build_object('summary_tokens', v_tokens, 'tokenizer', v_tokenizer);
  update _memoir.compactions set undone_at = v_row.recorded_at where v_row.level = 0 and user_id = p_work.user_id
    and session_id = v_row.session_id and level = 0 and undone_at is null;
  perform _memoir.add_compaction(v_row, v_session, coalesce(v_said_at, v_row.recorded_at), v_config);
  perform _memoir.refresh_summary(p_work.user_id, v_row.session_id);
  return 1;
end $$;

-- Work that a language model does, where one is configured: claim → commit → call → store. Texts without secrets are
-- handed out; what comes back is checked against the kind's schema, and stored with the model and prompt that made it.

create or replace function memoir.llm_config()
returns jsonb language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_worker();
  return (select jsonb_build_object('provider', config -> 'llm_provider', 'model', config -> 'llm_model', 'endpoint',
    config -> 'llm_endpoint',
      'timeout', config -> 'llm_timeout', 'retries', config -> 'llm_retries', 'cost_cap', config -> 'llm_cost_cap',
      -- An answer and its repair, each with its retries and the waits between, and time to start.
      'lease', (config ->> 'llm_timeout')::integer * 2 * ((config ->> 'llm_retries')::integer + 1) + 40
        * (config ->> 'llm_retries')::integer + 90)
    from _memoir.settings_merged where config ->> 'llm_provider' <> 'none' and config ->> 'llm_model' <> '');
end $$;
comment on function memoir.llm_config() is
  'How a worker calls the language model: {"provider", "model", "endpoint", "timeout", "retries", "lease" (seconds),
"cost_cap"}; null where none is configured. Service, jobs and admin logins only. Raises PM001.';

create or replace function memoir.claim_model_calls(p_limit integer default 4)
returns table (work_id bigint, lease_id uuid, kind text, input jsonb)
language plpgsql security definer set search_path from current as $$
declare
  v_lease integer; v_work _memoir.work_items; v_kinds text[] := '{answer,extract,judge,consolidate,summarise,render}';
begin
  perform _memoir.authorise_worker();
  v_lease := (memoir.llm_config() ->> 'lease')::integer;
  perform _memoir.check_count('limit', p_limit, 1000);
  if v_lease is null then return; end if;
  -- One of each kind in turn: none waits behind the backlog of another.
  while p_limit > 0 and v_kinds <> '{}' loop
    foreach kind in array v_kinds loop
      exit when p_limit = 0;
      v_work := _memoir.take_work(kind, v_lease);
      if v_work.work_id is null then v_kinds := array_remove(v_kinds, kind); continue; end if;
      -- Send nothing before somebody has looked through the turns for secrets.
      if exists (select from _memoir.user_counters c where c.user_id = v_work.user_id
        and c.unread_from is not null) then
        perform _memoir.requeue(v_work, v_work.attempts - 1,
          greatest(memoir.now(), clock_timestamp()) + interval '1 minute');
        continue;
      end if;
      work_id := v_work.work_id;
      input := case kind when 'summarise' then _memoir.summarise_input(v_work)
        when 'extract' then _memoir.extract_input(v_work) when 'judge' then _memoir.judge_input(v_work)
        when 'consolidate' then _memoir.consolidate_input(v_work) when 'render' then _memoir.render_input(v_work)
        when 'answer' then (select jsonb_build_object('question', a.question, 'tokens', a.max_tokens, 'passages',
          a.passages) from _memoir.query_answers a where a.user_id = v_work.user_id
            and a.query_id = v_work.dedup_key::uuid and a.answered_at is null) end;
      if input is null then  -- nothing is left to ask
        delete from _memoir.work_items j where j.work_id = v_work.work_id;
        continue;
      end if;
      lease_id := v_work.lease_id;
      p_limit := p_limit - 1;
      return next;
    end loop;
  end loop;
end $$;
comment on function memoir.claim_model_calls(integer) is
  'Leases up to p_limit pieces of work for a language model, with the input of their prompts; none where no model is
configured (setting llm_provider). Commit, call, then store_model_result, fail_model_call or release_work. Service,
jobs and admin logins only. Raises PM001, PM014.';

-- Tokens and costs of a call, on the user and, where the work is about one, the session. All costs include helpers'.
create or replace function _memoir.account_call(p_work _memoir.work_items, p_usage jsonb)
returns jsonb language plpgsql as $$
declare
  v_prompt bigint := coalesce((p_usage ->> 'prompt_tokens')::bigint, 0);
  v_completion bigint := coalesce((p_usage ->> 'completion_tokens')::bigint, 0);
  v_model _memoir.models := _memoir.model((select config ->> 'llm_model' from _memoir.settings_merged)); v_cost bigint;
begin
  v_cost := (v_prompt * v_model.prompt_microcents_per_1k + v_completion * v_model.completion_microcents_per_1k + 999)
    / 1000;
  if v_prompt + v_completion > 0 then
    update _memoir.session_counters set helper_tokens = helper_tokens + v_prompt + v_completion,
      helper_microcents = helper_microcents + v_cost, cost_microcents = cost_microcents + v_cost
    where user_id = p_work.user_id and session_id = (p_work.payload ->> 'session_id')::uuid;
    update _memoir.user_counters set helper_tokens = helper_tokens + v_prompt + v_completion,
      helper_microcents = helper_microcents + v_cost, cost_microcents = cost_microcents + v_cost
    where user_id = p_work.user_id;
  end if;
  return jsonb_build_object('tokens', v_prompt + v_completion, 'cost', v_cost);
end $$;

create or replace function memoir.store_model_result(p_work bigint, p_lease uuid, p_output jsonb, p_made_by text,
  p_usage jsonb default '{}')
returns jsonb language plpgsql security definer set search_path from current set lock_timeout = '5s' as $$
declare
  v_work _memoir.work_items; v_stored integer; v_refused boolean; v_state text; v_made_by text := left(p_made_by, 200);
begin
  perform _memoir.authorise_worker();
  v_work := _memoir.leased(p_work, p_lease);
  if v_work.work_id is null then return jsonb_build_object('lost', 1); end if;
  if p_output is null or coalesce(p_made_by, '') = '' then
    perform _memoir.fail('PM014', 'output and made_by must be given');
  end if;
  begin
    v_stored := case v_work.kind when 'summarise' then _memoir.summarise_store(v_work, p_output, v_made_by)
      when 'extract' then _memoir.extract_store(v_work, p_output, v_made_by)
      when 'judge' then _memoir.judge_store(v_work, p_output, v_made_by)
      when 'consolidate' then _memoir.consolidate_store(v_work, p_output, v_made_by)
      when 'render' then _memoir.render_store(v_work, p_output, v_made_by)
      when 'answer' then _memoir.answer_store(v_work, p_output, v_made_by) end;
  exception when others then
    -- Paid for all the same. An answer that can't be used is asked for once more; what stands in a lock's way comes
    -- back as often as it takes.
    v_refused := sqlstate not in ('55P03', '40P01', '40001', '57014');
    v_state := _memoir.give_back(v_work, sqlstate || ' ' || sqlerrm, p_final => v_refused
      and v_work.payload ? 'refused');
    if v_refused and v_state = 'ready' then
      update _memoir.work_items set payload = payload || '{"refused": true}' where kind = v_work.kind
        and user_id = v_work.user_id and dedup_key = v_work.dedup_key and state = 'ready';
    end if;
    return jsonb_build_object('failed', 1, 'error', sqlerrm, 'state', v_state) || _memoir.account_call(v_work, p_usage);
  end;
  delete from _memoir.work_items where work_id = p_work;
  return jsonb_build_object('stored', coalesce(v_stored, 0)) || _memoir.account_call(v_work, p_usage);
end $$;
comment on function memoir.store_model_result(bigint, uuid, jsonb, text, jsonb) is
  'Stores what a model answered for a claimed piece of work (of kind extract with the places of its quotes, as locate()
of pg_memoir_server.llm.stretches gives them), with who made it (model and prompt) and its tokens ({"prompt_tokens",
"completion_tokens"}), and ends the work. Returns {"stored", "tokens", "cost"}, {"failed", "error"} when it could not be
stored, {"lost"} when the lease ran out. Service, jobs and admin logins only. Raises PM001, PM014.';

create or replace function memoir.fail_model_call(p_work bigint, p_lease uuid, p_error text,
  p_final boolean default false, p_retry_seconds numeric default null, p_usage jsonb default '{}')
returns jsonb language plpgsql security definer set search_path from current set lock_timeout = '5s' as $$
declare
  v_work _memoir.work_items; v_from integer; v_to integer; v_splits integer; v_part int4range; v_state text := 'split';
begin
  perform _memoir.authorise_worker();
  v_work := _memoir.leased(p_work, p_lease);
  if v_work.work_id is null then return jsonb_build_object('lost', 1); end if;
  select s."from", s."to", coalesce(s.splits, 0) into v_from, v_to, v_splits
  from jsonb_to_record(v_work.payload) s("from" integer, "to" integer, splits integer);
  if p_final and v_work.kind = 'extract' and strpos(p_error, 'cut off') > 0 and v_to - v_from >= 2 and v_splits < 2 then
    -- What a model can't answer in one piece it can in two: it was cut off, or one turn makes it refuse.
    delete from _memoir.work_items where work_id = v_work.work_id;
    foreach v_part in array array[int4range(v_from, (v_from + v_to) / 2), int4range((v_from + v_to) / 2, v_to)] loop
      perform _memoir.enqueue('extract', v_work.user_id,
        format('%s:%s', v_work.payload ->> 'session_id', lower(v_part)), jsonb_build_object('session_id',
        v_work.payload -> 'session_id', 'from', lower(v_part), 'to', upper(v_part), 'splits', v_splits + 1));
    end loop;
  else
    v_state := _memoir.give_back(v_work, p_error, least(greatest(p_retry_seconds, 0), 86400), coalesce(p_final, false));
  end if;
  return jsonb_build_object('failed', 1, 'error', left(p_error, 1000), 'state', v_state)
    || _memoir.account_call(v_work, p_usage);
end $$;
comment on function memoir.fail_model_call(bigint, uuid, text, boolean, numeric, jsonb) is
  'Gives claimed model work back after a failed call: retried with backoff, not before p_retry_seconds; a dead letter
with p_final or
after work_attempts_max attempts. Counts the tokens it cost. Service, jobs and admin logins only. Raises PM001.';
