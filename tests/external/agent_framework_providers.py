"""Agents of the Microsoft Agent Framework with our providers: its own run loop, a chat client that answers by script.

PG_MEMOIR_DSN=... python -m pytest -c /dev/null --noconftest tests/external/agent_framework_providers.py
"""

import asyncio
import os
import uuid
from collections.abc import Sequence
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message
from pg_memoir import AsyncMemoir, Memoir
from pg_memoir_integrations.agent_framework import MemoirContextProvider, MemoirHistoryProvider, to_messages

DSN = os.environ["PG_MEMOIR_DSN"]
MEMOIR = Memoir(DSN, max_size=4)
CALLS = [Content.from_function_call(name, "look", arguments={"at": name}) for name in ("one", "two")]
IMAGE = "data:image/png;base64,iVBORw0KGgo="
RICH = [
    Message("system", ["You are a librarian."], message_id="m0"),
    Message("user", ["Which lighthouse\0 is this?", Content.from_uri(IMAGE)], author_name="Ann Lee"),
    Message("assistant", [Content.from_text_reasoning(text="hm", protected_data="x"), *CALLS]),
    Message("tool", [Content.from_function_result("one", result="A red one.")]),
    Message("tool", [Content.from_function_result("two", result={"on": "Anholt"})], additional_properties={"n": 1.5}),
    Message("assistant", ["Anholt's."]),
    Message("user", [Content.from_uri("https://x/y.pdf", media_type="application/pdf"), "And this?"]),
]
TURNS = ["system", "user", "assistant", "tool", "tool", "assistant", "user"]


def somebody() -> str:
    return f"maf-{uuid.uuid4()}"


class Scripted(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]
    """A chat client that notes what it gets and answers the script."""

    def __init__(self, *script: Message) -> None:
        super().__init__()
        self.script, self.seen = list(script), []  # type: ignore[var-annotated]

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any) -> Any:
        async def answer() -> ChatResponse:
            self.seen.append(list(messages))
            return ChatResponse(messages=[self.script.pop(0)])

        return answer()


def look(at: str) -> str:
    """Looks at something."""
    return f"saw {at}"


async def run(provider: Any, session: str, asked: Any, *script: Message) -> list[list[Message]]:
    client = Scripted(*script)
    agent = Agent(client, tools=[look], context_providers=[provider])
    await agent.run(asked, session=agent.create_session(session_id=session))
    return client.seen


def dicts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


def test_messages_come_back_equal() -> None:
    async def work() -> None:
        users = {"s": somebody()}
        async with AsyncMemoir(DSN, max_size=2) as memoir:
            for client in (MEMOIR, memoir):
                users["s"] = somebody()
                provider = MemoirHistoryProvider(client, lambda session: users[str(session)])
                for message in RICH:  # a result of a call of its own finds the call it answers
                    await provider.save_messages("s", [message])
                assert dicts(await provider.get_messages("s")) == dicts(RICH)
                await provider.save_messages("s", [*RICH, Message("assistant", ["Læsø's."])])
                assert dicts((await provider.get_messages("s"))[:-1]) == dicts(RICH), (
                    "a repeated input adds what is new"
                )
                turns = MEMOIR.history(users["s"], "s")
                assert [turn["role"] for turn in turns] == [*TURNS, "assistant"]
                assert turns[1]["content"][1]["image_url"]["url"] == IMAGE and turns[4]["tool_call_id"] == "two"
                assert turns[6]["content"] == "[application/pdf]\nAnd this?"

    asyncio.run(work())


def test_history_is_sent_whole_with_its_calls() -> None:
    user = somebody()
    provider = MemoirHistoryProvider(MEMOIR, user)
    asyncio.run(run(provider, "s", "Look twice.", Message("assistant", CALLS), Message("assistant", ["Done."])))
    [seen] = asyncio.run(run(provider, "s", "And then?", Message("assistant", ["No more."])))
    assert [message.role for message in seen] == ["user", "assistant", "tool", "assistant", "user"]
    assert [turn["role"] for turn in MEMOIR.history(user, "s")] == [
        "user",
        "assistant",
        "tool",
        "tool",
        *["assistant", "user", "assistant"],
    ]


def test_context_is_the_window_and_other_sessions() -> None:
    user = somebody()
    provider = MemoirContextProvider(MEMOIR, user, budget=20000)
    asyncio.run(run(provider, "monday", "I can't eat peanuts.", Message("assistant", ["Noted."])))
    script = Message("assistant", CALLS), Message("assistant", ["Pretzels."])
    first, second = asyncio.run(run(provider, "friday", "Which snack without peanuts may I eat?", *script))
    assert [message.role for message in first] == ["user", "user"] and "I can't eat peanuts." in first[0].text
    assert first[1].text == "Which snack without peanuts may I eat?" and second[: len(first)] == first
    [third] = asyncio.run(run(provider, "friday", "Thanks!", Message("assistant", ["You are welcome."])))
    shown = [(message.role, len(message.contents)) for message in third if "memoir-" not in message.text]
    assert shown[-5:] == [("assistant", 2), ("tool", 1), ("tool", 1), ("assistant", 1), ("user", 1)]
    stored = [turn["content"] for turn in MEMOIR.history(user, "friday") if turn["role"] == "user"]
    assert stored == ["Which snack without peanuts may I eat?", "Thanks!"], "what was recalled is not stored again"


def test_recall_alone_beside_another_history() -> None:
    user = somebody()
    MEMOIR.persist_turn(user, "monday", [{"role": "user", "content": "I can't eat peanuts."}])
    provider = MemoirContextProvider(MEMOIR, user, window=False)
    asyncio.run(run(provider, "friday", "Hello!", Message("assistant", ["Hello."])))
    [seen] = asyncio.run(run(provider, "friday", "Which snack without peanuts?", Message("assistant", ["Pretzels."])))
    assert len(seen) == 2 and "I can't eat peanuts." in seen[0].text and "Hello" not in seen[0].text


def test_compiled_lists_keep_images() -> None:
    parts = [{"type": "text", "text": "this"}, {"type": "image_url", "image_url": {"url": IMAGE}}]
    [message] = to_messages([{"role": "user", "content": parts}])
    assert [content.type for content in message.contents] == ["text", "data"] and message.contents[1].uri == IMAGE
