"""The door: what can't be stored names itself and leaves nothing behind."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import ANSWER, CALL, USER, history, store
from psycopg.types.json import Jsonb
from refusals import EXCHANGE, IMAGE, as_sent, refused, rows

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
