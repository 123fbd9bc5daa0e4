"""Stores a conversation of many sessions, compiles a context for a question about an old one, and explains it.

    demo.py                     the shipped sample
    demo.py locomo.json         a LoCoMo file: asks its first conversation's first questions of categories 1 and 4
    demo.py chats.jsonl         OpenAI-style JSON or JSONL, ShareGPT: asks what the file's first user asked first
    demo.py chats.jsonl --ask "What did I say about ...?"

Safe to run again: conversations that are stored already are recognised. make demo gives file and question as
PG_MEMOIR_DEMO_DATA and _ASK.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import psycopg
from pg_memoir import Considered, Memoir, MemoirError
from pg_memoir_cli import ConversationError, import_conversations
from pg_memoir_cli.conversations import Where
from pg_memoir_cli.embedder import DEFAULT_MODEL, EmbedderUnavailable, load_embedder
from pg_memoir_cli.formats import read_conversations
from pg_memoir_cli.show import printable
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

SAMPLE = Path(__file__).with_name("sample.json")
SAMPLE_QUESTIONS = [
    "The celadon mugs are crazed again. Which program and which cooling fixed that the last time?",
    "When was the Lindenhof order due in the end, how many sets, and how wide did the handles have to be?",
]
# Memories that an application would store of the sample as it goes: a preference, and an order that changes later.
SAMPLE_MEMORIES: list[dict[str, Any]] = [
    dict(content="Answers: three sentences at most, no exclamation marks, metric units only.", type="preference",
         session="how-to-answer", source_turns=[2], created_at="2025-02-24T20:16:00+01:00"),
    dict(content="The Lindenhof order, 48 sets of espresso cups, is due on 28 March.", slot="Lindenhof order", slot_value="48 on 28 March",
         session="lindenhof-order", source_turns=[0], created_at="2025-02-12T09:05:00+01:00"),
    dict(content="The Lindenhof order, 60 sets of espresso cups, is due on 11 April.", slot="Lindenhof order", slot_value="60 on 11 April",
         session="lindenhof-changes", source_turns=[0], provenance="correction", created_at="2025-03-17T08:50:00+01:00"),
]  # fmt: skip
RECALL_TOKENS, SHOWN_ITEMS = 500, 20
Question = tuple[str, str | None]
"""With its answer, where the file has one."""
console = Console(width=max(80, min(110, Console().width)), markup=False, emoji=False, highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=os.environ.get("PG_MEMOIR_DEMO_DATA") or SAMPLE)
    parser.add_argument(
        "--ask", default=os.environ.get("PG_MEMOIR_DEMO_ASK"), help="a question of the file's first user"
    )
    parser.add_argument(
        "--dsn", default=os.environ.get("PG_MEMOIR_DSN"), help="connection string, by default $PG_MEMOIR_DSN"
    )
    options = parser.parse_args()
    if not options.dsn:
        parser.error("no database: set PG_MEMOIR_DSN or give --dsn ($(make -s dsn))")
    try:
        with Memoir(options.dsn, max_size=1) as memoir:
            demo(memoir, options.file, options.ask)
    except BrokenPipeError:  # piped into head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ConversationError, MemoirError, EmbedderUnavailable, psycopg.Error, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def demo(memoir: Memoir, file: Path, question: str | None) -> None:
    questions = [(question, None)] if question else find_questions(file)
    done = import_conversations(memoir, file)
    [user, *_] = done.users
    for number, memory in enumerate(SAMPLE_MEMORIES if file == SAMPLE else ()):
        memoir.remember(user, **memory, key=f"demo:{number}")
    print(f"stored {done.conversations} conversations, {done.messages} messages of {len(done.users)} user(s)")
    embed_backlog(memoir)
    for asked, answer in questions:
        show(memoir, user, asked, answer)


def embed_backlog(memoir: Memoir) -> None:
    """Embeds waiting texts. The database's own embedder may do so too, and each text is claimed by one of us."""
    embedded = 0
    try:
        if any(model["users_waiting"] for model in memoir.embedding_progress()):
            embed = load_embedder()
            with console.status("embedding"):
                while count := memoir.embed_backlog(embed, model=DEFAULT_MODEL, max_items=64):
                    embedded += count
        print(f"embedded {embedded} texts")
    except EmbedderUnavailable as error:
        print(f"no embedder here, so words alone must do: {error}")


def find_questions(file: Path) -> list[Question]:
    """Returns the questions that a file brings with it, else one that its first user asked."""
    if file == SAMPLE:
        return [(question, None) for question in SAMPLE_QUESTIONS]
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError:  # JSON lines
        document = None
    first = document[0] if isinstance(document, list) and document else document
    asked = first.get("qa", []) if isinstance(first, dict) else []
    chosen = [qa for qa in asked if qa.get("category") in (1, 4)][:3]
    return [(qa["question"], str(qa["answer"]) if "answer" in qa else None) for qa in chosen] or [first_question(file)]


def first_question(file: Path) -> Question:
    """Returns the first question of the file's first user, else their first words: chats bring no questions."""
    conversation = next(iter(read_conversations(file).conversations), None)
    if isinstance(conversation, ConversationError):
        raise conversation
    messages = conversation.messages if conversation else []
    contents = [message.get("content") for message in messages if message["role"] == "user"]
    said = [content for content in contents if isinstance(content, str) and content.strip()]
    if not said:
        raise ConversationError(
            Where(file.name), None, "its first conversation has no words of a user. Give --ask QUESTION"
        )
    return next((text for text in said if text.rstrip().endswith("?")), said[0]), None


def show(memoir: Memoir, user: str, question: str, answer: str | None) -> None:
    """Compiles for a question in a session of its own, which is not stored, and prints list and explanation."""
    session = memoir.session(user, "demo")
    items = session.explain(question, memory_budget=RECALL_TOKENS)
    if not any(item.vector_rank for item in items) and memoir.embed is None:
        try:  # the database could not embed the question, but we can
            memoir.embed = load_embedder()
            items = session.explain(question, memory_budget=RECALL_TOKENS)
        except EmbedderUnavailable:
            pass
    compiled = session.context(question, memory_budget=RECALL_TOKENS)
    heading(f"{user} asks: {question}")
    if answer:
        print(f"(the answer should be: {answer})")
    print(
        f"{compiled['tokens']} tokens of at most {compiled['budget']}, recall {compiled['recall_tokens']} of {RECALL_TOKENS}; "
        f"counted with {compiled['tokenizer']}"
    )
    for warning in compiled.get("warnings") or []:
        print(f"warning: {warning}")
    heading("The list to send")
    for message in compiled["messages"]:
        print_message(message)
    heading("Why these")
    print_items(items)


def heading(text: str) -> None:
    console.print(f"\n{printable(text)}", style="bold")


def print_message(message: dict[str, Any]) -> None:
    name = f" ({message['name']})" if message.get("name") else ""
    console.print(printable(f"{message['role']}{name}:"))
    content = message.get("content") or ""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    shown = [part.get("text") or "" if part["type"] == "text" else f"[{part['type']}]" for part in parts]
    calls = [call["function"] for call in message.get("tool_calls", [])]
    for text in (*shown, *(f"→ {call['name']}({call['arguments']})" for call in calls)):
        console.print(Padding(printable(text), (0, 0, 0, 4), expand=False))


def print_items(items: list[Considered]) -> None:
    """Prints a table of the items considered, the included ones first."""
    shown = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for title, most in {"#": 2, "what": 24, "score": 5, "rank": 7, "tokens": 6, "shown as": 12}.items():
        shown.add_column(title, no_wrap=True, max_width=most, justify="right" if title in ("#", "tokens") else "left")
    shown.add_column("text", no_wrap=True, ratio=1)
    ordered = sorted(items, key=lambda item: (not item.included, item.position or 0, -(item.score or 0)))
    for item in ordered[:SHOWN_ITEMS]:
        ranks = {"w": item.words_rank, "v": item.vector_rank}
        shown.add_row(
            "-" if item.position is None or not item.included else str(item.position),
            Text(
                printable(
                    f"{item.kind} {item.session or ''}" + (f":{item.turn_index}" if item.turn_index is not None else "")
                )
            ),
            "" if item.score is None else f"{item.score:.3f}",
            " ".join(f"{arm}{rank}" for arm, rank in ranks.items() if rank),
            "" if item.tokens is None else str(item.tokens),
            (item.fidelity if item.included else item.reason) or "",
            Text(printable(" ".join((item.content or "").split())), overflow="ellipsis"),
        )
    console.print(shown)
    if len(items) > SHOWN_ITEMS:
        print(f"… and {len(items) - SHOWN_ITEMS} more considered")


if __name__ == "__main__":
    sys.exit(main())
