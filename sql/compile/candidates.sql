-- Returns what a recall shows whatever the query, and how much of its memories the ladder lets a session show: what it
-- and its branch points before it pin, and working notes (null on a standby, which has none).
create or replace function _memoir.pins(v _memoir.compile_state, p_scope _memoir.search_scope)
returns _memoir.pins language plpgsql stable as $$
declare
  v_pins _memoir.pins; v_features text[] := (v.user_counters).features;
begin
  v_pins.pinned := '{}';
  v_pins.ceilings := '{}';
  if not pg_is_in_recovery() then
    v_pins.working := '{}';
    if (v.session).session_id is not null and 'working' = any (v_features) then
      v_pins.working := array(select w.content from _memoir.memory_store_working w
        where w.user_id = v.user_id and w.session_id = v.session_id and (w.expires_at is null or w.expires_at > v.at)
          and w.sensitivity <= p_scope.clearance order by w.recorded_at, w.key);
    end if;
  end if;
  if p_scope.as_of is not null then return v_pins; end if;
  if 'pins' = any (v_features) then
    v_pins.pinned := array(select h.message_id from _memoir.pinned_turns(v.user_id, p_scope.hidden_sessions[1]) p
      join _memoir.session_counters c on c.user_id = v.user_id and c.session_id = p.session_id
      join _memoir.conversation_history h on h.user_id = v.user_id and h.session_id = p.session_id
        and h.recorded_at between c.first_recorded_at and c.last_recorded_at
        and h.turn_index between p.from_turn and p.to_turn
      order by h.turn_index, h.message_id);
  end if;
  if (v.user_counters).memories > 0 and 'ceilings' = any (v_features) then
    select v_pins.pinned || coalesce(array_agg(o.memory_id order by o.memory_id) filter (where o.pinned), '{}'),
      coalesce(jsonb_object_agg(o.memory_id, o.ceiling) filter (where o.ceiling > 0 and not o.pinned), '{}')
    into v_pins.pinned, v_pins.ceilings
    from (select o.memory_id, min(o.fidelity_ceiling) as ceiling, coalesce(bool_or(o.pinned_until_turn > coalesce(
            (select c.turn_count from _memoir.session_counters c where c.user_id = v.user_id
              and c.session_id = o.session_id), 0)), false) as pinned
          from _memoir.session_objects o
          where o.user_id = v.user_id and o.session_id = any (p_scope.local_sessions)
            and (o.fidelity_ceiling > 0 or o.pinned_until_turn is not null)
          group by o.memory_id) o;
  end if;
  return v_pins;
end $$;

create or replace function _memoir.signal_names()
returns text[] language sql stable as $$
  select array(select a.attname from pg_attribute a where a.attrelid = '_memoir.signals'::regclass and a.attnum > 0
    order by a.attnum)
$$;

-- Those that a ranked item carries, since nothing else in the ledger tells them.
create or replace function _memoir.ledger_signals()
returns text[] language sql immutable as $$
  select '{words_before, vector_after, cover, speaker, date, match_back, last}'::text[]
$$;
