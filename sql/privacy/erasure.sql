-- Erasure: a user, a session or a turn is gone, with everything that stems from it, when the call commits. What the
-- files still hold of it (dead rows, their TOAST, index entries, statistics) goes when the job 'erase' has rewritten
-- the leaves that were touched. An audit row says how much was erased and by which login, not what or whose.

-- Every table with rows of users, from the catalogue, so that none is forgotten.
create or replace function _memoir.user_tables()
returns setof name language sql stable as $$
  select c.relname from pg_class c
  where c.relnamespace = '_memoir'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'user_id' and a.attnum > 0
    and not a.attisdropped)
  order by c.relname
$$;

-- Deletes rows of a user and remembers which leaves they were in. The condition is ours, its values are $2 and $3.
create or replace function _memoir.erase_from(p_table name, p_user_id uuid, p_condition text default 'true',
  p_ids uuid[] default null, p_numbers integer[] default null)
returns bigint language plpgsql as $$
declare
  v_count bigint;
begin
  execute format('with gone as (delete from _memoir.%1$I where user_id = $1 and (%2$s) returning tableoid),
      counted as (select tableoid::regclass as leaf, count(*) as n from gone group by 1),
      queued as (insert into _memoir.erase_queue (leaf)
        select (select relname from pg_class where oid = leaf) from counted)
    select coalesce(sum(n), 0)::bigint from counted', p_table, p_condition)
  into v_count using p_user_id, p_ids, p_numbers;
  return v_count;
end $$;

create or replace function _memoir.begin_erase(p_user text, p_what text, out caller _memoir.caller, out audit_id bigint)
language plpgsql as $$
begin
  caller := _memoir.authorise(p_user, 'erase');
  perform _memoir.check_person(caller, 'erase');
  perform _memoir.fail('PM001', format('login %s is bound to projects and may not erase', quote_ident(caller.login)),
    'what stems from it may lie in others') where caller.projects is not null;
  audit_id := _memoir.audit('erase', jsonb_build_object('what', p_what));
  perform _memoir.begin_erase_of(caller.user_id);
end $$;

-- The locks of writers and workers, in their order. Who waits for them finds nothing afterwards.
create or replace function _memoir.begin_erase_of(p_user_id uuid)
returns void language plpgsql as $$
begin
  perform _memoir.lock_user(p_user_id, 'erase');
  perform from _memoir.session_counters c where c.user_id = p_user_id order by c.session_id for update;
  update _memoir.user_counters c set erasures = c.erasures + 1 where c.user_id = p_user_id;
  perform _memoir.drop_in_members(p_user_id, null);
end $$;

create or replace function _memoir.end_erase(p_audit bigint, p_what text, p_rows jsonb)
returns jsonb language plpgsql as $$
declare
  v_rows jsonb := coalesce((select jsonb_object_agg(key, value) from jsonb_each(p_rows) where value <> '0'), '{}');
begin
  update _memoir.audit_log set detail = detail || jsonb_build_object('rows', v_rows) where audit_id = p_audit;
  return jsonb_build_object('erased', p_what, 'rows', v_rows, 'total',
    coalesce((select sum(value::bigint) from jsonb_each_text(v_rows)), 0));
end $$;

create or replace function memoir.erase_user(p_user text)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_begun record; v_user uuid; v_rows jsonb;
begin
  v_begun := _memoir.begin_erase(p_user, 'user');
  v_user := (v_begun.caller).user_id;
  v_rows := _memoir.erase_from_spaces(v_begun.caller);
  -- Prompts belong to nobody; one that only this user's sessions had goes with them, which the job finds out.
  insert into _memoir.erase_queue (prompt_hash) select distinct system_prompt_hash from _memoir.sessions
  where user_id = v_user and system_prompt_hash is not null;
  perform _memoir.erase_from('user_locks', v_user);
  return _memoir.end_erase(v_begun.audit_id, 'user', _memoir.add_counts(v_rows,
    (select jsonb_object_agg(t, _memoir.erase_from(t, v_user)) from _memoir.user_tables() t)));
end $$;
comment on function memoir.erase_user(text) is
  'Erases a user: every row in every table, logins'' bindings and the key of its tombstones: nothing says it was there.
What they said in spaces goes, too, as erase_turn takes it; what others said stays. A space is erased by its owners.
Returns {"erased", "rows": {table: count}, "total"}; nothing to erase is no error. The job erase then takes the bytes
out of the files. Not for logins of class agent or tool, nor for those bound to projects. Raises PM001, PM014.';

create or replace function memoir.erase_session(p_user text, p_session text)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_begun record; v_user uuid; v_session _memoir.sessions; v_id uuid; v_rows jsonb; v_from timestamptz;
  v_ids uuid[]; v_turns integer[]; v_extra uuid[];
begin
  perform _memoir.check_name('session', p_session, 500);
  v_begun := _memoir.begin_erase(p_user, 'session');
  v_user := (v_begun.caller).user_id;
  v_id := _memoir.session_id(v_user, p_session);
  select * into v_session from _memoir.sessions where user_id = v_user and session_id = v_id;
  if found then
    perform _memoir.check_project(v_begun.caller, v_session.project);
    insert into _memoir.erase_queue (prompt_hash) select v_session.system_prompt_hash
    where v_session.system_prompt_hash is not null;
    select first_recorded_at into v_from from _memoir.session_counters where user_id = v_user and session_id = v_id;
  elsif not exists (select from _memoir.api_calls where user_id = v_user and session_id = v_id) then
    perform _memoir.fail('PM003', format('unknown session %s', _memoir.shown(p_session)));
  end if;
  select coalesce(array_agg(message_id), '{}'), coalesce(array_agg(turn_index), '{}'),
    least(v_from, min(recorded_at)) into v_ids, v_turns, v_from
  from _memoir.conversation_history where user_id = v_user and session_id = v_id;
  -- What was noted in it stems from it, unless something outside says the same.
  v_extra := array(select m.memory_id from _memoir.memory_store m
    where m.user_id = v_user and (m.session_id = v_id or m.local_to = v_id) and not exists (
      select from _memoir.memory_sources s where s.user_id = v_user and s.item_kind = 'memory'
        and s.item_id = m.memory_id
        and s.link = 'restated' and s.session_id is distinct from v_id));
  v_rows := _memoir.erase_derived(v_begun.caller, v_id, v_turns, v_ids, v_id || v_extra, coalesce(v_from, '-infinity'));
  update _memoir.memory_store set session_id = null where user_id = v_user and session_id = v_id;
  update _memoir.audit_log set detail = detail - 'session_id' where user_id = v_user
    and detail ->> 'session_id' = v_id::text;
  v_rows := _memoir.add_counts(v_rows, (select jsonb_object_agg(t, _memoir.erase_from(t, v_user,
      'session_id = any ($2)', array[v_id]))
    from _memoir.user_tables() t where _memoir.has_column(t, 'session_id')
      and t not in ('memory_store', 'memory_sources')));
  v_rows := _memoir.add_counts(v_rows, jsonb_build_object(
    'admission_scores', _memoir.erase_from('admission_scores', v_user, 'in_session = any ($2)', array[v_id]),
    'receipts', _memoir.erase_from('receipts', v_user, 'result ->> ''session_id'' = any ($2::text[])', array[v_id])));
  perform _memoir.refresh_summary(v_user, s.session_id) from _memoir.sessions s where s.user_id = v_user
    and s.parent_session_id = v_id;
  return _memoir.end_erase(v_begun.audit_id, 'session', v_rows);
end $$;
comment on function memoir.erase_session(text, text) is
  'Erases a session: its turns, also where branches share them, and everything that stems from them as erase_turn says,
its notes, settings, summaries and captured calls. Branches keep what is their own. Returns {"erased", "rows": {table:
count}, "total"}. Not for logins of class agent or tool, nor for those bound to projects. Raises PM001, PM003, PM014.';

create or replace function memoir.erase_turn(p_user text, p_session text, p_turn integer)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_begun record; v_turn _memoir.conversation_history; v_turns integer[]; v_rows jsonb;
begin
  v_begun := _memoir.begin_erase(p_user, 'turn');
  v_turn := _memoir.known_turn(_memoir.session(v_begun.caller, p_session), p_turn);
  v_turns := array(select generate_series(lower(r), upper(r) - 1)
    from _memoir.with_results(v_turn.user_id, v_turn.session_id, p_turn, p_turn) r);
  v_rows := _memoir.erase_turns(v_begun.caller, v_turn.session_id, v_turns);
  return _memoir.end_erase(v_begun.audit_id, 'turn', v_rows) || jsonb_build_object('turns', to_jsonb(v_turns));
end $$;
comment on function memoir.erase_turn(text, text, integer) is
  'Erases one turn, and with a tool call its results or with a result its call: the turn itself, the words and vectors
that hold it, memories that stem from it (those that something else states too stay), summaries and profiles that may
hold it, renditions, work items, receipts, kept recalls, ledger rows, and the captured calls that may carry it: those
of its sessions and all of the user since. What is left of a memory is its id in state erased. Returns {"erased",
"turns", "rows": {table: count}, "total"}. Not for logins of class agent or tool, nor for those bound to projects.
Raises PM001, PM003, PM014.';

-- Erases turns of a session, whole calls with their results, and what stems from them.
create or replace function _memoir.erase_turns(p_caller _memoir.caller, p_session_id uuid, p_turns integer[])
returns jsonb language plpgsql as $$
declare
  v_user uuid := p_caller.user_id; v_session _memoir.sessions; v_ids uuid[]; v_rows jsonb; v_from timestamptz;
  v_sharing uuid[]; v_id uuid; v_counters _memoir.session_counters; v_last _memoir.conversation_history;
  v_part record; v_asked boolean;
begin
  select array_agg(message_id), min(recorded_at) into v_ids, v_from
  from _memoir.conversation_history where user_id = v_user and session_id = p_session_id
    and turn_index = any (p_turns);
  v_sharing := _memoir.sharing(v_user, p_session_id, p_turns[1]);
  v_rows := _memoir.erase_derived(p_caller, p_session_id, p_turns, v_ids, '{}', v_from);
  v_rows := _memoir.add_counts(v_rows, (select jsonb_object_agg(t, _memoir.erase_from(t, v_user,
      'session_id = any ($2) and turn_index = any ($3)', array[p_session_id], p_turns))
    from _memoir.user_tables() t where _memoir.has_column(t, 'session_id') and _memoir.has_column(t, 'turn_index')
      and t not in ('conversation_history', 'memory_sources', 'search_items')));
  v_rows := _memoir.add_counts(v_rows, jsonb_build_object('turn_pins', _memoir.erase_from('turn_pins', v_user,
    'session_id = any ($2) and array(select generate_series(from_turn, to_turn)) <@ $3', array[p_session_id],
      p_turns)));
  -- Its place stays, so that an older export does not bring it back.
  insert into _memoir.turn_marks (user_id, session_id, turn_index, recorded_at, mark, actor, set_by, since)
  select v_user, p_session_id, t, memoir.now(), 'erased', coalesce(p_caller.actor, 'person'), p_caller.login, v_from
  from unnest(p_turns) t;
  -- What the sessions that see it say of their end, where that was it: they go on behind what is left.
  foreach v_id in array v_sharing loop
    select * into v_session from _memoir.sessions where user_id = v_user and session_id = v_id;
    select * into v_counters from _memoir.session_counters where user_id = v_user and session_id = v_id;
    v_last := null;
    v_asked := false;
    for v_part in select * from _memoir.lineage(v_session) order by from_turn desc loop
      if v_last.message_id is null then
        select h.* into v_last from _memoir.conversation_history h
        where h.user_id = v_user and h.session_id = v_part.session_id and h.turn_index between v_part.from_turn
          and least(v_part.to_turn, v_counters.turn_count - 1)
        order by h.turn_index desc limit 1;
      end if;
      v_asked := v_asked or exists (select from _memoir.conversation_history h
        where h.user_id = v_user and h.session_id = v_part.session_id and h.role = 'user'
          and h.turn_index between greatest(v_part.from_turn, v_counters.exchange_start)
          and least(v_part.to_turn, v_counters.turn_count - 1));
    end loop;
    -- Without its question there is nothing to continue.
    update _memoir.session_counters set last_role = case when v_asked then v_last.role
        when v_last.message_id is not null then 'assistant' end, open_calls
      = case when v_last.tool_calls is null and v_last.role is distinct from 'tool' then '{}' else open_calls end
    where user_id = v_user and session_id = v_id;
  end loop;
  perform _memoir.refresh_summary(v_user, p_session_id);
  return v_rows;
end $$;

-- Takes a person's statements out of the spaces in which they are or were a member: turns under their names, and what
-- they stated there without a turn.
create or replace function _memoir.erase_from_spaces(p_caller _memoir.caller)
returns jsonb language plpgsql as $$
declare
  v_one _memoir.space_members; v_in _memoir.caller := p_caller; v_said record; v_rows jsonb := '{}';
begin
  for v_one in select * from _memoir.space_members where member_id = p_caller.user_id order by user_id loop
    v_in.user_id := v_one.user_id;
    perform _memoir.begin_erase_of(v_in.user_id);
    for v_said in select h.session_id, array_agg(h.turn_index order by h.turn_index) as turns
      from _memoir.conversation_history h where h.user_id = v_in.user_id and h.role = 'user' and lower(h.name)
        in (select lower(n) from unnest(v_one.names) n) group by 1 order by 1 loop
      v_rows := _memoir.add_counts(v_rows, _memoir.erase_turns(v_in, v_said.session_id, v_said.turns));
    end loop;
    select array_agg(m.memory_id) as ids, min(m.recorded_at) as since into v_said from _memoir.memory_store m
    where m.user_id = v_in.user_id and right(m.written_by, length(v_one.member) + 5) = ' for ' || v_one.member
      and m.state <> 'erased' and not exists (select from _memoir.memory_sources s where s.user_id = v_in.user_id
        and s.item_kind = 'memory' and s.item_id = m.memory_id and s.source_kind = 'turn');
    if v_said.ids <> '{}' then
      v_rows := _memoir.add_counts(v_rows, _memoir.erase_derived(v_in, _memoir.no_session(), '{}', '{}', v_said.ids,
        v_said.since));
    end if;
    -- Who did something is "login for member".
    for v_said in select format('_memoir.%I', c.relname) as of, quote_ident(a.attname) as who from pg_attribute a
      join pg_class c on c.oid = a.attrelid and c.relnamespace = '_memoir'::regnamespace and c.relkind in ('r', 'p')
      where a.attname in ('set_by', 'lifted_by', 'written_by', 'granted_by') and not c.relispartition loop
      execute replace(format('update %s set # = left(#, -length($2)) where user_id = $1 and right(#, length($2)) = $2',
        v_said.of), '#', v_said.who) using v_in.user_id, ' for ' || v_one.member;
    end loop;
    v_rows := _memoir.add_counts(v_rows, jsonb_build_object('space_members', _memoir.erase_from('space_members',
      v_in.user_id, 'member_id = any ($2)', array[p_caller.user_id])));
  end loop;
  return v_rows;
end $$;

-- Erases turns of a session and all that stems from them, or from p_more (memories, summaries). p_from: since when.
create or replace function _memoir.erase_derived(p_caller _memoir.caller, p_session_id uuid, p_turns integer[],
  p_ids uuid[], p_more uuid[], p_from timestamptz)
returns jsonb language plpgsql as $$
declare
  v_user uuid := p_caller.user_id; v_sharing uuid[]; v_summaries uuid[]; v_emptied uuid[]; v_gone uuid[]; v_all uuid[];
  v_items integer[]; v_rows jsonb;
begin
  v_sharing := _memoir.sharing(v_user, p_session_id, coalesce((select min(t) from unnest(p_turns) t), 0));
  v_summaries := array(select compaction_id from _memoir.compactions c where c.user_id = v_user
    and c.session_id = any (v_sharing)
    and exists (select from unnest(p_turns) t where t between c.from_turn and c.to_turn));
  with emptied as (update _memoir.sessions s set summary_text = null, summary_through = null where s.user_id = v_user
      and s.session_id = any (v_sharing)
      and exists (select from unnest(p_turns) t where t <= s.summary_through) returning session_id)
  select coalesce(array_agg(session_id), '{}') into v_emptied from emptied;
  v_gone := _memoir.derived(v_user, p_ids || p_more || v_summaries || v_emptied, false) || p_more;
  v_all := p_ids || v_summaries || v_emptied || v_gone;
  v_items := array(select item_no from _memoir.search_items where user_id = v_user and ref_id = any (v_all));

  update _memoir.client_messages set added = _memoir.without_texts(added)
  where user_id = v_user and items ?| v_all::text[];
  -- Items leave search, with their words and vectors, and turns no longer follow those that go.
  perform _memoir.reindex_after(v_user, array(select item_no from _memoir.search_items where user_id = v_user
    and ref_id = any (p_ids)));
  v_rows := jsonb_build_object('search_items', cardinality(v_items),
    'embeddings', (select count(*) from _memoir.embeddings where user_id = v_user and item_no = any (v_items)));
  perform _memoir.drop_items(v_user, v_items);
  -- Leaves whose rows an erase rewrites rather than deletes.
  insert into _memoir.erase_queue (leaf) select _memoir.leaf_name(x, _memoir.part_of(v_user))
  from unnest('{search_items,search_tail,search_postings,search_aliases,embeddings,packed_signs,sessions,memory_store,
    memory_states,recall_exclusions,tombstones,session_counters,users,user_counters,client_messages}'::name[]) x;
  v_rows := v_rows || _memoir.erase_memories(p_caller, v_gone, v_all);
  -- Any memory may have been in the profile.
  if v_gone <> '{}' then
    v_rows := _memoir.add_counts(v_rows, jsonb_build_object('profiles', _memoir.erase_from('profiles', v_user)));
    update _memoir.users set profile_version = 0 where user_id = v_user and profile_version <> 0;
  end if;
  -- $2 is ids, $3 numbers. A list that held it has a hash; which captured calls carried it on, nobody can say, so all
  -- of its sessions, and all since it was there.
  return _memoir.add_counts(v_rows, (select jsonb_object_agg(t.name, _memoir.erase_from(t.name, v_user, t.condition,
    t.ids, t.numbers)) from (values
    ('conversation_history'::name, 'session_id = any ($2) and turn_index = any ($3)', array[p_session_id], p_turns),
    ('admission_scores', 'in_session = any ($2) and turn_number = any ($3)', array[p_session_id], p_turns),
    ('compactions', 'compaction_id = any ($2)', v_summaries, null),
    ('memory_sources', 'item_id = any ($2) or source_id = any ($2)', v_all, null),
    ('memory_relationships', 'source_id = any ($2) or target_id = any ($2)', v_gone, null),
    ('kept_recalls', 'true', null, null),
    ('query_answers', 'true', null, null),
    ('session_windows', 'session_id = any ($2)', v_sharing, null),
    ('shown_forms', 'session_id = any ($2)', v_sharing, null),
    ('fault_history', 'session_id = any ($2) or items ?| $2::text[]', v_sharing || v_all, null),
    ('fidelity_transitions', 'memory_id = any ($2)', v_gone, null),
    ('receipts', 'result -> ''message_ids'' ?| $2::text[] or result ->> ''memory_id'' = any ($2::text[])',
      p_ids || v_gone, null),
    ('work_items', 'exists (select from unnest($2::text[]) i where strpos(payload::text || dedup_key, i) > 0)',
      v_all || p_session_id, null),
    ('compile_ledger', format('recorded_at >= %L and (session_id = any ($2) or items && $3)', p_from), v_sharing,
      v_items),
    ('compile_buffer', 'session_id = any ($2) or items && $3', v_sharing, v_items),
    ('stream_events', format('recorded_at >= %L or call_id in (select call_id from _memoir.api_calls c '
      'where c.user_id = $1 and c.session_id = any ($2))', p_from), v_sharing, null),
    ('api_calls', format('recorded_at >= %L or session_id = any ($2)', p_from), v_sharing, null))
    t(name, condition, ids, numbers)));
end $$;

-- Keeps the ids of erased memories, in state erased, but not their states, nor what other tables note of them. p_all:
-- the ids of all that is erased.
create or replace function _memoir.erase_memories(p_caller _memoir.caller, p_ids uuid[], p_all uuid[])
returns jsonb language plpgsql as $$
declare
  v_user uuid := p_caller.user_id; v_now timestamptz := memoir.now(); v_rows jsonb; v_counted integer;
  v_texts text[] := p_all::text[]; v_count bigint;
begin
  with erased as (
    update _memoir.memory_store m set state = 'erased', state_at = v_now, state_reason = null, content = '',
      content_hash = sha256(uuid_send(m.memory_id)), slot = null, slot_value = null, category = null,
      source_tool = null, source_key = null, aliases = '{}', tags = '{}', metadata = '{}', project = 'global',
      session_id = null, local_to = null, scope = 'global', valid_from = null, valid_to = null, expires_at = null,
      token_count = 0, embeddable = false
    where m.user_id = v_user and m.memory_id = any (p_ids) and m.state <> 'erased' returning memory_id, is_object),
  forgotten as (delete from _memoir.memory_states s using erased e where s.user_id = v_user
    and s.memory_id = e.memory_id returning 1)
  select jsonb_build_object('memory_store', (select count(*) from erased), 'memory_states',
    (select count(*) from forgotten)), (select count(*) from erased where not is_object) into v_rows, v_counted;
  perform _memoir.note_state(v_user, array(select memory_id from _memoir.memory_store where user_id = v_user
    and memory_id = any (p_ids) and not exists (select from _memoir.memory_states s where s.user_id = v_user
      and s.memory_id = memory_store.memory_id)),
    'erased', p_caller.login, null, null, v_now, null);
  update _memoir.user_counters set memories = greatest(0, memories - v_counted) where user_id = v_user;
  -- Why somebody wanted a memory gone is no reason to keep it, nor is what was said of work in hand.
  update _memoir.recall_exclusions set reason = 'erased' where user_id = v_user and memory_id = any (p_ids);
  update _memoir.tombstones set reason = null where user_id = v_user and memory_id = any (p_ids);
  update _memoir.audit_log set detail = detail - 'reason' where user_id = v_user and detail ? 'reason'
    and (detail -> 'memory_ids' ?| v_texts or detail ->> 'memory_id' = any (v_texts));
  get diagnostics v_count = row_count;
  if v_count > 0 then insert into _memoir.erase_queue (leaf) values ('audit_log'); end if;
  update _memoir.work_items set last_error = null where user_id = v_user and last_error is not null;
  get diagnostics v_count = row_count;
  if v_count > 0 then insert into _memoir.erase_queue (leaf) values ('work_items'); end if;
  return _memoir.add_counts(v_rows, (select jsonb_object_agg(t, _memoir.erase_from(t, v_user, 'memory_id = any ($2)'
      || case when _memoir.has_column(t, 'other_id') then ' or other_id = any ($2)' else '' end, p_ids))
    from _memoir.user_tables() t where _memoir.has_column(t, 'memory_id')
      and t not in ('memory_store', 'memory_states', 'recall_exclusions', 'tombstones', 'outbox')));
end $$;

create or replace function _memoir.step_erase(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_prompt bytea; v_prompts integer := 0; v_leaf name; v_table regclass; v_leaves integer := 0; v_failed integer := 0;
  v_error text; v_done bigint[];
begin
  -- Prompts that no session has any more. Openers of sessions hold the row they use, so none is taken from under them.
  for v_prompt in select distinct prompt_hash from _memoir.erase_queue where prompt_hash is not null limit p_limit loop
    perform from _memoir.system_prompts where prompt_hash = v_prompt for update skip locked;
    continue when not found and exists (select from _memoir.system_prompts where prompt_hash = v_prompt);
    delete from _memoir.system_prompts where prompt_hash = v_prompt and not exists (select from _memoir.sessions
    where system_prompt_hash = v_prompt);
    if found then
      v_prompts := v_prompts + 1;
      insert into _memoir.erase_queue (leaf) values ('system_prompts');
    end if;
    delete from _memoir.erase_queue where prompt_hash = v_prompt;
  end loop;
  -- One by one: each is locked while it is written anew. One that can't be had soon waits for the next run.
  for v_leaf in select q.leaf from _memoir.erase_queue q where q.leaf is not null group by q.leaf
    order by min(q.queue_id) limit 1000 loop
    -- Only when nobody can see any more what a transaction erased does rewriting a leaf leave it behind.
    v_done := array(select q.queue_id from _memoir.erase_queue q where q.leaf = v_leaf
      and q.xact_id < pg_snapshot_xmin(pg_current_snapshot())
      and not exists (select from pg_stat_activity where backend_xmin is not null
        and age(backend_xmin) >= age(q.xact_id::xid))
      and not exists (select from pg_replication_slots where xmin is not null and age(xmin) >= age(q.xact_id::xid)));
    continue when v_done = '{}';
    v_table := to_regclass('_memoir.' || quote_ident(v_leaf));
    begin
      if v_table is not null then
        -- Written anew by its key, with its TOAST and indexes; the old files are gone when this commits.
        perform _memoir.run_ddl(format('cluster %s using %I', v_table, (select c.relname from pg_index i
          join pg_class c on c.oid = i.indexrelid where i.indrelid = v_table and i.indisprimary)));
        perform _memoir.run_ddl(format('alter table %s set without cluster', v_table));
        perform _memoir.run_ddl(format('analyze %s', v_table));
      end if;
      delete from _memoir.erase_queue where queue_id = any (v_done);
      v_leaves := v_leaves + 1;
    exception when lock_not_available then
      v_failed := v_failed + 1;
      v_error := format('%s: %s', v_leaf, sqlerrm);
    end;
    exit when v_leaves >= p_limit or v_failed >= 3;
  end loop;
  return jsonb_build_object('more', v_failed = 0 and (v_prompts = p_limit or v_leaves > 0), 'prompts', v_prompts,
    'leaves', v_leaves, 'failed', v_failed, 'error', v_error,
    'waiting', (select count(distinct leaf) from _memoir.erase_queue where leaf is not null and v_leaves = 0));
end $$;
