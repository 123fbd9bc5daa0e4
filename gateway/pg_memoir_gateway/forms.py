"""Mode manage: what stands in the place of tool results that the ladder has lowered.

Which part of a session has which form is the database's to say, and changes there at announced moments only. Here the
forms are set into the client's own JSON, at the span of the value they stand for; every other byte stays.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from .dialect import join_texts
from .gateway import keep_newest
from .line_edits import FENCE, edit_lines, is_within
from .spans import Body, Edit, Node, elements, member, write_json
from .talk import Talk, list_texts

SESSIONS = 200  # whose forms are kept in mind
# A prompt cache lives so long without a call: after that it is a moment, so the database is asked anew.
COLD_SECONDS = 300.0
LARGE = 0.1  # a result of this share of the budget is stored before it is sent, so that it can be born reduced


@dataclass
class Forms:
    """Of a session, as of `asked`: by tool call, the text for its result and those for arguments of the call. `lines`:
    by call, the text in the place of all steps of its exchange that are lines."""

    results: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, list[tuple[list[str], str]]] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    asked: float = field(default_factory=time.monotonic)


def read_forms(rows: list[dict[str, Any]]) -> Forms:
    """What window_forms says, by tool call."""
    forms = Forms()
    for row in rows:
        call, content = row["tool_call_id"], row["content"]
        if row["fidelity"] == "line" and isinstance(content, str):
            forms.lines |= dict.fromkeys(row["argument"] or [], content)
        if not isinstance(call, str) or not isinstance(content, str):
            continue
        if row["role"] == "tool":
            forms.results[call] = content
        elif row["argument"]:
            forms.arguments.setdefault(call, []).append((list(row["argument"]), content))
    return forms


class Shown:
    """The forms of the sessions that this process serves."""

    def __init__(self) -> None:
        self._forms: OrderedDict[tuple[str, str], Forms] = OrderedDict()
        self._ends: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._sent: OrderedDict[tuple[str, str], set[int]] = OrderedDict()

    def find(self, talk: Talk) -> Forms | None:
        """Returns those of a conversation, None where they are not known, or the prompt cache may be cold."""
        forms = self._forms.get(talk.key)
        return forms if forms and time.monotonic() - forms.asked < COLD_SECONDS else None

    def find_last(self, talk: Talk) -> Forms | None:
        """Returns the last that were known: those apply while the database is away."""
        return self._forms.get(talk.key)

    def keep(self, talk: Talk, forms: Forms) -> None:
        keep_newest(self._forms, talk.key, forms, SESSIONS)

    def find_last_end(self, talk: Talk, end: str) -> str:
        """Returns where the changed part ended in the last request, "" if that is not known. `end`: where it ends in
        this one."""
        before = self._ends.get(talk.key, "")
        keep_newest(self._ends, talk.key, end, SESSIONS)
        return before

    def find_moved(self, talk: Talk, changed: list[Edit]) -> list[Edit]:
        """Returns the edits that were not in the conversation's last request."""
        before = self._sent.get(talk.key, set())
        keep_newest(self._sent, talk.key, {hash(edit.text) for edit in changed}, SESSIONS)
        return [edit for edit in changed if hash(edit.text) not in before]


def count_fixed(talk: Talk) -> int:
    """Returns the tokens of the system prompt, the tools, and the context that a client sets around the first
    question, by their size. Nothing of it is stored."""
    fields = [talk.body.fields.get(name) for name in ("system", "tools", "instructions")]
    size = sum(field.end - field.start for field in fields if field)
    for item, node in zip(talk.items, talk.body.lists.get(talk.dialect.key, [])):
        if item.get("role") in ("system", "developer"):
            size += node.end - node.start
        elif item.get("role") == "user":
            found = (piece for pieces in talk.pieces(list_texts(item)) for piece in pieces)
            size += sum(len(piece.text) for piece in found if piece.whose == "context")
        else:
            break
    return size // 4


def count_budget(talk: Talk, window: int) -> int:
    """Returns the tokens that a conversation may take: the window less the answer, the system prompt and the tools."""
    asked = talk.body.get("max_tokens")
    answer = min(asked if isinstance(asked, int) else 8_192, window // 5)
    return max(window // 4, window - answer - count_fixed(talk))


def has_large_news(talk: Talk, through: int, budget: int) -> bool:
    """Is there a result in the new part of the list that is large against the budget?"""
    nodes = talk.body.lists.get(talk.dialect.key, [])
    return any(node.end - node.start > 4 * LARGE * budget for node in nodes[through:])


def has_results(talk: Talk) -> bool:
    """Is there a tool's result in the list? Without one there is nothing to lower."""
    for item in talk.items:
        content = item.get("content")
        blocks = content if isinstance(content, list) else []
        if item.get("role") == "tool" or str(item.get("type")).endswith("_output"):
            return True
        if any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks):
            return True
    return False


def edit_forms(talk: Talk, forms: Forms) -> list[Edit]:
    """The edits that set a session's forms into its list."""
    found = edit_lines(talk, forms.lines)
    text = talk.body.text
    gone = [(edit.start, edit.end) for edit in found]
    for node in talk.body.lists.get(talk.dialect.key, []):
        if is_within(node.start, node.end, gone):
            continue
        item = node.value
        if talk.dialect.key == "input":
            if item.get("call_id") in forms.results and str(item.get("type")).endswith("_output"):
                found += _shorten(text, member(text, node, "output"), forms.results[item["call_id"]])
        elif talk.dialect.name == "openai":
            if item.get("role") == "tool" and item.get("tool_call_id") in forms.results:
                found += _shorten(text, member(text, node, "content"), forms.results[item["tool_call_id"]])
        elif isinstance(item.get("content"), list):
            content = member(text, node, "content")
            for block in elements(text, content.start)[0] if content else []:
                found += _edit_block(talk.body, block, forms)
    return found


def mark_cache(talk: Talk, changed: list[Edit], shown: Shown) -> list[Edit]:
    """Returns the edits with a cache mark where the client leaves one of the API's four. A move then reads from the
    cache up to there. The mark is as the client's own last one. The API wants longer ttls first, so where the client's
    marks differ in ttl, there is none."""
    text = talk.body.text
    if talk.dialect.name != "anthropic" or not changed or text.count('"cache_control":') not in (1, 2, 3):
        return changed
    found: list[Node] = []
    for node in talk.body.lists["messages"]:
        content = member(text, node, "content")
        if content is not None and isinstance(content.value, list):
            found += [block for block in elements(text, content.start)[0] if isinstance(block.value, dict)]
    if len(_list_ttls(found)) > 1:
        return changed
    gone = [(edit.start, edit.end) for edit in changed]
    found = [block for block in found if not is_within(block.start, block.end, gone)]
    theirs = next((block for block in reversed(found) if "cache_control" in block.value), None)
    given = member(text, theirs, "cache_control") if theirs else None
    if given is None:
        return changed
    mark = text[given.start : given.end]
    here = _find_changed_end(found, changed, talk, shown)
    lines = next((edit for edit in reversed(changed) if FENCE in edit.text), None)
    if lines is not None and given.start > lines.end:
        changed = _mark_lines(found, changed, lines, mark)
        if text.count('"cache_control":') == 3:
            return changed
    if here is None or "cache_control" in here.value or given.start < here.end:
        return changed
    if any(edit.start == here.end - 1 for edit in changed):  # marked because of the lines behind it
        return changed
    return [*changed, Edit(here.end - 1, here.end - 1, f',"cache_control":{mark}')]


def _list_ttls(blocks: list[Node]) -> set[str]:
    """Returns the ttls of the marks of blocks and of the parts of results."""
    lists = [block.value["content"] for block in blocks if isinstance(block.value.get("content"), list)]
    parts = [block.value for block in blocks] + [part for parts in lists for part in parts if isinstance(part, dict)]
    marks = [part["cache_control"] for part in parts if isinstance(part.get("cache_control"), dict)]
    return {str(mark.get("ttl", "5m")) for mark in marks}


def _mark_lines(found: list[Node], changed: list[Edit], lines: Edit, mark: str) -> list[Edit]:
    """Marks what stays when lines are added: the fence before the last one, else the block before all lines."""
    blocks = json.loads(lines.text)["content"]
    if len(blocks) > 1:
        blocks[-2]["cache_control"] = json.loads(mark)
        marked = Edit(lines.start, lines.end, write_json({"role": "user", "content": blocks}))
        return [marked if edit is lines else edit for edit in changed]
    here = next((block for block in reversed(found) if block.end <= lines.start), None)
    if here is None or "cache_control" in here.value or str(here.value.get("type")).endswith("thinking"):
        return changed
    return [*changed, Edit(here.end - 1, here.end - 1, f',"cache_control":{mark}')]


def _find_changed_end(found: list[Node], changed: list[Edit], talk: Talk, shown: Shown) -> Node | None:
    """Returns the block with which the part ends that forms had changed by the last request."""
    last = max(edit.start for edit in changed)
    ends = next((block for block in found if block.start < last < block.end), None)
    before = shown.find_last_end(talk, _name_block(ends) if ends else "")
    return next((block for block in found if before and _name_block(block) == before), ends)


def _name_block(block: Node) -> str:
    """Of a call or its result."""
    return str(block.value.get("type")) + str(block.value.get("tool_use_id") or block.value.get("id"))


def _edit_block(body: Body, block: Node, forms: Forms) -> list[Edit]:
    kind = block.value.get("type") if isinstance(block.value, dict) else None
    if kind == "tool_result" and block.value.get("tool_use_id") in forms.results:
        return _shorten(body.text, member(body.text, block, "content"), forms.results[block.value["tool_use_id"]])
    if kind == "tool_use" and block.value.get("id") in forms.arguments:
        found: list[Edit] = []
        for path, content in forms.arguments[block.value["id"]]:
            node = member(body.text, block, "input")
            for step in path:
                node = _follow(body.text, node, step)
            if node and isinstance(node.value, str):
                found += _shorten(body.text, node, content)
        return found
    return []


def _follow(text: str, node: Node | None, step: str) -> Node | None:
    """A member or an element of a value."""
    if node is None or isinstance(node.value, dict):
        return member(text, node, step) if node else None
    if isinstance(node.value, list) and step.isdigit():
        found, _ = elements(text, node.start)
        return found[int(step)] if int(step) < len(found) else None
    return None


def _shorten(text: str, node: Node | None, form: str) -> list[Edit]:
    """The form in the place of a value, if the value is text alone and longer."""
    if node is None or not (isinstance(node.value, str) or is_only_text(node.value)):
        return []
    new = write_json(form)
    return [Edit(node.start, node.end, new)] if len(new) < node.end - node.start else []


def is_only_text(value: Any) -> bool:
    """Is it a list of texts, and of nothing else?"""
    return (
        isinstance(value, list)
        and all(isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text") for part in value)
        and bool(join_texts(value))
    )
