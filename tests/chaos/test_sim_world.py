"""Whole simulated clusters: a seed determines the run, sound code breaks no promise, and mutants are detected."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lost_records import assert_lost_records_are_shown
from typer.testing import CliRunner

import cordwood
from cordwood.chaos.cli import app
from cordwood.chaos.mutants.catalogue import BY_NAME
from cordwood.chaos.mutants.hunt import copied
from cordwood.chaos.mutants.mutant import Mutant, Scenario
from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.run import run_plan, run_seed

SOURCE = Path(cordwood.__file__).resolve().parent.parent
OF_THE_WALL_CLOCK = ("wall_seconds", "simulated_seconds_per_wall_second")

COUNTS_BEFORE_THE_DISK = BY_NAME["acknowledge-before-sync"]
WAITS_FOR_NOBODY = Mutant(
    "watermark-waits-for-nobody",
    "replication/leader.py",
    "            end = min(end, view.flushed_end)\n",
    "            pass\n",
    "Every running member of the in-sync set has on disk what is committed (rule 1).",
    "In the rule itself.",
    Scenario.BROKERS,
)
SYNCS_NOTHING = BY_NAME["no-segment-sync"]


@dataclass(frozen=True)
class Ended:
    """The result of a `cordwood chaos sim` process."""

    exit_code: int
    lines: list[str]
    verdict: dict[str, Any]


def sim(*options: str, source: Path = SOURCE, hash_seed: str = "0") -> Ended:
    """Run `cordwood chaos sim` in a process of its own."""
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(source)}
    command = [sys.executable, "-m", "cordwood.chaos.cli", "sim", "--json", "--no-shrink", *options]
    ended = subprocess.run(command, env=environ, cwd=source, capture_output=True, text=True, timeout=110)
    assert ended.stdout, ended.stderr
    *lines, verdict = ended.stdout.splitlines()
    return Ended(ended.returncode, lines, json.loads(verdict))


def test_two_processes_run_a_seed_alike_to_the_last_byte() -> None:
    one, other = (sim("--seed", "3", "--seconds", "4", hash_seed=hash_seed) for hash_seed in ("1", "77"))
    for ended in (one, other):
        for name in OF_THE_WALL_CLOCK:
            assert ended.verdict.pop(name) > 0
    assert one.verdict == other.verdict
    assert one.exit_code == other.exit_code == 0
    assert one.verdict["acknowledged"]


def test_two_seeds_are_two_runs() -> None:
    assert run_seed(1, 3.0).trace_hash != run_seed(2, 3.0).trace_hash


@pytest.mark.parametrize("seed", range(1, 6))
def test_healthy_code_breaks_no_promise(seed: int) -> None:
    run = run_seed(seed, 10.0)
    assert run.findings == ()
    assert run.faults, "nothing went wrong, so nothing was shown"
    assert run.read >= run.acknowledged > 0


def test_a_new_leader_returns_no_watermark_that_is_a_step_back() -> None:
    """Seed 100: a new leader below min.insync.replicas must not answer with the high watermark it had as a follower."""
    assert run_seed(100, 30.0).findings == ()


def test_a_fault_that_is_left_out_does_not_strike() -> None:
    plan = plan_of(1, 5.0)
    assert plan.faults
    run = run_plan(plan, [])
    assert run.faults == ()
    assert run.is_sound


@pytest.mark.parametrize("change", [COUNTS_BEFORE_THE_DISK, WAITS_FOR_NOBODY], ids=lambda change: change.name)
def test_an_acknowledgement_before_the_disks_have_it_is_found(change: Mutant, tmp_path: Path) -> None:
    copied(tmp_path, change)
    ended = sim("--seeds", "6..9", "--seconds", "15", "--report", str(tmp_path / "report.html"), source=tmp_path)
    assert ended.exit_code == 1
    assert "rule-1" in ended.verdict["kinds"]


def test_records_that_were_never_synced_are_lost_and_shown(tmp_path: Path) -> None:
    copied(tmp_path, SYNCS_NOTHING)
    ended = sim("--seeds", "46..49", "--seconds", "8", source=tmp_path)
    assert ended.exit_code == 1
    seed = ended.verdict["seed"]
    assert ended.lines[0].startswith(f"seed {seed} fails at commit ")
    assert ended.lines[0].endswith(f"cordwood chaos replay --seed {seed} --seconds 8")
    report = tmp_path / f"cordwood-chaos-sim-{seed}.html"
    assert_lost_records_are_shown(ended.verdict, report)
    assert "blackout" in report.read_text(encoding="utf-8")


def test_a_report_of_a_sound_seed_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    place = tmp_path / "sound.html"
    ended = sim("--seed", "2", "--seconds", "3", "--report", str(place))
    assert ended.exit_code == 0
    report = place.read_text(encoding="utf-8")
    assert ended.verdict["trace_hash"] in report
    assert "cordwood chaos replay --seed 2 --seconds 3" in report
    assert "None." in report


def test_a_place_where_no_report_can_be_is_refused_before_the_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["sim", "--seed", "2", "--report", str(tmp_path / "nowhere" / "report.html")])
    assert result.exit_code == 2
    assert "cannot be written" in result.output
