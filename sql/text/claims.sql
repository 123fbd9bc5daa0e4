-- What a sentence claims, whoever says it and however: relation and value, of the person it is all about. "Note that the
-- home town is Ulm", "User: I live in Ulm" and "He lived in Ulm" claim the same; "My sister lives in Ulm" and "I don't live
-- in Ulm" something else. Words decide, in any order but where order tells ("tea over coffee"); nothing is understood.

-- The claim of a text, as a text of its own; null where it has no two words that could be relation and value. p_names: of
-- the person.
create or replace function _memoir.claim(p_text text, p_names text[] default '{}')
returns text language plpgsql stable as $$
declare
  v_text text := replace(_memoir.normalise(left(p_text, 2000)), '’', ''''); v_words text[];
  v_names text[] := regexp_split_to_array(_memoir.normalise(array_to_string(p_names, ' ')), '[^[:alnum:]]+');
begin
  v_text := regexp_replace(regexp_replace(v_text, '\m(can)(?:not|''t)\M', '\1 not'), 'n''t\M', ' not', 'g');
  select array_agg(coalesce(s.same, case when w.word ~ '^[a-z]{3,}$' then (ts_lexize('english_stem', w.word))[1] end,
    w.word) order by w.o)
  into v_words
  from (
    select case when m[1] = any (_memoir.word_list(null, 'negations')) then 'not' else m[1] end as word, o
    from regexp_matches(v_text, '([[:alnum:]]+(?:[.,:/@+-][[:alnum:]]+)*)', 'g') with ordinality x(m, o)
  ) w
  left join (select split_part(p, '>', 1) as word, split_part(p, '>', 2) as same
             from unnest(_memoir.word_list('english', 'claim_same')) p) s on s.word = w.word
  where w.word <> all (_memoir.word_list('english', 'claim_frames')) and w.word <> all (v_names);
  if v_words && '{over,than,instead,versus,before,after}' or v_words @> '{from,to}' then
    null;  -- who comes first says it all
  else
    v_words := array(select distinct w from unnest(v_words) w order by w);
  end if;
  if cardinality(v_words) < 2 or cardinality(v_words) > 40 then return null; end if;
  return chr(29) || (select string_agg(_memoir.plain_word(w), ' ' order by o)
    from unnest(v_words) with ordinality x(w, o));
end $$;

-- A word without what can disguise it: compatibility forms and marks apart.
create or replace function _memoir.plain_word(p_word text)
returns text language sql immutable strict parallel safe as $$
  select regexp_replace(normalize(p_word, nfkd), '[\u0300-\u036f]', '', 'g')
$$;

-- Of each claim a word, or what its forms begin with, without which a text can't say it: not one for which others stand.
create or replace function _memoir.claim_hints(p_claims text[])
returns text[] language sql stable as $$
  select array(select distinct (
    select left(w, greatest(3, length(w) - 1)) from unnest(string_to_array(ltrim(c, chr(29)), ' ')) w
    where w <> all (array(select split_part(p, '>', 2) from unnest(_memoir.word_list('english', 'claim_same')) p))
      and w <> 'not'
    order by length(w) desc, w limit 1) from unnest(p_claims) c where c is not null)
$$;

-- All claims of a text: as a whole, of its sentences and of their parts between commas.
create or replace function _memoir.claims_in(p_text text, p_names text[] default '{}')
returns text[] language plpgsql stable as $$
declare
  v_text text := left(p_text, 20000);
begin
  return array(select distinct c from (
    select _memoir.claim(piece, p_names) as c from (
      select v_text as piece where length(v_text) <= 2000
      union select x from regexp_split_to_table(v_text, '[.!?]+\s+|[\n。！？]+') x
      union select x from regexp_split_to_table(v_text, '[.!?]+\s+|[\n。！？]+|[,;()–—]+\s*|\s+-\s+') x) pieces
    where piece ~ '[[:alnum:]]') claims where c is not null);
end $$;
