-- The queue: one row per work item. Each kind has its own claim: claim → commit → work → store or fail, while heartbeat
-- keeps the lease and release_work gives it back. A lease that runs out passes to the next who claims; a failure waits
-- twice as long each time and ends as a dead letter with its error. One user's same work (dedup_key) waits once and
-- runs once at a time. Payloads hold ids, never text.

-- Asks for work unless it waits already. Locks the waiting row, so that nobody claims it before our writes are visible.
create or replace function _memoir.enqueue(p_kind text, p_user_id uuid, p_dedup text, p_payload jsonb default '{}',
  p_priority integer default 0, p_run_after timestamptz default null)
returns void language sql as $$
  insert into _memoir.work_items (kind, user_id, dedup_key, payload, priority, run_after, created_at)
  values (p_kind, p_user_id, p_dedup, p_payload, p_priority, coalesce(p_run_after, memoir.now()), memoir.now())
  on conflict (kind, user_id, dedup_key) where state = 'ready' do update set priority = work_items.priority where false
$$;

-- The same without waiting for whoever is at the waiting row: for writers whose locks a worker may want next.
create or replace function _memoir.enqueue_unlocked(p_kind text, p_user_id uuid, p_dedup text, p_run_after timestamptz,
  p_payload jsonb default '{}')
returns void language sql as $$
  insert into _memoir.work_items (kind, user_id, dedup_key, payload, run_after, created_at)
  values (p_kind, p_user_id, p_dedup, p_payload, p_run_after, p_run_after)
  on conflict (kind, user_id, dedup_key) where state = 'ready' do nothing
$$;

-- Leases a kind's next work item for so many seconds: one whose lease is over, else what is ready. Waits for nobody.
create or replace function _memoir.take_work(p_kind text, p_seconds integer, p_keys text[] default null)
returns _memoir.work_items language plpgsql as $$
declare
  v_work _memoir.work_items; v_now timestamptz := clock_timestamp();
  v_attempts integer := (select (config ->> 'work_attempts_max')::integer from _memoir.settings_merged);
begin
  loop
    select j.* into v_work from _memoir.work_items j
    where j.kind = p_kind and j.state = 'leased' and j.leased_until < v_now
      and (p_keys is null or j.dedup_key = any (p_keys))
    order by j.leased_until, j.work_id limit 1 for update skip locked;
    if not found then
      -- Work that came in while the same work is out waits for it: two workers never have the same items.
      select j.* into v_work from _memoir.work_items j
      where j.kind = p_kind and j.state = 'ready' and j.run_after <= greatest(v_now, memoir.now())
        and (p_keys is null or j.dedup_key = any (p_keys))
        and not exists (select from _memoir.work_items l where l.kind = p_kind and l.state = 'leased'
        and l.user_id = j.user_id and l.dedup_key = j.dedup_key)
      order by j.priority desc, j.run_after, j.work_id limit 1 for update skip locked;
      if not found then return null; end if;
    end if;
    if v_work.attempts < v_attempts then
      update _memoir.work_items set state = 'leased', attempts = attempts + 1, lease_id = gen_random_uuid(),
        leased_until = clock_timestamp() + make_interval(secs => p_seconds)
      where work_id = v_work.work_id returning * into v_work;
      return v_work;
    end if;
    update _memoir.work_items set state = 'dead', leased_until = null,
      last_error = coalesce(last_error, 'leases ran out') where work_id = v_work.work_id;
    perform _memoir.emit(v_work.user_id, 'job.failed', null, p_kind);
  end loop;
end $$;

-- Back to the queue. False: the same work was asked for anew meanwhile, and goes on for both.
create or replace function _memoir.requeue(p_work _memoir.work_items, p_attempts integer, p_after timestamptz)
returns boolean language plpgsql as $$
begin
  update _memoir.work_items set state = 'ready', leased_until = null, lease_id = null, attempts = p_attempts,
    run_after = p_after
  where work_id = p_work.work_id;
  return true;
exception when unique_violation then
  delete from _memoir.work_items where work_id = p_work.work_id;
  return false;
end $$;

-- Back to the queue, or to the dead letters: 'ready' or 'dead'.
create or replace function _memoir.give_back(p_work _memoir.work_items, p_error text, p_seconds numeric default null,
  p_final boolean default false)
returns text language plpgsql as $$
declare
  -- Exponential backoff with jitter: 4, 8, 16 ... seconds, half of it at random.
  v_after timestamptz := greatest(memoir.now(), clock_timestamp())
    + make_interval(secs => greatest(p_seconds::float8, power(2, least(p_work.attempts, 11) + 1)
      * (0.5 + random() / 2)));
begin
  if p_final
    or p_work.attempts >= (select (config ->> 'work_attempts_max')::integer from _memoir.settings_merged) then
    update _memoir.work_items set state = 'dead', leased_until = null, lease_id = null, last_error = left(p_error, 1000)
    where work_id = p_work.work_id;
    perform _memoir.emit(p_work.user_id, 'job.failed', null, p_work.kind);
    return 'dead';
  end if;
  perform _memoir.requeue(p_work, p_work.attempts, v_after);
  -- Work that was asked for anew goes on with what this one went through.
  update _memoir.work_items set attempts = greatest(attempts, p_work.attempts), last_error = left(p_error, 1000),
    run_after = greatest(run_after, v_after)
  where kind = p_work.kind and user_id = p_work.user_id and dedup_key = p_work.dedup_key and state = 'ready';
  return 'ready';
end $$;

create or replace function _memoir.leased(p_work bigint, p_lease uuid)
returns _memoir.work_items language sql as $$
  select j from _memoir.work_items j where j.work_id = p_work and j.lease_id = p_lease and j.state = 'leased' for update
$$;

create or replace function memoir.heartbeat(p_work bigint, p_lease uuid, p_seconds integer default 300)
returns boolean language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_worker(), _memoir.check_count('seconds', p_seconds, 86400);
  update _memoir.work_items set leased_until = clock_timestamp() + make_interval(secs => p_seconds)
  where work_id = p_work and lease_id = p_lease and state = 'leased';
  return found;
end $$;
comment on function memoir.heartbeat(bigint, uuid, integer) is
  'Keeps a lease for another p_seconds. False: it ran out and somebody else has the work; stop. Service, jobs and admin
logins only. Raises PM001, PM014.';

create or replace function memoir.release_work(p_work bigint, p_lease uuid)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items;
begin
  perform _memoir.authorise_worker();
  v_work := _memoir.leased(p_work, p_lease);
  if v_work.work_id is null then return false; end if;
  perform _memoir.requeue(v_work, v_work.attempts - 1, v_work.run_after);
  return true;
end $$;
comment on function memoir.release_work(bigint, uuid) is
  'Gives work back that was not begun: no attempt, no waiting. False: the lease had run out. Service, jobs and admin
logins only. Raises PM001.';

create or replace function memoir.fail_work(p_work bigint, p_lease uuid, p_error text)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items;
begin
  perform _memoir.authorise_worker();
  v_work := _memoir.leased(p_work, p_lease);
  if v_work.work_id is null then return false; end if;
  perform _memoir.give_back(v_work, p_error);
  return true;
end $$;
comment on function memoir.fail_work(bigint, uuid, text) is
  'Gives claimed work back after an error: retried with exponential backoff and jitter, a dead letter with the error
after work_attempts_max attempts. False: the lease had run out. Service, jobs and admin logins only. Raises PM001.';

create or replace function memoir.retry_work(p_work bigint)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items;
begin
  perform _memoir.authorise_admin();
  select * into v_work from _memoir.work_items where work_id = p_work and state = 'dead' for update;
  if not found then return false; end if;
  update _memoir.work_items set payload = payload - 'refused' where work_id = p_work;
  perform _memoir.requeue(v_work, 0, memoir.now());
  perform _memoir.audit('retry_work', jsonb_build_object('work', p_work, 'kind', v_work.kind), v_work.user_id);
  return true;
end $$;
comment on function memoir.retry_work(bigint) is
  'Gives a dead letter another set of attempts; false where there is none of that number. Admin only. Raises PM001.';

create or replace function _memoir.put_back(p_work _memoir.work_items, p_error text)
returns void language plpgsql as $$
declare
  v_work _memoir.work_items;
begin
  update _memoir.work_items set attempts = attempts + 1 where work_id = p_work.work_id returning * into v_work;
  perform _memoir.give_back(v_work, p_error);
end $$;

-- Where a step that goes through all users by id has got to; null at the beginning.
create or replace function _memoir.job_cursor(p_job text)
returns uuid language sql stable as $$ select after_user from _memoir.job_cursors where job = p_job $$;

-- Null: all users have been seen, the next run begins anew.
create or replace function _memoir.put_job_cursor(p_job text, p_after uuid)
returns void language sql as $$
  insert into _memoir.job_cursors (job, after_user) values (p_job, p_after)
  on conflict (job) do update set after_user = excluded.after_user where job_cursors.after_user is distinct
    from excluded.after_user
$$;

-- The next users of a job that goes through all, at most p_limit; the cursor moves behind them. Fewer are the last.
create or replace function _memoir.next_users(p_job text, p_limit integer)
returns uuid[] language plpgsql as $$
declare
  v_after uuid := _memoir.job_cursor(p_job); v_users uuid[];
begin
  v_users := array(select c.user_id from _memoir.user_counters c where v_after is null or c.user_id > v_after
    order by c.user_id limit p_limit);
  perform _memoir.put_job_cursor(p_job, case when cardinality(v_users) = p_limit then v_users[p_limit] end);
  return v_users;
end $$;

create or replace function _memoir.add_counts(p_sum jsonb, p_more jsonb)
returns jsonb language sql immutable as $$
  select p_sum || coalesce((select jsonb_object_agg(key, coalesce((p_sum ->> key)::numeric, 0) + value::numeric)
                            from jsonb_each(p_more) where jsonb_typeof(value) = 'number' and value <> '0'), '{}')
$$;
