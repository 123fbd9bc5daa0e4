"""Builds generated worlds, compiles them and checks every answer with the validator."""

import base64
import json
import math
import random
import struct
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from calls import embed_waiting, one
from generators import SESSION, World, worlds
from hypothesis import HealthCheck, given, seed, settings
from psycopg.types.json import Jsonb
from servers import connect
from validator import Expected, Message, asked_parts, tokens_of, validate

# Registered models by name: tokens of overhead per message, provider, window less response reserve.
MODELS = {
    "default": (4, "openai", 32768 - 4096),
    "gpt-4": (4, "openai", 8192 - 4096),
    "claude-sonnet": (8, "anthropic", 200000 - 8192),
}
PRESENT = "2025-06"  # generated times are before or long after every run
CASTS = dict.fromkeys(("p_query_embedding", "p_embedding"), "::real[]")
CASTS |= dict.fromkeys(("p_as_of", "p_valid_at"), "::timestamptz")


def check_worlds(dsn: str, start: int, examples: int, cases: int) -> Counter[str]:
    """Checks `cases` compiles on each of `examples` worlds of a seed; returns how many gave a list or were refused.

    Hypothesis makes a failing world smaller and prints it.
    """
    seen: Counter[str] = Counter()
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    with connect(dsn) as connection:

        @seed(start)
        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=checks)
        @given(worlds(cases))
        def check(made: World) -> None:
            built = Built(connection, made)
            assert not built.refusals
            for number, case in enumerate(made.cases):
                violations, refused = built.check(case, is_twice=number % 4 == 0)
                seen.update(["cases", refused or "lists"])
                assert not violations, (case, violations[:5])

        check()
    return seen


# --- Counting ----------------------------------------------------------------------------------------------------------


class Tokens:
    """Token counts by the database's own counter for a model's tokenizer, cached; `prefetch` counts many texts in one call."""

    def __init__(self, connection: psycopg.Connection, model: str) -> None:
        self._connection, self._model = connection, model
        self._known: dict[str, int] = {"": 0}

    def prefetch(self, texts: Sequence[str]) -> None:
        new = list({text for text in texts if text not in self._known})
        if not new:
            return
        counted = "array_agg(memoir.count_tokens(t, %s) order by n) from unnest(%s::text[]) with ordinality u (t, n)"
        counts = one(self._connection, f"select {counted}", self._model, new)
        self._known.update(zip(new, counts, strict=True))

    def __call__(self, text: str) -> int:
        if text not in self._known:
            self.prefetch([text])
        return self._known[text]


def strings_of(value: Any) -> list[str]:
    """Every string in a JSON value but long images."""
    if isinstance(value, str):
        return [] if value.startswith("data:") else [value]
    if isinstance(value, dict):
        return [text for inner in value.values() for text in strings_of(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in strings_of(inner)]
    return []


def image_tokens(provider: str, known: Sequence[Message]) -> Callable[[dict[str, Any]], int]:
    """Tokens of an image part by the model's provider's published rule; a size that can't be told counts at the maximum.
    `known`: messages that say the detail of an image, which Anthropic's shape has no place for."""
    parts = [part for message in known if isinstance(message.get("content"), list) for part in message["content"]]
    images = [part["image_url"] for part in parts if part["type"] == "image_url"]
    details = {image["url"]: image.get("detail") for image in images}

    def count(part: dict[str, Any]) -> int:
        source = part["image_url"]
        if provider == "openai" and details.get(source["url"]) == "low":
            return 85
        size = _png_size(source["url"])
        if provider == "anthropic":
            if size is None:
                return 1600
            scale = min(1.0, 1568 / max(size))
            wide, high = size[0] * scale, size[1] * scale
            return min(1600, max(math.ceil(wide * high / 750), math.ceil(wide / 28) * math.ceil(high / 28)))
        if size is None:
            return 1445
        scale = min(1.0, 2048 / max(size))
        scale *= min(1.0, 768 / (min(size) * scale))
        tiles = [max(1, math.ceil(edge * scale / 512 - 1e-9)) for edge in size]
        return 85 + 170 * tiles[0] * tiles[1]

    return count


def _png_size(url: str) -> tuple[int, int] | None:
    if not url.startswith("data:image/png;base64,"):
        return None
    data = base64.b64decode(url.split(",", 1)[1])
    return struct.unpack(">II", data[16:24]) if data[:8] == b"\x89PNG\r\n\x1a\n" else None  # type: ignore[return-value]


# --- One world ---------------------------------------------------------------------------------------------------------


class Built:
    """A world's state in the database, under a user of its own, and the checks of one compile on it."""

    def __init__(self, connection: psycopg.Connection, made: World) -> None:
        self.connection, self.made, self.model = connection, made, made.model
        self.user = f"w-{uuid.uuid4().hex[:16]}"
        connection.execute("select memoir.open_session(%s, 'model', %s)", (self.user, self.model))
        self.refusals: list[str] = []
        self.tokens = {name: Tokens(connection, name) for name in MODELS}
        self.histories: dict[str, list[Message]] = {}
        for function, arguments in made.calls:
            listed, values = _named(arguments)
            try:
                connection.execute(f"select memoir.{function}(p_user => %s, {listed})", (self.user, *values))
            except psycopg.Error as error:
                self.refusals.append(f"{function}: {error.sqlstate} {error.diag.message_primary}")
        if made.embed:
            self._embed(random.Random(made.embed))

    def _embed(self, rng: random.Random) -> None:
        """Vectors for some of what waits for one, as a worker would store them."""
        embed_waiting(self.connection, lambda text: [rng.gauss(0, 1) for _ in range(384)], limit=200)

    def history(self, session: str) -> list[Message]:
        """A session's messages as persisted; [] where there is no such session."""
        if session not in self.histories:
            try:
                rows = self.connection.execute("select memoir.history(%s, %s)", (self.user, session)).fetchall()
            except psycopg.Error:
                rows = []
            self.histories[session] = [row[0] for row in rows]
        return self.histories[session]

    def check(self, case: dict[str, Any], is_twice: bool) -> tuple[list[str], str | None]:
        """(violations, SQLSTATE of the refusal or None) of one compile, made twice or once."""
        session = case["p_session"]
        listed, values = _named(case)
        arguments = (self.user, *values)
        expected = self._expected(case, session)
        try:
            with self.connection.transaction():
                # One snapshot for both: another world's worker may be storing this user's vectors.
                self.connection.execute("set transaction isolation level repeatable read")
                context = one(self.connection, f"select memoir.context(p_user => %s, {listed})", *arguments)
                again = context["messages"]
                if is_twice:
                    again = one(self.connection, f"select memoir.compile_context(p_user => %s, {listed})", *arguments)
        except psycopg.Error as error:
            return self._check_refusal(error, expected), error.sqlstate or "none"
        self.tokens[self._model_of(session)].prefetch(strings_of(context["messages"]))
        expected = replace(expected, **self._announced(context, expected.history or []))
        violations = validate(context["messages"], expected)
        if json.dumps(context["messages"]) != json.dumps(again):
            violations.append("determinism: context and compile_context of the same state differ")
        if context["budget"] != expected.budget:
            violations.append(f"budget: context says {context['budget']}, expected {expected.budget}")
        if context["tokens"] > context["budget"]:
            violations.append(f"budget: context says {context['tokens']} tokens for a budget of {context['budget']}")
        limit = case.get("p_memory_budget")
        # An open exchange keeps the recall it was started with, whatever the budget was then.
        if limit is not None and expected.query is not None and context["recall_tokens"] > limit:
            violations.append(f"recall: {context['recall_tokens']} tokens where p_memory_budget is {limit}")
        return violations, None

    def _announced(self, context: dict[str, Any], history: list[Message]) -> dict[str, Any]:
        """What the answer says it left out or shortened, as positions in the history. Only two gaps are allowed, both with a
        warning: the middle of the newest exchange, and calls that have no results yet."""
        warnings = " ".join(context["warnings"])
        shown = [place for place, message in enumerate(history) if message["turn_index"] in context["turns"]]
        users = [place for place, message in enumerate(history) if message["role"] == "user"]
        hidden: set[int] = set()
        if "left out" in warnings and users:
            hidden = set(range(users[-1] + 1, len(history))) - set(shown)
        excerpts = set(shown) if "excerpt" in warnings else set()
        return {"hidden": frozenset(hidden), "excerpts": frozenset(excerpts), "recalled": context["recall_tokens"] > 0}

    def _model_of(self, session: str) -> str:
        return self.model if session in (SESSION, "branch") and self.made.has("open_session", SESSION) else "default"

    def _expected(self, case: dict[str, Any], session: str) -> Expected:
        given = case
        overhead, provider, room = MODELS[self._model_of(session)]
        budget = given.get("p_budget")
        tools = given.get("p_tools")
        return Expected(
            budget=room if budget is None else budget,
            count=self.tokens[self._model_of(session)],
            query=given.get("p_query"),
            query_parts=given.get("p_query_parts"),
            tools=self.connection.execute("select %s::jsonb::text", (Jsonb(tools),)).fetchone()[0] if tools else None,
            system_prompt=self.made.prompt(session),
            # Everything was recorded just now: as of any time before, the session had no turns.
            history=[] if given.get("p_as_of", "9") < PRESENT else self.history(session),
            format=given.get("p_format", "openai"),
            overhead=overhead,
            image_tokens=image_tokens(provider, [*self.history(session), {"content": given.get("p_query_parts")}]),
        )

    def _check_refusal(self, error: psycopg.Error, expected: Expected) -> list[str]:
        code, history = error.sqlstate, list(expected.history or [])
        asked = expected.query is not None or expected.query_parts is not None
        open_from = _open_exchange(history)
        if code == "PM020":
            return self._check_too_small(error, expected, history, open_from)
        if code == "PM022" and not asked and open_from is None:
            return []
        if code == "PM014" and expected.query is not None and not expected.query.strip():
            return []
        if code in ("PM011", "PM022") and not asked and _unanswered(history):
            return []
        where = f"asked: {asked}, open from {open_from} of {len(history)}"
        return [f"refusal: {code} {error.diag.message_primary} ({where})"]

    def _check_too_small(
        self, error: psycopg.Error, expected: Expected, history: list[Message], open_from: int | None
    ) -> list[str]:
        """PM020 must be true: the sizes in its DETAIL, and by our own count the newest message can't be sent."""
        sizes = json.loads(error.diag.message_detail or "{}")
        if not {"needed", "budget", "system", "message"} <= set(sizes):
            return [f"refusal: PM020 without its sizes: {sizes}"]
        found = []
        if sizes["needed"] <= sizes["budget"]:
            found.append(f"refusal: PM020 says {sizes['needed']} does not fit {sizes['budget']}")
        if sizes["budget"] != expected.budget:
            found.append(f"refusal: PM020 says the budget is {sizes['budget']}, it is {expected.budget}")
        least: list[Message] = [{"role": "system", "content": expected.system_prompt}] if expected.system_prompt else []
        if expected.query is not None or expected.query_parts is not None:
            content: Any = expected.query
            if expected.query_parts is not None:
                content = asked_parts(expected)
            least.append({"role": "user", "content": content})
        elif open_from is not None:
            least += [_as_counted(message) for message in history[open_from:]]
        if (ours := tokens_of(least, expected)) <= expected.budget:
            found.append(f"refusal: PM020 {sizes}, but the least list has {ours} of {expected.budget} tokens")
        return found


def _named(arguments: dict[str, Any]) -> tuple[str, list[Any]]:
    """Named arguments of a call and their values."""
    listed = ", ".join(f"{name} => %s{CASTS.get(name, '')}" for name in arguments)
    return listed, [_adapt(value) for value in arguments.values()]


def _adapt(value: Any) -> Any:
    if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
        return Jsonb(value)
    return value


def _unanswered(history: list[Message]) -> bool:
    open_calls: set[str] = set()
    for message in history:
        open_calls |= {call["id"] for call in message.get("tool_calls") or []}
        open_calls.discard(message.get("tool_call_id") or "")
    return bool(open_calls)


def _as_counted(message: Message) -> Message:
    """Arguments that are no object count as the costlier format sends them, wrapped into one (docs/explain/tokens.md)."""

    def wrapped(call: Message) -> Message:
        arguments = call["function"]["arguments"]
        try:
            is_object = not isinstance(arguments, str) or isinstance(json.loads(arguments), dict)
        except ValueError:
            is_object = False
        whole = arguments if is_object else json.dumps({"arguments": arguments}, ensure_ascii=False)
        return call | {"function": call["function"] | {"arguments": whole}}

    calls = message.get("tool_calls")
    return message | {"tool_calls": [wrapped(call) for call in calls]} if calls else message


def _open_exchange(history: list[Message]) -> int | None:
    """Where the open exchange begins (its first user message), None where the assistant has answered."""
    rest = [(place, message) for place, message in enumerate(history) if message["role"] not in ("system", "developer")]
    if not rest or _unanswered(history) or rest[-1][1]["role"] == "assistant":
        return None
    users = [place for place, message in rest if message["role"] == "user"]
    return users[-1] if users else None
