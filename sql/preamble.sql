-- Makes what an install needs before any object: a fit server and database, the roles, the schema, the extensions.
-- Runs as the installing user (superuser, or CREATEROLE + owner of the database on managed servers); everything after
-- it runs as memoir_owner, which can't log in.
\set ON_ERROR_STOP on
-- Hash parts, fixed for the life of the install: psql -v modulus=256 for a big fleet.
\if :{?modulus}
\else
\set modulus 8
\endif
set client_min_messages = warning;
-- The rest runs with an installer's rights, so it finds nothing in a schema that others write to.
set search_path = pg_catalog, pg_temp;

do $$
declare
  v_encoding text; v_ctype text; v_role text;
begin
  if current_setting('server_version_num')::int < 150000 then
    raise exception 'pg_memoir needs PostgreSQL 15 or later, this is %', current_setting('server_version');
  end if;
  select pg_encoding_to_char(encoding), datctype into v_encoding, v_ctype
  from pg_database where datname = current_database();
  if v_encoding <> 'UTF8' then
    raise exception 'pg_memoir needs a UTF8 database, % has encoding %', current_database(), v_encoding
      using hint = 'create database ... template template0 encoding ''UTF8''';
  end if;
  if v_ctype in ('C', 'POSIX') then
    raise exception 'pg_memoir needs a ctype that knows letters, % has LC_CTYPE %', current_database(), v_ctype
      using hint = 'create database ... template template0 lc_ctype ''C.UTF-8'' (or any other UTF-8 locale)';
  end if;

  -- Roles are shared by all databases of a server, so two installs may race for them.
  foreach v_role in array array['memoir_owner', 'memoir_reader', 'memoir_app', 'memoir_tenant', 'memoir_admin',
    'memoir_jobs'] loop
    if not exists (select from pg_roles where rolname = v_role) then
      begin
        -- pg_cron starts its jobs as memoir_jobs, which no password lets in from outside.
        execute format('create role %I %s', v_role, case when v_role = 'memoir_jobs' then 'login' else 'nologin' end);
      exception when duplicate_object or unique_violation then null;
      end;
    elsif v_role = 'memoir_jobs' and not (select rolcanlogin from pg_roles where rolname = v_role) then
      execute 'alter role memoir_jobs login';
    end if;
  end loop;
  -- Creating objects as the owner needs membership; a superuser has it already. From 16 on, who creates a role is its
  -- member without being able to become it.
  if not pg_has_role(current_user, 'memoir_owner', case when current_setting('server_version_num')::int >= 160000
    then 'set' else 'member' end) then
    begin
      execute format('grant memoir_owner to %I', current_user);
    exception when unique_violation then null;
    end;
  end if;
end $$;

-- memoir: what people call. _memoir: tables, types and what only we call. memoir_extensions: the extensions, where they
-- are not installed already.
do $$
declare
  v_schema record; v_name name; v_extension text; v_in text; v_path text := 'pg_catalog';
begin
  foreach v_name in array array['memoir', '_memoir'] loop
    begin
      execute format('create schema if not exists %I authorization memoir_owner', v_name);
    exception when unique_violation then null;  -- another install of this moment, which was waited for
    end;
  end loop;
  -- Whoever may create schemas could have made one first, and its owner drops and replaces what others put there.
  for v_schema in
    select nspname, nspowner::regrole as owner from pg_namespace
    where nspname in ('memoir', '_memoir', 'memoir_extensions', 'memoir_case') and nspowner <> 'memoir_owner'::regrole
  loop
    raise exception 'schema % belongs to %', v_schema.nspname, v_schema.owner
      using hint = 'after a restore: call memoir.setup(); otherwise drop or rename that schema';
  end loop;

  -- The functions' pinned search_path names nothing but schemas that others can't write to: where an extension is
  -- installed already, its schema joins the path.
  foreach v_extension in array array['vector', 'pg_trgm', 'pgcrypto'] loop
    if not exists (select from pg_extension where extname = v_extension) then
      create schema if not exists memoir_extensions authorization memoir_owner;
      begin
        execute format('create extension %I schema memoir_extensions', v_extension);
      exception when undefined_file or feature_not_supported then
        raise exception 'extension % is not available on this server: %', v_extension, sqlerrm
          using hint = case v_extension when 'vector' then 'install pgvector 0.7 or later'
                       else 'install the contrib modules' end;
      end;
    end if;
    select n.nspname into v_in
    from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = v_extension;
    if v_in <> 'pg_catalog' and strpos(v_path || ',', ' ' || quote_ident(v_in) || ',') = 0 then
      if exists (select from pg_namespace n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
                 where n.nspname = v_in and a.privilege_type = 'CREATE' and a.grantee = 0) then
        raise exception 'extension % lies in schema %, where everybody may create objects', v_extension, v_in
          using hint = format(
            'revoke create on schema %I from public; or alter extension %I set schema memoir_extensions',
            v_in, v_extension);
      end if;
      if not has_schema_privilege('memoir_owner', v_in, 'usage') then
        execute format('grant usage on schema %I to memoir_owner', v_in);
        -- Who may not grant is only warned.
        if not has_schema_privilege('memoir_owner', v_in, 'usage') then
          raise exception 'extension % lies in schema %, which role memoir_owner may not use', v_extension, v_in
            using hint = format('have the owner of the schema say: grant usage on schema %I to memoir_owner', v_in);
        end if;
      end if;
      v_path := v_path || ', ' || quote_ident(v_in);
    end if;
  end loop;
  if not exists (select from pg_type where typname = 'halfvec') then
    raise exception 'the installed pgvector has no halfvec type'
      using hint = 'alter extension vector update; 0.7 or later is needed';
  end if;
  perform set_config('search_path', v_path || ', pg_temp', false);
end $$;

-- Upper and lower case must not depend on the database's locale: under a Turkish one lower('I') is 'ı', so rules would
-- miss words and hashes of the same text would differ. Where a locale changes case in its own way, schema memoir_case
-- leads the path. It has the functions that change or ignore case, under a collation that treats each letter alone.
do $$
declare
  v_upper text := 'ABCDEFGHIJKLMNOPQRSTUVWXYZÀÈÌÍĨĮÓÜÇŞĞΆΈЙ';
  v_lower text := 'abcdefghijklmnopqrstuvwxyzàèìíĩįóüçşğάέй';
  v_names name[] := '{pg_c_utf8,C.utf8,C.UTF-8,und-x-icu,en_US.utf8}';
  v_collation text; v_is_plain boolean; v_function record;
begin
  if lower(v_upper) = v_lower and upper(v_lower) = v_upper and v_upper ~* v_lower then return; end if;
  for v_collation in
    select format('pg_catalog.%I', c.collname) from pg_collation c
    where c.collnamespace = 'pg_catalog'::regnamespace and c.collencoding in (-1, pg_char_to_encoding('UTF8'))
      and c.collname = any (v_names)
    order by array_position(v_names, c.collname)
  loop
    execute format('select lower($1 collate %1$s) = $2 and upper($2 collate %1$s) = $1 and $1 collate %1$s ~* $2',
      v_collation) into v_is_plain using v_upper, v_lower;
    exit when v_is_plain;
  end loop;
  if v_is_plain is not true then
    raise exception
      'the locale of database % changes case in its own way, and the server has no collation to replace it',
      current_database() using hint = 'create database ... template template0 locale ''C.UTF-8''';
  end if;

  execute 'create schema if not exists memoir_case authorization memoir_owner';
  set role memoir_owner;
  for v_function in
    select p.proname as name, pg_get_function_identity_arguments(p.oid) as arguments,
      pg_get_function_result(p.oid) as result, p.provolatile = 'i' as is_immutable,
      (select string_agg(case when t.n <> t.first_text then format('$%s', t.n)
        when p.proname in ('to_tsvector', 'ts_lexize') then format('pg_catalog.lower($%s collate %s)', t.n, v_collation)
        else format('$%s collate %s', t.n, v_collation) end, ', ' order by t.n)
       from (select a.n, min(a.n) filter (where a.type = 'text'::regtype) over () as first_text
             from unnest(p.proargtypes) with ordinality a(type, n)) t) as passed
    from pg_proc p
    where p.pronamespace = 'pg_catalog'::regnamespace and 'text'::regtype = any (p.proargtypes)
      and p.proname ~ '^(lower|upper|initcap|regexp_.*|text(ic)?regex(eq|ne)|to_tsvector|ts_lexize)$'
  loop
    execute format('create or replace function memoir_case.%1$I(%2$s) returns %3$s language sql %4$s strict '
      'parallel safe begin atomic select pg_catalog.%1$I(%5$s); end', v_function.name, v_function.arguments,
      v_function.result, case when v_function.is_immutable then 'immutable' else 'stable' end, v_function.passed);
  end loop;
  if to_regoperator('memoir_case.~(text,text)') is null then
    create operator memoir_case.~ (function = memoir_case.textregexeq, leftarg = text, rightarg = text);
    create operator memoir_case.!~ (function = memoir_case.textregexne, leftarg = text, rightarg = text);
    create operator memoir_case.~* (function = memoir_case.texticregexeq, leftarg = text, rightarg = text);
    create operator memoir_case.!~* (function = memoir_case.texticregexne, leftarg = text, rightarg = text);
  end if;
  perform set_config('search_path', 'memoir_case, ' || current_setting('search_path'), false);
end $$;

set role memoir_owner;

create table if not exists _memoir.schema_migrations (
  name text primary key,
  sha256 text not null,
  applied_at timestamptz not null default now()
);
-- One install at a time in a database; only the owner can take this lock.
lock table _memoir.schema_migrations in exclusive mode;

-- Code is replaced as a whole. The former release's routines go first: "create or replace" can't change what a function
-- returns or how its arguments are called, and an overload left behind makes calls ambiguous. What triggers or
-- somebody's views depend on stays, and is replaced in place.
do $$
declare
  v_routine regprocedure; v_view regclass;
begin
  -- Views first, since they need routines. The error names one that somebody's own view needs, and ends the upgrade.
  for v_view in
    select c.oid from pg_class c where c.relnamespace = 'memoir'::regnamespace and c.relkind = 'v'
      and c.relowner = 'memoir_owner'::regrole
      and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid
      and d.deptype = 'e')
  loop
    execute format('drop view %s', v_view);
  end loop;
  for v_routine in
    select p.oid from pg_proc p
    -- PL/Python's belong to a superuser
    where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and p.proowner = 'memoir_owner'::regrole
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid
      and d.deptype = 'e')
  loop
    begin
      execute format('drop routine %s', v_routine);
    exception when dependent_objects_still_exist then null;
    end;
  end loop;
end $$;
