-- Texts to ids, and who is calling.
-- Inside a SECURITY DEFINER function current_user is the owner, so the caller is the role of SET ROLE, else the login.

-- Its names are bound here, since policies call it under their caller's search_path. A text: functions take over the
-- collation of their arguments, and under that of a name patterns know the letters of ASCII only.
create or replace function _memoir.login()
returns text language sql stable
return case when current_setting('role') in ('', 'none') then session_user::text else current_setting('role') end;

create or replace function _memoir.audit(p_action text, p_detail jsonb, p_user_id uuid default null)
returns bigint language sql as $$
  insert into _memoir.audit_log (login, action, user_id, detail)
  values (_memoir.login(), p_action, p_user_id, p_detail) returning audit_id
$$;

-- Returns what an admin has bound the caller to. A role without a binding does not free a login from its own: whoever
-- is a member of memoir_app may SET ROLE to it.
create or replace function _memoir.binding(p_login name)
returns _memoir.logins language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  return (select l from _memoir.logins l where l.login in (p_login, session_user) order by l.login <> p_login limit 1);
end $$;

create or replace function _memoir.sha1(p_bytes bytea)
returns bytea language sql immutable strict parallel safe
return digest(p_bytes, 'sha1');

-- Returns the uuid v5 (RFC 9562) of a name, also of one that looks like a UUID: else a caller could choose any id.
create or replace function _memoir.session_id(p_user_id uuid, p_session text)
returns uuid language plpgsql immutable strict parallel safe as $$
declare
  h bytea := substr(_memoir.sha1(uuid_send(p_user_id) || convert_to(p_session, 'UTF8')), 1, 16);
begin
  return encode(set_byte(set_byte(h, 6, get_byte(h, 6) & 15 | 80), 8, get_byte(h, 8) & 63 | 128), 'hex')::uuid;
end $$;

create or replace function _memoir.user_id(p_namespace text, p_user text)
returns uuid language sql immutable
return _memoir.session_id(
  _memoir.session_id('6ba7b811-9dad-11d1-80b4-00c04fd430c8', 'pg_memoir:' || p_namespace), p_user);

-- Writers of a user share a row, an erase has it alone: who writes meanwhile is waited for, who comes later finds
-- nobody. To the end of the transaction. No advisory lock, since any login could take one; volatile, since it locks.
create or replace function _memoir.lock_user(p_user_id uuid, p_need text) returns void language plpgsql as $$
begin
  if p_need in ('write', 'erase') and pg_is_in_recovery() then raise read_only_sql_transaction; end if;
  if p_need = 'write' then
    perform from _memoir.user_locks where user_id = p_user_id for key share;
    if not found then insert into _memoir.user_locks select u.user_id from _memoir.users u
      where u.user_id = p_user_id on conflict do nothing; end if;
  elsif p_need = 'erase' then
    insert into _memoir.user_locks values (p_user_id) on conflict do nothing;
    perform from _memoir.user_locks where user_id = p_user_id for update;
    perform from _memoir.users where user_id = p_user_id for update;
  end if;
end $$;

-- For jobs, which wait for nobody: a writer's locks, the session's before the user's, unless somebody has one.
create or replace function _memoir.try_lock(p_user_id uuid, p_session_id uuid default null)
returns boolean language plpgsql as $$
begin
  if p_session_id is not null then
    perform from _memoir.session_counters where user_id = p_user_id
      and session_id = p_session_id for update skip locked;
    if not found then return false; end if;
  end if;
  perform from _memoir.user_counters where user_id = p_user_id for update skip locked;
  return found;
end $$;

-- For what was paid for already: waits for a writer, and not for an open transaction.
create or replace function _memoir.lock_shortly(p_user_id uuid)
returns boolean language plpgsql set lock_timeout = '1s' as $$
begin
  perform from _memoir.user_counters where user_id = p_user_id for update;
  return found;
exception when lock_not_available then return false;
end $$;

-- Returns whether nobody has them now, or they are gone; keeps none, since they end with its subtransaction.
create or replace function _memoir.is_free(p_user_id uuid, p_session_id uuid)
returns boolean language plpgsql as $$
begin
  perform from _memoir.session_counters where user_id = p_user_id and session_id = p_session_id for update nowait;
  perform from _memoir.user_counters where user_id = p_user_id for update nowait;
  raise exception using errcode = 'PM000';
exception
  when lock_not_available then return false;
  when sqlstate 'PM000' then return true;
end $$;

-- May the caller read / write / erase for this user? Returns the user's id and what the caller is, or raises PM001.
create or replace function _memoir.authorise(p_user text, p_need text)
returns _memoir.caller language plpgsql stable as $$
declare
  v_login name := _memoir.login(); v_row _memoir.logins; v_caller _memoir.caller;
  v_at integer := nullif(strpos(p_user, '@space:'), 0);
begin
  perform _memoir.check_name('user', p_user, 500);
  v_row := _memoir.binding(v_login);
  v_caller.login := v_login;
  v_caller.namespace := coalesce(v_row.namespace, 'default');
  v_caller.user_id := _memoir.user_id(v_caller.namespace, left(p_user, coalesce(v_at - 1, 500)));
  v_caller.actor := v_row.actor;
  v_caller.projects := v_row.projects;
  v_caller.clearance := coalesce(v_row.clearance, 'private');
  v_caller.may_state_actor := false;
  if pg_has_role(v_login, 'memoir_admin', 'usage') then
    v_caller.may_state_actor := true;
  elsif pg_has_role(v_login, 'memoir_app', 'usage')
    or p_need = 'read' and pg_has_role(v_login, 'memoir_reader', 'usage') then
    v_caller.may_state_actor := v_row.actor is null;
  elsif pg_has_role(v_login, 'memoir_tenant', 'usage')
    and exists (select from _memoir.login_users where login = v_login and user_id = v_caller.user_id) then
    v_caller.actor := coalesce(v_row.actor, 'agent');
  else
    perform _memoir.fail('PM001', format('login %s may not %s for user %s', quote_ident(v_login), p_need,
      _memoir.shown(p_user)),
      'an admin grants memoir_app or memoir_reader, or binds the login with bind_login');
  end if;
  if v_at > 0 then v_caller := _memoir.in_space(v_caller, p_user, v_at, p_need); end if;
  if p_need <> 'read' then perform _memoir.lock_user(v_caller.user_id, p_need); end if;
  return v_caller;
end $$;

-- Puts a caller who may act for a person into a space. Its address in p_user says both: ada@space:team. Admins reach a
-- space without a person: @space:team. Rows that are written say for whom.
create or replace function _memoir.in_space(inout p_caller _memoir.caller, p_user text, p_at integer, p_need text)
language plpgsql stable as $$
declare
  v_role _memoir.space_role; v_is_admin boolean := p_at = 1 and pg_has_role(p_caller.login, 'memoir_admin', 'usage');
begin
  p_caller.member := left(p_user, p_at - 1);
  p_caller.member_id := p_caller.user_id;
  p_caller.user_id := _memoir.user_id(p_caller.namespace, substr(p_user, p_at));
  select m.role into v_role from _memoir.space_members m
  where m.user_id = p_caller.user_id and m.member_id = p_caller.member_id;
  if not v_is_admin and coalesce(v_role < case p_need when 'read' then 'reader' when 'write' then 'writer'
    else 'owner' end::_memoir.space_role, true) then
    perform _memoir.fail('PM001', format('user %s may not %s in space %s', _memoir.shown(p_caller.member), p_need,
      _memoir.shown(substr(p_user, p_at + 7))), 'an owner of the space grants that with grant_space');
  end if;
  p_caller.login := concat_ws(' for ', p_caller.login, nullif(p_caller.member, ''));
end $$;

-- Sharing and erasing are for people and services that speak for them: never for a login that is an agent or a tool.
create or replace function _memoir.check_person(p_caller _memoir.caller, p_what text)
returns void language plpgsql as $$
begin
  if not (p_caller.may_state_actor or p_caller.actor = 'person') then
    perform _memoir.fail('PM001', format('login %s acts as %s and may not %s', quote_ident(p_caller.login),
      p_caller.actor, p_what), 'bind it to actor person');
  end if;
end $$;

-- A definer of its own, since procedures that run as their caller ask it too.
create or replace function _memoir.authorise_admin()
returns text language plpgsql stable security definer set search_path from current as $$
declare
  v_login text := _memoir.login();
begin
  if not pg_has_role(v_login, 'memoir_admin', 'usage') then
    perform _memoir.fail('PM001', format('login %s is not an admin', quote_ident(v_login)), 'grant memoir_admin to it');
  end if;
  return v_login;
end $$;

create or replace function _memoir.may_run_jobs(p_login name)
returns boolean language sql stable as $$
  select pg_has_role(p_login, 'memoir_jobs', 'usage') or pg_has_role(p_login, 'memoir_admin', 'usage')
    or pg_has_role(p_login, 'memoir_owner', 'usage')
$$;

-- Workers act across users: they embed, merge and flush, and are handed texts. A service is one as long as all
-- users are its own: where logins of another namespace exist, or it is bound to projects or a low clearance, that
-- takes memoir_jobs.
create or replace function _memoir.authorise_worker()
returns void language plpgsql stable as $$
declare
  v_login name := _memoir.login(); v_row _memoir.logins;
begin
  if _memoir.may_run_jobs(v_login) then return; end if;
  v_row := _memoir.binding(v_login);
  if not pg_has_role(v_login, 'memoir_app', 'usage') or v_row.projects is not null or v_row.clearance = 'normal'
     or exists (select from _memoir.logins where namespace <> coalesce(v_row.namespace, 'default')) then
    perform _memoir.fail('PM001', format('login %s may not run maintenance', quote_ident(v_login)),
      'grant memoir_jobs to it');
  end if;
end $$;

-- Whose word is this? The login's fixed class, else what a service states, else the default of the call.
create or replace function _memoir.actor(p_caller _memoir.caller, p_stated text, p_default _memoir.actor)
returns _memoir.actor language plpgsql immutable as $$
begin
  if p_stated is null then return coalesce(p_caller.actor, p_default); end if;
  perform _memoir.check_choice('actor', p_stated, '{person,agent,tool}');
  if p_caller.may_state_actor or p_stated = p_caller.actor::text then return p_stated::_memoir.actor; end if;
  perform _memoir.fail('PM001', format('login %s acts as %s and may not state actor %s',
    quote_ident(p_caller.login), coalesce(p_caller.actor::text, 'agent'), _memoir.shown(p_stated)));
end $$;

create or replace function _memoir.check_project(p_caller _memoir.caller, p_project text)
returns text language plpgsql as $$
begin
  perform _memoir.check_name('project', p_project, 200);
  if p_caller.projects is not null and p_project <> all (p_caller.projects) then
    perform _memoir.fail('PM001', format('login %s may not use project %s', quote_ident(p_caller.login),
      _memoir.shown(p_project)));
  end if;
  return p_project;
end $$;

create or replace function _memoir.default_project(p_caller _memoir.caller)
returns text language sql immutable as $$
  select case when p_caller.projects is null or 'global' = any (p_caller.projects) then 'global'
    else p_caller.projects[1] end
$$;

-- May the caller use a session of this project? The error does not say which project it is.
create or replace function _memoir.check_session_of(p_caller _memoir.caller, p_session text, p_project text)
returns void language plpgsql as $$
begin
  if p_project <> all (p_caller.projects) then
    perform _memoir.fail('PM001', format('login %s may not use session %s', quote_ident(p_caller.login),
      _memoir.shown(p_session)),
      'it belongs to a project that the login is not bound to');
  end if;
end $$;

create or replace function memoir.bind_login(p_login name, p_users text[] default null, p_actor text default null,
  p_projects text[] default null, p_clearance text default 'private', p_namespace text default 'default')
returns void language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  if p_login in ('memoir_reader', 'memoir_app', 'memoir_tenant', 'memoir_admin', 'memoir_jobs', 'memoir_owner') then
    perform _memoir.fail('PM014', format('%s is what logins are members of and can''t be bound itself', p_login));
  end if;
  if not exists (select from pg_roles where rolname = p_login) then
    perform _memoir.fail('PM014', format('there is no login %s', _memoir.shown(p_login)), 'create the role first');
  end if;
  if p_actor is not null then perform _memoir.check_choice('actor', p_actor, '{person,agent,tool}'); end if;
  perform _memoir.check_choice('clearance', p_clearance, enum_range(null::_memoir.sensitivity)::text[]);
  perform _memoir.check_name('namespace', p_namespace, 200);
  perform _memoir.check_name('users', u, 500) from unnest(p_users) u;
  perform _memoir.check_name('projects', p, 200) from unnest(p_projects) p;
  insert into _memoir.logins (login, namespace, actor, projects, clearance)
  values (p_login, p_namespace, p_actor::_memoir.actor, p_projects, p_clearance::_memoir.sensitivity)
  on conflict (login) do update set namespace = excluded.namespace, actor = excluded.actor,
    projects = excluded.projects, clearance = excluded.clearance;
  delete from _memoir.login_users where login = p_login;
  insert into _memoir.login_users (login, user_id)
  select distinct p_login, _memoir.user_id(p_namespace, u) from unnest(p_users) u;
  perform _memoir.audit('bind_login', jsonb_build_object('login', p_login, 'users', cardinality(p_users), 'actor',
    p_actor));
end $$;
comment on function memoir.bind_login(name, text[], text, text[], text, text) is
  'Binds a login to users (null: none), an actor class (person, agent, tool), projects (null: all), a clearance and a
namespace. Replaces the login''s former binding. The login also needs membership in memoir_tenant, memoir_app or
memoir_reader. Admin only. Raises PM001, PM014.';

create or replace function memoir.unbind_login(p_login name)
returns void language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  delete from _memoir.logins where login = p_login;
  if not found then perform _memoir.fail('PM014', format('login %s is not bound', _memoir.shown(p_login))); end if;
  perform _memoir.audit('unbind_login', jsonb_build_object('login', p_login));
end $$;
comment on function memoir.unbind_login(name) is
  'Removes a login''s binding: users, actor class, projects, clearance, namespace. Call it before the role is dropped
or afterwards, since a role made later under the same name would be bound as well. Admin only. Raises PM001, PM014.';

-- Running jobs is for the jobs role and admins: services call what they need directly.
create or replace function _memoir.authorise_jobs()
returns void language plpgsql stable as $$
declare
  v_login name := _memoir.login();
begin
  if not _memoir.may_run_jobs(v_login) then
    perform _memoir.fail('PM001', format('login %s may not run jobs', quote_ident(v_login)), 'grant memoir_jobs to it');
  end if;
end $$;
