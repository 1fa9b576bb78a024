"""A build without segment syncs: `cordwood chaos run` cuts the power of brokers and reports the lost records."""

import json
import os
import subprocess
import sys
from pathlib import Path

from lost_records import assert_lost_records_are_shown
from requirements import Requirement, check, needs

from cordwood.chaos.live import local_target
from cordwood.chaos.mutants.catalogue import BY_NAME
from cordwood.chaos.mutants.hunt import copied

RUN_S = 300
POWER_CUT_OF_ALL_FIRST = "200"
"""A seed whose first fault, after 3 s, is a power cut of all brokers."""


@needs(Requirement.LONG_TESTS, "LONG_TESTS" in os.environ, "takes two minutes: set LONG_TESTS=1")
def test_records_that_no_disk_ever_had_are_lost_and_shown(tmp_path: Path) -> None:
    why_not = local_target.reasons().get("power-cut")
    check(Requirement.ROOT, why_not is None, str(why_not))
    copied(tmp_path, BY_NAME["no-segment-sync"])
    words = ["--faults", "power-cut", "--minutes", "0.15", "--seed", POWER_CUT_OF_ALL_FIRST, "--json"]
    ended = subprocess.run(
        [sys.executable, "-m", "cordwood.chaos.cli", "run", *words],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        cwd=tmp_path,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert ended.stdout, ended.stderr
    verdict = json.loads(ended.stdout.splitlines()[-1])
    assert verdict["faults"] == {"power-cut": 1}
    assert_lost_records_are_shown(verdict, tmp_path / f"cordwood-chaos-{POWER_CUT_OF_ALL_FIRST}.html")
