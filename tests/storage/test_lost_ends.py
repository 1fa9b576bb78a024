"""A log that lost its end and goes on: its followers keep those records, and give them back."""

import pytest
from log_fixture import DIRECTORY, LogFixture
from refetch import ReadOther, damaged_segment, rebuilt, refetch

from cordwood.replication.follower import first_difference
from cordwood.storage.errors import LostTail
from cordwood.storage.unseen_batches import ON_LOOP_MAX_BYTES

BATCH_BYTES = 69
"""Size of a batch of a one-letter value."""


def filled() -> LogFixture:
    """Return a log of the epochs 0, 1 and 3, of which the last two have begun since its checkpoint."""
    log = LogFixture().append(*"abcd").flush().checkpoint().append(*"ef").flush()
    for epoch, value in ((1, "g"), (3, "h")):
        log.leader_epoch = epoch
        log.append(value).flush()
    return log


HARMS = pytest.mark.parametrize("how", ["shorten", "zero", "lose"])


def harm_from(log: LogFixture, offset: int, how: str) -> LogFixture:
    """Lose everything from an offset on, flushed as it was, and open the log."""
    [segment] = log.log.segments
    position = segment.locate(offset)
    match how:
        case "shorten":
            log.disk.shorten(log.path(0), position)
        case "zero":
            log.disk.zero(log.path(0), position, segment.size - position)
        case "lose":
            log.disk.lose(log.path(0))
    return log.reopen()


def harm(log: LogFixture, how: str) -> LogFixture:
    return harm_from(log, 6, how)


def replica(log: LogFixture) -> ReadOther:
    """Return what reads one batch of a log."""
    return lambda offset, end: log.read(offset, 1, min(log.end, end))


def next_leader(log: LogFixture) -> LogFixture:
    """Let the log be led in the next epoch, with its damage, over a restart."""
    log.leader_epoch = 4
    return log.append("next").flush().checkpoint().reopen()


@HARMS
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_follower_that_has_the_lost_end_continues_after_it(how: str, is_restarted: bool) -> None:
    log = harm(filled(), how)
    if is_restarted:
        next_leader(log)
    assert first_difference(log.log.epochs, log.end, last_epoch=3, follower_end=8) is None


@HARMS
def test_the_lost_end_is_refetched_with_the_epochs_that_it_had(how: str) -> None:
    log, good = next_leader(harm(filled(), how)), filled()
    refetch(log, replica(good))
    assert log.values() == [*"abcdefgh", "next"]
    assert [tuple(entry) for entry in log.log.epochs] == [(0, 0), (1, 6), (3, 7), (4, 8)]
    assert log.checkpoint().power_cut(keep=1.0).reopen().values() == [*"abcdefgh", "next"]
    assert [tuple(entry) for entry in log.log.epochs] == [(0, 0), (1, 6), (3, 7), (4, 8)]


def with_transactions() -> LogFixture:
    """Return a log whose end has aborted transactions: two that began before, one in the checkpoint, one not."""
    log = LogFixture()
    log.append("a")
    log.send(0, "b", producer=1, transactional=True)
    log.send(0, "c", producer=2, transactional=True)
    log.flush().checkpoint().append("d").abort(producer=1)
    log.flush().checkpoint()
    log.send(0, "e", producer=3, transactional=True)
    for producer in (2, 3):
        log.abort(producer=producer)
    return log.flush()


@HARMS
def test_transactions_that_end_in_the_lost_end_are_aborted_once_it_is_refetched(how: str) -> None:
    good, log = with_transactions(), with_transactions()
    [segment] = log.log.segments
    lost_at = segment.locate(3)
    match how:
        case "shorten":
            log.disk.shorten(log.path(0), lost_at)
        case "zero":
            log.disk.zero(log.path(0), 0, segment.size)
        case "lose":
            log.disk.lose(log.path(0))
    next_leader(log.reopen())
    refetch(log, replica(good))
    for start in range(8):
        assert log.aborted(start, 8) == good.aborted(start, 8)
    assert log.checkpoint().power_cut(keep=1.0).reopen().aborted() == good.aborted() == [(1, 1), (2, 2), (3, 5)]


RESTARTS = pytest.mark.parametrize("is_restarted", [False, True])
"""Whether the log is opened again before it is repaired: its last checkpoint is one without the lost batches."""


@HARMS
@RESTARTS
def test_a_transaction_that_ended_in_the_lost_end_is_decided_once_it_is_refetched(
    how: str, *, is_restarted: bool
) -> None:
    log, good = harm_from(with_transactions(), 5, how), with_transactions()
    if is_restarted:
        next_leader(log)
    log.append("next").flush()
    assert log.last_stable() < log.end
    refetch(log, replica(good))
    assert log.last_stable() == log.end
    log.send(1, "f", producer=2, transactional=True)
    log.abort(producer=2)
    assert log.aborted() == [*good.aborted(), (2, log.end - 2)]


def with_an_open_transaction() -> LogFixture:
    """Return a log whose last batch, after its checkpoint, begins a transaction."""
    log = LogFixture().append("a").flush().checkpoint()
    log.send(0, "b", producer=1, transactional=True)
    return log.flush()


@HARMS
@RESTARTS
def test_lost_records_of_a_transaction_that_is_aborted_meanwhile_are_left_out_once_they_are_back(
    how: str, *, is_restarted: bool
) -> None:
    log, good = harm_from(with_an_open_transaction(), 1, how), with_an_open_transaction()
    log.abort(producer=1)
    log.flush()
    if is_restarted:
        next_leader(log)
    refetch(log, replica(good))
    assert (log.aborted(), log.last_stable()) == ([(1, 1)], log.end)
    assert log.aborted(1, 2) == [(1, 1)]
    assert log.checkpoint().power_cut(keep=0).reopen().aborted(1, 2) == [(1, 1)]


@HARMS
def test_a_transaction_that_began_in_the_lost_end_is_undecided_once_it_is_back(how: str) -> None:
    log, good = harm_from(with_an_open_transaction(), 1, how), with_an_open_transaction()
    log.append("next").flush().checkpoint()
    refetch(log, replica(good))
    assert log.last_stable() == 1
    log.abort(producer=1)
    assert (log.aborted(), log.last_stable()) == ([(1, 1)], log.end)


@HARMS
def test_a_crash_before_the_next_checkpoint_costs_nothing(how: str) -> None:
    log, good = harm_from(with_an_open_transaction(), 1, how), with_an_open_transaction()
    log.abort(producer=1)
    log.flush().checkpoint()
    segment = damaged_segment(log)
    assert segment is not None
    assert rebuilt(log, segment, replica(good)).replace_segment()
    log.disk.open_directory(DIRECTORY).sync()
    log.power_cut(keep=0).reopen()
    # Its checkpoint lists the segment as it was before the repair.
    refetch(log, replica(good))
    assert (log.aborted(), log.last_stable()) == ([(1, 1)], log.end)
    assert log.checkpoint().reopen().log.unseen is None
    assert log.aborted() == [(1, 1)]


@HARMS
def test_a_checkpoint_that_is_being_written_stays_as_it_was(how: str) -> None:
    log, good = harm_from(with_transactions(), 5, how), with_transactions()
    log.append("next").flush().checkpoint()
    state = log.log.state()
    before = state.producers.encode()
    refetch(log, replica(good))
    assert state.producers.encode() == before != log.log.producers.snapshot(log.end).encode()


def test_what_came_back_before_a_crash_is_seen_by_the_next_start() -> None:
    log, good = with_an_open_transaction(), with_an_open_transaction()
    for each in (log, good):
        each.append("after").flush()
    log.disk.zero(log.path(0), BATCH_BYTES, BATCH_BYTES)
    log.reopen().abort(producer=1)
    log.flush()
    segment = damaged_segment(log)
    assert segment is not None
    assert rebuilt(log, segment, replica(good)).replace_segment()
    log.disk.open_directory(DIRECTORY).sync()
    log.power_cut(keep=0).reopen()
    assert not log.damage
    assert (log.aborted(), log.last_stable()) == ([(1, 1)], log.end)


def test_what_is_appended_while_the_log_is_read_counts_too() -> None:
    log, good = harm_from(with_an_open_transaction(), 1, "zero"), with_an_open_transaction()
    segment = damaged_segment(log)
    assert segment is not None
    rebuild = rebuilt(log, segment, replica(good))
    assert not rebuild.is_behind()
    log.append("x" * ON_LOOP_MAX_BYTES)
    assert rebuild.is_behind()
    rebuild.read_on()
    assert not rebuild.is_behind()
    log.abort(producer=1)
    log.send(0, "c", producer=2, transactional=True)
    assert rebuild.replace_segment()
    assert (log.aborted(), log.last_stable()) == ([(1, 1)], log.end - 1)


def test_the_transactions_are_known_with_the_last_segment_that_comes_back() -> None:
    log, good = with_an_open_transaction(), with_an_open_transaction()
    for each in (log, good):
        each.append("c" * 900).flush()
    log.disk.zero(log.path(0), BATCH_BYTES, BATCH_BYTES)
    log.disk.zero(log.path(2), 0, 1000)
    log.reopen().abort(producer=1)
    log.flush()
    first = damaged_segment(log)
    assert first is not None
    assert rebuilt(log, first, replica(good)).replace_segment()
    assert log.log.unseen is not None
    refetch(log, replica(good))
    assert log.log.unseen is None
    assert (log.aborted(), log.last_stable()) == ([(1, 1)], log.end)


def test_aborted_transactions_of_a_segment_are_known_again_though_another_one_stays_lost() -> None:
    log, good = with_transactions(), with_transactions()
    for each in (log, good):
        each.append("f" * 900).flush()
    for segment in log.log.segments:
        log.disk.zero(segment.path, 0, segment.size)
    log.reopen()
    segment = log.log.segments[0]
    assert rebuilt(log, segment, replica(good)).replace_segment()
    assert log.log.unseen is not None
    assert log.aborted() == good.aborted()


def test_the_cut_of_a_lost_end_leaves_nothing_unseen() -> None:
    log = harm_from(with_an_open_transaction(), 1, "zero")
    assert log.log.unseen is not None
    log.truncate(1)
    assert log.log.unseen is None
    assert log.reopen().log.unseen is None


def test_the_loss_of_the_only_segment_deletes_nothing() -> None:
    """The log start offset of a leader is that of its followers, which may have the records."""
    log = harm(filled(), "lose")
    assert (log.start, log.end) == (0, 8)
    [damage] = [one for one in log.damage if isinstance(one, LostTail)]
    assert (damage.path, damage.offset) == (DIRECTORY, 0)
    for _ in range(2):
        next_leader(log)
        assert log.start == 0
        assert any(damage.path == log.path(0) for damage in log.damage)
