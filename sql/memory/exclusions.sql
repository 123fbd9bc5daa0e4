-- Spans of turns that are taken out of recall, or marked as changed there: with what repeats them, the summaries that
-- hold them, and what is left of the turns.

-- Excludes spans of turns, or marks them as changed, by one turn. The rest of a turn of which a part was taken out is
-- indexed anew. Summaries that hold the spans are undone, and so are kept recalls.
create or replace function _memoir.exclude_units(p_user_id uuid, p_units _memoir.said_unit[], p_changed boolean,
  p_change uuid, p_turn _memoir.conversation_history, p_reason text, p_at timestamptz)
returns void language plpgsql as $$
declare
  v_refs uuid[] := array(select u.message_id from unnest(p_units) u); v_item _memoir.search_items;
  v_turn _memoir.conversation_history; v_piece int4range; v_text text; v_new _memoir.search_items[]; v_texts text[];
  v_config jsonb := _memoir.config(p_user_id, null);
begin
  -- Where it is sure now, it is no longer in doubt.
  update _memoir.recall_exclusions x set lifted_at = p_at from unnest(p_units) u
  where x.user_id = p_user_id and x.session_id = u.session_id and x.turn_index = u.turn_index and x.is_doubt
    and x.lifted_at is null and _memoir.spans_overlap(x.span_start, x.span_length, u.span_start, u.span_length);
  insert into _memoir.recall_exclusions (user_id, session_id, turn_index, exclusion_id, span_start, span_length, reason,
    recorded_at, changed, change_id, by_session, by_turn)
  select p_user_id, u.session_id, u.turn_index, gen_random_uuid(), u.span_start, u.span_length, p_reason, p_at,
    p_changed, p_change, p_turn.session_id, p_turn.turn_index
  from (select distinct session_id, turn_index, span_start, span_length from unnest(p_units)) u
  where not exists (select from _memoir.exclusions_of(p_user_id, u.session_id, u.turn_index) x
    where x.changed = p_changed and not x.is_doubt and (x.span_start is null or x.span_start <= u.span_start
      and x.span_start + x.span_length >= u.span_start + u.span_length));
  if not p_changed then
    update _memoir.search_items i set dead = true from unnest(p_units) u
    where i.user_id = p_user_id and i.ref_id = u.message_id and not i.dead
      and _memoir.spans_overlap(i.span_start, i.span_length, u.span_start, u.span_length);
    for v_item in
      select i.* from _memoir.search_items i where i.user_id = p_user_id and i.ref_id = any (v_refs) and i.kind = 't'
        and i.dead and not exists (select from _memoir.search_items p where p.user_id = p_user_id
          and p.ref_id = i.ref_id and p.item_no <> i.item_no and p.span_start <= i.span_start
          and p.span_start + p.span_length >= i.span_start + i.span_length and p.span_length > i.span_length)
      order by i.item_no loop
      select * into v_turn from _memoir.conversation_history h where h.user_id = p_user_id
        and h.session_id = v_item.session_id and h.turn_index = v_item.turn_index
        and h.recorded_at = v_item.recorded_at;
      -- Pieces that an earlier one left are made anew.
      update _memoir.search_items p set dead = true where p.user_id = p_user_id and p.ref_id = v_item.ref_id
        and not p.dead and p.item_no <> v_item.item_no and p.span_start >= v_item.span_start
        and p.span_start + p.span_length <= v_item.span_start + v_item.span_length;
      v_new := '{}'; v_texts := '{}';
      foreach v_piece in array array(select r from unnest(
          int4multirange(int4range(v_item.span_start, v_item.span_start + v_item.span_length))
          - (select coalesce(range_agg(case when x.span_start is null then '[1,)'
               else int4range(x.span_start, x.span_start + x.span_length) end), '{}')
             from _memoir.exclusions_of(p_user_id, v_item.session_id, v_item.turn_index) x where not x.changed)) r) loop
        v_text := substr(v_turn.content, lower(v_piece), upper(v_piece) - lower(v_piece));
        continue when v_text !~ '[[:alnum:]]+[^[:alnum:]]+[[:alnum:]]{2}';
        v_item.span_start := lower(v_piece);
        v_item.span_length := length(v_text);
        v_item.dead := false;
        v_item.token_count := _memoir.estimate_tokens(v_text);
        v_new := array_append(v_new, v_item);
        v_texts := array_append(v_texts, v_text);
      end loop;
      if v_new <> '{}' then perform _memoir.add_items(p_user_id, v_new, v_texts, v_turn.recorded_at, v_config); end if;
    end loop;
    perform _memoir.release_echoes(p_user_id, v_refs);
  end if;
  perform _memoir.undo_summaries(p_user_id, array_agg(u.session_id), array_agg(u.turn_index), p_at)
    from unnest(p_units) u;
  perform _memoir.drop_recalled(p_user_id, v_refs::text[]);
end $$;

-- Which of these memories were made of what is in doubt, and where what was said since stands.
create or replace function _memoir.memory_doubts(p_user_id uuid, p_memories uuid[])
returns table (memory_id uuid, recorded_at timestamptz, by_session uuid, by_turn integer, by_start integer,
  by_length integer) language plpgsql stable as $$
begin
  return query
  select distinct s.item_id, x.recorded_at, x.by_session, x.by_turn, x.by_start, x.by_length
  from _memoir.memory_sources s, _memoir.exclusions_of(p_user_id, s.session_id, s.turn_index) x
  where s.user_id = p_user_id and s.item_kind = 'memory' and s.item_id = any (p_memories) and s.source_kind = 'turn'
    and x.is_doubt and _memoir.spans_overlap(x.span_start, x.span_length, s.span_start, s.span_length);
end $$;

-- The profile as it is shown: behind a line that is likely over stand the newer words, both dated, if every clearance
-- and project may see them.
create or replace function _memoir.profile_shown(p_user_id uuid, p_counters _memoir.user_counters, p_version integer,
  out content text, out memory_ids uuid[], out left_out uuid[])
language plpgsql stable as $$
declare
  v_places _memoir.item_locator[]; v_line record;
begin
  select p.content, p.memory_ids, p.left_out into content, memory_ids, left_out
  from _memoir.profile_in_force(p_user_id, p_version) p where p.content <> '';
  if not found or 'changes' <> all (p_counters.features) then return; end if;
  v_places := array(
    select distinct (i.item_no, i.kind, i.ref_id, i.session_id, i.turn_index, i.recorded_at, i.span_start,
      i.span_length)::_memoir.item_locator
    from _memoir.memory_doubts(p_user_id, memory_ids) d
    join _memoir.search_items i on i.user_id = p_user_id and i.session_id = d.by_session and i.turn_index = d.by_turn
    where i.kind = 't' and not i.dead and i.sensitivity = 'normal' and i.project = 'global');
  if v_places = '{}' then return; end if;
  content := E'\n' || content || E'\n';
  for v_line in select distinct on (m.memory_id) E'\n- ' || _memoir.one_line(m.content) as line,
      _memoir.day(coalesce((m.metadata ->> 'said_at')::timestamptz, m.recorded_at)) as said_on,
      _memoir.day(n.created_at) as since, _memoir.one_line(rtrim(substr(t.body, d.by_start - i.span_start + 1,
        d.by_length), E' .!?,;\n')) as said
    from _memoir.memory_doubts(p_user_id, memory_ids) d
    join unnest(v_places) i on i.session_id = d.by_session and i.turn_index = d.by_turn and i.span_start <= d.by_start
      and i.span_start + i.span_length >= d.by_start + d.by_length
    join _memoir.search_items n on n.user_id = p_user_id and n.item_no = i.item_no
    join _memoir.texts_at(p_user_id, v_places, 'normal') t on t.item_no = i.item_no
    join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = d.memory_id
    order by m.memory_id, d.recorded_at desc, t.item_no loop
    content := replace(content, v_line.line || E'\n', format(E'%s (said on %s; on %s: "%s")\n', v_line.line,
      v_line.said_on, v_line.since, v_line.said));
  end loop;
  content := btrim(content, E'\n');
end $$;

-- Returns the memories made of what was said. p_ways: also ways to do something, which outcomes end and no later words.
create or replace function _memoir.memories_from(p_user_id uuid, p_units _memoir.said_unit[], p_ways boolean)
returns uuid[] language plpgsql stable as $$
begin
  return array(select distinct m.memory_id from unnest(p_units) u
    join _memoir.memory_sources s on s.user_id = p_user_id and s.source_kind = 'turn' and s.source_id = u.message_id
      and s.item_kind = 'memory' and (s.span_start is null
        or _memoir.spans_overlap(s.span_start, s.span_length, u.span_start, u.span_length))
    join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = s.item_id and m.state = 'active'
      and not m.is_object and (p_ways or m.type <> all (_memoir.experience_types())));
end $$;

-- Returns what others said of a value that is over, in the exchange that named it and since: the assistant's echo.
create or replace function _memoir.echoes_of(p_unit _memoir.said_unit, p_olds text[],
  p_turn _memoir.conversation_history)
returns _memoir.said_unit[] language plpgsql stable as $$
declare
  v_olds text[] := array(select o from unnest(p_olds) o where length(o) > 1 or o ~ '\d');
  v_locators _memoir.item_locator[];
  v_values text[] := array(select btrim(w) from unnest(v_olds) o,
    regexp_replace(lower(translate(o, '’', '''')), '[^[:alnum:]'']+', ' ', 'g') w);
begin
  if v_olds = '{}' then return '{}'; end if;
  v_locators := _memoir.items_before(p_turn, _memoir.query_terms('english', array_to_string(v_olds, ' ')),
    '{assistant}', 8);
  return array(
    select (l.ref_id, l.session_id, l.turn_index, l.recorded_at, i.created_at, i.role, l.span_start + m.span_start - 1,
      length(m.said), m.said, null, false)::_memoir.said_unit
    from _memoir.texts_at(p_turn.user_id, v_locators, 'secret') t
    join unnest(v_locators) l on l.item_no = t.item_no
    join _memoir.search_items i on i.user_id = p_turn.user_id and i.item_no = l.item_no
    -- Sentences in which one of the values stands, its words as they are among others.
    cross join lateral _memoir.sentences(left(t.body, 20000)) m
    where exists (select from unnest(v_values) v where strpos(' ' || regexp_replace(
        lower(translate(m.said, '’', '''')), '[^[:alnum:]'']+', ' ', 'g') || ' ', ' ' || v || ' ') > 0)
      and (l.session_id = p_unit.session_id and l.turn_index = p_unit.turn_index + 1
        or exists (select from unnest(v_olds) o where o ~ '[[:upper:]]|\d\d') and i.created_at >= p_unit.created_at));
end $$;
