-- Leaves of the partitioned tables: hashed by user, monthly ones below that by recorded_at.
-- Leaves are built apart and attached, since CREATE ... PARTITION OF waits behind every open reader of the parent.

create or replace function _memoir.part_of(p_user_id uuid)
returns integer language plpgsql stable strict set plan_cache_mode = force_generic_plan as $$
begin
  -- PostgreSQL's own remainder: uuid hash with the partitioning seed, combined with an empty hash. With a power of two
  -- only the low bits count, so no unsigned arithmetic is needed.
  return (select ((((uuid_hash_extended(p_user_id, 8816678312871386365) & (modulus - 1))
      + (5305509591434766563 & (modulus - 1))) & (modulus - 1)))::integer
    from _memoir.installation);
end $$;

create or replace function _memoir.month_of(p_at timestamptz)
returns date language sql immutable as $$ select date_trunc('month', p_at at time zone 'UTC')::date $$;

create or replace function _memoir.leaf_name(p_table name, p_part integer, p_month date default null)
returns text language sql stable as $$
  select p_table || '_p' || p_part || coalesce(to_char(p_month, '"_y"YYYY"m"MM'), '')
$$;

-- Makes one leaf. Idempotent; takes no lock that stops readers or writers of the parent.
create or replace function _memoir.make_leaf(p_table name, p_part integer, p_month date default null)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_info _memoir.partitioned_tables; v_is_leaf boolean; v_trigger record;
  v_modulus integer := (select modulus from _memoir.installation);
  v_leaf text := _memoir.leaf_name(p_table, p_part, p_month);
  v_parent text := case when p_month is null then p_table::text else _memoir.leaf_name(p_table, p_part) end;
  v_from timestamptz := p_month::timestamp at time zone 'UTC';
  v_to timestamptz := (p_month + interval '1 month')::timestamp at time zone 'UTC'; v_bounds text;
begin
  if to_regclass('_memoir.' || quote_ident(v_leaf)) is not null then return false; end if;
  -- The lock that attaching needs anyway. Having waited for it, we also see what whoever had it has made.
  perform _memoir.run_ddl(format('lock table only _memoir.%I in share update exclusive mode', v_parent));
  if to_regclass('_memoir.' || quote_ident(v_leaf)) is not null then return false; end if;
  select * into strict v_info from _memoir.partitioned_tables where table_name = p_table;
  v_is_leaf := p_month is not null or not v_info.by_month;

  perform _memoir.run_ddl(format('create %s table _memoir.%I (like _memoir.%I including defaults '
    'including constraints including generated including storage including compression) %s %s',
    case when v_is_leaf and v_info.unlogged then 'unlogged' else '' end, v_leaf, p_table,
    case when v_is_leaf then '' else 'partition by range (recorded_at)' end,
    case when v_is_leaf and v_info.options <> '' then format('with (%s)', v_info.options) else '' end));
  perform _memoir.secure_rows(format('_memoir.%I', v_leaf)::regclass),
    _memoir.without_statistics(format('_memoir.%I', v_leaf)::regclass);
  if p_month is null then
    v_bounds := format('with (modulus %s, remainder %s)', v_modulus, p_part);
  else
    v_bounds := format('from (%L) to (%L)', v_from, v_to);
    perform _memoir.run_ddl(format('alter table _memoir.%I add constraint month_bounds '
      'check (recorded_at >= %L and recorded_at < %L)', v_leaf, v_from, v_to));
  end if;
  perform _memoir.run_ddl(format('alter table _memoir.%I attach partition _memoir.%I for values %s', v_parent, v_leaf,
    v_bounds));
  if p_month is not null then
    perform _memoir.run_ddl(format('alter table _memoir.%I drop constraint month_bounds', v_leaf));
  end if;
  -- Attaching clones row triggers; one that watches TRUNCATE is a statement's and is not cloned.
  if v_is_leaf then
    for v_trigger in select t.tgname, t.tgfoid::regproc as guard from pg_trigger t
      where t.tgrelid = to_regclass('_memoir.' || quote_ident(p_table)) and not t.tgisinternal and t.tgtype & 32 <> 0
    loop
      perform _memoir.run_ddl(format('create trigger %I before truncate on _memoir.%I for each statement '
        'execute function %s()', v_trigger.tgname, v_leaf, v_trigger.guard));
    end loop;
  end if;
  return true;
end $$;

create or replace function _memoir.make_part(p_part integer, p_month date)
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_table _memoir.partitioned_tables; v_made integer := 0;
begin
  for v_table in select * from _memoir.partitioned_tables order by table_name loop
    v_made := v_made + _memoir.make_leaf(v_table.table_name, p_part)::integer;
    if v_table.by_month then
      v_made := v_made + _memoir.make_leaf(v_table.table_name, p_part, p_month)::integer;
    end if;
  end loop;
  return v_made;
end $$;

-- Called by every write, which must not fail for a month that nobody prepared or a table that an upgrade just added.
create or replace function _memoir.ensure_month(p_user_id uuid, p_at timestamptz)
returns void language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  v_part integer := _memoir.part_of(p_user_id); v_month date := _memoir.month_of(p_at);
  v_plain text := _memoir.leaf_name('', v_part); v_monthly text := _memoir.leaf_name('', v_part, v_month);
begin
  if exists (select from _memoir.partitioned_tables t
             where to_regclass('_memoir.' || t.table_name || case when t.by_month then v_monthly else v_plain end)
               is null) then
    perform _memoir.make_part(v_part, v_month);
  end if;
end $$;

-- Returns the months of hash parts that lack a partition, this month's first, with the progress in every 16th row.
create or replace function _memoir.partition_plan(p_months_ahead integer)
returns table (part integer, month date, progress text)
language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_jobs(), _memoir.check_range('months_ahead', p_months_ahead, 0, 120);
  return query
  select p, x.month, case when row_number() over w % 16 = 0 then row_number() over w || ' of ' || count(*) over () end
  from _memoir.installation i,
    generate_series(0, coalesce(p_months_ahead, (select (config ->> 'partition_months_ahead')::integer
      from _memoir.settings_merged))) m,
    generate_series(0, i.modulus - 1) p,
    lateral (select (_memoir.month_of(memoir.now()) + make_interval(months => m))::date as month) x
  where exists (select from _memoir.partitioned_tables t
    where to_regclass('_memoir.' || _memoir.leaf_name(t.table_name, p, case when t.by_month then x.month end)) is null)
  window w as (order by m, p) order by m, p;
end $$;

-- False where a lock could not be had soon: whoever has it must not be made to wait behind us either.
create or replace function _memoir.try_part(p_part integer, p_month date)
returns boolean language plpgsql security definer set search_path from current set lock_timeout = '2s' as $$
begin
  perform _memoir.authorise_jobs(), _memoir.make_part(p_part, p_month);
  return true;
exception when lock_not_available then
  return false;
end $$;

-- The first few that lack. A part whose tables somebody has locked is left for later and delays no other.
create or replace function _memoir.step_partitions(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_step record; v_made integer := 0; v_locked integer := 0;
begin
  for v_step in select part, month from _memoir.partition_plan(null) loop
    if _memoir.try_part(v_step.part, v_step.month) then v_made := v_made + 1; else v_locked := v_locked + 1; end if;
    exit when v_made + v_locked >= p_limit;
  end loop;
  return jsonb_build_object('more', v_made + v_locked > 0, 'months', v_made, 'failed', v_locked,
    'error', case when v_locked > 0 then 'their parents are locked; pg_locks says by whom' end);
end $$;

-- Runs under its caller's search_path, since what commits can't pin one: hence no operator and no unqualified name.
create or replace procedure memoir.ensure_partitions(p_months_ahead integer default null)
language plpgsql as $$
declare
  v_step record; v_done boolean;
begin
  for v_step in select * from _memoir.partition_plan(p_months_ahead) loop
    if v_step.progress is not null then raise notice 'partitions: %', v_step.progress; end if;
    for v_try in 1 .. 10 loop
      v_done := _memoir.try_part(v_step.part, v_step.month);
      commit;
      exit when v_done;
      perform pg_catalog.pg_sleep(0.5);
    end loop;
    if not v_done then
      raise lock_not_available using message
        = pg_catalog.format('the partitions of part %s, month %s could not be made: no lock in 10 tries', v_step.part,
        v_step.month),
        hint = 'see pg_locks for who has locked their parents, then call it again';
    end if;
  end loop;
end $$;
comment on procedure memoir.ensure_partitions(integer) is
  'Makes the missing partitions: every hash part, this month and the next ones (setting partition_months_ahead). Commits
per part and month, never waits long for a lock, can be repeated. Call outside a transaction. Raises PM014, 55P03.';

create or replace function _memoir.has_column(p_table name, p_column name)
returns boolean language sql stable as $$
  select exists (select from pg_attribute where attrelid = to_regclass('_memoir.' || quote_ident(p_table))
    and attname = p_column and attnum > 0 and not attisdropped)
$$;

-- Columns like these have no statistics: no plan needs them, and pg_statistic must not hold what people said.
create or replace function _memoir.without_statistics(p_table regclass)
returns void language plpgsql as $$
declare
  v_columns text := (select string_agg(format('alter column %I set statistics 0', a.attname), ', ')
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = p_table and a.attnum > 0 and not a.attisdropped and coalesce(a.attstattarget, -1) <> 0
      and (t.typcategory = 'A' or t.typname in ('text', 'jsonb', 'bytea', 'tsvector', 'halfvec')));
begin
  if v_columns is not null then perform _memoir.run_ddl(format('alter table only %s %s', p_table, v_columns)); end if;
end $$;
