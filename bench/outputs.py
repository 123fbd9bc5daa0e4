"""Large outputs of tools: python -m bench.outputs [--megabytes 1]

Per kind of text: processor time of the server's process to append one output (the median of five), beside that of storing the
same text in a plain table; to look through it (job scan), to make its compact form, to answer a question from it; the
compact form's tokens, and how many things 135 MB of such outputs make to embed. Needs PG_MEMOIR_DSN; works in a database of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from .common import fresh_database, table

WORDS = "connection request handler worker queue timeout retry payment order customer cache index shard replica leader".split()


def log(size: int) -> str:
    rng, lines, length = random.Random(1), [], 0
    while length < size:
        line = (
            f"2026-03-13T10:{rng.randrange(60):02}:{rng.randrange(60):02}Z {rng.choice(['INFO', 'DEBUG', 'WARN'])} "
            + (
                f"{rng.choice(WORDS)}.{rng.choice(WORDS)} {' '.join(rng.choices(WORDS, k=8))} took {rng.randrange(5000)} ms"
            )
        )
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)


def prose(size: int) -> str:
    rng = random.Random(2)
    words = rng.choices([*WORDS, "the", "of", "and", "was", "is", "harbour", "town."], k=size // 6)
    return " ".join(words)[:size]


def chinese(size: int) -> str:
    """Of some two thousand characters, as common ones are."""
    rng = random.Random(3)
    common = [chr(code) for code in range(0x4E00, 0x5600)]
    weights = [1 / (n + 8) for n in range(len(common))]
    return "".join(rng.choices([*common, "，", "。\n"], [*weights, 0.02, 0.01], k=size // 3))


def processor(connection: psycopg.Connection[Any]) -> float:
    """Seconds that the server's process has had."""
    fields = Path(f"/proc/{connection.info.backend_pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def cost(connection: psycopg.Connection[Any], work: Callable[[], Any]) -> float:
    begun = processor(connection)
    work()
    return 1000 * (processor(connection) - begun)


def measured(connection: psycopg.Connection[Any], kind: str, text: str) -> list[Any]:
    message = json.dumps([{"role": "tool", "tool_call_id": "c", "content": text}])
    call = {"id": "c", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "make"}'}}
    asked = json.dumps(
        [{"role": "user", "content": "Go."}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    )
    connection.execute("create temp table if not exists plain (t text)")
    plain, appended, rest = [], [], []
    for n in range(6):
        user = f"{kind}-{n}"
        connection.execute("select memoir.append_messages(%s, 's', %s)", [user, asked])
        plain.append(
            cost(
                connection,
                lambda: connection.execute("insert into plain select %s::jsonb -> 0 ->> 'content'", [message]),
            )
        )
        appended.append(
            cost(
                connection,
                lambda u=user: connection.execute("select memoir.append_messages(%s, 's', %s)", [u, message]),
            )
        )
    found = "from _memoir.users u join _memoir.memory_store m using (user_id) join _memoir.sessions s using (user_id, session_id)"
    rest.append(cost(connection, lambda: connection.execute("call memoir.run_job('scan')")) / 6)
    form = f"select f.token_count {found}, _memoir.object_forms(m.user_id, array[m.memory_id], '{{2}}') f where m.is_object and u.external_id = %s"
    rest.append(cost(connection, lambda: connection.execute(form, [f"{kind}-5"])))
    answer = f"select p.score {found}, _memoir.large_passages(s.user_id, s.session_id, %s, 5, 'normal') p where m.is_object and u.external_id = %s"
    rest.append(
        cost(connection, lambda: connection.execute(answer, ["which payment handler took 4711 ms?", f"{kind}-5"]))
    )
    tokens = connection.execute(form, [f"{kind}-5"]).fetchone()
    items = connection.execute(
        "select count(*) from _memoir.search_items join _memoir.users u using (user_id) where embeddable and external_id = %s",
        [f"{kind}-5"],
    ).fetchone()
    assert items is not None
    times = [statistics.median(values[1:]) for values in (plain, appended)]
    return [
        kind,
        *(f"{value:.0f}" for value in (*times, *rest)),
        tokens[0] if tokens else "secret",
        f"{items[0] * 135e6 / len(text.encode()):.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1)
    size = int(parser.parse_args().megabytes * 1_000_000)
    with fresh_database("outputs") as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set client_min_messages = error")
        rows = [measured(connection, make.__name__, make(size)) for make in (log, prose, chinese)]
    head = [
        "text",
        "plain insert ms",
        "append ms",
        "scan ms",
        "compact form ms",
        "answer ms",
        "compact tokens",
        "to embed in 135 MB",
    ]
    print(table(head, rows))


if __name__ == "__main__":
    main()
