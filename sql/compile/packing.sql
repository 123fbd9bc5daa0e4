-- The recall block: candidates of all arms on one footing, chosen within the block's budget, shown grouped by session and date.

-- The functions below touch no table: one generic plan serves every call.

-- Chooses candidates within p_budget tokens, each at one fidelity, and renders them. p_hidden: turns that the list shows already.
create or replace function _memoir.recall_block(p_user_id uuid, p_candidates _memoir.candidate[], p_working text[],
  p_budget integer, p_tokenizer text, p_hidden uuid[], p_clearance _memoir.sensitivity, p_config jsonb, p_query text, p_weak boolean default false)
returns _memoir.recall_block language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_block _memoir.recall_block; v_lines _memoir.recall_lines; v_count integer := coalesce(cardinality(p_candidates), 0); v_all boolean;
  v_working integer := cardinality(p_working); v_budget integer := p_budget - p_budget / 200; v_used integer; v_exact integer; v_pass integer := 0;
  v_chosen integer[] := '{}'; v_ratio numeric; i integer; n integer;
begin
  v_block.tokens := 0;
  v_block.places := array_fill(null::integer, array[v_count]);
  v_block.fidelities := array_fill(null::text, array[v_count]);
  v_block.texts := v_block.fidelities;
  select * into v_block.reasons, v_block.worths from _memoir.worths(p_candidates, p_budget, p_hidden, p_config -> 'fidelity_worth');
  if p_budget <= 0 or (v_count = 0 and v_working = 0) then return v_block; end if;
  v_lines := _memoir.lines_of(p_user_id, p_candidates, v_block.worths, p_budget, p_hidden, p_clearance, p_config, p_query);

  -- First with stored counts, then once more with the budget corrected by what the text really costs.
  loop
    select * into v_chosen, v_used, v_all from _memoir.choose(v_lines, v_budget);
    exit when v_chosen = '{}' and v_working = 0;
    v_block.text := _memoir.render_recall(v_lines, v_chosen, p_working[1 : v_working], p_weak);
    v_exact := _memoir.tokens_of(v_block.text || E'\n\n', p_tokenizer);
    exit when v_pass >= 2 or v_exact > p_budget * 0.97 or v_all or v_chosen = '{}';
    v_ratio := least(1.5, (p_budget * 0.995) / greatest(v_exact, 1));
    exit when v_ratio < 1.03;
    v_budget := (v_used * v_ratio)::integer;
    v_pass := v_pass + 1;
  end loop;
  -- The block is counted as it is; if that is too much, the choice is made again with so much less.
  while v_block.text is not null and v_exact > p_budget loop
    if v_chosen <> '{}' then
      select * into v_chosen, v_used from _memoir.choose(v_lines, v_used - (v_exact - p_budget));
    else
      v_working := v_working - 1;
    end if;
    if v_chosen = '{}' and v_working <= 0 then v_block.text := null; exit; end if;
    v_block.text := _memoir.render_recall(v_lines, v_chosen, p_working[1 : v_working], p_weak);
    v_exact := _memoir.tokens_of(v_block.text || E'\n\n', p_tokenizer);
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
create or replace function _memoir.lines_of(p_user_id uuid, p_candidates _memoir.candidate[], p_worths float8[], p_budget integer, p_hidden uuid[],
  p_clearance _memoir.sensitivity, p_config jsonb, p_query text)
returns _memoir.recall_lines language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_items integer[]; v_bodies text[]; v_names text[]; v_sessions uuid[]; v_session_names text[]; v_reduced _memoir.reduced_texts; v_reach record; v_found record; v_refs uuid[];
  r_refs uuid[]; r_fidelities smallint[]; r_texts text[]; r_tokens integer[];
begin
  select * into v_reach from _memoir.within_reach(p_candidates, p_worths, p_budget, p_hidden);
  select array_agg(t.item_no), array_agg(t.name), array_agg(t.body) into v_items, v_names, v_bodies from _memoir.texts_at(p_user_id, v_reach.places, p_clearance) t;
  select array_agg(distinct c.session_id) filter (where c.kind = 't') as sessions,
    array_agg(c) filter (where case c.kind when 't' then c.tokens >= 60 and c.item_no = any (v_reach.doubtful)
      when 'm' then c.tokens >= 60 or c.chunk > 0 or c.memory_parts ? 'ceiling' end) as long
  into v_found from unnest(p_candidates) c where c.item_no = any (v_items);
  if v_found.sessions is not null then
    select array_agg(s.session_id), array_agg(s.external_id) into v_sessions, v_session_names
    from _memoir.sessions s where s.user_id = p_user_id and s.session_id = any (v_found.sessions);
  end if;
  -- Short texts are shown as they are or not at all.
  if v_found.long is not null then
    v_refs := array(select c.ref_id from unnest(v_found.long) c where c.kind = 'm');
  end if;
  if v_refs <> '{}' then
    select array_agg(r.memory_id), array_agg(r.fidelity), array_agg(r.content), array_agg(r.token_count) into r_refs, r_fidelities, r_texts, r_tokens
    from _memoir.memory_renditions r where r.user_id = p_user_id and r.memory_id = any (v_refs) and r.fidelity between 1 and 3;
  end if;
  if v_found.long is not null then
    v_reduced := _memoir.reduced_texts(v_found.long, v_items, v_bodies, r_refs, r_fidelities, r_texts, r_tokens, p_config -> 'fidelity_worth',
      _memoir.query_terms((p_config ->> 'text_search_config')::regconfig, p_query));
  end if;
  return _memoir.recall_lines(p_candidates, p_worths, v_items, v_names, v_bodies, v_sessions, v_session_names, v_reduced);
end $$;

-- The functions below touch no table: one generic plan serves every call.

-- The texts that could stand for others, and what share of their worth is left. Of part of a long turn the sentence that holds most of
-- the question's words, rare ones above all: it is worth three quarters of the root of its share, as gold turns keep the words of
-- answers (docs/benchmarks.md). Of a memory what renditions say within the ceiling of its session, at least its beginning.
create or replace function _memoir.reduced_texts(p_candidates _memoir.candidate[], p_items integer[], p_bodies text[],
  p_refs uuid[], p_fidelities smallint[], p_texts text[], p_tokens integer[], p_shares jsonb, p_terms text[])
returns _memoir.reduced_texts language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_out _memoir.reduced_texts; v_share float8 := coalesce((p_shares ->> 'excerpt')::float8, 0);
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
create or replace function _memoir.recall_lines(p_candidates _memoir.candidate[], p_worths float8[], p_items integer[], p_names text[], p_bodies text[],
  p_sessions uuid[], p_session_names text[], p_reduced _memoir.reduced_texts)
returns _memoir.recall_lines language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_lines _memoir.recall_lines;
begin
  with labelled as materialized (
    select c.place, c.item_no, c.kind, c.session_id, c.turn_index, c.chunk, c.ref_id, c.said_at, t.body, c.tokens, c.memory_parts ? 'ceiling' as reduced,
      case when c.memory_parts ? 'pinned' then 1000 else c.worth end as worth,  -- pinned: before all else
      case when c.kind = 't' then _memoir.day(c.said_at) || ', ' || coalesce(s.name, 'session') else 'Memories' end as header,
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
create or replace function _memoir.choose(p_lines _memoir.recall_lines, p_budget integer, out chosen integer[], out used integer, out everything boolean)
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
create or replace function _memoir.render_recall(p_lines _memoir.recall_lines, p_chosen integer[], p_working text[], p_weak boolean default false)
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
      case when not is_turn then '- ' || body || ' (' || _memoir.day(said_at) || case when fidelity <> 'full' then ', ' || fidelity || ' of memory ' || ref_id else '' end || ')'
           else case when ref_id is distinct from before_ref then label || ': ' else '' end
             || case when fidelity = 'full' and chunk > 0 and (ref_id = before_ref and chunk = before_chunk + 1 and before_fidelity = 'full') is not true then '… ' else '' end
             || body end, E'\n' order by place) as text
    from placed group by is_turn, opened, session_id, header
  )
  select _memoir.fence('recall', concat_ws(E'\n', case when p_weak and p_chosen <> '{}' then _memoir.weak_note() end, _memoir.neutralise(concat_ws(E'\n',
    (select E'Working notes:\n' || string_agg('- ' || w, E'\n' order by o) from unnest(p_working) with ordinality t(w, o)),
    (select string_agg(text, E'\n' order by is_turn, opened, session_id, header) from groups))))));
end $$;
