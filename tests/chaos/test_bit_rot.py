"""Bit flips in every kind of file of a running broker: all files are repaired within a minute."""

from pathlib import Path

from broker_fixture import wait_until
from confluent_kafka import Producer

from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults.damage import Flip
from cordwood.cluster.broker.verify import verify
from cordwood.storage.real_disk import RealDisk

TOPIC, RECORDS, BATCH = "rots", 5_000, 250
KINDS = (
    "topics/*/*/*0.log",
    "topics/*/*/*.index",
    "topics/*/*/recovery",
    "topics/*/*/leader-epochs",
    "flushed",
    "identity",
    "metadata/journal",
)
"""Patterns of files in a log directory. One file of each gets a flipped bit."""
AT_BYTE = 20
CHECKPOINTED_S, REPAIRED_S = 30.0, 60.0


def test_every_kind_of_file_of_a_running_broker_is_repaired(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, settings={"log.scrub.interval.ms": "1000"}) as cluster:
        cluster.start()
        cluster.create_topic(TOPIC, 1, {"segment.bytes": "100000"})
        produce(cluster)
        cluster.wait_in_sync()
        victim = cluster.leader_of(TOPIC, 0)
        data = cluster.data[victim]
        wait_until(lambda: all(is_there(data, kind) for kind in KINDS), CHECKPOINTED_S, "a file of each kind")
        for kind in KINDS:
            # The repair of an earlier flip may have replaced this file, which may be too short for a moment.
            wait_until(lambda kind=kind: is_there(data, kind), REPAIRED_S, kind)  # type: ignore[misc]
            Flip(min(data.glob(kind)).relative_to(data), AT_BYTE, 3).apply(data)
        assert {Path(finding.path).name for finding in verify(RealDisk(), str(data))} >= {"identity", "journal"}
        wait_until(lambda: is_sound(data), REPAIRED_S, f"the repair of broker {victim}")
        cluster.wait_in_sync()
        assert victim in cluster.partition(TOPIC, 0).isr


def is_there(data: Path, kind: str) -> bool:
    """Return whether the first file of this kind has a byte to flip."""
    found = list(data.glob(kind))
    return bool(found) and min(found).stat().st_size > AT_BYTE


def produce(cluster: LocalCluster) -> None:
    """Produce enough batches for several segments: a batch is never split."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%0100d" % number)
        if number % BATCH == BATCH - 1:
            assert producer.flush(30) == 0


def is_sound(data: Path) -> bool:
    try:
        return not list(verify(RealDisk(), str(data)))
    except FileNotFoundError:
        # The broker has replaced or removed a file meanwhile.
        return False
