"""Hindsight: the archives that its banks and documents are exported to (.zip), and what its API answers: memory units,
recalls, mental models, directives.

A unit that was invalidated has ended. Documents come in their chunks, and a fact names its cause, an observation its
facts. When something happened is no end of a fact: it stays in the metadata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from .conversations import Fact, Item, Options
from .facts import Entry, find_end, make_fact, read_each

SOURCE = "hindsight"
_LISTS = ("items", "results", "documents", "observations", "mental_models", "directives")
_KINDS = {"world": "fact", "experience": "event", "opinion": "preference", "observation": "fact"}
_DATES = ("occurred_start", "occurred_end", "event_date", "mentioned_at", "consolidated_at")


def is_record(record: Any) -> bool:
    """Whether that is an archive, a document of one, a memory unit, or an answer with some."""
    if not isinstance(record, dict):
        return False
    manifest = record.get("manifest")
    if isinstance(manifest, dict) and "source_bank_id" in manifest:
        return True
    found = [record[name] for name in _LISTS if isinstance(record.get(name), list)]
    return _is_item(record) or any(_is_item(item) for items in found for item in items[:5])


def _is_item(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.get("fact_type", item.get("type"))
    unit = isinstance(item.get("text"), str) and ("fact_type" in item or "id" in item and kind in _KINDS)
    return unit or _is_document(item) or _is_model(item) or {"text", "proof_count", "sources"} <= set(item)


def _is_document(item: dict[str, Any]) -> bool:
    return "id" in item and "original_text" in item and "bank_id" in item or {"facts", "chunks", "id"} <= set(item)


def _is_model(item: dict[str, Any]) -> bool:
    return {"bank_id", "name", "content"} <= set(item)


def read(records: Sequence[Entry], options: Options) -> Iterator[Item]:
    """Reads what belongs together: the lines of a file, or one archive."""
    for record in records:
        manifest = record.object("manifest")
        bank = manifest.get("source_bank_id") or record.get("bank_id")
        known: dict[tuple[str, int], str] = {}  # (document, place of a fact in it) → its id
        inner = [child for name in _LISTS for child in record.children(name)]
        yield from read_each(inner or ([] if manifest else [record]), _read_one, bank, known, options)


def _read_one(entry: Entry, bank: Any, known: dict[tuple[str, int], str], options: Options) -> Iterator[Item]:
    bank = entry.get("bank_id") or bank
    if _is_document(entry.value):
        yield from _document(entry, bank, known, options)
    elif _is_model(entry.value):
        yield from _model(entry, bank, options)
    else:
        refers = [known.get((str(s.get("document_id")), s.get("fact_index"))) for s in entry.children("sources")]
        refers += entry.texts("source_memory_ids") + entry.texts("source_fact_ids")
        unit_id = str(entry.get("id") or f"observation#{_digest(entry.text('text'))}")
        yield _unit(entry, unit_id, bank, options, [("references", other) for other in refers if other])


def _document(document: Entry, bank: Any, known: dict[tuple[str, int], str], options: Options) -> Iterator[Item]:
    """A document, then its facts. Facts have no id there: their text is one, so another export has the same."""
    name = document.text("id")
    said_at = document.time("created_at")
    chunks = document.children("chunks") if document.children("chunks") else [document]
    for place, chunk in enumerate(chunks):
        if isinstance(chunk.value, dict) and (text := chunk.find_text("chunk_text", "original_text")):
            yield make_fact(
                document, options, SOURCE, id=f"{name}#chunk{place}", content=text, user=bank, type="document_chunk",
                said_at=said_at, tags=document.texts("tags"), metadata={"document_id": name},
            )  # fmt: skip
    facts = document.children("facts")
    for place, fact in enumerate(facts):
        if isinstance(fact.value, dict) and fact.find_text("text"):
            known[name, place] = f"{name}#{_digest(fact.text('text'))}"
    places = {fact.path: place for place, fact in enumerate(facts)}

    def read_fact(fact: Entry) -> Iterator[Item]:
        fact.text("text")
        causes = [
            (str(cause.get("relation_type")), known.get((name, cause.get("target_fact_index"))))
            for cause in fact.children("causal_relations")
            if isinstance(cause.value, dict)
        ]
        relations = [("caused_by" if kind == "caused_by" else "relates_to", other) for kind, other in causes if other]
        yield _unit(fact, known[name, places[fact.path]], bank, options, relations, name, said_at)

    yield from read_each(facts, read_fact)


def _unit(
    unit: Entry,
    unit_id: str,
    bank: Any,
    options: Options,
    relations: list[tuple[str, str]],
    document: str | None = None,
    noted_at: Any = None,
) -> Fact:
    kind = str(unit.get("fact_type") or unit.get("type") or "observation")
    ended = find_end(unit, "invalidated_at", "updated_at") if unit.get("state") == "invalidated" else None
    dates = {name: unit.get(name) for name in _DATES}
    kept = {"kind": kind, "context": unit.find_text("context"), "document_id": unit.get("document_id") or document}
    return make_fact(
        unit, options, SOURCE,
        id=unit_id, content=unit.text("text"), user=bank, type=_KINDS.get(kind, "fact"), category=kind, valid_to=ended,
        said_at=unit.time("mentioned_at", "event_date", "date", "occurred_start", "created_at") or noted_at,
        tags=unit.texts("tags") + unit.texts("entities"), metadata=unit.object("metadata") | kept | dates,
        relations=tuple(relations),
    )  # fmt: skip


def _model(model: Entry, bank: Any, options: Options) -> Iterator[Fact]:
    """A mental model, or a directive, which has a priority and may be off."""
    directive = "priority" in model.value
    if model.find_text("content"):
        yield make_fact(
            model, options, SOURCE,
            id=str(model.get("id")), content=model.text("content"), user=bank,
            type="instruction" if directive else "fact", category="directive" if directive else "mental model",
            said_at=model.time("last_refreshed_at", "updated_at", "created_at"),
            valid_to=find_end(model, "updated_at") if model.get("is_active") is False else None,
            tags=model.texts("tags"), metadata={"name": model.get("name"), "source_query": model.get("source_query")},
        )  # fmt: skip


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
