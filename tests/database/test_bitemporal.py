"""Random lives of memories against a simple model: what is active now, what we knew then, what was true then."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from calls import Db, call, recalled, remembered, set_clock
from internals import memory_row
from talk import compile_text

START = datetime(2026, 1, 1, tzinfo=UTC)
SLOTS = {"city": ("Oslo", "Ulm", "Bonn", "Voss"), "drink": ("tea", "cocoa", "milk")}
PLAIN = ("Fact: owns a kayak.", "Fact: reads Latin.", "Fact: sings bass.", "Fact: keeps bees.")
Value = tuple[str, str | None, str | None]  # text, slot, value


def in_slot(slot: str, value: str) -> Value:
    return f"Fact: the {slot} is {value}.", slot, value


class Life:
    """What a person does to a memory, and what must come of it."""

    def __init__(self, db: Db, user: str, seed: int) -> None:
        self.db, self.user, self.random, self.now = db, user, random.Random(seed), START
        self.ids: list[tuple[str, Value]] = []  # every memory ever made
        self.active: set[Value] = set()
        self.refused: dict[tuple[str, ...], str] = {}  # key: the memory whose tombstone it is
        self.seen: list[tuple[datetime, set[str]]] = []
        self.call("set_user_settings", {"relevance_floor": 0})

    def call(self, function: str, *values: Any, **named: Any) -> Any:
        return call(self.db, function, self.user, *values, **named)

    def recalled(self, **named: Any) -> set[str]:
        found = recalled(self.db, self.user, "fact", kinds=["memory"], limit=1000, **named)
        assert len(found) == len(set(found)), "two active memories of one text"
        return set(found)

    @staticmethod
    def keys(value: Value) -> list[tuple[str, ...]]:
        return [(value[0],), *([(value[1], value[2] or "")] if value[1] else [])]

    def is_refused(self, value: Value) -> bool:
        return any(key in self.refused for key in self.keys(value))

    def enters(self, value: Value) -> None:
        if value[1]:
            self.active = {v for v in self.active if v[1] != value[1]}
        self.active.add(value)

    def some_value(self) -> Value:
        slot = self.random.choice([None, *SLOTS])
        return in_slot(slot, self.random.choice(SLOTS[slot])) if slot else (self.random.choice(PLAIN), None, None)

    def current(self, memory: str) -> tuple[str, Value, str]:
        """The last successor of a memory, as the database has them; what was said stays what it was."""
        while True:
            state, successor = memory_row(self.db, memory, "state::text, superseded_by::text")
            if state != "superseded" or successor is None:
                return memory, dict(self.ids)[memory], state
            memory = successor

    def step(self) -> None:
        self.now += timedelta(minutes=self.random.randint(1, 600))
        set_clock(self.db, self.now)
        action = self.random.choice(["remember"] * 4 + ["correct", "correct", "retract", "forget", "lift", "lift"])
        if action == "remember" or not self.ids:
            value = self.some_value()
            done = self.call("remember", value[0], slot=value[1], slot_value=value[2])
            assert done["outcome"] == (
                "refused_tombstone" if self.is_refused(value) else "duplicate" if value in self.active else "stored"
            ), (value, done)
            if done["outcome"] == "stored":
                self.ids.append((done["memory_id"], value))
                self.enters(value)
        else:
            getattr(self, action)(*self.random.choice(self.ids))
        now = self.recalled()
        assert now == {value[0] for value in self.active}, action
        self.seen.append((self.now, now))

    def correct(self, memory: str, _: Value) -> None:
        head, old, state = self.current(memory)
        plain = [(p, None, None) for p in PLAIN if p != old[0]]
        others = [in_slot(old[1], v) for v in SLOTS[old[1]] if v != old[2]] if old[1] else plain
        new = self.random.choice(others)
        before = {value: m for m, value in self.ids if value in self.active and self.current(m)[::2] == (m, "active")}
        try:
            done = self.call("correct", memory, new[0], slot_value=new[2])
        except psycopg.Error as error:
            refused = "PM004" if state == "forgotten" else "PM040" if self.is_refused(new) else None
            assert error.sqlstate == refused, error
            return
        assert state != "forgotten" and not self.is_refused(new)
        self.active.discard(old)
        for value in self.active:  # a correction rejects whatever else its slot held
            if value[1] and value[1] == new[1] and value != new:
                self.refused |= {key: before[value] for key in self.keys(value)}
        if done["memory_id"] not in dict(self.ids):
            self.ids.append((done["memory_id"], new))
        self.enters(new)
        self.refused |= {key: head for key in self.keys(old)}

    def retract(self, memory: str, _: Value) -> None:
        head, old, state = self.current(memory)
        try:
            self.call("retract", memory)
        except psycopg.Error as error:
            assert error.sqlstate == "PM004" and state == "forgotten"
            return
        self.active.discard(old)
        self.refused |= {key: head for key in self.keys(old)}

    def forget(self, memory: str, value: Value) -> None:
        self.call("forget", memory)
        self.active.discard(value)
        self.refused |= {key: memory for key in self.keys(value)}

    def lift(self, memory: str, _: Value) -> None:
        held = {key for key, of in self.refused.items() if of == memory}
        done = self.call("lift_tombstone", memory)
        assert done["lifted"] == 2 * len(held)  # its words, and what they claim
        self.refused = {key: of for key, of in self.refused.items() if of != memory}
        for back in done["restored"]:
            value = dict(self.ids)[back]
            is_new = value not in self.active and not any(v[1] and v[1] == value[1] for v in self.active)
            assert is_new and not self.is_refused(value)
            self.active.add(value)

    def check_history(self) -> None:
        forgotten = {value[0] for memory, value in self.ids if memory_row(self.db, memory) == ("forgotten",)}
        assert self.recalled(as_of=START - timedelta(days=1)) == set()
        for _ in range(12):
            n = self.random.randrange(len(self.seen))
            at, seen = self.seen[n]
            until = self.seen[n + 1][0] if n + 1 < len(self.seen) else at + timedelta(minutes=1)
            for instant in (at, at + (until - at) * self.random.random() * 0.99):
                assert self.recalled(as_of=instant) == seen - forgotten, (instant, n)


@pytest.fixture
def life(db: Db, user: str) -> Iterator[Any]:
    yield lambda seed: Life(db, f"{user}-{seed}", seed)
    set_clock(db, None)


@pytest.mark.acceptance
@pytest.mark.parametrize("seed", range(8))
def test_as_of_is_what_was_known_then(life: Any, seed: int) -> None:
    lived = life(seed)
    for _ in range(45):
        lived.step()
    lived.check_history()


@pytest.mark.parametrize(
    ("at", "found"),
    [("0001-01-01T00:00:00+00:41", []), ("0044-03-15 BC", []), ("12000-01-01", ["Keeps bees."])],
)
def test_as_of_beyond_the_years_of_a_calendar(db: Db, user: str, at: str, found: list[str]) -> None:
    remembered(db, user, "Keeps bees.")
    assert recalled(db, user, "bees", kinds=["memory"], as_of=at) == found
    assert ("Keeps bees." in compile_text(db, user, "bees", as_of=at)) == bool(found)
