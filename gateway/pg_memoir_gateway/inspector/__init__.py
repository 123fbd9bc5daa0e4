"""The inspector: pages a person looks at, under /inspect. Rendered here, without scripts; a part of the gateway."""

from .pages import routes

__all__ = ["routes"]
