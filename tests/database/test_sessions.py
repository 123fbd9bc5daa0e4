"""Sessions keep their settings, window and branches, count what they cost, and warn or refuse at a budget."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from calls import ANSWER, CALL, USER, Db, call, history, messages, persist, raises, remember, store, table
from internals import count_all_rows
from refusals import check_refusal


def open_session(db: Db, user: str, session: str = "s", **named: Any) -> dict[str, Any]:
    """What session_info says of a session that is opened with these."""
    call(db, "open_session", user, session, **named)
    return dict(call(db, "session_info", user, session))


def context(db: Db, user: str, session: str = "s") -> dict[str, Any]:
    return dict(call(db, "context", user, session, "Hi"))


def register(db: Db, model: str, window: int = 8000, output: int = 100, **named: Any) -> None:
    call(db, "register_model", model, "openai", window, output, **named)


def cost(db: Db, user: str, session: str = "s") -> int:
    return int(call(db, "session_info", user, session)["cost_microcents"])


# Opening --------------------------------------------------------------------------------------------------------------


def test_open_session_defaults_and_changes(db: Db, user: str) -> None:
    info = open_session(db, user)
    shown = [info[key] for key in ("model", "project", "task", "status", "turns")]
    assert shown == ["default", "global", None, "active", 0]
    named: dict[str, Any] = {"metadata": {"a": 1, "b": 1}, "settings": {"window_steps": 2}}
    assert open_session(db, user, model="gpt-4", task="knowledge", **named)["session_id"] == info["session_id"]
    info = open_session(db, user, metadata={"b": 2}, settings={"weak_below": 0.3})
    shown = [info[key] for key in ("model", "context_window", "tokenizer", "task", "metadata", "settings")]
    merged = [{"a": 1, "b": 2}, {"window_steps": 2, "weak_below": 0.3}]
    assert shown == ["gpt-4", 8192, "cl100k_base", "knowledge", *merged]
    assert open_session(db, user, settings={"window_steps": None})["settings"] == {"weak_below": 0.3}
    # A session keeps the window it was opened with until its model is changed.
    register(db, "own", 5000)
    open_session(db, user, model="own")
    register(db, "own", 9000)
    assert open_session(db, user, task="continuation")["context_window"] == 5000
    assert open_session(db, user, model="own")["context_window"] == 9000
    # A first turn opens it with the model that answered.
    store(db, user, "t", [USER, ANSWER], p_usage={"model": "gpt-4o-2024-11-20"})
    assert call(db, "session_info", user, "t")["context_window"] == 128000


def test_unregistered_model_counts_as_default(db: Db, user: str) -> None:
    notices: list[str] = []
    db.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    info = open_session(db, user, model="gpt5-mini")
    assert len(notices) == 1 and 'model "gpt5-mini" is not registered' in notices[0], notices
    assert "gpt-5-mini" in notices[0].split("near it: ")[1], notices
    assert (info["context_window"], info["response_tokens"], info["tokenizer"]) == (32768, 4096, "estimate")
    assert context(db, user)["warnings"] == notices
    # The first turn of a session opens it with whatever model answered.
    assert "is not registered" in store(db, user, "t", [USER, ANSWER], p_usage={"model": "hal-9000"})["warnings"][0]
    register(db, "gpt5-mini", 64000, 4000)
    open_session(db, user, model="gpt5-mini")
    assert (context(db, user)["warnings"], context(db, user)["budget"]) == ([], 60000)


def test_models_are_known_by_the_names_they_go_by(db: Db, user: str) -> None:
    for name, window in (
        ("gpt-5-mini-2025-08-07", 400000),
        ("openai/gpt-5.2", 400000),
        ("o4-mini", 200000),
        ("models/gemini-2.5-flash", 1048576),
        ("claude-3-7-sonnet-20250219", 200000),
        ("us.anthropic.claude-opus-4-6-20260205-v1:0", 1000000),
        ("meta-llama/Llama-3.3-70B-Instruct", 131072),
        ("meta.llama3-1-70b-instruct-v1:0", 131072),
        ("llama3.1:8b", 131072),
        ("Qwen/Qwen3-32B", 32768),
        ("mistral-large-latest", 262144),
        ("deepseek-chat", 131072),
    ):
        info, made = open_session(db, user, name, model=name), context(db, user, name)
        assert (info["context_window"], info["model"], made["warnings"]) == (window, name, [])
        assert 0 < made["budget"] == window - info["response_tokens"]


def test_a_session_has_a_window_and_room_to_answer(db: Db, user: str) -> None:
    for named, sizes in (
        ({"model": "gpt-4o", "response_tokens": 1000}, (128000, 1000)),
        ({"context_window": 2000}, (2000, 500)),
        ({"context_window": 3000, "response_tokens": 100}, (3000, 100)),
        ({"task": "knowledge"}, (3000, 100)),
        ({"model": "gpt-4o"}, (128000, 16384)),
    ):
        info = open_session(db, user, **named)
        assert (info["context_window"], info["response_tokens"]) == sizes, named
        assert context(db, user)["budget"] == sizes[0] - sizes[1]


def test_how_the_model_is_called_is_kept(db: Db, user: str) -> None:
    def ask(session: str = "s", **named: Any) -> tuple[Any, ...]:
        open_session(db, user, session, **named)
        made = context(db, user, session)
        return made.get("temperature"), made.get("top_p")

    store(db, user, "s", [USER, ANSWER])
    assert "temperature" not in context(db, user) and ask(temperature="0.7") == (0.7, None)
    assert ask(top_p=1) == ask(task="knowledge") == (0.7, 1)  # what is not given stays
    assert ask(temperature=0) == (0, 1)
    call(db, "branch_session", user, "s", "branch")
    assert ask("branch") == (0, 1) and (ask("branch", temperature=2, top_p=0), ask()) == ((2, 0), (0, 1))


def test_the_prompt_leads_the_list(db: Db, user: str) -> None:
    """Its tokens are those of the model in use."""
    prompt = f"You are a careful helper of {user}: {'naïve façade, 日本語. ' * 20}"
    for model in ("gpt-4o", "gpt-4"):
        open_session(db, user, model=model, system_prompt=prompt)
        made = context(db, user)
        assert made["messages"][0] == {"role": "system", "content": prompt}
        assert 0 < made["system_tokens"] - call(db, "count_tokens", prompt, model=model) < 10
    open_session(db, user, system_prompt="")
    assert context(db, user)["messages"][0]["role"] == "user"


def test_closed_sessions_take_no_turns(db: Db, user: str) -> None:
    store(db, user, "s", [USER, ANSWER])
    remember(db, user, "Seems to like parcels.", session="s")
    for _ in range(2):
        call(db, "close_session", user, "s")
    says = 'session "s" is closed'
    for name in ("persist_turn", "append_messages"):
        check_refusal(db, name, "PM005", says, user=user, session="s", messages=[USER])
    check_refusal(db, "open_session", "PM005", says, user=user, session="s", task="knowledge")
    info = call(db, "session_info", user, "s")
    assert info["status"] == "closed"
    (ends,) = table(db, "list_memories", user, columns="expires_at")[0]
    assert ends - datetime.fromisoformat(info["closed_at"]) == timedelta(hours=24)
    # It can be read, continued under another name, and branched.
    assert len(history(db, user, "s")) == 2
    open_session(db, user, "s2", parent="s")
    call(db, "branch_session", user, "s", "s3")
    assert store(db, user, "s3", [USER])["turn_count"] == 3


# Branches and steps ---------------------------------------------------------------------------------------------------


def contents(db: Db, user: str, session: str) -> list[tuple[int, str]]:
    return [(m["turn_index"], m["content"]) for m in history(db, user, session)]


def test_branches_share_turns_by_reference(db: Db, user: str) -> None:
    store(db, user, "a", messages("a0", "a1", "a2", "a3"))
    call(db, "branch_session", user, "a", "b", 2)
    turns = count_all_rows(db)["conversation_history"]
    assert contents(db, user, "b") == [(0, "a0"), (1, "a1")]
    assert store(db, user, "b", messages("b2", "b3"))["from_turn"] == 2
    store(db, user, "a", messages("a4", "a5"))
    assert count_all_rows(db)["conversation_history"] == turns + 4
    # From a branch, behind its own start, before it, at it, and at nothing.
    branches = {"c": ["a0", "a1", "b2", "b3"], "d": ["a0"], "e": ["a0", "a1"], "f": [], "g": ["a0", "a1", "b2"]}
    for name, want in branches.items():
        at = len(want)
        call(db, "branch_session", user, "b", name, at)
        own = [ANSWER | {"content": f"{name}x"}] if at in (1, 3) else messages(f"{name}x", f"{name}y")
        assert store(db, user, name, own)["from_turn"] == at
        assert contents(db, user, name) == list(enumerate([*want, *[m["content"] for m in own]]))
        assert call(db, "session_info", user, name)["turns"] == at + len(own)
    # Running totals go on where the shared turns end.
    for name in "abcdefg":
        total = sum(m["tokens"] + 4 for m in history(db, user, name))
        assert call(db, "session_info", user, name)["tokens"] == total
    assert contents(db, user, "a") == list(enumerate(["a0", "a1", "a2", "a3", "a4", "a5"]))
    call(db, "branch_session", user, "c", "h")
    call(db, "branch_session", user, "h", "i", 3)
    assert contents(db, user, "i") == [(0, "a0"), (1, "a1"), (2, "b2")]
    check_refusal(db, "open_session", "PM014", 'session "i" is a branch', user=user, session="i", parent="a")


STEP = {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "call_2"}]}
RESULTS = [{"role": "tool", "tool_call_id": name, "content": "x"} for name in ("call_1", "call_2")]


def test_branches_keep_calls_and_results_together(db: Db, user: str) -> None:
    branch = {"user": user, "session": "a", "new_session": "b"}
    store(db, user, "a", [USER, STEP, *RESULTS, ANSWER])
    for at in (2, 3):
        says = f'turn {at} of session "a" is a tool result'
        check_refusal(db, "branch_session", "PM014", says, **branch, at_turn=at)
    store(db, user, "a", [USER, STEP], function="append_messages")
    check_refusal(db, "branch_session", "PM014", 'can\'t branch session "a" at turn 7', **branch)
    call(db, "branch_session", user, "a", "b", 4)
    # The branch goes on inside the exchange: its calls are answered, the answer is missing.
    assert call(db, "compile_context", user, "b")[-1]["role"] == "tool"
    check_refusal(db, "append_messages", "PM011", "answers no open tool call", user=user, session="b", messages=RESULTS)
    store(db, user, "b", [ANSWER, USER])
    call(db, "branch_session", user, "a", "c", 6)
    for session in ("b", "c"):
        assert call(db, "compile_context", user, session)[-1]["role"] == "user"


def test_agent_loops_append_part_by_part(db: Db, user: str) -> None:
    """A name is shown where it was said."""

    def open_calls() -> list[str]:
        return list(call(db, "session_info", user, "s")["open_calls"])

    where = {"user": user, "session": "s"}
    assert store(db, user, "s", [USER, STEP], function="append_messages")["turn_count"] == 2
    assert open_calls() == ["call_1", "call_2"]
    says = "messages[0] (user) comes before the results of tool calls call_1, call_2"
    check_refusal(db, "append_messages", "PM011", says, **where, messages=[USER])
    store(db, user, "s", RESULTS[1:], function="append_messages")
    says = "messages[0] (assistant) comes before the results of tool calls call_1"
    check_refusal(db, "persist_turn", "PM011", says, **where, messages=[ANSWER])
    done = store(db, user, "s", [RESULTS[0], ANSWER])
    mark = f"{done['session_id'][:8]}:5"
    assert [done[key] for key in ("from_turn", "to_turn", "turn_count", "mark")] == [3, 4, 5, mark]
    assert open_calls() == []
    tool = CALL["function"]["name"]
    asked = {"role": "user", "content": "How warm is it?", "name": "Ann"}
    step = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    persist(db, user, "named", asked, step, RESULTS[0] | {"name": tool}, ANSWER | {"name": "bot"})
    shown = call(db, "compile_context", user, "named", "And tomorrow?")
    assert [message.get("name") for message in shown] == ["Ann", None, tool, "bot", None]


# Costs ----------------------------------------------------------------------------------------------------------------


def test_usage_and_costs(db: Db, user: str) -> None:
    register(db, "cheap", prompt_microcents_per_1k=1000, completion_microcents_per_1k=3000)
    register(db, "dear", prompt_microcents_per_1k=100000, completion_microcents_per_1k=0)
    open_session(db, user, model="cheap")
    for usage in (
        {"prompt_tokens": 1500, "completion_tokens": 100.0, "latency_ms": 40, "total_tokens": 1600},
        {"model": "dear-2025-01-01", "prompt_tokens": 10},  # a snapshot of "dear"
        {"model": "unheard-of", "prompt_tokens": 1000},  # costs as the session's
        None,
    ):
        store(db, user, "s", [USER, ANSWER], p_usage=usage)
    info = call(db, "session_info", user, "s")
    shown = [info[key] for key in ("prompt_tokens", "completion_tokens", "cost_microcents")]
    assert shown == [2510, 100, 1800 + 1000 + 1000]


@pytest.mark.parametrize("what", ["session", "user"])
def test_budgets_warn_or_refuse(db: Db, user: str, what: str) -> None:
    """Above the limit the next call is refused. An answered turn is paid for and stored."""
    register(db, "priced", prompt_microcents_per_1k=1000)
    call(db, "set_user_settings", user, {f"budget_microcents_{what}": 2500})
    for name in ("s", "t"):
        open_session(db, user, name, model="priced")

    def pay(session: str = "s") -> list[str]:
        return list(store(db, user, session, [USER], p_usage={"prompt_tokens": 1000})["warnings"])

    assert pay() == [] == pay("s" if what == "session" else "t")
    assert pay() == [f"{what} costs 3000 microcents, its budget is 2500"]
    call(db, "set_user_settings", user, {"budget_action": "refuse"})
    name = "s" if what == "session" else user
    asked = {"user": user, "session": "s", "query": "More?"}
    for function in ("compile_context", "context"):
        says = f'{what} "{name}" has cost 3000 microcents, its budget is 2500'
        check_refusal(db, function, "PM023", says, **asked)
    table(db, "explain_context", user, "s", "More?")  # looking is not calling
    assert pay() == [f"{what} costs 4000 microcents, its budget is 2500"]
    assert cost(db, user) == (4000 if what == "session" else 3000)
    # Other sessions have a budget of their own; a user's holds for all.
    if what == "session":
        assert not any("budget" in warning for warning in context(db, user, "t")["warnings"])
    else:
        check_refusal(db, "context", "PM023", "its budget is 2500", **asked | {"session": "t"})
    call(db, "set_user_settings", user, {"budget_action": "warn"})
    assert f"{what} costs 4000 microcents, its budget is 2500" in context(db, user)["warnings"]


def test_cached_tokens_have_their_own_rates(db: Db, user: str) -> None:
    """An agent of 40 steps reads nearly all of its list from the cache. Its provider bills a part of the plain price."""
    steps, step, price = 40, 500, 500_000  # claude-opus-4-5: microcents per 1,000 tokens of a prompt
    bill = plain = 0
    for at in range(steps):
        usage = {"prompt_tokens": (at + 1) * step, "cache_read_tokens": at * step, "cache_write_tokens": step}
        store(db, user, "s", [USER, ANSWER], p_usage=usage | {"model": "claude-opus-4-5", "completion_tokens": 0})
        bill += (at * step // 10 + step * 5 // 4) * price // 1000
        plain += (at + 1) * step * price // 1000
    assert cost(db, user) == bill < plain / 5


def test_cache_rates_by_model(db: Db, user: str) -> None:
    register(db, "own", prompt_microcents_per_1k=1000, cache_read_rate="0.3")
    plain, read = {"prompt_tokens": 1000}, {"prompt_tokens": 1000, "cache_read_tokens": 1000}
    for number, (model, usage, tokens) in enumerate(
        (
            ("claude-opus-4-5", plain | {"cache_write_1h_tokens": 1000}, 2000),
            ("gpt-4o", read, 500),
            ("gpt-5", read, 100),
            ("gpt-4", read, 1000),
            ("own", read, 300),
            ("gpt-5", read | {"prompt_tokens": 10}, 0),  # a server that counts wrongly loses no turn
        )
    ):
        store(db, user, f"plain {number}", [USER, ANSWER], p_usage=plain | {"model": model})
        store(db, user, f"s {number}", [USER, ANSWER], p_usage=usage | {"model": model})
        assert cost(db, user, f"s {number}") == tokens * cost(db, user, f"plain {number}") // 1000, model
    with raises("PM014"):
        register(db, "own", cache_write_rate=11)
