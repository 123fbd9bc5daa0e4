-- Unattended: what pg_cron runs, and the shared embedder it keeps alive.

create or replace function memoir.ensure_embedder()
returns text language plpgsql security definer set search_path from current as $$
declare
  v_login name := memoir._authorise_worker(); v_socket text; v_models jsonb; v_answer text;
begin
  select config ->> 'embedder_socket' into v_socket from memoir.settings_merged;
  select jsonb_agg(name order by model_id) into v_models from memoir.embedding_models where provider = 'embedder' and status <> 'retired';
  if coalesce(v_socket, '') = '' or v_models is null then return 'not configured'; end if;
  if pg_is_in_recovery() then return 'standby'; end if;
  if to_regprocedure('memoir._py_ensure_embedder(jsonb)') is null then
    perform memoir._fail('PM050', 'the embedder can''t be started from here: PL/Python is not installed', 'run pg-memoir-embedder as a service');
  end if;
  select memoir._py_ensure_embedder(jsonb_build_object('socket', v_socket, 'models', v_models)) into v_answer;
  return v_answer;
end $$;
comment on function memoir.ensure_embedder() is
  'Starts the shared embedder (setting embedder_socket) unless it answers: running, started, starting, restarted, backing off,
not configured. Writes no table. Service, jobs and admin logins only. Raises PM001, PM050.';

-- Where a backlog worker finds the model of a batch.
create or replace function memoir._embedding_endpoint(p_model text, out provider text, out address text, out dimension integer)
language plpgsql stable security definer set search_path from current as $$
begin
  perform memoir._authorise_worker();
  select m.provider, case m.provider when 'embedder' then s.config ->> 'embedder_socket' else m.endpoint end, m.dimension
  into provider, address, dimension from memoir.embedding_models m, memoir.settings_merged s where m.name = p_model;
end $$;

create or replace function memoir.fail_embeddings(p_user_ids uuid[], p_model text, p_error text)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_login name := memoir._authorise_worker();
  v_model memoir.embedding_models := memoir._embedding_model(p_model);
  v_job memoir.jobs;
begin
  for v_job in select * from memoir.jobs where kind = 'embed' and dedup_key = v_model.model_id::text and state = 'leased' and user_id = any (p_user_ids)
    order by job_id for update skip locked
  loop
    if v_job.attempts >= 8 then
      update memoir.jobs set state = 'dead', last_error = left(p_error, 1000) where job_id = v_job.job_id;
    elsif exists (select from memoir.jobs where kind = 'embed' and user_id = v_job.user_id and dedup_key = v_job.dedup_key and state = 'ready') then
      delete from memoir.jobs where job_id = v_job.job_id;
    else
      -- Exponential backoff with jitter: 4, 8, 16 ... seconds, half of it at random.
      update memoir.jobs set state = 'ready', leased_until = null, lease_id = null, last_error = left(p_error, 1000),
        run_after = greatest(memoir.now(), clock_timestamp()) + make_interval(secs => power(2, v_job.attempts + 1) * (0.5 + random() / 2))
      where job_id = v_job.job_id;
    end if;
  end loop;
end $$;
comment on function memoir.fail_embeddings(uuid[], text, text) is
  'Gives leased embedding work of these users back after an error: retried with exponential backoff and jitter, a dead letter
with the error after 8 attempts. Service, jobs and admin logins only. Raises PM001, PM031.';

-- Job name, cron schedule, statement.
create or replace function memoir._job_list()
returns table (job text, schedule text, command text) language sql immutable as $$
  values ('memoir-embedder',   '* * * * *',    'select memoir.ensure_embedder()'),
         ('memoir-embed',      '* * * * *',    'call memoir.embed_backlog()'),
         ('memoir-merge',      '* * * * *',    'call memoir.merge_search()'),
         ('memoir-flush',      '* * * * *',    'call memoir.flush_statistics()'),
         ('memoir-partitions', '17 3 * * *',   'call memoir.ensure_partitions()')
$$;

create or replace procedure memoir.enable_jobs()
language plpgsql as $$
declare
  v_job record;
begin
  perform memoir._authorise_admin();
  if pg_catalog.to_regnamespace('cron') is null then
    perform memoir._fail('PM050', 'pg_cron is not installed in this database', 'create extension pg_cron, or run the procedures from outside');
  end if;
  for v_job in select * from memoir._job_list() loop
    continue when v_job.job = 'memoir-embed' and pg_catalog.to_regprocedure('memoir.embed_backlog(integer,integer)') is null;
    perform cron.schedule_in_database(v_job.job, v_job.schedule, v_job.command, pg_catalog.current_database()::text, 'memoir_jobs');
  end loop;
end $$;
comment on procedure memoir.enable_jobs() is
  'Schedules maintenance with pg_cron: the embedder''s supervision, the embedding backlog, merging of search structures, statistics,
partitions. Jobs run as memoir_jobs. Repeatable. Needs an admin who may schedule for another user. Raises PM001, PM050.';

create or replace procedure memoir.disable_jobs()
language plpgsql as $$
declare
  v_job record;
begin
  perform memoir._authorise_admin();
  if pg_catalog.to_regnamespace('cron') is null then return; end if;
  for v_job in select j.jobid from cron.job j where j.jobname like 'memoir-%' and j.database = pg_catalog.current_database()::text loop
    perform cron.unschedule(v_job.jobid);
  end loop;
end $$;
comment on procedure memoir.disable_jobs() is 'Removes what enable_jobs scheduled. Raises PM001.';
