"""Packing: what each candidate would look like at each fidelity, about cost and be worth, and which lines are shown
within a budget.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

from .breadth import Breadth
from .candidates import Candidate
from .items import ROLES, to_text
from .times import day_name

FENCE = 22  # tokens of the fence
NAMES = {1: "detailed", 2: "compact", 3: "stub"}


@dataclass(frozen=True)
class Text:
    """The text of an item; `label`: who speaks, where a turn has a name."""

    body: str
    label: str | None = None


@dataclass(frozen=True)
class Reduced:
    """A text that could stand for an item, and what share of its worth is left."""

    item: int
    fidelity: str
    body: str
    tokens: int
    share: float


@dataclass(frozen=True)
class Rendition:
    """A memory said shorter: fidelity 1 to 3."""

    fidelity: int
    content: str
    tokens: int


@dataclass(slots=True)
class Line:
    """What a candidate looks like at one fidelity. `number`: the candidate's place; `step`: 1, or which step up from
    the line of the same candidate before it: then cost and worth are what it adds; `label`: who speaks, or in which
    space a memory lies; `group`, `opening`: its header,
    and what that costs.
    """

    number: int
    step: int
    cost: int
    worth: float
    own: float
    fidelity: str
    body: str
    header: str
    label: str
    group: int = 0
    opening: int = 0
    efficiency: float = 0.0


def within_reach(
    candidates: Sequence[Candidate], budget: int, hidden: frozenset[bytes], short: bool
) -> tuple[list[Candidate], set[int]]:
    """Return the candidates whose running total, what is worth most per token first, stays within one and a half
    budgets (counts are on the high side), and the items among them that may not fit as they are: those beyond half of
    it. `short`: they are shown as short lines, so more are within reach.
    """
    # A long turn may fit as an excerpt.
    able = [c for c in candidates if c.reason is None and c.tokens <= budget * 3 and c.ref not in hidden]

    def cost(c: Candidate) -> int:
        return min(c.tokens, 30) if short else c.tokens

    able.sort(key=lambda c: (not c.is_pinned, -c.worth / (cost(c) + 8), c.item))
    reached, doubtful, total, whole = [], set(), 0, 0
    for c in able:
        if total <= budget * 3 // 2 + 200:
            reached.append(c)
            if whole >= budget // 2:
                doubtful.add(c.item)
        total += cost(c)
        whole += c.tokens
    return reached, doubtful


def reduce_turns(
    turns: Sequence[Candidate], texts: Mapping[int, Text], share: float, terms: Sequence[str], shape: Breadth | None
) -> list[Reduced]:
    """Return of a part of a long turn the sentence that holds most of the question's words, rare ones above all: it
    is worth three quarters of the root of its share, as gold turns keep the words of answers (research/RESULTS.md). A
    broad recall shows short lines: the sentence cut to the longest excerpt, and to a stub. For an order of events
    that is the first sentence, which says what the turn is about.
    """
    if share <= 0:
        return []
    bodies = {c.item: texts[c.item].body.strip(" \n\t") for c in turns}
    lowered = [body.lower() for body in bodies.values()]
    weights: dict[str, int] = {}
    if shape is None or shape.shape != "order":
        for term in {t.rstrip("iy") if len(t) > 4 else t for t in terms}:
            df = sum(term in low for low in lowered)
            weights[term] = round(1000 * math.log(1 + (len(turns) - df + 0.5) / (df + 0.5)) + 50)
    found = []
    for c in turns:
        body = bodies[c.item]
        said = _best_sentence(body, weights, shape)
        if said is None:
            continue
        levels = (
            [("excerpt", shape.longest, shape.excerpt), ("stub", 90, shape.stub)] if shape else [("excerpt", 0, 0.0)]
        )
        for fidelity, longest, worth in levels:
            cut = re.sub(r"\s+\S*$", "", said[:longest]) if shape and len(said) > longest else said
            if shape is None and not len(cut) < len(body) * 9 // 10:
                continue
            text = ("" if c.chunk == 0 and body.startswith(cut) else "… ") + cut + " …"
            tokens = c.tokens * len(cut) // len(body)
            if shape:
                # Without the line breaks, which are counted with the whole.
                found.append(Reduced(c.item, fidelity, text, max(1, tokens + 3 - body.count("\n")), worth))
            else:
                found.append(Reduced(c.item, fidelity, text, tokens + 2, share * math.sqrt(len(cut) / len(body))))
    return found


def _best_sentence(body: str, weights: Mapping[str, int], shape: Breadth | None) -> str | None:
    """Cut at the ends of sentences and lines: quick and rough."""
    marked = body
    for end in (". ", "? ", "! "):
        marked = marked.replace(end, end[0] + "\x02")
    parts = marked.replace("。", "。\x02").replace("\n", "\x02").split("\x02")
    best, most = None, -1
    for part in parts:
        said = part.strip(" -*#=_|~")
        if len(said) < 20 or shape is None and len(said) > len(body) * 3 // 4:
            continue
        low = said.lower()
        score = sum(weight for term, weight in weights.items() if term in low)
        if score > most:
            best, most = said, score
    return best


def reduce_memories(
    memories: Sequence[Candidate], texts: Mapping[int, Text], renditions: Mapping[bytes, Sequence[Rendition]],
    shares: Mapping[str, float],
) -> list[Reduced]:  # fmt: skip
    """Return the renditions of memories (best first) within the ceiling of their session, at least their beginning.
    Several pieces of one memory have one rendition: it stands for the best of them."""
    found: dict[tuple[bytes, int], Reduced] = {}
    for c in memories:
        given = [r for r in renditions.get(c.ref, ()) if r.fidelity >= (c.ceiling or 0)]
        if c.ceiling is not None and not given:
            kind = c.memory.type if c.memory else ""
            given = [Rendition(3, f"{kind}: {texts[c.item].body[:80]}…", 30)]
        for r in given:
            name = NAMES[r.fidelity]
            found.setdefault(
                (c.ref, r.fidelity), Reduced(c.item, name, r.content, r.tokens + 30, shares.get(name) or 0.0)
            )
    return list(found.values())


_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def lines_of(
    candidates: Sequence[Candidate],
    texts: Mapping[int, Text],
    sessions: Mapping[bytes, str],
    reduced: Sequence[Reduced],
    zone: tzinfo = UTC,
    spaces: Sequence[str | None] = (None,),
) -> tuple[list[Line], list[int]]:
    """Return what each item would look like at each fidelity, about cost and be worth, in the order in which to take
    them: what is worth most per token first. A line of a higher fidelity is a step up from the one before it: it
    costs and is worth what it adds, and takes its place. Fidelities that bring less for each token than the next one
    up are left out. Near-identical items count once: the places of their copies come second.
    """
    shorter: dict[int, list[Reduced]] = {}
    for one in reduced:
        shorter.setdefault(one.item, []).append(one)
    originals, copies = _originals(candidates, texts)
    lines: list[Line] = []
    for number in originals:
        c, text = candidates[number], texts[candidates[number].item]
        if c.is_turn:
            header = f"{day_name(c.said, zone)}, {sessions.get(c.session) or 'session'}"
            label = text.label or ROLES[c.role]
            cost = c.tokens + (2 if text.label is None else 1) + text.body.count("\n")
        else:
            # A date in brackets, and the space; that it is the rest of a memory.
            space = spaces[c.source]
            header, label = "Memories", f", space {space}" if space else ""
            cost = c.tokens + 8 + text.body.count("\n") + (3 if c.chunk > 0 else 0) + len(label) // 3
        worth = 1000.0 if c.is_pinned else c.worth  # pinned: before all else
        if c.item in shorter:
            lines += _steps(number, c, cost, worth, text.body, shorter[c.item], header, label)
        elif c.ceiling is None:
            lines.append(Line(number, 1, cost, worth, worth / cost, "full", text.body, header, label))
    return _sort_lines(lines), copies


def _originals(candidates: Sequence[Candidate], texts: Mapping[int, Text]) -> tuple[list[int], list[int]]:
    first: dict[str, int] = {}
    copies = []

    def rank(n: int) -> tuple[bool, bool, int]:
        return not candidates[n].is_pinned, candidates[n].ceiling is not None, n

    for n, c in enumerate(candidates):
        if c.item not in texts:
            continue
        key = texts[c.item].body.strip(" \n\t.!?…").translate(_ASCII_LOWER)
        if key not in first:
            first[key] = n
        elif rank(n) < rank(first[key]):
            copies.append(first[key])
            first[key] = n
        else:
            copies.append(n)
    return sorted(first.values()), copies


def _steps(
    number: int, c: Candidate, whole: int, worth: float, body: str, reduced: Sequence[Reduced], header: str, label: str
) -> list[Line]:
    levels = [(r.tokens + whole - c.tokens, worth * r.share, r.fidelity, r.body) for r in reduced]
    if c.ceiling is None:
        levels.append((whole, worth, "full", body))
    levels.sort(key=lambda level: (level[0], -level[1], level[2]))
    # Of two that cost the same the one worth more: each would rule the other out.
    levels = [level for n, level in enumerate(levels) if n == 0 or level[0] != levels[n - 1][0]]
    kept, most = [], 0.0
    for n, (cost, its_worth, _, _) in enumerate(levels):
        before = levels[n - 1][0] if n else 0
        after = levels[n + 1] if n + 1 < len(levels) else None
        if its_worth > most and cost > before and (
            after is None
            or after[0] > cost and (its_worth - most) * (after[0] - cost) > (after[1] - its_worth) * (cost - before)
        ):  # fmt: skip
            kept.append(levels[n])
        most = max(most, its_worth)
    lines: list[Line] = []
    cost_before, worth_before, own = 0, 0.0, math.inf
    for step, (cost, its_worth, fidelity, text) in enumerate(kept, 1):
        # No step is taken before the one it stands on.
        own = min(own, (its_worth - worth_before) / (cost - cost_before))
        lines.append(
            Line(number, step, cost - cost_before, its_worth - worth_before, own, fidelity, text, header, label)
        )
        cost_before, worth_before = cost, its_worth
    return lines


def _sort_lines(lines: list[Line]) -> list[Line]:
    """A header is paid once: the lines that repay it best count together, at what they bring together; those after
    them by themselves.
    """
    groups = {header: n for n, header in enumerate(sorted({line.header for line in lines}), 1)}
    lines.sort(key=lambda line: (-line.own, line.number, line.step))
    together: dict[int, tuple[float, int]] = {}
    repaid: dict[int, float] = {}
    for line in lines:
        line.group, line.opening = groups[line.header], 4 + len(line.header) // 3
        worth, cost = together.get(line.group, (0.0, 0))
        together[line.group] = worth, cost = worth + line.worth, cost + line.cost
        repaid[line.group] = max(repaid.get(line.group, 0.0), worth / (line.opening + cost))
    for line in lines:
        line.efficiency = min(line.own, repaid[line.group])
    return sorted(lines, key=lambda line: (-line.efficiency, -line.own, line.number, line.step))


def choose(lines: Sequence[Line], budget: int) -> tuple[list[int], int, bool]:
    """Return which lines to show within a budget of about so many tokens, about how many they take, and whether there
    was nothing more to choose. Each that still fits is taken, in their order; one that does not fit takes the place
    of the last ones if it is worth more than these. A step up needs the one before it, whose place it takes: of every
    item one line at most.
    """
    chosen: list[int] = []
    opened: set[int] = set()
    latest: dict[int, int] = {}
    below: dict[int, int] = {}
    used = FENCE
    for i, line in enumerate(lines):
        least = 0
        if line.step > 1:
            below[i] = latest[line.number]
            latest[line.number] = i
            if below[i] not in chosen:
                continue
            least = chosen.index(below[i]) + 1
        latest[line.number] = i
        cost = line.cost + (0 if line.group in opened else line.opening)
        freed, lost, last = 0, 0.0, len(chosen)
        while used + cost - freed > budget and last > least and lost < line.worth:
            last -= 1
            freed += lines[chosen[last]].cost
            lost += lines[chosen[last]].worth
        if used + cost - freed <= budget and lost < line.worth:
            used += cost - freed
            del chosen[last:]
            chosen.append(i)
            opened.add(line.group)
    everything = len(chosen) == len(lines)
    replaced = {below[i] for i in chosen if i in below}
    return [i for i in chosen if i not in replaced], used, everything


def reference(candidate: Candidate, fidelity: str) -> str:
    """Return how a line names a memory that it does not show whole."""
    return f", {fidelity} of memory {to_text(candidate.ref)}"
