-- Merges a user's tail into posting lists, a segment of its own. Once three quarters of what a segment and all newer
-- ones would be together is newer, they go into it too: logarithmic merging (Lester, Moffat and Zobel 2005) by four,
-- not by two, since reading a segment more costs less than writing it again. Segments, and how often a posting is
-- written, grow with the logarithm of the user's items. Words that share rows have as many for a letter as to hold
-- about 6 kB each at most.
create or replace function _memoir.merge_tail(p_user_id uuid)
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_counters _memoir.user_counters; v_merged integer; v_rows integer; v_old integer[]; v_first integer;
begin
  select * into v_counters from _memoir.user_counters where user_id = p_user_id for update skip locked;
  if not found then return 0; end if;
  -- What a posting says of its item's number has 24 bits.
  select coalesce(array_agg(s.segment) filter (where s.segment >= s.oldest), '{}'),
    least(min(s.first_item) filter (where s.segment >= s.oldest), (select min(item_no) from _memoir.search_tail
      where user_id = p_user_id)) into v_old, v_first
  from (select segment, first_item, min(segment) filter (where size * 3 <= newer
    and v_counters.next_item - first_item < 8000000) over () as oldest
        from (select segment, size, first_item, sum(size) over (order by segment desc) - size
                + (select coalesce(sum(cardinality(l.positions)), 0) from _memoir.search_tail t, unnest(t.words) l
                  where t.user_id = p_user_id) as newer
              from (select segment, sum(cardinality(postings)) as size, min(first_item) as first_item
                    from _memoir.search_postings where user_id = p_user_id group by segment) x) y) s;
  with gone as (delete from _memoir.search_tail where user_id = p_user_id returning item_no, word_counts, words
  ), old as (delete from _memoir.search_postings where user_id = p_user_id and segment = any (v_old)
    returning first_item, coalesce(words, array[key]) as words, coalesce(ends, array[cardinality(postings)]) as ends,
      postings, lengths
  ), flat as (select l.lexeme collate "C" as term, (g.item_no - v_first << 8) + p as posting,
      g.word_counts[(p >> 8) + 1] as length
    from gone g, unnest(g.words) l, unnest(l.positions) p
    union all
    select w.word, (o.first_item - v_first << 8) + x.posting, x.length
    from old o, lateral (select u.word, coalesce(lag(u.stop) over (order by u.n), 0) + 1 as first, u.stop
    from unnest(o.words, o.ends) with ordinality u(word, stop, n)) w,
      unnest(o.postings[w.first : w.stop], o.lengths[w.first : w.stop]) x(posting, length)
  ), lists as (
    select term, array_agg(posting order by posting) as postings, array_agg(length order by posting) as lengths,
      count(*)::integer as count from flat group by term
  ), sized as (
    select l.*, sum(18 + octet_length(term) + 6 * count) filter (where count < 64) over (partition by left(term, 1))
      as size from lists l
  ), keyed as materialized (select s.*, r.letter_rows, _memoir.shared_key(term, r.letter_rows) as key,
      sum(count) over (partition by _memoir.shared_key(term, r.letter_rows) order by term)::integer as stop
    from sized s, lateral (select case when size <= 6000 then 1 when size <= 48000 then 8 else 64 end as letter_rows) r
    where count < 64
  ), shared as (
    select key, array_agg(term order by stop) as words, array_agg(stop order by stop) as ends from keyed group by key
  ), packed as (select k.key, array_agg(x.posting order by k.stop - k.count + x.n) as postings,
      array_agg(x.length order by k.stop - k.count + x.n) as lengths
    from keyed k, unnest(k.postings, k.lengths) with ordinality x(posting, length, n) group by k.key
  ), put as (insert into _memoir.search_postings (user_id, segment, first_item, key, words, ends, postings, lengths)
    select p_user_id, v_counters.next_segment, v_first, key, words, ends, postings, lengths from shared join packed
      using (key)
    union all
    select p_user_id, v_counters.next_segment, v_first, term, null, null, postings, lengths from lists where count >= 64
  )
  select (select count(n) from gone g, unnest(g.word_counts) n), (select bit_or(letter_rows) from keyed) into v_merged,
    v_rows;
  select bit_or(n) | coalesce(v_rows, 0) into v_rows
  from (select 0 as n union all
        select case when n < 8 then 1 when n < 64 then 8 else 64 end from _memoir.search_postings,
          lateral (select split_part(key, chr(1), 2)::integer as n) r
        where user_id = p_user_id and segment < v_counters.next_segment and words is not null) x;
  update _memoir.user_counters set tail_items = 0, next_segment = next_segment + 1, letter_rows = v_rows
  where user_id = p_user_id;
  perform _memoir.pack_signs(p_user_id, c.model_id) from _memoir.embedding_cursors c where c.user_id = p_user_id;
  return v_merged;
end $$;

-- Users after one another: one that can't be merged is passed over and tried again the next time round.
create or replace function _memoir.step_merge(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_least integer := (select (config ->> 'tail_items_max')::integer from _memoir.settings_merged);
  v_after uuid := _memoir.job_cursor('merge'); v_user uuid; v_merged integer := 0; v_users integer := 0;
  v_failed integer := 0; v_error text;
begin
  for v_user in select c.user_id from _memoir.user_counters c
    where (v_after is null or c.user_id > v_after) and c.tail_items >= v_least order by c.user_id limit p_limit
  loop
    v_users := v_users + 1;
    begin
      v_merged := v_merged + _memoir.merge_tail(v_user);
    exception when others then
      v_failed := v_failed + 1;
      v_error := format('user %s: %s', v_user, sqlerrm);
    end;
  end loop;
  perform _memoir.put_job_cursor('merge', v_user);
  return jsonb_build_object('more', v_user is not null, 'users', v_users, 'items', v_merged, 'failed', v_failed,
    'error', v_error);
end $$;

-- Moves what compiles left in the unlogged buffer to the ledger and the counters. Counters change under the user's
-- lock, as in remember; a user who is being written for waits for the next time rather than the reverse.
create or replace function _memoir.step_flush(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_ids bigint[]; v_user uuid; v_any boolean := false;
begin
  v_ids := array(select buffer_id from _memoir.compile_buffer order by buffer_id limit p_limit for update skip locked);
  -- Partitions first: whoever makes some for a write may need the user's lock next.
  perform _memoir.ensure_month(user_id, min(recorded_at)) from _memoir.compile_buffer where buffer_id = any (v_ids)
  group by user_id, _memoir.month_of(recorded_at);
  for v_user in select distinct user_id from _memoir.compile_buffer where buffer_id = any (v_ids) order by user_id loop
    perform from _memoir.user_counters where user_id = v_user for update skip locked;
    if not found then
      -- Or the user was erased since: then nothing of the compile may stay.
      delete from _memoir.compile_buffer where buffer_id = any (v_ids) and user_id = v_user
        and not exists (select from _memoir.users where user_id = v_user);
      continue;
    end if;
    with taken as (delete from _memoir.compile_buffer b where buffer_id = any (v_ids) and user_id = v_user
      returning _memoir.ledger_row(b) as row
    ), moved as materialized (select (t.row).* from taken t
    ), noted as (insert into _memoir.compile_ledger select m.* from moved m on conflict do nothing
    ), shown as (
      -- Relevance is a share of the best candidate's score: whatever the ranking's scale, the best has 1.
      select i.ref_id, max(least(1, greatest(0, x.score / b.best))) as relevance, m.recorded_at
      from moved m cross join lateral (select greatest(max(s), 1e-6) as best from unnest(m.scores) s) b
      cross join lateral unnest(m.items, m.scores, m.positions) x(item_no, score, position)
      join _memoir.search_items t on t.user_id = v_user and t.item_no = x.item_no
      -- A turn that was shown was the memory in its words, too.
      cross join lateral (select t.ref_id where t.kind = 'm'
        union all
        select s.item_id from _memoir.memory_sources s join _memoir.search_items e on e.user_id = v_user
          and e.ref_id = s.item_id and e.chunk = 0 and e.echo
        where t.kind = 't' and s.user_id = v_user and s.item_kind = 'memory' and s.source_kind = 'turn'
          and s.source_id = t.ref_id) i(ref_id)
      where x.position is not null group by m.compile_id, m.recorded_at, i.ref_id
    ), summed as (
      -- However many compiles showed a memory, its counters are written once.
      select s.ref_id, count(*)::integer as accesses, sum(s.relevance order by s.recorded_at, s.relevance) as relevance,
        max(s.recorded_at) as last_at
      from shown s group by s.ref_id
    ), counted as (update _memoir.memory_stats c set access_count = c.access_count + s.accesses,
        relevance_sum = c.relevance_sum + s.relevance, last_accessed_at = greatest(c.last_accessed_at, s.last_at)
      from summed s where c.user_id = v_user and c.memory_id = s.ref_id returning c.memory_id
    )
    insert into _memoir.memory_stats (user_id, memory_id, access_count, relevance_sum, last_accessed_at)
    select v_user, s.ref_id, s.accesses, s.relevance, s.last_at from summed s
    where s.ref_id not in (select memory_id from counted) order by s.ref_id;
    v_any := true;
    perform _memoir.enqueue('promote', v_user, '') from _memoir.config(v_user, null) c where exists (
      select from _memoir.memory_store m join _memoir.memory_stats s on s.user_id = v_user and s.memory_id = m.memory_id
      where m.user_id = v_user and m.state = 'active' and m.tier in (1, 2) and not m.is_object
        and s.access_count >= (c ->> ('promotion_accesses_' || m.tier))::integer);
  end loop;
  return jsonb_build_object('more', v_any, 'batches', v_any::integer);
end $$;

-- Deletes what ends by age or disuse: receipts, logs by whole months, vectors of retired models, prompts, old runs.
-- And the count of what memories are worth keeping (hygiene), which goes through all users too.

-- Drops one leaf of a monthly log whose newest row is older than p_days. Null: none; false: its parent is locked.
create or replace function _memoir.drop_old_leaf(p_table name, p_days integer)
returns boolean language plpgsql set lock_timeout = '1s' as $$
declare
  v_leaf regclass;
begin
  select i.inhrelid into v_leaf
  from pg_inherits p join pg_inherits i on i.inhparent = p.inhrelid join pg_class c on c.oid = i.inhrelid
  where p.inhparent = format('_memoir.%I', p_table)::regclass
    and to_date(right(c.relname, 7), 'YYYY"m"MM') < _memoir.month_of(memoir.now() - make_interval(days => p_days))
  order by right(c.relname, 7), c.relname limit 1;
  if v_leaf is null then return null; end if;
  perform _memoir.run_ddl(format('drop table %s', v_leaf));
  return true;
exception when lock_not_available then
  return false;
end $$;

create or replace function _memoir.step_sweep(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_config jsonb := (select config from _memoir.settings_merged); v_now timestamptz := clock_timestamp();
  v_users uuid[]; v_prompts bytea[]; v_log name; v_dropped boolean;
  v_leaves integer := 0; v_locked integer := 0; v_receipts integer; v_vectors integer := 0; v_runs integer := 0;
  v_dead integer := 0; v_gone integer := 0; v_documents integer; v_events integer := 0;
begin
  if _memoir.job_cursor('sweep') is null then  -- once a round: what is of no user
    foreach v_log in array '{compile_ledger,admission_scores}'::name[] loop
      v_dropped := _memoir.drop_old_leaf(v_log,
        (v_config ->> case v_log when 'compile_ledger' then 'ledger_days' else 'event_days' end)::integer);
      v_leaves := v_leaves + (v_dropped is true)::integer;
      v_locked := v_locked + (v_dropped is false)::integer;
    end loop;
    -- Two statements: the second sees sessions that were opened while the first waited for nobody but locked.
    v_prompts := array(select prompt_hash from _memoir.system_prompts p where created_at < v_now - interval '1 day'
      and not exists (select from _memoir.sessions s where s.system_prompt_hash = p.prompt_hash) limit p_limit
        for update skip locked);
    delete from _memoir.system_prompts p where prompt_hash = any (v_prompts)
      and not exists (select from _memoir.sessions s where s.system_prompt_hash = p.prompt_hash);
    get diagnostics v_gone = row_count;
    delete from _memoir.job_runs where run_id in (select run_id from _memoir.job_runs
      where finished_at < v_now - make_interval(days => (v_config ->> 'job_runs_days')::integer)
        or finished_at < v_now - interval '1 day' and outcome in ('done', 'still running')
        and counts = '{}' limit 10000);
    get diagnostics v_runs = row_count;
    delete from _memoir.work_items where state = 'dead' and kind <> 'webhook'
      and created_at < memoir.now() - make_interval(days => (v_config ->> 'dead_letter_days')::integer);
    get diagnostics v_dead = row_count;
    -- Readers that had not read so far get one event that says so.
    with gone as (delete from _memoir.outbox where event_id in (select event_id from _memoir.outbox where recorded_at
      < memoir.now() - make_interval(days => (v_config ->> 'outbox_days')::integer) order by event_id limit 10000)
      returning xact_id),
    told as (insert into _memoir.outbox (user_id, xact_id, recorded_at, type) select _memoir.no_session(),
      max(xact_id::text::bigint)::text::xid8, memoir.now(), 'events.dropped' from gone having count(*) > 0)
    select count(*) into v_events from gone;
    -- The cursors first, and no registering anew meanwhile: else a model that comes back would seem to have vectors.
    perform from _memoir.embedding_models where status = 'retired' for share;
    delete from _memoir.embedding_cursors c using _memoir.embedding_models m where m.model_id = c.model_id
      and m.status = 'retired';
    delete from _memoir.embeddings e using (
      select x.user_id, x.model_id, x.item_no from _memoir.embeddings x
      join _memoir.embedding_models m on m.model_id = x.model_id and m.status = 'retired' limit 10000) d
    where e.user_id = d.user_id and e.model_id = d.model_id and e.item_no = d.item_no;
    get diagnostics v_vectors = row_count;
    if v_leaves > 0 or 10000 in (v_runs, v_vectors, v_events) then  -- there may be more of them
      return jsonb_build_object('more', true, 'log months', v_leaves, 'locked', v_locked, 'prompts', v_gone, 'runs',
        v_runs, 'dead letters', v_dead, 'vectors', v_vectors);
    end if;
  end if;
  v_users := _memoir.next_users('sweep', p_limit);
  delete from _memoir.receipts where user_id = any (v_users)
    and recorded_at < memoir.now() - make_interval(hours => (v_config ->> 'idempotency_hours')::integer);
  get diagnostics v_receipts = row_count;
  delete from _memoir.documents where user_id = any (v_users) and expires_at <= memoir.now();
  get diagnostics v_documents = row_count;
  return jsonb_build_object('more', cardinality(v_users) = p_limit, 'receipts', v_receipts, 'documents', v_documents,
    'log months', v_leaves, 'locked', v_locked, 'prompts', v_gone, 'runs', v_runs, 'dead letters', v_dead,
    'vectors', v_vectors);
end $$;

-- Asks for the vectors that any model lacks: those of a model registered later, and of whoever was missed.
create or replace function _memoir.step_backfill(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_users uuid[] := _memoir.next_users('backfill', p_limit); v_queued integer;
begin
  insert into _memoir.work_items (kind, user_id, dedup_key, priority, run_after, created_at)
  select 'embed', c.user_id, m.model_id::text, -1, memoir.now(), memoir.now()
  from _memoir.user_counters c cross join _memoir.embedding_models m
  where c.user_id = any (v_users) and m.status <> 'retired' and c.next_item - 1 > coalesce(
      (select e.through_item from _memoir.embedding_cursors e where e.user_id = c.user_id and e.model_id = m.model_id),
        0)
    and not exists (select from _memoir.work_items j where j.kind = 'embed' and j.user_id = c.user_id
    and j.dedup_key = m.model_id::text)
  order by c.user_id, m.model_id
  on conflict (kind, user_id, dedup_key) where state = 'ready' do nothing;
  get diagnostics v_queued = row_count;
  return jsonb_build_object('more', cardinality(v_users) = p_limit, 'queued', v_queued);
end $$;

-- How good the memories are, counted over all users; the last whole round is what view hygiene shows.
create or replace function _memoir.step_hygiene(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_users uuid[] := _memoir.next_users('hygiene', p_limit); v_found jsonb;
  v_more boolean := cardinality(v_users) = p_limit;
  v_stale timestamptz := memoir.now() - make_interval(days => (select (config ->> 'stale_days')::integer
    from _memoir.settings_merged));
begin
  select jsonb_build_object('memories', count(*), 'active', count(*) filter (where m.state = 'active'),
    'duplicates', count(*) filter (where m.state = 'superseded' and exists (select from _memoir.memory_states h
      where h.user_id = m.user_id
      and h.memory_id = m.memory_id and h.state = 'superseded' and h.reason like '%duplicate%')),
    'never recalled', count(*) filter (where m.state = 'active' and coalesce(s.access_count, 0) = 0),
    'stale', count(*) filter (where m.state = 'active' and coalesce(s.last_accessed_at, m.recorded_at) < v_stale),
    'orphans', count(*) filter (where m.state = 'active' and m.actor <> 'person'
      and not exists (select from _memoir.memory_sources x
      where x.user_id = m.user_id and x.item_kind = 'memory' and x.item_id = m.memory_id)))
  into v_found
  from _memoir.memory_store m left join _memoir.memory_stats s on s.user_id = m.user_id and s.memory_id = m.memory_id
  where m.user_id = any (v_users) and not m.is_object;
  update _memoir.job_cursors c
  set state = case when v_more then c.state || jsonb_build_object('sum', s.sum)
    else jsonb_build_object('last', s.sum, 'at', memoir.now()) end
  from (select v_found || _memoir.add_counts(coalesce(o.state -> 'sum', '{}'), v_found) as sum
    from _memoir.job_cursors o where o.job = 'hygiene') s where c.job = 'hygiene';
  return jsonb_build_object('more', v_more, 'users', cardinality(v_users));
end $$;
