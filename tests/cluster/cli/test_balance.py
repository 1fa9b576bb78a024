"""Growth and shrinking of a local cluster with the command line: balance, take back, drain, stop, remove."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_fixture import wait_until
from command import Outcome, in_process
from local_cluster import LocalCluster

from cordwood.cluster.cli.exits import ExitCode

DOWN_S = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Yield a running cluster of three brokers with a topic t on the first two of them."""
    local = LocalCluster(tmp_path / "cluster", brokers=3)
    try:
        local.up("--set", "controlled.shutdown.max.wait.ms=2000", "--voters", "1")
        yield local
    finally:
        local.end()


def run(cluster: LocalCluster, *words: str) -> Outcome:
    return in_process(*words, bootstrap=cluster.bootstrap)


def brokers(cluster: LocalCluster) -> dict[int, dict[str, Any]]:
    listed = run(cluster, "broker", "list", "--json")
    return {row["id"]: row for row in listed.json}


def is_down(cluster: LocalCluster, broker_id: int) -> bool:
    """Return whether the others know that a broker is down. Just after its end a client may still ask it, and fail."""
    listed = run(cluster, "broker", "list", "--json")
    rows = listed.json if listed.exit_code == ExitCode.OK else []
    return any((row["id"], row["state"]) == (broker_id, "down") for row in rows)


def test_a_cluster_is_balanced_taken_back_and_drained(cluster: LocalCluster, tmp_path: Path) -> None:
    assert run(cluster, "broker", "cordon", "3").exit_code == ExitCode.OK
    made = run(cluster, "topic", "create", "t", "--partitions", "6", "--replication-factor", "2")
    assert made.exit_code == ExitCode.OK, made.stderr
    assert [row["replicas"] for row in brokers(cluster).values()] == [6, 6, 0]
    assert brokers(cluster)[3]["state"] == "cordoned"
    assert run(cluster, "balance", "--json").json["moves"] == []
    run(cluster, "broker", "uncordon", "3")

    journal = tmp_path / "moves.json"
    planned = run(cluster, "balance", "--json").json
    assert (planned["is_even"], len(planned["moves"]) > 0) == (True, True)
    assert [row["replicas"] for row in brokers(cluster).values()] == [6, 6, 0]
    done = run(cluster, "balance", "--execute", "--journal", str(journal))
    assert done.exit_code == ExitCode.OK, done.stderr
    assert [(row["replicas"], row["leaders"]) for row in brokers(cluster).values()] == [(4, 2)] * 3
    assert b"not throttled" in run(cluster, "partition", "throttle").stdout

    back = run(cluster, "balance", "--take-back", str(journal))
    assert back.exit_code == ExitCode.OK, back.stderr
    assert [row["replicas"] for row in brokers(cluster).values()] == [6, 6, 0]

    drained = run(cluster, "broker", "drain", "2", "--execute", "--journal", str(journal))
    assert drained.exit_code == ExitCode.OK, drained.stderr
    assert [row["replicas"] for row in brokers(cluster).values()] == [6, 0, 6]
    refused = run(cluster, "broker", "remove", "2")
    assert (refused.exit_code, "stop it first" in refused.stderr) == (ExitCode.FAILED, True)
    in_process("down", "--data-dir", str(cluster.directory), "--broker", "2")
    wait_until(lambda: is_down(cluster, 2), DOWN_S, "broker 2 is down")
    assert run(cluster, "broker", "remove", "2").exit_code == ExitCode.OK
    assert sorted(brokers(cluster)) == [1, 3]


def test_what_is_not_there_is_said(cluster: LocalCluster) -> None:
    unknown = run(cluster, "broker", "drain", "9")
    assert (unknown.exit_code, "there is no broker 9" in unknown.stderr) == (ExitCode.FAILED, True)
    missing = run(cluster, "balance", "--take-back", "missing.json")
    assert (missing.exit_code, "cannot read missing.json" in missing.stderr) == (ExitCode.USAGE, True)
    wrong = run(cluster, "balance", "--throttle", "fast")
    assert (wrong.exit_code, "give bytes per second" in wrong.stderr) == (ExitCode.USAGE, True)
