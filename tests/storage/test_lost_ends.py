"""A log that lost its end and goes on: its followers keep those records, and give them back."""

import pytest
from log_fixture import DIRECTORY, ROOT, LogFixture

from cordwood.replication.follower import first_difference
from cordwood.storage.errors import DamagedLog, LostTail
from cordwood.storage.scrub import verify, view_of
from cordwood.storage.segment_rebuild import Missing, SegmentRebuild

BATCH_BYTES = 69
"""Size of a batch of a one-letter value."""
STAGING = f"{ROOT}/repair"


def filled() -> LogFixture:
    """Return a log of the epochs 0, 1 and 3, of which the last two have begun since its checkpoint."""
    log = LogFixture().append(*"abcd").flush().checkpoint().append(*"ef").flush()
    for epoch, value in ((1, "g"), (3, "h")):
        log.leader_epoch = epoch
        log.append(value).flush()
    log.disk.make_directories(STAGING)
    return log


def harm(log: LogFixture, how: str) -> LogFixture:
    match how:
        case "shorten":
            log.disk.shorten(log.path(0), 6 * BATCH_BYTES)
        case "zero":
            log.disk.zero(log.path(0), 6 * BATCH_BYTES, 2 * BATCH_BYTES)
        case "lose":
            log.disk.lose(log.path(0))
    return log.reopen()


def next_leader(log: LogFixture) -> LogFixture:
    """Let the log be led in the next epoch, with its damage, over a restart."""
    log.leader_epoch = 4
    return log.append("next").flush().checkpoint().reopen()


def refetch(log: LogFixture, good: LogFixture) -> None:
    """Repair all segments with the records of another replica."""
    while damage := [one for one in verify(view_of(log.log)) if isinstance(one, DamagedLog) and one.path[-3:] == "log"]:
        segment = next(one for one in log.log.segments if one.path == damage[0].path)
        rebuild = SegmentRebuild(log.log, segment, STAGING)
        for step in rebuild.steps():
            while isinstance(step, Missing) and rebuild.due < step.end:
                rebuild.fill(step, good.read(rebuild.due, 1, min(8, step.end)))
        assert rebuild.replace_segment()


@pytest.mark.parametrize("how", ["shorten", "zero", "lose"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_follower_that_has_the_lost_end_continues_after_it(how: str, is_restarted: bool) -> None:
    log = harm(filled(), how)
    if is_restarted:
        next_leader(log)
    assert first_difference(log.log.epochs, log.end, last_epoch=3, follower_end=8) is None


@pytest.mark.parametrize("how", ["shorten", "zero", "lose"])
def test_the_lost_end_is_refetched_with_the_epochs_that_it_had(how: str) -> None:
    log, good = next_leader(harm(filled(), how)), filled()
    refetch(log, good)
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
    log.flush().disk.make_directories(STAGING)
    return log


@pytest.mark.parametrize("how", ["shorten", "zero", "lose"])
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
    refetch(log, good)
    for start in range(8):
        assert log.aborted(start, 8) == good.aborted(start, 8)
    assert log.checkpoint().power_cut(keep=1.0).reopen().aborted() == good.aborted() == [(1, 1), (2, 2), (3, 5)]


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
