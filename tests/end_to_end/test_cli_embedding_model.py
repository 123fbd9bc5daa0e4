"""pg-memoir embedding-model: one command goes over to another model, here a little multilingual one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from calls import has_python, recalled, say, table
from pg_memoir_cli.__main__ import main
from stubs import ChatCompletionsStub

pytestmark = pytest.mark.extended

# What the words of its languages mean.
MEANINGS = [
    "boat ship barco boot лодка 船",
    "cat gato katze кот 猫",
    "bread pan brot хлеб パン",
    "rain lluvia regen дождь 雨",
]


class TinyModel(ChatCompletionsStub):
    """An endpoint whose model knows four things in five languages."""

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self.requests.append(body)

        def vector(text: str) -> list[float]:
            return [float(bool(re.search("|".join(m.split()), text.lower()))) for m in MEANINGS] + [0.1]

        return {"data": [{"index": n, "embedding": vector(text)} for n, text in enumerate(texts)]}


@pytest.fixture
def endpoint() -> Iterator[TinyModel]:
    with TinyModel() as stub:
        yield stub


SAID = ("Mi gato duerme mucho", "Hoy falta la lluvia", "El barco es de madera")


def test_one_command_goes_over_to_a_multilingual_model(
    db: psycopg.Connection, memoir_dsn: str, user: str, endpoint: TinyModel, capsys: pytest.CaptureFixture[str]
) -> None:
    say(db, user, "s", *SAID, answer="👍")
    command = ["embedding-model", "tiny", "--endpoint", endpoint.url, "--dsn", memoir_dsn]
    options = ["--languages", "en,es", "--document-prefix", "passage: ", "--query-prefix", "query: "]
    assert main([*command, *options]) == 0
    assert "3 texts embedded; questions use it now" in capsys.readouterr().out
    assert all(t.startswith("passage: ") for body in endpoint.requests for t in body["input"] if "gato" in t)
    models = set(table(db, "embedding_progress", columns="model, status"))
    assert models == {("all-MiniLM-L6-v2", "retired"), ("tiny", "active")}
    # In words these have nothing in common with what was said.
    with psycopg.connect(memoir_dsn, autocommit=True) as fresh:
        if has_python(fresh):
            assert [recalled(fresh, user, asked, p_limit=1) for asked in ("кот?", "船", "Regen")] == [
                [t] for t in SAID[:1] + SAID[2:] + SAID[1:2]
            ]
    # Again: nothing is left to do.
    assert main(command) == 0 and "0 texts embedded" in capsys.readouterr().out


@pytest.mark.acceptance
def test_a_model_that_is_not_there_changes_nothing(
    db: psycopg.Connection, memoir_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = table(db, "embedding_progress")
    assert main(["embedding-model", "tiny", "--endpoint", "http://127.0.0.1:9/v1", "--dsn", memoir_dsn]) == 1
    assert main(["embedding-model", "/no/such/folder", "--dsn", memoir_dsn]) == 1
    assert capsys.readouterr().err.count("pg-memoir embedding-model: ") == 2
    assert table(db, "embedding_progress") == before


def test_a_folder(db: psycopg.Connection, memoir_dsn: str, user: str, tmp_path: Path) -> None:
    """A BERT of two layers with random weights, as anybody's model lies on a disk."""
    folder = small_bert(tmp_path / "little")
    say(db, user, "s", *SAID, answer="👍")
    assert main(["embedding-model", str(folder), "--dsn", memoir_dsn]) == 0
    assert (str(folder), "active") in table(db, "embedding_progress", columns="model, status")
    vectors = [line["row"] for (line,) in table(db, "export_user", user, True) if line.get("kind") == "embeddings"]
    assert [(v["model"], len(json.loads(v["embedding"]))) for v in vectors] == [(str(folder), 32)] * len(SAID)


def small_bert(folder: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer, models

    parts = folder.parent / "parts"
    parts.mkdir()
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abcdefghijklmnopqrstuvwxyz",
        *("##" + c for c in "abcdefghijklmnopqrstuvwxyz"),
    ]
    (parts / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab_file=str(parts / "vocab.txt")).save_pretrained(parts)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(parts)
    SentenceTransformer(
        modules=[word := models.Transformer(str(parts)), models.Pooling(word.get_word_embedding_dimension())]
    ).save(str(folder))
    assert json.loads((folder / "modules.json").read_text())
    return folder
