"""Teaches the judge of texts/ and writes what was learnt to plpython/pg_memoir_server/judge_1.safetensors.

    .local/venv/bin/python -m research.judge.train [--leave-out WRITER …] [--calm FOLDER …] [--epochs 4] [--write]

--calm: conversations with an assistant in which little changes, whose licence allows it (RealMem, Apache-2.0; ProactiveMemBench,
MIT): messages of them beside earlier ones are taken for unchanged. They are not part of the project.
Prints, for the writers that are left out, how many of the sentences, pairs and targets are right, and of the pairs in which the
earlier statement is over how many are told at one false alarm in a hundred. Needs torch (a CPU build), safetensors, tokenizers and
the model's package; one core, some seventy minutes. Without --leave-out it learns of all and examines nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn

from .model import Batcher, Judge, predict
from .texts import (
    CLASSES,
    FIRST_OVER,
    NO_REQUEST,
    TASKS,
    Example,
    Material,
    Person,
    calm_pairs,
    conversations,
    examples,
    load,
    with_noise,
    with_other_names,
)

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plpython"))
TARGET = ROOT / "plpython" / "pg_memoir_server" / "judge_1.safetensors"
RATE, BATCH = 1e-3, 32


def examine(model: Judge, batcher: Batcher, held: list[Example], by: str) -> None:
    """Print what is right of examples that were left out."""
    for task in TASKS:
        rows = [e for e in held if e.task == task and e.weight >= 0.7]
        if not rows:
            continue
        chances = predict(model, batcher, task, [(e.old, e.new) for e in rows])
        truth = np.array([e.label for e in rows])
        right = np.where(truth == NO_REQUEST, chances.argmax(1) != CLASSES.index("x"), chances.argmax(1) == truth)
        line = f"{by} {task}: {len(rows)}, right {right.mean():.3f}"
        if task == "pair":
            over, is_over = chances[:, FIRST_OVER:].sum(1), truth >= FIRST_OVER
            for limit in (0.5, 0.8, 0.9, 0.95):
                told = over >= limit
                precision = (told & is_over).sum() / max(1, told.sum())
                line += f", at {limit} precision {precision:.3f} recall {(told & is_over).sum() / is_over.sum():.3f}"
            calm = np.sort(over[~is_over])[::-1]
            line += f", recall at 1 % false {np.mean(over[is_over] > calm[len(calm) // 100]):.3f}"
        if task == "target":
            told, means = chances[:, 1] >= 0.5, truth == 1
            line += f", precision {(told & means).sum() / max(1, told.sum()):.3f} recall {(told & means).sum() / means.sum():.3f}"
        print(line, flush=True)


def examine_people(model: Judge, batcher: Batcher, people: list[Person], by: str) -> None:
    """Print how often the statement that a request means stands first among all of a person, and the same of what a
    message makes untrue; and how many of a person's messages are told as requests."""
    for task, mark, labels in (("target", "x", slice(1, 2)), ("pair", "!", slice(FIRST_OVER, None))):
        first, asked = 0, [(p, about, text) for p in people for m, about, text in p.later if m == mark]
        chances = predict(model, batcher, task, [(old, text) for p, _, text in asked for old in p.earlier])
        chances, at, ahead = chances[:, labels].sum(1), 0, 0
        for person, about, _ in asked:
            mine = chances[at : at + len(person.earlier)]
            at += len(person.earlier)
            best = int(mine.argmax())
            first += best in about
            ahead += best in about and sorted([*mine, 0.0])[-2] < mine[best] - 0.3
        if asked:
            print(
                f"{by} {mark}: {len(asked)}, first {first / len(asked):.3f}, with a lead {ahead / len(asked):.3f}",
                flush=True,
            )
    texts = [(m, text) for p in people for m, _, text in p.later]
    if texts:
        asks = predict(model, batcher, "sentence", [("", text) for _, text in texts])[:, CLASSES.index("x")]
        is_request = np.array([m == "x" for m, _ in texts])
        for limit in (0.5, 0.8, 0.9):
            told = asks >= limit
            right = (told & is_request).sum()
            print(
                f"{by} asks at {limit}: precision {right / max(1, told.sum()):.3f} recall {right / is_request.sum():.3f}"
            )


def chance_of_request(logits: torch.Tensor) -> torch.Tensor:
    """Return the chance of a request to forget, n; 0 where the logits are of another task."""
    if logits.shape[1] != len(CLASSES):
        return torch.zeros_like(logits[:, 0])
    return torch.softmax(logits, -1)[:, CLASSES.index("x")].clamp(max=0.999)


def teach(
    model: Judge,
    batcher: Batcher,
    material: Material,
    calm: list[tuple[str, list[str]]],
    calm_rows: int,
    epochs: int,
    seed: int,
    size: int,
    seconds: float = 0,
) -> None:
    chance = random.Random(seed)
    learnt = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for name, p in learnt if not name.startswith("heads.")], "base": RATE},
        {"params": [p for name, p in learnt if name.startswith("heads.")], "base": RATE},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=0.01)
    loss_of = nn.CrossEntropyLoss(reduction="none", label_smoothing=0.05)
    questions = [s.new for s in material.sentences if CLASSES[s.label] == "q"]
    kept = {("pair", 0): 0.6, ("target", 0): 0.4}
    done, began = 0, time.time()
    steps = None
    for epoch in range(epochs):
        rows = [
            e for e in examples(material, chance) if e.is_near or chance.random() < kept.get((e.task, e.label), 1.0)
        ]
        rows += calm_pairs(material.chat, calm_rows, chance) + calm_pairs(calm, calm_rows, chance)
        steps = steps or epochs * (len(rows) // size + 1)
        varied = []
        for row in rows:
            old, new = with_other_names(row.old, row.new, chance)
            asked = questions if row.task == "pair" else []
            varied.append((row, with_noise(old, chance, asked) if old else "", with_noise(new, chance, asked)))
        varied.sort(key=lambda r: len(r[1]) + len(r[2]) + chance.random() * 20)
        batches = [varied[at : at + size] for at in range(0, len(varied), size)]
        chance.shuffle(batches)
        model.train()
        total = 0.0
        for batch in batches:
            if seconds and time.time() - began > seconds:
                break
            for group in optimizer.param_groups:
                part = max(done / steps, (time.time() - began) / seconds if seconds else 0)
                group["lr"] = group["base"] * min(1, done / (0.06 * steps)) * max(0.02, 1 - part)
            with torch.autocast(batcher.device, torch.bfloat16):
                pooled = model(*batcher([(old, new) for _, old, new in batch])).float()
            losses = []
            for task in TASKS:
                at = [n for n, (row, _, _) in enumerate(batch) if row.task == task]
                if at:
                    labels = torch.tensor([batch[n][0].label for n in at], device=batcher.device)
                    weights = torch.tensor([batch[n][0].weight for n in at], device=batcher.device)
                    logits = model.heads[task](pooled[at])
                    loss = loss_of(logits, labels.clamp(min=0))
                    # Of some sentences it is known only what they are not.
                    loss = torch.where(labels == NO_REQUEST, -torch.log1p(-chance_of_request(logits)), loss)
                    losses.append((loss * weights).sum())
            loss = torch.stack(losses).sum() / len(batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([p for _, p in learnt], 1.0)
            optimizer.step()
            done, total = done + 1, total + loss.item()
            if done % 500 == 0:
                print(f"step {done} of {steps}, {time.time() - began:.0f} s", flush=True)
        print(f"epoch {epoch + 1}: {len(rows)} rows, loss {total / len(batches):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="WRITER")
    parser.add_argument("--calm", nargs="*", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--calm-rows", type=int, default=3000, help="pairs an epoch of chats, and of --calm")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--seconds", type=float, default=0, help="end by then, the rate falls with time (0: no limit)")
    parser.add_argument("--device", default="cpu", help="a device of torch (cpu, cuda)")
    parser.add_argument("--write", action="store_true", help="write what was learnt")
    parser.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()
    from pg_memoir_server.models import DEFAULT_MODEL, model_folder

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    material, folder = load(), model_folder(DEFAULT_MODEL)
    assert folder, f"{DEFAULT_MODEL} is not on this machine"
    left = set(options.leave_out)
    print(f"{material.texts} texts by {', '.join(material.writers)}; left out: {', '.join(sorted(left)) or 'none'}")
    model, batcher = Judge(folder, options.rank).to(options.device), Batcher(folder, options.device)
    calm = [stretch for folder in options.calm for stretch in conversations(folder)]
    teach(
        model, batcher, material.of(set(material.writers) - left), calm, options.calm_rows, options.epochs, options.seed,
        options.batch, options.seconds,
    )  # fmt: skip
    for writer in sorted(left):
        held = material.of({writer})
        examine(model, batcher, examples(held, random.Random(2)), writer)
        examine_people(model, batcher, held.people, writer)
    if options.write:
        save_file(model.learnt(), options.out)
        options.out.chmod(0o644)
        print(options.out.name, options.out.stat().st_size, hashlib.sha256(options.out.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
