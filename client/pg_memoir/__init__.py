"""pg_memoir: memory for AI agents that lives in PostgreSQL. This package only calls its functions.

`Memoir` (sync) and `AsyncMemoir` (async) are the client; `from_openai`, `from_responses`, `from_anthropic` and
`tool_result` turn what a model's SDK answers into messages to persist; `Memoir.wrap` does it for a whole client. The
command `pg-memoir` is another package, pg_memoir_cli.
"""

from .aio import AsyncMemoir, AsyncSession
from .client import Memoir, Session
from .errors import MemoirError
from .extras.plans import Restored
from .extras.providers import Reply, ToolCall, from_anthropic, from_openai, from_responses, tool_result
from .extras.shapes import from_anthropic_messages, from_input_items, to_input_items
from .functions.spaces import in_space
from .types import AnthropicRequest, Considered, Context, Hit, Match, Message, Persisted, PoolLoad, Remembered, Usage

__version__ = "0.1.0"

__all__ = [
    "AnthropicRequest",
    "AsyncMemoir",
    "AsyncSession",
    "Considered",
    "Context",
    "Hit",
    "Match",
    "Memoir",
    "MemoirError",
    "Message",
    "Persisted",
    "PoolLoad",
    "Remembered",
    "Reply",
    "Restored",
    "Session",
    "ToolCall",
    "Usage",
    "from_anthropic",
    "from_anthropic_messages",
    "from_input_items",
    "from_openai",
    "from_responses",
    "in_space",
    "to_input_items",
    "tool_result",
]
