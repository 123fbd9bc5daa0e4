-- Secrets by the name before them: "password" and its like in code, on a command line or in a sentence of any language.

-- Returns what closes around a name, with a suffix of the name before it.
create or replace function _memoir.link_closing()
returns text language sql immutable as $$
  select '(?:[_-](?:base|prod|production|dev|development|stag(?:e|ing)|test|live|local|main|primary|secondary|old|new|current|next|backup'
    || '|value|string|plain|raw|default|v?[0-9]{1,2})(?![A-Za-z0-9]))??["''`»“”*_\\\])}>」』]{0,8}?'
$$;

-- A sign between a name and its value.
create or replace function _memoir.link_sign()
returns text language sql immutable as $$
  select '[ \t]*(?:(?:[?:+]{0,3}=>?|->|[→＝])[ \t*_]*|[:：][ \t*_]*\n?[ \t]*)'
$$;

-- Returns what may link a name with its value: a suffix of the name, what closes around it, words that say whose it is;
-- then a sign, a word for "is" (p_says), or a blank before what no word is.
create or replace function _memoir.link_pattern(p_of text, p_says text, p_spaced boolean)
returns text language sql immutable as $$
  select '^(?:(' || _memoir.link_closing()
    || case when p_spaced then '(?:[ \t]+\([^()\n]{1,60}\)|[ \t]+(?:' || p_of || ')(?:[ \t][^\n.:;!?="]{0,60}?)?)??'
      else '[ \t]{0,4}?(?:' || p_of || ')??' end || ')'
    || '(' || _memoir.link_sign()
    || case when p_spaced then '|(?:[ \t]+|(?=[,.;’'']))(?:' || p_says
      || ')(?:[ \t]*[:：][ \t]*|[ \t]+(?:(?:now|still|just|currently|actually|simply|ahora|jetzt|nun|maintenant)[ \t]+)?(?:[:：][ \t]*)?)'
      || '|[ \t]+(?=\S*[0-9@#$%^&*!=+~"''`]|[a-z]+(?:-[a-z]+){3})'
      else '|[ \t]*(?:' || p_says || ')[ \t]*(?:[:：][ \t]*)?|[ \t]+(?=\S*[0-9@#$%^&*!=+~"''`])|' end || ')){1,1}'
$$;

-- The link behind a name by that pattern: what closes around the name, and the link. Compiling the pattern takes a
-- hundred times as long as its match, and PostgreSQL keeps 32 patterns: where a sign follows, or nothing that could
-- link, as nearly everywhere in code, a small one tells the same.
create or replace function _memoir.link_behind(p_rest text, p_link text, p_spaced boolean)
returns text[] language plpgsql immutable as $$
declare
  v_link text[]; v_closed constant text := '^(?:[_-][A-Za-z0-9]{1,11})?["''`»“”*_\\\])}>」』]{0,8}';
begin
  if p_spaced then
    if p_rest ~ (v_closed || '[ \t]*[?:+=→＝：-]') then
      v_link := regexp_match(p_rest, '^(?:(' || _memoir.link_closing() || ')(' || _memoir.link_sign() || ')){1,1}', 'i');
    end if;
    if v_link is not null or p_rest !~* (v_closed || '(?:[ \t]|[,.;] ?(?:it|that)|[’'']s)') then return v_link; end if;
  end if;
  return regexp_match(p_rest, p_link, 'i');
end $$;

-- The link behind a name, the value, and the end of the sentence if it ends there.
create or replace function _memoir.linked_value(p_rest text, p_link text, p_spaced boolean)
returns text[] language plpgsql immutable as $$
declare
  v_link text[] := _memoir.link_behind(p_rest, p_link, p_spaced); v_rest text; v_value text;
begin
  if v_link is null then return null; end if;
  v_rest := substr(p_rest, length(v_link[1]) + length(v_link[2]) + 1);
  v_value := substring(v_rest from '^(?:' || _memoir.value_pattern() || ')');
  if v_value is null then return null; end if;
  return array[v_link[2], v_value, substring(substr(v_rest, length(v_value) + 1)
    from '^(?:\s*(?:[.,;!?)\n]|\Z)|[ \t]+(?:and|but|so|und|y|et|e|en)(?=[ \t])|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])')];
end $$;

-- Values behind names of one kind. The pieces are cut at the stems of names first: a pattern for names and all that may
-- follow takes a hundred times as long. What is said twice is judged once; of more than five hundred different ones,
-- those beyond are secret if they are letters with digits behind a sign.
create or replace function _memoir.values_named(p_text text, p_stems text[], p_kind text, p_language text,
  p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  -- Of other languages the stem may stand within the name.
  v_back integer := case when p_language = 'english' then 0 else 10 end;
  v_names text := case v_back when 0 then '(?i)^()(' else '(?i)^(?:(.{0,10}?)(' end || case p_kind when 'key'
    then _memoir.any_word(p_language, 'key_names')
    else _memoir.any_word(p_language, 'password_names') end || case v_back when 0 then ')' else ')){1,1}' end;
  v_spaced boolean := p_language not in ('chinese', 'japanese', 'korean', 'thai');
  v_link text := _memoir.link_pattern(coalesce(nullif(_memoir.any_word(p_language, 'password_of'), ''),
    'for|of|to|on|at|in|from'), _memoir.any_word(p_language, 'password_says'), v_spaced);
  v_text text := p_text; v_stem text;
  v_before text; v_rest text; v_name text; v_found text[]; v_tries integer := 0;
begin
  for v_stem in select distinct unnest(array[t, upper(left(t, 1)) || substr(t, 2), upper(t)])
    from unnest(p_stems) t loop
    v_text := replace(v_text, v_stem, E'\x01' || v_stem);
  end loop;
  for v_before, v_rest in
    with cut as (
      select n, lag(ends) over w as before, begins, long, lead(begins) over w as second, lead(begins, 2) over w as third
      from (select n, left(part, 220) as begins, right(part, 16) as ends, length(part) as long
        from string_to_table(v_text, E'\x01') with ordinality c(part, n)) s
      window w as (order by n)
    ), named as (
      -- A value may hold a name. It stands in the same line, or in the next if that ends with the name.
      select case when v_back > 0 then '' else before end as before,
        case when v_back > 0 then right(before, v_back) else '' end || case when long >= 220 then begins
          else left(concat(begins, second, third), 220) end as rest
      from cut where n > 1 and long + length(concat(second, third)) >= case p_kind when 'key' then 12 else 6 end
    )
    select distinct before, case when strpos(rest, E'\n') > 16 then split_part(rest, E'\n', 1) else rest end from named
    where p_kind <> 'key' or strpos(rest || E'\n', E'\n') > 12 or rest ~ '^[^\n]+[:=][ \t]*\n'
  loop
    -- The keys of machines are long.
    continue when p_kind = 'key' and v_rest !~ '^[^\n]*?[=:>\s"''`][^\s"''`<>(){},;]{8}';
    v_tries := v_tries + 1;
    if v_tries > 500 then
      value := substring(v_rest from '^[^\s=:：]{2,16}[ \t]*[=:：][ \t]*["''`]?([^\s"''`,;(){}<>]{8,})');
      continue when value is null or length(value) < 16 and p_kind = 'key' or value !~ '[A-Za-z]'
        or translate(value, '0123456789', '') = value;
      kind := case p_kind when 'key' then 'token' else p_kind end;
      return next;
      exit when not p_all;
      continue;
    end if;
    v_found := regexp_match(v_rest, v_names);
    continue when v_found is null;
    v_name := v_found[2];
    v_found := _memoir.linked_value(substr(v_rest, length(v_found[1]) + length(v_name) + 1), v_link,
      v_spaced);
    continue when v_found is null;
    -- "pass" and what is shorter are names where no letter is before them, but that of a machine's user.
    continue when p_kind = 'password' and p_language = 'english' and length(v_name) <= 4 and v_before ~ '[A-Za-z]$'
      and not (lower(v_name) = 'pwd' or v_before ~ '[a-z]$' and ascii(v_name) < 96
        or lower(v_name) = 'pass' and v_before ~* '(?:db|user|admin|root|smtp|mail|ftp|ssh|sudo|login|store|key)$');
    v_found := array[case when strpos(v_before, '-') > 0 then substring(v_before
      from '(?:^|[^A-Za-z0-9-])(--?[A-Za-z-]*)$') end,
      case p_kind when 'key' then substring(v_before from '[A-Za-z]*[ _.-]?$') || '/' || v_name
        else v_name end] || v_found;
    continue when not (case p_kind when 'key' then _memoir.is_key(v_found)
      else _memoir.is_password(v_found, p_language) end);
    kind := case p_kind when 'key' then 'token' else p_kind end;
    value := _memoir.bare_value(v_found[4]);
    return next;
    exit when not p_all;
  end loop;
end $$;

-- The languages whose names of passwords may be in a text, by what marks_in() found.
create or replace function _memoir.languages_of(p_marks text[])
returns text[] language plpgsql immutable as $$
begin
  if not p_marks && _memoir.marks_of('foreign') then return '{}'; end if;
  return array(select distinct split_part(m, '/', 1) from unnest(_memoir.foreign_marks()) m
    where split_part(m, '/', 2) = any (p_marks));
end $$;

-- Values of passwords, keys and tokens behind their names.
create or replace function _memoir.named_secrets(p_pieces text[], p_marks text[], p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_language text; v_stems text[]; v_text text;
begin
  if not p_marks && (_memoir.marks_of('passwords') || _memoir.marks_of('keys') || _memoir.marks_of('foreign'))
    then return; end if;
  v_text := replace(array_to_string(p_pieces, E'\n\n'), E'\x01', ' ');
  if p_marks && _memoir.marks_of('passwords') then
    v_stems := array(select m from unnest(_memoir.marks_of('passwords')) m where m = any (p_marks));
    return query select * from _memoir.values_named(v_text, v_stems, 'password', 'english', p_all);
  end if;
  if p_marks && _memoir.marks_of('keys') and ('secret' = any (p_marks)
      or v_text ~ '[A-Za-z+/=_-][0-9]|[0-9][A-Za-z+/=_-]|[A-Za-z+/_-]{20}') then
    v_stems := array(select m from unnest(_memoir.marks_of('keys')) m where m = any (p_marks));
    return query select * from _memoir.values_named(v_text, v_stems, 'key', 'english', p_all);
  end if;
  foreach v_language in array _memoir.languages_of(p_marks) loop
    v_stems := array(select split_part(m, '/', 2) from unnest(_memoir.foreign_marks()) m
      where split_part(m, '/', 1) = v_language
      and split_part(m, '/', 2) = any (p_marks));
    return query select * from _memoir.values_named(v_text, v_stems, 'password', v_language, p_all);
  end loop;
end $$;
