"""Read the turns of an agent as steps: its commands and edits with their results, and what persons asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .work_words import FAILED, FINE, GOALS, GOES, LOOKS, STOP_WORDS, TRIMMED, WAY_FAILED, WRAPPERS

LONGEST_WAY = 600
"""Characters of a command. A longer one is a script written for once."""
LONGEST_CODE = 160
"""Characters of code on a command line that is more than a script."""
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
    def program(self) -> str:
        """The command's name, or that of the file that an interpreter runs."""
        words = self.core.split()
        is_run = len(words) > 1 and words[0] in ("python", "python3", "bash", "sh", "node", "ruby", "Rscript", "julia")
        return words[is_run] if words else ""

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
        # Code on the command line is for once, but for short code that works on a file, or that an option -e gives.
        code = re.search(r"\s-([ce])\s+(['\"].*)", self.text, re.S)
        is_code = code is not None and (len(code[2]) > LONGEST_CODE or code[1] == "c" and "/" not in code[2])
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


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call. Where the text was cut, the first ones."""
    try:
        found = json.loads(text)
    except ValueError:
        found = dict(re.findall(r'"(\w+)": *"((?:[^"\\]|\\.){0,300})"', text[:2000]))
    return found if isinstance(found, dict) else {}
