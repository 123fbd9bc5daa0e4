"""LangGraph: a store whose documents lie in PostgreSQL, and what puts a compiled context before the model.

graph = builder.compile(store=MemoirStore(memoir, user="alice"), checkpointer=PostgresSaver(...))
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import groupby
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
)
from pg_memoir.call import Call
from pg_memoir.errors import NothingToContinueError
from pg_memoir.functions import calls
from pg_memoir.texts import replace_unstorable
from pg_memoir.types import Document, FoundDocument

from .running import AnyMemoir, arun, arun_steps, run, run_steps

Namespace = tuple[str, ...]


class MemoirStore(BaseStore):
    """A user's documents as a LangGraph store. `user`: whose, or what tells it from a namespace, which then has to
    name it in searches and listings as well. `index`: as PostgresStore has it; without it documents are searched by
    words (BM25), with it by the vectors of its `embed`, or with `hybrid` by both. `ttl`: as there; what has ended is
    never returned.
    """

    supports_ttl = True

    def __init__(
        self,
        memoir: AnyMemoir,
        user: str | Callable[[Namespace], str],
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        hybrid: bool = False,
    ) -> None:
        self.memoir = memoir
        self.user = user if callable(user) else lambda namespace: user
        self.ttl_config = ttl
        self.index_config = index
        self.hybrid = hybrid
        self.embeddings: Embeddings | None = ensure_embeddings(index.get("embed")) if index else None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        texts = self._texts(ops)
        vectors = self.embeddings.embed_documents(texts) if self.embeddings and texts else []
        return self._order_results(
            ops, [(places, run(self.memoir, call)) for places, call in self._calls(ops, texts, vectors)]
        )

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        texts = self._texts(ops)
        vectors = await self.embeddings.aembed_documents(texts) if self.embeddings and texts else []
        done = [(places, await arun(self.memoir, call)) for places, call in self._calls(ops, texts, vectors)]
        return self._order_results(ops, done)

    def _texts(self, ops: list[Op]) -> list[str]:
        """What vectors are needed of."""
        if not self.embeddings:
            return []
        found = [self._index_texts(op) if isinstance(op, PutOp) else [_query(op)] for op in ops]
        return list(dict.fromkeys(text for texts in found for text in texts if text))

    def _index_texts(self, op: PutOp) -> list[str]:
        """What of a document is searched: the texts at the paths, all of it where none is named."""
        if op.value is None or op.index is False:
            return []
        paths = op.index or (self.index_config or {}).get("fields") or ["$"]
        return [replace_unstorable(text) for path in paths for text in get_text_at_path(op.value, path)]

    def _calls(
        self, ops: list[Op], texts: list[str], vectors: list[list[float]]
    ) -> Iterable[tuple[list[int], Call[Any]]]:
        """Reads come before writes, as they stand before the batch; what may go together does."""
        vector = dict(zip(texts, vectors)).get
        gets = [(place, op) for place, op in enumerate(ops) if isinstance(op, GetOp)]
        for (namespace, refresh), some in groupby(gets, lambda each: (each[1].namespace, each[1].refresh_ttl)):
            places = list(some)
            keys = [op.key for _, op in places]
            call = calls.get_documents(self.user(namespace), namespace, keys, refresh=self._refresh(refresh))
            yield [place for place, _ in places], call
        for place, op in enumerate(ops):
            if isinstance(op, SearchOp):
                yield (
                    [place],
                    calls.search_documents(
                        self.user(op.namespace_prefix),
                        op.namespace_prefix,
                        None if not op.query or self.embeddings and not self.hybrid else op.query,
                        filter=op.filter,
                        limit=op.limit,
                        offset=op.offset,
                        refresh=self._refresh(op.refresh_ttl),
                        query_embedding=vector(query) if (query := _query(op)) else None,
                    ),
                )
            elif isinstance(op, ListNamespacesOp):
                conditions = [{"match": c.match_type, "path": list(c.path)} for c in op.match_conditions or ()]
                known = next((tuple(c["path"]) for c in conditions if c["match"] == "prefix"), ())
                yield (
                    [place],
                    calls.list_document_namespaces(
                        self.user(known), conditions, depth=op.max_depth, limit=op.limit, offset=op.offset
                    ),
                )
        puts: dict[str, list[dict[str, Any]]] = {}
        for op in ops:
            if isinstance(op, PutOp):
                puts.setdefault(self.user(op.namespace), []).append(self._document(op, vector))
        for user, documents in puts.items():
            yield [], calls.put_documents(user, documents)

    def _document(self, op: PutOp, vector: Callable[[str], list[float] | None]) -> dict[str, Any]:
        document: dict[str, Any] = {"namespace": list(op.namespace), "key": str(op.key), "value": op.value}
        if op.value is None:
            return document
        texts = self._index_texts(op)
        if op.index is False:
            document["text"] = None
        elif op.index or (self.index_config or {}).get("fields"):
            document["text"] = "\n".join(texts)
        minutes = op.ttl if op.ttl is not NOT_PROVIDED else (self.ttl_config or {}).get("default_ttl")
        vectors = [found for text in texts if (found := vector(text))]
        return document | {"embeddings": vectors, "minutes": minutes}

    def _refresh(self, asked: bool | None) -> bool:
        return (self.ttl_config or {}).get("refresh_on_read", True) if asked is None else asked

    def _order_results(self, ops: list[Op], done: list[tuple[list[int], Any]]) -> list[Result]:
        results: list[Result] = [None] * len(ops)
        for places, answer in done:
            for place in places:
                op = ops[place]
                if isinstance(op, GetOp):
                    results[place] = next((_item(found) for found in answer if found.key == op.key), None)
                elif isinstance(op, SearchOp):
                    results[place] = [_to_item(found) for found in answer]
                else:
                    results[place] = [tuple(namespace) for namespace in answer]
        return results


def _query(op: Op) -> str | None:
    return replace_unstorable(getattr(op, "query", None))  # type: ignore[no-any-return]


def _item(found: Document) -> Item:
    return Item(
        value=found.value,
        key=found.key,
        namespace=tuple(found.namespace),
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


def _to_item(found: FoundDocument) -> SearchItem:
    return SearchItem(
        namespace=tuple(found.namespace),
        key=found.key,
        value=found.value,
        created_at=found.created_at,
        updated_at=found.updated_at,
        score=found.score,
    )


class _Talk:
    """A graph's messages as a session's turns, each once, by its id."""

    def __init__(self, memoir: AnyMemoir, user: str, session: str, opening: dict[str, Any]) -> None:
        self.user, self.session, self.opening = user, session, opening
        self.known: set[str] | None = None
        self.read_turns = 0

    def work(self, state: Any, budget: int | None, compiled: bool) -> Generator[Call[Any], Any, Any]:
        """Opens the session, appends what is new of the state's messages, and compiles the list."""
        if self.known is None:
            yield calls.open_session(self.user, self.session, **self.opening)
            self.known = set()
        # Another process may have stored what this one has not seen.
        stored = yield calls.history(self.user, self.session, from_turn=self.read_turns)
        self.known |= {str(turn["id"]) for turn in stored if "id" in turn}
        self.read_turns = stored[-1]["turn_index"] + 1 if stored else self.read_turns
        messages = convert_to_messages(state["messages"] if isinstance(state, Mapping) else state.messages)
        shown = convert_to_openai_messages(messages, include_id=True)
        new = [
            m
            for m in replace_unstorable(shown)
            if m["role"] not in ("system", "developer") and m.get("id") not in self.known
        ]
        if new:
            yield calls.append(self.user, self.session, new)
            self.known |= {message["id"] for message in new if message.get("id")}
        if not compiled:
            return {}
        try:
            found = yield calls.compile_context(self.user, self.session, budget=budget)
        except NothingToContinueError:  # another process answered in this session meanwhile
            found = messages
        return {"llm_input_messages": convert_to_messages(found)}


def _node(memoir: AnyMemoir, work: Callable[[Any], Generator[Call[Any], Any, Any]], name: str) -> Runnable[Any, Any]:
    async def run_async(state: Any) -> Any:
        return await arun_steps(memoir, work(state))

    return RunnableLambda(lambda state: run_steps(memoir, work(state)), run_async, name=name)


def recalled(
    memoir: AnyMemoir, user: str, session: str, *, budget: int | None = None, **opening: Any
) -> Runnable[Any, Any]:
    """What stands before the model, as a node or `pre_model_hook`: stores the new ones of the state's messages (known
    by their ids) and gives the model the session's compiled list, in `llm_input_messages`. The graph's own messages
    stay as they are; its system messages do not count, `opening` (as open_session) has a `system_prompt`.

        agent = create_react_agent(model, tools, pre_model_hook=recalled(memoir, "alice", "support-42"),
                                   post_model_hook=remembered(memoir, "alice", "support-42"))
    """
    talk = _Talk(memoir, user, session, opening)
    return _node(memoir, lambda state: talk.work(state, budget, True), "recalled")


def remembered(memoir: AnyMemoir, user: str, session: str, **opening: Any) -> Runnable[Any, Any]:
    """What stands behind the model, as a node or `post_model_hook`: stores the new ones of the state's messages."""
    talk = _Talk(memoir, user, session, opening)
    return _node(memoir, lambda state: talk.work(state, None, False), "remembered")
