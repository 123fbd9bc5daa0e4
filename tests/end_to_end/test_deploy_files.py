"""The files of deploy/ that other programs read: compose, the Helm chart, and the image, where there is a builder."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import output_of
from frameworks import python_with

pytestmark = [pytest.mark.acceptance, pytest.mark.extended]

ROOT = Path(__file__).resolve().parents[2]
PARSERS = ("helm-python-sdk==0.2.2", "compose-spec==0.2.1", "PyYAML==6.0.3")  # Helm's own code, and a strict parser
READ = """
import json, sys, yaml
from compose_spec import PyCompose
from helm_python import Chart, lint
compose = PyCompose.from_yaml(open("deploy/compose.yaml").read()).to_dict()
given = {"existingSecret": "memoir-password", "storage": {"className": "fast"}}
report = lint("deploy/helm", given, strict=True)
made = Chart.load("deploy/helm").render(given, name="mem")
try:
    refused = str(Chart.load("deploy/helm").render({}, name="mem"))
except Exception as error:
    refused = str(error)
made = {yaml.safe_load(text)["kind"]: yaml.safe_load(text) for text in made.values()}
print(json.dumps({"compose": compose, "report": report, "made": made, "refused": refused}))
"""
BEGUN = "PostgreSQL init process complete"  # until then a server of its own answers
DATA = "/var/lib/postgresql/data"
BASE = "docker.io/library/postgres:{major}-bookworm"


def test_compose_and_chart() -> None:
    told = json.loads(output_of([python_with("deploy", *PARSERS), "-c", READ], cwd=ROOT))
    build = told["compose"]["services"]["db"]["build"]
    assert (ROOT / "deploy" / build["context"] / build["dockerfile"]).is_file()
    assert told["report"]["errors"] == [] and all(one["severity"] < 2 for one in told["report"]["messages"])
    spec = told["made"]["StatefulSet"]["spec"]
    [container] = spec["template"]["spec"]["containers"]
    version = json.loads((ROOT / "META.json").read_text())["version"]
    assert container["image"] == f"pg_memoir:{version}" and container["readinessProbe"]["exec"]
    assert spec["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    assert told["made"]["Service"]["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert "existingSecret: name a secret" in told["refused"]


def buildah(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["buildah", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=1800)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[str]:
    """The name of a container in which the official entry point starts the image that Dockerfile.postgres builds."""
    major = os.environ.get("PG_MAJOR", "17")
    base, made = BASE.format(major=major), "localhost/pg_memoir_test"
    if not shutil.which("buildah"):
        pytest.skip("no buildah here")
    if buildah("inspect", "--type", "image", base).returncode and buildah("pull", base).returncode:
        pytest.skip(f"{base} is not here and can't be pulled")
    given = ["--pull=false", "--build-arg", f"PG_MAJOR={major}", "-f", "Dockerfile.postgres", "-t", made, "."]
    done = buildah("bud", *given)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    name = buildah("from", made).stdout.strip()
    given = ["--env", "POSTGRES_PASSWORD=x", "--env", "POSTGRES_DB=memoir", name, "--", "docker-entrypoint.sh"]
    with (tmp_path / "log").open("w") as log:
        command = ["buildah", "run", *given, "postgres", "-c", "listen_addresses="]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield name
    finally:
        buildah("run", "--user", "postgres", name, "--", "pg_ctl", "stop", "-D", DATA, "-m", "fast", "-w")
        server.wait(60)
        buildah("rm", name)
        buildah("rmi", made)


def test_image_remembers(container: str, tmp_path: Path) -> None:
    """A question is answered by its meaning in the database that the image makes."""
    psql = ["run", "--user", "postgres", container, "--", "psql", "-XAt", "-U", "postgres", "-d", "memoir", "-c"]

    def wait_for(statement: str) -> str:
        end = time.monotonic() + 300
        while not (found := buildah(*psql, statement).stdout.strip()) or BEGUN not in (tmp_path / "log").read_text():
            assert time.monotonic() < end, (tmp_path / "log").read_text()[-3000:]
            time.sleep(2)
        return found

    wait_for("select 1 from cron.job where jobname = 'memoir-embed'")
    told = "select memoir.remember('ann', 'My bicycle is a blue Brompton.') ->> 'outcome'"
    assert buildah(*psql, told).stdout == "stored\n"
    assert wait_for("select content from memoir.recall('ann', 'what do I ride to work?')").startswith("My bicycle")
