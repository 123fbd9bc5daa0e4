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
    return python_with(framework, "psycopg[binary]>=3.1.18", "psycopg-pool>=3.2", *PACKAGES[framework].split())


def python_with(name: str, *packages: str) -> str:
    """The Python of an environment with these arguments of pip install, made anew when they have changed."""
    folder = ROOT / ".local" / "frameworks" / name
    python, done = str(folder / "bin" / "python"), folder / "done"
    if not done.exists() or done.read_text() != " ".join(packages):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], cwd=ROOT, check=True, timeout=900)
        done.write_text(" ".join(packages))
    return python


def surroundings(**more: str) -> dict[str, str]:
    """The environment of a process that imports our packages from the checkout."""
    return os.environ | {"PYTHONPATH": f"{ROOT / 'client'}:{ROOT / 'integrations'}"} | more
