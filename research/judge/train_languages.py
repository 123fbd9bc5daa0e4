"""Teaches the judge of languages other than English, and writes plpython/pg_memoir_server/judge_languages.safetensors.

    .local/venv/bin/python -m research.judge.train_languages [--leave-out WRITER …] [--write]

Heads over the multilingual encoder, which stays as it is: of a pair they see both vectors, their distance and their product (as in
InferSent, Conneau et al. 2017). They learn of the texts of all languages, since the encoder puts what means the same in two
languages beside each other. Prints, for the writers that are left out, by language how many pairs there are, in how many the
earlier statement is over, the area under the curve, and how many of these are told at a precision of nine in ten. Five
minutes on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn

from .texts import CLASSES, FIRST_OVER, NO_REQUEST, RELATIONS, Example, examples, load

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plpython"))
TARGET = ROOT / "plpython" / "pg_memoir_server" / "judge_languages.safetensors"
EPOCHS, BATCH, RATE = 8, 64, 1e-3
WIDTHS = (256, 128)
# Pairs of what has nothing to do with each other are many.
KEPT_CALM = 0.6


def head(inputs: int, outputs: int) -> nn.Sequential:
    first, second = WIDTHS
    return nn.Sequential(
        nn.Dropout(0.1), nn.Linear(inputs, first), nn.ReLU(), nn.Dropout(0.3), nn.Linear(first, second), nn.ReLU(),
        nn.Dropout(0.2), nn.Linear(second, outputs),
    )  # fmt: skip


def teach(rows: list[Example], given: torch.Tensor, model: nn.Module, chance: random.Random) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.02)
    steps, done = EPOCHS * (len(rows) // BATCH + 1), 0
    order = list(range(len(rows)))
    labels, weights = torch.tensor([row.label for row in rows]), torch.tensor([row.weight for row in rows])
    for epoch in range(EPOCHS):
        chance.shuffle(order)
        model.train()
        total = 0.0
        for at in range(0, len(order), BATCH):
            batch = torch.tensor(order[at : at + BATCH])
            losses = nn.functional.cross_entropy(
                model(given[batch]), labels[batch], reduction="none", label_smoothing=0.05
            )
            loss = (losses * weights[batch]).mean()
            for group in optimizer.param_groups:
                group["lr"] = RATE * max(0.02, 1 - done / steps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done, total = done + 1, total + loss.item() * len(batch)
        print(f"epoch {epoch + 1}: {len(rows)} rows, loss {total / len(rows):.3f}", flush=True)


def examine(chances: np.ndarray, truth: np.ndarray) -> str:
    order = np.argsort(-chances)
    right = truth[order].cumsum()
    precise = np.flatnonzero(right / np.arange(1, len(order) + 1) >= 0.9)
    ranks = np.argsort(np.argsort(chances))
    over = int(truth.sum())
    area = (ranks[truth].sum() - over * (over - 1) / 2) / max(1, over * (len(truth) - over))
    told = right[precise[-1]] / over if len(precise) and over else 0.0
    return f"{len(truth)} pairs, {over} over, area {area:.3f}, told at a precision of 0.9: {told:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="WRITER")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write what was learnt")
    parser.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()
    from pg_memoir_language.languages import languages, text_language
    from pg_memoir_server.judge_languages import pair_features
    from pg_memoir_server.multilingual import encoder

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    chance = random.Random(options.seed)
    material, left = load(), set(options.leave_out)
    learnt = examples(material.of(set(material.writers) - left), chance)
    held = [e for writer in sorted(left) for e in examples(material.of({writer}), random.Random(2)) if e.task == "pair"]
    learnt = [
        e for e in learnt if e.label != NO_REQUEST and (e.task, e.label) != ("pair", 0) or chance.random() < KEPT_CALM
    ]
    texts = sorted({text for e in (*learnt, *held) for text in (e.old, e.new) if e.task != "target"})
    print(f"{len(texts)} texts", flush=True)
    vectors = dict(zip(texts, encoder().encode(texts), strict=True))

    def pairs(rows: list[Example]) -> torch.Tensor:
        return torch.from_numpy(
            pair_features(np.stack([vectors[e.old] for e in rows]), np.stack([vectors[e.new] for e in rows]))
        )

    of_pairs = [e for e in learnt if e.task == "pair"]
    of_sentences = [e for e in learnt if e.task == "sentence" and e.label != NO_REQUEST]
    inputs = len(next(iter(vectors.values())))
    models = {"pair": head(4 * inputs, len(RELATIONS)), "sentence": head(inputs, len(CLASSES))}
    teach(of_pairs, pairs(of_pairs), models["pair"], chance)
    teach(of_sentences, torch.from_numpy(np.stack([vectors[e.new] for e in of_sentences])), models["sentence"], chance)
    if held:
        models["pair"].eval()
        with torch.no_grad():
            chances = torch.softmax(models["pair"](pairs(held)), -1)[:, FIRST_OVER:].sum(1).numpy()
        truth = np.array([e.label >= FIRST_OVER for e in held])
        names = {0: "unknown", **{language.number: language.name for language in languages()}}
        spoken = np.array([names[text_language(e.new)] for e in held])
        for language in sorted(set(spoken)):
            print(language, examine(chances[spoken == language], truth[spoken == language]))
    if options.write:
        weights = {
            f"{name}.{n}.{part}": getattr(layer, part).detach().numpy().astype(np.float16)
            for name, model in models.items()
            for n, layer in enumerate(layer for layer in model if isinstance(layer, nn.Linear))
            for part in ("weight", "bias")
        }
        save_file(weights, options.out)
        options.out.chmod(0o644)
        print(options.out.name, options.out.stat().st_size, hashlib.sha256(options.out.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
