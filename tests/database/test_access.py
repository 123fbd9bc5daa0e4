"""Each role may call what the reviewed snapshot says and nothing else, and what a function can't take it refuses by name."""

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from calls import ANSWER, CALL, USER, Db, call, one, persist, remembered, store
from catalog import PRIVILEGES, contents, differences, privileges
from internals import count_all_rows, note_audit, own_rows, sql_name
from psycopg.types.json import Jsonb
from refusals import IMAGE, check_refusal, refusal
from routines import NO_RIGHT, World, code, world_of
from servers import ROOT, unique

SNAPSHOT = ROOT / "tests" / "snapshots" / "privileges.txt"
STATISTICS = {"compile_buffer", "kept_recalls"}  # unlogged, left by compiles
SHORT = ("reader", "app", "tenant", "admin", "jobs")


@pytest.fixture(scope="module")
def world(memoir_dsn: str) -> Iterator[World]:
    tenant = {"role": "tenant", "users": ["tom"], "actor": "agent"}
    plain = {role: role for role in ("app", "reader", "admin", "jobs")}
    with world_of(memoir_dsn, **plain, tenant=tenant, nobody="") as world:
        yield world


# Roles ----------------------------------------------------------------------------------------------------------------


def test_privileges_matrix_is_as_reviewed(world: World) -> None:
    now = privileges(world.db)
    if os.environ.get("PG_MEMOIR_UPDATE"):
        SNAPSHOT.write_text(now)
    reviewed = SNAPSHOT.read_text()
    if not one(world.db, "select exists (select from pg_language where lanname = 'plpython3u')"):
        reviewed = reviewed.replace(" embed_backlog", "").replace("_memoir.run_in_python", "")
    assert now.split() == reviewed.split()


def test_public_and_tables_have_no_grants(world: World) -> None:
    rights = [(kind, name, rights) for kind, name, _, rights in world.db.execute(PRIVILEGES) if rights]
    assert [r for r in rights if r[0] in ("table", "sequence", "type")] == []
    assert {str(r[2]) for r in rights if r[0] == "view"} == {"['admin:select']"}
    assert [r for r in rights if any(right.startswith("PUBLIC") for right in r[2])] == []
    attributes = """select rolname from pg_roles where rolname ~ '^memoir_' and (rolsuper or rolcreaterole or rolcreatedb
        or rolreplication or rolbypassrls or rolcanlogin and rolname <> 'memoir_jobs')"""
    assert world.db.execute(attributes).fetchall() == []
    members = """select from pg_auth_members m join pg_roles r on r.oid = m.roleid join pg_roles u on u.oid = m.member
        where r.rolname ~ '^memoir_' and u.rolname ~ '^memoir_'"""
    assert world.db.execute(members).fetchall() == []
    with world.login("nobody") as nobody:
        assert code(lambda: nobody.execute("select memoir.version()")) == NO_RIGHT


def test_definers_pin_a_safe_search_path(world: World) -> None:
    """Of the owner, the same path for all, pg_temp last: unnamed, it would come first. No other role creates in it."""
    definers = world.db.execute("""
        select p.oid::regprocedure::text, p.proowner::regrole::text,
          (select substr(c, 13) from unnest(p.proconfig) c where c like 'search_path=%%'),
          p.proconfig @> '{standard_conforming_strings=on,row_security=on,jit=off}'
        from pg_proc p where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and p.prosecdef""")
    owners, paths, safe = (set(each) for each in list(zip(*definers))[1:])
    assert (owners, safe, len(paths)) == ({"memoir_owner"}, {True}, 1)
    schemas = [schema.strip().strip('"') for schema in paths.pop().split(",")]
    assert schemas[:2] == ["pg_catalog", "memoir_extensions"] and schemas[-1] == "pg_temp"
    for role in ("public", *(f"memoir_{short}" for short in SHORT)):
        for schema in schemas[:-1]:
            assert not one(world.db, "select has_schema_privilege(%s, %s, 'create')", role, schema)


def test_functions_are_not_overloaded(world: World) -> None:
    names = [(r.schema, r.name) for r in world.routines.values()]
    assert sorted(names) == sorted(set(names))
    public = [r for r in world.routines.values() if r.roles and r.schema == "memoir"]
    assert [r.signature for r in public if not all(name.startswith("p_") for name in r.arguments)] == []


UNCHECKED = set(
    """fail statement_times ensure_partitions server_load_now server_problems embed_backlog
    run_job run_in_python cancel_overdue enable_jobs disable_jobs""".split()
)
"""Harmless, or stopped one call further in."""
ELSEWHERE = set("fail enable_jobs disable_jobs ensure_embedder embed_backlog run_in_python".split())
"""Raise as they should, or need what this server may lack."""


@pytest.mark.parametrize(("role", "short_of"), [("reader", "app"), ("app", "admin"), ("tenant", "jobs")])
def test_a_mistaken_grant_opens_no_function(world: World, role: str, short_of: str) -> None:
    """Behind the missing right, the check inside."""
    beyond = [r for r in world.of_role(short_of, role) if short_of != "app" or "p_user" in r.arguments]
    inside = ("PM001", NO_RIGHT) if short_of == "admin" else ("PM001",)  # pg_cron may be missing
    assert len(beyond) > 8
    with world.login(role) as login, world.login("app") as app:
        for routine in beyond:
            values = world.values(routine, app)
            assert code(lambda: routine.call(login, values)) == NO_RIGHT, routine.signature
            if routine.name not in UNCHECKED:
                with world.grant(routine, role):
                    assert code(lambda: routine.call(login, values)) in inside, routine.signature


def test_a_reader_reads(world: World) -> None:
    with world.login("reader") as reader, world.login("app") as app:
        prepared = [(routine, world.values(routine, app)) for routine in world.of_role("reader")]
        before = {k: v for k, v in contents(world.db).items() if k not in STATISTICS}
        for routine, values in prepared:
            routine.call(reader, values)
        assert not differences(before, {k: v for k, v in contents(world.db).items() if k not in STATISTICS})


@pytest.mark.parametrize("role", ["admin", "jobs"])
def test_admins_and_jobs_do_their_work(world: World, role: str) -> None:
    """Jobs name no user: what they work on is handed to them."""
    with world.login(role) as login, world.login("app") as app:
        for routine in world.of_role(role, *(["app"] if role == "admin" else [])):
            assert role == "admin" or "p_user" not in routine.arguments, routine.signature
            if routine.name not in ELSEWHERE:
                routine.call(login, world.values(routine, login if role == "admin" else app))


# History --------------------------------------------------------------------------------------------------------------

CHANGES = (
    "update {} set content = 'changed'",
    "update {} set metadata = metadata",
    "delete from {}",
    "truncate {}",
    "delete from {} using pg_class where false or turn_index >= 0",
    "merge into {} t using (select 1) s on t.turn_index >= 0 when matched then update set content = 'changed'",
    "merge into {} t using (select 1) s on t.turn_index >= 0 when matched then delete",
    "insert into {0} select * from {0} on conflict (user_id, session_id, turn_index, recorded_at) do update set name = 'x'",
)


def in_savepoint(db: Db, statement: str) -> str | None:
    def run() -> None:
        with db.transaction():
            db.execute(statement)

    return code(run)


def test_history_is_append_only(world: World) -> None:
    """Parents and leaves, also of a month that is made now; for the owner and a superuser too."""
    db = world.db
    persist(db, "tom", unique("s"), "Hello", "Hi")
    call(db, "set_clock", "2033-03-03T00:00:00Z")
    persist(db, "tom", unique("s"), "Hello", "Hi")
    call(db, "set_clock", None)
    part = one(db, "select memoir.part_of('tom')")
    parent = sql_name("conversation_history")
    tables = [parent, f"{parent}_p{part}", f"{parent}_p{part}_y2033m03"]
    before = contents(db)["conversation_history"]
    for key in SHORT:
        with world.login(key) as login:
            for change in CHANGES[:4]:
                assert code(lambda: login.execute(change.format(parent))) == NO_RIGHT, (key, change)
    for role in ("memoir_owner", "postgres"):
        db.execute(f"set role {role}")
        for table in tables:
            for change in CHANGES:
                if not change.startswith("merge") or db.info.server_version >= 150000:
                    assert code(lambda: db.execute(change.format(table))) == "PM024", (role, change, table)
            # An audit row opens the way for a delete, nothing else, and only in its own transaction.
            note_audit(db, "erase")
            assert code(lambda: db.execute(f"delete from {table}")) == "PM024"
            with db.transaction(force_rollback=True):
                with db.transaction(force_rollback=True):
                    note_audit(db, "erase")
                assert in_savepoint(db, f"delete from {table}") == "PM024"
                note_audit(db, "note")
                assert in_savepoint(db, f"delete from {table}") == "PM024"
                note_audit(db, "erase")
                assert in_savepoint(db, CHANGES[0].format(table)) == "PM024"
                assert in_savepoint(db, f"truncate {table}") == "PM024"
                assert db.execute(f"delete from {table}").rowcount > 0
        db.execute("reset role")
    assert contents(db)["conversation_history"] == before


@pytest.mark.acceptance
def test_no_function_changes_history(world: World) -> None:
    """An admin calls every function but those that erase. Afterwards all turns are there, word for word."""

    def read_turns() -> dict[Any, str]:
        return dict(own_rows(world.db, "vera", "conversation_history", "message_id, md5(t::text)"))

    without = ELSEWHERE | {"learn_weights"}
    with world.login("admin") as admin:
        routines = [r for r in world.of_role("admin") if not r.name.startswith("erase_") and r.name not in without]
        prepared = [(routine, world.values(routine, admin, "vera")) for routine in routines]
        before = read_turns()
        assert len(before) >= 2 * len(prepared)
        # Marked secret, a turn takes the calls that may carry it out of the admin's sight: after those are read.
        for routine, values in sorted(prepared, key=lambda pair: pair[0].name == "mark_turn"):
            routine.call(admin, values)
        assert before.items() <= read_turns().items()


# Refusals -------------------------------------------------------------------------------------------------------------


def message(content: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def calls(*tool_calls: Any) -> list[dict[str, Any]]:
    return [ANSWER | {"tool_calls": list(tool_calls)}]


def function(**changed: Any) -> list[dict[str, Any]]:
    return calls(CALL | {"function": {"name": "f", "arguments": ""} | changed})


RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
OPEN = [USER, *calls(CALL)]
UNTIMELY = "yesterday now infinity 1899-12-31T23:59:59Z 2199-01-01T00:00:00Z 2024-02-30 03/04/2024".split()
MALFORMED: list[tuple[str, Any]] = [
    # Part of the error, messages
    ('messages must be a list of at least one message, not "{}"', {}),
    ("messages must be a list", []),
    ('not ""hello""', "hello"),
    ("messages must be a list", None),
    ("[0] must be an object", [None]),
    ('[1] must be an object, not ""hi""', [USER, "hi"]),
    ("[0].role must be system, developer, user, assistant or tool, not null", [{"content": "hi"}]),
    ('not "User"', [message("hi", "User")]),
    ('not "function"', [message("hi", "function", name="f")]),
    ("[0].role", [{"role": 5, "content": "hi"}]),
    ("[0].content is missing", [{"role": "user"}]),
    ("[0].content is missing", [message(None, "assistant")]),
    ('[0].content must be a string or a list of parts, not "5"', [message(5)]),
    ("[0].content must be a string", [message({"type": "text", "text": "hi"})]),
    ("[0].content must not be an empty list", [message([])]),
    ("[0].content[0] must be an object, not", [message(["hi"])]),
    ("[0].content[1].type null", [message([{"type": "text", "text": "hi"}, {"text": "hi"}])]),
    ("[0].content[0].text must be a string, not null", [message([{"type": "text"}])]),
    ('[0].content[0].type "video" can\'t be stored', [message([{"type": "video", "video": "x"}])]),
    ("role user", [message([{"type": "refusal", "refusal": "no"}])]),
    (
        '[0].content[0].type "image_url" can\'t be stored in a message of role assistant',
        [message([IMAGE], "assistant")],
    ),
    ("[0].content[0].image_url.url", [message([{"type": "image_url", "image_url": "https://example.com"}])]),
    ('not "file:///etc/passwd"', [message([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}])]),
    ("detail must be", [message([{"type": "image_url", "image_url": {"url": "https://a.b", "detail": "ultra"}}])]),
    ("[0].content[0].refusal must be a string", [message([{"type": "refusal", "refusal": 1}], "assistant")]),
    ("[0].name must be 1 to 64 characters", [USER | {"name": "two words"}]),
    ("[0].name", [USER | {"name": "x" * 65}]),
    ("[0].name", [USER | {"name": {"first": "Ann"}}]),
    ("[0].tool_calls can't stand in a message of role user", [USER | {"tool_calls": [CALL]}]),
    ("[0].tool_call_id can't stand in a message of role user", [USER | {"tool_call_id": "call_1"}]),
    ("[0].function_call is the deprecated form", [ANSWER | {"function_call": {"name": "f", "arguments": "{}"}}]),
    ("[0].tool_calls must be a list with at least one call", calls()),
    ("[0].tool_calls must be a list", [ANSWER | {"tool_calls": {}}]),
    ("[0].tool_calls[0] must be an object", calls("track")),
    ("[0].tool_calls[1].id must be a string of 1 to 200 characters", calls(CALL, CALL | {"id": ""})),
    ('[0].tool_calls[0].id must be a string of 1 to 200 characters, not "7"', calls(CALL | {"id": 7})),
    ('[0].tool_calls[1].id "call_1" occurs twice', calls(CALL, CALL)),
    ('[0].tool_calls[0].type must be function, not "custom"', calls(CALL | {"type": "custom"})),
    ("[0].tool_calls[0].function.name", function(name="a b")),
    ("[0].tool_calls[0].function.arguments must be a string of JSON", function(arguments={})),
    ("[0].tool_call_id must be a string, not null", [message("x", "tool")]),
    *[("[0].created_at must be a time", [USER | {"created_at": at}]) for at in (*UNTIMELY, "", -1e15, 1e300, True, [])],
    *[("[0].tags", [USER | {"tags": tags}]) for tags in ("home", [1], [""], ["x"] * 33)],
    *[("[0].snapshot_ref", [USER | {"snapshot_ref": ref}]) for ref in (7, "")],
]
UNPAIRED: list[tuple[str, Any]] = [
    ('[0].tool_call_id "call_9" answers no open tool call', [RESULT | {"tool_call_id": "call_9"}]),
    ('[2].tool_call_id "call_2"', [*OPEN, RESULT | {"tool_call_id": "call_2"}]),
    ("[2] (user) comes before the results of tool calls call_1", [*OPEN, USER]),
    ("tool calls call_1 have no result", OPEN),
    ('[3].tool_call_id "call_1"', [*OPEN, RESULT, RESULT]),
]


def test_messages_are_refused_by_field_and_value(db: Db, user: str) -> None:
    """Behind good messages the path says where, and the good ones are not stored either."""
    before = count_all_rows(db)
    for state, table in (("PM010", MALFORMED), ("PM011", UNPAIRED)):
        for says, sent in table:
            error = refusal(db, "persist_turn", user=user, session="s", messages=sent)
            assert error.sqlstate == state and says in str(error), (sent, error)
    parts = '[3].content must be a string or a list of parts, not "5"'
    for where, sent in (("[3].role", message("hi", "robot")), (parts, message(5))):
        error = refusal(db, "append_messages", user=user, session="s", messages=[USER, ANSWER, USER, sent])
        assert error.sqlstate == "PM010" and f"messages{where}" in str(error), error
    assert count_all_rows(db) == before


UNKNOWN = "00000000-0000-0000-0000-000000000001"
OMIT = object()
"""The argument is not given."""
OF = {"type": "object", "properties": {"of": {"type": "string", "description": "which one"}}}
LOG = {"name": "kiln_log", "description": "Reads the kiln log.", "parameters": OF}
TOOLS = [{"type": "function", "function": LOG}] * 2
NEW = {"session": "new"}
BRANCH = {"session": "open", "new_session": "new"}
HEADER = {"kind": "header", "format": "pg_memoir.export"}
LOST = {"kind": "conversation_history", "row": {"session_id": {"session": "nowhere"}, "turn_index": 0}}
PROMPT = {"kind": "system_prompts", "row": {"content": "x", "prompt_hash": "\\x00"}}
NOTE = {"set_working_memory": {"key": "k", "content": "x"}}
FILTERED = [
    ("where", [[], "x"], "where must be a JSON object"),
    ("where", [{"a": {"like": "x"}}, {"a": {"in": 1}}, {"a": {"exists": "yes"}}, {"a": {"b": {"c": 1}}}], "where"),
]
# Function: its other arguments, then rows of an argument, wrong values of it, and a part of the error. PM014 if not said.
REFUSED: dict[str, list[Any]] = {
    "persist_turn": [
        {"session": "s", "messages": [USER]},
        *[("usage", [{"prompt_tokens": n}], "usage.prompt_tokens must be") for n in (-1, 1.5, "7", 2**31)],
        *[("usage", [{key: -1}], f"usage.{key} must be") for key in ("completion_tokens", "latency_ms")],
        *[("usage", [{"model": name}], "usage.model must be") for name in ("", 5, ["gpt-4o"], "x" * 201)],
        ("usage", [{"finish_reason": 5}], "usage.finish_reason must be"),
        ("usage", [[], "x", True], "usage must be a JSON object, not"),
        ("metadata", [[], "x", 5], "metadata must be a JSON object, not"),
        ("key", ["", "x" * 201], "key must be a text of 1 to 200"),
        ("actor", ["robot"], 'actor must be person, agent or tool, not "robot"'),
        ("user", ["", "x" * 501], "user must be a text of 1 to"),
        ("session", ["", "x" * 501, None], "session must be"),
    ],
    "open_session": [
        NEW,
        ("model", ["x" * 201], "model must be a text of 1 to 200 characters"),
        ("context_window", [0, -5], 'session "new" can\'t have a window of'),
        ("response_tokens", [32768, 0], 'session "new" can\'t have a window of'),
        ("task", ["chat"], 'task must be continuation, knowledge, new_session or tool_heavy, not "chat"'),
        ("project", [""], "project must be"),
        ("parent", ["nobody", "new"], "PM003 unknown parent session"),
        ("metadata", [[1]], "metadata must be a JSON object"),
        ("settings", [[1], 5], "settings must be a JSON object"),
        ("settings", [{"colour": 1}], 'PM015 unknown setting "colour"'),
        ("temperature", ["2.1", "-0.1"], "temperature must be from 0 to 2, not"),
        ("top_p", ["1.01", "NaN"], "top_p must be from 0 to 1, not"),
    ],
    **{
        function: [more, ("session", ["nobody"], 'PM003 unknown session "nobody"')]
        for function, more in (
            dict.fromkeys(("close_session", "pause_session", "history", "compact_session"), {}) | NOTE
        ).items()
    },
    "context": [
        {"session": "open", "query": "Well?"},
        ("format", ["xml"], 'format must be openai or anthropic, not "xml"'),
        ("budget", [0], "budget must be from 1 to 2147483647, not 0"),
        ("budget", [5], "PM020 the newest message needs a budget of 9 tokens, the budget is 5"),
        ("memory_budget", [-1], "memory_budget must be from 0 to 2147483647, not -1"),
        ("task", ["play"], 'must be continuation, knowledge, new_session or tool_heavy, not "play"'),
        ("tools", [{"a": 1}], "tools must be a list of tool definitions, not"),
        ("tools", [TOOLS], "PM020 the newest message needs a budget of", {"budget": 60}),
        ("query", [None], 'PM022 session "open" has nothing to continue: its newest message is the assistant'),
        ("session", ["none"], 'PM022 session "none" has nothing to continue: it has no turns', {"query": None}),
        ("session", [""], "session must be a text of 1 to 500 characters"),
        ("query_parts", [{"a": 1}], "query_parts must be a list of content parts, not", {"query": None}),
        ("query_parts", [[]], "PM010 query.content must not be an empty list", {"query": None}),
        ("query_parts", [[{"type": "smell"}]], 'PM010 query.content[0].type "smell" can\'t be', {"query": None}),
        ("query_embedding", [[1, 2]], "PM030 embedding has 2 dimensions, model"),
        ("query_embedding", [[0] * 384], "embedding is zero in all dimensions, to half precision"),
        ("after_turn", ["x", "01234567:1"], 'is no mark of session "open"'),
    ],
    "recall": [
        {"query": "x"},
        ("query", [""], "query must not be empty"),
        ("limit", [0], "limit must be from 1 to 1000, not 0"),
        ("kinds", [["smell"]], 'kinds must be memory, turn or summary, not "smell"'),
        ("session", ["none"], 'PM003 unknown session "none"'),
        *FILTERED,
    ],
    "correct": [{"content": "x"}, ("memory", [UNKNOWN], "PM004 unknown memory")],
    "pin": [{"session": "open"}, ("memory", [UNKNOWN], "PM004 unknown memory")],
    "pin_turns": [{"session": "open"}, ("from_turn", [9], 'turns 9 to 9 are not in session "open", which has 2')],
    "mark_turn": [
        {"session": "open", "turn": 0},
        ("turn", [9], 'turn 9 does not exist in session "open"'),
        ("sensitivity", ["top"], 'sensitivity must be normal, private or secret, not "top"'),
    ],
    "branch_session": [
        BRANCH,
        ("session", ["nobody"], 'PM003 unknown session "nobody"'),
        ("new_session", ["open"], 'session "open" exists already'),
        ("at_turn", [-1, 3], 'can\'t branch session "open" at turn'),
    ],
    "remember": [
        {"content": "Likes tea.", "session": "open"},
        ("content", [None, "", " \n\t", "\u2028\u3000"], "content must not be empty"),
        ("type", ["gossip", None], "unknown type"),
        ("importance", ["huge"], 'importance must be critical, important, normal or minor, not "huge"'),
        ("provenance", ["hearsay"], 'unknown provenance "hearsay"'),
        ("sensitivity", ["public"], 'sensitivity must be normal, private or secret, not "public"'),
        ("confidence", ["-0.1", "1.1", "nan"], "confidence must be from 0 to 1, not"),
        *[("valid_to", ["2024-02-01"], "is not after", {name: "2024-02-01"}) for name in ("valid_from", "created_at")],
        *[
            (name, ["0001-01-01+14", "1899-12-30Z", "9999-12-31Z", "infinity"], f"the year of {name} must be from 1900")
            for name in ("valid_from", "valid_to")
        ],
        ("slot_value", ["Bonn"], 'slot_value "Bonn" needs a slot'),
        ("slot", ["", " \u200b", "x" * 3000], "slot must be a text of 1 to"),
        *[(name, [""], f"{name} must be a text of 1 to") for name in ("category", "source_tool", "source_key", "key")],
        ("tags", [["a", ""]], "tags[1] must be a text"),
        ("aliases", [[None]], "aliases[0] must be a text"),
        ("source_turns", [[0, 2], [-1], [None]], "does not exist in session"),
        ("source_turns", [[0]], "source_turns needs the session", {"session": None}),
        ("session", ["nobody"], 'PM003 unknown session "nobody"'),
        ("metadata", ["x"], "metadata must be a JSON object"),
        ("created_at", ["2199-01-01T00:00:00Z"], "created_at must be a time from 1900 to tomorrow"),
        ("project", [""], "project must be"),
        ("actor", ["system"], "actor must be person, agent or tool"),
        ("embedding", [[1, 2, 3]], "PM030 embedding has 3 dimensions"),
    ],
    "forget": [{}, ("memory", [UNKNOWN], "PM004 unknown memory")],
    "capture_call": [
        {"session": "s", "request": b"{}"},
        ("request", [None], "request"),
        ("session", [""], "session"),
        ("latency_ms", [-1], "latency_ms"),
        ("status", [1000, -1], "status"),
        *[(name, ["x" * 201], name) for name in ("provider", "model")],
        *[(name, [["a"]], name) for name in ("request_headers", "response_headers", "metadata")],
        ("events", [[b"a", None]], "events"),
        ("event_times", [["2026-03-04T05:06:07Z"]], "0 events have 1 times"),
    ],
    "list_memories": [
        {},
        ("limit", [0], "limit must be from 1 to 1000, not 0"),
        ("states", [["asleep"]], 'not "asleep"'),
        ("after_memory", [UNKNOWN], f"PM004 {UNKNOWN}"),
        *FILTERED,
    ],
    "list_sessions": [{}, ("status", ["asleep"], 'not "asleep"'), ("after_session", ["nowhere"], "PM003 nowhere")],
    "list_compiles": [{}, ("session", ["nowhere"], "PM003 unknown session")],
    "explain_compile": [{}, ("compile", [UNKNOWN], "PM004 no compile")],
    "memory_timeline": [
        {"id": UNKNOWN},
        ("id", [UNKNOWN], f"PM004 {UNKNOWN}"),
        ("lines_before", [101], "lines_before must be from 0 to 100, not 101"),
    ],
    "memory_get": [{}, ("ids", [[]], "ids must be 1 to 100 ids")],
    "memory_graph": [
        {"memory": UNKNOWN},
        ("hops", [6], "hops must be from 1 to 5, not 6"),
        ("memory", [UNKNOWN], f"PM004 {UNKNOWN}"),
    ],
    "memory_index": [{}, ("query", [" "], "query must not be empty")],
    "memory_restore": [{"session": "open"}, ("object", ["zz", "3f2a91bc"], "PM004 no object")],
    "window_forms": [{"session": "open"}, ("fixed", [-1], "fixed must be from 0")],
    "memory_release": [{"session": "open"}, ("objects", [[]], "1 to 100")],
    "memory_query": [
        {"session": "open", "question": "x"},
        ("question", ["  "], "must not be empty"),
        ("max_tokens", [5], "from 50 to 16000"),
        ("scope", ["all"], "scope"),
    ],
    "read_events": [{}, ("types", [["memory.lost"]], "memory.lost"), ("limit", [0], "limit")],
    "register_model": [
        {"user": OMIT, "model": "m", "provider": "openai", "context_window": 1000, "max_output": 100},
        ("images", "tiles|tiles:|squares:1|area:1568|area:x:1|patches:1e9|flat:x|".split("|"), "images must be like"),
    ],
    "set_setting": [{"user": OMIT, "value": 1}, ("key", ["no_such", None], "PM015 unknown setting")],
    "reset_setting": [{"user": OMIT}, ("key", ["no_such", None], "PM015 unknown setting")],
    "export_user": [{}, ("user", ["nobody at all"], "PM002 unknown user")],
    "set_user_settings": [
        {},
        ("settings", [[], 5, "window_steps"], "settings must be a JSON object"),
        ("settings", [{"no_such": 1}, {"no_such": None}], "PM015 unknown setting"),
        ("settings", [{"weak_below": 7}], "PM015 setting weak_below can't be"),
        ("settings", [{"clock": "2031-01-01"}], "PM015 setting clock can't be overridden"),
    ],
    "import_user": [
        {},
        ("lines", [[{"kind": "header"}], [HEADER | {"version": 2}]], "no export of a version"),
        *[("lines", [[{"kind": k}]], "no kind that can be") for k in ("audit_log", "search_items", "pg_authid", None)],
        ("lines", [[{"kind": "tombstones", "row": {"kind": "value"}}]], "can't be imported"),
        ("lines", [[LOST]], "comes before its session"),
        ("lines", [[PROMPT]], "not the text of its hash"),
    ],
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_are_refused_by_name_and_value(db: Db, user: str, name: str) -> None:
    store(db, user, "open", [USER, ANSWER])
    remembered(db, user, "A fact")
    others, *table = REFUSED[name]
    before = count_all_rows(db)
    for argument, values, says, *more in table:
        state, says = (says[:5], says[6:]) if says.startswith("PM0") else ("PM014", says)
        for value in values:
            given = [Jsonb(line) for line in value] if argument == "lines" else value
            arguments = {"user": user} | others | dict(*more) | {argument: given}
            error = refusal(db, name, **{key: value for key, value in arguments.items() if value is not OMIT})
            assert error.sqlstate == state and says in (error.diag.message_primary or ""), (argument, value, error)
    assert count_all_rows(db) == before


def test_sizes_and_numbers_are_bounded(db: Db, user: str, setting: Any) -> None:
    setting("text_bytes_max", 4096)
    setting("messages_max", 3)
    long, turn = "x" * 4096, {"user": user, "session": "s"}
    for function_name, code_, says, named in (
        ("persist_turn", "PM012", "[1].content is 4098 bytes", turn | {"messages": [USER, message("é" * 2049)]}),
        ("persist_turn", "PM012", "messages[0] is ", turn | {"messages": [USER | {"extra": long}]}),
        ("persist_turn", "PM012", "messages[0] is ", turn | {"messages": function(arguments=long)}),
        ("persist_turn", "PM012", "metadata is ", turn | {"messages": [USER], "metadata": {"x": long}}),
        ("persist_turn", "PM010", "has 4 entries, more than messages_max = 3", turn | {"messages": [USER] * 4}),
        ("remember", "PM012", "content is 4097 bytes", {"user": user, "content": long + "x"}),
        ("remember", "PM012", "metadata is ", {"user": user, "content": "x", "metadata": {"x": long}}),
        ("open_session", "PM012", "system_prompt is 4097 bytes", turn | {"system_prompt": long + "x"}),
        ("capture_call", "PM012", "request is 4097 bytes", turn | {"request": b"r" * 4097}),
        ("capture_call", "PM012", "response is 4097 bytes", turn | {"request": b"r", "response": b"a" * 4097}),
        ("capture_call", "PM012", "events[1] is 4097 bytes", turn | {"request": b"r", "events": [b"e", b"e" * 4097]}),
    ):
        check_refusal(db, function_name, code_, says, **named)
    store(db, user, "s", [message("x" * 4000)] * 3)
    call(db, "capture_call", request=b"r" * 4096, response=b"a" * 4096, events=[b"e" * 4096] * 2, **turn)


@pytest.mark.parametrize("text", [r'"a\u0000b"', r'"\ud800"', r'"x \ud83d"'])
def test_json_that_postgresql_cannot_store_is_refused(db: Db, user: str, text: str) -> None:
    before = count_all_rows(db)
    for sent in (f'[{{"role": "user", "content": {text}}}]', f'[{{"role": "user", "content": "x", {text}: 1}}]'):
        with pytest.raises(psycopg.DataError):
            db.execute("select memoir.persist_turn(%s, 's', %s::jsonb)", [user, sent])
    assert count_all_rows(db) == before
