"""plpgsql_check over what is installed: no variable that nobody uses, no call of what is not there, no line that is never reached."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
from calls import one
from servers import connect, database

TELLING = re.compile(
    r"^(unused variable|unused parameter|never read variable|unreachable code|too many attributes|too few attributes|.* shadows )"
)
# Made by somebody else or at run time, hence not there to be checked: the tables of pg_cron, temporary tables.
ABSENT = re.compile(r"\bcron\b|\bpg_temp\.")
NOT_CHECKED = {"enable_jobs", "disable_jobs"}  # nothing but calls of pg_cron
# Of functions that are called by one signature, whatever each of them needs.
INTERFACES = re.compile(r"^step_\w+$")
CHECK = """
  select p.proname, c.lineno, c.level, c.message
  from pg_proc p join pg_language l on l.oid = p.prolang left join pg_trigger t on t.tgfoid = p.oid and t.tgparentid = 0
  cross join lateral plpgsql_check_function_tb(p.oid, coalesce(t.tgrelid, 0), fatal_errors => false, performance_warnings => false) c
  where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and l.lanname = 'plpgsql'
    and (p.prorettype <> 'trigger'::regtype or t.oid is not null)
  group by 1, 2, 3, 4 order by 1, 2, 4"""


@pytest.fixture(scope="module")
def checked(server_dsn: str, template: str) -> Iterator[psycopg.Connection]:
    """A database with the extension, and nothing else on the path that could lend a name."""
    with database(server_dsn, f"template {template}") as dsn, connect(dsn) as db:
        if not one(db, "select exists (select from pg_available_extensions where name = 'plpgsql_check')"):
            pytest.skip("plpgsql_check is not installed on this server (Debian: postgresql-NN-plpgsql-check)")
        db.execute("create extension plpgsql_check schema public")
        db.execute("set search_path = pg_catalog, memoir_extensions, public")
        yield db


def findings(db: psycopg.Connection) -> list[str]:
    found = []
    for name, line, level, message in db.execute(CHECK):
        if (
            name in NOT_CHECKED
            or ABSENT.search(message)
            or message.startswith("unused parameter")
            and INTERFACES.match(name)
        ):
            continue
        if level == "error" or TELLING.match(message):
            found.append(f"{name}, line {line or 1}: {message}")
    return found


def test_no_dead_code(checked: psycopg.Connection) -> None:
    found = findings(checked)
    assert not found, "\n".join(found)


def test_dead_code_would_be_found(checked: psycopg.Connection) -> None:
    with checked.transaction(force_rollback=True):
        checked.execute("""
            create function _memoir.dead(p_used integer, p_unused integer) returns integer language plpgsql as $$
            declare v_unused integer; v_set integer;
            begin
              v_set := p_used;
              perform _memoir.no_such_function(1);
              return p_used;
            end $$""")
        mine = [text.partition(": ")[2] for text in findings(checked) if text.startswith("dead,")]
    assert sorted(mine) == [
        "function _memoir.no_such_function(integer) does not exist",
        'never read variable "v_set"',
        'unused parameter "p_unused"',
        'unused variable "v_unused"',
    ]
