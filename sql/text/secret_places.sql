-- Secrets by where they stand or what they look like: headers, URLs, issuers' tokens, codes, seed phrases.

-- Returns whether anything is long enough for a token.
create or replace function _memoir.has_run(p_text text)
returns boolean language plpgsql immutable as $$ begin return p_text ~ '[A-Za-z0-9_.:/+=~!%$@|-]{18}'; end $$;

-- Tokens by the shape their issuers give them; a run of the same letter or a word like "your" is a placeholder. They
-- are looked for in what has eighteen letters and signs or more without a blank; of a run of more than 4,000, as
-- base64 has them, its beginning is looked at.
create or replace function _memoir.secret_tokens(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_shape record; v_found text[]; v_marks constant text := _memoir.token_marks(); v_long boolean; v_runs text;
begin
  select string_agg(r, E'\n') into v_runs
  from (select distinct left(m[1], 4000) as r from regexp_matches(p_text, '([A-Za-z0-9_.:/+=~!%$@|-]{18,})', 'g') m) s
  where r ~ '[0-9]|[a-z][A-Z].*[a-z][A-Z]';
  if v_runs is null then return; end if;
  v_long := v_runs ~ '[A-Za-z0-9_.-]{50}';
  if not v_long and v_runs !~ v_marks then return; end if;
  for v_shape in select * from _memoir.data_token_shapes() t where case when t.marks is null then v_long
      else exists (select from string_to_table(t.marks, ' ') m where strpos(v_runs, ltrim(m, '*')) > 0) end loop
    for v_found in select distinct regexp_matches(v_runs, '(?<![A-Za-z0-9+])(' || v_shape.pattern || ')', 'g') loop
      continue when v_found[1] !~ '[0-9]|[a-z][A-Z].*[a-z][A-Z]'
        or v_found[1] ~* '(?:x{6}|0{12}|your|example-|[-_]here$|placeholder|[.]{3})';
      kind := v_shape.kind;
      value := v_found[1];
      return next;
      exit when not p_all;
    end loop;
  end loop;
end $$;

create or replace function _memoir.placed_secrets(p_pieces text[], p_marks text[], p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_place record; v_found text[]; v_lowers text[] := '{}'; v_likes text[];
begin
  if not p_marks && _memoir.marks_of('places') then return; end if;
  if cardinality(p_pieces) > 1 then v_lowers := array(select lower(p) from unnest(p_pieces) p); end if;
  for v_place in select * from _memoir.secret_places() p where p.marks && p_marks loop
    v_likes := array(select '%' || replace(replace(m, '_', '\_'), '&', '%') || '%' from unnest(v_place.marks) m
      where m = any (p_marks));
    for v_found in
      select distinct f
      from unnest(p_pieces, v_lowers) t(p, l), regexp_matches(p, v_place.pattern, v_place.flags) f
      where l is null or l like any (v_likes)
    loop
      value := case when v_place.strength is null then v_found[1] else _memoir.bare_value(v_found[1]) end;
      continue when value is null or v_place.strength is not null and (_memoir.value_strength(value, true)
        < case v_place.strength when 9 then 1 else v_place.strength end or v_place.strength = 9
          and _memoir.is_about(value)
        or v_place.kind = 'password' and value ~* _memoir.sample_password());
      kind := v_place.kind;
      return next;
      exit when not p_all;
    end loop;
  end loop;
end $$;

-- Returns whether what stands between the name of a number and the number links the two: nothing but signs, a colon at
-- its end, or a word for "is" there.
create or replace function _memoir.links_number(p_between text)
returns boolean language sql immutable as $$
  select lower(p_between) = upper(p_between) and length(p_between) <= 4 or p_between ~ '[:=：#][\s"''*「]*$'
    or lower(substring(p_between from '([^\s:"''*]+)[\s:"''*「]*$')) = any (_memoir.word_list(null, 'password_says'))
$$;

create or replace function _memoir.secret_codes(p_pieces text[], p_marks text[], p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_before text; v_number text; v_name text;
  v_names constant text := '^.*(?<![A-Za-z])(' || _memoir.any_word(null, 'pin_names', 'code_names')
    || ')(?![A-Za-z])(.*)$';
  v_codes constant text := '^(?:' || _memoir.any_word(null, 'code_names') || ')$';
begin
  if not p_marks && _memoir.marks_of('codes') then return; end if;
  -- Digits first, with what stands before them in the sentence; then their name, in that alone.
  for v_before, v_number in
    select distinct right(m[1], 90), m[2]
    from unnest(p_pieces) p, regexp_matches(p,
      '([^0-9\n.;!?]*(?:2[Ff][Aa][^0-9\n.;!?]+)?)(?<![0-9])((?:[A-Z]{1,3}-)?[0-9]{3,8}(?:[ -][0-9]{2,4})?)(?![0-9A-Za-z]|[-./][0-9])', 'g') m
    where lower(right(m[1], 90)) ~ 'p[iu][nk]|cod|tan|otp|cv[vcn]|[^ -~]|geheim|num|kod|zahl|crypt|segret|secret'
  loop
    v_name := (select m[1] from regexp_match(v_before, v_names, 'i') m where length(m[2]) <= 60
      and _memoir.links_number(m[2]));
    v_number := case when length(v_number) > 9 then split_part(v_number, ' ', 1) else v_number end;
    -- Three digits stand on cards only; six behind "PIN code" are a place in India.
    continue when v_name is null or length(v_number) = 3 and v_name
      !~* '^c|sicherheit|segur|sicurezza|beveilig|安全|セキュ|prüf|krypto'
      or length(v_number) = 6 and v_name ~* '^pin[ -]?code$'
        and v_before !~* '(?:card|bank|sim|phone|atm|unlock|account|my|new) pin|pin (?:code )?(?:for|of) (?:my|the)';
    kind := case when v_name ~* v_codes then 'one-time code' else 'PIN' end;
    value := v_number;
    return next;
    exit when not p_all;
  end loop;
  kind := 'one-time code';
  for value in
    select distinct m[1] from unnest(p_pieces) p, regexp_matches(p,
      '(?<![0-9A-Za-z.-])((?:[A-Z]-)?[0-9]{4,8})\s+(?:is|ist|es|est|è|é)\s+'
      || '(?:your|the|my|ihr|dein|mein|tu|su|votre|seu|il tuo)\s[^\n.0-9]*?(?:code|otp|tan|c[oó]digo|codice|pin)(?![a-z])', 'gi') m
    where p ~ '[0-9]{4}\s+(?:is|ist|es|est|è|é)\s'
  loop
    return next;
    exit when not p_all;
  end loop;
end $$;

-- Returns whether a line begins with two short words in small letters.
create or replace function _memoir.has_list_of_words(p_text text)
returns boolean language plpgsql immutable as $$
begin
  return p_text ~ '(?:^|\n)[^A-Za-z\n]{0,8}[a-z]{3,8}[ \t,]{1,3}[^A-Za-z\n]{0,5}[a-z]{3,8}[ \t,]';
end $$;

create or replace function _memoir.seed_phrases(p_pieces text[], p_text text, p_marks text[])
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_found text[]; v_words text[]; v_named boolean; v_word text;
begin
  v_named := p_marks && _memoir.marks_of('seeds')
    and p_text ~* ('(?:seed|recovery|mnemonic|backup|secret|wallet|wiederherstellungs|semilla|recuperación|récupération)[ -]?(?:phrase|words?|wörter|phrasen|frase)'
          || '|mnemonic|bip-?39|metamask|phantom|ledger|trezor|助记词|助記詞|ニーモニック|シードフレーズ|시드|니모닉|сид[- ]?фраз|мнемоник|frase semilla|phrase (?:de récupération|secrète)');
  -- Twelve words alone on a line; beside a name, anywhere.
  if not v_named and not _memoir.has_list_of_words(p_text) then return; end if;
  v_word := '(?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}';
  for v_found in select distinct array[btrim(l, E' \t\r"`“”「」.')] from string_to_table(p_text, E'\n') l
      where length(l) between 46 and 300 and btrim(l, E' \t\r"`“”「」.') ~ ('^' || v_word || '(?:[ \t,]{1,3}' || v_word
        || '){11,23}$')
    union select f from unnest(p_pieces) p, regexp_matches(p, '(?<![A-Za-z''’-])(' || v_word || '(?:[\s,]{1,3}'
      || v_word || '){11,})(?![A-Za-z''’-])', 'g') f where v_named
  loop
    v_words := regexp_split_to_array(btrim(regexp_replace(v_found[1], '[^a-z]+', ' ', 'g')), ' ');
    continue when cardinality(v_words) > 60
      or 6 * cardinality(array(select w from unnest(v_words) w where w
        ~ '[a-z](?:ing|ed|[^siu]s)$')) > cardinality(v_words)
      or not v_named and cardinality(v_words) not in (12, 15, 18, 21, 24) or v_words
        && string_to_array('the,and,for,are,was,but,his,her,had,has,not,from,have,been,were,which,their,would,could,our,its,them,please,with', ',');
    kind := 'seed phrase';
    value := v_found[1];
    return next;
    return;
  end loop;
end $$;
