-- Aliases: other names of the same thing (k8s and Kubernetes, GHA and GitHub Actions). They are learnt where the
-- person's own texts or memories say so, and given with remember; each belongs to the item that says it, so that what
-- takes the item out of search takes the alias along: a forget, an erase, a clearance, a project, a time before it was
-- known. Queries are widened by them.

-- Returns whether one is short for the other: capitals, initials, or the number of letters left out.
create or replace function _memoir.is_short_for(p_short text, p_long text)
returns boolean language plpgsql immutable as $$
declare
  v_short text := lower(regexp_replace(p_short, '[^[:alnum:]]', '', 'g')); v_words text[];
begin
  if v_short !~ '^[[:alpha:]].' or length(v_short) > 10 or length(p_long) <= length(p_short) then return false; end if;
  if v_short ~ '^[[:alpha:]]\d+[[:alpha:]]$' then
    return p_long ~ '^[[:alpha:]-]+$' and lower(left(p_long, 1)) = left(v_short, 1)
      and lower(right(p_long, 1)) = right(v_short, 1)
      and length(p_long) = substr(v_short, 2, length(v_short) - 2)::integer + 2;
  end if;
  v_words := regexp_split_to_array(btrim(p_long), '[[:space:]/-]+');
  -- GitHub Actions: GHA. One word of several capitals is none: JavaScript is not J S.
  return v_short = lower(regexp_replace(p_long, '[^[:upper:]]', '', 'g'))
    and (cardinality(v_words) > 1 or length(v_short) > 2)
    or cardinality(v_words) > 1 and v_short in (
      (select string_agg(lower(left(w, 1)), '' order by o) from unnest(v_words) with ordinality t(w, o)),
      (select string_agg(lower(left(w, 1)), '' order by o) from unnest(v_words) with ordinality t(w, o)
        where lower(w) <> all (_memoir.word_list('english', 'small_words'))));
end $$;

-- The end of a text (or its beginning), as few words as possible, that a short form is short for.
create or replace function _memoir.long_form(p_short text, p_text text, p_beginning boolean default false)
returns text language plpgsql immutable as $$
declare
  v_words text[] := regexp_split_to_array(btrim(p_text), '\s+'); v_long text; n integer := cardinality(v_words);
begin
  for i in 1 .. least(n, 8) loop
    v_long := btrim(array_to_string(case when p_beginning then v_words[1 : i] else v_words[n - i + 1 : n] end, ' '),
      ' ,;:"''“”');
    continue when v_long ~* ('^(' || _memoir.any_word('english', 'small_words') || ') ');
    if _memoir.is_short_for(p_short, v_long) then return v_long; end if;
  end loop;
  return null;
end $$;

-- How names are compared.
create or replace function _memoir.alias_key(p_name text)
returns text language sql immutable as $$ select btrim(regexp_replace(lower(normalize(p_name, nfkc)), '[^[:alnum:]]+',
  ' ', 'g')) $$;

-- Returns what a text says about names: pairs that are two names of one thing (stated), and capitalised phrases by
-- their initials.
create or replace function _memoir.aliases_in(p_text text)
returns table (name text, other text, stated boolean) language plpgsql immutable
  set plan_cache_mode = force_generic_plan as $$
declare
  v_text text := left(p_text, 20000); m text[]; v_long text; v_short text; v_inside text; v_before text; v_name text;
  v_pairs text[] := '{}';
  v_parts text[];
  -- A name: capitalised words, or one word with a digit or a capital inside.
  c_name constant text :=
    '((?:[[:upper:]][[:alnum:].&+''’-]*)(?: (?:of |and |for |the |de |in )?[[:upper:]][[:alnum:].&+''’-]*){0,5}'
      '|[[:alnum:]]*[[:alpha:]]\d[[:alnum:]]*|[[:alpha:]]{2,20})';
begin
  -- Kubernetes (k8s); machine learning (ML); GHA (GitHub Actions). Cut by hand: a pattern that looks back from each
  -- bracket takes a hundred times as long.
  if strpos(v_text, ')') > 0 then
    v_parts := string_to_array(v_text, '(');
    for i in 1 .. least(cardinality(v_parts) - 1, 50) loop
      continue when strpos(v_parts[i + 1], ')') not between 3 and 90;
      v_inside := btrim(split_part(v_parts[i + 1], ')', 1), ' "“”');
      v_before := right(v_parts[i], 90);
      if v_inside ~ '^[[:alpha:]][[:alnum:]&.+-]{1,11}$' then
        v_long := _memoir.long_form(v_inside, substring(v_before from '[^().;!?\n]*$'));
        if v_long is not null then v_pairs := v_pairs || array[v_inside, v_long]; end if;
      elsif v_inside ~ ' ' then
        v_short := substring(v_before from '\m([[:alpha:]][[:alnum:]&.+-]{1,11}) ?$');
        v_inside := regexp_replace(v_inside, '^(short for|i\.e\.|that is|the) ', '');
        if v_short is not null and _memoir.is_short_for(v_short, v_inside) then v_pairs := v_pairs || array[v_short,
          v_inside]; end if;
      end if;
    end loop;
  end if;
  -- GitHub Actions, or GHA.
  if v_text ~ ' or (simply |just )?["“]?[[:alnum:]]*[[:upper:][:digit:]]' then
    v_parts := string_to_array(v_text, ' or ');
    for i in 1 .. least(cardinality(v_parts) - 1, 50) loop
      v_short := substring(v_parts[i + 1] from '^(?:simply |just )?["“]?([[:alpha:]][[:alnum:]]{1,9})\M');
      continue when v_short is null or v_short !~ '[[:upper:]].*[[:upper:]]|\d';
      v_long := _memoir.long_form(v_short, rtrim(substring(right(v_parts[i], 90) from '[^().;!?\n]*$'), ','));
      if v_long is not null then v_pairs := v_pairs || array[v_short, v_long]; end if;
    end loop;
  end if;
  if v_text ~* '\m(aka|a\.k\.a|known as|short for|stands for|for short)\M' then
    for m in select x from regexp_matches(v_text,
      c_name || ',? (?:\()?(?:[Aa][Kk][Aa]|[Aa]\.[Kk]\.[Aa]\.?|(?:(?:which|who) is )?also known as|better known as) '
        '(?:the )?["“]?' || c_name, 'g') x loop
      v_pairs := v_pairs || array[m[1], m[2]];
    end loop;
    for m in select x from regexp_matches(v_text,
      '\m([[:alpha:]][[:alnum:]&.+-]{1,19}),? (?:is |was |\()?(?:short for|stands for|which stands for) (?:the '
        ')?["“]?([^().,;:!?\n"”]{2,90})', 'g') x loop
      v_long := coalesce(_memoir.long_form(m[1], m[2], true),
        substring(m[2] from '^[[:upper:]][[:alnum:]''’-]*(?: [[:upper:]][[:alnum:]''’-]*)*'));
      if v_long is not null then v_pairs := v_pairs || array[m[1], v_long]; end if;
    end loop;
    for m in select x from regexp_matches(v_text,
      '([^().;!?\n]{2,90}?),? (?:or |called |we say )?["“]?([[:alpha:]][[:alnum:]]{1,9})["”]?,? for short\M', 'g') x
      loop
      v_long := _memoir.long_form(m[2], m[1]);
      if v_long is not null then v_pairs := v_pairs || array[m[2], v_long]; end if;
    end loop;
  end if;
  for i in 1 .. cardinality(v_pairs) / 2 loop
    name := _memoir.alias_key(v_pairs[2 * i - 1]); other := _memoir.alias_key(v_pairs[2 * i]); stated := true;
    continue when name = other or length(name) not between 2 and 80 or length(other) not between 2 and 80;
    return next;
    v_name := name; name := other; other := v_name;
    return next;
  end loop;
  stated := false;
  for m in select distinct x from regexp_matches(v_text,
    '\m([[:upper:]][[:alnum:]]*(?: (?:of |the )?[[:upper:]][[:alnum:]]*)+)', 'g') x
    where length(regexp_replace(x[1], '[^[:upper:]]', '', 'g')) between 3 and 8
      and x[1] !~ '\m[[:upper:][:digit:]]+\M' loop
    v_long := m[1];
    loop
      name := lower(regexp_replace(v_long, '[^[:upper:]]', '', 'g')); other := _memoir.alias_key(v_long);
      if length(name) between 3 and 7 and length(other) <= 80 then return next; end if;
      -- A sentence begins with a capital, too.
      exit when v_long <> m[1] or v_long !~ ' .* ' and v_long !~ '^[[:upper:]][[:lower:]]+ ';
      v_long := regexp_replace(v_long, '^\S+ ', '');
      exit when v_long !~ ' ';
    end loop;
  end loop;
end $$;

-- Stores the aliases given with a memory. They are names of one thing, and so is the text beside them: a long form in
-- the content, the slot's value, or the content itself where it is but a name.
create or replace function _memoir.given_aliases(p_content text, p_aliases text[], p_slot_value text)
returns table (name text, other text, stated boolean) language plpgsql immutable
  set plan_cache_mode = force_generic_plan as $$
declare
  v_names text[] := array(select distinct _memoir.alias_key(a) from unnest(p_aliases) a); v_long text; a text; m text[];
begin
  foreach a in array p_aliases loop
    v_long := null;
    -- Any run of words of the content that one is short for, or that is short for it.
    for m in select x from regexp_matches(left(p_content, 2000), '([^().;!?\n]+)', 'g') x loop
      select w into v_long from (
        select array_to_string(t.words[i : j], ' ') as w
        from (select regexp_split_to_array(btrim(m[1]), '[\s,]+') as words) t,
          generate_series(1, cardinality(t.words)) i, generate_series(i, least(cardinality(t.words), i + 6)) j) s
      where _memoir.is_short_for(a, s.w) or _memoir.is_short_for(s.w, a) order by length(s.w), s.w limit 1;
      exit when v_long is not null;
    end loop;
    if v_long is null then
      v_long := coalesce(p_slot_value, case when cardinality(regexp_split_to_array(btrim(p_content), '\s+')) <= 4
        then p_content end,
        -- The only name in it.
        (select case when count(distinct x[1]) = 1 then min(x[1]) end from regexp_matches(left(p_content, 2000),
          '\m([[:upper:]][[:alnum:]&+-]*(?: [[:upper:]][[:alnum:]&+-]*){0,4})', 'g') x
            where to_tsvector('english', x[1]) <> ''));
    end if;
    if v_long is not null then v_names := v_names || _memoir.alias_key(v_long); end if;
  end loop;
  return query select n, o, true from (select distinct unnest(v_names) as n) x, (select distinct unnest(v_names) as o) y
  where n <> o and length(n) between 2 and 80 and length(o) between 2 and 80;
end $$;

-- Keeps what the texts of items say about names: of memories, and of turns in the person's own words.
create or replace function _memoir.note_aliases(p_user_id uuid, p_first integer, p_items _memoir.search_items[],
  p_texts text[])
returns void language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_count integer; v_text text; v_tells boolean;
begin
  -- Most texts say nothing of the kind.
  foreach v_text in array p_texts loop
    v_tells := v_text ~ '[[:alnum:]] ?\(.{2,}\)| or (simply |just )?["“]?[[:upper:]].?[[:upper:][:digit:]]|\m(aka'
      '|a\.k\.a|known as|short for|stands for|for short)\M|[[:upper:]][[:alnum:]]*[[:lower:]][[:alnum:]]* (of |the '
      ')?[[:upper:]]';
    exit when v_tells;
  end loop;
  if v_tells is not true then return; end if;
  insert into _memoir.search_aliases (user_id, item_no, name, other, stated)
  select p_user_id, (p_first + i.ordinality - 1)::integer, a.name, a.other, bool_or(a.stated)
  from rows from (unnest(p_texts), unnest(p_items)) with ordinality as i(body)
  cross join lateral _memoir.aliases_in(i.body) a
  where i.kind = 'm' or i.kind = 't' and (i.role = 'user' or i.speaker is not null) group by i.ordinality, a.name,
    a.other;
  get diagnostics v_count = row_count;
  if v_count > 0 then update _memoir.user_counters set aliases = aliases + v_count where user_id = p_user_id; end if;
end $$;

-- The other names of what a query names, by how many items say so. Initials count where the query writes them in
-- capitals. loose: those of what the query calls by common words, which may mean something else.
create or replace function _memoir.other_names(p_user_id uuid, p_counters _memoir.user_counters, p_config regconfig,
  p_query text, p_scope _memoir.search_scope, out names text[], out loose text[])
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_names text[]; v_initials text[];
begin
  names := '{}';
  loose := '{}';
  if coalesce(p_counters.aliases, 0) = 0 then return; end if;
  v_names := _memoir.names_in(p_query);
  v_initials := array(select lower(x[1]) from regexp_matches(left(p_query, 2000), '\m([[:upper:]]{3,7})\M', 'g') x);
  select coalesce(array_agg(f.other order by f.said desc, f.other) filter (where not f.loose), '{}'),
    coalesce(array_agg(f.other order by f.said desc, f.other) filter (where f.loose), '{}')
  into names, loose
  from (
    select o.other, max(o.said) as said,
      bool_and(_memoir.query_terms(p_config, o.name) <@ _memoir.common_terms(p_config, _memoir.query_terms(p_config,
        o.name))) as loose
    from (
      select a.name, a.other, count(*) as said, row_number() over (partition by a.name order by count(*) desc, a.other)
        as nth
      from _memoir.search_aliases a join _memoir.search_items i on i.user_id = p_user_id and i.item_no = a.item_no
      where a.user_id = p_user_id and a.name = any (v_names) and a.other <> all (v_names)
        and (a.stated or a.name = any (v_initials))
        and (not i.dead or (p_scope.as_of is not null and i.kind = 'm'))
        and (p_scope.as_of is null or i.recorded_at <= p_scope.as_of)
        and i.sensitivity <= coalesce(p_scope.clearance, 'normal')
        and (p_scope.projects is null or i.project = any (p_scope.projects))
        and (i.kind <> 'm' or i.session_id is null or i.session_id = any (p_scope.local_sessions))
      group by a.name, a.other) o
    where o.nth <= 3 group by o.other order by max(o.said) desc, o.other limit 8) f;
end $$;

-- The words of other names that a query does not have itself.
create or replace function _memoir.alias_terms(p_config regconfig, p_names text[], p_terms text[])
returns text[] language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  if p_names = '{}' then return '{}'; end if;
  return array(select distinct t from unnest(p_names) n, unnest(_memoir.query_terms(p_config, n)) t
    where t <> all (p_terms) order by t);
end $$;

-- Runs of one to five words of a text, as aliases are compared.
create or replace function _memoir.names_in(p_text text)
returns text[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_words text[] := (string_to_array(_memoir.alias_key(left(p_text, 2000)), ' '))[1 : 100];
begin
  return array(select distinct array_to_string(v_words[i : j], ' ') from generate_series(1, cardinality(v_words)) i,
    generate_series(i, least(cardinality(v_words), i + 4)) j);
end $$;

-- Returns whether two values are names of one thing, as the user's own texts have it.
create or replace function _memoir.same_thing(p_user_id uuid, p_one text, p_other text)
returns boolean language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  return exists (select from _memoir.search_aliases a join _memoir.search_items i on i.user_id = p_user_id
    and i.item_no = a.item_no
    where a.user_id = p_user_id and a.name = _memoir.alias_key(p_one) and a.other = _memoir.alias_key(p_other)
      and a.stated and not i.dead);
end $$;

create or replace function memoir.list_aliases(p_user text)
returns table (name text, other text, stated boolean, items integer, since timestamptz)
language plpgsql stable security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
begin
  return query
  select a.name, a.other, bool_or(a.stated), count(*)::integer, min(i.recorded_at)
  from _memoir.search_aliases a join _memoir.search_items i on i.user_id = v_caller.user_id and i.item_no = a.item_no
  where a.user_id = v_caller.user_id and not i.dead and i.sensitivity <= v_caller.clearance
    and (v_caller.projects is null or i.project = any (v_caller.projects))
  group by a.name, a.other order by a.name, a.other;
end $$;
comment on function memoir.list_aliases(text) is
  'Lists the other names of a user''s things: one row per name and other name, lower case. stated: a memory or a turn
says so, or it was given with remember; else other is a phrase whose initials are name, which counts where a query has
them in capitals. items: how many say so, since when. Raises PM001.';
