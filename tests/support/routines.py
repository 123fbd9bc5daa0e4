"""The functions and procedures of the schemas, from the catalogue, arguments to call each with, and logins to call them as."""

import json
import uuid
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from calls import call, one, persist, read_turns, remembered, store, table
from loops import read
from psycopg.types.json import Jsonb
from servers import connect, roles, unique, user_of

NO_RIGHT = "42501"
MESSAGES = [{"role": "user", "content": "My cat is called Ximena."}, {"role": "assistant", "content": "Noted."}]
PARTS = "\n".join(f"def part_{n}(one): return {n}" for n in range(300))
STEP = [{"role": "user", "content": "Read it."}, *read(1, "a.py", PARTS)]

PERSONS = set("lift_tombstone validate retract create_space grant_space revoke_space".split())
"""Only a person shares memory, and does the others to what a person said."""


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
        verb = "call" if self.kind == "p" else "select * from"
        cursor = db.execute(f"{verb} {self.schema}.{self.name}({text})", given)
        return cursor.fetchall() if cursor.description else []


ROUTINES = """
    select p.oid::regprocedure::text, p.pronamespace::regnamespace::text, p.proname, p.prokind::text,
      coalesce(p.proargnames[1 : p.pronargs], '{}'), (p.proargtypes::regtype[])::text[], p.pronargs - p.pronargdefaults,
      array(select r from unnest('{reader,app,tenant,admin,jobs}'::text[]) r
        where has_function_privilege('memoir_' || r, p.oid, 'execute')), p.prosecdef
    from pg_proc p where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace)
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
    order by p.proname"""


def all_routines(db: psycopg.Connection) -> dict[str, Routine]:
    """{signature: routine} of all that is ours."""
    found = {}
    for signature, schema, name, kind, names, types, required, granted, definer in db.execute(ROUTINES):
        arguments = dict(zip(names, types))
        found[signature] = Routine(schema, name, kind, arguments, names[:required], set(granted), signature, definer)
    return found


# Arguments ------------------------------------------------------------------------------------------------------------

VALUES: dict[str, Any] = json.loads("""{
    "p_chains": ["x"], "p_namespace": ["notes"], "p_keys": ["cat"], "p_user_ids": [], "p_item_nos": [], "p_embeddings": [],
    "p_documents": [{"namespace": ["notes"], "key": "cat", "value": {"text": "The cat is called Ximena."}}],
    "p_query": "What is my cat called?", "p_question": "What is my cat called?", "p_text": "text", "p_error": "none",
    "p_settings": {"frequent_memories": 2}, "p_annotations": {"feedback": "up"}, "p_weights": {"weight_access": 0.03},
    "p_value": 1000, "p_at": null, "p_limit": 1, "p_context_window": 9000, "p_max_output": 900, "p_dimension": 384,
    "p_part": 0, "p_turn": 0, "p_from_turn": 0, "p_lines": [], "p_month": "2026-01-01", "p_until": "2020-01-01",
    "p_code": "PM014", "p_message": "no", "p_months_ahead": 0, "p_destination": "elsewhere", "p_job": "flush", "p_run": 0,
    "p_user_id": "00000000-0000-0000-0000-000000000000", "p_seconds": 5, "p_wait": 0, "p_kind": "judge", "p_output": {},
    "p_relation": "relates_to", "p_memory_ids": [], "p_other_ids": [], "p_scores": [], "p_judge": "nobody", "p_used": [],
    "p_made_by": "test", "p_schedule": "17 * * * *", "p_source": "by hand", "p_reading": {}, "p_result": {}, "p_results": {},
    "p_trigger": "Feed the cat", "p_way": "Open a tin.", "p_success": true, "p_url": "https://example.org/hook", "p_webhook": 0, "p_cursor": "none", "p_member": "mate"
}""")
LEASED = set(
    """heartbeat retry_work release_work fail_work store_model_result fail_model_call store_secrets turns_context
    store_turns store_webhook""".split()
)
TRACE = """scores words vectors around session_scores item_tokens positions forms reasons reason_names facts""".split()


def _space(db: psycopg.Connection, user: str) -> str:
    space = unique("space")
    call(db, "create_space", user, space)
    call(db, "grant_space", user, space, "mate", "writer")
    return space


def _object(db: psycopg.Connection, user: str, session: str) -> str:
    store(db, user, session, STEP, "append_messages")
    return str(table(db, "window_forms", user, session, 2000, True, columns="object")[0][0])


def _change(db: psycopg.Connection, user: str, session: str) -> str:
    # A thing of its own: what says the same elsewhere would go with it.
    thing = "".join(chr(97 + int(letter, 16)) for letter in uuid.uuid4().hex[:10])
    for said in (f"my {thing} number is {uuid.uuid4().int % 10**6}", f"please forget my {thing} number"):
        persist(db, user, session, said)
        if code(lambda: call(db, "extract_session", user, session)) == "PM050":  # the server has no PL/Python
            with connect(user_of(db.info.dsn, "postgres")) as admin:
                read_turns(admin)
    return str(table(db, "list_changes", user, columns="change_id")[0][0])


def _query(db: psycopg.Connection, user: str, session: str) -> str:
    with connect(user_of(db.info.dsn, "postgres")) as admin:
        admin.execute("select memoir.set_setting('llm_provider', '\"openai\"')")
        ferry = unique("ferry")
        said = f"Where does the {ferry} go from?"
        persist(db, user, session, f"The {ferry} goes from pier four.")
        asked = call(db, "memory_query", user, session, said)["answer"]["id"]
        admin.execute("select memoir.reset_setting('llm_provider')")
    return str(asked)


def _report(db: psycopg.Connection, user: str, session: str) -> dict[str, Any]:
    numbers = dict.fromkeys(("recall_tokens", "system_tokens", "tools_tokens"), 0) | {"budget": 9, "tokens": 9}
    return {
        "user_id": str(uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, "pg_memoir:default"), user)),
        "compile_id": str(uuid.uuid4()),
        "recorded_at": one(db, "select memoir.now()").isoformat(),
        "session_id": call(db, "session_info", user, session)["session_id"],
        "prefix_hash": "\\x00",
        **numbers,
        **{key: [] for key in ("items", "warnings", "turn_tokens")},
        "candidates": {key: [] for key in TRACE},
    }


def values_for(
    routine: Routine,
    db: psycopg.Connection,
    user: str,
    project: str = "global",
    login: str = "postgres",
    word: str = "fact",
    also: Set[str] = frozenset(),
) -> dict[str, Any]:
    """Values for the routine's required arguments and those in `also`. `db` makes a session, and the memories, calls and the
    like that they name. Memories say `word`."""
    session, name = unique("s"), routine.name
    call(db, "open_session", user, session, p_project=project)
    store(db, user, session, MESSAGES)

    def fact() -> str:
        if name == "report_outcome":
            return call(db, "learn_experience", user, unique(word), "Open a tin.", p_project=project)["memory_id"]
        return remembered(db, user, unique(word), p_project=project)

    made: dict[str, Callable[[], Any]] = {
        **dict.fromkeys(("p_memory", "p_other", "p_id", "p_after_memory"), fact),
        "p_ids": lambda: [fact()],
        "p_object": lambda: _object(db, user, session),
        "p_objects": lambda: [_object(db, user, session)],
        **dict.fromkeys(("p_change", "p_after_change"), lambda: _change(db, user, session)),
        "p_query_id": lambda: _query(db, user, session),
        "p_call": lambda: call(db, "capture_call", user, session, b"x"),
        "p_report": lambda: _report(db, user, session),
        "p_compile": lambda: call(db, "context", user, session, "What is my cat called?")["compile_id"],
        "p_compaction": lambda: call(db, "summarize_session", user, session)["compaction_id"],
        "p_content": lambda: unique("fact"),
        "p_new_session": lambda: unique("s"),
        "p_space": lambda: unique("space") if name == "create_space" else _space(db, user),
    }
    is_vector = "embedding" in name
    known = VALUES | {
        "p_user": user,
        **dict.fromkeys(("p_session", "p_parent", "p_after_session"), session),
        "p_messages": {
            "note_messages": [{"chain": "x", "turns": 2}],
            "record_exchange": [{"message": MESSAGES[0], "key": "first", "notes": [{"chain": "x"}]}],
        }.get(name, MESSAGES),
        "p_items": [{"item": message, "messages": [message]} for message in MESSAGES],
        "p_embedding": [0.1] * 384,
        "p_request": b"x",
        "p_key": "recall_tokens_max" if name.endswith("_setting") else "note",
        "p_login": login,
        "p_model": "all-MiniLM-L6-v2" if is_vector or "backfill" in name else "m",
        "p_provider": "none" if is_vector else "openai",
        "p_name": "other"
        if name.startswith("register")
        else "echoes"
        if name == "recall_arrays"
        else "all-MiniLM-L6-v2",
        "p_turns": None if name.startswith("pin") else 0,
    }
    if name in LEASED:
        known |= {"p_work": 0, "p_lease": "00000000-0000-0000-0000-000000000000"}
    if name == "store_secrets":
        known |= {"p_item_nos": [1], "p_kinds": [""]}
    wanted = dict.fromkeys([*routine.required, *(({"p_query", "p_memory"} | also) & routine.arguments.keys())])
    lacking = wanted.keys() - known.keys() - made.keys()
    assert not lacking, f"tests/support/routines.py needs a value for {lacking} of {routine.signature}"
    values = {key: made[key]() if key in made else known[key] for key in wanted}
    return {key: Jsonb(value) if routine.arguments[key] == "jsonb" else value for key, value in values.items()}


def code(call: Callable[[], Any]) -> str | None:
    """The SQLSTATE a call fails with, None when it succeeds."""
    try:
        call()
    except psycopg.Error as error:
        return error.sqlstate
    return None


# Logins ---------------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """A database with logins, each bound as its test says."""

    dsn: str
    logins: dict[str, str]
    routines: dict[str, Routine]
    db: psycopg.Connection  # a superuser's
    kept: dict[str, psycopg.Connection] = field(default_factory=dict)

    def connection(self, key: str) -> psycopg.Connection:
        """Of that login, the same at each call."""
        return self.kept.setdefault(key, self.kept.get(key) or self.login(key))

    def login(self, key: str, **parameters: str) -> psycopg.Connection:
        return connect(user_of(self.dsn, self.logins[key]), **parameters)

    def of_role(self, role: str, *without: str) -> list[Routine]:
        return [r for r in self.routines.values() if role in r.roles and not r.roles & set(without)]

    def values(self, routine: Routine, db: psycopg.Connection, user: str = "tom", **named: Any) -> dict[str, Any]:
        return values_for(routine, db, user, login=self.logins.get("nobody", "postgres"), **named)

    @contextmanager
    def grant(self, routine: Routine, key: str) -> Iterator[None]:
        """That login may execute the routine, as after a mistake."""
        self.db.execute(f"grant execute on routine {routine.signature} to {self.logins[key]}")
        yield
        self.db.execute(f"revoke execute on routine {routine.signature} from {self.logins[key]}")

    def bind(self, key: str, **named: Any) -> None:
        call(self.db, "bind_login", self.logins[key], **named)


@contextmanager
def world_of(dsn: str, **logins: str | dict[str, Any]) -> Iterator[World]:
    """Logins by name: their role, or its name under "role" with what bind_login takes."""
    bindings = {key: {"role": how} if isinstance(how, str) else dict(how) for key, how in logins.items()}
    options = {key: f"login in role memoir_{b['role']}" if b["role"] else "login" for key, b in bindings.items()}
    with roles(dsn, **options) as names, connect(dsn) as db:
        world = World(dsn, names, all_routines(db), db)
        call(db, "set_setting", "outbox_days", Jsonb(1))
        for key, binding in bindings.items():
            if len(binding) > 1:
                world.bind(key, **{name: value for name, value in binding.items() if name != "role"})
        yield world
        for connection in world.kept.values():
            connection.close()
