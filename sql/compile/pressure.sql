-- How full a session's window is, and what stands for what in it: for applications, and for a gateway that edits the
-- client's own list.

-- A session's past at a budget of its own (null: that of its model), and its frame.
create or replace function _memoir.past_at(p_caller _memoir.caller, p_session _memoir.sessions, p_budget integer,
  out frame _memoir.session_windows, out past _memoir.past, out counters _memoir.session_counters, out config jsonb,
  out model _memoir.models) language plpgsql stable as $$
declare
  v_room integer; v_budget integer;
begin
  config := _memoir.config(p_caller.user_id, p_session.settings);
  model := _memoir.model(coalesce(p_session.model, config ->> 'default_model'));
  select * into counters from _memoir.session_counters c where c.user_id = p_caller.user_id
    and c.session_id = p_session.session_id;
  v_room := coalesce(p_session.context_window, (model).context_window)
    - coalesce(p_session.max_response_tokens, (model).max_output);
  v_budget := coalesce(p_budget, v_room - _memoir.recall_share(config, p_session.task_type, v_room));
  frame := _memoir.session_frame(p_session, counters, v_budget, memoir.now());
  if (frame).user_id is null then frame := _memoir.first_frame(p_session, v_budget, memoir.now()); end if;
  -- What a compile was made for is what it is measured by.
  if p_budget is null and (frame).moments > 0 then v_budget := (frame).budget; end if;
  past := _memoir.session_past(p_session, counters, frame, config, v_budget, (model).message_overhead);
end $$;

-- The objects of a session, each by how the list shows it: 0 to 3, 4 as a line, 5 no longer. Oldest place first.
create or replace function _memoir.listed_objects(p_session _memoir.sessions, p_past _memoir.past,
  p_frame _memoir.session_windows)
returns table (memory_id uuid, turn_index integer, fidelity integer, tokens integer, form integer, pinned boolean)
language sql stable as $$
  select x.memory_id, min(x.turn_index), min(x.fidelity), max(x.tokens), max(x.form), bool_or(x.pinned) from (
    select p.memory_id, p.turn_index, p.fidelity::integer, p.tokens, p.form, p.pinned from unnest(p_past.places) p
    union all
    select o.memory_id, o.turn_index, case when o.turn_index < p_frame.first_turn then 5 else 4 end, o.tokens, 0, false
    from _memoir.lineage(p_session) l, _memoir.objects_at(p_session.user_id, l.session_id, l.from_turn,
      least(l.to_turn, p_frame.lines_through)) o where o.source_tool is not null) x group by 1
$$;

create or replace function memoir.session_pressure(p_user text, p_session text, p_budget integer default null)
returns jsonb language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v record; v_pays record;
  v_now timestamptz := memoir.now();
begin
  perform _memoir.check_range('budget', p_budget, 1, 2147483647);
  select * into v from _memoir.past_at(v_caller, v_session, p_budget);
  select * into v_pays from _memoir.move_pays(v.past, v.config, false);
  return jsonb_build_object('shown_tokens', (v.past).shown, 'budget', (v.past).budget,
      'fill', round((v.past).shown::numeric / greatest((v.past).budget, 1), 3),
      'zone', _memoir.zone_name(_memoir.zone_of((v.past).shown, (v.past).budget, v.config)),
      'due', _memoir.moment_due(v.past, v.frame, v_session, v.config, v_now, 0),
      'moments', (v.frame).moments, 'last_moment', case when (v.frame).moments > 0 then jsonb_build_object(
        'kind', (v.frame).kind, 'turn', (v.frame).at_turn, 'at', (v.frame).moved_at) end,
      'saved', v_pays.saved, 'carried', round(v_pays.carried::numeric), 'rewriting', round(v_pays.rewritten::numeric),
      'first_turn', (v.frame).first_turn, 'lines_through', nullif((v.frame).lines_through, -1))
    || (select jsonb_build_object('objects', count(*), 'by_fidelity', jsonb_build_object(
        'full', count(*) filter (where f = 0), 'detailed', count(*) filter (where f = 1),
        'compact', count(*) filter (where f = 2), 'stub', count(*) filter (where f = 3),
        'line', count(*) filter (where f = 4), 'not shown', count(*) filter (where f = 5)), 'pinned',
        count(*) filter (where pinned))
      from (select o.fidelity as f, o.pinned from _memoir.listed_objects(v_session, v.past, v.frame) o) x)
    || (select jsonb_build_object('moves', count(*)) from _memoir.fidelity_transitions t
      where t.user_id = v_caller.user_id and t.session_id = v_session.session_id and t.to_fidelity > t.from_fidelity)
    || (select jsonb_build_object('faults', coalesce(jsonb_object_agg(fault_type, n), '{}')) from (
      select f.fault_type, count(*) as n from _memoir.fault_history f where f.user_id = v_caller.user_id
        and f.session_id = v_session.session_id group by 1) x);
end $$;
comment on function memoir.session_pressure(text, text, integer) is
  'How full the window of a session is: {"shown_tokens", "budget" (p_budget, else that of the last moment, else of its
model), "fill", "zone" (normal, caution, warning, critical, emergency), "due" (the moment that a compile would find
now, or null), "moments", "last_moment": {"kind", "turn", "at"}, "saved", "carried", "rewriting" (what moving would
save each call, what not moving has cost, what it would cost: docs/explain/window.md), "first_turn", "lines_through",
"objects", "by_fidelity" (also line, not shown), "pinned", "moves", "faults": by type}. Writes nothing. Raises PM001,
PM003, PM014.';

create or replace function memoir.window_forms(p_user text, p_session text, p_budget integer default null,
  p_changed boolean default false, p_fixed integer default 0)
returns table (turn_index integer, role text, tool_call_id text, call_no integer, argument text[], object text,
  fidelity text, content text, tokens integer, full_tokens integer, reason text)
language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v record; v_kind text;
  v_now timestamptz := memoir.now(); v_frame _memoir.session_windows; v_part record;
begin
  perform _memoir.check_range('budget', p_budget, 1, 2147483647);
  perform _memoir.check_range('fixed', p_fixed, 0, 2147483647);
  select * into v from _memoir.past_at(v_caller, v_session, p_budget);
  v_frame := v.frame;
  v_kind := case when p_changed then 'changed' else _memoir.moment_due(v.past, v.frame, v_session, v.config,
    v_now, coalesce(p_fixed, 0), true) end;
  if v_kind is not null and not pg_is_in_recovery() and not current_setting('transaction_read_only')::boolean then
    v_frame := _memoir.move_window(v_session, v.counters, v.config, v.frame, v.past, v_kind, v_now,
      _memoir.tokenizer_used(coalesce(v_session.tokenizer, (v.model).tokenizer)), coalesce(p_fixed, 0), true);
  end if;
  return query
  select e.key::integer, 'user', null::text, 0, x.ids, null::text, 'line', e.value, null::integer, null::integer,
    'earlier step' from jsonb_each_text(coalesce(v_frame.lines, _memoir.step_lines(v_session, v.config, v_frame))) e
  cross join lateral (select array_agg(h.tool_call_id) as ids from _memoir.lineage(v_session) l
    join _memoir.conversation_history h on h.user_id = v_caller.user_id and h.session_id = l.session_id
      and h.recorded_at between l.since and l.until and h.turn_index between
        greatest(l.from_turn, v_frame.first_turn) and least(l.to_turn, v_frame.lines_through)
    where h.exchange_start = e.key::integer and h.role = 'tool') x;
  -- Objects as they are shown. Those before the list's first turn have a word.
  for v_part in select * from _memoir.lineage(v_session) l order by l.from_turn loop
    return query
    with places as materialized (
      select o.*, h.role, coalesce(h.tool_call_id, h.tool_calls -> (o.call_no - 1) ->> 'id') as called,
        coalesce(f.reason, 'earlier step') as why,
        (case when o.turn_index < v_frame.first_turn then 4 else f.fidelity end)::smallint as shown
      from _memoir.objects_at(v_caller.user_id, v_part.session_id, v_part.from_turn, least(v_part.to_turn,
        (v.counters).turn_count - 1)) o
      join _memoir.conversation_history h on h.user_id = v_caller.user_id and h.session_id = v_part.session_id
        and h.turn_index = o.turn_index and h.recorded_at between v_part.since and v_part.until
      left join _memoir.shown_forms f on f.user_id = v_caller.user_id and f.session_id = v_session.session_id
        and f.turn_index = o.turn_index and f.call_no = o.call_no and f.argument = o.argument
      where o.source_tool is not null and o.sensitivity <= v_caller.clearance
        and o.turn_index not between v_frame.first_turn and v_frame.lines_through),
    wanted as (select distinct p.memory_id, p.shown from places p where p.part_no = 0 and p.shown < 4),
    forms as materialized (select * from _memoir.object_forms(v_caller.user_id, array(select w.memory_id from wanted w
      order by w), array(select w.shown from wanted w order by w), v_frame.moved_at))
    select p.turn_index, p.role::text, p.called, p.call_no::integer, p.argument, _memoir.object_name(p.memory_id),
      (array['detailed', 'compact', 'stub', 'not shown'])[p.shown], y.content,
      case when p.shown < 4 and p.part_no = 0 then s.token_count else 24 end, p.tokens, p.why
    from places p left join forms s on s.memory_id = p.memory_id and s.fidelity = p.shown
    cross join lateral (select case when p.shown = 4 then format('[not shown: object %s, memory_query answers from it]',
          _memoir.object_name(p.memory_id))
        when p.part_no > 0 then format('[with the result above: object %s]', _memoir.object_name(p.memory_id))
        else s.content end as content) y
    where p.shown is not null and y.content is not null
    order by p.turn_index, p.call_no, p.argument;
  end loop;
end $$;
comment on function memoir.window_forms(text, text, integer, boolean, integer) is
  'Lists what stands for which parts of a session''s messages now, for a list that its client keeps: per part
turn_index, role, tool_call_id (of a result, or of the call whose argument it is), call_no (0: the content of the
turn, else which call) and argument (path in its arguments), object (its name), fidelity (detailed, compact, stub, not
shown), content (the text to show in its place, the same bytes until the next moment), tokens, full_tokens, reason.
Rows of fidelity line have the lines of an exchange, and in argument the ids of the calls that they stand for.
p_budget: tokens that the conversation may take (default: of the session''s model). p_changed: the client changed its
past itself, so now is a moment. p_fixed: tokens of the system prompt and the tools, which each list begins with: they
count for the prefix that stays. What is due moves first. Writes session_windows, shown_forms, fidelity_transitions,
memory_renditions. Raises PM001, PM003, PM014.';

create or replace function memoir.list_objects(p_user text, p_session text, p_query text default null,
  p_limit integer default 100)
returns table (object text, memory_id uuid, type text, content text, turn_index integer, fidelity text,
  tokens integer, shown_tokens integer, state text, pinned boolean)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v record;
begin
  perform _memoir.check_count('limit', p_limit, 10000);
  select * into v from _memoir.past_at(v_caller, v_session, null);
  return query
  select _memoir.object_name(m.memory_id), m.memory_id, m.type::text, m.content, p.turn_index,
    (array['full', 'detailed', 'compact', 'stub', 'line', 'not shown'])[p.fidelity + 1], p.tokens, p.form,
    m.state::text, p.pinned
  from _memoir.listed_objects(v_session, v.past, v.frame) p
  join _memoir.memory_store m on m.user_id = v_caller.user_id and m.memory_id = p.memory_id
  where m.sensitivity <= v_caller.clearance and m.state in ('active', 'superseded') and (p_query is null
    or strpos(lower(concat_ws(' ', _memoir.object_name(m.memory_id), m.type, m.source_key, m.content)),
      lower(p_query)) > 0)
  order by p.turn_index desc, m.memory_id limit p_limit;
end $$;
comment on function memoir.list_objects(text, text, text, integer) is
  'The objects of a session, newest first, also those that left the list: name, memory_id, type, content (the line of
its stub), turn_index of its first place, fidelity at which it is shown (full, detailed, compact, stub, line, not
shown), tokens, shown_tokens, state, whether it is pinned. p_query: those whose name, type, path or line has it.
Raises PM001, PM003, PM014.';
