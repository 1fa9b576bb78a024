"""Download of jars: concurrent callers share one download."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cordwood.bench.maven import fetch_jars

WANTED = [("org.example", "one", "1.0")]
MAVEN = """#!/bin/sh
echo run >> ../runs
[ "$(wc -l < ../runs)" = 1 ] || exit 1
sleep 0.1
echo jar > one-1.0.jar
"""


def test_those_who_come_together_fetch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mvn").write_text(MAVEN)
    (programs / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    folder = tmp_path / "new" / "jars"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: fetch_jars("the test", WANTED, folder), range(4)))
    assert (folder / "one-1.0.jar").read_text() == "jar\n"
    assert (folder.parent / "runs").read_text() == "run\n"
