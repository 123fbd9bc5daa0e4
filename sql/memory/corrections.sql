-- Corrections: correct, retract, forget. What was wrong leaves recall and compile, with what it came from and what was
-- made of it, in one transaction; history keeps all of it.

-- All memories that say the same as one: near duplicates merged with it, the same text, or the same value in its slot.
-- p_wide: in all states and all projects of the caller; else what is active in its project, as a part of a whole too.
create or replace function _memoir.same_value(p_caller _memoir.caller, p_memory _memoir.memory_store, p_wide boolean)
returns uuid[] language plpgsql stable as $$
declare
  v_user uuid := p_caller.user_id; v_text text := _memoir.tombstone_text(p_memory.content); v_ids uuid[];
  v_names text[] := _memoir.known_names(v_user);
  v_claim text := (_memoir.claims_of(array[p_memory.content], v_names))[1];
  v_hint text := (_memoir.claim_hints(array[v_claim]))[1];
begin
  with recursive same as (select p_memory.memory_id as id union
    select case when m.memory_id = s.id then m.superseded_by else m.memory_id end
    from same s join _memoir.memory_store m on m.user_id = v_user and m.superseded_by is not null
      -- What was consolidated goes with the whole, not the whole with one of its members.
      and (m.state_reason = 'near duplicate' and (m.memory_id = s.id or m.superseded_by = s.id)
      or m.state_reason = 'consolidated' and m.superseded_by = s.id))
  select array_agg(id order by id) into v_ids from (select id from same union
    select m.memory_id from _memoir.memory_store m
    where m.user_id = v_user and m.state <> 'erased' and m.sensitivity <= p_caller.clearance
      and case when p_wide then p_caller.projects is null or m.project = any (p_caller.projects)
        else m.project = p_memory.project and (m.state = 'active' or m.state = 'superseded'
          and m.state_reason = 'consolidated') end
      and (m.slot = p_memory.slot and m.slot_value = p_memory.slot_value or _memoir.tombstone_text(m.content) = v_text
        -- In other words, where all of it is to go.
        or p_wide and strpos(lower(m.content), v_hint) > 0
          and (_memoir.claims_of(array[m.content], v_names))[1] = v_claim)) x;
  return v_ids;
end $$;

create or replace function memoir.forget(p_user text, p_memory uuid, p_reason text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_memory _memoir.memory_store;
  v_actor _memoir.actor := _memoir.actor(v_caller, null, 'person');
  v_now timestamptz := memoir.now(); v_user uuid := v_caller.user_id; v_reason text := coalesce(p_reason, 'forgotten');
  v_ids uuid[]; v_done record; v_archived jsonb;
begin
  perform _memoir.check_size('reason', p_reason, 10000);
  if exists (select from _memoir.archived_memories a where a.user_id = v_user and a.memory_id = p_memory) then
    perform from _memoir.user_counters where user_id = v_user for update;
    delete from _memoir.archived_memories a where a.user_id = v_user and a.memory_id = p_memory
    returning a.memory into v_archived;
    perform _memoir.fail('PM004', format('memory %s is archived and its text is no longer here', p_memory),
      'erase_turn and erase_session reach what it came from') where v_archived is null;
    insert into _memoir.memory_store select (jsonb_populate_record(null::_memoir.memory_store, v_archived)).*;
    insert into _memoir.memory_states select (jsonb_populate_recordset(null::_memoir.memory_states,
      v_archived -> 'states')).*;
    insert into _memoir.memory_stats (user_id, memory_id) values (v_user, p_memory);
    update _memoir.user_counters set memories = memories + 1 where user_id = v_user;
  end if;
  v_memory := _memoir.memory(v_caller, p_memory);
  perform from _memoir.user_counters where user_id = v_user for update;
  v_ids := _memoir.same_value(v_caller, v_memory, true);
  perform _memoir.set_tombstones(v_user, v_ids, true, true, p_memory, v_reason, v_actor, v_caller.login, v_now);
  perform _memoir.set_state(v_user, v_ids, 'forgotten', v_caller.login, v_reason, null, v_now, v_actor);
  select * into v_done from _memoir.withdraw(v_user, v_ids, '{}', p_memory, v_caller.login, v_reason, v_now, true,
    array(select r from _memoir.restating_turns(v_user, v_ids) r));
  perform _memoir.audit('forget', jsonb_build_object('memory_ids', v_ids, 'reason', v_reason), v_user);
  return to_jsonb(v_done) || jsonb_build_object('memory_id', p_memory, 'state', 'forgotten', 'merged',
    to_jsonb(array_remove(v_ids, p_memory)));
end $$;
comment on function memoir.forget(text, uuid, text) is
  'Takes a memory, and all that say the same (near duplicates merged with it, its text or its slot''s value elsewhere),
out of recall and compile for good, at any p_as_of too: it may not come back through remember (tombstones of keyed
hashes stay), its source turns leave recall, the summaries that hold them are invalidated, the memories derived from it
forgotten as well. History keeps the turns; free paraphrases elsewhere are not found. An archived memory is brought
back for it. Writes memory_store, tombstones, recall_exclusions, audit_log. Raises PM001, PM004.';

-- The memory a correction is about, under the user's lock: what stands for it today, and not forgotten. A part of a
-- consolidated memory is meant by itself, not the whole.
create or replace function _memoir.to_correct(p_memory _memoir.memory_store)
returns _memoir.memory_store language plpgsql stable as $$
declare
  v_memory _memoir.memory_store := _memoir.current(p_memory, 'consolidated');
begin
  perform _memoir.fail('PM004', format('memory %s is %s', v_memory.memory_id, v_memory.state),
    'lift_tombstone brings a forgotten one back') where v_memory.state in ('forgotten', 'erased');
  return v_memory;
end $$;

-- Takes memories out of the wholes they went into, so that the other parts stand alone; returns p_memory as it is then.
create or replace function _memoir.take_out(p_user_id uuid, p_ids uuid[], p_memory uuid, p_by text, p_at timestamptz,
  p_actor _memoir.actor)
returns _memoir.memory_store language plpgsql as $$
declare
  v_wholes uuid[]; v_memory _memoir.memory_store;
begin
  with recursive up as (select m.superseded_by as id from _memoir.memory_store m
    where m.user_id = p_user_id and m.memory_id = any (p_ids) and m.state = 'superseded'
      and m.state_reason = 'consolidated'
    union
    select m.superseded_by from up join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = up.id
    where m.state = 'superseded' and m.state_reason = 'consolidated')
  select coalesce(array_agg(id order by id), '{}') into v_wholes from up where id <> all (p_ids);
  perform _memoir.set_state(p_user_id, v_wholes, 'invalidated', p_by, 'its source was withdrawn', null, p_at);
  perform _memoir.dissolve(p_user_id, w, p_by, p_at, p_actor) from unnest(v_wholes) w;
  select * into v_memory from _memoir.memory_store where user_id = p_user_id and memory_id = p_memory;
  return v_memory;
end $$;

create or replace function memoir.correct(p_user text, p_memory uuid, p_content text, p_reason text default null,
  p_remainder text default null, p_valid_from timestamptz default null, p_valid_to timestamptz default null,
  p_slot_value text default null, p_session text default null, p_source_turns integer[] default null,
  p_actor text default null, p_embedding real[] default null, p_key text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_user uuid := v_caller.user_id; v_seen _memoir.memory_store := _memoir.memory(v_caller, p_memory);
  v_now timestamptz := memoir.now();
  v_old _memoir.memory_store; v_standing _memoir.standing; v_correction _memoir.correction; v_hash bytea;
  v_result jsonb; v_made jsonb; v_id uuid;
begin
  perform _memoir.check_size('reason', p_reason, 10000),
    _memoir.check_range('the year of valid_from', extract(year from p_valid_from), 1900, 9998),
    _memoir.check_range('the year of valid_to', extract(year from p_valid_to), 1900, 9998);
  if p_valid_to <= p_valid_from then
    perform _memoir.fail('PM014', format('valid_to %s is not after valid_from %s', p_valid_to, p_valid_from));
  end if;
  perform from _memoir.user_counters where user_id = v_user for update;
  if p_key is not null then
    v_hash := sha256(convert_to(jsonb_build_array('correct', p_memory, p_content, p_reason, p_remainder, p_valid_from,
      p_valid_to, p_slot_value, p_session, p_source_turns, p_actor, p_embedding)::text, 'UTF8'));
    v_result := _memoir.receipt(v_user, p_key, v_hash);
    if v_result is not null then return v_result; end if;
  end if;
  v_old := _memoir.to_correct(v_seen);
  v_standing := _memoir.standing(_memoir.actor(v_caller, p_actor,
    case when p_session is null then 'person' else 'agent' end::_memoir.actor), v_old.type, 'correction',
    _memoir.source_turns(v_caller, p_session, p_source_turns));
  v_correction := (v_caller, p_user, v_old, v_standing, coalesce(p_reason, 'corrected'), v_now, p_content, p_remainder,
    p_valid_from, p_valid_to,
    -- else the slot's value is in what remains
    v_old.slot is not null and (p_remainder is null or p_slot_value is not null),
    p_slot_value, p_session, p_source_turns, p_actor, p_embedding);
  if (v_old.state = 'active' or v_old.state_reason = 'consolidated')
    and _memoir.authority(v_standing.actor, v_standing.provenance, v_standing.trust, true)
      < _memoir.authority(v_old.actor, v_old.provenance, v_old.trust, false) then
    -- A lower authority corrects nothing: it is heard, and the conflict is open.
    v_old := _memoir.current(v_old);
    v_correction.old := v_old;
    v_made := _memoir.say_instead(v_correction, null);
    v_id := (v_made ->> 'memory_id')::uuid;
    perform _memoir.note_judgement(v_user, v_id, v_old.memory_id, 'person', 'contradiction', null, null,
      'contradicts', null, 'a correction of lower authority', v_now) where v_id <> v_old.memory_id;
    v_result := jsonb_build_object('memory_id', v_id, 'outcome', case when v_made ->> 'outcome' = 'refused_tombstone'
        then 'refused_tombstone' else 'contradicts' end, 'corrected', '[]'::jsonb, 'remainder', null,
      'bounded', '[]'::jsonb, 'excluded_turns', 0, 'invalidated_summaries', 0);
  else
    v_result := _memoir.put_right(v_correction);
  end if;
  perform _memoir.audit('correct', v_result || jsonb_build_object('reason', v_correction.reason), v_user);
  if p_key is not null then perform _memoir.keep_receipt(v_user, p_key, v_hash, v_result, v_now); end if;
  return v_result;
end $$;
comment on function memoir.correct(text, uuid, text, text, text, timestamptz, timestamptz, text, text, integer[], text,
  real[], text) is
  'Replaces a memory by what is right. p_remainder: the part of the old one that is still true, in words; it goes on as
a memory of its own. p_valid_from, p_valid_to: the new value is true from or until then, and the old one outside that
time. p_slot_value: the new value of the memory''s slot (default: the content). p_session, p_source_turns, p_actor:
whose correction, as in remember: a person''s ranks with their statements, one of lower authority than the memory
leaves a contradicts edge only. The old text and slot value may not come back (but for bounds), the source turns leave
recall, summaries and memories made of them are invalidated. A superseded memory stands for its successor, but what was
consolidated for itself: the other parts stand by themselves again. Returns {"memory_id", "outcome", "corrected",
"remainder", "bounded", "excluded_turns", "invalidated_summaries"}; outcome: corrected, contradicts. p_key: idempotency
key. Raises PM001, PM003, PM004, PM006, PM012, PM014, PM030, PM040.';

-- Remembers the right value, with the kind and place of the old memory, and the labels of one that it replaces.
create or replace function _memoir.say_instead(p_correction _memoir.correction, p_replaced _memoir.memory_store)
returns jsonb language plpgsql as $$
declare
  v_old _memoir.memory_store := p_correction.old;
begin
  return memoir.remember(p_correction.user_name, p_correction.content, p_correction.session_name, v_old.type,
    v_old.category, v_old.importance, v_old.project, p_correction.stated_actor, 'correction',
    p_valid_from => p_correction.valid_from, p_valid_to => p_correction.valid_to, p_tags => p_replaced.tags,
    p_aliases => p_replaced.aliases,
    -- But for what extraction and remember() note there.
    p_metadata => p_replaced.metadata - '{extracted_by,rule,utility,standing,said_at,event_from,event_to,remainder_of,
      consolidated,by}'::text[],
    p_slot => case when p_correction.has_slot then v_old.slot end, p_slot_value => p_correction.slot_value,
    p_sensitivity => v_old.sensitivity::text, p_source_turns => p_correction.source_turns,
      p_embedding => p_correction.embedding);
end $$;

create or replace function _memoir.put_right(p_correction _memoir.correction)
returns jsonb language plpgsql as $$
declare
  v_caller _memoir.caller := p_correction.caller; v_user uuid := v_caller.user_id;
  v_now timestamptz := p_correction.corrected_at;
  v_reason text := p_correction.reason; v_standing _memoir.standing := p_correction.standing;
  v_ids uuid[] := _memoir.same_value(v_caller, p_correction.old, false); v_old _memoir.memory_store;
  v_kept uuid[] := '{}'; v_made jsonb; v_new uuid; v_rest uuid; v_done record; v_right uuid[];
  v_copy _memoir.memory_store;
begin
  v_old := _memoir.take_out(v_user, v_ids, (p_correction.old).memory_id, v_caller.login, v_now, v_standing.actor);
  p_correction.old := v_old;
  perform _memoir.set_state(v_user, v_ids, 'superseded', v_caller.login, v_reason, null, v_now, v_standing.actor);
  -- Where the new value has bounds inside the time of the old one, that goes on outside them, as copies.
  v_copy := v_old;
  if v_old.state = 'active' and p_correction.valid_from > coalesce(v_old.valid_from, '-infinity') then
    v_copy.valid_to := least(p_correction.valid_from, v_old.valid_to);
    v_kept := v_kept || _memoir.copied(v_copy, true, v_caller.login, v_reason, v_now, v_standing.actor);
  end if;
  if v_old.state = 'active' and p_correction.valid_to < coalesce(v_old.valid_to, 'infinity') then
    v_copy.valid_from := greatest(p_correction.valid_to, v_old.valid_from);
    v_copy.valid_to := v_old.valid_to;
    v_kept := v_kept || _memoir.copied(v_copy, true, v_caller.login, v_reason, v_now, v_standing.actor);
  end if;
  v_made := _memoir.say_instead(p_correction, v_old);
  v_new := (v_made ->> 'memory_id')::uuid;
  perform _memoir.fail('PM040', format('a tombstone refuses %s', _memoir.shown(p_correction.content)),
    'a person lifts it with lift_tombstone') where v_new is null;
  if p_correction.remainder is not null then
    v_rest := _memoir.remain(v_caller, v_old, p_correction.remainder, not p_correction.has_slot, v_standing, v_reason,
      v_now);
  end if;
  v_right := array_remove(array[v_new, v_rest], null);
  perform _memoir.succeeded(v_user, v_ids, v_new);  -- known now only
  insert into _memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
  select v_user, s, 'supersedes', o, 'correction', v_now
  from unnest(v_ids) o, unnest(v_right || v_kept) s where s <> o on conflict do nothing;
  -- It keeps the place of the old ones: procedural stays procedural, pins stay.
  update _memoir.memory_store set tier = greatest(tier, v_old.tier), category = coalesce(category, v_old.category),
    expires_at = null
  where user_id = v_user and memory_id = v_new and tier >= 2 and v_old.tier > tier;
  insert into _memoir.session_objects (user_id, session_id, memory_id, pinned_until_turn, pin_reason)
  select v_user, o.session_id, v_new, max(o.pinned_until_turn), max(o.pin_reason) from _memoir.session_objects o
  where o.user_id = v_user and o.memory_id = any (v_ids) and o.pinned_until_turn is not null group by o.session_id
  on conflict (user_id, session_id, memory_id) do nothing;
  -- A value that was only bounded was true. One that a person rejected may not come back.
  perform _memoir.set_tombstones(v_user, v_ids, p_correction.has_slot, false, v_old.memory_id, v_reason,
    v_standing.actor, v_caller.login, v_now, v_right) where v_kept = '{}' and v_standing.by_person;
  v_done := _memoir.withdraw(v_user, v_ids, array(select s.source_id from _memoir.memory_sources s
    where s.user_id = v_user and s.item_kind = 'memory' and s.item_id = v_new and s.source_kind = 'turn'),
    v_old.memory_id, v_caller.login, v_reason, v_now);
  return to_jsonb(v_done) || jsonb_build_object('memory_id', v_new, 'outcome', 'corrected', 'corrected',
    to_jsonb(v_ids), 'remainder', v_rest, 'bounded', to_jsonb(v_kept));
end $$;

create or replace function _memoir.succeeded(p_user_id uuid, p_ids uuid[], p_successor uuid)
returns void language plpgsql as $$
begin
  with noted as (update _memoir.memory_states set superseded_by = p_successor
    where user_id = p_user_id and memory_id = any (p_ids) and state = 'superseded' and superseded_by is null
    returning memory_id)
  update _memoir.memory_store m set superseded_by = p_successor from noted n where m.user_id = p_user_id
    and m.memory_id = n.memory_id;
end $$;

-- What remains true of a corrected memory, as a memory like the old one: no more trusted than that or its speaker.
create or replace function _memoir.remain(p_caller _memoir.caller, p_old _memoir.memory_store, p_content text,
  p_slotted boolean, p_standing _memoir.standing, p_reason text, p_at timestamptz)
returns uuid language plpgsql as $$
declare
  v_rest _memoir.memory_store := p_old; v_same uuid;
begin
  perform _memoir.check_text('remainder', p_content);
  perform _memoir.check_size('remainder', p_content,
    (_memoir.config(p_old.user_id, null) ->> 'text_bytes_max')::integer);
  if not p_slotted then v_rest.slot := null; v_rest.slot_value := null; end if;
  if (_memoir.tombstone_of(p_old.user_id, p_content, v_rest.slot, v_rest.slot_value, p_old.project)).user_id
    is not null then
    perform _memoir.fail('PM040', format('a tombstone refuses the remainder %s', _memoir.shown(p_content)),
      'a person lifts it with lift_tombstone');
  end if;
  if not p_standing.by_person then
    v_rest.trust := least(p_old.trust, p_standing.trust);
    v_rest.provenance := p_standing.provenance;
    v_rest.actor := p_standing.actor;
  end if;
  v_rest.written_by := p_caller.login;
  v_rest.content := p_content;
  v_rest.content_hash := sha256(convert_to(_memoir.normalise(p_content), 'UTF8'));
  v_rest.token_count := (_memoir.count_tokens(array[p_content], v_rest.tokenizer))[1];
  v_rest.aliases := '{}';
  select m.memory_id into v_same from _memoir.memory_store m
  where m.user_id = p_old.user_id and m.content_hash = v_rest.content_hash and m.project = v_rest.project
    and m.local_to is not distinct from v_rest.local_to and m.state = 'active' and m.valid_to is not distinct
      from v_rest.valid_to;
  return coalesce(v_same, _memoir.copied(v_rest, false, p_caller.login, p_reason, p_at, p_standing.actor));
end $$;

create or replace function memoir.retract(p_user text, p_memory uuid, p_reason text default null,
  p_valid_to timestamptz default null, p_session text default null, p_source_turns integer[] default null,
  p_actor text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_user uuid := v_caller.user_id; v_seen _memoir.memory_store := _memoir.memory(v_caller, p_memory);
  v_now timestamptz := memoir.now();
  v_old _memoir.memory_store; v_standing _memoir.standing; v_ids uuid[]; v_kept uuid[] := '{}'; v_done record;
  v_reason text := coalesce(p_reason, 'retracted');
begin
  perform _memoir.check_size('reason', p_reason, 10000),
    _memoir.check_range('the year of valid_to', extract(year from p_valid_to), 1900, 9998);
  perform from _memoir.user_counters where user_id = v_user for update;
  v_old := _memoir.to_correct(v_seen);
  v_standing := _memoir.standing(_memoir.actor(v_caller, p_actor,
    case when p_session is null then 'person' else 'agent' end::_memoir.actor), v_old.type, 'correction',
    _memoir.source_turns(v_caller, p_session, p_source_turns));
  if _memoir.authority(v_standing.actor, v_standing.provenance, v_standing.trust, true)
    < _memoir.authority(v_old.actor, v_old.provenance, v_old.trust, false) then
    perform _memoir.fail('PM001',
      format('login %s acts as %s and may not retract memory %s, which has a higher authority',
      quote_ident(v_caller.login), v_standing.actor, v_old.memory_id),
        'give p_session and p_source_turns, the turns in which the person takes it back');
  end if;
  perform _memoir.fail('PM014', format('valid_to %s is not after %s, from when memory %s is true', p_valid_to,
    v_old.valid_from, v_old.memory_id)) where p_valid_to <= v_old.valid_from;
  v_ids := _memoir.same_value(v_caller, v_old, false);
  v_old := _memoir.take_out(v_user, v_ids, v_old.memory_id, v_caller.login, v_now, v_standing.actor);
  if p_valid_to is not null and v_old.state = 'active' then
    perform _memoir.set_state(v_user, v_ids, 'superseded', v_caller.login, v_reason, null, v_now, v_standing.actor);
    v_old.valid_to := least(p_valid_to, v_old.valid_to);
    v_kept := array[_memoir.copied(v_old, true, v_caller.login, v_reason, v_now, v_standing.actor)];
    perform _memoir.succeeded(v_user, v_ids, v_kept[1]);
    insert into _memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
    select v_user, v_kept[1], 'supersedes', o, 'retraction', v_now from unnest(v_ids) o on conflict do nothing;
  else
    perform _memoir.set_tombstones(v_user, v_ids, true, false, v_old.memory_id, v_reason, v_standing.actor,
      v_caller.login, v_now) where v_standing.by_person;
    perform _memoir.set_state(v_user, v_ids, 'invalidated', v_caller.login, v_reason, null, v_now, v_standing.actor);
  end if;
  select * into v_done from _memoir.withdraw(v_user, v_ids, '{}', v_old.memory_id, v_caller.login, v_reason, v_now);
  perform _memoir.audit('retract', jsonb_build_object('memory_ids', v_ids, 'reason', v_reason, 'valid_to', p_valid_to),
    v_user);
  return to_jsonb(v_done) || jsonb_build_object('memory_id', v_old.memory_id, 'state', case when v_kept = '{}'
    then 'invalidated' else 'superseded' end, 'retracted', to_jsonb(v_ids), 'bounded', to_jsonb(v_kept));
end $$;
comment on function memoir.retract(text, uuid, text, timestamptz, text, integer[], text) is
  'Takes back a memory without a replacement: it is invalidated, may not come back when a person says so, its source
turns leave recall, summaries and memories made of them are invalidated. p_valid_to: it was true until then, and a copy
with that bound goes on. p_session, p_source_turns, p_actor: whose word, as in remember; it needs the memory''s
authority or a higher one. A superseded memory stands for its successor. Returns {"memory_id", "state", "retracted",
"bounded", "excluded_turns", "invalidated_summaries"}. Writes memory_store, tombstones, recall_exclusions, audit_log.
Raises PM001, PM003, PM004, PM014.';

create or replace function memoir.lift_tombstone(p_user text, p_memory uuid default null, p_content text default null,
  p_slot text default null, p_reason text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_user uuid := v_caller.user_id; v_now timestamptz := memoir.now();
  v_actor _memoir.actor := _memoir.actor(v_caller, null, 'person');
  v_memory _memoir.memory_store; v_stone _memoir.tombstones; v_reason text := coalesce(p_reason, 'lifted');
  v_of uuid := p_memory; v_keys bytea[]; v_lifted integer; v_turns integer := 0; v_back uuid[] := '{}'; v_refs uuid[];
begin
  perform _memoir.fail('PM001', format('login %s acts as %s and may not lift a tombstone',
    quote_ident(v_caller.login), v_actor), 'only a person does') where v_actor <> 'person';
  if (p_memory is null) = (p_content is null) then
    perform _memoir.fail('PM014', 'give either memory or content', 'list_tombstones names the memories');
  end if;
  perform _memoir.check_size('reason', p_reason, 10000);
  perform from _memoir.user_counters where user_id = v_user for update;
  if p_content is not null then
    v_stone := _memoir.tombstone_of(v_user, p_content, p_slot, null);
    v_of := v_stone.memory_id;
    v_keys := array[v_stone.key_hash];
  end if;
  if v_of is not null and exists (select from _memoir.memory_store where user_id = v_user and memory_id = v_of) then
    v_memory := _memoir.memory(v_caller, v_of);
  elsif p_memory is not null and not exists (select from _memoir.tombstones where user_id = v_user
    and memory_id = p_memory) then
    perform _memoir.fail('PM004', format('unknown memory %s', _memoir.shown(p_memory::text)));
  end if;
  with lifted as (update _memoir.tombstones set lifted_at = v_now, lifted_by = v_caller.login
    where user_id = v_user and lifted_at is null and (memory_id = v_of or key_hash = any (v_keys)) returning 1)
  select count(*) into v_lifted from lifted;
  if v_lifted > 0 then
    -- The turns that it kept out of recall are found again, unless something else keeps them out.
    with opened as (
      update _memoir.recall_exclusions x set lifted_at = v_now where x.user_id = v_user and x.memory_id = v_of
        and x.lifted_at is null
      returning x.session_id, x.turn_index)
    select count(distinct s.source_id), coalesce(array_agg(distinct s.source_id), '{}') into v_turns, v_refs
    from opened o join _memoir.memory_sources s
      on s.user_id = v_user and s.source_kind = 'turn' and s.session_id = o.session_id and s.turn_index = o.turn_index;
    perform _memoir.revive_items(v_user, array(select i.item_no from _memoir.search_items i
      where i.user_id = v_user and i.ref_id = any (v_refs) and i.dead and not _memoir.is_excluded(i)));
    v_back := _memoir.bring_back(v_caller, v_memory, v_reason, v_now, v_actor);
    perform _memoir.audit('lift_tombstone', jsonb_build_object('memory_id', v_of, 'lifted', v_lifted, 'restored',
      v_back, 'reason', v_reason), v_user);
  end if;
  return jsonb_build_object('memory_id', v_of, 'lifted', v_lifted, 'restored', to_jsonb(v_back), 'returned_turns',
    v_turns);
end $$;
comment on function memoir.lift_tombstone(text, uuid, text, text, text) is
  'Lifts the tombstones that a rejected memory left (or, with p_content and p_slot, those which refuse that value): it
may be said again, its turns are recalled again, and what was forgotten or retracted is active again unless something
else has its place. The lift is recorded. Only a caller acting as a person. Returns {"memory_id", "lifted", "restored",
"returned_turns"}; lifting twice changes nothing. Writes tombstones, recall_exclusions, memory_store, audit_log. Raises
PM001, PM004, PM014.';

-- What was forgotten or taken back, and says the same as a memory, returns to the state it was in, where its place is
-- free: what is active again.
create or replace function _memoir.bring_back(p_caller _memoir.caller, p_memory _memoir.memory_store, p_reason text,
  p_at timestamptz, p_actor _memoir.actor)
returns uuid[] language plpgsql as $$
declare
  v_user uuid := p_caller.user_id; v_ids uuid[]; v_id uuid; v_before _memoir.memory_states; v_state _memoir.item_state;
  v_back uuid[] := '{}';
begin
  v_ids := array(select m.memory_id from _memoir.memory_store m
    where m.user_id = v_user and m.state in ('forgotten', 'invalidated', 'superseded')
      and m.memory_id = any (_memoir.same_value(p_caller, p_memory, true))
    order by m.recorded_at desc, m.memory_id);
  foreach v_id in array v_ids loop
    select * into v_before from _memoir.memory_states s where s.user_id = v_user
      and s.memory_id = v_id order by s.seq desc offset 1 limit 1;
    continue when not found;
    if v_before.state = 'active' then
      if _memoir.restore(v_user, v_id, p_caller.login, p_reason, p_at, p_actor) then
        v_back := v_back || v_id;
        continue;
      end if;
    end if;
    -- It is no secret any more that it was known.
    v_state := case when v_before.state in ('active', 'forgotten', 'erased') then 'superseded' else v_before.state end;
    update _memoir.memory_store set state = v_state, state_at = p_at, state_reason = p_reason
    where user_id = v_user and memory_id = v_id and state = 'forgotten';
    perform _memoir.note_state(v_user, array[v_id], v_state, p_caller.login, p_reason, v_before.superseded_by, p_at,
      p_actor) where found;
  end loop;
  return v_back;
end $$;
