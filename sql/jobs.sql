-- Unattended: which jobs there are, what pg_cron or a worker outside runs of them, and the shared embedder that one keeps alive.

-- A new job: a row here, a line in _step(), and its schedule (schedule_<job>, settings.sql). batch_least, batch: p_limit of its step, from and to;
-- extraction has its rules to compile in each, and finds without a lock.
create or replace function memoir._job_list()
returns table (job text, batch_least integer, batch integer, in_python boolean, description text) language sql immutable as $$
  values ('embedder',   1, 1,   false, 'starts the shared embedder unless it answers'),
         ('embed',      1, 32,  true,  'makes the vectors that lack'),
         ('extract',    16, 64,  false, 'finds memories in new turns'),
         ('model',      1, 4,   true,  'asks the language model what extraction, judging, consolidation and summaries leave to it'),
         ('merge',      1, 1,   false, 'merges the word tails of users into posting lists'),
         ('flush',      1, 500, false, 'moves compile statistics from the unlogged buffer to the ledger and the counters'),
         ('partitions', 1, 8,   false, 'makes the partitions of the months ahead'),
         ('backfill',   1, 500, false, 'queues what an embedding model has not reached'),
         ('sweep',      1, 500, false, 'removes what is past its time: receipts, months of logs, old runs, vectors of retired models'),
         ('erase',      1, 1,   false, 'writes the leaves anew that erases have touched, so that the bytes are gone'),
         ('hygiene',    1, 200, false, 'counts duplicate, stale, never recalled and orphaned memories'),
         ('promotion',  1, 50,  false, 'raises memories that are used to a higher tier'),
         ('demotion',   1, 200, false, 'lowers memories of tiers 1 and 2 that nobody uses'),
         ('expiry',     1, 500, false, 'ends memories, sessions and working notes whose time is over'),
         ('profiles',   1, 50,  false, 'rebuilds the profiles whose memories changed'),
         ('compaction', 1, 500, false, 'puts summaries beside the old turns of long sessions'),
         ('summaries',  1, 1,   false, 'summarises sessions that have ended'),
         ('consolidation', 1, 20, false, 'makes one memory of several about one thing'),
         ('archive',    1, 10,  false, 'takes out months of turns past retention')
$$;

create or replace function memoir._step(p_job text, p_limit integer)
returns jsonb language plpgsql as $$
begin
  return case p_job
    when 'embedder' then memoir._step_embedder(p_limit)
    when 'extract' then memoir._step_extract(p_limit)
    when 'merge' then memoir._step_merge(p_limit)
    when 'flush' then memoir._step_flush(p_limit)
    when 'partitions' then memoir._step_partitions(p_limit)
    when 'backfill' then memoir._step_backfill(p_limit)
    when 'sweep' then memoir._step_sweep(p_limit)
    when 'erase' then memoir._step_erase(p_limit)
    when 'hygiene' then memoir._step_hygiene(p_limit)
    when 'promotion' then memoir._step_promotion(p_limit)
    when 'demotion' then memoir._step_demotion(p_limit)
    when 'expiry' then memoir._step_expiry(p_limit)
    when 'profiles' then memoir._step_profiles(p_limit)
    when 'compaction' then memoir._step_compaction(p_limit)
    when 'summaries' then memoir._step_summaries(p_limit)
    when 'consolidation' then memoir._step_consolidation(p_limit)
    when 'archive' then memoir._step_archive(p_limit)
  end;
end $$;

-- Can this server run it? What is missing runs in a worker outside (python -m pg_memoir worker).
create or replace function memoir._job_runs_here(p_in_python boolean)
returns boolean language sql stable as $$
  select not p_in_python or to_regprocedure('memoir._run_in_python(text,bigint)') is not null
$$;

create or replace function memoir.list_jobs()
returns table (job text, schedule text, description text, due timestamptz, last_started timestamptz, last_outcome text)
language plpgsql stable security definer set search_path from current as $$
begin
  perform memoir._authorise_worker();
  return query
  select l.job, s.config ->> ('schedule_' || l.job), l.description,
    case when memoir._job_runs_here(l.in_python) then memoir._cron_last(nullif(s.config ->> ('schedule_' || l.job), ''), clock_timestamp()) end,
    r.started_at, case when r.run_id is null then null when r.finished_at is null then 'running' else r.outcome end
  from memoir._job_list() l cross join memoir.settings_merged s
  left join lateral (select * from memoir.job_runs j where j.job = l.job order by j.run_id desc limit 1) r on true
  order by l.job;
end $$;
comment on function memoir.list_jobs() is
  'Jobs with their schedules, when they were last due (null: not scheduled, or this server can''t run them) and how their last run
went. A job is due that has not started since. Service, jobs and admin logins only. Raises PM001.';

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

create or replace function memoir._step_embedder(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_answer text;
begin
  if to_regprocedure('memoir._py_ensure_embedder(jsonb)') is null then return '{}'; end if;
  v_answer := memoir.ensure_embedder();
  return case when v_answer in ('running', 'not configured', 'starting') then '{}' else jsonb_build_object(v_answer, 1) end;
end $$;

create or replace procedure memoir.enable_jobs()
language plpgsql as $$
declare
  v_job record;
begin
  perform memoir._authorise_admin();
  if pg_catalog.to_regnamespace('cron') is null then
    perform memoir._fail('PM050', 'pg_cron is not installed in this database', 'create extension pg_cron, or run the jobs from outside: python -m pg_memoir worker --jobs');
  end if;
  call memoir.disable_jobs();
  for v_job in select cron_name, schedule, command from memoir._cron_list() loop
    perform cron.schedule_in_database(v_job.cron_name, v_job.schedule, v_job.command, pg_catalog.current_database()::pg_catalog.text, 'memoir_jobs');
  end loop;
end $$;
comment on procedure memoir.enable_jobs() is
  'Schedules all jobs (list_jobs) with pg_cron, by their settings schedule_<job>; they run as memoir_jobs. Call it again after
changing a schedule. Needs an admin who may schedule for another user. Raises PM001, PM050.';

-- A schedule as a version of pg_cron takes it: before 1.5 it knows nothing shorter than a minute.
create or replace function memoir._cron_schedule(p_schedule text, p_version text)
returns text language sql immutable as $$
  select case when p_schedule ~ 'second' and array[1, 5] > (regexp_match(p_version, '^(\d{1,6})\.(\d{1,6})'))::integer[]
    then '* * * * *' else p_schedule end
$$;

-- What is to be scheduled: only what this server can run.
create or replace function memoir._cron_list()
returns table (cron_name text, schedule text, command text) language plpgsql stable security definer set search_path from current as $$
declare
  v_version text := (select extversion from pg_extension where extname = 'pg_cron');
begin
  perform memoir._authorise_admin();
  return query
  select 'memoir-' || l.job, memoir._cron_schedule(s.config ->> ('schedule_' || l.job), v_version), format('call memoir.run_job(%L)', l.job)
  from memoir._job_list() l cross join memoir.settings_merged s
  where s.config ->> ('schedule_' || l.job) <> '' and memoir._job_runs_here(l.in_python);
end $$;

create or replace procedure memoir.disable_jobs()
language plpgsql as $$
declare
  v_job record;
begin
  perform memoir._authorise_admin();
  if pg_catalog.to_regnamespace('cron') is null then return; end if;
  for v_job in select j.jobid from cron.job j where pg_catalog.starts_with(j.jobname, 'memoir-')
      and j.database operator(pg_catalog.=) pg_catalog.current_database() loop
    perform cron.unschedule(v_job.jobid);
  end loop;
end $$;
comment on procedure memoir.disable_jobs() is 'Removes what enable_jobs scheduled. Raises PM001.';
