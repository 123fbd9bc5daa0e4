"""Agent loops for tests: steps with calls and results, what a list shows of them, and lists that must hold whatever happens."""

import json
import random
from typing import Any

from calls import Db, call, store

Message = dict[str, Any]


def code(seed: int, size: int) -> str:
    """About so many characters of something like code, the same for the same seed."""
    rng, out = random.Random(seed), []
    while sum(map(len, out)) + len(out) < size:
        name = f"{rng.choice(('load', 'store', 'merge', 'split', 'check'))}_{rng.randrange(10**6)}"
        out += [f"def {name}(source, limit={rng.randrange(10**5)}):", f"    return source.{name}(limit)", ""]
    return "\n".join(out)[:size]


def step(number: Any, tool: str, arguments: dict[str, Any], result: str, text: str | None = None) -> list[Message]:
    function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
    calling = {"id": f"call_{number}", "type": "function", "function": function}
    asked = {"role": "assistant", "content": text, "tool_calls": [calling]}
    return [asked, {"role": "tool", "tool_call_id": calling["id"], "content": result}]


def read(number: int, path: str, text: str) -> list[Message]:
    return step(number, "Read", {"file_path": path}, text)


def append(db: Db, user: str, messages: list[Message], session: str = "s") -> dict[str, Any]:
    return store(db, user, session, messages, "append_messages")


def compiled(db: Db, user: str, query: str | None = None, session: str = "s", **named: Any) -> dict[str, Any]:
    return dict(call(db, "context", user, session, query, **named))


def text_of(message: Message) -> str:
    content = message.get("content") or ""
    parts = content if isinstance(content, list) else [{"text": content}]
    calls = [each["function"]["arguments"] for each in message.get("tool_calls", [])]
    return "\n".join([*(part.get("text", "") for part in parts), *calls])


def same_beginning(before: list[Message], now: list[Message]) -> bool:
    """Whether a list begins with all of another but its last message, which may have grown."""
    return now[: len(before)] == before


def shown_calls(messages: list[Message]) -> set[str]:
    return {each["id"] for message in messages for each in message.get("tool_calls", [])}
