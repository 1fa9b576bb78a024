"""Operation of three brokers with the command line: start, loss and return of one, status, a reassignment, stop."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_fixture import wait_until
from command import Outcome, cordwood, in_process
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from local_cluster import LocalCluster

from cordwood.client.blocking import connect
from cordwood.cluster.cli.exits import ExitCode

RECOVERED_S = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Yield a running cluster of three brokers with a topic t of three replicas."""
    local = LocalCluster(tmp_path / "cluster", brokers=3)
    try:
        # The last broker to stop waits in vain for other leaders.
        local.up("--set", "controlled.shutdown.max.wait.ms=2000")
        made = run(local, "topic", "create", "t", "--partitions", "3", "--replication-factor", "3")
        assert made.exit_code == ExitCode.OK, made.stderr
        yield local
    finally:
        local.end()


def run(cluster: LocalCluster, *words: str, stdin: bytes = b"") -> Outcome:
    """Run one command on the cluster: `produce` and `consume` as a process, others in this process."""
    if words[0] not in ("produce", "consume"):
        return in_process(*words, bootstrap=cluster.bootstrap)
    return cordwood(*words, bootstrap=cluster.bootstrap, stdin=stdin)


def status(cluster: LocalCluster) -> dict[str, Any]:
    report: dict[str, Any] = run(cluster, "status", "--json").json
    return report


def alive(cluster: LocalCluster) -> list[int]:
    """Return the live brokers; none if `status` fails, as it may after a kill, when the client asks the dead broker."""
    outcome = run(cluster, "status", "--json")
    return alive_in(outcome.json) if outcome.exit_code == ExitCode.OK else []


def alive_in(report: dict[str, Any]) -> list[int]:
    return [broker["id"] for broker in report["brokers"] if broker["alive"]]


def is_whole(cluster: LocalCluster) -> bool:
    report = status(cluster)
    return alive_in(report) == [1, 2, 3] and report["under_replicated"] == report["offline"] == 0


def partition(cluster: LocalCluster, index: int, topic: str = "t") -> dict[str, Any]:
    found: dict[str, Any] = run(cluster, "topic", "describe", topic, "--json").json[0]["partitions"][index]
    return found


def voters_seen_by(address: str) -> list[int]:
    """Return the ids of the voters whose log ends a broker returns in DescribeQuorum."""
    metadata = TopicData(topic_name="__cluster_metadata", partitions=(PartitionData(partition_index=0),))
    with connect(address, RECOVERED_S) as connection:
        answer = connection.ask(DescribeQuorumRequest(topics=(metadata,)))
    [topic] = answer.topics
    [described] = topic.partitions
    return [voter.replica_id for voter in described.current_voters if voter.log_end_offset > 0]


def test_a_broker_is_lost_and_comes_back(cluster: LocalCluster) -> None:
    wait_until(lambda: is_whole(cluster), RECOVERED_S, "all replicas to be in sync")
    for at in range(3):
        assert set(voters_seen_by(f"127.0.0.1:{cluster.port + at}")) == {1, 2, 3}
    assert run(cluster, "cluster", "can-stop", "2").text == "broker 2 may be stopped\n"
    assert run(cluster, "produce", "t", stdin=b"before\n").exit_code == ExitCode.OK

    cluster.kill(2)
    wait_until(lambda: alive(cluster) == [1, 3], RECOVERED_S, "broker 2 to be fenced")
    wait_until(lambda: status(cluster)["offline"] == 0, RECOVERED_S, "others to lead")
    assert status(cluster)["under_replicated"] >= 3
    assert run(cluster, "produce", "t", stdin=b"between\n").exit_code == ExitCode.OK
    assert run(cluster, "cluster", "can-stop", "2").text == "broker 2 is already down\n"
    reasons = run(cluster, "cluster", "can-stop", "1")
    assert reasons.exit_code == ExitCode.FAILED
    assert "min.insync.replicas" in reasons.text
    assert "1 of its 3 voters" in reasons.text

    others = [cluster.broker(1)["pid"], cluster.broker(3)["pid"]]
    cluster.up()
    assert [cluster.broker(1)["pid"], cluster.broker(3)["pid"]] == others
    wait_until(lambda: is_whole(cluster), RECOVERED_S, "broker 2 to be in sync again")
    assert sorted(run(cluster, "consume", "t").lines) == [b"before", b"between"]


def test_what_is_left_without_a_majority_is_shown_and_said_to_be_old(cluster: LocalCluster) -> None:
    wait_until(lambda: is_whole(cluster), RECOVERED_S, "all replicas to be in sync")
    cluster.kill(1)
    cluster.kill(2)
    shown = run(cluster, "status")
    assert shown.exit_code == ExitCode.FAILED
    assert "last known state on broker 3" in shown.text
    assert f"127.0.0.1:{cluster.port + 2}" in shown.text
    assert "no majority of the voters answers (1 of 3)" in shown.stderr
    as_json = run(cluster, "status", "--json")
    assert (as_json.exit_code, as_json.json["is_old"]) == (ExitCode.FAILED, True)
    assert len(as_json.json["partitions"]) == 3
    verdict = run(cluster, "cluster", "can-stop", "3")
    assert verdict.exit_code == ExitCode.FAILED
    assert "no majority of the voters answers (1 of 3)" in verdict.stderr
    for kind in ("group", "transaction"):
        listed = run(cluster, kind, "list", "--json")
        assert (listed.exit_code, listed.json) == (ExitCode.FAILED, [])
        assert "the list is incomplete: broker 1 does not answer" in listed.stderr


def test_a_partition_is_moved_and_led_by_its_preferred_broker(cluster: LocalCluster) -> None:
    assert run(cluster, "produce", "t", stdin=b"a\nb\nc\n").exit_code == ExitCode.OK
    moved = run(cluster, "partition", "move", "t", "0", "--to", "3,1", "--wait")
    assert moved.exit_code == ExitCode.OK, moved.stderr
    assert partition(cluster, 0)["replicas"] == [3, 1]
    assert run(cluster, "partition", "list-moves", "--json").json == []
    elected = run(cluster, "partition", "elect", "t", "0")
    assert elected.exit_code == ExitCode.OK, elected.stderr
    wait_until(lambda: partition(cluster, 0)["leader"] == 3, RECOVERED_S, "broker 3 to lead")
    assert sorted(run(cluster, "consume", "t").lines) == [b"a", b"b", b"c"]


def test_a_throttled_move_shows_what_is_left_and_is_taken_back(cluster: LocalCluster) -> None:
    def moves() -> list[dict[str, Any]]:
        return run(cluster, "partition", "list-moves", "--json").json  # type: ignore[no-any-return]

    assert run(cluster, "topic", "create", "slow", "--replication-factor", "1").exit_code == ExitCode.OK
    assert run(cluster, "produce", "slow", stdin=b"a\nb\nc\n").exit_code == ExitCode.OK
    throttled = run(cluster, "partition", "throttle", "0KiB")
    assert (throttled.exit_code, throttled.text) == (ExitCode.OK, "Moves are throttled to 0 B/s a broker.\n")
    [replica] = partition(cluster, 0, "slow")["replicas"]
    other = replica % 3 + 1
    move = ("partition", "move", "slow", "0")
    assert run(cluster, *move, "--to", str(other)).exit_code == ExitCode.OK
    [shown] = moves()
    assert (shown["topic"], shown["adding"], shown["removing"]) == ("slow", [other], [replica])
    assert shown["bytes_left"] == shown["bytes_total"] > 0
    assert shown["minutes_left"] is None, "nothing is copied"
    assert run(cluster, "produce", "slow", stdin=b"d\n").exit_code == ExitCode.OK, (
        "acks=all needs the old replica alone"
    )
    assert "slow" in run(cluster, "partition", "list-moves").text
    assert run(cluster, *move, "--cancel").exit_code == ExitCode.OK
    assert (moves(), partition(cluster, 0, "slow")["replicas"]) == ([], [replica])
    assert run(cluster, *move, "--to", str(other)).exit_code == ExitCode.OK
    assert run(cluster, "partition", "throttle", "off").text == "Moves are not throttled.\n"
    wait_until(lambda: moves() == [], RECOVERED_S, "the end of the move")
    # The consumer waits for the new leader, if it has to.
    assert sorted(run(cluster, "consume", "slow").lines) == [b"a", b"b", b"c", b"d"]
    assert partition(cluster, 0, "slow")["replicas"] == [other]


def test_all_of_them_stop_and_start_again_with_everything(cluster: LocalCluster) -> None:
    assert run(cluster, "produce", "t", stdin=b"kept\n").exit_code == ExitCode.OK
    stopped = cluster.down()
    assert stopped.text == "broker 1 has stopped\nbroker 2 has stopped\nbroker 3 has stopped\n"
    cluster.up()
    assert run(cluster, "consume", "t").lines == [b"kept"]
