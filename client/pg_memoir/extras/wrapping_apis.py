"""How a request and an answer of each SDK stand for chat messages. No SDK is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..functions import calls
from ..types import Message
from .providers import from_anthropic, from_openai, from_responses, plain
from .shapes import from_anthropic_messages, from_input_items, text_of, to_input_items


@dataclass
class Asked:
    """What a request says, in chat messages."""

    system: str | None
    messages: list[Message]
    tools: list[Any]


class Api:
    """OpenAI's chat completions, and what the others say otherwise."""

    tools_format = "openai"
    compile = staticmethod(calls.compile_context)
    reply = staticmethod(from_openai)

    def read(self, request: dict[str, Any]) -> Asked:
        messages = [dict(_plain(message)) for message in request.get("messages") or []]
        first = next((i for i, m in enumerate(messages) if m.get("role") not in ("system", "developer")), len(messages))
        system = "\n\n".join(text_of(message.get("content")) for message in messages[:first]) or None
        return Asked(system, messages[first:], tools_of(request))

    def fill(self, request: dict[str, Any], compiled: Any) -> dict[str, Any]:
        return request | {"messages": compiled}

    def keep(self, answer: Any, mine: set[str]) -> None:
        """Takes memory's own calls out of an answer that has others as well."""
        message = answer.choices[0].message
        message.tool_calls = [call for call in message.tool_calls if call.id not in mine]

    def is_call(self, piece: Any) -> bool:
        """Whether calls of tools begin with this piece of a stream."""
        return any(choice.delta and choice.delta.tool_calls for choice in piece.choices)

    def rest(self, held: list[Any], mine: set[str]) -> list[Any]:
        """The pieces from the first call on, without memory's own."""
        places: dict[int, int | None] = {}
        for piece in held:
            for choice in piece.choices:
                for call in (choice.delta and choice.delta.tool_calls) or []:
                    if call.index not in places:
                        shown = sum(place is not None for place in places.values())
                        places[call.index] = None if call.id in mine else shown
                if choice.delta and choice.delta.tool_calls:
                    kept = [call for call in choice.delta.tool_calls if places[call.index] is not None]
                    for call in kept:
                        call.index = places[call.index]
                    choice.delta.tool_calls = kept or None
        return held

    def follows(self, piece: Any, shown: int) -> Any | None:
        """A piece of a later round's stream as the application sees it; `shown`: blocks it has seen."""
        return piece


class Messages(Api):
    """Anthropic's messages."""

    tools_format = "anthropic"
    compile = staticmethod(calls.compile_anthropic)  # type: ignore[assignment]
    reply = staticmethod(from_anthropic)

    def read(self, request: dict[str, Any]) -> Asked:
        system = text_of(request.get("system") or None)
        return Asked(system or None, from_anthropic_messages(request.get("messages") or []), tools_of(request))

    def fill(self, request: dict[str, Any], compiled: Any) -> dict[str, Any]:
        return {name: value for name, value in request.items() if name != "system"} | dict(compiled)

    def keep(self, answer: Any, mine: set[str]) -> None:
        answer.content = [block for block in answer.content if getattr(block, "id", None) not in mine]

    def is_call(self, piece: Any) -> bool:
        return bool(piece.type == "content_block_start" and piece.content_block.type == "tool_use")

    def rest(self, held: list[Any], mine: set[str]) -> list[Any]:
        gone = {p.index for p in held if p.type == "content_block_start" and getattr(p.content_block, "id", "") in mine}
        kept = [piece for piece in held if getattr(piece, "index", None) not in gone]
        for piece in kept:
            if hasattr(piece, "index"):
                piece.index -= sum(index < piece.index for index in gone)
        return kept

    def follows(self, piece: Any, shown: int) -> Any | None:
        if piece.type == "message_start":
            return None
        if hasattr(piece, "index"):
            piece.index += shown
        return piece


class Responses(Api):
    """OpenAI's responses. What the server keeps itself (`previous_response_id`, `conversation`) is left to it."""

    tools_format = "responses"
    reply = staticmethod(from_responses)

    def read(self, request: dict[str, Any]) -> Asked:
        if request.get("previous_response_id") or request.get("conversation"):
            return Asked(None, [], [])
        messages = from_input_items(request.get("input") or [])
        first = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
        said = [request.get("instructions") or "", *(text_of(m["content"]) for m in messages[:first])]
        return Asked("\n\n".join(filter(None, said)) or None, messages[first:], tools_of(request))

    def fill(self, request: dict[str, Any], compiled: Any) -> dict[str, Any]:
        return {name: v for name, v in request.items() if name != "instructions"} | {"input": to_input_items(compiled)}

    def keep(self, answer: Any, mine: set[str]) -> None:
        answer.output = [item for item in answer.output if getattr(item, "call_id", None) not in mine]


def _plain(message: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], plain(message))


def without_marks(request: dict[str, Any]) -> dict[str, Any]:
    """Without the SDKs' marks for what was not given."""
    return {name: value for name, value in request.items() if type(value).__name__ not in ("NotGiven", "Omit")}


def tools_of(request: dict[str, Any]) -> list[Any]:
    return list(without_marks(request).get("tools") or [])
