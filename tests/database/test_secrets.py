"""What is secret: found on its way in, withheld from every caller without the clearance, and from every model whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import Db, call, memory_row, one, persist, recalled, remember, remembered, table
from servers import connect, roles, user_of

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
    with roles(memoir_dsn, **dict.fromkeys(LEVELS, "login in role memoir_app")) as names:
        with connect(memoir_dsn) as db:
            for clearance, name in names.items():
                call(db, "bind_login", name, clearance=clearance)
        opened = {clearance: connect(user_of(memoir_dsn, name)) for clearance, name in names.items()}
        yield opened
        for connection in opened.values():
            connection.close()


def embed_all(db: Db) -> list[str]:
    """Gives all that waits a vector; the texts."""
    claimed = table(db, "claim_embeddings", 1000, columns="user_id, item_no, text")
    users, items = [row[0] for row in claimed], [row[1] for row in claimed]
    stored = "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'all-MiniLM-L6-v2')"
    db.execute(stored, [users, items, VECTOR * len(claimed)])
    return [row[2] for row in claimed]


# On the way in --------------------------------------------------------------------------------------------------------


def test_turns_are_marked_on_the_way_in(db: Db, user: str) -> None:
    answer = persist(
        db,
        user,
        "s",
        f"My card is {CARD}",
        "Thanks",
        {"role": "user", "content": "log in", "sensitivity": "private"},
        LOGGING_IN,
        {"role": "tool", "tool_call_id": "c1", "content": "ok", "embeddable": False},
        "bye",
    )
    assert [w.split(" is marked")[0] for w in answer["warnings"]] == ["messages[0]", "messages[3]"]
    assert "card number" in answer["warnings"][0]
    rows = db.execute(
        "select sensitivity::text, embeddable from _memoir.conversation_history where session_id = %s order by turn_index",
        [answer["session_id"]],
    ).fetchall()
    secret, normal = ("secret", False), ("normal", True)
    assert rows == [secret, normal, ("private", True), secret, ("normal", False), normal]
    assert persist(db, user, "s2", {"role": "user", "content": "hi", "extra": {"password": "hunter2x9"}})["warnings"]
    for wrong in ({"sensitivity": "public"}, {"embeddable": "no"}):
        with pytest.raises(psycopg.Error, match=rf"messages\[0\].{next(iter(wrong))} must be"):
            persist(db, user, "s", {"role": "user", "content": "x"} | wrong)


@pytest.mark.parametrize(
    ("content", "turns", "named", "expected"),
    [
        (f"Pays with {CARD}", None, {}, ("secret", False)),
        ("Pays with a card", [0], {}, ("secret", False)),
        ("Lives in Ulm", [2], {}, ("normal", True)),
        ("Account", None, {"aliases": ["DE89 3704 0044 0532 0130 00"]}, ("secret", False)),
        ("Keeps bees", None, {"embeddable": False}, ("normal", False)),
    ],
)
def test_memories_are_marked_on_the_way_in(
    db: Db, user: str, content: str, turns: list[int] | None, named: dict[str, Any], expected: tuple[str, bool]
) -> None:
    persist(db, user, "s", f"My card is {CARD}", "Thanks", "I live in Ulm", "Noted")
    memory = remembered(db, user, content, session="s", source_turns=turns, **named)
    assert memory_row(db, memory, "sensitivity::text, embeddable") == expected
    assert (content in embed_all(db)) == expected[1]


def test_detection_is_switched_off_by_services_only(db: Db, user: str, memoir_dsn: str, setting: Any) -> None:
    call(db, "set_user_settings", user, {"detect_secrets": False})
    assert persist(db, user, "off", f"My card is {CARD}", "Thanks")["warnings"] == []
    setting("detect_secrets", False)
    assert persist(db, user + "-2", "off", f"My card is {CARD}", "Thanks")["warnings"] == []
    with roles(memoir_dsn, tenant="login in role memoir_tenant") as names:
        call(db, "bind_login", names["tenant"], [user])
        with connect(user_of(memoir_dsn, names["tenant"])) as tenant:
            with pytest.raises(psycopg.Error, match="may not override setting detect_secrets"):
                call(tenant, "open_session", user, "t", settings={"detect_secrets": False})


# What is withheld -----------------------------------------------------------------------------------------------------


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
    embedded = str(embed_all(db))
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
            persist(
                db, user, f"h{name}{n}", hidden, {"role": "assistant", "content": "zanzibarite", "sensitivity": level}
            )
        db.execute("call memoir.merge_search()")
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
    assert [m["content"] for m in compile_list(logins["private"], user, "s", f"Pay with {CARD}")] == [
        f"Pay with {CARD}"
    ]


def test_kept_recall_is_for_those_it_was_made_for(db: Db, user: str, logins: Logins) -> None:
    remember(db, user, "The hibiscus is from Elba", sensitivity="private")
    persist(db, user, "s", "Where is the hibiscus from?")
    for name, is_visible in (("private", True), ("normal", False), ("private", True)):
        assert ("Elba" in str(compile_list(logins[name], user, "s", None))) == is_visible


def test_notes_and_neighbours_hold_no_secret(db: Db, user: str) -> None:
    """A working note with a secret is not shown, and the next turn's vector is not made with one."""
    quiet = {"role": "user", "content": "Quietly spoken", "embeddable": False}
    persist(db, user, "s", f"It is {CARD}", "Thank you for the number", quiet, "Heard that")
    texts = embed_all(db)
    assert "Thank you for the number" in texts and "Heard that" in texts and "Quietly" not in str(texts)
    call(db, "set_working_memory", user, "s", "a", "The plan is tea")
    call(db, "set_working_memory", user, "s", "b", "password=hunter2x9")
    seen = str(compile_list(db, user, "s", "What is the plan?"))
    assert "plan is tea" in seen and "hunter2x9" not in seen


@pytest.mark.parametrize(
    ("request_", "response", "events", "is_secret"),
    [
        (b'{"content": "hello"}', b"{}", [], False),
        (b'{"content": "one\\nAKIAIOSFODNN7EXAMPLE"}', b"{}", [], True),
        (b"{}", b"\xff\x00 4111 1111 1111 1111", [], True),
        (b"{}", None, [b'{"delta": "pass', b'word=hunter2x9"}'], True),
    ],
)
def test_secret_calls_need_clearance(
    db: Db, user: str, logins: Logins, request_: bytes, response: bytes | None, events: list[bytes], is_secret: bool
) -> None:
    made = call(db, "capture_call", user, "calls", request_, response, events=events)
    assert table(logins["secret"], "read_call", user, made)
    if not is_secret:
        assert table(logins["private"], "read_call", user, made)
        return
    with pytest.raises(psycopg.Error, match="unknown call"):
        table(logins["private"], "read_call", user, made)


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
    embed_all(db)
    persist(db, user, "s", "Where is the oleander?")
    assert "oleander" in str(compile_list(logins["private"], user, "b", "x"))
    compile_list(logins["private"], user, "s", None)
    before = table(logins["secret"], "history", user, "s", 0, 3, columns="history ->> 'content'")

    answer = call(db, "mark_turn", user, "b", 0, reason="private matter")
    assert answer["invalidated_summaries"] >= 1 and answer | {"invalidated_summaries": 1} == {
        "turn_index": 0,
        "sensitivity": "secret",
        "memories": [memory],
        "invalidated_summaries": 1,
    }
    assert table(logins["secret"], "history", user, "s", 0, 3, columns="history ->> 'content'") == before
    for session in ("s", "b"):
        assert "cellar" not in compile_list(logins["private"], user, session, "x")[0]["content"]
        assert said in str(compile_list(logins["secret"], user, session, "x"))
    seen = everything_read(logins["private"], user, ["s", "b"], [captured], "oleander marigold")
    assert "stands in the cellar" not in seen and "kept below" not in seen and "marigold outside" in seen
    # Neither its vector nor one made with its words is left, and a worker that holds the old text can't bring one.
    me = one(db, "select user_id from _memoir.users where external_id = %s", user)
    stored = "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'all-MiniLM-L6-v2')"
    db.execute(stored, [[me] * 20, list(range(1, 21)), VECTOR * 20])
    vectors = "select count(*) from _memoir.embeddings e join _memoir.search_items i using (user_id, item_no) where i.user_id = %s and (i.turn_index = 0 or i.ref_id = %s)"
    assert one(db, vectors, me, memory) == 0 and said not in str(embed_all(db))

    # A person with the clearance takes it back; others can't.
    for name in ("normal", "private"):
        with pytest.raises(psycopg.Error, match="may not lower"):
            call(logins[name], "mark_turn", user, "s", 0, "normal")
    assert call(logins["secret"], "mark_turn", user, "s", 0, "normal")["sensitivity"] == "normal"
    assert said in str(compile_list(logins["normal"], user, "s", "x")) and said in embed_all(db)
    assert recalled(logins["normal"], user, "cellar oleander", kinds=["turn"], limit=1) == [said]


def test_found_secret_can_be_released(db: Db, user: str, logins: Logins) -> None:
    persist(db, user, "s", f"The sample card {CARD} is printed in every manual", "Indeed")
    assert recalled(logins["private"], user, "sample card manual") == []
    call(logins["secret"], "mark_turn", user, "s", 0, "normal")
    assert CARD in str(recalled(logins["private"], user, "sample card manual"))
    assert CARD in str(compile_list(logins["normal"], user, "s"))


# Where PL/Python runs the package, and where it does not --------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("private key", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk"),
        ("access key", "aws says AKIAIOSFODNN7EXAMPLE"),
        ("access key", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
        ("model key", "key sk-proj-abcDEF1234567890abcDEF12"),
        ("web token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"),
        ("card number", "４１１１ １１１１ １１１１ １１１１"),
        ("IBAN", "gb29nwbk60161331926819"),
        (None, "4111 1111 1111 1112"),
        (None, "GB28NWBK60161331926819"),
        (None, "sk-learning-something-new-today"),
        (None, "my password is hunter2x"),
    ],
)
def test_guard_without_python(db: Db, kind: str | None, text: str) -> None:
    """What SQL finds alone: private keys, issuers' tokens, cards and accounts."""
    found = "select array(select distinct s.kind from _memoir.plain_secrets(normalize(%s, nfkc)) s)"
    for around in (text, f"Well, {text}, you know.", f"x\n{text}\ny"):
        assert one(db, found, around) == ([kind] if kind else []), around


def test_guard_redacts_without_the_package(db: Db) -> None:
    redacted = "select _memoir.redacted(%s, '{}')"
    no_python = (
        "create or replace function _memoir.reads_language() returns boolean language sql stable as 'select false'"
    )
    with db.transaction(force_rollback=True):
        db.execute(no_python)
        assert one(db, redacted, f"I pay with {CARD}, my dog is Rex.") == "I pay with (withheld), my dog is Rex."
        assert one(db, redacted, "４１１１ １１１１ １１１１ １１１１") == ""


def test_failing_package_stops_no_writer(db: Db, user: str) -> None:
    """The guard in SQL goes on where the package raises; a password in a sentence is beyond it."""
    if not one(db, "select _memoir.reads_language()"):
        pytest.skip("this server has no PL/Python")
    assert "password" in persist(db, user, "s", "my password is hunter2x", "Thanks")["warnings"][0]
    warned: list[str] = []
    db.add_notice_handler(lambda notice: warned.append(notice.message_primary or ""))
    replaced = "do language plpython3u $$\nfrom pg_memoir_server import reading\nfrom pg_memoir_language import secrets\nreading.FUNCTIONS['secret_kinds'] = {}\n$$"
    db.execute(replaced.format("lambda text: 1 / 0"))
    try:
        assert "card number" in persist(db, user, "s", f"My card is {CARD}", "Thanks")["warnings"][0]
        assert any("secret_kinds failed: ZeroDivisionError" in message for message in warned)
    finally:
        db.execute(replaced.format("secrets.secret_kinds"))
