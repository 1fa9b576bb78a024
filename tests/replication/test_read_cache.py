"""The replication read cache: one read for all followers, and a prefetch where the page cache lacks the bytes."""

import pytest
from log_fixture import LogFixture

from cordwood.replication.read_cache import SHARED_BYTES_MAX, ReplicationReadCache
from cordwood.storage.errors import NotInMemory
from cordwood.storage.log import Log

LITTLE_BYTES, BYTES_MAX = 300, 1 << 20
FOLLOWERS = 2


def log_of(batches: int) -> tuple[LogFixture, ReplicationReadCache]:
    """Return a log with small batches that no follower has fetched yet, and its read cache."""
    scenario = LogFixture()
    read_cache = ReplicationReadCache(scenario.log)
    for number in range(batches):
        appended = scenario.append_batch(str(number))
        assert appended.kept is not None
        read_cache.appended(appended.base_offset, appended.end_offset, appended.kept)
    return scenario, read_cache


def test_what_was_read_ahead_can_be_sent_though_its_segment_had_been_closed() -> None:
    scenario = LogFixture().append(*map(str, range(100))).flush()
    read_cache = ReplicationReadCache(scenario.log)
    first = read_cache.take(0, LITTLE_BYTES, FOLLOWERS)
    assert first is not None
    sealed = scenario.log.segments[0]
    assert first.end < sealed.end_offset, "the follower goes on within the segment, at a place that the log remembers"
    sealed.release()
    with pytest.raises(NotInMemory):
        read_cache.take(first.end, BYTES_MAX, FOLLOWERS)
    read_cache.prefetch(first.end, BYTES_MAX)
    second = read_cache.take(first.end, BYTES_MAX, FOLLOWERS)
    assert second is not None
    assert second.start == first.end


def test_small_batches_are_sent_as_they_were_appended_and_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, read_cache = log_of(3)
    whole = scenario.log.read(0, BYTES_MAX, scenario.log.log_end)
    monkeypatch.setattr(Log, "read_for_replication", lambda *_, **__: pytest.fail("it was read back"))
    for _ in range(FOLLOWERS):
        batches = read_cache.take(0, BYTES_MAX, FOLLOWERS)
        assert batches is not None
        assert (batches.end, batches.size, batches.chunk) == (3, len(whole), whole)


def test_a_follower_that_is_elsewhere_is_sent_what_the_disk_has() -> None:
    scenario, read_cache = log_of(3)
    batches = read_cache.take(1, BYTES_MAX, FOLLOWERS)
    assert batches is not None
    assert (batches.start, batches.end) == (1, 3)
    assert batches.size == len(scenario.log.read(1, BYTES_MAX, 3))


def test_what_is_kept_for_the_followers_is_little_and_without_gaps() -> None:
    _, read_cache = log_of(2)
    batch = bytes(SHARED_BYTES_MAX)
    read_cache.appended(2, 3, batch)
    assert read_cache.take(0, BYTES_MAX, 1) is not None
    read_cache.appended(5, 6, b"after a gap")
    assert read_cache.take(2, BYTES_MAX, 1) is None, "nothing of it is in the log"
    assert read_cache.take(5, BYTES_MAX, 1) is not None
