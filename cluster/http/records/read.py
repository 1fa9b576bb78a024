"""`GET /v1/topics/{topic}/records`: consume records as JSON lines up to the end, or as server-sent events."""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import Annotated

import msgspec
from aiohttp import web

from cordwood.cluster.http import offsets
from cordwood.cluster.http.api.topics import PartitionIndex
from cordwood.cluster.http.bodies import HEADER_BYTES_MAX
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.records.encodings import Encoding, ReadRecord, written, written_marker
from cordwood.cluster.http.records.formats import EVENTS, LINES, Events, Format, Lines, positions_in
from cordwood.cluster.http.records.portions import RECORDS_MAX, MarkerRecord
from cordwood.cluster.http.records.reader import Piece, RecordReader, Wanted
from cordwood.cluster.http.refusal import HttpRefusal, Mistake
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.access import Access
from cordwood.cluster.http.security.credentials import unauthenticated
from cordwood.cluster.http.security.rights import READ_TOPIC
from cordwood.cluster.metadata.image import TopicImage
from cordwood.cluster.metadata.leaders import Offsets
from cordwood.cluster.operations import positions
from cordwood.cluster.operations.isolation import IsolationLevel
from cordwood.cluster.operations.positions import Edge
from cordwood.storage.records import Record
from cordwood.storage.types import TopicPartition

HEARTBEAT_S = 10.0
STUCK_S = 60.0
"""A client that reads nothing for this long is disconnected."""
LAST_EVENT_ID = "Last-Event-ID"


class ReadQuery(msgspec.Struct, frozen=True):
    """The selection of records, and their encodings."""

    start: str | None = msgspec.field(default=None, name="from")
    """earliest, latest, an offset, a time (2026-07-30T12:00:00Z) or milliseconds since 1970 (@1785412800000). The
    default is the earliest record for JSON lines, and the next new one for events."""
    partition: list[PartitionIndex] = []
    """May be repeated; without it, all partitions."""
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The maximum number of records."""
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The response ends with the record at which keys and values together reach this many bytes."""
    key: str | None = None
    """Only records with this key, from all partitions."""
    key_encoding: Encoding = Encoding.TEXT
    """Of `key`, too."""
    value_encoding: Encoding = Encoding.TEXT
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    """read_uncommitted also returns the records of undecided and aborted transactions."""
    markers: bool = False
    """Include transaction markers, which have `control` in place of key and value; not with `key`."""


async def read_records(asked: ApiRequest[ReadQuery, Nothing]) -> web.StreamResponse:
    """Consume records as JSON lines up to the current end, or with `Accept: text/event-stream` as endless events.

    Records of one partition are in order; partitions are interleaved.
    """
    context, query, request = asked.context, asked.query, asked.request
    topic = context.topic(asked.path["topic"])
    follows = EVENTS in request.headers.get("Accept", "")
    with context.streams.one_more():
        wanted = await _wanted(topic, query, context, follows, request.headers.get(LAST_EVENT_ID))
        form = _events(wanted.starts) if follows else Lines()
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = EVENTS if follows else LINES
        await response.prepare(request)
        sending = _Sending(response, form, query, context.access, topic.name)
        try:
            async with RecordReader(context, wanted, request.transport) as reading:
                await sending.send(reading)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
    return response


class _Sending:
    """Copies a reader's records to a client, no faster than the client reads."""

    def __init__(
        self, response: web.StreamResponse, form: Format, query: ReadQuery, access: Access, topic: str
    ) -> None:
        self._response, self._form, self._query = response, form, query
        self._access, self._topic = access, topic
        self._records_left, self._bytes_left = query.limit, query.max_bytes

    async def send(self, reading: RecordReader) -> None:
        """Send until the end.

        Raises TimeoutError for a client that is stuck, ConnectionError for one that has disconnected.
        """
        try:
            while not reading.is_over and not self._is_enough:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        piece = await reading.next()
                except TimeoutError:
                    self._check_access()
                    await self._write(self._form.heartbeat())
                    continue
                self._check_access()
                await self._send_piece(piece)
        except HttpRefusal as refusal:
            # The response has begun, so that the error can only be sent in the stream.
            await self._write(self._form.mistake(Mistake(refusal.sentence, refusal.code.name.upper())))

    def _check_access(self) -> None:
        """Raise HttpRefusal if the login has ended meanwhile, or the right to read."""
        if not self._access.is_valid():
            raise unauthenticated("The login has ended: log in again.")
        self._access.check(READ_TOPIC, self._topic)

    @property
    def _is_enough(self) -> bool:
        return self._records_left == 0 or (self._bytes_left is not None and self._bytes_left <= 0)

    async def _send_piece(self, piece: Piece) -> None:
        if piece.missing:
            await self._write(self._form.gap(piece.place, piece.missing, piece.reason))
        records = self._as_far_as_wanted(piece.records)
        if records:
            written = [self._written(piece.place, record) for record in records]
            await self._write(self._form.records(piece.place, written))
        if len(records) == len(piece.records):
            await self._write(self._form.passed(piece.place, piece.end))

    def _as_far_as_wanted(self, records: Sequence[Record | MarkerRecord]) -> Sequence[Record | MarkerRecord]:
        if self._records_left is not None:
            records = records[: self._records_left]
            self._records_left -= len(records)
        if self._bytes_left is not None:
            for at, record in enumerate(records):
                if self._bytes_left <= 0:
                    return records[:at]
                if isinstance(record, Record):
                    self._bytes_left -= len(record.key or b"") + len(record.value or b"")
        return records

    def _written(self, place: TopicPartition, record: Record | MarkerRecord) -> ReadRecord:
        if isinstance(record, MarkerRecord):
            return written_marker(place.topic, place.partition, record)
        return written(place.topic, place.partition, record, self._query.key_encoding, self._query.value_encoding)

    async def _write(self, content: bytes) -> None:
        if content:
            async with asyncio.timeout(STUCK_S):
                await self._response.write(content)


async def _wanted(
    topic: TopicImage, query: ReadQuery, context: Context, follows: bool, last_event_id: str | None
) -> Wanted:
    """Return the offsets and filter to read. Raises HttpRefusal."""
    places = _places(topic, query.partition, context)
    key = None if query.key is None else _key(query.key, query.key_encoding)
    records_max = RECORDS_MAX if query.limit is None else query.limit
    if follows and last_event_id:
        starts = await _resumed(places, last_event_id, context)
        return Wanted(starts, None, key, records_max, query.isolation, query.markers)
    try:
        default = Edge.LATEST if follows else Edge.EARLIEST
        position = default if query.start is None else positions.parse(query.start)
    except positions.NoPosition as mistake:
        raise HttpRefusal(400, f"`from` is {query.start!r}, which is {mistake}") from None
    level = query.isolation.level
    starts = await offsets.resolve(context, position, places, level)
    ends = None if follows else await offsets.resolve(context, Edge.LATEST, places, level)
    return Wanted(starts, ends, key, records_max, query.isolation, query.markers)


def _events(starts: Offsets) -> Events:
    """Return the event format. Raises HttpRefusal if an id could become too long to be accepted back."""
    events = Events(starts)
    if events.id_chars_max > HEADER_BYTES_MAX:
        sentence = (
            f"The event ids of {len(starts)} partitions may exceed the {HEADER_BYTES_MAX} characters of"
            f" {LAST_EVENT_ID}: select fewer partitions with `partition`."
        )
        raise HttpRefusal(400, sentence)
    return events


def _places(topic: TopicImage, partitions: Sequence[int], context: Context) -> list[TopicPartition]:
    """Return the requested partitions. Raises HttpRefusal."""
    for partition in partitions:
        context.check_partition(topic, partition)
    wanted = sorted(set(partitions) or range(len(topic.partitions)))
    return [TopicPartition(topic.name, partition) for partition in wanted]


async def _resumed(places: Sequence[TopicPartition], last_event_id: str, context: Context) -> Offsets:
    """Return the positions after a client's last event; the start of the log for a new partition.

    Records that were deleted since are reported as a gap when the reader gets there. Raises HttpRefusal.
    """
    known = positions_in(last_event_id)
    if known is None:
        sentence = (
            f"{LAST_EVENT_ID} must be the id of an event, such as 0:1500,1:1498: leave it out for the first request."
        )
        raise HttpRefusal(400, sentence)
    new = [place for place in places if place.partition not in known]
    starts = await offsets.resolve(context, Edge.EARLIEST, new)
    return {place: known.get(place.partition, starts.get(place, 0)) for place in places}


def _key(text: str, encoding: Encoding) -> bytes:
    """Return the bytes of a key filter. Raises HttpRefusal."""
    try:
        return base64.b64decode(text, validate=True) if encoding is Encoding.BASE64 else text.encode()
    except (binascii.Error, ValueError) as error:
        raise HttpRefusal(400, f"`key` is {text!r}, which is not valid: {error}.") from error


ROUTE = Route(
    "GET",
    "/v1/topics/{topic}/records",
    read_records,
    ReadQuery,
    Nothing,
    ReadRecord,
    requires=(READ_TOPIC,),
    refusals=(404, 429, 503),
    response_types=(LINES, EVENTS),
    headers=(
        {
            "name": LAST_EVENT_ID,
            "in": "header",
            "description": "The id of the last received event: the stream continues after it.",
            "schema": {"type": "string"},
        },
    ),
)
