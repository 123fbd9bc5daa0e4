"""Relations among memories, as a picture: memories are rows, and arcs beside the rows tie them together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

ROW = 48  # height of a row, as style.css has it
WIDTH = 120
TITLES = {
    "supersedes": "replaces",
    "relates_to": "has to do with",
    "contradicts": "contradicts",
    "elaborates": "says more about",
    "caused_by": "was caused by",
    "parent_of": "is above",
    "references": "names",
    "depends_on": "depends on",
}


@dataclass(frozen=True)
class Tie:
    """A relation from one memory to another."""

    source: UUID
    relation: str
    target: UUID

    @property
    def title(self) -> str:
        """The relation as a verb."""
        return TITLES.get(self.relation, self.relation.replace("_", " "))


@dataclass(frozen=True)
class Arc:
    """A tie drawn: `path` and the head of its arrow are those of an SVG."""

    tie: Tie
    path: str
    head: str


@dataclass(frozen=True)
class Picture:
    """Rows from top to bottom, and the arcs beside them."""

    rows: list[UUID]
    arcs: list[Arc]
    relations: list[tuple[str, str]]
    height: int


def draw_arcs(ties: Sequence[Tie], order: Iterable[UUID]) -> Picture:
    """Draws relations. Memories that are tied together are rows beside each other, in the given order."""
    place = {memory: number for number, memory in enumerate(order)}
    group: dict[UUID, UUID] = {}

    def find(memory: UUID) -> UUID:
        while group.setdefault(memory, memory) != memory:
            memory = group[memory]
        return memory

    for tie in ties:
        group[find(tie.source)] = find(tie.target)
    groups: dict[UUID, list[UUID]] = defaultdict(list)
    for memory in sorted(group, key=lambda one: place.get(one, len(place))):
        groups[find(memory)].append(memory)
    rows = [memory for members in groups.values() for memory in members]
    at = {memory: number * ROW + ROW // 2 for number, memory in enumerate(rows)}
    arcs = [_draw(tie, at[tie.source], at[tie.target]) for tie in ties]
    used = {tie.relation: tie.title for tie in ties}
    return Picture(rows, arcs, sorted(used.items()), len(rows) * ROW)


def _draw(tie: Tie, y: int, to: int) -> Arc:
    reach = min(WIDTH - 24, 16 + abs(to - y) // 4)
    x = WIDTH - 10
    y, to = y + (6 if to > y else -6), to + (6 if to < y else -6)  # an arc leaves and arrives on the other's side
    path = f"M{x} {y} C{x - reach} {y} {x - reach} {to} {x} {to}"
    return Arc(tie, path, f"M{x - 7} {to - 4} L{x} {to} L{x - 7} {to + 4} Z")
