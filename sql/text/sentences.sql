-- The speaker's own words of a turn: sentences with their exact spans, without quotes, pasted text and code;
-- dates that depend on the day of speaking made absolute; the first person made a name.

-- The text with everything that is not the speaker's own blanked out, character for character, so that positions stay.
-- Each pattern goes over the text once and takes what follows at once in one match; its groups don't capture, since
-- captures are sought anew in every match.
create or replace function _memoir.own_words(p_text text)
returns text language plpgsql immutable strict as $$
declare
  v_text text := translate(p_text, '’‘ʼ', ''''''''); v_pattern text; v_low text := lower(v_text); v_heads text;
  v_is_plain boolean := translate(v_text, ';{}=(&|>$#', '') = v_text;  -- nothing in it that code has
begin
  foreach v_pattern in array array[
    -- code, whether fenced or not closed; markup
    case when strpos(v_text, '```') > 0 then '(?:```(?:[^`]|`[^`]|``[^`])*(?:```|$)\s*)+' end,
    case when strpos(v_text, '</') > 0 then '<[[:alpha:]][[:alnum:]]*(?: [^<>]*)?>.*</[[:alpha:]][[:alnum:]]*>' end,
    case when strpos(v_text, '<') > 0 then '(?:<(?:/?[[:alpha:]][^<>]*|!--[^<>]*--)>\s*)+' end,
    -- quoted mail
    case when not v_is_plain then '(?:(?:^|\n)[ \t]*(?:>|\|)[^\n]*)+' end]
    -- everything below its header; what is announced as somebody else's text
    || _memoir.word_list(null, 'others_text') || array[
    '\m(?:' || _memoir.any_word(null, 'text_commands') || ')\M[^\n:]{0,80}:.*$',
    -- lines that look like code, logs or tables
    case when not v_is_plain then '(?:(?:^|\n)[^\n]*(?:[;{}]|=>|\(\)|==|&&|\|\|)[ \t]*(?=\n|$))+' end,
    '(?:(?:^|\n)[ \t]*(?:\$|#|>>>|import|def|class|function|traceback|insert into|delete from|\d{4}-\d\d-\d\d[ '
      't]\d\d:\d\d)[ (:][^\n]*)+',
    case when not v_is_plain or strpos(v_text, ':') > 0
      then '(?:(?:^|\n)[^\n]*(?:\d{4}-\d\d-\d\d[ t]\d\d:\d\d|[[:alnum:]_]\.[[:alnum:]_]+ ?= ?)[^\n]*)+' end,
    case when strpos(v_low, 'select ') > 0 or strpos(v_low, 'update ') > 0
      then '(?:(?:^|\n)[ \t]*(?:select [^\n]*\mfrom|update [[:alnum:]_."]+ set)\M[^\n]*)+' end,
    -- somebody else's words, where they are more than a title
    case when v_text ~ '["“”«»„]' then '["“„«](?:[^"“”«»„\n]*[ \t][^"“”«»„\n]*){4,}["”“»]' end]
  loop
    -- What is in quotation marks, or after a colon, is not sought where there is none: the server keeps 32 compiled
    -- patterns, and these are the dearest.
    continue when v_pattern like '%:.*$' and strpos(v_text, ':') = 0
      or strpos(v_pattern, ')"(') > 0 and strpos(v_text, '"') = 0
      or strpos(v_pattern, ')''(') > 0 and strpos(v_text, ' ''') = 0 and not starts_with(v_text, '''');
    -- Nor what begins with words of which the text has none.
    v_heads := substring(v_pattern from '^\\m\(\?:([[:alpha:] |]+)\)');
    continue when not _memoir.holds_any(v_low, string_to_array(lower(v_heads), '|'));
    if v_text ~* v_pattern then v_text := _memoir.blanked(v_text, v_pattern); end if;
  end loop;
  return v_text;
end $$;

-- Returns whether a text holds one of these; null where there are none to look for.
create or replace function _memoir.holds_any(p_text text, p_parts text[])
returns boolean language plpgsql immutable strict as $$
declare
  v_part text;
begin
  foreach v_part in array p_parts loop
    if strpos(p_text, v_part) > 0 then return true; end if;
  end loop;
  return false;
end $$;

-- Every match of a pattern, which captures nothing, as so many ends of lines.
create or replace function _memoir.blanked(p_text text, p_pattern text)
returns text language sql immutable strict as $$
  select string_agg(piece || coalesce(repeat(E'\n', length(match)), ''), '' order by o)
  from rows from (
    unnest(regexp_split_to_array(p_text, p_pattern, 'i')),
    unnest(array(select m[1] from regexp_matches(p_text, p_pattern, 'gi') m))) with ordinality t(piece, match, o)
$$;

-- Sentences of a text with their positions: substr(p_text, span_start, span_length) is the sentence as it was written.
create or replace function _memoir.own_sentences(p_text text)
returns table (span_start integer, span_length integer, said text) language plpgsql immutable strict
set plan_cache_mode = force_generic_plan as $$
declare
  v_text text := _memoir.own_words(p_text); v_piece text; v_at integer := 1; v_trimmed text;
begin
  v_text := regexp_replace(v_text, '\m(' || _memoir.any_word('english', 'abbreviations') || ')\.(?= ?[[:alnum:],])',
    '\1' || chr(1), 'g');
  -- "am 12. März": no sentence ends there.
  if v_text ~ '\d\. [[:alpha:]]' then
    v_text := regexp_replace(v_text, '(\d)\.(?= (?:' || _memoir.any_word(null, 'months') || ')\M)', '\1' || chr(1),
      'gi');
  end if;
  v_text := regexp_replace(v_text,
    '([.!?…。！？]+["”''\)\]]*[ \t]+|\n+|[ \t]+[:;]-?[()DPp](?=[ \t\n]|$)[ \t]*'
      '|[\u2600-\u27bf\U0001f300-\U0001faff]\ufe0f?[ \t]*)', '\1' || chr(2), 'g');
  foreach v_piece in array string_to_array(v_text, chr(2)) loop
    v_trimmed := ltrim(v_piece, E' \t\n\r-*•–—');
    span_start := v_at + length(v_piece) - length(v_trimmed);
    span_length := length(rtrim(v_trimmed, E' \t\n\r'));
    v_at := v_at + length(v_piece);
    if span_length >= 3 then
      said := replace(rtrim(v_trimmed, E' \t\n\r'), chr(1), '.');
      return next;
    end if;
  end loop;
end $$;

-- How rules see a sentence: lower case, contractions written out, without what merely opens or colours it.
create or replace function _memoir.bare(p_sentence text)
returns text language plpgsql immutable strict as $$
declare
  v_text text := ' ' || lower(p_sentence) || ' ';
begin
  v_text := translate(v_text, E'\t\r\n', '   ');
  v_text := replace(replace(replace(replace(v_text, ' i''m ', ' i am '), ' im ', ' i am '), ' i''ve ', ' i have '),
    ' ive ', ' i have ');
  v_text := replace(replace(replace(replace(v_text, ' i''ll ', ' i will '), ' i''d ', ' i would '), 'can''t', 'cannot'),
    'won''t', 'will not');
  v_text := replace(replace(replace(replace(v_text, 'n''t', ' not'), ' dont ', ' do not '), '''re ', ' are '), '''ve ',
    ' have ');
  v_text := replace(replace(replace(replace(v_text, '''ll ', ' will '), 'let''s ', 'let us '), 'it''s ', 'it is '),
    'that''s ', 'that is ');
  v_text := replace(replace(replace(replace(v_text, ' gonna ', ' going to '), ' wanna ', ' want to '), ' gotta ',
    ' have to '), '''cause ', 'because ');
  v_text := replace(replace(replace(v_text, '''d ', ' would '), '''m ', ' am '), '''s ', ' is ');
  v_text := regexp_replace(v_text, '\m(' || _memoir.any_word('english', 'intensifiers') || ') ', '', 'g');
  v_text := _memoir.without_opening(btrim(regexp_replace(v_text, '[ ]+', ' ', 'g')));
  return regexp_replace(v_text,
    '^(?!(no|nope|sorry|wait|wrong|correction|yesterday|tomorrow|(last|next|on) [[:alpha:]]+|(after|before|during|since'
      '|despite|besides) (that|this|it|those)),)[[:alpha:]]+( [[:alpha:]]+)?, (?=(i|my|we|our) )', '');
end $$;

-- Without "Oh wow, hey Jon!" and the like at its start.
create or replace function _memoir.without_opening(p_sentence text)
returns text language plpgsql immutable strict as $$
declare
  v_text text := p_sentence; v_before text;
begin
  while length(p_sentence) <= 600 loop
    v_before := v_text;
    -- A name only where it is called.
    v_text := regexp_replace(v_text, '^(' || _memoir.any_word('english', 'calls')
      || ') (there|[[:alpha:]''-]+)[,.!—–-]+ *(?=[^ ])', '', 'i');
    v_text := regexp_replace(v_text, '^((' || _memoir.any_word('english', 'openings') || ')[ ,.!:;—–-]+)(?=[^ ])', '',
      'i');
    v_text := regexp_replace(v_text, '^(thanks|thank you) (so much )?for [^,.!?–—-]{2,40}[,.!–—-]+ *(?=[^ ])', '', 'i');
    v_text := regexp_replace(v_text, '^(i )?(just )?wanted to [^.!?–—-]{0,80}(--?|–|—) ?(?=(i|my|we)\M)', '', 'i');
    v_text := regexp_replace(v_text,
      '^([^,.!?]{0,40}, ?)?(i )?(just |also )?want(ed)? to (let you know|tell you|share|mention)( that)?,? (?=(i|i''m'
        '|i''ve|i''ll|my|we|we''re|we''ve)\M)', '', 'i');
    exit when v_text = v_before;
  end loop;
  return v_text;
end $$;

-- Is what a sentence is about said elsewhere? "I like holding them" where nothing before "them" is named. "and it was
-- fun" is about the sentence itself. As rules see it.
create or replace function _memoir.dangles(p_sentence text)
returns boolean language sql immutable strict as $$
  -- What stands before the first such word, and the last word of that: nothing with an article, a number or the ending
  -- of a plural.
  select coalesce(m[2] <> all (_memoir.word_list('english', 'clause_openers'))
    and m[1] !~ ('\m(' || _memoir.any_word('english', 'determiners') || ') [[:alpha:]]')
    and m[1] !~ ('\m(?!(' || _memoir.any_word('english', 'no_plurals') || ')\M)[[:alpha:]]{2,}[^su]s\M'), false)
  from regexp_match(p_sentence,
    '^(.*?\m([[:alpha:]''-]+)) (?:it|them|him|those|these|another|that|this|this one|that one)(?:'
    || ' (?:' || _memoir.any_word('english', 'after_pronouns') || ')\M| ?[.!,;]|$)') m
$$;

create or replace function _memoir.number_word(p_word text)
returns integer language sql immutable as $$
  select case when p_word ~ '^\d{1,4}$' then p_word::integer when p_word in ('a', 'an') then 1
    else array_position(_memoir.word_list('english', 'numbers'), p_word) end
$$;

-- Returns what names a day, or days, in a sentence.
create or replace function _memoir.date_pattern()
returns text language plpgsql immutable as $$
declare
  c_days text := _memoir.any_word('english', 'weekdays');
  c_month text := _memoir.any_word('english', 'months');
  c_season text := _memoir.any_word('english', 'seasons');
  c_number text := '\d{1,3}|an?|' || _memoir.any_word('english', 'numbers');
begin
  return '\m(the day (?:before yesterday|after tomorrow)|yesterday|today|tonight|tomorrow'
    || '|this (?:morning|afternoon|evening)|last night'
    || '|(?:' || c_number || ') (?:days?|weeks?|months?|years?) (?:ago|from now)'
    || '|a (?:few|couple of|couple) (?:days|weeks|months|years) (?:ago|back)'
    || '|in (?:' || c_number || ') (?:days?|weeks?|months?|years?)'
    || '|(?:on )?(?:last|next|this|this past|this coming) (?:week(?:end)?|month|year|' || c_days || '|' || c_month
    || '|' || c_season || ')'
    -- "On Sunday mornings" is every one.
    || '|(?:on|until|till|by|since) (?:' || c_days || ')(?! (?:mornings|afternoons|evenings|nights)\M)'
    || '|(?:on |until |till |by |since )?(?:' || c_month || ') \d{1,2}(?:st|nd|rd|th)?(?!\d)(?:,? \d{4})?'
    || '|(?:on |until |till |by |since )?(?:the )?\d{1,2}(?:st|nd|rd|th)?(?: of)? (?:' || c_month || ')(?:,? \d{4})?'
    || '|since (?:19|20)\d\d)\M(?!''s)';
end $$;

create or replace function _memoir.day_in_words(p_day date)
returns text language sql immutable as $$ select to_char(p_day, 'FMDD FMMonth YYYY') $$;

-- "three weeks ago", "in a month", "a few days back": said anew, and the days that it means.
create or replace function _memoir.days_away(p_words text[], p_said date, out said text, out from_day date,
  out to_day date)
language plpgsql immutable as $$
declare
  v_last text := p_words[cardinality(p_words)]; v_n integer; v_unit text;
begin
  if p_words[1] = 'in' then
    v_n := _memoir.number_word(p_words[2]);
    v_unit := rtrim(p_words[3], 's');
  else
    v_n := _memoir.number_word(p_words[1]) * case when v_last = 'now' then 1 else -1 end;
    v_unit := rtrim(p_words[2], 's');
  end if;
  if p_words[2] in ('few', 'couple') then
    said := format('%s before %s', array_to_string(p_words[1 : cardinality(p_words) - 1], ' '),
      to_char(p_said, case when 'days' = any (p_words) then 'FMDD ' else '' end || 'FMMonth YYYY'));
  elsif v_unit = 'day' then
    from_day := p_said + v_n;
  elsif v_unit = 'week' then
    from_day := p_said + 7 * v_n;
    said := 'around ' || _memoir.day_in_words(from_day);
  elsif v_unit = 'month' then
    from_day := date_trunc('month', p_said + make_interval(months => v_n));
    to_day := from_day + interval '1 month';
    said := 'around ' || to_char(from_day, 'FMMonth YYYY');
  elsif v_unit = 'year' then
    from_day := date_trunc('year', p_said + make_interval(years => v_n));
    to_day := from_day + interval '1 year';
    said := 'around ' || to_char(from_day, 'YYYY');
  end if;
end $$;

-- "last week", "next May", "this past Friday".
create or replace function _memoir.span_named(p_words text[], p_said date, out said text, out from_day date,
  out to_day date)
language plpgsql immutable as $$
declare
  c_months text[] := _memoir.word_list('english', 'months');
  v_last text := p_words[cardinality(p_words)]; v_monday date := date_trunc('week', p_said)::date;
  v_n integer := case when p_words[1] = 'last' or p_words[2] = 'past' then -1 when p_words[1] = 'next' then 1
    else 0 end;
  v_day integer := array_position(_memoir.word_list('english', 'weekday_starts'), left(v_last, 3));
  v_month integer := array_position(c_months, (select w from unnest(p_words) w where w = any (c_months) limit 1));
  v_this_month integer := extract(month from p_said); v_year integer := extract(year from p_said); v_season integer;
begin
  if v_last = 'week' then
    from_day := v_monday + 7 * v_n;
    to_day := from_day + 7;
    said := 'in the week of ' || _memoir.day_in_words(from_day);
  elsif v_last = 'weekend' then
    -- On a weekend, "last weekend" is the one before; "this past weekend" and "last weekend" on a weekday the latest
    -- over.
    from_day := v_monday + 5 + 7 * v_n;
    to_day := from_day + 2;
    said := 'on the weekend of ' || _memoir.day_in_words(from_day);
  elsif v_last = 'month' then
    from_day := date_trunc('month', p_said) + make_interval(months => v_n);
    to_day := from_day + interval '1 month';
    said := 'in ' || to_char(from_day, 'FMMonth YYYY');
  elsif v_last = 'year' then
    from_day := date_trunc('year', p_said) + make_interval(years => v_n);
    to_day := from_day + interval '1 year';
    said := 'in ' || to_char(from_day, 'YYYY');
  elsif v_month is not null then
    from_day := make_date(v_year, v_month, 1);
    if v_n < 0 and from_day >= date_trunc('month', p_said) then from_day := from_day - interval '1 year';
    elsif v_n > 0 and from_day <= p_said then from_day := from_day + interval '1 year'; end if;
    to_day := from_day + interval '1 month';
    said := 'in ' || to_char(from_day, 'FMMonth YYYY');
  elsif v_last = any (_memoir.word_list('english', 'seasons')) then
    -- Seasons differ between hemispheres: only the year is said.
    v_season := case v_last when 'spring' then 3 when 'summer' then 6 when 'winter' then 12 else 9 end;
    said := format('in %s %s', v_last, v_year + case when v_n < 0 and v_season + 2 >= v_this_month then -1
      when v_n > 0 and v_season <= v_this_month then 1 else 0 end);
  elsif v_day is not null then
    from_day := case when v_n < 0 then p_said - 1 - (extract(isodow from p_said)::integer - 1 - v_day + 7) % 7
      when v_n > 0 then v_monday + 6 + v_day
      else p_said + (v_day - extract(isodow from p_said)::integer + 7) % 7 end;
  end if;
end $$;

-- "3 May", "May 3rd, 2021": without a year, behind what is told and ahead of what is planned.
create or replace function _memoir.calendar_day(p_words text[], p_month integer, p_said date, p_is_past boolean)
returns date language plpgsql immutable as $$
declare
  v_n integer := coalesce((regexp_match(array_to_string(p_words, ' '), '\m(\d{1,2})(?:st|nd|rd|th)?\M'))[1]::integer,
    0);
  v_year integer := (regexp_match(p_words[cardinality(p_words)], '^(\d{4})$'))[1]::integer; v_day date;
begin
  if v_n not between 1 and 31 then return null; end if;
  v_day := make_date(coalesce(v_year, extract(year from p_said)::integer), p_month, v_n);
  if v_year is null and p_is_past and v_day > p_said + 31 then return v_day - interval '1 year'; end if;
  if v_year is null and not p_is_past and v_day < p_said - 90 then return v_day + interval '1 year'; end if;
  return v_day;
exception when data_exception then return null;
end $$;

-- One match of date_pattern(): what is said instead, or null where "on" and the day will do, and the days that it
-- means. p_rest: the sentence from there on.
create or replace function _memoir.resolve_date(p_hit text, p_rest text, p_said date, p_is_past boolean,
  out said text, out from_day date, out to_day date, out first_word text)
language plpgsql immutable as $$
declare
  c_months text[] := _memoir.word_list('english', 'months');
  v_words text[] := string_to_array(translate(lower(p_hit), ',', ''), ' ');
  v_last text := v_words[cardinality(v_words)];
  v_day integer; v_month integer; v_until boolean;
begin
  first_word := v_words[1];
  -- "by Friday", "until Friday": the preposition stays, and the day is the one ahead.
  v_until := first_word in ('until', 'till', 'by');
  if first_word = 'on' or v_until or first_word = 'since' then v_words := v_words[2:]; end if;
  if v_words[1] = 'the' then v_words := v_words[2:]; end if;
  v_day := array_position(_memoir.word_list('english', 'weekday_starts'), left(v_last, 3));
  v_month := array_position(c_months, (select w from unnest(v_words) w where w = any (c_months) limit 1));
  if v_words = '{day,before,yesterday}' then from_day := p_said - 2;
  elsif v_words = '{day,after,tomorrow}' then from_day := p_said + 2;
  elsif v_last = 'yesterday' then from_day := p_said - 1;
  elsif v_last = 'today' then from_day := p_said;
  elsif v_last = 'tomorrow' then from_day := p_said + 1;
  elsif v_last in ('tonight', 'night') then
    from_day := p_said - (v_last = 'night')::integer;
    said := case v_last when 'night' then 'on the night of '
      else 'on the evening of ' end || _memoir.day_in_words(from_day);
  elsif v_last in ('morning', 'afternoon', 'evening') then
    from_day := p_said;
    said := format('on the %s of %s', v_last, _memoir.day_in_words(from_day));
  elsif first_word = 'in' and p_is_past then null;  -- "we built it in two weeks" is how long it took
  elsif v_last in ('ago', 'back', 'now') or first_word = 'in' then
    select d.said, d.from_day, d.to_day into said, from_day, to_day from _memoir.days_away(v_words, p_said) d;
  elsif v_words[1] in ('last', 'next', 'this') then
    select d.said, d.from_day, d.to_day into said, from_day, to_day from _memoir.span_named(v_words, p_said) d;
  elsif v_month is not null then
    if not (v_month = 5 and first_word = 'may' and p_rest !~ '\mMay \d') then
      from_day := _memoir.calendar_day(v_words, v_month, p_said, p_is_past);
    end if;
  elsif first_word = 'since' and v_last ~ '^\d{4}$' then
    from_day := make_date(v_last::integer, 1, 1);
    to_day := from_day + interval '1 year';
    said := 'since ' || v_last;
  elsif v_day is not null and first_word in ('on', 'until', 'till', 'by', 'since') then
    from_day := case when first_word = 'since' or (p_is_past and not v_until)
      then p_said - 1 - (extract(isodow from p_said)::integer - 1 - v_day + 7) % 7
      else p_said + (v_day - extract(isodow from p_said)::integer + 7) % 7 end;
  end if;
end $$;

-- Words that mean another day tomorrow, made absolute; event_from and event_to bound the first time that is named,
-- valid_until the end that a sentence gives ("until Friday"). A bare weekday lies behind what is told and ahead of what
-- is planned.
create or replace function _memoir.resolve_dates(p_sentence text, p_said date, p_is_past boolean,
  out resolved text, out event_from date, out event_to date, out valid_until date)
language plpgsql immutable as $$
declare
  v_pattern text := _memoir.date_pattern(); v_rest text := p_sentence; v_at integer; v_hit text; v record;
begin
  resolved := '';
  -- A sentence, not a text: each time is sought in the rest.
  while length(p_sentence) <= 600 loop
    v_at := regexp_instr(v_rest, v_pattern, 1, 1, 0, 'i');
    exit when v_at = 0;
    v_hit := regexp_substr(v_rest, v_pattern, v_at, 1, 'i');
    -- "The last week of August" is none of the days around.
    select d.* into v from (select 1) x left join _memoir.resolve_date(v_hit, v_rest, p_said, p_is_past) d
      on not (v_hit ~* '^(?:the )?(?:last|next) ' and substr(v_rest, v_at + length(v_hit)) ~* '^ of ');
    if v.from_day is not null then
      v.to_day := coalesce(v.to_day, v.from_day + 1);
      v.said := coalesce(v.said, case when v.first_word in ('until', 'till', 'by', 'since') then v.first_word
        else 'on' end
        || ' ' || _memoir.day_in_words(v.from_day));
      if v.first_word in ('until', 'till') then
        valid_until := coalesce(valid_until, v.to_day);
      elsif event_from is null and v.first_word <> 'by' then
        event_from := v.from_day;
        event_to := v.to_day;
      end if;
    end if;
    resolved := resolved || left(v_rest, v_at - 1);
    -- "the day before on 3 May" and "on 3 May was" are no English.
    if resolved ~* '\m(for|from|before|after|of|to|than|by|around|about|between|through|until|till|since|during|like) $'
       or btrim(resolved) = '' and substr(v_rest, v_at + length(v_hit)) ~* '^ (was|is|were|has been|had) ' then
      v.said := regexp_replace(v.said, '^(on|in|around) ', '');
    end if;
    resolved := resolved || coalesce(v.said, v_hit);
    v_rest := substr(v_rest, v_at + length(v_hit));
  end loop;
  resolved := resolved || v_rest;
end $$;

-- The speaker named where the sentence says I, me or my, and the verb with it. Other words stay as they were said.
create or replace function _memoir.named(p_sentence text, p_name text)
returns text language plpgsql immutable as $$
declare
  c_kept text[] := _memoir.word_list('english', 'verbs_kept');
  c_between text[] := _memoir.word_list('english', 'between_verb');
  v_words text[] := regexp_split_to_array(p_sentence, '\s+'); v_out text[] := '{}'; v_word text; v_core text;
  v_tail text; v_pending boolean := false; v_next text;
  v_own text := p_name || '''s'; v_seen boolean := false; v_numeral boolean; v_others text;
begin
  for i in 1 .. cardinality(v_words) loop
    v_word := v_words[i];
    v_core := lower(rtrim(v_word, '.,!?;:)"”'));
    v_tail := substr(v_word, length(v_core) + 1);
    v_next := lower(rtrim(coalesce(v_words[i + 1], ''), '.,!?;:'));
    v_others := case when v_seen then case v_core when 'we' then 'they' when 'us' then 'them' when 'our' then 'their'
      when 'ours' then 'theirs' when 'ourselves' then 'themselves'
      when 'we''re' then 'they''re' when 'we''ve' then 'they''ve' when 'we''ll' then 'they''ll'
      when 'we''d' then 'they''d' end end;
    -- "Act I", "parts I and II".
    v_numeral := v_core = 'i' and (v_next in ('and', 'or', '&') and lower(coalesce(v_words[i + 2], '')) ~ '^ii' or i > 2
      and v_tail !~ '^''' and coalesce(v_words[i - 1], '') ~
      ('^(' || _memoir.any_word('english', 'numbered') || ')$'));
    v_seen := v_seen or not v_numeral and v_core in ('i', 'i''m', 'im', 'i''ve', 'ive', 'i''ll', 'i''d', 'me', 'my',
      'mine', 'myself');
    if v_numeral then null;
    elsif v_others is not null then
      -- Who was named, and those with them.
      v_word := v_others || v_tail;
    elsif v_core = 'i' then
      v_word := p_name || v_tail; v_pending := v_tail = '' or v_tail = ',';
    elsif v_core in ('i''m', 'im') then v_word := p_name || ' is' || v_tail;
    elsif v_core in ('i''ve', 'ive') then v_word := p_name || ' has' || v_tail;
    elsif v_core = 'i''ll' then v_word := p_name || ' will' || v_tail;
    elsif v_core = 'i''d' then v_word := p_name || case when v_next in ('been', 'never', 'better', 'gone', 'seen',
      'done', 'just', 'already') or v_next ~ 'ed$' then ' had' else ' would' end || v_tail;
    elsif v_core = 'me' then v_word := p_name || v_tail;
    elsif v_core in ('my', 'mine') then v_word := v_own || v_tail;
    elsif v_core = 'myself' then v_word := 'themselves' || v_tail;
    elsif v_pending and v_core <> all (c_between) and v_core !~ 'ly$' then
      v_pending := false;
      if v_core = 'am' then v_word := 'is' || v_tail;
      elsif v_core = 'have' then v_word := 'has' || v_tail;
      elsif v_core = 'haven''t' then v_word := 'hasn''t' || v_tail;
      elsif v_core = 'do' then v_word := 'does' || v_tail;
      elsif v_core in ('don''t', 'dont') then v_word := 'doesn''t' || v_tail;
      elsif v_core = 'were' then v_word := 'was' || v_tail;
      elsif v_core = any (c_kept) or v_core ~ '([^e]ed|eed)$' and v_core not in ('need', 'feed', 'speed', 'succeed',
        'proceed') or v_core !~ '^[a-z]+$' then null;
      else
        v_word := left(v_word, length(v_core));
        v_word := case when v_core ~ '(s|sh|ch|x|z|o)$' then v_word || 'es' when v_core ~ '[^aeiou]y$' then
          left(v_word, -1) || 'ies' else v_word || 's' end || v_tail;
      end if;
    end if;
    v_out := v_out || v_word;
  end loop;
  return array_to_string(v_out, ' ');
end $$;
