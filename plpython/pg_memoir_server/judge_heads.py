"""Heads over what the judges know of a text: which of a user's statements or wishes a message ends, and what is a wish.

Logistic regressions (judge_heads.safetensors, learnt by research/judge/train_heads.py) over the states and chances of
the three judges. Of a pair they also see how the encoder's vectors of both differ. Which one of several is over is said
by three things together: the pair, whether the message changes anything at all, and by how much the pair leads before
the others. Of a request to forget they tell each part of the earlier messages that it means. English.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pg_memoir_language.free_requests import Asked
from pg_memoir_language.text import asks as is_question

from .judge import Judge

LEARNT = Path(__file__).with_name("judge_heads.safetensors")
# The lead of a pair is over the others, at least over this usual value of what goes on.
FLOOR = -4.0
LOWEST, OTHERS = -6.0, -2.0  # the same for the parts beside a part of a request, and for other messages
NEVER = -7.0  # log odds of what is not said
LONGEST = 300  # characters of a message that are read beside a request
# Below this a message changes nothing, so that pairs need not be read.
LEAST = -2.0
# Where the judges' mean chance is lower, a wish is doubted unless the head is this sure: it has this chance at most.
NOT_DENIED, SURE, DOUBTED = 0.4, 0.85, 0.5
Embed = Callable[[Sequence[str]], np.ndarray]


class Heads:
    """`judge`: the judges of English; `embed`: texts → vectors of length 1, n × 384."""

    def __init__(self, judge: Judge, embed: Embed):
        from safetensors.numpy import load_file

        self._judge, self._embed, self._heads = judge, embed, load_file(LEARNT)

    def wishes(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a text is a lasting wish about how the assistant behaves, for each."""
        chances = zip(self._are("wish", texts), self._judge.wishes(texts), strict=True)
        return [
            chance if judged >= NOT_DENIED or chance >= SURE else min(chance, DOUBTED) for chance, judged in chances
        ]

    def scenes(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a message opens a scene that is played, for each."""
        return self._are("scene", texts)

    def scene_ends(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a message in a scene ends it, for each."""
        return self._are("scene_end", texts)

    def untrue(self, sentences: Sequence[str], message: str) -> list[float]:
        """Return the chance that a sentence of a message is not meant so, for each: a joke, a game, a story."""
        if not sentences:
            return []
        given = text_features(self._judge, [*sentences, message])
        of_each = np.concatenate([given[:-1], np.tile(given[-1], (len(sentences), 1))], axis=1)
        chances: list[float] = chance_of(self._apply("untrue", of_each)).tolist()
        return chances

    def requests(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a message asks to forget something that was said before, for each."""
        return self._are("request", texts)

    def meant(self, asked: Asked, messages: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """Return the chance that a request means each part of each message: (the message, its parts)."""
        read = Request(self._judge, self._embed, asked, messages)
        asks = self._apply("request", read.alone[None]).item()
        parts, wholes = self._apply("requests.part", read.pairs), self._apply("requests.message", read.wholes)
        chances = chance_of(self._apply("requests.meant", read.stacked(parts, wholes, asks))).tolist()
        found: list[list[float]] = [[] for _ in messages]
        for number, chance in zip(read.of, chances, strict=True):
            found[number].append(chance)
        return found

    def _are(self, head: str, texts: Sequence[str]) -> list[float]:
        if not texts:
            return []
        chances: list[float] = chance_of(self._apply(head, text_features(self._judge, texts))).tolist()
        return chances

    def over(self, wishes: Sequence[str], message: str) -> list[float]:
        """Return the chance that each of a user's wishes holds no longer after a message."""
        return self._which("wishes", wishes, message)

    def ended(self, statements: Sequence[str], message: str) -> list[float]:
        """Return the chance that each of a user's statements holds no longer after a message."""
        return self._which("statements", statements, message)

    def _which(self, of: str, earlier: Sequence[str], message: str) -> list[float]:
        if not earlier:
            return []
        changes = self._apply(f"{of}.changes", text_features(self._judge, [message])).item()
        if changes < LEAST:
            return [0.0] * len(earlier)
        pairs = self._apply(f"{of}.over", pair_features(self._judge, self._embed, earlier, message))
        chances: list[float] = chance_of(self._apply(f"{of}.which", stacked(pairs, changes))).tolist()
        return chances

    def _apply(self, head: str, given: np.ndarray) -> np.ndarray:
        values: np.ndarray = given @ self._heads[f"{head}.weight"] + self._heads[f"{head}.bias"]
        return values


class Request:
    """A request to forget beside the parts of earlier messages: what the models know of it.

    `of`: of each part its message; `alone`: features of the request; `pairs`, `wholes`: of it with each part, and with
    each message; `scores`: of each part how near it is to what asks, to that with what leads to it, and to what may
    stay (cosines), the judges' log odds that these and the whole mean it, whether it tells something, and whether it
    asks something.
    """

    def __init__(self, judge: Judge, embed: Embed, asked: Asked, messages: Sequence[tuple[str, Sequence[str]]]):
        self.of = np.array([number for number, (_, parts) in enumerate(messages) for _ in parts])
        parts = [part.rstrip(". ") for _, of in messages for part in of]
        wholes = [whole[:LONGEST] for whole, _ in messages]
        texts = (asked.asked, asked.led, asked.kept or "-", asked.whole)
        vectors = np.asarray(embed([*parts, *wholes, *texts]))
        of_parts, of_wholes = vectors[: len(parts)], vectors[len(parts) : -len(texts)]
        near = of_parts @ vectors[-len(texts) : -1].T
        odds = [
            log_odds(judge.means([(part, text) for part in parts])) for text in (asked.asked, asked.led, asked.whole)
        ]
        stays = np.full(len(parts), NEVER)
        if asked.kept:
            stays = log_odds(judge.means([(part, asked.kept) for part in parts]))
        else:
            near[:, 2] = -1.0
        asking = np.array([float(is_question(part, "english")) for part in parts])
        self.scores = np.column_stack([near, *odds, stays, judge.tells(parts), asking])
        self.alone = text_features(judge, [asked.whole])[0]
        self.pairs = _beside(judge, parts, asked.whole, of_parts, vectors[-1])
        self.wholes = _beside(judge, wholes, asked.whole, of_wholes, vectors[-1])

    def stacked(self, parts: np.ndarray, wholes: np.ndarray, asks: float) -> np.ndarray:
        """Return of each part: its own value, its message's, the request's, the leads of both, its neighbours' and its
        message's best, and `scores`, n × 17."""
        of, messages = self.of, wholes[self.of]
        best = np.array([parts[of == number].max() for number in of])
        others = np.array([max([OTHERS, *parts[of != number]]) for number in of])
        other_messages = np.array([max([OTHERS, *messages[of != number]]) for number in of])
        same = of[1:] == of[:-1]
        before, after = np.full(len(parts), LOWEST), np.full(len(parts), LOWEST)
        before[1:][same], after[:-1][same] = parts[:-1][same], parts[1:][same]
        asked = np.full(len(parts), asks)
        return np.column_stack([
            parts, messages, asked, parts - best, best - others, messages - other_messages, np.maximum(before, after),
            best, self.scores,
        ])  # fmt: skip


def text_features(judge: Judge, texts: Sequence[str]) -> np.ndarray:
    return judge.features([("", text) for text in texts])


def pair_features(judge: Judge, embed: Embed, earlier: Sequence[str], message: str) -> np.ndarray:
    vectors = np.asarray(embed([*earlier, message]))
    return _beside(judge, earlier, message, vectors[:-1], vectors[-1])


def _beside(judge: Judge, earlier: Sequence[str], message: str, theirs: np.ndarray, mine: np.ndarray) -> np.ndarray:
    seen = judge.features([(one, message) for one in earlier])
    return np.concatenate([seen, theirs * mine, np.abs(theirs - mine), (theirs @ mine)[:, None]], axis=1)


def stacked(pairs: np.ndarray, changes: float) -> np.ndarray:
    """Return of each pair: its own value, the message's, and its lead before the others, n × 3."""
    others = [max([FLOOR, *np.delete(pairs, number)]) for number in range(len(pairs))]
    return np.stack([pairs, np.full(len(pairs), changes), pairs - np.array(others)], axis=1)


def log_odds(chances: Sequence[float]) -> np.ndarray:
    given = np.asarray(chances)
    odds: np.ndarray = np.log((given + 1e-3) / (1 - given + 1e-3))
    return odds


def chance_of(values: np.ndarray) -> np.ndarray:
    chances: np.ndarray = 1 / (1 + np.exp(-values))
    return chances
