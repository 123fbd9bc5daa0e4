"""CrewAI: the storage of its unified memory, in PostgreSQL.

memory = Memory(storage=MemoirStorage(memoir, "alice"))
crew = Crew(agents=agents, tasks=tasks, memory=memory)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from crewai.memory.storage.backend import EmbeddingDimensionMismatchError
from crewai.memory.types import MemoryRecord, ScopeInfo
from pg_memoir.call import Call
from pg_memoir.functions import calls
from pg_memoir.types import FoundDocument

from .running import AnyMemoir, arun, dump_exact, run

_ROOT = "crewai"
_PAGE = 10_000
_BATCH = 500
"""Records that one call stores."""


class MemoirStorage:
    """A StorageBackend: records as documents of a user, found by the vectors that CrewAI's embedder makes. Scores are
    the cosine, 0 where that is below. Scopes are paths: /a has /a/b below it, and not /ab.

    `collection`: several memories of one user do not mix.
    """

    def __init__(self, memoir: AnyMemoir, user: str, *, collection: str = "default") -> None:
        self.memoir, self.user, self.collection = memoir, user, collection

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoirStorage:
        """Returns the storage itself, since a copy of a crew shares its memory."""
        return self

    # Writing ----------------------------------------------------------------------------------------------------------

    def save(self, records: list[MemoryRecord]) -> None:
        """Stores records. One of the same id is replaced."""
        for call in self._puts(records):
            run(self.memoir, call)

    async def asave(self, records: list[MemoryRecord]) -> None:
        """Stores records, awaited."""
        for call in self._puts(records):
            await arun(self.memoir, call)

    def update(self, record: MemoryRecord) -> None:
        """Replaces a record. One without an embedding keeps the vector that is stored."""
        entry = self._entry(record)
        if record.embedding is None:
            del entry["embeddings"]
            entry["merge"] = entry.pop("value")
        run(self.memoir, calls.put_documents(self.user, [entry]))

    def touch_records(self, record_ids: list[str]) -> None:
        """Sets when records were last read."""
        now = datetime.now(UTC).replace(tzinfo=None).isoformat()
        entries = [
            self._place(key) | {"at": "record", "merge": {"last_accessed": now}, "exists": True}
            for key in (each.key for each in run(self.memoir, self._get(record_ids)))
        ]
        if entries:
            run(self.memoir, calls.put_documents(self.user, entries))

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Deletes the records that meet all that is given, and returns how many."""
        call = self._deletion(scope_prefix, categories, record_ids, older_than, metadata_filter)
        return int(run(self.memoir, call)["deleted"])

    async def adelete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Deletes as `delete` does, awaited."""
        call = self._deletion(scope_prefix, categories, record_ids, older_than, metadata_filter)
        return int((await arun(self.memoir, call))["deleted"])

    def reset(self, scope_prefix: str | None = None) -> None:
        """Deletes all records of a scope and those below it."""
        self.delete(scope_prefix)

    # Reading ----------------------------------------------------------------------------------------------------------

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Returns the records nearest to a vector, with their scores. `categories`: those that have one of them."""
        call = self._search(query_embedding, scope_prefix, categories, metadata_filter, limit)
        return self._scored(run(self.memoir, call), query_embedding, min_score)

    async def asearch(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Searches as `search` does, awaited."""
        call = self._search(query_embedding, scope_prefix, categories, metadata_filter, limit)
        return self._scored(await arun(self.memoir, call), query_embedding, min_score)

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Returns a record, without its vector."""
        return next(map(_of_document, run(self.memoir, self._get([record_id]))), None)

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        """Returns the records of a scope and those below it, newest first."""
        if limit <= 0 or offset < 0:
            return []
        found = sorted(self._read_all(scope_prefix), key=lambda each: (each.value["at"], each.key), reverse=True)
        return [_of_document(each) for each in found[offset : offset + limit]]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Returns how many records a scope and those below it have, of which categories and time."""
        path = _path(scope)
        records = [_of_document(each) for each in self._read_all(path)]
        times = sorted((record.created_at for record in records), key=_seconds)
        return ScopeInfo(
            path=path,
            record_count=len(records),
            categories=sorted({name for record in records for name in record.categories}),
            oldest_record=times[0] if times else None,
            newest_record=times[-1] if times else None,
            child_scopes=_children(path, (record.scope for record in records)),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Returns the scopes that stand directly below one."""
        return _children(_path(parent), (each.value["scope"] for each in self._read_all(parent)))

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Returns the categories of a scope and how many records have each."""
        return dict(Counter(name for each in self._read_all(scope_prefix) for name in each.value["categories"]))

    def count(self, scope_prefix: str | None = None) -> int:
        """Returns how many records a scope and those below it have."""
        return sum(1 for _ in self._read_all(scope_prefix))

    # Calls ------------------------------------------------------------------------------------------------------------

    def _place(self, record_id: str) -> dict[str, Any]:
        return {"namespace": [_ROOT, self.collection], "key": record_id, "text": None}

    def _entry(self, record: MemoryRecord) -> dict[str, Any]:
        return self._place(record.id) | {
            "value": {
                "record": dump_exact(record),
                "scope": _path(record.scope),
                "categories": dict.fromkeys(record.categories, True),
                "at": _seconds(record.created_at),
                "dimensions": len(record.embedding or ()),
            },
            "embeddings": [record.embedding] if record.embedding else [],
        }

    def _puts(self, records: Sequence[MemoryRecord]) -> Iterator[Call[Any]]:
        entries = [self._entry(record) for record in records]
        for start in range(0, len(entries), _BATCH):
            yield calls.put_documents(self.user, entries[start : start + _BATCH])

    def _get(self, record_ids: Sequence[str]) -> Call[Any]:
        return calls.get_documents(self.user, [_ROOT, self.collection], list(record_ids))

    def _read_all(self, scope_prefix: str | None) -> Iterator[FoundDocument]:
        for offset in range(0, 1 << 30, _PAGE):
            call = calls.search_documents(
                self.user, [_ROOT, self.collection], filter=_filter(scope_prefix), limit=_PAGE, offset=offset
            )
            found = run(self.memoir, call)
            yield from found
            if len(found) < _PAGE:
                return

    def _search(
        self,
        vector: list[float],
        scope_prefix: str | None,
        categories: list[str] | None,
        metadata: dict[str, Any] | None,
        limit: int,
    ) -> Call[list[FoundDocument]]:
        asked = _filter(scope_prefix, categories, metadata)
        namespace = [_ROOT, self.collection]
        return calls.search_documents(self.user, namespace, filter=asked, limit=limit, query_embedding=vector)

    def _deletion(
        self,
        scope_prefix: str | None,
        categories: list[str] | None,
        record_ids: list[str] | None,
        older_than: datetime | None,
        metadata: dict[str, Any] | None,
    ) -> Call[dict[str, Any]]:
        asked = _filter(scope_prefix, categories, metadata)
        if record_ids is not None:
            asked["record"] = {"id": {"$in": list(record_ids)}} | asked.get("record", {})
        if older_than is not None:
            asked["at"] = {"$lt": _seconds(older_than)}
        return calls.put_documents(self.user, [{"namespace": [_ROOT, self.collection], "where": asked}])

    def _scored(
        self, found: list[FoundDocument], vector: list[float], min_score: float
    ) -> list[tuple[MemoryRecord, float]]:
        held = {each.value["dimensions"] for each in found} - {0}
        if held and all(each.score is None for each in found):
            raise EmbeddingDimensionMismatchError(held.pop(), len(vector))
        scored = [(_of_document(each), max(0.0, each.score)) for each in found if each.score is not None]
        return [(record, score) for record, score in scored if score >= min_score]


def _filter(
    scope_prefix: str | None, categories: Iterable[str] | None = None, metadata: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Returns what search_documents filters by."""
    asked: list[dict[str, Any]] = []
    if scope_prefix is not None and (path := _path(scope_prefix)) != "/":
        # A zero is the character behind the slash, so this is all that begins with the path and a slash.
        asked.append({"$or": [{"scope": path}, {"scope": {"$gte": f"{path}/", "$lt": f"{path}0"}}]})
    if categories:
        asked.append({"$or": [{"categories": {name: True}} for name in categories]})
    record = {"record": {"metadata": {key: {"$eq": value} for key, value in metadata.items()}}} if metadata else {}
    return record | ({"$and": asked} if asked else {})


def _path(scope: str) -> str:
    return "/" + scope.strip("/")


def _children(path: str, scopes: Iterable[str]) -> list[str]:
    head = path.rstrip("/") + "/"
    names = {_path(scope).removeprefix(head).split("/")[0] for scope in scopes if _path(scope).startswith(head)}
    return sorted(head + name for name in names if name)


def _seconds(moment: datetime) -> float:
    """Returns a time as a number. CrewAI's own times are in UTC and do not say so."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _of_document(found: Any) -> MemoryRecord:
    return MemoryRecord.model_validate(found.value["record"])
