"""What the gateway answers itself over HTTP: citations, health, metrics, and the inspector's doors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

import httpx
import psycopg
import pytest
from agents import Agent
from calls import call, persist, remembered
from pg_memoir_gateway.config import User
from served import served

KEYS = {"ann": "sk-ann-0123456789", "bob": "sk-bob-0123456789"}
USERS = tuple(User(name, hashlib.sha256(key.encode()).hexdigest()) for name, key in KEYS.items())


@pytest.fixture(scope="module")
def gateway(memoir_dsn: str) -> Iterator[str]:
    with served(memoir_dsn, users=USERS, inspect_token="operator-token") as (address, _):
        yield address


@contextmanager
def looking(gateway: str, token: str) -> Iterator[httpx.Client]:
    """A browser that is logged in."""
    with httpx.Client(base_url=gateway, follow_redirects=True, timeout=30) as client:
        assert client.post("/inspect/login", data={"token": token}).status_code == 200
        assert "pg_memoir_inspect" in client.cookies
        yield client


def test_a_citation_is_its_owners(db: psycopg.Connection, gateway: str) -> None:
    memory = remembered(db, "ann", "The boat is called Silver Ann")
    turn = persist(db, "ann", "s", "The ferry leaves at 8:15.", "Noted.")["message_ids"][0]

    def ask(key: str, wanted: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{gateway}/observation/{wanted}", headers={"x-api-key": key, **headers})

    assert ask(KEYS["ann"], memory).json()["content"] == "The boat is called Silver Ann"
    assert ask(KEYS["ann"], memory).json() == call(db, "memory_get", "ann", [memory])
    assert ask(KEYS["ann"], turn).json()["kind"] == "turn"
    assert ask(KEYS["bob"], memory).status_code == 404
    assert ask("sk-nobody", memory).status_code == 401 and ask("", memory).status_code == 401
    assert ask(KEYS["ann"], "seven").status_code == 400
    person = ask(KEYS["ann"], memory, accept="text/html,*/*")
    assert person.status_code == 303 and person.headers["location"] == f"/inspect/memory?id={memory}"


def test_health_and_counts(gateway: str, memoir_dsn: str) -> None:
    assert httpx.get(f"{gateway}/healthz").json() == {"status": "ok", "database": "answers"}
    with served(memoir_dsn.replace("memoir_test", "no_such")) as (address, other):
        answer = httpx.get(f"{address}/healthz", timeout=20)
        assert answer.status_code == 200 and answer.json()["status"] == "degraded"
        other.counts.add("requests", 3, api='od"d\\', mode="observe")
        for seconds in (0.001, 0.015, 7):
            other.counts.add_time("added_seconds", seconds)
        text = httpx.get(f"{address}/metrics", timeout=20)
    assert text.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    lines = text.text.splitlines()
    assert lines[-1] == "# EOF" and "pg_memoir_database_up 0" in lines
    assert 'pg_memoir_gateway_requests_total{api="od\\"d\\\\",mode="observe"} 3' in lines
    assert 'pg_memoir_gateway_added_seconds_bucket{le="0.02"} 2' in lines
    assert "pg_memoir_gateway_added_seconds_count 3" in lines and "pg_memoir_gateway_added_seconds_sum 7.016" in lines
    assert "pg_memoir_gateway_pool_connections_max 8" in lines
    sample = re.compile(r'[a-z_]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? [0-9.e+-]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)


def test_what_is_the_gateways_own_does_not_go_upstream(gateway: str) -> None:
    for path in ("/healthz", "/metrics", "/observation/00000000-0000-0000-0000-000000000001"):
        for method in ("POST", "PUT", "DELETE"):
            answer = httpx.request(method, gateway + path, headers={"x-api-key": KEYS["ann"]})
            assert answer.status_code == 405 and answer.headers["allow"] == "GET, HEAD", (method, path)


def test_nobody_looks_who_is_not_logged_in(gateway: str) -> None:
    with httpx.Client(base_url=gateway, timeout=30) as client:
        for path in ("/inspect", "/inspect/user?user=ann", "/inspect/health", "/inspect/change/forget?user=ann"):
            answer = client.get(path)
            assert answer.status_code == 303 and answer.headers["location"].startswith("/inspect/login?to=%2Finspect")
        assert client.get("/inspect?token=wrong").status_code == 403
        assert client.post("/inspect/login", data={"token": "wrong"}).status_code == 403
        assert client.post("/inspect/login", data={"token": ""}).status_code == 403
        assert client.get("/inspect", headers={"host": "evil.example"}).status_code == 403, "a name that points here"
        good = client.post("/inspect/login", data={"token": KEYS["ann"], "to": "https://evil.example"})
        assert good.headers["location"] == "/inspect"
        cookie = good.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        value = client.cookies["pg_memoir_inspect"]
        client.cookies.set("pg_memoir_inspect", value[:-1] + ("0" if value[-1] != "0" else "1"), path="/inspect")
        assert client.get("/inspect/user").status_code == 303, "a cookie that was changed"
        assert client.get("/inspect?token=operator-token").headers["location"] == "/inspect"


def test_a_user_sees_himself_alone(db: psycopg.Connection, gateway: str) -> None:
    persist(db, "ann", "trip to Graz", "My sister Runa lives in Lisbon.", "Noted.")
    hers = remembered(db, "bob", "The safe is behind the clock")
    with looking(gateway, KEYS["ann"]) as ann:
        assert "trip to Graz" in ann.get("/inspect").text
        assert "Runa" in ann.get("/inspect/session", params={"session": "trip to Graz"}).text
        assert ann.get("/inspect/memory", params={"id": hers}).status_code == 404
        for path in ("/inspect/user", "/inspect/memories", "/inspect/sessions", "/inspect/ask", "/inspect/memory"):
            answer = ann.get(path, params={"user": "bob", "id": hers, "q": "safe"})
            assert answer.status_code == 403 and "clock" not in answer.text, path
        assert ann.get("/inspect/health").status_code == 403
    with looking(gateway, "operator-token") as operator:
        users = operator.get("/inspect").text
        assert ">ann<" in users and ">bob<" in users
        assert "clock" in operator.get("/inspect/memory", params={"user": "bob", "id": hers}).text
        assert operator.get("/inspect/health").status_code == 200


def test_a_session_shows_its_faults(db: psycopg.Connection, gateway: str) -> None:
    table = "\n".join(f"pier {n}, berth {n * 7}, depth {n % 9} m" for n in range(200))
    Agent(db, "ann", "quay", "Where do they moor?").calls("Read", {"file_path": "piers.csv"}, table)
    with looking(gateway, KEYS["ann"]) as ann:
        page = ann.get("/inspect/session", params={"session": "quay"}).text
        assert "1 objects: 1 full" in page and "Nothing was needed that was not shown." in page
        call(db, "memory_query", "ann", "quay", "What is the depth at pier 77?")
        page = ann.get("/inspect/session", params={"session": "quay"}).text
        assert re.search(r"asked about, and answered</th><td class=\"n\">1<", page)
        assert "/inspect/faults?user=ann&amp;session=quay" in page
        for where in ({}, {"session": "quay"}):
            page = ann.get("/inspect/faults", params=where).text
            assert "1 asked about, and answered" in page and "piers.csv, 200 lines" in page
        assert ann.get("/inspect/faults", params={"session": "no such"}).status_code == 404
    with looking(gateway, KEYS["bob"]) as bob:
        assert "None: nothing was needed" in bob.get("/inspect/faults").text
        assert bob.get("/inspect/faults", params={"user": "ann"}).status_code == 403


def fields(page: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.split("<main", 1)[1]))


def test_what_changes_something_asks_first(db: psycopg.Connection, gateway: str) -> None:
    memory = remembered(db, "ann", "The dentist is Dr. Okafor", actor="person")
    persist(db, "ann", "open one", "Hello there", "Hi.")
    with looking(gateway, KEYS["ann"]) as ann, looking(gateway, KEYS["bob"]) as bob:
        where: dict[str, Any] = {"params": {"id": memory}}
        asked = ann.get("/inspect/change/forget", **where)
        assert asked.status_code == 200 and call(db, "memory_get", "ann", [memory])["state"] == "active"
        form = fields(asked.text)
        for refused in ({}, {"form": "0" * 64}, fields(bob.get("/inspect/memories").text)):
            assert ann.post("/inspect/change/forget", data=refused, **where).status_code == 403
        elsewhere = {"sec-fetch-site": "cross-site"}
        assert ann.post("/inspect/change/forget", data=form, headers=elsewhere, **where).status_code == 403
        assert bob.post("/inspect/change/forget", data=form, **where).status_code == 404
        assert call(db, "memory_get", "ann", [memory])["state"] == "active"

        done = ann.post("/inspect/change/correct", data={**form, "content": "The dentist is Dr. Lind"}, **where)
        assert done.status_code == 200 and "Dr. Lind" in done.text and "corrected" in done.text
        assert call(db, "memory_get", "ann", [memory])["state"] == "superseded"
        newer = re.search(r"id=([0-9a-f-]{36})", str(done.url))[1]
        pinned = ann.post("/inspect/change/pin", data={**form, "session": "open one"}, params={"id": newer})
        assert "pinned" in pinned.text and "Lind" in str(call(db, "context", "ann", "open one", "What is 3 + 4?"))
        assert (
            ann.post("/inspect/change/correct", data={**form, "content": " "}, params={"id": newer}).status_code == 400
        )
        forgotten = ann.post("/inspect/change/forget", data=form, params={"id": newer})
        assert "forgotten" in forgotten.text and "Lind" not in forgotten.text
        assert call(db, "memory_get", "ann", [newer])["state"] == "forgotten"
        assert ann.get("/inspect/change/erase", params={"id": newer}).status_code == 404
        out = ann.post("/inspect/logout", data=form)
        assert "Token or key" in out.text and ann.get("/inspect/user").url.path == "/inspect/login"


class Tags(HTMLParser):
    """The names of the attributes of each tag of a page."""

    found: list[list[str]]

    @classmethod
    def of(cls, page: str) -> list[list[str]]:
        parser = cls()
        parser.found = []
        parser.feed(page)
        return parser.found

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append([name for name, _ in attributes])


def test_what_was_said_is_text_on_every_page(db: psycopg.Connection, gateway: str) -> None:
    """Neither a name nor a text becomes markup, and no page has a script or asks anybody else for anything."""
    nasty = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
    persist(db, "ann", nasty, nasty, nasty)
    memory = remembered(db, "ann", f"The password of the gate is {nasty}", session=nasty)
    compiled = call(db, "context", "ann", nasty, "What is the password of the gate?")["compile_id"]
    with looking(gateway, KEYS["ann"]) as ann:
        assert ann.put("/inspect/user").status_code == 404, "nothing below /inspect goes upstream"
        pages = {
            "user": {}, "sessions": {}, "session": {"session": nasty}, "memories": {"q": nasty}, "memory": {"id": memory},
            "ask": {"q": nasty, "session": nasty}, "compile": {"id": compiled, "session": nasty}, "change/pin": {"id": memory},
            "nowhere": {},
        }  # fmt: skip
        for path, params in pages.items():
            answer = ann.get(f"/inspect/{path}", params=params)
            assert answer.status_code == (200 if path != "nowhere" else 404), path
            if path == "nowhere":
                continue
            assert "<script" not in answer.text and "<img" not in answer.text, path
            assert not re.search(r"""(?:src|href|action)=["']?(?:https?:)?//""", answer.text), path
            names = [name for tag in Tags.of(answer.text) for name in tag]
            assert names and not [name for name in names if name.startswith("on") or name == "style"], path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "script" not in policy and "unsafe" not in policy
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/inspect/memory", 400, "lacks id"),
        ("/inspect/memory?id=seven", 400, "no id"),
        ("/inspect/memory?id=00000000-0000-0000-0000-000000000001", 404, "Nothing has this id"),
        ("/inspect/compile?id=00000000-0000-0000-0000-000000000001", 404, "no compile"),
        ("/inspect/session?session=never", 404, "unknown session"),
        ("/inspect/session?session=s&until=x", 400, "number of a turn"),
        ("/inspect/memories?state=dreamt", 400, "dreamt"),
    ],
)
def test_an_error_is_a_page(db: psycopg.Connection, gateway: str, path: str, status: int, says: str) -> None:
    persist(db, "ann", "s", "Hello there", "Hi.")
    with looking(gateway, KEYS["ann"]) as ann:
        answer = ann.get(path)
        assert answer.status_code == status and says in answer.text and "<h1>" in answer.text


def test_a_database_that_is_away_is_a_page(memoir_dsn: str) -> None:
    with served(memoir_dsn.replace("memoir_test", "no_such"), inspect_token="t") as (address, _):
        with httpx.Client(base_url=address, timeout=30) as client:
            client.post("/inspect/login", data={"token": "t"})
            answer = client.get("/inspect")
            assert answer.status_code == 503 and "does not answer" in answer.text
