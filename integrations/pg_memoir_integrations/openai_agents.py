"""OpenAI Agents SDK: a session whose items lie in PostgreSQL, as they came, and are recalled in other sessions.

session = MemoirSession("support-42", memoir, user="alice")
result = await Runner.run(agent, "What did I pay in March?", session=session)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agents import SessionSettings, TResponseInputItem
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
from pg_memoir import Message, from_input_items
from pg_memoir.functions import calls

from .running import AnyMemoir, arun, plain, retry_change


class MemoirSession:
    """The SDK's Session. Items come back equal as JSON. What they say is told by turns too: compiled, recalled and
    learnt from; `pop_item` and `clear_session` take both back, and nothing that was stored is changed.

    `limit`, `session_settings`: as the SDK's own sessions. Further options as open_session.
    """

    def __init__(
        self,
        session_id: str,
        memoir: AnyMemoir,
        *,
        user: str,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        **opening: Any,
    ) -> None:
        self.session_id = session_id
        self.memoir = memoir
        self.user = user
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings or {})
        self._opening = opening

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        limit = resolve_session_limit(limit, self.session_settings)
        if limit is not None and limit <= 0:
            return []
        found = await arun(self.memoir, calls.list_items(self.user, self.session_id, limit=limit))
        return [each.item for each in found]  # type: ignore[misc]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        if not items:
            return
        if self._opening:
            await arun(self.memoir, calls.open_session(self.user, self.session_id, **self._opening))
            self._opening = {}
        given = [dict(plain(item)) for item in items]
        asked = {item.get("call_id") for item in given if item.get("type") == "function_call"}
        answered = {item.get("call_id") for item in given if item.get("type") == "function_call_output"}
        if answered <= asked:
            await arun(self.memoir, calls.append_items(self.user, self.session_id, pair_turns(given)))
            return

        async def change() -> None:
            standing = await arun(self.memoir, calls.list_items(self.user, self.session_id))
            waiting = [(each.item, each.part_of) for each in standing if each.turn_index is None]
            last = standing[-1].item_no if standing else -1
            entries = pair_turns(given, waiting)
            await arun(self.memoir, calls.append_items(self.user, self.session_id, entries, after_item=last))

        await retry_change(change)

    async def pop_item(self) -> TResponseInputItem | None:
        found = await arun(self.memoir, calls.retract_items(self.user, self.session_id, 1))
        return found[-1] if found else None  # type: ignore[return-value]

    async def clear_session(self) -> None:
        await arun(self.memoir, calls.retract_items(self.user, self.session_id))


def pair_turns(
    items: list[dict[str, Any]], waiting: Iterable[tuple[dict[str, Any], str | None]] = ()
) -> list[dict[str, Any]]:
    """Items with what they say as turns, for append_items: messages by themselves, the calls of one answer with the
    last of their results. `waiting`: earlier calls without a result, and what they are part of."""
    calls_of: dict[str, list[dict[str, Any]]] = {}
    part: dict[str, str] = {}
    results: dict[str, list[dict[str, Any]]] = {}
    for item, part_of in waiting:
        if part_of and item.get("type") == "function_call":
            calls_of.setdefault(part_of, []).append(item)
            part[item["call_id"]] = part_of
        elif part_of:
            results.setdefault(part_of, []).append(item)
    entries = []
    open_part: str | None = None
    for item in items:
        kind = item.get("type") or ("message" if "role" in item else None)
        entry: dict[str, Any] = {"item": item, "messages": []}
        if kind == "function_call" and item.get("call_id"):
            open_part = open_part or str(item["call_id"])
            entry["part_of"] = part[item["call_id"]] = open_part
            calls_of.setdefault(open_part, []).append(item)
        elif kind == "function_call_output" and item.get("call_id") in part:
            open_part = None
            whole = entry["part_of"] = part[item["call_id"]]
            results.setdefault(whole, []).append(item)
            if {each["call_id"] for each in calls_of[whole]} <= {each["call_id"] for each in results[whole]}:
                entry["messages"] = storable(from_input_items(calls_of[whole] + results[whole]))
        elif kind == "message":
            open_part = None
            entry["messages"] = storable(from_input_items([item]))
        entries.append(entry)
    return entries


def storable(messages: list[Message]) -> list[Message]:
    """Without what no turn can hold: an answer that says nothing, a role that there is not."""
    return [
        message
        for message in messages
        if message.get("role") in ("user", "assistant", "system", "tool")
        and (message.get("content") or message.get("tool_calls") or message["role"] in ("user", "tool"))
    ]
