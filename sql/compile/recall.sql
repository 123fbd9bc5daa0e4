-- Returns whether metadata has what a filter asks: {"source": "jira", "year": {"gt": 2024}}. check_where names the
-- operators. Values of two kinds are neither more nor less than each other.
create or replace function _memoir.meets(p_metadata jsonb, p_where jsonb)
returns boolean language sql immutable as $$
  select not exists (select from jsonb_each(p_where) w cross join lateral (select p_metadata -> w.key as value) m
    cross join lateral jsonb_each(case jsonb_typeof(w.value) when 'object' then w.value
      else jsonb_build_object('eq', w.value) end) o
    where not coalesce(case o.key when 'eq' then m.value = o.value
      when 'in' then m.value = any (array(select jsonb_array_elements(o.value)))
      when 'gt' then jsonb_typeof(m.value) = jsonb_typeof(o.value) and m.value > o.value
      when 'lt' then jsonb_typeof(m.value) = jsonb_typeof(o.value) and m.value < o.value
      else (m.value is not null) = (o.value = 'true') end, false))
$$;

create or replace function _memoir.check_where(p_where jsonb)
returns jsonb language plpgsql stable as $$
declare
  v record; v_where jsonb := _memoir.check_object('where', p_where);
begin
  for v in select w.key, o.key as operator, o.value from jsonb_each(v_where) w
    cross join lateral jsonb_each(case jsonb_typeof(w.value) when 'object' then w.value else '{}' end) o loop
    if coalesce(case v.operator when 'eq' then 'any' when 'gt' then 'any' when 'lt' then 'any' when 'in' then 'array'
      when 'exists' then 'boolean' end not in ('any', jsonb_typeof(v.value)), true) then
      perform _memoir.fail('PM014', format('where can''t ask whether %s is %s %s', _memoir.shown(v.key),
        _memoir.shown(v.operator), _memoir.shown(v.value::text)),
        'operators: eq, in (an array), gt, lt, exists (true or false)');
    end if;
  end loop;
  return v_where;
end $$;

-- Memories that the filters name, whatever the query: a tag is looked up, not ranked. None without a filter, and none
-- of other times, whose states are for the ranking to know. Objects of the session by type, by path or name as a tag.
create or replace function _memoir.filtered_memories(p_caller _memoir.caller, p_scope _memoir.search_scope,
  p_types text[], p_tags text[], p_category text, p_project text, p_where jsonb, p_limit integer)
returns setof _memoir.memory_store language plpgsql stable as $$
declare
  v_now timestamptz := memoir.now();
begin
  if coalesce(p_types, p_tags) is null and coalesce(p_category, nullif(p_project, 'global'), p_where::text) is null
    or p_scope.as_of is not null or p_scope.kinds is not null and 'm' <> all (p_scope.kinds) then
    return;
  end if;
  return query
  select m.* from _memoir.memory_store m
  where m.user_id = p_caller.user_id and m.state = 'active'
    and (not m.is_object or coalesce(p_types, p_tags) is not null)
    and (m.expires_at is null or m.expires_at > v_now)
    and (m.local_to is null or m.local_to = any (p_scope.local_sessions))
    and _memoir.may_see(p_caller, m)
    and (p_types is null or m.type = any (p_types)) and (p_tags is null or m.tags && p_tags
      or m.is_object and exists (select from unnest(p_tags) t where t = _memoir.object_name(m.memory_id)
        or _memoir.same_path(m.source_key, t)))
    and (p_category is null or m.category = p_category) and (p_project is null or m.project = p_project)
    and (p_where is null or _memoir.meets(m.metadata, p_where))
    and (p_scope.said_after is null or _memoir.said(m) >= p_scope.said_after)
    and (p_scope.said_before is null or _memoir.said(m) < p_scope.said_before)
    and coalesce(m.valid_from <= coalesce(p_scope.valid_at, v_now), true)
    and coalesce(m.valid_to > coalesce(p_scope.valid_at, v_now), true)
  order by m.recorded_at desc, m.memory_id limit p_limit;
end $$;

-- Turns with one of these tags, likewise: each by its first item.
create or replace function _memoir.filtered_turns(p_caller _memoir.caller, p_scope _memoir.search_scope,
  p_tags text[], p_project text, p_limit integer)
returns setof _memoir.search_items language plpgsql stable as $$
begin
  if p_tags is null or p_scope.as_of is not null or p_scope.kinds is not null and 't' <> all (p_scope.kinds) then
    return;
  end if;
  return query
  select i.* from _memoir.search_items i
  where i.user_id = p_caller.user_id and i.tags && p_tags and i.kind = 't' and i.chunk = 0 and not i.dead
    and i.sensitivity <= p_caller.clearance and (p_caller.projects is null or i.project = any (p_caller.projects))
    and (p_project is null or i.project = p_project)
    and (p_scope.said_after is null or i.created_at >= p_scope.said_after)
    and (p_scope.said_before is null or i.created_at < p_scope.said_before)
  order by i.created_at desc, i.item_no desc limit p_limit;
end $$;

create or replace function memoir.recall_arrays(p_user text, p_name text, p_given jsonb default '[]')
returns setof jsonb language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_unseen integer[] := '{}';
  v_clearance _memoir.sensitivity := least(v_caller.clearance, 'private'::_memoir.sensitivity);
begin
  if v_caller.projects is not null or exists (select from _memoir.user_counters c where c.user_id = v_caller.user_id
    and 'sensitive' = any (c.features)) then
    v_unseen := array(select i.item_no from _memoir.search_items i where i.user_id = v_caller.user_id
      and (i.sensitivity > v_clearance or i.project <> all (v_caller.projects)));
  end if;
  return query select a from _memoir.read_arrays(p_name, v_caller.user_id, v_clearance, v_caller.projects, v_unseen,
    p_given) a;
end $$;
comment on function memoir.recall_arrays(text, text, jsonb) is
  'What a client''s kernel reads to make a recall where the server has no PL/Python: rows of one of its statements
(plpython/pg_memoir_kernel/queries.sql) by name, as objects, of those items of the user that the caller may see.
p_given: its parameters. Call it in the transaction that uses the recall. Writes nothing. Raises PM001, PM014.';

-- Returns a turn's text, or what of it begins at p_start, as it is known: without forgotten, corrected or retracted
-- spans, and with a mark behind each clause that a later turn changed. p_as_of: changes since then are no marks.
create or replace function _memoir.as_known(p_user_id uuid, p_session_id uuid, p_turn integer, p_text text,
  p_start integer default 1, p_as_of timestamptz default null)
returns text language plpgsql stable as $$
declare
  v_span record; v_text text := p_text; v_head text;
begin
  -- From the last on, because a mark moves the places behind it.
  for v_span in
    select distinct greatest(coalesce(x.span_start, 1), p_start) - p_start as first, least(x.span_start + x.span_length
      - p_start, length(p_text)) as last, x.changed
    from _memoir.exclusions_of(p_user_id, p_session_id, p_turn) x
    where not x.is_doubt and (x.span_start is null
        or _memoir.spans_overlap(x.span_start, x.span_length, p_start, length(p_text)))
      and (p_as_of is null or x.recorded_at <= p_as_of)
    order by 2 desc, 1, 3 loop
    if v_span.changed then
      v_head := rtrim(left(v_text, v_span.last), E' .!?,;\n');
      v_text := v_head || ' (later changed)' || substr(v_text, length(v_head) + 1);
    else
      v_text := left(v_text, v_span.first) || '[…]' || substr(v_text, v_span.last + 1);
    end if;
  end loop;
  return v_text;
end $$;

-- The best matches among the items of one user or space, the caller's. p_rows: of all that were searched.
create or replace function _memoir.recall_of(v_caller _memoir.caller, v_scope _memoir.search_scope, p_space text,
  p_rows jsonb, v_session uuid, p_limit integer, p_types text[], p_tags text[], p_project text, p_category text,
  p_where jsonb)
returns setof _memoir.hit language plpgsql stable as $$
declare
  v_user uuid := v_caller.user_id;
begin
  return query
  with found as (
    select c.*, r.ordinality as o from jsonb_array_elements(p_rows) with ordinality r, jsonb_to_record(r.value) c(
      item_no integer, kind text, ref_id uuid, session_id uuid, turn_index integer, span_start integer, role text,
      said_at timestamptz, project text, arms text[], score real, words real, vector real, type text, reason text,
      space text)
    where c.reason is null and c.space is not distinct from _memoir.one_line(p_space)
      and (v_session is null or c.session_id = v_session)
      and (p_project is null or c.project = p_project or c.project = 'global')
      and (p_types is null or c.type = any (p_types))
  ), memories as (select m.memory_id, m.tags, m.category, m.metadata from _memoir.memory_store m
    where m.user_id = v_user and m.memory_id = any (array(select f.ref_id from found f where f.kind = 'memory'))
  ), labels as (select i.item_no, i.tags from _memoir.search_items i where i.user_id = v_user and i.tags is not null
      and i.item_no = any (array(select f.item_no from found f where f.kind = 'turn'))
  ), kept as (select f.*, coalesce(m.tags, l.tags) as own_tags
    from found f left join memories m on m.memory_id = f.ref_id left join labels l on l.item_no = f.item_no
    where (p_tags is null or coalesce(m.tags, l.tags) && p_tags) and (p_category is null or m.category = p_category)
      and (p_where is null or f.kind <> 'summary' and _memoir.meets(coalesce(m.metadata, case f.kind when 'turn' then
        (_memoir.turn(v_user, f.session_id, f.turn_index)).metadata -> 'call' end, '{}'), p_where))
    order by f.o limit p_limit
  ), tagged as (select i.* from _memoir.filtered_turns(v_caller, v_scope, p_tags, p_project, p_limit) i
    where p_types is null and p_category is null and (v_session is null or i.session_id = v_session)
      and i.ref_id not in (select k.ref_id from kept k) and (p_where is null or _memoir.meets(coalesce(
        (_memoir.turn(v_user, i.session_id, i.turn_index)).metadata -> 'call', '{}'), p_where))
  ), shown as (
    select k.o, k.kind, k.ref_id, case k.kind when 'turn' then _memoir.as_known(v_user, k.session_id, k.turn_index,
        t.body, k.span_start, v_scope.as_of) else t.body end as body, k.score, k.words, k.vector,
      array_replace(k.arms, 'change', 'neighbour') as matched, k.session_id, k.turn_index, k.role, t.name, k.said_at,
      k.type, k.own_tags, k.project
    from kept k
    join _memoir.item_texts(v_user, array(select k2.item_no from kept k2),
      v_caller.clearance) t on t.item_no = k.item_no
    union all
    select 2147483647 + row_number() over (order by m.recorded_at desc, m.memory_id), 'memory', m.memory_id, m.content,
      0::real, 0::real, null::real, array['filter'], m.local_to, null, null, null, _memoir.said(m), m.type, m.tags,
      m.project
    from _memoir.filtered_memories(v_caller, v_scope, p_types, p_tags, p_category, p_project, p_where, p_limit) m
    where m.memory_id not in (select k.ref_id from kept k)
    union all
    select 4294967294 + row_number() over (order by i.created_at desc, i.item_no desc), 'turn', i.ref_id,
      _memoir.as_known(v_user, i.session_id, i.turn_index, t.body, i.span_start, v_scope.as_of),
      0::real, 0::real, null::real, array['filter'], i.session_id, i.turn_index, i.role::text, t.name, i.created_at,
      null, i.tags, i.project
    from tagged i join _memoir.item_texts(v_user, array(select g.item_no from tagged g), v_caller.clearance) t
      on t.item_no = i.item_no
  )
  select (row_number() over (order by x.o))::integer, x.kind, x.ref_id, x.body, x.score, x.words, x.vector, x.matched,
    s.external_id, x.turn_index, x.role, x.name, x.said_at, x.type, x.own_tags, x.project, p_space
  from shown x left join _memoir.sessions s on s.user_id = v_user and s.session_id = x.session_id
  order by x.o limit p_limit;
end $$;

create or replace function memoir.recall(p_user text, p_query text, p_session text default null,
  p_limit integer default 10, p_types text[] default null, p_tags text[] default null, p_project text default null,
  p_kinds text[] default null, p_after timestamptz default null, p_before timestamptz default null,
  p_query_embedding real[] default null, p_as_of timestamptz default null, p_valid_at timestamptz default null,
  p_category text default null, p_where jsonb default null, p_spaces text default null)
returns setof _memoir.hit language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_session uuid; v_space jsonb; v_hits _memoir.hit[];
  v_config jsonb := _memoir.config(v_caller.user_id, null); v_scope _memoir.search_scope; v_rows jsonb; v_asked jsonb;
  v_places jsonb := jsonb_build_array(jsonb_build_object('user_id', v_caller.user_id));
begin
  perform _memoir.check_text('query', p_query), _memoir.check_count('limit', p_limit, 1000);
  perform _memoir.check_choices('types', p_types, _memoir.known_types());
  p_where := _memoir.check_where(p_where);
  if p_session is not null then v_session := (_memoir.session(v_caller, p_session)).session_id;
  else v_places := v_places || _memoir.spaces_of(v_caller, coalesce(p_spaces, v_config ->> 'spaces')); end if;
  perform _memoir.check_choices('kinds', p_kinds, '{memory,turn,summary}');
  if p_kinds is not null then v_scope.kinds := array(select left(k, 1)::"char" from unnest(p_kinds) k); end if;
  v_scope.hidden_sessions := '{}'; v_scope.hidden_from := 0;
  v_scope.local_sessions := array[coalesce(v_session, _memoir.no_session())];
  v_scope.projects := v_caller.projects; v_scope.clearance := v_caller.clearance;
  v_scope.as_of := p_as_of; v_scope.valid_at := p_valid_at;
  v_scope.said_after := p_after; v_scope.said_before := p_before;
  v_asked := _memoir.asked_of_each(v_places, v_config, _memoir.read_question(p_query, v_config, p_query_embedding,
    false), v_scope, p_query_embedding, p_project, jsonb_build_object('limit', greatest(p_limit * 4, 100),
    'frequent', 0));
  -- Rows of pg_memoir_kernel/records.py, best first of each.
  v_rows := (_memoir.recalled(v_asked -> 0 || jsonb_build_object('spaces', v_asked - 0), v_config,
    (v_asked -> 0 ->> 'vector')::halfvec)).rows;
  for v_space in select value from jsonb_array_elements(v_places) loop
    v_caller.user_id := v_space ->> 'user_id';
    v_hits := v_hits || array(select h from _memoir.recall_of(v_caller, v_scope, v_space ->> 'space', v_rows,
      v_session, p_limit, p_types, p_tags, p_project, p_category, p_where) h);
  end loop;
  return query
  select (row_number() over w)::integer, h.kind, h.id, h.content, h.score, h.words_score, h.vector_score, h.matched_by,
    h.session, h.turn_index, h.role, h.name, h.said_at, h.type, h.tags, h.project, h.space
  from unnest(v_hits) with ordinality h(rank, kind, id, content, score, words_score, vector_score, matched_by, session,
    turn_index, role, name, said_at, type, tags, project, space, o)
  window w as (order by h.matched_by = '{filter}', h.score desc, h.rank, h.o) order by 1 limit p_limit;
end $$;
comment on function memoir.recall(text, text, text, integer, text[], text[], text, text[], timestamptz, timestamptz,
  real[], timestamptz, timestamptz, text, jsonb, text) is
  'The best matches for a query among a user''s memories, turns and summaries, ranked as compile ranks them. Without
p_session the user''s spaces are searched, too (p_spaces: *, names divided by commas, or empty; default: the setting
spaces). Filters: session; tags (of memories and turns), types and category (of memories), project (with global);
kinds (memory, turn, summary), said between p_after and p_before; p_where, on metadata of memories and turns
({"source": "jira", "year": {"gt": 2024}}; eq, in, gt, lt, exists); p_as_of and p_valid_at as in compile_context.
Memories that types, tags, category, project or where name, turns with such a tag and objects of the session of such a
type, or with such a path or name as a tag, come whatever their rank, after the query''s matches. matched_by: words,
vector, neighbour (beside a match), related (by edges to a match), filter. Writes nothing. Raises PM001, PM003, PM014,
PM030.';

create or replace function memoir.match_memories(p_user text, p_embedding real[], p_threshold real default 0.7,
  p_limit integer default 10, p_project text default null)
returns table (id uuid, content text, similarity real, type text, project text, recorded_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_user uuid := v_caller.user_id; v_model _memoir.embedding_models := _memoir.embedding_model(null);
  v_vector halfvec := _memoir.to_vector(p_embedding, v_model);
begin
  perform _memoir.check_range('threshold', p_threshold, -1, 1, true), _memoir.check_count('limit', p_limit, 1000);
  return query
  select m.memory_id, m.content, s.similarity, m.type, m.project, m.recorded_at
  from (select i.ref_id, max(1 - (e.embedding <=> v_vector))::real as similarity
    from _memoir.embeddings e join _memoir.search_items i on i.user_id = v_user and i.item_no = e.item_no
    where e.user_id = v_user and e.model_id = v_model.model_id and i.kind = 'm' and not i.dead
    group by i.ref_id) s
  join _memoir.memory_store m on m.user_id = v_user and m.memory_id = s.ref_id
  where s.similarity >= p_threshold and m.state = 'active' and m.local_to is null
    and _memoir.may_see(v_caller, m) and (p_project is null or m.project in (p_project, 'global'))
  order by s.similarity desc, m.memory_id limit p_limit;
end $$;
comment on function memoir.match_memories(text, real[], real, integer, text) is
  'Active global memories whose cosine similarity reaches the threshold, closest first. Raises PM001, PM014, PM030.';
