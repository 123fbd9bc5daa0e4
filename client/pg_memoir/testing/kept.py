"""What the stand-in keeps. A method is named as the function of schema memoir it stands for; its arguments are the
call's. One that yields answers with rows or values, any other with one value."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from ..arguments import moment
from ..errors import (
    InvalidArgumentError,
    KeyReusedError,
    NotAuthorizedError,
    SessionClosedError,
    UnknownMemoryError,
    UnknownSessionError,
)
from ..types import Message
from .messages import check_messages, count, one_of, text_of, tokens_of, words

TYPES = (
    "fact", "preference", "instruction", "decision", "bug_fix", "architecture", "code_context", "session_summary",
    "document_chunk", "conversation_phase", "design_decision", "debugging_session", "file_context", "tool_result",
    "plan",
    "error_context", "external_reference", "event", "profile",
)  # fmt: skip
IMPORTANCE = ("critical", "important", "normal", "minor")
SENSITIVITY = ("normal", "private", "secret")
STATES = ("active", "superseded", "invalidated", "expired", "forgotten", "erased")


@dataclass
class Session:
    """One session; `turns` as history gives them, those of a parent included."""

    session_id: UUID
    name: str
    row: dict[str, Any]
    turns: list[Message] = field(default_factory=list)
    open_calls: list[str] = field(default_factory=list)
    pins: dict[str, Any] = field(default_factory=dict)


@dataclass
class User:
    """All of one user."""

    name: str
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    sessions: dict[str, Session] = field(default_factory=dict)
    memories: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    tombstones: list[dict[str, Any]] = field(default_factory=list)
    edges: list[dict[str, Any]] = field(default_factory=list)
    receipts: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    calls: list[tuple[dict[str, Any], list[dict[str, Any]]]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)


class Kept:
    """Everything that was said and remembered."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.now: datetime | None = None

    def at(self) -> datetime:
        return self.now or datetime.now(UTC)

    def user(self, name: str) -> User:
        if not name.strip():
            raise InvalidArgumentError("user must not be empty")
        return self.users.get(name) or User(name)

    def written(self, name: str) -> User:
        """The user, known from now on."""
        return self.users.setdefault(name, self.user(name))

    def found(self, user: str, session: str) -> Session:
        known = self.user(user).sessions.get(session)
        if known is None:
            raise UnknownSessionError(f'unknown session "{session}"')
        return known

    # Sessions and turns ---------------------------------------------------------------------------------------------

    def open_session(self, user: str, session: str, **given: Any) -> UUID:
        if given.get("parent") is not None:
            self.found(user, given["parent"])
        opened = self._open_session(user, session)
        if opened.row["status"] != "active":
            raise SessionClosedError(f'session "{session}" is {opened.row["status"]}')
        opened.row |= {name: value for name, value in given.items() if value is not None}
        return opened.session_id

    def _open_session(self, user: str, session: str) -> Session:
        if not session.strip():
            raise InvalidArgumentError("session must not be empty")
        owner = self.written(user)
        if session not in owner.sessions:
            row: dict[str, Any] = {
                "session": session, "status": "active", "project": "global", "model": "default", "task": None,
                "parent": None, "parent_turn": None, "created_at": self.at(), "last_recorded_at": None,
                "closed_at": None, "summary": None, "cost_microcents": 0, "metadata": {}, "settings": {},
                "context_window": 32768, "response_tokens": 4096, "temperature": None, "top_p": None,
                "prompt_tokens": 0, "completion_tokens": 0,
            }  # fmt: skip
            name = uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, f"pg_memoir:{user}"), session)
            owner.sessions[session] = Session(name, session, row)
        return owner.sessions[session]

    def persist_turn(self, user: str, session: str, messages: Any, **given: Any) -> dict[str, Any]:
        return self._append(user, session, messages, given, may_stay_open=False)

    def append_messages(self, user: str, session: str, messages: Any, **given: Any) -> dict[str, Any]:
        return self._append(user, session, messages, given, may_stay_open=True)

    def _append(
        self, user: str, session: str, messages: Any, given: dict[str, Any], may_stay_open: bool
    ) -> dict[str, Any]:
        owner, key = self.user(user), given.pop("key", None)
        known = owner.sessions.get(session)
        still_open = check_messages(messages, known.open_calls if known else [], may_stay_open)
        request = (session, messages, given)
        if key in owner.receipts:
            return self._again(owner, key, request)
        if known and known.row["status"] != "active":
            hint = "open one under another name, with p_parent => this one"
            raise SessionClosedError(f'session "{session}" is {known.row["status"]}', hint=hint)
        opened, now, usage = self._open_session(user, session), self.at(), given.get("usage") or {}
        first = _end(opened)
        for place, message in enumerate(messages):
            said = moment(message["created_at"], "created_at") if message.get("created_at") else now
            turn = message | {
                "created_at": said.isoformat(), "turn_index": first + place, "message_id": str(uuid.uuid4()),
                "tokens": tokens_of(message), "tokenizer": "estimate",
            }  # fmt: skip
            opened.turns.append(turn)
        opened.open_calls = still_open
        opened.row["last_recorded_at"] = now
        for name in ("prompt_tokens", "completion_tokens"):
            opened.row[name] += usage.get(name) or 0
        done = {
            "session_id": str(opened.session_id), "from_turn": first, "to_turn": first + len(messages) - 1,
            "turn_count": _end(opened), "tokens": sum(turn["tokens"] for turn in opened.turns[-len(messages) :]),
            "tokenizer": "estimate", "mark": f"{str(opened.session_id)[:8]}:{_end(opened)}",
            "message_ids": [turn["message_id"] for turn in opened.turns[-len(messages) :]], "warnings": [],
        }  # fmt: skip
        if key is not None:
            self.written(user).receipts[key] = (request, done)
        return done

    def _again(self, owner: User, key: str, request: Any) -> dict[str, Any]:
        before, result = owner.receipts[key]
        if before != request:
            raise KeyReusedError(f'idempotency key "{key}" was used with another request')
        return dict(result)

    def history(self, user: str, session: str, from_turn: int = 0, to_turn: int | None = None) -> Iterator[Message]:
        last = _end(self.found(user, session)) if to_turn is None else to_turn
        yield from (copy_value(t) for t in self.found(user, session).turns if from_turn <= t["turn_index"] <= last)

    def close_session(self, user: str, session: str) -> None:
        row = self.found(user, session).row
        row |= {"status": "closed", "closed_at": row["closed_at"] or self.at()}

    def branch_session(self, user: str, session: str, new_session: str, at_turn: int | None = None) -> UUID:
        source = self.found(user, session)
        shared = len(source.turns) if at_turn is None else at_turn
        if not 0 <= shared <= len(source.turns):
            raise InvalidArgumentError(f"0 to {len(source.turns)} turns can be shared, not {shared}")
        if new_session in self.user(user).sessions:
            raise InvalidArgumentError(f'session "{new_session}" exists')
        branch = self._open_session(user, new_session)
        branch.row |= {"parent": session, "parent_turn": shared, "model": source.row["model"]}
        branch.turns = copy_value(source.turns[:shared])
        return branch.session_id

    def session_info(self, user: str, session: str) -> dict[str, Any]:
        known = self.found(user, session)
        own = {"session_id": str(known.session_id), "tokenizer": "estimate", "open_calls": list(known.open_calls)}
        hidden = ("system_prompt", "summary", "parent", "parent_turn")
        row = {name: value for name, value in self._session_row(known).items() if name not in hidden}
        return own | {k: v.isoformat() if isinstance(v, datetime) else v for k, v in row.items()}

    def _session_row(self, session: Session) -> dict[str, Any]:
        tokens = sum(turn["tokens"] + 4 for turn in session.turns)
        return session.row | {"turns": _end(session), "tokens": tokens}

    def list_sessions(
        self, user: str, project: str | None = None, status: str | None = None, after_session: str | None = None,
        limit: int = 100,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        _within("limit", limit, 1000)
        found = [s for s in reversed(self.user(user).sessions.values())]
        if after_session is not None:
            found = found[found.index(self.found(user, after_session)) + 1 :]
        for session in found[:limit]:
            if project in (None, session.row["project"]) and status in (None, session.row["status"]):
                yield self._session_row(session)

    def list_speakers(self, user: str, session: str | None = None) -> Iterator[dict[str, Any]]:
        if session is not None:
            self.found(user, session)
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for known in self.user(user).sessions.values():
            for turn in known.turns if session in (None, known.name) else []:
                who, said = (turn.get("name") or turn["role"], turn["role"]), datetime.fromisoformat(turn["created_at"])
                row = rows.setdefault(
                    who, {"speaker": who[0], "role": who[1], "names": set(), "turns": 0, "first_said_at": said}
                )
                row["names"].add(known.name)
                row |= {"turns": row["turns"] + 1, "sessions": len(row["names"]), "last_said_at": said}
        yield from sorted(rows.values(), key=lambda row: (-row["turns"], row["speaker"]))

    def set_working_memory(self, user: str, session: str, key: str, content: str | None, minutes: int = 60) -> None:
        notes = self._open_session(user, session).pins.setdefault("working", {})
        notes.pop(key, None)
        if content is not None:
            notes[key] = content

    def summarize_session(self, user: str, session: str) -> dict[str, Any]:
        known = self.found(user, session)
        lines = [f"- {t['role']}: {text_of(t)}" for t in known.turns if t["role"] == "user"]
        known.row["summary"] = "\n".join(lines)
        tokens = count(known.row["summary"])
        through = len(known.turns) - 1
        summary = {"summary": known.row["summary"], "through": through, "compaction_id": str(uuid.uuid4())}
        return summary | {
            "tokens": sum(t["tokens"] for t in known.turns),
            "summary_tokens": tokens,
            "made_by": "extract",
        }

    def capture_call(self, user: str, session: str, request: bytes, **given: Any) -> UUID:
        self._open_session(user, session)
        events, response = given.pop("events", None) or [], given.pop("response", None)
        times = given.pop("event_times", None) or [None] * len(events)
        call_id = uuid.uuid4()
        row: dict[str, Any] = dict.fromkeys(("provider", "model", "status", "latency_ms", "started_at")) | {
            "call_id": call_id, "session": session, "recorded_at": self.at(), "request_headers": {},
            "response_headers": {}, "metadata": {}, "request_bytes": len(request), "events": len(events),
            "response_bytes": None if response is None else len(response),
        }  # fmt: skip
        parts = [("request", request, None)] + ([("response", response, None)] if response is not None else [])
        parts += [("event", body, at) for body, at in zip(events, times)]
        shown = [{"seq": n, "kind": k, "body": b, "received_at": at} for n, (k, b, at) in enumerate(parts)]
        self.written(user).calls.insert(0, (row | given, shown))
        return call_id

    def list_calls(
        self, user: str, session: str | None = None, limit: int = 100, after: UUID | None = None
    ) -> Iterator[dict[str, Any]]:
        if session is not None:
            self.found(user, session)
        rows = [row for row, _ in self.user(user).calls if session in (None, row["session"])]
        if after is not None:
            rows = rows[[row["call_id"] for row in rows].index(after) + 1 :]
        yield from rows[:limit]

    def read_call(self, user: str, call: UUID) -> Iterator[dict[str, Any]]:
        parts = next((parts for row, parts in self.user(user).calls if row["call_id"] == call), None)
        if parts is None:
            raise UnknownMemoryError(f'unknown call "{call}"')
        yield from parts

    # Memories -------------------------------------------------------------------------------------------------------

    def memory(self, user: str, memory: UUID) -> dict[str, Any]:
        known = self.user(user).memories.get(memory)
        if known is None:
            raise UnknownMemoryError(f'unknown memory "{memory}"')
        return known

    def remember(self, user: str, content: str, **given: Any) -> dict[str, Any]:
        if not content.strip():
            raise InvalidArgumentError("content must not be empty")
        one_of("type", given.get("type"), TYPES)
        one_of("importance", given.get("importance"), IMPORTANCE)
        one_of("sensitivity", given.get("sensitivity"), SENSITIVITY)
        if given.get("session") is not None:
            self.found(user, given["session"])
        key, owner = given.pop("key", None), self.written(user)
        if key in owner.receipts:
            return self._again(owner, key, (content, given))
        done = self._remember_new(owner, content, given)
        if key is not None:
            owner.receipts[key] = ((content, given), done)
        return done

    def _remember_new(self, owner: User, content: str, given: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {"outcome": "stored", "memory_id": None, "superseded": [], "contradicts": []}
        same = _same(content)
        for stone in owner.tombstones:
            if stone["lifted_at"] is None and stone["same"] == same:
                day = f"{stone['recorded_at']:%d %b %Y}"
                return answer | {
                    "outcome": "refused_tombstone",
                    "hint": f"rejected on {day}: lift_tombstone lets it back",
                }
        for known in self.active(owner):
            if _same(known["content"]) == same and known["session"] == given.get("session"):
                known["tags"] = sorted({*known["tags"], *(given.get("tags") or [])})
                return answer | {"outcome": "duplicate", "memory_id": str(known["memory_id"])}
        row = self._memory_row(content, given)
        for known in [k for k in self.active(owner) if row["slot"] and k["slot"] == row["slot"]]:
            self._state(known, "superseded", "slot", row["memory_id"])
            answer["superseded"].append(str(known["memory_id"]))
        owner.memories[row["memory_id"]] = row
        return answer | {"memory_id": str(row["memory_id"])}

    def _memory_row(self, content: str, given: dict[str, Any]) -> dict[str, Any]:
        now, slot = self.at(), given.get("slot")
        row: dict[str, Any] = {
            "memory_id": uuid.uuid4(), "content": content, "type": "fact", "category": None, "project": "global",
            "scope": "local" if given.get("session") else "global", "session": None, "tier": 2, "state": "active",
            "reason": None, "superseded_by": None, "importance": "normal", "provenance": "user_stated",
            "actor": "person",
            "trust": 1.0, "confidence": 0.9, "sensitivity": "normal", "slot": None, "slot_value": None, "tags": [],
            "aliases": [], "tokens": count(content), "said_at": now, "valid_from": None, "valid_to": None,
            "expires_at": None, "recorded_at": now, "metadata": {}, "source_turns": [], "states": [],
        }  # fmt: skip
        row |= {name: value for name, value in given.items() if name in row and value is not None}
        row["said_at"] = given.get("created_at") or now
        if slot:
            row["slot_value"] = given.get("slot_value") or content
        self._describe_memory(row)
        return row

    def active(self, owner: User) -> list[dict[str, Any]]:
        """What is true of a user now, the oldest first."""
        now = self.at()
        return [m for m in owner.memories.values() if m["state"] == "active" and (m["valid_to"] or now) >= now]

    def _state(self, memory: dict[str, Any], state: str, reason: str | None, by: UUID | None = None) -> None:
        memory |= {"state": state, "reason": reason, "superseded_by": by}
        self._describe_memory(memory)

    def _describe_memory(self, memory: dict[str, Any]) -> None:
        names = ("memory_id", "state", "reason", "superseded_by", "content", "valid_from", "valid_to", "actor")
        memory["states"].append({n: memory[n] for n in names} | {"recorded_at": self.at(), "set_by": "stand-in"})

    def _bury(self, owner: User, memory: dict[str, Any], reason: str) -> None:
        names = ("memory_id", "type", "project", "slot", "actor")
        stone = {name: memory[name] for name in names} | {"kinds": ["value"], "set_by": "stand-in", "lifted_at": None}
        shown = None if reason == "forgotten" else memory["content"]
        stone |= {"reason": reason, "recorded_at": self.at(), "lifted_by": None, "content": shown}
        owner.tombstones.insert(0, stone | {"same": _same(memory["content"]), "was": memory["content"]})

    def forget(self, user: str, memory: UUID, reason: str | None = None) -> dict[str, Any]:
        known = self.memory(user, memory)
        if known["state"] != "forgotten":
            self._bury(self.written(user), known, "forgotten")
            self._state(known, "forgotten", reason or "forgotten")
            known["content"] = None
        gone = {"memory_id": str(memory), "state": "forgotten", "merged": []}
        return gone | {"excluded_turns": len(known["source_turns"]), "invalidated_summaries": 0}

    def correct(self, user: str, memory: UUID, content: str, **given: Any) -> dict[str, Any]:
        known = self.memory(user, memory)
        self._bury(self.written(user), known, "corrected")
        kept = {name: known[name] for name in ("type", "category", "project", "importance", "tags", "slot")}
        own = {"provenance": "correction", "slot_value": given.get("slot_value"), "session": known["session"]}
        row = self._memory_row(content, kept | own)
        self._state(known, "superseded", given.get("reason") or "corrected", row["memory_id"])
        self.written(user).memories[row["memory_id"]] = row
        rest = self.remember(user, given["remainder"])["memory_id"] if given.get("remainder") else None
        done = {
            "memory_id": str(row["memory_id"]),
            "outcome": "corrected",
            "corrected": [str(memory)],
            "remainder": rest,
        }
        return done | {"bounded": [], "excluded_turns": 0, "invalidated_summaries": 0}

    def retract(self, user: str, memory: UUID, reason: str | None = None, **_: Any) -> dict[str, Any]:
        known = self.memory(user, memory)
        self._bury(self.written(user), known, "retracted")
        self._state(known, "invalidated", reason or "retracted")
        done = {"memory_id": str(memory), "state": "invalidated", "retracted": [str(memory)], "bounded": []}
        return done | {"excluded_turns": 0, "invalidated_summaries": 0}

    def lift_tombstone(
        self, user: str, memory: UUID | None = None, content: str | None = None, **_: Any
    ) -> dict[str, Any]:
        if (memory is None) == (content is None):
            raise InvalidArgumentError("give either memory or content", hint="list_tombstones names the memories")
        stones = [s for s in self.user(user).tombstones if s["lifted_at"] is None]
        stones = [s for s in stones if s["memory_id"] == memory or content is not None and s["same"] == _same(content)]
        if memory is not None and not any(s["memory_id"] == memory for s in self.user(user).tombstones):
            raise UnknownMemoryError(f'unknown memory "{memory}"')
        back = []
        for stone in stones:
            stone |= {"lifted_at": self.at(), "lifted_by": "stand-in"}
            known = self.user(user).memories[stone["memory_id"]]
            if known["state"] in ("forgotten", "invalidated"):
                known["content"] = stone["was"]
                self._state(known, "active", None)
                back.append(str(known["memory_id"]))
        of = memory or (stones[0]["memory_id"] if stones else None)
        return {"memory_id": of and str(of), "lifted": len(stones), "restored": back, "returned_turns": 0}

    def validate(self, user: str, memory: UUID, **_: Any) -> dict[str, Any]:
        self.memory(user, memory)["actor"] = "person"
        return {"memory_id": str(memory), "superseded": []}

    def relate(self, user: str, memory: UUID, relation: str, other: UUID, weight: float = 1.0, **_: Any) -> bool:
        one, two = self.memory(user, memory), self.memory(user, other)
        if memory == other:
            raise InvalidArgumentError("a memory can't be related to itself")
        edges = self.written(user).edges
        if any((e["source_id"], e["relation"], e["target_id"]) == (memory, relation, other) for e in edges):
            return False
        if relation == "supersedes":
            self._state(two, "superseded", "related", memory)
        edge = {"source_id": memory, "relation": relation, "target_id": other, "weight": weight}
        edges.append(edge | {"made_by": "stand-in", "recorded_at": self.at(), "memory_id": one["memory_id"]})
        return True

    def memory_graph(self, user: str, memory: UUID, hops: int = 2, limit: int = 200) -> Iterator[dict[str, Any]]:
        self.memory(user, memory)
        _within("hops", hops, 5)
        near: set[UUID] = {memory}
        shown: set[int] = set()
        for hop in range(1, hops + 1):
            for place, edge in enumerate(self.user(user).edges):
                if place not in shown and near & {edge["source_id"], edge["target_id"]} and len(shown) < limit:
                    shown.add(place)
                    ends = {
                        f"{end}_line": self.memory(user, edge[f"{end}_id"])["content"] for end in ("source", "target")
                    }
                    yield {"hop": hop} | edge | ends
            near |= {self.user(user).edges[p][end] for p in shown for end in ("source_id", "target_id")}

    def memory_history(self, user: str, memory: UUID) -> Iterator[dict[str, Any]]:
        found, rows = {self.memory(user, memory)["memory_id"]}, self.user(user).memories.values()
        for _ in rows:  # what it replaced, and what replaced it, however often
            found |= {m["memory_id"] for m in rows if m["superseded_by"] in found}
            found |= {m["superseded_by"] for m in rows if m["memory_id"] in found and m["superseded_by"]}
        yield from sorted((s for m in rows if m["memory_id"] in found for s in m["states"]), key=_time_of)

    def list_memories(
        self, user: str, states: list[str] | None = None, types: list[str] | None = None,
        tags: list[str] | None = None, category: str | None = None, project: str | None = None,
        session: str | None = None, after_memory: UUID | None = None, limit: int = 100,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        _within("limit", limit, 1000)
        for state in states or []:
            one_of("states", state, STATES)
        if session is not None:
            self.found(user, session)
        rows = list(reversed(self.user(user).memories.values()))
        if after_memory is not None:
            rows = rows[rows.index(self.memory(user, after_memory)) + 1 :]
        wanted = {"category": category, "project": project, "session": session}
        kept = [
            m for m in rows
            if (states == [] or m["state"] in (states or ["active"])) and (types is None or m["type"] in types)
            and (tags is None or set(tags) & set(m["tags"]))
            and all(value in (None, m[name]) for name, value in wanted.items())
        ]  # fmt: skip
        yield from kept[:limit]

    def memory_get(self, user: str, ids: list[UUID]) -> Iterator[dict[str, Any]]:
        if not 1 <= len(ids) <= 100:
            raise InvalidArgumentError(f"ids must be 1 to 100 ids, not {len(ids)}")
        turns = {t["message_id"]: (s.name, t) for s in self.user(user).sessions.values() for t in s.turns}
        for wanted in ids:
            known = self.user(user).memories.get(wanted)
            if known is not None:
                row = {k: v for k, v in known.items() if k not in ("memory_id", "states", "source_turns")}
                sources = [
                    {"kind": "turn", "session": known["session"], "turn_index": t} for t in known["source_turns"]
                ]
                shown = json.loads(
                    json.dumps(row, default=lambda v: v.isoformat() if isinstance(v, datetime) else str(v))
                )
                yield {"id": str(wanted), "kind": "memory", "sources": sources, "relations": []} | shown
            elif str(wanted) in turns:
                session, turn = turns[str(wanted)]
                yield {"id": str(wanted), "kind": "turn", "session": session} | copy_value(turn)

    def list_tombstones(self, user: str, lifted: bool = False) -> Iterator[dict[str, Any]]:
        yield from (stone for stone in self.user(user).tombstones if lifted or stone["lifted_at"] is None)

    def list_aliases(self, user: str) -> Iterator[dict[str, Any]]:
        for memory in self.active(self.user(user)):
            for name in memory["aliases"]:
                row = {"name": name.lower(), "other": memory["content"].lower(), "stated": True, "items": 1}
                yield row | {"since": memory["recorded_at"]}

    def list_judgements(self, user: str, memory: UUID | None = None, limit: int = 100) -> Iterator[dict[str, Any]]:
        yield from ()

    def pin(
        self, user: str, session: str, memory: UUID, turns: int | None = None, reason: str | None = None
    ) -> dict[str, Any]:
        known = self.found(user, session)
        self.memory(user, memory)
        until = None if turns is None else len(known.turns) + turns
        known.pins[str(memory)] = until
        return {"session": session, "memory_id": str(memory), "until_turn": until}

    def unpin(self, user: str, session: str, memory: UUID) -> bool:
        self.memory(user, memory)
        return self.found(user, session).pins.pop(str(memory), ...) is not ...

    def profile(self, user: str) -> dict[str, Any]:
        kept = [m for m in self.active(self.user(user)) if m["type"] in ("preference", "instruction", "profile")]
        ids = [str(m["memory_id"]) for m in kept]
        return {"version": len(ids), "content": "\n".join(f"- {m['content']}" for m in kept), "memory_ids": ids}

    def forget_about(self, user: str, query: str, preview: bool = False) -> dict[str, Any]:
        wanted = words(query)
        named = [m for m in self.active(self.user(user)) if wanted and wanted <= words(m["content"])]
        turns = [
            {"session": s.name, "turn": t["turn_index"], "text": text_of(t)}
            for s in self.user(user).sessions.values()
            for t in s.turns
            if wanted and wanted <= words(text_of(t)) and not t.get("_forgotten")
        ]
        if not named and not turns:
            return {"outcome": "nothing"}
        shown = {
            "memories": [{"memory_id": str(m["memory_id"]), "content": m["content"]} for m in named],
            "turns": turns,
        }
        if preview:
            return shown | {"outcome": "preview"}
        for memory in named:
            self.forget(user, memory["memory_id"], "asked to forget")
        change = {"change_id": uuid.uuid4(), "kind": "forgotten", "recorded_at": self.at(), "by_session": None}
        change |= {"by_turn": None, "turns": turns, "undone_at": None}
        self.written(user).changes.insert(0, change | {"memories": [m["memory_id"] for m in named]})
        return shown | {"outcome": "forgotten", "change_id": str(change["change_id"])}

    def hidden_turns(self, owner: User) -> set[tuple[str, int]]:
        """Turns that what was forgotten stands in."""
        return {(t["session"], t["turn"]) for c in owner.changes if c["undone_at"] is None for t in c["turns"]}

    def list_changes(self, user: str, undone: bool = False) -> Iterator[dict[str, Any]]:
        yield from (c for c in self.user(user).changes if undone or c["undone_at"] is None)

    def undo_change(self, user: str, change: UUID) -> dict[str, Any]:
        known = next((c for c in self.user(user).changes if c["change_id"] == change), None)
        if known is None:
            raise UnknownMemoryError(f'unknown change "{change}"', hint="list_changes names them")
        known["undone_at"] = self.at()
        back = [m for memory in known["memories"] for m in self.lift_tombstone(user, memory)["restored"]]
        return {"change_id": str(change), "restored": back, "returned_turns": len(known["turns"])}

    # Privacy, settings ----------------------------------------------------------------------------------------------

    def mark_turn(self, user: str, session: str, turn: int, sensitivity: str = "secret", **_: Any) -> dict[str, Any]:
        one_of("sensitivity", sensitivity, SENSITIVITY)
        self._turn(user, session, turn)["sensitivity"] = sensitivity
        return {"turn_index": turn, "sensitivity": sensitivity, "memories": [], "invalidated_summaries": 0}

    def annotate_turn(self, user: str, session: str, turn: int, annotations: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(annotations, dict):
            raise InvalidArgumentError(f"annotations must be an object, not {annotations!r}")
        told = self._turn(user, session, turn)
        known = {k: v for k, v in (told.pop("annotations", {}) | annotations).items() if v is not None}
        if known:
            told["annotations"] = known
        return {"turn_index": turn, "annotations": known}

    def _turn(self, user: str, session: str, turn: int) -> Message:
        found = next((t for t in self.found(user, session).turns if t["turn_index"] == turn), None)
        if found is None:
            raise InvalidArgumentError(f'turn {turn} does not exist in session "{session}"')
        return found

    def erase_turn(self, user: str, session: str, turn: int) -> dict[str, Any]:
        gone = self._turn(user, session, turn)
        self.found(user, session).turns.remove(gone)
        return {"erased": "turn", "turns": [turn], "rows": {"conversation_history": 1}, "total": 1}

    def erase_session(self, user: str, session: str) -> dict[str, Any]:
        known, owner = self.found(user, session), self.user(user)
        del owner.sessions[session]
        said = [m for m, row in owner.memories.items() if row["session"] == session]
        for memory in said:
            del owner.memories[memory]
        rows = {"sessions": 1, "conversation_history": len(known.turns), "memory_store": len(said)}
        return {"erased": "session", "rows": rows, "total": sum(rows.values())}

    def erase_user(self, user: str) -> dict[str, Any]:
        gone = self.users.pop(user, None) or User(user)
        rows = {"sessions": len(gone.sessions), "memory_store": len(gone.memories), "tombstones": len(gone.tombstones)}
        return {"erased": "user", "rows": rows, "total": sum(rows.values())}

    def set_user_settings(self, user: str, settings: dict[str, Any]) -> dict[str, Any]:
        known = self.written(user).settings
        known |= settings
        for key in [key for key, value in known.items() if value is None]:
            del known[key]
        return dict(known)

    def count_tokens(self, text: str, model: str | None = None) -> int:
        return count(text)

    def credit_recall(self, user: str, compile: UUID, used: list[UUID]) -> int:
        return len(used)

    def report_context(self, user: str, report: dict[str, Any]) -> bool:
        return False

    def extract_session(self, user: str, session: str, limit: int | None = None) -> dict[str, Any]:
        self.found(user, session)
        return {"turns": 0, "left": 0, "stored": 0, "duplicate": 0, "refused_tombstone": 0, "not_admitted": 0}

    # What an application's tests may run without effect here --------------------------------------------------------

    def run_job(self, job: str, seconds: int | None = None, wait: int | None = None) -> None:
        pass

    merge_search = ensure_partitions = flush_statistics = lambda self: None

    def claim_embeddings(self, limit: int = 64, model: str | None = None) -> Iterator[dict[str, Any]]:
        yield from ()  # nothing waits: words are compared

    def health_problems(self) -> Iterator[dict[str, Any]]:
        yield from ()

    def list_users(self, after_user: str | None = None, limit: int = 100) -> Iterator[dict[str, Any]]:
        _within("limit", limit, 1000)
        names = [name for name in sorted(self.users) if after_user is None or name > after_user]
        for name in names[:limit]:
            said = [s.row["last_recorded_at"] for s in self.users[name].sessions.values() if s.row["last_recorded_at"]]
            row = {"user_name": name, "created_at": self.users[name].created_at, "cost_microcents": 0}
            row |= {"sessions": len(self.users[name].sessions), "memories": len(self.users[name].memories)}
            yield row | {"last_recorded_at": max(said, default=None)}

    def memory_stats(self, user: str) -> dict[str, Any]:
        owner = self.user(user)
        rows, active = list(owner.memories.values()), self.active(owner)
        counts = {"sessions": len(owner.sessions), "turns": sum(_end(s) for s in owner.sessions.values())}
        counts |= {
            "memories": len(active),
            "open_sessions": sum(s.row["status"] == "active" for s in owner.sessions.values()),
        }
        kinds = {"states": ("state", rows), "types": ("type", active), "projects": ("project", active)}
        return counts | {name: dict(Counter(m[key] for m in of)) for name, (key, of) in kinds.items()}

    def list_namespaces(self) -> Iterator[dict[str, Any]]:
        sessions = [s for owner in self.users.values() for s in owner.sessions.values()]
        last = max((s.row["last_recorded_at"] for s in sessions if s.row["last_recorded_at"]), default=None)
        row = {"namespace": "default", "users": len(self.users), "sessions": len(sessions), "last_turn_at": last}
        row |= {"turns": sum(len(s.turns) for s in sessions), "tokens": 0, "cost_microcents": 0}
        yield row | {"memories": sum(len(owner.memories) for owner in self.users.values())}

    def bind_login(self, login: str, **_: Any) -> None:
        raise NotAuthorizedError("the stand-in for tests has no logins")


def _end(session: Session) -> int:
    """The index of the next turn."""
    return int(session.turns[-1]["turn_index"]) + 1 if session.turns else 0


def copy_value(value: Any) -> Any:
    """Lists and dicts that nobody else holds."""
    if isinstance(value, dict):
        return {key: copy_value(item) for key, item in value.items()}
    return [copy_value(item) for item in value] if isinstance(value, list) else value


def _same(content: str | None) -> str:
    """What makes two texts duplicates: the same words, whatever their case and spaces."""
    return " ".join((content or "").lower().split()).rstrip(".!")


def _time_of(state: dict[str, Any]) -> datetime:
    at: datetime = state["recorded_at"]
    return at


def _within(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InvalidArgumentError(f"{name} must be from 1 to {most}, not {value}")
