-- Returns how else identifiers and codes in a text are written. words: those in parseInvoiceHeader and
-- src/parser/header.py. wholes: TOKEN_EXPIRED. codes: joined (E-2047, BA 2490, 555 0142), in a text also from a later
-- part on, their numbers of three digits or more without a sign (2047 of E-2047 and E2047), and versions without
-- letters (15.6 of PG15.6) and without their last part. Days, times, decimal numbers, ranges of small numbers and
-- measures (12-week) are no codes.
create or replace function _memoir.find_codes(p_text text, p_is_question boolean, out words text, out wholes text[],
  out codes text[])
language plpgsql immutable as $$
begin
  if p_text ~ '[[:lower:]][[:upper:]]|[[:alnum:]][_/\\.][[:alpha:]]' then
    select string_agg(regexp_replace(regexp_replace(m[1],
      '([[:lower:]\d])([[:upper:]])|([[:upper:]])([[:upper:]][[:lower:]])', '\1\3 \2\4', 'g'), '[^[:alnum:]]+', ' ',
      'g'), ' ') filter (where m[1] ~ '[[:lower:]][[:upper:]]|[/\\.]' and m[1] !~ '@'),
      array_agg(left(lower(m[1]), 200)) filter (where m[1] ~ '^\w+$' and m[1] ~ '_')
    into words, wholes
    from regexp_matches(p_text,
      '([[:alnum:]]*(?:[[:lower:]][[:upper:]]|[[:alnum:]][_/\\.][[:alpha:]])[\w/\\.@-]*)', 'g') m;
  end if;
  wholes := coalesce(wholes, '{}');
  codes := '{}';
  if p_text !~ '\d' then return; end if;
  codes := array(with codes as (select lower(m[1]) as code from regexp_matches(p_text,
        '([-+]?(?:[[:alpha:]]+[-_/.:])*[[:alpha:]]*\d(?:[-_/.:]?[[:alnum:]])*)', 'g') m
      union
      select lower(m[1]) from regexp_matches(p_text,
        '\m((?:(?!A |I )[A-Z]{1,4}[- ])+\d{1,7}|[A-Z]{1,3}\d{1,4} [A-Z]{2,3}|\d{2,}(?:[ -]\d{2,}){1,7})\M', 'g') m
    ), parted as (select code, string_to_array(translate(code, '-_/.:+', '     '), ' ') as parts from codes
      where code ~ '[^[:alnum:]]|^(?:0x|[a-z]{1,5})\d{3,}[a-z]?$' and length(code) <= 40
        and code !~ '^(?:[\d.:]+|\d{4}[-/]\d\d(?:[-/]\d\d(?:t.*)?)?|\d{1,2}(?:[-/]\d{1,2}){1,2}(?:/\d{4})?)$|/.*/.*/'
        and code !~ '^\d{1,3}(?:-[a-z]{3,})+$'
      union all
      select code, '{}' from codes where code ~ '^\d{1,3}[.]\d{1,3}[.]\d{1,3}$'
    )
    select distinct w from parted cross join lateral (
      select array_to_string(parts[i :], '') as w from generate_series(1, cardinality(parts) - 1) i
      where (i = 1 or not p_is_question and length(array_to_string(parts[i :], '')) > 4)
        and (code !~ '^[\d ]+$' or length(array_to_string(parts, '')) between 7 and 15)
        and code !~ '^[a-z]*\d+(?:[.]\d+)+$'
      union all
      select substring(part from '^(?:0x|[a-z]{0,5})(\d{3,})[a-z]?$') from unnest(parts) part where code !~ '^[\d ]+$'
      union all
      select substring(code from v) from (values ('^[a-z]+(\d+(?:[.]\d+)+)$'),
        ('^[a-z]*(\d{1,3}[.]\d{1,3})(?:[.]\d{1,3})+$')) u(v) where strpos(code, '.') > 0) x(w)
    where w ~ '\d' and length(w) between 3 and 40);
end $$;

-- A text of a language without a stemmer, its words cut to what they have in common in most of their forms.
create or replace function _memoir.stemmed(p_text text, p_language smallint)
returns text language plpgsql immutable as $$
begin
  if p_language <= 1 or (_memoir.language_stems())[p_language] is null then return p_text; end if;
  return regexp_replace(_memoir.readable(p_text), (_memoir.language_stems())[p_language], '\1\2', 'g');
end $$;

-- Words of a text in a language of language.sql, as search keeps them (p_config: the setting's): stems, identifiers by
-- their parts, and beside the stems of another language than the setting's its plain words, since a question may be in
-- one that stems otherwise. What is added has no positions: it does not make the text longer.
create or replace function _memoir.item_words(p_text text, p_language smallint, p_config regconfig)
returns tsvector language plpgsql stable as $$
declare
  v_config regconfig := _memoir.language_config(p_language, p_config); v_found record;
  v_words tsvector := _memoir.words(v_config, _memoir.stemmed(p_text, p_language));
begin
  v_found := _memoir.find_codes(p_text, false);
  v_words := v_words || strip(to_tsvector(v_config, coalesce(v_found.words, '')))
    || array_to_tsvector(v_found.wholes || v_found.codes);
  if v_config <> p_config and (v_config <> 'pg_catalog.simple'::regconfig
    or (_memoir.language_stems())[p_language] is not null) then
    v_words := v_words || strip(ts_delete(to_tsvector('simple', _memoir.readable(p_text)), tsvector_to_array(v_words)));
  end if;
  return v_words;
end $$;

-- A question's words, and the forms that each (of) has in the other languages of its user: their bits, the last one
-- being 0, the setting's. A user of one language has none.
create or replace function _memoir.question_words(p_query text, p_config regconfig, p_languages bigint,
  out language smallint, out config regconfig, out terms text[], out forms text[], out of text[])
language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  -- "Whats" asks no more than "what's" does.
  v_query text := regexp_replace(left(p_query, 20000), '\m(what|who|where|when|how|why)s\M', '\1 is', 'gi');
  v_other smallint; v_own tsvector; v_forms tsvector; v_found record; v_words text[];
  v_default smallint := _memoir.item_language('', p_config);
begin
  language := v_default;
  -- In a language that the user never wrote in nothing would be found.
  if p_languages <> 0 and p_languages <> 1::bigint << v_default then
    language := case when v_default = 0 then 0 else nullif(_memoir.text_language(v_query), 0) end;
    if language is null or p_languages >> language & 1 = 0 then
      -- The one whose frequent words it has most of. One says more of a user's own languages than of all.
      v_words := tsvector_to_array(to_tsvector('simple', left(v_query, 500)));
      language := coalesce((select n from (select n, length(u.words) - length(ts_delete(u.words, v_words)) as count
            from unnest(_memoir.language_words()) with ordinality u(words, n)
            where p_languages >> n::integer & 1 = 1) c
          where c.count > 0 order by c.count desc, c.n limit 1),
        case when p_languages >> v_default & 1 = 1 then v_default
          else (select n from generate_series(0, 62) n where p_languages >> n & 1 = 1 order by n limit 1) end);
    end if;
  end if;
  config := _memoir.language_config(language, p_config);
  v_own := _memoir.words(config, _memoir.stemmed(v_query, language));
  v_found := _memoir.find_codes(v_query, true);
  v_own := v_own || to_tsvector(config, coalesce(v_found.words, ''));
  terms := coalesce(tsvector_to_array(v_own), '{}') || v_found.wholes;
  -- The parser takes a hyphen within a code for a sign.
  if v_found.codes <> '{}' then
    terms := array(select t from unnest(terms) t where t !~ '^[-+]\d'
      union all select w from unnest(v_found.codes) w where w <> all (terms));
  end if;
  forms := '{}';
  of := '{}';
  if p_languages & ~(1::bigint << language) = 0 and language = v_default then return; end if;
  v_own := to_tsvector(config, _memoir.stemmed(_memoir.readable(v_query), language));
  for v_other in select n from generate_series(-1, 62) n where n = -1 or n <> language and p_languages >> n & 1 = 1 loop
    v_forms := to_tsvector(case v_other when -1 then 'simple' else _memoir.language_config(v_other, p_config) end,
      _memoir.stemmed(_memoir.readable(v_query), greatest(v_other, 0::smallint)));
    -- The same parser: what stands at the same place is the same word.
    select forms || coalesce(array_agg(x.form), '{}'), of || coalesce(array_agg(x.own), '{}') into forms, of
    from (select distinct f.lexeme as form, o.lexeme as own from unnest(v_forms) f, unnest(f.positions) fp
          join (select u.lexeme, p from unnest(v_own) u, unnest(u.positions) p) o on o.p = fp
          where f.lexeme <> o.lexeme and o.lexeme = any (terms)) x;
  end loop;
end $$;

-- Returns what else is said of the topics that a question's words belong to (lists topics), as lexemes apart by blanks,
-- and of which of its words (kindred_of): of what a topic goes by all others, of the others what it goes by. So a
-- question finds what shares no word with it in languages that an embedding model may not read.
create or replace function _memoir.kindred_words(p_query text, p_language smallint, p_config regconfig, p_terms text[],
  out kindred text[], out kindred_of text[])
language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_language record; v_lines text[]; v_query text; v_places integer[];
begin
  if p_language > 1 then
    select name, script into v_language from _memoir.data_languages() where number::integer = p_language;
    v_lines := (select entries from _memoir.lists_topics() where language = v_language.name);
  end if;
  if v_lines is null then
    kindred := '{}'; kindred_of := '{}';
  elsif v_language.script in ('kana', 'han', 'hangul', 'thai') then
    -- Words are pairs of characters: a topic's word is asked for if it stands in the question.
    v_query := lower(_memoir.readable(left(p_query, 1000)));
    with words as materialized (
      select n, word <= cardinality(string_to_array(split_part(l, ':', 1), ',')) as general, btrim(w) as word
      from unnest(v_lines) with ordinality u(l, n), unnest(string_to_array(replace(l, ':', ','), ',')) with ordinality
        t(w, word)
    ), found as materialized (select distinct a.word as own, w.word
      from words a join words w on w.n = a.n and (w.general or a.general) and w.word <> a.word
      where strpos(v_query, a.word) > 0
    ), pairs as materialized (
      select u.word, tsvector_to_array(to_tsvector('simple', string_agg(substr(u.word, i, 2), ' '))) as lexemes
      from (select word from found union select own from found) u, generate_series(1, greatest(1, length(u.word) - 1)) i
      group by u.word
    )
    select coalesce(array_agg(k.found), '{}'), coalesce(array_agg(k.own), '{}') into kindred, kindred_of
    from (select distinct array_to_string(w.lexemes, ' ') as found, o as own
          from found f join pairs w using (word) join pairs p on p.word = f.own, unnest(p.lexemes) o
          where w.lexemes <> '{}') k;
  else
    -- Words have stems. Of lines that have the beginning of one, the place of a word in a tsvector tells the line.
    v_lines := array(select l from unnest(v_lines) l
      where exists (select from unnest(p_terms) t where strpos(l, left(t, 5)) > 0));
    v_places := array(select p from unnest(to_tsvector(p_config, _memoir.stemmed(_memoir.readable(
      array_to_string(v_lines, ' ')), p_language))) v, unnest(v.positions) p where v.lexeme = any (p_terms));
    v_lines := array(select l from (select l, n, sum(cardinality(string_to_array(l, ' '))) over (order by n) as last,
        cardinality(string_to_array(l, ' ')) as words from unnest(v_lines) with ordinality u(l, n)) u
      where exists (select from unnest(v_places) p where p between last - words + 1 and last) order by n);
    with words as materialized (select n, word <= cardinality(string_to_array(split_part(l, ':', 1), ',')) as general,
        tsvector_to_array(to_tsvector(p_config, _memoir.stemmed(_memoir.readable(w), p_language))) as lexemes,
        -- A cut that is none ("the" of a word that begins so): items have the plain words, too.
        case when (_memoir.language_stems())[p_language] is not null then btrim(lower(_memoir.readable(w))) end as plain
      from unnest(v_lines) with ordinality u(l, n), unnest(string_to_array(replace(l, ':', ','), ',')) with ordinality
        t(w, word)
    )
    select coalesce(array_agg(k.found), '{}'), coalesce(array_agg(k.own), '{}') into kindred, kindred_of
    from (select distinct f.found, own
          from words a join words w on w.n = a.n and (w.general or a.general) and w.lexemes <> a.lexemes and w.lexemes
            <> '{}', unnest(array[array_to_string(w.lexemes, ' '), w.plain]) f(found), unnest(a.lexemes) own
          where a.lexemes <@ p_terms and f.found is not null) k;
  end if;
end $$;
