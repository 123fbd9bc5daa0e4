"""Shared spaces under load: people, agents and services read, write, share and leave. Every answer is checked.

    python -m bench.spaces [--calls 100000] [--minutes 120] [--people 50] [--spaces 20] [--seed 1]

METHODS.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, cast
from uuid import uuid4

import psycopg
from psycopg.types.json import Jsonb

from .common import fresh_database, progress, report, run_alone, table

ROLES = ("reader", "writer", "owner")
NEEDS = {"read": 0, "write": 1, "own": 2}
CODE = re.compile(r"zq[a-z]+\d+x\d+")
THINGS = "boiler printer router fridge freezer oven kettle scanner projector drill ladder trailer heater mower".split()
PARTS = "filter manual warranty cable plug lid battery fuse handle spare switch cover lamp hinge".split()
PLACES = "cellar attic garage kitchen hallway shed office workshop pantry balcony studio lobby".split()


@dataclass
class Fact:
    """What a space or a person knows: its code, and the question for it."""

    code: str
    text: str
    question: str
    memory: str | None = None


@dataclass
class Login:
    """A connection as a role of the database. `acts_for`: the only person of a tenant."""

    name: str
    db: psycopg.Connection[Any]
    acts_for: str | None = None
    may: frozenset[str] = frozenset(NEEDS)


@dataclass
class Tally:
    """What the run found."""

    calls: Counter[str] = field(default_factory=Counter)
    logins: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    refused: int = 0
    asked: int = 0
    found: int = 0
    removed: int = 0
    missed: list[str] = field(default_factory=list)


class World:
    """People, spaces, and what the model knows of them."""

    def __init__(self, logins: list[Login], people: int, spaces: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.logins = logins
        self.people = [f"p{n}" for n in range(people)]
        self.spaces = [f"s{n}" for n in range(spaces)]
        self.role: dict[tuple[str, str], int] = {}
        self.facts: dict[str, list[Fact]] = {owner: [] for owner in (*self.people, *self.spaces)}
        self.names = [(t, p, w) for t in THINGS for p in PARTS for w in PLACES]
        self.random.shuffle(self.names)
        self.told, self.tally, self.after_removal = 0, Tally(), list[tuple[str, str]]()

    def new_fact(self, owner: str) -> Fact:
        """Return a fact that no owner has yet."""
        self.told += 1  # never a fact that was forgotten
        number = self.told
        thing, part, place = self.names[number % len(self.names)]
        code = f"zq{owner}x{number}"
        return Fact(code, f"The {part} of the {thing} in the {place} has the number {code}.",
            f"What number has the {part} of the {thing} in the {place}?")  # fmt: skip

    def call(self, login: Login, person: str, space: str | None, need: str, name: str, sql: str, *given: Any) -> Any:
        """Make a call as a login for a person, in a space or not, and check what it answers. Return the answer, or None
        where it was refused, as it must be."""
        user = f"{person}@space:{space}" if space else person
        self.tally.calls[name] += 1
        self.tally.logins[login.name] += 1
        is_allowed = (
            (login.acts_for in (None, person))
            and need in login.may
            and (space is None or self.role.get((person, space), -1) >= NEEDS[need])
        )
        try:
            row = login.db.execute(sql, [user, *given]).fetchone()
        except psycopg.Error as error:
            # A function that a role may not call at all is refused by PostgreSQL.
            if error.sqlstate not in ("PM001", "42501"):
                self.tally.errors.append(f"{name} for {user}: {error.sqlstate} {error.diag.message_primary}")
            elif is_allowed:
                self.tally.errors.append(f"{name} for {user} as {login.name} was refused: {error.diag.message_primary}")
            else:
                self.tally.refused += 1
            return None
        if not is_allowed:
            self.tally.leaks.append(f"{name} for {user} as {login.name} was not refused")
        answer = row[0] if row else None
        seen = {person, *(s for s in self.spaces if (person, s) in self.role)} if space is None else {space}
        for code in set(CODE.findall(str(answer))) - set(CODE.findall(str(given))):
            if code.removeprefix("zq").rsplit("x", 1)[0] not in seen:
                self.tally.leaks.append(f"{name} for {user} showed {code}")
        return answer or True

    def login_for(self, person: str, need: str) -> Login:
        """Return a login that can act for a person, at times one that can't do what is needed."""
        able = [one for one in self.logins if one.acts_for in (None, person) and need in one.may]
        return self.random.choice(self.logins if self.random.random() < 0.02 else able)


def step(world: World) -> None:
    """Make one call."""
    pick, who = world.random, world.random.choice(world.people)
    if world.after_removal:
        who, space = world.after_removal.pop()
        world.tally.removed += 1
        return ask(world, who, space, pick.random() < 0.5)
    mine = [space for (person, space) in world.role if person == who]
    # A third of the calls that name a space are for one that the person is not in.
    space = pick.choice(mine) if mine and pick.random() < 0.66 else pick.choice(world.spaces)
    kinds: dict[Any, int] = {tell: 4, keep: 3, read: 74, question: 6, share: 6, leave: 1, remove: 3, change: 3}
    pick.choices(list(kinds), list(kinds.values()))[0](world, who, space)


def tell(world: World, who: str, space: str) -> None:
    """Store an exchange, in a space as somebody of the group, or in the person's own sessions."""
    owner = space if world.random.random() < 0.8 else who
    fact = world.new_fact(owner)
    messages: list[dict[str, str]] = [
        {"role": "user", "content": fact.text},
        {"role": "assistant", "content": "Noted."},
    ]
    if owner == space and world.random.random() < 0.3:
        messages[0]["content"] = "[Guest]: " + fact.text
    sql = "select memoir.persist_turn(%s, %s, %s)"
    done = world.call(world.login_for(who, "write"), who, space if owner == space else None, "write", "persist_turn", sql,
        f"talk{world.random.randrange(4)}", Jsonb(messages))  # fmt: skip
    if done:
        world.facts[owner].append(fact)


def keep(world: World, who: str, space: str) -> None:
    """Keep a memory in a space."""
    fact = world.new_fact(space)
    sql = "select memoir.remember(%s, %s)"
    if done := world.call(world.login_for(who, "write"), who, space, "write", "remember", sql, fact.text):
        fact.memory = done["memory_id"]
        world.facts[space].append(fact)


SEARCHES = {"memory_index", "explain_context", "compile_context", "recall", "recall_beside"}
READS = {
    "list_memories": "select jsonb_agg(to_jsonb(m)) from memoir.list_memories({0}) m",
    "list_sessions": "select jsonb_agg(to_jsonb(s)) from memoir.list_sessions({0}) s",
    "list_speakers": "select jsonb_agg(to_jsonb(s)) from memoir.list_speakers({0}) s",
    "list_spaces": "select jsonb_agg(to_jsonb(s)) from memoir.list_spaces({0}) s",
    "list_tombstones": "select jsonb_agg(to_jsonb(t)) from memoir.list_tombstones({0}) t",
    "list_changes": "select jsonb_agg(to_jsonb(t)) from memoir.list_changes({0}) t",
    "memory_stats": "select memoir.memory_stats({0})",
    "profile": "select memoir.profile({0})",
    "memory_index": "select jsonb_agg(to_jsonb(i)) from memoir.memory_index({0}, 'number of the boiler filter') i",
    "explain_context": "select jsonb_agg(to_jsonb(c)) from memoir.explain_context({0}, 'new', 'The boiler filter?') c",
    "compile_context": "select memoir.compile_context({0}, 'talk1', 'Which numbers do we have for the oven?')",
    "recall": "select jsonb_agg(to_jsonb(r)) from memoir.recall({0}, 'number of the oven lid in the attic') r",
    "recall_beside": "select memoir.recall_beside({0}, 'agent', 'What number has the oven lid in the attic?')",
    "memory_get": "select jsonb_agg(g) from memoir.memory_get({0}, {1}) g",
}


def read(world: World, who: str, space: str) -> None:
    """Call one of the reading functions, for a person or in a space."""
    name = world.random.choices(list(READS), [1 if name in SEARCHES else 20 for name in READS])[0]
    given: list[Any] = []
    if name == "memory_get":
        # Ids of any space: they lead nowhere but there.
        known = [f.memory for facts in world.facts.values() for f in facts if f.memory]
        given = [world.random.sample(known, min(3, len(known))) or [str(uuid4())]]
    sql = READS[name].format("%s", "%s::uuid[]")
    world.call(world.login_for(who, "read"), who, space if world.random.random() < 0.5 else None, "read", name, sql,
        *given)  # fmt: skip


def question(world: World, who: str, space: str) -> None:
    """Ask for a fact of one of the person's spaces."""
    ask(world, who, space, world.random.random() < 0.5)


def ask(world: World, who: str, space: str, by_compile: bool) -> None:
    """Ask for a fact of a space: found by its readers, by nobody else."""
    facts = world.facts[space]
    login = world.login_for(who, "read")
    if not facts or login.acts_for not in (None, who):
        return
    fact = world.random.choice(facts)
    sql = (
        "select memoir.compile_context(%s, 'ask', %s)" if by_compile
        else "select jsonb_agg(to_jsonb(r)) from memoir.recall(%s, %s, p_limit => 5) r"
    )  # fmt: skip
    answer = world.call(
        login, who, None, "read", "ask by compile" if by_compile else "ask by recall", sql, fact.question
    )
    if (who, space) in world.role:
        world.tally.asked += 1
        is_found = fact.code in str(answer)
        world.tally.found += is_found
        if not is_found:
            world.tally.missed.append(f"{fact.text} for {who}")


def share(world: World, who: str, space: str) -> None:
    """Make somebody a member, or change what they may do."""
    other, role = world.random.choice(world.people), world.random.randrange(3)
    if world.role.get((other, space)) == 2 or sum(1 for _, s in world.role if s == space) >= 9:
        return
    sql = "select memoir.grant_space(split_part(%s, '@', 1), %s, %s, %s)"
    if world.call(world.login_for(who, "own"), who, space, "own", "grant_space", sql, space, other, ROLES[role]):
        world.role[other, space] = role


def remove(world: World, who: str, space: str) -> None:
    """Remove a member of a space, who asks for a fact of it right after."""
    members = [p for (p, s), role in world.role.items() if s == space and role < 2 and p != who]
    if not members:
        return
    other = world.random.choice(members)
    sql = "select memoir.revoke_space(split_part(%s, '@', 1), %s, %s)"
    if world.call(world.login_for(who, "own"), who, space, "own", "revoke_space", sql, space, other):
        del world.role[other, space]
        world.after_removal.append((other, space))


def leave(world: World, who: str, space: str) -> None:
    """Leave a space; its owners stay."""
    login = world.login_for(who, "own")
    if world.role.get((who, space), 2) == 2 or "own" not in login.may or login.acts_for not in (None, who):
        return
    sql = "select memoir.revoke_space(split_part(%s, '@', 1), %s, %s)"
    if world.call(login, who, space, "read", "leave", sql, space, who):
        del world.role[who, space]
        world.after_removal.append((who, space))


def change(world: World, who: str, space: str) -> None:
    """Correct or forget a memory of a space."""
    known = [fact for fact in world.facts[space] if fact.memory]
    if not known:
        return
    fact = world.random.choice(known)
    login = world.login_for(who, "write")
    if world.random.random() < 0.5:
        if world.call(login, who, space, "write", "forget", "select memoir.forget(%s, %s)", fact.memory):
            world.facts[space].remove(fact)
        return
    new = Fact(fact.code + "0", fact.text.replace(fact.code, fact.code + "0"), fact.question)
    sql = "select memoir.correct(%s, %s, %s, p_actor => %s)"
    actor = "agent" if login.name == "agent" else "person"
    if done := world.call(login, who, space, "write", "correct", sql, fact.memory, new.text, actor):
        new.memory = done["memory_id"]
        world.facts[space][world.facts[space].index(fact)] = new


@contextmanager
def logins(dsn: str, people: list[str]) -> Iterator[list[Login]]:
    """A service, a reader, and tenants for two people and their agents. The roles are dropped at the end."""
    kinds = [("service", "app", None), ("reading service", "reader", None)]
    kinds += [("person", "tenant", person) for person in people] + [("agent", "tenant", person) for person in people]
    made: list[str] = []
    with ExitStack() as stack, psycopg.connect(dsn, autocommit=True) as admin:
        found = []
        for name, group, person in kinds:
            role = f"bench_{uuid4().hex[:8]}"
            admin.execute(f"create role {role} in role memoir_{group}")
            made.append(role)
            if person:
                admin.execute("select memoir.bind_login(%s, array[%s], %s)", [role, person, name])
            db = stack.enter_context(psycopg.connect(dsn, autocommit=True))
            db.execute(f"set role {role}")
            may = {"service": NEEDS, "person": NEEDS, "agent": {"read", "write"}}.get(name, {"read"})
            found.append(Login(name, db, person, frozenset(may)))
        try:
            yield found
        finally:
            for one in found:
                one.db.close()
            for role in made:
                admin.execute(cast(Any, f"drop role {role}"))


def simulate(dsn: str, calls: int, people: int = 50, spaces: int = 20, seed: int = 1, minutes: float = 120) -> Tally:
    """Live through calls in a database, for so long at most, and return what was found."""
    ends = monotonic() + 60 * minutes
    with logins(dsn, ["p0", "p1"]) as found:
        world = World(found, people, spaces, seed)
        service = found[0]
        for space in world.spaces:
            members = world.random.sample(world.people, min(people, world.random.randint(4, 7)))
            service.db.execute("select memoir.create_space(%s, %s)", [members[0], space])
            world.role[members[0], space] = 2
            for member in members[1:]:
                role = world.random.randrange(3)
                service.db.execute(
                    "select memoir.grant_space(%s, %s, %s, %s)", [members[0], space, member, ROLES[role]]
                )
                world.role[member, space] = role
        while (done := world.tally.calls.total()) < calls and monotonic() < ends:
            step(world)
            if done % 500 == 0:
                progress(
                    f"{done} calls, {len(world.tally.leaks)} leaks, found {world.tally.found} of {world.tally.asked}"
                )
        return world.tally


def show(tally: Tally, people: int, spaces: int) -> tuple[str, str]:
    """Print what was found."""
    share = f"{100 * tally.found / max(1, tally.asked):.1f} %"
    rows = [
        ["calls", tally.calls.total()],
        *([f"- as {name}", count] for name, count in sorted(tally.logins.items())),
        ["refused, as they must be", tally.refused],
        ["leaks", len(tally.leaks)],
        ["other errors", len(tally.errors)],
        ["questions by those who may know", tally.asked],
        ["answered", f"{tally.found} ({share})"],
        ["first calls after a removal", tally.removed],
    ]
    told = [*tally.leaks[:10], *tally.errors[:10], *tally.missed[:3]]
    text = f"## Shared spaces\n\n{people} people in {spaces} spaces.\n\n" + table(["", "count"], rows)
    return report("spaces", "\n".join([text, *(["", *told] if told else [])]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=120, help="end then, whatever was done")
    for name, default in {"calls": 100_000, "people": 50, "spaces": 20, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)


def run(given: argparse.Namespace) -> None:
    """Run it in a database of its own."""
    with fresh_database("spaces") as dsn:
        show(
            simulate(dsn, given.calls, given.people, given.spaces, given.seed, given.minutes),
            given.people,
            given.spaces,
        )


if __name__ == "__main__":
    sys.exit(run_alone("bench.spaces", __doc__, add_arguments, run))
