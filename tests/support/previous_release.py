"""The previous release, built from its tag: a Python environment with its wheel, kept between runs."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from contextlib import closing
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

from requirements import Requirement, check

ROOT = Path(__file__).resolve().parents[2]
PIN = ROOT / "tests" / "upgrade" / "previous_release.toml"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cordwood-tests"
BUILD_S = 300
FIRST_SETUPTOOLS = 77
"""The oldest setuptools that pyproject.toml allows."""


def previous_python() -> str:
    """Return the path of a Python that has the previous release. Its other packages are those of this Python."""
    commit = _commit()
    name = hashlib.sha256(f"{commit} {sys.prefix} {sys.version}".encode()).hexdigest()[:16]
    place = CACHE / f"release-{name}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"release-{name}.lock").open("w") as lock:
        # Tests of several processes build it once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                _build(commit, Path(scratch))
                (Path(scratch) / "env").rename(place)
    return str(place / "bin" / "python")


def environment(python: str) -> dict[str, str]:
    """Return the environment of a process of this Python. PYTHONPATH may have this release's packages."""
    is_ours = {"PYTHONPATH"} if python != sys.executable else set()
    return {key: value for key, value in os.environ.items() if key not in is_ours and not key.startswith("CORDWOOD_")}


def _commit() -> str:
    """Return the commit of the tag; the pinned one in a clone without tags. Skip without either."""
    pin = tomllib.loads(PIN.read_text())
    for name in (pin["tag"], pin["commit"]):
        found = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if found.returncode == 0:
            commit = found.stdout.decode().strip()
            assert commit == pin["commit"], f"{pin['tag']} is {commit}, but {PIN.name} has {pin['commit']}"
            return str(commit)
    check(Requirement.HISTORY, False, f"neither {pin['tag']} nor {pin['commit']} is in this clone")
    raise AssertionError("unreachable")


def _build(commit: str, scratch: Path) -> None:
    """Build the wheel of a commit, and unpack it into a new environment, `env`."""
    archived = _git("archive", commit)
    assert archived.returncode == 0, archived.stderr.decode()
    with closing(tarfile.open(fileobj=BytesIO(archived.stdout))) as source:
        source.extractall(scratch / "source", filter="tar")
    # Without isolation the build needs no network.
    has_builder = int(version("setuptools").split(".")[0]) >= FIRST_SETUPTOOLS
    words = ["--no-build-isolation"] if has_builder else []
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *words, "--wheel-dir", str(scratch), "."]
    subprocess.run(wheel, cwd=scratch / "source", check=True, timeout=BUILD_S, stdin=subprocess.DEVNULL)
    [built] = scratch.glob("cordwood-*.whl")
    environment = scratch / "env"
    venv.create(environment, symlinks=True)
    [packages] = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(built) as unpacked:
        unpacked.extractall(packages)
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "others.pth").write_text("".join(f"{path}\n" for path in others))
    shutil.rmtree(scratch / "source")


def _git(*words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
