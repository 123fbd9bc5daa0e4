-- The recall block: candidates of all arms on one footing, chosen within the block's budget, shown grouped by session and date.

-- Was the memory active at that time? A forgotten or erased one never was.
create or replace function memoir._was_active(p_memory memoir.memory_store, p_as_of timestamptz)
returns boolean language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  if p_memory.state in ('forgotten', 'erased') or p_memory.expires_at <= p_as_of then return false; end if;
  return coalesce((select s.state = 'active' from memoir.memory_states s
    where s.user_id = p_memory.user_id and s.memory_id = p_memory.memory_id and s.recorded_at <= p_as_of
    order by s.recorded_at desc, s.seq desc limit 1), false);
end $$;

-- All candidates, best first, with the reason why one can't be shown. p_frequent: how many much-used memories join anyway.
-- p_compile: for small talk all are below the floor, and what is pinned in the session is there whatever the query.
create or replace function memoir._candidates(p_user_id uuid, p_config jsonb, p_query text, p_vector halfvec, p_model_id smallint,
  p_project text, p_scope memoir.search_scope, p_limit integer, p_frequent integer, p_compile boolean)
returns memoir.candidate[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_now timestamptz := memoir.now();
  v_counters memoir.user_counters; v_ranked memoir.ranked_item[]; v_memories uuid[]; v_most integer; v_frequent uuid[] := '{}'; v_pinned uuid[] := '{}'; v_more uuid[];
  v_facts memoir.memory_facts[];
begin
  select * into v_counters from memoir.user_counters where user_id = p_user_id;
  v_ranked := memoir._rank(p_user_id, v_counters, p_config, p_query, p_vector, p_model_id, p_project, p_scope, p_limit);
  if not p_compile then p_config := p_config || '{"relevance_share": 0}';
  elsif memoir._is_small_talk(p_config, p_query, v_ranked) then p_config := p_config || '{"relevance_floor": 10}'; end if;
  v_memories := memoir._memories_of(v_ranked);
  if p_compile and p_scope.as_of is null then v_pinned := memoir._pinned_messages(p_user_id, p_scope.hidden_sessions); end if;
  if v_counters.memories > 0 then
    select max(s.access_count),
      (array_agg(s.memory_id order by s.access_count desc, s.memory_id) filter (where s.memory_id <> all (v_memories)))[1 : p_frequent]
    into v_most, v_frequent from memoir.memory_stats s where s.user_id = p_user_id and s.access_count > 0;
    if p_compile and p_scope.as_of is null then
      v_pinned := v_pinned || array(select o.memory_id from memoir.session_objects o
        where o.user_id = p_user_id and o.session_id = any (p_scope.local_sessions) and o.pinned_until_turn > coalesce(
          (select c.turn_count from memoir.session_counters c where c.user_id = p_user_id and c.session_id = o.session_id), 0)
        order by o.memory_id);
    end if;
  end if;
  v_more := v_frequent || v_pinned;
  if v_more <> '{}' then
    v_ranked := coalesce(v_ranked, '{}') || array(
      select (i.item_no, i.kind, i.ref_id, i.session_id, i.turn_index, i.chunk, i.span_start, i.span_length, i.token_count, i.role, i.created_at, i.recorded_at,
              i.project, 0, 0, null, 0, 0)::memoir.ranked_item
      from memoir.search_items i
      where i.user_id = p_user_id and i.ref_id = any (v_more) and not i.dead and i.sensitivity <= p_scope.clearance
        and (i.ref_id = any (v_pinned) and i.ref_id <> all (v_memories) and i.item_no <> all (memoir._turn_items_of(v_ranked))
            and (i.session_id is null or i.session_id = any (p_scope.local_sessions))
          or i.ref_id = any (v_frequent) and i.chunk = 0 and not i.echo and i.session_id is null)
        and (p_scope.kinds is null or i.kind = any (p_scope.kinds))
        and (p_scope.projects is null or i.project = any (p_scope.projects)) order by i.item_no);
    v_memories := v_memories || v_more;
  end if;
  if v_memories <> '{}' then
    select array_agg((m.memory_id, m.type, m.importance, m.tier, m.sensitivity,
      case when p_scope.as_of is null then m.state = 'active' and (m.expires_at is null or m.expires_at > v_now)
           else memoir._was_active(m, p_scope.as_of) end,
      m.valid_from, m.valid_to, m.recorded_at, m.trust, m.confidence, s.reinforced_at, s.access_count)::memoir.memory_facts) into v_facts
    from memoir.memory_store m
    left join memoir.memory_stats s on s.user_id = p_user_id and s.memory_id = m.memory_id
    where m.user_id = p_user_id and m.memory_id = any (v_memories);
  end if;
  return memoir._judge(v_ranked, v_facts, v_frequent, v_pinned, v_most, p_config, p_scope, v_now);
end $$;

-- The functions below touch no table: one generic plan serves every call.

create or replace function memoir._memories_of(p_ranked memoir.ranked_item[])
returns uuid[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return array(select r.ref_id from unnest(p_ranked) r where r.kind = 'm');
end $$;

create or replace function memoir._turn_items_of(p_ranked memoir.ranked_item[])
returns integer[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return array(select r.item_no from unnest(p_ranked) r where r.kind = 't');
end $$;

-- Memories carry more than a match: half-life and weight of their type, importance, use, and authority ([PG] 6.2, [MS]).
-- Tiers 3 and 4 do not fade; confidence does, until it is reinforced.
create or replace function memoir._judge(p_ranked memoir.ranked_item[], p_facts memoir.memory_facts[], p_frequent uuid[], p_pinned uuid[], p_most integer,
  p_config jsonb, p_scope memoir.search_scope, p_now timestamptz)
returns memoir.candidate[] language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_mergejoin = off as $$
declare
  v_floor real := (p_config ->> 'relevance_floor')::real; v_share real := (p_config ->> 'relevance_share')::real;
  v_valid timestamptz := coalesce(p_scope.valid_at, p_scope.as_of, p_now);
  v_type_weights jsonb := p_config -> 'type_weights'; v_half_lives jsonb := p_config -> 'half_life_days';
  w_access real := (p_config ->> 'weight_access')::real; w_authority real := (p_config ->> 'weight_authority')::real;
begin
  return array(
  with aged as (
    select m.*, date_part('epoch', p_now - m.recorded_at) / 86400 as days,
      date_part('epoch', p_now - coalesce(m.reinforced_at, m.recorded_at)) / 86400 as days_reinforced,
      coalesce((v_half_lives ->> m.type)::float8, 365) as half_life
    from unnest(p_facts) m
  ), memories as materialized (
    select m.memory_id, m.type, m.sensitivity, m.active, m.valid_from, m.valid_to,
      coalesce((v_type_weights ->> m.type)::float8, 1) * case m.importance when 'critical' then 1.3 when 'important' then 1.15 when 'minor' then 0.85 else 1 end as weight,
      case when m.tier >= 3 then 1 else power(2, - days / half_life) end as freshness,
      m.trust * m.confidence * power(2, - days_reinforced / half_life) as authority,
      case when p_most > 0 then ln(1 + coalesce(m.access_count, 0)::float8) / ln(1 + p_most::float8) else 0 end as access
    from aged m
  ), judged as (
    select r.*, m.type,
      case when r.ref_id = any (p_pinned) then 1
           when r.kind = 'm' then r.score * m.weight * (0.5 + 0.5 * greatest(0, least(1, m.freshness))) + w_access * m.access + w_authority * m.authority
           else r.score end::real as total,
      case when r.kind = 'm' then jsonb_build_object('match', r.score, 'weight', m.weight, 'freshness', m.freshness, 'authority', m.authority, 'access', m.access)
        || case when r.ref_id = any (p_pinned) then '{"pinned": true}' else '{}'::jsonb end
        when r.ref_id = any (p_pinned) then '{"pinned": true}' end as parts,
      case when r.kind <> 'm' then null
           when not m.active then 'not active'
           when m.valid_from > v_valid or m.valid_to <= v_valid then 'not valid at that time' end as reason
    from unnest(p_ranked) r left join memories m on m.memory_id = r.ref_id and r.kind = 'm'
    where r.kind <> 'm' or m.sensitivity <= p_scope.clearance
  ), floored as (
    -- What is much used is there whatever the query; what is pinned is nobody's measure.
    select j.*, greatest(v_floor, case when not coalesce(j.ref_id = any (p_frequent), false) then v_share * max(j.total) filter (where j.ref_id <> all (p_pinned) and j.reason is null) over () end) as floor
    from judged j
  )
  select (f.item_no, f.kind, f.ref_id, f.session_id, f.turn_index, f.chunk, f.span_start, f.span_length, f.tokens, f.role, f.said_at, f.recorded_at,
      f.project, (round(f.total * 100000) / 100000)::real, f.words, f.vector, f.around, f.session_score, f.type, f.parts, coalesce(f.ref_id = any (p_frequent), false),
      coalesce(f.reason, case when f.total < f.floor and f.ref_id <> all (p_pinned) then 'below the relevance floor' end))::memoir.candidate
  from floored f order by (f.total * 100000)::integer desc, f.item_no);
end $$;

-- How a day reads in a header: unambiguous in every country.
create or replace function memoir._day(p_at timestamptz)
returns text language sql stable as $$ select to_char(p_at at time zone 'UTC', 'FMDD Mon YYYY') $$;

-- Chooses candidates within p_budget tokens and renders them. p_hidden: turns that the list shows already.
create or replace function memoir._recall_block(p_user_id uuid, p_candidates memoir.candidate[], p_working text[],
  p_budget integer, p_tokenizer text, p_hidden uuid[], p_clearance memoir.sensitivity, p_weak boolean default false)
returns memoir.recall_block language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_block memoir.recall_block; v_lines memoir.recall_lines; v_count integer := coalesce(cardinality(p_candidates), 0);
  v_working integer := cardinality(p_working); v_items integer[]; v_bodies text[]; v_names text[]; v_sessions uuid[]; v_session_names text[];
  v_budget integer := p_budget - p_budget / 200; v_used integer; v_exact integer; v_pass integer := 0; v_chosen integer[] := '{}'; v_ratio numeric; i integer; n integer;
begin
  v_block.tokens := 0;
  v_block.places := array_fill(null::integer, array[v_count]);
  v_block.reasons := memoir._reasons(p_candidates, p_budget, p_hidden);
  if p_budget <= 0 or (v_count = 0 and v_working = 0) then return v_block; end if;

  -- Texts of everything that could fit: what is worth most up to half again the budget.
  select array_agg(t.item_no), array_agg(t.name), array_agg(t.body) into v_items, v_names, v_bodies
  from memoir._texts_at(p_user_id, memoir._within_reach(p_candidates, p_budget, p_hidden), p_clearance) t;
  v_sessions := array(select distinct c.session_id from unnest(p_candidates) c where c.kind = 't' and c.item_no = any (v_items));
  select array_agg(s.session_id), array_agg(s.external_id) into v_sessions, v_session_names
  from memoir.sessions s where s.user_id = p_user_id and s.session_id = any (v_sessions);
  v_lines := memoir._recall_lines(p_candidates, v_items, v_names, v_bodies, v_sessions, v_session_names);
  n := coalesce(cardinality(v_lines.places), 0);

  -- First with stored counts, then once more with the budget corrected by what the text really costs.
  loop
    select * into v_chosen, v_used from memoir._choose(v_lines, v_budget);
    exit when v_chosen = '{}' and v_working = 0;
    v_block.text := memoir._render_recall(v_lines, v_chosen, p_working[1 : v_working], p_weak);
    v_exact := memoir._tokens_of(v_block.text || E'\n\n', p_tokenizer);
    exit when v_pass >= 2 or v_exact > p_budget * 0.97 or cardinality(v_chosen) in (0, n);
    v_ratio := least(1.5, (p_budget * 0.995) / greatest(v_exact, 1));
    exit when v_ratio < 1.03;
    v_budget := (v_used * v_ratio)::integer;
    v_pass := v_pass + 1;
  end loop;
  -- The block is counted as it is; if that is too much, the choice is made again with so much less.
  while v_block.text is not null and v_exact > p_budget loop
    if v_chosen <> '{}' then
      select * into v_chosen, v_used from memoir._choose(v_lines, v_used - (v_exact - p_budget));
    else
      v_working := v_working - 1;
    end if;
    if v_chosen = '{}' and v_working <= 0 then v_block.text := null; exit; end if;
    v_block.text := memoir._render_recall(v_lines, v_chosen, p_working[1 : v_working], p_weak);
    v_exact := memoir._tokens_of(v_block.text || E'\n\n', p_tokenizer);
  end loop;

  if v_block.text is not null then
    v_block.tokens := v_exact;
    for i in 1 .. cardinality(v_chosen) loop
      v_block.places[v_lines.places[v_chosen[i]]] := i;
      v_block.reasons[v_lines.places[v_chosen[i]]] := null;
    end loop;
  end if;
  return v_block;
end $$;

-- The functions below touch no table: one generic plan serves every call.

create or replace function memoir._reasons(p_candidates memoir.candidate[], p_budget integer, p_hidden uuid[])
returns text[] language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  return array(select case when c.reason is not null then c.reason
      when c.kind = 't' and c.ref_id = any (p_hidden) then 'shown in the window'
      when c.tokens > p_budget then 'longer than the block'
      else 'no room' end from unnest(p_candidates) c);
end $$;

-- Where the candidates are whose running total, what is worth most per token first, stays within one and a half budgets: counts are
-- on the high side.
create or replace function memoir._within_reach(p_candidates memoir.candidate[], p_budget integer, p_hidden uuid[])
returns memoir.item_place[] language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  return array(
    select (r.item_no, r.kind, r.ref_id, r.session_id, r.turn_index, r.recorded_at, r.span_start, r.span_length)::memoir.item_place
    from (select c.*, sum(c.tokens) over (order by (c.memory_parts ? 'pinned') is true desc, memoir._worth(c.score) / (c.tokens + 8) desc, c.item_no rows unbounded preceding) - c.tokens as before
          from unnest(p_candidates) c
          where c.reason is null and c.tokens <= p_budget and c.ref_id <> all (p_hidden)) r
    where r.before <= p_budget::bigint * 3 / 2 + 200);
end $$;

-- What showing a line is worth: about the chance that it is evidence, whose odds are those of its score to the fourth power. (Scores
-- are chances spread over 0 to 1, SOFT in bench/ranker/train.py. With a smaller power many short lines of little relevance push the
-- evidence out; bench/packing.py shows it.) context_utilisation has the same formula.
create or replace function memoir._worth(p_score real)
returns float8 language sql immutable as $$
  -- Those of memories may pass 1.
  select 1 / (1 + power(1 / greatest(0.0001, least(0.9999, p_score::float8)) - 1, 4))
$$;

-- What each item would look like, about cost and be worth, in the order in which to take them: what is worth most per token first.
-- Near-identical items count once.
create or replace function memoir._recall_lines(p_candidates memoir.candidate[], p_items integer[], p_names text[], p_bodies text[],
  p_sessions uuid[], p_session_names text[])
returns memoir.recall_lines language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_lines memoir.recall_lines;
begin
  with texts as (
    select t.item_no, t.name, memoir._neutralise(t.body) as body from unnest(p_items, p_names, p_bodies) t(item_no, name, body)
  ), labelled as (
    select c.place, c.kind, c.session_id, c.turn_index, c.chunk, c.ref_id, c.said_at, c.tokens, t.body,
      case when c.memory_parts ? 'pinned' then 1000 else memoir._worth(c.score) end as worth,  -- pinned: before all else
      case when c.kind = 't' then memoir._day(c.said_at) || ', ' || memoir._neutralise(coalesce(s.name, 'session')) else 'Memories' end as header,
      case when c.kind = 't' then memoir._neutralise(coalesce(t.name, c.role::text)) else '' end as label,
      -- What the line adds: a date in brackets, or a colon and a role; a name is counted with its turn.
      case when c.kind <> 't' then 8 when t.name is null then 2 else 1 end as extra,
      row_number() over (partition by c.kind, lower(t.body) order by c.place) as copy
    from unnest(p_candidates) with ordinality as c(item_no, kind, ref_id, session_id, turn_index, chunk, span_start, span_length, tokens, role, said_at, recorded_at, project,
      score, words, vector, around, session_score, type, memory_parts, is_frequent, reason, place)
    join texts t on t.item_no = c.item_no
    left join unnest(p_sessions, p_session_names) s(session_id, name) on s.session_id = c.session_id
  ), grouped as (
    select *, dense_rank() over (order by header)::integer as g,
      tokens + extra as cost, 4 + length(header) / 3 as opening
    from labelled where copy = 1
  ), opened as (
    select *, sum(worth) over together / (opening + sum(cost) over together) as repaid from grouped
    window together as (partition by g order by worth / cost desc, place rows unbounded preceding)
  ), ordered as (
    -- A header is paid once: the lines that repay it best count together, at what they bring together; those after them by themselves.
    select *, least(worth / cost, max(repaid) over (partition by g)) as efficiency from opened
  )
  select array_agg(place::integer), array_agg(kind = 't'), array_agg(session_id), array_agg(turn_index), array_agg(chunk), array_agg(ref_id),
    array_agg(said_at), array_agg(header), array_agg(label), array_agg(body), array_agg(cost),
    array_agg(opening), array_agg(g), array_agg(worth)
  into v_lines.places, v_lines.is_turn, v_lines.sessions, v_lines.turns, v_lines.chunks, v_lines.refs, v_lines.said, v_lines.headers,
    v_lines.labels, v_lines.bodies, v_lines.costs, v_lines.openings, v_lines.groups, v_lines.worths
  from (select * from ordered order by efficiency desc, worth / cost desc, place) o;
  return v_lines;
end $$;

-- Which lines to show within a budget of about so many tokens, and about how many they take: each that still fits, in their order; one
-- that does not fit takes the place of the last ones if it is worth more than these.
create or replace function memoir._choose(p_lines memoir.recall_lines, p_budget integer, out chosen integer[], out used integer)
language plpgsql immutable as $$
declare
  n integer := coalesce(cardinality(p_lines.places), 0); v_opened boolean[] := array_fill(false, array[greatest(n, 1)]);
  v_cost integer; v_freed integer; v_lost float8; v_last integer; i integer;
begin
  chosen := '{}';
  used := 22;  -- the fence
  for i in 1 .. n loop
    v_cost := p_lines.costs[i] + case when v_opened[p_lines.groups[i]] then 0 else p_lines.openings[i] end;
    v_freed := 0; v_lost := 0; v_last := cardinality(chosen);
    while used + v_cost - v_freed > p_budget and v_last > 0 and v_lost < p_lines.worths[i] loop
      v_freed := v_freed + p_lines.costs[chosen[v_last]];
      v_lost := v_lost + p_lines.worths[chosen[v_last]];
      v_last := v_last - 1;
    end loop;
    if used + v_cost - v_freed <= p_budget and v_lost < p_lines.worths[i] then
      used := used + v_cost - v_freed;
      chosen := chosen[1 : v_last] || i;
      v_opened[p_lines.groups[i]] := true;
    end if;
  end loop;
end $$;

-- Memories first, then turns by session in the order in which they were said, under one date header per session and day.
create or replace function memoir._render_recall(p_lines memoir.recall_lines, p_chosen integer[], p_working text[], p_weak boolean default false)
returns text language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  return (
  with lines as (
    select l.*, btrim(l.text, E' \n\t') as body
    from unnest(p_lines.places, p_lines.is_turn, p_lines.sessions, p_lines.turns, p_lines.chunks, p_lines.refs, p_lines.said, p_lines.headers, p_lines.labels, p_lines.bodies)
      with ordinality as l(rank, is_turn, session_id, turn_index, chunk, ref_id, said_at, header, label, text, n)
    where l.n = any (p_chosen)
  ), placed as (
    select *, min(said_at) over (partition by session_id, header) as opened,
      lag(ref_id) over o as before_ref, lag(chunk) over o as before_chunk, row_number() over o as place
    from lines window o as (partition by is_turn, session_id, header order by turn_index, chunk, rank)
  ), groups as (
    select is_turn, opened, session_id, header, header || E':\n' || string_agg(
      case when not is_turn then '- ' || body || ' (' || memoir._day(said_at) || ')'
           when ref_id is distinct from before_ref then label || ': ' || case when chunk > 0 then '… ' else '' end || body
           when chunk = before_chunk + 1 then body
           else '… ' || body end, E'\n' order by place) as text
    from placed group by is_turn, opened, session_id, header
  )
  select memoir._fence('recall', concat_ws(E'\n', case when p_weak and p_chosen <> '{}' then memoir._weak_note() end,
    (select E'Working notes:\n' || string_agg('- ' || memoir._neutralise(w), E'\n' order by o) from unnest(p_working) with ordinality t(w, o)),
    (select string_agg(text, E'\n' order by is_turn, opened, session_id, header) from groups))));
end $$;
