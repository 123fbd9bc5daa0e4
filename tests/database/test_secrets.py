"""What is secret: found on its way in, withheld from every caller without the clearance, and from every model whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from calls import persist
from psycopg.types.json import Jsonb
from servers import connect, roles, user_of

VECTOR = [0.1] * 384
CARD = "4111 1111 1111 1111"


def compiled(
    db: psycopg.Connection, user: str, session: str, query: str | None = "And now?", **more: Any
) -> list[dict[str, Any]]:
    named = "".join(f", p_{name} => %({name})s" for name in more)
    return db.execute(
        f"select memoir.compile_context(%(user)s, %(session)s, %(query)s{named})",
        {"user": user, "session": session, "query": query, **more},
    ).fetchone()[0]


@pytest.fixture
def logins(memoir_dsn: str) -> Iterator[dict[str, psycopg.Connection]]:
    """Services with each clearance."""
    with roles(
        memoir_dsn,
        normal="login in role memoir_app",
        private="login in role memoir_app",
        secret="login in role memoir_app",
    ) as names:
        with connect(memoir_dsn) as db:
            for clearance, name in names.items():
                db.execute("select memoir.bind_login(%s, p_clearance => %s)", [name, clearance])
        opened = {clearance: connect(user_of(memoir_dsn, name)) for clearance, name in names.items()}
        yield opened
        for connection in opened.values():
            connection.close()


@contextmanager
def setting(db: psycopg.Connection, key: str, value: Any) -> Iterator[None]:
    db.execute("select memoir.set_setting(%s, %s)", [key, Jsonb(value)])
    yield
    db.execute("select memoir.reset_setting(%s)", [key])


# On the way in --------------------------------------------------------------------------------------------------------


def test_turns_are_marked_on_the_way_in(db: psycopg.Connection, user: str) -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "login", "arguments": '{"password": "hunter2x9"}'}}
        ],
    }
    answer = persist(
        db,
        user,
        "s",
        f"My card is {CARD}",
        "Thanks",
        {"role": "user", "content": "log in", "sensitivity": "private"},
        call,
        {"role": "tool", "tool_call_id": "c1", "content": "ok", "embeddable": False},
        "bye",
    )
    assert [w.split(" is marked")[0] for w in answer["warnings"]] == [
        "messages[0]",
        "messages[3]",
    ] and "card number" in answer["warnings"][0]
    rows = db.execute(
        "select sensitivity::text, embeddable from _memoir.conversation_history where session_id = %s order by turn_index",
        [answer["session_id"]],
    ).fetchall()
    assert rows == [
        ("secret", False),
        ("normal", True),
        ("private", True),
        ("secret", False),
        ("normal", False),
        ("normal", True),
    ]
    assert (
        persist(db, user, "s2", {"role": "user", "content": "hi", "extra": {"password": "hunter2x9"}}, "x")["warnings"]
        != []
    )
    with pytest.raises(psycopg.Error, match=r"messages\[0\].sensitivity must be"):
        persist(db, user, "s", {"role": "user", "content": "x", "sensitivity": "public"})
    with pytest.raises(psycopg.Error, match=r"messages\[0\].embeddable must be"):
        persist(db, user, "s", {"role": "user", "content": "x", "embeddable": "no"})


def test_memories_are_marked_on_the_way_in(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", f"My card is {CARD}", "Thanks", "I live in Ulm", "Noted")
    held = "select memoir.remember(%s, %s, p_session => 's', p_source_turns => %s, p_aliases => %s)"
    for content, turns, aliases, expected in (
        (f"Pays with {CARD}", None, [], ("secret", False)),
        ("Pays with a card", [0], [], ("secret", False)),
        ("Lives in Ulm", [2], [], ("normal", True)),
        ("Account", None, ["DE89 3704 0044 0532 0130 00"], ("secret", False)),
    ):
        memory = db.execute(held, [user, content, turns, aliases]).fetchone()[0]["memory_id"]
        assert (
            db.execute(
                "select sensitivity::text, embeddable from _memoir.memory_store where memory_id = %s", [memory]
            ).fetchone()
            == expected
        )
    memory = db.execute("select memoir.remember(%s, 'Keeps bees', p_embeddable => false)", [user]).fetchone()[0][
        "memory_id"
    ]
    assert db.execute(
        "select sensitivity::text, embeddable from _memoir.memory_store where memory_id = %s", [memory]
    ).fetchone() == ("normal", False)
    assert "bees" not in str(db.execute("select * from memoir.claim_embeddings(1000)").fetchall())


def test_detection_can_be_switched_off_by_services_only(db: psycopg.Connection, user: str, memoir_dsn: str) -> None:
    with setting(db, "detect_secrets", False):
        assert persist(db, user, "off", f"My card is {CARD}", "Thanks")["warnings"] == []
    db.execute("select memoir.set_user_settings(%s, '{\"detect_secrets\": false}')", [user])
    assert persist(db, user, "off", f"My card is {CARD}", "Thanks")["warnings"] == []
    db.execute("select memoir.set_user_settings(%s, '{\"detect_secrets\": null}')", [user])
    with roles(memoir_dsn, tenant="login in role memoir_tenant") as names:
        db.execute("select memoir.bind_login(%s, %s)", [names["tenant"], [user]])
        with connect(user_of(memoir_dsn, names["tenant"])) as tenant:
            with pytest.raises(psycopg.Error, match="may not override setting detect_secrets"):
                tenant.execute(
                    "select memoir.open_session(%s, 't', p_settings => '{\"detect_secrets\": false}')", [user]
                )


# What is withheld -----------------------------------------------------------------------------------------------------


def everything_read(db: psycopg.Connection, user: str, sessions: list[str], calls: list[str], query: str) -> str:
    """What every reading function answers, for every session and as many questions as could help."""
    out: list[Any] = []
    for session in sessions:
        if session != "fresh":
            out += db.execute("select * from memoir.history(%s, %s)", [user, session]).fetchall()
            out += db.execute("select memoir.session_info(%s, %s)", [user, session]).fetchall()
        for form in ("openai", "anthropic"):
            for function in ("compile_context", "context", "explain_context"):
                out += db.execute(
                    f"select * from memoir.{function}(%s, %s, %s, p_format => %s)", [user, session, query, form]
                ).fetchall()
    for kinds_ in (None, ["turn"], ["memory"], ["summary"]):
        out += db.execute(
            "select * from memoir.recall(%s, %s, p_kinds => %s, p_limit => 100, p_query_embedding => %s::real[])",
            [user, query, kinds_, VECTOR],
        ).fetchall()
    out += db.execute("select * from memoir.match_memories(%s, %s::real[], -1, 100)", [user, VECTOR]).fetchall()
    for call in calls:
        try:
            out += db.execute("select * from memoir.read_call(%s, %s)", [user, call]).fetchall()
        except psycopg.Error as error:
            assert error.sqlstate == "PM004"
    return str(out)


@pytest.mark.acceptance
def test_each_clearance_reads_its_own_level_and_no_other(
    db: psycopg.Connection, user: str, logins: dict[str, psycopg.Connection]
) -> None:
    said = {"normal": "The marigold", "private": "The hibiscus", "secret": "The oleander"}
    calls = []
    for level, words in said.items():
        persist(
            db,
            user,
            "s",
            {"role": "user", "content": f"{words} stands turn-{level} on the sill", "sensitivity": level},
            "Noted",
        )
        db.execute(
            "select memoir.remember(%s, %s, p_sensitivity => %s)",
            [user, f"{words} stands memory-{level} in the hall", level],
        )
        persist(
            db,
            user,
            f"apart-{level}",
            {"role": "user", "content": f"{words} call-{level}", "sensitivity": level},
            "Noted",
        )
        calls.append(
            db.execute(
                "select memoir.capture_call(%s, %s, %s)", [user, f"apart-{level}", f"call-{level}".encode()]
            ).fetchone()[0]
        )
    claimed = db.execute("select * from memoir.claim_embeddings(1000)").fetchall()
    assert (
        "turn-private" in str(claimed)
        and "turn-secret" not in str(claimed)
        and "memory-secret" not in str(claimed)
        and "oleander" not in str(claimed)
    )
    db.execute(
        "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'all-MiniLM-L6-v2')",
        [[c[0] for c in claimed], [c[1] for c in claimed], VECTOR * len(claimed)],
    )
    sessions = ["s", "fresh", *(f"apart-{level}" for level in said)]
    for clearance, connection in logins.items():
        seen = everything_read(
            connection, user, sessions, calls, "Which stands on the sill: marigold, hibiscus, oleander?"
        )
        for level in said:
            visible = list(said).index(level) <= list(said).index(clearance)
            for what in ("turn", "memory", "call"):
                assert (f"{what}-{level}" in seen) == visible, (clearance, level, what)
    # Recall goes to a model: no clearance brings a secret into it.
    context = str(compiled(logins["secret"], user, "fresh", "Where does the oleander stand?"))
    assert "memory-private" in context and "memory-secret" not in context and "turn-secret" not in context


def test_what_is_hidden_moves_no_score(
    db: psycopg.Connection, user: str, logins: dict[str, psycopg.Connection]
) -> None:
    ranking = "select content, score, words_score from memoir.recall(%s, 'Where is the brass lamp from Lisbon kept, the zanzibarite one?', p_limit => 50) order by rank"
    for n in range(12):
        persist(db, user, f"s{n}", f"The brass lamp number {n} is from {'Lisbon' if n % 3 else 'Porto'}", f"Shelf {n}")
    for name in ("private", "normal"):
        before = logins[name].execute(ranking, [user]).fetchall()
        assert len(before) > 5
        level = "secret" if name == "private" else "private"
        for n in range(5):
            persist(
                db,
                user,
                f"h{name}{n}",
                {
                    "role": "user",
                    "content": "The brass brass lamp from Lisbon, zanzibarite zanzibarita",
                    "sensitivity": level,
                },
                {"role": "assistant", "content": "zanzibarite", "sensitivity": level},
            )
        db.execute("select _memoir.merge_tail(user_id) from _memoir.users where external_id = %s", [user])
        assert logins[name].execute(ranking, [user]).fetchall() == before
        assert logins["secret"].execute(ranking, [user]).fetchall() != before


def test_window_shows_secrets_as_placeholders(
    db: psycopg.Connection, user: str, logins: dict[str, psycopg.Connection]
) -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "login", "arguments": '{"password": "hunter2x9"}'}}
        ],
    }
    persist(
        db,
        user,
        "s",
        "hello",
        "hi",
        "log me in",
        call,
        {"role": "tool", "tool_call_id": "c1", "content": "session token=9f86d081884c7d659a2feaa0c55ad015"},
        "You are in",
        f"Pay with {CARD}",
        "Paid",
    )
    seen = compiled(logins["private"], user, "s")
    assert [m["role"] for m in seen] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert "hunter2x9" not in str(seen) and "9f86d081" not in str(seen) and "4111" not in str(seen)
    assert (
        seen[3]["tool_calls"][0]["function"] == {"name": "login", "arguments": "{}"} and seen[4]["tool_call_id"] == "c1"
    )
    assert (
        seen[4]["content"] == seen[6]["content"] == "[withheld: this message is marked secret]"
        and seen[2]["content"] == "log me in"
    )
    assert seen == compiled(logins["private"], user, "s"), "the same bytes each time"
    whole = compiled(logins["secret"], user, "s")
    assert "hunter2x9" in str(whole) and "9f86d081" in str(whole) and CARD in str(whole) and len(whole) == len(seen)
    tight = compiled(logins["private"], user, "s", budget=120)
    assert tight[-1]["content"].endswith("And now?") and "hunter2x9" not in str(tight)


def test_an_open_exchange_with_a_secret_question(
    db: psycopg.Connection, user: str, logins: dict[str, psycopg.Connection]
) -> None:
    persist(db, user, "s", {"role": "user", "content": f"Pay with {CARD}"})
    assert compiled(logins["private"], user, "s", None)[-1]["content"] == "[withheld: this message is marked secret]"
    assert CARD in compiled(logins["secret"], user, "s", None)[-1]["content"]
    # Asked with the same words, it is not said twice.
    again = compiled(logins["private"], user, "s", f"Pay with {CARD}")
    assert [m["content"] for m in again] == [f"Pay with {CARD}"]


def test_a_kept_recall_is_for_those_it_was_made_for(
    db: psycopg.Connection, user: str, logins: dict[str, psycopg.Connection]
) -> None:
    db.execute("select memoir.remember(%s, 'The hibiscus is from Elba', p_sensitivity => 'private')", [user])
    persist(db, user, "s", {"role": "user", "content": "Where is the hibiscus from?"})
    assert "Elba" in str(compiled(logins["private"], user, "s", None))
    assert "Elba" not in str(compiled(logins["normal"], user, "s", None))
    assert "Elba" in str(compiled(logins["private"], user, "s", None))


def test_a_working_note_with_a_secret_is_not_shown(db: psycopg.Connection, user: str) -> None:
    persist(db, user, "s", "hello", "hi")
    db.execute("select memoir.set_working_memory(%s, 's', 'a', 'The plan is tea')", [user])
    db.execute("select memoir.set_working_memory(%s, 's', 'b', 'password=hunter2x9')", [user])
    seen = str(compiled(db, user, "s", "What is the plan?"))
    assert "plan is tea" in seen and "hunter2x9" not in seen


def test_the_next_turns_vector_holds_no_secret(db: psycopg.Connection, user: str) -> None:
    persist(
        db,
        user,
        "s",
        f"It is {CARD}",
        "Thank you for the number",
        {"role": "user", "content": "Quietly spoken", "embeddable": False},
        "Heard that",
    )
    claimed = [c[3] for c in db.execute("select * from memoir.claim_embeddings(1000)").fetchall()]
    assert "Thank you for the number" in claimed and "Heard that" in claimed and "Quietly" not in str(claimed)


def test_secret_calls_need_clearance(db: psycopg.Connection, user: str, logins: dict[str, psycopg.Connection]) -> None:
    made = [
        db.execute("select memoir.capture_call(%s, 'calls', %s, %s, p_events => %s)", [user, *parts]).fetchone()[0]
        for parts in (
            (b'{"content": "hello"}', b"{}", []),
            (b'{"content": "one\\nAKIAIOSFODNN7EXAMPLE"}', b"{}", []),
            (b"{}", b"\xff\x00 4111 1111 1111 1111", []),
            (b"{}", None, [b'{"delta": "pass', b'word=hunter2x9"}']),
        )
    ]
    for name, known in (("private", [True, False, False, False]), ("secret", [True] * 4)):
        for call, expected in zip(made, known):
            try:
                assert (
                    logins[name].execute("select * from memoir.read_call(%s, %s)", [user, call]).fetchall() and expected
                )
            except psycopg.Error as error:
                assert error.sqlstate == "PM004" and not expected


# Marking what is stored -----------------------------------------------------------------------------------------------


def store_all(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    claimed = db.execute("select * from memoir.claim_embeddings(1000)").fetchall()
    db.execute(
        "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'all-MiniLM-L6-v2')",
        [[c[0] for c in claimed], [c[1] for c in claimed], VECTOR * len(claimed)],
    )
    return claimed


def test_a_stored_turn_can_be_marked(db: psycopg.Connection, user: str, logins: dict[str, psycopg.Connection]) -> None:
    persist(
        db, user, "s", "The oleander stands in the cellar", "In the cellar, noted", "And the marigold outside", "Noted"
    )
    db.execute("select memoir.branch_session(%s, 's', 'b')", [user])
    memory = db.execute(
        "select memoir.remember(%s, 'The oleander is kept below', p_session => 's', p_source_turns => '{0}')", [user]
    ).fetchone()[0]["memory_id"]
    call = db.execute("select memoir.capture_call(%s, 'elsewhere', 'x')", [user]).fetchone()[0]
    ids = db.execute(
        "select user_id, session_id from _memoir.sessions where external_id = 's' and user_id = (select user_id from _memoir.users where external_id = %s)",
        [user],
    ).fetchone()
    db.execute(
        "insert into _memoir.compactions (user_id, session_id, compaction_id, from_turn, to_turn, summary_text, made_by, recorded_at) "
        "values (%s, %s, gen_random_uuid(), 0, 1, 'oleander', 'test', now())",
        ids,
    )
    db.execute("update _memoir.sessions set summary_text = 'oleander', summary_through = 1 where user_id = %s", ids[:1])
    db.execute("update _memoir.users set profile_version = 1 where user_id = %s", ids[:1])
    db.execute("insert into _memoir.profiles values (%s, 1, 'oleander', '{}', 'test', now())", ids[:1])
    store_all(db)
    persist(db, user, "s", {"role": "user", "content": "Where is the oleander?"})
    assert "oleander" in str(compiled(logins["private"], user, "b", "x"))
    compiled(logins["private"], user, "s", None)
    claimed_before = store_all(db)

    before = db.execute(
        "select h::text from _memoir.conversation_history h where session_id = %s order by turn_index", ids[1:]
    ).fetchall()
    answer = db.execute("select memoir.mark_turn(%s, 'b', 0, p_reason => 'private matter')", [user]).fetchone()[0]
    assert answer == {"turn_index": 0, "sensitivity": "secret", "memories": [memory], "invalidated_summaries": 3}
    assert (
        db.execute(
            "select h::text from _memoir.conversation_history h where session_id = %s order by turn_index", ids[1:]
        ).fetchall()
        == before
    )
    for session in ("s", "b"):
        assert "cellar" not in compiled(logins["private"], user, session, "x")[0][
            "content"
        ] and "stands in the cellar" in str(compiled(logins["secret"], user, session, "x"))
    seen = everything_read(logins["private"], user, ["s", "b"], [call], "oleander marigold")
    assert "stands in the cellar" not in seen and "kept below" not in seen and "marigold outside" in seen
    # Neither its vector nor one made with its words is left, and a worker that holds the old text can't bring one.
    rows = db.execute(
        "select i.turn_index, i.item_no, e.item_no is not null from _memoir.search_items i left join _memoir.embeddings e using (user_id, item_no) "
        "where i.user_id = %s and i.session_id = %s order by 1",
        ids,
    ).fetchall()
    assert [has for turn, _, has in rows if turn in (0, 1)] == [False, False]
    old = [c for c in claimed_before if c[0] == ids[0]]
    db.execute(
        "select memoir.store_embeddings(%s::uuid[], %s::int[], %s::real[], 'all-MiniLM-L6-v2')",
        [[ids[0]] * 20, list(range(1, 21)), VECTOR * 20],
    )
    assert old is not None
    anew = [c[3] for c in db.execute("select * from memoir.claim_embeddings(1000)").fetchall() if c[0] == ids[0]]
    assert anew in (["In the cellar, noted"], []) and "stands in the cellar" not in str(anew)
    assert db.execute(
        "select count(*) from _memoir.embeddings e join _memoir.search_items i using (user_id, item_no) where i.user_id = %s and "
        "(i.turn_index = 0 or i.ref_id = %s)",
        [ids[0], memory],
    ).fetchone() == (0,)
    with pytest.raises(psycopg.Error, match="unknown call"):
        logins["private"].execute("select * from memoir.read_call(%s, %s)", [user, call])

    # A person with the clearance takes it back; others can't.
    for name, connection in logins.items():
        if name != "secret":
            with pytest.raises(psycopg.Error, match="may not lower"):
                connection.execute("select memoir.mark_turn(%s, 's', 0, 'normal')", [user])
    assert (
        logins["secret"].execute("select memoir.mark_turn(%s, 's', 0, 'normal')", [user]).fetchone()[0]["sensitivity"]
        == "normal"
    )
    assert "stands in the cellar" in str(compiled(logins["normal"], user, "s", "x"))
    assert [
        r[0]
        for r in logins["normal"].execute(
            "select content from memoir.recall(%s, 'cellar oleander', p_kinds => '{turn}', p_limit => 1)", [user]
        )
    ] == ["The oleander stands in the cellar"]
    assert "The oleander stands in the cellar" in [
        c[3] for c in db.execute("select * from memoir.claim_embeddings(1000)").fetchall()
    ]


def test_a_found_secret_can_be_released(
    db: psycopg.Connection, user: str, logins: dict[str, psycopg.Connection]
) -> None:
    persist(db, user, "s", f"The sample card {CARD} is printed in every manual", "Indeed")
    assert logins["private"].execute("select * from memoir.recall(%s, 'sample card manual')", [user]).fetchall() == []
    logins["secret"].execute("select memoir.mark_turn(%s, 's', 0, 'normal')", [user])
    assert CARD in str(
        logins["private"].execute("select * from memoir.recall(%s, 'sample card manual')", [user]).fetchall()
    )
    assert CARD in str(compiled(logins["normal"], user, "s"))


# Where PL/Python runs the package, and where it does not --------------------------------------------------------------

PLAIN = [
    ("private key", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk"),
    ("access key", "aws says AKIAIOSFODNN7EXAMPLE"),
    ("access key", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("model key", "key sk-proj-abcDEF1234567890abcDEF12"),
    ("web token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"),
    ("card number", CARD),
    ("card number", "378282246310005"),
    ("card number", "４１１１ １１１１ １１１１ １１１１"),
    ("IBAN", "DE89 3704 0044 0532 0130 00"),
    ("IBAN", "gb29nwbk60161331926819"),
]
HARMLESS = [
    "4111 1111 1111 1112", "GB28NWBK60161331926819", "order 1234567890123456", "aws says AKIAIOSFODNN7",
    "sk-learning-something-new-today", "-----BEGIN PUBLIC KEY-----", "my password is hunter2x", "0000 0000 0000 0000",
]  # fmt: skip


def test_guard_without_python(db: psycopg.Connection) -> None:
    """What SQL finds alone: private keys, issuers' tokens, cards and accounts."""
    found = "select array(select distinct s.kind from _memoir.plain_secrets(_memoir.undisguised(%s)) s)"
    for kind, text in PLAIN:
        for around in (text, f"Well, {text}, you know.", f"x\n{text}\ny"):
            assert db.execute(found, [around]).fetchone() == ([kind],), around
    for text in HARMLESS:
        assert db.execute(found, [text]).fetchone() == ([],), text


def test_package_reads_where_python_runs(db: psycopg.Connection) -> None:
    """A password in a sentence is beyond the guard."""
    if not db.execute("select _memoir.reads_language()").fetchone()[0]:
        pytest.skip("this server has no PL/Python")
    kinds = db.execute("select _memoir.secret_kinds('my password is hunter2x', '{}')").fetchone()
    assert kinds == (["password"],)
    redacted = db.execute("select _memoir.redacted('my password is hunter2x and the dog is Rex', '{}')").fetchone()
    assert redacted == ("my password is (withheld) and the dog is Rex",)


def test_guard_redacts_without_the_package(db: psycopg.Connection) -> None:
    with db.transaction(force_rollback=True):
        db.execute(
            "create or replace function _memoir.reads_language() returns boolean language sql stable as 'select false'"
        )
        redacted = "select _memoir.redacted(%s, '{}')"
        assert db.execute(redacted, [f"I pay with {CARD}."]).fetchone() == ("I pay with (withheld).",)
        assert db.execute(redacted, ["the dog is Rex"]).fetchone() == ("the dog is Rex",)
        assert db.execute(redacted, ["４１１１ １１１１ １１１１ １１１１"]).fetchone() == ("",)


def test_failing_package_stops_no_writer(db: psycopg.Connection, user: str) -> None:
    """The guard in SQL goes on where the package raises."""
    if not db.execute("select _memoir.reads_language()").fetchone()[0]:
        pytest.skip("this server has no PL/Python")
    warned: list[str] = []
    db.add_notice_handler(lambda notice: warned.append(notice.message_primary or ""))
    db.execute(
        "do language plpython3u $$\nfrom pg_memoir_server import reading\n"
        "reading.FUNCTIONS['secret_kinds'] = lambda text: 1 / 0\n$$"
    )
    try:
        answer = persist(db, user, "s", f"My card is {CARD}", "Thanks")
        assert "card number" in answer["warnings"][0]
        assert any("secret_kinds failed: ZeroDivisionError" in message for message in warned)
    finally:
        db.execute(
            "do language plpython3u $$\nfrom pg_memoir_server import reading\nfrom pg_memoir_language import secrets\n"
            "reading.FUNCTIONS['secret_kinds'] = secrets.secret_kinds\n$$"
        )
