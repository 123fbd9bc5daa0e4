"""pg-memoir embedding-model: one command goes over to another model, here a little multilingual one."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from calls import Db, recalled, say, table
from pg_memoir_cli.__main__ import main
from servers import has_plpython
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

    def vector(self, said: str) -> list[float]:
        return [float(bool(re.search("|".join(m.split()), said.lower()))) for m in MEANINGS] + [0.1]


@pytest.fixture
def endpoint() -> Iterator[TinyModel]:
    with TinyModel() as stub:
        yield stub


SAID = ("Mi gato duerme mucho", "Hoy falta la lluvia", "El barco es de madera")


def test_one_command_goes_over_to_a_multilingual_model(
    db: Db, memoir_dsn: str, user: str, endpoint: TinyModel, capsys
) -> None:
    say(db, user, "s", *SAID, answer="👍")
    command = ["embedding-model", "tiny", "--endpoint", endpoint.url, "--dsn", memoir_dsn]
    options = ["--languages", "en,es", "--document-prefix", "passage: ", "--query-prefix", "query: "]
    assert main([*command, *options]) == 0
    assert "3 texts embedded; questions use it now" in capsys.readouterr().out
    assert all(t.startswith("passage: ") for body in endpoint.requests for t in body["input"] if "gato" in t)
    states = dict(table(db, "embedding_progress", columns="model, status"))
    assert states == {"all-MiniLM-L6-v2": "retired", "tiny": "active"}
    # In words these have nothing in common with what was said.
    with psycopg.connect(memoir_dsn, autocommit=True) as fresh:
        if has_plpython(memoir_dsn):
            found = [recalled(fresh, user, asked, p_limit=1) for asked in ("кот?", "Regen", "船")]
            assert found == [[text] for text in SAID]
    # Again: nothing is left to do.
    assert main(command) == 0 and "0 texts embedded" in capsys.readouterr().out


@pytest.mark.acceptance
def test_a_model_that_is_not_there_changes_nothing(db: Db, memoir_dsn: str, capsys) -> None:
    before = table(db, "embedding_progress")
    assert main(["embedding-model", "tiny", "--endpoint", "http://127.0.0.1:9/v1", "--dsn", memoir_dsn]) == 1
    assert main(["embedding-model", "/no/such/folder", "--dsn", memoir_dsn]) == 1
    assert capsys.readouterr().err.count("pg-memoir embedding-model: ") == 2
    assert table(db, "embedding_progress") == before


def test_a_folder(db: Db, memoir_dsn: str, user: str, tmp_path, capsys) -> None:
    """A BERT of two layers with random weights, as anybody's model lies on a disk."""
    folder = small_bert(tmp_path / "little")
    say(db, user, "s", *SAID, answer="👍")
    assert main(["embedding-model", str(folder), "--dsn", memoir_dsn]) == 0
    capsys.readouterr()
    assert main(["sync", user, "--dry-run", "--json", "--dsn", memoir_dsn]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["model"], row["texts"]) == (str(folder), 0) and row["cursor"] == row["items"] > 0


def small_bert(folder: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer, models

    parts = folder.parent / "parts"
    parts.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters)]
    (parts / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab_file=str(parts / "vocab.txt")).save_pretrained(parts)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=64, **sizes)
    transformers.BertModel(config).save_pretrained(parts)
    SentenceTransformer(
        modules=[word := models.Transformer(str(parts)), models.Pooling(word.get_word_embedding_dimension())]
    ).save(str(folder))
    assert json.loads((folder / "modules.json").read_text())
    return folder
