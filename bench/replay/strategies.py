"""What is sent for each call of a session, by strategy: as the client has it, its oldest results dropped, summarised at the
limit, and ours. Each gives bodies in the Anthropic shape with cache marks where that strategy's users set them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pg_memoir import Memoir
from pg_memoir_gateway.line_edits import FENCE, split_fences

from .caching import tokens
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
CLEARED = "[Old tool result content cleared]"
MARK = {"type": "ephemeral"}


@dataclass
class Sent:
    """One call's body, how long its making took, and what else was asked of the model for it."""

    body: dict[str, Any]
    seconds: float = 0.0
    helper: tuple[int, int] = (0, 0)  # tokens in and out of a call of the strategy's own, with the list as it was


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
        return [
            {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": [{"type": "text", "text": message["content"] or "(empty)"}],
            }
        ]
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


def size(messages: Sequence[Message]) -> int:
    return sum(tokens(json.dumps(blocks(message), ensure_ascii=False)) for message in messages)


@dataclass
class AsIs:
    """Every message, whatever the window."""

    window: int
    name: str = "as the client sends it"
    moved: int = 0

    def send(self, session: Session, at: int) -> Sent:
        return Sent(body(session.messages[:at]))

    def moves(self) -> int:
        return self.moved

    def ask(self, plant: Plant) -> str | None:
        return None


@dataclass
class Dropped(AsIs):
    """As providers do: at half the window all results but the newest three are cleared, in one go."""

    name: str = "oldest results dropped"
    cleared: set[str] = field(default_factory=set)

    def send(self, session: Session, at: int) -> Sent:
        messages = self.shown(session, at)
        if size(messages) > self.window / 2:
            results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
            fresh = [result for result in results[:-3] if result not in self.cleared]
            self.cleared.update(fresh)
            self.moved += len(fresh)
            messages = self.shown(session, at)
        left, start = size(messages), 1
        while left > self.window * 0.95:
            # What still does not fit goes by whole steps, behind the first message.
            end = next((n for n in range(start + 1, len(messages)) if messages[n]["role"] != "tool"), len(messages))
            left, start = left - size(messages[start:end]), end
        return Sent(body(messages[:1] + messages[start:]))

    def shown(self, session: Session, at: int) -> list[Message]:
        return [
            message | {"content": CLEARED} if message.get("tool_call_id") in self.cleared else message
            for message in session.messages[:at]
        ]


@dataclass
class Summarised(AsIs):
    """As clients do: at nine tenths of the window the model sums up what was done, and goes on with that and the newest steps."""

    name: str = "summarised at the limit"
    summary: str = ""
    start: int = 0

    def send(self, session: Session, at: int) -> Sent:
        messages, helper = self.shown(session, at), (0, 0)
        if size(messages) > self.window * 0.9:
            before = size(messages)
            start = at - 1
            while session.messages[start]["role"] == "tool":
                start -= 1
            gone = session.messages[self.start : start]
            self.summary, self.start = self.summed_up(gone), start
            self.moved += sum(message["role"] == "tool" for message in gone)
            messages = self.shown(session, at)
            helper = (before, tokens(self.summary))
        return Sent(body(messages), helper=helper)

    def shown(self, session: Session, at: int) -> list[Message]:
        if not self.summary:
            return session.messages[:at]
        return [{"role": "user", "content": self.summary}, *session.messages[self.start : at]]

    def summed_up(self, gone: Sequence[Message]) -> str:
        """What such a summary holds: the requests, files touched and commands, errors, what was said last."""
        lines = [self.summary] if self.summary else ["This session goes on from an earlier one. Summary:"]
        seen: set[str] = set()
        for message in gone:
            if message["role"] == "user" and message["content"] != self.summary:
                lines.append(f"The user asked: {message['content']}")
            for call in message.get("tool_calls", []):
                arguments = json.loads(call["function"]["arguments"] or "{}")
                what = str(arguments.get("file_path") or arguments.get("command") or "")[:120]
                if what and what not in seen:
                    seen.add(what)
                    lines.append(f"- {call['function']['name']} {what}")
            if message["role"] == "tool":
                lines += [
                    f"- error: {line[:160]}"
                    for line in re.findall(r"^\w*Error\b.*$", message["content"] or "", re.M)[:2]
                ]
            elif message["role"] == "assistant" and message.get("content"):
                lines.append(f"- {message['content'][:200]}")
        text = "\n".join(lines)
        return text if tokens(text) <= 6000 else text[: 6000 * 2] + "\n…\n" + text[-6000 * 2 :]


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

    def send(self, session: Session, at: int) -> Sent:
        started = time.perf_counter()
        self.append(session.messages[self.appended : at])
        self.appended = at
        made = self.session.compile_anthropic(tools=TOOLS)
        seconds = time.perf_counter() - started
        return Sent(made, seconds=seconds)

    def append(self, messages: Sequence[Message]) -> None:
        if messages:
            self.session.append(list(messages))

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
