-- Sentences taken apart: clauses that say one thing each, in the plain form in which rules compare them, and the values
-- that they hold: numbers, days, times, codes, names.

-- Clauses of a sentence with their positions in it. A clause begins where one with a subject of its own does; where only
-- the verb is new ("and have two sons"), it takes over the subject (inherits).
create or replace function _memoir.clauses(p_sentence text, p_language text)
returns table (span_start integer, span_length integer, said text, inherits boolean)
language plpgsql immutable as $$
declare
  v_joints text := nullif(_memoir.any_word(p_language, 'clause_joints'), ''); v_starts text; v_verbs text; v_text text;
  v_piece text; v_at integer := 1; v_trimmed text; v_held text := '';
begin
  v_text := translate(p_sentence, '’‘ʼ' || chr(2) || chr(3), '''''''');
  if v_joints is not null and length(p_sentence) <= 600 then
    v_starts := _memoir.any_word(p_language, 'clause_starts');
    v_verbs := nullif(_memoir.any_word(p_language, 'clause_verbs'), '');
    v_text := regexp_replace(v_text, '(, (?:(?:' || v_joints || ') )?|[;:] | +[-–—]+ +| +\(| +(?:' || v_joints
      || ') +)(?=(?:' || v_starts || ')\M)', '\1' || chr(2), 'gi');
    if v_verbs is not null then
      v_text := regexp_replace(v_text, '(,? (?:' || v_joints || ') )(?=(?:(?:now|currently|also|still) )?(?:' || v_verbs || ')\M)', '\1' || chr(2) || chr(3),
        'gi');
    end if;
  end if;
  foreach v_piece in array string_to_array(v_text, chr(2)) loop
    -- "Ida and I live together": two words are no clause.
    if v_held || v_piece ~* '^(?:(?:my|our) )?[[:alpha:]''-]+(?: [[:alpha:]''-]+)? and $' then
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

-- A clause as rules read it: contractions written out, case kept, without what merely opens or colours it.
create or replace function _memoir.plain(p_text text, p_language text)
returns text language plpgsql immutable as $$
declare
  v_text text := ' ' || translate(p_text, E'’‘ʼ\t\r\n', '''''''   ') || ' '; v_before text;
begin
  -- One look for all: the server keeps few compiled patterns.
  if p_language = 'english' and v_text ~* '\m(?:[[:alpha:]]+''[[:alpha:]]|im\M|[[:alpha:]]+ve\M|thats|whats|cant|wont|[[:alpha:]]*nnot\M|[[:alpha:]]+nt\M)' then
    v_text := regexp_replace(v_text, '\mi''?m\M', 'I am', 'gi');
    v_text := regexp_replace(v_text, '\m(I|we|they|you)''?ve\M', '\1 have', 'gi');
    v_text := regexp_replace(v_text, '\m(I|we|they|you|it|he|she|that)''ll\M', '\1 will', 'gi');
    v_text := regexp_replace(v_text, '\m(we|they|you)''re\M', '\1 are', 'gi');
    v_text := regexp_replace(v_text, '\mI''d\M', 'I would', 'gi');
    v_text := regexp_replace(v_text, '\m(it|that|he|she|there|what|who|here|where|how|name)''s\M', '\1 is', 'gi');
    v_text := regexp_replace(v_text, '\m(thats|whats)\M', 'that is', 'gi');
    v_text := regexp_replace(v_text, '\m(can|wo)(n''t|nt|nnot)\M', 'will not', 'gi');
    v_text := regexp_replace(v_text, '\m(do|does|did|is|are|was|were|has|have|had)n(''t|t)\M', '\1 not', 'gi');
  end if;
  if p_language = 'english' then
    v_text := regexp_replace(v_text, '\m(' || _memoir.any_word('english', 'intensifiers') || ') ', '', 'gi');
  end if;
  v_text := btrim(regexp_replace(v_text, ' +', ' ', 'g'));
  while length(v_text) <= 600 loop
    v_before := v_text;
    v_text := regexp_replace(v_text, '^(?:' || coalesce(nullif(_memoir.any_word(p_language, 'preambles'), ''), '&')
      || ')(?:[,.:;!…]+ *| *[–—-]+ +| +)(?=[^ ])', '', 'i');
    exit when v_text = v_before;
  end loop;
  return regexp_replace(v_text, '[\s.!;,:…]+$', '');
end $$;

-- The values of a clause by kind, and what else it speaks of (topics: word stems; names among them count more). What was
-- taken for a value is no topic.
create or replace function _memoir.values_of(p_text text, p_language text)
returns _memoir.said_values language plpgsql stable as $$
declare
  v_out _memoir.said_values := ('{}', '{}', '{}', '{}', '{}');
  c_months text := _memoir.any_word(null, 'months');
  c_days text := _memoir.any_word(null, 'days_of_week');
  c_numbers text := coalesce(nullif(_memoir.any_word(p_language, 'counted'), ''), '&');
  v_text text := translate(p_text, '’‘ʼ', ''''''''); v_rest text; v_kind text; v_pattern text; v_hit text;
  v_config regconfig := p_language::regconfig;
begin
  foreach v_kind in array '{email,date,time,weekday,code,number}'::text[] loop
    v_pattern := case v_kind
      when 'email' then '[[:alnum:]._%+-]{1,64}@[[:alnum:].-]{1,100}'
      when 'date' then '\m(?:\d{1,2}(?:st|nd|rd|th|\.|º)?(?: of| de)? (?:' || c_months || ')\M(?:,? (?:de )?\d{4})?|(?:'
        || c_months || ') \d{1,2}(?:st|nd|rd|th)?\M(?:,? \d{4})?|\d{4}-\d\d-\d\d\M|\d{1,2}[./]\d{1,2}[./](?:\d{4}\M)?'
        || '|\d{1,2}(?:st|nd|rd|th)\M)'
      when 'time' then '\m(?:\d{1,2}[:.h]\d\d(?: ?[ap]m)?\M|\d{1,2} ?(?:am|pm|uhr)\M|noon\M|midnight\M)'
      when 'weekday' then '\m(?:' || c_days || ')\M'
      when 'code' then '\m(?:\d[\d ()/+-]{6,}\d|[[:alpha:]]{1,4}-?\d{1,6}[[:alpha:]]?|\d{1,6}[[:alpha:]]{1,2})\M'
      else '[$€£]? ?\d[\d.,]*\d|\d|\m(?:' || c_numbers || ')\M' end;
    -- No group of its own: the server keeps few compiled patterns, and this one serves twice.
    for v_hit in select m[1] from regexp_matches(v_text, v_pattern, 'gi') m loop
      v_out.kinds := v_out.kinds || v_kind;
      v_out.raws := v_out.raws || btrim(v_hit);
      v_out.vals := v_out.vals || case v_kind
        when 'date' then _memoir.day_key(v_hit)
        when 'number' then coalesce(array_position(string_to_array(c_numbers, '|'), lower(v_hit))::text,
          regexp_replace(v_hit, '[^0-9]', '', 'g'))
        when 'time' then regexp_replace(regexp_replace(lower(v_hit), '[.h]', ':'), ' ', '', 'g')
        when 'code' then regexp_replace(lower(v_hit), '[^[:alnum:]]', '', 'g')
        when 'weekday' then left(lower(v_hit), 3)
        else lower(v_hit) end;
    end loop;
    v_text := regexp_replace(v_text, v_pattern, ' # ', 'gi');
  end loop;
  -- Names: capitals that no sentence begins with.
  for v_hit in select m[1] from regexp_matches(v_text, '(?:[[:alnum:],;:''"(] +|["(])((?:[[:upper:]][[:alnum:]''-]+ ?)+)', 'g') m
  loop
    v_hit := btrim(v_hit);
    continue when lower(v_hit) = any (_memoir.word_list('english', 'sentence_starts')) or v_hit ~ '^I(''|$)';
    v_out.names := v_out.names || lower(v_hit);
  end loop;
  v_rest := regexp_replace(v_text, '\m(?:' || coalesce(nullif(_memoir.any_word(p_language, 'change_words'), ''), '&') || ')\M', ' ',
    'gi');
  v_out.topics := array(select t from unnest(tsvector_to_array(_memoir.words(v_config, v_rest))) t where t ~ '[[:alpha:]]{2}');
  return v_out;
end $$;

-- "4th of May", "May 4", "4. Mai": its month and day.
create or replace function _memoir.day_key(p_text text)
returns text language sql immutable as $$
  select case when p_text ~ '^\d{4}-' then p_text
    else coalesce(left(lower((regexp_match(p_text, '\m(' || _memoir.any_word(null, 'months') || ')\M', 'i'))[1]), 3), '')
      || (regexp_match(p_text, '\d{1,2}'))[1] end
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
