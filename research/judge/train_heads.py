"""Teaches the heads over what the judges know of a text, and writes plpython/pg_memoir_server/judge_heads.safetensors.

    .local/venv/bin/python -m research.judge.train_heads [--leave-out WRITER …] [--calm FOLDER …] [--write]

Logistic regressions over states and chances of the shipped judges (judge_heads.py). They learn of wishes/, users who tell an assistant
how to behave and months later what of it has changed, of the persons of texts/ whom the judges have not read, of its sentences, and of
scenes/, which are played.
--calm: conversations with an assistant in which little changes (RealMem, Apache-2.0; ProactiveMemBench, MIT). Of each second sentence and
message the shares of wrong findings are printed, the others are learnt from. Prints, for the writers that are left out, how many wishes
are found by a chance, and of wishes and statements that are over how many are told, with how many that are not. An hour on one core.
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

from .texts import CLASSES, Material, conversations, load

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plpython"))
PARTS = ("weight", "bias")
WISHES = Path(__file__).with_name("wishes")
SCENES = Path(__file__).with_name("scenes")
OVER, NEW = frozenset({"replaced", "ended"}), frozenset({"replaced", "narrowed"})
# Strengths of the regressions (inverse of their L2 penalty), by a search over writers in turn.
STRENGTHS = {
    "scene": 0.01,
    "wish": 0.003,
    "wishes.changes": 0.003,
    "wishes.over": 0.01,
    "statements.changes": 0.001,
    "statements.over": 0.003,
}
MOST_OF_TEXTS, MOST_CALM, MOST_MESSAGES = 6000, 3000, 600
# Writers of persons whom no judge has read.
UNREAD = frozenset({"t1", "t2", "t3", "t4"})
# Statements before a message of a conversation that are nearest to it.
NEAREST, SHORTEST_PAST, LONGEST_PAST = 8, 4, 300


@dataclass(frozen=True)
class Later:
    """A later message; `does`: what it does to what was said before, by number."""

    text: str
    does: dict[int, str]


@dataclass(frozen=True)
class User:
    """`earlier`: wishes, or statements."""

    writer: str
    earlier: list[str]
    later: list[Later]


def read_users(folder: Path = WISHES) -> Iterator[User]:
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            later = [Later(one["text"], {number: what for what, number in one["does"]}) for one in row["later"]]
            yield User(file.stem, row["wishes"], later)


def read_persons(material: Material) -> Iterator[User]:
    """Yield persons with what they said and the later messages that change it or leave it; no requests to forget."""
    for writer in sorted(UNREAD):
        for person in material.of({writer}).people:
            later = [
                Later(text, dict.fromkeys(about if mark == "!" else (), "ended"))
                for mark, about, text in person.later
                if mark != "x"
            ]
            yield User(writer, [one.rstrip(". ") for one in person.earlier], later)


def read_calm(folders: list[Path], chance: random.Random) -> list[User]:
    """Return messages of conversations, each with the statements before it that are nearest in meaning."""
    from pg_memoir_language.stated import states
    from pg_memoir_server.reading import Likeness

    found: list[tuple[str, list[str], str]] = []
    for name, texts in [one for folder in folders for one in conversations(folder)]:
        past: list[str] = []
        for text in texts:
            if len(past) >= SHORTEST_PAST and len(text) <= 400 and states(text, "english"):
                found.append((name, past, text))
            past = [*past, *(one.said for one in states(text[:1500], "english", 8, is_earlier=True))][-LONGEST_PAST:]
    chance.shuffle(found)
    likeness, users = Likeness(), []
    for name, past, text in found[:MOST_MESSAGES]:
        nearest = np.argsort(likeness(text, past))[::-1][:NEAREST]
        users.append(User(name, [past[n] for n in nearest], [Later(text, {})]))
    return users


def fit(given: np.ndarray, truth: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights and the bias of a logistic regression over features as they are."""
    scaler = StandardScaler().fit(given)
    found = LogisticRegression(C=strength, max_iter=500).fit(scaler.transform(given), truth)
    weight = found.coef_[0] / scaler.scale_
    return weight.astype(np.float32), np.array([found.intercept_[0] - weight @ scaler.mean_], np.float32)


class Teacher:
    """What the shipped models know of all texts."""

    def __init__(self) -> None:
        from pg_memoir_server import judge_heads, reading
        from pg_memoir_server.judge import Judge

        self.judge, self.embed, self.of = Judge(), reading.encoder().embed, judge_heads

    def texts(self, texts: list[str]) -> np.ndarray:
        return self.of.text_features(self.judge, texts)

    def pairs(self, user: User, text: str) -> np.ndarray:
        return self.of.pair_features(self.judge, self.embed, user.earlier, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="WRITER")
    parser.add_argument("--calm", nargs="*", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--write", action="store_true", help="write what was learnt")
    options = parser.parse_args()
    teacher, chance, left = Teacher(), random.Random(1), set(options.leave_out)
    sentences, messages = calm_sentences(options.calm, chance), read_calm(options.calm, chance)
    wishes, persons = list(read_users()), list(read_persons(load()))
    heads = teach_wishes(teacher, [u for u in wishes if u.writer not in left], sentences[::2], chance)
    if held := [u for u in wishes if u.writer in left]:
        examine_wishes(teacher, heads, held, sentences[1::2])
    heads |= teach_scenes(teacher, messages)
    for of, users, calm in (("wishes", wishes, []), ("statements", persons, messages)):
        heads |= teach(teacher, of, [u for u in users if u.writer not in left], calm[::2])
        examine(teacher, heads, of, [u for u in users if u.writer in left], calm[1::2])
    if options.write:
        target = teacher.of.LEARNT
        save_file(heads, target)
        target.chmod(0o644)
        print(f"{target.name}: {hashlib.sha256(target.read_bytes()).hexdigest()[:12]}")


def read_scenes(folder: Path = SCENES) -> dict[str, list[str]]:
    """Return texts of scenes by what they are: "scene" opens one, "part" is played, "end" ends it, "none" is talk that
    sounds alike."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            for what, texts in json.loads(line).items():
                found.setdefault(what, []).extend(texts)
    return found


def teach_scenes(teacher: Teacher, calm: list[User]) -> dict[str, np.ndarray]:
    """Return the heads that tell what opens a scene and what ends it."""
    texts = read_scenes()
    talk = [one.text for user in calm for one in user.later]
    heads = {}
    for head, ours, others in (
        ("scene", texts["scene"], texts["none"] + texts["part"] + talk),
        ("scene_end", texts["end"], texts["part"]),
    ):
        truth = np.array([True] * len(ours) + [False] * len(others))
        heads[f"{head}.weight"], heads[f"{head}.bias"] = fit(teacher.texts(ours + others), truth, STRENGTHS["scene"])
    return heads


def calm_sentences(folders: list[Path], chance: random.Random) -> list[str]:
    from pg_memoir_language.text import own_sentences

    said = [text for folder in folders for _, texts in conversations(folder) for text in texts]
    chance.shuffle(said)
    found = [s.said for text in said[:MOST_CALM] for s in own_sentences(text[:1500])[:4] if 8 <= len(s.said) <= 200]
    chance.shuffle(found)
    return found[:MOST_CALM]


def teach_wishes(teacher: Teacher, users: list[User], calm: list[str], chance: random.Random) -> dict[str, np.ndarray]:
    """Return the head that tells wishes from other sentences."""
    rows = [(s.new, CLASSES[s.label] == "i") for s in load().sentences if s.label >= 0]
    chance.shuffle(rows)
    rows = rows[:MOST_OF_TEXTS] + [(text, False) for text in calm]
    rows += [(wish, True) for user in users for wish in user.earlier]
    # A message that does nothing to a wish may hold a further one.
    told = [one for user in users for one in user.later if one.does]
    rows += [(one.text, not NEW.isdisjoint(one.does.values())) for one in told]
    given = teacher.texts([text for text, _ in rows])
    weight, bias = fit(given, np.array([is_wish for _, is_wish in rows]), STRENGTHS["wish"])
    return {"wish.weight": weight, "wish.bias": bias}


def teach(teacher: Teacher, of: str, users: list[User], calm: list[User]) -> dict[str, np.ndarray]:
    """Return the heads that tell what a message ends of what was said before."""
    asked = [(user, one) for user in [*users, *calm] for one in user.later]
    alone = teacher.texts([one.text for _, one in asked])
    pairs = [teacher.pairs(user, one.text) for user, one in asked]
    over = [np.array([one.does.get(n) in OVER for n in range(len(user.earlier))]) for user, one in asked]
    truth = np.array([any(one) for one in over])

    def learn(chosen: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        seen = np.concatenate([pairs[n] for n in chosen]), np.concatenate([over[n] for n in chosen])
        return fit(alone[chosen], truth[chosen], STRENGTHS[f"{of}.changes"]), fit(*seen, STRENGTHS[f"{of}.over"])

    # The last head sees the others as they are on writers that they have not learnt of.
    writers = np.array([user.writer for user, _ in asked])
    rows: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for writer in sorted({user.writer for user in users}):
        changes, pair = learn(np.flatnonzero(writers != writer))
        for n in np.flatnonzero(writers == writer):
            values = pairs[n] @ pair[0] + pair[1]
            rows.append(teacher.of.stacked(values, (alone[n] @ changes[0] + changes[1]).item()))
            labels.append(over[n])
    heads = dict(zip(("changes", "over"), learn(np.arange(len(asked))), strict=True))
    heads["which"] = fit(np.concatenate(rows), np.concatenate(labels), 1.0)
    return {
        f"{of}.{name}.{part}": value for name, both in heads.items() for part, value in zip(PARTS, both, strict=True)
    }


def examine_wishes(teacher: Teacher, heads: dict[str, np.ndarray], held: list[User], calm: list[str]) -> None:
    """Print how many texts of each sort are taken for wishes."""
    later = [one for user in held for one in user.later]
    sets = {
        "wishes": [wish for user in held for wish in user.earlier],
        "messages that replace or narrow one": [o.text for o in later if NEW & set(o.does.values())],
        "messages that end one, or for once": [o.text for o in later if o.does and not NEW & set(o.does.values())],
        "sentences of --calm": calm,
    }
    for name, texts in sets.items():
        if texts:
            chances = teacher.of.chance_of(apply(heads, "wish", teacher.texts(texts)))
            shares = ", ".join(f"{limit}: {np.mean(chances >= limit):.3f}" for limit in (0.5, 0.7, 0.8, 0.9))
            print(f"a wish, of {len(texts)} {name}, at {shares}", flush=True)


def examine(teacher: Teacher, heads: dict[str, np.ndarray], of: str, held: list[User], calm: list[User]) -> None:
    """Print how many of what is over are told, and how many others: of the users, and of calm messages."""
    found: list[float] = []
    kinds: list[str] = []
    first = asked = 0
    for user in [*held, *calm]:
        for one in user.later:
            changes = apply(heads, f"{of}.changes", teacher.texts([one.text])).item()
            pairs = apply(heads, f"{of}.over", teacher.pairs(user, one.text))
            chances = teacher.of.chance_of(apply(heads, f"{of}.which", teacher.of.stacked(pairs, changes)))
            found += chances.tolist()
            kinds += [one.does.get(n, "nothing" if user in held else "calm") for n in range(len(user.earlier))]
            if not OVER.isdisjoint(one.does.values()):
                asked += 1
                first += one.does.get(int(chances.argmax())) in OVER
    told, over = np.array(found), np.array([kind in OVER for kind in kinds])
    print(f"{of} that are over: {over.sum()} of {len(told)} pairs; the right one first in {first} of {asked} messages")
    for limit in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        wrong = [kind for kind, chance in zip(kinds, found, strict=True) if chance >= limit and kind not in OVER]
        by = ", ".join(f"{wrong.count(kind)} {kind}" for kind in sorted(set(wrong)))
        print(f"  at {limit}: {(told[over] >= limit).sum()} right, {len(wrong)} wrong ({by})", flush=True)


def apply(heads: dict[str, np.ndarray], head: str, given: np.ndarray) -> np.ndarray:
    values: np.ndarray = given @ heads[f"{head}.weight"] + heads[f"{head}.bias"]
    return values


if __name__ == "__main__":
    main()
