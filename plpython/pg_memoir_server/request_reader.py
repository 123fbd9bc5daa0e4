"""Reads requests to forget: is a message one, and which parts of earlier messages does it mean.

The shipped encoder with low-rank changes and two heads of its own (request_reader.safetensors, learnt by
research/judge/train_reader.py), on eight-bit weights. It marks the tokens of an earlier message that a request means,
so that a part of the message goes and the rest stays. English.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pg_memoir_language.free_requests import Asked, Parted

from . import bert_onnx
from .judge import CLS, SEP, Outputs, Weights, add_head, load
from .judge_heads import Heads, chance_of

LEARNT = Path(__file__).with_name("request_reader.safetensors")
# Tokens that are read: of a message alone, of an earlier message, of a request beside it.
LONGEST, LONGEST_EARLIER, LONGEST_LATER = 126, 120, 80
LEAST = 1e-4  # the least chance that counts


class RequestReader:
    """One loaded reader."""

    def __init__(self, cache: Path | None = None, threads: int = 1):
        (self._session,), self._tokenizer = load([LEARNT], add_heads, cache, threads)

    def requests(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a message asks to forget something that was said before, for each."""
        return [float(self._run("asks", self._ids(text)[:LONGEST])[0, 1]) for text in texts]

    def meant(self, request: str, messages: Sequence[Parted]) -> list[list[float]]:
        """Return the chance that a request means each part of each message."""
        later = _ends_of(self._ids(request))
        return [self._meant(later, message, parts) for message, parts in messages]

    def _meant(self, later: list[int], message: str, parts: Sequence[tuple[int, str]]) -> list[float]:
        read = self._tokenizer.encode(message, add_special_tokens=False)
        starts = np.array([start for start, _ in read.offsets])
        odds = np.full(len(read.ids), np.nan)
        # A long message is read in pieces that overlap by half.
        for at in range(0, max(1, len(read.ids) - LONGEST_EARLIER // 2), LONGEST_EARLIER // 2):
            piece = read.ids[at : at + LONGEST_EARLIER]
            seen = self._run("goes", piece, later)[0, 1 : len(piece) + 1]
            odds[at : at + len(piece)] = np.fmax(odds[at : at + len(piece)], seen)
        chances = []
        for start, part in parts:
            mine = odds[(starts >= start - 1) & (starts < start - 1 + len(part))]
            chances.append(float(chance_of(mine.mean())) if len(mine) else 0.0)
        return chances

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _run(self, output: str, first: list[int], second: list[int] | None = None) -> np.ndarray:
        ids, segments = [CLS, *first, SEP], [0] * (len(first) + 2)
        if second is not None:
            ids, segments = [*ids, *second, SEP], [*segments, *[1] * (len(second) + 1)]
        given = {
            "input_ids": np.array([ids], np.int64),
            "token_type_ids": np.array([segments], np.int64),
            "attention_mask": np.ones((1, len(ids)), np.int64),
        }
        seen: np.ndarray = self._session.run([output], given)[0]
        return seen


class RequestReaders:
    """The reader, and the heads over the judges. They err on different requests: the mean of their log odds counts."""

    def __init__(self, reader: RequestReader, heads: Heads):
        self._reader, self._heads = reader, heads

    def requests(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a message asks to forget something that was said before, for each."""
        return _mean(self._reader.requests(texts), self._heads.requests(texts)) if texts else []

    def meant(self, asked: Asked, messages: Sequence[Parted]) -> list[list[float]]:
        """Return the chance that a request means each part of each message."""
        by_heads = self._heads.meant(asked, [(message, [part for _, part in parts]) for message, parts in messages])
        by_reader = self._reader.meant(asked.whole, messages)
        return [_mean(one, other) for one, other in zip(by_heads, by_reader, strict=True)]


def _mean(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the chances of which the log odds are the mean of two."""
    given = np.array([one, other])
    odds = np.log((given + LEAST) / (1 - given + LEAST)).mean(0)
    chances: list[float] = chance_of(odds).tolist()
    return chances


def _ends_of(ids: list[int]) -> list[int]:
    """Return the begin and the end of a message that is too long to be read whole."""
    half = LONGEST_LATER // 2
    return ids if len(ids) <= LONGEST_LATER else ids[:half] + ids[-half:]


def add_heads(g: bert_onnx.Graph, learnt: Weights, x: str, mean: str, pooled: str) -> Outputs:
    """Add the heads: `asks` over the pooled state, `goes` (log odds, n × length) over each token's state
    beside the mean of all."""
    weight = (learnt["goes.weight"][1] - learnt["goes.weight"][0]).astype(np.float32)[:, None]
    bias = (learnt["goes.bias"][1] - learnt["goes.bias"][0]).astype(np.float32)
    half = len(weight) // 2
    of_token = g.op("MatMul", x, g.constant("goes.token", weight[:half]))
    of_mean = g.op("MatMul", mean, g.constant("goes.mean", weight[half:]))
    both = g.op("Add", g.op("Squeeze", of_token, g.constant("axes_2", np.array([2], np.int64))), of_mean)
    g.op("Add", both, g.constant("goes.bias", np.asarray(bias)), name="goes")
    asks, size = add_head(g, learnt, "asks", pooled)
    return {asks: size, "goes": ["n", "length"]}
