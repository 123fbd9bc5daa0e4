-- The words that search keeps of a text, and those that it looks for: by the text's own language.

create or replace function _memoir.has_identifiers(p_text text)
returns boolean language sql immutable as $$
  select p_text ~ '[[:lower:]][[:upper:]]|[[:alnum:]][_/\\.][[:alpha:]]'
$$;

-- The parts of identifiers, which a person says apart: parseInvoiceHeader, src/parser/header.py; and TOKEN_EXPIRED whole.
-- Null: there are none.
create or replace function _memoir.identifiers(p_text text, out parts text, out wholes text)
language plpgsql immutable as $$
begin
  select string_agg(regexp_replace(regexp_replace(m[1],
    '([[:lower:]\d])([[:upper:]])|([[:upper:]])([[:upper:]][[:lower:]])',
      '\1\3 \2\4', 'g'), '[^[:alnum:]]+', ' ', 'g'), ' ')
      filter (where m[1] ~ '[[:lower:]][[:upper:]]|[/\\.]' and m[1] !~ '@'),
    string_agg(m[1], ' ') filter (where m[1] ~ '^\w+$' and m[1] ~ '_')
  into parts, wholes
  from regexp_matches(p_text, '([[:alnum:]]*(?:[[:lower:]][[:upper:]]|[[:alnum:]][_/\\.][[:alpha:]])[\w/\\.@-]*)',
    'g') m;
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
  v_config regconfig := _memoir.language_config(p_language, p_config); v_parts text; v_wholes text;
  v_words tsvector := _memoir.words(v_config, _memoir.stemmed(p_text, p_language));
begin
  if _memoir.has_identifiers(p_text) then
    select i.parts, i.wholes into v_parts, v_wholes from _memoir.identifiers(p_text) i;
    v_words := v_words || strip(to_tsvector(v_config, coalesce(v_parts, '')))
      || array_to_tsvector(array(select distinct left(w, 200)
        from unnest(string_to_array(lower(coalesce(v_wholes, '')), ' ')) w where w <> ''));
  end if;
  -- Without a stemmer they are plain already.
  if v_config <> p_config and (v_config <> 'pg_catalog.simple'::regconfig
    or (_memoir.language_stems())[p_language] is not null) then
    v_words := v_words || strip(ts_delete(to_tsvector('simple', _memoir.readable(p_text)), tsvector_to_array(v_words)));
  end if;
  return v_words;
end $$;

-- A question's words, and the forms that each (of) has in the other languages of its user: their bits, the last one being 0,
-- the setting's. A user of one language has none.
create or replace function _memoir.question_words(p_query text, p_config regconfig, p_languages bigint,
  out language smallint, out config regconfig, out terms text[], out common text[], out forms text[], out of text[])
language plpgsql stable as $$
declare
  v_query text := left(p_query, 20000); v_other smallint; v_own tsvector; v_forms tsvector; v_parts text; v_wholes text;
  v_default smallint := _memoir.config_language(p_config);
begin
  language := v_default;
  -- In a language that the user never wrote in nothing would be found.
  if p_languages <> 0 and p_languages <> 1::bigint << v_default then
    language := _memoir.item_language(v_query, p_config);
    if p_languages >> language & 1 = 0 then
      language := case when p_languages >> v_default & 1 = 1 then v_default
        else (select n from generate_series(0, 62) n where p_languages >> n & 1 = 1 order by n limit 1) end;
    end if;
  end if;
  config := _memoir.language_config(language, p_config);
  v_own := _memoir.words(config, _memoir.stemmed(v_query, language));
  if _memoir.has_identifiers(v_query) then
    select i.parts, i.wholes into v_parts, v_wholes from _memoir.identifiers(v_query) i;
    v_own := v_own || to_tsvector(config, coalesce(v_parts, ''));
  end if;
  terms := coalesce(tsvector_to_array(v_own), '{}') || coalesce(string_to_array(lower(v_wholes), ' '), '{}');
  common := '{}';
  forms := '{}';
  of := '{}';
  if p_languages & ~(1::bigint << language) = 0 and language = v_default then return; end if;
  v_own := to_tsvector(config, _memoir.stemmed(_memoir.readable(v_query), language));
  if language <> v_default then
    -- Of another language stop words count, too.
    select coalesce(array_agg(f.lexeme), '{}') into common
    from unnest(to_tsvector('simple', _memoir.readable(v_query))) f
    where not exists (select from unnest(v_own) o where o.positions && f.positions) and f.lexeme <> all (terms);
    terms := terms || common;
  end if;
  for v_other in select n from generate_series(-1, 62) n where n = -1 or n <> language and p_languages >> n & 1 = 1 loop
    v_forms := to_tsvector(case v_other when -1 then 'simple' else _memoir.language_config(v_other, p_config) end,
      _memoir.stemmed(_memoir.readable(v_query), greatest(v_other, 0::smallint)));
    -- The same parser: what stands at the same place is the same word.
    select forms || coalesce(array_agg(x.form), '{}'), of || coalesce(array_agg(x.own), '{}') into forms, of
    from (select distinct f.lexeme as form, o.lexeme as own
          from unnest(v_forms) f, unnest(f.positions) fp
          join (select u.lexeme, p from unnest(v_own) u, unnest(u.positions) p) o on o.p = fp
          where f.lexeme <> o.lexeme and o.lexeme = any (terms)) x;
  end loop;
end $$;
