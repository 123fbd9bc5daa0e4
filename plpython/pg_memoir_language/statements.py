"""Find what people say of themselves that lasts: home, work, names, health, wishes. Rules read clauses in the plain
form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

from . import data
from .asked import read_asked
from .data import choices
from .languages import spoken_language
from .memories import Extracted, Rule, word_memory
from .patterns import Pattern, compile_pattern
from .relations import read_relation
from .text import (
    Clause,
    Sentence,
    bare,
    has_phrase,
    pad,
    plain,
    replace_all,
    replace_first,
    search,
    split_clauses,
    without_preamble,
)

LONGEST_PLAIN = 400


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
    return text != "" and search(choices(language, "supposed", "reported", "sarcasm"), without_month_of_may(text))


def without_month_of_may(text: str) -> str:
    """Return a text in which the month of May can't be taken for the verb."""
    return replace_all(
        r"(\d(?:st|nd|rd|th)?(?: of)?|\m(?:of|in|early|mid|late|until|till|by|since|this|next|last)) May\M"
        r"|\mMay(?= \d)",
        r"\1 May_",
        text,
        False,
    )


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


def clauses_to_state(clauses: Sequence[Clause], language: str) -> list[Clause]:
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
        rows = clauses_to_state([c for c in clauses if languages[c.text_no - 1] == language], language)
        rows, asked = _without_frames(rows, language)
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
            found.append(state_clause(row, said_now, rule, said[row.text_no - 1], language))
        # What somebody asks to remember is remembered, whatever it is.
        for row in asked:
            if not any(no == row.text_no and start < row.end and row.span_start < end for no, start, end in taken):
                found.append(state_clause(row, row.said, ASKED, said[row.text_no - 1], language))
    return found


ASKED: Rule = {
    "name": "asked to remember",
    "type": "fact",
    "category": "fact",
    "importance": "important",
    "standing": True,
}


def _without_frames(rows: Sequence[Clause], language: str) -> tuple[list[Clause], list[Clause]]:
    """Return clauses, of requests to remember or to update the contents; and these contents alone."""
    asked: dict[tuple[int, int], list[Clause]] = {}
    for row in rows:
        request = read_asked(row.sentence, language) if row.clause_no == 0 else None
        if request:
            parts = [(1, len(request.content), request.content, False)]
            if request.start is not None:
                parts = split_clauses(request.content, language)
            first = row.span_start + (request.start or 0)
            asked[row.text_no, row.sentence_start] = [
                replace(
                    row, clause_no=number, said=part, sentence=request.content, inherits=inherits,
                    is_last=number == len(parts), plain=plain(part, language),
                    span_start=row.span_start if request.start is None else first + start - 1,
                    span_length=row.span_length if request.start is None else length,
                )
                for number, (start, length, part, inherits) in enumerate(parts, 1)
            ]  # fmt: skip
    if not asked:
        return list(rows), []
    others = [row for row in rows if (row.text_no, row.sentence_start) not in asked]
    contents = [row for parts in asked.values() for row in parts]
    return [*others, *contents], contents


def state_clause(row: Clause, said: str, rule: Rule, said_at: datetime, language: str) -> Extracted:
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


def in_first_person(text: str) -> str:
    """Return what is said of the user as the user would say it: "The user's name is Ida" as "My name is Ida"."""
    text = replace_first("^(?:the )?user's (?=[[:alpha:]])", "My ", text)
    text = replace_first("^(?:the )?user(?: |: )", "I ", text)
    verbs = "^(?:Lives|Works|Drives|Speaks|Prefers|Reports|Is|Has|Wears|Takes|Goes|Earns|Weighs|Drinks) "
    if search(verbs, text, False):
        text = f"I {text[:1].lower()}{text[1:]}"
    for third, first in (("is", "am"), ("has", "have"), ("goes", "go")):
        text = replace_first(rf"^I {third}\M", f"I {first}", text, False)
    return text


def read_statement(content: str) -> dict[str, Any] | None:
    """Return slot, value and standing of what is remembered without a slot, said by or of the user: "Lives in Ulm",
    "The user's name is Ida"; else of something that has one value at a time (read_relation). None where it tells
    none."""
    if len(content) > 300:
        return None
    found = read_own_statement(content)
    if found is None:
        relation = read_relation(content)
        found = {"slot": relation.slot, "value": relation.value, "standing": False} if relation else None
    return found


def read_own_statement(content: str) -> dict[str, Any] | None:
    """Return the same of what the user says of themselves."""
    language = spoken_language(content)
    text = plain(content, language)
    if language == "english":
        text = in_first_person(text)
    if len(split_clauses(text, language)) > 1 or is_supposed(text, language):
        return None
    own = "^(?:I|We|My|Our|i|we|my|our|Ich|Mein|Vivo|Mi|J|Mon|Ma|Moro|O meu|A minha|Abito|Il mio|La mia)"
    if not search(own, text, False):
        return None
    rule = match_statement(text, False, language, True)
    if rule is None:
        return None
    return {"slot": rule.get("slot"), "value": rule.get("value"), "standing": rule["standing"]}
