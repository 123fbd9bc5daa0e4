"""Other names of the same thing: what a text says of them, and what the names given with a memory are names of."""

from __future__ import annotations

import pytest
from pg_memoir_language.aliases import given_aliases, read_aliases

SAID = [
    ("We run everything on Kubernetes (k8s) these days.", {("k8s", "kubernetes")}),
    ("I moved our builds to GitHub Actions, or GHA, last week.", {("gha", "github actions")}),
    ("My machine learning (ML) course starts on Monday.", {("ml", "machine learning")}),
    ("GHA (GitHub Actions) is failing again.", {("gha", "github actions")}),
    ("My sister Elizabeth, also known as Lizzy, is visiting.", {("elizabeth", "lizzy")}),
    ("Bob aka Robert Smith called.", {("bob", "robert smith")}),
    ("PTO is short for paid time off at my company.", {("pto", "paid time off")}),
    ("We call the Customer Data Platform CDP for short.", {("cdp", "customer data platform")}),
    (
        "Internationalization (i18n) is hard; localization (l10n) too.",
        {("i18n", "internationalization"), ("l10n", "localization")},
    ),
    ("I live in Berlin (Germany) with Tom (my brother).", set()),
    ("I want tea or coffee. Is it A or B? I like JavaScript (JS9).", set()),
    ("The results (see above) were good (really).", set()),
]


@pytest.mark.parametrize("text, expected", SAID, ids=[text[:30] for text, _ in SAID])
def test_names_that_a_text_gives(text: str, expected: set[tuple[str, str]]) -> None:
    found = {(alias.name, alias.other) for alias in read_aliases(text) if alias.stated}
    assert found == expected | {(other, name) for name, other in expected}


def test_phrases_by_their_initials() -> None:
    text = "We use GitHub Actions and Amazon Web Services in New York, not in SHOUTED WORDS HERE."
    found = {(alias.name, alias.other) for alias in read_aliases(text) if not alias.stated}
    assert found == {("gha", "github actions"), ("aws", "amazon web services")}


@pytest.mark.parametrize(
    "content, aliases, slot_value, expected",
    [
        ("Kubernetes runs our cluster.", ["k8s"], None, {("k8s", "kubernetes")}),
        ("Our builds run on GitHub Actions now.", ["GHA"], None, {("gha", "github actions")}),
        (
            "Her sister is called Elizabeth.",
            ["Lizzy", "Beth"],
            None,
            {("beth", "elizabeth"), ("elizabeth", "lizzy"), ("beth", "lizzy")},
        ),
        ("the thing we run pods on", ["k8s"], "Kubernetes", {("k8s", "kubernetes")}),
        ("Anna met Boris in Prague.", ["Bo"], None, set()),  # whose name, nobody can say
    ],
)
def test_names_given_with_a_memory(
    content: str, aliases: list[str], slot_value: str | None, expected: set[tuple[str, str]]
) -> None:
    found = given_aliases(content, aliases, slot_value)
    assert {tuple(sorted((alias.name, alias.other))) for alias in found} == expected
