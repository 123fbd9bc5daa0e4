-- Shared spaces: users that several people may read or write. A space has rows of its own like any user, under the name
-- @space:NAME, so that all of it works as for a user. identity.sql says who may do what there.

-- Returns an owner of a space as its caller, alone: grants wait for each other.
create or replace function _memoir.owner_of(p_user text, p_space text)
returns _memoir.caller language plpgsql as $$
declare
  v_caller _memoir.caller := _memoir.authorise(coalesce(p_user, '') || '@space:' || p_space, 'share');
begin
  perform _memoir.check_person(v_caller, 'share');
  perform from _memoir.users where user_id = v_caller.user_id for no key update;
  if not found then perform _memoir.fail('PM002', format('unknown space %s', _memoir.shown(p_space))); end if;
  return v_caller;
end $$;

create or replace function _memoir.set_member(p_caller _memoir.caller, p_space text, p_member text,
  p_role _memoir.space_role, p_names text[])
returns void language plpgsql as $$
declare
  v_id uuid := _memoir.user_id(p_caller.namespace, p_member);
  -- As messages have names.
  v_names text[] := array(select left(translate(btrim(n), E' \t\n<|\\/>', '_______'), 64)
    from unnest(coalesce(nullif(p_names, '{}'), (select m.names from _memoir.space_members m
      where m.user_id = p_caller.user_id and m.member_id = v_id), array[p_member])) with ordinality u(n, o)
    group by 1 order by min(o));
  v_other text := (select n from _memoir.space_members m, unnest(m.names) n where m.user_id = p_caller.user_id
    and m.member_id <> v_id and lower(n) in (select lower(x) from unnest(v_names) x) limit 1);
begin
  if v_other is not null then
    perform _memoir.fail('PM014', format('name %s is another member''s', _memoir.shown(v_other)), 'give p_names');
  end if;
  if strpos(p_member, '@space:') > 0 then
    perform _memoir.fail('PM014', format('space %s can''t be a member of a space', _memoir.shown(p_member)));
  end if;
  insert into _memoir.space_members as m (user_id, member_id, space, member, role, names, granted_by, granted_at)
  values (p_caller.user_id, v_id, p_space, p_member, p_role, v_names, p_caller.login, memoir.now())
  on conflict (user_id, member_id) do update set role = excluded.role, granted_by = excluded.granted_by,
    granted_at = excluded.granted_at, names = excluded.names || array(select n from unnest(m.names) n
      where n <> all (excluded.names));
  if not exists (select from _memoir.space_members where user_id = p_caller.user_id and role = 'owner') then
    perform _memoir.fail('PM014', format('space %s would have no owner', _memoir.shown(p_space)),
      'make somebody else an owner first');
  end if;
  perform _memoir.audit('share', jsonb_build_object('role', p_role), p_caller.user_id);
end $$;

create or replace function memoir.create_space(p_user text, p_space text)
returns text language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_address text := '@space:' || p_space;
begin
  perform _memoir.check_person(v_caller, 'share'), _memoir.check_name('space', p_space, 200);
  if p_space <> btrim(p_space) or strpos(p_space, ',') + strpos(p_space, '@') > 0 then
    perform _memoir.fail('PM014', format('a space can''t have the name %s', _memoir.shown(p_space)),
      'it has no comma, no @ and no space at its ends');
  end if;
  perform _memoir.touch_user(v_caller, p_user);
  v_caller.user_id := _memoir.user_id(v_caller.namespace, v_address);
  if not exists (select from _memoir.users where user_id = v_caller.user_id) then
    perform _memoir.touch_user(v_caller, v_address), _memoir.set_member(v_caller, p_space, p_user, 'owner', null);
    -- Of two who create it at once one is its owner.
    if (select count(*) = 1 from _memoir.space_members where user_id = v_caller.user_id) then
      return p_user || v_address;
    end if;
  end if;
  perform _memoir.fail('PM014', format('space %s exists', _memoir.shown(p_space)), 'choose another name');
end $$;
comment on function memoir.create_space(text, text) is
  'Creates a shared space, of which the user is the owner. Returns its address for that user, ada@space:team: whatever
takes p_user takes it. Not for logins of class agent or tool. Writes users and space_members. Raises PM001, PM014.';

create or replace function memoir.grant_space(p_user text, p_space text, p_member text, p_role text default 'reader',
  p_names text[] default null)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.owner_of(p_user, p_space);
begin
  perform _memoir.check_name('member', p_member, 500),
    _memoir.check_choice('role', p_role, enum_range(null::_memoir.space_role)::text[]);
  perform _memoir.check_name('names', n, 64) from unnest(p_names) n;
  perform _memoir.set_member(v_caller, p_space, p_member, p_role::_memoir.space_role, p_names);
end $$;
comment on function memoir.grant_space(text, text, text, text, text[]) is
  'Makes somebody a member of a space, or changes what they may do there: reader, writer (and correct and forget), owner
(and grant and erase). p_names: as whom they speak in it (default: their user''s name), the first one through their
own address. Owners only; p_user null: admins. Writes space_members. Raises PM001, PM002, PM014.';

create or replace function memoir.revoke_space(p_user text, p_space text, p_member text)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := case when p_user = p_member then
    _memoir.authorise(p_user || '@space:' || p_space, 'read') else _memoir.owner_of(p_user, p_space) end;
begin
  perform _memoir.check_name('member', p_member, 500), _memoir.check_person(v_caller, 'share');
  if not exists (select from _memoir.space_members where user_id = v_caller.user_id and role is not null
    and member_id = _memoir.user_id(v_caller.namespace, p_member)) then
    perform _memoir.fail('PM014', format('%s is no member of space %s', _memoir.shown(p_member),
      _memoir.shown(p_space)));
  end if;
  perform _memoir.set_member(v_caller, p_space, p_member, null, null);
end $$;
comment on function memoir.revoke_space(text, text, text) is
  'Ends a membership: from the next call on the space is not there for them. Members may leave, owners remove any, but
for the last owner. What they said stays. Writes space_members. Raises PM001, PM002, PM014.';

create or replace function memoir.list_spaces(p_user text)
returns table (space text, address text, role text, members bigint, granted_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
begin
  return query
  select m.space, m.member || '@space:' || m.space, m.role::text, (select count(o.role) from _memoir.space_members o
    where o.user_id = m.user_id), m.granted_at
  from _memoir.space_members m where m.member_id = v_caller.user_id and m.role is not null order by m.space;
end $$;
comment on function memoir.list_spaces(text) is
  'The spaces of a user: what they may do there, how many members there are, since when. Raises PM001.';

create or replace function memoir.list_space_members(p_user text, p_space text)
returns table (member text, role text, names text[], granted_by text, granted_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(coalesce(p_user, '') || '@space:' || p_space, 'read');
begin
  return query
  select m.member, m.role::text, m.names, m.granted_by, m.granted_at from _memoir.space_members m
  where m.user_id = v_caller.user_id and m.role is not null order by m.role desc, m.member;
end $$;
comment on function memoir.list_space_members(text, text) is
  'The members of a space that the user is in: role, names, since when. p_user null: for admins. Raises PM001.';

-- The spaces that a recall of a user takes beside their own, as setting spaces says: all, or some by name.
create or replace function _memoir.spaces_of(p_caller _memoir.caller, p_spaces text)
returns jsonb language plpgsql stable as $$
declare
  v_one _memoir.space_members; v_found jsonb := '[]';
begin
  if p_spaces = '' or p_caller.member_id is not null then return v_found; end if;
  for v_one in select * from _memoir.space_members m where m.member_id = p_caller.user_id and m.role is not null
    and (p_spaces = '*' or m.space = any (array(select btrim(s) from unnest(string_to_array(p_spaces, ',')) s)))
    order by m.space loop
    v_found := v_found || jsonb_build_object('user_id', v_one.user_id, 'space', v_one.space, 'user', v_one.member
      || '@space:' || v_one.space, 'erasures', (select c.erasures from _memoir.user_counters c
        where c.user_id = v_one.user_id));
  end loop;
  return v_found;
end $$;

-- Messages as a space keeps them: those of people under the name of whoever said them. A message has it, or its lines
-- begin with it ("[Tunde]: …"), else the caller said it. The lines of several make a message each.
create or replace function _memoir.with_speakers(p_caller _memoir.caller, p_messages jsonb)
returns jsonb language plpgsql stable as $$
declare
  v_said jsonb := '[]'; v_message jsonb; v_line text; v_text text; v_name text; v_next text;
  v_own text := (select m.names[1] from _memoir.space_members m where m.user_id = p_caller.user_id
    and m.member_id = p_caller.member_id);
begin
  for v_message in select value from jsonb_array_elements(p_messages) loop
    v_text := null; v_name := coalesce(v_message ->> 'name', v_own);
    if v_message ->> 'role' = 'user' and v_message ->> 'name' is null and strpos(E'\n' || (v_message ->> 'content'),
      E'\n[') > 0 and jsonb_typeof(v_message -> 'content') = 'string' then
      foreach v_line in array string_to_array(v_message ->> 'content', E'\n') loop
        v_next := _memoir.line_speaker(v_line);
        if v_next <> v_name and btrim(v_text) <> '' then
          v_said := v_said || (v_message || jsonb_build_object('content', v_text, 'name', v_name));
          v_text := null;
        end if;
        v_name := coalesce(v_next, v_name);
        v_text := concat_ws(E'\n', v_text, v_line);
      end loop;
    end if;
    v_said := v_said || jsonb_build_array(v_message || case when v_message ->> 'role' = 'user' then
      jsonb_strip_nulls(jsonb_build_object('content', v_text, 'name', v_name)) else '{}' end);
  end loop;
  return v_said;
end $$;

-- Returns who speaks in a line of a group chat, as a message's name: "[Tunde]: …". Levels of logs are nobody.
create or replace function _memoir.line_speaker(p_line text)
returns text language sql immutable as $$
  select translate(n, E' \t', '__') from (select substr(p_line, 2, strpos(p_line, ']: ') - 2)) s(n)
  where starts_with(p_line, '[') and strpos(p_line, ']: ') between 3 and 42 and translate(n, '[]/=:<>|\{}#"', '') = n
    and left(n, 1) not between '0' and '9' and cardinality(string_to_array(n, ' ')) <= 3 and upper(n) <> all (
      '{INFO,WARN,WARNING,ERROR,DEBUG,TRACE,FATAL,NOTE,NOTICE,TODO,CRITICAL,LOG,SYSTEM,USER,ASSISTANT,TOOL,DOCS}')
$$;
