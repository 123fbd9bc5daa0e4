"""Secrets in texts, by the package alone: each kind and its near misses, cases, redaction, and how time grows."""

import json
from pathlib import Path

import pytest
from cases import read_cases
from growth import check_growth
from pg_memoir_language import data, secret_tables
from pg_memoir_language.patterns import compile_pattern
from pg_memoir_language.secrets import find_secrets, redact, secret_kinds
from secret_texts import fill

ROOT = Path(__file__).resolve().parents[2]

CARD = "4111 1111 1111 1111"

# Of each kind a text that holds one, and a text that nearly does.
KINDS = [(case["kind"], fill(case["text"]), case["near"]) for case in read_cases("secret_kinds")]


@pytest.mark.parametrize("kind, text, near", KINDS, ids=[f"{k} {n}" for n, (k, _, _) in enumerate(KINDS)])
def test_each_kind_and_its_near_miss(kind: str, text: str, near: str) -> None:
    for around in (text, f"Well, {text}, you know.", f"({text})", f"x\n{text}\ny"):
        assert secret_kinds(around) == [kind], around
        redacted = redact(around)
        assert secret_kinds(redacted) == [] and redacted != around
    assert secret_kinds(near) == [] and redact(near) == near


def test_cases() -> None:
    """Each secret is found and taken out, and no other text raises an alarm. Rules were not made of these texts."""
    cases = read_cases("secrets")
    secret, plain = ([fill(case["text"]) for case in cases if case["secret"] is kind] for kind in (True, False))
    assert len(secret) > 130 and [text for text in secret if secret_kinds(text) == []] == []
    assert len(plain) >= 80 and [text for text in plain if secret_kinds(text) != []] == []
    redacted = [redact(text) for text in secret]
    assert [text for text in redacted if secret_kinds(text) != [] or "(withheld)" not in text] == []


def test_redaction_takes_the_value_alone() -> None:
    for text, left in (
        ("my password is hunter2x and the dog is Rex", "my password is (withheld) and the dog is Rex"),
        ("Server=a;Pwd=Sand!4x;Database=b", "Server=a;Pwd=(withheld);Database=b"),
        ('login("x", password="Ab,c;9 d")', 'login("x", password="(withheld)")'),
        ("https://a.test/f?x=1&token=9f86d081884c7d65&y=2", "https://a.test/f?x=1&token=(withheld)&y=2"),
        (
            "-----BEGIN PRIVATE KEY-----\nMIIEv\nQIBADANBg\n-----END PRIVATE KEY-----\nthat is it",
            "(withheld)\nthat is it",
        ),
        ("密码是 abc12345。好的", "密码是 (withheld)。好的"),
        ("The PIN of my card is 7294, keep it", "The PIN of my card is (withheld), keep it"),
        ("Cookie: sid=38afes7a8ab9d; csrftoken=u32t4o3tb3gl9", "Cookie: sid=(withheld); csrftoken=(withheld)"),
        ("my card is ４１１１ １１１１ １１１１ １１１１", ""),  # disguised: all of the text is withheld
    ):
        assert redact(text) == left


def test_sample_holds_no_secret() -> None:
    sessions = json.loads((ROOT / "docs/start/sample.json").read_text())
    said = [message.get("content") for session in sessions for message in session["messages"]]
    texts = [text for text in said if isinstance(text, str)]
    assert len(texts) > 50 and [text for text in texts if secret_kinds(text) != []] == []


def test_uuid_is_no_account() -> None:
    """Their digits check as those of an IBAN, as one in five thousand ids' do."""
    ids = "06421896-ae49-4d59-bd8b-71b6471b0f71 ba65a204-3303-4cdd-b7b5-d61457320267"
    for name in (*ids.split(), "BE1194FF-0098-400B-AEBE-787DC14B7DDA"):
        for text in (f'{{"id": "{name}"}}', f"{name} (turn of first) user: hello", f"see /runs/{name}/log"):
            assert secret_kinds(text) == [], text
        assert secret_kinds(f"run {name}: pay to DE89 3704 0044 0532 0130 00") == ["IBAN"]


def test_stems_are_in_all_names() -> None:
    """Each name of a password holds a stem of its language: names are looked for behind stems alone."""
    group = compile_pattern(r"\[[^]]*\]|\((?:[^()]|\([^()]*\))*\)\??|.\?")
    stems = secret_tables.read_tables()["stems"]
    names = [(language, name) for language in stems for name in data.entries(language, "password_names")]
    assert len(names) > 70
    # Groups and choices become a sign that no stem holds.
    missing = [(lang, name) for lang, name in names if not any(s in group.sub("#", name).lower() for s in stems[lang])]
    assert missing == []


REPEATED = [
    *"aA01 -.=\"'(/", "1 ", "x=", "password ", "my password is ", "login: a ", "cookie: sid=", "user x pass y ", "token=",
    "authorization: ", "https://a:", "curl -u ", "pin ", "code 12 ", "4111 ", "recovery code: ", "seed phrase abandon ",
    "DE89 ", "密码", "\u200b", "１", "-----BEGIN PRIVATE KEY-----", "docker login -p ", "<password>", "bank account ", "\n",
]  # fmt: skip


@pytest.mark.parametrize("unit", REPEATED)
def test_time_grows_with_length_alone(unit: str) -> None:
    check_growth(find_secrets, unit)
