"""Preallocated segments after a kill: recovery keeps blank preallocated space without a sync (disk rule 2)."""

import pytest
from log_fixture import LogFixture

from cordwood.storage.recovery import BLANK_BYTES_MAX


def synced_by_opening(log: LogFixture) -> list[str]:
    """Reopen the log after a kill. Return the paths that recovery synced."""
    synced: list[str] = []
    log.disk.on_sync = synced.append
    log.reopen()
    log.disk.on_sync = lambda _: None
    return synced


def test_a_log_that_was_flushed_when_it_was_killed_opens_without_a_sync(log: LogFixture) -> None:
    log.append("a", "b").flush()
    allocated = len(log.disk.content(log.path(0)))
    assert synced_by_opening(log) == []
    assert log.values() == ["a", "b"]
    assert len(log.disk.content(log.path(0))) == allocated > log.log.size


def test_appends_go_on_in_the_space_that_was_kept(log: LogFixture) -> None:
    log.append("a").flush().reopen()
    log.append("b").flush().power_cut(keep=0).reopen()
    assert log.values() == ["a", "b"]
    log.close()
    assert len(log.disk.content(log.path(0))) == log.log.size


@pytest.mark.parametrize("at", [1, 511, 5000])
def test_a_stale_byte_after_the_records_is_cut_for_good(log: LogFixture, at: int) -> None:
    log.append("a").flush()
    size = log.log.size
    log.disk.open(log.path(0)).pwrite([b"\x02"], size + at)
    assert log.path(0) in synced_by_opening(log)
    assert len(log.disk.durable_content(log.path(0))) == size
    assert log.values() == ["a"]


def test_more_than_is_quickly_looked_through_is_cut(log: LogFixture) -> None:
    log.append("a").flush()
    size = log.log.size
    log.disk.open(log.path(0)).preallocate(size, BLANK_BYTES_MAX + 1)
    assert log.path(0) in synced_by_opening(log)
    assert len(log.disk.content(log.path(0))) == size
