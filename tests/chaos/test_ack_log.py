"""The acknowledgement log: each kind of broken promise is found by its name, and a kept one is no anomaly."""

import pytest

from cordwood.chaos.live.ack_log import NO_RESPONSE, AckLog, SentRecord

Found = dict[int, list[tuple[int, SentRecord]]]


def a(number: int, partition: int = 0) -> SentRecord:
    return SentRecord(1, partition, number)


def b(number: int, partition: int = 0) -> SentRecord:
    return SentRecord(2, partition, number)


@pytest.fixture
def ack_log() -> AckLog:
    """Return acknowledgements of two producers: two records each in partition 0, one record each in partition 1."""
    ack_log = AckLog()
    for sent, offset in ((a(0), 0), (b(0), 1), (a(1), 2), (b(1), 3), (a(0, 1), 0), (b(0, 1), 1)):
        ack_log.acknowledge(sent, offset)
    return ack_log


def kept() -> Found:
    return {0: [(0, a(0)), (1, b(0)), (2, a(1)), (3, b(1))], 1: [(0, a(0, 1)), (1, b(0, 1))]}


def names(ack_log: AckLog, found: Found) -> list[str]:
    return [anomaly.name for anomaly in ack_log.compare(found)]


def test_kept_promises_are_no_anomalies(ack_log: AckLog) -> None:
    assert names(ack_log, kept()) == []


def test_a_record_that_was_never_acknowledged_may_be_there(ack_log: AckLog) -> None:
    found = kept()
    found[0].append((4, a(2)))
    assert names(ack_log, found) == []


def test_a_lost_write_is_found(ack_log: AckLog) -> None:
    found = kept()
    del found[0][3]
    assert names(ack_log, found) == ["lost-write"]
    assert names(ack_log, {0: kept()[0], 1: []}) == ["lost-write"] * 2


def test_a_loss_in_the_middle_is_a_gap_too(ack_log: AckLog) -> None:
    found = kept()
    del found[0][0]
    assert sorted(names(ack_log, found)) == ["gap", "lost-write"]


def test_a_duplicate_is_found(ack_log: AckLog) -> None:
    found = kept()
    found[0].append((4, b(1)))
    assert sorted(names(ack_log, found)) == ["duplicate", "nonmonotonic-send"]


def test_a_record_elsewhere_than_promised_is_found(ack_log: AckLog) -> None:
    found = kept()
    found[0][3] = (4, b(1))
    assert names(ack_log, found) == ["inconsistent-offsets"]


def test_a_record_in_the_wrong_partition_is_found(ack_log: AckLog) -> None:
    found = kept()
    found[1].append((2, a(2)))
    assert "inconsistent-offsets" in names(ack_log, found)


def test_two_records_in_the_wrong_order_are_found(ack_log: AckLog) -> None:
    found = kept()
    found[0][0], found[0][2] = (0, a(1)), (2, a(0))
    assert {"nonmonotonic-send", "inconsistent-offsets"} <= set(names(ack_log, found))


def test_a_record_that_was_acknowledged_without_an_offset_may_be_anywhere_in_order(ack_log: AckLog) -> None:
    ack_log.acknowledge(b(1), NO_RESPONSE)
    assert names(ack_log, kept()) == []
    assert names(ack_log, {0: kept()[0][:3], 1: kept()[1]}) == ["lost-write"]


def test_a_send_that_was_given_up_is_told(ack_log: AckLog) -> None:
    ack_log.fail(a(9), "out of order")
    assert names(ack_log, kept()) == ["failed-send"]


def test_numbers_run_by_producer_and_partition() -> None:
    ack_log = AckLog()
    assert [ack_log.next(1, 0), ack_log.next(1, 0), ack_log.next(2, 0), ack_log.next(1, 1)] == [
        SentRecord(1, 0, 0),
        SentRecord(1, 0, 1),
        SentRecord(2, 0, 0),
        SentRecord(1, 1, 0),
    ]
    assert SentRecord.decode(SentRecord(3, 1, 12345).encode()) == SentRecord(3, 1, 12345)
