"""Calls of our tools in chat completions: held back, answered, and the model asked again within the same message.

A content is one text here, so what the model said before a call can't be told from what it said after it by its place. The
rounds before are put back as messages ahead of the client's, whose content is then that of the last round.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from .additions import Added
from .dialect import Item
from .spans import Edit, body_of, edited, quoted
from .sse import Event

COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


@dataclass
class Round:
    """One answer of the upstream. `calls` by their index upstream."""

    text: str = ""
    calls: dict[int, Item] = field(default_factory=dict)
    ours: set[int] = field(default_factory=set)
    closing: list[Event] = field(default_factory=list)
    usage: Item = field(default_factory=dict)

    def finished(self) -> list[Item]:
        """Calls of ours that can be answered."""
        return [self.calls[at] for at in sorted(self.ours) if _arguments(self.calls[at]) is not None]

    def others(self) -> list[Item]:
        """The client's own."""
        return [self.calls[at] for at in sorted(self.calls) if at not in self.ours]


class ChatRounds:
    """Reads an answer chunk by chunk and says what the client gets."""

    def __init__(self, tools: set[str]) -> None:
        self.tools = tools
        self.rounds: list[Round] = []
        self.usage: dict[str, int] = {}
        self.streamed = True
        self._same: Item = {}

    def begin(self) -> None:
        """A new answer of the upstream."""
        self.rounds.append(Round())

    @property
    def _now(self) -> Round:
        return self.rounds[-1]

    @property
    def done(self) -> bool:
        """Has the answer come to its end?"""
        return any(event.data == "[DONE]" for event in self._now.closing)

    def finished(self) -> list[tuple[str, str, Any]]:
        """The calls of ours that this answer makes: id, name, arguments."""
        return [(c["id"], c["function"]["name"], _arguments(c)) for c in self._now.finished()]

    def arguments(self) -> list[str]:
        """Their arguments, in JSON."""
        return [quoted(call["function"]["arguments"]) for call in self._now.finished()]

    def feed(self, event: Event) -> bytes:
        """A chunk; what of it goes to the client at once."""
        now, data = self._now, event.json()
        if event.data == "[DONE]" or now.closing:
            now.closing.append(event)
        if not isinstance(data, dict):
            return b"" if now.closing else event.raw
        self._same = self._same or _named(data)
        now.usage = data.get("usage") or now.usage
        choice = next((c for c in data.get("choices") or [] if not c.get("index")), None)
        if now.closing or choice is None:
            return b"" if now.closing else self._chunk(event, data)
        delta = choice.get("delta") or {}
        now.text += delta.get("content") or ""
        if choice.get("finish_reason"):
            now.closing.append(event)
            return b""
        parts = delta.get("tool_calls")
        if not parts:
            first = len(self.rounds) == 1
            told = first or delta.get("content") or set(delta) - {"role", "content"}
            return self._chunk(event, data) if told else b""
        kept = [part for part in map(self._part, parts) if part is not None]
        if kept == parts:
            return self._chunk(event, data)
        if not kept:
            return b""
        choice["delta"] = delta | {"tool_calls": kept}
        return f"data: {quoted(data | self._same)}\n\n".encode()

    def _chunk(self, event: Event, data: Item) -> bytes:
        """A chunk as it came; of a later round, as one of the message that the first began."""
        return event.raw if len(self.rounds) == 1 else f"data: {quoted(data | self._same)}\n\n".encode()

    def _part(self, part: Item) -> Item | None:
        """A piece of a call as the client gets it, None for a call of ours."""
        at, function = part.get("index") or 0, part.get("function") or {}
        call = self._now.calls.setdefault(at, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = part.get("id") or call["id"]
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""
        if call["function"]["name"] in self.tools:
            self._now.ours.add(at)
            return None
        place = sum(1 for known in self._now.calls if known < at and known not in self._now.ours)
        return part if place == at else part | {"index": place}

    def again(self, limit: int) -> bool:
        """Is the model to be asked again: did it call our tools and nothing else, and may it?"""
        return bool(self._now.finished()) and not self._now.others() and len(self.rounds) <= limit

    def next(self, sent: bytes, results: list[str]) -> bytes:
        """The request that goes on with the answers of our tools."""
        body = body_of(sent)
        end = body.lists["messages"][-1].end
        return edited(body.text, [Edit(end, end, "," + _told(self._now, results))]).encode()

    def spent(self) -> None:
        """Adds what a round cost that the client does not see the end of."""
        for name in COUNTS:
            if isinstance(self._now.usage.get(name), int):
                self.usage[name] = self.usage.get(name, 0) + self._now.usage[name]

    def total(self) -> dict[str, int]:
        """What all rounds cost."""
        told = {name: self._now.usage.get(name) for name in COUNTS}
        return {name: count + self.usage.get(name, 0) for name, count in told.items() if isinstance(count, int)}

    def ended(self) -> bytes:
        """The end of the message as the client gets it."""
        if len(self.rounds) == 1 and not self._now.ours:
            return b"".join(event.raw for event in self._now.closing)
        out = []
        for event in self._now.closing:
            data = event.json()
            if isinstance(data, dict):
                for choice in data.get("choices") or []:
                    if choice.get("finish_reason") == "tool_calls" and not self._now.others():
                        choice["finish_reason"] = "stop"
                if data.get("usage"):
                    data["usage"] |= self.total()
                out.append(f"data: {quoted(data | self._same)}\n\n".encode())
            else:
                out.append(event.raw)
        return b"".join(out)

    def items(self) -> list[Item]:
        """The message as the client knows it."""
        text = "".join(now.text for now in self.rounds)
        others = self._now.others()
        return [{"role": "assistant", "content": text or None} | ({"tool_calls": others} if others else {})]

    def whole(self, answer: Item) -> Item:
        """The last answer, in one piece, as the client gets it."""
        choice = answer["choices"][0]
        message = {k: v for k, v in choice["message"].items() if k != "tool_calls"} | self.items()[0]
        stop = (
            "stop"
            if choice.get("finish_reason") == "tool_calls" and not self._now.others()
            else choice.get("finish_reason")
        )
        told = [choice | {"message": message, "finish_reason": stop}, *answer["choices"][1:]]
        return answer | {"choices": told, "usage": (answer.get("usage") or {}) | self.total()} | self._same

    def events_of_whole(self, raw: bytes) -> list[Event]:
        """An answer in one piece as the chunks that would have told it."""
        answer = json.loads(raw)
        self.streamed = False
        self._same = self._same or _named(answer)
        choice = (answer.get("choices") or [{}])[0]
        message = choice.get("message") or {}
        calls = [call | {"index": at} for at, call in enumerate(message.get("tool_calls") or [])]
        delta = {"content": message.get("content")} | ({"tool_calls": calls} if calls else {})
        told: list[Item] = [{"choices": [{"index": 0, "delta": delta}]}]
        told.append({"choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"}]})
        told.append({"choices": [], "usage": answer.get("usage") or {}})
        return [Event(b"", quoted(t)) for t in told] + [Event(b"", "[DONE]")]

    def error(self, body: bytes) -> bytes:
        """An error in the midst of a stream."""
        return b"data: " + b" ".join(body.splitlines()) + b"\n\n"

    def added(self, results: list[list[str]]) -> Added:
        """What the client does not know of it: rounds ahead of its message, calls beside its own."""
        last = self._now
        before = [_told(now, told) for now, told in zip(self.rounds, results) if now is not last and now.finished()]
        added: Added = {"before": ",".join(before), "rest": last.text}
        if last.finished() and last.others():
            added["beside"] = ",".join(quoted(call) for call in last.finished())
            added["results"] = _results(last, results[-1])
        elif last.finished():
            added["before"] = ",".join([*before, _told(last, results[-1])])
        return added


def _named(answer: Item) -> Item:
    """What all chunks of a message say of it."""
    return {name: answer[name] for name in ("id", "created") if name in answer}


def _told(now: Round, results: list[str]) -> str:
    """A round as messages: what was said and called, what that answered."""
    said = {"role": "assistant", "content": now.text or None, "tool_calls": now.finished()}
    return quoted(said) + "," + _results(now, results)


def _results(now: Round, results: list[str]) -> str:
    told = zip(now.finished(), results)
    return ",".join(quoted({"role": "tool", "tool_call_id": call["id"], "content": text}) for call, text in told)


def _arguments(call: Item) -> Any:
    try:
        return json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        return None
