"""Mode manage: earlier steps that the database shows as lines leave the client's list for these lines."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .dialect import Item
from .spans import Edit, Node, elements, member, write_json
from .talk import Talk

Lines = dict[str, str]  # by tool call, the lines of its exchange
FENCE = "<memoir-steps>"


def edit_lines(talk: Talk, lines: Lines) -> list[Edit]:
    """Returns the edits that take steps out of a list, whole messages where they hold nothing else, and set their lines
    in where the first step of each exchange stood."""
    nodes = talk.body.lists.get(talk.dialect.key, [])
    # A message goes with all of its calls, and a result with its call.
    calls = [list_calls(node.value) for node in nodes] if lines else []
    # Some clients give an id to several calls: then it tells none.
    times = Counter(name for names in calls for name in names)
    known = {name for name, count in times.items() if count == 1 and name in lines}
    lines = {name: lines[name] for names in calls if known.issuperset(names) for name in names}
    if not lines:
        return []
    found: list[Edit] = []
    taken, said = _find_steps(talk, nodes, lines), set[str]()
    at = 0
    while at < len(nodes):
        if taken[at] is None:
            found += _edit_blocks(talk, nodes[at], lines)
            at += 1
            continue
        first, text = at, taken[at]
        while at < len(nodes) and taken[at] == text:
            at += 1
        if text is not None and text not in said:
            said.add(text)
            found.append(Edit(nodes[first].start, nodes[at - 1].end, _write_message(talk, text)))
        elif first:
            found.append(Edit(nodes[first - 1].end, nodes[at - 1].end, ""))
    return found


def is_within(start: int, end: int, spans: list[tuple[int, int]]) -> bool:
    """Tells whether a part of the text lies in one of some spans."""
    return any(first <= start and end <= last for first, last in spans)


def _find_steps(talk: Talk, nodes: list[Node], lines: Lines) -> list[str | None]:
    """Returns for each item the lines that stand for it, None where it stays."""
    found = [_lines_of(list_calls(node.value), list_results(node.value), node.value, lines) for node in nodes]
    if talk.dialect.key == "input":
        # A thought goes with the call behind it.
        for at in range(len(nodes) - 2, -1, -1):
            if nodes[at].value.get("type") == "reasoning":
                found[at] = found[at + 1]
    return found


def _lines_of(calls: list[str], results: list[str], item: Item, lines: Lines) -> str | None:
    names = calls + results
    if not names or any(name not in lines for name in names):
        return None
    if results and isinstance(item.get("content"), list) and item.get("role") == "user":
        # What a person or the client said beside the results stays.
        if any(not isinstance(block, dict) or block.get("type") != "tool_result" for block in item["content"]):
            return None
    return lines[names[0]]


def list_calls(item: Item) -> list[str]:
    """Returns the ids of the calls in an item."""
    if str(item.get("type")).endswith("_call"):
        return [str(item.get("call_id"))]
    calls = item.get("tool_calls")
    found = [str(call.get("id")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return found + [str(block.get("id")) for block in _list_blocks(item) if block.get("type") == "tool_use"]


def list_results(item: Item) -> list[str]:
    """Returns the ids of the calls whose results an item has."""
    if str(item.get("type")).endswith("_call_output"):
        return [str(item.get("call_id"))]
    if item.get("role") == "tool":
        return [str(item.get("tool_call_id"))]
    return [str(block.get("tool_use_id")) for block in _list_blocks(item) if block.get("type") == "tool_result"]


def _list_blocks(item: Item) -> list[dict[str, Any]]:
    content = item.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _edit_blocks(talk: Talk, node: Node, lines: Lines) -> list[Edit]:
    """Takes results out of a message that holds something else."""
    content = member(talk.body.text, node, "content")
    if content is None or not isinstance(content.value, list) or node.value.get("role") != "user":
        return []
    parts, _ = elements(talk.body.text, content.start)
    gone = [_is_result_of(part.value, lines) for part in parts]
    if not any(gone) or all(gone):
        return []
    found = []
    for at, part in enumerate(parts):
        if gone[at]:
            # With the comma behind it, or before it where all that follows goes too.
            start, end = (part.start, parts[at + 1].start) if not all(gone[at:]) else (parts[at - 1].end, part.end)
            found.append(Edit(start, end, ""))
    return found


def _is_result_of(block: Any, lines: Lines) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result" and block.get("tool_use_id") in lines


def split_fences(text: str) -> list[str]:
    """Returns the fences of lines. Those before the last stay as they are when lines are added, so each is a block."""
    first, *others = text.split(f"\n\n{FENCE}")
    return [first, *(FENCE + other for other in others)]


def _write_message(talk: Talk, text: str) -> str:
    if talk.dialect.key == "input":
        return write_json({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
    if talk.dialect.name == "openai":
        return write_json({"role": "user", "content": text})
    return write_json({"role": "user", "content": [{"type": "text", "text": part} for part in split_fences(text)]})
