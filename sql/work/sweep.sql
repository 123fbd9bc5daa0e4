-- Deletes what ends by age or disuse: receipts, logs by whole months, vectors of retired models, prompts, old runs.
-- And the count of what memories are worth keeping (hygiene), which goes through all users too.

-- Drops one leaf of a monthly log whose newest row is older than p_days. Null: none; false: somebody has locked
-- its parent.
create or replace function _memoir.drop_old_leaf(p_table name, p_days integer)
returns boolean language plpgsql set lock_timeout = '1s' as $$
declare
  v_leaf regclass;
begin
  select i.inhrelid into v_leaf
  from pg_inherits p join pg_inherits i on i.inhparent = p.inhrelid join pg_class c on c.oid = i.inhrelid
  where p.inhparent = format('_memoir.%I', p_table)::regclass
    and to_date(right(c.relname, 7), 'YYYY"m"MM') < _memoir.month_of(memoir.now() - make_interval(days => p_days))
  order by right(c.relname, 7), c.relname limit 1;
  if v_leaf is null then return null; end if;
  perform _memoir.run_ddl(format('drop table %s', v_leaf));
  return true;
exception when lock_not_available then
  return false;
end $$;

create or replace function _memoir.step_sweep(p_limit integer)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_config jsonb := (select config from _memoir.settings_merged); v_now timestamptz := clock_timestamp();
  v_after uuid := _memoir.job_cursor('sweep'); v_users uuid[]; v_prompts bytea[]; v_log name; v_dropped boolean;
  v_leaves integer := 0; v_locked integer := 0; v_receipts integer; v_vectors integer := 0; v_runs integer := 0;
  v_dead integer := 0; v_gone integer := 0; v_documents integer;
begin
  if v_after is null then  -- once a round: what is of no user
    foreach v_log in array '{compile_ledger,admission_scores}'::name[] loop
      v_dropped := _memoir.drop_old_leaf(v_log,
        (v_config ->> case v_log when 'compile_ledger' then 'ledger_days' else 'event_days' end)::integer);
      v_leaves := v_leaves + (v_dropped is true)::integer;
      v_locked := v_locked + (v_dropped is false)::integer;
    end loop;
    -- Two statements: the second sees sessions that were opened while the first waited for nobody but locked.
    v_prompts := array(select prompt_hash from _memoir.system_prompts p where created_at < v_now - interval '1 day'
      and not exists (select from _memoir.sessions s where s.system_prompt_hash = p.prompt_hash) limit p_limit
        for update skip locked);
    delete from _memoir.system_prompts p where prompt_hash = any (v_prompts)
      and not exists (select from _memoir.sessions s where s.system_prompt_hash = p.prompt_hash);
    get diagnostics v_gone = row_count;
    delete from _memoir.job_runs where run_id in (
      select run_id from _memoir.job_runs
      where finished_at < v_now - make_interval(days => (v_config ->> 'job_runs_days')::integer)
        or finished_at < v_now - interval '1 day' and outcome in ('done', 'still running')
        and counts = '{}' limit 10000);
    get diagnostics v_runs = row_count;
    delete from _memoir.work_items where state = 'dead'
      and created_at < memoir.now() - make_interval(days => (v_config ->> 'dead_letter_days')::integer);
    get diagnostics v_dead = row_count;
    v_vectors := memoir.drop_retired_embeddings(10000);
    if v_leaves > 0 or v_runs = 10000 or v_vectors = 10000 then  -- there may be more of them
      return jsonb_build_object('more', true, 'log months', v_leaves, 'locked', v_locked, 'prompts', v_gone, 'runs',
        v_runs, 'dead letters', v_dead, 'vectors', v_vectors);
    end if;
  end if;
  v_users := array(select user_id from _memoir.user_counters where v_after is null or user_id > v_after
    order by user_id limit p_limit);
  delete from _memoir.receipts where user_id = any (v_users)
    and recorded_at < memoir.now() - make_interval(hours => (v_config ->> 'idempotency_hours')::integer);
  get diagnostics v_receipts = row_count;
  delete from _memoir.documents where user_id = any (v_users) and expires_at <= memoir.now();
  get diagnostics v_documents = row_count;
  perform _memoir.put_job_cursor('sweep', case when cardinality(v_users) = p_limit then v_users[p_limit] end);
  return jsonb_build_object('more', cardinality(v_users) = p_limit, 'receipts', v_receipts, 'documents', v_documents, 'log months', v_leaves,
    'locked', v_locked,
    'prompts', v_gone, 'runs', v_runs, 'dead letters', v_dead, 'vectors', v_vectors);
end $$;

-- Asks for the vectors that any model lacks: those of a model registered later, and of whoever was missed.
create or replace function _memoir.step_backfill(p_limit integer)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_after uuid := _memoir.job_cursor('backfill'); v_users uuid[]; v_queued integer;
begin
  v_users := array(select user_id from _memoir.user_counters where v_after is null or user_id > v_after
    order by user_id limit p_limit);
  insert into _memoir.work_items (kind, user_id, dedup_key, priority, run_after, created_at)
  select 'embed', c.user_id, m.model_id::text, -1, memoir.now(), memoir.now()
  from _memoir.user_counters c cross join _memoir.embedding_models m
  where c.user_id = any (v_users) and m.status <> 'retired' and c.next_item - 1 > coalesce(
      (select e.through_item from _memoir.embedding_cursors e where e.user_id = c.user_id and e.model_id = m.model_id),
        0)
    and not exists (select from _memoir.work_items j where j.kind = 'embed' and j.user_id = c.user_id
    and j.dedup_key = m.model_id::text)
  order by c.user_id, m.model_id
  on conflict (kind, user_id, dedup_key) where state = 'ready' do nothing;
  get diagnostics v_queued = row_count;
  perform _memoir.put_job_cursor('backfill', case when cardinality(v_users) = p_limit then v_users[p_limit] end);
  return jsonb_build_object('more', cardinality(v_users) = p_limit, 'queued', v_queued);
end $$;

-- How good the memories are, counted over all users; the last whole round is what view hygiene shows.
create or replace function _memoir.step_hygiene(p_limit integer)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_cursor _memoir.job_cursors; v_users uuid[]; v_found jsonb; v_more boolean;
  v_stale timestamptz := memoir.now() - make_interval(days => (select (config ->> 'stale_days')::integer
    from _memoir.settings_merged));
begin
  select * into v_cursor from _memoir.job_cursors where job = 'hygiene';
  v_users := array(select user_id from _memoir.user_counters where v_cursor.after_user is null
    or user_id > v_cursor.after_user order by user_id limit p_limit);
  select jsonb_build_object('memories', count(*),
    'active', count(*) filter (where m.state = 'active'),
    'duplicates', count(*) filter (where m.state = 'superseded' and exists (select from _memoir.memory_states h
      where h.user_id = m.user_id
      and h.memory_id = m.memory_id and h.state = 'superseded' and h.reason like '%duplicate%')),
    'never recalled', count(*) filter (where m.state = 'active' and coalesce(s.access_count, 0) = 0),
    'stale', count(*) filter (where m.state = 'active' and coalesce(s.last_accessed_at, m.recorded_at) < v_stale),
    'orphans', count(*) filter (where m.state = 'active' and m.actor <> 'person'
      and not exists (select from _memoir.memory_sources x
      where x.user_id = m.user_id and x.item_kind = 'memory' and x.item_id = m.memory_id)))
  into v_found
  from _memoir.memory_store m left join _memoir.memory_stats s on s.user_id = m.user_id and s.memory_id = m.memory_id
  where m.user_id = any (v_users) and not m.is_object;
  v_found := _memoir.add_counts(coalesce(v_cursor.state -> 'sum', '{}'), v_found);
  v_more := cardinality(v_users) = p_limit;
  insert into _memoir.job_cursors as c (job, after_user, state)
  values ('hygiene', case when v_more then v_users[p_limit] end,
    case when v_more then jsonb_build_object('sum', v_found) else jsonb_build_object('last', v_found, 'at',
      memoir.now()) end)
  on conflict (job) do update set after_user = excluded.after_user,
    state = (case when v_more then c.state else '{}' end) || excluded.state;
  return jsonb_build_object('more', v_more, 'users', cardinality(v_users));
end $$;
