-- Seen from outside: one view per question of whoever runs this, for memoir_admin (docs/guides/operations.md,
-- docs/guides/grafana.json). Numbers, ids and the applications' names of users and sessions; no text that anybody said.
-- A view reads as the owner, so one with rows of users asks who reads it, and shows others their users only.

-- Returns the routines that PUBLIC may execute. There are some only after a restore without privileges, until setup().
create or replace function _memoir.open_routines()
returns setof regprocedure language sql stable as $$
  select p.oid::regprocedure from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
  where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and a.grantee = 0
    and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid
    and d.deptype = 'e')
$$;

create or replace function _memoir.job_problems(p_now timestamptz)
returns table (severity text, problem text, remedy text) language plpgsql stable as $$
begin
  return query
  select case when l.overdue > interval '6 hours' or l.job in ('flush', 'embed', 'extract', 'expiry') then 'red'
    else 'yellow' end,
    format('job %s has not run for %s', l.job, case when l.last_started is null then 'as long as it is scheduled'
      else date_trunc('second', p_now - l.last_started)::text end),
    'is pg_cron running (cron.job_run_details), or the worker with --jobs?'
  from (select j.*, p_now - j.due as overdue from memoir.list_jobs() j where j.due is not null
    and coalesce(j.last_started, '-infinity') < j.due) l
  -- The time it came due last may be a moment ago: how long has it been due without starting?
  where coalesce(l.last_started, (select installed_at from _memoir.installation)) < p_now - interval '10 minutes'
    and coalesce(_memoir.cron_last(l.schedule, p_now - interval '10 minutes'), '-infinity') > coalesce(l.last_started,
      (select installed_at from _memoir.installation))
  union all
  select 'yellow', format('job %s %s: %s', j.job, r.outcome, coalesce(r.error, 'no reason recorded')),
    'select * from memoir.job_status'
  from memoir.list_jobs() j
  join lateral (select * from _memoir.job_runs r where r.job = j.job and r.finished_at is not null
    and r.outcome <> 'still running' order by r.run_id desc limit 1) r on true
  where r.outcome in ('failed', 'errors', 'lost', 'cost cap') and r.started_at > p_now - interval '2 days'
  union all
  select 'red', format('job %s has failed %s times in a row', f.job, f.times), 'select * from memoir.job_status'
  from (select r.job, count(*) as times, bool_and(r.outcome = 'failed') as all_failed
        from _memoir.job_list() l join lateral (select * from _memoir.job_runs x where x.job = l.job
          and x.finished_at is not null and x.outcome <> 'still running'
          order by x.run_id desc limit 3) r on true group by r.job) f
  where f.all_failed and f.times = 3;
end $$;

-- Returns what is not as it should be. red: data may be lost or memory stands still; yellow: look at it today.
create or replace function _memoir.stored_problems()
returns table (severity text, problem text, remedy text) language plpgsql stable security definer
  set search_path from current as $$
declare
  v_now timestamptz := clock_timestamp(); v_buffer bigint; v_socket text;
begin
  perform _memoir.authorise_admin();
  return query
  select 'red', format('%s of this month''s partitions lack', count(*)), 'call memoir.run_job(''partitions'')'
  from _memoir.partition_plan(0) having count(*) > 0
  union all
  select 'red', format('everybody may execute %s routines of ours, such as %s', count(*), min(r::text)),
    'call setup() as a superuser' from _memoir.open_routines() r having count(*) > 0
  union all
  select * from _memoir.job_problems(v_now)
  union all
  select case when max(v_now - j.run_after) > interval '6 hours' then 'red' else 'yellow' end,
    format('%s work items of kind %s wait, the oldest for %s', count(*), j.kind,
      date_trunc('second', max(v_now - j.run_after))), 'select * from memoir.queue_depth'
  from _memoir.work_items j
  where j.state = 'ready' and j.kind <> 'webhook' and j.run_after < v_now - interval '1 hour' group by j.kind
  union all
  select 'yellow', format('%s tables have more than 5 %% dead rows that no vacuum has cleared for an hour', count(*)),
    'is autovacuum on? Send what memoir.bare_statements() says' from memoir.bare_statements() b
  where b.statement like 'vacuum%' having count(*) > 0
  union all
  select 'yellow', format('%s dead letters of kind %s', count(*), j.kind),
    'select * from memoir.dead_letters; select memoir.retry_work(work_id)'
  from _memoir.work_items j where j.state = 'dead' group by j.kind
  union all
  select 'yellow', format('%s months wait to be detached, the first since %s', count(*),
    _memoir.day(min(a.recorded_at))), 'send what memoir.bare_statements() says, or set archive_detach to lock'
  from _memoir.archives a where a.state = 'detaching' and a.recorded_at < memoir.now() - interval '2 days'
  having count(*) > 0;
  if not pg_is_in_recovery() then
    select count(*) into v_buffer from (select from _memoir.compile_buffer limit 100001) b;
    if v_buffer > 100000 then
      return query select 'yellow', 'more than 100000 compiles wait to be flushed', 'call memoir.run_job(''flush'')';
    end if;
  end if;
  select config ->> 'embedder_socket' into v_socket from _memoir.settings_merged;
  if exists (select from _memoir.embedding_models where status = 'active' and provider = 'embedder') and v_socket <> ''
     and to_regprocedure('_memoir.py_embedder_stats(text,integer)') is not null then
    return query select 'yellow', 'the embedder does not answer: ' || (s.stats ->> 'problem'),
      'select memoir.ensure_embedder()'
    from (select _memoir.py_embedder_stats(v_socket, 300) as stats) s where s.stats ? 'problem';
  end if;
  return query select 'yellow', 'the clock is set by hand to ' || (config ->> 'clock'), 'select memoir.set_clock(null)'
  from _memoir.settings_merged where config ->> 'clock' is not null;
end $$;

-- The server around the database, as the caller may see it: lag per standby takes pg_read_all_stats (or superuser).
create or replace function _memoir.server_load_now()
returns table (connections bigint, connections_max integer, connections_share float8, standbys bigint,
  replay_lag_seconds float8, slot_lag_bytes bigint, is_standby boolean)
language plpgsql stable set search_path from current as $$
declare
  v_at pg_lsn;
begin
  is_standby := pg_is_in_recovery();
  v_at := case when is_standby then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end;
  connections := (select coalesce(sum(d.numbackends), 0) from pg_stat_database d);
  connections_max := current_setting('max_connections')::integer
    - current_setting('superuser_reserved_connections')::integer;
  connections_share := connections::float8 / greatest(1, connections_max);
  select count(*), max(extract(epoch from r.replay_lag)) into standbys, replay_lag_seconds from pg_stat_replication r;
  -- A standby that has replayed all it received is not behind, however quiet its primary is.
  if is_standby and pg_last_wal_receive_lsn() is distinct from pg_last_wal_replay_lsn() then
    replay_lag_seconds := extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp());
  end if;
  slot_lag_bytes := (select max(pg_wal_lsn_diff(v_at, s.restart_lsn))::bigint from pg_replication_slots s);
  return next;
end $$;

create or replace function _memoir.server_problems()
returns table (severity text, problem text, remedy text) language plpgsql stable set search_path from current as $$
declare
  v_load record;
begin
  select * into v_load from _memoir.server_load_now();
  return query
  select case when v_load.connections_share > 0.95 then 'red' else 'yellow' end,
    format('%s of %s connections are taken', v_load.connections, v_load.connections_max),
    'put PgBouncer in front (docs/guides/operations.md), lower max_size of the clients'' pools, or raise '
      'max_connections'
  where v_load.connections_share > 0.8
  union all
  select case when v_load.replay_lag_seconds > 300 then 'red' else 'yellow' end,
    format('a standby is %s seconds behind', round(v_load.replay_lag_seconds::numeric, 1)),
    'select * from pg_stat_replication; compiles there lack the newest turns (after_turn tells)'
  where v_load.replay_lag_seconds > 0.1
  union all
  select 'yellow', format('replication slot %s is not in use and holds %s of write-ahead log', s.slot_name,
    pg_size_pretty(pg_wal_lsn_diff(case when v_load.is_standby then pg_last_wal_replay_lsn()
      else pg_current_wal_lsn() end, s.restart_lsn))), 'start its standby, or pg_drop_replication_slot'
  from pg_replication_slots s where not s.active and v_load.slot_lag_bytes > 1073741824;
end $$;

create or replace function memoir.health_problems()
returns table (severity text, problem text, remedy text) language sql stable set search_path from current as $$
  select * from _memoir.stored_problems() union all select * from _memoir.server_problems()
$$;
comment on function memoir.health_problems() is
  'Problems, each with its severity (red, yellow) and what to do about it: jobs, queue, embedder, and as
far as the caller may see it connections and replication. Admin only. Raises PM001.';

create view memoir.health as
select coalesce(case when bool_or(severity = 'red') then 'red' when bool_or(severity = 'yellow') then 'yellow' end,
  'green') as status, coalesce(string_agg(problem, '; ' order by severity, problem), 'all is well') as why,
  count(*) filter (where severity is not null) as problems
from memoir.health_problems();
comment on view memoir.health is 'Is all well? One row: green, yellow or red, and why. Details: health_problems().';

create view memoir.server_load as select * from _memoir.server_load_now();
comment on view memoir.server_load is
  'Connections of the server, of how many; standbys, how far they are behind (with pg_read_all_stats), and the bytes of
write-ahead log that the slowest replication slot holds.';

create view memoir.queue_depth as
select kind, count(*) filter (where state = 'ready' and run_after <= clock_timestamp()) as ready,
  count(*) filter (where state = 'ready' and run_after > clock_timestamp()) as later,
  count(*) filter (where state = 'leased') as leased,
    count(*) filter (where state = 'leased' and leased_until < clock_timestamp()) as leases_over,
  count(*) filter (where state = 'dead') as dead, max(attempts) filter (where state <> 'dead') as most_attempts,
  coalesce(extract(epoch from max(clock_timestamp() - run_after) filter (where state = 'ready'
    and run_after <= clock_timestamp())), 0)::float8 as oldest_seconds
from _memoir.work_items group by kind;
comment on view memoir.queue_depth is 'Work that waits in the queue, per kind, with the age of the oldest.';

create view memoir.dead_letters as
select work_id, kind, user_id, dedup_key, attempts, last_error, created_at from _memoir.work_items where state = 'dead'
  and ((select _memoir.sees_all()) or user_id in (select _memoir.visible_users())
  and (select _memoir.bound_projects()) is null);
comment on view memoir.dead_letters is 'Work that was given up, with its error. retry_work(work_id) tries again.';

create view memoir.job_status as
select l.job, l.schedule, l.due, l.last_started, l.last_outcome, r.runs, r.failures, r.average_seconds,
  r.longest_seconds, r.counts, e.error as last_error, e.started_at as last_error_at
from memoir.list_jobs() l
left join lateral (
  select count(*) as runs, count(*) filter (where outcome in ('failed', 'errors', 'lost')) as failures,
    avg(extract(epoch from finished_at - started_at))::float8 as average_seconds,
      max(extract(epoch from finished_at - started_at))::float8 as longest_seconds,
    (select jsonb_object_agg(key, total) from (
       select c.key, sum(c.value::numeric) as total from _memoir.job_runs x, jsonb_each_text(x.counts) c
       where x.job = l.job and x.started_at > clock_timestamp() - interval '24 hours' group by c.key) s) as counts
  from _memoir.job_runs x where x.job = l.job and x.started_at > clock_timestamp() - interval '24 hours'
    and x.outcome is distinct from 'still running') r on true
left join lateral (select error, started_at from _memoir.job_runs x where x.job = l.job and x.error is not null
order by run_id desc limit 1) e on true;
comment on view memoir.job_status
  is 'How the jobs do: schedule, last run, and runs, failures, seconds and counts of the last 24 hours.';

create view memoir.tiers as
select m.tier, m.state::text as state, count(*) as memories, count(*) filter (where m.scope = 'global') as global,
  count(*) filter (where m.validated_at is not null) as validated,
  count(*) filter (where m.state_at > clock_timestamp() - interval '24 hours') as changed_today,
  count(*) filter (where m.recorded_at > clock_timestamp() - interval '24 hours') as new_today
from _memoir.memory_store m group by m.tier, m.state;
comment on view memoir.tiers
  is 'Memories by tier (0 working to 4 procedural) and state, and what came and changed in 24 hours.';

create view memoir.tier_flow as
select date_trunc('day', r.started_at) as day, r.job, c.key as what, sum(c.value::numeric) as count
from _memoir.job_runs r, jsonb_each_text(r.counts) c where r.job in ('promotion', 'demotion', 'expiry', 'extract',
  'consolidation')
group by 1, 2, 3;
comment on view memoir.tier_flow
  is 'Counts of promotion, demotion, expiry and extraction, per day, as far as job_runs goes back.';

create view memoir.compaction_ratios as
select date_trunc('day', recorded_at) as day, level, made_by, count(*) as rows,
  sum((metadata ->> 'tokens')::bigint) as tokens, sum((metadata ->> 'summary_tokens')::bigint) as summary_tokens,
  sum((metadata ->> 'tokens')::bigint)::float8 / nullif(sum((metadata ->> 'summary_tokens')::bigint), 0) as ratio
from _memoir.compactions where undone_at is null and level > 0 group by 1, 2, 3;
comment on view memoir.compaction_ratios is
  'How much shorter summaries are than what they stand for, per day, level and maker. The target is 5.';

-- The value packed (worth as worth has it), as a share of the fractional optimum over what might have been packed in
-- the same tokens.
create view memoir.context_utilisation as
select date_trunc('hour', recorded_at) as hour, count(*) as compiles, avg(eta) as eta, percentile_cont(0.05) within
group (order by eta) as eta_p05, avg(tokens::float8 / nullif(budget, 0)) as fill, avg(recall_tokens) as recall_tokens
from (select l.recorded_at, l.tokens, l.budget, l.recall_tokens, p.packed / nullif(o.optimum, 0) as eta
  from _memoir.compile_ledger l
  cross join lateral (select sum(1 / (1 + power(1 / greatest(0.0001, least(0.9999, x.score::float8)) - 1, 4)))
      filter (where x.position is not null) as packed,
      sum(x.tokens) filter (where x.position is not null)::float8 as room
    from unnest(l.scores, l.item_tokens, l.positions) x(score, tokens, position)) p
  cross join lateral (
    select sum(s.worth * least(1, greatest(0, (p.room - (s.running - s.tokens)) / s.tokens)))::float8 as optimum
    from (select w.worth, x.tokens::float8 as tokens, sum(x.tokens) over (order by w.worth / x.tokens desc,
      n rows unbounded preceding)::float8 as running
          from unnest(l.scores, l.item_tokens, l.positions, l.reasons) with ordinality x(score, tokens, position,
            reason, n)
          cross join lateral (select 1 / (1 + power(1 / greatest(0.0001, least(0.9999, x.score::float8)) - 1, 4))
            as worth) w
          where x.tokens > 0 and x.score > 0
            and (x.position is not null or x.reason in ('no room', 'longer than the block'))) s) o
  where l.recorded_at > now() - interval '48 hours') c
where eta is not null group by 1;
comment on view memoir.context_utilisation
  is 'Per hour of the last two days: η, the value packed as a share of the optimum in the same tokens, and how full '
    'lists were.';

create view memoir.costs_by_user as
select u.namespace, u.external_id as user_name, u.user_id, s.sessions, s.turns, s.prompt_tokens, s.completion_tokens,
  c.cost_microcents, c.helper_tokens, c.helper_microcents,
  c.helper_microcents::float8 / nullif(c.cost_microcents, 0) as helper_share
from _memoir.users u join _memoir.user_counters c on c.user_id = u.user_id
left join lateral (select count(*) as sessions, sum(turn_count) as turns, sum(prompt_tokens) as prompt_tokens,
  sum(completion_tokens) as completion_tokens from _memoir.session_counters s where s.user_id = u.user_id) s on true
where ((select _memoir.sees_all()) or u.user_id in (select _memoir.visible_users())
  and (select _memoir.bound_projects()) is null);
comment on view memoir.costs_by_user
  is 'Tokens and costs per user (microcents); helper: what judging, extraction and summaries took of it.';

create or replace function memoir.list_namespaces()
returns table (namespace text, users bigint, sessions bigint, turns bigint, memories bigint, tokens bigint,
  cost_microcents bigint, last_turn_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  return query
  select u.namespace, count(*), coalesce(sum(s.sessions), 0)::bigint, coalesce(sum(s.turns), 0)::bigint,
    coalesce(sum(c.memories), 0)::bigint, coalesce(sum(s.tokens), 0)::bigint,
    coalesce(sum(c.cost_microcents), 0)::bigint, max(s.last_at)
  from _memoir.users u join _memoir.user_counters c on c.user_id = u.user_id
  left join (select x.user_id, count(*) as sessions, sum(x.turn_count) as turns, sum(x.tokens) as tokens,
    max(x.last_recorded_at) as last_at from _memoir.session_counters x group by x.user_id) s on s.user_id = u.user_id
  group by u.namespace order by u.namespace;
end $$;
comment on function memoir.list_namespaces() is
  'Contents of each namespace: users, sessions, turns, memories, tokens, costs, and when the last turn came. Reads the
counters of all users. Admin only. Raises PM001.';

create view memoir.costs_by_session as
select u.namespace, u.external_id as user_name, s.external_id as session_name, s.user_id, s.session_id, s.model,
  s.project, s.status, s.created_at, c.turn_count, c.prompt_tokens,
  c.completion_tokens, c.cost_microcents, c.helper_tokens, c.helper_microcents,
    c.cost_microcents::float8 / nullif(c.turn_count, 0) as cost_per_turn
from _memoir.sessions s join _memoir.session_counters c on c.user_id = s.user_id and c.session_id = s.session_id
join _memoir.users u on u.user_id = s.user_id
where ((select _memoir.sees_all()) or s.user_id in (select _memoir.visible_users())
  and (select _memoir.bound_projects()) is null);
comment on view memoir.costs_by_session is 'Costs per session, and per turn.';

create view memoir.model_calls as
select u.namespace, u.external_id as user_name, s.external_id as session_name, h.day, count(*) as calls,
  sum(h.prompt_tokens) as prompt_tokens, sum(h.completion_tokens) as completion_tokens,
  sum(h.cost_microcents) as cost_microcents,
  percentile_cont(0.5) within group (order by h.latency_ms) as latency_ms_p50,
  percentile_cont(0.95) within group (order by h.latency_ms) as latency_ms_p95,
  percentile_cont(0.99) within group (order by h.latency_ms) as latency_ms_p99
from (select *, date_trunc('day', recorded_at) as day from _memoir.conversation_history
  where recorded_at > now() - interval '31 days' and role = 'assistant'
    and coalesce(latency_ms, prompt_tokens, completion_tokens) is not null) h
join _memoir.users u on u.user_id = h.user_id
join _memoir.sessions s on s.user_id = h.user_id and s.session_id = h.session_id
where ((select _memoir.sees_all()) or h.user_id in (select _memoir.visible_users())
  and (select _memoir.bound_projects()) is null)
group by grouping sets ((1, 2), (1, 2, 3), (1, 2, 4), (1, 2, 3, 4));
comment on view memoir.model_calls is
  'Calls to models of the last 31 days, with tokens, cost in microcents and percentiles of latency, per user, session
and day; session_name null: of all sessions, day null: of all days.';

create view memoir.session_pressure as
select u.namespace, u.external_id as user_name, s.external_id as session_name, s.user_id, s.session_id,
  s.context_window, c.turn_count, c.tokens,
  c.tokens - p.compacted as active_tokens, p.compacted as compacted_tokens, w.pressure,
  case when w.pressure >= 0.95 then 'over 95 %' when w.pressure >= 0.85 then 'over 85 %'
    when w.pressure >= 0.70 then 'over 70 %' when w.pressure >= 0.50 then 'over 50 %' else 'low' end as zone,
  c.last_recorded_at
from _memoir.sessions s join _memoir.session_counters c on c.user_id = s.user_id and c.session_id = s.session_id
join _memoir.users u on u.user_id = s.user_id
cross join lateral (select coalesce(sum(k.tokens), 0)::bigint as compacted from (
    select distinct on (from_turn, to_turn) (metadata ->> 'tokens')::bigint as tokens from _memoir.compactions k
    where k.user_id = s.user_id and k.session_id = s.session_id and k.level = 1 and k.undone_at is null) k) p
cross join lateral (select (c.tokens - p.compacted)::float8 / s.context_window as pressure) w
where s.status = 'active' and ((select _memoir.sees_all()) or s.user_id in (select _memoir.visible_users())
  and (select _memoir.bound_projects()) is null);
comment on view memoir.session_pressure is
  'How full the windows of open sessions are with turns that no summary stands for yet.';

create view memoir.partition_status as
select t.table_name, t.by_month, count(*) as leaves, min(m.month) as oldest_month, max(m.month) as newest_month,
  sum(pg_total_relation_size(c.oid))::bigint as bytes,
  sum(s.n_live_tup)::bigint as live_rows, sum(s.n_dead_tup)::bigint as dead_rows,
    sum(s.n_dead_tup)::float8 / nullif(sum(s.n_live_tup), 0) as dead_ratio,
  sum(s.n_tup_hot_upd)::float8 / nullif(sum(s.n_tup_upd), 0) as hot_share
from _memoir.partitioned_tables t
join pg_inherits p on p.inhparent = to_regclass('_memoir.' || t.table_name)
left join pg_inherits l on l.inhparent = p.inhrelid
join pg_class c on c.oid = coalesce(l.inhrelid, p.inhrelid) and c.relkind = 'r'
left join pg_stat_all_tables s on s.relid = c.oid
cross join lateral (select to_date(substring(c.relname from '_y(\d{4}m\d\d)$'), 'YYYY"m"MM') as month) m
group by t.table_name, t.by_month;
comment on view memoir.partition_status is
  'Per partitioned table: leaves, months, size, dead rows, share of updates that were HOT.';

create view memoir.embedding_coverage as
select m.name as model, m.status, m.provider, m.dimension, count(u.user_id) as users,
  coalesce(sum(u.next_item - 1), 0)::bigint as items,
  coalesce(sum(least(coalesce(c.through_item, 0), u.next_item - 1)), 0)::bigint as reached,
  coalesce(sum(least(coalesce(c.through_item, 0), u.next_item - 1))::float8 / nullif(sum(u.next_item - 1), 0), 1)
    as coverage,
  p.users_waiting, p.dead_letters
from _memoir.embedding_models m join memoir.embedding_progress() p on p.model = m.name
left join _memoir.user_counters u on true
left join _memoir.embedding_cursors c on c.user_id = u.user_id and c.model_id = m.model_id
where m.status <> 'retired'
group by m.model_id, m.name, m.status, m.provider, m.dimension, p.users_waiting, p.dead_letters;
comment on view memoir.embedding_coverage is 'Per embedding model: how many items it has gone through, of how many.';

create view memoir.hygiene as
select (c.state ->> 'at')::timestamptz as counted_at, l.memories, l.active, l.duplicates::float8 / nullif(l.memories, 0)
  as duplicate_rate, l.stale::float8 / nullif(l.active, 0) as stale_rate,
  l."never recalled"::float8 / nullif(l.active, 0) as never_recalled_rate,
    l.orphans::float8 / nullif(l.active, 0) as orphan_rate
from _memoir.job_cursors c
cross join lateral jsonb_to_record(c.state -> 'last') l (memories bigint, active bigint, duplicates bigint,
  stale bigint, "never recalled" bigint, orphans bigint)
where c.job = 'hygiene' and c.state ? 'last';
comment on view memoir.hygiene
  is 'Shares of duplicate, stale, never recalled and orphaned memories, as job hygiene last counted them.';

-- Reads as the caller, who may see others' statements with pg_read_all_stats only. Empty without pg_stat_statements.
create or replace function _memoir.statement_times()
returns table (query text, calls bigint, mean_ms float8, max_ms float8, total_seconds float8, wal_bytes numeric)
  language plpgsql stable set search_path from current as $$
declare
  v_schema text;
begin
  select quote_ident(n.nspname) into v_schema from pg_catalog.pg_extension e join pg_catalog.pg_namespace n
    on n.oid = e.extnamespace where e.extname = 'pg_stat_statements';
  if v_schema is null then return; end if;
  return query execute
    format('select query, calls, mean_exec_time, max_exec_time, total_exec_time / 1000, wal_bytes
    from %s.pg_stat_statements s
    where dbid = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
      and query like ''%%memoir%%''', v_schema);
exception when object_not_in_prerequisite_state then  -- installed, but not in shared_preload_libraries
  return;
end $$;

create view memoir.slow_functions as
select (regexp_match(query, 'memoir\.([a-z_]+)'))[1] as function, sum(calls)::bigint as calls,
  sum(total_seconds) as total_seconds, sum(total_seconds) * 1000 / nullif(sum(calls), 0) as mean_ms,
  max(max_ms) as max_ms, sum(wal_bytes) / nullif(sum(calls), 0) as wal_bytes_per_call
from _memoir.statement_times() where query ~ 'memoir\.[a-z_]+' group by 1;
comment on view memoir.slow_functions is 'Calls and times per function, from pg_stat_statements where it is there.';
