"""Find experience in the steps of an agent: a way that failed and the one that then worked for the same goal, how known
ways went, and a person's corrections of how to work.

Only failures of a way count: a command that is not there, a wrong option, a missing service. A test that failed because
the code was wrong says nothing of the command that ran it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .work_steps import Request, Session, Step, read_session, words_of
from .work_words import COMMAND, CORRECTIONS, GOES_ON, JUDGES, PREPARES, REFUSES, SAYS_NOTHING, TELLS_OF_CODE

Json = dict[str, Any]

LONGEST_TRIGGER = 200
"""Characters of what was asked for."""
LONGEST_CORRECTION = 360
"""Characters of a person's message that corrects as a whole."""
LOOKED_BACK = 14
"""Steps between a failure and what then worked."""
MOST_HELPERS = 3


def have_same_goal(one: Step, other: Step) -> bool:
    """Do two steps try to reach the same? Edits of one file; commands of one kind, or about the same things."""
    if one.is_edit or other.is_edit:
        return one.is_edit and other.is_edit and one.text.split(" ")[-1] == other.text.split(" ")[-1]
    if one.goal and other.goal:
        return one.goal == other.goal
    about, others = words_of(one.about), words_of(other.about)
    commands = words_of(one.core), words_of(other.core)
    return any(
        len(mine & its) >= least and 2 * len(mine & its) >= min(len(mine), len(its))
        for mine, its, least in ((one.words, other.words, 2), (*commands, 2), (about, others, 1))
    )


def is_alike(one: Step, other: Step) -> bool:
    """Are two steps of one kind, or runs of one program?"""
    return bool(one.goal) and one.goal == other.goal or one.program == other.program


def takes_place(failed: Step, worked: Step, asked: frozenset[str]) -> bool:
    """Is what an agent did next, after a way was wrong, the other way? Where it has to do with what was asked for."""
    is_other = bool(failed.goal and worked.goal) and failed.goal != worked.goal
    is_preparing = worked.goal == "install" or bool(PREPARES.search(worked.core))
    return not (is_other or is_preparing or worked.is_edit) and bool((failed.words | asked) & worked.words)


def find_experience(turns: Sequence[Mapping[str, Any]], since: int) -> list[Json]:
    """Return what the turns of a session from `since` on teach, for _memoir.enter_experience: rows with type, trigger,
    way, succeeded, note, turn, sources and the memory to make. One that is_known says how a way went that may be known,
    with the request as its trigger if that took nothing else."""
    session = read_session(turns)
    found = [*_find_pairs(session, since), *_find_corrections(session, since)]
    wrong = {row["way"] for row in found if row["succeeded"] is False}
    for step in session.steps:
        is_sure = not step.has_failed or step.is_way_wrong
        is_way = not (step.is_look or step.is_edit or step.is_script)
        # What a person corrected did not work, whatever it printed.
        is_corrected = not step.has_failed and step.text in wrong
        if step.result_turn >= since and is_sure and is_way and not is_corrected:
            note = step.error if step.has_failed else ""
            asked, source = _asked_alone(session, step)
            found.append(_row("procedure", asked, step.text, not step.has_failed, note, step, [source], is_known=True))
    return found


def _asked_alone(session: Session, step: Step) -> tuple[str, int | None]:
    """Return the trigger of a step that is all that a person's request took, beside looks and failures, and the turn of
    the request; else nothing."""
    request = session.request_of(step.turn)
    if request is None or not request.is_person or step.has_failed or words_of(request.text) <= SAYS_NOTHING:
        return "", None
    ends = next((one.turn for one in session.requests if one.turn > request.turn), math.inf)
    others = (one for one in session.steps if request.turn < one.turn < ends and one.text != step.text)
    is_alone = all(one.is_look or one.has_failed for one in others)
    return (make_trigger(request.text, step.about, step), request.turn) if is_alone else ("", None)


def _row(
    kind: str, trigger: str, way: str, succeeded: bool | None, note: str, step: Step, sources: Sequence[int | None],
    is_known: bool = False,
) -> Json:  # fmt: skip
    files = re.findall(r"[\w./-]+\.\w{1,5}\b", way)[:5]
    return {
        "type": kind,
        "is_known": is_known,
        "trigger": trigger or None,
        "way": way,
        "succeeded": succeeded,
        "note": note or None,
        "turn": step.result_turn,
        "sources": [*dict.fromkeys(turn for turn in (*sources, step.turn, step.result_turn) if turn is not None)],
        "memory": {
            "content": f"{trigger}\n{way}",
            "type": kind,
            "provenance": "instruction" if kind == "lesson" else None,
            "importance": "normal",
            "actor": "agent",
            "aliases": [],
            "tags": [],
            "metadata": {"extracted_by": "steps 1"}
            | ({} if kind == "lesson" else {"commands": way.split("\n")} | ({"files": files} if files else {})),
        },
    }


def _find_pairs(session: Session, since: int) -> Iterator[Json]:
    """Failed ways with the one that then worked."""
    done: set[int] = set()
    for at, step in enumerate(session.steps):
        if step.has_failed or step.is_look or step.is_script or not step.result:
            continue
        before = range(max(0, at - LOOKED_BACK), at)
        failures = [n for n in before if n not in done and _is_answered(session, n, at)]
        if not failures:
            continue
        done.update(failures)
        helpers = _find_helpers(session.steps[failures[-1] + 1 : at], step)
        failed = {session.steps[n].text: session.steps[n] for n in failures if session.steps[n].text != step.text}
        if (not failed and not helpers) or step.result_turn < since:
            continue
        request = session.request_of(session.steps[failures[0]].turn)
        trigger = make_trigger(request.text if request else "", step.about or session.steps[failures[0]].about, step)
        asked = [request.turn if request else None]
        way = "\n".join([*helpers, step.text])
        yield _row("procedure", trigger, way, True, "", step, asked)
        for one in list(failed.values())[-3:]:
            if not one.is_script:
                yield _row("procedure", trigger, one.text, False, one.error, one, asked)


def _is_answered(session: Session, failure: int, success: int) -> bool:
    """Was a failure one of the way, and is the success another way to the same goal?"""
    failed, worked = session.steps[failure], session.steps[success]
    if not failed.has_failed or failed.is_look:
        return False
    between = session.steps[failure + 1 : success]
    request = session.request_of(failed.turn)
    if _is_all_it_took(session, failed, worked):
        return True
    # What helped first is no way where the same goal is reached after it, or reached more surely.
    coming = [step for step in session.steps[success + 1 : success + LOOKED_BACK] if not step.has_failed]
    if not is_alike(failed, worked) and any(
        is_alike(failed, step) for step in coming if session.request_of(step.turn) == request
    ):
        return False
    if not have_same_goal(failed, worked):
        is_next = failed.is_way_wrong and all(step.is_look or step.has_failed for step in between)
        is_next = is_next and not any(have_same_goal(failed, step) for step in coming)
        return is_next and takes_place(failed, worked, words_of(request.text[:400]) if request else frozenset())
    if failed.is_edit:
        return True
    has_edits = any(step.is_edit and not step.has_failed for step in between)
    is_other = failed.program != worked.program
    if failed.is_way_wrong:
        return not has_edits or is_other or bool(_find_helpers(between, worked))
    # Tests that fail, and others that pass, are no ways. What comes before the same command is, and so are other
    # arguments of what judges no code.
    tried, done = failed.core.split()[1:], worked.core.split()[1:]
    is_same = failed.text != worked.text and worked.text.endswith(failed.core)
    is_varied = failed.goal not in JUDGES and tried != done and 2 * len({*tried} & {*done}) >= len({*tried})
    return (is_other or is_same or is_varied) and not has_edits


def _is_all_it_took(session: Session, failed: Step, worked: Step) -> bool:
    """Is the success the only one of a person's request, beside looks, and about what was asked for? Not where the
    failure may tell of code."""
    asked, _ = _asked_alone(session, worked)
    request = session.request_of(worked.turn)
    if not asked or request is None or session.request_of(failed.turn) is not request:
        return False
    is_way = failed.is_way_wrong or failed.goal not in JUDGES or not TELLS_OF_CODE.search(failed.result)
    about = words_of(request.text[:400]) | failed.words
    return is_way and not PREPARES.search(worked.core) and bool(about & worked.words)


def _find_helpers(between: Sequence[Step], worked: Step) -> list[str]:
    """The steps in between that may have helped: installs, starts. Before an edit, the reading of its file."""
    if worked.is_edit:
        path = worked.text.split(" ")[-1]
        return [step.text for step in between if step.is_read and step.text.endswith(path)][-1:]
    helped = [
        step.text
        for step in between
        if not (step.has_failed or step.is_look or step.is_edit or step.is_script or is_alike(step, worked))
    ]
    return helped[-MOST_HELPERS:]


def make_trigger(request: str, about: str, step: Step | None = None) -> str:
    """Return when a way applies, on one line: what was asked for, and what the agent says that it did. Of a long
    request the sentence that has most to do with the step."""
    text = " ".join(re.sub(r"<[^>]{0,80}>", " ", request[:4000]).split())
    sentences = [text] if len(text) <= LONGEST_TRIGGER else re.split(r"(?<=[.!?:]) ", text)
    wanted = words_of(f"{about} {step.core if step else ''}")
    asked = max(sentences, key=lambda one: len(words_of(one) & wanted))[:LONGEST_TRIGGER]
    parts = [part.strip(" .?!") for part in (asked, about) if part.strip()]
    return "; ".join(parts) or (step.text if step else "")


def _find_corrections(session: Session, since: int) -> Iterator[Json]:
    """What a person says about how to work, while an agent works."""
    for request in session.requests:
        done = [step for step in session.steps if step.result_turn < request.turn]
        instead = _find_instead(session, request, done)
        is_told, is_shown = request.turn >= since, instead is not None and instead.result_turn >= since
        if not (is_told or is_shown) or not request.is_person or not done or len(request.text) > 2000:
            continue
        earlier = session.request_of(request.turn)
        place = Step(request.turn, request.turn, "", "", "", False, False)
        found = find_corrections(request.text)
        whole = " ".join(request.text.split())
        if not found and instead and len(whole) <= LONGEST_CORRECTION and _is_refused(request.text, done, instead):
            # The message alone was none: what the agent did next shows it.
            found, is_told = [(whole, whole)], is_shown
        for said, wrong in found:
            matching = [
                step
                for step in done[-8:]
                if not step.is_look and words_of(wrong) & step.words and not _names(request.text, step.core)
            ]
            last = matching[-1] if matching else None
            about = wrong if wrong != said else last.about if last else ""
            trigger = make_trigger(earlier.text if earlier else "", about)
            if is_told:
                yield _row("lesson", trigger, said, None, "", place, [])
            if is_told and last and not last.is_script:
                failed = _row("procedure", trigger, last.text, False, said[:160], last, [request.turn])
                yield failed | {"turn": request.turn}
            if instead and is_shown and instead.text not in request.text:
                yield _row("procedure", trigger, instead.text, not instead.has_failed, "", instead, [request.turn])


def _find_instead(session: Session, request: Request, done: Sequence[Step]) -> Step | None:
    """Return the first command after a person's message, if it has parts that the message names and the commands
    before lack: "proves nothing, let scons do it"."""
    before, said = " ".join(step.text for step in done[-8:]), request.text.lower()
    for step in session.steps:
        if step.turn < request.turn or step.is_look:
            continue
        if step.is_edit or step.is_script or session.request_of(step.turn) is not request:
            return None
        parts = {part.strip("./-\"'").lower() for part in re.split(r"[\s=/]", step.core)}
        return step if any(len(p) > 3 and p in said and p not in before.lower() for p in parts) else None
    return None


def _is_refused(text: str, done: Sequence[Step], instead: Step) -> bool:
    """Does a message say that a command was the wrong one: by a word, or since it speaks of that one and holds the
    next?"""
    if REFUSES.search(text):
        return True
    last = next((step for step in reversed(done) if not step.is_look), None)
    if last is None or GOES_ON.search(text) or not _names(text, instead.core):
        return False
    return bool(words_of(text) & (words_of(last.core) - words_of(instead.core)))


def _names(text: str, command: str) -> bool:
    """Does a text hold a command, and not another that only begins like it?"""
    return bool(re.search(re.escape(command) + r"(?![\w/=:-]| -| \w+=)", text))


def find_corrections(text: str) -> list[tuple[str, str]]:
    """Return the sentences of a text that say how to work instead, with what they say to leave; of a short text that
    refuses something and holds a command the whole, twice."""
    found: dict[str, str] = {}
    for pattern in CORRECTIONS:
        for match in pattern.finditer(text):
            said = " ".join(match[0].split()).strip(" ,;")
            if len(said) <= 400 and not any(said in other or other in said for other in found):
                found[said] = " ".join(match["wrong"].split())
    whole = " ".join(text.split())
    if not found and len(whole) <= LONGEST_CORRECTION and REFUSES.search(whole) and COMMAND.search(whole):
        found[whole] = whole
    return list(found.items())
