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
  v_counters memoir.user_counters; v_ranked memoir.ranked_item[]; v_memories uuid[]; v_most integer; v_frequent uuid[] := '{}'; v_pinned uuid[] := '{}'; v_ceilings jsonb := '{}'; v_more uuid[];
  v_facts memoir.memory_facts[];
begin
  select * into v_counters from memoir.user_counters where user_id = p_user_id;
  if p_compile then p_limit := memoir._widened(p_limit, v_counters); end if;
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
      select v_pinned || coalesce(array_agg(o.memory_id order by o.memory_id) filter (where o.pinned), '{}'),
        coalesce(jsonb_object_agg(o.memory_id, o.ceiling) filter (where o.ceiling > 0 and not o.pinned), '{}') into v_pinned, v_ceilings
      from (select o.memory_id, min(o.fidelity_ceiling) as ceiling, coalesce(bool_or(o.pinned_until_turn > coalesce(
              (select c.turn_count from memoir.session_counters c where c.user_id = p_user_id and c.session_id = o.session_id), 0)), false) as pinned
            from memoir.session_objects o
            where o.user_id = p_user_id and o.session_id = any (p_scope.local_sessions) and (o.fidelity_ceiling > 0 or o.pinned_until_turn is not null)
            group by o.memory_id) o;
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
  return memoir._judge(v_ranked, v_facts, v_frequent, v_pinned, v_ceilings, v_most, p_config, p_scope, v_now);
end $$;

-- The functions below touch no table: one generic plan serves every call.

-- How many candidates a recall of p_budget tokens takes: all from 2,000 on, sixty at least.
create or replace function memoir._candidate_limit(p_candidates integer, p_budget integer)
returns integer language plpgsql immutable as $$
begin
  return least(p_candidates, 60 + greatest(0, p_candidates - 60) * least(2000, p_budget) / 2000);
end $$;

-- Of long turns sentences are shown too, so more of them are considered: up to twice as many where texts have more than eighteen words in
-- the mean, as far as they are turns.
create or replace function memoir._widened(p_limit integer, p_counters memoir.user_counters)
returns integer language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_items float8 := greatest(1, p_counters.items);
begin
  return coalesce(p_limit * (1 + (least(2, greatest(1, p_counters.total_words / v_items / 18)) - 1) * greatest(0, 1 - p_counters.memories / v_items)), p_limit)::integer;
end $$;

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
create or replace function memoir._judge(p_ranked memoir.ranked_item[], p_facts memoir.memory_facts[], p_frequent uuid[], p_pinned uuid[], p_ceilings jsonb, p_most integer,
  p_config jsonb, p_scope memoir.search_scope, p_now timestamptz)
returns memoir.candidate[] language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_mergejoin = off as $$
declare
  v_floor real := (p_config ->> 'relevance_floor')::real; v_share real := (p_config ->> 'relevance_share')::real;
  v_repeats real := (p_config ->> 'relevance_repeats')::real;
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
        || case when p_ceilings ? r.ref_id::text then jsonb_build_object('ceiling', p_ceilings -> r.ref_id::text) else '{}'::jsonb end
        when r.ref_id = any (p_pinned) then '{"pinned": true}' end as parts,
      case when r.kind <> 'm' then null
           when not m.active then 'not active'
           when p_ceilings ->> r.ref_id::text = '4' then 'evicted from the session'
           when m.valid_from > v_valid or m.valid_to <= v_valid then 'not valid at that time' end as reason
    from unnest(p_ranked) r left join memories m on m.memory_id = r.ref_id and r.kind = 'm'
    where r.kind <> 'm' or m.sensitivity <= p_scope.clearance
  ), floored as (
    -- What is much used is there whatever the query. The measure is the second best, of what neither is pinned nor repeats the query:
    -- beside a question that was asked before, no answer scores much. Without vectors that can't be told.
    select j.*, greatest(v_floor, case when not coalesce(j.ref_id = any (p_frequent), false) then v_share * m.total end) as floor
    from judged j left join (select coalesce(a.totals[2], a.totals[1]) as total
      from (select array_agg(total order by total desc) filter (where ref_id <> all (p_pinned) and reason is null and coalesce(vector, 0) < v_repeats) as totals from judged
            having max(vector) is not null) a) m on true
  )
  select (f.item_no, f.kind, f.ref_id, f.session_id, f.turn_index, f.chunk, f.span_start, f.span_length, f.tokens, f.role, f.said_at, f.recorded_at,
      f.project, (round(f.total * 100000) / 100000)::real, f.words, f.vector, f.around, f.session_score, f.type, f.parts, coalesce(f.ref_id = any (p_frequent), false),
      coalesce(f.reason, case when f.total < f.floor and f.ref_id <> all (p_pinned) then 'below the relevance floor' end))::memoir.candidate
  from floored f order by (f.total * 100000)::integer desc, f.item_no);
end $$;

-- How a day reads in a header: unambiguous in every country.
create or replace function memoir._day(p_at timestamptz)
returns text language sql stable as $$ select to_char(p_at at time zone 'UTC', 'FMDD Mon YYYY') $$;

-- Chooses candidates within p_budget tokens, each at one fidelity, and renders them. p_hidden: turns that the list shows already.
create or replace function memoir._recall_block(p_user_id uuid, p_candidates memoir.candidate[], p_working text[],
  p_budget integer, p_tokenizer text, p_hidden uuid[], p_clearance memoir.sensitivity, p_config jsonb, p_query text, p_weak boolean default false)
returns memoir.recall_block language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_block memoir.recall_block; v_lines memoir.recall_lines; v_count integer := coalesce(cardinality(p_candidates), 0); v_all boolean;
  v_working integer := cardinality(p_working); v_budget integer := p_budget - p_budget / 200; v_used integer; v_exact integer; v_pass integer := 0;
  v_chosen integer[] := '{}'; v_ratio numeric; i integer; n integer;
begin
  v_block.tokens := 0;
  v_block.places := array_fill(null::integer, array[v_count]);
  v_block.fidelities := array_fill(null::text, array[v_count]);
  v_block.texts := v_block.fidelities;
  select * into v_block.reasons, v_block.worths from memoir._worths(p_candidates, p_budget, p_hidden, p_config -> 'fidelity_worth');
  if p_budget <= 0 or (v_count = 0 and v_working = 0) then return v_block; end if;
  v_lines := memoir._lines_of(p_user_id, p_candidates, v_block.worths, p_budget, p_hidden, p_clearance, p_config, p_query);

  -- First with stored counts, then once more with the budget corrected by what the text really costs.
  loop
    select * into v_chosen, v_used, v_all from memoir._choose(v_lines, v_budget);
    exit when v_chosen = '{}' and v_working = 0;
    v_block.text := memoir._render_recall(v_lines, v_chosen, p_working[1 : v_working], p_weak);
    v_exact := memoir._tokens_of(v_block.text || E'\n\n', p_tokenizer);
    exit when v_pass >= 2 or v_exact > p_budget * 0.97 or v_all or v_chosen = '{}';
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

  foreach i in array v_lines.copies loop v_block.reasons[i] := 'a copy of another candidate'; end loop;
  if v_block.text is not null then
    v_block.tokens := v_exact;
    for n in 1 .. cardinality(v_chosen) loop
      i := v_lines.places[v_chosen[n]];
      v_block.places[i] := n;
      v_block.fidelities[i] := v_lines.fidelities[v_chosen[n]];
      v_block.reasons[i] := null;
      if v_block.fidelities[i] <> 'full' then v_block.texts[i] := v_lines.bodies[v_chosen[n]]; end if;
    end loop;
  end if;
  return v_block;
end $$;

-- What could be shown, at every fidelity there is, in the order in which to take it. Texts are read of what is worth most up to half
-- again the budget.
create or replace function memoir._lines_of(p_user_id uuid, p_candidates memoir.candidate[], p_worths float8[], p_budget integer, p_hidden uuid[],
  p_clearance memoir.sensitivity, p_config jsonb, p_query text)
returns memoir.recall_lines language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_items integer[]; v_bodies text[]; v_names text[]; v_sessions uuid[]; v_session_names text[]; v_reduced memoir.reduced_texts; v_reach record; v_found record; v_refs uuid[];
  r_refs uuid[]; r_fidelities smallint[]; r_texts text[]; r_tokens integer[];
begin
  select * into v_reach from memoir._within_reach(p_candidates, p_worths, p_budget, p_hidden);
  select array_agg(t.item_no), array_agg(t.name), array_agg(t.body) into v_items, v_names, v_bodies from memoir._texts_at(p_user_id, v_reach.places, p_clearance) t;
  select array_agg(distinct c.session_id) filter (where c.kind = 't') as sessions,
    array_agg(c) filter (where case c.kind when 't' then c.tokens >= 60 and c.item_no = any (v_reach.doubtful)
      when 'm' then c.tokens >= 60 or c.chunk > 0 or c.memory_parts ? 'ceiling' end) as long
  into v_found from unnest(p_candidates) c where c.item_no = any (v_items);
  if v_found.sessions is not null then
    select array_agg(s.session_id), array_agg(s.external_id) into v_sessions, v_session_names
    from memoir.sessions s where s.user_id = p_user_id and s.session_id = any (v_found.sessions);
  end if;
  -- Short texts are shown as they are or not at all.
  if v_found.long is not null then
    v_refs := array(select c.ref_id from unnest(v_found.long) c where c.kind = 'm');
  end if;
  if v_refs <> '{}' then
    select array_agg(r.memory_id), array_agg(r.fidelity), array_agg(r.content), array_agg(r.token_count) into r_refs, r_fidelities, r_texts, r_tokens
    from memoir.memory_renditions r where r.user_id = p_user_id and r.memory_id = any (v_refs) and r.fidelity between 1 and 3;
  end if;
  if v_found.long is not null then
    v_reduced := memoir._reduced_texts(v_found.long, v_items, v_bodies, r_refs, r_fidelities, r_texts, r_tokens, p_config -> 'fidelity_worth',
      memoir._query_terms((p_config ->> 'text_search_config')::regconfig, p_query));
  end if;
  return memoir._recall_lines(p_candidates, p_worths, v_items, v_names, v_bodies, v_sessions, v_session_names, v_reduced);
end $$;

-- The functions below touch no table: one generic plan serves every call.

-- Where the candidates are whose running total, what is worth most per token first, stays within one and a half budgets: counts are
-- on the high side. doubtful: the items that may not fit as they are, those beyond half of it.
create or replace function memoir._within_reach(p_candidates memoir.candidate[], p_worths float8[], p_budget integer, p_hidden uuid[],
  out places memoir.item_place[], out doubtful integer[])
language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_reach record;
begin
  select array_agg((r.item_no, r.kind, r.ref_id, r.session_id, r.turn_index, r.recorded_at, r.span_start, r.span_length)::memoir.item_place) as places,
    array_agg(r.item_no) filter (where r.before >= p_budget / 2) as doubtful into v_reach
  from (select c.item_no, c.kind, c.ref_id, c.session_id, c.turn_index, c.recorded_at, c.span_start, c.span_length,
          sum(c.tokens) over (order by (c.memory_parts ? 'pinned') is true desc, c.worth / (c.tokens + 8) desc, c.item_no rows unbounded preceding) - c.tokens as before
        from rows from (unnest(p_candidates), unnest(p_worths)) as c(item_no, kind, ref_id, session_id, turn_index, chunk, span_start, span_length, tokens, role,
          said_at, recorded_at, project, score, words, vector, around, session_score, type, memory_parts, is_frequent, reason, worth)
        where c.reason is null and c.tokens <= p_budget::bigint * 3 and c.ref_id <> all (p_hidden)) r  -- what is too long may fit as an excerpt
  where r.before <= p_budget::bigint * 3 / 2 + 200;
  places := v_reach.places; doubtful := v_reach.doubtful;
end $$;

-- What showing a line is worth: about the chance that it is evidence, whose odds are those of its score to the fourth power. (Scores
-- are chances spread over 0 to 1, SOFT in bench/ranker/train.py. With a smaller power many short lines of little relevance push the
-- evidence out; bench/packing.py shows it.) context_utilisation has the same formula.
create or replace function memoir._worth(p_score real)
returns float8 language sql immutable as $$
  -- Those of memories may pass 1.
  select 1 / (1 + power(1 / greatest(0.0001, least(0.9999, p_score::float8)) - 1, 4))
$$;

-- Worth of each candidate, and the reason for being left out if nothing is chosen. The rest of a turn of which another part is worth
-- more gains from it, the less the longer the turn: half of a question or a list is seldom enough.
create or replace function memoir._worths(p_candidates memoir.candidate[], p_budget integer, p_hidden uuid[], p_shares jsonb,
  out reasons text[], out worths float8[])
language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_rest float8 := coalesce((p_shares ->> 'rest')::float8, 0);
begin
  with given as materialized (
    select c.kind, c.ref_id, c.chunk, c.span_start + c.span_length as stop, case when c.reason is null then memoir._worth(c.score) else 0 end as worth,
      case when c.reason is not null then c.reason
        when c.kind = 't' and c.ref_id = any (p_hidden) then 'shown in the window'
        when c.tokens > p_budget then 'longer than the block'
        when c.memory_parts ? 'ceiling' then 'no room at the fidelity its session allows'
        else 'no room' end as reason
    from unnest(p_candidates) c
  ), turns as (
    select ref_id, v_rest * max(worth) * power(least(1, 1000.0::float8 / max(stop)), 2) as worth from given
    where kind = 't' group by ref_id having max(chunk) > 0
  )
  select array_agg(g.reason), array_agg(greatest(g.worth, t.worth)) into reasons, worths
  from given g left join turns t on t.ref_id = g.ref_id and g.kind = 't';
end $$;

-- The texts that could stand for others, and what share of their worth is left. Of part of a long turn the sentence that holds most of
-- the question's words, rare ones above all: it is worth three quarters of the root of its share, as gold turns keep the words of
-- answers (docs/benchmarks.md). Of a memory what renditions say within the ceiling of its session, at least its beginning.
create or replace function memoir._reduced_texts(p_candidates memoir.candidate[], p_items integer[], p_bodies text[],
  p_refs uuid[], p_fidelities smallint[], p_texts text[], p_tokens integer[], p_shares jsonb, p_terms text[])
returns memoir.reduced_texts language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_out memoir.reduced_texts; v_share float8 := coalesce((p_shares ->> 'excerpt')::float8, 0);
begin
  with given as materialized (
    select c.item_no, c.kind, c.ref_id, c.turn_index, c.chunk, c.tokens, c.type, (c.memory_parts ->> 'ceiling')::smallint as ceiling, t.body, c.place
    from unnest(p_candidates) with ordinality as c(item_no, kind, ref_id, session_id, turn_index, chunk, span_start, span_length, tokens, role, said_at, recorded_at, project,
      score, words, vector, around, session_score, type, memory_parts, is_frequent, reason, place)
    join unnest(p_items, p_bodies) t(item_no, body) on t.item_no = c.item_no
  ), long as materialized (
    select item_no, turn_index, chunk, tokens, btrim(body, E' \n\t') as body from given where kind = 't' and v_share > 0
  ), terms as materialized (
    select t.term, (1000 * ln(1 + (n.n - d.df + 0.5) / (d.df + 0.5)) + 50)::integer as weight
    from (select distinct case when length(w) > 4 then rtrim(w, 'iy') else w end as term from unnest(p_terms) w) t,
      (select count(*)::float8 as n from long) n,
      lateral (select count(*)::float8 as df from (select lower(body) as low from long offset 0) l where strpos(l.low, t.term) > 0) d
  ), sentences as (
    -- Cut at the ends of sentences and lines: quick and rough.
    select item_no, turn_index, chunk, tokens, body, btrim(unnest(parts), ' -*#=_|~') as said, generate_subscripts(parts, 1) as o
    from (select *, string_to_array(replace(replace(replace(replace(replace(body, '. ', E'.\x02'), '? ', E'?\x02'), '! ', E'!\x02'), '。', E'。\x02'), E'\n', E'\x02'), E'\x02') as parts
          from long) l
  ), lowered as (
    select *, lower(said) as low from sentences where length(said) between 20 and length(body) * 3 / 4 offset 0
  ), best as (
    select distinct on (item_no) item_no, turn_index, chunk, tokens, body, said
    from lowered order by item_no, (select coalesce(sum(t.weight), 0) from terms t where strpos(low, t.term) > 0) desc, o
  ), reduced as (
    -- Several pieces of one memory have one rendition: it stands for the best of them.
    select distinct on (g.ref_id, f.fidelity) g.item_no, f.fidelity, f.content, f.tokens
    from given g,
      lateral (select r.fidelity, r.content, r.tokens from unnest(p_refs, p_fidelities, p_texts, p_tokens) r(ref_id, fidelity, content, tokens)
               where r.ref_id = g.ref_id and r.fidelity >= coalesce(g.ceiling, 0)
               union all
               select 3, g.type || ': ' || left(g.body, 80) || '…', 30
               where g.ceiling is not null and not exists (select from unnest(p_refs, p_fidelities) r(ref_id, fidelity) where r.ref_id = g.ref_id and r.fidelity >= g.ceiling)) f
    where g.kind = 'm'
    order by g.ref_id, f.fidelity, g.place
  )
  select array_agg(item_no), array_agg(fidelity), array_agg(said), array_agg(tokens), array_agg(share)
  into v_out.items, v_out.fidelities, v_out.texts, v_out.tokens, v_out.shares
  from (select item_no, 'excerpt' as fidelity,
          case when chunk = 0 and starts_with(body, said) then '' else '… ' end || said || ' … #' || turn_index as said,
          (tokens * length(said) / length(body) + 5)::integer as tokens, v_share * sqrt(length(said)::float8 / length(body)) as share from best
        union all
        select item_no, (array['detailed', 'compact', 'stub'])[fidelity], content, tokens + 30,
          coalesce((p_shares ->> (array['detailed', 'compact', 'stub'])[fidelity])::float8, 0) from reduced) r;
  return v_out;
end $$;

-- What each item would look like at each fidelity, about cost and be worth, in the order in which to take them: what is worth most per
-- token first. A line of a higher fidelity is a step up from the one before it: it costs and is worth what it adds, and takes its place.
-- Fidelities that bring less for each token than the next one up are left out. Near-identical items count once.
create or replace function memoir._recall_lines(p_candidates memoir.candidate[], p_worths float8[], p_items integer[], p_names text[], p_bodies text[],
  p_sessions uuid[], p_session_names text[], p_reduced memoir.reduced_texts)
returns memoir.recall_lines language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_lines memoir.recall_lines;
begin
  with labelled as materialized (
    select c.place, c.item_no, c.kind, c.session_id, c.turn_index, c.chunk, c.ref_id, c.said_at, t.body, c.tokens, c.memory_parts ? 'ceiling' as reduced,
      case when c.memory_parts ? 'pinned' then 1000 else c.worth end as worth,  -- pinned: before all else
      case when c.kind = 't' then memoir._day(c.said_at) || ', ' || coalesce(s.name, 'session') else 'Memories' end as header,
      case when c.kind = 't' then coalesce(t.name, c.role::text) else '' end as label,
      -- What the line adds: a date in brackets, or a colon and a role; a name is counted with its turn.
      case when c.kind <> 't' then 8 when t.name is null then 2 else 1 end as extra,
      row_number() over (partition by lower(btrim(t.body, E' \n\t.!?…') collate "C") order by (c.memory_parts ? 'pinned') is true desc, (c.memory_parts ? 'ceiling') is true, c.place) as copy
    from rows from (unnest(p_candidates), unnest(p_worths)) with ordinality as c(item_no, kind, ref_id, session_id, turn_index, chunk, span_start, span_length, tokens, role,
      said_at, recorded_at, project, score, words, vector, around, session_score, type, memory_parts, is_frequent, reason, worth, place)
    join unnest(p_items, p_names, p_bodies) t(item_no, name, body) on t.item_no = c.item_no
    left join unnest(p_sessions, p_session_names) s(session_id, name) on s.session_id = c.session_id
  ), full_lines as (
    select *, tokens + extra as cost from labelled where copy = 1
  ), levels as (
    select l.place, r.fidelity, r.body, r.tokens + l.cost - l.tokens as cost, l.worth * r.share as worth
    from unnest(p_reduced.items, p_reduced.fidelities, p_reduced.texts, p_reduced.tokens, p_reduced.shares) r(item_no, fidelity, body, tokens, share)
    join full_lines l on l.item_no = r.item_no
    union all
    select place, 'full', body, cost, worth from full_lines where item_no = any (p_reduced.items) and not coalesce(reduced, false)
  ), compared as (
    select *, lag(cost, 1, 0) over up as less_cost, coalesce(max(worth) over (up rows between unbounded preceding and 1 preceding), 0) as less_worth,
      lead(cost) over up as more_cost, lead(worth) over up as more_worth
    from levels window up as (partition by place order by cost, worth desc, fidelity)
  ), steps as (
    select place, fidelity, body, cost - lag(cost, 1, 0) over up as cost, worth - lag(worth, 1, 0::float8) over up as worth, row_number() over up as step
    from compared
    where worth > less_worth and cost > less_cost and (more_cost is null or more_cost > cost
      and (worth - less_worth) * (more_cost - cost) > (more_worth - worth) * (cost - less_cost))
    window up as (partition by place order by cost, worth desc, fidelity)
  ), ascending as (
    -- No step is taken before the one it stands on.
    select *, min(worth / cost) over (partition by place order by step) as own from steps
  ), grouped as (
    select *, dense_rank() over (order by header collate "C")::integer as g, 4 + length(header) / 3 as opening
    from (select l.place, l.kind, l.session_id, l.turn_index, l.chunk, l.ref_id, l.said_at, l.header, l.label, s.body, s.fidelity, s.cost, s.worth, s.step, s.own
          from ascending s join full_lines l on l.place = s.place
          union all
          select place, kind, session_id, turn_index, chunk, ref_id, said_at, header, label, body, 'full', cost, worth, 1, worth / cost
          from full_lines where item_no <> all (coalesce(p_reduced.items, '{}')) and not coalesce(reduced, false)) s
  ), opened as (
    select *, sum(worth) over together / (opening + sum(cost) over together) as repaid from grouped
    window together as (partition by g order by own desc, place, step rows unbounded preceding)
  ), ordered as (
    -- A header is paid once: the lines that repay it best count together, at what they bring together; those after them by themselves.
    select *, least(own, max(repaid) over (partition by g)) as efficiency from opened
  )
  select array_agg(place::integer), array_agg(fidelity), array_agg(step::smallint), array_agg(kind = 't'), array_agg(session_id), array_agg(turn_index), array_agg(chunk),
    array_agg(ref_id), array_agg(said_at), array_agg(header), array_agg(label), array_agg(body), array_agg(cost), array_agg(opening), array_agg(g), array_agg(worth),
    array(select l.place::integer from labelled l where l.copy > 1)
  into v_lines.places, v_lines.fidelities, v_lines.steps, v_lines.is_turn, v_lines.sessions, v_lines.turns, v_lines.chunks,
    v_lines.refs, v_lines.said, v_lines.headers, v_lines.labels, v_lines.bodies, v_lines.costs, v_lines.openings, v_lines.groups, v_lines.worths,
    v_lines.copies
  from (select * from ordered order by efficiency desc, own desc, place, step) o;
  return v_lines;
end $$;

-- Which lines to show within a budget of about so many tokens, and about how many they take: each that still fits, in their order; one
-- that does not fit takes the place of the last ones if it is worth more than these. A step up needs the one before it, whose place it
-- takes: of every item one line at most. everything: there was nothing more to choose.
create or replace function memoir._choose(p_lines memoir.recall_lines, p_budget integer, out chosen integer[], out used integer, out everything boolean)
language plpgsql immutable as $$
declare
  n integer := coalesce(cardinality(p_lines.places), 0); v_opened boolean[] := array_fill(false, array[greatest(n, 1)]);
  v_cost integer; v_freed integer; v_lost float8; v_last integer; v_below integer; i integer;
begin
  chosen := '{}';
  used := 22;  -- the fence
  for i in 1 .. n loop
    v_below := 0;
    if p_lines.steps[i] > 1 then
      v_below := array_position(chosen, (array_positions(p_lines.places, p_lines.places[i]))[p_lines.steps[i] - 1]);
      continue when v_below is null;
    end if;
    v_cost := p_lines.costs[i] + case when v_opened[p_lines.groups[i]] then 0 else p_lines.openings[i] end;
    v_freed := 0; v_lost := 0; v_last := cardinality(chosen);
    while used + v_cost - v_freed > p_budget and v_last > v_below and v_lost < p_lines.worths[i] loop
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
  everything := cardinality(chosen) = n;
  foreach i in array chosen loop
    if p_lines.steps[i] > 1 then chosen := array_remove(chosen, (array_positions(p_lines.places, p_lines.places[i]))[p_lines.steps[i] - 1]); end if;
  end loop;
end $$;

-- Memories first, then turns by session in the order in which they were said, under one date header per session and day. What is not
-- shown whole says so: … for what is left out, #12 for the turn that it is in, the id of a memory.
create or replace function memoir._render_recall(p_lines memoir.recall_lines, p_chosen integer[], p_working text[], p_weak boolean default false)
returns text language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  return (
  with lines as (
    select l.*, btrim(l.text, E' \n\t') as body
    from unnest(p_lines.places, p_lines.fidelities, p_lines.is_turn, p_lines.sessions, p_lines.turns, p_lines.chunks, p_lines.refs, p_lines.said, p_lines.headers, p_lines.labels,
      p_lines.bodies) with ordinality as l(rank, fidelity, is_turn, session_id, turn_index, chunk, ref_id, said_at, header, label, text, n)
    where l.n = any (p_chosen)
  ), placed as (
    select *, min(said_at) over (partition by session_id, header) as opened,
      lag(ref_id) over o as before_ref, lag(chunk) over o as before_chunk, lag(fidelity) over o as before_fidelity, row_number() over o as place
    from lines window o as (partition by is_turn, session_id, header order by turn_index, chunk, rank)
  ), groups as (
    select is_turn, opened, session_id, header, header || E':\n' || string_agg(
      case when not is_turn then '- ' || body || ' (' || memoir._day(said_at) || case when fidelity <> 'full' then ', ' || fidelity || ' of memory ' || ref_id else '' end || ')'
           else case when ref_id is distinct from before_ref then label || ': ' else '' end
             || case when fidelity = 'full' and chunk > 0 and (ref_id = before_ref and chunk = before_chunk + 1 and before_fidelity = 'full') is not true then '… ' else '' end
             || body end, E'\n' order by place) as text
    from placed group by is_turn, opened, session_id, header
  )
  select memoir._fence('recall', concat_ws(E'\n', case when p_weak and p_chosen <> '{}' then memoir._weak_note() end, memoir._neutralise(concat_ws(E'\n',
    (select E'Working notes:\n' || string_agg('- ' || w, E'\n' order by o) from unnest(p_working) with ordinality t(w, o)),
    (select string_agg(text, E'\n' order by is_turn, opened, session_id, header) from groups))))));
end $$;
