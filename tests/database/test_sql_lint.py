"""The installed SQL is sound: no name depends on a caller's search_path, no code is dead, and the reference describes it all."""

import re
from argparse import Namespace
from collections.abc import Iterator

import build_reference
import pytest
from calls import Db, one
from pgspot.state import Counter, State
from pgspot.visitors import visit_sql
from servers import ARTIFACT, BUILD, complete, connect, database, has_plpython

PATH = "set search_path = pg_catalog, memoir_extensions, pg_temp"  # what "from current" means in an install; test_access.py compares
SCHEMAS = "create schema memoir;\ncreate schema _memoir;\ncreate schema memoir_extensions;\n"
HEADER = re.compile(r"create or replace (function|procedure) _?memoir\.(\w+)\((?:[^$;]|';')*?as (\$\w*\$)", re.I)
# What pgspot would have to know, and how it is known instead.
EXCEPTIONS = {
    # A procedure that commits can't pin a path. It is looked at name by name: nothing else of it may be found.
    "PS005": re.compile(
        r"memoir\.(enable_jobs|disable_jobs|ensure_partitions|run_job)\("
        # Raises with what it is given; granted to admins for those procedures.
        r"|_memoir\.fail\("
    ),
    # The preamble refuses a schema that is not its own: test_a_schema_of_somebody_else_is_refused.
    "PS010": re.compile(r"^(_?memoir|memoir_extensions)$"),
}


@pytest.fixture(scope="module")
def internal(server_dsn: str) -> Iterator[set[str]]:
    """Functions that nobody but the owner may execute: they run below functions that have pinned the path, and nowhere else."""
    with database(server_dsn) as dsn:
        complete(dsn)
        with connect(dsn) as db:
            yield {
                name
                for (name,) in db.execute("""
                select p.proname from pg_proc p where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and p.prokind = 'f' and not p.prosecdef
                  and not exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee <> p.proowner)
                  and p.prorettype <> 'trigger'::regtype and not exists (select from pg_depend d where d.deptype = 'e' and d.objid = p.oid)""")
            }


def prepared(text: str, internal: set[str]) -> str:
    """The script as pgspot can read it: psql's own commands done, functions with the path they run under."""
    text = re.sub(r"\s*\\gset$", ";", text, flags=re.MULTILINE)
    text = re.sub(r"^\\(set|if|elif|else|endif)\b.*$", "", text, flags=re.MULTILINE).replace("(:modulus)", "(8)")
    # Bodies that "return" bound their names when they were created, under the path of the install.
    text = re.sub(r"create or replace function [^$;]*\nreturn [^$;]*;", "", text)
    text = text.replace('"position"', '"place"')  # printed back without its quotes, it would be another word
    text = re.sub(r"\breturn next ([^;]+);", r"return query select \1;", text)  # which pgspot does not know
    # Without a catalogue the parser takes a variable of a composite type for a scalar.
    text = re.sub(r"(\bv\w* )_?memoir\.\w+\b(?!\[)(?= *(:=|;))", r"\1record", text)
    text = re.sub(
        r"(\bout \w+ )_memoir\.\w+\[\]", r"\1text[]", text
    )  # and an argument that is an array of them for one

    def pinned(match: re.Match[str]) -> str:
        header, mark = match.group(0), match.group(3)
        if "set search_path from current" in header:
            return header.replace("set search_path from current", PATH)
        return f"{header.removesuffix(f'as {mark}')} {PATH} as {mark}" if match.group(2) in internal else header

    return HEADER.sub(pinned, text)


class Issues(Counter):
    def __init__(self) -> None:
        empty = dict.fromkeys(("ignore", "proc_without_search_path", "sql_fn"), [])
        super().__init__(Namespace(**empty, ignore_lang=["plpython3u"], plpgsql=True, summary_only=True))
        self.found: list[str] = []

    def print_issue(self, code: str, context: str) -> None:
        if not (code in EXCEPTIONS and EXCEPTIONS[code].search(context)):
            self.found.append(f"{code} {context} at line {self.line_number()}")

    def unknown(self, message: str) -> None:
        self.found.append(message)


def issues_of(text: str) -> list[str]:
    issues = Issues()
    visit_sql(State(issues), text, toplevel=True)
    return issues.found


@pytest.mark.acceptance
def test_pgspot_finds_nothing(internal: set[str]) -> None:
    assert len(internal) > 100
    text = prepared(ARTIFACT.read_text(), internal)
    assert text.count(PATH) > 150
    assert issues_of(SCHEMAS + text) == []  # the preamble makes them in a block, after it has looked whose they are
    python = BUILD / "pg_memoir_plpython.sql"
    assert issues_of(SCHEMAS + prepared(python.read_text(), internal)) == []


def test_pgspot_would_find_it(internal: set[str]) -> None:
    text = ARTIFACT.read_text()
    for good, bad, code in (
        ("j.database operator(pg_catalog.=) pg_catalog.current_database()", "j.database = current_database()", "PS001"),
        ("::pg_catalog.text, 'memoir_jobs'", "::text, 'memoir_jobs'", "PS017"),
        ("perform pg_catalog.pg_sleep(0.5)", "perform pg_sleep(0.5)", "PS016"),
        ("security definer set search_path from current as", "security definer as", "PS003"),
        ("returns trigger language plpgsql set search_path from current", "returns trigger language plpgsql", "PS016"),
    ):
        start = text.rindex("\ncreate or replace", 0, text.index(good))
        statement = SCHEMAS + text[start : text.index("\nend $$;", start) + 8]
        assert not any(issue.startswith(code) for issue in issues_of(prepared(statement, internal)))
        assert any(issue.startswith(code) for issue in issues_of(prepared(statement.replace(good, bad, 1), internal)))


UNUSED = "unused variable|unused parameter|never read variable|unreachable code"
TELLING = re.compile(rf"^({UNUSED}|too many attributes|too few attributes|.* shadows)")
# Made by somebody else or at run time, hence not there to be checked: the tables of pg_cron, temporary tables.
ABSENT = re.compile(r"\bcron\b|\bpg_temp\.")
NOT_CHECKED = {"enable_jobs", "disable_jobs"}  # nothing but calls of pg_cron
# Of functions that are called by one signature, whatever each of them needs.
INTERFACES = re.compile(r"^step_\w+$")
CHECK = """
  select p.proname, c.lineno, c.level, c.message
  from pg_proc p join pg_language l on l.oid = p.prolang left join pg_trigger t on t.tgfoid = p.oid and t.tgparentid = 0
  cross join lateral plpgsql_check_function_tb(p.oid, coalesce(t.tgrelid, 0), fatal_errors => false, performance_warnings => false,
    oldtable => t.tgoldtable, newtable => t.tgnewtable) c
  where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and l.lanname = 'plpgsql'
    and (p.prorettype <> 'trigger'::regtype or t.oid is not null)
  group by 1, 2, 3, 4 order by 1, 2, 4"""


@pytest.fixture(scope="module")
def checked(server_dsn: str, template: str) -> Iterator[Db]:
    """A database with the extension, and nothing else on the path that could lend a name."""
    with database(server_dsn, f"template {template}") as dsn, connect(dsn) as db:
        if not one(db, "select exists (select from pg_available_extensions where name = 'plpgsql_check')"):
            pytest.skip("plpgsql_check is not installed on this server (Debian: postgresql-NN-plpgsql-check)")
        db.execute("create extension plpgsql_check schema public")
        db.execute("set search_path = pg_catalog, memoir_extensions, public")
        yield db


def findings(db: Db) -> list[str]:
    found = []
    for name, line, level, message in db.execute(CHECK):
        is_known = name in NOT_CHECKED or ABSENT.search(message)
        if is_known or message.startswith("unused parameter") and INTERFACES.match(name):
            continue
        if level == "error" or TELLING.match(message):
            found.append(f"{name}, line {line or 1}: {message}")
    return found


def test_no_dead_code(checked: Db) -> None:
    found = findings(checked)
    assert not found, "\n".join(found)


def test_the_reference_is_current(db: Db, memoir_dsn: str) -> None:
    if not has_plpython(memoir_dsn):
        pytest.skip("no PL/Python: what needs it is in the reference and not installed")
    assert build_reference.REFERENCE.read_text() == build_reference.build(db), "make reference, and commit the page"


def test_everything_public_is_commented(db: Db) -> None:
    """It is what \\df+ shows, and the reference."""
    silent = """
        select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'memoir'::regnamespace
          and obj_description(p.oid, 'pg_proc') is null
        union all select c.oid::regclass::text from pg_class c where c.relnamespace = 'memoir'::regnamespace
          and c.relkind in ('r', 'v', 'm') and obj_description(c.oid, 'pg_class') is null"""
    assert db.execute(silent).fetchall() == []
