-- Text to embed: the text after the end of what came before it (the previous turn, or the same turn's previous
-- chunk). A short answer means little without its question: on real dialogues this finds far more (research/ranker).
create or replace function _memoir.embedding_texts(p_user_id uuid, p_items integer[])
returns table (item_no integer, body text) language plpgsql stable as $$
declare
  v_items integer[]; v_before integer[];
begin
  select array_agg(i.item_no), array_agg(b.item_no) into v_items, v_before
  from _memoir.search_items i
  -- not what is kept from models
  left join _memoir.search_items b on b.user_id = p_user_id and b.item_no = i.previous_item and b.embeddable
  where i.user_id = p_user_id and i.item_no = any (p_items);
  return query
  with texts as materialized (
    select t.item_no, coalesce(t.name || ': ', '') || t.body as body
    from _memoir.item_texts(p_user_id, v_items || array_remove(v_before, null)) t
  )
  select t.item_no, coalesce(right(b.body, 200) || E'\n', '') || t.body
  from unnest(v_items, v_before) as n(item, before) join texts t on t.item_no = n.item left join texts b
    on b.item_no = n.before;
end $$;

-- A memory past its time, which the job expiry has not got to yet.
create or replace function _memoir.is_expired(p_item _memoir.search_items)
returns boolean language plpgsql stable as $$
begin
  return p_item.kind = 'm' and exists (select from _memoir.memory_store m where m.user_id = p_item.user_id
    and m.memory_id = p_item.ref_id and m.expires_at <= memoir.now());
end $$;

create or replace function memoir.claim_embeddings(p_limit integer default 64, p_model text default null)
returns table (user_id uuid, item_no integer, model text, text text, work_id bigint, lease_id uuid)
language plpgsql security definer set search_path from current as $$
declare
  v_models text[]; v_work _memoir.work_items; v_model _memoir.embedding_models; v_items integer[];
  v_left integer := p_limit; v_through integer; v_unread integer; v_chunks integer;
begin
  perform _memoir.authorise_worker(), _memoir.check_count('limit', p_limit, 10000);
  if p_model is not null then perform _memoir.embedding_model(p_model); end if;
  v_models := array(select m.model_id::text from _memoir.embedding_models m
                    where case when p_model is null then m.provider <> 'none' or m.status = 'retired'
                      else m.name = p_model end);
  -- Waits for nobody: writers and store_embeddings hold locks it would wait for, and wait for its work items.
  while v_left > 0 loop
    v_work := _memoir.take_work('embed', 300, v_models);
    exit when v_work.work_id is null;
    select m.* into v_model from _memoir.embedding_models m where m.model_id = v_work.dedup_key::smallint
      and m.status <> 'retired';
    if not found then delete from _memoir.work_items j where j.work_id = v_work.work_id; continue; end if;
    v_through := coalesce((select c.through_item from _memoir.embedding_cursors c where c.user_id = v_work.user_id
      and c.model_id = v_model.model_id), 0);
    v_unread := (select c.unread_from from _memoir.user_counters c where c.user_id = v_work.user_id);
    -- A long text keeps what is said after it waiting for the vectors of its first chunks only.
    foreach v_chunks in array array[64, 32767] loop
      select array_agg(x.item_no) into v_items from (
        select i.item_no from _memoir.search_items i
        where i.user_id = v_work.user_id and i.item_no > v_through and i.embeddable and not i.dead
          and i.chunk < v_chunks and (v_unread is null or i.item_no < v_unread)
          and not exists (select from _memoir.embeddings e where e.user_id = v_work.user_id
          and e.model_id = v_model.model_id and e.item_no = i.item_no) and not _memoir.is_expired(i)
        order by i.item_no limit v_left) x;
      exit when v_items is not null;
    end loop;
    if v_items is null then
      -- The cursor moves under the user's lock only, else it would skip items of a writer that has not committed.
      perform from _memoir.user_counters c where c.user_id = v_work.user_id for update skip locked;
      if found then perform _memoir.advance_cursor(v_work.user_id, v_model.model_id); end if;
      delete from _memoir.work_items j where j.work_id = v_work.work_id;
      continue;
    end if;
    return query
    select v_work.user_id, t.item_no, v_model.name, v_model.document_prefix || t.body, v_work.work_id, v_work.lease_id
    from _memoir.embedding_texts(v_work.user_id, v_items) t order by t.item_no;
    v_left := v_left - cardinality(v_items);
  end loop;
end $$;
comment on function memoir.claim_embeddings(integer, text) is
  'Leases items that lack a vector, for a worker: claim, commit, embed, store_embeddings. Returns texts with the
model''s document prefix. p_model null: any but those of provider none, whose vectors only the client makes. Leases last
5 minutes; heartbeat(work_id, lease_id) keeps one. Service, jobs and admin logins only. Raises PM001, PM014, PM031.';

create or replace function _memoir.advance_cursor(p_user_id uuid, p_model_id smallint)
returns boolean language plpgsql as $$
declare
  v_through integer; v_missing integer;
begin
  select through_item into v_through from _memoir.embedding_cursors where user_id = p_user_id and model_id = p_model_id;
  select min(i.item_no) into v_missing from _memoir.search_items i
  where i.user_id = p_user_id and i.item_no > coalesce(v_through, 0) and i.embeddable and not i.dead
    and not exists (select from _memoir.embeddings e where e.user_id = p_user_id and e.model_id = p_model_id
    and e.item_no = i.item_no);
  insert into _memoir.embedding_cursors (user_id, model_id, through_item)
  select p_user_id, p_model_id, coalesce(v_missing, c.next_item) - 1 from _memoir.user_counters c
  where c.user_id = p_user_id
  on conflict (user_id, model_id) do update set through_item = greatest(embedding_cursors.through_item,
    excluded.through_item);
  return v_missing is null;
end $$;

-- Stores vectors of a user's items: that of p_items[i] is the p_places[i]th of p_numbers. Returns how many are new.
create or replace function _memoir.store_vectors(p_user_id uuid, p_model _memoir.embedding_models, p_items integer[],
  p_places bigint[], p_numbers real[])
returns integer language plpgsql as $$
declare
  v_added integer; v_memory uuid; v_done boolean; v_asked jsonb; v_key text := p_model.model_id::text;
begin
  -- The per-user lock that remember takes: memories are reconciled one at a time.
  -- A user in an open transaction must not keep all others' vectors waiting: his are claimed again.
  if not _memoir.lock_shortly(p_user_id) then
    update _memoir.work_items set leased_until = clock_timestamp(), attempts = attempts - 1 where work_id in (
      select j.work_id from _memoir.work_items j where j.kind = 'embed' and j.user_id = p_user_id
        and j.dedup_key = v_key and j.state = 'leased' for update skip locked);
    return 0;
  end if;
  -- Not "on conflict": nobody else stores them under the lock, and a row on trial costs the log a second record.
  insert into _memoir.embeddings (user_id, item_no, model_id, embedding)
  select p_user_id, g.item_no, p_model.model_id,
    _memoir.to_vector(p_numbers[(g.n - 1) * p_model.dimension + 1 : g.n * p_model.dimension], p_model)
  from (select item_no, min(n)::integer as n from unnest(p_items, p_places) x(item_no, n) group by 1) g
  where exists (select from _memoir.search_items s where s.user_id = p_user_id and s.item_no = g.item_no
    and s.embeddable)
    and g.item_no <> all (array(select e.item_no from _memoir.embeddings e where e.user_id = p_user_id
      and e.model_id = p_model.model_id and e.item_no = any (p_items)))
  order by g.item_no;
  get diagnostics v_added = row_count;
  -- A segment of signs is whole, or not there.
  delete from _memoir.packed_signs p where p.user_id = p_user_id and p.model_id = p_model.model_id
    and p.segment = any (array(select distinct i / 256 from unnest(p_items) i));
  v_done := _memoir.advance_cursor(p_user_id, p_model.model_id);
  perform _memoir.pack_signs(p_user_id, p_model.model_id);
  with done as (
    delete from _memoir.work_items j where j.kind = 'embed' and j.user_id = p_user_id and j.dedup_key = v_key
      and j.state = 'leased' returning j.payload)
  select d.payload into v_asked from done d order by d.payload ? 'sync' desc limit 1;
  if v_asked ? 'sync' then
    perform _memoir.audit('sync_batch', jsonb_build_object('sync', v_asked -> 'sync', 'model', p_model.name, 'texts',
      v_added, 'tokens', (select coalesce(sum(i.token_count), 0) from _memoir.search_items i
        where i.user_id = p_user_id and i.item_no = any (p_items)),
      'cursor', (select c.through_item from _memoir.embedding_cursors c where c.user_id = p_user_id
        and c.model_id = p_model.model_id)), p_user_id);
  end if;
  perform _memoir.enqueue_unlocked('embed', p_user_id, v_key, memoir.now(), coalesce(v_asked, '{}')) where not v_done;
  if p_model.status = 'active' then
    for v_memory in select s.ref_id from _memoir.search_items s
      where s.user_id = p_user_id and s.item_no = any (p_items) and s.kind = 'm' and s.chunk = 0 and not s.dead
      order by s.item_no
    loop
      perform _memoir.reconcile_memory(p_user_id, v_memory, 'near duplicate');
      perform _memoir.review_admission(p_user_id, v_memory, 'admission');
    end loop;
  end if;
  return v_added;
end $$;

create or replace function memoir.store_embeddings(p_user_ids uuid[], p_item_nos integer[], p_embeddings real[],
  p_model text default null)
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_model _memoir.embedding_models; v_count integer := coalesce(cardinality(p_item_nos), 0);
  v_numbers real[] := p_embeddings;
begin
  perform _memoir.authorise_worker();
  v_model := _memoir.embedding_model(p_model);
  if array_position(p_user_ids, null) is not null or array_position(p_item_nos, null) is not null then
    perform _memoir.fail('PM014', 'user_ids and item_nos must not hold nulls');
  end if;
  if coalesce(cardinality(p_user_ids), 0) <> v_count or coalesce(cardinality(p_embeddings), 0)::bigint
    <> v_count::bigint * v_model.dimension then
    perform _memoir.fail('PM030', format('%s users, %s items and %s numbers do not make vectors of %s dimensions',
      coalesce(cardinality(p_user_ids), 0), v_count, coalesce(cardinality(p_embeddings), 0), v_model.dimension));
  end if;
  -- Retired while the worker was at it: its vectors would only have to be dropped.
  if v_model.status = 'retired' then return 0; end if;
  if array_ndims(p_embeddings) > 1 then v_numbers := array(select unnest(p_embeddings)); end if;
  return (select coalesce(sum(_memoir.store_vectors(x.user_id, v_model, x.items, x.places, v_numbers)), 0) from (
    select u.user_id, array_agg(u.item_no order by u.n) as items, array_agg(u.n order by u.n) as places
    from unnest(p_user_ids, p_item_nos) with ordinality u(user_id, item_no, n) group by 1 order by 1) x);
end $$;
comment on function memoir.store_embeddings(uuid[], integer[], real[], text) is
  'Stores vectors of claimed items: parallel arrays of users and item numbers, and all numbers of all vectors one after
another (or as a two-dimensional array). Then reconciles memories: conflicts and near duplicates. Returns how many were
new. Service, jobs and admin logins only. Raises PM001, PM014, PM030, PM031.';

create or replace function memoir.sync_semantic(p_user text, p_dry_run boolean default false,
  p_model text default null)
returns table (model text, status text, items integer, cursor integer, texts bigint, tokens bigint, microcents bigint,
  secret bigint, expired bigint, not_embeddable bigint, snapshots bigint, queued boolean, last_batch_at timestamptz,
  last_error text)
language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, case when p_dry_run then 'read' else 'write' end);
  v_user uuid := v_caller.user_id; v_model _memoir.embedding_models; v_sync bigint;
begin
  if p_dry_run is null then perform _memoir.fail('PM014', 'dry_run must be true or false, not null'); end if;
  if p_model is not null then perform _memoir.embedding_model(p_model); end if;
  for v_model in select * from _memoir.embedding_models m where m.status <> 'retired'
    and (p_model is null or m.name = p_model) order by m.model_id
  loop
    model := v_model.name;
    status := v_model.status;
    items := coalesce((select c.next_item - 1 from _memoir.user_counters c where c.user_id = v_user), 0);
    cursor := least(items, coalesce((select c.through_item from _memoir.embedding_cursors c where c.user_id = v_user
      and c.model_id = v_model.model_id), 0));
    select count(*) filter (where s.sensitivity = 'secret'), count(*) filter (where s.sensitivity <> 'secret'
      and s.is_over), count(*) filter (where s.sensitivity <> 'secret' and not s.is_over and not s.embeddable),
      count(*) filter (where s.lacks),
      -- A text is embedded with the end of the text before it: fifty tokens at most.
      coalesce(sum(s.token_count + case when s.previous_item is null then 0 else 50 end) filter (where s.lacks), 0)
    into secret, expired, not_embeddable, texts, tokens
    from (
      select i.*, o.is_over, i.embeddable and not o.is_over and i.item_no > cursor and not exists (
        select from _memoir.embeddings e where e.user_id = v_user and e.model_id = v_model.model_id
          and e.item_no = i.item_no) as lacks
      from _memoir.search_items i cross join lateral (select _memoir.is_expired(i) as is_over) o
      where i.user_id = v_user and not i.dead and (v_caller.projects is null or i.project = any (v_caller.projects))) s;
    select count(*) into snapshots from _memoir.search_items i
    join _memoir.conversation_history h on h.user_id = v_user and h.session_id = i.session_id
      and h.turn_index = i.turn_index and h.recorded_at = i.recorded_at and h.metadata -> 'sent' ? 'snapshot_ref'
    where i.user_id = v_user and i.kind = 't' and i.chunk = 0 and i.embeddable and not i.dead and i.item_no > cursor
      and (v_caller.projects is null or i.project = any (v_caller.projects))
      and not exists (select from _memoir.embeddings e where e.user_id = v_user and e.model_id = v_model.model_id
        and e.item_no = i.item_no);
    microcents := ceil(tokens * v_model.microcents_per_1k / 1000.0);
    last_batch_at := (select max(a.recorded_at) from _memoir.audit_log a where a.user_id = v_user
      and a.action = 'sync_batch' and a.detail ->> 'model' = v_model.name);
    last_error := (select j.last_error from _memoir.work_items j where j.kind = 'embed' and j.user_id = v_user
      and j.dedup_key = v_model.model_id::text and j.last_error is not null order by j.work_id desc limit 1);
    queued := not p_dry_run and texts > 0;
    if queued then
      v_sync := _memoir.audit('sync_semantic', jsonb_build_object('model', v_model.name, 'texts', texts, 'tokens',
        tokens, 'microcents', microcents, 'cursor', cursor), v_user);
      insert into _memoir.work_items (kind, user_id, dedup_key, payload, run_after, created_at)
      values ('embed', v_user, v_model.model_id::text, jsonb_build_object('sync', v_sync), memoir.now(), memoir.now())
      on conflict (kind, user_id, dedup_key) where state = 'ready' do update
        set payload = excluded.payload, run_after = least(work_items.run_after, excluded.run_after);
    end if;
    return next;
  end loop;
end $$;
comment on function memoir.sync_semantic(text, boolean, text) is
  'Queues whatever of a user has no vector yet, per embedding model (or of p_model), and says what that is: texts,
tokens (an upper estimate), microcents by the model''s price; items there are, and the cursor, how far the model has
come. Left out and counted: secret, expired, not_embeddable. snapshots: texts that stand for something referred to.
Each batch then stored leaves a row ''sync_batch'' in audit_log: last_batch_at; last_error is the queue''s. p_dry_run:
only says. Writes work_items, audit_log. Raises PM001, PM014, PM031.';

create or replace function memoir.embedding_progress()
returns table (model text, status text, users bigint, users_waiting bigint, dead_letters bigint)
language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_worker();
  return query
  select m.name, m.status, (select count(*) from _memoir.embedding_cursors c where c.model_id = m.model_id),
    count(*) filter (where j.state <> 'dead'), count(*) filter (where j.state = 'dead')
  from _memoir.embedding_models m
  left join _memoir.work_items j on j.kind = 'embed' and j.dedup_key = m.model_id::text
  group by m.model_id order by m.model_id;
end $$;
comment on function memoir.embedding_progress()
  is 'Per embedding model: users begun, users waiting for vectors, dead letters.';

create or replace function memoir.ensure_embedder()
returns text language plpgsql security definer set search_path from current as $$
declare
  v_socket text; v_models jsonb; v_answer text;
begin
  perform _memoir.authorise_worker();
  select config ->> 'embedder_socket' into v_socket from _memoir.settings_merged;
  select jsonb_agg(name order by model_id) into v_models from _memoir.embedding_models where provider = 'embedder'
    and status <> 'retired';
  if coalesce(v_socket, '') = '' or v_models is null then return 'not configured'; end if;
  if pg_is_in_recovery() then return 'standby'; end if;
  perform _memoir.fail('PM050', 'the embedder can''t be started from here: PL/Python is not installed',
    'run pg-memoir-embedder as a service') where to_regprocedure('_memoir.py_ensure_embedder(jsonb)') is null;
  select _memoir.py_ensure_embedder(jsonb_build_object('socket', v_socket, 'models', v_models)) into v_answer;
  return v_answer;
end $$;
comment on function memoir.ensure_embedder() is
  'Starts the shared embedder (setting embedder_socket) unless it answers: running, started, starting, restarted,
backing off, not configured. Writes no table. Service, jobs and admin logins only. Raises PM001, PM050.';

create or replace function _memoir.embedding_endpoint(p_model text, out provider text, out address text,
  out dimension integer)
language plpgsql stable security definer set search_path from current as $$
begin
  perform _memoir.authorise_worker();
  select m.provider, case m.provider when 'embedder' then s.config ->> 'embedder_socket' else m.endpoint end,
    m.dimension
  into provider, address, dimension from _memoir.embedding_models m, _memoir.settings_merged s where m.name = p_model;
end $$;
