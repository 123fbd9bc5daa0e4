"""What is known beyond the turns: stored, searched, corrected, judged. How to read the definitions: call.py."""

# mypy: disable-error-code="empty-body"

from collections.abc import Sequence
from typing import Any, Literal

from ..arguments import Id, Object, Text, Vector, When
from ..call import rows, value, values
from ..types import (
    Actor,
    Alias,
    Change,
    Corrected,
    Edge,
    Hit,
    Importance,
    IndexHit,
    Judgement,
    Lifted,
    Match,
    Memory,
    MemoryState,
    Relation,
    Remembered,
    Retracted,
    Sensitivity,
    State,
    TimelineLine,
    Tombstone,
    Validated,
)


class Memories:
    """What is known beyond the turns: stored, searched, corrected, judged."""

    @value
    def remember(
        self,
        user: str,
        content: Text,
        *,
        session: str | None = None,
        type: str | None = None,
        category: Text | None = None,
        importance: Importance | None = None,
        project: str | None = None,
        actor: Actor | None = None,
        provenance: str | None = None,
        confidence: float | None = None,
        valid_from: When | None = None,
        valid_to: When | None = None,
        tags: Sequence[Text] | None = None,
        slot: Text | None = None,
        slot_value: Text | None = None,
        aliases: Sequence[Text] | None = None,
        sensitivity: Sensitivity | None = None,
        source_turns: Sequence[int] | None = None,
        source_tool: Text | None = None,
        source_key: Text | None = None,
        metadata: Object | None = None,
        embedding: Vector | None = None,
        key: str | None = None,
        created_at: When | None = None,
        embeddable: bool | None = None,
    ) -> Remembered:
        """Stores one memory, unless it is a duplicate, outranked, or forgotten (see `outcome`).

        `session`: where it was said; without one it is global. `slot`, `slot_value`: an attribute that has one value at
        a time ("home city", "Oslo"): a new value supersedes the old. `source_turns`: turn indexes of `session` it comes
        from. `confidence` in [0, 1]. `sensitivity`: what looks like a key, a card or an account is secret whatever it
        says. `embeddable`: False keeps it from embedding models. `key`: idempotency key. Raises UnknownSessionError,
        InvalidArgumentError, InvalidTextError, TextTooLargeError, TombstoneError, DimensionMismatchError,
        KeyReusedError.
        """

    @rows
    def recall(
        self,
        user: str,
        query: Text,
        *,
        session: str | None = None,
        limit: int | None = None,
        types: Sequence[str] | None = None,
        tags: Sequence[Text] | None = None,
        project: str | None = None,
        kinds: Sequence[Literal["memory", "turn", "summary"]] | None = None,
        after: When | None = None,
        before: When | None = None,
        query_embedding: Vector | None = None,
        as_of: When | None = None,
        valid_at: When | None = None,
        category: Text | None = None,
        where: Object | None = None,
        spaces: str | None = None,
    ) -> list[Hit]:
        """Searches memories, old turns and summaries by words and vector, best first; at most `limit` (10).

        `session`: only what belongs to it. `types`, `tags`, `category`, `project`: only such memories, all of them,
        those that don't match the query last. `after`, `before`: when it was said. `as_of`: what was known then;
        `valid_at`: what was true then. `where`: on metadata, {"source": "jira", "year": {"gt": 2024}}; operators are
        eq, in, gt, lt and exists. `spaces`: shared spaces beside the user's own: "*", names divided by commas, "" for
        none (default: the setting spaces).
        """

    @rows
    def memory_index(
        self,
        user: str,
        query: Text,
        *,
        session: str | None = None,
        limit: int | None = None,
        types: Sequence[str] | None = None,
        tags: Sequence[Text] | None = None,
        category: Text | None = None,
        project: str | None = None,
        kinds: Sequence[Literal["memory", "turn", "summary"]] | None = None,
        after: When | None = None,
        before: When | None = None,
        query_embedding: Vector | None = None,
        where: Object | None = None,
    ) -> list[IndexHit]:
        """What recall finds, each hit on one line of at most 120 characters; at most `limit` (20)."""

    @rows
    def memory_timeline(
        self,
        user: str,
        id: Id | None = None,
        *,
        lines_before: int | None = None,
        lines_after: int | None = None,
        query: Text | None = None,
        window: Literal["1h", "24h", "7d"] | None = None,
    ) -> list[TimelineLine]:
        """Lists the surroundings of a memory, turn or summary, or of the best hit of `query`: `lines_before` and
        `lines_after` (10) turns of its session and the memories made of them, or the memories around it in time.
        `window`: instead turns and memories within that time of it, in any session. Raises UnknownMemoryError."""

    @values
    def memory_get(self, user: str, ids: Sequence[Id]) -> list[dict[str, Any]]:
        """1 to 100 memories, turns and summaries whole, each with `id` and `kind`; no row for what is unknown."""

    @value
    def memory_stats(self, user: str) -> dict[str, Any]:
        """A user in numbers: sessions, turns, tokens, costs (microcents), memories by state, tier, type and project."""

    @rows
    def memory_graph(self, user: str, memory: Id, *, hops: int | None = None, limit: int | None = None) -> list[Edge]:
        """The relations of a memory and, up to `hops` (2) steps away, of those it is tied to; at most `limit` (200).
        Raises UnknownMemoryError."""

    @rows
    def list_memories(
        self,
        user: str,
        *,
        states: Sequence[State] | None = None,
        types: Sequence[str] | None = None,
        tags: Sequence[Text] | None = None,
        category: Text | None = None,
        project: str | None = None,
        session: str | None = None,
        after_memory: Id | None = None,
        limit: int | None = None,
        where: Object | None = None,
        after: When | None = None,
        before: When | None = None,
    ) -> list[Memory]:
        """What is known about a user, newest first, `limit` (100) a page; `after_memory`: the last id of the page
        before. `after`, `before`: when it was said. `states`: ['active'] unless given, [] for all. Raises
        UnknownSessionError, UnknownMemoryError."""

    @rows
    def match_memories(
        self,
        user: str,
        embedding: Vector,
        *,
        threshold: float | None = None,
        limit: int | None = None,
        project: str | None = None,
    ) -> list[Match]:
        """Memories whose cosine with `embedding` is at least `threshold` (0.7), nearest first; at most `limit` (10).
        Raises DimensionMismatchError."""

    @value
    def forget_about(self, user: str, query: Text, *, preview: bool | None = None) -> dict[str, Any]:
        """Forgets what a few words name ("my locker code"): the clauses that say it and the memories made of them.
        'outcome': forgotten, preview, unclear or nothing; 'turns', 'memories', 'change_id'. With `preview` it only
        tells what that would be. Raises InvalidArgumentError."""

    @rows
    def list_changes(
        self, user: str, *, undone: bool | None = None, after_change: Id | None = None, limit: int | None = None
    ) -> list[Change]:
        """What turns changed of what was said before, or asked to forget, newest first, `limit` (100) a page; with
        `undone` those taken back as well; `after_change`: the last id of the page before. Raises UnknownMemoryError."""

    @value
    def undo_change(self, user: str, change: Id) -> dict[str, Any]:
        """Takes back one of `list_changes`: 'change_id', 'restored' (memories), 'returned_turns'. Raises
        UnknownMemoryError."""

    @value
    def correct(
        self,
        user: str,
        memory: Id,
        content: Text,
        *,
        reason: Text | None = None,
        remainder: Text | None = None,
        valid_from: When | None = None,
        valid_to: When | None = None,
        slot_value: Text | None = None,
        session: str | None = None,
        source_turns: Sequence[int] | None = None,
        actor: Actor | None = None,
        embedding: Vector | None = None,
        key: str | None = None,
    ) -> Corrected:
        """Replaces a memory by what is right; the old text may not come back, and the turns it came from leave recall.

        `remainder`: the part of the old one that is still true, in words. `valid_from`, `valid_to`: the new value is
        true from or until then, the old one outside that time. `slot_value`: the new value of its slot. `session`,
        `source_turns`, `actor`: whose correction, as in remember. `key`: idempotency key. Raises UnknownMemoryError,
        TombstoneError, UnknownSessionError, InvalidArgumentError, TextTooLargeError, DimensionMismatchError,
        KeyReusedError.
        """

    @value
    def retract(
        self,
        user: str,
        memory: Id,
        *,
        reason: Text | None = None,
        valid_to: When | None = None,
        session: str | None = None,
        source_turns: Sequence[int] | None = None,
        actor: Actor | None = None,
    ) -> Retracted:
        """Takes a memory back without a replacement. `valid_to`: it was true until then. `session`, `source_turns`,
        `actor`: whose word, as in remember. Raises UnknownMemoryError, UnknownSessionError, NotAuthorizedError where
        the memory's authority is higher."""

    @value
    def forget(self, user: str, memory: Id, *, reason: Text | None = None) -> dict[str, Any]:
        """Takes a memory and what it came from out of recall and leaves a tombstone, so that it does not come back.
        Raises UnknownMemoryError."""

    @value
    def lift_tombstone(
        self,
        user: str,
        memory: Id | None = None,
        *,
        content: Text | None = None,
        slot: Text | None = None,
        reason: Text | None = None,
    ) -> Lifted:
        """Lets back what was rejected: by its memory, or by what it says (`content`, `slot`). Only for logins acting as
        a person. Raises UnknownMemoryError, NotAuthorizedError, InvalidArgumentError."""

    @value
    def validate(
        self, user: str, memory: Id, *, confidence: float | None = None, reason: Text | None = None
    ) -> Validated:
        """A person stands by a memory: it becomes their word and prevails over what it contradicts. Only for logins
        acting as a person. Raises UnknownMemoryError, NotAuthorizedError, InvalidArgumentError."""

    @value
    def relate(
        self,
        user: str,
        memory: Id,
        relation: Relation,
        other: Id,
        *,
        weight: float | None = None,
        metadata: Object | None = None,
    ) -> bool:
        """Says what one memory is to another; True if that is new. 'supersedes' makes it so. Raises UnknownMemoryError,
        InvalidArgumentError, NotAuthorizedError."""

    @value
    def pin(
        self, user: str, session: str, memory: Id, *, turns: int | None = None, reason: Text | None = None
    ) -> dict[str, Any]:
        """Pins a memory in a session, for its next `turns` turns or, None, until unpin. Raises UnknownMemoryError,
        UnknownSessionError, InvalidArgumentError."""

    @value
    def unpin(self, user: str, session: str, memory: Id) -> bool:
        """Ends a memory's pin in a session; True if there was one. Raises UnknownMemoryError, UnknownSessionError."""

    @value
    def profile(self, user: str) -> dict[str, Any]:
        """What is known about the user in any session: `version` (0: nothing yet), `content`, `memory_ids`."""

    @value
    def undo_merge(self, user: str, memory: Id) -> dict[str, Any]:
        """Takes back that a memory was dropped as a near duplicate of another (`merged_into`): it stands again if
        `restored`, and the two stay apart. Raises UnknownMemoryError."""

    @value
    def undo_consolidation(self, user: str, memory: Id) -> dict[str, Any]:
        """Takes a consolidated memory back: the memories it was made of stand again (`restored`). Raises
        UnknownMemoryError."""

    @value
    def extract_session(self, user: str, session: str, *, limit: int | None = None) -> dict[str, Any]:
        """Makes memories of what was said in at most `limit` turns that no job has reached yet, and returns counts:
        "turns", "left", "stored", "duplicate", "refused_tombstone", "not_admitted". Raises UnknownSessionError."""

    @rows
    def memory_history(self, user: str, memory: Id) -> list[MemoryState]:
        """The states of a memory, of what it superseded and what superseded it, in order: when, why, by whom.
        Raises UnknownMemoryError."""

    @rows
    def list_tombstones(self, user: str, *, lifted: bool | None = None) -> list[Tombstone]:
        """What may not come back, newest first; with `lifted`, what was lifted as well."""

    @rows
    def list_aliases(self, user: str) -> list[Alias]:
        """What the user's things are called, too: given with `remember`, said in a turn or a memory, or a phrase by its
        initials."""

    @rows
    def list_judgements(self, user: str, memory: Id | None = None, *, limit: int | None = None) -> list[Judgement]:
        """What was decided about conflicts among memories (or of one), newest first, at most `limit` (100). Raises
        UnknownMemoryError."""

    @value
    def credit_recall(self, user: str, compile: Id, used: Sequence[Id]) -> int:
        """Says which items of a recall the answer used: `compile` is "compile_id" and `used` are "items" of what
        `context` returned, [] for none. Returns how many of them that compile had considered. What learn_weights learns
        from. Raises UnknownMemoryError."""

    @value
    def learn_admission(
        self, user: str, *, apply: bool | None = None, least: int | None = None, prior: float | None = None
    ) -> dict[str, Any]:
        """Learns `admission_weights` from what recalls showed and answers used: 'old', 'new', 'held_out', 'applied' as
        learn_weights has them. With `apply` they become the user's own setting, if they gained. Raises
        TooLittleEvidenceError, InvalidArgumentError, NotAuthorizedError."""

    @value
    def learn_weights(
        self,
        user: str,
        *,
        apply: bool | None = None,
        compiles: int | None = None,
        least: int | None = None,
        prior: float | None = None,
    ) -> dict[str, Any]:
        """Learns the ranking's weights anew from what the user's ledger says was used: 'old', 'new', 'held_out' (share
        of pairs in the right order 'before' and 'after'), 'applied'. With `apply` they become the user's own setting,
        if they gained. Raises TooLittleEvidenceError, UnknownUserError, InvalidArgumentError, NotAuthorizedError."""
