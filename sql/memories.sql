-- Memories. remember is the single door: what people state, what is extracted, imported or written by tools passes here.
--   normalise → tombstone → exact duplicate → slot → insert, active; near duplicates once the vector is there.

create or replace function memoir._known_types()
returns text[] language sql immutable as $$
  select array['fact', 'preference', 'instruction', 'decision', 'bug_fix', 'architecture', 'code_context', 'session_summary',
    'document_chunk', 'conversation_phase', 'design_decision', 'debugging_session', 'file_context', 'tool_result', 'plan',
    'error_context', 'external_reference', 'event', 'profile']
$$;

-- Keyed hashes of what must not come back, in order (null for null); the key dies with the user, so they say nothing afterwards.
create or replace function memoir._tombstone_keys(p_user_id uuid, p_texts text[])
returns bytea[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_secret bytea;
begin
  select secret into v_secret from memoir.user_keys where user_id = p_user_id;
  return array(select hmac(convert_to(t, 'UTF8'), v_secret, 'sha256') from unnest(p_texts) with ordinality x(t, o) order by o);
end $$;

create or replace function memoir._trust(p_actor memoir.actor, p_provenance memoir.provenance)
returns real language sql immutable as $$
  -- Authority by provenance, [PG] 6.2; what no person said can't claim a person's.
  select least(case p_provenance when 'user_stated' then 1.0 when 'correction' then 0.95 when 'instruction' then 0.9
                 when 'preference' then 0.85 when 'fact' then 0.8 when 'tool_output' then 0.7 else 0.6 end,
               case p_actor when 'person' then 1.0 when 'system' then 0.9 when 'tool' then 0.7 else 0.8 end)::real
$$;

create or replace function memoir.remember(p_user text, p_content text, p_session text default null, p_type text default 'fact',
  p_category text default null, p_importance text default 'normal', p_project text default null, p_actor text default null,
  p_provenance text default null, p_confidence real default null, p_valid_from timestamptz default null,
  p_valid_to timestamptz default null, p_tags text[] default '{}', p_slot text default null, p_slot_value text default null,
  p_aliases text[] default '{}', p_sensitivity text default 'normal', p_source_turns integer[] default null,
  p_source_tool text default null, p_source_key text default null, p_metadata jsonb default '{}',
  p_embedding real[] default null, p_key text default null, p_created_at timestamptz default null, p_embeddable boolean default true)
returns jsonb language plpgsql security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_caller memoir.caller := memoir._authorise(p_user, 'write');
  v_user uuid := v_caller.user_id;
  v_config jsonb; v_session memoir.sessions; v_now timestamptz := memoir.now(); v_memory memoir.memory_store;
  v_hash bytea; v_receipt memoir.receipts; v_result jsonb; v_project text;
  v_metadata jsonb := coalesce(nullif(p_metadata, 'null'), '{}'); v_turns integer[] := nullif(p_source_turns, '{}'); v_sources memoir.conversation_history[] := '{}';
begin
  if p_content is null or p_content !~ '[^\s\u0085\u2028\u2029]' then
    perform memoir._fail('PM014', format('content must not be empty, it is %s', memoir._shown(p_content)));
  end if;
  if p_type is null or p_type <> all (memoir._known_types()) then
    perform memoir._fail('PM014', format('unknown type %s', memoir._shown(p_type)), array_to_string(memoir._known_types(), ', '));
  end if;
  if p_importance is null or p_importance not in ('critical', 'important', 'normal', 'minor') then
    perform memoir._fail('PM014', format('importance must be critical, important, normal or minor, not %s', memoir._shown(p_importance)));
  end if;
  if p_provenance is not null and p_provenance not in ('user_stated', 'correction', 'instruction', 'preference', 'fact', 'tool_output', 'system_inferred') then
    perform memoir._fail('PM014', format('unknown provenance %s', memoir._shown(p_provenance)));
  end if;
  if p_sensitivity is null or p_sensitivity not in ('normal', 'private', 'secret') then
    perform memoir._fail('PM014', format('sensitivity must be normal, private or secret, not %s', memoir._shown(p_sensitivity)));
  end if;
  if p_confidence is not null and not (p_confidence between 0 and 1) then
    perform memoir._fail('PM014', format('confidence must be from 0 to 1, not %s', p_confidence));
  end if;
  if p_valid_to <= p_valid_from then
    perform memoir._fail('PM014', format('valid_to %s is not after valid_from %s', p_valid_to, p_valid_from));
  end if;
  if p_slot_value is not null and p_slot is null then
    perform memoir._fail('PM014', format('slot_value %s needs a slot', memoir._shown(p_slot_value)));
  end if;
  if v_turns is not null and p_session is null then
    perform memoir._fail('PM014', 'source_turns needs the session the turns are in');
  end if;
  if jsonb_typeof(v_metadata) <> 'object' then
    perform memoir._fail('PM014', format('metadata must be a JSON object, not %s', memoir._shown(p_metadata::text)));
  end if;
  perform memoir._check_short('slot', p_slot, 200), memoir._check_short('slot_value', p_slot_value, 2000), memoir._check_short('category', p_category, 200),
    memoir._check_short('source_tool', p_source_tool, 200), memoir._check_short('source_key', p_source_key, 500), memoir._check_short('key', p_key, 200);
  perform memoir._check_short(format('tags[%s]', o - 1), coalesce(t, ''), 200) from unnest(p_tags) with ordinality x(t, o);
  perform memoir._check_short(format('aliases[%s]', o - 1), coalesce(t, ''), 500) from unnest(p_aliases) with ordinality x(t, o);
  perform memoir._check_time('created_at', to_jsonb(p_created_at), 'PM014');
  if p_embedding is not null then perform memoir._to_vector(p_embedding, memoir._embedding_model(null)); end if;
  if p_session is not null then v_session := memoir._session(v_caller, p_session); end if;
  v_project := memoir._check_project(v_caller, coalesce(p_project, v_session.project, memoir._default_project(v_caller)));
  perform memoir._touch_user(v_caller, p_user);
  v_config := memoir._config(v_user, v_session.settings);
  perform memoir._check_size('content', p_content, (v_config ->> 'text_bytes_max')::integer);
  perform memoir._check_size('metadata', v_metadata::text, (v_config ->> 'text_bytes_max')::integer);
  v_sources := memoir._source_turns(v_session, v_turns);
  if p_key is not null then
    v_hash := sha256(convert_to(jsonb_build_array('remember', p_content, p_session, p_type, p_category, p_importance, p_project, p_actor,
      p_provenance, p_confidence, p_valid_from, p_valid_to, p_tags, p_slot, p_slot_value, p_aliases, p_sensitivity, p_source_turns, p_source_tool,
      p_source_key, p_metadata, p_embedding, p_created_at, p_embeddable)::text, 'UTF8'));
  end if;

  -- Per-user lock: duplicates and slots are decided one writer at a time.
  perform from memoir.user_counters where user_id = v_user for update;
  if p_key is not null then
    select * into v_receipt from memoir.receipts where user_id = v_user and idempotency_key = p_key;
    if found then
      if v_receipt.request_hash <> v_hash then
        perform memoir._fail('PM006', format('idempotency key %s was used with another request', memoir._shown(p_key)));
      end if;
      return v_receipt.result;
    end if;
  end if;

  -- Without a session the caller speaks for the person unless bound or stated otherwise; within one it is the agent.
  v_memory.actor := memoir._actor(v_caller, p_actor, case when p_session is null then 'person' else 'agent' end::memoir.actor);
  v_memory.provenance := coalesce(p_provenance,
    case v_memory.actor when 'person' then case p_type when 'preference' then 'preference' when 'instruction' then 'instruction' else 'user_stated' end
                        when 'tool' then 'tool_output' else 'system_inferred' end);
  v_memory.user_id := v_user;
  v_memory.recorded_at := v_now;
  v_memory.valid_from := coalesce(p_valid_from, p_created_at);
  v_memory.valid_to := p_valid_to;
  v_memory.confidence := p_confidence;
  v_memory.sensitivity := p_sensitivity;
  v_memory.embeddable := p_embeddable;
  v_memory.importance := p_importance;
  v_memory.type := p_type;
  v_memory.category := p_category;
  v_memory.project := v_project;
  v_memory.content := p_content;
  v_memory.slot := p_slot;
  v_memory.slot_value := p_slot_value;
  v_memory.source_tool := p_source_tool;
  v_memory.source_key := p_source_key;
  v_memory.written_by := v_caller.login;
  v_memory.aliases := coalesce(p_aliases, '{}');
  v_memory.tags := coalesce(p_tags, '{}');
  v_memory.metadata := v_metadata || case when p_created_at is null then '{}' else jsonb_build_object('said_at', p_created_at) end;
  v_result := memoir._enter(v_memory, v_session, v_sources, null, null, p_created_at, p_embedding, v_config);
  if p_key is not null then
    perform memoir._keep_receipt(v_user, p_key, v_hash, v_result, v_now);
  end if;
  return v_result;
end $$;
comment on function memoir.remember(text, text, text, text, text, text, text, text, text, real, timestamptz, timestamptz, text[],
  text, text, text[], text, integer[], text, text, jsonb, real[], text, timestamptz, boolean) is
  'Stores a memory and returns {"memory_id", "outcome", "superseded", "contradicts"}; outcome: stored, duplicate (exact or near),
refused_tombstone. p_actor: person (default without a session), agent (default within one), tool; what an agent reports counts as
the person''s word only with p_source_turns, turn indexes in p_session, that are all the person''s. A slot ("home city") holds one
value (default: the content); a newer value of equal or higher authority supersedes. Inferred and tool memories end
local_memory_hours after their session. What looks like a key, a card, an account or a personal number, or comes from a secret turn,
is secret whatever p_sensitivity says; p_embeddable false keeps it from embedding models. A restated memory takes on the higher authority, sensitivity and later expiry.
p_embedding: vector of the active embedding model. p_key: idempotency key.
Writes memory_store and what belongs to it. Raises PM001, PM003, PM006, PM012, PM014, PM030.';

-- The door itself: everything that becomes a memory passes here, under the user's lock. p_memory: what is claimed, from content to
-- metadata; where it enters, what it may claim to be and its trust are decided here. Source turns may come with the span of each.
create or replace function memoir._enter(p_memory memoir.memory_store, p_session memoir.sessions, p_sources memoir.conversation_history[],
  p_span_starts integer[], p_span_lengths integer[], p_said_at timestamptz, p_embedding real[], p_config jsonb)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_memory memoir.memory_store := p_memory; v_old memoir.memory_store; v_user uuid := p_memory.user_id; v_now timestamptz := p_memory.recorded_at;
  v_actor memoir.actor := p_memory.actor; v_result jsonb; v_index integer; v_superseded uuid[] := '{}'; v_contradicts uuid[] := '{}';
  v_global boolean; v_person boolean; v_keys bytea[];
begin
  -- Only the person's own turns back the claim that the person said so.
  v_person := v_actor = 'person' or (cardinality(p_sources) > 0 and not exists (
    select from unnest(p_sources) t where t.role <> 'user' or t.actor <> 'person'));
  if v_actor = 'tool' then v_memory.provenance := 'tool_output';
  elsif not v_person and v_memory.provenance in ('user_stated', 'correction', 'preference', 'instruction') then
    v_memory.provenance := 'system_inferred';
  end if;
  v_global := p_session.session_id is null or v_actor = 'person' or v_memory.provenance in ('user_stated', 'correction', 'preference', 'instruction');

  v_memory.memory_id := gen_random_uuid();
  v_memory.state_at := v_now;
  v_memory.session_id := p_session.session_id;
  v_memory.local_to := case when not v_global then p_session.session_id end;
  v_memory.scope := case when v_global then 'global' else 'local' end;
  -- A person's direct word is validated by itself: preferences and instructions are procedural, the rest semantic ([PG] 5.1).
  v_memory.tier := case when not v_global or v_memory.provenance in ('system_inferred', 'tool_output') then 1
    when v_actor <> 'person' then 2 when v_memory.provenance in ('preference', 'instruction') then 4 else 3 end;
  v_memory.validated_at := case when v_actor = 'person' then v_now end;
  v_memory.trust := memoir._trust(v_actor, v_memory.provenance);
  v_memory.confidence := coalesce(v_memory.confidence, case when v_actor = 'person' then 0.9 else 0.5 end);
  v_memory.state := 'active';
  -- As secret as the strictest of what is said of it, what it looks like, and what it comes from.
  v_memory.sensitivity := greatest(v_memory.sensitivity, memoir._turns_held(p_sources),
    case when memoir._detected(p_config, v_memory.content, array_to_string(v_memory.aliases, ' '), v_memory.slot_value,
                               array_to_string(v_memory.tags, ' '), nullif(v_memory.metadata, '{}')::text) <> '{}' then 'secret'::memoir.sensitivity end);
  v_memory.embeddable := coalesce(v_memory.embeddable, true) and v_memory.sensitivity <> 'secret';
  v_memory.content_hash := sha256(convert_to(memoir._normalise(v_memory.content), 'UTF8'));
  v_memory.tokenizer := memoir._tokenizer_used(coalesce(p_session.tokenizer, (memoir._model(p_config ->> 'default_model')).tokenizer));
  v_memory.token_count := (memoir._count_tokens(array[v_memory.content], v_memory.tokenizer))[1];
  v_memory.slot := memoir._normalise(v_memory.slot);
  v_memory.slot_value := memoir._normalise(coalesce(v_memory.slot_value, case when v_memory.slot is not null then v_memory.content end));
  v_memory.expires_at := case
    when v_memory.tier = 2 then v_now + make_interval(days => (p_config ->> 'episodic_days')::integer)
    -- What is inferred lives as long as its session and a while; outside any, that while.
    when v_memory.tier < 2 and (v_global or p_session.status in ('closed', 'expired')) then
      v_now + make_interval(hours => (p_config ->> 'local_memory_hours')::integer) end;

  v_keys := memoir._tombstone_keys(v_user, array[memoir._normalise(v_memory.content), v_memory.slot || chr(31) || v_memory.slot_value]);
  if exists (select from memoir.tombstones t where t.user_id = v_user and t.key_hash = any (v_keys) and t.lifted_at is null) then
    return memoir._remembered(null, 'refused_tombstone', '{}', '{}');
  end if;

  select * into v_old from memoir.memory_store m
  where m.user_id = v_user and m.content_hash = v_memory.content_hash and m.project = v_memory.project
    and m.local_to is not distinct from v_memory.local_to and m.state = 'active';
  if found and v_old.expires_at <= v_now then  -- gone already, only not swept yet
    perform memoir._set_state(v_user, array[v_old.memory_id], 'expired', v_memory.written_by, 'expired', null, v_now);
    v_old := null;
  end if;
  if v_old.memory_id is not null then
    insert into memoir.memory_stats (user_id, memory_id, restatements, reinforced_at) values (v_user, v_old.memory_id, 1, v_now)
    on conflict (user_id, memory_id) do update set restatements = memory_stats.restatements + 1, reinforced_at = v_now;
    perform memoir._restate(v_old, v_memory);
    perform memoir._add_sources(v_user, v_old.memory_id, p_sources, p_span_starts, p_span_lengths, 'restated');
    return memoir._remembered(v_old.memory_id, 'duplicate', '{}', '{}');
  end if;
  -- A slot holds one value per project: between equals the newer wins, a lower authority only contradicts.
  if v_memory.slot is not null then
    for v_old in select * from memoir.memory_store m
      where m.user_id = v_user and m.slot = v_memory.slot and m.state = 'active' and m.project = v_memory.project
        and m.slot_value is distinct from v_memory.slot_value and m.local_to is not distinct from v_memory.local_to
    loop
      if v_memory.trust >= v_old.trust or v_memory.provenance = 'correction' then v_superseded := v_superseded || v_old.memory_id;
      else v_contradicts := v_contradicts || v_old.memory_id; end if;
    end loop;
  end if;
  insert into memoir.memory_store select v_memory.*;
  insert into memoir.memory_states (user_id, memory_id, recorded_at, state, set_by)
  values (v_user, v_memory.memory_id, v_now, 'active', v_memory.written_by);
  insert into memoir.memory_stats (user_id, memory_id) values (v_user, v_memory.memory_id);
  update memoir.user_counters set memories = memories + 1, profile_stale = profile_stale or v_memory.tier >= 3 where user_id = v_user;
  perform memoir._supersede(v_user, v_superseded, v_memory.memory_id, v_memory.written_by, 'slot', v_now);
  insert into memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
  select v_user, v_memory.memory_id, 'contradicts', o, 'slot', v_now from unnest(v_contradicts) o on conflict do nothing;
  perform memoir._add_sources(v_user, v_memory.memory_id, p_sources, p_span_starts, p_span_lengths);
  v_index := memoir._index_memory(v_memory, coalesce(p_said_at, v_now), p_config);
  v_result := memoir._remembered(v_memory.memory_id, 'stored', v_superseded, v_contradicts);
  if p_embedding is not null and v_memory.embeddable and v_index is not null then
    perform memoir._store_vector(v_user, v_index, p_embedding, null);
    v_result := v_result || coalesce(memoir._judge_duplicate(v_user, v_memory.memory_id, v_memory.written_by), '{}');
  end if;
  return v_result;
end $$;

create or replace function memoir._remembered(p_id uuid, p_outcome text, p_superseded uuid[], p_contradicts uuid[])
returns jsonb language sql immutable as $$
  select jsonb_build_object('memory_id', p_id, 'outcome', p_outcome, 'superseded', to_jsonb(p_superseded), 'contradicts', to_jsonb(p_contradicts))
$$;

-- A short text argument: null, or 1 to p_limit characters that are not all invisible.
create or replace function memoir._check_short(p_field text, p_value text, p_limit integer)
returns void language plpgsql immutable as $$
begin
  if p_value is not null and (length(p_value) > p_limit or memoir._normalise(p_value) = '') then
    perform memoir._fail('PM014', format('%s must be a text of 1 to %s characters, not %s', p_field, p_limit, memoir._shown(p_value)));
  end if;
end $$;

-- The turns a memory is said to come from, as the session sees them; PM014 for one that does not exist.
create or replace function memoir._source_turns(p_session memoir.sessions, p_turns integer[])
returns memoir.conversation_history[] language plpgsql stable as $$
declare
  v_index integer; v_turn memoir.conversation_history; v_turns memoir.conversation_history[] := '{}';
begin
  for v_index in select distinct t from unnest(p_turns) t order by t loop
    v_turn := memoir._turn_seen(p_session, v_index);
    if v_turn.message_id is null then
      perform memoir._fail('PM014', format('source turn %s does not exist in session %s', coalesce(v_index::text, 'null'), memoir._shown(p_session.external_id)));
    end if;
    v_turns := array_append(v_turns, v_turn);
  end loop;
  return v_turns;
end $$;

-- Spans are of the turn's content, 1-based characters; null: all of it.
create or replace function memoir._add_sources(p_user_id uuid, p_memory_id uuid, p_turns memoir.conversation_history[],
  p_span_starts integer[] default null, p_span_lengths integer[] default null, p_link text default 'origin')
returns void language plpgsql as $$
declare
  v_turn memoir.conversation_history; i integer := 0;
begin
  foreach v_turn in array p_turns loop
    i := i + 1;
    insert into memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id, session_id, turn_index, span_start, span_length, link)
    values (p_user_id, 'memory', p_memory_id, 'turn', v_turn.message_id, v_turn.session_id, v_turn.turn_index, p_span_starts[i], p_span_lengths[i], p_link)
    on conflict do nothing;
  end loop;
end $$;

-- The same text again: the memory takes on the higher authority, the stricter sensitivity and the later end.
create or replace function memoir._restate(p_old memoir.memory_store, p_new memoir.memory_store)
returns void language plpgsql as $$
begin
  update memoir.memory_store set
    trust = greatest(trust, p_new.trust), confidence = greatest(confidence, p_new.confidence), tier = greatest(tier, p_new.tier),
    provenance = case when p_new.trust > trust then p_new.provenance else provenance end,
    actor = case when p_new.trust > trust then p_new.actor else actor end,
    validated_at = coalesce(validated_at, p_new.validated_at), sensitivity = greatest(sensitivity, p_new.sensitivity),
    embeddable = embeddable and p_new.embeddable,
    expires_at = case when p_new.expires_at is null then null else greatest(expires_at, p_new.expires_at) end
  where user_id = p_old.user_id and memory_id = p_old.memory_id and (p_new.trust > trust or p_new.confidence > confidence or p_new.tier > tier
    or p_new.sensitivity > sensitivity or embeddable and not p_new.embeddable or validated_at is null and p_new.validated_at is not null
    or expires_at is not null and (p_new.expires_at is null or p_new.expires_at > expires_at));
  if p_new.sensitivity > p_old.sensitivity then
    update memoir.search_items set sensitivity = p_new.sensitivity where user_id = p_old.user_id and ref_id = p_old.memory_id;
    perform memoir._leave_profile(p_old.user_id, array[p_old.memory_id]);
  end if;
  if p_new.tier > p_old.tier then perform memoir._stale_profile(p_old.user_id); end if;
  if p_old.embeddable and not p_new.embeddable then
    delete from memoir.embeddings e using memoir.search_items i
    where i.user_id = p_old.user_id and i.ref_id = p_old.memory_id and e.user_id = p_old.user_id and e.item_no = i.item_no;
    update memoir.search_items set embeddable = false where user_id = p_old.user_id and ref_id = p_old.memory_id;
  end if;
end $$;

create or replace function memoir._set_state(p_user_id uuid, p_ids uuid[], p_state memoir.item_state, p_by text, p_reason text,
  p_successor uuid, p_at timestamptz)
returns integer language plpgsql as $$
declare
  v_changed uuid[];
begin
  if p_ids = '{}' then return 0; end if;
  with changed as (
    update memoir.memory_store set state = p_state, state_at = p_at, state_by = p_by, state_reason = p_reason,
      superseded_by = coalesce(p_successor, superseded_by)
    where user_id = p_user_id and memory_id = any (p_ids) and state <> p_state returning memory_id)
  select coalesce(array_agg(memory_id), '{}') into v_changed from changed;
  insert into memoir.memory_states (user_id, memory_id, recorded_at, state, superseded_by, reason, set_by)
  select p_user_id, id, p_at, p_state, p_successor, p_reason, p_by from unnest(v_changed) id
  on conflict do nothing;
  update memoir.search_items set dead = true where user_id = p_user_id and ref_id = any (v_changed) and not dead;
  perform memoir._leave_profile(p_user_id, v_changed);
  return cardinality(v_changed);
end $$;

create or replace function memoir._supersede(p_user_id uuid, p_ids uuid[], p_successor uuid, p_by text, p_reason text, p_at timestamptz)
returns void language plpgsql as $$
begin
  perform memoir._set_state(p_user_id, p_ids, 'superseded', p_by, p_reason, p_successor, p_at);
  insert into memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
  select p_user_id, p_successor, 'supersedes', o, p_reason, p_at from unnest(p_ids) o on conflict do nothing;
end $$;

-- Makes the items of a memory and returns the number of the first, null when it has no words at all.
create or replace function memoir._index_memory(p_memory memoir.memory_store, p_said_at timestamptz, p_config jsonb)
returns integer language plpgsql as $$
declare
  v_items memoir.search_items[] := '{}'; v_texts text[] := '{}'; v_item memoir.search_items; v_chunk record; v_count integer := 0;
  v_aliases text := case when p_memory.aliases = '{}' then '' else ' ' || array_to_string(p_memory.aliases, ' ') end;
begin
  v_item.ref_id := p_memory.memory_id;
  v_item.session_id := p_memory.local_to;
  v_item.created_at := p_said_at;
  v_item.kind := 'm';
  v_item.is_question := false;
  v_item.project := p_memory.project;
  v_item.sensitivity := p_memory.sensitivity;
  for v_chunk in select * from memoir._chunks(p_memory.content, (p_config ->> 'chunk_tokens')::integer) loop
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
  return memoir._add_items(p_memory.user_id, v_items, v_texts, p_memory.recorded_at, p_config);
end $$;

create or replace function memoir._memory(p_caller memoir.caller, p_memory uuid)
returns memoir.memory_store language plpgsql stable as $$
declare
  v_memory memoir.memory_store;
begin
  select * into v_memory from memoir.memory_store m
  where m.user_id = p_caller.user_id and m.memory_id = p_memory and m.sensitivity <= p_caller.clearance
    and (p_caller.projects is null or m.project = any (p_caller.projects));
  if not found then perform memoir._fail('PM004', format('unknown memory %s', memoir._shown(p_memory::text))); end if;
  return v_memory;
end $$;

create or replace function memoir.forget(p_user text, p_memory uuid, p_reason text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller memoir.caller := memoir._authorise(p_user, 'write');
  v_memory memoir.memory_store := memoir._memory(v_caller, p_memory);
  v_actor memoir.actor := memoir._actor(v_caller, null, 'person');
  v_now timestamptz := memoir.now(); v_user uuid := v_caller.user_id; v_turns integer; v_reason text := coalesce(p_reason, 'forgotten');
  v_ids uuid[]; v_refs uuid[]; v_summaries uuid[]; v_texts text[]; v_kinds text[];
begin
  perform memoir._check_size('reason', p_reason, 10000);
  perform from memoir.user_counters where user_id = v_user for update;
  -- The same said in other words was merged with it: all of them go.
  with recursive same as (
    select v_memory.memory_id as id
    union
    select case when m.memory_id = s.id then m.superseded_by else m.memory_id end
    from same s join memoir.memory_store m on m.user_id = v_user and m.superseded_by is not null and m.state_reason = 'near duplicate'
      and (m.memory_id = s.id or m.superseded_by = s.id))
  select array_agg(id order by id) into v_ids from same;
  perform memoir._set_state(v_user, v_ids, 'forgotten', v_caller.login, v_reason, null, v_now);
  select array_agg(k.text), array_agg(k.kind) into v_texts, v_kinds from (
    select distinct k.text, k.kind from memoir.memory_store m,
      lateral (values (memoir._normalise(m.content), 'value'), (m.slot || chr(31) || m.slot_value, 'slot_value')) k(text, kind)
    where m.user_id = v_user and m.memory_id = any (v_ids) and k.text is not null) k;
  insert into memoir.tombstones (user_id, key_hash, kind, memory_id, reason, actor, set_by, recorded_at)
  select v_user, k.key_hash, k.kind, p_memory, v_reason, v_actor, v_caller.login, v_now
  from unnest(memoir._tombstone_keys(v_user, v_texts), v_kinds) k(key_hash, kind)
  on conflict (user_id, key_hash, kind) do update set lifted_at = null, lifted_by = null, recorded_at = excluded.recorded_at,
    reason = excluded.reason, actor = excluded.actor, set_by = excluded.set_by;

  -- What it came from must not be recalled, extracted or summarised again either.
  with sources as (
    select distinct s.source_id, s.session_id, s.turn_index, s.span_start, s.span_length from memoir.memory_sources s
    where s.user_id = v_user and s.item_kind = 'memory' and s.item_id = any (v_ids) and s.source_kind = 'turn'),
  excluded_turns as (
    insert into memoir.recall_exclusions (user_id, session_id, turn_index, exclusion_id, span_start, span_length, memory_id, reason, recorded_at)
    select v_user, s.session_id, s.turn_index, gen_random_uuid(), s.span_start, s.span_length, p_memory, v_reason, v_now
    from sources s
    where not exists (select from memoir.recall_exclusions x where x.user_id = v_user and x.session_id = s.session_id
                      and x.turn_index = s.turn_index and x.memory_id = any (v_ids) and x.lifted_at is null
                      and x.span_start is not distinct from s.span_start and x.span_length is not distinct from s.span_length)
    returning turn_index),
  dead as (
    update memoir.search_items i set dead = true from sources s
    where i.user_id = v_user and i.ref_id = s.source_id and not i.dead
      and (s.span_start is null or (i.span_start < s.span_start + s.span_length and s.span_start < i.span_start + i.span_length))),
  -- Summaries of the sessions that have these turns: their own, and those of branches that share them.
  holders as (
    with recursive tree as (
      select s.session_id, s.turn_index from sources s
      union
      select b.session_id, t.turn_index from tree t
      join memoir.sessions b on b.user_id = v_user and b.parent_session_id = t.session_id and b.parent_turn > t.turn_index)
    select * from tree),
  undone as (
    update memoir.compactions c set undone_at = v_now from holders h
    where c.user_id = v_user and c.session_id = h.session_id and h.turn_index between c.from_turn and c.to_turn and c.undone_at is null
    returning c.compaction_id),
  emptied as (
    update memoir.sessions x set summary_text = null, summary_through = null from holders h
    where x.user_id = v_user and x.session_id = h.session_id and h.turn_index <= x.summary_through
    returning x.session_id)
  select (select count(*) from excluded_turns), (select array_agg(source_id) from sources),
    array(select compaction_id from undone union select session_id from emptied)
  into v_turns, v_refs, v_summaries;
  update memoir.search_items set dead = true where user_id = v_user and ref_id = any (v_summaries) and kind = 's' and not dead;
  perform memoir._refresh_summary(v_user, h.session_id) from (
    select c.session_id from memoir.compactions c where c.user_id = v_user and c.compaction_id = any (v_summaries)
    union select unnest(v_summaries) order by 1) h;
  delete from memoir.kept_recalls where user_id = v_user and items ?| (v_ids || v_refs || v_summaries)::text[];
  insert into memoir.audit_log (login, action, user_id, detail)
  values (v_caller.login, 'forget', v_user, jsonb_build_object('memory_ids', v_ids, 'reason', v_reason));
  return jsonb_build_object('memory_id', p_memory, 'state', 'forgotten', 'merged', to_jsonb(array_remove(v_ids, p_memory)), 'excluded_turns', v_turns,
    'invalidated_summaries', cardinality(v_summaries));
end $$;
comment on function memoir.forget(text, uuid, text) is
  'Takes a memory, and the near duplicates merged with it, out of recall and compile for good: its text may not come back through remember (a tombstone of its keyed hash
stays), its source turns leave recall and the summaries that hold them are invalidated. History keeps the turns; free
paraphrases elsewhere are not found. Writes memory_store, tombstones, recall_exclusions, audit_log. Raises PM001, PM004.';
