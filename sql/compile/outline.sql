create or replace function memoir.session_outline(p_user text, p_session text, p_query text default null)
returns table (theme integer, episode integer, from_turn integer, to_turn integer, title text, tokens bigint,
  score real)
language plpgsql stable security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
  v_user uuid := v_caller.user_id; v_counters _memoir.session_counters; v_turns integer[]; v_vectors vector[];
  v_starts integer[]; v_ends integer[]; v_means vector[]; v_themes vector[] := '{}'; v_of integer[] := '{}';
  v_nearest integer; v_hits jsonb;
begin
  select array_agg(i.turn_index order by i.turn_index), array_agg(e.embedding::vector order by i.turn_index)
  into v_turns, v_vectors from _memoir.search_items i
  join _memoir.embeddings e on e.user_id = v_user and e.item_no = i.item_no and e.model_id
    = (select m.model_id from _memoir.embedding_models m where m.status = 'active')
  where i.user_id = v_user and i.session_id = v_session.session_id and i.kind = 't' and i.chunk = 0
    and i.role = 'user' and not i.dead and i.sensitivity <= v_caller.clearance;
  if v_turns is null then return; end if;
  select * into v_counters from _memoir.session_counters where user_id = v_user and session_id = v_session.session_id;
  v_starts := _memoir.episode_starts(v_vectors);
  v_ends := v_starts[2 :] || cardinality(v_turns) + 1;
  -- An episode belongs to the nearest theme before it, if the cosine of their means is 0.4 or more.
  for e in 1 .. cardinality(v_starts) loop
    v_means[e] := (select avg(v) from unnest(v_vectors[v_starts[e] : v_ends[e] - 1]) v);
    select t.n into v_nearest from unnest(v_themes) with ordinality t(v, n)
    where 1 - (t.v <=> v_means[e]) >= 0.4 order by t.v <=> v_means[e] limit 1;
    v_of[e] := coalesce(v_nearest, cardinality(v_themes) + 1);
    v_themes[v_of[e]] := (select avg(v_means[o.n]) from unnest(v_of) with ordinality o(t, n) where o.t = v_of[e]);
  end loop;
  if p_query is not null then
    v_hits := (select jsonb_object_agg(r.turn_index, r.score) from memoir.recall(p_user, p_query, p_session, 20) r
      where r.turn_index is not null);
  end if;
  return query
  select v_of[e.n::integer], e.n::integer, s.first, s.last, _memoir.on_one_line(t.content), s.tokens, s.score
  from unnest(v_starts, v_ends) with ordinality e(first, next, n)
  cross join lateral (select case when e.n = 1 then 0 else v_turns[e.first] end as first,
    coalesce(v_turns[e.next], v_counters.turn_count) - 1 as last) b
  cross join lateral (select b.first, b.last, sum(h.token_count) as tokens,
      max((v_hits ->> h.turn_index::text)::real) as score from _memoir.conversation_history h
    where h.user_id = v_user and h.session_id = v_session.session_id and h.turn_index between b.first and b.last
      and h.recorded_at between v_counters.first_recorded_at and v_counters.last_recorded_at) s
  cross join lateral (select v_turns[n] as turn from generate_series(e.first, e.next - 1) n
    order by v_vectors[n] <=> v_means[e.n], n limit 1) c
  cross join lateral (select _memoir.as_known(v_user, h.session_id, h.turn_index, h.content) as content
    from _memoir.conversation_history h where h.user_id = v_user and h.session_id = v_session.session_id
      and h.recorded_at between v_counters.first_recorded_at and v_counters.last_recorded_at
      and h.turn_index = c.turn) t
  where p_query is null or s.score is not null
  order by s.score desc nulls last, e.n;
end $$;
comment on function memoir.session_outline(text, text, text) is
  'The outline of a long session: its episodes, stretches of turns about one thing, each with the theme it belongs to
(episodes about the same, numbered by their first), the words of the person that say most of it, and its tokens. With
p_query only the episodes in which a recall finds something, best first, and the score. Needs vectors of the turns.
Raises PM001, PM003, PM026.';
