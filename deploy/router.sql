-- The router of several servers: pg_memoir is installed here as everywhere, and every function that takes a user is
-- replaced by one of PL/Proxy that sends the call to the server on which the user's part lies. Run again after upgrades.
-- Given: shards, the servers' connection strings in their order (a power of two of them).

create extension if not exists plproxy;

create schema if not exists routing;
create table if not exists routing.parts (part integer primary key, shard integer not null);
create table if not exists routing.functions (signature text primary key);

-- Which server has a user. The row stays locked until the call is over, so that a part can't move under it; authorise
-- knows the caller by his login, here as there.
create or replace function routing.shard_of(p_user text)
returns integer language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_shard integer; v_part integer := _memoir.part_of((_memoir.authorise(p_user, 'read')).user_id);
begin
  select p.shard into v_shard from routing.parts p where p.part = v_part for share;
  if v_shard is null then raise exception 'part % is on no server', v_part; end if;
  return v_shard;
end $$;

-- Of each such function the same name, arguments, defaults, result and rights, sent on; those whose user is optional
-- concern all servers and are left to `everywhere`.
create or replace function routing.define()
returns integer language plpgsql as $$
declare
  v record; v_count integer := 0;
begin
  for v in
    select p.oid::regprocedure::text as signature, format('%I.%I', n.nspname, p.proname) as name,
      pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace join pg_language l on l.oid = p.prolang
    where n.nspname = 'memoir' and p.prokind = 'f' and p.proargnames[1] = 'p_user' and p.pronargs > p.pronargdefaults
      and p.proname <> 'part_of' and l.lanname <> 'plproxy'
  loop
    execute format('create or replace function %s(%s) returns %s language plproxy volatile security invoker as %L',
      v.name, v.arguments, v.result, 'cluster ''shards''; run on routing.shard_of(p_user);');
    execute format('alter function %s reset all', v.signature);
    insert into routing.functions values (v.signature) on conflict do nothing;
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- The jobs and the size of every server, in one place.
create or replace function routing.jobs()
returns table (server text, job text, last_outcome text, last_started timestamptz) language plproxy as $$
  cluster 'shards'; run on all;
  select current_setting('cluster_name') as server, job, last_outcome, last_started from memoir.list_jobs();
$$;

create or replace function routing.sizes()
returns table (server text, users bigint, turns bigint, bytes bigint) language plproxy as $$
  cluster 'shards'; run on all;
  select current_setting('cluster_name') as server, (select count(*) from _memoir.users) as users,
    (select coalesce(sum(turn_count), 0)::bigint from _memoir.session_counters) as turns, pg_database_size(current_database()) as bytes;
$$;

create or replace function routing.health_problems()
returns table (server text, severity text, problem text, remedy text) language plproxy as $$
  cluster 'shards'; run on all;
  select current_setting('cluster_name') as server, severity, problem, remedy from memoir.health_problems();
$$;

-- The operators' views, of every server: routing.health has what memoir.health has, with the server's name before it.
create or replace function routing.define_views()
returns integer language plpgsql as $body$
declare
  v record; v_count integer := 0;
begin
  for v in
    select c.relname as name, string_agg(quote_ident(a.attname), ', ' order by a.attnum) as columns,
      string_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum) as typed
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relnamespace = 'memoir'::regnamespace and c.relkind = 'v' group by 1
  loop
    execute format('drop view if exists routing.%I', v.name);
    execute format('drop function if exists routing.%I()', 'all_' || v.name);
    execute format('create function routing.%I() returns table (server text, %s) language plproxy as %L', 'all_' || v.name,
      v.typed, format('cluster ''shards''; run on all; select current_setting(''cluster_name'') as server, %s from memoir.%I;',
        v.columns, v.name));
    execute format('create view routing.%I as select * from routing.%I()', v.name, 'all_' || v.name);
    v_count := v_count + 1;
  end loop;
  return v_count;
end $body$;

select routing.define();
select routing.define_views();
