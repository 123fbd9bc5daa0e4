"""Changes that are found in conversations in which little changes: each speaker is a user whose own words are read.

    python -m bench.changes --data locomo.json [--data realmem/] [--users 10] [--list]

Everything is stored through persist_turn and read by extract_session, with the model server's judge and without vectors. A
statement is a message with a clause that states something. Prints what was found certain and likely per 1,000 statements; --list
prints each pair, to be read by hand. ms a message: from call to answer, one after another.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from pg_memoir import Memoir

from .common import CannotRun, fresh_database, progress, report, run_alone, table
from .datasets import Corpus, Said, read

FOUND = """
  select x.is_doubt, substr(o.content, x.span_start, x.span_length), n.content
  from _memoir.recall_exclusions x
  join _memoir.conversation_history o on o.user_id = x.user_id and o.session_id = x.session_id and o.turn_index = x.turn_index
  join _memoir.conversation_history n on n.user_id = x.user_id and n.session_id = x.by_session and n.turn_index = x.by_turn
  where x.user_id = (select user_id from _memoir.users where external_id = %s) and x.changed and o.role = 'user'
  order by n.created_at, n.turn_index"""


def speakers(corpus: Corpus) -> list[str | None]:
    """The names under which users speak in a corpus; None: without a name."""
    return sorted(
        {e.message.get("name") for e in corpus.events if isinstance(e, Said) and e.message["role"] == "user"}, key=str
    )


def measure(db: psycopg.Connection[Any], memoir: Memoir, corpus: Corpus, speaker: str | None) -> dict[str, Any]:
    """Store a corpus as one speaker's and read it."""
    user = f"{corpus.name}-{speaker or 'user'}"
    said, sessions = 0, []
    for event in corpus.events:
        if not isinstance(event, Said):
            continue
        message = dict(event.message)
        if message["role"] == "user":
            own = message.pop("name", None) == speaker
            said += own
            message["role"] = "user" if own else "assistant"
        memoir.persist_turn(user, event.session, [message])
        if event.session not in sessions:
            sessions.append(event.session)
    started = time.perf_counter()
    for session in sessions:
        db.execute("select memoir.extract_session(%s, %s)", [user, session])
    seconds = time.perf_counter() - started
    rows = db.execute(FOUND, [user]).fetchall()
    return {"said": said, "rows": rows, "seconds": seconds}


def run(options: argparse.Namespace) -> Sequence[tuple[str, str]]:
    rows, pairs = [], []
    with (
        fresh_database("changes", options.keep) as dsn,
        psycopg.connect(dsn, autocommit=True) as db,
        Memoir(dsn) as memoir,
    ):
        for path in options.data:
            total = {"users": 0, "said": 0, "certain": 0, "likely": 0, "seconds": 0.0}
            for corpus in read(path):
                for speaker in speakers(corpus):
                    if options.users and total["users"] >= options.users:
                        continue
                    found = measure(db, memoir, corpus, speaker)
                    progress(f"{corpus.name} {speaker}: {found['said']} messages")
                    total["users"] += 1
                    total["said"] += found["said"]
                    total["seconds"] += found["seconds"]
                    for is_doubt, old, new in found["rows"]:
                        total["likely" if is_doubt else "certain"] += 1
                        pairs.append(("likely" if is_doubt else "certain", old, new))
            per = total["said"] / 1000 or 1
            rows.append(
                (
                    path.name, total["users"], total["said"], total["certain"], f"{total['certain'] / per:.1f}",
                    total["likely"], f"{total['likely'] / per:.1f}", f"{1000 * total['seconds'] / max(1, total['said']):.0f}",
                )
            )  # fmt: skip
    if options.list:
        for grade, old, new in sorted(pairs):
            print(f"{grade}: {' '.join(old.split())} → {' '.join(new.split())[:400]}")
    head = ("data", "users", "messages", "certain", "per 1,000", "likely", "per 1,000", "ms a message")
    return [report("Changes found in conversations", table(head, rows))]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", action="append", type=Path, required=True, help="a LoCoMo file, a RealMem or BEAM folder"
    )
    parser.add_argument("--users", type=int, default=0, help="the first so many users of each")
    parser.add_argument("--list", action="store_true", help="print each pair")


if __name__ == "__main__":
    sys.exit(
        run_alone(
            __spec__.name if __spec__ else "bench.changes",
            __doc__,
            options,
            run,
            keep=True,
            expected=(CannotRun, ValueError),
        )
    )
