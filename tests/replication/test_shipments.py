"""What a leader sends next: read once for all followers, and off the loop where memory does not have it."""

import pytest
from log_fixture import LogFixture

from cordwood.replication.shipments import Shipments
from cordwood.storage.segment import NotInMemory

LITTLE_BYTES, BYTES_MAX = 300, 1 << 20
FOLLOWERS = 2


def test_what_was_read_ahead_can_be_sent_though_its_segment_had_been_closed() -> None:
    story = LogFixture().append(*map(str, range(100))).flush()
    shipments = Shipments(story.log)
    first = shipments.take(0, LITTLE_BYTES, FOLLOWERS)
    assert first is not None
    sealed = story.log.segments[0]
    assert first.end < sealed.end_offset, "the follower goes on within the segment, at a place that the log remembers"
    sealed.release()
    shipments.forget()
    with pytest.raises(NotInMemory):
        shipments.take(first.end, BYTES_MAX, FOLLOWERS)
    shipments.warm(first.end, BYTES_MAX)
    second = shipments.take(first.end, BYTES_MAX, FOLLOWERS)
    assert second is not None
    assert second.start == first.end
