-- Objects of a conversation that are no results: plans and decisions in an assistant's words, as they come;
-- phases, stretches about one thing, by a job that has the vectors. Their text is the turns' own and is never shown
-- shorter, so they have no places, only sources; their stubs say nothing of it.

-- An object of turns of a session as they stand. p_about: what its stub says of it. p_turns: its sources.
create or replace function _memoir.add_turns_object(p_session _memoir.sessions, p_type text, p_about text,
  p_turns _memoir.conversation_history[], p_metadata jsonb, p_tokenizer text, p_login text, p_at timestamptz)
returns uuid language plpgsql as $$
declare
  v_user uuid := p_session.user_id; v_tokens integer := (select sum(t.token_count) from unnest(p_turns) t);
  v_memory _memoir.memory_store; v_marks jsonb := _memoir.marks(v_user, p_session.session_id);
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  v_memory := _memoir.new_object(p_session, p_type, null, null,
    (select max(_memoir.sensitivity_now(t.sensitivity, t.turn_index, v_marks)) from unnest(p_turns) t),
    sha256(convert_to(concat_ws(E'\x1f', p_type, (p_turns[1]).message_id), 'UTF8')),
    _memoir.stub_line(p_type, (p_turns[1]).created_at, p_about, null, v_tokens), p_tokenizer, p_login, p_at);
  v_memory.metadata := p_metadata;
  v_memory.provenance := 'system_inferred';
  v_memory.actor := 'agent';
  v_memory.trust := _memoir.trust(v_memory.actor, v_memory.provenance);
  insert into _memoir.memory_store select v_memory.* on conflict do nothing;
  if not found then return null; end if;
  insert into _memoir.session_objects (user_id, session_id, memory_id, tokens)
  values (v_user, p_session.session_id, v_memory.memory_id, v_tokens);
  perform _memoir.note_state(v_user, array[v_memory.memory_id], 'active', p_login, null, null, p_at, v_memory.actor);
  perform _memoir.add_sources(v_user, v_memory.memory_id, p_turns);
  return v_memory.memory_id;
end $$;

-- A plan or a decision in an assistant's words. A plan depends on the decisions of its session.
create or replace function _memoir.add_text_object(p_session _memoir.sessions, p_turn integer, p_tokenizer text,
  p_login text, p_at timestamptz)
returns uuid language plpgsql as $$
declare
  v_turn _memoir.conversation_history; v_type text; v_id uuid;
begin
  select * into v_turn from _memoir.conversation_history h where h.user_id = p_session.user_id
    and h.session_id = p_session.session_id and h.turn_index = p_turn and h.recorded_at = p_at;
  v_type := case when v_turn.content ~* _memoir.pattern_plan_texts() then 'plan'
    when v_turn.content ~* _memoir.pattern_decision_texts() then 'design_decision' end;
  if v_type is null then return null; end if;
  v_id := _memoir.add_turns_object(p_session, v_type, format('turn %s', p_turn), array[v_turn],
    jsonb_build_object('from', p_turn, 'to', p_turn), p_tokenizer, p_login, p_at);
  insert into _memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
  select p_session.user_id, v_id, 'depends_on', m.memory_id, 'object', p_at from _memoir.memory_store m
  where v_type = 'plan' and v_id is not null and m.user_id = p_session.user_id and m.session_id = p_session.session_id
    and m.is_object and m.state = 'active' and m.type = 'design_decision'
  order by m.recorded_at desc limit 8
  on conflict do nothing;
  return v_id;
end $$;

-- Where episodes begin, by the vectors of a person's turns in order: TextTiling (Hearst 1997) over embeddings. A gap's
-- cohesion is the cosine of the means of three turns on either side; its depth how far it lies below the peaks beside
-- it. An episode begins at the deepest gap around that is deeper than the mean.
create or replace function _memoir.episode_starts(p_vectors vector[])
returns integer[] language plpgsql immutable as $$
declare
  v_count integer := cardinality(p_vectors); v_cohesion float8[]; v_depths float8[] := '{}'; v_left integer;
  v_right integer; v_mean float8;
begin
  v_cohesion := array(select coalesce(1 - (b <=> a), 1) from (select n,
      avg(v) over (order by n rows between 3 preceding and 1 preceding) as b,
      avg(v) over (order by n rows between current row and 2 following) as a
    from unnest(p_vectors) with ordinality t(v, n)) w where n > 1 order by n);
  for g in 1 .. v_count - 1 loop
    v_left := g;
    v_right := g;
    while v_left > 1 and v_cohesion[v_left - 1] >= v_cohesion[v_left] loop v_left := v_left - 1; end loop;
    while v_right < v_count - 1 and v_cohesion[v_right + 1] >= v_cohesion[v_right] loop
      v_right := v_right + 1;
    end loop;
    v_depths := v_depths || (v_cohesion[v_left] + v_cohesion[v_right] - 2 * v_cohesion[g]);
  end loop;
  v_mean := (select avg(d) from unnest(v_depths) d);
  return array(select 1 union select g + 1 from generate_series(1, v_count - 1) g where v_depths[g] > v_mean
    and v_depths[g] = (select max(d) from unnest(v_depths[greatest(1, g - 2) : g + 2]) d) order by 1);
end $$;

-- The phases of a session that are over and have no object yet. Those below the minimum go with the next.
create or replace function _memoir.add_phases(p_session _memoir.sessions)
returns integer language plpgsql as $$
declare
  v_user uuid := p_session.user_id; v_session uuid := p_session.session_id; v_counters _memoir.session_counters;
  v_least integer := (_memoir.config(v_user, p_session.settings) ->> 'object_tokens_min')::integer;
  v_from integer; v_to integer; v_id uuid; v_turns _memoir.conversation_history[]; v_inside uuid[]; v_debugging boolean;
  v_made integer := 0; v_now timestamptz := memoir.now();
  v_tokenizer text := _memoir.tokenizer_used(p_session.tokenizer); v_asked integer[]; v_vectors vector[];
  v_starts integer[];
  v_model smallint := (select m.model_id from _memoir.embedding_models m where m.status = 'active');
begin
  select * into v_counters from _memoir.session_counters where user_id = v_user and session_id = v_session;
  select coalesce(max((m.metadata ->> 'to')::integer) + 1, 0) into v_from from _memoir.memory_store m
  where m.user_id = v_user and m.session_id = v_session and m.is_object
    and m.type in ('conversation_phase', 'debugging_session');
  select coalesce(array_agg(i.turn_index order by i.turn_index), '{}'),
    coalesce(array_agg(e.embedding::vector order by i.turn_index), '{}')
  into v_asked, v_vectors from _memoir.search_items i
  join _memoir.embeddings e on e.user_id = v_user and e.model_id = v_model and e.item_no = i.item_no
  where i.user_id = v_user and i.session_id = v_session and i.kind = 't' and i.chunk = 0 and i.role = 'user'
    and not i.dead and i.turn_index >= v_from;
  -- A phase is over when three messages are of the next.
  v_starts := array(select v_asked[n] from unnest(_memoir.episode_starts(v_vectors)) n
    where n > 1 and (n < cardinality(v_asked) - 1 or p_session.status in ('closed', 'expired')) order by 1);
  foreach v_to in array v_starts
    || case when p_session.status in ('closed', 'expired') then array[v_counters.turn_count] else '{}' end loop
    select array_agg(h order by h.turn_index) into v_turns from _memoir.conversation_history h
    where h.user_id = v_user and h.session_id = v_session
      and h.recorded_at between v_counters.first_recorded_at and v_counters.last_recorded_at
      and h.turn_index >= v_from and h.turn_index < v_to;
    continue when v_turns is null or (select sum(t.token_count) from unnest(v_turns) t) < v_least;
    v_inside := array(select distinct s.item_id from _memoir.memory_sources s
      join _memoir.memory_store m on m.user_id = v_user and m.memory_id = s.item_id and m.is_object
        and m.state in ('active', 'superseded') and m.type not in ('conversation_phase', 'debugging_session')
      where s.user_id = v_user and s.item_kind = 'memory' and s.source_kind = 'turn'
        and s.source_id = any (array(select t.message_id from unnest(v_turns) t)));
    -- Something failed, and files were read or changed for it.
    v_debugging := exists (select from _memoir.memory_store m where m.user_id = v_user
        and m.memory_id = any (v_inside) and m.type = 'error_context')
      and exists (select from _memoir.memory_store m where m.user_id = v_user and m.memory_id = any (v_inside)
        and m.type in ('file_context', 'code_context'));
    v_id := _memoir.add_turns_object(p_session, case when v_debugging then 'debugging_session'
        else 'conversation_phase' end, format('turns %s–%s', v_from, v_to - 1), v_turns,
      jsonb_build_object('from', v_from, 'to', v_to - 1), v_tokenizer, 'phases', v_now);
    insert into _memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
    select v_user, v_id, case when v_debugging and m.type = 'file_context' then 'references'
      else 'parent_of' end::_memoir.relation, m.memory_id, 'object', v_now
    from _memoir.memory_store m where m.user_id = v_user and m.memory_id = any (v_inside) and v_id is not null
    on conflict do nothing;
    v_made := v_made + (v_id is not null)::integer;
    v_from := v_to;
  end loop;
  return v_made;
end $$;

create or replace function _memoir.step_phases(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_work _memoir.work_items; v_session _memoir.sessions; v_seen integer := 0; v_made integer := 0; v_done integer := 0;
begin
  for v_work in select * from _memoir.work_items w where w.kind = 'phases' and w.state = 'ready'
      and w.run_after <= memoir.now()
    order by w.run_after, w.work_id limit p_limit for update skip locked loop
    v_seen := v_seen + 1;
    continue when not _memoir.lock_shortly(v_work.user_id);
    select * into v_session from _memoir.sessions s where s.user_id = v_work.user_id
      and s.session_id = v_work.dedup_key::uuid;
    if found then v_made := v_made + _memoir.add_phases(v_session); end if;
    delete from _memoir.work_items where work_id = v_work.work_id;
    v_done := v_done + 1;
  end loop;
  return jsonb_build_object('more', v_seen = p_limit and v_done > 0, 'sessions', v_done, 'phases', v_made);
end $$;
