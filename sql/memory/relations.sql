-- Edges along which recall takes what is at the other end with a match.
create or replace function _memoir.followed_relations()
returns _memoir.relation[] language sql immutable parallel safe as $$
  select '{depends_on,references,caused_by,elaborates,relates_to}'::_memoir.relation[]
$$;

create or replace function memoir.relate(p_user text, p_memory uuid, p_relation text, p_other uuid,
  p_weight real default 1, p_metadata jsonb default '{}')
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_one _memoir.memory_store := _memoir.memory(v_caller, p_memory);
  v_other _memoir.memory_store := _memoir.memory(v_caller, p_other);
  v_actor _memoir.actor := _memoir.actor(v_caller, null, 'person'); v_now timestamptz := memoir.now();
begin
  if p_relation is null or p_relation <> all (enum_range(null::_memoir.relation)::text[]) then
    perform _memoir.fail('PM014', format('unknown relation %s', _memoir.shown(p_relation)),
      array_to_string(enum_range(null::_memoir.relation), ', '));
  end if;
  if p_memory = p_other then perform _memoir.fail('PM014', format('memory %s can''t be related to itself', p_memory));
  end if;
  perform _memoir.check_range('weight', p_weight, 0, 1, true);
  perform _memoir.refuse_value(jsonb_typeof(coalesce(p_metadata, 'null')) <> 'object', 'metadata', p_metadata,
    'a JSON object');
  perform _memoir.check_size('metadata', p_metadata::text, 65536);
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  if p_relation = 'supersedes' then
    select * into v_one from _memoir.memory_store where user_id = v_caller.user_id and memory_id = p_memory;
    select * into v_other from _memoir.memory_store where user_id = v_caller.user_id and memory_id = p_other;
    if v_actor <> 'person' and _memoir.authority(v_other.actor, v_other.provenance, v_other.trust, false)
      > _memoir.authority(v_one.actor, v_one.provenance, v_one.trust, false) then
      perform _memoir.fail('PM001', format('memory %s has a higher authority than %s', p_other, p_memory),
        'a person may say so, or correct it');
    end if;
    if v_one.state <> 'active' then
      perform _memoir.fail('PM014', format('memory %s is %s and supersedes nothing', p_memory, v_one.state));
    end if;
    if v_other.state = 'active' then
      perform _memoir.note_judgement(v_caller.user_id, p_memory, p_other, 'person', 'contradiction', null, null,
        'superseded', p_memory, format('related by %s', v_caller.login), v_now);
      perform _memoir.set_state(v_caller.user_id, array[p_other], 'superseded', v_caller.login, 'related', p_memory,
        v_now, v_actor);
      perform _memoir.drop_recalled(v_caller.user_id, array[p_other::text]);
    end if;
  end if;
  insert into _memoir.memory_relationships (user_id, source_id, relation, target_id, weight, made_by, metadata,
    recorded_at)
  values (v_caller.user_id, p_memory, p_relation::_memoir.relation, p_other, p_weight, v_caller.login, p_metadata,
    v_now)
  on conflict (user_id, source_id, relation, target_id) do nothing;
  if found then
    update _memoir.user_counters set related = true where user_id = v_caller.user_id and not related
      and p_relation::_memoir.relation = any (_memoir.followed_relations());
    return true;
  end if;
  update _memoir.memory_relationships set weight = p_weight, metadata = p_metadata
  where user_id = v_caller.user_id and source_id = p_memory and relation = p_relation::_memoir.relation
    and target_id = p_other;
  return false;
end $$;
comment on function memoir.relate(text, uuid, text, uuid, real, jsonb) is
  'Says what one memory is to another: supersedes (which makes it so: the other leaves recall), relates_to,
contradicts, elaborates, caused_by, parent_of, references, depends_on; weight from 0 to 1. True if the edge is new,
else its weight and metadata are replaced. Who does not act as a person supersedes nothing of higher authority. Writes
memory_relationships, memory_store, user_counters. Raises PM001, PM004, PM014.';

create or replace function memoir.validate(p_user text, p_memory uuid, p_confidence real default null,
  p_reason text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_user uuid := v_caller.user_id; v_seen _memoir.memory_store := _memoir.memory(v_caller, p_memory);
  v_now timestamptz := memoir.now();
  v_actor _memoir.actor := _memoir.actor(v_caller, null, 'person'); v_memory _memoir.memory_store;
  v_other _memoir.memory_store; v_id uuid; v_settled record; v_superseded uuid[] := '{}';
begin
  perform _memoir.fail('PM001', format('login %s acts as %s and may not validate', quote_ident(v_caller.login),
    v_actor), 'only a person does') where v_actor <> 'person';
  perform _memoir.check_range('confidence', p_confidence, 0, 1), _memoir.check_size('reason', p_reason, 10000);
  perform from _memoir.user_counters where user_id = v_user for update;
  v_memory := _memoir.current(v_seen);
  if v_memory.state <> 'active' or v_memory.expires_at <= v_now then
    perform _memoir.fail('PM014', format('memory %s is %s and can''t be validated', v_memory.memory_id,
      case when v_memory.state = 'active' then 'expired' else v_memory.state::text end), 'remember it anew');
  end if;
  v_id := _memoir.make_global(v_user, v_memory.memory_id, v_caller.login, v_now);
  update _memoir.memory_store set
    provenance = case when provenance in ('user_stated', 'correction', 'instruction', 'preference') then provenance
      else 'user_stated' end, actor = 'person',
    tier = greatest(tier, 3), validated_at = v_now, expires_at = null,
      confidence = coalesce(p_confidence, greatest(confidence, 0.9)),
    metadata = metadata || jsonb_build_object('validated_by', v_caller.login, 'validated_reason', p_reason)
  where user_id = v_user and memory_id = v_id;
  update _memoir.memory_store set trust = _memoir.trust('person', provenance) where user_id = v_user
    and memory_id = v_id;
  insert into _memoir.memory_stats (user_id, memory_id, reinforced_at) values (v_user, v_id, v_now)
  on conflict (user_id, memory_id) do update set reinforced_at = v_now;
  -- Conflicts that were open are decided by it.
  for v_other in select distinct on (m.memory_id) m.* from _memoir.memory_relationships e
    join _memoir.memory_store m on m.user_id = v_user and m.memory_id in (e.source_id, e.target_id)
      and m.memory_id <> v_id and m.state = 'active'
    where e.user_id = v_user and e.relation = 'contradicts' and (v_id = e.source_id or v_id = e.target_id)
    order by m.memory_id
  loop
    perform _memoir.note_judgement(v_user, v_id, v_other.memory_id, 'person', 'contradiction', null, null, 'superseded',
      v_id, 'validated', v_now);
    perform _memoir.supersede(v_user, array[v_other.memory_id], v_id, v_caller.login, 'validated', v_now, v_actor);
    v_superseded := v_superseded || v_other.memory_id;
  end loop;
  v_settled := _memoir.settle_slot(v_user, v_id, null, v_caller.login);
  perform _memoir.audit('validate', jsonb_build_object('memory_id', v_id, 'reason', p_reason), v_user);
  return jsonb_build_object('memory_id', v_id, 'superseded', to_jsonb(v_superseded || v_settled.superseded));
end $$;
comment on function memoir.validate(text, uuid, real, text) is
  'A person stands by a memory: it becomes their word, global, at least semantic, without an end, and prevails over
what it contradicts. Only a caller acting as a person. Returns {"memory_id", "superseded"}: the memory that stands for
it, and what it superseded. Writes memory_store, memory_stats, audit_log. Raises PM001, PM004, PM014.';

create or replace function memoir.pin(p_user text, p_session text, p_memory uuid, p_turns integer default null,
  p_reason text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_memory _memoir.memory_store := _memoir.memory(v_caller, p_memory); v_until integer;
begin
  perform _memoir.check_range('turns', p_turns, 1, 1000000), _memoir.check_size('reason', p_reason, 10000);
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  v_memory := _memoir.current(v_memory);
  if v_memory.state <> 'active' then
    perform _memoir.fail('PM014', format('memory %s is %s and can''t be pinned', p_memory, v_memory.state));
  end if;
  if v_memory.local_to is not null and not exists (select from _memoir.lineage(v_session) l
    where l.session_id = v_memory.local_to) then
    perform _memoir.fail('PM014', format('memory %s belongs to another session than %s', p_memory,
      _memoir.shown(p_session)));
  end if;
  v_until := (select c.turn_count + p_turns from _memoir.session_counters c where c.user_id = v_caller.user_id
    and c.session_id = v_session.session_id);
  insert into _memoir.session_objects (user_id, session_id, memory_id, pinned_until_turn, pin_reason)
  values (v_caller.user_id, v_session.session_id, v_memory.memory_id, coalesce(v_until, 2147483647), p_reason)
  on conflict (user_id, session_id, memory_id) do update set pinned_until_turn = excluded.pinned_until_turn,
    pin_reason = excluded.pin_reason;
  return jsonb_build_object('memory_id', v_memory.memory_id, 'session', p_session, 'until_turn', v_until);
end $$;
comment on function memoir.pin(text, text, uuid, integer, text) is
  'Pins a memory in a session, for its next p_turns turns or, null, until unpin. Pinning again replaces the former end.
A superseded memory stands for its successor. Returns {"memory_id", "session", "until_turn"}; until_turn null: for
good. Writes session_objects. Raises PM001, PM003, PM004, PM014.';

create or replace function memoir.unpin(p_user text, p_session text, p_memory uuid)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_memory _memoir.memory_store := _memoir.memory(v_caller, p_memory);
begin
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  update _memoir.session_objects set pinned_until_turn = null, pin_reason = null
  where user_id = v_caller.user_id and session_id = v_session.session_id
    and memory_id in (v_memory.memory_id, (_memoir.current(v_memory)).memory_id) and pinned_until_turn is not null;
  return found;
end $$;
comment on function memoir.unpin(text, text, uuid) is
  'Ends a memory''s pin in a session; true if there was one. Writes session_objects. Raises PM001, PM003, PM004.';
