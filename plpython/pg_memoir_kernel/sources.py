"""Where candidates come from: the user's own items, and those of each space that the recall takes beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .candidates import BELOW, Candidate
from .gathering import Scope
from .store import Store

Json = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A user's or a space's arrays, with what is asked of them. `vector`: as PostgreSQL writes it; `space`: its name;
    None: the user's own."""

    store: Store
    asked: Json
    vector: str | None
    space: str | None = None

    @property
    def scope(self) -> Scope:
        """Where the question looks."""
        return Scope(**self.asked["scope"])


def sources_of(store: Store, asked: Json, vector: str | None) -> list[Source]:
    """Return the user's own source, and those of the spaces that are asked beside it."""
    # The list says nothing of a space but what stands in its messages.
    beside: Json = {"profile": [], "standing": [], "said": asked.get("said")}
    return [
        Source(store, asked, vector),
        *(
            Source(store.of(one), one | beside, one.get("vector") or vector, one["space"])
            for one in asked.get("spaces") or ()
        ),
    ]


def by_source(sources: Sequence[Source], candidates: Sequence[Candidate]) -> Iterator[tuple[Source, list[Candidate]]]:
    """Yield each source with its candidates, where it has some."""
    for number, source in enumerate(sources):
        if found := [c for c in candidates if c.source == number]:
            yield source, found


def merge(
    found: Sequence[list[Candidate]], strengths: Sequence[float | None], config: Json, share: bool
) -> list[Candidate]:
    """Return the candidates of all sources by their scores, those of spaces under numbers of their own.

    A source that does not answer leaves the place to one that does: where any is as strong as `weak_below`, nothing of
    a weaker one is shown but what is pinned. `share`: of all, what scores less than the setting's share of the best is
    left out, as among the items of one user.
    """
    if len(found) == 1:
        return found[0]
    most = max((s for s in strengths if s is not None), default=None)
    best = max((c.score for its in found for c in its if c.reason is None and not c.is_pinned), default=0.0)
    number = 0
    for source, (its, strength) in enumerate(zip(found, strengths, strict=True)):
        is_weaker = most is not None and most >= config["weak_below"] and (strength or 0.0) < config["weak_below"]
        for c in its:
            if source:
                number -= 1
                c.item, c.source = number, source
            is_exempt = c.is_pinned or c.is_frequent or c.is_related or c.is_standing
            if (
                c.reason is None
                and not is_exempt
                and (is_weaker or share and c.score < config["relevance_share"] * best)
            ):
                c.reason, c.worth = BELOW, 0.0
    return sorted((c for its in found for c in its), key=lambda c: -c.score)
