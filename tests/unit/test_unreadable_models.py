"""Extraction goes on without a model file that is missing or can't be read, and a warning says so."""

import json
from pathlib import Path

import pytest
from pg_memoir_server import judge, judge_heads, judge_languages, reading, request_reader

SAID = {
    "english": "I am allergic to penicillin.",
    "german": "Ich wohne in Ulm.",
}
LOADED = {
    judge: lambda: reading.judge("english"),
    judge_heads: reading.heads,
    judge_languages: lambda: reading.judge("german"),
    request_reader: reading.request_readers,
}


def read(text: str) -> list[str]:
    turn = {"text": text, "role": "user", "said_at": "2026-05-01T12:00:00+00:00", "utc_offset": 0}
    return [one["content"] for one in reading.read_turns(json.dumps({"turns": [turn]}))["found"]]


@pytest.mark.parametrize("held", [None, b"", b"garbage" * 20], ids=["missing", "empty", "garbage"])
@pytest.mark.parametrize(
    ("module", "language", "warning"),
    [
        (judge_heads, "english", "without the heads few wishes are found"),
        (request_reader, "english", "without the reader few requests are found"),
        (judge, "english", "without a judge nothing is certain"),
        (judge_languages, "german", "without a judge nothing is certain"),
    ],
    ids=["heads", "requests", "judge", "languages"],
)
def test_extraction_without_a_model_file(
    module: object, language: str, warning: str, held: bytes | None,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    file = tmp_path / "model.safetensors"
    if held is not None:
        file.write_bytes(held)
    monkeypatch.setattr(module, "LEARNT", (file,) * 3 if module is judge else file)
    monkeypatch.setattr(reading, "_judges", {})
    assert read(SAID[language])
    assert LOADED[module]() is None
    assert warning in caplog.text
