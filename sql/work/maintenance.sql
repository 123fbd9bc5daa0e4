-- Maintenance of what search and compile leave behind. A step is a short transaction over a user or a few.

-- Merges a user's tail into posting lists, a segment of its own. Once three quarters of what a segment and all newer
-- ones would be together is newer, they go into it too: logarithmic merging (Lester, Moffat and Zobel 2005) by four,
-- not by two, since reading a segment more costs less than writing it again. Segments, and how often a posting is
-- written, grow with the logarithm of the user's items. Words that share rows have as many for a letter as to hold
-- about 6 kB each at most.
create or replace function _memoir.merge_tail(p_user_id uuid)
returns integer language plpgsql security definer set search_path from current set plan_cache_mode = force_custom_plan
  as $$
declare
  v_counters _memoir.user_counters; v_merged integer; v_rows integer; v_old integer[]; v_first integer;
begin
  perform _memoir.authorise_worker();
  -- the next run will do
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
  with gone as (
    delete from _memoir.search_tail where user_id = p_user_id returning item_no, word_counts, words
  ), old as (
    delete from _memoir.search_postings where user_id = p_user_id and segment = any (v_old)
    returning first_item, coalesce(words, array[key]) as words, coalesce(ends, array[cardinality(postings)]) as ends,
      postings, lengths
  ), flat as (
    select l.lexeme collate "C" as term, (g.item_no - v_first << 8) + p as posting,
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
  ), keyed as materialized (
    select s.*, r.letter_rows, _memoir.shared_key(term, r.letter_rows) as key,
      sum(count) over (partition by _memoir.shared_key(term, r.letter_rows) order by term)::integer as stop
    from sized s, lateral (select case when size <= 6000 then 1 when size <= 48000 then 8 else 64 end as letter_rows) r
    where count < 64
  ), shared as (
    select key, array_agg(term order by stop) as words, array_agg(stop order by stop) as ends from keyed group by key
  ), packed as (
    select k.key, array_agg(x.posting order by k.stop - k.count + x.n) as postings,
      array_agg(x.length order by k.stop - k.count + x.n) as lengths
    from keyed k, unnest(k.postings, k.lengths) with ordinality x(posting, length, n) group by k.key
  ), put as (
    insert into _memoir.search_postings (user_id, segment, first_item, key, words, ends, postings, lengths)
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
  return v_merged;
end $$;

create or replace function _memoir.users_to_merge(p_limit integer)
returns setof uuid language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_worker();
  return query select user_id from _memoir.user_counters
  where tail_items >= (select (config ->> 'tail_items_max')::integer from _memoir.settings_merged)
  order by tail_items desc limit p_limit;
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

create or replace procedure memoir.merge_search(p_limit integer default 1000)
language plpgsql as $$
declare
  v_user pg_catalog.uuid;  -- what commits looks its types up on its caller's path too
begin
  for v_user in select u from _memoir.users_to_merge(p_limit) u loop
    perform _memoir.merge_tail(v_user);
    commit;
  end loop;
end $$;
comment on procedure memoir.merge_search(integer) is
  'Merges the word tails of up to p_limit users (those above tail_items_max) into posting lists, a commit per user.
Call outside a transaction.';

-- Moves what compiles left in the unlogged buffer to the ledger and the counters. Counters change under the user's
-- lock, as in remember; a user who is being written for waits for the next time rather than the reverse. False when
-- nothing could be moved.
create or replace function _memoir.flush_batch(p_limit integer)
returns boolean language plpgsql security definer set search_path from current as $$
declare
  v_ids bigint[]; v_user uuid; v_any boolean := false;
begin
  perform _memoir.authorise_worker();
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
    with moved as (
      delete from _memoir.compile_buffer where buffer_id = any (v_ids) and user_id = v_user returning *
    ), noted as (
      insert into _memoir.compile_ledger
      select m.user_id, m.compile_id, m.recorded_at, m.session_id, m.budget, m.tokens, m.recall_tokens,
        m.system_tokens, m.tools_tokens, m.turn_tokens, m.first_turn, m.prefix_hash, m.warnings, m.items, m.scores,
        m.words, m.vectors, m.around, m.session_scores, m.item_tokens, m.positions, m.forms, m.reasons, m.facts, m.used
      from moved m on conflict do nothing
    ), shown as (
      -- Relevance is a share of the best candidate's score: whatever the ranking's scale, the best has 1.
      select i.ref_id, max(least(1, greatest(0, x.score / b.best))) as relevance, m.recorded_at
      from moved m cross join lateral (select greatest(max(s), 1e-6) as best from unnest(m.scores) s) b
      cross join lateral unnest(m.items, m.scores, m.positions) x(item_no, score, position)
      join _memoir.search_items t on t.user_id = v_user and t.item_no = x.item_no
      -- A turn that was shown was the memory in its words, too.
      cross join lateral (
        select t.ref_id where t.kind = 'm'
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
    ), counted as (
      update _memoir.memory_stats c set access_count = c.access_count + s.accesses,
        relevance_sum = c.relevance_sum + s.relevance,
        last_accessed_at = greatest(c.last_accessed_at, s.last_at)
      from summed s where c.user_id = v_user and c.memory_id = s.ref_id returning c.memory_id
    )
    insert into _memoir.memory_stats (user_id, memory_id, access_count, relevance_sum, last_accessed_at)
    select v_user, s.ref_id, s.accesses, s.relevance, s.last_at from summed s
    where s.ref_id not in (select memory_id from counted) order by s.ref_id;
    v_any := true;
    perform _memoir.enqueue('promote', v_user, '') where _memoir.may_rise(v_user);
  end loop;
  return v_any;
end $$;

create or replace function _memoir.step_flush(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_moved boolean := _memoir.flush_batch(p_limit);
begin
  return jsonb_build_object('more', v_moved, 'batches', v_moved::integer);
end $$;

create or replace procedure memoir.flush_statistics(p_batch integer default 500)
language plpgsql as $$
begin
  while _memoir.flush_batch(p_batch) loop  -- no operator: what commits runs under its caller's search_path
    commit;
  end loop;
end $$;
comment on procedure memoir.flush_statistics(integer) is
  'Moves compile statistics from the unlogged buffer to compile_ledger and memory_stats, in committed batches. Call
outside a transaction.';
