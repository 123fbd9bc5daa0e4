"""HTTP as uvicorn speaks it, with bounds for what comes before a request: uvicorn waits forever for the end of the
headers, and takes headers of any size."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 20.0  # from a connection, or from the first byte of a later request on it, to the end of its headers
HEADER_BYTES = 128 << 10  # longer headers are no request


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections that do not come to a request."""

    _deadline: asyncio.TimerHandle | None = None
    _bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            return self._stop()  # the headers are there
        self._bytes += len(data)
        self._wait()
        if self._bytes > HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response(f"Headers of over {HEADER_BYTES} bytes.")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop(self) -> None:
        self._bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
