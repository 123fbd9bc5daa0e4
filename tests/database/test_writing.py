"""The door: what is stored is what was sent, and what can't be stored names itself and leaves nothing behind."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from calls import ANSWER, CALL, USER, call, history, messages, store
from psycopg.types.json import Jsonb

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
EXCHANGE: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Where is it?", "cache_control": None}, IMAGE],
        "name": "Ann",
        "created_at": "2024-02-29T12:00:00.25+01:00",
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [CALL | {"index": None}, CALL | {"id": "call_2"}],
        "audio": None,
    },
    {"role": "tool", "tool_call_id": "call_2", "content": "in Bonn"},
    {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": [{"type": "text", "text": "in "}, {"type": "text", "text": "Cologne"}],
        "x": {"y": [1.50, None]},
    },
    {"role": "assistant", "content": None, "refusal": "I can't tell.", "annotations": []},
    {"role": "user", "content": ""},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "There."}, {"type": "refusal", "refusal": "Not where."}],
        "name": "bot",
    },
]
ADDED = ("turn_index", "message_id", "tokens", "tokenizer", "model")


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """What history adds taken away; times as points in time."""
    kept = {key: value for key, value in message.items() if key not in ADDED and key != "created_at"}
    return json.loads(json.dumps(kept))


def refused(db: psycopg.Connection, function: str, code: str, *fragments: str, **arguments: Any) -> None:
    """The call raises this code, its message has all fragments, and every table has as many rows as before."""
    before = rows(db)
    with pytest.raises(psycopg.Error) as caught:
        call(db, function, **arguments)
    assert caught.value.sqlstate == code, f"{caught.value.sqlstate}: {caught.value}"
    for fragment in fragments:
        assert fragment in caught.value.diag.message_primary
    assert rows(db) == before


def rows(db: psycopg.Connection) -> dict[str, int]:
    """Rows of every table of the product."""
    tables = db.execute(
        """select relname from pg_class where relnamespace = '_memoir'::regnamespace and relkind in ('r', 'p') and not relispartition"""
    ).fetchall()
    counts = " union all ".join(f"select '{name}', (select count(*) from _memoir.{name})" for (name,) in tables)
    return dict(db.execute(counts).fetchall())


@pytest.fixture
def setting(db: psycopg.Connection) -> Iterator[Any]:
    """setting(key, value): set for one test."""
    changed = []

    def change(key: str, value: Any) -> None:
        changed.append(key)
        db.execute("select memoir.set_setting(%s, %s)", [key, Jsonb(value)])

    yield change
    for key in changed:
        db.execute("select memoir.reset_setting(%s)", [key])


# Refused at the door --------------------------------------------------------------------------------------------------

WHERE = "messages[0]"
BAD_MESSAGES: list[tuple[Any, str, str]] = [
    # messages, code, what the error says
    ({}, "PM010", 'messages must be a list of at least one message, not "{}"'),
    ([], "PM010", "messages must be a list"),
    ("hello", "PM010", 'not ""hello""'),
    (None, "PM010", "messages must be a list"),
    ([None], "PM010", f"{WHERE} must be an object"),
    ([["user", "hi"]], "PM010", f"{WHERE} must be an object"),
    ([USER, "hi"], "PM010", 'messages[1] must be an object, not ""hi""'),
    ([{"content": "hi"}], "PM010", f"{WHERE}.role must be system, developer, user, assistant or tool, not null"),
    ([{"role": "robot", "content": "hi"}], "PM010", 'not "robot"'),
    ([{"role": "User", "content": "hi"}], "PM010", 'not "User"'),
    (
        [{"role": "function", "name": "f", "content": "hi"}],
        "PM010",
        f'{WHERE}.role must be system, developer, user, assistant or tool, not "function"',
    ),
    ([{"role": 5, "content": "hi"}], "PM010", f"{WHERE}.role"),
    ([{"role": "user"}], "PM010", f"{WHERE}.content is missing"),
    ([{"role": "user", "content": None}], "PM010", f"{WHERE}.content is missing"),
    ([{"role": "assistant", "content": None}], "PM010", f"{WHERE}.content is missing"),
    ([{"role": "user", "content": 5}], "PM010", f'{WHERE}.content must be a string or a list of parts, not "5"'),
    ([{"role": "user", "content": {"type": "text", "text": "hi"}}], "PM010", f"{WHERE}.content must be a string"),
    ([{"role": "user", "content": []}], "PM010", f"{WHERE}.content must not be an empty list"),
    ([{"role": "user", "content": ["hi"]}], "PM010", f"{WHERE}.content[0] must be an object, not"),
    (
        [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"text": "hi"}]}],
        "PM010",
        f"{WHERE}.content[1].type null",
    ),
    ([{"role": "user", "content": [{"type": "text"}]}], "PM010", f"{WHERE}.content[0].text must be a string, not null"),
    (
        [{"role": "user", "content": [{"type": "text", "text": ["hi"]}]}],
        "PM010",
        f"{WHERE}.content[0].text must be a string",
    ),
    (
        [{"role": "user", "content": [{"type": "video", "video": "x"}]}],
        "PM010",
        f'{WHERE}.content[0].type "video" can\'t be stored',
    ),
    ([{"role": "user", "content": [{"type": "refusal", "refusal": "no"}]}], "PM010", "role user"),
    (
        [{"role": "assistant", "content": [IMAGE]}],
        "PM010",
        f'{WHERE}.content[0].type "image_url" can\'t be stored in a message of role assistant',
    ),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": "https://example.com"}]}],
        "PM010",
        f"{WHERE}.content[0].image_url.url",
    ),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
        "PM010",
        'not "file:///etc/passwd"',
    ),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.b", "detail": "ultra"}}]}],
        "PM010",
        "image_url.detail must be",
    ),
    (
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": 1}]}],
        "PM010",
        f"{WHERE}.content[0].refusal must be a string",
    ),
    ([USER | {"name": "two words"}], "PM010", f"{WHERE}.name must be 1 to 64 characters"),
    ([USER | {"name": ""}], "PM010", f"{WHERE}.name"),
    ([USER | {"name": "x" * 65}], "PM010", f"{WHERE}.name"),
    ([USER | {"name": {"first": "Ann"}}], "PM010", f"{WHERE}.name"),
    ([USER | {"tool_calls": [CALL]}], "PM010", f"{WHERE}.tool_calls can't stand in a message of role user"),
    ([USER | {"tool_call_id": "call_1"}], "PM010", f"{WHERE}.tool_call_id can't stand in a message of role user"),
    (
        [ANSWER | {"function_call": {"name": "f", "arguments": "{}"}}],
        "PM010",
        f"{WHERE}.function_call is the deprecated form",
    ),
    ([ANSWER | {"tool_calls": []}], "PM010", f"{WHERE}.tool_calls must be a list with at least one call"),
    ([ANSWER | {"tool_calls": {}}], "PM010", f"{WHERE}.tool_calls must be a list"),
    ([ANSWER | {"tool_calls": ["track"]}], "PM010", f"{WHERE}.tool_calls[0] must be an object"),
    (
        [ANSWER | {"tool_calls": [CALL, CALL | {"id": ""}]}],
        "PM010",
        f"{WHERE}.tool_calls[1].id must be a string of 1 to 200 characters",
    ),
    ([ANSWER | {"tool_calls": [CALL | {"id": "x" * 201}]}], "PM010", f"{WHERE}.tool_calls[0].id"),
    (
        [ANSWER | {"tool_calls": [CALL | {"id": 7}]}],
        "PM010",
        f'{WHERE}.tool_calls[0].id must be a string of 1 to 200 characters, not "7"',
    ),
    ([ANSWER | {"tool_calls": [CALL, CALL]}], "PM010", f'{WHERE}.tool_calls[1].id "call_1" occurs twice'),
    (
        [ANSWER | {"tool_calls": [CALL | {"type": "custom"}]}],
        "PM010",
        f'{WHERE}.tool_calls[0].type must be function, not "custom"',
    ),
    (
        [ANSWER | {"tool_calls": [CALL | {"function": {"name": "a b", "arguments": ""}}]}],
        "PM010",
        f"{WHERE}.tool_calls[0].function.name",
    ),
    (
        [ANSWER | {"tool_calls": [CALL | {"function": {"name": "f", "arguments": {}}}]}],
        "PM010",
        f"{WHERE}.tool_calls[0].function.arguments must be a string of JSON",
    ),
    ([ANSWER | {"tool_calls": [CALL | {"function": None}]}], "PM010", f"{WHERE}.tool_calls[0].function.name"),
    ([{"role": "tool", "content": "x"}], "PM010", f"{WHERE}.tool_call_id must be a string, not null"),
    ([{"role": "tool", "tool_call_id": 3, "content": "x"}], "PM010", f"{WHERE}.tool_call_id must be a string"),
    (
        [{"role": "tool", "tool_call_id": "call_9", "content": "x"}],
        "PM011",
        f'{WHERE}.tool_call_id "call_9" answers no open tool call',
    ),
    (
        [USER, ANSWER | {"tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_2", "content": "x"}],
        "PM011",
        'messages[2].tool_call_id "call_2"',
    ),
    (
        [USER, ANSWER | {"tool_calls": [CALL]}, USER],
        "PM011",
        "messages[2] (user) comes before the results of tool calls call_1",
    ),
    ([USER, ANSWER | {"tool_calls": [CALL]}], "PM011", "tool calls call_1 have no result"),
    (
        [USER, ANSWER | {"tool_calls": [CALL]}] + 2 * [{"role": "tool", "tool_call_id": "call_1", "content": "x"}],
        "PM011",
        'messages[3].tool_call_id "call_1"',
    ),
    *[
        ([USER | {"created_at": value}], "PM010", f"{WHERE}.created_at must be a time")
        for value in (
            "yesterday",
            "now",
            "infinity",
            "epoch",
            "",
            "1899-12-31T23:59:59Z",
            "2199-01-01T00:00:00Z",
            "2024-13-01",
            "2024-02-30",
            "03/04/2024",
            "2024-01-01T25:00:00Z",
            "2024-01-01T00:00:00+99:00",
            -1e15,
            1e300,
            1e12,
            True,
            [],
            {"at": 1},
        )
    ],
]


def test_bad_messages_name_field_and_value(db: psycopg.Connection, user: str) -> None:
    for sent, code, said in BAD_MESSAGES:
        refused(
            db,
            "persist_turn",
            code,
            said,
            p_user=user,
            p_session="s",
            p_messages=Jsonb(sent) if sent is not None else None,
        )
        if code == "PM010" and isinstance(sent, list) and sent and sent != [None]:
            # Behind good messages the path says where, and nothing of the good ones stays either.
            refused(
                db,
                "append_messages",
                code,
                said.replace("messages[1]", "messages[4]").replace(WHERE, "messages[3]"),
                p_user=user,
                p_session="s",
                p_messages=Jsonb([USER, ANSWER, USER, *sent]),
            )


def calls_of(user: str) -> list[tuple[str, str, str, dict[str, Any]]]:
    """function, code, what the error says, arguments: one of each kind of bad argument."""
    turn = {"p_user": user, "p_session": "open", "p_messages": Jsonb([USER])}
    memory = {"p_user": user, "p_content": "Likes tea."}
    bad_texts: list[tuple[str, str]] = [("", "1 to"), ("x" * 501, "1 to")]
    return [
        *[
            ("persist_turn", "PM014", f"usage.{field} must be", turn | {"p_usage": Jsonb({field: value})})
            for field in ("prompt_tokens", "completion_tokens", "latency_ms")
            for value in (-1, 1.5, "7", True, [1], 2**31)
        ],
        *[
            ("persist_turn", "PM014", f"usage.{field} must be", turn | {"p_usage": Jsonb({field: value})})
            for field in ("model", "finish_reason")
            for value in ("", 5, ["gpt-4o"], {"name": "x"}, "x" * 201)
        ],
        *[
            ("persist_turn", "PM014", f"{name} must be a JSON object, not", turn | {f"p_{name}": Jsonb(value)})
            for name in ("usage", "metadata")
            for value in ([], "x", 5, True)
        ],
        ("persist_turn", "PM014", "key must be a text of 1 to 200", turn | {"p_key": ""}),
        ("persist_turn", "PM014", "key must be a text of 1 to 200", turn | {"p_key": "x" * 201}),
        *[("persist_turn", "PM014", 'actor must be person, agent or tool, not "robot"', turn | {"p_actor": "robot"})],
        *[
            ("persist_turn", "PM014", f"user must be a text of {said}", turn | {"p_user": text})
            for text, said in bad_texts
        ],
        *[
            ("persist_turn", "PM014", f"session must be a text of {said}", turn | {"p_session": text})
            for text, said in bad_texts
        ],
        ("persist_turn", "PM014", "session must be", turn | {"p_session": None}),
        (
            "open_session",
            "PM014",
            "model must be a text of 1 to 200 characters",
            {"p_user": user, "p_session": "new", "p_model": "x" * 201},
        ),
        *[
            (
                "open_session",
                "PM014",
                'session "new" can\'t have a window of',
                {"p_user": user, "p_session": "new"} | dict(zip(("p_context_window", "p_response_tokens"), sizes)),
            )
            for sizes in ((0, None), (-5, 1), (100, 100), (100, 0), (None, 32768))
        ],
        (
            "open_session",
            "PM014",
            'task must be continuation, knowledge, new_session or tool_heavy, not "chat"',
            {"p_user": user, "p_session": "new", "p_task": "chat"},
        ),
        ("open_session", "PM014", "project must be", {"p_user": user, "p_session": "new", "p_project": ""}),
        (
            "open_session",
            "PM003",
            'unknown parent session "nobody"',
            {"p_user": user, "p_session": "new", "p_parent": "nobody"},
        ),
        (
            "open_session",
            "PM003",
            'unknown parent session "open"',
            {"p_user": user, "p_session": "open", "p_parent": "open"},
        ),
        (
            "open_session",
            "PM014",
            "metadata must be a JSON object",
            {"p_user": user, "p_session": "new", "p_metadata": Jsonb([1])},
        ),
        (
            "open_session",
            "PM014",
            "settings must be a JSON object",
            {"p_user": user, "p_session": "new", "p_settings": Jsonb([1])},
        ),
        (
            "open_session",
            "PM015",
            'unknown setting "colour"',
            {"p_user": user, "p_session": "new", "p_settings": Jsonb({"colour": 1})},
        ),
        ("close_session", "PM003", 'unknown session "nobody"', {"p_user": user, "p_session": "nobody"}),
        (
            "branch_session",
            "PM003",
            'unknown session "nobody"',
            {"p_user": user, "p_session": "nobody", "p_new_session": "new"},
        ),
        (
            "branch_session",
            "PM014",
            'session "open" exists already',
            {"p_user": user, "p_session": "open", "p_new_session": "open"},
        ),
        *[
            (
                "branch_session",
                "PM014",
                f'can\'t branch session "open" at turn {at}',
                {"p_user": user, "p_session": "open", "p_new_session": "new", "p_at_turn": at},
            )
            for at in (-1, 3)
        ],
        *[
            ("remember", "PM014", "content must not be empty", memory | {"p_content": content})
            for content in (None, "", " \n\t", "\u2028\u3000")
        ],
        ("remember", "PM014", 'unknown type "gossip"', memory | {"p_type": "gossip"}),
        ("remember", "PM014", "unknown type null", memory | {"p_type": None}),
        (
            "remember",
            "PM014",
            'importance must be critical, important, normal or minor, not "huge"',
            memory | {"p_importance": "huge"},
        ),
        ("remember", "PM014", 'unknown provenance "hearsay"', memory | {"p_provenance": "hearsay"}),
        (
            "remember",
            "PM014",
            'sensitivity must be normal, private or secret, not "public"',
            memory | {"p_sensitivity": "public"},
        ),
        *[
            ("remember", "PM014", "confidence must be from 0 to 1, not", memory | {"p_confidence": value})
            for value in ("-0.1", "1.1", "nan")
        ],
        (
            "remember",
            "PM014",
            "is not after valid_from",
            memory | {"p_valid_from": "2024-02-01", "p_valid_to": "2024-02-01"},
        ),
        ("remember", "PM014", 'slot_value "Bonn" needs a slot', memory | {"p_slot_value": "Bonn"}),
        *[
            ("remember", "PM014", f"{field} must be a text of 1 to", memory | {f"p_{field}": value})
            for field in ("slot", "category", "source_tool", "source_key", "key")
            for value in ("", " \u200b", "x" * 3000)
        ],
        ("remember", "PM014", "tags[1] must be a text", memory | {"p_tags": ["a", ""]}),
        ("remember", "PM014", "aliases[0] must be a text", memory | {"p_aliases": [None]}),
        ("remember", "PM014", "source_turns needs the session", memory | {"p_source_turns": [0]}),
        *[
            (
                "remember",
                "PM014",
                f"source turn {turn} does not exist",
                memory | {"p_session": "open", "p_source_turns": [0, turn]},
            )
            for turn in (2, -1)
        ],
        (
            "remember",
            "PM014",
            "source turn null does not exist",
            memory | {"p_session": "open", "p_source_turns": [None]},
        ),
        ("remember", "PM003", 'unknown session "nobody"', memory | {"p_session": "nobody"}),
        ("remember", "PM014", "metadata must be a JSON object", memory | {"p_metadata": Jsonb("x")}),
        (
            "remember",
            "PM014",
            "created_at must be a time from 1900 to tomorrow",
            memory | {"p_created_at": "2199-01-01T00:00:00Z"},
        ),
        ("remember", "PM014", "project must be", memory | {"p_project": ""}),
        ("remember", "PM014", "actor must be person, agent or tool", memory | {"p_actor": "system"}),
        ("remember", "PM030", "embedding has 3 dimensions", memory | {"p_embedding": "{1,2,3}"}),
        ("forget", "PM004", "unknown memory", {"p_user": user, "p_memory": "00000000-0000-0000-0000-000000000000"}),
    ]


def test_bad_arguments_name_themselves_and_leave_nothing(db: psycopg.Connection, user: str) -> None:
    store(db, user, "open", [USER, ANSWER])
    for function, code, said, arguments in calls_of(user):
        refused(db, function, code, said, **arguments)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(inner, (*path, key))


def mutated(rng: random.Random, paths_of: list[tuple[Any, ...]], times: int) -> Any:
    odd = [
        None,
        True,
        0,
        -1,
        1.5,
        "",
        "x",
        "tool",
        "user",
        "assistant",
        [],
        {},
        [None],
        {"type": "text"},
        "x" * 300,
        "call_1",
        "\u0001\u2028",
        1e30,
        CALL,
        IMAGE,
    ]
    value: Any = copy.deepcopy(EXCHANGE)
    for _ in range(times):
        *outer, last = rng.choice(paths_of)
        inner = value
        try:
            for key in outer:
                inner = inner[key]
            if rng.random() < 0.25:
                del inner[last]
            else:
                inner[last] = copy.deepcopy(rng.choice(odd))
        except (LookupError, TypeError):
            continue  # an earlier change took it away
    return value


def test_whatever_is_sent_is_stored_whole_or_refused_by_name(db: psycopg.Connection, user: str) -> None:
    """Random changes to a good exchange, each for a user of its own: stored exactly, or a typed error and no row anywhere."""
    rng = random.Random(7)
    paths_of = [path for path in paths(EXCHANGE) if path]
    stored = bad = 0
    before = rows(db)
    for number in range(200):
        messages = mutated(rng, paths_of, 1 + number % 3)
        try:
            store(db, f"{user}-{number}", "s", messages)
        except psycopg.Error as error:
            bad += 1
            assert error.sqlstate in {"PM010", "PM011"}, (error, messages)
            assert error.diag.message_primary.startswith(("messages[", "messages must be", "tool calls ")), error
            assert rows(db) == before, messages
        else:
            stored += 1
            assert [as_sent(m) for m in history(db, f"{user}-{number}", "s")] == [
                {k: v for k, v in m.items() if k != "created_at"} for m in messages
            ]
            before = rows(db)
    assert stored > 20 and bad > 80


def test_sizes_and_numbers_are_bounded(db: psycopg.Connection, user: str, setting: Any) -> None:
    setting("text_bytes_max", 4096)
    setting("messages_max", 3)
    turn = {"p_user": user, "p_session": "s"}
    refused(
        db,
        "persist_turn",
        "PM012",
        "messages[1].content is 4098 bytes",
        **turn,
        p_messages=Jsonb([USER, USER | {"content": "é" * 2049}]),
    )
    refused(db, "persist_turn", "PM012", "messages[0] is ", **turn, p_messages=Jsonb([USER | {"extra": "x" * 4096}]))
    refused(
        db,
        "persist_turn",
        "PM012",
        "messages[0] is ",
        **turn,
        p_messages=Jsonb([ANSWER | {"tool_calls": [CALL | {"function": {"name": "f", "arguments": "x" * 4096}}]}]),
    )
    refused(
        db,
        "persist_turn",
        "PM012",
        "metadata is ",
        **turn,
        p_messages=Jsonb([USER]),
        p_metadata=Jsonb({"x": "x" * 4096}),
    )
    refused(
        db,
        "persist_turn",
        "PM010",
        "messages has 4 entries, more than messages_max = 3",
        **turn,
        p_messages=Jsonb([USER] * 4),
    )
    refused(db, "remember", "PM012", "content is 4097 bytes", p_user=user, p_content="x" * 4097)
    refused(db, "remember", "PM012", "metadata is ", p_user=user, p_content="x", p_metadata=Jsonb({"x": "x" * 4096}))
    refused(
        db,
        "open_session",
        "PM012",
        "system_prompt is 4097 bytes",
        p_user=user,
        p_session="s",
        p_system_prompt="x" * 4097,
    )
    store(db, user, "s", [USER | {"content": "x" * 4000}] * 3)


@pytest.mark.parametrize("text", [r'"a\u0000b"', r'"\ud800"', r'"\udc00 x"', r'"x \ud83d"'])
def test_what_json_can_say_and_postgresql_cannot_store(db: psycopg.Connection, user: str, text: str) -> None:
    before = rows(db)
    for sent in (f'[{{"role": "user", "content": {text}}}]', f'[{{"role": "user", "content": "x", {text}: 1}}]'):
        with pytest.raises(psycopg.DataError):
            db.execute("select memoir.persist_turn(%s, 's', %s::jsonb)", [user, sent])
    assert rows(db) == before


# Lossless -------------------------------------------------------------------------------------------------------------


def test_history_is_what_was_sent(db: psycopg.Connection, user: str) -> None:
    done = store(
        db,
        user,
        "s",
        EXCHANGE,
        p_metadata={"trace": "t1", "role": "not this", "turn_index": None},
        p_usage={"model": "gpt-4o-2024-08-06", "finish_reason": "stop"},
    )
    stored = history(db, user, "s")
    for number, (message, sent) in enumerate(zip(stored, EXCHANGE, strict=True)):
        assert as_sent(message) == {k: v for k, v in sent.items() if k != "created_at"} | {
            "metadata": {"trace": "t1", "role": "not this", "turn_index": None}
        }
        assert message["turn_index"] == number and message["message_id"] == done["message_ids"][number]
        assert message.get("model") == ("gpt-4o-2024-08-06" if sent["role"] == "assistant" else None)
        assert message["tokens"] >= 0 and message["tokenizer"] == done["tokenizer"]
    assert datetime.fromisoformat(stored[1]["created_at"]) == datetime(2024, 2, 29, 11, 0, 0, 250000, UTC)
    assert sum(message["tokens"] for message in stored) == done["tokens"]
    assert [m["turn_index"] for (m,) in db.execute("select memoir.history(%s, 's', 2, 4)", [user])] == [2, 3, 4]
    # What history gave can be persisted again: its own names are not mistaken for the application's.
    store(db, user, "copy", stored)
    assert [as_sent(m) for m in history(db, user, "copy")] == [as_sent(m) for m in stored]
    assert [m["turn_index"] for m in history(db, user, "copy")] == list(range(len(EXCHANGE)))


def test_times_mean_the_same_everywhere(db: psycopg.Connection, user: str) -> None:
    """Without a zone a time is UTC, whatever the session's zone and date style."""
    want = datetime(2024, 3, 4, 5, 6, tzinfo=UTC)
    given = [
        "2024-03-04T05:06",
        "2024-03-04 05:06:00",
        "2024-03-04T05:06:00Z",
        "2024-03-04T06:06:00.000+01",
        "2024-03-03T20:06:00-09:00",
        want.timestamp(),
    ]
    try:
        for zone, style in (("UTC", "ISO, MDY"), ("Pacific/Auckland", "SQL, DMY"), ("America/New_York", "German")):
            db.execute(f"set timezone = '{zone}'")
            db.execute(f"set datestyle = '{style}'")
            store(db, user, zone, [USER | {"created_at": value} for value in given])
            assert [datetime.fromisoformat(m["created_at"]) for m in history(db, user, zone)] == [want] * len(given)
    finally:
        db.execute("reset timezone")
        db.execute("reset datestyle")


def test_own_recall_is_stripped_and_nothing_else(db: psycopg.Connection, user: str) -> None:
    store(db, user, "old", [USER | {"content": "My parcel was sent to Ulm in March."}, ANSWER])
    compiled = call(db, "compile_context", p_user=user, p_session="s", p_query="Where was my parcel sent in March?")[
        -1
    ]["content"]
    block = compiled.removesuffix("Where was my parcel sent in March?")
    assert block.startswith("<memoir-recall>") and "Ulm" in block
    parts = [{"type": "text", "text": compiled}, IMAGE]
    kept = [
        "see: " + compiled,  # not at the start
        "<memoir-recall>\nmine\n</memoir-recall>\n\nhello",  # not one of ours
        block.removesuffix("\n\n"),  # not ended as ours are
        compiled.replace("</memoir-recall>", ""),
    ]
    store(
        db,
        user,
        "s",
        [
            USER | {"content": compiled},
            USER | {"content": block + compiled},
            USER | {"content": parts},
            *[USER | {"content": text} for text in kept],
            ANSWER | {"content": compiled},
        ],
    )
    query = "Where was my parcel sent in March?"
    assert [m["content"] for m in history(db, user, "s")] == [
        query,
        query,
        [{"type": "text", "text": query}, IMAGE],
        *kept,
        compiled,
    ]


# Idempotency ----------------------------------------------------------------------------------------------------------


def test_a_retry_returns_the_first_result(db: psycopg.Connection, user: str) -> None:
    first = store(db, user, "s", [USER, ANSWER], p_key="k1", p_usage={"prompt_tokens": 5})
    before = rows(db)
    assert store(db, user, "s", [USER, ANSWER], p_key="k1", p_usage={"prompt_tokens": 5}) == first
    for other in (
        {"p_messages": Jsonb([USER])},
        {"p_session": "t"},
        {"p_usage": Jsonb({"prompt_tokens": 6})},
        {"p_actor": "agent"},
        {"p_metadata": Jsonb({"a": 1})},
    ):
        refused(
            db,
            "persist_turn",
            "PM006",
            'key "k1" was used with another request',
            **(
                {
                    "p_user": user,
                    "p_session": "s",
                    "p_messages": Jsonb([USER, ANSWER]),
                    "p_usage": Jsonb({"prompt_tokens": 5}),
                    "p_key": "k1",
                }
                | other
            ),
        )
    refused(
        db,
        "append_messages",
        "PM006",
        "k1",
        p_user=user,
        p_session="s",
        p_messages=Jsonb([USER, ANSWER]),
        p_usage=Jsonb({"prompt_tokens": 5}),
        p_key="k1",
    )
    memory = {"p_user": user, "p_content": "Likes tea.", "p_key": "m1"}
    stored = call(db, "remember", **memory)
    assert call(db, "remember", **memory) == stored and stored["outcome"] == "stored"
    for other in (
        {"p_content": "Likes coffee."},
        {"p_importance": "minor"},
        {"p_tags": ["x"]},
        {"p_sensitivity": "secret"},
        {"p_category": "drinks"},
        {"p_valid_from": "2020-01-01"},
        {"p_slot": "drink"},
        {"p_actor": "agent"},
        {"p_key": "k1"},
    ):
        refused(db, "remember", "PM006", "was used with another request", **(memory | other))
    # A closed session does not make a retry of what it holds an error; another user's key is another key.
    db.execute("select memoir.close_session(%s, 's')", [user])
    assert store(db, user, "s", [USER, ANSWER], p_key="k1", p_usage={"prompt_tokens": 5}) == first
    assert rows(db) == before | {
        "memory_store": before["memory_store"] + 1,
        "memory_states": before["memory_states"] + 1,
        "memory_stats": before["memory_stats"] + 1,
        "search_items": before["search_items"] + 1,
        "search_tail": before["search_tail"] + 1,
        "receipts": before["receipts"] + 1,
        "work_items": before["work_items"] + 1,
    }  # the closed session's summary
    assert store(db, user + "-2", "s", [USER], p_key="k1")["turn_count"] == 1
    assert refusal_leaves_the_key_free(db, user)


def refusal_leaves_the_key_free(db: psycopg.Connection, user: str) -> bool:
    with pytest.raises(psycopg.Error):
        store(db, user, "u", [USER, {"role": "robot"}], p_key="k2")
    return store(db, user, "u", [USER], p_key="k2")["turn_count"] == 1


# Sessions -------------------------------------------------------------------------------------------------------------


def test_open_session_defaults_and_changes(db: psycopg.Connection, user: str) -> None:
    first = call(db, "open_session", p_user=user, p_session="s")
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["model"], info["project"], info["task"], info["status"], info["turns"]) == (
        "default",
        "global",
        None,
        "active",
        0,
    )
    again = call(
        db,
        "open_session",
        p_user=user,
        p_session="s",
        p_model="gpt-4",
        p_task="knowledge",
        p_metadata=Jsonb({"a": 1, "b": 1}),
        p_settings=Jsonb({"window_steps": 2}),
    )
    assert again == first
    call(
        db,
        "open_session",
        p_user=user,
        p_session="s",
        p_metadata=Jsonb({"b": 2}),
        p_settings=Jsonb({"weak_below": 0.3}),
    )
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["model"], info["context_window"], info["tokenizer"], info["task"]) == (
        "gpt-4",
        8192,
        "cl100k_base",
        "knowledge",
    )
    assert info["metadata"] == {"a": 1, "b": 2} and info["settings"] == {"window_steps": 2, "weak_below": 0.3}
    call(db, "open_session", p_user=user, p_session="s", p_settings=Jsonb({"window_steps": None}))
    assert call(db, "session_info", p_user=user, p_session="s")["settings"] == {"weak_below": 0.3}
    # A session keeps the window it was opened with until its model is changed.
    call(db, "register_model", p_model="own", p_provider="openai", p_context_window=5000, p_max_output=100)
    call(db, "open_session", p_user=user, p_session="s", p_model="own")
    call(db, "register_model", p_model="own", p_provider="openai", p_context_window=9000, p_max_output=100)
    call(db, "open_session", p_user=user, p_session="s", p_task="continuation")
    assert call(db, "session_info", p_user=user, p_session="s")["context_window"] == 5000
    call(db, "open_session", p_user=user, p_session="s", p_model="own")
    assert call(db, "session_info", p_user=user, p_session="s")["context_window"] == 9000
    # A first turn opens it with the model that answered.
    store(db, user, "t", [USER, ANSWER], p_usage={"model": "gpt-4o-2024-11-20"})
    assert call(db, "session_info", p_user=user, p_session="t")["context_window"] == 128000


def test_a_model_that_is_not_registered_counts_as_the_default_and_says_so(db: psycopg.Connection, user: str) -> None:
    notices: list[str] = []
    db.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    call(db, "open_session", p_user=user, p_session="s", p_model="gpt5-mini")
    assert len(notices) == 1 and 'model "gpt5-mini" is not registered' in notices[0], notices
    assert "near it: " in notices[0] and "gpt-5-mini" in notices[0].split("near it: ")[1], notices
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["context_window"], info["response_tokens"], info["tokenizer"]) == (32768, 4096, "estimate")
    context = call(db, "context", p_user=user, p_session="s", p_query="Hi")
    assert context["warnings"] == notices and context["model"] == "gpt5-mini"
    # The first turn of a session opens it with whatever model answered.
    assert "is not registered" in store(db, user, "t", [USER, ANSWER], p_usage={"model": "hal-9000"})["warnings"][0]
    assert "near it" not in call(db, "context", p_user=user, p_session="t", p_query="Hi")["warnings"][0]
    assert call(db, "count_tokens", p_text="Hello there", p_model="hal-9000") == call(
        db, "estimate_tokens", p_text="Hello there"
    )
    # Registered, and the session opened with it again: no more to say.
    call(db, "register_model", p_model="gpt5-mini", p_provider="openai", p_context_window=64000, p_max_output=4000)
    call(db, "open_session", p_user=user, p_session="s", p_model="gpt5-mini")
    context = call(db, "context", p_user=user, p_session="s", p_query="Hi")
    assert (context["warnings"], context["budget"]) == ([], 60000)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("gpt-5", 400000),
        ("gpt-5-mini-2025-08-07", 400000),
        ("openai/gpt-5.2", 400000),
        ("o3", 200000),
        ("o4-mini", 200000),
        ("models/gemini-2.5-flash", 1048576),
        ("claude-3-7-sonnet-20250219", 200000),
        ("us.anthropic.claude-opus-4-6-20260205-v1:0", 1000000),
        ("claude-opus-4-1", 200000),
        ("meta-llama/Llama-3.3-70B-Instruct", 131072),
        ("meta.llama3-1-70b-instruct-v1:0", 131072),
        ("llama3.1:8b", 131072),
        ("Qwen/Qwen3-32B", 32768),
        ("mistral-large-latest", 262144),
        ("deepseek-chat", 131072),
    ],
)
def test_models_of_today_are_known_by_the_names_they_go_by(
    db: psycopg.Connection, user: str, name: str, window: int
) -> None:
    call(db, "open_session", p_user=user, p_session="s", p_model=name)
    context = call(db, "context", p_user=user, p_session="s", p_query="Hi")
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["context_window"], info["model"], context["warnings"]) == (window, name, [])
    assert 0 < context["budget"] == window - info["response_tokens"]


def test_a_session_has_its_own_window_and_room_for_the_answer(db: psycopg.Connection, user: str) -> None:
    def sizes() -> tuple[int, int, int]:
        info = call(db, "session_info", p_user=user, p_session="s")
        budget = call(db, "context", p_user=user, p_session="s", p_query="Hi")["budget"]
        return info["context_window"], info["response_tokens"], budget

    call(db, "open_session", p_user=user, p_session="s", p_model="gpt-4o", p_response_tokens=1000)
    assert sizes() == (128000, 1000, 127000)
    call(db, "open_session", p_user=user, p_session="s", p_context_window=2000)
    assert sizes() == (2000, 500, 1500)
    call(db, "open_session", p_user=user, p_session="s", p_context_window=3000, p_response_tokens=100)
    assert sizes() == (3000, 100, 2900)
    call(db, "open_session", p_user=user, p_session="s", p_task="knowledge")
    assert sizes() == (3000, 100, 2900)
    call(db, "open_session", p_user=user, p_session="s", p_model="gpt-4o")
    assert sizes() == (128000, 16384, 111616)


def test_how_the_model_is_called_is_kept_and_returned(db: psycopg.Connection, user: str) -> None:
    def asked(session: str) -> tuple[Any, ...]:
        context = call(db, "context", p_user=user, p_session=session, p_query="Hi")
        return context.get("temperature"), context.get("top_p")

    store(db, user, "plain", [USER, ANSWER])
    assert "temperature" not in call(db, "context", p_user=user, p_session="plain", p_query="Hi") and asked(
        "plain"
    ) == (None, None)
    call(db, "open_session", p_user=user, p_session="s", p_temperature="0.7")
    assert asked("s") == (0.7, None)
    call(db, "open_session", p_user=user, p_session="s", p_top_p=1)  # what is not given stays
    call(db, "open_session", p_user=user, p_session="s", p_task="knowledge")
    store(db, user, "s", [USER, ANSWER])
    assert asked("s") == (0.7, 1)
    call(db, "open_session", p_user=user, p_session="s", p_temperature=0)
    call(db, "branch_session", p_user=user, p_session="s", p_new_session="branch")
    assert asked("branch") == (0, 1)
    call(db, "open_session", p_user=user, p_session="branch", p_temperature=2, p_top_p=0)
    assert (asked("s"), asked("branch")) == ((0, 1), (2, 0))
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["temperature"], info["top_p"], info["closed_at"]) == (0, 1, None)
    call(db, "close_session", p_user=user, p_session="s")
    assert call(db, "session_info", p_user=user, p_session="s")["closed_at"] is not None
    for name, value, message in (
        ("p_temperature", "2.1", "temperature must be from 0 to 2, not 2.1"),
        ("p_temperature", "-0.1", "not -0.1"),
        ("p_top_p", "1.01", "top_p must be from 0 to 1, not 1.01"),
        ("p_top_p", "NaN", "not NaN"),
    ):
        refused(db, "open_session", "PM014", message, p_user=user, p_session="new", **{name: value})


def test_the_prompt_is_counted_for_the_model_in_use(db: psycopg.Connection, user: str) -> None:
    prompt = f"You are a careful helper of {user}: {'naïve façade, 日本語. ' * 20}"
    call(db, "open_session", p_user=user, p_session="s", p_model="gpt-4o", p_system_prompt=prompt)
    call(db, "open_session", p_user=user, p_session="s", p_model="gpt-4")
    counted = db.execute("select tokens from _memoir.system_prompts where content = %s", [prompt]).fetchone()[0]
    for model in ("gpt-4o", "gpt-4"):
        tokenizer = db.execute("select _memoir.tokenizer_used((_memoir.model(%s)).tokenizer)", [model]).fetchone()[0]
        assert counted[tokenizer] == call(db, "count_tokens", p_text=prompt, p_model=model)
    assert call(db, "compile_context", p_user=user, p_session="s", p_query="Hi")[0] == {
        "role": "system",
        "content": prompt,
    }
    call(db, "open_session", p_user=user, p_session="s", p_system_prompt="")
    assert call(db, "compile_context", p_user=user, p_session="s", p_query="Hi")[0]["role"] == "user"


def test_closed_sessions_take_no_turns(db: psycopg.Connection, user: str) -> None:
    store(db, user, "s", [USER, ANSWER])
    call(db, "remember", p_user=user, p_content="Seems to like parcels.", p_session="s")
    for _ in range(2):
        call(db, "close_session", p_user=user, p_session="s")
    refused(db, "persist_turn", "PM005", 'session "s" is closed', p_user=user, p_session="s", p_messages=Jsonb([USER]))
    refused(
        db, "append_messages", "PM005", 'session "s" is closed', p_user=user, p_session="s", p_messages=Jsonb([USER])
    )
    refused(db, "open_session", "PM005", 'session "s" is closed', p_user=user, p_session="s", p_task="knowledge")
    assert call(db, "session_info", p_user=user, p_session="s")["status"] == "closed"
    ends, closed = db.execute(
        "select m.expires_at, s.closed_at from _memoir.memory_store m join _memoir.sessions s on s.session_id = m.local_to where s.user_id = (select user_id "
        "from _memoir.users where external_id = %s)",
        [user],
    ).fetchone()
    assert ends - closed == timedelta(hours=24)
    # It can be read, continued under another name, and branched.
    assert len(history(db, user, "s")) == 2
    call(db, "open_session", p_user=user, p_session="s2", p_parent="s")
    call(db, "branch_session", p_user=user, p_session="s", p_new_session="s3")
    assert store(db, user, "s3", [USER])["turn_count"] == 3


def contents(db: psycopg.Connection, user: str, session: str) -> list[tuple[int, str]]:
    return [(m["turn_index"], m["content"]) for m in history(db, user, session)]


def test_branches_share_turns_by_reference(db: psycopg.Connection, user: str) -> None:
    store(db, user, "a", messages("a0", "a1", "a2", "a3"))
    call(db, "branch_session", p_user=user, p_session="a", p_new_session="b", p_at_turn=2)
    turns = rows(db)["conversation_history"]
    assert contents(db, user, "b") == [(0, "a0"), (1, "a1")]
    assert store(db, user, "b", messages("b2", "b3"))["from_turn"] == 2
    store(db, user, "a", messages("a4", "a5"))
    assert rows(db)["conversation_history"] == turns + 4
    # From a branch, behind its own start, before it, at it, and at nothing.
    for name, at, want in (
        ("c", 4, ["a0", "a1", "b2", "b3"]),
        ("d", 1, ["a0"]),
        ("e", 2, ["a0", "a1"]),
        ("f", 0, []),
        ("g", 3, ["a0", "a1", "b2"]),
    ):
        call(db, "branch_session", p_user=user, p_session="b", p_new_session=name, p_at_turn=at)
        own = messages(f"{name}x", f"{name}y") if at != 3 and at != 1 else [ANSWER | {"content": f"{name}x"}]
        assert store(db, user, name, own)["from_turn"] == at
        assert contents(db, user, name) == list(enumerate([*want, *[m["content"] for m in own]]))
        info = call(db, "session_info", p_user=user, p_session=name)
        assert info["turns"] == at + len(own)
    # Running totals go on where the shared turns end.
    for name in "abcdefg":
        assert call(db, "session_info", p_user=user, p_session=name)["tokens"] == sum(
            m["tokens"] + 4 for m in history(db, user, name)
        )
    assert contents(db, user, "a") == list(enumerate(["a0", "a1", "a2", "a3", "a4", "a5"]))
    call(db, "branch_session", p_user=user, p_session="c", p_new_session="h")
    call(db, "branch_session", p_user=user, p_session="h", p_new_session="i", p_at_turn=3)
    assert contents(db, user, "i") == [(0, "a0"), (1, "a1"), (2, "b2")]
    refused(db, "open_session", "PM014", 'session "i" is a branch', p_user=user, p_session="i", p_parent="a")


def test_branches_and_tool_calls(db: psycopg.Connection, user: str) -> None:
    step = {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "call_2"}]}
    results = [{"role": "tool", "tool_call_id": name, "content": "x"} for name in ("call_1", "call_2")]
    store(db, user, "a", [USER, step, *results, ANSWER])
    for at in (2, 3):
        refused(
            db,
            "branch_session",
            "PM014",
            f'turn {at} of session "a" is a tool result',
            p_user=user,
            p_session="a",
            p_new_session="b",
            p_at_turn=at,
        )
    store(db, user, "a", [USER, step], function="append_messages")
    refused(
        db,
        "branch_session",
        "PM014",
        'can\'t branch session "a" at turn 7',
        p_user=user,
        p_session="a",
        p_new_session="b",
    )
    call(db, "branch_session", p_user=user, p_session="a", p_new_session="b", p_at_turn=4)
    # The branch goes on inside the exchange: its calls are answered, the answer is missing.
    assert call(db, "compile_context", p_user=user, p_session="b")[-1]["role"] == "tool"
    refused(
        db,
        "append_messages",
        "PM011",
        "answers no open tool call",
        p_user=user,
        p_session="b",
        p_messages=Jsonb(results),
    )
    store(db, user, "b", [ANSWER, USER])
    starts = db.execute(
        "select array_agg(exchange_start order by turn_index) from _memoir.conversation_history h join _memoir.sessions s using (user_id, session_id) "
        "where s.external_id = 'b' and user_id = (select user_id from _memoir.users where external_id = %s)",
        [user],
    ).fetchone()[0]
    assert starts == [0, 5]
    call(db, "branch_session", p_user=user, p_session="a", p_new_session="c", p_at_turn=6)
    assert call(db, "compile_context", p_user=user, p_session="c")[-1]["role"] == "user"


def test_agent_loops_append_part_by_part(db: psycopg.Connection, user: str) -> None:
    step = {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "call_2"}]}
    assert store(db, user, "s", [USER, step], function="append_messages")["turn_count"] == 2
    assert call(db, "session_info", p_user=user, p_session="s")["open_calls"] == ["call_1", "call_2"]
    refused(
        db,
        "append_messages",
        "PM011",
        "messages[0] (user) comes before the results of tool calls call_1, call_2",
        p_user=user,
        p_session="s",
        p_messages=Jsonb([USER]),
    )
    store(db, user, "s", [{"role": "tool", "tool_call_id": "call_2", "content": "x"}], function="append_messages")
    refused(
        db,
        "persist_turn",
        "PM011",
        "messages[0] (assistant) comes before the results of tool calls call_1",
        p_user=user,
        p_session="s",
        p_messages=Jsonb([ANSWER]),
    )
    done = store(db, user, "s", [{"role": "tool", "tool_call_id": "call_1", "content": "y"}, ANSWER])
    assert (done["from_turn"], done["to_turn"], done["turn_count"], done["mark"]) == (
        3,
        4,
        5,
        f"{done['session_id'][:8]}:5",
    )
    assert call(db, "session_info", p_user=user, p_session="s")["open_calls"] == []


# Costs ----------------------------------------------------------------------------------------------------------------


def test_usage_and_costs(db: psycopg.Connection, user: str) -> None:
    call(
        db,
        "register_model",
        p_model="cheap",
        p_provider="openai",
        p_context_window=8000,
        p_max_output=100,
        p_prompt_microcents_per_1k=1000,
        p_completion_microcents_per_1k=3000,
    )
    call(
        db,
        "register_model",
        p_model="dear",
        p_provider="openai",
        p_context_window=8000,
        p_max_output=100,
        p_prompt_microcents_per_1k=100000,
        p_completion_microcents_per_1k=0,
    )
    call(db, "open_session", p_user=user, p_session="s", p_model="cheap")
    store(
        db,
        user,
        "s",
        [USER, ANSWER],
        p_usage={
            "prompt_tokens": 1500,
            "completion_tokens": 100.0,
            "latency_ms": 40,
            "finish_reason": "stop",
            "total_tokens": 1600,
        },
    )
    store(
        db, user, "s", [USER, ANSWER], p_usage={"model": "dear-2025-01-01", "prompt_tokens": 10}
    )  # a snapshot of "dear"
    store(
        db, user, "s", [USER, ANSWER], p_usage={"model": "unheard-of", "prompt_tokens": 1000}
    )  # costs as the session's
    store(db, user, "s", [USER, ANSWER], p_usage=None)
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["prompt_tokens"], info["completion_tokens"], info["cost_microcents"]) == (
        2510,
        100,
        1800 + 1000 + 1000,
    )
    assert db.execute(
        "select array_agg((prompt_tokens, completion_tokens, latency_ms, finish_reason)::text order by turn_index) from _memoir.conversation_history h "
        "join _memoir.users u using (user_id) where u.external_id = %s and turn_index < 2",
        [user],
    ).fetchone()[0] == ["(,,,)", "(1500,100,40,stop)"]


@pytest.mark.parametrize("what", ["session", "user"])
def test_budgets_warn_or_refuse(db: psycopg.Connection, user: str, what: str) -> None:
    call(
        db,
        "register_model",
        p_model="priced",
        p_provider="openai",
        p_context_window=8000,
        p_max_output=100,
        p_prompt_microcents_per_1k=1000,
    )
    call(db, "set_user_settings", p_user=user, p_settings=Jsonb({f"budget_microcents_{what}": 2500}))
    call(db, "open_session", p_user=user, p_session="s", p_model="priced")
    call(db, "open_session", p_user=user, p_session="t", p_model="priced")
    usage = {"prompt_tokens": 1000}
    assert store(db, user, "s", [USER], p_usage=usage)["warnings"] == []
    assert store(db, user, "s" if what == "session" else "t", [USER], p_usage=usage)["warnings"] == []
    assert store(db, user, "s", [USER], p_usage=usage)["warnings"] == [
        f"{what} costs 3000 microcents, its budget is 2500"
    ]
    # Above the limit the next call is refused; what was answered is paid for and stored.
    call(db, "set_user_settings", p_user=user, p_settings=Jsonb({"budget_action": "refuse"}))
    for name in ("compile_context", "context"):
        refused(
            db,
            name,
            "PM023",
            f'{what} "{"s" if what == "session" else user}" has cost 3000 microcents, its budget is 2500',
            p_user=user,
            p_session="s",
            p_query="More?",
        )
    db.execute("select * from memoir.explain_context(%s, 's', 'More?')", [user])  # looking is not calling
    warned = store(db, user, "s", [USER], p_usage=usage)["warnings"]
    assert warned == [f"{what} costs 4000 microcents, its budget is 2500"]
    assert call(db, "session_info", p_user=user, p_session="s")["cost_microcents"] == (
        4000 if what == "session" else 3000
    )
    # Other sessions have a budget of their own; a user's holds for all.
    if what == "session":
        found = call(db, "context", p_user=user, p_session="t", p_query="More?")["warnings"]
        assert not any("budget" in warning for warning in found), found
    else:
        refused(db, "context", "PM023", "its budget is 2500", p_user=user, p_session="t", p_query="More?")
    call(db, "set_user_settings", p_user=user, p_settings=Jsonb({"budget_action": "warn"}))
    assert warned[0] in call(db, "context", p_user=user, p_session="s", p_query="More?")["warnings"]
