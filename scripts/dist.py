"""Builds a wheel and an sdist of each package, the SQL as a PGXN distribution, and an SBOM: make dist, or
`python scripts/dist.py FOLDER`. The same sources give the same bytes.

Packages are staged side by side with the one version written in, so that an sdist builds without the checkout. The
wheel of each is built from its sdist. That of the command line brings along what `pg-memoir up` needs: the set-up
scripts, the built SQL, the server's Python code.
"""

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import build_sbom
from build_sql import version
from bundle import LEFT_OUT, lay_out
from pg_memoir_server.models import DEFAULT_MODEL, model_folder

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = "client kernel plpython model cli gateway integrations".split()
OURS = ("pg_memoir", *(f"pg-memoir-{part}" for part in "kernel server model cli gateway integrations".split()))
BUILT_AT = 1767225600
"""The time of every file in a wheel, an sdist and the bundle, in seconds since 1970."""
BUNDLED = "META.json README.md CHANGELOG.md LICENSE SECURITY.md docs/start/installation.md scripts/install.sh".split()


def stage(package: str, folder: Path) -> Path:
    """A copy that depends on nothing around it."""
    made = folder / package
    shutil.copytree(ROOT / package, made, ignore=LEFT_OUT)
    shutil.copy(ROOT / "LICENSE", made)
    (made / "setup.py").unlink(missing_ok=True)
    project = made / "pyproject.toml"
    text = project.read_text("utf-8").replace('dynamic = ["version"]', f'version = "{version()}"')
    text = text.replace('"../plpython"', '"."')
    if package == "cli":
        needs = (made / "dependencies.txt").read_text("utf-8").split()
        text = re.sub(r"dynamic = .*", f'version = "{version()}"\ndependencies = {json.dumps(needs)}', text)
    text = re.sub(r"\n\[tool\.setuptools\.dynamic\]\n[^\[]*", "\n", text)
    ours, tools = text.split("[tool.", 1)
    for name in OURS:  # those of one build go together
        ours = re.sub(rf'(?<!name = )"{re.escape(name)}(\[[a-z,]+\])?"', rf'"{name}\1=={version()}"', ours)
    project.write_text(f"{ours}[tool.{tools}", "utf-8")
    if package == "kernel":
        shutil.copytree(ROOT / "plpython" / "pg_memoir_kernel", made / "pg_memoir_kernel", ignore=LEFT_OUT)
    if package == "model":
        shutil.copytree(str(model_folder(DEFAULT_MODEL)), made / "pg_memoir_model" / "model")
    if package == "cli":
        lay_out(made / "pg_memoir_cli" / "bundle")
    return made


def repack(file: Path) -> None:
    """Writes an sdist anew with one time and owner for all files, in the order of their names."""
    with tarfile.open(file) as old:
        members = sorted(old.getmembers(), key=lambda member: member.name)
        held = [(member, read.read() if (read := old.extractfile(member)) else b"") for member in members]
    with file.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=BUILT_AT) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
            for member, data in held:
                member.mtime, member.uid, member.gid, member.uname, member.gname = BUILT_AT, 0, 0, "", ""
                member.pax_headers = {}
                new.addfile(member, io.BytesIO(data))


def write_bundle(out: Path) -> None:
    """Writes the built SQL with META.json as one zip, which PGXN takes. pip would take it for an sdist beside the others."""
    (out / "pgxn").mkdir()
    name = f"pg_memoir-{version()}"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["bash", ROOT / "scripts" / "build_sql.sh", folder], check=True, stdout=subprocess.DEVNULL)
        files = {file: ROOT / file for file in BUNDLED} | {file.name: file for file in Path(folder).glob("*.sql")}
        with zipfile.ZipFile(out / "pgxn" / f"{name}.zip", "w") as made:
            for held, source in sorted(files.items()):
                entry = zipfile.ZipInfo(f"{name}/{held}", time.gmtime(BUILT_AT)[:6])
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                made.writestr(entry, source.read_bytes())


def main(out: Path) -> list[Path]:
    """Builds everything into a folder, which is emptied first."""
    shutil.rmtree(out, ignore_errors=True)
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(BUILT_AT))
    with tempfile.TemporaryDirectory() as folder:
        for package in PACKAGES:
            source = stage(package, Path(folder))
            command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{package} could not be built\n{done.stdout}{done.stderr}")
    for file in out.glob("*.tar.gz"):
        repack(file)
    write_bundle(out)
    build_sbom.main(out, BUILT_AT)
    return sorted(file for file in out.rglob("*") if file.is_file())


if __name__ == "__main__":
    for file in main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".local" / "dist").resolve()):
        print(f"{file}  {file.stat().st_size // 1024} kB")
