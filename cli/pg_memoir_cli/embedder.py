"""The embedder of a command: n texts → n vectors of length 1, by the models of pg_memoir_server."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from pg_memoir.types import Embed

DEFAULT_MODEL = "all-MiniLM-L6-v2"


def has_package(name: str) -> bool:
    return find_spec(name) is not None


class EmbedderUnavailable(RuntimeError):
    """The provider, its library or its model is not there, or did not answer; the message says which."""


def load_embedder(
    provider: str = "auto",
    model: str = DEFAULT_MODEL,
    *,
    endpoint: str | None = None,
    api_key_env: str | None = None,
    threads: int = 1,
) -> Embed:
    """Loads an embedder.

    `provider`: 'onnx', 'sentence-transformers', 'openai' (any server with an OpenAI-compatible /v1/embeddings at
    `endpoint`), or 'auto': the endpoint if given, else whichever of the others can load the model. `model`: its name
    there, or a folder. `api_key_env`: name of the variable that holds the endpoint's key, ending in _API_KEY.
    `threads`: of the CPU. No model hub is asked. Raises EmbedderUnavailable.
    """
    from pg_memoir_server import http_embed, runtimes  # numpy and more, which other commands don't need

    options: dict[str, Any] = {"threads": threads}
    if provider == "openai" or (provider == "auto" and endpoint):
        if not endpoint:
            raise EmbedderUnavailable("provider openai needs an endpoint, such as http://localhost:11434/v1")
        provider = "openai"
        options |= {"endpoint": endpoint, "api_key_env": api_key_env, "timeout_s": 60.0}
    try:
        http_embed.read_key(api_key_env)
        runtime = runtimes.load(model, provider, **options)
    except (RuntimeError, OSError, ValueError) as error:
        raise EmbedderUnavailable(str(error)) from error

    def embed(texts: list[str]) -> list[list[float]]:
        try:
            vectors: list[list[float]] = runtime.embed(texts).tolist()
        except http_embed.HttpEmbedError as error:
            raise EmbedderUnavailable(str(error)) from error
        return vectors

    return embed
