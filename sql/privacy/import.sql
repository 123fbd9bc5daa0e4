-- Import: puts back what export_user wrote, in batches, each one transaction. Times, ids and provenance are the file's,
-- so it is an admin's; search structures are made anew. What is there already stays, so a batch can be repeated; what a
-- tombstone forbids or an erase has taken, here and since, does not come back.

-- A line's row as a row of the table: for this user, sessions by the ids they have here.
create or replace function _memoir.import_row(p_user_id uuid, p_row jsonb, p_columns name[])
returns jsonb language sql immutable as $$
  select p_row || jsonb_build_object('user_id', p_user_id) || coalesce((
    select jsonb_object_agg(c, _memoir.session_id(p_user_id, p_row -> c ->> 'session')) from unnest(p_columns) c
    where jsonb_typeof(p_row -> c) = 'object'), '{}')
$$;

-- Puts rows of one kind; {"imported", "refused"} of them. Some tables take (v_keep, on t, a row of the table) only the
-- rows whose memory is there, and what was not erased since.
create or replace function _memoir.import_rows(p_user_id uuid, p_table name, p_rows jsonb)
returns integer[] language plpgsql as $$
declare
  v_counts integer[]; v_keep text := 'true';
  v_memory constant text := 'exists (select from _memoir.memory_store m where m.user_id = $1 and m.memory_id = ';
begin
  if p_table = 'memory_states' then
    v_keep := v_memory || 't.memory_id and (m.state <> ''erased'' or t.state = ''erased''))';
  elsif p_table = 'memory_sources' then
    v_keep := 't.item_kind <> ''memory'' or not ' || v_memory || 't.item_id and m.state = ''erased'')';
  elsif p_table = 'memory_relationships' then
    v_keep := '2 = (select count(*) from _memoir.memory_store m where m.user_id = $1 and m.memory_id in (t.source_id, '
      't.target_id) and m.state <> ''erased'')';
  elsif p_table = 'profiles' then
    v_keep := 'not exists (select from _memoir.memory_store m where m.user_id = $1 and m.state = ''erased''
      and m.state_at >= t.recorded_at)';
  elsif p_table = 'api_calls' then
    v_keep := 'not exists (select from _memoir.turn_marks m where m.user_id = $1 and m.mark = ''erased''
      and m.recorded_at >= t.recorded_at
      and (t.recorded_at >= m.since or t.session_id = any (_memoir.sharing($1, m.session_id, m.turn_index))))';
  elsif p_table = 'stream_events' then
    v_keep := 'exists (select from _memoir.api_calls c where c.user_id = $1 and c.call_id = t.call_id
      and c.recorded_at = t.recorded_at)';
  elsif p_table not in ('tombstones', 'recall_exclusions') and _memoir.has_column(p_table, 'memory_id') then
    v_keep := 't.memory_id is null or ' || v_memory || 't.memory_id and m.state <> ''erased'')'
      || case when _memoir.has_column(p_table, 'other_id')
        then ' and ' || v_memory || 't.other_id and m.state <> ''erased'')' else '' end;
  end if;
  execute format('with given as materialized (select t.* from jsonb_array_elements($2) r,
        jsonb_populate_record(null::_memoir.%1$I, _memoir.import_row($1, r, $3)) t),
      kept as materialized (select t.* from given t where %2$s),
      put as (insert into _memoir.%1$I select * from kept on conflict do nothing returning 1)
    select array[(select count(*) from put), (select count(*) from given) - (select count(*) from kept)]::integer[]',
      p_table, v_keep)
  into v_counts using p_user_id, p_rows, _memoir.uuid_columns(p_table);
  return v_counts;
end $$;

create or replace function memoir.import_user(p_user text, p_lines jsonb[])
returns jsonb language plpgsql security definer set search_path from current set timezone = 'UTC' as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_user uuid := v_caller.user_id;
  v_batch record; v_counts integer[]; v_answer jsonb := '{"imported": {}, "present": {}, "refused": {}}';
  v_message text; v_code text; v_tables name[];
begin
  perform _memoir.authorise_admin();
  v_tables := array(select name from _memoir.export_tables()) || '{header,end,system_prompts,user_counters,embeddings}';
  -- Partitions before the locks, sessions before the user.
  perform _memoir.ensure_month(v_user, month) from (
    select distinct date_trunc('month', (l -> 'row' ->> 'recorded_at')::timestamptz, 'UTC') as month
    from unnest(p_lines) l
    where l ->> 'kind' in (select table_name from _memoir.partitioned_tables where by_month)) m where month is not null;
  perform _memoir.ensure_month(v_user, memoir.now());
  perform from _memoir.session_counters where user_id = v_user order by session_id for update;
  perform from _memoir.user_counters where user_id = v_user for update;
  -- Lines of a kind that follow each other go together.
  for v_batch in
    select min(n) as n, kind, jsonb_agg(coalesce(line -> 'row', line) order by n) as rows, count(*)::integer as size
    from (select line, n, kind, n - row_number() over (partition by kind order by n) as run
      from (select line, n, line ->> 'kind' as kind from unnest(p_lines) with ordinality l(line, n)) y) x
    group by kind, run order by 1
  loop
    perform _memoir.fail('PM014', format('line %s of the batch has no kind that can be imported: %s', v_batch.n,
      _memoir.shown(v_batch.kind))) where v_batch.kind is null or v_batch.kind <> all (v_tables);
    if v_batch.kind = 'header' and row(v_batch.rows #>> '{0,format}', v_batch.rows #>> '{0,version}')
      is distinct from row('pg_memoir.export', '1') then
      perform _memoir.fail('PM014', format('this is no export of a version that can be read: %s',
        _memoir.shown((v_batch.rows -> 0)::text)));
    end if;
    continue when v_batch.kind in ('header', 'end');
    begin
      v_counts := case v_batch.kind
        when 'system_prompts' then _memoir.import_prompts(v_batch.rows)
        when 'conversation_history' then _memoir.import_turns(v_user, v_batch.rows)
        when 'session_counters' then _memoir.import_counters(v_user, v_batch.rows)
        when 'compactions' then _memoir.import_compactions(v_user, v_batch.rows)
        when 'memory_store' then _memoir.import_memories(v_user, v_batch.rows)
        when 'embeddings' then _memoir.import_embeddings(v_user, v_batch.rows)
        else case when v_batch.kind in ('users', 'user_keys', 'user_counters')
          then _memoir.import_single(v_caller, p_user, v_batch.kind, v_batch.rows -> 0)
          else _memoir.import_rows(v_user, v_batch.kind, v_batch.rows) end end;
    exception when data_exception or integrity_constraint_violation then
      get stacked diagnostics v_message = message_text, v_code = returned_sqlstate;
      perform _memoir.fail('PM014', format('lines %s to %s of the batch (%s) can''t be imported: %s', v_batch.n,
        v_batch.n + v_batch.size - 1, v_batch.kind, v_message), null, v_code);
    end;
    v_counts := array[v_counts[1], v_batch.size - v_counts[1] - v_counts[2], v_counts[2]];
    v_answer := (select jsonb_object_agg(k, _memoir.add_counts(v_answer -> k, jsonb_build_object(v_batch.kind,
      v_counts[o]))) from unnest('{imported,present,refused}'::text[]) with ordinality x(k, o));
  end loop;
  perform _memoir.audit('import', v_answer -> 'imported', v_user);
  return v_answer;
end $$;
comment on function memoir.import_user(text, jsonb[]) is
  'Puts back lines of export_user, a batch of them at a time in their order, for a user of any name. Returns how many
rows of each table were {"imported", "present" already, "refused"}: refused is what a tombstone or an erase forbids,
and what belongs to it. Repeating a batch is harmless. Vectors that the lines do not bring are asked for. Times and
provenance are taken from the lines. Admin only. Writes every table of the user, audit_log. Raises PM001, PM014.';

-- Puts rows of which a user has one: the user, the key of tombstones, what it has cost.
create or replace function _memoir.import_single(p_caller _memoir.caller, p_user text, p_kind text, p_row jsonb)
returns integer[] language plpgsql as $$
declare
  v_user uuid := p_caller.user_id; v_counts integer[] := '{0,0}'; v_new bytea := (p_row ->> 'secret')::bytea;
  v_old bytea := (select secret from _memoir.user_keys where user_id = v_user);
begin
  if p_kind = 'users' then
    v_counts := _memoir.import_rows(v_user, 'users',
      jsonb_build_array(p_row || jsonb_build_object('namespace', p_caller.namespace, 'external_id', p_user)));
    insert into _memoir.user_counters (user_id) values (v_user) on conflict do nothing;
    perform from _memoir.user_counters where user_id = v_user for update;
  elsif p_kind = 'user_counters' then
    update _memoir.user_counters set related = true
    where user_id = v_user and not related and (p_row ->> 'related')::boolean;
    update _memoir.user_counters set cost_microcents = (p_row ->> 'cost_microcents')::bigint
    where user_id = v_user and cost_microcents < (p_row ->> 'cost_microcents')::bigint;
    v_counts[1] := found::integer;
  elsif v_old is distinct from v_new then
    -- Tombstones compare only under the key they were made with.
    if v_old is not null and exists (select from _memoir.tombstones where user_id = v_user) then
      perform _memoir.fail('PM014', 'the user has tombstones under another key than the export''s',
        'import under another name, or erase the user first');
    end if;
    insert into _memoir.user_keys (user_id, secret) values (v_user, v_new) on conflict (user_id) do update set secret
      = excluded.secret;
    v_counts[1] := 1;
  end if;
  return v_counts;
end $$;

create or replace function _memoir.import_prompts(p_rows jsonb)
returns integer[] language plpgsql as $$
declare
  v_count integer;
begin
  if exists (select from jsonb_array_elements(p_rows) r
             where _memoir.prompt_hash(coalesce(r ->> 'tenant', ''), r ->> 'content') is distinct
             from (r ->> 'prompt_hash')::bytea) then
    perform _memoir.fail('PM014', 'a system prompt is not the text of its hash');
  end if;
  insert into _memoir.system_prompts (prompt_hash, tenant, content, tokens)
  select (r ->> 'prompt_hash')::bytea, coalesce(r ->> 'tenant', ''), r ->> 'content', coalesce(r -> 'tokens', '{}')
  from jsonb_array_elements(p_rows) r on conflict do nothing;
  get diagnostics v_count = row_count;
  return array[v_count, 0];
end $$;

-- Turns in order, with their words. Counters follow, so that a session is whole after every batch.
create or replace function _memoir.import_turns(p_user_id uuid, p_rows jsonb)
returns integer[] language plpgsql as $$
declare
  v_columns name[] := _memoir.uuid_columns('conversation_history');
  v_turns _memoir.conversation_history[] := array(select t from jsonb_array_elements(p_rows) with ordinality r(line, n),
    jsonb_populate_record(null::_memoir.conversation_history, _memoir.import_row(p_user_id, r.line, v_columns)) t
    order by n); v_turn _memoir.conversation_history; v_session _memoir.sessions; v_config jsonb;
  v_marks jsonb; v_there uuid; v_imported integer := 0; v_refused integer := 0; v_open text[]; v_overhead integer;
begin
  foreach v_turn in array v_turns loop
    if exists (select from _memoir.turn_marks m where m.user_id = p_user_id and m.session_id = v_turn.session_id
      and m.turn_index = v_turn.turn_index and m.mark = 'erased' and m.recorded_at >= v_turn.recorded_at) then
      v_refused := v_refused + 1;
      continue;
    end if;
    if v_session.session_id is distinct from v_turn.session_id then
      select * into v_session from _memoir.sessions where user_id = p_user_id and session_id = v_turn.session_id;
      perform _memoir.fail('PM014', format('turn %s comes before its session', v_turn.turn_index)) where not found;
      v_config := _memoir.config(p_user_id, v_session.settings);
      v_marks := _memoir.marks(p_user_id, v_turn.session_id);
      v_overhead := coalesce((select message_overhead from _memoir.models where model = v_session.model), 4);
    end if;
    select message_id into v_there from _memoir.conversation_history h
    where h.user_id = p_user_id and h.session_id = v_turn.session_id and h.turn_index = v_turn.turn_index;
    perform _memoir.fail('PM014', format('session %s has another turn %s', _memoir.shown(v_session.external_id),
      v_turn.turn_index), 'import under another name') where v_there <> v_turn.message_id;
    continue when v_there is not null;
    insert into _memoir.conversation_history select v_turn.*;
    v_imported := v_imported + 1;
    perform _memoir.index_stored(v_turn, v_session, v_config,
      _memoir.sensitivity_now(v_turn.sensitivity, v_turn.turn_index, v_marks), true);
    select open_calls into v_open from _memoir.session_counters
    where user_id = p_user_id and session_id = v_turn.session_id;
    v_open := case when v_turn.tool_calls is not null then array(select c ->> 'id'
        from jsonb_array_elements(v_turn.tool_calls) with ordinality t(c, o) order by o)
      when v_turn.role = 'tool' then array_remove(v_open, v_turn.tool_call_id) else '{}' end;
    insert into _memoir.session_counters as c (user_id, session_id, turn_count, tokens, exchange_start, last_role,
      open_calls, first_recorded_at, last_recorded_at)
    values (p_user_id, v_turn.session_id, v_turn.turn_index + 1, v_turn.tokens_before + v_turn.token_count + v_overhead,
      v_turn.exchange_start, v_turn.role, coalesce(v_open, '{}'), v_turn.recorded_at, v_turn.recorded_at)
    on conflict (user_id, session_id) do update set turn_count = excluded.turn_count, tokens = excluded.tokens,
      exchange_start = excluded.exchange_start, last_role = excluded.last_role, open_calls = excluded.open_calls,
      last_recorded_at = greatest(c.last_recorded_at, excluded.last_recorded_at),
      first_recorded_at = least(c.first_recorded_at, excluded.first_recorded_at)
    where excluded.turn_count > c.turn_count;
  end loop;
  return array[v_imported, v_refused];
end $$;

-- Returns what the file says of a session that has not gone on since.
create or replace function _memoir.import_counters(p_user_id uuid, p_rows jsonb)
returns integer[] language plpgsql as $$
declare
  v_counters _memoir.session_counters[] := array(select t from jsonb_array_elements(p_rows) r,
    jsonb_populate_record(null::_memoir.session_counters, _memoir.import_row(p_user_id, r, '{session_id}')) t);
  v_row _memoir.session_counters; v_imported integer := 0; v_there _memoir.session_counters;
begin
  foreach v_row in array v_counters loop
    select * into v_there from _memoir.session_counters c where c.user_id = p_user_id
      and c.session_id = v_row.session_id;
    continue when found and (v_there = v_row or v_there.turn_count > v_row.turn_count
      or v_there.last_recorded_at > v_row.last_recorded_at
      -- Its end was erased here.
      or v_there.turn_count = v_row.turn_count and exists (select from _memoir.turn_marks m where m.user_id = p_user_id
      and m.session_id = v_row.session_id
        and m.mark = 'erased' and m.recorded_at > v_row.last_recorded_at and m.turn_index = v_row.turn_count - 1));
    delete from _memoir.session_counters c where c.user_id = p_user_id and c.session_id = v_row.session_id;
    insert into _memoir.session_counters select v_row.*;
    v_imported := v_imported + 1;
  end loop;
  update _memoir.session_counters c set has_objects = true from unnest(v_counters) r where c.user_id = p_user_id
    and c.session_id = r.session_id and r.has_objects and not c.has_objects;
  return array[v_imported, 0];
end $$;

-- Summaries, unless a turn that they cover was erased after they were made.
create or replace function _memoir.import_compactions(p_user_id uuid, p_rows jsonb)
returns integer[] language plpgsql as $$
declare
  v_all _memoir.compactions[] := array(select t from jsonb_array_elements(p_rows) with ordinality r(line, n),
    jsonb_populate_record(null::_memoir.compactions, _memoir.import_row(p_user_id, r.line, '{session_id}')) t
      order by n);
  v_row _memoir.compactions; v_session _memoir.sessions; v_imported integer := 0; v_refused integer := 0;
  v_at timestamptz;
begin
  foreach v_row in array v_all loop
    if exists (select from _memoir.turn_marks m where m.user_id = p_user_id and m.session_id = v_row.session_id
      and m.mark = 'erased'
               and m.turn_index between v_row.from_turn and v_row.to_turn and m.recorded_at >= v_row.recorded_at) then
      v_refused := v_refused + 1;
      continue;
    end if;
    continue when exists (select from _memoir.compactions c where c.user_id = p_user_id
      and c.session_id = v_row.session_id and c.compaction_id = v_row.compaction_id);
    select * into v_session from _memoir.sessions where user_id = p_user_id and session_id = v_row.session_id;
    v_at := coalesce((_memoir.turn_seen(v_session, v_row.to_turn)).created_at, v_row.recorded_at);
    perform _memoir.add_compaction(v_row, v_session, v_at, _memoir.config(p_user_id, v_session.settings));
    v_imported := v_imported + 1;
  end loop;
  perform _memoir.refresh_summary(p_user_id, s) from (select distinct x.session_id as s from unnest(v_all) x) d;
  return array[v_imported, v_refused];
end $$;

-- Memories, unless a tombstone forbids what they say or a turn they stem from was erased.
create or replace function _memoir.import_memories(p_user_id uuid, p_rows jsonb)
returns integer[] language plpgsql as $$
declare
  v_all _memoir.memory_store[] := array(select t from jsonb_array_elements(p_rows) with ordinality r(line, n),
    jsonb_populate_record(null::_memoir.memory_store,
      _memoir.import_row(p_user_id, r.line, _memoir.uuid_columns('memory_store'))) t order by n);
  v_row _memoir.memory_store; v_stone _memoir.tombstones; v_config jsonb := _memoir.config(p_user_id, null);
  v_imported integer := 0; v_refused integer := 0;
begin
  foreach v_row in array v_all loop
    continue when exists (select from _memoir.memory_store m where m.user_id = p_user_id
      and m.memory_id = v_row.memory_id);
    v_stone := case when v_row.state not in ('forgotten', 'erased')
      then _memoir.tombstone_of(p_user_id, v_row.content, v_row.slot, v_row.slot_value, v_row.project) end;
    -- What a correction took out comes back as the history it is; what was taken out since does not come back at all.
    if v_stone.user_id is not null and (v_row.state = 'active' or v_stone.recorded_at > v_row.state_at)
       or v_row.state <> 'erased' and exists (select from _memoir.memory_sources s join _memoir.turn_marks m
         on m.user_id = p_user_id and m.session_id = s.session_id
         and m.turn_index = s.turn_index and m.mark = 'erased' and m.recorded_at >= v_row.recorded_at
         where s.user_id = p_user_id and s.item_kind = 'memory' and s.item_id = v_row.memory_id and s.link = 'origin')
       -- Nor what was made of it.
       or v_row.state = 'active' and exists (select from _memoir.memory_sources s
         left join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = s.source_id
           and m.state not in ('forgotten', 'erased')
         where s.user_id = p_user_id and s.item_kind = 'memory' and s.item_id = v_row.memory_id
           and s.source_kind = 'memory'
           and (m.memory_id is null or m.state = 'invalidated'
           or (_memoir.tombstone_of(p_user_id, m.content, m.slot, m.slot_value, m.project)).user_id is not null)) then
      delete from _memoir.memory_sources where user_id = p_user_id and item_kind = 'memory'
        and item_id = v_row.memory_id;
      v_refused := v_refused + 1;
      continue;
    end if;
    insert into _memoir.memory_store select v_row.* on conflict do nothing;
    continue when not found;  -- the same text is active under another id
    v_imported := v_imported + 1;
    continue when v_row.state = 'erased' or v_row.is_object;
    update _memoir.user_counters set memories = memories + 1 where user_id = p_user_id;
    if v_row.state <> 'forgotten' then
      perform _memoir.emit(p_user_id, 'memory.added', array[v_row.memory_id], v_row.state::text);
      perform _memoir.index_memory(v_row, coalesce((v_row.metadata ->> 'said_at')::timestamptz, v_row.recorded_at),
        v_config);
      update _memoir.search_items set dead = true where user_id = p_user_id and ref_id = v_row.memory_id
        and v_row.state <> 'active';
    end if;
  end loop;
  return array[v_imported, v_refused];
end $$;

-- Vectors of models that are registered here under the same name, for the same stretch of the same text.
create or replace function _memoir.import_embeddings(p_user_id uuid, p_rows jsonb)
returns integer[] language plpgsql as $$
declare
  v_counts integer[];
begin
  with given as materialized (
    select r, m.model_id, m.dimension from jsonb_array_elements(p_rows) r left join _memoir.embedding_models m
      on m.name = r ->> 'model' and m.status <> 'retired'),
  fitting as materialized (select i.item_no, g.model_id, (g.r ->> 'embedding')::halfvec as embedding
    from given g join _memoir.search_items i on i.user_id = p_user_id and i.ref_id = (g.r ->> 'ref')::uuid
      and i.chunk = (g.r ->> 'chunk')::smallint
      and i.span_start = (g.r ->> 'span_start')::integer and i.span_length = (g.r ->> 'span_length')::integer
      and i.embeddable
    where vector_dims((g.r ->> 'embedding')::halfvec) = g.dimension),
  put as (insert into _memoir.embeddings (user_id, item_no, model_id, embedding) select p_user_id, item_no, model_id,
    embedding from fitting on conflict do nothing returning 1)
  select array[(select count(*) from put), (select count(*) from given) - (select count(*) from fitting)]::integer[]
    into v_counts;
  return v_counts;
end $$;
