-- For people who look: who there is, a user in numbers, and the compiles that the ledger has: a session's window over
-- time, and one compile taken apart.

create or replace function memoir.list_users(p_after_user text default null, p_limit integer default 100)
returns table (user_name text, created_at timestamptz, sessions integer, memories integer, cost_microcents bigint,
  last_recorded_at timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_login name := _memoir.login(); v_namespace text := coalesce((_memoir.binding(v_login)).namespace, 'default');
begin
  perform _memoir.check_count('limit', p_limit, 1000);
  return query
  select u.external_id, u.created_at, s.sessions, c.memories, c.cost_microcents, s.last_at
  from _memoir.users u
  join _memoir.user_counters c on c.user_id = u.user_id
  left join lateral (select count(*)::integer as sessions, max(n.last_recorded_at) as last_at
    from _memoir.session_counters n where n.user_id = u.user_id) s on true
  where u.namespace = v_namespace and (p_after_user is null or u.external_id > p_after_user)
    and (pg_has_role(v_login, 'memoir_admin', 'usage') or u.user_id in (select _memoir.visible_users())
      and not starts_with(u.external_id, '@space:'))
    and (select _memoir.bound_projects()) is null
  order by u.external_id limit p_limit;
end $$;
comment on function memoir.list_users(text, integer) is
  'The users that the caller may read (admins: spaces, too), by name, at most p_limit (1000) a page: p_after_user is the
last of the page before. A login that is bound to projects sees none, since users belong to none. Raises PM014.';

create or replace function _memoir.tally(p_values text[])
returns jsonb language sql immutable as $$
  select coalesce(jsonb_object_agg(x.value, x.many), '{}')
  from (select v as value, count(*) as many from unnest(p_values) v group by v) x
$$;

create or replace function memoir.memory_stats(p_user text)
returns jsonb language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_user uuid := v_caller.user_id; v_stats jsonb;
begin
  select jsonb_build_object('sessions', count(*), 'open_sessions', count(*) filter (where s.status = 'active'),
    'turns', coalesce(sum(c.turn_count), 0), 'tokens', coalesce(sum(c.tokens), 0),
    'cost_microcents', coalesce(sum(c.cost_microcents), 0), 'helper_microcents', coalesce(sum(c.helper_microcents), 0),
    'last_said_at', max(c.last_recorded_at))
  into v_stats
  from _memoir.sessions s
  join _memoir.session_counters c on c.user_id = v_user and c.session_id = s.session_id
  where s.user_id = v_user and (v_caller.projects is null or s.project = any (v_caller.projects));
  return v_stats || (select jsonb_build_object('memories', count(*) filter (where m.state = 'active'),
      'states', _memoir.tally(array_agg(m.state::text)),
      'tiers', _memoir.tally(array_agg(m.tier::text) filter (where m.state = 'active')),
      'types', _memoir.tally(array_agg(m.type) filter (where m.state = 'active')),
      'projects', _memoir.tally(array_agg(m.project) filter (where m.state = 'active')),
      'not_validated', count(*) filter (where m.state = 'active' and m.validated_at is null),
      'contradictions', (select count(*) from _memoir.memory_relationships e
        join _memoir.memory_store a on a.user_id = v_user and a.memory_id = e.source_id and a.state = 'active'
        join _memoir.memory_store b on b.user_id = v_user and b.memory_id = e.target_id and b.state = 'active'
        where e.user_id = v_user and e.relation = 'contradicts' and _memoir.may_see(v_caller, a)
          and _memoir.may_see(v_caller, b)))
    from _memoir.memory_store m where m.user_id = v_user and _memoir.may_see(v_caller, m));
end $$;
comment on function memoir.memory_stats(text) is
  'A user in numbers, as far as the caller may read: "sessions", "open_sessions", "turns", "tokens" and costs
(microcents) of those, "last_said_at", active "memories", and these by "states" (of all), "tiers", "types" and
"projects", "not_validated", and "contradictions" that stand open. Raises PM001.';

-- The caller's compiles that the ledger has, or the buffer before it; p_session_id or p_compile null: any.
create or replace function _memoir.traces_of(p_user_id uuid, p_session_id uuid, p_compile uuid)
returns setof _memoir.compile_ledger language plpgsql stable as $$
declare
  v_from timestamptz := memoir.now() - make_interval(days => (select (config ->> 'ledger_days')::integer
    from _memoir.settings_merged) + 31);
begin
  return query select l.* from _memoir.compile_ledger l where l.user_id = p_user_id and l.recorded_at >= v_from
    and (p_session_id is null or l.session_id = p_session_id) and (p_compile is null or l.compile_id = p_compile);
  if pg_is_in_recovery() then return; end if;
  return query select (_memoir.ledger_row(b)).*
  from _memoir.compile_buffer b where b.user_id = p_user_id
    and (p_session_id is null or b.session_id = p_session_id) and (p_compile is null or b.compile_id = p_compile);
end $$;

create or replace function memoir.list_compiles(p_user text, p_session text, p_limit integer default 100)
returns table (compile_id uuid, recorded_at timestamptz, budget integer, tokens integer, system_tokens integer,
  tools_tokens integer, turn_tokens integer[], recall_tokens integer, first_turn integer, moved boolean,
  considered integer, recalled integer, used integer, warnings text[])
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
begin
  perform _memoir.check_count('limit', p_limit, 10000);
  return query
  select c.compile_id, c.recorded_at, c.budget, c.tokens, c.system_tokens, c.tools_tokens, c.turn_tokens,
    c.recall_tokens, c.first_turn,
    coalesce(c.first_turn <> lag(c.first_turn) over (order by c.recorded_at, c.compile_id), false),
    cardinality(c.items), (select count(p)::integer from unnest(c.positions) p), cardinality(c.used), c.warnings
  from _memoir.traces_of(v_caller.user_id, v_session.session_id, null) c
  order by c.recorded_at desc, c.compile_id desc limit p_limit;
end $$;
comment on function memoir.list_compiles(text, text, integer) is
  'A session''s window over time: its compiles, newest first, as far as the ledger has them (ledger_days,
ledger_sample). Tokens of the list and of its parts: system message, tools, shown turns (turn_tokens: by fidelity full,
detailed, compact, stub), recall; what remains is the newest message. first_turn: the first that was shown; moved: not
the one of the compile before. considered, recalled: items of the recall; used: of those, null where credit_recall said
nothing. Raises PM001, PM003, PM014.';

create or replace function memoir.explain_compile(p_user text, p_compile uuid)
returns table ("position" integer, kind text, id uuid, session text, turn_index integer, score real, words real,
  vector real, around real, session_score real, tokens integer, fidelity text, used boolean, reason text, line text)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_user uuid := v_caller.user_id; v_trace _memoir.compile_ledger;
begin
  select * into v_trace from _memoir.traces_of(v_user, null, p_compile) t
  where v_caller.projects is null or t.session_id in (select s.session_id from _memoir.sessions s
    where s.user_id = v_user and s.project = any (v_caller.projects));
  perform _memoir.fail('PM004', format('no compile %s of user %s is known', _memoir.shown(p_compile::text),
    _memoir.shown(p_user)), 'list_compiles names those of a session') where not found;
  return query
  with considered as (select c.*, i.kind as item_kind, i.ref_id, i.session_id, i.turn_index
    from unnest(v_trace.items, v_trace.scores, v_trace.words, v_trace.vectors, v_trace.around, v_trace.session_scores,
      v_trace.item_tokens, v_trace.positions, v_trace.forms, v_trace.reasons) with ordinality
      c(item_no, score, words, vector, around, session_score, tokens, place, form, reason, o)
    left join _memoir.search_items i on i.user_id = v_user and i.item_no = c.item_no
    where i.item_no is null or i.sensitivity <= v_caller.clearance
      and (v_caller.projects is null or i.project = any (v_caller.projects))
  ), texts as (
    select * from _memoir.item_texts(v_user, array(select c.item_no from considered c), v_caller.clearance)
  )
  select c.place, case c.item_kind when 't' then 'turn' when 'm' then 'memory' when 's' then 'summary' else 'gone' end,
    c.ref_id, s.external_id, c.turn_index, c.score, c.words, c.vector, c.around, c.session_score, c.tokens, c.form,
    c.item_no = any (v_trace.used), c.reason, _memoir.on_one_line(case
      when exists (select from _memoir.memory_store m where m.user_id = v_user and m.memory_id = c.ref_id
        and m.state in ('forgotten', 'erased')) then null
      -- What was forgotten of a turn, or changed, is known of the whole turn.
      when exists (select from _memoir.exclusions_of(v_user, c.session_id, c.turn_index))
        then _memoir.whole_item(v_caller, c.ref_id) ->> 'content'
      else coalesce(t.name || ': ', '') || t.body end)
  from considered c left join texts t on t.item_no = c.item_no
  left join _memoir.sessions s on s.user_id = v_user and s.session_id = c.session_id
  order by c.place nulls last, c.score desc, c.o;
end $$;
comment on function memoir.explain_compile(text, uuid) is
  'A compile that was made, taken apart: one row per item that its recall considered, with its scores, tokens, the
position and fidelity at which it was shown or the reason why not, whether the answer used it, and what it says today
on one line of at most 120 characters; kind gone: it is known no more. Raises PM001, PM004.';
