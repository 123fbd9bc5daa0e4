"""A primary that dies under load: nothing acknowledged is lost, clients and jobs go on at the next one."""

import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import anthropic
import psycopg
import pytest
from calls import messages, one
from parallel import until
from pg_memoir import Memoir, MemoirError
from servers import ROOT, server_folder
from stubs import Answer, MessagesStub

sys.path.insert(0, str(ROOT / "deploy"))
from replicas import NODES, Cluster

BOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
needs_bouncer = pytest.mark.skipif(BOUNCER is None, reason="pgbouncer is not installed")
pytestmark = [pytest.mark.acceptance, pytest.mark.extended, needs_bouncer]


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MessagesStub]:
    """The model behind the gateway: says "Noted." to everything. A busy machine's database may take its time."""
    settings = tmp_path / "gateway.toml"
    settings.write_text("database_ms = 10000\n")
    monkeypatch.setenv("PG_MEMOIR_GATEWAY_CONFIG", str(settings))
    with MessagesStub(lambda body: Answer(text="Noted.")) as stub:
        monkeypatch.setenv("UPSTREAM_ANTHROPIC", stub.url)
        yield stub


@pytest.fixture
def cluster(private_dsn: str, upstream: MessagesStub) -> Iterator[Cluster]:
    with server_folder() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        cluster = Cluster(folder, port)
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


class Load(threading.Thread):
    """Says one numbered thing after another, and reads each back from a standby; keeps what was acknowledged."""

    def __init__(self, cluster: Cluster, user: str) -> None:
        super().__init__()
        self.cluster, self.user, self.said, self.read, self.stop = cluster, user, [], 0, threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            try:
                dsns = (self.cluster.bouncer(), self.cluster.bouncer("memoir_read"))
                with Memoir(dsns[0], max_size=1) as memoir, Memoir(dsns[1], max_size=1) as reader:
                    while not self.stop.is_set():
                        number += 1
                        done = memoir.persist_turn(self.user, "s", messages(f"Fact number {number}.", "Noted."))
                        self.said.append(number)
                        self.read += self.reads(reader, done["mark"])
            except (psycopg.Error, MemoirError, OSError):
                time.sleep(0.2)  # the primary is gone; the next try may find another

    def reads(self, reader: Memoir, mark: str) -> int:
        """A standby may be a moment behind, and says so."""
        for _ in range(50):
            try:
                reader.compile_context(self.user, "s", "Which facts?", after_turn=mark)
                return 1
            except MemoirError as error:
                if error.code != "PM021":
                    return 0
                time.sleep(0.02)
        return 0


def ask(cluster: Cluster, session: str, text: str) -> str:
    """What a client of the gateway is answered."""
    client = anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{cluster.gateway_port}", api_key="k", max_retries=0,
        default_headers={"x-claude-code-session-id": session},
    )  # fmt: skip
    messages = [{"role": "user", "content": text}]
    said = client.messages.create(model="claude-sonnet-4-5", max_tokens=50, messages=messages)
    return said.content[0].text


def is_answered(cluster: Cluster) -> bool:
    try:
        return ask(cluster, "first", "My cat is called Ximena.") == "Noted."
    except anthropic.APIConnectionError:
        return False  # it is starting


def knows(cluster: Cluster, name: str) -> bool:
    """Is what the gateway's client said stored?"""
    with Memoir(cluster.bouncer(), max_size=1) as memoir:
        return name in str([hit.content for hit in memoir.recall("local", "What are my cat and my dog called?")])


def last_run(cluster: Cluster, node: str) -> datetime | None:
    """When the last job that ended well began there."""
    with psycopg.connect(cluster.dsn(node), autocommit=True) as db:
        return one(db, "select max(last_started) from memoir.list_jobs() where last_outcome = 'done'")


def test_the_primary_dies_under_load(cluster: Cluster, upstream: MessagesStub) -> None:
    assert cluster.primary() == "a" and cluster.standbys() == ["b", "c"]
    with psycopg.connect(cluster.dsn("a"), autocommit=True) as db:
        db.execute("select memoir.set_schedule('flush', '* * * * *')")
    loads = [Load(cluster, f"user-{n}") for n in range(3)]
    for load in loads:
        load.start()
    try:
        until(lambda: is_answered(cluster), 60)
        until(lambda: knows(cluster, "Ximena"), 60)
        until(lambda: all(len(load.said) > 20 for load in loads), 60)
        until(lambda: last_run(cluster, "a") is not None, 90)
        postmaster = int((cluster.data("a") / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        until(lambda: not cluster.is_up("a"), 60)
        assert ask(cluster, "between", "My dog is called Borka.") == "Noted."  # the gateway fails open
        new, before = cluster.failover(), [len(load.said) for load in loads]
        assert new in NODES[1:]
        until(lambda: all(len(load.said) > count + 20 for load, count in zip(loads, before, strict=True)), 60)

        until(lambda: knows(cluster, "Borka"), 120)  # it was said while no primary was there
        assert knows(cluster, "Ximena")
        had = last_run(cluster, new)
        until(lambda: last_run(cluster, new) != had, 120)
        cluster.rejoin()
        assert sorted([*cluster.standbys(), new]) == list(NODES)
    finally:
        for load in loads:
            load.stop.set()
        for load in loads:
            load.join(60)
    for load in loads:
        with Memoir(cluster.bouncer()) as memoir:
            there = {turn["content"] for turn in memoir.history(load.user, "s")}
        lost = [number for number in load.said if f"Fact number {number}." not in there]
        assert lost == []
        assert load.read > 10  # and standbys answered
