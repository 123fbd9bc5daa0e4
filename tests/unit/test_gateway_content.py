"""A content may be one text or a list of blocks: both are stored alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pg_memoir import from_anthropic, from_responses
from pg_memoir_gateway.spans import Body
from pg_memoir_gateway.talk import DIALECTS, Talk

SAID = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
KINDS = {
    "/v1/messages": {"user": "text", "assistant": "text"},
    "/v1/chat/completions": {"user": "text", "assistant": "text"},
    "/v1/responses": {"user": "input_text", "assistant": "output_text"},
}


def stored(path: str, role: str, content: Any) -> list[Any]:
    """What is stored of a list with this content in its midst."""
    items = [
        {"role": "user", "content": "First."},
        {"role": role, "content": content},
        {"role": "user", "content": "Last."},
    ]
    talk = Talk("ann", "observe", "", "main", "s", DIALECTS[path], Body("", {}, {}), items, [], role="mixed")
    return [run for message in DIALECTS[path].messages(items) for run in talk.split(message)]


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("path", KINDS)
@settings(max_examples=60, deadline=None)
@given(said=SAID)
def test_content_as_text_or_blocks_is_stored(path: str, role: str, said: str) -> None:
    as_text = stored(path, role, said)
    assert as_text == stored(path, role, [{"type": KINDS[path][role], "text": said}]) or not said
    if role == "assistant":
        assert [told["content"] for _, told, _ in as_text] == ["First.", said, "Last."]


@given(said=SAID)
def test_client_reads_content_that_is_a_text(said: str) -> None:
    assert from_anthropic({"content": said}).text == said
    assert from_responses({"output": [{"type": "message", "content": said}]}).text == said
