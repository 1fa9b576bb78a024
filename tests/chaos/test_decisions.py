"""Decisions about transactions in the logs: read from the batches, and compared with each other and the clients."""

from collections.abc import Sequence

import pytest

from cordwood.chaos.history import Outcome
from cordwood.chaos.live.decisions import Asked, DecisionReader, MarkerOnDisk, disagreements
from cordwood.storage.batch import TRANSACTIONAL, check
from cordwood.storage.control import EndTransactionMarker, encode_marker
from cordwood.storage.records import Record, encode
from cordwood.storage.types import ProducerIdAndEpoch

ONE, OTHER = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(8, 0)
CLIENT, TRANSACTION = (4, 0), (4, 1)
COMMITTED, ABORTED = Asked(True, Outcome.OK), Asked(False, Outcome.OK)


class LogScenario:
    """Batches of one partition, and the decisions in them."""

    def __init__(self) -> None:
        self._reader = DecisionReader(3)

    def wrote(
        self, producer: ProducerIdAndEpoch, *values: int, at_ms: int = 0, attributes: int = TRANSACTIONAL
    ) -> None:
        records = [Record(0, at_ms, None, b"%d" % value) for value in values]
        identity = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": 0}
        batch = encode(records, attributes=attributes, **identity)
        self._reader.take(check(batch), batch, values)

    def ended(self, producer: ProducerIdAndEpoch, *, is_commit: bool, at_ms: int = 0) -> None:
        batch = encode_marker(producer, EndTransactionMarker(is_commit, 0), at_ms)
        self._reader.take(check(batch), batch, [-1])

    def decisions(self) -> list[MarkerOnDisk]:
        return self._reader.end()


@pytest.fixture
def log() -> LogScenario:
    return LogScenario()


def test_a_marker_decides_all_records_of_its_producer_before_it(log: LogScenario) -> None:
    log.wrote(ONE, 1, at_ms=100)
    log.wrote(OTHER, 2, at_ms=150)
    log.wrote(ONE, 3, 4, at_ms=200)
    log.ended(ONE, is_commit=True, at_ms=1100)
    log.wrote(ONE, 5, at_ms=1200)
    log.ended(OTHER, is_commit=False, at_ms=1150)
    assert log.decisions() == [
        MarkerOnDisk(3, (1, 3, 4), True, 1000),
        MarkerOnDisk(3, (2,), False, 1000),
        MarkerOnDisk(3, (5,), None, 0),
    ]


def test_records_outside_transactions_and_markers_without_records_decide_nothing(log: LogScenario) -> None:
    log.wrote(ONE, 1, attributes=0)
    log.ended(ONE, is_commit=True)
    assert log.decisions() == []


def test_a_marker_of_a_later_epoch_decides_the_records_of_the_earlier_one(log: LogScenario) -> None:
    log.wrote(ONE, 1)
    log.ended(ONE._replace(epoch=1), is_commit=False)
    assert log.decisions() == [MarkerOnDisk(3, (1,), False, 0)]


def found(decided: Sequence[MarkerOnDisk], asked: Asked | None = COMMITTED) -> dict[str, int]:
    """Return the anomalies where value 1 is of CLIENT's first transaction, and value 2 of its second."""
    of_values = {1: CLIENT, 2: TRANSACTION}
    known = {} if asked is None else {CLIENT: asked, TRANSACTION: asked}
    return {anomaly.kind: anomaly.count for anomaly in disagreements(decided, of_values.get, known)}


def in_partitions(*decided: bool | None) -> list[MarkerOnDisk]:
    """Return decisions about CLIENT, partition by partition."""
    return [MarkerOnDisk(partition, (1,), is_commit, 0) for partition, is_commit in enumerate(decided)]


@pytest.mark.parametrize(
    ("decided", "asked"),
    [
        ((True, True), COMMITTED),
        ((False, False), ABORTED),
        ((True, True), Asked(True, Outcome.INFO)),
        ((False, False), Asked(True, Outcome.INFO)),
        ((False, False), Asked(True, Outcome.FAIL)),
        ((False, False), Asked(None, Outcome.INFO)),
        ((False,), None),
    ],
)
def test_one_decision_in_all_partitions_is_no_anomaly(decided: tuple[bool, ...], asked: Asked | None) -> None:
    assert found(in_partitions(*decided), asked) == {}


@pytest.mark.parametrize(
    ("decided", "asked", "kinds"),
    [
        ((True, False), Asked(True, Outcome.INFO), {"torn-transaction": 1}),
        ((True, False), COMMITTED, {"torn-transaction": 1, "wrong-decision": 1}),
        ((True, None), COMMITTED, {"open-transaction": 1}),
        ((False, False), COMMITTED, {"wrong-decision": 1}),
        ((True, True), ABORTED, {"wrong-decision": 1}),
        ((True, True), Asked(True, Outcome.FAIL), {"wrong-decision": 1}),
        ((True, True), Asked(None, Outcome.INFO), {"wrong-decision": 1}),
        ((True, True), None, {"wrong-decision": 1}),
    ],
)
def test_decisions_that_disagree_are_found(
    decided: tuple[bool | None, ...], asked: Asked | None, kinds: dict[str, int]
) -> None:
    assert found(in_partitions(*decided), asked) == kinds


def test_a_marker_that_decides_two_transactions_is_found() -> None:
    assert found([MarkerOnDisk(0, (1, 2), True, 0)]) == {"torn-transaction": 1}


def test_values_that_no_transaction_wrote_are_left_to_other_checks() -> None:
    assert found([MarkerOnDisk(0, (9,), True, 0)]) == {}
