"""Find what is worth remembering in turns: what people say of themselves that lasts, and sentences worth keeping.

`statement_rules` read clauses in the plain form, `extraction_rules` whole sentences in the bare form; both are in the
data of each language. The first rule that fits decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from functools import cache
from typing import Any

from . import data
from .dates import resolve_dates
from .languages import spoken_language
from .naming import name_speaker
from .patterns import Pattern, compile_pattern
from .text import (
    Clause,
    Sentence,
    bare,
    choices,
    dangles,
    first_group,
    has_phrase,
    own_sentences,
    pad,
    plain,
    read_clauses,
    replace_all,
    replace_first,
    search,
    split_clauses,
    without_opening,
    without_preamble,
)

LONGEST_PLAIN = 400
# Of a long text its beginning and its end count.
FIRST_SENTENCES = LAST_SENTENCES = 200
Rule = dict[str, Any]


@dataclass(frozen=True)
class Extracted:
    """A memory that a rule makes of a span of a text, with the slot and value where one value holds at a time."""

    text_no: int
    span_start: int
    span_length: int
    rule: str
    type: str
    provenance: str
    category: str
    importance: str
    utility: float
    content: str
    slot: str | None = None
    slot_value: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    event_from: date | None = None
    event_to: date | None = None
    standing: bool = False


@dataclass(frozen=True)
class Turn:
    """A turn to read: who speaks in which role ("user", "assistant", "tool"; "agent" for an agent in the user's place),
    when, in which language."""

    text: str
    role: str
    name: str | None
    said_at: datetime
    language: str
    tool: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether a person without a name says it."""
        return self.role == "user" and self.name is None


# Statements --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StatementRule:
    """A statement rule with its patterns compiled."""

    rule: Rule
    pattern: Pattern[str]
    not_if: Pattern[str] | None
    needs: tuple[str, ...]
    begins: tuple[str, ...]
    is_whole: bool
    has_slot: bool


@cache
def statement_rules(language: str) -> tuple[StatementRule, ...]:
    rules = []
    for rule in data.load(language).statement_rules:
        pattern: str = rule["pattern"]
        begins: tuple[str, ...] = ()
        if pattern.startswith(("^I ", "^(?:I|we)")):
            begins = ("i", "we")
        elif pattern.startswith("^(?:my|our)"):
            begins = ("my", "our")
        exact = rule.get("exact", False)
        if exact:
            pattern = compile_pattern(r"^\^(I|\(\?:I\|we\))").sub(r"^(?:\1|i)", pattern, count=1)
        not_if = rule.get("not_if")
        rules.append(
            StatementRule(
                rule,
                compile_pattern(pattern, not exact, longest=True),
                compile_pattern(not_if, True) if not_if else None,
                tuple(rule.get("needs", "").split()),
                begins,
                rule.get("whole", False),
                "slot" in rule,
            )
        )
    return tuple(rules)


def match_statement(text: str, is_whole: bool, language: str, with_slot: bool = False) -> Rule | None:
    """Return the first rule that fits a plain clause, with its slot and value filled in."""
    if len(text) > LONGEST_PLAIN:
        return None
    padded, first = pad(text), text.split(" ", 1)[0].lower()
    for rule in statement_rules(language):
        if rule.is_whole != is_whole or (with_slot and not rule.has_slot):
            continue
        if (rule.begins and first not in rule.begins) or (rule.needs and not has_phrase(padded, rule.needs)):
            continue
        match = rule.pattern.search(text)
        if match and not (rule.not_if and rule.not_if.search(text)):
            captured = match.groups() or (match[0],)
            return _with_value(rule.rule, text, captured, language)
    return None


def _with_value(rule: Rule, text: str, captured: Sequence[str | None], language: str) -> Rule:
    """Return a rule with the slot and value that it finds, without them where the clause has no value or denies it."""
    if "slot" not in rule:
        return rule
    value = cut_value(_fill(rule["value"], captured), language)
    several = rf"\m(?:{choices('english', 'several')})$"
    denied = (
        r"\m(?:not|never|used to|part-time|temporarily|for (?:now|the summer|a (?:while|few|couple))|other|also|another"
        r"|second)\M"
    )
    if (
        value is None
        or (rule["slot"].startswith("name of") and captured[0] and search(several, captured[0]))
        or (not rule["value"].startswith("not ") and search(denied, text.split(",", 1)[0]))
    ):
        return {key: part for key, part in rule.items() if key not in ("slot", "value")}
    return rule | {"slot": name_slot(_fill(rule["slot"], captured)), "value": value}


def _fill(form: str, captured: Sequence[str | None]) -> str:
    first, second = (*captured, None, None)[:2]
    return form.replace("{1}", first or "").replace("{2}", second or "")


def cut_value(value: str, language: str) -> str | None:
    """Return a captured value up to where its clause goes on: "Graz with my sister" is "Graz"."""
    value = replace_first(r"(?:[,;:(!?.]+(?: |$)| [-–—]+ ).*$", "", value, False)
    ends = choices(language, "value_ends")
    if ends:
        value = replace_first(rf"(.) (?:{ends})\M.*$", r"\1", value)
    value = replace_first("^(?:the|an?|my|our) ", "", value).strip(" .,;:\"'!(")
    return " ".join(value.split(" ")[:7]) or None


SLOTS = (
    (r"^(work |home |office )?(e-?mail|mail)( address)?$", "email"),
    (r"^(mobile |cell |private )?(phone|number|mobile|cell|telephone)( number)?$", "phone number"),
    (r"^(home |postal )?address$", "address"),
    (r"^name of .*(boss|manager|supervisor|team lead)$", "name of boss"),
    (r"^name of (mum|mom|mother)$", "name of mother"),
    (r"^name of (dad|father)$", "name of father"),
    (r"^number of (kids?|child|children)$", "number of children"),
    (r"^number of (grandchild|grandchildren|grandkids)$", "number of grandchildren"),
    (r"^mobile number$", "phone number"),
)


def name_slot(slot: str) -> str:
    """Return the one name of a slot, however the matter is called: "e-mail address" is "email"."""
    slot = compile_pattern(r"\s+").sub(" ", slot.lower()).strip(" ")
    for pattern, name in SLOTS:
        if compile_pattern(pattern).search(slot):
            return name
    slot = slot.replace("favorite", "favourite").replace("color", "colour")
    return replace_first("^(name of|all-time) (?:new|little|old|dear) ", r"\1 ", slot, False)


def is_supposed(text: str, language: str) -> bool:
    """Return whether a sentence, or what stands in it before a clause, only supposes or reports."""
    return text != "" and search(choices(language, "supposed", "sarcasm"), text)


def without_reasons(text: str, language: str) -> str:
    """Return "Since I'm deaf", "(I indent with tabs", "I live in Ulm if that matters" without what only says why."""
    text = text.lstrip("(").rstrip("?")
    if "(" not in text:
        text = text.rstrip(")")
    opening, end = choices(language, "reason_openings"), choices(language, "aside_ends")
    if opening:
        text = replace_first(rf"^(?:{opening})\s*(?=(?:i|we|my|our|the only|all my)\M)", "", text)
    if end:
        text = replace_first(rf",? (?:{end})[).]*$", "", text)
    return text


def _clauses_to_state(clauses: Sequence[Clause], language: str) -> list[Clause]:
    """Return what may be a statement: sentences, and clauses that neither ask nor stand behind "if" or "he said".

    A reason at the end of a question ("…, given I live on a boat?") asks nothing.
    """
    wishes, given = choices(language, "asked_wishes"), choices(language, "reasons_given")
    conditions = choices(language, "conditions")
    rows, before, place = [], "", (0, 0)
    for clause in clauses:
        if (clause.text_no, clause.sentence_start) != place:
            place, before = (clause.text_no, clause.sentence_start), ""
        # "Can you always answer in Dutch?" asks for no answer.
        asking = clause.asks and not search(wishes, clause.sentence)
        if clause.clause_no == 0:
            if not asking:
                rows.append(clause)
            continue
        leads = clause.sentence[: clause.span_start - clause.sentence_start]
        answers = given is not None and search(rf"\m(?:{given})$", leads)
        if not (clause.is_last and asking and not answers):
            if not is_supposed(before, language) and not search(conditions, before):
                rows.append(clause)
        before = f"{before} {clause.said}" if before else clause.said
    return rows


def find_statements(clauses: Sequence[Clause], languages: Sequence[str], said: Sequence[datetime]) -> list[Extracted]:
    """Return the statements among clauses of persons without a name; `languages` and `said` by text."""
    found = []
    for language in sorted({languages[clause.text_no - 1] for clause in clauses}):
        rows = _clauses_to_state([c for c in clauses if languages[c.text_no - 1] == language], language)
        first = choices(language, "first_person")
        myself = f"{first} " if first else ""
        forms = [(row, without_reasons((myself if row.inherits else "") + row.plain, language)) for row in rows]
        # At last as they were said: "keep in mind that I'm in Hobart" is known by how it begins.
        again = [(row, row.plain) for row, form in forms if row.plain.lstrip("(") != form and not row.inherits]
        hits = []
        for place, (row, form) in enumerate([*forms, *again]):
            rule = match_statement(form, row.clause_no == 0, language)
            if rule:
                # Whole sentences first: their clauses are theirs.
                hits.append(((row.text_no, place >= len(forms), row.clause_no > 0, place), row, form, rule))
        taken: list[tuple[int, int, int]] = []
        for _, row, form, rule in sorted(hits, key=lambda hit: hit[0]):
            if any(no == row.text_no and start < row.end and row.span_start < end for no, start, end in taken):
                continue
            if rule["category"] not in ("instruction", "identity") and (
                is_supposed(row.plain, language) or search(choices(language, "conditions"), form)
            ):
                continue
            taken.append((row.text_no, row.span_start, row.end))
            said_now = (myself if row.inherits else "") + row.said
            found.append(_state(row, said_now, rule, said[row.text_no - 1], language))
    return found


def _state(row: Clause, said: str, rule: Rule, said_at: datetime, language: str) -> Extracted:
    """Return a statement as what a rule found."""
    kind = rule["type"]
    words = without_reasons(without_preamble(said, language), language) if language == "english" else said
    worded = word_memory(
        Sentence(row.span_start, row.span_length, words), row.text_no, bare(said), 0, "User", False, said_at,
        {key: part for key, part in rule.items() if key not in ("slot", "value")}
        | {"utility": 0.9, "provenance": kind if kind in ("instruction", "preference") else "user_stated"},
    )  # fmt: skip
    if language != "english":
        worded = replace(worded, content="User: " + said.strip(" .") + ".")
    standing = rule["standing"] and not search(choices(language, "no_standing"), said)
    return replace(worded, slot=rule.get("slot"), slot_value=rule.get("value"), standing=standing)


# Extraction --------------------------------------------------------------------------------------------------------


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
        if rule is None and not _is_stopped(said, form, turn.language):
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


def _is_stopped(said: str, form: str, language: str) -> bool:
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


# Words -------------------------------------------------------------------------------------------------------------

AHEAD = (
    r"\m(will|going to|plan(ning)?|starting|am|are|is(?= (?:on|at|due|from|by|now|\d))|due|comes|leaves|starts|begins"
    r"|opens|ends|expires|gets) "
)
NOT_NOW = r"\m(not|never|used|was|were|no longer|part-time|temporarily|for (now|the summer|a (while|few|couple)))\M"


def word_memory(
    sentence: Sentence,
    text_no: int,
    form: str,
    specifics: int,
    name: str,
    is_named: bool,
    said_at: datetime,
    rule: Rule,
) -> Extracted:
    """Return the memory that a rule makes of a sentence; `form` is the sentence in the bare form."""
    said, kind, provenance = sentence.said, rule["type"], rule["provenance"]
    text = without_opening(replace_first("^(no|nope)[,.!;]+ +", "", said))
    is_past = kind != "plan" and not search(AHEAD, form, False)
    dates = resolve_dates(text, said_at.astimezone(UTC).date(), is_past)
    text = dates.text[:1].upper() + dates.text[1:]
    # "Went to Ulm": the speaker did.
    if rule["name"] == "did, without saying who":
        first = text.split(" ", 1)[0].lower()
        who = "I have " if first == "been" else "I am " if first.endswith("ing") or first == "gonna" else "I "
        text = who + text[:1].lower() + text[1:]
    elif kind in ("event", "plan", "fact") and provenance == "user_stated":
        if search(rf"^({choices('english', 'past_verbs')})\M(?! by\M)", text, False):
            text = f"I {text[:1].lower()}{text[1:]}"
    # What asks for an answer goes with the answer.
    text = replace_all(r"(\*{1,3}|\m_)([^*_\s][^*_]*)\1|\*{2,}", r"\2", text, False)
    text = replace_first(r"( -|,|;|\.) (so )?(can|could|would|will) you .*$", ".", text)
    text = replace_first(
        r"( -|,|;)? (and|but|so) (I|we) (want|need|'d like|would like) to (make|be) (sure|certain) .*$",
        ".",
        text,
        False,
    )
    # "…, ok?", "…, any tips?" ask for no more than assent, or for help.
    text = replace_first(r",[^,.!?]{2,24}\?+$", "", text, False)
    text = name_speaker(text, name)
    if name not in text:
        asked = " asks: " if kind == "instruction" else " corrects: " if provenance == "correction" else ": "
        text = name + asked + text
    elif text.startswith(name) or kind != "instruction":
        text = text[:1].upper() + text[1:]
    else:
        text = f"{name} asks: {text}"
    if not search(r"""[.!…。]["”')]*$""", text):
        text += "."
    slot, value = _find_slot(rule, said, form, name, is_named)
    # A thing that began is true from then; a plan is known from when it was said, and stays worth knowing after its
    # day.
    valid_from = said_at
    if dates.event_from:
        valid_from = min(said_at, datetime.combine(dates.event_from, time(), UTC))
    valid_to = datetime.combine(dates.valid_until, time(), UTC) if dates.valid_until else None
    return Extracted(
        text_no, sentence.start, sentence.length, rule["name"], kind, provenance, rule["category"], rule["importance"],
        min(1.0, rule["utility"] + 0.05 * specifics), text, slot, value, valid_from,
        valid_to if valid_to and valid_to > valid_from else None, dates.event_from, dates.event_to,
    )  # fmt: skip


def _find_slot(rule: Rule, said: str, form: str, name: str, is_named: bool) -> tuple[str | None, str | None]:
    if "slot" not in rule or search(NOT_NOW, form, False):
        return None, None
    value = first_group(rule.get("value"), said.translate({ord("’"): "'"}), False)
    dated = rf"\m({choices('english', 'full_weekdays', 'sure_months')}|mom|dad)\M"
    if value is None or (search(dated, value) and rule["slot"] != "birthday"):
        return None, None
    return f"{name.lower()}: {rule['slot']}" if is_named else rule["slot"], value


def read_statement(content: str) -> dict[str, Any] | None:
    """Return slot, value and standing of what is remembered without a slot, said by or of the user: "Lives in Ulm",
    "The user's name is Ida". None where it tells none."""
    if len(content) > 300:
        return None
    language = spoken_language(content)
    text = plain(content, language)
    if language == "english":
        text = replace_first("^(?:the )?user's (?=[[:alpha:]])", "My ", text)
        text = replace_first("^(?:the )?user ", "I ", text)
        verbs = "^(?:Lives|Works|Drives|Speaks|Prefers|Reports|Is|Has|Wears|Takes|Goes|Earns|Weighs|Drinks) "
        if search(verbs, text, False):
            text = f"I {text[:1].lower()}{text[1:]}"
        for third, first in (("is", "am"), ("has", "have"), ("goes", "go")):
            text = replace_first(rf"^I {third}\M", f"I {first}", text, False)
    if len(split_clauses(text, language)) > 1 or is_supposed(text, language):
        return None
    own = "^(?:I|We|My|Our|i|we|my|our|Ich|Mein|Vivo|Mi|J|Mon|Ma|Moro|O meu|A minha|Abito|Il mio|La mia)"
    if not search(own, text, False):
        return None
    rule = match_statement(text, False, language, True)
    if rule is None:
        return None
    return {"slot": rule.get("slot"), "value": rule.get("value"), "standing": rule["standing"]}


def find_memories(turns: Sequence[Turn], requests: Sequence[tuple[int, int, int]]) -> list[Extracted]:
    """Return what rules find in turns, which count from 1: what persons say of themselves, clause by clause; of
    the rest sentences worth keeping; of tools errors, identifiers and totals.

    `requests`: spans (turn, start, length) of requests to forget, which are no memories.
    """
    languages = [turn.language for turn in turns]
    asked = [(no, start, start + length) for no, start, length in requests]
    clauses = [
        clause
        for number, turn in enumerate(turns, 1)
        if turn.is_own
        for clause in read_clauses(turn.text, turn.language, number)
        if not any(no == number and start < clause.end and clause.span_start < end for no, start, end in asked)
    ]
    found = find_statements(clauses, languages, [turn.said_at for turn in turns])
    for language in sorted(set(languages)):
        more = []
        for number, turn in enumerate(turns, 1):
            if turn.role == "tool" or turn.language != language:
                continue
            taken = [(one.span_start, one.span_start + one.span_length) for one in found if one.text_no == number]
            taken += [(start, end) for no, start, end in asked if no == number]
            more += extract_sentences(without_spans(turn.text, taken), turn, number)
        found += more
    for number, turn in enumerate(turns, 1):
        if turn.role == "tool" and extraction_rules(turn.language):
            found += extract_tool_result(turn, number)
    return found


def without_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with spans (1-based, end excluded) blanked out: positions stay, and no sentence goes over a gap."""
    out, at = "", 1
    for start, end in sorted(spans):
        if end > start >= at:
            out += text[at - 1 : start - 1] + "\n" * (end - start)
            at = end
    return out + text[at - 1 :]
