"""Embeddings from any OpenAI-compatible HTTP endpoint, with one deadline over all tries."""

from __future__ import annotations

import email.utils
import math
import os
import stat
import time
from collections.abc import Sequence

_RETRIED = {408, 409, 429, 500, 502, 503, 504}
_LARGEST_REPLY = 256 << 20  # bytes


class HttpEmbedError(RuntimeError):
    """The endpoint didn't answer with embeddings; the message says why, never with the key."""


def read_key(api_key_env: str | None = None, api_key_file: str | None = None) -> str | None:
    """The API key from an environment variable or a file; None when neither is named.

    The variable's name must end in _API_KEY and the file must be readable by its owner alone and hold one short line:
    whoever may set the endpoint must not be able to send other secrets of the server there.
    """
    if api_key_env:
        if not api_key_env.endswith("_API_KEY"):
            raise HttpEmbedError(f"environment variable {api_key_env!r} doesn't end in _API_KEY")
        if not os.environ.get(api_key_env):
            raise HttpEmbedError(f"environment variable {api_key_env} is not set")
        return os.environ[api_key_env]
    if api_key_file:
        try:
            with open(
                api_key_file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
            ) as file:
                info = os.fstat(file.fileno())
                if not stat.S_ISREG(info.st_mode) or info.st_mode & 0o077 or info.st_uid not in (os.geteuid(), 0):
                    raise HttpEmbedError(f"{api_key_file} must be a file of mode 0600 of the server's user")
                content = file.read(1025).strip()
        except OSError as error:
            raise HttpEmbedError(f"can't read key file {api_key_file}: {error.strerror}") from None
        if not 0 < len(content) <= 1024 or not all(33 <= byte < 127 for byte in content):
            raise HttpEmbedError(f"{api_key_file} must hold the key alone, on one line")
        return content.decode("ascii")
    return None


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait by a Retry-After header (seconds or a date); None if there is none or it makes no sense."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - now
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


class HttpEmbedder:
    """A client of one endpoint and model, with a connection pool of its own."""

    def __init__(
        self,
        endpoint: str,
        model: str,
        *,
        api_key_env: str | None = None,
        api_key_file: str | None = None,
        timeout_s: float = 30.0,
        retries: int = 3,
        dimensions: int | None = None,
    ):
        """`endpoint` is the API's base ('http://localhost:11434/v1') or the full path ending in /embeddings."""
        import httpx

        if not endpoint.startswith(("http://", "https://")):
            raise HttpEmbedError(f"endpoint {endpoint!r} is not http(s)")
        base = endpoint.rstrip("/")
        self.url = base if base.endswith("/embeddings") else base + "/embeddings"
        self.model, self.timeout_s, self.retries = model, timeout_s, retries
        self._extra = {"dimensions": dimensions} if dimensions else {}
        self._key = api_key_env, api_key_file
        self._client = httpx.Client(follow_redirects=False)

    def embed(self, texts: Sequence[str], timeout_s: float | None = None) -> list[list[float]]:
        """n texts → n vectors of length 1; raises HttpEmbedError once the deadline or the retries are spent."""
        if not texts:
            return []
        deadline = time.monotonic() + (timeout_s or self.timeout_s)
        problem = "no time left"
        for attempt in range(self.retries + 1):
            wait = min(8.0, 0.25 * 2**attempt)
            try:
                status, header, body = self._post(texts, deadline)
            except HttpEmbedError as error:
                problem = str(error)
            else:
                if status == 200:
                    return self._vectors(body, len(texts))
                problem = f"{self.url} answered {status}: {body[:200].decode('utf-8', 'replace')}"
                if status not in _RETRIED:
                    break
                asked = retry_after(header, time.time())
                wait = wait if asked is None else asked
            if attempt == self.retries or time.monotonic() + wait >= deadline:
                break
            time.sleep(wait)
        raise HttpEmbedError(problem)

    def _post(self, texts: Sequence[str], deadline: float) -> tuple[int, str | None, bytes]:
        import httpx

        left = deadline - time.monotonic()
        if left <= 0:
            raise HttpEmbedError(f"{self.url} didn't answer in time")
        key = read_key(*self._key)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        body = {"model": self.model, "input": list(texts), "encoding_format": "float", **self._extra}
        try:
            with self._client.stream("POST", self.url, json=body, headers=headers, timeout=left) as response:
                received = bytearray()
                # httpx's timeout is per read: a server that trickles must not outlast the deadline.
                for chunk in response.iter_bytes():
                    received += chunk
                    if time.monotonic() > deadline:
                        raise HttpEmbedError(f"{self.url} didn't answer in time")
                    if len(received) > _LARGEST_REPLY:
                        raise HttpEmbedError(f"{self.url} answered with more than {_LARGEST_REPLY} bytes")
                return response.status_code, response.headers.get("retry-after"), bytes(received)
        except httpx.TimeoutException:
            raise HttpEmbedError(f"{self.url} didn't answer in time") from None
        except httpx.HTTPError as error:
            raise HttpEmbedError(f"{self.url}: {error or type(error).__name__}") from None

    def _vectors(self, body: bytes, count: int) -> list[list[float]]:
        import json

        try:
            rows = sorted(json.loads(body)["data"], key=lambda row: row["index"])
            vectors = [[float(value) for value in row["embedding"]] for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise HttpEmbedError(f"{self.url} answered no embeddings: {error!r}") from None
        if (
            [row["index"] for row in rows] != list(range(count))
            or len({len(v) for v in vectors}) != 1
            or not vectors[0]
        ):
            raise HttpEmbedError(f"{self.url} answered {len(vectors)} vectors for {count} texts")
        return [_normalise(vector, self.url) for vector in vectors]


def _normalise(vector: list[float], url: str) -> list[float]:
    length = math.sqrt(math.fsum(value * value for value in vector))
    if not math.isfinite(length) or length == 0:
        raise HttpEmbedError(f"{url} answered a vector of length {length}")
    return [value / length for value in vector]
