"""The audit log of a broker: on if clients authenticate or if asked for, and continued by the next start."""

import json
import random
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, wait_until
from command import cordwood
from quorum_fixture import run_here

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.broker.audit import audit_log
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.security.audit.files import verify
from cordwood.cluster.security.audit.log import NO_AUDIT
from cordwood.storage.real_disk import RealDisk


@pytest.mark.parametrize(("enable", "is_on"), [("auto", False), ("on", True), ("off", False)])
def test_an_open_broker_has_an_audit_log_only_if_asked_for(enable: str, *, is_on: bool) -> None:
    disk = SimulatedDisk(random.Random(1))
    log = audit_log(Settings(audit_log_enable=enable), disk, run_here, lambda: 0)
    assert (log is not NO_AUDIT) == is_on


def test_acts_over_a_restart_are_one_chain(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "data", audit_log_enable="on")
    for topic in ("first", "second"):
        broker.start()
        assert cordwood("topic", "create", topic, bootstrap=broker.bootstrap).exit_code == 0
        broker.stop()
    directory = tmp_path / "data" / "audit"
    rows = [json.loads(line) for file in directory.iterdir() for line in file.read_text().splitlines()]
    assert [(row["action"], row["resource"]) for row in rows] == [
        ("AUDIT_BEGINS", ""),
        ("CREATE_TOPICS", "TOPIC:first"),
        ("AUDIT_BEGINS", ""),
        ("CREATE_TOPICS", "TOPIC:second"),
    ]
    assert (rows[1]["principal"], rows[1]["host"]) == ("User:ANONYMOUS", "127.0.0.1")
    assert verify(RealDisk(), str(directory))[2] is None


def test_lines_are_also_records_of_the_audit_topic_which_clients_only_read(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "data", audit_log_enable="on", audit_log_topic_enable="true").start()
    try:
        assert cordwood("topic", "create", "orders", bootstrap=broker.bootstrap).exit_code == 0

        def is_there() -> bool:
            read = cordwood("consume", "__audit", bootstrap=broker.bootstrap)
            return any(json.loads(line)["resource"] == "TOPIC:orders" for line in read.lines)

        wait_until(is_there, 60, "the line in the topic")
        refused = cordwood("produce", "__audit", stdin=b"forged\n", bootstrap=broker.bootstrap)
        assert refused.exit_code == 1
    finally:
        broker.stop()
