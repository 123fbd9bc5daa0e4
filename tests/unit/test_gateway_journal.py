"""What is not stored yet outlives the process that answered it."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from pg_memoir_gateway.config import Config
from pg_memoir_gateway.dialect import Answer
from pg_memoir_gateway.exchange import Exchange
from pg_memoir_gateway.journal import Journal

SENT = [(b"x-session-id", b"s1"), (b"x-mine", b"m"), (b"x-api-key", b"SECRET"), (b"Authorization", b"Bearer SECRET")]


def journal_at(folder: Path, dsn: str = "host=a password=1") -> Journal:
    return Journal(Config(dsn=dsn, journal=str(folder), session_header="X-Mine"))


def exchange(body: bytes = b'{"a": 1}\n') -> Exchange:
    made = Exchange("POST", "/v1/messages", b"/v1/messages", list(SENT), body, sent=body + b"more", status=200)
    made.answer_headers = [(b"content-type", b"text/event-stream"), (b"set-cookie", b"SECRET")]
    made.chunks = [(1.5, b"data: \xff\n"), (2.5, b"\n")]
    return made


def write(journal: Journal, made: Exchange) -> None:
    entry = journal.add_entry()
    assert entry
    entry.write_request(made, "ann", "manage")
    entry.write_answer(made)


def test_journal_returns_what_an_ended_process_left(tmp_path: Path) -> None:
    before = journal_at(tmp_path)
    assert before.open() == []
    made = exchange()
    made.earlier = [replace(exchange(b"first"), earlier=[])]
    made.told = Answer([{"role": "assistant", "content": "é"}], "m", {"input_tokens": 1}, "stop", "id")
    made.complete = True
    write(before, made)
    before.close()
    (entry,) = journal_at(tmp_path).open()
    read, user, mode = entry.read()
    assert (user, mode) == ("ann", "manage")
    assert (read.body, read.sent, read.chunks, read.status) == (made.body, made.sent, made.chunks, 200)
    assert read.headers == SENT[:2] and read.answer_headers == made.answer_headers[:1]
    assert (read.told, read.complete, read.streams) == (made.told, True, True)
    assert [(one.sent, one.chunks) for one in read.earlier] == [(b"firstmore", made.chunks)]
    assert not any(b"SECRET" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_journal_request_without_its_answer(tmp_path: Path) -> None:
    before = journal_at(tmp_path)
    before.open()
    entry = before.add_entry()
    assert entry
    entry.write_request(exchange(), "ann", "observe")
    before.close()
    read, _, _ = journal_at(tmp_path).open()[0].read()
    assert (read.body, read.chunks, read.complete) == (exchange().body, [], False)


def test_journal_leaves_living_processes_alone(tmp_path: Path) -> None:
    living, other = journal_at(tmp_path), journal_at(tmp_path, "host=b")
    living.open()
    write(living, exchange())
    assert journal_at(tmp_path).open() == []
    living.close()
    assert other.open() == []
    assert len(journal_at(tmp_path, "host=a password=2").open()) == 1


def test_journal_is_empty_once_all_is_stored(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    journal.open()
    entry = journal.add_entry()
    assert entry
    entry.write_request(exchange(), "ann", "manage")
    entry.write_answer(exchange())
    files = [file for file in tmp_path.rglob("*") if file.suffix in (".request", ".answer")]
    assert len(files) == 2 and all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert journal.size > 0
    entry.remove()
    journal.close()
    assert journal.size == 0 and not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_journal_order_is_that_of_the_exchanges(tmp_path: Path) -> None:
    before = journal_at(tmp_path)
    before.open()
    for number in range(12):
        write(before, exchange(b"%d" % number))
    before.close()
    assert [entry.read()[0].body for entry in journal_at(tmp_path).open()] == [b"%d" % n for n in range(12)]


@pytest.mark.parametrize("journal", ["off", "/dev/null/no"])
def test_journal_that_can_not_be_made(journal: str) -> None:
    made = Journal(Config(dsn="x", journal=journal))
    assert made.open() == [] and made.add_entry() is None
    made.close()
