"""The package and the SQL that servers without PL/Python still use read texts alike: clauses, statements, sentences, slots."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from servers import ROOT

sys.path.insert(0, str(ROOT / "plpython"))

from pg_memoir_language import extraction, languages, memories, statements, text

AT = datetime(2026, 3, 31, 15, 0, tzinfo=UTC)
FIELDS = (
    "text_no", "span_start", "span_length", "rule", "type", "provenance", "category", "importance", "utility", "content",
    "slot", "slot_value", "valid_from", "valid_to", "event_from", "event_to",
)  # fmt: skip
COLUMNS = ", ".join(f"(e).{field}" for field in FIELDS)


def texts() -> list[str]:
    """What the tests of extraction say, and the sample's turns."""
    said = [
        found
        for name in ("test_everyday", "test_extraction_rules", "test_standing")
        for found in re.findall(r'"([^"\n\\{}]{12,300})"', (ROOT / f"tests/database/{name}.py").read_text("utf-8"))
    ]
    sample = json.loads((ROOT / "scripts/sample.json").read_text("utf-8"))
    said += [m["content"] for s in sample for m in s["messages"] if isinstance(m.get("content"), str)]
    return list(dict.fromkeys(one for one in said if " " in one))


def rounded(row: Any) -> tuple[Any, ...]:
    return tuple(round(value, 3) if isinstance(value, float) else value for value in row)


def of(found: list[memories.Extracted]) -> list[tuple[Any, ...]]:
    return [rounded(getattr(one, field) for field in FIELDS) for one in found]


@pytest.mark.parametrize("part", range(4))
def test_both_read_alike(db: psycopg.Connection, part: int) -> None:
    chosen = texts()[part::4][:80]
    assert len(chosen) == 80
    found = 0
    for said in chosen:
        language = languages.spoken_language(said)
        in_sql = db.execute(
            "select _memoir.spoken_language(%(t)s), array(select row_to_json(c)::jsonb "
            "from unnest(_memoir.said_clauses(array[%(t)s], array[%(l)s])) c), _memoir.bare(%(t)s)",
            {"t": said, "l": language},
        ).fetchone()
        clauses = text.read_clauses(said, language)
        assert in_sql == (language, [clause.__dict__ for clause in clauses], text.bare(said))
        stated = db.execute(
            f"select {COLUMNS} from (select _memoir.statements(_memoir.said_clauses(array[%s], array[%s]), array[%s], array[%s]) e) x",
            [said, language, language, AT],
        ).fetchall()
        assert [rounded(row) for row in stated] == of(statements.find_statements(clauses, [language], [AT])), said
        kept = db.execute(
            f"select {COLUMNS} from (select _memoir.extract_texts(array[%s], array['Jon'], array['user'], array[%s::timestamptz], %s) e) x",
            [said, AT, language],
        ).fetchall()
        turn = memories.Turn(said, "user", "Jon", AT, language)
        assert [rounded(row) for row in kept] == of(extraction.extract_sentences(said, turn, 1)), said
        slot = db.execute("select slot, slot_value from _memoir.slot_of(%s)", [said]).fetchone()
        read = statements.read_statement(said) or {}
        assert slot == (read.get("slot"), read.get("value")), said
        found += len(stated) + len(kept)
    assert found > 15
