"""What the shared embedder does with requests that meet: precedence, batching, fairness, isolation. No process, no model."""

import asyncio
import json
import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from pg_memoir_server import embedder, lanes
from pg_memoir_server.protocol import Refused


class Fake:
    """A runtime that notes its batches and can be held up; a text that contains 'poison' fails."""

    name, max_length = "fake", 256

    def __init__(self, concurrent: bool):
        self.concurrent, self.calls, self.gate = concurrent, [], threading.Event()
        self.gate.set()

    def embed(self, texts):
        self.calls.append(list(texts))
        self.gate.wait(5)
        if any("poison" in text for text in texts):
            raise ValueError("poison")
        return np.array([[len(text), 1] for text in texts], np.float32)


pytestmark = pytest.mark.anyio


async def make_model(concurrent=True):
    """A model whose runtime is a Fake, and that."""
    fake = Fake(concurrent)
    model = lanes.Model("m", "m", SimpleNamespace(runtime="auto"))
    model._load_now = lambda: (fake, 2)
    await model.load()
    return model, fake


def ask(model, texts, query=False, seconds=5.0, gone=lambda: False):
    return asyncio.create_task(model.embed(texts, query, time.monotonic() + seconds, gone))


@pytest.mark.parametrize("concurrent", [True, False])
async def test_rows_come_back_in_order(concurrent):
    model, fake = await make_model(concurrent)
    texts = ["x" * n for n in (700, 3, 90, 1, 1500, 40)]
    vectors = await ask(model, texts)
    assert [row[0] for row in vectors] == [len(text) for text in texts]
    assert all(sum(map(model.cost, call)) <= lanes.BATCH_BYTES or len(call) == 1 for call in fake.calls)


async def test_queries_do_not_wait_for_backlog_on_two_lanes():
    model, fake = await make_model()
    held = threading.Event()

    def embed(texts):
        if texts[0].startswith("b"):
            held.wait(5)
        return np.ones((len(texts), 2), np.float32)

    fake.embed = embed
    backlog = ask(model, ["b"])
    await asyncio.sleep(0.05)
    await asyncio.wait_for(ask(model, ["why"], query=True), 2)
    assert not backlog.done()
    held.set()
    await backlog


async def test_backlog_requests_take_turns():
    model, fake = await make_model()
    long, short = ask(model, ["l" * 1000] * 30), ask(model, ["s" * 1000])
    await short
    assert not long.done()
    await long


async def test_one_bad_text_fails_its_own_request_only():
    model, fake = await make_model()
    fake.gate.clear()
    ask(model, ["first"], query=True)
    await asyncio.sleep(0.05)
    good, bad = ask(model, ["good"], query=True), ask(model, ["poison"], query=True)
    await asyncio.sleep(0.05)
    fake.gate.set()
    assert len(await good) == 1
    with pytest.raises(ValueError):
        await bad


async def test_nobody_waits_any_more():
    model, fake = await make_model()
    fake.gate.clear()
    first = []
    for _ in range(min(4, os.cpu_count() or 1)):  # a query for each thread
        first.append(ask(model, ["first"], query=True))
        await asyncio.sleep(0.05)
    left = ask(model, ["left"], query=True, gone=lambda: True)
    late = ask(model, ["late"], query=True, seconds=0.05)
    with pytest.raises(Refused) as refusal:
        await late
    assert refusal.value.kind == "timeout"
    fake.gate.set()
    await asyncio.gather(left, return_exceptions=True)
    await asyncio.gather(*first)
    assert fake.calls == [["first"]] * len(first) and model.figures()["dropped"] == 2


async def test_queries_do_not_wait_for_loading():
    model = lanes.Model("m", "m", SimpleNamespace(runtime="auto"))
    loaded = threading.Event()
    model._load_now = lambda: (loaded.wait(5), (Fake(True), 2))[1]
    with pytest.raises(Refused) as refusal:
        await model.embed(["why"], True, time.monotonic() + 5, lambda: False)
    assert refusal.value.kind == "loading" and model.about()["state"] == "loading"
    backlog = ask(model, ["text"])
    await asyncio.sleep(0.05)
    loaded.set()
    assert len(await backlog) == 1 and model.about()["state"] == "ready"


async def test_a_repeated_query_is_not_embedded_again(monkeypatch):
    model, fake = await make_model()
    server = embedder.Server("/nowhere", {"m": model}, set())
    now = [1000.0]
    monkeypatch.setattr(embedder.time, "monotonic", lambda: now[0])

    async def asked(*texts, kind="query"):
        header = {"op": "embed", "model": "m", "kind": kind, "timeout_ms": 5000}
        return (await server._answer(header, json.dumps(texts).encode(), SimpleNamespace(at_eof=lambda: False)))[1]

    first = await asked("where is it?")
    assert await asked("where is it?") == first and await asked("where was it?") != first
    assert fake.calls == [["where is it?"], ["where was it?"]]
    await asked("where is it?", kind="backlog")
    now[0] += embedder.RECENT_SECONDS + 1
    await asked("where is it?")
    assert len(fake.calls) == 4
    for n in range(embedder.MOST_RECENT + 1):
        server._keep(("m", str(n).encode()), None)
    assert len(server._recent) <= embedder.MOST_RECENT
