"""Stores a conversation of many sessions, compiles a context for a question about an old one, and explains it.

    demo.py                     the shipped sample
    demo.py locomo.json         a LoCoMo file: asks its first conversation's first questions of categories 1 and 4
    demo.py chats.jsonl         OpenAI-style JSON or JSONL, ShareGPT: asks what the file's first user asked first
    demo.py chats.jsonl --ask "What did I say about ...?"

Safe to run again: what is stored already is recognised. make demo gives file and question as PG_MEMOIR_DEMO_DATA and
_ASK.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psycopg
from pg_memoir import Considered, Memoir, MemoirError
from pg_memoir_cli import ConversationError, import_conversations
from pg_memoir_cli.embedder import DEFAULT_MODEL, EmbedderUnavailable, load_embedder
from pg_memoir_cli.formats import Where, read_conversations

SAMPLE = Path(__file__).with_name("sample.json")
SAMPLE_QUESTIONS = [
    "The celadon mugs are crazed again. Which program and which cooling fixed that the last time?",
    "When was the Lindenhof order due in the end, how many sets, and how wide did the handles have to be?",
]
# What an application would remember of the sample as it goes: a preference, and an order that changes later.
SAMPLE_MEMORIES: list[dict[str, Any]] = [
    dict(content="Answers: three sentences at most, no exclamation marks, metric units only.", type="preference",
         session="how-to-answer", source_turns=[2], created_at="2025-02-24T20:16:00+01:00"),
    dict(content="The Lindenhof order, 48 sets of espresso cups, is due on 28 March.", slot="Lindenhof order", slot_value="48 on 28 March",
         session="lindenhof-order", source_turns=[0], created_at="2025-02-12T09:05:00+01:00"),
    dict(content="The Lindenhof order, 60 sets of espresso cups, is due on 11 April.", slot="Lindenhof order", slot_value="60 on 11 April",
         session="lindenhof-changes", source_turns=[0], provenance="correction", created_at="2025-03-17T08:50:00+01:00"),
]  # fmt: skip
WIDTH = max(72, min(110, shutil.get_terminal_size((100, 24)).columns))
RECALL_TOKENS = 500
SHOWN_ITEMS = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=os.environ.get("PG_MEMOIR_DEMO_DATA") or SAMPLE,
        help="conversations to store (default: the sample)",
    )
    parser.add_argument("--ask", action="append", help="question to compile for, of the file's first user")
    parser.add_argument(
        "--dsn", default=os.environ.get("PG_MEMOIR_DSN"), help="connection string (default: $PG_MEMOIR_DSN)"
    )
    parser.add_argument("--recall", type=int, default=RECALL_TOKENS, help="tokens of recall (%(default)s)")
    options = parser.parse_args()
    asked = options.ask or [question for question in [os.environ.get("PG_MEMOIR_DEMO_ASK")] if question]
    if not options.dsn:
        parser.error("no database: set PG_MEMOIR_DSN or give --dsn ($(make -s dsn))")
    try:
        with Memoir(options.dsn, max_size=1) as memoir:
            demo(memoir, options.file, asked, options.recall)
    except BrokenPipeError:  # piped into head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ConversationError, MemoirError, EmbedderUnavailable, psycopg.Error, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def demo(memoir: Memoir, file: Path, questions: list[str], recall_tokens: int) -> None:
    asked = chosen_questions(file, questions)
    started = time.monotonic()
    with Progress("storing", "conversations") as progress:
        done = import_conversations(memoir, file, progress=progress)
    if file == SAMPLE:
        for number, memory in enumerate(SAMPLE_MEMORIES):
            memoir.remember(done.users[0], **memory, key=f"demo:{number}")
    said(f"stored {done.conversations} conversations, {done.messages} messages of {len(done.users)} user(s)", started)
    embed_backlog(memoir)
    user = done.users[0]
    for question, answer in asked:
        show(memoir, user, question, answer, recall_tokens)


def embed_backlog(memoir: Memoir) -> None:
    """The database's own embedder may be on it too; each text is claimed by one of us."""
    started = time.monotonic()
    if not any(model["users_waiting"] for model in memoir.embedding_progress()):
        said("nothing waits for a vector", started)
        return
    try:
        embed = load_embedder()
    except EmbedderUnavailable as error:
        said(f"no embedder here, so words alone must do: {error}", started)
        return
    embedded = 0
    with Progress("embedding", "texts") as progress:
        while count := memoir.embed_backlog(embed, model=DEFAULT_MODEL, max_items=64):
            embedded += count
            progress(embedded, None)
    said(f"embedded {embedded} texts", started)


class Progress:
    """How far something is: on a terminal a line that moves, in a log one every ten seconds. What is done at once
    says nothing."""

    def __init__(self, doing: str, what: str) -> None:
        self.doing, self.what = doing, what
        self.terminal = sys.stderr.isatty()
        self.started = self.shown = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self.shown < (0.2 if self.terminal else 10):
            return
        self.shown = now
        line = f"{self.doing}: {done}{f' of {total}' if total else ''} {self.what}, {now - self.started:.0f} s"
        print(
            f"\r\033[K{line}" if self.terminal else line, end="" if self.terminal else "\n", file=sys.stderr, flush=True
        )

    def __exit__(self, *_: object) -> None:
        if self.terminal and self.shown > self.started:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def chosen_questions(file: Path, given: list[str] | None) -> list[tuple[str, str | None]]:
    if given:
        return [(question, None) for question in given]
    if file == SAMPLE:
        return [(question, None) for question in SAMPLE_QUESTIONS]
    return locomo_questions(file) or [(first_question(file), None)]


def locomo_questions(file: Path) -> list[tuple[str, str | None]]:
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError:  # JSON lines
        return []
    first = document[0] if isinstance(document, list) and document else document
    asked = first.get("qa", []) if isinstance(first, dict) else []
    chosen = [qa for qa in asked if qa.get("category") in (1, 4)][:3]
    return [(qa["question"], str(qa["answer"]) if "answer" in qa else None) for qa in chosen]


def first_question(file: Path) -> str:
    """What the file's first user asked first, else said first: files of chats bring no questions about themselves."""
    said = []
    for conversation in read_conversations(file).conversations:
        if isinstance(conversation, ConversationError):
            raise conversation
        contents = [message.get("content") for message in conversation.messages if message["role"] == "user"]
        said += [content for content in contents if isinstance(content, str) and content.strip()]
        for text in said:
            if text.rstrip().endswith("?"):
                return text
        break
    if not said:
        raise ConversationError(
            Where(file.name), None, "nobody says anything in its first conversation; give --ask QUESTION"
        )
    return said[0]


def show(memoir: Memoir, user: str, question: str, answer: str | None, recall_tokens: int) -> None:
    """Compiles for a question in a session of its own, which is not stored, and prints list and explanation."""
    session = memoir.session(user, "demo")
    items = session.explain(question, memory_budget=recall_tokens)
    if not any(item.vector_rank for item in items) and memoir.embed is None:
        try:  # the database could not embed the question; we can
            memoir.embed = load_embedder()
            items = session.explain(question, memory_budget=recall_tokens)
        except EmbedderUnavailable:
            pass
    started = time.monotonic()
    compiled = session.context(question, memory_budget=recall_tokens)
    elapsed = (time.monotonic() - started) * 1000

    heading(f"{user} asks: {question}")
    if answer:
        print(f"(the answer should be: {answer})")
    print(
        f"{compiled['tokens']} tokens of at most {compiled['budget']}, recall {compiled['recall_tokens']} of {recall_tokens}, "
        f"compiled in {elapsed:.0f} ms; counted with {compiled['tokenizer']}"
    )
    for warning in compiled.get("warnings") or []:
        print(f"warning: {warning if isinstance(warning, str) else json.dumps(warning, ensure_ascii=False)}")
    heading("The list to send")
    for message in compiled["messages"]:
        print_message(message)
    heading("Why these")
    print_items(items)


def print_message(message: dict[str, Any]) -> None:
    name = f" ({message['name']})" if message.get("name") else ""
    print(f"{message['role']}{name}:")
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    for part in parts:
        text = part.get("text") or "" if part["type"] == "text" else f"[{part['type']}]"
        for line in text.splitlines():
            print(
                textwrap.fill(line, WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
                if line.strip()
                else ""
            )
    for call in message.get("tool_calls", []):
        print(textwrap.shorten(f"    → {call['function']['name']}({call['function']['arguments']})", WIDTH))


def print_items(items: list[Considered]) -> None:
    def order(item: Considered) -> tuple[bool, int, float]:
        return (not item.included, item.position or 0, -(item.score or 0))

    rows = [
        (
            str(item.position) if item.included and item.position is not None else "-",
            where(item),
            "+".join(item.arms or []),
            "" if item.score is None else f"{item.score:.3f}",
            " ".join(part for part in (rank("w", item.words_rank), rank("v", item.vector_rank)) if part),
            "" if item.tokens is None else str(item.tokens),
            (item.fidelity or "") if item.included else (item.reason or ""),
            " ".join((item.content or "").split()),
        )
        for item in sorted(items, key=order)
    ]
    shown = [("#", "what", "arm", "score", "rank", "tokens", "shown as", "text"), *rows[:SHOWN_ITEMS]]
    widths = [max(len(row[column]) for row in shown) for column in range(7)]
    for row in shown:
        cells = [
            cell.rjust(width) if column in (0, 3, 5) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ]
        line = "  ".join(cells)
        left = WIDTH - len(line) - 2
        text = row[7] if len(row[7]) <= left else row[7][: max(left - 1, 0)] + "…"
        print(f"{line}  {text}" if left > 8 else line)
    if len(rows) > SHOWN_ITEMS:
        print(f"… and {len(rows) - SHOWN_ITEMS} more considered")


def where(item: Considered) -> str:
    place = "" if item.turn_index is None else f":{item.turn_index}"
    return f"{item.kind} {item.session or ''}{place}".strip()


def rank(name: str, value: int | None) -> str:
    return f"{name}{value}" if value else ""


def heading(text: str) -> None:
    print(f"\n{textwrap.fill(text, WIDTH)}\n{'─' * min(WIDTH, max(len(line) for line in textwrap.wrap(text, WIDTH)))}")


def said(text: str, started: float) -> None:
    print(f"{text} ({time.monotonic() - started:.1f} s)")


if __name__ == "__main__":
    sys.exit(main())
