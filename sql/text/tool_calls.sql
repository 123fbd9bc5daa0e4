-- The effect of a tool call, and its object: read, write, edit or patch files, run a command, search, list, fetch,
-- plan. By the setting object_tools, then by sql/data/tools.csv; what a shell is told to do by sql/data/commands.csv.

-- A path without what says nothing: ./ and doubled slashes, a/.. inside; p_folder: where it begins.
create or replace function _memoir.plain_path(p_path text, p_folder text default null)
returns text language plpgsql immutable as $$
declare
  v_path text := replace(btrim(left(p_path, 2000)), '\', '/'); v_parts text[] := '{}'; v_part text;
begin
  if p_path is null or strpos(v_path, '://') > 0 and v_path ~ '^[a-z][a-z0-9+.-]*://' then return v_path; end if;
  if p_folder is not null and v_path !~ '^(?:/|~|[A-Za-z]:)' then v_path := p_folder || '/' || v_path; end if;
  foreach v_part in array string_to_array(v_path, '/') loop
    if v_part = '..' and v_parts[cardinality(v_parts)] not in ('', '..') then
      v_parts := v_parts[: cardinality(v_parts) - 1];
    elsif v_part not in ('', '.') or v_parts = '{}' and v_part = '' then
      v_parts := v_parts || v_part;
    end if;
  end loop;
  return coalesce(nullif(array_to_string(v_parts, '/'), ''), v_path);
end $$;

create or replace function _memoir.same_path(p_one text, p_other text)
returns boolean language sql immutable as $$
  select p_one = p_other or right(p_one, length(p_other) + 1) = '/' || p_other
    or right(p_other, length(p_one) + 1) = '/' || p_one
$$;

-- Returns what a command does. What no row of commands.csv knows is run.
create or replace function _memoir.command_use(p_command text, p_folder text)
returns _memoir.tool_use language plpgsql immutable as $$
declare
  v_use _memoir.tool_use; v_row record; v_found text[]; v_line text; v_word text;
  v_command text := btrim(p_command, E' \t\r\n'); v_folder text := p_folder;
begin
  -- Without what stands around it: the shell that is given it, a change of folder (which is kept), limits.
  for v_step in 1 .. 6 loop
    v_found := case when split_part(v_command, ' ', 1) ~ '(?:bash|sh|zsh)$' then regexp_match(left(v_command, 20000),
      '^(?:\S*/)?(?:bash|sh|zsh) -[lic]+ +(["''])(.*)\1$') end;
    if v_found is not null then v_command := btrim(v_found[2]); continue; end if;
    v_found := case when starts_with(v_command, 'cd ') then regexp_match(v_command,
      '^cd +(["'']?)([^\s"''|;&]+)\1 *(?:&&|;|\n) *(.*)$') end;
    if v_found is not null then
      v_folder := _memoir.plain_path(v_found[2], v_folder);
      v_command := v_found[3];
      continue;
    end if;
    v_found := regexp_match(v_command,
      '^(?:sudo|time|command|timeout(?: -\S+)* \S+|env|[A-Z_][A-Z0-9_]*=\S*) +(\S.*)$');
    exit when v_found is null;
    v_command := v_found[1];
  end loop;
  v_line := left(v_command, 2000);
  v_word := split_part(translate(left(v_line, 40), E'<>|&;\n\t', '       '), ' ', 1);
  v_use.does := 'run';
  for v_row in select * from _memoir.data_commands() c
    where v_word = any (string_to_array(c.words, ' ')) order by c.nth
  loop
    v_found := regexp_match(v_line, v_row.pattern);
    continue when v_found is null;
    v_use.does := v_row.does;
    if v_row.does = 'fetch' then
      v_use.key := v_found[v_row.key::integer];
    elsif v_row.key is not null then
      v_use.key := _memoir.plain_path(v_found[v_row.key::integer], v_folder);
    end if;
    v_use.first_line := case when starts_with(v_row.first, '+') then v_row.first::integer
      else v_found[v_row.first::integer]::integer end;
    v_use.last_line := coalesce(case when starts_with(v_row.last, '+') then v_row.last::integer
      else left(v_found[v_row.last::integer], 9)::integer end, v_use.first_line);
    exit;
  end loop;
  if v_use.does = 'patch' then v_use.keys := _memoir.patched_paths(v_command, v_folder); end if;
  v_use.key := coalesce(v_use.key, concat_ws(': ', v_folder, v_command));
  return v_use;
end $$;

create or replace function _memoir.patched_paths(p_patch text, p_folder text)
returns text[] language sql immutable as $$
  select coalesce(array_agg(distinct _memoir.plain_path(m[1], p_folder)), '{}')
  from regexp_matches(p_patch,
    '(?:^|\n)(?:\*\*\* (?:Add|Update|Delete) File: |\*\*\* Move to: |\+\+\+ b/)([^\s][^\n\t]*)', 'g') m
$$;

-- An argument as a text: the words of a command apart by blanks, but the last of a shell's.
create or replace function _memoir.argument_text(p_value jsonb)
returns text language sql immutable as $$
  select case jsonb_typeof(p_value)
    when 'string' then nullif(p_value #>> '{}', '')
    when 'number' then p_value #>> '{}'
    when 'array' then case when p_value ->> 0 ~ '^(?:\S*/)?(?:bash|sh|zsh)$' and p_value ->> 1 ~ '^-' then p_value ->> 2
      else (select nullif(string_agg(x, ' ' order by o), '')
        from jsonb_array_elements_text(p_value) with ordinality a(x, o) where o <= 1000) end end
$$;

-- The lines that arguments ask for, as a row of tools.csv says where.
create or replace function _memoir.asked_lines(p_arguments jsonb, p_lines text, out first integer, out last integer)
language plpgsql immutable as $$
declare
  v_way text; v_names text[]; v_one text; v_other text;
begin
  foreach v_way in array string_to_array(coalesce(p_lines, ''), ' ') loop
    v_names := regexp_split_to_array(v_way, '[+-]');
    if cardinality(v_names) = 1 then
      v_one := p_arguments -> v_way ->> 0;
      v_other := p_arguments -> v_way ->> 1;
    else
      v_one := p_arguments ->> v_names[1];
      v_other := p_arguments ->> v_names[2];
    end if;
    v_one := case when v_one ~ '^\d{1,9}$' then v_one end;
    v_other := case when v_other ~ '^\d{1,9}$' then v_other end;
    continue when v_one is null and v_other is null;
    first := greatest(coalesce(v_one::integer, 1), 1);
    last := case when strpos(v_way, '+') > 0 then first - 1 + v_other::integer else v_other::integer end;
    exit;
  end loop;
end $$;

-- Returns what a call does (p_arguments: its JSON text). A tool that nobody described is other: what it is about is
-- told by the usual names of arguments.
create or replace function _memoir.tool_use(p_config jsonb, p_name text, p_arguments text)
returns _memoir.tool_use language plpgsql immutable as $$
declare
  v_tool text := lower(p_name); v_arguments jsonb := _memoir.try_json(p_arguments); v_use _memoir.tool_use; v_own jsonb;
  v_key text; v_folder text;
begin
  -- The last name of a tool as its row has it: mcp__files__readFile is read_file. Most are, but for a first capital.
  if length(p_name) > 200 or translate(v_tool, 'abcdefghijklmnopqrstuvwxyz0123456789_', '') <> ''
    or substr(p_name, 2) <> substr(v_tool, 2) or strpos(p_name, '__') > 0 then
    v_tool := lower(regexp_replace(regexp_replace(regexp_replace(left(p_name, 200), '^.*(?:__|[.:/])', ''),
      '([[:lower:]\d])([[:upper:]])', '\1_\2', 'g'), '[^[:alnum:]]+', '_', 'g'));
  end if;
  v_own := coalesce(p_config -> 'object_tools' -> p_name, p_config -> 'object_tools' -> v_tool);
  if jsonb_typeof(v_arguments) is distinct from 'object' then
    v_arguments := jsonb_build_object('input', p_arguments);
  end if;
  if v_own is null then
    select to_jsonb(t) into v_own from _memoir.data_tools() t where t.tool = v_tool
      and (t.condition is null or v_arguments ->> split_part(t.condition, '=', 1) = split_part(t.condition, '=', 2))
    order by t.condition nulls last limit 1;
  end if;
  v_use.tool := left(p_name, 200);
  v_use.arguments := v_arguments;
  v_use.does := coalesce(v_own ->> 'does', 'other');
  v_use.texts := coalesce(string_to_array(nullif(v_own ->> 'texts', ''), ' '), '{}');
  foreach v_key in array string_to_array(coalesce(v_own ->> 'key',
    'file_path path filename url uri query command name id'), ' ') loop
    v_use.key := _memoir.argument_text(v_arguments -> v_key);
    exit when v_use.key is not null;
  end loop;
  v_folder := coalesce(v_arguments ->> 'workdir', v_arguments ->> 'cwd');
  if v_use.does = 'run' then
    select c.does, c.key, c.keys, c.first_line, c.last_line
    into v_use.does, v_use.key, v_use.keys, v_use.first_line, v_use.last_line
    from _memoir.command_use(v_use.key, v_folder) c;
  elsif v_use.does = 'patch' then
    v_use.keys := _memoir.patched_paths(v_use.key, v_folder);
    v_use.key := v_use.keys[1];
  elsif v_use.does in ('read', 'write', 'edit') then
    v_use.key := _memoir.plain_path(v_use.key, v_folder);
    select l.first, l.last into v_use.first_line, v_use.last_line
    from _memoir.asked_lines(v_arguments, v_own ->> 'lines') l;
  elsif v_use.does in ('search', 'list') and v_arguments ? 'path'
    and v_use.key is distinct from v_arguments ->> 'path' then
    v_use.key := concat_ws(' in ', v_use.key, _memoir.argument_text(v_arguments -> 'path'));
  end if;
  if v_use.does in ('write', 'edit') and v_use.keys is null then
    v_use.keys := array_remove(array[v_use.key], null);
  end if;
  v_use.key := case when length(v_use.key) > 400 then left(v_use.key, 380) || ' … ' || left(md5(v_use.key), 8)
    else nullif(v_use.key, '') end;
  v_use.type := coalesce(v_own ->> 'type', case when v_use.does in ('read', 'write') then 'file_context'
    when v_use.does in ('edit', 'patch') then 'code_context' when v_use.does = 'fetch' then 'external_reference'
    when v_use.does = 'plan' then 'plan' else 'tool_result' end);
  return v_use;
end $$;

-- The texts among arguments, wherever they stand in them, as paths of names and numbers; those of at least p_bytes.
create or replace function _memoir.argument_texts(p_arguments jsonb, p_bytes integer)
returns table (argument text[], body text) language sql immutable as $$
  with recursive walked as (select '{}'::text[] as at, p_arguments as value union all
    select w.at || c.name, c.value from walked w, lateral (select e.key as name, e.value
      from jsonb_each(case jsonb_typeof(w.value) when 'object' then w.value else '{}' end) e
      union all
      select (o - 1)::text, a
      from jsonb_array_elements(case jsonb_typeof(w.value) when 'array' then w.value else '[]' end)
        with ordinality x(a, o)) c
    where cardinality(w.at) < 6 and jsonb_typeof(c.value) in ('object', 'array', 'string'))
  select at, value #>> '{}' from walked where jsonb_typeof(value) = 'string' and octet_length(value #>> '{}') >= p_bytes
$$;
