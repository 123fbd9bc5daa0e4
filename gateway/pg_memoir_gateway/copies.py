"""Mode manage: a result that says what an earlier one says is sent as a word on it while the earlier one is sent whole.

Agents read a file again to be sure of it. The second text costs as much as the first on each call to come and says
nothing new. At the moment that shortens the first, the second is whole again: so one of them always is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from .dialect import join_texts
from .forms import Forms, is_only_text
from .spans import Edit, Node, elements, member, write_json
from .talk import Talk

LEAST = 2_000  # characters: a shorter text is not worth a word
REMINDER = "\n\n<system-reminder>"  # clients add some behind a result, another one each time


def edit_copies(talk: Talk, forms: Forms) -> list[Edit]:
    """Returns the edits that set words in the place of copies. They say which call's result has the text."""
    # The provider may take the first one out of the list.
    if "clear_tool_uses" in str(talk.body.get("context_management")) or talk.body.get("truncation") == "auto":
        return []
    results = list(_list_results(talk))
    times = Counter(call for call, _, _, _ in results)
    first: dict[str, str] = {}
    found: list[Edit] = []
    for call, node, at, value in results:
        # A form stands for it, or some clients give an id to several calls: then it tells none.
        if times[call] > 1 or call in forms.results or call in forms.lines:
            continue
        if not isinstance(value, str) and not is_only_text(value):
            continue
        told, reminder, rest = join_texts(value).partition(REMINDER)
        told = told.rstrip()  # clients that add a reminder take blanks off the end
        if len(told) < LEAST:
            continue
        if told not in first:
            first[told] = call
        elif (place := _find_place(talk.body.text, node, at)) is not None:
            word = f"[The same text as the result of call {first[told]} above, {len(told.splitlines())} lines.]"
            found.append(Edit(place.start, place.end, write_json(word + reminder + rest)))
    return found


def _list_results(talk: Talk) -> Iterator[tuple[str, Node, int, Any]]:
    """Yields the results of a list: the call's id, the item, the block in it, and the text."""
    for node in talk.body.lists.get(talk.dialect.key, []):
        item = node.value
        if str(item.get("type")).endswith("_output"):
            yield str(item.get("call_id")), node, 0, item.get("output")
        elif item.get("role") == "tool":
            yield str(item.get("tool_call_id")), node, 0, item.get("content")
        elif isinstance(item.get("content"), list):
            for at, block in enumerate(item["content"]):
                if isinstance(block, dict) and block.get("type") == "tool_result":
                    yield str(block.get("tool_use_id")), node, at, block.get("content")


def _find_place(text: str, node: Node, at: int) -> Node | None:
    """Returns where the text of a result stands: of block `at` of an item whose content is a list of results."""
    place = member(text, node, "output") or member(text, node, "content")
    if place is not None and node.value.get("role") == "user":
        blocks, _ = elements(text, place.start)
        return member(text, blocks[at], "content")
    return place
