"""A tool call that quotes the user acts in the user's name for what the quoted clause says, and for nothing else.

cases/quotations.jsonl: `before` was said in an earlier session, `now` is the user's message in this one. `call` are the
arguments of memory_update, `id_of` a pattern of the memory or turn that its id names. `authority`: whose word it has.
"""

import json
import re
from typing import Any

from cases import extract, read_cases
from pg_memoir_server.reading import quoted


def authority(case: dict[str, Any]) -> str:
    """Whose word the call of a case has, by what the tools ask the package for."""
    given, before = case["call"], case["before"] or "Hello there."
    is_statement = "content" in given
    asked = {
        "kind": "statement" if is_statement else "request",
        "said": given["said"],
        "content": given.get("content"),
        "turns": [{"index": 0, "text": case["now"]}],
        "texts": [""] if is_statement else [given.get("about", given["said"])],
        "whole": None,
        "slot": None,
    }
    if "id_of" in case:
        named = [one for one in extract(before) if re.search(case["id_of"], one.content, re.IGNORECASE)]
        asked |= {"texts": None, "whole": before}
        for one in named[:1]:
            source = before[one.span_start - 1 : one.span_start - 1 + one.span_length]
            asked |= {"texts": [f"{one.content} {source}"], "whole": None, "slot": one.slot}
    found = quoted(json.dumps(asked))
    return "agent" if found is None or "id_of" in case and found.get("is_narrower") else "user"


def test_cases() -> None:
    cases = read_cases("quotations")
    assert len(cases) > 140 and [case for case in cases if authority(case) != case["authority"]] == []
