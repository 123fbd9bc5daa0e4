-- Ranks what a user learnt by its fit (cosine of the task and the trigger, or nine tenths of that of the way, and the
-- words they share; without a query all fits), by its record and its scope. Record: the lower end of Wilson's interval
-- (1927, z = 1) of its successes, which halve with their age; a person's word counts as two, an agent's as one. A way
-- has failed if failures outweigh these, or if it failed the last time and has not worked three times as often. Such a
-- way comes behind all others; one that shares a trigger with it is found by all of its triggers, at nine tenths. Of
-- ways that are the same the nearest trigger decides.
create or replace function _memoir.find_experience(p_user_id uuid, p_project text, p_scope _memoir.search_scope,
  p_question _memoir.question, p_config jsonb, p_limit integer)
returns setof _memoir.found_way language plpgsql stable as $$
declare
  v_floor float8 := p_config ->> 'experience_floor'; v_asks boolean := p_question.query is not null;
begin
  return query
  with judged as (
    select s.*, r.name, f.fit as own, max(f.fit) over (partition by r.name) as of_way, case
        when s.bad > s.good + s.word - 0.95 or s.failed_last and 3 * s.bad > s.good + 3 * s.word - 2.8 then 'failed'
        when s.good > 0 then 'worked' else 'untried' end as verdict, case s.project when p_project then 1 else 0.95 end
        * (0.7 + 0.3 * (r.good + 0.5 - sqrt(r.good * s.bad / r.tried + 0.25)) / (r.tried + 1)) as weight
    from _memoir.seen_experience(p_user_id, p_project, p_scope, p_question, p_config) s cross join lateral (
      select _memoir.normalise(s.way) as name, s.good + s.word as good, s.good + s.word + s.bad as tried) r
    cross join lateral (select case when not v_asks then 1 when s.cosine is null then w.share
        else 0.9 * s.cosine + 0.1 * w.share end as fit
      from (select coalesce((count(*) filter (where t = any (s.words)))::float8 / nullif(count(*), 0), 0) as share
        from unnest(p_question.terms) t) w) f
  ), heirs as (
    select j.*, case j.verdict when 'failed' then j.own else greatest(j.own, 0.9 * max(j.of_way)
      filter (where j.verdict = 'failed') over (partition by j.trigger)) end as fit from judged j
  ), near as (
    select h.*, h.fit * h.weight as score, max(h.fit) over () as best, max(h.fit) filter (where h.verdict <> 'failed')
      over () as best_way, first_value(h.trigger) over (order by h.verdict = 'failed', h.fit desc) as best_trigger,
      row_number() over (partition by h.name order by h.fit desc, h.verdict = 'failed', h.weight desc) as nth
    from heirs h where h.fit >= v_floor
  )
  select (row_number() over (order by n.verdict = 'failed', n.score desc, n.last_at desc nulls last, n.memory_id))
    ::integer, n.memory_id, n.type, n.trigger, n.way, n.verdict, n.tried, n.succeeded, n.tried - n.succeeded, n.last_at,
    case n.verdict when 'failed' then n.note end, n.fit::real, n.score::real, (
      select format('- %s%s%s (%s; id %s)', case n.verdict when 'failed' then 'Failed: ' else '' end,
        case when n.way <> n.trigger then t[1] || ' => ' else '' end, t[2], case n.verdict when 'untried'
          then 'not tried' else concat(n.verdict, ' ', case n.verdict when 'failed' then n.tried - n.succeeded
            else n.succeeded end, ' of ', n.tried, ', last ', _memoir.day(n.last_at), ': ' || t[3]) end,
        left(n.memory_id::text, 8))
      from (select array_agg(_memoir.neutralise(case when length(x.line) > g.most then left(x.line, g.most - 1) || '…'
          else x.line end) order by g.o) as t
        from unnest(array[n.trigger, n.way, case n.verdict when 'failed' then n.note end], '{120,360,120}'::integer[])
          with ordinality g(given, most, o)
        cross join lateral (select _memoir.one_line(g.given) as line) x) texts)
  from near n
  where n.nth = 1 and n.fit >= 0.7 * n.best and (n.verdict <> 'failed' or v_asks and n.fit >= v_floor + 0.1
    and (n.trigger = n.best_trigger or n.fit >= coalesce(n.best_way, 0) - 0.02))
  order by 1 limit p_limit;
end $$;

-- The experience that a caller may see, with the cosine of a task and what was tried; good and bad weigh by their age.
create or replace function _memoir.seen_experience(p_user_id uuid, p_project text, p_scope _memoir.search_scope,
  p_question _memoir.question, p_config jsonb)
returns setof _memoir.seen_way language plpgsql stable as $$
declare
  v_now timestamptz := memoir.now();
begin
  return query
  select m.memory_id, m.type, m.project, case m.actor when 'person' then 2.0 else 1.0 end::float8,
    split_part(m.content, E'\n', 1),
    coalesce(nullif(substr(m.content, strpos(m.content || E'\n', E'\n') + 1), ''), m.content),
    case when p_question.query is not null then tsvector_to_array(to_tsvector(p_question.text_config, m.content)) end,
    -- As a condition below, null would take the user's along, and lock all partitions.
    case when p_question.vector is not null then (
      select max((1 - (e.embedding <=> p_question.vector)) * case i.chunk when 0 then 1 else 0.9 end)
      from _memoir.search_items i join _memoir.embeddings e on e.user_id = p_user_id
        and e.model_id = p_question.model_id and e.item_no = i.item_no
      where i.user_id = p_user_id and i.ref_id = m.memory_id and not i.dead) end,
    o.tried, o.succeeded, o.last_at, o.good, o.bad, o.failed_last, o.note
  from _memoir.memory_store m
  cross join lateral (select coalesce((p_config -> 'half_life_days' ->> m.type)::float8, 365) * 86400 as seconds) h
  cross join lateral (select count(*)::integer as tried, (count(*) filter (where x.succeeded))::integer as succeeded,
      max(x.recorded_at) as last_at, coalesce(sum(w.weight) filter (where x.succeeded), 0) as good,
      coalesce(sum(w.weight) filter (where not x.succeeded), 0) as bad,
      coalesce(not (array_agg(x.succeeded order by x.recorded_at desc))[1], false) as failed_last,
      (array_agg(x.note order by x.recorded_at desc) filter (where not x.succeeded and x.note is not null))[1] as note
    from _memoir.experience_outcomes x cross join lateral (select power(0.5, least(100, greatest(0,
      extract(epoch from v_now - x.recorded_at)::float8 / h.seconds))) as weight) w
    where x.user_id = p_user_id and x.memory_id = m.memory_id) o
  where m.user_id = p_user_id and m.state = 'active' and m.type in ('procedure', 'lesson', 'skill')
    and m.project in ('global', p_project) and m.sensitivity <= p_scope.clearance
    and (p_scope.projects is null or m.project = any (p_scope.projects))
    and (m.local_to is null or m.local_to = any (p_scope.local_sessions))
    and (m.expires_at is null or m.expires_at > v_now) and tstzrange(m.valid_from, m.valid_to) @> v_now;
end $$;

-- The block of a compile: {"text": fenced, "ids"}, null where nothing fits. p_said: what the list says already.
create or replace function _memoir.experience_block(p_user_id uuid, p_project text, p_scope _memoir.search_scope,
  p_question _memoir.question, p_config jsonb, p_budget integer, p_said text)
returns jsonb language sql stable as $$
  with found as materialized (select f.memory_id, f.line, row_number() over (order by f.rank) as o
    from _memoir.find_experience(p_user_id, p_project, p_scope, p_question, p_config,
      (p_config ->> 'experience_ways')::integer) f where strpos(coalesce(p_said, ''), f.line) = 0)
  select jsonb_build_object('text', _memoir.fence('experience', string_agg(l.line, E'\n' order by l.o)), 'ids',
    jsonb_agg(f.memory_id order by l.o))
  from _memoir.fit_lines(array(select f.line from found f order by f.o),
    p_budget - memoir.count_tokens(_memoir.fence('experience', ''))) l join found f on f.o = l.o having count(*) > 0
$$;

create or replace function memoir.recall_experience(p_user text, p_task text default null,
  p_session text default null, p_project text default null, p_limit integer default 3,
  p_query_embedding real[] default null)
returns table (rank integer, memory_id uuid, type text, trigger text, way text, verdict text, tried integer,
  succeeded integer, failed integer, last_tried_at timestamptz, note text, fit real, score real, line text)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_session _memoir.sessions; v_config jsonb;
  v_question _memoir.question; v_scope _memoir.search_scope;
begin
  perform _memoir.check_count('limit', p_limit, 50);
  select * into v_session from _memoir.sessions s where s.user_id = v_caller.user_id
    and s.session_id = _memoir.session_id(v_caller.user_id, p_session);
  v_config := _memoir.config(v_caller.user_id, v_session.settings);
  v_scope.projects := v_caller.projects;
  v_scope.clearance := least(v_caller.clearance, 'private'::_memoir.sensitivity);
  v_scope.local_sessions := array[coalesce(v_session.session_id, _memoir.no_session())];
  if not _memoir.is_blank(p_task) then
    v_question := _memoir.question(v_caller.user_id, (select c from _memoir.user_counters c
      where c.user_id = v_caller.user_id), v_config, _memoir.read_question(p_task, v_config, p_query_embedding, false),
      v_scope, p_query_embedding);
  end if;
  return query select * from _memoir.find_experience(v_caller.user_id, _memoir.check_project(v_caller,
    coalesce(p_project, v_session.project, _memoir.default_project(v_caller))), v_scope, v_question, v_config, p_limit);
end $$;
comment on function memoir.recall_experience(text, text, text, text, integer, real[]) is
  'The ways that a user''s experience has for a task, at most p_limit, best first: verdict worked or untried, then those
that failed, where they are the nearest. fit: of task and trigger; score: fit by record and scope; line: as a compile
shows it. p_task null: all that did not fail. p_session or p_project: of this project and of all. p_query_embedding:
vector of the active embedding model. Raises PM001, PM014, PM030.';
