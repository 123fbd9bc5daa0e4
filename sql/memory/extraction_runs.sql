-- Extraction of sessions: asked for, or as a job. What was said takes effect in the order of turns.

-- The next turns of a session to extract, through which the cursor then goes, and whether a language model reads them;
-- none where the session does not extract, or (through is null) where the cursor is no longer at p_from.
create or replace function _memoir.turns_to_read(p_user_id uuid, p_session_id uuid, p_limit integer, p_from integer,
  out session _memoir.sessions, out counters _memoir.session_counters, out config jsonb,
  out turns _memoir.conversation_history[], out through integer, out has_model boolean)
language plpgsql stable as $$
begin
  select * into session from _memoir.sessions s where s.user_id = p_user_id and s.session_id = p_session_id;
  select * into counters from _memoir.session_counters c where c.user_id = p_user_id and c.session_id = p_session_id;
  turns := '{}';
  if counters.extracted_through is distinct from coalesce(p_from, counters.extracted_through) then return; end if;
  config := _memoir.config(p_user_id, session.settings);
  has_model := config ->> 'llm_provider' <> 'none' and config ->> 'llm_model' <> '';
  through := least(counters.turn_count, counters.extracted_through + p_limit);
  if (config ->> 'extraction')::boolean then
    turns := _memoir.turns_to_extract(counters, counters.extracted_through, p_limit);
  end if;
end $$;

-- Extracts up to p_limit turns of a session. Read without a lock, since turns never change; stored under the locks, if
-- nobody else was first. {"turns", "left", and how many were stored, duplicate, ...}; null when another run or a writer
-- is at the session. The month of now has its partitions.
create or replace function _memoir.extract_turns(p_user_id uuid, p_session_id uuid, p_limit integer, p_by text,
  p_wait boolean)
returns jsonb language plpgsql as $$
declare
  v record; v_reading jsonb; v_results jsonb; v_socket text;
begin
  select * into v from _memoir.turns_to_read(p_user_id, p_session_id, p_limit, null);
  if v.through is null then return jsonb_build_object('turns', 0, 'left', 0); end if;
  v_socket := v.config ->> 'embedder_socket';
  if v.turns <> '{}' then
    if not _memoir.reads_language() then
      perform _memoir.fail('PM050', 'reading turns needs PL/Python on this server', 'pg-memoir worker reads them');
    end if;
    v_reading := _memoir.py_read('read_turns', _memoir.turns_as_read(v.turns)::text, v_socket);
    if v_reading -> 'stating' <> '[]' or v_reading -> 'requests' <> '[]' then
      v_results := _memoir.py_read('read_context', _memoir.reading_context(v.turns, v_reading, v.config,
        v.has_model)::text, v_socket);
    end if;
  end if;
  return _memoir.store_reading(v.session, v.counters, v.turns, v.through, v_reading, v_results, p_by, p_wait, v.config,
    v.has_model);
end $$;

-- Stores what was read of turns, and moves the cursor. Null when another run or a writer is at the session.
create or replace function _memoir.store_reading(p_session _memoir.sessions, p_counters _memoir.session_counters,
  p_turns _memoir.conversation_history[], p_through integer, p_reading jsonb, p_results jsonb, p_by text,
  p_wait boolean, p_config jsonb, p_has_model boolean)
returns jsonb language plpgsql as $$
declare
  v_user uuid := p_session.user_id; v_locked _memoir.session_counters; v_counts jsonb := '{}'; v_all jsonb[] := '{}';
  v_found _memoir.extracted[]; i integer;
  -- Where a model reads what was said, rules end nothing, because what they find is provisional.
  v_read _memoir.turn_changes[] := array(select t from jsonb_populate_recordset(null::_memoir.turn_changes,
    p_results -> 'turns') t where not p_has_model);
begin
  -- The session's counters, then the user's, as everywhere.
  if p_wait then
    select * into v_locked from _memoir.session_counters where user_id = v_user
      and session_id = p_session.session_id for update;
  else
    select * into v_locked from _memoir.session_counters where user_id = v_user
      and session_id = p_session.session_id for update skip locked;
  end if;
  if v_locked.session_id is null or v_locked.extracted_through <> p_counters.extracted_through then return null; end if;
  if p_reading is not null and (p_reading -> 'found' <> '[]' or p_reading -> 'requests' <> '[]' or v_read <> '{}'
    or p_reading -> 'experiences' <> '[]') then
    if p_wait then
      perform from _memoir.user_counters where user_id = v_user for update;
    else
      perform from _memoir.user_counters where user_id = v_user for update skip locked;
      if not found then return null; end if;
    end if;
    v_found := array(select jsonb_populate_record(null::_memoir.extracted, case when p_has_model
        then e.one - 'slot' - 'slot_value' else e.one end)
      from jsonb_array_elements(p_reading -> 'found') with ordinality e(one, o) order by e.o);
    v_all := array_append(v_all, _memoir.enter_found(p_session, p_turns, v_found, p_by, 'rules 1', false, p_config,
      v_read));
    perform _memoir.enter_experience(p_session, p_reading -> 'experiences', p_by, p_config);
    for i in select n from unnest(array(select (r ->> 'text_no')::integer from jsonb_array_elements(p_reading
        -> 'requests') r) || array(select r.text_no from unnest(v_read) r)) n group by n order by n loop
      v_all := array_append(v_all, _memoir.take_effect(p_session, p_turns[i], array(
        select c from unnest(v_read) r, unnest(r.changes) c where r.text_no = i), p_by, p_config));
      v_all := v_all || array(
        select jsonb_build_object(case _memoir.forget_meant(p_turns[i], q.r, p_results -> 'requests'
          -> (q.o - 1)::integer, false, p_by) ->> 'outcome' when 'forgotten' then 'forgotten' else 'unclear' end, 1)
        from jsonb_array_elements(p_reading -> 'requests') with ordinality q(r, o)
        where (q.r ->> 'text_no')::integer = i order by q.o);
    end loop;
    select coalesce(jsonb_object_agg(key, total), '{}') into v_counts from (
      select e.key, sum(e.value::bigint) as total from unnest(v_all) c, jsonb_each_text(c) e group by e.key) x;
  end if;
  update _memoir.session_counters set extracted_through = p_through
  where user_id = v_user and session_id = p_session.session_id and extracted_through <> p_through;
  perform _memoir.enqueue_unlocked('extract', v_user, format('%s:%s', p_session.session_id,
    p_counters.extracted_through), memoir.now(), jsonb_build_object('session_id', p_session.session_id,
    'from', p_counters.extracted_through, 'to', p_through)) where p_has_model and p_turns <> '{}';
  if p_through >= v_locked.turn_count then
    -- Who is at a unit of it finds nothing left.
    delete from _memoir.work_items where work_id in (select work_id from _memoir.work_items
      where kind = 'turns' and user_id = v_user and dedup_key = p_session.session_id::text for update skip locked);
  end if;
  return v_counts || jsonb_build_object('turns', p_through - p_counters.extracted_through, 'left',
    v_locked.turn_count - p_through);
end $$;

-- A batch of the job begins a unit, the next one does it: p_limit turns of the session that waits longest, fewer with
-- each attempt, so that what can be extracted is.
create or replace function _memoir.step_extract(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_work _memoir.work_items; v_result jsonb; v_error text;
  v_run text := coalesce((select run_id::text from _memoir.job_leases where job = 'extract'
    and backend = pg_backend_pid()), 'none');
begin
  if not _memoir.reads_language() then return jsonb_build_object('more', false); end if;
  select * into v_work from _memoir.work_items where kind = 'turns' and state = 'leased' and payload ? 'run'
  order by work_id limit 1 for update skip locked;
  if not found then
    -- Leased until job_unit_seconds from now, when cancel_overdue ends the run that is at it. The lease is committed
    -- before the work begins, so that an attempt counts whatever becomes of its process.
    v_work := _memoir.take_work('turns', (config ->> 'job_unit_seconds')::integer) from _memoir.settings_merged;
    update _memoir.work_items set payload = payload || jsonb_build_object('run', v_run)
    where work_id = v_work.work_id;
    return jsonb_build_object('more', v_work.work_id is not null, 'begun', true);
  end if;
  if v_work.payload ->> 'run' <> v_run then
    v_error := 'the run that extracted it ended before it did';
  else
    begin
      if _memoir.is_free(v_work.user_id, v_work.dedup_key::uuid) then
        v_result := _memoir.extract_turns(v_work.user_id, v_work.dedup_key::uuid,
          greatest(1, p_limit >> least(30, 2 * (v_work.attempts - 1))), _memoir.login(), false);
      end if;
    exception
      when lock_not_available or deadlock_detected then v_result := null;
      when query_canceled then
        if clock_timestamp() < v_work.leased_until then raise; end if;
        v_error := 'it took longer than job_unit_seconds';
      when others then v_error := sqlstate || ' ' || sqlerrm;
    end;
  end if;
  if v_error is not null then
    perform _memoir.give_back(v_work, v_error);
    return jsonb_build_object('more', true, 'failed', 1, 'error', format('session %s: %s', v_work.dedup_key, v_error));
  end if;
  -- Somebody is at it: later, and the next session first.
  if v_result is null then
    perform _memoir.requeue(v_work, v_work.attempts - 1, greatest(memoir.now(), clock_timestamp())
      + interval '30 seconds');
    return jsonb_build_object('more', true, 'busy', 1);
  end if;
  if (v_result ->> 'left')::integer > 0 then
    perform _memoir.requeue(v_work, 0, v_work.run_after);
  else
    delete from _memoir.work_items where work_id = v_work.work_id;
  end if;
  return (v_result - 'left') || jsonb_build_object('more', true);
end $$;

create or replace function memoir.extract_session(p_user text, p_session text, p_limit integer default 1000)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v_result jsonb;
begin
  perform _memoir.check_count('limit', p_limit, 10000), _memoir.ensure_month(v_caller.user_id, memoir.now());
  loop
    v_result := _memoir.extract_turns(v_caller.user_id, v_session.session_id, p_limit, v_caller.login, true);
    exit when v_result is not null;  -- another run was first: what it left
  end loop;
  return jsonb_build_object('stored', 0, 'duplicate', 0, 'refused_tombstone', 0, 'not_admitted', 0) || v_result;
end $$;
comment on function memoir.extract_session(text, text, integer) is
  'Extracts memories from the session''s turns that no job has reached yet, at most p_limit of them, by rules, and
returns {"turns", "left", "stored", "duplicate", "refused_tombstone", "not_admitted"}. Needs PL/Python. Writes
memory_store and what belongs to it, admission_scores, session_counters. Raises PM001, PM003, PM014, PM050.';

-- Servers without PL/Python: an outside worker reads turns. It claims a session's next turns, reads them, asks what was
-- said before, reads that, and stores.

create or replace function memoir.claim_turns(p_limit integer default 64)
returns table (work_id bigint, lease_id uuid, turns jsonb)
language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items; v_claimed record;
begin
  perform _memoir.authorise_worker(), _memoir.check_count('limit', p_limit, 1000);
  if _memoir.reads_language() then return; end if;
  v_work := _memoir.take_work('turns', 300);
  if v_work.work_id is null then return; end if;
  update _memoir.work_items w set payload = w.payload || jsonb_build_object('limit', p_limit,
    'from', (select c.extracted_through from _memoir.session_counters c where c.user_id = v_work.user_id
      and c.session_id = v_work.dedup_key::uuid)) where w.work_id = v_work.work_id returning w.* into v_work;
  lease_id := v_work.lease_id;
  work_id := v_work.work_id;
  v_claimed := _memoir.turns_to_read(v_work.user_id, v_work.dedup_key::uuid, p_limit, null);
  turns := _memoir.turns_as_read(v_claimed.turns);
  return next;
end $$;
comment on function memoir.claim_turns(integer) is
  'Leases the next turns of a session that nobody has read yet, at most p_limit of them: claim, commit, read_turns of
pg_memoir_server.reading, turns_context, commit, read_context, store_turns. Returns one row at most, turns as read_turns
takes them. Only servers without PL/Python have any. The lease lasts 5 minutes; heartbeat(work_id, lease_id) keeps it.
Service, jobs and admin logins only. Raises PM001, PM014.';

create or replace function memoir.turns_context(p_work bigint, p_lease uuid, p_reading jsonb)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items; v_claimed record;
begin
  perform _memoir.authorise_worker(), _memoir.check_object('reading', p_reading);
  v_work := _memoir.leased(p_work, p_lease);
  if v_work.work_id is null or v_work.kind <> 'turns' then return null; end if;
  v_claimed := _memoir.turns_to_read(v_work.user_id, v_work.dedup_key::uuid, (v_work.payload ->> 'limit')::integer,
    (v_work.payload ->> 'from')::integer);
  return _memoir.reading_context(v_claimed.turns, p_reading, v_claimed.config, v_claimed.has_model);
end $$;
comment on function memoir.turns_context(bigint, uuid, jsonb) is
  'Returns what was said before claimed turns and concerns them, as read_context of pg_memoir_server.reading takes it;
p_reading: what read_turns said. Null: the lease ran out. Service, jobs and admin logins only. Raises PM001, PM014.';

create or replace function memoir.store_turns(p_work bigint, p_lease uuid, p_reading jsonb, p_results jsonb)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items; v_claimed record; v_counts jsonb;
begin
  perform _memoir.authorise_worker(), _memoir.check_object('reading', p_reading);
  v_work := _memoir.leased(p_work, p_lease);
  if v_work.work_id is null or v_work.kind <> 'turns' then return null; end if;
  v_claimed := _memoir.turns_to_read(v_work.user_id, v_work.dedup_key::uuid, (v_work.payload ->> 'limit')::integer,
    (v_work.payload ->> 'from')::integer);
  if v_claimed.through is not null then
    perform _memoir.ensure_month(v_work.user_id, memoir.now());
    v_counts := _memoir.store_reading(v_claimed.session, v_claimed.counters, v_claimed.turns, v_claimed.through,
      p_reading, p_results, _memoir.login(), true, v_claimed.config, v_claimed.has_model);
  end if;
  -- Another run was first: what it left.
  if v_counts is null or (v_counts ->> 'left')::integer > 0 then
    perform _memoir.requeue(v_work, 0, v_work.run_after);
  else
    delete from _memoir.work_items where work_id = v_work.work_id;
  end if;
  return v_counts - 'left';
end $$;
comment on function memoir.store_turns(bigint, uuid, jsonb, jsonb) is
  'Stores what the worker read of claimed turns: memories, requests to forget, changes. p_results: what read_context
said, null where nothing was asked. Returns counts as extract_session does, null where the lease had run out or
another run was first. Writes memory_store and what belongs to it, recall_exclusions, session_counters. Service, jobs
and admin logins only. Raises PM001, PM014.';
