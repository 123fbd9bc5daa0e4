"""Calls of our tools in Responses: held back, answered, and the model asked again within the same response."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from .additions import Added
from .dialect import Item
from .spans import Edit, body_of, edited, quoted
from .sse import Event

ENDS = ("response.completed", "response.incomplete", "response.failed")
COUNTS = ("input_tokens", "output_tokens", "total_tokens")


@dataclass
class Round:
    """One answer of the upstream: its items in order, those of ours by their place."""

    items: list[Item] = field(default_factory=list)
    ours: list[Item] = field(default_factory=list)
    closing: list[Event] = field(default_factory=list)
    answer: Item = field(default_factory=dict)
    first: int = 0

    def finished(self) -> list[Item]:
        """Calls of ours that can be answered."""
        return [item for item in self.ours if _arguments(item) is not None]


class ResponsesRounds:
    """Reads an answer event by event and says what the client gets. Items and events are numbered as the client sees
    them."""

    def __init__(self, tools: set[str]) -> None:
        self.tools = tools
        self.rounds: list[Round] = []
        self.visible: list[Item] = []
        self.usage: dict[str, int] = {}
        self.streamed = True
        self._sent = 0
        self._place: dict[int, int | None] = {}

    def begin(self) -> None:
        """A new answer of the upstream."""
        self.rounds.append(Round(first=len(self.visible)))
        self._place = {}

    @property
    def _now(self) -> Round:
        return self.rounds[-1]

    @property
    def done(self) -> bool:
        """Has the answer come to its end?"""
        return bool(self._now.closing)

    def finished(self) -> list[tuple[str, str, Any]]:
        """The calls of ours that this answer makes: id, name, arguments."""
        return [(item["call_id"], item["name"], _arguments(item)) for item in self._now.finished()]

    def arguments(self) -> list[str]:
        """Their arguments, in JSON."""
        return [quoted(item.get("arguments") or "") for item in self._now.finished()]

    def feed(self, event: Event) -> bytes:
        """An event; what of it goes to the client at once."""
        data = event.json()
        kind = str(data.get("type")) if isinstance(data, dict) else ""
        if not kind:
            return event.raw
        if kind in ENDS:
            self._now.closing.append(event)
            self._now.answer = data.get("response") or {}
            return b""
        if kind in ("response.created", "response.in_progress", "response.queued") and len(self.rounds) > 1:
            return b""
        at = data.get("output_index")
        if not isinstance(at, int):
            return self._numbered(event, data)
        if kind == "response.output_item.added":
            item = data.get("item") or {}
            held = item.get("type") == "function_call" and item.get("name") in self.tools
            self._place[at] = None if held else len(self.visible)
            if not held:
                self.visible.append(item)
        if kind == "response.output_item.done":
            self._done(at, data.get("item") or {})
        place = self._place.get(at)
        return b"" if place is None else self._numbered(event, data, place)

    def _done(self, at: int, item: Item) -> None:
        place = self._place.get(at)
        self._now.items.append(item)
        if place is None:
            self._now.ours.append(item)
        else:
            self.visible[place] = item

    def _numbered(self, event: Event, data: Item, place: int | None = None) -> bytes:
        """An event with the client's numbers, everything else as it came."""
        raw = event.raw
        if "sequence_number" in data:
            raw = _set(raw, "sequence_number", data["sequence_number"], self._sent)
        if place is not None:
            raw = _set(raw, "output_index", data["output_index"], place)
        self._sent += 1
        return raw

    def again(self, limit: int) -> bool:
        """Is the model to be asked again: did it call our tools and nothing else, and may it?"""
        others = any(str(item.get("type")).endswith("_call") for item in self.visible[self._now.first :])
        return bool(self._now.finished()) and not others and len(self.rounds) <= limit

    def next(self, sent: bytes, results: list[str]) -> bytes:
        """The request that goes on with the answers of our tools."""
        body = body_of(sent)
        more = ",".join(quoted(item) for item in _with_results(self._now, self._now.items, results))
        given = body.fields["input"]
        if isinstance(given.value, str):
            said = f'{{"type":"message","role":"user","content":{body.text[given.start : given.end]}}}'
            return edited(body.text, [Edit(given.start, given.end, f"[{said},{more}]")]).encode()
        return edited(body.text, [Edit(given.end - 1, given.end - 1, "," + more)]).encode()

    def spent(self) -> None:
        """Adds what a round cost that the client does not see the end of."""
        for name, count in _counts(self._now).items():
            self.usage[name] = self.usage.get(name, 0) + count

    def total(self) -> dict[str, int]:
        """What all rounds cost."""
        return {name: count + self.usage.get(name, 0) for name, count in _counts(self._now).items()}

    def items(self) -> list[Item]:
        """The answer as the client knows it."""
        return list(self.visible)

    def whole(self, answer: Item) -> Item:
        """The last answer, in one piece, as the client gets it."""
        usage = (answer.get("usage") or {}) | self.total()
        first = self.rounds[0].answer
        same = {name: first[name] for name in ("id", "created_at") if name in first}
        return answer | {"output": self.visible, "usage": usage} | same

    def ended(self) -> bytes:
        """The end of the answer as the client gets it."""
        out = []
        for event in self._now.closing:
            data = event.json()
            if len(self.rounds) == 1 and not self._now.ours:
                out.append(event.raw)
                continue
            data["response"] = self.whole(data.get("response") or {})
            if "sequence_number" in data:
                data["sequence_number"] = self._sent
            out.append(f"event: {data['type']}\ndata: {quoted(data)}\n\n".encode())
        return b"".join(out)

    def events_of_whole(self, raw: bytes) -> list[Event]:
        """An answer in one piece as the events that would have told it."""
        answer = json.loads(raw)
        self.streamed = False
        told: list[Item] = []
        for at, item in enumerate(answer.get("output") or []):
            told += [
                {"type": f"response.output_item.{what}", "output_index": at, "item": item} for what in ("added", "done")
            ]
        told.append({"type": "response.completed", "response": answer})
        return [Event(b"", quoted(t)) for t in told]

    def error(self, body: bytes) -> bytes:
        """An error in the midst of a stream."""
        try:
            told = json.loads(body).get("error") or {}
        except (ValueError, AttributeError):
            told = {"message": body.decode("utf-8", "replace")}
        what = {"type": "error", "sequence_number": self._sent, "param": None, "code": None, "message": ""} | told
        return f"event: error\ndata: {quoted(what | {'type': 'error'})}\n\n".encode()

    def added(self, results: list[list[str]]) -> Added:
        """What the client does not know of it: calls and their results between its items, by how many of them come
        before. A call stands right behind what was thought before it."""
        kept = []
        for now, told in zip(self.rounds, results):
            at = now.first
            for item in now.items:
                if item not in now.ours:
                    at += 1
                elif item in now.finished():
                    pair = _with_results(now, [item], told)
                    kept.append({"at": at, "text": ",".join(quoted(one) for one in pair)})
        return {"between": kept, "count": len(self.visible)}


def _with_results(now: Round, items: list[Item], results: list[str]) -> list[Item]:
    """Items, each finished call of ours followed by what it answered."""
    answers = dict(zip((item["call_id"] for item in now.finished()), results))
    told: list[Item] = []
    for item in items:
        if item in now.ours and item.get("call_id") not in answers:
            continue
        told.append(item)
        if item in now.ours:
            told.append(
                {"type": "function_call_output", "call_id": item["call_id"], "output": answers[item["call_id"]]}
            )
    return told


def _counts(now: Round) -> dict[str, int]:
    usage = now.answer.get("usage") or {}
    return {name: usage[name] for name in COUNTS if isinstance(usage.get(name), int)}


def _set(raw: bytes, name: str, old: int, new: int) -> bytes:
    if old == new:
        return raw
    return re.sub(rb'("%s"\s*:\s*)%d(?=\s*[,}])' % (name.encode(), old), rb"\g<1>%d" % new, raw, count=1)


def _arguments(item: Item) -> Any:
    try:
        return json.loads(item.get("arguments") or "{}")
    except ValueError:
        return None
