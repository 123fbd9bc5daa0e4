"""Memory pages as text: what was written is read again, and what a person changed is found, whatever their editor did."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pg_memoir.errors import InvalidArgumentError
from pg_memoir.extras.pages.comparing import compare, find_slot_value
from pg_memoir.extras.pages.markdown import Page, read, render
from pg_memoir.extras.pages.text import canonical, from_markdown, to_markdown
from pg_memoir.types import PagePhase, PageSentence

SAID = datetime(2026, 3, 1, tzinfo=UTC)
TEXTS = [
    "User lives in Bern.",
    "User's dog is called Rollo.",
    "User takes ibuprofen.",
    "*Never* push to `main` <!-- really -->, use [a branch](x) & <b>ask</b>; see notes_2026 and a\\b!",
    "Run the tests\nmake check MODULE=importer\n1. then read",
    "1. Januar ist 3. - 2 + # kein & &amp; Feiertag \\",
    "- It costs 5 > 4 = 4 \\",
    "See [^1] and [^9].",
    "¿Qué? 猫が好き، العربية",
]


def sentence(number: int, text: str, **given: Any) -> PageSentence:
    made = PageSentence(
        UUID(int=number << 96), text, "fact", None, "global", "user_stated", "agent", SAID, None, None, ["s1:0"], []
    )
    return replace(made, **given)


SENTENCES = [sentence(number, text) for number, text in enumerate(TEXTS, 1)]
PHASE = PagePhase(UUID(int=99 << 96), "s1", 0, 12, SAID, 3)


def page(sentences: list[PageSentence] = SENTENCES, project: str | None = None) -> str:
    return render(Page("alice", project, None, sentences, [PHASE], 0))


def items(*given: tuple[int, dict[str, Any]]) -> dict[UUID, dict[str, Any]]:
    """Memories as memory_get has them, some of them changed."""
    made = {one.memory_id: {"id": str(one.memory_id), "state": "active", "content": one.text} for one in SENTENCES}
    for number, change in given:
        made.setdefault(UUID(int=number << 96), {"id": str(UUID(int=number << 96))}).update(change)
    return made


def edits(text: str, *given: tuple[int, dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    return [(one.action, one.outcome, one.new) for one in compare(read(text), items(*given)).edits]


def on_lines(change: Callable[[str], str]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        head, base = text.index("# alice"), text.index("<!-- pg_memoir base")
        return text[:head] + "\n".join(map(change, text[head:base].split("\n"))) + text[base:]

    return edit


def wrap(line: str) -> str:
    words = line.split(" ")
    return words[0] + "".join(f"\n   {word}" if n > 1 else f" {word}" for n, word in enumerate(words[1:], 1))


@pytest.mark.parametrize("text", TEXTS)
def test_a_sentence_is_read_as_it_was_written(text: str) -> None:
    line = to_markdown(text)
    assert "\n" not in line and canonical(from_markdown(line)) == canonical(text)
    assert canonical(from_markdown(wrap(f"- {line}")[2:])) == canonical(text)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text + "\n\n",
        lambda text: re.sub(r"^- ", "* ", text, flags=re.MULTILINE),
        lambda text: text.replace("'", "’").replace('user: "alice"', "user: alice"),
        lambda text: re.sub(r"((?:^- .*\n)+)", lambda m: "".join(sorted(m[1].splitlines(True), reverse=True)), text, flags=re.M),
        lambda text: re.sub(r"^- ", "\n1. ", text, flags=re.MULTILINE),
        lambda text: text.replace("## Facts", "Facts\n-----"),
        lambda text: text.replace("[^00000001]", "[^1]").replace("[^00000002]", "[^2]"),
        lambda text: text.replace("[^00000001]", ""),  # its footnote was lost
        lambda text: text.replace("Bern.[^00000001]", "Bern[^00000001]."),
        lambda text: text.replace("- User takes", "- User lives in Bern.\n- User takes"),  # a line twice
        lambda text: text.replace("\\[^9\\]", "[^9]"),  # as mdformat has it
        on_lines(lambda line: line.replace(" ", "  ") + " \t" if not line.startswith("[^") else line),
        on_lines(lambda line: wrap(line) if line.startswith("- ") else line),
    ],
)  # fmt: skip
def test_what_an_editor_does_is_no_edit(change: Callable[[str], str]) -> None:
    assert edits(change(page())) == []


@pytest.mark.parametrize(
    ("change", "given", "found"),
    [
        (("Bern.[", "Basel.["), [], ("correct", "planned", "User lives in Basel.")),
        (("- User lives in Bern.[^00000001]\n", ""), [], ("forget", "planned", None)),
        (("User lives in Bern.", ""), [], ("forget", "planned", None)),
        (("## Facts\n", "## Preferences\n\n- Tea.\n\n## Facts\n"), [], ("remember", "planned", "Tea.")),
        (("Bern.[^00000001]", "Bern.[^00000001] Since May."), [], ("remember", "planned", "Since May.")),
        (("User lives in Bern.[^00000001]", "User lives in Basel."), [], ("correct", "planned", "User lives in Basel.")),
        (("Bern.[", "Basel.["), [(1, {"content": "User lives in Ulm."})], ("correct", "conflict", "User lives in Basel.")),
        (("Bern.[", "Basel.["), [(1, {"state": "forgotten", "content": None})], ("correct", "conflict", "User lives in Basel.")),
        (
            ("Bern.[", "Basel.["),
            [(1, {"state": "superseded", "superseded_by": str(UUID(int=50 << 96))}), (50, {"state": "active", "content": "User lives in  Basel."})],
            ("correct", "unchanged", "User lives in Basel."),
        ),
        (
            ("- User lives in Bern.[^00000001]\n", ""),
            [(1, {"state": "superseded", "superseded_by": str(UUID(int=50 << 96))}), (50, {"state": "active", "content": "User lives in Ulm."})],
            ("forget", "conflict", None),
        ),
        (("turns 0–12", "turns 0–99"), [], ("correct", "refused", "1 Mar 2026: turns 0–99 of s1, 3 of these sentences")),
    ],
)  # fmt: skip
def test_edits_are_found(change: tuple[str, str], given: Any, found: tuple[str, str, str | None]) -> None:
    text = page().replace(*change)
    assert text != page()
    assert edits(text, *given) == [found]


def test_what_is_gone_needs_no_forgetting() -> None:
    text = page().replace("- User lives in Bern.[^00000001]\n", "")
    assert edits(text, (1, {"state": "forgotten", "content": None})) == []


def test_headings_give_new_lines_type_and_project() -> None:
    text = page([*SENTENCES, sentence(20, "Uses tabs.", type="preference", project="red _ink_")])
    text = text.replace("- Uses tabs.", "- Never spaces.\n- Uses tabs.").replace("## Facts\n", "## Facts\n\n- Tall.\n")
    added = [one for one in read(text).pieces if one.memory is None]
    assert [(one.text, one.type, one.project) for one in added] == [
        ("Tall.", "fact", None),
        ("Never spaces.", "preference", "red _ink_"),
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text[text.index("# alice") :], "head of a page"),
        (lambda text: text[: text.index("<!-- pg_memoir base")], "last comment"),
        (lambda text: text + text, "more than one page"),
        (lambda text: text.replace('user: "alice"\n', ""), "no user"),
        (
            lambda text: text.replace("- User takes", "- Tall.[^9]\n- User takes") + "\n[^9]: So it is.\n",
            r"\[\^9\] is none of this page's",
        ),
    ],
)
def test_a_text_that_is_no_page_is_refused(change: Callable[[str], str], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        read(change(page()))


def test_each_sentence_names_its_sources() -> None:
    many = sentence(7, "Rows.", sources=[f"talk:{n}" for n in range(20)], doubts=["contradicts 12345678"])
    text = page([many, sentence(8, "Tall.", sources=[], provenance="correction", actor="person")])
    assert f"memory {many.memory_id}, said 1 Mar 2026 in talk:0, talk:1," in text and "and 8 more turns" in text
    assert "; contradicts 12345678" in text and "corrected 1 Mar 2026 by a person" in text
    assert text.index("## In doubt") < text.index("Rows.")


@pytest.mark.parametrize(
    ("old", "value", "new", "found"),
    [
        ("User lives in Bern.", "bern", "User lives in Basel.", "Basel"),
        ("User lives in Bern.", "bern", "User moved to Basel.", None),
        ("User lives in Bern.", None, "User lives in Basel.", None),
        ("User lives in Bern.", "bern", "User lives in .", None),
    ],
)
def test_the_value_of_a_slot_is_read_from_its_place(old: str, value: str | None, new: str, found: str | None) -> None:
    assert find_slot_value({"content": old, "slot_value": value}, new) == found
