-- Quotations of the user, by which a tool acts in the user's name. A quotation lends no more authority than the
-- clause says in which it stands: a request to forget reaches what it names, a statement carries the words and values
-- that it holds.

-- Returns where p_said stands in a text, whole words each time. Case, punctuation and the kind of quotation marks do
-- not matter.
create or replace function _memoir.quoted_spans(p_text text, p_said text)
returns int4multirange language plpgsql immutable as $$
declare
  v_words text[]; v_pattern text; v_spans int4multirange := '{}'; v_at integer;
  c_unspaced constant text := '[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]';
begin
  v_words := array(select m[1] from regexp_matches(left(p_said, 1000), '([[:alnum:]]+)', 'g') m);
  v_pattern := array_to_string(v_words, '[^[:alnum:]]+');
  if length(v_pattern) < 2 then return v_spans; end if;
  -- Text without spaces has no ends of words.
  v_pattern := case when v_words[1] ~ ('^' || c_unspaced) then '' else '\m' end || v_pattern
    || case when v_words[cardinality(v_words)] ~ (c_unspaced || '$') then '' else '\M' end;
  for v_nth in 1 .. 10 loop
    v_at := regexp_instr(p_text, v_pattern, 1, v_nth, 0, 'i');
    exit when v_at = 0;
    v_spans := v_spans + int4multirange(int4range(v_at, regexp_instr(p_text, v_pattern, 1, v_nth, 1, 'i')));
  end loop;
  return v_spans;
end $$;

-- Returns the user's own turns of a session that hold a quotation, the newest first: the text, its language for
-- rules and its configuration for stems, where the quotation stands, and the clauses of what the user says there in
-- own words.
create or replace function _memoir.quoted_turns(p_session _memoir.sessions, p_said text)
returns table (turn_index integer, body text, language text, config text, quoted int4multirange,
  clauses _memoir.said_clause[])
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_turn _memoir.conversation_history; v_number smallint;
begin
  for v_turn in
    select h.* from _memoir.session_counters c
    join _memoir.conversation_history h on h.user_id = c.user_id and h.session_id = c.session_id
      and h.recorded_at between c.first_recorded_at and c.last_recorded_at
    where c.user_id = p_session.user_id and c.session_id = p_session.session_id and h.role = 'user'
      and h.actor = 'person'
    order by h.turn_index desc limit 200
  loop
    body := normalize(left((_memoir.own_texts(array[v_turn]))[1], 20000), nfkc);
    quoted := _memoir.quoted_spans(body, normalize(p_said, nfkc));
    continue when quoted is null or isempty(quoted);
    turn_index := v_turn.turn_index;
    language := _memoir.spoken_language(body);
    v_number := _memoir.text_language(body);
    config := case when v_number > 6 then (_memoir.language_configs())[v_number] else language end;
    clauses := _memoir.said_clauses(array[body], array[language]);
    return next;
  end loop;
end $$;

-- Returns whether a text speaks of what a request to forget names.
create or replace function _memoir.is_named(p_names text, p_text text, p_config text)
returns boolean language plpgsql stable as $$
declare
  v_named _memoir.said_values := _memoir.values_of(_memoir.plain(p_names, p_config), p_config);
  v_known _memoir.said_values := _memoir.values_of(p_text, p_config); v_topics text[];
begin
  v_topics := array(select t from unnest(v_named.topics) t where t <> all (tsvector_to_array(to_tsvector(
    p_config::regconfig, array_to_string(_memoir.word_list('english', 'forget_words'), ' ')))));
  return v_named.vals <@ v_known.vals and v_topics || v_named.vals <> '{}' and (v_topics = '{}'
    or _memoir.coverage(v_topics, '{}', v_known.topics || _memoir.told_by(v_known) || tsvector_to_array(to_tsvector(
      p_config::regconfig, p_text)), '{}') >= case when cardinality(v_topics) >= 3 then 0.66 else 1 end);
end $$;

-- Returns the requests to forget of a turn: those that rules know, and in languages without rules the clauses that
-- ask so.
create or replace function _memoir.turn_requests(p_clauses _memoir.said_clause[], p_language text)
returns setof _memoir.forget_request language plpgsql stable as $$
begin
  return query select * from _memoir.forget_requests_in(p_clauses, array[p_language]);
  if found then return; end if;
  return query
  select c.text_no, c.span_start, c.span_length, array_to_string(m, ' '), false, p_language, c.said
  from unnest(_memoir.word_list(null, 'forget_asks')) p, unnest(p_clauses) c, regexp_match(c.said, p, 'i') m
  where c.clause_no > 0 and not c.asks and m is not null;
end $$;

-- Finds the request to forget that is quoted and names one of some texts; matched: which of them it names.
-- is_narrower: it names less than the text, which only has to do with it.
create or replace function _memoir.quoted_request(p_session _memoir.sessions, p_said text, p_texts text[], p_slot text,
  out turn_index integer, out names text, out is_all boolean, out span_start integer, out span_length integer,
  out matched integer[], out is_narrower boolean)
language plpgsql stable as $$
declare
  v_turn record; v_request _memoir.forget_request;
begin
  for v_turn in select * from _memoir.quoted_turns(p_session, p_said) loop
    for v_request in select * from _memoir.turn_requests(v_turn.clauses, v_turn.language) r
      where int4range(r.span_start, r.span_start + r.span_length) && v_turn.quoted
    loop
      matched := array(select o::integer from unnest(p_texts) with ordinality x(t, o)
        where _memoir.is_named(v_request.names, t, v_turn.config)
          or p_slot = (_memoir.slot_of('My ' || regexp_replace(v_request.names, '^(?:my|our|the) ', '', 'i')
            || ' is 1000')).slot);
      is_narrower := matched = '{}' and _memoir.is_named(p_texts[1], v_request.names, v_turn.config);
      continue when matched = '{}' and not is_narrower;
      turn_index := v_turn.turn_index;
      names := v_request.names;
      is_all := v_request.is_all;
      span_start := v_request.span_start;
      span_length := v_request.span_length;
      return;
    end loop;
  end loop;
end $$;

-- Returns the words of a text that tell something, in their order: each stem, and the word that stands for the same.
create or replace function _memoir.told_words(p_text text, p_config text)
returns table (at bigint, word text,
  forms text[]) language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  return query
  select w.at, w.word, array_remove(array[l.stem, (
      select split_part(p, '>', 2) from unnest(_memoir.word_list('english', 'claim_same')) p
      where split_part(p, '>', 1) = w.word limit 1),
    -- What stemmers leave apart: "wohne" and "wohnt", "my car" and "his car".
    case when length(w.word) < 5 then null when p_config in ('german', 'dutch') then regexp_replace(l.stem, 'e?t$', '')
      when p_config = 'arabic' then left(w.word, -1) end], null)
  from regexp_split_to_table(regexp_replace(translate(lower(normalize(p_text, nfkc)), '’‘ʼ'' ', '     '),
    '(\d)(?:st|nd|rd|th)\M', '\1', 'g'), '[\s,;:!?…"“”„«»()]+|[.。！？،]+(?:\s+|$)') with ordinality w(word, at)
  cross join lateral unnest(tsvector_to_array(_memoir.words(p_config::regconfig, w.word))) l(stem)
  where w.word <> all (_memoir.word_list(null, 'claim_frames'));
end $$;

-- Returns the forms of all words of a text.
create or replace function _memoir.told_forms(p_text text, p_config text)
returns text[] language sql stable as $$
  select coalesce(array_agg(distinct f), '{}') from _memoir.told_words(p_text, p_config) w, unnest(w.forms) f
$$;

-- Returns whether a text denies something.
create or replace function _memoir.denies_it(p_text text)
returns boolean language sql stable as $$
  select _memoir.fixed_points(p_text) && (_memoir.word_list(null, 'negations')
    || '{cannot,none,without,neither,nor,nobody,nothing,不,没,沒,無,无,未,ない,ません,なかった,ไม่,않,없,못}'::text[])
$$;

-- Returns what of a clause can say a text that denies something, or one that does not: of "three cats, not two" each
-- has its part. p_over: the values of which the clause says that others have their place.
create or replace function _memoir.part_said(p_said text, p_denied boolean, p_over text[])
returns text language sql stable as $$
  select string_agg(p, ', ') from regexp_split_to_table(p_said, '[,;()–—，；、]+\s*') p
  where p ~ '[[:alnum:]]' and (not p_denied and p_over <> '{}' or _memoir.denies_it(p) = p_denied)
$$;

-- Returns whether words of a clause say what p_content does: its words and values stand there or, in a correction, in
-- p_old, the text that is corrected; no word of the clause turns them, and it speaks of the same. p_sentence: the
-- whole that it stands in.
create or replace function _memoir.says(p_said text, p_sentence text, p_content text, p_old text, p_language text,
  p_config text)
returns boolean language plpgsql stable as $$
declare
  v_new text := _memoir.plain(p_content, p_language); v_denied boolean := _memoir.denies_it(v_new); v_said text;
  v_here text[]; v_over text[]; v_is_self boolean;
  v_old text[] := _memoir.told_forms(p_old, p_config); v_content text[] := _memoir.told_forms(v_new, p_config);
  v_change text[] := case when p_old <> '' then _memoir.word_list(p_language, 'change_words') else '{}' end;
  v_fixed text := '\m(' || _memoir.any_word(null, 'fixed_words') || ')\M';
begin
  -- "Not Pepper but Pippa" says Pippa, and denies Pepper.
  v_over := array(select o from unnest(_memoir.values_replaced(p_said, p_language, false)) o
    where _memoir.told_forms(o, p_config) <@ v_old);
  v_said := _memoir.plain(regexp_replace(_memoir.part_said(p_said, v_denied, v_over), '^(?:' || coalesce(nullif(
    _memoir.any_word(p_language, 'forget_openers'), ''), '&') || ')+', '', 'i'), p_language);
  if v_said is null then return false; end if;
  v_is_self := v_said ~* ('^(?:' || coalesce(nullif(_memoir.any_word(p_language, 'first_person'), '') || '|', '')
    || 'we)\M')
    -- Without rules for a language nobody knows how a clause begins.
    or p_config <> p_language;
  v_here := _memoir.told_forms(v_said, p_config) || (_memoir.values_of(v_said, p_language)).vals;
  v_here := array(select h from unnest(v_here) h where v_over = '{}'
    or (h = any (_memoir.told_forms(array_to_string(v_over, ' '), p_config))) = v_denied);
  return not exists (select from _memoir.told_words(v_new, p_config) w where not w.forms && (v_here || v_old)
      -- Who asks to be called Robert wants it.
      and (v_is_self or w.word !~ '^(?:wants?|asks?|wishes)$'))
    and (v_denied and not _memoir.denies_it(p_old) and v_content && v_here
      or exists (select from unnest(v_content) c where c = any (v_here) and c <> all (v_old)))
    and not exists (select m[1] from regexp_matches(lower(v_new), v_fixed, 'g') m where not _memoir.denies_it(m[1])
      except select m[1] from regexp_matches(lower(concat_ws(' ', v_said, p_old)), v_fixed, 'g') m)
    -- Nothing turns it: "used to", "wants to".
    and not exists (select from regexp_matches(lower(v_said), '\m(' || coalesce(nullif(_memoir.any_word(p_language,
      'qualifiers'), ''), '&') || ')\M', 'g') m where not _memoir.has_words(v_new, m[1]) and m[1] <> all (v_change))
    and (p_old = '' or _memoir.told_forms(p_sentence, p_config) && v_old)
    and _memoir.is_mostly(v_said, v_content || v_old, v_change, v_is_self, p_config)
    and _memoir.keeps_order(v_said, v_new, p_config);
end $$;

-- Returns whether a clause speaks for the most part of some words, and of nobody else: it begins with one, or with
-- its speaker.
create or replace function _memoir.is_mostly(p_said text, p_forms text[], p_change text[], p_is_self boolean,
  p_config text)
returns boolean language sql stable as $$
  with words as materialized (
    select w.at, w.forms && p_forms as is_known, w.word = any (p_change) as is_change
    from _memoir.told_words(p_said, p_config) w)
  select 2 * count(*) filter (where not is_known and not is_change) < count(*)
    and (p_is_self or bool_or(is_known or is_change) filter (where at = (select min(at) from words)))
  from words
$$;

-- Returns whether names, and around words such as "over" all words, stand in the same order in both texts.
create or replace function _memoir.keeps_order(p_said text, p_content text, p_config text)
returns boolean language sql stable as $$
  with said as (
    select w.forms, w.at from _memoir.told_words(p_said, p_config) w
    where p_said ~* '\m(?:over|than|instead|versus|before|after)\M' or w.word = any (array(
      select lower(m[1]) from regexp_matches(p_said, '\m([[:upper:]][[:alnum:]]*)', 'g') m
      where lower(m[1]) <> all (_memoir.word_list('english', 'sentence_starts'))))),
  places as (
    select w.at, min(s.at) as said_at from _memoir.told_words(p_content, p_config) w join said s on s.forms && w.forms
    group by w.at)
  select not exists (select from (select said_at, lag(said_at) over (order by at) as before from places) p
    where said_at < before)
$$;

-- Finds the newest turn of which a quoted clause says p_content, beside one of some older texts where it corrects;
-- matched: which of them. Questions, suppositions and reports state nothing.
create or replace function _memoir.quoted_statement(p_session _memoir.sessions, p_said text, p_content text,
  p_olds text[], p_slot text, out turn_index integer, out matched integer[])
language plpgsql stable as $$
declare
  v_turn record; v_stated _memoir.said_clause[]; v_said text; v_sentence text;
begin
  for v_turn in select * from _memoir.quoted_turns(p_session, p_said) loop
    v_stated := array(select c from unnest(_memoir.clauses_to_state(v_turn.clauses, v_turn.language)) c
      where c.clause_no > 0 and int4range(c.span_start, c.span_start + c.span_length) && v_turn.quoted
        and not coalesce(_memoir.is_supposed(c.plain, v_turn.language), false)
        and not coalesce(c.plain ~* nullif(_memoir.any_word(v_turn.language, 'conditions'), ''), false));
    continue when v_stated = '{}';
    -- Of each clause the parts between commas that are quoted.
    select string_agg(substr(v_turn.body, p.first, p.length), ', ' order by p.first) into v_said
    from unnest(v_stated) c, lateral (
      select c.span_start + coalesce(sum(length(x)) over (order by o rows between unbounded preceding and 1 preceding),
        0)::integer as first, length(x) as length
      from regexp_split_to_table(c.said, '(?<=[,;()–—，；、])') with ordinality t(x, o)) p
    where int4range(p.first, p.first + p.length) && v_turn.quoted;
    select string_agg(distinct c.sentence, ' ') into v_sentence from unnest(v_stated) c;
    matched := array(select o::integer from unnest(p_olds) with ordinality x(t, o)
      where _memoir.says(v_said, v_sentence, p_content, t, v_turn.language, v_turn.config)
        or _memoir.says_slot(v_stated, p_content, t, p_slot, v_turn.language, v_turn.config));
    if matched <> '{}' then
      turn_index := v_turn.turn_index;
      return;
    end if;
  end loop;
  matched := '{}';
end $$;

-- Returns whether one of some clauses gives a slot the value that p_content gives it: "I moved to Porto", "Lives in
-- Porto". A correction is of a memory that has the slot, and may say the value in the words of p_old.
create or replace function _memoir.says_slot(p_clauses _memoir.said_clause[], p_content text, p_old text, p_slot text,
  p_language text, p_config text)
returns boolean language sql stable as $$
  select exists (
    select from _memoir.statements_in(array(select c.plain from unnest(p_clauses) c),
      array(select false from unnest(p_clauses)), p_language, true) r,
      _memoir.slot_of(p_content) n, lateral (select replace(r.rule ->> 'slot', 'form of address', 'name'),
      r.rule ->> 'value', _memoir.told_forms(r.rule ->> 'value', p_config)) s(slot, value, forms)
    where (p_old = '' or replace(p_slot, 'form of address', 'name') = s.slot)
      and (n.slot = s.slot and lower(n.slot_value) = lower(s.value)
        or p_old <> '' and s.forms <@ _memoir.told_forms(p_content, p_config) and not _memoir.denies_it(p_content)
          and not exists (select from _memoir.told_words(p_content, p_config) w
            where not w.forms && (s.forms || _memoir.told_forms(p_old, p_config))
              and w.word !~ '^(?:wants?|likes?|prefers?|called?|named?|addressed)$')))
$$;

-- Returns what a memory says, and the words of the turns that it was made of.
create or replace function _memoir.memory_words(p_memory _memoir.memory_store)
returns text language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  return concat_ws(' ', p_memory.content, (
    select string_agg(substr(h.content, s.span_start, s.span_length), ' ' order by h.recorded_at)
    from _memoir.memory_sources s
    join _memoir.search_items i on i.user_id = s.user_id and i.ref_id = s.source_id and i.kind = 't' and i.chunk = 0
    join _memoir.conversation_history h on h.user_id = s.user_id and h.session_id = i.session_id
      and h.recorded_at = i.recorded_at and h.message_id = i.ref_id
    where s.user_id = p_memory.user_id and s.item_kind = 'memory' and s.item_id = p_memory.memory_id
      and s.source_kind = 'turn' and s.span_start is not null));
end $$;

-- Returns the clauses and sentences of a whole turn, each as a part of it.
create or replace function _memoir.parts_of(p_unit _memoir.said_unit)
returns _memoir.said_unit[] language plpgsql stable as $$
begin
  return array(
    select (p_unit.message_id, p_unit.session_id, p_unit.turn_index, p_unit.recorded_at, p_unit.created_at, p_unit.role,
      c.span_start, c.span_length, c.said, p_unit.context, c.asks)::_memoir.said_unit
    from unnest(_memoir.said_clauses(array[left(p_unit.said, 20000)], array[_memoir.spoken_language(p_unit.said)])) c
    order by c.clause_no = 0, c.span_start limit 40);
end $$;
