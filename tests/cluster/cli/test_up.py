"""`cordwood up` and `cordwood down` with one broker: start, restart, foreground, settings and stop."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import cordwood
from local_cluster import PORTS_APART, LocalCluster

from cordwood.cluster.cli.exits import ExitCode


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Yield an empty place for a cluster of one broker."""
    local = LocalCluster(tmp_path / "cluster", brokers=1)
    try:
        yield local
    finally:
        local.end()


def test_it_prints_the_bootstrap_servers_once_they_can_be_used(cluster: LocalCluster) -> None:
    started = cluster.up()
    assert started.text == f"{cluster.bootstrap}\n"
    assert cordwood("topic", "create", "t", bootstrap=started.text.strip()).exit_code == ExitCode.OK


def test_cluster_json_says_where_everything_is(cluster: LocalCluster) -> None:
    cluster.up()
    [broker] = cluster.brokers
    assert broker == {
        "id": 1,
        "pid": broker["pid"],
        "kafka": f"127.0.0.1:{cluster.port}",
        "http": f"127.0.0.1:{cluster.port + PORTS_APART}",
        "data": str(cluster.directory / "broker-1" / "data"),
    }
    assert cluster.is_running()
    assert any(Path(broker["data"]).iterdir())


def test_up_again_starts_only_what_does_not_run(cluster: LocalCluster) -> None:
    cluster.up()
    before = cluster.brokers
    cluster.up()
    assert cluster.brokers == before
    cordwood("topic", "create", "kept", bootstrap=cluster.bootstrap)
    cluster.kill()
    assert cluster.up().text == f"{cluster.bootstrap}\n"
    [after] = cluster.brokers
    assert after["pid"] != before[0]["pid"]
    assert {**after, "pid": 0} == {**before[0], "pid": 0}
    assert [topic["name"] for topic in cordwood("topic", "list", "--json", bootstrap=cluster.bootstrap).json] == [
        "kept"
    ]


def test_settings_are_in_a_file_that_the_user_may_edit(cluster: LocalCluster) -> None:
    cluster.up("--set", "num.partitions=2")
    assert cluster.config().stat().st_mode & 0o077 == 0, "it may have the cluster's secret in it"
    cluster.down()
    cluster.config().write_text(
        cluster.config().read_text().replace('"num.partitions" = 2', "num.partitions = 5 # mine")
    )
    cluster.up()
    cordwood("topic", "create", "t", bootstrap=cluster.bootstrap)
    [topic] = cordwood("topic", "list", "--json", bootstrap=cluster.bootstrap).json
    assert topic["partitions"] == 5
    assert "# mine" in cluster.config().read_text()


def test_set_again_is_written_and_counts_from_the_next_start(cluster: LocalCluster) -> None:
    cluster.up()
    assert "at their next start" in cluster.up("--set", "num.partitions=6").stderr
    assert '"num.partitions" = 6' in cluster.config().read_text()


def test_the_environment_says_nothing_to_brokers(cluster: LocalCluster) -> None:
    cluster.up(CORDWOOD_NODE_ID="9", CORDWOOD_LISTENERS="nonsense")
    assert cluster.is_running()


def test_a_process_that_took_the_number_of_a_broker_is_left_alone(cluster: LocalCluster) -> None:
    cluster.up()
    cluster.down()
    record = cluster.directory / "cluster.json"
    record.write_text(record.read_text().replace(f'"pid": {cluster.broker(1)["pid"]}', f'"pid": {os.getpid()}'))
    assert "No broker" in cluster.down().text
    cluster.up()
    assert cluster.broker(1)["pid"] != os.getpid()


def test_down_is_clean_and_may_be_said_twice(cluster: LocalCluster) -> None:
    cluster.up()
    assert cluster.down().text == "broker 1 has stopped\n"
    assert not cluster.is_running()
    again = cluster.down()
    assert (again.exit_code, again.text) == (ExitCode.OK, f"No broker of {cluster.directory} is running.\n")
    assert "broker.stopped" in (cluster.directory / "broker-1" / "broker.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_it_stops_its_brokers_at_the_end(cluster: LocalCluster, number: signal.Signals) -> None:
    following = cluster.follow()
    assert cluster.is_running()
    following.send_signal(number)
    _, said = following.communicate(timeout=30)
    assert following.returncode == ExitCode.OK, said
    assert b"broker 1 has stopped" in said
    assert not cluster.is_running()


def test_in_the_foreground_it_reports_the_end_of_a_broker(cluster: LocalCluster) -> None:
    following = cluster.follow()
    pid = cluster.broker(1)["pid"]
    cluster.kill()
    _, said = following.communicate(timeout=30)
    assert f"broker 1 (process {pid}) was killed by signal 9" in said.decode()
    assert f"cordwood up --data-dir {cluster.directory}" in said.decode()
    assert following.returncode == ExitCode.FAILED


def test_a_port_that_is_taken_is_named_and_nothing_is_written(cluster: LocalCluster) -> None:
    with socket.create_server(("127.0.0.1", cluster.port)):
        refused = cluster.try_up("--brokers", "1", "--port", str(cluster.port))
    assert refused.exit_code == ExitCode.FAILED
    assert f"127.0.0.1:{cluster.port}" in refused.stderr
    assert not cluster.directory.exists()
    cluster.up()


def test_a_broker_that_cannot_start_is_quoted(cluster: LocalCluster) -> None:
    cluster.up()
    cluster.down()
    data = Path(cluster.broker(1)["data"])
    data.rename(data.with_name("elsewhere"))
    data.write_text("no directory")
    refused = cluster.try_up()
    assert refused.exit_code == ExitCode.FAILED
    assert "broker 1 ended with exit code 1 before it was ready" in refused.stderr
    assert "the broker cannot start" in refused.stderr


def test_a_directory_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    refused = LocalCluster(tmp_path / "file" / "cluster", brokers=1).try_up("--brokers", "1")
    assert refused.exit_code == ExitCode.USAGE
    assert refused.stderr.startswith("cordwood: cannot ")
    assert str(tmp_path / "file") in refused.stderr


def test_there_is_nothing_to_stop_where_no_cluster_is(tmp_path: Path) -> None:
    outcome = cordwood("down", "--data-dir", str(tmp_path))
    assert outcome.exit_code == ExitCode.USAGE
    assert "--data-dir" in outcome.stderr
