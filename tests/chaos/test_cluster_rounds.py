"""Faults on a real cluster of three: each acknowledged record is on every replica, once and in order."""

import subprocess
import sys
from pathlib import Path

import pytest
from requirements import Requirement, check

from cordwood.chaos.live.clients import Workload
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.cluster_rounds import ClusterRounds
from cordwood.chaos.live.flip_replicas import SETTINGS, WORKLOAD_CONFIGS, flip_replica
from cordwood.chaos.live.kill_leaders import kill_controller, kill_leader
from cordwood.chaos.live.pause_leaders import pause_leader
from cordwood.chaos.live.rolling_restart import restarts

EAGER = {**SETTINGS, "log.scrub.interval.ms": "1000"}
"""Settings of brokers that look for damage each second."""
NO_MEANS = 2
"""Exit code of a command that cannot inject its fault on this machine."""

FAULTS = (
    kill_leader,
    kill_controller,
    lambda run: pause_leader(run, 3.0),
    lambda run: flip_replica(run, "segment"),
    lambda run: flip_replica(run, "index"),
)


def test_kills_pauses_and_rot_cost_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    workload = Workload(topic_configs=WORKLOAD_CONFIGS)
    run = ClusterRounds("faults", LocalCluster(tmp_path, settings=EAGER), tmp_path, workload, seed=1)
    report = run.run(len(FAULTS), lambda run: FAULTS[run.report.rounds](run))
    assert report.anomalies == []
    assert (report.rounds, report.acknowledged > 1000) == (len(FAULTS), True)
    assert {"segment_repaired", "index_repaired"} <= report.times_s.keys()


def test_clients_with_default_settings_notice_no_restart(tmp_path: Path) -> None:
    workload = Workload(is_group=True, settings=(), reader_settings=())
    report = restarts(tmp_path, 1, workload, seed=1)
    assert report.anomalies == []
    assert (report.rounds, report.acknowledged > 200) == (1, True)


@pytest.mark.parametrize("command", [["cut_networks", "--seconds-max", "3"], ["blackouts"]], ids=lambda words: words[0])
def test_a_cut_of_network_or_power_costs_nothing_that_was_acknowledged(tmp_path: Path, command: list[str]) -> None:
    name, *options = command
    ended = subprocess.run(
        [sys.executable, "-m", f"cordwood.chaos.live.{name}", "--rounds", "1", *options],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        check=False,
    )
    check(Requirement.ROOT, ended.returncode != NO_MEANS, ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr
