-- Conflicts and near duplicates. A slot's value is decided at once; otherwise a new memory is compared with the user's
-- most similar ones when its vector arrives: conflicts first, then near duplicates. Nothing is deleted: the loser is
-- superseded, or an edge says that both stand; a row says who judged, what, and why.
-- The order of decision ([PG] 5.5): authority, recency, confidence. A lower authority never supersedes a higher one.

-- The authority of a word: a person's own is one, whatever its kind; else it's the trust. p_challenges: a correction
-- that challenges a memory ranks with a person's statements, whoever carries it.
create or replace function _memoir.authority(p_actor _memoir.actor, p_provenance _memoir.provenance, p_trust real,
  p_challenges boolean)
returns real language sql immutable as $$
  select case when p_challenges and p_provenance = 'correction' or p_actor = 'person'
    and p_provenance in ('user_stated', 'correction', 'instruction', 'preference') then 1 else p_trust end::real
$$;

create or replace function _memoir.note_judgement(p_user_id uuid, p_memory uuid, p_other uuid, p_judge text,
  p_verdict text, p_score real, p_similarity real, p_decision text, p_winner uuid, p_reason text, p_at timestamptz)
returns void language plpgsql as $$
begin
  insert into _memoir.memory_judgements (user_id, judgement_id, recorded_at, memory_id, other_id, judge, verdict, score,
    similarity, decision, winner_id, reason)
  values (p_user_id, gen_random_uuid(), p_at, p_memory, p_other, p_judge, p_verdict, p_score, p_similarity, p_decision,
    p_winner, p_reason);
  if p_decision = 'contradicts' then
    insert into _memoir.memory_relationships (user_id, source_id, relation, target_id, made_by, recorded_at)
    values (p_user_id, p_memory, 'contradicts', p_other, p_judge, p_at) on conflict do nothing;
  end if;
end $$;

-- Decides a contradiction between two active memories: supersedes or leaves an edge, and says so. Returns new, old, or
-- open where both stand. A memory that a person corrected is withdrawn with all it came from, as correct does. p_from:
-- the new one is true from then on, so the old one keeps its time before.
create or replace function _memoir.settle(p_user_id uuid, p_new _memoir.memory_store, p_old _memoir.memory_store,
  p_judge text, p_score real, p_similarity real, p_from timestamptz, p_by text)
returns text language plpgsql as $$
declare
  v_now timestamptz := memoir.now(); v_winner _memoir.memory_store; v_loser _memoir.memory_store;
  v_new real := _memoir.authority(p_new.actor, p_new.provenance, p_new.trust, true);
  v_old real := _memoir.authority(p_old.actor, p_old.provenance, p_old.trust, false);
  v_said timestamptz := _memoir.said(p_new); v_was timestamptz := _memoir.said(p_old); v_reason text; v_prevails text;
begin
  if v_new < v_old or p_new.local_to is not null and p_old.local_to is null then
    v_prevails := 'open';
    v_reason := case when v_new < v_old then format('authority %s against %s', v_new, v_old)
      else 'what is local to a session supersedes nothing global' end;
  elsif v_new > v_old then
    v_prevails := 'new';
    v_reason := format('authority %s over %s', v_new, v_old);
  else
    v_prevails := case when v_said > v_was or v_said = v_was and p_new.confidence >= p_old.confidence then 'new'
      when p_old.local_to is not distinct from p_new.local_to then 'old' else 'open' end;
    v_reason := case when v_said > v_was then 'equal authority, said after the other'
      when v_said < v_was then 'equal authority, said before the other'
      else format('equal authority and time, confidence %s to %s', p_new.confidence, p_old.confidence) end;
  end if;
  if v_prevails = 'open' then
    perform _memoir.note_judgement(p_user_id, p_new.memory_id, p_old.memory_id, p_judge, 'contradiction', p_score,
      p_similarity, 'contradicts', null, v_reason, v_now);
    return 'open';
  end if;
  if v_prevails = 'new' then v_winner := p_new; v_loser := p_old; else v_winner := p_old; v_loser := p_new; end if;
  perform _memoir.supersede(p_user_id, array[v_loser.memory_id], v_winner.memory_id, p_by, p_judge, v_now);
  perform _memoir.note_judgement(p_user_id, p_new.memory_id, p_old.memory_id, p_judge, 'contradiction', p_score,
    p_similarity, 'superseded', v_winner.memory_id, v_reason, v_now);
  if v_prevails = 'new' and p_from > coalesce(p_old.valid_from, '-infinity') then
    v_loser.valid_to := least(p_from, p_old.valid_to);
    perform _memoir.copied(v_loser, true, p_by, p_judge, v_now, p_new.actor);
  elsif v_prevails = 'new' and p_new.provenance = 'correction' then
    if p_new.actor = 'person' then
      perform _memoir.set_tombstones(p_user_id, array[p_old.memory_id], p_old.slot is not null
        and p_old.slot_value is distinct from p_new.slot_value, false,
        p_old.memory_id, 'corrected', p_new.actor, p_new.written_by, v_now, array[p_new.memory_id]);
    end if;
    perform _memoir.withdraw(p_user_id, array[p_old.memory_id],
      array(select s.source_id from _memoir.memory_sources s where s.user_id = p_user_id and s.item_kind = 'memory'
        and s.item_id = p_new.memory_id and s.source_kind = 'turn'),
      p_old.memory_id, p_by, 'corrected', v_now);
  end if;
  return v_prevails;
end $$;

create or replace function _memoir.settle_slot(p_user_id uuid, p_memory_id uuid, p_from timestamptz, p_by text,
  out superseded uuid[], out contradicts uuid[], out outdated boolean)
language plpgsql as $$
declare
  v_new _memoir.memory_store; v_old _memoir.memory_store; v_now timestamptz := memoir.now(); v_done text;
begin
  superseded := '{}'; contradicts := '{}'; outdated := false;
  select * into v_new from _memoir.memory_store where user_id = p_user_id and memory_id = p_memory_id;
  if v_new.slot is null then return; end if;
  for v_old in select * from _memoir.memory_store m
    where m.user_id = p_user_id and m.slot = v_new.slot and m.state = 'active' and m.memory_id <> p_memory_id
      and m.slot_value is distinct from v_new.slot_value and (m.expires_at is null or m.expires_at > v_now)
    order by m.recorded_at, m.memory_id loop
    -- A value by its other name, as the user's own texts have it, is no other value.
    continue when not _memoir.may_conflict(v_new, v_old) or exists (
      select from _memoir.search_aliases a join _memoir.search_items i on i.user_id = p_user_id
        and i.item_no = a.item_no
      where a.user_id = p_user_id and a.name = _memoir.alias_key(v_new.slot_value)
        and a.other = _memoir.alias_key(v_old.slot_value) and a.stated and not i.dead);
    v_done := _memoir.settle(p_user_id, v_new, v_old, 'slot', null, null, p_from, p_by);
    if v_done = 'new' then superseded := superseded || v_old.memory_id;
    elsif v_done = 'open' then contradicts := contradicts || v_old.memory_id;
    else
      outdated := true;
      return;
    end if;
  end loop;
end $$;

-- Judges an active memory whose vector has arrived. Conflicts first, by rules, what they can't tell queued for a model
-- where one is configured; then near duplicates ([PG] 5.4: cosine above the threshold, nothing fixed differs, one's
-- words are in the other): the greater authority stays active, of equals the more specific text. What only says again
-- in other words what a person rejected is invalidated, unless a person says it.
create or replace function _memoir.reconcile_memory(p_user_id uuid, p_memory_id uuid, p_by text)
returns jsonb language plpgsql as $$
declare
  v_state _memoir.judging_state; v_config jsonb := _memoir.config(p_user_id, null); v_memory _memoir.memory_store;
  v_vector halfvec; v_model smallint;
  v_least real := least((v_config ->> 'duplicate_similarity')::real, (v_config ->> 'conflict_similarity')::real);
begin
  select * into v_memory from _memoir.memory_store where user_id = p_user_id and memory_id = p_memory_id
    and state = 'active' and type <> all (_memoir.experience_types());  -- ways stand side by side
  if not found then return null; end if;
  select e.embedding, e.model_id into v_vector, v_model
  from _memoir.search_items i join _memoir.embeddings e on e.user_id = p_user_id and e.item_no = i.item_no
  join _memoir.embedding_models m on m.model_id = e.model_id and m.status = 'active'
  where i.user_id = p_user_id and i.ref_id = p_memory_id and i.chunk = 0;
  if not found then return null; end if;
  -- The memories of its project that its vector is like, with what the package says of their texts. Distances in the
  -- list, not in the condition: vectors of other models have other dimensions.
  with near as materialized (select i.ref_id, (1 - (e.embedding <=> v_vector))::real as similarity
    from _memoir.embeddings e join _memoir.search_items i on i.user_id = p_user_id and i.item_no = e.item_no
    where e.user_id = p_user_id and e.model_id = v_model and i.kind = 'm' and i.chunk = 0 and i.ref_id <> p_memory_id),
  nearest as (select * from near where similarity > v_least order by similarity desc, ref_id limit 50)
  select coalesce(array_agg(m order by s.similarity desc, m.memory_id), '{}'),
    coalesce(array_agg(s.similarity order by s.similarity desc, m.memory_id), '{}'),
    _memoir.read_texts('compare_statements', jsonb_build_object('text', v_memory.content, 'others',
      coalesce(jsonb_agg(m.content order by s.similarity desc, m.memory_id), '[]'))) -> 'found'
  into v_state.others, v_state.similarities, v_state.comparisons
  from nearest s join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = s.ref_id
  where m.state <> 'expired' and m.project = v_memory.project and m.type <> all (_memoir.experience_types());
  v_state.memory := v_memory;
  v_state.is_settled := '{}'; v_state.open := '{}';
  v_state.superseded := '{}'; v_state.contradicts := '{}';
  v_state := _memoir.judge_conflicts(v_state, p_by, v_config);
  if v_state.result is not null then return v_state.result; end if;
  v_state := _memoir.judge_duplicates(v_state, p_by, v_config);
  if v_state.open <> '{}' and v_state.result ->> 'outcome' is distinct from 'duplicate' then
    -- Kind nli for a cross-encoder (claim_judgements), judge for a language model (llm.sql). New pairs join others.
    insert into _memoir.work_items (kind, user_id, dedup_key, run_after, payload, created_at)
    select case config ->> 'judge' when 'llm' then 'judge' else 'nli' end, p_user_id, p_memory_id::text, memoir.now(),
      jsonb_build_object('others', v_state.open), memoir.now()
    from _memoir.settings_merged where config ->> 'judge' <> 'rules'
    on conflict (kind, user_id, dedup_key) where state = 'ready' do update set payload = excluded.payload;
  end if;
  return coalesce(v_state.result, '{}')
    || jsonb_build_object('superseded', to_jsonb(v_state.superseded), 'contradicts', to_jsonb(v_state.contradicts));
end $$;

-- Conflicts, by rules; open: what a model must judge. A result ends it: the memory was rejected or is outdated.
create or replace function _memoir.judge_conflicts(inout p_state _memoir.judging_state, p_by text, p_config jsonb)
language plpgsql as $$
declare
  v_memory _memoir.memory_store := p_state.memory; v_other _memoir.memory_store; v_similarity real; v_kind text;
  v_done text; v_place integer := 0; v_user uuid := v_memory.user_id;
  v_conflict real := (p_config ->> 'conflict_similarity')::real;
  v_asks_model boolean := p_config ->> 'judge' <> 'rules';
begin
  foreach v_other in array p_state.others loop
    v_place := v_place + 1;
    v_similarity := p_state.similarities[v_place];
    if v_other.state <> 'active' then
      -- Does it say again, in other words, what a person rejected? Not where a person says it, nor what took the
      -- other's place, at once or through others: a correction that sounds like what it corrects is no restatement.
      continue when (p_state.comparisons -> (v_place - 1) ->> 'has_same_points') is distinct from 'true'
        or v_memory.actor = 'person' or v_similarity <= (p_config ->> 'duplicate_similarity')::real
        or (_memoir.tombstone_of(v_user, v_other.content, null, null, v_other.project)).user_id is null;
      continue when exists (with recursive successors as (select v_other.memory_id as id
          union
          select r.source_id from successors s join _memoir.memory_relationships r on r.user_id = v_user
            and r.target_id = s.id and r.relation = 'supersedes')
        select from successors where id = v_memory.memory_id);
      perform _memoir.set_state(v_user, array[v_memory.memory_id], 'invalidated', p_by,
        'says again what was rejected', null, memoir.now());
      p_state.result := jsonb_build_object('memory_id', null, 'outcome', 'refused_tombstone', 'similarity',
        round(v_similarity::numeric, 4));
      return;
    end if;
    continue when v_similarity <= v_conflict or v_memory.slot = v_other.slot
      or not _memoir.may_conflict(v_memory, v_other);
    v_kind := p_state.comparisons -> (v_place - 1) ->> 'contradiction';
    if v_kind is null then
      if v_asks_model and v_memory.sensitivity < 'secret'
        and v_other.sensitivity < 'secret' then p_state.open := p_state.open || v_other.memory_id; end if;
      continue;
    end if;
    p_state.is_settled[v_place] := true;
    v_done := _memoir.settle(v_user, v_memory, v_other, v_kind, null, v_similarity, null, p_by);
    if v_done = 'new' then p_state.superseded := p_state.superseded || v_other.memory_id;
    elsif v_done = 'open' then p_state.contradicts := p_state.contradicts || v_other.memory_id;
    else
      p_state.result := jsonb_build_object('outcome', 'outdated', 'superseded', to_jsonb(p_state.superseded),
        'contradicts', to_jsonb(p_state.contradicts));
      return;
    end if;
  end loop;
end $$;

-- The nearest that says the same in other words: one of the two goes on for both.
create or replace function _memoir.judge_duplicates(inout p_state _memoir.judging_state, p_by text, p_config jsonb)
language plpgsql as $$
declare
  v_memory _memoir.memory_store := p_state.memory; v_other _memoir.memory_store; v_similarity real; v_wins boolean;
  v_place integer := 0;
  v_user uuid := v_memory.user_id; v_duplicate real := (p_config ->> 'duplicate_similarity')::real;
begin
  foreach v_other in array p_state.others loop
    v_place := v_place + 1;
    v_similarity := p_state.similarities[v_place];
    continue when p_state.is_settled[v_place] or v_similarity <= v_duplicate or v_other.state <> 'active'
      or v_other.type <> v_memory.type
      or v_other.sensitivity <> v_memory.sensitivity or not _memoir.may_conflict(v_memory, v_other)
      or v_other.valid_to is distinct from v_memory.valid_to or v_other.slot is distinct from v_memory.slot
      or v_other.slot_value is distinct from v_memory.slot_value
      or (p_state.comparisons -> (v_place - 1) ->> 'is_same') is distinct from 'true'
      or exists (select from _memoir.memory_judgements j where j.user_id = v_user and j.verdict = 'compatible'
        and j.reason = 'merge undone' and (j.memory_id = v_memory.memory_id and j.other_id = v_other.memory_id
          or j.memory_id = v_other.memory_id and j.other_id = v_memory.memory_id));
    v_wins := v_memory.trust > v_other.trust or v_memory.trust = v_other.trust
      and length(v_memory.content) > length(v_other.content);
    continue when v_memory.local_to is distinct from v_other.local_to and case when v_wins then v_memory.local_to
      else v_other.local_to end is not null;
    if v_wins then
      perform _memoir.merge_memory(v_user, v_other.memory_id, v_memory.memory_id, p_by, memoir.now());
      p_state.superseded := p_state.superseded || v_other.memory_id;
      p_state.result := jsonb_build_object('outcome', 'stored', 'similarity', round(v_similarity::numeric, 4));
    else
      perform _memoir.merge_memory(v_user, v_memory.memory_id, v_other.memory_id, p_by, memoir.now());
      p_state.result := jsonb_build_object('memory_id', v_other.memory_id, 'outcome', 'duplicate', 'similarity',
        round(v_similarity::numeric, 4));
    end if;
    perform _memoir.note_judgement(v_user, v_memory.memory_id, v_other.memory_id, 'rules', 'duplicate', null,
      v_similarity, 'superseded', case when v_wins then v_memory.memory_id else v_other.memory_id end, case
      when v_memory.trust <> v_other.trust then 'near duplicate of greater authority'
      else 'near duplicate that says more' end, memoir.now());
    p_state.open := array_remove(p_state.open, v_other.memory_id);
    return;
  end loop;
end $$;

-- One memory was said again in other words: the other goes on for both, with the sources of both.
create or replace function _memoir.merge_memory(p_user_id uuid, p_loser uuid, p_winner uuid, p_by text,
  p_at timestamptz)
returns void language plpgsql as $$
begin
  perform _memoir.supersede(p_user_id, array[p_loser], p_winner, p_by, 'near duplicate', p_at);
  insert into _memoir.memory_stats (user_id, memory_id, restatements, reinforced_at)
    values (p_user_id, p_winner, 1, p_at)
  on conflict (user_id, memory_id) do update set restatements = memory_stats.restatements + 1, reinforced_at = p_at;
  insert into _memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id, session_id, turn_index,
    span_start, span_length, link)
  select user_id, item_kind, p_winner, source_kind, source_id, session_id, turn_index, span_start, span_length, 'merged'
  from _memoir.memory_sources where user_id = p_user_id and item_kind = 'memory' and item_id = p_loser
  on conflict do nothing;
  perform _memoir.take_labels(p_user_id, p_winner, tags, aliases) from _memoir.memory_store
  where user_id = p_user_id and memory_id = p_loser;
end $$;

create or replace function memoir.undo_merge(p_user text, p_memory uuid)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_memory _memoir.memory_store := _memoir.memory(v_caller, p_memory); v_restored boolean;
  v_user uuid := v_caller.user_id; v_winner uuid; v_now timestamptz := memoir.now();
begin
  perform from _memoir.user_counters where user_id = v_user for update;
  v_memory := _memoir.memory(v_caller, p_memory);
  v_winner := v_memory.superseded_by;
  v_restored := v_memory.state = 'superseded' and exists (select from _memoir.memory_judgements j
    where j.user_id = v_user and j.verdict = 'duplicate' and j.winner_id = v_winner
      and p_memory in (j.memory_id, j.other_id) and v_winner in (j.memory_id, j.other_id));
  if v_restored then
    update _memoir.memory_store set superseded_by = null where user_id = v_user and memory_id = p_memory;
    v_restored := _memoir.restore(v_user, p_memory, v_caller.login, 'merge undone', v_now, _memoir.actor(v_caller, null,
      'person'));
    update _memoir.memory_store set superseded_by = v_winner
    where not v_restored and user_id = v_user and memory_id = p_memory;
  end if;
  if v_restored then
    -- The winner loses what it got from it: the pair stays apart.
    delete from _memoir.memory_relationships
    where user_id = v_user and source_id = v_winner and target_id = p_memory and relation = 'supersedes';
    update _memoir.memory_stats set restatements = greatest(0, restatements - 1) where user_id = v_user
      and memory_id = v_winner;
    -- Its sources, but for those that came with another as well.
    delete from _memoir.memory_sources w using _memoir.memory_sources l
    where w.user_id = v_user and w.item_kind = 'memory' and w.item_id = v_winner and w.link = 'merged'
      and l.user_id = v_user and l.item_kind = 'memory' and l.item_id = p_memory and l.source_kind = w.source_kind
      and l.source_id = w.source_id
      and not exists (select from _memoir.memory_sources o join _memoir.memory_store m on m.user_id = v_user
          and m.memory_id = o.item_id
        where o.user_id = v_user and o.item_kind = 'memory' and o.source_kind = w.source_kind
          and o.source_id = w.source_id and m.superseded_by = v_winner and m.state_reason = 'near duplicate');
    perform _memoir.note_judgement(v_user, p_memory, v_winner, 'person', 'compatible', null, null, 'none', null,
      'merge undone', v_now);
  end if;
  return jsonb_build_object('memory_id', p_memory, 'merged_into', v_memory.superseded_by, 'restored', v_restored);
end $$;
comment on function memoir.undo_merge(text, uuid) is
  'Takes back that a memory was dropped as a near duplicate of another (list_judgements: verdict duplicate): it is
active again, the other loses what it got from it (its sources, one restatement), and the two stay apart. Returns
{"memory_id", "merged_into", "restored"}; restored is false where it was not merged so, or can''t come back (a
tombstone, its end, another value in its slot). Writes memory_store and memory_judgements. Raises PM001, PM004.';

-- A memory local to a session, or outside of any, becomes global, where everything finds it. The same text known
-- globally takes it in: returns what stands for it then.
create or replace function _memoir.make_global(p_user_id uuid, p_memory_id uuid, p_by text, p_at timestamptz)
returns uuid language plpgsql as $$
declare
  v_memory _memoir.memory_store; v_same _memoir.memory_store;
begin
  select * into v_memory from _memoir.memory_store where user_id = p_user_id and memory_id = p_memory_id;
  if v_memory.local_to is null then return p_memory_id; end if;
  select * into v_same from _memoir.memory_store m
  where m.user_id = p_user_id and m.content_hash = v_memory.content_hash and m.project = v_memory.project
    and m.local_to is null and m.state = 'active'
    and m.valid_to is not distinct from v_memory.valid_to;
  if found then
    perform _memoir.restate(v_same, v_memory);
    perform _memoir.merge_memory(p_user_id, p_memory_id, v_same.memory_id, p_by, p_at);
    return v_same.memory_id;
  end if;
  update _memoir.memory_store set scope = 'global', local_to = null, tier = greatest(tier, 2) where user_id = p_user_id
    and memory_id = p_memory_id;
  update _memoir.search_items set session_id = null where user_id = p_user_id and ref_id = p_memory_id;
  return p_memory_id;
end $$;

-- The same text again: the memory takes on the higher authority, the stricter sensitivity and the later end.
create or replace function _memoir.restate(p_old _memoir.memory_store, p_new _memoir.memory_store)
returns void language plpgsql as $$
begin
  update _memoir.memory_store set
    trust = greatest(trust, p_new.trust), confidence = greatest(confidence, p_new.confidence),
      tier = greatest(tier, p_new.tier),
    provenance = case when p_new.trust > trust then p_new.provenance else provenance end,
    actor = case when p_new.trust > trust then p_new.actor else actor end,
    validated_at = coalesce(validated_at, p_new.validated_at), sensitivity = greatest(sensitivity, p_new.sensitivity),
    embeddable = embeddable and p_new.embeddable,
    expires_at = case when p_new.expires_at is null then null else greatest(expires_at, p_new.expires_at) end
  where user_id = p_old.user_id and memory_id = p_old.memory_id
    and (p_new.trust > trust or p_new.confidence > confidence or p_new.tier > tier
    or p_new.sensitivity > sensitivity or embeddable and not p_new.embeddable or validated_at is null
    and p_new.validated_at is not null
    or expires_at is not null and (p_new.expires_at is null or p_new.expires_at > expires_at));
  if p_new.sensitivity > p_old.sensitivity then
    update _memoir.search_items set sensitivity = p_new.sensitivity where user_id = p_old.user_id
      and ref_id = p_old.memory_id;
    perform _memoir.leave_profile(p_old.user_id, array[p_old.memory_id]);
  end if;
  update _memoir.user_counters set profile_stale = true
  where p_new.tier > p_old.tier and user_id = p_old.user_id and not profile_stale;
  perform _memoir.take_labels(p_old.user_id, p_old.memory_id, p_new.tags, p_new.aliases);
  if p_old.embeddable and not p_new.embeddable then
    delete from _memoir.embeddings e using _memoir.search_items i
    where i.user_id = p_old.user_id and i.ref_id = p_old.memory_id and e.user_id = p_old.user_id
      and e.item_no = i.item_no;
    update _memoir.search_items set embeddable = false where user_id = p_old.user_id and ref_id = p_old.memory_id;
  end if;
end $$;
