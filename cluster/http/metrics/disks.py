"""Metrics of log directories: failures, room, flush latency and damage."""

from collections.abc import Callable, Iterator

from cordwood.cluster.http.metrics.family import Family, Row, counter, gauge, gauges, histogram
from cordwood.cluster.http.watched import Room, Watched, room_of

LABELS = ("directory",)


def _offline(watched: Watched) -> Iterator[Row]:
    return (((directory.path,), directory.is_offline) for directory in watched.replicas.directories)


def _room(number: Callable[[Room], int]) -> Callable[[Watched], Iterator[Row]]:
    """Read a number of each directory whose room is known."""

    def rows(watched: Watched) -> Iterator[Row]:
        for directory in watched.replicas.directories:
            room = room_of(directory)
            if room is not None:
                yield (directory.path,), number(room)

    return rows


FAMILIES: tuple[Family, ...] = (
    gauges("log_directory_offline", "1 if the log directory's disk has failed.", LABELS, _offline),
    gauges(
        "log_directory_free_bytes",
        "Room left on the log directory's file system.",
        LABELS,
        _room(lambda room: room.free_bytes),
    ),
    gauges(
        "log_directory_total_bytes",
        "Size of the log directory's file system.",
        LABELS,
        _room(lambda room: room.total_bytes),
    ),
    histogram(
        "flush_duration_seconds",
        "Time that a group commit is with the disks: from the first fdatasync up to the end of the last.",
        lambda watched: watched.flushes.seconds,
    ),
    histogram(
        "flush_appends",
        "Appends that one group commit makes sure: a client's batch is one, and so is what a leader sends at a time.",
        lambda watched: watched.flushes.appends,
    ),
    histogram(
        "flush_replicas",
        "Replicas that one group commit writes to.",
        lambda watched: watched.flushes.replicas,
    ),
    counter(
        "damaged_places_found", "Places that were found damaged on the disks.", lambda watched: watched.damage.found
    ),
    counter("damaged_places_repaired", "Damaged places that were repaired.", lambda watched: watched.damage.repaired),
    gauge(
        "damaged_places",
        "Places that are damaged, and not repaired yet.",
        lambda watched: watched.damage.under_repair,
    ),
    gauge(
        "undecodable_batches",
        "Batches with a right checksum and compressed records that cannot be unpacked, found since the start.",
        lambda watched: len(watched.damage.undecodable),
    ),
)
