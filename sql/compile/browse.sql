create or replace function _memoir.on_one_line(p_text text)
returns text language sql immutable as $$
  select case when length(t) > 120 then rtrim(left(t, 119)) || '…' else t end
  from btrim(regexp_replace(left(p_text, 1000), '[[:space:]]+', ' ', 'g')) t
$$;

create or replace function memoir.list_memories(p_user text, p_states text[] default '{active}',
  p_types text[] default null, p_tags text[] default null, p_category text default null, p_project text default null,
  p_session text default null, p_after_memory uuid default null, p_limit integer default 100,
  p_where jsonb default null, p_after timestamptz default null, p_before timestamptz default null)
returns table (memory_id uuid, content text, type text, category text, project text, scope text, session text,
  tier smallint, state text, reason text, superseded_by uuid, importance text, provenance text, actor text, trust real,
  confidence real, sensitivity text, slot text, slot_value text, tags text[], aliases text[], tokens integer,
  said_at timestamptz, valid_from timestamptz, valid_to timestamptz, expires_at timestamptz, recorded_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_user uuid := v_caller.user_id; v_last _memoir.memory_store; v_session uuid;
begin
  perform _memoir.check_count('limit', p_limit, 1000);
  perform _memoir.check_choices('states', p_states, enum_range(null::_memoir.item_state)::text[]);
  perform _memoir.check_choices('types', p_types, _memoir.known_types());
  p_where := _memoir.check_where(p_where);
  if p_session is not null then v_session := (_memoir.session(v_caller, p_session)).session_id; end if;
  if p_after_memory is not null then v_last := _memoir.memory(v_caller, p_after_memory); end if;
  return query
  select m.memory_id, case when m.state not in ('forgotten', 'erased') then m.content end, m.type, m.category,
    m.project, m.scope::text, s.external_id, m.tier, m.state::text, m.state_reason, m.superseded_by, m.importance,
    m.provenance::text, m.actor::text, m.trust, m.confidence, m.sensitivity::text, m.slot, m.slot_value, m.tags,
    m.aliases, m.token_count, _memoir.said(m), m.valid_from, m.valid_to, m.expires_at, m.recorded_at
  from _memoir.memory_store m
  left join _memoir.sessions s on s.user_id = v_user and s.session_id = m.session_id
  where m.user_id = v_user and _memoir.may_see(v_caller, m)
    and (coalesce(p_states, '{}') = '{}' or m.state::text = any (p_states))
    and (p_types is null and not m.is_object or m.type = any (p_types)) and (p_tags is null or m.tags && p_tags)
    and (p_category is null or m.category = p_category) and (p_project is null or m.project = p_project)
    and (v_session is null or m.session_id = v_session) and (p_where is null or _memoir.meets(m.metadata, p_where))
    and (p_after is null or _memoir.said(m) >= p_after) and (p_before is null or _memoir.said(m) < p_before)
    and (p_after_memory is null or (m.recorded_at, m.memory_id) < (v_last.recorded_at, v_last.memory_id))
  order by m.recorded_at desc, m.memory_id desc limit p_limit;
end $$;
comment on function memoir.list_memories(text, text[], text[], text[], text, text, text, uuid, integer, jsonb,
  timestamptz, timestamptz) is
  'Lists what is known about a user, newest first, at most p_limit (1000) a page: p_after_memory is the last memory_id
of the page before. Objects (tool results, files …), which say where a text stands in the turns, only where p_types
names theirs. Filters: states (active; {} for all: superseded, invalidated, expired, forgotten, …), types, tags (any),
category, project, session, p_where as in recall, said from p_after on and before p_before. session: where it was said;
scope local: known there only. tokens as counted when stored; trust and confidence from 0 to 1. A forgotten text is not
shown. Raises PM001, PM003, PM004, PM014.';

create or replace function memoir.list_sessions(p_user text, p_project text default null, p_status text default null,
  p_after_session text default null, p_limit integer default 100, p_after timestamptz default null,
  p_before timestamptz default null)
returns table (session text, status text, project text, model text, task text, parent text, parent_turn integer,
  turns integer, tokens bigint, cost_microcents bigint, title text, summary text, said_at timestamptz,
  created_at timestamptz, last_recorded_at timestamptz, closed_at timestamptz)
language plpgsql stable security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_user uuid := v_caller.user_id; v_last _memoir.sessions;
begin
  perform _memoir.check_count('limit', p_limit, 1000);
  perform _memoir.check_choice('status', p_status, '{active,paused,closed,expired}') where p_status is not null;
  if p_after_session is not null then v_last := _memoir.session(v_caller, p_after_session); end if;
  return query
  select s.external_id, s.status::text, s.project, s.model, s.task_type::text, p.external_id, s.parent_turn,
    c.turn_count, c.tokens, c.cost_microcents, f.title, _memoir.on_one_line(s.summary_text),
    coalesce(f.said_at, s.created_at), s.created_at, c.last_recorded_at, s.closed_at
  from _memoir.sessions s
  left join _memoir.session_counters c on c.user_id = v_user and c.session_id = s.session_id
  left join _memoir.sessions p on p.user_id = v_user and p.session_id = s.parent_session_id
  left join lateral (
    select _memoir.on_one_line(_memoir.as_known(v_user, h.session_id, h.turn_index, h.content)) as title,
      h.created_at as said_at from _memoir.conversation_history h
    where h.user_id = v_user and h.session_id = s.session_id and h.role = 'user'
      and h.recorded_at between c.first_recorded_at and c.last_recorded_at and v_caller.clearance
        >= _memoir.sensitivity_now(h.sensitivity, h.turn_index, _memoir.marks(v_user, h.session_id))
    order by h.turn_index limit 1) f on true
  where s.user_id = v_user and (v_caller.projects is null or s.project = any (v_caller.projects))
    and (p_project is null or s.project = p_project) and (p_status is null or s.status::text = p_status)
    and (p_after is null or coalesce(f.said_at, s.created_at) >= p_after)
    and (p_before is null or coalesce(f.said_at, s.created_at) < p_before)
    and (p_after_session is null or (s.created_at, s.session_id) < (v_last.created_at, v_last.session_id))
  order by s.created_at desc, s.session_id desc limit p_limit;
end $$;
comment on function memoir.list_sessions(text, text, text, text, integer, timestamptz, timestamptz) is
  'The sessions of a user, newest first, at most p_limit (1000) a page: p_after_session is the last of the page before.
Filters: project, status, said_at (the person''s first words) from p_after on and before p_before. tokens and turns are
its own, without its parent''s; cost in microcents; title (those words) and summary on one line of at most 120
characters. Raises PM001, PM003, PM014.';

create or replace function memoir.list_speakers(p_user text, p_session text default null)
returns table (speaker text, role text, sessions bigint, turns bigint, first_said_at timestamptz,
  last_said_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_user uuid := v_caller.user_id; v_session uuid;
begin
  if p_session is not null then v_session := (_memoir.session(v_caller, p_session)).session_id; end if;
  return query
  select coalesce(i.speaker, i.role::text), i.role::text, count(distinct i.session_id), count(distinct i.ref_id),
    min(i.created_at), max(i.created_at)
  from _memoir.search_items i
  where i.user_id = v_user and i.kind = 't' and i.sensitivity <= v_caller.clearance
    and (v_session is null or i.session_id = v_session)
    and (v_caller.projects is null or i.project = any (v_caller.projects))
  group by 1, 2 order by 4 desc, 1, 2;
end $$;
comment on function memoir.list_speakers(text, text) is
  'Lists the speakers of a user''s sessions (or in one), by the name of their messages, else their role: how many
sessions and turns that say anything, the first and the last. Those who said most come first. Raises PM001, PM003.';

create or replace function memoir.memory_index(p_user text, p_query text, p_session text default null,
  p_limit integer default 20, p_types text[] default null, p_tags text[] default null, p_category text default null,
  p_project text default null, p_kinds text[] default null, p_after timestamptz default null,
  p_before timestamptz default null, p_query_embedding real[] default null, p_where jsonb default null)
returns table (rank integer, kind text, id uuid, line text, score real, session text, turn_index integer,
  said_at timestamptz)
language sql stable security definer set search_path from current as $$
  select r.rank, r.kind, r.id, _memoir.on_one_line(case when r.kind = 'turn' then r.role || ': ' else '' end
    || r.content), r.score, r.session, r.turn_index, r.said_at
  from memoir.recall(p_user, p_query, p_session, p_limit, p_types, p_tags, p_project, p_kinds, p_after, p_before,
    p_query_embedding, p_category => p_category, p_where => p_where, p_spaces => '') r
$$;
comment on function memoir.memory_index(text, text, text, integer, text[], text[], text, text, text[], timestamptz,
  timestamptz, real[], jsonb) is
  'Lists what recall finds, each hit on one line of at most 120 characters with its id. memory_timeline lists what
stands around a hit, memory_get whole rows. Arguments as in recall. Raises PM001, PM003, PM014, PM030.';

-- Where an id lies: a turn of a session, or none. A memory lies where it was said.
create or replace function _memoir.anchor(p_caller _memoir.caller, p_id uuid, out kind text, out session_id uuid,
  out turn_index integer) language plpgsql stable as $$
declare
  v_user uuid := p_caller.user_id; v_item _memoir.search_items;
begin
  if exists (select from _memoir.memory_store m where m.user_id = v_user and m.memory_id = p_id
    and _memoir.may_see(p_caller, m)) then
    kind := 'memory';
    select s.session_id, s.turn_index into session_id, turn_index from _memoir.memory_sources s
    join _memoir.sessions x on x.user_id = v_user and x.session_id = s.session_id
      and (p_caller.projects is null or x.project = any (p_caller.projects))
    where s.user_id = v_user and s.item_kind = 'memory' and s.item_id = p_id and s.source_kind = 'turn'
    order by s.session_id, s.turn_index limit 1;
    return;
  end if;
  select * into v_item from _memoir.search_items i
  where i.user_id = v_user and i.ref_id = p_id and i.kind <> 'm' and i.sensitivity <= p_caller.clearance
    and (p_caller.projects is null or i.project = any (p_caller.projects))
  order by i.chunk limit 1;
  if not found then perform _memoir.fail('PM004', format('unknown id %s', _memoir.shown(p_id::text)),
    'ids come from recall, memory_index and context'); end if;
  kind := case v_item.kind when 't' then 'turn' else 'summary' end;
  session_id := v_item.session_id;
  turn_index := coalesce(v_item.turn_index,
    (select c.to_turn from _memoir.compactions c where c.user_id = v_user and c.session_id = v_item.session_id
      and c.compaction_id = p_id),
    (select s.summary_through from _memoir.sessions s where s.user_id = v_user and s.session_id = v_item.session_id),
    0);
end $$;

-- The turns of a session from one to another that the caller may see, and what was made of them.
create or replace function _memoir.turns_around(p_caller _memoir.caller, p_session_id uuid, p_from integer,
  p_to integer)
returns table (kind text, id uuid, session text, turn_index integer, role text, name text, said_at timestamptz,
  line text) language plpgsql stable as $$
declare
  v_user uuid := p_caller.user_id; v_session _memoir.sessions; v_part record; v_marks jsonb; v_ids uuid[] := '{}';
begin
  select * into v_session from _memoir.sessions s where s.user_id = v_user and s.session_id = p_session_id;
  for v_part in select * from _memoir.lineage(v_session) order by from_turn loop
    v_marks := _memoir.marks(v_user, v_part.session_id);
    for kind, id, session, turn_index, role, name, said_at, line in
      select 'turn', h.message_id, v_session.external_id, h.turn_index, h.role::text, h.name, h.created_at,
        _memoir.on_one_line(coalesce(_memoir.as_known(v_user, v_part.session_id, h.turn_index, h.content),
          'calls ' || (select string_agg(c #>> '{function,name}', ', ') from jsonb_array_elements(h.tool_calls) c)))
      from _memoir.conversation_history h
      where h.user_id = v_user and h.session_id = v_part.session_id
        and h.recorded_at between v_part.since and v_part.until
        and h.turn_index between greatest(v_part.from_turn, p_from) and least(v_part.to_turn, p_to)
        and _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks) <= p_caller.clearance loop
      v_ids := v_ids || id;
      return next;
    end loop;
  end loop;
  return query
  select distinct on (m.memory_id) 'memory', m.memory_id, v_session.external_id, s.turn_index, null::text, null::text,
    _memoir.said(m), _memoir.on_one_line(m.content)
  from _memoir.memory_sources s
  join _memoir.memory_store m on m.user_id = v_user and m.memory_id = s.item_id and m.state = 'active'
    and not m.is_object
  where s.user_id = v_user and s.item_kind = 'memory' and s.source_kind = 'turn' and s.source_id = any (v_ids)
    and _memoir.may_see(p_caller, m)
  order by m.memory_id, s.turn_index;
end $$;

-- Returns the turns and memories within p_window of an item, in its project and any session, in order.
create or replace function _memoir.items_around(p_caller _memoir.caller, p_id uuid, p_window interval, p_before integer,
  p_after integer)
returns table (kind text, id uuid, session text, turn_index integer, role text, name text, said_at timestamptz,
  line text, is_anchor boolean) language plpgsql stable as $$
declare
  v_user uuid := p_caller.user_id; v_item _memoir.search_items;
begin
  select * into v_item from _memoir.search_items i where i.user_id = v_user and i.ref_id = p_id
  order by i.chunk limit 1;
  return query
  with near as materialized (
    select i.*, i.created_at < v_item.created_at or i.created_at = v_item.created_at and i.item_no < v_item.item_no
      as is_before
    from _memoir.search_items i
    where i.user_id = v_user and i.chunk = 0 and not i.dead and (i.kind = 't' or i.kind = 'm' and not i.echo)
      and i.created_at between v_item.created_at - p_window and v_item.created_at + p_window
      and i.project in (v_item.project, 'global') and i.sensitivity <= p_caller.clearance
      and (p_caller.projects is null or i.project = any (p_caller.projects))),
  taken as ((select * from near n where n.is_before order by n.created_at desc, n.item_no desc limit p_before)
    union all (select * from near n where not n.is_before order by n.created_at, n.item_no limit p_after + 1))
  select case t.kind when 't' then 'turn' else 'memory' end, t.ref_id, s.external_id, t.turn_index, t.role::text,
    t.speaker, t.created_at, _memoir.on_one_line(case t.kind when 't' then _memoir.as_known(v_user, t.session_id,
      t.turn_index, (_memoir.turn(v_user, t.session_id, t.turn_index)).content) else m.content end), t.ref_id = p_id
  from taken t left join _memoir.sessions s on s.user_id = v_user and s.session_id = t.session_id
  left join _memoir.memory_store m on t.kind = 'm' and m.user_id = v_user and m.memory_id = t.ref_id
  where t.kind = 't' or m.state = 'active' and _memoir.may_see(p_caller, m)
  order by t.created_at, t.item_no;
end $$;

create or replace function memoir.memory_timeline(p_user text, p_id uuid default null,
  p_lines_before integer default 10, p_lines_after integer default 10, p_query text default null,
  p_window text default null)
returns table (kind text, id uuid, session text, turn_index integer, role text, name text, said_at timestamptz,
  line text, is_anchor boolean)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_anchor record; v_memory _memoir.memory_store;
begin
  perform _memoir.check_range('lines_before', p_lines_before, 0, 100, true),
    _memoir.check_range('lines_after', p_lines_after, 0, 100, true);
  perform _memoir.fail('PM014', 'memory_timeline needs an id or a query') where num_nonnulls(p_id, p_query) = 0;
  if p_window is not null then perform _memoir.check_choice('window', p_window, '{1h,24h,7d}'); end if;
  if p_id is null then
    p_id := (select r.id from memoir.recall(p_user, p_query, p_limit => 1, p_spaces => '') r);
    if p_id is null then return; end if;
  end if;
  v_anchor := _memoir.anchor(v_caller, p_id);
  if p_window is not null then
    return query select * from _memoir.items_around(v_caller, p_id, p_window::interval, p_lines_before, p_lines_after);
  elsif v_anchor.session_id is not null then
    return query
    select t.*, t.id = p_id or v_anchor.kind = 'summary' and t.turn_index = v_anchor.turn_index and t.kind = 'turn'
    from _memoir.turns_around(v_caller, v_anchor.session_id, v_anchor.turn_index - p_lines_before,
      v_anchor.turn_index + p_lines_after) t
    order by t.turn_index, t.kind desc, t.id;
  else
    v_memory := _memoir.memory(v_caller, p_id);
    return query
    with seen as (select m.memory_id, _memoir.said(m) as said, m.content from _memoir.memory_store m
      where m.user_id = v_caller.user_id and (m.state = 'active' and not m.is_object or m.memory_id = p_id)
        and m.state not in ('forgotten', 'erased') and _memoir.may_see(v_caller, m)),
    near as ((select * from seen s where (s.said, s.memory_id) < (_memoir.said(v_memory), p_id)
       order by s.said desc, s.memory_id desc limit p_lines_before)
      union all
      (select * from seen s where (s.said, s.memory_id) >= (_memoir.said(v_memory), p_id)
       order by s.said, s.memory_id limit p_lines_after + 1))
    select 'memory', n.memory_id, null::text, null::integer, null::text, null::text, n.said,
      _memoir.on_one_line(n.content), n.memory_id = p_id
    from near n order by n.said, n.memory_id;
  end if;
end $$;
comment on function memoir.memory_timeline(text, uuid, integer, integer, text, text) is
  'Lists what stands around a hit (p_id, of a memory, a turn or a summary, else the best hit of p_query), in order:
p_lines_before and p_lines_after turns (at most 100) of its session with the memories made of them; for a memory that
was said in no session, the memories before and after it in time. p_window (1h, 24h, 7d): instead what was said so long
before and after it at most, in any session of its project. Lines of at most 120 characters; what is forgotten in
a turn is left out. Raises PM001, PM004, PM014.';

-- A turn or a summary whole, or null where the caller may not see it.
create or replace function _memoir.whole_item(p_caller _memoir.caller, p_id uuid)
returns jsonb language plpgsql stable as $$
declare
  v_user uuid := p_caller.user_id; v_item _memoir.search_items; v_turn _memoir.conversation_history; v_session text;
begin
  select * into v_item from _memoir.search_items i
  where i.user_id = v_user and i.ref_id = p_id and i.kind <> 'm'
    and (p_caller.projects is null or i.project = any (p_caller.projects)) order by i.chunk limit 1;
  if not found then return null; end if;
  v_session := (select s.external_id from _memoir.sessions s where s.user_id = v_user
    and s.session_id = v_item.session_id);
  if v_item.kind = 's' then
    return (select jsonb_build_object('id', p_id, 'kind', 'summary', 'session', v_session, 'content',
        coalesce(c.summary_text, s.summary_text), 'from_turn', c.from_turn, 'to_turn', coalesce(c.to_turn,
        s.summary_through))
      from _memoir.sessions s left join _memoir.compactions c on c.user_id = v_user
        and c.session_id = s.session_id and c.compaction_id = p_id and c.undone_at is null
      where s.user_id = v_user and s.session_id = v_item.session_id
        and coalesce(c.summary_text, s.summary_text) is not null);
  end if;
  select * into v_turn from _memoir.conversation_history h where h.user_id = v_user
    and h.session_id = v_item.session_id and h.turn_index = v_item.turn_index and h.recorded_at = v_item.recorded_at
    and _memoir.sensitivity_now(h.sensitivity, h.turn_index, _memoir.marks(v_user, h.session_id))
      <= p_caller.clearance;
  if not found then return null; end if;
  return _memoir.sent(v_turn) || jsonb_build_object('id', p_id, 'kind', 'turn', 'session', v_session, 'content',
    -- Whoever asks may be in another session than the turn.
    _memoir.as_known(v_user, v_turn.session_id, v_turn.turn_index, case
      when _memoir.awaits_scan(v_user, v_turn.message_id) then _memoir.ends_of(v_turn.role, v_turn.content)
      else v_turn.content end));
end $$;

create or replace function memoir.memory_get(p_user text, p_ids uuid[])
returns setof jsonb language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_id uuid; v_memory _memoir.memory_store; v_found jsonb;
begin
  perform _memoir.refuse_value(p_ids is null or cardinality(p_ids) not between 1 and 100 or array_position(p_ids,
    null) is not null, 'ids', p_ids, '1 to 100 ids');
  foreach v_id in array p_ids loop
    select * into v_memory from _memoir.memory_store m where m.user_id = v_caller.user_id and m.memory_id = v_id;
    if not found then
      v_found := _memoir.whole_item(v_caller, v_id);
    elsif _memoir.may_see(v_caller, v_memory) then
      v_found := jsonb_strip_nulls(to_jsonb(v_memory)
        - '{user_id,memory_id,content_hash,session_id,local_to,token_count}'::text[] - case
        when v_memory.state in ('forgotten', 'erased') then array['content', 'slot_value', 'aliases'] else '{}' end)
        || jsonb_build_object('id', v_memory.memory_id, 'kind', 'memory', 'tokens', v_memory.token_count,
        'session', (select s.external_id from _memoir.sessions s where s.user_id = v_caller.user_id
          and s.session_id = v_memory.session_id),
        'sources', (select coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object('kind', s.source_kind, 'id',
            s.source_id, 'session', x.external_id, 'turn_index', s.turn_index, 'from', s.span_start, 'length',
            s.span_length, 'link', s.link)) order by s.turn_index, s.source_id), '[]')
          from _memoir.memory_sources s
          left join _memoir.sessions x on x.user_id = v_caller.user_id and x.session_id = s.session_id
          where s.user_id = v_caller.user_id and s.item_kind = 'memory' and s.item_id = v_memory.memory_id
            and (v_caller.projects is null or x.project is null or x.project = any (v_caller.projects))),
        'relations', (select coalesce(jsonb_agg(jsonb_build_object('relation', e.relation, 'from', e.source_id, 'to',
            e.target_id, 'weight', e.weight) order by e.recorded_at, e.source_id, e.target_id), '[]')
          from _memoir.memory_relationships e
          join _memoir.memory_store o on o.user_id = v_caller.user_id and o.memory_id in (e.source_id, e.target_id)
            and o.memory_id <> v_memory.memory_id and _memoir.may_see(v_caller, o)
          where e.user_id = v_caller.user_id and v_memory.memory_id in (e.source_id, e.target_id)),
        'states', (select coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object('state', s.state, 'at', s.recorded_at,
            'reason', s.reason, 'by', s.set_by)) order by s.seq), '[]')
          from _memoir.memory_states s where s.user_id = v_caller.user_id and s.memory_id = v_memory.memory_id))
        || coalesce((select jsonb_build_object('outcomes', jsonb_agg(jsonb_strip_nulls(jsonb_build_object('succeeded',
            o.succeeded, 'at', o.recorded_at, 'by', o.actor, 'note', o.note)) order by o.recorded_at))
          from _memoir.experience_outcomes o where o.user_id = v_caller.user_id and o.memory_id = v_memory.memory_id
            and v_memory.state not in ('forgotten', 'erased') having count(*) > 0), '{}');
    else
      continue;
    end if;
    if v_found is not null then return next v_found; end if;
  end loop;
end $$;
comment on function memoir.memory_get(text, uuid[]) is
  'Whole rows for 1 to 100 ids of memories, turns and summaries, in the order asked, each an object with id and kind: a
memory with its sources (from, length: in the turn), relations and states, a turn as history has it, a summary with its
turns. An id unknown or above the caller''s clearance gives no row; forgotten text is left out. Raises PM001, PM014.';

create or replace function memoir.memory_graph(p_user text, p_memory uuid, p_hops integer default 2,
  p_limit integer default 200)
returns table (hop integer, source_id uuid, relation text, target_id uuid, weight real, source_line text,
  target_line text, made_by text, recorded_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_user uuid := v_caller.user_id; v_done uuid[] := '{}'; v_new uuid[] := array[p_memory];
begin
  perform _memoir.check_count('hops', p_hops, 5), _memoir.check_count('limit', p_limit, 1000);
  perform _memoir.memory(v_caller, p_memory);
  hop := 0;
  while hop < p_hops and v_new <> '{}' and p_limit > 0 loop
    hop := hop + 1;
    for source_id, relation, target_id, weight, source_line, target_line, made_by, recorded_at in
      select e.source_id, e.relation::text, e.target_id, e.weight,
        _memoir.on_one_line(case when a.state not in ('forgotten', 'erased') then a.content end),
        _memoir.on_one_line(case when b.state not in ('forgotten', 'erased') then b.content end), e.made_by,
        e.recorded_at
      from _memoir.memory_relationships e
      join _memoir.memory_store a on a.user_id = v_user and a.memory_id = e.source_id and _memoir.may_see(v_caller, a)
      join _memoir.memory_store b on b.user_id = v_user and b.memory_id = e.target_id and _memoir.may_see(v_caller, b)
      where e.user_id = v_user and (e.source_id = any (v_new) or e.target_id = any (v_new))
        and e.source_id <> all (v_done) and e.target_id <> all (v_done)  -- whose relations came with earlier hops
      order by e.weight desc, e.recorded_at, e.source_id, e.target_id limit p_limit loop
      p_limit := p_limit - 1;
      return next;
    end loop;
    v_done := v_done || v_new;
    v_new := array(select distinct n.id from _memoir.memory_relationships e
      cross join lateral (values (e.source_id), (e.target_id)) n (id)
      join _memoir.memory_store m on m.user_id = v_user and m.memory_id = n.id and _memoir.may_see(v_caller, m)
      where e.user_id = v_user and (e.source_id = any (v_new) or e.target_id = any (v_new))
        and n.id <> all (v_done) order by 1);
  end loop;
end $$;
comment on function memoir.memory_graph(text, uuid, integer, integer) is
  'Lists the relations of a memory: every relation within p_hops (5 at most) steps in either direction, nearest first,
at most p_limit (1000); lines of at most 120 characters. Relations as in relate, and those that corrections,
consolidation and conflicts leave. Raises PM001, PM004, PM014.';
