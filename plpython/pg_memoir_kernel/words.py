"""A question's words among one user's items: BM25 (Robertson and Zaragoza 2009) with document frequencies exact
within the user, from posting lists. Scores are quantised before they are compared; ties fall to the item number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import group, is_among
from .store import Store

# Saturation by term frequency, and normalisation by length.
K1, B = 1.2, 0.5
# The number of a code says more than a word of the same rarity. A year is no code.
CODE, CODE_WEIGHT = re.compile(r"(?!(?:19|20)\d\d$).*\d{3}"), 1.5
_INTS = np.dtype([("size", ">i4"), ("value", ">i4")])
_SMALL = np.dtype([("size", ">i4"), ("value", ">i2")])
_LONGS = np.dtype([("size", ">i4"), ("value", ">i8")])
_HEAD = 20  # bytes of array_send before the first element


@dataclass
class Postings:
    """The items that hold a word, how often (1 to 255), and how many words each has."""

    items: np.ndarray
    times: np.ndarray
    lengths: np.ndarray

    def without(self, hidden: np.ndarray) -> Postings:
        seen = ~is_among(self.items, hidden)
        return Postings(self.items[seen], self.times[seen], self.lengths[seen])


@dataclass
class Scores:
    """Items by score, best first: real (float32) columns side by side. `best`: the highest score.

    `covers`: which share of the question's words an item holds, each weighing as it is rare; `tellings`: how rare the
    rarest word is that it holds and that is not common, 1: in no other item.
    """

    items: np.ndarray
    scores: np.ndarray
    covers: np.ndarray
    tellings: np.ndarray
    best: np.float32


@dataclass(frozen=True)
class Words:
    """The words of a question: `terms`, those of them that are `common`; other `forms` of terms (`form_of`) in the
    user's languages; `kindred`: what else is said of the same topics, lexemes apart by blanks, and of which terms.
    """

    terms: Sequence[str]
    common: Sequence[str]
    forms: Sequence[str]
    form_of: Sequence[str]
    kindred: Sequence[str]
    kindred_of: Sequence[str]
    config: str
    query: str


def read_longs(data: bytes | None) -> np.ndarray:
    """Return the numbers of a bigint array as array_send writes it."""
    if not data:
        return np.zeros(0, np.int64)
    return np.frombuffer(data, _LONGS, offset=_HEAD)["value"].astype(np.int64)


def _read(rows: Sequence[Mapping[str, Any]]) -> dict[str, Postings]:
    found: dict[str, list[Postings]] = {}
    for row in rows:
        postings = np.frombuffer(row["postings"], _INTS, offset=_HEAD)["value"].astype(np.int64)
        lengths = np.frombuffer(row["lengths"], _SMALL, offset=_HEAD)["value"].astype(np.int64)
        one = Postings(row["first"] + (postings >> 8), postings & 255, lengths)
        found.setdefault(row["term"], []).append(one)
    return {term: _together(lists) for term, lists in found.items()}


def _together(lists: Sequence[Postings]) -> Postings:
    if len(lists) == 1:
        return lists[0]
    return Postings(*(np.concatenate([getattr(p, n) for p in lists]) for n in ("items", "times", "lengths")))


def _find(store: Store, terms: Sequence[str], counters: Mapping[str, Any]) -> dict[str, Postings]:
    terms = list(dict.fromkeys(terms))
    rows = list(store.rows("postings", terms, counters["letter_rows"]))
    if counters["tail_items"] > 0:
        rows += store.rows("tail_postings", terms, counters["next_item"])
    return _read(rows)


def word_scores(
    store: Store, words: Words, counters: Mapping[str, Any], items: int, total_words: int, hidden: np.ndarray
) -> Scores | None:
    """Return the BM25 of every item that holds one of the words, a form of it, a word of the same topic, or what
    stands in for it; None without words. `items`, `total_words`: of the user, without what is hidden.
    """
    terms = words.terms
    if not terms:
        return None
    common = set(words.common)
    lexemes = [lexeme for word in words.kindred for lexeme in word.split(" ")]
    found = _find(store, [*terms, *words.forms, *lexemes], counters)
    lists = found
    if words.forms:
        lists = _with_forms(lists, words)
    if words.kindred:
        lists = _with_kindred(lists, found, words)
    seen = {term for term, p in lists.items() if not len(hidden) or len(p.without(hidden).items)}
    # Words of five letters and more that no item has may be misspelt.
    unknown = [term for term in terms if len(term) >= 5 and term not in seen]
    # If other words are found, only names and identifiers are looked for.
    if unknown and not seen <= common:
        named = set(store.rows("names_in", words.config, words.query)[0]["words"] or ())
        unknown = [term for term in unknown if term in named]
    if unknown:
        rescued = store.rows("rescued", list(terms), unknown, hidden.tolist())[0]["words"]
        if rescued:
            for term, postings in _find(store, rescued, counters).items():
                lists = {**lists, term: _together([lists[term], postings]) if term in lists else postings}
            # Of short words something similar is always there.
            common |= {word for word in rescued if len(word) < 7}
    if len(hidden):
        lists = {term: postings.without(hidden) for term, postings in lists.items()}
    return bm25(lists, items, total_words, len(terms), common)


def _with_forms(lists: Mapping[str, Postings], words: Words) -> dict[str, Postings]:
    """The lists of a word and of its forms become one: an item that holds several holds the word, as often as the
    most frequent.
    """
    forms: dict[str, set[str]] = {own: {own} for own in words.form_of}
    for form, own in zip(words.forms, words.form_of, strict=True):
        forms[own].add(form)
    joined = {}
    for own, its in forms.items():
        held = [lists[form] for form in sorted(its) if form in lists]
        if held:
            joined[own] = _most(held)
    gone = set(words.forms) | set(words.form_of)
    return joined | {term: postings for term, postings in lists.items() if term not in gone}


def _most(held: Sequence[Postings]) -> Postings:
    whole = _together(held)
    items, place = group(whole.items)
    times, lengths = np.zeros(len(items), np.int64), np.zeros(len(items), np.int64)
    np.maximum.at(times, place, whole.times)
    np.maximum.at(lengths, place, whole.lengths)
    return Postings(items, times, lengths)


def _with_kindred(lists: Mapping[str, Postings], found: Mapping[str, Postings], words: Words) -> dict[str, Postings]:
    """The lists of a word and of the words of its topic become one: an item that holds only such a one holds the word
    once, as in a text of twice its length, so that the very word counts more. Of several lexemes it must hold all."""
    own_lists: dict[str, list[Postings]] = {}
    for word, own in zip(words.kindred, words.kindred_of, strict=True):
        held = [found[lexeme] for lexeme in word.split(" ") if lexeme in found]
        if len(held) < len(word.split(" ")):
            continue
        whole = held[0] if len(held) == 1 else _in_all(held)
        own_lists.setdefault(own, []).append(
            Postings(whole.items, np.ones(len(whole.items), np.int64), 2 * whole.lengths + 3)
        )
    joined = {}
    for own in dict.fromkeys(words.kindred_of):
        held = own_lists.get(own, []) + ([lists[own]] if own in lists else [])
        if not held:
            continue
        whole = _together(held)
        items, place = group(whole.items)
        times, lengths = np.zeros(len(items), np.int64), np.full(len(items), 32767, np.int64)
        np.maximum.at(times, place, whole.times)
        np.minimum.at(lengths, place, whole.lengths)
        joined[own] = Postings(items, times, lengths)
    gone, terms = set(words.kindred_of), set(words.terms)
    return joined | {term: postings for term, postings in lists.items() if term not in gone and term in terms}


def _in_all(held: Sequence[Postings]) -> Postings:
    whole = _together(held)
    items, place = group(whole.items)
    count = np.bincount(place)
    lengths = np.zeros(len(items), np.int64)
    np.maximum.at(lengths, place, whole.lengths)
    every = count == len(held)
    return Postings(items[every], np.ones(int(every.sum()), np.int64), lengths[every])


def bm25(lists: Mapping[str, Postings], items: int, total_words: int, asked: int, common: set[str]) -> Scores:
    """Return the scores of every item in the lists, best first. `asked`: how many words the question has."""
    base = K1 * (1 - B)
    slope = K1 * B / max(1.0, total_words / max(items, 1))
    # The weight of a word of one item only.
    rarest = math.log(1 + (items - 0.5) / 1.5) * 1000000
    last = max((int(p.items.max()) for p in lists.values() if len(p.items)), default=0)
    # Summed as integers: a sum of floats would depend on the order.
    sums, matched, telling = (np.zeros(last + 1, np.int64) for _ in range(3))
    total = 0
    for term, postings in lists.items():
        df = len(postings.items)
        idf = math.log(1 + (items - df + 0.5) / (df + 0.5)) * 1000000 * (CODE_WEIGHT if CODE.match(term) else 1)
        weight = int(np.rint(idf))
        total += weight
        times = postings.times
        sums[postings.items] += np.rint((K1 + 1) * idf * times / (times + base + slope * postings.lengths)).astype(
            np.int64
        )
        matched[postings.items] += weight
        if term not in common:
            telling[postings.items] = np.maximum(telling[postings.items], weight)
    # A word that occurs nowhere is as rare as can be.
    whole = max(1.0, total + max(0, asked - len(lists)) * math.log(1 + (items + 0.5) / 0.5) * 1000000)
    held = np.flatnonzero(sums)
    scores = (sums[held] / 1000000).astype(np.float32)
    order = np.argsort((-np.rint(scores * np.float32(10000)).astype(np.int64) << 32) | held)
    held, scores = held[order], scores[order]
    return Scores(
        held,
        scores,
        (matched[held] / whole).astype(np.float32),
        np.minimum(1, telling[held] / rarest).astype(np.float32),
        scores.max() if len(scores) else np.float32(0),
    )
