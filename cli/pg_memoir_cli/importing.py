"""Imports a file of conversations. Running it again, or after an interruption, adds only what is missing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pg_memoir import Memoir, MemoirError
from pg_memoir.errors import SessionClosedError, UnknownSessionError
from pg_memoir.texts import replace_unstorable
from pg_memoir.types import Message
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .conversations import Conversation, ConversationError
from .formats import read_conversations

# Messages per call: enough that round trips don't matter, few enough that a transaction stays short. Part of the
# idempotency keys' meaning, so changing them makes files imported before be refused instead of recognised.
_RUN, _LONGEST_RUN = 64, 256


@dataclass(slots=True)
class Imported:
    """What an import did: counts, the users it touched in the file's order, and what was refused (with skip_bad)."""

    conversations: int = 0
    messages: int = 0
    users: list[str] = field(default_factory=list)
    refused: list[ConversationError] = field(default_factory=list)


def import_conversations(
    memoir: Memoir,
    path: str | Path,
    *,
    user: str | None = None,
    user_prefix: str | None = None,
    model: str | None = None,
    skip_bad: bool = False,
    progress: bool | Callable[[int, int | None], None] | None = None,
) -> Imported:
    """Imports a file of any format that read_conversations knows, and shows a progress bar.

    `user`: whose all conversations are; else the record's own, or the file's name, after `user_prefix` (see
    read_conversations). `model`: chat model of the sessions. `skip_bad`: go on after a conversation that can't be read
    or is refused, and list it in the result; otherwise raises ConversationError, naming file, line and field.
    `progress`: True, False, or None for a bar on terminals only; or a function that is told how many conversations are
    done, and of how many where that is known.
    """
    file = read_conversations(path, user=user, user_prefix=user_prefix)
    done = Imported()
    told = progress if callable(progress) else None
    console = Console(stderr=True)
    shown = not told and (console.is_terminal if progress is None else bool(progress))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task(Path(path).name.replace("[", r"\["), total=file.total)
        for conversation in file.conversations:
            try:
                if isinstance(conversation, ConversationError):
                    raise conversation
                _import(memoir, conversation, model)
            except ConversationError as error:
                if not skip_bad:
                    raise
                done.refused.append(error)
            else:
                done.conversations += 1
                done.messages += len(conversation.messages)
                if conversation.user not in done.users[-1:] and conversation.user not in done.users:
                    done.users.append(conversation.user)
            if told:
                told(done.conversations + len(done.refused), file.total)
            bar.advance(task)
    return done


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
    is added."""
    user, session, messages = conversation.user, conversation.session, conversation.messages
    for turn in memoir.history(user, session):
        place = turn["turn_index"]
        if place == len(messages):
            break  # the file is the older one
        given = replace_unstorable(messages[place])
        if any(turn.get(key) != given.get(key) for key in ("role", "content", "tool_call_id")):
            problem = f"session {session!r} of user {user!r} was imported before with other messages"
            raise conversation.where.fail(f"messages[{place}]", problem)
    for run in runs(messages[stored:]):
        memoir.persist_turn(user, session, run, key=_key(session, stored))
        stored += len(run)


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
