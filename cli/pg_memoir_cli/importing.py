"""Imports a file of conversations and memories. Running it again, or after an interruption, adds only what is
missing."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pg_memoir import Memoir, MemoirError
from pg_memoir.errors import SessionClosedError, UnknownSessionError
from pg_memoir.texts import replace_unstorable
from pg_memoir.types import Message
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .conversations import UNEXPECTED, Conversation, ConversationError, Fact, Item
from .formats import read_conversations
from .storing import CHANGED, PRESENT, REFUSED, STORED, FactStore

# Messages per call: enough that round trips don't matter, few enough that a transaction stays short. Part of the
# idempotency keys' meaning, so changing them makes files imported before be refused instead of recognised.
_RUN, _LONGEST_RUN = 64, 256
_PREVIEWED, _PREVIEWED_TEXT = 20, 200  # items that a dry run shows, and characters of each


@dataclass(slots=True)
class Imported:
    """What an import did: counts, the users it touched in the file's order, and what was left out (with skip_bad).

    `memories`: new ones, `ended` of which are true no more. `present`: those that were there. `changed`: those whose
    text or end is another one in the file now. `forgotten`: those that were forgotten or rejected here before.
    """

    conversations: int = 0
    messages: int = 0
    memories: int = 0
    ended: int = 0
    present: int = 0
    changed: int = 0
    forgotten: int = 0
    relations: int = 0
    users: list[str] = field(default_factory=list)
    refused: list[ConversationError] = field(default_factory=list)

    def count(self, fact: Fact, outcome: str) -> None:
        """Counts a fact by what became of it."""
        self.memories += outcome == STORED
        self.ended += outcome == STORED and fact.has_ended
        self.present += outcome == PRESENT
        self.changed += outcome == CHANGED
        self.forgotten += outcome == REFUSED


def import_conversations(
    memoir: Memoir,
    path: str | Path,
    *,
    user: str | None = None,
    user_prefix: str | None = None,
    format: str | None = None,
    users: Mapping[str, str] | None = None,
    model: str | None = None,
    skip_bad: bool = False,
    progress: bool | Callable[[int, int | None], None] | None = None,
) -> Imported:
    """Imports a file of any format that read_conversations knows, and shows a progress bar.

    `user`: whose all conversations are; else the record's own, or the file's name, after `user_prefix`; `users`:
    users by their names in the file; `format`: the only one that is read (see read_conversations). `model`: chat model
    of the sessions. `skip_bad`: go on after a conversation or memory that can't be read or is refused, and list it in
    the result; otherwise raises ConversationError, naming file, line and field. `progress`: True, False, or None for a
    bar on terminals only; or a function that is told how many items are done, and of how many where that is known.
    """
    file = read_conversations(path, user=user, user_prefix=user_prefix, format=format, users=users)
    done = Imported()
    facts = FactStore(memoir)
    told = progress if callable(progress) else None
    console = Console(stderr=True)
    shown = not told and (console.is_terminal if progress is None else bool(progress))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task(Path(path).name.replace("[", r"\["), total=file.total)
        for number, item in enumerate(file.items, 1):
            try:
                if isinstance(item, ConversationError):
                    raise item
                if isinstance(item, Fact):
                    done.count(item, facts.store(item))
                else:
                    _import(memoir, item, model)
                    done.conversations += 1
                    done.messages += len(item.messages)
            except UNEXPECTED as error:
                refused = item if isinstance(item, ConversationError) else _as_refusal(item, error)
                if not skip_bad:
                    raise refused from None
                done.refused.append(refused)
            else:
                if item.user not in done.users[-1:] and item.user not in done.users:
                    done.users.append(item.user)
            if told:
                told(number, file.total)
            bar.advance(task)
    done.relations = facts.relate()
    return done


def _as_refusal(item: Conversation | Fact, error: Exception) -> ConversationError:
    return error if isinstance(error, ConversationError) else item.where.fail(None, f"can't be stored: {error}")


def preview(items: Iterable[Item]) -> tuple[Imported, list[dict[str, Any]]]:
    """Counts the items of a file without storing them, and returns a row for each of the first, for a dry run."""
    done = Imported()
    rows: list[dict[str, Any]] = []
    for item in items:
        if isinstance(item, ConversationError):
            done.refused.append(item)
            continue
        if isinstance(item, Fact):
            done.count(item, STORED)
            done.relations += len(item.relations)
            kind = "ended memory" if item.has_ended else "memory"
            row: dict[str, Any] = {"kind": kind, "user": item.user, "said_at": item.said_at, "text": item.content}
        else:
            done.conversations += 1
            done.messages += len(item.messages)
            text = f"{item.session}: {len(item.messages)} messages"
            row = {"kind": "conversation", "user": item.user, "said_at": None, "text": text}
            if item.messages and "created_at" in item.messages[0]:
                row["said_at"] = _instant(item.messages[0]["created_at"])
        if len(rows) < _PREVIEWED:
            rows.append(row | {"text": row["text"][:_PREVIEWED_TEXT]})
        if item.user not in done.users:
            done.users.append(item.user)
    return done, rows


def _import(memoir: Memoir, conversation: Conversation, model: str | None) -> None:
    user, session = conversation.user, conversation.session
    first = 0
    options: dict[str, Any] = {
        "model": model,
        "system_prompt": conversation.system_prompt,
        "project": conversation.project,
        "metadata": conversation.metadata or None,
    }
    try:
        if any(value is not None for value in options.values()):
            try:
                memoir.open_session(user, session, **options)
            except SessionClosedError:
                pass  # closed since it was imported: what is stored decides
        # Receipts are kept for some days only, so what is stored decides whether it was imported.
        if stored := _count_turns(memoir, user, session):
            _append_new(memoir, conversation, stored)
            return
        for run in runs(conversation.messages):
            memoir.persist_turn(user, session, run, key=_key(session, first))
            first += len(run)
    except MemoirError as error:
        raise conversation.where.fail(f"session {session!r}, messages from {first}", error.message) from error


def _count_turns(memoir: Memoir, user: str, session: str) -> int:
    try:
        return int(memoir.session_info(user, session)["turns"])
    except UnknownSessionError:
        return 0


def _append_new(memoir: Memoir, conversation: Conversation, stored: int) -> None:
    """The conversation was imported before, at least in part: what is stored must be what the file has there; the rest
    is added. A file with the newest messages alone adds those that are later than the last one stored."""
    user, session, messages = conversation.user, conversation.session, conversation.messages
    if conversation.newest:
        last = memoir.history(user, session, from_turn=stored - 1)[-1]["created_at"]
        later = [m for m in messages if "created_at" in m and _instant(m["created_at"]) > _instant(last)]
        # A call without a result was stored with a note instead of it, and has no place for another one.
        left = list(itertools.dropwhile(lambda message: message["role"] == "tool", later))
    else:
        left = messages[stored:]
        for turn in memoir.history(user, session):
            place = turn["turn_index"]
            if place == len(messages):
                break  # the file is the older one
            given = replace_unstorable(messages[place])
            if any(turn.get(key) != given.get(key) for key in ("role", "content", "tool_call_id")):
                problem = f"session {session!r} of user {user!r} was imported before with other messages"
                raise conversation.where.fail(f"messages[{place}]", problem)
    for run in runs(left):
        memoir.persist_turn(user, session, run, key=_key(session, stored))
        stored += len(run)


def _instant(time: Any) -> datetime:
    return datetime.fromisoformat(time) if isinstance(time, str) else time


def runs(messages: list[Message]) -> Iterator[list[Message]]:
    """Cuts messages into runs that leave no tool call open, before a user message where possible."""
    run: list[Message] = []
    open_calls: set[Any] = set()
    for message in messages:
        if not open_calls and (len(run) >= _LONGEST_RUN or (len(run) >= _RUN and message.get("role") == "user")):
            yield run
            run = []
        run.append(message)
        calls_made = message.get("tool_calls")
        for call in calls_made if isinstance(calls_made, list) else []:
            open_calls.add(call.get("id") if isinstance(call, dict) else None)
        if message.get("role") == "tool":
            open_calls.discard(message.get("tool_call_id"))
    if run:
        yield run


def _key(session: str, first: int) -> str:
    # The place alone, not the content: a changed file is refused by the key instead of imported twice.
    return f"import:{hashlib.sha256(session.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}:{first}"
