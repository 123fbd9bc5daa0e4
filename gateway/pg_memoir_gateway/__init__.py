"""The gateway: a process between agents and their model that remembers what passes, and manages what is sent.

`create_app(config)` makes the ASGI application; `python -m pg_memoir_gateway` and `pg-memoir gateway` run it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import create_app
    from .config import Config, ConfigError, load

__all__ = ["Config", "ConfigError", "create_app", "load"]


def __getattr__(name: str) -> Any:
    """Imports these when they are asked for, because the hooks of agents need `words` alone, and fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import app, config

    return app.create_app if name == "create_app" else getattr(config, name)
