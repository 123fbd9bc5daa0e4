"""Learns the map of other languages and writes plpython/pg_memoir_server/multilingual.safetensors.

    .local/venv/bin/python -m research.languages.train [--write]

A ridge regression from the multilingual encoder's vector of an English text to MiniLM's vector of the same text, over the
texts of research/judge/texts and research/ranker/remarks: nothing is labelled, and what is learnt of English holds for
other languages, since the encoder puts what means the same beside each other. Prints how near it comes to texts that were left
out, and for the pairs of research/languages/pairs how often what was said is among the ten nearest of a question, beside 600
English texts, by language. Ten minutes on one quiet core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plpython"))
from pg_memoir_server.models import DEFAULT_MODEL  # noqa: E402
from pg_memoir_server.multilingual import LONGEST, MAP, encoder, to_unit  # noqa: E402
from pg_memoir_server.runtimes import OnnxRuntime, default_cache, model_folder  # noqa: E402

SOURCES = ("research/judge/texts", "research/ranker/remarks")
PAIRS = ROOT / "research" / "languages" / "pairs"
RIDGE = 60.0  # of 20,000 texts
TEXTS, LEFT_OUT, BESIDE = 20000, 1000, 600


def written(value: Any) -> Iterator[str]:
    """The texts of a row, without their marks."""
    if isinstance(value, str):
        text = value[2:] if value[1:2] == " " and value[0] in "!-=+.~xX" else value
        yield from (part.strip() for part in text.split("||"))
    elif isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from written(one)


def read_texts() -> list[str]:
    rows = [
        json.loads(line)
        for source in SOURCES
        for path in sorted((ROOT / source).glob("*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    found = list(dict.fromkeys(text for row in rows for text in written(row) if len(text) > 12))
    return random.Random(1).sample(found, min(len(found), TEXTS + LEFT_OUT + BESIDE))


def encode(texts: list[str]) -> np.ndarray:
    return np.concatenate(
        [encoder().encode([t[:LONGEST] for t in texts[n : n + 64]]) for n in range(0, len(texts), 64)]
    )


def fit(given: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weight (512 × 384) and constant of the ridge regression."""
    x = np.c_[given, np.ones(len(given))].astype(np.float64)
    solved = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ wanted)
    return solved[:-1].astype(np.float16), solved[-1].astype(np.float16)


def found_among_ten(asked: np.ndarray, said: np.ndarray, beside: np.ndarray) -> float:
    near = asked @ np.concatenate([said, beside]).T
    return float(((near > np.diag(near)[:, None]).sum(1) < 10).mean())


def examine(minilm: OnnxRuntime, mapped: Any, beside: list[str]) -> None:
    pairs = [
        json.loads(line)["texts"] for path in sorted(PAIRS.glob("*.jsonl")) for line in path.open(encoding="utf-8")
    ]
    around = minilm.embed(beside)
    said, asked, plain = {}, {}, {}
    for language in pairs[0]:
        texts = [pair[language]["said"] for pair in pairs]
        questions = [pair[language]["asked"] for pair in pairs]
        plain[language] = minilm.embed(texts), minilm.embed(questions)
        is_english = language == "en"
        said[language] = plain[language][0] if is_english else mapped(encode(texts))
        asked[language] = plain[language][1] if is_english else mapped(encode(questions))
    print("language  same  same, MiniLM  asked in English  said in English")
    for language in said:
        figures = [
            found_among_ten(asked[language], said[language], around),
            found_among_ten(plain[language][1], plain[language][0], around),
            found_among_ten(asked["en"], said[language], around),
            found_among_ten(asked[language], said["en"], around),
        ]
        print(f"{language:8}", *(f"{100 * figure:8.0f}" for figure in figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the map into the product")
    options = parser.parse_args()
    folder = model_folder(DEFAULT_MODEL)
    assert folder is not None, f"{DEFAULT_MODEL} is not installed"
    minilm = OnnxRuntime(folder, default_cache())
    texts = read_texts()
    given, wanted = encode(texts), np.concatenate([minilm.embed(texts[n : n + 64]) for n in range(0, len(texts), 64)])
    learnt = len(texts) - LEFT_OUT - BESIDE
    weight, bias = fit(given[:learnt], wanted[:learnt])

    def mapped(vectors: np.ndarray) -> np.ndarray:
        return to_unit(vectors @ weight.astype(np.float32) + bias.astype(np.float32))

    left = slice(learnt, learnt + LEFT_OUT)
    print(
        f"{learnt} texts; cosine to MiniLM's vector of {LEFT_OUT} others: {(mapped(given[left]) * wanted[left]).sum(1).mean():.3f}"
    )
    examine(minilm, mapped, texts[-BESIDE:])
    if options.write:
        save_file({"weight": weight, "bias": bias}, MAP)
        print(MAP.name, hashlib.sha256(MAP.read_bytes()).hexdigest()[:12])


if __name__ == "__main__":
    main()
