"""Do edits of memory pages hold? Persons talk, their pages are edited and pushed, and later they say the old things again.

    python -m bench.pages [--facts bench/tasks/pages.toml] [--list]

METHODS.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pg_memoir import Memoir
from pg_memoir.types import MarkdownPage, Message

from .common import ROOT, CachedEmbedder, CannotRun, fresh_database, progress, report, run_alone, table

SENTENCE = re.compile(r"^- (.+)$", re.MULTILINE)
SOURCED = re.compile(r"\[\^([0-9a-f]{8,})\]$")


@dataclass(frozen=True)
class Edited:
    """An edit of a page. `old`: the value that must not come back; `new`: the sentence that must stay."""

    kind: str
    old: str | None
    new: str | None
    said: tuple[str, str]  # the sentence and the value as the person said them


def answered(texts: list[str]) -> list[Message]:
    """Messages of a person, each with an answer."""
    made: list[Message] = []
    for text in texts:
        made += [{"role": "user", "content": text}, {"role": "assistant", "content": "Sure, I keep that in mind."}]
    return made


def talk(memoir: Memoir, user: str, session: str, texts: list[str], chat: list[str], chance: random.Random) -> None:
    """Stores a session: what is said, with small talk between, and reads it."""
    mixed = [line for text in texts for line in (chance.choice(chat), text)]
    memoir.append(user, session, answered(mixed))
    memoir.extract_session(user, session)


# Harm: what an editor does to a page that nobody changed ----------------------------------------------------------------


def edit_lines(change: Callable[[str], str]) -> Callable[[str], str]:
    """Returns what changes each line of a page's body, without its head and last comment."""

    def edit(page: str) -> str:
        head, body, base = re.fullmatch(r"(---\n.*?\n---\n)(.*)(<!-- pg_memoir base.*)", page, re.DOTALL).groups()  # type: ignore[union-attr]
        return head + "\n".join(map(change, body.split("\n"))) + base

    return edit


def wrap(line: str) -> str:
    """Returns a line as an editor wraps it at 40 columns."""
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 40, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def move(page: str) -> str:
    """Returns a page whose items stand in another order, all below the first heading that has any."""
    items = [found[0] for found in SENTENCE.finditer(page)]
    rest = SENTENCE.sub("\0", page)
    return re.sub(r"\0(\n\0)*", "\n".join(reversed(items)), rest, count=1).replace("\0\n", "").replace("\0", "")


def number(page: str) -> str:
    """Returns a page whose footnotes are numbered, as some editors write them."""
    labels = dict.fromkeys(re.findall(r"\[\^([0-9a-f]{8,})\](?!:)", page.split("-->", 1)[1]))
    for count, label in enumerate(labels, 1):
        page = page.replace(f"[^{label}]", f"[^{count}]")
    return page


HARMLESS: dict[str, Callable[[str], str]] = {
    "as it was": lambda page: page,
    "lines moved": move,
    "white space": edit_lines(lambda line: line.replace(" ", "  ") + "  "),
    "other line ends": lambda page: page.replace("\n", "\r\n"),
    "wrapped at 40 columns": edit_lines(wrap),
    "other marks of lists": edit_lines(lambda line: re.sub(r"^- ", "* ", line)),
    "footnotes numbered": number,
    "curly quotation marks": edit_lines(lambda line: line.replace("'", "’")),
}


def push_harmless(memoir: Memoir, user: str, page: MarkdownPage, counts: dict[str, list[int]]) -> None:
    """Pushes a page in each form, and counts the edits that were found, and the sentences."""
    for name, change in HARMLESS.items():
        pushed = memoir.push_page(user, change(page.markdown))
        seen = counts.setdefault(name, [0, 0])
        seen[0] += len(pushed.edits)
        seen[1] += pushed.untouched
    now = memoir.memory_page(user)
    if now.markdown != page.markdown:
        raise ValueError(f"pushing the page of {user} unchanged changed it")


# Edits -----------------------------------------------------------------------------------------------------------------


def edit_page(page: MarkdownPage, facts: list[dict[str, Any]], nth: int, added: str) -> tuple[str, list[Edited]]:
    """Returns a page as a person edits it, and the edits."""
    lines, edits, count = page.markdown.split("\n"), [], 0
    for place, line in enumerate(lines):
        found = next((one for one in facts if re.search(rf"\b{re.escape(one['values'][nth])}\b", line)), None)
        if not line.startswith("- ") or found is None:
            continue
        value, other = found["values"][nth], found["values"][(nth + 2) % len(found["values"])]
        count += 1
        if count % 4 == 0:
            continue
        said = (found["say"].format(value), value)
        if count % 4 == 2:
            lines[place] = "\0"
            edits.append(Edited("deleted", value, None, said))
        else:
            lines[place] = line.replace(value, other)
            edits.append(Edited("changed", value, SOURCED.sub("", lines[place][2:]), said))
    place = next(number for number, line in enumerate(lines) if line == "## Facts") + 2
    lines.insert(place, f"- {added}")
    edits.append(Edited("added", None, added, ("", "")))
    return "\n".join(line for line in lines if line != "\0"), edits


def find_lost(page: MarkdownPage, edits: list[Edited]) -> list[Edited]:
    """Returns the edits that a page does not show any more."""
    texts = [one.text for one in page.sentences]

    def is_back(old: str) -> bool:
        return any(re.search(rf"\b{re.escape(old)}\b", text) for text in texts)

    return [one for one in edits if one.new and one.new not in texts or one.old and is_back(one.old)]


def count_sourced(memoir: Memoir, user: str, page: MarkdownPage) -> tuple[int, int]:
    """Returns how many sentences of a page's text name a memory that exists, and turns that do, and how many there are."""
    lines, sourced = SENTENCE.findall(page.markdown), 0
    for line in lines:
        mark = SOURCED.search(line)
        note = re.search(rf"^\[\^{mark[1]}\]: memory (\S+), (.*)$", page.markdown, re.MULTILINE) if mark else None
        if note and memoir.memory_get(user, [note[1]]):
            turns = re.findall(r"(\S+):(\d+)", note[2])
            sourced += bool(turns or "by a person" in note[2]) and all(
                memoir.history(user, session, from_turn=int(turn), to_turn=int(turn)) for session, turn in turns
            )
    return sourced, len(lines)


def read_again(memoir: Memoir, db: psycopg.Connection[Any], user: str) -> None:
    """Has all turns of a user extracted as if they were new."""
    db.execute(
        "update _memoir.session_counters set extracted_through = 0"
        " where user_id = (select user_id from _memoir.users where external_id = %s)",
        [user],
    )
    for row in memoir.list_sessions(user):
        memoir.extract_session(user, row.session, limit=1000)


def measure(
    memoir: Memoir, db: psycopg.Connection[Any], given: dict[str, Any], embed: CachedEmbedder, lists: bool
) -> tuple[dict[str, list[int]], dict[str, Counter[str]], tuple[int, int]]:
    """Returns counts of harm, of edits that hold by stage and kind, and of sentences with sources."""
    chance, facts = random.Random(11), given["fact"]
    harm: dict[str, list[int]] = {}
    held: dict[str, Counter[str]] = {}
    sourced = sentences = 0

    def check(stage: str, user: str, edits: list[Edited]) -> None:
        memoir.embed_backlog(embed)
        page = memoir.memory_page(user)
        lost = find_lost(page, edits)
        held.setdefault(stage, Counter()).update(edit.kind for edit in edits)
        held[stage].update(f"{edit.kind} held" for edit in edits if edit not in lost)
        for edit in lost if lists else []:
            about = [one.text for one in page.sentences if edit.old and edit.old in one.text]
            print(f"{stage}: {user} {edit.kind} {edit.said[0]!r} -> {edit.new!r}; the page has {about}")

    for nth, user in enumerate(given["persons"]):
        progress(f"{user}")
        said = [fact["say"].format(fact["values"][nth]) for fact in facts]
        chance.shuffle(said)
        for number in range(0, len(said), 5):
            talk(memoir, user, f"{user}-{number // 5}", said[number : number + 5], given["chat"], chance)
        memoir.embed_backlog(embed)
        page = memoir.memory_page(user)
        of = count_sourced(memoir, user, page)
        sourced, sentences = sourced + of[0], sentences + of[1]
        push_harmless(memoir, user, page, harm)
        text, edits = edit_page(page, facts, nth, given["added"][nth])
        pushed = memoir.push_page(user, text)
        if pushed.count("done") != len(edits):
            raise ValueError(f"{user}: {len(edits)} edits were made, and {pushed}")
        check("after the push", user, edits)
        old = [edit.said for edit in edits if edit.old]
        talk(memoir, user, f"{user}-same", [text for text, _ in old], given["chat"], chance)
        check("said again in the same words", user, edits)
        read_again(memoir, db, user)
        check("and all turns read again", user, edits)
        gone = [(fact, value) for fact in facts if (fact["say"].format(value := fact["values"][nth]), value) in old]
        for way in range(2):
            wordings = [fact["again"][way].format(value) for fact, value in gone]
            talk(memoir, user, f"{user}-other-{way}", wordings, given["chat"], chance)
        check("said again in other words", user, edits)
        read_again(memoir, db, user)
        check("and all turns read once more", user, edits)
        of = count_sourced(memoir, user, memoir.memory_page(user))
        sourced, sentences = sourced + of[0], sentences + of[1]
    return harm, held, (sourced, sentences)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--facts", type=Path, default=ROOT / "bench" / "tasks" / "pages.toml")
    parser.add_argument("--list", action="store_true", help="print the edits that do not hold")


def run(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Measures in a database of its own."""
    embed = CachedEmbedder()
    given = tomllib.loads(options.facts.read_text())
    with (
        fresh_database("pages", options.keep) as dsn,
        psycopg.connect(dsn, autocommit=True) as db,
        Memoir(dsn) as memoir,
    ):
        harm, held, (sourced, sentences) = measure(memoir, db, given, embed, options.list)
    kinds = ("changed", "deleted", "added")
    rows = []
    for stage, counts in held.items():
        pairs = [(counts[f"{kind} held"], counts[kind]) for kind in kinds]
        rows.append([stage, *(f"{kept} of {all_of}" for kept, all_of in [*pairs, map(sum, zip(*pairs))])])
    untouched = [[name, f"{edits} of {sentences}"] for name, (edits, sentences) in harm.items()]
    return [
        report("pages-sources", table(["sentences", "with a source"], [[sentences, sourced]])),
        report("pages-edits", table(["edits that hold", *kinds, "all"], rows)),
        report("pages-harm", table(["a page pushed unchanged", "changes of sentences"], untouched)),
    ]


if __name__ == "__main__":
    sys.exit(run_alone("bench.pages", __doc__, add_arguments, run, keep=True, expected=(CannotRun, ValueError)))
