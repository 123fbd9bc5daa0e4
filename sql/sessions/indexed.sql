-- Searchable items of a turn, chunk by chunk; of large outputs the ends at once and the middle by a job.

-- Returns what a tool is called that reads or writes this memory, whatever a client puts before its name.
create or replace function _memoir.is_memory_tool(p_name text)
returns boolean language sql immutable as $$
  select p_name ~ '(?:^|__|[.])memory_(?:search|timeline|get|query|remember|correct|forget|update|pin|restore|release)$'
$$;

create or replace function _memoir.has_results(p_messages _memoir.message[])
returns boolean language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return exists (select from unnest(p_messages) m where m.role = 'tool');
end $$;

-- Notes that items from p_first on have turns to look through, and queues that.
create or replace function _memoir.queue_unread(p_user_id uuid, p_first integer, p_at timestamptz)
returns void language plpgsql as $$
begin
  update _memoir.user_counters set unread_from = p_first where user_id = p_user_id and unread_from is null;
  perform _memoir.enqueue_unlocked('secrets', p_user_id, 'turns', p_at);
end $$;

-- Makes items of turns of one exchange or several, of which the first began at p_exchange (in chunks where long) and
-- puts their words into the user's tail. p_scan: nobody has looked for secrets in the middle of a large output yet.
create or replace function _memoir.index_turns(p_user_id uuid, p_session _memoir.sessions, p_messages _memoir.message[],
  p_ids uuid[], p_costs integer[], p_first_turn integer, p_at timestamptz, p_config jsonb, p_exchange integer,
  p_scan boolean default true)
returns void language plpgsql as $$
declare
  v_items _memoir.search_items[] := '{}'; v_texts text[] := '{}'; v_item _memoir.search_items;
  v_message _memoir.message; v_chunk record; v_count integer;
  -- Characters between two chunks of a long text that get a vector. Words find all chunks.
  v_span constant integer := 12000;
  v_calls text[] := '{}'; v_counters _memoir.session_counters; v_user uuid := p_user_id;
  v_session uuid := p_session.session_id; v_thin boolean; v_embedded integer; v_stretch integer; v_first integer;
  v_chunk_tokens integer := (p_config ->> 'chunk_tokens')::integer;
begin
  if _memoir.has_results(p_messages) then
    -- Calls of memory's own tools, among these messages or before them in their exchange.
    select * into v_counters from _memoir.session_counters where user_id = v_user and session_id = v_session;
    v_calls := array(select c ->> 'id' from (select m.tool_calls from unnest(p_messages) m
        union all select h.tool_calls from _memoir.conversation_history h
        where h.user_id = v_user and h.session_id = v_session and h.turn_index between p_exchange and p_first_turn - 1
          and h.recorded_at between v_counters.first_recorded_at and v_counters.last_recorded_at) t(calls),
      jsonb_array_elements(t.calls) c where _memoir.is_memory_tool(c -> 'function' ->> 'name'));
  end if;
  for i in 1 .. cardinality(p_messages) loop
    v_message := p_messages[i];
    -- What this memory answered to the model is no second saying of it.
    continue when v_message.role = 'system' or coalesce(left(v_message.text, 1000), '') !~ '[[:alnum:]]'
        and coalesce(v_message.text, '') !~ '[[:alnum:]]'
      or v_message.tool_call_id = any (v_calls);
    v_item.ref_id := p_ids[i]; v_item.session_id := p_session.session_id;
    v_item.created_at := coalesce(v_message.created_at, p_at);
    v_item.turn_index := p_first_turn + i - 1; v_item.kind := 't';
    v_item.role := v_message.role; v_item.speaker := v_message.name;
    v_item.is_question := _memoir.is_question(v_message.text);
    v_item.project := p_session.project; v_item.sensitivity := v_message.sensitivity;
    v_item.tags := case when jsonb_typeof(v_message.extra -> 'tags') = 'array' and v_message.extra -> 'tags' <> '[]'
      then array(select distinct jsonb_array_elements_text(v_message.extra -> 'tags') order by 1) end;
    v_thin := v_message.role = 'tool' and p_costs[i] > (p_config ->> 'index_tokens_max')::integer;
    v_count := 0; v_embedded := 0;
    -- The number of a chunk is a smallint, so those of a text of many megabytes are longer.
    for v_chunk in select * from _memoir.indexed_chunks(v_message.role, v_message.text, p_costs[i],
      greatest(v_chunk_tokens, p_costs[i] / 8000)) loop
      v_item.span_start := v_chunk.span_start; v_item.span_length := v_chunk.span_length;
      v_item.chunk := v_count;
      v_item.embeddable := v_message.embeddable and v_embedded < (p_config ->> 'embed_chunks_max')::integer
        and (not v_thin or v_count = 0 or v_chunk.span_start / v_span > v_stretch)
        -- Of what stands for a snapshot the beginning says what it is; the rest is found by its words.
        and (v_count = 0 or coalesce(v_message.extra -> 'snapshot_ref', 'null') = 'null');
      if v_item.embeddable then v_embedded := v_embedded + 1; end if;
      v_stretch := v_chunk.span_start / v_span;
      v_item.token_count := coalesce(v_chunk.tokens, case when v_message.tool_calls is null and v_message.parts is null
        then p_costs[i] else _memoir.estimate_tokens(v_chunk.piece) end);
      v_items := array_append(v_items, v_item);
      v_texts := array_append(v_texts, coalesce(v_message.name || ': ', '') || v_chunk.piece);
      v_count := v_count + 1;
    end loop;
    if _memoir.is_large(v_message.role, v_message.text) then
      -- Its middle is looked through by a job, also for secrets, and indexed.
      perform _memoir.enqueue_unlocked('scan', p_user_id, p_ids[i]::text, p_at, jsonb_build_object('session_id',
        p_session.session_id, 'turn', v_item.turn_index, 'scan', p_scan));
    end if;
    -- What recall shows is the text alone, without tool calls or images: where that is all, its count is known exactly.
    if v_count = 1 and v_message.tool_calls is null and v_message.parts is null then
      v_item.token_count := p_costs[i];
      v_items[cardinality(v_items)] := v_item;
    end if;
  end loop;
  v_first := _memoir.add_items(p_user_id, v_items, v_texts, p_at, p_config);
  if v_first is not null and (p_config ->> 'detect_secrets')::boolean and not _memoir.reads_language() then
    perform _memoir.queue_unread(p_user_id, v_first, p_at);
  end if;
end $$;

-- The same of a turn that is stored already, as sensitive as it is now; what is excluded of it stays so.
create or replace function _memoir.index_stored(p_turn _memoir.conversation_history, p_session _memoir.sessions,
  p_config jsonb, p_sensitivity _memoir.sensitivity, p_scan boolean)
returns void language plpgsql as $$
declare
  v_message _memoir.message := row(p_turn.role, p_turn.content, p_turn.content_parts, p_turn.name, p_turn.tool_calls,
    p_turn.tool_call_id, p_turn.created_at, 0, p_turn.metadata -> 'sent', p_sensitivity,
    p_sensitivity <> 'secret' and (p_turn.embeddable or p_turn.sensitivity = 'secret'));
begin
  perform _memoir.index_turns(p_turn.user_id, p_session, array[v_message], array[p_turn.message_id],
    array[p_turn.token_count], p_turn.turn_index, p_turn.recorded_at, p_config, p_turn.exchange_start, p_scan);
  update _memoir.search_items i set dead = true where i.user_id = p_turn.user_id and i.ref_id = p_turn.message_id
    and _memoir.is_excluded(i);
end $$;

-- The pieces of a text that are indexed when it comes: of a large output those of its two ends, cut at lines where that
-- goes (their tokens in proportion to p_tokens, which the whole has); of another text all.
create or replace function _memoir.indexed_chunks(p_role _memoir.turn_role, p_text text, p_tokens integer,
  p_chunk_tokens integer)
returns table (span_start integer, span_length integer, piece text, tokens integer) language plpgsql immutable as $$
declare
  v_length integer := length(p_text); v_size integer := _memoir.indexed_end(octet_length(p_text), v_length);
  v_piece constant integer := 1500; v_end text; v_at integer; v_offset integer; v_cut integer;
begin
  -- What is short whatever its estimate has none made.
  if octet_length(p_text) = v_length and v_length * 1.7 + 3 <= p_chunk_tokens then
    span_start := 1;
    span_length := v_length;
    piece := p_text;
    return next;
    return;
  end if;
  if not _memoir.is_large(p_role, p_text) then
    return query select * from _memoir.chunks(p_text, p_chunk_tokens);
    return;
  end if;
  foreach v_offset in array array[0, v_length - v_size] loop
    v_end := case v_offset when 0 then left(p_text, v_size) else _memoir.tail(p_text, v_size) end;
    v_at := 1;
    while v_at <= v_size loop
      piece := substr(v_end, v_at, v_piece);
      v_cut := case when v_at + v_piece <= v_size then strpos(reverse(right(piece, v_piece / 2)), E'\n') - 1 else 0 end;
      if v_cut > 0 then piece := left(piece, - v_cut); end if;
      span_start := v_offset + v_at;
      span_length := length(piece);
      tokens := ceil(span_length * p_tokens::float8 / v_length);
      return next;
      v_at := v_at + span_length;
    end loop;
  end loop;
end $$;

-- The middle of a large output: its most distinctive parts become items behind its ends'. p_config: the session's.
create or replace function _memoir.index_middle(p_turn _memoir.conversation_history, p_sensitivity _memoir.sensitivity,
  p_config jsonb)
returns integer language plpgsql as $$
declare
  v_user uuid := p_turn.user_id; v_item _memoir.search_items; v_items _memoir.search_items[] := '{}';
  v_texts text[] := '{}'; v_part record;
  v_end integer := _memoir.indexed_end(octet_length(p_turn.content), length(p_turn.content));
  v_from integer := v_end + 1; v_text text := substr(p_turn.content, v_from, length(p_turn.content) - 2 * v_end);
  v_most integer := least(60, 4 + length(v_text) / 8000);
begin
  select * into v_item from _memoir.search_items i where i.user_id = v_user and i.ref_id = p_turn.message_id
  order by i.chunk desc limit 1;
  if not found then return 0; end if;
  -- The parts that tell most: lines of a shape that few others have, and those that speak of errors, each with those
  -- beside it, in their order. Of a text whose lines are all alike or all different some that lie evenly.
  for v_part in with lines as materialized (
      select l.*, _memoir.line_shape(l.body) as shape from _memoir.text_lines(v_text) l),
    shapes as materialized (select shape, count(*) as n from lines group by shape),
    scored as materialized (select l.nth, l.span_start, length(l.body) as size,
        case when (select count(*) from shapes) > 0.5 * (select count(*) from lines) then 0
          when s.n = 1 then 2 when s.n <= 3 then 1 else 0 end
        + (l.body ~* _memoir.pattern_telling_lines())::integer * 1.5
        + (l.nth % greatest(1, (select count(*) from lines) / v_most) = 0)::integer * 0.5 as score
      from lines l join shapes s using (shape) where l.body ~ '[[:alnum:]]{2}'),
    best as (select * from scored order by score desc, md5(nth::text) limit v_most),
    spans as (select range_agg(int4range(greatest(1, b.span_start - 1), b.span_start + b.size + 1)) as r from best b)
    select lower(u.p) as span_start, upper(u.p) - lower(u.p) as span_length from spans, unnest(spans.r) u(p) loop
    v_item.span_start := v_from + v_part.span_start - 1;
    v_item.span_length := v_part.span_length;
    v_item.chunk := v_item.chunk + 2;
    v_item.sensitivity := p_sensitivity;
    v_item.dead := false;
    v_item.embeddable := p_turn.embeddable and p_sensitivity <> 'secret' and cardinality(v_items) % 3 = 0;
    v_texts := v_texts || substr(v_text, v_part.span_start, v_part.span_length);
    v_item.token_count := _memoir.estimate_tokens(v_texts[cardinality(v_texts)]);
    v_items := array_append(v_items, v_item);
  end loop;
  perform _memoir.add_items(v_user, v_items, v_texts, p_turn.recorded_at, p_config);
  return cardinality(v_items);
end $$;

create or replace function _memoir.awaits_scan(p_user_id uuid, p_message uuid)
returns boolean language sql stable as $$
  select exists (select from _memoir.work_items w where w.kind = 'scan' and w.user_id = p_user_id
    and w.dedup_key = p_message::text and w.state = 'ready' and (w.payload ->> 'scan')::boolean)
$$;
