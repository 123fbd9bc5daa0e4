"""Who may send requests to a gateway, and to which provider they go."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from pg_memoir_gateway.config import ConfigError, load
from pg_memoir_gateway.exchange import Exchange
from pg_memoir_gateway.guard import find_refusal
from pg_memoir_gateway.upstreams import NoUpstream, find_upstream
from starlette.datastructures import Headers

KEY = "sk-alice"
LISTED = {"name": "alice", "key_sha256": hashlib.sha256(KEY.encode()).hexdigest()}
PAGE = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
FOLLOWED = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
MESSAGES = "POST /v1/messages"


def refusal(request: str, headers: dict[str, str], **settings: Any) -> str:
    """The reason, "" for a request that may pass."""
    method, path = request.split()
    config = load({}, given={"dsn": "x"} | settings)
    given = {"host": "127.0.0.1:8787", "content-type": "application/json"} | headers
    scope = {"method": method, "path": path, "server": ("10.0.0.7", 8787)}
    found = find_refusal(config, scope, Headers({name: value for name, value in given.items() if value}))
    return found.reason if found else ""


@pytest.mark.parametrize(
    ("request_line", "headers", "reason"),
    [
        (MESSAGES, {}, ""),
        (MESSAGES, {"host": "localhost:8787"}, ""),
        (MESSAGES, {"host": "LOCALHOST."}, ""),
        (MESSAGES, {"host": "[::1]:8787"}, ""),
        (MESSAGES, {"host": "127.8.9.1"}, ""),
        (MESSAGES, {"host": "10.0.0.7:8787"}, ""),  # the address that the request came to
        (MESSAGES, {"host": ""}, ""),
        (MESSAGES, {"host": "evil.example"}, "host"),
        (MESSAGES, {"host": "evil.example:8787", "origin": "http://evil.example:8787"}, "host"),
        (MESSAGES, {"host": "localhost.evil.example"}, "host"),
        (MESSAGES, {"host": "127.0.0.1.evil.example"}, "host"),
        (MESSAGES, {"host": "192.168.1.5"}, "host"),
        ("GET /metrics", {"host": "evil.example"}, "host"),
        ("GET /observation/x", {"host": "evil.example"}, "host"),
        ("OPTIONS /v1/messages", {"host": "evil.example"}, "host"),
        (MESSAGES, PAGE, "origin"),
        (MESSAGES, {"origin": "null"}, "origin"),
        (MESSAGES, {"origin": "http://localhost:3000"}, ""),
        (MESSAGES, {"origin": "http://localhost.evil.example"}, "origin"),
        (MESSAGES, {"origin": "http://127.0.0.1@evil.example"}, "origin"),
        (MESSAGES, {"sec-fetch-site": "cross-site"}, "cross-site"),
        (MESSAGES, {"sec-fetch-site": "same-origin"}, ""),
        ("OPTIONS /v1/messages", PAGE, "origin"),
        ("GET /inspect", FOLLOWED, ""),  # a link of a citation
        ("POST /inspect", FOLLOWED, "cross-site"),
        ("GET /v1/models", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, "cross-site"),
        (MESSAGES, {"content-type": "text/plain"}, "content-type"),
        (MESSAGES, {"content-type": "text/plain; x=application/json"}, "content-type"),
        (MESSAGES, {"content-type": "application/x-www-form-urlencoded"}, "content-type"),
        (MESSAGES, {"content-type": "application/json; charset=utf-8"}, ""),
        (MESSAGES, {"content-type": ""}, ""),
        (MESSAGES, {"content-type": "", "origin": "http://localhost:3000"}, "content-type"),
        ("POST /mcp", {"content-type": "text/plain"}, "content-type"),
        ("POST /v1/embeddings", {"content-type": "text/plain"}, "content-type"),
        ("POST /v1/audio/transcriptions", {"content-type": "multipart/form-data; boundary=x"}, ""),
        ("POST /inspect/login", {"content-type": "application/x-www-form-urlencoded"}, ""),
    ],
)
def test_guard_local_gateway(request_line: str, headers: dict[str, str], reason: str) -> None:
    assert refusal(request_line, headers) == reason


@pytest.mark.parametrize(
    ("headers", "allowed", "reason"),
    [
        ({"host": "memory.example.com"}, ["memory.example.com"], ""),
        ({"host": "memory.example.com:8443"}, ["memory.example.com"], ""),
        ({"host": "memory.example.com:8443"}, ["memory.example.com:9"], "host"),
        ({"host": "a.memory.example.com"}, ["memory.example.com"], "host"),
        ({"host": "a.memory.example.com"}, ["*.example.com"], ""),
        ({"host": "example.com"}, ["*.example.com"], "host"),
        ({"host": "anything"}, ["*"], ""),
        (PAGE, ["*"], "origin"),
        (PAGE, ["https://evil.example"], ""),
        ({"origin": "http://evil.example"}, ["https://evil.example"], "origin"),
        ({"origin": "vscode-file://vscode-app"}, ["vscode-file://vscode-app"], ""),
        ({"origin": "https://chat.example.com"}, ["chat.example.com"], ""),
    ],
)
def test_guard_allowed_hosts(headers: dict[str, str], allowed: list[str], reason: str) -> None:
    assert refusal(MESSAGES, headers, allowed_hosts=allowed) == reason


def test_guard_listed_key_under_any_host() -> None:
    known = {"host": "memory.example.com", "authorization": f"Bearer {KEY}"}
    assert refusal("POST /mcp", known, users=[LISTED]) == ""
    assert refusal("POST /mcp", known | {"authorization": "Bearer other"}, users=[LISTED]) == "host"
    assert refusal("POST /mcp", known | PAGE, users=[LISTED]) == "origin"


@pytest.mark.parametrize("entry", ["", "a b", "http://a/path", "a,b"])
def test_allowed_hosts_are_checked(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"^allowed_hosts has "):
        load({}, given={"dsn": "x", "allowed_hosts": [entry]})


def test_allowed_hosts_of_the_environment() -> None:
    config = load({"PG_MEMOIR_DSN": "x", "PG_MEMOIR_GATEWAY_ALLOWED_HOSTS": "a.example, b.example"})
    assert config.allowed_hosts == ("a.example", "b.example")


BEARER = {"authorization": "Bearer sk-proj-1"}
ANTHROPIC = {"x-api-key": "sk-ant-1", "anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("path", "headers", "upstream"),
    [
        ("/v1/messages", ANTHROPIC, "anthropic"),
        ("/v1/messages/count_tokens", {"authorization": "Bearer sk-ant-oat01-1"}, "anthropic"),
        ("/v1/chat/completions", BEARER, "openai"),
        ("/v1/responses/resp_1/cancel", BEARER, "openai"),
        ("/v1/models", BEARER, "openai"),
        ("/v1/models", ANTHROPIC, "anthropic"),
        ("/v1/models", {"authorization": "Bearer sk-ant-oat01-1"}, "anthropic"),
        ("/v1/files", {"x-api-key": "sk-ant-1"}, "anthropic"),
        ("/v1/anything/new", BEARER, "openai"),
        ("/v1/chat/completions", {"authorization": "Bearer sk-ant-1"}, "anthropic"),
        ("/api/event_logging/batch", ANTHROPIC, "anthropic"),
        ("/", {"user-agent": "claude-cli/2.1"}, "anthropic"),
        ("/api/v1/chat/completions", BEARER, ""),
        ("/chat/completions", BEARER, ""),
        ("/responses", BEARER, ""),
        ("/models", BEARER, ""),
        ("/embeddings", BEARER, ""),
        ("/openai/v1/chat/completions", BEARER, ""),
        ("/openai/deployments/gpt/chat/completions", {"api-key": "azure"}, ""),
        ("/v1beta/models/gemini:generateContent", {"x-goog-api-key": "AIza"}, ""),
        ("//evil.example/v1/models", BEARER, ""),
        ("/v1/messages_of_another", BEARER, "openai"),
    ],
)
def test_upstream_by_path_and_key(path: str, headers: dict[str, str], upstream: str) -> None:
    config = load({}, given={"dsn": "x"})
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    exchange = Exchange("POST", path, path.encode(), given, b"{}")
    if upstream:
        assert find_upstream(exchange, config) == f"https://api.{upstream}.com"
    else:
        with pytest.raises(NoUpstream, match="No provider is known for the path"):
            find_upstream(exchange, config)


def test_upstream_of_another_vendor_gets_any_key() -> None:
    config = load({}, given={"dsn": "x", "upstream_openai": "http://127.0.0.1:4000"})
    exchange = Exchange("POST", "/v1/chat/completions", b"/", [(b"authorization", b"Bearer sk-ant-1")], b"{}")
    assert find_upstream(exchange, config) == "http://127.0.0.1:4000"
