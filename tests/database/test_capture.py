"""Captured upstream calls come back byte for byte, without the credentials they were sent with."""

import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from calls import Db, call, raises, set_clock, table
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from routines import world_of

START = datetime(2026, 3, 4, 5, 6, 7, 891011, tzinfo=UTC)
BODIES = {
    "every byte": bytes(range(256)) * 3,
    "nothing": b"",
    "no UTF-8": b'{"text": "\xff\xfe\xc3("}',
    "keys twice, odd spaces": b'{"b": 1, "a":1.0,\t"a" : 1e0, "b":{"z":0,"z":0}}\r\n',
    "escapes": rb'{"path": "C:\\x41\'\\000", "u": "\u0000\ud800"}',
    "long": random.Random(7).randbytes(300_000),  # out of line, and not compressible
}


def capture(db: Db, user: str, request: bytes = b"{}", session: str = "s", **named: Any) -> uuid.UUID:
    return call(db, "capture_call", user, session, request, **named)


def parts(db: Db, user: str, held: uuid.UUID | None) -> list[tuple[Any, ...]]:
    return table(db, "read_call", user, held, columns="seq, kind, body")


def list_calls(db: Db, user: str, *more: Any) -> list[dict[str, Any]]:
    with db.cursor(row_factory=dict_row) as cursor:
        query = f"select * from memoir.list_calls({', '.join(['%s'] * (1 + len(more)))})"
        return cursor.execute(query, [user, *more]).fetchall()


def test_events_keep_their_order_and_times(db: Db, user: str) -> None:
    """Neither as texts nor by time do these sort as they came. A call is read after its month, too."""
    events = [f"data: {n}\n\n".encode() for n in range(150, 0, -1)]
    times = [START + timedelta(microseconds=(n * 37) % 150) for n in range(150)]
    times[75] = None  # type: ignore[call-overload]
    set_clock(db, "2031-01-31 23:59+00")
    held = capture(db, user, b"mine", started_at=START, events=events, event_times=times)
    set_clock(db, "2031-03-01 00:00+00")
    rows = table(db, "read_call", user, held)
    set_clock(db, None)
    assert rows[0] == (-1, "request", b"mine", START)
    assert rows[1:] == [(n, "event", event, at) for n, (event, at) in enumerate(zip(events, times), 1)]


CREDENTIALS = """Authorization authorization Proxy-Authorization X-Api-Key api-key apikey x-goog-api-key Cookie Set-Cookie
    OCP-APIM-Subscription-Key X-Auth-Token X-Amz-Security-Token Private-Token X-Client-Secret X-Password X-Amz-Signature X-JWT
    X-GitHub-Pat Authentication X-Forwarded-User X-Never-Heard-Of X-Token""".split()
HARMLESS = """Idempotency-Key X-Idempotency-Key Content-Type X-Request-Id anthropic-version Retry-After
    x-ratelimit-remaining-tokens x-ratelimit-limit-requests anthropic-ratelimit-input-tokens-reset User-Agent""".split()


@pytest.mark.parametrize("side", ["request_headers", "response_headers"])
def test_credentials_are_dropped(db: Db, user: str, side: str) -> None:
    planted = {name: [f"sk-planted-{n}"] if name == "X-Token" else "sk-planted" for n, name in enumerate(CREDENTIALS)}
    kept = {name: f"plain {n}" for n, name in enumerate(HARMLESS)}
    capture(db, user, **{side: planted | kept})
    assert list_calls(db, user)[0][side] == kept and "sk-planted" not in str(table(db, "export_user", user))


def test_calls_are_listed_with_what_was_said(db: Db, user: str) -> None:
    said = {"provider": "openai", "model": "gpt-5", "status": 529, "latency_ms": 0, "started_at": START}
    more = {"request_headers": {"Accept": "*/*"}, "response_headers": {"X-Request-Id": "r"}, "metadata": {"n": 1}}
    first = capture(db, user, b"abc", response=b"defgh", events=[b"1", b"2"], **said, **more)
    later = [capture(db, user, b"x", session=f"t{n % 2}") for n in range(5)]
    (row,) = list_calls(db, user, "s")
    assert row.pop("recorded_at") is not None
    counted = {"call_id": first, "session": "s", "request_bytes": 3, "response_bytes": 5, "events": 2}
    assert row == said | more | counted
    assert len(list_calls(db, user, "t0")) == 3 and list_calls(db, user + "-other") == []
    # Page by page, the newest first, each once.
    page, found = list_calls(db, user, None, 4), []
    while page:
        found += page
        page = list_calls(db, user, None, 4, found[-1]["call_id"])
    assert sorted(row["call_id"] for row in found) == sorted([first, *later]) and found[-1]["call_id"] == first
    assert [row["recorded_at"] for row in found] == sorted((row["recorded_at"] for row in found), reverse=True)


def test_bodies_come_back_byte_for_byte(db: Db, user: str) -> None:
    """Also from an export, for another user."""
    copy, calls = user + "-copy", []
    call(db, "open_session", user, "open")
    for number, body in enumerate(BODIES.values()):
        session = "open" if number % 2 else "never opened"
        events = [body, b"", body + b"\n"]
        held = capture(db, user, body, session=session, response=body[::-1], events=events, status=201)
        told = [("request", body), ("response", body[::-1]), *(("event", event) for event in events)]
        calls += [(held, told), (capture(db, user, body, session=session), [("request", body)])]
    call(db, "import_user", copy, [Jsonb(line) for (line,) in table(db, "export_user", user)])
    for session in (None, "open", "never opened"):
        assert list_calls(db, copy, session) == list_calls(db, user, session) != []
    for held, told in calls:
        assert parts(db, user, held) == parts(db, copy, held) == [(n, *part) for n, part in enumerate(told, -1)]


def test_a_listed_call_is_one_that_may_be_read(memoir_dsn: str, db: Db, user: str) -> None:
    open_call = capture(db, user, b"plain")
    hidden = capture(db, user, b"the key is sk-proj-" + b"a1B2c3D4" * 6, session="t")
    assert [row["call_id"] for row in list_calls(db, user)] == [open_call]
    with raises("PM004"):
        parts(db, user, hidden)
    with world_of(memoir_dsn, service={"role": "app", "clearance": "secret"}) as world:
        assert {row["call_id"] for row in list_calls(world.connection("service"), user)} == {open_call, hidden}


def test_unknown_and_foreign_calls_look_the_same(db: Db, user: str) -> None:
    held, unknown = capture(db, user, b"private"), uuid.uuid4()
    capture(db, user + "-other", b"other")  # a user who exists
    for stranger, wanted in ((user, unknown), (user + "-other", held), (user + "-unheard-of", held), (user, None)):
        with raises("PM004", f"unknown call.*{wanted or ''}"):
            parts(db, stranger, wanted)
    assert parts(db, user, held) == [(-1, "request", b"private")]
