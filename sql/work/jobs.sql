-- Unattended: which jobs there are, what pg_cron or a worker outside runs of them, and the shared embedder that one keeps alive.

-- Can this server run it? What is missing runs in a worker outside (pg-memoir worker).
create or replace function _memoir.job_runs_here(p_in_python boolean)
returns boolean language sql stable as $$
  select not p_in_python or to_regprocedure('_memoir.run_in_python(text,bigint)') is not null
$$;

create or replace function memoir.list_jobs()
returns table (job text, schedule text, description text, due timestamptz, last_started timestamptz, last_outcome text)
language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_worker();
  return query
  select l.job, s.config ->> ('schedule_' || l.job), l.description,
    case when _memoir.job_runs_here(l.in_python) then _memoir.cron_last(nullif(s.config ->> ('schedule_' || l.job), ''), clock_timestamp()) end,
    r.started_at, case when r.run_id is null then null when r.finished_at is null then 'running' else r.outcome end
  from _memoir.job_list() l cross join _memoir.settings_merged s
  left join lateral (select * from _memoir.job_runs j where j.job = l.job order by j.run_id desc limit 1) r on true
  order by l.job;
end $$;
comment on function memoir.list_jobs() is
  'Jobs with their schedules, when they were last due (null: not scheduled, or this server can''t run them) and how their last run
went. A job is due that has not started since. Service, jobs and admin logins only. Raises PM001.';

create or replace procedure memoir.enable_jobs()
language plpgsql as $$
declare
  v_job record;
begin
  perform _memoir.authorise_admin();
  if pg_catalog.to_regnamespace('cron') is null then
    perform _memoir.fail('PM050', 'pg_cron is not installed in this database', 'create extension pg_cron, or run the jobs from outside: pg-memoir worker --jobs');
  end if;
  call memoir.disable_jobs();
  for v_job in select cron_name, schedule, command from _memoir.cron_list() loop
    perform cron.schedule_in_database(v_job.cron_name, v_job.schedule, v_job.command, pg_catalog.current_database()::pg_catalog.text, 'memoir_jobs');
  end loop;
end $$;
comment on procedure memoir.enable_jobs() is
  'Schedules all jobs (list_jobs) with pg_cron, by their settings schedule_<job>; they run as memoir_jobs. Call it again after
changing a schedule. Needs an admin who may schedule for another user. Raises PM001, PM050.';

-- A schedule as a version of pg_cron takes it: before 1.5 it knows nothing shorter than a minute.
create or replace function _memoir.cron_schedule(p_schedule text, p_version text)
returns text language sql immutable as $$
  select case when p_schedule ~ 'second' and array[1, 5] > (regexp_match(p_version, '^(\d{1,6})\.(\d{1,6})'))::integer[]
    then '* * * * *' else p_schedule end
$$;

-- What is to be scheduled: only what this server can run.
create or replace function _memoir.cron_list()
returns table (cron_name text, schedule text, command text) language plpgsql stable security definer set search_path from current as $$
declare
  v_version text := (select extversion from pg_extension where extname = 'pg_cron');
begin
  perform _memoir.authorise_admin();
  return query
  select 'memoir-' || l.job, _memoir.cron_schedule(s.config ->> ('schedule_' || l.job), v_version), format('call memoir.run_job(%L)', l.job)
  from _memoir.job_list() l cross join _memoir.settings_merged s
  where s.config ->> ('schedule_' || l.job) <> '' and _memoir.job_runs_here(l.in_python);
end $$;

create or replace procedure memoir.disable_jobs()
language plpgsql as $$
declare
  v_job record;
begin
  perform _memoir.authorise_admin();
  if pg_catalog.to_regnamespace('cron') is null then return; end if;
  for v_job in select j.jobid from cron.job j where pg_catalog.starts_with(j.jobname, 'memoir-')
      and j.database operator(pg_catalog.=) pg_catalog.current_database() loop
    perform cron.unschedule(v_job.jobid);
  end loop;
end $$;
comment on procedure memoir.disable_jobs() is 'Removes what enable_jobs scheduled. Raises PM001.';
