-- Breadth: what happened in which order, a summary, how many, all of. The evidence of such a question lies in many
-- places, so its recall has more and shorter lines, spread over the sessions that match. Where no question says so but
-- scores fall evenly, only what is beyond half the budget is shortened.

-- Returns how lines are weighed and cut for a shape of answer: order of events, summary, several things, or even
-- scores; null where one place has the answer. p_own: it is about what the speaker himself said. bench/evidence.py
-- shows what the numbers bring.
create or replace function _memoir.breadth(p_shape text, p_own boolean)
returns _memoir.breadth language sql immutable as $$
  select (p.shape, p_own, p.power, p.fall, case when p_own then 0 else p.answer end, p.stub, p.excerpt, p.longest)
    ::_memoir.breadth
  from (values ('order', 1.5, 0.6, 0.7, 0.6, 0.8, 240), ('summary', 1.5, 0, 0.7, 0.5, 0.8, 300),
    ('several', 3, 0.4, 0, 0.4, 0.7, 240), ('even', 4, 0, 0, 0.3, 0.75, 240))
    p(shape, power, fall, answer, stub, excerpt, longest)
  where p.shape = p_shape
$$;

-- Candidates by what a line of each is worth among many, in that order. The odds of a score count less than where one
-- place answers; of a turn one part counts; an answer is worth a share of what it answers, little where only the
-- speaker's own words are asked for; each further turn of a session is worth less than the one before it.
create or replace function _memoir.spread(p_candidates _memoir.candidate[], p_breadth _memoir.breadth)
returns _memoir.candidate[] language plpgsql stable set enable_nestloop = off set enable_mergejoin = off as $$
declare
  v_candidates _memoir.candidate[] := p_candidates; v_worth float8[]; v_power float8 := p_breadth.power;
  v_echo float8 := case when p_breadth.own then 0.2 else 1 end; v_fall float8 := p_breadth.fall;
begin
  with valued as materialized (
    select c.ordinality as o, c.kind, c.session_id, c.turn_index, c.role,
      case when c.worth <= 0 then 0
        -- What has lost worth before, as an echo has, stays behind.
        else least(1, c.worth / _memoir.worth(c.score))
          / (1 + power(1 / greatest(0.0001, least(0.9999, c.score::float8)) - 1, v_power)) end
        * case when c.kind = 't' and c.role = 'assistant' then v_echo else 1 end as worth,
      row_number() over (partition by c.kind, c.ref_id order by c.worth desc, c.ordinality) as part
    from unnest(p_candidates) with ordinality c
  ), answered as (
    select v.o, v.kind, v.session_id, v.part, greatest(v.worth, p_breadth.answer * a.worth) as worth
    from valued v left join valued a on a.session_id = v.session_id and a.turn_index = v.turn_index - 1
      and a.kind = 't' and a.role = 'user' and a.part = 1 and v.kind = 't' and v.role = 'assistant' and v.part = 1
  ), placed as (
    select a.o, a.part, a.worth / (1 + case when a.kind = 't' then v_fall * (row_number() over (
      partition by a.kind, a.session_id, a.part order by a.worth desc, a.o) - 1) else 0 end) as worth
    from answered a
  )
  select array_agg(p.worth * case when p.part > 1 then 0.1 else 1 end order by p.o) into v_worth from placed p;
  for i in 1 .. coalesce(cardinality(v_candidates), 0) loop
    v_candidates[i].worth := v_worth[i];
  end loop;
  return array(select v_candidates[w.o] from unnest(v_worth) with ordinality w(worth, o)
    order by (v_candidates[w.o].memory_parts ? 'pinned') is true desc, (w.worth * 1000000)::integer desc, w.o);
end $$;
