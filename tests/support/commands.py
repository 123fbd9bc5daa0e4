"""Programs that a test runs to their end."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def output_of(command: Sequence[str | Path], **given: Any) -> str:
    """What a program prints. One that fails fails the test, with all that it said."""
    done = subprocess.run(command, capture_output=True, text=True, **{"timeout": 300, **given})
    assert done.returncode == 0, f"{command}\n{done.stdout[-20000:]}\n{done.stderr[-3000:]}"
    return done.stdout
