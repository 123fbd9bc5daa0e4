"""What goes upstream in the place of what the client sent, in the modes recall and manage."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import psycopg
from pg_memoir.errors import MemoirError

from .additions import Added, edits_of, name_of, tools_edit
from .dialect import storable
from .exchange import Exchange
from .forms import Forms, Shown, budget_of, forms_of, has_results, large_news, mark
from .forms import edits as form_edits
from .gateway import Gateway, Sort, in_thread, log
from .known import KnownMessages
from .record import Recorder
from .spans import Edit, NotPlain, apply_edits, quoted
from .talk import Talk, texts

COMMAND = re.compile(r"\[\[(?=\w)")
"""How harnesses of agents mark commands in a prompt. In what is recalled they are data."""

COMMANDS = re.compile(r"\[\[\w+(:[\w.-]+)*\]\]")
"""Beside them a message must have a word to ask anything."""

ALL = 2_147_483_647
"""Behind every turn: nothing of the session is in the client's list."""


ASKED = 2_000
"""Of a long message, what is asked stands at its beginning or end."""

NAME = re.compile(r"\s*(object\s+)?\"?[0-9a-f]{8}\b[^a-z?]*(lines?[^a-z?]*)?$")
"""A question to memory_query that names an object: it asks for its text."""

OFFERS = 5_000
"""Sessions of which it is kept in mind whether our tools were offered."""

UNTOUCHED_SECONDS = 600.0
"""After this time a conversation whose changes a provider refused is changed again."""

TOOLS_SECONDS = 20.0
"""Calls of our tools are given up after this time."""

SAID = 50_000
"""So much of what the list says, from its end, is compared with what is found."""


@dataclass
class Plan:
    """What is sent, with which tools of ours, whose calls are answered here."""

    sent: bytes
    tools: set[str] = field(default_factory=set)
    changes: list[list[int]] = field(default_factory=list)
    rewritten: int = 0
    bypassed: str = ""


class Offers(dict[tuple[str, str], bool]):
    """Sessions and whether their model was offered our tools; the oldest are let go."""

    def setdefault(self, key: tuple[str, str], default: bool = True) -> bool:
        while len(self) > OFFERS:
            del self[next(iter(self))]
        return super().setdefault(key, default)


class Rewriter:
    """Of one process."""

    def __init__(self, gateway: Gateway, known: KnownMessages, recorder: Recorder) -> None:
        self.gateway = gateway
        self.known = known
        self.recorder = recorder
        self.shown = Shown()
        self.untouched: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._offers = Offers()

    def leave_alone(self, talk: Talk) -> None:
        """Lets the requests of a conversation pass untouched for a while: the provider has refused what we made of
        one."""
        self.untouched[talk.user, talk.session] = time.monotonic() + UNTOUCHED_SECONDS
        while len(self.untouched) > OFFERS:
            self.untouched.popitem(last=False)

    async def plan(self, exchange: Exchange, talk: Talk) -> Plan:
        """What to send. Where the database is away or slow, what this process knows still applies."""
        if talk.mode == "observe" or talk.kind not in ("main", "compaction"):
            return Plan(exchange.body)
        if talk.previous or talk.body.get("thread"):
            return Plan(exchange.body)  # what is set into a list that the provider keeps can't be taken back
        if self.untouched.get((talk.user, talk.session), 0) > time.monotonic():
            return Plan(exchange.body, bypassed="refused before")
        plan = Plan(exchange.body)
        forms = self.shown.last(talk)
        until = time.monotonic() + self.gateway.config.database_ms / 1000
        try:
            if talk.mode == "manage" and has_results(talk):
                await self.recorder.wait_for(talk, until)
            through = await self.gateway.in_time(self.known.look_up(talk), until)
            if talk.mode == "manage":
                forms = await self._forms(talk, through, exchange, until)
            if talk.kind == "main":
                await self._recall(talk, through, until)
        except (TimeoutError, psycopg.Error, MemoirError, OSError) as error:
            plan.bypassed = type(error).__name__
            log.info("bypassed: %s: %s", type(error).__name__, error)
        try:
            edits = edits_of(talk, self.known.additions(talk))
            if forms and talk.mode == "manage":
                changed = form_edits(talk, forms)
                edits += changed + mark(talk, changed, self.shown)
                moved = self.shown.moved(talk, changed)
                self.gateway.counts.add("moves", len(moved))
                plan.rewritten = len(talk.body.text) - min((edit.start for edit in moved), default=len(talk.body.text))
            edits += await self._offer_tools(talk, plan)
            plan.sent = apply_edits(talk.body.text, edits).encode() if edits else exchange.body
            plan.changes = [[edit.start, edit.end, len(edit.text)] for edit in edits]
        except NotPlain:
            return Plan(exchange.body, bypassed="NotPlain")
        return plan

    async def _recall(self, talk: Talk, through: int, until: float) -> None:
        """Finds what belongs beside the newest message of a person, or beside what may be a person's question in it,
        once."""
        newest = await in_thread(len(talk.body.text), talk.newest)
        said = storable("\n".join(piece.text for piece in newest if piece.whose in ("person", "question"))).strip()
        if not re.search(r"\w\w", COMMANDS.sub(" ", said)) or self.known.added(talk, len(talk.chain) - 1) is not None:
            return
        known = self.known.find(talk, through - 1) if through else None
        shown = [one["profile"] for one in self.known.additions(talk) if one and "profile" in one]
        found = await self.gateway.in_time(
            self.gateway.memoir.recall_beside(
                talk.user,
                known.session if known else talk.session,
                said if len(said) <= ASKED else f"{said[: ASKED // 2]}\n{said[-ASKED // 2 :]}",
                memory_budget=self.gateway.config.recall_tokens,
                shown_from=0 if known else ALL,
                said=storable("\n".join(t for item in talk.items[through:] for t in texts(item))[-SAID:]),
                profile_version=shown[-1] if shown else None,
            ),
            until,
        )
        added: Added = {"items": found["items"], "profile": found["profile_version"]}
        if found["text"]:
            added["tail"] = COMMAND.sub("[ [", found["text"])
            self.gateway.counts.add("recalls")
        self.known.add(talk, talk.chain[-1], added)

    async def _forms(self, talk: Talk, through: int, exchange: Exchange, until: float) -> Forms | None:
        """The forms in force: as they were after the last answer, unless something has changed since."""
        budget = budget_of(talk, self._window(exchange))
        known = self.known.find(talk, through - 1) if through else None
        # Of a conversation that no provider has accepted yet nothing is stored.
        if known and large_news(talk, through, budget):
            session = await self.gateway.in_time(self.recorder.catch_up(talk), until)
        elif known is None or (forms := self.shown.of(talk)):
            return forms if known else None
        else:
            session = known.session
        return await self.gateway.in_time(self._ask_forms(talk, session, budget), until)

    def _window(self, exchange: Exchange) -> int:
        return 1_000_000 if "context-1m" in exchange.header("anthropic-beta") else self.gateway.config.window

    async def _ask_forms(self, talk: Talk, session: str, budget: int) -> Forms:
        rows = await self.gateway.memoir.window_forms(talk.user, session, budget=budget)
        forms = forms_of(rows)
        self.shown.keep(talk, forms)
        return forms

    async def refresh_forms(self, talk: Talk, session: str, exchange: Exchange) -> None:
        """After an answer: what the next request of the conversation shows."""
        if talk.mode == "manage" and talk.kind == "main":
            await self._ask_forms(talk, session, budget_of(talk, self._window(exchange)))

    async def _offer_tools(self, talk: Talk, plan: Plan) -> list[Edit]:
        """Our tools, where the client brings tools of its own."""
        if not self.gateway.config.tools or not talk.body.lists.get("tools"):
            return []
        if talk.body.get("n") not in (None, 1):
            return []  # each choice would need an answer of its own
        if talk.dialect.key == "input" and talk.body.get("store") is not False:
            return []  # the provider keeps the list, and would wait for results of calls that the client never saw
        sort: Sort = "anthropic"
        if talk.dialect.name != "anthropic":
            sort = "responses" if talk.dialect.key == "input" else "openai"
        tools = self.gateway.tools.get(sort, [])
        # With a session's first call or never: tools that come later would cost its whole prompt cache.
        known = self._offers.setdefault((talk.user, talk.session), bool(tools))
        if not tools or not known:
            plan.bypassed = plan.bypassed or "tools"
            return []
        taken = {name_of(node.value) for node in talk.body.lists["tools"] if isinstance(node.value, dict)}
        plan.tools = {name_of(tool) for tool in tools} - taken
        return tools_edit(talk.body, tools, taken)

    async def answer_calls(self, talk: Talk, calls: list[tuple[str, str, Any]]) -> list[str]:
        """What the calls of our tools (id, name, arguments) answer. The user's message is stored first: what a call
        quotes of it carries the user's word."""

        async def answers() -> list[str]:
            session = await self.recorder.catch_up(talk)
            return [await self._one(talk, session, name, arguments) for _, name, arguments in calls]

        try:
            return await self.gateway.within(TOOLS_SECONDS, answers())
        except Exception as error:  # whatever it is: the model goes on without
            self.gateway.counts.add("tool_calls_failed")
            log.warning("tools: %s: %s", type(error).__name__, error)
            return ["Error: memory is out of reach at the moment. Go on without it."] * len(calls)

    async def without_withdrawn(self, talk: Talk, sent: bytes) -> bytes:
        """A request without what a call has just had forgotten."""
        try:
            for text, instead in await self.gateway.in_time(self.known.find_withdrawn(talk)):
                sent = sent.replace(text.encode(), instead.encode())
        except (TimeoutError, psycopg.Error, MemoirError, OSError) as error:
            log.warning("not withdrawn: %s: %s", type(error).__name__, error)
        return sent

    async def _one(self, talk: Talk, session: str, name: str, arguments: Any) -> str:
        self.gateway.counts.add("tool_calls", tool=name)
        if not isinstance(arguments, dict):
            return f"Error: arguments must be a JSON object, not {quoted(arguments)[:200]}"
        if name in ("memory_query", "memory_restore"):
            named = name == "memory_restore" or NAME.match(str(arguments.get("question")))
            self.gateway.counts.add("faults", kind="restored" if named else "asked")
        return await self.gateway.memoir.call_memory_tool(talk.user, session, name, arguments) or "Nothing found."
