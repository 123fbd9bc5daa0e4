"""Calls of our tools in Anthropic's answers: held back, answered, and the model asked again within the same message."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from . import rounds
from .additions import Added
from .dialect import Item
from .rounds import NO_ANSWER, BaseRounds, encode, mend, parse, quote
from .spans import Body, Edit, quoted
from .sse import Event


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
        """Its arguments, None where they are no JSON."""
        given = "".join(self.parts) or self.block.get("input") or {}
        return parse(given) if isinstance(given, str) else given

    @property
    def arguments(self) -> str:
        """Its arguments as they are sent back: the API takes an object only."""
        return quote(self.input if isinstance(self.input, dict) else {})

    def json(self) -> str:
        """The call as a block of a message."""
        head = quote({"type": "tool_use", "id": self.id, "name": self.name})
        return f'{head[:-1]},"input":{self.arguments}}}'


@dataclass
class Block:
    """A block as the client sees it: how it began, and the texts that came for its members since."""

    begun: Item
    parts: dict[str, list[str]] = field(default_factory=dict)

    def add(self, delta: Item) -> bool:
        """Adds a delta. Returns False where the block can't be told again: the delta is of a kind that is not known
        here, and neither sets what was empty nor adds to a text."""
        kind, told = delta.get("type"), {k: v for k, v in delta.items() if k != "type" and v is not None}
        if kind == "citations_delta":
            self.begun["citations"] = [*(self.begun.get("citations") or []), delta.get("citation")]
        elif kind in ("signature_delta", "compaction_delta"):
            self.begun |= told
        elif any(
            self.begun.get(k) and not (isinstance(v, str) and isinstance(self.begun[k], str)) for k, v in told.items()
        ):
            return False
        else:
            for name, value in told.items():
                if isinstance(value, str):
                    self.parts.setdefault(name, []).append(value)
                else:
                    self.begun[name] = value
        return True

    def told(self) -> Item:
        """Returns the block as it is sent back to the API."""
        parts = {name: "".join(texts) for name, texts in self.parts.items()}
        given = parts.pop("partial_json", "")
        item = self.begun | {name: str(self.begun.get(name) or "") + text for name, text in parts.items()}
        return item | {"input": parse(given) or {}} if given else item

    def is_shown(self) -> bool:
        """Does it say something, or ask the client for something?"""
        return self.begun.get("type") == "tool_use" or bool(str(self.told().get("text") or "").strip())


@dataclass
class Round(rounds.Round[Call]):
    """One answer. `others`: it calls tools of the client. `opaque`: it has a block that can't be told again.
    `first`: how many blocks the client had before it."""

    others: bool = False
    opaque: bool = False
    first: int = 0


class Rounds(BaseRounds[Round]):
    """Blocks are numbered as the client sees them."""

    counts = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

    def __init__(self, tools: set[str]) -> None:
        super().__init__(tools)
        self.visible: list[Block] = []
        self._note = b""
        self._place: dict[Any, int | Call] = {}

    def _new_round(self) -> Round:
        self._place = {}
        return Round(first=len(self.visible))

    def arguments(self) -> list[str]:
        """Returns the arguments of our calls as the JSON in which they are sent back."""
        return [call.arguments for call in self._now.calls]

    def events_of_whole(self, raw: bytes) -> list[Event]:
        """Returns an answer in one piece as the events that would have told it."""
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
        return [Event(b"", quoted(t)) for t in told]

    def error(self, body: bytes) -> bytes:
        """Returns an error in the midst of a stream."""
        return b"event: error\ndata: " + b" ".join(body.splitlines()) + b"\n\n"

    @property
    def done(self) -> bool:
        """Has the answer come to its end? Some servers leave out the last event."""
        return any(
            data.get("type") == "message_stop" or (data.get("delta") or {}).get("stop_reason")
            for data in (event.json() for event in self._now.closing)
        )

    def _read(self, event: Event) -> bytes:
        data = event.json()
        kind = data.get("type") if isinstance(data, dict) else None
        if kind == "message_start":
            self._now.usage = dict((data.get("message") or {}).get("usage") or {})
            return event.raw if len(self.rounds) == 1 else b""
        if kind in ("message_delta", "message_stop"):
            self._now.usage |= data.get("usage") or {}
            self._now.closing.append(event)
            return self._hold(event)
        if kind == "content_block_start":
            return self._start_block(event, data)
        if kind in ("content_block_delta", "content_block_stop"):
            place, delta = self._place.get(data.get("index")), data.get("delta") or {}
            if isinstance(place, Call):
                place.parts.append(str(delta.get("partial_json") or ""))
                return self._hold(event)
            if place is None:
                return event.raw
            self._now.opaque |= not self.visible[place].add(delta)
            return renumber(event, data, place)
        return event.raw

    def _hold(self, event: Event) -> bytes:
        self._withheld.append(event.raw)
        return b""

    def _start_block(self, event: Event, data: Item) -> bytes:
        block = data.get("content_block") or {}
        if block.get("type") == "tool_use" and block.get("name") in self.tools:
            call = Call(self._unique(block.get("id")), block["name"], len(self.visible), block)
            self._place[data.get("index")] = call
            self._now.calls.append(call)
            return self._hold(event)
        self._now.others |= block.get("type") == "tool_use"
        self._place[data.get("index")] = len(self.visible)
        self.visible.append(Block(dict(block)))
        return renumber(event, data, len(self.visible) - 1)

    def _can_go_on(self) -> bool:
        return not self._now.others and not self._now.opaque

    def _continue(self, body: Body, results: list[str]) -> list[Edit]:
        now, end = self._now, body.lists["messages"][-1].end
        blocks = [block.told() for block in self.visible[now.first :]]
        # An empty text, which a model may well say before a call, is refused in a request.
        said = [quote(block) for block in blocks if block.get("type") != "text" or str(block.get("text")).strip()]
        said += [call.json() for call in now.calls]
        more = f',{{"role":"assistant","content":[{",".join(said)}]}}'
        return [Edit(end, end, more + f',{{"role":"user","content":[{answers(now, results)}]}}')]

    def finish(self) -> bytes:
        """Returns the end of the message as the client gets it: what was held back of it, usage of all rounds
        summed."""
        self._fill()
        out, note = [], self._note
        for event in self._now.closing:
            data = event.json()
            if data.get("type") == "message_delta" and self.is_touched:
                out.append(note)
                note = b""
                usage = data.get("usage") or {}
                data["usage"] = usage | {k: v for k, v in self.total().items() if isinstance(usage.get(k), int)}
                if (
                    self._now.calls
                    and not self._now.others
                    and (data.get("delta") or {}).get("stop_reason") == "tool_use"
                ):
                    data["delta"]["stop_reason"] = "end_turn"
                out.append(_event(data))
            else:
                out.append(event.raw)
        return b"".join(out)

    def _fill(self) -> None:
        """Gives a message that would be empty a block that says so."""
        if not self.is_touched or not self.done or any(block.is_shown() for block in self.visible):
            return
        at = len(self.visible)
        self.visible.append(Block({"type": "text", "text": NO_ANSWER}))
        told: list[Item] = [
            {"type": "content_block_start", "index": at, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": at, "delta": {"type": "text_delta", "text": NO_ANSWER}},
            {"type": "content_block_stop", "index": at},
        ]
        self._note = b"".join(map(_event, told))

    def items(self) -> list[Item]:
        """Returns the message as the client knows it."""
        self._fill()
        return [{"role": "assistant", "content": [mend(block.told()) for block in self.visible]}]

    def whole(self, answer: Item) -> Item:
        """Returns the last answer, in one piece, as the client gets it."""
        only = bool(self._now.calls) and not self._now.others
        stop = "end_turn" if only and answer.get("stop_reason") == "tool_use" else answer.get("stop_reason")
        usage = (answer.get("usage") or {}) | self.total()
        return answer | {"content": self.items()[0]["content"], "stop_reason": stop, "usage": usage}

    def _collect_additions(self, results: list[list[str]]) -> Added:
        kept, last = [], ""
        for at, (now, told) in enumerate(zip(self.rounds, results), 1):
            calls = ",".join(call.json() for call in now.calls)
            if now is self.rounds[-1]:
                kept.append({"at": now.calls[0].at, "text": calls, "splits": False})
                last = answers(now, told)
            else:
                text = f'{calls}]}},{{"role":"user","content":[{answers(now, told)}]}},{{"role":"assistant","content":['
                kept.append({"at": self.rounds[at].first, "text": text, "splits": True})
        return {"woven": kept, "blocks": len(self.visible)} | ({"results": last} if last else {})


def answers(now: Round, results: list[str]) -> str:
    """Returns the results of a round's calls, as blocks."""
    told = zip(now.calls, results)
    return ",".join(quote({"type": "tool_result", "tool_use_id": call.id, "content": text}) for call, text in told)


def renumber(event: Event, data: Item, new: int) -> bytes:
    """Returns an event with another index, everything else as it came."""
    old = data.get("index")
    if old == new or not isinstance(old, int):
        return event.raw
    raw, count = re.subn(rb'("index"\s*:\s*)%d(?=\s*[,}])' % old, rb"\g<1>%d" % new, event.raw)
    return raw if count == 1 else _event(data | {"index": new})


def _event(data: Item) -> bytes:
    return b"event: " + str(data["type"]).encode() + b"\ndata: " + encode(data) + b"\n\n"
