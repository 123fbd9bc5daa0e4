-- Those of the release (sql/data/chat_models.csv). What an admin registered under such a name stays.
delete from _memoir.models where built_in and model in (select c.model from _memoir.data_chat_models() c);
insert into _memoir.models (model, provider, context_window, max_output, tokenizer, message_overhead, images,
  prompt_microcents_per_1k, completion_microcents_per_1k, built_in, cache_read_rate, cache_write_rate,
  cache_write_1h_rate)
select model, provider, context_window::integer, max_output::integer, tokenizer, message_overhead::integer, images,
  prompt_microcents_per_1k::bigint, completion_microcents_per_1k::bigint, true, cache_read_rate::real,
  cache_write_rate::real, cache_write_1h_rate::real
from _memoir.data_chat_models() on conflict (model) do nothing;

create or replace function memoir.register_model(p_model text, p_provider text, p_context_window integer,
  p_max_output integer, p_tokenizer text default 'estimate', p_message_overhead integer default 4,
  p_prompt_microcents_per_1k bigint default 0, p_completion_microcents_per_1k bigint default 0,
  p_images text default null, p_cache_read_rate real default null, p_cache_write_rate real default null,
  p_cache_write_1h_rate real default null)
returns void language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  perform _memoir.refuse_value(p_provider not in ('openai', 'anthropic'), 'provider', p_provider,
    'openai (any compatible server) or anthropic');
  perform _memoir.refuse_value(p_tokenizer is null or p_tokenizer !~ '^(estimate|o200k_base|cl100k_base|hf:/.+)$',
    'tokenizer', p_tokenizer, 'estimate, o200k_base, cl100k_base or hf:/path/to/tokenizer.json');
  if coalesce(p_model, '') = '' or coalesce(p_context_window, 0) <= 0 or coalesce(p_max_output, 0) <= 0
     or p_max_output >= p_context_window or coalesce(p_message_overhead, -1) < 0
     or coalesce(p_prompt_microcents_per_1k, -1) < 0 or coalesce(p_completion_microcents_per_1k, -1) < 0 then
    perform _memoir.fail('PM014',
      format('model %s: window, output and prices must be positive and the output smaller than the window (window %s, '
        'output %s)',
      _memoir.shown(p_model), p_context_window, p_max_output));
  end if;
  if p_images !~
    '^(tiles:[0-9]{1,4}(\.[0-9]{1,4})?|patches:[0-9]{1,4}(\.[0-9]{1,4})?|area:[0-9]{2,5}:[0-9]{1,6}|flat:[0-9]{1,6})$'
  then
    perform _memoir.fail('PM014', format('images must be like tiles:1, patches:1.62, area:1568:1600 or flat:1120, '
      'not %s', _memoir.shown(p_images)));
  end if;
  perform _memoir.check_range('cache_read_rate', p_cache_read_rate, 0, 10),
    _memoir.check_range('cache_write_rate', p_cache_write_rate, 0, 10),
    _memoir.check_range('cache_write_1h_rate', p_cache_write_1h_rate, 0, 10);
  insert into _memoir.models values (p_model, p_provider, p_context_window, p_max_output, p_tokenizer,
    p_message_overhead,
    coalesce(p_images, case p_provider when 'anthropic' then 'area:1568:1600' else 'tiles:1' end),
    p_prompt_microcents_per_1k, p_completion_microcents_per_1k, false,
    coalesce(p_cache_read_rate, case p_provider when 'anthropic' then 0.1 else 1 end),
    coalesce(p_cache_write_rate, case p_provider when 'anthropic' then 1.25 else 1 end),
    coalesce(p_cache_write_1h_rate, case p_provider when 'anthropic' then 2 else 1 end))
  on conflict (model) do update set provider = excluded.provider, context_window = excluded.context_window,
    max_output = excluded.max_output, tokenizer = excluded.tokenizer, message_overhead = excluded.message_overhead,
    images = excluded.images, prompt_microcents_per_1k = excluded.prompt_microcents_per_1k,
    completion_microcents_per_1k = excluded.completion_microcents_per_1k, built_in = false,
    cache_read_rate = excluded.cache_read_rate, cache_write_rate = excluded.cache_write_rate,
    cache_write_1h_rate = excluded.cache_write_1h_rate;
end $$;
comment on function memoir.register_model(text, text, integer, integer, text, integer, bigint, bigint, text, real,
  real, real) is
  'Registers or replaces a chat model: window and output in tokens, tokenizer, tokens of overhead per message, prices
in microcents (1e-8 of the currency''s unit) per 1,000 tokens, the rule by which images count (docs/explain/tokens.md).
Rates, 0 to 10: what a token read from the prompt cache costs, one written for five minutes and one for an hour, as a
share of a prompt token''s price. By default Anthropic''s 0.1, 1.25 and 2, else 1. Admin only. Raises PM001, PM014.';

-- Returns what a name is registered as: itself, or the longest name it begins with ("gpt-4o-2024-11-20" is "gpt-4o"),
-- whatever path, cloud or case it is written with. A row of nulls: nobody knows it.
create or replace function _memoir.registered_model(p_model text)
returns _memoir.models language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_model _memoir.models; v_name text;
begin
  select * into v_model from _memoir.models m where m.model = p_model;
  if found then return v_model; end if;
  v_name := regexp_replace(lower(split_part(p_model, '/', -1)),
    '^([a-z]{2,6}\.)?(anthropic|amazon|deepseek|google|meta|mistral|openai|qwen)\.', '');
  select * into v_model from _memoir.models m
  where m.model = v_name
    or starts_with(p_model, m.model) and substr(p_model, length(m.model) + 1, 1) in ('-', ':', '@')
    or starts_with(v_name, m.model) and substr(v_name, length(m.model) + 1, 1) in ('-', ':', '@')
  order by length(m.model) desc, m.model limit 1;
  return v_model;
end $$;

-- A session's model. One that nobody registered has the window and the prices of "default"; its tokens are estimated.
create or replace function _memoir.model(p_model text)
returns _memoir.models language plpgsql stable as $$
declare
  v_model _memoir.models := _memoir.registered_model(p_model);
begin
  if v_model.model is null then
    select * into v_model from _memoir.models m where m.model = 'default';
    v_model.tokenizer := 'estimate';
  end if;
  v_model.model := p_model;
  return v_model;
end $$;

-- Returns what is to be said of a model that nobody registered, with the names most like it: by the pairs of characters
-- they share. Null for one that is registered.
create or replace function _memoir.model_warning(p_model text)
returns text language plpgsql stable as $$
declare
  v_name text := regexp_replace(lower(p_model), '[^a-z0-9]', '', 'g'); v_near text; v_default _memoir.models;
begin
  -- Whoever takes a longer name refuses it. Comparing it here would take time that grows with the square of its length.
  if length(p_model) > 200 or (_memoir.registered_model(p_model)).model is not null then return null; end if;
  select string_agg(x.model, ', ' order by x.alike desc, x.model) into v_near
  from (select m.model, similarity(regexp_replace(lower(m.model), '[^a-z0-9]', '', 'g'), v_name) as alike
    from _memoir.models m where m.model <> 'default' order by alike desc, m.model limit 3) x
  where x.alike >= 0.3;
  select * into v_default from _memoir.models m where m.model = 'default';
  return format(
    'model %s is not registered: it counts with a window of %s tokens, %s of them for the answer, and costs %s%s',
    _memoir.shown(p_model), v_default.context_window, v_default.max_output,
    case when v_default.prompt_microcents_per_1k + v_default.completion_microcents_per_1k = 0 then 'nothing'
    else 'what default costs' end,
    coalesce('; near it: ' || v_near, ''));
end $$;

create or replace function memoir.register_embedding_model(p_name text, p_provider text, p_dimension integer,
  p_query_prefix text default '', p_document_prefix text default '', p_endpoint text default null,
  p_languages text[] default null, p_microcents_per_1k bigint default 0)
returns smallint language plpgsql security definer set search_path from current as $$
declare
  v_id smallint;
begin
  perform _memoir.authorise_admin();
  perform _memoir.check_choice('provider', p_provider, '{embedder,openai,in_process,none}'),
    _memoir.check_count('dimension', p_dimension, 16000),
    _memoir.check_range('microcents_per_1k', p_microcents_per_1k, 0, 'infinity', true);
  if (p_provider = 'openai') <> (p_endpoint is not null) then
    perform _memoir.fail('PM014', 'an endpoint goes with provider openai and with no other');
  end if;
  if exists (select from _memoir.embedding_models where name = p_name and dimension <> p_dimension) then
    perform _memoir.fail('PM030', format('embedding model %s is registered with another dimension',
      _memoir.shown(p_name)),
      'register it under a new name');
  end if;
  insert into _memoir.embedding_models (name, provider, dimension, query_prefix, document_prefix, endpoint,
    languages, microcents_per_1k)
  values (p_name, p_provider, p_dimension, p_query_prefix, p_document_prefix, p_endpoint, p_languages,
    p_microcents_per_1k)
  on conflict (name) do update set provider = excluded.provider, endpoint = excluded.endpoint,
    languages = coalesce(excluded.languages, embedding_models.languages),
    microcents_per_1k = excluded.microcents_per_1k, status = case
      when embedding_models.status = 'retired' then 'backfilling' else embedding_models.status end
  returning model_id into v_id;
  return v_id;
end $$;
comment on function memoir.register_embedding_model(text, text, integer, text, text, text, text[], bigint) is
  'Registers an embedding model; its vectors are backfilled beside the active one until switch_embedding_model. Prefixes
go before queries and documents. provider: embedder (the shared process), openai (endpoint of /v1/embeddings),
in_process (jobs only), none (the client supplies vectors). languages it reads, as two letters (''en''); null: any.
microcents_per_1k: what 1,000 tokens cost (1e-8 of the currency''s unit). Admin only. Raises PM001, PM014, PM030.';

create or replace function memoir.switch_embedding_model(p_name text)
returns void language plpgsql security definer set search_path from current as $$
begin
  perform _memoir.authorise_admin();
  lock table _memoir.embedding_models in share row exclusive mode;  -- two switches at once: one after the other
  perform _memoir.fail('PM031', format('unknown embedding model %s', _memoir.shown(p_name)),
    'register_embedding_model first') where not exists (select from _memoir.embedding_models where name = p_name);
  update _memoir.embedding_models set status = 'retired' where status = 'active' and name <> p_name;
  update _memoir.embedding_models set status = 'active' where name = p_name;
  perform _memoir.audit('switch_embedding_model', jsonb_build_object('model', p_name));
end $$;
comment on function memoir.switch_embedding_model(text) is
  'Makes an embedding model the one that queries use, in this transaction; the former one is retired and its vectors are
dropped by the job sweep. Items not reached yet are found by words. Admin only. Raises PM001, PM031.';

insert into _memoir.embedding_models (name, provider, dimension, languages, status)
select name, provider, dimension::integer, string_to_array(nullif(languages, 'any'), ' '),
  case nth when 1 then 'active' else 'backfilling' end
from _memoir.data_embedding_models()
where not exists (select from _memoir.embedding_models);
