"""One of several processes that write for one user at once, each through a framework's adapter.

writer.py KIND DSN USER NUMBER     waits for a line on stdin, writes, prints as JSON what it was answered
writer.py KIND DSN USER read       prints as JSON what is there
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from pg_memoir import AsyncMemoir, Memoir

sys.path.append(str(Path(__file__).parent))  # the last, so that it hides no module of a framework
from adapter_messages import AgentFramework, CrewAi, LangChain

TIMES = 12
TEXTS = ["a\0b", "half \ud83d emoji", "\ufdd00000", "a\x01b\x1b[0m", ""]
WHOLE = [text for text in TEXTS if "\ud83d" not in text]  # pydantic's strings hold no lone surrogate


class Documents:
    """put_documents itself: an append, a merge and a counter that is read and written back."""

    def __init__(self, dsn: str, user: str) -> None:
        self.memoir, self.user = Memoir(dsn, max_size=2), user

    async def write(self, name: str) -> Any:
        from pg_memoir.errors import ChangedElsewhereError

        tries = 0
        for i in range(TIMES):
            said = {"namespace": ["queue"], "append": True, "value": f"{name}-{i}"}
            merged = {"namespace": ["state"], "key": "all", "at": "of", "merge": {f"{name}-{i}": i}}
            self.memoir.put_documents(self.user, [said, merged])
            while True:
                tries += 1
                [counter] = self.memoir.get_documents(self.user, ["state"], ["counter"]) or [None]
                entry: dict[str, Any] = {"namespace": ["state"], "key": "counter", "exists": counter is not None}
                entry |= {"was": counter.value, "value": counter.value + 1} if counter else {"value": 1}
                try:
                    self.memoir.put_documents(self.user, [entry])
                    break
                except ChangedElsewhereError:
                    continue
        return tries

    async def read(self) -> Any:
        queue = self.memoir.search_documents(self.user, ["queue"], limit=1000)
        state = {each.key: each.value for each in self.memoir.search_documents(self.user, ["state"])}
        return {"queue": [each.value for each in sorted(queue, key=lambda each: each.key)], **state}

    async def texts(self) -> None:
        for text in TEXTS:
            value = {"text": text, "list": [float("inf"), 2**70], f"key {text}": 1}
            where = [f"n{text}", "x"]
            self.memoir.put_documents(self.user, [{"namespace": where, "key": f"k{text}", "value": value}])
            [found] = self.memoir.get_documents(self.user, where, [f"k{text}"])
            assert (found.value, found.namespace, found.key) == (value, where, f"k{text}")
            assert self.memoir.search_documents(self.user, where, filter={"text": text})[0].value == value
            assert where in self.memoir.list_document_namespaces(self.user, [{"match": "prefix", "path": where}])
            self.memoir.put_documents(self.user, [{"namespace": where, "key": f"k{text}", "was": value}])
            assert self.memoir.search_documents(self.user, where) == []


class LlamaIndex:
    """A chat store: every process adds, then takes the oldest away."""

    def __init__(self, dsn: str, user: str) -> None:
        from pg_memoir_integrations.llama_index import MemoirChatStore

        self.store = MemoirChatStore(memoir=Memoir(dsn, max_size=2), user=user)

    async def write(self, name: str) -> Any:
        from llama_index.core.base.llms.types import ChatMessage

        for i in range(TIMES):
            await self.store.add_message("chat", ChatMessage(role="user", content=f"{name}-{i}"))
        archived = await self.store.archive_oldest_messages("chat", 3)
        deleted = await self.store.delete_oldest_messages("chat", 2)
        removed = await self.store.delete_message("chat", 0)
        return [each.content for each in [*archived, *deleted, removed]]

    async def read(self) -> Any:
        return [each.content for each in await self.store.get_messages("chat", status=None)]

    async def texts(self) -> None:
        from llama_index.core.base.llms.types import ChatMessage
        from pg_memoir_integrations.llama_index import MemoirMemoryBlock

        sent = [ChatMessage(role="tool", content=text, additional_kwargs={"names": TEXTS}) for text in WHOLE]
        await self.store.add_messages("texts", sent)
        assert await self.store.get_messages("texts") == sent
        block = MemoirMemoryBlock(memoir=self.store.memoir, user=self.store.user, session="s")
        await block.aput([ChatMessage(role="user", content=text) for text in WHOLE])
        stored = [turn["content"] for turn in self.store.memoir.history(self.store.user, "s")]
        assert stored == [text.replace("\0", "\ufffd") for text in WHOLE]


class GoogleAdk:
    """One session: all processes try to create it, then append events with state."""

    def __init__(self, dsn: str, user: str) -> None:
        from pg_memoir_integrations.google_adk import MemoirMemoryService, MemoirSessionService

        memoir = AsyncMemoir(dsn, max_size=2)
        self.user, self.service, self.memory = user, MemoirSessionService(memoir), MemoirMemoryService(memoir)
        self.place = {"app_name": user, "user_id": user, "session_id": "s"}

    async def write(self, name: str) -> Any:
        from google.adk.errors.already_exists_error import AlreadyExistsError
        from google.adk.events import Event, EventActions
        from google.adk.sessions.session import Session
        from google.genai import types

        created = True
        try:
            await self.service.create_session(**self.place)
        except AlreadyExistsError:
            created = False
        while (session := await self.service.get_session(**self.place)) is None:
            pass
        for i in range(TIMES):
            delta = {f"{prefix}{name}-{i}": i for prefix in ("", "user:", "app:")}
            said = types.Content(role="user", parts=[types.Part(text=f"{name}-{i}")])
            event = Event(author="user", invocation_id="i", actions=EventActions(state_delta=delta), content=said)
            await self.service.append_event(session, event)
        contents = [types.Content(role="user", parts=[types.Part(text=f"told {i}")]) for i in range(TIMES)]
        same = [Event(id=f"e{i}", author="user", content=told) for i, told in enumerate(contents)]
        elsewhere = Session(app_name=self.user, user_id=self.user, id="elsewhere", events=same)
        await self.memory.add_session_to_memory(elsewhere)
        return created

    async def read(self) -> Any:
        session = await self.service.get_session(**self.place)
        told = await self.service.memoir.history(self.user, f"{self.user}/elsewhere")
        events = [event.content.parts[0].text for event in session.events]
        return {"events": events, "state": sorted(session.state), "told": [turn["content"] for turn in told]}

    async def texts(self) -> None:
        from google.adk.events import Event, EventActions
        from google.genai import types

        state = {f"{prefix}k{text}": text for text in TEXTS for prefix in ("", "user:", "app:")}
        session = await self.service.create_session(**self.place)
        for text in WHOLE:
            said = types.Content(role="user", parts=[types.Part(text=text)])
            event = Event(author="user", invocation_id="i", actions=EventActions(state_delta=state), content=said)
            await self.service.append_event(session, event)
        again = await self.service.get_session(**self.place)
        assert [event.content.parts[0].text for event in again.events] == WHOLE
        assert again.state == state and again.events[-1].actions.state_delta == state


class LangGraph:
    """A store: keys of each process's own, and one that all put."""

    def __init__(self, dsn: str, user: str) -> None:
        from pg_memoir_integrations.langgraph import MemoirStore

        self.store = MemoirStore(Memoir(dsn, max_size=2), user=user)

    async def write(self, name: str) -> Any:
        for i in range(TIMES):
            self.store.put(("race",), f"{name}-{i:02}", {"i": i})
            self.store.put(("race",), "0", {"first": f"{name}-{i}", "second": f"{name}-{i}"})
        return None

    async def read(self) -> Any:
        found = sorted(self.store.search(("race",), limit=1000), key=lambda each: each.key)
        return [[each.key, each.value] for each in found]

    async def texts(self) -> None:
        from pg_memoir_integrations.langgraph import recalled

        for text in TEXTS:
            value = {"text": text, "list": [float("-inf"), 2**70], f"key {text}": 1}
            where = ("n" + text.replace("\0", ""),)  # LangGraph itself refuses NUL there
            self.store.put(where, f"k{text}", value)
            assert self.store.get(where, f"k{text}").value == value
            assert [each.value for each in self.store.search(where, filter={"text": text})] == [value]
            assert where in self.store.list_namespaces()
        self.store.put(("words",), "k", {"text": "a pelican\0 in the harbour"})
        assert self.store.search(("words",), query="pelican\0")[0].score == 1
        message = {"role": "user", "content": "a\0b", "id": "m1"}
        node = recalled(self.store.memoir, self.store.user(()), "s")
        for _ in range(2):
            node.invoke({"messages": [message]})
        [stored] = self.store.memoir.history(self.store.user(()), "s")
        assert stored["content"] == "a\ufffdb"


class OpenaiAgents:
    """A session: questions with their answers, and calls of tools whose results come later."""

    def __init__(self, dsn: str, user: str) -> None:
        from pg_memoir_integrations.openai_agents import MemoirSession

        self.memoir, self.user = AsyncMemoir(dsn, max_size=2), user
        self.session = MemoirSession("s", self.memoir, user=user)

    async def write(self, name: str) -> Any:
        for i in range(TIMES):
            each = f"{name}-{i}"
            said = {"user": f"q {each}", "assistant": f"a {each}"}
            await self.session.add_items([{"role": role, "content": text} for role, text in said.items()])
            call = {"type": "function_call", "name": "look", "arguments": "{}"}
            asked = [call | {"call_id": f"{each}.{n}"} for n in (1, 2)]
            await self.session.add_items(asked)
            for n in (1, 2):
                result = {"type": "function_call_output", "call_id": f"{each}.{n}", "output": f"r {each}.{n}"}
                await self.session.add_items([result])
        return None

    async def read(self) -> Any:
        items = await self.session.get_items()
        turns = await self.memoir.history(self.user, "s")
        return {"items": items, "turns": [{"role": t["role"], "content": t.get("content")} for t in turns]}

    async def texts(self) -> None:
        for text in TEXTS:
            call = {"type": "function_call", "call_id": f"c{text}", "name": "look", "arguments": "{}"}
            items = [{"role": "user", "content": text}, call]
            items.append({"type": "function_call_output", "call_id": f"c{text}", "output": text})
            await self.session.add_items(items)
            assert (await self.session.get_items())[-3:] == items
        turns = await self.memoir.history(self.user, "s")
        assert [turn["role"] for turn in turns] == ["user", "assistant", "tool"] * len(TEXTS)
        assert turns[0]["content"] == turns[2]["content"] == "a\ufffdb"
        assert await self.session.pop_item() == items[-1]


class AnthropicMemory:
    """The memory tool: all try to create one file, then insert lines and count in it."""

    def __init__(self, dsn: str, user: str) -> None:
        from pg_memoir_integrations.anthropic import MemoirMemoryTool

        self.tool = MemoirMemoryTool(Memoir(dsn, max_size=2), user)

    async def write(self, name: str) -> Any:
        from anthropic.lib.tools import ToolError

        path, created = "/memories/log.md", True
        try:
            self.tool.call({"command": "create", "path": path, "file_text": "log\n"})
        except ToolError:
            created = False
        self.tool.call({"command": "insert", "path": path, "insert_line": 0, "insert_text": f"count {name}: 0;"})
        for i in range(TIMES):
            self.tool.call({"command": "insert", "path": path, "insert_line": 0, "insert_text": f"{name}-{i}"})
            count = {"old_str": f"count {name}: {i};", "new_str": f"count {name}: {i + 1};"}
            self.tool.call({"command": "str_replace", "path": path} | count)
        draft = f"/memories/{name}.md"
        self.tool.call({"command": "create", "path": draft, "file_text": name})
        try:
            self.tool.call({"command": "rename", "old_path": draft, "new_path": "/memories/final.md"})
        except ToolError:
            return [created, False]
        return [created, True]

    async def read(self) -> Any:
        files = self.tool.memoir.search_documents(self.tool.files.user, ["memories"])
        return {each.key: each.value["text"].splitlines() for each in files}

    async def texts(self) -> None:
        for text in TEXTS:
            path = f"/memories/n{text}.md"
            self.tool.call({"command": "create", "path": path, "file_text": f"one {text}"})
            self.tool.call({"command": "str_replace", "path": path, "old_str": f"one {text}", "new_str": f"two {text}"})
            for shown in (path, "/memories"):  # what goes to the model can be sent
                self.tool.call({"command": "view", "path": shown}).encode()
        [found] = self.tool.memoir.get_documents(self.tool.files.user, ["memories"], ["na\ufffdb.md"])
        assert found.value == {"text": "two a\ufffdb"}


class PydanticAi:
    """An agent with a tool: every process runs it in one session."""

    def __init__(self, dsn: str, user: str) -> None:
        self.memoir, self.user = AsyncMemoir(dsn, max_size=2), user

    async def write(self, name: str) -> Any:
        from pg_memoir_integrations.pydantic_ai import MemoirMemory
        from pydantic_ai import Agent
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
        from pydantic_ai.models.function import FunctionModel

        async def one(each: str) -> None:
            asked = 0

            def answer(messages: Any, info: Any) -> ModelResponse:
                nonlocal asked
                asked += 1
                if asked == 1:
                    return ModelResponse(parts=[ToolCallPart("look", {"at": each}, f"c {each}")])
                return ModelResponse(parts=[TextPart(f"a {each}")])

            agent = Agent(FunctionModel(answer), capabilities=[MemoirMemory(self.memoir, self.user, "s")])
            agent.tool_plain(look)
            done = await agent.run(f"q {each}")
            assert done.output == f"a {each}"

        def look(at: str) -> str:
            """Looks at something."""
            return f"r {at}"

        for i in range(TIMES):
            await one(f"{name}-{i}")
        return None

    async def read(self) -> Any:
        turns = await self.memoir.history(self.user, "s")
        said = [turn.get("content") or turn["tool_calls"][0]["id"] for turn in turns]
        return [[turn["role"], text, turn.get("tool_call_id")] for turn, text in zip(turns, said)]

    async def texts(self) -> None:
        from pg_memoir_integrations.pydantic_ai import MemoirMemory
        from pydantic_ai import Agent
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
        from pydantic_ai.models.function import FunctionModel

        seen = []

        def answer(messages: Any, info: Any) -> ModelResponse:
            seen.append(messages)
            if len(messages[-1].parts) == 1 and messages[-1].parts[0].part_kind == "tool-return":
                return ModelResponse(parts=[TextPart("done")])
            return ModelResponse(parts=[ToolCallPart("look", {}, "c1")])

        for place, text in enumerate(TEXTS):
            agent = Agent(FunctionModel(answer), capabilities=[MemoirMemory(self.memoir, self.user, f"t{place}")])
            agent.tool_plain(lambda text=text: text, name="look")
            assert (await agent.run(text)).output == "done"
            stored = [turn.get("content") for turn in await self.memoir.history(self.user, f"t{place}")]
            kept = text.replace("\0", "\ufffd").replace("\ud83d", "\ufffd")
            assert stored == [kept, None, kept, "done"], stored


KINDS = {
    "documents": Documents, "llama_index_memory": LlamaIndex, "google_adk": GoogleAdk, "langgraph_store": LangGraph,
    "openai_agents": OpenaiAgents, "anthropic_memory": AnthropicMemory, "pydantic_ai_memory": PydanticAi,
    "langchain_memory": LangChain, "agent_framework_memory": AgentFramework, "crewai_memory": CrewAi,
}  # fmt: skip


async def main(kind: str, dsn: str, user: str, what: str) -> None:
    made = KINDS[kind](dsn, user)
    if what == "read":
        print(json.dumps(await made.read()))
        return
    if what == "texts":
        await made.texts()
        return
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(await made.write(what)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
