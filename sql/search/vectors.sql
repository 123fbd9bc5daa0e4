-- Vectors: stored beside the items, compared exactly; the vector of a query.

create or replace function _memoir.embedding_model(p_name text)
returns _memoir.embedding_models language plpgsql stable as $$
declare
  v_model _memoir.embedding_models;
begin
  select * into v_model from _memoir.embedding_models where case when p_name is null then status = 'active'
    else name = p_name end;
  if not found then
    perform _memoir.fail('PM031', format('unknown embedding model %s', _memoir.shown(coalesce(p_name, 'active'))),
      'register_embedding_model first');
  end if;
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

-- The query's vector: given, or asked of the embedder with a time-out. A miss is no error: the word arms carry on.
create or replace function _memoir.query_vector(p_config jsonb, p_query text, p_given real[], out vector halfvec,
  out model_id smallint, out problem text, out languages text[])
language plpgsql stable as $$
declare
  v_model _memoir.embedding_models; v_real real[];
begin
  select * into v_model from _memoir.embedding_models where status = 'active';
  if not found then problem := 'no embedding model is active'; return; end if;
  model_id := v_model.model_id;
  languages := v_model.languages;
  if p_given is not null then
    vector := _memoir.to_vector(p_given, v_model);
    return;
  end if;
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
  if v_real is null then return; end if;
  begin
    vector := _memoir.to_vector(v_real, v_model);
  exception when sqlstate 'PM014' or sqlstate 'PM030' then
    problem := 'the answer for it was no usable vector: ' || sqlerrm;
  end;
end $$;

-- Cosines of the closest p_limit items and of those that matched by words (p_items), best first. All of it in one scan,
-- sorted by one integer (distance in millionths, then the item): what matched by words is moved before all others, so
-- that it stays. For a user of more than exact_vectors_max items the signs of the vectors, an index of their own,
-- choose whom to compare.
create or replace function _memoir.vector_scores(p_user_id uuid, p_counters _memoir.user_counters, p_config jsonb,
  p_vector halfvec, p_model_id smallint, p_items integer[], p_hidden integer[], p_limit integer)
returns _memoir.item_scores language plpgsql stable as $$
declare
  v_keys bigint[]; v_limit integer := p_limit + coalesce(cardinality(p_items), 0); v_out _memoir.item_scores;
  v_signs "bit"; v_near integer[]; v_compared integer := p_limit * (p_config ->> 'sign_candidates')::integer;
begin
  if p_vector is null then return null; end if;
  -- Signs of few dimensions tell too little.
  if p_counters.items > (p_config ->> 'exact_vectors_max')::integer and vector_dims(p_vector) >= 256 then
    v_signs := binary_quantize(p_vector);
    select array_agg((k.key & 4294967295)::integer) into v_near
    from (select (e.signs <~> v_signs)::bigint << 32 | e.item_no as key
          from _memoir.embeddings e
          where e.user_id = p_user_id and e.model_id = p_model_id and (p_hidden = '{}' or e.item_no <> all (p_hidden))
          order by key limit v_compared) k;
    v_near := coalesce(v_near, '{}') || p_items;
  end if;
  select array_agg(k.key) into v_keys
  from (select (((e.embedding <=> p_vector) * 1000000)::bigint - case when e.item_no = any (p_items) then 4000000
    else 0 end) << 32 | e.item_no as key
        from _memoir.embeddings e
        where e.user_id = p_user_id and e.model_id = p_model_id and case
          when v_near is null then p_hidden = '{}' or e.item_no <> all (p_hidden) else e.item_no = any (v_near) end
        order by key limit v_limit) k;
  select array_agg(item), array_agg((1 - distance::float8 / 1000000)::real), (1 - min(distance)::float8 / 1000000)::real
  into v_out.items, v_out.scores, v_out.best
  from (select d.*, row_number() over (order by distance, item) as nth
        from (select (k & 4294967295)::integer as item, (k >> 32) + case when k < 0 then 4000000 else 0 end as distance,
          k < 0 as matched
              from unnest(v_keys) k) d order by distance, item) r
  where matched or nth <= p_limit;
  return v_out;
end $$;
