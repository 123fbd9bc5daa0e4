"""Checks a compiled list against what is promised of it. Written from the specification alone, not from the compiler.

    violations = validate(compiled, Expected(budget=1000, count=estimate, query="When?", history=[...]))

Both formats are brought to one shape, the OpenAI list, before the common rules run; each violation is a line that starts
with the rule's name: budget, shape, system, roles, tools, last, query, fence, history, openai, anthropic.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import request_types
from request_rules import unpaired

Message = dict[str, Any]
REPLY_PRIMING = 3
_OPEN_OR_CLOSE = re.compile(r"<(/?)(memoir-[a-z]+)>")
_BREAKER = re.compile(r"</?memoir-")
_LABEL = re.compile(r"\s*\[[^\]\n]+\]: ")
_RECALL = re.compile(r"<memoir-recall>.*?</memoir-recall>", re.DOTALL)
_EXCERPT = re.compile(r"\n?\[excerpt: \d+ of \d+ characters left out, turn \d+\]\n?")
ANY = "any arguments"
_EMPTY = re.compile(r"^(?:\s|\(empty\))+")
_STEPS = re.compile(r"<memoir-steps>.*?</memoir-steps>\s*", re.DOTALL)
# What stands for an object of a managed window: a shorter form with its header, or the line that names it.
_FORM = re.compile(
    r"\[(?:detailed|compact|stub|not shown|with the result above)\b[^\]]*object|\bmemory_(?:query|restore)\("
)
_WHOLE_BLOCK = re.compile(r"<(memoir-(?:recall|profile|summary|steps))>.*?</\1>", re.DOTALL)


@dataclass
class Expected:
    """What the caller knows about a compile.

    `count`: tokens of a text. `image_tokens`: tokens of an image part (OpenAI shape), by the provider's rule.
    `history`: the session's messages as persisted (OpenAI shape), oldest first, parents' turns included; None leaves the
    comparison out. `hidden`: positions in `history` that compactions cover or that the answer announced as left out;
    `excerpts`: positions that it announced as shortened. `query` and `query_parts` as given to the compile; both None: an
    open exchange is continued. `recalled`: whether the answer says that it recalled anything.
    """

    budget: int
    count: Callable[[str], int]
    query: str | None = None
    query_parts: Sequence[dict[str, Any]] | None = None
    tools: str | None = None
    system_prompt: str | None = None
    history: Sequence[Message] | None = None
    hidden: frozenset[int] = frozenset()
    excerpts: frozenset[int] = frozenset()
    format: str = "openai"
    recalled: bool = True
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


def from_anthropic(compiled: dict[str, Any]) -> list[Message]:
    """An Anthropic request's system and messages as an OpenAI list: each tool result is a message of its own."""
    messages: list[Message] = []
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


def _assistant_from_blocks(blocks: list[Message]) -> dict[str, Any]:
    message: Message = {"role": "assistant", "content": None}
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if texts:
        message["content"] = [{"type": "text", "text": text} for text in texts]
    used = [block for block in blocks if block["type"] == "tool_use"]
    functions = [{"name": block["name"], "arguments": block["input"]} for block in used]
    calls = [{"id": b["id"], "type": "function", "function": f} for b, f in zip(used, functions, strict=True)]
    if calls:
        message["tool_calls"] = calls
    return message


def _user_from_blocks(blocks: list[Message]) -> Iterable[dict[str, Any]]:
    rest = []
    for block in blocks:
        if block["type"] == "tool_result":
            content = _result_content(block.get("content"))
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}
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


def parts_of(message: Message) -> list[Message]:
    """A message's content as parts; no part for an empty text."""
    content = message.get("content")
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content if part.get("type") != "text" or part.get("text")]


def text_of(message: Message) -> str:
    """The texts of a message's content, concatenated."""
    return "".join(_part_text(part) for part in parts_of(message))


def _part_text(part: dict[str, Any]) -> str:
    return part.get("text") or part.get("refusal") or ""


# --- Rules on the common shape -----------------------------------------------------------------------------------------


def id_tokens(spelt: str, expected: Expected) -> int:
    """Tokens of a call's id: of its pieces, where Anthropic's format spells it differently."""
    pieces = re.split(r"([^a-zA-Z0-9_-])", spelt)
    if len(pieces) == 1:
        return expected.count(spelt)
    return sum(expected.count(piece) for each in pieces for piece in re.split("(_)", each) if piece)


def tokens_of_message(message: Message, expected: Expected) -> int:
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
        total += id_tokens(call["id"], expected) + expected.count(call["function"]["name"]) + expected.count(arguments)
    if message.get("tool_call_id"):
        total += id_tokens(message["tool_call_id"], expected)
    return total


def tokens_of(messages: Sequence[Message], expected: Expected) -> int:
    """Tokens of a list in the OpenAI shape, by the documented accounting."""
    tools = expected.count(expected.tools) if expected.tools else 0
    return sum(tokens_of_message(message, expected) for message in messages) + REPLY_PRIMING + tools


def _budget(messages: list[Message], expected: Expected) -> Iterable[str]:
    tokens = tokens_of(messages, expected)
    if tokens > expected.budget:
        yield f"budget: {tokens} tokens where {expected.budget} are allowed"


def _system(messages: list[Message], expected: Expected) -> Iterable[str]:
    places = [place for place, message in enumerate(messages) if message["role"] in ("system", "developer")]
    if places not in ([], [0]):
        yield f"system: system messages at {places}, only one at 0 is allowed"
    if expected.system_prompt:
        if places[:1] != [0]:
            yield "system: the session's prompt is missing"
        elif not text_of(messages[0]).startswith(expected.system_prompt):
            yield f"system: does not begin with the session's prompt: {text_of(messages[0])[:80]!r}"


def _roles(messages: list[Message], expected: Expected) -> Iterable[str]:
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


def _tools(messages: list[Message], expected: Expected) -> Iterable[str]:
    yield from (f"tools: {problem}" for problem in unpaired(messages))


def _last(messages: list[Message], expected: Expected) -> Iterable[str]:
    role = messages[-1]["role"] if messages else None
    asked = expected.query is not None or expected.query_parts is not None
    if asked and role != "user":
        yield f"last: the last message is of {role}, must be the user's"
    if not asked and role not in ("user", "tool"):
        yield f"last: an open exchange ends with {role}, must be tool results or the user's message"


def _newest_user(messages: list[Message]) -> int | None:
    places = [place for place, message in enumerate(messages) if message["role"] == "user"]
    return places[-1] if places else None


def _query(messages: list[Message], expected: Expected) -> Iterable[str]:
    place = _newest_user(messages)
    if place is None:
        yield "query: there is no user message"
        return
    asked = parts_of({"content": asked_parts(expected)})
    if expected.format == "anthropic":  # which refuses blocks of white space alone
        asked = [part for part in asked if part.get("type") != "text" or part["text"].strip()]
    if not asked:
        return
    tail = parts_of(messages[place])[-len(asked) :]
    if len(tail) < len(asked):
        yield f"query: the newest user message has {len(tail)} parts, the query {len(asked)}"
    for at, (have, want) in enumerate(zip(tail, asked, strict=False)):
        # The query's first text may stand in one part with the recall before it.
        if at == 0 and have["type"] == want["type"] == "text":
            if not have["text"].endswith(want["text"]):
                yield f"query: ...{have['text'][-80:]!r} does not end with the query's ...{want['text'][-80:]!r}"
        elif _comparable(have) != _comparable(want):
            yield f"query: part {at} is {str(have)[:80]}, asked was {str(want)[:80]}"


def asked_parts(expected: Expected) -> list[Message]:
    text = [{"type": "text", "text": expected.query}] if expected.query is not None else []
    return [*text, *(expected.query_parts or [])]


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


def _fences(messages: list[Message], expected: Expected) -> Iterable[str]:
    newest = _newest_user(messages)
    for place, message in enumerate(messages):
        text = text_of(message)
        if message["role"] == "user":
            for steps in _STEPS.findall(text) if "<memoir-steps>" not in _said(expected) else ():
                yield from fence_problems(steps, ("memoir-steps",))
                text = text.replace(steps, "", 1)
        if message["role"] in ("system", "developer"):
            prompt = expected.system_prompt or ""
            yield from fence_problems(text.removeprefix(prompt), ("memoir-profile", "memoir-summary"))
        elif place == newest:
            start = text.find("<memoir-recall>")
            if start >= 0 and expected.recalled:
                end = text.find("</memoir-recall>", start)
                block = text[start:] if end < 0 else text[start : end + len("</memoir-recall>")]
                yield from fence_problems(block, ("memoir-recall",))
            # What the person wrote stays as written, tags and all, and a tag of one message may end in the query it
            # is merged with. A second block of ours would open once more than what was written.
            opened = _said(expected).count("<memoir-")
            if len(_WHOLE_BLOCK.findall(text)) > expected.recalled + opened:
                yield f"fence: more than one block in the newest user message ({place})"
        elif (
            message["role"] == "user"
            and _WHOLE_BLOCK.search(text)
            and text.count("<memoir-") > _said(expected).count("<memoir-")
        ):
            # Tags that somebody wrote stay as they were persisted, even where a merge makes them a block.
            yield f"fence: a block of ours in the history, message {place}"


def _said(expected: Expected) -> str:
    asked = (expected.query or "") + "".join(_part_text(part) for part in expected.query_parts or ())
    return asked + "".join(text_of(message) for message in expected.history or () if message["role"] == "user")


# --- History -----------------------------------------------------------------------------------------------------------

Piece = tuple[str, str]
"""Kind and value of one thing that must be unaltered: a text, an image, a call, a result's id."""


def _is_managed(messages: list[Message], expected: Expected) -> bool:
    """Does the list show objects by their forms, or steps as lines? tests/property/test_agent_loops.py checks such lists."""
    written = "".join(text_of(message) for message in expected.history or ()) + _said(expected)
    marks = [mark for text in map(str, messages) for pattern in (_STEPS, _FORM) for mark in pattern.findall(text)]
    return any(mark not in written for mark in marks)


def _history(messages: list[Message], expected: Expected) -> Iterable[str]:
    """The shown turns are a run of the persisted ones, without gaps, up to the newest, each as it was persisted."""
    if expected.history is None or _is_managed(messages, expected):
        return
    runs = _runs_of_list(messages, expected)
    kept = [(place, message) for place, message in enumerate(expected.history) if place not in expected.hidden]
    turns = [(_pieces_of(message, expected.format), place in expected.excerpts) for place, message in kept]
    asked = _pieces_of({"role": "user", "content": asked_parts(expected)}, expected.format)
    tails = [[*turns, (asked, False)]] if asked else [turns]
    if asked and turns and turns[-1][0] == asked:
        tails.append(turns)  # a query equal to the newest persisted unanswered message is not repeated
    results = [_match(runs, tail[start:]) for tail in tails for start in range(len(tail) + 1)]
    if not any(problem is None for _, problem in results):
        yield f"history: {max(results, key=lambda result: result[0])[1]}"


def _pieces_of(message: Message, shape: str = "openai") -> list[Piece]:
    """A message's pieces in order, as the shape has them: Anthropic's has no refusals and fewer characters in ids."""
    role = "system" if message["role"] == "developer" else message["role"]
    claude = shape == "anthropic"
    pieces = [("tool", _id(message["tool_call_id"], claude))] if role == "tool" else []
    for part in parts_of(message):
        kind, value = _comparable(part)
        if claude and part.get("type") == "refusal":
            kind, value = "text", part["refusal"]
        pieces.append((f"{role} {kind}", value))
    for call in message.get("tool_calls") or []:
        given = call["function"]["arguments"]
        shown = _arguments(given) if claude else given
        pieces.append(("call", f"{_id(call['id'], claude)} {call['function']['name']} {shown}"))
    return pieces


def _id(given: str, claude: bool) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", given) if claude else given


def _arguments(given: Any) -> str:
    """Arguments as Anthropic's shape has them, an object, with numbers in a comparable form."""
    try:
        value = json.loads(given, parse_float=_number, parse_int=_number) if isinstance(given, str) else given
    except ValueError:
        value = None
    return json.dumps(_numbers_as_text(value), sort_keys=True, ensure_ascii=False) if isinstance(value, dict) else ANY


def _number(text: str) -> str:
    number = Decimal(text)
    return f"number {number.normalize():f}" if abs(number.adjusted()) < 1000 else f"number {text}"


def _numbers_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers_as_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers_as_text(inner) for inner in value]
    return _number(repr(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _runs_of_list(messages: list[Message], expected: Expected) -> list[Piece]:
    """The list's pieces without system messages, recall and notes; texts of one role that follow each other are one run."""
    notes = [text_of(message) for message in expected.history or () if message["role"] in ("system", "developer")]
    newest, ours = _newest_user(messages), expected.recalled
    runs: list[Piece] = []
    for place, message in enumerate(messages):
        if message["role"] in ("system", "developer"):
            continue
        for kind, value in _pieces_of(message, expected.format):
            if kind == "user text":
                if place == newest and ours:
                    value = _RECALL.sub("", value, count=1)  # ours comes first; the person may quote one
                    ours = False
                for note in notes:
                    value = value.replace(f"[System note] {note}", "", 1)
            if kind.endswith(" text") and runs and runs[-1][0] == kind:
                runs[-1] = kind, runs[-1][1] + value
            else:
                runs.append((kind, value))
    return runs


def _match(runs: list[Piece], turns: list[tuple[list[Piece], bool]]) -> tuple[int, str | None]:
    """How many pieces of `turns` the runs begin with, and the problem; None where they are the turns and nothing else.

    Texts may be merged with white space between. Texts of white space alone may be missing or be "(empty)". System messages
    amid the history may be missing, because providers have no place for them.
    """
    rest, matched = list(runs), 0
    for pieces, is_excerpt in turns:
        skipped: str | None = None
        for kind, value in pieces:
            if kind.startswith("system") or kind == skipped or (kind.endswith(" text") and not value.strip()):
                continue
            while rest and _after(rest[0], kind, value) is None and _is_blank(rest[0]):
                rest.pop(0)
            if rest and is_excerpt and rest[0][0] == kind and _EXCERPT.search(rest[0][1]):
                if not _is_excerpt(rest.pop(0)[1], "\n".join(other for name, other in pieces if name == kind)):
                    return matched, f"{kind} {value[:60]!r} is shown as an excerpt of another text"
                skipped = kind
                continue
            left = _after(rest[0], kind, value) if rest else None
            if left is None and rest and kind == "user text":  # a text may say who speaks
                left = _after((rest[0][0], _LABEL.sub("", rest[0][1], count=1)), kind, value)
            if left is None:
                return matched, f"{kind} {value[:60]!r} is missing, found {str(rest[:1])[:90]}"
            matched += 1
            rest[0] = kind, left
            if not kind.endswith(" text"):
                rest.pop(0)
    extra = next((run for run in rest if not _is_blank(run)), None)
    return matched, f"{extra[0]} {extra[1][:60]!r} is in the list but was never persisted" if extra else None


def _after(run: Piece, kind: str, value: str) -> str | None:
    """What of a run is left behind a piece at its beginning; None: it isn't there."""
    if run[0] != kind:
        return None
    if not kind.endswith(
        " text"
    ):  # arguments that are no JSON object have no place in Anthropic's shape: any input stands for them
        same = run[1].startswith(value.removesuffix(ANY)) if value.endswith(ANY) else run[1] == value
        return "" if same else None
    text = run[1]
    for start in range(len(text) - len(_EMPTY.sub("", text)) + 1):
        if text.startswith(value, start) and _is_blank(("text", text[:start])):
            return text[start + len(value) :]
    return None


def _is_blank(run: Piece) -> bool:
    return run[0].endswith("text") and not _EMPTY.sub("", run[1])


def _is_excerpt(shown: str, persisted: str) -> bool:
    """Whether the texts before and behind the mark are the beginning and end of the persisted one."""
    head, tail = _EXCERPT.split(shown, maxsplit=1)
    return persisted.lstrip().startswith(head.lstrip()) and persisted.endswith(tail)
