"""The segment that a truncation cuts: nothing of the removed batches stays with it."""

import pytest
from log_fixture import SMALL, START_MS, LogFixture

from cordwood.storage.errors import DamagedLog

DAY_MS = 86_400_000


def test_its_largest_time_is_that_of_the_rest() -> None:
    log = LogFixture().append("a", timestamp=START_MS).append(*"bcdef", timestamp=START_MS + DAY_MS)
    log.flush().truncate(1)
    assert log.log.segments[-1].max_timestamp == START_MS


def test_what_takes_the_place_of_damage_is_sound() -> None:
    log = LogFixture().append(*"abcdefgh").flush()
    segment = log.log.segments[0]
    log.disk.flip(segment.path, segment.size - 1, 0)
    with pytest.raises(DamagedLog):
        log.values()
    size = segment.size
    segment.truncate(segment.locate(4), 4)
    assert segment.damaged.intact_end(segment.path, 0, size) == size


def test_batches_that_take_the_place_of_verified_ones_are_verified() -> None:
    log = LogFixture().append(*"abcdefgh").flush()
    segment = log.log.segments[0]
    segment.decoded_to = segment.size
    log.truncate(2)
    assert segment.decoded_to == segment.size


def test_a_restart_knows_the_first_time_of_the_active_segment() -> None:
    log = LogFixture(SMALL).append("a", "b", timestamp=START_MS).append(*"cdefg", timestamp=START_MS + DAY_MS)
    log.flush().reopen()
    assert log.log.segments[-1].first_timestamp == START_MS
    log.checkpoint().reopen()
    assert log.log.segments[-1].first_timestamp == START_MS
