-- Consolidation: memories about one thing become one memory that holds what each of them says: a memory and the ones
-- most like it, of one type, project and authority, none contradicting another. Rules join their sentences where that
-- is shorter; where a language model is configured it is asked for better words (below). The members
-- stay, superseded; undoing brings them back.

-- Returns what is to become one: seeds by weight, each with what is at least consolidation_similarity like it and in no
-- other cluster.
create or replace function _memoir.clusters(p_user_id uuid, p_config jsonb)
returns table (members uuid[]) language plpgsql stable as $$
declare
  v_model smallint := (select m.model_id from _memoir.embedding_models m where m.status = 'active');
  v_now timestamptz := memoir.now(); v_like float8 := 1 - (p_config ->> 'consolidation_similarity')::float8;
  v_least integer := (p_config ->> 'consolidation_members')::integer; v_used uuid[] := '{}'; v_seed record;
begin
  for v_seed in with candidates as materialized (
      select m.memory_id, m.content, m.project, m.type, m.category, m.trust, m.tier, m.recorded_at, e.embedding,
        row_number() over (partition by m.project, m.type, m.trust, m.tier order by m.recorded_at desc, m.memory_id)
          as nth
      from _memoir.memory_store m
      join _memoir.search_items i on i.user_id = p_user_id and i.ref_id = m.memory_id and i.chunk = 0 and i.last_chunk
        and not i.dead
      join _memoir.embeddings e on e.user_id = p_user_id and e.model_id = v_model and e.item_no = i.item_no
      where m.user_id = p_user_id and m.state = 'active' and m.scope = 'global' and m.tier >= 2 and m.slot is null
        and m.sensitivity = 'normal' and m.type <> all (_memoir.experience_types())
        and m.valid_from is null and m.valid_to is null and length(m.content) <= 400
        and (m.expires_at is null or m.expires_at > v_now)
        -- Not what contradicts or is contradicted, nor what was brought back once.
        and not exists (select from _memoir.memory_relationships r where r.user_id = p_user_id
        and r.source_id = m.memory_id and r.relation = 'contradicts')
        and not exists (select from _memoir.memory_relationships r where r.user_id = p_user_id
        and r.target_id = m.memory_id and r.relation = 'contradicts')
        and not m.metadata ? 'stays_apart'),
    recent as materialized (select * from candidates where nth <= 300),
    texts as materialized (select row_number() over (order by memory_id) - 1 as no, * from recent),
    pairs as materialized (
      select a.memory_id as one, b.memory_id as other, a.no, b.no as other_no, a.embedding <=> b.embedding as distance
      from texts a join texts b using (project, type, trust, tier) where a.memory_id <> b.memory_id),
    close as materialized (select * from pairs where distance <= v_like),
    contradicting as materialized (select (c ->> 0)::bigint as no, (c ->> 1)::bigint as other_no
      from jsonb_array_elements(_memoir.read_texts('find_contradictions', jsonb_build_object(
        'texts', (select jsonb_agg(t.content order by t.no) from texts t),
        'pairs', (select jsonb_agg(jsonb_build_array(p.no, p.other_no)) from close p))) -> 'contradicting') c
      where exists (select from close))
    select p.one, array_agg(p.other order by p.distance, p.other) as others
    from close p where not exists (select from contradicting c where c.no = p.no and c.other_no = p.other_no)
    group by p.one having count(*) >= v_least - 1
    order by count(*) desc, p.one
  loop
    continue when v_seed.one = any (v_used);
    members := array[v_seed.one] || (array(select o from unnest(v_seed.others) with ordinality x(o, n)
      where o <> all (v_used) order by n))[1 : 7];
    continue when cardinality(members) < v_least;
    v_used := v_used || members;
    return next;
  end loop;
end $$;

-- May a text stand for memories of a project? Not where a tombstone or a memory that says just this is in the way.
create or replace function _memoir.may_stand(p_user_id uuid, p_text text, p_project text)
returns boolean language plpgsql stable as $$
begin
  return (_memoir.tombstone_of(p_user_id, p_text, null, null, p_project)).user_id is null
    and not exists (select from _memoir.memory_store m
    where m.user_id = p_user_id and m.content_hash = sha256(convert_to(_memoir.normalise(p_text), 'UTF8'))
      and m.project = p_project
      and m.local_to is null and m.state = 'active');
end $$;

-- Makes one memory of a cluster and returns it; null where its text may not stand. Under the user's lock. p_text: in
-- whose words (p_made_by) if not those of the members; p_id: its id, where something refers to it already; p_instead:
-- what said it before, for its counters.
create or replace function _memoir.consolidate(p_user_id uuid, p_members uuid[], p_config jsonb, p_by text,
  p_text text default null,
  p_made_by text default 'rules', p_id uuid default gen_random_uuid(), p_instead uuid default null)
returns uuid language plpgsql as $$
declare
  v_new _memoir.memory_store; v_texts text[]; v_ids uuid[]; v_now timestamptz := memoir.now();
begin
  select array_agg(m.content order by m.recorded_at, m.memory_id), array_agg(m.memory_id order by m.recorded_at,
    m.memory_id) into v_texts, v_ids
  from _memoir.memory_store m where m.user_id = p_user_id and m.memory_id = any (p_members) and m.state = 'active';
  if coalesce(cardinality(v_ids), 0) < 2 then return null; end if;
  -- No more authority than any of them has: they are alike in trust and tier, the rest is the least.
  select m.* into v_new from _memoir.memory_store m where m.user_id = p_user_id and m.memory_id = any (v_ids)
  order by m.confidence, m.recorded_at desc, m.memory_id limit 1;
  v_new.content := coalesce(p_text, _memoir.read_texts('join_texts', jsonb_build_object('texts', v_texts)) ->> 'text');
  v_new.content_hash := sha256(convert_to(_memoir.normalise(v_new.content), 'UTF8'));
  if not _memoir.may_stand(p_user_id, v_new.content, v_new.project) then return null; end if;
  v_new.memory_id := p_id; v_new.recorded_at := v_now; v_new.state_at := v_now; v_new.written_by := p_by;
  v_new.session_id := null; v_new.source_tool := null; v_new.source_key := null; v_new.superseded_by := null;
  v_new.state_reason := null;
  v_new.token_count := (_memoir.count_tokens(array[v_new.content], v_new.tokenizer))[1];
  -- Rules put together what gets shorter; a model is asked for words that do.
  if p_made_by = 'rules' and p_config ->> 'llm_provider' = 'none' and length(v_new.content) * 10 > 9
    * (select sum(length(t)) from unnest(v_texts) t) then return null; end if;
  v_new.metadata := jsonb_build_object('consolidated', cardinality(v_ids), 'by', p_made_by);
  select min(m.validated_at), case when bool_or(m.expires_at is null) then null else max(m.expires_at) end,
    (array_agg(m.importance order by array_position('{critical,important,normal,minor}'::text[], m.importance)))[1]
  into v_new.validated_at, v_new.expires_at, v_new.importance from _memoir.memory_store m where m.user_id = p_user_id
    and m.memory_id = any (v_ids);
  v_new.tags := array(select distinct t from _memoir.memory_store m, unnest(m.tags) t where m.user_id = p_user_id
    and m.memory_id = any (v_ids) order by t);
  v_new.aliases := array(select distinct a from _memoir.memory_store m, unnest(m.aliases) a where m.user_id = p_user_id
    and m.memory_id = any (v_ids) order by a);

  perform _memoir.supersede(p_user_id, v_ids, v_new.memory_id, p_by, 'consolidated', v_now);
  insert into _memoir.memory_store select v_new.*;
  perform _memoir.note_state(p_user_id, array[v_new.memory_id], 'active', p_by, 'consolidated', null, v_now, 'system');
  insert into _memoir.memory_stats (user_id, memory_id, access_count, restatements, relevance_sum, last_accessed_at,
    reinforced_at)
  select p_user_id, v_new.memory_id, coalesce(max(s.access_count), 0), coalesce(sum(s.restatements), 0),
    coalesce(max(s.relevance_sum), 0), max(s.last_accessed_at), max(s.reinforced_at)
  from _memoir.memory_stats s where s.user_id = p_user_id and s.memory_id = any (v_ids || p_instead);
  update _memoir.user_counters set memories = memories + 1, profile_stale = profile_stale or v_new.tier >= 3
  where user_id = p_user_id;
  insert into _memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id)
  select p_user_id, 'memory', v_new.memory_id, 'memory', m from unnest(v_ids) m;
  insert into _memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id, session_id, turn_index,
    span_start, span_length)
  select s.user_id, 'memory', v_new.memory_id, s.source_kind, s.source_id, s.session_id, s.turn_index, s.span_start,
    s.span_length
  from _memoir.memory_sources s where s.user_id = p_user_id and s.item_kind = 'memory' and s.item_id = any (v_ids)
    and s.source_kind = 'turn' on conflict do nothing;
  insert into _memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
  select p_user_id, v_new.memory_id, 'elaborates', m.memory_id, 'consolidated', v_now from _memoir.memory_store m
  where m.user_id = p_user_id and m.memory_id = any (v_ids) and length(m.content) < length(v_new.content)
    on conflict do nothing;
  perform _memoir.index_memory(v_new, v_now, p_config);
  return v_new.memory_id;
end $$;

create or replace function memoir.undo_consolidation(p_user text, p_memory uuid)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_memory _memoir.memory_store := _memoir.memory(v_caller, p_memory); v_user uuid := v_caller.user_id;
  v_now timestamptz := memoir.now(); v_restored uuid[] := '{}';
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  v_memory := _memoir.memory(v_caller, p_memory);
  if v_memory.state = 'active' and v_memory.metadata ? 'consolidated' then
    perform _memoir.set_state(v_user, array[p_memory], 'invalidated', v_caller.login, 'consolidation undone', null,
      v_now);
    v_restored := _memoir.dissolve(v_user, p_memory, v_caller.login, v_now, _memoir.actor(v_caller, null, 'person'));
  end if;
  return jsonb_build_object('memory_id', p_memory, 'restored', to_jsonb(v_restored));
end $$;
comment on function memoir.undo_consolidation(text, uuid) is
  'Takes a consolidated memory back: it is invalidated, its members are active again and stay apart. Returns
{"memory_id", "restored"}, an empty list for any other memory. Writes memory_store. Raises PM001, PM004.';

create or replace function _memoir.step_consolidation(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_users uuid[]; v_user uuid; v_config jsonb; v_cluster record; v_made integer := 0; v_members integer := 0;
  v_failed integer := 0; v_error text; v_whole uuid; v_ids uuid[]; v_texts text[];
begin
  if not _memoir.reads_language() then return '{"more": false}'; end if;
  v_users := _memoir.next_users('consolidation', p_limit);
  foreach v_user in array v_users loop
    begin
      v_config := _memoir.config(v_user, null);
      -- Looked for without a lock, since it takes a while and mostly finds nothing; found again under it.
      continue when not exists (select from _memoir.clusters(v_user, v_config));
      perform from _memoir.user_counters where user_id = v_user for update skip locked;
      continue when not found;
      for v_cluster in select * from _memoir.clusters(v_user, v_config) loop
        if v_config ->> 'llm_provider' = 'none' then
          -- Those that get shorter with the others, unless too few are left.
          select array_agg(m.memory_id order by m.recorded_at, m.memory_id), array_agg(m.content order by m.recorded_at,
            m.memory_id) into v_ids, v_texts
          from _memoir.memory_store m where m.user_id = v_user and m.memory_id = any (v_cluster.members)
            and m.state = 'active';
          continue when cardinality(v_ids) < (v_config ->> 'consolidation_members')::integer is not false;
          v_cluster.members := array(select v_ids[n::integer + 1] from jsonb_array_elements_text(
            _memoir.read_texts('join_texts', jsonb_build_object('texts', v_texts)) -> 'condensable') n);
          continue when cardinality(v_cluster.members) < (v_config ->> 'consolidation_members')::integer;
        end if;
        v_whole := _memoir.consolidate(v_user, v_cluster.members, v_config, 'consolidation');
        if v_whole is not null then
          perform _memoir.enqueue('consolidate', v_user, v_whole::text) where v_config ->> 'llm_provider' <> 'none';
          v_made := v_made + 1; v_members := v_members + cardinality(v_cluster.members);
        end if;
      end loop;
    exception when others then
      v_failed := v_failed + 1; v_error := format('user %s: %s', v_user, sqlerrm);
    end;
  end loop;
  return jsonb_strip_nulls(jsonb_build_object('users', cardinality(v_users), 'made', v_made, 'members', v_members,
    'failed', v_failed, 'error', v_error, 'more', cardinality(v_users) = p_limit));
end $$;

-- Consolidation in a language model's words (work/llm.sql): for what rules made of a cluster it is asked with the
-- members as they were said. It answers which of them belong together, and one text for those: they become one memory
-- in its words, the others stand by themselves again. dedup_key is the memory that rules made.

-- The members of a memory that rules made, in order; none where it stands no more or a part is not for everybody.
create or replace function _memoir.members_to_merge(p_work _memoir.work_items)
returns setof _memoir.memory_store language plpgsql stable as $$
begin
  return query
  select m.* from _memoir.memory_store w
  join _memoir.memory_store m on m.user_id = p_work.user_id and m.superseded_by = w.memory_id and m.state = 'superseded'
    and m.state_reason = 'consolidated'
  where w.user_id = p_work.user_id and w.memory_id = p_work.dedup_key::uuid and w.state = 'active'
    and w.sensitivity = 'normal'
    and w.metadata ? 'consolidated' and w.metadata ->> 'by' = 'rules'
    and not exists (select from _memoir.memory_store o where o.user_id = p_work.user_id
    and o.superseded_by = w.memory_id and o.sensitivity <> 'normal')
  order by m.recorded_at, m.memory_id;
end $$;

create or replace function _memoir.consolidate_input(p_work _memoir.work_items)
returns jsonb language plpgsql as $$
declare
  v_input jsonb; v_asked jsonb;
begin
  select jsonb_agg(jsonb_build_object('n', x.n - 1, 'said', _memoir.day(x.said), 'text', x.content) order by x.n),
    jsonb_agg(x.memory_id order by x.n)
  into v_input, v_asked
  from (select m.memory_id, m.content, _memoir.said(m) as said, row_number() over (order by m.recorded_at, m.memory_id)
    as n from _memoir.members_to_merge(p_work) m) x;
  if coalesce(jsonb_array_length(v_asked), 0) < 2 then return null; end if;
  update _memoir.work_items set payload = payload || jsonb_build_object('asked', v_asked)
  where work_id = p_work.work_id;
  return jsonb_build_object('memories', v_input);
end $$;

create or replace function _memoir.consolidate_store(p_work _memoir.work_items, p_output jsonb, p_made_by text)
returns integer language plpgsql as $$
declare
  v_user uuid := p_work.user_id; v_whole uuid := p_work.dedup_key::uuid; v_new uuid := gen_random_uuid();
  v_now timestamptz := memoir.now();
  v_ids uuid[]; v_texts text[]; v_project text; v_covered integer[]; v_text text := btrim(p_output ->> 'content');
  v_problem text;
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  -- Read under the lock: what was forgotten, corrected, marked or undone meanwhile is no cluster any more.
  select array_agg(m.memory_id order by m.recorded_at, m.memory_id), array_agg(m.content order by m.recorded_at,
    m.memory_id), min(m.project)
  into v_ids, v_texts, v_project from _memoir.members_to_merge(p_work) m;
  if coalesce(to_jsonb(v_ids), '[]') <> p_work.payload -> 'asked' then return 0; end if;
  v_covered := array(select distinct c::integer + 1 from jsonb_array_elements_text(p_output -> 'covers') c
    where c::integer < cardinality(v_ids) order by 1);
  if cardinality(v_covered) < 2 or v_text = '' then
    if cardinality(v_covered) > 0 or v_text <> '' then perform _memoir.fail('PM014',
      'one statement must cover two memories at least, or none'); end if;
    -- They don't belong together, and won't be put together again.
    perform _memoir.set_state(v_user, array[v_whole], 'invalidated', p_made_by, 'not about one thing', null, v_now);
    return cardinality(_memoir.dissolve(v_user, v_whole, p_made_by, v_now, 'system'));
  end if;
  v_problem := _memoir.read_texts('find_merge_problem', jsonb_build_object('text', v_text, 'given', v_texts,
    'covered', array(select v_texts[p] from unnest(v_covered) p))) ->> 'problem';
  if v_problem is not null then perform _memoir.fail('PM014', 'the merged text can''t stand: ' || v_problem); end if;
  if not _memoir.may_stand(v_user, v_text, v_project) then return 0; end if;
  perform _memoir.supersede(v_user, array[v_whole], v_new, p_made_by, 'reworded', v_now);
  perform _memoir.dissolve(v_user, v_whole, p_made_by, v_now, 'system');
  if _memoir.consolidate(v_user, array(select v_ids[p] from unnest(v_covered) p), _memoir.config(v_user, null),
    p_made_by, v_text, p_made_by, v_new, v_whole) is null then
    perform _memoir.fail('PM014', 'the members of a consolidated memory can''t be put together anew');
  end if;
  return 1;
end $$;
