"""Conversations with gold evidence, each as what happened in order: said, remembered, asked.

    locomo(path)    LoCoMo: two friends over months, short turns; evidence names turns
    realmem(path)   RealMem: user and assistant over months; of each persona a corpus of turns and one of ready-made memories
    beam(path)      BEAM: one long chat with long assistant answers; evidence names messages
    proactive(path) ProactiveMemBench: a user tells an assistant of a life; remarks that ask nothing follow
    remarks(path)   research/ranker/remarks: what somebody said once, and a later remark without a word in common
    locomo_plus(path, locomo)   LoCoMo-Plus: what two friends said once, put into LoCoMo, and later remarks without a word in common

`read(path)` tells which it is; LoCoMo-Plus is given as `cues.json+locomo.json`. What is asked may only be answered by what comes before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pg_memoir_cli.conversations import ConversationError
from pg_memoir_cli.formats import read_conversations

TURN = timedelta(seconds=1)  # between two turns of a session whose file only gives a date


@dataclass(frozen=True)
class Said:
    """A message of a session. `key` is what evidence calls it."""

    key: str
    session: str
    message: dict[str, Any]


@dataclass(frozen=True)
class Remembered:
    """A ready-made memory."""

    key: str
    content: str
    at: datetime


@dataclass(frozen=True)
class Asked:
    """A question and the keys of its evidence. `session`: where it is asked; None where that holds nothing else."""

    text: str
    evidence: tuple[str, ...]
    category: str
    session: str | None = None
    at: datetime | None = None


@dataclass
class Corpus:
    """One user's events, oldest first. `kind` names the data in tables."""

    kind: str
    name: str
    events: list[Said | Remembered | Asked] = field(default_factory=list)

    def questions(self) -> list[Asked]:
        return [event for event in self.events if isinstance(event, Asked)]

    def items(self) -> list[Said | Remembered]:
        return [event for event in self.events if not isinstance(event, Asked)]


def read(path: Path) -> list[Corpus]:
    """The corpora of a file or folder of one of these kinds. Raises ValueError."""
    cues, _, conversations = str(path).partition(".json+")
    if conversations:
        return locomo_plus(Path(f"{cues}.json"), Path(conversations))
    if path.is_file():
        return locomo(path)
    if list(path.glob("*.jsonl")):
        return remarks(path)
    if list(path.rglob("step4_conversations.json")):
        return proactive(path)
    if list(path.glob("*_dialogues_*.json")):
        return realmem(path)
    if list(path.rglob("probing_questions.json")):
        return beam(path)
    raise ValueError(
        f"{path} is neither a LoCoMo file nor a folder of RealMem, BEAM or ProactiveMemBench conversations"
    )


# --- LoCoMo ------------------------------------------------------------------------------------------------------------

LOCOMO = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


def locomo(path: Path) -> list[Corpus]:
    """Turns as the product's own importer reads them; all questions come after all sessions."""
    corpora: dict[str, Corpus] = {}
    for conversation in read_conversations(path, user_prefix="").conversations:
        if isinstance(conversation, ConversationError):
            raise conversation
        corpus = corpora.setdefault(conversation.user, Corpus("LoCoMo", conversation.user))
        for message in conversation.messages:
            key = _dia(str(message["metadata"]["dia_id"])) or [""]
            corpus.events.append(Said(key[0], conversation.session, dict(message)))
    for record in json.loads(path.read_text()):
        corpus = corpora[str(record["sample_id"])]
        known = {event.key for event in corpus.items()}
        for item in record["qa"]:
            gold = [key for entry in item.get("evidence") or [] for key in _dia(str(entry)) if key in known]
            if gold:
                corpus.events.append(
                    Asked(str(item["question"]), _unique(gold), LOCOMO.get(item.get("category"), "other"))
                )
    return list(corpora.values())


def _dia(text: str) -> list[str]:
    """The turns named in a text: 'D8:6; D9:17' → D8:6, D9:17."""
    return [f"D{int(session)}:{int(turn)}" for session, turn in re.findall(r"D:?(\d+):(\d+)", text)]


# --- RealMem -----------------------------------------------------------------------------------------------------------


def realmem(folder: Path) -> list[Corpus]:
    """Per persona a corpus of turns (evidence: the turns that the used memories came from) and one of memories.

    A question is a turn marked as one; it is asked in its session, after what was said there before. The memories of a
    session exist when it has ended.
    """
    found = []
    for file in sorted(folder.glob("*_dialogues_*.json")):
        sessions = json.loads(file.read_text())["dialogues"]
        name = file.name.split("_dialogues_")[0]
        sources = {(s["session_uuid"], _content(m)): _source(s, m) for s in sessions for m in _memories(s)}
        turns, memories = Corpus("RealMem turns", name), Corpus("RealMem memories", name)
        for session in sessions:
            start = datetime.strptime(session["current_time"][:10], "%Y-%m-%d").replace(hour=9, tzinfo=UTC)
            uuid = session["session_uuid"]
            for place, turn in enumerate(session["dialogue_turns"]):
                at = start + place * TURN
                if turn.get("is_query"):
                    answers = session["dialogue_turns"][place + 1 : place + 2]
                    used = [
                        (m.get("session_uuid"), _content(m))
                        for a in answers
                        for m in a.get("memory_used") or []
                        if isinstance(m, dict)
                    ]
                    used = [key for key in used if key in sources and key[0] != uuid]
                    if used and not _blank(turn):
                        category = str(turn.get("category_name"))
                        turns.events.append(
                            Asked(_content(turn), _unique(sources[key] for key in used), category, uuid, at)
                        )
                        memories.events.append(
                            Asked(_content(turn), _unique(_memory_key(*key) for key in used), category, None, at)
                        )
                if not _blank(turn):
                    role = "assistant" if str(turn.get("speaker")).lower() == "assistant" else "user"
                    message = {"role": role, "content": _content(turn), "created_at": at.isoformat()}
                    turns.events.append(Said(f"{uuid}:{place}", uuid, message))
            for content in map(_content, _memories(session)):
                memories.events.append(Remembered(_memory_key(uuid, content), content, start))
        found += [memories, turns]
    return found


def _content(entry: Any) -> str:
    """The text of a turn or a memory; where that is no text but an object, the object as JSON."""
    content = entry.get("content") if isinstance(entry, dict) else entry
    return content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)


def _blank(entry: Any) -> bool:
    return not _content(entry).strip()


def _memories(session: dict[str, Any]) -> list[Any]:
    return [memory for memory in session.get("extracted_memory") or [] if not _blank(memory)]


def _source(session: dict[str, Any], memory: Any) -> str:
    """The turn whose words the memory quotes, else the one it names, counted from one; else the first."""
    texts = [_content(turn) for turn in session["dialogue_turns"]]
    told = memory if isinstance(memory, dict) else {}
    quoted, number = told.get("source_content_snapshot"), str(told.get("source_turn"))
    place = int(number) - 1 if number.isdigit() else 0
    place = texts.index(quoted) if quoted in texts else min(max(place, 0), len(texts) - 1)
    return f"{session['session_uuid']}:{place}"


def _memory_key(session: str, content: str) -> str:
    return f"{session}/{content}"


# --- BEAM --------------------------------------------------------------------------------------------------------------


def beam(folder: Path) -> list[Corpus]:
    """A session per batch of a chat, dated by its anchors; all questions come after it. Abstention questions have no evidence."""
    found = []
    for file in sorted(folder.rglob("chat.json"), key=lambda path: (len(path.parent.name), path.parent.name)):
        corpus = Corpus("BEAM", f"{file.parent.parent.name}-{file.parent.name}")
        at: datetime | None = None
        for batch in json.loads(file.read_text()):
            for message in (message for exchange in batch["turns"] for message in exchange):
                if message.get("time_anchor"):
                    at = datetime.strptime(message["time_anchor"], "%B-%d-%Y").replace(hour=9, tzinfo=UTC)
                if _blank(message):
                    continue
                said = {"role": message["role"], "content": _content(message)}
                if at:
                    said["created_at"] = at.isoformat()
                    at += TURN
                corpus.events.append(Said(str(message["id"]), f"batch {batch['batch_number']}", said))
        known = {event.key for event in corpus.items()}
        for category, questions in json.loads((file.parent / "probing_questions.json").read_text()).items():
            for question in questions:
                gold = _unique(
                    str(number) for number in _leaves(question.get("source_chat_ids")) if str(number) in known
                )
                if question.get("question") and (gold or category == "abstention"):
                    corpus.events.append(Asked(question["question"], gold, category.replace("_", " ")))
        found.append(corpus)
    return found


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _leaves(part)
    elif value is not None:
        yield value


def _unique(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(keys))


# --- Remarks -----------------------------------------------------------------------------------------------------------


def proactive(folder: Path) -> list[Corpus]:
    """A corpus of each domain; evidence of a remark: the turns in which its source pairs were planted."""
    found = []
    for file in sorted(folder.rglob("step4_conversations.json")):
        corpus = Corpus("ProactiveMemBench", file.parent.name)
        planted: dict[str, list[str]] = {}
        for session in json.loads(file.read_text()):
            for turn in session["turns"]:
                key, name = f"{session['session_id']}:{turn['turn_id']}", f"session {session['session_id']}"
                message = {"role": turn["role"], "content": turn["content"], "created_at": turn["timestamp"]}
                corpus.events.append(Said(key, name, message))
                for pair in turn["planted_pairs"]:
                    planted.setdefault(pair, []).append(key)
        for question in json.loads((file.parent / "step5_proactive_questions.json").read_text()):
            gold = _unique(key for pair in question["source_pairs"] for key in planted.get(pair, ()))
            if gold:
                corpus.events.append(Asked(question["question"], gold, question["trigger_type"]))
        found.append(corpus)
    return found


def remarks(folder: Path) -> list[Corpus]:
    """A corpus of each file, its lines {"cue", "reply", "remark", "relation"}: a session a day; evidence: the cue."""
    found = []
    for file in sorted(folder.glob("*.jsonl")):
        corpus = Corpus("remarks", file.stem)
        pairs = [json.loads(line) for line in file.read_text().splitlines()]
        for number, pair in enumerate(pairs):
            start = datetime(2026, 1, 1, 9, tzinfo=UTC) + timedelta(days=number)
            for place, (role, text) in enumerate((("user", pair["cue"]), ("assistant", pair["reply"]))):
                message = {"role": role, "content": text, "created_at": (start + place * TURN).isoformat()}
                corpus.events.append(Said(f"{number}:{place}", f"session {number}", message))
        corpus.events += [Asked(pair["remark"], (f"{n}:0",), pair["relation"]) for n, pair in enumerate(pairs)]
        found.append(corpus)
    return found


def locomo_plus(cues: Path, conversations: Path) -> list[Corpus]:
    """LoCoMo's conversations without their questions, each with every fifth cue as a session of its own after them, and
    the remarks on these; evidence: the cue's turns.
    """
    corpora = locomo(conversations)
    for corpus in corpora:
        corpus.kind, corpus.events = "LoCoMo-Plus", list(corpus.items())
    ends = [max(e.message["created_at"] for e in c.events if isinstance(e, Said)) for c in corpora]
    who = [[(e.message["role"], e.message["name"]) for e in c.events if isinstance(e, Said)] for c in corpora]
    speakers = [list(dict.fromkeys(each))[:2] for each in who]
    remarks: list[list[Asked]] = [[] for _ in corpora]
    for number, cue in enumerate(json.loads(cues.read_text())):
        n = number % len(corpora)
        start = datetime.fromisoformat(str(ends[n])) + timedelta(days=1 + number // len(corpora))
        lines = re.split(r"(?:^|\\n|\s+)(?=[AB]: )", cue["cue_dialogue"].strip())
        keys = []
        for place, line in enumerate(line for line in lines if line.strip()):
            role, name = speakers[n]["AB".index(line[0])]
            at = (start + place * TURN).isoformat()
            message = {"role": role, "name": name, "content": line[3:].strip(), "created_at": at}
            keys.append(f"cue {number}:{place}")
            corpora[n].events.append(Said(keys[-1], f"cue {number}", message))
        remarks[n].append(Asked(cue["trigger_query"].removeprefix("A: "), tuple(keys), cue["relation_type"]))
    for corpus, its in zip(corpora, remarks, strict=True):
        corpus.events += its
    return corpora


# --- Into the database -------------------------------------------------------------------------------------------------


def batches(events: Sequence[Said | Remembered]) -> Iterator[list[Said] | Remembered]:
    """Neighbouring messages of one session together, as they are persisted; memories one by one."""
    group: list[Said] = []
    for event in events:
        if isinstance(event, Remembered) or (group and (group[-1].session != event.session or len(group) >= 500)):
            if group:
                yield group
            group = []
        if isinstance(event, Remembered):
            yield event
        else:
            group.append(event)
    if group:
        yield group
