"""What the model server and the backends read of texts, by name: functions of pg_memoir_language, text in, JSON out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pg_memoir_language import questions, secrets

FUNCTIONS: dict[str, Callable[[str], Any]] = {
    "secret_kinds": secrets.secret_kinds,
    "redact": secrets.redact,
    "read_question": questions.read_question,
}
