-- Revokes all rights on our objects, then grants those of sql/data/grants.csv. No role but the owner holds rights on
-- tables: functions are the API. Run here, by setup() and by pg_memoir_plpython.sql, each time for what the caller may
-- change: PL/Python's routines belong to a superuser.
create or replace function _memoir.grant_all()
returns void language plpgsql set search_path from current as $$
declare
  v_grant record; v_object record; v_role text; v_revoked text;
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
  for v_object in
    select p.oid::regprocedure as signature, p.proowner <> 'memoir_owner'::regrole as is_foreign from pg_proc p
    where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace)
      and pg_has_role(current_user, p.proowner, 'member')
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid
      and d.deptype = 'e')
  loop
    execute format('revoke all on routine %s from %s', v_object.signature, v_revoked);
    if v_object.is_foreign then  -- the definer functions reach PL/Python's as the owner
      execute format('grant execute on routine %s to memoir_owner', v_object.signature);
    end if;
  end loop;

  for v_grant in
    select * from _memoir.data_grants()
  loop
    for v_object in
      select p.oid::regprocedure as signature from pg_proc p
      where p.pronamespace = case when starts_with(v_grant.function, '_memoir.') then '_memoir'
        else 'memoir' end::regnamespace
        and p.proname = split_part('.' || v_grant.function, '.', -1)
        and pg_has_role(current_user, p.proowner, 'member')
    loop
      foreach v_role in array string_to_array(v_grant.roles, ' ') loop
        execute format('grant execute on routine %s to %I', v_object.signature, 'memoir_' || v_role);
      end loop;
    end loop;
  end loop;

  -- Views are for admins; they hold what their owner may see.
  for v_object in
    select c.oid::regclass as name from pg_class c
    where c.relnamespace = 'memoir'::regnamespace and c.relkind = 'v' and c.relowner = 'memoir_owner'::regrole
      and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid
      and d.deptype = 'e')
  loop
    execute format('grant select on %s to memoir_admin', v_object.name);
  end loop;

  for v_object in
    select t.oid::regtype as name from pg_type t left join pg_class c on c.oid = t.typrelid
    where t.typnamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and t.typcategory <> 'A'
      and coalesce(c.relkind, 'c') = 'c'
      and not exists (select from pg_depend d where d.classid = 'pg_type'::regclass and d.objid = t.oid
      and d.deptype = 'e')
  loop
    execute format('revoke all on type %s from %s', v_object.name, v_revoked);
  end loop;

  for v_object in  -- all that lead the functions' paths: whoever creates there could put a function before ours
    select nspname as name from pg_namespace where nspowner = 'memoir_owner'::regrole
      and nspname in ('memoir', '_memoir', 'memoir_extensions', 'memoir_case')
  loop
    execute format('revoke all on schema %I from %s', v_object.name, v_revoked);
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
