"""Files of conversations → Conversation objects: OpenAI-style JSON and JSONL, ShareGPT, LoCoMo, exports of ChatGPT and
Claude, transcripts of Claude Code.

The format is told from each record's content, never from the file's name.
"""

from __future__ import annotations

import itertools
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pg_memoir.types import Message

from . import chat_exports, claude_code, locomo, sharegpt
from .conversations import Conversation, ConversationError, ConversationFile, Options, Where, read_time, stamp_messages

_ROLES = ("user", "assistant", "system", "developer", "tool", "function")
_KEPT = ("role", "content", "name", "tool_calls", "tool_call_id", "created_at", "metadata")


def read_conversations(
    path: str | Path, *, user: str | None = None, user_prefix: str | None = None
) -> ConversationFile:
    """Reads a file of conversations, and tells its format.

    User: `user` if given, else the record's own or, where it has none, LoCoMo's sample id or the file's name; with
    `user_prefix` before it ('locomo:' for LoCoMo and nothing otherwise, if None). Records that can't be read come as
    ConversationError objects in their place. Raises ConversationError if the file as a whole can't be read, OSError.
    """
    path = Path(path)
    options = Options(path.name, path.stem, user, user_prefix)
    try:
        if zipfile.is_zipfile(path):
            return _from_archive(path, options)
        if _is_lines(path):
            with path.open(encoding="utf-8-sig") as file:
                lines = [line for line in file if line.strip()]
                total = len(lines)
            if _is_transcript(lines):
                return ConversationFile(1, iter([_transcript(lines, options)]))
            return ConversationFile(total, _from_lines(path, options))
        return _from_document(path, options)
    except UnicodeDecodeError as error:
        raise Where(path.name).fail(None, f"not UTF-8 at byte {error.start}: {error.reason}") from None


def _is_lines(path: Path) -> bool:
    """JSONL: the first line is JSON by itself and more follows."""
    with path.open(encoding="utf-8-sig") as file:
        filled = (line for line in file if line.strip())
        first = next(filled, None)
        if first is None:
            raise Where(path.name).fail(None, "the file is empty")
        try:
            json.loads(first)
        except ValueError:
            return False
        return next(filled, None) is not None


def _is_transcript(lines: list[str]) -> bool:
    """Of a transcript the first lines may be notes without a session."""
    for line in lines[:50]:
        try:
            record = json.loads(line)
        except ValueError:
            return False
        if claude_code.is_entry(record):
            return True
        if not claude_code.is_note(record):
            return False
    return False


def _transcript(lines: list[str], options: Options) -> Conversation | ConversationError:
    """A file of Claude Code is one session; a line that a crash cut off at its end is left out."""
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                return Where(options.file, line=number).fail(None, f"not JSON: {error}")
    where = Where(options.file, line=1)
    entries = [entry for entry in entries if claude_code.is_entry(entry)]
    messages = claude_code.messages(entries)
    if not messages:
        return where.fail(None, "the transcript holds no message")
    times = [read_time(m.get("created_at"), where, f"messages[{n}].created_at") for n, m in enumerate(messages)]
    stamp_messages(messages, times)
    return Conversation(options.name(None, options.stem), str(entries[0]["sessionId"]), messages, where)


def _from_lines(path: Path, options: Options) -> Iterator[Conversation | ConversationError]:
    number = 0
    with path.open(encoding="utf-8-sig") as file:
        for line_number, line in enumerate(file, 1):
            if not line.strip():
                continue
            number += 1
            where = Where(options.file, line=line_number)
            try:
                record = json.loads(line)
            except ValueError as error:
                yield where.fail(None, f"not JSON: {error}")
                continue
            yield from _record(record, number, where, options)


def _from_document(path: Path, options: Options) -> ConversationFile:
    return _of_document(path.read_text(encoding="utf-8-sig"), options)


def _from_archive(path: Path, options: Options) -> ConversationFile:
    """An export as it is mailed: its conversations*.json, one after another."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if re.fullmatch(r"(.*/)?conversations[^/]*\.json", name))
        if not names:
            raise Where(path.name).fail(None, "the archive has no conversations.json")
        files = [
            _of_document(archive.read(name).decode("utf-8-sig"), replace(options, file=f"{path.name}/{name}"))
            for name in names
        ]
    return ConversationFile(sum(f.total or 0 for f in files), itertools.chain(*(f.conversations for f in files)))


def _of_document(text: str, options: Options) -> ConversationFile:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        where = Where(options.file, line=error.lineno)
        raise where.fail(None, f"not JSON: {error.msg} (column {error.colno})") from None
    if isinstance(document, list) and not any(isinstance(item, dict) and "role" in item for item in document):
        records = document
    else:
        records = [document]

    def conversations() -> Iterator[Conversation | ConversationError]:
        for number, record in enumerate(records, 1):
            yield from _record(record, number, Where(options.file, record=number), options)

    return ConversationFile(
        sum(len(locomo.list_sessions(r)) if locomo.is_locomo(r) else 1 for r in records), conversations()
    )


def _record(record: Any, number: int, where: Where, options: Options) -> Iterator[Conversation | ConversationError]:
    try:
        if locomo.is_locomo(record):
            yield from locomo.read_conversations(record, where, options)
        elif chat_exports.is_chatgpt(record):
            yield from _read_record(record, chat_exports.chatgpt_messages, "title", number, where, options)
        elif chat_exports.is_claude(record):
            yield from _read_record(record, chat_exports.claude_messages, "name", number, where, options)
        elif isinstance(record, dict) and "conversations" in record:
            yield _sharegpt(record, number, where, options)
        elif isinstance(record, list) or (isinstance(record, dict) and "messages" in record):
            yield _openai(record, number, where, options)
        else:
            keys = ", ".join(sorted(record)[:8]) if isinstance(record, dict) else type(record).__name__
            needed = (
                "needs 'messages' (OpenAI), 'conversations' (ShareGPT), 'conversation' (LoCoMo), 'mapping' (ChatGPT) "
                "or "
                "'chat_messages' (Claude)"
            )
            raise where.fail(None, f"no known format: {needed}, has {keys}")
    except ConversationError as error:
        yield error


# --- OpenAI: {"messages": [...], "user", "session" or "id", "created_at", "project", "metadata"}, or the bare list ----


def _openai(record: Any, number: int, where: Where, options: Options) -> Conversation:
    outer: dict[str, Any] = record if isinstance(record, dict) else {"messages": record}
    if not isinstance(outer["messages"], list) or not outer["messages"]:
        raise where.fail("messages", "a list of messages is needed")
    start = read_time(outer.get("created_at", outer.get("create_time")), where, "created_at")
    messages: list[Message] = []
    times: list[datetime | None] = []
    function_calls = 0
    for place, given in enumerate(outer["messages"]):
        path = f"messages[{place}]"
        if not isinstance(given, dict):
            raise where.fail(path, f"is a {type(given).__name__}, an object is needed")
        if given.get("role") not in _ROLES:
            raise where.fail(f"{path}.role", f"{given.get('role')!r} is none of {', '.join(_ROLES)}")
        message = {name: given[name] for name in _KEPT if given.get(name) is not None}
        message.setdefault("content", given.get("refusal"))
        # The function calls that tool calls replaced, as old fine-tuning files have them.
        if isinstance(given.get("function_call"), dict):
            function_calls += 1
            call = {"id": f"call_{function_calls}", "type": "function", "function": given["function_call"]}
            message["tool_calls"] = [call]
        elif given["role"] == "function":
            message = {"role": "tool", "tool_call_id": f"call_{function_calls}", "content": given.get("content")}
        times.append(read_time(given.get("created_at", given.get("create_time")), where, f"{path}.created_at"))
        messages.append(message)
    stamp_messages(messages, times, start)
    prompt, messages = _leading_prompt(messages)
    names = [outer[key] for key in ("session", "session_id", "id") if outer.get(key) not in (None, "")]
    session = str(names[0]) if names else f"conversation-{number}"
    user = options.name(outer.get("user"), options.stem)
    return Conversation(user, session, messages, where, prompt, outer.get("project"), _object(outer, where))


def _leading_prompt(messages: list[Message]) -> tuple[str | None, list[Message]]:
    """A leading system message is the session's prompt: kept once, not recalled as something that was said."""
    first = messages[0]
    if first["role"] in ("system", "developer") and isinstance(first.get("content"), str):
        return first["content"], messages[1:]
    return None, messages


def _object(outer: dict[str, Any], where: Where) -> dict[str, Any]:
    metadata = outer.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise where.fail("metadata", f"is a {type(metadata).__name__}, an object is needed")
    return metadata


# --- ShareGPT: {"id", "conversations": [{"from", "value"}]} ---------------------------------------------------------


def _sharegpt(record: dict[str, Any], number: int, where: Where, options: Options) -> Conversation:
    try:
        messages = sharegpt.messages(record["conversations"])
    except sharegpt.FieldError as error:
        raise where.fail(error.field, error.problem) from None
    start = read_time(record.get("created_at"), where, "created_at")
    stamp_messages(messages, [None] * len(messages), start)
    prompt, messages = _leading_prompt(messages)
    own_prompt = record.get("system") if isinstance(record.get("system"), str) else None
    session = record.get("id")
    return Conversation(
        options.name(record.get("user"), options.stem),
        str(session) if session not in (None, "") else f"conversation-{number}",
        messages,
        where,
        own_prompt or prompt,
    )


# --- Exports of ChatGPT: {"title", "mapping": {…}, "current_node"}, of Claude: {"uuid", "name", "chat_messages"} ---


def _read_record(
    record: dict[str, Any],
    read: Callable[[dict[str, Any]], list[tuple[Message, Any]]],
    titled: str,
    number: int,
    where: Where,
    options: Options,
) -> Iterator[Conversation]:
    """One with nothing said in it is passed over: exports hold chats that were opened and left."""
    try:
        found = read(record)
    except sharegpt.FieldError as error:
        raise where.fail(error.field, error.problem) from None
    messages = [message for message, _ in found]
    times = [read_time(at, where, f"messages[{place}]") for place, (_, at) in enumerate(found)]
    start = record.get("create_time", record.get("created_at"))
    stamp_messages(messages, times, read_time(start, where, "create_time"))
    names = [record[key] for key in ("conversation_id", "id", "uuid") if record.get(key)]
    metadata = {"title": record[titled]} if isinstance(record.get(titled), str) and record[titled] else {}
    if messages:
        session = str(names[0]) if names else f"conversation-{number}"
        yield Conversation(options.name(None, options.stem), session, messages, where, metadata=metadata)
