"""What all records have in common."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any
from uuid import UUID


class Record:
    """A row that a function answers, as a frozen dataclass."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name as JSON has them: ids as text, times in ISO 8601."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
