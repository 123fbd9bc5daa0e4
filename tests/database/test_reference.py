"""docs/reference.md says what is installed."""

from __future__ import annotations

import build_reference
import psycopg
import pytest
from servers import has_plpython


def test_the_reference_is_current(db: psycopg.Connection, memoir_dsn: str) -> None:
    if not has_plpython(memoir_dsn):
        pytest.skip("no PL/Python: what needs it is in the reference and not installed")
    assert build_reference.REFERENCE.read_text() == build_reference.build(db), (
        "make reference, and commit docs/reference.md"
    )


def test_everything_public_is_commented(db: psycopg.Connection) -> None:
    """It is what \\df+ shows, and the reference."""
    entries = [*build_reference.functions(db), *build_reference.views(db)]
    assert len(entries) > 100
    silent = db.execute("""
        select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'memoir'::regnamespace and obj_description(p.oid, 'pg_proc') is null
        union all select c.oid::regclass::text from pg_class c
        where c.relnamespace = 'memoir'::regnamespace and c.relkind in ('r', 'v', 'm') and obj_description(c.oid, 'pg_class') is null""").fetchall()
    assert silent == []


def test_a_signature_says_what_may_be_left_out() -> None:
    arguments = [["p_user", "text", ""], ["p_key", "text", "NULL::text"], ["p_limit", "integer", "10"]]
    assert (
        build_reference.signature("f", False, "jsonb", arguments)
        == "memoir.f(p_user text, p_key text default null, p_limit integer default 10) returns jsonb"
    )
    assert build_reference.signature("f", True, None, []) == "call memoir.f()"
    assert build_reference.escaped("a <b> of 2 * 3") == r"a \<b> of 2 \* 3"
