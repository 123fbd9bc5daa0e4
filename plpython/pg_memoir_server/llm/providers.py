"""The providers: Anthropic through its package, every OpenAI-compatible server over plain HTTP. One try a call, no
retries here."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

from ..http_embed import HttpEmbedError, read_key, retry_after

_RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_LARGEST_REPLY = 16 << 20  # bytes


class CallFailed(RuntimeError):
    """No answer. `again`: another try may help; `wait`: not before so many seconds, as the server said."""

    def __init__(self, problem: str, *, again: bool, wait: float | None = None) -> None:
        super().__init__(problem)
        self.again, self.wait = again, wait


@dataclass(frozen=True)
class Completion:
    text: str
    prompt_tokens: int
    completion_tokens: int
    complete: bool  # neither cut off at max_tokens nor refused


def key_of(provider: str) -> str | None:
    """PG_MEMOIR_LLM_API_KEY, a file named by PG_MEMOIR_LLM_API_KEY_FILE, or the provider's usual variable."""
    try:
        if os.environ.get("PG_MEMOIR_LLM_API_KEY"):
            return read_key("PG_MEMOIR_LLM_API_KEY")
        if os.environ.get("PG_MEMOIR_LLM_API_KEY_FILE"):
            return read_key(api_key_file=os.environ["PG_MEMOIR_LLM_API_KEY_FILE"])
    except HttpEmbedError as error:
        raise CallFailed(str(error), again=False) from None
    return os.environ.get({"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}[provider]) or None


class Anthropic:
    """The Messages API. `endpoint` empty: Anthropic's own."""

    def __init__(self, model: str, endpoint: str, key: str | None) -> None:
        try:
            import anthropic
        except ImportError:
            raise CallFailed("the package anthropic is not installed for the server's Python", again=False) from None
        if not key:
            raise CallFailed(
                "no API key: set PG_MEMOIR_LLM_API_KEY or PG_MEMOIR_LLM_API_KEY_FILE where the job runs", again=False
            )
        self._errors, self._model = anthropic, model
        self._client = anthropic.Anthropic(api_key=key, base_url=endpoint or None, max_retries=0)

    def complete(self, system: str, messages: list[dict[str, str]], max_tokens: int, timeout: float) -> Completion:
        try:
            answer = self._client.messages.create(
                model=self._model,
                system=system,
                messages=messages,  # type: ignore[arg-type]
                max_tokens=max_tokens,
                timeout=timeout,
            )
        except self._errors.APIStatusError as error:
            raise _by_status(error.status_code, error.response.headers.get("retry-after"), str(error)) from None
        except self._errors.APIConnectionError as error:
            raise CallFailed(f"no answer: {error.__cause__ or error}", again=True) from None
        except (self._errors.AnthropicError, ValueError) as error:
            raise CallFailed(f"no usable answer: {error}", again=True) from None
        try:
            usage = answer.usage
            read = sum(
                getattr(usage, name, 0) or 0
                for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
            )
            text = "".join(block.text for block in answer.content if block.type == "text")
            return Completion(text, read, usage.output_tokens or 0, answer.stop_reason not in ("max_tokens", "refusal"))
        except (TypeError, AttributeError) as error:
            raise CallFailed(f"no usable answer: {error}", again=True) from None


class OpenAI:
    """POST endpoint/chat/completions: OpenAI, vLLM, Ollama, llama.cpp and whatever else speaks it. A key is sent if
    there is one."""

    def __init__(self, model: str, endpoint: str, key: str | None) -> None:
        import httpx

        self._httpx, self._model = httpx, model
        self._limit = "max_tokens"  # OpenAI's newer models want another name, other servers know this one only
        base = (endpoint or "https://api.openai.com/v1").rstrip("/")
        if not base.startswith(("http://", "https://")):
            raise CallFailed(f"endpoint {endpoint!r} is not http(s)", again=False)
        self._url = base if base.endswith("/chat/completions") else base + "/chat/completions"
        self._client = httpx.Client(headers={"authorization": f"Bearer {key}"} if key else {}, follow_redirects=False)

    def complete(self, system: str, messages: list[dict[str, str]], max_tokens: int, timeout: float) -> Completion:
        body = {
            "model": self._model,
            "messages": [{"role": "system", "content": system}, *messages],
            self._limit: max_tokens,
        }
        try:
            with self._client.stream("POST", self._url, json=body, timeout=timeout) as response:
                parts, size, end = [], 0, time.monotonic() + timeout
                for part in response.iter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > _LARGEST_REPLY or time.monotonic() > end:
                        raise CallFailed(
                            "the answer is too large" if size > _LARGEST_REPLY else "the answer takes too long",
                            again=True,
                        )
                data = b"".join(parts)
        except self._httpx.HTTPError as error:
            raise CallFailed(f"no answer: {error or type(error).__name__}", again=True) from None
        if response.status_code == 400 and b"max_completion_tokens" in data and self._limit == "max_tokens":
            self._limit = "max_completion_tokens"
            return self.complete(system, messages, max_tokens, timeout)
        if response.status_code != 200:
            raise _by_status(
                response.status_code, response.headers.get("retry-after"), data[:300].decode("utf-8", "replace")
            )
        try:
            answer = json.loads(data)
            choice, usage = answer["choices"][0], answer.get("usage") or {}
            text = choice["message"].get("content") or ""
            return Completion(str(text), int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0),
                              choice.get("finish_reason") not in ("length", "content_filter")
                              and not choice["message"].get("refusal"))  # fmt: skip
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise CallFailed(f"no usable answer: {type(error).__name__} {error}", again=True) from None


def make(config: dict[str, Any]) -> Anthropic | OpenAI:
    """The provider of a configuration {"provider", "model", "endpoint"}."""
    kinds: dict[str, type[Anthropic] | type[OpenAI]] = {"anthropic": Anthropic, "openai": OpenAI}
    if config["provider"] not in kinds:
        raise CallFailed(f"unknown provider {config['provider']!r}", again=False)
    return kinds[config["provider"]](config["model"], config.get("endpoint") or "", key_of(config["provider"]))


def _by_status(status: int, header: str | None, text: str) -> CallFailed:
    wait = retry_after(header, time.time())
    return CallFailed(
        f"the server answered {status}: {' '.join(text.split())[:300]}", again=status in _RETRIED, wait=wait
    )
