"""The storage tests of crewAIInc/crewAI, MemoirStorage in the place of QdrantEdgeStorage."""

import sys
from types import ModuleType

import crewai.memory.storage
from pg_memoir_integrations.crewai import MemoirStorage
from theirs import adopt, memoir, module, somebody, test_what_is_left_out  # noqa: F401


class QdrantEdgeStorage(MemoirStorage):
    def __init__(self, path: str, vector_dim: int = 4) -> None:
        super().__init__(memoir(), somebody())


theirs_module = ModuleType("crewai.memory.storage.qdrant_edge_storage")
theirs_module.QdrantEdgeStorage = QdrantEdgeStorage  # type: ignore[attr-defined]
sys.modules[theirs_module.__name__] = crewai.memory.storage.qdrant_edge_storage = theirs_module  # type: ignore[attr-defined]

# What syncs their two shards, and a name of theirs as a string.
INSIDES = r"flush_to_central|_local|_central|orphaned|shard|close_lifecycle|string_storage"
adopt(module("test_qdrant_edge_storage", "lib/crewai/tests/memory"), globals(), INSIDES)
del pytestmark  # noqa: F821
