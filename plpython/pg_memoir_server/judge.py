"""The judge: what a sentence is, whether an earlier statement still holds beside a newer message, what a request means.

The shipped encoder with sets of what research/judge learnt of written texts (judge_*.safetensors: low-rank
changes of its matrices, Hu et al. 2021, and three heads), each built once into a graph in a private cache and run
on eight-bit weights. A statement is over, or a sentence asks to forget, where all of them say so: they were taught with
other chances and shares of talk, and err on different texts. English.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pg_memoir_language.free_requests import ASKS
from pg_memoir_language.limits import LIMITS

from . import bert_onnx
from .models import DEFAULT_MODEL, model_folder
from .private import private_dir
from .runtimes import RuntimeUnavailable, default_cache

LEARNT = tuple(Path(__file__).with_name(f"judge_{number}.safetensors") for number in (1, 2, 3))
GRAPH_VERSION = 2  # part of the cache key
# Labels of the heads in the order in which they were taught (research/judge/texts.py).
SENTENCES = ("fact", "preference", "instruction", "one-off", "others", "forget", "question", "hypothetical", "nothing")
RELATIONS = ("unrelated", "adds", "same", "replaced", "ended", "partly ended")
SIZES = {"sentence": len(SENTENCES), "pair": len(RELATIONS), "target": 2}
HEADS = tuple(SIZES)
FIRST_OVER = RELATIONS.index("replaced")
STATING = tuple(SENTENCES.index(name) for name in ("fact", "preference", "instruction", "one-off", "others"))
WISH, FORGET = SENTENCES.index("instruction"), SENTENCES.index("forget")
TELLING = tuple(SENTENCES.index(name) for name in ("fact", "preference", "instruction", "others"))
LONGEST = 128
MOST_KNOWN = 2000  # readings that are remembered: one sentence is read for several questions
CLS, SEP = 101, 102
# Below this chance of the first no form is enough, so the others are not asked.
LEAST = min(LIMITS.beside.values())
Weights = Mapping[str, np.ndarray]
# What a graph gives, with the shape of each.
Outputs = dict[str, list[str | int]]
# Adds heads to a graph: (graph, what was learnt, states of tokens, their mean, that beside the first token's).
AddHeads = Callable[[bert_onnx.Graph, Weights, str, str, str], Outputs]


class Judge:
    """One loaded judge. Texts beyond some 120 tokens are cut."""

    def __init__(self, cache: Path | None = None, threads: int = 1):
        self._sessions, self._tokenizer = load(LEARNT, _add_heads, cache, threads)
        self._known: dict[tuple[int, str, str], list[np.ndarray]] = {}

    def sentences(self, texts: Sequence[str]) -> np.ndarray:
        """Return the chances of each kind of SENTENCES, n × 9."""
        return self._run("sentence", [("", text) for text in texts])

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return the chances of each of RELATIONS between an earlier statement and a newer message, n × 6."""
        return self._run("pair", pairs)

    def over(self, pairs: Sequence[tuple[str, str]], least: Sequence[float] = ()) -> list[float]:
        """Return the chance that an earlier statement (first) holds no longer after a message (second), for each.
        `least`: of each the chance below which the other judges are not asked."""
        return self._least("pair", pairs, slice(FIRST_OVER, None), least or [LEAST] * len(pairs))

    def states(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a sentence states something that could hold."""
        chances: list[float] = self.sentences(texts)[:, list(STATING)].sum(1).tolist()
        return chances

    def wishes(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a sentence is a lasting instruction to the assistant: the mean of all."""
        return self._mean("sentence", [("", text) for text in texts], WISH)

    def asks(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a sentence asks to forget something."""
        sentences = [("", text) for text in texts]
        return self._least("sentence", sentences, slice(FORGET, FORGET + 1), [ASKS] * len(texts))

    def tells(self, texts: Sequence[str]) -> list[float]:
        """Return the chance that a sentence tells something and asks for nothing."""
        chances: list[float] = self.sentences(texts)[:, list(TELLING)].sum(1).tolist()
        return chances

    def means(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return the chance that a request (second) to forget means a statement (first), for each: the mean of all."""
        return self._mean("target", pairs, 1)

    def _least(self, head: str, pairs: Sequence[tuple[str, str]], labels: slice, least: Sequence[float]) -> list[float]:
        """Return the least chance that any of the judges gives to some labels; below `least` the others are not
        asked."""
        chances = self._run(head, pairs)[:, labels].sum(1)
        for which in range(1, len(self._sessions)):
            asked = np.flatnonzero(chances >= np.asarray(least)).tolist()
            again = self._run(head, [pairs[n] for n in asked], which)[:, labels].sum(1)
            chances[asked] = np.minimum(chances[asked], again)
        least_chances: list[float] = chances.tolist()
        return least_chances

    def _mean(self, head: str, pairs: Sequence[tuple[str, str]], label: int) -> list[float]:
        """Return the mean chance that the judges give to a label."""
        of_each = [self._run(head, pairs, which)[:, label] for which in range(len(self._sessions))]
        chances: list[float] = np.mean(of_each, axis=0).tolist()
        return chances

    def features(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return what all judges know of each pair, or of the second text where the first is empty: states, and the
        logarithms of chances."""
        return np.array([
            np.concatenate([
                part
                for which in range(len(self._sessions))
                for part in _seen(self._read(old, new, which), bool(old))
            ])
            for old, new in pairs
        ])  # fmt: skip

    def _run(self, head: str, pairs: Sequence[tuple[str, str]], which: int = 0) -> np.ndarray:
        # One by one: eight-bit activations are scaled over a batch, so a row would depend on those beside it.
        rows = [self._read(old, new, which)[HEADS.index(head)] for old, new in pairs]
        return np.array(rows).reshape(len(pairs), SIZES[head])

    def _read(self, old: str, new: str, which: int) -> list[np.ndarray]:
        """Return the chances of each of HEADS, and the state that they are of."""
        key = (which, old, new)
        row = self._known.get(key)  # held here: another thread may clear what is known
        if row is None:
            ids, segments = self._ids(old[:1000], new[:1000])
            given = {
                "input_ids": np.array([ids], np.int64),
                "token_type_ids": np.array([segments], np.int64),
                "attention_mask": np.ones((1, len(ids)), np.int64),
            }
            row = [out[0] for out in self._sessions[which].run([*HEADS, "state"], given)]
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = row
        return row

    def _ids(self, old: str, new: str) -> tuple[list[int], list[int]]:
        mine = self._tokenizer.encode(new, add_special_tokens=False).ids
        if not old:
            mine = mine[: LONGEST - 2]
            return [CLS, *mine, SEP], [0] * (len(mine) + 2)
        theirs = self._tokenizer.encode(old, add_special_tokens=False).ids
        room = LONGEST - 3
        theirs = theirs[: max(room - len(mine), room // 2)]
        mine = mine[: room - len(theirs)]
        return [CLS, *theirs, SEP, *mine, SEP], [0] * (len(theirs) + 2) + [1] * (len(mine) + 1)


def _seen(read: Sequence[np.ndarray], is_pair: bool) -> list[np.ndarray]:
    sentence, pair, target, state = read
    return [state, *(np.log(chances + 1e-6) for chances in ((pair, target) if is_pair else (sentence,)))]


def load(
    learnt: Sequence[Path], add_heads: AddHeads, cache: Path | None = None, threads: int = 1
) -> tuple[list[Any], Any]:
    """Return a session of onnxruntime for each set of what was learnt over the shipped encoder, and its tokenizer."""
    folder = model_folder(DEFAULT_MODEL)
    missing = [path.name for path in learnt if not path.is_file()]
    if folder is None or missing:
        raise RuntimeUnavailable(f"{DEFAULT_MODEL if folder is None else missing[0]} is not on this machine")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
        from tokenizers import Tokenizer

        graphs = [built(folder, cache or default_cache(), file, add_heads) for file in learnt]
    except ImportError as error:
        raise RuntimeUnavailable(f"the judge needs {error.name}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    sessions = [
        onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"]) for graph in graphs
    ]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return sessions, tokenizer


def built(folder: Path, cache: Path, learnt: Path, add_heads: AddHeads) -> Path:
    """Return the file of the encoder's graph with what was learnt, in a private cache; it is built first if it is not
    there."""
    private_dir(cache)
    digest = hashlib.sha256(learnt.read_bytes()).hexdigest()
    name = learnt.stem.rstrip("_123")
    target = cache / f"{name}-{bert_onnx.weights_hash(folder)[:16]}-{digest[:16]}-v{GRAPH_VERSION}.onnx"
    if not target.is_file():
        bert_onnx.write_file(target, _quantize(_build(folder, learnt, add_heads)))
    return target


def _build(folder: Path, file: Path, add_heads: AddHeads) -> Any:
    from onnx import TensorProto, helper
    from safetensors.numpy import load_file

    shape, weights, learnt = bert_onnx.read_shape(folder), bert_onnx.load_weights(folder), load_file(file)
    for name in [n.removesuffix(".a") for n in learnt if n.endswith(".a")]:
        change = learnt[f"{name}.b"].astype(np.float32) @ learnt[f"{name}.a"].astype(np.float32)
        weights[f"{name}.weight"] = weights[f"{name}.weight"].astype(np.float32) + change
    g = bert_onnx.Graph(weights)
    x = bert_onnx.encoder(g, shape, "token_type_ids")
    mask = g.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    mask = g.op("Unsqueeze", mask, g.constant("axes_2", np.array([2], np.int64)))
    axes = g.constant("axes_1", np.array([1], np.int64))
    total = g.op("ReduceSum", g.op("Mul", x, mask), axes, keepdims=0)
    mean = g.op("Div", total, g.op("ReduceSum", mask, axes, keepdims=0))
    first = g.op("Gather", x, g.constant("zero_index", np.array(0, np.int64)), axis=1)
    pooled = g.op("Concat", mean, first, name="state", axis=-1)
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
        for name, size in add_heads(g, learnt, x, mean, pooled).items()
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"])
        for name in ("input_ids", "token_type_ids", "attention_mask")
    ]
    return bert_onnx.as_model(g, "judge", inputs, outputs)


def add_head(g: bert_onnx.Graph, learnt: Weights, head: str, pooled: str) -> tuple[str, list[str | int]]:
    """Add a head over the pooled state that gives chances of labels; return its output and the shape of that."""
    weight = learnt[f"{head}.weight"].astype(np.float32)
    logits = g.op(
        "Gemm", pooled, g.constant(f"{head}.weight", weight.T.copy()),
        g.constant(f"{head}.bias", learnt[f"{head}.bias"].astype(np.float32)),
    )  # fmt: skip
    return g.op("Softmax", logits, name=head, axis=-1), ["n", weight.shape[0]]


def _add_heads(g: bert_onnx.Graph, learnt: Weights, _x: str, _mean: str, pooled: str) -> Outputs:
    return {"state": ["n", learnt["pair.weight"].shape[1]]} | dict(add_head(g, learnt, head, pooled) for head in HEADS)


def _quantize(model: Any) -> bytes:
    """Return a model with its matrices as eight-bit numbers: a quarter of the size, some 2.5 times as fast."""
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory(prefix="pg_memoir-") as folder:
        source, target = Path(folder, "source.onnx"), Path(folder, "target.onnx")
        source.write_bytes(model.SerializeToString())
        logger = logging.getLogger()
        level = logger.level
        logger.setLevel(logging.ERROR)  # it recommends steps that change nothing here
        try:
            quantize_dynamic(
                source, target, weight_type=QuantType.QInt8, per_channel=True,
                extra_options={"DefaultTensorType": TensorProto.FLOAT},
            )  # fmt: skip
        finally:
            logger.setLevel(level)
        return target.read_bytes()
