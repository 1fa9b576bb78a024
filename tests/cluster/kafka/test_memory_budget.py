"""Memory attacks on a running broker: its resident memory is bounded, and a bystander is served (promise 6)."""

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, wait_until
from confluent_kafka.admin import AdminClient, NewTopic
from memory_attacks import (
    METADATA,
    Resident,
    connections,
    fetch_of,
    fetch_of_unknown,
    frame,
    is_hung_up,
    metadata_of_all,
    produce_head,
    produce_of,
    read_frame,
    send_as_far_as_taken,
)

from cordwood.chaos.live.bystander import LiveBystander
from cordwood.cluster.broker.log_lines import LINES_MAX

GROWTH_MB_MAX = 128.0
WAIT_MS_MAX = 15_000.0
"""An idle machine needs 0.5 s; a busy machine or disk needs more. A client that is not served waits for a minute."""
TOPIC = "bystander"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path / "data", auto_create_topics_enable="false").start()
    try:
        yield broker
    finally:
        broker.stop()


def create(broker: RunningBroker, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result(30)


@contextlib.contextmanager
def bystander(broker: RunningBroker) -> Iterator[None]:
    """Run a client that produces and consumes meanwhile, and check its longest wait."""
    create(broker, TOPIC, 1)
    beside = LiveBystander(broker.bootstrap, TOPIC)
    beside.start()
    wait_until(lambda: beside.observed.read > 10, 30, "the bystander to begin")
    beside.observed.worst_ack_ms = 0.0
    try:
        yield
    finally:
        observed = beside.stop()
    assert observed.errors == []
    assert observed.worst_ack_ms <= WAIT_MS_MAX


def test_fetch_sessions_of_partitions_that_do_not_exist(running: RunningBroker) -> None:
    resident = Resident(running.pid)
    request = fetch_of_unknown(100_000)
    for _ in range(12):
        with connections(running.port, 1) as (opened,):
            opened.sendall(request)
            read_frame(opened)
        resident.look()
    assert resident.most_mb <= GROWTH_MB_MAX


def test_a_client_that_does_not_read_its_answers(running: RunningBroker) -> None:
    create(running, "wide", 500)
    resident = Resident(running.pid)
    requests = b"".join(metadata_of_all(number) for number in range(1_000))
    with connections(running.port, 20) as opened:
        for one in opened:
            one.sendall(requests)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            resident.look()
            time.sleep(0.05)
    assert resident.most_mb <= GROWTH_MB_MAX


def test_requests_that_never_arrive_whole(running: RunningBroker) -> None:
    resident = Resident(running.pid)
    size = 100 << 20
    part = produce_head(size) + bytes(90 << 20)
    with bystander(running), connections(running.port, 8) as opened:
        for one in opened:
            send_as_far_as_taken(one, part)
            resident.look()
    assert resident.most_mb <= GROWTH_MB_MAX


def test_many_connections_with_a_part_of_a_request_each(running: RunningBroker) -> None:
    resident = Resident(running.pid)
    part = produce_head(1 << 20) + bytes(250 << 10)
    with bystander(running), connections(running.port, 1_500) as opened:
        for one in opened:
            send_as_far_as_taken(one, part, silent_s=0.01)
        resident.look()
    assert resident.most_mb <= GROWTH_MB_MAX


def test_fetches_of_very_many_partitions_that_do_not_exist(running: RunningBroker) -> None:
    resident = Resident(running.pid)
    request = fetch_of_unknown(20_000, wait_ms=600_000, session=(0, -1))
    with connections(running.port, 60) as opened:
        for one in opened:
            send_as_far_as_taken(one, request, silent_s=0.2)
            resident.look()
    assert resident.most_mb <= GROWTH_MB_MAX


def test_a_large_request_gets_its_turn_among_those_that_do_not_get_on(running: RunningBroker) -> None:
    create(running, "large", 1)
    part = produce_head(100 << 20) + bytes(60 << 20)
    with connections(running.port, 4) as hogs, connections(running.port, 1) as (client,):
        for one in hogs:
            send_as_far_as_taken(one, part)
        client.settimeout(30)
        client.sendall(produce_of("large", 50 << 20))
        assert read_frame(client)
        assert sum(is_hung_up(one) for one in hogs) > 0


def test_requests_after_a_long_poll_do_not_keep_the_memory_of_others(running: RunningBroker) -> None:
    create(running, "large", 1)
    waiting = fetch_of("large", 1, wait_ms=600_000)
    next_frame = frame(METADATA, 1, bytes(250 << 10))
    with connections(running.port, 500) as hogs:
        for one in hogs:
            send_as_far_as_taken(one, waiting + next_frame, silent_s=0.01)
        with connections(running.port, 1) as (client,):
            client.sendall(produce_of("large", 50 << 20))
            assert read_frame(client)


def test_the_oldest_idle_client_makes_room_for_another(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "data", max_connections="20").start()
    try:
        with connections(broker.port, 20) as idle:
            time.sleep(1.5)
            with connections(broker.port, 1) as (client,):
                client.sendall(metadata_of_all())
                assert read_frame(client)
            assert is_hung_up(idle[0], 30)
            assert not any(is_hung_up(one, 0.01) for one in idle[1:])
    finally:
        broker.stop()


def test_a_broker_without_descriptors_goes_on_when_there_are_some_again(running: RunningBroker) -> None:
    used = len(os.listdir(f"/proc/{running.pid}/fd"))
    limits = resource.prlimit(running.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (used + 20, limits[1]))
    with connections(running.port, 60) as opened:
        wait_until(lambda: sum(is_hung_up(one, 0.01) for one in opened) >= 40, 30, "the broker to hang up")
        began = cpu_s(running.pid)
        time.sleep(1.0)
        assert cpu_s(running.pid) - began < 0.5, "the listener spins"
    # The broker frees their descriptors when it reads that they were closed.
    wait_until(lambda: is_answered(running.port), 10, "an answer to a new client")


def is_answered(port: int) -> bool:
    """Return whether a new client is admitted and answered."""
    try:
        with connections(port, 1) as (client,):
            client.sendall(metadata_of_all())
            return bool(read_frame(client))
    except ConnectionError:
        return False


def cpu_s(pid: int) -> float:
    """Return the processor seconds that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_malformed_requests_do_not_fill_the_log(running: RunningBroker) -> None:
    for _ in range(1_000):
        with connections(running.port, 1) as (client,):
            client.sendall(b"\x7f\xff\xff\xff")
            assert is_hung_up(client)
    assert running.output.count("event=connection.closed") <= 3 * LINES_MAX
