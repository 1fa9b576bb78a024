"""Visibility of fetched batches to a read_committed consumer."""

import pytest
from log_fixture import LogFixture
from raw_batches import raw_batch

from cordwood.storage.batch import CONTROL, TRANSACTIONAL, check, split
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.visibility import Visibility


def seen(log: LogFixture, start: int = 0) -> list[int]:
    """Return the base offsets of the batches that a consumer sees that begins at `start`."""
    end = log.last_stable()
    visibility = Visibility(log.log.aborted(start, end))
    batches = [(check(batch), batch) for batch in split(log.read(start, end=end))]
    return [header.base_offset for header, batch in batches if visibility.shows(header, batch)]


def test_aborted_transactions_are_left_out_up_to_their_markers(log: LogFixture) -> None:
    log.append("plain")
    log.send(0, "a", producer=1, transactional=True)
    log.send(0, "b", producer=2, transactional=True)
    log.send(1, "a", producer=1, transactional=True)
    log.abort(producer=1)
    log.send(2, "c", producer=1, transactional=True)
    log.commit(producer=2)
    log.commit(producer=1)
    log.send(3, "d", producer=1)
    assert seen(log) == [0, 2, 5, 8]
    assert seen(log, 3) == [5, 8]
    assert seen(log, 5) == [5, 8]


def test_a_producer_may_abort_twice(log: LogFixture) -> None:
    for sequence in range(4):
        log.send(sequence, "a", transactional=True)
        log.mark(commit=sequence % 2 == 1)
    assert seen(log) == [2, 6]


def test_without_a_list_nothing_but_markers_is_left_out(log: LogFixture) -> None:
    log.send(0, "a", transactional=True)
    log.abort()
    visibility = Visibility(())
    shown = [visibility.shows(check(batch), batch) for batch in split(log.read(0))]
    assert shown == [True, False]


def test_a_malformed_marker_is_corrupt() -> None:
    malformed = raw_batch(b"\x00", 1)
    header = check(malformed)._replace(attributes=CONTROL | TRANSACTIONAL, producer_id=7, base_offset=3)
    with pytest.raises(CorruptBatch):
        Visibility([(7, 0)]).shows(header, malformed)
