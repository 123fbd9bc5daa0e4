"""What experience shows before a task: recurring tasks of a project, and recorded sessions of Claude Code.

    python -m bench.experience [--tasks bench/tasks/experience_test.toml] [--sessions FOLDER] [--list]

METHODS.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pg_memoir import Memoir
from pg_memoir.types import Message
from pg_memoir_cli.claude_code import messages as read_transcript

from .common import ROOT, CachedEmbedder, CannotRun, fresh_database, report, run_alone, table

BLOCK = re.compile(r"<memoir-experience>\n.*?</memoir-experience>", re.DOTALL)
ROUNDS = 4
WRAPS = ("{}", "cd /srv/app && {}", "{} 2>&1 | tail -n 30", "{}")


@dataclass
class Tally:
    """Counts of one kind of message."""

    asked: int = 0
    shown: int = 0
    first: int = 0
    in_three: int = 0
    failed_above: int = 0
    tokens: list[int] = field(default_factory=list)

    def row(self, name: str, has_way: bool) -> list[str | int]:
        tokens = [n for n in self.tokens if n]
        return [
            name,
            self.asked,
            self.shown,
            *((self.in_three, self.first, self.failed_above) if has_way else ("–", "–", "–")),
            round(statistics.mean(self.tokens)) if self.tokens else 0,
            max(tokens, default=0),
        ]


def read_block(memoir: Memoir, user: str, session: str, asked: str, embed: CachedEmbedder) -> tuple[list[str], int]:
    """The lines of experience in a compile of a message, and its tokens."""
    made = memoir.context(user, session, asked, query_embedding=embed([asked])[0])
    found = BLOCK.search(str(made["messages"][-1]["content"]))
    return (found[0].splitlines()[2:-1], memoir.count_tokens(found[0])) if found else ([], 0)


def call(number: int, command: str, about: str, result: str) -> list[Message]:
    """A call of the shell with its result."""
    arguments = json.dumps({"command": command, "description": about})
    asked = {"id": f"call_{number}", "type": "function", "function": {"name": "Bash", "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
    ]


def make_session(task: dict[str, Any], nth: int, chance: random.Random) -> list[Message]:
    """The messages of a task's session, the nth of four."""
    about = task["about"][nth % len(task["about"])]
    wrap = chance.choice(WRAPS)
    said: list[Message] = [{"role": "user", "content": task["ask"][nth]}]
    said += call(0, "ls", "List files", "README.md\nsrc\ntests")
    later = task.get("later") if nth >= 2 else None
    tried = later["tried"] if later and nth == 2 else task["tried"] if nth == 0 else []
    for number, (command, printed) in enumerate(tried, 1):
        is_wrong = "said" not in task
        other = task["about"][(nth + number) % len(task["about"])]
        said += call(number, wrap.format(command), other, f"Exit code 1\n{printed}" if is_wrong else printed)
    if nth == 0 and "said" in task:
        said += [{"role": "assistant", "content": "That is done."}, {"role": "user", "content": task["said"]}]
    for number, command in enumerate(task.get("helpers", []) if nth == 0 else [], 20):
        said += call(number, command, "Prepare", "done")
    said += call(40, "git status", "See what changed", "On branch main\nnothing to commit")
    said += call(41, wrap.format(later["way"] if later else task["way"]), about, "ok, finished in 3.1s")
    return [*said, {"role": "assistant", "content": "Done."}]


def make_findable(memoir: Memoir, user: str, sessions: list[str], embed: CachedEmbedder) -> None:
    """Does at once what the jobs do: experience is found in sessions, and its texts get vectors."""
    for session in sessions:
        memoir.extract_session(user, session)
    memoir.embed_backlog(embed)


def judge(lines: list[str], way: str, wrong: list[str], tally: Tally) -> bool:
    """Adds what stands in a block to a tally; returns whether the way is the first."""
    places = [n for n, line in enumerate(lines) if way in line and not line.startswith("- Failed")]
    place = places[0] if places else None
    tally.in_three += place is not None and place < 3
    tally.first += place == 0
    failed = [n for n, line in enumerate(lines) if line.startswith("- Failed")]
    stale = [n for n, line in enumerate(lines) if n not in failed and any(f"=> {one} (" in line for one in wrong)]
    tally.failed_above += bool(stale if place is None else min([*failed, *stale], default=place) < place)
    return place == 0


def measure(
    memoir: Memoir, tasks: list[dict[str, Any]], unrelated: list[str], lists: bool, embed: CachedEmbedder
) -> list[list[str | int]]:
    """Rows of the table: what was asked, how often, what was shown."""
    chance, user = random.Random(5), "project"
    new, repeats, other, changed = Tally(), Tally(), Tally(), Tally()
    waiting: list[str] = []

    def ask(asked: str, session: str, tally: Tally) -> list[str]:
        lines, tokens = read_block(memoir, user, session, asked, embed)
        tally.asked += 1
        tally.shown += bool(lines)
        tally.tokens.append(tokens)
        return lines

    for nth in range(ROUNDS):
        for place, task in enumerate(chance.sample(tasks, len(tasks)), 1):
            session = f"{nth} {task['ask'][0]}"
            later = task.get("later")
            tally = new if nth == 0 else changed if later and nth == 3 else repeats
            lines = ask(task["ask"][nth], session, tally)
            if nth:
                way = later["way"] if later and nth == 3 else task.get("shows", task["way"])
                wrong = [one for one, _ in task["tried"]] + ([task["way"]] if later and nth == 3 else [])
                if not judge(lines, way, wrong, tally) and lists:
                    print(f"not first: {task['ask'][nth]} -> {way}", *lines, sep="\n    ")
            elif lists and lines:
                print(f"new: {task['ask'][nth]}", *lines, sep="\n    ")
            memoir.append(user, session, make_session(task, nth, chance))
            waiting.append(session)
            if place % 6 == 0 or place == len(tasks):
                make_findable(memoir, user, waiting, embed)
                waiting.clear()
    for number, asked in enumerate(unrelated):
        lines = ask(asked, f"unrelated {number}", other)
        if lists and lines:
            print(f"unrelated: {asked}", *lines, sep="\n    ")
    return [
        repeats.row("repeats", True),
        changed.row("repeats after another way took over", True),
        new.row("tasks of the project that are new", False),
        other.row("unrelated", False),
    ]


def measure_recorded(memoir: Memoir, folder: Path, lists: bool, embed: CachedEmbedder) -> list[list[str | int]]:
    """Rows of the table for recorded sessions: what each teaches, and what was shown before it."""
    rows: list[list[str | int]] = []
    for path in sorted(folder.glob("*.jsonl")):
        said = read_transcript([json.loads(line) for line in path.read_text().splitlines()])
        asked = next(str(one["content"]) for one in said if one["role"] == "user")
        lines, tokens = read_block(memoir, "recorded", path.stem, asked, embed)
        known = len(memoir.list_memories("recorded", types=["procedure", "lesson", "skill"], limit=1000))
        memoir.append("recorded", path.stem, said)
        make_findable(memoir, "recorded", [path.stem], embed)
        now = memoir.list_memories("recorded", types=["procedure", "lesson", "skill"], limit=1000)
        rows.append([path.stem, len(said), len(now) - known, len(lines), tokens])
        if lists:
            print(path.stem, *lines, *(f"learnt: {one.content!r}" for one in now[: len(now) - known]), sep="\n    ")
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=Path, default=ROOT / "bench" / "tasks" / "experience_test.toml")
    parser.add_argument("--sessions", type=Path, help="a folder of transcripts of Claude Code")
    parser.add_argument("--list", action="store_true", help="print the repeats whose way is not the first, and harm")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own."""
    embed = CachedEmbedder()
    given = tomllib.loads(options.tasks.read_text())
    with fresh_database("experience", options.keep) as dsn, Memoir(dsn) as memoir:
        columns = ["asked for", "messages", "with a block", "way in the first three", "way first", "failed above"]
        columns += ["tokens", "most"]
        rows = measure(memoir, given["task"], given["unrelated"], options.list, embed)
        sections = [report("experience", table(columns, rows))]
        if options.sessions:
            columns = ["recorded session", "messages", "ways learnt", "lines shown before", "tokens"]
            rows = measure_recorded(memoir, options.sessions, options.list, embed)
            sections.append(report("experience-recorded", table(columns, rows)))
    return sections


if __name__ == "__main__":
    sys.exit(run_alone("bench.experience", __doc__, add_arguments, run, keep=True, expected=(CannotRun, ValueError)))
