-- Upstream calls, byte for byte: bytea, since jsonb would reorder keys and drop duplicates.

create or replace function memoir.capture_call(p_user text, p_session text, p_request bytea, p_response bytea default null,
  p_provider text default null, p_model text default null, p_status integer default null, p_latency_ms integer default null,
  p_started_at timestamptz default null, p_request_headers jsonb default '{}', p_response_headers jsonb default '{}',
  p_events bytea[] default '{}', p_event_times timestamptz[] default null, p_metadata jsonb default '{}')
returns uuid language plpgsql security definer set search_path from current as $$
declare
  v_caller memoir.caller := memoir._authorise(p_user, 'write');
  v_call uuid := gen_random_uuid(); v_now timestamptz := memoir.now(); v_limit integer; v_secret text;
begin
  perform memoir._check_session(p_session);
  if p_request is null then perform memoir._fail('PM014', 'request must not be null'); end if;
  if p_latency_ms < 0 then perform memoir._fail('PM014', format('latency_ms must not be negative, it is %s', p_latency_ms)); end if;
  if p_status not between 0 and 999 then perform memoir._fail('PM014', format('status must be an HTTP status, not %s', p_status)); end if;
  if p_event_times is not null and cardinality(p_event_times) <> coalesce(cardinality(p_events), 0) then
    perform memoir._fail('PM014', format('%s events have %s times', coalesce(cardinality(p_events), 0), cardinality(p_event_times)));
  end if;
  v_limit := (select (config ->> 'text_bytes_max')::integer from memoir.settings_merged);
  if octet_length(p_request) > v_limit or octet_length(p_response) > v_limit then
    perform memoir._fail('PM012', format('request or response is %s bytes, more than text_bytes_max = %s', greatest(octet_length(p_request), octet_length(p_response)), v_limit));
  end if;
  perform memoir._touch_user(v_caller, p_user);
  perform memoir._ensure_month(v_caller.user_id, v_now);
  -- Credentials are no part of what has to be replayed.
  insert into memoir.api_calls values (v_caller.user_id, v_call, v_now, memoir._session_id(v_caller.user_id, p_session), p_provider, p_model,
    p_status, p_latency_ms, p_started_at, memoir._without_credentials(p_request_headers), memoir._without_credentials(p_response_headers),
    p_request, p_response, coalesce(p_metadata, '{}'));
  insert into memoir.stream_events (user_id, call_id, seq, recorded_at, received_at, event)
  select v_caller.user_id, v_call, o, v_now, p_event_times[o], e from unnest(p_events) with ordinality t(e, o);
  return v_call;
end $$;
comment on function memoir.capture_call(text, text, bytea, bytea, text, text, integer, integer, timestamptz, jsonb, jsonb, bytea[], timestamptz[], jsonb) is
  'Keeps an upstream call as it was sent and answered, with the events of a stream in order. Credential headers are dropped.
Returns the call''s id. Writes api_calls, stream_events. Raises PM001, PM012, PM014.';

create or replace function memoir._without_credentials(p_headers jsonb)
returns jsonb language sql immutable as $$
  select coalesce(jsonb_object_agg(key, value) filter (where lower(key) !~ '(authorization|api-?key|cookie|token|secret)'), '{}')
  from jsonb_each(case when jsonb_typeof(p_headers) = 'object' then p_headers else '{}' end)
$$;

create or replace function memoir.read_call(p_user text, p_call uuid)
returns table (seq integer, kind text, body bytea, received_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller memoir.caller := memoir._authorise(p_user, 'read');
  v_call memoir.api_calls;
begin
  select * into v_call from memoir.api_calls c where c.user_id = v_caller.user_id and c.call_id = p_call;
  if not found then perform memoir._fail('PM004', format('unknown call %s', memoir._shown(p_call::text))); end if;
  return query
  select -1, 'request'::text, v_call.request, v_call.started_at
  union all select 0, 'response', v_call.response, v_call.recorded_at where v_call.response is not null
  union all (select e.seq, 'event', e.event, e.received_at from memoir.stream_events e
             where e.user_id = v_caller.user_id and e.call_id = p_call and e.recorded_at = v_call.recorded_at order by e.seq);
end $$;
comment on function memoir.read_call(text, uuid) is
  'A captured call for replay: its request (seq -1), response (0) and stream events (from 1), byte for byte. Raises PM001, PM004.';
