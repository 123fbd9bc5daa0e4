"""Events outside the database: consumers and servers are killed and none is lost; webhooks; SSE; the command line."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from calls import call, remembered, set_clock, set_settings
from parallel import until
from pg_memoir import AsyncMemoir, Memoir
from pg_memoir_cli.webhooks import Sender, run_webhooks
from pg_memoir_gateway.config import Service
from served import KEYS, USERS, served
from servers import connect, install
from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from upstream import serving

SHOP = "sk-shop-0123456789"
SERVICES = (Service("shop", hashlib.sha256(SHOP.encode()).hexdigest()),)
CLI = [sys.executable, "-m", "pg_memoir_cli"]
WRITERS = 4


class Receiver:
    """Takes webhooks. `statuses`: of its next answers, then 204."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []

    async def take(self, request: Request) -> Response:
        """Keeps what it answers with success."""
        body = await request.body()
        status = self.statuses.pop(0) if self.statuses else 204
        if status == 204:
            self.got.append((dict(request.headers), body))
        return Response(status_code=status, headers={"location": "/elsewhere"} if status == 302 else None)

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.got]


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, str]]:
    made = Receiver()
    with serving(Starlette(routes=[Route("/{any:path}", made.take, methods=["POST"])])) as url:
        yield made, url


class Consumer:
    """`pg-memoir events --follow` into a file, which holds what was worked off. It goes on behind the last whole line."""

    def __init__(self, dsn: str, path: Path) -> None:
        self.dsn, self.path = dsn, path
        path.touch()
        self.start()

    def events(self) -> list[dict[str, Any]]:
        whole = self.path.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def start(self) -> None:
        kept = self.path.read_bytes()
        whole = kept[: kept.rfind(b"\n") + 1]
        self.path.write_bytes(whole)
        since = ["--since", json.loads(whole.splitlines()[-1])["cursor"]] if whole else []
        with self.path.open("ab") as file:
            command = [*CLI, "events", "--follow", "--type", "memory.added", "--dsn", self.dsn, *since]
            self.process = subprocess.Popen(command, stdout=file)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Worker:
    """`pg-memoir worker --webhooks`."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.start()

    def start(self) -> None:
        options = ["--webhooks", "--allow-local", "--no-embed", "--interval", "0.2", "--dsn", self.dsn]
        self.process = subprocess.Popen([*CLI, "worker", *options], stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


Told = dict[str, list[str]]
"""Ids of memories by user, in the order in which remember returned them."""


def write(dsn: str, writer: int, count: int, batch: int, told: Told) -> None:
    """Remembers so many facts, a batch in a transaction, and a batch again until it is answered."""
    for first in range(0, count, batch):
        user = f"w{writer}-{first // 1000}"
        while True:
            try:
                with connect(dsn) as db:
                    rows = db.execute(
                        "select memoir.remember(%s, 'Fact ' || n, p_key => 'k' || n) ->> 'memory_id'"
                        " from generate_series(%s::integer, %s) n",
                        [user, first, min(first + batch, count) - 1],
                    ).fetchall()
                told[user] += [memory for (memory,) in rows]
                break
            except psycopg.OperationalError:
                time.sleep(0.2)


def how_many(told: Told) -> int:
    return sum(len(memories) for memories in list(told.values()))


@contextmanager
def writing(dsn: str, count: int, batch: int) -> Iterator[tuple[Told, Callable[[], bool]]]:
    """Several writers; what they were told, and whether they go on."""
    told: Told = defaultdict(list)
    given = [(dsn, writer, count // WRITERS, batch, told) for writer in range(WRITERS)]
    threads = [threading.Thread(target=write, args=one) for one in given]
    for thread in threads:
        thread.start()
    yield told, lambda: any(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join()


def kill_backend(dsn: str) -> None:
    """Kills a process of a connection, a writer's if one is at work: the whole server restarts, as after a crash."""
    with connect(dsn) as db:
        row = db.execute(
            "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
            " order by query ~ 'generate_series' and state = 'active' desc limit 1"
        ).fetchone()
    assert row is not None
    os.kill(row[0], signal.SIGKILL)


def in_order(datas: list[dict[str, str]]) -> Told:
    """Memories by user, each where it came first."""
    seen: dict[str, dict[str, None]] = defaultdict(dict)
    for data in datas:
        seen[data["user"]].setdefault(data["memory_id"])
    return {user: list(memories) for user, memories in seen.items()}


@pytest.mark.parametrize(
    "count, batch, kills",
    [
        pytest.param(300, 3, 1, marks=pytest.mark.acceptance),
        pytest.param(100_000, 100, 20, marks=[pytest.mark.acceptance, pytest.mark.extended]),
    ],
)
def test_events_survive_kills(
    scratch: str, receiver: tuple[Receiver, str], tmp_path: Path, count: int, batch: int, kills: int
) -> None:
    """All arrive at a reader and at a webhook, a user's in order, whoever is killed meanwhile."""
    taken, url = receiver
    install(scratch)
    with connect(scratch) as db:
        set_settings(db, outbox_days=7)
        hook = call(db, "add_webhook", f"{url}/hook", ["memory.added"])
    consumer, worker = Consumer(scratch, tmp_path / "events"), Worker(scratch)
    try:
        with writing(scratch, count, batch) as (told, goes_on):
            for turn in range(kills):
                share = (turn + 1) * count // (kills + 1)
                until(lambda share=share: how_many(told) >= share or not goes_on(), 900)  # type: ignore[misc]
                for killed in (consumer, worker):
                    killed.kill()
                    killed.start()
                kill_backend(scratch)
        assert how_many(told) == count
        # To look often would keep the receiver, a thread of this process, from its work.
        until(lambda: len({event["id"] for event in consumer.events()}) >= count, 900, pause=count / 10_000)
        until(lambda: len(taken.got) >= count and len(set(taken.ids())) >= count, 3600, pause=count / 10_000)
    finally:
        consumer.kill()
        worker.kill()
    datas = [event["data"] for event in consumer.events()]
    assert in_order(datas) == told
    for headers, body in taken.got[-10:]:
        Webhook(hook["secret"]).verify(body, headers)
    sent = [json.loads(body)["data"] for _, body in taken.got]
    assert in_order(sent) == told
    print(f"{count} events, {len(datas) - count} twice to the reader, {len(sent) - count} twice to the webhook")


def test_webhooks_by_what_receivers_answer(
    memoir_dsn: str, db: psycopg.Connection, user: str, receiver: tuple[Receiver, str]
) -> None:
    taken, url = receiver
    with Memoir(memoir_dsn, max_size=4) as memoir, Sender(allow_local=True) as sender:
        made = memoir.add_webhook(f"{url}/hook")
        number = made["webhook"]

        def state() -> tuple[str, str | None]:
            [hook] = memoir.list_webhooks()
            return hook.state, hook.last_error

        facts = [remembered(db, user, f"Fact {n}.") for n in range(4)]
        taken.statuses = [302]  # is not followed, and what comes behind of this user waits
        run_webhooks(memoir, sender, once=True)
        assert taken.got == [] and state() == ("failing", "status 302")
        set_clock(db, datetime.now(UTC) + timedelta(minutes=1))
        run_webhooks(memoir, sender, once=True)
        assert state() == ("active", None)
        bodies = [Webhook(made["secret"]).verify(body, headers) for headers, body in taken.got]
        assert [body["data"]["memory_id"] for body in bodies] == facts
        assert {body["type"] for body in bodies} == {"memory.added"} and "Fact" not in str(bodies)
        ids = taken.ids()
        call(db, "forget", user, facts[0])
        taken.statuses = [410]
        run_webhooks(memoir, sender, once=True)
        assert state() == ("disabled", "status 410")
        run_webhooks(memoir, sender, once=True)
        assert taken.ids() == ids
        assert memoir.retry_work(number)
        run_webhooks(memoir, sender, once=True)
        # One of them tells that it was disabled.
        assert len(taken.ids()) == len(ids) + 2 and len(set(taken.ids())) == len(taken.ids())
        # By default nothing goes inside, and a refusal says why.
        remembered(db, user, "Fact 5.")
        with Sender() as careful:
            run_webhooks(memoir, careful, once=True)
        assert state()[0] == "failing" and "only https:// is allowed" in str(state()[1])
        memoir.remove_webhook(number)
    set_clock(db, None)


def test_webhooks_set_a_refused_event_aside(
    memoir_dsn: str, db: psycopg.Connection, user: str, receiver: tuple[Receiver, str]
) -> None:
    """A receiver that always refuses one event gets the later ones after about an hour, and that one on request."""
    taken, url = receiver
    options = ["--allow-local", "--dsn", memoir_dsn]
    with Memoir(memoir_dsn, max_size=4) as memoir, Sender(allow_local=True) as sender:
        number = memoir.add_webhook(f"{url}/hook")["webhook"]
        bad, good = (remembered(db, user, f"Boat {n}.") for n in range(2))

        def tries(count: int, statuses: list[int]) -> None:
            for _ in range(count):
                set_clock(db, call(db, "now") + timedelta(hours=1))
                taken.statuses = list(statuses)
                run_webhooks(memoir, sender, once=True)

        set_clock(db, datetime.now(UTC))
        tries(14, [500, 500])  # it refuses all: nobody can tell that one event is to blame
        [hook] = memoir.list_webhooks()
        assert (hook.state, hook.failures, hook.aside, taken.got) == ("failing", 14, [], [])
        tries(1, [500])
        [hook] = memoir.list_webhooks()
        assert hook.state == "active" and [one["error"] for one in hook.aside] == ["status 500"]
        assert [json.loads(body)["data"]["memory_id"] for _, body in taken.got] == [good]
        tries(2, [])  # a later event is not set aside by the tries of an earlier one
        remembered(db, user, "Boat 3.")
        remembered(db, user, "Boat 4.")
        tries(5, [500])
        [hook] = memoir.list_webhooks()
        assert hook.state == "failing" and len(hook.aside) == 1
    again = [*CLI, "webhooks", "resend", str(number), *options]
    taken.statuses = [500]
    assert subprocess.run(again, capture_output=True).returncode == 3
    taken.got.clear()
    done = subprocess.run(again, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"event {hook.aside[0]['event']}: answered 204\n"), done.stderr
    assert [json.loads(body)["data"]["memory_id"] for _, body in taken.got] == [bad]
    told = subprocess.run([*CLI, "webhooks", "aside", str(number), options[-2], options[-1]], capture_output=True)
    assert b"no event is set aside" in told.stdout + told.stderr
    call(db, "remove_webhook", number)
    set_clock(db, None)


def test_webhook_addresses_stay_out_of_logs(
    memoir_dsn: str, db: psycopg.Connection, user: str, receiver: tuple[Receiver, str]
) -> None:
    taken, url = receiver
    made = call(db, "add_webhook", f"{url.replace('//', '//user:word@')}/hook?key=token")
    remembered(db, user, "Owns a kite.")
    options = ["--webhooks", "--allow-local", "--no-embed", "--once", "--dsn", memoir_dsn]
    done = subprocess.run([*CLI, "worker", *options], capture_output=True, text=True, timeout=60)
    call(db, "remove_webhook", made["webhook"])
    assert len(taken.got) == 1 and done.returncode == 0, done.stderr
    assert "word" not in done.stderr and "token" not in done.stderr


def test_events_on_the_command_line(memoir_dsn: str, db: psycopg.Connection, receiver: tuple[Receiver, str]) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        command = [*CLI, *arguments, "--dsn", memoir_dsn]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    set_settings(db, outbox_days=0)
    code, _, told = run("events")
    assert code == 1 and "outbox_days is 0" in told and "set_setting" in told
    taken, url = receiver
    code, told, _ = run("webhooks", "add", f"{url}/cli", "--type", "memory.added")
    number = told.split()[1].strip(",")
    assert code == 0 and "whsec_" in told
    memory = remembered(db, "cli", "Owns a drum.")
    code, lines, _ = run("events", "--user", "cli")
    [event] = map(json.loads, lines.splitlines())
    assert code == 0 and event["data"]["memory_id"] == memory
    assert run("events", "--user", "cli", "--since", event["cursor"])[:2] == (0, "")
    os.environ["PG_MEMOIR_WEBHOOK_SECRET"] = given = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    code, told, _ = run("webhooks", "add", f"{url}/own")
    del os.environ["PG_MEMOIR_WEBHOOK_SECRET"]
    assert told.endswith(f"secret {given}\n") and run("webhooks", "remove", told.split()[1].strip(","))[0] == 0
    code, told, _ = run("webhooks", "list")
    assert "active" in told and "memory.added" in told and "whsec_" not in told
    code, _, told = run("webhooks", "test", number)
    assert code == 1 and "only https:// is allowed" in told
    assert run("webhooks", "test", number, "--allow-local")[1] == f"{url}/cli answered 204\n"
    assert json.loads(taken.got[0][1])["type"] == "webhook.test"
    assert run("webhooks", "enable", number)[2].startswith("pg-memoir webhooks: there is no disabled webhook")
    assert run("webhooks", "remove", number)[0] == 0
    assert run("webhooks", "remove", number)[0] == 1


@pytest.mark.anyio
async def test_events_of_the_client_as_they_come(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    """A stream that waits gets what comes by LISTEN, and outlives its connections."""
    set_settings(db, outbox_days=7)
    first = remembered(db, user, "Keeps bees.")
    async with AsyncMemoir(memoir_dsn) as memoir:
        stream = memoir.stream_events(user)
        assert (await anext(stream))["data"]["memory_id"] == first
        waiting = asyncio.create_task(anext(stream))
        for fact in ("Keeps hens.", "Keeps goats."):
            await asyncio.sleep(0.2)
            if fact == "Keeps goats.":
                db.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                    " and pid <> pg_backend_pid()"
                )
            memory = remembered(db, user, fact)
            event = await asyncio.wait_for(waiting, 20)
            assert event["data"]["memory_id"] == memory
            waiting = asyncio.create_task(anext(stream))
        waiting.cancel()
    with Memoir(memoir_dsn) as plain:
        assert [event["id"] for event in plain.stream_events(user, follow=False)][-1] == event["id"]


def read_stream(url: str, key: str, count: int, **headers: str) -> list[dict[str, str]]:
    """Returns the next events of a stream, as their lines say."""
    given = {"authorization": f"Bearer {key}"} | headers
    found: list[dict[str, str]] = []
    with httpx.stream("GET", url, headers=given, timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.read()
        lines: dict[str, str] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line == "" and lines:
                found.append(lines)
                lines = {}
                if len(found) == count:
                    break
            elif name:
                lines[name] = value
    return found


def test_events_over_sse(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    set_settings(db, outbox_days=7)
    start = call(db, "read_events", None, after="now")["cursor"]
    facts = [remembered(db, "ann", f"Ann {n} {user}.") for n in range(3)] + [remembered(db, "bob", f"Bob {user}.")]
    with served(memoir_dsn, users=USERS, services=SERVICES, journal="off") as (url, _):
        whole = read_stream(f"{url}/memoir/v1/users/ann/events?after={start}", KEYS["ann"], 3)
        assert [json.loads(event["data"])["data"]["memory_id"] for event in whole] == facts[:3]
        assert {event["event"] for event in whole} == {"memory.added"}
        later = threading.Timer(0.5, lambda: facts.append(remembered(db, "ann", f"Ann 4 {user}.")))
        later.start()
        rest = read_stream(f"{url}/memoir/v1/users/ann/events", KEYS["ann"], 2, **{"last-event-id": whole[1]["id"]})
        later.join()
        assert [json.loads(event["data"])["data"]["memory_id"] for event in rest] == [facts[2], facts[4]]
        every = read_stream(f"{url}/memoir/v1/events?types=memory.added&after={start}", SHOP, 5)
        assert facts[3] in [json.loads(event["data"])["data"]["memory_id"] for event in every]
        for key, path, status in (
            (KEYS["ann"], "/events", 403),
            (KEYS["ann"], "/users/bob/events", 403),
            (SHOP, "/events?after=17", 422),
            (SHOP, "/events?types=memory.lost", 400),
        ):
            answer = httpx.get(f"{url}/memoir/v1{path}", headers={"authorization": f"Bearer {key}"})
            assert answer.status_code == status, (path, answer.text)
