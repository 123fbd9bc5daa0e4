-- Sentences taken apart: clauses that say one thing each, in the plain form in which rules compare them, and the values
-- that they hold: numbers, days, times, codes, names.

-- Clauses of a sentence with their positions in it. A clause begins where one with a subject of its own does; where
-- only the verb is new ("and have two sons"), it takes over the subject (inherits).
create or replace function _memoir.clauses(p_sentence text, p_language text)
returns table (span_start integer, span_length integer, said text, inherits boolean)
language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_joints text := nullif(_memoir.any_word(p_language, 'clause_joints'), ''); v_starts text; v_verbs text; v_text text;
  v_piece text; v_at integer := 1; v_trimmed text; v_held text := ''; v_pieces text[];
begin
  v_text := translate(p_sentence, '’‘ʼ' || chr(2) || chr(3), '''''''');
  if v_joints is not null and length(p_sentence) <= 600 then
    v_starts := _memoir.any_word(p_language, 'clause_starts');
    v_verbs := nullif(_memoir.any_word(p_language, 'clause_verbs'), '');
    v_text := regexp_replace(v_text, '(, (?:(?:' || v_joints || ') )?|[;:] | +[-–—]+ +| +\(| +(?:' || v_joints
      || ') +)(?=(?:now )?(?:' || v_starts || ')\M)', '\1' || chr(2), 'gi');
    if v_verbs is not null then
      v_text := regexp_replace(v_text, '(,? (?:' || v_joints || ') )(?=(?:(?:now|currently|also|still) )?(?:'
        || v_verbs || ')\M)', '\1' || chr(2) || chr(3),
        'gi');
    end if;
  end if;
  v_pieces := string_to_array(v_text, chr(2));
  for v_no in 1 .. cardinality(v_pieces) loop
    v_piece := v_pieces[v_no];
    -- "Ida and I live together": two words are no clause, nor is "Tariq, my son, is nine" three.
    if v_held || v_piece ~* '^(?:(?:my|our) )?[[:alpha:]''-]+(?: [[:alpha:]''-]+)? and $'
      or v_no < cardinality(v_pieces) and v_piece ~ '^[[:upper:]][[:alpha:]''-]+(?:,| \() ?$'
        and v_pieces[v_no + 1] ~ '^(?:my|our|the) [[:alpha:]-]+(?: [[:alpha:]-]+)?[,)] '
      or v_held ~ ', $' and v_piece ~ '^(?:my|our) [[:alpha:]-]+(?: [[:alpha:]-]+)?, $' then
      v_held := v_held || v_piece;
      continue;
    end if;
    inherits := starts_with(v_piece, chr(3)) and v_held = '';
    v_piece := v_held || ltrim(v_piece, chr(3));
    v_held := '';
    v_trimmed := regexp_replace(v_piece, '[\s,;:(–—-]+((' || coalesce(v_joints, '&') || ')[\s,]*)?$', '', 'i');
    span_start := v_at;
    span_length := length(v_trimmed);
    v_at := v_at + length(v_piece);
    if v_trimmed ~ '[[:alnum:]]' then
      said := v_trimmed;
      return next;
    end if;
  end loop;
end $$;

-- Sentences of texts and their clauses (a sentence itself is clause 0), each step over all of them before the next: the
-- server keeps few compiled patterns. Nobody says so much at once as was pasted: at most sixty sentences of a text. A
-- text of null has none.
create or replace function _memoir.said_clauses(p_texts text[], p_languages text[])
returns _memoir.said_clause[] language plpgsql immutable as $$
declare
  v_sentences _memoir.said_clause[]; v_clauses _memoir.said_clause[];
begin
  v_sentences := array(
    select (t.o, s.span_start, 0, s.span_start, s.span_length, s.said, s.said, null, false, false,
      s.said ~ '[?？]["”'')]*$' and not coalesce(lower(s.said) ~ nullif(_memoir.any_word(p_languages[t.o],
        'tag_questions'), ''), false))::_memoir.said_clause
    from unnest(p_texts) with ordinality t(body, o),
      lateral (select * from _memoir.own_sentences(t.body) s where s.span_length between 3 and 600 limit 60) s
    order by t.o, s.span_start);
  v_clauses := array(
    select (s.text_no, s.sentence_start, c.o, s.span_start + c.span_start - 1, c.span_length, c.said, s.sentence, null,
      c.inherits, c.o = count(*) over (partition by s.text_no, s.sentence_start), s.asks)::_memoir.said_clause
    from unnest(v_sentences) s,
      lateral _memoir.clauses(s.said, p_languages[s.text_no]) with ordinality c(span_start, span_length, said,
        inherits, o)
    order by s.text_no, s.span_start, c.o);
  return array(
    select (c.text_no, c.sentence_start, c.clause_no, c.span_start, c.span_length, c.said, c.sentence,
      _memoir.plain(c.said, p_languages[c.text_no]), c.inherits, c.is_last, c.asks)::_memoir.said_clause
    from unnest(v_sentences || v_clauses) c
    order by c.text_no, c.sentence_start, c.clause_no);
end $$;

-- Returns whether lower-case words hold one of some phrases, which may go on where it ends. Cheaper than a pattern of a
-- hundred words; p_padded is the text as padded() makes it.
create or replace function _memoir.has_phrase(p_padded text, p_phrases text[])
returns boolean language plpgsql immutable as $$
declare
  v_phrase text;
begin
  foreach v_phrase in array coalesce(p_phrases, '{}') loop
    if strpos(p_padded, ' ' || v_phrase) > 0 then return true; end if;
  end loop;
  return false;
end $$;
create or replace function _memoir.padded(p_text text)
returns text language sql immutable as $$
  select ' ' || translate(lower(p_text), E'’‘ʼ\t\r\n"“”„«»()[]{}/–—-*_', '''''''                     ')
$$;

-- A clause as rules read it: contractions written out, case kept, without what merely opens or colours it.
create or replace function _memoir.plain(p_text text, p_language text)
returns text language plpgsql immutable as $$
declare
  v_text text := ' ' || translate(p_text, E'’‘ʼ\t\r\n', '''''''   ') || ' '; v_before text;
begin
  -- One look for all: the server keeps few compiled patterns.
  if p_language = 'english'
    and v_text ~* '\m(?:[[:alpha:]]+''[[:alpha:]]|im\M|[[:alpha:]]+ve\M|thats|whats|cant|wont|[[:alpha:]]*nnot\M'
      '|[[:alpha:]]+nt\M)' then
    v_text := regexp_replace(v_text, '\mi''?m\M', 'I am', 'gi');
    v_text := regexp_replace(v_text, '\m(I|we|they|you)''?ve\M', '\1 have', 'gi');
    v_text := regexp_replace(v_text, '\m(I|we|they|you|it|he|she|that)''ll\M', '\1 will', 'gi');
    v_text := regexp_replace(v_text, '\m(we|they|you)''re\M', '\1 are', 'gi');
    v_text := regexp_replace(v_text, '\mI''d\M', 'I would', 'gi');
    v_text := regexp_replace(v_text, '\m(it|that|he|she|there|what|who|here|where|how|name)''s\M', '\1 is', 'gi');
    v_text := regexp_replace(v_text, '\m(that|what)s\M', '\1 is', 'gi');
    v_text := regexp_replace(v_text, '\m(?:can''t|cant|cannot|won''t|wont)\M', 'will not', 'gi');
    v_text := regexp_replace(v_text, '\m(do|does|did|is|are|was|were|has|have|had)n(''t|t)\M', '\1 not', 'gi');
  end if;
  if p_language = 'english' then
    v_text := regexp_replace(v_text, '\m(' || _memoir.any_word('english', 'intensifiers') || ') ', '', 'gi');
  end if;
  v_text := btrim(regexp_replace(v_text, ' +', ' ', 'g'));
  if p_language = 'english' and v_text ~* '^(?:my|our) ' then
    v_text := regexp_replace(v_text, '^((?:my|our) [[:alpha:] -]{3,40}?) (?:' || _memoir.any_word('english',
      'subject_times') || ') (is|are)\M', '\1 \2', 'i');
  end if;
  -- "Tariq, my son, is nine", "Anneke (my wife) is ill": my son Tariq is.
  if p_language = 'english' and v_text ~ '^[[:upper:]][[:alpha:]''-]+,? \(?(?:my|our|the) ' then
    v_text := regexp_replace(v_text, '^([[:upper:]][[:alpha:]''-]+)(?:, (my|our) ([[:alpha:]-]+(?: [[:alpha:]-]+)?),'
      || '| \((?:my|our|the) ([[:alpha:]-]+(?: [[:alpha:]-]+)?)\)) ', 'my \3\4 \1 ');
  end if;
  while length(v_text) <= 600 loop
    v_before := v_text;
    exit when lower(left(v_text, 3)) = 'no ' and v_text ~* nullif(_memoir.any_word(p_language, 'meant_openings'), '');
    v_text := regexp_replace(v_text, '^(?:' || coalesce(nullif(_memoir.any_word(p_language, 'preambles'), ''), '&')
      || ')(?:[,.:;!…]+ *| *[–—-]+ +| +)(?=[^ ])', '', 'i');
    exit when v_text = v_before;
  end loop;
  return regexp_replace(v_text, '[\s.!;,:…]+$', '');
end $$;

-- The values of clauses by kind, and what else they speak of (topics: word stems; names among them count more). What
-- was taken for a value is no topic. Kind by kind over all clauses, and only where one can be: the server keeps few
-- compiled patterns.
create or replace function _memoir.values_in(p_texts text[], p_language text)
returns _memoir.said_values[] language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  c_counted text[] := _memoir.word_list(p_language, 'counted'); v_rests text[]; v_kind text; v_pattern text;
  v_hits text[]; v_names text[]; v_out _memoir.said_values[]; v_value _memoir.said_values; v_no integer;
  v_changing text[] := _memoir.word_list(p_language, 'change_words');
begin
  v_rests := array(select translate(t, '’‘ʼ', '''''''') from unnest(p_texts) with ordinality x(t, o) order by o);
  v_out := array_fill(('{}', '{}', '{}', '{}', '{}')::_memoir.said_values, array[cardinality(p_texts)]);
  foreach v_kind in array _memoir.value_kinds() loop
    v_pattern := _memoir.value_shape(v_kind, p_language);
    for v_no in
      select o from unnest(v_rests) with ordinality x(t, o)
      where t is not null and _memoir.may_hold(t, v_kind, c_counted) and t ~* v_pattern
    loop
      -- No group of its own: the server keeps few compiled patterns, and this one serves three times.
      v_hits := array(select m[1] from regexp_matches(v_rests[v_no], v_pattern, 'gi') m);
      v_value := v_out[v_no];
      v_value.kinds := v_value.kinds || array_fill(v_kind, array[cardinality(v_hits)]);
      v_value.raws := v_value.raws || array(select btrim(h) from unnest(v_hits) with ordinality x(h, o) order by o);
      v_value.vals := v_value.vals || array(select _memoir.value_key(h, v_kind, c_counted)
        from unnest(v_hits) with ordinality x(h, o) order by o);
      v_out[v_no] := v_value;
      v_rests[v_no] := regexp_replace(v_rests[v_no], v_pattern, ' # ', 'gi');
    end loop;
  end loop;
  -- Names: capitals that no sentence begins with.
  v_names := array(select (select string_agg(lower(btrim(m[1])), chr(1)) from regexp_matches(t,
        '(?:[[:alnum:],;:''"(#] +|["(])((?:[[:upper:]][[:alnum:]''-]+ ?)+)', 'g') m
      where lower(btrim(m[1])) <> all (_memoir.word_list('english', 'sentence_starts'))
        and not starts_with(m[1], 'I''') and btrim(m[1]) <> 'I')
    from unnest(v_rests) with ordinality x(t, o) order by o);
  for i in 1 .. cardinality(v_rests) loop
    v_value := v_out[i];
    v_value.names := coalesce(string_to_array(v_names[i], chr(1)), '{}');
    v_value.topics := _memoir.topics(v_rests[i], p_language, v_changing);
    -- "The move is on the 7th": it is about what else only tells a change.
    if v_value.topics = '{}' and v_value.kinds <> '{}' then
      v_value.topics := _memoir.topics(v_rests[i], p_language, '{}');
    end if;
    v_out[i] := v_value;
  end loop;
  return v_out;
end $$;
create or replace function _memoir.values_of(p_text text, p_language text)
returns _memoir.said_values language sql stable as $$
  select (_memoir.values_in(array[p_text], p_language))[1]
$$;

-- The kinds of values in the order in which they are looked for. Of one another the last three take the place only
-- where something else says so, too.
create or replace function _memoir.value_kinds()
returns text[] language sql immutable as $$
  select '{email,date,time,weekday,how often,rank,code,number,colour,month,part of day}'::text[]
$$;
create or replace function _memoir.soft_kinds()
returns text[] language sql immutable as $$ select '{how often,rank,colour,month,part of day}'::text[] $$;

-- The stem that stands for all of the same matter ("weigh" for "weight"), and all of them beside what they stand for.
create or replace function _memoir.matter_of(p_stem text)
returns text language plpgsql immutable as $$
declare
  v_all text := '|' || _memoir.any_word('english', 'same_matter') || '|'; v_at integer := strpos(v_all, '|' || p_stem
    || '>');
begin
  return case when v_at = 0 then p_stem else split_part(split_part(substr(v_all, v_at + 1), '|', 1), '>', 2) end;
end $$;
create or replace function _memoir.with_matters(p_stems text[])
returns text[] language sql immutable as $$
  select p_stems || array(select split_part(w, '>', 1) from unnest(_memoir.word_list('english', 'same_matter')) w
    where split_part(w, '>', 2) = any (p_stems))
$$;

-- Stems of what a text speaks of, but for words that only tell that something changed.
create or replace function _memoir.topics(p_text text, p_language text, p_without text[])
returns text[] language sql stable as $$
  select array(select distinct _memoir.matter_of(t) from unnest(tsvector_to_array(_memoir.words(p_language::regconfig, (
      select string_agg(w, ' ' order by o) from regexp_split_to_table(lower(p_text),
        '[^[:alnum:]''-]+') with ordinality x(w, o)
      where w <> all (p_without))))) t
    where t ~ '[[:alpha:]]{2}' and t <> all ('{re,ve,ll}'))
$$;

-- Returns whether one of some words stands in a text.
create or replace function _memoir.has_word_of(p_text text, p_words text[])
returns boolean language sql immutable as $$
  select string_to_array(translate(lower(p_text), ',;.!?()', '       '), ' ') && p_words
$$;

-- Returns whether it is worth looking for a kind of value.
create or replace function _memoir.may_hold(p_text text, p_kind text, p_counted text[])
returns boolean language sql immutable as $$
  select case p_kind when 'email' then strpos(p_text, '@') > 0 when 'weekday' then true when 'month' then true
    when 'colour' then _memoir.has_word_of(p_text, _memoir.word_list('english', 'colours'))
    when 'rank' then _memoir.has_word_of(p_text, _memoir.word_list('english', 'ranked'))
    when 'how often' then lower(p_text) ~ 'every |daily|(?:week|month|year|fortnight)ly|(?:once|twice|times) (?:a|per)'
    when 'part of day' then strpos(p_text, 'bedtime') > 0 or strpos(p_text, 'ning') > 0 or strpos(p_text, 'noon') > 0
      or strpos(p_text, 'lunch') > 0
    else translate(p_text, '0123456789', '') <> p_text
      or p_kind = 'number' and string_to_array(translate(lower(p_text), ',;.!?', ''), ' ') && p_counted
      or p_kind = 'time' and lower(p_text) ~ 'noon|midnight|o''clock|sharp|half past|quarter (?:past|to)' end
$$;

-- Returns what a kind of value looks like; it captures nothing.
create or replace function _memoir.value_shape(p_kind text, p_language text)
returns text language plpgsql immutable as $$
declare
  c_months text := _memoir.any_word(null, 'months');
begin
  return case p_kind
    when 'email' then '[[:alnum:]._%+-]{1,64}@[[:alnum:].-]{1,100}'
    when 'date' then '\m(?:\d{1,2}(?:st|nd|rd|th|\.|º)?(?: of| de)? (?:' || c_months || ')\M(?:,? (?:de )?\d{4})?|(?:'
      || c_months || ') \d{1,2}(?:st|nd|rd|th)?\M(?:,? \d{4})?|\d{4}-\d\d-\d\d\M|\d{1,2}[./]\d{1,2}[./](?:\d{4}\M)?'
      || '|\d{1,2}(?:st|nd|rd|th)\M)'
    when 'time' then '\m(?:\d{1,2}[:.h]\d\d(?: ?[ap]m)?\M|\d{1,2} ?(?:am|pm|uhr|h|heures?|horas?)\M|noon\M|midnight\M'
      || '|(?:half|quarter) (?:past|to) [[:alnum:]]+|(?:\d+|' || coalesce(nullif(_memoir.any_word(p_language,
        'counted'), ''), '&') || ') (?:sharp\M|o''clock))'
    when 'weekday' then '\m(?:' || _memoir.any_word(null, 'days_of_week') || ')\M'
    when 'code' then '\m(?:\d[\d ()/+-]{6,}\d|[[:alpha:]]{1,4}-?\d{1,6}[[:alpha:]]?|\d{1,6}[[:alpha:]]{1,2})\M'
    when 'colour' then '\m(?:(?:light|dark|pale|bright|deep|soft|navy|petrol|sky|royal|bottle|forest) )?(?:'
      || _memoir.any_word('english', 'colours') || ')\M'
    when 'part of day' then '\m(?:' || _memoir.any_word('english', 'day_parts') || ')\M'
    when 'how often' then '\m(?:every (?:other |second |third |\d+ |' || coalesce(nullif(_memoir.any_word(p_language,
      'counted'), ''), '&')
      || ' )?(?:day|week|month|year|hour|night|morning|evening)s?\M|(?:dai|week|month|year|fortnight|biweek)ly\M'
      || '|(?:once|twice|\d+ times|[[:alpha:]]+ times) (?:an?|per) (?:day|week|month|year)\M)'
    when 'rank' then '\m(?:' || _memoir.any_word('english', 'ranks') || ')(?= (?:' || _memoir.any_word('english',
      'ranked') || ')\M)'
    when 'month' then '\m(?:(?:(?:in|of|early|mid|late|until|till|to|by|next|this|from) (?:march|may)|'
      || _memoir.any_word('english', 'sure_months') || ')\M)'
    else '[$€£]? ?\d[\d.,]*\d|\d|\m(?:' || coalesce(nullif(_memoir.any_word(p_language, 'counted'), ''), '&')
      || ')\M' end;
end $$;

-- "4th of May", "May 4", "4. Mai": its month and day.
create or replace function _memoir.day_key(p_text text)
returns text language sql immutable as $$
  select case when p_text ~ '^\d{4}-' then p_text
    else coalesce(left(lower((regexp_match(p_text, '\m(' || _memoir.any_word(null, 'months') || ')\M', 'i'))[1]), 3),
      '')
      || (regexp_match(p_text, '\d{1,2}'))[1] end
$$;

-- A value as it is compared, however it is written.
create or replace function _memoir.value_key(p_hit text, p_kind text, p_counted text[])
returns text language sql immutable as $$
  select case p_kind
    when 'date' then _memoir.day_key(p_hit)
    when 'number' then coalesce(array_position(p_counted, lower(p_hit))::text, regexp_replace(p_hit, '[^0-9]', '', 'g'))
    when 'time' then translate(lower(p_hit), '.h ', '::')
    when 'code' then regexp_replace(lower(p_hit), '[^[:alnum:]]', '', 'g')
    when 'weekday' then left(lower(p_hit), 3)
    when 'month' then left(regexp_replace(lower(p_hit), '^.* ', ''), 3)
    when 'part of day' then left(lower(p_hit), 5)
    else lower(p_hit) end
$$;

-- A text with spans (1-based, end excluded) blanked out: positions stay, and no sentence goes over what is gone.
create or replace function _memoir.without_spans(p_text text, p_spans int4range[])
returns text language plpgsql immutable as $$
declare
  v_span int4range; v_at integer := 1; v_out text := '';
begin
  for v_span in select s from unnest(p_spans) s where not isempty(s) order by lower(s) loop
    continue when lower(v_span) < v_at;
    v_out := v_out || substr(p_text, v_at, lower(v_span) - v_at) || repeat(E'\n', upper(v_span) - lower(v_span));
    v_at := upper(v_span);
  end loop;
  return v_out || substr(p_text, v_at);
end $$;
