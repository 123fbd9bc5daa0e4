-- Consolidation: memories about one thing become one memory that holds what each of them says: a memory and the ones
-- most like it, of one type, project and authority, none contradicting another. Rules join their sentences where that
-- is shorter; where a language model is configured it is asked for better words (consolidation_model.sql). The members
-- stay, superseded; undoing brings them back.

-- Returns what is to become one: seeds by weight, each with what is at least consolidation_similarity like it and in no
-- other cluster.
create or replace function _memoir.clusters(p_user_id uuid, p_config jsonb)
returns table (members uuid[]) language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_model smallint := (select m.model_id from _memoir.embedding_models m where m.status = 'active');
  v_now timestamptz := memoir.now();
  v_like float8 := 1 - (p_config ->> 'consolidation_similarity')::float8;
  v_least integer := (p_config ->> 'consolidation_members')::integer;
  v_used uuid[] := '{}'; v_seed record;
begin
  for v_seed in
    with candidates as materialized (
      select m.memory_id, m.content, m.project, m.type, m.category, m.trust, m.tier, m.recorded_at, e.embedding,
        row_number() over (partition by m.project, m.type, m.trust, m.tier order by m.recorded_at desc, m.memory_id)
          as nth
      from _memoir.memory_store m
      join _memoir.search_items i on i.user_id = p_user_id and i.ref_id = m.memory_id and i.chunk = 0 and i.last_chunk
        and not i.dead
      join _memoir.embeddings e on e.user_id = p_user_id and e.model_id = v_model and e.item_no = i.item_no
      where m.user_id = p_user_id and m.state = 'active' and m.scope = 'global' and m.tier >= 2 and m.slot is null
        and m.sensitivity = 'normal'
        and m.valid_from is null and m.valid_to is null and length(m.content) <= 400
        and (m.expires_at is null or m.expires_at > v_now)
        -- Not what contradicts or is contradicted, nor what was brought back once.
        and not exists (select from _memoir.memory_relationships r where r.user_id = p_user_id
        and r.source_id = m.memory_id and r.relation = 'contradicts')
        and not exists (select from _memoir.memory_relationships r where r.user_id = p_user_id
        and r.target_id = m.memory_id and r.relation = 'contradicts')
        and not m.metadata ? 'stays_apart'),
    recent as materialized (select * from candidates where nth <= 300),
    pairs as materialized (
      select a.memory_id as one, b.memory_id as other, a.content as said, b.content as said_too,
        a.embedding <=> b.embedding as distance
      from recent a join recent b using (project, type, trust, tier) where a.memory_id <> b.memory_id),
    close as materialized (select * from pairs where distance <= v_like)
    select p.one, array_agg(p.other order by p.distance, p.other) as others
    from close p where _memoir.contradiction(p.said, p.said_too) is null group by p.one having count(*) >= v_least - 1
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

-- Returns what the members say, each sentence once: one that another says is left out, and those that begin alike begin
-- once ("Goes hiking in May; with Ida."). No word is lost that no other sentence has in its place.
create or replace function _memoir.consolidated_text(p_texts text[])
returns text language plpgsql stable as $$
declare
  v_text text; v_sentence text; v_kept text[] := '{}'; v_at integer; v_groups text[] := '{}'; v_openings text[] := '{}';
  v_opening text;
begin
  foreach v_text in array array(select t from unnest(p_texts) with ordinality x(t, o) order by length(t) desc, o) loop
    foreach v_sentence in array _memoir.sentences(v_text) loop
      v_at := (select n from unnest(v_kept) with ordinality k(said, n) where _memoir.says_same(said, v_sentence)
        order by n limit 1);
      if v_at is null then v_kept := v_kept || v_sentence;
      elsif length(v_sentence) > length(v_kept[v_at]) then v_kept[v_at] := v_sentence;
      end if;
    end loop;
  end loop;
  foreach v_sentence in array v_kept loop
    v_sentence := regexp_replace(btrim(v_sentence), '[.。…]+$', '');
    v_at := null;
    for i in 1 .. cardinality(v_groups) loop
      v_opening := coalesce(v_openings[i], _memoir.shared_opening(v_groups[i], v_sentence));
      if v_opening <> '' and starts_with(v_sentence, v_opening || ' ') then v_at := i; exit; end if;
    end loop;
    if v_at is null then
      v_groups := v_groups || v_sentence;
      v_openings := v_openings || null::text;
    else
      v_openings[v_at] := v_opening;
      v_groups[v_at] := v_groups[v_at] || '; ' || substr(v_sentence, length(v_opening) + 2);
    end if;
  end loop;
  return (select string_agg(g || case when g ~ '[!?！？]$' then '' else '.' end, ' ' order by n)
    from unnest(v_groups) with ordinality t(g, n));
end $$;

-- The words with which two sentences begin alike, where each goes on: two at least, or who it is about. Empty: none.
create or replace function _memoir.shared_opening(p_one text, p_other text)
returns text language plpgsql immutable as $$
declare
  v_one text[] := string_to_array(p_one, ' '); v_other text[] := string_to_array(p_other, ' '); n integer := 0;
begin
  if p_one ~ '[!?！？;]' or p_other ~ '[!?！？;]' then return ''; end if;
  while n + 1 < least(cardinality(v_one), cardinality(v_other)) and v_one[n + 1] = v_other[n + 1] loop
    n := n + 1;
  end loop;
  return case when n > 1 or v_one[1] in ('I', 'We', 'He', 'She', 'They', 'User') and n = 1
    then array_to_string(v_one[1 : n], ' ') else '' end;
end $$;

-- Of a cluster those that get shorter with the others: a member that gains less than a tenth is better found by itself.
-- By characters, since estimates of tokens have something for each text. Empty where too few are left.
create or replace function _memoir.condensable(p_user_id uuid, p_members uuid[], p_least integer)
returns uuid[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_ids uuid[]; v_texts text[]; v_kept uuid[] := '{}'; v_all integer; v_without integer;
begin
  select array_agg(m.memory_id order by m.recorded_at, m.memory_id), array_agg(m.content order by m.recorded_at,
    m.memory_id) into v_ids, v_texts
  from _memoir.memory_store m where m.user_id = p_user_id and m.memory_id = any (p_members) and m.state = 'active';
  if coalesce(cardinality(v_ids), 0) < p_least then return '{}'; end if;
  v_all := length(_memoir.consolidated_text(v_texts));
  for i in 1 .. cardinality(v_ids) loop
    v_without := coalesce(length(_memoir.consolidated_text(v_texts[: i - 1] || v_texts[i + 1 :])), 0);
    if (v_all - v_without) * 10 <= length(v_texts[i]) * 9 then v_kept := v_kept || v_ids[i]; end if;
  end loop;
  return case when cardinality(v_kept) >= p_least then v_kept else '{}' end;
end $$;

-- May a text stand for memories of a project? Not where a tombstone or a memory that says just this is in the way.
create or replace function _memoir.may_stand(p_user_id uuid, p_text text, p_project text)
returns boolean language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  return not _memoir.tombstoned(p_user_id, p_text, null, null, p_project)
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
returns uuid language plpgsql set plan_cache_mode = force_custom_plan as $$
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
  v_new.content := coalesce(p_text, _memoir.consolidated_text(v_texts));
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
  -- Every source is named: the members, and the turns they came from.
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
{"memory_id", "restored"}, an empty list where the memory is not a consolidated one that stands. Writes memory_store.
Raises PM001, PM004.';

create or replace function _memoir.step_consolidation(p_limit integer)
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_after uuid := _memoir.job_cursor('consolidation'); v_users uuid[]; v_user uuid; v_config jsonb; v_cluster record;
  v_made integer := 0; v_members integer := 0; v_more boolean;
  v_failed integer := 0; v_error text; v_whole uuid;
begin
  v_users := array(select c.user_id from _memoir.user_counters c where c.memories > 2
    and (v_after is null or c.user_id > v_after) order by c.user_id limit p_limit);
  v_more := cardinality(v_users) = p_limit;
  perform _memoir.put_job_cursor('consolidation', case when v_more then v_users[p_limit] end);
  foreach v_user in array v_users loop
    begin
      v_config := _memoir.config(v_user, null);
      -- Looked for without a lock, since it takes a while and mostly finds nothing; found again under it.
      continue when not exists (select from _memoir.clusters(v_user, v_config));
      perform from _memoir.user_counters where user_id = v_user for update skip locked;
      continue when not found;
      for v_cluster in select * from _memoir.clusters(v_user, v_config) loop
        if v_config ->> 'llm_provider' = 'none' then
          v_cluster.members := _memoir.condensable(v_user, v_cluster.members,
            (v_config ->> 'consolidation_members')::integer);
        end if;
        v_whole := _memoir.consolidate(v_user, v_cluster.members, v_config, 'consolidation');
        if v_whole is not null then
          perform _memoir.ask_for_consolidation(v_user, v_whole, v_config);
          v_made := v_made + 1; v_members := v_members + cardinality(v_cluster.members);
        end if;
      end loop;
    exception when others then
      v_failed := v_failed + 1; v_error := format('user %s: %s', v_user, sqlerrm);
    end;
  end loop;
  return jsonb_strip_nulls(jsonb_build_object('users', cardinality(v_users), 'made', v_made, 'members', v_members,
    'failed', v_failed, 'error', v_error, 'more', v_more));
end $$;

create or replace function _memoir.ask_for_consolidation(p_user_id uuid, p_whole uuid, p_config jsonb)
returns void language plpgsql as $$
begin
  if p_config ->> 'llm_provider' = 'none' then return; end if;
  perform _memoir.enqueue('consolidate', p_user_id, p_whole::text);
end $$;

-- Consolidation in a language model's words (work/llm.sql): for what rules made of a cluster it is asked with the
-- members as they were said. It answers which of them belong together, and one text for those: they become one memory
-- in its words, the others stand by themselves again. dedup_key is the memory that rules made.

-- The members of a memory that rules made, in order; none where it does not stand any more or a part of it is not
-- for everybody.
create or replace function _memoir.members_to_merge(p_work _memoir.work_items)
returns setof _memoir.memory_store language plpgsql stable set plan_cache_mode = force_custom_plan as $$
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

-- Does the turn say it? Every number of the memory stands in the turn or is part of a date; so do at least six in ten
-- of its words.
create or replace function _memoir.is_backed(p_content text, p_said text)
returns boolean language sql immutable as $$
  with said as materialized (
    select array(select distinct m[1] from regexp_matches(p_said, '\d+', 'g') m) as numbers,
      tsvector_to_array(to_tsvector('english', p_said)) as words
  ), missing as (
    select n[1] from regexp_matches(p_content, '\d+', 'g') n where n[1] !~ '^((19|20)\d\d|[12]?\d|3[01])$'
    except
    select unnest(numbers) from said
  ), words as (
    select w, w in (select unnest(words) from said) as stands
    from unnest(tsvector_to_array(to_tsvector('english', p_content))) w
    where w !~ '^\d+$' and w not in ('user', 'assist', 'tool')
  )
  select not exists (select from missing) and (select coalesce(avg(stands::integer), 0) >= 0.6 from words)
$$;

-- Returns what a text that stands for another must hold of it: numbers, dates, names, and that something is
-- denied. Number words count as numbers. What merely begins a sentence is no name: a verb or an adverb, or
-- (p_lenient) any word.
create or replace function _memoir.hard_points(p_text text, p_lenient boolean)
returns text[] language sql immutable as $$
  select array(select distinct case when d.denies then 'not'
      else coalesce(array_position(_memoir.word_list('english', 'numbers'), x)::text, x) end
    from unnest(_memoir.fixed_points(p_text)) x,
      lateral (select x ~ ('^(' || _memoir.any_word('english', 'denials') || ')$') as denies) d
    where x !~ ('^(' || _memoir.any_word('english', 'soft_words') || ')$')
      and (d.denies or not exists (select from regexp_matches(p_text, '(?:^|[.!?;:]\s+)([[:upper:]][[:alnum:]]*)',
        'g') m
        where lower(m[1]) = x and (p_lenient or m[1] ~ '(s|ed|ing|ly)$')
          and p_text !~ ('[[:alnum:],] +' || m[1] || '\M'))))
$$;

create or replace function _memoir.has_point(p_text text, p_points text[], p_point text)
returns boolean language sql immutable as $$
  select p_point = any (p_points) or case when p_point = 'not' then false
    when p_point ~ '^\d+$' then p_text ~ ('(^|\D)' || p_point || '($|\D)') else strpos(lower(p_text), p_point) > 0 end
$$;

-- Returns what is wrong with a text that shall stand for some (p_covered) of the texts that were given; null
-- if nothing.
create or replace function _memoir.merge_problem(p_text text, p_covered text[], p_given text[])
returns text language plpgsql immutable as $$
declare
  v_points text[] := _memoir.hard_points(p_text, false); v_given text := array_to_string(p_given, E'\n'); v_all text[];
  v_point text;
begin
  v_all := array(select p from unnest(p_given) g, unnest(_memoir.hard_points(g, false)) p);
  select p into v_point from unnest(p_covered) c, unnest(_memoir.hard_points(c, false)) p
  where not _memoir.has_point(p_text, v_points, p) order by p limit 1;
  if found then return format('it covers a memory with %s and does not say that', _memoir.shown(v_point)); end if;
  select p into v_point from unnest(_memoir.hard_points(p_text, true)) p where not _memoir.has_point(v_given, v_all, p)
  order by p limit 1;
  if found then return format('no memory that was given says %s', _memoir.shown(v_point)); end if;
  if length(p_text) > 1.5 * length(v_given) + 40 or not _memoir.is_backed(p_text, v_given)
    then return 'it says more than the memories that were given'; end if;
  return null;
end $$;

create or replace function _memoir.consolidate_store(p_work _memoir.work_items, p_output jsonb, p_made_by text)
returns integer language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_work.user_id; v_whole uuid := p_work.dedup_key::uuid; v_new uuid := gen_random_uuid();
  v_now timestamptz := memoir.now();
  v_ids uuid[]; v_texts text[]; v_project text; v_covered integer[]; v_text text := btrim(p_output ->> 'content');
  v_problem text;
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  -- Read under the lock: what was forgotten, corrected, marked or undone while the model was at it is no cluster any
  -- more.
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
  v_problem := _memoir.merge_problem(v_text, array(select v_texts[p] from unnest(v_covered) p), v_texts);
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
