"""Conversations with gold evidence, each as what happened in order: said, remembered, asked.

    locomo(path)    of bench/datasets.py: two friends over months
    realmem(path)   RealMem: user and assistant over months; of each persona a corpus of turns and one of memories
    beam(path)      BEAM: one long chat with long assistant answers; evidence names messages
    proactive(path) ProactiveMemBench: a user tells an assistant of a life; remarks that ask nothing follow
    remarks(path)   research/ranker/remarks: what somebody said once, and a later remark without a word in common
    languages(path) research/languages/pairs: the same statements and questions in 15 languages
    locomo_plus(path, locomo)   LoCoMo-Plus: of LoCoMo, what two friends said once, and remarks without a word in common

`read(path)` tells which it is; LoCoMo-Plus is given as `cues.json+locomo.json`. What is asked may only be answered by
what comes before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.datasets import Asked, Corpus, Remembered, Said, locomo, unique

TURN = timedelta(seconds=1)  # between two turns of a session whose file only gives a date


def read(path: Path) -> list[Corpus]:
    """The corpora of a file or folder of one of these kinds. Raises ValueError."""
    cues, _, conversations = str(path).partition(".json+")
    if conversations:
        return locomo_plus(Path(f"{cues}.json"), Path(conversations))
    if path.is_file():
        return locomo(path)
    if list(path.glob("*.jsonl")):
        first = next(iter(json.loads(next(path.glob("*.jsonl")).read_text("utf-8").splitlines()[0])))
        return languages(path) if first == "id" else remarks(path)
    if list(path.rglob("step4_conversations.json")):
        return proactive(path)
    if list(path.glob("*_dialogues_*.json")):
        return realmem(path)
    if list(path.rglob("probing_questions.json")):
        return beam(path)
    raise ValueError(
        f"{path} is neither a LoCoMo file nor a folder of RealMem, BEAM or ProactiveMemBench conversations"
    )


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
                            Asked(_content(turn), unique(sources[key] for key in used), category, uuid, at)
                        )
                        memories.events.append(
                            Asked(_content(turn), unique(_memory_key(*key) for key in used), category, None, at)
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
                gold = unique(
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
            gold = unique(key for pair in question["source_pairs"] for key in planted.get(pair, ()))
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


def languages(folder: Path) -> list[Corpus]:
    """A corpus of each language, with all statements in it, a session a day. Asked are, in the language itself, in English and
    in the next language, and of English in each: kinds "same language", "asked in another".
    """
    pairs = [
        json.loads(line)["texts"]
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text("utf-8").splitlines()
    ]
    every = list(pairs[0])
    found = []
    for said, following in zip(every, every[1:] + every[:1], strict=True):
        events: list[Said | Remembered | Asked] = []
        for number, pair in enumerate(pairs):
            start = datetime(2026, 1, 1, 9, tzinfo=UTC) + timedelta(days=number)
            message = {"role": "user", "content": pair[said]["said"], "created_at": start.isoformat()}
            events.append(Said(str(number), f"session {number}", message))
        others = every[1:] if said == "en" else list(dict.fromkeys(["en", following]))
        for kind, asked in (("same language", [said]), ("asked in another", others)):
            questions = [
                Asked(pair[language]["asked"], (str(n),), language)
                for language in asked
                for n, pair in enumerate(pairs)
            ]
            found.append(Corpus(f"{kind}", said, [*events, *questions]))
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
