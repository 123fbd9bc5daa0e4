"""Importing files into a database: complete, harmless to repeat, and refused with the place of what is wrong."""

import json
from pathlib import Path

import pytest
from calls import run_job, set_clock
from pg_memoir_cli import ConversationError, import_conversations
from pg_memoir_cli.__main__ import main

SAMPLE = Path(__file__).resolve().parents[2] / "docs" / "start" / "sample.json"
USER, MODEL = {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}


def write(tmp_path, *records):
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def test_the_sample_comes_back_as_it_is(memoir):
    done = import_conversations(memoir, SAMPLE)
    again = import_conversations(memoir, SAMPLE)
    assert done == again and done.users == ["ines"] and not done.refused
    records = json.loads(SAMPLE.read_text())
    for record in records:
        stored = memoir.history("ines", record["session"])
        sent = record["messages"][1:]  # the first is the session's system prompt
        assert len(stored) == len(sent)
        for have, want in zip(stored, sent):
            assert {key: have.get(key) for key in want} == want
    assert done.messages == sum(len(record["messages"]) - 1 for record in records)


def test_dates_names_and_metadata_are_kept(memoir, tmp_path):
    kite = {"speaker": "Ann", "dia_id": "D1:1", "text": "A kite", "blip_caption": "a red kite"}
    turns = [kite, {"speaker": "Bo", "dia_id": "D1:2", "text": "Nice"}]
    at = {"session_1_date_time": "1:56 pm on 8 May, 2023"}
    conversation = {"speaker_a": "Ann", "speaker_b": "Bo", "session_1": turns} | at
    path = write(tmp_path, {"sample_id": "c1", "conversation": conversation})
    import_conversations(memoir, path)
    [hit, *_] = memoir.recall("locomo:c1", "red kite")
    assert (hit.session, hit.turn_index, hit.name, hit.role) == ("session_1", 0, "Ann", "user")
    assert hit.said_at.isoformat().startswith("2023-05-08T13:56:00")
    assert memoir.history("locomo:c1", "session_1")[1]["metadata"] == {"dia_id": "D1:2"}
    # What was kept beside a message is not sent to a model.
    memoir.append("locomo:c1", "session_1", [USER])
    assert all(set(m) <= {"role", "content", "name"} for m in memoir.compile_context("locomo:c1", "session_1"))


def test_interrupted_and_resumed(memoir, tmp_path):
    good = {"user": "res", "session": "s1", "messages": [{**USER, "content": f"{n}"} for n in range(150)]}
    bad = {"user": "res", "session": "s2", "messages": [USER, {"role": "tool", "tool_call_id": "x", "content": "1"}]}
    where = r"chats.jsonl:2: session 's2', messages from 0: .*messages\[1\]"
    with pytest.raises(ConversationError, match=where) as caught:
        import_conversations(memoir, write(tmp_path, good, bad))
    assert caught.value.line == 2
    done = import_conversations(memoir, write(tmp_path, good, bad, good | {"session": "s3"}), skip_bad=True)
    assert (done.conversations, len(done.refused)) == (2, 1)
    assert [len(memoir.history("res", session)) for session in ("s1", "s3")] == [150, 150]
    changed = r"messages\[0\]: session 's1' of user 'res' was imported before with other messages"
    with pytest.raises(ConversationError, match=changed):
        import_conversations(memoir, write(tmp_path, good | {"messages": [MODEL, *good["messages"]]}))


def test_a_closed_session_is_recognised(memoir, tmp_path):
    prompt = {"role": "system", "content": "Be kind."}
    path = write(tmp_path, {"user": "cl", "session": "s1", "messages": [prompt, USER, MODEL]})
    import_conversations(memoir, path)
    memoir.close_session("cl", "s1")
    assert import_conversations(memoir, path).messages == 2 and len(memoir.history("cl", "s1")) == 2


def test_a_conversation_is_known_without_receipts(memoir, db, user, tmp_path):
    path = write(tmp_path, {"session": "s", "messages": [USER, MODEL, USER | {"content": "NUL \0"}]})
    for _ in range(2):
        assert import_conversations(memoir, path, user=user).messages == 3
        set_clock(db, "2040-01-01 00:00+00")
        run_job(db, "sweep")
        set_clock(db, None)
    assert len(memoir.history(user, "s")) == 3


def test_command_line(memoir, memoir_dsn, tmp_path, capsys):
    path = write(tmp_path, {"user": "cli", "session": "s1", "messages": [USER, MODEL]}, {"messages": 5})
    assert main(["import", str(path), "--dsn", memoir_dsn, "--strict"]) == 1
    assert "chats.jsonl:2: messages" in capsys.readouterr().err
    assert main(["import", str(path), "--dsn", memoir_dsn, "--user-prefix", "x:"]) == 3
    told = capsys.readouterr()
    assert "1 conversations, 2 messages, x:cli" in told.out and "left out: chats.jsonl:2: messages" in told.err
    assert len(memoir.history("x:cli", "s1")) == 2
