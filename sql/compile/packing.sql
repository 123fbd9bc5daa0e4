-- The recall block: candidates of all arms on one footing, chosen within the block's budget, shown grouped by session
-- and date.

-- Chooses candidates within the budget of the recall, each at one fidelity, and renders them, but for turns that the
-- list shows already. Candidates come back with what became of them.
create or replace function _memoir.recall_block(v _memoir.compile_state, p_candidates _memoir.candidate[],
  p_working text[], p_terms text[], p_weak boolean, p_breadth _memoir.breadth)
returns _memoir.recall_block language plpgsql stable as $$
declare
  v_block _memoir.recall_block; v_lines _memoir.recall_line[]; v_line _memoir.recall_line; v_copies integer[];
  v_working integer := coalesce(cardinality(p_working), 0); v_chosen integer[] := '{}'; v_all boolean; v_used integer;
  v_budget integer := v.recall_budget - v.recall_budget / 200; v_exact integer; v_pass integer := 0; v_ratio numeric;
  n integer;
begin
  v_block.tokens := 0;
  if v.recall_budget <= 0 or cardinality(p_candidates) = 0 and v_working = 0 then
    v_block.candidates := p_candidates;
    return v_block;
  end if;
  select l.lines, l.copies into v_lines, v_copies from _memoir.lines_of(v, p_candidates, p_terms, p_breadth) l;

  -- First with stored counts, then once more with the budget corrected by what the text really costs.
  loop
    select * into v_chosen, v_used, v_all from _memoir.choose(v_lines, v_budget);
    exit when v_chosen = '{}' and v_working = 0;
    v_block.text := _memoir.render_recall(v_lines, v_chosen, p_working[1 : v_working], p_weak);
    v_exact := _memoir.tokens_of(v_block.text || E'\n\n', v.tokenizer);
    exit when v_pass >= 2 or v_exact > v.recall_budget * 0.97 or v_all or v_chosen = '{}';
    v_ratio := least(1.5, (v.recall_budget * 0.995) / greatest(v_exact, 1));
    exit when v_ratio < 1.03;
    v_budget := (v_used * v_ratio)::integer;
    v_pass := v_pass + 1;
  end loop;
  -- The block is counted as it is; if that is too much, the choice is made again with so much less.
  while v_block.text is not null and v_exact > v.recall_budget loop
    if v_chosen <> '{}' then
      select c.chosen, c.used into v_chosen, v_used
      from _memoir.choose(v_lines, v_used - (v_exact - v.recall_budget)) c;
    else
      v_working := v_working - 1;
    end if;
    if v_chosen = '{}' and v_working <= 0 then v_block.text := null; exit; end if;
    v_block.text := _memoir.render_recall(v_lines, v_chosen, p_working[1 : v_working], p_weak);
    v_exact := _memoir.tokens_of(v_block.text || E'\n\n', v.tokenizer);
  end loop;

  if v_block.text is null then v_chosen := '{}'; else v_block.tokens := v_exact; end if;
  foreach n in array v_copies loop
    p_candidates[n].reason := 'a copy of another candidate';
  end loop;
  for i in 1 .. cardinality(v_chosen) loop
    v_line := v_lines[v_chosen[i]];
    p_candidates[v_line.candidate_no].position := i;
    p_candidates[v_line.candidate_no].fidelity := v_line.fidelity;
    if v_line.fidelity <> 'full' then p_candidates[v_line.candidate_no].shown := v_line.body; end if;
  end loop;
  v_block.candidates := p_candidates;
  return v_block;
end $$;

-- Returns what could be shown, at every fidelity there is, in the order in which to take it, and the candidates that
-- say what another says. Texts are read of what is worth most up to half again the budget. Short ones are shown as they
-- are or not at all.
create or replace function _memoir.lines_of(v _memoir.compile_state, p_candidates _memoir.candidate[], p_terms text[],
  p_breadth _memoir.breadth, out lines _memoir.recall_line[], out copies integer[]) language plpgsql stable as $$
declare
  v_broad boolean := p_breadth.shape is not null; v_shares jsonb := v.config -> 'fidelity_worth';
  v_locators _memoir.item_locator[]; v_doubtful integer[]; v_items integer[]; v_texts _memoir.item_text[];
  v_sessions uuid[]; v_turns _memoir.candidate[]; v_memories _memoir.candidate[]; v_refs uuid[];
  v_names _memoir.session_name[]; v_renditions _memoir.memory_renditions[]; v_reduced _memoir.reduced_text[];
begin
  select r.locators, r.doubtful into v_locators, v_doubtful from _memoir.within_reach(p_candidates, v.recall_budget,
    _memoir.message_ids(v.shown || v.unanswered, v.reduced), v_broad) r;
  select array_agg(t.item_no), array_agg((t.item_no, t.name, t.body)::_memoir.item_text) into v_items, v_texts
  from _memoir.texts_at(v.user_id, v_locators, v.clearance) t;
  if 'changes' = any ((v.user_counters).features) then
    v_texts := _memoir.with_marks(v.user_id, v_texts, v_locators, v.as_of);
  end if;
  if v_broad and p_breadth.shape <> 'even' then v_doubtful := v_items; end if;
  select array_agg(distinct c.session_id) filter (where c.kind = 't'),
    array_agg(c) filter (where c.kind = 't' and c.tokens >= case when v_broad then 16 else 60 end
      and c.item_no = any (v_doubtful)),
    array_agg(c order by c.score desc, c.item_no) filter (where c.kind = 'm' and l.is_long),
    array_agg(c.ref_id) filter (where c.kind = 'm' and l.is_long)
  into v_sessions, v_turns, v_memories, v_refs
  from unnest(p_candidates) c, lateral (select c.tokens >= 60 or c.chunk > 0 or c.memory_parts ? 'ceiling' as is_long) l
  where c.item_no = any (v_items);
  if v_sessions is not null then
    select array_agg((s.session_id, s.external_id)::_memoir.session_name) into v_names
    from _memoir.sessions s where s.user_id = v.user_id and s.session_id = any (v_sessions);
  end if;
  if v_refs is not null then
    select array_agg(r) into v_renditions
    from _memoir.memory_renditions r where r.user_id = v.user_id and r.memory_id = any (v_refs)
      and r.fidelity between 1 and 3;
    v_reduced := _memoir.reduced_memories(v_memories, v_texts, v_renditions, v_shares);
  end if;
  if v_turns is not null then
    v_reduced := v_reduced || _memoir.reduced_turns(v_turns, v_texts, (v_shares ->> 'excerpt')::float8, p_terms,
      p_breadth);
  end if;
  select l.lines, l.copies into lines, copies from _memoir.recall_lines(p_candidates, v_texts, v_names, v_reduced) l;
end $$;

-- Texts with a mark behind each clause that a later turn changed.
create or replace function _memoir.with_marks(p_user_id uuid, p_texts _memoir.item_text[],
  p_locators _memoir.item_locator[], p_as_of timestamptz)
returns _memoir.item_text[] language plpgsql stable as $$
declare
  v_change record; v_texts _memoir.item_text[] := p_texts; v_place integer; v_body text;
begin
  if not exists (select from _memoir.recall_exclusions x where x.user_id = p_user_id and x.changed
    and x.lifted_at is null) then
    return p_texts;
  end if;
  for v_change in
    select distinct l.item_no, least(x.span_start + x.span_length, l.span_start + l.span_length) - l.span_start as at
    from unnest(p_locators) l, _memoir.exclusions_of(p_user_id, l.session_id, l.turn_index) x
    where l.kind = 't' and x.changed and not x.is_doubt
      and _memoir.spans_overlap(x.span_start, x.span_length, l.span_start, l.span_length)
      and (p_as_of is null or x.recorded_at <= p_as_of)
    order by 1, 2 desc
  loop
    v_place := (select o from unnest(v_texts) with ordinality t(item_no, name, body, o)
      where t.item_no = v_change.item_no);
    continue when v_place is null;
    v_body := rtrim(left(v_texts[v_place].body, v_change.at), E' .!?,;\n');
    v_texts[v_place].body := v_body || ' (later changed)' || substr(v_texts[v_place].body, length(v_body) + 1);
  end loop;
  return v_texts;
end $$;

-- One such text.
create or replace function _memoir.marked(p_user_id uuid, p_kind "char", p_session_id uuid, p_turn integer,
  p_start integer, p_length integer, p_body text, p_as_of timestamptz)
returns text language plpgsql stable as $$
begin
  if p_kind <> 't' then return p_body; end if;
  return (_memoir.with_marks(p_user_id, array[(0, null, p_body)::_memoir.item_text], array[(0, 't', null, p_session_id,
    p_turn, null, p_start, p_length)::_memoir.item_locator], p_as_of))[1].body;
end $$;

-- Returns of a part of a long turn the sentence that holds most of the question's words, rare ones above all: it is
-- worth three quarters of the root of its share, as gold turns keep the words of answers (bench/RESULTS.md). A broad
-- recall (p_breadth) shows short lines: the sentence cut to the longest excerpt, and to a stub. For an order of events
-- that is the first sentence, which says what the turn is about.
create or replace function _memoir.reduced_turns(p_turns _memoir.candidate[], p_texts _memoir.item_text[],
  p_share float8, p_terms text[], p_breadth _memoir.breadth)
returns _memoir.reduced_text[] language plpgsql immutable as $$
declare
  v_broad boolean := p_breadth.shape is not null;
begin
  if coalesce(p_share, 0) <= 0 then return null; end if;
  return array(
  with turns as materialized (
    select c.item_no, c.turn_index, c.chunk, c.tokens, btrim(t.body, E' \n\t') as body
    from unnest(p_turns) c join unnest(p_texts) t on t.item_no = c.item_no
  ), terms as materialized (
    select t.term, (1000 * ln(1 + (n.n - d.df + 0.5) / (d.df + 0.5)) + 50)::integer as weight
    from (select distinct case when length(w) > 4 then rtrim(w, 'iy') else w end as term from unnest(p_terms) w) t,
      (select count(*)::float8 as n from turns) n,
      lateral (select count(*)::float8 as df from (select lower(body) as low from turns offset 0) l
        where strpos(l.low, t.term) > 0) d
    where p_breadth.shape is distinct from 'order'
  ), sentences as (
    -- Cut at the ends of sentences and lines: quick and rough.
    select item_no, body, btrim(unnest(parts), ' -*#=_|~') as said, generate_subscripts(parts, 1) as o
    from (select item_no, body, string_to_array(replace(replace(replace(replace(replace(body, '. ', E'.\x02'), '? ',
      E'?\x02'), '! ', E'!\x02'), '。', E'。\x02'), E'\n', E'\x02'), E'\x02') as parts from turns) l
  ), lowered as (
    select *, lower(said) as low from sentences
    where length(said) >= 20 and (v_broad or length(said) <= length(body) * 3 / 4) offset 0
  ), best as (
    select distinct on (item_no) item_no, said from lowered
    order by item_no, (select coalesce(sum(t.weight), 0) from terms t where strpos(low, t.term) > 0) desc, o
  ), shortened as (
    select t.*, l.fidelity, l.share, case when length(b.said) > l.longest
      then regexp_replace(left(b.said, l.longest), '\s+\S*$', '') else b.said end as said
    from best b join turns t on t.item_no = b.item_no,
      (values ('stub', 90, p_breadth.stub), ('excerpt', p_breadth.longest, p_breadth.excerpt))
        l(fidelity, longest, share)
    where v_broad or l.fidelity = 'excerpt'
  )
  select (item_no, fidelity, case when chunk = 0 and starts_with(body, said) then '' else '… ' end || said || ' … #'
      || turn_index,
    -- Without the line breaks, which are counted with the whole.
    case when v_broad then greatest(1, tokens * length(said) / length(body) + 6 - length(body)
      + length(replace(body, E'\n', ''))) else tokens * length(said) / length(body) + 5 end,
    case when v_broad then share else p_share * sqrt(length(said)::float8 / length(body)) end)::_memoir.reduced_text
  from shortened where not v_broad or length(said) < length(body) * 9 / 10);
end $$;

-- Returns the renditions of a memory within the ceiling of its session, at least its beginning.
create or replace function _memoir.reduced_memories(p_memories _memoir.candidate[], p_texts _memoir.item_text[],
  p_renditions _memoir.memory_renditions[], p_shares jsonb)
returns _memoir.reduced_text[] language plpgsql immutable as $$
declare
  v_names constant text[] := '{detailed, compact, stub}';
begin
  return array(
  with given as materialized (
    select c.item_no, c.ref_id, c.type, (c.memory_parts ->> 'ceiling')::smallint as ceiling, t.body,
      c.ordinality as candidate_no
    from unnest(p_memories) with ordinality c join unnest(p_texts) t on t.item_no = c.item_no
  ), reduced as (
    -- Several pieces of one memory have one rendition: it stands for the best of them.
    select distinct on (g.ref_id, f.fidelity) g.item_no, f.fidelity, f.content, f.tokens
    from given g,
      lateral (select r.fidelity, r.content, r.token_count as tokens from unnest(p_renditions) r
               where r.memory_id = g.ref_id and r.fidelity >= coalesce(g.ceiling, 0)
               union all
               select 3, g.type || ': ' || left(g.body, 80) || '…', 30
               where g.ceiling is not null and not exists (select from unnest(p_renditions) r
               where r.memory_id = g.ref_id and r.fidelity >= g.ceiling)) f
    order by g.ref_id, f.fidelity, g.candidate_no
  )
  select (item_no, v_names[fidelity], content, tokens + 30, coalesce((p_shares ->> v_names[fidelity])::float8,
    0))::_memoir.reduced_text from reduced);
end $$;

-- Returns what each item would look like at each fidelity, about cost and be worth, in the order in which to take them:
-- what is worth most per token first. A line of a higher fidelity is a step up from the one before it: it costs and is
-- worth what it adds, and takes its place. Fidelities that bring less for each token than the next one up are left out.
-- Near-identical items count once: copies are the others.
create or replace function _memoir.recall_lines(p_candidates _memoir.candidate[], p_texts _memoir.item_text[],
  p_names _memoir.session_name[],
  p_reduced _memoir.reduced_text[], out lines _memoir.recall_line[], out copies integer[])
language plpgsql stable set plan_cache_mode = force_generic_plan set enable_nestloop = off as $$
begin
  with labelled as materialized (
    select c.ordinality::integer as candidate_no, c.item_no, c.kind, c.session_id, c.turn_index, c.chunk, c.ref_id,
      c.said_at, t.body, c.tokens, c.memory_parts ? 'ceiling' as reduced,
      case when c.memory_parts ? 'pinned' then 1000 else c.worth end as worth,  -- pinned: before all else
      case when c.kind = 't' then _memoir.day(c.said_at) || ', ' || coalesce(_memoir.one_line(s.name), 'session')
      else 'Memories' end as header,
      case when c.kind = 't' then _memoir.speaker_label(c.role::text, t.name) else '' end as label,
      -- What the line adds: a date in brackets, or a colon and a role; a name is counted with its turn. Lines that are
      -- indented, and that it is the rest of a memory.
      c.tokens + case when c.kind <> 't' then 8 when t.name is null then 2 else 1 end
        + length(t.body) - length(replace(t.body, E'\n', ''))
        + case when c.kind <> 't' and c.chunk > 0 then 3 else 0 end as cost,
      row_number() over (partition by lower(btrim(t.body, E' \n\t.!?…') collate "C")
        order by (c.memory_parts ? 'pinned') is true desc, (c.memory_parts ? 'ceiling') is true, c.ordinality) as copy
    from unnest(p_candidates) with ordinality c
    join unnest(p_texts) t on t.item_no = c.item_no
    left join unnest(p_names) s on s.session_id = c.session_id
  ), full_lines as (
    select * from labelled where copy = 1
  ), levels as (
    -- Of those that cost the same the one worth most: each would rule the other out.
    select distinct on (candidate_no, cost) * from (
      select l.candidate_no, r.fidelity, r.body, r.tokens + l.cost - l.tokens as cost, l.worth * r.share as worth
      from unnest(p_reduced) r join full_lines l on l.item_no = r.item_no
      union all
      select l.candidate_no, 'full', l.body, l.cost, l.worth from full_lines l
      where l.item_no in (select r.item_no from unnest(p_reduced) r) and not coalesce(l.reduced, false)) every
    order by candidate_no, cost, worth desc, fidelity
  ), compared as (
    select *, lag(cost, 1, 0) over up as less_cost,
      coalesce(max(worth) over (up rows between unbounded preceding and 1 preceding), 0) as less_worth,
      lead(cost) over up as more_cost, lead(worth) over up as more_worth
    from levels window up as (partition by candidate_no order by cost, worth desc, fidelity)
  ), steps as (
    select candidate_no, fidelity, body, cost - lag(cost, 1, 0) over up as cost,
      worth - lag(worth, 1, 0::float8) over up as worth, row_number() over up as step
    from compared
    where worth > less_worth and cost > less_cost and (more_cost is null or more_cost > cost
      and (worth - less_worth) * (more_cost - cost) > (more_worth - worth) * (cost - less_cost))
    window up as (partition by candidate_no order by cost, worth desc, fidelity)
  ), ascending as materialized (
    -- No step is taken before the one it stands on.
    select *, min(worth / cost) over (partition by candidate_no order by step) as own from steps
  ), grouped as (
    select *, dense_rank() over (order by header collate "C")::integer as group_no, 4 + length(header) / 3 as opening
    from (select a.candidate_no, a.step, a.cost, a.worth, a.own, a.fidelity, a.body, l.kind, l.session_id, l.turn_index,
      l.chunk, l.ref_id, l.said_at, l.header, l.label
          from ascending a join full_lines l on l.candidate_no = a.candidate_no
          union all
          select candidate_no, 1, cost, worth, worth / cost, 'full', body, kind, session_id, turn_index, chunk, ref_id,
            said_at, header, label
          from full_lines where item_no not in (select r.item_no from unnest(p_reduced) r)
            and not coalesce(reduced, false)) l
  ), opened as (
    select *, sum(worth) over together / (opening + sum(cost) over together) as repaid from grouped
    window together as (partition by group_no order by own desc, candidate_no, step rows unbounded preceding)
  ), ordered as (
    -- A header is paid once: the lines that repay it best count together, at what they bring together; those after them
    -- by themselves.
    select *, least(own, max(repaid) over (partition by group_no)) as efficiency from opened
  )
  select array_agg((o.candidate_no, o.step, o.cost, o.worth, o.group_no, o.opening, o.fidelity, o.kind = 't',
    o.session_id, o.turn_index, o.chunk, o.ref_id,
      o.said_at, o.header, o.label, o.body)::_memoir.recall_line order by o.efficiency desc, o.own desc, o.candidate_no,
        o.step) as lines,
    array(select l.candidate_no from labelled l where l.copy > 1) as copies
  into lines, copies from ordered o;
end $$;

-- Which lines to show within a budget of about so many tokens, and about how many they take: each that still fits,
-- in their order; one that does not fit takes the place of the last ones if it is worth more than these. A step up
-- needs the one before it, whose place it takes: of every item one line at most. everything: there was nothing
-- more to choose.
create or replace function _memoir.choose(p_lines _memoir.recall_line[], p_budget integer, out chosen integer[],
  out used integer, out everything boolean)
language plpgsql immutable as $$
declare
  n integer := coalesce(cardinality(p_lines), 0); v_opened boolean[] := array_fill(false, array[greatest(n, 1)]);
  v_line _memoir.recall_line; v_lines integer[] := '{}'; v_below integer[] := '{}';
  v_cost integer; v_freed integer; v_lost float8; v_last integer; v_least integer; v_one integer;
begin
  chosen := '{}';
  used := 22;  -- the fence
  for i in 1 .. n loop
    v_line := p_lines[i];
    v_least := 0;
    if v_line.step > 1 then
      v_below[i] := v_lines[v_line.candidate_no];
      v_least := array_position(chosen, v_below[i]);
    end if;
    v_lines[v_line.candidate_no] := i;
    continue when v_least is null;
    v_cost := v_line.cost + case when v_opened[v_line.group_no] then 0 else v_line.opening end;
    v_freed := 0; v_lost := 0; v_last := cardinality(chosen);
    while used + v_cost - v_freed > p_budget and v_last > v_least and v_lost < v_line.worth loop
      v_freed := v_freed + (p_lines[chosen[v_last]]).cost;
      v_lost := v_lost + (p_lines[chosen[v_last]]).worth;
      v_last := v_last - 1;
    end loop;
    if used + v_cost - v_freed <= p_budget and v_lost < v_line.worth then
      used := used + v_cost - v_freed;
      chosen := chosen[1 : v_last] || i;
      v_opened[v_line.group_no] := true;
    end if;
  end loop;
  everything := cardinality(chosen) = n;
  foreach v_one in array chosen loop
    if v_below[v_one] is not null then chosen := array_remove(chosen, v_below[v_one]); end if;
  end loop;
end $$;

-- Memories first, then turns by session in the order in which they were said, under one date header per session and
-- day. What is not shown whole says so: … for what is left out, #12 for the turn that it is in, the id of a memory.
create or replace function _memoir.render_recall(p_lines _memoir.recall_line[], p_chosen integer[], p_working text[],
  p_weak boolean default false)
returns text language plpgsql stable as $$
begin
  return (
  with lines as (
    select l.candidate_no as rank, l.fidelity, l.is_turn, l.session_id, l.turn_index, l.chunk, l.ref_id, l.said_at,
      l.header, l.label, _memoir.indented(l.body) as body
    from unnest(p_lines) with ordinality l where l.ordinality = any (p_chosen)
  ), ordered as (
    select *, min(said_at) over (partition by session_id, header) as opened,
      lag(ref_id) over o as before_ref, lag(chunk) over o as before_chunk, lag(fidelity) over o as before_fidelity,
        row_number() over o as line_no
    from lines window o as (partition by is_turn, session_id, header order by turn_index, chunk, rank)
  ), groups as (
    select is_turn, opened, session_id, header, header || E':\n' || string_agg(
      case when not is_turn then '- ' || case when fidelity = 'full' and chunk > 0 then '… ' else '' end || body
        || ' (' || _memoir.day(said_at) || case when fidelity <> 'full' then ', ' || fidelity || ' of memory ' || ref_id
          else '' end || ')'
           else case when ref_id is distinct from before_ref then label || ': ' else '  ' end
             || case when fidelity = 'full' and chunk > 0 and (ref_id = before_ref and chunk = before_chunk + 1
               and before_fidelity = 'full') is not true then '… ' else '' end
             || body end, E'\n' order by line_no) as text
    from ordered group by is_turn, opened, session_id, header
  )
  select _memoir.fence('recall', concat_ws(E'\n', case when p_weak and p_chosen <> '{}' then _memoir.weak_note() end,
    _memoir.neutralise(concat_ws(E'\n',
    (select E'Working notes:\n' || string_agg('- ' || _memoir.indented(w), E'\n' order by o)
     from unnest(p_working) with ordinality t(w, o)),
    (select string_agg(text, E'\n' order by is_turn, opened, session_id, header) from groups))))));
end $$;
