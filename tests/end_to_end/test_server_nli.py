"""The cross-encoder judge, with a model that stands in for one; the worker that has it judge what waits."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from calls import remembered, table
from commands import output_of
from internals import clear_work, memory_row, use_up_attempts, work
from pg_memoir import Memoir
from pg_memoir_cli import worker
from pg_memoir_server.nli import NliJudge, NoSuchModel

pytestmark = pytest.mark.extended


class Model:
    """Says contradiction where exactly one text has "not"; (short, long) alone is unsure."""

    loaded: list[str] = []

    def __init__(self, folder: str, labels: tuple[str, ...] = ("ENTAILMENT", "neutral", "Contradiction")) -> None:
        self.loaded.append(folder)
        self.config = SimpleNamespace(id2label=dict(enumerate(labels)))

    def predict(self, pairs: list[tuple[str, str]], apply_softmax: bool, show_progress_bar: bool) -> list[list[float]]:
        assert apply_softmax
        contradicted, unsure, compatible = [0.02, 0.03, 0.95], [0.1, 0.2, 0.7], [0.8, 0.1, 0.1]
        of_length = [unsure if len(a) < len(b) else compatible for a, b in pairs]
        return [contradicted if ("not" in a) != ("not" in b) else other for (a, b), other in zip(pairs, of_length)]


def test_scores_are_of_contradiction_both_ways() -> None:
    Model.loaded.clear()
    judge = NliJudge("/models/nli-tiny/", Model)
    assert judge([]) == [] and Model.loaded == []  # loaded only when needed
    assert judge([("likes tea", "does not like tea"), ("likes tea", "likes green tea")]) == [0.95, 0.1]
    assert judge([("a", "not a")]) == [0.95] and Model.loaded == ["/models/nli-tiny/"] and judge.name == "nli nli-tiny"


def test_a_model_without_the_label_is_refused(tmp_path: Any) -> None:
    with pytest.raises(NoSuchModel, match="none is contradiction"):
        NliJudge("x", lambda folder: Model(folder, ("positive", "negative")))([("a", "b")])
    with pytest.raises(NoSuchModel, match="no folder"):
        NliJudge(str(tmp_path / "nothing"))([("a", "b")])


def tiny_model(folder: Path) -> None:
    """A cross-encoder with random weights."""
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "likes", "not", "tea", "coffee"]
    (folder / "vocab.txt").write_text("\n".join(words))
    labels = {0: "contradiction", 1: "entailment", 2: "neutral"}
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    names = {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}
    config = transformers.BertConfig(vocab_size=len(words), **sizes, **names)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)


@pytest.mark.acceptance
def test_a_real_cross_encoder_from_a_folder(tmp_path: Path) -> None:
    """Loaded from its folder alone, it scores every pair."""
    pytest.importorskip("sentence_transformers")
    tiny_model(tmp_path)
    scores = NliJudge(str(tmp_path))([("likes tea", "not likes tea"), ("likes coffee", "likes tea")])
    assert len(scores) == 2 and all(0 <= score <= 1 for score in scores)


def doubtful(db: psycopg.Connection, user: str, *contents: str) -> list[str]:
    """Memories so alike that rules leave open whether they contradict each other."""
    return [remembered(db, user, content, embedding=[1, 0.1 * n, 0, 0]) for n, content in enumerate(contents)]


def verdicts(db: psycopg.Connection, user: str) -> list[tuple]:
    columns = "memory_id::text, other_id::text, judge, verdict, decision"
    return sorted(table(db, "list_judgements", user, columns=columns), key=str)


@pytest.fixture
def judged(db: psycopg.Connection, little_vectors: None) -> Iterator[None]:
    db.execute("select memoir.set_setting('judge', '\"nli\"')")
    yield
    db.execute("select memoir.reset_setting('judge')")
    clear_work(db, "nli")


def test_a_worker_judges(db: psycopg.Connection, memoir: Memoir, user: str, judged: None) -> None:
    seen: list[tuple[str, str]] = []

    class Watched(Model):
        def predict(self, pairs, apply_softmax: bool, show_progress_bar: bool) -> list[list[float]]:
            if any("poison" in text for pair in pairs for text in pair):
                raise ValueError("the model can't read it")
            seen.extend(pairs)
            assert db.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null and pid <> pg_backend_pid() "
                "and backend_type = 'client backend'"
            ).fetchone() == (0,)
            return [[0.01, 0.01, 0.98] if any("Cycles" in text for text in pair) else [0.8, 0.1, 0.1] for pair in pairs]

    first, second = doubtful(db, user, "Takes the train to work.", "Cycles to work every day.")
    doubtful(db, f"{user}-bad", "Likes a glass of wine.", "Brews poison in the cellar.")
    third, fourth = doubtful(db, f"{user}-more", "Walks to the office.", "Owns a red bicycle.")
    assert worker.run_judge(memoir, NliJudge("/models/nli-tiny", Watched), once=True) == 2
    assert ("Takes the train to work.", "Cycles to work every day.") in seen
    assert verdicts(db, user) == [(second, first, "nli nli-tiny", "contradiction", "superseded")]
    assert memory_row(db, first, "state::text, superseded_by::text") == ("superseded", second)
    assert verdicts(db, f"{user}-more") == [(fourth, third, "nli nli-tiny", "compatible", "none")]
    # What the model fails on waits, and ends as a dead letter.
    assert work(db, "nli") == [("ready", 1, "ValueError: the model can't read it")]
    use_up_attempts(db, "nli")
    assert worker.run_judge(memoir, NliJudge("/models/nli-tiny", Watched), once=True) == 0
    assert work(db, "nli", "state") == [("dead",)]


@pytest.mark.acceptance
def test_the_command_judges(db: psycopg.Connection, memoir_dsn: str, user: str, judged: None, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    first, second = doubtful(db, user, "Takes the train to work.", "Cycles to work every day.")
    command = [sys.executable, "-m", "pg_memoir_cli", "worker", "--dsn", memoir_dsn, "--no-embed", "--once", "--nli"]
    wrong = subprocess.run([*command, str(tmp_path / "nothing")], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "there is no folder" in wrong.stderr
    assert work(db, "nli", "state, attempts") == [("ready", 0)]  # no fault of the work
    tiny_model(tmp_path)
    output_of([*command, tmp_path], env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert [row[:3] for row in verdicts(db, user)] == [(second, first, f"nli {tmp_path.name}")]
    assert work(db, "nli") == []
