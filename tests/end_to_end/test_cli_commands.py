"""pg-memoir, command by command: what it prints, and its exit code."""

import argparse
import json
import threading
import time
import zipfile
from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import typer
from calls import messages
from pg_memoir import Memoir
from pg_memoir_cli import app as cli
from pg_memoir_cli.commands import look
from servers import database
from stubs import fake_vector

Run = Callable[..., tuple[int, str, str]]
OTHERS = "up down psql install import export namespaces users list search explain graph tail status"
COMMANDS = f"{OTHERS} forget erase settings sync worker embedding-model doctor agents"


@pytest.fixture(scope="module")
def memoir(memoir_dsn):
    with Memoir(memoir_dsn, max_size=2) as client:
        bike = {"role": "user", "content": "My bicycle is a green Brompton.", "tags": ["bike"]}
        client.persist_turn("alice", "support-42", messages(bike, "A fine one."))
        client.persist_turn("alice", "support-43", [{"role": "user", "name": "Ann", "content": "Where is my parcel?"}])
        yield client


@pytest.fixture
def run(memoir, run: Run) -> Run:
    """With what memoir has kept."""
    return run


def test_help_teaches(run):
    code, out, _ = run("--help")
    assert code == 0
    for name in COMMANDS.split():
        assert f" {name} " in out, name
        code, text, _ = run(name, "--help")
        assert code == 0 and "Usage: pg-memoir " + name in text, name
    assert run("--version")[1].strip()


def test_errors_name_the_value(run):
    for command, code, says in (
        ("serch", 2, "No such command"),
        ("search alice", 2, ""),  # the query lacks
        ("list alice --state wonderful", 1, "pg-memoir list: "),
        ("list alice --state wonderful", 1, "wonderful"),
        ("namespaces --dsn host=/nowhere", 1, "pg-memoir namespaces: "),
        ("graph alice 0", 1, ""),
        ("forget alice 00000000-0000-0000-0000-000000000000 --yes", 1, ""),
        ("forget alice piano --yes", 3, "nothing is known of that"),
        ("sync alice --model nothing", 1, ""),
    ):
        found, out, error = run(*command.split())
        assert (found, out) == (code, "") and says in error, command


def test_without_a_database_it_says_how_to_get_one(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("PG_MEMOIR_DSN", raising=False)
    monkeypatch.setenv("PG_MEMOIR_STATE", str(tmp_path))
    assert cli.main(["namespaces"]) == 2 and "pg-memoir up" in capsys.readouterr().err
    (tmp_path / "dsn").write_text("host=/nowhere dbname=x connect_timeout=1\n")  # as pg-memoir up leaves it
    assert cli.connection_string("") == "host=/nowhere dbname=x connect_timeout=1"


def test_words_are_completed(memoir, capsys, monkeypatch):
    monkeypatch.setenv("_PG_MEMOIR_COMPLETE", "complete_bash")
    for words, place, wanted in (("pg-memoir sea", "1", "search"), ("pg-memoir list alice sp", "3", "speakers")):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", place)
        with pytest.raises(SystemExit, match="0"):  # as the shell calls it
            cli.main([])
        assert capsys.readouterr().out.split() == [wanted]


def fail() -> None:
    raise ImportError("no module named nothing")


class Words:
    """`pg-memoir words`: repeats words."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--times", type=int, default=1)
        parser.add_argument("word")

    @staticmethod
    def main(options: argparse.Namespace) -> int:
        print(options.word * options.times)
        return 0


def hello(name: str) -> int:
    """Greets."""
    print(f"hello {name}")
    return 3


def test_commands_of_other_packages(run, monkeypatch):
    group = typer.Typer()
    group.command("one")(lambda: print("one of many"))
    group.command("two")(lambda: print("another"))
    loads = {"hello": lambda: hello, "many": lambda: group, "words": lambda: Words, "bad": fail}
    monkeypatch.setattr(
        cli, "find_commands", lambda: {name: SimpleNamespace(load=load) for name, load in loads.items()}
    )
    monkeypatch.setattr(cli.app, "registered_commands", list(cli.app.registered_commands))
    monkeypatch.setattr(cli.app, "registered_groups", list(cli.app.registered_groups))
    monkeypatch.setattr(cli, "COMMAND_PACKAGES", {"elsewhere": "pg-memoir-elsewhere"})
    assert run("hello", "you") == (3, "hello you\n", "") and run("many", "two")[1] == "another\n"
    assert run("words", "ab", "--times", "2") == (0, "abab\n", "")
    assert "--times" in run("words", "--help")[1] and run("words")[0] == 2
    listed = run("--help")[1]
    assert "Greets." in listed and "repeats words" in listed
    code, _, error = run("bad")
    assert code == 1 and "bad can't be loaded: no module named nothing" in error
    hint = "pg-memoir elsewhere: elsewhere is not installed\nhint: pip install pg-memoir-elsewhere\n"
    assert run("elsewhere") == (2, "", hint)


def test_namespaces_and_users(run):
    code, out, _ = run("namespaces", "--json")
    [row] = json.loads(out)
    assert code == 0 and row["namespace"] == "default" and row["users"] >= 1 and row["turns"] >= 3
    assert run("namespaces")[1].startswith("default\t")
    assert run("users", "--limit", "1")[1].startswith("alice\t2\t")
    assert all(row["user_name"] > "alice" for row in json.loads(run("users", "--after", "alice", "--json")[1]))


def test_list(run, memoir, user):
    kept = memoir.remember(user, "Drinks tea without sugar", type="preference", tags=["food"])
    code, out, _ = run("list", user)
    assert code == 0 and f"{kept['memory_id']}\t" in out and out.rstrip().endswith("Drinks tea without sugar")
    assert run("list", user, "--type", "decision") == (0, "", f"nothing is remembered of {user}\n")
    [row] = json.loads(run("list", user, "--tag", "food", "--json")[1])
    assert row["content"] == "Drinks tea without sugar" and row["state"] == "active"
    assert row["id"] == kept["memory_id"]  # by the name that search has it
    sessions = [line.split("\t")[0] for line in run("list", "alice", "sessions")[1].splitlines()]
    assert sessions == ["support-43", "support-42"]
    speakers = json.loads(run("list", "alice", "speakers", "--json")[1])
    assert [s["speaker"] for s in speakers] == ["Ann", "assistant", "user"]


def test_search_finds_and_shows_no_control_characters(run, memoir, user):
    memoir.persist_turn(user, "s1", messages("The \x1b[31mred\x1b[0m kite flies."))
    code, out, _ = run("search", user, "red kite")
    assert code == 0 and "s1:0" in out and "kite flies" in out and "\x1b" not in out
    [hit] = json.loads(run("search", user, "red kite", "--kind", "turn", "--json")[1])
    assert hit["content"] == "The \x1b[31mred\x1b[0m kite flies." and hit["turn_index"] == 0
    assert run("search", user, "submarine", "--kind", "memory") == (0, "", "nothing was found\n")
    [tagged] = json.loads(run("search", "alice", "zebra", "--tag", "bike", "--json")[1])
    assert tagged["matched_by"] == ["filter"] and tagged["tags"] == ["bike"]


def test_explain_and_graph(run, memoir, user):
    command = ("explain", "alice", "new", "What bicycle do I have?")
    code, out, error = run(*command)
    assert code == 0 and "green Brompton" in out and " items, " in error
    rows = json.loads(run(*command, "--json")[1])
    assert any(row["included"] and row["parts"] for row in rows)
    assert len(run(*command, "--left-out")[1].splitlines()) == len(rows)
    first, second = (memoir.remember(user, text)["memory_id"] for text in ("The roof leaks", "The attic is wet"))
    memoir.relate(user, second, "caused_by", first)
    code, out, _ = run("graph", user, first)
    assert code == 0 and out.splitlines()[0] == "The roof leaks" and "← caused_by The attic is wet" in out
    assert json.loads(run("graph", user, first, "--json")[1])[0]["relation"] == "caused_by"


def test_tail_and_follow(run, memoir, user, monkeypatch):
    memoir.persist_turn(user, "s1", messages("First.", "Noted."))
    memoir.persist_turn(user, "s2", messages("Elsewhere."))
    code, out, _ = run("tail", user, "-n", "2")
    shown = ["s1:1 assistant Noted.", "s2:0 user Elsewhere."]
    assert code == 0 and [line.split(" ", 2)[2] for line in out.splitlines()] == shown
    assert run("tail", user, "--session", "nothing")[1] == ""
    seen: dict[str, int] = {}
    assert look._newest(memoir, user, None, 0, seen) == [] and seen == {"s1": 2, "s2": 1}
    memoir.persist_turn(user, "s1", messages("Second."))
    memoir.branch_session(user, "s1", "s3", at_turn=1)
    memoir.persist_turn(user, "s3", messages("In the branch."))
    new = {(t["session"], t["turn_index"], t["content"]) for t in look._grown(memoir, user, None, seen)}
    assert {("s1", 2, "Second."), ("s3", 1, "In the branch.")} <= new
    assert list(look._grown(memoir, user, None, seen)) == []
    # As a process sees it: -f goes on until it is interrupted.
    interrupted = threading.Event()

    def later(_: float) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        memoir.persist_turn(user, "s2", messages("While you look."))
        interrupted.set()

    monkeypatch.setattr(time, "sleep", later)
    code, out, _ = run("tail", user, "-n", "0", "-f", "--json")
    assert code == 130 and json.loads(out)["content"] == "While you look."


def test_status(run):
    code, out, _ = run("status", "--json")
    answer = json.loads(out)
    assert {"status", "problems", "jobs", "embedding"} <= answer.keys()
    assert code == (0 if answer["status"] == "green" else 3)
    assert run("status")[1].startswith("status")


def test_forget_shows_first(run, memoir, user):
    kept = memoir.remember(user, "Locker code is 4411")["memory_id"]
    code, out, error = run("forget", user, kept)
    assert code == 1 and "Locker code is 4411" in out and "nothing is forgotten; --yes does it" in error
    assert memoir.list_memories(user)
    code, out, _ = run("forget", user, kept, "--yes")
    assert code == 0 and out.endswith("forgotten\n") and not memoir.list_memories(user)
    memoir.persist_turn(user, "s1", messages("My gym code is 90210."))
    code, out, _ = run("forget", user, "my gym code")
    assert code == 1 and "turn s1:0: My gym code is 90210" in out
    code, out, _ = run("forget", user, "my gym code", "--yes", "--json")
    assert code == 0 and json.loads(out)["outcome"] == "forgotten"
    assert run("list", user, "changes")[1].split("\t")[2] == "forgotten"


def test_learn_and_outcome(run, memoir, user):
    assert run("learn", user, "deploy the api", "./ship.sh api", "--worked")[0] == 0
    (way,) = memoir.recall_experience(user, "deploy the api")
    code, out, _ = run("outcome", user, str(way.memory_id), "--failed", "--note", "needs the VPN")
    assert (code, out) == (0, "worked 1 of 2\n")
    assert "./ship.sh api" in run("experience", user, "deploy the api")[1]
    assert "no experience" in "".join(map(str, run("experience", user, "bake bread")))
    code, _, err = run("outcome", user, "00000000-0000-0000-0000-000000000001", "--worked")
    assert code and "unknown memory" in err


def test_space_commands(run, memoir, user):
    space, friend = f"space-{user}", f"friend-{user}"
    assert run("space", "create", user, space)[:2] == (0, f"{user}@space:{space}\n")
    assert run("space", "grant", user, space, friend, "--role", "writer", "--name", "Tunde")[0] == 0
    memoir.remember(f"{friend}@space:{space}", "The router is in the cellar.")
    assert "The router is in the cellar." in run("search", user, "router")[1]
    assert run("space", "list", friend)[1].split("\t")[:3] == [space, "writer", "2"]
    assert friend in run("space", "members", user, space)[1]
    assert run("space", "revoke", user, space, friend)[0] == 0
    code, _, err = run("space", "members", friend, space)
    assert code and "may not read in space" in err


def test_sync_tells_then_queues(run, memoir, user):
    def embed() -> int:
        return memoir.embed_backlog(lambda texts: [fake_vector(text) for text in texts])

    embed()
    memoir.persist_turn(user, "s1", messages("A kite in the wind."))
    [row] = json.loads(run("sync", user, "--dry-run", "--json")[1])
    assert (row["texts"], row["queued"]) == (1, False) and row["tokens"] > 0
    code, out, _ = run("sync", user)
    assert code == 0 and out.startswith(f"{row['model']}\tactive\t1\t") and "0 of 2" in out and embed() == 1
    [row] = json.loads(run("sync", user, "--dry-run", "--json")[1])
    assert row["texts"] == 0 and row["cursor"] == row["items"] == 2 and row["last_batch_at"]


def node(parent: str, role: str, text: str, at: float | None = None) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    return {"message": {"author": {"role": role}, "create_time": at, "content": content}, "parent": parent}


CHATGPT = {
    "title": "Bikes",
    "conversation_id": "c-1",
    "current_node": "n4",
    "mapping": {
        "n0": {"message": None, "parent": None},
        "n1": node("n0", "user", "Which tyre fits?", 1_700_000_000.5),
        "n2": node("n1", "assistant", "A first try."),
        "n4": node("n1", "assistant", "The 16 inch one.", 1_700_000_009),
    },
}


def test_chat_export_grows(run, memoir, user, tmp_path):
    path = tmp_path / "export.zip"

    def write(conversation: dict[str, Any]) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("conversations.json", json.dumps([conversation]))

    write(CHATGPT)
    code, out, _ = run("import", str(path), "--user", user)
    assert code == 0 and "1 conversations, 2 messages" in out
    more: Any = deepcopy(CHATGPT)
    more["mapping"] |= {"n5": node("n4", "user", "Thanks."), "n6": node("n5", "assistant", "Any time.")}
    more["current_node"] = "n6"
    write(more)
    for _ in range(2):
        code, out, _ = run("import", str(path), "--user", user, "--json")
        assert code == 0 and json.loads(out)["messages"] == 4
        said = [turn["content"] for turn in memoir.history(user, "c-1")]
        assert said == ["Which tyre fits?", "The 16 inch one.", "Thanks.", "Any time."]
    assert memoir.history(user, "c-1")[0]["created_at"].startswith("2023-11-14T22:13:20.5")
    more["mapping"]["n1"]["message"]["content"]["parts"] = ["Something else?"]
    write(more)
    code, _, error = run("import", str(path), "--user", user)
    assert code == 3 and "imported before with other messages" in error


def test_doctor_finds_what_is_missing(run, scratch):
    _, out, _ = run("doctor")
    assert "ok\textension pgcrypto" in out and "missing\textension" not in out
    with database(scratch) as dsn:
        code, out, _ = run("doctor", "--dsn", dsn)
    assert code == 3 and "missing\tpg_memoir\tnot installed\tpg-memoir install" in out


def test_install_into_a_database(run, scratch):
    with database(scratch) as dsn:
        assert run("install", "--dsn", dsn, "--modulus", "2")[0] == 0
        assert "ok\tpg_memoir" in run("doctor", "--dsn", dsn)[1]
        with psycopg.connect(dsn) as db:
            assert db.execute("select modulus from _memoir.installation").fetchone() == (2,)


def test_settings_from_the_command_line(run, memoir):
    assert run("settings", "recall_tokens_max", "1234")[0] == 0
    assert run("settings", "recall_tokens_max")[1].startswith("recall_tokens_max\t1234\t2000")
    assert run("settings", "recall_tokens_max", "--reset")[0] == 0
    assert run("settings", "recall_tokens_max")[1].startswith("recall_tokens_max\t2000")
    assert run("settings", "recall_tokens_max", "900", "--user", "zoe")[0] == 0
    assert 'recall_tokens_max can\'t be "many"' in run("settings", "recall_tokens_max", "many")[2]
    assert run("settings", "nothing_such", "1")[0] == 1 and "nothing_such" in run("settings", "nothing_such")[2]


def test_erase_asks_first(run, memoir):
    memoir.remember("yan", "Yan paints.")
    assert run("erase", "yan")[0] == 1 and memoir.list_memories("yan")
    code, out, _ = run("erase", "yan", "--yes")
    assert code == 0 and out.startswith("erased: ") and not memoir.list_memories("yan")
