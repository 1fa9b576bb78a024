"""The shares of file descriptors: clients cannot take those that logs need, nor the reverse."""

import socket
from pathlib import Path

import pytest
from broker_fixture import RunningBroker
from confluent_kafka import Producer

from cordwood.cluster.broker.environment import RESERVE, DescriptorBudget, share_out

UNLIMITED = 1 << 20


def test_where_there_are_enough_the_settings_count() -> None:
    assert share_out(UNLIMITED, 20_000, 10_000) == DescriptorBudget(20_000, 10_000)


@pytest.mark.parametrize("descriptors_max", [64, 256, 1024, 4096, 20_000])
def test_where_there_are_few_a_reserve_is_left(descriptors_max: int) -> None:
    budget = share_out(descriptors_max, 20_000, 10_000)
    assert budget.segments >= budget.connections > 0
    assert budget.segments + budget.connections <= descriptors_max - min(RESERVE, descriptors_max // 4)


def test_few_connections_leave_more_for_segments() -> None:
    assert share_out(1024, 20_000, 100) == DescriptorBudget(668, 100)


def test_more_clients_than_descriptors_cost_no_log_directory(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "data")
    broker.descriptors_max = 160
    broker.start()
    idle: list[socket.socket] = []
    try:
        idle.extend(socket.create_connection(("127.0.0.1", broker.port), timeout=10) for _ in range(400))
        assert sent(broker, 50) == 50
        assert "log_directory.offline" not in broker.output
        assert broker.terminate() == 0
    finally:
        for one in idle:
            one.close()
        broker.stop()
    restarted = broker.start()
    try:
        assert sent(restarted, 1) == 1
    finally:
        restarted.stop()


def sent(broker: RunningBroker, count: int) -> int:
    """Produce `count` records and return the number acknowledged with acks=all."""
    acknowledged = 0

    def done(error: object, _message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "delivery.timeout.ms": 60_000})
    for number in range(count):
        producer.produce("topic", str(number), on_delivery=done)
    producer.flush(60)
    return acknowledged
