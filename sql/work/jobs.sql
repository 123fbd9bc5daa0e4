-- Can this server run it? What is missing runs in a worker outside (pg-memoir worker).
create or replace function _memoir.job_runs_here(p_in_python boolean)
returns boolean language sql stable as $$
  select not p_in_python or to_regprocedure('_memoir.run_in_python(text,bigint)') is not null
$$;

-- Default schedules are the release's; what an admin set stays, but for jobs that are no more.
delete from _memoir.schedules s where not exists (select from _memoir.job_list() l where l.job = s.job);
insert into _memoir.schedules as s (job, default_schedule) select job, schedule from _memoir.data_jobs()
on conflict (job) do update set default_schedule = excluded.default_schedule
where s.default_schedule <> excluded.default_schedule;

create or replace function memoir.set_schedule(p_job text, p_schedule text)
returns text language plpgsql security definer set search_path from current as $$
declare
  v_schedule text := nullif(lower(btrim(p_schedule)), 'default'); v_version text; v_given text;
begin
  perform _memoir.authorise_admin();
  if v_schedule <> 'off' and _memoir.cron_last(v_schedule, clock_timestamp()) is null then
    perform _memoir.fail('PM015',
      format('schedule of job %s can''t be %s', _memoir.shown(p_job), _memoir.shown(p_schedule)),
      'a cron expression in UTC (five fields: numbers, *, lists, ranges, steps), N seconds (1 to 59), off, or default');
  end if;
  update _memoir.schedules s set schedule = v_schedule, changed_at = clock_timestamp(), changed_by = _memoir.login()
  where s.job = p_job
  returning coalesce(s.schedule, s.default_schedule) into v_schedule;
  perform _memoir.fail('PM014', format('there is no job %s', _memoir.shown(p_job)),
    (select 'jobs: ' || string_agg(job, ', ' order by job) from _memoir.schedules)) where not found;
  perform _memoir.audit('set_schedule', jsonb_build_object('job', p_job, 'schedule', v_schedule));
  select extversion into v_version from pg_extension where extname = 'pg_cron';
  v_given := _memoir.cron_schedule(v_schedule, v_version);
  if v_given <> v_schedule then
    raise warning 'pg_cron % runs nothing more often than once a minute: job % runs at "%", not every %',
      v_version, p_job, v_given, v_schedule
      using hint = 'pg_cron 1.5 or later, or a worker outside (--jobs), runs it as it was set';
  end if;
  return v_schedule;
end $$;
comment on function memoir.set_schedule(text, text) is
  'Sets when a job runs: a cron expression in UTC ("*/5 * * * *": numbers, lists, ranges, steps; no names of days or
months, no "@hourly"), "10 seconds" (1 to 59; pg_cron before 1.5 runs it every minute, which a warning says), "off",
or "default" (or null): the release''s. Workers outside take it at once; for pg_cron, call enable_jobs(). Returns the
schedule in force. Writes schedules and audit_log. Admin only. Raises PM001, PM014 (no such job), PM015.';

create or replace function memoir.list_jobs()
returns table (job text, schedule text, description text, due timestamptz, last_started timestamptz, last_outcome text,
  default_schedule text, changed_at timestamptz, changed_by text)
language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_worker();
  return query
  select l.job, coalesce(s.schedule, s.default_schedule), l.description,
    case when _memoir.job_runs_here(l.in_python)
      then _memoir.cron_last(nullif(coalesce(s.schedule, s.default_schedule), 'off'), clock_timestamp()) end,
    r.started_at, case when r.run_id is null then null when r.finished_at is null then 'running' else r.outcome end,
    s.default_schedule, s.changed_at, s.changed_by
  from _memoir.job_list() l join _memoir.schedules s on s.job = l.job
  left join lateral (select * from _memoir.job_runs j where j.job = l.job order by j.run_id desc limit 1) r on true
  order by l.job;
end $$;
comment on function memoir.list_jobs() is
  'Jobs with their schedules in force ("off": not scheduled) and by default, when they were last due (null: not
scheduled, or this server can''t run them), how their last run went, and who changed the schedule when (set_schedule).
A job is due that has not started since. Service, jobs and admin logins only. Raises PM001.';

create or replace procedure memoir.enable_jobs()
language plpgsql as $$
declare
  v_job record; v_is_superuser boolean := pg_catalog.current_setting('is_superuser') operator(pg_catalog.=) 'on';
begin
  perform _memoir.authorise_admin();
  if pg_catalog.to_regnamespace('cron') is null then
    perform _memoir.fail('PM050', 'pg_cron is not installed in this database', pg_catalog.format(
      'create extension pg_cron%s, or run the jobs from outside: pg-memoir worker --jobs',
      ' (in the database that cron.database_name says: ' operator(pg_catalog.||)
      pg_catalog.current_setting('cron.database_name', true) operator(pg_catalog.||) ')'));
  end if;
  -- pg_cron lets nobody but a superuser name another role: whoever else schedules runs the jobs.
  if not v_is_superuser and not pg_catalog.pg_has_role(current_user, 'memoir_jobs', 'usage') then
    perform _memoir.fail('PM050', pg_catalog.format('login %I may not run the jobs that it would schedule',
      current_user),
      pg_catalog.format('grant memoir_jobs to %I, or call it as a superuser', current_user));
  elsif not pg_catalog.has_schema_privilege(current_user, 'cron', 'usage') then
    perform _memoir.fail('PM050', pg_catalog.format('login %I may not use pg_cron', current_user),
      pg_catalog.format('grant usage on schema cron to %I', current_user));
  end if;
  call memoir.disable_jobs();
  for v_job in select cron_name, schedule, command from _memoir.cron_list() loop
    if v_is_superuser then
      perform cron.schedule_in_database(v_job.cron_name, v_job.schedule, v_job.command,
        pg_catalog.current_database()::pg_catalog.text, 'memoir_jobs');
    else
      perform cron.schedule(v_job.cron_name, v_job.schedule, v_job.command);
    end if;
  end loop;
end $$;
comment on procedure memoir.enable_jobs() is
  'Schedules all jobs (list_jobs) with pg_cron: called by a superuser they run as memoir_jobs, by another admin, who
needs memoir_jobs and usage on schema cron, as that admin. Call it again after set_schedule, as the same login: pg_cron
shows others'' jobs to superusers only. Raises PM001, PM050.';

-- A schedule as a version of pg_cron takes it: before 1.5 it knows nothing shorter than a minute.
create or replace function _memoir.cron_schedule(p_schedule text, p_version text)
returns text language sql immutable as $$
  select case when p_schedule ~ 'second' and array[1, 5] > (regexp_match(p_version, '^(\d{1,6})\.(\d{1,6})'))::integer[]
    then '* * * * *' else p_schedule end
$$;

create or replace function _memoir.cron_list()
returns table (cron_name text, schedule text, command text)
language plpgsql stable security definer set search_path from current as $$
declare
  v_version text := (select extversion from pg_extension where extname = 'pg_cron');
begin
  perform _memoir.authorise_admin();
  return query
  select 'memoir-' || l.job, _memoir.cron_schedule(coalesce(s.schedule, s.default_schedule), v_version),
    format('call memoir.run_job(%L, p_wait => 0)', l.job)
  from _memoir.job_list() l join _memoir.schedules s on s.job = l.job
  where coalesce(s.schedule, s.default_schedule) <> 'off' and _memoir.job_runs_here(l.in_python);
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
