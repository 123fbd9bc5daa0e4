"""Calls of our tools in chat completions: held back, answered, and the model asked again within the same message.

A content is one text here, so what the model said before a call can't be told from what it said after it by its
place. The rounds before are put back as messages ahead of the client's, whose content is then that of the last round.

Servers stream calls in many ways: whole or in pieces, with equal indexes or none, with ids that are empty, with a
name that is repeated or split. A chunk waits while it is not clear whose call it begins.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from . import rounds
from .additions import Added, name_of
from .dialect import Item
from .rounds import NO_ANSWER, BaseRounds, encode, mend, parse, quote
from .spans import Body, Edit, quoted
from .sse import Event

THOUGHTS = ("reasoning_content", "reasoning_details")
"""Members of a message that servers want back with its calls: DeepSeek the first, OpenRouter the second."""

UNSEEN = ("role", "content", "tool_calls", "reasoning", *THOUGHTS)
"""Members of a delta that show the client no answer of their own."""

KNOWN = ("id", "index", "type", "function", "custom")
"""Members of a part of a call that are read."""


@dataclass(eq=False)
class Call:
    """A call, of ours or the client's. `extra`: members that must come back with it, as Gemini's signatures.
    `is_decided`: its name can't grow any more, so that it is clear whose it is. `place`: its index as the client sees
    it."""

    id: str = ""
    index: Any = None
    name: str = ""
    parts: list[str] = field(default_factory=list)
    size: int = 0
    extra: Item = field(default_factory=dict)
    is_decided: bool = False
    is_settled: bool = False
    place: int | None = None

    @property
    def text(self) -> str:
        """The arguments as they came."""
        return "".join(self.parts)

    @property
    def input(self) -> Any:
        """The arguments, None where they are no JSON."""
        return mend(parse(self.text))

    @property
    def arguments(self) -> str:
        """The arguments as they are sent back. Some servers refuse what is no object."""
        return (self.text.strip() or "{}") if isinstance(self.input, dict) else "{}"

    @property
    def is_whole(self) -> bool:
        """Are the arguments all there, as far as one can tell?"""
        return bool(self.parts) and self.parts[-1].rstrip().endswith("}") and isinstance(parse(self.text), dict)

    def is_followed_by(self, ident: str, name: str, given: str) -> bool:
        """Does a piece that has the same index or id begin another call?"""
        if not name:
            return False
        if ident and self.id and ident != self.id:
            return not self.parts or self.is_whole
        is_repeated = name == self.name and (not given or len(given) == self.size and given == self.text)
        return not is_repeated and self.is_whole

    def add(self, part: Item, ident: str, name: str, given: str) -> None:
        """Adds a piece. A name may come in pieces, or whole in each; some servers send the whole call again at the
        end."""
        if name and name != self.name and not self.parts:
            self.name = name if name.startswith(self.name) else self.name + name
        if given and not (name and len(given) == self.size and given == self.text and self.is_whole):
            self.parts.append(given)
            self.size += len(given)
        self.id = self.id or ident
        self.extra |= {k: v for k, v in part.items() if k not in KNOWN and v is not None}

    def told(self) -> Item:
        """Returns the call as a member of a message."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function} | self.extra


@dataclass
class Chunk:
    """A chunk as it came. `choices`: each with its parts of calls, and the calls that these belong to."""

    event: Event
    data: Any
    choices: list[tuple[Item, list[tuple[Item, Call]]]] = field(default_factory=list)

    @property
    def is_end(self) -> bool:
        """Does it say that the answer is over?"""
        return self.event.data == "[DONE]" or any(choice.get("finish_reason") for choice, _ in self.choices)

    @property
    def is_filled(self) -> bool:
        """Does it say or call something?"""
        return any(_has_content(choice.get("delta") or {}) for choice, _ in self.choices)


@dataclass
class Round(rounds.Round[Call]):
    """One answer. `listed`: all its calls by choice; `calls` are those of ours in the first. `is_hidden`: something was
    held back. `is_shown`: the client got something that is neither text nor call."""

    parts: list[str] = field(default_factory=list)
    thoughts: dict[str, list[Any]] = field(default_factory=dict)
    listed: dict[int, list[Call]] = field(default_factory=dict)
    others: list[Call] = field(default_factory=list)
    finish: Any = None
    is_hidden: bool = False
    is_shown: bool = False

    @property
    def text(self) -> str:
        """What it said."""
        return str(mend("".join(self.parts)))

    def told(self) -> Item:
        """Returns the message that calls our tools, as it is sent back."""
        said = {"role": "assistant", "content": self.text or None}
        thoughts = {k: "".join(v) if isinstance(v[0], str) else v for k, v in self.thoughts.items()}
        return said | thoughts | {"tool_calls": [call.told() for call in self.calls]}


class ChatRounds(BaseRounds[Round]):
    """Chunks of later rounds are told as those of the message that the first began."""

    counts = ("prompt_tokens", "completion_tokens", "total_tokens")

    def __init__(self, tools: set[str]) -> None:
        super().__init__(tools)
        self._same: Item = {}
        self._waiting: list[Chunk] = []
        self._is_noted = False

    def _new_round(self) -> Round:
        self._waiting = []
        return Round()

    @property
    def is_touched(self) -> bool:
        """Does the client get anything else than the bytes of the upstream?"""
        return len(self.rounds) > 1 or self._now.is_hidden

    @property
    def done(self) -> bool:
        """Has the answer come to its end? Some servers send no last line, some not even a reason."""
        now = self._now
        if now.finish or any(event.data == "[DONE]" for event in now.closing):
            return True
        return bool(now.calls) and all(call.is_whole for call in now.calls)

    # Reading --------------------------------------------------------------------------------------------------------

    def release(self) -> bytes:
        """Returns what is held back, and the chunks that wait for the name of a call."""
        waiting, self._waiting = self._waiting, []
        return super().release() + b"".join(chunk.event.raw for chunk in waiting)

    def _read(self, event: Event) -> bytes:
        chunk = Chunk(event, event.json())
        for choice in _choices(chunk.data):
            calls = self._now.listed.setdefault(_at(choice), [])
            chunk.choices.append((choice, [(part, self._find_call(calls, part)) for part in _parts(choice)]))
        if chunk.is_end:
            self._decide()
        waiting = [*self._waiting, chunk]
        if any(not call.is_decided for calls in self._now.listed.values() for call in calls[-1:]):
            self._waiting = waiting
            return b""
        out = b"".join(map(self._pass, waiting))
        self._waiting = []
        return out

    def _decide(self) -> None:
        for calls in self._now.listed.values():
            for call in calls:
                call.is_decided = True

    def _find_call(self, calls: list[Call], part: Item) -> Call:
        """Returns the call that a part belongs to, with the part added."""
        function = part.get("function") or part.get("custom") or {}
        at, ident, name = part.get("index"), str(part.get("id") or ""), str(function.get("name") or "")
        given = function.get("arguments", function.get("input")) or ""
        given = given if isinstance(given, str) else quoted(given)
        known = next((c for c in reversed(calls) if ident and c.id == ident and at in (None, c.index)), None)
        known = known or next((c for c in reversed(calls) if at in (None, c.index)), None)
        if known is None or known.is_followed_by(ident, name, given):
            for call in calls:
                call.is_decided = True
            known = Call(index=at)
            calls.append(known)
        known.add(part, ident, name, given)
        known.is_decided |= bool(known.parts) or not any(tool.startswith(known.name) for tool in self.tools)
        return known

    def _pass(self, chunk: Chunk) -> bytes:
        """Returns what the client gets of a chunk whose calls are known."""
        now, data = self._now, chunk.data
        if not isinstance(data, dict):
            return self._close(chunk.event) if now.closing or chunk.is_end else chunk.event.raw
        self._same = self._same or {name: data[name] for name in ("id", "created") if name in data}
        now.usage = data.get("usage") or now.usage
        for choice, parts in chunk.choices:
            self._take(choice, parts)
        out = self._reopen() if now.closing and chunk.is_filled else b""
        if not self.is_touched:
            return out + (self._close(chunk.event) if now.closing or chunk.is_end else chunk.event.raw)
        if now.closing and not chunk.choices:
            return out + self._close(chunk.event)
        shown, held, rest = [], [], []
        for choice, parts in chunk.choices:
            delta = {k: v for k, v in (choice.get("delta") or {}).items() if k != "tool_calls"}
            kept = [part | {"index": call.place} for part, call in parts if call.place is not None]
            ours = [part for part, call in parts if call.place is None]
            delta |= {"tool_calls": kept} if kept else {}
            # What only opens a message, the client has from the first round.
            if delta if len(self.rounds) == 1 else _has_content(delta):
                shown.append(choice | {"delta": delta, "finish_reason": None})
            if ours:
                held.append(choice | {"delta": {"tool_calls": ours}, "finish_reason": None})
            if choice.get("finish_reason"):
                rest.append(choice | {"delta": {}})
        is_ending = bool(rest or now.closing)
        if held or is_ending:
            told = b"".join(self._chunk(data, some) for some in (held, rest) if some)
            self._withheld.append(told if shown else chunk.event.raw)
        if is_ending:
            told = self._chunk(data, rest)
            now.closing.append(Event(told, told[6:].decode()))
            data = {name: value for name, value in data.items() if name != "usage"}  # told with the end
        return out + (self._chunk(data, shown) if shown or not chunk.choices else b"")

    def _take(self, choice: Item, parts: list[tuple[Item, Call]]) -> None:
        """Takes note of what a choice says and calls."""
        now, is_first, delta = self._now, _at(choice) == 0, choice.get("delta") or {}
        for part, call in parts:
            is_ours = call.name in self.tools
            now.is_hidden |= is_ours
            if is_ours and is_first and call not in now.calls:
                now.calls.append(call)
            elif not is_ours and call.place is None:
                before = [other.place for other in now.listed[_at(choice)] if other.place is not None]
                came = part.get("index")
                call.place = came if isinstance(came, int) and not now.is_hidden else max(before, default=-1) + 1
                if is_first:
                    now.others.append(call)
                    self._ids.add(call.id)
        if not is_first:
            return
        now.finish = choice.get("finish_reason") or now.finish
        now.parts += _texts(delta.get("content"))
        now.is_shown |= any(value for name, value in delta.items() if name not in UNSEEN)
        for name in THOUGHTS:
            told = delta.get(name)
            if told and isinstance(told, (str, list)):
                now.thoughts.setdefault(name, []).extend(told if isinstance(told, list) else [told])

    def _reopen(self) -> bytes:
        """Returns what was taken for the end of an answer that goes on."""
        now, held = self._now, {event.raw for event in self._now.closing}
        closing, now.closing = now.closing, []
        self._withheld = [raw for raw in self._withheld if raw not in held]
        if not self.is_touched:
            return b"".join(event.raw for event in closing)
        out = []
        for data in (event.json() for event in closing):
            choices = [c | {"finish_reason": None} for c in _choices(data) if _has_content(c.get("delta") or {})]
            out += [self._chunk(data, choices)] if choices else []
        return b"".join(out)

    def _close(self, event: Event) -> bytes:
        self._now.closing.append(event)
        self._withheld.append(event.raw)
        return b""

    def _chunk(self, data: Item, choices: list[Item]) -> bytes:
        """Returns a chunk with these choices, as one of the message that the first round began."""
        return b"data: " + encode(data | {"choices": choices} | self._same) + b"\n\n"

    # Calls of our tools ---------------------------------------------------------------------------------------------

    def find_calls(self) -> list[tuple[str, str, Any]]:
        """Returns the calls of our tools in this answer: id, name, arguments."""
        for call in self._now.calls:
            if not call.is_settled:  # not before: the id may come in the last piece
                call.id, call.is_settled = self._unique(call.id), True
        return super().find_calls()

    def arguments(self) -> list[str]:
        """Returns the arguments of our calls as the JSON in which they are sent back."""
        return [quote(call.arguments) for call in self._now.calls]

    def _can_go_on(self) -> bool:
        return not self._now.others and not any(self._now.listed)

    def _continue(self, body: Body, results: list[str]) -> list[Edit]:
        end = body.lists["messages"][-1].end
        return [Edit(end, end, "," + _render_round(self._now, results))]

    def _collect_additions(self, results: list[list[str]]) -> Added:
        """Rounds ahead of the client's message, calls beside its own."""
        last = self._now
        before = [_render_round(now, told) for now, told in zip(self.rounds, results) if now is not last and now.calls]
        added: Added = {"before": ",".join(before), "rest": NO_ANSWER if self._is_noted else last.text}
        if last.calls and last.others:
            added["beside"] = ",".join(quote(call.told()) for call in last.calls)
            added["results"] = _results(last, results[-1])
        elif last.calls:
            added["before"] = ",".join([*before, _render_round(last, results[-1])])
        return added

    # What the client gets -------------------------------------------------------------------------------------------

    def finish(self) -> bytes:
        """Returns the end of the message as the client gets it."""
        self._decide()
        out = list(map(self._pass, self._waiting))
        self._waiting = []
        if not self.is_touched:
            return b"".join([*out, *(event.raw for event in self._now.closing)])
        self._fill()
        told = [data for event in self._now.closing if isinstance(data := event.json(), dict)]
        if self._is_noted:
            head = {name: told[0][name] for name in ("object", "model") if told and name in told[0]}
            out.append(self._chunk(head, [{"index": 0, "delta": {"content": NO_ANSWER}, "finish_reason": None}]))
        for data in told:
            choices = [choice | self._finish(choice) for choice in _choices(data)]
            total = {"usage": data["usage"] | self.total()} if isinstance(data.get("usage"), dict) else {}
            out.append(self._chunk(data | total, choices))
        out += [event.raw for event in self._now.closing if event.data == "[DONE]"]
        return b"".join(out)

    def _finish(self, choice: Item) -> Item:
        """Returns why a choice ended, where the calls that it ended with were ours only."""
        calls = self._now.listed.get(_at(choice), [])
        only = choice.get("finish_reason") == "tool_calls" and all(call.name in self.tools for call in calls)
        return {"finish_reason": "stop"} if only else {}

    def _fill(self) -> None:
        """Gives a message that would be empty a text that says so."""
        is_shown = any(now.is_shown or now.others or now.text.strip() for now in self.rounds)
        self._is_noted = self.is_touched and self.done and not is_shown

    def items(self) -> list[Item]:
        """Returns the message as the client knows it."""
        self._fill()
        text = NO_ANSWER if self._is_noted else "".join(now.text for now in self.rounds)
        others = [call.told() for call in self._now.others]
        return [{"role": "assistant", "content": text or None} | ({"tool_calls": others} if others else {})]

    def whole(self, answer: Item) -> Item:
        """Returns the last answer, in one piece, as the client gets it."""
        told = []
        for choice in _choices(answer):
            message = dict(choice.get("message") or {})
            calls = [call for call in _calls(message) if name_of(call) not in self.tools]
            message |= {"tool_calls": calls} if calls else {}
            if not calls:
                message.pop("tool_calls", None)
            if _at(choice) == 0:
                message["content"] = self.items()[0]["content"]
            told.append(choice | {"message": message} | self._finish(choice))
        return answer | {"choices": told, "usage": (answer.get("usage") or {}) | self.total()} | self._same

    def events_of_whole(self, raw: bytes) -> list[Event]:
        """Returns an answer in one piece as the chunks that would have told it."""
        answer = json.loads(raw)
        self.streamed = False
        told: list[Item] = []
        for choice in _choices(answer):
            message = choice.get("message") or {}
            delta = message | {"tool_calls": [call | {"index": at} for at, call in enumerate(_calls(message))]}
            told.append(answer | {"choices": [{"index": _at(choice), "delta": delta}], "usage": None})
            end: Item = {"index": _at(choice), "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"}
            told.append({"choices": [end]})
        told.append({"choices": [], "usage": answer.get("usage") or {}})
        return [Event(b"", quoted(t)) for t in told] + [Event(b"", "[DONE]")]

    def error(self, body: bytes) -> bytes:
        """Returns an error in the midst of a stream."""
        return b"data: " + b" ".join(body.splitlines()) + b"\n\n"


def _choices(data: Any) -> list[Item]:
    told = data.get("choices") if isinstance(data, dict) else None
    return [choice for choice in told if isinstance(choice, dict)] if isinstance(told, list) else []


def _at(choice: Item) -> int:
    return int(choice.get("index") or 0)


def _calls(message: Item) -> list[Item]:
    return [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]


def _parts(choice: Item) -> list[Item]:
    return _calls(choice.get("delta") or {})


def _has_content(delta: Item) -> bool:
    """Does a delta say something that its message did not begin with?"""
    return any(value for name, value in delta.items() if name != "role")


def _texts(content: Any) -> list[str]:
    """Returns the texts of a content, which Mistral sends as a list where the model thinks."""
    if isinstance(content, str):
        return [content] if content else []
    parts = content if isinstance(content, list) else []
    return [
        p["text"] for p in parts if isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str)
    ]


def _render_round(now: Round, results: list[str]) -> str:
    """Returns a round as messages: what was said and called, what that answered."""
    return quote(now.told()) + "," + _results(now, results)


def _results(now: Round, results: list[str]) -> str:
    told = zip(now.calls, results)
    return ",".join(quote({"role": "tool", "tool_call_id": call.id, "content": text}) for call, text in told)
