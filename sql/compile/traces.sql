-- Writes the traces of a compile: the recall an exchange began with, and one buffered ledger row. Nothing on a standby,
-- in a read-only transaction, or for a user who has written nothing.
create or replace function _memoir.leave_traces(v _memoir.compile_state)
returns uuid language plpgsql as $$
declare
  v_compile uuid := gen_random_uuid(); v_user uuid := v.user_id; v_row _memoir.compile_buffer;
begin
  if pg_is_in_recovery() or current_setting('transaction_read_only')::boolean or v.statistics_version = '0' then
    return v_compile;
  end if;
  -- What was compiled before an erase leaves nothing after it; who is being erased is not waited for.
  perform from _memoir.user_locks where user_id = v_user for key share skip locked;
  if not found and not _memoir.made_lock(v_user) then return v_compile; end if;
  perform from _memoir.users u join _memoir.user_counters c on c.user_id = v_user
  where u.user_id = v_user and u.created_at <= v.at and c.erasures = (v.user_counters).erasures;
  if not found then return v_compile; end if;
  if (v.arms ->> 'recall' <> 'kept' or not v.is_open) and not _memoir.keep_recall(v) then null; end if;
  if random() >= (v.config ->> 'ledger_sample')::float8 then return v_compile; end if;
  v_row := _memoir.trace(v, v_compile);
  insert into _memoir.compile_buffer overriding user value select v_row.*;
  return v_compile;
end $$;

-- Makes the row that an erase of the user waits for. False: an erase is at work, was, or may be.
create or replace function _memoir.made_lock(p_user_id uuid)
returns boolean language plpgsql set lock_timeout = '10ms' as $$
begin
  if exists (select from _memoir.user_locks where user_id = p_user_id) then return false; end if;
  insert into _memoir.user_locks values (p_user_id);
  if exists (select from _memoir.users where user_id = p_user_id) then return true; end if;
  delete from _memoir.user_locks where user_id = p_user_id;
  return false;
exception when lock_not_available or unique_violation then return false;
end $$;

-- The recall that a continued compile of the exchange shows again. Who has its row in an open transaction is not waited
-- for: then it is made anew, which false says.
create or replace function _memoir.keep_recall(v _memoir.compile_state)
returns boolean language plpgsql set lock_timeout = '10ms' as $$
begin
  -- Only a managed window goes on showing those of earlier exchanges.
  if (v.frame).user_id is null and v.as_of is null then
    delete from _memoir.kept_recalls where user_id = v.user_id and session_id = v.session_id
      and at_turn <> v.exchange_at;
  end if;
  insert into _memoir.kept_recalls (user_id, session_id, at_turn, query_hash, recall, tokens, items, clearance,
    projects)
  values (v.user_id, v.session_id, v.exchange_at, v.query_hash, coalesce(v.recall, ''), coalesce(v.recall_tokens, 0),
    (select coalesce(jsonb_agg(distinct i), '[]') from jsonb_array_elements(v.recalled -> 'shown') i),
    v.clearance, (v.caller).projects)
  on conflict (user_id, session_id, at_turn) do update set query_hash = excluded.query_hash, recall = excluded.recall,
    tokens = excluded.tokens, items = excluded.items, clearance = excluded.clearance, projects = excluded.projects
  -- Somebody of lower clearance or fewer projects who looks in does not take it from whom it was made for.
  where kept_recalls.query_hash <> excluded.query_hash or kept_recalls.clearance <= excluded.clearance
    and (excluded.projects is null or kept_recalls.projects <@ excluded.projects);
  return true;
exception when lock_not_available then return false;
end $$;

create or replace function _memoir.trace(v _memoir.compile_state, p_compile uuid)
returns _memoir.compile_buffer language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_tokens integer[];
begin
  select array[coalesce(sum(t.cost) filter (where not t.excerpt), 0), 0,
    coalesce(sum(t.cost) filter (where t.excerpt), 0), 0] into v_tokens from unnest(v.shown) t;
  -- As the table names its columns. used is noted later, buffer_id is the table's own.
  return (v.user_id, p_compile, v.at, v.session_id, v.budget, v.tokens, v.recall_tokens, v.system_tokens,
    v.tools_tokens, v_tokens, (v.shown[1]).turn_index, _memoir.prefix_hash(v.messages, v.prefix), v.warnings,
    coalesce(v.considered, '{}'), null, null, coalesce(v.trace, '{}'))::_memoir.compile_buffer;
end $$;

-- A buffered row as the ledger has it: shares that stand in hundred thousandths as numbers, reasons by their names.
create or replace function _memoir.ledger_row(p_row _memoir.compile_buffer)
returns _memoir.compile_ledger language plpgsql stable as $$
declare
  v_row _memoir.compile_ledger; c jsonb := p_row.candidates;
begin
  v_row := jsonb_populate_record(null::_memoir.compile_ledger, to_jsonb(p_row) - 'candidates');
  v_row.scores := _memoir.shares(c -> 'scores');
  v_row.words := _memoir.shares(c -> 'words');
  v_row.vectors := _memoir.shares(c -> 'vectors');
  v_row.around := _memoir.shares(c -> 'around');
  v_row.session_scores := _memoir.shares(c -> 'session_scores');
  v_row.item_tokens := array(select jsonb_array_elements_text(c -> 'item_tokens')::integer);
  v_row.positions := array(select jsonb_array_elements_text(c -> 'positions')::integer);
  v_row.forms := array(select jsonb_array_elements_text(c -> 'forms'));
  v_row.reasons := array(select c -> 'reason_names' ->> jsonb_array_elements_text(c -> 'reasons')::integer);
  v_row.facts := array(select array(select jsonb_array_elements_text(f)::smallint)
    from jsonb_array_elements(c -> 'facts') f);
  return v_row;
end $$;

create or replace function _memoir.shares(p_numbers jsonb)
returns real[] language sql immutable as $$
  select array(select (jsonb_array_elements_text(p_numbers)::real / 100000)::real)
$$;

create or replace function memoir.report_context(p_user text, p_report jsonb)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_trace _memoir.compile_buffer; v_row _memoir.compile_ledger; v_count integer;
begin
  begin
    v_trace := jsonb_populate_record(null::_memoir.compile_buffer, p_report);
    v_row := _memoir.ledger_row(v_trace);
  exception when data_exception or invalid_parameter_value then
    perform _memoir.fail('PM014', format('report is not what context returned: %s', sqlerrm));
  end;
  v_count := cardinality(v_trace.items);
  if v_trace.user_id is distinct from v_caller.user_id or v_trace.recorded_at is null
    or v_trace.recorded_at not between memoir.now() - interval '7 days' and memoir.now() + interval '1 minute'
     or array[cardinality(v_row.scores), cardinality(v_row.words), cardinality(v_row.vectors),
       cardinality(v_row.around), cardinality(v_row.session_scores), cardinality(v_row.item_tokens),
       cardinality(v_row.positions), cardinality(v_row.forms), cardinality(v_row.reasons)]
       is distinct from array_fill(v_count, array[9])
     or cardinality(v_row.facts) is distinct from v_count * cardinality(_memoir.ledger_signals())
     or num_nulls(v_trace.compile_id, v_trace.session_id, v_trace.budget, v_trace.tokens, v_trace.recall_tokens,
       v_trace.system_tokens, v_trace.tools_tokens, v_trace.turn_tokens, v_trace.prefix_hash, v_trace.warnings) > 0 then
    perform _memoir.fail('PM014', format('report is not what context returned for user %s within the last 7 days: %s',
      _memoir.shown(p_user), _memoir.shown(p_report::text)));
  end if;
  if v_caller.projects is not null and exists (select from _memoir.search_items i
      where i.user_id = v_caller.user_id and i.item_no = any (v_trace.items) and i.project <> all (v_caller.projects))
        then
    perform _memoir.fail('PM014', format('report for user %s names items that login %s did not see',
      _memoir.shown(p_user), quote_ident(v_caller.login)));
  end if;
  perform _memoir.lock_user(v_caller.user_id, 'write');
  if not exists (select from _memoir.users where user_id = v_caller.user_id)
     or exists (select from _memoir.compile_buffer where compile_id = v_trace.compile_id)
     or exists (select from _memoir.compile_ledger where user_id = v_caller.user_id and compile_id = v_trace.compile_id
     and recorded_at = v_trace.recorded_at) then
    return false;
  end if;
  v_trace.used := null;
  insert into _memoir.compile_buffer overriding user value select v_trace.*;
  return true;
end $$;
comment on function memoir.report_context(text, jsonb) is
  'Tells the primary of a compile that a standby made: p_report is "report" of what context returned there. True when
it was taken, false when it is known already. Writes the unlogged buffer of statistics. Raises PM001, PM014.';
