"""JSON documents under namespaces, as frameworks' stores have them. How to read the definitions: call.py."""

# mypy: disable-error-code="empty-body"

from collections.abc import Sequence
from typing import Any

from .arguments import List, Object, Vector
from .call import rows, value, values
from .types import Document, FoundDocument


class Documents:
    """JSON documents under namespaces. No recall shows them."""

    @value
    def put_documents(self, user: str, documents: List) -> dict[str, Any]:
        """Stores documents, all or nothing: dicts with `namespace` (a list), `key`, `value` (None deletes), `text` (what is
        searched: every string in it unless given, None for nothing), `embeddings` (vectors, of any dimension), `minutes`
        (how long it lives). Returns `stored`, `deleted`, `secret` (keys). Raises InvalidArgumentError, TextTooLargeError."""

    @rows
    def get_documents(
        self, user: str, namespace: Sequence[str], keys: Sequence[str], *, refresh: bool | None = None
    ) -> list[Document]:
        """Documents of one namespace by key, none for what is not there. `refresh` (True): those that end by themselves
        live on from now."""

    @rows
    def search_documents(
        self,
        user: str,
        namespace: Sequence[str] | None = None,
        query: str | None = None,
        *,
        filter: Object | None = None,
        limit: int | None = None,
        offset: int | None = None,
        refresh: bool | None = None,
        query_embedding: Vector | None = None,
    ) -> list[FoundDocument]:
        """Documents of a namespace and those below it: with a query or its vector the best first, else those written last
        (both: half and half).
        `filter`: {"field": value} or {"field": {"$gt": 5}} ($eq, $ne, $gt, $gte, $lt, $lte). Raises
        InvalidArgumentError."""

    @values
    def list_document_namespaces(
        self,
        user: str,
        conditions: List | None = None,
        *,
        depth: int | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[list[str]]:
        """Namespaces that hold documents, cut to `depth` labels. `conditions`: {"match": "prefix" or "suffix", "path": […]},
        "*" being any one label. Raises InvalidArgumentError."""
