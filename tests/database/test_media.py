"""Audio, files and what a model thought: kept as sent, counted at a maximum, sent in both formats."""

import base64
import struct
from typing import Any

from calls import Db, call, history, store, table
from psycopg.types.json import Jsonb
from refusals import check_refusal
from servers import unique


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def wav(seconds: int, rate: int = 8000) -> bytes:
    body = bytes(seconds * rate)
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(body), b"WAVE", b"fmt ", 16, 1, 1, rate, rate, 1, 8,
                       b"data", len(body))  # fmt: skip
    return head + body


def mp4(seconds: int, timescale: int = 600) -> str:
    header = struct.pack(">4sIIIII", b"mvhd", 0, 0, 0, timescale, seconds * timescale)
    return "data:video/mp4;base64," + b64(struct.pack(">I4s", 32, b"ftyp") + bytes(24) + header + bytes(400))


def video(url: str) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": url}}


PDF = b"%PDF-1.4\n1 0 obj <</Type /Pages /Count 2>>\n2 0 obj <</Type /Page /X 1>>\n3 0 obj <</Type/Page\n>>\n%%EOF"
AUDIO = {"type": "input_audio", "input_audio": {"data": b64(wav(3)), "format": "wav"}}
FILE = {"type": "file", "file": {"filename": "lease.pdf", "file_data": "data:application/pdf;base64," + b64(PDF)}}
RULES = {"type": "text", "media_type": "text/plain", "data": "Quiet after ten."}
CLIP = video(mp4(2))
DOCUMENT = {"type": "document", "title": "House rules", "source": RULES}
SCAN = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": b64(PDF)}}
THOUGHT = {"type": "thinking", "thinking": "They ask about the walrus clause.", "signature": "c2lnbmVk"}
UNSIGNED = {"type": "thinking", "thinking": "A hunch about the otter clause."}
HIDDEN = {"type": "redacted_thinking", "data": b64(bytes(300))}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


EXCHANGE = [
    {"role": "user", "content": [text_part("Please listen, and read the lease."), AUDIO, FILE, DOCUMENT, SCAN, CLIP]},
    {"role": "assistant", "content": [THOUGHT, HIDDEN, UNSIGNED, text_part("The lease ends in May.")]},
]


def contents(messages: list[dict[str, Any]]) -> list[Any]:
    return [message["content"] for message in messages]


def test_parts_are_kept_as_sent(db: Db, user: str) -> None:
    store(db, user, "s", EXCHANGE)
    assert contents(history(db, user, "s")) == contents(EXCHANGE)
    store(db, user, "again", history(db, user, "s"))
    assert contents(history(db, user, "again")) == contents(EXCHANGE)
    # And in a file and back, for another user.
    lines = [Jsonb(line) for (line,) in table(db, "export_user", user)]
    call(db, "import_user", f"{user}-copy", lines)
    assert contents(history(db, f"{user}-copy", "s")) == contents(EXCHANGE)


def test_openai_gets_its_shape(db: Db, user: str) -> None:
    store(db, user, "s", EXCHANGE)
    asked, answered, _ = call(db, "compile_context", user, "s", "And then?")
    assert asked["content"][:3] == EXCHANGE[0]["content"][:3]
    assert asked["content"][3] == text_part("House rules\nQuiet after ten.")
    assert asked["content"][4]["file"]["file_data"] == FILE["file"]["file_data"] and asked["content"][5] == CLIP
    assert answered["content"] == [text_part("The lease ends in May.")], "thoughts have no place there"
    store(db, user, "t", [{"role": "user", "content": "Hm?"}, {"role": "assistant", "content": [UNSIGNED]}])
    assert contents(call(db, "compile_context", user, "t", "So?"))[:2] == ["Hm?", ""]


def test_anthropic_gets_its_shape(db: Db, user: str) -> None:
    store(db, user, "s", EXCHANGE)
    asked, answered, _ = call(db, "compile_context", user, "s", "And then?", p_format="anthropic")["messages"]
    assert asked["content"][1] == text_part("[audio: wav]")
    assert asked["content"][2] == SCAN | {"title": "lease.pdf"} and asked["content"][3:] == [
        DOCUMENT,
        SCAN,
        text_part("[video: not shown]"),
    ]
    assert answered["content"][:2] == [THOUGHT, HIDDEN], "signed thoughts go back whole, before the text"
    assert [block["type"] for block in answered["content"][2:]] == ["text"]
    # A mark of the cache can't stand on a thought.
    store(db, user, "t", [{"role": "user", "content": "Hm?"}, {"role": "assistant", "content": [THOUGHT]}])
    _, thought, _ = call(db, "compile_context", user, "t", "So?", p_format="anthropic")["messages"]
    assert thought["content"] == [THOUGHT]


def test_parts_count_at_the_stated_maximum(db: Db, user: str) -> None:
    bare = store(db, user, "bare", [{"role": "user", "content": [text_part("Look.")]}])["tokens"]
    for part, tokens in (
        (AUDIO, 97),  # three seconds, and the header's 44 bytes
        ({"type": "input_audio", "input_audio": {"data": b64(bytes(40_000)), "format": "mp3"}}, 320),
        (video(mp4(20)), 6000),
        (video("data:video/webm;base64," + b64(bytes(160_000))), 3000),
        (video("https://example.org/harbour.mp4"), 20_000),
        (SCAN, 2 * (3000 + 1445)),
        ({"type": "file", "file": {"file_id": "file-1"}}, 20_000),
        ({"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}, 20_000),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64," + b64(b"%PDF packed")}}, 20_000),
        ({"type": "file", "file": {"file_data": "data:text/plain;base64," + b64(b"x" * 300)}}, 300),
    ):
        message = {"role": "user", "content": [text_part("Look."), part]}
        counted = store(db, user, unique("s"), [message])["tokens"]
        name = part.get("file", {}).get("filename") or part.get("source", {}).get("url") or ""
        assert counted - bare == tokens + (call(db, "count_tokens", name) if name else 0), part
        # The budget knows of it, also when the query brings it along.
        assert call(db, "context", user, "t", "Look.", p_query_parts=[part])["tokens"] >= tokens


def test_thoughts_count_and_are_not_found(db: Db, user: str) -> None:
    plain = store(db, user, "plain", [{"role": "assistant", "content": [text_part("Yes.")]}])["tokens"]
    done = store(db, user, "s", [{"role": "assistant", "content": [THOUGHT, text_part("Yes.")]}])
    assert done["tokens"] == plain + call(db, "count_tokens", THOUGHT["thinking"])
    store(db, user, "s", EXCHANGE)
    for hidden in ("walrus clause", "otter clause", "quiet after ten"):
        assert table(db, "recall", user, hidden, columns="content") == [], hidden
    secret = {"type": "thinking", "thinking": "Their key is sk-proj-" + "a1B2c3D4" * 6}
    assert store(db, user, "s", [{"role": "assistant", "content": [secret, text_part("Done.")]}])["warnings"]


def test_other_parts_are_refused_by_name(db: Db, user: str) -> None:
    spoken = {"type": "input_audio", "input_audio": {"data": 5, "format": "wav"}}
    for role, part, says in (
        ("assistant", AUDIO, 'type "input_audio" can\'t be stored'),
        ("user", THOUGHT, 'type "thinking" can\'t be stored'),
        ("user", video("data:image/png;base64,AAAA"), "video_url.url must be an http(s) or data:video URL"),
        ("assistant", video("https://example.org/a.mp4"), 'type "video_url" can\'t be stored'),
        ("user", spoken, "input_audio.data must be a string"),
        ("user", {"type": "file", "file": {}}, "file.file_data must be a string"),
        ("user", {"type": "document", "source": {"type": "carrier pigeon"}}, "source.type must be"),
        ("user", {"type": "document", "source": {"type": "text"}}, "source.data must be a string"),
        ("assistant", {"type": "thinking", "thinking": None}, "thinking must be a string"),
    ):
        sent = [{"role": role, "content": [text_part("Look."), part]}]
        check_refusal(db, "persist_turn", "PM010", says, user=user, session="s", messages=sent)
