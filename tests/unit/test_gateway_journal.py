"""Exchanges that are not stored yet outlive the process that answered them."""

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pg_memoir_gateway.config import Config
from pg_memoir_gateway.dialect import Answer
from pg_memoir_gateway.exchange import Exchange
from pg_memoir_gateway.journal import Entry, Journal

SENT = [(b"x-session-id", b"s1"), (b"x-mine", b"m"), (b"x-api-key", b"SECRET"), (b"Authorization", b"Bearer SECRET")]
Open = Callable[..., tuple[Journal, list[Entry]]]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Opens the journal of a process. Returns it and the entries that it took over."""

    def open_journal(dsn: str = "host=a password=1") -> tuple[Journal, list[Entry]]:
        journal = Journal(Config(dsn=dsn, journal=str(tmp_path), session_header="X-Mine"))
        return journal, journal.open()

    return open_journal


def exchange(body: bytes = b'{"a": 1}\n') -> Exchange:
    made = Exchange("POST", "/v1/messages", b"/v1/messages", list(SENT), body, sent=body + b"more", status=200)
    made.answer_headers = [(b"content-type", b"text/event-stream"), (b"set-cookie", b"SECRET")]
    made.chunks = [(1.5, b"data: \xff\n"), (2.5, b"\n")]
    return made


def write(journal: Journal, made: Exchange, has_answer: bool = True) -> Entry:
    entry = journal.add_entry()
    assert entry
    entry.write_request(made, "ann", "manage")
    if has_answer:
        entry.write_answer(made)
    return entry


def test_journal_of_an_ended_process(opened: Open, tmp_path: Path) -> None:
    before, entries = opened()
    assert entries == []
    made = exchange()
    made.earlier = [replace(exchange(b"first"), earlier=[])]
    made.told = Answer([{"role": "assistant", "content": "é"}], "m", {"input_tokens": 1}, "stop", "id")
    made.complete = True
    write(before, made)
    before.close()
    read, user, mode = opened()[1][0].read()
    assert (user, mode) == ("ann", "manage")
    assert (read.body, read.sent, read.chunks, read.status) == (made.body, made.sent, made.chunks, 200)
    assert read.headers == SENT[:2] and read.answer_headers == made.answer_headers[:1]
    assert (read.told, read.complete, read.streams) == (made.told, True, True)
    assert [(one.sent, one.chunks) for one in read.earlier] == [(b"firstmore", made.chunks)]
    assert [event.data for _, event in read.events()] == [event.data for _, event in read.earlier[0].events()] == ["�"]
    assert not any(b"SECRET" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_journal_without_answers_and_in_order(opened: Open) -> None:
    before, _ = opened()
    for number in range(12):
        write(before, exchange(b"%d" % number), has_answer=number % 2 == 0)
    before.close()
    read = [entry.read()[0] for entry in opened()[1]]
    assert [(one.body, bool(one.chunks)) for one in read] == [(b"%d" % n, n % 2 == 0) for n in range(12)]


def test_journal_leaves_living_processes_alone(opened: Open) -> None:
    living, _ = opened()
    write(living, exchange())
    assert opened()[1] == []
    living.close()
    assert opened("host=b")[1] == [] and len(opened("host=a password=2")[1]) == 1


def test_journal_is_empty_once_all_is_stored(opened: Open, tmp_path: Path) -> None:
    journal, _ = opened()
    entry = write(journal, exchange())
    files = [*tmp_path.rglob("*.request"), *tmp_path.rglob("*.answer")]
    assert len(files) == 2 and all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert journal.size > 0
    entry.remove()
    journal.close()
    assert journal.size == 0 and not [file for file in tmp_path.rglob("*") if file.is_file()]


@pytest.mark.parametrize("journal", ["off", "/dev/null/no"])
def test_journal_that_can_not_be_made(journal: str) -> None:
    made = Journal(Config(dsn="x", journal=journal))
    assert made.open() == [] and made.add_entry() is None
    made.close()
