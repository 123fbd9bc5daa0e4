"""Calls of our tools in Anthropic's answers: held back, answered, and the model asked again within the same message."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from .additions import Added
from .dialect import Item
from .spans import Edit, body_of, edited, quoted
from .sse import Event

COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@dataclass
class Call:
    """A call of ours: `at` is how many blocks the client has seen before it."""

    id: str
    name: str
    at: int
    block: Item
    parts: list[str] = field(default_factory=list)

    @property
    def input(self) -> Any:
        """Its arguments, None where the model did not finish them."""
        told = "".join(self.parts)
        try:
            return json.loads(told) if told else self.block.get("input") or {}
        except ValueError:
            return None

    def json(self) -> str:
        """The call as a block of a message."""
        return quoted({"type": "tool_use", "id": self.id, "name": self.name, "input": self.input})


@dataclass
class Round:
    """One answer of the upstream within the client's message."""

    calls: list[Call] = field(default_factory=list)
    closing: list[Event] = field(default_factory=list)
    usage: Item = field(default_factory=dict)
    others: bool = False
    first: int = 0

    @property
    def finished(self) -> list[Call]:
        """Calls that can be answered."""
        return [call for call in self.calls if call.input is not None]


class Rounds:
    """Reads an answer event by event and says what the client gets. Blocks are numbered as the client sees them."""

    def __init__(self, tools: set[str]) -> None:
        self.tools = tools
        self.rounds: list[Round] = []
        self.visible: list[Item] = []
        self.usage: dict[str, int] = {}
        self.streamed = True
        self._now = Round()
        self._place: dict[int, int | Call] = {}

    def finished(self) -> list[tuple[str, str, Any]]:
        """The calls of ours that this answer makes: id, name, arguments."""
        return [(call.id, call.name, call.input) for call in self._now.finished]

    def arguments(self) -> list[str]:
        """Their arguments, in JSON."""
        return [quoted(call.input) for call in self._now.finished]

    def events_of_whole(self, raw: bytes) -> list[Event]:
        """An answer in one piece as the events that would have told it."""
        answer = json.loads(raw)
        told: list[Item] = [{"type": "message_start", "message": answer | {"content": []}}]
        for at, block in enumerate(answer.get("content") or []):
            told += [{"type": "content_block_start", "index": at, "content_block": block}]
            told += [{"type": "content_block_stop", "index": at}]
        delta = {"stop_reason": answer.get("stop_reason"), "stop_sequence": answer.get("stop_sequence")}
        told += [
            {"type": "message_delta", "delta": delta, "usage": answer.get("usage") or {}},
            {"type": "message_stop"},
        ]
        self.streamed = False
        return [Event(f"data: {quoted(t)}\n\n".encode(), quoted(t)) for t in told]

    def error(self, body: bytes) -> bytes:
        """An error in the midst of a stream."""
        return b"event: error\ndata: " + b" ".join(body.splitlines()) + b"\n\n"

    def begin(self) -> None:
        """A new answer of the upstream."""
        self._now = Round(first=len(self.visible))
        self._place = {}
        self.rounds.append(self._now)

    @property
    def done(self) -> bool:
        """Has the answer come to its end?"""
        return any('"message_stop"' in event.data for event in self._now.closing)

    def feed(self, event: Event) -> bytes:
        """An event; what of it goes to the client at once."""
        data = event.json()
        kind = data.get("type") if isinstance(data, dict) else None
        if kind == "message_start":
            self._now.usage = dict((data.get("message") or {}).get("usage") or {})
            return event.raw if len(self.rounds) == 1 else b""
        if kind in ("message_delta", "message_stop"):
            self._now.closing.append(event)
            return b""
        if kind == "content_block_start":
            return self._started(event, data)
        if kind in ("content_block_delta", "content_block_stop"):
            place = self._place.get(data.get("index"))
            if isinstance(place, Call):
                place.parts.append(str((data.get("delta") or {}).get("partial_json", "")))
                return b""
            if place is None:
                return event.raw
            _grow(self.visible[place], data)
            return renumbered(event, data["index"], place)
        return event.raw

    def _started(self, event: Event, data: Item) -> bytes:
        block = data.get("content_block") or {}
        if block.get("type") == "tool_use" and block.get("name") in self.tools:
            call = Call(str(block.get("id")), block["name"], len(self.visible), block)
            self._place[data["index"]] = call
            self._now.calls.append(call)
            return b""
        self._now.others |= block.get("type") == "tool_use"
        self._place[data["index"]] = len(self.visible)
        self.visible.append(dict(block))
        return renumbered(event, data["index"], len(self.visible) - 1)

    def again(self, limit: int) -> bool:
        """Is the model to be asked again: did it call our tools and nothing else, and may it?"""
        return bool(self._now.finished) and not self._now.others and len(self.rounds) <= limit

    def next(self, sent: bytes, results: list[str]) -> bytes:
        """The request that goes on with the answers of our tools."""
        body = body_of(sent)
        last = body.lists["messages"][-1]
        now = self._now
        said = [quoted(_whole(block)) for block in self.visible[now.first :]]
        said += [call.json() for call in now.finished]
        more = f',{{"role":"assistant","content":[{",".join(said)}]}},{{"role":"user","content":[{answers(now, results)}]}}'
        return edited(body.text, [Edit(last.end, last.end, more)]).encode()

    def ended(self) -> bytes:
        """The end of the message as the client gets it: what was held back of it, usage of all rounds summed."""
        out = []
        only = bool(self._now.calls) and not self._now.others
        for event in self._now.closing:
            data = event.json()
            if data.get("type") == "message_delta" and (len(self.rounds) > 1 or only):
                for name in COUNTS:
                    if isinstance((data.get("usage") or {}).get(name), int):
                        data["usage"][name] += self.usage.get(name, 0)
                if only and (data.get("delta") or {}).get("stop_reason") == "tool_use":
                    data["delta"]["stop_reason"] = "end_turn"
                out.append(f"event: message_delta\ndata: {quoted(data)}\n\n".encode())
            else:
                out.append(event.raw)
        return b"".join(out)

    def _cost(self) -> dict[str, int]:
        """What the answer at hand cost."""
        told = dict(self._now.usage)
        for event in self._now.closing:
            told |= (event.json() or {}).get("usage") or {}
        return {name: told[name] for name in COUNTS if isinstance(told.get(name), int)}

    def spent(self) -> None:
        """Adds what a round cost that the client does not see the end of."""
        for name, count in self._cost().items():
            self.usage[name] = self.usage.get(name, 0) + count

    def items(self) -> list[Item]:
        """The message as the client knows it."""
        return [{"role": "assistant", "content": [_whole(block) for block in self.visible]}]

    def total(self) -> dict[str, int]:
        """What all rounds cost."""
        return {name: count + self.usage.get(name, 0) for name, count in self._cost().items()}

    def whole(self, answer: Item) -> Item:
        """The last answer, in one piece, as the client gets it."""
        only = bool(self._now.calls) and not self._now.others
        stop = "end_turn" if only and answer.get("stop_reason") == "tool_use" else answer.get("stop_reason")
        usage = (answer.get("usage") or {}) | self.total()
        return answer | {"content": self.items()[0]["content"], "stop_reason": stop, "usage": usage}

    def added(self, results: list[list[str]]) -> Added:
        """What the client does not know of it, to be put back: see additions.py."""
        kept, last = [], ""
        for now, told in zip(self.rounds, results):
            if not now.finished:
                continue
            calls = ",".join(call.json() for call in now.finished)
            if now is self.rounds[-1]:
                kept.append({"at": now.finished[0].at, "text": calls, "splits": False})
                last = answers(now, told)
            else:
                text = f'{calls}]}},{{"role":"user","content":[{answers(now, told)}]}},{{"role":"assistant","content":['
                kept.append({"at": now.finished[-1].at, "text": text, "splits": True})
        return {"woven": kept, "blocks": len(self.visible)} | ({"results": last} if last else {})


def answers(now: Round, results: list[str]) -> str:
    """Results of a round's calls, as blocks."""
    told = zip(now.finished, results)
    return ",".join(quoted({"type": "tool_result", "tool_use_id": call.id, "content": text}) for call, text in told)


def renumbered(event: Event, old: int, new: int) -> bytes:
    """An event with another index, everything else as it came."""
    if old == new:
        return event.raw
    return re.sub(rb'("index"\s*:\s*)%d(?=\s*[,}])' % old, rb"\g<1>%d" % new, event.raw, count=1)


def _grow(block: Item, data: Item) -> None:
    delta = data.get("delta") or {}
    for name in ("text", "thinking", "signature"):
        if name in delta and delta.get("type") == {"signature": "signature_delta"}.get(name, f"{name}_delta"):
            block[name] = delta[name] if name == "signature" else str(block.get(name, "")) + delta[name]
    if delta.get("type") == "input_json_delta":
        block["_input"] = block.get("_input", "") + str(delta.get("partial_json", ""))
    elif delta.get("type") == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta.get("citation")]


def _whole(block: Item) -> Item:
    """A block as it is sent back to the API."""
    told = {key: value for key, value in block.items() if key != "_input"}
    if "_input" in block:
        try:
            told["input"] = json.loads(block["_input"] or "{}")
        except ValueError:
            told["input"] = {}
    return told
