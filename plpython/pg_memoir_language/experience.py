"""Find experience in the steps of an agent: a way that failed and the one that then worked for the same goal, how known
ways went, and a person's corrections of how to work.

Only failures of a way count: a command that is not there, a wrong option, a missing service. A test that failed because
the code was wrong says nothing of the command that ran it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .work_words import (
    COMMAND,
    CORRECTIONS,
    FAILED,
    FINE,
    GOALS,
    GOES,
    JUDGES,
    LOOKS,
    PREPARES,
    REFUSES,
    SAYS_NOTHING,
    STOP_WORDS,
    TRIMMED,
    WAY_FAILED,
    WRAPPERS,
)

Json = dict[str, Any]

LONGEST_WAY = 600
"""Characters of a command. A longer one is a script written for once."""
LONGEST_CODE = 160
"""Characters of code on a command line that is more than a script."""
LONGEST_TRIGGER = 200
"""Characters of what was asked for."""
LONGEST_CORRECTION = 360
"""Characters of a person's message that corrects as a whole."""
LOOKED_BACK = 14
"""Steps between a failure and what then worked."""
MOST_HELPERS = 3
_COMMANDS = ("command", "cmd", "script")
_PATHS = ("file_path", "path", "filename", "notebook_path")
_EDITS = re.compile(r"edit|write|patch|replace|create", re.I)


@dataclass(frozen=True)
class Step:
    """A call of a tool with its result. `text`: the command, or the tool and its file. `about`: as the agent says."""

    turn: int
    result_turn: int
    text: str
    about: str
    result: str
    is_edit: bool
    is_read: bool

    @cached_property
    def has_failed(self) -> bool:
        if FINE.search(self.result[-400:]) and not FAILED.search(self.result[:200]):
            return False
        return bool(FAILED.search(self.result[:400]) or FAILED.search(self.result[-600:]))

    @cached_property
    def is_way_wrong(self) -> bool:
        """Did the way itself fail, and not what it was used on?"""
        return self.has_failed and bool(WAY_FAILED.search(self.result))

    @cached_property
    def core(self) -> str:
        """The last command of a chain, without what stands around it."""
        text = re.split(r"&&|;|\n", self.text)[-1].strip()
        while (shorter := WRAPPERS.sub("", text, count=1).strip()) != text:
            text = shorter
        return text

    @cached_property
    def goal(self) -> str:
        return next((name for name, pattern in GOALS if pattern.search(self.core)), "")

    @cached_property
    def words(self) -> frozenset[str]:
        return words_of(f"{self.core} {self.about}")

    @property
    def is_look(self) -> bool:
        """Does it only look at something?"""
        return self.is_read or bool(LOOKS.search(self.core) or LOOKS.search(self.text))

    @cached_property
    def is_script(self) -> bool:
        """Was it written for once?"""
        # Code on the command line is for once, but for a short one that works on a file of the project.
        code = re.search(r"\s-[ce]\s+(['\"].*)", self.text, re.S)
        is_code = code is not None and (len(code[1]) > LONGEST_CODE or not re.search(r"[\w-]/[\w./-]*\.\w", code[1]))
        return len(self.text) > LONGEST_WAY or "<<" in self.text or is_code

    @property
    def error(self) -> str:
        """The line of the result that says why it failed."""
        lines = [line.strip() for line in self.result.splitlines() if line.strip()]
        telling = [line for line in lines if WAY_FAILED.search(line)] or [line for line in lines if FAILED.search(line)]
        return (telling or lines or [""])[0][:160]


@dataclass(frozen=True)
class Request:
    """What a person asked for."""

    turn: int
    text: str
    is_person: bool = True


@dataclass
class Session:
    """The steps of a session in their order, and the requests between them."""

    steps: list[Step] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def request_of(self, turn: int) -> Request | None:
        return next((request for request in reversed(self.requests) if request.turn < turn), None)


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that tell what it is about, without endings."""
    found = re.findall(r"[^\W_]{3,}", text.lower())
    return frozenset(re.sub(r"(?:ing|ed|es|s)$", "", word) or word for word in found if word not in STOP_WORDS)


def read_session(turns: Sequence[Mapping[str, Any]]) -> Session:
    """Return the steps of turns: {"turn", "role", "text", "is_person", "call", "calls": [{"id", "name",
    "arguments"}]}."""
    session, calls = Session(), {}
    for turn in turns:
        if turn["role"] == "user":
            session.requests.append(Request(turn["turn"], str(turn.get("text") or ""), bool(turn.get("is_person"))))
        for call in turn.get("calls") or ():
            calls[call.get("id")] = turn["turn"], call
        if turn["role"] == "tool" and turn.get("call") in calls:
            at, call = calls[turn["call"]]
            if step := _read_step(at, turn["turn"], call, str(turn.get("text") or "")):
                session.steps.append(step)
    return session


def _read_step(turn: int, result_turn: int, call: Mapping[str, Any], result: str) -> Step | None:
    name = str(call.get("name") or "")
    arguments = _arguments(str(call.get("arguments") or ""))
    command = next((arguments[key] for key in _COMMANDS if arguments.get(key)), "")
    if isinstance(command, list):
        command = command[-1] if command and command[0] in ("bash", "sh", "zsh") else " ".join(map(str, command))
    path = next((str(arguments[key]) for key in _PATHS if arguments.get(key)), "")
    about = str(arguments.get("description") or "")[:200]
    if command:
        text = TRIMMED.sub("", GOES.sub("", str(command).strip())).strip()
        return Step(turn, result_turn, text, about, result, False, False)
    if path:
        is_edit = bool(_EDITS.search(name))
        return Step(turn, result_turn, f"{name} {path}", about, result, is_edit, not is_edit)
    return None


def _arguments(text: str) -> Json:
    """The arguments of a call. Where the text was cut, the first ones."""
    try:
        found = json.loads(text)
    except ValueError:
        found = dict(re.findall(r'"(\w+)": *"((?:[^"\\]|\\.){0,300})"', text[:2000]))
    return found if isinstance(found, dict) else {}


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
    return bool(one.goal) and one.goal == other.goal or one.core.split(" ")[0] == other.core.split(" ")[0]


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
    is_other = failed.core.split(" ")[0] != worked.core.split(" ")[0]
    if failed.is_way_wrong:
        return not has_edits or is_other or bool(_find_helpers(between, worked))
    # Tests that fail, and others that pass, are no ways. What comes before the same command is, and so are other options
    # of what judges no code.
    tried, done = failed.core.split(), worked.core.split()
    is_same = failed.text != worked.text and worked.text.endswith(failed.core)
    is_refined = failed.goal not in JUDGES and len(done) > len(tried) and {*_targets(tried)} <= {*done}
    return (is_other or is_same or is_refined) and not has_edits


def _targets(words: Sequence[str]) -> Iterator[str]:
    return (word for word in words if not word.startswith("-"))


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
        if request.turn < since or not request.is_person or not done or len(request.text) > 2000:
            continue
        for said, wrong in find_corrections(request.text):
            matching = [
                step
                for step in done[-8:]
                if not step.is_look and words_of(wrong) & step.words and not _names(request.text, step.core)
            ]
            last = matching[-1] if matching else None
            earlier = session.request_of(request.turn)
            about = wrong if wrong != said else last.about if last else ""
            trigger = make_trigger(earlier.text if earlier else "", about)
            place = Step(request.turn, request.turn, "", "", "", False, False)
            yield _row("lesson", trigger, said, None, "", place, [])
            if last and not last.is_script:
                failed = _row("procedure", trigger, last.text, False, said[:160], last, [request.turn])
                yield failed | {"turn": request.turn}


def _names(text: str, command: str) -> bool:
    """Does a text hold a command, and not another that only begins like it?"""
    return bool(re.search(re.escape(command) + r"(?![\w/=:-]| -)", text))


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
