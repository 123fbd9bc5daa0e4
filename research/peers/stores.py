"""One store, driven over a pipe: run by measure.py with the interpreter of the store's own environment. Standard library only.

Reads JSON lines: {"write": {user, key, text, at}}, {"search": {user, query, limit}}, {"end": true}. Answers each with one line;
before that it may ask {"embed": [texts]} and gets {"vectors": [...]}: every store has the same embedding function, and its time
is not counted. Times are seconds of the store's own call: elapsed, and run by this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from importlib.metadata import version
from urllib.parse import quote

PIPE = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a library prints must not end up in the answers
LOCK = threading.Lock()
DIMENSION = 384


class Vectors:
    """The embedding function; `seconds` is the time spent waiting for it, `ran` what the processor ran of that."""

    seconds = 0.0
    ran = 0.0

    def __call__(self, texts):
        with LOCK:
            start, ran = time.perf_counter(), time.process_time()
            answer({"embed": list(texts)})
            vectors = json.loads(sys.stdin.readline())["vectors"]
            Vectors.seconds += time.perf_counter() - start
            Vectors.ran += time.process_time() - ran
        return vectors


def answer(value) -> None:
    PIPE.write(json.dumps(value) + "\n")
    PIPE.flush()


def url(scheme: str) -> str:
    """The database as a URL with the socket's folder as a parameter."""
    place = json.loads(os.environ["PEER_DATABASE"])
    return f"{scheme}://{place['user']}@/{place['dbname']}?host={quote(place['host'])}&port={place['port']}"


class LangGraph:
    """LangGraph's PostgresStore with its vector index (exact names: put, search)."""

    packages = ("langgraph-checkpoint-postgres", "langgraph-checkpoint")
    settings = "index: dims 384, fields text; HNSW as by default"

    def __init__(self) -> None:
        from langgraph.store.postgres import PostgresStore

        self._opened = PostgresStore.from_conn_string(
            url("postgresql"), index={"dims": DIMENSION, "embed": lambda texts: Vectors()(texts), "fields": ["text"]}
        )
        self._store = self._opened.__enter__()
        self._store.setup()

    def write(self, user, key, text, at) -> None:
        self._store.put((user,), key, {"text": text, "at": at})

    def search(self, user, query, limit):
        return [item.key for item in self._store.search((user,), query=query, limit=limit)]


class Mem0:
    """Mem0 with infer=False on pgvector."""

    packages = ("mem0ai",)
    settings = "infer=False, vector store pgvector with HNSW, threshold 0"

    def __init__(self) -> None:
        os.environ.setdefault("MEM0_TELEMETRY", "False")
        os.environ.setdefault("OPENAI_API_KEY", "unused")
        from langchain_core.embeddings import Embeddings
        from mem0 import Memory

        class Shared(Embeddings):
            def embed_documents(self, texts):
                return Vectors()(texts)

            def embed_query(self, text):
                return Vectors()([text])[0]

        place = json.loads(os.environ["PEER_DATABASE"])
        self._memory = Memory.from_config(
            {
                "vector_store": {
                    "provider": "pgvector",
                    "config": {
                        "connection_string": url("postgresql"),
                        "dbname": place["dbname"],
                        "embedding_model_dims": DIMENSION,
                        "hnsw": True,
                        "collection_name": "memories",
                    },
                },
                "embedder": {"provider": "langchain", "config": {"model": Shared(), "embedding_dims": DIMENSION}},
                "history_db_path": os.path.join(os.environ["PEER_FOLDER"], "mem0-history.db"),
            }
        )

    def write(self, user, key, text, at) -> None:
        self._memory.add(text, user_id=user, metadata={"key": key}, infer=False)

    def search(self, user, query, limit):
        return [
            hit["metadata"]["key"]
            for hit in self._memory.search(query, filters={"user_id": user}, top_k=limit, threshold=0.0)["results"]
        ]


class LangChain:
    """LangChain's PGVectorStore with hybrid search, a table of its own per user."""

    packages = ("langchain-postgres",)
    settings = "hybrid search with a tsvector column and GIN, reciprocal rank fusion, k 50 in both arms"

    def __init__(self) -> None:
        from langchain_core.embeddings import Embeddings
        from langchain_postgres import PGEngine, PGVectorStore
        from langchain_postgres.v2.hybrid_search_config import HybridSearchConfig, reciprocal_rank_fusion

        class Shared(Embeddings):
            def embed_documents(self, texts):
                return Vectors()(texts)

            def embed_query(self, text):
                return Vectors()([text])[0]

        self._store_class, self._shared = PGVectorStore, Shared()
        self._engine = PGEngine.from_connection_string(url("postgresql+psycopg"))
        self._hybrid = lambda table: HybridSearchConfig(
            index_name=f"{table}_words",
            tsv_column="content_tsv",
            tsv_lang="pg_catalog.english",
            fusion_function=reciprocal_rank_fusion,
            fusion_function_parameters={"rrf_k": 60, "fetch_top_k": 50},
            primary_top_k=50,
            secondary_top_k=50,
        )
        self._stores = {}

    def _of(self, user):
        if user not in self._stores:
            table = f"memories_{len(self._stores)}"
            self._engine.init_vectorstore_table(
                table_name=table, vector_size=DIMENSION, hybrid_search_config=self._hybrid(table)
            )
            self._stores[user] = self._store_class.create_sync(
                self._engine, self._shared, table_name=table, k=50, hybrid_search_config=self._hybrid(table)
            )
            self._stores[user].apply_hybrid_search_index()
        return self._stores[user]

    def write(self, user, key, text, at) -> None:
        self._of(user).add_texts([text], metadatas=[{"key": key}])

    def search(self, user, query, limit):
        return [document.metadata["key"] for document in self._of(user).similarity_search(query, k=limit)]


class Hindsight:
    """Hindsight's engine without an LLM: chunks as they are, no cross-encoder. Of its own ways to merge the arms, interleaving
    finds far more on such conversations than rank fusion, so it is asked for."""

    packages = ("hindsight-api-slim",)
    settings = "LLM provider none, reranking interleave, budget mid, 8,000 tokens asked for, question_date that of the last turn"

    def __init__(self) -> None:
        os.environ |= {
            "HINDSIGHT_API_LLM_PROVIDER": "none",
            "HINDSIGHT_API_RERANKER_PROVIDER": "rrf",
            "HINDSIGHT_API_SKIP_LLM_VERIFICATION": "true",
            "HINDSIGHT_API_LOG_LEVEL": "error",
            "HINDSIGHT_API_ENABLE_OBSERVATIONS": "false",
        }
        from hindsight_api import MemoryEngine, RequestContext
        from hindsight_api.engine.cross_encoder import RRFPassthroughCrossEncoder
        from hindsight_api.engine.embeddings import Embeddings

        class Shared(Embeddings):
            provider_name = "shared"
            dimension = DIMENSION

            async def initialize(self):
                pass

            async def encode(self, texts):
                return Vectors()(texts)

        self._loop = asyncio.new_event_loop()
        self._context, self._last = RequestContext, None
        self._engine = MemoryEngine(
            db_url=url("postgresql"),
            memory_llm_provider="none",
            embeddings=Shared(),
            cross_encoder=RRFPassthroughCrossEncoder(),
            skip_llm_verification=True,
        )
        self._loop.run_until_complete(self._engine.initialize())

    def write(self, user, key, text, at) -> None:
        content = {"content": text, "document_id": f"{user}/{key}"}
        if at:
            from datetime import datetime

            content["event_date"] = self._last = datetime.fromisoformat(at)
        self._loop.run_until_complete(self._engine.retain_batch_async(user, [content], request_context=self._context()))

    def search(self, user, query, limit):
        from hindsight_api.engine.memory_engine import Budget

        found = self._loop.run_until_complete(
            self._engine.recall_async(
                user,
                query,
                budget=Budget.MID,
                max_tokens=8000,
                fact_type=["world", "experience"],
                reranking="interleave",
                question_date=self._last,
                request_context=self._context(),
            )
        )
        return [fact.document_id.removeprefix(f"{user}/") for fact in found.results if fact.document_id][:limit]


def main() -> None:
    name = sys.argv[1]
    store = {"langgraph": LangGraph, "mem0": Mem0, "langchain": LangChain, "hindsight": Hindsight}[name]()
    answer(
        {"ready": ", ".join(f"{package} {version(package)}" for package in store.packages), "settings": store.settings}
    )
    for line in sys.stdin:
        order = json.loads(line)
        if "end" in order:
            break
        before, before_ran, start, ran = Vectors.seconds, Vectors.ran, time.perf_counter(), time.process_time()
        found = store.write(**order["write"]) if "write" in order else store.search(**order["search"])
        answer(
            {
                "seconds": time.perf_counter() - start - (Vectors.seconds - before),
                "ran": time.process_time() - ran - (Vectors.ran - before_ran),
                "found": found,
            }
        )
    answer({"done": True})
    os._exit(0)  # background threads of a library must not keep us


if __name__ == "__main__":
    main()
