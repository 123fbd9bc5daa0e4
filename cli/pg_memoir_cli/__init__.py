"""The command pg-memoir, and what it is made of: imports of conversations, the worker outside the database."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conversations import ConversationError
    from .importing import Imported, import_conversations

__all__ = ["ConversationError", "Imported", "import_conversations"]


def __getattr__(name: str) -> Any:
    """Imports these when they are asked for, because a hook of an agent must start fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import conversations, importing

    return getattr(conversations if name == "ConversationError" else importing, name)
