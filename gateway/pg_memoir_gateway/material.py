"""Tells the words of a person from material in a message of a client that is not known. The patterns are in
material.toml."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

Whose = Literal["person", "question", "output", "context"]

TYPED = 2_000  # longer prose is taken for material: few people type so much, and programs paste it
ASKED = 600  # a longer paragraph is not taken for a question
# Only so many characters of a message are searched. In a longer one nothing behind material is a person's.
READ = 20_000
LINE = 400  # a label stands at the beginning of a line
TAIL = 2_000  # an assistant calls tools at the end of its text
TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*)(?:\s[^<>]*)?/?>")
FENCE = re.compile(r"[ \t]{0,3}(?:```|~~~)")
QUOTE = re.compile(r"[ \t]{0,3}>")
KEY = re.compile(
    r"(?!(?:p\.?s|note|edit|update|btw|fyi|tl;?dr|reminder|also|https?)\b)"
    r"\*{0,2}[^\W\d][\w’'/-]*(?: [\w’'/-]+){0,3}\*{0,2}(?:[ \t](?=[:：]\s))?[:：]\*{0,2}(?=\s|$|[^\W\d])",
    re.I,
)
PARAGRAPH = re.compile(r"[^\n]+(?:\n[^\n]+)*")
SENTENCE = re.compile(r"[.!?。！？](?=\s)|\n|[。！？]")


class Span(NamedTuple):
    """A part of a text and whose it is."""

    start: int
    end: int
    whose: Whose


class Mark(NamedTuple):
    """A sign of material in a text."""

    start: int
    end: int
    kind: Literal["line", "key", "question", "fence", "quote"]


@cache
def _load_data() -> dict[str, list[str]]:
    return tomllib.loads(files(__package__).joinpath("material.toml").read_text("utf-8"))


@cache
def _compile_pattern(name: str) -> re.Pattern[str]:
    found = "|".join(f"(?:{pattern})" for pattern in _load_data()[name])
    if name in ("labels", "questions"):
        behind = r"(?:[ \t]*\([^)\n]{0,120}\)|[ \t]+[#\d][^\n:]{0,20})?[ \t\])*_`]{0,6}[:：]"
        found = rf"[ \t*_`~\[(#-]{{0,8}}(?:{found}){behind}"
    elif name in ("openings", "delegations"):
        found = rf"\W{{0,8}}(?:{found})"
    elif name == "lines":
        found = rf"[ \t]{{0,40}}(?:{found})"
    elif name == "typed":
        found = rf"<({found})(?:\s[^<>]{{0,400}})?>"
    elif name == "asked":
        found = rf"(?:{found})<(answer|feedback|user_message)>"
    return re.compile(found, re.I | re.M if name == "calls" else re.I)


def list_scenery() -> list[str]:
    """Returns the names of elements that clients send again with every message."""
    return _load_data()["scenery"]


def calls_tool(answer: str) -> bool:
    """Returns whether a text of the assistant ends with the call of a tool, so that the next message is its result."""
    return bool(_compile_pattern("calls").search(answer[-TAIL:].strip()))


def is_delegated(text: str) -> bool:
    """Returns whether a first message gives a task to an agent, in the words that models use for it."""
    return bool(_compile_pattern("delegations").match(text[:TAIL].strip()[:LINE]))


def is_open(text: str) -> bool:
    """Returns whether a message has material without a sure end, so that the user's next message may go on with it."""
    begin, _, sure = _find_bounds(text)
    return begin < len(text) and not sure and not _find_typed(text)


def divide(text: str) -> list[Span]:
    """Divides a message into spans without gaps: what a person surely typed, what may be a person's question,
    material."""
    if found := _find_typed(text):
        return found
    begin, end, sure = _find_bounds(text)
    before = _judge_span(text, 0, begin)
    behind = _judge_span(text, end, len(text)) if sure else Span(end, len(text), "output")
    spans = [before, Span(begin, end, "output"), behind]
    is_told = [span.whose == "person" and text[span.start : span.end].strip() for span in spans]
    if not is_told[2] and (asked := _find_question(text, begin if before.whose == "person" else 0, bool(is_told[0]))):
        first = [before] if before.whose == "person" else []
        at = before.end if first else 0
        spans = [*first, Span(at, asked.start, "output"), asked, Span(asked.end, len(text), "output")]
    return [span for span in spans if span.end > span.start]


def _judge_span(text: str, start: int, end: int) -> Span:
    return Span(start, end, "person" if len(text[start:end].strip()) <= TYPED else "output")


def _find_typed(text: str) -> list[Span]:
    """The spans of a message that begins with an element around typed text, or consists of elements that end with one.
    Elsewhere such an element may be part of a file."""
    begun = len(text) - len(text.lstrip())
    opening = _compile_pattern("typed").match(text, begun) or _compile_pattern("asked").match(text, begun)
    if opening:
        ends = re.compile(rf"</{re.escape(opening[opening.lastindex or 0])}\s*>", re.I).search(text, opening.end())
        return _divide_inner(text, opening.end(), ends.start()) if ends else []
    ends = re.search(r"</([\w-]{1,40})>\s*\Z", text[-200:])
    if not ends or not text.startswith("<", begun) or ends[1].lower() not in _load_data()["typed"]:
        return []
    openings = [found for found in _compile_pattern("typed").finditer(text) if found[1].lower() == ends[1].lower()]
    if len(openings) != 1 or not text[: openings[0].start()].rstrip().endswith(">"):
        return []
    return _divide_inner(text, openings[0].end(), len(text) - len(text[-200:]) + ends.start())


def _divide_inner(text: str, start: int, end: int) -> list[Span]:
    inner = [Span(start + span.start, start + span.end, span.whose) for span in divide(text[start:end])]
    return [Span(0, start, "output"), *inner, Span(end, len(text), "output")]


def _find_bounds(text: str) -> tuple[int, int, bool]:
    """Where the material of a text begins and ends, and whether what stands behind it is surely not part of it. A text
    without material begins and ends it at its end."""
    size = len(text)
    if _compile_pattern("openings").match(text[:READ].lstrip()[:LINE]):
        return 0, size, False
    head = text[:READ]
    tags, is_framed = _find_tags(head)
    marks = _find_marks(head)
    fences = [mark for mark in marks if mark.kind == "fence" and not (tags and tags[0] <= mark.start < tags[1])]
    regions = [(mark.start, mark.end) for mark in marks if mark.kind == "quote"]
    regions += [tags] if tags else []
    regions += [(fences[0].start, fences[1].end)] if len(fences) == 2 else []
    others = _select_outside([mark for mark in marks if mark.kind != "quote"], sorted(regions))
    if sum(mark.kind == "key" for mark in others) == 1:
        others = [mark for mark in others if mark.kind != "key"]
    if not regions and not others:
        begin = _find_reference(head)
        if size > TYPED:
            return 0, size, False
        return (0, begin, True) if begin else (size, size, False)
    begin = min([start for start, _ in regions] + [mark.start for mark in others])
    if any(mark.kind == "question" and mark.start == begin for mark in others) or _find_reference(head[:begin]):
        begin = 0
    if others or size > READ or (tags and not is_framed):
        return begin, size, False
    return begin, max(end for _, end in regions), True


def _select_outside(marks: list[Mark], regions: list[tuple[int, int]]) -> list[Mark]:
    """The marks that are in none of the regions."""
    found, at, covered = [], 0, 0
    for mark in marks:
        while at < len(regions) and regions[at][0] <= mark.start:
            covered, at = max(covered, regions[at][1]), at + 1
        if mark.start >= covered:
            found.append(mark)
    return found


def _find_tags(text: str) -> tuple[tuple[int, int] | None, bool]:
    """From where to where elements reach, and whether they frame what they hold. Tags of prose and such as are not
    closed do not count."""
    found = [(match, match[2].lower()) for match in TAG.finditer(text)]
    closed = {name for match, name in found if match[1]}
    opened = {name for match, name in found if not match[1]}
    ours = [(match, name) for match, name in found if name in closed & opened and name not in _load_data()["inline"]]
    if not ours:
        return None, False
    (first, _), (last, _name) = ours[0], ours[-1]
    web = _load_data()["web"]
    return (first.start(), last.end()), not first[1] and bool(last[1]) and not any(
        n in web for _, n in (ours[0], ours[-1])
    )


def _find_marks(text: str) -> list[Mark]:
    found = []
    for line in re.finditer(r"[^\n]+", text):
        head, (start, end) = line[0][:LINE], line.span()
        has_colon = ":" in head or "：" in head
        if head.isspace():
            continue
        if QUOTE.match(head):
            found.append(Mark(start, end, "quote"))
        elif FENCE.match(head):
            found.append(Mark(start, end, "fence"))
        elif has_colon and _compile_pattern("questions").match(head):
            found.append(Mark(start, end, "question"))
        elif (has_colon and _compile_pattern("labels").match(head)) or _compile_pattern("lines").match(head):
            found.append(Mark(start, end, "line"))
        elif announced := _compile_pattern("announcements").search(line[0]):
            found.append(Mark(start + announced.start(), end, "line"))
        elif has_colon and KEY.match(head):
            found.append(Mark(start, end, "key"))
    return found


def _find_reference(text: str) -> int:
    """Where the sentence begins that speaks of a text before it, 0 if there is none."""
    found = _compile_pattern("references").search(text)
    if not found:
        return 0
    return max((match.end() for match in SENTENCE.finditer(text, 0, found.start())), default=0)


def _find_question(text: str, start: int, is_labelled: bool) -> Span | None:
    """What a person may ask in a text from `start` on: an element, what a label names, the last or first paragraph.
    `is_labelled`: only the first two."""
    tail = text[-READ:]
    shift = len(text) - len(tail)
    for opening in reversed(list(_compile_pattern("typed").finditer(tail))):
        ends = tail.find("</", opening.end())
        if ends > 0 and opening.start() + shift >= start:
            return Span(shift + opening.end(), shift + ends, "question")
        break
    for line in reversed(list(re.finditer(r"[^\n]+", tail))):
        label = _compile_pattern("questions").match(line[0][:LINE])
        if label and line.start() + shift >= start:
            rest = re.compile(r"\s*[^\n]*(?:\n[^\n:]+$)*", re.M).match(tail, line.start() + label.end())
            end = rest.end() if rest else line.end()
            return Span(shift + line.start() + label.end(), shift + end, "question")
    if is_labelled:
        return None
    tags, _ = _find_tags(tail)
    last = max([tags[1] if tags else 0] + [mark.end for mark in _find_marks(tail)])
    paragraphs = [part for part in PARAGRAPH.finditer(tail, last) if part[0].strip()]
    for part in paragraphs[-1:] + (paragraphs[:1] if not last and not shift else []):
        if part.start() + shift >= start and len(part[0]) <= ASKED:
            return Span(shift + part.start(), shift + part.end(), "question")
    return None if last else Span(max(start, shift), len(text), "question")
