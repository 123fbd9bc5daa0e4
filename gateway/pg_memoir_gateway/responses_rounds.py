"""Calls of our tools in Responses: held back, answered, and the model asked again within the same response."""

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

ENDS = ("response.completed", "response.incomplete", "response.failed")

HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
"""Calls that the provider answers within its response."""


@dataclass
class Call:
    """A call of ours. `item`: as it came when it was whole."""

    item: Item
    id: str

    @property
    def name(self) -> str:
        """The tool's name."""
        return str(self.item["name"])

    @property
    def input(self) -> Any:
        """Its arguments, None where they are no JSON."""
        given = self.item.get("arguments") or ""
        return parse(given) if isinstance(given, str) else given

    @property
    def arguments(self) -> str:
        """Its arguments as the text that is sent back."""
        given = self.item.get("arguments") or "{}"
        return (given if isinstance(given, str) else quote(given)) if isinstance(self.input, dict) else "{}"

    def told(self) -> Item:
        """Returns the call as it is sent back. It has no id of its own: with one, OpenAI asks for the thought before
        it."""
        return {k: v for k, v in self.item.items() if k != "id"} | {"call_id": self.id, "arguments": self.arguments}


@dataclass
class Round(rounds.Round[Call]):
    """One answer: its items in order, calls of ours among them. `first`: how many items the client had before it."""

    items: list[Item | Call] = field(default_factory=list)
    answer: Item = field(default_factory=dict)
    first: int = 0

    def told(self, results: list[str]) -> list[Item]:
        """Returns the items as they are sent back, each call of ours with what it answered. With `store: false` OpenAI
        knows a thought only by its encrypted content, so one without is left out, and the items that came with it go
        without their ids."""
        bare = any(isinstance(item, dict) and _is_bare(item) for item in self.items)
        answers = dict(zip((call.id for call in self.calls), results))
        found: list[Item] = []
        for item in self.items:
            if isinstance(item, Call):
                found += _pair(item, answers.get(item.id, ""))
            elif not _is_bare(item):
                unnamed = bare and item.get("type") == "message"
                found.append({k: v for k, v in item.items() if k != "id" or not unnamed})
        return found


class ResponsesRounds(BaseRounds[Round]):
    """Items and events are numbered as the client sees them."""

    counts = ("input_tokens", "output_tokens", "total_tokens")

    def __init__(self, tools: set[str]) -> None:
        super().__init__(tools)
        self.visible: list[Item] = []
        self._sent = 0
        self._note: list[Item] = []
        self._place: dict[int, int | None] = {}
        self._unnamed: dict[int, list[tuple[Event, Item]]] = {}
        self._at: dict[Any, int] = {}
        self._whole: set[int] = set()
        self._is_numbered = False

    def _new_round(self) -> Round:
        self._place, self._unnamed, self._at, self._whole = {}, {}, {}, set()
        return Round(first=len(self.visible))

    @property
    def done(self) -> bool:
        """Has the answer come to its end?"""
        return bool(self._now.closing)

    def arguments(self) -> list[str]:
        """Returns the arguments of our calls as the JSON in which they are sent back."""
        return [quote(call.arguments) for call in self._now.calls]

    def _read(self, event: Event) -> bytes:
        data = event.json()
        kind = str(data.get("type")) if isinstance(data, dict) else ""
        if not kind:
            return event.raw
        if kind in ENDS:
            return self._end(event, data)
        if kind in ("response.created", "response.in_progress", "response.queued") and len(self.rounds) > 1:
            return b""
        item = data.get("item") if isinstance(data.get("item"), dict) else {}
        at = self._place_of(kind, data, item)
        if at is None:
            return self._renumber(event, data)
        is_begun, is_whole = kind == "response.output_item.added", kind == "response.output_item.done"
        if is_begun and item.get("type") == "function_call" and not item.get("name"):
            self._place.pop(at, None)
            self._unnamed[at] = []
        elif is_begun or is_whole and (at not in self._place or at in self._whole):
            self._seat(at, item)
        if at in self._unnamed and at not in self._place:
            self._unnamed[at].append((event, data))
            return self._hold(event)
        place = self._place.get(at)
        if is_whole:
            self._take(at, item)
        if at in self._place and place is None:
            self._unnamed.pop(at, None)
            return self._hold(event)
        told = [*self._unnamed.pop(at, []), (event, data)]
        for earlier, _ in told[:-1]:
            self._withheld.remove(earlier.raw)
        return b"".join(self._renumber(*one, place) for one in told)

    def _hold(self, event: Event) -> bytes:
        self._withheld.append(event.raw)
        return b""

    def _place_of(self, kind: str, data: Item, item: Item) -> int | None:
        """Returns the upstream's number of the item that an event is about. Where the event has none, its id tells
        it."""
        at, ident = data.get("output_index"), data.get("item_id") or item.get("id") or item.get("call_id")
        if kind.startswith("response.output_item."):
            if not isinstance(at, int):
                at = self._at.get(ident, -1 - len(self._at)) if ident else -1 - len(self._at)
            self._at[ident] = at
        elif not isinstance(at, int):
            at = self._at.get(ident)
        return at

    def _seat(self, at: int, item: Item) -> None:
        """Gives an item its place among those of the client, None for a call of ours."""
        ours = item.get("type") == "function_call" and item.get("name") in self.tools
        self._place[at] = None if ours else len(self.visible)
        self._whole.discard(at)
        if not ours:
            self.visible.append(item)

    def _take(self, at: int, item: Item) -> None:
        """Keeps an item that is whole."""
        place = self._place[at]
        self._whole.add(at)
        if place is None:
            call = Call(item, self._unique(item.get("call_id")))
            self._now.calls.append(call)
            self._now.items.append(call)
        else:
            self._now.items.append(item)
            self.visible[place] = item

    def _end(self, event: Event, data: Item) -> bytes:
        now = self._now
        now.answer = data.get("response") or {}
        now.usage = now.answer.get("usage") or {}
        if not now.items and len(self.visible) == now.first:  # some servers tell the items in the last event only
            for at, item in enumerate(now.answer.get("output") or []):
                self._seat(at, item)
                self._take(at, item)
        now.closing.append(event)
        return self._hold(event)

    def _renumber(self, event: Event, data: Item, place: int | None = None) -> bytes:
        """Returns an event with the client's numbers, everything else as it came."""
        raw = event.raw
        if isinstance(data.get("sequence_number"), int):
            raw = _set(raw, "sequence_number", data["sequence_number"], self._sent)
            self._is_numbered = True
        if place is not None and isinstance(data.get("output_index"), int):
            raw = _set(raw, "output_index", data["output_index"], place)
        self._sent += 1
        return raw

    def _can_go_on(self) -> bool:
        kinds = [str(item.get("type")) for item in self.visible[self._now.first :]]
        asks = any(kind.endswith("_call") and kind not in HOSTED or kind == "mcp_approval_request" for kind in kinds)
        return not asks and self._now.closing[-1].json().get("type") != "response.failed"

    def _continue(self, body: Body, results: list[str]) -> list[Edit]:
        more = ",".join(quote(item) for item in self._now.told(results))
        given = body.fields["input"]
        if isinstance(given.value, str):
            said = f'{{"type":"message","role":"user","content":{body.text[given.start : given.end]}}}'
            return [Edit(given.start, given.end, f"[{said},{more}]")]
        return [Edit(given.end - 1, given.end - 1, "," + more)]

    def items(self) -> list[Item]:
        """Returns the answer as the client knows it."""
        self._fill()
        return [mend(item) for item in self.visible]

    def _fill(self) -> None:
        """Gives an answer that would be empty a message that says so."""
        said = any(item.get("type") not in ("reasoning", *HOSTED) for item in self.visible)
        if said or not self.is_touched or not self.done:
            return
        at, part = len(self.visible), {"type": "output_text", "text": NO_ANSWER, "annotations": []}
        ident = "msg_" + str(self.rounds[0].answer.get("id")).removeprefix("resp_")
        item: Item = {"type": "message", "id": ident, "role": "assistant", "status": "completed"}
        here = {"output_index": at, "item_id": item["id"], "content_index": 0}
        self.visible.append(item | {"content": [part]})
        self._note = [
            {"type": "response.output_item.added", "output_index": at, "item": item | {"content": []}},
            {"type": "response.content_part.added", "part": part | {"text": ""}} | here,
            {"type": "response.output_text.delta", "delta": NO_ANSWER} | here,
            {"type": "response.output_text.done", "text": NO_ANSWER} | here,
            {"type": "response.content_part.done", "part": part} | here,
            {"type": "response.output_item.done", "output_index": at, "item": self.visible[-1]},
        ]

    def whole(self, answer: Item) -> Item:
        """Returns the last answer, in one piece, as the client gets it."""
        self._fill()
        usage = (answer.get("usage") or {}) | self.total()
        first = self.rounds[0].answer
        same = {name: first[name] for name in ("id", "created_at") if name in first}
        return answer | {"output": self.visible, "usage": usage} | same

    def finish(self) -> bytes:
        """Returns the end of the answer as the client gets it."""
        if not self.is_touched:
            return b"".join(event.raw for event in self._now.closing)
        self._fill()
        out = [self._write_event(data) for data in self._note]
        for data in (event.json() for event in self._now.closing):
            out.append(self._write_event(data | {"response": self.whole(data.get("response") or {})}))
        return b"".join(out)

    def _write_event(self, data: Item) -> bytes:
        told = data | ({"sequence_number": self._sent} if self._is_numbered else {})
        self._sent += 1
        return f"event: {data['type']}\ndata: ".encode() + encode(told) + b"\n\n"

    def events_of_whole(self, raw: bytes) -> list[Event]:
        """Returns an answer in one piece as the events that would have told it."""
        answer = json.loads(raw)
        self.streamed = False
        kind = "response.failed" if answer.get("status") == "failed" else "response.completed"
        told: list[Item] = []
        for at, item in enumerate(answer.get("output") or []):
            told += [
                {"type": f"response.output_item.{what}", "output_index": at, "item": item} for what in ("added", "done")
            ]
        told.append({"type": kind, "response": answer})
        return [Event(b"", quoted(t)) for t in told]

    def error(self, body: bytes) -> bytes:
        """Returns an error in the midst of a stream."""
        try:
            told = json.loads(body).get("error") or {}
        except (ValueError, AttributeError):
            told = {"message": body.decode("utf-8", "replace")}
        what = {"type": "error", "sequence_number": self._sent, "param": None, "code": None, "message": ""} | told
        return f"event: error\ndata: {quoted(what | {'type': 'error'})}\n\n".encode()

    def _collect_additions(self, results: list[list[str]]) -> Added:
        """Calls and their results stand between the client's items, by how many of those come before. A call stands
        right behind what was thought before it."""
        kept = []
        for now, told in zip(self.rounds, results):
            at, answers = now.first, iter(told)
            for item in now.items:
                if isinstance(item, Call):
                    kept.append({"at": at, "text": ",".join(quote(one) for one in _pair(item, next(answers, "")))})
                else:
                    at += 1
        return {"between": kept, "count": len(self.visible)}


def _pair(call: Call, answer: str) -> list[Item]:
    return [call.told(), {"type": "function_call_output", "call_id": call.id, "output": answer}]


def _is_bare(item: Item) -> bool:
    """Is it a thought that the provider would have to know by its id?"""
    return item.get("type") == "reasoning" and not item.get("encrypted_content")


def _set(raw: bytes, name: str, old: int, new: int) -> bytes:
    if old == new:
        return raw
    return re.sub(rb'("%s"\s*:\s*)%d(?=\s*[,}])' % (name.encode(), old), rb"\g<1>%d" % new, raw, count=1)
