"""Answers of a model in the three protocols, whole and as a stream: for the stand-ins of providers (upstream.py, stubs/)."""

import json
from typing import Any

Block = dict[str, Any]
Made = tuple[dict[str, Any], bytes]


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def call(name: str, ident: str, **arguments: Any) -> Block:
    return {"type": "tool_use", "id": ident, "name": name, "input": arguments}


def thought(said: str) -> Block:
    return {"type": "thinking", "thinking": said, "signature": "sig:" + said}


def _events(*told: dict[str, Any], named: bool = True) -> bytes:
    lines = [
        (f"event: {t['type']}\n" if named else "") + f"data: {json.dumps(t, ensure_ascii=False)}\n\n" for t in told
    ]
    return "".join(lines).encode()


def _parts(told: str, size: int = 9) -> list[str]:
    return [told[i : i + size] for i in range(0, len(told), size)]


def _said(blocks: list[Block]) -> str:
    return "".join(b["text"] for b in blocks if b["type"] == "text")


def _function(block: Block) -> dict[str, Any]:
    return {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)}


def anthropic(
    blocks: list[Block], number: Any, body: dict[str, Any], prompt: int = 115, completion: int = 7, stop: str = ""
) -> Made:
    stop = stop or ("tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn")
    # Tokens read from the cache and written to it are counted apart.
    read, written = (100, 5) if prompt > 105 else (1, 0)
    cached = {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    usage = {"input_tokens": prompt - read - written, "output_tokens": completion, **cached}
    whole = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "content": blocks}
    whole |= {"stop_reason": stop, "stop_sequence": None, "usage": usage}
    begun = whole | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    told: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for at, block in enumerate(blocks):
        empty = {"text": {"text": ""}, "tool_use": {"input": {}}, "thinking": {"thinking": "", "signature": ""}}
        deltas: list[dict[str, Any]] = []
        if block["type"] == "text":
            deltas = [{"type": "text_delta", "text": part} for part in _parts(block["text"])]
        elif block["type"] == "tool_use":
            raw = json.dumps(block["input"], ensure_ascii=False)
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in _parts(raw)]
        elif block["type"] == "thinking":
            deltas = [{"type": f"{key}_delta", key: block[key]} for key in ("thinking", "signature")]
        told.append({"type": "content_block_start", "index": at, "content_block": block | empty.get(block["type"], {})})
        told += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        told.append({"type": "content_block_stop", "index": at})
    told.append({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
    return whole, _events(*told, {"type": "message_stop"})


def chat(
    blocks: list[Block], number: Any, body: dict[str, Any], prompt: int = 20, completion: int = 7, stop: str = ""
) -> Made:
    calls = [{"id": b["id"], "type": "function", "function": _function(b)} for b in blocks if b["type"] == "tool_use"]
    stop, said = stop or ("tool_calls" if calls else "stop"), _said(blocks)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    head = {"id": f"chatcmpl-{number}", "created": 1, "model": body["model"]}

    def logprobs(token: str | None) -> Any:
        if not token or not body.get("logprobs"):
            return None
        among = {"token": token, "logprob": -0.5, "bytes": None}
        return {"content": [among | {"top_logprobs": [among]}], "refusal": None}

    message: dict[str, Any] = {"role": "assistant", "content": said or None, "refusal": None}
    message |= {"tool_calls": calls} if calls else {}
    choice = {"index": 0, "message": message, "finish_reason": stop, "logprobs": logprobs(said)}
    whole = head | {"object": "chat.completion", "choices": [choice], "usage": usage}
    head |= {"object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        told = logprobs(delta.get("content"))
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": told}]}

    told = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": part}) for part in _parts(said))]
    for at, one in enumerate(calls):
        name, arguments = one["function"].values()
        told.append(chunk({"tool_calls": [one | {"index": at, "function": {"name": name, "arguments": ""}}]}))
        pieces = [{"index": at, "function": {"arguments": part}} for part in _parts(arguments)]
        told += [chunk({"tool_calls": [piece]}) for piece in pieces]
    told.append(chunk({}, stop))
    if (body.get("stream_options") or {}).get("include_usage"):
        told.append(head | {"choices": [], "usage": usage})
    return whole, _events(*told, named=False) + b"data: [DONE]\n\n"


def responses(
    blocks: list[Block], number: Any, body: dict[str, Any], prompt: int = 20, completion: int = 7, stop: str = ""
) -> Made:
    output: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        done = {"status": "completed"}
        if block["type"] == "text":
            part = {"type": "output_text", "text": block["text"], "annotations": [], "logprobs": []}
            message = {"type": "message", "id": f"msg_{number}_{at}", "role": "assistant", "content": [part]}
            output.append(message | done)
        elif block["type"] == "tool_use":
            one = {"type": "function_call", "id": f"fc_{number}_{at}", "call_id": block["id"]}
            output.append(one | done | _function(block))
    usage: dict[str, Any] = {"input_tokens": prompt, "input_tokens_details": {"cached_tokens": 0}}
    usage |= {"output_tokens": completion, "output_tokens_details": {"reasoning_tokens": 0}}
    usage["total_tokens"] = prompt + completion
    whole = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": body["model"], "output": output}
    whole |= {"status": stop or "completed", "error": None, "incomplete_details": None, "instructions": None}
    whole |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {}, "usage": usage}
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    told = [{"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")]

    def add(kind: str, **fields: Any) -> None:
        told.append({"type": f"response.{kind}", **fields})

    for at, item in enumerate(output):
        here = {"output_index": at, "item_id": item["id"]}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        add("output_item.added", output_index=at, item=item | empty | {"status": "in_progress"})
        if item["type"] == "message":
            part = item["content"][0]
            said = {"content_index": 0, **here}
            add("content_part.added", part=part | {"text": ""}, **said)
            for piece in _parts(part["text"]):
                add("output_text.delta", delta=piece, logprobs=[], **said)
            add("output_text.done", text=part["text"], logprobs=[], **said)
            add("content_part.done", part=part, **said)
        else:
            for piece in _parts(item["arguments"]):
                add("function_call_arguments.delta", delta=piece, **here)
            add("function_call_arguments.done", arguments=item["arguments"], name=item["name"], **here)
        add("output_item.done", output_index=at, item=item)
    add("completed", response=whole)
    return whole, _events(*({"sequence_number": n} | t for n, t in enumerate(told)))


MAKERS = {"/v1/messages": anthropic, "/v1/chat/completions": chat, "/v1/responses": responses}
