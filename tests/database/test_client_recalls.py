"""Recalls that the client makes, as for a server without PL/Python: the same lists, of the caller's own items alone."""

import asyncio
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from calls import Db, call, one, persist, remember, remembered, table
from internals import item_places, user_id
from pg_memoir import AsyncMemoir, Memoir, in_space
from pg_memoir.errors import KernelMissingError
from servers import complete, connect, database, roles, user_of

QUERY = "Which kiln do I have, and what did the glaze do?"
WHERE = {"query_embedding": [random.Random(3).gauss(0, 1) for _ in range(384)]}


@pytest.fixture
def told(db: Db, user: str) -> str:
    """A user with two sessions, memories, a pinned one, a session of a project."""
    persist(
        db,
        user,
        "old",
        "My kiln is a Rohde Ecotop 60.",
        "Noted.",
        "The celadon glaze crazed again. It ran, too.",
        "Ouch.",
    )
    persist(db, user, "new", "Morning!", "Hello.")
    remember(db, user, "The kiln was serviced in May.")
    call(db, "pin", user, "new", remembered(db, user, "Glazes are mixed on Fridays."))
    call(db, "open_session", user, "shop", project="shop")
    persist(db, user, "shop", "The kiln of the shop is on loan.", "I see.")
    return user


@pytest.fixture
def clients(memoir_dsn: str) -> Iterator[tuple[Memoir, Memoir]]:
    """Two clients, the second of which makes its recalls itself."""
    with Memoir(memoir_dsn) as server, Memoir(memoir_dsn) as own:
        own._recalling |= {
            "compile_context",
            "context",
            "explain_context",
            "recall",
            "recall_beside",
            "call_memory_tool",
        }
        yield server, own


def test_client_makes_the_lists_of_the_server(db: Db, told: str, clients: tuple[Memoir, Memoir]) -> None:
    server, own = clients
    space = f"club-{told}"
    call(db, "create_space", told, space)
    remember(db, in_space(told, space), "The kiln of the club is a Nabertherm.")
    for arguments in ({}, WHERE, {"memory_budget": 30}, {"query": "In which order did kiln and glaze come up?"}):
        asked: dict[str, Any] = {"query": QUERY} | arguments
        lists = [memoir.compile_context(told, "new", **asked) for memoir in clients]
        assert lists[0] == lists[1] and "kiln" in str(lists[0])
        explained = [[(row.id, row.reason, row.fidelity) for row in m.explain(told, "new", **asked)] for m in clients]
        assert explained[0] == explained[1]
        made = [{k: v for k, v in m.context(told, "new", **asked).items() if k != "compile_id"} for m in clients]
        assert made[0] == made[1]
    hits = [[(hit.id, hit.space) for hit in memoir.recall(told, QUERY)] for memoir in clients]
    assert hits[0] == hits[1] and space in [name for _, name in hits[0]]
    beside = [memoir.recall_beside(told, "third", QUERY)["text"] for memoir in clients]
    assert beside[0] == beside[1] and "Glazes" in beside[0]
    answers = [memoir.call_memory_tool(told, "new", "memory_search", {"query": "kiln"}) for memoir in clients]
    assert answers[0] == answers[1] and "Rohde" in answers[0]


def test_async_client_makes_them_as_well(memoir_dsn: str, told: str, clients: tuple[Memoir, Memoir]) -> None:
    async def compiled() -> Any:
        async with AsyncMemoir(memoir_dsn) as memoir:
            memoir._recalling.add("compile_context")
            return await memoir.compile_context(told, "new", QUERY)

    assert asyncio.run(compiled()) == clients[0].compile_context(told, "new", QUERY)


def test_a_recall_of_the_client_counts(db: Db, told: str, clients: tuple[Memoir, Memoir]) -> None:
    context = clients[1].context(told, "new", QUERY)
    rows = table(db, "explain_compile", told, context["compile_id"], columns="id::text, position, score, reason")
    assert [row[0] for row in rows if row[1]] == context["items"]
    assert all((row[1] is None) == (row[3] is not None) for row in rows) and max(row[2] for row in rows) > 0.1


def test_a_server_without_plpython_says_who_makes_recalls(server_dsn: str) -> None:
    with database(server_dsn) as dsn:
        complete(dsn)
        with connect(dsn) as db, Memoir(dsn) as memoir:
            memoir.persist_turn("ann", "old", [{"role": "user", "content": "My kiln is a Rohde Ecotop 60."}])
            with pytest.raises(psycopg.Error, match="no PL/Python") as refused:
                db.execute("select memoir.compile_context('ann', 'new', 'Which kiln do I have?')")
            assert refused.value.sqlstate == KernelMissingError.sqlstate and not refused.value.diag.message_detail
            assert "Rohde" in memoir.compile_context("ann", "new", "Which kiln do I have?")[-1]["content"]
            assert memoir.recall("ann", "kiln")[0].kind == "turn"
            # A list that recalls nothing needs no kernel.
            assert one(db, "select memoir.compile_context('ann', 'new', 'Hi', p_memory_budget => 0)")


def test_recalls_of_one_session_at_once(server_dsn: str) -> None:
    """Each is one snapshot, and writes for the session."""
    with database(server_dsn) as dsn:
        complete(dsn)
        with Memoir(dsn, max_size=4) as memoir, ThreadPoolExecutor(4) as pool:
            memoir.persist_turn("ann", "old", [{"role": "user", "content": "My kiln is a Rohde Ecotop 60."}])
            asked = [pool.submit(memoir.recall_beside, "ann", "new", f"Which kiln do I have {n}?") for n in range(16)]
            assert all(one.result()["compile_id"] for one in asked)


# Whose arrays they are ------------------------------------------------------------------------------------------------


def arrays(db: Db, user: str, name: str, *given: Any) -> list[dict[str, Any]]:
    query = "select a from memoir.recall_arrays(%s, %s, %s::jsonb) a"
    return [row for (row,) in db.execute(query, [user, name, json.dumps(given)])]


def everything(db: Db, user: str, items: list[tuple[Any, ...]]) -> str:
    """All that the arrays tell of items, whoever asks."""
    numbers, turns = [item[0] for item in items], [item for item in items if item[1] == "t"]
    memories = [item for item in items if item[1] == "m"]
    scope = (None, None, 0, [], [], None, None, [item[3] for item in items if item[3]])
    told = [
        arrays(db, user, "items", numbers, *scope),
        arrays(db, user, "items_between", min(numbers), max(numbers), *scope),
        arrays(db, user, "turn_texts", *zip(*((i[0], i[3], i[4], i[5], i[6], i[7]) for i in turns))),
        arrays(db, user, "memory_texts", *zip(*((i[0], i[2], i[6], i[7]) for i in memories))),
        arrays(db, user, "memory_facts", [i[2] for i in memories], "2026-11-27", None),
        arrays(db, user, "session_names", [i[3] for i in turns]),
    ]
    return json.dumps(told)


def test_arrays_hold_what_the_caller_may_see(memoir_dsn: str, db: Db, user: str) -> None:
    persist(db, user, "s", {"role": "user", "content": "The oleander is poison.", "sensitivity": "secret"}, "Noted.")
    persist(db, user, "s", "The marigold is not.", "Good.")
    remember(db, user, "The hibiscus is private.", sensitivity="private")
    call(db, "open_session", user, "shop", project="shop")
    persist(db, user, "shop", "The shop sells begonias.", "I see.")
    items = item_places(db, user)
    words = ["oleand", "marigold", "hibiscus", "begonia"]
    seen = everything(db, user, items)
    assert all(word in seen for word in ("marigold", "begonias", "hibiscus")) and "oleander" not in seen
    assert {row["term"] for row in arrays(db, user, "tail_postings", words, items[-1][0] + 1)} == set(words) - {
        "oleand"
    }
    with roles(memoir_dsn, normal="login in role memoir_app", shop="login in role memoir_tenant") as names:
        call(db, "bind_login", names["normal"], clearance="normal")
        call(db, "bind_login", names["shop"], users=[user], projects=["shop"])
        with (
            connect(user_of(memoir_dsn, names["normal"])) as normal,
            connect(user_of(memoir_dsn, names["shop"])) as shop,
        ):
            seen = everything(normal, user, items)
            assert "marigold" in seen and "hibiscus" not in seen and "oleander" not in seen
            terms = {row["term"] for row in arrays(normal, user, "tail_postings", words, items[-1][0] + 1)}
            assert terms == {"marigold", "begonia"}
            seen = everything(shop, user, items)
            assert "begonias" in seen and not any(word in seen for word in ("marigold", "hibiscus", "oleander"))
            assert {row["term"] for row in arrays(shop, user, "tail_postings", words, items[-1][0] + 1)} == {"begonia"}
            with pytest.raises(psycopg.Error, match="PM001|may not"):
                arrays(shop, user + "x", "echoes")


def test_arrays_of_one_user_tell_nothing_of_another(db: Db, user: str) -> None:
    persist(db, user, "s", "The oleander is poison.", "Noted.")
    persist(db, "somebody else", "s", "The begonia is not.", "Good.")
    seen = everything(
        db, "somebody else", [*item_places(db, user), (1, "m", str(user_id(db, user)), None, None, None, 1, 9)]
    )
    assert "oleander" not in seen


def test_unknown_arrays_are_named(db: Db, user: str) -> None:
    with pytest.raises(psycopg.Error, match='unknown arrays "texts"'):
        arrays(db, user, "texts")
