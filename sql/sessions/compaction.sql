-- Compaction: old turns of a long session give way to a summary, as a range beside them. Turns stay as they are.
--   level 0   a summary of the whole session, to be searched; hides nothing
--   level 1   whole exchanges, up to compaction_tokens of them, in one row
--   level 2+  rows of a lower level that had piled up, in fewer words
-- A row counts as long as it is not undone, covers nothing pinned, and no wider, higher or later one covers its range.
-- sessions.summary_text is what counts, joined; sessions.summary_through is how far it reaches without a gap, and the
-- window begins behind it.

-- One row with its summary, and the items it is found by. Under the session's and the user's lock.
create or replace function _memoir.add_compaction(p_row _memoir.compactions, p_session _memoir.sessions,
  p_said_at timestamptz, p_config jsonb)
returns void language plpgsql as $$
declare
  v_item _memoir.search_items; v_items _memoir.search_items[] := '{}'; v_texts text[] := '{}'; v_chunk record;
  v_count integer := 0;
begin
  -- As it is kept: one head line, then lines "- who: what"; whatever else begins a line is indented.
  p_row.summary_text := regexp_replace(_memoir.visible(p_row.summary_text), '\n(?!- |\n|$)', E'\n  ', 'g');
  insert into _memoir.compactions select p_row.*;
  v_item.ref_id := p_row.compaction_id; v_item.session_id := p_row.session_id; v_item.created_at := p_said_at;
  v_item.kind := 's';
  v_item.is_question := false; v_item.project := p_session.project;
  for v_chunk in select * from _memoir.chunks(p_row.summary_text, (p_config ->> 'chunk_tokens')::integer) loop
    v_item.span_start := v_chunk.span_start; v_item.span_length := v_chunk.span_length;
    v_item.token_count := v_chunk.tokens; v_item.chunk := v_count;
    v_item.embeddable := v_count < (p_config ->> 'embed_chunks_max')::integer;
    v_items := array_append(v_items, v_item); v_texts := array_append(v_texts, v_chunk.piece); v_count := v_count + 1;
  end loop;
  perform _memoir.add_items(p_row.user_id, v_items, v_texts, p_row.recorded_at, p_config);
  if p_config ->> 'llm_provider' <> 'none' and p_row.made_by = 'extract' then
    perform _memoir.enqueue('summarise', p_row.user_id, p_row.compaction_id::text,
      jsonb_build_object('session_id', p_row.session_id));
  end if;
end $$;

-- The stretch to compact next, whole exchanges from the first turn no row covers, or null: so many that p_target tokens
-- remain behind it, at most p_most. The running exchange is never part of it, nor what is kept, nor (p_again false)
-- what was undone.
create or replace function _memoir.compaction_range(p_session _memoir.sessions, p_counters _memoir.session_counters,
  p_target bigint, p_most bigint, p_again boolean, out from_turn integer, out to_turn integer)
language plpgsql stable as $$
declare
  v_user uuid := p_session.user_id; v_done int4multirange; v_part record; v_turn record; v_start integer;
  v_begun bigint; v_free integer; v_over boolean := false;
begin
  select coalesce(range_agg(int4range(c.from_turn, c.to_turn + 1)), '{}') into v_done
  from _memoir.live_compactions(p_session) c;
  v_done := v_done + _memoir.kept_exchanges(p_session);
  v_free := coalesce((select lower(g) from unnest('{[0,)}'::int4multirange - v_done) g order by lower(g) limit 1), 0);
  if not p_again and exists (select from _memoir.compactions c where c.user_id = v_user
    and c.session_id = p_session.session_id and c.level > 0
      and c.undone_at is not null and c.metadata ? 'undone_by' and v_free between c.from_turn and c.to_turn) then
    return;  -- and what lies behind it could not be hidden by the window
  end if;
  for v_part in select * from _memoir.lineage(p_session) l where l.to_turn >= v_free order by l.from_turn loop
    for v_turn in select h.turn_index, h.tokens_before, h.exchange_start from _memoir.conversation_history h
      where h.user_id = v_user and h.session_id = v_part.session_id and h.turn_index = h.exchange_start
        and h.recorded_at between v_part.since and v_part.until
        and h.turn_index between greatest(v_part.from_turn, v_free) and least(v_part.to_turn, p_counters.exchange_start)
      order by h.turn_index loop
      -- Every exchange start is a place where the stretch may end.
      if v_start is not null and v_turn.turn_index > v_start then
        exit when to_turn is not null and (v_turn.tokens_before - v_begun > p_most or v_over);
        to_turn := v_turn.turn_index - 1;
        v_over := p_counters.tokens - v_turn.tokens_before <= p_target;
        exit when v_done @> v_turn.turn_index;
      end if;
      if v_start is null and not v_done @> v_turn.turn_index then
        v_start := v_turn.turn_index; v_begun := v_turn.tokens_before;
      end if;
    end loop;
  end loop;
  from_turn := case when to_turn is not null then v_start end;
end $$;

-- Takes the locks of writers and asks again whether what was read without them still stands: no compaction, no turn
-- excluded or marked meanwhile.
create or replace function _memoir.lock_for_summary(p_session _memoir.sessions, p_from integer, p_to integer,
  p_excluded bigint, p_by text)
returns boolean language plpgsql as $$
declare
  v_user uuid := p_session.user_id;
begin
  if p_by in ('compaction', 'summaries', 'archive') then  -- a job's
    if not _memoir.try_lock(v_user, p_session.session_id) then return false; end if;
  else
    perform from _memoir.session_counters where user_id = v_user and session_id = p_session.session_id for update;
    perform from _memoir.user_counters where user_id = v_user for update;
  end if;
  return exists (select from _memoir.sessions s where s.user_id = v_user and s.session_id = p_session.session_id
      and s.summary_through is not distinct from p_session.summary_through and s.summary_text is not distinct
        from p_session.summary_text)
    and _memoir.count_excluded(p_session, p_from, p_to) = p_excluded;
end $$;

create or replace function _memoir.count_excluded(p_session _memoir.sessions, p_from integer, p_to integer)
returns bigint language plpgsql stable as $$
declare
  v_user uuid := p_session.user_id; v_sessions uuid[] := array(select l.session_id from _memoir.lineage(p_session) l);
begin
  return (select count(*) from _memoir.recall_exclusions e
      where e.user_id = v_user and e.session_id = any (v_sessions) and e.turn_index between p_from and p_to
        and e.lifted_at is null and not e.is_doubt)
    + (select count(*) from _memoir.turn_marks m where m.user_id = v_user and m.session_id = any (v_sessions)
      and m.turn_index between p_from and p_to and m.mark <> 'annotated');
end $$;

-- Summarises a stretch into one row of level 1; null when somebody changed what it is made from meanwhile.
create or replace function _memoir.compact_range(p_session _memoir.sessions, p_from integer, p_to integer,
  p_config jsonb, p_by text)
returns _memoir.compactions language plpgsql as $$
declare
  v_row _memoir.compactions; v_read record;
  v_budget integer; v_tokenizer text := _memoir.tokenizer_used(p_session.tokenizer); v_now timestamptz := memoir.now();
  v_excluded bigint := _memoir.count_excluded(p_session, p_from, p_to);
begin
  select * into v_read from _memoir.turns_to_summarise(p_session, p_from, p_to);
  if v_read.tokens is null then return null; end if;
  v_budget := greatest(40, least(v_read.tokens / (p_config ->> 'compaction_ratio')::real,
    (p_config ->> 'summary_tokens')::integer / 2))::integer;
  v_row.user_id := p_session.user_id; v_row.session_id := p_session.session_id;
  v_row.compaction_id := gen_random_uuid();
  v_row.from_turn := p_from; v_row.to_turn := p_to; v_row.level := 1; v_row.made_by := 'extract';
  v_row.recorded_at := v_now;
  v_row.summary_text := _memoir.extract('{}', v_read.turns, true,
    _memoir.summary_head(v_read.first_at, v_read.last_at), v_budget, v_tokenizer,
    (p_config ->> 'text_search_config')::regconfig);
  v_row.sources := jsonb_build_array(jsonb_build_object('session_id', p_session.session_id, 'from_turn', p_from,
    'to_turn', p_to));
  v_row.metadata := jsonb_build_object('by', p_by, 'tokens', v_read.tokens, 'summary_tokens',
    _memoir.tokens_of(v_row.summary_text, v_tokenizer), 'tokenizer', v_tokenizer);
  if not _memoir.lock_for_summary(p_session, p_from, p_to, v_excluded, p_by) then return null; end if;
  perform _memoir.add_compaction(v_row, p_session, v_read.last_at, p_config);
  return v_row;
end $$;

create or replace function _memoir.summary_head(p_first timestamptz, p_last timestamptz)
returns text language sql stable as $$
  select _memoir.day(p_first) || case when _memoir.day(p_first) <> _memoir.day(p_last) then ' to '
    || _memoir.day(p_last) else '' end || ':'
$$;

-- While the rows that count are longer than summary_tokens together, the oldest neighbours become one of a higher
-- level, in half the words. Under the locks. Returns how many were made.
create or replace function _memoir.raise_summaries(p_session _memoir.sessions, p_config jsonb)
returns integer language plpgsql as $$
declare
  v_rows _memoir.compactions[]; v_tokens integer[]; v_row _memoir.compactions; v_from integer; v_to integer;
  v_made integer := 0; v_bodies text[]; v_head text; v_tokenizer text := _memoir.tokenizer_used(p_session.tokenizer);
  v_most integer := (p_config ->> 'summary_tokens')::integer; v_sum integer; v_last timestamptz;
begin
  loop
    v_rows := array(select c from _memoir.live_compactions(p_session) c where c.session_id = p_session.session_id);
    v_tokens := _memoir.count_tokens(array(select r.summary_text from unnest(v_rows) r), v_tokenizer);
    v_sum := (select coalesce(sum(t), 0) from unnest(v_tokens) t);
    exit when v_sum <= v_most or v_made >= 16;
    -- Two to four neighbours, the oldest first; a row that stands alone between kept turns is shortened by itself.
    v_from := null;
    for i in 1 .. cardinality(v_rows) - 1 loop
      if (v_rows[i + 1]).from_turn = (v_rows[i]).to_turn + 1 then v_from := i; exit; end if;
    end loop;
    v_from := coalesce(v_from, 1); v_to := v_from;
    while v_to < cardinality(v_rows) and v_to < v_from + 3 and (v_rows[v_to + 1]).from_turn = (v_rows[v_to]).to_turn + 1
      loop v_to := v_to + 1; end loop;
    select array_agg(l order by o) filter (where l like '- %'),
      (array_agg(split_part(l, ' to ', 1) order by o) filter (where l ~ '^\d'))[1] into v_bodies, v_head
    from unnest(v_rows[v_from : v_to]) with ordinality r,
      lateral regexp_split_to_table(r.summary_text, '\n') with ordinality x(l, m),
        lateral (select r.ordinality * 100000 + x.m as o) y;
    v_row := v_rows[v_to];
    v_head := rtrim(coalesce(v_head, ''), ':') || coalesce(' to ' || substring(v_row.summary_text
      from '^(?:[^\n]* to )?(\d+ \w+ \d{4}):'), '') || ':';
    v_row.compaction_id := gen_random_uuid(); v_row.from_turn := (v_rows[v_from]).from_turn;
    v_row.recorded_at := memoir.now(); v_row.made_by := 'extract';
    v_row.level := (select max(r.level) + 1 from unnest(v_rows[v_from : v_to]) r);
    v_row.sources := (select jsonb_agg(jsonb_build_object('compaction_id', r.compaction_id))
      from unnest(v_rows[v_from : v_to]) r);
    v_sum := (select sum(t) from unnest(v_tokens[v_from : v_to]) t);
    v_row.summary_text := _memoir.extract(coalesce(v_bodies, array[v_row.summary_text]), '[]', false,
      v_head, greatest(24, v_sum / 2), v_tokenizer, (p_config ->> 'text_search_config')::regconfig);
    v_row.metadata := jsonb_build_object('tokens', (select sum((r.metadata ->> 'tokens')::bigint)
      from unnest(v_rows[v_from : v_to]) r),
      'summary_tokens', _memoir.tokens_of(v_row.summary_text, v_tokenizer), 'tokenizer', v_tokenizer);
    v_last := (select max(i.created_at) from _memoir.search_items i where i.user_id = p_session.user_id
      and i.ref_id = any (array(select r.compaction_id from unnest(v_rows[v_from : v_to]) r)));
    perform _memoir.add_compaction(v_row, p_session, coalesce(v_last, v_row.recorded_at), p_config);
    v_made := v_made + 1;
  end loop;
  return v_made;
end $$;

-- Compacts one stretch of a session where it has grown past its limit. Returns {"rows", "from_turn", "to_turn",
-- "tokens", "summary_tokens", "more"}; rows 0 where nothing is to be done, null where it was changed meanwhile.
create or replace function _memoir.compact(p_session _memoir.sessions, p_trigger bigint, p_target bigint,
  p_again boolean, p_config jsonb, p_by text)
returns jsonb language plpgsql as $$
declare
  v_counters _memoir.session_counters; v_range record; v_row _memoir.compactions; v_base bigint; v_active bigint;
  v_raised integer;
begin
  select * into v_counters from _memoir.session_counters where user_id = p_session.user_id
    and session_id = p_session.session_id;
  v_base := case when p_session.summary_through is null then 0
    else coalesce(_memoir.tokens_before(p_session, p_session.summary_through + 1), v_counters.tokens) end;
  v_active := v_counters.tokens - v_base;
  if v_active <= p_trigger then return jsonb_build_object('rows', 0, 'look_at', v_base + p_trigger); end if;
  select * into v_range from _memoir.compaction_range(p_session, v_counters, p_target,
    (p_config ->> 'compaction_tokens')::bigint, p_again);
  if v_range.to_turn is null then
    -- One exchange alone is that long, or all is kept: looked at again when it has grown by a quarter of the limit.
    return jsonb_build_object('rows', 0, 'look_at', v_counters.tokens + greatest(64, p_trigger / 4));
  end if;
  v_row := _memoir.compact_range(p_session, v_range.from_turn, v_range.to_turn, p_config, p_by);
  if v_row.compaction_id is null then return null; end if;
  perform _memoir.refresh_summary(p_session.user_id, p_session.session_id);
  v_raised := _memoir.raise_summaries(p_session, p_config);
  if v_raised > 0 then perform _memoir.refresh_summary(p_session.user_id, p_session.session_id); end if;
  return jsonb_build_object('rows', 1, 'raised', v_raised, 'compaction_id', v_row.compaction_id, 'from_turn',
    v_range.from_turn, 'to_turn', v_range.to_turn,
    'tokens', v_row.metadata -> 'tokens', 'summary_tokens', v_row.metadata -> 'summary_tokens', 'look_at', 0);
end $$;

-- The limits of a session: above the first it is compacted to the second; above the third ([PG] 9.3: twice the window)
-- also what somebody had undone.
create or replace function _memoir.compaction_limits(p_session _memoir.sessions, p_config jsonb, out above bigint,
  out target bigint, out always bigint)
language plpgsql stable as $$
declare
  v_room integer := p_session.context_window - p_session.max_response_tokens;
begin
  -- The share of history in the window, as compile cuts it, is the measure of both limits.
  v_room := greatest(256, (_memoir.history_share(p_config, p_session.task_type) * greatest(v_room / 2,
    v_room - (p_config ->> 'summary_tokens')::integer - (p_config ->> 'profile_tokens')::integer))::integer);
  above := least((v_room * (p_config ->> 'compaction_trigger')::real)::bigint, 2 * p_session.context_window::bigint);
  target := least((v_room * (p_config ->> 'compaction_target')::real)::bigint, p_session.context_window::bigint, above);
  always := 2 * p_session.context_window::bigint;
end $$;

create or replace function _memoir.step_compaction(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_due record; v_session _memoir.sessions; v_config jsonb; v_limits record; v_done jsonb; v_looked integer := 0;
  v_failed integer := 0; v_error text;
begin
  for v_due in select c.user_id, c.session_id, c.tokens from _memoir.session_counters c
    where c.tokens > c.compact_after loop
    exit when v_looked >= p_limit;
    continue when not _memoir.is_free(v_due.user_id, v_due.session_id);
    select * into v_session from _memoir.sessions where user_id = v_due.user_id and session_id = v_due.session_id;
    continue when v_session.status = 'paused';
    v_looked := v_looked + 1;
    begin
      v_config := _memoir.config(v_due.user_id, v_session.settings);
      select * into v_limits from _memoir.compaction_limits(v_session, v_config);
      if v_session.status in ('closed', 'expired') then
        v_done := jsonb_build_object('rows', 0, 'look_at', 9223372036854775807);
      else
        v_done := _memoir.compact(v_session, v_limits.above, v_limits.target, false, v_config, 'compaction');
        if (v_done ->> 'rows')::integer = 0 and v_due.tokens > v_limits.always then
          v_done := coalesce(_memoir.compact(v_session, v_limits.always, v_limits.target, true, v_config, 'compaction'),
            v_done);
        end if;
      end if;
    exception when others then
      -- One session must not stop the others: it is looked at again when it has grown.
      v_done := jsonb_build_object('rows', 0, 'look_at', v_due.tokens + 1000);
      v_failed := v_failed + 1; v_error := format('session %s: %s', v_due.session_id, sqlerrm);
    end;
    continue when v_done is null or not _memoir.try_lock(v_due.user_id, v_due.session_id);
    update _memoir.session_counters set compact_after = (v_done ->> 'look_at')::bigint where user_id = v_due.user_id
      and session_id = v_due.session_id;
    -- A stretch that was compacted holds its session's lock: that is committed before the next one is read.
    if (v_done ->> 'rows')::integer > 0 then
      return (v_done - '{look_at,compaction_id,from_turn,to_turn}'::text[]) || jsonb_build_object('looked_at', v_looked,
        'failed', v_failed, 'more', true);
    end if;
  end loop;
  return jsonb_strip_nulls(jsonb_build_object('rows', 0, 'looked_at', v_looked, 'failed', v_failed, 'error', v_error,
    'more', v_looked = p_limit));
end $$;

create or replace function memoir.compact_session(p_user text, p_session text, p_target_tokens integer default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_config jsonb := _memoir.config(v_caller.user_id, v_session.settings); v_limits record; v_done jsonb;
  v_rows integer := 0; v_tokens bigint := 0; v_summary bigint := 0;
begin
  perform _memoir.check_range('target_tokens', p_target_tokens, 0, 2147483647);
  select * into v_limits from _memoir.compaction_limits(v_session, v_config);
  for i in 1 .. 1000 loop
    v_session := _memoir.session(v_caller, p_session);
    v_done := _memoir.compact(v_session, coalesce(p_target_tokens, v_limits.target),
      coalesce(p_target_tokens, v_limits.target), true, v_config, v_caller.login);
    continue when v_done is null;
    exit when (v_done ->> 'rows')::integer = 0;
    v_rows := v_rows + 1; v_tokens := v_tokens + (v_done ->> 'tokens')::bigint;
    v_summary := v_summary + (v_done ->> 'summary_tokens')::bigint;
  end loop;
  select * into v_session from _memoir.sessions where user_id = v_caller.user_id and session_id = v_session.session_id;
  return jsonb_build_object('rows', v_rows, 'tokens', v_tokens, 'summary_tokens', v_summary, 'through',
    v_session.summary_through, 'summary', v_session.summary_text);
end $$;
comment on function memoir.compact_session(text, text, integer) is
  'Compacts a session now: its oldest whole exchanges become summaries until about p_target_tokens of turns remain
shown (default: the share of the window in setting compaction_target). The running exchange and pinned turns stay.
Turns are not touched and stay reachable by recall. Returns {"rows", "tokens", "summary_tokens", "through", "summary"}.
Writes compactions. Raises PM001, PM003, PM014.';

create or replace function memoir.undo_compaction(p_user text, p_session text, p_compaction uuid)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v_user uuid := v_caller.user_id;
  v_row _memoir.compactions; v_undone integer;
begin
  perform from _memoir.session_counters where user_id = v_user and session_id = v_session.session_id for update;
  perform from _memoir.user_counters where user_id = v_user for update;
  select * into v_row from _memoir.compactions where user_id = v_user and session_id = v_session.session_id
    and compaction_id = p_compaction;
  perform _memoir.fail('PM004', format('unknown compaction %s in session %s', _memoir.shown(p_compaction::text),
    _memoir.shown(p_session))) where not found;
  -- What stands on it goes with it; what it stood on counts again.
  update _memoir.compactions c set undone_at = memoir.now(), metadata = c.metadata || jsonb_build_object('undone_by',
    v_caller.login)
  where c.user_id = v_user and c.session_id = v_session.session_id and c.undone_at is null
    and (c.compaction_id = p_compaction or (v_row.level > 0 and c.level >= v_row.level
    and c.from_turn <= v_row.from_turn and c.to_turn >= v_row.to_turn));
  get diagnostics v_undone = row_count;
  perform _memoir.refresh_summary(v_user, v_session.session_id);
  update _memoir.session_counters set compact_after = 0 where user_id = v_user and session_id = v_session.session_id
    and compact_after <> 0;
  select * into v_session from _memoir.sessions where user_id = v_user and session_id = v_session.session_id;
  return jsonb_build_object('undone', v_undone, 'through', v_session.summary_through, 'summary',
    v_session.summary_text);
end $$;
comment on function memoir.undo_compaction(text, text, uuid) is
  'Takes a compaction back: its turns are shown again as far as the window reaches, with any summary made from it; the
summaries it was made from count again. The jobs leave the range alone until the session is twice its window. Undoing
twice is harmless. Returns {"undone", "through", "summary"}. Writes compactions, sessions. Raises PM001, PM003, PM004.';

create or replace function memoir.list_compactions(p_user text, p_session text)
returns table (compaction_id uuid, level integer, from_turn integer, to_turn integer, counts boolean, summary text,
  tokens bigint, summary_tokens integer, made_by text, recorded_at timestamptz, undone_at timestamptz) language plpgsql
  stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v_user uuid := v_caller.user_id;
begin
  return query
  select c.compaction_id, c.level::integer, c.from_turn, c.to_turn, l.compaction_id is not null, c.summary_text,
    (c.metadata ->> 'tokens')::bigint, (c.metadata ->> 'summary_tokens')::integer, c.made_by, c.recorded_at, c.undone_at
  from _memoir.compactions c left join _memoir.live_compactions(v_session) l on l.compaction_id = c.compaction_id
  where c.user_id = v_user and c.session_id = v_session.session_id order by c.from_turn, c.level, c.recorded_at,
    c.compaction_id;
end $$;
comment on function memoir.list_compactions(text, text) is
  'All compactions of a session, undone ones too: range, level (0: a summary of the whole session that hides nothing),
whether it counts now, its summary, tokens of the turns and of the summary. Raises PM001, PM003.';
