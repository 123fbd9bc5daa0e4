"""What the PL/Python functions need beyond one call: the only module that knows `plpy`. Light to import."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

TYPE_CHECKING = False  # typing itself is slow to load, and every backend loads this
if TYPE_CHECKING:
    from typing import Any

_http: dict[Any, Any] = {}
_local: dict[Any, Any] = {}


SLOW = (
    "read_turns",
    "read_context",
    "find_contradictions",
    "join_texts",
)  # functions of reading.py that may take a minute
MOST_AT_ONCE = 20_000  # characters of messages that are asked about in one request, which has them twice


def fail(plpy: Any, problem: object, sqlstate: str = "58000") -> None:
    """Raises a problem as an SQL error."""
    plpy.error(str(problem), sqlstate=sqlstate)


def interrupts(plpy: Any) -> Callable[[], object]:
    """A function that raises when the statement has been cancelled: running any statement checks for it."""
    return lambda: plpy.execute("select pg_catalog.pg_sleep(0)")


def interrupts_between(plpy: Any) -> Callable[[], object]:
    """The same for a procedure between its transactions: the look's own snapshot is given back at once."""

    def look() -> None:
        plpy.execute("select pg_catalog.pg_sleep(0)")
        plpy.commit()

    return look


def embed_http(
    endpoint: str, model: str, texts: list[str], timeout_ms: int, retries: int
) -> tuple[list[Any] | None, str | None]:
    """(vectors, None) or (None, problem)."""
    try:
        from .http_embed import HttpEmbedder, HttpEmbedError
    except ImportError as error:
        return None, str(error)
    try:
        key = endpoint, model, retries, os.getpid()
        if key not in _http:
            names = (
                {"api_key_env": "PG_MEMOIR_EMBEDDING_API_KEY"}
                if os.environ.get("PG_MEMOIR_EMBEDDING_API_KEY")
                else {"api_key_file": os.environ.get("PG_MEMOIR_EMBEDDING_API_KEY_FILE")}
            )
            _http[key] = HttpEmbedder(endpoint, model, retries=retries, **names)
        return _http[key].embed(texts, timeout_ms / 1000), None
    except (HttpEmbedError, ImportError) as error:
        return None, str(error)


def embed_local(model: str, texts: list[str], config: str) -> tuple[list[Any] | None, str | None]:
    """(vectors, None) or (None, problem), from a model loaded into this process and kept."""
    given = json.loads(config or "{}")
    key = given.get("source") or model, given.get("runtime", "auto"), given.get("cache")
    try:
        from pathlib import Path

        from . import runtimes
        from .bert_onnx import UnsupportedModel
        from .private import NotPrivate
    except ImportError as error:
        return None, f"in-process embedding needs {error.name}"
    try:
        if key not in _local:
            _local[key] = runtimes.load(key[0], key[1], Path(key[2]) if key[2] else None)
        return _local[key].embed(texts).tolist() if texts else [], None
    except (runtimes.RuntimeUnavailable, UnsupportedModel, NotPrivate, OSError, ValueError) as error:
        return None, str(error)


def read_language(plpy: Any, function: str, text: str, socket: str | None) -> Any:
    """The answer of a function of pg_memoir_language, by the model server or this process.

    None without the package, or with a warning where it fails: the caller then does without.
    """
    from . import embed_client

    if socket and os.path.exists(socket):
        try:
            return embed_client.read(socket, function, text, 60_000 if function in SLOW else 1000)
        except embed_client.EmbedderError:
            pass
    try:
        from .reading import FUNCTIONS
    except ImportError:
        return None
    try:
        return FUNCTIONS[function](text)
    except Exception as error:  # a fault in reading must not keep anybody from writing
        plpy.warning(f"{function} failed: {type(error).__name__}: {error}")
        return None


def read_messages(
    plpy: Any, texts: list[str], counted: list[str], tokenizer: str, socket: str | None
) -> tuple[list[str | None], list[int] | None]:
    """The kinds of secrets in each text, as py_find_secrets tells them, and the tokens of what is counted, None without
    the tokenizer.
    """
    from . import embed_client, tokens

    found, path = None, embed_client.free_path(socket) if socket else None
    is_served = tokenizer in tokens.ENCODINGS and tokens.available(tokenizer) and not tokens.is_loaded(tokenizer)
    if path and is_served and sum(map(len, texts)) < MOST_AT_ONCE:
        given = json.dumps({"texts": texts, "counted": counted, "tokenizer": tokenizer}, ensure_ascii=False)
        try:
            found = embed_client.read(path, "read_messages", given)
        except embed_client.EmbedderError:
            pass
    if found is None:
        kinds = [read_language(plpy, "secret_kinds", text, socket) for text in texts]
        is_there = tokens.available(tokenizer)
        found = {"kinds": kinds, "tokens": tokens.count_shared(counted, tokenizer, socket) if is_there else None}
    return [None if its is None else ", ".join(its) for its in found["kinds"]], found["tokens"]


def ask(
    plpy: Any, socket: str | None, model: str | None, prefix: str, text: str, timeout_ms: int
) -> tuple[str | None, list[float] | None, str | None]:
    """(facts of a question as JSON, its vector, why there is none), of the server; facts alone of this process."""
    from . import embed_client

    problem = None
    if socket and os.path.exists(socket):
        try:
            return embed_client.ask(socket, model, prefix, text, timeout_ms, interrupts(plpy))
        except embed_client.EmbedderError as error:
            problem = str(error) if model else None
    facts = read_language(plpy, "read_question", text, None)
    return None if facts is None else json.dumps(facts), None, problem


def ensure_embedder(plpy: Any, config: str) -> str:
    """supervise.ensure_running() with the keys of a JSON object; errors become SQL errors."""
    from . import supervise
    from .private import NotPrivate

    given = json.loads(config)
    known = {"socket", "models", "runtime", "threads", "endpoint", "api_key_env", "api_key_file"}
    if not given.get("socket") or not given.get("models") or set(given) - known:
        fail(
            plpy,
            f"the embedder's configuration needs socket and models and may have {', '.join(sorted(known))}",
            "22023",
        )
    directory = os.getcwd()  # a backend works in its data directory; the setting is for privileged eyes
    options = {key: value for key, value in given.items() if key not in ("socket", "models") and value is not None}
    try:
        return supervise.ensure_running(
            given["socket"], given["models"], while_exists=os.path.join(directory, "postmaster.pid"), **options
        )
    except (NotPrivate, OSError) as error:
        fail(plpy, error)
        raise


def embedder_stats(socket_path: str, timeout_ms: int) -> str:
    """JSON of the embedder's stats, or of {"problem"}."""
    from . import embed_client

    try:
        return json.dumps(embed_client.stats(socket_path, timeout_ms))
    except embed_client.EmbedderError as error:
        return json.dumps({"problem": str(error)})
