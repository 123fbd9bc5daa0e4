"""Which provider a request goes to. A key must not reach a provider that it is not for, so what is not known goes
nowhere."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from .config import Config
from .exchange import Exchange

# Paths that only OpenAI's API has.
OPENAI = re.compile(
    r"/v1/(assistants|audio|batches|chat/completions|completions|containers|conversations|embeddings|evals|fine_tuning"
    r"|images"
    r"|moderations|realtime|responses|threads|uploads|vector_stores|videos)(/|$)"
)
ANTHROPIC = re.compile(r"/v1/(messages|complete)(/|$)")  # paths that only Anthropic's API has


class NoUpstream(Exception):
    """Nobody known is meant; the message says what to do."""


def find_upstream(exchange: Exchange, config: Config) -> str:
    """Returns the address of the provider whose API a request means: by its path, else by what it carries. Raises
    NoUpstream."""
    if ANTHROPIC.match(exchange.path):
        return config.upstream_anthropic
    if OPENAI.match(exchange.path):
        # Anthropic serves OpenAI's API as well, to its own keys.
        vendor = urlsplit(config.upstream_openai).hostname == "api.openai.com"
        return config.upstream_anthropic if vendor and _has_anthropic_key(exchange) else config.upstream_openai
    own = exchange.path in ("/", "/v1") or exchange.path.startswith(("/v1/", "/api/"))
    if own and _is_anthropic(exchange):
        return config.upstream_anthropic
    if exchange.path.startswith("/v1/"):
        return config.upstream_anthropic if exchange.header("x-api-key") else config.upstream_openai
    raise NoUpstream(f"No provider is known for the path {exchange.path!r}. {_write_advice(exchange)}")


def _has_anthropic_key(exchange: Exchange) -> bool:
    token = exchange.header("authorization").partition(" ")[2].strip()
    return any(key.startswith("sk-ant-") for key in (exchange.header("x-api-key"), token))


def _is_anthropic(exchange: Exchange) -> bool:
    """Does a client of Anthropic's ask? Claude Code asks for paths outside /v1/ as well."""
    named = exchange.header("anthropic-version") or exchange.header("anthropic-beta")
    return bool(named) or _has_anthropic_key(exchange) or exchange.header("user-agent").lower().startswith("claude-")


def _write_advice(exchange: Exchange) -> str:
    host = exchange.header("host") or "127.0.0.1:8787"
    if "/deployments/" in exchange.path or exchange.header("api-key"):
        azure = "https://RESOURCE.openai.azure.com/openai"
        return f"For Azure set upstream_openai to {azure}, and OPENAI_BASE_URL to http://{host}/v1."
    return (
        f"Set OPENAI_BASE_URL to http://{host}/v1 or ANTHROPIC_BASE_URL to http://{host}. For another provider set "
        "upstream_openai or upstream_anthropic to its address without /v1."
    )
