-- Upstream calls, byte for byte: bytea, since jsonb would reorder keys and drop duplicates.

create or replace function memoir.capture_call(p_user text, p_session text, p_request bytea,
  p_response bytea default null, p_provider text default null, p_model text default null, p_status integer default null,
  p_latency_ms integer default null, p_started_at timestamptz default null, p_request_headers jsonb default '{}',
  p_response_headers jsonb default '{}', p_events bytea[] default '{}', p_event_times timestamptz[] default null,
  p_metadata jsonb default '{}')
returns uuid language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_call uuid := gen_random_uuid(); v_now timestamptz := memoir.now(); v_limit integer;
  v_metadata jsonb := coalesce(nullif(p_metadata, 'null'), '{}'); v_bytes bytea; v_text text;
begin
  perform _memoir.check_session_project(v_caller, p_session);
  perform _memoir.check_object('request_headers', p_request_headers),
    _memoir.check_object('response_headers', p_response_headers), _memoir.check_object('metadata', v_metadata),
    _memoir.check_short('provider', p_provider, 200), _memoir.check_short('model', p_model, 200);
  if p_request is null then perform _memoir.fail('PM014', 'request must not be null'); end if;
  perform _memoir.check_range('latency_ms', p_latency_ms, 0, 2147483647),
    _memoir.check_range('status', p_status, 0, 999);
  perform _memoir.refuse_value(array_ndims(p_events) > 1 or array_position(p_events, null) is not null, 'events',
    p_events, 'a plain list without nulls');
  if p_event_times is not null and cardinality(p_event_times) <> coalesce(cardinality(p_events), 0) then
    perform _memoir.fail('PM014', format('%s events have %s times', coalesce(cardinality(p_events), 0),
      cardinality(p_event_times)));
  end if;
  v_limit := (select (config ->> 'text_bytes_max')::integer from _memoir.settings_merged);
  perform _memoir.fail('PM012', format('%s is %s bytes, more than text_bytes_max = %s', f.name, octet_length(f.bytes),
    v_limit))
  from (values (1, 'request', p_request), (2, 'response', p_response)
        union all select o + 2, format('events[%s]', o - 1), e from unnest(p_events) with ordinality t(e, o)
        order by 1) f(place, name, bytes)
  where octet_length(f.bytes) > v_limit;
  perform _memoir.touch_user(v_caller, p_user), _memoir.ensure_month(v_caller.user_id, v_now);
  -- A caller bound to projects leaves nothing outside them: a new session is opened in the caller's own.
  if v_caller.projects is not null then
    perform _memoir.open_session(v_caller, p_user, p_session, null, null, null, null, null, '{}', '{}')
    where not exists (select from _memoir.sessions where user_id = v_caller.user_id
      and session_id = _memoir.session_id(v_caller.user_id, p_session));
  end if;
  v_bytes := p_request || coalesce(p_response, '') || coalesce((select string_agg(e, '' order by o)
    from unnest(p_events) with ordinality t(e, o)), '');
  begin
    v_text := convert_from(v_bytes, 'UTF8');
  exception when others then
    v_text := regexp_replace(encode(v_bytes, 'escape'), '\\[0-3][0-7]{2}', ' ', 'g');
  end;
  -- A call is as secret as what its bytes look like. JSON's escapes stand between words like the characters they are.
  insert into _memoir.api_calls values (v_caller.user_id, v_call, v_now,
    _memoir.session_id(v_caller.user_id, p_session), p_provider, p_model,
    p_status, p_latency_ms, p_started_at, _memoir.harmless_headers(p_request_headers),
      _memoir.harmless_headers(p_response_headers),
    p_request, p_response, v_metadata, case when _memoir.detected(_memoir.config(v_caller.user_id, null),
      regexp_replace(v_text, '\\+["\\/bfnrt]', ' ', 'g')) = '{}' then 'normal' else 'secret' end::_memoir.sensitivity,
    p_session);
  insert into _memoir.stream_events (user_id, call_id, seq, recorded_at, received_at, event)
  select v_caller.user_id, v_call, o, v_now, p_event_times[o], e from unnest(p_events) with ordinality t(e, o);
  return v_call;
end $$;
comment on function memoir.capture_call(text, text, bytea, bytea, text, text, integer, integer, timestamptz, jsonb,
  jsonb, bytea[], timestamptz[], jsonb) is
  'Keeps an upstream call as it was sent and answered, with the events of a stream in order. Of the headers those
are kept that are known to hold no credentials, such as user-agent and content-type.
Returns the call''s id. Writes api_calls, stream_events. Raises PM001, PM012, PM014.';

-- The session need not be there yet; where it is, its project must be the caller's.
create or replace function _memoir.check_session_project(p_caller _memoir.caller, p_session text)
returns void language plpgsql stable as $$
begin
  perform _memoir.check_name('session', p_session, 500);
  perform _memoir.check_session_of(p_caller, p_session, s.project) from _memoir.sessions s
  where s.user_id = p_caller.user_id and s.session_id = _memoir.session_id(p_caller.user_id, p_session);
end $$;

-- Returns the headers that hold no credentials. It lists the harmless ones, because nobody knows every name of a
-- secret. The gateway has the same list (exchange.py), so it sends no others.
create or replace function _memoir.harmless_headers(p_headers jsonb)
returns jsonb language sql immutable as $$
  select coalesce(jsonb_object_agg(key, value) filter (where lower(key) ~ (
      '^(accept(-encoding|-language)?|anthropic-(version|beta|ratelimit-[a-z-]+)|cf-ray|content-(encoding|length|type)'
        '|date'
      '|(x-)?idempotency-key|openai-(beta|model|processing-ms|version)|(x-|x-client-)?request-id|retry-after(-ms)?'
        '|server'
      '|(x-)?session[-_]id|user-agent|via|x-app|x-claude-code-(agent-id|request-class|session-id)|x-openai-subagent'
      '|x-opencode-(client|project|request|session)|x-ratelimit-[a-z-]+|x-should-retry'
      '|x-stainless-(arch|async|helper|helper-method|lang|os|package-version|read-timeout|retry-count|runtime'
        '|runtime-version'
      '|timeout))$')), '{}')
  from jsonb_each(case when jsonb_typeof(p_headers) = 'object' then p_headers else '{}' end)
$$;

create or replace function memoir.read_call(p_user text, p_call uuid)
returns table (seq integer, kind text, body bytea, received_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_call _memoir.api_calls;
begin
  select * into v_call from _memoir.api_calls c where c.user_id = v_caller.user_id and c.call_id = p_call;
  if not found or v_call.sensitivity > v_caller.clearance
    or not _memoir.may_read_calls(v_caller, v_call.session_id) then
    perform _memoir.fail('PM004', format('unknown call %s', _memoir.shown(p_call::text)));
  end if;
  return query select c.* from (
  select -1, 'request'::text, v_call.request, v_call.started_at
  union all select 0, 'response', v_call.response, v_call.recorded_at where v_call.response is not null
  union all (select e.seq, 'event', e.event, e.received_at from _memoir.stream_events e
             where e.user_id = v_caller.user_id and e.call_id = p_call and e.recorded_at = v_call.recorded_at)) c(seq,
               kind, body, received_at)
  order by c.seq;
end $$;
comment on function memoir.read_call(text, uuid) is
  'A captured call for replay: its request (seq -1), response (0) and stream events (from 1), byte for byte. A call
that holds a secret, or whose session does, is unknown to callers without clearance for it. Raises PM001, PM004.';

-- A call carries the messages of its session. That of one that was never opened belongs to no project.
create or replace function _memoir.may_read_calls(p_caller _memoir.caller, p_session_id uuid)
returns boolean language plpgsql stable as $$
declare
  v_session _memoir.sessions; v_part record; v_marks jsonb;
begin
  select * into v_session from _memoir.sessions s where s.user_id = p_caller.user_id and s.session_id = p_session_id;
  if p_caller.projects is not null and coalesce(v_session.project <> all (p_caller.projects), true) then
    return false;
  end if;
  if v_session.session_id is null or p_caller.clearance = 'secret' then return true; end if;
  -- Neither the session nor what it branched from may hold a turn above the clearance.
  for v_part in select * from _memoir.lineage(v_session) loop
    v_marks := _memoir.marks(v_session.user_id, v_part.session_id);
    if exists (select from _memoir.conversation_history h
      where h.user_id = v_session.user_id and h.session_id = v_part.session_id
        and h.recorded_at between v_part.since and v_part.until
        and h.turn_index between v_part.from_turn and v_part.to_turn
        and _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks) > p_caller.clearance) then
      return false;
    end if;
  end loop;
  return true;
end $$;

create or replace function memoir.list_calls(p_user text, p_session text default null, p_limit integer default 100,
  p_after uuid default null)
returns table (call_id uuid, session text, recorded_at timestamptz, started_at timestamptz, provider text, model text,
  status integer, latency_ms integer, request_headers jsonb, response_headers jsonb, metadata jsonb,
  request_bytes integer, response_bytes integer, events integer)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_user uuid := v_caller.user_id; v_at timestamptz; v_seen jsonb := '{}'; v_key text; v_rows integer := 0;
begin
  perform _memoir.check_count('limit', p_limit, 10000);
  if p_session is not null then perform _memoir.check_session_project(v_caller, p_session); end if;
  if p_after is not null then
    select c.recorded_at into v_at from _memoir.api_calls c where c.user_id = v_user and c.call_id = p_after;
    if not found then perform _memoir.fail('PM004', format('unknown call %s', _memoir.shown(p_after::text))); end if;
  end if;
  for call_id, session, recorded_at, started_at, provider, model, status, latency_ms, request_headers, response_headers,
    metadata, request_bytes, response_bytes, events, v_key in
    select c.call_id, c.session_name, c.recorded_at, c.started_at, c.provider, c.model, c.status, c.latency_ms,
      c.request_headers, c.response_headers, c.metadata, octet_length(c.request), octet_length(c.response),
      (select count(*) from _memoir.stream_events e where e.user_id = v_user and e.call_id = c.call_id
        and e.recorded_at = c.recorded_at), c.session_id
    from _memoir.api_calls c
    where c.user_id = v_user and c.sensitivity <= v_caller.clearance
      and (p_session is null or c.session_id = _memoir.session_id(v_user, p_session))
      and (v_at is null or (c.recorded_at, c.call_id) < (v_at, p_after))
    order by c.recorded_at desc, c.call_id desc
  loop
    if not v_seen ? v_key then
      v_seen := v_seen || jsonb_build_object(v_key, _memoir.may_read_calls(v_caller, v_key::uuid));
    end if;
    continue when not (v_seen ->> v_key)::boolean;
    return next;
    v_rows := v_rows + 1;
    exit when v_rows = p_limit;
  end loop;
end $$;
comment on function memoir.list_calls(text, text, integer, uuid) is
  'Captured calls of a user, or of one session, newest first, p_limit at a time behind the call p_after: what
capture_call was given with each, and how long its parts are, which read_call has byte for byte. Calls above the
caller''s clearance, or of sessions that hold something above it, are left out. Raises PM001, PM003, PM004, PM014.';
