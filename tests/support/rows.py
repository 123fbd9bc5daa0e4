"""Rows of a user for every table, made up from the catalogue: what no call of the API would leave in it yet is covered too."""

from typing import Any

import psycopg

# What checks demand beyond one of the values they list.
SPECIAL: dict[tuple[str, str], str] = {("memory_store", "scope"): "'global'"}
BY_TYPE = {
    **dict.fromkeys(("text", "name"), "'planted'"),
    **dict.fromkeys(("integer", "smallint", "bigint", "numeric"), "1"),
    **dict.fromkeys(("real", "double precision"), "0.5"),
    "uuid": "gen_random_uuid()",
    "boolean": "false",
    **dict.fromkeys(("json", "jsonb"), "'{}'"),
    "bytea": "'\\x01'",
    "timestamp with time zone": "memoir.now()",
    "date": "'2026-01-01'",
    "tsvector": "'planted'",
    "memoir_extensions.halfvec": "'[1,0]'",
    '"char"': "'m'",
    "xid8": "'1'",
    "interval": "'1 day'",
}


WITH_USERS = """select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'user_id'
    where not a.attisdropped and c.relnamespace = '_memoir'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    order by 1"""
COLUMNS = """select a.attname, format_type(a.atttypid, null), a.attnotnull and not a.atthasdef and a.attidentity = '',
      t.typtype::text || t.typcategory::text
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = coalesce(to_regclass('_memoir.' || quote_ident(%(table)s)), to_regclass('memoir.' || quote_ident(%(table)s)))
      and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' order by a.attnum"""
LISTED = r"""select a.attname, substring(pg_get_constraintdef(c.oid) from $$ARRAY\[('(?:[^']|'')*'::[a-z "]+)$$) from pg_constraint c
    join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
    where c.conrelid = ('_memoir.' || quote_ident(%s))::regclass and c.contype = 'c' and cardinality(c.conkey) = 1"""


def tables_with_users(db: psycopg.Connection) -> list[str]:
    """All tables, partitioned ones as a whole, that have a user's rows."""
    return [name for (name,) in db.execute(WITH_USERS)]


def columns(db: psycopg.Connection, table: str) -> list[tuple[str, str, bool, str]]:
    """Name, type, whether a value must be given, and type category."""
    with db.transaction():
        db.execute("set local search_path = pg_catalog")
        return db.execute(COLUMNS, {"table": table}).fetchall()


def listed(db: psycopg.Connection, table: str) -> dict[str, str]:
    """Of columns that may only hold some values: one of those."""
    return {name: value for name, value in db.execute(LISTED, [table]) if value}


def plant(db: psycopg.Connection, table: str, **given: Any) -> None:
    """One row in a table, by a superuser: `given` columns where the table has them, made-up values where it needs any."""
    names, values, arguments = [], [], []
    allowed = listed(db, table)
    for name, kind, is_needed, category in columns(db, table):
        if name in given:
            value: str | None = f"%s::{kind}"
            arguments.append(given[name])
        elif not is_needed:
            continue
        elif (table, name) in SPECIAL:
            value = SPECIAL[table, name]
        elif name in allowed:
            value = allowed[name]
        elif category.endswith("A"):
            value = "'{}'"
        elif category.startswith("e"):
            value = f"(enum_range(null::{kind}))[1]"
        else:
            value = BY_TYPE.get(kind)
        assert value, f"tests/support/rows.py needs a value for {table}.{name} of type {kind}"
        names.append(f'"{name}"')
        values.append(value)
    try:
        db.execute(f"insert into _memoir.{table} ({', '.join(names)}) values ({', '.join(values)})", arguments)
    except psycopg.errors.CheckViolation as error:
        raise AssertionError(f"tests/support/rows.py needs a value in SPECIAL: {error}") from None
