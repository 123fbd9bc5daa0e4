"""CrewAI's memory over MemoirStorage.

PG_MEMOIR_DSN=... python -m pytest -c /dev/null --noconftest -o asyncio_mode=auto tests/external/crewai_memory.py
"""

import copy
import os
import uuid
from typing import Any

import pytest
from crewai import Memory
from crewai.memory.storage.backend import EmbeddingDimensionMismatchError, StorageBackend
from crewai.memory.types import MemoryRecord
from pg_memoir import AsyncMemoir, Memoir
from pg_memoir_integrations.crewai import MemoirStorage

DSN = os.environ["PG_MEMOIR_DSN"]
MEMOIR = Memoir(DSN, max_size=4)


def somebody() -> str:
    return f"crewai-{uuid.uuid4()}"


def record(name: str, vector: list[float] | None = None, **more: Any) -> MemoryRecord:
    return MemoryRecord(id=name, content=f"content {name}", embedding=vector or [1.0, 0.0], **more)


def test_updates_keep_vectors() -> None:
    storage = MemoirStorage(MEMOIR, somebody())
    storage.save([record("a", scope="/x", metadata={"n": 1.5, "nul": "a\0b"}), record("b", [0.0, 1.0], scope="/xy")])
    found = storage.get_record("a")
    assert found is not None and found == record("a").model_copy(
        update={"scope": "/x", "metadata": {"n": 1.5, "nul": "a\0b"}, "embedding": None}
        | {name: getattr(found, name) for name in ("created_at", "last_accessed")}
    )
    storage.update(found.model_copy(update={"scope": "/z", "content": "new"}))
    storage.touch_records(["a", "none"])
    [(first, score), (second, other)] = storage.search([1.0, 0.0])
    assert (first.id, first.content, first.scope, round(score, 3)) == ("a", "new", "/z", 1)
    assert first.last_accessed > found.last_accessed and (second.id, other) == ("b", 0)
    assert storage.count("/x") == 0 and storage.list_scopes() == ["/xy", "/z"]
    assert storage.delete(record_ids=[]) == 0 and storage.delete(scope_prefix="/z", record_ids=["a", "b"]) == 1


def test_storages_do_not_mix() -> None:
    user = somebody()
    first, second, other = (MemoirStorage(MEMOIR, *place) for place in ((user,), (user,), (somebody(),)))
    second.collection = "second"
    for storage in (first, second, other):
        storage.save([record("a")])
    first.reset()
    assert [storage.count() for storage in (first, second, other)] == [0, 1, 1]
    with pytest.raises(EmbeddingDimensionMismatchError, match="2-dimensional"):
        second.search([1.0, 0.0, 0.0])
    assert isinstance(first, StorageBackend) and copy.deepcopy(first) is first


async def test_storage_is_awaited() -> None:
    async with AsyncMemoir(DSN, max_size=2) as client:
        storage = MemoirStorage(client, somebody())
        await storage.asave([record(str(n), categories=["even" if n % 2 == 0 else "odd"]) for n in range(4)])
        found = await storage.asearch([1.0, 0.0], categories=["even"], limit=9, min_score=0.5)
        assert sorted(each.id for each, _ in found) == ["0", "2"]
        assert await storage.adelete(categories=["odd"]) == 2
        with pytest.raises(TypeError, match="needs a Memoir"):
            storage.count()


def test_memory_remembers_and_recalls() -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[float(text.count(letter)) + 0.01 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    memory = Memory(storage=MemoirStorage(MEMOIR, somebody()), embedder=embed, root_scope="/crew")
    known = {"categories": ["food"], "importance": 0.9}
    memory.remember("I can't eat peanuts.", scope="/alice", **known)
    memory.remember("The office is in Odense.", scope="/office", **known)
    found = memory.recall("peanuts eat can", depth="shallow", limit=1)
    assert [match.record.content for match in found] == ["I can't eat peanuts."]
    changed = memory.update(found[0].record.id, scope="/crew/bob")
    assert memory.recall("peanuts eat can", scope="/bob", depth="shallow")[0].record.id == changed.id
    assert memory.forget(scope="/bob") == 1 and memory.list_categories() == {"food": 1}
    memory.close()
