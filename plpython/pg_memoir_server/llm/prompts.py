"""Prompts and schemas, one pair of files per kind and version: ../prompts/judge.v1.md, judge.v1.json. The newest
counts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "prompts"


@dataclass(frozen=True)
class Prompt:
    kind: str
    version: str  # "judge.v1": recorded on what comes of it
    system: str
    schema: dict[str, Any]
    max_tokens: int

    def user(self, given: Any) -> str:
        """The message with the input, fenced as data: none of its angle brackets can close the fence."""
        data = json.dumps(given, ensure_ascii=False, indent=1).replace("<", "\\u003c").replace(">", "\\u003e")
        return f"<data>\n{data}\n</data>"


@cache
def load(kind: str) -> Prompt:
    """The newest prompt of a kind. Raises KeyError if there is none."""
    versions = {
        int(m[1]): path
        for path in FOLDER.glob(f"{kind}.v*.md")
        if (m := re.fullmatch(rf"{kind}\.v(\d+)\.md", path.name))
    }
    if not re.fullmatch(r"[a-z_]+", kind) or not versions:
        raise KeyError(f"there is no prompt for {kind!r}")
    path = versions[max(versions)]
    schema = json.loads(path.with_suffix(".json").read_text("utf-8"))
    text = path.read_text("utf-8").strip()
    # A prompt that shows the shape itself needs no schema beside it.
    if schema.get("is_shown", True):
        text += f"\n\nThe JSON Schema of your answer:\n{json.dumps(schema['answer'], separators=(',', ':'))}"
    return Prompt(kind, path.stem, text, schema["answer"], schema["max_tokens"])
