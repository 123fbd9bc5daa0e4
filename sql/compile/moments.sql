-- When the list shows less of a session's past, and of what. Between two moments a list begins with the same bytes; at
-- one, all that is due moves in one batch. This is the one list of moments, for compiles and for window_forms:
--   zone        the shown tokens crossed a zone of the budget upward     room        they no longer fit
--   pays        what could be shorter has cost as much as rewriting it   cold        the prompt cache is cold anyway
--   compaction  the summary reaches further                              task        the session's task changed
--   goal        the user turned to something else, under pressure        budget      the budget grew
--   changed     the application or client changed the past itself (window_forms says so)
-- What is large at birth is born reduced: it stands at the end of the list, so nothing before it changes.

-- Zones: normal 0, caution 1, warning 2, critical 3, emergency 4.
create or replace function _memoir.zone_of(p_shown bigint, p_budget bigint, p_config jsonb)
returns smallint language sql immutable as $$
  select coalesce(max(z.n), 0)::smallint
  from unnest('{window_caution,window_warning,window_critical,window_emergency}'::text[]) with ordinality z(setting, n)
  where p_shown >= p_budget * (p_config ->> z.setting)::float8
$$;

create or replace function _memoir.zone_name(p_zone integer) returns text language sql immutable as $$
  select (array['normal', 'caution', 'warning', 'critical', 'emergency'])[p_zone + 1]
$$;

-- How a session's past is shown before its first moment: all of it. Values are in the order of the table's columns.
create or replace function _memoir.first_frame(p_session _memoir.sessions, p_budget integer, p_at timestamptz)
returns _memoir.session_windows language sql stable as $$
  select p_session.user_id, p_session.session_id, 0, 'none', 0, p_at, p_budget, 0::smallint, n + 1, n + 1, n, -1, n,
    p_session.task_type::text, 0, '{}'::jsonb, null::bigint, null::bigint
  from coalesce(p_session.summary_through, -1) n
$$;

-- The frame of a session that has objects; null for all others.
create or replace function _memoir.session_frame(p_session _memoir.sessions, p_counters _memoir.session_counters,
  p_budget integer, p_at timestamptz)
returns _memoir.session_windows language plpgsql stable as $$
declare
  v_frame _memoir.session_windows; v_part record;
begin
  if p_counters.has_objects is not true then return null; end if;
  select * into v_frame from _memoir.session_windows w where w.user_id = p_session.user_id
    and w.session_id = p_session.session_id;
  if not found then
    for v_part in select * from _memoir.lineage(p_session) loop
      perform from _memoir.object_places p
      join _memoir.memory_store m on m.user_id = p.user_id and m.memory_id = p.memory_id and m.source_tool is not null
      where p.user_id = p_session.user_id and p.session_id = v_part.session_id and p.turn_index <= v_part.to_turn
      limit 1;
      if found then return _memoir.first_frame(p_session, p_budget, p_at); end if;
    end loop;
    return null;
  end if;
  return v_frame;
end $$;

-- From which exchange on a recall is not of the past yet.
create or replace function _memoir.recalls_until(p_counters _memoir.session_counters)
returns integer language sql immutable as $$
  select case when p_counters.last_role = 'assistant' then p_counters.turn_count else p_counters.exchange_start end
$$;

-- Objects and what they depend on, two hops.
create or replace function _memoir.with_dependencies(p_user_id uuid, p_objects uuid[])
returns uuid[] language plpgsql stable as $$
declare
  v_next uuid[] := p_objects;
begin
  for hop in 1 .. 2 loop
    v_next := array(select distinct r.target_id from _memoir.memory_relationships r where r.user_id = p_user_id
      and r.source_id = any (v_next) and r.relation = 'depends_on' and r.target_id <> all (p_objects));
    p_objects := p_objects || v_next;
  end loop;
  return p_objects;
end $$;

-- The past as the ladder weighs it: turns from the frame's first on, and the objects of those that are not lines.
create or replace function _memoir.session_past(p_session _memoir.sessions, p_counters _memoir.session_counters,
  p_frame _memoir.session_windows, p_config jsonb, p_budget integer, p_overhead integer)
returns _memoir.past language plpgsql stable as $$
declare
  v_past _memoir.past; v_part record; v_turns _memoir.past_turn[]; v_places _memoir.past_place[];
  v_user uuid := p_session.user_id; v_own uuid := p_session.session_id; v_last integer := p_counters.turn_count - 1;
  v_asked uuid[];
begin
  v_past.turns := '{}';
  v_past.places := '{}';
  v_past.budget := p_budget;
  v_past.overhead := p_overhead;
  -- Objects asked for, or recalled and used, since the last moment, and those they depend on.
  v_asked := _memoir.with_dependencies(v_user, array(
    select f.memory_id from _memoir.fault_history f where f.user_id = v_user and f.session_id = v_own
      and f.recorded_at > p_frame.moved_at and f.memory_id is not null
    union select o.memory_id from _memoir.session_objects o where o.user_id = v_user and o.session_id = v_own
      and o.is_used));
  for v_part in select * from _memoir.lineage(p_session) l where l.to_turn >= p_frame.opening order by l.from_turn loop
    select array_agg((o.turn_index, o.call_no, o.argument, o.memory_id, o.tokens, o.part_no,
        -- What a model summed up is shown as that.
        case when coalesce(s.fidelity_ceiling, o.fidelity_ceiling) = 2 then 'summary' else o.type end,
        concat_ws(' ', o.source_tool, o.source_key), o.recorded_at,
        case when o.reading < o.last_reading then 'read again' when o.state = 'superseded' then 'superseded'
          when o.stale_turn is not null then 'edited since'
          when coalesce(s.fidelity_ceiling, o.fidelity_ceiling) >= 3 then 'released' end,
        coalesce(s.pinned_until_turn, o.pinned_until_turn, 0) > v_last + 1 and o.reading = o.last_reading,
        o.memory_id = any (v_asked), coalesce(f.fidelity, 0), coalesce(f.tokens, 0), f.reason, 0,
        null)::_memoir.past_place order by o.turn_index, o.call_no, o.argument) into v_places
    from _memoir.objects_at(v_user, v_part.session_id, greatest(v_part.from_turn, p_frame.lines_through + 1),
      least(v_part.to_turn, v_last)) o
    left join _memoir.shown_forms f on f.user_id = v_user and f.session_id = v_own and f.turn_index = o.turn_index
      and f.call_no = o.call_no and f.argument = o.argument
    left join _memoir.session_objects s on s.user_id = v_user and s.session_id = v_own and s.memory_id = o.memory_id
    -- What people and assistants say is never touched.
    where o.source_tool is not null;
    v_past.places := v_past.places || coalesce(v_places, '{}');
    select array_agg((h.turn_index, h.role, h.exchange_start, h.recorded_at, h.token_count + p_overhead,
      h.tool_calls is not null, 0)::_memoir.past_turn order by h.turn_index) into v_turns
    from _memoir.conversation_history h where h.user_id = v_user and h.session_id = v_part.session_id
      and h.recorded_at between v_part.since and v_part.until
      and h.turn_index between greatest(v_part.from_turn, p_frame.opening) and least(v_part.to_turn, v_last)
      and (h.turn_index > p_frame.lines_through or h.role in ('user', 'system')
        or h.turn_index >= p_frame.first_turn and h.role = 'assistant' and h.tool_calls is null);
    v_past.turns := v_past.turns || coalesce(v_turns, '{}');
  end loop;
  v_past.recalls := 0;
  if not pg_is_in_recovery() then
    select coalesce(sum(k.tokens), 0)::integer into v_past.recalls from _memoir.kept_recalls k where k.user_id = v_user
      and k.session_id = v_own and k.at_turn between p_frame.opening and _memoir.recalls_until(p_counters) - 1;
  end if;
  return _memoir.weighed(v_past, p_frame, (p_config ->> 'window_fresh_steps')::integer);
end $$;

-- Counts the shown tokens, and finds where the untouched steps begin: the newest steps, as many as fit half the budget.
create or replace function _memoir.weighed(inout p_past _memoir.past, p_frame _memoir.session_windows, p_fresh integer)
language plpgsql immutable as $$
declare
  v_turns _memoir.past_turn[]; v_turn _memoir.past_turn; v_used bigint := 0; v_steps integer := 0;
begin
  select coalesce(array_agg((t.turn_index, t.role, t.exchange_start, t.recorded_at, t.cost, t.calls,
    coalesce(s.saved, 0))::_memoir.past_turn order by t.turn_index), '{}') into v_turns
  from unnest(p_past.turns) t
  left join (select p.turn_index, sum(p.tokens - p.form)::integer as saved from unnest(p_past.places) p
    where p.fidelity > 0 group by 1) s on s.turn_index = t.turn_index;
  p_past.turns := v_turns;
  p_past.shown := p_frame.line_tokens + p_past.recalls + (select coalesce(sum(t.cost - t.saved), 0)
    from unnest(v_turns) t);
  p_past.fresh_from := coalesce((v_turns[cardinality(v_turns)]).turn_index, -1) + 1;
  for i in reverse cardinality(v_turns) .. 1 loop
    v_turn := v_turns[i];
    v_used := v_used + v_turn.cost - v_turn.saved;
    if v_turn.calls then
      v_steps := v_steps + 1;
      exit when v_steps > p_fresh or v_steps > 1 and v_used > p_past.budget / 2;
      p_past.fresh_from := v_turn.turn_index;
    end if;
  end loop;
end $$;

-- Returns what steps save as lines that are older than the newest p_steps: from which turn on and until which, how much
-- a call, and how much since they could be lines, in tokens times calls.
create or replace function _memoir.line_gains(p_past _memoir.past, p_steps integer, out turn_index integer,
  out until integer, out gain bigint, out weighted float8)
language sql immutable as $$
  with turns as (
    select t.*, count(*) filter (where t.calls) over (order by t.turn_index desc) + (t.role = 'tool')::integer as steps
    from unnest(p_past.turns) t
  ), aged as (
    -- A step that can still be shorter by a form counts by that.
    select t.turn_index, t.steps, t.role, case t.role when 'tool' then least(400, t.cost - t.saved) - 60
      else least(400, t.cost - t.saved) end as gain
    from turns t where t.steps > p_steps and (t.role = 'tool' or t.calls))
  select min(a.turn_index), (select min(t.turn_index) from turns t where t.calls and t.steps = p_steps),
    coalesce(sum(a.gain), 0), coalesce(sum(a.gain * (a.steps - p_steps)), 0) from aged a
$$;

-- Returns where a move pays best (turn cut), and what it is worth there, in tokens at the price of plain input: saved
-- each call; carried, the reads that not having moved has cost; rewritten, all behind it written instead of read. most
-- is saved from the first place on. spent: what the turns have cost so far. docs/explain/window.md has it.
create or replace function _memoir.move_pays(p_past _memoir.past, p_config jsonb, p_is_cold boolean,
  out saved bigint, out carried float8, out rewritten float8, out most bigint, out spent float8, out cut integer)
language plpgsql immutable as $$
declare
  v_read float8 := p_config ->> 'cache_read_share'; v_write float8 := p_config ->> 'cache_write_share';
  v_fresh integer := p_config ->> 'window_fresh_steps';
begin
  with turns as materialized (select t.turn_index, t.cost - t.saved as cost, sum(t.cost - t.saved) over w as behind,
      count(*) filter (where t.role = 'assistant') over w as later
    from unnest(p_past.turns) t window w as (order by t.turn_index desc)
  ), gains as (select p.turn_index, sum(p.tokens - g.form) filter (where p.tokens - g.form >= 100) as gain,
      sum((p.tokens - g.form) * greatest(0, t.later - v_fresh + 1)) filter (where p.tokens - g.form >= 100) as weighted
    from unnest(p_past.places) p
    cross join lateral (select case when p.over is null then greatest(90, p.tokens / 5) else 60 end as form) g
    join turns t using (turn_index)
    where p.turn_index < p_past.fresh_from and p.fidelity = 0 and not p.pinned group by 1
    union all
    select l.turn_index, l.gain, l.weighted
    from _memoir.line_gains(p_past, (p_config ->> 'window_line_steps')::integer) l
  ), cuts as (select sum(g.gain) over w as saved, sum(g.weighted) over w * v_read as carried,
      case when p_is_cold then 0 else (v_write - v_read) * greatest(0, t.behind - sum(g.gain) over w) end as rewritten,
      g.turn_index
    from (select g.turn_index, sum(g.gain) as gain, sum(g.weighted) as weighted from gains g group by 1) g
    join turns t on t.turn_index = g.turn_index where g.gain > 0 window w as (order by g.turn_index desc)
  )
  select coalesce(c.saved, 0), coalesce(c.carried, 0), coalesce(c.rewritten, 0),
    coalesce((select max(m.saved) from cuts m), 0), x.spent, c.turn_index
  into saved, carried, rewritten, most, spent, cut
  from (select coalesce(sum(t.cost * (v_write + v_read * t.later)), 0) as spent from turns t) x
  left join (select * from cuts order by cuts.carried - cuts.rewritten desc, cuts.turn_index limit 1) c on true;
end $$;

-- Returns the tokens of all lists of a session so far, each with p_fixed of system prompt and tools, and how many of
-- them the next list did not begin with, if it changes from turn p_from on, and the newest lines with it. By counts of
-- the provider: what the prompt grew by since its shortest after the last move, the rest by what the list came to then.
create or replace function _memoir.prefix_counts(p_session _memoir.sessions, p_past _memoir.past,
  p_frame _memoir.session_windows, p_from integer, p_fixed integer, out sent bigint, out lost bigint)
language plpgsql stable as $$
declare
  v_user uuid := p_session.user_id; v_own uuid := p_session.session_id; v record; k integer; v_base float8;
  v_turns float8; v_newest float8 := coalesce((select p_frame.line_tokens * length(split_part(e.value, E'\n\n<', -1))
    / sum(length(e.value)) over () from jsonb_each_text(p_frame.lines) e order by e.key::integer desc limit 1), 0);
begin
  select array_agg(h.turn_index order by h.turn_index) as turns, min(h.prompt_tokens) as least, count(*) as n,
    array_agg(h.prompt_tokens order by h.turn_index) as prompts into v
  from _memoir.conversation_history h where h.user_id = v_user and h.session_id = v_own
    and h.turn_index >= p_frame.at_turn and h.prompt_tokens > p_fixed and h.recorded_at >= p_past.turns[1].recorded_at;
  k := array_position(v.prompts, v.least);  -- the first with the new list
  select coalesce(p_frame.sent_tokens, 0) + coalesce(sum(p_past.shown + p_fixed - t.behind)
      filter (where t.role = 'assistant' and t.turn_index >= p_frame.at_turn), 0),
    coalesce(max(t.behind + v_newest) filter (where t.turn_index >= p_from), 0),
    p_past.shown - max(t.behind) filter (where t.turn_index = v.turns[k]),
    max(t.behind) filter (where t.turn_index = v.turns[k]) - max(t.behind) filter (where t.turn_index = v.turns[v.n])
  into sent, lost, v_base, v_turns from (select t.turn_index, t.role, sum(t.cost - t.saved)
    over (order by t.turn_index desc) as behind from unnest(p_past.turns) t) t;
  if v_base > 0 then
    sent := (select c.prompt_tokens from _memoir.session_counters c where c.user_id = v_user and c.session_id = v_own);
    lost := (v.prompts[v.n] - v.least) * least(1, lost / greatest(1, v_turns)) * v.n / (v.n + 1.0 - k)
      + greatest(0, lost - v_turns) * (v.least - p_fixed) / v_base;
  end if;
  lost := coalesce(p_frame.lost_tokens, 0) + lost;
end $$;

-- Which moment it is; null: none. p_fixed: tokens of system prompt and tools. p_kept: the list is somebody else's, so
-- that nothing can leave it; once all is short that can be, it need not be said again that there is no room.
create or replace function _memoir.moment_due(p_past _memoir.past, p_frame _memoir.session_windows,
  p_session _memoir.sessions, p_config jsonb, p_at timestamptz, p_fixed integer, p_kept boolean default false)
returns text language plpgsql stable as $$
declare
  v_pays record; v_prefix record; v_newest timestamptz; v_cold boolean; v_asks integer[]; v_cosine float8;
  v_zone smallint := _memoir.zone_of(p_past.shown, p_past.budget, p_config);
  v_life interval := make_interval(secs => (p_config ->> 'cache_ttl_seconds')::float8);
begin
  if p_past.shown > p_past.budget and not (p_kept and p_frame.zone = 4) then return 'room'; end if;
  if v_zone > p_frame.zone then return 'zone'; end if;
  if coalesce(p_session.summary_through, -1) > p_frame.summary_through then return 'compaction'; end if;
  if p_session.task_type::text is distinct from p_frame.task then return 'task'; end if;
  if p_past.budget > p_frame.budget * 1.25 and p_frame.lines_through >= p_frame.first_turn then return 'budget'; end if;
  v_newest := (select max(t.recorded_at) from unnest(p_past.turns) t where t.role = 'assistant');
  v_cold := p_at > v_newest + v_life and (p_frame.moments = 0 or p_frame.moved_at < v_newest + v_life);
  select * into v_pays from _memoir.move_pays(p_past, p_config, v_cold);
  select * into v_prefix from _memoir.prefix_counts(p_session, p_past, p_frame, v_pays.cut, p_fixed);
  -- Below warning all moments but the first keep the prefix. The first of an agent that keeps its list has no savings
  -- yet to pay for it, and many sessions end before it would. Less than a third of what could be shorter is not worth a
  -- broken prefix.
  if v_pays.saved > 0 and v_pays.carried > 0 and v_pays.saved * 3 >= v_pays.most
    -- What the last moment left as it was, in this very state, it left for a reason.
    and (v_cold or p_frame.moments = 0 or p_frame.at_turn <= (select max(t.turn_index) from unnest(p_past.turns) t))
    and v_pays.carried >= v_pays.rewritten and (v_cold or v_zone >= 2 or p_frame.moments = 0
      or v_prefix.lost <= v_prefix.sent * (1 - (p_config ->> 'window_prefix_share')::float8))
    and (not p_kept or p_frame.moments > 0
      or v_pays.rewritten <= v_pays.spent * (p_config ->> 'window_first_share')::float8) then
    return case when v_cold then 'cold' else 'pays' end;
  end if;
  if p_frame.zone >= 1 then
    -- The user turned to something else: by the cosine of the newest message, which came since the last moment, and the
    -- one before it. Unknown while they have no vectors.
    v_asks := array(select t.turn_index from unnest(p_past.turns) t where t.role = 'user'
      order by t.turn_index desc limit 2);
    if v_asks[2] is not null and v_asks[1] >= p_frame.at_turn then
      select 1 - (a.embedding <=> b.embedding) into v_cosine
      from _memoir.search_items i
      join _memoir.embeddings a on a.user_id = i.user_id and a.item_no = i.item_no
      join _memoir.search_items j on j.user_id = i.user_id and j.chunk = 0
        and j.ref_id = (_memoir.turn_seen(p_session, v_asks[2])).message_id
      join _memoir.embeddings b on b.user_id = j.user_id and b.item_no = j.item_no and b.model_id = a.model_id
      where i.user_id = p_session.user_id and i.chunk = 0
        and i.ref_id = (_memoir.turn_seen(p_session, v_asks[1])).message_id limit 1;
      if v_cosine < 0.5 then return 'goal'; end if;
    end if;
  end if;
  if exists (select from unnest(p_past.places) p where p.fidelity = 0 and not p.pinned
    and p.turn_index >= _memoir.newest_step(p_past) and p.tokens > p_past.budget / 10
    -- A secret has no form, and some forms are hardly shorter.
    and not exists (select from _memoir.memory_store m left join _memoir.memory_renditions r on r.user_id = m.user_id
        and r.memory_id = m.memory_id and r.fidelity = 1 where m.user_id = p_session.user_id
      and m.memory_id = p.memory_id and (m.sensitivity = 'secret' or r.token_count > 0.8 * p.tokens))) then
    return 'born';
  end if;
  return null;
end $$;

-- Where the newest step begins: what came before it has been shown.
create or replace function _memoir.newest_step(p_past _memoir.past) returns integer language sql immutable as $$
  select coalesce(max(t.turn_index), 0) from unnest(p_past.turns) t where t.role <> 'tool'
$$;

-- Returns what each place should be shown as at this moment: no longer of use as a stub, the others compact, in detail
-- where a model asked for it since, or where objects of its type were needed again as a rule. Never raised but where it
-- was asked for, or is pinned, and the list is short.
create or replace function _memoir.targets(p_user_id uuid, p_session_id uuid, p_past _memoir.past, p_kind text,
  p_message text)
returns _memoir.past_place[] language plpgsql stable as $$
declare
  v_learnt text[]; v_needed uuid[] := '{}'; v_words text[] := _memoir.query_terms('simple', p_message);
  v_newest timestamptz := (select max(p.recorded_at) from unnest(p_past.places) p);
  v_roomy boolean := p_past.shown < p_past.budget / 2;
begin
  -- Types of objects that were needed again after they had been made shorter, three times and each tenth time, are made
  -- shorter later.
  v_learnt := array(select f.type from _memoir.fault_history f where f.user_id = p_user_id
    and f.session_id = p_session_id and f.type is not null
      and (f.fault_type = 'full_restore' or f.fault_type = 'page_fault' and f.fidelity < 4)
    group by f.type having count(*) >= greatest(3, (select count(*) / 10 from _memoir.fidelity_transitions t
      join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = t.memory_id
      where t.user_id = p_user_id and t.session_id = p_session_id and t.to_fidelity > t.from_fidelity
        and m.type = f.type)));
  -- Where the user turns to something else, what the plan and the newest steps depend on counts as asked for.
  if p_kind = 'goal' then
    v_needed := _memoir.with_dependencies(p_user_id, array(select distinct p.memory_id from unnest(p_past.places) p
      where p.type = 'plan' or p.turn_index >= p_past.fresh_from));
  end if;
  return array(
    select (p.turn_index, p.call_no, p.argument, p.memory_id, p.tokens, p.part_no, p.type, p.about, p.recorded_at,
      p.over, p.pinned, n.asked, p.fidelity, p.form, p.why,
      -- relevance to what the user said last × importance × recency × faults, per token
      (0.5 + coalesce((select count(*) from unnest(_memoir.query_terms('simple', p.about)) w
          where w = any (v_words))::float8 / nullif(cardinality(v_words), 0), 0))
        * case p.type when 'plan' then 3 when 'error_context' then 1.5 when 'file_context' then 1.2 else 1 end
        * power(0.5, extract(epoch from v_newest - p.recorded_at) / 3600.0)
        * case when n.asked or p.type = any (v_learnt) then 2 else 1 end / greatest(p.tokens, 1),
      -- A newer reading that is whole says all of an older one.
      case when p.turn_index >= p_past.fresh_from and coalesce(p.over, '') not in ('read again', 'superseded')
          then case when p.fidelity = 0 and not p.pinned and p.tokens > p_past.budget / 10 then 1 else p.fidelity end
        when p.pinned then case when v_roomy then 0 else p.fidelity end
        when p.over is not null then greatest(p.fidelity, 3) when p.type = 'summary' then 2
        when n.asked and v_roomy then least(greatest(p.fidelity, 1), 1)
        when p.type = any (v_learnt) and p.fidelity <= 1 then 1
        else greatest(p.fidelity, 2) end)::_memoir.past_place
    from unnest(p_past.places) p, lateral (select p.asked or p.memory_id = any (v_needed) as asked) n
    order by p.turn_index, p.call_no, p.argument);
end $$;

-- What lies so deep that rewriting all behind it costs more than its being shorter saves stays as it is: the calls to
-- come are guessed to be half as many as those so far. So do places above the first that must move, where only a note
-- would change: that they were read again, or edited.
create or replace function _memoir.held_back(p_past _memoir.past, p_places _memoir.past_place[], p_config jsonb,
  p_is_deep boolean, p_is_cold boolean)
returns _memoir.past_place[] language plpgsql immutable as $$
declare
  v_read float8 := p_config ->> 'cache_read_share'; v_write float8 := p_config ->> 'cache_write_share';
  v_calls float8 := (select count(*) / 2.0 from unnest(p_past.turns) t where t.role = 'assistant'); v_from integer;
begin
  with turns as (
    select t.turn_index, sum(t.cost - t.saved) over (order by t.turn_index desc) as behind from unnest(p_past.turns) t
  ), gains as (select p.turn_index, sum(case p.fidelity when 0 then p.tokens else p.form end
      - case p.target when 0 then p.tokens when 1 then p.tokens * 3 / 10 when 2 then greatest(90, p.tokens / 5)
        when 3 then least(60 + p.tokens * 8 / 100, case p.fidelity when 0 then p.tokens else p.form end) else 24 end)
      as gain
    from unnest(p_places) p where p.target <> p.fidelity group by 1
  ), cuts as (select g.turn_index, sum(g.gain) over w * v_read * v_calls
      - (v_write - v_read) * greatest(0, t.behind - sum(g.gain) over w) as worth
    from gains g join turns t on t.turn_index = g.turn_index window w as (order by g.turn_index desc)
  )
  -- What was asked for is shown, whatever it costs.
  select case when not p_is_deep then least((select c.turn_index from cuts c order by c.worth desc, c.turn_index
    limit 1), (select min(p.turn_index) from unnest(p_places) p where p.target < p.fidelity)) end into v_from;
  if not p_is_cold then
    v_from := coalesce((select min(p.turn_index) from unnest(p_places) p where p.turn_index >= coalesce(v_from, 0)
      and p.target <> p.fidelity and (p.fidelity = 0 or coalesce(p.over, 'released') = 'released')), 2147483647);
  end if;
  for i in 1 .. cardinality(p_places) loop
    if p_places[i].turn_index < v_from then p_places[i].target := p_places[i].fidelity; end if;
  end loop;
  return p_places;
end $$;

-- Stores the forms that places shall be shown as and notes their tokens; what would hardly be shorter stays whole.
-- Other parts of an object, and older readings of it, need a word only. A form that another place shows stays as it is.
create or replace function _memoir.with_forms(p_user_id uuid, p_session_id uuid, p_places _memoir.past_place[],
  p_at timestamptz)
returns _memoir.past_place[] language plpgsql as $$
declare
  v_place _memoir.past_place; v_tokens integer[]; v_ids uuid[] := '{}'; v_to smallint[] := '{}'; n integer := 0;
  v_shown jsonb := (select coalesce(jsonb_object_agg(f.memory_id || '/' || f.fidelity, f.tokens), '{}')
    from _memoir.shown_forms f where f.user_id = p_user_id and f.session_id = p_session_id and f.tokens <> 24);
begin
  foreach v_place in array p_places loop
    if v_place.target between 1 and 3 and v_place.target <> v_place.fidelity and v_place.part_no = 0
      and not v_shown ? (v_place.memory_id || '/' || v_place.target) then
      v_ids := v_ids || v_place.memory_id;
      v_to := v_to || v_place.target;
    end if;
  end loop;
  v_tokens := _memoir.keep_forms(p_user_id, v_ids, v_to, p_at);
  for i in 1 .. cardinality(p_places) loop
    v_place := p_places[i];
    if v_place.target = 0 then
      v_place.form := 0;
    elsif v_place.target = 4 or v_place.target between 1 and 3 and v_place.part_no > 0 then
      v_place.form := 24;
    elsif v_place.target <> v_place.fidelity then
      v_place.form := v_shown ->> (v_place.memory_id || '/' || v_place.target);
      if v_place.form is null then n := n + 1; v_place.form := v_tokens[n]; end if;
      if v_place.form is null or v_place.form > 0.8 * v_place.tokens then
        v_place.target := v_place.fidelity;
        v_place.form := (p_places[i]).form;
      end if;
    end if;
    p_places[i] := v_place;
  end loop;
  return p_places;
end $$;

-- What is large at birth shows in detail, or compact where that is still more than a tenth of the budget; where the
-- newest step alone takes more than half of it, its largest results are compact.
create or replace function _memoir.born_small(p_user_id uuid, p_session_id uuid, p_past _memoir.past,
  p_places _memoir.past_place[], p_at timestamptz)
returns _memoir.past_place[] language plpgsql as $$
declare
  v_over bigint; v_place record; v_changed boolean := false;
begin
  for v_place in select p.ordinality as n, p.target, case when p.target = 0 then p.tokens else p.form end as shown
    from unnest(p_places) with ordinality p
    where p.turn_index >= p_past.fresh_from and not p.pinned and p.target <= 1 order by shown desc, n loop
    v_over := coalesce(v_over, (select sum(t.cost - t.saved) from unnest(p_past.turns) t
      where t.turn_index >= p_past.fresh_from)::bigint - p_past.budget / 2);
    exit when v_place.shown <= p_past.budget / 10 and v_over <= 0 or v_place.shown < 400;
    if v_place.shown > p_past.budget / 10 and v_place.target = 1 or v_over > 0 then
      p_places[v_place.n].target := 2;
      v_changed := true;
      v_over := v_over - v_place.shown * 9 / 10;
    end if;
  end loop;
  return case when v_changed then _memoir.with_forms(p_user_id, p_session_id, p_places, p_at) else p_places end;
end $$;

-- Returns whether older steps become lines with what moves anyway: they save more over the calls to come than it costs
-- to rewrite what lies between them and the first that moves.
create or replace function _memoir.lines_pay(p_past _memoir.past, p_places _memoir.past_place[], p_config jsonb,
  p_is_deep boolean)
returns boolean language plpgsql immutable as $$
declare
  v_gains record; v_read float8 := p_config ->> 'cache_read_share';
  v_from integer := (select min(p.turn_index) from unnest(p_places) p where p.target <> p.fidelity);
begin
  select * into v_gains from _memoir.line_gains(p_past, (p_config ->> 'window_line_steps')::integer);
  return v_gains.gain > 0 and (p_is_deep or (select v_gains.gain * v_read * count(*) filter (where t.role = 'assistant')
      / 2.0 > ((p_config ->> 'cache_write_share')::float8 - v_read) * coalesce(sum(t.cost - t.saved) filter (where
        t.turn_index >= v_gains.turn_index and (v_from is null or t.turn_index < v_from)), 0)
    from unnest(p_past.turns) t));
end $$;

-- The batch: forms first; from warning on stubs, what is worth least first, then steps as lines, oldest first, down to
-- the low-water mark; what does not fit even so leaves, once nine tenths are full, and the lines say that it did.
create or replace function _memoir.move_window(p_session _memoir.sessions, p_counters _memoir.session_counters,
  p_config jsonb, p_frame _memoir.session_windows, p_past _memoir.past, p_kind text, p_at timestamptz,
  p_tokenizer text, p_fixed integer, p_kept boolean default false)
returns _memoir.session_windows language plpgsql as $$
declare
  v_frame _memoir.session_windows; v_past _memoir.past := p_past; v_user uuid := p_session.user_id;
  v_zone smallint := _memoir.zone_of(p_past.shown, p_past.budget, p_config); v_shown bigint; v_stubs integer[];
  v_lined record;
  -- At warning half full is low enough: stubs and lines say little of what they stand for.
  v_low bigint := greatest((p_config ->> 'window_low_water')::float8, case v_zone
      when 2 then least(0.5, (p_config ->> 'window_warning')::float8 - 0.2) else 0 end)
    * p_past.budget; v_places _memoir.past_place[]; v_until integer;
  -- Where the prefix is lost anyway, or room is scarce, all moves that is due; else what pays for what is rewritten.
  v_deep constant boolean := v_zone >= 2 or p_kind in ('room', 'cold', 'compaction', 'changed', 'born');
  v_message text := (_memoir.turn_seen(p_session, (select max(t.turn_index) from unnest(p_past.turns) t
    where t.role = 'user'))).content;
begin
  -- Lock the session: another call may have moved its window since p_frame was read.
  perform from _memoir.session_counters c where c.user_id = v_user and c.session_id = p_session.session_id for update;
  select * into v_frame from _memoir.session_windows w where w.user_id = v_user
    and w.session_id = p_session.session_id and w.moments <> p_frame.moments;
  if found then return v_frame; end if;
  v_frame := _memoir.next_frame(p_session, p_counters, p_frame, p_past.budget, p_kind, p_at);
  if p_kind = 'born' then
    v_past.places := array(select p from unnest(p_past.places) p
      where p.turn_index >= _memoir.newest_step(p_past) order by p.turn_index, p.call_no, p.argument);
  end if;
  v_places := _memoir.targets(v_user, p_session.session_id, v_past, p_kind, left(v_message, 4000));
  v_places := _memoir.held_back(v_past, v_places, p_config, v_deep, p_kind in ('cold', 'compaction', 'changed'));
  v_places := _memoir.with_forms(v_user, v_frame.session_id, v_places, v_frame.moved_at);
  v_places := _memoir.born_small(v_user, v_frame.session_id, v_past, v_places, v_frame.moved_at);
  v_shown := _memoir.shown_after(v_past, v_places);
  if p_kind <> 'born' and v_deep and v_zone >= 2 and v_shown > v_low then
    v_stubs := array(select x.ordinality from (
        select p.ordinality, sum(s.less) over (order by p.value, p.ordinality) - s.less as before
        from unnest(v_places) with ordinality p, lateral (select p.form - 60 - p.tokens * 8 / 100 as less) s
        where p.turn_index < v_past.fresh_from and p.target in (1, 2) and s.less > 30 and p.part_no = 0
          and not p.pinned) x where x.before < v_shown - v_low);
    for i in 1 .. cardinality(v_stubs) loop
      v_places[v_stubs[i]].target := 3;
    end loop;
    v_places := _memoir.with_forms(v_user, v_frame.session_id, v_places, v_frame.moved_at);
    v_shown := _memoir.shown_after(v_past, v_places);
    v_until := v_past.fresh_from;
  elsif p_kind <> 'born' and _memoir.lines_pay(v_past, v_places, p_config, v_deep) then
    v_until := (_memoir.line_gains(v_past, (p_config ->> 'window_line_steps')::integer)).until;
    v_low := 0;
  end if;
  if v_until is not null then
    v_lined := _memoir.with_lines(p_session, p_config, v_frame, v_past, v_places, v_low, v_until, not p_kept,
      p_tokenizer);
    v_frame := v_lined.p_frame;
    v_shown := v_lined.shown;
  end if;
  if p_kind <> 'born' then
    select * into v_frame.sent_tokens, v_frame.lost_tokens from _memoir.prefix_counts(p_session, p_past, p_frame, least(
      (select min(p.turn_index) from unnest(v_places) p where p.target <> p.fidelity),
      case when v_frame.lines_through > p_frame.lines_through then p_frame.lines_through + 1 end), p_fixed);
    v_frame.frozen_through := v_past.fresh_from - 1;
    -- A zone that was just left is not crossed again at once.
    v_frame.zone := least(_memoir.zone_of(v_shown + v_past.budget * 15 / 100, v_past.budget,
      p_config), greatest(v_zone, 1));
  end if;
  perform _memoir.store_frame(v_frame, v_places, p_kind, p_counters.turn_count, _memoir.zone_name(v_zone),
    p_past.shown, p_at);
  delete from _memoir.kept_recalls k where p_kind <> 'born' and k.user_id = v_user
    and k.session_id = p_session.session_id and k.at_turn < _memoir.recalls_until(p_counters);
  return v_frame;
end $$;

-- The frame of a new moment, before anything has moved in it; what is born reduced belongs to the last one.
create or replace function _memoir.next_frame(p_session _memoir.sessions, p_counters _memoir.session_counters,
  p_frame _memoir.session_windows, p_budget integer, p_kind text, p_at timestamptz)
returns _memoir.session_windows language plpgsql stable as $$
declare
  v_frame _memoir.session_windows := p_frame; v_through integer := coalesce(p_session.summary_through, -1);
begin
  if p_kind = 'born' then return v_frame; end if;
  v_frame.moments := v_frame.moments + 1;
  v_frame.kind := p_kind;
  v_frame.moved_at := greatest(p_at, p_frame.moved_at);
  v_frame.at_turn := p_counters.turn_count;
  v_frame.budget := p_budget;
  v_frame.task := p_session.task_type;
  v_frame.summary_through := v_through;
  if v_through >= v_frame.first_turn then
    v_frame.first_turn := v_through + 1;
    v_frame.lines_through := greatest(v_frame.lines_through, v_through);
    v_frame.opening := coalesce((_memoir.turn_seen(p_session, v_frame.first_turn)).exchange_start, v_frame.first_turn);
  end if;
  return v_frame;
end $$;

create or replace function _memoir.store_frame(p_frame _memoir.session_windows, p_places _memoir.past_place[],
  p_kind text, p_turn integer, p_zone text, p_shown integer, p_at timestamptz)
returns void language plpgsql as $$
declare
  v_user uuid := p_frame.user_id; v_session uuid := p_frame.session_id;
  v_used uuid[] := array(select o.memory_id from _memoir.session_objects o where o.user_id = v_user
    and o.session_id = v_session and o.is_used);
begin
  delete from _memoir.session_windows where user_id = v_user and session_id = v_session;
  insert into _memoir.session_windows select p_frame.*;
  -- What is part of a line is not shown itself.
  for i in 1 .. cardinality(p_places) loop
    if p_places[i].turn_index <= p_frame.lines_through then p_places[i].target := 4; end if;
  end loop;
  perform _memoir.ensure_month(v_user, p_at);
  insert into _memoir.fidelity_transitions (user_id, transition_id, recorded_at, session_id, memory_id, from_fidelity,
    to_fidelity, trigger, turn_number, pressure_zone, token_count)
  select v_user, gen_random_uuid(), p_at, v_session, p.memory_id, max(p.fidelity), max(p.target),
    case when p_kind = 'goal' then 'goal_change' when bool_or(p.over = 'released') then 'cooperative'
      when max(p.target) < max(p.fidelity) and bool_or(p.memory_id = any (v_used)) then 'access'
      when bool_or(p.asked or p.pinned) and max(p.target) < max(p.fidelity) then 'fault' else 'pressure' end,
    p_turn, p_zone, p_shown
  from unnest(p_places) p where p.target <> p.fidelity group by p.memory_id having max(p.fidelity) <> max(p.target);
  delete from _memoir.shown_forms f using unnest(p_places) p
  where f.user_id = v_user and f.session_id = v_session and f.turn_index = p.turn_index and f.call_no = p.call_no
    and f.argument = p.argument and p.target in (0, 4);
  insert into _memoir.shown_forms (user_id, session_id, turn_index, call_no, argument, memory_id, fidelity, tokens,
    reason, shown_at)
  select v_user, v_session, p.turn_index, p.call_no, p.argument, p.memory_id, p.target, p.form,
    coalesce(p.over, case when p.asked then 'asked for' end, p_kind), p_frame.moved_at
  from unnest(p_places) p where p.target between 1 and 3 and p.target <> p.fidelity
  on conflict (user_id, session_id, turn_index, call_no, argument) do update set fidelity = excluded.fidelity,
    tokens = excluded.tokens, reason = excluded.reason, shown_at = excluded.shown_at;
  update _memoir.session_objects set is_used = false
  where p_kind <> 'born' and user_id = v_user and session_id = v_session and is_used;
end $$;
