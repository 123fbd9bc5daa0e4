-- The recall block: candidates of all arms on one footing, chosen within the block's budget, shown grouped by session and date.

-- Memories carry more than a match: half-life and weight of their type, use, and authority ([PG] 6.2, [MS]).
create or replace function memoir._memory_score(p_config jsonb, p_base real, p_memory memoir.memory_store, p_stats memoir.memory_stats,
  p_most_accessed integer, p_now timestamptz)
returns jsonb language plpgsql immutable as $$
declare
  v_age float8 := greatest(extract(epoch from p_now - coalesce((p_memory.metadata ->> 'said_at')::timestamptz, p_memory.recorded_at)) / 86400, 0);
  v_half float8 := coalesce((p_config -> 'half_life_days' ->> p_memory.type)::float8, 365);
  v_type float8 := coalesce((p_config -> 'type_weights' ->> p_memory.type)::float8, 1);
  v_decay float8 := case when p_memory.tier >= 3 then 1 else power(2, - v_age / v_half) end;
  v_reinforced float8 := greatest(extract(epoch from p_now - coalesce(p_stats.reinforced_at, p_memory.recorded_at)) / 86400, 0);
  v_authority float8 := p_memory.confidence * power(2, - v_reinforced / v_half) * p_memory.trust;
  v_access float8 := case when coalesce(p_most_accessed, 0) > 0 then ln(1 + coalesce(p_stats.access_count, 0)) / ln(1 + p_most_accessed) else 0 end;
  v_importance float8 := case p_memory.importance when 'critical' then 1.3 when 'important' then 1.15 when 'minor' then 0.85 else 1 end;
begin
  return jsonb_build_object('match', round(p_base::numeric, 4), 'type_weight', v_type, 'decay', round(v_decay::numeric, 4), 'importance', v_importance,
    'access', round(v_access::numeric, 4), 'authority', round(v_authority::numeric, 4),
    'score', round((p_base * v_type * v_importance * (0.5 + 0.5 * v_decay)
      + (p_config ->> 'weight_access')::float8 * v_access + (p_config ->> 'weight_authority')::float8 * v_authority)::numeric, 5));
end $$;

-- Was the memory active at that time? A forgotten or erased one never was.
create or replace function memoir._was_active(p_memory memoir.memory_store, p_as_of timestamptz, p_now timestamptz)
returns boolean language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  if p_memory.state in ('forgotten', 'erased') then return false; end if;
  if p_as_of is null then
    return p_memory.state = 'active' and (p_memory.expires_at is null or p_memory.expires_at > p_now);
  end if;
  return coalesce((select s.state = 'active' from memoir.memory_states s
    where s.user_id = p_memory.user_id and s.memory_id = p_memory.memory_id and s.recorded_at <= p_as_of
    order by s.recorded_at desc, (s.state = 'active') limit 1), false);
end $$;

-- All candidates, best first, with the reason why one can't be shown. p_frequent: how many much-used memories join anyway.
create or replace function memoir._candidates(p_user_id uuid, p_config jsonb, p_query text, p_vector halfvec, p_model_id smallint,
  p_project text, p_scope memoir.search_scope, p_session_id uuid, p_limit integer, p_frequent integer)
returns memoir.candidate[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_now timestamptz := memoir.now();
  v_floor real := (p_config ->> 'relevance_floor')::real;
  v_valid timestamptz := coalesce(p_scope.valid_at, p_scope.as_of, v_now);
  v_ranked memoir.ranked_item[]; v_memories uuid[]; v_most integer; v_frequent uuid[] := '{}'; v_out memoir.candidate[];
begin
  v_ranked := array(select r from memoir._rank(p_user_id, p_config, p_query, p_vector, p_model_id, p_project, p_scope, p_limit) r);
  v_memories := array(select distinct ref_id from unnest(v_ranked) where kind = 'm');
  if p_frequent > 0 or v_memories <> '{}' then
    select coalesce(max(access_count), 0) into v_most from memoir.memory_stats where user_id = p_user_id and access_count > 0;
    if p_frequent > 0 and v_most > 0 then
      v_frequent := array(select s.memory_id from memoir.memory_stats s
        where s.user_id = p_user_id and s.access_count > 0 and s.memory_id <> all (v_memories)
        order by s.access_count desc, s.memory_id limit p_frequent);
      v_ranked := v_ranked || array(
        select (i.item_no, i.kind, i.ref_id, i.session_id, i.turn_index, i.chunk, i.span_start, i.span_length, i.token_count, i.role,
                i.created_at, i.recorded_at, i.project, 0, 0, null, 0, 0, null, null)::memoir.ranked_item
        from memoir.search_items i
        where i.user_id = p_user_id and i.ref_id = any (v_frequent) and i.chunk = 0 and not i.dead and i.session_id is null
          and (p_scope.projects is null or i.project = any (p_scope.projects)) order by i.item_no);
    end if;
  end if;

  with memories as (
    select m as memory, s as stats from memoir.memory_store m
    left join memoir.memory_stats s on s.user_id = p_user_id and s.memory_id = m.memory_id
    where m.user_id = p_user_id and m.memory_id = any (v_memories || v_frequent)
  ), joined as (
    select r, (m.memory).memory_id, m.memory, m.stats,
      case when r.kind = 'm' then memoir._memory_score(p_config, r.score, m.memory, m.stats, v_most, v_now) end as parts
    from unnest(v_ranked) r left join memories m on (m.memory).memory_id = r.ref_id and r.kind = 'm'
  ), judged as (
    select j.*, coalesce((parts ->> 'score')::real, (r).score) as score,
      case when (r).kind <> 'm' then null
           when memory_id is null then 'unknown'
           when (memory).sensitivity > p_scope.clearance then 'above clearance'
           when not memoir._was_active(memory, p_scope.as_of, v_now) then 'not active'
           when (memory).valid_from > v_valid or (memory).valid_to <= v_valid then 'not valid at that time' end as reason
    from joined j
  )
  select coalesce(array_agg((r, score, coalesce(parts, jsonb_build_object('match', (r).score)) || jsonb_build_object('words', (r).words, 'vector', (r).vector,
        'around', (r).around, 'session', (r).session_score),
      array_remove(array[case when (r).words > 0 then 'words' end, case when (r).vector is not null then 'vector' end,
        case when (r).ref_id = any (v_frequent) then 'frequent' end], null),
      (r).token_count, null, null, null,
      coalesce(reason, case when score < v_floor then 'below the relevance floor' end), 0,
      case when (r).kind = 'm' then (memory).type end)::memoir.candidate
    order by score desc, (r).item_no), '{}') into v_out
  from judged where reason is distinct from 'unknown' and reason is distinct from 'above clearance';
  return v_out;
end $$;

create or replace function memoir._session_names(p_user_id uuid, p_sessions uuid[])
returns table (session_id uuid, name text) language sql stable as $$
  select s.session_id, s.external_id from memoir.sessions s where s.user_id = p_user_id and s.session_id = any (p_sessions)
$$;

-- How a day reads in a header: unambiguous in every country.
create or replace function memoir._day(p_at timestamptz)
returns text language sql immutable as $$ select to_char(p_at at time zone 'UTC', 'FMDD Mon YYYY') $$;

-- Chooses candidates within p_budget tokens and renders them. p_hidden: turns that the list shows already.
create or replace function memoir._recall_block(p_user_id uuid, p_config jsonb, p_candidates memoir.candidate[], p_working text[],
  p_budget integer, p_tokenizer text, p_hidden uuid[], p_clearance memoir.sensitivity)
returns memoir.recall_block language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_block memoir.recall_block; v_c memoir.candidate; v_fence integer; v_estimate integer; v_budget integer := p_budget;
  v_opened text[]; v_key text; v_cost integer; v_pass integer := 0; v_items integer[]; v_chosen integer[]; i integer;
  v_seen text[]; v_texts jsonb; v_norm text; v_memories boolean; v_exact integer; v_ratio numeric; v_names jsonb; v_tried integer[];
begin
  v_block.candidates := p_candidates; v_block.chosen := '{}'; v_block.tokens := 0;
  if p_budget <= 0 or (p_candidates = '{}' and p_working = '{}') then
    for i in 1 .. cardinality(p_candidates) loop
      if (p_candidates[i]).reason is null then v_block.candidates[i].reason := 'no room'; end if;
    end loop;
    return v_block;
  end if;
  v_fence := memoir._tokens_of(memoir._fence('recall', ''), p_tokenizer) + 6;

  -- Texts of everything that could fit: the candidates whose running total stays within twice the budget.
  v_cost := 0; v_items := '{}';
  for i in 1 .. cardinality(p_candidates) loop
    v_c := p_candidates[i];
    continue when v_c.reason is not null or (v_c.item).token_count > p_budget;
    if (v_c.item).kind = 't' and (v_c.item).ref_id = any (p_hidden) then
      v_block.candidates[i].reason := 'shown in the window'; continue;
    end if;
    v_cost := v_cost + (v_c.item).token_count;
    exit when v_cost > 2 * p_budget + 200;
    v_items := v_items || (v_c.item).item_no;
  end loop;
  select coalesce(jsonb_object_agg(t.item_no, jsonb_build_array(t.name, t.body)), '{}') into v_texts
  from memoir._item_texts(p_user_id, v_items, p_clearance) t;
  select coalesce(jsonb_object_agg(s.session_id, s.name), '{}') into v_names
  from memoir._session_names(p_user_id, array(select distinct (c.item).session_id from unnest(p_candidates) c where (c.item).kind = 't')) s;

  v_seen := '{}';
  for i in 1 .. cardinality(p_candidates) loop
    v_c := v_block.candidates[i];
    continue when v_c.reason is not null;
    if v_texts ? (v_c.item).item_no::text then
      v_c.body := memoir._neutralise(v_texts -> (v_c.item).item_no::text ->> 1);
      v_norm := (v_c.item).kind::text || memoir._normalise(v_c.body);
      if v_norm = any (v_seen) then
        v_c.reason := 'says what another item says';
      else
        v_seen := v_seen || v_norm;
        if (v_c.item).kind = 't' then
          v_c.header := memoir._day((v_c.item).created_at) || ', ' || memoir._neutralise(coalesce(v_names ->> (v_c.item).session_id::text, 'session'));
          v_c.label := memoir._neutralise(coalesce(v_texts -> (v_c.item).item_no::text ->> 0, (v_c.item).role::text));
        else
          v_c.header := 'Memories'; v_c.label := '';
        end if;
      end if;
    elsif (v_c.item).token_count > p_budget then
      v_c.reason := 'longer than the block';
    elsif (v_c.item).item_no = any (v_items) then
      v_c.reason := 'excluded';
    end if;
    v_block.candidates[i] := v_c;
  end loop;

  -- First with stored counts, then once more with the budget corrected by what the text really costs.
  loop
    v_estimate := v_fence; v_opened := '{}'; v_chosen := '{}';
    for i in 1 .. cardinality(v_block.candidates) loop
      v_c := v_block.candidates[i];
      continue when v_c.reason is not null or v_c.body is null;
      v_cost := (v_c.item).token_count + 3 + length(v_c.label) / 4;
      if not v_c.header = any (v_opened) then v_cost := v_cost + 4 + length(v_c.header) / 3; end if;
      if v_estimate + v_cost <= v_budget then
        v_estimate := v_estimate + v_cost;
        v_chosen := v_chosen || i;
        if not v_c.header = any (v_opened) then v_opened := v_opened || v_c.header; end if;
      end if;
    end loop;
    exit when v_chosen = '{}' and p_working = '{}';
    v_block.text := memoir._render_recall(v_block.candidates, v_chosen, p_working);
    v_exact := memoir._tokens_of(v_block.text, p_tokenizer);
    exit when v_pass >= 1 or v_exact > p_budget or v_exact > p_budget * 0.97 or v_chosen = '{}';
    v_ratio := least(1.4, p_budget::numeric / greatest(v_exact, 1) * 0.99);
    exit when v_ratio < 1.02 or cardinality(v_chosen) = cardinality(v_items);
    v_budget := (v_estimate * v_ratio)::integer;
    v_pass := v_pass + 1;
  end loop;
  -- The block is counted as it is; what does not fit goes, the least relevant first.
  while v_block.text is not null and v_exact > p_budget loop
    if v_chosen <> '{}' then v_chosen := v_chosen[1 : cardinality(v_chosen) - greatest(1, least(cardinality(v_chosen) - 1, ((v_exact - p_budget) * cardinality(v_chosen) / v_exact)))];
    else p_working := p_working[1 : cardinality(p_working) - 1]; end if;
    if v_chosen = '{}' and p_working = '{}' then v_block.text := null; exit; end if;
    v_block.text := memoir._render_recall(v_block.candidates, v_chosen, p_working);
    v_exact := memoir._tokens_of(v_block.text, p_tokenizer);
  end loop;
  for i in 1 .. cardinality(v_block.candidates) loop
    if (v_block.candidates[i]).reason is null and not i = any (v_chosen) then v_block.candidates[i].reason := 'no room'; end if;
  end loop;
  v_block.chosen := case when v_block.text is null then '{}' else v_chosen end;
  v_block.tokens := case when v_block.text is null then 0 else v_exact end;
  return v_block;
end $$;

-- Memories first, then turns by session in the order in which they were said, under one date header per session and day.
create or replace function memoir._render_recall(p_candidates memoir.candidate[], p_chosen integer[], p_working text[])
returns text language sql immutable as $$
  with lines as (
    select (c.item).kind = 't' as is_turn, c.header, (c.item).created_at as said, (c.item).session_id as session_id, (c.item).turn_index as turn_index,
      (c.item).chunk as chunk, (c.item).ref_id as ref_id, (c.item).item_no as item_no, c.label, c.body, c.type, c.item
    from unnest(p_chosen) n, lateral (select (p_candidates[n]).*) c
  ), placed as (
    select *, min(said) over (partition by session_id, header) as opened,
      lag(ref_id) over o as before_ref, lag(chunk) over o as before_chunk, lead(ref_id) over o as after_ref,
      row_number() over o as place
    from lines window o as (partition by is_turn, session_id, header order by turn_index, chunk, item_no)
  ), shown as (
    select is_turn, opened, session_id, header, place, turn_index, chunk, item_no,
      case when is_turn then
        case when ref_id is not distinct from before_ref then case when chunk = before_chunk + 1 then '' else '… ' end
             else label || ': ' || case when chunk > 0 then '… ' else '' end end || btrim(body, E' \n\t')
      else '- ' || btrim(body, E' \n\t') || ' (' || memoir._day(said) || ')' end as line
    from placed
  ), groups as (
    select is_turn, opened, session_id, header, E'\n' || header || E':\n' || string_agg(line, E'\n' order by place) as text
    from shown group by is_turn, opened, session_id, header
  )
  select memoir._fence('recall', btrim(
    coalesce((select E'Working notes:\n' || string_agg('- ' || memoir._neutralise(w), E'\n' order by o) || E'\n' from unnest(p_working) with ordinality t(w, o)), '')
    || coalesce((select string_agg(text, E'\n' order by is_turn, opened, session_id, header) from groups), ''), E'\n'))
$$;
