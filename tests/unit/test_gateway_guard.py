"""Who may send requests to a gateway, and to which provider they go."""

import hashlib
from typing import Any

import pytest
from pg_memoir_gateway.config import ConfigError, load
from pg_memoir_gateway.exchange import Exchange
from pg_memoir_gateway.guard import find_refusal
from pg_memoir_gateway.upstreams import NoUpstream, find_upstream
from starlette.datastructures import Headers

LISTED = {"name": "alice", "key_sha256": hashlib.sha256(b"sk-alice").hexdigest()}
PAGE = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
FOLLOWED = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
MESSAGES = "POST /v1/messages"
FORM = "application/x-www-form-urlencoded"


def refusal(request: str, headers: dict[str, str], **settings: Any) -> str:
    """The reason, "" for a request that may pass."""
    method, path = request.split()
    config = load({}, given={"dsn": "x"} | settings)
    given = {"host": "127.0.0.1:8787", "content-type": "application/json"} | headers
    scope = {"method": method, "path": path, "server": ("10.0.0.7", 8787)}
    found = find_refusal(config, scope, Headers({name: value for name, value in given.items() if value}))
    return found.reason if found else ""


def test_guard_names() -> None:
    """The last of the own ones is the address that the request came to."""
    for host in ("localhost:8787", "LOCALHOST.", "[::1]:8787", "127.8.9.1", "", "10.0.0.7:8787"):
        assert refusal(MESSAGES, {"host": host}) == "", host
    evil = ("evil.example", "evil.example:8787", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.1.5")
    for request in (MESSAGES, "GET /metrics", "GET /observation/x", "OPTIONS /v1/messages"):
        for host in evil:
            assert refusal(request, {"host": host}) == "host", (request, host)
            assert refusal(request, {"host": host, "origin": f"http://{host}"}) == "host", (request, host)


def test_guard_pages() -> None:
    for request_line, headers, reason in (
        (MESSAGES, {}, ""),
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
        (MESSAGES, {"content-type": FORM}, "content-type"),
        (MESSAGES, {"content-type": "application/json; charset=utf-8"}, ""),
        (MESSAGES, {"content-type": ""}, ""),
        (MESSAGES, {"content-type": "", "origin": "http://localhost:3000"}, "content-type"),
        ("POST /mcp", {"content-type": "text/plain"}, "content-type"),
        ("POST /v1/embeddings", {"content-type": "text/plain"}, "content-type"),
        ("POST /v1/audio/transcriptions", {"content-type": "multipart/form-data; boundary=x"}, ""),
        ("POST /inspect/login", {"content-type": FORM}, ""),
    ):
        assert refusal(request_line, headers) == reason


def test_guard_memory_without_keys() -> None:
    """Any server on this machine has pages: without keys only the gateway's own and listed ones get at the memory."""
    page, own = {"origin": "http://localhost:3000"}, {"origin": "http://127.0.0.1:8787"}
    for path in ("/memoir/v1/users/local", "/mcp", "/observation/7", "/inspect", "/inspect/users/local"):
        for verb in ("GET", "POST", "DELETE", "OPTIONS"):
            line = f"{verb} {path}"
            assert [refusal(line, headers) for headers in ({}, own, page)] == ["", "", "origin"], line
            assert refusal(line, page, allowed_hosts=["http://localhost:3000"]) == ""
            assert refusal(line, page, users=[LISTED]) == ""
            assert refusal(f"{verb} /v1/models", page) == refusal(f"{verb} /metrics", page) == ""


def test_guard_allowed_hosts() -> None:
    for headers, allowed, reason in (
        ({"host": "memory.example.com"}, "memory.example.com", ""),
        ({"host": "memory.example.com:8443"}, "memory.example.com", ""),
        ({"host": "memory.example.com:8443"}, "memory.example.com:9", "host"),
        ({"host": "a.memory.example.com"}, "memory.example.com", "host"),
        ({"host": "a.memory.example.com"}, "*.example.com", ""),
        ({"host": "example.com"}, "*.example.com", "host"),
        ({"host": "anything"}, "*", ""),
        (PAGE, "*", "origin"),
        (PAGE, "https://evil.example", ""),
        ({"origin": "http://evil.example"}, "https://evil.example", "origin"),
        ({"origin": "vscode-file://vscode-app"}, "vscode-file://vscode-app", ""),
        ({"origin": "https://chat.example.com"}, "chat.example.com", ""),
    ):
        assert refusal(MESSAGES, headers, allowed_hosts=[allowed]) == reason


def test_guard_listed_key_under_any_host() -> None:
    known = {"host": "memory.example.com", "authorization": "Bearer sk-alice"}
    cases = [({}, ""), ({"authorization": "Bearer other"}, "host"), (PAGE, "origin")]
    for listed in ("users", "services"):
        assert all(refusal("POST /mcp", known | more, **{listed: [LISTED]}) == reason for more, reason in cases)


def test_allowed_hosts_are_checked() -> None:
    for entry in ("", "a b", "http://a/path", "a,b"):
        with pytest.raises(ConfigError, match=r"^allowed_hosts has "):
            load({}, given={"dsn": "x", "allowed_hosts": [entry]})
    config = load({"PG_MEMOIR_DSN": "x", "PG_MEMOIR_GATEWAY_ALLOWED_HOSTS": "a.example, b.example"})
    assert config.allowed_hosts == ("a.example", "b.example")


OPENAI = {"authorization": "Bearer sk-proj-1"}
ANTHROPIC = {"x-api-key": "sk-ant-1", "anthropic-version": "2023-06-01"}
TOKEN = {"authorization": "Bearer sk-ant-oat01-1"}


def test_upstream_by_path_and_key() -> None:
    for upstream, headers, paths in (
        ("anthropic", ANTHROPIC, "/v1/messages /v1/models /api/event_logging/batch"),
        ("anthropic", TOKEN, "/v1/messages/count_tokens /v1/models /v1/chat/completions"),
        ("anthropic", {"x-api-key": "sk-ant-1"}, "/v1/files"),
        ("anthropic", {"user-agent": "claude-cli/2.1"}, "/"),
        (
            "openai",
            OPENAI,
            "/v1/chat/completions /v1/responses/r/cancel /v1/models /v1/any/new /v1/messages_of_another",
        ),
        ("", OPENAI, "/api/v1/chat/completions /chat/completions /responses /models /embeddings"),
        ("", OPENAI, "/openai/v1/chat/completions //evil.example/v1/models"),
        ("", {"api-key": "azure"}, "/openai/deployments/gpt/chat/completions"),
        ("", {"x-goog-api-key": "AIza"}, "/v1beta/models/gemini:generateContent"),
    ):
        config = load({}, given={"dsn": "x"})
        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        for path in paths.split():
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
