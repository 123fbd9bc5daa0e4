"""Chat messages as the store takes and gives them: checked at the door, merged on the way out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..arguments import moment
from ..errors import InvalidArgumentError, InvalidMessageError, MemoirError, ToolCallMismatchError
from ..types import Message

ROLES = ("system", "developer", "user", "assistant", "tool")


def text_of(message: Message) -> str:
    """What a message says, without pictures."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return str(content or "")


def tokens_of(message: Message) -> int:
    """An estimate: four characters a token."""
    return count(text_of(message)) + count("".join(c["function"]["arguments"] for c in message.get("tool_calls") or []))


def count(text: str) -> int:
    """Tokens of a text, estimated."""
    return -(-len(text) // 4)


def words(text: str) -> set[str]:
    """What is compared: words of three letters and more, in lower case, without a plural's s."""
    return {re.sub(r"s$", "", word) for word in re.findall(r"[^\W_]{3,}", text.lower())}


def check_messages(messages: Any, open_calls: list[str], may_stay_open: bool) -> list[str]:
    """Raises what is wrong with messages to append; returns the tool calls that are open after them."""
    if not isinstance(messages, list) or not messages:
        raise InvalidMessageError(f"messages must be a list of at least one message, not {messages!r}")
    waiting = list(open_calls)
    for place, message in enumerate(messages):
        waiting = _after(f"messages[{place}]", message, waiting)
    if waiting and not may_stay_open:
        raise ToolCallMismatchError(
            f"tool calls {', '.join(waiting)} have no result", hint="append_messages takes parts of an exchange"
        )
    return waiting


def _after(where: str, message: Any, waiting: list[str]) -> list[str]:
    if not isinstance(message, dict):
        raise InvalidMessageError(f"{where} must be an object, not {message!r}")
    role, made = message.get("role"), message.get("tool_calls") or []
    if role not in ROLES:
        raise InvalidMessageError(f'{where}.role must be system, developer, user, assistant or tool, not "{role}"')
    content = message.get("content")
    if content is not None and not isinstance(content, (str, list)):
        raise InvalidMessageError(f"{where}.content must be a string or a list of parts, not {content!r}")
    if content is None and (role != "assistant" or not (made or message.get("refusal"))):
        raise InvalidMessageError(
            f"{where}.content is missing", hint="only an assistant message with tool_calls may have none"
        )
    _check_parts(where, content)
    if made and (role != "assistant" or not isinstance(made, list)):
        raise InvalidMessageError(f"{where}.tool_calls can't stand in a message of role {role}")
    if message.get("created_at") is not None:
        try:
            moment(message["created_at"], f"{where}.created_at")
        except MemoirError as error:
            raise InvalidMessageError(error.message) from None
    if role == "tool":
        if message.get("tool_call_id") not in waiting:
            raise ToolCallMismatchError(
                f'{where}.tool_call_id "{message.get("tool_call_id")}" answers no open tool call'
            )
        return [call for call in waiting if call != message["tool_call_id"]]
    if waiting:
        raise ToolCallMismatchError(f"{where} ({role}) comes before the results of tool calls {', '.join(waiting)}")
    return [str(call["id"]) for call in made]


def _check_parts(where: str, content: Any) -> None:
    if content == []:
        raise InvalidMessageError(f"{where}.content must not be an empty list")
    for place, part in enumerate(content if isinstance(content, list) else []):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise InvalidMessageError(f"{where}.content[{place}].type is missing")


def merge_roles(messages: Iterable[Message]) -> list[Message]:
    """Consecutive messages of a role as one, as many chat templates insist on."""
    out: list[Message] = []
    for message in messages:
        before = out[-1] if out else {}
        if message["role"] in ("user", "assistant") and before.get("role") == message["role"] and not (
            before.get("tool_calls") or message.get("tool_calls")
        ):  # fmt: skip
            before["content"] = f"{text_of(before)}\n\n{text_of(message)}"
        else:
            out.append(dict(message))
    return out


def anthropic(messages: list[Message]) -> dict[str, Any]:
    """The same list as Anthropic's API has it."""
    request: dict[str, Any] = {"messages": []}
    for message in messages:
        if message["role"] == "system":
            request["system"] = [{"type": "text", "text": text_of(message), "cache_control": {"type": "ephemeral"}}]
            continue
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text_of(message)}] if text_of(message).strip() else []
        if message["role"] == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text_of(message)}]
        for call in message.get("tool_calls") or []:
            made = call["function"]
            blocks.append(
                {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": made["name"],
                    "input": _parse_arguments(made["arguments"]),
                }
            )
        blocks = blocks or [{"type": "text", "text": "(empty)"}]  # it takes neither no block nor an empty one
        role = "assistant" if message["role"] == "assistant" else "user"
        if request["messages"] and request["messages"][-1]["role"] == role:
            request["messages"][-1]["content"] += blocks
        else:
            request["messages"].append({"role": role, "content": blocks})
    return request


def _parse_arguments(arguments: str) -> Any:
    import json

    try:
        return json.loads(arguments)
    except ValueError:
        return {"text": arguments}


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raises InvalidArgumentError for anything else."""
    if value is not None and value not in choices:
        raise InvalidArgumentError(f'{name} must be one of {", ".join(choices)}, not "{value}"')
