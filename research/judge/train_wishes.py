"""Teaches the judge of lasting wishes, and writes plpython/pg_memoir_server/judge_wishes.safetensors.

    .local/venv/bin/python -m research.judge.train_wishes [--leave-out WRITER …] [--calm FOLDER …] [--write]

Logistic regressions over what the shipped judges know of a text (judge_wishes.py). They learn of wishes/, users who tell an
assistant how to behave and months later what of it has changed, and of the sentences of texts/. --calm: conversations with an
assistant, whose sentences are taken for no wishes (RealMem, Apache-2.0; ProactiveMemBench, MIT); of each second one the shares of
wrong wishes are printed instead. Prints, for the writers that are left out, how many wishes are found by a chance, and of wishes that
are over how many are told, with how many of those told that are not. Five minutes on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from .texts import CLASSES, conversations, load

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plpython"))
WISHES = Path(__file__).with_name("wishes")
OVER, NEW = frozenset({"replaced", "ended"}), frozenset({"replaced", "narrowed"})
# Strengths of the regressions (inverse of their L2 penalty), by a search over writers in turn.
STRENGTHS = {"wish": 0.003, "changes": 0.003, "over": 0.01}
MOST_OF_TEXTS, MOST_CALM = 3000, 3000


@dataclass(frozen=True)
class Later:
    """A later message; `does`: what it does to wishes, by number."""

    text: str
    does: dict[int, str]


@dataclass(frozen=True)
class User:
    writer: str
    wishes: list[str]
    later: list[Later]


def read_users(folder: Path = WISHES) -> Iterator[User]:
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            later = [Later(one["text"], {number: what for what, number in one["does"]}) for one in row["later"]]
            yield User(file.stem, row["wishes"], later)


def fit(given: np.ndarray, truth: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights and the bias of a logistic regression over features as they are."""
    scaler = StandardScaler().fit(given)
    found = LogisticRegression(C=strength, max_iter=500).fit(scaler.transform(given), truth)
    weight = found.coef_[0] / scaler.scale_
    return weight.astype(np.float32), np.array([found.intercept_[0] - weight @ scaler.mean_], np.float32)


class Teacher:
    """What the shipped models know of all texts."""

    def __init__(self) -> None:
        from pg_memoir_server import judge_wishes, reading
        from pg_memoir_server.judge import Judge

        self.judge, self.embed, self.of = Judge(), reading.encoder().embed, judge_wishes

    def texts(self, texts: list[str]) -> np.ndarray:
        return self.of.text_features(self.judge, texts)

    def pairs(self, user: User, text: str) -> np.ndarray:
        return self.of.pair_features(self.judge, self.embed, user.wishes, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="WRITER")
    parser.add_argument("--calm", nargs="*", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--write", action="store_true", help="write what was learnt")
    options = parser.parse_args()
    teacher, chance = Teacher(), random.Random(1)
    users = [u for u in read_users() if u.writer not in options.leave_out]
    held = [u for u in read_users() if u.writer in options.leave_out]
    calm = calm_sentences(options.calm, chance)
    heads = teach(teacher, users, calm[::2], chance)
    if held:
        examine(teacher, heads, held, calm[1::2])
    if options.write:
        target = teacher.of.LEARNT
        save_file(heads, target)
        target.chmod(0o644)
        print(f"{target.name}: {hashlib.sha256(target.read_bytes()).hexdigest()[:12]}")


def calm_sentences(folders: list[Path], chance: random.Random) -> list[str]:
    from pg_memoir_language.text import own_sentences

    said = [text for folder in folders for _, texts in conversations(folder) for text in texts]
    chance.shuffle(said)
    found = [s.said for text in said[:MOST_CALM] for s in own_sentences(text[:1500])[:4] if 8 <= len(s.said) <= 200]
    chance.shuffle(found)
    return found[:MOST_CALM]


def teach(teacher: Teacher, users: list[User], calm: list[str], chance: random.Random) -> dict[str, np.ndarray]:
    heads: dict[str, np.ndarray] = {}
    rows = [(s.new, CLASSES[s.label] == "i") for s in load().sentences if s.label >= 0]
    chance.shuffle(rows)
    rows = rows[:MOST_OF_TEXTS] + [(text, False) for text in calm]
    rows += [(wish, True) for user in users for wish in user.wishes]
    # A message that does nothing to a wish may hold a further one.
    told = [one for user in users for one in user.later if one.does]
    rows += [(one.text, not NEW.isdisjoint(one.does.values())) for one in told]
    given = teacher.texts([text for text, _ in rows])
    heads["wish.weight"], heads["wish.bias"] = fit(given, np.array([is_wish for _, is_wish in rows]), STRENGTHS["wish"])

    asked = [(user, one) for user in users for one in user.later]
    truth = np.array([not OVER.isdisjoint(one.does.values()) for _, one in asked])
    alone = teacher.texts([one.text for _, one in asked])
    pairs = [teacher.pairs(user, one.text) for user, one in asked]
    over = [np.array([one.does.get(n) in OVER for n in range(len(user.wishes))]) for user, one in asked]
    # The last head sees the others as they are on writers that they have not learnt of.
    writers = np.array([user.writer for user, _ in asked])
    rows_of_which: list[np.ndarray] = []
    truth_of_which: list[np.ndarray] = []
    for writer in sorted(set(writers)):
        mine = np.flatnonzero(writers == writer)
        theirs = np.flatnonzero(writers != writer)
        changes = fit(alone[theirs], truth[theirs], STRENGTHS["changes"])
        pair = fit(np.concatenate([pairs[n] for n in theirs]), np.concatenate([over[n] for n in theirs]), STRENGTHS["over"])
        for n in mine:
            values = pairs[n] @ pair[0] + pair[1]
            rows_of_which.append(teacher.of.stacked(values, (alone[n] @ changes[0] + changes[1]).item()))
            truth_of_which.append(over[n])
    heads["changes.weight"], heads["changes.bias"] = fit(alone, truth, STRENGTHS["changes"])
    heads["over.weight"], heads["over.bias"] = fit(np.concatenate(pairs), np.concatenate(over), STRENGTHS["over"])
    heads["which.weight"], heads["which.bias"] = fit(np.concatenate(rows_of_which), np.concatenate(truth_of_which), 1.0)
    return heads


def examine(teacher: Teacher, heads: dict[str, np.ndarray], held: list[User], calm: list[str]) -> None:
    def apply(head: str, given: np.ndarray) -> np.ndarray:
        return given @ heads[f"{head}.weight"] + heads[f"{head}.bias"]

    chance_of = teacher.of.chance_of
    sets = {
        "wishes": [wish for user in held for wish in user.wishes],
        "messages that replace or narrow one": [o.text for u in held for o in u.later if NEW & set(o.does.values())],
        "messages that end one, or for once": [
            o.text for u in held for o in u.later if o.does and not NEW & set(o.does.values())
        ],
        "sentences of --calm": calm,
    }
    for name, texts in sets.items():
        if texts:
            chances = chance_of(apply("wish", teacher.texts(texts)))
            shares = ", ".join(f"{limit}: {np.mean(chances >= limit):.3f}" for limit in (0.5, 0.7, 0.8, 0.9))
            print(f"a wish, of {len(texts)} {name}, at {shares}")
    found: list[float] = []
    kinds: list[str] = []
    first = asked = 0
    for user in held:
        for one in user.later:
            changes = apply("changes", teacher.texts([one.text])).item()
            chances = chance_of(apply("which", teacher.of.stacked(apply("over", teacher.pairs(user, one.text)), changes)))
            found += chances.tolist()
            kinds += [one.does.get(n, "nothing") for n in range(len(user.wishes))]
            if not OVER.isdisjoint(one.does.values()):
                asked += 1
                first += one.does.get(int(chances.argmax())) in OVER
    told, over = np.array(found), np.array([kind in OVER for kind in kinds])
    print(f"over: {over.sum()} of {len(told)} pairs; the right one first in {first} of {asked} messages")
    for limit in (0.5, 0.6, 0.7, 0.8, 0.9):
        wrong = [kind for kind, chance in zip(kinds, found, strict=True) if chance >= limit and kind not in OVER]
        by = ", ".join(f"{wrong.count(kind)} {kind}" for kind in sorted(set(wrong)))
        print(f"  at {limit}: {(told[over] >= limit).sum()} right, {len(wrong)} wrong ({by})")


if __name__ == "__main__":
    main()
