"""The checks of a real cluster: reads, consumer groups and replicas, with one planted anomaly of each kind."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from cordwood.chaos.live import polls, replica_logs
from cordwood.chaos.live.ack_log import BrokenPromise, SentRecord
from cordwood.chaos.live.report import RoundsReport, quantile
from cordwood.chaos.live.rows import READ, PolledRecord, RowsReader
from cordwood.storage.records import Record, encode

TOPIC = "0f4b0c1e-0000-4000-8000-000000000001"
FOUND = {0: [(offset, SentRecord(1, 0, offset)) for offset in range(3)]}


def polled(*offsets: int) -> list[PolledRecord]:
    return [PolledRecord(0, offset, 1, 0, offset, 0) for offset in offsets]


def told(error: int) -> PolledRecord:
    return PolledRecord(-1, -1, -1, -1, -1, error)


def names(anomalies: Sequence[BrokenPromise]) -> list[str]:
    return [anomaly.name for anomaly in anomalies]


def test_a_reader_that_was_given_all_in_order_accuses_nobody() -> None:
    assert list(polls.compare(polled(0, 1, 2), FOUND)) == []
    assert list(polls.compare([*polled(0), told(KafkaError._TRANSPORT), *polled(1)], FOUND)) == []


def test_a_reader_that_was_given_too_much_or_too_little_is_told_apart() -> None:
    assert names(list(polls.compare(polled(0, 2), FOUND))) == ["poll-skip"]
    assert names(list(polls.compare(polled(0, 1, 0), FOUND))) == ["nonmonotonic-poll"]


def test_what_was_read_and_is_gone_or_another_now_is_found() -> None:
    assert names(list(polls.compare(polled(0, 1, 2, 3), FOUND))) == ["lost-write"]
    other = PolledRecord(0, 2, 7, 0, 2, 0)
    assert names(list(polls.compare([*polled(0, 1), other], FOUND))) == ["inconsistent-offsets"]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (KafkaError._BAD_MSG, "served-damage"),
        (KafkaError._LOG_TRUNCATION, "watermark-regress"),
        (KafkaError._AUTO_OFFSET_RESET, "watermark-regress"),
    ],
)
def test_what_no_reader_may_be_told_is_found(error: int, name: str) -> None:
    assert names(list(polls.compare([told(error)], FOUND))) == [name]


def test_a_group_may_be_given_a_record_twice_and_never_an_error_or_a_gap() -> None:
    assert list(polls.compare_group(polled(0, 1, 1, 2), FOUND)) == []
    assert names(list(polls.compare_group(polled(0, 2), FOUND))) == ["unseen"]
    assert names(list(polls.compare_group([told(KafkaError._TRANSPORT), *polled(0, 1, 2)], FOUND))) == ["client-error"]


class Replicas:
    """The log directories of three stopped brokers, with one partition."""

    def __init__(self, place: Path) -> None:
        self.data = {id_: place / str(id_) for id_ in (1, 2, 3)}

    def write(self, id_: int, *batches: bytes, base: int = 0) -> "Replicas":
        directory = self.data[id_] / "topics" / TOPIC / "0"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{base:020}.log").write_bytes(b"".join(batches) + bytes(100))
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


def test_a_partition_that_was_told_of_already_is_not_told_of_again(replicas: Replicas) -> None:
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


def test_damage_in_a_directory_is_found(replicas: Replicas) -> None:
    damaged = bytearray(batch(0) + batch(1))
    damaged[70] ^= 1
    replicas.write(2, bytes(damaged))
    assert names(list(replica_logs.damage({id_: replicas.data[id_] for id_ in (1, 2)}))) == ["damaged"]


def test_rows_are_followed_while_they_are_written(tmp_path: Path) -> None:
    rows, path = RowsReader(tmp_path / "rows", READ, PolledRecord._make), tmp_path / "rows"
    first, second = (READ.pack(*read) for read in polled(0, 1))
    assert list(rows.new_rows()) == []
    path.write_bytes(first + second[:7])
    assert list(rows.new_rows()) == polled(0)
    path.write_bytes(first + second)
    assert list(rows.new_rows()) == polled(1)


def test_a_report_accuses_what_took_too_long() -> None:
    report = RoundsReport("kills")
    for tenth in range(1, 11):
        report.took("away", tenth / 10)
    report.limit("away", 0.5, 0.5)
    report.limit("away", 0.99, 1.0)
    report.limit("never measured", 0.5, 1.0)
    assert report.anomalies == []
    report.limit("away", 0.5, 0.4)
    assert names(report.anomalies) == ["slow"]
    assert report.summary()["away_s"] == {"p50": 0.5, "p99": 1.0, "max": 1.0}


def test_a_quantile_is_a_value_that_was_measured() -> None:
    assert [quantile([3, 1, 2], share) for share in (0, 0.5, 0.99, 1)] == [1, 2, 3, 3]
