-- Those of sql/data/jobs.csv. A new job: a row there, with its schedule, and a line in step().
create or replace function _memoir.job_list()
returns table (job text, batch_least integer, batch integer, in_python boolean, description text)
language sql immutable as $$
  select job, batch_least::integer, batch::integer, in_python = 'yes', description
  from _memoir.data_jobs() order by nth
$$;

create or replace function _memoir.step(p_job text, p_limit integer)
returns jsonb language plpgsql as $$
begin
  return case p_job
    when 'embedder' then case when to_regprocedure('_memoir.py_ensure_embedder(jsonb)') is null then '{}' else (select
      case when a in ('running', 'not configured', 'starting') then '{}' else jsonb_build_object(a, 1) end
      from memoir.ensure_embedder() a) end
    when 'extract' then _memoir.step_extract(p_limit)
    when 'merge' then _memoir.step_merge(p_limit)
    when 'scan' then _memoir.step_scan(p_limit)
    when 'flush' then _memoir.step_flush(p_limit)
    when 'partitions' then _memoir.step_partitions(p_limit)
    when 'backfill' then _memoir.step_backfill(p_limit)
    when 'sweep' then _memoir.step_sweep(p_limit)
    when 'erase' then _memoir.step_erase(p_limit)
    when 'hygiene' then _memoir.step_hygiene(p_limit)
    when 'promotion' then _memoir.step_promotion(p_limit)
    when 'demotion' then _memoir.step_demotion(p_limit)
    when 'expiry' then _memoir.step_expiry(p_limit)
    when 'profiles' then _memoir.step_profiles(p_limit)
    when 'compaction' then _memoir.step_compaction(p_limit)
    when 'summaries' then _memoir.step_summaries(p_limit)
    when 'consolidation' then _memoir.step_consolidation(p_limit)
    when 'renditions' then _memoir.step_renditions(p_limit)
    when 'phases' then _memoir.step_phases(p_limit)
    when 'archive' then _memoir.step_archive(p_limit)
  end;
end $$;

-- How a job runs: in batches, each a short transaction with its counts in job_runs, one run of a job at a time.
-- A job is a row of job_list() and a function step_<name>(p_limit) that does one bounded batch and
-- returns counts and {"more": true} while there is work. Two keys of the answer are not added up: "more", and "error",
-- the last trouble with one user or item that the step passed over, so that a poisoned one never blocks the rest
-- ("failed" counts them). "begun": it has but leased a unit of work, which the next batch does.

-- Longer than any batch may take: a batch that outlives it ends without a trace, since somebody else may be at it.
create or replace function _memoir.run_lease()
returns interval language sql immutable as $$ select interval '10 minutes' $$;

-- Describes the run that holds a job's lease, for messages. Null if a new run can take the lease.
create or replace function _memoir.lease_holder(p_job text)
returns text language sql as $$
  select format('run %s (login %s, process %s)', l.run_id, a.usename, l.backend)
    || coalesce(format(', which began at %s', date_trunc('second', r.started_at)), '')
  from _memoir.job_leases l join pg_stat_activity a on a.pid = l.backend
  left join _memoir.job_runs r on r.run_id = l.run_id
  where l.job = p_job and l.leased_until >= clock_timestamp() and l.backend <> pg_backend_pid()
$$;

-- Begins a run: takes the lease, closes what a killed predecessor left open. Returns null while another run holds the
-- lease. An attempt after p_until leaves a row in job_runs; one before it does not, because run_job tries again.
create or replace function _memoir.job_begin(p_job text, p_seconds integer, p_wait integer, p_until timestamptz,
  out run bigint, out in_python boolean)
language plpgsql security definer set search_path from current as $$
declare
  v_now timestamptz := clock_timestamp(); v_seconds integer := p_seconds;
begin
  perform _memoir.authorise_jobs(), _memoir.check_range('wait', p_wait, 0, 3600, true);
  select l.in_python into in_python from _memoir.job_list() l where l.job = p_job;
  perform _memoir.fail('PM014', format('there is no job %s', _memoir.shown(p_job)),
    (select 'jobs: ' || string_agg(job, ', ' order by job) from _memoir.job_list())) where not found;
  if v_seconds is null then select (config ->> 'job_seconds_max')::integer into v_seconds from _memoir.settings_merged;
  end if;
  perform _memoir.check_range('seconds', v_seconds, 1, 3600);
  if clock_timestamp() < p_until and _memoir.lease_holder(p_job) is not null then return; end if;
  -- What a job writes by month has its partitions, also where no run of the job partitions came before.
  perform _memoir.try_part(p.part, p.month) from _memoir.partition_plan(0) p where p_job <> 'partitions';
  insert into _memoir.job_runs (job, started_at, until, batch)
  select p_job, v_now, v_now + make_interval(secs => v_seconds),
    coalesce((select least(r.batch, l.batch) from _memoir.job_runs r
              where r.job = p_job and r.batch is not null order by r.run_id desc limit 1),
             case when not l.in_python then greatest(l.batch_least, (l.batch + 7) / 8) end)
  from _memoir.job_list() l where l.job = p_job returning run_id into run;
  -- The lease of a job's one run is a row, which each batch renews as it commits. It passes on when its time is over,
  -- at once when the process that had it is gone, or is this one, whose earlier run was cancelled between two batches.
  insert into _memoir.job_leases as l (job, run_id, backend, leased_until)
  values (p_job, run, pg_backend_pid(), clock_timestamp() + _memoir.run_lease())
  on conflict (job) do update set run_id = excluded.run_id, backend = excluded.backend,
    leased_until = excluded.leased_until
  where l.leased_until < clock_timestamp() or l.backend = excluded.backend
    or not exists (select from pg_stat_activity a where a.pid = l.backend);
  if not found then
    update _memoir.job_runs set finished_at = v_now, outcome = 'still running', batch = null where run_id = run;
    run := null;
    return;
  end if;
  -- One that had noted how it ended, and no more, did not get lost.
  update _memoir.job_runs set finished_at = v_now, outcome = coalesce(outcome, 'lost'),
    error = coalesce(error, case when outcome is null then 'its process ended before the job did' end)
  where job = p_job and finished_at is null and run_id < run;
end $$;

-- Adds the counts of a batch, in its own transaction, and renews the lease. True: the job goes on. A run that has lost
-- its lease undoes the batch.
create or replace function _memoir.job_note(p_run bigint, p_result jsonb)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_run _memoir.job_runs; v_more boolean := coalesce((p_result ->> 'more')::boolean, false);
begin
  perform _memoir.authorise_jobs();
  update _memoir.job_runs set counts = _memoir.add_counts(counts, p_result),
    error = coalesce(left(p_result ->> 'error', 1000), error),
    outcome = coalesce(p_result ->> 'outcome', case when v_more and clock_timestamp() >= until
      and not p_result ? 'begun' then 'time over' end)
  where run_id = p_run and finished_at is null returning * into v_run;
  update _memoir.job_leases set leased_until = clock_timestamp() + _memoir.run_lease() where job = v_run.job
    and run_id = p_run;
  if not found and v_run.run_id is not null then
    perform _memoir.fail('PM051', format('run %s of job %s has lost its lease', p_run, v_run.job));
  end if;
  return v_more and v_run.outcome is null;
end $$;

-- How large the next batch may be, when one of p_batch took p_ms: it holds its users' locks to its end, and who writes
-- waits for it. It grows to the double at most, since the next users may have more to do.
create or replace function _memoir.next_batch(p_batch integer, p_least integer, p_most integer, p_ms float8)
returns integer language sql stable as $$
  select greatest(p_least, least(p_most, p_batch * 2, floor(p_batch * (config ->> 'job_batch_ms')::integer
    / greatest(p_ms, 0.1))))::integer from _memoir.settings_merged
$$;

-- Runs at a unit of work whose lease is over. Locked, so that what is cancelled is not the next batch.
create or replace function _memoir.overdue_runs()
returns table (backend integer) language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_jobs();
  return query
  select l.backend from _memoir.job_leases l
  where exists (select from _memoir.work_items w where w.state = 'leased' and w.leased_until < clock_timestamp()
    and w.payload ->> 'run' = l.run_id::text)
    and exists (select from pg_stat_activity a where a.pid = l.backend)
  for update skip locked;
end $$;

-- Runs as its caller, who runs the jobs: only the same login may cancel what it runs.
create or replace function memoir.cancel_overdue()
returns integer language plpgsql set search_path from current as $$
declare
  v_backend integer; v_count integer := 0;
begin
  for v_backend in select backend from _memoir.overdue_runs() where backend <> pg_backend_pid() loop
    begin
      v_count := v_count + pg_cancel_backend(v_backend)::integer;
    exception when insufficient_privilege then
      raise warning 'process % has been at one unit of its job for too long, and % may not cancel it', v_backend,
        current_user;
    end;
  end loop;
  return v_count;
end $$;
comment on function memoir.cancel_overdue() is
  'Cancels what runs of jobs have been at for longer than job_unit_seconds: one session''s extraction, which is tried
again later, with fewer turns, and is a dead letter in the end, while the run goes on with the next. Returns how
many. Every run_job begins with it; call it where jobs run one after another. Runs of other logins are left alone,
with a warning. Jobs and admin logins only. Raises PM001.';

-- One batch. Its errors are recorded, and a cancel ends it at once; what it did is undone in both cases.
create or replace function _memoir.job_step(p_run bigint)
returns boolean language plpgsql security definer set search_path from current set lock_timeout = '5s' as $$
declare
  v_job text; v_batch integer; v_least integer; v_most integer; v_result jsonb;
  v_began timestamptz := clock_timestamp();
begin
  perform _memoir.authorise_jobs();
  select r.job, r.batch, l.batch_least, l.batch into v_job, v_batch, v_least, v_most from _memoir.job_runs r
  join _memoir.job_list() l on l.job = r.job
  where r.run_id = p_run and r.finished_at is null and r.outcome is null;
  if not found then return false; end if;
  begin
    v_result := _memoir.step(v_job, v_batch);
    if not v_result ? 'begun' then
      v_batch := _memoir.next_batch(v_batch, v_least, v_most, date_part('epoch', clock_timestamp() - v_began) * 1000);
    end if;
    update _memoir.job_runs set batch = v_batch where run_id = p_run and batch <> v_batch;
  exception
    when query_canceled then v_result := jsonb_build_object('outcome', 'cancelled', 'error', sqlerrm);
    when others then v_result := jsonb_build_object('outcome', 'failed', 'error', sqlstate || ' ' || sqlerrm);
  end;
  return _memoir.job_note(p_run, v_result);
end $$;

create or replace function _memoir.job_end(p_run bigint)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_job text; v_outcome text;
begin
  perform _memoir.authorise_jobs();
  update _memoir.job_runs set finished_at = clock_timestamp(),
    outcome = coalesce(outcome, case when error is null then 'done' else 'errors' end)
  where run_id = p_run and finished_at is null returning job, outcome into v_job, v_outcome;
  perform _memoir.emit(_memoir.no_session(), 'job.failed', null, v_job) where v_outcome in ('failed', 'errors');
  delete from _memoir.job_leases where job = v_job and run_id = p_run;
end $$;

-- Says what was recorded, so that whoever ran the job sees it too. p_run null: who runs the job instead, a notice if
-- run_job was not to wait, otherwise an error.
create or replace function _memoir.job_report(p_run bigint, p_job text, p_wait integer)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_run _memoir.job_runs; v_holder text := coalesce(_memoir.lease_holder(p_job), 'another run');
begin
  perform _memoir.authorise_jobs();
  select * into v_run from _memoir.job_runs where run_id = p_run;
  if p_run is null and p_wait = 0 then
    raise notice 'job % is already running: %', p_job, v_holder;
  elsif p_run is null then
    perform _memoir.fail('PM052', format('job %s is still running after a wait of %s s: %s', p_job, p_wait, v_holder),
      'call run_job again, wait longer (p_wait => 600), or end that run with pg_cancel_backend');
  elsif v_run.outcome = 'cancelled' then
    raise query_canceled using message = format('job %s was cancelled', v_run.job);
  elsif v_run.outcome = 'failed' then
    perform _memoir.fail('PM051', format('job %s failed: %s', v_run.job, v_run.error));
  elsif v_run.outcome = 'errors' then
    raise warning 'job % passed over %: %', v_run.job, coalesce(v_run.counts ->> 'failed', 'some'), v_run.error;
  end if;
end $$;

-- Runs under its caller's search_path, since what commits can't pin one: hence no operator and no unqualified name.
create or replace procedure memoir.run_job(p_job text, p_seconds integer default null, p_wait integer default 120)
language plpgsql as $$
declare
  v_run bigint; v_in_python boolean; v_until pg_catalog.timestamptz;
begin
  if pg_catalog.pg_is_in_recovery() then
    raise notice 'this is a standby: job % runs on the primary', p_job;
    return;
  end if;
  commit;  -- inside a transaction block this fails at once, before anything is locked
  perform memoir.cancel_overdue();
  commit;
  v_until := pg_catalog.clock_timestamp() operator(pg_catalog.+) pg_catalog.make_interval(secs => p_wait);
  loop
    select b.run, b.in_python into v_run, v_in_python
    from _memoir.job_begin(p_job, p_seconds, p_wait, v_until) b;
    commit;  -- no transaction is open for longer than one pause
    exit when v_run is not null or pg_catalog.clock_timestamp() operator(pg_catalog.>=) v_until;
    perform pg_catalog.pg_sleep(0.2);
  end loop;
  if v_run is null then perform _memoir.job_report(null, p_job, p_wait); return; end if;
  if v_in_python then
    call _memoir.run_in_python(p_job, v_run);
  else
    while _memoir.job_step(v_run) loop
      commit;
      -- Only who waits notices that the postmaster is gone; who stays keeps the server from starting again.
      perform pg_catalog.pg_sleep(0.001);
    end loop;
  end if;
  commit;
  -- pg_cron keeps a record of every call and never deletes one, some 10,000 a day. Here and not in the job's step,
  -- because pg_cron shows each login only the records of its own jobs.
  if p_job operator(pg_catalog.=) 'sweep' and pg_catalog.to_regclass('cron.job_run_details') is not null then
    perform pg_catalog.set_config('search_path', 'pg_catalog', true);  -- until the commit
    if pg_catalog.has_schema_privilege('cron', 'usage') and pg_catalog.has_table_privilege('cron.job_run_details',
      'delete') then
      execute 'delete from cron.job_run_details where runid in (select runid from cron.job_run_details '
        'where end_time < now() - interval ''7 days'' and database = current_database() and command like ''call '
          'memoir.%'' '
        'limit 10000)';
    end if;
    commit;
  end if;
  perform _memoir.job_end(v_run);
  commit;
  perform _memoir.job_report(v_run, p_job, p_wait);
end $$;
comment on procedure memoir.run_job(text, integer, integer) is
  'Runs a job (select * from memoir.list_jobs()) until nothing is left to do, for at most p_seconds (setting
job_seconds_max), with a commit per batch. Leaves a row in job_runs. If the job is already running, it waits up to
p_wait seconds (0 to 3600) for that run and then does its own. With p_wait => 0, as schedules call it, it returns at
once with a notice. A standby skips it. Call outside a transaction, with statement_timeout 0. Jobs and admin logins
only. Raises PM001, PM014, PM051 (the job failed), PM052 (still running after the wait), 57014 (cancelled).';

-- Returns what a function can't do: statements that only somebody who owns the tables (an owner of the database, a
-- superuser) can send, one by one. They can wait: they finish what was interrupted, and help autovacuum.
create or replace function memoir.bare_statements()
returns table (statement text, reason text) language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_jobs();
  return query
  select format('alter table _memoir.%I detach partition _memoir.%I finalize', p.relname, c.relname),
    'a detach was interrupted'
  from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
  where c.relnamespace = '_memoir'::regnamespace and i.inhdetachpending
  union all
  select format('alter table _memoir.%I detach partition _memoir.%I concurrently', p.relname, c.relname),
    'a month is to be archived'
  from _memoir.archives a join pg_class c on c.relname = a.leaf and c.relnamespace = '_memoir'::regnamespace
  join pg_inherits i on i.inhrelid = c.oid join pg_class p on p.oid = i.inhparent
  where a.state = 'detaching' and not i.inhdetachpending
  union all
  select format('vacuum (analyze) _memoir.%I', s.relname), format('%s of %s rows are dead', s.n_dead_tup,
    s.n_dead_tup + s.n_live_tup)
  from pg_stat_all_tables s
  where s.schemaname = '_memoir' and s.n_dead_tup > 10000 and s.n_dead_tup > 0.05 * s.n_live_tup
    and coalesce(greatest(s.last_vacuum, s.last_autovacuum), '-infinity') < now() - interval '1 hour';
end $$;
comment on function memoir.bare_statements() is
  'Lists maintenance that no function can do, as statements to send outside a transaction by an owner of the
database, each with its reason: months to detach for the job archive, detaches to finish, tables where autovacuum
lags. Jobs and admin logins only. Raises PM001.';
