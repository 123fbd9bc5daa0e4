"""The README's examples run as they stand, through the real SDKs, against stubs of the providers."""

import contextlib
import io

from readme import EXAMPLES
from stubs import Answer, ChatCompletionsStub, MessagesStub

CALLS = [("c1", "get_invoice", {"month": "March"}), ("c2", "get_invoice", {"month": "April"})]


def run_example(name, dsn, stub, monkeypatch):
    monkeypatch.setenv("PG_MEMOIR_DSN", dsn)
    for provider in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{provider}_BASE_URL", stub.url)
        monkeypatch.setenv(f"{provider}_API_KEY", "stub")
    scope, output = {}, io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(EXAMPLES[name], f"README.md:{name}", "exec"), scope)
    scope["memoir"].close()
    return output.getvalue()


def test_every_example_is_tested_and_short():
    assert set(EXAMPLES) == {"openai", "anthropic", "wrap", "tools"}
    assert all(len([line for line in code.splitlines() if line.strip()]) <= 18 for code in EXAMPLES.values())
    assert len([line for line in EXAMPLES["openai"].splitlines() if line.strip()]) <= 15


def test_openai(memoir, memoir_dsn, monkeypatch):
    with ChatCompletionsStub(Answer(text="Two issues were billed twice.")) as stub:
        assert run_example("openai", memoir_dsn, stub, monkeypatch) == "Two issues were billed twice.\n"
        assert stub.requests[0]["messages"][0]["role"] == "system"
        assert stub.requests[0]["messages"][-1]["content"].endswith("Why was my March invoice wrong?")
    history = memoir.history("alice", "support-42")
    assert [m["role"] for m in history] == ["user", "assistant"]
    assert history[1]["content"] == "Two issues were billed twice."


def test_anthropic(memoir, memoir_dsn, monkeypatch):
    with MessagesStub(Answer(text="Two issues were billed twice.")) as stub:
        assert run_example("anthropic", memoir_dsn, stub, monkeypatch) == "Two issues were billed twice."
        assert stub.requests[0]["system"][0]["type"] == "text" and stub.requests[0]["messages"][-1]["role"] == "user"
    assert [m["role"] for m in memoir.history("alice", "support-43")] == ["user", "assistant"]


def test_tools(memoir, memoir_dsn, monkeypatch):
    more = [("c3", "get_invoice", {"month": "May"})]
    answers = (Answer(tool_calls=CALLS), Answer(text="One more.", tool_calls=more), Answer(text="21 €."))
    with ChatCompletionsStub(*answers) as stub:
        assert run_example("tools", memoir_dsn, stub, monkeypatch) == "21 €.\n"
        sent = [request["messages"] for request in stub.requests]
    assert len(sent) == 3
    # Each request starts with the one before, byte for byte: that is what a provider's cache needs.
    assert sent[1][: len(sent[0])] == sent[0] and sent[2][: len(sent[1])] == sent[1]
    assert [m["role"] for m in sent[2]] == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    assert len(memoir.history("alice", "support-44")) == 7


def test_wrapped(memoir, memoir_dsn, monkeypatch):
    with ChatCompletionsStub(Answer(text="Two issues were billed twice.")) as stub:
        assert run_example("wrap", memoir_dsn, stub, monkeypatch) == "Two issues were billed twice.\n"
    assert [turn["role"] for turn in memoir.history("alice", "support-45")] == ["user", "assistant"]
