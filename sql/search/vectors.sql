create or replace function _memoir.embedding_model(p_name text)
returns _memoir.embedding_models language plpgsql stable as $$
declare
  v_model _memoir.embedding_models;
begin
  select * into v_model from _memoir.embedding_models where case when p_name is null then status = 'active'
    else name = p_name end;
  perform _memoir.fail('PM031', format('unknown embedding model %s', _memoir.shown(coalesce(p_name, 'active'))),
    'register_embedding_model first') where not found;
  return v_model;
end $$;

create or replace function _memoir.to_vector(p_embedding real[], p_model _memoir.embedding_models)
returns halfvec language plpgsql immutable as $$
declare
  v_vector halfvec;
begin
  if array_ndims(p_embedding) is distinct from 1 or cardinality(p_embedding) <> p_model.dimension
    or array_position(p_embedding, null) is not null then
    perform _memoir.fail('PM030', format('embedding has %s dimensions, model %s needs %s',
      coalesce(cardinality(p_embedding), 0), p_model.name, p_model.dimension),
      case when array_position(p_embedding, null) is not null then 'one of its numbers is null' end);
  end if;
  if 65520 <= any (p_embedding) or -65520 >= any (p_embedding) then  -- NaN counts as more than any number
    perform _memoir.fail('PM014', 'embedding holds a value that is not a finite half-precision number');
  end if;
  v_vector := p_embedding::halfvec;
  if not l2_norm(v_vector) > 0 then  -- the cosine to it would be NaN
    perform _memoir.fail('PM014', 'embedding is zero in all dimensions, to half precision');
  end if;
  return v_vector;
end $$;

-- The vector that a model answered, or why it can't be used.
create or replace function _memoir.usable_vector(p_answer real[], p_model _memoir.embedding_models, out vector halfvec,
  out problem text)
language plpgsql immutable as $$
begin
  vector := _memoir.to_vector(p_answer, p_model);
exception when sqlstate 'PM014' or sqlstate 'PM030' then
  problem := 'the answer for it was no usable vector: ' || sqlerrm;
end $$;

-- The query's vector: given, or asked of the embedder with a time-out. A miss is no error: the word arms carry on.
create or replace function _memoir.query_vector(p_config jsonb, p_query text, p_given real[], out vector halfvec,
  out problem text)
language plpgsql stable as $$
declare
  v_model _memoir.embedding_models; v_real real[];
begin
  select * into v_model from _memoir.embedding_models where status = 'active';
  if not found then problem := 'no embedding model is active'; return; end if;
  if p_given is not null then vector := _memoir.to_vector(p_given, v_model); return; end if;
  if coalesce(btrim(p_query), '') = '' then problem := 'no query'; return; end if;
  if v_model.provider = 'embedder' then
    if p_config ->> 'embedder_socket' = '' then problem := 'no embedder is configured'; return; end if;
    if to_regprocedure('_memoir.py_embed_query(text,text,text,integer)') is null
      then problem := 'PL/Python is not installed'; return; end if;
    select vec, r.problem into v_real, problem
    from _memoir.py_embed_query(p_config ->> 'embedder_socket', v_model.name, v_model.query_prefix || p_query,
      (p_config ->> 'query_timeout_ms')::integer) r;
  elsif v_model.provider = 'openai' then
    if to_regprocedure('_memoir.py_embed_http(text,text,text,integer)') is null
      then problem := 'PL/Python is not installed'; return; end if;
    select vec, r.problem into v_real, problem
    from _memoir.py_embed_http(v_model.endpoint, v_model.name, v_model.query_prefix || p_query,
      (p_config ->> 'query_timeout_ms')::integer) r;
  else
    problem := format('model %s takes vectors from the client', v_model.name);
  end if;
  if v_real is not null then select u.* into vector, problem from _memoir.usable_vector(v_real, v_model) u; end if;
end $$;

-- Signs of vectors, packed (migrations/0018): the kernel chooses by them whose vectors it compares.

-- Packs the segments of which all items have their vectors, those that are not there.
create or replace function _memoir.pack_signs(p_user_id uuid, p_model_id smallint)
returns void language plpgsql as $$
begin
  insert into _memoir.packed_signs (user_id, model_id, segment, items, signs)
  select p_user_id, p_model_id, s.n, coalesce(e.items, ''), coalesce(e.signs, '')
  from _memoir.embedding_cursors c, generate_series(0, (c.through_item + 1) / 256 - 1) s(n)
  cross join lateral (select string_agg(int4send(e.item_no), ''::bytea order by e.item_no) as items,
      string_agg(substring(bit_send(binary_quantize(e.embedding)) from 5), ''::bytea order by e.item_no) as signs
    from _memoir.embeddings e where e.user_id = p_user_id and e.model_id = p_model_id
      and e.item_no >= s.n * 256 and e.item_no < (s.n + 1) * 256) e
  where c.user_id = p_user_id and c.model_id = p_model_id and not exists (select from _memoir.packed_signs p
    where p.user_id = p_user_id and p.model_id = p_model_id and p.segment = s.n);
end $$;

create or replace function _memoir.unpack_signs()
returns trigger language plpgsql security definer set search_path from current as $$
declare
  v_old record;
begin
  for v_old in select o.user_id, o.model_id, array_agg(distinct o.item_no / 256) as segments from old_vectors o
    group by 1, 2 loop
    delete from _memoir.packed_signs p where p.user_id = v_old.user_id and p.model_id = v_old.model_id
      and p.segment = any (v_old.segments);
  end loop;
  return null;
end $$;

do $$
begin
  if not exists (select from pg_trigger where tgrelid = '_memoir.embeddings'::regclass and tgname = 'unpack_deleted')
  then
    create trigger unpack_deleted after delete on _memoir.embeddings referencing old table as old_vectors
      for each statement execute function _memoir.unpack_signs();
    create trigger unpack_updated after update on _memoir.embeddings referencing old table as old_vectors
      for each statement execute function _memoir.unpack_signs();
  end if;
end $$;
