"""Answers of the model providers' SDKs → messages to persist, in OpenAI's shape.

Nothing here imports an SDK: objects are read by their attributes, dicts (a raw JSON body, an event of your own HTTP
client) by their keys. A stream may be given as the list of its chunks or as the stream itself, which is then consumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from ..types import Message, Usage

# Anthropic's stop reasons by OpenAI's names; others are kept as they are.
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call a model asks for. `arguments` is what its JSON holds, {} if the model wrote none or no valid object."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer: `message` is the assistant message to persist, `usage` goes to persist_turn beside it."""

    message: Message
    usage: Usage

    @property
    def text(self) -> str:
        """The text, '' if there is none; what the model thought is no part of it."""
        content = self.message.get("content") or ""
        if isinstance(content, str):
            return content
        return "".join(part["text"] for part in content if part["type"] == "text")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls the model asks for, in order."""
        calls = []
        for call in self.message.get("tool_calls", []):
            body = call.get("function") or call.get("custom")
            calls.append(ToolCall(call["id"], body["name"], _object(body.get("arguments", ""))))
        return calls


def tool_result(call: ToolCall | str, content: Any) -> Message:
    """The message that answers a tool call (or its id): text as it is, anything else as JSON."""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": call if isinstance(call, str) else call.id, "content": text}


def from_openai(response: Any, *, latency_ms: int | None = None) -> Reply:
    """A chat completion (object, dict, or stream of chunks; first choice) → Reply.

    Also what OpenAI-compatible servers answer. A refusal becomes the content. Where log probabilities were asked for,
    the message has them ("logprobs"), to be persisted and not to be sent back. `latency_ms`: of the call,
    milliseconds.
    """
    if _get(response, "choices") is None:
        response = _join_chunks(_stream(response))
    choices = _get(response, "choices")
    if not choices:
        raise ValueError("the response has no choices")
    answer = _get(choices[0], "message")
    message: Message = {"role": "assistant", "content": _get(answer, "content") or _get(answer, "refusal")}
    tool_calls = [plain(call) for call in _get(answer, "tool_calls") or []]
    if tool_calls:
        message["tool_calls"] = tool_calls
    elif message["content"] is None:
        message["content"] = ""
    _with_logprobs(message, _get(_get(choices[0], "logprobs"), "content"))
    counts = _get(response, "usage")
    return Reply(
        message,
        _usage(
            _get(response, "model"),
            _get(counts, "prompt_tokens"),
            _get(counts, "completion_tokens"),
            _get(choices[0], "finish_reason"),
            latency_ms,
            counts,
        ),
    )


def from_anthropic(response: Any, *, latency_ms: int | None = None) -> Reply:
    """A message (object, dict, or stream of events) → Reply.

    Text blocks are joined, tool_use blocks become tool calls. With thinking blocks the content is a list: these,
    whole and signed, then the text; a compile for Anthropic sends them back. Server-side tool blocks are left out.
    Prompt tokens include those read from and written to the cache. `latency_ms`: milliseconds.
    """
    if _get(response, "content") is None:
        response = _join_events(_stream(response))
    text: list[str] = []
    thoughts: list[dict[str, Any]] = []
    tool_calls = []
    for block in _blocks(_get(response, "content")):
        kind = _get(block, "type")
        if kind == "text":
            text.append(_get(block, "text"))
        elif kind in ("thinking", "redacted_thinking"):
            thoughts.append(dict(plain(block)))
        elif kind == "tool_use":
            given = plain(_get(block, "input"))
            arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            function = {"name": _get(block, "name"), "arguments": arguments}
            tool_calls.append({"id": _get(block, "id"), "type": "function", "function": function})
    message: Message = {"role": "assistant", "content": "".join(text) or (None if tool_calls else "")}
    if thoughts:
        message["content"] = thoughts + ([{"type": "text", "text": "".join(text)}] if text else [])
    if tool_calls:
        message["tool_calls"] = tool_calls
    counts = _get(response, "usage")
    read = [_get(counts, name) for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
    prompt_tokens = sum(count or 0 for count in read) if read[0] is not None else None
    reason = _get(response, "stop_reason")
    completion, finish = _get(counts, "output_tokens"), _FINISH.get(reason, reason)
    return Reply(message, _usage(_get(response, "model"), prompt_tokens, completion, finish, latency_ms, counts))


def from_responses(response: Any, *, latency_ms: int | None = None) -> Reply:
    """An answer of OpenAI's Responses API (object, dict, or stream of events) → Reply.

    Its messages are joined, function calls become tool calls; reasoning and the provider's own tools are left out.
    `latency_ms`: of the call, milliseconds.
    """
    if _get(response, "output") is None:
        response = _last_response(_stream(response))
    text: list[str] = []
    logprobs: list[Any] = []
    tool_calls = []
    for item in _get(response, "output") or []:
        kind = _get(item, "type")
        if kind == "message":
            parts = _blocks(_get(item, "content"))
            logprobs += [token for part in parts for token in _get(part, "logprobs") or []]
            text += [_get(part, "text") or _get(part, "refusal") or "" for part in parts]
        elif kind == "function_call":
            function = {"name": _get(item, "name"), "arguments": _get(item, "arguments")}
            tool_calls.append({"id": _get(item, "call_id"), "type": "function", "function": function})
    message: Message = {"role": "assistant", "content": "".join(text) or (None if tool_calls else "")}
    if tool_calls:
        message["tool_calls"] = tool_calls
    _with_logprobs(message, logprobs)
    reason = _get(_get(response, "incomplete_details"), "reason")
    finish = _FINISH.get(reason, reason) if reason else "tool_calls" if tool_calls else "stop"
    counts = _get(response, "usage")
    read = _get(counts, "input_tokens"), _get(counts, "output_tokens")
    return Reply(message, _usage(_get(response, "model"), *read, finish, latency_ms, counts))


def _with_logprobs(message: Message, tokens: Iterable[Any] | None) -> None:
    def read_pairs(tokens: Iterable[Any]) -> list[tuple[Any, dict[str, Any]]]:
        each = [(token, {name: _get(token, name) for name in ("token", "logprob")}) for token in tokens]
        # Some compatible servers leave numbers out, or say that one is infinite.
        return [(token, d) for token, d in each if isinstance(d["logprob"], (int, float)) and isfinite(d["logprob"])]

    if tokens:
        content = [
            d | {"top_logprobs": [x for _, x in read_pairs(_get(t, "top_logprobs") or [])]}
            for t, d in read_pairs(tokens)
        ]
        message["logprobs"] = {"content": content}


def _last_response(events: Iterable[Any]) -> Any:
    """The response that the last event of a stream holds; what an interrupted one lacks is not made up."""
    for event in events:
        if _get(event, "type") in ("response.completed", "response.incomplete", "response.failed"):
            return _get(event, "response")
    raise ValueError("the stream held no whole response")


def _stream(response: Any) -> Iterable[Any]:
    if isinstance(response, Iterable) and not isinstance(response, (str, bytes, Mapping)):
        return response
    given = type(response).__name__
    raise TypeError(f"a response or a stream of them is needed, not {given}; collect an async stream in a list")


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, (dict, Mapping)) else getattr(thing, name, None)


def _blocks(content: Any) -> list[Any]:
    """Returns a content's blocks. A content may be one text."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def plain(value: Any) -> Any:
    """SDK objects as plain data, absent fields left out."""
    return value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else value


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def cache_counts(usage: Any) -> dict[str, int]:
    """Returns the tokens of a prompt that were read from the provider's cache and written there, as persist_turn
    takes them. `usage`: that of an answer of any API."""
    details = _get(usage, "prompt_tokens_details") or _get(usage, "input_tokens_details")
    written = _get(usage, "cache_creation")
    long = _get(written, "ephemeral_1h_input_tokens")
    counts = {
        "cache_read_tokens": _get(usage, "cache_read_input_tokens") or _get(details, "cached_tokens"),
        "cache_write_tokens": _get(usage, "cache_creation_input_tokens"),
        "cache_write_1h_tokens": long,
    }
    found = {name: count for name, count in counts.items() if isinstance(count, int) and count > 0}
    if "cache_write_1h_tokens" in found:
        short = found.pop("cache_write_tokens", 0) - found["cache_write_1h_tokens"]
        found |= {"cache_write_tokens": short} if short > 0 else {}
    return found


def _usage(model: Any, prompt: Any, completion: Any, finish: Any, latency_ms: int | None, counts: Any) -> Usage:
    values = cache_counts(counts) | {
        "model": model,
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "finish_reason": finish,
        "latency_ms": latency_ms,
    }
    return {name: value for name, value in values.items() if value is not None}  # type: ignore[return-value]


def _join_chunks(chunks: Iterable[Any]) -> dict[str, Any]:
    """The completion that a stream of chunks spells."""
    content: list[str] = []
    refusal: list[str] = []
    logprobs: list[Any] = []
    calls: dict[int, dict[str, Any]] = {}
    model = finish = usage = None
    seen = False
    for chunk in chunks:
        model = model or _get(chunk, "model")
        usage = _get(chunk, "usage") or usage
        for choice in _get(chunk, "choices") or []:
            if _get(choice, "index"):
                continue
            seen = True
            finish = _get(choice, "finish_reason") or finish
            delta = _get(choice, "delta")
            content.append(_get(delta, "content") or "")
            refusal.append(_get(delta, "refusal") or "")
            logprobs += _get(_get(choice, "logprobs"), "content") or []
            for part in _get(delta, "tool_calls") or []:
                # Some compatible servers send whole calls without an index.
                index = _get(part, "index")
                call = calls.setdefault(
                    len(calls) if index is None else index,
                    {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
                )
                call["id"] = _get(part, "id") or call["id"]
                function = _get(part, "function")
                for name in ("name", "arguments"):
                    call["function"][name] += _get(function, name) or ""
    if not seen:
        raise ValueError("the stream held no choice")
    message = {
        "content": "".join(content) or None,
        "refusal": "".join(refusal) or None,
        "tool_calls": [calls[index] for index in sorted(calls)],
    }
    choice = {"message": message, "logprobs": {"content": logprobs}, "finish_reason": finish}
    return {"model": model, "usage": usage, "choices": [choice]}


def _join_events(events: Iterable[Any]) -> dict[str, Any]:
    """The message that a stream of Messages API events spells; events the SDK adds of its own are passed over."""
    message: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    json_parts: dict[int, list[str]] = {}
    for event in events:
        kind = _get(event, "type")
        if kind == "message_start":
            start = _get(event, "message")
            message["model"] = _get(start, "model")
            usage.update(plain(_get(start, "usage")) or {})
        elif kind == "content_block_start":
            blocks[_get(event, "index")] = dict(plain(_get(event, "content_block")))
        elif kind == "content_block_delta":
            index, delta = _get(event, "index"), _get(event, "delta")
            if _get(delta, "type") == "text_delta":
                blocks[index]["text"] = blocks[index].get("text", "") + _get(delta, "text")
            elif _get(delta, "type") == "thinking_delta":
                blocks[index]["thinking"] = blocks[index].get("thinking", "") + _get(delta, "thinking")
            elif _get(delta, "type") == "signature_delta":
                blocks[index]["signature"] = _get(delta, "signature")
            elif _get(delta, "type") == "input_json_delta":
                json_parts.setdefault(index, []).append(_get(delta, "partial_json"))
        elif kind == "message_delta":
            message["stop_reason"] = _get(_get(event, "delta"), "stop_reason")
            counts = plain(_get(event, "usage")) or {}
            usage.update({name: count for name, count in counts.items() if count is not None})
    if not message:
        raise ValueError("the stream held no message_start")
    for index, parts in json_parts.items():
        text = "".join(parts) or "{}"
        try:
            blocks[index]["input"] = json.loads(text)
        except ValueError:  # cut off by max_tokens: kept as the text it is, like OpenAI does
            blocks[index]["input"] = text
    return message | {"usage": usage, "content": [blocks[index] for index in sorted(blocks)]}
