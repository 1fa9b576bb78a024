"""Metrics of log directories: failures, room, flush latency and damage."""

from collections.abc import Callable, Iterator

from cordwood.cluster.http.metrics.family import Family, Row, counter, gauge, gauges, histogram
from cordwood.cluster.http.watched import Room, Watched, room_of

LABELS = ("directory",)


def _offline(watched: Watched) -> Iterator[Row]:
    yield from (((directory.path,), directory.is_offline) for directory in watched.replicas.directories)
    yield from (((left_out.path,), True) for left_out in watched.replicas.left_out)


def _room(number: Callable[[Room], int]) -> Callable[[Watched], Iterator[Row]]:
    """Read a number of each directory whose room is known."""

    def rows(watched: Watched) -> Iterator[Row]:
        for directory in watched.replicas.directories:
            room = room_of(directory)
            if room is not None:
                yield (directory.path,), number(room)

    return rows


FAMILIES: tuple[Family, ...] = (
    gauges("log_directory_offline", "1 if the log directory is offline because its disk failed.", LABELS, _offline),
    gauges(
        "log_directory_free_bytes",
        "Free space of the log directory's file system.",
        LABELS,
        _room(lambda room: room.free_bytes),
    ),
    gauges(
        "log_directory_total_bytes",
        "Size of the log directory's file system.",
        LABELS,
        _room(lambda room: room.total_bytes),
    ),
    gauge(
        "log_directory_moves",
        "Replicas that are being moved to another log directory of this broker.",
        lambda watched: len(list(watched.replicas.moves or ())),
    ),
    gauge(
        "log_directory_moves_left_bytes",
        "Bytes that these moves still have to copy.",
        lambda watched: 0 if watched.replicas.moves is None else watched.replicas.moves.missing_bytes,
    ),
    counter(
        "log_directory_moves_completed",
        "Replicas that have moved to another log directory.",
        lambda watched: 0 if watched.replicas.moves is None else watched.replicas.moves.completed,
    ),
    histogram(
        "flush_duration_seconds",
        "Duration of a group commit on the disks: from the start of the first fdatasync to the end of the last.",
        lambda watched: watched.flushes.seconds,
    ),
    histogram(
        "flush_appends",
        "Appends in one group commit. A client's batch is one append, and so is one push from a leader.",
        lambda watched: watched.flushes.appends,
    ),
    histogram(
        "flush_replicas",
        "Replicas in one group commit.",
        lambda watched: watched.flushes.replicas,
    ),
    counter(
        "damaged_places_found", "Damaged places that were detected on the disks.", lambda watched: watched.damage.found
    ),
    counter("damaged_places_repaired", "Damaged places that were repaired.", lambda watched: watched.damage.repaired),
    gauge(
        "damaged_places",
        "Damaged places that are not repaired yet.",
        lambda watched: watched.damage.under_repair,
    ),
    gauge(
        "undecodable_batches",
        "Batches with a correct checksum whose compressed records cannot be decompressed, found since the start.",
        lambda watched: len(watched.damage.undecodable),
    ),
)
