"""Files of conversations: eight formats are told apart by content and read whole, what is wrong is refused with file, line and
field, and a repeated import asks for the same."""

import json
from datetime import datetime

import pytest
from pg_memoir.errors import UnknownSessionError
from pg_memoir.functions import calls
from pg_memoir_cli.conversations import ConversationError
from pg_memoir_cli.formats import read_conversations
from pg_memoir_cli.importing import import_conversations, runs
from pg_memoir_cli.locomo import openai_name

USER, MODEL = {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}


def read(tmp_path, content, name="chats.json", **options):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), encoding="utf-8")
    file = read_conversations(path, **options)
    return file.total, list(file.conversations)


def read_lines(tmp_path, *records, **options):
    lines = "\n".join(r if isinstance(r, str) else json.dumps(r) for r in records)
    return read(tmp_path, lines, name="chats.jsonl", **options)


def shape(conversation):
    """Role and text of each message; a call's name stands for its text."""
    said = conversation.messages
    return [(m["role"], m.get("content") or [c["function"]["name"] for c in m.get("tool_calls", [])]) for m in said]


def test_openai_jsonl(tmp_path):
    timed = MODEL | {"created_at": 1714600000, "weight": 0}
    dated = {"id": 7, "created_at": "2024-05-01T12:00:00", "messages": [USER, timed]}
    named = {"messages": [{"role": "system", "content": "Be kind."}, USER, MODEL], "user": "ann", "session": "s1"}
    total, found = read_lines(tmp_path, named, "", [USER], dated)
    assert total == 3
    assert [(c.user, c.session) for c in found] == [("ann", "s1"), ("chats", "conversation-2"), ("chats", "7")]
    assert found[0].system_prompt == "Be kind." and found[0].messages == [USER, MODEL]
    times = ("2024-05-01T12:00:00+00:00", "2024-05-01T21:46:40+00:00")
    assert found[2].messages == [said | {"created_at": at} for said, at in zip((USER, MODEL), times)]
    assert str(found[2].where) == "chats.jsonl:4"


def test_openai_documents(tmp_path):
    for document in ([USER, MODEL], {"messages": [USER, MODEL]}, [[USER, MODEL]], [{"messages": [USER, MODEL]}]):
        for text in (json.dumps(document), json.dumps(document, indent=1), "\ufeff" + json.dumps(document)):
            total, [conversation] = read(tmp_path, text, user="ann")
            assert (total, conversation.user, conversation.messages) == (1, "ann", [USER, MODEL]), text


def test_old_function_calls_become_tool_calls(tmp_path):
    call = {"name": "f", "arguments": "{}"}
    messages = [USER, {"role": "assistant", "function_call": call}, {"role": "function", "name": "f", "content": "1"}]
    _, [conversation] = read(tmp_path, {"messages": messages})
    assert conversation.messages[1]["tool_calls"] == [{"id": "call_1", "type": "function", "function": call}]
    assert conversation.messages[2] == {"role": "tool", "tool_call_id": "call_1", "content": "1"}


def sharegpt(*turns):
    return [{"id": "x1", "conversations": [{"from": who, "value": value} for who, value in turns]}]


def test_sharegpt(tmp_path):
    turns = [("system", "Be kind."), ("human", "Hello"), ("gpt", "Hi")]
    _, [conversation] = read(tmp_path, sharegpt(*turns), user_prefix="share:")
    assert (conversation.user, conversation.session) == ("share:chats", "x1")
    assert conversation.system_prompt == "Be kind." and conversation.messages == [USER, MODEL]


def test_sharegpt_tool_results_get_the_calls_before_them(tmp_path):
    ask = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    turns = [
        ("human", "both"),
        ("gpt", "Looking. " + ask + ask),
        ("tool", "<tool_response>\n1\n</tool_response><tool_response>2</tool_response>"),
        ("function_call", '{"name": "g", "arguments": {}}'),
        ("observation", "3"),
        *(("gpt", "Done."), ("tool", "out of nowhere"), ("gpt", "I would " + ask)),
    ]
    _, [conversation] = read(tmp_path, sharegpt(*turns))
    assert [text for role, text in shape(conversation) if role == "tool"] == ["1", "2", "3", "out of nowhere"]
    messages = conversation.messages
    assert [c["function"]["arguments"] for c in messages[1]["tool_calls"]] == ['{"a": 1}'] * 2
    assert messages[-1] == {"role": "assistant", "content": "I would " + ask}  # never answered: stays text
    waiting = set()
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting
        waiting |= {call["id"] for call in message.get("tool_calls", [])}
    assert not waiting


def locomo(**change):
    kite = {"speaker": "Zoë O'Neil", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a red kite", "img_url": ["u"]}
    conversation = {
        "speaker_a": "Zoë O'Neil",
        "speaker_b": "Bo",
        "session_2_date_time": "12:05 am on 1 March, 2024",
        "session_2": [{"speaker": "Bo", "dia_id": "D2:1", "text": "Second"}],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [kite, {"speaker": "Bo", "dia_id": "D1:2", "text": "Nice", "query": "kite"}],
        "session_3_date_time": "12:05 am on 2 March, 2024",
    }
    return [{"sample_id": "conv-1", "qa": [], "conversation": conversation | change}]


def test_locomo(tmp_path):
    total, [first, second] = read(tmp_path, locomo(), user_prefix="bench:")
    assert total == 2 and first.user == "bench:conv-1"
    assert (first.session, second.session) == ("session_1", "session_2")
    fields = ("role", "name", "content", "created_at")
    assert [tuple(m[field] for field in fields) for m in first.messages + second.messages] == [
        ("user", "Zoe_O_Neil", "Look!\n[image: a red kite]", "2023-05-08T13:56:00+00:00"),
        ("assistant", "Bo", "Nice\n[image: kite]", "2023-05-08T13:56:10+00:00"),
        ("assistant", "Bo", "Second", "2024-03-01T00:05:00+00:00"),
    ]
    assert first.messages[0]["metadata"] == {"dia_id": "D1:1"}


def test_names_are_what_openai_allows():
    given = {"Ann": "Ann", "Zoë O'Neil": "Zoe_O_Neil", "日本": "speaker", "a" * 99: "a" * 64, "_x_": "x"}
    assert {name: openai_name(name) for name in given} == given


def node(parent, role, text, at=None, **message):
    content = {"content_type": "text", "parts": [text]} if isinstance(text, str) else text
    said = {"author": {"role": role}, "content": content, "create_time": at, **message}
    return {"parent": parent, "children": [], "message": said}


def chatgpt(**nodes):
    root = {"parent": None, "message": None}
    return {"title": "T", "id": "c", "current_node": list(nodes)[-1], "mapping": {"root": root, **nodes}}


def test_chatgpt_export(tmp_path):
    image = {"content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer"}, "What is it?"]}
    hidden = {"is_visually_hidden_from_conversation": True}
    record = chatgpt(
        system=node("root", "system", "You are ChatGPT", metadata=hidden),
        ask=node("system", "user", image, 1.7e9),
        think=node("ask", "assistant", {"content_type": "thoughts", "thoughts": []}),
        call=node("think", "assistant", {"content_type": "code", "text": "1 + 1"}, recipient="python.run"),
        other=node("call", "assistant", "an answer that was made anew"),
        result=node("call", "tool", {"content_type": "execution_output", "text": "2"}),
        lone=node("result", "tool", "weather: fair"),
        answer=node("lone", "assistant", "Two."),
    )
    _, [conversation] = read(tmp_path, [record, chatgpt(only=node("root", "system", "hidden"))], user="me")
    assert (conversation.user, conversation.session, conversation.metadata) == ("me", "c", {"title": "T"})
    told = ["[image]\nWhat is it?", ["python_run"], "2", ["tool"], "weather: fair", "Two."]
    assert [text for _, text in shape(conversation)] == told
    call = conversation.messages[1]["tool_calls"][0]
    assert call["function"]["arguments"] == '{"input": "1 + 1"}'
    assert call["id"] == conversation.messages[2]["tool_call_id"]
    assert conversation.messages[0]["created_at"] == "2023-11-14T22:13:20+00:00"


def test_messages_without_a_time(tmp_path):
    """They follow the message before, or the conversation's start, and are never later than the next with a time."""
    for start, times, stamped in (
        (1000.0, [None, None], [1000, 1010]),
        (1000.0, [None, None, 1005.0, None], [1000, 1005, 1005, 1015]),
        (None, [None, 2000.0], [2000, 2000]),
        (None, [None, None], [None, None]),
    ):
        parents = ["root", *(f"n{place}" for place in range(len(times)))]
        nodes = {f"n{n}": node(parents[n], "user", f"message {n}", time) for n, time in enumerate(times)}
        nodes["last"] = {"parent": parents[-1], "message": {"author": {"role": "system"}, "content": None}}
        _, [conversation] = read(tmp_path, [chatgpt(**nodes) | {"create_time": start}])
        said_at = [m.get("created_at") for m in conversation.messages]
        assert [time and datetime.fromisoformat(time).timestamp() for time in said_at] == stamped


def test_claude_export(tmp_path):
    message = {
        "uuid": "m", "sender": "human", "created_at": "2024-05-01T10:00:00.5Z", "text": "old field",
        "content": [{"type": "text", "text": "Read this"}, {"type": "tool_use", "name": "x"}],
        "attachments": [{"file_name": "a.txt", "extracted_content": "inside"}], "files": [{"file_name": "b.png"}],
    }  # fmt: skip
    chats = [message, {"sender": "assistant", "text": "Done.", "content": []}, {"sender": "human", "text": ""}]
    empty = {"uuid": "u-2", "chat_messages": []}
    _, [conversation] = read(tmp_path, [{"uuid": "u-1", "name": "Plans", "chat_messages": chats}, empty])
    assert (conversation.session, conversation.metadata) == ("u-1", {"title": "Plans"})
    assert [m["content"] for m in conversation.messages] == ["Read this\n\n[a.txt]\ninside\n\n[file: b.png]", "Done."]
    assert conversation.messages[0]["created_at"] == "2024-05-01T10:00:00.500000+00:00"


def entry(kind, content, id=None, **more):
    """A line of a transcript of Claude Code."""
    message = {"role": kind, "content": content, **({"id": id} if id else {})}
    return {"type": kind, "sessionId": "s-1", "timestamp": "2026-03-02T02:45:53Z", "message": message, **more}


def use(number):
    return [{"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"file_path": f"{number}.py"}}]


def result(number, text):
    return [{"type": "tool_result", "tool_use_id": f"t{number}", "content": text}]


def test_transcripts_of_claude_code(tmp_path):
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
    said = [(m["content"], [c["id"] for c in m.get("tool_calls", [])]) for m in found[0].messages]
    assert said[:4] == [("Look at both", []), ("I look.", ["t1", "t2"]), ("one", []), ("two", [])]
    assert said[4:] == [(None, ["t3"]), ("[no result was recorded]", [])]


def test_a_transcript_that_went_back(tmp_path):
    """Of two things that the person typed at the same place the last one is read; summaries by the program are not."""

    def step(number, parent, kind, content, **more):
        return entry(kind, content, f"m{number}", uuid=f"u{number}", parentUuid=parent and f"u{parent}", **more)

    _, found = read_lines(
        tmp_path,
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        step(1, None, "user", "When do we deploy?"),
        step(2, 1, "assistant", "Tell me."),
        step(3, 2, "user", "On Wednesdays."),
        step(4, 3, "assistant", "Set to Wednesdays."),
        step(5, 2, "user", "On Fridays."),
        step(6, 5, "assistant", use(1)),
        step(7, 6, "user", result(1, "ok")),
        step(8, 7, "user", "I like Django.", isCompactSummary=True),
        step(9, 7, "assistant", "Set to Fridays."),
    )
    said = [m["content"] for m in found[0].messages]
    assert said == ["When do we deploy?", "Tell me.", "On Fridays.", None, "ok", "Set to Fridays."]


# Refusals -------------------------------------------------------------------------------------------------------------


def test_errors_name_file_line_and_field(tmp_path):
    for record, message in (
        ("{", "not JSON"),
        ({"x": 1}, "no known format: needs 'messages'"),
        ({"messages": []}, "messages: a list"),
        ({"messages": [USER, "Hi"]}, r"messages\[1\]: is a str"),
        ({"messages": [{"role": "robot"}]}, r"messages\[0\].role: 'robot' is none of"),
        ({"messages": [USER], "created_at": "May"}, "created_at: 'May' is neither"),
        ({"messages": [USER | {"created_at": True}]}, r"messages\[0\].created_at: True"),
        ({"messages": [USER], "metadata": 1}, "metadata: is a int"),
        (*sharegpt(("alien", "Hi")), r"conversations\[0\].from: 'alien' is none of"),
        (*sharegpt(("human", 1)), r"conversations\[0\].value: 1 is not"),
        ({"conversations": {}}, "conversations: a list"),
        (*locomo(session_1_date_time="noon"), "conversation.session_1_date_time: 'noon'"),
        (*locomo(session_1_date_time="1:00 pm on 31 June, 2023"), "conversation.session_1_date_time"),
        (*locomo(session_1=[{"speaker": "Bo"}]), r"conversation.session_1\[0\].text: None"),
        (*locomo(session_1="x"), "conversation.session_1: is a str"),
        (chatgpt(a=node("gone", "user", "hi")), "mapping.gone: is named as a parent and is not there"),
        (chatgpt(a=node("b", "user", "x"), b=node("a", "user", "y")), "mapping: the parents form a circle"),
        (chatgpt(a=node("root", "narrator", "hi")), "mapping.a.message.author.role: 'narrator' is none of"),
        ({"uuid": "u", "chat_messages": [{"sender": "dog"}]}, r"chat_messages\[0\].sender: 'dog' is neither"),
    ):
        says = f"chats.jsonl:2: {message}" if message[0] != "c" else message
        with pytest.raises(ConversationError, match=says):
            _, found = read_lines(tmp_path, [USER], record)
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


# Imports --------------------------------------------------------------------------------------------------------------


def test_runs_keep_tool_calls_with_their_results():
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    answer = {"role": "tool", "tool_call_id": "c", "content": "1"}
    long = [USER, MODEL] * 40 + [USER, call, answer, MODEL] * 40 + [MODEL] * 600
    cut = list(runs(long))
    assert [m for run in cut for m in run] == long and len(cut) > 3
    assert all(run[-1] is not call and len(run) <= 256 for run in cut) and cut[1][0] is USER


class Recorder:
    """Stands for a client: notes its calls instead of running them."""

    def __init__(self):
        self.asked = []

    def session_info(self, user, session):
        raise UnknownSessionError(f'unknown session "{session}"')

    def run(self, call):
        self.asked.append((call.function, call.params.get("key"), str(call.params.get("messages"))))

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.run(getattr(calls, name)(*args, **kwargs))


def test_an_import_makes_the_same_calls_every_time(tmp_path):
    """A re-run asks with the same keys and bodies, which is what makes it harmless."""
    path = tmp_path / "chats.jsonl"
    long = {"messages": [{"role": "system", "content": "P"}, *[USER, MODEL] * 50]}
    path.write_text(json.dumps(long) + "\n" + json.dumps([USER]))
    one, two = Recorder(), Recorder()
    done = import_conversations(one, path, user="ann", progress=False)
    assert done == import_conversations(two, path, user="ann", progress=False) and one.asked == two.asked
    assert [c[0] for c in one.asked] == ["open_session", "persist_turn", "persist_turn", "persist_turn"]
    assert len({c[1] for c in one.asked[1:]}) == 3
    assert (done.conversations, done.messages, done.users) == (2, 101, ["ann"])
    path.write_text(json.dumps({"messages": [USER], "project": 5}))
    with pytest.raises(ConversationError, match="chats.jsonl.*project is an int"):
        import_conversations(one, path, user="ann", progress=False)
