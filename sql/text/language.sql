-- The language of a text, decided here alone: by its script, its frequent words, and letters that only one language
-- has. plpython/pg_memoir_language/languages.csv has them; search keeps an item's number there, and a user's as bits.

create or replace function _memoir.language_stems()
returns text[] language sql immutable as $$
  select array_agg(stem order by number::integer) from _memoir.data_languages()
$$;

create or replace function _memoir.language_words()
returns tsvector[] language sql immutable as $$
  select array_agg(strip(to_tsvector('simple', coalesce(array_to_string(w.entries, ' '), '')))
    order by l.number::integer)
  from _memoir.data_languages() l left join _memoir.lists_common_words() w on w.language = l.name
$$;

-- The number of a text's language, 0 where it says too little. A long text is judged by its beginning. Of two that are
-- as likely it is the one that stands first; one word is too little for a long text, or a Latin one without rules.
create or replace function _memoir.text_language(p_text text)
returns smallint language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_text text := lower(left(p_text, 500));
  v_words text[] := array_remove(string_to_array(translate(v_text, E'.,;:!?()[]"''’“”„«»…¿¡-–—/\n\t،؟؛।',
    repeat(' ', 31)), ' '), '');
  v_hits integer; v_other text; v_script text; v_class text[]; v_letters integer[]; v_last smallint := 0;
  v_common tsvector; v_nth integer := 0; v_found smallint := 0; v_most integer := 0;
begin
  -- The rest of a list without the text's words tells how many it has. Much English is plain at once.
  v_hits := length((_memoir.language_words())[1]) - length(ts_delete((_memoir.language_words())[1], v_words));
  if v_hits >= 5 and v_hits * 4 >= cardinality(v_words) then return 1; end if;
  if octet_length(v_text) > length(v_text) then
    -- A third of the letters is enough for another script than Latin, which takes more of them to say the same.
    v_other := regexp_replace(v_text,
      '[\u0001-\u036f\u1e00-\u1eff\u2000-\u2bff\u3000-\u303f\ufe00-\ufe0f\uff00-\uff20\U0001f000-\U0001ffff]+', '',
      'g');
    v_script := 'latin';
    if v_other <> '' and length(v_other) * 3 >= length(regexp_replace(v_text, '[^a-zA-Z\u00c0-\u024f\u1e00-\u1eff]+',
      '', 'g')) then
      v_script := 'other';
      -- Kana tells Japanese among Han, so it comes first.
      foreach v_class slice 1 in array '{{kana,\\u3040-\\u30ff},{hangul,\\uac00-\\ud7af},
          {han,\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff},{cyrillic,\\u0400-\\u052f},
          {arabic,\\u0600-\\u06ff\\u0750-\\u077f},{devanagari,\\u0900-\\u097f},{thai,\\u0e00-\\u0e7f},
          {greek,\\u0370-\\u03ff\\u1f00-\\u1fff},{hebrew,\\u0590-\\u05ff},{tamil,\\u0b80-\\u0bff},
          {lao,\\u0e80-\\u0eff},{khmer,\\u1780-\\u17ff},{burmese,\\u1000-\\u109f}}'::text[] loop
        if v_other ~ ('[' || v_class[2] || ']') then v_script := v_class[1]; exit; end if;
      end loop;
    end if;
    v_letters := array(select length(v_text) - length(translate(v_text, letters, ''))
      from _memoir.data_languages() order by number::integer);
    if v_script <> 'latin' then
      return coalesce((select n from _memoir.data_languages() l, unnest(_memoir.language_words(), v_letters)
          with ordinality u(words, letters, n)
        where l.script = v_script and l.number::integer = n
        order by length(u.words) - length(ts_delete(u.words, v_words)) + coalesce(u.letters, 0) desc, n limit 1), 0);
    end if;
    -- Of two as likely hardly the one without accents.
    if v_text ~ '[\u00c0-\u024f]' then v_last := 1; end if;
  end if;
  foreach v_common in array _memoir.language_words() loop
    v_nth := v_nth + 1;
    exit when v_nth > 18;
    v_hits := length(v_common) - length(ts_delete(v_common, v_words)) + coalesce(v_letters[v_nth], 0);
    if v_hits > (v_nth > 6 or cardinality(v_words) > 12)::integer
      and (v_hits > v_most or v_hits = v_most and v_found = v_last) then
      v_found := v_nth;
      v_most := v_hits;
    end if;
  end loop;
  return v_found;
end $$;

-- The language that the package reads a text in, as PostgreSQL names its text-search configuration: one that rules are
-- written for, English where a text says too little, simple where it is in another.
create or replace function _memoir.spoken_language(p_text text)
returns text language sql immutable as $$
  select case when t.language > 6 then 'simple' else (select name from _memoir.data_languages()
    where number::integer = greatest(t.language, 1)) end from _memoir.text_language(p_text) t(language)
$$;

-- Returns the language that search has a text in. Texts that say too little, the empty one too, have the setting's. 0:
-- the setting names no language of the list (simple, a configuration of one's own), so it is meant for all texts.
create or replace function _memoir.item_language(p_text text, p_config regconfig)
returns smallint language plpgsql stable as $$
declare
  v_own smallint := case when p_config = 'pg_catalog.english'::regconfig then 1
    else coalesce((select min(number::integer) from _memoir.data_languages()
      where config = nullif(p_config::text, 'simple')), 0) end;
begin
  if v_own = 0 or p_text = '' then return v_own; end if;
  return coalesce(nullif(_memoir.text_language(p_text), 0), v_own);
end $$;

create or replace function _memoir.language_config(p_language smallint, p_config regconfig)
returns regconfig language plpgsql stable as $$
begin
  if p_language = 0 then return p_config; end if;
  if p_language = 1 then return 'pg_catalog.english'; end if;
  return (select coalesce(l.config, 'simple')::regconfig from _memoir.data_languages() l
    where l.number::integer = p_language);
end $$;
