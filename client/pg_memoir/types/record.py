"""What all records have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


class Record:
    """A row that a function answers, as a frozen dataclass."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name as JSON has them: ids as text, times in ISO 8601."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


class MemoryRecord(Record):
    """A record of one memory, whose id has the name that it has in a hit, too."""

    __slots__ = ()
    memory_id: UUID

    @property
    def id(self) -> UUID:
        """The memory's id, by the name that a hit has it."""
        return self.memory_id

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name as JSON has them, and the memory's id as `id`, as a hit has it."""
        return {"id": str(self.memory_id), **super().to_dict()}


def plain(value: Any) -> Any:
    """Return a value as JSON has it, with all that it holds."""
    if isinstance(value, Record):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
