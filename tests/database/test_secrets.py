"""Secrets are found on their way in, by the package or by the guard in SQL. test_clearance.py has the callers that see them."""

import re
from typing import Any

import psycopg
import pytest
from calls import Db, call, embed_waiting, persist, remembered
from cases import read_cases
from internals import changed_function, memory_row, own_rows, plain_secrets, redacted, run_internal
from loops import step
from routines import world_of
from secret_texts import fill

VECTOR = [0.1] * 384
CARD = "4111 1111 1111 1111"
LOGGING_IN = step(1, "login", {"password": "hunter2x9"}, "")[0]


def test_turns_are_marked_on_the_way_in(db: Db, user: str) -> None:
    asked = {"role": "user", "content": "log in", "sensitivity": "private"}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "ok", "embeddable": False}
    answer = persist(db, user, "s", f"My card is {CARD}", "Thanks", asked, LOGGING_IN, result, "bye")
    assert [w.split(" is marked")[0] for w in answer["warnings"]] == ["messages[0]", "messages[3]"]
    assert "card number" in answer["warnings"][0]
    rows = own_rows(db, user, "conversation_history", "sensitivity::text, embeddable", "true order by turn_index")
    secret, normal = ("secret", False), ("normal", True)
    assert rows == [secret, normal, ("private", True), secret, ("normal", False), normal]
    assert persist(db, user, "s2", {"role": "user", "content": "hi", "extra": {"password": "hunter2x9"}})["warnings"]
    for wrong in ({"sensitivity": "public"}, {"embeddable": "no"}):
        with pytest.raises(psycopg.Error, match=rf"messages\[0\].{next(iter(wrong))} must be"):
            persist(db, user, "s", {"role": "user", "content": "x"} | wrong)


def test_memories_are_marked_on_the_way_in(db: Db, user: str) -> None:
    """By their text, a name given with them, or a turn that they come from."""
    persist(db, user, "s", f"My card is {CARD}", "Thanks", "I live in Ulm", "Noted")
    secret, normal = ("secret", False), ("normal", True)
    for content, turns, named, expected in (
        (f"Pays with {CARD}", None, {}, secret),
        ("Pays with a card", [0], {}, secret),
        ("Lives in Ulm", [2], {}, normal),
        ("Account", None, {"aliases": ["DE89 3704 0044 0532 0130 00"]}, secret),
        ("Keeps bees", None, {"embeddable": False}, ("normal", False)),
    ):
        memory = remembered(db, user, content, session="s", source_turns=turns, **named)
        assert memory_row(db, memory, "sensitivity::text, embeddable") == expected
        assert (content in embed_waiting(db, VECTOR)) == expected[1]


def test_detection_is_switched_off_by_services_only(db: Db, user: str, memoir_dsn: str, setting: Any) -> None:
    call(db, "set_user_settings", user, {"detect_secrets": False})
    assert persist(db, user, "off", f"My card is {CARD}", "Thanks")["warnings"] == []
    setting("detect_secrets", False)
    assert persist(db, user + "-2", "off", f"My card is {CARD}", "Thanks")["warnings"] == []
    with world_of(memoir_dsn, tenant={"role": "tenant", "users": [user]}) as world:
        with pytest.raises(psycopg.Error, match="may not override setting detect_secrets"):
            call(world.connection("tenant"), "open_session", user, "t", settings={"detect_secrets": False})


def test_guard_without_python(db: Db) -> None:
    """What SQL finds alone: private keys, issuers' tokens, cards and accounts."""
    for case in read_cases("secret_kinds"):
        if case["kind"] in ("private key", "access key", "model key", "web token", "card number", "IBAN"):
            text = fill(case["text"])
            for around in (text, f"Well, {text}, you know.", f"x\n{text}\ny"):
                assert plain_secrets(db, around) == [case["kind"]], around
            assert plain_secrets(db, case["near"]) == [], case["near"]
    assert plain_secrets(db, "my password is hunter2x") == []


def test_guard_redacts_without_the_package(db: Db) -> None:
    said, left = (f"I pay with {way}, my dog is Rex." for way in (CARD, "(withheld)"))
    texts = {said: left, "４１１１ １１１１ １１１１ １１１１": ""}
    with changed_function(db, "reads_language", lambda old: re.sub("return .*;", "return false;", old)):
        assert {text: redacted(db, text) for text in texts} == texts


def test_failing_package_stops_no_writer(db: Db, user: str) -> None:
    """The guard in SQL goes on where the package raises; a password in a sentence is beyond it."""
    if not run_internal(db, "reads_language"):
        pytest.skip("this server has no PL/Python")
    assert "password" in persist(db, user, "s", "my password is hunter2x", "Thanks")["warnings"][0]
    warned: list[str] = []
    db.add_notice_handler(lambda notice: warned.append(notice.message_primary or ""))
    replaced = "do language plpython3u $$\nfrom pg_memoir_server import reading\nfrom pg_memoir_language import secrets\nreading.FUNCTIONS['secret_kinds'] = {}\n$$"
    db.execute(replaced.format("lambda text: 1 / 0"))
    try:
        assert "card number" in persist(db, user, "s", f"My card is {CARD}", "Thanks")["warnings"][0]
        assert any("secret_kinds failed: ZeroDivisionError" in message for message in warned)
    finally:
        db.execute(replaced.format("secrets.secret_kinds"))
