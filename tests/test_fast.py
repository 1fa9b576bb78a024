"""Selection of `--fast`: a file that starts a process, directly or through a module of tests/support, is left out."""

from pathlib import Path

import pytest
from fast import has_slow_imports

SUPPORT = Path(__file__).resolve().parent / "support"


@pytest.mark.parametrize(
    ("line", "is_slow"),
    [
        ("import subprocess", True),
        ("from subprocess import run", True),
        ("from broker_fixture import wait_until", True),
        ("import spark_scenario", True),
        ("from cordwood.chaos.sim.world import World", True),
        ("from cordwood.chaos.sim.quorum_scenario import quorum_story", True),
        ("from cordwood.chaos.sim.disk import SimDisk", False),
        ("from log_fixture import LogFixture", False),
        ("import json", False),
    ],
)
def test_a_file_is_slow_by_what_it_imports(tmp_path: Path, line: str, is_slow: bool) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(line)
    assert has_slow_imports(file) is is_slow
