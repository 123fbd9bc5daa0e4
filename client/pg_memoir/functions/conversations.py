"""Sessions and their turns, and the list to send to a model. How to read the definitions: call.py."""

# mypy: disable-error-code="empty-body"

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from ..arguments import Entries, Id, Items, List, Messages, Object, Text, Vector, When
from ..call import Rows, calls, like, rows, value, values
from ..types import (
    Actor,
    AnthropicRequest,
    CapturedCall,
    CapturedPart,
    Compiled,
    CompiledItem,
    Considered,
    Context,
    Episode,
    Item,
    Message,
    Persisted,
    SessionRow,
    SessionStatus,
    Speaker,
    Task,
)


def _anthropic_request(found: Rows) -> AnthropicRequest:
    answer = found[0]["result"]
    request: AnthropicRequest = {"messages": answer["messages"]}
    if answer.get("system"):
        request["system"] = answer["system"]
    return request


class Conversations:
    """Sessions and their turns, and the list to send to a model."""

    @value
    def open_session(
        self,
        user: str,
        session: str,
        *,
        model: str | None = None,
        system_prompt: Text | None = None,
        project: str | None = None,
        task: Task | None = None,
        parent: str | None = None,
        settings: Object | None = None,
        metadata: Object | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        context_window: int | None = None,
        response_tokens: int | None = None,
    ) -> UUID:
        """Opens a session, or updates what is given of an open one; returns its id.

        `model`: the chat model, which decides window, response reserve and tokenizer (one that is not registered has
        those of "default", which `context` and `persist_turn` warn of); `context_window` and `response_tokens`: this
        session's own. `parent`: a session of the same user whose local memories count here too. `temperature` (0 to 2),
        `top_p` (0 to 1): how to call the model; `context` and `session_info` return them. Raises InvalidArgumentError,
        UnknownSessionError, SessionClosedError, InvalidSettingError.
        """

    @value
    def persist_turn(
        self,
        user: str,
        session: str,
        messages: Messages,
        *,
        usage: Object | None = None,
        key: str | None = None,
        actor: Actor | None = None,
        metadata: Object | None = None,
    ) -> Persisted:
        """Appends one whole exchange, or any run of messages as the OpenAI chat API has them, all or nothing.

        `usage`: as Usage. `key`: idempotency key; the same key and messages return the first result. `actor`: who acts
        ('person', 'agent', 'tool'), for service logins. Raises InvalidMessageError, ToolCallMismatchError (a call is
        left unanswered: use `append`), TextTooLargeError, InvalidTextError, KeyReusedError, SessionClosedError.
        """

    @value
    @calls("append_messages")
    @like(persist_turn)
    def append(self) -> Persisted:
        """Like persist_turn, but tool calls may stay open: for the steps of an agent loop, followed by a compile
        without a query once their results are appended too."""

    @rows
    def list_sessions(
        self,
        user: str,
        *,
        project: str | None = None,
        status: SessionStatus | None = None,
        after_session: str | None = None,
        limit: int | None = None,
        after: When | None = None,
        before: When | None = None,
    ) -> list[SessionRow]:
        """A user's sessions, newest first, `limit` (100) a page; `after_session`: the last of the page before.
        `after`, `before`: when the person first spoke there. Raises UnknownSessionError."""

    @rows
    def session_outline(self, user: str, session: str, query: Text | None = None) -> list[Episode]:
        """The episodes of a long session, each with its theme; with `query` those in which a recall finds something,
        best first. Raises UnknownSessionError."""

    @rows
    def list_speakers(self, user: str, *, session: str | None = None) -> list[Speaker]:
        """Who spoke in a user's sessions, or in one, those who said most first. Raises UnknownSessionError."""

    @values
    def history(
        self, user: str, session: str, *, from_turn: int | None = None, to_turn: int | None = None
    ) -> list[Message]:
        """The messages as they were sent, each with its `turn_index`; turns `from_turn` to `to_turn`, both included."""

    @value
    def close_session(self, user: str, session: str) -> None:
        """Closes a session; it takes no more turns but can still be recalled. Raises UnknownSessionError."""

    @value
    def pause_session(self, user: str, session: str) -> None:
        """Lets a session rest: it is not compacted and does not expire; its next turn, or open_session, resumes it.
        Raises UnknownSessionError, SessionClosedError."""

    @value
    def branch_session(self, user: str, session: str, new_session: str, *, at_turn: int | None = None) -> UUID:
        """Opens `new_session` with the first `at_turn` turns of `session` (all, if None) shared by reference. Raises
        UnknownSessionError, InvalidArgumentError."""

    @value
    def session_info(self, user: str, session: str) -> dict[str, Any]:
        """Settings and counters of a session. Raises UnknownSessionError."""

    @value
    def compile_context(
        self,
        user: str,
        session: str,
        query: Text | None = None,
        *,
        budget: int | None = None,
        memory_budget: int | None = None,
        task: Task | None = None,
        tools: List | None = None,
        query_embedding: Vector | None = None,
        query_parts: List | None = None,
        as_of: When | None = None,
        valid_at: When | None = None,
        after_turn: str | None = None,
    ) -> list[Any]:
        """The message list to send to the model, in OpenAI's shape, at most `budget` tokens: a list of dicts (typed
        Any, so that it is what each SDK declares its `messages` to be).

        `query`: the new user message, not yet persisted; None continues the open exchange after its tool results.
        `budget`: tokens of the whole list, by default the model's window less its response reserve. `memory_budget`:
        tokens of recall. `tools`: the definitions that go with the request, as they count too. `query_embedding`: the
        query's vector, if you have it. `query_parts`: multimodal content parts. `as_of`: what was known then;
        `valid_at`: what was true then. `after_turn`: a turn mark the server must have reached (replicas). Raises
        BudgetTooSmallError, CostBudgetExceededError, NothingToContinueError, ReplicaBehindError,
        InvalidArgumentError, DimensionMismatchError.
        """

    @value
    @calls("compile_context", format="anthropic", read=_anthropic_request)
    @like(compile_context)
    def compile_anthropic(self) -> AnthropicRequest:
        """The same list for Anthropic: `client.messages.create(model=…, max_tokens=…, **request)`, with cache_control
        where the stable prefix ends. Arguments and errors as compile_context."""

    @value
    def context(
        self,
        user: str,
        session: str,
        query: Text | None = None,
        *,
        budget: int | None = None,
        memory_budget: int | None = None,
        task: Task | None = None,
        tools: List | None = None,
        query_embedding: Vector | None = None,
        query_parts: List | None = None,
        as_of: When | None = None,
        valid_at: When | None = None,
        after_turn: str | None = None,
        format: Literal["openai", "anthropic"] = "openai",
    ) -> Context:
        """compile_context with everything known about the list beside it: tokens, budget, prefix hash, item ids, arms,
        warnings (see Context). `format`: 'openai' or 'anthropic', the shape of its `messages`."""

    @rows
    @calls("explain_context")
    @like(compile_context)
    def explain(self) -> list[Considered]:
        """Every item a compile with these arguments considers: score parts, ranks, tokens, position or reason left
        out."""

    @rows
    def list_compiles(self, user: str, session: str, *, limit: int | None = None) -> list[Compiled]:
        """A session's window over time: its compiles, newest first, at most `limit` (100), with the tokens of the parts
        of each. Raises UnknownSessionError."""

    @rows
    def explain_compile(self, user: str, compile: Id) -> list[CompiledItem]:
        """A compile that was made, taken apart: what its recall considered, and what it says today. Raises
        UnknownMemoryError."""

    @value
    def report_context(self, user: str, report: Object) -> bool:
        """Tells the primary of a compile that a standby made, so that its statistics count: `report` is "report" of
        what context returned there. False when it is known already. Raises InvalidArgumentError."""

    @value
    def recall_beside(
        self,
        user: str,
        session: str,
        query: Text,
        *,
        memory_budget: int | None = None,
        shown_from: int | None = None,
        profile_version: int | None = None,
        query_embedding: Vector | None = None,
        said: Text | None = None,
    ) -> dict[str, Any]:
        """What to set beside the newest message of a list that the application keeps itself: `text` (profile and
        recall, fenced, or empty), `items`, `profile_version`, `tokens`, `compile_id`, `warnings`, `weak`.
        `shown_from`: the first turn of the session that the list still shows. `said`: what it says beside these,
        which is not repeated, nor is `profile_version`, the one it shows already. Raises InvalidArgumentError,
        DimensionMismatchError."""

    @rows
    def known_messages(self, user: str, chains: Sequence[str]) -> list[dict[str, Any]]:
        """Which of these messages, each named by a hash over it and all before it, were noted: `chain`, `session`,
        `turn_count`, `added`."""

    @value
    def note_messages(self, user: str, session: str, messages: List) -> int:
        """Notes messages of a list that the application keeps, for known_messages: objects with `chain`, `turns` and,
        where anything was sent with them, `added` and `items`. Raises UnknownSessionError, InvalidArgumentError."""

    @value
    def record_exchange(self, user: str, session: str, messages: List, *, turns: int = 0) -> dict[str, Any]:
        """Appends messages of a list that the application keeps, in one transaction, and notes them for
        known_messages. An entry has `message`, `key`, `actor`, `usage` and `notes` (`chain`, `added`, `items`);
        `turns`: of the session before. Returns `turns` (after each entry) and `refused` (`code` and `error` of each
        message that is not stored). Raises UnknownSessionError, SessionClosedError, InvalidArgumentError."""

    @value
    def set_working_memory(
        self, user: str, session: str, key: str, content: Text | None, *, minutes: int | None = None
    ) -> None:
        """Keeps a note of the session's present state under `key` for `minutes`; None deletes it."""

    @value
    def summarize_session(self, user: str, session: str) -> dict[str, Any]:
        """A summary of all that was said in a session: `summary`, `through` (its last turn), `compaction_id`, sizes.
        Recall finds it; what compile shows does not change. Raises UnknownSessionError."""

    @value
    def compact_session(self, user: str, session: str, *, target_tokens: int | None = None) -> dict[str, Any]:
        """Puts summaries in the place of a session's oldest exchanges until about `target_tokens` of turns stay shown;
        the turns remain and are recalled. Returns `rows`, `tokens`, `summary_tokens`, `through`, `summary`."""

    @value
    def undo_compaction(self, user: str, session: str, compaction: Id) -> dict[str, Any]:
        """Shows the turns of a compaction again. Returns `undone`, `through`, `summary`. Raises UnknownSessionError,
        UnknownMemoryError."""

    @rows
    def list_compactions(self, user: str, session: str) -> list[dict[str, Any]]:
        """All compactions of a session with range, level, summary, sizes, and whether each `counts` now."""

    @value
    def pin_turns(
        self,
        user: str,
        session: str,
        from_turn: int,
        to_turn: int | None = None,
        *,
        turns: int | None = None,
        reason: Text | None = None,
    ) -> dict[str, Any]:
        """Keeps turns `from_turn` to `to_turn` (None: that one) out of compaction, for the session's next `turns` turns
        or, None, until unpin_turns. Raises UnknownSessionError, InvalidArgumentError."""

    @value
    def unpin_turns(self, user: str, session: str, from_turn: int | None = None, to_turn: int | None = None) -> int:
        """Ends the pins that touch these turns (None: all); returns how many. Raises UnknownSessionError."""

    @value
    def retract_turns(
        self, user: str, session: str, from_turn: int, to_turn: int | None = None, *, reason: Text | None = None
    ) -> dict[str, Any]:
        """Takes turns back (None: that one), tool calls with their results: they are no longer shown, recalled or
        learnt from; `history` has them, marked. Returns `turns`, `memories` (invalidated). Raises
        UnknownSessionError, InvalidArgumentError."""

    @value
    def append_items(
        self,
        user: str,
        session: str,
        items: Items,
        *,
        documents: Entries | None = None,
        after_item: int | None = None,
    ) -> dict[str, Any]:
        """Appends a framework's items as they came, all or nothing: dicts with `item`, `messages` (what it says, as for
        persist_turn) and `part_of` (what ties calls to their results). `documents`: those that go with them, as
        put_documents takes them. `after_item`: the last `item_no` that you know (-1: none); if there are later ones,
        ChangedElsewhereError is raised. Returns `from_item`, `items`, `turns`. Raises what persist_turn raises."""

    @rows
    @calls("list_items", exact=["item", "part_of"])
    def list_items(
        self, user: str, session: str, *, limit: int | None = None, with_retracted: bool | None = None
    ) -> list[Item]:
        """A session's items as they came, oldest first; `limit`: the newest so many."""

    @values
    @calls("retract_items", exact=["result"])
    def retract_items(self, user: str, session: str, count: int | None = None) -> list[dict[str, Any]]:
        """Takes back the newest `count` items (None: all), with the turns that tell them, and returns them."""

    @value
    def count_tokens(self, text: Text, *, model: str | None = None) -> int:
        """Tokens of `text` for a chat model (the default model's, if None), as compile counts them."""

    @value
    def capture_call(
        self,
        user: str,
        session: str,
        request: bytes,
        *,
        response: bytes | None = None,
        provider: str | None = None,
        model: str | None = None,
        status: int | None = None,
        latency_ms: int | None = None,
        started_at: When | None = None,
        request_headers: Object | None = None,
        response_headers: Object | None = None,
        events: Sequence[bytes] | None = None,
        event_times: Sequence[When] | None = None,
        metadata: Object | None = None,
    ) -> UUID:
        """Stores a provider call as it went over the wire, replayable byte for byte; returns its id. `events`: the
        stream's events in order, `event_times`: when each arrived."""

    @rows
    def list_calls(
        self, user: str, session: str | None = None, *, limit: int | None = None, after: Id | None = None
    ) -> list[CapturedCall]:
        """Captured calls of a user or a session, the newest first, `limit` (100) at a time behind the call `after`.
        Raises UnknownMemoryError, UnknownSessionError."""

    @rows
    def read_call(self, user: str, call: Id) -> list[CapturedPart]:
        """The parts of a captured call, in order. Raises UnknownMemoryError."""
