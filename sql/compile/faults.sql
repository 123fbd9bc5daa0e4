create or replace function _memoir.tool_line(p_kind text, p_id uuid, p_session text, p_at timestamptz, p_line text)
returns text language sql stable as $$
  select format('%s (%s%s, %s) %s', p_id, p_kind, case when p_session is null then '' else ' of ' ||
    _memoir.one_line(left(p_session, 60)) end, to_char(p_at, 'YYYY-MM-DD'), _memoir.neutralise(p_line))
$$;

-- The best passages for a question, as many as fit, each with its object or id, and where it stands. Copies count once.
-- The question itself gives way to what it was answered before, and objects of the session that match as well lead.
create or replace function _memoir.query_passages(p_caller _memoir.caller, p_user text, p_session text,
  p_question text, p_tokens integer, p_whole_user boolean)
returns table (o integer, id uuid, kind text, session text, turn_index integer, object uuid, line text, tokens integer)
language plpgsql stable as $$
declare
  v_user uuid := p_caller.user_id; v_asked constant text := rtrim(_memoir.normalise(p_question), ' .?!'); v_hits jsonb;
begin
  with hits as materialized (
    select r.*, s.session_id, p.memory_id as object, rtrim(_memoir.normalise(r.content), ' .?!') as key
    from memoir.recall(p_user, p_question, p_session => case when p_whole_user then null else p_session end,
      p_limit => 100, p_spaces => '') r
    left join _memoir.sessions s on s.user_id = v_user and s.external_id = r.session and r.kind = 'turn'
    left join _memoir.object_places p on p.user_id = v_user and p.session_id = s.session_id
      and p.turn_index = r.turn_index and p.call_no = 0
  ), found as (
    -- Of large outputs the index knows parts only: what holds most of the question's words comes first.
    select 0 as place, l.nth, l.memory_id as id, 'object' as kind, p_session as session, l.turn_index,
      l.memory_id as object, null::timestamptz as said_at, format('lines %s–%s', l.first_line, l.last_line) as lines,
      null as who, l.body, l.body as key
    from _memoir.large_passages(v_user, _memoir.session_id(v_user, p_session), p_question, 2,
      least(p_caller.clearance, 'private'::_memoir.sensitivity)) with ordinality
      l(memory_id, turn_index, first_line, last_line, score, body, nth) where l.score >= 0.6
    union all
    select case when h.object is not null and h.session = p_session and h.score >= 0.6 * (select max(m.score)
        from hits m where m.key <> v_asked) then 1 else 3 end, h.rank, h.id, h.kind, h.session, h.turn_index, h.object,
      h.said_at, null, case when h.kind = 'turn' then coalesce(h.name, h.role) end, h.content, h.key from hits h
    where h.key <> v_asked and h.score >= 0.2 * (select max(m.score) from hits m where m.key <> v_asked)
    union all
    (select 2, coalesce(k.rank, 101) as rank, a.ref_id, 'turn', h.session, a.turn_index, null, a.created_at, null,
      'assistant', _memoir.as_known(v_user, a.session_id, a.turn_index, x.body),
      rtrim(_memoir.normalise(x.body), ' .?!')
    from hits h
    cross join lateral (select i.* from _memoir.conversation_history t
      join _memoir.search_items i on i.user_id = v_user and i.ref_id = t.message_id and i.chunk = 0 and not i.dead
      where t.user_id = v_user and t.session_id = h.session_id and t.exchange_start = h.turn_index
        and t.role = 'assistant' order by t.turn_index desc limit 1) a
    cross join lateral _memoir.item_texts(v_user, array[a.item_no], p_caller.clearance) x
    left join hits k on k.id = a.ref_id
    where h.key = v_asked order by 2, a.item_no desc limit 3)
  ), once as (select distinct on (f.key) f.* from found f where not _memoir.is_above('private', v_user, f.id)
    order by f.key, f.place, f.nth)
  select jsonb_agg(to_jsonb(f) || jsonb_build_object('line', format('[%s, %s] %s', case when f.session = p_session
      then concat('object ' || _memoir.object_name(f.object), case when f.object is null then left(f.id::text, 8) end)
      else left(f.id::text, 8) end, coalesce(f.lines, case when f.session = p_session then 'turn ' || f.turn_index end,
      to_char(f.said_at, 'DD Mon YYYY')), _memoir.neutralise(concat(f.who || ': ', _memoir.indented(f.body)))))
    order by f.place, f.nth) into v_hits from once f;
  return query
  select l.o, h.id, h.kind, h.session, h.turn_index, h.object, l.line, l.tokens
  from _memoir.fit_lines(array(select e ->> 'line' from jsonb_array_elements(v_hits) with ordinality x(e, n)
      order by n), p_tokens) l,
    jsonb_to_record(v_hits -> (l.o - 1)) h(id uuid, kind text, session text, turn_index integer, object uuid);
end $$;

create or replace function memoir.memory_query(p_user text, p_session text, p_question text,
  p_max_tokens integer default 600, p_scope text default 'session', p_answer boolean default true)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_started timestamptz := clock_timestamp(); v_passages jsonb; v_text text; v_tokens integer; v_memory uuid;
  v_sent text; v_ids uuid[]; v_items jsonb; v_asks boolean; v_id uuid := gen_random_uuid();
  v_now timestamptz := memoir.now();
begin
  perform _memoir.check_choice('scope', p_scope, '{session,user}'), _memoir.check_text('question', p_question);
  perform _memoir.check_range('max_tokens', p_max_tokens, 50, 16000, true);
  v_asks := p_answer and (select config ->> 'llm_provider' from _memoir.settings_merged) is distinct from 'none';
  -- Lock the user before passages are looked for, so that nothing that is forgotten meanwhile is sent.
  if v_asks then perform from _memoir.user_counters where user_id = v_caller.user_id for update; end if;
  select string_agg(q.line, E'\n' order by q.o), coalesce(sum(q.tokens), 0), coalesce(jsonb_agg(jsonb_build_object(
      'id', q.id, 'kind', q.kind, 'session', q.session, 'turn_index', q.turn_index,
      'object', _memoir.object_name(q.object)) order by q.o), '[]'),
    (array_agg(q.object order by q.o) filter (where q.object is not null))[1],
    string_agg(q.line, E'\n' order by q.o) filter (where q.is_sent), array_agg(q.id)
  into v_text, v_tokens, v_passages, v_memory, v_sent, v_ids
  -- A model is sent nothing private, and nothing that was not looked through for secrets, or was made of such.
  from (select p.*, v_asks and not _memoir.is_above('normal', v_caller.user_id, p.id)
      and not _memoir.awaits_scan(v_caller.user_id, p.id)
      and not exists (select from _memoir.memory_sources s where s.user_id = v_caller.user_id and s.item_kind = 'memory'
        and s.item_id = p.id and _memoir.awaits_scan(v_caller.user_id, s.source_id)) as is_sent
    from _memoir.query_passages(v_caller, p_user, p_session, p_question, p_max_tokens, p_scope = 'user') p) q;
  -- An object goes with the turns that it lies in.
  v_items := (select jsonb_agg(i) from (select unnest(v_ids) as i union select s.source_id from _memoir.memory_sources s
    where s.user_id = v_caller.user_id and s.item_kind = 'memory' and s.item_id = any (v_ids)) x);
  if v_memory is not null then
    perform _memoir.note_fault(v_caller.user_id, v_session.session_id, m, 'micro_fault', c.turn_count, 0,
      jsonb_build_object('question', p_question, 'answer', v_text, 'answer_tokens', v_tokens, 'items', v_items,
        'clearance', v_caller.clearance), v_started)
    from _memoir.memory_store m, _memoir.session_counters c
    where m.user_id = v_caller.user_id and m.memory_id = v_memory and c.user_id = v_caller.user_id
      and c.session_id = v_session.session_id;
  end if;
  if v_sent is not null then
    delete from _memoir.query_answers where user_id = v_caller.user_id and asked_at < v_now - interval '1 day';
    insert into _memoir.query_answers (user_id, query_id, session_id, asked_at, question, passages, items, max_tokens,
      clearance, projects)
    values (v_caller.user_id, v_id, v_session.session_id, v_now, p_question, v_sent, v_items, p_max_tokens,
      v_caller.clearance, v_caller.projects);
    perform _memoir.enqueue('answer', v_caller.user_id, v_id::text,
      jsonb_build_object('session_id', v_session.session_id));
  end if;
  return case when v_sent is null then '{}' else jsonb_build_object('answer',
      jsonb_build_object('id', v_id, 'state', 'waiting')) end
    || jsonb_build_object('text', coalesce(v_text, 'Nothing found.'), 'tokens', v_tokens, 'passages', v_passages);
end $$;
comment on function memoir.memory_query(text, text, text, integer, text, boolean) is
  'The passages that best answer a question from all that a session has, whatever of it is shown (p_scope user: from
all that is known of the user), at most p_max_tokens: {"text" (for a model), "tokens", "passages": [{"id", "kind",
"session", "turn_index", "object"}]}. Copies count once, the question itself gives way to what it was answered before,
and a line names its object or, by eight digits of its id, its turn or memory. What is shown stays as it is. Where a
language model is configured it is asked too, unless p_answer is false: of what is neither private nor secret, by job
model; then "answer": {"id", "state": waiting}, for query_answer. Writes fault_history. Raises PM001, PM003, PM014.';

create or replace function memoir.memory_restore(p_user text, p_session text, p_object text, p_lines text default null,
  p_reason text default null)
returns text language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_memory _memoir.memory_store := _memoir.named_object(v_caller, v_session, p_object);
  v_text text := _memoir.object_text(v_caller.user_id, v_memory.memory_id); v_range integer[];
  v_config jsonb := _memoir.config(v_caller.user_id, v_session.settings); v_turns integer;
begin
  perform _memoir.check_size('reason', p_reason, 10000);
  perform _memoir.fail('PM004', format('the turns of object %s are archived', _memoir.shown(p_object)),
    'restore_month brings them back') where v_text is null;
  if p_lines is not null then
    v_range := regexp_match(p_lines, '^\s*(\d{1,7})\s*(?:[-–]\s*(\d{1,7})\s*)?$')::integer[];
    perform _memoir.refuse_value(v_range is null or v_range[1] < 1 or v_range[2] < v_range[1], 'lines', p_lines,
      'like 40 or 40-80');
    v_text := array_to_string((string_to_array(v_text, E'\n'))[v_range[1] : coalesce(v_range[2], v_range[1])], E'\n');
  end if;
  select c.turn_count into v_turns from _memoir.session_counters c where c.user_id = v_caller.user_id
    and c.session_id = v_session.session_id for update;
  perform _memoir.note_fault(v_caller.user_id, v_session.session_id, v_memory, 'full_restore', v_turns,
    (v_config ->> 'fault_pin_turns')::integer, jsonb_build_object('question', p_reason, 'clearance',
      v_caller.clearance));
  return v_text;
end $$;
comment on function memoir.memory_restore(text, text, text, text, text) is
  'The full text of an object of the session, byte for byte as it was (p_lines, such as 40-80: those lines of it), to be
appended as the result of the call. p_object: its name as its shown forms say it, or its id. The object is pinned for
fault_pin_turns turns, twice as long from the second time on. Writes fault_history, session_objects. Raises PM001,
PM003, PM004, PM014.';

create or replace function memoir.memory_release(p_user text, p_session text, p_objects text[],
  p_reason text default null)
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v_name text; v_memory _memoir.memory_store;
begin
  perform _memoir.check_size('reason', p_reason, 10000);
  perform _memoir.fail('PM014', format('objects must be 1 to 100 names of objects, not %s',
    coalesce(cardinality(p_objects), 0))) where coalesce(cardinality(p_objects), 0) not between 1 and 100;
  perform from _memoir.session_counters c where c.user_id = v_caller.user_id
    and c.session_id = v_session.session_id for update;
  foreach v_name in array p_objects loop
    v_memory := _memoir.named_object(v_caller, v_session, v_name);
    perform _memoir.release_object(v_caller.user_id, v_session.session_id, v_memory, p_reason);
  end loop;
  return cardinality(p_objects);
end $$;
comment on function memoir.memory_release(text, text, text[], text) is
  'Objects of the session that need not be shown: stubs from the next moment on. memory_query still answers from them,
memory_restore brings them back. Returns how many. Writes session_objects. Raises PM001, PM003, PM004, PM014.';

create or replace function memoir.list_events(p_user text, p_session text default null,
  p_kinds text[] default '{admission,move,fault}', p_limit integer default 100)
returns table (recorded_at timestamptz, session text, turn_index integer, kind text, event text, object text,
  memory_id uuid, type text, content text, details jsonb)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_user uuid := v_caller.user_id; v_session uuid;
  v_levels constant text[] := '{full,detailed,compact,stub,not shown}';
begin
  perform _memoir.check_choices('kinds', p_kinds, '{admission,move,fault}');
  perform _memoir.check_count('limit', p_limit, 10000);
  if p_session is not null then v_session := (_memoir.session(v_caller, p_session)).session_id; end if;
  return query
  select e.recorded_at, s.external_id, e.turn_number, e.kind, e.event, _memoir.object_name(e.memory_id), m.memory_id,
    coalesce(e.type, m.type), m.content, jsonb_strip_nulls(e.details)
  from (
    select a.in_session as session_id, a.memory_id, a.recorded_at, a.turn_number, 'admission' as kind, a.type,
      a.score_id as id, case when a.admitted then 'admitted' else 'rejected' end as event,
      jsonb_build_object('score', a.score_total, 'threshold', a.threshold, 'type', a.score_type, 'novelty',
        a.score_novelty, 'utility', a.score_utility, 'recency', a.score_recency) as details
    from _memoir.admission_scores a where a.user_id = v_user and 'admission' = any (p_kinds)
    union all
    select t.session_id, t.memory_id, t.recorded_at, t.turn_number, 'move', null, t.transition_id, t.trigger,
      jsonb_build_object('from', v_levels[t.from_fidelity + 1], 'to', v_levels[t.to_fidelity + 1], 'zone',
        t.pressure_zone, 'list_tokens', t.token_count)
    from _memoir.fidelity_transitions t where t.user_id = v_user and 'move' = any (p_kinds)
    union all
    select f.session_id, f.memory_id, f.recorded_at, f.turn_number, 'fault', f.type, f.fault_id, f.fault_type,
      jsonb_build_object('shown', v_levels[f.fidelity + 1], 'question', case when x.may then f.question end, 'answer',
        case when x.may then f.answer end, 'answer_tokens', f.answer_tokens, 'avoided_tokens', f.avoided_tokens,
        'latency_ms', f.latency_ms)
    from _memoir.fault_history f cross join lateral (select f.clearance <= v_caller.clearance
      and v_caller.projects is null as may) x where f.user_id = v_user and 'fault' = any (p_kinds)) e
  left join _memoir.sessions s on s.user_id = v_user and s.session_id = e.session_id
  left join _memoir.memory_store m on m.user_id = v_user and m.memory_id = e.memory_id
    and m.sensitivity <= v_caller.clearance and m.state in ('active', 'superseded')
  where (v_session is null or e.session_id = v_session)
    and not _memoir.is_above(v_caller.clearance, v_user, e.memory_id)
    and (v_caller.projects is null or s.project = any (v_caller.projects))
  order by e.recorded_at desc, e.kind, e.id limit p_limit;
end $$;
comment on function memoir.list_events(text, text, text[], integer) is
  'The log of what happened to objects and memories, newest first, of one session or of all. Kinds and their events:
admission (admitted, rejected; details: score, threshold, type, novelty, utility, recency), move (pressure, access,
fault, cooperative, goal_change; details: from, to, zone, list_tokens), fault (micro_fault: a question answered from
it, full_restore, page_fault: fetched again, entropy_triggered; details: fidelity as "shown", question, answer,
answer_tokens, avoided_tokens, latency_ms). What is above the caller''s clearance is left out. A question and its
answer go when an item of the answer leaves recall, and are hidden from logins of a lower clearance than the asker''s
and from those bound to projects. Raises PM001, PM003, PM014.';
