"""Teaches the heads over what the judges know of a text, and writes plpython/pg_memoir_server/judge_heads.safetensors.

    .local/venv/bin/python -m research.judge.train_heads [--leave-out WRITER …] [--calm FOLDER …] [--only-wish] [--write]

Logistic regressions over states and chances of the shipped judges (judge_heads.py). They learn of wishes/, users who tell an assistant
how to behave and months later what of it has changed, of the persons of texts/ whom the judges have not read, of its sentences, of
everyday/, of scenes/, which are played, of requests/, users who ask to forget parts of what they told, and of untrue/, messages of which some sentences
are not meant.
--calm: conversations with an assistant in which little changes (RealMem, Apache-2.0; ProactiveMemBench, MIT). Of each second sentence and
message the shares of wrong findings are printed, the others are learnt from. Prints, for the writers that are left out, how many wishes
are found by a chance, of wishes and statements that are over how many are told, with how many that are not, of requests how many are known
and what they take, and of sentences that are not meant how many are told. Two hours on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from .everyday import read_wishes
from .request_heads import teach_requests, teach_untrue
from .teaching import PARTS, STRENGTHS, Later, Teacher, User, fit, read_persons, read_users
from .texts import CLASSES, conversations, load

SCENES = Path(__file__).with_name("scenes")
OVER, NEW = frozenset({"replaced", "ended"}), frozenset({"replaced", "narrowed"})
MOST_OF_TEXTS, MOST_CALM, MOST_CALM_TRUE, MOST_MESSAGES = 6000, 6500, 3000, 600
# Statements before a message of a conversation that are nearest to it.
NEAREST, SHORTEST_PAST, LONGEST_PAST = 8, 4, 300


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="WRITER")
    parser.add_argument("--calm", nargs="*", type=Path, default=[], metavar="FOLDER")
    parser.add_argument(
        "--only-wish", action="store_true", help="teach the head that tells wishes alone, keep the others"
    )
    parser.add_argument("--write", action="store_true", help="write what was learnt")
    options = parser.parse_args()
    teacher, chance, left = Teacher(), random.Random(1), set(options.leave_out)
    sentences, wishes = calm_sentences(options.calm, chance), list(read_users())
    spoken = list(read_wishes(teacher.judge.wishes))
    told = [(text, is_wish) for writer, text, is_wish in spoken if writer not in left]
    heads = teach_wishes(teacher, [u for u in wishes if u.writer not in left], sentences[::2], told, chance)
    if held := [u for u in wishes if u.writer in left]:
        examine_wishes(teacher, heads, held, sentences[1::2], [one for one in spoken if one[0] in left])
    heads = (
        load_file(teacher.of.LEARNT) | heads
        if options.only_wish
        else heads | teach_others(teacher, left, wishes, sentences[:MOST_CALM_TRUE], read_calm(options.calm, chance))
    )
    if options.write:
        target = teacher.of.LEARNT
        save_file(heads, target)
        target.chmod(0o644)
        print(f"{target.name}: {hashlib.sha256(target.read_bytes()).hexdigest()[:12]}")


def teach_others(
    teacher: Teacher, left: set[str], wishes: list[User], sentences: list[str], messages: list[User]
) -> dict[str, np.ndarray]:
    """Return all heads but the one that tells wishes."""
    heads = teach_scenes(teacher, messages)
    heads |= teach_untrue(teacher, left, sentences)
    heads |= teach_requests(teacher, left, messages)
    for of, users, calm in (("wishes", wishes, []), ("statements", list(read_persons(load())), messages)):
        heads |= teach(teacher, of, [u for u in users if u.writer not in left], calm[::2])
        examine(teacher, heads, of, [u for u in users if u.writer in left], calm[1::2])
    return heads


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


def teach_wishes(
    teacher: Teacher, users: list[User], calm: list[str], spoken: list[tuple[str, bool]], chance: random.Random
) -> dict[str, np.ndarray]:
    """Return the head that tells wishes from other sentences. `spoken`: sentences of conversations."""
    rows = [(s.new, CLASSES[s.label] == "i") for s in load().sentences if s.label >= 0]
    chance.shuffle(rows)
    rows = rows[:MOST_OF_TEXTS] + [(text, False) for text in calm] + spoken
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


def examine_wishes(
    teacher: Teacher,
    heads: dict[str, np.ndarray],
    held: list[User],
    calm: list[str],
    spoken: list[tuple[str, str, bool]],
) -> None:
    """Print how many texts of each sort are taken for wishes."""
    later = [one for user in held for one in user.later]
    sets = {
        "wishes": [wish for user in held for wish in user.earlier],
        "messages that replace or narrow one": [o.text for o in later if NEW & set(o.does.values())],
        "messages that end one, or for once": [o.text for o in later if o.does and not NEW & set(o.does.values())],
        "sentences of everyday/ that are one": [text for _, text, is_wish in spoken if is_wish],
        "others there": [text for _, text, is_wish in spoken if not is_wish],
        "sentences of --calm": calm,
    }
    for name, texts in sets.items():
        if texts:
            chances = teacher.of.chance_of(apply(heads, "wish", teacher.texts(texts)))
            shares = ", ".join(f"{limit}: {np.mean(chances >= limit):.3f}" for limit in (0.5, 0.6, 0.7, 0.8, 0.9))
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
