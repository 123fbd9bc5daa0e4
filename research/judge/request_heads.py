"""Teaches the heads of requests to forget (requests/) and of sentences that are not meant (untrue/). train_heads.py runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .teaching import PARTS, STRENGTHS, UNREAD, Asking, Teacher, User, fit, read_persons, read_users
from .texts import load

REQUESTS = Path(__file__).with_name("requests")
UNTRUE = Path(__file__).with_name("untrue")
FOLDS = 3  # of writers


def read_untrue(folder: Path = UNTRUE) -> Iterator[tuple[str, str, str, bool]]:
    """Yield the writer, a sentence, its message and whether it is not meant."""
    from pg_memoir_language.text import own_sentences

    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            for sentence in own_sentences(row["text"]):
                shares = [_share(sentence.said, row["text"], row[kind]) for kind in ("unreal", "true")]
                if max(shares) >= 0.5:
                    yield file.stem, sentence.said, row["text"], shares[0] >= 0.5


def _share(said: str, text: str, parts: list[str]) -> float:
    """Return the share of a sentence that parts of its text cover."""
    start = text.find(said)
    spans = [(text.index(part), text.index(part) + len(part)) for part in parts]
    return sum(max(0, min(end, start + len(said)) - max(first, start)) for first, end in spans) / len(said)


def teach_untrue(teacher: Teacher, left: set[str], calm: list[str]) -> dict[str, np.ndarray]:
    """Return the head that tells a sentence that its user does not mean, in its message."""
    rows = [*read_untrue(), *(("calm", text, text, False) for text in calm)]
    given = np.concatenate([teacher.texts([row[n] for row in rows]) for n in (1, 2)], axis=1)
    truth, writers = np.array([row[3] for row in rows]), np.array([row[0] for row in rows])
    learnt = ~np.isin(writers, list(left))
    weight, bias = fit(given[learnt], truth[learnt], STRENGTHS["untrue"])
    chances = teacher.of.chance_of(given @ weight + bias)
    for limit in (0.5, 0.7, 0.8, 0.9) if left & set(writers) else ():
        told = (chances >= limit) & ~learnt
        print(
            f"not meant, at {limit}: {(told & truth).sum()} of {(truth & ~learnt).sum()}, and {(told & ~truth).sum()}"
            f" of {(~truth & ~learnt).sum()} that are",
            flush=True,
        )
    return {"untrue.weight": weight, "untrue.bias": bias}


def read_requests(teacher: Teacher, folder: Path = REQUESTS) -> Iterator[Asking]:
    """Yield later messages of users beside the parts of what they said before, of requests/ and of persons."""
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            for later in row["later"]:
                spans: dict[int, list[tuple[int, int]]] = {}
                for number, at in later["goes"]:
                    start = len("".join(row["messages"][number][:at]))
                    spans.setdefault(number, []).append((start, start + len(row["messages"][number][at])))
                asks = bool(later["goes"]) or later.get("asks", False)
                yield teacher.asking(file.stem, later["text"], asks, ["".join(m) for m in row["messages"]], spans)
    for writer in sorted(UNREAD):
        for person in load().of({writer}).people:
            for mark, about, text in person.later:
                if mark == "x":
                    whole = {number: [(0, len(person.earlier[number]))] for number in about}
                    yield teacher.asking(writer, text, True, list(person.earlier), whole)


def teach_requests(teacher: Teacher, left: set[str], calm: list[User]) -> dict[str, np.ndarray]:
    """Return the heads that tell a request to forget, and which parts of what was said it means."""
    rows = list(read_requests(teacher))
    writers = np.array([row.writer for row in rows])
    alone, asks = np.array([row.given.alone for row in rows]), np.array([row.asks for row in rows])
    talk = [one.text for user in calm for one in user.later]
    talk += [
        one.text for user in (*read_users(), *read_persons(load())) if user.writer not in left for one in user.later
    ]
    # "Don't go on about sleep" is a wish.
    talk += [wish for user in read_users() if user.writer not in left for wish in user.earlier]
    others = teacher.texts(talk)

    def learn(chosen: list[int]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        mine = [rows[n] for n in chosen]
        told = np.concatenate([alone[chosen], others]), np.append(asks[chosen], np.zeros(len(others), bool))
        parts = np.concatenate([row.given.pairs for row in mine]), np.concatenate([row.goes for row in mine])
        wholes = np.concatenate([row.given.wholes for row in mine]), np.concatenate([_messages(row) for row in mine])
        return {
            "request": fit(*told, STRENGTHS["request"]),
            "requests.part": fit(*parts, STRENGTHS["requests"]),
            "requests.message": fit(*wholes, STRENGTHS["requests"]),
        }

    def seen(heads: dict[str, tuple[np.ndarray, np.ndarray]], number: int) -> np.ndarray:
        given = rows[number].given
        values = [
            x @ heads[h][0] + heads[h][1]
            for h, x in (("requests.part", given.pairs), ("requests.message", given.wholes))
        ]
        stacked: np.ndarray = given.stacked(*values, (alone[number] @ heads["request"][0] + heads["request"][1]).item())
        return stacked

    # The last head sees the others as they are on writers that they have not learnt of.
    taught = sorted(set(writers) - left)
    last: list[np.ndarray] = []
    truth: list[np.ndarray] = []
    for fold in (taught[n::FOLDS] for n in range(FOLDS)):
        found = learn([n for n, name in enumerate(writers) if name in taught and name not in fold])
        for n in np.flatnonzero(np.isin(writers, fold)):
            last.append(seen(found, n))
            truth.append(rows[n].goes)
    heads = learn([n for n, name in enumerate(writers) if name in taught])
    heads["requests.meant"] = fit(np.concatenate(last), np.concatenate(truth), 1.0)
    held = np.flatnonzero(np.isin(writers, list(left)))
    if len(held):
        examine_requests(teacher, heads, [rows[n] for n in held], [seen(heads, n) for n in held])
    return {f"{name}.{part}": value for name, both in heads.items() for part, value in zip(PARTS, both, strict=True)}


def _messages(row: Asking) -> np.ndarray:
    return np.array([row.goes[row.given.of == number].any() for number in range(len(row.given.wholes))])


def examine_requests(
    teacher: Teacher, heads: dict[str, tuple[np.ndarray, np.ndarray]], rows: list[Asking], stacked: list[np.ndarray]
) -> None:
    """Print how many requests are known, and of these what they take."""
    asks = np.array([row.asks for row in rows])
    known = teacher.of.chance_of(
        np.array([row.given.alone for row in rows]) @ heads["request"][0] + heads["request"][1]
    )
    for limit in (0.5, 0.6, 0.7, 0.8):
        told = known >= limit
        print(
            f"a request, at {limit}: {(told & asks).sum()} of {asks.sum()}, and {(told & ~asks).sum()} of {(~asks).sum()} others"
        )
    weight, bias = heads["requests.meant"]
    for limit in (0.3, 0.4, 0.5, 0.6, 0.7):
        taken = [teacher.of.chance_of(one @ weight + bias) >= limit for one in stacked]
        both = [(one, row.goes) for one, row in zip(taken, rows, strict=True)]
        meant = [(one, goes) for one, goes in both if goes.any()]
        print(
            f"what requests mean, at {limit}: all of it in {sum(one[goes].all() for one, goes in meant)} of {len(meant)},"
            f" something else in {sum((one & ~goes).any() for one, goes in meant)}; where nothing is meant, in"
            f" {sum(one.any() for one, goes in both if not goes.any())} of {len(both) - len(meant)}",
            flush=True,
        )
