"""Jars from Maven Central, fetched once and kept in a folder."""

import fcntl
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from cordwood.bench.systems import CannotRun

Artifact = tuple[str, str, str]
"""Group, name and version."""

_NOTHING_MORE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def fetch_jars(what: str, artifacts: Iterable[Artifact], folder: Path, *, with_dependencies: bool = True) -> None:
    """Copy the jars to `folder` with Maven. The folder gets its name only when it is complete.

    Processes that fetch the same folder take turns. Raises CannotRun with a sentence on `what` the jars are for.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(what, artifacts, folder, "" if with_dependencies else _NOTHING_MORE)


def _fetch(what: str, artifacts: Iterable[Artifact], folder: Path, exclusions: str) -> None:
    if shutil.which("mvn") is None:
        raise CannotRun(f"{what} is left out: there is no `mvn` on this machine.")
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    (part / "pom.xml").write_text(_project(artifacts, exclusions))
    maven = subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=."],
        cwd=part,
        capture_output=True,
        text=True,
        check=False,
    )
    if maven.returncode != 0:
        raise CannotRun(f"{what} is left out: Maven could not fetch it.\n{maven.stdout[-2000:]}")
    part.rename(folder)


def _project(artifacts: Iterable[Artifact], exclusions: str) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{exclusions}</dependency>"
        for group, name, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>cordwood.bench</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
