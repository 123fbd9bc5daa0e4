"""Environments with a framework each, for tests of integrations/."""

import csv
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = dict(
    csv.reader(line for line in (ROOT / "integrations/frameworks.csv").read_text().splitlines() if line[0] != "#")
)
FRAMEWORKS = sorted(set(PACKAGES) - {"framework"})


def python_of(framework: str) -> str:
    """The Python of an environment with the framework, which is made when it is not there."""
    folder = ROOT / ".local" / "frameworks" / framework
    python = str(folder / "bin" / "python")
    if not (folder / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [python, "-m", "pip", "install", "-q", "psycopg[binary]>=3.1.18", "psycopg-pool>=3.2"]
        subprocess.run([*install, *PACKAGES[framework].split()], check=True, timeout=900)
        (folder / "done").touch()
    return python


def surroundings(**more: str) -> dict[str, str]:
    """The environment of a process that imports our packages from the checkout."""
    return os.environ | {"PYTHONPATH": f"{ROOT / 'client'}:{ROOT / 'integrations'}"} | more
