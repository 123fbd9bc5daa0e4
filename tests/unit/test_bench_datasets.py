"""The benchmarks' reader of conversations survives odd data."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_memory_that_is_an_object_and_a_turn_without_a_flag(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT))
    try:
        from bench.datasets import Asked, read
    finally:
        sys.path.remove(str(ROOT))
    told = {"content": {"likes": "tea"}, "source_turn": None}
    sessions = [
        {
            "session_uuid": "a",
            "current_time": "2026-01-01",
            "dialogue_turns": [{"speaker": "User", "content": "I like tea."}, {"speaker": "Assistant", "content": ""}],
            "extracted_memory": [told, {"content": None}],
        },
        {
            "session_uuid": "b",
            "current_time": "2026-01-02",
            "dialogue_turns": [
                {"speaker": "User", "is_query": True, "content": "What do I like?"},
                {"speaker": "Assistant", "content": "Tea.", "memory_used": ["odd", told | {"session_uuid": "a"}]},
                {"speaker": "User", "is_query": True, "content": "The last one has no answer."},
            ],
        },
    ]
    (tmp_path / "Ada_dialogues_1.json").write_text(json.dumps({"dialogues": sessions}))
    memories, turns = read(tmp_path)
    assert [event.evidence for event in turns.events if isinstance(event, Asked)] == [("a:0",)]
    assert [event.evidence for event in memories.questions()] == [('a/{"likes": "tea"}',)]
