"""Files of conversations and memories → Conversation and Fact objects: OpenAI-style JSON and JSONL, ShareGPT, LoCoMo,
exports of ChatGPT and Claude, transcripts of Claude Code, and what other memory stores export.

The format is told from each record's content, never from the file's name.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pg_memoir.types import Message

from . import chat_exports, claude_code, hindsight, letta, locomo, mem0, openmemory, sharegpt, zep
from .conversations import (
    UNEXPECTED,
    Conversation,
    ConversationError,
    ConversationFile,
    Item,
    Options,
    Where,
    read_time,
    stamp_messages,
)
from .facts import Entry
from .reading import decode, is_database, parse, read_database

_ROLES = ("user", "assistant", "system", "developer", "tool", "function")
_KEPT = ("role", "content", "name", "tool_calls", "tool_call_id", "created_at", "metadata")
_STORES = {"mem0": mem0, "zep": zep, "letta": letta, "hindsight": hindsight, "openmemory": openmemory}
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "locomo": locomo.is_locomo,
    "chatgpt": chat_exports.is_chatgpt,
    "claude": chat_exports.is_claude,
    "sharegpt": lambda record: isinstance(record, dict) and "conversations" in record,
    **{name: store.is_record for name, store in _STORES.items()},
    "openai": lambda record: isinstance(record, list) or (isinstance(record, dict) and "messages" in record),
}
FORMATS = (*_CHECKS, "claude-code")
"""Names of the formats, for `format` of read_conversations."""

Placed = tuple[Any, Where]
"""A record, or the error that stands for it, and its place."""


def read_conversations(
    path: str | Path,
    *,
    user: str | None = None,
    user_prefix: str | None = None,
    format: str | None = None,
    users: Mapping[str, str] | None = None,
) -> ConversationFile:
    """Reads a file of conversations or memories, and tells its format.

    User: `user` if given, else the record's own or, where it has none, LoCoMo's sample id, the agent or the file's
    name; `users` maps such names to users; with `user_prefix` before it ('locomo:' for LoCoMo and nothing otherwise, if
    None). `format`: one of FORMATS, if records that look like another one are not wanted. What can't be read comes as
    ConversationError objects in its place. Raises ConversationError if the file as a whole can't be read, OSError.
    """
    path = Path(path)
    options = Options(path.name, path.stem, user, user_prefix, format, users or {})
    if is_database(path):
        tables = read_database(path, mem0.TABLES | openmemory.TABLES)
        return _of_records([(tables, Where(path.name))], options)
    if zipfile.is_zipfile(path):
        return _from_archive(path, options)
    return _of_text(decode(path.read_bytes(), Where(path.name)), options)


def _of_text(text: str, options: Options) -> ConversationFile:
    if not text.strip():
        raise Where(options.file).fail(None, "the file is empty")
    if not _is_lines(text):
        return _of_document(text, options)
    if options.format in (None, "claude-code") and _is_transcript(_lines(text)):
        return ConversationFile(1, iter(_transcript(text, options)))
    (first, _), total = next(_from_lines(text, options)), sum(1 for _ in _lines(text))
    return _of_records(_from_lines(text, options), options, _count_items([first], options) and total)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, with their numbers."""
    return ((number, line) for number, line in enumerate(io.StringIO(text), 1) if line.strip())


def _is_lines(text: str) -> bool:
    """JSONL: the first line is JSON by itself and more follows."""
    filled = _lines(text)
    try:
        json.loads(next(filled)[1])
    except (ValueError, RecursionError):
        return False
    return next(filled, None) is not None


def _is_transcript(lines: Iterable[tuple[int, str]]) -> bool:
    """Of a transcript the first lines may be notes without a session."""
    for _, line in itertools.islice(lines, 50):
        try:
            record = json.loads(line)
        except ValueError:
            return False
        if claude_code.is_entry(record):
            return True
        if not claude_code.is_note(record):
            return False
    return False


def _transcript(text: str, options: Options) -> list[Item]:
    """A file of Claude Code is one session; a line that a crash cut off at its end is left out."""
    entries, found = [], list[Item]()
    lines = list(_lines(text))
    for number, line in lines:
        try:
            entries.append(json.loads(line))
        except ValueError as error:
            if number < lines[-1][0]:
                found.append(Where(options.file, line=number).fail(None, f"not JSON: {error}"))
    where = Where(options.file, line=1)
    entries = [entry for entry in entries if claude_code.is_entry(entry)]
    try:
        messages = claude_code.messages(entries)
        if not messages:
            raise where.fail(None, "the transcript holds no message")
        times = [read_time(m.get("created_at"), where, f"messages[{n}].created_at") for n, m in enumerate(messages)]
    except ConversationError as error:
        return [*found, error]
    except UNEXPECTED as error:
        return [*found, where.fail(None, f"can't be read: {error}")]
    stamp_messages(messages, times)
    return [*found, Conversation(options.name(None, options.stem), str(entries[0]["sessionId"]), messages, where)]


def _from_lines(text: str, options: Options) -> Iterator[Placed]:
    for number, line in _lines(text):
        where = Where(options.file, line=number)
        try:
            yield json.loads(line), where
        except (ValueError, RecursionError) as error:
            yield where.fail(None, f"not JSON: {error}"), where


def _from_archive(path: Path, options: Options) -> ConversationFile:
    """An export as it is mailed or downloaded: its conversations*.json one after another, the backup of a memory store,
    or the files of an archive of Hindsight as one record."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _of_archive(archive, path.name, options)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, EOFError) as error:
        raise Where(path.name).fail(None, f"the archive can't be unpacked: {error}") from None


def _of_archive(archive: zipfile.ZipFile, archive_name: str, options: Options) -> ConversationFile:
    names = sorted(archive.namelist())

    def read(name: str) -> str:
        return decode(archive.read(name), Where(f"{archive_name}/{name}"))

    if "manifest.json" in names:
        return _of_records([(_join_files(names, read, archive_name), Where(archive_name))], options)
    found = [n for n in names if re.fullmatch(r"(.*/)?(conversations[^/]*|memories)\.json", n)]
    found = found or [n for n in names if n.endswith((".json", ".jsonl", ".jsonl.gz", ".af"))]
    if not found:
        raise Where(archive_name).fail(None, "the archive has no file of the kinds .json, .jsonl, .jsonl.gz and .af")
    files = [_of_text(read(name), replace(options, file=f"{archive_name}/{name}")) for name in found]
    total = None if any(f.total is None for f in files) else sum(f.total or 0 for f in files)
    return ConversationFile(total, itertools.chain(*(f.items for f in files)))


def _join_files(names: list[str], read: Callable[[str], str], archive: str) -> dict[str, Any]:
    """Files of an archive as one record: documents/*.json in a list, others by their names."""
    record: dict[str, Any] = {"documents": []}
    for name in names:
        if not name.endswith(".json") or name.startswith("history/"):
            continue
        value, error = parse(read(name), Where(f"{archive}/{name}"))
        if error:
            raise error
        if name.startswith("documents/"):
            record["documents"].append(value)
        else:
            record[name.removesuffix(".json")] = value
    return record


def _of_document(text: str, options: Options) -> ConversationFile:
    document, cut_off = parse(text, Where(options.file))
    records = [document] if _is_one_record(document, options) else document
    placed: list[Placed] = [(r, Where(options.file, record=number)) for number, r in enumerate(records, 1)]
    if cut_off:
        placed.append((cut_off, Where(options.file)))
    return _of_records(placed, options, _count_items(records, options))


def _count_items(records: list[Any], options: Options) -> int | None:
    """How many items the records are. The facts of a memory store are not counted before they are read."""
    names = [_find_format(record, options) for record in records]
    if any(name in _STORES for name in names):
        return None
    return sum(len(locomo.list_sessions(r)) if name == "locomo" else 1 for r, name in zip(records, names, strict=True))


def _is_one_record(document: Any, options: Options) -> bool:
    """Whether a document is no list of records. A list of messages is one, too."""
    if not isinstance(document, list) or any(_find_format(item, options) in _STORES for item in document[:50]):
        return not isinstance(document, list)
    return any(isinstance(item, dict) and "role" in item for item in document)


def _of_records(placed: Iterable[Placed], options: Options, total: int | None = None) -> ConversationFile:
    """Conversations are read one by one, records of a memory store that follow each other together."""

    def items() -> Iterator[Item]:
        number = 0
        for name, group in itertools.groupby(placed, key=lambda one: _find_format(one[0], options)):
            if name in _STORES:
                yield from _STORES[name].read([Entry(*one) for one in group], options)
                continue
            for record, where in group:
                number += 1
                yield from (
                    [record] if isinstance(record, ConversationError) else _record(name, record, number, where, options)
                )

    return ConversationFile(total, items())


def _find_format(record: Any, options: Options) -> str | None:
    """The first format that a record is of. With `format` no other one is looked for."""
    wanted = _CHECKS if options.format is None else {options.format: _CHECKS.get(options.format, lambda _: False)}
    return next((name for name, is_one in wanted.items() if is_one(record)), None)


def _record(name: str | None, record: Any, number: int, where: Where, options: Options) -> Iterator[Item]:
    try:
        if name == "locomo":
            yield from locomo.read_conversations(record, where, options)
        elif name == "chatgpt":
            yield from _read_record(record, chat_exports.chatgpt_messages, "title", number, where, options)
        elif name == "claude":
            yield from _read_record(record, chat_exports.claude_messages, "name", number, where, options)
        elif name == "sharegpt":
            yield _sharegpt(record, number, where, options)
        elif name == "openai":
            yield _openai(record, number, where, options)
        else:
            keys = ", ".join(sorted(record)[:8]) if isinstance(record, dict) else type(record).__name__
            needed = (
                "no known format: needs 'messages' (OpenAI), 'conversations' (ShareGPT), 'conversation' (LoCoMo), "
                "'mapping' (ChatGPT), 'chat_messages' (Claude), or what mem0, Zep, Letta, Hindsight or OpenMemory "
                "export"
            )
            expected = f"is no record of the format {options.format}" if options.format else needed
            raise where.fail(None, f"{expected}, has {keys}")
    except ConversationError as error:
        yield error
    except UNEXPECTED as error:
        yield where.fail(None, f"can't be read: {error}")


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
