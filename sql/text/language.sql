-- The language of a text, decided here alone: by its script, its frequent words, and letters that only one language has.
-- sql/data/languages.csv has the languages; search keeps an item's by its number there, and those of a user as bits.

create or replace function _memoir.language_names()
returns text[] language sql immutable as $$
  select array_agg(name order by number::integer) from _memoir.data_languages()
$$;

-- By number: PostgreSQL's configuration, as it is written where pg_catalog is on the path.
create or replace function _memoir.language_configs()
returns text[] language sql immutable as $$
  select array_agg(coalesce(config, 'simple') order by number::integer) from _memoir.data_languages()
$$;

create or replace function _memoir.language_stems()
returns text[] language sql immutable as $$
  select array_agg(stem order by number::integer) from _memoir.data_languages()
$$;

-- Each frequent word, with the languages that have it as bits.
create or replace function _memoir.language_marks()
returns jsonb language sql immutable as $$
  select jsonb_object_agg(word, marks)
  from (select w as word, bit_or(1::bigint << number::integer) as marks
        from _memoir.data_languages() l, unnest(_memoir.word_list(l.name, 'common_words')) w group by w) x
$$;

-- What a text is written in. A third of the letters is enough for another script than Latin, which takes more of them to
-- say the same.
create or replace function _memoir.script(p_text text)
returns text language plpgsql immutable as $$
declare
  v_other text;
begin
  if octet_length(p_text) = length(p_text) then return 'latin'; end if;
  v_other := regexp_replace(p_text,
    '[\u0001-\u036f\u1e00-\u1eff\u2000-\u2bff\u3000-\u303f\ufe00-\ufe0f\uff00-\uff20\U0001f000-\U0001ffff]+', '', 'g');
  if v_other = '' or length(v_other) * 3 < length(regexp_replace(p_text, '[^a-zA-Z\u00c0-\u024f\u1e00-\u1eff]+', '', 'g'))
    then return 'latin'; end if;
  return case when v_other ~ '[\u3040-\u30ff]' then 'kana' when v_other ~ '[\uac00-\ud7af]' then 'hangul'
    when v_other ~ '[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]' then 'han' when v_other ~ '[\u0400-\u052f]' then 'cyrillic'
    when v_other ~ '[\u0600-\u06ff\u0750-\u077f]' then 'arabic' when v_other ~ '[\u0900-\u097f]' then 'devanagari'
    when v_other ~ '[\u0e00-\u0e7f]' then 'thai' when v_other ~ '[\u0370-\u03ff\u1f00-\u1fff]' then 'greek'
    when v_other ~ '[\u0590-\u05ff]' then 'hebrew' when v_other ~ '[\u0b80-\u0bff]' then 'tamil'
    when v_other ~ '[\u0e80-\u0eff]' then 'lao' when v_other ~ '[\u1780-\u17ff]' then 'khmer'
    when v_other ~ '[\u1000-\u109f]' then 'burmese' else 'other' end;
end $$;

-- The number of a text's language, 0 where it says too little. What is long is judged by its beginning. Of two that are as
-- likely it is the one that stands first, and a Latin one that no rules are written for needs two words.
create or replace function _memoir.text_language(p_text text)
returns smallint language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_text text := lower(translate(left(p_text, 1000), '’', '''')); v_script text := _memoir.script(v_text);
begin
  return coalesce((
    with hits as materialized (
      select (_memoir.language_marks() ->> w)::bigint as marks, count(*) as count
      from regexp_split_to_table(v_text, '[^[:alpha:]'']+') w where _memoir.language_marks() ? w group by 1
    )
    select l.number::smallint
    from _memoir.data_languages() l, lateral (
      select coalesce((select sum(h.count) from hits h where h.marks >> l.number::integer & 1 = 1), 0)
        + coalesce(length(v_text) - length(translate(v_text, l.letters, '')), 0) as count) c
    where l.script = v_script and (v_script <> 'latin' or c.count > (l.number::integer > 6)::integer)
    order by c.count desc, l.number::integer limit 1), 0);
end $$;

-- One of the languages that rules are written for, as PostgreSQL names its text-search configuration; English where a text
-- says too little, or is in another.
create or replace function _memoir.spoken_language(p_text text)
returns text language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_language smallint := _memoir.text_language(p_text);
begin
  return case when v_language between 1 and 6 then (_memoir.language_names())[v_language] else 'english' end;
end $$;

-- The language that search has a text in. The setting's is that of texts that say too little; 0: the setting names no
-- language of the list (simple, a configuration of one's own), so it is meant for all texts.
create or replace function _memoir.item_language(p_text text, p_config regconfig)
returns smallint language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_own smallint := array_position(_memoir.language_configs(), nullif(p_config::text, 'simple'));
begin
  if v_own is null then return 0; end if;
  return coalesce(nullif(_memoir.text_language(p_text), 0), v_own);
end $$;

-- The configuration that a language is stemmed by; p_config: the setting's.
create or replace function _memoir.language_config(p_language smallint, p_config regconfig)
returns regconfig language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  if p_language = 0 then return p_config; end if;
  return (_memoir.language_configs())[p_language]::regconfig;
end $$;
