"""Environments with a framework each, for tests of integrations/."""

import csv
import fcntl
import os
import subprocess
import sys
from itertools import pairwise
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
    files = [(ROOT / file).read_text() for option, file in pairwise(packages) if option == "-r"]
    want = " ".join((*packages, *files))
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes of the test run want it too
        if not done.exists() or done.read_text() != want:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *packages], cwd=ROOT, check=True, timeout=900)
            done.write_text(want)
    return python


def surroundings(**more: str) -> dict[str, str]:
    """The environment of a process that imports our packages from the checkout."""
    return os.environ | {"PYTHONPATH": f"{ROOT / 'client'}:{ROOT / 'integrations'}"} | more
