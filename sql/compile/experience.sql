-- Experience for a task: the ways that worked before, best first, and those that failed as warnings behind them.

-- Ranks what a user learnt by how well it fits a task (p_question; no query: all fits), by its record and by scope.
--   fit     the cosine of the task and the trigger, nine tenths of that of the way, blended with the words they share
--   record  the lower end of Wilson's score interval (z = 1) of its successes; outcomes halve with their age, and a
--           person's word counts as two successes, an agent's as one
--   failed  more failures than successes and that word make up for, or the last time it failed and not three times as
--           often it worked: such a way comes behind all others
-- Of ways that are the same the nearest trigger decides.
create or replace function _memoir.find_experience(p_user_id uuid, p_project text, p_scope _memoir.search_scope,
  p_question _memoir.question, p_config jsonb, p_limit integer)
returns table (rank integer, memory_id uuid, type text, trigger text, way text, verdict text, tried integer,
  succeeded integer, failed integer, last_tried_at timestamptz, note text, fit real, score real)
language plpgsql stable as $$
declare
  v_now timestamptz := memoir.now(); v_place uuid := _memoir.experience_place(); v_asks boolean;
begin
  v_asks := p_question.query is not null;
  return query
  with seen as materialized (
    select m.memory_id, m.type, m.project, m.recorded_at, case m.actor when 'person' then 2.0 else 1.0 end as word,
      split_part(m.content, E'\n', 1) as trigger,
      coalesce(nullif(substr(m.content, strpos(m.content || E'\n', E'\n') + 1), ''), m.content) as way,
      case when v_asks then tsvector_to_array(to_tsvector(p_question.text_config, m.content)) end as words,
      coalesce((p_config -> 'half_life_days' ->> m.type)::float8, 365) as half_life
    from _memoir.memory_store m
    where m.user_id = p_user_id and m.state = 'active' and m.type in ('procedure', 'lesson', 'skill')
      and m.project in ('global', p_project) and m.sensitivity <= p_scope.clearance
      and (p_scope.projects is null or m.project = any (p_scope.projects))
      and (m.local_to is null or m.local_to = any (p_scope.local_sessions))
      and (m.expires_at is null or m.expires_at > v_now)
      and tstzrange(m.valid_from, m.valid_to) @> v_now
  ), alike as (
    select i.ref_id, max((1 - (e.embedding <=> p_question.vector)) * case i.chunk when 0 then 1 else 0.9 end) as cosine
    from _memoir.search_items i
    join _memoir.embeddings e on e.user_id = p_user_id and e.model_id = p_question.model_id and e.item_no = i.item_no
    where p_question.vector is not null and i.user_id = p_user_id and i.session_id = v_place and not i.dead
      and i.ref_id = any (array(select s.memory_id from seen s))
    group by i.ref_id
  ), terms as (
    select t.term, ln(1 + (select count(*) from seen) / (0.5 + count(s.memory_id))) as weight
    from unnest(p_question.terms) t(term) left join seen s on t.term = any (s.words) group by t.term
  ), outcomes as (
    select o.memory_id, count(*)::integer as tried, (count(*) filter (where o.succeeded))::integer as succeeded,
      max(o.recorded_at) as last_at, coalesce(sum(w.weight) filter (where o.succeeded), 0) as good,
      coalesce(sum(w.weight) filter (where not o.succeeded), 0) as bad,
      not (array_agg(o.succeeded order by o.recorded_at desc))[1] as failed_last,
      (array_agg(o.note order by o.recorded_at desc) filter (where not o.succeeded and o.note is not null))[1] as note
    from seen s join _memoir.experience_outcomes o on o.user_id = p_user_id and o.memory_id = s.memory_id
    cross join lateral (select power(0.5, least(100, greatest(0, extract(epoch from v_now - o.recorded_at)::float8
      / 86400 / s.half_life))) as weight) w
    group by o.memory_id
  ), fits as (
    select s.*, coalesce(o.tried, 0) as tried, coalesce(o.succeeded, 0) as succeeded, o.last_at, o.note,
      coalesce(o.failed_last, false) as failed_last, coalesce(o.good, 0) as good, coalesce(o.bad, 0) as bad,
      s.word * power(0.5, least(100, greatest(0, extract(epoch from v_now - s.recorded_at)::float8 / 86400
        / s.half_life))) as given,
      case when not v_asks then 1 when a.cosine is null then w.share else 0.9 * a.cosine + 0.1 * w.share end as fit
    from seen s left join alike a on a.ref_id = s.memory_id left join outcomes o on o.memory_id = s.memory_id
    cross join lateral (select coalesce(sum(t.weight) filter (where t.term = any (s.words)) / nullif(sum(t.weight), 0),
      0) as share from terms t) w
  ), judged as (
    select f.*, case when f.bad > f.good + f.word - 0.95 or f.failed_last
        and 3 * f.bad > f.good + 3 * f.word - 2.8 then 'failed' when f.succeeded > 0 then 'worked' else 'untried'
      end as verdict, f.fit * (0.7 + 0.3 * _memoir.wilson_bound(f.good + f.given, f.good + f.given + f.bad))
      * case f.project when p_project then 1 else 0.95 end as score
    from fits f where f.fit >= (p_config ->> 'experience_floor')::float8
  ), ways as (
    select distinct on (_memoir.normalise(j.way)) j.* from judged j
    order by _memoir.normalise(j.way), j.fit desc, j.verdict = 'failed', j.score desc, j.memory_id
  ), near as (
    select w.*, max(w.fit) over () as best, max(w.fit) filter (where w.verdict <> 'failed') over () as best_way,
      first_value(w.trigger) over (order by w.verdict = 'failed', w.fit desc) as best_trigger
    from ways w
  ), ranked as (
    select (row_number() over (order by n.verdict = 'failed', n.score desc, n.last_at desc nulls last, n.memory_id))
      ::integer as rank, n.* from near n
    where n.fit >= 0.7 * n.best and (n.verdict <> 'failed' or v_asks and (n.trigger = n.best_trigger
      or n.fit >= coalesce(n.best_way, 0) - 0.02))
  )
  select r.rank, r.memory_id, r.type, r.trigger, r.way, r.verdict, r.tried, r.succeeded, r.tried - r.succeeded,
    r.last_at, case when r.verdict = 'failed' then r.note end, r.fit::real, r.score::real
  from ranked r where r.rank <= p_limit order by r.rank;
end $$;

-- The lower end of Wilson's score interval (1927) of p_good successes among p_tried, for z = 1; 0 where none was tried.
create or replace function _memoir.wilson_bound(p_good float8, p_tried float8)
returns float8 language sql immutable as $$
  select case when p_tried > 0 then greatest(0, (p_good + 0.5 - sqrt(p_good * (p_tried - p_good) / p_tried + 0.25))
    / (p_tried + 1)) else 0 end
$$;

-- A text on one line of at most so many characters, disarmed.
create or replace function _memoir.shortened(p_text text, p_most integer)
returns text language sql stable as $$
  select _memoir.neutralise(case when length(x.line) > p_most then left(x.line, p_most - 1) || '…' else x.line end)
  from (select _memoir.one_line(p_text) as line) x
$$;

-- One way on one line, as a block shows it.
create or replace function _memoir.experience_line(p_id uuid, p_trigger text, p_way text, p_verdict text,
  p_tried integer, p_succeeded integer, p_last timestamptz, p_note text)
returns text language sql stable as $$
  select format('- %s%s%s (%s; id %s)', case p_verdict when 'failed' then 'Failed: ' else '' end,
    case when p_way <> p_trigger then _memoir.shortened(p_trigger, 120) || ' => ' else '' end,
    _memoir.shortened(p_way, 360),
    case p_verdict when 'untried' then 'not tried yet' when 'failed' then format('failed %s of %s, last %s%s',
        p_tried - p_succeeded, p_tried, _memoir.day(p_last), ': ' || _memoir.shortened(p_note, 120))
      else format('worked %s of %s, last %s', p_succeeded, p_tried, _memoir.day(p_last)) end, left(p_id::text, 8))
$$;

-- The block of a compile: {"text": fenced, "ids"}, null where nothing fits. p_said: what the list says already.
create or replace function _memoir.experience_block(p_user_id uuid, p_project text, p_scope _memoir.search_scope,
  p_question _memoir.question, p_config jsonb, p_budget integer, p_said text)
returns jsonb language plpgsql stable as $$
declare
  v_ids uuid[]; v_lines text[]; v_shown record;
begin
  select array_agg(f.memory_id order by f.rank), array_agg(l.line order by f.rank) into v_ids, v_lines
  from _memoir.find_experience(p_user_id, p_project, p_scope, p_question, p_config,
    (p_config ->> 'experience_ways')::integer) f
  cross join lateral (select _memoir.experience_line(f.memory_id, f.trigger, f.way, f.verdict, f.tried, f.succeeded,
    f.last_tried_at, f.note) as line) l
  where strpos(coalesce(p_said, ''), l.line) = 0;
  select string_agg(l.line, E'\n' order by l.o) as lines, jsonb_agg(v_ids[l.o] order by l.o) as ids into v_shown
  from _memoir.fit_lines(v_lines, p_budget - memoir.count_tokens(_memoir.fence('experience', ''))) l;
  return case when v_shown.lines is not null then jsonb_build_object('text', _memoir.fence('experience', v_shown.lines),
    'ids', v_shown.ids) end;
end $$;

create or replace function memoir.recall_experience(p_user text, p_task text default null,
  p_session text default null, p_project text default null, p_limit integer default 3,
  p_query_embedding real[] default null)
returns table (rank integer, memory_id uuid, type text, trigger text, way text, verdict text, tried integer,
  succeeded integer, failed integer, last_tried_at timestamptz, note text, fit real, score real, line text)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_session _memoir.sessions; v_config jsonb;
  v_counters _memoir.user_counters; v_question _memoir.question; v_scope _memoir.search_scope;
begin
  perform _memoir.check_count('limit', p_limit, 50);
  select * into v_session from _memoir.sessions s where s.user_id = v_caller.user_id
    and s.session_id = _memoir.session_id(v_caller.user_id, p_session);
  select * into v_counters from _memoir.user_counters c where c.user_id = v_caller.user_id;
  v_config := _memoir.config(v_caller.user_id, v_session.settings);
  v_scope.projects := v_caller.projects;
  v_scope.clearance := least(v_caller.clearance, 'private'::_memoir.sensitivity);
  v_scope.local_sessions := array[coalesce(v_session.session_id, _memoir.no_session())];
  if not _memoir.is_blank(p_task) then
    v_question := _memoir.question(v_caller.user_id, v_counters, v_config,
      _memoir.read_question(p_task, v_config, p_query_embedding, false), v_scope, p_query_embedding);
  end if;
  return query
  select f.*, _memoir.experience_line(f.memory_id, f.trigger, f.way, f.verdict, f.tried, f.succeeded, f.last_tried_at,
    f.note)
  from _memoir.find_experience(v_caller.user_id, _memoir.check_project(v_caller, coalesce(p_project, v_session.project,
    _memoir.default_project(v_caller))), v_scope, v_question, v_config, p_limit) f order by f.rank;
end $$;
comment on function memoir.recall_experience(text, text, text, text, integer, real[]) is
  'The ways that a user''s experience has for a task, at most p_limit, best first: verdict worked or untried, then those
that failed (failed), which are there only where they are the nearest. fit: how near the trigger is to the task, at
least setting experience_floor; score: fit by record and scope. p_task null: all that did not fail, by their records.
p_session or p_project: of this project and of all. line: on one line, as a compile shows it. p_query_embedding: vector
of the active embedding model. Raises PM001, PM014, PM030.';
