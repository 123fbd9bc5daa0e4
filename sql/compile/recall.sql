-- Recall tools: the same ranking as compile's, as rows.

create or replace function _memoir.kinds(p_kinds text[])
returns "char"[] language plpgsql immutable as $$
begin
  if p_kinds is null then return null; end if;
  if not p_kinds <@ array['memory', 'turn', 'summary'] then
    perform _memoir.fail('PM014', format('kinds may be memory, turn, summary, not %s',
      _memoir.shown(array_to_string(p_kinds, ', '))));
  end if;
  return array(select left(k, 1)::"char" from unnest(p_kinds) k);
end $$;

create or replace function memoir.recall(p_user text, p_query text, p_session text default null,
  p_limit integer default 10,
  p_types text[] default null, p_tags text[] default null, p_project text default null, p_kinds text[] default null,
  p_after timestamptz default null, p_before timestamptz default null, p_query_embedding real[] default null,
  p_as_of timestamptz default null, p_valid_at timestamptz default null)
returns table (rank integer, kind text, id uuid, content text, score real, words_score real, vector_score real,
  matched_by text[],
  session text, turn_index integer, role text, name text, said_at timestamptz, type text, tags text[], project text)
language plpgsql stable security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_user uuid := v_caller.user_id; v_config jsonb; v_scope _memoir.search_scope; v_session uuid;
  v_counters _memoir.user_counters; v_candidates _memoir.candidate[];
begin
  if _memoir.is_blank(p_query) then
    perform _memoir.fail('PM014', format('query must not be empty, it is %s', _memoir.shown(p_query)));
  end if;
  if p_limit is null or p_limit not between 1 and 1000 then
    perform _memoir.fail('PM014', format('limit must be from 1 to 1000, not %s', coalesce(p_limit::text, 'null')));
  end if;
  if p_types is not null and not p_types <@ _memoir.known_types() then
    perform _memoir.fail('PM014', format('unknown type in %s', _memoir.shown(array_to_string(p_types, ', '))),
      array_to_string(_memoir.known_types(), ', '));
  end if;
  if p_session is not null then v_session := (_memoir.session(v_caller, p_session)).session_id; end if;
  v_config := _memoir.config(v_user, null);
  v_scope.kinds := _memoir.kinds(p_kinds);
  v_scope.hidden_sessions := '{}';
  v_scope.hidden_from := 0;
  v_scope.local_sessions := array[coalesce(v_session, _memoir.no_session())];
  v_scope.projects := v_caller.projects;
  v_scope.clearance := v_caller.clearance;
  v_scope.as_of := p_as_of;
  v_scope.valid_at := p_valid_at;
  v_scope.said_after := p_after;
  v_scope.said_before := p_before;
  select * into v_counters from _memoir.user_counters where user_id = v_user;
  v_candidates := _memoir.candidates(v_user, v_counters, v_config, _memoir.question(v_user, v_counters, v_config,
    p_query, v_scope, p_query_embedding),
    nullif(p_project, 'global'), v_scope, greatest(p_limit * 4, 100), 0, null);
  return query
  with found as (
    select c.*, c.ordinality as o from unnest(v_candidates) with ordinality c
    where c.reason is null and (p_session is null or c.session_id = v_session)
      and (p_project is null or c.project = p_project or c.project = 'global')
      and (p_types is null or c.type = any (p_types))
  ), memories as (
    select m.memory_id, m.tags from _memoir.memory_store m
    where m.user_id = v_user and m.memory_id = any (array(select f.ref_id from found f where f.kind = 'm'))
  ), kept as (
    select f.*, m.tags as memory_tags from found f left join memories m on m.memory_id = f.ref_id
    where p_tags is null or m.tags && p_tags order by f.o limit p_limit
  )
  select (row_number() over (order by k.o))::integer,
    case k.kind when 't' then 'turn' when 'm' then 'memory' else 'summary' end, k.ref_id, _memoir.marked(v_user, k.kind, k.session_id, k.turn_index,
      k.span_start, k.span_length, t.body, p_as_of), k.score, k.words,
      k.vector,
    array_remove(array[case when k.words > 0 then 'words' end, case when k.vector is not null then 'vector' end,
      case when k.words = 0 and k.vector is null then 'neighbour' end], null),
    s.external_id, k.turn_index, k.role::text, t.name, k.said_at, k.type, k.memory_tags, k.project
  from kept k
  join _memoir.item_texts(v_user, array(select k2.item_no from kept k2), v_caller.clearance) t on t.item_no = k.item_no
  left join _memoir.sessions s on s.user_id = v_user and s.session_id = k.session_id
  order by k.o;
end $$;
comment on function memoir.recall(text, text, text, integer, text[], text[], text, text[], timestamptz, timestamptz,
  real[], timestamptz, timestamptz) is
  'The best matches for a query among memories, turns and summaries of a user, ranked as compile ranks them. Filters:
session, types
and tags (memories), project (with global), kinds (memory, turn, summary), said between p_after and p_before; p_as_of
and
p_valid_at as in compile_context. matched_by: words, vector, neighbour (what stands beside a match). Writes nothing.
Raises PM001, PM003, PM014, PM030.';

create or replace function memoir.match_memories(p_user text, p_embedding real[], p_threshold real default 0.7,
  p_limit integer default 10,
  p_project text default null)
returns table (id uuid, content text, similarity real, type text, project text, recorded_at timestamptz)
language plpgsql stable security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_user uuid := v_caller.user_id; v_model _memoir.embedding_models := _memoir.embedding_model(null);
  v_vector halfvec := _memoir.to_vector(p_embedding, v_model);
begin
  if p_threshold is null or p_threshold not between -1 and 1 or p_limit is null or p_limit not between 1 and 1000 then
    perform _memoir.fail('PM014', format('threshold must be from -1 to 1 and limit from 1 to 1000, not %s and %s',
      p_threshold, p_limit));
  end if;
  return query
  select m.memory_id, m.content, s.similarity, m.type, m.project, m.recorded_at
  from (
    select i.ref_id, max(1 - (e.embedding <=> v_vector))::real as similarity
    from _memoir.embeddings e join _memoir.search_items i on i.user_id = v_user and i.item_no = e.item_no
    where e.user_id = v_user and e.model_id = v_model.model_id and i.kind = 'm' and not i.dead
    group by i.ref_id) s
  join _memoir.memory_store m on m.user_id = v_user and m.memory_id = s.ref_id
  where s.similarity >= p_threshold and m.state = 'active' and m.local_to is null
    and m.sensitivity <= v_caller.clearance
    and (p_project is null or m.project in (p_project, 'global'))
    and (v_caller.projects is null or m.project = any (v_caller.projects))
  order by s.similarity desc, m.memory_id limit p_limit;
end $$;
comment on function memoir.match_memories(text, real[], real, integer, text) is
  'Active global memories whose cosine similarity to a vector reaches the threshold, closest first. Raises PM001, PM014,
PM030.';
