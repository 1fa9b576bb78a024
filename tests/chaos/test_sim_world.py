"""Whole simulated clusters: a seed is a run, healthy code breaks no promise, and code without a rule does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cordwood
from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.run import run_plan, run_seed

ROOT = Path(cordwood.__file__).resolve().parent.parent.parent
PACKAGES = ("src", "storage", "replication", "cluster", "chaos")

WATERMARK_WAITS_FOR_FOLLOWERS = "            end = min(end, view.flushed_end)\n"
KEPT_IS_FLUSHED = "return log.log_end if log.config.flush_policy is FlushPolicy.OS else log.flushed_end"


def sim(*options: str, source: Path = ROOT / "src", hash_seed: str = "0") -> tuple[int, dict[str, object]]:
    """`cordwood chaos sim` in a process of its own: its exit code, and its verdict."""
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(source)}
    command = [sys.executable, "-m", "cordwood.chaos.cli", "sim", "--json", "--no-shrink", *options]
    ended = subprocess.run(command, env=environ, cwd=source, capture_output=True, text=True, timeout=110)
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout.splitlines()[-1])


def without(rule: str, instead: str, path: str, folder: Path) -> Path:
    """A copy of the source in which one rule is replaced. Returns the folder to import it from."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    changed = folder / path
    text = changed.read_text()
    assert text.count(rule) == 1, f"{path} has changed: {rule!r} is not there once"
    changed.write_text(text.replace(rule, instead))
    return folder / "src"


def test_two_processes_run_a_seed_alike_to_the_last_byte() -> None:
    one, other = (sim("--seed", "3", "--seconds", "8", hash_seed=hash_seed) for hash_seed in ("1", "77"))
    assert one == other
    assert one[0] == 0
    assert one[1]["acknowledged"]


def test_two_seeds_are_two_runs() -> None:
    assert run_seed(1, 3.0).trace_hash != run_seed(2, 3.0).trace_hash


@pytest.mark.parametrize("seed", range(1, 6))
def test_healthy_code_breaks_no_promise(seed: int) -> None:
    run = run_seed(seed, 10.0)
    assert run.findings == ()
    assert run.faults, "nothing went wrong, so nothing was shown"
    assert run.read >= run.acknowledged > 0


def test_a_fault_that_is_left_out_does_not_strike() -> None:
    plan = plan_of(1, 5.0)
    assert plan.faults
    run = run_plan(plan, [])
    assert run.faults == {}
    assert run.is_sound


def test_an_acknowledgement_before_the_disk_has_it_is_found(tmp_path: Path) -> None:
    source = without(KEPT_IS_FLUSHED, "return log.log_end", "replication/partition.py", tmp_path)
    exit_code, verdict = sim("--seeds", "6..9", "--seconds", "15", source=source)
    assert exit_code == 1
    assert "rule-1" in verdict["kinds"]  # type: ignore[operator]


def test_a_watermark_that_waits_for_nobody_is_found(tmp_path: Path) -> None:
    source = without(WATERMARK_WAITS_FOR_FOLLOWERS, "            pass\n", "replication/leader.py", tmp_path)
    exit_code, verdict = sim("--seeds", "1..5", "--seconds", "10", source=source)
    assert exit_code == 1
    assert "rule-1" in verdict["kinds"]  # type: ignore[operator]
