"""Metrics of reassignments: what this broker, as leader, has still to send to replicas that are being added."""

from collections.abc import Iterator

from cordwood.cluster.http.metrics.family import Family, Row, Rows, counter, gauges
from cordwood.cluster.http.watched import Watched
from cordwood.replication.token_bucket import UNLIMITED
from cordwood.storage.log import Log


def bytes_after(log: Log, offset: int) -> int:
    """Return the bytes of the log from `offset` on. Within a segment they are in proportion to its offsets."""
    total, end = 0, log.log_end
    for segment in reversed(log.segments):
        if segment.base_offset < offset:
            return total + segment.size * max(end - offset, 0) // max(end - segment.base_offset, 1)
        total, end = total + segment.size, segment.base_offset
    return total


def _left(watched: Watched) -> Rows:
    for partition in list(watched.replicas):
        yield None
        if (leader := partition.leading) is not None and leader.view.assignment.charges:
            for follower in leader.followers():
                if leader.view.charge_of(follower.broker_id) is not None:
                    place = (partition.topic, str(partition.index), str(follower.broker_id))
                    yield place, bytes_after(partition.log, follower.flushed_end)


def _rate(watched: Watched) -> Iterator[Row]:
    if watched.throttle.rate < UNLIMITED:
        yield (), watched.throttle.rate


FAMILIES: tuple[Family, ...] = (
    gauges(
        "reassignment_left_bytes",
        "Bytes of a log led by this broker that a replica added by a reassignment does not have on disk.",
        ("topic", "partition", "broker"),
        _left,
    ),
    counter(
        "reassignment_sent_bytes",
        "Bytes that this broker has sent, as leader, to replicas that reassignments were adding.",
        lambda watched: watched.throttle.sent_bytes,
    ),
    gauges(
        "replication_throttled_rate_bytes_per_second",
        "leader.replication.throttled.rate of this broker. Without a limit there is no sample.",
        (),
        _rate,
    ),
)
