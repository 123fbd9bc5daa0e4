"""What the rules make of conversations with gold evidence: how many of the turns that answer questions yield a memory, how many of
all turns do, and how many memories say something that their source does not.

    python -m bench.extraction --data locomo.json [--data realmem/ --data beam/] [--samples 100]

Everything is imported through persist_turn and the job `extract` runs, without vectors and without a language model. A memory is
supported if every word and number of it stands in the span it names as its source, in the inflection that a name instead of "I"
needs, or is the date that an expression of time in the span means on the day of the turn; that is worked out anew here.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from pg_memoir import Memoir

from .common import CannotRun, fresh_database, progress, report, run_alone, table
from .datasets import Asked, Said, read
from .evidence import store

MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
# Words that stand in a memory because "I" became a name or an expression of time a date.
FRAME = set(
    "asks corrects is has will would had does doesn't hasn't was themselves user assistant i have am on in of the around before week weekend evening night morning afternoon s".split()
)

MADE = """
  select s.source_id::text, m.content, substr(h.content, s.span_start, s.span_length), coalesce(h.name, ''), h.created_at, m.provenance::text, m.type
  from _memoir.memory_sources s join _memoir.memory_store m on m.user_id = s.user_id and m.memory_id = s.item_id
  join _memoir.conversation_history h on h.user_id = s.user_id and h.message_id = s.source_id
  order by s.source_id, s.span_start"""


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.lower().replace("’", "'"))


def possible_dates(span: str, said: date) -> set[date]:
    """Days that begin what the span's expressions of time mean: generous where people are (a weekday, "weekend"), exact elsewhere."""
    text = span.lower().replace("’", "'")
    monday = said - timedelta(days=said.weekday())
    found = {
        said - timedelta(days=n)
        for n, word in (
            (1, "yesterday"),
            (1, "last night"),
            (2, "day before yesterday"),
            (0, "today"),
            (0, "tonight"),
            (0, "this "),
        )
        if word in text
    }
    found |= {said + timedelta(days=n) for n, word in ((1, "tomorrow"), (2, "day after tomorrow")) if word in text}
    for sign, word in ((-1, "last"), (-1, "past"), (1, "next"), (0, "this"), (0, "coming")):
        if re.search(rf"\b{word} week\b", text):
            found.add(monday + timedelta(days=7 * sign))
        if re.search(rf"\b{word} weekend\b", text):
            found.add(monday + timedelta(days=5 + 7 * sign))
    for number, unit in re.findall(rf"\b(\d+|an?|{'|'.join(NUMBERS)}) (day|week)s?\b", text):
        count = int(number) if number.isdigit() else 1 if number in ("a", "an") else NUMBERS.index(number) + 1
        step = timedelta(days=count * (7 if unit == "week" else 1))
        found |= {said - step, said + step}
    for name in re.findall(r"\b(mon|tue|wed|thu|fri|sat|sun)[a-z]*\b", text):
        found |= {day for n in range(-13, 15) if (day := said + timedelta(days=n)).weekday() == DAYS.index(name)}
    for place, month in enumerate(MONTHS, 1):
        for near in re.findall(rf"(?:{month} (\d{{1,2}}))|(?:(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {month})", text):
            for year in {said.year - 1, said.year, said.year + 1} | {
                int(y) for y in re.findall(r"\b(?:19|20)\d\d\b", text)
            }:
                try:
                    found.add(date(year, place, int(near[0] or near[1])))
                except ValueError:
                    pass
    return found


def possible_months(span: str, said: date) -> set[tuple[int, int]]:
    text, found = span.lower(), set()
    counts = [
        int(n) if n.isdigit() else 1 if n in ("a", "an") else NUMBERS.index(n) + 1
        for n in re.findall(rf"\b(\d+|an?|{'|'.join(NUMBERS)}) months?\b", text)
    ]
    for step in [-1 * ("last month" in text), 1 * ("next month" in text), 0, *counts, *(-count for count in counts)]:
        months = said.year * 12 + said.month - 1 + step
        found.add((months // 12, months % 12 + 1))
    for place, month in enumerate(MONTHS, 1):
        if month in text:
            found |= {(said.year + n, place) for n in (-1, 0, 1)}
    return found


def possible_years(span: str, said: date) -> set[int]:
    text = span.lower()
    counts = [
        int(n) if n.isdigit() else 1 if n in ("a", "an") else NUMBERS.index(n) + 1
        for n in re.findall(rf"\b(\d+|an?|{'|'.join(NUMBERS)}) years?\b", text)
    ]
    near = (
        {said.year - 1, said.year, said.year + 1}
        if re.search(r"\b(last|next|this) (year|spring|summer|fall|autumn|winter)\b", text)
        else set()
    )
    return near | {said.year + step for count in counts for step in (count, -count)}


def unsupported(content: str, span: str, speaker: str, at: datetime) -> list[str]:
    """Words of a memory that its source neither says nor means."""
    said, left = at.date(), content.replace("’", "'")
    for day, month, year in re.findall(r"\b(\d{1,2}) ([A-Z][a-z]+) (\d{4})\b", left):
        if month.lower() in MONTHS and date(int(year), MONTHS.index(month.lower()) + 1, int(day)) in possible_dates(
            span, said
        ) | {said}:
            left = left.replace(f"{day} {month} {year}", " ")
    for month, year in re.findall(r"\b([A-Z][a-z]+) (\d{4})\b", left):
        if month.lower() in MONTHS and (int(year), MONTHS.index(month.lower()) + 1) in possible_months(span, said):
            left = left.replace(f"{month} {year}", " ")
    for year in re.findall(r"\b(\d{4})\b", left):
        if int(year) in possible_years(span, said):
            left = left.replace(year, " ")
    known = (
        set(words(span))
        | {part for word in words(span) for part in word.split("'")}
        | set(words(speaker))
        | {f"{word}'s" for word in words(speaker or "user")}
        | FRAME
    )
    known |= {"user's", "assistant's"}
    if set(words(span)) & {"we", "our", "us", "ours", "ourselves", "we're", "we've", "we'll", "we'd"}:
        known |= {"they", "their", "them", "theirs", "themselves", "they're", "they've", "they'll", "they'd"}

    def is_known(word: str) -> bool:
        return (
            word in known
            or (word.endswith("ies") and word[:-3] + "y" in known)
            or (word.endswith("es") and word[:-2] in known)
            or (word.endswith("s") and word[:-1] in known)
        )

    return [word for word in words(left) if not is_known(word)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        help="a LoCoMo file, a folder of RealMem dialogues or of BEAM chats; may be given several times",
    )
    parser.add_argument("--samples", type=int, default=0, help="memories to print, for reading")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the database made")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    if not options.data:
        raise CannotRun(
            "no data: give files or folders of conversations with gold evidence by --data (they are not part of the project)"
        )
    rows: list[list[Any]] = []
    sample: list[str] = []
    with (
        fresh_database("extraction", options.keep) as dsn,
        Memoir(dsn) as memoir,
        psycopg.connect(dsn, autocommit=True) as db,
    ):
        for path in options.data:
            kinds: dict[str, list[Any]] = {}
            for corpus in read(path):
                said = [event for event in corpus.events if isinstance(event, Said)]
                if not said:
                    continue
                progress(f"{corpus.kind}: {corpus.name}")
                ids = {key: stored.id for key, stored in store(memoir, f"{corpus.kind}: {corpus.name}", said).items()}
                gold = {
                    ids[key]
                    for event in corpus.events
                    if isinstance(event, Asked)
                    for key in event.evidence
                    if key in ids
                }
                people = {
                    ids[event.key] for event in said if event.message["role"] == "user" or event.message.get("name")
                }
                kinds.setdefault(corpus.kind, []).append((len(said), gold, people, set(ids.values())))
            db.execute("call memoir.run_job('extract', 3600)")
            everything = db.execute(MADE).fetchall()
            for kind, parts in kinds.items():
                stored_ids = set().union(*(part[3] for part in parts))
                made = [row for row in everything if row[0] in stored_ids]
                turns, gold, people = (
                    sum(part[0] for part in parts),
                    set().union(*(part[1] for part in parts)),
                    set().union(*(part[2] for part in parts)),
                )
                with_memory = {row[0] for row in made}
                bad = [row for row in made if unsupported(row[1], row[2], row[3], row[4])]
                for row in bad[:20]:
                    print(
                        f"unsupported: {row[1]} <- {row[2]} ({row[4]:%d %b %Y}): {unsupported(row[1], row[2], row[3], row[4])}",
                        file=sys.stderr,
                    )
                rows.append(
                    [
                        kind,
                        turns,
                        len(made),
                        _share(len(with_memory), turns),
                        _share(len(with_memory & people), len(people)),
                        f"{len(gold)}",
                        _share(len(with_memory & gold), len(gold)),
                        _share(len(with_memory & gold & people), len(gold & people)),
                        f"{len(bad)} ({_share(len(bad), len(made))} %)",
                    ]
                )
                rng = random.Random(options.seed)
                sample += [
                    f"{kind}: {row[1]}  <- {row[2]}  ({row[4]:%d %b %Y}, {row[5]})"
                    for row in rng.sample(made, min(options.samples, len(made)))
                ]
    progress("")
    for line in sample:
        print(line)
    head = [
        "data",
        "turns",
        "memories",
        "turns with a memory, %",
        "of people's turns, %",
        "gold turns",
        "of them with a memory, %",
        "of those said by people, %",
        "without support",
    ]
    return [report("extraction", table(head, rows))]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f}"


if __name__ == "__main__":
    sys.exit(run_alone("bench.extraction", __doc__, add_arguments, run, expected=(CannotRun, ValueError)))
