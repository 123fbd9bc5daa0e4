-- Gives everything to memoir_owner. A restore that found no roles left it with whoever restored.
create or replace function _memoir.take_ownership()
returns void language plpgsql set search_path from current as $$
declare
  v_statement text;
begin
  if not pg_has_role(current_user, 'memoir_owner', case when current_setting('server_version_num')::int >= 160000
    then 'set' else 'member' end) then
    execute format('grant memoir_owner to %I', current_user);
  end if;
  alter schema memoir owner to memoir_owner;
  alter schema _memoir owner to memoir_owner;
  for v_statement in
    select format('alter schema %I owner to memoir_owner', nspname) from pg_namespace
    where nspname in ('memoir_extensions', 'memoir_case')
    union all
    select format('alter table %s owner to memoir_owner', c.oid::regclass) from pg_class c
    where c.relnamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and c.relkind in ('r', 'p', 'v')
    union all
    select format('alter type %s owner to memoir_owner', t.oid::regtype) from pg_type t left join pg_class c
      on c.oid = t.typrelid
    where t.typnamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and t.typtype in ('c', 'e')
      and coalesce(c.relkind, 'c') = 'c'
    union all
    -- PL/Python's stay with the superuser who restored: nobody else may own one.
    select format('alter routine %s owner to memoir_owner', p.oid::regprocedure)
    from pg_proc p join pg_language l on l.oid = p.prolang
    where p.pronamespace in (select oid from pg_namespace where nspname in ('memoir', '_memoir', 'memoir_case'))
      and l.lanname <> 'plpython3u'
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid
      and d.deptype = 'e')
  loop
    execute v_statement;
  end loop;
  perform _memoir.secure_rows(c.oid) from pg_class c where c.relnamespace = '_memoir'::regnamespace
    and c.relkind in ('r', 'p');
end $$;

create or replace procedure memoir.setup()
language plpgsql set search_path from current as $$
declare
  v_role text; v_path text; v_statement text;
begin
  foreach v_role in array array['memoir_owner', 'memoir_reader', 'memoir_app', 'memoir_tenant', 'memoir_admin',
    'memoir_jobs'] loop
    if not exists (select from pg_roles where rolname = v_role) then
      execute format('create role %I %s', v_role, case when v_role = 'memoir_jobs' then 'login' else 'nologin' end);
    end if;
  end loop;

  if exists (select from pg_namespace where nspname = 'memoir' and nspowner <> 'memoir_owner'::regrole) then
    perform _memoir.take_ownership();
  end if;

  -- A dump may hold no privileges (--no-acl): then PUBLIC may execute every routine, and nobody may use the schemas.
  for v_statement in
    select distinct format('grant usage on schema %I to memoir_owner', n.nspname)
    from pg_extension e join pg_namespace n on n.oid = e.extnamespace
    where e.extname in ('vector', 'pg_trgm', 'pgcrypto') and not has_schema_privilege('memoir_owner', n.oid, 'usage')
  loop
    execute v_statement;
  end loop;
  perform _memoir.grant_all();
  begin
    grant set on parameter pg_stat_statements.track_utility to memoir_owner;  -- see run_ddl
  exception when insufficient_privilege then
    null;
  end;
  if exists (select from _memoir.open_routines()) then
    raise warning 'PUBLIC may execute routines that only a superuser may change, such as %',
      (select r from _memoir.open_routines() r limit 1) using hint = 'call memoir.setup() as a superuser';
  end if;

  select substr(c, 13) into v_path from pg_db_role_setting, unnest(setconfig) c
  where setrole = 0 and setdatabase = (select oid from pg_database where datname = current_database())
    and c like 'search\_path=%';
  -- Cursors of webhooks mean nothing on another server, and numbers of its transactions may be greater than ours.
  update _memoir.outbox set xact_id = pg_current_xact_id() where xact_id >= pg_snapshot_xmax(pg_current_snapshot());
  update _memoir.work_items set payload = payload - 'cursor' where kind = 'webhook'
    and not starts_with(payload ->> 'cursor', (select system_identifier::text || '/' from pg_control_system()));

  if coalesce(v_path, '') !~ '\mmemoir\M' then
    execute format('alter database %I set search_path = %s', current_database(),
      coalesce(v_path || ', memoir', '"$user", public, memoir'));
  end if;

  -- A job's run is one statement, which no timeout meant for queries may end; its batches bound themselves.
  begin
    execute format('alter role memoir_jobs in database %I set statement_timeout = 0', current_database());
    execute format('alter role memoir_jobs in database %I set idle_in_transaction_session_timeout = ''60s''',
      current_database());
  exception when insufficient_privilege then
    raise notice 'timeouts of memoir_jobs were not set: needs a superuser, or a role that may alter it';
  end;
end $$;
comment on procedure memoir.setup() is
  'Reapplies what a dump may not carry: the roles and what they own, every privilege, the database''s search_path and
the timeouts of memoir_jobs. Call it after a restore, as the user who restored; then call ensure_partitions(). Warns if
PUBLIC may still execute a routine, which takes a superuser to revoke.';

create or replace function memoir.version()
returns text language sql immutable
return :'memoir_version';
comment on function memoir.version() is 'The version of the installed pg_memoir.';

-- Stated here for all, so that none is forgotten. A door plans for the values it is called with, and so does what it
-- calls: a generic plan locks every partition of the tables it names, for the rest of a connection's life. And what a
-- backslash means in the text of a function must not be the caller's choice: with the old meaning the patterns behind
-- tombstones and checks would be others.
do $$
declare
  v_routine record;
begin
  for v_routine in
    select p.oid::regprocedure as signature, p.pronargs > 0 and p.provolatile <> 'i'
      and not exists (select from unnest(p.proconfig) c where starts_with(c, 'plan_cache_mode=')) as plans
    from pg_proc p where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and p.prosecdef
  loop
    execute format('alter routine %s set standard_conforming_strings = on set row_security = on set jit = off',
      v_routine.signature);
    if v_routine.plans then execute format('alter routine %s set plan_cache_mode = force_custom_plan',
      v_routine.signature); end if;
  end loop;
end $$;

-- A table that this release adds has its partitions wherever there are users, so that events need not look for them.
-- Those of no user, such as failed jobs, have theirs from the beginning.
do $$
begin
  perform _memoir.make_leaf(t.table_name, p)
  from _memoir.installation i, generate_series(0, i.modulus - 1) p, _memoir.partitioned_tables t
  where not t.by_month and (to_regclass('_memoir.' || _memoir.leaf_name('users', p)) is not null
    or t.table_name = 'outbox' and p = _memoir.part_of(_memoir.no_session()));
  -- Columns with people's words have no statistics.
  perform _memoir.without_statistics(c.oid) from pg_class c
  where c.relnamespace = '_memoir'::regnamespace and c.relkind in ('r', 'p')
    and (not c.relispartition or c.relkind = 'p')
    and (_memoir.has_column(c.relname, 'user_id') or c.relname = 'system_prompts');
end $$;

-- Revokes all rights on our objects, then grants those of sql/data/grants.csv. No role but the owner holds rights on
-- tables: functions are the API. Run here, by setup() and by pg_memoir_plpython.sql, each time for what the caller may
-- change: PL/Python's routines belong to a superuser.
create or replace function _memoir.grant_all()
returns void language plpgsql set search_path from current as $$
declare
  v_revoked text; v_statement text;
  v_roles text := 'memoir_reader, memoir_app, memoir_tenant, memoir_admin, memoir_jobs';
begin
  -- Whoever restores without owners makes the objects, and their default privileges apply to these.
  select concat_ws(', ', 'public', v_roles, string_agg(distinct format('%I', a.grantee::regrole::name), ', '))
  into v_revoked
  from pg_default_acl d, aclexplode(d.defaclacl) a
  where d.defaclrole = current_user::regrole and a.grantee not in (0, 'memoir_owner'::regrole, d.defaclrole);

  -- From a clean slate, so that what a release no longer grants is gone after the upgrade.
  execute format('revoke all on all tables in schema memoir, _memoir from %s', v_revoked);
  execute format('revoke all on all sequences in schema memoir, _memoir from %s', v_revoked);
  for v_statement in
    select x.statement from pg_proc p
    cross join lateral (values (format('revoke all on routine %s from %s', p.oid::regprocedure, v_revoked)),
      -- The definer functions reach PL/Python's as the owner.
      (case when p.proowner <> 'memoir_owner'::regrole
        then format('grant execute on routine %s to memoir_owner', p.oid::regprocedure) end)) x(statement)
    where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and x.statement is not null
      and pg_has_role(current_user, p.proowner, 'member')
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid
        and d.deptype = 'e')
    union all
    select format('grant execute on routine %s to %I', p.oid::regprocedure, 'memoir_' || r)
    from _memoir.data_grants() g cross join unnest(string_to_array(g.roles, ' ')) r
    join pg_proc p on p.proname = split_part('.' || g.function, '.', -1)
      and p.pronamespace = case when starts_with(g.function, '_memoir.') then '_memoir' else 'memoir' end::regnamespace
      and pg_has_role(current_user, p.proowner, 'member')
    union all
    -- Views are for admins; they hold what their owner may see.
    select format('grant select on %s to memoir_admin', c.oid::regclass) from pg_class c
    where c.relnamespace = 'memoir'::regnamespace and c.relkind = 'v' and c.relowner = 'memoir_owner'::regrole
      and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid
        and d.deptype = 'e')
    union all
    select format('revoke all on type %s from %s', t.oid::regtype, v_revoked)
    from pg_type t left join pg_class c on c.oid = t.typrelid
    where t.typnamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and t.typcategory <> 'A'
      and coalesce(c.relkind, 'c') = 'c'
      and not exists (select from pg_depend d where d.classid = 'pg_type'::regclass and d.objid = t.oid
        and d.deptype = 'e')
    union all
    -- All that lead the functions' paths: whoever creates there could put a function before ours.
    select format('revoke all on schema %I from %s', nspname, v_revoked) from pg_namespace
    where nspowner = 'memoir_owner'::regrole and nspname in ('memoir', '_memoir', 'memoir_extensions', 'memoir_case')
  loop
    execute v_statement;
  end loop;
  execute format('grant usage on schema memoir, _memoir to %s', v_roles);
end $$;

-- What an earlier release had and this one has not goes: routines that the preamble could not drop, and that this
-- transaction did not replace. Should somebody's view need one of them, the upgrade says so and ends.
do $$
declare
  v_stale record;
begin
  for v_stale in
    select p.oid::regprocedure as signature from pg_proc p
    where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and p.proowner = 'memoir_owner'::regrole
      and p.xmin::text::bigint <> pg_current_xact_id()::text::bigint % 4294967296
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid
      and d.deptype = 'e')
  loop
    execute format('drop routine %s', v_stale.signature);
  end loop;
end $$;

-- A superuser grants PL/Python's routines as well.
reset role;
select set_config('role', 'memoir_owner', false) where current_setting('is_superuser') = 'off';
select _memoir.grant_all();
reset role;
