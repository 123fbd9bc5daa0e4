"""What lies below the API, by name: rows of the tables, the queue, the runs of jobs, internal functions.

Tests ask memoir.* for all that it can tell. They come here for what no application sees or does: leases that run out, rows
behind a function, counts of a table. `user` is the name that an application gives.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

Db = psycopg.Connection[Any]
OWN = "user_id = (select user_id from _memoir.users where external_id = %s)"
Rows = list[tuple[Any, ...]]


# Rows -----------------------------------------------------------------------------------------------------------------


def user_id(db: Db, user: str) -> Any:
    """The id that the name has or will have."""
    return _one(db, "select _memoir.user_id('default', %s)", [user])


def own_rows(db: Db, user: str, table: str, columns: str, where: str = "true") -> Rows:
    """Columns of the user's rows of a table. `where` may end with an order."""
    return db.execute(f"select {columns} from _memoir.{table} t where {OWN} and {where}", [user]).fetchall()


def note_audit(db: Db, action: str) -> None:
    """A row of the audit log, as the function that acts writes it."""
    db.execute("insert into _memoir.audit_log (action) values (%s)", [action])


def sql_name(table: str) -> str:
    """The table's name in a statement of SQL."""
    return f"_memoir.{table}"


def count_rows(db: Db, table: str, where: str = "true", *values: Any) -> int:
    return int(_one(db, f"select count(*) from _memoir.{table} where {where}", values))


def count_vectors(db: Db, user: str, model: str) -> int:
    """The user's vectors by that model."""
    by_model = "model_id = (select model_id from _memoir.embedding_models where name = %s)"
    return count_rows(db, "embeddings", f"{OWN} and {by_model}", user, model)


def merged_settings(db: Db) -> dict[str, Any]:
    """The settings of the install as functions read them."""
    return dict(_one(db, "select config from _memoir.settings_merged"))


def count_all_rows(db: Db) -> dict[str, int]:
    """{table: rows} of every table of the product."""
    tables = """select relname from pg_class where relnamespace = '_memoir'::regnamespace and relkind in ('r', 'p')
        and not relispartition"""
    return {name: count_rows(db, name) for (name,) in db.execute(tables).fetchall()}


def lock_tables(db: Db, *tables: str) -> None:
    """For as long as the transaction lasts, also against reading."""
    db.execute(f"lock table {', '.join(f'_memoir.{table}' for table in tables)} in access exclusive mode")


def memory_row(db: Db, memory_id: str, columns: str = "state::text") -> tuple[Any, ...]:
    """Columns of a memory as it lies in its table."""
    row = db.execute(f"select {columns} from _memoir.memory_store where memory_id = %s", [memory_id]).fetchone()
    assert row is not None, memory_id
    return tuple(row)


def set_memories(db: Db, *memories: str, **values: str) -> None:
    """Changes columns of memories, each value an expression of SQL."""
    changed = ", ".join(f"{column} = {value}" for column, value in values.items())
    db.execute(f"update _memoir.memory_store set {changed} where memory_id = any (%s)", [list(memories)])


def set_users(db: Db, *users: str, **values: str) -> None:
    """Changes columns of users, each value an expression of SQL."""
    changed = ", ".join(f"{column} = {value}" for column, value in values.items())
    db.execute(f"update _memoir.users set {changed} where external_id = any (%s)", [list(users)])


def use_memories(db: Db, memories: list[str], accesses: int, relevance: float) -> None:
    """As if they had been recalled that often, just now; promotion will look at their user."""
    counts = "access_count = %s, relevance_sum = %s, last_accessed_at = memoir.now()"
    values = [accesses, accesses * relevance, memories]
    db.execute(f"update _memoir.memory_stats set {counts} where memory_id = any (%s)", values)
    users = "select distinct user_id from _memoir.memory_store where memory_id = any (%s)"
    db.execute(f"select _memoir.enqueue('promote', user_id, '') from ({users}) u", [memories])


def derive_memory(db: Db, memory: str, source: str) -> None:
    """Makes a memory one that was drawn from another."""
    db.execute(
        """insert into _memoir.memory_sources (user_id, item_kind, item_id, source_kind, source_id)
        select user_id, 'memory', memory_id, 'memory', %s from _memoir.memory_store where memory_id = %s""",
        [source, memory],
    )


def keep_forms(db: Db, user: str, *fidelities: int) -> Any:
    """Stores the forms of the user's newest object as at a moment of compile; their tokens."""
    of = "keep_forms(m.user_id, array_fill(m.memory_id, array[%s]), %s::smallint[])"
    return _of_newest_object(db, user, of, fidelities)[0]


def read_forms(db: Db, user: str, *fidelities: int) -> list[dict[str, Any]]:
    """The forms of the user's newest object."""
    of = "object_forms(m.user_id, array_fill(m.memory_id, array[%s]), %s::smallint[])"
    return _of_newest_object(db, user, of, fidelities)


def _of_newest_object(db: Db, user: str, function: str, fidelities: tuple[int, ...]) -> list[Any]:
    newest = (
        f"select * from _memoir.memory_store where is_object and {OWN} order by recorded_at desc, memory_id limit 1"
    )
    query = f"select to_jsonb(f) from ({newest}) m cross join lateral _memoir.{function} f"
    return [form for (form,) in db.execute(query, [user, len(fidelities), list(fidelities)])]


def large_passages(db: Db, user: str, session: Any, question: str) -> Rows:
    """(first line, last line, text) of what answers a question in the large outputs of a session."""
    found = "select first_line, last_line, body from _memoir.large_passages(%s, %s, %s, 3, 'normal')"
    return db.execute(found, [user_id(db, user), session, question]).fetchall()


def item_places(db: Db, user: str) -> Rows:
    """(item, kind, ref, session, turn, time, start, length) of all of a user's items."""
    columns = "item_no, kind, ref_id::text, session_id::text, turn_index, recorded_at::text, span_start, span_length"
    return db.execute(f"select {columns} from _memoir.search_items where {OWN} order by item_no", [user]).fetchall()


def is_unread(db: Db, config: str, question: str) -> bool:
    """Whether the model does not read the question's language, with that configuration of text search."""
    asked = """select (_memoir.question(gen_random_uuid(), null, c, _memoir.read_question(%s, c, null, false), null, null)).unread
        from _memoir.settings_merged, jsonb_set(config, '{text_search_config}', to_jsonb(%s::text)) c"""
    return bool(_one(db, asked, [question, config]))


def read_again(db: Db, user: str | None = None) -> None:
    """Moves extraction's cursors back, as if all turns of the user, or of all, were new."""
    whose = "" if user is None else f"where {OWN}"
    db.execute(f"update _memoir.session_counters set extracted_through = 0 {whose}", [user] if user else [])


# The queue and jobs ---------------------------------------------------------------------------------------------------


def work(db: Db, kind: str, columns: str = "state, attempts, last_error") -> Rows:
    """What waits, is leased or dead of a kind."""
    return db.execute(f"select {columns} from _memoir.work_items where kind = %s order by work_id", [kind]).fetchall()


def clear_work(db: Db, *kinds: str) -> None:
    """Deletes all work of these kinds, or all there is, so that a test claims only its own."""
    db.execute("delete from _memoir.work_items where %s = '{}' or kind = any (%s)", [list(kinds), list(kinds)])


def make_work_due(db: Db, *, anew: bool = False) -> None:
    """No work waits for its time; with `anew` none has been tried yet."""
    again = ", state = 'ready', attempts = 0" if anew else ""
    db.execute(f"update _memoir.work_items set run_after = now(){again}")


def use_up_attempts(db: Db, kind: str) -> None:
    db.execute("update _memoir.work_items set attempts = 100, run_after = '2000-01-01' where kind = %s", [kind])


def end_leases(db: Db) -> None:
    """As if their workers had been silent for too long."""
    over = "leased_until = clock_timestamp() - interval '1 second'"
    db.execute(f"update _memoir.work_items set {over} where state = 'leased'")


def last_run(db: Db, job: str) -> tuple[Any, ...]:
    """(outcome, counts, error) of a job's newest run."""
    newest = "where job = %s order by run_id desc limit 1"
    row = db.execute(f"select outcome, counts, error from _memoir.job_runs {newest}", [job]).fetchone()
    assert row is not None, job
    return tuple(row)


def add_runs(db: Db, jobs: list[str], outcome: str = "done", error: str | None = None) -> None:
    """A run of each job that has just ended so."""
    run = "insert into _memoir.job_runs (job, started_at, finished_at, outcome, error) select j, now(), now(), %s, %s"
    db.execute(f"{run} from unnest(%s::text[]) j", [outcome, error, jobs])


def move_runs(db: Db, jobs: list[str], ago: str) -> None:
    """All runs of these jobs began that long ago."""
    db.execute("update _memoir.job_runs set started_at = now() - %s::interval where job = any (%s)", [ago, jobs])


def clear_runs(db: Db, error: str) -> None:
    db.execute("delete from _memoir.job_runs where error = %s", [error])


def lease_jobs(db: Db, jobs: list[str], backend: int) -> None:
    """As if that backend ran them."""
    db.execute(
        """insert into _memoir.job_leases (job, run_id, backend, leased_until)
        select job, 0, %s, clock_timestamp() + interval '10 minutes' from unnest(%s::text[]) job""",
        [backend, jobs],
    )


def release_job(db: Db, job: str) -> None:
    db.execute("delete from _memoir.job_leases where job = %s", [job])


# Functions ------------------------------------------------------------------------------------------------------------


def has_python(db: Db) -> bool:
    """Whether the server has PL/Python, and so calls models itself."""
    return bool(_one(db, "select to_regprocedure('_memoir.run_in_python(text,bigint)') is not null"))


def run_internal(db: Db, function: str, *arguments: Any) -> Any:
    """The value of an internal function that tests of the API can't tell from others."""
    return _one(db, f"select _memoir.{function}({', '.join(['%s'] * len(arguments))})", arguments)


def redacted(db: Db, text: str) -> str:
    """A question as it goes to a model: without what looks secret."""
    return str(_one(db, "select (_memoir.read_question(%s, '{}', null, false)).facts ->> 'redacted'", [text]))


def plain_secrets(db: Db, text: str) -> list[str]:
    """The kinds of secrets that SQL finds alone, as on a server without PL/Python."""
    found = "select array(select distinct s.kind from _memoir.plain_secrets(normalize(%s, nfkc)) s)"
    return list(_one(db, found, [text]))


def languages_by_number(db: Db) -> Rows:
    """Number and name of each language with data."""
    return db.execute("select number::integer, name from _memoir.data_languages()").fetchall()


@contextmanager
def changed_function(db: Db, name: str, change: Callable[[str], str]) -> Iterator[None]:
    """An internal function has the definition meanwhile that `change` makes of its own."""
    old = _one(db, "select pg_get_functiondef(('_memoir.' || %s)::regproc)", [name])
    db.execute(change(old))
    try:
        yield
    finally:
        db.execute(old)


def _one(db: Db, query: str, values: Any = ()) -> Any:
    row = db.execute(query, values).fetchone()
    assert row is not None, query
    return row[0]
