-- Extraction: from what was said to memories. The package pg_memoir_language reads, in the model server, this process
-- or the worker; here its findings are stored through the door of remember like everything else.

-- S = 0.35 type's prior + 0.25 novelty + 0.25 utility + 0.15 recency ([MN] 9; admission_weights), logged with parts.
-- False: not worth keeping. What a person said and corrections (p_exempt) are scored but never rejected. p_memory_id:
-- null for what did not become a memory.
create or replace function _memoir.admit(p_user_id uuid, p_session_id uuid, p_turn integer, p_type text,
  p_novelty float8, p_utility float8, p_said_at timestamptz, p_exempt boolean, p_memory_id uuid, p_config jsonb,
  p_log_admitted boolean)
returns boolean language plpgsql as $$
declare
  v_threshold real := (p_config ->> 'admission_threshold')::real; v_now timestamptz := memoir.now();
  v_type float8 := coalesce((p_config -> 'admission_type_priors' ->> p_type)::float8, 0.5);
  v_novelty float8 := greatest(0, least(1, p_novelty)); v_recency float8; v_score real; v_admitted boolean;
  w record;
begin
  -- Of a hundred half-lives nothing is left, and a real can't hold less.
  v_recency := power(2, - least(100, greatest(0, extract(epoch from v_now - p_said_at)::float8 / 86400)
    / coalesce((p_config -> 'half_life_days' ->> p_type)::float8, 365)));
  select * into w from jsonb_to_record(p_config -> 'admission_weights')
    x(type float8, novelty float8, utility float8, recency float8);
  v_score := coalesce(w.type * v_type, 0) + coalesce(w.novelty * v_novelty, 0) + coalesce(w.utility * p_utility, 0)
    + coalesce(w.recency * v_recency, 0);
  v_admitted := p_exempt or v_score >= v_threshold;
  if p_log_admitted or not v_admitted then
    insert into _memoir.admission_scores (user_id, score_id, recorded_at, in_session, turn_number, type, memory_id,
      admitted, score_total, score_type, score_novelty, score_utility, score_recency, threshold)
    values (p_user_id, gen_random_uuid(), v_now, p_session_id, p_turn, p_type, p_memory_id, v_admitted, v_score, v_type,
      v_novelty, p_utility, v_recency, v_threshold);
  end if;
  return v_admitted;
end $$;

-- Judged once more when its vector is there: now novelty is 1 - the greatest cosine to another memory. Only what a rule
-- or a model brought in; called with the user's lock held.
create or replace function _memoir.review_admission(p_user_id uuid, p_memory_id uuid, p_by text)
returns boolean language plpgsql as $$
declare
  v_memory _memoir.memory_store; v_vector halfvec; v_model smallint; v_distance float8; v_admitted boolean;
begin
  select * into v_memory from _memoir.memory_store where user_id = p_user_id and memory_id = p_memory_id
    and state = 'active' and metadata ? 'utility';
  if not found then return null; end if;
  select e.embedding, e.model_id into v_vector, v_model
  from _memoir.search_items i join _memoir.embeddings e on e.user_id = p_user_id and e.item_no = i.item_no
  join _memoir.embedding_models m on m.model_id = e.model_id and m.status = 'active'
  where i.user_id = p_user_id and i.ref_id = p_memory_id and i.chunk = 0;
  if not found then return null; end if;
  select min(e.embedding <=> v_vector) into v_distance
  from _memoir.search_items i join _memoir.embeddings e on e.user_id = p_user_id and e.item_no = i.item_no
    and e.model_id = v_model
  where i.user_id = p_user_id and i.kind = 'm' and i.chunk = 0 and not i.dead and i.ref_id <> p_memory_id;
  v_admitted := _memoir.admit(p_user_id, v_memory.session_id, null, v_memory.type, coalesce(v_distance, 1),
    (v_memory.metadata ->> 'utility')::float8,
    coalesce((v_memory.metadata ->> 'said_at')::timestamptz, v_memory.recorded_at),
    v_memory.actor = 'person' or v_memory.provenance in ('user_stated', 'correction', 'instruction', 'preference'),
      p_memory_id, _memoir.config(p_user_id, null), true);
  if not v_admitted then
    perform _memoir.set_state(p_user_id, array[p_memory_id], 'invalidated', p_by, 'not admitted', null, memoir.now());
  end if;
  return v_admitted;
end $$;

-- The turns of a session from the cursor on that may be extracted, at most p_limit indexes; none that is secret,
-- without words, or out of recall altogether.
create or replace function _memoir.turns_to_extract(p_counters _memoir.session_counters, p_from integer,
  p_limit integer)
returns _memoir.conversation_history[] language plpgsql stable as $$
declare
  v_user uuid := p_counters.user_id; v_session uuid := p_counters.session_id;
  v_first timestamptz := p_counters.first_recorded_at;
  v_last timestamptz := p_counters.last_recorded_at; v_turns _memoir.conversation_history[]; v_stones bytea[];
  v_marks jsonb := _memoir.marks(v_user, v_session);
begin
  select array_agg(h order by h.turn_index) into v_turns from _memoir.conversation_history h
  where h.user_id = v_user and h.session_id = v_session and h.recorded_at between v_first and v_last
    and h.turn_index >= p_from and h.turn_index < p_from + p_limit and h.role <> 'system'
    and _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks) <> 'secret' and h.content ~ '[[:alpha:]]'
    and not exists (select from _memoir.exclusions_of(v_user, v_session, h.turn_index) x where x.span_start is null);
  v_stones := array(select key_hash from _memoir.tombstones where user_id = v_user and kind = 'turn'
    and lifted_at is null);
  if v_stones <> '{}' then
    v_turns := array(select t from unnest(v_turns) t
      where not (_memoir.tombstone_keys(v_user, array[t.message_id::text]))[1] = any (v_stones) order by t.turn_index);
  end if;
  return coalesce(v_turns, '{}');
end $$;

-- {"turns": [{"text", "role", "name", "said_at", "utc_offset", "tool"}, …], "before": the last messages before them,
-- "since": the first turn, "steps": requests, calls and the two ends of results around them, null where no tool ran}.
create or replace function _memoir.turns_as_read(p_turns _memoir.conversation_history[])
returns jsonb language plpgsql stable as $$
declare
  v_first _memoir.conversation_history := p_turns[1]; v_since timestamptz := v_first.recorded_at - interval '6 hours';
  v_zone text := _memoir.config(v_first.user_id, null) ->> 'time_zone'; v_marks jsonb;
  v_last _memoir.conversation_history := p_turns[cardinality(p_turns)];
begin
  v_marks := _memoir.marks(v_first.user_id, v_first.session_id);
  return jsonb_build_object('since', v_first.turn_index, 'steps', (
    select jsonb_agg(jsonb_strip_nulls(jsonb_build_object('turn', h.turn_index, 'role', h.role, 'is_person',
      h.actor = 'person', 'text', case h.role when 'tool' then left(h.content, 1500) || E'\n' || right(h.content, 1500)
      when 'user' then left(h.content, 4000) end, 'call', h.tool_call_id, 'calls', (select jsonb_agg(
        jsonb_build_object('id', c -> 'id', 'name', c #> '{function,name}', 'arguments',
        left(c #>> '{function,arguments}', 4000))) from jsonb_array_elements(h.tool_calls) c))) order by h.turn_index)
    from _memoir.conversation_history h
    where h.user_id = v_first.user_id and h.session_id = v_first.session_id and h.role <> 'system'
      and h.recorded_at between v_first.recorded_at - interval '2 days' and v_last.recorded_at
      and h.turn_index between v_first.turn_index - 60 and v_last.turn_index
      and _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks) <> 'secret' and not exists (
        select from _memoir.exclusions_of(v_first.user_id, v_first.session_id, h.turn_index) x
          where x.span_start is null)
    having bool_or(h.role = 'tool')), 'before', (
    select jsonb_agg(jsonb_build_object('text', left(h.content, 1000), 'role', 'user', 'said_at', h.created_at)
      order by h.turn_index)
    from _memoir.conversation_history h
    where h.user_id = v_first.user_id and h.session_id = v_first.session_id and h.role = 'user'
      and h.recorded_at between v_since and v_first.recorded_at
      and h.turn_index between v_first.turn_index - 26 and v_first.turn_index - 1),
    'turns', (select coalesce(jsonb_agg(jsonb_build_object(
      'text', case when t.role <> 'tool' or x.tool is not null then t.content else '' end,
      -- An agent or a tool may send in the person's place.
      'role', case when t.role = 'tool' then 'tool' when t.role = 'user' and t.actor = 'person' then 'user'
        else 'assistant' end,
      'name', nullif(btrim(t.name), ''), 'said_at', t.created_at,
      'utc_offset', coalesce(t.metadata #>> '{sent,utc_offset}', v_zone),
      'tool', nullif(x.tool, '')) order by t.ordinality), '[]')
    from unnest(p_turns) with ordinality t
    -- The tool that a result is from; null for a tool of memory, whose result is nothing new.
    left join lateral (select c #>> '{function,name}' as tool
      from _memoir.conversation_history h, jsonb_array_elements(h.tool_calls) c
      where t.role = 'tool' and h.user_id = v_first.user_id and h.session_id = v_first.session_id
        and h.recorded_at <= v_last.recorded_at and h.turn_index between t.exchange_start and t.turn_index
        and h.tool_calls is not null and c ->> 'id' = t.tool_call_id limit 1) x
      on not _memoir.is_memory_tool(x.tool)));
end $$;

-- Returns a finding as a memory to enter. p_before: memories of the same words. p_read: how turns were read that may
-- change what a memory says.
create or replace function _memoir.memory_found(p_found _memoir.extracted, p_turn _memoir.conversation_history,
  p_project text, p_by text, p_made_by text, p_before uuid[], p_read _memoir.turn_changes[])
returns _memoir.memory_store language plpgsql stable as $$
declare
  v_memory _memoir.memory_store; v_user uuid := p_turn.user_id;
  v_slot text := _memoir.normalise(p_found.slot); v_value text := _memoir.normalise(p_found.slot_value);
begin
  v_memory.user_id := v_user; v_memory.recorded_at := memoir.now();
  v_memory.content := p_found.content; v_memory.type := p_found.type;
  v_memory.category := p_found.category; v_memory.importance := p_found.importance;
  v_memory.provenance := p_found.provenance;
  v_memory.actor := case when p_turn.role = 'tool' then 'tool' else 'agent' end;
  v_memory.project := p_project;
  v_memory.valid_from := p_found.valid_from; v_memory.valid_to := p_found.valid_to;
  v_memory.source_tool := case when p_turn.role = 'tool' then split_part(substr(p_found.content, 6), ' ', 1) end;
  v_memory.written_by := p_by;
  v_memory.aliases := '{}'; v_memory.tags := '{}';
  v_memory.metadata := jsonb_strip_nulls(jsonb_build_object('extracted_by', p_made_by, 'rule', p_found.rule,
    'utility', round(p_found.utility::numeric, 2),
    -- In other words it goes on standing.
    'standing', nullif(coalesce(p_found.standing, false) or exists (select from _memoir.memory_store m
      where m.user_id = v_user and m.memory_id = any (p_before) and (m.metadata ->> 'standing')::boolean), false),
    'said_at', p_turn.created_at, 'event_from', p_found.event_from, 'event_to', p_found.event_to));
  -- It fills its slot with its value, but not in the place of something newer that happened to come first,
  if v_value is not null and not exists (select from _memoir.memory_store m where m.user_id = v_user
      and m.slot = v_slot and m.state = 'active' and coalesce((m.metadata ->> 'said_at')::timestamptz, m.valid_from,
        m.recorded_at) > p_turn.created_at)
    -- nor where its turn was judged to end others, and not what the slot holds,
    and not exists (select from unnest(p_read) r join _memoir.memory_store m on m.user_id = v_user
      and m.slot = v_slot and m.state = 'active' and m.slot_value is distinct from v_value
      where r.text_no = p_found.text_no and r.is_judged and m.memory_id <> all (r.ended)
      and not exists (select from unnest(r.changes) c join _memoir.memory_sources s on s.user_id = v_user
        and s.item_kind = 'memory' and s.item_id = m.memory_id and s.source_kind = 'turn'
        and s.source_id = (c.unit).message_id and _memoir.spans_overlap((c.unit).span_start, (c.unit).span_length,
          s.span_start, s.span_length) where c.grade = 'certain'))
    -- and one who has left is nowhere only if the slot holds what is left.
    and (v_value !~ '^no longer ' or exists (select from _memoir.memory_store m where m.user_id = v_user
      and m.slot = v_slot and m.state = 'active' and m.slot_value = substr(v_value, 11))) then
    v_memory.slot := p_found.slot;
    v_memory.slot_value := p_found.slot_value;
  end if;
  return v_memory;
end $$;

-- Hands what was found to the door. The caller holds the user's lock; the month of the admission log is made. What was
-- extracted from a span before is not extracted again, whatever became of it; p_replace: what rules made of it goes on
-- in the new words.
create or replace function _memoir.enter_found(p_session _memoir.sessions, p_turns _memoir.conversation_history[],
  p_found _memoir.extracted[], p_by text, p_made_by text, p_replace boolean, p_config jsonb,
  p_read _memoir.turn_changes[] default '{}')
returns jsonb language plpgsql as $$
declare
  v_found _memoir.extracted; v_turn _memoir.conversation_history; v_memory _memoir.memory_store;
  v_result jsonb; v_novelty float8; v_counts jsonb := '{}';
  v_outcome text; v_exempt boolean; v_before uuid[]; v_replaceable boolean; v_new uuid[] := '{}'; v_id uuid;
  v_over uuid[]; v_units _memoir.said_unit[]; v_unit _memoir.said_unit;
begin
  foreach v_found in array p_found loop
    v_turn := p_turns[v_found.text_no];
    select array_agg(m.memory_id), bool_and(p_replace
      and coalesce(m.state = 'active' or m.superseded_by = any (v_new), false)
      and coalesce(m.metadata ->> 'extracted_by' like 'rules %', false))
    into v_before, v_replaceable
    from _memoir.memory_sources s join _memoir.memory_store m on m.user_id = s.user_id and m.memory_id = s.item_id
    where s.user_id = v_turn.user_id and s.source_kind = 'turn' and s.source_id = v_turn.message_id
      and s.item_kind = 'memory' and m.memory_id <> all (v_new)
      and _memoir.spans_overlap(s.span_start, s.span_length, v_found.span_start, v_found.span_length);
    continue when not v_replaceable
      or exists (select from _memoir.exclusions_of(v_turn.user_id, v_turn.session_id, v_turn.turn_index) x
        where not x.is_doubt and (x.span_start is null
          or _memoir.spans_overlap(x.span_start, x.span_length, v_found.span_start, v_found.span_length)));
    v_memory := _memoir.memory_found(v_found, v_turn, p_session.project, p_by, p_made_by, v_before, p_read);
    select 1 - coalesce(max(similarity(m.content, v_found.content)), 0) into v_novelty from (
      select content from _memoir.memory_store m where m.user_id = v_turn.user_id
        and m.session_id = p_session.session_id and m.state = 'active'
      order by m.recorded_at desc, m.memory_id limit 200) m;
    -- What it may count as is the door's to decide; what no person said must be worth it first.
    v_exempt := v_turn.role = 'user' and v_turn.actor = 'person';
    if _memoir.admit(v_turn.user_id, v_turn.session_id, v_turn.turn_index, v_found.type, v_novelty, v_found.utility,
      v_turn.created_at, v_exempt, null, p_config, false) then
      v_result := _memoir.enter(v_memory, p_session, array[v_turn], array[v_found.span_start],
        array[v_found.span_length], v_turn.created_at, p_config);
      v_outcome := v_result ->> 'outcome';
      v_id := (v_result ->> 'memory_id')::uuid;
      if v_outcome = 'stored' then
        v_new := v_new || v_id;
        v_over := array(select x::uuid from jsonb_array_elements_text(v_result -> 'superseded') x);
        if v_over <> '{}' then
          -- The spans that those came from are marked as changed: what stands instead was said later.
          v_units := array(select (s.source_id, s.session_id, s.turn_index, null, i.created_at, i.role,
              coalesce(s.span_start, 1), coalesce(s.span_length, i.span_length), m.slot_value, null,
              false)::_memoir.said_unit
            from _memoir.memory_sources s
            join _memoir.memory_store m on m.user_id = v_turn.user_id and m.memory_id = s.item_id
            join _memoir.search_items i on i.user_id = v_turn.user_id and i.ref_id = s.source_id and i.kind = 't'
              and i.chunk = 0 and not i.dead
            where s.user_id = v_turn.user_id and s.item_kind = 'memory' and s.item_id = any (v_over)
              and s.source_kind = 'turn' and s.source_id is distinct from v_turn.message_id);
          foreach v_unit in array v_units loop
            v_units := v_units || _memoir.echoes_of(v_unit, array[initcap(v_unit.said)], v_turn);
          end loop;
          perform _memoir.exclude_units(v_turn.user_id, v_units, true, gen_random_uuid(), v_turn,
            'changed in conversation', memoir.now()) where v_units <> '{}';
        end if;
        perform _memoir.merge_memory(v_turn.user_id, m.memory_id, v_id, p_by, m2.recorded_at)
          from _memoir.memory_store m
        join _memoir.memory_store m2 on m2.user_id = v_turn.user_id and m2.memory_id = v_id and m2.trust >= m.trust
          and m2.state = 'active'
        where m.user_id = v_turn.user_id and m.memory_id = any (v_before) and m.state = 'active';
        perform _memoir.admit(v_turn.user_id, v_turn.session_id, v_turn.turn_index, v_found.type, v_novelty,
          v_found.utility, v_turn.created_at, v_exempt, v_id, p_config, true);
      end if;
    else
      v_outcome := 'not_admitted';
    end if;
    v_counts := v_counts || jsonb_build_object(v_outcome, coalesce((v_counts ->> v_outcome)::integer, 0) + 1);
  end loop;
  return v_counts;
end $$;
