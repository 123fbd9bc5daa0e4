"""The store tests of langchain-ai/langgraph's PostgresStore, MemoirStore in its place. It ends documents by itself, so a
sweeper is not needed; what asks that ended ones are returned all the same is left out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from pg_memoir_integrations.langgraph import MemoirStore
from theirs import DSN, adopt, memoir, module, somebody, test_what_is_left_out  # noqa: F401

SECONDS = 6


class Store(MemoirStore):
    def stop_ttl_sweeper(self) -> None:
        pass


@pytest.fixture
def store() -> Store:
    return Store(memoir(), somebody(), ttl={"default_ttl": SECONDS / 60, "refresh_on_read": True})


def rows(store: Store, change: str, namespace: tuple[str, ...], key: str) -> list[Any]:
    """What their tests do to the table of theirs."""
    with psycopg.connect(DSN, autocommit=True) as db:
        whose = "user_id = (select user_id from _memoir.users where external_id = %s)"
        query = f"{change} and namespace = %s and key = %s and {whose}"
        done = db.execute(query, [list(namespace), key, store.user(())])
        return done.fetchall() if done.description else []


def _expire_now(store: Store, namespace: tuple[str, ...], key: str) -> None:
    rows(store, "update _memoir.documents set expires_at = now() - interval '1 minute' where true", namespace, key)


def _row_exists(store: Store, namespace: tuple[str, ...], key: str) -> bool:
    return len(rows(store, "select 1 from _memoir.documents where true", namespace, key)) == 1


def _stored_expires_at(store: Store, namespace: tuple[str, ...], key: str) -> Any:
    return rows(store, "select expires_at from _memoir.documents where true", namespace, key)[0][0]


@contextmanager
def _create_vector_store(
    vector_type: str, distance_type: str, fake_embeddings: Any, text_fields: Any = None, enable_ttl: bool = True
) -> Iterator[Store]:
    index: Any = {"dims": fake_embeddings.dims, "embed": fake_embeddings}
    if text_fields:
        index["fields"] = text_fields
    yield Store(memoir(), somebody(), index=index)


theirs = module("tests.test_store", "libs/checkpoint-postgres")
adopt(
    theirs,
    globals(),
    # Their migrations, patterns of their SQL, their rows' times; scores that are one distance alone.
    r"nonnull_migrations|_escape_like_literal|_namespace_match_pattern|with store\._cursor\(\)|disabled_preserves"
    r"|test_scores|vector_store_initialization",
    _expire_now=_expire_now,
    _row_exists=_row_exists,
    _stored_expires_at=_stored_expires_at,
    _create_vector_store=_create_vector_store,
)
fake_embeddings = module("tests.conftest").fake_embeddings


@pytest.fixture
def vector_store(fake_embeddings: Any) -> Iterator[Store]:
    with _create_vector_store("halfvec", "cosine", fake_embeddings) as made:
        yield made
