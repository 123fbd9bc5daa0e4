"""Letta: agent files (.af, those of today and those before 0.8) and archival passages as its API lists them.

The messages of an agent are one conversation, a memory block and a passage are facts. Thinking, heartbeats, notes of
the program, tools and the environment variables of tools, which hold secrets, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .conversations import Conversation, Fact, Item, Options, stamp_messages
from .facts import Entry, make_fact, read_each
from .letta_messages import read_messages

SOURCE = "letta"
_PASSAGES = ("passages", "archival_memory")


def is_record(record: Any) -> bool:
    """Whether that is an agent file, one agent of it, a passage, or an answer with passages."""
    if not isinstance(record, dict):
        return False
    agents = record.get("agents")
    if isinstance(agents, list) and any(isinstance(a, dict) and {"messages", "system"} <= set(a) for a in agents[:5]):
        return True
    listed = [item for name in _PASSAGES if isinstance(record.get(name), list) for item in record[name][:5]]
    return "core_memory" in record and "messages" in record or _is_passage(record) or any(map(_is_passage, listed))


def _is_passage(item: Any) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("text"), str):
        return False
    return str(item.get("id", "")).startswith("passage-") or "archive_id" in item or "embedding_config" in item


def read(records: Sequence[Entry], options: Options) -> Iterator[Item]:
    """Reads files of agents, and passages that stand alone."""
    for record in records:
        if "agents" in record.value:
            blocks = {str(b.get("id")): b for b in record.children("blocks") if isinstance(b.value, dict)}
            yield from read_each(record.children("agents"), _agent, blocks, options)
        elif "core_memory" in record.value:
            yield from read_each([record], _agent, {}, options)
        elif _is_passage(record.value):
            yield from read_each([record], _passage, None, options)
        yield from _passages(record, None, options) if "core_memory" not in record.value else ()


def _agent(agent: Entry, blocks: dict[str, Entry], options: Options) -> Iterator[Item]:
    name = agent.find_text("name", "id") or options.stem
    own = [blocks[b] for b in agent.texts("block_ids") if b in blocks] + agent.children("core_memory")
    yield from read_each([agent], _conversation, name, options)
    yield from read_each([*own, *agent.children("memory_blocks")], _block, name, options)
    yield from _passages(agent, name, options)


def _block(block: Entry, agent: str, options: Options) -> Iterator[Fact]:
    """The ids of blocks in a file count from 0, so the agent's name and the label are the id. A persona is not about
    the user, so it stays out of the profile."""
    label = block.text("label")
    if block.find_text("value"):
        yield make_fact(
            block, options, SOURCE,
            id=f"{agent}/{label}", content=block.text("value"), user=agent, category=label, tags=[label],
            type="external_reference" if label == "persona" else "fact",
            said_at=block.time("updated_at", "created_at"),
            metadata={"agent": agent, "description": block.get("description"), **block.object("metadata", "metadata_")},
        )  # fmt: skip


def _passages(entry: Entry, agent: str | None, options: Options) -> Iterator[Item]:
    for name in _PASSAGES:
        yield from read_each(entry.children(name), _passage, agent, options)


def _passage(passage: Entry, agent: str | None, options: Options) -> Iterator[Fact]:
    if not passage.get("is_deleted"):
        kept = {name: passage.get(name) for name in ("archive_id", "file_id", "file_name")} | {"agent": agent}
        yield make_fact(
            passage, options, SOURCE,
            id=passage.text("id"), content=passage.text("text"), user=agent, category="archival memory",
            said_at=passage.time("created_at"), tags=passage.texts("tags"),
            metadata=kept | passage.object("metadata", "metadata_"),
        )  # fmt: skip


def _conversation(agent: Entry, name: str, options: Options) -> Iterator[Conversation]:
    found = read_messages(agent)
    messages = [message for message, _ in found]
    stamp_messages(messages, [at for _, at in found])
    if messages:
        yield Conversation(
            options.name(name, options.stem), f"letta {name}"[:200], messages, agent.where,
            agent.find_text("system"), metadata={"agent": name}, newest=True,
        )  # fmt: skip
