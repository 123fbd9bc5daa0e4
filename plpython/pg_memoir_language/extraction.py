"""Find what is worth remembering in turns: statements, sentences worth keeping, results of tools; and requests to
forget.

Extraction rules read sentences in the bare form. The first that fits decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from . import data
from .data import choices
from .foreign import own_words
from .free_requests import find_free_requests
from .memories import Extracted, Rule, Turn, word_memory
from .patterns import Pattern, compile_pattern
from .requests import LONGEST_TEXT as LONGEST_ASKING
from .requests import Request, find_requests
from .statements import find_statements
from .text import (
    bare,
    dangles,
    own_sentences,
    read_clauses,
    replace_first,
    search,
)
from .wishes import find_wishes, with_exceptions

# The language that a judge reads.
JUDGED = "english"
# Of a long text its beginning and its end count.
FIRST_SENTENCES = LAST_SENTENCES = 200


class Judge(Protocol):
    """A learnt model that reads sentences."""

    def wishes(self, texts: Sequence[str]) -> Sequence[float]:
        """Return the chance that a sentence is a lasting instruction to the assistant, for each."""

    def asks(self, texts: Sequence[str]) -> Sequence[float]:
        """Return the chance that a sentence asks to forget something, for each."""

    def requests(self, texts: Sequence[str]) -> Sequence[float] | None:
        """Return the chance that a message asks to forget something that was said before, for each, or None where the
        judge of sentences decides alone."""


@dataclass(frozen=True)
class ExtractionRule:
    """An extraction rule with its patterns compiled. `early`: it is asked before the stops."""

    rule: Rule
    pattern: Pattern[str]
    not_if: Pattern[str] | None
    roles: tuple[str, ...]
    at_least: int
    early: bool


@cache
def extraction_rules(language: str) -> tuple[ExtractionRule, ...]:
    return tuple(
        ExtractionRule(
            rule,
            compile_pattern(rule["pattern"]),
            compile_pattern(rule["not_if"]) if "not_if" in rule else None,
            tuple(rule["roles"].split()),
            rule["at_least"],
            rule["provenance"] in ("instruction", "correction") or rule["category"] in ("identity", "outcome"),
        )
        for rule in data.load(language).extraction_rules
    )


def _count_specifics(said: str, form: str) -> int:
    """Count what could be asked for in a sentence: a number, a name, a point in time, eight words or more; one each."""
    times = rf"\m({choices('english', 'time_words', 'full_weekdays', 'sure_months')})\M"
    named = search("[[:alpha:],;:] +[[:upper:]][[:alpha:]]{2,}", said, False) and not search(
        "^[[:upper:] !.]+$", said, False
    )
    return sum((search(r"\d", said), named, search(times, form, False), search("^([^ ]+ ){7}", form)))


def extract_sentences(text: str, turn: Turn, text_no: int) -> list[Extracted]:
    """Return what extraction rules make of the sentences of a turn; `text` is the turn's without what is taken."""
    rules = extraction_rules(turn.language)
    if not rules:
        return []
    sentences = [s for s in own_sentences(text) if 8 <= s.length <= 400]
    if len(sentences) > FIRST_SENTENCES + LAST_SENTENCES:
        sentences = sentences[:FIRST_SENTENCES] + sentences[-LAST_SENTENCES:]
    wanted = "user" if turn.role == "user" else "agent" if turn.name is None else ""
    roles = {wanted, "named" if turn.name is not None else ""}
    found = []
    for sentence in sentences:
        said, form = sentence.said, bare(sentence.said)
        if (
            search(r"""[?？]["”'\)\]]*$""", said)
            or not search("[[:alpha:]].* .*[[:alpha:]]", said)
            or search(choices("english", "sarcasm"), said.lower(), False)
        ):
            continue
        specifics = _count_specifics(said, form)
        rule = _matching(rules, form, specifics, roles, True)
        if rule is None and not _stops(said, form, turn.language):
            rule = _matching(rules, form, specifics, roles, False)
        if rule:
            speaker = turn.name or ("User" if turn.role == "user" else "Assistant")
            found.append(
                word_memory(sentence, text_no, form, specifics, speaker, turn.name is not None, turn.said_at, rule)
            )
    return found


def _matching(rules: Iterable[ExtractionRule], form: str, specifics: int, roles: set[str], early: bool) -> Rule | None:
    for rule in rules:
        if rule.early == early and specifics >= rule.at_least and roles & set(rule.roles):
            if rule.pattern.search(form) and not (rule.not_if and rule.not_if.search(form)):
                return rule.rule
    return None


def _stops(said: str, form: str, language: str) -> bool:
    """Return whether a sentence says nothing of its speaker that lasts, whatever rule would fit it."""
    if any(search(stop, form, False) for stop in data.entries(language, "extraction_stops")):
        return True
    # A name before it may be what it is about.
    return dangles(form) and not search("[[:alpha:],;:] +[[:upper:]][[:alpha:]]{2,}", said, False)


ERROR = (
    r"""\m([[:alpha:]]+(Error|Exception): [^\n"]{5,200}|"?error"?( ?message)?"?: *"[^"\n]{4,200}"""
    r"""|(fatal|error|failed|failure)\M[: ][^\n"{}]{5,200})"""
)
VALUE = (
    r'"?\m((order|ticket|invoice|booking|reservation|confirmation|reference|tracking|case|claim|refund|issue|account'
    r"|customer|transaction|shipment|flight)[_ -]?(id|number|no|nr|code|ref|key)"
    r"|(grand[_ -]?)?total([_ -]?(price|amount"
    r'|cost|due))?|balance|amount[_ -]?due)\M"? ?[:=#]+ ?"?([[:alnum:]$€£][[:alnum:].,:/_-]{0,40})"?'
)
MOST_VALUES, MOST_TRIES = 3, 20


def extract_tool_result(turn: Turn, text_no: int) -> list[Extracted]:
    """Return the little of a tool's result that is asked for again: errors, identifiers, totals. It names the tool."""
    text, tool = turn.text[:20000], f"Tool {turn.tool}" if turn.tool else "Tool"
    found = []

    def add(start: int, hit: str, rule: str, kind: str, category: str, content: str) -> None:
        found.append(
            Extracted(
                text_no, start + 1, len(hit), rule, kind, "tool_output", category, "normal", 0.6, content,
                valid_from=turn.said_at,
            )
        )  # fmt: skip

    error = compile_pattern(ERROR, longest=True).search(text)
    if error:
        content = f"{tool} failed: {error[0].replace(chr(34), '')}"
        add(error.start(), error[0], "tool error", "error_context", "error", content)
    values = 0
    for tries, match in enumerate(compile_pattern(VALUE, True, longest=True).finditer(text)):
        if tries >= MOST_TRIES or values >= MOST_VALUES:
            break
        if search(r"\d", match[0]):
            value = replace_first(" ?[:=#]+ ?", " ", match[0].replace('"', ""), False).strip(" ")
            add(match.start(), match[0], "tool value", "tool_result", "outcome", f"{tool} returned {value}")
            values += 1
    return found


@dataclass(frozen=True)
class Reading:
    """What turns say by themselves: memories, and requests to forget."""

    found: list[Extracted]
    requests: list[Request]


def read_turns(turns: Sequence[Turn], judge: Judge | None = None, is_at_work: bool = False) -> Reading:
    """Return what rules find in turns, which count from 1: what persons say of themselves, clause by clause; of
    the rest sentences worth keeping; of tools errors, identifiers and totals. A request to forget is no memory.

    `judge`: finds lasting wishes and requests in English that no rule knows. `is_at_work`: in a session in which an
    agent runs commands.
    """
    languages = [turn.language for turn in turns]
    clauses, requests = [], []
    for number, turn in enumerate(turns, 1):
        if turn.role == "user":
            parts = read_clauses(turn.text, turn.language, number)
            clauses += parts if turn.name is None else []
            if len(turn.text) <= LONGEST_ASKING:
                requests += find_requests(parts, turn.language)
    if judge:
        read = [
            c
            for c in clauses
            if languages[c.text_no - 1] == JUDGED and len(turns[c.text_no - 1].text) <= LONGEST_ASKING
        ]
        requests += find_free_requests(read, requests, JUDGED, judge, is_at_work)
    asked = [(r.text_no, r.span_start, r.span_start + r.span_length) for r in requests]
    clauses = [
        clause
        for clause in clauses
        if not any(no == clause.text_no and start < clause.end and clause.span_start < end for no, start, end in asked)
    ]
    said = [turn.said_at for turn in turns]
    found = find_statements(clauses, languages, said)
    if judge:
        read = [clause for clause in clauses if languages[clause.text_no - 1] == JUDGED]
        wishes = find_wishes(read, found, said, JUDGED, judge.wishes)
        # A wish is one, whatever its clauses say besides.
        found = [one for one in found if not any(one.overlaps(wish) for wish in wishes)] + wishes
    found = with_exceptions(found, clauses, languages)
    for language in sorted(set(languages)):
        more = []
        for number, turn in enumerate(turns, 1):
            if turn.role == "tool" or turn.language != language:
                continue
            taken = [(one.span_start, one.span_start + one.span_length) for one in found if one.text_no == number]
            taken += [(start, end) for no, start, end in asked if no == number]
            # Whose words they are is told before any are taken out: "Patient record:" says it of the lines below.
            more += extract_sentences(without_spans(own_words(turn.text), taken), turn, number)
        found += more
    for number, turn in enumerate(turns, 1):
        if turn.role == "tool" and extraction_rules(turn.language):
            found += extract_tool_result(turn, number)
    return Reading(found, requests)


def without_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with spans (1-based, end excluded) blanked out: positions stay, and no sentence goes over a gap."""
    out, at = "", 1
    for start, end in sorted(spans):
        if end > start >= at:
            out += text[at - 1 : start - 1] + "\n" * (end - start)
            at = end
    return out + text[at - 1 :]
