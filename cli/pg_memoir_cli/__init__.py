"""The command pg-memoir, and what it is made of: imports of conversations, the worker outside the database."""

from .conversations import ConversationError
from .importing import Imported, import_conversations

__all__ = ["ConversationError", "Imported", "import_conversations"]
