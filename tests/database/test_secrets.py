"""What is secret: found on its way in, withheld from every caller without the clearance, and from every model whoever asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import psycopg
import pytest
from calls import persist
from psycopg.types.json import Jsonb
from secret_texts import texts
from servers import ROOT, connect, roles, user_of

VECTOR = [0.1] * 384
CARD = "4111 1111 1111 1111"

# Kind, a text that holds one, and a text that nearly does.
KINDS = [
    ("private key", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk", "-----BEGIN PUBLIC KEY-----"),
    ("access key", "aws says AKIAIOSFODNN7EXAMPLE", "aws says AKIAIOSFODNN7"),
    ("access key", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "ghp_16C7e42F292c"),
    ("access key", "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc", "sk_live_4eC39"),
    ("model key", "key sk-proj-abcDEF1234567890abcDEF12", "sk-learning-something-new-today"),
    ("web token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N", "eyJhbGciOiJIUzI1NiJ9"),
    ("authorization", "Authorization: Bearer abcdef1234567890abcdef12", "the bearer of the-very-best-of-all-good-news"),
    ("connection string", "postgres://bob:hunter22@db.example.com/x", "postgres://bob:${PASSWORD}@db.example.com/x"),
    ("password", "password=hunter2x", "password: reset it"),
    ("password", "My password is Tr0ub4dor&3", "the password is wrong"),
    ("token", 'API_KEY: "a8f5f167f44f4964e6c9"', 'api_key = os.environ["KEY1"]'),
    ("password", "Das Passwort ist geheim42x", "Das Passwort ist falsch"),
    ("token", "token=9f86d081884c7d659a2feaa0c55ad015", "token: of our appreciation"),
    ("PIN", "my pin is 4711", "The gate code is 4711."),
    ("card number", CARD, "4111 1111 1111 1112"),
    ("card number", "378282246310005", "378282246310006"),
    ("card number", "４１１１ １１１１ １１１１ １１１１", "order 1234567890123456"),
    ("IBAN", "DE89 3704 0044 0532 0130 00 is mine", "DE89 3704 0044 0532 0130 01"),
    ("IBAN", "gb29nwbk60161331926819", "GB28NWBK60161331926819"),
    ("US social security number", "123-45-6789", "555-123-4567"),
    ("UK national insurance number", "AB 12 34 56 C", "GB 12 34 56 C"),
    ("ES id", "12345678Z", "12345678A"),
    ("IT id", "RSSMRA85T10A562S", "RSSMRA85T10A562T"),
    ("FR id", "2 95 10 99 126 111 93", "2 95 10 99 126 111 94"),
    ("FR id", "2 85 05 2A 068 123 26", "2 85 05 2A 068 123 27"),
    ("BR id", "111.444.777-35", "111.444.777-36"),
    ("IN id", "2341 2341 2346", "2341 2341 2347"),
    ("CN id", "11010519491231002X", "110105194912310021"),
    ("CH id", "756.9217.0769.85", "756.9217.0769.84"),
    ("SE id", "811218-9876", "811218-9875"),
    ("KR id", "900101-1234567", "901301-1234567"),
    ("NL id", "BSN 111222333", "BSN 111222334"),
    ("DE id", "Steuer-ID 86095742719", "Steuer-ID 86095742718"),
    ("PL id", "PESEL 44051401359", "PESEL 44051401358"),
    ("CA id", "SIN 046 454 286", "SIN 046 454 287"),
]


def kinds(db: psycopg.Connection, text: str) -> list[str]:
    return db.execute("select _memoir.secret_kinds(%s)", [text]).fetchone()[0]


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


@pytest.mark.parametrize("kind, text, near", KINDS, ids=[f"{k} {n}" for n, (k, _, _) in enumerate(KINDS)])
def test_each_kind_is_found_and_what_nearly_looks_like_it_is_not(
    db: psycopg.Connection, kind: str, text: str, near: str
) -> None:
    for around in (text, f"Well, {text}, you know.", f"({text})", f"x\n{text}\ny"):
        assert kinds(db, around) == [kind], around
        redacted = db.execute("select _memoir.redacted(%s)", [around]).fetchone()[0]
        assert kinds(db, redacted) == [] and redacted != around
    assert kinds(db, near) == []
    assert db.execute("select _memoir.redacted(%s)", [near]).fetchone()[0] == near


@pytest.mark.acceptance
@pytest.mark.parametrize("texts_of", [f"held_out_{n}" for n in range(1, 7)])
def test_what_people_and_machines_write(db: psycopg.Connection, texts_of: str) -> None:
    """Recall of at least nine in ten and at most three false alarms in a hundred, which `docs/guides/security.md` promises."""
    folder = ROOT / "tests/data/secrets"
    secret, plain = (texts((folder / f"{texts_of}_{kind}.txt").read_text()) for kind in ("secret", "plain"))
    missed = [t for t in secret if kinds(db, t) == []]
    false = [t for t in plain if kinds(db, t) != []]
    assert len(secret) > 40 and len(missed) <= 0.1 * len(secret), missed
    assert len(plain) > 40 and len(false) <= 0.03 * len(plain), false
    for text in secret[::3]:
        redacted = db.execute("select _memoir.redacted(%s)", [text]).fetchone()[0]
        assert text in missed or kinds(db, redacted) == [] and "(withheld)" in redacted, text
    print(f"{texts_of}: {len(secret) - len(missed)} of {len(secret)} found, {len(false)} of {len(plain)} false alarms")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("my password is hunter2x and the dog is Rex", "my password is (withheld) and the dog is Rex"),
        ("Server=a;Pwd=Sand!4x;Database=b", "Server=a;Pwd=(withheld);Database=b"),
        ('login("x", password="Ab,c;9 d")', 'login("x", password="(withheld)")'),
        ("https://a.test/f?x=1&token=9f86d081884c7d65&y=2", "https://a.test/f?x=1&token=(withheld)&y=2"),
        (
            "-----BEGIN PRIVATE KEY-----\nMIIEv\nQIBADANBg\n-----END PRIVATE KEY-----\nthat is it",
            "(withheld)\nthat is it",
        ),
        ("密码是 abc12345。好的", "密码是 (withheld)。好的"),
        ("The PIN of my card is 7294, keep it", "The PIN of my card is (withheld), keep it"),
    ],
)
def test_all_of_the_value_is_blotted_out_and_nothing_else(db: psycopg.Connection, text: str, left: str) -> None:
    assert db.execute("select _memoir.redacted(%s)", [text]).fetchone()[0] == left


def test_what_is_looked_for_first_lacks_nothing(db: psycopg.Connection) -> None:
    """No mark of a place, name or number but holds a base mark; no name of a password but holds a mark of its language."""
    assert (
        db.execute(
            "select s, m from unnest('{passwords,keys,seeds,places,foreign,numbers,codes}'::text[]) s, "
            "unnest(_memoir.marks_of(s)) a, string_to_table(a, '&') m where not exists "
            "(select from unnest(_memoir.base_marks(s in ('numbers', 'codes'))) b where strpos(m, b) > 0)"
        ).fetchall()
        == []
    )
    # Groups and choices become a mark that no stem holds, so that a stem is found where all names have it.
    names = db.execute(
        "select l, lower(regexp_replace(n, '\\[[^]]*\\]|\\((?:[^()]|\\([^()]*\\))*\\)\\??|.\\?', '#', 'g')), "
        "array(select split_part(m, '/', 2) from unnest(_memoir.foreign_marks()) m where starts_with(m, l || '/')) "
        "from unnest(_memoir.foreign_languages()) l, unnest(_memoir.word_list(l, 'password_names')) n"
    ).fetchall()
    assert len(names) > 70
    lacking = [(language, name) for language, name, marks in names if not any(m in name for m in marks)]
    assert lacking == [], lacking


def test_the_sample_holds_no_secret(db: psycopg.Connection) -> None:
    texts = [
        m["content"]
        for s in json.loads((ROOT / "scripts/sample.json").read_text())
        for m in s["messages"]
        if isinstance(m.get("content"), str)
    ]
    assert len(texts) > 50
    assert [t for t in texts if kinds(db, t) != []] == []


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


def test_the_query_is_redacted_before_it_is_embedded(db: psycopg.Connection) -> None:
    assert db.execute("select _memoir.redacted('Where did I pay with 4111 1111 1111 1111 last?')").fetchone() == (
        "Where did I pay with (withheld) last?",
    )


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


@pytest.mark.parametrize(
    "name",
    [
        "06421896-ae49-4d59-bd8b-71b6471b0f71",
        "ba65a204-3303-4cdd-b7b5-d61457320267",
        "be1194ff-0098-400b-aebe-787dc14b7dda",
        "BE1194FF-0098-400B-AEBE-787DC14B7DDA",
    ],
)
def test_an_id_is_no_account(db: psycopg.Connection, name: str) -> None:
    """Their digits check as those of an IBAN, as one in five thousand ids' do."""
    kinds = "select _memoir.secret_kinds(%s)"
    for text in (f'{{"id": "{name}"}}', f"{name} (turn of first) user: hello", f"see /runs/{name}/log"):
        assert db.execute(kinds, [text]).fetchone() == ([],), text
    assert db.execute(kinds, [f"run {name}: pay to DE89 3704 0044 0532 0130 00"]).fetchone() == (["IBAN"],)


def test_a_link_is_found_by_the_small_pattern_as_by_the_whole(db: psycopg.Connection) -> None:
    """What may stand behind a name, put together at random, in each language."""
    pieces = [*"=:+?-_.,;'\"`*)]}> \t\n(", "’", "：", "→", "->", "=>", " = ", ": ", ":=", " is ", "'s ", ", it is ", " it's", " that was "]
    pieces += ["_value", "-prod", "_base", "2", "v3", " for ", " of my ", " (old)", " to", "x", "abc", "a1", "correct-horse-battery-staple"]
    pieces += ["hunter22", " ist ", " es ", " est ", " é ", " är ", " — ", " - ", "\\", "token", "_hash", "\n\n", " now ", " c’est "]
    random = Random(5)
    rests = ["".join(random.choices(pieces, k=random.randint(1, 7))) for _ in range(4000)]
    differ = db.execute(
        """
        with links as (select l.name, _memoir.link_pattern(
            coalesce(nullif(_memoir.any_word(l.name, 'password_of'), ''), 'for|of|to|on|at|in|from'),
            _memoir.any_word(l.name, 'password_says'), l.name not in ('chinese', 'japanese', 'korean', 'thai')) as link,
            l.name not in ('chinese', 'japanese', 'korean', 'thai') as spaced
          from _memoir.data_languages() l where _memoir.any_word(l.name, 'password_says') <> ''),
        found as (select l.name, r.rest, _memoir.link_behind(r.rest, l.link, l.spaced) as small,
            regexp_match(r.rest, l.link, 'i') as whole from links l, unnest(%s::text[]) r(rest))
        select (select count(*) from found where whole is not null),
          array(select jsonb_build_array(name, rest, small, whole) from found where small is distinct from whole limit 5)
        """,
        (rests,),
    ).fetchone()
    assert differ[0] > 20000
    assert differ[1] == []
