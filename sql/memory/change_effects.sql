-- Effects of changes (changes.sql finds them): spans marked or taken out, memories that give way, requests to forget;
-- undo_change, forget_about.

-- Forgets what is known of the matter that a request names by another word than it was told with; null where
-- nothing is.
create or replace function _memoir.forget_slot(p_turn _memoir.conversation_history,
  p_request _memoir.forget_request, p_by text)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_slot text; v_values text[];
  v_noise text := '\m(?:' || array_to_string(_memoir.word_list('english', 'forget_words'), '|') || ')\M';
begin
  -- "That salary figure", and "gran's age".
  v_slot := (select s.slot from _memoir.slot_of('My ' || btrim(regexp_replace(regexp_replace(p_request.names,
    '^(?:my|our|the|that|this|those) ', '', 'i'), v_noise, '', 'gi')) || ' is 1000') s);
  v_values := array(select distinct m.slot_value from _memoir.memory_store m where m.user_id = p_turn.user_id
    and m.state = 'active' and m.slot = v_slot and length(m.slot_value) between 2 and 80 limit 2);
  if cardinality(v_values) <> 1 then return null; end if;
  return _memoir.forget_named(p_turn, v_values[1], p_request.said, false, p_request.language, false, p_by);
end $$;

-- A turn's requests to forget are carried out. Under the user's lock. Returns counts.
create or replace function _memoir.carry_out(p_turn _memoir.conversation_history,
  p_requests _memoir.forget_request[], p_by text)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_request _memoir.forget_request; v_done jsonb; v_forgotten integer := 0; v_unclear integer := 0; v_values text[];
begin
  foreach v_request in array p_requests loop
    v_done := _memoir.forget_named(p_turn, v_request.names, v_request.said, v_request.is_all, v_request.language, false,
      p_by);
    -- "My pay", who takes home 3,850: what has its slot.
    if v_done ->> 'outcome' = 'nothing' and not v_request.is_all then
      v_done := coalesce(_memoir.forget_slot(p_turn, v_request, p_by), v_done);
    end if;
    -- "… what I said about my pay, I mean the 3,900": by its value.
    if v_done ->> 'outcome' = 'nothing' then
      v_values := array(select r from _memoir.values_of(p_turn.content, v_request.language) v,
        unnest(v.kinds, v.raws) x(k, r) where k in ('email', 'code') or r ~ '\d.*\d.*\d');
      if cardinality(v_values) = 1 then
        v_done := _memoir.forget_named(p_turn, v_values[1], v_request.said, false, v_request.language, false, p_by);
        -- The turn says the value itself.
        v_request.span_start := 1;
        v_request.span_length := length(p_turn.content);
      end if;
    end if;
    if v_done ->> 'outcome' = 'forgotten' then
      v_forgotten := v_forgotten + 1;
      perform _memoir.exclude_units(p_turn.user_id, array[(p_turn.message_id, p_turn.session_id, p_turn.turn_index,
        p_turn.recorded_at, p_turn.created_at, p_turn.role, v_request.span_start, v_request.span_length, null, null,
        false)::_memoir.said_unit], false, (v_done ->> 'change_id')::uuid, p_turn, 'asked to forget', memoir.now());
    else
      v_unclear := v_unclear + 1;
    end if;
  end loop;
  return jsonb_strip_nulls(jsonb_build_object('forgotten', nullif(v_forgotten, 0), 'unclear', nullif(v_unclear, 0)));
end $$;

-- Applies the changes of a turn, under the user's lock: certain ones take effect, likely ones are noted. Returns counts.
create or replace function _memoir.take_effect(p_session _memoir.sessions, p_turn _memoir.conversation_history,
  p_changes _memoir.found_change[], p_by text, p_config jsonb)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_change _memoir.found_change; v_changed integer := 0; v_likely integer := 0;
begin
  foreach v_change in array p_changes loop
    if v_change.grade = 'certain' then
      v_changed := v_changed + _memoir.change(p_session, p_turn, v_change, p_by, p_config)::integer;
    else
      perform _memoir.doubt_units(p_turn.user_id, array[v_change.unit], gen_random_uuid(), p_turn,
        v_change.span_start, v_change.span_length, memoir.now());
      v_likely := v_likely + 1;
    end if;
  end loop;
  return jsonb_strip_nulls(jsonb_build_object('changed', nullif(v_changed, 0), 'likely', nullif(v_likely, 0)));
end $$;

-- One change: the older span is marked, and what was made of it gives way to what was said now. What remains of it goes
-- on as a memory of its own. False where another change did it already.
create or replace function _memoir.change(p_session _memoir.sessions, p_turn _memoir.conversation_history,
  p_change _memoir.found_change, p_by text, p_config jsonb)
returns boolean language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_turn.user_id; v_now timestamptz := memoir.now(); v_unit _memoir.said_unit := p_change.unit;
  v_old uuid[] := _memoir.memories_from(v_user, array[v_unit]); v_new uuid; v_change uuid := gen_random_uuid();
begin
  if exists (select from _memoir.recall_exclusions x where x.user_id = v_user and x.session_id = v_unit.session_id
    and x.turn_index = v_unit.turn_index and x.lifted_at is null and not x.is_doubt
      and x.span_start <= v_unit.span_start and x.span_start + x.span_length > v_unit.span_start) then
    return false;
  end if;
  v_new := coalesce(_memoir.made_of(p_turn, p_change, v_old), _memoir.note_change(p_session, p_turn, p_change, v_old,
    p_by, p_config));
  if v_old <> '{}' then
    if p_change.remainder is not null then
      perform _memoir.keep_rest(v_old[1], p_change, v_change, p_by, p_config);
    end if;
    if v_new is not null then
      perform _memoir.supersede(v_user, v_old, v_new, p_by, 'changed in conversation', v_now);
    else
      perform _memoir.set_state(v_user, v_old, 'invalidated', p_by, 'changed in conversation', null, v_now);
    end if;
  end if;
  perform _memoir.exclude_units(v_user, array[v_unit] || _memoir.echoes_of(v_unit, p_change.olds, p_turn), true,
    v_change, p_turn, 'changed in conversation', v_now);
  return true;
end $$;

-- The memory that was made of the words that change something, or of their turn.
create or replace function _memoir.made_of(p_turn _memoir.conversation_history, p_change _memoir.found_change,
  p_old uuid[])
returns uuid language sql stable set plan_cache_mode = force_custom_plan as $$
  select m.memory_id from _memoir.memory_sources s join _memoir.memory_store m on m.user_id = p_turn.user_id
    and m.memory_id = s.item_id and m.state = 'active'
  where s.user_id = p_turn.user_id and s.source_kind = 'turn' and s.source_id = p_turn.message_id
    and s.item_kind = 'memory' and m.memory_id <> all (p_old)
  order by (s.span_start < p_change.span_start + p_change.span_length
    and p_change.span_start < s.span_start + s.span_length) desc nulls last, m.recorded_at desc, m.memory_id limit 1
$$;

-- Makes a memory of the words that change something; null where the door refuses it.
create or replace function _memoir.note_change(p_session _memoir.sessions, p_turn _memoir.conversation_history,
  p_change _memoir.found_change, p_old uuid[], p_by text, p_config jsonb)
returns uuid language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_found _memoir.extracted;
begin
  v_found := _memoir.worded(1, p_change.span_start, p_change.span_length, _memoir.without_preamble(p_change.said,
    'english'), _memoir.bare(p_change.said), 1, 'User', false, p_turn.created_at, jsonb_build_object('rule',
    'changed', 'type', 'fact', 'provenance', 'user_stated', 'category', 'change', 'importance', 'normal',
    'utility', 0.8));
  perform _memoir.enter_found(p_session, array[p_turn], array[v_found], p_by, 'rules 1', false, p_config);
  return (select s.item_id from _memoir.memory_sources s where s.user_id = p_turn.user_id and s.source_kind = 'turn'
    and s.source_id = p_turn.message_id and s.item_kind = 'memory' and s.span_start = p_change.span_start
    and s.item_id <> all (p_old) limit 1);
end $$;

-- What remains of a memory of which an item ended, as a memory that counts as the old one did.
create or replace function _memoir.keep_rest(p_old uuid, p_change _memoir.found_change, p_by_change uuid, p_by text,
  p_config jsonb)
returns void language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_unit _memoir.said_unit := p_change.unit; v_old _memoir.memory_store; v_session _memoir.sessions;
  v_turn _memoir.conversation_history; v_memory _memoir.memory_store;
begin
  select h.* into v_turn from _memoir.search_items i join _memoir.conversation_history h on h.user_id = i.user_id
    and h.session_id = i.session_id and h.recorded_at = i.recorded_at and h.message_id = i.ref_id
  join _memoir.memory_store m on m.memory_id = p_old and m.user_id = i.user_id
  where i.ref_id = v_unit.message_id and i.kind = 't' limit 1;
  select * into v_old from _memoir.memory_store where user_id = v_turn.user_id and memory_id = p_old;
  select * into v_session from _memoir.sessions where user_id = v_turn.user_id and session_id = v_turn.session_id;
  v_memory := v_old;
  v_memory.recorded_at := memoir.now();
  v_memory.content := p_change.remainder;
  v_memory.slot := null;
  v_memory.slot_value := null;
  v_memory.confidence := null;
  v_memory.superseded_by := null;
  v_memory.written_by := p_by;
  v_memory.metadata := v_old.metadata || jsonb_build_object('remainder_of', p_by_change);
  perform _memoir.enter(v_memory, v_session, array[v_turn], array[v_unit.span_start], array[v_unit.span_length],
    v_turn.created_at, null, p_config);
end $$;

-- Returns what values tell without its name being said, as word stems: "my ex is called Dorian" tells a name.
create or replace function _memoir.told_by(p_values _memoir.said_values)
returns text[] language sql immutable as $$
  select case when (p_values).names <> '{}' then array['name'] else '{}' end
    || case when (p_values).kinds && '{number,code}' then '{number,code,much,mani,digit,combin}' else '{}' end::text[]
    || case when (p_values).kinds && '{email}' then '{email,mail,address}' else '{}' end::text[]
    || case when (p_values).kinds && '{date,time,weekday}' then '{date,day,time}' else '{}' end::text[]
$$;

-- Returns what clauses of a sentence tell of the same: "…, it's at the corner bank", "I see Dr. Amsel, she's
-- a therapist".
create or replace function _memoir.told_on(p_units _memoir.said_unit[], p_all _memoir.said_unit[])
returns _memoir.said_unit[] language sql immutable as $$
  with recursive told as (
    select u as unit from unnest(p_units) u
    union
    select a from told t
    join unnest(p_all) a on a.message_id = (t.unit).message_id
      and (a.span_start between (t.unit).span_start + (t.unit).span_length
            and (t.unit).span_start + (t.unit).span_length + 6
          and (t.unit).said !~ '[.!?…]$'
          and a.said ~* ('^(?:and |but )?(?:(?:' || _memoir.any_word('english', 'pronouns')
            || ')(?:''s|''re)?|her|his|its|their)\M')
        -- Who was meant, in a clause that says no more than that: "I see Dr. Amsel", not "I work at Siemens with Karl".
        or (t.unit).span_start between a.span_start + a.span_length and a.span_start + a.span_length + 6
          and a.said ~ '^(?:[Ii]|[Ww]e)(?:''m|''re| am| are|''ve|'' have| have)? [[:lower:]]+(?: [[:lower:]]+)?(?: '
            'Dr\.?| Mr\.?| Mrs\.?| Ms\.?)? [[:upper:]][[:alpha:]''-]+(?: [[:upper:]][[:alpha:]''-]+)?$'
          and (t.unit).said ~* '^(?:he|she|it|they)(?:''s|''re| is| are) (?:an?|the|my|our)\M'))
  select coalesce(array_agg(t.unit), '{}') from told t where t.unit <> all (p_units)
$$;

-- The user's earlier clauses that a request to forget names. They are clear where all is asked for, or where only one
-- thing is meant: of a question and a statement the statement, of several statements none. "Forget the bread" may be
-- no more than "leave it": it means what holds a value, or is named by two words.
create or replace function _memoir.units_named(p_turn _memoir.conversation_history, p_names text, p_request text,
  p_is_all boolean, p_language text, out units _memoir.said_unit[], out topics text[], out is_clear boolean)
language plpgsql stable as $$
declare
  v_named _memoir.said_values := _memoir.values_of(_memoir.plain(p_names, p_language), p_language);
  v_config regconfig := p_language::regconfig; v_terms text[]; v_topics text[]; v_best integer;
  v_units _memoir.said_unit[]; v_all _memoir.said_unit[]; v_things integer; v_own text := '\m(?:i|i''m|i''ve|my|our|we'
    '|mein\w*|ich|mi|mis|mon|ma|je|j''\w+|meu|minha|mio|mia)\M';
  v_noise text[] := tsvector_to_array(to_tsvector(v_config, array_to_string(_memoir.word_list('english',
    'forget_words'), ' ')));
begin
  units := '{}';
  is_clear := false;
  v_topics := array(select t from unnest(v_named.topics) t where t <> all (v_noise));
  -- "How much I make": what it is about else only tells a change.
  if v_topics <@ '{much,mani,number,code,date,day,time}' then
    v_topics := array(select t from unnest(_memoir.topics(p_names, p_language, '{}')) t where t <> all (v_noise));
  end if;
  topics := v_topics;
  v_terms := v_topics || tsvector_to_array(to_tsvector(v_config, array_to_string(v_named.raws, ' ')));
  if v_terms = '{}' then return; end if;
  v_all := _memoir.units_before(p_turn, v_terms, '{user}', 0);
  with matched as materialized (
    select u, u.said, v.vals, v.kinds <> '{}' or v.names <> '{}' as has_value,
      case when u.is_question then 0 when u.said ~* v_own then 3 when v.kinds <> '{}' then 2 else 1 end as rank
    from unnest(v_all) u, lateral _memoir.values_of(u.said, p_language) v
    where _memoir.coverage(v_topics, '{}', v.topics || _memoir.told_by(v) || tsvector_to_array(to_tsvector(v_config,
      u.said)),
          '{}')
        >= case when cardinality(v_topics) >= 3 then 0.66 when v_topics = '{}' then 0 else 1 end
          and v_named.vals <@ v.vals
      and not exists (select from _memoir.forget_requests(u.said))),
  best as (select max(rank) as rank from matched)
  select array(select m.u from matched m, best b where p_is_all or m.rank = b.rank), b.rank,
    (select count(distinct case when m.vals <> '{}' then m.vals::text else lower(m.said) end) from matched m
     where m.rank = b.rank and (m.has_value or m.rank = 3 and cardinality(v_topics) >= 2
       or p_request !~* '^(?:just |now )*forget (?:about )?the '))
  into v_units, v_best, v_things from best b;
  units := v_units || _memoir.told_on(v_units, v_all);
  -- "Meeting with Ines on the 9th, meeting with Raul on the 11th": two in one.
  is_clear := v_best > 0 and (p_is_all or v_things = 1 and not exists (
    select from unnest(v_units) u where p_language = 'english' and (select count(*) from regexp_matches(lower(u.said),
      '\m' || regexp_replace((select t from unnest(v_topics) t order by length(t) limit 1), '[^[:alnum:]]', '.', 'g'),
        'g')) > 1
      -- "Two driving lessons: …", and one is to be forgotten.
      or exists (select from unnest(v_topics) t where t ~ '^[[:alnum:]]+$' and p_names !~* (t || '[[:alpha:]]*s\M')
        and u.said ~* ('\m(?:two|three|four|five|both|several) (?:[[:alpha:]-]+ ){0,2}' || t || '[[:alpha:]]*s\M'))));
end $$;

-- Takes clauses out of recall and forgets memories, as p_turn asks. Under the user's lock.
create or replace function _memoir.forget_units(p_user_id uuid, p_units _memoir.said_unit[], p_memories uuid[],
  p_change uuid, p_turn _memoir.conversation_history, p_by text)
returns void language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_now timestamptz := memoir.now();
begin
  perform _memoir.exclude_units(p_user_id, p_units, false, p_change, p_turn, 'asked to forget', v_now);
  if p_memories <> '{}' then
    perform _memoir.set_tombstones(p_user_id, p_memories, true, true, p_memories[1], 'asked to forget', 'person', p_by,
      v_now);
    perform _memoir.set_state(p_user_id, p_memories, 'forgotten', p_by, 'asked to forget', null, v_now, 'person');
    perform _memoir.withdraw_derived(p_user_id, p_memories, p_by, v_now, true);
    update _memoir.recall_exclusions set memory_id = p_memories[1] where user_id = p_user_id and change_id = p_change;
    perform _memoir.drop_recalled(p_user_id, p_memories::text[]);
  end if;
  insert into _memoir.audit_log (login, action, user_id, detail)
  values (p_by, 'forget', p_user_id, jsonb_build_object('change_id', p_change, 'memory_ids', p_memories, 'reason',
    'asked to forget'));
end $$;

-- A whole turn as a clause; null where the caller may not see it.
create or replace function _memoir.turn_unit(p_caller _memoir.caller, p_id uuid)
returns _memoir.said_unit language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_unit _memoir.said_unit;
begin
  select h.message_id, h.session_id, h.turn_index, h.recorded_at, h.created_at, h.role, 1, length(h.content), h.content,
    left(h.content, 1000), false into v_unit
  from _memoir.search_items i
  join _memoir.conversation_history h on h.user_id = i.user_id and h.session_id = i.session_id
    and h.recorded_at = i.recorded_at and h.message_id = i.ref_id
  where i.user_id = p_caller.user_id and i.ref_id = p_id and i.kind = 't' and not i.dead
    and i.sensitivity <= p_caller.clearance and (p_caller.projects is null or i.project = any (p_caller.projects))
  limit 1;
  return v_unit;
end $$;

-- A turn of a session by its index.
create or replace function _memoir.turn_at(p_session _memoir.sessions, p_turn integer)
returns _memoir.conversation_history language sql stable as $$
  select h.* from _memoir.session_counters c join _memoir.conversation_history h on h.user_id = c.user_id
    and h.session_id = c.session_id and h.recorded_at between c.first_recorded_at and c.last_recorded_at
    and h.turn_index = p_turn
  where c.user_id = p_session.user_id and c.session_id = p_session.session_id
$$;

-- Marks parts of a turn as over where p_new stands instead of them, as a later turn says, else forgets them. Returns
-- the change.
create or replace function _memoir.change_turn(p_caller _memoir.caller, p_session _memoir.sessions, p_cited integer,
  p_units _memoir.said_unit[], p_new uuid)
returns uuid language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_caller.user_id; v_old uuid[]; v_now timestamptz := memoir.now(); v_change uuid := gen_random_uuid();
  v_turn _memoir.conversation_history := _memoir.turn_at(p_session, p_cited);
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  v_old := array(select m from unnest(_memoir.memories_from(v_user, p_units)) m where m is distinct from p_new);
  if p_new is null then
    perform _memoir.forget_units(v_user, p_units, v_old, v_change, v_turn, p_caller.login);
    return v_change;
  end if;
  if v_old <> '{}' then
    perform _memoir.supersede(v_user, v_old, p_new, p_caller.login, 'changed in conversation', v_now);
  end if;
  perform _memoir.exclude_units(v_user, p_units, true, v_change, v_turn, 'changed in conversation', v_now);
  return v_change;
end $$;

-- Takes a request to forget out of recall, with the change that it asked for.
create or replace function _memoir.exclude_request(p_caller _memoir.caller, p_session _memoir.sessions, p_cited integer,
  p_start integer, p_length integer, p_change uuid)
returns void language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_turn _memoir.conversation_history := _memoir.turn_at(p_session, p_cited);
  -- Where normal form moves what follows, the whole turn.
  v_is_exact boolean := v_turn.content is nfkc normalized;
begin
  perform from _memoir.user_counters where user_id = p_caller.user_id for update;
  perform _memoir.exclude_units(p_caller.user_id, array[(v_turn.message_id, v_turn.session_id, v_turn.turn_index,
    v_turn.recorded_at, v_turn.created_at, v_turn.role, case when v_is_exact then p_start else 1 end, case
    when v_is_exact then p_length else length(v_turn.content) end, null, null, false)::_memoir.said_unit], false,
      p_change,
    v_turn, 'asked to forget', memoir.now());
end $$;

-- Forgets what is named: the user's clauses, what repeats their values, and the memories made of them or saying the
-- same. Nothing where it is not clear what is meant. p_preview: only says what it would be. Under the user's lock.
create or replace function _memoir.forget_named(p_turn _memoir.conversation_history, p_names text, p_request text,
  p_is_all boolean, p_language text, p_preview boolean, p_by text, p_projects text[] default null,
  p_clearance _memoir.sensitivity default 'secret')
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_turn.user_id; v_change uuid := gen_random_uuid();
  v_named record := _memoir.units_named(p_turn, p_names, p_request, p_is_all, p_language);
  v_units _memoir.said_unit[] := _memoir.units_within(v_user, v_named.units, p_projects,
    p_clearance); v_values text[] := '{}'; v_memories uuid[]; v_unit _memoir.said_unit;
  v_shown jsonb; v_clear boolean := v_named.is_clear;
begin
  v_memories := _memoir.memories_named(v_user, v_named.topics, p_language, p_projects, p_clearance);
  if not coalesce(v_clear, false) then
    -- What was only ever remembered, in one memory.
    v_clear := cardinality(v_units) = 0 and cardinality(v_memories) = 1;
    if not v_clear then
      return jsonb_build_object('outcome', case when cardinality(v_units) + cardinality(v_memories) > 0 then 'unclear'
        else 'nothing' end);
    end if;
  end if;
  foreach v_unit in array v_units loop
    v_values := v_values || array(select r from _memoir.values_of(v_unit.said, p_language) v, unnest(v.kinds,
      v.raws) x(k, r)
      where k in ('email', 'code') or k in ('number', 'date', 'time') and r ~ '\d\d');
  end loop;
  if v_values <> '{}' or p_is_all then
    v_units := v_units || array(select u from unnest(_memoir.units_before(p_turn, v_named.topics
        || _memoir.query_terms('english', array_to_string(v_values, ' ')), '{user,assistant}', 4)) u
      where exists (select from unnest(v_values) x where _memoir.has_words(u.said, x))
        or p_is_all and v_named.topics <@ _memoir.topics(u.said, p_language, '{}'));
    v_units := _memoir.units_within(v_user, v_units, p_projects, p_clearance);
  end if;
  v_memories := array(select distinct m from unnest(_memoir.memories_from(v_user, v_units) || case when p_is_all
    or cardinality(v_memories) = 1 then v_memories else array(select m.memory_id from _memoir.memory_store m
      where m.user_id = v_user and m.memory_id = any (v_memories)
        and exists (select from unnest(v_values) x where _memoir.has_words(m.content, x))) end) m);
  v_shown := jsonb_build_object('turns', (select coalesce(jsonb_agg(jsonb_build_object('session', s.external_id, 'turn',
      u.turn_index, 'text', u.said) order by u.created_at, u.turn_index, u.span_start), '[]')
      from (select distinct on (x.message_id, x.span_start) x.* from unnest(v_units) x) u
      join _memoir.sessions s on s.user_id = v_user and s.session_id = u.session_id),
    'memories', (select coalesce(jsonb_agg(jsonb_build_object('memory_id', m.memory_id, 'content', m.content)
      order by m.recorded_at, m.memory_id), '[]') from _memoir.memory_store m where m.user_id = v_user
      and m.memory_id = any (v_memories)));
  if p_preview then return v_shown || jsonb_build_object('outcome', 'preview'); end if;
  perform _memoir.forget_units(v_user, v_units, v_memories, v_change, p_turn, p_by);
  return v_shown || jsonb_build_object('outcome', 'forgotten', 'change_id', v_change);
end $$;

-- Of clauses those that a caller may see.
create or replace function _memoir.units_within(p_user_id uuid, p_units _memoir.said_unit[], p_projects text[],
  p_clearance _memoir.sensitivity)
returns _memoir.said_unit[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  if p_projects is null and p_clearance = 'secret' then return p_units; end if;
  return array(select u from unnest(p_units) u where exists (select from _memoir.search_items i
    where i.user_id = p_user_id and i.ref_id = u.message_id and i.sensitivity <= p_clearance
      and (p_projects is null or i.project = any (p_projects))));
end $$;

-- Active memories that speak of all these topics, those that a caller may see.
create or replace function _memoir.memories_named(p_user_id uuid, p_topics text[], p_language text, p_projects text[],
  p_clearance _memoir.sensitivity)
returns uuid[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  if p_topics = '{}' then return '{}'; end if;
  return array(select m.memory_id from _memoir.memory_store m
    where m.user_id = p_user_id and m.state = 'active' and not m.is_object and m.sensitivity <= p_clearance
      and (p_projects is null or m.project = any (p_projects))
      and p_topics <@ _memoir.topics(left(m.content, 2000), p_language, '{}')
    order by m.recorded_at desc limit 200);
end $$;

create or replace function memoir.undo_change(p_user text, p_change uuid)
returns jsonb language plpgsql security definer
  set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_user uuid := v_caller.user_id;
  v_now timestamptz := memoir.now(); v_at timestamptz; v_units _memoir.said_unit[]; v_id uuid;
  v_back uuid[] := '{}'; v_turns integer;
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  v_units := array(
    select (s.message_id, x.session_id, x.turn_index, null, null, null, x.span_start, x.span_length, null, null, null)
      ::_memoir.said_unit
    from _memoir.recall_exclusions x
    join lateral (select i.ref_id as message_id from _memoir.search_items i where i.user_id = v_user
      and i.session_id = x.session_id and i.turn_index = x.turn_index and i.kind = 't' limit 1) s on true
    where x.user_id = v_user and x.change_id = p_change and x.lifted_at is null);
  v_at := (select min(x.recorded_at) from _memoir.recall_exclusions x where x.user_id = v_user
    and x.change_id = p_change and x.lifted_at is null);
  update _memoir.recall_exclusions set lifted_at = v_now where user_id = v_user and change_id = p_change
    and lifted_at is null;
  if v_at is null or exists (select from _memoir.recall_exclusions x
    join _memoir.sessions s on s.user_id = v_user and s.session_id = x.session_id
    where x.user_id = v_user and x.change_id = p_change and s.project <> all (v_caller.projects)) then
    perform _memoir.fail('PM004', format('unknown change %s', _memoir.shown(p_change::text)),
      'list_changes names them');
  end if;
  update _memoir.tombstones set lifted_at = v_now, lifted_by = v_caller.login
  where user_id = v_user and recorded_at = v_at and lifted_at is null and reason = 'asked to forget';
  -- The pieces that were left of a turn give way to the whole.
  update _memoir.search_items i set dead = true from unnest(v_units) u
  where i.user_id = v_user and i.ref_id = u.message_id and not i.dead and exists (
    select from _memoir.search_items w where w.user_id = v_user and w.ref_id = i.ref_id and w.dead
      and w.span_start <= i.span_start and w.span_start + w.span_length >= i.span_start + i.span_length
      and w.span_length > i.span_length);
  perform _memoir.revive_items(v_user, array(
    select i.item_no from _memoir.search_items i where i.user_id = v_user and i.dead and i.kind = 't'
      and i.ref_id in (select u.message_id from unnest(v_units) u)
      and not exists (select from _memoir.search_items w where w.user_id = v_user and w.ref_id = i.ref_id
        and w.span_start <= i.span_start and w.span_start + w.span_length >= i.span_start + i.span_length
        and w.span_length > i.span_length)
      and not exists (select from _memoir.recall_exclusions x where x.user_id = v_user and x.session_id = i.session_id
        and x.turn_index = i.turn_index and x.lifted_at is null and not x.changed and (x.span_start is null
          or x.span_start < i.span_start + i.span_length and i.span_start < x.span_start + x.span_length))));
  perform _memoir.set_state(v_user, array(select m.memory_id from _memoir.memory_store m where m.user_id = v_user
    and m.state = 'active' and m.metadata ->> 'remainder_of' = p_change::text), 'invalidated', v_caller.login,
    'change undone', null, v_now);
  for v_id in
    select m.memory_id from _memoir.memory_store m where m.user_id = v_user and m.state_at = v_at
      and m.state in ('superseded', 'invalidated', 'forgotten') and m.state_reason in ('changed in conversation',
        'asked to forget') order by m.recorded_at, m.memory_id
  loop
    -- Of a forgotten one it is known again first.
    update _memoir.memory_store set state = 'superseded', superseded_by = null where user_id = v_user
      and memory_id = v_id;
    if _memoir.restore(v_user, v_id, v_caller.login, 'change undone', v_now, v_caller.actor) then
      v_back := v_back || v_id;
    end if;
  end loop;
  select count(distinct (u.session_id, u.turn_index)) into v_turns from unnest(v_units) u;
  insert into _memoir.audit_log (login, action, user_id, detail)
  values (v_caller.login, 'undo_change', v_user, jsonb_build_object('change_id', p_change, 'restored', v_back));
  return jsonb_build_object('change_id', p_change, 'restored', to_jsonb(v_back), 'returned_turns', v_turns);
end $$;
comment on function memoir.undo_change(text, uuid) is
  'Takes back what a turn changed or asked to forget (list_changes): the spans are shown again as they were said, the
memories that gave way are active again where nothing else has their place, tombstones are lifted. Returns {"change_id",
"restored", "returned_turns"}. Writes recall_exclusions, memory_store, tombstones, audit_log. Raises PM001, PM004.';

create or replace function memoir.list_changes(p_user text, p_undone boolean default false)
returns table (change_id uuid, kind text, recorded_at timestamptz, by_session text, by_turn integer, turns jsonb,
  undone_at timestamptz)
language plpgsql stable security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
begin
  return query
  select x.change_id, case when bool_and(x.is_doubt) then 'doubted' when bool_and(x.changed) then 'changed'
    else 'forgotten' end, min(x.recorded_at),
    min(b.external_id), min(x.by_turn),
    jsonb_agg(jsonb_build_object('session', s.external_id, 'turn', x.turn_index, 'from', x.span_start, 'length',
      x.span_length) order by s.external_id, x.turn_index, x.span_start), max(x.lifted_at)
  from _memoir.recall_exclusions x
  join _memoir.sessions s on s.user_id = v_caller.user_id and s.session_id = x.session_id
  left join _memoir.sessions b on b.user_id = v_caller.user_id and b.session_id = x.by_session
  where x.user_id = v_caller.user_id and x.change_id is not null and (p_undone or x.lifted_at is null)
    and (v_caller.projects is null or s.project = any (v_caller.projects))
  group by x.change_id order by 3 desc, 1;
end $$;
comment on function memoir.list_changes(text, boolean) is
  'Lists what turns changed of earlier turns (changed: shown with a mark), perhaps changed (doubted: shown with what
was said since) or asked to forget (forgotten), newest first: which turn said so, and which spans of which turns it
concerns; with p_undone those that were taken back as well. undo_change takes one back. Raises PM001.';

create or replace function memoir.forget_about(p_user text, p_query text, p_preview boolean default false)
returns jsonb language plpgsql security definer
  set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_turn _memoir.conversation_history;
begin
  if _memoir.is_blank(p_query) then
    perform _memoir.fail('PM014', format('query must not be empty, it is %s', _memoir.shown(p_query)));
  end if;
  perform _memoir.check_size('query', p_query, 10000);
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  v_turn.user_id := v_caller.user_id;
  v_turn.session_id := _memoir.no_session();
  v_turn.turn_index := 0;
  v_turn.created_at := 'infinity';
  return _memoir.forget_named(v_turn, p_query, 'forget my ' || p_query, p_query ~* ('\m(?:'
    || _memoir.any_word(null, 'all_about') || ')\M'), _memoir.spoken_language(p_query), p_preview, v_caller.login,
    v_caller.projects, v_caller.clearance);
end $$;
comment on function memoir.forget_about(text, text, boolean) is
  'Forgets what a few words name ("my locker code", "everything about Dominik"): the clauses in which the user said it,
what repeats their values, the memories made of them or saying the same; tombstones keep them away. p_preview: only
tells what that would be. Nothing is lost where it is not clear what is meant. Returns {"outcome": forgotten, preview,
unclear or nothing, "turns", "memories", "change_id"}; undo_change takes it back. Writes recall_exclusions,
memory_store, tombstones, audit_log. Raises PM001, PM006, PM014.';
