"""Formats of a record stream: JSON lines, or server-sent events with ids to resume from. Pure."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from cordwood.cluster.http.records.encodings import ReadRecord
from cordwood.cluster.http.refusal import Mistake
from cordwood.storage.types import TopicPartition

LINES, EVENTS = "application/x-ndjson", "text/event-stream"

OFFSET_CHARS_MAX = 19
_ID = re.compile(r"[0-9]{1,10}:[0-9]{1,19}(,([0-9]{1,10}:)?[0-9]{1,19})*")
_encode = msgspec.json.encode


class Gap(msgspec.Struct, frozen=True, omit_defaults=True):
    """A range of offsets, from `from` up to before `to`, whose records are missing.

    Without a `reason` the records were deleted by retention; with one, they cannot be decoded.
    """

    topic: str
    partition: int
    start: int = msgspec.field(name="from")
    to: int
    reason: str | None = None


class Lines:
    """JSON lines. Lines without an offset are no records: {"gap": …} or, at the end, {"error": …, "code": …}."""

    def records(self, _place: TopicPartition, records: Sequence[ReadRecord]) -> bytes:
        return _lines(records)

    def passed(self, _place: TopicPartition, _end: int) -> bytes:
        """Return nothing: only events have a position to resume from."""
        return b""

    def gap(self, place: TopicPartition, missing: range, reason: str | None = None) -> bytes:
        return _encode({"gap": _gap(place, missing, reason)}) + b"\n"

    def mistake(self, mistake: Mistake) -> bytes:
        return _encode(mistake) + b"\n"

    def heartbeat(self) -> bytes:
        """Return nothing: an empty line is no record, and not every reader ignores it."""
        return b""


class Events:
    """Server-sent events, whose id is the next offset of every partition.

    A client that reconnects with an id continues after the events that it has seen. A partition's number is left out of
    the id if it is the previous one plus one.
    """

    def __init__(self, starts: Mapping[TopicPartition, int]) -> None:
        self._next = {place.partition: offset for place, offset in sorted(starts.items())}
        self._labels = ["" if partition - 1 in self._next else f"{partition}:" for partition in self._next]

    @property
    def id_chars_max(self) -> int:
        """The maximum length of an id."""
        return sum(len(label) + OFFSET_CHARS_MAX + 1 for label in self._labels)

    def records(self, place: TopicPartition, records: Sequence[ReadRecord]) -> bytes:
        out = []
        for record in records:
            self._next[place.partition] = record.offset + 1
            out.append(b"id: %b\ndata: %b\n\n" % (self._id(), _encode(record)))
        return b"".join(out)

    def passed(self, place: TopicPartition, end: int) -> bytes:
        """Return an id alone, which browsers keep, if the last event's id is not the position to resume from."""
        if self._next[place.partition] == end:
            return b""
        self._next[place.partition] = end
        return b"id: %b\n\n" % self._id()

    def gap(self, place: TopicPartition, missing: range, reason: str | None = None) -> bytes:
        self._next[place.partition] = missing.stop
        return b"event: gap\nid: %b\ndata: %b\n\n" % (self._id(), _encode(_gap(place, missing, reason)))

    def mistake(self, mistake: Mistake) -> bytes:
        return b"event: mistake\ndata: %b\n\n" % _encode(mistake)

    def heartbeat(self) -> bytes:
        return b": still here\n\n"

    def _id(self) -> bytes:
        return ",".join(map("{}{}".format, self._labels, self._next.values())).encode()


Format = Lines | Events


def positions_in(event_id: str) -> dict[int, int] | None:
    """Return the next offset of each partition from an event's id; None if the id is not valid."""
    if not _ID.fullmatch(event_id):
        return None
    positions: dict[int, int] = {}
    partition = -1
    for part in event_id.split(","):
        number, _, offset = part.rpartition(":")
        partition = int(number) if number else partition + 1
        positions[partition] = int(offset)
    return positions


def _gap(place: TopicPartition, missing: range, reason: str | None) -> Gap:
    return Gap(place.topic, place.partition, missing.start, missing.stop, reason)


def _lines(records: Sequence[ReadRecord]) -> bytes:
    return b"".join([_encode(record) + b"\n" for record in records])
