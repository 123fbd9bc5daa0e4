"""What calls cost, by a model of prompt caching as Anthropic documents it, at the prices of Claude Sonnet 4.5.

At each mark a prefix is written, for five minutes. A call finds the longest written prefix that ends at one of its own
marks or at most 20 blocks before one. What it found costs the price of a read and lives on, from there to the last mark
it is written, behind that it is plain input. Prefixes below the minimum are not kept.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import bpe_openai

LOOK_BACK = 20  # blocks
MINIMUM = 1024  # tokens


LIFE = 300.0  # seconds of a prefix
INPUT, READ, WRITE, OUTPUT = 3.0, 0.30, 3.75, 15.0  # dollars per million tokens
_ENCODING = bpe_openai.get_encoding("o200k_base")


@lru_cache(maxsize=200_000)
def tokens(text: str) -> int:
    return len(_ENCODING.encode_ordinary(text))


@dataclass(frozen=True)
class Request:
    """A call as it goes out: its blocks in order (tools, system, content), which of them carry a mark, tokens of each."""

    blocks: tuple[str, ...]
    sizes: tuple[int, ...]
    marks: tuple[int, ...]

    @cached_property
    def ends(self) -> list[tuple[bytes, int]]:
        """Of each block: hash and tokens of all up to its end."""
        out, hashed, total = [], hashlib.sha256(), 0
        for block, size in zip(self.blocks, self.sizes, strict=True):
            hashed.update(b"\0" + block.encode())
            total += size
            out.append((hashed.digest(), total))
        return out

    @property
    def total(self) -> int:
        return sum(self.sizes)


def request(body: dict[str, Any], tools: str) -> Request:
    """Of a body in the Anthropic shape."""
    blocks, marks = [tools], []
    for role, content in [("system", body["system"]), *((m["role"], m["content"]) for m in body["messages"])]:
        for block in content:
            if "cache_control" in block:
                marks.append(len(blocks))
            blocks.append(
                role
                + json.dumps({key: value for key, value in block.items() if key != "cache_control"}, ensure_ascii=False)
            )
    return Request(tuple(blocks), tuple(tokens(block) for block in blocks), tuple(marks[-4:]))


@dataclass
class Cache:
    """The cache of a model, and what went through it: tokens read, written, plain."""

    written: dict[bytes, float] = field(default_factory=dict)
    read: int = 0
    wrote: int = 0
    plain: int = 0

    def call(self, sent: Request, at: float) -> None:
        """Send a request at a time in seconds."""
        ends, found, last = sent.ends, 0, 0
        for mark in sent.marks:
            for block in range(mark, max(-1, mark - LOOK_BACK - 1), -1):
                if self.written.get(ends[block][0], 0) > at:
                    found = max(found, ends[block][1])
                    self.written[ends[block][0]] = at + LIFE
                    break
            if ends[mark][1] >= MINIMUM:
                self.written[ends[mark][0]] = at + LIFE
                last = max(last, ends[mark][1])
        last = max(last, found)
        self.read += found
        self.wrote += last - found
        self.plain += sent.total - last

    def cost(self, output: int) -> float:
        """Dollars so far, with so many tokens of answers."""
        return (self.read * READ + self.wrote * WRITE + self.plain * INPUT + output * OUTPUT) / 1_000_000


def kept(before: Request | None, now: Request) -> tuple[int, int]:
    """Tokens of the list before that this one begins with, and that it could have: all of it."""
    if before is None:
        return 0, 0
    same = 0
    for old, new, size in zip(before.blocks, now.blocks, before.sizes, strict=False):
        if old != new:
            break
        same += size
    return same, before.total
