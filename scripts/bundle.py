"""Lays out what `pg-memoir up` needs beside the command line: set-up scripts, built SQL, the server's Python code.

scripts/dist.py and the setup.py of a checkout put it into the wheel of the command line. It needs confusable-homoglyphs.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = "common cluster setup setup_python install build_pgvector end_orphans ../deploy/server_settings".split()
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".*")


def lay_out(folder: Path) -> None:
    """Writes it into a new folder."""
    (folder / "deploy").mkdir(parents=True)
    (folder / "scripts").mkdir()
    for script in SCRIPTS:
        shutil.copy(ROOT / "scripts" / f"{script}.sh", folder / "scripts" / f"{script}.sh")
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    for package in ("pg_memoir_server", "pg_memoir_language", "pg_memoir_kernel"):
        shutil.copytree(ROOT / "plpython" / package, folder / "plpython" / package, ignore=LEFT_OUT)
    command: list[str | Path] = ["bash", ROOT / "scripts" / "build_sql.sh", folder / "build"]
    subprocess.run(command, env=os.environ | {"PG_MEMOIR_PYTHON": sys.executable}, check=True)
