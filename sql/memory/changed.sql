-- What a change has to do with an earlier statement: another value of the same kind, another sort of the same thing,
-- other words for it. changes.sql finds the changes.

-- Of whom a clause speaks: self, somebody near by their word ("my sister"), null where it does not say. In other
-- languages than English that word is whatever is the speaker's.
create or replace function _memoir.subject_of(p_plain text, p_language text)
returns text language sql immutable as $$
  select case when p_language <> 'english' then lower((regexp_match(p_plain, '^(?:(?:o|a|il|la) )?(?:'
      || nullif(_memoir.any_word(p_language, 'possessives'), '') || ') ([[:alpha:]-]+)', 'i'))[1])
    when p_plain ~* '^(?:i|we) (?!said|meant|thought|told|wrote|typed|claimed)' then coalesce((regexp_match(p_plain,
      '^(?:i|we) [[:alpha:]]+ (?:my|our) ('
      || _memoir.any_word(p_language, 'persons') || ')\M (?:out|from|to|off|into)\M', 'i'))[1], 'self')
    else (regexp_match(p_plain, '^(?:my|our|his|her|their|the|[[:alpha:]]+''s) (?:[[:alpha:]-]+ )?('
      || _memoir.any_word(p_language,
      'persons') || ')\M', 'i'))[1] end
$$;

-- Of earlier clauses those that a clause changes: the best, where its margin is clear, and what says the same as it.
create or replace function _memoir.changed_units(p_units _memoir.said_unit[], p_plains text[],
  p_said _memoir.said_values[], p_one _memoir.change_candidate, p_language text,
  p_turn _memoir.conversation_history)
returns setof _memoir.found_change language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_found _memoir.found_change; v_all _memoir.found_change[] := '{}';
  v_best _memoir.found_change; v_at integer[] := '{}'; v_best_at integer; v_same boolean[];
  v_subject text := _memoir.subject_of(p_one.plain, p_language); v_theirs text[];
  v_names text[] := tsvector_to_array(to_tsvector(p_language::regconfig, array_to_string((p_one.new).names, ' ')));
  v_context text; v_around text[]; v_changing text[] := _memoir.word_list(p_language, 'change_words');
  -- "Lena's flight" is not mine.
  v_owner text := (regexp_match(p_one.plain, '^([[:upper:]][[:alpha:]]+)''s '))[1];
  -- Nor is what "she" does.
  v_of_another boolean := p_language = 'english' and p_one.plain ~* '^(?:she|he|they|her|his|their)\M';
  v_self text := '^(?:' || nullif(_memoir.any_word(p_language, 'first_person'), '') || '|we|my|our)\M';
begin
  v_theirs := array(select _memoir.subject_of(p, p_language) from unnest(p_plains) with ordinality x(p, o) order by o);
  for i in 1 .. cardinality(p_units) loop
    -- "Thanks, Gina!" says nothing that could change.
    continue when (p_said[i]).kinds = '{}' and p_plains[i] !~ ' .* ' and p_plains[i] !~* v_self;
    continue when v_subject <> v_theirs[i] or v_of_another and v_theirs[i] = 'self'
      or not _memoir.has_words(p_units[i].context, v_owner)
      and p_plains[i] ~* v_self;
    if p_units[i].context is distinct from v_context then
      v_context := p_units[i].context;
      v_around := _memoir.topics(v_context, p_language, v_changing);
    end if;
    v_found := _memoir.change_of(p_units[i], p_plains[i], p_said[i], v_around, p_one, v_names, p_language, p_turn);
    if v_found.kind is not null then v_all := v_all || v_found; v_at := v_at || i; end if;
  end loop;
  select o into v_best_at from unnest(v_all) with ordinality f(span_start, span_length, said, unit, olds, kind, score,
    o)
  order by f.score desc, (f.unit).created_at desc, (f.unit).turn_index desc limit 1;
  if v_best_at is null then return; end if;
  v_best := v_all[v_best_at];
  -- What was said of the very same thing, whatever its value: each earlier word on it is over.
  v_same := array(select v_best.kind = 'value' and _memoir.is_one_matter(p_said[a], p_said[v_at[v_best_at]])
    from unnest(v_at) with ordinality x(a, o) order by o);
  -- Another one as near with another value: it is not clear which is meant.
  if v_best.kind in ('value', 'name') and exists (select from unnest(v_same) with ordinality x(same, o)
    where not same and (v_all[o]).kind = v_best.kind and (v_all[o]).score > 0.85 * v_best.score
      and ((v_all[o]).unit).message_id <> (v_best.unit).message_id and not (v_all[o]).olds && v_best.olds) then
    return;
  end if;
  return query select f.* from unnest(v_same) with ordinality x(same, o), lateral (select (v_all[o]).*) f
  where f.kind = v_best.kind and f.score >= 0.75 * v_best.score and (same or f.olds && v_best.olds or f.kind = 'over'
      or (f.unit).message_id = (v_best.unit).message_id and (f.unit).span_start = (v_best.unit).span_start);
end $$;

-- Returns whether two clauses say values of the same kinds of the same thing: what the one is about the other is, too,
-- and where they differ nobody is named.
create or replace function _memoir.is_one_matter(p_one _memoir.said_values, p_other _memoir.said_values)
returns boolean language sql immutable as $$
  select p_one.topics <> '{}' and p_other.topics <> '{}' and p_one.kinds && p_other.kinds
    and (p_one.topics <@ p_other.topics or p_other.topics <@ p_one.topics)
    and (select count(*) from unnest(p_one.topics || p_other.topics) t
      where not (t = any (p_one.topics) and t = any (p_other.topics))) <= 2
    and p_one.names <@ p_other.names and p_other.names <@ p_one.names
$$;

-- Returns what a clause changes of an earlier one, and how sure that is; kind is null where it changes nothing.
create or replace function _memoir.change_of(p_unit _memoir.said_unit, p_unit_plain text, p_old _memoir.said_values,
  p_around text[], p_one _memoir.change_candidate, p_names text[], p_language text,
  p_turn _memoir.conversation_history)
returns _memoir.found_change language plpgsql stable as $$
declare
  v_clause _memoir.said_clause := p_one.clause; v_new _memoir.said_values := p_one.new; v_hit text; v_cover real;
  v_found _memoir.found_change := (v_clause.span_start, v_clause.span_length, v_clause.said, p_unit, '{}', null, 0);
begin
  -- The value is named that is over.
  foreach v_hit in array p_one.olds loop
    v_cover := _memoir.coverage(v_new.topics, p_names, p_old.topics, p_around);
    if _memoir.has_words(p_unit.said, v_hit) and (v_hit ~ '[[:upper:]]|\d' and not _memoir.covers(p_old.raws
        || p_old.names, array(select x from unnest(v_new.raws || v_new.names) x where lower(x) <> lower(v_hit)))
      or v_hit !~ '[[:upper:]]|\d' and (p_one.is_over and not _memoir.covers(p_old.raws || p_old.names, v_new.raws
        || v_new.names) or (p_one.is_sure or p_one.is_over and v_new.raws = '{}') and v_cover >= 0.3
        -- "No, not teal, mint!", shortly after.
        or p_one.cue and p_unit.session_id = p_turn.session_id and p_unit.turn_index >= p_turn.turn_index - 6
          and length(p_one.plain) <= 40
        -- "vegetarian rather than vegan": the old clause says little else.
        or p_old.topics <> '{}' and p_old.topics <@ _memoir.topics(v_hit, p_language, '{}'))) then
      v_found.kind := 'named'; v_found.olds := array[v_hit];
      v_found.score := 1 + v_cover;
    end if;
  end loop;
  if v_found.kind is null then
    v_found := _memoir.other_value(v_found, v_new, p_old, p_around, p_names, p_one.cue,
      case when p_one.is_sure then 0.5 else 0.6 end::real, p_one.plain, p_one.olds, p_language);
  end if;
  if v_found.kind is not null or p_unit.is_question and not p_one.is_answer then return v_found; end if;
  if p_one.cue and not p_unit.is_question then
    v_found := _memoir.other_words(v_found, p_one, p_unit_plain, p_old, p_names, p_language);
    if v_found.kind is not null then return v_found; end if;
  end if;
  if not p_unit.is_question and p_one.thing is not null and p_unit_plain ~*
    replace(_memoir.any_word(p_language, 'had_thing'), '{1}', p_one.thing) then
    v_found.kind := 'over'; v_found.score := 1;
  elsif p_one.is_over and not p_unit.is_question and cardinality(v_new.topics) > 0 and p_unit_plain !~*
    ('\m(?:' || _memoir.any_word(p_language, 'negations') || ')\M') then
    v_cover := _memoir.coverage(v_new.topics, p_names, p_old.topics, '{}');
    if v_cover >= 0.6 then v_found.kind := 'over'; v_found.score := v_cover; end if;
  end if;
  -- An answer names the value alone.
  if v_found.kind is null and p_one.is_answer and p_unit.session_id = p_turn.session_id
    and p_unit.turn_index >= p_turn.turn_index - 6 and cardinality(v_new.topics) <= 2 then
    v_hit := (select p_old.raws[o] from unnest(p_old.kinds, p_old.vals) with ordinality x(k, v, o)
      where k = any (v_new.kinds) and v <> all (v_new.vals) order by o limit 1);
    if v_hit is not null then
      v_found.kind := 'answer'; v_found.olds := array[v_hit];
      v_found.score := 0.7 + 0.01 * (p_unit.turn_index - p_turn.turn_index);
    end if;
  end if;
  return v_found;
end $$;

-- Another value of the same kind said of the same thing: numbers, days, times, codes; else names.
create or replace function _memoir.other_value(inout p_found _memoir.found_change, p_new _memoir.said_values,
  p_old _memoir.said_values,
  p_around text[], p_names text[], p_cue boolean, p_floor real, p_plain text, p_olds text[], p_language text)
language plpgsql stable as $$
declare
  v_kind text; v_cover real; v_back real; v_shared text[]; v_place text; v_same boolean; v_two boolean;
begin
  v_shared := array(select t from unnest(p_new.topics) t where t = any (p_old.topics));
  if _memoir.are_two(p_plain, (p_found.unit).said, (p_found.unit).context, v_shared, p_language) then return; end if;
  v_cover := _memoir.coverage(p_new.topics, p_names, p_old.topics, p_around);
  -- "My classroom is room 31": whatever else is said of it.
  if p_cue and v_shared <> '{}' and _memoir.subject_phrase(p_plain, p_language)
      = _memoir.subject_phrase((p_found.unit).said, p_language) then
    v_cover := greatest(v_cover, 0.9);
  end if;
  v_back := _memoir.coverage(p_old.topics, '{}', p_new.topics, '{}');
  -- "The 10k in 51:15", in 52:40 before.
  v_same := p_cue and exists (select from unnest(p_new.kinds, p_new.vals) n(k, v), unnest(p_old.kinds, p_old.vals) o(k,
    v)
    where n.k = 'code' and o.k = 'code' and n.v = o.v);
  v_two := v_shared <> '{}' and _memoir.sorts_differ(p_plain, (p_found.unit).said, (p_found.unit).context, v_shared,
    p_new.raws || p_old.raws, p_language);
  foreach v_kind in array '{date,time,email,code,number,weekday,how often,rank,colour,month,part of day}'::text[] loop
    continue when v_kind <> all (p_new.kinds) or v_kind <> all (p_old.kinds);
    continue when v_kind = any (_memoir.soft_kinds()) and not p_cue;
    continue when exists (select from unnest(p_new.kinds, p_new.vals) n(k, v), unnest(p_old.kinds, p_old.vals) o(k, v)
      where n.k = v_kind and o.k = v_kind and n.v = o.v);
    -- "60 sets instead of 48": no other number.
    continue when v_kind = 'number' and not p_old.raws && p_olds
      and exists (select from unnest(p_olds) o where o ~ '^[\d.,]*\d$');
    -- "At the eye doctor on the 17th", "at the skin doctor on the 3rd".
    continue when v_two;
    -- Two flights to two towns are two.
    continue when p_new.names <> '{}' and p_old.names <> '{}' and not p_new.names && p_old.names
      and not exists (select from unnest(p_names) s where s = any (p_old.topics || p_around));
    if v_shared <> '{}' and (p_cue and v_cover >= p_floor or v_cover >= 0.95 and v_back >= 0.5)
      or v_same
      or v_kind in ('date', 'time', 'weekday') and p_cue and v_cover >= 0.5 and p_new.topics <> '{}'
      or p_cue and v_shared <> '{}' and v_cover >= 0.3 and lower(p_plain) ~ ('\m(?:' || nullif(_memoir.any_word(
        p_language, 'shifted'), '') || ')\M')
      or v_kind in ('email', 'code') and p_cue and v_cover >= 0.4 and v_shared <> '{}'
      -- "Use … from now on": people have one address that they tell.
      or v_kind = 'email' and p_cue and _memoir.subject_of(p_plain, p_language) is null
        and (p_found.unit).said ~* ('^(?:' || _memoir.any_word(p_language, 'own_starts') || ')\M') then
      p_found.kind := 'value';
      p_found.score := v_cover + 0.1 * v_back;
      p_found.olds := array(select r from unnest(p_old.kinds, p_old.raws) x(k, r) where k = v_kind);
      return;
    end if;
  end loop;
  -- "at the museum instead": another place.
  v_place := _memoir.new_place(p_plain, p_language);
  if p_cue and v_shared <> '{}' and v_place is not null then
    p_found.olds := regexp_match((p_found.unit).said, _memoir.any_word(p_language, 'places'), 'i');
    if v_place <> lower(p_found.olds[1]) then
      p_found.score := v_cover;
      if v_cover >= 0.5 then p_found.kind := 'name'; end if;
      return;
    end if;
    p_found.olds := '{}';
  end if;
  if p_cue and p_new.names <> '{}' and p_old.names <> '{}' and p_new.kinds <@ _memoir.soft_kinds()
    and (not p_new.names && p_old.names
    or cardinality(p_new.names) > 1 and cardinality(p_new.names) = cardinality(p_old.names)
      and not p_new.names @> p_old.names) then
    v_cover := _memoir.coverage(array(select t from unnest(p_new.topics) t
      where t <> all (p_names)), '{}', p_old.topics,
      p_around);
    if v_shared <> '{}' and (v_cover >= p_floor or v_cover >= 0.5 and exists (select from unnest(v_shared) s
      where s = any (p_old.names) or strpos(p_plain, initcap(s)) > 0)) then
      p_found.kind := 'name';
      p_found.score := v_cover;
      p_found.olds := p_old.names;
    end if;
  end if;
  -- "I'm with the fraud team", who worked in the payments team: another one of the same.
  if p_found.kind is null and p_cue and v_shared <> '{}' and p_new.kinds <@ _memoir.soft_kinds()
    and cardinality(p_new.topics) <= 4 and cardinality(p_old.topics) <= 5 and length((p_found.unit).context) <= 160 then
    p_found := _memoir.other_sort(p_found, p_plain, v_shared, v_cover, p_language);
  end if;
end $$;

-- Returns what a clause speaks of, up to its verb: "classroom" of "my classroom is room 31".
create or replace function _memoir.subject_phrase(p_said text, p_language text)
returns text language sql immutable as $$
  select lower((regexp_match(p_said, '^(?:(?:o|a|il|la) )?(?:my|our|the'
    || coalesce('|' || nullif(_memoir.any_word(p_language, 'possessives'), ''), '') || '|[[:upper:]][[:alpha:]]+''s) '
    || '((?:[[:alpha:]-]+ ){0,3}?[[:alpha:]-]+) (?:' || nullif(_memoir.any_word(p_language, 'subject_verbs'), '')
    || ')(?![[:alpha:]])', 'i'))[1])
$$;

-- Two things of one sort: "my hairdresser appointment", "the vet appointment".
create or replace function _memoir.are_two(p_plain text, p_old text, p_context text, p_shared text[], p_language text)
returns boolean language plpgsql immutable as $$
declare
  v_new text[] := string_to_array(_memoir.subject_phrase(p_plain, p_language), ' '); v_head text; v_of text;
begin
  if p_language <> 'english' or coalesce(cardinality(v_new), 0) <> 2 then return false; end if;
  v_head := v_new[2];
  v_of := lower((regexp_match(p_old, '^(?:my|our|the|[[:upper:]][[:alpha:]]+''s) ([[:alpha:]-]+) ' || v_head || '\M',
    'i'))[1]);
  return v_of <> v_new[1] and not (array[v_of, v_new[1]] && '{new,old,last,next,first,same,current,former,previous}')
    and _memoir.topics(v_head, p_language, '{}') && p_shared
    and not _memoir.has_words(p_context, v_new[1]) and not _memoir.has_words(p_plain, v_of);
end $$;

-- The same noun with another word before it, where a clause says it of its subject: "night shifts", "day shifts". At a
-- clause's beginning the word tells which one is meant, and changes nothing.
create or replace function _memoir.other_sort(inout p_found _memoir.found_change, p_plain text, p_shared text[],
  p_cover real, p_language text)
language plpgsql stable as $$
declare
  v_new text[] := _memoir.sorts_in(p_plain, p_shared, p_language);
  v_old text[] := _memoir.sorts_in((p_found.unit).said, p_shared, p_language); v_pair text[];
begin
  select array[n, o] into v_pair from unnest(v_new) n, unnest(v_old) o
  where split_part(n, ' ', 2) = split_part(o, ' ', 2) and split_part(n, ' ', 1) <> split_part(o, ' ', 1) limit 1;
  if v_pair is null or _memoir.has_words((p_found.unit).said, split_part(v_pair[1], ' ', 1))
    or _memoir.has_words(p_plain, split_part(v_pair[2], ' ', 1)) then
    return;
  end if;
  p_found.kind := 'name';
  p_found.score := greatest(p_cover, 0.5);
  p_found.olds := array[(regexp_match((p_found.unit).said, '\m' || split_part(v_pair[2], ' ', 1) || ' [[:alpha:]]+',
    'i'))[1]];
end $$;

-- Pairs of words in a clause ("night shift") of which the latter, as its stem, is one of some topics; but for its
-- beginning, unless it says nothing else ("no, south entrance").
create or replace function _memoir.sorts_in(p_said text, p_topics text[], p_language text)
returns text[] language sql stable as $$
  select coalesce(array_agg(lower(w) || ' ' || stem), '{}')
  from (select w, lead(w) over (order by o) as head, o
    from unnest(regexp_split_to_array(p_said, '[^[:alpha:]''-]+')) with ordinality x(w, o)) x,
    lateral (select (tsvector_to_array(_memoir.words(p_language::regconfig, lower(head))))[1]) s(stem)
  where (o > 2 or p_said ~ '^(?:the )?[[:lower:]-]+ [[:lower:]-]+$') and stem = any (p_topics) and length(w) > 2
    and tsvector_to_array(_memoir.words(p_language::regconfig, lower(w))) <> '{}'
    and lower(w) <> all ('{new,old,last,next,first,same,current,former,previous}')
$$;

-- The opposite liking, another spelling of a name, the end of a job, or, where no doubt is left, other words said of
-- the same thing.
create or replace function _memoir.other_words(inout p_found _memoir.found_change, p_one _memoir.change_candidate,
  p_unit_plain text, p_old _memoir.said_values, p_names text[], p_language text)
language plpgsql stable as $$
declare
  v_liking integer := _memoir.liking(p_one.plain, p_language); v_topics text[] := (p_one.new).topics; v_cover real;
  v_spelt text; v_denies text := '\m(?:' || nullif(_memoir.any_word(p_language, 'negations'), '') || ')\M';
begin
  if v_liking is not null and _memoir.liking(p_unit_plain, p_language) = - v_liking then
    v_topics := array(select t from unnest(v_topics) t where t <> all (tsvector_to_array(to_tsvector(
      p_language::regconfig, 'love like enjoy adore hate dislike detest despise loathe stand fan want keen fond'))));
    v_cover := _memoir.coverage(v_topics, p_names, p_old.topics, '{}');
    if v_cover >= 0.5 then p_found.kind := 'over'; p_found.score := v_cover; return; end if;
  end if;
  if p_one.is_answer or lower((p_one.clause).sentence) ~ nullif(_memoir.any_word(p_language, 'spelling_cues'), '') then
    v_spelt := (select o from unnest(p_old.names) o where exists (select from unnest((p_one.new).names) n
      where _memoir.is_spelt_anew(n, o)) limit 1);
  end if;
  if v_spelt is not null then
    p_found.kind := 'name'; p_found.score := 0.8; p_found.olds := array[v_spelt];
    return;
  end if;
  if (_memoir.subject_of(p_one.plain, p_language) = _memoir.subject_of(p_unit_plain, p_language)
      or lower(split_part(p_one.plain, ' ', 1)) = any (p_old.names) and p_one.plain ~ '^[[:upper:]]'
      -- "The hotel let me go."
      or p_one.plain ~* ' me\M' and _memoir.subject_of(p_unit_plain, p_language) = 'self')
    and p_one.plain ~* ('\m(?:' || nullif(_memoir.any_word(p_language, 'job_over'), '') || ')\M')
    and p_unit_plain ~* ('\m(?:' || nullif(_memoir.any_word(p_language, 'job_says'), '') || ')\M') then
    p_found.kind := 'over'; p_found.score := 0.8;
    return;
  end if;
  -- "Penicillin is fine for me", who could not have it.
  if array(select t from unnest(v_topics) t where t <> all (_memoir.word_list(p_language, 'health_matters')))
      && p_old.topics and p_one.plain ~* ('\m(?:' || nullif(_memoir.any_word(p_language, 'health_fine'), '')
      || ')\M') and p_unit_plain ~* ('\m(?:' || nullif(_memoir.any_word(p_language, 'health_kept'), '') || ')\M') then
    p_found.kind := 'over'; p_found.score := 0.8;
    return;
  end if;
  -- "I'm not lactose intolerant": the same, and denied.
  if v_topics <> '{}' and v_topics @> p_old.topics and p_old.topics <> '{}' and cardinality(v_topics)
      <= cardinality(p_old.topics) + 1 and p_one.plain ~* v_denies and p_unit_plain !~* v_denies
    and split_part(lower(p_one.plain), ' ', 1) = split_part(lower(p_unit_plain), ' ', 1) then
    p_found.kind := 'over'; p_found.score := 0.9;
    return;
  end if;
  -- "I have my driving licence", who had said that he did not have one.
  v_spelt := lower((regexp_match(p_unit_plain, nullif(_memoir.any_word(p_language, 'denied_verb'), ''), 'i'))[1]);
  if p_one.plain ~* ('^(?:I|we) ' || v_spelt || '\M') and v_topics <> '{}' and v_topics <@ p_old.topics
    and (cardinality(v_topics) > 1 or cardinality(p_old.topics) <= 2) then
    p_found.kind := 'over'; p_found.score := 0.8;
    return;
  end if;
  v_spelt := (regexp_match(p_one.plain, nullif(_memoir.any_word(p_language, 'switched_matters'), ''), 'i'))[1];
  if v_spelt <> all (_memoir.word_list(p_language, 'replaced_things')) and (p_one.new).kinds <@ _memoir.soft_kinds()
    and cardinality(p_old.topics) <= 4
    and p_old.topics && _memoir.topics(v_spelt, p_language, '{}') then
    p_found.kind := 'name'; p_found.score := 0.7; p_found.olds := array[(p_found.unit).said];
    return;
  end if;
  if length((p_found.unit).context) <= 160 then
    p_found.olds := array[_memoir.in_frame(p_one.plain, p_unit_plain, p_language)];
  end if;
  if p_found.olds[1] is not null and (p_one.new).kinds <@ _memoir.soft_kinds() and not p_old.kinds && '{date,time}' then
    p_found.kind := 'name'; p_found.score := 0.7;
    return;
  end if;
  p_found.olds := '{}';
  if p_one.is_sure then
    v_cover := _memoir.coverage(v_topics, p_names, p_old.topics, '{}');
    if v_cover >= 0.5 and v_cover < 1 and cardinality(v_topics) between 2 and 4
      and cardinality(p_old.topics) <= 5 and (select count(*) from unnest(v_topics) t where t = any (p_old.topics))
        >= least(2, cardinality(p_old.topics) - 1) then
      p_found.kind := 'over'; p_found.score := v_cover;
    end if;
  end if;
end $$;

-- Returns what an older clause says where a newer one, that begins alike, says something else: "I use Vim", "I use
-- Helix". What is alike must hold one value at a time: a verb of which that is so, the same words behind it, or where
-- something is.
create or replace function _memoir.in_frame(p_new text, p_old text, p_language text)
returns text language plpgsql immutable as $$
declare
  v_ends text := '(?:,? (?:' || nullif(_memoir.any_word(p_language, 'frame_ends'), '') || '))+$';
  v_new text[] := regexp_split_to_array(regexp_replace(lower(p_new), v_ends, ''), '[^[:alnum:]''-]+');
  v_old text[] := regexp_split_to_array(regexp_replace(lower(p_old), v_ends, ''), '[^[:alnum:]''-]+');
  v_head integer := 0; v_tail integer := 0; v_least integer; v_others text; v_olds text;
  v_place text := '^(?:in|at|on) ';
  v_with text := '(?:^| )(?:in|at|on|for|with|to|from|as|by|home)(?: |$)';  -- for another use, at another place
  v_verbs text[] := _memoir.word_list(p_language, 'single_verbs');
begin
  v_least := least(cardinality(v_new), cardinality(v_old));
  while v_head < v_least and v_new[v_head + 1] = v_old[v_head + 1] loop v_head := v_head + 1; end loop;
  if v_verbs = '{}' or v_head < 2 or v_head = v_least then return null; end if;
  while v_tail < v_least - v_head - 1 and v_new[cardinality(v_new) - v_tail] = v_old[cardinality(v_old) - v_tail] loop
    v_tail := v_tail + 1;
  end loop;
  v_others := array_to_string(v_new[v_head + 1:cardinality(v_new) - v_tail], ' ');
  v_olds := array_to_string(v_old[v_head + 1:cardinality(v_old) - v_tail], ' ');
  if v_new[1] in ('i', 'we') and v_new[2] = any (v_verbs) and v_others !~ v_with
    and v_olds !~ v_place
    or v_tail >= 2 and v_new[2] = any (v_verbs || '{have,has,is,am,are}'::text[])
    or v_new[1] <> all ('{i,we}') and v_new[1:v_head] && '{is,are,be}' and (v_others ~ v_place and v_olds ~ v_place
      or array_to_string(v_new[1:v_head], ' ') ~ ' (?:is|are|be) (?:in|at|on)(?: the| an?| my| our)?$')
    or v_new[1:2] in ('{i,am}', '{we,are}') and p_new ~ ' (?:in|at) [[:upper:]]'
      and p_old ~ ' (?:in|at) [[:upper:]]' then
    return coalesce(_memoir.value_cut(v_olds, p_language), v_olds);
  end if;
  return null;
end $$;

-- Returns whether a clause tells that its speaker likes (1) or dislikes (-1) something.
create or replace function _memoir.liking(p_plain text, p_language text)
returns integer language sql immutable as $$
  select case when p_plain ~* ('^(?:i|we) (?:also )?(?:' || nullif(_memoir.any_word(p_language, 'disliking'), '')
    || ')\M') then -1
    when p_plain ~* ('^(?:i|we) (?:' || nullif(_memoir.any_word(p_language, 'liking'), '') || ')\M') then 1 end
$$;

-- "Catrin Vogel" for "Katrin Vogel", "Okafor" for "Okafur": as many words, of which one has up to two other letters.
create or replace function _memoir.is_spelt_anew(p_new text, p_old text)
returns boolean language plpgsql immutable as $$
declare
  v_new text[] := string_to_array(lower(p_new), ' '); v_old text[] := string_to_array(lower(p_old), ' ');
  v_others integer := 0; v_head integer; v_tail integer; v_length integer;
begin
  if cardinality(v_new) = 1 and cardinality(v_old) > 1 then
    return exists (select from unnest(v_old) o where _memoir.is_spelt_anew(p_new, o));
  end if;
  if lower(p_new) = lower(p_old) or cardinality(v_new) <> cardinality(v_old) then return false; end if;
  for i in 1 .. cardinality(v_new) loop
    continue when v_new[i] = v_old[i];
    v_length := greatest(length(v_new[i]), length(v_old[i]));
    if v_length >= 6 and length(v_new[i]) = length(v_old[i]) and (select count(*) from generate_series(1, v_length) n
        where substr(v_new[i], n, 1) <> substr(v_old[i], n, 1)) <= 3 and right(v_new[i], 1) = right(v_old[i], 1) then
      v_others := v_others + 1;
      continue;
    end if;
    v_head := 0; v_tail := 0;
    while v_head < v_length and substr(v_new[i], v_head + 1, 1) = substr(v_old[i], v_head + 1, 1) loop
      v_head := v_head + 1;
    end loop;
    while v_tail < v_length - v_head and left(right(v_new[i], v_tail + 1), 1) = left(right(v_old[i], v_tail + 1), 1)
    loop
      v_tail := v_tail + 1;
    end loop;
    if v_length < 4 or v_head + v_tail < v_length - 2 or v_head + v_tail < 2 then return false; end if;
    v_others := v_others + 1;
  end loop;
  return v_others = 1;
end $$;

-- The place that a clause says something is at instead.
create or replace function _memoir.new_place(p_plain text, p_language text)
returns text language sql immutable as $$
  select lower((regexp_match(p_plain, _memoir.any_word(p_language, 'places'), 'i'))[1])
  where regexp_split_to_array(lower(p_plain), '[^[:alpha:]]+') && _memoir.word_list(p_language, 'elsewhere')
    and _memoir.word_list(p_language, 'places') <> '{}'
$$;

-- The share of topics that others speak of too, names counting half again as much, what only stands around them half.
create or replace function _memoir.coverage(p_topics text[], p_names text[], p_others text[], p_around text[])
returns real language sql immutable as $$
  select coalesce(sum(w * case when t = any (p_others) then 1 when t = any (p_around) then 0.5 else 0 end)
    / nullif(sum(w), 0), 0)::real
  from (select t, case when t = any (p_names) then 1.5 else 1 end as w from unnest(p_topics) t) x
$$;

-- Returns whether a text has these words as they stand, and whether one of them is among others.
create or replace function _memoir.has_words(p_text text, p_words text)
returns boolean language sql immutable as $$
  select strpos(' ' || regexp_replace(lower(translate(p_text, '’', '''')), '[^[:alnum:]'']+', ' ', 'g') || ' ',
    ' ' || btrim(regexp_replace(lower(translate(p_words, '’', '''')), '[^[:alnum:]'']+', ' ', 'g')) || ' ') > 0
$$;

create or replace function _memoir.covers(p_one text[], p_other text[])
returns boolean language sql immutable as $$
  select p_other <> '{}' and array(select lower(o) from unnest(p_other) o) <@ array(select lower(o)
    from unnest(p_one) o)
$$;

-- Returns whether two clauses have another word before the same noun, which the other does not have.
create or replace function _memoir.sorts_differ(p_plain text, p_old text, p_context text, p_shared text[],
  p_values text[], p_language text)
returns boolean language sql stable as $$
  select exists (select from unnest(_memoir.sorts_in(p_plain, p_shared, p_language)) n,
      unnest(_memoir.sorts_in(p_old, p_shared, p_language)) o
    where split_part(n, ' ', 2) = split_part(o, ' ', 2) and split_part(n, ' ', 1) <> split_part(o, ' ', 1)
      and not _memoir.has_words(p_context, split_part(n, ' ', 1))
      and not _memoir.has_words(p_plain, split_part(o, ' ', 1))
      -- "Four ducks", "five ducks": values of one thing.
      and not _memoir.has_words(array_to_string(p_values, ' '), split_part(n, ' ', 1))
      and not _memoir.has_words(array_to_string(p_values, ' '), split_part(o, ' ', 1)))
$$;
