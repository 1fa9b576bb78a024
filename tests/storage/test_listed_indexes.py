"""Index of a listed segment: on disk before a manifest lists the segment, and never rebuilt from a wrong stamp."""

import pytest
from log_fixture import LogFixture

from cordwood.storage.batch import STAMP_BYTES, check, stamp
from cordwood.storage.errors import DamagedLog
from cordwood.storage.records import Record, encode
from cordwood.storage.rewrite import write_index_again

BATCH_BYTES = 69
"""Size of a batch of a one-letter value."""
EPOCH_AT = 12
"""Position of the leader epoch in a batch. No checksum of the batch covers it or the offset before it."""


def closed(log: LogFixture) -> LogFixture:
    """Return the log with several closed segments of two leader epochs, all of it checkpointed."""
    log.append(*"abcdefgh").leader_epoch = 4
    log.append(*"ijklmnopqrstuvwxyzabcdefghijklm").flush().checkpoint()
    assert len(log.bases) > 2
    return log


def with_gaps(log: LogFixture, count: int) -> LogFixture:
    """Take batches of every third offset, as a follower of a compacted log does.

    The first segment has one batch: the second one is the first that may have gaps.
    """
    for number in range(count):
        batch = encode([Record(0, log.now, None, b"x")])
        log.take_stamped(b"".join((stamp(check(batch), number * 3, 0), batch[STAMP_BYTES:])))
    return log


def assert_refused(log: LogFixture, offset: int) -> None:
    with pytest.raises(DamagedLog):
        log.read(offset, 1)


@pytest.mark.parametrize("position", [1, 2, 9])
@pytest.mark.parametrize("bit", range(4))
def test_no_power_cut_lets_a_flipped_epoch_of_a_listed_segment_pass(log: LogFixture, position: int, bit: int) -> None:
    closed(log).power_cut(keep=0.0)
    log.disk.flip(log.path(0), position * BATCH_BYTES + EPOCH_AT + 3, bit)
    log.reopen()
    assert_refused(log, position)


@pytest.mark.parametrize("batch", range(1, 7))
def test_no_power_cut_lets_a_flipped_offset_of_a_listed_segment_with_gaps_pass(log: LogFixture, batch: int) -> None:
    with_gaps(log, 30).flush().checkpoint().power_cut(keep=0.0)
    log.disk.flip(log.log.segments[1].path, batch * BATCH_BYTES + 7, 0)
    log.reopen()
    assert_refused(log, (batch + 1) * 3)


@pytest.mark.parametrize("position", [1, 2, 9])
@pytest.mark.parametrize("bit", range(4))
def test_a_lost_index_is_not_rebuilt_from_a_flipped_epoch(log: LogFixture, position: int, bit: int) -> None:
    closed(log)
    log.disk.flip(log.path(0), position * BATCH_BYTES + EPOCH_AT + 3, bit)
    log.disk.lose(log.path(0, "index"))
    log.reopen()
    assert_refused(log, position)


def test_an_index_that_is_lost_while_the_log_is_open_is_not_rebuilt_from_a_flipped_epoch(log: LogFixture) -> None:
    closed(log)
    log.disk.flip(log.path(0), BATCH_BYTES + EPOCH_AT + 3, 0)
    log.disk.lose(log.path(0, "index"))
    log.log.segments[0].release()
    assert_refused(log, 1)


def test_a_segment_that_recovery_has_scanned_is_listed_with_its_whole_index(log: LogFixture) -> None:
    with_gaps(log, 30).flush()
    path = log.log.segments[1].path
    for segment in log.log.segments[:-1]:
        log.disk.lose(segment.index_path)
    log.reopen().append("later").flush().checkpoint().power_cut(keep=0.0)
    log.disk.flip(path, 3 * BATCH_BYTES + 7, 0)
    log.reopen()
    assert_refused(log, 12)


def test_segments_that_replace_truncated_ones_are_listed_with_their_index(log: LogFixture) -> None:
    closed(log).truncate(log.bases[1]).append(*"abcdefghijklmnopqrstuvwxyz").flush()
    assert log.log.has_unlisted_segments
    log.checkpoint().power_cut(keep=0.0)
    for base in log.bases[:-1]:
        assert log.disk.content(log.path(base, "index")) != b"", base


def test_a_listed_segment_that_was_truncated_is_listed_anew_with_its_index(log: LogFixture) -> None:
    closed(log).truncate(log.bases[1] + 3).append("x" * 990).flush()
    assert log.bases[-2] < log.bases[-1] == log.end - 1, "it is closed where it was truncated"
    assert log.log.has_unlisted_segments
    log.checkpoint().power_cut(keep=0.0)
    assert log.disk.content(log.path(log.bases[1], "index")) != b""


def test_an_index_that_is_rewritten_is_on_disk(log: LogFixture) -> None:
    closed(log)
    first = log.log.segments[0]
    before = log.disk.content(first.index_path)
    log.disk.flip(first.index_path, 40, 2)
    first.release()
    write_index_again(first)
    log.power_cut(keep=0.0)
    assert log.disk.content(first.index_path) == before
