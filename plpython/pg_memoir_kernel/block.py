"""The block of a recall: the texts of candidates at every fidelity there is, chosen within a budget and rendered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import packing
from .breadth import Breadth
from .candidates import ASSISTANT, Candidate
from .items import AFTER_QUESTION, NO_SESSION, to_bytes, to_text
from .rendering import render
from .sources import Source, by_source
from .store import Store
from .times import read_zone, to_datetime

Json = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A rendered recall and its tokens; what became of each candidate is in them."""

    text: str | None
    tokens: int


def read_texts(store: Store, candidates: Sequence[Candidate]) -> dict[int, packing.Text]:
    """Return the texts of candidates by item, if the caller may see them."""
    turns = [c for c in candidates if c.is_turn]
    memories = [c for c in candidates if c.kind == b"m"]
    summaries = [c for c in candidates if c.kind == b"s"]
    texts: dict[int, packing.Text] = {}
    if turns:
        rows = store.rows(
            "turn_texts", [c.item for c in turns], [to_text(c.session) for c in turns], [c.turn for c in turns],
            [to_datetime(c.recorded).isoformat() for c in turns], [c.start for c in turns], [c.length for c in turns],
        )  # fmt: skip
        texts |= {r["item_no"]: packing.Text(r["body"], r["label"]) for r in rows if r["body"] is not None}
    if memories:
        rows = store.rows(
            "memory_texts", [c.item for c in memories], [to_text(c.ref) for c in memories], [c.start for c in memories],
            [c.length for c in memories],
        )  # fmt: skip
        texts |= {r["item_no"]: packing.Text(r["body"]) for r in rows if r["body"] is not None}
    if summaries:
        rows = store.rows(
            "summary_texts", [c.item for c in summaries], [to_text(c.session) for c in summaries],
            [to_text(c.ref) for c in summaries], [c.start for c in summaries], [c.length for c in summaries],
        )  # fmt: skip
        texts |= {r["item_no"]: packing.Text(r["body"]) for r in rows if r["body"] is not None}
    return texts


def read_all(sources: Sequence[Source], candidates: Sequence[Candidate]) -> dict[int, packing.Text]:
    """Return the texts of candidates of all sources by item."""
    texts: dict[int, packing.Text] = {}
    for source, its in by_source(sources, candidates):
        texts |= read_texts(source.store, its)
    return texts


def _with_marks(
    source: Source, candidates: Sequence[Candidate], texts: dict[int, packing.Text], as_of: str | None
) -> None:
    """Set a mark behind each clause of texts that a later turn changed."""
    turns = [c for c in candidates if c.is_turn and c.item in texts]
    if not turns or "changes" not in source.asked["counters"]["features"]:
        return
    store = source.store
    spans: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
    for r in store.rows("marks", [to_text(c.session) for c in turns], [c.turn for c in turns], as_of):
        if r["span_start"] is not None:
            key = to_bytes(r["session_id"]), r["turn_index"]
            spans.setdefault(key, []).append((r["span_start"], r["span_start"] + r["span_length"]))
    for c in turns:
        end = c.start + c.length
        ends = {
            min(last, end) - c.start
            for first, last in spans.get((c.session, c.turn), ())
            if first < end and last > c.start
        }
        body = texts[c.item].body
        for at in sorted(ends, reverse=True):
            head = body[:at].rstrip(" .!?,;\n")
            body = head + " (later changed)" + body[len(head) :]
        texts[c.item] = packing.Text(body, texts[c.item].label)


def make_block(
    sources: Sequence[Source], candidates: list[Candidate], asked: Json, config: Json, as_of: str | None,
    shape: Breadth | None, budget: int, hidden: frozenset[bytes], is_weak: bool, leading: Sequence[Candidate],
) -> Block:  # fmt: skip
    """Choose candidates within the budget of the recall, each at one fidelity, and render them, but for turns that
    the list shows already. Candidates are told what became of them. `leading`: those that are taken before all others.
    """
    working: list[str] = asked["working"] or []
    if budget <= 0 or not candidates and not working:
        return Block(None, 0)
    store = sources[0].store
    lines, copies = _lines(sources, candidates, asked, config, as_of, shape, budget, hidden)
    if leading:
        items = {c.item for c in leading}
        lines.sort(key=lambda line: candidates[line.number].item not in items)
    for n in copies:
        candidates[n].reason = "a copy of another candidate"

    zone = read_zone(config.get("time_zone"))

    def neutralise(text: str) -> str:
        neutral: str = store.rows("neutralised", text)[0]["text"]
        return neutral

    def render_choice() -> tuple[str, int]:
        text = render([lines[n] for n in chosen], candidates, working, is_weak, neutralise, zone)
        return text, store.count_tokens(text + "\n\n")

    # First with stored counts, then once more with the budget corrected by what the text really costs.
    text: str | None = None
    tokens, about = 0, budget - budget // 200
    chosen: list[int] = []
    for attempt in range(3):
        chosen, used, is_all = packing.choose(lines, about)
        if not chosen and not working:
            break
        text, tokens = render_choice()
        ratio = min(1.5, budget * 0.995 / max(tokens, 1))
        if attempt == 2 or tokens > budget * 0.97 or is_all or not chosen or ratio < 1.03:
            break
        about = round(used * ratio)
    # The block is counted as it is; if that is too much, the choice is made again with so much less.
    while text is not None and tokens > budget:
        if chosen:
            chosen, used, _ = packing.choose(lines, used - (tokens - budget))
        else:
            working = working[:-1]
        if not chosen and not working:
            text = None
            break
        text, tokens = render_choice()
    # Half of an exchange, and the half that says nothing.
    is_mute = not working and all(_is_mute(candidates[lines[n].number]) for n in chosen)
    if is_mute:
        for n in chosen:
            candidates[lines[n].number].reason = "says nothing by itself"
    if text is None or is_mute:
        return Block(None, 0)
    for position, n in enumerate(chosen, 1):
        c = candidates[lines[n].number]
        c.position, c.fidelity = position, lines[n].fidelity
        if c.fidelity != "full":
            c.shown = lines[n].body
    return Block(text, tokens)


def _is_mute(c: Candidate) -> bool:
    """Return whether a candidate is a turn of three tokens at most, no word of them of the question: "Okay." """
    if not c.is_turn or c.is_pinned or c.words > 0 or c.flags & AFTER_QUESTION:
        return False
    return c.tokens <= 3 and (c.role == ASSISTANT or c.word_count <= 1)


def _lines(
    sources: Sequence[Source], candidates: list[Candidate], asked: Json, config: Json, as_of: str | None,
    shape: Breadth | None, budget: int, hidden: frozenset[bytes],
) -> tuple[list[packing.Line], list[int]]:  # fmt: skip
    """Return what could be shown, at every fidelity there is. Texts are read of what is worth most up to half again
    the budget. Short ones are shown as they are or not at all.
    """
    shares = config["fidelity_worth"] or {}
    reached, doubtful = packing.within_reach(candidates, budget, hidden, shape is not None)
    texts = read_all(sources, reached)
    for source, its in by_source(sources, reached):
        _with_marks(source, its, texts, as_of)
    if shape is not None and shape.shape != "even":
        doubtful = set(texts)
    in_reach = [c for c in candidates if c.item in texts]
    turns = [c for c in in_reach if c.is_turn and c.tokens >= (16 if shape else 60) and c.item in doubtful]
    memories = [c for c in in_reach if c.kind == b"m" and (c.tokens >= 60 or c.chunk > 0 or c.ceiling is not None)]
    reduced: list[packing.Reduced] = []
    if memories:
        renditions: dict[bytes, list[packing.Rendition]] = {}
        for source, its in by_source(sources, memories):
            for r in source.store.rows("renditions", [to_text(c.ref) for c in its]):
                renditions.setdefault(to_bytes(r["memory_id"]), []).append(
                    packing.Rendition(r["fidelity"], r["content"], r["token_count"])
                )
        memories.sort(key=lambda c: (-c.score, c.item))
        reduced += packing.reduce_memories(memories, texts, renditions, shares)
    reduced += packing.reduce_turns(turns, texts, shares.get("excerpt") or 0.0, asked["question"]["terms"], shape)
    names: dict[bytes, str] = {}
    for source, its in by_source(sources, [c for c in in_reach if c.is_turn and c.session != NO_SESSION]):
        of_space = f", space {source.space}" if source.space else ""
        for r in source.store.rows("session_names", sorted({to_text(c.session) for c in its})):
            names[to_bytes(r["session_id"])] = r["name"] + of_space
    spaces = [source.space for source in sources]
    return packing.lines_of(candidates, texts, names, reduced, read_zone(config.get("time_zone")), spaces)
