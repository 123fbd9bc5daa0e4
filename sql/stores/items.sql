-- Items: what a framework puts into a session, kept as it came (calls, results, reasoning, events). What an item says
-- is told by turns as well, so that it is compiled, recalled and learnt from. What is taken back (pop, clear) is said
-- beside both: nothing of a session's past is ever changed.

-- The session, opened where it is new, and its counters locked: one writer of a session at a time.
create or replace function _memoir.items_of(p_caller _memoir.caller, p_user text, p_session text)
returns _memoir.sessions language plpgsql as $$
declare
  v_id uuid := _memoir.session_id(p_caller.user_id, p_session); v_session _memoir.sessions;
begin
  perform _memoir.check_name('session', p_session, 500);
  if not exists (select from _memoir.sessions s where s.user_id = p_caller.user_id and s.session_id = v_id) then
    perform _memoir.open_session(p_caller, p_user, p_session, null, null, null, null, null, '{}', '{}');
  end if;
  v_session := _memoir.session(p_caller, p_session);
  perform from _memoir.session_counters c where c.user_id = p_caller.user_id and c.session_id = v_id for update;
  return v_session;
end $$;

create or replace function memoir.append_items(p_user text, p_session text, p_items jsonb,
  p_documents jsonb default null, p_after_item integer default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_session _memoir.sessions; v_config jsonb;
  v_entry record; v_first integer; v_messages jsonb; v_turn integer; v_at timestamptz := memoir.now(); v_where text;
begin
  perform _memoir.refuse_value(jsonb_typeof(p_items) is distinct from 'array' or jsonb_array_length(p_items) = 0,
    'items', p_items, 'a list of at least one item');
  v_session := _memoir.items_of(v_caller, p_user, p_session);
  v_config := _memoir.config(v_caller.user_id, v_session.settings);
  if p_after_item < (select l.item_no from memoir.list_items(p_user, p_session, 1) l) then
    perform _memoir.fail('PM007', format('session %s has items after %s by another writer',
      _memoir.shown(p_session), p_after_item), 'read them again');
  end if;
  v_messages := (select coalesce(jsonb_agg(m order by o, n), '[]')
    from jsonb_array_elements(p_items) with ordinality x(e, o),
    jsonb_array_elements(case when jsonb_typeof(e -> 'messages') = 'array' then e -> 'messages' else '[]' end)
      with ordinality y(m, n));
  if v_messages <> '[]' then
    v_turn := (_memoir.append(v_caller, p_user, p_session, v_messages, null, null, null, '{}', false)
      ->> 'from_turn')::integer;
  end if;
  v_first := (select coalesce(max(i.item_no), -1) + 1 from _memoir.session_items i where i.user_id = v_caller.user_id
    and i.session_id = v_session.session_id);
  for v_entry in select e -> 'item' as item, e ->> 'part_of' as part_of, o - 1 as place,
      case when jsonb_typeof(e -> 'messages') = 'array' then jsonb_array_length(e -> 'messages') else 0 end as turns
    from jsonb_array_elements(p_items) with ordinality x(e, o) order by o
  loop
    v_where := format('items[%s].item', v_entry.place);
    perform _memoir.refuse_value(coalesce(jsonb_typeof(v_entry.item), 'null') <> 'object', v_where, v_entry.item,
      'a JSON object');
    perform _memoir.check_size(v_where, v_entry.item::text, (v_config ->> 'text_bytes_max')::integer),
      _memoir.check_short('part_of', v_entry.part_of, 200);
    insert into _memoir.session_items (user_id, session_id, item_no, item, part_of, turn_index, turns, sensitivity,
      recorded_at)
    values (v_caller.user_id, v_session.session_id, v_first + v_entry.place, v_entry.item, v_entry.part_of,
      case when v_entry.turns > 0 then v_turn end, v_entry.turns,
      case when _memoir.detected(v_config, v_entry.item::text) = '{}' then 'normal'
        else 'secret' end::_memoir.sensitivity, v_at);
    if v_entry.turns > 0 then  -- what waited for it is told by its turns
      update _memoir.session_items i set turn_index = v_turn, turns = v_entry.turns
      where i.user_id = v_caller.user_id and i.session_id = v_session.session_id and i.part_of = v_entry.part_of
        and i.turn_index is null and i.retracted_at is null;
      v_turn := v_turn + v_entry.turns;
    end if;
  end loop;
  if p_documents is not null then perform memoir.put_documents(p_user, p_documents); end if;
  return jsonb_build_object('from_item', v_first, 'items', jsonb_array_length(p_items),
    'turns', jsonb_array_length(v_messages));
end $$;
comment on function memoir.append_items(text, text, jsonb, jsonb, integer) is
  'Appends to a session items of a framework as they came, all or nothing: [{"item": {...}, "messages": [...],
"part_of": "call_1"}]. "messages": what the item says, as chat messages for persist_turn, [] for what says nothing;
those of a tool call come with its last result, and "part_of" ties what they are made of. p_documents: documents of the
user that go with them, as put_documents takes them. p_after_item: the last item_no of list_items when you read it, -1
for none; if there are later ones by now, nothing is written and PM007 raised. Opens the session when it is new.
Returns {"from_item", "items", "turns"}. Writes session_items, documents and what persist_turn writes. Raises PM001,
PM005, PM007, PM010 to PM014.';

create or replace function memoir.list_items(p_user text, p_session text, p_limit integer default null,
  p_with_retracted boolean default false)
returns table (item_no integer, item jsonb, part_of text, turn_index integer, recorded_at timestamptz,
  retracted_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_id uuid := _memoir.session_id(v_caller.user_id, p_session); v_marks jsonb;
begin
  perform _memoir.check_name('session', p_session, 500), _memoir.check_range('limit', p_limit, 0, 2147483647);
  if not exists (select from _memoir.sessions s where s.user_id = v_caller.user_id and s.session_id = v_id) then
    return;
  end if;
  perform _memoir.session(v_caller, p_session);
  v_marks := _memoir.marks(v_caller.user_id, v_id);
  return query select x.* from (
    select i.item_no, i.item, i.part_of, i.turn_index, i.recorded_at, i.retracted_at from _memoir.session_items i
    where i.user_id = v_caller.user_id and i.session_id = v_id and (p_with_retracted or i.retracted_at is null)
      and greatest(i.sensitivity, _memoir.sensitivity_now('normal', i.turn_index, v_marks)) <= v_caller.clearance
    order by i.item_no desc limit p_limit) x
  order by 1;
end $$;
comment on function memoir.list_items(text, text, integer, boolean) is
  'The items of a session as they came, oldest first, without those that were taken back unless asked for; p_limit: the
newest so many. "turn_index": the first of the turns that tell the same. What is above the caller''s clearance is left
out. None for a session that is not there. Raises PM001, PM014.';

create or replace function memoir.retract_items(p_user text, p_session text, p_count integer default null)
returns setof jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_items integer[];
  v_turns integer[]; v_id uuid := _memoir.session_id(v_caller.user_id, p_session);
begin
  perform _memoir.check_name('session', p_session, 500), _memoir.check_range('count', p_count, 0, 2147483647);
  if not exists (select from _memoir.sessions s where s.user_id = v_caller.user_id and s.session_id = v_id) then
    return;
  end if;
  perform _memoir.items_of(v_caller, p_user, p_session);
  v_items := array(select i.item_no from _memoir.session_items i where i.user_id = v_caller.user_id
    and i.session_id = v_id and i.retracted_at is null order by i.item_no desc limit p_count);
  v_turns := array(select distinct t from _memoir.session_items i, generate_series(i.turn_index, i.turn_index + i.turns
      - 1) t where i.user_id = v_caller.user_id and i.session_id = v_id and i.item_no = any (v_items) order by t);
  return query select i.item from _memoir.session_items i where i.user_id = v_caller.user_id and i.session_id = v_id
    and i.item_no = any (v_items) and i.sensitivity <= v_caller.clearance order by i.item_no;
  update _memoir.session_items i set retracted_at = memoir.now() where i.user_id = v_caller.user_id
    and i.session_id = v_id and i.item_no = any (v_items);
  -- A call whose result was taken back waits again.
  update _memoir.session_items i set turn_index = null, turns = 0 where i.user_id = v_caller.user_id
    and i.session_id = v_id and i.turn_index = any (v_turns) and i.retracted_at is null;
  perform memoir.retract_turns(p_user, p_session, lower(r), upper(r) - 1, 'taken back by the application')
  from unnest(coalesce((select range_agg(int4range(t, t + 1)) from unnest(v_turns) t), '{}'::int4multirange)) r;
end $$;
comment on function memoir.retract_items(text, text, integer) is
  'Takes back the newest p_count items of a session (null: all) and returns them, oldest first; their turns as
retract_turns does. They stay stored and are in list_items if asked for. Nothing for a session that is not there.
Raises PM001, PM005, PM014.';
