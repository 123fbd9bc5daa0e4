"""Checks a compiled list against what is promised of it. Written from the specification alone, not from the compiler.

    violations = validate(compiled, Expected(budget=1000, count=estimate, query="When?", history=[...]))

Both formats are brought to one shape, the OpenAI list, before the common rules run; each violation is a line that starts
with the rule's name: budget, shape, system, roles, tools, last, query, fence, history, openai, anthropic.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import request_types

FENCES = ("memoir-recall", "memoir-profile", "memoir-summary")
REPLY_PRIMING = 3
_OPEN_OR_CLOSE = re.compile(r"<(/?)(memoir-[a-z]+)>")
_BREAKER = re.compile(r"</?memoir-")
_WHOLE_BLOCK = re.compile(r"<(memoir-(?:recall|profile|summary))>.*?</\1>", re.DOTALL)


@dataclass
class Expected:
    """What the caller knows about a compile.

    `count`: tokens of a text. `image_tokens`: tokens of an image part (OpenAI shape), by the provider's rule.
    `history`: the session's messages as persisted (OpenAI shape), oldest first, parents' turns included; None leaves the
    comparison out. `hidden`: positions in `history` that compactions cover; `excerpts`: positions that the answer announced
    as shortened. `query` and `query_parts` as given to the compile; both None: an open exchange is continued.
    """

    budget: int
    count: Callable[[str], int]
    query: str | None = None
    query_parts: Sequence[dict[str, Any]] | None = None
    tools: str | None = None
    system_prompt: str | None = None
    history: Sequence[dict[str, Any]] | None = None
    hidden: frozenset[int] = frozenset()
    excerpts: frozenset[int] = frozenset()
    format: str = "openai"
    overhead: int = 4
    image_tokens: Callable[[dict[str, Any]], int] = lambda part: 85


def validate(compiled: Any, expected: Expected) -> list[str]:
    """Violations of the promises, as text; an empty list when all hold."""
    try:
        json.dumps(compiled, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (ValueError, TypeError, UnicodeEncodeError) as error:
        return [f"shape: not JSON: {error}"]
    if expected.format == "anthropic":
        found = [f"anthropic: {problem}" for problem in request_types.anthropic_problems(compiled)]
        if found:
            return found
        messages = from_anthropic(compiled)
    else:
        found = [f"openai: {problem}" for problem in request_types.openai_problems(compiled)]
        if found:
            return found
        messages = compiled
    rules = (_budget, _system, _roles, _tools, _last, _query, _fences, _history)
    return [violation for rule in rules for violation in rule(messages, expected)]


# --- The two shapes ----------------------------------------------------------------------------------------------------


def from_anthropic(compiled: dict[str, Any]) -> list[dict[str, Any]]:
    """An Anthropic request's system and messages as an OpenAI list: each tool result is a message of its own."""
    messages: list[dict[str, Any]] = []
    system = compiled.get("system") or []
    text = system if isinstance(system, str) else "".join(block["text"] for block in system)
    if text:
        messages.append({"role": "system", "content": text})
    for message in compiled["messages"]:
        blocks = message["content"]
        if isinstance(blocks, str):
            messages.append({"role": message["role"], "content": blocks})
        elif message["role"] == "assistant":
            messages.append(_assistant_from_blocks(blocks))
        else:
            messages.extend(_user_from_blocks(blocks))
    return messages


def _assistant_from_blocks(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if texts:
        message["content"] = [{"type": "text", "text": text} for text in texts]
    calls = [
        {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": block["input"]}}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    if calls:
        message["tool_calls"] = calls
    return message


def _user_from_blocks(blocks: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    rest = []
    for block in blocks:
        if block["type"] == "tool_result":
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _result_content(block.get("content"))}
        else:
            rest.append(_part_from_block(block))
    if rest:
        yield {"role": "user", "content": rest}


def _result_content(content: Any) -> Any:
    if content is None:
        return ""
    return content if isinstance(content, str) else [_part_from_block(block) for block in content]


def _part_from_block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    if block["type"] == "image":
        source = block["source"]
        url = source["url"] if source["type"] == "url" else f"data:{source['media_type']};base64,{source['data']}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": block["type"], "block": block}


def parts_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message's content as parts; no part for an empty text."""
    content = message.get("content")
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content if part.get("type") != "text" or part.get("text")]


def text_of(message: dict[str, Any]) -> str:
    """The texts of a message's content, concatenated."""
    return "".join(_part_text(part) for part in parts_of(message))


def _part_text(part: dict[str, Any]) -> str:
    return part.get("text") or part.get("refusal") or ""


# --- Rules on the common shape -----------------------------------------------------------------------------------------


def tokens_of_message(message: dict[str, Any], expected: Expected) -> int:
    """Overhead, content, name, each call's id, function name and arguments, tool_call_id, images."""
    total = expected.overhead
    for part in parts_of(message):
        total += expected.image_tokens(part) if part["type"] == "image_url" else expected.count(_part_text(part))
    if message.get("name"):
        total += expected.count(message["name"])
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        total += expected.count(call["id"]) + expected.count(call["function"]["name"]) + expected.count(arguments)
    if message.get("tool_call_id"):
        total += expected.count(message["tool_call_id"])
    return total


def tokens_of(messages: Sequence[dict[str, Any]], expected: Expected) -> int:
    """Tokens of a list in the OpenAI shape, by the documented accounting."""
    tools = expected.count(expected.tools) if expected.tools else 0
    return sum(tokens_of_message(message, expected) for message in messages) + REPLY_PRIMING + tools


def _budget(messages: list[dict[str, Any]], expected: Expected) -> Iterable[str]:
    tokens = tokens_of(messages, expected)
    if tokens > expected.budget:
        yield f"budget: {tokens} tokens where {expected.budget} are allowed"


def _system(messages: list[dict[str, Any]], expected: Expected) -> Iterable[str]:
    places = [place for place, message in enumerate(messages) if message["role"] in ("system", "developer")]
    if places not in ([], [0]):
        yield f"system: system messages at {places}, only one at 0 is allowed"
    if expected.system_prompt:
        if places[:1] != [0]:
            yield "system: the session's prompt is missing"
        elif not text_of(messages[0]).startswith(expected.system_prompt):
            yield f"system: does not begin with the session's prompt: {text_of(messages[0])[:80]!r}"


def _roles(messages: list[dict[str, Any]], expected: Expected) -> Iterable[str]:
    roles = [message["role"] for message in messages if message["role"] not in ("system", "developer")]
    if not roles:
        yield "roles: there is no message"
        return
    if roles[0] != "user":
        yield f"roles: the first message is of {roles[0]}, must be of user"
    for place, (before, after) in enumerate(zip(roles, roles[1:], strict=False)):
        allowed = {"user": ("assistant",), "assistant": ("user", "tool"), "tool": ("tool", "assistant", "user")}[before]
        # Tool results may be followed by the user's next words where the model never answered.
        if after not in allowed:
            yield f"roles: {before} is followed by {after} at {place + 1}"
    for place, message in enumerate(messages):
        if not parts_of(message) and not message.get("tool_calls") and message["role"] != "tool":
            yield f"roles: message {place} ({message['role']}) is empty"


def _tools(messages: list[dict[str, Any]], expected: Expected) -> Iterable[str]:
    open_calls: list[str] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            called = message.get("tool_call_id")
            if called in open_calls:
                open_calls.remove(called)
            else:
                yield f"tools: result {called!r} at {place} answers no call directly before it"
            continue
        if open_calls:
            yield f"tools: calls {open_calls} are unanswered before message {place}"
        open_calls = []
        for call in message.get("tool_calls") or []:
            if call["id"] in open_calls:
                yield f"tools: id {call['id']!r} twice in message {place}"
            open_calls.append(call["id"])
    if open_calls:
        yield f"tools: calls {open_calls} are unanswered at the end"


def _last(messages: list[dict[str, Any]], expected: Expected) -> Iterable[str]:
    role = messages[-1]["role"] if messages else None
    asked = expected.query is not None or expected.query_parts is not None
    if asked and role != "user":
        yield f"last: the last message is of {role}, must be the user's"
    if not asked and role not in ("user", "tool"):
        yield f"last: an open exchange ends with {role}, must be tool results or the user's message"


def _newest_user(messages: list[dict[str, Any]]) -> int | None:
    places = [place for place, message in enumerate(messages) if message["role"] == "user"]
    return places[-1] if places else None


def _query(messages: list[dict[str, Any]], expected: Expected) -> Iterable[str]:
    place = _newest_user(messages)
    if place is None:
        yield "query: there is no user message"
        return
    parts = parts_of(messages[place])
    if expected.query_parts is not None:
        wanted = [_comparable(part) for part in expected.query_parts]
        if [_comparable(part) for part in parts[len(parts) - len(wanted) :]] != wanted and not _tail_is(parts, expected):
            yield "query: the query's parts are not the tail of the newest user message"
    elif expected.query is not None:
        texts = [_part_text(part) for part in parts if part["type"] == "text"]
        if not texts or not texts[-1].endswith(expected.query):
            tail = texts[-1][-80:] if texts else None
            yield f"query: the newest user message ends with {tail!r}, not with the query {expected.query[-80:]!r}"


def _tail_is(parts: list[dict[str, Any]], expected: Expected) -> bool:
    """The query's first text may stand in one part with the recall before it."""
    wanted = list(expected.query_parts or [])
    first = next((i for i, part in enumerate(wanted) if part.get("type") == "text"), None)
    if first is None or len(parts) < len(wanted):
        return False
    tail = parts[len(parts) - len(wanted) :]
    return all(
        _part_text(have).endswith(_part_text(want)) if i == first else _comparable(have) == _comparable(want)
        for i, (have, want) in enumerate(zip(tail, wanted, strict=True))
    )


def _comparable(part: dict[str, Any]) -> tuple[str, str]:
    """What must be unaltered of a part. An image is its URL: Anthropic's shape has no place for `detail`."""
    if part.get("type") == "text":
        return "text", part["text"]
    if part.get("type") == "image_url":
        return "image", part["image_url"]["url"]
    return part.get("type", "?"), json.dumps(part, sort_keys=True)


# --- Fences ------------------------------------------------------------------------------------------------------------


def flattened(text: str) -> str:
    """Text as a lenient reader of tags sees it: without case, spaces and invisible characters."""
    return "".join(c for c in text if not c.isspace() and unicodedata.category(c) not in ("Cf", "Cc")).casefold()


def fence_problems(text: str, allowed: Sequence[str]) -> Iterable[str]:
    """`text` holds at most one block of each allowed fence, well formed, marked as reference, and nothing that looks like one."""
    outside, rest = [], text
    used: set[str] = set()
    while match := _OPEN_OR_CLOSE.search(rest):
        closing, name = match.groups()
        if closing or name not in allowed or name in used:
            yield f"fence: unexpected {match.group(0)}"
            return
        end = rest.find(f"</{name}>", match.end())
        if end < 0:
            yield f"fence: <{name}> is never closed"
            return
        body = rest[match.end() : end]
        if _BREAKER.search(flattened(body)):
            yield f"fence: a fence breaker inside <{name}>: {_around(body)!r}"
        head = body.casefold()
        if "reference" not in head or "instruction" not in head:
            yield f"fence: <{name}> does not say that it is reference material, not instructions"
        used.add(name)
        outside.append(rest[: match.start()])
        rest = rest[end + len(name) + 3 :]
    if _BREAKER.search(flattened("".join(outside) + rest)):
        yield f"fence: a fence breaker outside its fence: {_around(''.join(outside) + rest)!r}"


def _around(text: str) -> str:
    match = re.search(r"m\W*e\W*m\W*o\W*i\W*r", text, re.IGNORECASE)
    start = max(0, match.start() - 20) if match else 0
    return text[start : start + 60]


def _fences(messages: list[dict[str, Any]], expected: Expected) -> Iterable[str]:
    newest = _newest_user(messages)
    for place, message in enumerate(messages):
        text = text_of(message)
        if message["role"] in ("system", "developer"):
            prompt = expected.system_prompt or ""
            yield from fence_problems(text.removeprefix(prompt), ("memoir-profile", "memoir-summary"))
        elif place == newest:
            start = text.find("<memoir-recall>")
            if start >= 0:
                end = text.find("</memoir-recall>", start)
                block = text[start:] if end < 0 else text[start : end + len("</memoir-recall>")]
                yield from fence_problems(block, ("memoir-recall",))
            # What the person wrote stays as written, tags and all; a second block of ours would be ours.
            said = _said(expected)
            if len(_WHOLE_BLOCK.findall(text)) > 1 + len(_WHOLE_BLOCK.findall(said)):
                yield f"fence: more than one block in the newest user message ({place})"
        elif _WHOLE_BLOCK.search(text):
            yield f"fence: a block of ours in the history, message {place}"


def _said(expected: Expected) -> str:
    asked = expected.query or "".join(_part_text(part) for part in expected.query_parts or ())
    return asked + "".join(text_of(message) for message in expected.history or () if message["role"] == "user")


def without_recall(text: str) -> str:
    """The newest user message's text without the recall before it."""
    return re.sub(r"<memoir-recall>.*?</memoir-recall>\s*", "", text, count=1, flags=re.DOTALL)


# --- History -----------------------------------------------------------------------------------------------------------


def _history(messages: list[dict[str, Any]], expected: Expected) -> Iterable[str]:
    """The shown turns are a run of the persisted ones, without gaps, up to the newest, each as it was persisted."""
    if expected.history is None:
        return
    kept = [
        (place, message)
        for place, message in enumerate(expected.history)
        if message["role"] not in ("system", "developer") and place not in expected.hidden and not _is_blank(message)
    ]
    shown = [message for message in messages if message["role"] not in ("system", "developer")]
    newest = _newest_user(shown)
    pieces = _pieces_of_list(shown, newest, expected)
    wanted = [_pieces_of_message(message) for _, message in kept]
    asked = _asked(expected)
    # A query equal to the newest persisted unanswered message is not repeated: it then counts as history.
    tails = [wanted + [asked]] if asked else [wanted]
    if asked and wanted and kept[-1][1]["role"] == "user" and wanted[-1] == asked:
        tails.append(wanted)
    places = [place for place, _ in kept]
    failures = []
    for tail in tails:
        problem = _is_suffix(pieces, tail, places, expected.excerpts)
        if problem is None:
            return
        failures.append(problem)
    yield f"history: {failures[0]}"


Piece = tuple[str, str]


def _is_blank(message: dict[str, Any]) -> bool:
    return not parts_of(message) and not message.get("tool_calls") and message["role"] != "tool"


def _pieces_of_message(message: dict[str, Any]) -> list[Piece]:
    """What must be unaltered of one message, in order: role changes are pieces, so are calls and results."""
    role = message["role"]
    pieces: list[Piece] = []
    if role == "tool":
        pieces.append(("tool", message["tool_call_id"]))
    for part in parts_of(message):
        kind, value = _comparable(part)
        pieces.append((f"{role} {kind}", value))
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        pieces.append(("call", f"{call['id']} {call['function']['name']} {_arguments(arguments)}"))
    return pieces


def _arguments(arguments: Any) -> str:
    """Arguments as JSON text with sorted keys: Anthropic's shape holds them parsed."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return arguments
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)


def _asked(expected: Expected) -> list[Piece]:
    if expected.query_parts is not None:
        return _pieces_of_message({"role": "user", "content": list(expected.query_parts)})
    if expected.query is not None:
        return [("user text", expected.query)]
    return []


def _pieces_of_list(shown: list[dict[str, Any]], newest: int | None, expected: Expected) -> list[Piece]:
    pieces: list[Piece] = []
    for place, message in enumerate(shown):
        found = _pieces_of_message(message)
        if place == newest:
            for at, (kind, value) in enumerate(found):
                if kind == "user text" and "<memoir-recall>" in value:
                    rest = without_recall(value)
                    found[at : at + 1] = [(kind, rest)] if rest.strip() else []
                    break
        pieces.extend(found)
    return pieces


def _is_suffix(pieces: list[Piece], wanted: list[list[Piece]], places: list[int], excerpts: frozenset[int]) -> str | None:
    """None if `pieces` are the last messages of `wanted`, where texts may be merged with white space between; else the problem."""
    have = list(pieces)
    joined = False  # whether the last of `have` is what precedes a text already matched, separator included
    for at in range(len(wanted) - 1, -1, -1):
        if not have:
            return None
        turn = f"turn {places[at]}" if at < len(places) else "the query"
        for kind, value in reversed(wanted[at]):
            if not have or have[-1][0] != kind:
                instead = f"{have[-1][0]} {have[-1][1][-60:]!r}" if have else "nothing"
                return f"{kind} {value[:60]!r} ({turn}) is missing, found {instead}"
            found = have.pop()[1]
            if not kind.endswith("text"):
                if found != value:
                    return f"{kind} of {turn} differs: persisted {value[-60:]!r}, shown {found[-60:]!r}"
                continue
            rest = _before(found, value, joined)
            if rest is None and at < len(places) and places[at] in excerpts:
                rest = ""
            if rest is None:
                return f"{kind} of {turn} differs: persisted ...{value[-60:]!r}, shown ...{found[-60:]!r}"
            joined = rest != ""
            if joined:
                have.append((kind, rest))
    return f"{have[-1][0]} {have[-1][1][:60]!r} is in the list but was never persisted" if have else None


def _before(found: str, value: str, joined: bool) -> str | None:
    """What stands before `value` at the end of `found`; with `joined`, white space must stand behind it. None: it isn't there."""
    last = len(found) - 1 if joined else len(found)
    first = len(found.rstrip()) if joined else len(found)
    for end in range(first, last + 1):
        if found[:end].endswith(value):
            return found[: end - len(value)]
    return None
