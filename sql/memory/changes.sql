-- What a turn changes of what was said before, and what it asks to forget. A correction is told by what it changes, not
-- only by how it sounds: among the user's own earlier clauses the one is taken that says the same of the same thing with
-- another value of the same kind, by a clear margin; without one nothing is changed. The older span is marked "later
-- changed" in what is recalled (or taken out, where it is to be forgotten), whether or not it ever became a memory; what
-- memories were made of it give way. undo_change takes it back.

-- Where a text asks to forget something, and what that names; is_all: everything about it.
create or replace function _memoir.forget_requests(p_text text)
returns table (span_start integer, span_length integer, names text, is_all boolean, language text, said text)
language plpgsql immutable as $$
declare
  v_sentence record; v_clause record; v_plain text; v_pattern text; v_idioms text;
begin
  if length(p_text) > 20000 or p_text !~* ('(?:' || _memoir.any_word(null, 'forget_verbs') || ')') then return; end if;
  language := _memoir.spoken_language(p_text);
  v_idioms := nullif(_memoir.any_word('english', 'forget_idioms'), '');
  for v_sentence in select * from _memoir.own_sentences(p_text) s where s.span_length between 8 and 400 limit 40 loop
    for v_clause in select * from _memoir.clauses(v_sentence.said, language) loop
      v_plain := _memoir.plain(v_clause.said, language);
      continue when language = 'english' and v_plain ~* v_idioms;
      foreach v_pattern in array _memoir.word_list(language, 'forget_requests') loop
        names := (regexp_match(v_plain, v_pattern, 'i'))[1];
        if names is not null then
          names := regexp_replace(names, '(?:, | because | from (?:your |my |the )?(?:memory|notes|records?|mind|profile)).*$', '');
          is_all := v_plain ~* ('\m(?:' || _memoir.any_word(null, 'all_about') || ')\M');
          said := v_plain;
          span_start := v_sentence.span_start + v_clause.span_start - 1;
          span_length := v_clause.span_length;
          return next;
          exit;
        end if;
      end loop;
    end loop;
  end loop;
end $$;

create or replace function _memoir.forget_spans(p_text text)
returns int4range[] language sql immutable as $$
  select array(select int4range(r.span_start, r.span_start + r.span_length) from _memoir.forget_requests(p_text) r)
$$;

-- The user's turns that speak of something, and the newest ones, clause by clause: what was said before p_turn.
create or replace function _memoir.units_before(p_turn _memoir.conversation_history, p_terms text[],
  p_roles _memoir.turn_role[], p_newest integer)
returns _memoir.said_unit[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_turn.user_id; v_counters _memoir.user_counters; v_scores _memoir.item_scores; v_items integer[];
  v_locators _memoir.item_locator[]; v_bodies text[]; v_languages text[]; v_of bigint[]; v_said text[];
  v_starts integer[];
begin
  select * into v_counters from _memoir.user_counters where user_id = v_user;
  v_scores := _memoir.word_scores(v_user, v_counters, p_terms, '{}', '{}');
  v_items := coalesce(v_scores.items[1:40], '{}') || array(select i.item_no from _memoir.search_items i
    where i.user_id = v_user and i.item_no > v_counters.next_item - p_newest * 4 and i.kind = 't'
    order by i.item_no desc limit p_newest)
    || array(select i.item_no from _memoir.search_items i
    where i.user_id = v_user and i.session_id = p_turn.session_id and i.kind = 't'
      and i.item_no > v_counters.next_item - 400 and i.turn_index between p_turn.turn_index - p_newest
      and p_turn.turn_index - 1);
  v_locators := array(select (i.item_no, i.kind, i.ref_id, i.session_id, i.turn_index, i.recorded_at, i.span_start,
      i.span_length)::_memoir.item_locator
    from _memoir.search_items i
    where i.user_id = v_user and i.item_no = any (v_items) and i.kind = 't' and not i.dead and i.role = any (p_roles)
      and i.ref_id is distinct from p_turn.message_id
      and (i.session_id <> p_turn.session_id or i.turn_index < p_turn.turn_index)
      and i.created_at <= p_turn.created_at);
  -- One step for all texts, then the next: the server keeps few compiled patterns, and each step has its own.
  select array_agg(t.item_no), array_agg(t.body) into v_items, v_bodies
  from _memoir.texts_at(v_user, v_locators, 'secret') t;
  v_languages := array(select _memoir.spoken_language(b) from unnest(v_bodies) with ordinality x(b, o) order by o);
  select array_agg(b.o), array_agg(s.said), array_agg(s.span_start) into v_of, v_said, v_starts
  from unnest(v_bodies) with ordinality b(body, o)
  cross join lateral (select * from _memoir.own_sentences(b.body) s where s.span_length <= 600 limit 20) s;
  return array(
    select (l.ref_id, l.session_id, l.turn_index, l.recorded_at, i.created_at, i.role,
      l.span_start + s.span_start + c.span_start - 2, c.span_length, c.said, left(v_bodies[s.text_no], 1000),
      s.said ~ '[?？]["”'')]*$' and lead(c.span_start) over (partition by l.item_no, s.span_start
        order by c.span_start) is null)::_memoir.said_unit
    from unnest(v_of, v_said, v_starts) s(text_no, said, span_start)
    join unnest(v_locators) l on l.item_no = v_items[s.text_no]
    join _memoir.search_items i on i.user_id = v_user and i.item_no = l.item_no
    cross join lateral _memoir.clauses(s.said, v_languages[s.text_no]) c
    where not exists (select from _memoir.recall_exclusions x where x.user_id = v_user and x.session_id = l.session_id
      and x.turn_index = l.turn_index and x.lifted_at is null and (x.span_start is null
        or x.span_start < l.span_start + s.span_start + c.span_start - 2 + c.span_length
        and l.span_start + s.span_start + c.span_start - 2 < x.span_start + x.span_length)));
end $$;

-- Of whom a clause speaks: self, somebody near by their word ("my sister"), null where it does not say.
create or replace function _memoir.subject_of(p_plain text)
returns text language sql immutable as $$
  select case when p_plain ~* '^(?:i|we) ' then 'self'
    else (regexp_match(p_plain, '^(?:my|our|his|her|their) (?:[[:alpha:]-]+ )?('
      || _memoir.any_word('english', 'persons') || ')\M', 'i'))[1] end
$$;

-- What the clauses of a person's turn change, the surest first: at most one earlier clause for each, with those that say
-- the same.
create or replace function _memoir.changes_in(p_turn _memoir.conversation_history)
returns setof _memoir.found_change language plpgsql stable as $$
declare
  v_language text := _memoir.spoken_language(p_turn.content); v_sentence record; v_clause record; v_plain text;
  v_cues text := nullif(_memoir.any_word(v_language, 'change_cues'), ''); v_turn_cue boolean; v_cue boolean;
  v_adding text := nullif(_memoir.any_word(v_language, 'adding_words'), '');
  v_unsure text := nullif(_memoir.any_word(v_language, 'unsure'), '');
  v_values _memoir.said_values; v_olds text[]; v_units _memoir.said_unit[]; v_context text[]; v_before text := '';
  v_retracted text; v_is_sure boolean; v_is_taken_back boolean := false; v_is_open boolean;
begin
  if length(p_turn.content) > 4000 or v_cues is null then return; end if;
  v_turn_cue := length(p_turn.content) <= 600 and lower(p_turn.content) ~ ('\m(?:' || v_cues || ')');
  v_context := (_memoir.values_of(left(p_turn.content, 1000), v_language)).topics;
  for v_sentence in select * from _memoir.own_sentences(p_turn.content) s where s.span_length between 3 and 400 limit 12
  loop
    continue when _memoir.is_unsure(v_sentence.said, v_language, v_unsure);
    v_olds := _memoir.values_replaced(v_sentence.said, v_language);
    for v_clause in
      select c.*, lead(c.span_start) over (order by c.span_start) is null as is_last
      from _memoir.clauses(v_sentence.said, v_language) c order by c.span_start
    loop
      continue when v_clause.is_last and v_sentence.said ~ '[?？]["”'')]*$';
      v_plain := _memoir.plain(v_clause.said, v_language);
      continue when lower(v_clause.said) ~ ('\m(?:' || v_adding || ')\M');
      v_cue := v_turn_cue or lower(v_clause.said) ~ ('\m(?:' || v_cues || ')')
        or length(p_turn.content) < 80 and v_plain ~* ('^(?:oh |ah )*(?:' || _memoir.any_word('english', 'assent') || ')\M');
      -- "I was wrong about the ferry, it leaves at …": what it is about, and nothing else yet.
      v_retracted := _memoir.retracted(v_plain, v_language);
      if v_retracted is not null and (not v_clause.is_last or v_sentence.said ~* 'wrong|mixed|confused|mis') then
        v_before := v_retracted;
        v_is_taken_back := true;
        continue;
      end if;
      v_plain := coalesce(v_retracted, v_plain);
      v_is_sure := v_is_taken_back or lower(v_sentence.said) ~ ('\m(?:'
        || nullif(_memoir.any_word(v_language, 'sure_cues'), '') || ')\M');
      v_cue := v_cue or v_is_taken_back;
      -- "Tadeo changed schools, he goes to …": who he is was said before.
      v_is_open := v_before = '' and not v_is_taken_back and v_plain ~* '^(?:it|he|she|they) ';
      if v_is_open then v_plain := _memoir.plain(v_sentence.said, v_language); end if;
      if v_is_taken_back or v_before <> '' and v_plain ~* '^(?:he|she|they|it) ' then
        v_plain := v_before || ' ' || v_plain;
      end if;
      v_is_taken_back := false;
      -- "Ella turned 7, big party": what follows the comma is not what it is about; "it's spelled Ina, my boss" is.
      if not v_is_open and (split_part(v_plain, ', ', 1) ~ '\d|[[:alpha:]] [[:upper:]][[:alpha:]]' or v_turn_cue
        and split_part(v_plain, ', ', 1) ~ ' .* ') then
        v_before := v_plain;
        v_plain := split_part(v_plain, ', ', 1);
      else
        v_before := v_plain;
      end if;
      v_values := _memoir.values_of(v_plain, v_language);
      continue when not v_cue and (v_values.kinds = '{}' or v_plain !~* '^(?:my|our|the|mein|meine|mi|mon|ma|meu|minha|il mio|la mia)\M');
      v_units := _memoir.units_before(p_turn, v_values.topics || v_context
        || _memoir.query_terms(v_language::regconfig, array_to_string(v_olds, ' ')), '{user}', 12);
      continue when v_units = '{}';
      return query select * from _memoir.changed_units(v_units, v_clause.said, v_plain, v_sentence.said, v_olds, v_cue,
        coalesce(v_is_sure, false), v_language, p_turn,
        v_sentence.span_start + v_clause.span_start - 1, v_clause.span_length);
    end loop;
  end loop;
end $$;

-- Whether a sentence only supposes, what it asks of its reader apart ("Ida moved out, could you check my letter?").
create or replace function _memoir.is_unsure(p_said text, p_language text, p_unsure text)
returns boolean language plpgsql immutable as $$
declare
  v_requests text := nullif(_memoir.any_word(p_language, 'requests_of_you'), ''); v_stated text := p_said;
begin
  if lower(p_said) !~ p_unsure and lower(_memoir.plain(p_said, p_language)) !~ p_unsure then return false; end if;
  if v_requests is not null then
    v_stated := (select string_agg(c.said, ', ' order by c.span_start) from _memoir.clauses(p_said, p_language) c
      where c.said !~* ('^(?:' || v_requests || ')\M'));
  end if;
  return v_stated is null or lower(v_stated) ~ p_unsure or lower(_memoir.plain(v_stated, p_language)) ~ p_unsure;
end $$;

-- What a plain clause takes back without saying what holds instead: "I mixed up the platforms".
create or replace function _memoir.retracted(p_plain text, p_language text)
returns text language plpgsql immutable as $$
declare
  v_pattern text; v_hit text;
begin
  foreach v_pattern in array _memoir.word_list(p_language, 'retractions') loop
    v_hit := (regexp_match(p_plain, v_pattern, 'i'))[1];
    if v_hit is not null then return v_hit; end if;
  end loop;
  return null;
end $$;

-- "Got a new phone": of things of which people have one at a time the new one takes the place of what the clause says.
create or replace function _memoir.gives_way(p_plain text, p_said text)
returns boolean language plpgsql immutable as $$
declare
  v_thing text := lower((regexp_match(p_plain, '^(?:(?:I|we|have|just|finally|now) ){0,4}(?:got|bought|have|picked up'
    || '|ordered|getting|upgraded to|am getting) (?:myself |ourselves )?(?:an? )(?:brand[ -])?new ([[:alpha:]]+)', 'i'))[1]);
begin
  return coalesce(v_thing = any (_memoir.word_list('english', 'replaced_things'))
    and p_said ~* ('^(?:(?:my|our) (?:old |current )?' || v_thing || ' (?:is|was)|(?:I|we) (?:have|use|own|drive) .*\m' || v_thing || ')\M'), false);
end $$;

-- The values that a sentence says are over: "not Pepper but Pippa", "instead of six".
create or replace function _memoir.values_replaced(p_said text, p_language text)
returns text[] language plpgsql immutable as $$
declare
  v_pattern text; v_hit text; v_out text[] := '{}';
begin
  foreach v_pattern in array _memoir.word_list(p_language, 'replaced') loop
    for v_hit in select m[1] from regexp_matches(translate(p_said, '’', ''''), v_pattern, 'g') m loop
      v_hit := _memoir.value_cut(v_hit, p_language);
      continue when v_hit is null or length(v_hit) < 2 or cardinality(string_to_array(v_hit, ' ')) > 4;
      v_out := v_out || v_hit;
    end loop;
  end loop;
  return v_out;
end $$;

-- Of earlier clauses those that a clause changes: the best, where its margin is clear, and what says the same as it.
create or replace function _memoir.changed_units(p_units _memoir.said_unit[], p_said text, p_plain text,
  p_sentence text, p_olds text[], p_cue boolean, p_is_sure boolean, p_language text,
  p_turn _memoir.conversation_history, p_start integer, p_length integer)
returns setof _memoir.found_change language plpgsql stable as $$
declare
  v_new _memoir.said_values := _memoir.values_of(p_plain, p_language); v_unit _memoir.said_unit; v_old _memoir.said_values; v_around text[];
  v_cover real; v_found _memoir.found_change; v_all _memoir.found_change[] := '{}'; v_best _memoir.found_change;
  v_over boolean := lower(p_sentence) ~ ('\m(?:' || nullif(_memoir.any_word(p_language, 'over_words'), '') || ')');
  v_names text[] := tsvector_to_array(to_tsvector(p_language::regconfig, array_to_string(v_new.names, ' ')));
  v_subject text := case when p_language = 'english' then _memoir.subject_of(p_plain) end; v_theirs text;
  v_answers boolean := length(p_plain) < 60 and (p_plain ~* ('^(?:' || _memoir.any_word('english', 'assent') || ')\M')
    or lower(p_sentence) ~ '\m(?:meant|sorry|oops|ups|typo)\M'); v_hit text;
begin
  foreach v_unit in array p_units loop
    v_theirs := case when p_language = 'english' then _memoir.subject_of(_memoir.plain(v_unit.said, p_language)) end;
    continue when v_subject is distinct from v_theirs and v_subject is not null and v_theirs is not null;
    v_old := _memoir.values_of(v_unit.said, p_language);
    v_around := (_memoir.values_of(v_unit.context, p_language)).topics;
    v_found := (p_start, p_length, p_said, v_unit, '{}', null, 0)::_memoir.found_change;
    -- The value is named that is over.
    foreach v_hit in array p_olds loop
      v_cover := _memoir.coverage(v_new.topics, v_names, v_old.topics, v_around);
      if _memoir.has_words(v_unit.said, v_hit) and (v_hit ~ '[[:upper:]]|\d' and not _memoir.covers(v_old.raws
          || v_old.names, array(select x from unnest(v_new.raws || v_new.names) x where lower(x) <> lower(v_hit)))
        or v_hit !~ '[[:upper:]]|\d' and (v_over and not _memoir.covers(v_old.raws || v_old.names, v_new.raws
          || v_new.names) or p_is_sure and v_cover >= 0.3)) then
        v_found.kind := 'named'; v_found.olds := array[v_hit];
        v_found.score := 1 + v_cover;
      end if;
    end loop;
    if v_found.kind is null then
      v_found := _memoir.other_value(v_found, v_new, v_old, v_around, v_names, p_cue,
        case when p_is_sure then 0.5 else 0.6 end::real, p_plain);
    end if;
    if v_found.kind is null and p_language = 'english' and not v_unit.is_question
      and _memoir.gives_way(p_plain, _memoir.plain(v_unit.said, p_language)) then
      v_found.kind := 'over'; v_found.score := 1;
    end if;
    if v_found.kind is null and v_over and not v_unit.is_question and cardinality(v_new.topics) > 0
      and lower(v_unit.said) !~ '\m(?:not|never|no|n''t|nicht|kein\w*)\M' then
      v_cover := _memoir.coverage(v_new.topics, v_names, v_old.topics, '{}');
      if v_cover >= 0.6 then v_found.kind := 'over'; v_found.score := v_cover; end if;
    end if;
    -- An answer names the value alone.
    if v_found.kind is null and v_answers and v_unit.session_id = p_turn.session_id
      and v_unit.turn_index >= p_turn.turn_index - 6 and cardinality(v_new.topics) <= 2 then
      v_hit := (select v_old.raws[o] from unnest(v_old.kinds, v_old.vals) with ordinality x(k, v, o)
        where k = any (v_new.kinds) and v <> all (v_new.vals) order by o limit 1);
      if v_hit is not null then
        v_found.kind := 'answer'; v_found.olds := array[v_hit];
        v_found.score := 0.7 + 0.01 * (v_unit.turn_index - p_turn.turn_index);
      end if;
    end if;
    if v_found.kind is not null then v_all := v_all || v_found; end if;
  end loop;
  select * into v_best from unnest(v_all) f order by f.score desc, (f.unit).created_at desc, (f.unit).turn_index desc limit 1;
  if v_best.kind is null then return; end if;
  -- Another one as near with another value: it is not clear which is meant.
  if v_best.kind in ('value', 'name') and exists (select from unnest(v_all) f where f.kind = v_best.kind
    and f.score > 0.85 * v_best.score and (f.unit).message_id <> (v_best.unit).message_id
    and not f.olds && v_best.olds) then
    return;
  end if;
  return query select * from unnest(v_all) f where f.kind = v_best.kind and f.score >= 0.75 * v_best.score
    and (f.olds && v_best.olds or f.kind = 'over'
      or (f.unit).message_id = (v_best.unit).message_id and (f.unit).span_start = (v_best.unit).span_start);
end $$;

-- Another value of the same kind said of the same thing: numbers, days, times, codes; else names.
create or replace function _memoir.other_value(inout p_found _memoir.found_change, p_new _memoir.said_values, p_old _memoir.said_values,
  p_around text[], p_names text[], p_cue boolean, p_floor real, p_plain text)
language plpgsql stable as $$
declare
  v_kind text; v_cover real; v_back real; v_shared text[];
begin
  v_shared := array(select t from unnest(p_new.topics) t where t = any (p_old.topics));
  v_cover := _memoir.coverage(p_new.topics, p_names, p_old.topics, p_around);
  v_back := _memoir.coverage(p_old.topics, '{}', p_new.topics, '{}');
  foreach v_kind in array '{date,time,email,code,number,weekday}'::text[] loop
    continue when v_kind <> all (p_new.kinds) or v_kind <> all (p_old.kinds);
    continue when exists (select from unnest(p_new.kinds, p_new.vals) n(k, v), unnest(p_old.kinds, p_old.vals) o(k, v)
      where n.k = v_kind and o.k = v_kind and n.v = o.v);
    -- Two flights to two towns are two.
    continue when p_new.names <> '{}' and p_old.names <> '{}' and not p_new.names && p_old.names
      and not exists (select from unnest(p_names) s where s = any (p_old.topics || p_around));
    if v_shared <> '{}' and (p_cue and v_cover >= p_floor or v_cover >= 0.95 and v_back >= 0.5)
      or v_kind in ('date', 'time') and p_cue and v_cover >= 0.5 and p_new.topics <> '{}'
      or v_kind in ('email', 'code') and p_cue and v_cover >= 0.4 and v_shared <> '{}' then
      p_found.kind := 'value';
      p_found.score := v_cover + 0.1 * v_back;
      p_found.olds := array(select r from unnest(p_old.kinds, p_old.raws) x(k, r) where k = v_kind);
      return;
    end if;
  end loop;
  -- "at the museum instead": another place.
  if p_cue and v_shared <> '{}' and p_plain ~* '\m(?:instead|rather|moved|switched|changed)\M'
    and (regexp_match(p_plain, '\m(?:at|in|to) (?:the|an?|my|our) ([[:alpha:]]+)', 'i'))[1]
      <> (regexp_match((p_found.unit).said, '\m(?:at|in|to) (?:the|an?|my|our) ([[:alpha:]]+)', 'i'))[1] then
    p_found.kind := 'name';
    p_found.score := v_cover;
    p_found.olds := regexp_match((p_found.unit).said, '\m(?:at|in|to) (?:the|an?|my|our) ([[:alpha:]]+)', 'i');
    if v_cover < 0.5 then p_found.kind := null; end if;
    return;
  end if;
  if p_cue and p_new.names <> '{}' and p_old.names <> '{}' and not p_new.names && p_old.names
    and p_new.kinds = '{}' then
    v_cover := _memoir.coverage(array(select t from unnest(p_new.topics) t where t <> all (p_names)), '{}', p_old.topics,
      p_around);
    if v_shared <> '{}' and (v_cover >= p_floor or v_cover >= 0.5 and exists (select from unnest(v_shared) s
      where s = any (p_old.names) or strpos(p_plain, initcap(s)) > 0)) then
      p_found.kind := 'name';
      p_found.score := v_cover;
      p_found.olds := p_old.names;
    end if;
  end if;
end $$;

-- The share of topics that others speak of too, names counting half again as much, what only stands around them half.
create or replace function _memoir.coverage(p_topics text[], p_names text[], p_others text[], p_around text[])
returns real language sql immutable as $$
  select coalesce(sum(w * case when t = any (p_others) then 1 when t = any (p_around) then 0.5 else 0 end)
    / nullif(sum(w), 0), 0)::real
  from (select t, case when t = any (p_names) then 1.5 else 1 end as w from unnest(p_topics) t) x
$$;

-- Whether a text has these words as they stand, and whether one of them is among others.
create or replace function _memoir.has_words(p_text text, p_words text)
returns boolean language sql immutable as $$
  select strpos(' ' || regexp_replace(lower(translate(p_text, '’', '''')), '[^[:alnum:]'']+', ' ', 'g') || ' ',
    ' ' || btrim(regexp_replace(lower(translate(p_words, '’', '''')), '[^[:alnum:]'']+', ' ', 'g')) || ' ') > 0
$$;
create or replace function _memoir.covers(p_one text[], p_other text[])
returns boolean language sql immutable as $$
  select p_other <> '{}' and array(select lower(o) from unnest(p_other) o) <@ array(select lower(o) from unnest(p_one) o)
$$;
