"""Faults injected into running brokers: exhausted descriptors and connections, config changes under load, missing
files, and the proposal of an unknown observer. The brokers keep running and acknowledging.
"""

import os
import random
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, free_port, wait_until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from cordwood.chaos.live.broker_views import partitions_seen_by
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults.damage import Flip
from cordwood.chaos.live.steady_member import SteadyMember
from cordwood.cluster.metadata import command_codec
from cordwood.cluster.metadata.commands import AlterConfigs, BrokerId, ConfigChange
from cordwood.cluster.metadata.commands import ResourceType as ConfigType
from cordwood.cluster.metadata.raft.handshake import Handshake, Membership, PeerRole, new_nonce
from cordwood.cluster.metadata.raft.messages import Propose, encode

TOPIC = "faults"
ANSWER_S, REPAIRED_S = 30.0, 60.0
VALUE = b"x" * 1000
TAIL_RECORDS = 40
SMALL_SEGMENTS = {"segment.bytes": "50000"}


def create(bootstrap: str, partitions: int, replicas: int, configs: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, replicas, config=configs or {})])[TOPIC].result(ANSWER_S)


def alter(bootstrap: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource_of = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource_of])[resource_of].result(ANSWER_S)


class Load:
    """A producer thread that sends to every partition in turn, and counts the acknowledgements."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        )
        self._partitions = partitions
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = [0] * partitions
        self.failed: list[str] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def go_on(self, count: int = 50) -> None:
        """Wait until each partition has acknowledged `count` more records."""
        due = [has + count for has in self.acknowledged]
        wait_until(
            lambda: all(has >= wanted for has, wanted in zip(self.acknowledged, due, strict=True)),
            ANSWER_S,
            f"acknowledgements: {self.acknowledged} of {due}",
        )

    def _run(self) -> None:
        while not self._is_over.is_set():
            for partition in range(self._partitions):
                self._producer.produce(TOPIC, VALUE, partition=partition, on_delivery=self._answered(partition))
            self._producer.poll(0.005)
        self._producer.flush(ANSWER_S)

    def _answered(self, partition: int) -> Callable[[object, object], None]:
        def answered(error: object, _message: object) -> None:
            if error is None:
                self.acknowledged[partition] += 1
            else:
                self.failed.append(str(error))

        return answered


def count_read(bootstrap: str, partition: int, end: int) -> list[int]:
    """Return the offsets that a consumer reads from offset 0 up to `end`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    offsets: list[int] = []
    deadline = time.monotonic() + ANSWER_S
    while (not offsets or offsets[-1] < end - 1) and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
    consumer.close()
    return offsets


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "just-restarted"])
def test_descriptors_that_run_out_take_nothing_with_them(tmp_path: Path, restarted: bool) -> None:
    broker = RunningBroker(tmp_path / "data").start()
    create(broker.bootstrap, 4, 1, SMALL_SEGMENTS)
    with Load(broker.bootstrap, 4) as load:
        load.go_on()
        if restarted:
            broker.kill()
            broker.start()
        soft, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{broker.pid}/fd"))
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (used, hard))
        strangers = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(20)]
        # Long enough for segments to roll, and for a group commit to open a directory.
        time.sleep(2.0)
        for stranger in strangers:
            stranger.close()
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (soft, hard))
        load.go_on()
    assert load.failed == []
    assert [len(count_read(broker.bootstrap, place, end)) for place, end in enumerate(load.acknowledged)] == (
        load.acknowledged
    )
    assert broker.terminate() == 0


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_flush_policy_may_change_under_load(tmp_path: Path, brokers: int) -> None:
    with LocalCluster(tmp_path, brokers) as cluster:
        cluster.create_topic(TOPIC, 3, {"flush.policy": "os"})
        with Load(cluster.bootstrap, 3) as load:
            for policy in ("group", "os", "group"):
                load.go_on()
                alter(cluster.bootstrap, "flush.policy", policy)
            load.go_on(200)
            time.sleep(1.0)
            cluster.check_alive()
            load.go_on()
        assert load.failed == []
        cluster.wait_in_sync()


def as_stranger(port: int, cluster_id: str, entry: bytes) -> None:
    """Propose an entry on a voter's port, as an observer that no voter knows."""
    length = struct.Struct("<I")
    with socket.create_connection(("127.0.0.1", port), timeout=10.0) as connection:

        def send(frame: bytes) -> None:
            connection.sendall(length.pack(len(frame)) + frame)

        def receive() -> bytes:
            head = connection.recv(length.size, socket.MSG_WAITALL)
            return connection.recv(length.unpack(head)[0], socket.MSG_WAITALL)

        me = Membership(BrokerId(99), PeerRole.OBSERVER, cluster_id, VOTERS, b"")
        handshake = Handshake(me, BrokerId(1), new_nonce(random.Random(1)), send)
        handshake.begin()
        while handshake.receive(receive()) is None:
            pass
        send(encode(Propose(entry)))
        time.sleep(0.5)


VOTERS = tuple(map(BrokerId, (1, 2, 3)))


def test_a_strangers_proposal_that_no_broker_can_apply_stops_none(tmp_path: Path) -> None:
    port = free_port()
    others = ",".join(f"{id_}@127.0.0.1:{free_port()}" for id_ in (2, 3))
    voters = {"controller.quorum.voters": f"1@127.0.0.1:{port},{others}", "controller.quorum.secret": ""}
    with LocalCluster(tmp_path, settings=voters) as cluster:
        cluster.create_topic(TOPIC, 3)
        cluster_id = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).cluster_id or ""
        for key, value in (("retention.ms", "abc"), ("segment.bytes", "-1"), ("no.such.key", "x")):
            change = ConfigChange(key, None, value)
            command = AlterConfigs(ConfigType.TOPIC, TOPIC, (change,))
            as_stranger(port, cluster_id, b"12345678" + command_codec.encode(command))
        time.sleep(1.0)
        cluster.check_alive()
        with Load(cluster.bootstrap, 3) as load:
            load.go_on()
        cluster.stop()
        cluster.start()
        with Load(cluster.bootstrap, 3) as load:
            load.go_on()


EAGER_SCRUBBER = {"log.scrub.bytes.per.second": str(64 << 20), "log.scrub.interval.ms": "1000"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Run three brokers that scrub all files each second."""
    with LocalCluster(tmp_path, settings=EAGER_SCRUBBER, has_http=True) as running:
        yield running


def leader_seen_by(address: str) -> int:
    """Return the leader of the topic's first partition as that broker knows it; -1 where there is none."""
    return next((view.leader for view in partitions_seen_by(address) if view.topic == TOPIC), -1)


def sealed(cluster: LocalCluster, broker: int) -> list[Path]:
    """Return the sealed segments of the topic's first partition on that broker."""
    [topic] = {path.parent.parent for path in cluster.data[broker].glob("topics/*/0/*.log")}
    directory = topic / "0"
    return sorted(directory.glob("*.log"))[:-1]


def filled(cluster: LocalCluster) -> list[int]:
    """Write several sealed segments. Return the number of acknowledged records of each partition."""
    cluster.create_topic(TOPIC, 1, SMALL_SEGMENTS)
    with Load(cluster.bootstrap, 1) as load:
        load.go_on(400)
    cluster.wait_in_sync()
    return load.acknowledged


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_segment_that_is_deleted_is_found_and_fetched_again(cluster: LocalCluster, leads: bool) -> None:
    [acknowledged] = filled(cluster)
    leader = cluster.leader_of(TOPIC, 0)
    victim = leader if leads else next(id_ for id_ in cluster.ids if id_ != leader)
    lost = sealed(cluster, victim)[1]
    content = lost.read_bytes()
    lost.unlink()
    wait_until(lambda: lost.exists() and lost.read_bytes().startswith(content.rstrip(b"\0")), REPAIRED_S, "the segment")
    assert count_read(cluster.bootstrap, 0, acknowledged) == list(range(acknowledged))
    cluster.wait_in_sync()


def test_a_flipped_bit_costs_a_replica_no_later_segment(cluster: LocalCluster) -> None:
    [acknowledged] = filled(cluster)
    leader = cluster.leader_of(TOPIC, 0)
    victim = next(id_ for id_ in cluster.ids if id_ != leader)
    damaged = sealed(cluster, victim)[0]
    [replica] = {(damaged.parent.parent.name, damaged.parent.name)}
    sound = damaged.read_bytes()
    Flip(damaged.relative_to(cluster.data[victim]), 500, 3).apply(cluster.data[victim])
    ends = []

    def is_repaired() -> bool:
        ends.append(len(list(damaged.parent.glob("*.log"))))
        return damaged.exists() and damaged.read_bytes() == sound

    before = len(list(damaged.parent.glob("*.log")))
    wait_until(is_repaired, REPAIRED_S, f"the repair of {replica}")
    assert min(ends) >= before, "segments after the damage were removed"
    assert count_read(cluster.bootstrap, 0, acknowledged) == list(range(acknowledged))


def test_idle_connections_do_not_keep_replicas_apart(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, settings={"max.connections": "100"}) as cluster:
        cluster.create_topic(TOPIC, 3)
        with Load(cluster.bootstrap, 3) as load:
            load.go_on()
            *others, follower = cluster.brokers.values()
            follower.kill()
            addresses = [broker.address.split(":") for broker in others]
            idle = [socket.create_connection((host, int(port))) for host, port in addresses for _ in range(150)]
            follower.start()

            # The other brokers are past max.connections, and accept no more clients.
            def is_in_sync() -> bool:
                views = partitions_seen_by(follower.address)
                return len(views) == 3 and all(view.is_in_sync for view in views)

            wait_until(is_in_sync, REPAIRED_S, "replicas in sync")
            for connection in idle:
                connection.close()
            load.go_on()


def test_damage_on_a_leader_holds_up_no_other_partition(cluster: LocalCluster) -> None:
    cluster.create_topic(TOPIC, 2, SMALL_SEGMENTS)
    leader = cluster.leader_of(TOPIC, 0)
    follower = next(id_ for id_ in cluster.ids if id_ != leader)
    with Load(cluster.bootstrap, 2) as load:
        load.go_on()
        cluster.brokers[follower].kill()
        load.go_on(400)
        damaged = sealed(cluster, leader)[-1]
        Flip(damaged.relative_to(cluster.data[leader]), 500, 3).apply(cluster.data[leader])
        cluster.brokers[follower].start()

        def is_other_in_sync() -> bool:
            return cluster.partition(TOPIC, 1).is_in_sync

        wait_until(is_other_in_sync, ANSWER_S, "the other partition in sync")
        cluster.wait_in_sync(REPAIRED_S)
        load.go_on()
    assert count_read(cluster.bootstrap, 0, load.acknowledged[0]) == list(range(load.acknowledged[0]))


def test_a_deposed_leader_whose_followers_did_not_read_gives_up_its_tail_and_follows(cluster: LocalCluster) -> None:
    cluster.create_topic(TOPIC, 1)
    leader = cluster.leader_of(TOPIC, 0)
    deposed, *others = cluster.brokers[leader], *(cluster.brokers[id_] for id_ in cluster.ids if id_ != leader)
    with Load(cluster.bootstrap, 1) as load:
        load.go_on()
        for other in others:
            other.pause()
        # More bytes than the sockets between brokers hold. The rest waits on the leader.
        tail = Producer({"bootstrap.servers": deposed.address, "acks": 1, "queue.buffering.max.kbytes": 1 << 17})
        for _ in range(TAIL_RECORDS):
            tail.produce(TOPIC, bytes(900_000), partition=0)
        tail.flush(10.0)
        deposed.pause()
        for other in others:
            other.resume()
        wait_until(lambda: leader_seen_by(others[0].address) not in (leader, -1), ANSWER_S, "another leader")
        deposed.resume()
        load.go_on()
    cluster.check_alive()
    cluster.wait_in_sync()


def test_heartbeats_that_had_arrived_count_before_sessions_expire(broker: RunningBroker) -> None:
    heard = [0] * 30
    failed: list[str] = []

    def hear(number: int) -> Callable[[float, float], None]:
        def waited(_began_s: float, _ended_s: float) -> None:
            heard[number] += 1

        return waited

    members = [
        SteadyMember(broker.bootstrap, f"group-{number}", hear(number), failed.append, session_s=1.5)
        for number in range(30)
    ]
    for member in members:
        member.start()
    try:
        wait_until(lambda: min(heard) > 3, ANSWER_S, "heartbeats of every member")
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(2.0)
        os.kill(broker.pid, signal.SIGCONT)
        before = list(heard)
        wait_until(
            lambda: all(now > then + 5 for now, then in zip(heard, before, strict=True)), ANSWER_S, "more of them"
        )
    finally:
        for member in members:
            member.stop()
    assert failed == []
