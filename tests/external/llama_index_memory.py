"""The tests of llama_index's Memory over a chat store that is not its own, MemoirChatStore being that."""

import asyncio
from collections import defaultdict
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store.base_db import MessageStatus
from pg_memoir_integrations.llama_index import MemoirChatStore
from theirs import adopt, memoir, module, somebody, test_what_is_left_out  # noqa: F401


class InMemoryChatStore(MemoirChatStore):
    """`active` and `archived`, which their tests count, are those of the database."""

    def __init__(self) -> None:
        super().__init__(memoir=memoir(), user=somebody())

    def _queues(self, status: MessageStatus) -> dict[str, list[Any]]:
        queues: dict[str, list[Any]] = defaultdict(list)
        for found in memoir().search_documents(self.user, limit=1000, filter={"status": status.value}):
            queues[found.namespace[1]].append(found.value)
        return queues

    @property
    def active(self) -> dict[str, list[Any]]:
        return self._queues(MessageStatus.ACTIVE)

    @property
    def archived(self) -> dict[str, list[Any]]:
        return self._queues(MessageStatus.ARCHIVED)


class StaggeredArchiveChatStore(InMemoryChatStore):
    """As theirs: two archive calls at once, the first one waiting less."""

    _armed: bool = PrivateAttr(default=False)
    _archive_calls: int = PrivateAttr(default=0)

    async def archive_oldest_messages(self, key: str, n: int) -> list[Any]:
        if self._armed:
            self._archive_calls += 1
            await asyncio.sleep(0.05 if self._archive_calls == 1 else 0.3)
        return await super().archive_oldest_messages(key, n)


adopt(
    module("test_memory_custom_chat_store", "llama-index-core/tests/memory"),
    globals(),
    r"still_uses_sql_store|does_not_over_archive",
    InMemoryChatStore=InMemoryChatStore,
    StaggeredArchiveChatStore=StaggeredArchiveChatStore,
)
