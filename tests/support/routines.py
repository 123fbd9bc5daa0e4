"""The functions and procedures of the schema, from the catalogue, and arguments to call each of them with."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from calls import read_turns
from psycopg.types.json import Jsonb
from servers import connect, unique, user_of

MESSAGES = [{"role": "user", "content": "My cat is called Ximena."}, {"role": "assistant", "content": "Noted."}]

LISTED = {
    "note_messages": [{"chain": "x", "turns": 2}],
    "record_exchange": [{"message": MESSAGES[0], "key": "first", "notes": [{"chain": "x"}]}],
}
"""What p_messages of a routine is instead."""

CALL = {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"file_path": "a.py"}'}}
STEP = [
    {"role": "user", "content": "Read it."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "\n".join(f"def part_{n}(source): return {n}" for n in range(300)),
    },
]

PERSONS = {"lift_tombstone", "validate", "retract"}  # only a person does that to what a person said


@dataclass
class Routine:
    schema: str
    name: str
    kind: str  # f or p
    arguments: dict[str, str]  # name: type
    required: list[str]
    roles: set[str]
    signature: str
    definer: bool

    def call(self, db: psycopg.Connection, values: dict[str, Any]) -> list[tuple]:
        given = {key: value for key, value in values.items() if key in self.arguments}
        text = ", ".join(f"{key} => %({key})s::{self.arguments[key]}" for key in given)
        cursor = db.execute(
            f"{'call' if self.kind == 'p' else 'select * from'} {self.schema}.{self.name}({text})", given
        )
        return cursor.fetchall() if cursor.description else []


ROUTINES = """
    select p.oid::regprocedure::text, p.pronamespace::regnamespace::text, p.proname, p.prokind::text, coalesce(p.proargnames[1 : p.pronargs], '{}'), (p.proargtypes::regtype[])::text[],
      p.pronargs - p.pronargdefaults,
      array(select r from unnest('{reader,app,tenant,admin,jobs}'::text[]) r where has_function_privilege('memoir_' || r, p.oid, 'execute')), p.prosecdef
    from pg_proc p
    where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
    order by p.proname"""


def all_routines(db: psycopg.Connection) -> dict[str, Routine]:
    """{signature: routine} of all that is ours."""
    return {
        signature: Routine(
            schema, name, kind, dict(zip(names, types)), names[:required], set(granted), signature, definer
        )
        for signature, schema, name, kind, names, types, required, granted, definer in db.execute(ROUTINES)
    }


def values_for(
    routine: Routine, db: psycopg.Connection, user: str, project: str = "global", login: str = "postgres"
) -> dict[str, Any]:
    """What the routine's required arguments take, with a session, a memory and a call of the user made for it by `db`."""
    session = unique("s")
    db.execute("select memoir.open_session(%s, %s, p_project => %s)", [user, session, project])
    db.execute("select memoir.persist_turn(%s, %s, %s)", [user, session, Jsonb(MESSAGES)])
    wanted = [
        *routine.required,
        *(key for key in ("p_query", "p_memory") if key in routine.arguments and key not in routine.required),
    ]
    needed = set(wanted)
    made: dict[str, Any] = {}
    if "p_memory" in needed:
        made["p_memory"] = db.execute(
            "select memoir.remember(%s, %s, p_project => %s)", [user, unique("fact"), project]
        ).fetchone()[0]["memory_id"]
    if "p_other" in needed:
        made["p_other"] = db.execute(
            "select memoir.remember(%s, %s, p_project => %s)", [user, unique("fact"), project]
        ).fetchone()[0]["memory_id"]
    if needed & {"p_id", "p_ids"}:
        made["p_id"] = db.execute(
            "select memoir.remember(%s, %s, p_project => %s)", [user, unique("fact"), project]
        ).fetchone()[0]["memory_id"]
        made["p_ids"] = [made["p_id"]]
    if needed & {"p_object", "p_objects"}:
        db.execute("select memoir.append_messages(%s, %s, %s)", [user, session, Jsonb(STEP)])
        made["p_object"] = db.execute(
            "select object from memoir.window_forms(%s, %s, 2000, true) limit 1", [user, session]
        ).fetchone()[0]
        made["p_objects"] = [made["p_object"]]
    if "p_change" in needed:
        # A thing of its own: what says the same elsewhere would go with it.
        thing = "".join(chr(97 + int(letter, 16)) for letter in uuid.uuid4().hex[:10])
        for said in (f"my {thing} number is {uuid.uuid4().int % 10**6}", f"please forget my {thing} number"):
            db.execute(
                "select memoir.persist_turn(%s, %s, %s)", [user, session, Jsonb([{"role": "user", "content": said}])]
            )
            if db.execute("select pg_catalog.to_regprocedure('_memoir.py_read(text, text, text)') is null").fetchone()[
                0
            ]:
                with connect(user_of(db.info.dsn, "postgres")) as admin:
                    read_turns(admin)
            else:
                db.execute("select memoir.extract_session(%s, %s)", [user, session])
        made["p_change"] = db.execute("select change_id from memoir.list_changes(%s)", [user]).fetchone()[0]
    if "p_query_id" in needed:
        with connect(user_of(db.info.dsn, "postgres")) as admin:
            admin.execute("select memoir.set_setting('llm_provider', '\"openai\"')")
            said = [{"role": "user", "content": f"Where does the {unique('ferry')} go from?"}]
            db.execute("select memoir.persist_turn(%s, %s, %s)", [user, session, Jsonb(said)])
            asked = db.execute("select memoir.memory_query(%s, %s, %s)", [user, session, said[0]["content"]])
            made["p_query_id"] = asked.fetchone()[0]["answer"]["id"]
            admin.execute("select memoir.reset_setting('llm_provider')")
    if "p_call" in needed:
        made["p_call"] = db.execute("select memoir.capture_call(%s, %s, 'x')", [user, session]).fetchone()[0]
    if routine.name in (
        "heartbeat",
        "retry_work",
        "release_work",
        "store_model_result",
        "fail_model_call",
        "store_secrets",
        "turns_context",
        "store_turns",
    ):
        made |= {"p_work": 0, "p_lease": "00000000-0000-0000-0000-000000000000"}
        if routine.name == "store_secrets":
            made |= {"p_item_nos": [1], "p_kinds": [""]}
        made |= {"p_reading": Jsonb({}), "p_results": Jsonb({})}
    if "p_report" in needed:
        at, info = db.execute("select memoir.now(), memoir.session_info(%s, %s)", [user, session]).fetchone()
        lists = (
            "items",
            "scores",
            "words",
            "vectors",
            "around",
            "session_scores",
            "item_tokens",
            "positions",
            "forms",
            "reasons",
            "facts",
            "warnings",
            "turn_tokens",
        )
        made["p_report"] = Jsonb(
            {
                "user_id": str(uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, "pg_memoir:default"), user)),
                "compile_id": str(uuid.uuid4()),
                "recorded_at": at.isoformat(),
                "session_id": info["session_id"],
                "budget": 9,
                "tokens": 9,
                "recall_tokens": 0,
                "system_tokens": 0,
                "tools_tokens": 0,
                "prefix_hash": "\\x00",
            }
            | {key: [] for key in lists}
        )
    if "p_compile" in needed:
        made["p_compile"] = db.execute(
            "select memoir.context(%s, %s, 'What is my cat called?')", [user, session]
        ).fetchone()[0]["compile_id"]
    if "p_compaction" in needed:
        made["p_compaction"] = db.execute("select memoir.summarize_session(%s, %s)", [user, session]).fetchone()[0][
            "compaction_id"
        ]
    known = {
        "p_user": user,
        "p_session": session,
        "p_new_session": unique("s"),
        "p_messages": Jsonb(LISTED.get(routine.name, MESSAGES)),
        "p_chains": ["x"],
        "p_items": Jsonb([{"item": message, "messages": [message]} for message in MESSAGES]),
        "p_documents": Jsonb([{"namespace": ["notes"], "key": "cat", "value": {"text": "The cat is called Ximena."}}]),
        "p_namespace": ["notes"],
        "p_keys": ["cat"],
        "p_content": unique("fact"),
        "p_query": "What is my cat called?",
        "p_embedding": [0.1] * 384,
        "p_request": b"x",
        "p_settings": Jsonb({"frequent_memories": 2}),
        "p_annotations": Jsonb({"feedback": "up"}),
        "p_key": "recall_tokens_max" if routine.name.endswith("_setting") else "note",
        "p_value": Jsonb(1000),
        "p_at": None,
        "p_limit": 1,
        "p_question": "What is my cat called?",
        "p_login": login,
        "p_model": "all-MiniLM-L6-v2" if "embedding" in routine.name or "backfill" in routine.name else "m",
        "p_provider": "none" if "embedding" in routine.name else "openai",
        "p_context_window": 9000,
        "p_max_output": 900,
        "p_name": "other" if routine.name.startswith("register") else "all-MiniLM-L6-v2",
        "p_dimension": 384,
        "p_text": "text",
        "p_user_ids": [],
        "p_item_nos": [],
        "p_embeddings": [],
        "p_error": "none",
        "p_part": 0,
        "p_turn": 0,
        "p_lines": [],
        "p_month": "2026-01-01",
        "p_code": "PM014",
        "p_message": "no",
        "p_months_ahead": 0,
        "p_turns": None if routine.name.startswith("pin") else 0,
        "p_destination": "elsewhere",
        "p_user_id": "00000000-0000-0000-0000-000000000000",
        "p_job": "flush",
        "p_run": 0,
        "p_seconds": 5,
        "p_until": "2020-01-01",
        "p_wait": 0,
        "p_kind": "judge",
        "p_relation": "relates_to",
        "p_from_turn": 0,
        "p_memory_ids": [],
        "p_other_ids": [],
        "p_scores": [],
        "p_judge": "nobody",
        "p_output": Jsonb({}),
        "p_made_by": "test",
        "p_used": [],
        "p_schedule": "17 * * * *",
        "p_weights": Jsonb({"weight_access": 0.03}),
        "p_source": "by hand",
        "p_result": Jsonb({}),
        **made,
    }
    lacking = needed - known.keys()
    assert not lacking, f"tests/support/routines.py needs a value for {lacking} of {routine.signature}"
    return {key: known[key] for key in wanted}


def code(call: Callable[[], Any]) -> str | None:
    """The SQLSTATE a call fails with, None when it succeeds."""
    try:
        call()
    except psycopg.Error as error:
        return error.sqlstate
    return None
