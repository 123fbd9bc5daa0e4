"""Which conversation a request belongs to, whose it is, and what it is for."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from . import material, words
from .anthropic import Anthropic, list_blocks
from .config import Config, Mode, UserRole
from .dialect import Dialect, Item, Message, hash_items, join_texts
from .exchange import Exchange
from .openai_chat import Chat
from .openai_responses import CALLS, RESULTS, Responses
from .spans import Body, NotPlain, body_of

Kind = Literal["main", "agent", "compaction", "aside"]

Before = Literal["answer", "result", "call"]
"""What comes before a message of the user: nothing or an answer in prose, the result of a tool, a call in the
answer's text."""
BEFORE: tuple[Before, ...] = get_args(Before)
DIALECTS: dict[str, Dialect] = {
    "/v1/messages": Anthropic(),
    "/v1/chat/completions": Chat(),
    "/v1/responses": Responses(),
}
# Paths that ask about a conversation and are no part of it.
ASIDES = ("/v1/messages/count_tokens", "/v1/responses/input_tokens")
CLIENTS = (("claude-cli", "claude-code"), ("opencode", "opencode"), ("codex", "codex"))
RUN = 20  # so many messages of the user in a row are read together
# Names that programs have in a chat.
PROGRAMS = re.compile(
    r"(?:^|[_\W\d])(?:agents?|(?:chat)?bot|assistant|tools?|functions?|system|planner|critic|manager|orchestrator|"
    r"supervisor|"
    r"executor|proxy|worker|coordinator)(?:[_\W\d]|$)|Agent|Bot\b"
)
SESSION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id", "x-opencode-session")


@dataclass
class Talk:
    """A request as a part of a conversation. `main` is answered to a person, `agent` to another agent, `compaction`
    asks for a summary of it all, `aside` is no conversation (titles, searches, counts). `kept`: the provider keeps
    the list; `previous` is then the answer of his that this goes on from, and items are the new ones alone. `role`:
    whose words the messages of the user are."""

    user: str
    mode: Mode
    client: str
    kind: Kind
    session: str
    dialect: Dialect
    body: Body
    items: list[Item]
    chain: list[str]
    kept: bool = False
    previous: str = ""
    role: UserRole = "person"

    @property
    def key(self) -> tuple[str, str]:
        """The conversation: whose, and its name."""
        return self.user, self.session

    def newest(self) -> list[words.Piece]:
        """The text of the newest item taken apart, if it is the user's. None of it is a person's where it answers
        tools."""
        if not self.items or self.items[-1].get("role") != "user":
            return []
        found = self.pieces(list_texts(self.items[-1]), self.items[-1].get("name"))
        return [piece for pieces in found for piece in pieces]

    def pieces(self, told: list[str], name: Any = None) -> list[list[words.Piece]]:
        """Takes the texts of a message of the user apart. `name` is the message's, in a chat."""
        found = words.divide_texts(told, self.client, self.role)
        before = "answer" if self.role == "person" else self._before(told)
        lowered: dict[material.Whose, material.Whose] = {}
        if not self._is_own(name) or before == "call":
            lowered = {"person": "output", "question": "output"}
        elif before == "result":
            lowered = {"person": "question"}
        return [[words.Piece(p.text, lowered.get(p.whose, p.whose)) for p in pieces] for pieces in found]

    def split(self, message: Message, delegated: bool = False) -> list[tuple[int, dict[str, Any], str | None]]:
        """Returns a message as those to store, each with its place and its actor: what is the person's apart from
        what a client wrapped around it. `delegated`: a model began the list."""
        told = message.message
        if told["role"] == "system":
            return []
        if told["role"] != "user":
            return [(0, told, None)]
        runs: list[tuple[list[Any], str | None]] = []
        content = told.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        given = [str(part["text"]) for part in parts if _is_text(part)]
        read = self.pieces(given, told.get("name"))
        found = [piece.whose for pieces in read for piece in pieces]
        other: material.Whose = "output" if found and "person" not in found else "person"
        texts = iter(read)
        for part in parts:
            whose: list[tuple[material.Whose, Any]] = [(other, part)]
            if _is_text(part):
                whose = [(piece.whose, {"type": "text", "text": piece.text.strip("\n")}) for piece in next(texts)]
            for who, piece in whose:
                if who == "context":
                    continue
                actor = None if who == "person" and self.kind == "main" and not delegated else "tool"
                if runs and runs[-1][1] == actor:
                    runs[-1][0].append(piece)
                else:
                    runs.append(([piece], actor))
        return [(at, told | {"content": _simplify_content(parts)}, actor) for at, (parts, actor) in enumerate(runs)]

    def _before(self, told: list[str]) -> Before:
        """What comes before the message of the user that has these texts."""
        before, at = self._places.get("\n".join(told), ("answer", 0))
        for item in reversed(self.items[max(at - RUN, 0) : at]):
            if before != "answer" or item.get("role") != "user":
                break
            if material.is_open("\n".join(list_texts(item))):
                return "result"
        return before

    @cached_property
    def _places(self) -> dict[str, tuple[Before, int]]:
        """What comes before each message of the user, and its place, by its text. Of equal texts the one that is
        least a person's counts."""
        found: dict[str, tuple[Before, int]] = {}
        before: Before = "answer"
        for at, item in enumerate(self.items):
            before = _find_before(item, before)
            if item.get("role") == "user":
                text = "\n".join(list_texts(item))
                found[text] = max(found.get(text, (before, at)), (before, at), key=lambda place: BEFORE.index(place[0]))
        return found

    def _is_own(self, name: Any) -> bool:
        """Is that the name of the user in this chat? A chat that does not have the user's begins with the user."""
        own = str(name or "") == self._own_name
        return own and (self.role == "person" or name == self.user or not PROGRAMS.search(self._own_name))

    @cached_property
    def _own_name(self) -> str:
        names = [str(item.get("name") or "") for item in self.items if item.get("role") == "user"]
        return self.user if self.user in names else next(iter(names), "")

    @property
    def project(self) -> str:
        """The folder that the client says it works in."""
        return words.find_project(
            [self.dialect.opening(self.body), *(t for item in self.items[:4] for t in list_texts(item))]
        )


def list_texts(item: Item) -> list[str]:
    """The texts of an item, one for each block."""
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [b["text"] for b in blocks if isinstance(b, dict) and isinstance(b.get("text"), str)]


def is_conversation_path(path: str) -> bool:
    """Does a request to this path hold a conversation?"""
    return path in DIALECTS or path in ASIDES


def _find_before(item: Item, before: Before) -> Before:
    """What comes before the user's next message once this item has come; for a message of the user, before that
    itself."""
    role, kind = item.get("role"), item.get("type")
    if role in ("tool", "function") or item.get("tool_calls") or kind in (*CALLS, *RESULTS):
        return "result"
    if role not in ("user", "assistant"):
        return before
    if any(block.get("type") in ("tool_use", "tool_result") for block in list_blocks(item)):
        return "result"
    if role == "user":
        return before
    return "call" if material.calls_tool("\n".join(list_texts(item))) else "answer"


def find_dialect(exchange: Exchange) -> Dialect | None:
    """The API of a request that may be part of a conversation."""
    path = exchange.path.rpartition("/")[0] if exchange.path in ASIDES else exchange.path
    return DIALECTS.get(path) if exchange.method == "POST" else None


def read_talk(exchange: Exchange, user: str, mode: Mode, config: Config) -> Talk:
    """Returns a request as part of its conversation. It is read once. Raises NotPlain."""
    if exchange.talk is not None:
        return exchange.talk
    dialect = find_dialect(exchange)
    if dialect is None:
        raise NotPlain("no conversation")
    body = body_of(exchange.body)
    items = dialect.items(body)
    agent = exchange.header("user-agent").lower()
    client = next((name for sign, name in CLIENTS if sign in agent), "")
    told = _read_session(exchange, body, config)
    session = f"{client or 'session'} {told}" if told else _guess_session(client, dialect, body, items)
    role = _find_role(exchange, client, config)
    kind = _find_kind(exchange, client, body, items, role)
    if kind == "agent":
        session += " " + (exchange.header("x-claude-code-agent-id") or exchange.header("x-openai-subagent"))
    thread = body.get("thread")
    threaded = thread.get("previous_message_id") if isinstance(thread, dict) else ""
    exchange.talk = Talk(
        user,
        mode,
        client,
        kind,
        session[:180].strip(),
        dialect,
        body,
        items,
        hash_items(dialect, items),
        kept=bool(thread) or dialect.key == "input" and body.get("store") is not False,
        previous=str(body.get("previous_response_id") or threaded or ""),
        role=role,
    )
    return exchange.talk


def _read_session(exchange: Exchange, body: Body, config: Config) -> str:
    """What the client calls its session, "" if it does not say."""
    for name in (config.session_header, *SESSION_HEADERS):
        if name and (value := exchange.header(name)):
            return value
    metadata = body.get("metadata")
    known = metadata.get("user_id") if isinstance(metadata, dict) else None
    if isinstance(known, str):
        try:
            return str(json.loads(known).get("session_id") or "")
        except (ValueError, AttributeError):
            found = re.search(r"_session_([\w-]+)$", known)
            return found[1] if found else ""
    key = body.get("prompt_cache_key")
    return key if isinstance(key, str) else ""


def _guess_session(client: str, dialect: Dialect, body: Body, items: list[Item]) -> str:
    """A name by how it began: by the system prompt and the first item that is not one."""
    first = next((loose for item in items if (loose := dialect.loose(item)) is not None), None)
    begun = json.dumps([dialect.opening(body), first], sort_keys=True, default=str)
    return f"{client or 'chat'} {hashlib.blake2b(begun.encode(), digest_size=10).hexdigest()}"


def _find_kind(exchange: Exchange, client: str, body: Body, items: list[Item], role: UserRole) -> Kind:
    if body.get("conversation") or not items or exchange.path in ASIDES:
        return "aside"  # where the list begins, nobody can tell
    sort = exchange.header("x-claude-code-request-class") or exchange.header("x-openai-subagent")
    newest = next((text for text in reversed(list_texts(items[-1])) if text.strip()), "")
    if sort in ("compaction", "compact") or words.find_purpose(newest, client) == "compaction":
        return "compaction"
    if sort in ("subagent", "review") or exchange.header("x-claude-code-agent-id"):
        return "agent"
    if sort and sort not in ("main", "collab_spawn"):
        return "aside"
    tools = body.lists.get("tools", [])
    if client and (not tools or all(_is_hosted(node.value) for node in tools)):
        return "aside"  # agents always bring tools of their own to a conversation
    begun = next((read_said(item) for item in items if item.get("role") == "user"), "")
    is_whole = not (body.get("previous_response_id") or body.get("thread"))
    return "agent" if role == "mixed" and is_whole and material.is_delegated(begun) else "main"


def _find_role(exchange: Exchange, client: str, config: Config) -> UserRole:
    """Whose words the client's messages of the user are. Of settings that name it the longest counts."""
    agent = f"{exchange.header('user-agent')}\n{exchange.header('x-title')}".lower()
    named = [sign for sign in config.clients if sign.lower() in agent]
    return config.clients[max(named, key=len)] if named else "person" if client else "mixed"


def _is_hosted(tool: Any) -> bool:
    """Is that a tool which the provider runs?"""
    kind = tool.get("type") if isinstance(tool, dict) else None
    return isinstance(kind, str) and kind not in ("custom", "function")


def read_said(item: Item) -> str:
    """An item's text."""
    return join_texts(item.get("content"))


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _simplify_content(parts: list[Any]) -> Any:
    return parts[0]["text"] if len(parts) == 1 and parts[0].get("type") == "text" else parts
