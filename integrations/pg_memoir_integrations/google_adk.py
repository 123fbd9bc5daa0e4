"""Google's Agent Development Kit: sessions and memory in PostgreSQL.

runner = Runner(agent=agent, app_name="desk", session_service=MemoirSessionService(memoir),
                memory_service=MemoirMemoryService(memoir))
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from google.genai import types
from pg_memoir import Message
from pg_memoir.errors import ChangedElsewhereError
from pg_memoir.functions import calls
from pg_memoir.texts import escape, unescape
from pydantic_core import to_jsonable_python

from .running import AnyMemoir, arun, dump_json, retry_change

_ROOT = "google_adk"
_MOST = 10_000


class MemoirSessionService(BaseSessionService):
    """Sessions with their state as documents, events as items of a session. ADK's user is a user of pg_memoir; what
    is of an app alone (its state, who its users are) is kept by `registry`, a user of that name."""

    def __init__(self, memoir: AnyMemoir, *, registry: str = _ROOT) -> None:
        self.memoir, self.registry = memoir, registry

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        session_id = (session_id or "").strip() or str(uuid.uuid4())
        state, now = state or {}, time.time()
        own = _of_session(state)
        head = {"key": session_id, "value": {"state": own, "updated": now}, "exists": False}
        try:
            await self._put(user_id, [_sessions(app_name, head), *_merge_state(app_name, "user", state)])
        except ChangedElsewhereError:
            raise AlreadyExistsError(f"Session with id {session_id} already exists.") from None
        known = {"namespace": [_ROOT, app_name, "users"], "key": user_id, "value": {}}
        await self._put(self.registry, [known, *_merge_state(app_name, "app", state)])
        return await self._make_session(app_name, user_id, session_id, own, now, [])

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        session_id = session_id.strip()
        head = await self._head(app_name, user_id, session_id)
        if head is None:
            return None
        recent = config.num_recent_events if config else None
        since = config.after_timestamp if config else None
        found = await arun(
            self.memoir, calls.list_items(user_id, _session(app_name, session_id), limit=None if since else recent)
        )
        events = [Event.model_validate(each.item) for each in found]
        if since is not None:
            events = [event for event in events if event.timestamp >= since]
        if recent is not None:
            events = events[-recent:] if recent else []
        return await self._make_session(app_name, user_id, session_id, head["state"], head["updated"], events)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        users = [user_id]
        if user_id is None:
            known = await arun(
                self.memoir, calls.search_documents(self.registry, [_ROOT, app_name, "users"], limit=_MOST)
            )
            users = [each.key for each in known]
        sessions = []
        for user in users:
            heads = await arun(self.memoir, calls.search_documents(user, [_ROOT, app_name, "sessions"], limit=_MOST))
            for head in heads:
                value = head.value
                sessions.append(
                    await self._make_session(app_name, user, head.key, value["state"], value["updated"], [])
                )
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        session_id = session_id.strip()
        if await self._head(app_name, user_id, session_id) is not None:
            await self._put(user_id, [_sessions(app_name, {"key": session_id, "value": None})])
            await arun(self.memoir, calls.retract_items(user_id, _session(app_name, session_id)))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await self._state(user_id, app_name, "user")

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        app_name, user_id, name = session.app_name, session.user_id, session.id
        if await self._head(app_name, user_id, name) is None:
            raise ValueError(f"Session {name} not found.")
        event = await super().append_event(session=session, event=event)
        session.last_update_time = event.timestamp
        delta = (event.actions and event.actions.state_delta) or {}
        head = {"key": name, "merge": {"updated": event.timestamp}, "exists": True}
        state = {"key": name, "at": "state", "merge": _of_session(delta)}
        entries = [_sessions(app_name, head), _sessions(app_name, state), *_merge_state(app_name, "user", delta)]
        told = {
            "item": dump_json(event, by_alias=True, exclude_none=True),
            "messages": [turn] if (turn := _turn(event)) else [],
        }
        call = calls.append_items(user_id, _session(app_name, name), [told], documents=_documents(entries))
        try:
            await arun(self.memoir, call)
        except ChangedElsewhereError:
            raise ValueError(f"Session {name} not found.") from None
        await self._put(self.registry, _merge_state(app_name, "app", delta))
        return event

    async def _head(self, app_name: str, user_id: str, session_id: str) -> Any:
        found = await arun(self.memoir, calls.get_documents(user_id, [_ROOT, app_name, "sessions"], [session_id]))
        return found[0].value if found else None

    async def _state(self, user: str, app_name: str, scope: str) -> dict[str, Any]:
        found = await arun(self.memoir, calls.get_documents(user, [_ROOT, app_name], [scope]))
        return dict(found[0].value) if found else {}

    async def _put(self, user: str, entries: list[dict[str, Any]]) -> None:
        if entries:
            await arun(self.memoir, calls.put_documents(user, _documents(entries)))

    async def _make_session(
        self, app_name: str, user_id: str, session_id: str, state: dict[str, Any], updated: float, events: list[Event]
    ) -> Session:
        of_app = await self._state(self.registry, app_name, "app")
        of_user = await self._state(user_id, app_name, "user")
        whole = state | {State.APP_PREFIX + key: value for key, value in of_app.items()}
        whole |= {State.USER_PREFIX + key: value for key, value in of_user.items()}
        return Session(
            app_name=app_name, user_id=user_id, id=session_id, state=whole, events=events, last_update_time=updated
        )


class MemoirMemoryService(BaseMemoryService):
    """What was said in any session of a user, and what is known. With MemoirSessionService events are memory's at once;
    those of another service come by `add_session_to_memory`, each once."""

    def __init__(self, memoir: AnyMemoir, *, limit: int = 10) -> None:
        self.memoir, self.limit = memoir, limit

    async def add_session_to_memory(self, session: Session) -> None:
        await self._add(session.app_name, session.user_id, session.id, session.events)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Any = None,
    ) -> None:
        await self._add(app_name, user_id, session_id or "events", events)

    async def _add(self, app_name: str, user_id: str, session_id: str, events: Sequence[Event]) -> None:
        name = _session(app_name, session_id)

        async def change() -> None:
            items = await arun(self.memoir, calls.list_items(user_id, name))
            known = {each.item.get("id") for each in items}
            new = [
                {"item": dump_json(event, by_alias=True, exclude_none=True), "messages": [turn]}
                for event in events
                if event.id not in known and (turn := _turn(event))
            ]
            if new:
                last = items[-1].item_no if items else -1
                await arun(self.memoir, calls.append_items(user_id, name, new, after_item=last))

        await retry_change(change)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        if not query.strip():
            return SearchMemoryResponse()
        hits = await arun(self.memoir, calls.recall(user_id, query, limit=self.limit))
        return SearchMemoryResponse(
            memories=[
                MemoryEntry(
                    id=str(hit.id),
                    content=types.Content(role=hit.role, parts=[types.Part(text=hit.content)]),
                    author=hit.role or hit.kind,
                    timestamp=hit.said_at.isoformat() if hit.said_at else None,
                )
                for hit in hits
            ]
        )


def _session(app_name: str, session_id: str) -> str:
    return f"{app_name}/{session_id}"


def _sessions(app_name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """An entry for the document that says a session's state and its last change."""
    return {"namespace": [_ROOT, app_name, "sessions"]} | entry


def _merge_state(app_name: str, scope: str, delta: dict[str, Any]) -> list[dict[str, Any]]:
    """An entry that puts what is of the app or the user where all sessions have it."""
    prefix = {"app": State.APP_PREFIX, "user": State.USER_PREFIX}[scope]
    own = {key.removeprefix(prefix): value for key, value in delta.items() if key.startswith(prefix)}
    return [{"namespace": [_ROOT, app_name], "key": scope, "merge": own}] if own else []


def _documents(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    plain = unescape(to_jsonable_python(escape(entries)))  # which writes no lone surrogate itself
    return [{"text": None} | entry for entry in plain]


def _of_session(delta: dict[str, Any]) -> dict[str, Any]:
    shared = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)
    return {key: value for key, value in delta.items() if not key.startswith(shared)}


def _turn(event: Event) -> Message | None:
    """What an event says; thoughts, calls and their results are kept with the event alone."""
    parts = (event.content and event.content.parts) or []
    texts = [part.text for part in parts if part.text is not None and not part.thought]
    text, role = "".join(texts), "user" if event.author == "user" else "assistant"
    if not text.strip() and not (texts and role == "user"):
        return None
    return {"role": role, "content": text, "created_at": datetime.fromtimestamp(event.timestamp, UTC).isoformat()}
