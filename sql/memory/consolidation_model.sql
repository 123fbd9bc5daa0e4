-- Consolidation in a language model's words (llm_kinds.sql): for what rules made of a cluster it is asked with the
-- members as they were said. It answers which of them belong together, and one text for those: they become one memory
-- in its words, the others stand by themselves again. dedup_key is the memory that rules made.

-- The members of a memory that rules made, in order; none where it does not stand any more or a part of it is not
-- for everybody.
create or replace function _memoir.members_to_merge(p_work _memoir.work_items)
returns setof _memoir.memory_store language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  return query
  select m.* from _memoir.memory_store w
  join _memoir.memory_store m on m.user_id = p_work.user_id and m.superseded_by = w.memory_id and m.state = 'superseded'
    and m.state_reason = 'consolidated'
  where w.user_id = p_work.user_id and w.memory_id = p_work.dedup_key::uuid and w.state = 'active'
    and w.sensitivity = 'normal'
    and w.metadata ? 'consolidated' and w.metadata ->> 'by' = 'rules'
    and not exists (select from _memoir.memory_store o where o.user_id = p_work.user_id
    and o.superseded_by = w.memory_id and o.sensitivity <> 'normal')
  order by m.recorded_at, m.memory_id;
end $$;

create or replace function _memoir.consolidate_input(p_work _memoir.work_items)
returns jsonb language plpgsql as $$
declare
  v_input jsonb; v_asked jsonb;
begin
  select jsonb_agg(jsonb_build_object('n', x.n - 1, 'said', _memoir.day(x.said), 'text', x.content) order by x.n),
    jsonb_agg(x.memory_id order by x.n)
  into v_input, v_asked
  from (select m.memory_id, m.content, _memoir.said(m) as said, row_number() over (order by m.recorded_at, m.memory_id)
    as n from _memoir.members_to_merge(p_work) m) x;
  if coalesce(jsonb_array_length(v_asked), 0) < 2 then return null; end if;
  update _memoir.work_items set payload = payload || jsonb_build_object('asked', v_asked)
  where work_id = p_work.work_id;
  return jsonb_build_object('memories', v_input);
end $$;

-- Does the turn say it? Every number of the memory stands in the turn or is part of a date; so do at least six in ten
-- of its words.
create or replace function _memoir.is_backed(p_content text, p_said text)
returns boolean language sql immutable as $$
  with said as materialized (
    select array(select distinct m[1] from regexp_matches(p_said, '\d+', 'g') m) as numbers,
      tsvector_to_array(to_tsvector('english', p_said)) as words
  ), missing as (
    select n[1] from regexp_matches(p_content, '\d+', 'g') n where n[1] !~ '^((19|20)\d\d|[12]?\d|3[01])$'
    except
    select unnest(numbers) from said
  ), words as (
    select w, w in (select unnest(words) from said) as stands
    from unnest(tsvector_to_array(to_tsvector('english', p_content))) w
    where w !~ '^\d+$' and w not in ('user', 'assist', 'tool')
  )
  select not exists (select from missing) and (select coalesce(avg(stands::integer), 0) >= 0.6 from words)
$$;

-- Returns what a text that stands for another must hold of it: numbers, dates, names, and that something is
-- denied. Number words count as numbers. What merely begins a sentence is no name: a verb or an adverb, or
-- (p_lenient) any word.
create or replace function _memoir.hard_points(p_text text, p_lenient boolean)
returns text[] language sql immutable as $$
  select array(select distinct case when d.denies then 'not'
      else coalesce(array_position(_memoir.word_list('english', 'numbers'), x)::text, x) end
    from unnest(_memoir.fixed_points(p_text)) x,
      lateral (select x ~ ('^(' || _memoir.any_word('english', 'denials') || ')$') as denies) d
    where x !~ ('^(' || _memoir.any_word('english', 'soft_words') || ')$')
      and (d.denies or not exists (select from regexp_matches(p_text, '(?:^|[.!?;:]\s+)([[:upper:]][[:alnum:]]*)',
        'g') m
        where lower(m[1]) = x and (p_lenient or m[1] ~ '(s|ed|ing|ly)$')
          and p_text !~ ('[[:alnum:],] +' || m[1] || '\M'))))
$$;

create or replace function _memoir.has_point(p_text text, p_points text[], p_point text)
returns boolean language sql immutable as $$
  select p_point = any (p_points) or case when p_point = 'not' then false
    when p_point ~ '^\d+$' then p_text ~ ('(^|\D)' || p_point || '($|\D)') else strpos(lower(p_text), p_point) > 0 end
$$;

-- Returns what is wrong with a text that shall stand for some (p_covered) of the texts that were given; null
-- if nothing.
create or replace function _memoir.merge_problem(p_text text, p_covered text[], p_given text[])
returns text language plpgsql immutable as $$
declare
  v_points text[] := _memoir.hard_points(p_text, false); v_given text := array_to_string(p_given, E'\n'); v_all text[];
  v_point text;
begin
  v_all := array(select p from unnest(p_given) g, unnest(_memoir.hard_points(g, false)) p);
  select p into v_point from unnest(p_covered) c, unnest(_memoir.hard_points(c, false)) p
  where not _memoir.has_point(p_text, v_points, p) order by p limit 1;
  if found then return format('it covers a memory with %s and does not say that', _memoir.shown(v_point)); end if;
  select p into v_point from unnest(_memoir.hard_points(p_text, true)) p where not _memoir.has_point(v_given, v_all, p)
  order by p limit 1;
  if found then return format('no memory that was given says %s', _memoir.shown(v_point)); end if;
  if length(p_text) > 1.5 * length(v_given) + 40 or not _memoir.is_backed(p_text, v_given)
    then return 'it says more than the memories that were given'; end if;
  return null;
end $$;

create or replace function _memoir.consolidate_store(p_work _memoir.work_items, p_output jsonb, p_made_by text)
returns integer language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_work.user_id; v_whole uuid := p_work.dedup_key::uuid; v_new uuid := gen_random_uuid();
  v_now timestamptz := memoir.now();
  v_ids uuid[]; v_texts text[]; v_project text; v_covered integer[]; v_text text := btrim(p_output ->> 'content');
  v_problem text;
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  -- Read under the lock: what was forgotten, corrected, marked or undone while the model was at it is no cluster any
  -- more.
  select array_agg(m.memory_id order by m.recorded_at, m.memory_id), array_agg(m.content order by m.recorded_at,
    m.memory_id), min(m.project)
  into v_ids, v_texts, v_project from _memoir.members_to_merge(p_work) m;
  if coalesce(to_jsonb(v_ids), '[]') <> p_work.payload -> 'asked' then return 0; end if;
  v_covered := array(select distinct c::integer + 1 from jsonb_array_elements_text(p_output -> 'covers') c
    where c::integer < cardinality(v_ids) order by 1);
  if cardinality(v_covered) < 2 or v_text = '' then
    if cardinality(v_covered) > 0 or v_text <> '' then perform _memoir.fail('PM014',
      'one statement must cover two memories at least, or none'); end if;
    -- They don't belong together, and won't be put together again.
    perform _memoir.set_state(v_user, array[v_whole], 'invalidated', p_made_by, 'not about one thing', null, v_now);
    return cardinality(_memoir.dissolve(v_user, v_whole, p_made_by, v_now, 'system'));
  end if;
  v_problem := _memoir.merge_problem(v_text, array(select v_texts[p] from unnest(v_covered) p), v_texts);
  if v_problem is not null then perform _memoir.fail('PM014', 'the merged text can''t stand: ' || v_problem); end if;
  if not _memoir.may_stand(v_user, v_text, v_project) then return 0; end if;
  perform _memoir.supersede(v_user, array[v_whole], v_new, p_made_by, 'reworded', v_now);
  perform _memoir.dissolve(v_user, v_whole, p_made_by, v_now, 'system');
  if _memoir.consolidate(v_user, array(select v_ids[p] from unnest(v_covered) p), _memoir.config(v_user, null),
    p_made_by, v_text, p_made_by, v_new, v_whole) is null then
    perform _memoir.fail('PM014', 'the members of a consolidated memory can''t be put together anew');
  end if;
  return 1;
end $$;
