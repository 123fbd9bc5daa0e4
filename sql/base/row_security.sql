-- Row security, behind the functions: whoever is granted a table, a partition or a view with security_invoker sees and
-- writes only the rows of its users. FORCE binds the owner too, whom a policy then lets see every row: that one is a
-- constant, so the plans of our functions stay as they are without it. Every table with user data has the same two
-- policies, leaves included, since a leaf read by its own name asks only its own policies.
-- The policies call these functions and nothing else that may change, so that a release replaces functions, not the
-- policies of ten thousand leaves.

-- For views of ours, which read as the owner: is the caller one of those who see every row?
create or replace function _memoir.sees_all()
returns boolean language sql stable security definer set search_path from current as $$
  select _memoir.may_run_jobs(_memoir.login())
$$;

-- The users that the caller may see: those bound to it, or for a service those of its namespace.
create or replace function _memoir.visible_users()
returns setof uuid language plpgsql stable security definer set search_path from current as $$
declare
  v_login name := _memoir.login();
begin
  if pg_has_role(v_login, 'memoir_app', 'usage') or pg_has_role(v_login, 'memoir_reader', 'usage') then
    return query select u.user_id from _memoir.users u
    where u.namespace = coalesce((_memoir.binding(v_login)).namespace, 'default');
  elsif pg_has_role(v_login, 'memoir_tenant', 'usage') then
    return query select u.user_id from _memoir.login_users u where u.login = v_login;
  end if;
end $$;

create or replace function _memoir.bound_projects()
returns text[] language sql stable security definer set search_path from current as $$
  select (_memoir.binding(_memoir.login())).projects
$$;

create or replace function _memoir.bound_sessions()
returns setof uuid language plpgsql stable security definer set search_path from current as $$
declare
  v_projects text[] := _memoir.bound_projects();
begin
  return query select s.session_id from _memoir.sessions s
  where s.project = any (v_projects) and s.user_id in (select u from _memoir.visible_users() u);
end $$;

create or replace function _memoir.own_clearance()
returns _memoir.sensitivity language sql stable security definer set search_path from current as $$
  select coalesce((_memoir.binding(_memoir.login())).clearance, 'private')
$$;

-- Runs DDL on a leaf. Each such statement has a text of its own, and a month of leaves would push an operator's queries
-- out of pg_stat_statements. So that does not count them, where setup() could grant the right to say so.
create or replace function _memoir.run_ddl(p_statement text)
returns void language plpgsql as $$
declare
  v_is_counted boolean := current_setting('pg_stat_statements.track_utility', true) = 'on'
    and has_parameter_privilege('pg_stat_statements.track_utility', 'set');
begin
  if v_is_counted then perform set_config('pg_stat_statements.track_utility', 'off', true); end if;
  execute p_statement;
  if v_is_counted then perform set_config('pg_stat_statements.track_utility', 'on', true); end if;
end $$;

-- Puts what it lacks on a table: row security, forced, and its policies. Takes no lock where nothing lacks. A table
-- without data of users needs none.
create or replace function _memoir.secure_rows(p_table regclass)
returns void language plpgsql set search_path from current as $$
declare
  v_columns name[] := array(select attname from pg_attribute where attrelid = p_table and attnum > 0
    and not attisdropped);
  -- Which rows are the caller's own. Callers bound to projects see nothing of what can't be told to belong to one.
  v_own text := case
    when p_table in ('_memoir.logins'::regclass, '_memoir.login_users'::regclass) then 'login = _memoir.login()'
    when p_table = '_memoir.system_prompts'::regclass then 'false'  -- the applications' texts, of no user
    when 'user_id' = any (v_columns) then 'user_id in (select _memoir.visible_users())'
      || case when 'project' = any (v_columns)
          then ' and coalesce(project = any ((select _memoir.bound_projects())::text[]), true)'
        when 'session_id' = any (v_columns)
          then ' and ((select _memoir.bound_projects()) is null or session_id in (select _memoir.bound_sessions()))'
        else ' and (select _memoir.bound_projects()) is null' end
      || case when 'sensitivity' = any (v_columns) then ' and sensitivity <= (select _memoir.own_clearance())'
        else '' end end;
begin
  if v_own is null then return; end if;
  if not (select relrowsecurity and relforcerowsecurity from pg_class where oid = p_table) then
    perform _memoir.run_ddl(format('alter table %s enable row level security, force row level security', p_table));
  end if;
  if not exists (select from pg_policy where polrelid = p_table and polname = 'every_row') then
    perform _memoir.run_ddl(format('create policy every_row on %s to memoir_owner, memoir_admin, memoir_jobs '
      'using (true)', p_table));
  end if;
  if not exists (select from pg_policy where polrelid = p_table and polname = 'own_rows') then
    perform _memoir.run_ddl(format('create policy own_rows on %s to memoir_tenant, memoir_app, memoir_reader '
      'using (%s)', p_table, v_own));
  end if;
end $$;

do $$
begin
  perform _memoir.secure_rows(c.oid) from pg_class c
  where c.relnamespace = '_memoir'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    and c.relowner = 'memoir_owner'::regrole;
end $$;
