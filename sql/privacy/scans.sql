-- Large outputs of tools: what stands between their ends is looked through by a job, first for secrets, then for the
-- parts that are searched. Until then it is shown in its own session only.

create or replace function _memoir.step_scan(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_work _memoir.work_items; v_turn _memoir.conversation_history; v_session _memoir.sessions; v_config jsonb;
  v_was _memoir.sensitivity; v_marks jsonb; v_scanned integer := 0; v_secret integer := 0; v_parts integer := 0;
  v_seen integer := 0; v_at integer; v_end integer; v_size constant integer := 60000;
  v_overlap constant integer := 500;
begin
  for v_work in select * from _memoir.work_items w where w.kind = 'scan' and w.state = 'ready'
    order by w.run_after, w.work_id limit p_limit for update skip locked
  loop
    v_seen := v_seen + 1;
    -- Whoever writes to the user now has him for a moment: his turn comes with the next run.
    continue when not _memoir.lock_shortly(v_work.user_id);
    v_turn := _memoir.turn(v_work.user_id, (v_work.payload ->> 'session_id')::uuid,
      (v_work.payload ->> 'turn')::integer);
    if v_turn.message_id::text = v_work.dedup_key then
      select * into v_session from _memoir.sessions where user_id = v_work.user_id and session_id = v_turn.session_id;
      v_config := _memoir.config(v_work.user_id, v_session.settings);
      v_marks := _memoir.marks(v_work.user_id, v_turn.session_id);
      v_was := _memoir.sensitivity_now(v_turn.sensitivity, v_turn.turn_index, v_marks);
      -- What somebody has marked is as they say.
      if v_was < 'secret' and (v_marks ? v_turn.turn_index::text) is not true
        and (v_work.payload ->> 'scan')::boolean then
        v_at := _memoir.end_size() - v_overlap;
        v_end := length(v_turn.content) - _memoir.end_size() + v_overlap;
        while v_at < v_end and v_was < 'secret' loop
          if _memoir.detected(v_config, substr(v_turn.content, v_at, least(v_size, v_end - v_at))) <> '{}' then
            perform _memoir.set_mark(v_turn, v_was, 'secret', 'system', 'looks like it holds a secret',
              _memoir.login());
            v_secret := v_secret + 1;
            v_was := 'secret';
          end if;
          v_at := v_at + v_size - v_overlap;
        end loop;
      end if;
      v_parts := v_parts + _memoir.index_middle(v_turn, v_was, v_config);
    end if;
    delete from _memoir.work_items where work_id = v_work.work_id;
    v_scanned := v_scanned + 1;
  end loop;
  return jsonb_build_object('more', v_seen = p_limit and v_scanned > 0, 'scanned', v_scanned, 'secret', v_secret,
    'parts', v_parts);
end $$;

-- Servers without PL/Python: an outside worker looks through turns. Until it has, the user's items from there on are
-- not embedded, and no model is sent anything of the user.

create or replace function memoir.claim_unread(p_limit integer default 256)
returns table (user_id uuid, item_no integer, text text, work_id bigint, lease_id uuid)
language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items; v_left integer := p_limit; v_count integer;
begin
  perform _memoir.authorise_worker(), _memoir.check_count('limit', p_limit, 10000);
  while v_left > 0 loop
    v_work := _memoir.take_work('secrets', 300);
    exit when v_work.work_id is null;
    return query
    select v_work.user_id, i.item_no, concat_ws(E'\n', h.content, h.name, h.content_parts::text,
      h.tool_calls::text, h.metadata::text), v_work.work_id, v_work.lease_id
    from _memoir.user_counters c
    join _memoir.search_items i on i.user_id = c.user_id and i.item_no >= c.unread_from and i.kind = 't' and i.chunk = 0
      and i.sensitivity <> 'secret' and not i.dead
    join _memoir.conversation_history h on h.user_id = c.user_id and h.session_id = i.session_id
      and h.turn_index = i.turn_index and h.recorded_at = i.recorded_at
    where c.user_id = v_work.user_id order by i.item_no limit v_left;
    get diagnostics v_count = row_count;
    if v_count = 0 then perform _memoir.end_unread(v_work, 0); end if;
    v_left := v_left - v_count;
  end loop;
end $$;
comment on function memoir.claim_unread(integer) is
  'Leases turns that nobody has looked through for secrets, in their order: claim, commit, find_secrets of
pg_memoir_language, store_secrets. Only servers without PL/Python have any. Leases last 5 minutes; heartbeat(work_id,
lease_id) keeps one. Service, jobs and admin logins only. Raises PM001, PM014.';

-- Ends a piece of this work: items up to p_through are read. Queues later items and vectors. Under the user's lock.
create or replace function _memoir.end_unread(p_work _memoir.work_items, p_through integer)
returns void language plpgsql as $$
declare
  v_next integer := (select min(i.item_no) from _memoir.user_counters c
    join _memoir.search_items i on i.user_id = c.user_id and i.item_no >= greatest(c.unread_from, p_through + 1)
      and i.kind = 't' and i.chunk = 0 and i.sensitivity <> 'secret'
      and not i.dead
    where c.user_id = p_work.user_id);
begin
  update _memoir.user_counters set unread_from = v_next where user_id = p_work.user_id;
  delete from _memoir.work_items w where w.work_id = p_work.work_id;
  if v_next is not null then perform _memoir.queue_unread(p_work.user_id, v_next, memoir.now()); end if;
  perform _memoir.ask_for_vectors(p_work.user_id, memoir.now());
end $$;

create or replace function memoir.store_secrets(p_work bigint, p_lease uuid, p_item_nos integer[], p_kinds text[])
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items; v_item record; v_turn _memoir.conversation_history; v_marks jsonb; v_secret integer := 0;
  v_was _memoir.sensitivity;
begin
  perform _memoir.authorise_worker();
  if cardinality(p_item_nos) is distinct from cardinality(p_kinds) or coalesce(cardinality(p_item_nos), 0) = 0
    or array_position(p_item_nos, null) is not null then
    perform _memoir.fail('PM014', format('%s items and %s kinds are not parallel',
      coalesce(cardinality(p_item_nos), 0), coalesce(cardinality(p_kinds), 0)));
  end if;
  v_work := _memoir.leased(p_work, p_lease);
  if v_work.work_id is null or v_work.kind <> 'secrets' then return 0; end if;
  perform from _memoir.user_counters c where c.user_id = v_work.user_id for update;
  for v_item in select i.session_id, i.turn_index, k.kinds from unnest(p_item_nos, p_kinds) k(item_no, kinds)
    join _memoir.search_items i on i.user_id = v_work.user_id and i.item_no = k.item_no and i.kind = 't'
    where k.kinds <> '' order by i.item_no
  loop
    v_turn := _memoir.turn(v_work.user_id, v_item.session_id, v_item.turn_index);
    v_marks := _memoir.marks(v_work.user_id, v_item.session_id);
    v_was := _memoir.sensitivity_now(v_turn.sensitivity, v_turn.turn_index, v_marks);
    -- Somebody else's mark stands.
    continue when v_turn.message_id is null or v_was = 'secret' or v_marks ? v_item.turn_index::text;
    perform _memoir.set_mark(v_turn, v_was, 'secret', 'system', 'looks like it holds a ' || left(v_item.kinds, 200),
      _memoir.login());
    v_secret := v_secret + 1;
  end loop;
  perform _memoir.end_unread(v_work, (select max(n) from unnest(p_item_nos) n));
  return v_secret;
end $$;
comment on function memoir.store_secrets(bigint, uuid, integer[], text[]) is
  'Stores what find_secrets found in claimed turns: parallel arrays of item numbers and kinds ("card number,
password", or "" for none), all rows of one lease. Turns with secrets are marked secret, with what was made of them;
the others may be embedded from now on. Returns how many were marked, 0 where the lease had run out. Service, jobs and
admin logins only. Raises PM001, PM014.';
