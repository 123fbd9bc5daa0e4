"""The version of this package. Stdlib only."""

from __future__ import annotations

import importlib.metadata


def version(package: str = "pg-memoir-server") -> str | None:
    """The installed version of a package; None if it isn't installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
