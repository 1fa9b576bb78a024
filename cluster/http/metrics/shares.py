"""Metrics of share groups at the leaders of their partitions."""

from collections.abc import Callable, Iterator

from cordwood.cluster.http.metrics.family import Family, MetricType, Row, Rows, counters, gauges
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.share.measures import ShareMeasures
from cordwood.cluster.share.share_partitions import SharePartitionView

LABELS = ("group", "topic", "partition")


def _records(watched: Watched) -> Iterator[Row]:
    if watched.share is not None:
        counts = watched.share.measures
        yield ("acquired",), counts.acquired
        yield ("redelivered",), counts.redelivered
        yield ("acknowledged",), counts.acknowledged
        yield ("released",), counts.released
        yield ("rejected",), counts.rejected
        yield ("archived",), counts.archived
        yield ("lock_timeout",), counts.expired_locks


def _count(name: str, meaning: str, number: Callable[[ShareMeasures], int]) -> Family:
    def rows(watched: Watched) -> Rows:
        return () if watched.share is None else (((), number(watched.share.measures)),)

    return Family(f"cordwood_{name}_total", MetricType.COUNTER, meaning, (), rows)


def _of_partitions(number: Callable[[SharePartitionView], int]) -> Callable[[Watched], Rows]:
    def rows(watched: Watched) -> Iterator[Row]:
        if watched.share is not None:
            for view in watched.share.views():
                yield (view.group_id, view.topic, str(view.partition)), number(view)

    return rows


FAMILIES: tuple[Family, ...] = (
    counters(
        "share_records",
        "Records of share groups, by what happened to them: acquired by members, redelivered (acquired again),"
        " acknowledged, released, rejected, archived (rejected, or delivered too often), or lock_timeout.",
        ("event",),
        _records,
    ),
    _count(
        "share_dead_letters",
        "Records that were copied to a dead-letter topic.",
        lambda measures: measures.dead_letters,
    ),
    _count(
        "share_dead_letters_without_contents",
        "Copies in dead-letter topics without key and value, because the record could not be read, or was too large.",
        lambda measures: measures.dead_letters_without_contents,
    ),
    _count(
        "share_dead_letters_refused",
        "Records that were archived without a copy, because the group's dead-letter topic does not allow it.",
        lambda measures: measures.dead_letters_refused,
    ),
    _count(
        "share_state_writes",
        "Writes of share partitions' states to share coordinators.",
        lambda measures: measures.writes,
    ),
    _count(
        "share_state_write_failures",
        "Writes of share partitions' states that failed. They are tried again.",
        lambda measures: measures.failed_writes,
    ),
    gauges(
        "share_in_flight_records",
        "Records that were delivered to a share group and are not finished, in partitions that this broker leads.",
        LABELS,
        _of_partitions(lambda view: view.in_flight),
    ),
    gauges(
        "share_acquired_records",
        "Records that are locked for members of a share group, in partitions that this broker leads.",
        LABELS,
        _of_partitions(lambda view: view.acquired),
    ),
)
