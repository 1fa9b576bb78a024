"""The comparison of replicas on disk, with one planted anomaly of each kind."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from cordwood.chaos.checks import Anomaly
from cordwood.chaos.live import replica_logs
from cordwood.storage.records import Record, encode
from cordwood.storage.segment_files import segment_path

TOPIC = "0f4b0c1e-0000-4000-8000-000000000001"


def names(anomalies: Sequence[Anomaly]) -> list[str]:
    return [anomaly.kind for anomaly in anomalies]


class Replicas:
    """The log directories of three stopped brokers, with one partition."""

    def __init__(self, place: Path) -> None:
        self.data = {id_: place / str(id_) for id_ in (1, 2, 3)}

    def write(self, id_: int, *batches: bytes, base: int = 0, generation: int = 0) -> "Replicas":
        directory = self.data[id_] / "topics" / TOPIC / "0"
        directory.mkdir(parents=True, exist_ok=True)
        Path(segment_path(str(directory), base, generation)).write_bytes(b"".join(batches) + bytes(100))
        return self

    def anomalies(self) -> list[str]:
        return names(list(replica_logs.divergences(self.data)))


def batch(offset: int, value: bytes = b"sound", epoch: int = 0) -> bytes:
    return encode([Record(offset, 1, None, value)], base_offset=offset, leader_epoch=epoch)


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    """Return three equal replicas. The log of the third one has two segments."""
    replicas = Replicas(tmp_path)
    for id_ in (1, 2):
        replicas.write(id_, batch(0), batch(1))
    return replicas.write(3, batch(0)).write(3, batch(1), base=1)


def test_equal_replicas_are_no_anomaly(replicas: Replicas) -> None:
    assert replicas.anomalies() == []
    assert replica_logs.end_offset(replicas.data[3], (TOPIC, "0")) == 2


def test_a_segment_is_replaced_by_another_generation_that_has_its_offsets(replicas: Replicas) -> None:
    directory = replicas.data[3] / "topics" / TOPIC / "0"
    first, second = (Path(segment_path(str(directory), base)) for base in (0, 1))
    assert not replica_logs.is_replaced(first)
    replicas.write(3, batch(0), generation=1)
    assert replica_logs.is_replaced(first)
    assert replica_logs.is_replaced(first.with_suffix(".index"))
    assert not replica_logs.is_replaced(second)
    assert not replica_logs.is_replaced(Path(segment_path(str(directory), 0, 1)))
    replicas.write(3, batch(0), batch(1), generation=2)
    assert replica_logs.is_replaced(second)
    second.unlink()
    assert replica_logs.is_replaced(second)
    assert not replica_logs.is_replaced(directory / "leader-epochs")


def test_a_partition_that_was_reported_is_not_reported_again(replicas: Replicas) -> None:
    replicas.write(2, batch(0), batch(1, b"other"))
    assert replicas.anomalies() == ["replica-divergence"]
    assert list(replica_logs.divergences(replicas.data, {(TOPIC, "0")})) == []


def test_a_replica_whose_older_segments_have_gone_is_no_anomaly(replicas: Replicas) -> None:
    (replicas.data[3] / "topics" / TOPIC / "0" / f"{0:020}.log").unlink()
    assert replicas.anomalies() == []


@pytest.mark.parametrize("other", [batch(0, b"other"), batch(0, epoch=1)], ids=["other bytes", "other epoch"])
def test_a_replica_that_differs_is_found(replicas: Replicas, other: bytes) -> None:
    replicas.write(2, other, batch(1))
    assert replicas.anomalies() == ["replica-divergence"]


def test_a_replica_that_is_shorter_is_found(replicas: Replicas) -> None:
    replicas.write(2, batch(0))
    assert replicas.anomalies() == ["lost-write"]


def test_a_replica_that_lost_everything_is_found(replicas: Replicas) -> None:
    replicas.write(2)
    assert replicas.anomalies() == ["lost-write"]


def test_a_hole_in_a_replica_is_found(replicas: Replicas) -> None:
    replicas.write(1, batch(0), batch(1), batch(2)).write(2, batch(0), batch(1), batch(2))
    replicas.write(3, batch(2), base=1)
    assert replicas.anomalies() == ["replica-divergence"]


def put(offset: int, key: str, value: bytes | None = b"sound") -> bytes:
    return encode([Record(offset, 1, key.encode(), value)], base_offset=offset)


def test_replicas_that_were_compacted_differently_are_no_anomaly(replicas: Replicas) -> None:
    replicas.write(1, put(0, "a"), put(1, "b"), put(2, "a"))
    replicas.write(2, put(0, "a"), put(1, "b"), put(2, "a")).write(2, put(1, "b"), put(2, "a"), generation=1)
    (replicas.data[3] / "topics" / TOPIC / "0" / f"{1:020}.log").unlink()
    replicas.write(3, put(0, "a"), put(1, "b")).write(3, put(2, "a"), base=2)
    assert replicas.anomalies() == []


def test_a_value_that_compaction_has_lost_is_found(replicas: Replicas) -> None:
    for id_ in (1, 3):
        replicas.write(id_, put(0, "a"), put(1, "b"), put(2, "a"))
    replicas.write(2, put(0, "a"), put(1, "b"), put(2, "a")).write(2, put(2, "a"), generation=1)
    (replicas.data[3] / "topics" / TOPIC / "0" / f"{1:020}.log").unlink()
    assert replicas.anomalies() == ["replica-divergence"]


def test_damage_in_a_directory_is_found(replicas: Replicas) -> None:
    damaged = bytearray(batch(0) + batch(1))
    damaged[70] ^= 1
    replicas.write(2, bytes(damaged))
    assert names(list(replica_logs.damage({id_: replicas.data[id_] for id_ in (1, 2)}))) == ["damaged"]
