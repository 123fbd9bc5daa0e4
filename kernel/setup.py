"""The version is written once, in the client; this package goes with it."""

import re
from pathlib import Path

from setuptools import setup

client = Path(__file__).resolve().parent.parent / "client" / "pg_memoir" / "__init__.py"
found = re.search(r'^__version__ = "([^"]+)"', client.read_text("utf-8"), re.M) if client.is_file() else None
setup(version=found[1] if found else "0.0.0")
