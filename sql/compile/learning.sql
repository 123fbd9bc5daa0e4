-- The ranking's weights, learnt anew from a user's own ledger: what was shown and used stands before what was shown and
-- was not. Nothing here happens by itself: credit_recall says what was used, learn_weights is asked for and changes
-- nothing unless told to.

create or replace function memoir.credit_recall(p_user text, p_compile uuid, p_used uuid[])
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_row _memoir.compile_ledger; v_used integer[]; v_count integer;
begin
  if p_compile is null or p_used is null then
    perform _memoir.fail('PM014',
      'compile and used must be given: the compile_id and ids of items that context returned');
  end if;
  select * into v_row from _memoir.traces_of(v_caller.user_id, null, p_compile);
  perform _memoir.fail('PM004', format('no compile %s of user %s is known', p_compile, _memoir.shown(p_user)),
    'with ledger_sample below 1, not every compile is kept') where not found;
  select coalesce(array_agg(c.item_no order by c.item_no), '{}'), count(distinct i.ref_id) into v_used, v_count
  from unnest(v_row.items, v_row.positions) c(item_no, position)
  join _memoir.search_items i on i.user_id = v_caller.user_id and i.item_no = c.item_no
  where i.ref_id = any (p_used) and (v_caller.projects is null or i.project = any (v_caller.projects))
    and i.sensitivity <= v_caller.clearance;
  -- A job may move the row meanwhile: then it is in the ledger.
  update _memoir.compile_buffer set used = v_used where user_id = v_caller.user_id and compile_id = p_compile;
  if not found then
    update _memoir.compile_ledger set used = v_used where user_id = v_caller.user_id and compile_id = p_compile
      and recorded_at = v_row.recorded_at;
  end if;
  -- Objects that the recall showed are raised at the next moment of their session.
  update _memoir.session_objects o set is_used = true
  from _memoir.search_items i
  join _memoir.object_places p on p.user_id = i.user_id and p.session_id = i.session_id and p.turn_index = i.turn_index
    and p.call_no = 0
  where i.user_id = v_caller.user_id and i.ref_id = any (p_used) and i.sensitivity <= v_caller.clearance
    and (v_caller.projects is null or i.project = any (v_caller.projects))
    and o.user_id = v_caller.user_id and o.session_id = p.session_id and o.memory_id = p.memory_id and not o.is_used;
  return v_count;
end $$;
comment on function memoir.credit_recall(text, uuid, uuid[]) is
  'Says which items of a recall the answer used, by compile_id and ids of what context returned; an empty list: none of
them. Said again, it replaces what was said. Returns how many of them the compile had considered. Writes the ledger,
for learn_weights; used objects that a window shows shorter are raised at its next moment. Raises PM001, PM004, PM014.';

-- Pairs of a used item and one that was shown and not used, by the difference of their signals; a compile's pairs weigh
-- 1 together. Used: credited, or a memory that was validated within a day. The newest fifth is held out.
create or replace function _memoir.learning_pairs(p_user_id uuid, p_from timestamptz, p_compiles integer)
returns _memoir.weight_pair[] language sql stable as $$
  with ledger as materialized (
    select l.compile_id, l.recorded_at, l.items, l.scores, l.words, l.vectors, l.session_scores, l.positions, l.facts,
      coalesce(l.used, '{}') || array(select i.item_no from _memoir.search_items i
                 where i.user_id = p_user_id and i.item_no = any (l.items) and i.kind = 'm' and i.chunk = 0
                   and exists (select from _memoir.memory_store m where m.user_id = p_user_id and m.memory_id = i.ref_id
                               and m.validated_at > l.recorded_at and m.validated_at < l.recorded_at + interval '1 day'
                               and m.recorded_at < m.validated_at)) as used
    from _memoir.compile_ledger l where l.user_id = p_user_id and l.recorded_at >= p_from
    order by l.recorded_at desc, l.compile_id limit p_compiles
  ), considered as (
    -- Ranks, the best cosine and the age are those among what was considered: the ledger has no more of them.
    select l.compile_id, l.recorded_at, l.facts, c.n, c.item_no, c.score, c.words, c.session_score, c.position,
      c.item_no = any (l.used) as used,
      i.role = 'user' and i.speaker is null as by_user, i.is_question, i.after_question, i.token_count,
      coalesce(greatest(c.vector, 0) / nullif(max(c.vector) over compile, 0), c.words, 0) as vector,
      case when c.words > 0 then 5.0::float8 / (4 + row_number() over (compile order by c.words desc, c.item_no))
      else 0 end as words_rank,
      5.0::float8 / (4 + row_number() over (compile order by c.vector desc nulls last, c.item_no)) as vector_rank,
      least(3, row_number() over (partition by l.compile_id, i.ref_id order by c.score desc, c.item_no) - 1) as further,
      date_part('epoch', max(i.created_at) over compile - i.created_at) / 86400 as days,
      greatest(1, date_part('epoch', max(i.created_at) over compile - min(i.created_at) over compile) / 86400) as span
    from ledger l
    cross join lateral unnest(l.items, l.scores, l.words, l.vectors, l.session_scores,
      l.positions) with ordinality c(item_no, score, words, vector, session_score, position, n)
    join _memoir.search_items i on i.user_id = p_user_id and i.item_no = c.item_no
    where l.used <> '{}'
    window compile as (partition by l.compile_id)
  ), described as (select c.compile_id, c.recorded_at, c.item_no, c.used, ln(k.share / (1 - k.share)) as base,
      row_number() over (partition by c.compile_id, c.used order by c.score desc, c.item_no) as n,
      -- A signal that is not given is 0: the constant, which no difference has.
      array(select coalesce((g.given ->> t.name)::real, 0)
        from unnest(_memoir.signal_names()) with ordinality t(name, o) order by t.o)::vector as x
    from considered c, lateral (select greatest(0.001, least(0.999, c.score::float8)) as share) k,
      lateral (select jsonb_build_object('words', c.words, 'vector', c.vector, 'session', c.session_score, 'both',
          c.words * c.vector, 'words_rank', c.words_rank, 'vector_rank', c.vector_rank,
          'user', coalesce(c.by_user, false)::integer, 'question', c.is_question::integer,
          'after_question', c.after_question::integer, 'length', ln(greatest(c.token_count, 4)::float8 / 30),
          'age', c.days / c.span, 'fresh', exp(- least(50, c.days / 7)), 'further', c.further)
        || (select jsonb_object_agg(f.name, c.facts[c.n][f.k] / 1000.0)
          from unnest(_memoir.ledger_signals()) with ordinality f(name, k)) as given offset 0) g
    where c.used or c.position is not null
  ), paired as (select a.compile_id, a.recorded_at, a.item_no, b.item_no as other, a.base - b.base as base,
      1.0::float8 / count(*) over (partition by a.compile_id) as weight, a.x - b.x as x
    from described a join described b on b.compile_id = a.compile_id and a.used and not b.used and a.n <= 5 and b.n <= 8
  )
  select array_agg((p.compile_id, p.nth > p.compiles * 4 / 5, p.weight, p.base, p.x)::_memoir.weight_pair
  order by p.recorded_at, p.compile_id, p.item_no, p.other)
  from (select *, dense_rank() over (order by recorded_at, compile_id) as nth,
    (select count(distinct compile_id) from paired) as compiles from paired) p
$$;

-- Logistic regression on pairs (Nesterov): what to add to the weights, kept small (p_prior) by each signal's spread.
create or replace function _memoir.fit_pairs(p_pairs _memoir.weight_pair[], p_prior float8)
returns float8[] language plpgsql stable as $$
declare
  v_total float8; v_spread real[]; n integer; v_weights float8[]; v_bases float8[]; v_signals vector[];
  d float8[]; v_last float8[]; y float8[]; g real[]; v_y vector; v_lipschitz float8;
begin
  select sum(p.weight), avg(p.x * p.x)::real[] into v_total, v_spread from unnest(p_pairs) p;
  n := cardinality(v_spread);
  -- In units of the spread. A signal without any is left alone.
  v_spread := array(select case when u > 1e-12 then 1 / sqrt(u) else 0 end from unnest(v_spread) with ordinality t(u, o)
    order by o);
  select array_agg(p.weight / v_total), array_agg(p.base), array_agg(p.x * v_spread::vector) into v_weights, v_bases,
    v_signals from unnest(p_pairs) p;
  d := array_fill(0::float8, array[n]);
  v_last := d;
  y := d;
  v_lipschitz := n / 4.0 + 2 * p_prior;
  for k in 1 .. 100 loop
    v_y := y::vector;
    select sum(e.x * array_fill(e.w / (1 + exp(least(50, e.b - (e.x <#> v_y)))), array[n])::vector)::real[] into g
    from unnest(v_weights, v_bases, v_signals) e(w, b, x);
    for j in 1 .. n loop
      v_last[j] := d[j];
      d[j] := y[j] + (g[j] - 2 * p_prior * y[j]) / v_lipschitz;
      y[j] := d[j] + (d[j] - v_last[j]) * (k - 1) / (k + 2);
    end loop;
  end loop;
  return array(select t.d * t.s from unnest(d, v_spread) with ordinality t(d, s, o) order by t.o);
end $$;

-- Fits pairs, and measures on those held out what that is worth to a fit that has not seen them: the share in the right
-- order, ties half, before and after. held_out says so for the caller.
create or replace function _memoir.learn_pairs(p_pairs _memoir.weight_pair[], p_prior float8, out d float8[],
  out before float8, out after float8, out held_out jsonb)
language plpgsql stable as $$
declare
  v_seen vector := _memoir.fit_pairs(array(select p from unnest(p_pairs) p where not p.held_out), p_prior)::vector;
begin
  d := _memoir.fit_pairs(p_pairs, p_prior);
  select sum(p.weight * (0.5 + 0.5 * sign(round(p.base::numeric, 6)))) / sum(p.weight),
    sum(p.weight * (0.5 + 0.5 * sign(round((p.base - (p.x <#> v_seen))::numeric, 6)))) / sum(p.weight)
  into before, after from unnest(p_pairs) p where p.held_out;
  held_out := jsonb_build_object('before', round(before::numeric, 4), 'after', round(after::numeric, 4), 'gain',
    round((after - before)::numeric, 4));
end $$;

create or replace function memoir.learn_weights(p_user text, p_apply boolean default false,
  p_compiles integer default 500, p_least integer default 40, p_prior real default 0.02)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.ranking_caller(p_user);
  v_user uuid := v_caller.user_id; v_old jsonb; v_new jsonb; v_pairs _memoir.weight_pair[];
  v_compiles integer; v_learnt record; v_applied boolean; v_from timestamptz;
begin
  if num_nulls(p_apply, p_compiles, p_least, p_prior) > 0 or p_compiles not between 10 and 5000
    or p_least not between 10 and p_compiles or not p_prior between 0.0001 and 10 then
    perform _memoir.fail('PM014',
      format('compiles must be from 10 to 5000, least from 10 to compiles, prior from 0.0001 to 10, not %s, %s, %s',
      p_compiles, p_least, p_prior));
  end if;
  if not exists (select from _memoir.users where user_id = v_user) then
    perform _memoir.fail('PM002', format('unknown user %s', _memoir.shown(p_user)));
  end if;
  -- Scores made with other weights say nothing of what to add to these.
  select greatest(max(a.recorded_at), memoir.now() - make_interval(days => (select (config ->> 'ledger_days')::integer
  from _memoir.settings_merged))) into v_from
  from _memoir.audit_log a where a.user_id = v_user and a.action = 'learn_weights';
  v_old := _memoir.config(v_user, null) -> 'rank_weights';
  v_pairs := _memoir.learning_pairs(v_user, v_from, p_compiles);
  select count(distinct p.compile_id) into v_compiles from unnest(v_pairs) p;
  if v_compiles < p_least then
    perform _memoir.fail('PM025',
      format('the ledger of user %s has %s compiles that showed something used and something unused, learning needs %s',
        _memoir.shown(p_user), v_compiles, p_least),
      'credit_recall says which recalled items an answer used; job flush moves them to the ledger');
  end if;
  v_learnt := _memoir.learn_pairs(v_pairs, p_prior);
  v_new := v_old || (select coalesce(jsonb_object_agg(n, round((coalesce((v_old ->> n)::float8, 0)
      + d)::numeric, 3)), '{}')
    from unnest(_memoir.signal_names(), v_learnt.d) t(n, d) where d <> 0);
  v_applied := p_apply and v_learnt.after > v_learnt.before;
  if v_applied then
    perform from _memoir.user_counters where user_id = v_user for update;
    perform _memoir.put_user_ranking(v_user, jsonb_build_object('rank_weights', v_new),
      format('learn_weights: %s pairs of %s compiles until %s', cardinality(v_pairs), v_compiles,
        _memoir.day(memoir.now())));
    insert into _memoir.audit_log (recorded_at, login, action, user_id, detail)
    values (memoir.now(), v_caller.login, 'learn_weights', v_user, jsonb_build_object('compiles', v_compiles, 'before',
      v_learnt.before, 'after', v_learnt.after));
  end if;
  return jsonb_build_object('compiles', v_compiles, 'pairs', cardinality(v_pairs), 'old', v_old, 'new', v_new,
    'applied', v_applied, 'held_out', v_learnt.held_out
      || (select jsonb_build_object('compiles', count(distinct p.compile_id)) from unnest(v_pairs) p where p.held_out));
end $$;
comment on function memoir.learn_weights(text, boolean, integer, integer, real) is
  'Learns the weights of the ranking anew from the newest p_compiles of a user''s ledger: that what was used
(credit_recall; validations within a day) comes before what was shown and was not. p_prior keeps the weights near
those now used. Returns {"compiles", "pairs", "old", "new", "held_out": {"compiles", "before", "after", "gain"},
"applied"}: held_out is the share of pairs in the right order in the newest fifth, which the weights measured there
had not seen. With p_apply the new weights become the user''s own ranking profile, if that gained;
reset_ranking_profile takes them back. Writes users and audit_log then, else nothing. Raises PM001, PM002, PM014,
PM025 (too little evidence: fewer than p_least compiles).';

-- Pairs of a memory that was used (it, or a turn that it was made from) and one that was shown and never used, by the
-- difference of the parts of their admission scores. The newest fifth of the used ones is held out.
create or replace function _memoir.admission_pairs(p_user_id uuid, p_weights vector)
returns _memoir.weight_pair[] language sql stable as $$
  with shown as (
    select i.ref_id, bool_or(c.item_no = any (l.used)) as used
    from _memoir.compile_ledger l cross join lateral unnest(l.items, l.positions) c(item_no, position)
    join _memoir.search_items i on i.user_id = p_user_id and i.item_no = c.item_no
    where l.user_id = p_user_id and l.used is not null and c.position is not null group by i.ref_id
  ), scored as (
    select distinct on (a.memory_id) a.memory_id, a.recorded_at, u.used,
      array[a.score_type, a.score_novelty, a.score_utility, a.score_recency]::vector as x
    from _memoir.admission_scores a cross join lateral (select bool_or(s.used) as used from shown s
      where s.ref_id = a.memory_id or s.ref_id in (select m.source_id from _memoir.memory_sources m
        where m.user_id = p_user_id and m.item_id = a.memory_id)) u
    where a.user_id = p_user_id and u.used is not null order by a.memory_id, a.recorded_at desc
  ), newest as (
    select *, row_number() over (partition by used order by recorded_at desc, memory_id) as n,
      count(*) over (partition by used) as of from scored
  )
  select array_agg((a.memory_id, a.n <= a.of / 5, 1.0 / b.of, - 8 * ((a.x - b.x) <#> p_weights), a.x - b.x)
    ::_memoir.weight_pair order by a.n, b.n)
  from newest a join newest b on a.used and not b.used and a.n <= 100 and b.n <= 100
$$;

create or replace function memoir.learn_admission(p_user text, p_apply boolean default false,
  p_least integer default 20, p_prior real default 0.02)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.ranking_caller(p_user);
  v_names constant text[] := '{type,novelty,utility,recency}';
  v_old jsonb := _memoir.config(v_caller.user_id, null) -> 'admission_weights';
  v_weights float8[] := array(select coalesce((v_old ->> n)::float8, 0)
    from unnest(v_names) with ordinality t(n, o) order by o);
  v_pairs _memoir.weight_pair[] := _memoir.admission_pairs(v_caller.user_id, v_weights::vector);
  v_used integer := (select count(distinct p.compile_id) from unnest(v_pairs) p);
  v_learnt record; v_new jsonb; v_applied boolean;
begin
  perform _memoir.check_range('least', p_least, 10, 100), _memoir.check_range('prior', p_prior, 0.0001, 10);
  if v_used < p_least or coalesce(cardinality(v_pairs), 0) < p_least * v_used then
    perform _memoir.fail('PM025', format('recalls of user %s showed %s memories that were used and %s that were not, '
      'learning needs %s of both', _memoir.shown(p_user), v_used,
      coalesce(cardinality(v_pairs), 0) / greatest(v_used, 1), p_least),
      'credit_recall says which recalled items an answer used; job flush moves them to the ledger');
  end if;
  v_learnt := _memoir.learn_pairs(v_pairs, p_prior);
  v_new := (select jsonb_object_agg(n, round((w / sum)::numeric, 3)) from (
    select n, w, sum(w) over () as sum from unnest(v_names, v_weights, v_learnt.d) x(n, old, d),
      lateral (select greatest(old / 2, least(old * 1.5, old + d / 8)) as w) y) z);
  v_applied := p_apply and v_learnt.after > v_learnt.before;
  if v_applied then
    perform memoir.set_user_settings(p_user, jsonb_build_object('admission_weights', v_new));
  end if;
  return jsonb_build_object('used', v_used, 'pairs', cardinality(v_pairs), 'old', v_old, 'new', v_new, 'applied',
    v_applied, 'held_out', v_learnt.held_out);
end $$;
comment on function memoir.learn_admission(text, boolean, integer, real) is
  'Learns admission_weights from what recalls showed: memories that were used (credit_recall) should have had higher
admission scores than those that never were. Returns {"used", "pairs", "old", "new", "held_out", "applied"} as
learn_weights does. One call changes a weight by at most half. With p_apply the new weights become a setting of the
user, if that gained on what was held out. Writes users then, else nothing. Raises PM001, PM014, PM025 (fewer than
p_least memories used, or not used).';
