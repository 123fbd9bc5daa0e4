-- PL/Python: shims over the package pg_memoir_server, which the server's Python must find (PYTHONPATH of the
-- postmaster). Needs a superuser: the language is untrusted. Nothing here is for applications: memoir_owner calls the
-- functions, workers and jobs the two procedures.
--
-- A failed query embedding is an answer (vec null, problem says why), so that a compile carries on without vectors. An
-- unknown tokenizer raises 22023. A cancelled or timed-out statement ends waiting within 0.1 s.

-- Runs with a superuser's rights: nothing may be found in a schema that others write to.
set search_path = pg_catalog, pg_temp;

-- One text asked of the shared embedder, ahead of its backlog. At most p_timeout_ms.
create or replace function _memoir.py_embed_query(p_socket text, p_model text, p_text text, p_timeout_ms integer)
returns table (vec real[], problem text) language plpython3u volatile as $$
try:
    from pg_memoir_server import embed_client, shim
except ImportError as error:
    return [(None, f"the server's Python finds no pg_memoir_server: {error}")]
try:
    return [(embed_client.embed_query(p_socket, p_model, p_text, p_timeout_ms, shim.interrupts(plpy)), None)]
except embed_client.EmbedderError as error:
    return [(None, str(error))]
$$;

-- Several texts asked of the shared embedder, behind all queries, in order. At most p_timeout_ms.
create or replace function _memoir.py_embed_texts(p_socket text, p_model text, p_texts text[], p_timeout_ms integer)
returns table (nth integer, vec real[], problem text) language plpython3u volatile as $$
try:
    from pg_memoir_server import embed_client, shim
except ImportError as error:
    return [(0, None, f"the server's Python finds no pg_memoir_server: {error}")]
try:
    vectors = embed_client.embed_batch(p_socket, p_model, p_texts, p_timeout_ms, shim.interrupts(plpy))
except embed_client.EmbedderError as error:
    return [(0, None, str(error))]
return [(nth, vector, None) for nth, vector in enumerate(vectors, 1)]
$$;

-- One text asked of an OpenAI-compatible endpoint, once, without retries: for backends that reach no embedder. The key,
-- if any, comes from the server's environment: PG_MEMOIR_EMBEDDING_API_KEY, or a file named by
-- PG_MEMOIR_EMBEDDING_API_KEY_FILE.
create or replace function _memoir.py_embed_http(p_endpoint text, p_model text, p_text text, p_timeout_ms integer)
returns table (vec real[], problem text) language plpython3u volatile as $$
try:
    from pg_memoir_server import shim
except ImportError as error:
    return [(None, f"the server's Python finds no pg_memoir_server: {error}")]
vectors, problem = shim.embed_http(p_endpoint, p_model, [p_text], p_timeout_ms, retries=0)
return [(vectors[0] if vectors else None, problem)]
$$;

-- Starts the shared embedder unless it answers: 'running', 'started', 'starting', 'restarted' or 'backing off'.
-- p_config: {"socket": path, "models": ["name" or "name=folder", ...]} and optionally "runtime", "threads", "endpoint",
-- "api_key_env", "api_key_file". Writes no table; returns within some seconds. The embedder ends when this server has
-- stopped.
create or replace function _memoir.py_ensure_embedder(p_config jsonb)
returns text language plpython3u volatile as $$
from pg_memoir_server import shim
return shim.ensure_embedder(plpy, p_config)
$$;

-- What the shared embedder says of itself (pid, version, models, counters); {"problem": text} where it doesn't answer.
create or replace function _memoir.py_embedder_stats(p_socket text, p_timeout_ms integer default 1000)
returns jsonb language plpython3u volatile as $$
from pg_memoir_server import shim
return shim.embedder_stats(p_socket, p_timeout_ms)
$$;

-- The kinds of secrets in a text, sorted; null where the package is not found. The model server behind p_socket reads
-- it, or where none answers this process.
create or replace function _memoir.py_find_secrets(p_text text, p_socket text)
returns text[] language plpython3u stable as $$
from pg_memoir_server import shim
return shim.read_language(plpy, "secret_kinds", p_text, p_socket)
$$;

-- The kinds of secrets in each text, apart by commas, null as above, and the tokens of p_counted, null where the server
-- has no such tokenizer: one request where that goes.
create or replace function _memoir.py_read_messages(p_texts text[], p_counted text[], p_tokenizer text, p_socket text,
  out kinds text[], out tokens integer[])
language plpython3u stable as $$
from pg_memoir_server import shim
return shim.read_messages(plpy, p_texts, p_counted, p_tokenizer, p_socket)
$$;

-- What a function of the package says of a text (pg_memoir_server.reading.FUNCTIONS); null where the package is not
-- found or has nothing to say.
create or replace function _memoir.py_read(p_function text, p_given text, p_socket text)
returns jsonb language plpython3u stable as $$
import json
from pg_memoir_server import shim
facts = shim.read_language(plpy, p_function, p_given, p_socket)
return None if facts is None else json.dumps(facts)
$$;

-- A question asked of the shared embedder in one request: what it says (QuestionFacts) and its vector, none where
-- p_model is null or it is small talk, or where problem says why. p_begins: only sends it and returns no row, so that
-- the same call has its answer sooner.
create or replace function _memoir.py_ask(p_socket text, p_model text, p_prefix text, p_text text,
  p_timeout_ms integer, p_begins boolean)
returns table (facts jsonb, vec real[], problem text) language plpython3u volatile as $$
from pg_memoir_server import embed_client, shim
if p_begins:
    if p_socket:
        embed_client.begin_ask(p_socket, p_model, p_prefix, p_text, p_timeout_ms)
    return []
return [shim.ask(plpy, p_socket, p_model, p_prefix, p_text, p_timeout_ms)]
$$;

-- The same text without its secrets: '' where they can't be taken out, null where the package is not found.
create or replace function _memoir.py_redact(p_text text, p_socket text)
returns text language plpython3u stable as $$
from pg_memoir_server import shim
return shim.read_language(plpy, "redact", p_text, p_socket)
$$;

-- Exact token counts, in order; null counts 0. p_tokenizer: o200k_base, cl100k_base or hf:/path/to/tokenizer.json. The
-- model server at p_socket counts, where there is one.
create or replace function _memoir.py_count_tokens(p_texts text[], p_tokenizer text, p_socket text)
returns integer[] language plpython3u stable as $$
from pg_memoir_server import shim, tokens
try:
    return tokens.count_shared(p_texts, p_tokenizer, p_socket)
except tokens.UnknownTokenizer as error:
    shim.fail(plpy, error, "22023")
$$;

-- Whether py_count_tokens() can serve this tokenizer on this server.
create or replace function _memoir.py_tokenizer_available(p_tokenizer text)
returns boolean language plpython3u stable as $$
try:
    from pg_memoir_server import tokens
except ImportError:
    return False  # a server restored elsewhere: counts are estimated, nothing fails
return tokens.available(p_tokenizer)
$$;

-- What the kernel (pg_memoir_kernel) makes of what is asked, with the settings in force and a vector as it is written:
-- the recall, the numbers of the candidates, what the ledger keeps of them, and all of it where that is asked for. Each
-- of its statements names the user's own leaves, so that one plan serves every call.
create or replace function _memoir.py_recall(p_asked text, p_config text, p_vector text, out recalled jsonb,
  out items integer[], out trace json, out rows jsonb)
language plpython3u stable set plan_cache_mode = force_generic_plan as $$
try:
    from pg_memoir_server import kernel
except ImportError as error:
    plpy.error(f"the server's Python finds no pg_memoir_server: {error}", sqlstate="PM026")
return kernel.run(plpy, p_asked, p_config, p_vector)
$$;

-- The embedding backlog, in short steps: claim, commit, call the model, store, commit. No transaction is open while the
-- model runs. Ends after p_seconds or when nothing is left; safe beside copies of itself.
create or replace procedure memoir.embed_backlog(p_seconds integer default 50, p_batch integer default 32)
language plpython3u as $$
from pg_memoir_server import backlog
backlog.run(plpy, p_seconds, p_batch)
$$;
comment on procedure memoir.embed_backlog(integer, integer) is
  'Embeds what lacks a vector, for up to p_seconds in batches of p_batch texts, with the model''s provider. Call outside
a
transaction. Service, jobs and admin logins only.';

-- Jobs of run_job() that call models: the same loop, its counts and errors noted in job_runs.
create or replace procedure _memoir.run_in_python(p_job text, p_run bigint)
language plpython3u as $$
from pg_memoir_server import backlog
backlog.run_job(plpy, p_job, p_run)
$$;

-- Privileges (sql/install/setup.sql): nothing for PUBLIC.
select _memoir.grant_all();
