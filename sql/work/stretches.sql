-- Stretches of conversation that a language model reads in the place of rules: what it is shown, what comes of what it
-- says. dedup_key is session and first turn, payload {"session_id", "from", "to"}, and "shown", the memories by number.

-- The turns of a stretch that may be sent: all but private and secret ones.
create or replace function _memoir.turns_of_work(p_work _memoir.work_items)
returns _memoir.conversation_history[] language plpgsql stable as $$
declare
  v_counters _memoir.session_counters; v_from integer := (p_work.payload ->> 'from')::integer;
  v_user uuid := p_work.user_id; v_session uuid := (p_work.payload ->> 'session_id')::uuid;
  v_marks jsonb := _memoir.marks(v_user, v_session);
begin
  select * into v_counters from _memoir.session_counters where user_id = v_user and session_id = v_session;
  if not found then return '{}'; end if;
  return array(select t from unnest(_memoir.turns_to_extract(v_counters, v_from,
    (p_work.payload ->> 'to')::integer - v_from)) t
    where _memoir.sensitivity_now(t.sensitivity, t.turn_index, v_marks) = 'normal' order by t.turn_index);
end $$;

-- A turn as the model sees it, what was forgotten or is over blanked out.
create or replace function _memoir.turn_shown(p_turn _memoir.conversation_history, p_length integer)
returns jsonb language plpgsql stable as $$
declare
  -- Whoever sends messages may name an offset of their own.
  v_zone text := substring(p_turn.metadata #>> '{sent,utc_offset}' from '^[-+](?:0\d|1[0-4]):[0-5]\d$');
begin
  return jsonb_build_object('turn', p_turn.turn_index, 'role', case when p_turn.role = 'user' and p_turn.actor
      <> 'person' then 'assistant' else p_turn.role::text end, 'who', coalesce(p_turn.name, p_turn.role::text),
    'date', to_char(p_turn.created_at at time zone 'UTC' + coalesce(v_zone, '00:00')::interval, 'YYYY-MM-DD, Day'),
    'text', left(_memoir.without_spans(p_turn.content, array(
      select int4range(coalesce(x.span_start, 1), coalesce(x.span_start + x.span_length, length(p_turn.content) + 1))
      from _memoir.exclusions_of(p_turn.user_id, p_turn.session_id, p_turn.turn_index) x
      where not x.is_doubt)), p_length));
end $$;

create or replace function _memoir.extract_input(p_work _memoir.work_items)
returns jsonb language plpgsql as $$
declare
  v_turns _memoir.conversation_history[] := _memoir.turns_of_work(p_work); v_memories _memoir.memory_store[];
  v_session uuid := (p_work.payload ->> 'session_id')::uuid; v_marks jsonb; v_settings jsonb; v_config regconfig;
  v_user uuid := p_work.user_id; v_words text[]; v_messages uuid[];
begin
  if v_turns = '{}' then return null; end if;
  select settings into v_settings from _memoir.sessions where user_id = p_work.user_id and session_id = v_session;
  v_config := _memoir.config(v_user, v_settings) ->> 'text_search_config';
  v_words := tsvector_to_array(to_tsvector(v_config, (select string_agg(left(t.content, 4000), ' ')
    from unnest(v_turns) t where t.role = 'user')));
  v_messages := array(select t.message_id from unnest(v_turns) t);
  -- Memories that it may be about: those that share most words with it, then the standing ones, then the newest. What
  -- rules made of the stretch itself is not among them.
  v_memories := array(select m from (
      select x, x.tier >= 3 and coalesce((x.metadata ->> 'standing')::boolean, x.actor = 'person') as stands,
        (select count(*) from unnest(tsvector_to_array(to_tsvector(v_config, x.content))) w
         where w = any (v_words)) as shared
      from (select * from _memoir.memory_store y where y.user_id = v_user and y.state = 'active'
          and not y.is_object and y.sensitivity = 'normal' order by y.recorded_at desc limit 1000) x
      where not exists (select from _memoir.memory_sources s where s.user_id = v_user and s.item_kind = 'memory'
        and s.item_id = x.memory_id and s.source_id = any (v_messages))
      order by shared desc, stands desc, x.recorded_at desc, x.memory_id limit 50) m(m, stands, shared));
  v_marks := _memoir.marks(p_work.user_id, v_session);
  update _memoir.work_items set payload = payload || jsonb_build_object('shown', (select coalesce(jsonb_agg(m.memory_id
    order by m.ordinality), '[]') from unnest(v_memories) with ordinality m))
  where work_id = p_work.work_id;
  return jsonb_build_object(
    'before', (select coalesce(jsonb_agg(_memoir.turn_shown(h, 1000) order by h.turn_index), '[]')
      from _memoir.conversation_history h where h.user_id = p_work.user_id and h.session_id = v_session
        and h.turn_index between v_turns[1].turn_index - 6 and v_turns[1].turn_index - 1
        and h.recorded_at between v_turns[1].recorded_at - interval '31 days' and v_turns[1].recorded_at
        and h.role in ('user', 'assistant')
        and _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks) = 'normal'),
    'memories', (select coalesce(jsonb_agg(jsonb_build_object('id', m.ordinality, 'date',
      to_char(coalesce((m.metadata ->> 'said_at')::timestamptz, m.recorded_at) at time zone 'UTC', 'YYYY-MM-DD'),
      'text', left(m.content, 600)) order by m.ordinality), '[]') from unnest(v_memories) with ordinality m),
    'turns', (select jsonb_agg(_memoir.turn_shown(t, case when t.role = 'user' then 30000 else 6000 end)
      order by t.turn_index) from unnest(v_turns) t));
end $$;

-- A statement of the model's as extraction takes it. Words of others count as inferred.
create or replace function _memoir.model_found(p_item jsonb, p_text_no integer, p_turn _memoir.conversation_history,
  p_is_change boolean)
returns _memoir.extracted language plpgsql stable as $$
declare
  v_found _memoir.extracted; v_is_own boolean := (p_item ->> 'is_own')::boolean;
  v_until timestamptz := ((p_item ->> 'valid_until')::date + 1)::timestamp at time zone 'UTC';
begin
  v_found.text_no := p_text_no;
  v_found.span_start := (p_item ->> 'start')::integer;
  v_found.span_length := (p_item ->> 'length')::integer;
  v_found.rule := 'model';
  v_found.content := btrim(p_item ->> 'content');
  v_found.type := case when p_item ->> 'type' = any (_memoir.known_types()) then p_item ->> 'type' else 'fact' end;
  v_found.category := case when p_is_change then 'correction' else v_found.type end;
  v_found.provenance := case when p_turn.role = 'tool' then 'tool_output' when not v_is_own then 'system_inferred'
    when p_is_change then 'correction' when v_found.type in ('instruction', 'preference') then v_found.type
    else 'user_stated' end;
  v_found.utility := coalesce((p_item ->> 'importance')::real, case when p_is_change then 0.8 else 0.5 end);
  v_found.importance := case when v_found.utility >= 0.9 then 'critical' when v_found.utility >= 0.7 then 'important'
    when v_found.utility >= 0.3 then 'normal' else 'minor' end;
  v_found.standing := v_is_own and coalesce((p_item ->> 'standing')::boolean, false);
  v_found.event_from := (p_item ->> 'valid_from')::date;
  -- Known from when it was said, even where it is about the future.
  v_found.valid_from := least(p_turn.created_at, v_found.event_from::timestamp at time zone 'UTC');
  v_found.valid_to := case when v_until > v_found.valid_from then v_until end;
  return v_found;
end $$;

-- Where the turn of an item stands among turns; null where its words are not there any more.
create or replace function _memoir.place_of(p_turns _memoir.conversation_history[], p_item jsonb)
returns integer language sql immutable as $$
  select t.ordinality::integer from unnest(p_turns) with ordinality t where t.turn_index = (p_item ->> 'turn')::integer
    and (p_item ->> 'start')::integer between 1 and length(t.content)
    and (p_item ->> 'length')::integer between 1 and length(t.content)
$$;

create or replace function _memoir.units_of(p_user_id uuid, p_memory uuid)
returns _memoir.said_unit[] language plpgsql stable as $$
begin
  return array(
    select (h.message_id, h.session_id, h.turn_index, h.recorded_at, h.created_at, h.role, coalesce(s.span_start, 1),
      coalesce(s.span_length, length(h.content)), null, null, false)::_memoir.said_unit
    from _memoir.memory_sources s
    join _memoir.session_counters c on c.user_id = p_user_id and c.session_id = s.session_id
    join _memoir.conversation_history h on h.user_id = p_user_id and h.session_id = s.session_id
      and h.turn_index = s.turn_index and h.recorded_at between c.first_recorded_at and c.last_recorded_at
    where s.user_id = p_user_id and s.item_kind = 'memory' and s.item_id = p_memory and s.source_kind = 'turn'
    order by h.created_at desc);
end $$;

-- A memory that a turn makes untrue gives way to what the turn says, with the words that it came from; what remains of
-- it goes on. False where it had given way already.
create or replace function _memoir.change_memory(p_session _memoir.sessions, p_turn _memoir.conversation_history,
  p_item jsonb, p_memory uuid, p_by text, p_config jsonb)
returns boolean language plpgsql as $$
declare
  v_user uuid := p_turn.user_id; v_old _memoir.memory_store; v_unit _memoir.said_unit; v_change _memoir.found_change;
  v_new uuid; v_rest _memoir.memory_store; v_done boolean := false;
begin
  select * into v_old from _memoir.memory_store where user_id = v_user and memory_id = p_memory;
  if v_old.state is distinct from 'active' then return false; end if;
  v_change.span_start := (p_item ->> 'start')::integer;
  v_change.span_length := (p_item ->> 'length')::integer;
  v_change.said := coalesce(nullif(btrim(p_item ->> 'content'), ''), p_item ->> 'quote');
  v_change.grade := 'certain';
  v_change.olds := '{}';
  v_change.remainder := p_item ->> 'remains';
  foreach v_unit in array _memoir.units_of(v_user, p_memory) loop
    v_change.unit := v_unit;
    v_done := _memoir.change(p_session, p_turn, v_change, p_by, p_config) or v_done;
    v_change.remainder := null;
  end loop;
  select * into v_old from _memoir.memory_store where user_id = v_user and memory_id = p_memory;
  if v_old.state <> 'active' then return v_done; end if;
  -- It was remembered by itself, or its words are marked already.
  v_new := _memoir.made_of(p_turn, v_change, array[p_memory]);
  if p_item ->> 'remains' is not null then
    v_rest := v_old;
    v_rest.recorded_at := memoir.now();
    v_rest.content := p_item ->> 'remains';
    v_rest.slot := null; v_rest.slot_value := null; v_rest.confidence := null; v_rest.superseded_by := null;
    v_rest.written_by := p_by;
    perform _memoir.enter(v_rest, null, '{}', null, null, _memoir.said(v_old), p_config);
  end if;
  if v_new is not null then
    perform _memoir.supersede(v_user, array[p_memory], v_new, p_by, 'changed in conversation', memoir.now());
  else
    perform _memoir.set_state(v_user, array[p_memory], 'invalidated', p_by, 'changed in conversation', null,
      memoir.now());
  end if;
  return true;
end $$;

-- Stores what the model said of a stretch: an item that cannot be stored is left out, the others stand.
create or replace function _memoir.extract_store(p_work _memoir.work_items, p_output jsonb, p_made_by text)
returns integer language plpgsql as $$
declare
  v_user uuid := p_work.user_id; v_session _memoir.sessions; v_turns _memoir.conversation_history[]; v_one record;
  v_said text[]; v_messages uuid[]; v_found _memoir.extracted[] := '{}';
  v_shown jsonb := coalesce(p_work.payload -> 'shown', '[]');
  v_by text := _memoir.login(); v_config jsonb; v_ids uuid[]; v_stored integer; v_place integer;
begin
  perform _memoir.ensure_month(v_user, memoir.now());
  select * into v_session from _memoir.sessions where user_id = v_user
    and session_id = (p_work.payload ->> 'session_id')::uuid;
  perform from _memoir.session_counters where user_id = v_user and session_id = v_session.session_id for update;
  if not found then return 0; end if;
  perform from _memoir.user_counters where user_id = v_user for update;
  -- Read under the locks: what was forgotten while the model was at it is not among them.
  v_turns := _memoir.turns_of_work(p_work);
  if v_turns = '{}' then return 0; end if;
  v_config := _memoir.config(v_user, v_session.settings);
  for v_one in select 'new' as kind, i as item from jsonb_array_elements(p_output -> 'new') i
    union all select 'changed', i from jsonb_array_elements(p_output -> 'changed') i loop
    v_place := _memoir.place_of(v_turns, v_one.item);
    if v_place is not null and btrim(v_one.item ->> 'content') <> '' then
      v_found := v_found || _memoir.model_found(v_one.item, v_place, v_turns[v_place], v_one.kind = 'changed');
    end if;
  end loop;
  v_stored := coalesce((_memoir.enter_found(v_session, v_turns, v_found, v_by, p_made_by, true, v_config)
    ->> 'stored')::integer, 0);
  for v_one in select 'changed' as kind, i as item from jsonb_array_elements(p_output -> 'changed') i
    union all select 'forget', i from jsonb_array_elements(p_output -> 'forget') i loop
    v_place := _memoir.place_of(v_turns, v_one.item);
    v_ids := array(select (v_shown ->> (n::integer - 1))::uuid
      from jsonb_array_elements_text(coalesce(v_one.item -> 'ids', jsonb_build_array(v_one.item -> 'id'))) n
      where n::integer between 1 and jsonb_array_length(v_shown));
    continue when v_place is null or v_ids = '{}' or not (v_one.item ->> 'is_own')::boolean;
    if v_one.kind = 'changed' then
      v_stored := v_stored + _memoir.change_memory(v_session, v_turns[v_place], v_one.item, v_ids[1], v_by,
        v_config)::integer;
    else
      -- With the words that they came from, as the turn asks.
      v_stored := v_stored + (_memoir.forget_meant(v_turns[v_place], jsonb_build_object('span_start',
        v_one.item -> 'start', 'span_length', v_one.item -> 'length'), jsonb_build_object('outcome', 'clear', 'units',
        array(select to_jsonb(u) from unnest(v_ids) m, unnest(_memoir.units_of(v_user, m)) u), 'memories', v_ids,
        'values', '[]'::jsonb), false, v_by) ->> 'outcome' = 'forgotten')::integer;
    end if;
  end loop;
  -- What rules made of a stretch was provisional: what the model did not say as well goes.
  v_messages := array(select t.message_id from unnest(v_turns) t);
  v_said := array(select _memoir.normalise(f.content) from unnest(v_found) f);
  v_ids := array(
    select m.memory_id from _memoir.memory_sources s join _memoir.memory_store m on m.user_id = v_user
      and m.memory_id = s.item_id and m.state = 'active' and m.metadata ->> 'extracted_by' like 'rules %'
      and _memoir.normalise(m.content) <> all (v_said)
    where s.user_id = v_user and s.item_kind = 'memory' and s.source_kind = 'turn' and s.source_id = any (v_messages)
    group by m.memory_id
    having not exists (select from _memoir.memory_sources o where o.user_id = v_user and o.item_kind = 'memory'
      and o.item_id = m.memory_id and o.source_kind = 'turn' and o.source_id <> all (v_messages)));
  perform _memoir.set_state(v_user, v_ids, 'invalidated', v_by, 'a model read the turn', null, memoir.now());
  return v_stored;
end $$;
