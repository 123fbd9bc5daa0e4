"""What goes upstream in the place of what the client sent, in the modes recall and manage."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import psycopg
from pg_memoir.errors import MemoirError

from .additions import make_edits, offer_tools
from .copies import edit_copies
from .dialect import Added, make_storable, read_tool_name
from .exchange import Exchange
from .forms import (
    Forms,
    Shown,
    count_budget,
    count_fixed,
    edit_forms,
    has_large_news,
    has_results,
    mark_cache,
    read_forms,
)
from .gateway import Gateway, in_thread, keep_newest, log
from .known import KnownMessages
from .line_edits import is_within
from .record import Recorder
from .rounds import Rounds
from .spans import Edit, NotPlain, apply_edits, write_json
from .talk import Talk, list_texts

COMMAND = re.compile(r"\[\[(?=\w)")  # how harnesses of agents mark commands in a prompt. In a recall they are data
COMMANDS = re.compile(r"\[\[\w+(:[\w.-]+)*\]\]")  # beside them a message must have a word to ask anything
# A question to memory_query that names an object: it asks for its text.
NAME = re.compile(r"\s*(object\s+)?\"?[0-9a-f]{8}\b[^a-z?]*(lines?[^a-z?]*)?$")
BEHIND_ALL = 2_147_483_647  # behind every turn: nothing of the session is in the client's list
ASKED = 2_000  # characters: of a longer message, the question stands at its beginning or end
SAID = 50_000  # characters of the list, from its end, that are compared with what is found
OFFERS = 5_000  # sessions of which it is kept in mind whether our tools were offered
UNTOUCHED_SECONDS = 600.0  # then a conversation whose changes a provider refused is changed again
UNSEEN = 9  # times longer the database may take for a long list that this process has not seen
TOOLS_SECONDS = 20.0  # after this time calls of our tools are given up
UNREACHABLE = (TimeoutError, psycopg.Error, MemoirError, OSError)


@dataclass
class Plan:
    """A request to send, and the tools of ours whose calls are answered here. `added` is set in for each message,
    `forms` and `offered` are edits that set in forms and tools."""

    sent: bytes
    tools: set[str] = field(default_factory=set)
    added: list[Added | None] = field(default_factory=list)
    forms: list[Edit] = field(default_factory=list)
    offered: list[Edit] = field(default_factory=list)
    rewritten: int = 0
    bypassed: str = ""

    def list_edits(self, talk: Talk) -> list[Edit]:
        """Returns all edits of the client's text but the offer of tools. Raises NotPlain."""
        # Additions to a step that is a line go with it.
        gone = [(edit.start, edit.end) for edit in self.forms if edit.end > edit.start]
        return [edit for edit in make_edits(talk, self.added) if not is_within(edit.start, edit.end, gone)] + self.forms


class Rewriter:
    """Decides what goes upstream, for one process."""

    def __init__(self, gateway: Gateway, known: KnownMessages, recorder: Recorder) -> None:
        self.gateway = gateway
        self.known = known
        self.recorder = recorder
        self.shown = Shown()
        self._untouched: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._offers: OrderedDict[tuple[str, str], bool] = OrderedDict()

    def leave_alone(self, talk: Talk, seconds: float = UNTOUCHED_SECONDS) -> None:
        """Lets the requests of a conversation pass untouched for a while: the provider has refused what we made of
        one."""
        keep_newest(self._untouched, talk.key, time.monotonic() + seconds, OFFERS)

    async def plan(self, exchange: Exchange, talk: Talk) -> Plan:
        """Returns what to send. While the database is away or slow, what this process knows still applies."""
        plan = Plan(exchange.body)
        if talk.mode == "observe" or talk.kind not in ("main", "compaction"):
            return plan
        if talk.previous or talk.body.get("thread"):
            return plan  # what is set into a list that the provider keeps can't be taken back
        if self._untouched.get(talk.key, 0) > time.monotonic():
            return Plan(exchange.body, bypassed="refused before")
        forms = self.shown.find_last(talk)
        until = time.monotonic() + self.gateway.config.database_ms / 1000
        if talk.mode == "manage" and forms is None and len(talk.body.text) > 2 * self._find_window(exchange):
            # Half the window or more that this process has not seen, as after a restart: whole it may not fit.
            until += UNSEEN * self.gateway.config.database_ms / 1000
        try:
            if talk.mode == "manage" and has_results(talk):
                await self.recorder.wait_for(talk, until)
            through = await self.gateway.in_time(self.known.look_up(talk), until)
            if talk.mode == "manage":
                forms = await self._find_forms(talk, through, exchange, until)
            if talk.kind == "main":
                await self._recall(talk, through, until)
        except UNREACHABLE as error:
            plan.bypassed = type(error).__name__
            log.info("bypassed: %s: %s", type(error).__name__, error)
        try:
            plan.added = self.known.additions(talk)
            if forms and talk.mode == "manage":
                changed = edit_forms(talk, forms)
                plan.forms = mark_cache(talk, changed, self.shown) + edit_copies(talk, forms)
                moved = self.shown.find_moved(talk, changed)
                self.gateway.counts.add("moves", len(moved))
                plan.rewritten = len(talk.body.text) - min((edit.start for edit in moved), default=len(talk.body.text))
            self._offer_tools(talk, plan)
            edits = plan.list_edits(talk) + plan.offered
            plan.sent = apply_edits(talk.body.text, edits).encode() if edits else exchange.body
            exchange.changes = [[edit.start, edit.end, len(edit.text)] for edit in edits]
        except NotPlain:
            return Plan(exchange.body, bypassed="NotPlain")
        return plan

    async def _recall(self, talk: Talk, through: int, until: float) -> None:
        """Finds what belongs beside the newest message of a person, or beside what may be a person's question in it,
        once."""
        newest = await in_thread(len(talk.body.text), talk.newest)
        said = make_storable("\n".join(piece.text for piece in newest if piece.whose in ("person", "question"))).strip()
        if not re.search(r"\w\w", COMMANDS.sub(" ", said)) or self.known.added(talk, len(talk.chain) - 1) is not None:
            return
        known = self.known.find(talk, through - 1) if through else None
        shown = [one["profile"] for one in self.known.additions(talk) if one and "profile" in one]
        call = self.gateway.memoir.recall_beside(
            talk.user,
            known.session if known else talk.session,
            said if len(said) <= ASKED else f"{said[: ASKED // 2]}\n{said[-ASKED // 2 :]}",
            memory_budget=self.gateway.config.recall_tokens,
            shown_from=0 if known else BEHIND_ALL,
            said=make_storable("\n".join(t for item in talk.items[through:] for t in list_texts(item))[-SAID:]),
            profile_version=shown[-1] if shown else None,
        )
        found = await self.gateway.in_time(call, until)
        added: Added = {"items": found["items"], "profile": found["profile_version"]}
        if found["text"]:
            added["tail"] = COMMAND.sub("[ [", found["text"])
            self.gateway.counts.add("recalls")
        self.known.add(talk, talk.chain[-1], added)

    async def _find_forms(self, talk: Talk, through: int, exchange: Exchange, until: float) -> Forms | None:
        """Returns the forms in force: as they were after the last answer, unless something has changed since."""
        budget = count_budget(talk, self._find_window(exchange))
        known = self.known.find(talk, through - 1) if through else None
        if known is None:  # of a conversation that no provider has accepted yet nothing is stored
            return None
        session = known.session
        if has_large_news(talk, through, budget):
            session = await self.gateway.in_time(self.recorder.catch_up(talk), until)
        elif forms := self.shown.find(talk):
            return forms
        return await self.gateway.in_time(self._ask_forms(talk, session, budget), until)

    def _find_window(self, exchange: Exchange) -> int:
        return 1_000_000 if "context-1m" in exchange.header("anthropic-beta") else self.gateway.config.window

    async def _ask_forms(self, talk: Talk, session: str, budget: int) -> Forms:
        fixed = count_fixed(talk)
        forms = read_forms(await self.gateway.memoir.window_forms(talk.user, session, budget=budget, fixed=fixed))
        self.shown.keep(talk, forms)
        return forms

    async def refresh_forms(self, talk: Talk, session: str, exchange: Exchange) -> None:
        """Asks after an answer for the forms that the next request of the conversation shows."""
        if talk.mode == "manage" and talk.kind == "main":
            await self._ask_forms(talk, session, count_budget(talk, self._find_window(exchange)))

    def _offer_tools(self, talk: Talk, plan: Plan) -> None:
        """Offers our tools, if the client brings tools of its own."""
        if not self.gateway.config.tools or not talk.body.lists.get("tools"):
            return
        if talk.body.get("n") not in (None, 1):
            return  # each choice would need an answer of its own
        if talk.dialect.key == "input" and talk.body.get("store") is not False:
            return  # the provider keeps the list, and would wait for results of calls that the client never saw
        tools = self.gateway.tools.get(talk.dialect.sort, [])
        # With a session's first call or never: tools that come later would cost its whole prompt cache.
        is_offered = self._offers.get(talk.key, bool(tools))
        keep_newest(self._offers, talk.key, is_offered, OFFERS)
        if not tools or not is_offered:
            plan.bypassed = plan.bypassed or "tools"
            return
        taken = {read_tool_name(node.value) for node in talk.body.lists["tools"] if isinstance(node.value, dict)}
        plan.tools = {read_tool_name(tool) for tool in tools} - taken
        plan.offered = offer_tools(talk.body, tools, taken)

    async def go_on(self, talk: Talk, plan: Plan, rounds: Rounds[Any], results: list[str]) -> bytes:
        """Returns the request that goes on with what our tools answered, without text that a call has just had
        forgotten. The last one is made without our tools."""
        try:
            await self.gateway.in_time(self.known.look_up(talk))
            plan.added = [new if old else old for old, new in zip(plan.added, self.known.additions(talk))]
        except UNREACHABLE as error:
            log.warning("not withdrawn: %s: %s", type(error).__name__, error)
        edits = plan.list_edits(talk) + rounds.go_on(talk.body, results)
        return apply_edits(talk.body.text, edits + ([] if rounds.is_last else plan.offered)).encode()

    async def answer_calls(self, talk: Talk, calls: list[tuple[str, str, Any]]) -> list[str]:
        """Returns what the calls of our tools (id, name, arguments) answer. The user's message is stored first: text
        that a call quotes of it carries the user's word."""

        async def answers() -> list[str]:
            session = await self.recorder.catch_up(talk)
            return [await self._answer_call(talk, session, name, arguments) for _, name, arguments in calls]

        try:
            return await self.gateway.within(TOOLS_SECONDS, answers())
        except Exception as error:  # whatever it is: the model goes on without
            self.gateway.counts.add("tool_calls_failed")
            log.warning("tools: %s: %s", type(error).__name__, error)
            return ["Error: memory is out of reach at the moment. Go on without it."] * len(calls)

    async def _answer_call(self, talk: Talk, session: str, name: str, arguments: Any) -> str:
        self.gateway.counts.add("tool_calls", tool=name)
        if not isinstance(arguments, dict):
            return f"Error: arguments must be a JSON object, not {write_json(arguments)[:200]}"
        if name in ("memory_query", "memory_restore"):
            named = name == "memory_restore" or NAME.match(str(arguments.get("question")))
            self.gateway.counts.add("faults", kind="restored" if named else "asked")
        return await self.gateway.memoir.call_memory_tool(talk.user, session, name, arguments) or "Nothing found."
