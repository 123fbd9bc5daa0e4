"""One session through one strategy: what each call sent, what it cost, what the model needed and did not see."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from .caching import Cache, Request, kept, request, tokens
from .entities import entities
from .sessions import Message, Session
from .strategies import TOOLS, Strategy

SECONDS = 15.0  # between two calls, where the session does not say otherwise
TOOL_TEXT = json.dumps(TOOLS)


@dataclass
class Outcome:
    """What came of it. Tokens are those sent, of all calls; results: in tool results."""

    strategy: str
    session: str
    window: int
    calls: int = 0
    tokens: int = 0
    results: int = 0
    output: int = 0
    kept: int = 0
    could: int = 0
    moves: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    answered: int = 0
    seconds: list[float] = field(default_factory=list)
    last: int = 0  # tokens of the last list
    sizes: list[int] = field(default_factory=list)  # of each list, and what the calls so far cost
    spent: list[float] = field(default_factory=list)


def text_of(message: Message) -> str:
    arguments = [call["function"]["arguments"] for call in message.get("tool_calls", [])]
    return "\n".join([message.get("content") or "", *(plain(argument) for argument in arguments)])


def plain(arguments: str) -> str:
    """The strings of a call's arguments, as they are written."""
    try:
        values = json.loads(arguments)
    except ValueError:
        return arguments
    found: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(values)
    return "\n".join(found)


def sent_text(body: dict) -> str:
    """All that a model reads of a body, strings of calls as they are written."""
    out: list[str] = [block["text"] for block in body["system"]]
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "text":
                out.append(block["text"])
            elif block["type"] == "tool_use":
                out.append(plain(json.dumps(block["input"], ensure_ascii=False)))
            elif block["type"] == "tool_result":
                content = block["content"]
                out += [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return "\n".join(out)


def result_tokens(sent: Request) -> int:
    return sum(
        size
        for block, size in zip(sent.blocks, sent.sizes, strict=True)
        if block.startswith('user{"type": "tool_result"')
    )


class Needs:
    """Which entities of earlier tool results and calls a message uses that are new to nobody but the list."""

    def __init__(self) -> None:
        self.first: dict[str, int] = {}  # entity → the message that brought it up

    def add(self, at: int, message: Message) -> None:
        if message["role"] in ("tool", "assistant"):
            for entity in entities(text_of(message)):
                self.first.setdefault(entity, at)

    def hidden(self, message: Message, shown: str) -> Counter[str]:
        """Of the earlier messages from which this one uses an entity that the list does not show: what kind of entity that
        is (the first of several: one fault)."""
        used = {entity: kind for entity, kind in entities(text_of(message)).items() if entity in self.first}
        missing: dict[int, str] = {}
        for entity, kind in used.items():
            if entity not in shown:
                missing.setdefault(self.first[entity], kind)
        return Counter(missing.values())


def replay(session: Session, strategy: Strategy, window: int, clock: Callable[[float], None] | None = None) -> Outcome:
    """Call by call. Planted facts are asked for when their result is no longer whole in the list, in the session's course."""
    out = Outcome(strategy.name, session.name, window)
    cache, needs, before, now, seen = Cache(), Needs(), None, 0.0, 0
    asks = random.Random(session.name)
    open_plants = list(session.plants)
    step_of = {at: step for step, at in enumerate(at for at, m in enumerate(session.messages) if m.get("tool_calls"))}
    for at in session.calls():
        now += session.pauses.get(at, SECONDS)
        if clock:
            clock(now)
        sent = strategy.send(session, at)
        made = request(sent.body, TOOL_TEXT)
        cache.call(made, now)
        same, could = kept(before, made)
        before = made
        answer = session.messages[at]
        for earlier in range(seen, at):
            needs.add(earlier, session.messages[earlier])
        seen = at
        shown = sent_text(sent.body)
        missing = needs.hidden(answer, shown)
        out.calls += 1
        out.tokens += made.total
        out.results += result_tokens(made)
        out.last = made.total
        out.output += tokens(text_of(answer))
        out.kept, out.could = out.kept + same, out.could + could
        out.faults += missing
        out.sizes.append(made.total)
        out.spent.append(cache.cost(out.output))
        out.seconds.append(sent.seconds)
        for plant in [plant for plant in open_plants if plant.step < step_of.get(at, 0) and plant.answer not in shown]:
            open_plants.remove(plant)
            if asks.random() < 0.5:
                found = strategy.ask(plant)
                if found is not None:
                    out.asked += 1
                    out.answered += plant.answer in found
    out.moves = strategy.moves()
    return out
