-- What a turn changes of what was said before, and what it asks to forget. A correction is told by what it changes, not
-- only by how it sounds: among the user's own earlier clauses the one is taken that says the same of the same thing with
-- another value of the same kind, by a clear margin; without one nothing is changed. The older span is marked "later
-- changed" in what is recalled (or taken out, where it is to be forgotten), whether or not it ever became a memory; what
-- memories were made of it give way. undo_change takes it back.

-- Where clauses ask to forget something, and what that names; is_all: everything about it.
create or replace function _memoir.forget_requests_in(p_clauses _memoir.said_clause[], p_languages text[])
returns setof _memoir.forget_request language plpgsql immutable as $$
declare
  v_clause _memoir.said_clause; v_bare text; v_pattern text; v_out _memoir.forget_request;
begin
  foreach v_clause in array array(select c from unnest(p_clauses) c
    where c.clause_no > 0 and length(c.sentence) between 8 and 400 and exists (
      select from unnest(_memoir.word_list(null, 'forget_verbs')) v where strpos(lower(c.said), v) > 0))
  loop
    v_out := (v_clause.text_no, v_clause.span_start, v_clause.span_length, null, false,
      p_languages[v_clause.text_no], v_clause.plain);
    continue when v_out.said ~* nullif(_memoir.any_word(v_out.language, 'forget_idioms'), '');
    v_bare := coalesce(regexp_replace(v_out.said, '^(?:' || nullif(_memoir.any_word(v_out.language, 'forget_openers'),
      '') || ')+', '', 'i'), v_out.said);
    foreach v_pattern in array _memoir.word_list(v_out.language, 'forget_requests') loop
      v_out.names := (regexp_match(v_bare, v_pattern, 'i'))[1];
      if length(v_out.names) between 2 and 160 then
        v_out.names := regexp_replace(v_out.names, _memoir.any_word(null, 'forget_tails'), '');
        v_out.is_all := v_out.said ~* ('\m(?:' || _memoir.any_word(null, 'all_about') || ')\M');
        return next v_out;
        exit;
      end if;
    end loop;
  end loop;
end $$;

-- The same of one text.
create or replace function _memoir.forget_requests(p_text text)
returns setof _memoir.forget_request language sql immutable as $$
  select r.* from (select array[_memoir.spoken_language(p_text)]) l(languages),
    _memoir.forget_requests_in(_memoir.said_clauses(array[p_text], l.languages), l.languages) r
  where length(p_text) <= 20000
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
create or replace function _memoir.subject_of(p_plain text, p_language text)
returns text language sql immutable as $$
  select case when p_plain ~* '^(?:i|we) ' then 'self' else (regexp_match(p_plain,
    '^(?:my|our|his|her|their) (?:[[:alpha:]-]+ )?(' || _memoir.any_word(p_language, 'persons') || ')\M', 'i'))[1] end
  where p_language = 'english'
$$;

-- The clauses of persons' texts that may change something, step by step over all of them: the server keeps few compiled
-- patterns. Of texts up to 4,000 characters the first twelve sentences.
create or replace function _memoir.change_candidates(p_texts text[], p_clauses _memoir.said_clause[],
  p_languages text[])
returns _memoir.change_candidate[] language plpgsql stable as $$
declare
  v_language text; v_found _memoir.change_candidate[]; v_all _memoir.change_candidate[] := '{}';
  v_one _memoir.change_candidate; v_values _memoir.said_values[]; v_own text; v_context text[]; v_text_no integer;
begin
  for v_language in select distinct p_languages[c.text_no] from unnest(p_clauses) c order by 1 loop
    v_own := '^(?:' || nullif(_memoir.any_word(v_language, 'own_starts'), '') || ')\M';
    continue when v_own is null;
    v_found := _memoir.with_referents(_memoir.cued_clauses(p_texts, array(
      select x.c from (
        select c, dense_rank() over (partition by c.text_no order by c.sentence_start) as nth from unnest(p_clauses) c
        where p_languages[c.text_no] = v_language and length(p_texts[c.text_no]) <= 4000) x
      where x.nth <= 12 and length((x.c).sentence) <= 400
      order by (x.c).text_no, (x.c).sentence_start, (x.c).clause_no), v_language, v_own), v_language);
    v_values := _memoir.values_in(array(select f.plain from unnest(v_found) with ordinality f order by ordinality),
      v_language);
    for i in 1 .. cardinality(v_found) loop
      v_one := v_found[i];
      v_one.new := v_values[i];
      -- Without one of these nothing can be changed.
      continue when not v_one.cue and ((v_one.new).kinds = '{}' or v_one.plain !~* v_own)
        or (v_one.new).kinds = '{}' and (v_one.new).names = '{}' and v_one.olds = '{}' and not v_one.is_over
          and v_one.thing is null and _memoir.new_place(v_one.plain, v_language) is null;
      if (v_one.clause).text_no is distinct from v_text_no then
        v_text_no := (v_one.clause).text_no;
        v_context := _memoir.topics(left(p_texts[v_text_no], 1000), v_language,
          _memoir.word_list(v_language, 'change_words'));
      end if;
      v_one.context := v_context;
      v_all := v_all || v_one;
    end loop;
  end loop;
  return v_all;
end $$;

-- Of clauses in one language those of sentences that sound like a change or say something of one's own things, but for
-- sentences that only suppose; with what they say is over.
create or replace function _memoir.cued_clauses(p_texts text[], p_clauses _memoir.said_clause[], p_language text,
  p_own text)
returns _memoir.change_candidate[] language plpgsql immutable as $$
declare
  v_cues text[] := _memoir.word_list(p_language, 'change_cues'); v_found _memoir.change_candidate[];
  v_forms text := nullif(_memoir.any_word(p_language, 'change_cue_forms'), ''); v_texts integer[]; v_olds text[];
  v_assent text := '^(?:oh |ah )*(?:' || _memoir.any_word(null, 'assent') || ')\M';
  v_unsure text := nullif(_memoir.any_word(p_language, 'unsure'), '');
  v_one _memoir.change_candidate; v_out _memoir.change_candidate[] := '{}';
begin
  v_texts := array(select x.t from (select distinct c.text_no as t from unnest(p_clauses) c) x
    where length(p_texts[x.t]) <= 600 and _memoir.has_cue(p_texts[x.t], v_cues, v_forms));
  v_found := array(
    select (k.c, (k.c).plain, '{}', k.cue, false, null, null, false, false, null)::_memoir.change_candidate
    from (
      select c, x.cue, bool_or(x.cue or c.plain ~* p_own) over (partition by c.text_no, c.sentence_start) as meant
      from unnest(p_clauses) c, lateral (select c.text_no = any (v_texts) or _memoir.has_cue(c.said, v_cues, v_forms)
        or length(p_texts[c.text_no]) < 80 and c.plain ~* v_assent as cue) x) k
    where k.meant order by (k.c).text_no, (k.c).sentence_start, (k.c).clause_no);
  v_found := array(
    select k.f from (
      select f, bool_or((f.clause).clause_no = 0 and _memoir.is_unsure((f.clause).said, f.plain, p_language, v_unsure))
        over (partition by (f.clause).text_no, (f.clause).sentence_start) as unsure
      from unnest(v_found) f) k
    where not k.unsure order by ((k.f).clause).text_no, ((k.f).clause).sentence_start, ((k.f).clause).clause_no);
  foreach v_one in array v_found loop
    if (v_one.clause).clause_no = 0 then
      v_olds := _memoir.values_replaced((v_one.clause).said, p_language);
    end if;
    v_one.olds := v_olds;
    v_out := v_out || v_one;
  end loop;
  return v_out;
end $$;

-- Clauses with what they refer to said in them: "it leaves at nine" after "I was wrong about the ferry".
create or replace function _memoir.with_referents(p_found _memoir.change_candidate[], p_language text)
returns _memoir.change_candidate[] language plpgsql immutable as $$
declare
  v_one _memoir.change_candidate; v_clause _memoir.said_clause; v_out _memoir.change_candidate[] := '{}';
  v_text_no integer; v_before text; v_retracted text; v_is_taken_back boolean; v_is_open boolean; v_sentence text;
  v_text_cue boolean; v_pronoun text := '^(?:' || nullif(_memoir.any_word(p_language, 'pronouns'), '') || ') ';
  v_adding text := '\m(?:' || nullif(_memoir.any_word(p_language, 'adding_words'), '') || ')\M';
  v_sure text := '\m(?:' || nullif(_memoir.any_word(p_language, 'sure_cues'), '') || ')\M';
  v_taking text := nullif(_memoir.any_word(p_language, 'taking_back'), '');
  v_over text := '\m(?:' || nullif(_memoir.any_word(p_language, 'over_words'), '') || ')';
  v_answers text := '^(?:' || _memoir.any_word(null, 'assent') || ')\M';
  v_answer_cues text := '\m(?:' || nullif(_memoir.any_word(p_language, 'answer_cues'), '') || ')\M';
begin
  foreach v_one in array p_found loop
    v_clause := v_one.clause;
    if v_clause.text_no is distinct from v_text_no then
      v_text_no := v_clause.text_no; v_before := ''; v_is_taken_back := false;
    end if;
    if v_clause.clause_no = 0 then v_sentence := v_one.plain; v_text_cue := v_one.cue; continue; end if;
    continue when v_clause.is_last and v_clause.asks or lower(v_clause.said) ~ v_adding;
    -- What it is about, and nothing else yet.
    v_retracted := _memoir.retracted(v_one.plain, p_language);
    if v_retracted is not null and (not v_clause.is_last or v_clause.sentence ~* v_taking) then
      v_before := v_retracted;
      v_is_taken_back := true;
      continue;
    end if;
    v_one.plain := coalesce(v_retracted, v_one.plain);
    v_one.is_sure := v_is_taken_back or coalesce(lower(v_clause.sentence) ~ v_sure, false);
    v_one.cue := v_one.cue or v_is_taken_back;
    -- "Tadeo changed schools, he goes to …": who he is was said before.
    v_is_open := v_before = '' and not v_is_taken_back and coalesce(v_one.plain ~* v_pronoun, false);
    if v_is_open then v_one.plain := v_sentence; end if;
    if v_is_taken_back or v_before <> '' and v_one.plain ~* v_pronoun then
      v_one.plain := v_before || ' ' || v_one.plain;
    end if;
    v_is_taken_back := false;
    v_before := v_one.plain;
    -- "Ella turned 7, big party": what follows the comma is not what it is about; "it's spelled Ina, my boss" is.
    if not v_is_open and (split_part(v_one.plain, ', ', 1) ~ '\d|[[:alpha:]] [[:upper:]][[:alpha:]]'
      or v_text_cue and strpos(ltrim(split_part(v_one.plain, ', ', 1)), ' ') > 0) then
      v_one.plain := split_part(v_one.plain, ', ', 1);
    end if;
    v_one.is_over := coalesce(lower(v_clause.sentence) ~ v_over, false);
    v_one.is_answer := length(v_one.plain) < 60 and coalesce(v_one.plain ~* v_answers
      or lower(v_clause.sentence) ~ v_answer_cues, false);
    v_one.thing := _memoir.new_thing(v_one.plain, p_language);
    v_out := v_out || v_one;
  end loop;
  return v_out;
end $$;

-- Whether a text sounds like a correction: a phrase, or what only a pattern tells.
create or replace function _memoir.has_cue(p_text text, p_phrases text[], p_forms text)
returns boolean language sql immutable as $$
  select _memoir.has_phrase(_memoir.padded(p_text), p_phrases) or coalesce(lower(p_text) ~ p_forms, false)
$$;

-- Whether a sentence only supposes, what it asks of its reader apart ("Ida moved out, could you check my letter?").
create or replace function _memoir.is_unsure(p_said text, p_plain text, p_language text, p_unsure text)
returns boolean language plpgsql immutable as $$
declare
  v_requests text := nullif(_memoir.any_word(p_language, 'requests_of_you'), ''); v_stated text := p_said;
begin
  if lower(p_said) !~ p_unsure and lower(p_plain) !~ p_unsure then return false; end if;
  if v_requests is not null then
    v_stated := (select string_agg(c.said, ', ' order by c.span_start) from _memoir.clauses(p_said, p_language) c
      where c.said !~* ('^(?:' || v_requests || ')\M'));
  end if;
  return v_stated is null or lower(v_stated) ~ p_unsure or lower(_memoir.plain(v_stated, p_language)) ~ p_unsure;
end $$;

-- What a candidate changes of what was said before its turn: one earlier clause, with those that say the same.
create or replace function _memoir.changes_by(p_one _memoir.change_candidate, p_turn _memoir.conversation_history,
  p_language text)
returns setof _memoir.found_change language plpgsql stable as $$
declare
  v_units _memoir.said_unit[];
begin
  v_units := _memoir.units_before(p_turn, (p_one.new).topics || p_one.context
    || _memoir.query_terms(p_language::regconfig, array_to_string(p_one.olds, ' ')), '{user}', 12);
  if v_units <> '{}' then
    return query select * from _memoir.changed_units(v_units, p_one, p_language, p_turn);
  end if;
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

-- "Got a new phone": the thing, where people have one at a time; what was said of the old one gives way.
create or replace function _memoir.new_thing(p_plain text, p_language text)
returns text language sql immutable as $$
  select t from (select lower((regexp_match(p_plain, nullif(_memoir.any_word(p_language, 'got_new'), ''),
    'i'))[1])) x(t)
  where t = any (_memoir.word_list(p_language, 'replaced_things'))
$$;

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

-- Of earlier clauses those that a clause changes: the best, where its margin is clear, and what says the same as it. Each
-- step goes over all of them before the next.
create or replace function _memoir.changed_units(p_units _memoir.said_unit[], p_one _memoir.change_candidate,
  p_language text, p_turn _memoir.conversation_history)
returns setof _memoir.found_change language plpgsql stable as $$
declare
  v_plains text[]; v_olds _memoir.said_values[]; v_found _memoir.found_change; v_all _memoir.found_change[] := '{}';
  v_best _memoir.found_change; v_subject text := _memoir.subject_of(p_one.plain, p_language); v_theirs text[];
  v_names text[] := tsvector_to_array(to_tsvector(p_language::regconfig, array_to_string((p_one.new).names, ' ')));
  v_context text; v_around text[]; v_changing text[] := _memoir.word_list(p_language, 'change_words');
begin
  v_plains := array(select _memoir.plain(u.said, p_language) from unnest(p_units) with ordinality u
    order by ordinality);
  v_olds := _memoir.values_in(array(select u.said from unnest(p_units) with ordinality u
    order by ordinality), p_language);
  v_theirs := array(select _memoir.subject_of(p, p_language) from unnest(v_plains) with ordinality x(p, o) order by o);
  for i in 1 .. cardinality(p_units) loop
    continue when v_subject <> v_theirs[i];
    if p_units[i].context is distinct from v_context then
      v_context := p_units[i].context;
      v_around := _memoir.topics(v_context, p_language, v_changing);
    end if;
    v_found := _memoir.change_of(p_units[i], v_plains[i], v_olds[i], v_around, p_one, v_names, p_language, p_turn);
    if v_found.kind is not null then v_all := v_all || v_found; end if;
  end loop;
  select * into v_best from unnest(v_all) f
  order by f.score desc, (f.unit).created_at desc, (f.unit).turn_index desc limit 1;
  -- Another one as near with another value: it is not clear which is meant.
  if v_best.kind is null or v_best.kind in ('value', 'name') and exists (select from unnest(v_all) f
    where f.kind = v_best.kind and f.score > 0.85 * v_best.score
      and (f.unit).message_id <> (v_best.unit).message_id and not f.olds && v_best.olds) then
    return;
  end if;
  return query select * from unnest(v_all) f where f.kind = v_best.kind and f.score >= 0.75 * v_best.score
    and (f.olds && v_best.olds or f.kind = 'over'
      or (f.unit).message_id = (v_best.unit).message_id and (f.unit).span_start = (v_best.unit).span_start);
end $$;

-- What a clause changes of an earlier one, and how sure that is; kind is null where it changes nothing.
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
        || v_new.names) or p_one.is_sure and v_cover >= 0.3)) then
      v_found.kind := 'named'; v_found.olds := array[v_hit];
      v_found.score := 1 + v_cover;
    end if;
  end loop;
  if v_found.kind is null then
    v_found := _memoir.other_value(v_found, v_new, p_old, p_around, p_names, p_one.cue,
      case when p_one.is_sure then 0.5 else 0.6 end::real, p_one.plain, p_language);
  end if;
  if v_found.kind is not null or p_unit.is_question and not p_one.is_answer then return v_found; end if;
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
  p_around text[], p_names text[], p_cue boolean, p_floor real, p_plain text, p_language text)
language plpgsql stable as $$
declare
  v_kind text; v_cover real; v_back real; v_shared text[]; v_place text;
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
  if p_cue and p_new.names <> '{}' and p_old.names <> '{}' and not p_new.names && p_old.names
    and p_new.kinds = '{}' then
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

-- Whether a text has these words as they stand, and whether one of them is among others.
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
