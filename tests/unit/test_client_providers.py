"""SDK answers become messages to persist: both real SDKs against local stubs, plain and streamed."""

import asyncio
from itertools import product

import anthropic
import openai
import pg_memoir
import pytest
from pg_memoir import Reply, ToolCall, from_anthropic, from_openai, tool_result
from stubs import Answer, ChatCompletionsStub, MessagesStub

CALLS = [("call_1", "get_invoice", {"month": "March", "größe": "ü"}), ("call_2", "list_plans", {})]
LOOKING = Answer(text="Let me look.", tool_calls=CALLS)
ANSWERS = [Answer(text="Your invoice is wrong: 日本語 ✓."), LOOKING, Answer(tool_calls=CALLS[:1])]
ASK = [{"role": "user", "content": "Why?"}]


def check(reply: Reply, answer: Answer, **cached: int) -> None:
    calls = [ToolCall(*call) for call in answer.tool_calls]
    usage = {"model": "some-model", "prompt_tokens": 11, "completion_tokens": 7, "latency_ms": 120} | cached
    usage["finish_reason"] = "tool_calls" if calls else "stop"
    assert (reply.text, reply.tool_calls, reply.usage) == (answer.text or "", calls, usage)
    assert reply.message["role"] == "assistant" and ("tool_calls" in reply.message) == bool(calls)
    assert reply.message["content"] == (answer.text or None)


@pytest.mark.parametrize("answer", ANSWERS, ids=["text", "text and calls", "calls"])
@pytest.mark.parametrize("how", ["object", "dict", "stream", "list"])
def test_openai(answer, how):
    with ChatCompletionsStub(answer) as stub:
        client = openai.OpenAI(base_url=stub.url, api_key="stub")
        if how in ("object", "dict"):
            response = client.chat.completions.create(model="some-model", messages=ASK)
            response = response.model_dump() if how == "dict" else response
        else:
            asked = {"model": "some-model", "messages": ASK, "stream_options": {"include_usage": True}}
            response = client.chat.completions.create(stream=True, **asked)
            response = list(response) if how == "list" else response
        check(from_openai(response, latency_ms=120), answer)


@pytest.mark.parametrize("stream", [False, True])
def test_openai_says_how_sure_it_was(stream):
    with ChatCompletionsStub(ANSWERS[0]) as stub:
        client = openai.OpenAI(base_url=stub.url, api_key="stub")
        asked = {"model": "some-model", "messages": ASK, "stream": stream}
        told = from_openai(client.chat.completions.create(**asked, logprobs=True)).message["logprobs"]["content"]
        assert "".join(token["token"] for token in told) == ANSWERS[0].text
        assert told[0] | {"token": ""} == {"token": "", "logprob": -0.5, "top_logprobs": told[0]["top_logprobs"]}
        assert told[0]["top_logprobs"] == [{"token": told[0]["token"], "logprob": -0.5}]
        assert "logprobs" not in from_openai(client.chat.completions.create(**asked)).message


@pytest.mark.parametrize("answer", ANSWERS, ids=["text", "text and calls", "calls"])
@pytest.mark.parametrize("how", ["object", "dict", "events", "helper", "final"])
def test_anthropic(answer, how):
    with MessagesStub(answer) as stub:
        client = anthropic.Anthropic(base_url=stub.url, api_key="stub")
        request = dict(model="some-model", max_tokens=100, messages=ASK)
        if how in ("object", "dict"):
            response = client.messages.create(**request)
            reply = from_anthropic(response.model_dump() if how == "dict" else response, latency_ms=120)
        elif how == "events":
            reply = from_anthropic(client.messages.create(**request, stream=True), latency_ms=120)
        else:
            with client.messages.stream(**request) as stream:
                reply = from_anthropic(stream if how == "helper" else stream.get_final_message(), latency_ms=120)
        check(reply, answer, cache_read_tokens=1)


def test_async_streams_are_collected_first():
    async def openai_chunks(url):
        # A client left open is closed by a later test's event loop, which fails that test.
        async with openai.AsyncOpenAI(base_url=url, api_key="stub") as client:
            stream = await client.chat.completions.create(model="some-model", messages=ASK, stream=True)
            with pytest.raises(TypeError, match="async stream"):
                from_openai(stream)
            return from_openai([chunk async for chunk in stream])

    async def anthropic_events(url):
        async with (
            anthropic.AsyncAnthropic(base_url=url, api_key="stub") as client,
            client.messages.stream(model="some-model", max_tokens=9, messages=ASK) as stream,
        ):
            return from_anthropic([event async for event in stream])

    with ChatCompletionsStub(ANSWERS[1]) as stub:
        reply = asyncio.run(openai_chunks(stub.url))
        assert reply.text == ANSWERS[1].text and len(reply.tool_calls) == 2 and "prompt_tokens" not in reply.usage
    with MessagesStub(ANSWERS[1]) as stub:
        reply = asyncio.run(anthropic_events(stub.url))
        assert reply.text == ANSWERS[1].text and reply.tool_calls[0].arguments == CALLS[0][2]


def test_replies_continue_a_conversation():
    """The reply and its tool results, sent back as they are, pass the provider's own checks."""
    with ChatCompletionsStub(ANSWERS[1], Answer(text="Done.")) as stub:
        client = openai.OpenAI(base_url=stub.url, api_key="stub")
        reply = from_openai(client.chat.completions.create(model="some-model", messages=ASK))
        results = [tool_result(call, {"answer": call.name}) for call in reply.tool_calls]
        response = client.chat.completions.create(model="some-model", messages=[*ASK, reply.message, *results])
        assert from_openai(response).text == "Done."
        result = {"role": "tool", "tool_call_id": "call_1", "content": '{"answer": "get_invoice"}'}
        assert stub.requests[1]["messages"][2] == result


def test_odd_answers():
    whole = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "not json"}}
    chunks = [{"model": "m", "choices": [{"delta": {"tool_calls": [whole]}, "finish_reason": "tool_calls"}]}]
    assert from_openai(chunks).tool_calls == [ToolCall("c1", "f", {})]  # a server that sends no index
    assert from_openai({"choices": [{"message": {"content": None, "refusal": "No."}}]}).text == "No."
    assert from_openai({"choices": [{"message": {"content": None}}]}).message["content"] == ""
    assert from_anthropic({"content": [], "stop_reason": "refusal"}).usage == {"finish_reason": "content_filter"}
    call = {"id": "t", "name": "f"}
    cut = [
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "input": {}} | call},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a": '}},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 5}},
    ]
    reply = from_anthropic(cut)
    assert reply.message["tool_calls"][0]["function"]["arguments"] == '{"a": '
    assert reply.message["content"] == [{"type": "thinking", "thinking": "hm"}] and reply.text == ""
    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    thought = from_anthropic({"content": [signed, {"type": "text", "text": "Yes."}]})
    assert thought.message["content"] == [signed, {"type": "text", "text": "Yes."}] and thought.text == "Yes."
    assert reply.usage == {"model": "m", "prompt_tokens": 3, "completion_tokens": 5, "finish_reason": "length"}
    for empty, read in product(({}, []), (from_openai, from_anthropic)):
        with pytest.raises((ValueError, TypeError)):
            read(empty)


def test_the_answers_of_responses():
    output = [
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x": 1}'},
    ]
    response = {"model": "gpt-4o", "output": output, "usage": {"input_tokens": 5, "output_tokens": 3}}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    for given in (response, [{"type": "response.created"}, {"type": "response.completed", "response": response}]):
        reply = pg_memoir.from_responses(given)
        assert reply.message == {"role": "assistant", "content": "Let me see.", "tool_calls": [call]}
        told = {"prompt_tokens": 5, "completion_tokens": 3, "finish_reason": "tool_calls"}
        assert reply.usage == {"model": "gpt-4o"} | told
    cut = response | {"output": output[1:2], "incomplete_details": {"reason": "max_output_tokens"}}
    assert pg_memoir.from_responses(cut).usage["finish_reason"] == "length"
    with pytest.raises(ValueError, match="no whole response"):
        pg_memoir.from_responses([{"type": "response.created"}])


def test_input_items_and_back():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "auto"}}]},
        {"role": "assistant", "content": "One moment.", "tool_calls": [call, call | {"id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {"role": "assistant", "content": "Done."},
    ]  # fmt: skip
    assert pg_memoir.from_input_items(pg_memoir.to_input_items(messages)) == messages
    assert pg_memoir.from_input_items("Hello") == [{"role": "user", "content": "Hello"}]
    opaque = [{"type": "reasoning", "summary": []}, {"type": "compaction", "encrypted_content": "x"}]
    assert pg_memoir.from_input_items(opaque) == []


def test_anthropics_messages():
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hm."}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
            {"type": "text", "text": "And this?"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        ]},
    ]  # fmt: skip
    call = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert pg_memoir.from_anthropic_messages(messages) == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "And this?"}, image]},
    ]
