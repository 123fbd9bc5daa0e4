"""OpenAI's chat completions.

A content is one text here, so text before a call can't be told from text after it by its place. The rounds before are
put back as messages ahead of the client's, whose content is then that of the last round. A chunk waits while it is not
clear whose call it begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pg_memoir import from_openai

from . import rounds
from .chat_calls import Call
from .dialect import Added, Answer, Item, Message, Sort, join_texts, make_comparable, read_tool_name
from .rounds import NO_ANSWER, Rounds, mend, quote
from .spans import Body, write_json
from .sse import Event

# Members of a message that servers want back with its calls: DeepSeek the first, OpenRouter the second.
THOUGHTS = ("reasoning_content", "reasoning_details")
# Members of a delta that show the client no answer of their own.
UNSEEN = ("role", "content", "tool_calls", "reasoning", *THOUGHTS)
STORED = ("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "logprobs")


class Chat:
    """Items are messages; an answer is one."""

    name = "openai"
    key = "messages"
    sort: Sort = "openai"

    def items(self, body: Body) -> list[Item]:
        return [node.value for node in body.lists.get("messages", [])]

    def opening(self, body: Body) -> str:
        told = [item for item in self.items(body) if item.get("role") in ("system", "developer")]
        return "\n".join(join_texts(item.get("content")) for item in told)

    def loose(self, item: Item) -> Any:
        role, content = item.get("role"), item.get("content")
        if role in ("system", "developer"):
            return None
        calls = [call.get("id") for call in item.get("tool_calls") or []]
        said = (
            [["text", join_texts(content).strip()]]
            if isinstance(content, str) or content is None
            else make_comparable(content)
        )
        if isinstance(said, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in said):
            said = [["text", join_texts(content).strip()]]
        return [role, said, item.get("tool_call_id"), calls]

    def rounds(self, tools: set[str], limit: int) -> ChatRounds:
        return ChatRounds(tools, limit)

    def answer(self, events: list[Event]) -> Answer | None:
        told = [data for event in events if event.data != "[DONE]" and isinstance(data := event.json(), dict)]
        is_done = any(event.data == "[DONE]" for event in events)  # some servers leave it out
        if not told or not is_done and not any(c.get("finish_reason") for data in told for c in _list_choices(data)):
            return None
        usage: Item = next((data["usage"] for data in reversed(told) if data.get("usage")), {})
        try:
            return _read_reply(told, usage, told[0].get("id"))
        except ValueError:
            return None

    def whole(self, answer: Any) -> Answer | None:
        if not isinstance(answer, dict) or not answer.get("choices"):
            return None
        return _read_reply(answer, answer.get("usage") or {}, answer.get("id"))

    def messages(self, items: list[Item]) -> list[Message]:
        found = []
        for at, item in enumerate(items, 1):
            if item.get("role") in ("user", "assistant", "tool"):
                message = {key: item[key] for key in STORED if item.get(key) is not None}
                if message["role"] == "tool":
                    message["content"] = join_texts(message.get("content"))
                elif message["role"] == "assistant":
                    message |= {"content": _join_texts(message["content"])} if "content" in message else {}
                    if "tool_calls" not in message:
                        message.setdefault("content", "")
                found.append(Message(message, at))
        return found


def _read_reply(told: Any, usage: Item, ident: Any) -> Answer:
    reply = from_openai(told)
    return Answer([dict(reply.message)], reply.usage.get("model"), usage, reply.usage.get("finish_reason"), ident)


def _join_texts(content: Any) -> Any:
    """Returns a content of texts alone as one text, as most clients send it."""
    is_text = isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content)
    return "".join(part["text"] for part in content) if is_text else content


# Answers ------------------------------------------------------------------------------------------------------------


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


@dataclass
class Round(rounds.Round):
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
        """The text of the answer."""
        return str(mend("".join(self.parts)))


class ChatRounds(Rounds[Round]):
    """Chunks of later rounds are told as those of the message that the first began."""

    counts = ("prompt_tokens", "completion_tokens", "total_tokens")

    def __init__(self, tools: set[str], limit: int = 0) -> None:
        super().__init__(tools, limit)
        self._same: Item = {}
        self._waiting: list[Chunk] = []

    def new_round(self) -> Round:
        self._waiting = []
        return Round()

    @property
    def is_touched(self) -> bool:
        return len(self.rounds) > 1 or self.now.is_hidden

    @property
    def is_done(self) -> bool:
        """Has the answer come to its end? Some servers send no last line, some not even a reason."""
        now = self.now
        if now.finish or any(event.data == "[DONE]" for event in now.closing):
            return True
        return bool(now.calls) and all(isinstance(call, Call) and call.is_whole for call in now.calls)

    def release(self) -> bytes:
        """Returns the bytes that are held back, with the chunks that wait for the name of a call."""
        waiting, self._waiting = self._waiting, []
        return super().release() + b"".join(chunk.event.raw for chunk in waiting)

    def read(self, event: Event) -> bytes:
        chunk = Chunk(event, event.json())
        for choice in _list_choices(chunk.data):
            calls = self.now.listed.setdefault(_read_index(choice), [])
            parts = _list_calls(choice.get("delta") or {})
            chunk.choices.append((choice, [(part, self._find_call(calls, part)) for part in parts]))
        if chunk.is_end:
            self._decide_all()
        self._waiting = [*self._waiting, chunk]
        return self._pass_waiting() if all(c.is_decided for calls in self.now.listed.values() for c in calls) else b""

    def _pass_waiting(self) -> bytes:
        out = b"".join(map(self._pass, self._waiting))
        self._waiting = []
        return out

    def _decide_all(self) -> None:
        for call in (call for calls in self.now.listed.values() for call in calls):
            call.is_decided = True

    def _find_call(self, calls: list[Call], part: Item) -> Call:
        """Returns the call that a part belongs to, with the part added."""
        function = part.get("function") or part.get("custom") or {}
        at, ident, name = part.get("index"), str(part.get("id") or ""), str(function.get("name") or "")
        given = function.get("arguments", function.get("input")) or ""
        given = given if isinstance(given, str) else write_json(given)
        same = [call for call in reversed(calls) if at in (None, call.index)]
        found = next((call for call in same if ident and call.id == ident), same[0] if same else None)
        if found is None or found.is_followed_by(ident, name, given):
            for call in calls:
                call.is_decided = True
            found = Call(index=at)
            calls.append(found)
        found.add(part, ident, name, given)
        found.is_decided |= bool(found.parts) or not any(tool.startswith(found.name) for tool in self.tools)
        return found

    def _pass(self, chunk: Chunk) -> bytes:
        """Returns the bytes that the client gets of a chunk whose calls are known."""
        now, data, event = self.now, chunk.data, chunk.event
        if not isinstance(data, dict):
            return self.hold(event, is_end=True) if now.closing or chunk.is_end else event.raw
        self._same = self._same or {name: data[name] for name in ("id", "created") if name in data}
        now.usage = data.get("usage") or now.usage
        for choice, parts in chunk.choices:
            self._take(choice, parts)
        says_more = any(_has_content(choice.get("delta") or {}) for choice, _ in chunk.choices)
        out = self._reopen() if now.closing and says_more else b""
        is_ending = bool(now.closing or chunk.is_end)
        if is_ending and not (self.is_touched and chunk.choices):
            return out + self.hold(event, is_end=True)
        if not self.is_touched:
            return out + event.raw
        shown, held, rest = [], [], []
        for choice, parts in chunk.choices:
            delta = {k: v for k, v in (choice.get("delta") or {}).items() if k != "tool_calls"}
            theirs = [part | {"index": call.place} for part, call in parts if call.place is not None]
            ours = [part for part, call in parts if call.place is None]
            delta |= {"tool_calls": theirs} if theirs else {}
            # The opening of a message alone, the client has from the first round.
            if delta if len(self.rounds) == 1 else _has_content(delta):
                shown.append(choice | {"delta": delta, "finish_reason": None})
            if ours:
                held.append(choice | {"delta": {"tool_calls": ours}, "finish_reason": None})
            if choice.get("finish_reason"):
                rest.append(choice | {"delta": {}})
        is_ending = bool(rest or now.closing)
        if held or is_ending:
            told = b"".join(self._write(data, some) for some in (held, rest) if some)
            self._withheld.append(told if shown else event.raw)
        if is_ending:
            told = self._write(data, rest)
            now.closing.append(Event(told, told[6:].decode()))
            data = {name: value for name, value in data.items() if name != "usage"}  # told with the end
        return out + (self._write(data, shown) if shown or not chunk.choices else b"")

    def _take(self, choice: Item, parts: list[tuple[Item, Call]]) -> None:
        """Takes note of what a choice says and calls."""
        now, is_first, delta = self.now, _read_index(choice) == 0, choice.get("delta") or {}
        for part, call in parts:
            is_ours = call.name in self.tools
            now.is_hidden |= is_ours
            if is_ours and is_first and call not in now.calls:
                now.calls.append(call)
            elif not is_ours and call.place is None:
                before = [other.place for other in now.listed[_read_index(choice)] if other.place is not None]
                came = part.get("index")
                call.place = came if isinstance(came, int) and not now.is_hidden else max(before, default=-1) + 1
                if is_first:
                    now.others.append(call)
                    self._ids.add(call.id)
        if is_first:
            now.finish = choice.get("finish_reason") or now.finish
            now.parts += _list_texts(delta.get("content"))
            now.is_shown |= any(value for name, value in delta.items() if name not in UNSEEN)
            for name in THOUGHTS:
                if isinstance(told := delta.get(name), (str, list)) and told:
                    now.thoughts.setdefault(name, []).extend(told if isinstance(told, list) else [told])

    def _reopen(self) -> bytes:
        """Returns what was taken for the end of an answer that goes on."""
        closing, self.now.closing = self.now.closing, []
        self._withheld = [raw for raw in self._withheld if raw not in {event.raw for event in closing}]
        if not self.is_touched:
            return b"".join(event.raw for event in closing)
        out = []
        for data in (event.json() for event in closing):
            choices = [c | {"finish_reason": None} for c in _list_choices(data) if _has_content(c.get("delta") or {})]
            out += [self._write(data, choices)] if choices else []
        return b"".join(out)

    def _write(self, data: Item, choices: list[Item]) -> bytes:
        """Returns a chunk with these choices, as one of the message that the first round began."""
        return f"data: {write_json(data | {'choices': choices} | self._same)}\n\n".encode()

    def split_whole(self, answer: Item) -> list[Item]:
        told: list[Item] = []
        for choice in _list_choices(answer):
            message = choice.get("message") or {}
            delta = message | {"tool_calls": [call | {"index": at} for at, call in enumerate(_list_calls(message))]}
            told.append(answer | {"choices": [{"index": _read_index(choice), "delta": delta}], "usage": None})
            end: Item = {
                "index": _read_index(choice),
                "delta": {},
                "finish_reason": choice.get("finish_reason") or "stop",
            }
            told.append({"choices": [end]})
        return [*told, {"choices": [], "usage": answer.get("usage") or {}}]

    def can_go_on(self) -> bool:
        return not self.now.others and not any(self.now.listed)

    def render_round(self, now: Round, results: list[str]) -> str:
        thoughts = {k: "".join(v) if isinstance(v[0], str) else v for k, v in now.thoughts.items()}
        said = {"role": "assistant", "content": now.text or None} | thoughts
        return quote(said | {"tool_calls": list(map(_tell, now.calls))}) + "," + _render_results(now, results)

    def collect_additions(self, results: list[list[str]]) -> Added:
        """Rounds ahead of the client's message, calls beside its own."""
        last = self.now
        is_beside = bool(last.calls and last.others)
        told = [(now, answers) for now, answers in zip(self.rounds, results) if now.calls]
        before = [self.render_round(now, answers) for now, answers in told if not (now is last and is_beside)]
        added: Added = {"before": ",".join(before), "rest": NO_ANSWER if self.is_noted else last.text}
        if is_beside:
            added["beside"] = ",".join(quote(_tell(call)) for call in last.calls)
            added["results"] = _render_results(last, results[-1])
        return added

    def is_shown(self) -> bool:
        return any(now.is_shown or now.others or now.text.strip() for now in self.rounds)

    def add_note(self) -> None:
        pass  # items and the end tell it

    def items(self) -> list[Item]:
        self.fill()
        text = NO_ANSWER if self.is_noted else "".join(now.text for now in self.rounds)
        others = [call.as_item() for call in self.now.others]
        return [{"role": "assistant", "content": text or None} | ({"tool_calls": others} if others else {})]

    def whole(self, answer: Item) -> Item:
        told = []
        for choice in _list_choices(answer):
            message = dict(choice.get("message") or {})
            calls = [call for call in _list_calls(message) if read_tool_name(call) not in self.tools]
            message.pop("tool_calls", None)
            message |= {"tool_calls": calls} if calls else {}
            if _read_index(choice) == 0:
                message["content"] = self.items()[0]["content"]
            told.append(choice | {"message": message} | self._finish(choice))
        return answer | {"choices": told, "usage": (answer.get("usage") or {}) | self.count_usage()} | self._same

    def finish(self) -> bytes:
        self._decide_all()
        return self._pass_waiting() + super().finish()

    def write_end(self) -> bytes:
        told = [data for event in self.now.closing if isinstance(data := event.json(), dict)]
        out = []
        if self.is_noted:
            head = {name: told[0][name] for name in ("object", "model") if told and name in told[0]}
            out.append(self._write(head, [{"index": 0, "delta": {"content": NO_ANSWER}, "finish_reason": None}]))
        for data in told:
            choices = [choice | self._finish(choice) for choice in _list_choices(data)]
            total = {"usage": data["usage"] | self.count_usage()} if isinstance(data.get("usage"), dict) else {}
            out.append(self._write(data | total, choices))
        return b"".join([*out, *(event.raw for event in self.now.closing if event.data == "[DONE]")])

    def _finish(self, choice: Item) -> Item:
        """Returns why a choice ended, where the calls that it ended with were ours only."""
        calls = self.now.listed.get(_read_index(choice), [])
        only = choice.get("finish_reason") == "tool_calls" and all(call.name in self.tools for call in calls)
        return {"finish_reason": "stop"} if only else {}

    def error(self, body: bytes) -> bytes:
        return b"data: " + b" ".join(body.splitlines()) + b"\n\n"


def _list_choices(data: Any) -> list[Item]:
    told = data.get("choices") if isinstance(data, dict) else None
    return [choice for choice in told if isinstance(choice, dict)] if isinstance(told, list) else []


def _read_index(choice: Item) -> int:
    return int(choice.get("index") or 0)


def _list_calls(message: Item) -> list[Item]:
    return [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]


def _tell(call: rounds.Call) -> Item:
    assert isinstance(call, Call)
    return call.as_item()


def _has_content(delta: Item) -> bool:
    """Does a delta say something that its message did not begin with?"""
    return any(value for name, value in delta.items() if name != "role")


def _list_texts(content: Any) -> list[str]:
    """Returns the texts of a content, which Mistral sends as a list where the model thinks."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return [text for text in texts if isinstance(text, str)]


def _render_results(now: Round, results: list[str]) -> str:
    told = zip(now.calls, results)
    return ",".join(quote({"role": "tool", "tool_call_id": call.id, "content": text}) for call, text in told)
