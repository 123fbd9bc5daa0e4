-- Events for readers outside (changes of memories, failed jobs) and webhooks. At least once, a user's in their order.
--
-- A number from a sequence is no cursor: a transaction that commits late would have its events skipped. Here a cursor
-- is a snapshot. A reader gets the events that it can see now and its cursor's snapshot could not, so each event is in
-- exactly one step between two snapshots, whenever it commits. In a step the order is event_id. A user's writers take
-- turns by the user's lock and draw numbers while they hold it, so a later event has a greater number, in this step or
-- in a later one. xid order would not do: a transaction may have its xid before it waits for the lock.
--
-- A crash may give an xid out again whose transaction left nothing on disk. So a cursor ends at the newest transaction
-- whose event was seen: its commit is on disk, and no xid up to it comes again. A standby's snapshot does not list the
-- transactions that are open, so a reader there gets what is older than all of them.

create or replace function _memoir.event_types()
returns text[] language sql immutable as $$select '{memory.added,memory.changed,memory.forgotten,job.failed}'::text[]$$;

-- Returns {"events", "cursor", "more"} behind a cursor, or behind what there is for 'now'; p_user_id: of one user.
create or replace function _memoir.events_after(p_user_id uuid, p_after text, p_types text[], p_limit integer)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$  -- a user's partitions alone
declare
  v_parts text[]; v_from pg_snapshot; v_to pg_snapshot; v_id bigint := 0; v_max bigint; v_rows _memoir.outbox[];
  v_now pg_snapshot := pg_current_snapshot(); v_all boolean := _memoir.sees_all();
  v_server text := (select system_identifier from pg_control_system()); v_none constant uuid := _memoir.no_session();
  v_clearance _memoir.sensitivity := _memoir.own_clearance(); v_projects text[] := _memoir.bound_projects();
begin
  if pg_is_in_recovery() then v_now := format('%1$s:%1$s:', pg_snapshot_xmin(v_now)); end if;
  begin
    v_parts := string_to_array(coalesce(nullif(p_after, 'now'), v_server || '/1:1:'), '/');
    v_from := v_parts[2]; v_to := v_parts[3]; v_id := coalesce(v_parts[4]::bigint, 0);
  exception when data_exception then v_parts := null; end;
  if (v_parts[1] = v_server and v_from is not null) is not true then
    perform _memoir.fail('PM014', format('after is no cursor of this server: %s', _memoir.shown(p_after)),
      'begin without a cursor: you get all events that are kept');
  end if;
  if v_to is null then  -- a new step
    select max(greatest(o.xact_id::text::bigint + 1, pg_snapshot_xmax(v_from)::text::bigint)) into v_max
    from _memoir.outbox o where o.xact_id >= pg_snapshot_xmin(v_from) and not pg_visible_in_snapshot(o.xact_id, v_from)
      and pg_visible_in_snapshot(o.xact_id, v_now) and (p_user_id is null or o.user_id in (p_user_id, v_none));
    v_to := case when v_max is null then v_from else (
      select format('%s:%s:%s', coalesce(min(x), v_max), v_max, string_agg(x::text, ',' order by x))::pg_snapshot
      from (select x::text::bigint as x from pg_snapshot_xip(v_now) x union select x::text::bigint
        from pg_snapshot_xip(v_from) x where not pg_visible_in_snapshot(x, v_now)) y where x < v_max) end;
    if v_max is null or p_after = 'now' then
      return jsonb_build_object('events', '[]'::jsonb, 'more', false, 'cursor', v_server || '/' || v_to);
    end if;
  end if;
  v_rows := array(select o from _memoir.outbox o
    where o.event_id > v_id and o.xact_id >= pg_snapshot_xmin(v_from) and not pg_visible_in_snapshot(o.xact_id, v_from)
      and pg_visible_in_snapshot(o.xact_id, v_to) and (p_user_id is null or o.user_id in (p_user_id, v_none))
      and (p_types is null or o.type = any (p_types) or o.type = 'events.dropped') order by o.event_id limit p_limit);
  return jsonb_build_object('more', cardinality(v_rows) = p_limit or v_parts[3] is not null,  -- another step may follow
    'cursor', concat_ws('/', v_server, case when cardinality(v_rows) = p_limit then v_from end, v_to,
      case when cardinality(v_rows) = p_limit then v_rows[p_limit].event_id end),
    'events', (select coalesce(jsonb_agg(jsonb_build_object('id', o.event_id, 'type', o.type, 'timestamp',
        o.recorded_at, 'cursor', concat_ws('/', v_server, v_from, v_to, o.event_id), 'data', jsonb_strip_nulls(
        jsonb_build_object('user', u.external_id, 'user_id', nullif(o.user_id, v_none), 'memory_id', o.memory_id,
          case when o.type = 'job.failed' then 'job' else 'state' end, o.subject, 'memory_type', m.type, 'project',
          m.project))) order by o.event_id), '[]')
      from unnest(v_rows) o left join _memoir.users u on u.user_id = o.user_id and (p_user_id is null or
        u.user_id = p_user_id) left join _memoir.memory_store m on m.user_id = o.user_id and m.memory_id = o.memory_id
        and (p_user_id is null or m.user_id = p_user_id)
      where o.type = 'events.dropped' or coalesce(m.sensitivity <= v_clearance, true)
        and (v_projects is null or m.project = any (v_projects))
        and (o.user_id = p_user_id or p_user_id is null and (v_all or o.user_id in (select _memoir.visible_users())))));
end $$;

create or replace function memoir.read_events(p_user text default null, p_after text default null,
  p_types text[] default null, p_limit integer default 1000)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_user uuid := case when p_user is not null then (_memoir.authorise(p_user, 'read')).user_id end;
begin
  perform _memoir.check_choices('types', p_types, _memoir.event_types()), _memoir.check_count('limit', p_limit, 10000);
  if (select (config ->> 'outbox_days')::integer from _memoir.settings_merged) = 0 then
    perform _memoir.fail('PM014', 'outbox_days is 0: no events are recorded',
      'select set_setting(''outbox_days'', ''7'')');
  end if;
  return _memoir.events_after(v_user, p_after, p_types, p_limit);
end $$;
comment on function memoir.read_events(text, text, text[], integer) is
  'Events of a user, or of all users that the caller may read, behind a cursor: {"events", "cursor", "more"}. Without
p_after all that are kept, with ''now'' none, only the cursor. An event has "id", "type", "timestamp", its own "cursor"
and "data": ids and states, no text. Types: memory.added, memory.changed, memory.forgotten, job.failed (a dead letter,
or for admins a failed run of a job). Also events.dropped: setting outbox_days took away what was not read. At
least once, a user''s events in order. LISTEN memoir_outbox wakes readers. Writes nothing. Raises PM001, PM014.';

create or replace function memoir.add_webhook(p_url text, p_types text[] default null, p_secret text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_id bigint; v_secret text := coalesce(p_secret, 'whsec_' || encode(gen_random_bytes(24), 'base64'));
begin
  perform _memoir.authorise_admin(), _memoir.check_short('url', p_url, 2000), _memoir.check_short('secret', p_secret,
    200), _memoir.check_choices('types', p_types, _memoir.event_types());
  if (starts_with(p_url, 'https://') or starts_with(p_url, 'http://')) is not true then
    perform _memoir.fail('PM014', format('url must begin with https://, not %s', _memoir.shown(p_url)));
  end if;
  perform memoir.set_setting('outbox_days', '7') from _memoir.settings_merged where config -> 'outbox_days' = '0';
  insert into _memoir.work_items (kind, user_id, dedup_key, run_after, created_at, payload)
  select 'webhook', _memoir.no_session(), p_url, clock_timestamp(), memoir.now(), jsonb_build_object('secret', v_secret,
    'types', p_types, 'cursor', _memoir.events_after(null, 'now', null, 1) ->> 'cursor')
  where not exists (select from _memoir.work_items where kind = 'webhook' and dedup_key = p_url)
  returning work_id into v_id;
  if v_id is null then perform _memoir.fail('PM014', format('there is a webhook for %s', _memoir.shown(p_url))); end if;
  perform _memoir.audit('add_webhook', jsonb_build_object('webhook', v_id, 'url', p_url));
  return jsonb_build_object('webhook', v_id, 'secret', v_secret);
end $$;
comment on function memoir.add_webhook(text, text[], text) is
  'Has a worker send events from now on to an URL, signed as Standard Webhooks: {"webhook": its number, "secret"}.
p_types: types of read_events, null for all. p_secret: whsec_ and base64, by default made here. Sets outbox_days to 7 if
it is 0. One that fails for webhook_hours, or answers 410, is disabled: a dead letter of kind webhook, which retry_work
enables where it stopped. Admin only. Raises PM001, PM014.';

create or replace function memoir.list_webhooks()
returns table (webhook bigint, url text, types text[], state text, failures integer, failing_since timestamptz,
  last_error text, secret text, aside jsonb)
language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  return query select w.work_id, w.dedup_key, p.types, case when w.state = 'dead' then 'disabled' when p.failures > 0
    then 'failing' else 'active' end, coalesce(p.failures, 0), p.failing_since, w.last_error, p.secret,
    coalesce(p.aside, '[]')
  from _memoir.work_items w, jsonb_to_record(w.payload) p(types text[], failures integer, failing_since timestamptz,
    secret text, aside jsonb) where w.kind = 'webhook' order by w.work_id;
end $$;
comment on function memoir.list_webhooks() is
  'The webhooks: number, URL, types, state (active, failing, disabled), how often in a row and since when it failed, the
error, the secret, and events set aside ("event", "after": a cursor before it, "error"). Admin only. Raises PM001.';

create or replace function memoir.remove_webhook(p_webhook bigint, p_event bigint default null)
returns boolean language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  if p_event is not null then
    update _memoir.work_items set payload = jsonb_set(payload, '{aside}', (select coalesce(jsonb_agg(e), '[]')
      from jsonb_array_elements(payload -> 'aside') e where e -> 'event' <> to_jsonb(p_event)))
    where kind = 'webhook' and work_id = p_webhook
      and payload -> 'aside' @> jsonb_build_array(jsonb_build_object('event', p_event));
  else delete from _memoir.work_items where kind = 'webhook' and work_id = p_webhook; end if;
  if found then perform _memoir.audit('remove_webhook', jsonb_strip_nulls(jsonb_build_object('webhook', p_webhook,
    'event', p_event))); end if;
  return found;
end $$;
comment on function memoir.remove_webhook(bigint, bigint) is
  'Removes a webhook, or with p_event an event set aside for it; false where there is none. Admin only. Raises PM001.';

create or replace function memoir.claim_webhook(p_limit integer default 200)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items;
begin
  perform _memoir.authorise_worker(), _memoir.check_count('limit', p_limit, 10000);
  v_work := _memoir.take_work('webhook', 60, array(select w.dedup_key from _memoir.work_items w where w.kind = 'webhook'
    and w.state <> 'dead' and w.run_after <= greatest(clock_timestamp(), memoir.now())
    and w.payload ->> 'cursor'
      is distinct from _memoir.events_after(null, w.payload ->> 'cursor', null, 1) ->> 'cursor'));
  if v_work.work_id is null then return null; end if;
  update _memoir.work_items set attempts = 0 where work_id = v_work.work_id;  -- failures are counted in the payload
  return jsonb_build_object('work_id', v_work.work_id, 'lease_id', v_work.lease_id, 'url', v_work.dedup_key)
    || (v_work.payload - '{cursor,types}'::text[]) || _memoir.events_after(null, v_work.payload ->> 'cursor',
      (select array_agg(x) from jsonb_array_elements_text(nullif(v_work.payload -> 'types', 'null')) x), p_limit);
end $$;
comment on function memoir.claim_webhook(integer) is
  'Leases for 60 s a webhook that has something to send: {"work_id", "lease_id", "url", "secret", "failures", "aside"}
and what read_events answers; null: none has. Service, jobs and admin logins only. Raises PM001, PM014.';

create or replace function memoir.store_webhook(p_work bigint, p_lease uuid, p_cursor text, p_error text default null,
  p_final boolean default false, p_aside jsonb default null)
returns text language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items; v_new jsonb; v_since timestamptz; v_failures integer; v_state text;
  v_now timestamptz := greatest(clock_timestamp(), memoir.now());
begin
  perform _memoir.authorise_worker();
  v_work := _memoir.leased(p_work, p_lease);
  if v_work.work_id is null then return 'lost'; end if;
  v_new := v_work.payload || jsonb_build_object('cursor', coalesce(p_cursor, v_work.payload ->> 'cursor'), 'aside',
    coalesce(v_work.payload -> 'aside', '[]') || coalesce(_memoir.check_object('aside', p_aside), '[]'));
  if p_error is null or v_new <> v_work.payload then v_new := v_new - '{failures,failing_since}'::text[]; end if;
  v_failures := coalesce((v_new ->> 'failures')::integer, 0);
  v_since := coalesce((v_new ->> 'failing_since')::timestamptz, v_now);
  v_state := case when p_error is null then 'active' when p_final or v_since < v_now - make_interval(
    hours => (select (config ->> 'webhook_hours')::integer from _memoir.settings_merged)) then 'disabled'
    else 'failing' end;
  update _memoir.work_items set last_error = left(p_error, 1000), payload = case when v_state = 'failing' then v_new
    || jsonb_build_object('failures', v_failures + 1, 'failing_since', v_since)
    else v_new - '{failures,failing_since}'::text[] end where work_id = p_work;
  if v_state = 'disabled' then perform _memoir.give_back(v_work, p_error, null, true);
  else  -- it waits 2, 4, 8 ... seconds up to an hour, half of it at random
    perform _memoir.requeue(v_work, 0, v_now + make_interval(secs => case when v_state = 'active' then 0
      else least(3600, power(2, least(v_failures, 11) + 1)) * (0.5 + random() / 2) end));
  end if;
  return v_state;
end $$;
comment on function memoir.store_webhook(bigint, uuid, text, text, boolean, jsonb) is
  'Says how far a claimed webhook was sent (p_cursor, null: nothing) and what ended it: active, failing (it waits
longer each time), disabled (p_final, or too long), lost (the lease ran out). p_aside: an event to set aside. Service,
jobs and admin logins only. Raises PM001, PM014.';
