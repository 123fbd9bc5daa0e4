"""The tests of langgraph's own in-memory store, MemoirStore in its place."""

from typing import Any

from pg_memoir_integrations.langgraph import MemoirStore
from theirs import adopt, memoir, module, somebody, test_what_is_left_out  # noqa: F401


class InMemoryStore(MemoirStore):
    def __init__(self, *, index: Any = None) -> None:
        super().__init__(memoir(), somebody(), index=index)


INSIDES = r"MockAsync|AsyncBatched|store\._|^test_get_text_at_path|vector_store_initialization"
adopt(module("tests.test_store", "libs/checkpoint"), globals(), INSIDES, InMemoryStore=InMemoryStore)
