"""Sessions: their settings, their window, their branches, what they cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from calls import ANSWER, CALL, USER, call, history, messages, raises, store
from psycopg.types.json import Jsonb
from refusals import refused, rows


def test_open_session_defaults_and_changes(db: psycopg.Connection, user: str) -> None:
    first = call(db, "open_session", p_user=user, p_session="s")
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["model"], info["project"], info["task"], info["status"], info["turns"]) == (
        "default",
        "global",
        None,
        "active",
        0,
    )
    again = call(
        db,
        "open_session",
        p_user=user,
        p_session="s",
        p_model="gpt-4",
        p_task="knowledge",
        p_metadata=Jsonb({"a": 1, "b": 1}),
        p_settings=Jsonb({"window_steps": 2}),
    )
    assert again == first
    call(
        db,
        "open_session",
        p_user=user,
        p_session="s",
        p_metadata=Jsonb({"b": 2}),
        p_settings=Jsonb({"weak_below": 0.3}),
    )
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["model"], info["context_window"], info["tokenizer"], info["task"]) == (
        "gpt-4",
        8192,
        "cl100k_base",
        "knowledge",
    )
    assert info["metadata"] == {"a": 1, "b": 2} and info["settings"] == {"window_steps": 2, "weak_below": 0.3}
    call(db, "open_session", p_user=user, p_session="s", p_settings=Jsonb({"window_steps": None}))
    assert call(db, "session_info", p_user=user, p_session="s")["settings"] == {"weak_below": 0.3}
    # A session keeps the window it was opened with until its model is changed.
    call(db, "register_model", p_model="own", p_provider="openai", p_context_window=5000, p_max_output=100)
    call(db, "open_session", p_user=user, p_session="s", p_model="own")
    call(db, "register_model", p_model="own", p_provider="openai", p_context_window=9000, p_max_output=100)
    call(db, "open_session", p_user=user, p_session="s", p_task="continuation")
    assert call(db, "session_info", p_user=user, p_session="s")["context_window"] == 5000
    call(db, "open_session", p_user=user, p_session="s", p_model="own")
    assert call(db, "session_info", p_user=user, p_session="s")["context_window"] == 9000
    # A first turn opens it with the model that answered.
    store(db, user, "t", [USER, ANSWER], p_usage={"model": "gpt-4o-2024-11-20"})
    assert call(db, "session_info", p_user=user, p_session="t")["context_window"] == 128000


def test_unregistered_model_counts_as_default(db: psycopg.Connection, user: str) -> None:
    notices: list[str] = []
    db.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    call(db, "open_session", p_user=user, p_session="s", p_model="gpt5-mini")
    assert len(notices) == 1 and 'model "gpt5-mini" is not registered' in notices[0], notices
    assert "near it: " in notices[0] and "gpt-5-mini" in notices[0].split("near it: ")[1], notices
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["context_window"], info["response_tokens"], info["tokenizer"]) == (32768, 4096, "estimate")
    context = call(db, "context", p_user=user, p_session="s", p_query="Hi")
    assert context["warnings"] == notices and context["model"] == "gpt5-mini"
    # The first turn of a session opens it with whatever model answered.
    assert "is not registered" in store(db, user, "t", [USER, ANSWER], p_usage={"model": "hal-9000"})["warnings"][0]
    assert "near it" not in call(db, "context", p_user=user, p_session="t", p_query="Hi")["warnings"][0]
    assert call(db, "count_tokens", p_text="Hello there", p_model="hal-9000") == call(
        db, "estimate_tokens", p_text="Hello there"
    )
    # Registered, and the session opened with it again: no more to say.
    call(db, "register_model", p_model="gpt5-mini", p_provider="openai", p_context_window=64000, p_max_output=4000)
    call(db, "open_session", p_user=user, p_session="s", p_model="gpt5-mini")
    context = call(db, "context", p_user=user, p_session="s", p_query="Hi")
    assert (context["warnings"], context["budget"]) == ([], 60000)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("gpt-5", 400000),
        ("gpt-5-mini-2025-08-07", 400000),
        ("openai/gpt-5.2", 400000),
        ("o3", 200000),
        ("o4-mini", 200000),
        ("models/gemini-2.5-flash", 1048576),
        ("claude-3-7-sonnet-20250219", 200000),
        ("us.anthropic.claude-opus-4-6-20260205-v1:0", 1000000),
        ("claude-opus-4-1", 200000),
        ("meta-llama/Llama-3.3-70B-Instruct", 131072),
        ("meta.llama3-1-70b-instruct-v1:0", 131072),
        ("llama3.1:8b", 131072),
        ("Qwen/Qwen3-32B", 32768),
        ("mistral-large-latest", 262144),
        ("deepseek-chat", 131072),
    ],
)
def test_models_of_today_are_known_by_the_names_they_go_by(
    db: psycopg.Connection, user: str, name: str, window: int
) -> None:
    call(db, "open_session", p_user=user, p_session="s", p_model=name)
    context = call(db, "context", p_user=user, p_session="s", p_query="Hi")
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["context_window"], info["model"], context["warnings"]) == (window, name, [])
    assert 0 < context["budget"] == window - info["response_tokens"]


def test_a_session_has_its_own_window_and_room_for_the_answer(db: psycopg.Connection, user: str) -> None:
    def sizes() -> tuple[int, int, int]:
        info = call(db, "session_info", p_user=user, p_session="s")
        budget = call(db, "context", p_user=user, p_session="s", p_query="Hi")["budget"]
        return info["context_window"], info["response_tokens"], budget

    call(db, "open_session", p_user=user, p_session="s", p_model="gpt-4o", p_response_tokens=1000)
    assert sizes() == (128000, 1000, 127000)
    call(db, "open_session", p_user=user, p_session="s", p_context_window=2000)
    assert sizes() == (2000, 500, 1500)
    call(db, "open_session", p_user=user, p_session="s", p_context_window=3000, p_response_tokens=100)
    assert sizes() == (3000, 100, 2900)
    call(db, "open_session", p_user=user, p_session="s", p_task="knowledge")
    assert sizes() == (3000, 100, 2900)
    call(db, "open_session", p_user=user, p_session="s", p_model="gpt-4o")
    assert sizes() == (128000, 16384, 111616)


def test_how_the_model_is_called_is_kept_and_returned(db: psycopg.Connection, user: str) -> None:
    def asked(session: str) -> tuple[Any, ...]:
        context = call(db, "context", p_user=user, p_session=session, p_query="Hi")
        return context.get("temperature"), context.get("top_p")

    store(db, user, "plain", [USER, ANSWER])
    assert "temperature" not in call(db, "context", p_user=user, p_session="plain", p_query="Hi") and asked(
        "plain"
    ) == (None, None)
    call(db, "open_session", p_user=user, p_session="s", p_temperature="0.7")
    assert asked("s") == (0.7, None)
    call(db, "open_session", p_user=user, p_session="s", p_top_p=1)  # what is not given stays
    call(db, "open_session", p_user=user, p_session="s", p_task="knowledge")
    store(db, user, "s", [USER, ANSWER])
    assert asked("s") == (0.7, 1)
    call(db, "open_session", p_user=user, p_session="s", p_temperature=0)
    call(db, "branch_session", p_user=user, p_session="s", p_new_session="branch")
    assert asked("branch") == (0, 1)
    call(db, "open_session", p_user=user, p_session="branch", p_temperature=2, p_top_p=0)
    assert (asked("s"), asked("branch")) == ((0, 1), (2, 0))
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["temperature"], info["top_p"], info["closed_at"]) == (0, 1, None)
    call(db, "close_session", p_user=user, p_session="s")
    assert call(db, "session_info", p_user=user, p_session="s")["closed_at"] is not None
    for name, value, message in (
        ("p_temperature", "2.1", "temperature must be from 0 to 2, not 2.1"),
        ("p_temperature", "-0.1", "not -0.1"),
        ("p_top_p", "1.01", "top_p must be from 0 to 1, not 1.01"),
        ("p_top_p", "NaN", "not NaN"),
    ):
        refused(db, "open_session", "PM014", message, p_user=user, p_session="new", **{name: value})


def test_the_prompt_is_counted_for_the_model_in_use(db: psycopg.Connection, user: str) -> None:
    prompt = f"You are a careful helper of {user}: {'naïve façade, 日本語. ' * 20}"
    call(db, "open_session", p_user=user, p_session="s", p_model="gpt-4o", p_system_prompt=prompt)
    call(db, "open_session", p_user=user, p_session="s", p_model="gpt-4")
    counted = db.execute("select tokens from _memoir.system_prompts where content = %s", [prompt]).fetchone()[0]
    for model in ("gpt-4o", "gpt-4"):
        tokenizer = db.execute("select _memoir.tokenizer_used((_memoir.model(%s)).tokenizer)", [model]).fetchone()[0]
        assert counted[tokenizer] == call(db, "count_tokens", p_text=prompt, p_model=model)
    assert call(db, "compile_context", p_user=user, p_session="s", p_query="Hi")[0] == {
        "role": "system",
        "content": prompt,
    }
    call(db, "open_session", p_user=user, p_session="s", p_system_prompt="")
    assert call(db, "compile_context", p_user=user, p_session="s", p_query="Hi")[0]["role"] == "user"


def test_closed_sessions_take_no_turns(db: psycopg.Connection, user: str) -> None:
    store(db, user, "s", [USER, ANSWER])
    call(db, "remember", p_user=user, p_content="Seems to like parcels.", p_session="s")
    for _ in range(2):
        call(db, "close_session", p_user=user, p_session="s")
    refused(db, "persist_turn", "PM005", 'session "s" is closed', p_user=user, p_session="s", p_messages=Jsonb([USER]))
    refused(
        db, "append_messages", "PM005", 'session "s" is closed', p_user=user, p_session="s", p_messages=Jsonb([USER])
    )
    refused(db, "open_session", "PM005", 'session "s" is closed', p_user=user, p_session="s", p_task="knowledge")
    assert call(db, "session_info", p_user=user, p_session="s")["status"] == "closed"
    ends, closed = db.execute(
        "select m.expires_at, s.closed_at from _memoir.memory_store m join _memoir.sessions s on s.session_id = m.local_to where s.user_id = (select user_id "
        "from _memoir.users where external_id = %s)",
        [user],
    ).fetchone()
    assert ends - closed == timedelta(hours=24)
    # It can be read, continued under another name, and branched.
    assert len(history(db, user, "s")) == 2
    call(db, "open_session", p_user=user, p_session="s2", p_parent="s")
    call(db, "branch_session", p_user=user, p_session="s", p_new_session="s3")
    assert store(db, user, "s3", [USER])["turn_count"] == 3


def contents(db: psycopg.Connection, user: str, session: str) -> list[tuple[int, str]]:
    return [(m["turn_index"], m["content"]) for m in history(db, user, session)]


def test_branches_share_turns_by_reference(db: psycopg.Connection, user: str) -> None:
    store(db, user, "a", messages("a0", "a1", "a2", "a3"))
    call(db, "branch_session", p_user=user, p_session="a", p_new_session="b", p_at_turn=2)
    turns = rows(db)["conversation_history"]
    assert contents(db, user, "b") == [(0, "a0"), (1, "a1")]
    assert store(db, user, "b", messages("b2", "b3"))["from_turn"] == 2
    store(db, user, "a", messages("a4", "a5"))
    assert rows(db)["conversation_history"] == turns + 4
    # From a branch, behind its own start, before it, at it, and at nothing.
    for name, at, want in (
        ("c", 4, ["a0", "a1", "b2", "b3"]),
        ("d", 1, ["a0"]),
        ("e", 2, ["a0", "a1"]),
        ("f", 0, []),
        ("g", 3, ["a0", "a1", "b2"]),
    ):
        call(db, "branch_session", p_user=user, p_session="b", p_new_session=name, p_at_turn=at)
        own = messages(f"{name}x", f"{name}y") if at != 3 and at != 1 else [ANSWER | {"content": f"{name}x"}]
        assert store(db, user, name, own)["from_turn"] == at
        assert contents(db, user, name) == list(enumerate([*want, *[m["content"] for m in own]]))
        info = call(db, "session_info", p_user=user, p_session=name)
        assert info["turns"] == at + len(own)
    # Running totals go on where the shared turns end.
    for name in "abcdefg":
        assert call(db, "session_info", p_user=user, p_session=name)["tokens"] == sum(
            m["tokens"] + 4 for m in history(db, user, name)
        )
    assert contents(db, user, "a") == list(enumerate(["a0", "a1", "a2", "a3", "a4", "a5"]))
    call(db, "branch_session", p_user=user, p_session="c", p_new_session="h")
    call(db, "branch_session", p_user=user, p_session="h", p_new_session="i", p_at_turn=3)
    assert contents(db, user, "i") == [(0, "a0"), (1, "a1"), (2, "b2")]
    refused(db, "open_session", "PM014", 'session "i" is a branch', p_user=user, p_session="i", p_parent="a")


def test_branches_and_tool_calls(db: psycopg.Connection, user: str) -> None:
    step = {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "call_2"}]}
    results = [{"role": "tool", "tool_call_id": name, "content": "x"} for name in ("call_1", "call_2")]
    store(db, user, "a", [USER, step, *results, ANSWER])
    for at in (2, 3):
        refused(
            db,
            "branch_session",
            "PM014",
            f'turn {at} of session "a" is a tool result',
            p_user=user,
            p_session="a",
            p_new_session="b",
            p_at_turn=at,
        )
    store(db, user, "a", [USER, step], function="append_messages")
    refused(
        db,
        "branch_session",
        "PM014",
        'can\'t branch session "a" at turn 7',
        p_user=user,
        p_session="a",
        p_new_session="b",
    )
    call(db, "branch_session", p_user=user, p_session="a", p_new_session="b", p_at_turn=4)
    # The branch goes on inside the exchange: its calls are answered, the answer is missing.
    assert call(db, "compile_context", p_user=user, p_session="b")[-1]["role"] == "tool"
    refused(
        db,
        "append_messages",
        "PM011",
        "answers no open tool call",
        p_user=user,
        p_session="b",
        p_messages=Jsonb(results),
    )
    store(db, user, "b", [ANSWER, USER])
    starts = db.execute(
        "select array_agg(exchange_start order by turn_index) from _memoir.conversation_history h join _memoir.sessions s using (user_id, session_id) "
        "where s.external_id = 'b' and user_id = (select user_id from _memoir.users where external_id = %s)",
        [user],
    ).fetchone()[0]
    assert starts == [0, 5]
    call(db, "branch_session", p_user=user, p_session="a", p_new_session="c", p_at_turn=6)
    assert call(db, "compile_context", p_user=user, p_session="c")[-1]["role"] == "user"


def test_agent_loops_append_part_by_part(db: psycopg.Connection, user: str) -> None:
    step = {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "call_2"}]}
    assert store(db, user, "s", [USER, step], function="append_messages")["turn_count"] == 2
    assert call(db, "session_info", p_user=user, p_session="s")["open_calls"] == ["call_1", "call_2"]
    refused(
        db,
        "append_messages",
        "PM011",
        "messages[0] (user) comes before the results of tool calls call_1, call_2",
        p_user=user,
        p_session="s",
        p_messages=Jsonb([USER]),
    )
    store(db, user, "s", [{"role": "tool", "tool_call_id": "call_2", "content": "x"}], function="append_messages")
    refused(
        db,
        "persist_turn",
        "PM011",
        "messages[0] (assistant) comes before the results of tool calls call_1",
        p_user=user,
        p_session="s",
        p_messages=Jsonb([ANSWER]),
    )
    done = store(db, user, "s", [{"role": "tool", "tool_call_id": "call_1", "content": "y"}, ANSWER])
    assert (done["from_turn"], done["to_turn"], done["turn_count"], done["mark"]) == (
        3,
        4,
        5,
        f"{done['session_id'][:8]}:5",
    )
    assert call(db, "session_info", p_user=user, p_session="s")["open_calls"] == []


# Costs ----------------------------------------------------------------------------------------------------------------


def test_usage_and_costs(db: psycopg.Connection, user: str) -> None:
    call(
        db,
        "register_model",
        p_model="cheap",
        p_provider="openai",
        p_context_window=8000,
        p_max_output=100,
        p_prompt_microcents_per_1k=1000,
        p_completion_microcents_per_1k=3000,
    )
    call(
        db,
        "register_model",
        p_model="dear",
        p_provider="openai",
        p_context_window=8000,
        p_max_output=100,
        p_prompt_microcents_per_1k=100000,
        p_completion_microcents_per_1k=0,
    )
    call(db, "open_session", p_user=user, p_session="s", p_model="cheap")
    store(
        db,
        user,
        "s",
        [USER, ANSWER],
        p_usage={
            "prompt_tokens": 1500,
            "completion_tokens": 100.0,
            "latency_ms": 40,
            "finish_reason": "stop",
            "total_tokens": 1600,
        },
    )
    store(
        db, user, "s", [USER, ANSWER], p_usage={"model": "dear-2025-01-01", "prompt_tokens": 10}
    )  # a snapshot of "dear"
    store(
        db, user, "s", [USER, ANSWER], p_usage={"model": "unheard-of", "prompt_tokens": 1000}
    )  # costs as the session's
    store(db, user, "s", [USER, ANSWER], p_usage=None)
    info = call(db, "session_info", p_user=user, p_session="s")
    assert (info["prompt_tokens"], info["completion_tokens"], info["cost_microcents"]) == (
        2510,
        100,
        1800 + 1000 + 1000,
    )
    assert db.execute(
        "select array_agg((prompt_tokens, completion_tokens, latency_ms, finish_reason)::text order by turn_index) from _memoir.conversation_history h "
        "join _memoir.users u using (user_id) where u.external_id = %s and turn_index < 2",
        [user],
    ).fetchone()[0] == ["(,,,)", "(1500,100,40,stop)"]


@pytest.mark.parametrize("what", ["session", "user"])
def test_budgets_warn_or_refuse(db: psycopg.Connection, user: str, what: str) -> None:
    call(
        db,
        "register_model",
        p_model="priced",
        p_provider="openai",
        p_context_window=8000,
        p_max_output=100,
        p_prompt_microcents_per_1k=1000,
    )
    call(db, "set_user_settings", p_user=user, p_settings=Jsonb({f"budget_microcents_{what}": 2500}))
    call(db, "open_session", p_user=user, p_session="s", p_model="priced")
    call(db, "open_session", p_user=user, p_session="t", p_model="priced")
    usage = {"prompt_tokens": 1000}
    assert store(db, user, "s", [USER], p_usage=usage)["warnings"] == []
    assert store(db, user, "s" if what == "session" else "t", [USER], p_usage=usage)["warnings"] == []
    assert store(db, user, "s", [USER], p_usage=usage)["warnings"] == [
        f"{what} costs 3000 microcents, its budget is 2500"
    ]
    # Above the limit the next call is refused; what was answered is paid for and stored.
    call(db, "set_user_settings", p_user=user, p_settings=Jsonb({"budget_action": "refuse"}))
    for name in ("compile_context", "context"):
        refused(
            db,
            name,
            "PM023",
            f'{what} "{"s" if what == "session" else user}" has cost 3000 microcents, its budget is 2500',
            p_user=user,
            p_session="s",
            p_query="More?",
        )
    db.execute("select * from memoir.explain_context(%s, 's', 'More?')", [user])  # looking is not calling
    warned = store(db, user, "s", [USER], p_usage=usage)["warnings"]
    assert warned == [f"{what} costs 4000 microcents, its budget is 2500"]
    assert call(db, "session_info", p_user=user, p_session="s")["cost_microcents"] == (
        4000 if what == "session" else 3000
    )
    # Other sessions have a budget of their own; a user's holds for all.
    if what == "session":
        found = call(db, "context", p_user=user, p_session="t", p_query="More?")["warnings"]
        assert not any("budget" in warning for warning in found), found
    else:
        refused(db, "context", "PM023", "its budget is 2500", p_user=user, p_session="t", p_query="More?")
    call(db, "set_user_settings", p_user=user, p_settings=Jsonb({"budget_action": "warn"}))
    assert warned[0] in call(db, "context", p_user=user, p_session="s", p_query="More?")["warnings"]


def test_who_speaks_is_named_where_it_was_said(db: psycopg.Connection, user: str) -> None:
    result = {"role": "tool", "tool_call_id": CALL["id"], "content": "9 °C", "name": CALL["function"]["name"]}
    said = [
        {"role": "user", "content": "How warm is it?", "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        result,
        {"role": "assistant", "content": "Nine degrees.", "name": "bot"},
    ]
    call(db, "persist_turn", p_user=user, p_session="s", p_messages=Jsonb(said))
    shown = call(db, "compile_context", p_user=user, p_session="s", p_query="And tomorrow?")
    assert [message.get("name") for message in shown] == ["Ann", None, CALL["function"]["name"], "bot", None]


def test_cached_tokens_have_their_own_rates(db: psycopg.Connection, user: str) -> None:
    """An agent of 200 steps reads nearly all of its list from the cache. Its provider bills a seventh of the plain price."""
    steps, step, price = 200, 500, 500_000  # claude-opus-4-5: microcents per 1,000 tokens of a prompt
    bill = plain = 0
    for at in range(steps):
        usage = {"prompt_tokens": (at + 1) * step, "cache_read_tokens": at * step, "cache_write_tokens": step}
        store(db, user, "agent", [USER, ANSWER], p_usage=usage | {"model": "claude-opus-4-5", "completion_tokens": 0})
        bill += (at * step // 10 + step * 5 // 4) * price // 1000
        plain += (at + 1) * step * price // 1000
    cost = call(db, "session_info", p_user=user, p_session="agent")["cost_microcents"]
    assert cost == bill and 6 < plain / cost < 10


@pytest.mark.parametrize(
    ("model", "usage", "tokens"),
    [
        ("claude-opus-4-5", {"prompt_tokens": 1000, "cache_write_1h_tokens": 1000}, 2000),
        ("gpt-4o", {"prompt_tokens": 1000, "cache_read_tokens": 1000}, 500),
        ("gpt-4.1", {"prompt_tokens": 1000, "cache_read_tokens": 1000}, 250),
        ("gpt-5", {"prompt_tokens": 1000, "cache_read_tokens": 1000}, 100),
        ("gpt-4", {"prompt_tokens": 1000, "cache_read_tokens": 1000}, 1000),
        ("gpt-5", {"prompt_tokens": 10, "cache_read_tokens": 1000}, 0),  # a server that counts wrongly loses no turn
    ],
)
def test_cache_rates_by_model(
    db: psycopg.Connection, user: str, model: str, usage: dict[str, int], tokens: int
) -> None:
    price = db.execute("select prompt_microcents_per_1k from _memoir.models where model = %s", [model]).fetchone()[0]
    store(db, user, "s", [USER, ANSWER], p_usage=usage | {"model": model})
    assert call(db, "session_info", p_user=user, p_session="s")["cost_microcents"] == tokens * price // 1000


def test_cache_rates_are_registered(db: psycopg.Connection, user: str) -> None:
    register = "select memoir.register_model('own', 'openai', 9000, 900, p_prompt_microcents_per_1k => 1000, "
    db.execute(register + "p_cache_read_rate => 0.3)")
    store(db, user, "s", [USER, ANSWER], p_usage={"model": "own", "prompt_tokens": 1000, "cache_read_tokens": 1000})
    assert call(db, "session_info", p_user=user, p_session="s")["cost_microcents"] == 300
    with raises("PM014"):
        db.execute(register + "p_cache_write_rate => 11)")
