"""Anthropic's memory tool (memory_20250818): the model's files lie in PostgreSQL, as documents of a user.

    tool = MemoirMemoryTool(memoir, user="alice")
    runner = client.beta.messages.tool_runner(
        model="claude-sonnet-4-6", max_tokens=1000, messages=messages, tools=[tool]
    )

What the tool answers is what models were trained on, word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool
from pg_memoir import AsyncMemoir, Memoir
from pg_memoir.call import Call
from pg_memoir.errors import ChangedElsewhereError
from pg_memoir.functions import calls
from pg_memoir.texts import replace_unstorable

from .running import ATTEMPTS

ROOT = "memories"
_LINES = 999_999
_FILES = 10_000
_BUSY = "Other processes keep changing this file. Please try again."

Work = Generator[Call[Any], Any, str]
Path = tuple[str, ...]


class _Files:
    """The commands, over documents: a file's folders are its namespace, its name the key. A folder is there while a
    file is in it. A command whose file another process changed meanwhile is run again from its start."""

    def __init__(self, user: str) -> None:
        self.user = user

    def view(self, command: Any) -> Work:
        path = _path(command.path)
        text = yield from self._read(path)
        if text is None:
            return (yield from self._list_files(path, command.path))
        lines = text.split("\n")
        if len(lines) > _LINES:
            raise ToolError(f"File {command.path} exceeds maximum line limit of 999,999 lines.")
        first, last = 1, len(lines)
        if command.view_range and len(command.view_range) == 2:
            first, end = max(1, command.view_range[0]), command.view_range[1]
            last = last if end == -1 else end
        shown = "\n".join(_number_lines(lines[first - 1 : last], first))
        return f"Here's the content of {command.path} with line numbers:\n{shown}"

    def _list_files(self, path: Path, shown: str) -> Generator[Call[Any], Any, str]:
        files = yield from self._below(path)
        if not files and path != (ROOT,):
            raise ToolError(f"The path {shown} does not exist. Please provide a valid path.")
        sizes: dict[Path, int] = {}
        folders: set[Path] = set()
        for file, text in files.items():
            inside = file[len(path) :]
            if any(label.startswith(".") for label in inside):
                continue
            for depth in range(1, min(len(inside), 2) + 1):
                sizes[inside[:depth]] = sizes.get(inside[:depth], 0) + len(text.encode())
                if depth < len(inside):
                    folders.add(inside[:depth])
        lines = [f"{_size(sum(len(text.encode()) for text in files.values()))}\t{shown}"]
        for inside in sorted(sizes):
            lines.append(f"{_size(sizes[inside])}\t{shown}/{'/'.join(inside)}{'/' if inside in folders else ''}")
        header = f"Here're the files and directories up to 2 levels deep in {shown}, excluding hidden items:"
        return "\n".join([header, *lines])

    def create(self, command: Any) -> Work:
        path = _path(command.path)
        if (yield from self._read(path)) is not None or (yield from self._below(path)) or path == (ROOT,):
            raise ToolError(f"File {command.path} already exists")
        yield from self._write([_entry(path, command.file_text, exists=False)])
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: Any) -> Work:
        path, text = yield from self._file(command.path)
        count = text.count(command.old_str) if command.old_str else 0
        if count == 0:
            raise ToolError(
                f"No replacement was performed, old_str `{command.old_str}` did not appear verbatim in {command.path}."
            )
        if count > 1:
            places, at = [], text.find(command.old_str)
            while at >= 0:
                places.append(text.count("\n", 0, at) + 1)
                at = text.find(command.old_str, at + 1)
            raise ToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{command.old_str}` in lines: "
                f"{', '.join(map(str, places))}. Please ensure it is unique"
            )
        at = text.count("\n", 0, text.find(command.old_str))
        before, text = text, text.replace(command.old_str, command.new_str or "")
        yield from self._write([_entry(path, text, was=before)])
        first = max(0, at - 2)
        shown = "\n".join(_number_lines(text.split("\n")[first : at + 3], first + 1))
        return f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{shown}"

    def insert(self, command: Any) -> Work:
        path, text = yield from self._file(command.path)
        lines = text.splitlines()
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(
                f"Invalid `insert_line` parameter: {command.insert_line}. "
                f"It should be within the range [0, {len(lines)}]."
            )
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        before, text = text, "\n".join(lines)
        yield from self._write([_entry(path, text if text.endswith("\n") else text + "\n", was=before)])
        return f"The file {command.path} has been edited."

    def delete(self, command: Any) -> Work:
        path = _path(command.path)
        if path == (ROOT,):
            raise ToolError("Cannot delete the /memories directory itself")
        gone = yield from self._at(path)
        if not gone:
            raise ToolError(f"The path {command.path} does not exist")
        yield from self._write([_entry(file, None) for file in gone])
        return f"Successfully deleted {command.path}"

    def rename(self, command: Any) -> Work:
        old, new = _path(command.old_path), _path(command.new_path)
        if new == (ROOT,) or (yield from self._at(new)):
            raise ToolError(f"The destination {command.new_path} already exists")
        moved = yield from self._at(old)
        if not moved or old == (ROOT,):
            raise ToolError(f"The path {command.old_path} does not exist")
        if new[: len(old)] == old:
            raise ToolError(f"Cannot move {command.old_path} into itself")
        yield from self._write(
            [_entry(file, None, was=text) for file, text in moved.items()]
            + [_entry(new + file[len(old) :], text, exists=False) for file, text in moved.items()]
        )
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def clear_all_memory(self) -> Work:
        yield from self._write([_entry(file, None) for file in (yield from self._below((ROOT,)))])
        return "All memory cleared"

    def _file(self, shown: str) -> Generator[Call[Any], Any, tuple[Path, str]]:
        path = _path(shown)
        text = yield from self._read(path)
        if text is not None:
            return path, text
        if path == (ROOT,) or (yield from self._below(path)):
            raise ToolError(f"The path {shown} is not a file.")
        raise ToolError(f"The path {shown} does not exist. Please provide a valid path.")

    def _read(self, path: Path) -> Generator[Call[Any], Any, str | None]:
        if path == (ROOT,):
            return None
        found = yield calls.get_documents(self.user, path[:-1], path[-1:])
        return found[0].value["text"] if found else None

    def _below(self, path: Path) -> Generator[Call[Any], Any, dict[Path, str]]:
        """The files of a folder and of those in it."""
        found = yield calls.search_documents(self.user, path, limit=_FILES)
        return {(*each.namespace, each.key): each.value["text"] for each in found}

    def _at(self, path: Path) -> Generator[Call[Any], Any, dict[Path, str]]:
        """A file, or the files of a folder."""
        text = yield from self._read(path)
        if text is not None:
            return {path: text}
        return (yield from self._below(path))

    def _write(self, entries: list[dict[str, Any]]) -> Generator[Call[Any], Any, None]:
        """Writes all entries or none."""
        if entries:
            yield calls.put_documents(self.user, entries)


def _entry(path: Path, text: str | None, *, was: str | None = None, exists: bool | None = None) -> dict[str, Any]:
    """An entry that writes a file, or deletes it without a text. `was`: the text that it must still have."""
    entry = {"namespace": list(path[:-1]), "key": path[-1], "value": None if text is None else {"text": text}}
    return entry | {"was": None if was is None else {"text": was}, "exists": exists}


def _path(shown: str) -> Path:
    """A path's labels. Nothing leads out of /memories."""
    if not shown.startswith("/" + ROOT) or shown[len(ROOT) + 1 : len(ROOT) + 2] not in ("", "/"):
        raise ToolError(f"Path must start with /memories, got: {shown}")
    labels: list[str] = []
    for label in shown[len(ROOT) + 1 :].split("/"):
        if label == "..":
            if not labels:
                raise ToolError(f"Path {shown} would escape /memories directory")
            labels.pop()
        elif label not in ("", "."):
            labels.append(label)
    return (ROOT, *labels)


def _storable(command: Any) -> Any:
    """A command whose texts can be stored, and sent to the model again."""
    return command and command.model_copy(update=replace_unstorable(command.model_dump()))


def _number_lines(lines: list[str], first: int) -> list[str]:
    return [f"{number:6}\t{line}" for number, line in enumerate(lines, first)]


def _size(octets: int) -> str:
    """As `ls -h` has it: 1.5K."""
    size, units = float(octets), ["B", "K", "M", "G"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.1f}".removesuffix(".0") + units[0]


class MemoirMemoryTool(BetaAbstractMemoryTool):
    """The memory tool over a user's documents, for sync clients."""

    def __init__(self, memoir: Memoir, user: str, **options: Any) -> None:
        super().__init__(**options)
        self.memoir, self.files = memoir, _Files(user)

    def _done(self, method: Callable[[Any], Work], command: Any) -> str:
        command = _storable(command)
        for _ in range(ATTEMPTS):
            work = method(command)
            answer: Any = None
            try:
                while True:
                    answer = self.memoir.run(work.send(answer))
            except StopIteration as end:
                return str(end.value)
            except ChangedElsewhereError:
                continue
        raise ToolError(_BUSY)

    def view(self, command: Any) -> str:
        return self._done(self.files.view, command)

    def create(self, command: Any) -> str:
        return self._done(self.files.create, command)

    def str_replace(self, command: Any) -> str:
        return self._done(self.files.str_replace, command)

    def insert(self, command: Any) -> str:
        return self._done(self.files.insert, command)

    def delete(self, command: Any) -> str:
        return self._done(self.files.delete, command)

    def rename(self, command: Any) -> str:
        return self._done(self.files.rename, command)

    def clear_all_memory(self) -> str:
        return self._done(lambda _: self.files.clear_all_memory(), None)


class AsyncMemoirMemoryTool(BetaAsyncAbstractMemoryTool):
    """The same for async clients."""

    def __init__(self, memoir: AsyncMemoir, user: str, **options: Any) -> None:
        super().__init__(**options)
        self.memoir, self.files = memoir, _Files(user)

    async def _done(self, method: Callable[[Any], Work], command: Any) -> str:
        command = _storable(command)
        for _ in range(ATTEMPTS):
            work = method(command)
            answer: Any = None
            try:
                while True:
                    answer = await self.memoir.run(work.send(answer))
            except StopIteration as end:
                return str(end.value)
            except ChangedElsewhereError:
                continue
        raise ToolError(_BUSY)

    async def view(self, command: Any) -> str:
        return await self._done(self.files.view, command)

    async def create(self, command: Any) -> str:
        return await self._done(self.files.create, command)

    async def str_replace(self, command: Any) -> str:
        return await self._done(self.files.str_replace, command)

    async def insert(self, command: Any) -> str:
        return await self._done(self.files.insert, command)

    async def delete(self, command: Any) -> str:
        return await self._done(self.files.delete, command)

    async def rename(self, command: Any) -> str:
        return await self._done(self.files.rename, command)

    async def clear_all_memory(self) -> str:
        return await self._done(lambda _: self.files.clear_all_memory(), None)
