-- Passages of large outputs that a question finds. The index knows of them the ends and the most distinctive parts, so
-- the stored texts are read.

-- The best passages for a question in the large outputs of a session, and in the objects whose name, file or type it
-- has, best first, at most p_most: which object, in which turn, from which line to which, the share of the question's
-- words that a passage holds (0 to 1, of a named object 1 more), its text. The newest outputs are read, 64 MB at most.
-- All of it is within p_clearance.
create or replace function _memoir.large_passages(p_user_id uuid, p_session_id uuid, p_question text, p_most integer,
  p_clearance _memoir.sensitivity)
returns table (memory_id uuid, turn_index integer, first_line integer, last_line integer, score float8, body text)
language plpgsql stable as $$
declare
  v_terms text[]; v_object record; v_text text; v_read bigint := 0; v_found jsonb := '[]';
begin
  -- The question's words but the commonest, cut so that their forms are found too.
  v_terms := array(select distinct case when w ~ '^[a-z]{7,}$' then left(w, greatest(5, length(w) - 3))
      when w ~ '^[a-z]{4,6}s$' then left(w, -1) else w end
    from regexp_split_to_table(lower(left(p_question, 4000)), '[^[:alnum:]_./:@+-]+') x,
      lateral (select btrim(x, './:@+-') as w) y
    where w <> '' and w <> all (_memoir.list_passage_stops())
      and (length(w) > 2 or w ~ '\d' or w ~ '[^\u0001-\u007f]'));
  if v_terms = '{}' then return; end if;
  for v_object in select m.memory_id, max(p.turn_index) as turn, m.content, n.named from _memoir.session_objects o
    join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = o.memory_id and m.is_object
      and m.state in ('active', 'superseded') and m.sensitivity <= p_clearance
    join _memoir.object_places p on p.user_id = p_user_id and p.memory_id = m.memory_id
    cross join lateral (select exists (select from unnest(array[_memoir.object_name(m.memory_id),
        substring(m.source_key from '[^/\s]+[.][^/\s]+$')]) w where strpos(p_question, w) > 0)
      or m.state = 'active' and m.type = any (regexp_split_to_array(p_question, '[^a-z_]+')) as named) n
    where o.user_id = p_user_id and o.session_id = p_session_id
      and (n.named or o.tokens > _memoir.end_size() / 4)
    group by m.memory_id, m.content, n.named order by max(p.turn_index) desc loop
    v_text := _memoir.known_text(p_user_id, v_object.memory_id);
    continue when not v_object.named and _memoir.is_large('tool', v_text) is not true;
    v_found := v_found || coalesce((select jsonb_agg(jsonb_build_array(v_object.memory_id, v_object.turn, q.first_line,
        q.last_line, q.score + v_object.named::integer, q.body)) from _memoir.passages_in(v_text, v_terms, p_most) q),
      case when v_object.named then jsonb_build_array(jsonb_build_array(v_object.memory_id, v_object.turn, 1, 1, 1,
        v_object.content)) else '[]' end);
    v_read := v_read + coalesce(octet_length(v_text), 0);
    exit when v_read > 64 * 1048576;
  end loop;
  return query
  select (f ->> 0)::uuid, (f ->> 1)::integer, (f ->> 2)::integer, (f ->> 3)::integer, (f ->> 4)::float8, f ->> 5
  from jsonb_array_elements(v_found) f order by (f ->> 4)::float8 desc, (f ->> 1)::integer desc limit p_most;
end $$;

-- Faults: what a model needed and was not shown. Each is a row; what was needed again is pinned for a while, twice as
-- long the second time, so that the ladder does not take it away at once.

-- An object of a session as a model names it: its id, or its first six characters or more. PM004: none, or several.
create or replace function _memoir.named_object(p_caller _memoir.caller, p_session _memoir.sessions, p_name text)
returns _memoir.memory_store language plpgsql stable as $$
declare
  v_name text := lower(btrim(p_name)); v_found _memoir.memory_store[];
begin
  if v_name ~ '^[0-9a-f]{6,8}$|^[0-9a-f]{8}-[0-9a-f-]{0,27}$' then
    v_found := array(select m from _memoir.lineage(p_session) l
      join _memoir.session_objects o on o.user_id = p_caller.user_id and o.session_id = l.session_id
      join _memoir.memory_store m on m.user_id = o.user_id and m.memory_id = o.memory_id
      where m.is_object and left(m.memory_id::text, length(v_name)) = v_name and m.sensitivity <= p_caller.clearance
        and m.sensitivity < 'secret' and m.state in ('active', 'superseded') group by m limit 2);
  end if;
  if coalesce(cardinality(v_found), 0) <> 1 then
    perform _memoir.fail('PM004', format('session %s has %s object %s', _memoir.shown(p_session.external_id),
      case when cardinality(v_found) > 1 then 'more than one' else 'no' end, _memoir.shown(p_name)),
      'the forms of objects say their names, such as 3f2a91bc');
  end if;
  return v_found[1];
end $$;

-- Writes down a fault; false where the object was shown whole. A pin lasts p_pin turns, twice as long after a restore,
-- or a page fault at most that long ago. p_asked: "question", "answer", "answer_tokens", "items" (else the object and
-- its turns), "clearance" of what was asked.
create or replace function _memoir.note_fault(p_user_id uuid, p_session_id uuid, p_memory _memoir.memory_store,
  p_fault text, p_turn integer, p_pin integer, p_asked jsonb default '{}', p_started timestamptz default null)
returns boolean language plpgsql as $$
declare
  v_fidelity smallint; v_tokens integer; v_before bigint; v_at timestamptz := memoir.now();
begin
  select max(f.fidelity) into v_fidelity from _memoir.shown_forms f where f.user_id = p_user_id
    and f.session_id = p_session_id and f.memory_id = p_memory.memory_id;
  if v_fidelity is null and exists (select from _memoir.object_places p
      join _memoir.session_windows w on w.user_id = p_user_id and w.session_id = p_session_id
      where p.user_id = p_user_id and p.memory_id = p_memory.memory_id and p.turn_index <= w.lines_through) then
    v_fidelity := 4;
  end if;
  if v_fidelity is null and p_fault in ('page_fault', 'entropy_triggered') then return false; end if;
  select o.tokens into v_tokens from _memoir.session_objects o where o.user_id = p_user_id
    and o.session_id = p_memory.session_id and o.memory_id = p_memory.memory_id;
  select count(*) into v_before from _memoir.fault_history f where f.user_id = p_user_id
    and f.session_id = p_session_id and f.memory_id = p_memory.memory_id
    and (f.fault_type = 'full_restore' or f.fault_type = 'page_fault' and f.turn_number >= p_turn - 2 * p_pin);
  perform _memoir.ensure_month(p_user_id, v_at);
  insert into _memoir.fault_history (user_id, fault_id, recorded_at, session_id, memory_id, type, fault_type,
    turn_number, fidelity, content_hash, question, answer, items, clearance, answer_tokens, avoided_tokens,
    latency_ms)
  values (p_user_id, gen_random_uuid(), v_at, p_session_id, p_memory.memory_id, p_memory.type, p_fault, p_turn,
    coalesce(v_fidelity, 0), p_memory.content_hash, left(p_asked ->> 'question', 1000),
    left(p_asked ->> 'answer', 4000), coalesce(p_asked -> 'items', (select jsonb_agg(i)
      from (select p_memory.memory_id as i union select s.source_id from _memoir.memory_sources s
        where s.user_id = p_user_id and s.item_kind = 'memory' and s.item_id = p_memory.memory_id) x)),
    coalesce(p_asked ->> 'clearance', 'normal')::_memoir.sensitivity, (p_asked ->> 'answer_tokens')::integer,
    case when p_fault = 'micro_fault' then greatest(0, v_tokens - (p_asked ->> 'answer_tokens')::integer) end,
    (extract(epoch from clock_timestamp() - p_started) * 1000)::integer);
  if p_pin > 0 and (p_fault <> 'page_fault' or v_fidelity < 4) then  -- no pin would have held a line so long
    insert into _memoir.session_objects (user_id, session_id, memory_id, tokens, pinned_until_turn, pin_reason)
    values (p_user_id, p_session_id, p_memory.memory_id, coalesce(v_tokens, 0),
      p_turn + p_pin * case when v_before > 0 then 2 else 1 end, p_fault)
    on conflict (user_id, session_id, memory_id) do update set fidelity_ceiling = 0,
      pinned_until_turn = greatest(session_objects.pinned_until_turn, excluded.pinned_until_turn),
      pin_reason = excluded.pin_reason;
  end if;
  return v_fidelity > 0;
end $$;

-- An object that need not be shown any more, from the next moment on.
create or replace function _memoir.release_object(p_user_id uuid, p_session_id uuid, p_memory _memoir.memory_store,
  p_reason text)
returns void language sql as $$
  insert into _memoir.session_objects (user_id, session_id, memory_id, fidelity_ceiling, pin_reason)
  values (p_user_id, p_session_id, p_memory.memory_id, 3, p_reason)
  on conflict (user_id, session_id, memory_id) do update set fidelity_ceiling = 3, pinned_until_turn = null,
    pin_reason = excluded.pin_reason
$$;

-- Entropy: where a model was unsure of what it said, it may have lacked what was shown shorter. That is a fault like
-- others, and what it lacked is raised at the next moment; nothing is injected into what it is saying.

-- Doubted: what the model was most unsure of, more than 2.2 nats on the average of twenty tokens. At fault are objects
-- shown shorter than they are whose forms lack what was said, or whose name it says, the best three.
create or replace function _memoir.append_doubted(inout p_state _memoir.append_state, p_messages jsonb)
language plpgsql as $$
declare
  v_message _memoir.message; v_said text; v_lacked _memoir.memory_store[];
begin
  for i in 1 .. cardinality(p_state.messages) loop
    v_message := p_state.messages[i];
    continue when not p_messages -> (i - 1) ? 'logprobs' or v_message.sensitivity = 'secret'
      or (v_message.extra ->> 'entropy')::float8 > 2.2 is not true;
    v_said := (_memoir.doubt(format('messages[%s].logprobs', i - 1), p_messages -> (i - 1) -> 'logprobs')).said;
    -- The turn has what was said; a copy would outlive it.
    v_lacked := array(select m from (select f.memory_id, max(f.fidelity) as fidelity from _memoir.shown_forms f
        where f.user_id = p_state.user_id and f.session_id = p_state.session_id group by 1) f
      join _memoir.memory_store m on m.user_id = p_state.user_id and m.memory_id = f.memory_id and m.state = 'active'
        and m.sensitivity < 'secret'
      cross join lateral (select coalesce(strpos(v_said, nullif(regexp_replace(m.source_key, '^.*/', ''), '')) > 0,
          false)::integer * 3 + (select count(distinct l) from _memoir.memory_renditions r,
            jsonb_array_elements_text(r.losses) l
          where r.user_id = p_state.user_id and r.memory_id = f.memory_id and r.fidelity = f.fidelity
            and length(l) >= 4 and strpos(v_said, l) > 0) as hits) x
      where x.hits > 0 order by x.hits desc, m.recorded_at desc, m.memory_id limit 3);
    perform _memoir.note_fault(p_state.user_id, p_state.session_id, m, 'entropy_triggered', p_state.first_turn + i - 1,
      0) from unnest(v_lacked) m;
  end loop;
end $$;
