"""Build what gets installed, for scripts/build_sql.sh:

OUT/pg_memoir.sql              installs and upgrades, needs no other file: migrations/, generated functions, sql/
OUT/pg_memoir_plpython.sql     the PL/Python functions

Tables (sql/data) and the data of languages (plpython/pg_memoir_language/data) become functions that return them
(build_data.py), and the statements that the kernel reads by become one function. The list of markers becomes patterns
with all that looks like them (build_markers.py). The same sources and the same Python give the same bytes. Files that
would not change are not touched.
"""

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import build_data
import build_markers
from check_layers import INCLUDE
from pg_memoir_kernel.store import SHARED, Statement, read_statements

ROOT = Path(__file__).resolve().parent.parent
HEAD = r"""-- pg_memoir {version}: installs or upgrades, in one transaction:
--     psql -X -1 -v ON_ERROR_STOP=1 -f pg_memoir.sql
-- Then, each on its own: call memoir.setup(); call memoir.ensure_partitions();
-- Built by scripts/build_sql.sh; edit the sources.
\set ON_ERROR_STOP on
\set memoir_version '{version}'
savepoint needs_psql_option_1;          -- fails unless the whole file runs as one transaction (psql -1)
release savepoint needs_psql_option_1;
"""
PYTHON_HEAD = r"""-- pg_memoir {version}: the PL/Python functions, on top of pg_memoir.sql, as superuser:
--     psql -X -1 -v ON_ERROR_STOP=1 -f pg_memoir_plpython.sql
\set ON_ERROR_STOP on

"""
MIGRATION = r"""select coalesce(max(sha256), '') = '' as _is_new, coalesce(max(sha256) <> '{sha}', false) as _has_changed
from _memoir.schema_migrations where name = '{name}' \gset
\if :_has_changed
do $$ begin
  raise exception 'migration {name} was applied with another text than this file has'
    using hint = 'applied migrations are frozen; put the change into a new one';
end $$;
\endif
\if :_is_new
{text}
insert into _memoir.schema_migrations (name, sha256) values ('{name}', '{sha}');
\endif
"""

ARRAYS = """create or replace function _memoir.read_arrays(p_name text, {shared}, p_given jsonb)
returns setof jsonb language plpgsql stable as $$
begin
  case p_name
{branches}    else perform _memoir.fail('PM014', format('unknown arrays %s', _memoir.shown(p_name)));
  end case;
end $$;
"""


def version() -> str:
    """The version, as the client has it."""
    found = re.search(r'^__version__ = "([^"]+)"', (ROOT / "client/pg_memoir/__init__.py").read_text("utf-8"), re.M)
    if found is None:
        sys.exit("client/pg_memoir/__init__.py has no __version__")
    return found[1]


def section(name: str, text: str) -> str:
    return f"\n-- {name} {'-' * (115 - len(name))}\n{text}"


def migration(path: Path) -> str:
    """Return SQL that runs a migration unless it has run. The text of one that has must not have changed."""
    if not re.fullmatch(r"[a-z0-9_]+", path.stem):
        sys.exit(f"build_sql: {path}: only a-z, 0-9 and _ in the name of a migration")
    raw = path.read_bytes()
    return MIGRATION.format(name=path.stem, sha=hashlib.sha256(raw).hexdigest(), text=raw.decode())


def array_parameter(number: int, type_: str) -> str:
    """Return a parameter out of the JSON array, null where it is null there."""
    value = f"p_given -> {number}"
    if not type_.endswith("[]"):
        return f"(p_given ->> {number})::{type_}"
    elements = f"array(select jsonb_array_elements_text({value}))::{type_}"
    return f"(case when jsonb_typeof({value}) = 'array' then {elements} end)"


def array_branch(name: str, statement: Statement, seen: str) -> str:
    """Return the branch of one statement; its rows are JSON."""
    parameters = {shared: f"p_{shared}" for shared in SHARED} | {
        own: array_parameter(number, type_) for number, (own, type_) in enumerate(statement.types.items())
    }
    return f"    when '{name}' then return query select to_jsonb(r) from (\n{statement.written(seen, parameters)}) r;\n"


def read_arrays() -> str:
    """Return the function that reads the kernel's arrays for a client, because a server without PL/Python runs no kernel.

    It holds the statements of queries.sql over the partitioned tables, each with its parameters out of a JSON array.
    """
    statements, seen = read_statements()
    shared = ", ".join(f"p_{name} {type_}" for name, type_ in SHARED.items())
    branches = "".join(array_branch(name, statement, seen) for name, statement in statements.items())
    return ARRAYS.format(shared=shared, branches=branches)


def sections() -> Iterator[str]:
    """Yield the parts of pg_memoir.sql in their order: the preamble, migrations, data, and the table of contents."""
    sql = ROOT / "sql"
    preamble, *code = INCLUDE.findall((sql / "contents.sql").read_text("utf-8"))
    yield section(f"sql/{preamble}", (sql / preamble).read_text("utf-8"))
    for path in sorted((ROOT / "migrations").glob("*.sql")):
        yield section(f"migrations/{path.name}", migration(path))
    yield build_data.tables()
    yield section("sql/data/markers.csv", build_markers.functions(sql / "data" / "markers.csv"))
    yield section("plpython/pg_memoir_language/data/*.toml", build_data.lists())
    yield section("plpython/pg_memoir_kernel/queries.sql", read_arrays())
    for name in code:
        yield section(f"sql/{name}", (sql / name).read_text("utf-8"))


def put(path: Path, text: str) -> None:
    """Write a file if it differs, in one step for those who read it meanwhile."""
    if not path.exists() or path.read_text("utf-8") != text:
        new = path.with_suffix(".new")
        new.write_text(text, "utf-8")
        new.replace(path)


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    put(out / "pg_memoir.sql", HEAD.format(version=version()) + "".join(sections()))
    functions = (ROOT / "plpython" / "functions.sql").read_text("utf-8")
    put(out / "pg_memoir_plpython.sql", PYTHON_HEAD.format(version=version()) + functions)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
