"""Examines the shipped judge, and changes as the product finds them, on texts of a writer that it has not read.

    .local/venv/bin/python -m research.judge.exam j [--list]

Each block's statement is read beside each of its later messages, alone. Prints how often the judge says rightly that a statement is over,
what is found certain and likely by both witnesses, and how often it knows what a request to forget means. Of persons, all that they said
is read beside each message: what a request takes, with what it means and without it, and what messages change. --list prints what is
wrongly certain.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from .texts import MARKS, TEXTS, Person, load, read_blocks

sys.path.insert(0, str(Path(__file__).parents[2] / "plpython"))
SAID = datetime(2026, 5, 4, 9, tzinfo=UTC)
OVER = "!-~"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("writer", nargs="+", help="a file of research/judge/texts, without its ending")
    parser.add_argument("--list", action="store_true", help="print what is wrongly certain")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="their folder")
    options = parser.parse_args()
    from pg_memoir_language.changes import Earlier, Message, find_changes
    from pg_memoir_server import reading

    judge, heads = reading.judge("english"), reading.heads()
    material = load(options.texts)
    for writer in options.writer:
        blocks = list(read_blocks(options.texts / f"{writer}.jsonl"))
        if people := material.of({writer}).people:
            print(f"{writer}:")
            examine_people(people, options.list)
        if not blocks:
            continue
        pairs = [(b, text, mark) for b in blocks for mark, text in b.later if mark in MARKS]
        over = np.array(judge.over([(b.old, text) for b, text, _ in pairs]))
        truth = np.array([mark in OVER for _, _, mark in pairs])
        print(f"{writer}: {len(pairs)} pairs, in {truth.sum()} the statement is over")
        for limit in (0.5, 0.8, 0.9):
            told = over >= limit
            right = (told & truth).sum()
            print(f"  judge at {limit}: precision {right / max(1, told.sum()):.2f}, recall {right / truth.sum():.2f}")
        found: Counter[tuple[str, bool]] = Counter()
        for (block, text, _), is_over in zip(pairs, truth, strict=True):
            whole = block.message or block.old
            start = whole.index(block.old) + 1
            changes = find_changes(
                Message(text, SAID, "english"), [Earlier(whole, "english", SAID, None, True)], judge, None, heads
            )
            grades = {c.grade for c in changes if c.start < start + len(block.old) and start < c.start + c.length}
            grade = "certain" if "certain" in grades else "likely" if grades else "none"
            found[grade, bool(is_over)] += 1
            if options.list and grade == "certain" and not is_over:
                print(f"  wrong: {block.old} → {text}")
        for grade in ("certain", "likely"):
            right, wrong = found[grade, True], found[grade, False]
            print(f"  {grade}: {right} of {truth.sum()} that are over, {wrong} of {(~truth).sum()} others")
        asked = [(b.old, text, mark == "x") for b in blocks for mark, text in b.later if mark in "xX"]
        if asked:
            told = np.array(judge.means([(old, text) for old, text, _ in asked])) >= 0.6
            meant = np.array([is_meant for _, _, is_meant in asked])
            right = (told & meant).sum()
            print(
                f"  targets: {len(asked)}, precision {right / max(1, told.sum()):.2f}, recall {right / meant.sum():.2f}"
            )


def examine_people(people: Sequence[Person], is_listed: bool) -> None:
    """Print what is found of persons: of requests the statement that goes, of messages those that are over since."""
    from pg_memoir_language.changes import Earlier, Memo, Message, find_changes
    from pg_memoir_language.free_requests import find_meant
    from pg_memoir_server import reading

    judge, heads, likeness = reading.judge("english"), reading.heads(), reading.Likeness()
    counts: Counter[str] = Counter()

    def meant(text: str, earlier: Sequence[str]) -> set[int]:
        found = find_meant(text, [(one, True) for one in earlier], judge, heads, likeness, "english")
        return {number for number, _, _ in found.spans}

    for person in people:
        memo: Memo = {}
        for mark, about, text in person.later:
            if mark == "x" and len(about) == 1:
                found = meant(text, person.earlier)
                counts["requests"] += 1
                counts["carried out"] += found == about
                counts["another lost"] += bool(found - about)
                without = [old for number, old in enumerate(person.earlier) if number not in about]
                counts["lost without"] += bool(meant(text, without))
            elif mark != "x":
                earlier = [Earlier(old, "english", SAID, None, True) for old in person.earlier]
                changes = find_changes(Message(text, SAID, "english"), earlier, judge, memo, heads)
                certain = {change.earlier for change in changes if change.grade == "certain"}
                likely = {change.earlier for change in changes if change.grade == "likely"} - certain
                counts["messages"] += 1
                counts["changed"] += mark == "!"
                counts["certain, right"] += len(certain & about)
                counts["certain, wrong"] += len(certain - about)
                counts["likely, right"] += len(likely & about)
                counts["likely, wrong"] += len(likely - about)
                for number in certain - about if is_listed else ():
                    print(f"  wrong: {person.earlier[number]} → {text}")
    print("  of persons: " + ", ".join(f"{count} {what}" for what, count in counts.items()))


if __name__ == "__main__":
    main()
