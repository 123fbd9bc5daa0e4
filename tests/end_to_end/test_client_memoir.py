"""The client against a database: the same tests for Memoir and AsyncMemoir."""

import asyncio
import inspect
import subprocess
import sys
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest
from client_calls import AT, GOOD, METHODS, arguments, calls, types_sent
from pg_memoir import AsyncMemoir, Memoir, MemoirError, errors
from pg_memoir.call import Call
from stubs import fake_vector

USER, MODEL = {"role": "user", "content": "Where do I live?"}, {"role": "assistant", "content": "In Oslo."}


class Blocking:
    """An async object whose methods block, so that one test body serves both clients."""

    def __init__(self, runner, inner):
        self._runner, self._inner = runner, inner

    def __getattr__(self, name):
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args, **kwargs):
            result = value(*args, **kwargs)
            result = self._runner.run(result) if inspect.iscoroutine(result) else result
            return Blocking(self._runner, result) if type(result).__module__.startswith("pg_memoir.aio") else result

        return call


@pytest.fixture(scope="module", params=["sync", "async"])
def memoir(request, memoir_dsn):
    if request.param == "sync":
        with Memoir(memoir_dsn) as client:
            yield client
    else:
        with asyncio.Runner() as runner:
            client = Blocking(runner, AsyncMemoir(memoir_dsn))
            yield client
            client.close()


def test_a_conversation(memoir, user):
    session = memoir.session(user, "s1", model="gpt-4o", system_prompt="Be kind.")
    assert session.mark is None
    compiled = session.compile_context("Where do I live?")
    assert compiled[0]["role"] == "system" and compiled[0]["content"].startswith("Be kind.")
    assert compiled[-1]["role"] == "user" and compiled[-1]["content"].endswith("Where do I live?")
    done = session.persist_turn([USER, MODEL], usage={"model": "gpt-4o", "prompt_tokens": 20, "completion_tokens": 4})
    assert (done["from_turn"], done["to_turn"], done["turn_count"]) == (0, 1, 2)
    assert session.mark == done["mark"] and len(done["message_ids"]) == 2
    assert [m["content"] for m in session.history()] == [USER["content"], MODEL["content"]]
    assert [m["turn_index"] for m in session.history(from_turn=1)] == [1]
    after = session.compile_context("And since when?", after_turn=session.mark)
    assert [m["role"] for m in after] == ["system", "user", "assistant", "user"]
    assert session.info()["turns"] == 2
    branch = session.branch("s2", at_turn=1)
    assert isinstance(branch, UUID)
    session.close()
    with pytest.raises(errors.SessionClosedError):
        session.persist_turn([USER, MODEL])


def test_refusals_say_what_and_why(memoir, user):
    """test_contract.py has the types of most."""
    with pytest.raises(errors.InvalidMessageError, match=r"messages\[0\].role.*robot") as caught:
        memoir.persist_turn(user, "s1", [{"role": "robot", "content": "Hi"}])
    assert isinstance(caught.value.__cause__, psycopg.Error) and caught.value.code == "PM010"
    with pytest.raises(errors.InvalidSettingError, match="no_such"):
        memoir.set_setting("no_such", 1)
    with pytest.raises(psycopg.errors.UndefinedFunction):
        memoir.run(Call("x", "select memoir.no_such_function()", {}, list))


def test_queries_are_embedded_here_when_an_embedder_is_given(memoir_dsn):
    asked = []

    def embed(texts):
        asked.append(texts)
        return [fake_vector(text) for text in texts]

    with Memoir(memoir_dsn, embed=embed) as memoir:
        memoir.remember("embed", "A blue bicycle", embedding=fake_vector("A blue bicycle"))
        assert memoir.recall("embed", "bicycle blue")[0].vector_score > 0.5
        memoir.compile_context("embed", "s1", "x y", query_embedding=fake_vector("x"))
        assert asked == [["bicycle blue"]]
        memoir.embed = lambda texts: [[float("nan")]]
        assert memoir.recall("embed", "bicycle blue")  # an embedder that fails costs the vector arm, not the answer
    asyncio.run(_async_embedders(memoir_dsn))


async def _async_embedders(dsn):
    async def embed(texts):
        await asyncio.sleep(0)
        return [fake_vector(text) for text in texts]

    for function in (embed, lambda texts: [fake_vector(text) for text in texts]):
        async with AsyncMemoir(dsn, embed=function) as memoir:
            hits = await memoir.recall("embed", "bicycle blue")
            assert hits[0].vector_score > 0.5


def test_no_server_is_said_with_the_reason(tmp_path):
    missing = pytest.raises(psycopg.OperationalError, match="No such file")
    with Memoir(f"host={tmp_path} dbname=x", timeout=0.5) as memoir, missing:
        memoir.count_tokens("x")


def test_many_threads_share_a_client(memoir_dsn):
    from concurrent.futures import ThreadPoolExecutor

    with Memoir(memoir_dsn, max_size=4) as memoir, ThreadPoolExecutor(8) as threads:
        session = memoir.session("threads", "s1", model="gpt-4o")
        done = list(threads.map(lambda _: session.persist_turn([USER, MODEL])["from_turn"], range(24)))
        assert sorted(done) == list(range(0, 48, 2))


# Functions of schema memoir that no client calls, and why.
NO_METHOD = {
    "embed_backlog": "embeds inside the database; a client's embed_backlog embeds outside",
    "ensure_embedder": "starts a process beside the server",
    "enable_jobs": "set-up, from psql",
    "disable_jobs": "set-up, from psql",
    "recall_arrays": "the client reads it where it makes a recall (extras/recalls.py)",
    "setup": "set-up, from psql",
    "set_clock": "for tests",
    "now": "the clock that tests set",
    "part_of": "for tools that spread users over servers, by SQL",
    "estimate_tokens": "what count_tokens falls back to",
    "max_tokens": "a bound that SQL needs",
    "version": "asked by installs",
}


def test_calls_fit_the_database(memoir_dsn):
    """Every function has a method or a reason; every argument is there by that name and type, is sent if it has no default,
    and none is missing here."""
    query = """select proname, proargnames, proargtypes::oid[]::regtype[]::text[], pronargdefaults from pg_proc
        where pronamespace = 'memoir'::regnamespace"""
    with psycopg.connect(memoir_dsn) as connection:
        known = {
            name: ({argument.removeprefix("p_"): kind for argument, kind in zip(names or [], types)}, len(types) - left)
            for name, names, types, left in connection.execute(query)
        }
    assert {method.function for method in METHODS.values()} | set(NO_METHOD) == set(known)
    spelled = {"int": "integer", "timestamptz": "timestamp with time zone", "int[]": "integer[]", "real[][]": "real[]",
               "timestamptz[]": "timestamp with time zone[]", "text[]::jsonb[]": "jsonb[]"}  # fmt: skip
    for name, method in METHODS.items():
        theirs, required = known[method.function]
        made = getattr(calls, name)(**arguments(name))
        sent = {argument: spelled.get(kind, kind) for argument, kind in types_sent(made).items()}
        assert sent.items() <= theirs.items(), name
        if not made.sql.startswith("call"):  # procedures have arguments for jobs only
            assert set(theirs) - set(sent) <= {"format"}, name
        fewest = types_sent(getattr(calls, name)(**arguments(name, only_required=True)))
        assert set(list(theirs)[:required]) <= set(fewest), name


EDGES = {
    "text": "", "name": "", "int": 2**31 - 1, "bigint": -(2**63), "real": -3.4e38, "numeric": 1e-30, "boolean": False, "uuid": UUID(int=0),
    "timestamptz": datetime(9999, 12, 31, 23, 59, tzinfo=UTC), "date": AT.date(), "bytea": b"", "text[]": [], "int[]": [],
    "uuid[]": [], "real[]": [], "real[][]": [], "bytea[]": [], "timestamptz[]": [], "text[]::jsonb[]": [],
}  # fmt: skip


@pytest.mark.parametrize("values", [GOOD, EDGES, GOOD | {"text": "x" * 5000, "int": -1, "uuid[]": [UUID(int=1)] * 3}])
def test_no_call_ends_in_an_error_of_psycopg(memoir_dsn, values):
    """Whatever the arguments of a right type say: an answer, or a refusal that names what is wrong."""
    wrong = []
    with Memoir(memoir_dsn, max_size=1) as memoir:
        for name in METHODS:
            for only_required in (True, False):
                try:
                    getattr(memoir, name)(**arguments(name, values, only_required))
                except MemoirError:
                    pass
                except psycopg.Error as error:
                    wrong.append(f"{name}: {type(error).__name__}: {error.diag.message_primary}")
    assert not wrong, "\n".join(dict.fromkeys(wrong))


FORGETFUL = """
import asyncio, atexit, sys
@atexit.register
def said():  # registered before the client's, hence run after
    print("closed" if connection.closed else "open", flush=True)
from pg_memoir import AsyncMemoir, Memoir
if sys.argv[1] == "sync":
    memoir = Memoir(sys.argv[2])
    memoir.count_tokens("x")
    with memoir._pool.connection() as connection:
        pass
else:
    async def run():
        memoir = AsyncMemoir(sys.argv[2])
        await memoir.session("exit", "s").compile_context("x")
        async with memoir._pool.connection() as connection:
            return connection
    connection = asyncio.run(run())
"""


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_is_not_closed_closes_at_exit(memoir_dsn, kind):
    command = [sys.executable, "-W", "error", "-c", FORGETFUL, kind, memoir_dsn]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")
