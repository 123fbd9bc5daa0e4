-- The language of a text, by its frequent words.

-- One of the languages that rules are written for, as PostgreSQL names its text-search configuration; English where a text
-- says too little. What is long is judged by its beginning.
create or replace function _memoir.spoken_language(p_text text)
returns text language sql immutable as $$
  select coalesce((
    select l.language
    from (values (1, 'english'), (2, 'german'), (3, 'spanish'), (4, 'french'), (5, 'portuguese'), (6, 'italian'))
        l(n, language),
      lateral (select count(*) as hits
        from regexp_split_to_table(lower(translate(left(p_text, 1000), '’', '''')), '[^[:alpha:]'']+') w
        where w = any (_memoir.word_list(l.language, 'common_words'))) c
    where c.hits > 0
    order by c.hits desc, l.n limit 1), 'english')
$$;
