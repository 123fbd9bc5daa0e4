"""Agent loops, generated: whatever happens in them, the list holds what is promised of it. Checked without knowing how the
window is managed: from what was appended, what the list shows, and what session_pressure announces."""

import json
import os
import random
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from calls import Db, call, table
from loops import append, code, compiled, same_beginning, step, text_of
from request_rules import unpaired
from servers import connect, unique

SEED = os.environ.get("PG_MEMOIR_SEED", "1")
WORLDS, PROMISES, ACCEPTANCE = 4, 20, 60
SOAK = int(os.environ.get("PG_MEMOIR_SOAK_CASES", "0"))


@dataclass
class Loop:
    """One agent's session: what it appended, and what was seen of its lists."""

    db: Db
    rng: random.Random
    user: str
    window: int
    session: str = "s"
    steps: int = 0
    marks: list[str] = field(default_factory=list)  # one text each step must be known by
    texts: dict[str, str] = field(default_factory=dict)  # path → what was read last
    before: list[dict[str, Any]] = field(default_factory=list)
    moments: int = 0
    answered: bool = False
    problems: list[str] = field(default_factory=list)

    def act(self) -> None:
        """One step, or several calls at once."""
        rng, messages = self.rng, []
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            kind, n = rng.choice("read read again edit write run error empty huge".split()), self.steps
            self.steps += 1
            path = f"src/file_{n}.py"
            if kind == "again" and self.texts:
                path = rng.choice(list(self.texts))
                made = step(n, "Read", {"file_path": path}, self.texts[path])
            elif kind == "edit" and self.texts:
                path = rng.choice(list(self.texts))
                made = step(n, "Edit", {"file_path": path, "old_string": "a", "new_string": code(n, 400)}, "Updated.")
            elif kind == "write":
                made = step(n, "Write", {"file_path": path, "content": code(n, 4000)}, "Created.", "I write it.")
            elif kind == "run":
                made = step(n, "Bash", {"command": f"pytest tests/test_{n}.py"}, code(n, rng.choice((60, 3000))))
                path = f"test_{n}.py"
            elif kind == "error":
                trace = f"Traceback (most recent call last):\n{code(n, 900)}\nKeyError: {n}"
                made = step(n, "Bash", {"command": f"python {path}"}, trace)
            else:
                text = {"empty": "", "huge": code(n, self.window)}.get(kind, code(n, rng.choice((500, 2500, 6000))))
                self.texts[path] = text
                made = step(n, "Read", {"file_path": path}, text)
            self.marks.append(path)
            messages.append(made)
        # Parallel calls are one message, their results follow.
        first = messages[0][0] | {"tool_calls": [made[0]["tool_calls"][0] for made in messages]}
        append(self.db, self.user, [first, *(made[1] for made in messages)], self.session)

    def talk(self) -> None:
        said = {"role": "user", "content": f"Now look at part {self.steps}."}
        append(self.db, self.user, [{"role": "assistant", "content": "It is done."}, said], self.session)

    def other(self) -> None:
        """What else may happen between two calls."""
        forms = table(self.db, "window_forms", self.user, self.session, columns="object")
        names = [name for (name,) in forms if name]  # lines of steps have none
        done = self.rng.choice(("restore", "release", "query", "compact", "branch", "none"))
        if done == "restore" and names:
            name = self.rng.choice(names)
            text = call(self.db, "memory_restore", self.user, self.session, name)
            if not any(text == each for each in self.texts.values()) and "def " not in text and "Traceback" not in text:
                self.problems.append(f"restored text of {name} is none that was read")
        elif done == "release" and names:
            call(self.db, "memory_release", self.user, self.session, [self.rng.choice(names)])
        elif done == "query":
            answer = call(self.db, "memory_query", self.user, self.session, f"Where is file {self.steps}?", 200)
            if answer["tokens"] > 200:
                self.problems.append("an answer is longer than asked for")
        elif done == "branch":
            turns = call(self.db, "session_info", self.user, self.session)["turns"]
            child = unique("b")
            call(self.db, "branch_session", self.user, self.session, child, turns)
            self.session, self.before, self.moments = child, [], 0

    def check(self) -> None:
        made = compiled(self.db, self.user, session=self.session)
        messages = made["messages"]
        if made["tokens"] > made["budget"]:
            self.problems.append(f"{made['tokens']} tokens of {made['budget']}")
        self.problems += unpaired(messages)
        for each in (each for message in messages for each in message.get("tool_calls", [])):
            json.loads(each["function"]["arguments"])
        shown = "\n".join(map(text_of, messages))
        left = re.search(r"earlier steps \(turns 0 to (\d+)\) are kept and not shown", shown)
        told = {turn for (turn,) in table(self.db, "explain_context", self.user, self.session, columns="turn_index")}
        turns = call(self.db, "session_info", self.user, self.session)["turns"]
        if missing := set(range(turns)) - told:
            self.problems.append(f"turns {sorted(missing)[:5]} are not explained")
        if left is None and (gone := [mark for mark in set(self.marks) if mark not in shown]):
            self.problems.append(f"steps are neither shown nor named: {gone[:5]}")
        now = call(self.db, "session_pressure", self.user, self.session)["moments"]
        if now == self.moments and self.before and not same_beginning(self.before, messages):
            self.problems.append("the past changed without a moment")
        self.before, self.moments = messages, now


def live(db: Db, seed: str, steps: int) -> list[str]:
    rng = random.Random(seed)
    window = rng.choice((6_000, 16_000, 40_000))
    loop = Loop(db, rng, unique("loop"), window)
    call(db, "open_session", loop.user, "s", p_context_window=window, p_response_tokens=window // 10)
    append(db, loop.user, [{"role": "user", "content": "Find out why the import is slow."}])
    while loop.steps < steps and not loop.problems:
        loop.act()
        if rng.random() < 0.5:
            loop.check()
        if rng.random() < 0.15:
            loop.other()
            if loop.session != "s" and rng.random() < 0.5:
                loop.check()
        if rng.random() < 0.05:
            loop.talk()
    loop.check()
    return [f"world {seed!r}, window {window}, step {loop.steps}: {problem}" for problem in loop.problems]


def marks_of(world: int) -> list[pytest.MarkDecorator]:
    """The first worlds are quick tests, some more guard the promises, all run before a release."""
    marks = [pytest.mark.acceptance] if world >= WORLDS else []
    return marks + ([pytest.mark.extended] if world >= PROMISES else [])


@pytest.mark.parametrize("world", [pytest.param(n, marks=marks_of(n)) for n in range(ACCEPTANCE)])
def test_agent_loops_keep_what_is_promised(memoir_dsn: str, world: int) -> None:
    with connect(memoir_dsn) as db:
        assert not live(db, f"{SEED}:{world}", 25 if world < WORLDS else 80)


@pytest.mark.soak
def test_soak_of_agent_loops(memoir_dsn: str) -> None:
    with connect(memoir_dsn) as db:
        for world in range(max(1, SOAK // 20)):
            assert not live(db, f"soak{SEED}:{world}", 60)
