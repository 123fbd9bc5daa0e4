"""The pages' examples run as they stand and print what the pages say, on the embedder of the checkout's private server.

PG_MEMOIR_UPDATE=1 writes what they print into the pages: read the difference."""

import os

import pytest
from pages import outputs, settled, write_output
from servers import connect

PAGES = ["README.md", "docs/tutorial.md", "docs/recipes.md", "docs/compile.md"]


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
                assert settled(printed).endswith(settled(example.output)), (
                    f"{page}:\n{example.code}\nprinted\n{printed}"
                )
    finally:
        if "memoir" in scope:
            scope["memoir"].close()
        with connect(embedding_dsn) as db:  # README makes two logins, which are the server's
            db.execute("drop role if exists my_service, alice_agent")
    assert shown > 0
