"""The body of each call of a session: the list as the client has it, and ours. Bodies have the Anthropic shape, with
cache marks where clients set them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pg_memoir import Memoir
from pg_memoir_gateway.line_edits import FENCE, split_fences

from .caching import request, tokens
from .sessions import Message, Plant, Session

SYSTEM = "You are a coding agent. " + " ".join(
    f"Rule {n}: keep changes small, say what you did, and run the tests of what you touched before you go on."
    for n in range(60)
)
TOOL_NAMES = ("Read", "Edit", "Write", "Grep", "Glob", "Bash", "WebFetch", "TodoWrite")
TOOLS = [
    {
        "name": name,
        "description": f"{name}: what it does, when to use it and when not, limits and examples. " * 12,
        "input_schema": {
            "type": "object",
            "properties": {"file_path": {"type": "string"}, "command": {"type": "string"}},
        },
    }
    for name in TOOL_NAMES
]
MARK = {"type": "ephemeral"}


@dataclass
class Sent:
    """One call's body, and how long its making took."""

    body: dict[str, Any]
    seconds: float = 0.0


class Strategy(Protocol):
    name: str

    def send(self, session: Session, at: int) -> Sent:
        """The body of the call that message `at` answers."""

    def moves(self) -> int:
        """How often a result was made shorter, each once a moment."""

    def ask(self, plant: Plant) -> str | None:
        """What memory_query answers; None where there is no such thing."""


def blocks(message: Message) -> list[dict[str, Any]]:
    if message["role"] == "tool":
        result = [{"type": "text", "text": message["content"] or "(empty)"}]
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": result}]
    content = message.get("content")
    out = [{"type": "text", "text": text} for text in split_fences(content)] if content else []
    for call in message.get("tool_calls", []):
        arguments = json.loads(call["function"]["arguments"] or "{}")
        out.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
    return out


def body(messages: Sequence[Message]) -> dict[str, Any]:
    """With marks as Claude Code sets them: behind the system message and in the last two user messages."""
    out: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        if out and out[-1]["role"] == role:
            out[-1]["content"] += blocks(message)
        else:
            out.append({"role": role, "content": blocks(message)})
    for message in [message for message in out if message["role"] == "user"][-2:]:
        message["content"][-1]["cache_control"] = MARK
    return {"system": [{"type": "text", "text": SYSTEM, "cache_control": MARK}], "messages": out}


class AsIs:
    """Every message, whatever the window."""

    name = "as the client sends it"

    def send(self, session: Session, at: int) -> Sent:
        return Sent(body(session.messages[:at]))

    def moves(self) -> int:
        return 0

    def ask(self, plant: Plant) -> str | None:
        return None


class Ours:
    """compile_context through the client, after every message was appended as an application would."""

    name = "pg_memoir"

    def __init__(self, memoir: Memoir, user: str, window: int, model: str) -> None:
        self.memoir = memoir
        self.window = window
        self.user = user
        self.session = memoir.session(
            user, "replay", model=model, context_window=window, response_tokens=window // 16, system_prompt=SYSTEM
        )
        self.appended = 0
        self.prompt: int | None = None  # tokens of the last list

    def send(self, session: Session, at: int) -> Sent:
        started = time.perf_counter()
        self.append(session.messages[self.appended : at])
        self.appended = at
        made = self.session.compile_anthropic(tools=TOOLS)
        seconds = time.perf_counter() - started
        self.prompt = request(made, json.dumps(TOOLS)).total
        return Sent(made, seconds=seconds)

    def append(self, messages: Sequence[Message]) -> None:
        """Appends the answer to the last list, with its usage, and what came behind it."""
        for part, usage in ((messages[:1], {"prompt_tokens": self.prompt}), (messages[1:], None)):
            if part:
                self.session.append(list(part), usage=usage)

    def moves(self) -> int:
        return int(self.session.pressure()["moves"])

    def ask(self, plant: Plant) -> str | None:
        return str(self.session.query(plant.question, max_tokens=600)["text"])


class Beside(Ours):
    """The client's own list with what window_forms says set into it, as the gateway does."""

    name = "pg_memoir beside the client's list"

    def send(self, session: Session, at: int) -> Sent:
        started = time.perf_counter()
        self.append(session.messages[self.appended : at])
        self.appended = at
        fixed = tokens(json.dumps(TOOLS)) + tokens(SYSTEM)
        forms = self.memoir.window_forms(self.user, "replay", budget=self.window * 15 // 16 - fixed, fixed=fixed)
        seconds = time.perf_counter() - started
        made = body(with_forms(session.messages[:at], forms))
        # As the gateway does: a mark behind what stays when lines are added.
        sent = [block for message in made["messages"] for block in message["content"]]
        lines = [at for at, block in enumerate(sent) if block.get("text", "").startswith(FENCE)]
        if lines and lines[-1]:
            sent[lines[-1] - 1]["cache_control"] = MARK
        self.prompt = request(made, json.dumps(TOOLS)).total
        return Sent(made, seconds=seconds)


def with_forms(messages: Sequence[Message], forms: Sequence[dict[str, Any]]) -> list[Message]:
    """Messages of a session, each a turn, with the forms of window_forms in them."""
    out = [dict(message) for message in messages]
    lines = {call: form for form in forms if form["fidelity"] == "line" for call in form["argument"]}
    for form in forms:
        message = out[form["turn_index"]]
        if form["fidelity"] == "line":
            continue
        if form["call_no"] == 0:
            message["content"] = form["content"]
        else:
            calls = json.loads(json.dumps(message["tool_calls"]))
            function = calls[form["call_no"] - 1]["function"]
            arguments = place = json.loads(function["arguments"])
            for step in form["argument"][:-1]:
                place = place[int(step) if isinstance(place, list) else step]
            last = form["argument"][-1]
            place[int(last) if isinstance(place, list) else last] = form["content"]
            function["arguments"] = json.dumps(arguments)
            message["tool_calls"] = calls
    return list(with_lines(out, lines))


def with_lines(messages: Sequence[Message], lines: dict[str, dict[str, Any]]) -> Iterator[Message]:
    """Yields messages, in the place of the first step of an exchange that is a line all lines of the exchange."""
    said: set[int] = set()
    for message in messages:
        called = [call["id"] for call in message.get("tool_calls", [])] or [message.get("tool_call_id")]
        if called[0] not in lines:
            yield message
        elif (line := lines[called[0]])["turn_index"] not in said:
            said.add(line["turn_index"])
            yield {"role": "user", "content": line["content"]}
