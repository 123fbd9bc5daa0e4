"""The pages' snippets run as they stand, each page in a fresh database, and print what the pages say.

PG_MEMOIR_UPDATE=1 writes what they print into the pages: read the difference."""

import json
import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from calls import call, persist, remembered
from check_docs import MARKDOWN, ROOT
from check_docs import PAGES as WRITTEN
from internals import lease_jobs, release_job
from pages import examples, outputs, settled, write_output
from pg_memoir import Memoir, from_openai
from servers import connect, database, use_embedder

# The manuals of bench/ and research/ are left out: their commands take hours.
PAGES = [*WRITTEN, "deploy/README.md", "integrations/README.md"]
MADE = "docs/reference.md"  # signatures, made from the functions themselves
OTHERS = {"docs/guides/rest.md": "test_rest.py"}  # pages that need more than a database, and what runs them
# Pages whose commands take seconds each.
LONG = {
    *(
        f"docs/{name}.md"
        for name in (
            "start/installation",
            "guides/agents",
            "guides/cli",
            "guides/imports",
            "guides/pages",
            "guides/privacy",
        )
    )
}
RUN = [page for page in PAGES if page != MADE and page not in OTHERS and any(not one.mark for one in examples(page))]
# Snippets that nothing runs. Lower these when you can.
NOT_RUN = 9
# Pages that tell a story from its beginning. On the others alice has a past.
STORIES = {
    "README.md",
    "client/README.md",
    "docs/start/tutorial.md",
    "docs/guides/recipes.md",
    "docs/guides/events.md",
    "docs/guides/pages.md",
    "docs/explain/compile.md",
}
DATABASES = ("mydb", "mynewdb")  # where pages install and restore
FENCES = {"python", "sql", "sh", "toml", "json", "text", ""}


class Bot:
    """An application to be tested, which the pages leave to the reader."""

    def __init__(self, memoir: Any) -> None:
        self.memoir = memoir

    def answer(self, user: str, said: str) -> None:
        """Answers and stores."""
        self.memoir.persist_turn(
            user, "s1", [{"role": "user", "content": said}, {"role": "assistant", "content": "Oh."}]
        )


def live(db: psycopg.Connection) -> dict[str, str]:
    """Gives alice a past, which most pages ask about. Returns the variables of psql."""
    said = "I live in Bern with my sister. The trip to Porto was long. My locker code is 3382."
    turn = persist(db, "alice", "support-42", said, "Noted.")["message_ids"][0]
    persist(db, "alice", "today", "The trip to Porto was long.", "Tell me more.")
    memory = remembered(db, "alice", "Lives in Graz.", slot="home city", slot_value="Graz")
    persist(db, "alice", "friday", "I moved to Basel. Please forget my locker code.", "Noted.")
    for session in ("support-42", "friday"):
        call(db, "extract_session", "alice", session)
    compiled = call(db, "context", "alice", "today", "Where do I live?")["compile_id"]
    change = next(iter(db.execute("select change_id from memoir.list_changes('alice')").fetchall()), ("",))[0]
    remembered(db, "you:github.com/acme/app", "The staging host is heron-7.")
    ids = {"id": turn, "memory": memory, "compile_id": compiled, "change": change}
    return {name: f"'{value}'::uuid" for name, value in ids.items()} | {"used": "'{}'"}


def write_files(folder: Path) -> None:
    """Writes what the reader imports."""
    conversation = {
        "user": "alice",
        "session": "tyres",
        "messages": [{"role": "user", "content": "The 28 mm tyre fits."}],
    }
    with zipfile.ZipFile(folder / "chats.zip", "w") as archive:
        archive.writestr("conversations.json", json.dumps([conversation]))
    memories = {
        "results": [{"id": "8c1a33c6-2f80-4ff5-9b6f-0d8d1a2b9c11", "memory": "Rides a bicycle", "user_id": "user-17"}]
    }
    (folder / "memories.json").write_text(json.dumps(memories))


def given(dsn: str) -> dict[str, Any]:
    """What snippets of Python take from the application around them."""
    answer = {"choices": [{"message": {"role": "assistant", "content": "It was long."}}]}
    return {
        "client": Memoir(dsn),
        "user": "alice",
        "session": "today",
        "from_openai": from_openai,
        "completion": answer,
    }


@pytest.fixture
def page_dsn(server_dsn: str, template: str, private_dsn: str) -> Iterator[str]:
    """A fresh database with the embedder of the checkout's private server."""
    with database(server_dsn, f"template {template}") as dsn:
        use_embedder(dsn, private_dsn)
        yield dsn


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.acceptance if page in LONG else ()) for page in RUN]
)
def test_page(page_dsn: str, page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A page begins with nothing, or with alice's past if it does not tell one."""
    monkeypatch.setenv("PG_MEMOIR_DSN", page_dsn)
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "__page__", "dsn": page_dsn, "Bot": Bot} | given(page_dsn)
    variables = {}
    write_files(tmp_path)
    with connect(page_dsn) as db:
        for name in DATABASES:
            db.execute(f"create database {name}")
        db.execute("create role alice_mcp login in role memoir_tenant")
        if page not in STORIES:
            variables = live(db)
    try:
        for example, printed in outputs(page, page_dsn, scope, variables, tmp_path):
            if example.output is not None:
                if os.environ.get("PG_MEMOIR_UPDATE") and not settled(printed).endswith(settled(example.output)):
                    write_output(page, example, printed)
                    continue
                told = f"{page}:\n{example.code}\nprinted\n{printed}"
                assert settled(printed).endswith(settled(example.output)), told
    finally:
        for name in {"memoir", "client"} & scope.keys():
            scope[name].close()
        with connect(page_dsn) as db:  # logins of the pages, which are the server's
            for name in DATABASES:
                db.execute(f"drop database {name} with (force)")
            db.execute("drop role if exists my_service, alice_agent, alice_mcp, bikes, books")


def test_snippets_are_accounted_for() -> None:
    """Every block of code is a fence of a known kind, and is run here, run by a test that exists, or has a reason not to be."""
    every = [(page, one) for page in PAGES if page != MADE for one in examples(page)]
    for page in {page for page, _ in every}:
        blocks = [token for token in MARKDOWN.parse((ROOT / page).read_text()) if token.type in ("fence", "code_block")]
        assert {block.type for block in blocks} <= {"fence"}, f"{page}: indent no code, fence it"
        assert {block.info for block in blocks} <= FENCES, page
        shown = [block for block in blocks if block.info not in ("", "text")]
        mine = [one for name, one in every if name == page]
        assert len(shown) == len(mine), page
        assert len([block for block in blocks if not block.info]) == len([one for one in mine if one.output]), page
    tested = {f"{page}: {one.reason}" for page, one in every if one.mark == "tested"}
    for name in tested:
        file, _, _ = name.partition(": ")[2].partition(" ")
        assert file.endswith(".py") and list((ROOT / "tests").rglob(file)), name
    assert all(list((ROOT / "tests").rglob(file)) for file in OTHERS.values())
    left = [f"{page}: {one.reason}" for page, one in every if one.mark == "not run"]
    assert len(left) <= NOT_RUN, left


def test_readme_waits_for_scheduled_jobs(embedding_dsn: str, tmp_path: Path) -> None:
    """Its first example prints the same when schedules have started all its jobs a moment before."""
    with connect(embedding_dsn) as db, connect(embedding_dsn) as schedules:
        write_files(tmp_path)
        jobs = ["extract", "profiles", "embed"]
        lease_jobs(db, jobs, schedules.info.backend_pid)
        waited: list[str] = []
        ending = threading.Thread(target=end_when_awaited, args=(schedules, jobs, waited))
        ending.start()
        example, printed = next(
            found for found in outputs("README.md", embedding_dsn, {}, folder=tmp_path) if found[0].kind == "sql"
        )
        ending.join(60)
        assert waited == jobs and settled(printed).endswith(settled(example.output))


def end_when_awaited(schedules: psycopg.Connection, jobs: list[str], waited: list[str]) -> None:
    """Ends the runs one after another, each when somebody waits for it."""
    for job in jobs:
        for _ in range(3000):
            query = "select 1 from pg_stat_activity where wait_event = 'PgSleep' and query like %s"
            waiting = schedules.execute(query, [f"%run_job('{job}')%"])
            if waiting.fetchone():
                waited.append(job)
                break
            schedules.execute("select pg_sleep(0.02)")
        release_job(schedules, job)
