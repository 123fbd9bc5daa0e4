"""LoCoMo: {"sample_id", "conversation": {"speaker_a", "speaker_b", "session_1_date_time", "session_1": [...], …}}."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pg_memoir.types import Message

from .conversations import Conversation, Options, Where, stamp_messages

_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_TIME = re.compile(r"\s*(\d{1,2}):(\d{2})\s*([ap]m)\s+on\s+(\d{1,2})\s+([a-z]+),?\s+(\d{4})\s*", re.IGNORECASE)


def is_locomo(record: Any) -> bool:
    conversation = record.get("conversation") if isinstance(record, dict) else None
    return isinstance(conversation, dict) and "speaker_a" in conversation


def list_sessions(record: dict[str, Any]) -> list[int]:
    found = (re.fullmatch(r"session_(\d+)", key) for key in record["conversation"])
    return sorted(int(match[1]) for match in found if match)


def read_conversations(record: dict[str, Any], where: Where, options: Options) -> Iterator[Conversation]:
    user = options.name(record.get("sample_id"), f"{options.stem}-{where.record or where.line}", "locomo:")
    conversation = record["conversation"]
    for number in list_sessions(record):
        name = f"session_{number}"
        path = f"conversation.{name}"
        turns = conversation[name]
        if not isinstance(turns, list):
            raise where.fail(path, f"is a {type(turns).__name__}, a list of turns is needed")
        if not turns:
            continue
        start = _time(conversation.get(f"{name}_date_time"), where, f"{path}_date_time")
        messages = [_message(turn, conversation, where, f"{path}[{place}]") for place, turn in enumerate(turns)]
        stamp_messages(messages, [None] * len(messages), start)
        yield Conversation(user, name, messages, where)


def _message(turn: Any, conversation: dict[str, Any], where: Where, path: str) -> Message:
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


def _time(value: Any, where: Where, path: str) -> datetime | None:
    """'1:56 pm on 8 May, 2023' (no zone is given: UTC)."""
    if value is None:
        return None
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    try:
        if match is None:
            raise ValueError
        hour, minute, half, day, month, year = match.groups()
        hours = int(hour) % 12 + (12 if half.lower() == "pm" else 0)
        return datetime(int(year), _MONTHS.index(month.lower()) + 1, int(day), hours, int(minute), tzinfo=UTC)
    except ValueError:
        raise where.fail(path, f"{value!r} is no time like '1:56 pm on 8 May, 2023'") from None
