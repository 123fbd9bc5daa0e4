"""Files of conversations are told apart by content, read whole, and refused with file, line and field."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from pg_memoir.calls import calls
from pg_memoir_cli.formats import ConversationError, openai_name, read_conversations
from pg_memoir_cli.importing import import_conversations, runs

SAMPLE = Path(__file__).resolve().parents[2] / "scripts" / "sample.json"
USER, MODEL = {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}


def read(tmp_path, content, name="chats.json", **options):
    path = tmp_path / name
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    file = read_conversations(path, **options)
    return file.total, list(file.conversations)


def read_lines(tmp_path, *records, **options):
    lines = "\n".join(r if isinstance(r, str) else json.dumps(r) for r in records)
    return read(tmp_path, lines, name="chats.jsonl", **options)


def test_openai_jsonl(tmp_path):
    tool_call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    total, found = read_lines(
        tmp_path,
        {"messages": [{"role": "system", "content": "Be kind."}, USER, MODEL], "user": "ann", "session": "s1"},
        "",
        [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [tool_call]},
            {"role": "tool", "tool_call_id": "c", "content": "1"},
        ],
        {
            "id": 7,
            "created_at": "2024-05-01T12:00:00",
            "messages": [USER, MODEL | {"created_at": 1714600000, "weight": 0}],
        },
    )
    assert total == 3
    assert [(c.user, c.session) for c in found] == [("ann", "s1"), ("chats", "conversation-2"), ("chats", "7")]
    assert found[0].system_prompt == "Be kind." and found[0].messages == [USER, MODEL]
    assert found[1].messages[1]["tool_calls"] == [tool_call]
    assert found[2].messages == [
        USER | {"created_at": "2024-05-01T12:00:00+00:00"},
        MODEL | {"created_at": "2024-05-01T21:46:40+00:00"},
    ]
    assert str(found[2].where) == "chats.jsonl:4"


@pytest.mark.parametrize(
    "document", [[USER, MODEL], {"messages": [USER, MODEL]}, [[USER, MODEL]], [{"messages": [USER, MODEL]}]]
)
def test_openai_documents(tmp_path, document):
    for text in (json.dumps(document), json.dumps(document, indent=1), "\ufeff" + json.dumps(document)):
        total, [conversation] = read(tmp_path, text, user="ann")
        assert total == 1 and conversation.user == "ann" and conversation.messages == [USER, MODEL]


def test_old_function_calls_become_tool_calls(tmp_path):
    call = {"name": "f", "arguments": "{}"}
    messages = [USER, {"role": "assistant", "function_call": call}, {"role": "function", "name": "f", "content": "1"}]
    _, [conversation] = read(tmp_path, {"messages": messages})
    assert conversation.messages[1]["tool_calls"] == [{"id": "call_1", "type": "function", "function": call}]
    assert conversation.messages[2] == {"role": "tool", "tool_call_id": "call_1", "content": "1"}


def sharegpt(*turns, **more):
    return [{"id": "x1", "conversations": [{"from": who, "value": value} for who, value in turns], **more}]


def test_sharegpt(tmp_path):
    turns = [("system", "Be kind."), ("human", "Hello"), ("gpt", "Hi")]
    _, [conversation] = read(tmp_path, sharegpt(*turns), user_prefix="share:")
    assert (conversation.user, conversation.session) == ("share:chats", "x1")
    assert conversation.system_prompt == "Be kind." and conversation.messages == [USER, MODEL]


def test_sharegpt_tool_results_get_the_calls_before_them(tmp_path):
    ask = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    _, [conversation] = read(
        tmp_path,
        sharegpt(
            ("human", "both"),
            ("gpt", "Looking. " + ask + ask),
            ("tool", "<tool_response>\n1\n</tool_response><tool_response>2</tool_response>"),
            ("function_call", '{"name": "g", "arguments": {}}'),
            ("observation", "3"),
            ("gpt", "Done."),
            ("tool", "out of nowhere"),
            ("gpt", "I would " + ask),
        ),
    )
    messages = conversation.messages
    assert [m["role"] for m in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert (
        messages[1]["content"] == "Looking."
        and [c["function"] for c in messages[1]["tool_calls"]] == [{"name": "f", "arguments": '{"a": 1}'}] * 2
    )
    assert [m["content"] for m in messages if m["role"] == "tool"] == ["1", "2", "3", "out of nowhere"]
    assert messages[4]["content"] is None and messages[4]["tool_calls"][0]["function"]["name"] == "g"
    assert messages[6]["content"] == "Done." and len(messages[6]["tool_calls"]) == 1
    assert messages[8] == {"role": "assistant", "content": "I would " + ask}  # never answered: stays text
    waiting = set()
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting
        waiting |= {call["id"] for call in message.get("tool_calls", [])}
    assert not waiting


def locomo(**change):
    conversation = {
        "speaker_a": "Zoë O'Neil",
        "speaker_b": "Bo",
        "session_2_date_time": "12:05 am on 1 March, 2024",
        "session_2": [{"speaker": "Bo", "dia_id": "D2:1", "text": "Second"}],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {
                "speaker": "Zoë O'Neil",
                "dia_id": "D1:1",
                "text": "Look!",
                "blip_caption": "a red kite",
                "img_url": ["u"],
            },
            {"speaker": "Bo", "dia_id": "D1:2", "text": "Nice", "query": "kite"},
        ],
        "session_3_date_time": "12:05 am on 2 March, 2024",
    }
    return [{"sample_id": "conv-1", "qa": [], "conversation": conversation | change}]


def test_locomo(tmp_path):
    total, [first, second] = read(tmp_path, locomo())
    assert (
        total == 2 and first.user == "locomo:conv-1" and (first.session, second.session) == ("session_1", "session_2")
    )
    assert first.messages == [
        {
            "role": "user",
            "name": "Zoe_O_Neil",
            "content": "Look!\n[image: a red kite]",
            "metadata": {"dia_id": "D1:1"},
            "created_at": "2023-05-08T13:56:00+00:00",
        },
        {
            "role": "assistant",
            "name": "Bo",
            "content": "Nice\n[image: kite]",
            "metadata": {"dia_id": "D1:2"},
            "created_at": "2023-05-08T13:56:10+00:00",
        },
    ]
    assert second.messages[0]["created_at"] == "2024-03-01T00:05:00+00:00"
    _, [other, _] = read(tmp_path, locomo(), user_prefix="bench:")
    assert other.user == "bench:conv-1"


def test_names_are_what_openai_allows():
    assert [openai_name(n) for n in ("Ann", "Zoë O'Neil", "日本", "a" * 99, "_x_")] == [
        "Ann",
        "Zoe_O_Neil",
        "speaker",
        "a" * 64,
        "x",
    ]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (["{"], "chats.jsonl:1: not JSON"),
        ([[USER], "{"], "chats.jsonl:2: not JSON"),
        ([[USER], {"x": 1}], "chats.jsonl:2: no known format: needs 'messages'"),
        ([[USER], {"messages": []}], "chats.jsonl:2: messages: a list"),
        ([[USER], {"messages": [USER, "Hi"]}], r"chats.jsonl:2: messages\[1\]: is a str"),
        ([[USER], {"messages": [{"role": "robot"}]}], r"chats.jsonl:2: messages\[0\].role: 'robot' is none of"),
        ([[USER], {"messages": [USER], "created_at": "May"}], "chats.jsonl:2: created_at: 'May' is neither"),
        ([[USER], {"messages": [USER | {"created_at": True}]}], r"chats.jsonl:2: messages\[0\].created_at: True"),
        ([[USER], {"messages": [USER], "metadata": 1}], "chats.jsonl:2: metadata: is a int"),
        ([[USER], *sharegpt(("alien", "Hi"))], r"chats.jsonl:2: conversations\[0\].from: 'alien' is none of"),
        ([[USER], *sharegpt(("human", 1))], r"chats.jsonl:2: conversations\[0\].value: 1 is not"),
        ([[USER], {"conversations": {}}], "chats.jsonl:2: conversations: a list"),
        ([[USER], *locomo(session_1_date_time="noon")], "chats.jsonl:2: conversation.session_1_date_time: 'noon'"),
        ([[USER], *locomo(session_1_date_time="1:00 pm on 31 June, 2023")], "conversation.session_1_date_time"),
        ([[USER], *locomo(session_1=[{"speaker": "Bo"}])], r"conversation.session_1\[0\].text: None"),
        ([[USER], *locomo(session_1="x")], "conversation.session_1: is a str"),
    ],
)
def test_errors_name_file_line_and_field(tmp_path, records, message):
    with pytest.raises(ConversationError, match=message):
        _, found = read_lines(tmp_path, *records)
        raise next(item for item in found if isinstance(item, ConversationError))


def test_errors_of_whole_files(tmp_path):
    with pytest.raises(ConversationError, match="chats.json: the file is empty"):
        read(tmp_path, "\n \n")
    with pytest.raises(ConversationError, match="chats.json:2: not JSON") as caught:
        read(tmp_path, '[\n{"messages": }]')
    assert (caught.value.file, caught.value.line) == ("chats.json", 2)
    (tmp_path / "chats.json").write_bytes(b'[{"messages": "\xff"}]')
    with pytest.raises(ConversationError, match="not UTF-8 at byte 15"):
        read_conversations(tmp_path / "chats.json")
    _, [_, error] = read(tmp_path, [{"messages": [USER]}, {"messages": 1}])
    assert str(error).startswith("chats.json: record 2: messages") and (error.record, error.field) == (2, "messages")


def test_runs_keep_tool_calls_with_their_results():
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "1"}
    long = [USER, MODEL] * 40 + [USER, call, result, MODEL] * 40 + [MODEL] * 600
    cut = list(runs(long))
    assert [m for run in cut for m in run] == long and len(cut) > 3
    assert all(run[-1] is not call and len(run) <= 256 for run in cut) and cut[1][0] is USER


class Recorder:
    """Stands for a client: notes its calls instead of running them."""

    def __init__(self):
        self.asked = []

    def run(self, call):
        self.asked.append((call.function, call.params.get("key"), str(call.params.get("messages"))))

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.run(getattr(calls, name)(*args, **kwargs))


def test_an_import_makes_the_same_calls_every_time(tmp_path):
    """A re-run asks with the same keys and bodies, which is what makes it harmless."""
    path = tmp_path / "chats.jsonl"
    path.write_text(
        json.dumps({"messages": [{"role": "system", "content": "P"}, *[USER, MODEL] * 50]}) + "\n" + json.dumps([USER])
    )
    one, two = Recorder(), Recorder()
    done = import_conversations(one, path, user="ann", progress=False)
    assert done == import_conversations(two, path, user="ann", progress=False) and one.asked == two.asked
    assert [c[0] for c in one.asked] == ["open_session", "persist_turn", "persist_turn", "persist_turn"]
    assert len({c[1] for c in one.asked[1:]}) == 3
    assert (done.conversations, done.messages, done.users) == (2, 101, ["ann"])


def test_import_skips_what_is_bad_when_asked(tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps([USER]) + "\nnonsense\n" + json.dumps([MODEL]))
    done = import_conversations(Recorder(), path, user="ann", skip_bad=True, progress=False)
    assert done.conversations == 2 and [error.line for error in done.refused] == [2]
    with pytest.raises(ConversationError, match="chats.jsonl:2"):
        import_conversations(Recorder(), path, user="ann", progress=False)


def test_a_record_of_a_wrong_type_is_placed(tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": [USER], "project": 5}))
    with pytest.raises(ConversationError, match="chats.jsonl.*project is an int"):
        import_conversations(Recorder(), path, user="ann", progress=False)


def test_the_sample_holds_what_it_should():
    records = json.loads(SAMPLE.read_text())
    messages = [message for record in records for message in record["messages"]]
    assert 6 <= len(records) <= 8 and records == sorted(records, key=lambda record: record["created_at"])
    assert any(len(message.get("tool_calls", [])) > 1 for message in messages)
    assert any(isinstance(message["content"], list) for message in messages)
    words = json.dumps(records)
    assert "please correct that" in words.lower() and "always metric" in words


def _node(parent, role, text, at=None, **message):
    content = {"content_type": "text", "parts": [text]} if isinstance(text, str) else text
    return {
        "parent": parent,
        "children": [],
        "message": {"author": {"role": role}, "content": content, "create_time": at, **message},
    }


def _chatgpt(**nodes):
    return {
        "title": "T",
        "id": "c",
        "current_node": list(nodes)[-1],
        "mapping": {"root": {"parent": None, "message": None}, **nodes},
    }


def test_chatgpt_export(tmp_path):
    record = _chatgpt(
        system=_node("root", "system", "You are ChatGPT", metadata={"is_visually_hidden_from_conversation": True}),
        ask=_node(
            "system",
            "user",
            {"content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer"}, "What is it?"]},
            1.7e9,
        ),
        think=_node("ask", "assistant", {"content_type": "thoughts", "thoughts": []}),
        call=_node("think", "assistant", {"content_type": "code", "text": "1 + 1"}, recipient="python.run"),
        other=_node("call", "assistant", "an answer that was made anew"),
        result={**_node("call", "tool", {"content_type": "execution_output", "text": "2"}), "parent": "call"},
        lone=_node("result", "tool", "weather: fair"),
        answer=_node("lone", "assistant", "Two."),
    )
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([record, _chatgpt(only=_node("root", "system", "hidden"))]))
    [conversation] = read_conversations(path, user="me").conversations
    assert (conversation.user, conversation.session, conversation.metadata) == ("me", "c", {"title": "T"})
    roles = [(m["role"], m.get("content")) for m in conversation.messages]
    assert roles == [
        ("user", "[image]\nWhat is it?"), ("assistant", None), ("tool", "2"), ("assistant", None),
        ("tool", "weather: fair"), ("assistant", "Two."),
    ]  # fmt: skip
    call = conversation.messages[1]["tool_calls"][0]
    assert call["function"] == {"name": "python_run", "arguments": '{"input": "1 + 1"}'}
    assert call["id"] == conversation.messages[2]["tool_call_id"]
    assert conversation.messages[0]["created_at"] == "2023-11-14T22:13:20+00:00"


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (_chatgpt(a=_node("gone", "user", "hi")), "mapping.gone: is named as a parent and is not there"),
        (_chatgpt(a=_node("b", "user", "x"), b=_node("a", "user", "y")), "mapping: the parents form a circle"),
        (_chatgpt(a=_node("root", "narrator", "hi")), "mapping.a.message.author.role: 'narrator' is none of"),
        ({"uuid": "u", "chat_messages": [{"sender": "dog"}]}, r"chat_messages\[0\].sender: 'dog' is neither"),
    ],
)
def test_broken_exports_name_the_place(tmp_path, record, problem):
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([record]))
    [error] = read_conversations(path).conversations
    with pytest.raises(ConversationError, match=problem):
        raise error


def test_claude_export(tmp_path):
    message = {"uuid": "m", "sender": "human", "created_at": "2024-05-01T10:00:00.5Z", "text": "old field"}
    block = [{"type": "text", "text": "Read this"}, {"type": "tool_use", "name": "x"}]
    attached = {
        "attachments": [{"file_name": "a.txt", "extracted_content": "inside"}],
        "files": [{"file_name": "b.png"}],
    }
    answer = {"sender": "assistant", "text": "Done.", "content": []}
    chats = [message | {"content": block} | attached, answer, {"sender": "human", "text": ""}]
    path = tmp_path / "conversations.json"
    path.write_text(
        json.dumps([{"uuid": "u-1", "name": "Plans", "chat_messages": chats}, {"uuid": "u-2", "chat_messages": []}])
    )
    [conversation] = read_conversations(path).conversations
    assert (conversation.session, conversation.metadata) == ("u-1", {"title": "Plans"})
    assert [m["content"] for m in conversation.messages] == ["Read this\n\n[a.txt]\ninside\n\n[file: b.png]", "Done."]
    assert conversation.messages[0]["created_at"] == "2024-05-01T10:00:00.500000+00:00"


def test_transcripts_of_claude_code(tmp_path):
    def entry(kind, content, **more):
        message = {"role": kind, "content": content, **({"id": more.pop("id")} if "id" in more else {})}
        return {"type": kind, "sessionId": "s-1", "timestamp": "2026-03-02T02:45:53Z", "message": message, **more}

    def use(number):
        return [{"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"file_path": f"{number}.py"}}]

    def result(number, text):
        return [{"type": "tool_result", "tool_use_id": f"t{number}", "content": text}]

    total, found = read_lines(
        tmp_path,
        {"type": "queue-operation", "sessionId": "s-1", "operation": "enqueue"},
        entry("user", "Look at both"),
        entry("user", "a reminder", isMeta=True),
        entry("user", "a helper's task", isSidechain=True),
        entry("assistant", [{"type": "thinking", "thinking": "hm"}], id="m1"),
        entry("assistant", [{"type": "text", "text": "I look."}], id="m1"),
        entry("assistant", use(1), id="m1"),
        entry("user", result(1, [{"type": "text", "text": "one"}])),
        entry("assistant", use(2), id="m1"),
        entry("user", result(2, "two")),
        entry("assistant", use(3), id="m2"),
        '{"type": "user", "sessionId": "s-',
    )
    assert total == 1 and found[0].session == "s-1"
    roles = [(m["role"], m["content"], [c["id"] for c in m.get("tool_calls", [])]) for m in found[0].messages]
    assert roles == [
        ("user", "Look at both", []),
        ("assistant", "I look.", ["t1", "t2"]),
        ("tool", "one", []),
        ("tool", "two", []),
        ("assistant", None, ["t3"]),
        ("tool", "[no result was recorded]", []),
    ]


def test_a_transcript_that_went_back(tmp_path):
    """Of two things that the person typed at the same place the last one is read; summaries by the program are not."""
    number = 0

    def entry(kind, content, parent=None, **more):
        nonlocal number
        number += 1
        message = {"role": kind, "content": content, "id": f"m{number}"}
        return {
            "type": kind, "sessionId": "s", "uuid": f"u{number}", "parentUuid": f"u{parent}" if parent else None,
            "timestamp": f"2026-03-02T02:45:{number:02}Z", "message": message, **more,
        }  # fmt: skip

    use = [{"type": "tool_use", "id": "t", "name": "Read", "input": {}}]
    _, found = read_lines(
        tmp_path,
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        entry("user", "When do we deploy?"),
        entry("assistant", "Tell me.", 1),
        entry("user", "On Wednesdays.", 2),
        entry("assistant", "Set to Wednesdays.", 3),
        entry("user", "On Fridays.", 2),
        entry("assistant", use, 5),
        entry("user", [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}], 6),
        entry("user", "I like Django.", 7, isCompactSummary=True),
        entry("assistant", "Set to Fridays.", 7),
    )
    said = [m["content"] for m in found[0].messages]
    assert said == ["When do we deploy?", "Tell me.", "On Fridays.", None, "ok", "Set to Fridays."]


@pytest.mark.parametrize(
    ("start", "times", "stamped"),
    [
        (1000.0, [None, None], [1000, 1010]),
        (1000.0, [None, None, 1005.0, None], [1000, 1005, 1005, 1015]),
        (None, [None, 2000.0], [2000, 2000]),
        (None, [None, None], [None, None]),
    ],
)
def test_messages_without_a_time(tmp_path, start, times, stamped):
    """They follow the message before, or the conversation's start, and are never later than the next with a time."""
    nodes, parent = {}, "root"
    for place, time in enumerate(times):
        nodes[f"n{place}"] = _node(parent, "user", f"message {place}", time)
        parent = f"n{place}"
    nodes["last"] = {"parent": parent, "message": {"author": {"role": "system"}, "content": None}}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([_chatgpt(**nodes) | {"create_time": start}]))
    [conversation] = read_conversations(path).conversations
    read = [m.get("created_at") for m in conversation.messages]
    assert [time and datetime.fromisoformat(time).timestamp() for time in read] == stamped
