#!/usr/bin/env python3
"""Checks the order of sql/: what calls what, as the table of contents (sql/contents.sql) promises it.

An area is a folder of sql/. Found is: a file that the table of contents lacks, a call from an area to one below it,
files that call each other in a circle, a function of more than 120 lines. Calls are found by their qualified name,
`memoir.name(` or `_memoir.name(`, wherever it stands but in comments; a step that a job calls by a name in a table is
no call. Exits with 1 when there is anything to say.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

LONGEST = 120
INCLUDE = re.compile(r"^\s*\\ir\s+(\S+)", re.MULTILINE)
LINES = re.MULTILINE | re.IGNORECASE
DEFINITION = re.compile(r"^create\s+(?:or\s+replace\s+)?(?:function|procedure)\s+(_?memoir\.\w+)\s*\(", LINES)
REMARK = re.compile(r"^comment\s+on\s.*?;\s*$", LINES | re.DOTALL)
CALL = re.compile(r"(?<![\w.])(_?memoir\.\w+)\s*\(")
QUOTE = re.compile(r"\$\w*\$")
COMMENT = re.compile(r"--[^\n]*")


@dataclass
class Function:
    """One definition; a name that is defined twice (by its arguments) is two of them."""

    name: str
    file: str
    line: int
    lines: int
    calls: set[str]


@dataclass
class Code:
    """All of sql/: its files in the order of the table of contents, and what each of them calls."""

    files: list[str]
    unlisted: list[str]
    functions: list[Function] = field(default_factory=list)
    # Per file: what is called outside of functions, by views, policies and triggers.
    loose: dict[str, set[str]] = field(default_factory=dict)

    def homes(self) -> dict[str, str]:
        return {function.name: function.file for function in self.functions}

    def calls(self) -> Iterator[tuple[str, str, str]]:
        """(caller, its file, callee) of all calls of our own functions."""
        for function in self.functions:
            for callee in sorted(function.calls - {function.name}):
                yield function.name, function.file, callee
        for file, callees in self.loose.items():
            for callee in sorted(callees):
                yield f"the views and triggers of {file}", file, callee


def end_of(text: str, start: int) -> int:
    """Where the statement that starts there ends: behind the first semicolon outside its body."""
    semicolon = text.find(";", start)
    quote = QUOTE.search(text, start)
    if quote and quote.start() < semicolon:
        semicolon = text.find(";", text.index(quote.group(), quote.end()))
    return (semicolon if semicolon >= 0 else len(text) - 1) + 1


def read_file(name: str, text: str) -> tuple[list[Function], set[str]]:
    """The functions of a file, and what is called outside of them."""
    functions, rest, at = [], [], 0
    for match in DEFINITION.finditer(text):
        end = end_of(text, match.start())
        calls = set(CALL.findall(COMMENT.sub("", text[match.end() : end])))
        line = text.count("\n", 0, match.start()) + 1
        functions.append(Function(match[1], name, line, text.count("\n", match.start(), end) + 1, calls))
        rest.append(text[at : match.start()])
        at = end
    rest.append(text[at:])
    loose = REMARK.sub("", COMMENT.sub("", "".join(rest)))
    # A hint in a message tells a person what to call.
    return functions, set(CALL.findall(re.sub(r"\bhint\s*=\s*'[^']*'", "", loose)))


def read(folder: Path) -> Code:
    contents = folder / "contents.sql"
    files = INCLUDE.findall(contents.read_text())
    there = {str(path.relative_to(folder)) for path in folder.rglob("*.sql") if path != contents}
    code = Code(files, sorted(there - set(files)))
    for name in files:
        functions, code.loose[name] = read_file(name, (folder / name).read_text())
        code.functions += functions
    return code


def area(file: str) -> str:
    return file.rpartition("/")[0] or file


def upward_calls(code: Code) -> list[str]:
    """Calls of what stands in an area below the caller's."""
    place = {name: number for number, name in enumerate(dict.fromkeys(map(area, code.files)))}
    homes = code.homes()
    return [
        f"{caller} ({file}) calls {callee} ({homes[callee]}), which stands in a later area"
        for caller, file, callee in code.calls()
        if callee in homes and place[area(homes[callee])] > place[area(file)]
    ]


def circles(code: Code) -> list[str]:
    """Files that call each other in a circle; one is named, even if there are more."""
    homes = code.homes()
    calls = [(caller, file, callee, homes[callee]) for caller, file, callee in code.calls() if callee in homes]
    sorter = TopologicalSorter[str]()
    for _, file, _, home in calls:
        sorter.add(file, *({home} - {file}))
    try:
        sorter.prepare()
    except CycleError as error:
        ring: list[str] = error.args[1][::-1]
        steps = set(zip(ring, ring[1:]))
        why = [f"\n    {file} needs {of}: {by} calls {callee}" for by, file, callee, of in calls if (file, of) in steps]
        return ["files call each other in a circle:" + "".join(why)]
    return []


def problems(code: Code) -> list[str]:
    unlisted = [f"sql/{name} is not in sql/contents.sql" for name in code.unlisted]
    long = [f for f in sorted(code.functions, key=lambda f: -f.lines) if f.lines > LONGEST]
    too_long = [f"{f.name} (sql/{f.file}:{f.line}) has {f.lines} lines, more than {LONGEST}" for f in long]
    return [*unlisted, *upward_calls(code), *circles(code), *too_long]


if __name__ == "__main__":
    sql = read(Path(__file__).resolve().parents[1] / "sql")
    found = problems(sql)
    print(f"{len(sql.functions)} functions in {len(sql.files)} files", *found, sep="\n")
    sys.exit(bool(found))
