"""Steps that the database shows as lines leave a client's list, whatever the API, and what stays is a valid request."""

import json
from typing import Any

import pytest
from answers import call, text, thought
from pg_memoir_gateway.forms import Forms, Shown, count_budget, count_fixed, edit_forms, mark_cache, read_forms
from pg_memoir_gateway.spans import apply_edits, body_of
from pg_memoir_gateway.talk import DIALECTS, Talk
from request_rules import problems

LINES = "<memoir-steps>\n- turn 2: read a.py → object 3f2a91bc\n</memoir-steps>"
ROW = {"fidelity": "line", "role": "user", "tool_call_id": None, "content": LINES}


def answer(ident: str, said: str = "found") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": said}


def anthropic() -> list[dict[str, Any]]:
    """A question, four steps (the second with a thought, the third with a remark of the person), the end."""
    said = [{"role": "user", "content": "Look at all files."}]
    said.append({"role": "assistant", "content": [call("read", "c1", path="a.py"), call("read", "c2", path="b.py")]})
    said.append({"role": "user", "content": [answer("c1"), answer("c2")]})
    said.append({"role": "assistant", "content": [thought("Hm."), call("read", "c3", path="c.py")]})
    said.append({"role": "user", "content": [answer("c3")]})
    said.append({"role": "assistant", "content": [text("And then?"), call("read", "c4", path="d.py")]})
    said.append({"role": "user", "content": [answer("c4"), text("Mind the tests, please.")]})
    said.append({"role": "assistant", "content": [call("read", "c5", path="e.py")]})
    return [*said, {"role": "user", "content": [answer("c5")]}]


def chat() -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "Look."}]
    for ident in ("c1", "c2", "c3", "c4"):
        function = {"name": "read", "arguments": "{}"}
        asked = [{"id": ident, "type": "function", "function": function}]
        said.append({"role": "assistant", "content": None, "tool_calls": asked})
        said.append({"role": "tool", "tool_call_id": ident, "content": "found"})
    return said


def responses() -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "Look."}]
    for ident in ("c1", "c2", "c3", "c4"):
        said.append({"type": "reasoning", "id": f"rs_{ident}", "summary": [], "encrypted_content": "x"})
        said.append({"type": "function_call", "call_id": ident, "name": "read", "arguments": "{}"})
        said.append({"type": "function_call_output", "call_id": ident, "output": "found"})
    return said


LISTS = {"/v1/messages": anthropic(), "/v1/chat/completions": chat(), "/v1/responses": responses()}


def sent(path: str, calls: list[str]) -> tuple[list[dict[str, Any]], str]:
    """The list with these calls as lines, and the whole request."""
    dialect = DIALECTS[path]
    tools: list[dict[str, Any]] = [{"name": "read", "input_schema": {"type": "object"}}]
    if path != "/v1/messages":
        tools = [{"type": "function", "name": "read", "function": {"name": "read"}}]
    body = body_of(json.dumps({"model": "m", "max_tokens": 9, "tools": tools, dialect.key: LISTS[path]}).encode())
    talk = Talk("ann", "manage", "", "main", "s", dialect, body, LISTS[path], [])
    forms = read_forms([ROW | {"argument": calls}])
    raw = apply_edits(body.text, edit_forms(talk, forms))
    return json.loads(raw)[dialect.key], raw


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_steps_leave_a_list_that_stays_valid(path: str, count: int) -> None:
    calls = [f"c{n + 1}" for n in range(count + (path == "/v1/messages"))]
    made, raw = sent(path, calls)
    assert problems(path, raw.encode()) == []
    assert raw.count("memoir-steps>\\n") == 1 and len(made) < len(LISTS[path])
    assert not any(f'"{name}"' in raw for name in calls) and made[-1] == LISTS[path][-1]
    assert made[: 1 + (path == "/v1/chat/completions")] == LISTS[path][: 1 + (path == "/v1/chat/completions")]
    if path == "/v1/messages":
        assert ("Mind the tests, please." in raw) and (
            count < 3 or made[2]["content"] == [text("Mind the tests, please.")]
        )


def test_step_with_an_open_call_stays() -> None:
    """A message goes with all of its calls or not at all."""
    made, raw = sent("/v1/messages", ["c1"])
    assert made == LISTS["/v1/messages"] and "memoir-steps" not in raw
    assert Forms().lines == {} and sent("/v1/messages", [])[0] == LISTS["/v1/messages"]


def test_cache_mark_stands_before_the_newest_lines() -> None:
    said = json.loads(json.dumps(LISTS["/v1/messages"]))
    said[0]["content"], said[-1]["content"][-1]["cache_control"] = [text("Look.")], {"type": "ephemeral", "ttl": "1h"}
    body = body_of(json.dumps({"model": "m", "max_tokens": 9, "messages": said}).encode())
    talk = Talk("ann", "manage", "", "main", "s", DIALECTS["/v1/messages"], body, said, [])
    for content, marked in ((LINES, [0, 0]), (f"{LINES}\n\n{LINES}", [1, 0])):
        changed = edit_forms(talk, read_forms([ROW | {"argument": ["c1", "c2"], "content": content}]))
        made = json.loads(apply_edits(body.text, mark_cache(talk, changed, Shown())))["messages"]
        at = [(n, k) for n, one in enumerate(made) for k, b in enumerate(one["content"]) if "cache_control" in b]
        assert at[0] == tuple(marked) and len(made[1]["content"]) == 1 + marked[0], content


def marks_with_lines(*marked: tuple[int, dict[str, str]]) -> list[int]:
    """The messages with a mark, where the client marks the last block of these and the first two steps become lines."""
    said = json.loads(json.dumps(LISTS["/v1/messages"]))
    said[0]["content"] = [text("Look.")]
    for number, mark in marked:
        said[number]["content"][-1]["cache_control"] = mark
    body = body_of(json.dumps({"model": "m", "max_tokens": 9, "messages": said}).encode())
    talk = Talk("ann", "manage", "", "main", "s", DIALECTS["/v1/messages"], body, said, [])
    changed = edit_forms(talk, read_forms([ROW | {"argument": ["c1", "c2"]}]))
    raw = apply_edits(body.text, mark_cache(talk, changed, Shown()))
    made = json.loads(raw)["messages"]
    found = [n for n, one in enumerate(made) if any("cache_control" in block for block in one["content"])]
    assert raw.count('"cache_control"') == len(found)
    return found


def test_cache_mark_is_set_once_in_a_block() -> None:
    short = {"type": "ephemeral"}
    assert marks_with_lines((8, short)) == [0, 7]
    assert marks_with_lines((0, short), (8, short)) == [0, 7]


def test_cache_mark_keeps_the_order_of_ttls() -> None:
    """A copy of the last mark would stand before a longer one."""
    short, long = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
    assert marks_with_lines((4, long), (8, short)) == [3, 7]
    assert marks_with_lines((4, short), (8, {"type": "ephemeral", "ttl": "5m"})) == [0, 3, 7]


def test_an_id_of_several_calls_tells_none() -> None:
    said = LISTS["/v1/chat/completions"]
    again = json.loads(json.dumps(said[-2:]).replace("c4", "c1"))
    talk = Talk("ann", "manage", "", "main", "s", DIALECTS["/v1/chat/completions"], body_of(
        json.dumps({"model": "m", "messages": [*said, *again]}).encode()), [*said, *again], [])  # fmt: skip
    forms = read_forms([ROW | {"argument": ["c1", "c2"]}])
    made = json.loads(apply_edits(talk.body.text, edit_forms(talk, forms)))["messages"]
    assert made[-2:] == again and made[2:4] == said[2:4] and not any("c2" in json.dumps(one) for one in made)


@pytest.mark.parametrize(("path", "field"), [("/v1/messages", "system"), ("/v1/responses", "instructions")])
def test_fixed_tokens_are_prompt_and_tools(path: str, field: str) -> None:
    dialect = DIALECTS[path]

    def fixed(prompt: str, tools: list[dict[str, Any]]) -> Talk:
        given = {"model": "m", "max_tokens": 1_000, dialect.key: LISTS[path], field: prompt, "tools": tools}
        return Talk("ann", "manage", "", "main", "s", dialect, body_of(json.dumps(given).encode()), LISTS[path], [])

    tool = {"name": "read", "description": "y" * 3_964}
    assert count_fixed(fixed("x" * 3_996, [])) == 1_000 and count_fixed(fixed("", [tool])) == 1_000
    assert count_budget(fixed("x" * 3_996, []), 100_000) == 98_000


def test_fixed_tokens_have_what_a_client_sets_before() -> None:
    """Reminders around the first question are not stored, and neither is a system message of a list."""
    reminder = f"<system-reminder>\n{'x' * 3_960}\n</system-reminder>"

    def fixed(path: str, said: list[dict[str, Any]]) -> int:
        body = body_of(json.dumps({"model": "m", DIALECTS[path].key: said}).encode())
        return count_fixed(Talk("ann", "manage", "claude-code", "main", "s", DIALECTS[path], body, said, []))

    first = {"role": "user", "content": [text(reminder), text("Look at all files.")]}
    later = {"role": "user", "content": [text(reminder), text("Go on.")]}
    assert fixed("/v1/messages", [first, {"role": "assistant", "content": "Done."}, later]) == len(reminder) // 4
    system = {"role": "system", "content": "y" * 3_968}
    assert fixed("/v1/chat/completions", [system, {"role": "user", "content": "Hello."}]) == 1_000
