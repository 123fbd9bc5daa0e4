-- Ranking: the signals of each candidate, weighed. The weights (rank_weights of the ranking profile) were learnt by
-- research/ranker from conversations between people, of people with assistants, and from memories; all signals are
-- shares, cosines or logarithms of lengths, so that they mean the same in a store of any size. The functions here touch
-- no table: one generic plan serves every call.

-- The names of the signals, in their order.
create or replace function _memoir.signal_names()
returns text[] language plpgsql stable as $$
begin
  return array(select a.attname from pg_attribute a where a.attrelid = '_memoir.signals'::regclass and a.attnum > 0
    order by a.attnum);
end $$;

-- Those that a ranked item carries, since nothing else in the ledger tells them.
create or replace function _memoir.ledger_signals()
returns text[] language sql immutable as $$
  select '{words_before, vector_after, cover, speaker, date, match_back, last}'::text[]
$$;

-- The weights of the classes of items: named speakers, others, memories. Each is that of all, plus that of the class,
-- plus that of long questions by the logarithm of the question's words over six, plus that of questions in a language
-- that the embedding model does not read.
create or replace function _memoir.rank_weights(p_weights jsonb, p_words integer, p_unread boolean default false)
returns _memoir.signals[] language plpgsql stable as $$
declare
  v_long float8 := ln(greatest(p_words, 1)::float8 / 6); v_weights _memoir.signals[];
begin
  -- Each weight is looked up once, and put into its place by the order of the names.
  select array[
      ('(' || string_agg((w + named)::real::text, ',') || ')')::_memoir.signals,
      ('(' || string_agg((w + unnamed)::real::text, ',') || ')')::_memoir.signals,
      ('(' || string_agg((w + memory)::real::text, ',') || ')')::_memoir.signals]
  into v_weights
  from (select coalesce((p_weights -> n)::float8, 0) + coalesce((p_weights -> ('long.' || n))::float8, 0) * v_long
      + case when p_unread then coalesce((p_weights -> ('unread.' || n))::float8, 0) else 0 end as w,
      coalesce((p_weights -> ('named.' || n))::float8, 0) as named,
      coalesce((p_weights -> ('unnamed.' || n))::float8, 0) as unnamed,
      coalesce((p_weights -> ('memory.' || n))::float8, 0) as memory
        from unnest(_memoir.signal_names()) with ordinality t(n, o) order by o offset 0) each;
  return v_weights;
end $$;

-- Returns what the items of a question have around them: from when to when they are, which times and speakers it names,
-- sessions of people and assistants without names, the newest first. The times it names (Times in
-- pg_memoir_language/questions.py) are ranges. A month without year is that of every year from the oldest item to the
-- newest. A day reaches ten days on: people tell later what they did. Years only count where nothing closer is named.
create or replace function _memoir.surroundings(p_items _memoir.search_items[], p_question _memoir.question,
  p_now timestamptz,
  out oldest timestamptz, out newest timestamptz, out times tstzrange[], out speakers text[], out sessions uuid[])
language plpgsql stable as $$
declare
  v_query text := lower(p_question.query); v_times jsonb := p_question.facts -> 'times';
  v_today timestamptz := date_trunc('day', p_now, 'UTC');
begin
  select min(g.oldest), max(g.newest), array_agg(distinct g.speaker),
    array_agg(g.session_id order by g.newest desc, g.last desc) filter (where g.kind = 't' and g.speaker is null)
  into oldest, newest, speakers, sessions
  from (select i.kind, i.session_id, i.speaker, min(i.created_at) as oldest, max(i.created_at) as newest,
    max(i.item_no) as last
        from unnest(p_items) i group by 1, 2, 3) g;
  speakers := array(select s from unnest(speakers) s where strpos(v_query, lower(replace(s, '_', ' '))) > 0);
  times := '{}';
  if v_times is null then return; end if;
  with starts as (
    select make_timestamptz(y, (d ->> 1)::integer, 1, 0, 0, 0, 'UTC') as month, (d ->> 2)::integer as day
    from jsonb_array_elements(v_times -> 'dates') d,
      generate_series(coalesce((d ->> 0)::integer, date_part('year', oldest at time zone 'UTC')::integer),
        coalesce((d ->> 0)::integer, date_part('year', newest at time zone 'UTC')::integer)) y
    where (d ->> 1)::integer between 1 and 12 and y between 1 and 9999
      and coalesce((d ->> 2)::integer, 1) between 1 and 31
  ), spans as (
    select case when day is null then tstzrange(month, month + interval '1 month')
      else tstzrange(month + make_interval(days => day - 2), month + make_interval(days => day + 10)) end as span
    from starts
    union all
    select tstzrange(v_today - make_interval(days => n::integer), v_today - make_interval(days => n::integer)
      + interval '1 day') from jsonb_array_elements_text(v_times -> 'days') n
    union all
    select tstzrange(date_trunc(p ->> 1, p_now, 'UTC') - case p ->> 0 when 'last' then ('1 ' || (p ->> 1))::interval
      else interval '0' end,
      date_trunc(p ->> 1, p_now, 'UTC') + case p ->> 0 when 'last' then interval '0'
        else ('1 ' || (p ->> 1))::interval end)
    from jsonb_array_elements(v_times -> 'periods') p
    union all
    select tstzrange(v_today - a.ago * 1.25 - interval '1 day', v_today - a.ago * 0.75 + interval '1 day')
    from (select ((x ->> 0) || ' ' || (x ->> 1))::interval as ago from jsonb_array_elements(v_times -> 'ago') x) a
  )
  select coalesce(array_agg(span), '{}') into times from spans;
  if times = '{}' then
    times := array(select tstzrange(make_timestamptz(y::integer, 1, 1, 0, 0, 0, 'UTC'),
      make_timestamptz(y::integer + 1, 1, 1, 0, 0, 0, 'UTC')) from jsonb_array_elements_text(v_times -> 'years') y);
  end if;
end $$;

-- Signals of each candidate → weights → a score from 0 to 1, ties by item number. Items without words or vectors in
-- common with the question are there for their neighbours.
create or replace function _memoir.score(p_items _memoir.search_items[], p_words _memoir.item_scores,
  p_vectors _memoir.item_scores, p_config jsonb, p_question _memoir.question, p_project text, p_now timestamptz,
  p_limit integer)
returns _memoir.ranked_item[] language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_mergejoin = off as $$
declare
  v_around record := _memoir.surroundings(p_items, p_question, p_now);
  f_global real := (p_config ->> 'project_global')::real; f_same real := (p_config ->> 'project_same')::real;
  f_other real := (p_config ->> 'project_other')::real;
  v_bm25 real := coalesce(greatest(p_words.best, 1e-6), 1);
  v_cosine real := coalesce(greatest(p_vectors.best, 1e-6), 1);
  v_days float8 := greatest(1, date_part('epoch', v_around.newest - v_around.oldest) / 86400);
begin
  return (
  with words(item, bm25, cover, telling, rank) as materialized (
    select * from unnest(p_words.items, p_words.scores, p_words.covers, p_words.tellings) with ordinality
  ), cosines(item, cosine, rank) as materialized (
    select * from unnest(p_vectors.items, p_vectors.scores) with ordinality
  ), followers as (
    select i.previous_item as item, min(i.item_no) as next from unnest(p_items) i where i.previous_item is not null
    group by 1
  ), matched as (
    select i.*, coalesce(w.bm25, 0) / v_bm25 as words, coalesce(w.cover, 0) as cover, coalesce(w.telling, 0) as telling,
        coalesce(5.0::float8 / (4 + w.rank), 0) as words_rank,
      -- Without a vector, of the question or of the item, words stand in.
      c.cosine, coalesce(greatest(c.cosine, 0) / v_cosine, w.bm25 / v_bm25, 0) as vector,
        coalesce(5.0::float8 / (4 + coalesce(c.rank, w.rank)), 0) as vector_rank,
      case when i.chunk = 0 then coalesce(b.bm25, 0) / v_bm25 else 0 end as before,
      case when i.last_chunk then greatest(coalesce(a.cosine, 0), 0) / v_cosine else 0 end as after,
      case when i.session_id is null then (date_part('epoch', i.created_at) / 86400)::integer end as day,
      date_part('epoch', v_around.newest - i.created_at) / 86400 as days, coalesce(ln(s.nth), 0) as back,
      case when i.kind <> 't' then 3 when i.speaker is null then 2 else 1 end as class
    from unnest(p_items) i
    left join words w on w.item = i.item_no
    left join words b on b.item = i.previous_item
    left join cosines c on c.item = i.item_no
    left join followers f on f.item = i.item_no
    left join unnest(v_around.sessions) with ordinality s(id, nth) on s.id = i.session_id
    -- a number apart from the last is another conversation
    left join cosines a on a.item = coalesce(f.next, i.item_no + 1)
  ), grouped as (
    -- What was said in a session belongs together, and so do memories of a day, in the order in which they came.
    select m.*, max(0.45 * m.words + 0.55 * m.vector) over together as session_best,
      case when m.kind = 't' then m.before else coalesce(lag(m.words) over together, 0) end as words_before,
      case when m.kind = 't' then m.after else coalesce(lead(m.vector) over together, 0) end as vector_after,
      count(*) over together - row_number() over together as later,
      coalesce(m.speaker = any (v_around.speakers), false)::integer as by_speaker,
      (m.created_at <@ any (v_around.times))::integer as in_time, 0.45 * m.words + 0.55 * m.vector as matches
    from matched m
    window together as (partition by m.kind, m.session_id, m.day order by m.item_no rows between unbounded preceding
      and unbounded following)
  ), summed as (
    select g.*, w.further, w.words_before * g.words_before + w.vector_after * g.vector_after as around,
      w.constant + w.words * g.words + w.vector * g.vector + w.words_before * g.words_before
        + w.vector_after * g.vector_after + w.session * g.session_best + w.both * g.words * g.vector
        + w.words_rank * g.words_rank + w.vector_rank * g.vector_rank + w.cover * g.cover
        + w.user * coalesce(g.role = 'user' and g.speaker is null, false)::integer + w.speaker * g.by_speaker
        + w.question * g.is_question::integer + w.after_question * g.after_question::integer + w.date * g.in_time
        + w.length * ln(greatest(g.token_count, 4)::float8 / 30) + w.age * g.days / v_days
        + w.fresh * exp(- least(50, g.days / 7))
        -- The further back a session, the less a match says where people go on with what they left; what came last of a
        -- day tells how it ended.
        + w.match_back * g.back * g.matches + w.last / (1 + g.later) as sum
    from grouped g join unnest(_memoir.rank_weights(p_config -> 'rank_weights', cardinality(p_question.terms),
      p_question.unread)) with ordinality w on w.ordinality = g.class
  ), totalled as (
    -- Each further chunk of a text goes down a step, so that one long answer does not fill the block.
    select s.*, (100000 / (1 + exp(- greatest(-50, least(50, s.sum + s.further * least(3,
        row_number() over (partition by s.ref_id order by s.sum desc, s.item_no) - 1)))))
      * case when s.project = 'global' or p_project is null then f_global when s.project = p_project then f_same
        else f_other end)::integer as total
    from summed s
  )
  select array_agg((s.item_no, s.kind, s.ref_id, s.session_id, s.turn_index, s.chunk, s.span_start, s.span_length,
    s.token_count, s.role, s.created_at, s.recorded_at, s.project, (s.total::float8 / 100000)::real, s.words, s.cosine,
    s.around::real, s.session_best::real, array[s.words_before * 1000, s.vector_after * 1000, s.cover * 1000,
      s.by_speaker * 1000, s.in_time * 1000, s.back * s.matches * 1000, 1000 / (1 + s.later)]::smallint[],
    s.telling)::_memoir.ranked_item)
  from (select * from totalled order by total desc, item_no limit p_limit) s);
end $$;
