"""`cordwood ready`: the result of a health check of a broker that is up, paused or without a quorum."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, free_port, wait_until
from command import Outcome, cordwood, in_process
from local_cluster import LocalCluster

from cordwood.cluster.cli.exits import ExitCode

NOTICE_S = 15.0


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[RunningBroker]:
    """Yield a broker with an HTTP listener, which answers readiness checks."""
    broker = RunningBroker(tmp_path / "data", http_listen=f"0.0.0.0:{free_port()}").start()
    try:
        yield broker
    finally:
        broker.stop()


def asked(broker: RunningBroker) -> Outcome:
    return cordwood("ready", CORDWOOD_HTTP_LISTEN=broker.settings["http.listen"])


def test_a_broker_is_ready_while_it_runs(watched: RunningBroker) -> None:
    wait_until(lambda: asked(watched).exit_code == ExitCode.OK, NOTICE_S, "readiness")
    assert asked(watched).text == "ready\n"
    watched.terminate()
    outcome = asked(watched)
    assert outcome.exit_code == ExitCode.UNREACHABLE
    assert "no broker answers" in outcome.stderr


def test_a_paused_broker_is_not_ready(watched: RunningBroker) -> None:
    wait_until(lambda: asked(watched).exit_code == ExitCode.OK, NOTICE_S, "readiness")
    watched.pause()
    try:
        assert asked(watched).exit_code == ExitCode.UNREACHABLE
    finally:
        watched.resume()


def test_no_broker_is_ready_without_a_majority(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster", brokers=3)

    def survivor() -> Outcome:
        return in_process("ready", "--config", str(cluster.config(3)))

    try:
        cluster.up()
        assert survivor().exit_code == ExitCode.OK
        cluster.kill(1)
        cluster.kill(2)
        wait_until(lambda: survivor().exit_code == ExitCode.FAILED, NOTICE_S, "broker 3 to miss the others")
        assert "has lost contact with the controller" in survivor().stderr
        cluster.up()
        wait_until(lambda: survivor().exit_code == ExitCode.OK, NOTICE_S, "broker 3 to be in touch again")
    finally:
        cluster.end()


def test_a_broker_that_cannot_be_asked_is_a_mistake_in_its_settings() -> None:
    for nowhere in ("", "127.0.0.1:0"):
        outcome = cordwood("ready", "--set", f"http.listen={nowhere}")
        assert outcome.exit_code == ExitCode.USAGE
        assert "http.listen has no port" in outcome.stderr


def test_wrong_settings_are_reported_as_by_serve() -> None:
    outcome = cordwood("ready", "--set", "node.id=one")
    assert outcome.exit_code == ExitCode.USAGE
    assert "node.id" in outcome.stderr
