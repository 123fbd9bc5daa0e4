"""Anthropic's Messages API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pg_memoir import from_anthropic

from . import rounds
from .dialect import Added, Answer, Item, Message, Sort, join_texts, make_comparable, remove_marks
from .rounds import NO_ANSWER, Call, Rounds, mend, parse, quote, renumber, write_event
from .spans import Body
from .sse import Event

THOUGHTS = ("thinking", "redacted_thinking")


class Anthropic:
    """Items are messages; an answer is one."""

    name = "anthropic"
    key = "messages"
    sort: Sort = "anthropic"

    def items(self, body: Body) -> list[Item]:
        return [node.value for node in body.lists.get("messages", [])]

    def opening(self, body: Body) -> str:
        return join_texts(body.get("system"))

    def loose(self, item: Item) -> Any:
        blocks = [self._block(block) for block in list_blocks(item)]
        return [item.get("role"), [block for block in blocks if block is not None]]

    def _block(self, block: Item) -> Any:
        kind = block.get("type")
        if kind in THOUGHTS:
            return None
        if kind == "text":
            return ["text", str(block.get("text")).strip()] if str(block.get("text")).strip() else None
        if kind == "tool_use":
            return [kind, block.get("id")]  # clients tidy up the input
        if kind == "tool_result":
            return [kind, block.get("tool_use_id"), make_comparable(block.get("content")), bool(block.get("is_error"))]
        return make_comparable(block)

    def rounds(self, tools: set[str], limit: int) -> MessagesRounds:
        return MessagesRounds(tools, limit)

    def answer(self, events: list[Event]) -> Answer | None:
        read = MessagesRounds(set())
        read.begin()
        for event in events:
            read.feed(event)
        now = read.now
        return self.whole(now.answer | read.items()[0] | {"usage": now.usage}) if read.is_done else None

    def whole(self, answer: Any) -> Answer | None:
        if not isinstance(answer, dict) or answer.get("type") != "message":
            return None
        item = {"role": "assistant", "content": answer.get("content") or []}
        usage = answer.get("usage") or {}
        return Answer([item], answer.get("model"), usage, answer.get("stop_reason"), answer.get("id"))

    def messages(self, items: list[Item]) -> list[Message]:
        found: list[Message] = []
        for at, item in enumerate(items, 1):
            if item.get("role") == "assistant":
                found.append(Message(dict(from_anthropic(item | {"usage": {}}).message), at))
                continue
            for block in list_blocks(item):
                if block.get("type") == "tool_result":
                    told = {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": _read_result(block)}
                    found.append(Message(told, at))
            parts = [part for block in list_blocks(item) if (part := _read_part(block)) is not None]
            if parts:
                role = "user" if item.get("role") == "user" else "system"
                found.append(Message({"role": role, "content": parts}, at))
        return found


def list_blocks(item: Item) -> list[Item]:
    """Returns the blocks of a message; a text is one."""
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _read_result(block: Item) -> str:
    """Returns a tool's result as text. Parts that are no text are named."""
    content = block.get("content")
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    parts = [part for part in content if isinstance(part, dict)]
    return "\n".join(str(p.get("text", "")) if p.get("type") == "text" else f"[{p.get('type')}]" for p in parts)


def _read_part(block: Item) -> Item | None:
    """Returns a block of a user's message as a part in OpenAI's shape, None for what is no part of it."""
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return {"type": "text", "text": str(block.get("text", ""))}
    if kind == "image" and isinstance(source, dict):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "document" and isinstance(source, dict) and source.get("type") in ("base64", "text", "url", "file"):
        return remove_marks(block)  # type: ignore[no-any-return]
    return None


# Answers ------------------------------------------------------------------------------------------------------------


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
            return True
        if kind not in ("signature_delta", "compaction_delta"):
            begun = self.begun
            if any(begun.get(k) and not (isinstance(v, str) and isinstance(begun[k], str)) for k, v in told.items()):
                return False
            for name in [name for name, value in told.items() if isinstance(value, str)]:
                self.parts.setdefault(name, []).append(told.pop(name))
        self.begun |= told
        return True

    def as_item(self) -> Item:
        """Returns the block as it is sent back to the API."""
        parts = {name: "".join(texts) for name, texts in self.parts.items()}
        given = parts.pop("partial_json", "")
        item = self.begun | {name: str(self.begun.get(name) or "") + text for name, text in parts.items()}
        return item | {"input": given if parse(given) is None else parse(given)} if given else item

    def is_shown(self) -> bool:
        """Does it say something, or ask the client for something?"""
        return self.begun.get("type") == "tool_use" or bool(str(self.as_item().get("text") or "").strip())


@dataclass
class Round(rounds.Round):
    """One answer. `others`: it calls tools of the client. `opaque`: it has a block that can't be told again."""

    answer: Item = field(default_factory=dict)
    others: bool = False
    opaque: bool = False


class MessagesRounds(Rounds[Round]):
    """Blocks are numbered as the client sees them."""

    counts = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

    def __init__(self, tools: set[str], limit: int = 0) -> None:
        super().__init__(tools, limit)
        self.visible: list[Block] = []
        self._place: dict[Any, int | Call] = {}

    def new_round(self) -> Round:
        self._place = {}
        return Round(len(self.visible))

    def arguments(self) -> list[str]:
        return [quote(_read_input(call)) for call in self.now.calls]

    @property
    def is_done(self) -> bool:
        """Has the answer come to its end? Some servers leave out the last event."""
        told = (event.json() for event in self.now.closing)
        return any(d.get("type") == "message_stop" or (d.get("delta") or {}).get("stop_reason") for d in told)

    def read(self, event: Event) -> bytes:
        data, now = event.json(), self.now
        kind = data.get("type") if isinstance(data, dict) else None
        if kind == "message_start":
            now.answer = data.get("message") or {}
            now.usage = dict(now.answer.get("usage") or {})
            return event.raw if len(self.rounds) == 1 else b""
        if kind in ("message_delta", "message_stop"):
            now.answer = now.answer | (data.get("delta") or {})
            now.usage |= {name: count for name, count in (data.get("usage") or {}).items() if count is not None}
            return self.hold(event, is_end=True)
        if kind == "content_block_start":
            return self._start_block(event, data)
        if kind in ("content_block_delta", "content_block_stop"):
            place, delta = self._place.get(data.get("index")), data.get("delta") or {}
            if isinstance(place, Call):
                place.parts.append(str(delta.get("partial_json") or ""))
                return self.hold(event)
            if place is not None:
                now.opaque |= not self.visible[place].add(delta)
                return renumber(event, data, {"index": place})
        return event.raw

    def _start_block(self, event: Event, data: Item) -> bytes:
        block, at = data.get("content_block") or {}, len(self.visible)
        if block.get("type") == "tool_use" and block.get("name") in self.tools:
            given = block.get("input") or {}
            call = Call(block["name"], block.get("id") or "", [], given if isinstance(given, str) else quote(given), at)
            self._place[data.get("index")] = call
            self.now.calls.append(call)
            return self.hold(event)
        self.now.others |= block.get("type") == "tool_use"
        self._place[data.get("index")] = at
        self.visible.append(Block(dict(block)))
        return renumber(event, data, {"index": at})

    def split_whole(self, answer: Item) -> list[Item]:
        told: list[Item] = [{"type": "message_start", "message": answer | {"content": []}}]
        for at, block in enumerate(answer.get("content") or []):
            told.append({"type": "content_block_start", "index": at, "content_block": block})
        delta = {"stop_reason": answer.get("stop_reason")}
        return [*told, {"type": "message_delta", "delta": delta}, {"type": "message_stop"}]

    def can_go_on(self) -> bool:
        return not self.now.others and not self.now.opaque

    def render_round(self, now: Round, results: list[str]) -> str:
        blocks = [block.as_item() for block in self.visible[now.first :]]
        # An empty text, which a model may well say before a call, is refused in a request.
        said = [quote(block) for block in blocks if block.get("type") != "text" or str(block.get("text")).strip()]
        content = ",".join([*said, _render_calls(now)])
        told = _render_results(now, results)
        return f'{{"role":"assistant","content":[{content}]}},{{"role":"user","content":[{told}]}}'

    def collect_additions(self, results: list[list[str]]) -> Added:
        kept, last = [], ""
        for at, (now, answers) in enumerate(zip(self.rounds, results), 1):
            calls, told = _render_calls(now), _render_results(now, answers)
            if now is self.now:
                last = told
                kept.append({"at": now.calls[0].at, "text": calls, "splits": False})
            else:
                text = f'{calls}]}},{{"role":"user","content":[{told}]}},{{"role":"assistant","content":['
                kept.append({"at": self.rounds[at].first, "text": text, "splits": True})
        return {"woven": kept, "blocks": len(self.visible)} | ({"results": last} if last else {})

    def is_shown(self) -> bool:
        return any(block.is_shown() for block in self.visible)

    def add_note(self) -> None:
        self.visible.append(Block({"type": "text", "text": NO_ANSWER}))

    def items(self) -> list[Item]:
        self.fill()
        return [{"role": "assistant", "content": [mend(block.as_item()) for block in self.visible]}]

    def whole(self, answer: Item) -> Item:
        usage = (answer.get("usage") or {}) | self.count_usage()
        same = {name: told for name, told in self.rounds[0].answer.items() if name == "id"}
        return answer | {"content": self.items()[0]["content"], "usage": usage} | self._stop_reason(answer) | same

    def _stop_reason(self, answer: Item) -> Item:
        """Returns why an answer ended, where the calls that it ended with were ours only."""
        is_ours = self.now.calls and not self.now.others and answer.get("stop_reason") == "tool_use"
        return {"stop_reason": "end_turn"} if is_ours else {}

    def write_end(self) -> bytes:
        out = []
        if self.is_noted:
            here: Item = {"index": len(self.visible) - 1}
            delta = {"delta": {"type": "text_delta", "text": NO_ANSWER}}
            out = [
                write_event({"type": "content_block_start"} | here | {"content_block": {"type": "text", "text": ""}}),
                write_event({"type": "content_block_delta"} | here | delta),
                write_event({"type": "content_block_stop"} | here),
            ]
        for event in self.now.closing:
            data = event.json()
            if data.get("type") == "message_delta":
                usage, delta = data.get("usage") or {}, data.get("delta") or {}
                usage |= {name: count for name, count in self.count_usage().items() if isinstance(usage.get(name), int)}
                out.append(write_event(data | {"usage": usage, "delta": delta | self._stop_reason(delta)}))
            else:
                out.append(event.raw)
        return b"".join(out)

    def error(self, body: bytes) -> bytes:
        return b"event: error\ndata: " + b" ".join(body.splitlines()) + b"\n\n"


def _read_input(call: Call) -> Any:
    """Returns the arguments of a call. The API takes an object only."""
    return call.input if isinstance(call.input, dict) else {}


def _render_calls(now: Round) -> str:
    told = [{"type": "tool_use", "id": call.id, "name": call.name, "input": _read_input(call)} for call in now.calls]
    return ",".join(map(quote, told))


def _render_results(now: Round, results: list[str]) -> str:
    """Returns the results of a round's calls, as blocks."""
    told = zip(now.calls, results)
    return ",".join(quote({"type": "tool_result", "tool_use_id": call.id, "content": text}) for call, text in told)
