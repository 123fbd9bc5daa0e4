"""The authority of a quotation in a tool call, through the database: a handful of the cases that
unit/test_readings.py reads with the package alone."""

import re
from typing import Any

import pytest
from calls import Db, call, history, persist, table
from cases import read_cases

NAMES = ("f_en_whole", "f_en_id", "c_en_any_more", "r_en_fly", "f_other_clause_2", "f_wider", "c_topic", "r_without")
CASES = [case for case in read_cases("quotations") if case["name"] in NAMES]


def memories(db: Db, user: str) -> dict[str, tuple[str, str, str]]:
    """All memories of a user by id: text, state, provenance."""
    columns = "memory_id::text, content, state, provenance"
    return {row[0]: row[1:] for row in table(db, "list_memories", user, p_states=[], p_limit=200, columns=columns)}


def id_of(db: Db, user: str, pattern: str) -> str:
    """The id of the memory that says it, else of the turn."""
    found = [key for key, (content, _, _) in memories(db, user).items() if re.search(pattern, content, re.IGNORECASE)]
    return found[0] if found else str(history(db, user, "before")[0]["message_id"])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_quotation_authority(db: Db, user: str, case: dict[str, Any]) -> None:
    persist(db, user, "before", case["before"] or "Hello there.", "Noted.")
    call(db, "extract_session", user, "before")
    persist(db, user, "now", case["now"], "You moved to Porto.")
    named = {"id": id_of(db, user, case["id_of"])} if "id_of" in case else {}
    before, changes = memories(db, user), len(table(db, "list_changes", user))
    call(db, "call_memory_tool", user, "now", "memory_update", case["call"] | named)
    after = memories(db, user)
    ended = [row for key, row in before.items() if row[1] == "active" and after.get(key) != row]
    stated = [row for key, row in after.items() if key not in before and row[2] != "system_inferred"]
    acted = bool(ended or stated or len(table(db, "list_changes", user)) > changes)
    assert acted is (case["authority"] == "user"), (ended, stated)
