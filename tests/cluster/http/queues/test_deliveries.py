"""Deliveries to HTTP clients: a receipt counts for one delivery, until its lock ends."""

from uuid import UUID

from cordwood.cluster.http.queues.deliveries import DONE_MAX, Deliveries, QueueOffset, QueuePartition
from cordwood.cluster.operations.queue_receipts import Receipt

TOPIC = UUID(int=1)
PLACE = QueuePartition(TOPIC, 0)
LEADER = 2
ACCEPT, RELEASE = 1, 2
MINE, YOURS = b"m" * 16, b"y" * 16


def receipt(offset: int = 0, secret: bytes = MINE) -> Receipt:
    return Receipt(1, 1, TOPIC, 0, offset, secret)


def holding(*offsets: int, until_ms: int = 1_000) -> Deliveries:
    deliveries = Deliveries()
    deliveries.add(LEADER, [QueueOffset(PLACE, offset) for offset in offsets], MINE, until_ms)
    return deliveries


def test_a_receipt_finds_its_delivery_until_the_lock_ends() -> None:
    deliveries = holding(0, 1)
    assert deliveries.find(receipt(1)) is not None
    deliveries.expire(999)
    assert len(deliveries) == 2
    deliveries.expire(1_000)
    assert deliveries.find(receipt(1)) is None
    assert len(deliveries) == 0


def test_another_secret_finds_nothing() -> None:
    assert holding(0).find(receipt(0, YOURS)) is None


def test_the_receipt_of_an_earlier_delivery_counts_no_more() -> None:
    deliveries = holding(0)
    deliveries.add(LEADER, [QueueOffset(PLACE, 0)], YOURS, 2_000)
    assert deliveries.find(receipt(0, MINE)) is None
    deliveries.finish(receipt(0, MINE), ACCEPT)
    assert deliveries.find(receipt(0, YOURS)) is not None


def test_a_renewed_lock_ends_later() -> None:
    deliveries = holding(0, 1)
    deliveries.renew(receipt(1), 5_000)
    deliveries.expire(1_000)
    assert deliveries.find(receipt(0)) is None
    assert deliveries.find(receipt(1)) is not None
    deliveries.expire(5_000)
    assert len(deliveries) == 0


def test_an_acknowledgement_may_be_repeated_but_not_changed() -> None:
    deliveries = holding(0)
    deliveries.finish(receipt(0), ACCEPT)
    assert deliveries.find(receipt(0)) is None
    assert deliveries.was_done(receipt(0), ACCEPT)
    assert not deliveries.was_done(receipt(0), RELEASE)
    assert not deliveries.was_done(receipt(0, YOURS), ACCEPT)


def test_only_the_last_acknowledgements_are_remembered() -> None:
    deliveries = holding(*range(DONE_MAX + 1))
    for offset in range(DONE_MAX + 1):
        deliveries.finish(receipt(offset), ACCEPT)
    assert not deliveries.was_done(receipt(0), ACCEPT)
    assert deliveries.was_done(receipt(1), ACCEPT)


def test_the_end_of_a_session_ends_the_deliveries_of_its_leader_alone() -> None:
    deliveries = holding(0, 1)
    deliveries.add(LEADER + 1, [QueueOffset(QueuePartition(TOPIC, 1), 0)], YOURS, 1_000)
    deliveries.end_session(LEADER)
    assert len(deliveries) == 1
    deliveries.expire(1_000)
    assert len(deliveries) == 0
