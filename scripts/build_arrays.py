"""Build the function that reads the kernel's arrays for a client: a server without PL/Python runs no kernel itself.

_memoir.read_arrays holds the statements of plpython/pg_memoir_kernel/queries.sql over the partitioned tables, each with
its parameters out of a JSON array, in their order.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plpython"))

from pg_memoir_kernel.store import SHARED, Statement, read_statements

HEAD = """create or replace function _memoir.read_arrays(p_name text, {shared}, p_given jsonb)
returns setof jsonb language plpgsql stable as $$
begin
  case p_name
"""
TAIL = """    else perform _memoir.fail('PM014', format('unknown arrays %s', _memoir.shown(p_name)));
  end case;
end $$;
"""


def parameter(number: int, type_: str) -> str:
    """Return a parameter out of the JSON array, null where it is null there."""
    value = f"p_given -> {number}"
    if not type_.endswith("[]"):
        return f"(p_given ->> {number})::{type_}"
    elements = f"array(select jsonb_array_elements_text({value}))::{type_}"
    return f"(case when jsonb_typeof({value}) = 'array' then {elements} end)"


def branch(name: str, statement: Statement, seen: str) -> str:
    """Return the branch of one statement; its rows are JSON."""
    parameters = {shared: f"p_{shared}" for shared in SHARED} | {
        own: parameter(number, type_) for number, (own, type_) in enumerate(statement.types.items())
    }
    return f"    when '{name}' then return query select to_jsonb(r) from (\n{statement.written(seen, parameters)}) r;\n"


def function() -> str:
    """Return the text of _memoir.read_arrays."""
    statements, seen = read_statements()
    shared = ", ".join(f"p_{name} {type_}" for name, type_ in SHARED.items())
    branches = "".join(branch(name, statement, seen) for name, statement in statements.items())
    return HEAD.format(shared=shared) + branches + TAIL
