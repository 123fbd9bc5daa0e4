"""REST over a running gateway: answers, problems, keys, repetition, pages; schemathesis; a TypeScript client."""

import asyncio
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from commands import output_of
from node import MODULES, program
from pages import outputs, settled, write_output
from pg_memoir import Memoir
from pg_memoir_gateway import Config, bounded, create_app
from pg_memoir_gateway.config import Service
from pg_memoir_gateway.rest import exports
from pg_memoir_gateway.rest.operations import OPERATIONS
from pg_memoir_gateway.spans import MOST_BYTES, MOST_VALUES
from served import KEYS, USERS, served
from upstream import upstream

SHOP = "sk-shop-0123456789"
SERVICES = (Service("shop", hashlib.sha256(SHOP.encode()).hexdigest()),)
FIRST = "0001-01-01T00:00:00+14:00"
SAID = [{"role": "user", "content": "I live in Porto."}, {"role": "assistant", "content": "Noted."}]
GUIDE = "docs/guides/rest.md"
CLIENT = httpx.Client(timeout=30)
RULES = Path(__file__).parents[1] / "support" / "schemathesis.toml"


def ask(url: str, key: str, line: str, body: Any = None, **headers: str) -> httpx.Response:
    """Sends `VERB path`, with a body as JSON unless it is bytes."""
    verb, path = line.split(" ", 1)
    given = {"authorization": f"Bearer {key}"} if key else {}
    content = body if body is None or isinstance(body, bytes) else json.dumps(body)
    given |= {"content-type": "application/json"} if body is not None else {}
    sent = given | {name.replace("_", "-"): value for name, value in headers.items()}
    return CLIENT.request(verb, f"{url}/memoir/v1{path}", content=content, headers=sent)


@pytest.fixture(scope="module")
def rest(memoir_dsn: str) -> Iterator[str]:
    with served(memoir_dsn, users=USERS, services=SERVICES, journal="off") as (url, _):
        yield url


def test_rest_answers(rest: str) -> None:
    """Rows are sent in order: key, request, body, status, a part of the answer."""
    trip, kept = "/users/ann/sessions/trips%2Fporto%0A", ""
    for key, line, body, status, part in (
        ("ann", "GET /users/ann", None, 404, 'unknown user \\"ann\\"'),
        ("ann", f"PUT {trip}", {"system_prompt": "Be brief.", "task": "knowledge"}, 200, '"session_id":"'),
        ("ann", f"POST {trip}/turns", {"messages": SAID, "usage": {"model": "gpt-4o"}}, 200, '"to_turn":1'),
        ("ann", f"POST {trip}/steps", {"messages": [SAID[0] | {"name": "Ann", "tags": ["bike"]}]}, 200, '"to_turn":2'),
        ("ann", f"POST {trip}/compile", {}, 200, '"content":"Be brief.'),
        (SHOP, f"POST {trip}/compile", {"query": "Where?", "format": "anthropic"}, 200, '"format":"anthropic"'),
        ("ann", f"POST {trip}/explain", {"query": "Where do I live?"}, 200, '{"items":['),
        ("ann", f"GET {trip}/turns?limit=1&cursor=2", None, 200, '"tags":["bike"]'),
        ("ann", f"POST {trip}/branches", {"new_session": "b", "at_turn": 2.0}, 200, '"session_id":"'),
        ("ann", "GET /users/ann/sessions/b/turns", None, 200, '"turn_index":1}],"next":null}'),
        ("ann", "POST /users/ann/recall", {"query": "Porto", "kinds": ["turn"]}, 200, '"kind":"turn"'),
        ("ann", "POST /users/ann/memories", {"content": "My locker code is 4711", "tags": ["a"]}, 200, '"stored"'),
        ("ann", "GET /users/ann/memories?tags=b", None, 200, '"items":[]'),
        ("ann", "GET /users/ann/memories?tags=b&tags=a", None, 200, "My locker code is 4711"),
        ("ann", "POST /users/ann/forget", {"query": "my locker code", "preview": True}, 200, '"preview"'),
        ("ann", "POST {kept}/corrections", {"content": "My locker code is 4712"}, 200, '"corrected"'),
        ("ann", "POST {kept}/forget", {"reason": "moved"}, 200, '"state":"forgotten"'),
        ("ann", "GET {kept}", None, 200, '"state":"forgotten"'),
        ("ann", "GET {kept}0", None, 400, 'not \\"'),
        ("ann", "GET /users/ann/memories/0d6c3405-5bf9-3b96-afee-b4fb630d3ec2", None, 404, "unknown memory 0d6c3405"),
        ("ann", "GET {kept}/history", None, 200, '"state":"forgotten"'),
        ("ann", "POST /users/ann/memories", {"content": "My desk is grey"}, 200, '"stored"'),
        ("ann", "POST {kept}/corrections", {"content": "x", "valid_to": FIRST}, 422, "the year of valid_to"),
        ("ann", "POST {kept}/retract", {"valid_to": FIRST}, 422, "the year of valid_to"),
        ("ann", "GET /users/ann/memories?limit=9", None, 200, "My desk is grey"),
        ("ann", "POST /users/ann/spaces", {"space": "home"}, 200, '"address":"ann@space:home"'),
        ("ann", "PUT /users/ann/spaces/home/members/bob", {"role": "writer"}, 204, ""),
        ("bob", "POST /users/bob@space:home/memories", {"content": "The router is grey"}, 200, '"stored"'),
        ("ann", "POST /users/ann/recall", {"query": "router"}, 200, '"space":"home"'),
        ("ann", "GET /users/bob@space:home/memories", None, 403, "the path names 'bob@space:home'"),
        ("bob", "GET /users/bob/spaces", None, 200, '"members":2'),
        ("ann", "GET /users/ann/spaces/home/members", None, 200, '"member":"bob","role":"writer"'),
        ("ann", "DELETE /users/ann/spaces/home/members/bob", None, 204, ""),
        ("bob", "GET /users/bob@space:home/memories", None, 403, "may not read in space"),
        ("ann", f"POST {trip}/close", None, 204, ""),
        ("ann", f"POST {trip}/turns", {"messages": SAID}, 409, "SessionClosedError"),
        ("ann", f"DELETE {trip}/turns/70", None, 422, "turn 70"),
        ("ann", f"DELETE {trip}/turns/0", None, 200, '"erased":"turn"'),
        (SHOP, "GET /jobs", None, 200, '{"job":"extract"'),
        (SHOP, "GET /problems", None, 200, '{"items":['),
        (SHOP, "GET /users/ann/profile", None, 200, '"version":'),
        (SHOP, "GET /users/nobody/export", None, 404, 'unknown user \\"nobody\\"'),
    ):
        answer = ask(rest, KEYS.get(key, key), line.format(kept=kept), body)
        assert answer.status_code == status and part in answer.text, (line, answer.status_code, answer.text)
        if line.endswith(("/memories", "/corrections")) and status == 200:
            kept = f"/users/ann/memories/{answer.json()['memory_id']}"


def test_rest_problems(rest: str) -> None:
    """Each names the value, and where it stands."""
    turns, memories, recall = "/users/ann/sessions/s/turns", "/users/ann/memories", "POST /users/ann/recall"
    narrator = {"messages": [{"role": "narrator", "content": "x"}]}
    for line, body, headers, status, detail, place in (
        (f"POST {turns}", narrator, {}, 400, 'messages.0.role: .*not "narrator"', "#/messages/0/role"),
        (f"POST {turns}", {"messages": []}, {}, 400, r"messages: .*not \[\]", "#/messages"),
        (f"POST {turns}", {}, {}, 400, "messages: Field required", "#/messages"),
        (f"POST {turns}", b'{"messages": [', {}, 400, "Invalid JSON: EOF", "#"),
        (f"POST {turns}", b"[]", {}, 400, r"an object, not \[\]", "#"),
        (recall, {"query": 7}, {}, 400, "query: .*valid string, not 7", "#/query"),
        (recall, {"query": "x", "~fast": 1}, {}, 400, "~fast: Extra inputs.*not 1", "#/~0fast"),
        (recall, {"query": "x", "limit": 2.5}, {}, 400, "limit: .*not 2.5", "#/limit"),
        (recall, {"query": "x", "after": "1 May"}, {}, 400, 'after: .*not "1 May"', "#/after"),
        (f"GET {memories}?after=0.5", None, {}, 400, 'after: .*not "0.5"', "after"),
        (recall, b" " * (MOST_BYTES + 1), {}, 413, f"over {MOST_BYTES} bytes", ""),
        (f"POST {turns}", b'{"messages": [' + b"1," * 2_000_000 + b"1]}", {}, 413, f"over {MOST_VALUES} values", ""),
        (f"POST {turns}", b'{"messages": [' + b"1," * 40_000 + b"1]}", {}, 400, "The body has 40001 mistakes", ""),
        (f"POST {turns}", {"messages": '[{1,"' * MOST_VALUES}, {}, 400, "messages: .*valid array", "#/messages"),
        (f"POST {turns}", b'{"messages": ' + b"[" * 40_000, {}, 400, "recursion limit", "#"),
        (f"GET {memories}?limit={'[' * 50_000}", None, {}, 400, r"limit: .*not \"\[\[", "limit"),
        (f"GET {memories}?limit={'9' * 5_000}", None, {}, 400, 'limit: .*not "999', "limit"),
        (recall, b"query=x", {"content_type": "application/x-www-form-urlencoded"}, 415, "x-www-form-urlenc", ""),
        (f"GET {memories}?limit=0", None, {}, 400, "limit: .*not 0", "limit"),
        (f"GET {memories}?limit=1&limit=2", None, {}, 400, r"limit: .*not \[1, 2\]", "limit"),
        (f"GET {memories}?states=lost", None, {}, 400, 'states.0: .*not "lost"', "states"),
        (f"GET {memories}?colour=red", None, {}, 400, r'colour: Extra.*not \["red"\]', "colour"),
        (f"GET {memories}?cursor=x", None, {}, 400, 'cursor: .*not "x"', "cursor"),
        (f"GET {memories}?user=bob", None, {}, 400, r'user: .*not \["ann", "bob"\]', "user"),
        (f"GET {memories}/7", None, {}, 400, 'memory: .*not "7"', "memory"),
        (f"GET {memories}?q=%ff", None, {}, 400, "query string", ""),
        ("GET /users/%ff", None, {}, 400, "no UTF-8", ""),
        (f"POST {memories}", {"content": "x"}, {"idempotency_key": "a b"}, 400, "Idempotency-Key is 'a b'", ""),
        (recall, {"query": "x"}, {"idempotency_key": "k"}, 400, "takes no Idempotency-Key, it is 'k'", ""),
        (f"POST {memories}", {"content": "x", "valid_to": FIRST}, {}, 422, "the year of valid_to must be", "PM014"),
        (f"DELETE {turns}/7", None, {}, 404, 'unknown session "s"', "PM003"),
        (f"POST {memories}", {"content": "x", "type": "poem"}, {}, 422, 'unknown type "poem"', "PM014"),
        (f"POST {memories}", {"content": ""}, {}, 422, 'content must not be empty, it is ""', "PM014"),
        (f"GET {turns}", None, {}, 404, 'unknown session "s"', "PM003"),
        (f"POST {turns}/", {"messages": SAID}, {}, 404, "no path of the API", ""),
        (f"PATCH {memories}", {}, {}, 405, "PATCH is not allowed here, only GET, HEAD, POST", ""),
    ):
        answer = ask(rest, KEYS["ann"], line, body, **headers)
        told = answer.json()
        assert answer.headers["content-type"] == "application/problem+json", line
        assert answer.status_code == told["status"] == status and re.search(detail, told["detail"]), (line, told)
        places = [entry.get("pointer") or entry.get("parameter") for entry in told.get("errors", [])]
        assert place in (told.get("code", ""), *places), (line, told)
    with served("host=127.0.0.1 port=1 dbname=none connect_timeout=1", users=USERS, journal="off") as (away, _):
        answer = ask(away, KEYS["ann"], "GET /users/ann/memories")
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1" and "host" not in answer.text


def test_rest_keys(rest: str, memoir_dsn: str) -> None:
    """Every operation is closed to strangers and other users; listing a service closes the other doors as well."""
    at = {"user": "bob", "memory": "0d6c3405-5bf9-3b96-afee-b4fb630d3ec2"}
    with Memoir(memoir_dsn) as memoir:
        at["session"] = "bobs"
        memoir.persist_turn("bob", "bobs", SAID)
        before = list(memoir.export_user("bob"))
        for operation in OPERATIONS:
            path = re.sub(r"{(\w+)}", lambda name: at.get(name[1], at["memory"]), operation.path)
            for key, status in (("", 401), ("sk-ann", 401), (KEYS["ann"], 403)):
                line = f"{operation.verb} {path}"
                answer = ask(rest, key, line, {} if operation.body else None)
                assert answer.status_code == status, (line, key, answer.text)
                assert ("www-authenticate" in answer.headers) == (status == 401)
        assert list(memoir.export_user("bob")) == before
    with served(memoir_dsn, services=SERVICES, journal="off") as (url, _):
        tools = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert CLIENT.post(f"{url}/mcp", json=tools).status_code == 401
        assert CLIENT.get(f"{url}/observation/{at['memory']}").status_code == 401
        assert ask(url, "", "GET /users/local/profile").status_code == 401
    with served(memoir_dsn, user="me", journal="off") as (url, _):  # no keys: this machine's one user
        assert ask(url, "", "GET /users/me/profile").status_code == 200
        assert [ask(url, "", f"GET {path}").status_code for path in ("/users/bob/profile", "/users")] == [403, 403]


def test_rest_keys_survive_a_restart(memoir_dsn: str, user: str) -> None:
    """The same key and body return the first result, by another gateway too; nothing is stored twice."""
    base, settings = f"/users/{user}", {"services": SERVICES, "journal": "off"}
    bodies: dict[str, Any] = {
        f"{base}/sessions/s/turns": {"messages": SAID},
        f"{base}/sessions/s/steps": {"messages": SAID[:1]},
        f"{base}/memories": {"content": "I like tea"},
    }
    first: dict[str, Any] = {}
    with served(memoir_dsn, **settings) as (url, _):

        def send(path: str, body: Any) -> Any:
            bodies[path] = body
            first[path] = ask(url, SHOP, f"POST {path}", body, idempotency_key=path).text
            return json.loads(first[path])

        for path, body in list(bodies.items()):
            tea = send(path, body)
        send(f"{base}/memories/{tea['memory_id']}/corrections", {"content": "I like coffee"})
        way = send(f"{base}/experience", {"trigger": "build the shop", "way": "make shop", "success": True})
        send(f"{base}/memories/{way['memory_id']}/outcomes", {"success": False, "note": "no disk"})
    with served(memoir_dsn, **settings) as (url, _):
        for path, body in bodies.items():
            again = ask(url, SHOP, f"POST {path}", body, idempotency_key=f'"{path}"')
            assert (again.status_code, again.text) == (200, first[path])
            for change in ({"actor": "tool"}, {"metadata": {"n": 1}}):
                other = ask(url, SHOP, f"POST {path}", body | change, idempotency_key=path)
                assert other.status_code in (400, 422), other.text
        stats = ask(url, SHOP, f"GET {base}").json()
        assert (stats["turns"], stats["states"]) == (3, {"active": 2, "superseded": 1})
        document = CLIENT.get(f"{url}/openapi.json").json()
        operations = document["paths"].values()
        keyed = [
            one["operationId"]
            for verbs in operations
            for one in verbs.values()
            if "Idempotency" in str(one["parameters"])
        ]
        assert sorted(keyed) == ["append", "correct", "learn_experience", "persist_turn", "remember", "report_outcome"]
        assert all(f"`{name}`" in document["info"]["description"] for name in keyed)


def test_rest_service_keys_stay_here(memoir_dsn: str) -> None:
    """Without the prefix, or with another, a request means a provider. Other keys go there."""
    with upstream(lambda body: []) as model:
        upstreams = {"upstream_openai": model.url, "upstream_anthropic": model.url}
        with served(memoir_dsn, users=USERS, services=SERVICES, journal="off", **upstreams) as (url, _):
            for path in ("/v1/users/ann/memories", "/v1/models", "/memoir/v1", "//memoir/v1/users", "/v2"):
                for headers in ({"authorization": f"bearer {SHOP}"}, {"x-api-key": SHOP, "authorization": "Bearer a"}):
                    answer = CLIENT.post(url + path, json={"content": "x"}, headers=headers)
                    assert answer.status_code == 403 and "of the service 'shop'" in answer.text, (path, answer.text)
            assert not model.asked
            assert CLIENT.get(f"{url}/v1/models", headers={"x-api-key": KEYS["ann"]}).status_code == 200
        assert [asked.headers["x-api-key"] for asked in model.asked] == [KEYS["ann"]]


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"LOCK_MS": 200}, ["Another call held"]),
        ({"STATEMENT_MS": 200}, ["The call took over"]),
        ({"CONNECTIONS": 1, "WAIT_SECONDS": 0.2, "LOCK_MS": 1000}, ["Another call held", "None of the"]),
    ],
)
def test_rest_calls_end(
    memoir_dsn: str, user: str, monkeypatch: pytest.MonkeyPatch, limits: dict[str, float], told: list[str]
) -> None:
    """Calls that wait for another transaction end by themselves, and leave connections to others."""
    for name, value in limits.items():
        monkeypatch.setattr(bounded, name, value)
    with (
        served(memoir_dsn, services=SERVICES, journal="off") as (url, _),
        psycopg.connect(memoir_dsn) as holder,
        ThreadPoolExecutor(7) as pool,
    ):
        holder.execute("select memoir.remember(%s, 'The holder likes tea')", [user])
        lines = [f"POST /users/{user}/memories"] * 7
        answers = list(pool.map(lambda line: ask(url, SHOP, line, {"content": "I like tea"}), lines))
        monkeypatch.undo()
        assert {answer.status_code for answer in answers} == {503}
        details = [answer.json()["detail"] for answer in answers]
        assert all(any(part in detail for detail in details) for part in told), details
        assert all(any(part in detail for part in told) for detail in details), details
        assert ask(url, SHOP, f"GET /users/{user}/memories").json()["items"] == []
        waiting = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
        assert holder.execute(waiting).fetchone() == (0,)
        holder.rollback()
        assert ask(url, SHOP, lines[0], {"content": "I like tea"}).json()["outcome"] == "stored"


def test_rest_exports_that_nobody_reads(memoir_dsn: str, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold no transaction and no connection; each user has one at a time."""
    names = [f"{user}-{number}" for number in range(8)]
    with Memoir(memoir_dsn) as memoir:
        for name in names:
            memoir.persist_turn(name, "s", SAID)

    async def play() -> None:
        app = create_app(Config(dsn=memoir_dsn, services=SERVICES, journal="off"))
        begun, may_go_on = asyncio.Semaphore(0), asyncio.Event()
        headers = {"x-api-key": SHOP}

        async def hang(message: Any) -> None:
            begun.release()
            await may_go_on.wait()

        async def export(name: str, send: Any = hang) -> None:
            path = f"/memoir/v1/users/{name}/export"
            scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
            scope |= {"headers": [(b"x-api-key", SHOP.encode())], "asgi": {"version": "3.0", "spec_version": "2.4"}}
            await app(scope, asyncio.Event().wait, send)

        async def ask_again(message: Any) -> None:
            if message.get("body"):
                assert (await client.get(f"{names[0]}/export")).status_code == 200, (
                    "who has the last piece may ask again"
                )

        transport = httpx.ASGITransport(app)
        base = "http://localhost/memoir/v1/users/"
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url=base, headers=headers, timeout=30) as client,
        ):
            unread = [asyncio.create_task(export(name)) for name in names[:7]]
            for _ in unread:
                await begun.acquire()
            answers = {
                path: await client.get(path)
                for path in (f"{names[0]}/export", f"{names[7]}/export", f"{names[0]}/memories")
            }
            assert [answer.status_code for answer in answers.values()] == [429, 200, 200]
            assert f"user '{names[0]}'" in answers[f"{names[0]}/export"].json()["detail"]
            with psycopg.connect(memoir_dsn) as db:
                of_ours = "datname = current_database() and application_name = 'pg_memoir'"
                idle = f"select count(*) from pg_stat_activity where state like 'idle in%' and {of_ours}"
                assert db.execute(idle).fetchone() == (0,)
            may_go_on.set()
            await asyncio.gather(*unread)
            await export(names[0], ask_again)
            may_go_on.clear()
            monkeypatch.setattr(exports, "SEND_SECONDS", 0.01)
            with pytest.raises(ConnectionAbortedError, match=names[0]):
                await export(names[0])

    asyncio.run(play())


def test_rest_pages(rest: str, memoir_dsn: str, user: str) -> None:
    """Following `next` gives each row once, in the order of the client; erased turns leave no end."""
    with Memoir(memoir_dsn) as memoir:
        for number in range(5):
            memoir.persist_turn(user, f"s{number}", [SAID[0] | {"content": f"Fact {number}."}, SAID[1]])
            memoir.remember(user, f"Parcel {number} weighs {number + 3} kg.")
        memoir.persist_turn(user, "s0", SAID * 3)
        for turn in (2, 3, 4):
            memoir.erase_turn(user, "s0", turn)
        memoir.branch_session(user, "s0", "branch", at_turn=6)
        for number in (1, 2, 3):
            memoir.forget_about(user, f"Fact {number}")
        whole = {
            f"/users/{user}/changes": ("change_id", [str(row.change_id) for row in memoir.list_changes(user)]),
            f"/users/{user}/sessions": ("session", [row.session for row in memoir.list_sessions(user)]),
            f"/users/{user}/memories": ("memory_id", [str(row.memory_id) for row in memoir.list_memories(user)]),
            f"/users/{user}/sessions/s0/turns": ("turn_index", [0, 1, 5, 6, 7]),
            f"/users/{user}/sessions/branch/turns": ("turn_index", [0, 1, 5]),
            "/users": ("user_name", [row.user_name for row in memoir.list_users()]),
        }
        assert len(whole[f"/users/{user}/changes"][1]) == 3
        for path, (name, rows) in whole.items():
            for limit in (1, 2, 5, 500):
                found, cursor = [], ""
                while cursor is not None:
                    page = ask(rest, SHOP, f"GET {path}?limit={limit}" + (f"&cursor={cursor}" if cursor else "")).json()
                    assert len(page["items"]) <= limit
                    found, cursor = found + [row[name] for row in page["items"]], page["next"]
                assert found == rows, (path, limit)
        exported = ask(rest, SHOP, f"GET /users/{user}/export")
        assert exported.headers["content-type"].startswith("application/x-ndjson")
        assert exported.text.splitlines() == memoir.export_user(user)


def test_rest_guide(embedding_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(embedding_dsn, users=USERS, services=SERVICES, journal="off") as (url, _):
        monkeypatch.setenv("API", f"{url}/memoir/v1/users/alice")
        monkeypatch.setenv("KEY", SHOP)
        shown = [found for found in outputs(GUIDE, embedding_dsn, {}) if found[0].output]
    for example, printed in shown:
        if os.environ.get("PG_MEMOIR_UPDATE"):
            write_output(GUIDE, example, printed)
        else:
            assert settled(printed) == settled(example.output or ""), f"{example.code}\nprinted\n{printed}"
    assert len(shown) == 4


def run_schemathesis(url: str, folder: Path, *options: str) -> str:
    """Returns what it prints; it ends with 0 only without failures."""
    command = [str(Path(sys.executable).parent / "st"), "--config-file", str(RULES), "run", f"{url}/openapi.json"]
    command += ["-H", f"Authorization: Bearer {SHOP}", "--warnings", "off", *options]
    return output_of(command, timeout=900, cwd=folder)


def test_rest_follows_its_document(rest: str, tmp_path: Path) -> None:
    told = run_schemathesis(rest, tmp_path, "--phases", "coverage", "--max-examples", "1", "--seed", "1")
    assert f"Tested: {len(OPERATIONS)}" in told


@pytest.mark.acceptance
@pytest.mark.parametrize(("phase", "least"), [("coverage", 1000), ("fuzzing", 1000), ("stateful", 100)])
def test_rest_under_schemathesis(rest: str, tmp_path: Path, phase: str, least: int) -> None:
    """A phase at a time, thirty examples of each operation: each ends within the limit on a busy machine, too."""
    told = run_schemathesis(rest, tmp_path, "--phases", phase, "--max-examples", "30", "--seed", "1")
    [cases] = re.findall(r"(\d+) generated, (\d+) passed", told)
    assert int(cases[0]) >= least and int(cases[1]) == int(cases[0])


@pytest.mark.acceptance
@pytest.mark.extended
def test_rest_typescript_client(rest: str, tmp_path: Path) -> None:
    """The client that openapi-typescript makes of the document compiles, and a program over it does what it says."""
    source = Path(__file__).parents[1] / "node" / "rest_client.ts"
    (tmp_path / "node_modules").symlink_to(MODULES)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    copy = tmp_path / source.name
    copy.write_text(source.read_text())
    options = (
        "--noEmit --strict --target es2022 --module nodenext --lib es2022,dom --allowImportingTsExtensions".split()
    )
    for command in (
        ("openapi-typescript", f"{rest}/openapi.json", "-o", str(tmp_path / "schema.d.ts")),
        ("tsc", *options, str(copy)),
        ("node", str(copy), rest, KEYS["ann"], "ann"),
    ):
        done = program(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["tokens"] > 10 and told["kept"] in told["memories"] and told["stranger"] == 403
    assert told["refused"] == "actor: Input should be 'person', 'agent' or 'tool', not \"robot\""
