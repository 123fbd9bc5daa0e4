"""Builds a sentence-embedding ONNX graph from the files of a BERT model, without torch.

The graph takes `input_ids` and `attention_mask` (int64, n × length) and returns `embedding` (float32, n × dimension):
the encoder, the pooling the model asks for (mean or first token) and L2 normalisation. Attention, its queries, keys and
values in one product, additions before a norm and before Gelu are onnxruntime's own joined operators (domain
com.microsoft): the same vectors as of standard ones, sooner. Built files are kept in a private cache, keyed by the hash
of the weights; building takes about a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .private import private_dir

# Part of the cache key: raise it whenever the graph built from the same weights changes.
GRAPH_VERSION = 2
OPSET = 20  # LayerNormalization came with 17
RUNTIME = "com.microsoft"  # the domain of onnxruntime's operators
_SKIPPED = ("pooler.", "position_ids")  # weights of the checkpoint that the graph doesn't use


class UnsupportedModel(ValueError):
    """The model's files don't describe a BERT encoder that this builder knows."""


@dataclass(frozen=True)
class BertShape:
    """What the graph needs to know of a model."""

    layers: int
    heads: int
    hidden: int
    epsilon: float
    max_length: int
    pooling: str  # 'mean' or 'cls'


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None


def read_shape(folder: Path) -> BertShape:
    """Reads a model folder's configuration; raises UnsupportedModel for anything but a plain BERT sentence encoder."""
    config = _read_json(folder / "config.json")
    if not isinstance(config, dict) or not (folder / "model.safetensors").is_file():
        raise UnsupportedModel(f"{folder} has no config.json with model.safetensors")
    if not (folder / "tokenizer.json").is_file():
        raise UnsupportedModel(f"{folder} has no tokenizer.json")
    wanted = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, value in wanted.items():
        if config.get(key, value) != value:
            raise UnsupportedModel(f"{key} {config[key]!r} is not {value!r}")
    modules = [m["type"].rsplit(".", 1)[-1] for m in _read_json(folder / "modules.json") or []]
    if not set(modules) <= {"Transformer", "Pooling", "Normalize"}:
        raise UnsupportedModel(f"modules {modules} go beyond transformer, pooling and normalisation")
    pooling = _read_json(folder / "1_Pooling" / "config.json") or {"pooling_mode_mean_tokens": True}
    modes = [
        key.removeprefix("pooling_mode_")
        for key, on in pooling.items()
        if on is True and key.startswith("pooling_mode_")
    ]
    names = {"mean_tokens": "mean", "cls_token": "cls"}
    if len(modes) != 1 or modes[0] not in names:
        raise UnsupportedModel(f"pooling {modes} is neither mean nor first token")
    sentence = _read_json(folder / "sentence_bert_config.json") or {}
    positions = int(config.get("max_position_embeddings", 512))
    return BertShape(
        layers=int(config["num_hidden_layers"]),
        heads=int(config["num_attention_heads"]),
        hidden=int(config["hidden_size"]),
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        max_length=min(int(sentence.get("max_seq_length") or positions), positions),
        pooling=names[modes[0]],
    )


def weights_hash(folder: Path) -> str:
    """SHA-256 of the weights and the configuration files that shape the graph, hex."""
    digest = hashlib.sha256()
    for name in ("model.safetensors", "config.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        path = folder / name
        digest.update(name.encode())
        if path.is_file():
            with path.open("rb") as file:
                while chunk := file.read(1 << 22):
                    digest.update(chunk)
    return digest.hexdigest()


class Graph:
    """Collects nodes and weights; every method returns the name of the tensor it makes."""

    def __init__(self, weights: dict[str, Any]):
        from onnx import helper, numpy_helper

        self._helper, self._numpy = helper, numpy_helper
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._count = 0

    def op(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        self._count += 1
        out = name or f"{kind}_{self._count}"
        self.nodes.append(self._helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def fused_op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.op(kind, *inputs, domain=RUNTIME, **attributes)

    def constant(self, name: str, array: Any) -> str:
        if name not in self.constants:
            self.constants[name] = self._numpy.from_array(array, name)
        return name

    def weight(self, name: str) -> str:
        return self.constant(name, self._array(name))

    def beside(self, *names: str) -> str:
        """Weights side by side: vectors one after another, matrices (as stored, output × input) turned and joined."""
        import numpy

        return self.constant("+".join(names), numpy.concatenate([self._array(name).T for name in names], axis=-1))

    def _array(self, name: str) -> Any:
        import numpy

        return self.weights[name].astype(numpy.float32)

    def product(self, x: str, prefix: str) -> str:
        """Without the bias, which the operator after it adds."""
        return self.op("MatMul", x, self.beside(f"{prefix}.weight"))

    def norm(self, x: str, prefix: str, epsilon: float) -> str:
        return self.op("LayerNormalization", x, *self._norm(prefix), axis=-1, epsilon=epsilon)

    def norm_of_sum(self, x: str, y: str, bias: str, prefix: str, epsilon: float) -> str:
        return self.fused_op("SkipLayerNormalization", x, y, *self._norm(prefix), self.weight(bias), epsilon=epsilon)

    def _norm(self, prefix: str) -> tuple[str, str]:
        return self.weight(f"{prefix}.weight"), self.weight(f"{prefix}.bias")


def encoder(g: Graph, shape: BertShape, segments: str | None = None) -> str:
    """Token ids → hidden states (n × length × hidden). `segments`: an input that says of which text a token is."""
    import numpy as np
    from onnx import TensorProto

    words = g.op("Gather", g.weight("embeddings.word_embeddings.weight"), "input_ids")
    length = g.op("Gather", g.op("Shape", "input_ids"), g.constant("one_index", np.array(1, np.int64)), axis=0)
    zero, step = g.constant("zero_index", np.array(0, np.int64)), g.constant("step", np.array(1, np.int64))
    positions = g.op("Gather", g.weight("embeddings.position_embeddings.weight"), g.op("Range", zero, length, step))
    kinds = g.weights["embeddings.token_type_embeddings.weight"].astype(np.float32)
    if segments:
        segment = g.op("Gather", g.constant("segments", kinds), segments)
    else:
        segment = g.constant("segment", kinds[0])
    x = g.norm(g.op("Add", words, g.op("Add", positions, segment)), "embeddings.LayerNorm", shape.epsilon)

    mask = g.op("Cast", "attention_mask", to=TensorProto.INT32)
    for number in range(shape.layers):
        layer = f"encoder.layer.{number}"
        attention, parts = f"{layer}.attention.output", ("query", "key", "value")
        weights, biases = (
            g.beside(*(f"{layer}.attention.self.{part}.{kind}" for part in parts)) for kind in ("weight", "bias")
        )
        seen = g.fused_op("Attention", x, weights, biases, mask, num_heads=shape.heads)
        seen = g.product(seen, f"{attention}.dense")
        x = g.norm_of_sum(seen, x, f"{attention}.dense.bias", f"{attention}.LayerNorm", shape.epsilon)
        inner = g.product(x, f"{layer}.intermediate.dense")
        inner = g.fused_op("BiasGelu", inner, g.weight(f"{layer}.intermediate.dense.bias"))
        outer = g.product(inner, f"{layer}.output.dense")
        x = g.norm_of_sum(outer, x, f"{layer}.output.dense.bias", f"{layer}.output.LayerNorm", shape.epsilon)
    return x


def _pool(g: Graph, hidden: str, pooling: str) -> None:
    """Hidden states → the output `embedding`, L2-normalised."""
    import numpy as np

    if pooling == "cls":
        pooled = g.op("Gather", hidden, g.constant("zero_index", np.array(0, np.int64)), axis=1)
    else:
        # The sum is enough: the mean's divisor cancels in the normalisation.
        mask = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=1), g.constant("axes_2", np.array([2], np.int64)))
        pooled = g.op("ReduceSum", g.op("Mul", hidden, mask), g.constant("axes_1", np.array([1], np.int64)), keepdims=0)
    g.op("LpNormalization", pooled, name="embedding", axis=-1, p=2)


def load_weights(folder: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return {
        name.removeprefix("bert."): array
        for name, array in load_file(folder / "model.safetensors").items()
        if not any(part in name for part in _SKIPPED)
    }


def build(folder: Path, target: Path) -> None:
    """Writes the graph of the model in `folder` to `target` (atomically: a reader sees the whole file or none)."""
    from onnx import TensorProto, helper

    shape = read_shape(folder)
    graph = Graph(load_weights(folder))
    try:
        _pool(graph, encoder(graph, shape), shape.pooling)
    except KeyError as error:
        raise UnsupportedModel(f"{folder} has no weight {error}") from None
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", shape.hidden])
    write_file(target, as_model(graph, "sentence", inputs, [output]).SerializeToString())


def as_model(graph: Graph, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
    from onnx import helper

    model = helper.make_model(
        helper.make_graph(graph.nodes, name, inputs, outputs, list(graph.constants.values())),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(RUNTIME, 1)],
        producer_name="pg_memoir",
    )
    model.ir_version = 9  # what opset 20 came with; a newer default would shut out older runtimes
    return model


def write_file(target: Path, content: bytes) -> None:
    """Write a file atomically: a reader sees the whole file or none."""
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".building-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def built(folder: Path, cache: Path) -> Path:
    """The graph file of the model in `folder`, building it first if `cache` (a private directory) has none."""
    private_dir(cache)
    target = cache / f"{weights_hash(folder)[:32]}-v{GRAPH_VERSION}.onnx"
    if not target.is_file():
        build(folder, target)
    return target
