"""What the providers' APIs demand of a request: written from their documentation, apart from the gateway, to judge it."""

import json
from typing import Any

MARKS = 4
"""Cache marks in one request."""


def problems(path: str, raw: bytes) -> list[str]:
    """What an API would answer with 400, in words; [] for a valid request."""
    try:
        body = json.loads(raw)
    except ValueError as error:
        return [f"no JSON: {error}"]
    if path.startswith("/v1/messages"):
        return _anthropic(body)
    return _chat(body) if path.startswith("/v1/chat") else _responses(body)


def _anthropic(body: dict[str, Any]) -> list[str]:
    found = [f"{name} lacks" for name in ("model", "messages") if name not in body]
    if found:
        return found
    messages = body["messages"]
    names = [tool.get("name") for tool in body.get("tools") or []]
    if len(set(names)) != len(names):
        found.append(f"tools: names are not unique: {names}")
    found += _marks(body)
    if not messages or messages[0]["role"] != "user":
        found.append("the first message is not the user's")
    open_calls: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks and message["role"] != "system":
            found.append(f"messages.{at}: empty")
        found += [f"messages.{at}: empty text" for b in blocks if b["type"] == "text" and not b["text"].strip()]
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if sorted(results) != sorted(open_calls) or any(b["type"] == "tool_result" for b in blocks[len(results) :]):
            found.append(f"messages.{at}: results {results}, calls {open_calls}")
        calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
        if seen & set(calls) or len(set(calls)) < len(calls):
            found.append(f"messages.{at}: ids of calls are not unique")
        if (calls or any("thinking" in b["type"] for b in blocks)) and message["role"] != "assistant":
            found.append(f"messages.{at}: what only an assistant says")
        thoughts = [b for b in blocks if b["type"] == "thinking" and not b.get("signature")]
        found += [f"messages.{at}: a thought without its signature"] * len(thoughts)
        inputs = [b["input"] for b in blocks if b["type"] == "tool_use"]
        found += [f"messages.{at}: input is no object" for given in inputs if not isinstance(given, dict)]
        seen |= set(calls)
        open_calls = calls
    if seen and not names:
        found.append("calls, and no tools")
    return found + ([f"calls without results: {open_calls}"] if open_calls else [])


def _marks(body: dict[str, Any]) -> list[str]:
    places = [*(body.get("tools") or []), *(body["system"] if isinstance(body.get("system"), list) else [])]
    for message in body["messages"]:
        places += message["content"] if isinstance(message["content"], list) else []
    marked = [place for place in places if place.get("cache_control")]
    lives = [place["cache_control"].get("ttl", "5m") for place in marked]
    found = [f"{len(marked)} cache marks"] if len(marked) > MARKS else []
    if "5m" in lives and "1h" in lives[lives.index("5m") :]:
        found.append("a mark of an hour after one of five minutes")
    empty = [p for p in marked if "thinking" in p.get("type", "") or p.get("text") == ""]
    return found + ["a mark on a thought or an empty text"] * len(empty)


def unpaired(messages: list[dict[str, Any]]) -> list[str]:
    """Returns the faults of calls and results in a list: results follow their calls, in any order, before anything else."""
    found, open_calls = [], list[str]()
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") in open_calls:
                open_calls.remove(message["tool_call_id"])
            else:
                found.append(f"messages.{at}: answers no call")
            continue
        if open_calls:
            found.append(f"messages.{at}: calls without results: {open_calls}")
        open_calls = [call["id"] for call in message.get("tool_calls") or []]
        if len(set(open_calls)) < len(open_calls):
            found.append(f"messages.{at}: ids of calls are not unique")
    return found + ([f"calls without results: {open_calls}"] if open_calls else [])


def _chat(body: dict[str, Any]) -> list[str]:
    names = [(tool.get("function") or tool).get("name") for tool in body.get("tools") or []]
    found = [f"tools: {names}"] if len(set(names)) != len(names) or body.get("tools") == [] else []
    for at, message in enumerate(body["messages"]):
        calls = message.get("tool_calls") or []
        if message["role"] != "tool" and message.get("content") is None and not calls:
            found.append(f"messages.{at}: nothing said")
        if not all(isinstance(call["function"]["arguments"], str) for call in calls):
            found.append(f"messages.{at}: arguments are no text")
    return found + unpaired(body["messages"])


def _responses(body: dict[str, Any]) -> list[str]:
    items = body["input"] if isinstance(body.get("input"), list) else []
    names = [tool.get("name") for tool in body.get("tools") or [] if tool.get("name")]
    found = [f"tools: names are not unique: {names}"] if len(set(names)) != len(names) else []
    calls: list[str] = []
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "reasoning" and body.get("store") is False and not item.get("encrypted_content"):
            found.append(f"input.{at}: {item['id']} is not found, since nothing is stored")
        if kind.endswith("_call"):
            calls.append(item["call_id"])
        elif kind.endswith("_call_output"):
            if item["call_id"] not in calls:
                found.append(f"input.{at}: answers no call")
            else:
                calls.remove(item["call_id"])
    return found + ([f"calls without results: {calls}"] if calls else [])
