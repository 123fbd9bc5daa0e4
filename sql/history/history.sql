-- History is append-only for everybody, its owner included. Only an erase or archive deletes, and those announce
-- themselves with an audit row of the same transaction first.
create or replace function _memoir.guard_history()
returns trigger language plpgsql set search_path from current as $$
begin
  if tg_op = 'DELETE' and exists (select from _memoir.audit_log
      where xact_id = pg_current_xact_id_if_assigned() and action in ('erase', 'archive')) then
    return old;
  end if;
  raise exception using errcode = 'PM024', message = format('conversation history is append-only: %s refused',
    lower(tg_op)),
    hint = 'forget, compact or erase instead';
end $$;

-- Which stretches of which sessions make up a session's history: itself, and what it shares with the sessions it
-- branched from. since, until: when the turns of that session were recorded. A statement that reads turns is bounded by
-- them, so that it opens no other months.
create or replace function _memoir.lineage(p_session _memoir.sessions)
returns table (session_id uuid, from_turn integer, to_turn integer, since timestamptz, until timestamptz)
language plpgsql stable as $$
declare
  v_session _memoir.sessions := p_session; v_to integer := 2147483647; v_depth integer := 0;
begin
  loop
    session_id := v_session.session_id;
    from_turn := case when v_session.parent_turn is null then 0 else v_session.parent_turn end;
    to_turn := v_to - 1;
    if from_turn <= to_turn then
      select c.first_recorded_at, c.last_recorded_at into since, until from _memoir.session_counters c
      where c.user_id = v_session.user_id and c.session_id = v_session.session_id;
      return next;
    end if;
    exit when v_session.parent_turn is null or v_depth >= 64;
    v_to := least(v_to, v_session.parent_turn);
    v_depth := v_depth + 1;
    select * into v_session from _memoir.sessions s
    where s.user_id = v_session.user_id and s.session_id = v_session.parent_session_id;
    exit when not found;
  end loop;
end $$;

-- Which turns of a session, and of those it branched from, are in an archive; null: none, which is the rule.
create or replace function _memoir.archived_ranges(p_session _memoir.sessions)
returns jsonb language plpgsql stable as $$
begin
  return (select jsonb_agg(jsonb_build_object('from_turn', greatest(a.from_turn, l.from_turn),
      'to_turn', least(a.to_turn, l.to_turn), 'month', to_char(r.month, 'YYYY-MM')) order by a.from_turn)
    from _memoir.lineage(p_session) l
    join _memoir.archived_turns a on a.user_id = p_session.user_id and a.session_id = l.session_id
      and a.from_turn <= l.to_turn and a.to_turn >= l.from_turn
    join _memoir.archives r on r.archive_id = a.archive_id);
end $$;

create or replace function _memoir.archived_note(p_ranges jsonb, p_from integer, p_to integer)
returns text language sql immutable as $$
  select 'archived: ' || string_agg(format('turns %s to %s (%s)', r ->> 'from_turn', r ->> 'to_turn', r ->> 'month'),
    ', ' order by (r ->> 'from_turn')::integer)
  from jsonb_array_elements(p_ranges) r
  where (r ->> 'from_turn')::integer <= p_to and (r ->> 'to_turn')::integer >= p_from
$$;

create or replace function _memoir.turn(p_user_id uuid, p_session_id uuid, p_turn integer)
returns _memoir.conversation_history language plpgsql stable as $$
declare
  v_turn _memoir.conversation_history; v_from timestamptz; v_to timestamptz;
begin
  select first_recorded_at, last_recorded_at into v_from, v_to
  from _memoir.session_counters where user_id = p_user_id and session_id = p_session_id;
  select * into v_turn from _memoir.conversation_history
  where user_id = p_user_id and session_id = p_session_id and turn_index = p_turn and recorded_at between v_from
    and v_to;
  return v_turn;
end $$;

-- The turn of a session wherever it lies: in it, or in one that it branched from.
create or replace function _memoir.turn_seen(p_session _memoir.sessions, p_turn integer)
returns _memoir.conversation_history language plpgsql stable as $$
declare
  v_owner uuid := (select l.session_id from _memoir.lineage(p_session) l where p_turn between l.from_turn
    and l.to_turn);
begin
  return _memoir.turn(p_session.user_id, v_owner, p_turn);
end $$;

create or replace function _memoir.known_turn(p_session _memoir.sessions, p_turn integer)
returns _memoir.conversation_history language plpgsql stable as $$
declare
  v_turn _memoir.conversation_history := _memoir.turn_seen(p_session, p_turn);
begin
  if v_turn.message_id is null then
    perform _memoir.fail('PM014', format('turn %s does not exist in session %s', coalesce(p_turn::text, 'null'),
      _memoir.shown(p_session.external_id)));
  end if;
  return v_turn;
end $$;

-- The session's tokens before a turn, or where that was erased before the next one that is there; null behind the last.
create or replace function _memoir.tokens_before(p_session _memoir.sessions, p_turn integer)
returns bigint language plpgsql stable as $$
declare
  v_part record; v_tokens bigint;
begin
  for v_part in select * from _memoir.lineage(p_session) l where l.to_turn >= p_turn order by l.from_turn loop
    select h.tokens_before into v_tokens from _memoir.conversation_history h
    where h.user_id = p_session.user_id and h.session_id = v_part.session_id
      and h.recorded_at between v_part.since and v_part.until
      and h.turn_index between greatest(p_turn, v_part.from_turn) and v_part.to_turn order by h.turn_index limit 1;
    exit when found;
  end loop;
  return v_tokens;
end $$;

-- The marks of a session's turns, {"turn": "sensitivity", "retracted": [turns]}; mostly there are none: null.
create or replace function _memoir.marks(p_user_id uuid, p_session_id uuid)
returns jsonb language plpgsql stable as $$
begin
  return (select nullif(jsonb_strip_nulls(
      coalesce(jsonb_object_agg(m.turn_index, m.mark order by m.recorded_at) filter (where m.mark <> 'retracted'), '{}')
      || jsonb_build_object('retracted', jsonb_agg(m.turn_index) filter (where m.mark = 'retracted'))), '{}')
    from _memoir.turn_marks m
    where m.user_id = p_user_id and m.session_id = p_session_id and m.mark not in ('erased', 'annotated'));
end $$;

-- Returns what was said about a session's turns after they were written, {"turn": {key: value}}, or null.
create or replace function _memoir.annotations(p_user_id uuid, p_session_id uuid)
returns jsonb language plpgsql stable as $$
begin
  return (select jsonb_object_agg(a.turn_index, a.annotations)
    from (select n.turn_index, jsonb_object_agg(n.key, n.value) as annotations
      from (select distinct on (m.turn_index, e.key) m.turn_index, e.key, e.value
        from _memoir.turn_marks m, jsonb_each(m.annotations) e
        where m.user_id = p_user_id and m.session_id = p_session_id and m.mark = 'annotated'
        order by m.turn_index, e.key, m.recorded_at desc) n
      where n.value <> 'null' group by n.turn_index) a);
end $$;

create or replace function _memoir.is_retracted(p_turn integer, p_marks jsonb)
returns boolean language sql immutable as $$ select coalesce(p_marks -> 'retracted' @> to_jsonb(p_turn), false) $$;

create or replace function _memoir.sensitivity_now(p_stored _memoir.sensitivity, p_turn integer, p_marks jsonb)
returns _memoir.sensitivity language sql immutable as $$
  select coalesce((p_marks ->> p_turn::text)::_memoir.sensitivity, p_stored) $$;

-- The exclusions of a turn that count: spans that are out of recall, that a later turn changed, or that are in doubt.
create or replace function _memoir.exclusions_of(p_user_id uuid, p_session_id uuid, p_turn integer)
returns setof _memoir.recall_exclusions language sql stable as $$
  select * from _memoir.recall_exclusions
  where user_id = p_user_id and session_id = p_session_id and turn_index = p_turn and lifted_at is null
$$;

create or replace function _memoir.spans_overlap(p_start integer, p_length integer, p_other integer,
  p_other_length integer)
returns boolean language sql immutable as $$
  select p_start < p_other + p_other_length and p_other < p_start + p_length
$$;

create or replace function _memoir.is_excluded(p_item _memoir.search_items)
returns boolean language plpgsql stable as $$
begin
  return exists (select from _memoir.exclusions_of(p_item.user_id, p_item.session_id, p_item.turn_index) x
    where not x.changed and (x.span_start is null
      or _memoir.spans_overlap(x.span_start, x.span_length, p_item.span_start, p_item.span_length)));
end $$;

-- The ranges of pinned turns of a session and of the sessions it branched from, each with the session it lies in. A
-- compaction must not cover them. A pin that ends with a turn counts while the session has fewer.
create or replace function _memoir.pinned_turns(p_user_id uuid, p_session_id uuid)
returns table (from_turn integer, to_turn integer, session_id uuid)
language plpgsql stable as $$
declare
  v_session _memoir.sessions; v_turns integer;
begin
  select * into v_session from _memoir.sessions s where s.user_id = p_user_id and s.session_id = p_session_id;
  select c.turn_count into v_turns from _memoir.session_counters c where c.user_id = p_user_id
    and c.session_id = p_session_id;
  return query
  select p.from_turn, least(p.to_turn, l.to_turn), l.session_id
  from _memoir.lineage(v_session) l
  join _memoir.turn_pins p on p.user_id = p_user_id and p.session_id = l.session_id
  where (p.until_turn is null or p.until_turn > v_turns) and p.from_turn <= l.to_turn
  order by 1, 2;
end $$;
