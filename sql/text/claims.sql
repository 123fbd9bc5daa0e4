-- Claims of a sentence, in any frame: relation and value, of the person it is all about. "Note that the home town is
-- Ulm", "User: I live in Ulm" and "He lived in Ulm" claim the same; "My sister lives in Ulm" and "I don't live in Ulm"
-- something else. Words decide, in any order but where order tells ("tea over coffee"); nothing is understood.

-- The claims of texts, in their order, each a text of its own; null where it has no two words that could be relation
-- and value. p_names: of the person.
create or replace function _memoir.claims_of(p_texts text[], p_names text[] default '{}')
returns text[] language plpgsql stable as $$
declare
  v_names text[] := regexp_split_to_array(_memoir.normalise(array_to_string(p_names, ' ')), '[^[:alnum:]]+');
begin
  return array(with same as materialized (
      select split_part(p, '>', 1) as word, split_part(p, '>', 2) as same
      from unnest(_memoir.list_claim_same()) p
    ), said as materialized (select n, replace(_memoir.normalise(left(t, 2000)), '’', '''') as text
      from unnest(p_texts) with ordinality x(t, n)
    ), words as (select s.n, x.at, case when m[1] = any (_memoir.list_negations()) then 'not' else m[1] end as word
      from said s, regexp_matches(regexp_replace(regexp_replace(s.text, '\m(can)(?:not|''t)\M', '\1 not'),
        'n''t\M', ' not', 'g'), '([[:alnum:]]+(?:[.,:/@+-][[:alnum:]]+)*)', 'g') with ordinality x(m, at)
    ), stems as (
      select w.n, w.at, coalesce(s.same, case when w.word ~ '^[a-z]{3,}$' then (ts_lexize('english_stem', w.word))[1]
        end, w.word) as stem
      from words w left join same s on s.word = w.word
      where w.word not in (select unnest(f.entries) from _memoir.lists_claim_frames() f where f.language = 'english')
        and w.word <> all (v_names)
    ), claims as (
      -- Who comes first says it all in "tea over coffee" and "from Ulm to Bonn".
      select n, case when array_agg(stem) && '{over,than,instead,versus,before,after}'
          or array_agg(stem) @> '{from,to}' then array_agg(stem order by at)
        else array_agg(distinct stem order by stem) end as stems
      from stems group by n
    )
    select case when cardinality(c.stems) between 2 and 40 then chr(29) || (
        -- Without what can disguise a word: compatibility forms and marks apart.
        select string_agg(regexp_replace(normalize(w, nfkd), '[\u0300-\u036f]', '', 'g'), ' ' order by o)
        from unnest(c.stems) with ordinality x(w, o)) end
    from said s left join claims c on c.n = s.n order by s.n);
end $$;

-- Returns for each claim a word, or the beginning of its forms, without which no text can say it. Words with synonyms
-- are left out.
create or replace function _memoir.claim_hints(p_claims text[])
returns text[] language sql stable as $$
  select array(select distinct (
    select left(w, greatest(3, length(w) - 1)) from unnest(string_to_array(ltrim(c, chr(29)), ' ')) w
    where w <> all (array(select split_part(p, '>', 2) from unnest(_memoir.list_claim_same()) p)) and w <> 'not'
    order by length(w) desc, w limit 1) from unnest(p_claims) c where c is not null)
$$;

-- Returns what may claim something by itself: a text, its sentences, their parts between commas and before "and".
create or replace function _memoir.claim_pieces(p_text text)
returns text[] language plpgsql immutable as $$
begin
  p_text := left(p_text, 20000);
  return array(select piece from (select p_text as piece where length(p_text) <= 2000
    union select x from regexp_split_to_table(p_text, '[.!?]+\s+|[\n。！？]+') x
    union select unnest(array[x, split_part(x, ' and ', 1)])
      from regexp_split_to_table(p_text, '[.!?]+\s+|[\n。！？]+|[,;()–—]+\s*|\s+-\s+') x) pieces
    where piece ~ '[[:alnum:]]');
end $$;
