"""LlamaIndex's Memory over PostgreSQL: what another session said is there in this one."""

import asyncio
import os

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory
from pg_memoir import Memoir
from pg_memoir_integrations.llama_index import MemoirChatStore, MemoirMemoryBlock

memoir = Memoir(os.environ["PG_MEMOIR_DSN"])
memoir.persist_turn("alice", "index-1", [{"role": "user", "content": "I read the paper edition in the train."}])


async def main():
    memory = Memory.from_defaults(
        session_id="index-2",
        chat_store=MemoirChatStore(memoir=memoir, user="alice"),
        memory_blocks=[MemoirMemoryBlock(memoir=memoir, user="alice", session="index-2")],
    )
    await memory.aput(ChatMessage(role="user", content="Which edition do I read in the train?"))
    for message in await memory.aget():
        print(message.role.value, "·", message.content)


asyncio.run(main())
memoir.close()
