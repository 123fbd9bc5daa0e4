"""The cross-encoder judge, with a model that stands in for one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pg_memoir_server.nli import NliJudge, NoSuchModel


class Model:
    """Says contradiction where exactly one text has "not"; (short, long) alone is unsure."""

    loaded: list[str] = []

    def __init__(self, folder: str, labels: tuple[str, ...] = ("ENTAILMENT", "neutral", "Contradiction")) -> None:
        self.loaded.append(folder)
        self.config = SimpleNamespace(id2label=dict(enumerate(labels)))

    def predict(self, pairs: list[tuple[str, str]], apply_softmax: bool, show_progress_bar: bool) -> list[list[float]]:
        assert apply_softmax
        return [[0.02, 0.03, 0.95] if ("not" in a) != ("not" in b) else [0.1, 0.2, 0.7] if len(a) < len(b) else [0.8, 0.1, 0.1] for a, b in pairs]


def test_scores_are_of_contradiction_both_ways() -> None:
    Model.loaded.clear()
    judge = NliJudge("/models/nli-tiny/", Model)
    assert judge([]) == [] and Model.loaded == []                                # loaded only when needed
    assert judge([("likes tea", "does not like tea"), ("likes tea", "likes green tea")]) == [0.95, 0.1]
    assert judge([("a", "not a")]) == [0.95] and Model.loaded == ["/models/nli-tiny/"] and judge.name == "nli nli-tiny"


def test_a_model_without_the_label_is_refused(tmp_path: Any) -> None:
    with pytest.raises(NoSuchModel, match="none is contradiction"):
        NliJudge("x", lambda folder: Model(folder, ("positive", "negative")))([("a", "b")])
    with pytest.raises(NoSuchModel, match="no folder"):
        NliJudge(str(tmp_path / "nothing"))([("a", "b")])


def test_a_real_cross_encoder_from_a_folder(tmp_path: Any) -> None:
    """A tiny one with random weights: loaded from its folder alone, it scores every pair."""
    pytest.importorskip("sentence_transformers")
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "likes", "not", "tea", "coffee"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
                                     id2label={0: "contradiction", 1: "entailment", 2: "neutral"}, label2id={"contradiction": 0, "entailment": 1, "neutral": 2})
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.BertTokenizerFast(vocab_file=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    scores = NliJudge(str(tmp_path))([("likes tea", "not likes tea"), ("likes coffee", "likes tea")])
    assert len(scores) == 2 and all(0 <= score <= 1 for score in scores)
