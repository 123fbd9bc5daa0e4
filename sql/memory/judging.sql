-- Conflicts that rules can't tell, judged by a model where the setting judge names one. A work item names a memory and
-- those it may contradict; a judge works as claim → commit → call → store, and no model call holds a transaction.

-- Returns what of a work item is still to be judged: both active, of different values, the pair not judged before.
create or replace function _memoir.open_pairs(p_work _memoir.work_items)
returns setof _memoir.memory_store language plpgsql stable as $$
declare
  v_id uuid := p_work.dedup_key::uuid;
begin
  return query
  select o.* from _memoir.memory_store m, _memoir.memory_store o
  where m.user_id = p_work.user_id and m.memory_id = v_id and m.state = 'active' and m.sensitivity < 'secret'
    and o.user_id = p_work.user_id and o.memory_id
      = any (array(select x::uuid from jsonb_array_elements_text(p_work.payload -> 'others') x))
    and o.state = 'active' and o.sensitivity < 'secret' and _memoir.may_conflict(m, o)
    and not exists (select from _memoir.memory_judgements j where j.user_id = p_work.user_id and j.memory_id = v_id
    and j.other_id = o.memory_id)
  order by o.recorded_at, o.memory_id;
end $$;

create or replace function memoir.claim_judgements(p_limit integer default 16)
returns table (user_id uuid, memory_id uuid, other_id uuid, content text, other_content text, said_at timestamptz,
  other_said_at timestamptz, work_id bigint, lease_id uuid)
language plpgsql security definer set search_path from current as $$
declare
  v_work _memoir.work_items; v_left integer := p_limit; v_count integer;
begin
  perform _memoir.authorise_worker(), _memoir.check_count('limit', p_limit, 10000);
  while v_left > 0 loop
    v_work := _memoir.take_work('nli', 300);
    exit when v_work.work_id is null;
    return query
    select v_work.user_id, m.memory_id, o.memory_id, m.content, o.content, _memoir.said(m), _memoir.said(o),
      v_work.work_id, v_work.lease_id
    from _memoir.open_pairs(v_work) o
    join _memoir.memory_store m on m.user_id = v_work.user_id and m.memory_id = v_work.dedup_key::uuid;
    get diagnostics v_count = row_count;
    if v_count = 0 then delete from _memoir.work_items j where j.work_id = v_work.work_id; continue; end if;
    v_left := v_left - v_count;
  end loop;
end $$;
comment on function memoir.claim_judgements(integer) is
  'Leases about p_limit pairs of similar memories that may contradict each other, for a judge: claim, commit, judge,
store_judgements. Leases last 5 minutes; heartbeat(work_id, lease_id) keeps one. Service, jobs and admin logins only.
Raises PM001, PM014.';

-- One verdict, under the user's lock: as the memories are now. What was superseded or forgotten meanwhile is out of it,
-- and what somebody else has judged since (a lease that ran out).
create or replace function _memoir.store_verdict(p_user_id uuid, p_memory uuid, p_other uuid, p_score real,
  p_judge text)
returns boolean language plpgsql as $$
declare
  v_new _memoir.memory_store; v_old _memoir.memory_store;
  v_threshold real := (_memoir.config(p_user_id, null) ->> 'judge_threshold')::real;
begin
  select * into v_new from _memoir.memory_store where user_id = p_user_id and memory_id = p_memory and state = 'active';
  if not found then return false; end if;
  select * into v_old from _memoir.memory_store where user_id = p_user_id and memory_id = p_other and state = 'active';
  if not found or not _memoir.may_conflict(v_new, v_old)
     or exists (select from _memoir.memory_judgements j where j.user_id = p_user_id and j.memory_id = p_memory
     and j.other_id = p_other) then
    return false;
  end if;
  if p_score >= v_threshold then
    perform _memoir.settle(p_user_id, v_new, v_old, p_judge, p_score, null, null, p_judge);
  else
    perform _memoir.note_judgement(p_user_id, p_memory, p_other, p_judge, 'compatible', p_score, null, 'none', null,
      format('%s, below %s', p_score, v_threshold), memoir.now());
  end if;
  return true;
end $$;

create or replace function memoir.store_judgements(p_user_ids uuid[], p_memory_ids uuid[], p_other_ids uuid[],
  p_scores real[], p_judge text)
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_count integer := coalesce(cardinality(p_memory_ids), 0); v_user uuid; v_stored integer := 0;
  v_work _memoir.work_items;
begin
  perform _memoir.authorise_worker();
  if coalesce(cardinality(p_user_ids), 0) <> v_count or coalesce(cardinality(p_other_ids), 0) <> v_count
    or coalesce(cardinality(p_scores), 0) <> v_count then
    perform _memoir.fail('PM014', format('%s users, %s memories, %s others and %s scores are not parallel',
      coalesce(cardinality(p_user_ids), 0), v_count,
      coalesce(cardinality(p_other_ids), 0), coalesce(cardinality(p_scores), 0)));
  end if;
  if exists (select from unnest(p_scores) s where s is null or not s between 0 and 1) then
    perform _memoir.fail('PM014', 'scores must be from 0 to 1');
  end if;
  if p_judge is null then perform _memoir.fail('PM014', 'judge must name what judged, it is null'); end if;
  perform _memoir.check_short('judge', p_judge, 200);
  for v_user in select distinct u from unnest(p_user_ids) u order by u loop
    continue when not _memoir.lock_shortly(v_user);  -- claimed again when the lease ends
    for i in 1 .. v_count loop
      if p_user_ids[i] = v_user then
        v_stored := v_stored + _memoir.store_verdict(v_user, p_memory_ids[i], p_other_ids[i], p_scores[i],
          p_judge)::integer;
      end if;
    end loop;
    for v_work in select * from _memoir.work_items j where j.kind = 'nli' and j.user_id = v_user and j.state = 'leased'
      and j.dedup_key = any (p_memory_ids::text[]) order by j.work_id for update loop
      if not exists (select from _memoir.open_pairs(v_work)) then delete from _memoir.work_items
        where work_id = v_work.work_id; end if;
    end loop;
  end loop;
  return v_stored;
end $$;
comment on function memoir.store_judgements(uuid[], uuid[], uuid[], real[], text) is
  'Stores what a judge (p_judge: its name) found for claimed pairs: parallel arrays of users, memories, others and how
surely they contradict, 0 to 1. From judge_threshold on, the conflict is decided: authority, recency, confidence; the
loser is superseded, or an edge says that both stand. Each is a row of list_judgements. Returns how many were stored;
pairs that have changed meanwhile are passed over. Service, jobs and admin logins only. Raises PM001, PM014.';

-- The same by a language model (work/llm.sql): what its prompt gets, and what becomes of its answer.
create or replace function _memoir.judge_input(p_work _memoir.work_items)
returns jsonb language plpgsql as $$
declare
  v_memory _memoir.memory_store; v_other _memoir.memory_store; v_pairs jsonb := '[]'; v_asked jsonb := '[]';
begin
  select * into v_memory from _memoir.memory_store where user_id = p_work.user_id
    and memory_id = p_work.dedup_key::uuid;
  for v_other in select * from _memoir.open_pairs(p_work) limit 50 loop
    v_pairs := v_pairs || jsonb_build_object('n', jsonb_array_length(v_asked), 'one', v_memory.content, 'said',
      _memoir.day(_memoir.said(v_memory)), 'other', v_other.content, 'other_said', _memoir.day(_memoir.said(v_other)));
    v_asked := v_asked || to_jsonb(v_other.memory_id);
  end loop;
  if v_asked = '[]' then return null; end if;
  update _memoir.work_items set payload = payload || jsonb_build_object('asked', v_asked)
  where work_id = p_work.work_id;
  return jsonb_build_object('pairs', v_pairs);
end $$;

create or replace function _memoir.judge_store(p_work _memoir.work_items, p_output jsonb, p_made_by text)
returns integer language plpgsql as $$
declare
  v_asked jsonb := p_work.payload -> 'asked';
begin
  if (select count(distinct (j ->> 'n')::integer) from jsonb_array_elements(p_output -> 'judgements') j
      where (j ->> 'n')::integer between 0 and jsonb_array_length(v_asked) - 1) < jsonb_array_length(v_asked) then
    perform _memoir.fail('PM014', format('%s pairs were asked for, not all were judged', jsonb_array_length(v_asked)));
  end if;
  perform from _memoir.user_counters where user_id = p_work.user_id for update;
  return (select coalesce(sum(_memoir.store_verdict(p_work.user_id, p_work.dedup_key::uuid, (v_asked ->> x.n)::uuid,
      x.contradiction, p_made_by)::integer), 0)
    from (select distinct on (j.n) j.n, j.contradiction
      from jsonb_to_recordset(p_output -> 'judgements') j(n integer, contradiction real)
      where j.n between 0 and jsonb_array_length(v_asked) - 1 order by j.n) x);
end $$;

create or replace function memoir.list_judgements(p_user text, p_memory uuid default null, p_limit integer default 100)
returns table (recorded_at timestamptz, memory_id uuid, other_id uuid, judge text, verdict text, score real,
  similarity real, decision text, winner_id uuid, reason text)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
begin
  perform _memoir.check_count('limit', p_limit, 10000);
  if p_memory is not null then perform _memoir.memory(v_caller, p_memory); end if;
  return query
  select j.recorded_at, j.memory_id, j.other_id, j.judge, j.verdict, j.score, j.similarity, j.decision, j.winner_id,
    j.reason
  from _memoir.memory_judgements j
  where j.user_id = v_caller.user_id and (p_memory is null or p_memory in (j.memory_id, j.other_id))
    and not exists (select from _memoir.memory_store m where m.user_id = v_caller.user_id
      and m.memory_id in (j.memory_id, j.other_id) and not _memoir.may_see(v_caller, m))
  order by j.recorded_at desc, j.judgement_id limit p_limit;
end $$;
comment on function memoir.list_judgements(text, uuid, integer) is
  'Lists the decisions about conflicts and near duplicates of a user''s memories (or one), newest first: who judged
(slot, polarity, value, rules, person, or a model), the verdict (contradiction, compatible, duplicate: undo_merge takes
it back), the decision (superseded, contradicts, none), who prevails, and why. Raises PM001, PM004, PM014.';
