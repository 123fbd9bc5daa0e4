"""Exact token counts without a network. Light to import; tables are loaded when first used and kept per process.

Tokenizers: 'o200k_base', 'cl100k_base' (tables carried by the bpe-openai package) and 'hf:/path/to/tokenizer.json' (any
Hugging Face tokenizer file). Text that looks like a special token counts as the plain text it is.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from . import embed_client, protocol

ENCODINGS = ("o200k_base", "cl100k_base")
_KEPT_FILES = 4  # Hugging Face tokenizers are some 10 MB each
_PIECE = 200_000  # characters of a text that a Hugging Face tokenizer is given at once

_counters: dict[str, Callable[[str], int]] = {}
_files: OrderedDict[tuple[Any, ...], Any] = OrderedDict()  # (path, modified, size) → tokenizer


class UnknownTokenizer(ValueError):
    """No such tokenizer, or what it needs isn't installed; the message says which."""


def count(texts: Sequence[str | None], tokenizer: str) -> list[int]:
    """Tokens of each text, 0 for None. Raises UnknownTokenizer."""
    counter = _encoding(tokenizer) if tokenizer in ENCODINGS else _hugging_face(tokenizer)
    return [0 if text is None else counter(text) for text in texts]


def count_shared(texts: Sequence[str | None], tokenizer: str, socket: str | None = None) -> list[int]:
    """As count(), by the model server at `socket` or the one that this process asks: the tables take 60 MB and 60 ms of
    every process that loads them. Without a server, and where it fails, they are loaded here.
    """
    path = None
    if tokenizer in ENCODINGS and not any(texts):
        return [0] * len(texts)
    if tokenizer in ENCODINGS and not is_loaded(tokenizer):
        path = embed_client.free_path(socket)
    if path and len(texts) <= protocol.MAX_TEXTS:
        try:
            counts = embed_client.count_tokens(path, tokenizer, [text or "" for text in texts])
        except embed_client.EmbedderError:
            pass
        else:
            return counts
    return count(texts, tokenizer)


def is_loaded(tokenizer: str) -> bool:
    """Whether this process has the tables of one of ENCODINGS."""
    return tokenizer in _counters


def available(tokenizer: str) -> bool:
    """Whether count() can serve this tokenizer here."""
    if tokenizer in ENCODINGS:
        return _has_bindings()
    try:
        count(["a"], tokenizer)
    except UnknownTokenizer:
        return False
    return True


def _encoding(name: str) -> Callable[[str], int]:
    if name not in _counters:
        try:
            _counters[name] = _bindings().tokenizer_for_encoding(name).count
        except ImportError as error:
            raise UnknownTokenizer(f"{name} needs the package bpe-openai: {error}") from None
    return _counters[name]


@functools.cache
def _has_bindings() -> bool:
    return importlib.util.find_spec("bpe_openai") is not None


def _bindings() -> Any:
    """The compiled part of bpe-openai, loaded alone: its Python layer parses all tables into dictionaries when
    imported, half a second and 65 MB in every backend that counts tokens."""
    name = "bpe_openai._bindings"
    if name not in sys.modules:
        package = importlib.util.find_spec("bpe_openai")
        found = package and importlib.machinery.PathFinder.find_spec(name, package.submodule_search_locations)
        if not found or not found.loader:
            raise ImportError("not installed")
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def _hugging_face(name: str) -> Callable[[str], int]:
    path = name.removeprefix("hf:")
    if path == name or not os.path.isabs(path):
        raise UnknownTokenizer(
            f"unknown tokenizer {name!r}: one of {', '.join(ENCODINGS)} or hf:/path/to/tokenizer.json"
        )
    try:
        info = os.stat(path)
    except OSError as error:
        raise UnknownTokenizer(f"can't read {path}: {error.strerror}") from None
    key = path, info.st_mtime_ns, info.st_size
    if key not in _files:
        _files[key] = _load_file(path)
        if len(_files) > _KEPT_FILES:
            _files.popitem(last=False)
    _files.move_to_end(key)
    tokenizer = _files[key]

    def counter(text: str) -> int:
        pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
        return sum(len(encoded) for encoded in tokenizer.encode_batch_fast(pieces, add_special_tokens=False))

    return counter


def _load_file(path: str) -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # no threads in a database backend
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UnknownTokenizer("hf: tokenizers need the package tokenizers") from None
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the library raises bare Exception
        raise UnknownTokenizer(f"{path} is not a tokenizer file: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # what looks special in a text is text
    return tokenizer
