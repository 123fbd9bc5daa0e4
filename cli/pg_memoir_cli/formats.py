"""Files of conversations → Conversation objects: OpenAI-style JSON and JSONL, ShareGPT, LoCoMo, exports of ChatGPT and
Claude, transcripts of Claude Code.

The format is told from each record's content, never from the file's name.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pg_memoir.types import Message

from . import chat_exports, claude_code, sharegpt

# Imported turns without a time of their own follow the conversation's at this distance.
TURN_SECONDS = 10
_ROLES = ("user", "assistant", "system", "developer", "tool", "function")
_KEPT = ("role", "content", "name", "tool_calls", "tool_call_id", "created_at", "metadata")
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_LOCOMO_TIME = re.compile(r"\s*(\d{1,2}):(\d{2})\s*([ap]m)\s+on\s+(\d{1,2})\s+([a-z]+),?\s+(\d{4})\s*", re.IGNORECASE)


class ConversationError(ValueError):
    """A file can't be read, or the database refuses a conversation of it. The message starts with the place.

    `file`; `line` (JSONL) or `record` (JSON), both from 1; `field`: path inside the record. Unknown ones are None.
    """

    def __init__(self, where: Where, field: str | None, problem: str) -> None:
        super().__init__(": ".join(part for part in (str(where), field, problem) if part))
        self.file, self.line, self.record, self.field = where.file, where.line, where.record, field


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file."""

    file: str
    line: int | None = None
    record: int | None = None

    def __str__(self) -> str:
        if self.line is not None:
            return f"{self.file}:{self.line}"
        return f"{self.file}: record {self.record}" if self.record is not None else self.file

    def fail(self, field: str | None, problem: str) -> ConversationError:
        return ConversationError(self, field, problem)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One session to import. `messages` as persist_turn takes them."""

    user: str
    session: str
    messages: list[Message]
    where: Where
    system_prompt: str | None = None
    project: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConversationFile:
    """A file's conversations, read as they are asked for. `total`: how many, None if that is not known beforehand."""

    total: int | None
    conversations: Iterator[Conversation | ConversationError]


def read_conversations(
    path: str | Path, *, user: str | None = None, user_prefix: str | None = None
) -> ConversationFile:
    """Reads a file of conversations, and tells its format.

    User: `user` if given, else the record's own or, where it has none, LoCoMo's sample id or the file's name; with
    `user_prefix` before it ('locomo:' for LoCoMo and nothing otherwise, if None). Records that can't be read come as
    ConversationError objects in their place. Raises ConversationError if the file as a whole can't be read, OSError.
    """
    path = Path(path)
    options = _Options(path.name, path.stem, user, user_prefix)
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


@dataclass(frozen=True, slots=True)
class _Options:
    file: str
    stem: str
    user: str | None
    user_prefix: str | None

    def name(self, own: Any, default: str, prefix: str = "") -> str:
        if self.user is not None:
            return self.user
        before = prefix if self.user_prefix is None else self.user_prefix
        return before + (str(own) if own not in (None, "") else default)


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


def _transcript(lines: list[str], options: _Options) -> Conversation | ConversationError:
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
    times = [_time(m.get("created_at"), where, f"messages[{n}].created_at") for n, m in enumerate(messages)]
    _stamp(messages, times)
    return Conversation(options.name(None, options.stem), str(entries[0]["sessionId"]), messages, where)


def _from_lines(path: Path, options: _Options) -> Iterator[Conversation | ConversationError]:
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


def _from_document(path: Path, options: _Options) -> ConversationFile:
    return _of_document(path.read_text(encoding="utf-8-sig"), options)


def _from_archive(path: Path, options: _Options) -> ConversationFile:
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


def _of_document(text: str, options: _Options) -> ConversationFile:
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

    return ConversationFile(sum(len(_locomo_sessions(r)) if _is_locomo(r) else 1 for r in records), conversations())


def _record(record: Any, number: int, where: Where, options: _Options) -> Iterator[Conversation | ConversationError]:
    try:
        if _is_locomo(record):
            yield from _locomo(record, where, options)
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


def _openai(record: Any, number: int, where: Where, options: _Options) -> Conversation:
    outer: dict[str, Any] = record if isinstance(record, dict) else {"messages": record}
    if not isinstance(outer["messages"], list) or not outer["messages"]:
        raise where.fail("messages", "a list of messages is needed")
    start = _time(outer.get("created_at", outer.get("create_time")), where, "created_at")
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
        times.append(_time(given.get("created_at", given.get("create_time")), where, f"{path}.created_at"))
        messages.append(message)
    _stamp(messages, times, start)
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


def _time(value: Any, where: Where, path: str) -> datetime | None:
    """ISO 8601 or seconds since 1970; without a zone it is UTC."""
    if value is None:
        return None
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError, OSError):
        raise where.fail(path, f"{value!r} is neither ISO 8601 nor seconds since 1970") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _stamp(messages: list[Message], times: list[datetime | None], start: datetime | None = None) -> None:
    """Sets each message's time. One without a time follows the message before it, or the conversation's start, and is
    never later than the next one with a time."""
    later: list[datetime | None] = []
    for time in reversed(times):
        later.append(time or (later[-1] if later else None))
    before: datetime | None = None
    for message, own, limit in zip(messages, times, reversed(later), strict=True):
        time = own or (before + timedelta(seconds=TURN_SECONDS) if before else start or limit)
        if time and limit and not own:
            time = min(time, limit)
        message.pop("created_at", None)
        if time:
            message["created_at"] = time.isoformat()
            before = time


# --- ShareGPT: {"id", "conversations": [{"from", "value"}]} ---------------------------------------------------------


def _sharegpt(record: dict[str, Any], number: int, where: Where, options: _Options) -> Conversation:
    try:
        messages = sharegpt.messages(record["conversations"])
    except sharegpt.FieldError as error:
        raise where.fail(error.field, error.problem) from None
    start = _time(record.get("created_at"), where, "created_at")
    _stamp(messages, [None] * len(messages), start)
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
    options: _Options,
) -> Iterator[Conversation]:
    """One with nothing said in it is passed over: exports hold chats that were opened and left."""
    try:
        found = read(record)
    except sharegpt.FieldError as error:
        raise where.fail(error.field, error.problem) from None
    messages = [message for message, _ in found]
    times = [_time(at, where, f"messages[{place}]") for place, (_, at) in enumerate(found)]
    start = record.get("create_time", record.get("created_at"))
    _stamp(messages, times, _time(start, where, "create_time"))
    names = [record[key] for key in ("conversation_id", "id", "uuid") if record.get(key)]
    metadata = {"title": record[titled]} if isinstance(record.get(titled), str) and record[titled] else {}
    if messages:
        session = str(names[0]) if names else f"conversation-{number}"
        yield Conversation(options.name(None, options.stem), session, messages, where, metadata=metadata)


# --- LoCoMo: {"sample_id", "conversation": {"speaker_a", "speaker_b", "session_1_date_time", "session_1": [...], …}} --


def _is_locomo(record: Any) -> bool:
    conversation = record.get("conversation") if isinstance(record, dict) else None
    return isinstance(conversation, dict) and "speaker_a" in conversation


def _locomo_sessions(record: dict[str, Any]) -> list[int]:
    found = (re.fullmatch(r"session_(\d+)", key) for key in record["conversation"])
    return sorted(int(match[1]) for match in found if match)


def _locomo(record: dict[str, Any], where: Where, options: _Options) -> Iterator[Conversation]:
    user = options.name(record.get("sample_id"), f"{options.stem}-{where.record or where.line}", "locomo:")
    conversation = record["conversation"]
    for number in _locomo_sessions(record):
        name = f"session_{number}"
        path = f"conversation.{name}"
        turns = conversation[name]
        if not isinstance(turns, list):
            raise where.fail(path, f"is a {type(turns).__name__}, a list of turns is needed")
        if not turns:
            continue
        start = _locomo_time(conversation.get(f"{name}_date_time"), where, f"{path}_date_time")
        messages = [_locomo_message(turn, conversation, where, f"{path}[{place}]") for place, turn in enumerate(turns)]
        _stamp(messages, [None] * len(messages), start)
        yield Conversation(user, name, messages, where)


def _locomo_message(turn: Any, conversation: dict[str, Any], where: Where, path: str) -> Message:
    if not isinstance(turn, dict):
        raise where.fail(path, f"is a {type(turn).__name__}, an object is needed")
    for name in ("speaker", "text"):
        if not isinstance(turn.get(name), str):
            raise where.fail(f"{path}.{name}", f"{turn.get(name)!r} is not a text")
    text = turn["text"]
    caption = turn.get("blip_caption") or turn.get("query")
    if caption or turn.get("img_url"):
        text = f"{text}\n[image: {caption}]" if caption else f"{text}\n[image]"
    message: Message = {
        "role": "assistant" if turn["speaker"] == conversation.get("speaker_b") else "user",
        "name": openai_name(turn["speaker"]),
        "content": text.strip(),
    }
    if turn.get("dia_id"):
        message["metadata"] = {"dia_id": turn["dia_id"]}
    return message


def openai_name(name: str) -> str:
    """A name as OpenAI's `name` allows it: ASCII letters, digits, _ and -, 1 to 64 of them."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", plain).strip("_")[:64] or "speaker"


def _locomo_time(value: Any, where: Where, path: str) -> datetime | None:
    """'1:56 pm on 8 May, 2023' (no zone is given: UTC)."""
    if value is None:
        return None
    match = _LOCOMO_TIME.fullmatch(value) if isinstance(value, str) else None
    try:
        if match is None:
            raise ValueError
        hour, minute, half, day, month, year = match.groups()
        hours = int(hour) % 12 + (12 if half.lower() == "pm" else 0)
        return datetime(int(year), _MONTHS.index(month.lower()) + 1, int(day), hours, int(minute), tzinfo=UTC)
    except ValueError:
        raise where.fail(path, f"{value!r} is no time like '1:56 pm on 8 May, 2023'") from None
