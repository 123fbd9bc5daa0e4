-- What an install puts in place besides objects, and what a dump does not carry.

create or replace procedure memoir.setup()
language plpgsql set search_path from current as $$
declare
  v_role text; v_path text;
begin
  foreach v_role in array array['memoir_owner', 'memoir_reader', 'memoir_app', 'memoir_tenant', 'memoir_admin', 'memoir_jobs'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
      execute pg_catalog.format('create role %I %s', v_role, case when v_role = 'memoir_jobs' then 'login' else 'nologin' end);
    end if;
  end loop;
  select s into v_path from (
    select pg_catalog.substr(c, 13) as s
    from pg_catalog.pg_db_role_setting, pg_catalog.unnest(setconfig) c
    where setrole = 0 and setdatabase = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
      and c like 'search\_path=%') x;
  if coalesce(v_path, '') !~ '\mmemoir\M' then
    execute pg_catalog.format('alter database %I set search_path = %s', pg_catalog.current_database(),
      coalesce(v_path || ', memoir', '"$user", public, memoir'));
  end if;
end $$;
comment on procedure memoir.setup() is
  'Reapplies what a dump does not carry: the roles and the database''s search_path. Call it after a restore, as the user who
restored; then call ensure_partitions().';

create or replace function memoir.version()
returns text language sql immutable
return :'memoir_version';
comment on function memoir.version() is 'The version of the installed pg_memoir.';

-- A call for a user plans for that user: a generic plan locks every partition of the tables it names, for the rest of a
-- connection's life. Stated here for all of them, so that none is forgotten.
do $$
declare
  v_routine regprocedure;
begin
  for v_routine in
    select p.oid from pg_proc p
    where p.pronamespace = 'memoir'::regnamespace and p.prosecdef and p.proargnames[1] = 'p_user'
      and not exists (select from unnest(p.proconfig) c where starts_with(c, 'plan_cache_mode='))
  loop
    execute format('alter routine %s set plan_cache_mode = force_custom_plan', v_routine);
  end loop;
end $$;

select memoir._define_settings();
select memoir._define_models();
select memoir._define_embedding_models();
