-- Steps as lines: what a call was and what came of it, where the call itself is no longer shown. They stand, fenced,
-- behind the question of their exchange; before the first of them, how many steps left the list altogether.

-- Returns what is shown once places are shown as they should be, in tokens.
create or replace function _memoir.shown_after(p_past _memoir.past, p_places _memoir.past_place[])
returns bigint language sql immutable as $$
  select p_past.shown - coalesce(sum(case when p.target = 0 then 0 else p.tokens - p.form end
    - case when p.fidelity = 0 then 0 else p.tokens - o.form end), 0)
  from unnest(p_places) with ordinality p join unnest(p_past.places) with ordinality o on o.ordinality = p.ordinality
$$;

-- Makes steps before p_until lines, oldest first, down to p_low tokens. Where that is not enough, lines may leave.
create or replace function _memoir.with_lines(p_session _memoir.sessions, p_config jsonb,
  inout p_frame _memoir.session_windows, p_past _memoir.past, p_places _memoir.past_place[],
  p_low bigint, p_until integer, p_may_leave boolean, p_tokenizer text, out shown bigint)
language plpgsql as $$
declare
  v_frame _memoir.session_windows := p_frame; v_turns _memoir.past_turn[]; v_turn _memoir.past_turn;
  v_shown bigint := _memoir.shown_after(p_past, p_places); v_through integer; v_first integer;
begin
  v_turns := array(select (t.turn_index, t.role, t.exchange_start, t.recorded_at, t.cost, t.calls,
      coalesce(s.saved, 0))::_memoir.past_turn
    from unnest(p_past.turns) t left join (select p.turn_index, sum(p.tokens - p.form)::integer as saved
      from unnest(p_places) p where p.target > 0 group by 1) s on s.turn_index = t.turn_index order by t.turn_index);
  for i in 1 .. cardinality(v_turns) loop
    v_turn := v_turns[i];
    continue when v_turn.turn_index <= v_frame.lines_through;
    -- A step ends where another message begins.
    if v_turn.role <> 'tool' then
      if v_through is not null then v_frame.lines_through := v_through; end if;
      exit when v_shown <= p_low or v_turn.turn_index >= p_until;
    end if;
    if v_turn.role = 'tool' or v_turn.calls then
      v_shown := v_shown - (v_turn.cost - v_turn.saved) + case when v_turn.role = 'tool'
        then 45 + least(v_turn.cost, 4000) * _memoir.names_share(p_past.budget) else 0 end;
    end if;
    v_through := v_turn.turn_index;
  end loop;
  loop
    v_frame.lines := _memoir.step_lines(p_session, p_config, v_frame, p_frame);
    v_frame.line_tokens := coalesce((select sum(x) from unnest(_memoir.count_tokens(
      array(select value from jsonb_each_text(v_frame.lines)), p_tokenizer)) x), 0);
    -- As session_past counts it from now on, so that nothing is due again once this has moved.
    shown := v_frame.line_tokens + (select coalesce(sum(t.cost - t.saved), 0) from unnest(v_turns) t
      where t.turn_index > v_frame.lines_through or t.turn_index >= v_frame.opening and t.role in ('user', 'system')
        or t.turn_index >= v_frame.first_turn and t.role = 'assistant' and not t.calls);
    exit when not p_may_leave or shown <= 0.9 * p_past.budget or v_frame.first_turn is not distinct from v_first;
    v_first := v_frame.first_turn;
    v_frame := _memoir.with_leaving(p_session, v_frame, v_turns, shown - greatest(p_low, p_past.budget / 2));
  end loop;
  p_frame := v_frame;
end $$;

-- From which turn on anything is shown, so that so many tokens leave: of what is lines already, oldest first.
create or replace function _memoir.with_leaving(p_session _memoir.sessions, p_frame _memoir.session_windows,
  p_turns _memoir.past_turn[], p_tokens bigint)
returns _memoir.session_windows language plpgsql stable as $$
declare
  v_frame _memoir.session_windows := p_frame; v_left bigint := p_tokens; v_row record;
begin
  for v_row in
    select t.turn_index, t.role, t.exchange_start, case when t.role in ('user', 'system') then 0 when t.role = 'tool'
      then 45 when t.calls then 0 else t.cost end as cost,
      lead(t.exchange_start) over w as next_exchange, lead(t.role) over w as next_role,
      sum(t.cost) filter (where t.role in ('user', 'system')) over (partition by t.exchange_start) as question
    from (select u.* from unnest(p_turns) u union all
      -- Lines that are there already: what they were is no longer among the turns.
      select h.turn_index, h.role, h.exchange_start, h.recorded_at, h.token_count, true, 0
      from _memoir.lineage(p_session) l
      join _memoir.conversation_history h on h.user_id = p_session.user_id and h.session_id = l.session_id
        and h.recorded_at between l.since and l.until
        and h.turn_index between greatest(l.from_turn, p_frame.first_turn) and least(l.to_turn, p_frame.lines_through)
      where (h.role = 'tool' or h.role = 'assistant' and h.tool_calls is not null)
        and not exists (select from unnest(p_turns) u where u.turn_index = h.turn_index)) t
    where t.turn_index between p_frame.first_turn and p_frame.lines_through
    window w as (order by t.turn_index) order by t.turn_index loop
    v_left := v_left - v_row.cost;
    if v_row.next_exchange is distinct from v_row.exchange_start then v_left := v_left - v_row.question; end if;
    -- Steps go whole, and so does what ends an exchange.
    if v_row.next_role is distinct from 'tool' then
      v_frame.first_turn := v_row.turn_index + 1;
      exit when v_left <= 0;
    end if;
  end loop;
  v_frame.opening := coalesce((_memoir.turn_seen(p_session, v_frame.first_turn)).exchange_start, v_frame.first_turn);
  return v_frame;
end $$;

-- Returns the share of a text that names and quotations may take in its line: less in a small window.
create or replace function _memoir.names_share(p_budget integer)
returns float8 language sql immutable as $$ select least(0.15, p_budget / 160000.0) $$;

-- {"exchange": its fenced lines} of the steps that a frame shows as lines, and in the first of them what left. They
-- omit restricted texts and those out of recall. p_known: an earlier frame, whose lines stay.
create or replace function _memoir.step_lines(p_session _memoir.sessions, p_config jsonb,
  p_frame _memoir.session_windows, p_known _memoir.session_windows default null)
returns jsonb language plpgsql stable as $$
declare
  v_row record; v_calls jsonb := '{}'; v_call jsonb; v_lines text[] := '{}'; v_of integer[] := '{}'; v_line text;
  v_key text; v_note text := _memoir.left_note(p_session, p_frame); v_from integer := p_frame.first_turn;
  v_share constant float8 := _memoir.names_share(p_frame.budget);
begin
  if p_known.lines is not null then
    select coalesce(array_agg(e.key::integer order by t, l.o), '{}'), coalesce(array_agg(l.line order by t, l.o), '{}')
    into v_of, v_lines
    from jsonb_each_text(p_known.lines) e, string_to_table(e.value, E'\n') with ordinality l(line, o),
      lateral cast(substring(l.line from '^- turns? (?:\d{1,9}–)?(\d{1,9})') as integer) t
    where t between p_frame.first_turn and p_frame.lines_through;
    v_from := greatest(v_from, p_known.lines_through + 1);
  end if;
  for v_row in with parts as materialized (select l.*, _memoir.marks(p_session.user_id, l.session_id) as marks
      from _memoir.lineage(p_session) l where l.to_turn >= v_from
    )
    select h.turn_index, h.role, h.exchange_start, h.tool_calls, h.tool_call_id, left(h.content, 60000) as content,
      _memoir.sensitivity_now(h.sensitivity, h.turn_index, l.marks) > 'normal' as hidden,
      p.memory_id, o.source_key, h.token_count, exists (select
        from _memoir.exclusions_of(p_session.user_id, l.session_id, h.turn_index) x where not x.changed) as excluded
    from parts l
    join _memoir.conversation_history h on h.user_id = p_session.user_id and h.session_id = l.session_id
      and h.recorded_at between l.since and l.until
      and h.turn_index between greatest(l.from_turn, v_from) and least(l.to_turn, p_frame.lines_through)
    left join _memoir.object_places p on p.user_id = p_session.user_id and p.session_id = l.session_id
      and p.turn_index = h.turn_index and p.call_no = 0
    left join _memoir.memory_store o on o.user_id = p_session.user_id and o.memory_id = p.memory_id
    where h.role = 'tool' or h.tool_calls is not null order by h.turn_index loop
    if v_row.role = 'assistant' then
      v_calls := case when v_row.excluded or v_row.hidden then '{}'
        else _memoir.placed_calls(v_row.tool_calls, v_row.turn_index, null, 'normal') end;
      v_line := case when v_row.content <> '' and not v_row.hidden and not v_row.excluded
        then format('- turn %s, said: %s', v_row.turn_index, _memoir.one_line(left(v_row.content, 400))) end;
    else
      v_call := v_calls -> v_row.tool_call_id;
      v_key := case when v_call is not null and not v_row.hidden then coalesce(v_row.source_key,
        (_memoir.tool_use(p_config, v_call ->> 'name', v_call ->> 'arguments')).key) end;
      v_line := format('- turn %s: %s → %s', v_row.turn_index,
        concat_ws(' ', _memoir.one_line(left(coalesce(v_call ->> 'name', 'a tool'), 60)),
          _memoir.one_line(left(v_key, 100)), case when not v_row.hidden then '(' || _memoir.names_left(v_call
            ->> 'arguments', coalesce(v_key, ''), (0.1 * length(v_call ->> 'arguments'))::integer, 1) || ')' end),
        case when v_row.hidden then 'withheld' when v_row.excluded then 'taken out of recall'
          when v_row.memory_id is not null
          then concat_ws('; ', format('object %s, %s tokens', _memoir.object_name(v_row.memory_id), v_row.token_count),
            _memoir.names_in(v_row.content, v_share, 2))
          else coalesce(nullif(concat_ws('; ', nullif(_memoir.one_line(left(v_row.content, 80)), ''),
            _memoir.names_in(substr(v_row.content, 81), v_share, 2)), ''), 'nothing') end);
    end if;
    continue when v_line is null;
    v_of := v_of || v_row.exchange_start;
    v_lines := v_lines || _memoir.neutralise(v_line);
  end loop;
  select coalesce(array_agg(m.exchange order by m.o), '{}'), coalesce(array_agg(m.line order by m.o), '{}')
  into v_of, v_lines from _memoir.merged_lines(v_of, v_lines,
    greatest(least(6000, p_frame.budget / 4), p_frame.budget / 25)) m;
  -- What left is said where the list begins, if anything of the past is left in it.
  if v_note is not null and p_frame.opening is not null then
    v_of := p_frame.opening || v_of;
    v_lines := v_note || v_lines;
  end if;
  return _memoir.fenced_lines(v_of, v_lines, p_known.lines);
end $$;

-- Returns {"exchange": its lines in fences}. Merged lines stand in fences of their own, so that a prompt cache reads
-- what an earlier moment (p_known) has merged. The last fence has the others.
create or replace function _memoir.fenced_lines(p_exchanges integer[], p_lines text[], p_known jsonb)
returns jsonb language sql stable as $$
  with lines as (
    select l.exchange, string_agg(l.line, E'\n' order by l.o) filter (where l.line like '- turn %') as newest,
      string_agg(l.line, E'\n' order by l.o) filter (where l.line not like '- turn %') as merged
    from unnest(p_exchanges, p_lines) with ordinality l(exchange, line, o) group by 1
  ), known as (
    select e.key::integer as exchange, e.value, string_agg(l.line, E'\n' order by l.o) filter (where l.line
        like '- turn %') as newest, string_agg(l.line, E'\n' order by l.o) filter (where l.line not like '- turn %'
        and strpos(_memoir.fence('steps', ''), l.line) = 0) as merged
    from jsonb_each_text(p_known) e, string_to_table(e.value, E'\n') with ordinality l(line, o) group by 1, 2)
  select coalesce(jsonb_object_agg(l.exchange, concat_ws(E'\n\n',
      left(k.value, length(k.value) - coalesce(length(_memoir.fence('steps', k.newest)) + 2, 0)),
      _memoir.fence('steps', nullif(substr(l.merged, coalesce(length(k.merged) + 2, 0)), '')),
      _memoir.fence('steps', l.newest))), '{}')
  from lines l left join known k on k.exchange = l.exchange
    and starts_with(l.merged || E'\n', k.merged || E'\n')
$$;

-- Returns lines of steps, of which the newest p_size characters stay and sixteen older ones become one: what was called
-- and with what, but for what a merged line above it names already (…). They change once they are twice as long.
create or replace function _memoir.merged_lines(p_of integer[], p_lines text[], p_size integer)
returns table (exchange integer, line text, o bigint) language sql immutable as $$
  with lines as (
    select l.*, split_part(l.line, ' ', 2) = 'turn' as is_step, translate(split_part(l.line, ' ', 3), ':,', '') as turn,
      split_part(substr(l.line, strpos(l.line, ': ') + 2), ' → ', 1) as what,
      sum(length(l.line)) over (order by l.o desc) as behind, sum(length(l.line)) over () as size
    from unnest(p_of, p_lines) with ordinality l(exchange, line, o)
  ), old as (select l.*, (row_number() over (partition by l.exchange order by l.o) - 1) / 16 as part from lines l
    where l.is_step and l.size > 2 * p_size and l.behind > p_size
  ), whole as (select o.exchange, o.part from old o group by 1, 2 having count(*) = 16
  ), keyed as (select o.exchange, o.part, o.o, split_part(o.what, ' ', 1) as tool, left(split_part(substr(o.what,
      nullif(strpos(o.what, ' '), 0) + 1), ' (', 1), 100) as key
    from old o join whole w using (exchange, part) where strpos(o.line, ', said: ') = 0
  ), calls as (select k.exchange, k.part, k.tool, min(k.o) as o, count(*) as n, bool_or(k.is_named) as has_named,
      string_agg(distinct k.key, ', ') filter (where not k.is_named) as keys
    from (select k.*, strpos((select translate(coalesce(string_agg(l.line || ',', ''), ''), ';', ',') from lines l
      where not l.is_step), ' ' || k.key || ',') > 0 as is_named from keyed k) k group by 1, 2, 3)
  select l.exchange, l.line, l.o from lines l
  where not exists (select from old o join whole w using (exchange, part) where o.o = l.o)
  union all
  select o.exchange, format('- turns %s–%s: %s', (array_agg(o.turn order by o.o))[1], (array_agg(o.turn order by o.o
    desc))[1], left((select string_agg(concat_ws(' ', c.tool, '×' || nullif(c.n, 1),
      nullif(concat_ws(', ', c.keys, case when c.has_named then '…' end), '')), '; ' order by c.o)
      from calls c where c.exchange = o.exchange and c.part = o.part), 1600)), min(o.o)
  from old o join whole w using (exchange, part) group by o.exchange, o.part
$$;

-- Returns what is said of the turns that left the list; null where none did, or the summary has them.
create or replace function _memoir.left_note(p_session _memoir.sessions, p_frame _memoir.session_windows)
returns text language plpgsql stable as $$
declare
  v_from integer := p_frame.summary_through + 1; v_steps bigint; v_turns bigint;
begin
  if p_frame.first_turn <= v_from then return null; end if;
  select count(*) filter (where h.role = 'assistant' and h.tool_calls is not null), count(*) into v_steps, v_turns
  from _memoir.lineage(p_session) l
  join _memoir.conversation_history h on h.user_id = p_session.user_id and h.session_id = l.session_id
    and h.recorded_at between l.since and l.until
    and h.turn_index between greatest(l.from_turn, v_from) and least(l.to_turn, p_frame.first_turn - 1)
  -- The question of the exchange that the list begins in stays.
  where h.role not in ('user', 'system') or h.turn_index < p_frame.opening;
  if v_turns = 0 then return null; end if;
  return format('%s (turns %s to %s) are kept and not shown: memory_query or memory_timeline has them.',
    case when v_steps > 0 then v_steps || ' earlier steps' else v_turns || ' earlier turns' end, v_from,
    p_frame.first_turn - 1);
end $$;
