-- Work that a language model does, where one is configured: claim → commit → call → store. What is handed out are texts
-- without secrets; what comes back is checked against the kind's schema before it is stored, and says which model and
-- prompt made it.

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
  v_lease integer; v_work _memoir.work_items; v_kinds text[] := _memoir.llm_kinds();
begin
  perform _memoir.authorise_worker();
  v_lease := (memoir.llm_config() ->> 'lease')::integer;
  perform _memoir.check_count('limit', p_limit, 1000);
  if v_lease is null then return; end if;
  -- One of each kind in turn: none waits behind the backlog of another.
  while p_limit > 0 and v_kinds <> '{}' loop
    foreach kind in array v_kinds loop
      exit when p_limit = 0;
      v_work := _memoir.take_work(kind);
      if v_work.work_id is null then
        v_kinds := array_remove(v_kinds, kind);
        continue;
      end if;
      -- Send nothing before somebody has looked through the turns for secrets.
      if exists (select from _memoir.user_counters c where c.user_id = v_work.user_id and c.unread_from is not null) then
        update _memoir.work_items j set run_after = greatest(memoir.now(), clock_timestamp()) + interval '1 minute'
        where j.work_id = v_work.work_id;
        continue;
      end if;
      work_id := v_work.work_id;
      input := _memoir.llm_input(v_work);
      if input is null then  -- nothing is left to ask
        delete from _memoir.work_items j where j.work_id = v_work.work_id;
        continue;
      end if;
      lease_id := _memoir.lease_work(v_work.work_id, v_lease);
      p_limit := p_limit - 1;
      return next;
    end loop;
  end loop;
end $$;
comment on function memoir.claim_model_calls(integer) is
  'Leases up to p_limit pieces of work for a language model, with the input of their prompts; none where no model is
configured (setting llm_provider). Commit, call, then store_model_result, fail_model_call or release_work. Service,
jobs and admin logins only. Raises PM001, PM014.';

-- Tokens and costs of a call, on the user and, where the work is about one, the session. What helpers cost is a part of
-- all costs.
create or replace function _memoir.account_call(p_work _memoir.work_items, p_usage jsonb)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_prompt bigint := coalesce((p_usage ->> 'prompt_tokens')::bigint, 0);
  v_completion bigint := coalesce((p_usage ->> 'completion_tokens')::bigint, 0);
  v_model _memoir.models := _memoir.model((select config ->> 'llm_model' from _memoir.settings_merged)); v_cost bigint;
begin
  v_cost := (v_prompt * v_model.prompt_microcents_per_1k + v_completion * v_model.completion_microcents_per_1k + 999)
    / 1000;
  if v_prompt + v_completion > 0 then
    update _memoir.session_counters set helper_tokens = helper_tokens + v_prompt + v_completion,
      helper_microcents = helper_microcents + v_cost,
      cost_microcents = cost_microcents + v_cost
    where user_id = p_work.user_id and session_id = (p_work.payload ->> 'session_id')::uuid;
    update _memoir.user_counters set helper_tokens = helper_tokens + v_prompt + v_completion,
      helper_microcents = helper_microcents + v_cost,
      cost_microcents = cost_microcents + v_cost
    where user_id = p_work.user_id;
  end if;
  return jsonb_build_object('tokens', v_prompt + v_completion, 'cost', v_cost);
end $$;

create or replace function memoir.store_model_result(p_work bigint, p_lease uuid, p_output jsonb, p_made_by text,
  p_usage jsonb default '{}')
returns jsonb language plpgsql security definer set search_path from current set lock_timeout = '5s' as $$
declare
  v_work _memoir.work_items; v_stored integer; v_refused boolean; v_state text;
begin
  perform _memoir.authorise_worker();
  v_work := _memoir.leased(p_work, p_lease);
  if v_work.work_id is null then return jsonb_build_object('lost', 1); end if;
  if p_output is null or coalesce(p_made_by, '') = '' then
    perform _memoir.fail('PM014', 'output and made_by must be given');
  end if;
  begin
    v_stored := _memoir.llm_store(v_work, p_output, left(p_made_by, 200));
  exception when others then
    -- Paid for all the same. An answer that can't be used is asked for once more.
    v_refused := sqlstate = 'PM014';
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
  'Stores what a model answered for a claimed piece of work, with who made it (model and prompt) and its tokens
({"prompt_tokens", "completion_tokens"}), and ends the work. Returns {"stored", "tokens", "cost"}, {"failed", "error"}
when it could not be stored, {"lost"} when the lease had run out. Service, jobs and admin logins only. Raises PM001,
PM014.';

create or replace function memoir.fail_model_call(p_work bigint, p_lease uuid, p_error text,
  p_final boolean default false,
  p_retry_seconds numeric default null, p_usage jsonb default '{}')
returns jsonb language plpgsql security definer set search_path from current set lock_timeout = '5s' as $$
declare
  v_work _memoir.work_items;
begin
  perform _memoir.authorise_worker();
  v_work := _memoir.leased(p_work, p_lease);
  if v_work.work_id is null then return jsonb_build_object('lost', 1); end if;
  return jsonb_build_object('failed', 1, 'error', left(p_error, 1000),
      'state', _memoir.give_back(v_work, p_error, least(greatest(p_retry_seconds, 0), 86400), coalesce(p_final, false)))
    || _memoir.account_call(v_work, p_usage);
end $$;
comment on function memoir.fail_model_call(bigint, uuid, text, boolean, numeric, jsonb) is
  'Gives claimed model work back after a failed call: retried with backoff, not before p_retry_seconds; a dead letter
with p_final or
after work_attempts_max attempts. Counts the tokens it cost. Service, jobs and admin logins only. Raises PM001.';
