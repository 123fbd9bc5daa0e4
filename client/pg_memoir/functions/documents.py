"""JSON documents under namespaces, as frameworks' stores have them. How to read the definitions: call.py."""

# mypy: disable-error-code="empty-body"

from collections.abc import Sequence
from typing import Any

from ..arguments import Conditions, Entries, Filter, Label, Text, Vector
from ..call import calls, rows, value, values
from ..types import Document, FoundDocument


class Documents:
    """JSON documents under namespaces. No recall shows them. They come back equal, with NUL, lone surrogates and NaN in
    them (texts.py says how they are written)."""

    @value
    @calls("put_documents", exact=["result"])
    def put_documents(self, user: str, documents: Entries) -> dict[str, Any]:
        """Stores documents, all or nothing: dicts with `namespace` (a list), `key`, `value` (None deletes), `text`
        (what is searched: every string in it unless given, None for nothing), `embeddings` (vectors, of any
        dimension), `minutes` (how long it lives).

        Several writers lose nothing by `append` (True instead of a key: after the last that was appended to the
        namespace) and `merge` (instead of a value: fields to set in the document as it is, or in its field `at`).
        `exists` (a bool) and `was` (the value that you read) say what must still hold, else ChangedElsewhereError is
        raised and nothing written. `namespace` with `where` (a filter of search_documents) deletes those that fit.
        Returns `stored`, `deleted`, `secret` and `appended` (keys). Raises InvalidArgumentError, TextTooLargeError,
        ChangedElsewhereError."""

    @rows
    @calls("get_documents", exact=["namespace", "key", "value"])
    def get_documents(
        self, user: str, namespace: Sequence[Label], keys: Sequence[Label], *, refresh: bool | None = None
    ) -> list[Document]:
        """Documents of one namespace by key, none for what is not there. `refresh` (True): those that end by themselves
        live on from now."""

    @rows
    @calls("search_documents", exact=["namespace", "key", "value"])
    def search_documents(
        self,
        user: str,
        namespace: Sequence[Label] | None = None,
        query: Text | None = None,
        *,
        filter: Filter | None = None,
        limit: int | None = None,
        offset: int | None = None,
        refresh: bool | None = None,
        query_embedding: Vector | None = None,
    ) -> list[FoundDocument]:
        """Documents of a namespace and those below it: with a query or its vector the best first, else those written
        last (both: half and half). `filter`: {"field": value}, {"field": {"$gt": 5}} ($eq, $ne, $gt, $gte, $lt,
        $lte, $in, $nin, $exists) or {"$or": [filters]} ($and, $not). Raises InvalidArgumentError."""

    @values
    @calls("list_document_namespaces", exact=["result"])
    def list_document_namespaces(
        self,
        user: str,
        conditions: Conditions | None = None,
        *,
        depth: int | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[list[str]]:
        """Namespaces that hold documents, cut to `depth` labels. `conditions`: {"match": "prefix" or "suffix",
        "path": […]}, "*" being any one label. Raises InvalidArgumentError."""
