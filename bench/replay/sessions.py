"""Coding-agent sessions: generated ones with planted facts, and recorded transcripts of Claude Code.

Both are lists of messages in the OpenAI shape; a model is called before each assistant message.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Message = dict[str, Any]

WORDS = (
    "account adapter archive batch billing branch bucket budget buffer cache channel checksum client cluster codec column "
    "commit config cursor customer daemon digest dispatch driver entry event export feature field filter folder frame "
    "gateway graph group handler header history import index invoice journal kernel label layer ledger limit locale lock "
    "mailbox manifest marker matrix merge message metric mirror module monitor node notice offset order packet page parcel "
    "parser partition patch payload pipeline policy pool port profile queue quota ranker record refund region registry "
    "relay render replica report request retry route sample schema scope segment sensor session shard shipment signal slot "
    "snapshot socket source stage status stream tenant ticket token topic tracker transfer trigger upload vault vector "
    "version voucher warehouse window worker zone"
).split()
FOLDERS = ("src", "lib", "services", "internal", "packages", "app")


@dataclass(frozen=True)
class Plant:
    """A fact that stands in one tool result only: in which step, how it is asked for, what the answer must hold."""

    step: int
    question: str
    answer: str


@dataclass
class Session:
    name: str
    messages: list[Message]
    plants: list[Plant] = field(default_factory=list)
    pauses: dict[int, float] = field(default_factory=dict)  # seconds before the call for that message, where not a few

    def calls(self) -> Iterator[int]:
        """The indexes of the messages that a model wrote."""
        return (at for at, message in enumerate(self.messages) if message["role"] == "assistant")


class Generator:
    """One session of a coding agent, after a seed. Each phase is a matter in one module: look, change, test, mend."""

    def __init__(self, steps: int, seed: int, tokens: int = 900) -> None:
        self.random = random.Random(f"{steps}/{seed}")
        self.steps = steps
        self.lines = max(8, tokens // 13)  # of a common result
        self.session = Session(f"{steps} steps, seed {seed}", [])
        self.step = 0
        self.call_no = 0
        self.names: set[str] = set()
        self.numbers: set[int] = set()
        self.files: dict[str, list[str]] = {}
        self.read_at: dict[str, int] = {}
        self.plant_every = max(4, steps // 40)

    # Words ------------------------------------------------------------------------------------------------------------

    def word(self) -> str:
        return self.random.choice(WORDS)

    def name(self) -> str:
        """One that stands nowhere else, so that who uses it knows it from where it stands."""
        while True:
            words = [self.word() for _ in range(3)]
            style = self.random.random()
            name = "_".join(words) if style < 0.6 else words[0] + "".join(word.title() for word in words[1:])
            if name not in self.names:
                self.names.add(name)
                return name

    def number(self) -> int:
        """One that stands nowhere else, like names."""
        while (number := self.random.randrange(10_000, 10_000_000)) in self.numbers:
            pass
        self.numbers.add(number)
        return number

    def path(self, module: str) -> str:
        end = self.random.choice(("py", "py", "ts", "go", "sql"))
        return f"{self.random.choice(FOLDERS)}/{module}/{self.name()}.{end}"

    def code(self, lines: int) -> list[str]:
        out = [f"import {self.word()}", f"from {self.word()}.{self.word()} import {self.name()}", ""]
        while len(out) < lines:
            out.append(f"def {self.name()}({self.name()}, {self.word()}=None):")
            for _ in range(self.random.randrange(3, 12)):
                out.append("    " + self.statement())
            out.append(f"    return {self.name()}\n")
        return out[:lines]

    def statement(self) -> str:
        name, other = self.name(), self.name()
        return self.random.choice(
            (
                f"{name} = {other}({self.word()}, {self.number()})",
                f"if {name}.{self.word()} > {self.number()}: raise ValueError('{name} {self.word()}')",
                f"for {self.word()} in {name}: {other}.append({self.word()})",
                f"{name} = {{'{self.word()}': {self.number()}, '{self.word()}': '{self.word()}'}}",
                f"log.info('{name} %s', {other})",
                f"# {self.word()} {self.word()} before the {self.word()} is {self.word()}",
            )
        )

    def log(self, lines: int, failed: bool) -> str:
        out = [
            f"2026-03-{self.random.randrange(10, 28)} 1{n % 10}:{self.random.randrange(10, 59)}:0{n % 10} "
            f"{self.random.choice(('INFO', 'INFO', 'DEBUG', 'WARN'))} {self.word()}.{self.word()}: {self.word()} "
            f"{self.number()} {self.word()} {self.word()} in {self.number()} ms"
            for n in range(lines)
        ]
        if failed:
            at = self.random.randrange(len(out) // 2, len(out))
            path = self.random.choice(list(self.files)) if self.files else "src/main.py"
            out[at:at] = [
                "Traceback (most recent call last):",
                f'  File "{path}", line {self.number()}, in {self.name()}',
                f"{self.word().title()}Error: {self.word()} {self.word()} of {self.name()} is {self.number()}",
            ]
            out.append(f"FAILED tests/test_{self.word()}.py::test_{self.name()} - {self.random.randrange(1, 5)} failed")
        return "\n".join(out)

    # Steps ------------------------------------------------------------------------------------------------------------

    def call(self, tool: str, **arguments: Any) -> Message:
        self.call_no += 1
        return {
            "id": f"call_{self.call_no}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }

    def act(self, calls: list[Message], results: list[str], text: str = "") -> None:
        """One step: what the assistant says and calls, and the results, one of which may hold a planted fact."""
        if self.step % self.plant_every == self.plant_every // 2:
            results[0] = self.planted(results[0])
        self.session.messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
        for call, result in zip(calls, results, strict=True):
            self.session.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        self.step += 1

    def planted(self, result: str) -> str:
        thing, what = f"{self.word()} {self.word()}", f"{self.word()}-{self.word()}"
        value = f"{self.word()[:3].upper()}-{self.random.randrange(10000, 99999)}"
        line, question = self.random.choice(
            (
                (f"# the {thing} of {what} is {value}", f"What is the {thing} of {what}?"),
                (f"note: {what} uses {value} as its {thing}", f"Which {thing} does {what} use?"),
                (f"WARN {what}: {thing} was set to {value}", f"To what was the {thing} of {what} set?"),
            )
        )
        lines = result.split("\n")
        lines.insert(self.random.randrange(len(lines) // 5, len(lines) + 1), line)
        self.session.plants.append(Plant(self.step, question, value))
        return "\n".join(lines)

    def size(self) -> int:
        """Lines of a result: most are short, a few are long."""
        return max(4, int(self.lines * self.random.lognormvariate(-0.35, 0.85)))

    def file(self, module: str) -> str:
        path = self.path(module)
        self.files[path] = self.code(self.size())
        return path

    def numbered(self, path: str) -> str:
        return "\n".join(f"{n:6}\t{line}" for n, line in enumerate(self.files[path], 1))

    def read(self, paths: list[str]) -> None:
        self.act([self.call("Read", file_path=path) for path in paths], [self.numbered(path) for path in paths])
        for path in paths:
            self.read_at[path] = self.step

    def edit(self, path: str) -> None:
        """Quotes lines that were read a few steps ago, and uses their names; what lies further back is read again, as agents do."""
        if self.step - self.read_at.get(path, -99) > 5 and self.random.random() < 0.98:
            self.read([path])
        lines = self.files[path]
        at = self.random.randrange(0, max(1, len(lines) - 3))
        known = re.findall(r"[a-z]+(?:_[a-z]+)+", lines[at]) or [self.name()]
        added = f"    {self.random.choice(known)}.{self.word()}({self.word()}={self.number()})"
        old, new = lines[at : at + 3], [lines[at], added, *lines[at + 1 : at + 3]]
        lines[at : at + 3] = new
        call = self.call("Edit", file_path=path, old_string="\n".join(old), new_string="\n".join(new))
        self.act([call], [f"The file {path} has been updated."])

    def grep(self, module: str, paths: list[str]) -> None:
        """Finds all of these files, some more than once: from it the agent knows them."""
        hits = [
            f"{path}:{self.number()}:    {self.statement()}"
            for path in [*paths, *self.random.choices(paths, k=max(1, self.size() // 2 - len(paths)))]
        ]
        self.act([self.call("Grep", pattern=self.name(), path=f"src/{module}")], ["\n".join(hits)])

    def bash(self, tests: str, failed: bool) -> None:
        self.act([self.call("Bash", command=f"pytest -q {tests}")], [self.log(self.size(), failed)])

    def small(self) -> None:
        command, result = self.random.choice(
            (
                ("git status", "On branch main\nnothing to commit, working tree clean"),
                ("ls", "README.md\nsrc\ntests"),
                ("git add -A", ""),
                ("make format", "12 files left unchanged"),
            )
        )
        self.act([self.call("Bash", command=command)], [result])

    def write(self, module: str) -> None:
        path = self.file(module)
        call = self.call("Write", file_path=path, content="\n".join(self.files[path]))
        self.act([call], [f"File created: {path}"], f"Now the {self.word()} {self.word()}.")
        self.read_at[path] = self.step

    def fetch(self) -> None:
        url = f"https://docs.{self.word()}.dev/{self.word()}/{self.name()}"
        prose = " ".join(
            f"The {self.word()} {self.word()} {self.random.choice(('keeps', 'sends', 'drops', 'holds'))} each {self.word()} "
            f"of the {self.word()} until {self.number()} {self.word()}s are there."
            for _ in range(self.size() // 2)
        )
        self.act([self.call("WebFetch", url=url, prompt="How is it used?")], [prose])

    def phase(self) -> None:
        """A matter in one module."""
        module, end = self.word(), self.step + self.random.randrange(18, 40)
        paths = [self.file(module) for _ in range(self.random.randrange(3, 6))]
        tests = f"tests/test_{self.name()}.py"
        self.grep(module, paths)
        kinds: list[tuple[int, Callable[[], None]]] = [
            (3, lambda: self.read([self.random.choice(paths)])),
            (2, lambda: self.read(self.random.sample(paths, self.random.randrange(2, len(paths))))),
            (4, lambda: self.edit(self.random.choice(paths))),
            (3, lambda: self.bash(tests, failed=self.random.random() < 0.5)),
            (2, lambda: self.grep(module, paths)),
            (2, self.small),
            (1, lambda: self.write(module)),
            (1, self.fetch),
        ]
        while self.step < min(end, self.steps):
            self.random.choices([act for _, act in kinds], [weight for weight, _ in kinds])[0]()

    def user(self) -> None:
        messages = self.session.messages
        if messages:
            messages.append(
                {"role": "assistant", "content": f"Done: the {self.word()} {self.word()} works, tests pass."}
            )
        if messages and self.random.random() < 0.4:
            self.session.pauses[len(messages) + 1] = self.random.choice((400.0, 1200.0, 5000.0))
        messages.append(
            {
                "role": "user",
                "content": f"Please make the {self.word()} {self.word()} of {self.name()} {self.word()} its {self.word()}"
                f" {self.word()}, add tests and keep {self.name()} as it is.",
            }
        )

    def make(self) -> Session:
        self.user()
        while self.step < self.steps:
            self.phase()
            if self.step < self.steps and self.random.random() < 0.35:
                self.user()
        self.session.messages.append({"role": "assistant", "content": "All done."})
        return self.session


def generated(steps: int, seed: int, tokens: int = 900) -> Session:
    return Generator(steps, seed, tokens).make()


# Recorded ---------------------------------------------------------------------------------------------------------------


def recorded(folder: Path) -> list[Session]:
    """Transcripts of Claude Code (one JSON object a line) of a folder, as `pg-memoir import` reads them."""
    from pg_memoir_cli.formats import read_conversations

    sessions = []
    for path in sorted(folder.glob("*.jsonl")):
        for conversation in read_conversations(path, user="replay").conversations:
            if isinstance(conversation, Exception):
                raise conversation
            messages = [
                {key: message[key] for key in ("role", "content", "tool_calls", "tool_call_id") if key in message}
                for message in conversation.messages
            ]
            sessions.append(Session(path.stem, messages))
    return sessions
