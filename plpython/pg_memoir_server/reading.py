"""What the model server, the backends and the worker read of texts, by name: JSON in, JSON out.

Extraction reads a batch of turns in two steps. `read_turns` finds what they say: languages, memories, requests to
forget, and which of them state something. `read_context` then reads these beside what was said earlier: what they
change, and what a request means.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from pg_memoir_kernel.times import find_ranges, is_within, read_time, to_microseconds
from pg_memoir_language import (
    aliases,
    changes,
    compare,
    data,
    experience,
    extraction,
    forgetting,
    memories,
    naming,
    questions,
    quotations,
    scenes,
    secrets,
    statements,
    summaries,
    untrue,
    wish_changes,
    work_steps,
)
from pg_memoir_language.languages import spoken_language, written_language

from . import tokens
from .shim import SLOW

Json = dict[str, Any]

# Languages besides English in which a change may be certain. `python -m research.judge.train_languages` examines them.
JUDGED_LANGUAGES = frozenset(
    "german french spanish italian portuguese dutch swedish polish turkish russian japanese".split()
)
_judges: dict[str, Any] = {}
_encoders: list[Any] = []


def judge(language: str) -> Any:
    """Return the judge of this process for a language, None where there is none. The first call loads it."""
    if language not in JUDGED_LANGUAGES and language != extraction.JUDGED:
        return None
    of = extraction.JUDGED if language == extraction.JUDGED else "others"
    if of not in _judges:
        try:
            from .judge import Judge
            from .judge_languages import LanguagesJudge

            _judges[of] = Judge() if of == extraction.JUDGED else LanguagesJudge()
        except Exception as error:  # whatever a package raises for a model file that it can't read
            logging.getLogger("pg_memoir.judge").warning("without a judge nothing is certain: %s", error)
            _judges[of] = None
    return _judges[of]


def heads() -> Any:
    """Return the heads over the judge of English, None where there is no judge or no encoder."""
    if "heads" not in _judges:
        told, embeds = judge(extraction.JUDGED), encoder()
        _judges["heads"] = None
        try:
            if told and embeds:
                from .judge_heads import Heads

                _judges["heads"] = Heads(told, embeds.embed)
        except Exception as error:  # as above
            logging.getLogger("pg_memoir.judge").warning("without the heads few wishes are found: %s", error)
    return _judges["heads"]


def request_readers() -> Any:
    """Return the readers of requests to forget in English, None where a model of theirs is missing."""
    if "requests" not in _judges:
        of_heads = heads()
        _judges["requests"] = None
        try:
            if of_heads:
                from .request_reader import RequestReader, RequestReaders

                _judges["requests"] = RequestReaders(RequestReader(), of_heads)
        except Exception as error:  # as above
            logging.getLogger("pg_memoir.judge").warning("without the reader few requests are found: %s", error)
    return _judges["requests"]


def encoder() -> Any:
    """Return the encoder, the one that this process embeds with if there is one; None where its model is missing."""
    if not _encoders:
        try:
            from .models import DEFAULT_MODEL
            from .runtimes import load_shared

            _encoders.append(load_shared(DEFAULT_MODEL))
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            logging.getLogger("pg_memoir.judge").warning("without an encoder requests mean what they name: %s", error)
            _encoders.append(None)
    return _encoders[0]


class Likeness:
    """The likeness of a text to others, of which each is embedded once."""

    def __init__(self) -> None:
        self._vectors: dict[str, Any] = {}

    def __call__(self, text: str, others: Sequence[str]) -> list[float]:
        new = [one for one in dict.fromkeys([text, *others]) if one not in self._vectors]
        if new:
            self._vectors.update(zip(new, encoder().embed(new), strict=True))
        mine = self._vectors[text]
        return [float(self._vectors[other] @ mine) for other in others]


def read_turns(given: str) -> Json:
    """{"turns": [{"text", "role", "name", "said_at", "utc_offset", "tool"}, …], "before": [the last messages before
    them]} → {"languages": […], "found": [Extracted, …], "requests": [Request, …], "stating": [turn, …]}. Turns count
    from 1. Requests to forget hold no memories, nor do what is played in a scene and what is not meant. "steps",
    "since": what was done around them; "experiences": what it teaches."""
    asked = json.loads(given)
    before = [_as_turn(turn) for turn in asked.get("before") or []]
    turns = [_as_turn(turn) for turn in asked["turns"]]
    if read_by := heads():
        turns = scenes.without_scenes(turns, read_by, before)
    is_at_work = bool(work_steps.read_session(asked.get("steps") or []).steps)
    read = extraction.read_turns(turns, Learnt(), is_at_work)
    found = untrue.without_untrue(read.found, turns, read_by) if read_by else read.found
    asking = {request.text_no for request in read.requests}
    return {
        "languages": [turn.language for turn in turns],
        "found": [_plain(asdict(one)) for one in found],
        "requests": [asdict(request) for request in read.requests],
        "experiences": experience.find_experience(asked.get("steps") or [], asked.get("since") or 0),
        "stating": [
            number
            for number, turn in enumerate(turns, 1)
            if turn.role == "user" and number not in asking and changes.may_change(turn.text, turn.language)
        ],
    }


def _as_turn(turn: Json) -> memories.Turn:
    text = naming.without_label(turn["text"], turn.get("name"))
    return memories.Turn(text, turn["role"], turn.get("name"), _said_at(turn), spoken_language(text), turn.get("tool"))


class Learnt:
    """The learnt reader of English sentences, loaded with the first one."""

    def wishes(self, texts: Sequence[str]) -> Sequence[float]:
        told = heads()
        return told.wishes(texts) if told else [0.0] * len(texts)

    def asks(self, texts: Sequence[str]) -> Sequence[float]:
        told = judge(extraction.JUDGED)
        return told.asks(texts) if told else [0.0] * len(texts)

    def requests(self, texts: Sequence[str]) -> Sequence[float] | None:
        both = request_readers()
        return both.requests(texts) if both else None


def _said_at(turn: Json) -> datetime:
    """Return when a turn was said, by its sender's clock: an offset ("+09:00") that came with it or the user's time
    zone, else UTC."""
    said_at, zone = datetime.fromisoformat(turn["said_at"]), turn.get("utc_offset") or "UTC"
    try:
        if zone[0] in "+-":
            return said_at.astimezone(datetime.strptime(zone.ljust(5, "0"), "%z").tzinfo)
        return said_at.astimezone(ZoneInfo(zone))
    except (ValueError, KeyError, OSError):
        return said_at.astimezone(UTC)


def _plain(row: Json) -> Json:
    return {key: value.isoformat() if isinstance(value, (date, datetime)) else value for key, value in row.items()}


def read_context(given: str) -> Json:
    """What turns change, and what requests mean, beside what was said earlier.

    {"turns": [{"no", "text", "name", "asked", "said_at", "utc_offset",
    "language", "earlier": [{"text", "said_at", "turns_before", "is_near",
    "unit"}, …], "memories": [{"id", "content"}, …]}, …], "requests": [{"no", "names", "said", "is_all", "language",
    "text", "earlier": [{"text", "role", "unit"}, …], "memories": [{"id", "content", "slot", "slot_value"}, …]}, …]} →
    {"turns": [row of turn_changes, …], "requests": [{"no", "outcome", "units": [row of said_unit, …], "memories":
    [id, …], "values": […]}, …]}: rows of the types in the database. A `unit` says where an earlier text stands.
    """
    asked = json.loads(given)
    memo: changes.Memo = {}
    return {
        "turns": [_read_changes(turn, memo) for turn in asked["turns"] or []],
        "requests": [_read_request(request) for request in asked["requests"] or []],
    }


def _read_changes(turn: Json, memo: changes.Memo) -> Json:
    language = turn["language"]
    told = judge(written_language(turn["text"]) if language == data.NO_LANGUAGE else language)
    given = turn["earlier"] or []
    earlier = [
        changes.Earlier(
            one["text"],
            spoken_language(one["text"]),
            datetime.fromisoformat(one["said_at"]),
            one["turns_before"],
            one["is_near"],
        )
        for one in given
    ]
    said_at = _said_at(turn)
    read = heads() if language == extraction.JUDGED else None
    text = untrue.blank_untrue(turn["text"], language, read) if read else turn["text"]
    message = changes.Message(text, said_at, turn["language"], turn["asked"] or "", turn.get("name"))
    found = changes.find_changes(message, earlier, told, memo, read)
    wishes = _wishes_of(given)
    if read and wishes:
        said = wish_changes.find_wish_changes(turn["text"], language, wishes, read)
        found = wish_changes.with_wishes(found, said, wishes, message, earlier, read)
    memories_given = turn["memories"] or []
    ended = changes.find_over(turn["text"], [one["content"] for one in memories_given], told)
    return {
        "text_no": turn["no"],
        "is_judged": told is not None,
        "changes": [
            {
                "span_start": change.by_start,
                "span_length": change.by_length,
                "said": change.content,
                "unit": _span(given[change.earlier], change.start, change.length),
                "olds": change.olds,
                "grade": change.grade,
                "chance": change.chance,
                "remainder": change.remainder,
            }
            for change in found
        ],
        "ended": [memories_given[number]["id"] for number in ended],
    }


def _wishes_of(earlier: Sequence[Json]) -> list[wish_changes.Wish]:
    """Return the lasting wishes in earlier texts: those of which memories were made that stand."""
    found = []
    for number, one in enumerate(earlier):
        for start, length in one.get("wishes") or []:
            said = one["text"][max(0, start - 1) : start - 1 + length]
            if start >= 1 and said.strip("\n"):
                found.append(wish_changes.Wish(number, start, said))
    return found


def _span(earlier: Json, start: int, length: int) -> Json:
    """Return a span of an earlier text, from 1 on, as a row of said_unit."""
    unit: Json = earlier["unit"]
    said = earlier["text"][start - 1 : start - 1 + length]
    return unit | {"span_start": unit["span_start"] + start - 1, "span_length": length, "said": said}


def _in_time(request: Json, earlier: Sequence[Json]) -> list[bool]:
    """Return of each earlier text whether it was said at a past time that a request names: "I told you in June"."""
    times, _ = questions.find_times(request["text"])
    named = asdict(times) | {"days": [n for n in times.days if n], "years": []}
    if not earlier or not request.get("said_at") or not any(named.values()):
        return []
    said = [to_microseconds(read_time(one["said_at"])) for one in earlier]
    return is_within(said, find_ranges(named, min(said), max(said), read_time(request["said_at"])))


def _read_request(request: Json) -> Json:
    earlier, known = request["earlier"] or [], request["memories"] or []
    said = [(one["text"], one["role"] == "user") for one in earlier]
    remembered = [forgetting.Remembered(one["content"], one["slot"], one["slot_value"]) for one in known]
    # The judge of other languages knows no requests.
    told = judge(extraction.JUDGED) if request["language"] == extraction.JUDGED else None
    targets = forgetting.Targets("nothing")
    if not request.get("is_free"):
        targets = forgetting.find_forgotten(
            request["names"], request["said"], request["is_all"], request["language"], request["text"], said,
            remembered, told,
        )  # fmt: skip
    read_by = request_readers() if told else None
    if targets.outcome == "nothing" and told and read_by:
        then = _in_time(request, earlier)
        targets = forgetting.find_by_meaning(
            request["text"], said, request["language"], told, read_by, Likeness(), then
        )
    return {
        "no": request["no"],
        "outcome": targets.outcome,
        "is_whole": targets.is_whole,
        "units": [_span(earlier[of], start, length) for of, start, length in targets.spans],
        "memories": [known[number]["id"] for number in targets.memories],
        "values": list(targets.values),
    }


def quoted(given: str) -> Json | None:
    """What a quotation of the user gives authority for: {"said", "turns": [{"index", "text"}, …], "kind": "request" or
    "statement", "texts": […] or "whole": a turn whose clauses are the texts, "content", "slot"} → the turn that says it
    (pg_memoir_language.quotations) with "parts" of the whole, null where none does."""
    asked = json.loads(given)
    turns = [quotations.OwnTurn(turn["index"], turn["text"]) for turn in asked["turns"] or []]
    parts = quotations.parts_of(asked["whole"]) if asked["whole"] is not None else []
    texts: Sequence[str] = [part.said for part in parts] if parts else asked["texts"] or []
    found: quotations.QuotedRequest | quotations.QuotedStatement | None
    if asked["kind"] == "request":
        found = quotations.request_by_quotation(turns, asked["said"], texts, asked["slot"])
    else:
        found = quotations.statement_by_quotation(turns, asked["said"], asked["content"], texts, asked["slot"])
    if found is None:
        return None
    spans = [parts[number - 1] for number in found.matched] if parts else []
    return asdict(found) | {"parts": [{"start": part.span_start, "length": part.span_length} for part in spans]}


def rank_lines(given: str) -> Json:
    """Lines for a summary: {"turns": [{"label", "role", "text", "said_at"}, …], "former": [lines of former summaries],
    "is_open": whether the last turn may ask something, "config": of text search} → {"lines": [those of former
    summaries, then those of turns], "order": [numbers from 1, the one that adds most first]}."""
    asked = json.loads(given)
    turns = asked["turns"] or []
    is_dated = asked["config"] in ("english", "simple")
    language = "english" if is_dated else asked["config"]
    lines = [summaries.line_of_summary(line) for line in asked["former"] or []]
    for number, turn in enumerate(turns, 1):
        said = datetime.fromisoformat(turn["said_at"]).astimezone(UTC).date()
        is_last = asked["is_open"] and number == len(turns)
        lines += summaries.lines_of_turn(turn["label"], turn["role"], turn["text"], said, is_last, is_dated)
    order = summaries.rank_lines(lines, language)
    return {"lines": [line.text for line in lines], "order": [number + 1 for number in order]}


def read_aliases(given: str) -> Json:
    """{"texts": […]} → {"found": [[Alias, …], …]}, a list for each text."""
    return {"found": [[asdict(one) for one in aliases.read_aliases(text)] for text in json.loads(given)["texts"]]}


def given_aliases(given: str) -> Json:
    """{"content", "names": […], "value"} → {"found": [Alias, …]}: what the names given with a memory are names of."""
    asked = json.loads(given)
    found = aliases.given_aliases(asked["content"], asked["names"], asked["value"])
    return {"found": [asdict(one) for one in found]}


def compare_statements(given: str) -> Json:
    """{"text", "others": […]} → {"found": [Comparison, …]}, in the order of the others."""
    asked = json.loads(given)
    return {"found": [asdict(compare.compare(asked["text"], other)) for other in asked["others"]]}


def find_contradictions(given: str) -> Json:
    """{"texts": […], "pairs": [[number, number], …]} → {"contradicting": [[number, number], …]}: numbers from 0."""
    asked = json.loads(given)
    texts = asked["texts"]
    found = [(one, other) for one, other in asked["pairs"] if compare.find_contradiction(texts[one], texts[other])]
    return {"contradicting": found}


def join_texts(given: str) -> Json:
    """{"texts": […]} → {"text": what they say, each sentence once, "condensable": [numbers from 0 of texts that get
    shorter by it]}."""
    texts = json.loads(given)["texts"]
    return {"text": compare.join_texts(texts), "condensable": compare.find_condensable(texts)}


def find_merge_problem(given: str) -> Json:
    """{"text", "covered": […], "given": […]} → {"problem": what is wrong with a text for several, or null}."""
    asked = json.loads(given)
    return {"problem": compare.find_merge_problem(asked["text"], asked["covered"], asked["given"])}


def read_messages(given: str) -> Json:
    """{"texts": […], "counted": […], "tokenizer"} → {"kinds": the kinds of secrets in each text, "tokens": of each}."""
    asked = json.loads(given)
    if asked["tokenizer"] not in tokens.ENCODINGS:  # another would be a file to read
        raise ValueError(f"unknown tokenizer {asked['tokenizer']!r}")
    kinds = [secrets.secret_kinds(text) for text in asked["texts"]]
    return {"kinds": kinds, "tokens": tokens.count(asked["counted"], asked["tokenizer"])}


FUNCTIONS: dict[str, Callable[[str], Any]] = {
    "secret_kinds": secrets.secret_kinds,
    "read_messages": read_messages,
    "redact": secrets.redact,
    "read_question": questions.read_question,
    "read_statement": statements.read_statement,
    "read_turns": read_turns,
    "read_context": read_context,
    "quoted": quoted,
    "rank_lines": rank_lines,
    "read_aliases": read_aliases,
    "given_aliases": given_aliases,
    "compare_statements": compare_statements,
    "find_contradictions": find_contradictions,
    "join_texts": join_texts,
    "find_merge_problem": find_merge_problem,
}
assert set(SLOW) < set(FUNCTIONS)
