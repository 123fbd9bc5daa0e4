"""LangChain: a retriever, a chat history and a vector store over PostgreSQL.

retriever = MemoirRetriever(memoir=memoir, user="alice")
history = MemoirChatMessageHistory(memoir, "alice", "support-42")
store = MemoirVectorStore(memoir, "library", OpenAIEmbeddings(), collection="handbook")
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage, convert_to_openai_messages, messages_from_dict
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from pg_memoir import Message
from pg_memoir.call import Call
from pg_memoir.functions import calls
from pg_memoir.texts import replace_unstorable
from pg_memoir.types import FoundDocument, Hit
from pydantic import ConfigDict, Field

from .pairing import Told, append_told
from .running import AnyMemoir, arun, arun_steps, dump_exact, run, run_steps

_ROOT = "langchain"
_BATCH = 500
"""Documents that one call stores."""


class MemoirRetriever(BaseRetriever):
    """Returns turns of any session and memories, best first, as documents. A document's metadata are those of a hit:
    kind, score, session, role, said_at, type, tags and so on."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    memoir: Any = Field(exclude=True)
    user: str
    k: int = 10
    search_kwargs: dict[str, Any] = Field(default_factory=dict, description="Further arguments of recall.")

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        call = self._call(query, kwargs)
        return [_of_hit(hit) for hit in run(self.memoir, call)] if call else []

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        call = self._call(query, kwargs)
        return [_of_hit(hit) for hit in await arun(self.memoir, call)] if call else []

    def _call(self, query: str, given: dict[str, Any]) -> Call[list[Hit]] | None:
        """Returns the recall, None for a question without a word."""
        limit = given.pop("k", self.k)
        return calls.recall(self.user, query, limit=limit, **self.search_kwargs | given) if query.strip() else None


def _of_hit(hit: Hit) -> Document:
    known = {name: value for name, value in hit.to_dict().items() if value is not None}
    return Document(id=known.pop("id"), page_content=known.pop("content"), metadata=known)


class MemoirChatMessageHistory(BaseChatMessageHistory):
    """A session's messages. They come back as they came: tool calls, images, usage. The session's turns say the same,
    so it is compiled, recalled in other sessions and learnt from. `clear` takes both back.

    `opening`: as open_session.
    """

    def __init__(self, memoir: AnyMemoir, user: str, session: str, **opening: Any) -> None:
        self.memoir, self.user, self.session = memoir, user, session
        self._opening = opening

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        return _read(run(self.memoir, calls.list_items(self.user, self.session)))

    async def aget_messages(self) -> list[BaseMessage]:
        return _read(await arun(self.memoir, calls.list_items(self.user, self.session)))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        for call in self._open(messages):
            run(self.memoir, call)
        if messages:
            run_steps(self.memoir, append_told(self.user, self.session, list(map(_told, messages)), _said))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        for call in self._open(messages):
            await arun(self.memoir, call)
        if messages:
            await arun_steps(self.memoir, append_told(self.user, self.session, list(map(_told, messages)), _said))

    def clear(self) -> None:
        run(self.memoir, calls.retract_items(self.user, self.session))

    async def aclear(self) -> None:
        await arun(self.memoir, calls.retract_items(self.user, self.session))

    def _open(self, messages: Sequence[BaseMessage]) -> list[Call[Any]]:
        """Returns the call that opens the session with its options, once."""
        opening, self._opening = (self._opening, {}) if messages else ({}, self._opening)
        return [calls.open_session(self.user, self.session, **opening)] if opening else []


def _read(items: Iterable[Any]) -> list[BaseMessage]:
    return messages_from_dict([each.item for each in items])


def _told(message: BaseMessage) -> Told:
    item = {"type": message.type, "data": dump_exact(message)}
    return item, _chat_messages(message)


def _said(item: dict[str, Any]) -> list[Message]:
    return _chat_messages(messages_from_dict([item])[0])


def _chat_messages(message: BaseMessage) -> list[Message]:
    """Returns what a message says, nothing for one of a kind that chat models do not get (a removal, a function)."""
    if message.type in ("remove", "function"):
        return []
    if isinstance(message.content, list):
        blocks = [block if _is_shown(message, block) else _name_block(block) for block in message.content]
        message = message.model_copy(update={"content": blocks})
    shown = convert_to_openai_messages([message])
    return [each for each in shown if each["role"] in ("system", "user", "assistant", "tool")]


def _is_shown(message: BaseMessage, block: Any) -> bool:
    """Says whether LangChain has a form of a content block for chat completions."""
    try:
        convert_to_openai_messages([message.model_copy(update={"content": [block]})])
    except (ValueError, KeyError, TypeError):
        return False
    return True


def _name_block(block: dict[str, Any]) -> str:
    """Returns what a turn says of a block that has no form for chat completions. Those of Bedrock have no type."""
    text = block.get("text")
    if isinstance(text, str):
        return text
    return "" if "cachePoint" in block else f"[{block.get('type') or next(iter(block), 'part')}]"


class MemoirVectorStore(VectorStore):
    """Texts of a collection, with their metadata and vectors, as documents of a user. Collections and users do not
    mix. No recall shows them: they are a knowledge base, not memory. `user` may be a name that many share.

    `embedding`: without it, texts are searched by words (BM25). `hybrid`: by words and vectors, half and half. Scores
    are similarities, the best first: the cosine, or the share of the best text's. Filters are those of
    search_documents over the metadata: {"year": {"$gt": 2024}}, {"$or": [...]}.
    """

    def __init__(
        self,
        memoir: AnyMemoir,
        user: str,
        embedding: Embeddings | None = None,
        *,
        collection: str = "default",
        hybrid: bool = False,
    ) -> None:
        if hybrid and embedding is None:
            raise ValueError("hybrid=True needs an embedding. Give one, or search by words alone.")
        self.memoir, self.user, self.collection = memoir, user, collection
        self.embedding, self.hybrid = embedding, hybrid

    @property
    def embeddings(self) -> Embeddings | None:
        return self.embedding

    @property
    def _namespace(self) -> list[str]:
        return [_ROOT, self.collection]

    # Writing ----------------------------------------------------------------------------------------------------------

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        entries = self._entries(texts, metadatas, ids)
        vectors = self.embedding.embed_documents(_searched(entries)) if self.embedding and entries else []
        for call in self._puts(entries, vectors):
            run(self.memoir, call)
        return [entry["key"] for entry in entries]

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        entries = self._entries(texts, metadatas, ids)
        vectors = await self.embedding.aembed_documents(_searched(entries)) if self.embedding and entries else []
        for call in self._puts(entries, vectors):
            await arun(self.memoir, call)
        return [entry["key"] for entry in entries]

    def _entries(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None, ids: Sequence[str | None] | None
    ) -> list[dict[str, Any]]:
        texts = list(texts)
        for name, given in (("metadatas", metadatas), ("ids", ids)):
            if given is not None and len(given) != len(texts):
                raise ValueError(f"{name} has {len(given)} entries for {len(texts)} texts. Give one for each text.")
        return [
            {
                "namespace": self._namespace,
                "key": (ids[place] if ids else None) or str(uuid.uuid4()),
                "value": {"page_content": text, "metadata": dict(metadatas[place] or {}) if metadatas else {}},
                "text": replace_unstorable(text),
            }
            for place, text in enumerate(texts)
        ]

    def _puts(self, entries: list[dict[str, Any]], vectors: list[list[float]]) -> Iterable[Call[Any]]:
        if vectors:
            entries = [entry | {"embeddings": [vector]} for entry, vector in zip(entries, vectors, strict=True)]
        for start in range(0, len(entries), _BATCH):
            yield calls.put_documents(self.user, entries[start : start + _BATCH])

    def delete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Deletes the documents of these ids. Without ids: the collection, or with `filter` those that fit."""
        run(self.memoir, self._deletion(ids, **kwargs))
        return True

    async def adelete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Deletes as `delete` does, awaited."""
        await arun(self.memoir, self._deletion(ids, **kwargs))
        return True

    def _deletion(self, ids: Sequence[str] | None, *, filter: Mapping[str, Any] | None = None) -> Call[Any]:
        if ids is None:
            where = {"metadata": dict(filter)} if filter else {}
            return calls.put_documents(self.user, [{"namespace": self._namespace, "where": where}])
        return calls.put_documents(self.user, [{"namespace": self._namespace, "key": key} for key in ids])

    # Reading ----------------------------------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        return [_of_document(each) for each in run(self.memoir, self._getting(ids))]

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        return [_of_document(each) for each in await arun(self.memoir, self._getting(ids))]

    def _getting(self, ids: Sequence[str]) -> Call[Any]:
        return calls.get_documents(self.user, self._namespace, list(ids))

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        vector = self.embedding.embed_query(query) if self.embedding else None
        return self._scored(run(self.memoir, self._search(query, vector, k, **kwargs)), vector)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        vector = await self.embedding.aembed_query(query) if self.embedding else None
        return self._scored(await arun(self.memoir, self._search(query, vector, k, **kwargs)), vector)

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        return [document for document, _ in await self.asimilarity_search_with_score(query, k, **kwargs)]

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        found = run(self.memoir, self._search(None, embedding, k, **kwargs))
        return [document for document, _ in self._scored(found, embedding)]

    async def asimilarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        found = await arun(self.memoir, self._search(None, embedding, k, **kwargs))
        return [document for document, _ in self._scored(found, embedding)]

    def _search(
        self,
        query: str | None,
        vector: list[float] | None,
        k: int,
        *,
        filter: Mapping[str, Any] | None = None,
    ) -> Call[list[FoundDocument]]:
        """Returns the search. An argument that it does not know raises TypeError, since it might be a filter."""
        by_words = query is not None and (vector is None or self.hybrid)
        return calls.search_documents(
            self.user,
            self._namespace,
            query if by_words else None,
            filter={"metadata": dict(filter)} if filter else None,
            limit=k,
            query_embedding=vector,
        )

    def _scored(self, found: list[FoundDocument], vector: list[float] | None) -> list[tuple[Document, float]]:
        """Returns documents with their scores, without those that share no word with a question."""
        if found and vector is not None and all(each.score is None for each in found):
            raise ValueError(
                f'collection "{self.collection}" has no vectors of {len(vector)} dimensions.'
                " Add its texts again with this embedding."
            )
        return [
            (_of_document(each), each.score)
            for each in found
            if each.score is not None and (vector is not None or each.score > 0)
        ]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda score: min(1.0, max(0.0, score))

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Searches as `similarity_search`, then chooses documents that differ. Embeds the `fetch_k` texts again."""
        vector = self._embedder().embed_query(query)
        found = [document for document, _ in self.similarity_search_with_score(query, fetch_k, **kwargs)]
        vectors = self._embedder().embed_documents([each.page_content for each in found]) if found else []
        return _choose(vector, found, vectors, k, lambda_mult)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Searches as `max_marginal_relevance_search`, awaited."""
        vector = await self._embedder().aembed_query(query)
        found = [document for document, _ in await self.asimilarity_search_with_score(query, fetch_k, **kwargs)]
        vectors = await self._embedder().aembed_documents([each.page_content for each in found]) if found else []
        return _choose(vector, found, vectors, k, lambda_mult)

    def _embedder(self) -> Embeddings:
        if self.embedding is None:
            raise ValueError("max_marginal_relevance_search compares vectors. Give the store an embedding.")
        return self.embedding

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> MemoirVectorStore:
        """Returns a store with these texts. `kwargs`: memoir, user and the options of the class."""
        store = cls(embedding=embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> MemoirVectorStore:
        """Returns a store with these texts, awaited."""
        store = cls(embedding=embedding, **kwargs)
        await store.aadd_texts(texts, metadatas, ids=ids)
        return store


def _searched(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["text"] for entry in entries]


def _of_document(found: Any) -> Document:
    return Document(id=found.key, page_content=found.value["page_content"], metadata=found.value["metadata"])


def _choose(
    vector: list[float], found: list[Document], vectors: list[list[float]], k: int, lambda_mult: float
) -> list[Document]:
    import numpy as np  # LangChain needs it for this alone

    if not found:
        return []
    chosen = maximal_marginal_relevance(np.array(vector, dtype=np.float32), vectors, lambda_mult, k)
    return [found[place] for place in chosen]
