-- Candidates of all arms on one footing: memories, frequent and pinned ones, old turns; what each is worth.

-- Returns what a recall shows whatever the query, and how much of its memories the ladder lets a session show: what it
-- and its branch points before it pin, and working notes (null on a standby, which has none).
create or replace function _memoir.pins(v _memoir.compile_state, p_scope _memoir.search_scope)
returns _memoir.pins language plpgsql stable as $$
declare
  v_pins _memoir.pins; v_features text[] := (v.user_counters).features;
begin
  v_pins.pinned := '{}';
  v_pins.ceilings := '{}';
  if not pg_is_in_recovery() then
    v_pins.working := '{}';
    if (v.session).session_id is not null and 'working' = any (v_features) then
      v_pins.working := array(select w.content from _memoir.memory_store_working w
        where w.user_id = v.user_id and w.session_id = v.session_id and (w.expires_at is null or w.expires_at > v.at)
          and w.sensitivity <= p_scope.clearance order by w.recorded_at, w.key);
    end if;
  end if;
  if p_scope.as_of is not null then return v_pins; end if;
  if 'pins' = any (v_features) then
    v_pins.pinned := array(select h.message_id from _memoir.pinned_turns(v.user_id, p_scope.hidden_sessions[1]) p
      join _memoir.session_counters c on c.user_id = v.user_id and c.session_id = p.session_id
      join _memoir.conversation_history h on h.user_id = v.user_id and h.session_id = p.session_id
        and h.recorded_at between c.first_recorded_at and c.last_recorded_at
        and h.turn_index between p.from_turn and p.to_turn
      order by h.turn_index, h.message_id);
  end if;
  if (v.user_counters).memories > 0 and 'ceilings' = any (v_features) then
    select v_pins.pinned || coalesce(array_agg(o.memory_id order by o.memory_id) filter (where o.pinned), '{}'),
      coalesce(jsonb_object_agg(o.memory_id, o.ceiling) filter (where o.ceiling > 0 and not o.pinned), '{}')
    into v_pins.pinned, v_pins.ceilings
    from (select o.memory_id, min(o.fidelity_ceiling) as ceiling, coalesce(bool_or(o.pinned_until_turn > coalesce(
            (select c.turn_count from _memoir.session_counters c where c.user_id = v.user_id
              and c.session_id = o.session_id), 0)), false) as pinned
          from _memoir.session_objects o
          where o.user_id = v.user_id and o.session_id = any (p_scope.local_sessions)
            and (o.fidelity_ceiling > 0 or o.pinned_until_turn is not null)
          group by o.memory_id) o;
  end if;
  return v_pins;
end $$;

-- All candidates, best first, with the reason why one can't be shown. p_frequent: how many much-used memories join
-- anyway. p_pins: what is there whatever the query, in a compile, for which all else is below the floor where the query
-- is small talk; null: no compile.
create or replace function _memoir.candidates(p_user_id uuid, p_counters _memoir.user_counters, p_config jsonb,
  p_question _memoir.question, p_project text, p_scope _memoir.search_scope, p_limit integer, p_frequent integer,
  p_pins _memoir.pins, p_waiting integer[] default '{}')
returns _memoir.candidate[] language plpgsql stable as $$
declare
  v_now timestamptz := memoir.now(); v_pinned uuid[] := coalesce(p_pins.pinned, '{}');
  v_ranked _memoir.ranked_item[] := _memoir.rank(p_user_id, p_counters, p_config, p_question, p_project, p_scope,
    p_limit);
  v_memories uuid[] := array(select r.ref_id from unnest(v_ranked) r where r.kind = 'm');
  v_most integer; v_frequent uuid[] := '{}'; v_facts _memoir.memory_facts[]; v_fit _memoir.fit_floor;
  v_related uuid[] := '{}'; v_candidates _memoir.candidate[];
  v_floor real := p_config ->> 'relevance_floor'; v_share real := p_config ->> 'relevance_share';
begin
  if p_pins.pinned is null then
    v_share := 0;
  elsif _memoir.is_small_talk(p_config, p_question.facts)
    -- It is small talk as well: few words, no question, and nothing close in the store.
    or (p_config ->> 'small_talk_words')::integer >= greatest(1, cardinality(p_question.terms))
      and length(p_question.query) <= 200 and not _memoir.is_question(p_question.query)
      and (select max(r.vector) < (p_config ->> 'small_talk_cosine')::real and max(r.telling) < 0.5
           from unnest(v_ranked) r) then
    v_floor := 10;
  elsif p_question.goes_on is not true then
    v_fit := _memoir.fit_floor(p_config, p_counters.items, cardinality(p_question.terms), p_project);
  end if;
  if p_counters.memories > 0 then
    select max(s.access_count),
      (array_agg(s.memory_id order by s.access_count desc, s.memory_id)
        filter (where s.memory_id <> all (v_memories)))[1 : p_frequent]
    into v_most, v_frequent from _memoir.memory_stats s where s.user_id = p_user_id and s.access_count > 0;
  end if;
  v_ranked := _memoir.with_joining(p_user_id, v_ranked, v_frequent, v_pinned, p_waiting, p_scope);
  v_memories := v_memories || v_frequent || v_pinned;
  if p_pins.pinned is not null and 'changes' = any (p_counters.features) then
    v_ranked := _memoir.with_changing(p_user_id, v_ranked, p_scope);
  end if;
  if p_counters.related and v_memories <> '{}' then
    select r.ranked, r.related into v_ranked, v_related
    from _memoir.with_related(p_user_id, v_ranked, (p_config ->> 'related_hops')::integer, p_scope) r;
    v_memories := v_memories || v_related;
  end if;
  if v_memories <> '{}' then
    v_facts := _memoir.facts_of(p_user_id, v_memories, v_most, p_config, p_scope, v_now);
  end if;
  v_candidates := _memoir.value_candidates(v_ranked, v_facts, v_frequent, v_pinned, v_related, coalesce(p_pins.ceilings,
    '{}'), p_config, p_scope, v_now, v_fit, v_floor, v_share, case when (p_question.facts ->> 'own')::boolean
      then (p_config ->> 'own_question_turns')::integer else 0 end);
  if v_fit.turns is null or 'changes' <> all (p_counters.features) then return v_candidates; end if;
  return _memoir.with_changes(p_user_id, v_candidates, p_scope.as_of);
end $$;

-- What a later turn changed and what changes another pass the floor where nothing fits twice as well; and what changes
-- a line that is shown comes along with it.
create or replace function _memoir.with_changes(p_user_id uuid, p_candidates _memoir.candidate[], p_as_of timestamptz)
returns _memoir.candidate[] language plpgsql stable as $$
declare
  v_least constant real := 0.2; v_best real; v_pair record; v_no integer;
begin
  if not exists (select from _memoir.recall_exclusions x where x.user_id = p_user_id and x.changed
    and x.lifted_at is null) then
    return p_candidates;
  end if;
  v_best := (select max(c.score) from unnest(p_candidates) c where c.reason is null
    or c.reason = 'below the relevance floor');
  for v_pair in
    with c as materialized (select c.ordinality::integer as n, c.session_id, c.turn_index
      from unnest(p_candidates) with ordinality c where c.kind = 't')
    select o.n as old, n.n as new, x.is_doubt
    from (select distinct x.session_id, x.turn_index, x.by_session, x.by_turn, x.is_doubt
      from _memoir.recall_exclusions x
      where x.user_id = p_user_id and x.changed and x.lifted_at is null
        and (p_as_of is null or x.recorded_at <= p_as_of)) x
    left join c o on o.session_id = x.session_id and o.turn_index = x.turn_index
    left join c n on n.session_id = x.by_session and n.turn_index = x.by_turn
    where o.n is not null or n.n is not null
    -- What changed a change comes after it.
    order by p_candidates[o.n].said_at nulls last, o.n, n.n
  loop
    foreach v_no in array array[v_pair.old, v_pair.new] loop
      -- What is only in doubt brings what was said since, where it is shown itself.
      continue when v_pair.is_doubt and (v_no is distinct from v_pair.new or v_pair.old is null
        or p_candidates[v_pair.old].reason is not null);
      continue when p_candidates[v_no].reason is distinct from 'below the relevance floor'
        or p_candidates[v_no].score < greatest(v_least, 0.5 * v_best)
        and not (v_no is not distinct from v_pair.new and p_candidates[v_pair.old].reason is null
          and v_pair.old is not null);
      p_candidates[v_no].reason := null;
      p_candidates[v_no].worth := greatest(_memoir.worth(p_candidates[v_no].score),
        case when v_no = v_pair.new then p_candidates[v_pair.old].worth end);
    end loop;
  end loop;
  return p_candidates;
end $$;

-- The turns that change what the best candidates say, and what changes those, as far as they are not among what
-- was found.
create or replace function _memoir.with_changing(p_user_id uuid, p_ranked _memoir.ranked_item[],
  p_scope _memoir.search_scope)
returns _memoir.ranked_item[] language plpgsql stable as $$
declare
  v_best constant integer := 40; v_most constant integer := 12;
begin
  return coalesce(p_ranked, '{}') || array(
    with recursive changed as materialized (
      select distinct x.session_id, x.turn_index, x.by_session, x.by_turn from _memoir.recall_exclusions x
      where x.user_id = p_user_id and x.changed and x.lifted_at is null and x.by_session is not null
        and (p_scope.as_of is null or x.recorded_at <= p_scope.as_of)),
    changing as (
      select x.by_session, x.by_turn, 1 as depth from changed x
      join (select r.session_id, r.turn_index from unnest(p_ranked) r where r.kind = 't'
        order by r.score desc, r.item_no limit v_best) r on r.session_id = x.session_id and r.turn_index = x.turn_index
      union
      -- A memory of what is likely over.
      select d.by_session, d.by_turn, 1 from _memoir.memory_doubts(p_user_id, array(
        select r.ref_id from unnest(p_ranked) r where r.kind = 'm' order by r.score desc, r.item_no limit v_best)) d
      where p_scope.as_of is null or d.recorded_at <= p_scope.as_of
      union
      select x.by_session, x.by_turn, c.depth + 1 from changing c
      join changed x on x.session_id = c.by_session and x.turn_index = c.by_turn where c.depth < 4)
    select _memoir.unranked(i, 0, 0)
    from (select distinct c.by_session, c.by_turn from changing c) c
    join _memoir.search_items i on i.user_id = p_user_id and i.session_id = c.by_session and i.turn_index = c.by_turn
    where i.kind = 't' and not i.dead and not i.echo and i.sensitivity <= p_scope.clearance
      and (i.turn_index < p_scope.hidden_from or i.session_id <> all (p_scope.hidden_sessions))
      and (p_scope.kinds is null or i.kind = any (p_scope.kinds))
      and (p_scope.projects is null or i.project = any (p_scope.projects))
      and not exists (select from unnest(p_ranked) r where r.item_no = i.item_no)
    order by i.item_no desc limit v_most);
end $$;

-- An item as a ranked one that the query did not find: with a score, and how telling its words count as.
create or replace function _memoir.unranked(p_item _memoir.search_items, p_score real, p_telling real)
returns _memoir.ranked_item language sql immutable as $$
  select (p_item.item_no, p_item.kind, p_item.ref_id, p_item.session_id, p_item.turn_index, p_item.chunk,
    p_item.span_start, p_item.span_length, p_item.token_count, p_item.role, p_item.created_at, p_item.recorded_at,
    p_item.project, p_score, 0, null, 0, 0, array_fill(0, array[cardinality(_memoir.ledger_signals())]), p_telling)
    ::_memoir.ranked_item
$$;

-- Adds to ranked items the candidates that the query did not find: much-used memories, pinned items, and turns that
-- wait for their vectors. Of these the user's words come before answers.
create or replace function _memoir.with_joining(p_user_id uuid, p_ranked _memoir.ranked_item[], p_frequent uuid[],
  p_pinned uuid[], p_waiting integer[], p_scope _memoir.search_scope)
returns _memoir.ranked_item[] language plpgsql stable as $$
declare
  v_ids uuid[] := p_frequent || p_pinned; v_ranked _memoir.ranked_item[] := p_ranked;
  v_user_score constant real := 0.4; v_score constant real := 0.25;
begin
  if v_ids <> '{}' then
    v_ranked := coalesce(v_ranked, '{}') || array(
      select _memoir.unranked(i, 0, 0) from _memoir.search_items i
      where i.user_id = p_user_id and i.ref_id = any (v_ids) and not i.dead and i.sensitivity <= p_scope.clearance
        and (i.ref_id = any (p_pinned) and (i.session_id is null or i.session_id = any (p_scope.local_sessions))
            and not exists (select from unnest(p_ranked) r where r.kind = 'm' and r.ref_id = i.ref_id
              or r.kind = 't' and r.item_no = i.item_no)
          or i.ref_id = any (p_frequent) and i.chunk = 0 and not i.echo and i.session_id is null)
        and (p_scope.kinds is null or i.kind = any (p_scope.kinds))
        and (p_scope.projects is null or i.project = any (p_scope.projects)) order by i.item_no);
  end if;
  if p_waiting = '{}' then return v_ranked; end if;
  for i in 1 .. coalesce(cardinality(v_ranked), 0) loop
    if v_ranked[i].item_no = any (p_waiting) then
      v_ranked[i].score := greatest(v_ranked[i].score, case when v_ranked[i].role = 'user' then v_user_score
        else v_score end);
      v_ranked[i].telling := 1;  -- whether it fits, nobody can say yet
    end if;
  end loop;
  return coalesce(v_ranked, '{}') || array(
    select _memoir.unranked(i, case when i.role = 'user' then v_user_score else v_score end, 1)
    from _memoir.search_items i where i.user_id = p_user_id and i.item_no = any (p_waiting)
      and not exists (select from unnest(v_ranked) r where r.item_no = i.item_no) order by i.item_no);
end $$;

-- The newest turns that wait for their vectors while the user's others have them: a new session knows the last one.
create or replace function _memoir.waiting_turns(p_user_id uuid, p_counters _memoir.user_counters,
  p_question _memoir.question, p_scope _memoir.search_scope)
returns integer[] language plpgsql stable as $$
declare
  v_through integer; v_most constant integer := 12;
begin
  if p_question.vector is null or p_scope.as_of is not null then return '{}'; end if;
  select c.through_item into v_through from _memoir.embedding_cursors c where c.user_id = p_user_id
    and c.model_id = p_question.model_id;
  if coalesce(v_through, 0) <= 0 or v_through >= p_counters.next_item - 1 then return '{}'; end if;
  return array(select i.item_no from _memoir.search_items i
    where i.user_id = p_user_id and i.item_no > v_through and i.kind = 't' and not i.dead and i.role
      in ('user', 'assistant')
      and (i.turn_index < p_scope.hidden_from or i.session_id <> all (p_scope.hidden_sessions))
      and i.sensitivity <= p_scope.clearance and (p_scope.projects is null or i.project = any (p_scope.projects))
    order by i.item_no desc limit v_most);
end $$;

-- Returns what the best memories found depend on, refer to, come from, elaborate or are related to, by edges in either
-- direction: a step away it is as relevant as six tenths of what led to it, times the weight of the edge.
create or replace function _memoir.with_related(p_user_id uuid, p_ranked _memoir.ranked_item[], p_hops integer,
  p_scope _memoir.search_scope, out ranked _memoir.ranked_item[], out related uuid[]) language plpgsql stable as $$
declare
  v_step constant float8 := 0.6; v_best constant integer := 8; v_most constant integer := 16;
  v_ids uuid[]; v_scores float8[]; v_related_scores float8[] := '{}'; n integer;
begin
  ranked := p_ranked;
  related := '{}';
  select array_agg(b.ref_id), array_agg(b.score) into v_ids, v_scores
  from (select r.ref_id, max(r.score) as score from unnest(p_ranked) r where r.kind = 'm' and r.score > 0
    group by r.ref_id order by 2 desc, 1 limit v_best) b;
  for v_hop in 1 .. p_hops loop
    select array_agg(x.other), array_agg(x.score) into v_ids, v_scores
    from (select e.other, max(b.score * v_step * e.weight) as score
      from unnest(v_ids, v_scores) b(id, score) cross join lateral (
        select r.target_id as other, r.weight, r.recorded_at from _memoir.memory_relationships r
        where r.user_id = p_user_id and r.source_id = b.id and r.relation = any (_memoir.followed_relations())
        union all
        select r.source_id, r.weight, r.recorded_at from _memoir.memory_relationships r
        where r.user_id = p_user_id and r.target_id = b.id and r.relation = any (_memoir.followed_relations())) e
      where e.recorded_at <= coalesce(p_scope.as_of, 'infinity')
      group by e.other order by 2 desc, 1 limit v_most) x;
    exit when v_ids is null;
    related := related || v_ids;
    v_related_scores := v_related_scores || v_scores;
  end loop;
  if related = '{}' then return; end if;
  -- What was found gains where its neighbours say more for it than the query does.
  for i in 1 .. cardinality(ranked) loop
    n := case when ranked[i].kind = 'm' then array_position(related, ranked[i].ref_id) end;
    if n is not null and ranked[i].score >= v_related_scores[n] then
      related[n] := null;
    elsif n is not null then
      ranked[i].score := v_related_scores[n];
      ranked[i].telling := 1;
    end if;
  end loop;
  ranked := ranked || array(
    select _memoir.unranked(i, r.score, 1)
    from (select u.id, max(u.score)::real as score from unnest(related, v_related_scores) u(id, score)
      where u.id is not null group by u.id) r
    join _memoir.search_items i on i.user_id = p_user_id and i.ref_id = r.id and i.kind = 'm' and i.chunk = 0
    where not i.dead and not i.echo and i.sensitivity <= p_scope.clearance
      and (i.session_id is null or i.session_id = any (p_scope.local_sessions))
      and (p_scope.kinds is null or i.kind = any (p_scope.kinds))
      and (p_scope.projects is null or i.project = any (p_scope.projects))
      and not exists (select from unnest(p_ranked) f where f.kind = 'm' and f.ref_id = r.id)
    order by i.item_no);
  related := array_remove(related, null);
end $$;

-- Leaves out what the list says already: memories of the profile and turns that say little else, and what stands in
-- p_said in the same words. Standing statements that the profile has no room for (p_standing) lead the recall.
create or replace function _memoir.without_known(p_user_id uuid, p_candidates _memoir.candidate[], p_profile uuid[],
  p_standing uuid[], p_said text, p_clearance _memoir.sensitivity)
returns _memoir.candidate[] language plpgsql stable as $$
declare
  v_most constant integer := 100; v_profile integer[] := '{}'; v_list integer[] := '{}';
  v_said text := lower(regexp_replace(p_said, '\s+', ' ', 'g'));
begin
  if p_profile <> '{}' then
    v_profile := array(
      with sources as materialized (
        select s.source_id, s.span_start, s.span_start + s.span_length as span_end from _memoir.memory_sources s
        where s.user_id = p_user_id and s.item_kind = 'memory' and s.item_id = any (p_profile)
          and s.source_kind = 'turn')
      select c.item_no from unnest(p_candidates) c
      where c.reason is null and not coalesce(c.memory_parts ? 'pinned', false)
        and (c.kind = 'm' and c.ref_id = any (p_profile) or c.kind = 't' and 0.6 * c.span_length <= (
          select sum(least(s.span_end, c.span_start + c.span_length) - greatest(s.span_start, c.span_start))
          from sources s where s.source_id = c.ref_id and s.span_start < c.span_start + c.span_length
            and s.span_end > c.span_start)));
  end if;
  if v_said is not null then
    v_list := array(select t.item_no from _memoir.texts_at(p_user_id, array(
        select (c.item_no, c.kind, c.ref_id, c.session_id, c.turn_index, c.recorded_at, c.span_start,
          c.span_length)::_memoir.item_locator
        from unnest(p_candidates) with ordinality c where c.reason is null and c.item_no <> all (v_profile)
        order by c.ordinality limit v_most), p_clearance) t
      where strpos(v_said, btrim(lower(regexp_replace(t.body, '\s+', ' ', 'g')), ' .!?…')) > 0);
  end if;
  if v_profile || v_list = '{}' and coalesce(p_standing, '{}') = '{}' then return p_candidates; end if;
  for i in 1 .. coalesce(cardinality(p_candidates), 0) loop
    if p_candidates[i].item_no = any (v_profile) then p_candidates[i].reason := 'stands in the profile'; end if;
    if p_candidates[i].item_no = any (v_list) then p_candidates[i].reason := 'stands in the list'; end if;
    if p_candidates[i].ref_id = any (p_standing) then
      p_candidates[i].memory_parts := p_candidates[i].memory_parts - 'pinned' || '{"standing": true}';
    end if;
  end loop;
  return p_candidates;
end $$;

-- Keeps of turns that say the same the user's own statement, not what the assistant made of it: it takes the
-- better place, and the echo falls behind. Told by their vectors: a statement said before, as close as a paraphrase is.
create or replace function _memoir.own_words_first(p_user_id uuid, p_candidates _memoir.candidate[],
  p_model_id smallint)
returns _memoir.candidate[] language plpgsql stable as $$
declare
  v_pair record; v_alike constant float8 := 0.6; v_echo integer; v_own integer; v_items integer[];
begin
  if cardinality(p_candidates) = 0 then return p_candidates; end if;
  -- A short question to the assistant says nothing by itself, however much it is like the query.
  -- Its worth is its answer's.
  for v_pair in
    select c.ordinality as asks, (select a.ordinality from unnest(p_candidates) with ordinality a where a.kind = 't'
      and a.session_id = c.session_id and a.turn_index = c.turn_index + 1 and a.role = 'assistant' and a.chunk = 0)
      as answers
    from unnest(p_candidates[1:60]) with ordinality c
    join _memoir.search_items i on i.user_id = p_user_id and i.item_no = c.item_no
    where c.kind = 't' and c.role = 'user' and i.is_question and i.speaker is null and i.word_count <= 6
      and not coalesce(c.memory_parts ? 'pinned', false)
  loop
    v_own := v_pair.asks; v_echo := v_pair.answers;
    if p_candidates[v_echo].reason is null and p_candidates[v_echo].worth < p_candidates[v_own].worth then
      p_candidates[v_echo].worth := p_candidates[v_own].worth;
    end if;
    p_candidates[v_own].worth := p_candidates[v_own].worth * 0.3;
  end loop;
  if p_model_id is null then return p_candidates; end if;
  v_items := array(select c.item_no from unnest(p_candidates[1:60]) c where c.kind = 't' and c.role in ('user',
    'assistant'));
  for v_pair in
    with said as materialized (
      select c.ordinality::integer as n, i.role, i.created_at, i.is_question, e.embedding
      from unnest(p_candidates[1:60]) with ordinality c
      join _memoir.search_items i on i.user_id = p_user_id and i.item_no = c.item_no and i.item_no = any (v_items)
        and i.speaker is null
      join _memoir.embeddings e on e.user_id = p_user_id and e.item_no = c.item_no and e.model_id = p_model_id)
    select a.n as echo, u.n as own
    from (select * from said where role = 'assistant' order by n limit 12) a
    join said u on u.role = 'user' and not u.is_question and u.created_at < a.created_at
    where 1 - (a.embedding <=> u.embedding) >= v_alike
    order by a.n, u.n
  loop
    v_echo := v_pair.echo; v_own := v_pair.own;
    if p_candidates[v_echo].reason is null and (p_candidates[v_own].reason is null
      or p_candidates[v_own].reason = 'below the relevance floor') then
      p_candidates[v_own].reason := null;
      p_candidates[v_own].worth := greatest(p_candidates[v_own].worth, p_candidates[v_echo].worth);
      p_candidates[v_own].score := greatest(p_candidates[v_own].score, p_candidates[v_echo].score);
      p_candidates[v_echo].worth := p_candidates[v_echo].worth * 0.2;
    end if;
  end loop;
  return p_candidates;
end $$;

-- Memories carry more than a match: half-life and weight of their type, importance, use, and authority ([PG] 6.2,
-- [MS]). Tiers 3 and 4 do not fade; confidence does, until it is reinforced. p_most: how often the most used one was.
create or replace function _memoir.facts_of(p_user_id uuid, p_memories uuid[], p_most integer, p_config jsonb,
  p_scope _memoir.search_scope, p_now timestamptz)
returns _memoir.memory_facts[] language plpgsql stable as $$
declare
  v_type_weights jsonb := p_config -> 'type_weights'; v_half_lives jsonb := p_config -> 'half_life_days';
begin
  return array(
    select (m.memory_id, m.type, m.sensitivity,
      case when p_scope.as_of is null then m.state = 'active' and (m.expires_at is null or m.expires_at > p_now)
        -- A forgotten or erased one never was active.
        else m.state not in ('forgotten', 'erased') and (m.expires_at <= p_scope.as_of) is not true and coalesce(
          (select t.state = 'active' from _memoir.memory_states t where t.user_id = p_user_id
            and t.memory_id = m.memory_id and t.recorded_at <= p_scope.as_of
           order by t.recorded_at desc, t.seq desc limit 1), false) end,
      m.valid_from, m.valid_to,
      coalesce((v_type_weights ->> m.type)::float8, 1)
        * case m.importance when 'critical' then 1.3 when 'important' then 1.15 when 'minor' then 0.85 else 1 end,
      case when m.tier >= 3 then 1 else power(2, - (date_part('epoch', p_now - m.recorded_at) / 86400)
        / h.half_life) end,
      m.trust * m.confidence * power(2, - (date_part('epoch', p_now - coalesce(s.reinforced_at, m.recorded_at)) / 86400)
        / h.half_life),
      case when p_most > 0 then ln(1 + coalesce(s.access_count, 0)::float8) / ln(1 + p_most::float8)
      else 0 end)::_memoir.memory_facts
    from _memoir.memory_store m
    cross join lateral (select coalesce((v_half_lives ->> m.type)::float8, 365) as half_life) h
    left join _memoir.memory_stats s on s.user_id = p_user_id and s.memory_id = m.memory_id
    where m.user_id = p_user_id and m.memory_id = any (p_memories));
end $$;

-- How many candidates a recall of p_budget tokens takes of p_candidates: all from 2,000 on, sixty at least. More of
-- long turns, because their sentences are shown too: up to twice as many where texts have more than eighteen words in
-- the mean. The share of memories among the items lowers that.
create or replace function _memoir.candidate_limit(p_candidates integer, p_budget integer,
  p_counters _memoir.user_counters)
returns integer language plpgsql immutable as $$
declare
  v_items float8 := greatest(1, p_counters.items);
  v_limit integer := least(p_candidates, 60 + greatest(0, p_candidates - 60) * least(2000, p_budget) / 2000);
begin
  return coalesce(v_limit * (1 + (least(2, greatest(1, p_counters.total_words / v_items / 18)) - 1) * greatest(0,
    1 - p_counters.memories / v_items)), v_limit)::integer;
end $$;

-- Ranked items as candidates: what memories add, the floor, what each is worth. The rest of a turn of which another
-- part is worth more gains from it, the less the longer the turn: half of a question or a list is seldom enough.
create or replace function _memoir.value_candidates(p_ranked _memoir.ranked_item[], p_facts _memoir.memory_facts[],
  p_frequent uuid[], p_pinned uuid[], p_related uuid[], p_ceilings jsonb, p_config jsonb, p_scope _memoir.search_scope,
  p_now timestamptz, p_fit _memoir.fit_floor, p_floor real, p_share real, p_own integer)
returns _memoir.candidate[] language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_mergejoin = off as $$
declare
  v_repeats constant real := 0.8;  -- what is closer to the query repeats it, and is no measure for the others
  v_valid timestamptz := coalesce(p_scope.valid_at, p_scope.as_of, p_now);
  w_access real := (p_config ->> 'weight_access')::real; w_authority real := (p_config ->> 'weight_authority')::real;
  w_rest float8 := coalesce((p_config -> 'fidelity_worth' ->> 'rest')::float8, 0);
  f_turns float8[] := p_fit.turns; f_memories float8[] := p_fit.memories; f_project text := p_fit.project;
  f_elsewhere float8 := p_fit.elsewhere;
  -- "Which laptop do I have?", "I have a ThinkPad": of those few a word or the topic alone is told in no number.
  v_own integer[] := array(select r.item_no from unnest(p_ranked) r where p_own > 0 and r.kind = 't'
    and r.role = 'user' and r.tokens <= 100 and r.score >= 0.09 order by r.score desc, r.item_no
    limit p_own);
  v_parted uuid[] := array(select r.ref_id from unnest(p_ranked) r where r.kind = 't' and r.chunk > 0);
begin
  return array(
  with scored as (
    select r.*, m.type, r.ref_id = any (p_pinned) as is_pinned, coalesce(r.ref_id = any (p_frequent), false) as
      is_frequent, r.kind = 'm' and r.ref_id = any (p_related) as is_related,
      case when r.ref_id = any (p_pinned) then 1
           when r.kind = 'm' then r.score * m.weight * (0.5 + 0.5 * greatest(0, least(1, m.freshness)))
             + w_access * m.access + w_authority * m.authority
           else r.score end::real as total,
      case when r.kind = 'm' then jsonb_build_object('match', r.score, 'weight', m.weight, 'freshness', m.freshness,
          'authority', m.authority, 'access', m.access)
        || case when r.ref_id = any (p_pinned) then '{"pinned": true}' else '{}'::jsonb end
        || case when r.ref_id = any (p_related) then '{"related": true}' else '{}'::jsonb end
        || case when p_ceilings ? r.ref_id::text then jsonb_build_object('ceiling', p_ceilings -> r.ref_id::text)
          else '{}'::jsonb end
        when r.ref_id = any (p_pinned) then '{"pinned": true}' end as parts,
      case when r.kind <> 'm' then null
           when not m.active then 'not active'
           when p_ceilings ->> r.ref_id::text = '4' then 'evicted from the session'
           when m.valid_from > v_valid or m.valid_to <= v_valid then 'not valid at that time' end as reason
    from unnest(p_ranked) r left join unnest(p_facts) m on m.memory_id = r.ref_id and r.kind = 'm'
    where r.kind <> 'm' or m.sensitivity <= p_scope.clearance
  ), measure as (
    -- The second best of what neither is pinned nor repeats the query: beside a question that was asked before, no
    -- answer scores much. Without vectors that can't be told.
    select coalesce(a.totals[2], a.totals[1]) as total
    from (select array_agg(total order by total desc) filter (where not is_pinned and reason is null
      and coalesce(vector, 0) < v_repeats) as totals
          from scored having max(vector) is not null) a
  ), floored as (
    -- What is much used is there whatever the query.
    select j.*, (round(j.total * 100000) / 100000)::real as final, coalesce(j.reason, case when not j.is_pinned
        and j.item_no <> all (v_own) and (j.total < greatest(p_floor, case when not j.is_frequent and not j.is_related
          then p_share * m.total end)
          -- Without vectors it can't be told what fits.
          or m.total is not null and not j.is_frequent and not j.is_related
            and not _memoir.fits(case when j.kind = 'm' then f_memories else f_turns end, j.score, j.vector, j.telling,
              case when j.project not in ('global', f_project) then f_elsewhere else 0 end))
          then 'below the relevance floor' end) as why
    from scored j left join measure m on true
  ), valued as not materialized (
    select f.*, case when f.why is null then _memoir.worth(f.final) else 0 end as own from floored f
  ), parted as (
    select v.ref_id, max(v.own) as best, max(v.span_start + v.span_length) as length
    from valued v where v.kind = 't' and v.ref_id = any (v_parted) group by v.ref_id
  )
  select (v.item_no, v.kind, v.ref_id, v.session_id, v.turn_index, v.chunk, v.span_start, v.span_length, v.tokens,
    v.role, v.said_at, v.recorded_at, v.project, v.final, v.words, v.vector, v.around, v.session_score, v.facts, v.type,
    v.parts, v.is_frequent, greatest(v.own, w_rest * p.best * power(least(1, 1000.0::float8 / p.length), 2)), v.why,
    null, null, null)::_memoir.candidate
  from valued v left join parted p on p.ref_id = v.ref_id and v.kind = 't'
  order by (v.total * 100000)::integer desc, v.item_no);
end $$;

-- Returns what showing a line is worth: about the chance that it is evidence, whose odds are those of its score to the
-- fourth power. (Scores are chances spread over 0 to 1, SOFT in research/ranker/train.py. With a smaller power many
-- short lines of little relevance push the evidence out.) context_utilisation has the same formula.
create or replace function _memoir.worth(p_score real)
returns float8 language sql immutable as $$
  -- Those of memories may pass 1.
  select 1 / (1 + power(1 / greatest(0.0001, least(0.9999, p_score::float8)) - 1, 4))
$$;

-- Where the candidates are whose running total, what is worth most per token first, stays within one and a half
-- budgets: counts are on the high side. doubtful: the items that may not fit as they are, those beyond half of it.
-- p_short: they are shown as short lines, so more are within reach.
create or replace function _memoir.within_reach(p_candidates _memoir.candidate[], p_budget integer, p_hidden uuid[],
  p_short boolean, out locators _memoir.item_locator[], out doubtful integer[])
language plpgsql stable as $$
begin
  select array_agg((r.item_no, r.kind, r.ref_id, r.session_id, r.turn_index, r.recorded_at, r.span_start,
    r.span_length)::_memoir.item_locator),
    array_agg(r.item_no) filter (where r.whole >= p_budget / 2) into locators, doubtful
  from (select c.item_no, c.kind, c.ref_id, c.session_id, c.turn_index, c.recorded_at, c.span_start, c.span_length,
          sum(n.cost) over best - n.cost as before, sum(c.tokens) over best - c.tokens as whole
        from unnest(p_candidates) c, lateral (select case when p_short then least(c.tokens, 30)
          else c.tokens end as cost) n
        -- what is too long may fit as an excerpt
        where c.reason is null and c.tokens <= p_budget::bigint * 3 and c.ref_id <> all (p_hidden)
        window best as (order by (c.memory_parts ? 'pinned') is true desc, c.worth / (n.cost + 8) desc, c.item_no
          rows unbounded preceding)) r
  where r.before <= p_budget::bigint * 3 / 2 + 200;
end $$;

-- Why a candidate is not shown that could be.
create or replace function _memoir.left_out(p_candidate _memoir.candidate, p_budget integer, p_hidden uuid[])
returns text language sql immutable as $$
  select case
    when p_candidate.reason is not null then p_candidate.reason
    when p_candidate.kind = 't' and p_candidate.ref_id = any (p_hidden) then 'shown in the window'
    when p_candidate.tokens > p_budget then 'longer than the block'
    when p_candidate.memory_parts ? 'ceiling' then 'no room at the fidelity its session allows'
    else 'no room' end
$$;
