"""Writers of adapter.py for frameworks that keep messages and records: LangChain, the Agent Framework and CrewAI."""

import asyncio
import json
from typing import Any

from pg_memoir import AsyncMemoir, Memoir

TIMES = 12
TEXTS = ["a\0b", "half \ud83d emoji", "\ufdd00000", "a\x01b\x1b[0m", ""]


class LangChain:
    """A chat history: questions, and calls of tools whose results come later. A store: texts of each process."""

    def __init__(self, dsn: str, user: str) -> None:
        from pg_memoir_integrations.langchain import MemoirChatMessageHistory, MemoirVectorStore

        self.memoir, self.user = AsyncMemoir(dsn, max_size=2), user
        self.history = MemoirChatMessageHistory(self.memoir, user, "s")
        self.store = MemoirVectorStore(self.memoir, user)

    async def write(self, name: str) -> Any:
        from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

        for i in range(TIMES):
            each = f"{name}-{i}"
            await self.history.aadd_messages([HumanMessage(f"q {each}"), AIMessage(f"a {each}")])
            asked = [{"name": "look", "args": {}, "id": f"{each}.{n}", "type": "tool_call"} for n in (1, 2)]
            await self.history.aadd_messages([AIMessage("", tool_calls=asked)])
            for n in (1, 2):
                await self.history.aadd_messages([ToolMessage(f"r {each}.{n}", tool_call_id=f"{each}.{n}")])
            await self.store.aadd_texts([each, "of all"], ids=[each, "0"])
        return None

    async def read(self) -> Any:
        items = [{"role": m.type, "content": m.content} for m in await self.history.aget_messages()]
        texts = [each.page_content for each in await self.store.asimilarity_search(" ", k=1000)]
        return {"items": items, "turns": await turns_of(self.memoir, self.user), "texts": sorted(texts)}

    async def texts(self) -> None:
        from langchain_core.documents import Document
        from langchain_core.messages import HumanMessage

        sent = [HumanMessage(text, additional_kwargs={"names": TEXTS}) for text in TEXTS]
        await self.history.aadd_messages(sent)
        assert await self.history.aget_messages() == sent
        held = [Document(id=f"k{text}", page_content=text, metadata={f"key {text}": text}) for text in TEXTS]
        await self.store.aadd_documents(held)
        found = await self.store.aget_by_ids([each.id for each in held])
        assert sorted(found, key=lambda each: each.id) == sorted(held, key=lambda each: each.id)
        await check_turns(self.memoir, self.user)


class AgentFramework:
    """A history: what each process says, and calls of tools whose results come later."""

    def __init__(self, dsn: str, user: str) -> None:
        from pg_memoir_integrations.agent_framework import MemoirHistoryProvider

        self.memoir, self.user = AsyncMemoir(dsn, max_size=2), user
        self.history = MemoirHistoryProvider(self.memoir, user)

    async def write(self, name: str) -> Any:
        from agent_framework import Content, Message

        for i in range(TIMES):
            each = f"{name}-{i}"
            await self.history.save_messages("s", [Message("user", [f"q {each}"]), Message("assistant", [f"a {each}"])])
            asked = [Content.from_function_call(f"{each}.{n}", "look", arguments="{}") for n in (1, 2)]
            await self.history.save_messages("s", [Message("assistant", asked)])
            for n in (1, 2):
                result = Content.from_function_result(f"{each}.{n}", result=f"r {each}.{n}")
                await self.history.save_messages("s", [Message("tool", [result])])
        return None

    async def read(self) -> Any:
        found = await self.history.get_messages("s")
        items = [{"role": m.role, "content": m.text or str(m.contents[0].result)} for m in found]
        return {"items": items, "turns": await turns_of(self.memoir, self.user)}

    async def texts(self) -> None:
        from agent_framework import Message

        sent = [Message("user", [text], additional_properties={"names": TEXTS}) for text in TEXTS]
        await self.history.save_messages("s", sent)
        assert [m.to_dict() for m in await self.history.get_messages("s")] == [m.to_dict() for m in sent]
        await check_turns(self.memoir, self.user)


class CrewAi:
    """A storage: records of each process, and one that all replace."""

    def __init__(self, dsn: str, user: str) -> None:
        from pg_memoir_integrations.crewai import MemoirStorage

        self.storage = MemoirStorage(Memoir(dsn, max_size=2), user)

    async def write(self, name: str) -> Any:
        from crewai.memory.types import MemoryRecord

        for i in range(TIMES):
            own = MemoryRecord(id=f"{name}-{i:02}", content=f"{name}-{i}", scope=f"/{name}", embedding=[1.0, i])
            every = MemoryRecord(id="0", content=f"{name}-{i}", metadata={"by": f"{name}-{i}"}, embedding=[0.0, 1.0])
            await asyncio.to_thread(self.storage.save, [own, every])
            await asyncio.to_thread(self.storage.touch_records, ["0", own.id])
        return None

    async def read(self) -> Any:
        found = sorted(self.storage.list_records(limit=1000), key=lambda each: each.id)
        near = self.storage.search([0.0, 1.0], limit=1)[0][0].id
        return {"near": near, "records": [[each.id, each.content, each.metadata] for each in found]}

    async def texts(self) -> None:
        from crewai.memory.types import MemoryRecord

        for text in TEXTS:
            record = MemoryRecord(id=f"k{text}", content=text, scope=f"/n{text}", metadata={"text": text})
            self.storage.save([record.model_copy(update={"embedding": [1.0, 0.0]})])
            assert self.storage.get_record(record.id) == record
            found = self.storage.search([1.0, 0.0], metadata_filter={"text": text})
            assert [each for each, _ in found] == [record]
            assert self.storage.delete(f"/n{text}", metadata_filter={"text": text}) == 1


async def turns_of(memoir: AsyncMemoir, user: str) -> list[dict[str, Any]]:
    return [{"role": turn["role"], "content": turn.get("content")} for turn in await memoir.history(user, "s")]


async def check_turns(memoir: AsyncMemoir, user: str) -> None:
    """Checks that turns have the texts, with U+FFFD where PostgreSQL can't hold them."""
    stored = [turn["content"] for turn in await turns_of(memoir, user)]
    assert stored == [text.replace("\0", "\ufffd").replace("\ud83d", "\ufffd") for text in TEXTS], json.dumps(stored)
