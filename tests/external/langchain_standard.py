"""LangChain's standard suites (langchain-tests) for our classes, and cases that they do not ask for.

PG_MEMOIR_DSN=... python -m pytest -c /dev/null --noconftest -o asyncio_mode=auto tests/external/langchain_standard.py
"""

import asyncio
import math
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests
from pg_memoir import AsyncMemoir, Memoir
from pg_memoir.errors import InvalidArgumentError
from pg_memoir_integrations.langchain import MemoirChatMessageHistory, MemoirRetriever, MemoirVectorStore

DSN = os.environ["PG_MEMOIR_DSN"]
MEMOIR = Memoir(DSN, max_size=4)
EMBEDDING = DeterministicFakeEmbedding(size=6)
CITIES = ["Oslo", "Bergen", "Odense", "Aarhus"]


def somebody() -> str:
    return f"langchain-{uuid.uuid4()}"


# Their suites ---------------------------------------------------------------------------------------------------------


class TestVectors(VectorStoreIntegrationTests):
    options: dict[str, Any] = {}

    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        yield MemoirVectorStore(MEMOIR, somebody(), self.get_embeddings(), **self.options)


class TestWordsAndVectors(TestVectors):
    options = {"hybrid": True, "collection": "both"}


class TestAsync(VectorStoreIntegrationTests):
    @property
    def has_sync(self) -> bool:
        return False

    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        yield MemoirVectorStore(AsyncMemoir(DSN, max_size=2), somebody(), self.get_embeddings())


class TestRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return MemoirRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        user = somebody()
        for number, city in enumerate(CITIES):
            MEMOIR.persist_turn(user, f"s{number}", [{"role": "user", "content": f"We spent a summer in {city}."}])
        return {"memoir": MEMOIR, "user": user}

    @property
    def retriever_query_example(self) -> str:
        return "Where did we spend the summer?"


# The vector store -----------------------------------------------------------------------------------------------------


def cities(**options: Any) -> MemoirVectorStore:
    """A store of four texts with metadata."""
    metadatas = [{"place": place, "tags": {"north": place < 2}} for place in range(4)]
    return MemoirVectorStore.from_texts(CITIES, EMBEDDING, metadatas, ids=list("abcd"), memoir=MEMOIR, **options)


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({"place": 2}, "c"),
        ({"place": {"$gte": 1, "$lt": 3}}, "bc"),
        ({"place": {"$in": [0, 3]}}, "ad"),
        ({"$or": [{"place": 0}, {"tags": {"north": False}}]}, "acd"),
        ({"$not": {"place": {"$lte": 2}}}, "d"),
        ({"none": {"$exists": True}}, ""),
    ],
)
def test_filters_fit_metadata(asked: dict[str, Any], ids: str) -> None:
    store = cities(user=somebody())
    assert sorted(each.id for each in store.similarity_search("Oslo", k=9, filter=asked)) == list(ids)
    store.delete(filter=asked)
    assert sorted(each.id for each in store.similarity_search("Oslo", k=9)) == sorted(set("abcd") - set(ids))


def test_scores_are_similarities() -> None:
    store = cities(user=somebody())
    found = store.similarity_search_with_score("Bergen", k=4)
    assert [each.id for each, _ in found][0] == "b" and found[0][1] == pytest.approx(1, abs=0.001)
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    close = store.similarity_search_with_relevance_scores("Bergen", k=4, score_threshold=0.99)
    assert [each.id for each, _ in close] == ["b"]
    assert [each.id for each in store.similarity_search_by_vector(EMBEDDING.embed_query("Odense"), k=1)] == ["c"]
    chosen = asyncio.run(store.amax_marginal_relevance_search("Bergen", k=2, fetch_k=3, filter={"place": {"$ne": 1}}))
    assert len(chosen) == 2 and "b" not in [each.id for each in chosen]
    retriever = store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "fetch_k": 4, "lambda_mult": 1.0})
    assert [each.id for each in retriever.invoke("Bergen")] == [each.id for each, _ in found[:2]]


def test_words_find_without_an_embedding() -> None:
    store = MemoirVectorStore(MEMOIR, somebody())
    store.add_texts(["She runs along the river.", "The harbour sleeps.\0"], ids=["r", "h"])
    assert [(each.id, score) for each, score in store.similarity_search_with_score("running by rivers")] == [("r", 1)]
    assert store.get_by_ids(["h"]) == [Document(id="h", page_content="The harbour sleeps.\0")]
    assert store.similarity_search("nothing of it") == []


def test_collections_and_users_do_not_mix() -> None:
    user, other = somebody(), somebody()
    store = cities(user=user)
    second = MemoirVectorStore.from_texts(["Oslo"], EMBEDDING, ids=["a"], memoir=MEMOIR, user=user, collection="second")
    third = cities(user=other)
    store.delete()
    assert store.similarity_search("Oslo") == [] and store.get_by_ids(["a"]) == []
    assert [each.id for each in second.similarity_search("Oslo", k=9)] == ["a"]
    assert len(third.similarity_search("Oslo", k=9)) == 4 and MEMOIR.recall(user, "Oslo") == []


def test_wrong_arguments_are_named() -> None:
    user = somebody()
    store = cities(user=user)
    with pytest.raises(ValueError, match="ids has 1 entries for 2 texts"):
        store.add_texts(["a", "b"], ids=["1"])
    with pytest.raises(ValueError, match="no vectors of 4 dimensions"):
        MemoirVectorStore(MEMOIR, user, DeterministicFakeEmbedding(size=4)).similarity_search("Oslo")
    with pytest.raises(ValueError, match="needs an embedding"):
        MemoirVectorStore(MEMOIR, user, hybrid=True)
    with pytest.raises(InvalidArgumentError, match=r"unknown operator .*\$like"):
        store.similarity_search("Oslo", filter={"place": {"$like": "O%"}})
    for wrong in (store.similarity_search, store.delete):
        with pytest.raises(TypeError, match="unexpected keyword argument 'where'"):
            wrong("Oslo", where={"place": 1})
    with pytest.raises(TypeError, match="needs a Memoir"):
        MemoirVectorStore(AsyncMemoir(DSN), user).get_by_ids(["a"])


# The chat history and the retriever -----------------------------------------------------------------------------------


def call(name: str) -> dict[str, Any]:
    return {"name": "look", "args": {"at": name}, "id": name, "type": "tool_call"}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SAID: list[BaseMessage] = [
    SystemMessage("You are a librarian.", id="s1"),
    HumanMessage([{"type": "text", "text": "Which lighthouse is this?"}, IMAGE], name="Ann Lee", id="h1"),
    AIMessage("", tool_calls=[call("one"), call("two")], usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    ToolMessage("A red one.", tool_call_id="one", artifact={"raw": [1.5, None, math.inf, "\ud83d"]}),
    ToolMessage([{"type": "text", "text": "On Anholt."}], tool_call_id="two", status="error"),
    AIMessage([{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "Anholt's."}]),
    AIMessage("", invalid_tool_calls=[{"name": "look", "args": "{", "id": "three", "error": "cut"}]),
    HumanMessage([{"type": "text", "text": "And \0 this?"}, {"type": "video", "url": "https://x/y"}]),
]  # fmt: skip
TURNS = ["system", "user", "assistant", "tool", "tool", "assistant", "user"]


def check_history(user: str, found: list[BaseMessage]) -> None:
    assert found == SAID
    turns = MEMOIR.history(user, "s")
    assert [turn["role"] for turn in turns] == TURNS and turns[1]["content"][1] == IMAGE
    assert [call["id"] for call in turns[2]["tool_calls"]] == ["one", "two"]
    assert turns[5]["content"] == "Anholt's." and turns[6]["content"] == "And \ufffd this?\n[video]"


def test_blocks_without_a_type_are_stored() -> None:
    """Blocks of Bedrock have a key instead of a type."""
    user = somebody()
    history = MemoirChatMessageHistory(MEMOIR, user, "s")
    blocks = [{"text": "Which lighthouse?"}, {"cachePoint": {"type": "default"}}, {"video": {"format": "mp4"}}]
    history.add_messages([HumanMessage(blocks)])
    assert history.messages == [HumanMessage(blocks)]
    assert MEMOIR.history(user, "s")[0]["content"].split() == ["Which", "lighthouse?", "[video]"]


def test_messages_come_back_equal() -> None:
    user = somebody()
    history = MemoirChatMessageHistory(MEMOIR, user, "s", project="lights")
    for message in SAID:  # a result in a call of its own finds the call it answers
        history.add_message(message)
    check_history(user, history.messages)
    assert MEMOIR.session_info(user, "s")["project"] == "lights"
    assert MEMOIR.recall(user, "Which lighthouse?")[0].session == "s"
    history.clear()
    assert history.messages == [] and MEMOIR.recall(user, "Which lighthouse?") == []


async def test_messages_come_back_equal_async() -> None:
    user = somebody()
    async with AsyncMemoir(DSN, max_size=2) as memoir:
        history = MemoirChatMessageHistory(memoir, user, "s")
        await history.aadd_messages(SAID)
        check_history(user, await history.aget_messages())
        found = await MemoirRetriever(memoir=memoir, user=user, k=1, search_kwargs={"kinds": ["turn"]}).ainvoke(
            "Which lighthouse?"
        )
        await history.aclear()
        assert await history.aget_messages() == []
    assert [(each.metadata["kind"], each.metadata["session"]) for each in found] == [("turn", "s")]
    assert MemoirRetriever(memoir=MEMOIR, user=user).invoke(" ") == []
