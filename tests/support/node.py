"""Programs of npm, as scripts/setup.sh --acceptance installs them for the checkout."""

import os
import subprocess
from pathlib import Path

import pytest

MODULES = Path(__file__).resolve().parents[2] / ".local" / "node" / "node_modules"


def program(name: str, *arguments: str, timeout: int = 300) -> subprocess.CompletedProcess[str]:
    """Runs one; its output is captured."""
    if not (MODULES / ".bin" / name).exists():
        pytest.fail(f"{name} is not installed: scripts/setup.sh --acceptance installs it")
    path = f"{MODULES / 'node' / 'bin'}:{os.environ['PATH']}"
    command = [str(MODULES / ".bin" / name), *arguments]
    given = {"env": os.environ | {"PATH": path}, "timeout": timeout, "check": False}
    return subprocess.run(command, capture_output=True, text=True, **given)
