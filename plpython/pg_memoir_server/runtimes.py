"""Embedding runtimes: text in, L2-normalised float32 vectors out.

`load(...)` picks one: `onnx` (light, BERT architectures), `sentence-transformers` (general, the reference), `openai`
(any server with an OpenAI-compatible /v1/embeddings). None of them ever asks a model hub.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from . import bert_onnx
from .models import DEFAULT_MODEL, model_folder

# The first tokens are all a model reads; cutting before tokenization keeps a megabyte from costing a second.
_CHARACTERS_PER_TOKEN = 128
# Padded tokens per call of the model: larger batches gain nothing on one thread and cost memory.
_BATCH_TOKENS = 1024


class RuntimeUnavailable(RuntimeError):
    """The model or a library it needs isn't there; the message says which."""


class Runtime(Protocol):
    """One loaded model."""

    name: str  # 'onnx', 'sentence-transformers' or 'openai'
    max_length: int  # tokens read of a text; 0 where the server decides
    concurrent: bool  # whether threads may call embed() at the same time

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """n texts → float32 (n, dimension), rows of length 1."""
        ...


def default_cache() -> Path:
    """Folder for built graphs: $PG_MEMOIR_CACHE, else pg_memoir in the user's cache folder."""
    given = os.environ.get("PG_MEMOIR_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pg_memoir")


def batches(lengths: Sequence[int], limit: int, at_most: int = 64) -> list[list[int]]:
    """Groups indices of similar length, shortest first: count × longest of each group stays within `limit`, count
    within `at_most`; a text longer than `limit` is a group of its own."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        group = groups[-1] if groups else None
        if group is None or len(group) >= at_most or (len(group) + 1) * lengths[index] > limit:
            groups.append([index])
        else:
            group.append(index)
    return groups


class OnnxRuntime:
    """BERT encoders in onnxruntime, from a graph built of model.safetensors."""

    name = "onnx"
    concurrent = True

    def __init__(self, folder: Path, cache: Path | None = None, threads: int = 1):
        shape = bert_onnx.read_shape(folder)
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # builds from 1.29 on report their use over the network
        try:
            import onnxruntime
            from tokenizers import Tokenizer

            graph = bert_onnx.built(folder, cache or default_cache())
        except ImportError as error:
            raise RuntimeUnavailable(f"runtime onnx needs {error.name}") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False  # an arena never gives back what one large batch took
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(shape.max_length)
        self.max_length = shape.max_length
        self.dimension = shape.hidden

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        cut = self.max_length * _CHARACTERS_PER_TOKEN
        encoded = [e.ids for e in self._tokenizer.encode_batch_fast([text[:cut] for text in texts])]
        out = np.empty((len(texts), self.dimension), np.float32)
        for group in batches([len(ids) for ids in encoded], _BATCH_TOKENS):
            longest = max(len(encoded[i]) for i in group)
            ids = np.zeros((len(group), longest), np.int64)
            mask = np.zeros((len(group), longest), np.int64)
            for row, index in enumerate(group):
                ids[row, : len(encoded[index])] = encoded[index]
                mask[row, : len(encoded[index])] = 1
            out[group] = self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        return out


class SentenceTransformersRuntime:
    """Any model sentence-transformers can load from this machine, on the CPU."""

    name = "sentence-transformers"
    concurrent = False  # its tokenizers can't be shared by threads

    def __init__(self, source: str, threads: int = 1):
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise RuntimeUnavailable(f"runtime sentence-transformers needs {error.name}") from error
        torch.set_num_threads(threads)
        folder = model_folder(source)
        try:
            self._model = SentenceTransformer(str(folder or source), device="cpu")
        except (OSError, ValueError) as error:
            raise RuntimeUnavailable(f"model {source!r} is not on this machine: {error}") from error
        self.max_length = int(self._model.max_seq_length or 512)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        cut = self.max_length * _CHARACTERS_PER_TOKEN
        out = self._model.encode([text[:cut] for text in texts], normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(out, np.float32)


class OpenAIRuntime:
    """An OpenAI-compatible embeddings endpoint."""

    name = "openai"
    concurrent = True
    max_length = 0

    def __init__(self, endpoint: str, model: str, **options: Any):
        from .http_embed import HttpEmbedder

        self._http = HttpEmbedder(endpoint, model, **options)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.array(self._http.embed(list(texts)), np.float32).reshape(len(texts), -1)


def _multilingual(english: OnnxRuntime) -> Runtime:
    """Return the runtime with other languages, without them where what they need is missing."""
    from .multilingual import Multilingual

    try:
        return Multilingual(english)
    except RuntimeUnavailable as error:
        logging.getLogger("pg_memoir.embedder").warning("vectors are those of English: %s", error)
        return english


# Models that threads may share, while anybody holds them.
_loaded: weakref.WeakValueDictionary[str, Runtime] = weakref.WeakValueDictionary()


def load_shared(source: str) -> Runtime:
    """Return a model that this process has loaded and that threads may share, else load it with `load`."""
    return _loaded.get(source) or load(source)


def load(source: str, runtime: str = "auto", cache: Path | None = None, threads: int = 1, **http: Any) -> Runtime:
    """Loads a model.

    `source`: a packaged model's name (all-MiniLM-L6-v2), an absolute path, what sentence-transformers finds in its own
    cache, or the model's name at an endpoint. `auto` takes onnx where it knows the architecture. `http`: endpoint,
    api_key_env, api_key_file, timeout_s, retries, dimensions, for runtime 'openai'.
    Raises RuntimeUnavailable, UnsupportedModel.
    """
    if runtime == "openai":
        return OpenAIRuntime(http.pop("endpoint"), source, **http)
    if runtime == "sentence-transformers":
        return SentenceTransformersRuntime(source, threads)
    if runtime not in ("auto", "onnx"):
        raise ValueError(f"unknown runtime {runtime!r}: auto, onnx, sentence-transformers or openai")
    folder = model_folder(source)
    if folder is None and runtime == "onnx":
        raise RuntimeUnavailable(f"model {source!r} is not on this machine")
    if folder is not None:
        try:
            made = OnnxRuntime(folder, cache, threads)
            _loaded[source] = found = _multilingual(made) if source == DEFAULT_MODEL else made
            return found
        except (bert_onnx.UnsupportedModel, RuntimeUnavailable):
            if runtime == "onnx":
                raise
    return SentenceTransformersRuntime(source, threads)
