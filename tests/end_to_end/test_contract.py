"""What applications may rely on, over the database and over the stand-in for their tests: same methods, types, errors."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pg_memoir
import pytest
from pg_memoir import errors, testing
from pg_memoir.call import Method
from pg_memoir.calls import AllCalls, calls
from pg_memoir.types import Considered, Hit, IndexHit, Memory, MemoryState, SessionRow, Speaker, TimelineLine, Tombstone

USER, ANSWER = {"role": "user", "content": "I keep a green Brompton."}, {"role": "assistant", "content": "Nice."}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
CALLING, RESULT = (
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a bell"},
)


@pytest.fixture(params=["database", "stand-in"])
def memoir(request: pytest.FixtureRequest) -> Iterator[pg_memoir.Memoir]:
    if request.param == "stand-in":
        yield testing.Memoir()
    else:
        with pg_memoir.Memoir(request.getfixturevalue("memoir_dsn"), max_size=2) as client:
            yield client


def dialogue(memoir: pg_memoir.Memoir, user: str, session: str = "s") -> dict[str, Any]:
    return dict(memoir.persist_turn(user, session, [USER, ANSWER]))


def test_turns_come_back_as_they_were_sent(memoir: pg_memoir.Memoir, user: str) -> None:
    done = memoir.persist_turn(user, "s", [USER | {"name": "Ann", "tags": ["bike"]}, CALLING, RESULT, ANSWER])
    assert (done["from_turn"], done["to_turn"], done["turn_count"]) == (0, 3, 4)
    assert len(done["message_ids"]) == 4 and done["tokens"] > 0 and done["mark"] and done["warnings"] == []
    stored = memoir.history(user, "s")
    for have, sent in zip(stored, [USER | {"name": "Ann", "tags": ["bike"]}, CALLING, RESULT, ANSWER], strict=True):
        assert {key: have.get(key) for key in sent} == sent
    assert [turn["turn_index"] for turn in stored] == [0, 1, 2, 3]
    assert datetime.fromisoformat(stored[0]["created_at"]).tzinfo
    assert [turn["turn_index"] for turn in memoir.history(user, "s", from_turn=1, to_turn=2)] == [1, 2]
    sent = {"role": "user", "content": "Later.", "created_at": datetime(2024, 5, 1, tzinfo=UTC)}
    memoir.persist_turn(user, "s", sent)
    assert memoir.history(user, "s")[4]["created_at"] == "2024-05-01T00:00:00+00:00"


def test_what_is_said_of_a_turn_stands_beside_it(memoir: pg_memoir.Memoir, user: str) -> None:
    memoir.persist_turn(user, "s", [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}])
    memoir.annotate_turn(user, "s", 1, {"feedback": "down", "flags": ["curt"], "by": "ana"})
    done = memoir.annotate_turn(user, "s", 1, {"feedback": "up", "by": None})
    assert done == {"turn_index": 1, "annotations": {"feedback": "up", "flags": ["curt"]}}
    first, second = memoir.history(user, "s")
    assert "annotations" not in first and second["annotations"] == done["annotations"]
    assert (second["role"], second["content"]) == ("assistant", "Hi.")
    assert "curt" not in str(memoir.compile_context(user, "s", "And now?"))
    assert memoir.annotate_turn(user, "s", 1, {"feedback": None, "flags": None})["annotations"] == {}
    assert "annotations" not in list(memoir.history(user, "s"))[1]
    with pytest.raises(pg_memoir.MemoirError, match="turn 5"):
        memoir.annotate_turn(user, "s", 5, {"feedback": "up"})
    with pytest.raises(pg_memoir.MemoirError):
        memoir.annotate_turn(user, "s", 0, ["up"])  # type: ignore[arg-type]


def test_what_is_wrong_with_messages(memoir: pg_memoir.Memoir, user: str) -> None:
    for messages, error in (
        ([], errors.InvalidMessageError),
        ([{"role": "narrator", "content": "x"}], errors.InvalidMessageError),
        ([{"role": "user"}], errors.InvalidMessageError),
        ([{"role": "user", "content": 7}], errors.InvalidMessageError),
        ([RESULT], errors.ToolCallMismatchError),
        ([CALLING], errors.ToolCallMismatchError),
        ([CALLING, USER], errors.ToolCallMismatchError),
    ):
        with pytest.raises(error):
            memoir.persist_turn(user, "s", messages)
    with pytest.raises(errors.UnknownSessionError):
        memoir.history(user, "s")  # all or nothing
    with pytest.raises(errors.InvalidArgumentError):
        memoir.persist_turn(user, "", [USER])


def test_text_that_can_t_be_stored_is_replaced(memoir: pg_memoir.Memoir, user: str) -> None:
    call = CALL | {"function": {"name": "look", "arguments": '{"at": "\0"}'}}
    result = RESULT | {"content": "half \ud83d, cut \ud83d\ude00, nul\0"}
    memoir.persist_turn(user, "s", [USER, CALLING | {"tool_calls": [call]}, result, ANSWER])
    _, called, answered, _ = memoir.history(user, "s")
    assert called["tool_calls"][0]["function"]["arguments"] == '{"at": "\ufffd"}'
    assert answered["content"] == "half \ufffd, cut 😀, nul\ufffd"
    assert memoir.compile_context(user, "s", "What\0?")[-1]["content"].endswith("What\ufffd?")
    memoir.remember(user, "Likes\0 tea", tags=["\udfff"])
    [memory] = memoir.list_memories(user)
    assert (memory.content, memory.tags) == ("Likes\ufffd tea", ["\ufffd"])
    assert memoir.call_memory_tool(user, "s", "no\0ne", {}).startswith("Error")
    memoir.call_memory_tool(user, "s", "memory_search", {"query": "tea \ud83d"})
    with pytest.raises(errors.InvalidTextError, match="session holds a NUL"):
        memoir.persist_turn(user, "s\0", [USER])


def test_an_empty_user_message(memoir: pg_memoir.Memoir, user: str) -> None:
    empty = {"role": "user", "content": ""}
    memoir.persist_turn(user, "s", [empty, ANSWER])
    memoir.append(user, "s", empty)
    assert [turn["content"] for turn in memoir.history(user, "s")] == ["", ANSWER["content"], ""]
    for messages in (memoir.compile_context(user, "s"), memoir.compile_context(user, "s", "")):
        assert [(m["role"], m["content"]) for m in messages] == [
            ("user", ""),
            ("assistant", ANSWER["content"]),
            ("user", ""),
        ]
    request = memoir.compile_anthropic(user, "s", " ")
    assert [m["role"] for m in request["messages"]] == ["user", "assistant", "user"]
    assert [m["content"][0]["text"] for m in request["messages"]] == ["(empty)", ANSWER["content"], "(empty)"]
    assert memoir.context(user, "other", "")["messages"][-1] == empty
    memoir.append(user, "s", [ANSWER, USER, ANSWER])
    assert "Brompton" in str(memoir.compile_context(user, "s", "What do I keep?"))


def test_an_agent_s_steps(memoir: pg_memoir.Memoir, user: str) -> None:
    session = memoir.session(user, "s", system_prompt="Be brief.")
    session.append([USER, CALLING])
    with pytest.raises(errors.NothingToContinueError):
        session.compile_context()
    with pytest.raises(errors.ToolCallMismatchError):
        session.persist_turn([USER])
    session.append([RESULT])
    messages = session.compile_context()
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool"]
    assert messages[0]["content"].startswith("Be brief.") and messages[1]["content"].endswith(USER["content"])
    assert messages[2]["tool_calls"] == [CALL] and messages[3]["tool_call_id"] == "c1"
    session.append([ANSWER])
    assert session.info()["turns"] == 4 and session.info()["open_calls"] == []


def test_a_retry_returns_the_first_result(memoir: pg_memoir.Memoir, user: str) -> None:
    first = memoir.persist_turn(user, "s", [USER], key="k")
    assert memoir.persist_turn(user, "s", [USER], key="k") == first
    assert len(memoir.history(user, "s")) == 1
    with pytest.raises(errors.KeyReusedError):
        memoir.persist_turn(user, "s", [ANSWER], key="k")
    kept = memoir.remember(user, "Likes tea", key="m")
    assert memoir.remember(user, "Likes tea", key="m") == kept


def test_sessions(memoir: pg_memoir.Memoir, user: str) -> None:
    assert memoir.list_sessions(user) == [] and memoir.list_memories(user) == []
    assert isinstance(memoir.open_session(user, "s", metadata={"a": 1}), uuid.UUID)
    dialogue(memoir, user)
    assert memoir.session_info(user, "s")["metadata"] == {"a": 1}
    memoir.branch_session(user, "s", "b", at_turn=1)
    memoir.persist_turn(user, "b", [{"role": "assistant", "content": "Another answer."}])
    assert [turn["content"] for turn in memoir.history(user, "b")] == [USER["content"], "Another answer."]
    rows = memoir.list_sessions(user)
    assert [type(row) for row in rows] == [SessionRow, SessionRow]
    assert [(row.session, row.parent, row.turns) for row in rows] == [("b", "s", 2), ("s", None, 2)]
    assert [row.session for row in memoir.list_sessions(user, after_session="b")] == ["s"]
    memoir.close_session(user, "s")
    assert [row.session for row in memoir.list_sessions(user, status="closed")] == ["s"]
    for refused in (lambda: dialogue(memoir, user), lambda: memoir.open_session(user, "s", project="x")):
        with pytest.raises(errors.SessionClosedError):
            refused()
    for unknown in (memoir.session_info, memoir.history, memoir.close_session, memoir.summarize_session):
        with pytest.raises(errors.UnknownSessionError):
            unknown(user, "nothing")
    said = memoir.summarize_session(user, "s")
    assert {"summary", "through", "compaction_id", "tokens", "summary_tokens"} <= said.keys() and said["through"] == 1
    [speaker, *_] = memoir.list_speakers(user, session="s")
    assert type(speaker) is Speaker and speaker.turns == 1


def test_a_list_for_the_model(memoir: pg_memoir.Memoir, user: str) -> None:
    memoir.open_session(user, "s", system_prompt="Be brief.")
    dialogue(memoir, user)
    messages = memoir.compile_context(user, "s", "What did I keep?")
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert messages[-1]["content"].endswith("What did I keep?")
    request = memoir.compile_anthropic(user, "s", "What did I keep?")
    assert [m["role"] for m in request["messages"]] == ["user", "assistant", "user"] and request["system"]
    about = memoir.context(user, "s", "What did I keep?")
    assert about["messages"] == messages and about["tokens"] <= about["budget"]
    assert {
        "compile_id",
        "prefix_hash",
        "prefix_messages",
        "recall_tokens",
        "items",
        "warnings",
        "weak",
    } <= about.keys()
    assert memoir.context(user, "s", "Next?")["prefix_hash"] == about["prefix_hash"]
    # A user message that stands unanswered is not said twice, and nothing persisted is changed by compiling.
    memoir.append(user, "s", {"role": "user", "content": "And now?"})
    assert sum("And now?" in str(m["content"]) for m in memoir.compile_context(user, "s", "And now?")) == 1
    assert memoir.compile_context(user, "s")[-1]["content"].endswith("And now?")
    assert memoir.compile_context(user, "unknown", "Hello there")[-1]["role"] == "user"
    with pytest.raises(errors.BudgetTooSmallError) as caught:
        memoir.compile_context(user, "s", "A long question. " * 40, budget=50)
    assert caught.value.budget == 50 and (caught.value.needed or 0) > 50 and (caught.value.message_tokens or 0) > 50


def test_what_was_said_elsewhere_is_recalled(memoir: pg_memoir.Memoir, user: str) -> None:
    dialogue(memoir, user, "old")
    memoir.remember(user, "The Brompton was bought in Porto")
    rows = memoir.explain(user, "new", "Which Brompton do I keep?")
    assert {type(row) for row in rows} == {Considered} and any(row.included for row in rows)
    [newest] = [m for m in memoir.compile_context(user, "new", "Which Brompton do I keep?") if m["role"] == "user"]
    assert "green Brompton" in newest["content"] and newest["content"].endswith("Which Brompton do I keep?")
    hits = memoir.recall(user, "green Brompton")
    assert {type(hit) for hit in hits} == {Hit} and [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    [turn, *_] = memoir.recall(user, "green Brompton", kinds=["turn"])
    assert (turn.session, turn.turn_index, turn.role, turn.content) == ("old", 0, "user", USER["content"])
    assert all(hit.kind == "memory" for hit in memoir.recall(user, "Brompton", kinds=["memory"]))
    assert len(memoir.recall(user, "Brompton", limit=1)) == 1
    assert [type(hit) for hit in memoir.memory_index(user, "Brompton", limit=1)] == [IndexHit]
    around = memoir.memory_timeline(user, turn.id)
    assert {type(line) for line in around} == {TimelineLine} and any(line.is_anchor for line in around)
    with pytest.raises(errors.InvalidArgumentError):
        memoir.recall(user, " ")
    with pytest.raises(errors.UnknownSessionError):
        memoir.recall(user, "Brompton", session="nothing")


def test_tags_find_whatever_their_rank(memoir: pg_memoir.Memoir, user: str) -> None:
    memoir.remember(user, "Sails on Sundays", tags=["sport"])
    memoir.persist_turn(user, "s", [{"role": "user", "content": "The oars are new.", "tags": ["sport"]}])
    found = {hit.content for hit in memoir.recall(user, "zebra", tags=["sport"])}
    assert found == {"Sails on Sundays", "The oars are new."}


def test_memories(memoir: pg_memoir.Memoir, user: str) -> None:
    first = memoir.remember(user, "Drinks tea", type="preference", slot="drink", slot_value="tea", tags=["food"])
    assert first["outcome"] == "stored" and (first["superseded"], first["contradicts"]) == ([], [])
    assert memoir.remember(user, "drinks tea")["outcome"] == "duplicate"
    second = memoir.remember(user, "Drinks coffee", type="preference", slot="drink", slot_value="coffee")
    assert second["superseded"] == [first["memory_id"]]
    [row] = memoir.list_memories(user)
    assert type(row) is Memory and (str(row.memory_id), row.content) == (second["memory_id"], "Drinks coffee")
    assert (row.type, row.state, row.slot, row.slot_value) == ("preference", "active", "drink", "coffee")
    assert len(memoir.list_memories(user, states=[])) == 2
    assert memoir.list_memories(user, types=["decision"]) == memoir.list_memories(user, tags=["x"]) == []
    [whole] = memoir.memory_get(user, [row.memory_id, uuid.uuid4()])
    assert (whole["id"], whole["kind"], whole["content"]) == (second["memory_id"], "memory", "Drinks coffee")
    states = memoir.memory_history(user, row.memory_id)
    assert {type(state) for state in states} == {MemoryState}
    assert [state.state for state in states if str(state.memory_id) == first["memory_id"]] == ["active", "superseded"]
    with pytest.raises(errors.InvalidArgumentError):
        memoir.remember(user, "x", type="wonderful")
    with pytest.raises(errors.UnknownSessionError):
        memoir.remember(user, "x", session="nothing")


def test_corrected_retracted_forgotten(memoir: pg_memoir.Memoir, user: str) -> None:
    tea = memoir.remember(user, "Has a grey cat")["memory_id"]
    done = memoir.correct(user, tea, "Has a black cat")
    assert done["outcome"] == "corrected" and done["corrected"] == [tea]
    assert [m.content for m in memoir.list_memories(user)] == ["Has a black cat"]
    assert memoir.remember(user, "Has a grey cat")["outcome"] == "refused_tombstone"
    assert memoir.retract(user, done["memory_id"])["state"] == "invalidated" and memoir.list_memories(user) == []
    door = memoir.remember(user, "Keeps the key under the mat")["memory_id"]
    assert memoir.forget(user, door)["state"] == "forgotten"
    [stone, *_] = memoir.list_tombstones(user)
    assert type(stone) is Tombstone and stone.content is None and str(stone.memory_id) == door
    [forgotten] = memoir.list_memories(user, states=["forgotten"])
    assert forgotten.content is None
    refused = memoir.remember(user, "Keeps the key under the mat")
    assert (refused["outcome"], refused["memory_id"]) == ("refused_tombstone", None) and refused["hint"]
    assert memoir.lift_tombstone(user, door)["restored"] == [door]
    assert [m.content for m in memoir.list_memories(user)] == ["Keeps the key under the mat"]
    unknown = uuid.uuid4()
    for call in (
        lambda: memoir.forget(user, unknown),
        lambda: memoir.correct(user, unknown, "x"),
        lambda: memoir.retract(user, unknown),
        lambda: memoir.memory_history(user, unknown),
        lambda: memoir.memory_graph(user, unknown),
        lambda: memoir.lift_tombstone(user, unknown),
        lambda: memoir.memory_timeline(user, unknown),
    ):
        with pytest.raises(errors.UnknownMemoryError):
            call()
    with pytest.raises(errors.InvalidArgumentError):
        memoir.forget(user, "no uuid")


def test_forgetting_by_words(memoir: pg_memoir.Memoir, user: str) -> None:
    memoir.persist_turn(user, "s", [{"role": "user", "content": "My locker code is 90210."}])
    assert memoir.forget_about(user, "my submarine")["outcome"] == "nothing"
    preview = memoir.forget_about(user, "my locker code", preview=True)
    assert preview["outcome"] == "preview" and [t["session"] for t in preview["turns"]] == ["s"]
    assert memoir.recall(user, "locker code")
    done = memoir.forget_about(user, "my locker code")
    assert done["outcome"] == "forgotten" and not memoir.recall(user, "locker code")
    [change] = memoir.list_changes(user)
    assert str(change.change_id) == done["change_id"] and change.kind == "forgotten"
    assert memoir.undo_change(user, change.change_id)["returned_turns"] == 1
    assert memoir.recall(user, "locker code") and memoir.list_changes(user) == []


def test_relations_and_pins(memoir: pg_memoir.Memoir, user: str) -> None:
    memoir.open_session(user, "s")
    one, two = (memoir.remember(user, text)["memory_id"] for text in ("The roof leaks", "The attic is wet"))
    assert memoir.relate(user, two, "caused_by", one) and not memoir.relate(user, two, "caused_by", one)
    [edge] = memoir.memory_graph(user, one)
    assert (str(edge.source_id), edge.relation, str(edge.target_id), edge.hop) == (two, "caused_by", one, 1)
    assert (edge.source_line, edge.target_line) == ("The attic is wet", "The roof leaks")
    with pytest.raises(errors.InvalidArgumentError):
        memoir.relate(user, one, "relates_to", one)
    assert memoir.pin(user, "s", one)["memory_id"] == one
    assert memoir.unpin(user, "s", one) and not memoir.unpin(user, "s", one)
    assert memoir.validate(user, one)["memory_id"] == one


def test_the_model_s_own_tools(memoir: pg_memoir.Memoir, user: str) -> None:
    for shape in ("openai", "responses", "anthropic", "mcp"):
        names = [tool.get("name") or tool["function"]["name"] for tool in memoir.memory_tools(shape)]
        search = "memory_index" if shape == "mcp" else "memory_search"
        assert {search, "memory_get", "memory_timeline", "memory_remember", "memory_correct", "memory_forget"} <= set(
            names
        )
    memoir.remember(user, "Sails on Sundays")
    dialogue(memoir, user)
    session = memoir.session(user, "s")
    assert "Sails on Sundays" in session.call_memory_tool("memory_search", {"query": "sails"})
    assert "Sails on Sundays" in session.call_memory_tool("memory_query", {"question": "Who sails?"})
    assert session.call_memory_tool("nothing", {}).startswith("Error: ")
    assert session.call_memory_tool("memory_search", {}).startswith("Error: ")
    with pytest.raises(errors.UnknownSessionError):
        memoir.call_memory_tool(user, "nothing", "memory_search", {"query": "x"})


def test_erased(memoir: pg_memoir.Memoir, user: str) -> None:
    dialogue(memoir, user)
    dialogue(memoir, user, "other")
    assert memoir.erase_turn(user, "s", 0)["erased"] == "turn"
    assert [turn["turn_index"] for turn in memoir.history(user, "s")] == [1]
    assert memoir.erase_session(user, "s")["erased"] == "session"
    assert [row.session for row in memoir.list_sessions(user)] == ["other"]
    assert memoir.erase_user(user)["rows"]["sessions"] == 1 and memoir.list_sessions(user) == []


def test_users_in_numbers(memoir: pg_memoir.Memoir, user: str) -> None:
    dialogue(memoir, user)
    memoir.remember(user, "Likes tea", type="preference")
    [row] = [row for row in memoir.list_users(limit=1000) if row.user_name == user]
    assert (row.sessions, row.memories) == (1, 1) and row.last_recorded_at
    stats = memoir.memory_stats(user)
    assert {name: stats[name] for name in ("sessions", "open_sessions", "turns", "memories", "states", "types")} == {
        "sessions": 1, "open_sessions": 1, "turns": 2, "memories": 1, "states": {"active": 1}, "types": {"preference": 1},
    }  # fmt: skip


def test_calls_are_kept_byte_for_byte(memoir: pg_memoir.Memoir, user: str) -> None:
    call = memoir.capture_call(user, "s", b"\x00request", response=b"\xff", events=[b"one", b"two"], status=200)
    [row] = memoir.list_calls(user, "s")
    assert (row.call_id, row.request_bytes, row.events, row.status) == (call, 8, 2, 200)
    assert [(p.kind, p.body) for p in memoir.read_call(user, call)] == [
        ("request", b"\x00request"), ("response", b"\xff"), ("event", b"one"), ("event", b"two"),
    ]  # fmt: skip
    with pytest.raises(errors.UnknownMemoryError):
        memoir.read_call(user, uuid.uuid4())


@pytest.mark.parametrize("kind", ["database", "stand-in"])
def test_awaited(kind: str, request: pytest.FixtureRequest, user: str) -> None:
    async def use() -> None:
        made = pg_memoir.AsyncMemoir if kind == "database" else testing.AsyncMemoir
        dsn = request.getfixturevalue("memoir_dsn") if kind == "database" else "not used"
        async with made(dsn, max_size=2) as memoir:
            session = memoir.session(user, "s", system_prompt="Be brief.")
            await asyncio.gather(session.persist_turn([USER, ANSWER]), memoir.remember(user, "Likes tea"))
            assert session.mark
            messages = await session.compile_context("What do I keep?")
            assert messages[0]["content"].startswith("Be brief.") and len(messages) == 4
            assert [m.content for m in await memoir.list_memories(user)] == ["Likes tea"]
            with pytest.raises(errors.UnknownMemoryError):
                await memoir.forget(user, uuid.uuid4())

    asyncio.run(use())


# The stand-in by itself -------------------------------------------------------------------------------------------------


def test_stand_in_has_every_method() -> None:
    memoir, lacking = testing.Memoir(), set()
    for name, method in inspect.getmembers(AllCalls, lambda member: isinstance(member, Method)):
        assert callable(getattr(memoir, name)) and callable(getattr(testing.AsyncMemoir(), name))
        if not hasattr(memoir.store, method.function):
            lacking.add(name)
    application = {name for name in dir(pg_memoir.Session) if isinstance(getattr(pg_memoir.Session, name), Method)}
    assert not {name for name in application & lacking if name not in NEEDS_A_DATABASE}, "what sessions call is there"
    with pytest.raises(errors.MaintenanceUnavailableError, match="set_schedule needs a database"):
        memoir.set_schedule("flush", None)


# Of what sessions call, frameworks' items and what only a real window shows.
NEEDS_A_DATABASE = {
    *("compact", "undo_compaction", "list_compactions", "pin_turns", "unpin_turns"),
    "query_answer",  # no language model
    *("append_items", "list_items", "retract_items", "retract_turns"),
}


def test_the_stand_in_keeps_its_own_copies_and_a_clock(user: str) -> None:
    memoir = testing.Memoir()
    message = dict(USER)
    memoir.persist_turn(user, "s", [message])
    message["content"] = "changed"
    memoir.history(user, "s")[0]["content"] = "changed"
    assert memoir.history(user, "s")[0]["content"] == USER["content"]
    memoir.now = datetime(2030, 1, 1, tzinfo=UTC)
    memoir.persist_turn(user, "s", [ANSWER])
    assert memoir.history(user, "s")[1]["created_at"] == "2030-01-01T00:00:00+00:00"
    assert testing.Memoir(store=memoir.store).list_sessions(user)  # what one writes, another sees
    assert testing.Memoir().list_sessions(user) == []
    assert calls.recall("u", "q").function == "recall"
