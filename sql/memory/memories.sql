-- Memories. remember is the single door: what people state, what is extracted, imported or written by tools
-- passes here.
--   normalise → tombstone → exact duplicate → slot → insert, active; near duplicates once the vector is there.

create or replace function _memoir.known_types()
returns text[] language sql immutable as $$
  select array['fact', 'preference', 'instruction', 'decision', 'bug_fix', 'architecture', 'code_context',
    'session_summary', 'document_chunk', 'conversation_phase', 'design_decision', 'debugging_session', 'file_context',
    'tool_result', 'plan', 'error_context', 'external_reference', 'event', 'profile'] || _memoir.experience_types()
$$;

create or replace function _memoir.trust(p_actor _memoir.actor, p_provenance _memoir.provenance)
returns real language sql immutable as $$
  -- Authority by provenance, [PG] 6.2; what no person said can't have a person's.
  select least(case p_provenance when 'user_stated' then 1.0 when 'correction' then 0.95 when 'instruction' then 0.9
                 when 'preference' then 0.85 when 'fact' then 0.8 when 'tool_output' then 0.7 else 0.6 end,
               case p_actor when 'person' then 1.0 when 'system' then 0.9 when 'tool' then 0.7 else 0.8 end)::real
$$;

-- Whose word a write is, whatever its text says. Only the person's own turns back a statement that the person said so.
create or replace function _memoir.standing(p_actor _memoir.actor, p_type text, p_provenance _memoir.provenance,
  p_sources _memoir.conversation_history[])
returns _memoir.standing language plpgsql stable as $$
declare
  v_standing _memoir.standing;
begin
  v_standing.actor := p_actor;
  v_standing.by_person := p_actor = 'person' or p_actor <> 'tool' and cardinality(p_sources) > 0
    and not exists (select from unnest(p_sources) t where t.role <> 'user' or t.actor <> 'person');
  v_standing.provenance := coalesce(p_provenance,
    case p_actor when 'person' then case p_type when 'preference' then 'preference'
    when 'instruction' then 'instruction' else 'user_stated' end
                 when 'tool' then 'tool_output' else 'system_inferred' end::_memoir.provenance);
  if p_actor = 'tool' then v_standing.provenance := 'tool_output';
  elsif not v_standing.by_person and v_standing.provenance <> 'tool_output' then
    v_standing.provenance := 'system_inferred';
  end if;
  v_standing.trust := _memoir.trust(v_standing.actor, v_standing.provenance);
  return v_standing;
end $$;

-- Where what is remembered outside every session belongs while it is local: seen by recalls outside of sessions only.
create or replace function _memoir.no_session()
returns uuid language sql immutable as $$ select '00000000-0000-0000-0000-000000000000'::uuid $$;

-- Checks the arguments of remember that need no look at the user's rows. p_provenance and p_sensitivity are those of
-- the memory, as text.
create or replace function _memoir.check_claim(p_memory _memoir.memory_store, p_provenance text, p_sensitivity text,
  p_key text, p_created_at timestamptz, p_embedding real[])
returns void language plpgsql stable as $$
begin
  perform _memoir.check_text('content', p_memory.content);
  if p_memory.type is null or p_memory.type <> all (_memoir.known_types()) then
    perform _memoir.fail('PM014', format('unknown type %s', _memoir.shown(p_memory.type)),
      array_to_string(_memoir.known_types(), ', '));
  end if;
  perform _memoir.check_choice('importance', p_memory.importance, '{critical,important,normal,minor}');
  if p_provenance <> all (enum_range(null::_memoir.provenance)::text[]) then
    perform _memoir.fail('PM014', format('unknown provenance %s', _memoir.shown(p_provenance)));
  end if;
  perform _memoir.check_choice('sensitivity', p_sensitivity, enum_range(null::_memoir.sensitivity)::text[]);
  perform _memoir.check_range('confidence', p_memory.confidence, 0, 1);
  perform _memoir.fail('PM014', format('valid_to %s is not after valid_from %s', p_memory.valid_to,
    p_memory.valid_from)) where p_memory.valid_to <= p_memory.valid_from;
  if p_memory.slot_value is not null and p_memory.slot is null then
    perform _memoir.fail('PM014', format('slot_value %s needs a slot', _memoir.shown(p_memory.slot_value)));
  end if;
  perform _memoir.check_object('metadata', p_memory.metadata);
  perform _memoir.check_short('slot', p_memory.slot, 200), _memoir.check_short('slot_value', p_memory.slot_value, 2000),
    _memoir.check_short('category', p_memory.category, 200), _memoir.check_short('source_tool', p_memory.source_tool,
      200), _memoir.check_short('source_key', p_memory.source_key, 500), _memoir.check_short('key', p_key, 200);
  perform _memoir.check_short(format('tags[%s]', o - 1), coalesce(t, ''), 200)
    from unnest(p_memory.tags) with ordinality x(t, o);
  perform _memoir.check_short(format('aliases[%s]', o - 1), coalesce(t, ''), 500)
    from unnest(p_memory.aliases) with ordinality x(t, o);
  perform _memoir.check_time('created_at', to_jsonb(p_created_at), 'PM014'),
    _memoir.check_range('the year of valid_from', extract(year from p_memory.valid_from), 1900, 9998),
    _memoir.check_range('the year of valid_to', extract(year from p_memory.valid_to), 1900, 9998);
  if p_embedding is not null then perform _memoir.to_vector(p_embedding, _memoir.embedding_model(null)); end if;
end $$;

create or replace function memoir.remember(p_user text, p_content text, p_session text default null,
  p_type text default 'fact', p_category text default null, p_importance text default 'normal',
  p_project text default null, p_actor text default null, p_provenance text default null,
  p_confidence real default null, p_valid_from timestamptz default null, p_valid_to timestamptz default null,
  p_tags text[] default '{}', p_slot text default null, p_slot_value text default null, p_aliases text[] default '{}',
  p_sensitivity text default 'normal', p_source_turns integer[] default null, p_source_tool text default null,
  p_source_key text default null, p_metadata jsonb default '{}', p_embedding real[] default null,
  p_key text default null, p_created_at timestamptz default null, p_embeddable boolean default true)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_user uuid := v_caller.user_id; v_memory _memoir.memory_store; v_session _memoir.sessions;
  v_sources _memoir.conversation_history[]; v_config jsonb; v_hash bytea; v_result jsonb; v_judged jsonb;
  v_model _memoir.embedding_models;
begin
  v_memory.user_id := v_user; v_memory.recorded_at := memoir.now(); v_memory.written_by := v_caller.login;
  v_memory.content := p_content; v_memory.type := p_type; v_memory.category := p_category;
  v_memory.importance := p_importance; v_memory.embeddable := p_embeddable; v_memory.confidence := p_confidence;
  v_memory.valid_from := coalesce(p_valid_from, p_created_at); v_memory.valid_to := p_valid_to;
  v_memory.slot := p_slot; v_memory.slot_value := p_slot_value;
  v_memory.source_tool := p_source_tool; v_memory.source_key := p_source_key;
  v_memory.tags := coalesce(p_tags, '{}');
  v_memory.aliases := coalesce(p_aliases, '{}');
  v_memory.metadata := coalesce(nullif(p_metadata, 'null'), '{}');
  perform _memoir.check_claim(v_memory, p_provenance, p_sensitivity, p_key, p_created_at, p_embedding);
  v_memory.provenance := p_provenance;
  v_memory.sensitivity := p_sensitivity;
  if p_session is not null then v_session := _memoir.session(v_caller, p_session); end if;
  v_memory.project := _memoir.check_project(v_caller, coalesce(p_project, v_session.project,
    _memoir.default_project(v_caller)));
  perform _memoir.touch_user(v_caller, p_user);
  v_config := _memoir.config(v_user, v_session.settings);
  perform _memoir.check_size('content', p_content, (v_config ->> 'text_bytes_max')::integer);
  perform _memoir.check_size('metadata', v_memory.metadata::text, (v_config ->> 'text_bytes_max')::integer);
  v_sources := _memoir.source_turns(v_caller, p_session, p_source_turns);
  -- Per-user lock: duplicates and slots are decided one writer at a time.
  perform from _memoir.user_counters where user_id = v_user for update;
  if p_key is not null then
    v_hash := sha256(convert_to(jsonb_build_array('remember', p_content, p_session, p_type, p_category, p_importance,
      p_project, p_actor, p_provenance, p_confidence, p_valid_from, p_valid_to, p_tags, p_slot, p_slot_value, p_aliases,
      p_sensitivity, p_source_turns, p_source_tool, p_source_key, p_metadata, p_embedding, p_created_at,
      p_embeddable)::text, 'UTF8'));
    v_result := _memoir.receipt(v_user, p_key, v_hash);
    if v_result is not null then return v_result; end if;
  end if;
  -- Without a session the caller speaks for the person unless bound or stated otherwise; within one it is the agent.
  v_memory.actor := _memoir.actor(v_caller, p_actor,
    case when p_session is null then 'person' else 'agent' end::_memoir.actor);
  v_memory.metadata := v_memory.metadata || jsonb_strip_nulls(jsonb_build_object('said_at', p_created_at));
  v_result := _memoir.enter(v_memory, v_session, v_sources, null, null, p_created_at, v_config, p_valid_from);
  if p_embedding is not null and v_result ->> 'outcome' in ('stored', 'outdated') then
    -- What came with its vector is judged at once.
    v_model := _memoir.embedding_model(null);
    insert into _memoir.embeddings (user_id, item_no, model_id, embedding)
    select v_user, i.item_no, v_model.model_id, _memoir.to_vector(p_embedding, v_model) from _memoir.search_items i
    where i.user_id = v_user and i.ref_id = (v_result ->> 'memory_id')::uuid and i.chunk = 0 and i.embeddable;
    if found then
      v_judged := _memoir.reconcile_memory(v_user, (v_result ->> 'memory_id')::uuid, v_memory.written_by);
      v_result := v_result || coalesce(v_judged, '{}') || jsonb_build_object(
        'superseded', (v_result -> 'superseded') || coalesce(v_judged -> 'superseded', '[]'),
        'contradicts', (v_result -> 'contradicts') || coalesce(v_judged -> 'contradicts', '[]'));
    end if;
  end if;
  if p_key is not null then perform _memoir.keep_receipt(v_user, p_key, v_hash, v_result, v_memory.recorded_at); end if;
  return v_result;
end $$;
comment on function memoir.remember(text, text, text, text, text, text, text, text, text, real, timestamptz,
  timestamptz, text[], text, text, text[], text, integer[], text, text, jsonb, real[], text, timestamptz, boolean) is
  'Stores a memory and returns {"memory_id", "outcome", "superseded", "contradicts"}; outcome: stored, duplicate (exact
or near), outdated (stored as superseded, since what is known was said later), refused_tombstone (with a "hint").
p_actor: person (default without a session), agent (default within one), tool; what an agent reports counts as the
person''s word only with p_source_turns, turn indexes in p_session, that are all the person''s. A slot ("home city")
holds one value (default: the content) at a time; a newer value of equal or higher authority supersedes, or with
p_valid_from bounds the old one. Inferred and tool memories are local to their session (or to recalls outside of
sessions) and end local_memory_hours after it. What looks like a key, a card, an account or a personal number, or comes
from a secret turn, is secret whatever p_sensitivity says; p_embeddable false keeps it from embedding models. A
restated memory takes on the higher authority, sensitivity and later expiry. p_embedding: vector of the active
embedding model. p_key: idempotency key. Writes memory_store and what belongs to it. Raises PM001, PM003, PM006, PM012,
PM014, PM030.';

-- The door itself: everything that becomes a memory passes here, under the user's lock. p_memory: what is stated, from
-- content to metadata; where it enters, what it may count as and its trust are decided here. Source turns may come with
-- the span of each. p_from: it is known to be true from then on, so another value of its slot keeps its time before.
create or replace function _memoir.enter(p_memory _memoir.memory_store, p_session _memoir.sessions,
  p_sources _memoir.conversation_history[], p_span_starts integer[], p_span_lengths integer[], p_said_at timestamptz,
  p_config jsonb, p_from timestamptz default null)
returns jsonb language plpgsql as $$
declare
  v_memory _memoir.memory_store := _memoir.admitted(p_memory, p_session, p_sources, p_config);
  v_old _memoir.memory_store; v_stone _memoir.tombstones; v_settled record; v_outcome text;
  v_user uuid := p_memory.user_id; v_now timestamptz := p_memory.recorded_at; v_by text := p_memory.written_by;
begin
  v_stone := _memoir.tombstone_of(v_user, v_memory.content, v_memory.slot, v_memory.slot_value, v_memory.project);
  if v_stone.user_id is not null then
    return jsonb_build_object('memory_id', null, 'outcome', 'refused_tombstone', 'superseded', '[]'::jsonb,
      'contradicts', '[]'::jsonb, 'hint', format('rejected on %s: %s', _memoir.day(v_stone.recorded_at),
      case when v_memory.actor = 'person' then 'lift_tombstone lets it back' else 'only a person can lift that' end));
  end if;
  -- An active memory may say the same already. A person says anew what has ended; for others it has been said. With the
  -- person's word a local one becomes global.
  select * into v_old from _memoir.memory_store m
  where m.user_id = v_user and m.content_hash = v_memory.content_hash and m.project = v_memory.project
    and m.state = 'active' and (m.local_to is not distinct from v_memory.local_to or v_memory.local_to is null
      or m.local_to is null and v_memory.session_id is null)
    and (m.valid_to is null or m.valid_to > v_now or m.valid_to = v_memory.valid_to or v_memory.actor <> 'person')
  order by m.local_to nulls first, m.valid_to desc nulls first, m.recorded_at, m.memory_id limit 1;
  if v_old.expires_at <= v_now then  -- gone already, only not swept yet
    perform _memoir.set_state(v_user, array[v_old.memory_id], 'expired', v_by, 'expired', null, v_now);
    v_old := null;
  end if;
  if v_old.memory_id is null then
    insert into _memoir.memory_store select v_memory.*;
    perform _memoir.note_state(v_user, array[v_memory.memory_id], 'active', v_by, null, null, v_now, v_memory.actor);
    insert into _memoir.memory_stats (user_id, memory_id) values (v_user, v_memory.memory_id);
    update _memoir.user_counters set memories = memories + 1, profile_stale = profile_stale or v_memory.tier >= 3
      where user_id = v_user;
    perform _memoir.add_sources(v_user, v_memory.memory_id, p_sources, p_span_starts, p_span_lengths);
    perform _memoir.index_memory(v_memory, coalesce(p_said_at, v_now), p_config);
    v_settled := _memoir.settle_slot(v_user, v_memory.memory_id, p_from, v_by);
    v_outcome := case when v_settled.outdated then 'outdated' else 'stored' end;
  else
    -- Stated anew, it takes on what is stronger. With its new authority it may prevail where it did not.
    if v_memory.local_to is null then perform _memoir.make_global(v_user, v_old.memory_id, v_by, v_now); end if;
    insert into _memoir.memory_stats (user_id, memory_id, restatements, reinforced_at)
    values (v_user, v_old.memory_id, 1, v_now)
    on conflict (user_id, memory_id) do update set restatements = memory_stats.restatements + 1, reinforced_at = v_now;
    perform _memoir.restate(v_old, v_memory);
    perform _memoir.add_sources(v_user, v_old.memory_id, p_sources, p_span_starts, p_span_lengths, 'restated');
    v_settled := _memoir.settle_slot(v_user, case when v_memory.trust > v_old.trust then v_old.memory_id end, null,
      v_by);
    v_outcome := 'duplicate';
  end if;
  return jsonb_build_object('memory_id', coalesce(v_old.memory_id, v_memory.memory_id), 'outcome', v_outcome,
    'superseded', to_jsonb(v_settled.superseded), 'contradicts', to_jsonb(v_settled.contradicts));
end $$;

-- A statement as the memory it would be: where it enters, what it may count as, how secret it is, how long it lives.
create or replace function _memoir.admitted(p_memory _memoir.memory_store, p_session _memoir.sessions,
  p_sources _memoir.conversation_history[], p_config jsonb)
returns _memoir.memory_store language plpgsql as $$
declare
  v_memory _memoir.memory_store := p_memory; v_now timestamptz := p_memory.recorded_at; v_standing _memoir.standing;
  v_global boolean; v_holds boolean := coalesce((p_memory.metadata ->> 'standing')::boolean, false); v_read jsonb;
  v_is_way boolean := p_memory.type = any (_memoir.experience_types());
begin
  v_standing := _memoir.standing(v_memory.actor, v_memory.type, v_memory.provenance, p_sources);
  v_memory.provenance := v_standing.provenance;
  v_memory.trust := v_standing.trust;
  v_global := v_memory.actor = 'person' or v_memory.provenance in ('user_stated', 'correction', 'preference',
    'instruction') or v_is_way and v_memory.actor <> 'tool';

  v_memory.memory_id := gen_random_uuid();
  v_memory.is_object := false;
  v_memory.state := 'active';
  v_memory.state_at := v_now;
  v_memory.session_id := p_session.session_id;
  v_memory.local_to := case when not v_global then coalesce(p_session.session_id, _memoir.no_session()) end;
  v_memory.scope := case when v_global then 'global' else 'local' end;
  -- Without a slot it gets the one that the package reads in its words ("Lives in Ulm", "The user's name is Ida").
  if v_memory.slot is null and v_global and not v_memory.metadata ? 'extracted_by' and length(v_memory.content) <= 300
    and v_memory.type in ('fact', 'preference', 'instruction', 'profile') and _memoir.reads_language() then
    v_read := _memoir.py_read('read_statement', v_memory.content, p_config ->> 'embedder_socket');
    v_memory.slot := v_read ->> 'slot';
    v_memory.slot_value := v_read ->> 'value';
    v_holds := v_holds or coalesce((v_read ->> 'standing')::boolean, false);
  end if;
  -- A person's direct word is validated by itself, and so is what they say of themselves that holds in every
  -- conversation: preferences and instructions are procedural, the rest semantic ([PG] 5.1).
  v_holds := v_holds and v_global and v_standing.by_person;
  v_memory.tier := case when v_is_way and v_global then 4
    when not v_global or v_memory.provenance in ('system_inferred', 'tool_output') then 1
    when v_memory.actor <> 'person' and not v_holds then 2 when v_memory.provenance in ('preference', 'instruction')
      then 4 else 3 end;
  v_memory.validated_at := case when v_memory.actor = 'person' or v_holds then v_now end;
  v_memory.confidence := coalesce(v_memory.confidence, case when v_memory.actor = 'person' then 0.9
    when v_holds then 0.8 else 0.5 end);
  -- As secret as the strictest of what is said of it, what it looks like, and what it comes from.
  v_memory.sensitivity := greatest('normal', v_memory.sensitivity, (select max(_memoir.sensitivity_now(t.sensitivity,
      t.turn_index, _memoir.marks(t.user_id, t.session_id))) from unnest(p_sources) t),
    case when _memoir.detected(p_config, v_memory.content, array_to_string(v_memory.aliases, ' '), v_memory.slot_value,
                               array_to_string(v_memory.tags, ' '), nullif(v_memory.metadata, '{}')::text) <> '{}'
         then 'secret'::_memoir.sensitivity end);
  v_memory.embeddable := coalesce(v_memory.embeddable, true) and v_memory.sensitivity <> 'secret';
  v_memory.content_hash := sha256(convert_to(_memoir.normalise(v_memory.content), 'UTF8'));
  v_memory.tokenizer := _memoir.tokenizer_used(coalesce(p_session.tokenizer,
    (select m.tokenizer from _memoir.models m where m.model = p_config ->> 'default_model')));
  v_memory.token_count := (_memoir.count_tokens(array[v_memory.content], v_memory.tokenizer))[1];
  v_memory.slot := _memoir.normalise(v_memory.slot);
  v_memory.slot_value := _memoir.normalise(coalesce(v_memory.slot_value, case
    when v_memory.slot is not null then v_memory.content end));
  v_memory.expires_at := case
    when v_memory.tier = 2 then v_now + make_interval(days => (p_config ->> 'episodic_days')::integer)
    -- What is inferred lives as long as its session and a while; outside any, that while.
    when v_memory.tier < 2 and (p_session.session_id is null or p_session.status in ('closed', 'expired')) then
      v_now + make_interval(hours => (p_config ->> 'local_memory_hours')::integer) end;
  return v_memory;
end $$;

-- The turns that a memory or a correction is said to come from, as the session sees them; PM014 for an unknown one.
create or replace function _memoir.source_turns(p_caller _memoir.caller, p_session text, p_turns integer[])
returns _memoir.conversation_history[] language plpgsql stable as $$
declare
  v_session _memoir.sessions;
begin
  if nullif(p_turns, '{}') is null then return '{}'; end if;
  if p_session is null then perform _memoir.fail('PM014', 'source_turns needs the session the turns are in'); end if;
  v_session := _memoir.session(p_caller, p_session);
  return array(select _memoir.known_turn(v_session, t) from (select distinct t from unnest(p_turns) t) x order by t);
end $$;

-- Spans are of the turn's content, 1-based characters; null: all of it.
create or replace function _memoir.add_sources(p_user_id uuid, p_memory_id uuid, p_turns _memoir.conversation_history[],
  p_span_starts integer[] default null, p_span_lengths integer[] default null, p_link text default 'origin')
returns void language plpgsql as $$
declare
  v_turn _memoir.conversation_history; i integer := 0;
begin
  foreach v_turn in array p_turns loop
    i := i + 1;
    insert into _memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id, session_id, turn_index,
      span_start, span_length, link)
    values (p_user_id, 'memory', p_memory_id, 'turn', v_turn.message_id, v_turn.session_id, v_turn.turn_index,
      p_span_starts[i], p_span_lengths[i], p_link)
    on conflict do nothing;
  end loop;
end $$;
