"""A result that says what an earlier one says is sent as a word, as long as the earlier one is sent whole."""

import json
from typing import Any

import pytest
from answers import call, text
from pg_memoir_gateway.copies import edit_copies
from pg_memoir_gateway.forms import Forms
from pg_memoir_gateway.spans import apply_edits, body_of
from pg_memoir_gateway.talk import DIALECTS, Talk
from request_rules import problems

FILE = "\n".join(f"line {n}: {n * n}" for n in range(200))
REMINDER = "\n\n<system-reminder>\n{} tokens left\n</system-reminder>"


def make_list(path: str, results: list[Any]) -> list[dict[str, Any]]:
    """A question, and a step for each result."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    for n, result in enumerate(results):
        if path == "/v1/messages":
            said.append({"role": "assistant", "content": [call("read", f"c{n}", path="a.py")]})
            block = {"type": "tool_result", "tool_use_id": f"c{n}", "content": result}
            said.append({"role": "user", "content": [block, text("Go on.")]})
        elif path == "/v1/chat/completions":
            asked = [{"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}}]
            said.append({"role": "assistant", "content": None, "tool_calls": asked})
            said.append({"role": "tool", "tool_call_id": f"c{n}", "content": result})
        else:
            said.append({"type": "function_call", "call_id": f"c{n}", "name": "read", "arguments": "{}"})
            said.append({"type": "function_call_output", "call_id": f"c{n}", "output": result})
    return said


def send(path: str, results: list[Any], forms: Forms, **fields: Any) -> list[str]:
    """Returns each result of a request with these other fields as it is sent."""
    said, key = make_list(path, results), DIALECTS[path].key
    tools: list[dict[str, Any]] = [{"name": "read", "input_schema": {"type": "object"}}]
    if path != "/v1/messages":
        tools = [{"type": "function", "name": "read", "function": {"name": "read"}}]
    body = body_of(json.dumps({"model": "m", "max_tokens": 9, "tools": tools, key: said, **fields}).encode())
    talk = Talk("ann", "manage", "", "main", "s", DIALECTS[path], body, said, [])
    raw = apply_edits(body.text, edit_copies(talk, forms))
    assert problems(path, raw.encode()) == []
    made = json.loads(raw)[key]
    assert len(made) == len(said)
    if path == "/v1/messages":
        return [one["content"][0]["content"] for one in made[2::2]]
    return [one.get("output", one.get("content")) for one in made[2::2]]


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize(
    ("results", "forms", "copies"),
    [
        ([FILE, FILE, FILE], {}, {1: "c0", 2: "c0"}),
        ([FILE, FILE + "!", FILE + "\t"], {}, {2: "c0"}),
        ([FILE, FILE, FILE], {"results": {"c0": "[compact]"}}, {2: "c1"}),
        ([FILE, FILE, FILE], {"lines": {"c0": "line", "c1": "line"}}, {}),
        ([FILE[:900], FILE[:900]], {}, {}),
        ([FILE + REMINDER.format(9), FILE + REMINDER.format(8)], {}, {1: "c0"}),
    ],
    ids=["copies", "another text", "first has a form", "two are lines", "short", "reminders differ"],
)
def test_copies_name_the_whole_result(path: str, results: list[str], forms: Any, copies: dict[int, str]) -> None:
    sent = send(path, results, Forms(**forms))
    for n, (result, given) in enumerate(zip(sent, results, strict=True)):
        if n not in copies:
            assert result == given
            continue
        assert f"the result of call {copies[n]} above, 200 lines" in result and len(result) < 200
        assert result.partition("\n\n")[2] == given.partition("\n\n")[2], "the reminder stays"


def test_copies_stay_where_a_provider_clears() -> None:
    edits = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    assert send("/v1/messages", [FILE, FILE], Forms(), context_management=edits) == [FILE, FILE]
    assert send("/v1/responses", [FILE, FILE], Forms(), truncation="auto") == [FILE, FILE]


def test_copies_of_pictures_stay() -> None:
    """Only texts are compared, and only calls that an id tells apart."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    parts = [text(FILE), picture]
    assert send("/v1/messages", [parts, parts, [text(FILE)], FILE], Forms())[:3] == [parts, parts, [text(FILE)]]
    assert "result of call c2 above" in send("/v1/messages", [parts, parts, [text(FILE)], FILE], Forms())[3]
