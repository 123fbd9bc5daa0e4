-- What a turn changes of what was said before, and what it asks to forget. A correction is told by what it changes, not
-- only by how it sounds: among the user's own earlier clauses the one is taken that says the same of the same thing
-- with another value of the same kind, by a clear margin; without one nothing is changed. The older span is marked
-- "later changed" in what is recalled (or taken out, where it is to be forgotten), whether or not it ever became a
-- memory; what memories were made of it give way. undo_change takes it back.

-- Where clauses ask to forget something, and what that names; is_all: everything about it. Each pattern goes over all
-- clauses before the next: the server keeps few compiled ones.
create or replace function _memoir.forget_requests_in(p_clauses _memoir.said_clause[], p_languages text[])
returns setof _memoir.forget_request language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_language text; v_cancelled text; v_rows _memoir.said_clause[]; v_row _memoir.said_clause; v_bares text[];
  v_rests text[];
  v_names text[]; v_whole boolean[]; v_fronted boolean[]; v_pattern text; v_idioms text; v_openers text; v_hit text;
  v_before record; v_it constant text := '^(?:it|that|this|them|those|him|her)(?: please)?$';
begin
  for v_language in select distinct p_languages[c.text_no] from unnest(p_clauses) c order by 1 loop
    v_idioms := nullif(_memoir.any_word(v_language, 'forget_idioms'), '');
    v_cancelled := nullif(_memoir.any_word(v_language, 'forget_cancelled'), '');
    v_rows := array(select c from unnest(p_clauses) c
      where p_languages[c.text_no] = v_language and c.clause_no > 0 and length(c.sentence) between 8 and 400
        -- "Forget my shoe size... no, hang on, keep it."
        and not exists (select from (select string_agg(b.sentence, ' ' order by b.sentence_start) as said
            from (select distinct s.sentence_start, s.sentence from unnest(p_clauses) s
              where s.text_no = c.text_no) b) w
          where w.said ~* v_cancelled)
        and exists (select from unnest(_memoir.word_list(v_language, 'forget_verbs')) v
          where strpos(lower(c.said), v) > 0)
        and not coalesce(c.plain ~* v_idioms or v_language <> 'english' and c.said ~* v_idioms, false)
      order by c.text_no, c.span_start);
    continue when v_rows = '{}';
    v_openers := '^(?:' || coalesce(nullif(_memoir.any_word(v_language, 'forget_openers'), ''), '&') || ')+';
    v_bares := array(select regexp_replace(r.plain, v_openers, '', 'i') from unnest(v_rows) with ordinality r
      order by ordinality);
    -- Where a clause names nothing ("Vergiss bitte, was ich …"), what follows it does.
    v_rests := array(select case when v_language <> 'english' and r.said <> r.sentence
      then regexp_replace(_memoir.plain(
        substr(r.sentence, r.span_start - r.sentence_start + 1), v_language), v_openers, '', 'i') end
      from unnest(v_rows) with ordinality r order by ordinality);
    v_names := array(select _memoir.fronted_name(v_rows[o], v_bares[o], v_language)
      from generate_subscripts(v_rows, 1) o order by o);
    v_fronted := array(select n is not null from unnest(v_names) with ordinality x(n, o) order by o);
    v_whole := array_fill(false, array[cardinality(v_rows)]);
    foreach v_pattern in array _memoir.word_list(v_language, 'forget_requests') loop
      for i in 1 .. cardinality(v_rows) loop
        continue when v_names[i] is not null and not v_whole[i];
        v_hit := (regexp_match(v_bares[i], v_pattern, 'i'))[1];
        if length(v_hit) between 2 and 160 then
          v_names[i] := v_hit;
          v_whole[i] := false;
        elsif v_names[i] is null and v_rests[i] is not null then
          v_names[i] := (regexp_match(v_rests[i], v_pattern, 'i'))[1];
          v_whole[i] := v_names[i] is not null;
        end if;
      end loop;
    end loop;
    for i in 1 .. cardinality(v_rows) loop
      v_row := v_rows[i];
      if v_names[i] is null or v_names[i] ~* v_it then
        v_before := _memoir.named_before(v_row, v_bares[i], v_names[i] is not null, v_language, p_clauses);
        v_names[i] := v_before.named;
        continue when v_names[i] is null;
        v_row.span_start := v_before.said_from;
        v_row.span_length := v_row.span_length + v_rows[i].span_start - v_before.said_from;
      end if;
      continue when v_names[i] is null or length(v_names[i]) not between 2 and 160;
      if v_fronted[i] then
        v_row.span_start := v_row.sentence_start;
        v_row.span_length := length(v_row.sentence);
      end if;
      return next (v_row.text_no, v_row.span_start, case when v_whole[i] then length(v_row.sentence) - v_row.span_start
        + v_row.sentence_start else v_row.span_length end, regexp_replace(v_names[i], _memoir.any_word(null,
        'forget_tails'), ''), v_row.plain ~* ('\m(?:' || _memoir.any_word(null, 'all_about') || ')\M'), v_language,
        v_row.plain)::_memoir.forget_request;
    end loop;
  end loop;
end $$;

-- Returns what "delete it" names: what its sentence says before ("the salary I mentioned, please forget that").
create or replace function _memoir.fronted_name(p_clause _memoir.said_clause, p_bare text, p_language text)
returns text language plpgsql immutable as $$
declare
  v_asks text := nullif(_memoir.any_word(p_language, 'forget_it'), ''); v_before text; v_pattern text; v_hit text;
begin
  if p_clause.span_start = p_clause.sentence_start or p_bare !~* v_asks then return null; end if;
  v_before := _memoir.plain(regexp_replace(left(p_clause.sentence, p_clause.span_start - p_clause.sentence_start),
    '[\s,;:–—-]+(?:and|so)?[\s,]*$', ''), p_language);
  foreach v_pattern in array _memoir.word_list(p_language, 'forget_fronted') loop
    v_hit := (regexp_match(v_before, v_pattern, 'i'))[1];
    if v_hit is not null then return v_hit; end if;
  end loop;
  return null;
end $$;

-- Returns what "Please delete it." names: what the sentence before it says that is known ("… if you did not have my
-- salary."), from where on. p_is_it: that the request names nothing else is known already.
create or replace function _memoir.named_before(p_clause _memoir.said_clause, p_bare text, p_is_it boolean,
  p_language text, p_clauses _memoir.said_clause[], out named text, out said_from integer)
language plpgsql immutable as $$
declare
  v_before _memoir.said_clause; v_hit text[];
  v_is_person boolean := p_bare ~* '\m(?:him|her)\M[^[:alpha:]]*(?:please|pls|now)?[^[:alpha:]]*$';
begin
  if p_language <> 'english' or not p_is_it and p_bare !~* nullif(_memoir.any_word(p_language, 'forget_it'), '') then
    return;
  end if;
  for v_before in
    select c.* from unnest(p_clauses) c where c.text_no = p_clause.text_no and c.clause_no > 0
      and c.sentence_start = (select max(b.sentence_start) from unnest(p_clauses) b
        where b.text_no = p_clause.text_no and b.sentence_start < p_clause.sentence_start)
    order by c.span_start desc
  loop
    -- "It's over with Jasper. Forget everything I said about him."
    if v_is_person then
      named := (select n from _memoir.values_of(v_before.plain, p_language) v, unnest(v.names) with ordinality x(n, o)
        order by o desc limit 1);
      said_from := v_before.span_start;
      if named is not null then return; end if;
    end if;
    v_hit := (select m from regexp_matches(v_before.plain, _memoir.any_word(p_language, 'forget_before'), 'gi')
      with ordinality x(m, o) order by o desc limit 1);
    -- "There is a bug in my script. Remove it.": of neither is said that it is known.
    if v_hit is not null and concat_ws(' ', v_before.said, v_before.plain, p_bare) ~* _memoir.any_word(p_language,
      'known_of_me') then
      named := (array_remove(v_hit, null))[1];
      said_from := v_before.span_start;
      return;
    end if;
  end loop;
end $$;

-- The same of one text.
create or replace function _memoir.forget_requests(p_text text)
returns setof _memoir.forget_request language sql immutable as $$
  select r.* from (select array[_memoir.spoken_language(p_text)]) l(languages),
    _memoir.forget_requests_in(_memoir.said_clauses(array[p_text], l.languages), l.languages) r
  where length(p_text) <= 20000
$$;

-- The user's turns that speak of something, the newest ones, and those of some items, clause by clause: what was said
-- before p_turn.
create or replace function _memoir.units_before(p_turn _memoir.conversation_history, p_terms text[],
  p_roles _memoir.turn_role[], p_newest integer, p_items integer[] default '{}')
returns _memoir.said_unit[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_turn.user_id; v_counters _memoir.user_counters; v_scores _memoir.item_scores; v_items integer[];
  v_locators _memoir.item_locator[]; v_bodies text[]; v_languages text[]; v_of bigint[]; v_said text[];
  v_starts integer[];
begin
  select * into v_counters from _memoir.user_counters where user_id = v_user;
  v_scores := _memoir.word_scores(v_user, v_counters, _memoir.with_matters(p_terms), '{}', '{}');
  v_items := coalesce(v_scores.items[1:40], '{}') || p_items || array(select i.item_no from _memoir.search_items i
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
      s.said ~ '[?？]["”'')]*$' and not coalesce(lower(s.said) ~ nullif(_memoir.any_word(v_languages[s.text_no],
        'tag_questions'), ''), false) and s.said !~* ', (?:right|correct|yes|no|oder|ja|verdad|non|vero|né)\?$'
        and lead(c.span_start) over (partition by l.item_no, s.span_start
        order by c.span_start) is null)::_memoir.said_unit
    from unnest(v_of, v_said, v_starts) s(text_no, said, span_start)
    join unnest(v_locators) l on l.item_no = v_items[s.text_no]
    join _memoir.search_items i on i.user_id = v_user and i.item_no = l.item_no
    cross join lateral _memoir.clauses(s.said, v_languages[s.text_no]) c
    where not exists (select from _memoir.recall_exclusions x where x.user_id = v_user and x.session_id = l.session_id
      and x.turn_index = l.turn_index and x.lifted_at is null and not x.is_doubt and (x.span_start is null
        or x.span_start < l.span_start + s.span_start + c.span_start - 2 + c.span_length
        and l.span_start + s.span_start + c.span_start - 2 < x.span_start + x.span_length)));
end $$;

-- The clauses of persons' texts that may change something, step by step over all of them: the server keeps few compiled
-- patterns. Of texts up to 4,000 characters the first twelve sentences.
create or replace function _memoir.change_candidates(p_texts text[], p_clauses _memoir.said_clause[],
  p_languages text[])
returns _memoir.change_candidate[] language plpgsql stable as $$
declare
  v_language text; v_found _memoir.change_candidate[]; v_all _memoir.change_candidate[] := '{}';
  v_one _memoir.change_candidate; v_values _memoir.said_values[]; v_own text; v_said text; v_context text[];
  v_text_no integer;
  v_greeting text;
begin
  for v_language in select distinct p_languages[c.text_no] from unnest(p_clauses) c order by 1 loop
    v_own := '^(?:' || nullif(_memoir.any_word(v_language, 'own_starts'), '') || ')\M';
    continue when v_own is null;
    v_greeting := '^(?:' || nullif(_memoir.any_word(v_language, 'small_talk'), '') || '),? [[:alpha:]]+$';
    v_said := '^(?:' || coalesce(nullif(_memoir.any_word(v_language, 'first_person'), '') || '|', '')
      || _memoir.any_word(v_language, 'own_starts') || ')\M';
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
      -- "Hey Gina" is about nobody.
      continue when (v_one.new).kinds = '{}' and btrim((v_one.clause).said, ' ,.!') ~* v_greeting;
      -- Without one of these nothing can be changed.
      continue when not v_one.cue and ((v_one.new).kinds <@ _memoir.soft_kinds() or v_one.plain !~* v_own)
        or (v_one.new).kinds = '{}' and (v_one.new).names = '{}' and v_one.olds = '{}' and not v_one.is_over
          and v_one.thing is null and not v_one.is_sure and _memoir.new_place(v_one.plain, v_language) is null
          and _memoir.liking(v_one.plain, v_language) is null and not (v_one.is_answer and (v_one.new).topics <> '{}')
          and not ((v_one.new).topics <> '{}' and v_one.plain ~* v_said and length(v_one.plain) <= 80
            and length(p_texts[(v_one.clause).text_no]) <= 160);
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

-- Short answers to what the assistant just asked ("33 already"): what they give is said of what the question is about.
create or replace function _memoir.answers_given(p_turns _memoir.conversation_history[], p_texts text[],
  p_clauses _memoir.said_clause[], p_languages text[])
returns _memoir.change_candidate[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_clause _memoir.said_clause; v_asked text; v_turn _memoir.conversation_history; v_one _memoir.change_candidate;
  v_language text; v_out _memoir.change_candidate[] := '{}';
begin
  -- What a text begins with, where it says a value.
  for v_clause in
    select distinct on (c.text_no) c.* from unnest(p_clauses) c
    where c.clause_no > 0 and not c.asks and length(p_texts[c.text_no]) <= 160
    order by c.text_no, c.sentence_start, c.clause_no
  loop
    v_turn := p_turns[v_clause.text_no];
    continue when v_clause.span_start > 20 or v_clause.plain !~ '\d' or v_turn.turn_index = 0;
    select (regexp_match(right(h.content, 400), '([^.!?\n]{4,200})[?？]["”'')]*\s*$'))[1] into v_asked
    from _memoir.conversation_history h
    where h.user_id = v_turn.user_id and h.session_id = v_turn.session_id and h.turn_index = v_turn.turn_index - 1
      and h.recorded_at between v_turn.recorded_at - interval '1 day' and v_turn.recorded_at and h.role = 'assistant';
    continue when v_asked is null;
    v_language := p_languages[v_clause.text_no];
    v_one := (v_clause, case when v_language <> 'english' then '' when v_asked ~* '\myou(?:r|rs)?\M' then 'I say '
      when v_asked ~* '\m(?:she|he|they|her|his|their)\M' then 'she says ' else '' end || v_clause.plain, '{}', true,
      false, null, null, false, false, null)::_memoir.change_candidate;
    -- The memory of it says what was asked.
    v_one.clause.said := v_clause.said || ' (asked "' || btrim(v_asked) || '?")';
    v_one.new := _memoir.values_of(v_clause.plain, v_language);
    v_one.new.topics := _memoir.topics(v_asked, v_language, _memoir.word_list(v_language, 'change_words'));
    v_one.context := (v_one.new).topics;
    continue when (v_one.new).kinds <@ _memoir.soft_kinds() or (v_one.new).topics = '{}';
    v_out := v_out || v_one;
  end loop;
  return v_out;
end $$;

-- Of clauses in one language those of sentences that sound like a change or say something of one's own things, but for
-- sentences that only suppose; with what they say is over.
create or replace function _memoir.cued_clauses(p_texts text[], p_clauses _memoir.said_clause[], p_language text,
  p_own text)
returns _memoir.change_candidate[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_cues text[] := _memoir.word_list(p_language, 'change_cues'); v_found _memoir.change_candidate[];
  v_forms text := nullif(_memoir.any_word(p_language, 'change_cue_forms'), ''); v_texts integer[]; v_olds text[];
  v_weak text := nullif(_memoir.any_word(p_language, 'weak_cue_forms'), '');
  v_assent text := '^(?:(?:oh|ah|oops|ups|whoops),? )*(?:' || _memoir.any_word(null, 'assent') || ')\M';
  v_unsure text := nullif(_memoir.any_word(p_language, 'unsure'), ''); v_text_no integer;
  v_one _memoir.change_candidate; v_out _memoir.change_candidate[] := '{}'; v_carried boolean := false;
  v_before text[];
begin
  v_texts := array(select x.t from (select distinct c.text_no as t from unnest(p_clauses) c) x
    where length(p_texts[x.t]) <= 600 and _memoir.has_cue(p_texts[x.t], v_cues, v_forms)
      or length(p_texts[x.t]) <= 160 and lower(p_texts[x.t]) ~ v_weak);
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
      -- "They cut the 7:42. I have to take the 7:12": the sentence before may name what is over.
      v_before := case when (v_one.clause).text_no = v_text_no and length(p_texts[v_text_no]) <= 160 then v_olds end;
      v_text_no := (v_one.clause).text_no;
      v_olds := case when not _memoir.goes_on((v_one.clause).said, p_language)
        then _memoir.values_replaced((v_one.clause).said, p_language, length(p_texts[v_text_no]) <= 160) else '{}' end;
      -- "Guess who quit the brewpub? I drive a van now": what the sentence before says is over is so here, too.
      v_carried := v_olds = '{}' and v_before <> '{}';
      v_olds := case when v_carried then v_before else v_olds end;
    end if;
    v_one.olds := v_olds;
    v_one.is_over := v_carried;
    v_out := v_out || v_one;
  end loop;
  return v_out;
end $$;

-- Returns whether what sounds like an end is denied: "never quit".
create or replace function _memoir.goes_on(p_said text, p_language text)
returns boolean language sql immutable as $$
  select coalesce(lower(p_said) ~ ('\m(?:' || nullif(_memoir.any_word(p_language, 'negations'), '')
    || ') (?:[[:alpha:]]+ )?(?:' || nullif(_memoir.any_word(p_language, 'over_words'), '') || ')|\m(?:'
    || nullif(_memoir.any_word(p_language, 'goes_on'), '') || ')\M'), false)
$$;

-- Clauses with what they refer to said in them: "it leaves at nine" after "I was wrong about the ferry".
create or replace function _memoir.with_referents(p_found _memoir.change_candidate[], p_language text)
returns _memoir.change_candidate[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_one _memoir.change_candidate; v_clause _memoir.said_clause; v_out _memoir.change_candidate[] := '{}';
  v_text_no integer; v_before text; v_retracted text; v_is_taken_back boolean; v_is_open boolean; v_sentence text;
  v_text_cue boolean; v_pronoun text := '^(?:' || nullif(_memoir.any_word(p_language, 'pronouns'), '') || ') ';
  v_adding text := '\m(?:' || nullif(_memoir.any_word(p_language, 'adding_words'), '') || ')\M';
  v_sure text := '\m(?:' || nullif(_memoir.any_word(p_language, 'sure_cues'), '') || ')\M';
  v_taking text := nullif(_memoir.any_word(p_language, 'taking_back'), '');
  v_over text := '\m(?:' || nullif(_memoir.any_word(p_language, 'over_words'), '') || ')';
  v_answers text := '^(?:(?:oops|ups|whoops),? )*(?:' || _memoir.any_word(null, 'assent') || ')\M';
  v_own text := '^(?:new |' || replace(nullif(_memoir.any_word(p_language, 'own_starts'), ''), '|', ' |') || ' )';
  v_bare text := '^(?:' || nullif(_memoir.any_word(p_language, 'bare_past'), '') || ')\M'; v_last text;
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
    -- "My solicitor says completion will be 26 November": completion will be.
    if p_language = 'english' then
      v_one.plain := regexp_replace(v_one.plain, '^(?:(?:my|the|our) )?[[:alpha:]]+ (?:'
        || _memoir.any_word(p_language, 'reports') || ')(?: that|:| to say)? (?=[[:alpha:]]+ .*\d)', '');
    end if;
    v_one.is_sure := v_is_taken_back or coalesce(lower(v_clause.sentence) ~ v_sure, false);
    v_one.cue := v_one.cue or v_is_taken_back;
    -- "Tadeo changed schools, he goes to …": who he is was said before.
    v_is_open := v_before = '' and not v_is_taken_back and coalesce(v_one.plain ~* v_pronoun, false);
    if v_is_open then v_one.plain := v_sentence; end if;
    if v_is_taken_back or v_before <> '' and (v_one.plain ~* v_pronoun or v_one.plain ~ '^[$€£]?\d'
        or p_language = 'english' and v_one.plain ~* '^(?:we|they|it) (?:are|is) (?:now )?(?:called|named) ') then
      v_one.plain := v_before || ' ' || v_one.plain;
    end if;
    v_is_taken_back := false;
    -- "Stepped on the scale: 79 kilos": what stands after the colon says it.
    if v_text_cue and (v_one.plain !~* v_own and v_one.plain ~ '^[^:]{4,40}: [^:]*\d[^:]* [[:alpha:]]{3}'
        or v_one.plain ~* ('^[^:]{4,80}: [^:]{3,40}\m(?:' || _memoir.any_word(null, 'days_of_week') || ')$')) then
      v_one.plain := regexp_replace(v_one.plain, '^[^:]*: ', '');
    end if;
    -- "Container stuck, sofa comes on 19 March", "enganei-me no nome, a minha chefe …": what says it stands last.
    v_one.plain := regexp_replace(v_one.plain, ', (?:and )?(?:still|(?:the )?same)\M.*$', '', 'i');
    v_last := (regexp_match(v_one.plain, ', ([^,]+)$'))[1];
    -- "Nobody has time for 900 pages, so book club is reading …".
    if v_text_cue and p_language = 'english' and v_last ~ '^so (?:now )?[[:alpha:] ]+ (?:is|are|will)\M' then
      v_one.plain := regexp_replace(v_last, '^so (?:now )?', '');
    elsif v_text_cue and v_last is not null and v_one.plain !~* v_own and v_one.plain !~ '\d.*,'
      and (v_last ~* v_own or v_last ~ '^(?!an? |it |its |that )[[:alpha:]]+ [[:alpha:]]+ [[:alpha:]]+ .*\d') then
      v_one.plain := v_last;
    end if;
    if p_language = 'english' and v_one.plain ~* v_bare then v_one.plain := 'I ' || v_one.plain; end if;
    v_before := v_one.plain;
    -- "Ella turned 7, big party": what follows the comma is not what it is about; "it's spelled Ina, my boss" is.
    if not v_is_open and (split_part(v_one.plain, ', ', 1) ~ '\d|[[:alpha:]] [[:upper:]][[:alpha:]]'
      or v_text_cue and strpos(ltrim(split_part(v_one.plain, ', ', 1)), ' ') > 0
        and v_one.plain !~ '^[^\d]*, .*\d') then
      v_one.plain := split_part(v_one.plain, ', ', 1);
    end if;
    v_one.is_over := coalesce(v_one.is_over or lower(v_clause.sentence) ~ v_over, false)
      and not _memoir.goes_on(v_clause.sentence, p_language);
    v_one.is_answer := length(v_one.plain) < 60 and coalesce(v_one.plain ~* v_answers or v_clause.said ~* v_answers
      or lower(v_clause.sentence) ~ v_answer_cues, false);
    v_one.thing := _memoir.new_thing(v_one.plain, p_language);
    v_out := v_out || v_one;
  end loop;
  return v_out;
end $$;

-- Returns whether a text sounds like a correction: a phrase, or what only a pattern tells.
create or replace function _memoir.has_cue(p_text text, p_phrases text[], p_forms text)
returns boolean language sql immutable as $$
  select _memoir.has_phrase(_memoir.padded(p_text), p_phrases) or coalesce(lower(p_text) ~ p_forms, false)
$$;

-- Returns whether a sentence only supposes, what it asks of its reader apart ("Ida moved out, could you check
-- my letter?").
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

-- Returns what a turn's candidates may change of what was said before it: looked up once for all of them, in plain form
-- and with their values.
create or replace function _memoir.earlier_units(p_turn _memoir.conversation_history,
  p_candidates _memoir.change_candidate[], p_language text, out units _memoir.said_unit[], out plains text[],
  out said _memoir.said_values[])
language plpgsql stable as $$
declare
  v_what text;
begin
  units := (_memoir.units_before(p_turn, array(
    select distinct t from unnest(p_candidates) c, unnest((c.new).topics || c.context || _memoir.query_terms(
      p_language::regconfig, array_to_string(c.olds, ' '))) t order by t), '{user}', 12))[1:600];
  plains := array(select _memoir.plain(u.said, p_language) from unnest(units) with ordinality u order by ordinality);
  -- "Is 540 ok for a room? That's my rent": what a value was stands behind it.
  for i in 2 .. cardinality(units) loop
    v_what := (regexp_match(plains[i], nullif(_memoir.any_word(p_language, 'thats_what'), ''), 'i'))[1];
    if v_what is not null and units[i].message_id = units[i - 1].message_id then
      plains[i - 1] := v_what || ' is ' || plains[i - 1];
      units[i - 1].said := v_what || ' is ' || units[i - 1].said;
      units[i - 1].is_question := false;
    end if;
  end loop;
  said := _memoir.values_in(array(select u.said from unnest(units) with ordinality u order by ordinality), p_language);
end $$;

-- Returns what a plain clause takes back without saying what holds instead: "I mixed up the platforms".
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

-- "Got a new phone": the thing, where people have one at a time; what was said of the old one gives way. "Kruemel
-- died": nobody has it any more.
create or replace function _memoir.new_thing(p_plain text, p_language text)
returns text language sql immutable as $$
  select coalesce((select t from (select lower((regexp_match(p_plain, nullif(_memoir.any_word(p_language, 'got_new'),
    ''),
    'i'))[1])) x(t)
  where t = any (_memoir.word_list(p_language, 'replaced_things'))),
    lower((regexp_match(p_plain, nullif(_memoir.any_word(p_language, 'lost_things'), '')))[1]))
$$;

-- The values that a sentence says are over: "not Pepper but Pippa", "instead of six".
create or replace function _memoir.values_replaced(p_said text, p_language text, p_is_brief boolean)
returns text[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_pattern text; v_hit text; v_out text[] := '{}';
  v_said text := translate(left(p_said, 2000), '’', '''');  -- a clause; patterns look to the end from every place
begin
  foreach v_pattern in array _memoir.word_list(p_language, 'replaced')
    || case when p_is_brief then _memoir.word_list(p_language, 'replaced_briefly') else '{}' end loop
    for v_hit in select m[1] from regexp_matches(v_said, v_pattern, 'g') m loop
      v_hit := _memoir.value_cut(v_hit, p_language);
      if p_language = 'english' then
        v_hit := regexp_replace(v_hit, ' (?:sorry|oops|lol|haha|btw|my bad|pls|please|though|actually|ok|okay|duh'
          '|silly me)$',
          '', 'i');
      end if;
      continue when v_hit is null or length(v_hit) < 2 or cardinality(string_to_array(v_hit, ' ')) > 4;
      v_out := v_out || v_hit;
    end loop;
  end loop;
  return v_out;
end $$;
