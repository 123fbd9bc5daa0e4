"""OpenAI's Responses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from . import rounds
from .dialect import Added, Answer, Item, Message, Sort, join_texts, make_comparable
from .rounds import NO_ANSWER, Call, Rounds, mend, quote, renumber, write_event
from .spans import Body, Edit
from .sse import Event

CALLS = ("function_call", "custom_tool_call", "local_shell_call")
RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
# Calls that the provider answers within its response.
HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
ENDS = ("response.completed", "response.incomplete", "response.failed")


class Responses:
    """Items are those of `input`; an answer is several: thoughts, messages, calls."""

    name = "openai"
    key = "input"
    sort: Sort = "responses"

    def items(self, body: Body) -> list[Item]:
        given = body.get("input")
        if isinstance(given, str):
            return [{"type": "message", "role": "user", "content": given}]
        return [node.value for node in body.lists.get("input", []) if isinstance(node.value, dict)]

    def opening(self, body: Body) -> str:
        instructions = body.get("instructions")
        return instructions if isinstance(instructions, str) else ""

    def loose(self, item: Item) -> Any:
        kind = item.get("type", "message")
        if kind == "message":
            if item.get("role") in ("system", "developer"):
                return None
            parts = item.get("content")
            other = [make_comparable(p) for p in parts if not _is_text(p)] if isinstance(parts, list) else []
            return [item.get("role"), join_texts(parts).strip(), other]
        if kind in CALLS:
            return [kind, item.get("call_id")]
        return [kind, item.get("call_id"), make_comparable(item.get("output"))] if kind in RESULTS else None

    def rounds(self, tools: set[str], limit: int) -> ResponsesRounds:
        return ResponsesRounds(tools, limit)

    def answer(self, events: list[Event]) -> Answer | None:
        for event in reversed(events):
            data = event.json()
            if isinstance(data, dict) and data.get("type") in ("response.completed", "response.incomplete"):
                found = self.whole(data.get("response"))
                if found and not found.items:  # some servers leave them out of the last event
                    done = [e.json() for e in events if '"response.output_item.done"' in e.data]
                    found.items = [d["item"] for d in done if isinstance(d, dict) and "item" in d]
                return found
        return None

    def whole(self, answer: Any) -> Answer | None:
        if not isinstance(answer, dict) or answer.get("object") != "response":
            return None
        items = [item for item in answer.get("output") or [] if isinstance(item, dict)]
        usage = answer.get("usage") or {}
        return Answer(items, answer.get("model"), usage, answer.get("status"), answer.get("id"))

    def messages(self, items: list[Item]) -> list[Message]:
        """Neighbours of the assistant's are one message: text, then calls."""
        found: list[Message] = []
        for at, item in enumerate(items, 1):
            kind, role = item.get("type", "message"), item.get("role")
            last = found[-1].message if found else {}
            if kind == "message" and role == "user":
                content = item.get("content")
                parts = [{"text": content}] if isinstance(content, str) else content
                told = [part for p in parts if (part := _read_part(p))] if isinstance(parts, list) else []
                found.append(Message({"role": "user", "content": told}, at))
            elif kind == "message" and role == "assistant":
                found.append(Message({"role": "assistant", "content": join_texts(item.get("content"))}, at))
            elif kind in CALLS and last.get("role") == "assistant":
                last["tool_calls"] = [*last.get("tool_calls", []), _read_call(item)]
                found[-1].through = at
            elif kind in CALLS:
                found.append(Message({"role": "assistant", "content": None, "tool_calls": [_read_call(item)]}, at))
            elif kind in RESULTS:
                output = join_texts(item.get("output"))
                found.append(Message({"role": "tool", "tool_call_id": item.get("call_id"), "content": output}, at))
        return found


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _read_part(part: Any) -> Item | None:
    if _is_text(part):
        return {"type": "text", "text": part["text"]}
    if isinstance(part, dict) and part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return None


def _read_call(item: Item) -> Item:
    given = item.get("arguments") or item.get("input") or ""
    name = item.get("name") or item.get("type")
    function = {"name": name, "arguments": given if isinstance(given, str) else ""}
    return {"id": item.get("call_id"), "type": "function", "function": function}


# Answers ------------------------------------------------------------------------------------------------------------


@dataclass
class Round(rounds.Round):
    """One answer: its items in order, calls of ours among them."""

    items: list[Item | Call] = field(default_factory=list)
    answer: Item = field(default_factory=dict)


class ResponsesRounds(Rounds[Round]):
    """Items and events are numbered as the client sees them."""

    counts = ("input_tokens", "output_tokens", "total_tokens")

    def __init__(self, tools: set[str], limit: int = 0) -> None:
        super().__init__(tools, limit)
        self.visible: list[Item] = []
        self._sent = 0
        self._place: dict[int, int | None] = {}
        self._unnamed: dict[int, list[tuple[Event, Item]]] = {}
        self._at: dict[Any, int] = {}
        self._whole: set[int] = set()
        self._is_numbered = False

    def new_round(self) -> Round:
        self._place, self._unnamed, self._at, self._whole = {}, {}, {}, set()
        return Round(len(self.visible))

    def read(self, event: Event) -> bytes:
        data = event.json()
        kind = str(data.get("type") or "") if isinstance(data, dict) else ""
        if not kind:
            return event.raw
        if kind in ENDS:
            return self._end(event, data)
        if kind in ("response.created", "response.in_progress", "response.queued") and len(self.rounds) > 1:
            return b""
        item = data.get("item") if isinstance(data.get("item"), dict) else {}
        at = self._find_number(kind, data, item)
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
            return self.hold(event)
        place = self._place.get(at)
        if is_whole:
            self._take(at, item)
        waiting = self._unnamed.pop(at, [])
        if at in self._place and place is None:
            return self.hold(event)
        for earlier, _ in waiting:
            self._withheld.remove(earlier.raw)
        return b"".join(self._renumber(*one, place) for one in [*waiting, (event, data)])

    def _find_number(self, kind: str, data: Item, item: Item) -> int | None:
        """Returns the upstream's number of the item that an event is about. Where the event has none, its id tells
        it."""
        at, ident = data.get("output_index"), data.get("item_id") or item.get("id") or item.get("call_id")
        is_item = kind.startswith("response.output_item.")
        if not isinstance(at, int):
            new = -1 - len(self._at) if is_item else None
            at = self._at.get(ident, new) if ident or not is_item else new
        if is_item and at is not None:
            self._at[ident] = at
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
        if place is not None:
            self.now.items.append(item)
            self.visible[place] = item
            return
        given = item.get("arguments") or ""
        text = given if isinstance(given, str) else quote(given)
        # Without its id: with one, OpenAI asks for the thought before it.
        extra = {name: value for name, value in item.items() if name != "id"}
        call = Call(str(item["name"]), item.get("call_id") or "", [text], extra=extra)
        self.now.calls.append(call)
        self.now.items.append(call)

    def _end(self, event: Event, data: Item) -> bytes:
        now = self.now
        now.answer = data.get("response") or {}
        now.usage = now.answer.get("usage") or {}
        if not now.items and len(self.visible) == now.first:  # some servers tell the items in the last event only
            for at, item in enumerate(now.answer.get("output") or []):
                self._seat(at, item)
                self._take(at, item)
        return self.hold(event, is_end=True)

    def _renumber(self, event: Event, data: Item, place: int | None = None) -> bytes:
        """Returns an event with the client's numbers, everything else as it came."""
        self._is_numbered |= isinstance(data.get("sequence_number"), int)
        numbers = {"sequence_number": self._sent} | ({} if place is None else {"output_index": place})
        self._sent += 1
        return renumber(event, data, numbers)

    def split_whole(self, answer: Item) -> list[Item]:
        kind = "response.failed" if answer.get("status") == "failed" else "response.completed"
        done = "response.output_item.done"
        told = [{"type": done, "output_index": at, "item": item} for at, item in enumerate(answer.get("output") or [])]
        return [*told, {"type": kind, "response": answer}]

    def can_go_on(self) -> bool:
        kinds = [str(item.get("type")) for item in self.visible[self.now.first :]]
        asks = any(kind.endswith("_call") and kind not in HOSTED or kind == "mcp_approval_request" for kind in kinds)
        return not asks and self.now.closing[-1].json().get("type") != "response.failed"

    def render_round(self, now: Round, results: list[str]) -> str:
        """With `store: false` OpenAI knows a thought only by its encrypted content, so one without is left out, and the
        items that came with it go without their ids."""
        is_bare = any(isinstance(item, dict) and _is_bare(item) for item in now.items)
        answers, found = iter(results), []
        for item in now.items:
            if isinstance(item, Call):
                found += _render_pair(item, next(answers, ""))
            elif not _is_bare(item):
                unnamed = is_bare and item.get("type") == "message"
                found.append({k: v for k, v in item.items() if k != "id" or not unnamed})
        return ",".join(map(quote, found))

    def append(self, body: Body, more: str) -> list[Edit]:
        given = body.fields["input"]
        if isinstance(given.value, str):
            said = f'{{"type":"message","role":"user","content":{body.text[given.start : given.end]}}}'
            return [Edit(given.start, given.end, f"[{said},{more}]")]
        return [Edit(given.end - 1, given.end - 1, "," + more)]

    def collect_additions(self, results: list[list[str]]) -> Added:
        """Returns calls and their results for their places between the client's items, by the number of items before.
        A call comes right behind the thought before it."""
        kept = []
        for now, told in zip(self.rounds, results):
            at, answers = now.first, iter(told)
            for item in now.items:
                if isinstance(item, Call):
                    kept.append({"at": at, "text": ",".join(map(quote, _render_pair(item, next(answers, ""))))})
                else:
                    at += 1
        return {"between": kept, "count": len(self.visible)}

    def is_shown(self) -> bool:
        return any(item.get("type") not in ("reasoning", *HOSTED) for item in self.visible)

    def add_note(self) -> None:
        ident = "msg_" + str(self.rounds[0].answer.get("id")).removeprefix("resp_")
        part = {"type": "output_text", "text": NO_ANSWER, "annotations": []}
        item = {"type": "message", "id": ident, "role": "assistant", "status": "completed"}
        self.visible.append(item | {"content": [part]})

    def _write_note(self) -> bytes:
        item, at = self.visible[-1], len(self.visible) - 1
        part = item["content"][0]
        here = {"output_index": at, "item_id": item["id"], "content_index": 0}
        told: list[Item] = [
            {"type": "response.output_item.added", "output_index": at, "item": item | {"content": []}},
            {"type": "response.content_part.added", "part": part | {"text": ""}} | here,
            {"type": "response.output_text.delta", "delta": NO_ANSWER} | here,
            {"type": "response.output_text.done", "text": NO_ANSWER} | here,
            {"type": "response.content_part.done", "part": part} | here,
            {"type": "response.output_item.done", "output_index": at, "item": item},
        ]
        return b"".join(map(self._write, told))

    def items(self) -> list[Item]:
        self.fill()
        return [mend(item) for item in self.visible]

    def whole(self, answer: Item) -> Item:
        self.fill()
        usage = (answer.get("usage") or {}) | self.count_usage()
        first = self.rounds[0].answer
        same = {name: first[name] for name in ("id", "created_at") if name in first}
        return answer | {"output": self.visible, "usage": usage} | same

    def write_end(self) -> bytes:
        out = self._write_note() if self.is_noted else b""
        for data in (event.json() for event in self.now.closing):
            out += self._write(data | {"response": self.whole(data.get("response") or {})})
        return out

    def _write(self, data: Item) -> bytes:
        told = data | ({"sequence_number": self._sent} if self._is_numbered else {})
        self._sent += 1
        return write_event(told)

    def error(self, body: bytes) -> bytes:
        try:
            told = json.loads(body).get("error") or {}
        except (ValueError, AttributeError):
            told = {"message": body.decode("utf-8", "replace")}
        base = {"sequence_number": self._sent, "param": None, "code": None, "message": ""}
        return write_event({"type": "error"} | base | told | {"type": "error"})


def _render_pair(call: Call, answer: str) -> list[Item]:
    told = call.extra | {"call_id": call.id, "arguments": call.arguments}
    return [told, {"type": "function_call_output", "call_id": call.id, "output": answer}]


def _is_bare(item: Item) -> bool:
    """Is it a thought that the provider would have to know by its id?"""
    return item.get("type") == "reasoning" and not item.get("encrypted_content")
