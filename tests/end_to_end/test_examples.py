"""The example apps and the notebook, run as a reader would, with the real SDKs against a local stub of the provider."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import output_of
from frameworks import ROOT, python_with, surroundings
from pages import examples, settled
from pg_memoir import Memoir
from servers import connect, user_of
from stubs import Answer, ChatCompletionsStub

pytestmark = pytest.mark.acceptance

EXAMPLES = ROOT / "examples"
LOGINS = {"alice": "wonderland", "bob": "builder"}
RED = "My bicycle is a red folding one."
RUN_NOTEBOOK = """
import sys, nbformat, nbclient
book = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(book, timeout=120).execute()
nbformat.write(book, sys.argv[2])
"""


@pytest.fixture(scope="module")
def python() -> str:
    """The Python of an environment with the packages that the examples name."""
    return python_with("examples", "-r", "examples/requirements.txt")


def environment(stub: ChatCompletionsStub | None, **more: str) -> dict[str, str]:
    provider = {"OPENAI_API_KEY": "stub", "OPENAI_BASE_URL": stub.url} if stub else {}
    return surroundings(PYDEVD_DISABLE_FILE_VALIDATION="1", **provider, **more)


def printed(python: str, *arguments: str | Path, given: str = "", **env: Any) -> str:
    return output_of([python, "-W", "ignore", *arguments], input=given, **env)


def test_examples_are_short() -> None:
    """One file each, to be read in one sitting."""
    programs = sorted(EXAMPLES.glob("*.py"))
    assert [file.stem for file in programs] == ["agent", "chat", "support_bot"]
    assert all(len(file.read_text().splitlines()) <= 120 for file in programs)


@contextmanager
def running_chat(python: str, dsn: str, stub: ChatCompletionsStub) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    env = environment(stub, PG_MEMOIR_DSN=dsn, CHAT_LOGINS=json.dumps(LOGINS))
    command = [python, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--port", str(port), "chat:app"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr or []:
            if "running on" in line:
                break
        assert process.poll() is None
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode in (0, -15)


def test_chat(python: str, memoir_dsn: str) -> None:
    """Answers are streamed and stored, and each login has a memory of its own."""
    told, long = Answer(text="Noted. Enjoy the paper edition!"), Answer(text="a long answer " * 20_000)
    with (
        ChatCompletionsStub(told, Answer(text="The paper one."), Answer(text="I can't know."), long) as stub,
        running_chat(python, memoir_dsn, stub) as url,
        httpx.Client(base_url=url, auth=("alice", "wonderland"), timeout=60) as alice,
        httpx.Client(base_url=url, auth=("bob", "builder"), timeout=60) as bob,
    ):
        for wrong in (None, ("alice", "builder"), ("carl", "")):
            assert httpx.get(f"{url}/chats", auth=wrong).status_code == 401
        assert "<form" in alice.get("/").text
        assert [alice.get(path).json() for path in ("/chats", "/chats/monday", "/memories")] == [[], [], []]
        with alice.stream("POST", "/chats/monday", json={"text": "I read the paper edition."}) as answer:
            parts = list(answer.iter_text())
        assert "".join(parts) == told.text and len(parts) > 1
        question = {"text": "Which edition do I read?"}
        assert alice.post("/chats/friday", json=question).text == "The paper one."
        assert "I read the paper edition." in str(stub.requests[-1]["messages"])
        assert bob.post("/chats/friday", json=question).text == "I can't know."
        assert "paper" not in str(stub.requests[-1]["messages"])
        assert [turn["text"] for turn in bob.get("/chats/friday").json()] == [question["text"], "I can't know."]
        assert sorted(alice.get("/chats").json()) == ["friday", "monday"] and bob.get("/chats").json() == ["friday"]
        with bob.stream("POST", "/chats/left", json={"text": "Tell me a long story."}) as answer:
            next(answer.iter_text())  # and leaves
        with Memoir(memoir_dsn) as memoir:
            while "left" not in [row.session for row in memoir.list_sessions("bob")] or not memoir.history(
                "bob", "left"
            ):
                time.sleep(0.05)
            asked, kept = memoir.history("bob", "left")
            assert asked["content"] == "Tell me a long story." and str(long.text).startswith(kept["content"])


def test_agent(python: str, memoir_dsn: str) -> None:
    """A second thread gets what the first one heard, and the tool's result."""
    script = (
        Answer(text="Noted."),
        Answer(tool_calls=[("c1", "days_until", {"day": "2027-04-09"})]),
        Answer(text="Not many. Pretzels."),
    )
    with ChatCompletionsStub(*script) as stub:
        env = environment(stub, PG_MEMOIR_DSN=memoir_dsn)
        for thread, question in (
            ("monday", "I can't eat peanuts."),
            ("friday", "How long, and which snack without peanuts?"),
        ):
            said = printed(python, EXAMPLES / "agent.py", "ann", thread, question, env=env)
    assert said == "Not many. Pretzels.\n"
    assert [tool["function"]["name"] for tool in stub.requests[-1]["tools"]] == ["days_until"]
    sent = stub.requests[-1]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert "I can't eat peanuts." in sent[1]["content"] and int(sent[3]["content"])
    with Memoir(memoir_dsn) as memoir:
        assert [turn["role"] for turn in memoir.history("ann", "friday")] == ["user", "assistant", "tool", "assistant"]


def test_support_bot(python: str, memoir_dsn: str) -> None:
    """The same name at another shop is another person, also in the database."""
    [logins] = [each.code for each in examples("examples/README.md") if each.kind == "sql"]
    script = (
        Answer(text="Noted."),
        Answer(text="A red one."),
        Answer(tool_calls=[("c1", "search_handbook", {"query": "return"})]),
        Answer(text="Nothing. You may return books."),
    )
    with connect(memoir_dsn) as admin:
        admin.execute(logins)
        shops = {f"{name.upper()}_DSN": user_of(memoir_dsn, name) for name in ("bikes", "books")}
        try:
            with ChatCompletionsStub(*script) as stub:
                env = environment(stub, **shops)
                bikes = printed(
                    python, EXAMPLES / "support_bot.py", "bikes", "sam", given=f"{RED}\n\nWhich is mine?\n", env=env
                )
                assert bikes == "Noted.\nA red one.\n" and RED in str(stub.requests[-1]["messages"])
                books = printed(
                    python, EXAMPLES / "support_bot.py", "books", "sam", given="What do you know of me?", env=env
                )
                assert books == "Nothing. You may return books.\n"
            shown = str([request["messages"] for request in stub.requests[2:]])
            assert "14 days" in shown and "icycle" not in shown
            with Memoir(shops["BIKES_DSN"]) as one, Memoir(shops["BOOKS_DSN"]) as other:
                assert one.recall("customer:sam", "red bicycle")[0].content == RED
                assert "icycle" not in str([hit.content for hit in other.recall("customer:sam", "red bicycle")])
                found = [
                    memoir.search_documents("handbook", ["rules"], "return")[0].value["text"] for memoir in (one, other)
                ]
                assert "30 days" in found[0] and "14 days" in found[1]
            spaces = dict(admin.execute("select namespace, users from memoir.list_namespaces()").fetchall())
            assert (spaces["bikes"], spaces["books"]) == (2, 2)
        finally:
            admin.execute("drop role if exists bikes, books")


def test_notebook(python: str, memoir_dsn: str, tmp_path: Path) -> None:
    """The notebook prints what it shows. Its outputs are short."""
    page, again = ROOT / "docs/start/notebook.ipynb", tmp_path / "again.ipynb"
    printed(python, "-c", RUN_NOTEBOOK, page, again, env=environment(None, PG_MEMOIR_DSN=memoir_dsn))
    shown, made = (outputs(path) for path in (page, again))
    assert len(page.read_text()) < 10_000 and sum(map(len, shown)) > 300
    assert [settled(text) for text in made] == [settled(text) for text in shown]


def outputs(notebook: Path) -> list[str]:
    """What each cell of code prints or returns."""
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    return [
        "".join("".join(each.get("text") or each["data"]["text/plain"]) for each in cell["outputs"]) for cell in cells
    ]
