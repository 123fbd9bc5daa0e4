"""Captured upstream calls come back byte for byte, without the credentials they were sent with."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from servers import connect, roles

START = datetime(2026, 3, 4, 5, 6, 7, 891011, tzinfo=UTC)
BODIES = {
    "every byte": bytes(range(256)) * 3,
    "nothing": b"",
    "a NUL": b"\0",
    "no UTF-8": b'{"text": "\xff\xfe\xc3("}',
    "keys twice, odd spaces": b'{"b": 1, "a":1.0,\t"a" : 1e0, "b":{"z":0,"z":0}}\r\n',
    "escapes": rb'{"path": "C:\\x41\'\\000", "u": "\u0000\ud800"}',
    "long": random.Random(7).randbytes(300_000),  # out of line, and not compressible
}


def capture(
    db: psycopg.Connection, user: str, request: bytes | None = b"{}", session: str = "s", **options: Any
) -> uuid.UUID:
    extra = "".join(f", p_{key} => %(p_{key})s" for key in options)
    return db.execute(
        f"select memoir.capture_call(%(user)s, %(session)s, %(request)s{extra})",
        {"user": user, "session": session, "request": request, **{f"p_{k}": v for k, v in options.items()}},
    ).fetchone()[0]


def read(db: psycopg.Connection, user: str, call: uuid.UUID) -> list[tuple]:
    return db.execute("select seq, kind, body, received_at from memoir.read_call(%s, %s)", [user, call]).fetchall()


def stored(db: psycopg.Connection, user: str) -> tuple[int, int]:
    """Calls and events of a user."""
    return db.execute(
        """
        select (select count(*) from _memoir.api_calls c where c.user_id = u.user_id), (select count(*) from _memoir.stream_events e where e.user_id = u.user_id)
        from _memoir.users u where u.external_id = %s""",
        [user],
    ).fetchone()


@pytest.mark.parametrize("name", BODIES)
def test_byte_for_byte(db: psycopg.Connection, user: str, name: str) -> None:
    body = BODIES[name]
    call = capture(db, user, body, response=body[::-1], events=[body, b"", body + b"\n"])
    assert [row[:3] for row in read(db, user, call)] == [
        (-1, "request", body),
        (0, "response", body[::-1]),
        (1, "event", body),
        (2, "event", b""),
        (3, "event", body + b"\n"),
    ]


def test_without_response_there_is_none(db: psycopg.Connection, user: str) -> None:
    call = capture(db, user, b"hello")
    assert [row[:3] for row in read(db, user, call)] == [(-1, "request", b"hello")]


def test_events_keep_their_order_and_times(db: psycopg.Connection, user: str) -> None:
    # Neither as texts nor by time do these sort as they came.
    events = [f"data: {n}\n\n".encode() for n in range(150, 0, -1)]
    times = [START + timedelta(microseconds=(n * 37) % 150) for n in range(150)]
    times[75] = None
    other = capture(db, user, b"other", events=[b"not mine"])
    call = capture(db, user, b"mine", response=b"".join(events), started_at=START, events=events, event_times=times)
    rows = read(db, user, call)
    assert rows[0] == (-1, "request", b"mine", START)
    assert rows[2:] == [(n, "event", event, at) for n, (event, at) in enumerate(zip(events, times, strict=True), 1)]
    assert [row[2] for row in read(db, user, other)] == [b"other", b"not mine"]


def test_a_call_is_read_after_its_month(db: psycopg.Connection, user: str) -> None:
    try:
        db.execute("select memoir.set_clock('2031-01-31 23:59+00')")
        call = capture(db, user, b"old", events=[b"e"])
        db.execute("select memoir.set_clock('2031-03-01 00:00+00')")
        assert [row[2] for row in read(db, user, call)] == [b"old", b"e"]
    finally:
        db.execute("select memoir.set_clock(null)")


def test_what_else_is_known_is_kept(db: psycopg.Connection, user: str) -> None:
    call = capture(
        db,
        user,
        provider="anthropic",
        model="claude-x",
        status=529,
        latency_ms=0,
        started_at=START,
        metadata=Jsonb({"try": 2}),
    )
    assert db.execute(
        "select provider, model, status, latency_ms, started_at, metadata from _memoir.api_calls where call_id = %s",
        [call],
    ).fetchone() == ("anthropic", "claude-x", 529, 0, START, {"try": 2})


# Credentials ----------------------------------------------------------------------------------------------------------

CREDENTIALS = [
    "Authorization",
    "authorization",
    "Proxy-Authorization",
    "X-Api-Key",
    "api-key",
    "apikey",
    "x-goog-api-key",
    "OCP-APIM-Subscription-Key",
    "Cookie",
    "Set-Cookie",
    "X-Auth-Token",
    "X-Amz-Security-Token",
    "Private-Token",
    "X-Client-Secret",
    "X-Password",
    "X-Amz-Signature",
    "X-JWT",
    "X-GitHub-Pat",
    "Authentication",
    "X-Forwarded-User",
    "X-Never-Heard-Of",
]
HARMLESS = [
    "Idempotency-Key",
    "X-Idempotency-Key",
    "Content-Type",
    "X-Request-Id",
    "anthropic-version",
    "Retry-After",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-limit-requests",
    "anthropic-ratelimit-input-tokens-reset",
    "User-Agent",
]


@pytest.mark.parametrize("side", ["request_headers", "response_headers"])
def test_credentials_are_dropped(db: psycopg.Connection, user: str, side: str) -> None:
    headers = {name: f"sk-planted-{n}" for n, name in enumerate(CREDENTIALS)}
    kept = {name: f"plain {n}" for n, name in enumerate(HARMLESS)}
    call = capture(db, user, **{side: Jsonb(headers | kept | {"X-Token": ["sk-planted-a", "sk-planted-b"]})})
    found, row = db.execute(f"select {side}, c::text from _memoir.api_calls c where call_id = %s", [call]).fetchone()
    assert found == kept
    assert "sk-planted" not in row


def listed(db: psycopg.Connection, user: str, *more: Any) -> list[dict[str, Any]]:
    marks = ", %s" * len(more)
    cursor = db.execute(f"select * from memoir.list_calls(%s{marks})", [user, *more])
    return [dict(zip([c.name for c in cursor.description], row, strict=True)) for row in cursor.fetchall()]


def test_calls_are_listed_with_what_was_said_of_them(db: psycopg.Connection, user: str) -> None:
    said = {"provider": "openai", "model": "gpt-5", "status": 200, "latency_ms": 42, "started_at": START}
    headers = {"request_headers": Jsonb({"Accept": "*/*"}), "response_headers": Jsonb({"X-Request-Id": "r"})}
    first = capture(
        db, user, b"abc", response=b"defgh", events=[b"1", b"2"], metadata=Jsonb({"n": 1}), **said, **headers
    )
    later = [capture(db, user, b"x", session=f"t{n % 2}") for n in range(5)]
    (row,) = listed(db, user, "s")
    assert row.pop("recorded_at") is not None
    assert row == said | {
        "call_id": first,
        "session": "s",
        "request_headers": {"Accept": "*/*"},
        "response_headers": {"X-Request-Id": "r"},
        "metadata": {"n": 1},
        "request_bytes": 3,
        "response_bytes": 5,
        "events": 2,
    }
    assert len(listed(db, user, "t0")) == 3 and listed(db, user + "-other") == []
    # Page by page, the newest first, each once.
    page, found = listed(db, user, None, 4), []
    while page:
        found += [row["call_id"] for row in page]
        page = listed(db, user, None, 4, found[-1])
    assert sorted(found) == sorted([first, *later]) and found[-1] == first
    assert [row["recorded_at"] for row in listed(db, user)] == sorted(
        (row["recorded_at"] for row in listed(db, user)), reverse=True
    )


def test_what_is_captured_comes_back_from_an_export(db: psycopg.Connection, user: str) -> None:
    db.execute("select memoir.open_session(%s, 'open')", [user])
    calls = {}
    for number, body in enumerate(BODIES.values()):
        session = "open" if number % 2 else "never opened"
        calls[capture(db, user, body, session=session, response=body[::-1], events=[body, b""], status=201)] = body
    lines = [Jsonb(line) for (line,) in db.execute("select memoir.export_user(%s)", [user])]
    db.execute("select memoir.import_user(%s, %s)", [user + "-copy", lines])
    assert listed(db, user + "-copy") == listed(db, user)
    for session in ("open", "never opened"):
        assert listed(db, user + "-copy", session) == listed(db, user, session) != []
    for call in calls:
        assert read(db, user + "-copy", call) == read(db, user, call)


def test_a_listed_call_is_one_that_may_be_read(memoir_dsn: str, db: psycopg.Connection, user: str) -> None:
    open_call = capture(db, user, b"plain")
    hidden = capture(db, user, b"the key is sk-proj-" + b"a1B2c3D4" * 6, session="t")
    assert [row["call_id"] for row in listed(db, user)] == [open_call]
    assert state(db, lambda d: read(d, user, hidden))[0] == "PM004"
    with roles(memoir_dsn, service="login in role memoir_app") as names:
        db.execute("select memoir.bind_login(%s, p_clearance => 'secret')", [names["service"]])
        with connect(memoir_dsn, user=names["service"]) as app:
            assert {row["call_id"] for row in listed(app, user)} == {open_call, hidden}


# Refusals -------------------------------------------------------------------------------------------------------------


def state(db: psycopg.Connection, work: Any) -> tuple[str, str]:
    with pytest.raises(psycopg.Error) as caught:
        work(db)
    return caught.value.sqlstate, caught.value.diag.message_primary


def test_unknown_and_foreign_calls_look_the_same(db: psycopg.Connection, user: str) -> None:
    call, nobody = capture(db, user, b"private"), uuid.uuid4()
    capture(db, user + "-other", b"other")  # a user who exists
    assert state(db, lambda d: read(d, user, nobody)) == ("PM004", f"unknown call {shown(db, nobody)}")
    for stranger in (user + "-other", user + "-unheard-of"):
        assert state(db, lambda d, who=stranger: read(d, who, call)) == ("PM004", f"unknown call {shown(db, call)}")
    assert state(db, lambda d: read(d, user, None))[0] == "PM004"
    assert [row[2] for row in read(db, user, call)] == [b"private"]


def shown(db: psycopg.Connection, call: uuid.UUID) -> str:
    return db.execute("select _memoir.shown(%s)", [str(call)]).fetchone()[0]


@pytest.mark.parametrize(
    ("options", "code", "names"),
    [
        ({"request": None}, "PM014", "request"),
        ({"session": ""}, "PM014", "session"),
        ({"latency_ms": -1}, "PM014", "latency_ms"),
        ({"status": 1000}, "PM014", "status"),
        ({"status": -1}, "PM014", "status"),
        ({"provider": "x" * 201}, "PM014", "provider"),
        ({"model": "x" * 201}, "PM014", "model"),
        ({"request_headers": Jsonb(["a"])}, "PM014", "request_headers"),
        ({"response_headers": Jsonb("a")}, "PM014", "response_headers"),
        ({"metadata": Jsonb(1)}, "PM014", "metadata"),
        ({"events": [b"a", None]}, "PM014", "events"),
        ({"events": [b"a", b"b"], "event_times": [START]}, "PM014", "2 events have 1 times"),
        ({"event_times": [START]}, "PM014", "0 events have 1 times"),
    ],
)
def test_refusals_name_the_field_and_keep_nothing(
    db: psycopg.Connection, user: str, options: dict, code: str, names: str
) -> None:
    capture(db, user, events=[b"e"])
    sqlstate, message = state(db, lambda d: capture(d, user, **options))
    assert (sqlstate, names in message) == (code, True), message
    assert stored(db, user) == (1, 1)


def test_what_is_too_large_is_refused_whole(memoir_dsn: str, user: str) -> None:
    with connect(memoir_dsn) as db:
        limit = 1024
        db.execute("select memoir.set_setting('text_bytes_max', '1024')")
        try:
            fits = capture(db, user, b"r" * limit, response=b"a" * limit, events=[b"e" * limit] * 2)
            for options, names in (
                ({"request": b"r" * (limit + 1)}, "request"),
                ({"response": b"a" * (limit + 1)}, "response"),
                ({"events": [b"e", b"e" * (limit + 1)]}, "events[1]"),
            ):
                sqlstate, message = state(db, lambda d, o=options: capture(d, user, **o))
                assert (sqlstate, message.startswith(f"{names} is {limit + 1} bytes")) == ("PM012", True), message
        finally:
            db.execute("select memoir.reset_setting('text_bytes_max')")
        assert stored(db, user) == (1, 2) and len(read(db, user, fits)) == 4
