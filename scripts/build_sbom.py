"""Writes the SBOM of an installation as CycloneDX: `pg-memoir` with all extras, on this system and Python. pip resolves it.

python scripts/build_sbom.py FOLDER     # the folder with our wheels, which scripts/dist.py builds
"""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from build_sql import version
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
WHOLE = "pg-memoir[cli,gateway,kernel,local,worker]"


def resolve(dist: Path) -> list[dict[str, Any]]:
    """Returns what pip would install, with hashes and metadata."""
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    given = ["--find-links", str(dist), "-c", str(ROOT / "requirements" / "constraints.txt"), WHOLE]
    done = subprocess.run([*pip, *given], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pip can't resolve {WHOLE}\n{done.stderr}")
    found: list[dict[str, Any]] = json.loads(done.stdout)["install"]
    return sorted(found, key=lambda entry: canonicalize_name(entry["metadata"]["name"]))


def describe(entry: dict[str, Any]) -> Component:
    """Returns a package as a component, with the hash of its file and the license that it states."""
    told = entry["metadata"]
    name, stated = canonicalize_name(told["name"]), told.get("license_expression") or told.get("license")
    purl = PackageURL("pypi", name=name, version=told["version"])
    content = entry["download_info"]["archive_info"]["hashes"]["sha256"]
    licenses = [LicenseFactory().make_from_string(stated.splitlines()[0])] if stated else []
    return Component(
        name=name,
        version=told["version"],
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=str(purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content)],
        licenses=licenses,
    )


def needs(entry: dict[str, Any], extras: set[str]) -> set[str]:
    """Returns the names of packages that one depends on."""
    wanted = [Requirement(text) for text in entry["metadata"].get("requires_dist", [])]
    is_meant = [not one.marker or any(one.marker.evaluate({"extra": extra}) for extra in extras) for one in wanted]
    return {canonicalize_name(one.name) for one, meant in zip(wanted, is_meant, strict=True) if meant}


def main(dist: Path, made_at: int) -> Path:
    """Writes the SBOM beside the wheels. The same wheels give the same bytes."""
    entries = resolve(dist)
    components: dict[str, Component] = {canonicalize_name(one["metadata"]["name"]): describe(one) for one in entries}
    root = components["pg-memoir"]
    others = [component for component in components.values() if component is not root]
    bom = Bom(components=others, serial_number=uuid5(NAMESPACE_URL, f"pg-memoir {version()}"))
    bom.metadata.component, bom.metadata.timestamp = root, datetime.fromtimestamp(made_at, UTC)
    for entry in entries:
        extras = {"", *entry.get("requested_extras", [])}
        found = needs(entry, extras) & components.keys()
        depends = [components[name] for name in sorted(found)]
        bom.register_dependency(components[canonicalize_name(entry["metadata"]["name"])], depends)
    file = dist / f"pg_memoir-{version()}.cdx.json"
    file.write_text(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1) + "\n")
    return file


if __name__ == "__main__":
    print(main(Path(sys.argv[1]).resolve(), int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())))
