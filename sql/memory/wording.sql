-- What two sentences say to each other, word by word: what must agree before they count as one, whether one
-- contradicts the other, whether one says what the other says. One text beside another: no user, no table.

-- Returns what must agree before two similar texts may count as one: numbers, negation, dates and names. MiniLM gives
-- "allergic / not allergic" .97 and "3 March / 4 March" .99. Rather too many than too few: two memories too much are
-- shown beside each other, one too few is lost.
create or replace function _memoir.fixed_points(p_text text)
returns text[] language sql immutable as $$
  select array(select distinct x from (
    select lower(m[1]) as x from regexp_matches(p_text,
      '((?:(?<![[:alnum:]])[-−])?[0-9\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u09e6-\u09ef\u0e50-\u0e59\uff10-\uff19〇一二三'
        '四五六七八九十百千万两]+(?:[.,:/-][0-9\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u09e6-\u09ef\u0e50-\u0e59\uff10-\uff19〇一二三四'
        '五六七八九十百千万两]+)*)', 'g') m
    union all
    -- Names: capitals, but for words that merely begin a sentence.
    select lower(m[1]) from regexp_matches(p_text, '\m([[:upper:]][[:alnum:]]+)', 'g') m
    where lower(m[1]) <> all (_memoir.word_list('english', 'sentence_starts'))
    union all
    select case when m[1] ~* 'n[''’]t$' then 'not' else lower(m[1]) end
    from regexp_matches(p_text, '\m(' || _memoir.any_word(null, 'fixed_words') || '|'
      || _memoir.any_word('english', 'months', 'full_weekdays', 'numbers', 'larger_numbers') || ')\M', 'gi') m
    union all
    select m[1] from regexp_matches(p_text, '(不|没|沒|無|无|未|ない|ません|なかった|ไม่|않|없|못|안 )', 'g') m
  ) s order by x)
$$;

-- A sentence as the rules compare it: its words ("eats" as "eat", tenses apart, articles and helpers left out) without
-- its negations, and how many those were; null where a rule can't tell.
create or replace function _memoir.proposition(p_text text, out words text[], out raw text[], out negations integer)
language plpgsql stable as $$
declare
  v_text text := regexp_replace(replace(lower(normalize(p_text, nfkc)), '’', ''''), '\m(cannot|can''t)\M', 'can not',
    'g'); v_word text;
begin
  words := '{}'; raw := '{}'; negations := 0;
  v_text := regexp_replace(regexp_replace(v_text, '\mwon''t\M', 'will not', 'g'), 'n''t\M', ' not', 'g');
  v_text := regexp_replace(v_text, '\mno longer\M|\mnot ((?:\w+ )*)any ?more\M', 'not \1', 'g');
  v_text := regexp_replace(v_text, '\m(?:dislike|hate|detest)(s?)\M', 'not like\1', 'g');
  v_text := regexp_replace(v_text, '\m(?:love|enjoy)(s?)\M', 'like\1', 'g');
  -- Chinese has no spaces: its negations are words of their own.
  v_text := regexp_replace(v_text, '([不没沒])', ' \1 ', 'g');
  if v_text ~ '[?？؟]|\mnot (only|just|necessarily|sure|yet|always|all|every)\M|\mno (doubt|wonder|matter|problem'
    '|idea)\M|\m(if|unless|whether|or|either|maybe|perhaps)\M' then
    negations := null;
    return;
  end if;
  for v_word in select m[1] from regexp_matches(v_text, '([[:alnum:]]+(?:[.,:/''-][[:alnum:]]+)*)', 'g') m loop
    if v_word = any (_memoir.word_list(null, 'negations')) then
      negations := negations + 1;
    elsif v_word <> all (_memoir.word_list(null, 'helpers')) then
      raw := raw || v_word;
      words := words || case when v_word = 'has' then 'have' else _memoir.singular(v_word) end;
    end if;
  end loop;
  if v_text ~ '[\u4e00-\u9fff]' then
    words := array[array_to_string(words, '')];
    raw := words;
  end if;
end $$;

-- A text's words in their order, as two texts that may say the same are compared: case, articles, endings of the plural
-- apart. What is written without spaces is taken by its characters. Signs ("a - b", "$5") are apart, since none may be
-- more on one side.
create or replace function _memoir.wording(p_text text, out words text[], out signs text[])
language plpgsql stable as $$
declare
  v_text text := regexp_replace(replace(lower(normalize(p_text, nfkc)), '’', ''''), '\m(cannot|can''t)\M', 'can not',
    'g');
begin
  v_text := regexp_replace(regexp_replace(v_text, '\mwon''t\M', 'will not', 'g'), 'n''t\M', ' not', 'g');
  v_text := regexp_replace(v_text,
    '([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])', ' \1 ', 'g');
  signs := array(select m[1] from regexp_matches(v_text, '[^[:alnum:][:space:]_.,;:!?…。，、！？；：·"“”„«»''()–—]', 'g') m);
  -- Beside signs an article may be a name: "x = a - b".
  words := array(
    select case when w = 'has' then 'have' else _memoir.singular(w) end
    from regexp_matches(v_text, '[[:alnum:]_]+(?:[.,:/''-][[:alnum:]_]+)*(?:[+#]+(?![[:alnum:]]))?', 'g') m, unnest(m) w
    where signs <> '{}' or w <> all (_memoir.word_list(null, 'helpers')));
end $$;

-- "eats" as "eat", "dogs" as "dog".
create or replace function _memoir.singular(p_word text)
returns text language sql immutable as $$
  select case when p_word !~ '^[a-z]{4,}$' or p_word ~ 'ss$' then p_word
    else regexp_replace(regexp_replace(regexp_replace(p_word, 'ies$', 'y'), '(sh|ch|ss|x|z|o)es$', '\1'), 's$', '') end
$$;

-- Does one text say what the other says, and more at most? The words of one are in the other, in the same order:
-- nothing is swapped ("tea over coffee") or replaced ("my brother"). What is more must not turn it ("rarely",
-- "wants to").
create or replace function _memoir.says_same(p_one text, p_other text)
returns boolean language plpgsql stable as $$
declare
  v_one record; v_other record; v_short text[]; v_long text[]; v_word text; v_at integer := 1;
  v_turns text := '^(?:' || _memoir.any_word(null, 'qualifiers') || ')$';
begin
  select * into v_one from _memoir.wording(p_one);
  select * into v_other from _memoir.wording(p_other);
  if v_one.signs <> v_other.signs then return false; end if;
  v_short := v_one.words;
  v_long := v_other.words;
  if cardinality(v_short) > cardinality(v_long) then
    v_short := v_other.words;
    v_long := v_one.words;
  end if;
  if v_short = '{}' then return false; end if;
  foreach v_word in array v_long loop
    if v_word = v_short[v_at] then v_at := v_at + 1;
    elsif v_word ~ v_turns then return false;
    end if;
  end loop;
  return v_at > cardinality(v_short);
end $$;

-- Returns whether a word is a number or a part of a date.
create or replace function _memoir.is_value(p_word text)
returns boolean language sql immutable as $$
  select coalesce(p_word ~ ('^([0-9].*|noon|midnight|'
    || _memoir.any_word('english', 'months', 'full_weekdays', 'numbers', 'larger_numbers') || ')$'), false)
$$;

-- Do two sentences contradict each other, as far as rules can tell? polarity: the same but for one negation. value: the
-- same but for a number, a date or a name, where the sentence leaves room for one only ("lives in", "is on", "has ...
-- children"). Else null. False contradictions are worse than missed ones.
create or replace function _memoir.contradiction(p_one text, p_other text)
returns text language plpgsql stable as $$
declare
  v_one record; v_other record; v_count integer; v_start integer := 1; v_end integer := 0; v_before text; v_after text;
  v_mine text[]; v_theirs text[];
begin
  if greatest(length(p_one), length(p_other)) > 400 then return null; end if;
  select * into v_one from _memoir.proposition(p_one);
  select * into v_other from _memoir.proposition(p_other);
  v_count := cardinality(v_one.words);
  if v_one.negations is null or v_other.negations is null or v_count = 0 or v_count > 40 then return null; end if;
  if v_one.words = v_other.words then
    return case when v_one.negations + v_other.negations = 1 then 'polarity' end;
  end if;
  if v_one.negations <> 0 or v_other.negations <> 0 then return null; end if;
  -- What differs stands between what both begin and what both end with; values beside it belong to it.
  while v_one.words[v_start] = v_other.words[v_start] loop v_start := v_start + 1; end loop;
  while v_end < least(v_count, cardinality(v_other.words)) - v_start + 1
    and v_one.words[v_count - v_end] = v_other.words[cardinality(v_other.words) - v_end] loop
    v_end := v_end + 1;
  end loop;
  while v_start > 1 and _memoir.is_value(v_one.raw[v_start - 1]) loop v_start := v_start - 1; end loop;
  while v_end > 0 and _memoir.is_value(v_one.raw[v_count - v_end + 1]) loop v_end := v_end - 1; end loop;
  v_mine := v_one.raw[v_start : v_count - v_end];
  v_theirs := v_other.raw[v_start : cardinality(v_other.words) - v_end];
  if cardinality(v_mine) not between 1 and 4 or cardinality(v_theirs) not between 1 and 4 then return null; end if;
  v_before := array_to_string(v_one.raw[1 : v_start - 1], ' ');
  v_after := array_to_string(v_one.raw[v_count - v_end + 1 : v_count], ' ');
  if v_before <> array_to_string(v_other.raw[1 : v_start - 1], ' ') then return null; end if;
  if v_before || ' '
    || v_after ~ '\m(another|other|second|also|too|sometimes|often|one of|some|each|every|last|next|once|ago)\M'
    then return null; end if;
  if (select bool_and(_memoir.is_value(w)) from unnest(v_mine || v_theirs) w) then
    return case when v_before ~ '\m(is|was|are|were)( (on|at|in|from|due|due on|set for|scheduled for))?$'
        or v_before ~
          '^(my|his|her|our|their|user''s) .*\m(starts|begins|ends|leaves|departs|arrives|opens|closes)( (on|at))$'
        or v_before ~ '\m(weighs|costs|earns|pays|born (in|on))$'
        or v_before ~ '^(\w+ )?(has|have)$'
        and v_after ~ '^(\w+ )?(children|kids|sons|daughters|siblings|brothers|sisters|cats|dogs|pets)$'
          then 'value' end;
  end if;
  -- Names: words with a capital, in sentences that have one answer.
  if v_after = ''
    and (v_before ~
    '^(\w+ )?(lives|live|resides|is based|am based|works|work|is employed|is married|am married) (in|at|for|by|to)$'
      or v_before ~ '^(my|his|her|user''s) ((full|first|last|middle) )?name is$'
      or v_before ~ '^(\w+ )?(was|is) born in$')
    and not exists (select from unnest(v_mine) w
      where p_one !~ ('\m' || upper(left(w, 1)) || regexp_replace(substr(w, 2), '[^[:alnum:]]', '.', 'g')))
    and not exists (select from unnest(v_theirs) w
      where p_other !~ ('\m' || upper(left(w, 1)) || regexp_replace(substr(w, 2), '[^[:alnum:]]', '.', 'g')))
  then
    return 'value';
  end if;
  return null;
end $$;
