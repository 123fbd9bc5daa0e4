"""Teaches the reader of requests to forget and writes what was learnt to plpython/pg_memoir_server/request_reader.safetensors.

    .local/venv/bin/python -m research.judge.train_reader [--leave-out WRITER …] [--calm FOLDER …] [--epochs 3] [--write]

The shipped encoder with low-rank changes (they begin as those of judge_1.safetensors) and two heads: `asks`, is a message a request to
forget; `goes`, which tokens of an earlier message a request means. It learns of requests/ and of the persons of texts/ whom the judges have
not read. That wishes/ and conversations with an assistant ask nothing to be forgotten is learnt, too. --calm: such conversations (RealMem,
Apache-2.0; ProactiveMemBench, MIT), of which a third is not learnt from. Prints for the writers that are left out how many requests are
known and what they take. Needs torch (a CPU build). Some fifteen minutes for an epoch on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

from .model import PARTS, SCALE, Batcher, Judge
from .request_heads import REQUESTS
from .teaching import ROOT, UNREAD, read_persons, read_users
from .texts import conversations, load, with_noise, with_other_names

SERVER = ROOT / "plpython" / "pg_memoir_server"
TARGET, BEGIN = SERVER / "request_reader.safetensors", SERVER / "judge_1.safetensors"
RANK, RATE, BATCH, SMOOTHING = 24, 5e-4, 16, 0.03
HEADS = ("asks", "goes")
# As request_reader.py reads.
CLS, SEP = 101, 102
LONGEST, LONGEST_EARLIER, LONGEST_LATER = 126, 120, 80
UNTAUGHT = -1  # the label of tokens that are not judged
OTHER_MESSAGES = 1  # of an epoch that are read beside a request and not meant
MOST_CALM, MOST_TALK = 1200, 1600  # of an epoch
SEPARATOR = "\x01"


@dataclass(frozen=True)
class Row:
    """Tokens, of which text each is, and labels: of each token (`goes`), or one."""

    task: str
    ids: list[int]
    segments: list[int]
    labels: list[int]


@dataclass(frozen=True)
class Asked:
    """A later message beside messages in segments; `goes`: which of them it means."""

    writer: str
    messages: list[list[str]]
    text: str
    goes: frozenset[tuple[int, int]]
    asks: bool


class Reader(Judge):
    def __init__(self, folder: Path):
        super().__init__(folder, RANK)
        width = 2 * self.words.embedding_dim
        self.heads = nn.ModuleDict({head: nn.Linear(width, 2) for head in HEADS})
        learnt = load_file(BEGIN)
        with torch.no_grad():
            for n, layer in enumerate(self.layers):
                for part, theirs in PARTS.items():
                    adapted = layer.parts[part]
                    adapted.a.copy_(torch.tensor(learnt[f"encoder.layer.{n}.{theirs}.a"].astype(np.float32)) / SCALE)
                    adapted.b.copy_(torch.tensor(learnt[f"encoder.layer.{n}.{theirs}.b"].astype(np.float32)))

    def read(self, task: str, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits of a task: n × 2, of `goes` n × length × 2."""
        states, pooled = self.states(ids, segments, mask)
        if task != "goes":
            logits: torch.Tensor = self.heads[task](pooled)
            return logits
        mean = pooled[:, None, : states.shape[2]].expand(-1, states.shape[1], -1)
        of_each: torch.Tensor = self.heads["goes"](torch.cat([states, mean], dim=2))
        return of_each


class Rows:
    """Texts as rows of tokens."""

    def __init__(self, folder: Path):
        self._tokenizer = Batcher(folder).tokenizer

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _later(self, text: str) -> list[int]:
        ids, half = self._ids(text), LONGEST_LATER // 2
        return ids if len(ids) <= LONGEST_LATER else ids[:half] + ids[-half:]

    def alone(self, text: str, label: int) -> Row:
        ids = self._ids(text)[:LONGEST]
        return Row("asks", [CLS, *ids, SEP], [0] * (len(ids) + 2), [label])

    def meant(self, segments: list[str], labels: list[int], text: str, chance: random.Random) -> Row:
        """`labels`: of each segment of a message. Of a long message a piece is read that holds what is meant."""
        coded = [(token, label) for part, label in zip(segments, labels, strict=True) for token in self._ids(part)]
        if len(coded) > LONGEST_EARLIER:
            meant = [at for at, (_, label) in enumerate(coded) if label == 1] or [chance.randrange(len(coded))]
            at = max(0, min(len(coded) - LONGEST_EARLIER, meant[0] - chance.randrange(LONGEST_EARLIER // 2)))
            coded = coded[at : at + LONGEST_EARLIER]
        later = self._later(text)
        of_each = [UNTAUGHT, *(label for _, label in coded), UNTAUGHT, *[UNTAUGHT] * (len(later) + 1)]
        return self._beside("goes", [token for token, _ in coded], later, of_each)

    def _beside(self, task: str, first: list[int], second: list[int], labels: list[int]) -> Row:
        segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        return Row(task, [CLS, *first, SEP, *second, SEP], segments, labels)


def as_tensors(rows: list[Row]) -> tuple[torch.Tensor, ...]:
    """Return tokens, of which text they are, whether they are shown, and labels."""
    longest = max(len(row.ids) for row in rows)

    def padded(values: list[list[int]], empty: int) -> torch.Tensor:
        return torch.tensor([one + [empty] * (longest - len(one)) for one in values])

    labels = [row.labels for row in rows]
    return (
        padded([row.ids for row in rows], 0),
        padded([row.segments for row in rows], 0),
        padded([[1] * len(row.ids) for row in rows], 0),
        padded(labels, UNTAUGHT) if rows[0].task == "goes" else torch.tensor(labels)[:, 0],
    )


def loss_of(model: Reader, rows: list[Row]) -> torch.Tensor:
    """Return the mean loss of rows of one task. Each message weighs the same, whatever its length."""
    ids, segments, mask, labels = as_tensors(rows)
    logits = model.read(rows[0].task, ids, segments, mask).float()
    if rows[0].task != "goes":
        return nn.functional.cross_entropy(logits, labels, label_smoothing=SMOOTHING)
    taught = labels >= 0
    losses = nn.functional.cross_entropy(
        logits.transpose(1, 2), labels.clamp(min=0), reduction="none", label_smoothing=SMOOTHING
    )
    return (losses * taught / taught.sum(1, keepdim=True).clamp(min=1)).sum() / len(rows)


def log_odds(model: Reader, rows: list[Row]) -> list[np.ndarray]:
    """Return the log odds of rows: one, or of each token."""
    model.eval()
    found: dict[int, np.ndarray] = {}
    order = sorted(range(len(rows)), key=lambda n: (rows[n].task, len(rows[n].ids)))
    with torch.no_grad():
        for at in range(0, len(order), BATCH):
            part = order[at : at + BATCH]
            logits = model.read(rows[part[0]].task, *as_tensors([rows[n] for n in part])[:3])
            odds = (logits[..., 1] - logits[..., 0]).numpy()
            found |= {n: odds[k][: len(rows[n].ids)] if odds.ndim > 1 else odds[k] for k, n in enumerate(part)}
    return [found[n] for n in range(len(rows))]


def read_asked() -> Iterator[Asked]:
    """Yield later messages of requests/, and the requests of persons."""
    for file in sorted(REQUESTS.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            user = json.loads(line)
            for one in user["later"]:
                goes = frozenset((number, at) for number, at in one["goes"])
                yield Asked(file.stem, user["messages"], one["text"], goes, bool(goes) or one.get("asks", False))
    for writer in sorted(UNREAD):
        for person in load().of({writer}).people:
            for mark, about, text in person.later:
                if mark == "x":
                    whole = frozenset((number, 0) for number in about)
                    yield Asked(writer, [[f"{one} "] for one in person.earlier], text, whole, True)


def read_talk(left: set[str]) -> list[str]:
    """Return wishes and statements, and later messages that change them."""
    users = [user for user in (*read_users(), *read_persons(load())) if user.writer not in left]
    return sorted({text for user in users for text in (*user.earlier, *(one.text for one in user.later))})


def rows_of(rows: Rows, asked: list[Asked], calm: list[str], talk: list[str], chance: random.Random) -> list[Row]:
    """Return the rows of an epoch, each text a little varied."""

    def noisy(text: str) -> str:
        return with_noise(text, chance, []) if chance.random() < 0.5 else text

    found = []
    for one in asked:
        goes = {number for number, _ in one.goes}
        others = [n for n in range(len(one.messages)) if n not in goes]
        chance.shuffle(others)
        for n in [*sorted(goes), *others[:OTHER_MESSAGES]]:
            old, new = with_other_names(SEPARATOR.join(one.messages[n]), one.text, chance)
            old = old.lower() if chance.random() < 0.15 else old
            old = old.replace("'", "") if chance.random() < 0.15 else old
            labels = [int((n, at) in one.goes) for at in range(len(one.messages[n]))]
            found.append(rows.meant(old.split(SEPARATOR), labels, noisy(new), chance))
        found.append(rows.alone(noisy(one.text), int(one.asks)))
    for texts, most in ((calm, MOST_CALM), (talk, MOST_TALK)):
        found += [rows.alone(text, 0) for text in chance.sample(texts, min(most, len(texts)))]
    return found


def teach(model: Reader, epochs: Iterator[list[Row]], count: int, chance: random.Random, is_written: bool) -> None:
    learnt = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learnt, lr=RATE, weight_decay=0.01)
    done, steps, began = 0, 0, time.time()
    for number in range(1, count + 1):
        batches = []
        rows = sorted(next(epochs), key=lambda row: len(row.ids) + chance.random() * 15)
        for task in HEADS:
            mine, size = [row for row in rows if row.task == task], BATCH if task == "goes" else 2 * BATCH
            batches += [mine[at : at + size] for at in range(0, len(mine), size)]
        chance.shuffle(batches)
        steps = steps or count * len(batches)
        model.train()
        total = 0.0
        for batch in batches:
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1, (done + 1) / (0.06 * steps)) * max(0.02, 1 - done / steps)
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(learnt, 1.0)
            optimizer.step()
            done, total = done + 1, total + loss.item()
            if done % 200 == 0:
                print(f"step {done} of {steps}, {time.time() - began:.0f} s", flush=True)
        print(f"epoch {number}: {len(rows)} rows, loss {total / len(batches):.3f}", flush=True)
        if is_written:
            write(model)


def write(model: Reader) -> None:
    save_file(model.learnt(), TARGET)
    TARGET.chmod(0o644)
    print(f"{TARGET.name}: {hashlib.sha256(TARGET.read_bytes()).hexdigest()[:12]}", flush=True)


def examine(model: Reader, rows: Rows, asked: list[Asked], calm: list[str]) -> None:
    """Print what is known of writers that were left out."""
    chances = [1 / (1 + np.exp(-odds)) for odds in log_odds(model, [rows.alone(one.text, 0) for one in asked])]
    of_calm = np.array(log_odds(model, [rows.alone(text, 0) for text in calm]))
    asks, known = np.array([one.asks for one in asked]), np.array(chances)
    for limit in (0.5, 0.7, 0.8, 0.9, 0.95):
        told, wrong = known >= limit, 1 / (1 + np.exp(-of_calm)) >= limit
        print(
            f"a request, at {limit}: {(told & asks).sum()} of {asks.sum()}, {(told & ~asks).sum()} of"
            f" {(~asks).sum()} that sound alike, {wrong.sum()} of {len(wrong)} calm messages",
            flush=True,
        )
    examine_meant(model, rows, [one for one in asked if one.asks])


def examine_meant(model: Reader, rows: Rows, asked: list[Asked]) -> None:
    """Print of requests whether all that they mean goes, and whether something else does."""
    given = [
        (number, n, rows.meant(message, list(range(2, len(message) + 2)), one.text, random.Random(1)))
        for number, one in enumerate(asked)
        for n, message in enumerate(one.messages)
    ]
    found: list[dict[tuple[int, int], float]] = [{} for _ in asked]
    for (number, n, row), odds in zip(given, log_odds(model, [row for *_, row in given]), strict=True):
        labels = np.array(row.labels)
        for at in range(len(asked[number].messages[n])):
            if (labels == at + 2).any():
                found[number][n, at] = float(1 / (1 + np.exp(-odds[labels == at + 2].mean())))
    for limit in (0.3, 0.4, 0.5, 0.6, 0.7):
        taken = [{part for part, chance in of.items() if chance >= limit} for of in found]
        both = [(of, one.goes) for of, one in zip(taken, asked, strict=True)]
        print(
            f"what requests mean, at {limit}: all of it in {sum(goes <= of for of, goes in both if goes)} of"
            f" {sum(bool(goes) for _, goes in both)}, something else in {sum(bool(of - goes) for of, goes in both if goes)};"
            f" where nothing is meant, in {sum(bool(of) for of, goes in both if not goes)} of"
            f" {sum(not goes for _, goes in both)}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="WRITER")
    parser.add_argument("--calm", nargs="*", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write what was learnt")
    options = parser.parse_args()
    from pg_memoir_server.models import DEFAULT_MODEL, model_folder

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    chance, left, folder = random.Random(options.seed), set(options.leave_out), model_folder(DEFAULT_MODEL)
    assert folder, f"{DEFAULT_MODEL} is not on this machine"
    model, rows = Reader(folder), Rows(folder)
    asked = list(read_asked())
    taught = [one for one in asked if one.writer not in left]
    calm = [text[:600] for path in options.calm for _, texts in conversations(path) for text in texts]
    chance.shuffle(calm)
    learnt_calm = [text for n, text in enumerate(calm) if n % 3]
    talk = read_talk(left) + sorted({"".join(message) for one in taught for message in one.messages})
    varied = (rows_of(rows, taught, learnt_calm, talk, chance) for _ in range(options.epochs))
    teach(model, varied, options.epochs, chance, options.write)
    if left:
        examine(model, rows, [one for one in asked if one.writer in left], calm[::3])


if __name__ == "__main__":
    main()
