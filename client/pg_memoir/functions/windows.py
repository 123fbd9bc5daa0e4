"""Tools of memory for models, objects, and the window of a session. How to read the definitions: call.py."""

# mypy: disable-error-code="empty-body"

from collections.abc import Sequence
from typing import Any, Literal

from ..arguments import Id, List, Object, Text
from ..call import rows, value


class Windows:
    """Tools of memory for models, objects, and the window of a session."""

    @value
    def memory_tools(
        self,
        format: Literal["openai", "responses", "anthropic", "mcp"] | None = None,
        *,
        names: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Definitions of the tools by which a model keeps its own memory, to send with a request; `format` is 'openai'
        (chat completions) unless given. `names`: only these; memory_query and memory_update are the fewest that do
        everything."""

    @value
    def select_tools(self, user: str, session: str, tools: List, query: Text | None = None) -> dict[str, Any]:
        """Leaves out of `tools` (definitions for OpenAI or Anthropic) what the session neither called nor named, and
        `query` does not name: {"tools": what to send, at its end `load_tools`, which names the others, "left_out":
        their names}. Raises InvalidArgumentError."""

    @value
    def memory_resources(self) -> list[dict[str, Any]]:
        """The resources of MCP, as descriptors: `uri`, `template`, `name`, `title`, `description`, `fields`,
        `tools`."""

    @value
    def call_memory_tool(self, user: str, session: str | None, name: Text, arguments: Object) -> str:
        """Runs a model's call of one of `memory_tools` and returns text for the model; what the model can mend is
        answered as 'Error: …'. Without a session there is nobody to quote. What it writes is the agent's word, unless
        it quotes the user's own turn of this session. Raises UnknownSessionError, NotAuthorizedError."""

    @value
    def memory_query(
        self,
        user: str,
        session: str,
        question: Text,
        *,
        max_tokens: int | None = None,
        scope: Literal["session", "user"] | None = None,
        answer: bool | None = None,
    ) -> dict[str, Any]:
        """The passages that best answer a question from all that a session has, whatever of it is shown (scope 'user':
        from all that is known of the user): 'text' for a model, 'tokens', 'passages'. `max_tokens` is 600 unless given.
        Where a language model is configured for jobs it is asked too unless `answer` is False: 'answer' then has the
        'id' for query_answer. Raises UnknownSessionError, InvalidArgumentError."""

    @value
    def query_answer(self, user: str, session: str, query_id: Id) -> dict[str, Any]:
        """What the language model answered to a question of memory_query: 'state' is 'waiting', 'answered',
        'unanswered' (the passages don't say) or 'failed'; then 'text', 'tokens', 'made_by'. Raises UnknownMemoryError
        once the question is gone: after a day, or with what its passages show."""

    @value
    def memory_restore(
        self, user: str, session: str, object: str, *, lines: str | None = None, reason: Text | None = None
    ) -> str:
        """The full text of an object that is shown shortened, byte for byte, or `lines` of it ('40-80'); it is pinned
        for a while. `object`: its name as its form says it. Raises UnknownMemoryError, UnknownSessionError,
        InvalidArgumentError."""

    @value
    def memory_release(self, user: str, session: str, objects: Sequence[str], *, reason: Text | None = None) -> int:
        """Objects that need not be shown any more, from the next moment on; returns how many. Raises
        UnknownMemoryError, UnknownSessionError, InvalidArgumentError."""

    @value
    def session_pressure(self, user: str, session: str, *, budget: int | None = None) -> dict[str, Any]:
        """How full the window of a session is, in which zone, what is due, what moved, faults by type. Raises
        UnknownSessionError."""

    @rows
    def list_objects(
        self, user: str, session: str, *, query: Text | None = None, limit: int | None = None
    ) -> list[dict[str, Any]]:
        """The objects of a session, newest first: name, line, how each is shown. `query`: those whose line has it.
        Raises UnknownSessionError."""

    @rows
    def list_events(
        self, user: str, session: str | None = None, *, kinds: Sequence[str] | None = None, limit: int | None = None
    ) -> list[dict[str, Any]]:
        """The log of what happened to objects and memories, newest first, of a session or of all: kind `admission`
        (with its score), `move` (from which fidelity to which) or `fault` (with its question and answer). Raises
        UnknownSessionError, InvalidArgumentError."""

    @rows
    def window_forms(
        self,
        user: str,
        session: str,
        *,
        budget: int | None = None,
        changed: bool | None = None,
        fixed: int | None = None,
    ) -> list[dict[str, Any]]:
        """The forms that stand for parts of the session's messages now, for a list that its client keeps. They are the
        same bytes until the next moment. `changed`: the client changed its past itself. `fixed`: tokens of the system
        prompt and the tools. Raises UnknownSessionError, InvalidArgumentError."""
