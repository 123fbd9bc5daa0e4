"""Embedding from outside: claim → embed → store, nothing open while the model runs."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import psycopg
import pytest
from pg_memoir import AsyncMemoir, Memoir, worker
from pg_memoir.embedders import EmbedderUnavailable, load_embedder
from stubs import ChatCompletionsStub
from stubs.chat_completions import fake_vector


def embed(texts):
    return [fake_vector(text) for text in texts]


@pytest.fixture(scope="module")
def memoir(memoir_dsn):
    with Memoir(memoir_dsn) as client:
        client.embed_backlog(embed)
        yield client


def store(memoir, user, count=3):
    for number in range(count):
        memoir.persist_turn(user, "s1", [{"role": "user", "content": f"bicycle {number}"}, {"role": "assistant", "content": f"blue {number}"}])


def test_backlog(memoir, memoir_dsn, user):
    store(memoir, user)
    sizes = []

    def watched(texts):
        sizes.append(len(texts))
        with psycopg.connect(memoir_dsn) as connection:
            # Only this look itself may be in a transaction.
            open_now = connection.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null and pid <> pg_backend_pid() "
                "and backend_type = 'client backend'"
            ).fetchone()
        assert open_now == (0,)
        return embed(texts)

    assert memoir.embed_backlog(watched, limit=4) == 6
    assert sizes == [4, 2]
    assert memoir.embed_backlog(watched) == 0
    hits = memoir.recall(user, "bicycle 1", query_embedding=fake_vector("bicycle 1"))
    [hit] = [hit for hit in hits if hit.content == "bicycle 1"]
    assert set(hit.matched_by) >= {"words", "vector"} and hit.vector_score > 0.5


def test_limits_and_errors(memoir, user):
    store(memoir, user)
    assert memoir.embed_backlog(embed, max_items=2) == 2
    with pytest.raises(TypeError, match="no embedder"):
        memoir.embed_backlog()
    # The failed claim's lease is still held, so this one is another user's.
    store(memoir, user + "-2")
    for wrong in ([[0.0] * 384], [[1.0], [1.0]], [[float("nan")] * 384] * 2):
        store(memoir, f"{user}-{wrong[0][0]}-{len(wrong)}", count=1)
        with pytest.raises(Exception, match="vectors of lengths|is nan|make vectors|384"):
            memoir.embed_backlog(lambda texts, wrong=wrong: wrong, max_items=2)


def test_async_with_both_kinds_of_embedder(memoir_dsn, user):
    async def slow(texts):
        await asyncio.sleep(0.001)
        return embed(texts)

    async def run():
        async with AsyncMemoir(memoir_dsn) as client:
            counts = []
            for function in (slow, embed):
                await client.persist_turn(f"{user}-{function.__name__}", "s1", [{"role": "user", "content": "one text"}])
                counts.append(await client.embed_backlog(function))
            return counts

    assert all(count >= 1 for count in asyncio.run(run()))


def test_worker_goes_on_after_failures(memoir, user, caplog):
    memoir.embed_backlog(embed)
    store(memoir, user)
    stop, tries = threading.Event(), []

    def flaky(texts):
        tries.append(len(texts))
        if len(tries) == 1:
            raise EmbedderUnavailable("the model sleeps")
        stop.set()
        return embed(texts)

    thread = threading.Thread(target=worker.run, args=(memoir, flaky), kwargs=dict(interval=0.01, stop=stop, limit=2))
    with caplog.at_level(logging.WARNING):
        thread.start()
        deadline = time.monotonic() + 10
        while not tries and time.monotonic() < deadline:
            time.sleep(0.01)
        store(memoir, user + "-later", count=1)
        thread.join(20)
    stop.set()
    assert not thread.is_alive() and tries and len(tries) == 2 and "the model sleeps" in caplog.text
    with pytest.raises(EmbedderUnavailable):
        store(memoir, user + "-last", count=1)
        worker.run(memoir, lambda texts: (_ for _ in ()).throw(EmbedderUnavailable("gone")), once=True)


def test_worker_process_with_an_endpoint(memoir, memoir_dsn, user):
    store(memoir, user)
    with ChatCompletionsStub() as stub:
        command = [sys.executable, "-m", "pg_memoir.worker", "--dsn", memoir_dsn, "--endpoint", stub.url, "--interval", "0.05"]
        done = subprocess.run([*command, "--once"], capture_output=True, text=True, timeout=60, env=os.environ)
        assert done.returncode == 0, done.stderr
        assert stub.requests and stub.requests[0]["model"] == "all-MiniLM-L6-v2"
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        store(memoir, user + "-more")
        deadline = time.monotonic() + 30
        while sum("bicycle" in str(r["input"]) for r in stub.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0 and "stopped after 6" in said
    assert all(hit.vector_score > 0 for hit in memoir.recall(user, "bicycle 2", query_embedding=fake_vector("bicycle 2"), limit=3))


def test_endpoint_embedder():
    with ChatCompletionsStub() as stub:
        loaded = load_embedder(endpoint=stub.url, model="m")
        vectors = loaded(["b a", "c"])
        assert len(vectors) == 2 and abs(sum(x * x for x in vectors[0]) - 1) < 1e-6
        expected = fake_vector("b a")
        assert max(range(384), key=vectors[0].__getitem__) == max(range(384), key=expected.__getitem__)
        with pytest.raises(EmbedderUnavailable, match="answered 400"):
            load_embedder(endpoint=stub.url + "/wrong")(["a"])
    with pytest.raises(EmbedderUnavailable, match="refused|127.0.0.1"):
        load_embedder(endpoint=stub.url)(["a"])
    with pytest.raises(EmbedderUnavailable, match="NO_SUCH_KEY is not set"):
        load_embedder(endpoint=stub.url, api_key_env="NO_SUCH_KEY")
    with pytest.raises(EmbedderUnavailable, match="unknown provider"):
        load_embedder("magic")
    with pytest.raises(EmbedderUnavailable, match="needs an endpoint"):
        load_embedder("openai")


def test_local_embedder():
    """The model that ships with a server install, where this Python has it."""
    try:
        loaded = load_embedder()
    except EmbedderUnavailable as error:
        pytest.skip(str(error))
    cat, feline, tax = loaded(["a cat", "a small feline", "income tax return"])
    cosine = lambda a, b: sum(x * y for x, y in zip(a, b))  # noqa: E731
    assert len(cat) == 384 and cosine(cat, feline) > 0.5 > cosine(cat, tax)
