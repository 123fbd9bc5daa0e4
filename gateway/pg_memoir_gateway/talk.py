"""Which conversation a request belongs to, whose it is, and what it is for."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from . import words
from .anthropic import Anthropic
from .config import Config, Mode
from .dialect import Dialect, Item, chain, text_of
from .exchange import Exchange
from .openai_chat import Chat
from .openai_responses import Responses
from .spans import Body

Kind = Literal["main", "agent", "compaction", "aside"]

DIALECTS: dict[str, Dialect] = {
    "/v1/messages": Anthropic(),
    "/v1/chat/completions": Chat(),
    "/v1/responses": Responses(),
}
ASIDES = ("/v1/messages/count_tokens", "/v1/responses/input_tokens")
"""Paths that ask about a conversation and are no part of it."""

CLIENTS = (("claude-cli", "claude-code"), ("opencode", "opencode"), ("codex", "codex"))
SESSION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id", "x-opencode-session")


@dataclass
class Talk:
    """A request as a part of a conversation. `main` is answered to a person, `agent` to another agent, `compaction` asks
    for a summary of it all, `aside` is no conversation (titles, searches, counts). `kept`: the provider keeps the list;
    `previous` is then the answer of his that this goes on from, and items are the new ones alone."""

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

    def newest(self) -> list[words.Piece]:
        """What stands in the newest item of the user's, taken apart; none where that answers tools."""
        if not self.items or self.items[-1].get("role") != "user":
            return []
        return [piece for text in texts(self.items[-1]) for piece in words.pieces(text, self.client)]

    @property
    def project(self) -> str:
        """The folder that the client says it works in."""
        return words.project([self.dialect.opening(self.body), *(t for item in self.items[:4] for t in texts(item))])


def texts(item: Item) -> list[str]:
    """The texts of an item, one for each block."""
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [b["text"] for b in blocks if isinstance(b, dict) and isinstance(b.get("text"), str)]


def is_conversation_path(path: str) -> bool:
    """Does a request to this path hold a conversation?"""
    return path in DIALECTS or path in ASIDES


def dialect_of(exchange: Exchange) -> Dialect | None:
    """The API of a request that may be part of a conversation."""
    path = exchange.path.rpartition("/")[0] if exchange.path in ASIDES else exchange.path
    return DIALECTS.get(path) if exchange.method == "POST" else None


def talk_of(exchange: Exchange, dialect: Dialect, body: Body, user: str, mode: Mode, config: Config) -> Talk:
    """A request taken as part of its conversation."""
    agent = exchange.header("user-agent").lower()
    client = next((name for sign, name in CLIENTS if sign in agent), "")
    items = dialect.items(body)
    hashes = chain(dialect, items)
    told = _session_told(exchange, body, config)
    session = f"{client or 'session'} {told}" if told else _session_guessed(client, dialect, body, items)
    kind = _kind(exchange, client, body, items, bool(told))
    if kind == "agent":
        session += " " + (exchange.header("x-claude-code-agent-id") or exchange.header("x-openai-subagent"))
    thread = body.get("thread")
    previous = body.get("previous_response_id") or (
        thread.get("previous_message_id") if isinstance(thread, dict) else ""
    )
    kept = bool(thread) or dialect.key == "input" and body.get("store") is not False
    return Talk(
        user, mode, client, kind, session[:180].strip(), dialect, body, items, hashes, kept, str(previous or "")
    )


def _session_told(exchange: Exchange, body: Body, config: Config) -> str:
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


def _session_guessed(client: str, dialect: Dialect, body: Body, items: list[Item]) -> str:
    """A name by how it began: by the system prompt and the first item that is not one."""
    first = next((loose for item in items if (loose := dialect.loose(item)) is not None), None)
    begun = json.dumps([dialect.opening(body), first], sort_keys=True, default=str)
    return f"{client or 'chat'} {hashlib.blake2b(begun.encode(), digest_size=10).hexdigest()}"


def _kind(exchange: Exchange, client: str, body: Body, items: list[Item], told: bool) -> Kind:
    if body.get("conversation") or not items or exchange.path in ASIDES:
        return "aside"  # where the list begins, nobody can tell
    sort = exchange.header("x-claude-code-request-class") or exchange.header("x-openai-subagent")
    newest = next((text for text in reversed(texts(items[-1])) if text.strip()), "")
    if sort in ("compaction", "compact") or words.purpose(newest, client) == "compaction":
        return "compaction"
    if sort in ("subagent", "review") or exchange.header("x-claude-code-agent-id"):
        return "agent"
    if sort and sort not in ("main", "collab_spawn"):
        return "aside"
    tools = body.lists.get("tools", [])
    if client and (not tools or all(_is_hosted(node.value) for node in tools)):
        return "aside"  # agents always bring tools of their own to a conversation
    return "main"


def _is_hosted(tool: Any) -> bool:
    """Is that a tool which the provider runs?"""
    kind = tool.get("type") if isinstance(tool, dict) else None
    return isinstance(kind, str) and kind not in ("custom", "function")


def said(item: Item) -> str:
    """An item's text."""
    return text_of(item.get("content"))
