"""Several servers behind a router: calls go where the user's part is, parts move under load, a dead server stops its own only."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from calls import call, messages, table
from parallel import until
from pg_memoir import Memoir, MemoirError
from routines import PERSONS, all_routines, code, values_for
from servers import PGBIN, ROOT, connect, server_folder

sys.path.insert(0, str(ROOT / "deploy"))
from shards import ROUTER, Shards

PLPROXY = Path(f"/usr/share/postgresql/{PGBIN.parent.name}/extension/plproxy.control")
needs_proxy = pytest.mark.skipif(not PLPROXY.exists(), reason="PL/Proxy is not installed")
pytestmark = [pytest.mark.acceptance, pytest.mark.extended, needs_proxy]
USERS = [f"user-{n}" for n in range(24)]


@pytest.fixture(scope="module")
def shards(private_dsn: str) -> Iterator[Shards]:
    with server_folder() as folder:
        shards = Shards(folder)
        try:
            shards.up(4, 8)
            shards.login("app", "memoir_app")
            with connect(shards.router("app")) as db:
                for user in USERS:
                    said = messages(f"I am {user} and my cat is called Ximena-{user}.", "Noted.")
                    call(db, "persist_turn", user, "first", said)
            yield shards
        finally:
            shards.down()


class Load(threading.Thread):
    """Says one numbered thing after another to users in turn; keeps what was acknowledged."""

    def __init__(self, shards: Shards, users: list[str]) -> None:
        super().__init__()
        self.shards, self.users, self.said, self.failed, self.stop = shards, users, [], [], threading.Event()

    def run(self) -> None:
        with Memoir(self.shards.router("app"), max_size=1) as memoir:
            number = 0
            while not self.stop.is_set():
                number += 1
                user = self.users[number % len(self.users)]
                try:
                    memoir.persist_turn(user, "s", messages(f"Fact number {number}.", "Noted."))
                    memoir.compile_context(user, "s", "Which fact was the last?")
                    self.said.append((user, number))
                except (psycopg.Error, MemoirError) as error:
                    self.failed.append(str(error))


class Moving(Shards):
    """Whose new server's jobs are due when the first copy is there, and then the old one's, as in a move that takes minutes."""

    def copied(self, db: psycopg.Connection, name: str) -> bool:
        if super().copied(db, name):
            self.run_jobs(db)
            return True
        return False

    def behind(self, old: psycopg.Connection, name: str) -> int:
        self.run_jobs(old)
        return super().behind(old, name)

    def run_jobs(self, db: psycopg.Connection) -> None:
        with connect(db.info.dsn) as worker:
            for job in ("merge", "profiles", "promotion", "phases"):
                worker.execute("call memoir.run_job(%s, p_wait => 0)", [job])


def part_of(shards: Shards, user: str) -> int:
    with connect(shards.router("app")) as db:
        return int(call(db, "part_of", user))


def lost(shards: Shards, load: Load) -> list[tuple[str, int]]:
    with Memoir(shards.router("app")) as memoir:
        users = {user for user, _ in load.said}
        there = {user: {turn["content"] for turn in memoir.history(user, "s")} for user in users}
    return [(user, number) for user, number in load.said if f"Fact number {number}." not in there[user]]


def test_a_users_calls_go_to_one_server(shards: Shards) -> None:
    with connect(shards.router("app")) as db:
        for user in USERS:
            assert f"Ximena-{user}" in str(call(db, "compile_context", user, "other", "What is my cat called?"))
            assert f"Ximena-{user}" in str(table(db, "recall", user, "cat", columns="content"))
    on = {}
    for node in shards.names:
        with connect(shards.dsn(node)) as db:
            on[node] = {user for (user,) in table(db, "list_users", columns="user_name", limit=1000)}
    assert sum(map(len, on.values())) == len(USERS) == len(set.union(*on.values()))
    assert sum(bool(users) for users in on.values()) >= 3
    with connect(shards.dsn(ROUTER)) as db:
        assert {row[0] for row in db.execute("select server from routing.jobs()")} == set(shards.names)
        assert db.execute("select sum(users) from routing.sizes()").fetchone() == (len(USERS),)
        views = db.execute("select table_name from information_schema.views where table_schema = 'routing'").fetchall()
        assert len(views) > 8
        for (view,) in views:  # the operators' views, of all servers
            db.execute(f"select * from routing.{view}").fetchall()
        healthy = db.execute("select server from routing.health where status <> 'red'").fetchall()
        assert {server for server, *_ in healthy} == set(shards.names)
        db.execute("select * from routing.health_problems()").fetchall()


@pytest.fixture(scope="module")
def tenant(shards: Shards) -> str:
    """The router, for a login of user-1's agent."""
    shards.login("tenant", "memoir_tenant")
    shards.sql("select memoir.bind_login('tenant', '{user-1}')")
    return shards.router("tenant")


def test_every_call_of_a_tenant_stays_with_its_own(shards: Shards, tenant: str) -> None:
    """The calls of tests/database/test_access.py, made through the router: strangers of this server and of another."""
    with connect(shards.dsn(ROUTER)) as db:
        taking = [r for r in all_routines(db).values() if "tenant" in r.roles and "p_user" in r.arguments]
    # The servers have neither a language model nor PL/Python, which reads the changes in what was said.
    taking = [r for r in taking if r.name not in ("query_answer", "undo_change")]
    assert len(taking) > 50
    reached, failed = [], []
    with connect(tenant) as db, connect(shards.router("app")) as app:
        assert "Ximena-user-1" in str(call(db, "compile_context", "user-1", "other", "What is my cat called?"))
        for number, routine in enumerate(taking):
            theirs = values_for(routine, app, USERS[2 + number % 8])
            if code(lambda: routine.call(db, theirs)) != "PM001":
                reached.append(routine.name)
            if routine.name.startswith("erase_") or routine.name in PERSONS:
                continue
            own = values_for(routine, app, "user-1")
            if (why := code(lambda: routine.call(db, own))) not in (None, "PM050"):  # what needs PL/Python says so
                failed.append((routine.name, why))
            mixed = own | {key: theirs[key] for key in ("p_memory", "p_call") if key in theirs}
            if mixed != own and code(lambda: routine.call(db, mixed)) != "PM004":
                reached.append(routine.name)
        for query in ("update routing.parts set shard = 0", "select * from routing.parts for share"):
            assert code(lambda: db.execute(query)) == "42501"
    assert (reached, failed) == ([], [])


def test_parts_move_under_load(shards: Shards) -> None:
    loads = [Load(shards, USERS[n::3]) for n in range(3)]
    shards.sql("select memoir.set_setting('tail_items_max', '16')")
    for load in loads:
        load.start()
    waited = []
    try:
        until(lambda: min(len(load.said) for load in loads) >= 150, 120)
        for user in ("user-0", "user-7"):
            part = part_of(shards, user)
            with connect(shards.dsn(ROUTER)) as db:
                [shard] = db.execute("select shard from routing.parts where part = %s", [part]).fetchone()
            waited.append(Moving(shards.folder).move(part, (shard + 1) % 4))
        after = [len(load.said) for load in loads]
        until(lambda: all(len(load.said) >= count + 10 for load, count in zip(loads, after, strict=True)), 120)
    finally:
        for load in loads:
            load.stop.set()
        for load in loads:
            load.join(60)
    print("users waited", waited)
    for load in loads:
        assert load.failed == [] and lost(shards, load) == []
    with connect(shards.router("app")) as db:
        assert "Ximena-user-0" in str(call(db, "compile_context", "user-0", "other", "What is my cat called?"))


def test_a_dead_server_stops_its_own_users_only(shards: Shards) -> None:
    with connect(shards.dsn(ROUTER)) as db:
        third = db.execute("select part from routing.parts where shard = 2").fetchall()
        dead = {user for user in USERS if (part_of(shards, user),) in third}
    assert dead
    shards.stop("s2", "immediate")
    try:
        with connect(shards.router("app")) as db:
            for user in USERS:
                answered = code(lambda: call(db, "compile_context", user, "other", "What is my cat called?")) is None
                assert answered == (user not in dead)
    finally:
        shards.start("s2")
    with connect(shards.router("app")) as db:
        shown = [call(db, "compile_context", user, "other", "What is my cat called?") for user in dead]
        assert all("Ximena" in str(messages) for messages in shown)
