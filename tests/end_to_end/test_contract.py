"""Applications may rely on this, over the database and over the stand-in for their tests: turns, lists, memories, errors.

The second half holds for the database alone: the client's types for what else it answers.
"""

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import pg_memoir
import psycopg
import pytest
from calls import one
from pg_memoir import errors, testing
from pg_memoir.types import (
    Considered,
    Hit,
    IndexHit,
    Memory,
    MemoryState,
    Sensitivity,
    SessionRow,
    SessionStatus,
    Space,
    SpaceMember,
    Speaker,
    State,
    Task,
    TimelineLine,
    Tombstone,
)

Client = pg_memoir.Memoir
USER, ANSWER = {"role": "user", "content": "I keep a green Brompton."}, {"role": "assistant", "content": "Nice."}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "a bell"}


@pytest.fixture(params=["database", "stand-in"])
def memoir(request: pytest.FixtureRequest) -> Iterator[Client]:
    if request.param == "stand-in":
        yield testing.Memoir()
    else:
        yield request.getfixturevalue("database")


@pytest.fixture
def database(memoir_dsn: str) -> Iterator[Client]:
    with pg_memoir.Memoir(memoir_dsn, max_size=2) as client:
        yield client


def roles_of(messages: list[Any]) -> list[str]:
    return [message["role"] for message in messages]


def test_turns_come_back_as_they_were_sent(memoir: Client, user: str) -> None:
    sent = [USER | {"name": "Ann", "tags": ["bike"]}, CALLING, RESULT, ANSWER]
    done = memoir.persist_turn(user, "s", sent)
    assert (done["from_turn"], done["to_turn"], done["turn_count"]) == (0, 3, 4)
    assert len(done["message_ids"]) == 4 and done["tokens"] > 0 and done["mark"] and done["warnings"] == []
    stored = memoir.history(user, "s")
    for have, message in zip(stored, sent, strict=True):
        assert {key: have.get(key) for key in message} == message
    assert [turn["turn_index"] for turn in memoir.history(user, "s", from_turn=1, to_turn=2)] == [1, 2]
    memoir.persist_turn(user, "s", USER | {"created_at": datetime(2024, 5, 1, tzinfo=UTC)})
    assert memoir.history(user, "s")[4]["created_at"] == "2024-05-01T00:00:00+00:00"


def test_bad_messages_are_refused(memoir: Client, user: str) -> None:
    malformed: list[Any] = [{"role": "narrator", "content": "x"}, {"role": "user"}, {"role": "user", "content": 7}]
    mismatched: list[Any] = [[RESULT], [CALLING], [CALLING, USER]]
    tables = {errors.InvalidMessageError: [[], *([message] for message in malformed)]}
    for error, table in (tables | {errors.ToolCallMismatchError: mismatched}).items():
        for messages in table:
            with pytest.raises(error):
                memoir.persist_turn(user, "s", messages)
            with pytest.raises(errors.UnknownSessionError):
                memoir.history(user, "s")  # all or nothing


def test_text_postgresql_refuses_is_replaced(memoir: Client, user: str) -> None:
    result = RESULT | {"content": "half \ud83d, cut \ud83d\ude00, nul\0"}
    memoir.persist_turn(user, "s", [USER, CALLING, result, ANSWER])
    assert memoir.history(user, "s")[2]["content"] == "half \ufffd, cut 😀, nul\ufffd"
    assert memoir.compile_context(user, "s", "What\0?")[-1]["content"].endswith("What\ufffd?")
    memoir.remember(user, "Likes\0 tea", tags=["\udfff"])
    [memory] = memoir.list_memories(user)
    assert (memory.content, memory.tags) == ("Likes\ufffd tea", ["\ufffd"])
    with pytest.raises(errors.InvalidTextError, match="session holds a NUL"):
        memoir.persist_turn(user, "s\0", [USER])


def test_empty_user_message_is_kept(memoir: Client, user: str) -> None:
    empty = {"role": "user", "content": ""}
    memoir.persist_turn(user, "s", [empty, ANSWER])
    memoir.append(user, "s", empty)
    for messages in (memoir.compile_context(user, "s"), memoir.compile_context(user, "s", "")):
        assert [message["content"] for message in messages] == ["", ANSWER["content"], ""]
    request = memoir.compile_anthropic(user, "s", " ")
    assert [m["content"][0]["text"] for m in request["messages"]] == ["(empty)", ANSWER["content"], "(empty)"]


def test_steps_of_an_agent(memoir: Client, user: str) -> None:
    session = memoir.session(user, "s", system_prompt="Be brief.")
    session.append([USER, CALLING])
    with pytest.raises(errors.NothingToContinueError):
        session.compile_context()
    with pytest.raises(errors.ToolCallMismatchError):
        session.persist_turn([USER])
    session.append([RESULT])
    messages = session.compile_context()
    assert roles_of(messages) == ["system", "user", "assistant", "tool"]
    assert messages[0]["content"].startswith("Be brief.") and messages[1]["content"].endswith(USER["content"])
    assert messages[2]["tool_calls"] == [CALL] and messages[3]["tool_call_id"] == "c1"
    session.append([ANSWER])
    assert session.info()["turns"] == 4 and session.info()["open_calls"] == []


def test_retry_and_closed_session_store_nothing(memoir: Client, user: str) -> None:
    first = memoir.persist_turn(user, "s", [USER], key="k")
    assert memoir.persist_turn(user, "s", [USER], key="k") == first and len(memoir.history(user, "s")) == 1
    with pytest.raises(errors.KeyReusedError):
        memoir.persist_turn(user, "s", [ANSWER], key="k")
    assert isinstance(memoir.open_session(user, "s"), uuid.UUID)
    memoir.close_session(user, "s")
    with pytest.raises(errors.SessionClosedError):
        memoir.persist_turn(user, "s", [USER, ANSWER])
    with pytest.raises(errors.UnknownSessionError):
        memoir.close_session(user, "nothing")


def test_list_for_the_model(memoir: Client, user: str) -> None:
    memoir.open_session(user, "s", system_prompt="Be brief.")
    memoir.persist_turn(user, "s", [USER, ANSWER])
    messages = memoir.compile_context(user, "s", "What did I keep?")
    assert roles_of(messages) == ["system", "user", "assistant", "user"]
    assert messages[-1]["content"].endswith("What did I keep?")
    request = memoir.compile_anthropic(user, "s", "What did I keep?")
    assert roles_of(request["messages"]) == ["user", "assistant", "user"] and request["system"]
    about = memoir.context(user, "s", "What did I keep?")
    assert about["messages"] == messages and about["tokens"] <= about["budget"]
    # A user message without an answer is not repeated, and a compile changes nothing that was persisted.
    memoir.append(user, "s", {"role": "user", "content": "And now?"})
    assert sum("And now?" in str(m["content"]) for m in memoir.compile_context(user, "s", "And now?")) == 1
    assert memoir.compile_context(user, "s")[-1]["content"].endswith("And now?")


def test_budget_holds_or_is_refused(memoir: Client, user: str) -> None:
    for number in range(20):
        memoir.persist_turn(user, "s", [{"role": "user", "content": f"Question {number} " * 9}, ANSWER])
    about = memoir.context(user, "s", "And now?", budget=200)
    assert about["tokens"] <= 200 and 1 < len(about["messages"]) < 20 and about["messages"][0]["role"] == "user"
    with pytest.raises(errors.BudgetTooSmallError) as caught:
        memoir.compile_context(user, "s", "A long question. " * 40, budget=50)
    assert caught.value.budget == 50 and (caught.value.needed or 0) > 50 and (caught.value.message_tokens or 0) > 50


def test_memories_are_listed_and_forgotten(memoir: Client, user: str) -> None:
    first = memoir.remember(user, "Drinks tea", type="preference", tags=["food"])
    assert first["outcome"] == "stored" and memoir.remember(user, "drinks tea")["outcome"] == "duplicate"
    [row] = memoir.list_memories(user)
    assert type(row) is Memory and (str(row.memory_id), row.content) == (first["memory_id"], "Drinks tea")
    assert (row.type, row.state, row.tags) == ("preference", "active", ["food"])
    assert memoir.list_memories(user, types=["decision"]) == []
    assert (
        memoir.list_memories(user, after=row.said_at) == [row] and memoir.list_memories(user, before=row.said_at) == []
    )
    assert "Drinks tea" in str(memoir.compile_context(user, "s", "Which tea do I drink?"))
    assert memoir.forget(user, row.memory_id)["state"] == "forgotten"
    [gone] = memoir.list_memories(user, states=["forgotten"])
    assert gone.content is None and memoir.list_memories(user) == []
    assert "Drinks tea" not in str(memoir.compile_context(user, "s", "Which tea do I drink?"))
    refused = memoir.remember(user, "Drinks tea")
    assert (refused["outcome"], refused["memory_id"]) == ("refused_tombstone", None) and refused["hint"]


def test_bad_arguments_are_refused(memoir: Client, user: str) -> None:
    for refused, error in (
        (lambda: memoir.remember(user, " "), errors.InvalidArgumentError),
        (lambda: memoir.remember(user, "x", type="wonderful"), errors.InvalidArgumentError),
        (lambda: memoir.remember(user, "x", session="nothing"), errors.UnknownSessionError),
        (lambda: memoir.forget(user, uuid.uuid4()), errors.UnknownMemoryError),
        (lambda: memoir.forget(user, "no uuid"), errors.InvalidArgumentError),
        (lambda: memoir.persist_turn(user, "", [USER]), errors.InvalidArgumentError),
        (lambda: memoir.session_info(user, "nothing"), errors.UnknownSessionError),
    ):
        with pytest.raises(error):
            refused()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["database", "stand-in"])
async def test_async_client_answers_the_same(kind: str, request: pytest.FixtureRequest, user: str) -> None:
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


# The stand-in by itself -----------------------------------------------------------------------------------------------


def test_stand_in_copies_and_has_a_clock(user: str) -> None:
    memoir, message = testing.Memoir(), dict(USER)
    memoir.persist_turn(user, "s", [message])
    message["content"] = memoir.history(user, "s")[0]["content"] = "changed"
    assert memoir.history(user, "s")[0]["content"] == USER["content"]
    memoir.store.now = datetime(2030, 1, 1, tzinfo=UTC)
    memoir.persist_turn(user, "s", [ANSWER])
    assert memoir.history(user, "s")[1]["created_at"] == "2030-01-01T00:00:00+00:00"
    assert testing.Memoir(store=memoir.store).history(user, "s")  # another client sees the same store
    with pytest.raises(errors.MaintenanceUnavailableError, match="set_schedule needs a database"):
        memoir.set_schedule("flush", None)


# The database alone ---------------------------------------------------------------------------------------------------


def test_client_types_of_searches(database: Client, user: str) -> None:
    database.persist_turn(user, "old", [USER, ANSWER])
    database.remember(user, "The Brompton was bought in Porto")
    assert {type(row) for row in database.explain(user, "new", "Which Brompton do I keep?")} == {Considered}
    assert {type(hit) for hit in database.recall(user, "green Brompton")} == {Hit}
    [turn, *_] = database.recall(user, "green Brompton", kinds=["turn"])
    assert (turn.session, turn.turn_index, turn.role, turn.content) == ("old", 0, "user", USER["content"])
    assert [type(hit) for hit in database.memory_index(user, "Brompton", limit=1)] == [IndexHit]
    around = database.memory_timeline(user, turn.id)
    assert {type(line) for line in around} == {TimelineLine} and any(line.is_anchor for line in around)
    assert [type(speaker) for speaker in database.list_speakers(user, session="old")] == [Speaker, Speaker]
    space = f"space-{user}"
    assert database.create_space(user, space) == pg_memoir.in_space(user, space)
    database.grant_space(user, space, "friend", role="writer", names=["Ann"])
    assert [type(one) for one in database.list_spaces(user)] == [Space]
    assert [type(one) for one in database.list_space_members(user, space)] == [SpaceMember, SpaceMember]
    database.remember(pg_memoir.in_space("friend", space), "A green tandem")
    assert [hit.space for hit in database.recall(user, "tandem", limit=1)] == [space]
    database.revoke_space(user, space, "friend")
    [row] = database.list_sessions(user, after=turn.said_at)
    assert (type(row), row.title) == (SessionRow, USER["content"]) and database.list_sessions(
        user, before=row.said_at
    ) == []


def test_client_types_of_memories(database: Client, user: str) -> None:
    cat = database.remember(user, "Has a grey cat")["memory_id"]
    done = database.correct(user, cat, "Has a black cat")
    assert done["outcome"] == "corrected" and done["corrected"] == [cat]
    states = database.memory_history(user, done["memory_id"])
    assert {type(state) for state in states} == {MemoryState}
    database.forget(user, done["memory_id"])
    [stone, *_] = database.list_tombstones(user)
    assert type(stone) is Tombstone and stone.content is None
    assert database.lift_tombstone(user, done["memory_id"])["restored"] == [done["memory_id"]]
    one, two = (database.remember(user, text)["memory_id"] for text in ("The roof leaks", "The attic is wet"))
    assert database.relate(user, two, "caused_by", one) and not database.relate(user, two, "caused_by", one)
    [edge] = database.memory_graph(user, one)
    assert (str(edge.source_id), edge.relation, str(edge.target_id), edge.hop) == (two, "caused_by", one, 1)


def test_calls_are_kept_byte_for_byte(database: Client, user: str) -> None:
    call = database.capture_call(user, "s", b"\x00request", response=b"\xff", events=[b"one", b"two"], status=200)
    [row] = database.list_calls(user, "s")
    assert (row.call_id, row.request_bytes, row.events, row.status) == (call, 8, 2, 200)
    parts = [(part.kind, part.body) for part in database.read_call(user, call)]
    assert parts == [("request", b"\x00request"), ("response", b"\xff"), ("event", b"one"), ("event", b"two")]
    with pytest.raises(errors.UnknownMemoryError):
        database.read_call(user, uuid.uuid4())


def test_memory_tools_answer_the_model(database: Client, user: str) -> None:
    database.remember(user, "Sails on Sundays")
    database.persist_turn(user, "s", [USER, ANSWER])
    session = database.session(user, "s")
    assert "Sails on Sundays" in session.call_memory_tool("memory_search", {"query": "sails"})
    for name, arguments in (("nothing", {}), ("memory_search", {}), ("no\0ne", {})):
        assert session.call_memory_tool(name, arguments).startswith("Error")


def test_types_name_every_choice(db: psycopg.Connection) -> None:
    named = {"item_state": State, "session_status": SessionStatus, "task_type": Task, "sensitivity": Sensitivity}
    for enum, literal in named.items():
        assert one(db, f"select enum_range(null::_memoir.{enum})::text[]") == list(get_args(literal)), enum
