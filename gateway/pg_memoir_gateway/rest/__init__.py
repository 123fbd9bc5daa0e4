"""REST: a part of the gateway. Applications in any language reach what the client's functions do.

A request goes through the guard, finds its operation (operations.py), says by its key whose it is, and is checked
against the types of the function that it calls (routes.py, shapes.py). The answer is the function's, an error is a
problem (problems.py). /openapi.json (document.py) is made of the same types.
"""

from .document import make_document
from .routes import routes

__all__ = ["make_document", "routes"]
