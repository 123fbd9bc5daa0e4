"""The version is written once, in the client; this package goes with it.

Built in a checkout, it depends on the packages beside it and brings along what `pg-memoir up` needs. So
`pip install ./client ./cli` is as good as pg-memoir[local]. scripts/dist.py builds what is published, without this
file.
"""

import re
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
IS_CHECKOUT = (ROOT / "scripts" / "bundle.py").is_file()
BESIDE = {"kernel": "kernel", "server": "plpython", "model": "model", "gateway": "gateway"}


class BuildWithBundle(build_py):
    """Adds what scripts/dist.py adds."""

    def run(self) -> None:
        super().run()
        if IS_CHECKOUT and not self.editable_mode:
            sys.path.insert(0, str(ROOT / "scripts"))
            from bundle import lay_out

            made = Path(self.build_lib, "pg_memoir_cli", "bundle").resolve()
            shutil.rmtree(made, ignore_errors=True)
            lay_out(made)


client = ROOT / "client" / "pg_memoir" / "__init__.py"
found = re.search(r'^__version__ = "([^"]+)"', client.read_text("utf-8"), re.M) if client.is_file() else None
beside = [f"pg-memoir-{name} @ {(ROOT / folder).as_uri()}" for name, folder in BESIDE.items()]
setup(
    version=found[1] if found else "0.0.0",
    install_requires=[
        *(HERE / "dependencies.txt").read_text("utf-8").split(),
        *([*beside, "pg_memoir[local]"] if IS_CHECKOUT else []),
    ],
    setup_requires=["confusable-homoglyphs"] if IS_CHECKOUT else [],
    cmdclass={"build_py": BuildWithBundle},
)
