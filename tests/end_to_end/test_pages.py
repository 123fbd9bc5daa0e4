"""The pages' examples run as they stand and print what the pages say, on the embedder of the checkout's private server.

PG_MEMOIR_UPDATE=1 writes what they print into the pages: read the difference."""

import os
import threading

import psycopg
import pytest
from internals import lease_jobs, release_job
from pages import outputs, settled, write_output
from servers import connect

PAGES = ["README.md", "docs/start/tutorial.md", "docs/guides/recipes.md", "docs/guides/events.md", "docs/explain/compile.md"]


@pytest.mark.parametrize("page", PAGES)
def test_page(embedding_dsn, page, monkeypatch, tmp_path):
    with connect(embedding_dsn) as db:  # each page begins with nothing
        for user in ("alice", "bea", "carl"):
            db.execute("select memoir.erase_user(%s)", [user])
    monkeypatch.setenv("PG_MEMOIR_DSN", embedding_dsn)
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "__page__"}
    shown = 0
    try:
        for example, printed in outputs(page, os.environ["PG_MEMOIR_DSN"], scope):
            if example.output is not None:
                shown += 1
                if os.environ.get("PG_MEMOIR_UPDATE") and not settled(printed).endswith(settled(example.output)):
                    write_output(page, example, printed)
                    continue
                told = f"{page}:\n{example.code}\nprinted\n{printed}"
                assert settled(printed).endswith(settled(example.output)), told
    finally:
        if "memoir" in scope:
            scope["memoir"].close()
        with connect(embedding_dsn) as db:  # README makes two logins, which are the server's
            db.execute("drop role if exists my_service, alice_agent")
    assert shown > 0


def test_readme_waits_for_scheduled_jobs(embedding_dsn, monkeypatch):
    """Its first example prints the same when schedules have started all its jobs a moment before."""
    with connect(embedding_dsn) as db, connect(embedding_dsn) as schedules:
        db.execute("select memoir.erase_user('alice')")
        jobs = ["extract", "profiles", "embed"]
        lease_jobs(db, jobs, schedules.info.backend_pid)
        waited: list[str] = []
        ending = threading.Thread(target=end_when_awaited, args=(schedules, jobs, waited))
        ending.start()
        example, printed = next(outputs("README.md", embedding_dsn, {}))
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
