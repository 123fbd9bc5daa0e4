"""Secret and private texts are withheld from callers without the clearance, and secrets from every model whoever asks."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import Db, call, embed_waiting, persist, recalled, remember, remembered, table
from internals import own_rows, user_id
from refusals import refusal
from routines import world_of

VECTOR = [0.1] * 384
CARD = "4111 1111 1111 1111"
WITHHELD = "[withheld: this message is marked secret]"
LEVELS = ("normal", "private", "secret")
LOGIN = {"id": "c1", "type": "function", "function": {"name": "login", "arguments": '{"password": "hunter2x9"}'}}
LOGGING_IN = {"role": "assistant", "content": None, "tool_calls": [LOGIN]}
Logins = dict[str, Db]


def compile_list(db: Db, user: str, session: str, query: str | None = "And now?", **named: Any) -> list[dict[str, Any]]:
    return list(call(db, "compile_context", user, session, query, **named))


@pytest.fixture
def logins(memoir_dsn: str) -> Iterator[Logins]:
    """Services with each clearance."""
    with world_of(memoir_dsn, **{level: {"role": "app", "clearance": level} for level in LEVELS}) as world:
        yield {level: world.connection(level) for level in LEVELS}


# Withheld texts -----------------------------------------------------------------------------------------------------


def everything_read(db: Db, user: str, sessions: list[str], calls: list[str], query: str) -> str:
    """What every reading function answers, for every session."""
    out: list[Any] = []
    for session in sessions:
        if session != "fresh":
            out += [table(db, "history", user, session), call(db, "session_info", user, session)]
        for form in ("openai", "anthropic"):
            for function in ("compile_context", "context", "explain_context"):
                out += table(db, function, user, session, query, format=form)
    for kinds in (None, ["turn"], ["memory"], ["summary"]):
        out += table(db, "recall", user, query, kinds=kinds, limit=100, query_embedding=VECTOR)
    out += db.execute("select * from memoir.match_memories(%s, %s::real[], -1, 100)", [user, VECTOR]).fetchall()
    for key in calls:
        try:
            out += table(db, "read_call", user, key)
        except psycopg.Error as error:
            assert error.sqlstate == "PM004"
    return str(out)


@pytest.mark.acceptance
def test_each_clearance_reads_its_own_level(db: Db, user: str, logins: Logins) -> None:
    said, calls = dict(zip(LEVELS, ("The marigold", "The hibiscus", "The oleander"))), []
    for level, words in said.items():
        turn = {"role": "user", "content": f"{words} stands turn-{level} on the sill", "sensitivity": level}
        persist(db, user, "s", turn, "Noted")
        remember(db, user, f"{words} stands memory-{level} in the hall", sensitivity=level)
        persist(db, user, f"apart-{level}", turn | {"content": f"{words} call-{level}"}, "Noted")
        calls.append(call(db, "capture_call", user, f"apart-{level}", f"call-{level}".encode()))
    embedded = str(embed_waiting(db, VECTOR))
    assert "turn-private" in embedded and "-secret" not in embedded and "oleander" not in embedded
    sessions = ["s", "fresh", *(f"apart-{level}" for level in said)]
    asked = "Which stands on the sill: marigold, hibiscus, oleander?"
    for clearance, connection in logins.items():
        seen = everything_read(connection, user, sessions, calls, asked)
        for level in LEVELS:
            for what in ("turn", "memory", "call"):
                is_visible = LEVELS.index(level) <= LEVELS.index(clearance)
                assert (f"{what}-{level}" in seen) == is_visible, (clearance, level, what)
    # Recall goes to a model: no clearance brings a secret into it.
    context = str(compile_list(logins["secret"], user, "fresh", "Where does the oleander stand?"))
    assert "memory-private" in context and "memory-secret" not in context and "turn-secret" not in context


def test_hidden_rows_move_no_score(db: Db, user: str, logins: Logins) -> None:
    def ranking(name: str) -> list[Any]:
        query = "Where is the brass lamp from Lisbon kept, the zanzibarite one?"
        return table(logins[name], "recall", user, query, limit=50, columns="content, score, words_score")

    for n in range(12):
        persist(db, user, f"s{n}", f"The brass lamp number {n} is from {'Lisbon' if n % 3 else 'Porto'}", f"Shelf {n}")
    for name, level in (("private", "secret"), ("normal", "private")):
        before = ranking(name)
        for n in range(5):
            hidden = {"role": "user", "content": "The brass brass lamp from Lisbon, zanzibarite", "sensitivity": level}
            said = {"role": "assistant", "content": "zanzibarite", "sensitivity": level}
            persist(db, user, f"h{name}{n}", hidden, said)
        db.execute("call memoir.run_job('merge')")
        assert len(before) > 5 and ranking(name) == before and ranking("secret") != before


def test_window_shows_secrets_as_placeholders(db: Db, user: str, logins: Logins) -> None:
    token = {"role": "tool", "tool_call_id": "c1", "content": "session token=9f86d081884c7d659a2feaa0c55ad015"}
    persist(db, user, "s", "hello", "hi", "log me in", LOGGING_IN, token, "You are in", f"Pay with {CARD}", "Paid")
    seen = compile_list(logins["private"], user, "s")
    values = ("hunter2x9", "9f86d081", CARD)
    assert [m["role"] for m in seen] == [*("user", "assistant") * 2, "tool", "assistant", "user", "assistant", "user"]
    assert not any(value in str(seen) for value in values)
    assert seen[3]["tool_calls"][0]["function"] == {"name": "login", "arguments": "{}"}
    assert [seen[n]["content"] for n in (2, 4, 6)] == ["log me in", WITHHELD, WITHHELD]
    assert seen == compile_list(logins["private"], user, "s"), "the same bytes each time"
    whole = compile_list(logins["secret"], user, "s")
    assert all(value in str(whole) for value in values) and len(whole) == len(seen)
    assert "hunter2x9" not in str(compile_list(logins["private"], user, "s", budget=120))


def test_open_exchange_with_a_secret_question(db: Db, user: str, logins: Logins) -> None:
    persist(db, user, "s", f"Pay with {CARD}")
    assert compile_list(logins["private"], user, "s", None)[-1]["content"] == WITHHELD
    assert CARD in compile_list(logins["secret"], user, "s", None)[-1]["content"]
    # Asked with the same words, it is not said twice.
    shown = compile_list(logins["private"], user, "s", f"Pay with {CARD}")
    assert [m["content"] for m in shown] == [f"Pay with {CARD}"]


def test_notes_and_neighbours_hold_no_secret(db: Db, user: str) -> None:
    """A working note with a secret is not shown, and the next turn's vector is not made with one."""
    quiet = {"role": "user", "content": "Quietly spoken", "embeddable": False}
    persist(db, user, "s", f"It is {CARD}", "Thank you for the number", quiet, "Heard that")
    texts = embed_waiting(db, VECTOR)
    assert "Thank you for the number" in texts and "Heard that" in texts and "Quietly" not in str(texts)
    call(db, "set_working_memory", user, "s", "a", "The plan is tea")
    call(db, "set_working_memory", user, "s", "b", "password=hunter2x9")
    seen = str(compile_list(db, user, "s", "What is the plan?"))
    assert "plan is tea" in seen and "hunter2x9" not in seen


def test_secret_calls_need_clearance(db: Db, user: str, logins: Logins) -> None:
    for request, response, events, is_secret in (
        (b'{"content": "hello"}', b"{}", [], False),
        (b'{"content": "one\\nAKIAIOSFODNN7EXAMPLE"}', b"{}", [], True),
        (b"{}", b"\xff\x00 4111 1111 1111 1111", [], True),
        (b"{}", None, [b'{"delta": "pass', b'word=hunter2x9"}'], True),
    ):
        made = call(db, "capture_call", user, "calls", request, response, events=events)
        assert table(logins["secret"], "read_call", user, made)
        told = refusal(logins["private"], "read_call", user=user, call=made) if is_secret else None
        assert "unknown call" in str(told) if is_secret else table(logins["private"], "read_call", user, made), request


# Marking what is stored -----------------------------------------------------------------------------------------------


def test_stored_turn_can_be_marked_and_released(db: Db, user: str, logins: Logins) -> None:
    """With what was made of it: memories, summaries, recalls that are kept, vectors, and the vector of the turn behind it."""
    said = "The oleander stands in the cellar"
    persist(db, user, "s", said, "In the cellar, noted", "And the marigold outside", "Noted")
    call(db, "branch_session", user, "s", "b")
    memory = remembered(db, user, "The oleander is kept below", session="s", source_turns=[0])
    captured = call(db, "capture_call", user, "elsewhere", b"x")
    call(db, "summarize_session", user, "s")
    db.execute("call memoir.run_job('profiles')")
    embed_waiting(db, VECTOR)
    persist(db, user, "s", "Where is the oleander?")
    assert "oleander" in str(compile_list(logins["private"], user, "b", "x"))
    compile_list(logins["private"], user, "s", None)
    before = table(logins["secret"], "history", user, "s", 0, 3, columns="history ->> 'content'")

    answer = call(db, "mark_turn", user, "b", 0, reason="private matter")
    assert answer.pop("invalidated_summaries") >= 1
    assert answer == {"turn_index": 0, "sensitivity": "secret", "memories": [memory]}
    assert table(logins["secret"], "history", user, "s", 0, 3, columns="history ->> 'content'") == before
    for session in ("s", "b"):
        assert "cellar" not in compile_list(logins["private"], user, session, "x")[0]["content"]
        assert said in str(compile_list(logins["secret"], user, session, "x"))
    seen = everything_read(logins["private"], user, ["s", "b"], [captured], "oleander marigold")
    assert "stands in the cellar" not in seen and "kept below" not in seen and "marigold outside" in seen
    # Neither its vector nor one made with its words is left, and a worker that holds the old text can't bring one.
    me = user_id(db, user)
    stored = "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'all-MiniLM-L6-v2')"
    db.execute(stored, [[me] * 20, list(range(1, 21)), VECTOR * 20])
    gone = own_rows(db, user, "search_items", "item_no", f"(turn_index = 0 or ref_id = '{memory}')")
    left = own_rows(db, user, "embeddings", "item_no")
    assert gone and not set(gone) & set(left) and said not in str(embed_waiting(db, VECTOR))

    # A person with the clearance takes it back; others can't.
    for name in ("normal", "private"):
        with pytest.raises(psycopg.Error, match="may not lower"):
            call(logins[name], "mark_turn", user, "s", 0, "normal")
    assert call(logins["secret"], "mark_turn", user, "s", 0, "normal")["sensitivity"] == "normal"
    assert said in str(compile_list(logins["normal"], user, "s", "x")) and said in embed_waiting(db, VECTOR)
    assert recalled(logins["normal"], user, "cellar oleander", kinds=["turn"], limit=1) == [said]


def test_found_secret_can_be_released(db: Db, user: str, logins: Logins) -> None:
    persist(db, user, "s", f"The sample card {CARD} is printed in every manual", "Indeed")
    assert recalled(logins["private"], user, "sample card manual") == []
    call(logins["secret"], "mark_turn", user, "s", 0, "normal")
    assert CARD in str(recalled(logins["private"], user, "sample card manual"))
    assert CARD in str(compile_list(logins["normal"], user, "s"))
