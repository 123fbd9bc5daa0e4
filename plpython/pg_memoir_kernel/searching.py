"""A question is searched for in the items of each user or space that it is asked of, and ranked over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import candidates as valuing
from . import ranking
from .gathering import NO_ITEMS, find_items
from .items import read_items
from .matches import Match, level, match
from .sources import Source
from .times import read_time, read_zone
from .vectors import vector_scores
from .words import Words, word_scores

Json = dict[str, Any]
NONE = np.zeros(0, np.int64)
REMARK_BELOW = 0.3  # strength below which what asks nothing is weighed as a remark


def rank(sources: Sequence[Source], config: Json) -> tuple[list[ranking.Ranked], bool]:
    """Return the best items of each source, best first: signals of each → weights → one integer, ties by item number;
    and whether they were weighed as of a remark.
    """
    found = {n: one for n, source in enumerate(sources) if (one := _find(source, config)) is not None}
    found = dict(zip(found, level(list(found.values())), strict=True))

    def scored(is_remark: bool) -> list[ranking.Ranked]:
        nothing = ranking.as_ranked(read_items(NO_ITEMS), [], 0)
        return [
            _score(source, config, found[n], is_remark) if n in found else nothing for n, source in enumerate(sources)
        ]

    ranked = scored(False)
    cosines = [float(one.vectors.best) for one in found.values() if one.vectors is not None]
    if sources[0].asked["question"]["facts"].get("remark") and cosines:
        # Where words and meaning already agree, a remark is found like a question.
        best = max(float(ranked[n].score.max()) for n in found)
        if valuing.chance(config, best, max(cosines)) < REMARK_BELOW:
            return scored(True), True
    return ranked, False


def _find(source: Source, config: Json) -> Match | None:
    store, asked, scope = source.store, source.asked, source.scope
    question, counters, limit = asked["question"], asked["counters"], asked["limit"]
    items, total_words = counters["items"] or 0, counters["total_words"] or 0
    hidden = NONE
    # An item above the caller's clearance is not there: it is not found and moves no score.
    if scope.clearance != "secret" and "sensitive" in counters["features"]:
        row = store.rows("hidden")[0]
        hidden = np.array(row["items"] or (), np.int64)
        items, total_words = items - len(hidden), total_words - sum(row["words"] or ())
    # A memory that repeats a turn finds nothing that the turn does not: it would only push others out.
    if "echoes" in counters["features"] and (scope.kinds is None or "t" in scope.kinds):
        row = store.rows("echoes")[0]
        known = set(hidden.tolist())
        echoes = [(n, w) for n, w in zip(row["items"] or (), row["words"] or (), strict=True) if n not in known]
        hidden = np.concatenate([hidden, np.array([n for n, _ in echoes], np.int64)])
        items, total_words = items - len(echoes), total_words - sum(w for _, w in echoes)
    if items <= 0:
        return None
    words = word_scores(store, words_of(question), counters, items, total_words, hidden)
    if words is not None and not len(words.items):
        words = None
    vectors = None
    if source.vector is not None:
        vector = np.fromstring(source.vector[1:-1], np.float32, sep=",")
        matched = words.items[:limit] if words else NONE
        last = counters["next_item"] - 1
        vectors = vector_scores(store, vector, source.vector, question["model"], config, last, matched, hidden, limit)
    found = find_items(store, words, vectors, scope, hidden, limit)
    if not len(found):
        return None
    return match(found, words, vectors, question["query"])


def _score(source: Source, config: Json, found: Match, is_remark: bool) -> ranking.Ranked:
    asked, at = source.asked, read_time(source.scope.as_of or source.asked["now"])
    zone = read_zone(config.get("time_zone") or asked.get("zone"))
    return ranking.score(found, config, asked["question"], asked["project"], at, asked["limit"], zone, is_remark)


def words_of(question: Json) -> Words:
    """Return the words of a question; of one in another language the English ones, if there are any."""
    terms, forms, form_of = question["terms_widened"], question["forms"], question["form_of"]
    english = ranking.english_of(question)
    if english:
        gone = set(english["words"])
        first = [stems[0] for stems in english["terms"]]
        terms = list(dict.fromkeys([*(term for term in terms if term not in gone), *first]))
        also = [(stem, stems[0]) for stems in english["terms"] for stem in stems[1:] if stem not in terms]
        forms, form_of = [*forms, *(form for form, _ in also)], [*form_of, *(own for _, own in also)]
    return Words(
        terms, question["common"], forms, form_of, question["kindred"], question["kindred_of"], question["config"],
        question["query"],
    )  # fmt: skip
