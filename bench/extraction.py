"""What conversations become: how many messages yield a memory, which changes are found, and how long that takes.

    python -m bench.extraction --data locomo.json [--users 10] [--samples 60] [--list]

METHODS.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from pg_memoir import Memoir

from .common import CannotRun, fresh_database, progress, report, run_alone, table
from .datasets import Corpus, Said, locomo

MADE = """
  select s.source_id::text, m.content, substr(h.content, s.span_start, s.span_length)
  from _memoir.memory_sources s join _memoir.memory_store m on m.user_id = s.user_id and m.memory_id = s.item_id
  join _memoir.conversation_history h on h.user_id = s.user_id and h.message_id = s.source_id
  where s.user_id = (select user_id from _memoir.users where external_id = %s) and h.role = 'user' order by 1, s.span_start"""
FOUND = """
  select x.is_doubt, substr(o.content, x.span_start, x.span_length), n.content
  from _memoir.recall_exclusions x
  join _memoir.conversation_history o on o.user_id = x.user_id and o.session_id = x.session_id and o.turn_index = x.turn_index
  join _memoir.conversation_history n on n.user_id = x.user_id and n.session_id = x.by_session and n.turn_index = x.by_turn
  where x.user_id = (select user_id from _memoir.users where external_id = %s) and x.changed and o.role = 'user'
  order by n.created_at, n.turn_index"""


@dataclass
class Found:
    """Counts of several users, with the memories and changes that were found."""

    users: int = 0
    said: int = 0
    gold: int = 0
    told: int = 0  # messages that yield a memory
    gold_told: int = 0
    seconds: float = 0.0
    memories: list[tuple[str, str]] = field(default_factory=list)  # with their sources
    changes: list[tuple[str, str, str]] = field(default_factory=list)  # grade, old words, message

    def row(self, name: str) -> list[Any]:
        def per(part: float, whole: int, times: int) -> str:
            return f"{times * part / max(1, whole):.1f}"

        grades = [sum(grade == each for grade, *_ in self.changes) for each in ("certain", "likely")]
        shares = [per(self.told, self.said, 100), self.gold, per(self.gold_told, self.gold, 100)]
        changes = (per(count, self.said, 1000) for count in grades)
        return [name, self.users, self.said, len(self.memories), *shares, *changes, per(self.seconds, self.said, 1000)]


def speakers(corpus: Corpus) -> list[str | None]:
    """The names under which users speak in a corpus; None: without a name."""
    said = [event.message for event in corpus.items() if isinstance(event, Said)]
    return sorted({message.get("name") for message in said if message["role"] == "user"}, key=str)


def measure(db: psycopg.Connection[Any], memoir: Memoir, corpus: Corpus, speaker: str | None, found: Found) -> None:
    """Stores a corpus as one speaker's, reads it, and adds what was found."""
    user, events, own = f"{corpus.name}-{speaker or 'user'}", [], set()
    for event in corpus.items():
        if isinstance(event, Said):
            message = dict(event.message)
            if message["role"] == "user" and message.pop("name", None) == speaker:
                own.add(event.key)
            else:
                message["role"] = "assistant"
            events.append(Said(event.key, event.session, message))
    stored: dict[str, str] = {}
    for session, its in itertools.groupby(events, lambda event: event.session):
        said = list(its)
        ids = memoir.persist_turn(user, session, [event.message for event in said])["message_ids"]
        stored |= {event.key: str(found_id) for event, found_id in zip(said, ids, strict=True)}
    started = time.perf_counter()
    for session in dict.fromkeys(event.session for event in events):
        memoir.extract_session(user, session)
    found.seconds += time.perf_counter() - started
    made = db.execute(MADE, [user]).fetchall()
    told = {source for source, *_ in made}
    gold = {stored[key] for question in corpus.questions() for key in question.evidence if key in own}
    found.users, found.said, found.told = found.users + 1, found.said + len(own), found.told + len(told)
    found.gold, found.gold_told = found.gold + len(gold), found.gold_told + len(gold & told)
    found.memories += [(content, source) for _, content, source in made]
    grades = ("certain", "likely")
    found.changes += [(grades[is_doubt], old, new) for is_doubt, old, new in db.execute(FOUND, [user])]


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own."""
    rows = []
    with (
        fresh_database("extraction", options.keep) as dsn,
        psycopg.connect(dsn, autocommit=True) as db,
        Memoir(dsn) as memoir,
    ):
        for path in options.data:
            found = Found()
            for corpus in locomo(path):
                for speaker in speakers(corpus):
                    if not options.users or found.users < options.users:
                        progress(f"{corpus.name} {speaker}")
                        measure(db, memoir, corpus, speaker, found)
            rows.append(found.row(path.name))
            for grade, old, new in sorted(found.changes) if options.list else ():
                print(f"{grade}: {' '.join(old.split())} → {' '.join(new.split())[:400]}")
            for content, source in random.Random(0).sample(found.memories, min(options.samples, len(found.memories))):
                print(f"{content}  <- {source}")
    head = ["data", "users", "messages", "memories", "messages with one, %", "gold turns", "of these with one, %"]
    head += ["certain changes per 1,000", "likely per 1,000", "ms a message"]
    return [report("extraction", table(head, rows))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "a LoCoMo file; may be given several times"
    parser.add_argument("--data", action="append", type=Path, required=True, help=about)
    parser.add_argument("--users", type=int, default=0, help="the first so many users of each")
    parser.add_argument("--samples", type=int, default=0, help="memories to print with their sources")
    parser.add_argument("--list", action="store_true", help="print each change")


if __name__ == "__main__":
    sys.exit(run_alone("bench.extraction", __doc__, add_arguments, run, keep=True, expected=(CannotRun, ValueError)))
