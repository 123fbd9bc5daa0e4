-- What a turn changes of what was said before, and what it asks to forget. The package pg_memoir_language finds both
-- (changes.py): among the user's earlier texts that have to do with a turn, which SQL looks up here.

-- The user's items before a turn that speak of something, the newest ones, some given ones, and the last turns of its
-- session.
create or replace function _memoir.items_before(p_turn _memoir.conversation_history, p_terms text[],
  p_roles _memoir.turn_role[], p_newest integer, p_items integer[] default '{}')
returns _memoir.item_locator[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_turn.user_id; v_counters _memoir.user_counters; v_scores _memoir.item_scores; v_items integer[];
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
  return array(select (i.item_no, i.kind, i.ref_id, i.session_id, i.turn_index, i.recorded_at, i.span_start,
      i.span_length)::_memoir.item_locator
    from _memoir.search_items i
    where i.user_id = v_user and i.item_no = any (v_items) and i.kind = 't' and not i.dead and i.role = any (p_roles)
      and i.ref_id is distinct from p_turn.message_id
      and (i.session_id <> p_turn.session_id or i.turn_index < p_turn.turn_index)
      and i.created_at <= p_turn.created_at);
end $$;

-- The user's turns that speak of something, the newest ones, and those of some items, clause by clause: what was said
-- before p_turn.
create or replace function _memoir.units_before(p_turn _memoir.conversation_history, p_terms text[],
  p_roles _memoir.turn_role[], p_newest integer, p_items integer[] default '{}')
returns _memoir.said_unit[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_turn.user_id; v_items integer[]; v_bodies text[]; v_languages text[]; v_of bigint[]; v_said text[];
  v_starts integer[];
  v_locators _memoir.item_locator[] := _memoir.items_before(p_turn, p_terms, p_roles, p_newest, p_items);
begin
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

-- What the user said before a turn in the words of its items, as the reader of changes takes it: by words in common,
-- nearness in meaning, and the last turns of its session. What is out of recall, or over already, is left out.
create or replace function _memoir.earlier_texts(p_turn _memoir.conversation_history, p_language text, p_config jsonb)
returns _memoir.said_unit[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_turn.user_id; v_model _memoir.embedding_models; v_vector halfvec; v_near record;
  v_locators _memoir.item_locator[]; v_text text := left(p_turn.content, 1000);
begin
  select * into v_model from _memoir.embedding_models where status = 'active' and provider = 'embedder';
  if found then
    v_vector := (_memoir.query_vector(p_config, v_text, null)).vector;
  end if;
  if v_vector is not null then
    v_near := _memoir.near_turns(v_user, p_config, v_vector, v_model.model_id);
  end if;
  v_locators := _memoir.items_before(p_turn, _memoir.query_terms(p_language::regconfig, v_text), '{user}', 12,
    coalesce(v_near.items, '{}'));
  return array(
    select (l.ref_id, l.session_id, l.turn_index, l.recorded_at, i.created_at, i.role, l.span_start, length(t.body),
      t.body, null, coalesce(l.ref_id = any (v_near.messages), false))::_memoir.said_unit
    from _memoir.texts_at(v_user, v_locators, 'secret') t join unnest(v_locators) l on l.item_no = t.item_no
    join _memoir.search_items i on i.user_id = v_user and i.item_no = l.item_no
    where length(t.body) <= 4000
    order by l.session_id = p_turn.session_id desc, i.created_at desc, l.item_no limit 60);
end $$;

-- What a turn changes of earlier texts of its speaker, as the package reads it, and which memories that hold one of its
-- slots it ends. Null where nothing reads it.
create or replace function _memoir.read_changes(p_text_no integer, p_turn _memoir.conversation_history,
  p_language text, p_slots text[], p_config jsonb)
returns _memoir.turn_changes language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_texts _memoir.said_unit[] := _memoir.earlier_texts(p_turn, p_language, p_config); v_read jsonb;
  v_holders _memoir.memory_store[]; v_read_turn _memoir.turn_changes;
begin
  -- What was said in turns is read as it was said there.
  v_holders := array(select m from _memoir.memory_store m where m.user_id = p_turn.user_id and m.state = 'active'
    and m.slot = any (p_slots) and not exists (select from _memoir.memory_sources s where s.user_id = m.user_id
      and s.item_kind = 'memory' and s.item_id = m.memory_id and s.source_kind = 'turn') limit 20);
  if cardinality(v_texts) + cardinality(v_holders) = 0 then return null; end if;
  v_read := _memoir.py_read('find_changes', jsonb_build_object('text', p_turn.content, 'language', p_language,
    'earlier', (select jsonb_agg(jsonb_build_object('text', t.said, 'language',
        _memoir.spoken_language(t.said), 'said_at', t.created_at, 'turns_before', case
        when t.session_id = p_turn.session_id then p_turn.turn_index - t.turn_index end, 'is_near', t.is_question)
        order by o) from unnest(v_texts) with ordinality t(message_id, session_id, turn_index, recorded_at, created_at,
          role, span_start, span_length, said, context, is_question, o)),
    'memories', (select jsonb_agg(h.content order by h.ordinality) from unnest(v_holders) with ordinality h)),
    p_config ->> 'embedder_socket');
  if jsonb_typeof(v_read) is distinct from 'object' then return null; end if;
  v_read_turn.text_no := p_text_no;
  v_read_turn.is_judged := (v_read ->> 'is_judged')::boolean;
  v_read_turn.ended := array(select (v_holders[1 + e::integer]).memory_id
    from jsonb_array_elements_text(v_read -> 'ended') e);
  v_read_turn.changes := array(
    select (c.by_start, c.by_length, substr(p_turn.content, c.by_start, c.by_length), (u.message_id, u.session_id,
        u.turn_index, u.recorded_at, u.created_at, u.role, u.span_start + c.start - 1, c.length,
        substr(u.said, c.start, c.length), null, false)::_memoir.said_unit,
      array(select jsonb_array_elements_text(c.olds)), c.grade, c.chance, c.remainder)::_memoir.found_change
    from jsonb_to_recordset(v_read -> 'changes') c(earlier integer, start integer, length integer, by_start integer,
      by_length integer, grade text, chance real, olds jsonb, remainder text),
      lateral (select (v_texts[c.earlier + 1]).*) u);
  return v_read_turn;
end $$;

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

-- The items nearest in meaning to a vector, and the messages that they are of.
create or replace function _memoir.near_turns(p_user_id uuid, p_config jsonb, p_vector halfvec, p_model_id smallint,
  out items integer[], out messages uuid[])
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_counters _memoir.user_counters; v_most constant integer := 16;
begin
  select * into v_counters from _memoir.user_counters where user_id = p_user_id;
  items := (_memoir.vector_scores(p_user_id, v_counters, p_config, p_vector, p_model_id, '{}', '{}', v_most)).items;
  messages := array(select distinct i.ref_id from _memoir.search_items i where i.user_id = p_user_id
    and i.item_no = any (items));
end $$;
