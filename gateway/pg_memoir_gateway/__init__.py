"""The gateway: a process between agents and their model that remembers what passes, and manages what is sent.

`create_app(config)` makes the ASGI application; `python -m pg_memoir_gateway` and `pg-memoir gateway` run it.
"""

from .app import create_app
from .config import Config, ConfigError, load

__all__ = ["Config", "ConfigError", "create_app", "load"]
