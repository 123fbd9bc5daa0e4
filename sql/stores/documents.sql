-- Documents: JSON under a namespace (a path of labels) and a key, as stores of frameworks have them; each may end by
-- itself. They are the application's: no recall shows them, nothing is learnt from them. What of one is searched is its
-- text, by words as search keeps them and by the vector that the application gave with it.

create or replace function _memoir.check_namespace(p_field text, p_namespace text[])
returns text[] language plpgsql as $$
begin
  perform _memoir.refuse_value(array_ndims(p_namespace) > 1 or array_position(p_namespace, null) is not null
    or '' = any (p_namespace) or octet_length(array_to_string(p_namespace, '')) > 1000, p_field, p_namespace,
    'labels that are not empty, of 1000 bytes in all');
  return coalesce(p_namespace, '{}');
end $$;

-- Returns whether a value is what a filter asks: {"field": 1}, {"field": {"$gt": 5}}, {"$or": [filters]}, {"$$id": 7}.
create or replace function _memoir.document_fits(p_value jsonb, p_filter jsonb)
returns boolean language plpgsql immutable as $$
declare
  v_key text; v_wanted jsonb; v_order integer; v_type text := jsonb_typeof(p_value);
begin
  if jsonb_typeof(p_filter) is distinct from 'object' then return p_value is not distinct from p_filter; end if;
  for v_key, v_wanted in select * from jsonb_each(p_filter) loop
    v_order := case when v_type is distinct from jsonb_typeof(v_wanted) then null when p_value = v_wanted then 0
      when case v_type when 'string' then (p_value #>> '{}') collate "C" < (v_wanted #>> '{}')
        else p_value < v_wanted end then -1 else 1 end;
    if v_key like '$%' and v_key not like '$\$%'
      and v_key <> all ('{$eq,$ne,$gt,$gte,$lt,$lte,$in,$nin,$and,$or,$not,$exists}') then
      perform _memoir.fail('PM014', format('filter: unknown operator %s', _memoir.shown(v_key)),
        '$eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $and, $or, $not, $exists, or $' || v_key || ' for a field');
    elsif v_key in ('$in', '$nin', '$and', '$or') and jsonb_typeof(v_wanted) <> 'array' then
      perform _memoir.fail('PM014', format('filter: %s takes a list, not %s', v_key, _memoir.shown(v_wanted::text)));
    elsif (case when v_key in ('$eq', '$ne') then (coalesce(p_value, 'null') = v_wanted) = (v_key = '$eq')
      when v_key in ('$in', '$nin') then (v_key = '$in')
        = exists (select from jsonb_array_elements(v_wanted) x where x = coalesce(p_value, 'null'))
      when v_key in ('$and', '$or') then (v_key = '$or')
        = exists (select from jsonb_array_elements(v_wanted) f
          where _memoir.document_fits(p_value, f) = (v_key = '$or'))
      when v_key = '$not' then not _memoir.document_fits(p_value, v_wanted)
      when v_key = '$exists' then (p_value is not null) = (v_wanted = 'true')
      when v_key in ('$gt', '$gte', '$lt', '$lte') then v_order = any (case v_key when '$gt' then '{1}'
        when '$gte' then '{0,1}' when '$lt' then '{-1}' else '{-1,0}' end::integer[])
      else v_type = 'object' and _memoir.document_fits(p_value -> substr(v_key,
        case when v_key like '$\$%' then 2 else 1 end), v_wanted) end) is not true then return false;
    end if;
  end loop;
  return true;
end $$;

-- Returns where an entry of put_documents stands: user, project, namespace and key. An append gets the key that
-- follows the namespace's last number, so its caller holds the user's lock.
create or replace function _memoir.document_place(p_caller _memoir.caller, p_entry jsonb, p_where text)
returns _memoir.documents language plpgsql stable as $$
declare
  v_document _memoir.documents; v_flag text;
begin
  perform _memoir.refuse_value(jsonb_typeof(p_entry) is distinct from 'object'
    or jsonb_typeof(p_entry -> 'namespace') is distinct from 'array', p_where, p_entry,
    'an object with namespace (a list), key and value');
  foreach v_flag in array '{append,exists}'::text[] loop
    if coalesce(jsonb_typeof(p_entry -> v_flag), 'null') not in ('null', 'boolean') then
      perform _memoir.fail('PM014', format('%s.%s must be true or false, not %s', p_where, v_flag,
        _memoir.shown((p_entry -> v_flag)::text)));
    end if;
  end loop;
  v_document.user_id := p_caller.user_id;
  v_document.project := _memoir.default_project(p_caller);
  v_document.namespace := _memoir.check_namespace(p_where || '.namespace',
    array(select x #>> '{}' from jsonb_array_elements(p_entry -> 'namespace') x));
  if p_entry -> 'append' = 'true' then
    if p_entry ->> 'key' is not null then
      perform _memoir.fail('PM014', format('%s.key must not be given, append makes one', p_where));
    end if;
    v_document.key := lpad((coalesce((select d.key::bigint from _memoir.documents d
      where d.user_id = v_document.user_id and d.project = v_document.project and d.namespace = v_document.namespace
        and d.key ~ '^[0-9]{12}$' order by d.key desc limit 1), -1) + 1)::text, 12, '0');
  elsif not p_entry ? 'where' then
    v_document.key := p_entry ->> 'key';
    perform _memoir.refuse_value(v_document.key is null or octet_length(v_document.key) not between 1 and 1000, p_where
      || '.key', v_document.key, 'a text of 1 to 1000 bytes');
  end if;
  return v_document;
end $$;

-- Returns the value that an entry gives its document, null where it deletes it. Checks what the entry says of the
-- document as it is ("exists", "was") and merges into it. The caller holds the user's lock.
create or replace function _memoir.document_value(p_caller _memoir.caller, p_place _memoir.documents, p_entry jsonb,
  p_where text)
returns jsonb language plpgsql stable as $$
declare
  v_merge jsonb := nullif(p_entry -> 'merge', 'null'); v_was jsonb := nullif(p_entry -> 'was', 'null');
  v_at text := p_entry ->> 'at'; v_now _memoir.documents; v_into jsonb;
begin
  if not p_entry ?| '{merge,exists,was}' then return nullif(p_entry -> 'value', 'null'); end if;
  select * into v_now from _memoir.documents d where d.user_id = p_place.user_id and d.project = p_place.project
    and d.namespace = p_place.namespace and d.key = p_place.key
    and (d.expires_at is null or d.expires_at > memoir.now());
  if (v_now.value is not null) <> (p_entry ->> 'exists')::boolean
    or v_was is not null and (v_now.value is distinct from v_was or v_now.sensitivity > p_caller.clearance) then
    perform _memoir.fail('PM007', format('%s: document %s was changed by another writer', p_where,
      _memoir.shown(p_place.key)), 'read it again');
  end if;
  if v_merge is null then return nullif(p_entry -> 'value', 'null'); end if;
  v_into := coalesce(case when v_at is null then v_now.value else v_now.value -> v_at end, '{}');
  if p_entry ->> 'value' is not null or jsonb_typeof(v_merge) <> 'object' or jsonb_typeof(v_into) <> 'object'
    or jsonb_typeof(v_now.value) <> 'object' then
    perform _memoir.fail('PM014', format('%s.merge must be an object, beside no value, to be merged into an object',
      p_where));
  end if;
  v_into := v_into || v_merge;
  return case when v_at is null then v_into
    else coalesce(v_now.value, '{}') || jsonb_build_object(v_at, v_into) end;
end $$;

-- Returns an entry of put_documents as the row it becomes; without a value it is to be deleted.
create or replace function _memoir.document(p_caller _memoir.caller, p_entry jsonb, p_where text, p_config jsonb)
returns _memoir.documents language plpgsql stable as $$
declare
  v_document _memoir.documents := _memoir.document_place(p_caller, p_entry, p_where); v_text text;
  v_limit integer := p_config ->> 'text_bytes_max';
  v_regconfig regconfig := (p_config ->> 'text_search_config')::regconfig;
begin
  v_document.value := _memoir.document_value(p_caller, v_document, p_entry, p_where);
  if v_document.value is null then return v_document; end if;
  perform _memoir.check_size(p_where || '.value', v_document.value::text, v_limit);
  perform _memoir.refuse_value(coalesce(jsonb_typeof(p_entry -> 'minutes'), 'null') not in ('null', 'number')
    or (p_entry ->> 'minutes')::real not between 0 and 1e8, p_where || '.minutes', p_entry ->> 'minutes',
    'from 0 to 100000000');
  v_document.minutes := (p_entry ->> 'minutes')::real;
  v_document.updated_at := memoir.now();
  v_document.created_at := v_document.updated_at;
  v_document.expires_at := v_document.updated_at + v_document.minutes * interval '1 minute';
  v_document.written_by := p_caller.login;
  -- Searched is the text that is given, else the strings of the value, one a line. The client writes what jsonb can't
  -- hold as U+FDD0 and its name (NUL as U+FDD0 and 0000). Searched is U+FFFD in its place.
  v_text := left(case when p_entry ? 'text' then p_entry ->> 'text' else (
    select regexp_replace(string_agg(x #>> '{}', E'\n'), U&'\FDD0([0-9A-F]{4}|NaN|-?Infinity)', U&'\FFFD', 'g')
    from jsonb_path_query(v_document.value, 'strict $.** ? (@.type() == "string")') x) end, 100000);
  v_document.sensitivity := case when _memoir.detected(p_config, v_document.value::text, v_text) = '{}' then 'normal'
    else 'secret' end;
  v_document.language := 0;
  v_document.word_count := 0;
  if v_text ~ '[[:alnum:]]' then
    v_document.language := _memoir.item_language(v_text, v_regconfig);
    v_document.words := _memoir.item_words(v_text, v_document.language, v_regconfig);
    v_document.word_count := (select coalesce(sum(cardinality(w.positions)), 0) from unnest(v_document.words) w);
  end if;
  perform _memoir.refuse_value(coalesce(jsonb_typeof(p_entry -> 'embeddings'), 'null') not in ('null', 'array'), p_where
    || '.embeddings', p_entry ->> 'embeddings', 'a list of vectors');
  v_document.vectors := array(select _memoir.own_vector(array(select x::text::real from jsonb_array_elements(e) x))
    from jsonb_array_elements(nullif(p_entry -> 'embeddings', 'null')) e);
  return v_document;
end $$;

create or replace function _memoir.own_vector(p_embedding real[])
returns halfvec language plpgsql immutable as $$
declare
  v_model _memoir.embedding_models;
begin
  v_model.name := 'of the application'; v_model.dimension := cardinality(p_embedding);
  return _memoir.to_vector(p_embedding, v_model);
end $$;

create or replace function memoir.put_documents(p_user text, p_documents jsonb)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_entry record; v_document _memoir.documents;
  v_config jsonb := _memoir.config(v_caller.user_id, null);
  v_where text; v_stored integer := 0; v_deleted integer := 0; v_found integer; v_secret jsonb := '[]';
  v_appended jsonb := '[]';
begin
  perform _memoir.touch_user(v_caller, p_user);
  perform _memoir.refuse_value(jsonb_typeof(p_documents) is distinct from 'array', 'documents', p_documents, 'a list');
  -- One writer of a user at a time: appends and merges read what they change, and two writers could deadlock.
  perform from _memoir.user_counters where user_id = v_caller.user_id for update;
  for v_entry in select d as document, o - 1 as place from jsonb_array_elements(p_documents) with ordinality x(d, o)
    order by o loop
    v_where := format('documents[%s]', v_entry.place);
    if v_entry.document ? 'where' then  -- all of its namespace that fit
      v_document := _memoir.document_place(v_caller, v_entry.document, v_where);
      perform _memoir.check_object(v_where || '.where', v_entry.document -> 'where');
      delete from _memoir.documents d where d.user_id = v_document.user_id and d.project = v_document.project
        and d.namespace = v_document.namespace and _memoir.document_fits(d.value, v_entry.document -> 'where');
      get diagnostics v_found = row_count;
      v_deleted := v_deleted + v_found;
      continue;
    end if;
    v_document := _memoir.document(v_caller, v_entry.document, v_where, v_config);
    if v_document.value is null then
      delete from _memoir.documents d where d.user_id = v_document.user_id and d.project = v_document.project
        and d.namespace = v_document.namespace and d.key = v_document.key;
      get diagnostics v_found = row_count;
      v_deleted := v_deleted + v_found;
      continue;
    end if;
    insert into _memoir.documents as d select v_document.*
    on conflict (user_id, project, namespace, key) do update set value = excluded.value, words = excluded.words,
      word_count = excluded.word_count, language = excluded.language, sensitivity = excluded.sensitivity,
      vectors = case when v_entry.document ? 'merge' and not v_entry.document ? 'embeddings' then d.vectors
        else excluded.vectors end, minutes = excluded.minutes, expires_at = excluded.expires_at,
      updated_at = excluded.updated_at, written_by = excluded.written_by,
      created_at = case when d.expires_at <= excluded.updated_at then excluded.created_at else d.created_at end;
    v_stored := v_stored + 1;
    if v_document.sensitivity = 'secret' then v_secret := v_secret || to_jsonb(v_document.key); end if;
    if v_entry.document -> 'append' = 'true' then v_appended := v_appended || to_jsonb(v_document.key); end if;
  end loop;
  return jsonb_build_object('stored', v_stored, 'deleted', v_deleted, 'secret', v_secret, 'appended', v_appended);
end $$;
comment on function memoir.put_documents(text, jsonb) is
  'Stores JSON documents of a user, or without a value deletes them: [{"namespace": ["notes", "work"], "key", "value",
"text", "embeddings", "minutes"}], all or nothing, in order. "text": what of it is searched (default: every string in
it; null: nothing); "embeddings": vectors of it, of any dimension; "minutes": how long it lives. What holds a key, a
card or an account is secret and read with that clearance alone. A login bound to projects has the documents of its
own. Several writers lose nothing by "append": true in the place of a key (the document follows the last that was
appended to its namespace, as "000000000007"), and by "merge" in the place of a value (an object whose fields are set
in the document as it is, or in its field "at"; without "embeddings" its vectors stay). "exists" (true or false) and
"was" (the value that you read) say what must still hold, else nothing is written and PM007 raised. {"namespace",
"where"} deletes those of a namespace that fit a filter of search_documents. Returns {"stored", "deleted", "secret":
keys, "appended": keys}. Writes documents. Raises PM001, PM007, PM012, PM014.';

create or replace function _memoir.documents_under(p_caller _memoir.caller, p_namespace text[], p_filter jsonb)
returns setof _memoir.documents language plpgsql stable as $$
declare
  v_project text := _memoir.default_project(p_caller); v_now timestamptz := memoir.now();
begin
  return query select d.* from _memoir.documents d
  where d.user_id = p_caller.user_id and d.project = v_project and d.namespace >= p_namespace
    and d.namespace[1 : cardinality(p_namespace)] = p_namespace
    and (d.expires_at is null or d.expires_at > v_now) and d.sensitivity <= p_caller.clearance
    and (p_filter is null or _memoir.document_fits(d.value, p_filter));
end $$;

create or replace function _memoir.refresh_documents(p_caller _memoir.caller, p_namespace text[], p_keys text[])
returns void language plpgsql as $$
declare
  v_project text := _memoir.default_project(p_caller); v_now timestamptz := memoir.now();
begin
  if current_setting('transaction_read_only')::boolean then return; end if;
  update _memoir.documents d set expires_at = v_now + d.minutes * interval '1 minute'
  where d.user_id = p_caller.user_id and d.project = v_project and d.namespace = p_namespace and d.key = any (p_keys)
    and d.expires_at > v_now;
end $$;

create or replace function memoir.get_documents(p_user text, p_namespace text[], p_keys text[],
  p_refresh boolean default true)
returns table (namespace text[], key text, value jsonb, created_at timestamptz, updated_at timestamptz,
  expires_at timestamptz)
language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_project text := _memoir.default_project(v_caller);
begin
  perform _memoir.check_namespace('namespace', p_namespace);
  if p_refresh then perform _memoir.refresh_documents(v_caller, p_namespace, p_keys); end if;
  return query select d.namespace, d.key, d.value, d.created_at, d.updated_at, d.expires_at from _memoir.documents d
  where d.user_id = v_caller.user_id and d.project = v_project and d.namespace = p_namespace and d.key = any (p_keys)
    and (d.expires_at is null or d.expires_at > memoir.now()) and d.sensitivity <= v_caller.clearance order by d.key;
end $$;
comment on function memoir.get_documents(text, text[], text[], boolean) is
  'Documents of one namespace by their keys; no row for what is not there. p_refresh: those that end by themselves live
on from now. Writes documents then. Raises PM001, PM014.';

create or replace function memoir.search_documents(p_user text, p_namespace text[] default '{}',
  p_query text default null, p_filter jsonb default null, p_limit integer default 10, p_offset integer default 0,
  p_refresh boolean default true, p_query_embedding real[] default null)
returns table (namespace text[], key text, value jsonb, created_at timestamptz, updated_at timestamptz,
  expires_at timestamptz, score real)
language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read'); v_found _memoir.documents[]; v_vector halfvec;
  v_asked boolean := coalesce(p_query, '') ~ '[^[:space:]]' or p_query_embedding is not null; v_terms text[];
begin
  perform _memoir.check_namespace('namespace', p_namespace), _memoir.check_object('filter', p_filter);
  perform _memoir.check_range('limit', p_limit, 0, 10000, true),
    _memoir.check_range('offset', p_offset, 0, 2147483647, true);
  if p_query_embedding is not null then v_vector := _memoir.own_vector(p_query_embedding); end if;
  v_found := array(select d from _memoir.documents_under(v_caller, p_namespace, nullif(p_filter, 'null')) d);
  v_terms := (select q.terms || q.forms from _memoir.question_words(coalesce(p_query, ''),
    (_memoir.config(v_caller.user_id, null) ->> 'text_search_config')::regconfig, coalesce(
      (select bit_or(1::bigint << d.language) from unnest(v_found) d where d.words is not null), 0)) q where v_asked);
  -- How well they fit: BM25 over those it is asked among, as a share of the best, and the best cosine, half and half
  -- where both are asked.
  return query
  with found as materialized (select f.namespace, f.key, f.words, f.word_count, f.vectors from unnest(v_found) f
    where v_asked),
  sizes as (select count(*)::float8 as n, greatest(avg(f.word_count), 1)::float8 as length from found f
    where f.words is not null),
  hits as materialized (select f.namespace, f.key, f.word_count, greatest(cardinality(w.positions), 1) as times,
      count(*) over (partition by w.lexeme) as documents
    from found f, unnest(f.words) w where w.lexeme = any (v_terms)),
  words as (select h.namespace, h.key, sum(ln(1 + (s.n - h.documents + 0.5) / (h.documents + 0.5)) * h.times * 2.2
      / (h.times + 1.2 * (0.25 + 0.75 * h.word_count / s.length))) as weight
    from hits h, sizes s group by h.namespace, h.key),
  scored as (select f.namespace, f.key, coalesce(w.weight / max(w.weight) over (), 0) as words_score,
      (select 1 - min(v <=> v_vector) from unnest(f.vectors) v where vector_dims(v) = vector_dims(v_vector))
        as vector_score
    from found f left join words w on w.namespace = f.namespace and w.key = f.key),
  ranked as (select s.namespace, s.key, (case when v_vector is null then s.words_score when coalesce(p_query, '') = ''
    then s.vector_score else (s.words_score + coalesce(s.vector_score, 0)) / 2 end)::real as score from scored s)
  select d.namespace, d.key, d.value, d.created_at, d.updated_at, d.expires_at, r.score from unnest(v_found) d
  left join ranked r on r.namespace = d.namespace and r.key = d.key
  order by r.score desc nulls last, d.updated_at desc, d.namespace, d.key limit p_limit offset p_offset;
  perform _memoir.refresh_documents(v_caller, g.labels, g.keys) from (
    select d.namespace as labels, array_agg(d.key) as keys from unnest(v_found) d
    where p_refresh and d.expires_at is not null group by d.namespace order by 1) g;
end $$;
comment on function memoir.search_documents(text, text[], text, jsonb, integer, integer, boolean, real[]) is
  'Documents of a namespace and those below it ({}: all). p_query, p_query_embedding: the best first, with score, by
words, by vector (the cosine), or with both half and half; without, those written last first. p_filter: {"field":
value}, {"field": {"$gt": 5}} ($eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists), {"$or": [filters]} ($and, $not),
fields within fields. p_refresh: those found that would end live on. Writes documents then. Raises PM001, PM014.';

create or replace function memoir.list_document_namespaces(p_user text, p_conditions jsonb default '[]',
  p_depth integer default null, p_limit integer default 100, p_offset integer default 0)
returns setof text[] language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
begin
  if jsonb_typeof(p_conditions) is distinct from 'array' or exists (select from jsonb_array_elements(p_conditions) c
    where jsonb_typeof(c -> 'path') is distinct from 'array' or coalesce(c ->> 'match', '') not in ('prefix', 'suffix'))
  then
    perform _memoir.fail('PM014', format('conditions must be a list of {"match": "prefix" or "suffix", "path": [...]}, '
      'not %s', _memoir.shown(p_conditions::text)));
  end if;
  perform _memoir.check_range('limit', p_limit, 0, 10000, true),
    _memoir.check_range('offset', p_offset, 0, 2147483647, true), _memoir.check_range('depth', p_depth, 1, 2147483647);
  return query select distinct d.namespace[1 : coalesce(p_depth, cardinality(d.namespace))] as labels
  from _memoir.documents_under(v_caller, '{}', null) d
  where not exists (  -- a condition that the namespace does not meet, "*" being any one label
    select from jsonb_array_elements(p_conditions) c, lateral (
      select count(*) as n, coalesce(bool_and(x = '*' or x is not distinct from d.namespace[o
        + case when c ->> 'match' = 'suffix' then cardinality(d.namespace) - jsonb_array_length(c -> 'path') else 0
          end]), true) as fits
      from jsonb_array_elements_text(c -> 'path') with ordinality p(x, o)) f
    where f.n > cardinality(d.namespace) or not f.fits)
  order by labels limit p_limit offset p_offset;
end $$;
comment on function memoir.list_document_namespaces(text, jsonb, integer, integer, integer) is
  'The namespaces that hold documents, in order. p_conditions, all of which must hold: {"match": "prefix" or "suffix",
"path": [...]}, "*" being any one label. p_depth: cut to so many labels. Raises PM001, PM014.';
