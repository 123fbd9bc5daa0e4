"""What goes upstream beside the client's own list: recall, tools, and calls of these that were answered here.

Everything is set into the client's JSON text at its place, and stays there byte for byte on later calls: a change in
the middle of a list makes prompt caches miss from there on. What was added to a message is kept with its link of the
chain:

    tail      a text behind the last block of a user's message: the recall made when it was the newest
    woven     [{"at": n, "text": JSON}]: what stood before the nth block of an assistant's message and was held back
    results   JSON of blocks that lead the message after it: results of calls that stood beside the client's own
    before    (chat) JSON of messages ahead of an assistant's message; `rest` is then its content, `beside` calls behind
              its own, `results` messages behind it
    between   (Responses) [{"at": n, "text": JSON}]: items before the nth of the answer that follows this item
    items     ids of what these texts show; where one is forgotten, the database gives the texts back withdrawn
    told      [[JSON, JSON]]: what a call or its result says in the above, and what stands there where it is withdrawn
"""

from __future__ import annotations

import re
from typing import Any

from .dialect import Added, Item, read_tool_name
from .spans import Body, Edit, Node, apply_edits, elements, member, write_json
from .talk import Talk

# Ids in full, and as an answer's lines begin with them.
ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|(?:(?<=^\[)|(?<=^\[object ))[0-9a-f]{8}(?=, )", re.M)
# Stands where a text stood of which something was forgotten; as the database says it of recalls.
WITHDRAWN = "[withdrawn]"


def withdrawal_texts(arguments: list[str], results: list[str]) -> Added:
    """What calls and their results say, for the day when it is forgotten. `arguments` are JSON, an object or a text."""
    told = [[given, write_json("{}") if given.startswith('"') else "{}"] for given in arguments]
    told += [[write_json(result), write_json(WITHDRAWN)] for result in results]
    return {"told": told, "items": sorted({found for result in results for found in ID.findall(result)})}


def merge_additions(one: Added | None, other: Added) -> Added:
    """Both additions to a message."""
    both = (one or {}) | other
    for name in ("items", "told"):
        both[name] = [*(one or {}).get(name, []), *other.get(name, [])]
    return both


def refresh_additions(old: Added, new: Added) -> Added:
    """What is sent with a message as the database has it now; it may not have all yet."""
    told = {"told": [*new["told"], *old["told"][len(new["told"]) :]]} if "told" in new and "told" in old else {}
    return old | {name: new[name] for name in new if name in old and name != "items"} | told


def make_edits(talk: Talk, added: list[Added | None]) -> list[Edit]:
    """The edits that put back, or in, what was added to the messages of a list."""
    nodes = talk.body.lists.get(talk.dialect.key)
    if nodes is None:
        return []
    found: list[Edit] = []
    for at, one in enumerate(added):
        if one:
            found += _edit_message(talk, nodes, at, one)
    return found


def _edit_message(talk: Talk, nodes: list[Node], at: int, added: Added) -> list[Edit]:
    text, content = talk.body.text, member(talk.body.text, nodes[at], "content")
    found = [_append_text(talk, content, added["tail"])] if "tail" in added and content is not None else []
    # Providers refuse a list with calls if the request has no tools, as when a client asks for a summary. Text that was
    # held back has no meaning without what follows it.
    if not talk.body.lists.get("tools") or at + 1 >= len(nodes):
        return found
    after = nodes[at + 1]
    if "between" in added:
        found += _insert_items(nodes, at, added)
    if "rest" in added:
        found += _insert_messages(text, nodes[at], content, after, added)
    elif "woven" in added and content is not None:
        found += _weave(text, content, added)
        following = member(text, after, "content")
        if added.get("results") and following is not None:
            found.append(_insert_first(following, text, added["results"]))
    return found


def _weave(text: str, content: Node, added: Added) -> list[Edit]:
    """Calls between the blocks of a message. A content that is one text is one block."""
    if isinstance(content.value, str):
        told = f'[{{"type":"text","text":{text[content.start : content.end]}}}]'
        edits = _weave_texts(told, Node(None, 0, len(told)), added["woven"], added.get("blocks"))
        return [Edit(content.start, content.end, apply_edits(told, edits))] if edits else []
    return _weave_texts(text, content, added["woven"], added.get("blocks")) if isinstance(content.value, list) else []


def _insert_items(nodes: list[Node], at: int, added: Added) -> list[Edit]:
    """Items among those of the answer behind an item. Clients that leave some out leave out thoughts."""
    answer = 0
    while at + 1 + answer < len(nodes) and answer < added["count"] and _is_answer(nodes[at + 1 + answer].value):
        answer += 1
    missing = added["count"] - answer
    places = [(max(0, one["at"] - missing), one["text"]) for one in added["between"]]
    if at + 1 + answer >= len(nodes):
        return []
    return [Edit(nodes[at + 1 + k].start, nodes[at + 1 + k].start, told + ",") for k, told in places]


def _is_answer(item: Any) -> bool:
    kind = item.get("type", "message")
    return item.get("role") == "assistant" if kind == "message" else not str(kind).endswith("_output")


def _insert_messages(text: str, node: Node, content: Node | None, after: Node, added: Added) -> list[Edit]:
    """Messages ahead of one in a chat, its content, calls beside its own."""
    found = []
    if added.get("before"):
        found.append(Edit(node.start, node.start, added["before"] + ","))
        if content is not None and isinstance(content.value, str) and content.value.endswith(added["rest"]):
            calls = member(text, node, "tool_calls")
            empty = "null" if calls and not added["rest"] else write_json(added["rest"])
            found.append(
                Edit(content.start, content.end, empty if added["rest"] or calls else write_json(content.value))
            )
    if added.get("beside") and (calls := member(text, node, "tool_calls")):
        found.append(Edit(calls.end - 1, calls.end - 1, "," + added["beside"]))
        found.append(Edit(after.start, after.start, added["results"] + ","))
    return found


def _append_text(talk: Talk, content: Node, told: str) -> Edit:
    """A text behind the last block. A content that is one text stays one where the API has no blocks of its own
    kind."""
    text = talk.body.text
    if isinstance(content.value, str):
        raw = text[content.start : content.end]
        if talk.dialect.name == "anthropic":
            return Edit(content.start, content.end, f'[{{"type":"text","text":{raw}}},{_write_block(talk, told)}]')
        return Edit(content.end - 1, content.end - 1, write_json("\n\n" + told)[1:-1])
    parts, _ = elements(text, content.start)
    end = parts[-1].end if parts else content.start + 1
    return Edit(end, end, ("," if parts else "") + _write_block(talk, told))


def _write_block(talk: Talk, told: str) -> str:
    return write_json({"type": "input_text" if talk.dialect.key == "input" else "text", "text": told})


def _weave_texts(text: str, content: Node, kept: list[Added], blocks: int | None) -> list[Edit]:
    """Texts between the blocks of a message. `blocks`: how many it had when it was sent; a client that leaves some out
    leaves out thoughts, which come first."""
    parts, _ = elements(text, content.start)
    found = []
    for one in kept:
        at = max(0, one["at"] - ((blocks or len(parts)) - len(parts)))
        if not parts or at > len(parts):
            continue
        if at == 0:
            found.append(Edit(parts[0].start, parts[0].start, one["text"] + ("" if one["splits"] else ",")))
        elif one["splits"] and at < len(parts):
            found.append(Edit(parts[at - 1].end, parts[at].start, "," + one["text"]))
        elif not one["splits"]:
            found.append(Edit(parts[at - 1].end, parts[at - 1].end, "," + one["text"]))
    return found


def _insert_first(content: Node, text: str, results: str) -> Edit:
    """Blocks before the first of a message."""
    if isinstance(content.value, str):
        raw = text[content.start : content.end]
        return Edit(content.start, content.end, f'[{results},{{"type":"text","text":{raw}}}]')
    return Edit(content.start + 1, content.start + 1, results + ("," if content.value else ""))


def offer_tools(body: Body, definitions: list[Item], names: set[str]) -> list[Edit]:
    """Our tools behind the client's own, but for those whose name is taken."""
    tools = body.lists.get("tools")
    ours = [tool for tool in definitions if read_tool_name(tool) not in names]
    if not tools or not ours:
        return []
    end = tools[-1].end
    return [Edit(end, end, "".join("," + write_json(tool) for tool in ours))]
