"""The inspector: pages a person looks at, under /inspect. Rendered here, without scripts; a part of the gateway."""

from .doors import routes

__all__ = ["routes"]
