"""Of whom and of what a clause speaks."""

from __future__ import annotations

from .data import choices
from .stated import Statement
from .text import first_group, has_words, search
from .values import stem


def subject_of(statement: Statement) -> str | None:
    """Return of whom a clause speaks: `self`, somebody near by their word ("sister"), None where it does not say."""
    language, text = statement.language, statement.plain
    if language != "english":
        own = choices(language, "possessives")
        return first_group(rf"^(?:(?:o|a|il|la) )?(?:{own}) ([[:alpha:]-]+)", text) if own else None
    if search("^(?:i|we) ", text):
        return "self"
    persons = choices(language, "persons")
    found = first_group(rf"^(?:my|our|his|her|their|the|[[:alpha:]]+'s) (?:[[:alpha:]-]+ )?({persons})\M", text)
    return found.lower() if found else None


def has_same_subject(unit: Statement, statement: Statement) -> bool:
    """Return whether both clauses say something of the same subject: "my classroom is", "my classroom was"."""
    subjects = [_subject_phrase(unit), _subject_phrase(statement)]
    return subjects[0] is not None and subjects[0] == subjects[1]


def _subject_phrase(statement: Statement) -> str | None:
    verbs, own = choices(statement.language, "subject_verbs"), choices(statement.language, "possessives")
    if verbs is None:
        return None
    starts = "my|our|the" + (f"|{own}" if own else "")
    found = first_group(
        rf"^(?:(?:o|a|il|la) )?(?:{starts}|[[:upper:]][[:alpha:]]+'s) ((?:[[:alpha:]-]+ ){{0,3}}?[[:alpha:]-]+)"
        rf" (?:{verbs})(?![[:alpha:]])",
        statement.plain,
    )
    return found.lower() if found else None


def is_of_another(unit: Statement, statement: Statement, language: str) -> bool:
    """Return whether a statement speaks of somebody else than the earlier one."""
    mine, theirs = subject_of(statement), subject_of(unit)
    # "We took our son out of Hillside" speaks of the son.
    if (
        mine
        and theirs
        and mine != theirs
        and not (mine == "self" and search(rf"\m(?:my|our) {theirs}\M", statement.plain))
    ):
        return True
    if language == "english":
        if theirs == "self" and search("^(?:she|he|they|her|his|their)\\M", statement.plain):
            return True
        # "Priya's flat is", "Callum left giffgaff", "Data team moved to".
        owner = first_group(
            "^([[:upper:]][[:alpha:]]+)(?:'s | (?:team )?(?:[[:alpha:]]+ed|left|quit|got|went|sold|gave) )",
            statement.plain,
            False,
        )
        if owner and stem(owner.lower(), language) in statement.content.stems:
            return not has_words(unit.said, owner) and search("^(?:i|we|my|our)\\M", unit.plain)
    return False
