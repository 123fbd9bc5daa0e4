"""Requests that the gateway answers itself: citations, health, metrics, and the inspector's doors."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
import psycopg
import pytest
from agents import Agent
from calls import call, persist, remembered
from served import KEYS, USERS, looking, read_fields, served

NO_ID = "00000000-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def gateway(memoir_dsn: str) -> Iterator[str]:
    with served(memoir_dsn, users=USERS, inspect_token="operator-token") as (address, _):
        yield address


def state_of(db: psycopg.Connection, memory: str) -> str:
    return str(call(db, "memory_get", "ann", [memory])["state"])


def test_citation_is_its_owners(db: psycopg.Connection, gateway: str) -> None:
    memory = remembered(db, "ann", "The boat is called Silver Ann")
    turn = persist(db, "ann", "s", "The ferry leaves at 8:15.", "Noted.")["message_ids"][0]

    def ask(key: str, wanted: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{gateway}/observation/{wanted}", headers={"x-api-key": key, **headers})

    assert ask(KEYS["ann"], memory).json() == call(db, "memory_get", "ann", [memory])
    assert ask(KEYS["ann"], turn).json()["kind"] == "turn"
    refusals = [(KEYS["bob"], memory, 404), ("sk-nobody", memory, 401), ("", memory, 401), (KEYS["ann"], "seven", 400)]
    assert all(ask(key, wanted).status_code == status for key, wanted, status in refusals)
    person = ask(KEYS["ann"], memory, accept="text/html,*/*")
    assert person.status_code == 303 and person.headers["location"] == f"/inspect/memory?id={memory}"


def test_health_and_counts(gateway: str, memoir_dsn: str) -> None:
    assert httpx.get(f"{gateway}/healthz").json() == {"status": "ok", "database": "answers"}
    with served(memoir_dsn.replace("memoir_test", "no_such"), inspect_token="t") as (address, other):
        answer = httpx.get(f"{address}/healthz", timeout=20)
        assert answer.status_code == 200 and answer.json()["status"] == "degraded"
        other.counts.add("requests", 3, api='od"d\\', mode="observe")
        for seconds in (0.001, 0.015, 7):
            other.counts.add_time("added_seconds", seconds)
        text = httpx.get(f"{address}/metrics", timeout=20)
        with httpx.Client(base_url=address, timeout=30) as operator:
            operator.post("/inspect/login", data={"token": "t"})
            page = operator.get("/inspect")
            assert page.status_code == 503 and "does not answer" in page.text
    assert text.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    lines = text.text.splitlines()
    assert lines[-1] == "# EOF"
    for line in (
        "pg_memoir_database_up 0",
        'pg_memoir_gateway_requests_total{api="od\\"d\\\\",mode="observe"} 3',
        'pg_memoir_gateway_added_seconds_bucket{le="0.02"} 2',
        "pg_memoir_gateway_added_seconds_count 3",
        "pg_memoir_gateway_added_seconds_sum 7.016",
        "pg_memoir_gateway_pool_connections_max 8",
    ):
        assert line in lines
    sample = re.compile(r'[a-z_]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? [0-9.e+-]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)


@pytest.mark.parametrize("path", ["/healthz", "/metrics", f"/observation/{NO_ID}"])
def test_own_paths_do_not_go_upstream(gateway: str, path: str) -> None:
    for method in ("POST", "PUT", "DELETE"):
        answer = httpx.request(method, gateway + path, headers={"x-api-key": KEYS["ann"]})
        assert answer.status_code == 405 and answer.headers["allow"] == "GET, HEAD", method


def test_pages_need_a_login(gateway: str) -> None:
    with httpx.Client(base_url=gateway + "/inspect", timeout=30) as client:
        for path in (gateway + "/inspect", "/user?user=ann", "/health", "/change/forget?user=ann"):
            answer = client.get(path)
            assert answer.status_code == 303 and answer.headers["location"].startswith("/inspect/login?to=%2Finspect")
        assert client.get("?token=wrong").status_code == 403
        assert all(client.post("/login", data={"token": token}).status_code == 403 for token in ("wrong", ""))
        for path in ("/user", "/login"):
            assert client.get(path, headers={"host": "evil.example"}).status_code == 403, "a name that points here"
        good = client.post("/login", data={"token": KEYS["ann"], "to": "https://evil.example"})
        assert good.headers["location"] == "/inspect"
        assert all(word in good.headers["set-cookie"] for word in ("HttpOnly", "SameSite=strict"))
        value = client.cookies["pg_memoir_inspect"]
        client.cookies.set("pg_memoir_inspect", value[:-1] + ("0" if value[-1] != "0" else "1"), path="/inspect")
        assert client.get("/user").status_code == 303, "a cookie that was changed"
        assert client.get("?token=operator-token").headers["location"] == "/inspect"


def test_user_sees_only_their_pages(db: psycopg.Connection, gateway: str) -> None:
    persist(db, "ann", "trip to Graz", "My sister Runa lives in Lisbon.", "Noted.")
    hers = remembered(db, "bob", "The safe is behind the clock")
    with looking(gateway, "ann") as ann:
        assert "trip to Graz" in ann.get(gateway + "/inspect").text
        assert "Runa" in ann.get("/session", params={"session": "trip to Graz"}).text
        assert ann.get("/memory", params={"id": hers}).status_code == 404
        for path in ("/user", "/memories", "/sessions", "/ask", "/memory", "/events"):
            answer = ann.get(path, params={"user": "bob", "id": hers, "q": "safe"})
            assert answer.status_code == 403 and "clock" not in answer.text, path
        assert ann.get("/health").status_code == 403
    with looking(gateway, "operator-token") as operator:
        users = operator.get(gateway + "/inspect").text
        assert ">ann<" in users and ">bob<" in users
        assert "clock" in operator.get("/memory", params={"user": "bob", "id": hers}).text
        assert operator.get("/health").status_code == 200


def test_session_shows_its_faults(db: psycopg.Connection, gateway: str) -> None:
    piers = "\n".join(f"pier {n}, berth {n * 7}, depth {n % 9} m" for n in range(200))
    Agent(db, "ann", "quay", "Where do they moor?").calls("Read", {"file_path": "piers.csv"}, piers)
    with looking(gateway, "ann") as ann, looking(gateway, "bob") as bob:
        page = ann.get("/session", params={"session": "quay"}).text
        assert "1 objects: 1 full" in page and "Nothing was needed that was not shown." in page
        call(db, "memory_query", "ann", "quay", "What is the depth at pier 77?")
        page = ann.get("/session", params={"session": "quay"}).text
        assert re.search(r"asked about, and answered</th><td class=\"n\">1<", page)
        assert "/inspect/events?user=ann&amp;session=quay&amp;kind=move" in page
        for where in ({}, {"session": "quay"}):
            page = ann.get("/events", params=where).text
            assert "1 asked about, and answered" in page and "piers.csv, 200 lines" in page
            assert "Asked: What is the depth at pier 77?" in page and "pier 77, berth 539" in page
        assert "1 admitted" in ann.get("/events", params={"session": "quay", "kind": "admission"}).text
        refused = [
            ann.get("/events", params=where).status_code for where in ({"session": "no such"}, {"kind": "no such"})
        ]
        assert refused == [404, 400] and ">None.<" in bob.get("/events", params={"kind": "move"}).text


def test_changes_ask_first(db: psycopg.Connection, gateway: str) -> None:
    memory = remembered(db, "ann", "The dentist is Dr. Okafor", actor="person")
    persist(db, "ann", "open one", "Hello there", "Hi.")
    with looking(gateway, "ann") as ann, looking(gateway, "bob") as bob:

        def post(what: str, wanted: str, form: dict[str, str], by: httpx.Client = ann, **headers: str) -> Any:
            return by.post(f"/change/{what}", data=form, params={"id": wanted}, headers=headers)

        form = read_fields(ann.get("/change/forget", params={"id": memory}).text)
        for refused in ({}, {"form": "0" * 64}, read_fields(bob.get("/change/add").text)):
            assert post("forget", memory, refused).status_code == 403
        assert post("forget", memory, form, **{"sec-fetch-site": "cross-site"}).status_code == 403
        others = read_fields(bob.get("/change/add").text)
        assert post("forget", memory, others, by=bob).status_code == 404 and state_of(db, memory) == "active"

        done = post("correct", memory, form | {"content": "The dentist is Dr. Lind"})
        assert done.status_code == 200 and "Dr. Lind" in done.text and "Corrected." in done.text
        assert state_of(db, memory) == "superseded"
        newer = re.search(r"id=([0-9a-f-]{36})", str(done.url))[1]  # type: ignore[index]
        assert "Pinned." in post("pin", newer, form | {"session": "open one"}).text
        assert "Lind" in str(call(db, "context", "ann", "open one", "What is 3 + 4?"))
        assert post("correct", newer, form | {"content": " "}).status_code == 400
        forgotten = post("forget", newer, form)
        assert "Forgotten." in forgotten.text and "Lind" not in forgotten.text and state_of(db, newer) == "forgotten"
        assert ann.get("/change/eat", params={"id": newer}).status_code == 404
        out = ann.post("/logout", data=form)
        assert "Token or key" in out.text and ann.get("/user").url.path == "/inspect/login"


class Tags(HTMLParser):
    """The names of the attributes of each tag of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names += [name for name, _ in attributes]


def test_texts_are_text_on_every_page(db: psycopg.Connection, gateway: str) -> None:
    """Neither a name nor a text becomes markup, and no page has a script or loads anything from elsewhere."""
    nasty = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
    persist(db, "ann", nasty, nasty, nasty)
    memory = remembered(db, "ann", f"The password of the gate is {nasty}", session=nasty)
    compiled = call(db, "context", "ann", nasty, "What is the password of the gate?")["compile_id"]
    pages: dict[str, dict[str, str]] = {
        "user": {}, "sessions": {}, "session": {"session": nasty}, "memories": {"q": nasty}, "memory": {"id": memory},
        "ask": {"q": nasty, "session": nasty}, "compile": {"id": compiled, "session": nasty}, "change/pin": {"id": memory},
    }  # fmt: skip
    with looking(gateway, "ann") as ann:
        assert ann.put("/user").status_code == ann.get("/nowhere").status_code == 404, "it does not go upstream"
        for path, params in pages.items():
            answer = ann.get(f"/{path}", params=params)
            assert answer.status_code == 200, path
            assert "<script" not in answer.text and "<img" not in answer.text, path
            assert not re.search(r"""(?:src|href|action)=["']?(?:https?:)?//""", answer.text), path
            names = Tags(answer.text).names
            assert names and not [name for name in names if name.startswith("on") or name == "style"], path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "script" not in policy and "unsafe" not in policy
            assert (answer.headers["cache-control"], answer.headers["x-frame-options"]) == ("no-store", "DENY")


def test_errors_are_pages(db: psycopg.Connection, gateway: str) -> None:
    persist(db, "ann", "s", "Hello there", "Hi.")
    with looking(gateway, "ann") as ann:
        for path, status, says in [
            ("memory", 400, "lacks id"),
            ("memory?id=seven", 400, "no id"),
            (f"memory?id={NO_ID}", 404, "Nothing has this id"),
            (f"compile?id={NO_ID}", 404, "no compile"),
            ("session?session=never", 404, "unknown session"),
            ("session?session=s&until=x", 400, "number of a turn"),
            ("memories?state=dreamt", 400, "dreamt"),
        ]:
            answer = ann.get(f"/{path}")
            assert answer.status_code == status and says in answer.text and "<h1>" in answer.text, path
