-- Export: all that is kept of a user, as JSON lines with provenance. A line is {"kind": table, "row": columns}; ids of
-- sessions are written as the application's own texts, {"session": "support-42"}, so that the user may get another
-- name. What can be made from the rest is not in it (words, numbers of items, counters), nor what is the install's own
-- (audit, ledger, queue).

create or replace function _memoir.export_tables()
returns table (name name, place integer) language sql stable as $$
  select t, coalesce(r.place::integer, 50) from _memoir.user_tables() t left join _memoir.data_export_rules() r
    on r.name = t
  where coalesce(r.how, 'rows') = 'rows' order by 2, 1
$$;

create or replace function _memoir.uuid_columns(p_table name)
returns name[] language sql stable as $$
  select array(select attname from pg_attribute where attrelid = to_regclass('_memoir.' || quote_ident(p_table))
    and attnum > 0 and not attisdropped and atttypid = 'uuid'::regtype and attname <> 'user_id' order by attnum)
$$;

create or replace function memoir.export_user(p_user text, p_embeddings boolean default false)
returns setof jsonb language plpgsql stable security definer
  set search_path from current set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = 'hex' as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_user uuid := v_caller.user_id; v_names jsonb; v_table record; v_order text;
begin
  -- All or nothing: what lacks would be missing for good.
  if v_caller.projects is not null or v_caller.clearance < 'secret' and not pg_has_role(_memoir.login(), 'memoir_admin',
    'usage') then
    perform _memoir.fail('PM001', format('login %s may not export: that shows everything of the user',
      quote_ident(v_caller.login)),
      'an admin may, or a service bound to clearance secret and to no projects');
  end if;
  if not exists (select from _memoir.users where user_id = v_user) then
    perform _memoir.fail('PM002', format('unknown user %s', _memoir.shown(p_user)));
  end if;
  select coalesce(jsonb_object_agg(n.session_id, n.name), '{}') into v_names
  from (select session_id, session_name as name from _memoir.api_calls where user_id = v_user
        union select session_id, external_id from _memoir.sessions where user_id = v_user) n;
  return next jsonb_build_object('kind', 'header', 'format', 'pg_memoir.export', 'version', 1, 'user', p_user,
    'namespace', v_caller.namespace, 'embeddings', p_embeddings);
  for v_table in select * from _memoir.export_tables() loop
    if v_table.name = 'sessions' then
      return query select jsonb_build_object('kind', 'system_prompts', 'row', to_jsonb(p) - 'created_at')
        from _memoir.system_prompts p
      where p.prompt_hash in (select system_prompt_hash from _memoir.sessions where user_id = v_user)
      order by p.prompt_hash;
    end if;
    select case when _memoir.has_column(v_table.name, 'recorded_at') then 't.recorded_at, '
      else '' end || string_agg(format('t.%I', a.attname), ', ' order by k.n) into v_order
    from pg_index i, unnest(i.indkey::smallint[]) with ordinality k(attnum, n) join pg_attribute a
      on a.attnum = k.attnum
    where i.indrelid = to_regclass('_memoir.' || quote_ident(v_table.name)) and i.indisprimary
      and a.attrelid = i.indrelid;
    return query execute
      -- Leave out answers to questions. An import would bring back what was forgotten of them since.
      format('select jsonb_build_object(''kind'', %L, ''row'', r || coalesce((select jsonb_object_agg(c, '
        'jsonb_build_object(''session'', $3 ->> (r ->> c))) from unnest($2) c where $3 ? coalesce(r ->> c, '''')), '
        '''{}'')) from _memoir.%I t, lateral (select to_jsonb(t) - ''{user_id,question,answer,items}''::text[] as r '
        'offset 0) x where t.user_id = $1 order by %s',
      v_table.name, v_table.name, v_order) using v_user, _memoir.uuid_columns(v_table.name), v_names;
  end loop;
  return query select jsonb_build_object('kind', 'user_counters', 'row',
    jsonb_build_object('cost_microcents', c.cost_microcents, 'related', c.related)) from _memoir.user_counters c
      where c.user_id = v_user;
  if p_embeddings then
    return query select jsonb_build_object('kind', 'embeddings', 'row', jsonb_build_object('model', m.name, 'kind',
      i.kind, 'ref', i.ref_id, 'chunk', i.chunk,
      'span_start', i.span_start, 'span_length', i.span_length, 'embedding', e.embedding))
    from _memoir.embeddings e join _memoir.embedding_models m on m.model_id = e.model_id
    join _memoir.search_items i on i.user_id = v_user and i.item_no = e.item_no
    where e.user_id = v_user order by m.name, i.recorded_at, i.ref_id, i.chunk;
  end if;
  return next jsonb_build_object('kind', 'end');
end $$;
comment on function memoir.export_user(text, boolean) is
  'All that is kept of a user, one JSON line each: {"kind": "header" ...}, {"kind": table, "row": {...}} ...,
{"kind": "end"}. Rows carry where they come from: times, actor, provenance, trust, sources, states. With p_embeddings
also the vectors. From psql: \copy (select memoir.export_user(''alice'')) to file. For admins and services with
clearance secret. Raises PM001, PM002, PM014.';
