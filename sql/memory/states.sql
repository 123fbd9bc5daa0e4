-- States of memories: active, superseded, invalidated, expired, forgotten, erased. Every change is a row: who, when,
-- why, by what.

create or replace function _memoir.may_see(p_caller _memoir.caller, p_memory _memoir.memory_store)
returns boolean language sql immutable as $$
  select p_memory.sensitivity <= p_caller.clearance
    and (p_caller.projects is null or p_memory.project = any (p_caller.projects))
$$;

create or replace function _memoir.memory(p_caller _memoir.caller, p_memory uuid)
returns _memoir.memory_store language plpgsql stable as $$
declare
  v_memory _memoir.memory_store;
begin
  select * into v_memory from _memoir.memory_store m
  where m.user_id = p_caller.user_id and m.memory_id = p_memory and _memoir.may_see(p_caller, m);
  if not found then perform _memoir.fail('PM004', format('unknown memory %s', _memoir.shown(p_memory::text))); end if;
  return v_memory;
end $$;

-- Returns what stands for a memory today: it, or its last successor, or the one that was succeeded for a given reason.
create or replace function _memoir.current(p_memory _memoir.memory_store, p_unless text default null)
returns _memoir.memory_store language plpgsql stable as $$
declare
  v_memory _memoir.memory_store; v_next _memoir.memory_store; v_steps integer := 0;
begin
  select * into v_memory from _memoir.memory_store where user_id = p_memory.user_id and memory_id = p_memory.memory_id;
  while v_memory.state = 'superseded' and v_memory.superseded_by is not null and v_steps < 1000
    and v_memory.state_reason is distinct from p_unless loop
    select * into v_next from _memoir.memory_store where user_id = v_memory.user_id
      and memory_id = v_memory.superseded_by;
    exit when not found;
    v_memory := v_next;
    v_steps := v_steps + 1;
  end loop;
  return v_memory;
end $$;

-- Moves memories into a state they are not in and returns how many. What is forgotten or erased stays so, but for
-- erasing and for restore. Leaving the active state takes them out of search.
create or replace function _memoir.set_state(p_user_id uuid, p_ids uuid[], p_state _memoir.item_state, p_by text,
  p_reason text, p_successor uuid, p_at timestamptz, p_actor _memoir.actor default null)
returns integer language plpgsql as $$
declare
  v_changed uuid[];
begin
  if p_ids = '{}' then return 0; end if;
  with changed as (update _memoir.memory_store set state = p_state, state_at = p_at, state_reason = p_reason,
      superseded_by = coalesce(p_successor, superseded_by)
    where user_id = p_user_id and memory_id = any (p_ids) and state <> p_state and (state not in ('forgotten', 'erased')
      or p_state = 'erased')
      and p_state <> 'active'
    returning memory_id)
  select coalesce(array_agg(memory_id), '{}') into v_changed from changed;
  perform _memoir.note_state(p_user_id, v_changed, p_state, p_by, p_reason, p_successor, p_at, p_actor);
  update _memoir.search_items set dead = true where user_id = p_user_id and ref_id = any (v_changed) and not dead;
  perform _memoir.leave_profile(p_user_id, v_changed);
  return cardinality(v_changed);
end $$;

create or replace function _memoir.note_state(p_user_id uuid, p_ids uuid[], p_state _memoir.item_state, p_by text,
  p_reason text, p_successor uuid, p_at timestamptz, p_actor _memoir.actor)
returns void language plpgsql as $$
declare
  v_ids uuid[]; v_new boolean;
begin
  with noted as (insert into _memoir.memory_states
      (user_id, memory_id, seq, recorded_at, state, superseded_by, reason, actor, set_by)
    select p_user_id, id, 1 + coalesce((select max(s.seq) from _memoir.memory_states s where s.user_id = p_user_id
      and s.memory_id = id), 0),
      p_at, p_state, p_successor, p_reason, p_actor, p_by from unnest(p_ids) id returning memory_id, seq)
  select array_agg(memory_id), bool_and(seq = 1) into v_ids, v_new from noted;
  if v_ids is not null then perform _memoir.emit(p_user_id, case when p_state in ('forgotten', 'erased')
    then 'memory.forgotten' when v_new then 'memory.added' else 'memory.changed' end, v_ids, p_state::text); end if;
end $$;

create or replace function _memoir.supersede(p_user_id uuid, p_ids uuid[], p_successor uuid, p_by text, p_reason text,
  p_at timestamptz, p_actor _memoir.actor default null)
returns void language plpgsql as $$
begin
  perform _memoir.set_state(p_user_id, p_ids, 'superseded', p_by, p_reason, p_successor, p_at, p_actor);
  insert into _memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
  select p_user_id, p_successor, 'supersedes', o, p_reason, p_at from unnest(p_ids) o where o <> p_successor
    on conflict do nothing;
end $$;

-- Returns whether two memories can conflict: in one project, where they meet, at a time when both would be true.
create or replace function _memoir.may_conflict(p_one _memoir.memory_store, p_other _memoir.memory_store)
returns boolean language sql immutable as $$
  select p_one.project = p_other.project and (p_one.local_to is null or p_other.local_to is null
    or p_one.local_to = p_other.local_to)
    and tstzrange(p_one.valid_from, p_one.valid_to) && tstzrange(p_other.valid_from, p_other.valid_to)
$$;

-- Makes a memory active again, and findable. False where it can't: a tombstone, its end, a memory in its place.
create or replace function _memoir.restore(p_user_id uuid, p_id uuid, p_by text, p_reason text, p_at timestamptz,
  p_actor _memoir.actor)
returns boolean language plpgsql as $$
declare
  v_memory _memoir.memory_store;
begin
  select * into v_memory from _memoir.memory_store where user_id = p_user_id and memory_id = p_id and state <> 'erased';
  if not found or v_memory.state = 'active' or v_memory.expires_at <= p_at
    or (_memoir.tombstone_of(p_user_id, v_memory.content, v_memory.slot, v_memory.slot_value, v_memory.project)).user_id
      is not null
    or exists (select from _memoir.memory_store m where m.user_id = p_user_id and m.state = 'active'
    and m.project = v_memory.project
      and m.local_to is not distinct from v_memory.local_to and (m.memory_id = v_memory.superseded_by
        or m.content_hash = v_memory.content_hash and m.valid_to is not distinct from v_memory.valid_to
        or m.slot = v_memory.slot and m.slot_value is distinct from v_memory.slot_value
        and _memoir.may_conflict(m, v_memory))) then
    return false;
  end if;
  update _memoir.memory_store set state = 'active', state_at = p_at, state_reason = p_reason, superseded_by = null
  where user_id = p_user_id and memory_id = p_id;
  perform _memoir.note_state(p_user_id, array[p_id], 'active', p_by, p_reason, null, p_at, p_actor);
  perform _memoir.revive_items(p_user_id, array(select item_no from _memoir.search_items where user_id = p_user_id
    and ref_id = p_id and dead));
  update _memoir.user_counters set profile_stale = true
  where v_memory.tier >= 3 and user_id = p_user_id and not profile_stale;
  return true;
end $$;

-- Items that were dead are found again; what lacks a vector is queued, as the cursors have passed it.
create or replace function _memoir.revive_items(p_user_id uuid, p_items integer[])
returns void language plpgsql as $$
declare
  v_now timestamptz := memoir.now(); v_model smallint;
begin
  if p_items = '{}' then return; end if;
  update _memoir.search_items set dead = false where user_id = p_user_id and item_no = any (p_items);
  for v_model in with missing as (select m.model_id, min(i.item_no) as item from _memoir.embedding_models m
      join _memoir.search_items i on i.user_id = p_user_id and i.item_no = any (p_items) and i.embeddable
      where m.status <> 'retired'
        and not exists (select from _memoir.embeddings e where e.user_id = p_user_id and e.model_id = m.model_id
        and e.item_no = i.item_no)
      group by m.model_id),
    back as (update _memoir.embedding_cursors c set through_item = least(c.through_item, m.item - 1) from missing m
      where c.user_id = p_user_id and c.model_id = m.model_id)
    select model_id from missing order by model_id
  loop
    perform _memoir.enqueue_unlocked('embed', p_user_id, v_model::text, v_now);
  end loop;
end $$;

-- A new active memory out of an old one, which the caller has changed but for its id, with its counters and sources,
-- and its vectors where the text is the same. A memory true for a part of its time only gives way to a copy with those
-- bounds: the one of before stays as it was.
create or replace function _memoir.copied(p_copy _memoir.memory_store, p_same_text boolean, p_by text, p_reason text,
  p_at timestamptz, p_actor _memoir.actor)
returns uuid language plpgsql as $$
declare
  v_copy _memoir.memory_store := p_copy; v_said timestamptz; v_user uuid := p_copy.user_id;
  v_of uuid := p_copy.memory_id;
begin
  v_copy.memory_id := gen_random_uuid();
  v_copy.metadata := v_copy.metadata || jsonb_build_object('said_at', _memoir.said(p_copy));
  v_copy.recorded_at := p_at;
  v_copy.state := 'active';
  v_copy.state_at := p_at;
  v_copy.state_reason := null;
  v_copy.superseded_by := null;
  select min(i.created_at) into v_said from _memoir.search_items i where i.user_id = v_user and i.ref_id = v_of;
  insert into _memoir.memory_store select v_copy.*;
  perform _memoir.note_state(v_user, array[v_copy.memory_id], 'active', p_by, p_reason, null, p_at, p_actor);
  insert into _memoir.memory_stats (user_id, memory_id, access_count, restatements, relevance_sum, last_accessed_at,
    reinforced_at)
  select user_id, v_copy.memory_id, access_count, restatements, relevance_sum, last_accessed_at,
    coalesce(reinforced_at, p_copy.recorded_at)
  from _memoir.memory_stats where user_id = v_user and memory_id = v_of;
  insert into _memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id, session_id, turn_index,
    span_start, span_length, link)
  select user_id, item_kind, v_copy.memory_id, source_kind, source_id, session_id, turn_index, span_start, span_length,
    case when p_same_text then link else 'origin' end
  from _memoir.memory_sources where user_id = v_user and item_kind = 'memory' and item_id = v_of;
  update _memoir.user_counters set memories = memories + 1, profile_stale = profile_stale or v_copy.tier >= 3
  where user_id = v_user;
  perform _memoir.index_memory(v_copy, coalesce(v_said, p_copy.recorded_at), _memoir.config(v_user, null));
  if p_same_text then
    insert into _memoir.embeddings (user_id, item_no, model_id, embedding)
    select v_user, n.item_no, e.model_id, e.embedding
    from _memoir.search_items o join _memoir.embeddings e on e.user_id = v_user and e.item_no = o.item_no
    join _memoir.search_items n on n.user_id = v_user and n.ref_id = v_copy.memory_id and n.chunk = o.chunk
      and n.span_length = o.span_length
    where o.user_id = v_user and o.ref_id = v_of on conflict do nothing;
  end if;
  return v_copy.memory_id;
end $$;

create or replace function memoir.memory_history(p_user text, p_memory uuid)
returns table (memory_id uuid, recorded_at timestamptz, state text, reason text, actor text, set_by text,
  superseded_by uuid, content text, valid_from timestamptz, valid_to timestamptz) language plpgsql stable security
  definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_memory _memoir.memory_store := _memoir.memory(v_caller, p_memory);
begin
  return query
  with recursive family as (select v_memory.memory_id as id union
    select case when e.source_id = f.id then e.target_id else e.source_id end
    from family f join _memoir.memory_relationships e on e.user_id = v_caller.user_id and e.relation = 'supersedes'
      and (e.source_id = f.id or e.target_id = f.id))
  select m.memory_id, s.recorded_at, s.state::text, s.reason, s.actor::text, s.set_by, s.superseded_by,
    case when m.state not in ('forgotten', 'erased') then m.content end, m.valid_from, m.valid_to
  from family f
  join _memoir.memory_store m on m.user_id = v_caller.user_id and m.memory_id = f.id
  join _memoir.memory_states s on s.user_id = v_caller.user_id and s.memory_id = f.id
  where m.sensitivity <= v_caller.clearance and (v_caller.projects is null or m.project = any (v_caller.projects))
  order by s.recorded_at, m.recorded_at, s.seq, m.memory_id;
end $$;
comment on function memoir.memory_history(text, uuid) is
  'Every state that a memory, what it superseded and what superseded it were in, in order: when, which state, why, who
set it (actor and login, or the job that judged), the successor, what it said and when that was true. A forgotten text
is not shown. Raises PM001, PM004.';

create or replace function _memoir.said(p_memory _memoir.memory_store)
returns timestamptz language sql stable as $$ select coalesce((p_memory.metadata ->> 'said_at')::timestamptz,
  p_memory.recorded_at) $$;

-- Memories that changed: no version of the profile that holds one of them stays. Another number is in force where that
-- one was, so that a list which shows it is told, and the profile job looks at the user. Under the user's lock.
create or replace function _memoir.leave_profile(p_user_id uuid, p_ids uuid[])
returns void language plpgsql as $$
begin
  with gone as (delete from _memoir.profiles where user_id = p_user_id and memory_ids && p_ids returning version)
  update _memoir.users u set profile_version = u.profile_version + 1
  where u.user_id = p_user_id and u.profile_version in (select version from gone);
  update _memoir.user_counters set profile_stale = true where found and user_id = p_user_id and not profile_stale;
end $$;

-- The members of a consolidated memory, but for p_except, stand by themselves again; what of them can't (forgotten,
-- restated meanwhile) stays as it is.
create or replace function _memoir.dissolve(p_user_id uuid, p_memory uuid, p_by text, p_at timestamptz,
  p_actor _memoir.actor, p_except uuid[] default '{}')
returns uuid[] language plpgsql as $$
declare
  v_id uuid; v_restored uuid[] := '{}';
begin
  for v_id in select m.memory_id from _memoir.memory_store m where m.user_id = p_user_id and m.superseded_by = p_memory
    and m.state = 'superseded'
    and m.state_reason = 'consolidated' and m.memory_id <> all (p_except) order by m.recorded_at, m.memory_id
  loop
    if _memoir.restore(p_user_id, v_id, p_by, 'consolidation undone', p_at, p_actor) then v_restored := v_restored
      || v_id; end if;
  end loop;
  delete from _memoir.memory_relationships where user_id = p_user_id and source_id = p_memory
    and relation in ('supersedes', 'elaborates') and target_id = any (v_restored);
  update _memoir.memory_store set metadata = metadata || '{"stays_apart": true}' where user_id = p_user_id
    and memory_id = any (v_restored);
  return v_restored;
end $$;

-- Invalidates what was made of memories, or forgets it as they are forgotten. Returns which.
create or replace function _memoir.withdraw_derived(p_user_id uuid, p_ids uuid[], p_by text, p_at timestamptz,
  p_forget boolean)
returns uuid[] language plpgsql as $$
declare
  v_derived uuid[];
begin
  with recursive derived as (select s.item_id as id from _memoir.memory_sources s
    where s.user_id = p_user_id and s.item_kind = 'memory' and s.source_kind = 'memory' and s.source_id = any (p_ids)
    union
    select s.item_id from derived d join _memoir.memory_sources s on s.user_id = p_user_id and s.item_kind = 'memory'
      and s.source_kind = 'memory' and s.source_id = d.id)
  select coalesce(array_agg(id), '{}') into v_derived from derived where id <> all (p_ids);
  -- A whole that went into a greater one would come back with the other parts of that.
  perform _memoir.set_state(p_user_id, array(select m.memory_id from _memoir.memory_store m where m.user_id = p_user_id
    and m.memory_id = any (v_derived)
    and (p_forget or m.state = 'active' or m.state = 'superseded' and m.state_reason = 'consolidated')),
    case when p_forget then 'forgotten' else 'invalidated' end::_memoir.item_state, p_by,
      'its source was withdrawn', null, p_at);
  perform _memoir.dissolve(p_user_id, d, p_by, p_at, 'system', p_ids) from unnest(v_derived) d;
  return v_derived;
end $$;

-- What memories came from must not be recalled, extracted or summarised again, and what was made of them is not true
-- any more: excludes their source turns' spans, undoes the summaries that hold them, invalidates the memories derived
-- from them. p_keep: turns that stay, since they say what is right. p_forget: what was made of them holds what is
-- forgotten, and is so itself. p_more: further spans that go.
create or replace function _memoir.withdraw(p_user_id uuid, p_ids uuid[], p_keep uuid[], p_memory uuid, p_by text,
  p_reason text, p_at timestamptz, p_forget boolean default false, p_more _memoir.said_unit[] default '{}',
  out excluded_turns integer, out invalidated_summaries integer)
language plpgsql as $$
declare
  v_refs uuid[]; v_sessions uuid[]; v_turns integer[]; v_summaries uuid[]; v_derived uuid[];
begin
  v_derived := _memoir.withdraw_derived(p_user_id, p_ids, p_by, p_at, p_forget);
  with sources as (
    select distinct s.source_id, s.session_id, s.turn_index, s.span_start, s.span_length from _memoir.memory_sources s
    where s.user_id = p_user_id and s.item_kind = 'memory' and s.item_id = any (p_ids) and s.source_kind = 'turn'
      and s.source_id <> all (p_keep)
    union
    select u.message_id, u.session_id, u.turn_index, u.span_start, u.span_length from unnest(p_more) u),
  excluded as (
    insert into _memoir.recall_exclusions (user_id, session_id, turn_index, exclusion_id, span_start, span_length,
      memory_id, reason, recorded_at)
    select p_user_id, s.session_id, s.turn_index, gen_random_uuid(), s.span_start, s.span_length, p_memory, p_reason,
      p_at
    from sources s
    where not exists (select from _memoir.exclusions_of(p_user_id, s.session_id, s.turn_index) x
      where x.memory_id = any (p_ids)
        and (x.span_start, x.span_length) is not distinct from (s.span_start, s.span_length))
    returning turn_index),
  dead as (update _memoir.search_items i set dead = true from sources s
    where i.user_id = p_user_id and i.ref_id = s.source_id and not i.dead
      and (s.span_start is null or _memoir.spans_overlap(i.span_start, i.span_length, s.span_start, s.span_length)))
  select (select count(*) from excluded), coalesce(array_agg(s.source_id), '{}'), array_agg(s.session_id),
    array_agg(s.turn_index)
  into excluded_turns, v_refs, v_sessions, v_turns from sources s;
  v_summaries := _memoir.undo_summaries(p_user_id, v_sessions, v_turns, p_at);
  invalidated_summaries := cardinality(v_summaries);
  perform _memoir.release_echoes(p_user_id, v_refs);
  perform _memoir.drop_recalled(p_user_id, (p_ids || v_derived || v_refs || v_summaries)::text[]);
end $$;

-- Makes the items of a memory and returns the number of the first, null when it has no words at all.
create or replace function _memoir.index_memory(p_memory _memoir.memory_store, p_said_at timestamptz, p_config jsonb)
returns integer language plpgsql as $$
declare
  v_items _memoir.search_items[] := '{}'; v_texts text[] := '{}'; v_item _memoir.search_items; v_chunk record;
  v_count integer := 0;
  v_first integer; v_is_way boolean := p_memory.type = any (_memoir.experience_types()); v_head integer;
  v_aliases text := case when p_memory.aliases = '{}' then ''
    else ' ' || array_to_string(p_memory.aliases, ' ') end;
begin
  v_item.ref_id := p_memory.memory_id;
  -- The items of ways lie in no session, where no recall finds them. A trigger has a vector of its own.
  v_item.session_id := case when v_is_way then 'ffffffff-ffff-ffff-ffff-ffffffffffff' else p_memory.local_to end;
  v_head := case when v_is_way then strpos(p_memory.content, E'\n') else 0 end;
  update _memoir.user_counters c set features = c.features || 'experience'::text
  where v_is_way and c.user_id = p_memory.user_id and 'experience' <> all (c.features);
  v_item.created_at := p_said_at;
  v_item.kind := 'm';
  v_item.is_question := false;
  v_item.project := p_memory.project;
  v_item.echo := coalesce(p_memory.metadata ->> 'extracted_by', '') like 'rules %';
  v_item.sensitivity := p_memory.sensitivity;
  for v_chunk in
    select c.span_start + p.at - 1 as span_start, c.span_length, c.piece, c.tokens
    from (values (1, left(p_memory.content, v_head)), (v_head + 1, substr(p_memory.content, v_head + 1))) p(at, part),
      _memoir.chunks(p.part, (p_config ->> 'chunk_tokens')::integer) c where p.part <> '' order by 1
  loop
    v_item.span_start := v_chunk.span_start;
    v_item.span_length := v_chunk.span_length;
    v_item.token_count := v_chunk.tokens;
    v_item.chunk := v_count;
    v_item.embeddable := p_memory.embeddable and v_count < (p_config ->> 'embed_chunks_max')::integer;
    v_items := array_append(v_items, v_item);
    v_texts := array_append(v_texts, v_chunk.piece || case when v_count = 0 then v_aliases else '' end);
    v_count := v_count + 1;
  end loop;
  if v_count = 1 then
    v_item.token_count := p_memory.token_count;  -- known exactly
    v_items[1] := v_item;
  end if;
  v_first := _memoir.add_items(p_memory.user_id, v_items, v_texts, p_memory.recorded_at, p_config);
  if p_memory.aliases <> '{}' and v_first is not null then
    with noted as (insert into _memoir.search_aliases (user_id, item_no, name, other, stated)
      select p_memory.user_id, v_first, a.name, a.other, true
      from jsonb_to_recordset(_memoir.read_texts('given_aliases', jsonb_build_object('content', p_memory.content,
        'names', p_memory.aliases, 'value', nullif(p_memory.slot_value, _memoir.normalise(p_memory.content))))
        -> 'found') a(name text, other text)
      on conflict (user_id, name, other, item_no) do update set stated = true returning 1)
    update _memoir.user_counters set aliases = aliases + 1 where user_id = p_memory.user_id
      and exists (select from noted);
  end if;
  return v_first;
end $$;

-- A memory that was stated again takes on the tags and the other names that were given then. With another name it is
-- indexed anew; its vectors, of the content alone, stay.
create or replace function _memoir.take_labels(p_user_id uuid, p_memory_id uuid, p_tags text[], p_aliases text[])
returns void language plpgsql as $$
declare
  v_memory _memoir.memory_store; v_old _memoir.search_items[]; v_vectors _memoir.embeddings[]; v_numbers integer[];
  v_first integer;
begin
  update _memoir.memory_store m set tags = m.tags || array(select distinct t from unnest(p_tags) t
    where t <> all (m.tags) order by t)
  where m.user_id = p_user_id and m.memory_id = p_memory_id and not p_tags <@ m.tags;
  update _memoir.memory_store m set aliases = m.aliases || array(select distinct a from unnest(p_aliases) a
    where a <> all (m.aliases) order by a)
  where m.user_id = p_user_id and m.memory_id = p_memory_id and not p_aliases <@ m.aliases returning * into v_memory;
  if not found then return; end if;
  select array_agg(i order by i.chunk), array_agg(i.item_no) into v_old, v_numbers from _memoir.search_items i
  where i.user_id = p_user_id and i.ref_id = p_memory_id;
  if v_old is null then return; end if;
  select array_agg(e) into v_vectors from _memoir.embeddings e where e.user_id = p_user_id
    and e.item_no = any (v_numbers);
  perform _memoir.drop_items(p_user_id, v_numbers);
  v_first := _memoir.index_memory(v_memory, v_old[1].created_at, _memoir.config(p_user_id, null));
  update _memoir.search_items set dead = v_old[1].dead, echo = v_old[1].echo
  where user_id = p_user_id and ref_id = p_memory_id;
  insert into _memoir.embeddings (user_id, item_no, model_id, embedding)
  select v.user_id, v_first + o.chunk, v.model_id, v.embedding from unnest(v_vectors) v
  join unnest(v_old) o on o.item_no = v.item_no;
end $$;

-- Turns that are found no more leave what was extracted from them to speak for them.
create or replace function _memoir.release_echoes(p_user_id uuid, p_turns uuid[])
returns void language plpgsql as $$
begin
  update _memoir.search_items i set echo = false
  from _memoir.memory_sources s
  where s.user_id = p_user_id and s.item_kind = 'memory' and s.source_kind = 'turn' and s.source_id = any (p_turns)
    and i.user_id = p_user_id and i.ref_id = s.item_id and i.echo;
end $$;
