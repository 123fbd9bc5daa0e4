"""Living with one's memory in the inspector: looking, and what each form does. Its doors are in test_gateway_parts.py."""

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest
from calls import active, call, persist, remember, remembered, run_job, table
from gateways import Messages, gateway
from pg_memoir_gateway.gateway import Gateway
from pg_memoir_gateway.inspector import pages
from routines import world_of
from served import USERS, looking, read_fields, served
from servers import user_of

Served = tuple[str, Gateway]


@pytest.fixture(scope="module")
def inspector(memoir_dsn: str) -> Iterator[Served]:
    with served(memoir_dsn, users=USERS, inspect_token="operator-token") as given:
        yield given


def read_page(client: httpx.Client, path: str, **params: Any) -> str:
    """The text of a page, without tags."""
    answer = client.get(f"/{path}", params={"user": "ann"} | params)
    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
    return text_of(answer)


def text_of(answer: httpx.Response) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text.split("<main", 1)[1])).split())


def post(client: httpx.Client, what: str, form: dict[str, Any], **params: Any) -> httpx.Response:
    """Fills in the form of a page, with the fields that it brings, and sends it."""
    params = {"user": "ann"} | params
    fields = read_fields(client.get(f"/change/{what}", params=params).text)
    return client.post(f"/change/{what}", data=fields | form, params=params)


@pytest.fixture
def ann(db: psycopg.Connection, inspector: Served) -> Iterator[httpx.Client]:
    """The browser of a user who begins with nothing."""
    call(db, "erase_user", "ann")
    with looking(inspector[0], "ann") as client:
        yield client


def test_memories_filtered_and_paged(db: psycopg.Connection, ann: httpx.Client) -> None:
    for content, given in {
        "The kiln is fired on Mondays": {"type": "fact", "created_at": "2026-01-05T10:00:00Z"},
        "Tea is drunk without sugar": {"type": "preference", "created_at": "2026-02-28T23:30:00Z"},
        "The tests run in one process": {"type": "decision", "project": "red", "created_at": "2026-03-01T00:30:00Z"},
    }.items():
        remember(db, "ann", content, **given)
    gone = remembered(db, "ann", "The gate code is 4711", type="fact")
    call(db, "forget", "ann", gone)
    for asked, shown in [
        ({}, ["kiln", "Tea", "tests"]),
        ({"type": "preference"}, ["Tea"]),
        ({"project": "red"}, ["tests"]),
        ({"from": "2026-02-01", "to": "2026-02-28"}, ["Tea"]),
        ({"from": "2026-03-01"}, ["tests"]),
        ({"state": "forgotten"}, ["[forgotten]"]),
        ({"q": "sugar in tea", "type": "preference"}, ["Tea"]),
        ({"q": "sugar in tea", "to": "2026-01-31"}, []),
    ]:
        page = read_page(ann, "memories", **asked)
        assert [word for word in ("kiln", "Tea", "tests", "[forgotten]") if word in page] == shown, asked
        assert "4711" not in page and ("Nothing fits" in page) == (not shown), asked
    for asked, told in [({"from": "soon"}, "soon"), ({"to": "9999-12-31"}, "too late"), ({"type": "rumour"}, "rumour")]:
        answer = ann.get("/memories", params=asked)
        assert answer.status_code == 400 and told in answer.text, asked
    for number in range(60):
        remember(db, "ann", f"Shelf {number} holds {number} jars")
    first = ann.get("/memories").text
    second = ann.get(html.unescape(re.search(r'href="/inspect(/memories\?[^"]*after=[^"]*)"', first)[1])).text  # type: ignore[index]
    assert ann.get("/memories", params={"pick": "all"}).text.count(" checked ") == 50 and " checked " not in first
    numbers = [set(re.findall(r">Shelf (\d+) holds", page)) for page in (first, second)]
    assert len(numbers[0]) == 50 and len(numbers[1]) == 10 and not numbers[0] & numbers[1]


def test_pages_ask_a_bounded_number_of_times(
    db: psycopg.Connection, ann: httpx.Client, inspector: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for memoir in (inspector[1].rest_memoir, inspector[1].reading_memoir):
        run = memoir.run

        async def count(given: Any, run: Any = run) -> Any:
            asked.append(given.function)
            return await run(given)

        monkeypatch.setattr(memoir, "run", count)
    paths = {
        "user": {},
        "timeline": {},
        "memories": {},
        "doubts": {},
        "graph": {},
        "changes": {},
        "sessions": {},
        "ways": {},
    }
    paths |= {"costs": {}, "data": {}, "events": {}, "ask": {"q": "jars"}, "session": {"session": "talk 0"}}
    counts: list[dict[str, int]] = []
    for begin, end in ((0, 2), (2, 40)):
        for number in range(begin, end):
            old = remembered(db, "ann", f"Shelf {number} holds {number} jars")
            call(db, "correct", "ann", old, f"Shelf {number} holds {number} bottles")
            persist(db, "ann", f"talk {number}", f"The lid of pot {number} is blue.", "Noted.")
        counts.append({})
        for path, params in paths.items():
            asked.clear()
            read_page(ann, path, **params)
            counts[-1][path] = len(asked)
    assert counts[0] == counts[1] and max(counts[0].values()) <= 9


def test_memory_is_added_corrected_and_brought_back(db: psycopg.Connection, ann: httpx.Client) -> None:
    assert "Added." in text_of(post(ann, "add", {"content": "The dentist is Dr. Okafor", "type": "fact"}))
    again = post(ann, "add", {"content": "The dentist is Dr. Okafor"})
    assert "This is known already." in again.text and "Dr. Okafor</textarea>" in again.text
    assert "Write what is to be remembered." in post(ann, "add", {"content": " "}).text
    remember(db, "ann", "The vet is Dr. Kaya")
    assert active(db, "ann") == ["The dentist is Dr. Okafor", "The vet is Dr. Kaya"]

    ids = [str(row[0]) for row in table(db, "list_memories", "ann", columns="memory_id")]
    assert "Forget 2 memories?" in read_page(ann, "change/forget-many", id=ids)
    assert ann.get("/change/forget-many").status_code == 400
    assert "Forgotten." in text_of(post(ann, "forget-many", {}, id=ids)) and active(db, "ann") == []
    refused = post(ann, "add", {"content": "The vet is Dr. Kaya"})
    assert "was rejected before" in refused.text
    assert "Brought back." in text_of(post(ann, "restore", {}, id=ids[0]))
    assert active(db, "ann") == ["The vet is Dr. Kaya"]
    assert ann.get("/change/restore", params={"id": "seven"}).status_code == 400


def test_ways_and_how_they_went(db: psycopg.Connection, ann: httpx.Client) -> None:
    assert "No ways yet" in read_page(ann, "ways")
    for task, way, success, given in (
        ("run the importer tests", "make check", True, {}),
        ("run the importer tests", "pytest importer", False, {"note": "No module named psycopg"}),
        ("deploy the shop", "make ship", None, {"project": "red"}),
    ):
        call(db, "learn_experience", "ann", task, way, success=success, actor="agent", **given)
    everything, task = read_page(ann, "ways"), read_page(ann, "ways", q="run the importer tests")
    assert "make check worked worked 1 of 1 times last" in everything and "make ship" in everything
    assert everything.index("Those that failed") < everything.index("pytest importer")
    assert "pytest importer failed worked 0 of 1 times last" in task and "No module named psycopg" in task
    assert "make ship untried" in read_page(ann, "ways", project="red")
    [failed] = [row[0] for row in table(db, "list_memories", "ann", columns="memory_id, content") if "pytest" in row[1]]
    assert "failed worked 0 of 1 times" in read_page(ann, "memory", id=str(failed))


def test_change_is_undone_beside_its_words(db: psycopg.Connection, ann: httpx.Client) -> None:
    persist(db, "ann", "cups", "Mrs. Okafor is very particular: the handle must fit two fingers.", "Noted.")
    wrong = "I was wrong about the handles, she means that three fingers must fit. Please correct that."
    persist(db, "ann", "cups", wrong, "Corrected.")
    persist(db, "ann", "locker", "My locker code is 4711.", "Noted.")
    persist(db, "ann", "locker", "Forget my locker code.", "Done.")
    run_job(db, "extract")
    page = read_page(ann, "changes")
    assert f"Because of these words , turn 2 of cups {wrong}" in page and "two fingers" in page
    assert "Because of these words , turn 2 of locker Forget my locker code." in page
    assert "Forgotten , turn 0 of locker" in page and "My locker code is 4711" in page
    changes = table(db, "list_changes", "ann", columns="change_id::text, kind")
    for change, _ in changes:
        assert "Undo this?" in read_page(ann, "change/undo", id=change)
        assert "Undone." in text_of(post(ann, "undo", {}, id=change))
        assert ann.get("/change/undo", params={"id": change}).status_code == 404
    assert len(changes) == 2 and table(db, "list_changes", "ann") == []
    assert read_page(ann, "changes").count("undone") == 2


def test_contradiction_is_settled(db: psycopg.Connection, ann: httpx.Client) -> None:
    slot = {"slot": "car"}
    mine = remembered(db, "ann", "The car is green", **slot, slot_value="green", actor="person")
    other = remember(db, "ann", "The car is red", **slot, slot_value="red", actor="agent", provenance="fact")[
        "memory_id"
    ]
    assert "1 contradiction wait" in read_page(ann, "user")
    page = read_page(ann, "doubts")
    assert "The car is green" in page and "The car is red" in page
    assert "Settled." in text_of(post(ann, "settle", {}, id=other, other=mine))
    assert active(db, "ann") == ["The car is red"] and "No contradictions" in read_page(ann, "doubts")
    graph = read_page(ann, "graph")
    assert "The car is red replaces The car is green" in graph and graph == read_page(ann, "graph")


def test_forget_by_words_shows_it_first(db: psycopg.Connection, ann: httpx.Client) -> None:
    persist(db, "ann", "locker", "My locker code is 4711.", "Noted.")
    run_job(db, "extract")
    page = read_page(ann, "change/forget-about", q="my locker code")
    assert "This would be forgotten" in page and "4711" in page and table(db, "list_changes", "ann") == []
    assert "Nothing that is known" in read_page(ann, "change/forget-about", q="my telescope")
    assert "Forgotten." in text_of(post(ann, "forget-about", {}, q="my locker code"))
    assert [kind for (kind,) in table(db, "list_changes", "ann", columns="kind")] == ["forgotten"]


def test_export_and_erase_take_the_typed_name(db: psycopg.Connection, ann: httpx.Client, inspector: Served) -> None:
    persist(db, "ann", "trip", "My sister Runa lives in Lisbon.", "Noted.")
    persist(db, "ann", "other", "Hello there", "Hi.")
    answer = ann.get("/export")
    kinds = {json.loads(line)["kind"] for line in answer.text.splitlines()}
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''ann.jsonl"
    assert "conversation_history" in kinds and answer.headers["x-content-type-options"] == "nosniff"
    with looking(inspector[0], "bob") as bob:
        assert bob.get("/export", params={"user": "ann"}).status_code == 403
        assert bob.post("/change/erase", params={"user": "ann"}, data={"name": "ann"}).status_code == 403

    for params, wrong in (({"session": "trip"}, "ann"), ({}, ""), ({}, "Ann")):
        refused = post(ann, "erase", {"name": wrong}, **params)
        assert refused.status_code == 400 and "Nothing was erased" in refused.text
    assert call(db, "memory_stats", "ann")["sessions"] == 2
    assert "Erased." in text_of(post(ann, "erase", {"name": "trip"}, session="trip"))
    assert [name for (name,) in table(db, "list_sessions", "ann", columns="session")] == ["other"]
    assert "Erased." in text_of(post(ann, "erase", {"name": "ann"}))
    assert call(db, "memory_stats", "ann")["sessions"] == 0


def test_long_texts_come_whole_or_not_at_all(db: psycopg.Connection, ann: httpx.Client) -> None:
    assert "Added." in text_of(post(ann, "add", {"content": "Чай " * 9000 + "готов", "type": "fact"}))
    [(content,)] = table(db, "list_memories", "ann", columns="content")
    assert content.endswith("Чай готов")
    assert "Added." in text_of(post(ann, "add", {"content": "Tea first.\r\nThen milk.", "type": "fact"}))
    assert "Tea first.\nThen milk." in [text for (text,) in table(db, "list_memories", "ann", columns="content")]
    refused = post(ann, "add", {"content": "Tea " * 300_000, "type": "fact"})
    assert refused.status_code == 413 and len(table(db, "list_memories", "ann")) == 2


def test_spaces_around_a_session_name_count(db: psycopg.Connection, ann: httpx.Client) -> None:
    persist(db, "ann", "trip", "My sister Runa lives in Lisbon.", "Noted.")
    persist(db, "ann", " trip", "My brother Jon lives in Bergen.", "Noted.")
    assert "Bergen" in read_page(ann, "session", session=" trip")
    assert post(ann, "erase", {"name": "trip"}, session=" trip").status_code == 400
    assert "Erased." in text_of(post(ann, "erase", {"name": " trip"}, session=" trip"))
    assert [name for (name,) in table(db, "list_sessions", "ann", columns="session")] == ["trip"]


def test_timeline_begins_at_the_newest_words(
    db: psycopg.Connection, ann: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that begins with the newest memory records the oldest one last."""
    monkeypatch.setattr(pages, "MONTH", 3)
    for month in range(12, 0, -1):
        remember(db, "ann", f"Shelf {month} holds {month} jars", created_at=f"2025-{month:02}-10T10:00:00Z")
    assert "December 2025" in read_page(ann, "timeline")
    page = ann.get("/timeline", params={"month": "2025-12"}).text
    assert "Earlier: November 2025" in page


def test_sessions_have_titles_and_a_search(db: psycopg.Connection, ann: httpx.Client) -> None:
    tool = {"role": "tool", "tool_call_id": "c", "content": "berth 539 " * 20}
    asks = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "find_berth", "arguments": '{"pier": 77}'}}]}  # fmt: skip
    said = {"role": "user", "content": "Where is pier\n77?", "created_at": "2026-02-03T09:00:00Z"}
    usage = {"prompt_tokens": 1200, "completion_tokens": 30, "cache_read_tokens": 800, "latency_ms": 70}
    persist(db, "ann", "quay", said, asks, tool, {"role": "assistant", "content": "At berth 539."}, usage=usage)
    persist(db, "ann", "oven", "The oven is too hot.", "Noted.")
    page = read_page(ann, "sessions")
    assert "Where is pier 77? quay 4 turns" in page and "3 Feb 2026, 09:00" in page
    found = read_page(ann, "sessions", q="berth of the pier")
    assert "Where is pier 77?" in found and "oven" not in found.split("Show all")[1]
    page = ann.get("/session", params={"session": "quay"}).text
    assert "<title>Where is pier 77? · pg_memoir</title>" in page
    assert re.search(r"<details><summary>Result, 200 characters</summary>.*berth 539", page)
    assert "<summary>Calls <code>find_berth</code></summary>" in page
    assert "As the provider counted it" in page and "1 calls, at most 1230 tokens" in page
    days = read_page(ann, "timeline", month="2026-02")
    assert "Tuesday, 3 February" in days and "oven" not in days
    assert ann.get("/timeline", params={"month": "May"}).status_code == 400
    assert "Where is pier 77?" in read_page(ann, "costs")


def test_window_of_a_session_through_the_gateway(db: psycopg.Connection, memoir_dsn: str, model: Any) -> None:
    with gateway(memoir_dsn, model, "guest", inspect_token="operator-token") as running:
        talk = Messages(running, "harbour")
        for number in range(3):
            talk.say(f"Where does ferry {number} moor?")
        running.settle()
        with looking(running.url, "operator-token") as operator:
            page = read_page(operator, "session", user="guest", session="claude-code harbour")
    assert "3 calls, at most 122 tokens" in page, page
    compiles = table(db, "list_compiles", "guest", "claude-code harbour")  # a busy machine may leave a recall out
    assert ("Set beside the list, which the client keeps" in page) == bool(compiles)
    for part in ("Read from the prompt cache", "Written to the prompt cache", "Other input", "Answer"):
        assert part in page


def test_question_shows_the_list_and_writes_nothing(db: psycopg.Connection, ann: httpx.Client) -> None:
    remember(db, "ann", "The vet of the cat is Dr. Kaya")
    persist(db, "ann", "talk", "The cat is called Miso.", "Noted.")
    page = read_page(ann, "ask", q="Who is the vet of the cat?", session="talk")
    assert "memoir-recall" in page and "Dr. Kaya" in page and re.search(r"Recall, \d+ tokens", page)
    assert table(db, "list_compiles", "ann", "talk") == []
    call(db, "context", "ann", "talk", "Who is the vet of the cat?")
    assert len(table(db, "list_compiles", "ann", "talk")) == 1


def test_text_that_turns_its_direction_is_told(db: psycopg.Connection, ann: httpx.Client) -> None:
    sly = "Open invoice\u202efdp.exe"
    memory = remembered(db, "ann", sly)
    for path in ("memories", "memory", "change/forget"):
        page = ann.get(f"/{path}", params={"id": memory}).text
        assert "\u202e" not in page and "Open invoice⟦U+202E⟧fdp.exe" in page, path
    form = ann.get("/change/correct", params={"id": memory}).text
    assert f"{sly}</textarea>" in form, "a field has the text as it is"


def test_login_that_may_do_less_is_told(memoir_dsn: str, ann: httpx.Client) -> None:
    with world_of(memoir_dsn, login={"role": "app", "actor": "agent"}) as world:
        dsn = user_of(memoir_dsn, world.logins["login"])
        with served(dsn, inspect_token="t") as (address, _), looking(address, "t") as operator:
            added = post(operator, "add", {"content": "The bell rings twice"})
            memory = added.url.params["id"]
            assert "Forgotten." in text_of(post(operator, "forget", {}, id=memory))
            for answer in (post(operator, "restore", {}, id=memory), operator.get("/export", params={"user": "ann"})):
                assert answer.status_code == 403 and "login may not do that" in answer.text
            assert "Not for this login" in read_page(operator, "costs")
            assert "is no admin of the database" in read_page(operator, "health")
