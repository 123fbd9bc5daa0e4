"""The shipped sentence encoder (a BERT of six layers) in torch, with low-rank changes to its matrices (LoRA, Hu et al. 2021) and
three heads over the mean of its states beside the state of the first token.

What is learnt is saved as the changes and heads alone; plpython/pg_memoir_server/judge.py adds them to the weights that are there.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

from .texts import CLASSES, RELATIONS, TASKS

SIZES = {"sentence": len(CLASSES), "pair": len(RELATIONS), "target": 2}
PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attended": "attention.output.dense",
    "inner": "intermediate.dense",
    "outer": "output.dense",
}
NORMS = {"norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}
CLS, SEP = 101, 102
LONGEST = 128
SCALE = 2.0


class Adapted(nn.Module):
    """A fixed linear map plus a learnt product of two small matrices."""

    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + (x @ self.a.T) @ self.b.T * SCALE


class Layer(nn.Module):
    def __init__(self, hidden: int, inner: int, heads: int, rank: int):
        super().__init__()
        self.heads = heads
        sizes = {part: (hidden, hidden) for part in PARTS} | {"inner": (hidden, inner), "outer": (inner, hidden)}
        self.parts = nn.ModuleDict({part: Adapted(nn.Linear(*size), rank) for part, size in sizes.items()})
        self.norms = nn.ModuleDict({norm: nn.LayerNorm(hidden, eps=1e-12) for norm in NORMS})
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        n, length, hidden = x.shape

        def split(part: str) -> torch.Tensor:
            return self.parts[part](x).view(n, length, self.heads, -1).transpose(1, 2)

        seen = nn.functional.scaled_dot_product_attention(split("query"), split("key"), split("value"), attn_mask=mask)
        seen = self.parts["attended"](seen.transpose(1, 2).reshape(n, length, hidden))
        x = self.norms["norm1"](x + self.drop(seen))
        return self.norms["norm2"](x + self.drop(self.parts["outer"](nn.functional.gelu(self.parts["inner"](x)))))


class Judge(nn.Module):
    def __init__(self, folder: Path, rank: int):
        super().__init__()
        shape = json.loads((folder / "config.json").read_text())
        hidden = shape["hidden_size"]
        self.words = nn.Embedding(shape["vocab_size"], hidden)
        self.positions = nn.Embedding(shape["max_position_embeddings"], hidden)
        self.segments = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.drop = nn.Dropout(0.1)
        self.layers = nn.ModuleList(
            Layer(hidden, shape["intermediate_size"], shape["num_attention_heads"], rank)
            for _ in range(shape["num_hidden_layers"])
        )
        self.heads = nn.ModuleDict({task: nn.Linear(2 * hidden, SIZES[task]) for task in TASKS})
        self._load(load_file(folder / "model.safetensors"))
        for name, parameter in self.named_parameters():
            parameter.requires_grad = name.endswith((".a", ".b")) or name.startswith("heads.")

    def _load(self, weights: dict[str, torch.Tensor]) -> None:
        names = {
            "words.weight": "embeddings.word_embeddings.weight",
            "positions.weight": "embeddings.position_embeddings.weight",
            "segments.weight": "embeddings.token_type_embeddings.weight",
        }
        for kind in ("weight", "bias"):
            names[f"norm.{kind}"] = f"embeddings.LayerNorm.{kind}"
            for n in range(len(self.layers)):
                for part, theirs in PARTS.items():
                    names[f"layers.{n}.parts.{part}.base.{kind}"] = f"encoder.layer.{n}.{theirs}.{kind}"
                for norm, theirs in NORMS.items():
                    names[f"layers.{n}.norms.{norm}.{kind}"] = f"encoder.layer.{n}.{theirs}.{kind}"
        state = self.state_dict()
        for mine, theirs in names.items():
            state[mine].copy_(weights[theirs])

    def forward(self, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.states(ids, segments, mask)[1]

    def states(
        self, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states of tokens, n × length × hidden, and the mean of them beside the first, n × 2 hidden."""
        x = self.words(ids) + self.positions.weight[: ids.shape[1]] + self.segments(segments)
        x = self.drop(self.norm(x))
        wide = torch.zeros(mask.shape, dtype=x.dtype, device=x.device).masked_fill(mask == 0, -1e4)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, wide)
        shown = mask[:, :, None].to(x.dtype)
        return x, torch.cat([(x * shown).sum(1) / shown.sum(1), x[:, 0]], dim=1)

    def learnt(self) -> dict[str, np.ndarray]:
        """Return what was learnt, by the names that the encoder's files use: a product's halves, heads."""
        out: dict[str, np.ndarray] = {}
        for n, layer in enumerate(self.layers):
            for part, theirs in PARTS.items():
                adapted = layer.parts[part]
                out[f"encoder.layer.{n}.{theirs}.a"] = (adapted.a * SCALE).detach().cpu().numpy().astype(np.float16)
                out[f"encoder.layer.{n}.{theirs}.b"] = adapted.b.detach().cpu().numpy().astype(np.float16)
        for task, head in self.heads.items():
            out[f"{task}.weight"] = head.weight.detach().cpu().numpy().astype(np.float16)
            out[f"{task}.bias"] = head.bias.detach().cpu().numpy().astype(np.float16)
        return out


class Batcher:
    """Texts and pairs of texts as tensors."""

    def __init__(self, folder: Path, device: str = "cpu"):
        self.device = device
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def ids(self, old: str, new: str) -> tuple[list[int], list[int]]:
        mine = self.tokenizer.encode(new, add_special_tokens=False).ids
        if not old:
            mine = mine[: LONGEST - 2]
            return [CLS, *mine, SEP], [0] * (len(mine) + 2)
        theirs = self.tokenizer.encode(old, add_special_tokens=False).ids
        room = LONGEST - 3
        theirs = theirs[: max(room - len(mine), room // 2)]
        mine = mine[: room - len(theirs)]
        return [CLS, *theirs, SEP, *mine, SEP], [0] * (len(theirs) + 2) + [1] * (len(mine) + 1)

    def __call__(self, pairs: list[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = [self.ids(*pair) for pair in pairs]
        longest = max(len(ids) for ids, _ in rows)
        padded = [[part + [0] * (longest - len(part)) for part in (*row, [1] * len(row[0]))] for row in rows]
        ids, segments, mask = (torch.tensor([row[k] for row in padded], device=self.device) for k in range(3))
        return ids, segments, mask


def predict(model: Judge, batcher: Batcher, task: str, pairs: list[tuple[str, str]], size: int = 64) -> np.ndarray:
    """Return the chances of each label, a row for each pair."""
    model.eval()
    out = np.zeros((len(pairs), SIZES[task]), np.float32)
    order = sorted(range(len(pairs)), key=lambda n: len(pairs[n][0]) + len(pairs[n][1]))
    with torch.no_grad():
        for at in range(0, len(order), size):
            part = order[at : at + size]
            logits = model.heads[task](model(*batcher([pairs[n] for n in part])))
            out[part] = torch.softmax(logits, -1).cpu().numpy()
    return out
