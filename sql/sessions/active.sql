-- Recalls that are kept beside the turns for a while: the recall of an open exchange, passages that a question found.
-- All of it goes with what it shows.

-- Returns the additions to a message without their texts: others stand where these stood. told: pairs of JSON, what a
-- call or its answer said and what says nothing in its place.
create or replace function _memoir.without_texts(p_added jsonb)
returns jsonb language plpgsql immutable as $$
declare
  v_text text := (case when p_added ? 'tail' then jsonb_set(p_added, '{tail}', '"[withdrawn]"') - 'profile'
    else p_added end)::text; v_pair jsonb;
begin
  -- Within a JSON text they are escaped once more.
  for v_pair in select * from jsonb_array_elements(p_added -> 'told') loop
    v_text := replace(v_text, regexp_replace((v_pair -> 0)::text, '^"|"$', '', 'g'),
      regexp_replace((v_pair -> 1)::text, '^"|"$', '', 'g'));
  end loop;
  return v_text::jsonb;
end $$;

-- What recalls of a space's members show of it goes as well. They name the space beside its items.
create or replace function _memoir.drop_in_members(p_user_id uuid, p_items text[])
returns void language plpgsql as $$
declare
  v_member uuid;
begin
  for v_member in select m.member_id from _memoir.space_members m where m.user_id = p_user_id loop
    delete from _memoir.kept_recalls where user_id = v_member and items ? p_user_id::text
      and (p_items is null or items ?| p_items);
    update _memoir.client_messages set added = _memoir.without_texts(added) where user_id = v_member
      and items ? p_user_id::text and (p_items is null or items ?| p_items);
  end loop;
end $$;

-- p_items: ids of what leaves recall; null: everything may have changed. Lines of steps may name it, and are made anew.
create or replace function _memoir.drop_recalled(p_user_id uuid, p_items text[])
returns void language plpgsql as $$
begin
  perform _memoir.drop_in_members(p_user_id, p_items);
  delete from _memoir.kept_recalls where user_id = p_user_id and (p_items is null or items ?| p_items);
  delete from _memoir.query_answers where user_id = p_user_id and (p_items is null or items ?| p_items);
  update _memoir.fault_history set question = null, answer = null, items = null
  where user_id = p_user_id and items is not null and (p_items is null or items ?| p_items);
  update _memoir.session_windows set lines = null where user_id = p_user_id and lines <> '{}';
end $$;

-- The rows that count, in order: the session's own, and those of sessions it branched from as far as they share turns.
create or replace function _memoir.live_compactions(p_session _memoir.sessions, p_as_of timestamptz default null)
returns setof _memoir.compactions language plpgsql stable as $$
declare
  v_user uuid := p_session.user_id; v_sessions uuid[]; v_ends integer[]; v_rows _memoir.compactions[];
  v_kept int4multirange := _memoir.kept_exchanges(p_session);
begin
  select array_agg(l.session_id), array_agg(l.to_turn) into v_sessions, v_ends from _memoir.lineage(p_session) l;
  select array_agg(c) into v_rows from _memoir.compactions c
  where c.user_id = v_user and c.session_id = any (v_sessions) and c.undone_at is null and c.level > 0
    and c.to_turn <= v_ends[array_position(v_sessions, c.session_id)] and (p_as_of is null or c.recorded_at <= p_as_of)
    and not v_kept && int4range(c.from_turn, c.to_turn + 1);
  return query
  select r.* from unnest(v_rows) r
  where not exists (select from unnest(v_rows) o where o.from_turn <= r.from_turn and o.to_turn >= r.to_turn
    and (o.from_turn < r.from_turn or o.to_turn > r.to_turn or (o.level, o.recorded_at, o.compaction_id) > (r.level,
      r.recorded_at, r.compaction_id)))
  order by r.from_turn, r.compaction_id;
end $$;

-- Turns that compaction leaves alone: the whole exchanges of what is pinned.
create or replace function _memoir.kept_exchanges(p_session _memoir.sessions)
returns int4multirange language plpgsql stable as $$
declare
  v_user uuid := p_session.user_id; v_pin record; v_part record; v_first integer; v_next integer;
  v_kept int4multirange := '{}';
begin
  for v_pin in select * from _memoir.pinned_turns(v_user, p_session.session_id) loop
    v_first := coalesce((_memoir.turn_seen(p_session, v_pin.from_turn)).exchange_start, v_pin.from_turn);
    select l.*, c.turn_count into v_part
    from _memoir.lineage(p_session) l join _memoir.session_counters c on c.user_id = v_user
      and c.session_id = l.session_id
    where v_pin.to_turn between l.from_turn and l.to_turn;
    select min(h.turn_index) into v_next from _memoir.conversation_history h
    where h.user_id = v_user and h.session_id = v_part.session_id
      and h.recorded_at between v_part.since and v_part.until
      and h.turn_index > v_pin.to_turn and h.turn_index = h.exchange_start;
    v_kept := v_kept + int4multirange(int4range(v_first,
      greatest(v_pin.to_turn + 1, least(coalesce(v_next, v_part.turn_count), v_part.to_turn))));
  end loop;
  return v_kept;
end $$;

-- Returns what counts, joined, and how far it reaches.
create or replace function _memoir.summary_of(p_session _memoir.sessions, p_as_of timestamptz, out summary text,
  out through integer)
language plpgsql stable as $$
declare
  v_row _memoir.compactions; v_kept int4multirange := _memoir.kept_exchanges(p_session);
begin
  through := -1;
  for v_row in select * from _memoir.live_compactions(p_session, p_as_of) loop
    continue when v_row.to_turn <= through;
    -- Only what is kept may stand between two rows.
    exit when v_row.from_turn > through + 1 and not v_kept @> int4range(through + 1, v_row.from_turn);
    summary := concat_ws(E'\n', summary, v_row.summary_text);
    through := v_row.to_turn;
  end loop;
  if through < 0 then through := null; end if;
end $$;

-- Brings a session, and the branches that share its turns, in line with the rows that count: text, reach, and which
-- summaries are found by search. Under the user's lock.
create or replace function _memoir.refresh_summary(p_user_id uuid, p_session_id uuid)
returns void language plpgsql as $$
declare
  v_session _memoir.sessions; v_now record; v_live uuid[];
begin
  for v_session in with recursive tree as (
      select s.session_id, 0 as depth from _memoir.sessions s where s.user_id = p_user_id
        and s.session_id = p_session_id
      union all
      select b.session_id, t.depth + 1 from tree t join _memoir.sessions b on b.user_id = p_user_id
        and b.parent_session_id = t.session_id and b.parent_turn is not null
      where t.depth < 64)
    select s.* from tree t join _memoir.sessions s on s.user_id = p_user_id and s.session_id = t.session_id
    order by t.depth loop
    select * into v_now from _memoir.summary_of(v_session, null);
    update _memoir.sessions s set summary_text = v_now.summary, summary_through = v_now.through
    where s.user_id = p_user_id and s.session_id = v_session.session_id
      and (s.summary_text is distinct from v_now.summary or s.summary_through is distinct from v_now.through);
    v_live := array(select l.compaction_id from _memoir.live_compactions(v_session) l)
      || array(select c.compaction_id from _memoir.compactions c where c.user_id = p_user_id
        and c.session_id = v_session.session_id and c.level = 0 and c.undone_at is null);
    update _memoir.search_items i set dead = i.ref_id <> all (v_live)
    from _memoir.compactions c
    where c.user_id = p_user_id and c.session_id = v_session.session_id and i.user_id = p_user_id
      and i.ref_id = c.compaction_id
      and i.dead is distinct from (i.ref_id <> all (v_live));
  end loop;
end $$;

-- Undoes the summaries of sessions that have these turns, parallel arrays: their own, and those of branches that share
-- them. Returns them, by the id of the session where the whole of one's text went. What still counts is joined anew by
-- the job summaries, and until then the list has turns in its place. Under the user's lock.
create or replace function _memoir.undo_summaries(p_user_id uuid, p_sessions uuid[], p_turns integer[],
  p_at timestamptz)
returns uuid[] language plpgsql as $$
declare
  v_summaries uuid[];
begin
  with recursive tree as (
    select u.session_id, u.turn_index from unnest(p_sessions, p_turns) u(session_id, turn_index)
    union
    select b.session_id, t.turn_index from tree t
    join _memoir.sessions b on b.user_id = p_user_id and b.parent_session_id = t.session_id
      and b.parent_turn > t.turn_index),
  undone as (update _memoir.compactions c set undone_at = p_at from tree h
    where c.user_id = p_user_id and c.session_id = h.session_id and h.turn_index between c.from_turn and c.to_turn
      and c.undone_at is null
    returning c.compaction_id),
  emptied as (update _memoir.sessions x set summary_text = null, summary_through = null from tree h
    where x.user_id = p_user_id and x.session_id = h.session_id and h.turn_index <= x.summary_through
    returning x.session_id)
  select array(select compaction_id from undone union select session_id from emptied) into v_summaries;
  if v_summaries = '{}' then return v_summaries; end if;
  update _memoir.search_items set dead = true where user_id = p_user_id and ref_id = any (v_summaries) and kind = 's'
    and not dead;
  perform _memoir.enqueue_unlocked('summary_refresh', p_user_id, s.session_id::text, p_at) from _memoir.sessions s
  where s.user_id = p_user_id and (s.session_id = any (v_summaries) or s.session_id in (select c.session_id
    from _memoir.compactions c where c.user_id = p_user_id and c.compaction_id = any (v_summaries)));
  return v_summaries;
end $$;
