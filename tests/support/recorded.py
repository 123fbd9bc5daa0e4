"""Records what the public API answers in many fixed cases: no list may change without somebody meaning it.

    eval "$(scripts/cluster.sh env)"                      after make up
    .local/venv/bin/python tests/support/recorded.py FILE         one JSON line per case: {"case", "sha256", "result"}
    .local/venv/bin/python tests/support/recorded.py --compare FILE
                                                          what differs from such a file; exits 1 if anything does
    .local/venv/bin/python tests/support/recorded.py --snapshot   writes tests/snapshots/recorded.txt, which the test reads

Before a change that must not show, record FILE; afterwards compare. When a change is meant to show, compare, read, and
write the snapshot.

The cases are the stories of stories.py and worlds of generators.py, told in a database of its own, on the SQL core
alone: token counts and rankings depend on no library there. Texts keep to characters that all versions of Unicode in
use know alike, and of PostgreSQL's own errors only the codes are kept. Not there: what depends on chance (an order by
random ids, as of memories made in one transaction, and objects, whose names are parts of theirs), standbys, exact token counts, embedders, language models, archives.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
from generators import CALL, Case, World, world
from properties import MODELS
from servers import complete, connect, database
from stories import STORIES
from story import DIMENSION, MODEL, Story, vector

SNAPSHOT = Path(__file__).resolve().parents[1] / "snapshots" / "recorded.txt"
WORLDS, CASES = 64, 4
# Characters of a world: the large ones take long, so that there are a few of them only.
LARGE, LARGEST = 20_000, 60_000
EMOJI = range(0x1F000, 0x1FB00)
OPTIONS = "-c client_min_messages=warning -c timezone=UTC -c jit=off"


@dataclass(frozen=True)
class Recorded:
    """A case and what came of it, as canonical JSON."""

    case: str
    text: str

    @property
    def sha256(self) -> str:
        return sha256(self.text.encode()).hexdigest()

    @property
    def line(self) -> str:
        return f'{{"case": {json.dumps(self.case)}, "sha256": "{self.sha256}", "result": {self.text}}}'


# --- Generated worlds -------------------------------------------------------------------------------------------------


def settled(value: Any) -> Any:
    """A value without characters that came to Unicode after 3.2, emoji apart: servers differ in what they are."""
    if isinstance(value, str):
        known = unicodedata.ucd_3_2_0.category
        return "".join("x" if known(c) == "Cn" and ord(c) not in EMOJI else c for c in value)
    if isinstance(value, dict):
        return {settled(key): settled(inner) for key, inner in value.items()}
    return [settled(inner) for inner in value] if isinstance(value, list) else value


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments named without p_, with vectors that belong to their texts."""
    out: dict[str, Any] = settled({key.removeprefix("p_"): value for key, value in arguments.items()})
    if "embedding" in out:
        out["embedding"] = vector(out["content"])
    if "query_embedding" in out:
        out["query_embedding"] = vector(out.get("query") or "piano lesson on Friday")
    return out


def live(story: Story, made: World, number: int) -> datetime:
    """Lives through a world, and returns a time in the middle of it."""
    middle = story.now
    for index, call in enumerate(made.calls):
        # What comes last has no vectors in some of them, nothing has in others.
        if made.embed and index == len(made.calls) - 1:
            story.embed()
        if index == len(made.calls) // 2:
            middle = story.now
        arguments = given(call.arguments)
        if call.function == "open_session" and arguments["session"] == CALL:
            arguments["model"] = sorted(MODELS)[number % len(MODELS)]
        story.write(call.function, **arguments)
    if number % 8 == 4:
        sessions = [call.arguments["p_session"] for call in made.calls if call.function == "persist_turn"]
        for session in dict.fromkeys(sessions):
            story.write("extract_session", session=session)
    if number % 2:
        story.job("merge")
    if made.embed and number % 4:
        story.embed()
    return middle


def ask(story: Story, made: World, index: int, case: Case, middle: datetime) -> None:
    """Asks for one compile, and a little more with each."""
    arguments = given(case.arguments)
    arguments["by_words"] = "query_embedding" not in arguments and (index % 2 == 0 or not made.embed)
    if index == 3:
        arguments.setdefault("as_of", middle)
    story.ask(f"{index}", **arguments)
    if index == 0:
        story.ask(f"{index} compiled", "compile_context", **arguments)
    elif index == 1:
        story.ask(f"{index} explained", "explain_context", **arguments)
        story.job("flush")
    elif index == 2:
        story.ask("recalled", "recall", query=arguments.get("query") or "budget for the flight to Lisbon", limit=12)
        story.ask("history", "history", session=CALL)


# --- Recording --------------------------------------------------------------------------------------------------------


def told(db: psycopg.Connection, every: int = 1) -> Iterator[Story]:
    """All stories and every so manieth world, one after another, in a database where nothing has happened yet."""
    db.execute("select memoir.register_embedding_model(%s, 'none', %s)", [MODEL, DIMENSION])
    db.execute("select memoir.switch_embedding_model(%s)", [MODEL])
    db.execute("select memoir.register_model('small', 'openai', 2500, 500)")
    for setting, value in {
        "compaction_tokens": "1500",
        "tail_items_max": "16",
        "job_seconds_max": "3600",
        "object_tokens_min": "100000",
    }.items():
        db.execute("select memoir.set_setting(%s, %s)", [setting, value])
    for tell in STORIES:
        story = Story(db, tell.__name__)
        story.later(minutes=0)
        tell(story)
        yield story
    for number in range(0, WORLDS, every):
        made = world(f"1:{number}", CASES)
        size = sum(len(str(call.arguments)) for call in made.calls)
        if size > (LARGE if number % 5 else LARGEST):
            continue
        story = Story(db, f"world {made.seed}")
        middle = live(story, made, number)
        for index, case in enumerate(made.cases):
            ask(story, made, index, case, middle)
        yield story


def canonical(result: Any) -> str:
    return json.dumps(result, sort_keys=True, separators=(",", ":"))


def record(server_dsn: str, every: int = 1) -> list[Recorded]:
    """All cases (of worlds: of every so manieth), told in a new database of the server."""
    with database(server_dsn) as dsn:
        complete(dsn)
        with connect(dsn, options=OPTIONS) as db:
            return [Recorded(case, canonical(result)) for story in told(db, every) for case, result in story.cases()]


# --- Comparing --------------------------------------------------------------------------------------------------------


def digests(recorded: list[Recorded]) -> dict[str, str]:
    return {one.case: one.sha256[:16] for one in recorded}


def snapshot() -> dict[str, str]:
    """The digests somebody has seen to be right."""
    pairs = (line.rpartition(" ") for line in SNAPSHOT.read_text().splitlines())
    return {case: digest for case, _, digest in pairs}


def changes(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """{case: new, gone or changed}, of those that are not the same."""
    return {
        case: "gone" if case not in after else "new" if case not in before else "changed"
        for case in before | after
        if before.get(case) != after.get(case)
    }


def difference(before: str, after: str, most: int = 40) -> str:
    """How two results differ, as a diff of lines: those of texts, too."""

    def lines(text: str) -> list[str]:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False).replace("\\n", "\n").split("\n")

    diff = list(difflib.unified_diff(lines(before), lines(after), "before", "after", n=2, lineterm=""))
    return "\n".join(diff[:most] + ([f"... {len(diff) - most} lines more"] if len(diff) > most else []))


def compare(file: Path, recorded: list[Recorded], most: int = 5) -> bool:
    """Whether a file has these cases; prints how they differ, the first ones in full."""
    lines = [json.loads(line) for line in file.read_text().split("\n") if line]
    old = [Recorded(line["case"], canonical(line["result"])) for line in lines]
    before, after = ({one.case: one.text for one in cases} for cases in (old, recorded))
    found = changes(digests(old), digests(recorded))
    for index, (case, what) in enumerate(found.items()):
        print(f"{what}: {case}")
        if index < most and what == "changed":
            print(difference(before[case], after[case]), end="\n\n")
    print(f"{len(recorded)} cases, {len(found)} not as in {file}")
    return not found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="where to record to")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier record to compare with")
    parser.add_argument("--snapshot", action="store_true", help=f"write tests/snapshots/{SNAPSHOT.name}")
    options = parser.parse_args()
    if not (options.file or options.compare or options.snapshot):
        parser.error("give a FILE, --compare FILE or --snapshot")
    if "PG_MEMOIR_DSN" not in os.environ:
        parser.error('PG_MEMOIR_DSN is not set: eval "$(scripts/cluster.sh env)"')
    recorded = record(os.environ["PG_MEMOIR_DSN"])
    if options.file:
        options.file.write_text("".join(f"{one.line}\n" for one in recorded))
    if options.snapshot:
        SNAPSHOT.write_text("".join(f"{case} {digest}\n" for case, digest in digests(recorded).items()))
    return 0 if not options.compare or compare(options.compare, recorded) else 1


if __name__ == "__main__":
    sys.exit(main())
