"""Many streams at once through one gateway, and its memory over many requests."""

import asyncio

import pytest

from bench.common import percentile
from bench.gateway import remembered, streamed

pytestmark = [pytest.mark.acceptance, pytest.mark.extended]


def test_two_hundred_streams_at_once_are_the_upstreams_own(memoir_dsn: str) -> None:
    """Byte for byte, and what a managed list takes longer to its first byte is bounded."""
    done = asyncio.run(streamed(memoir_dsn, 200))
    assert {mode: same for mode, (_, same) in done.items()} == dict.fromkeys(("direct", "observe", "manage"), 200)
    passed, managed = (percentile(done[mode][0], 0.95) for mode in ("observe", "manage"))
    assert managed < 3 * passed + 1, (passed, managed)


def test_memory_is_bounded(memoir_dsn: str) -> None:
    """What a process keeps in mind of conversations costs little: of so many more requests it keeps a few megabytes."""
    held = [megabytes for _, megabytes in asyncio.run(remembered(memoir_dsn, 500, 10))]
    assert held[-1] - held[0] < 30, held
