"""`POST /v1/topics/{topic}/records`: produce records from JSON, or one record that is the whole body."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from aiohttp import web
from kio.schema.errors import ErrorCode

from cordwood.cluster.http.api.topics import PartitionIndex
from cordwood.cluster.http.bodies import BYTES, JSON
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.records.accumulator import NotKept, Once, ProducerBatch
from cordwood.cluster.http.records.encodings import Encoding, bytes_of
from cordwood.cluster.http.records.given import (
    RECORD_KEY,
    RECORD_KEY_BASE64,
    NewRecord,
    NewRecords,
    Timestamp,
    check_count,
    records_in,
    whole_body,
)
from cordwood.cluster.http.records.partitioner import partition_of
from cordwood.cluster.http.refusal import HttpRefusal, json_response, status_of
from cordwood.cluster.http.route import ApiRequest, Route
from cordwood.cluster.http.security.rights import WRITE_TOPIC
from cordwood.cluster.kafka.handlers.produce import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from cordwood.cluster.metadata.image import NO_LEADER, TopicImage
from cordwood.cluster.operations.acks import Acks
from cordwood.cluster.proposals.topics import INTERNAL_TOPICS
from cordwood.storage.producers import FIRST_OF_ONE_BATCH
from cordwood.storage.records import Record
from cordwood.storage.types import TopicPartition

RECORDS_PER_TURN = 500
"""Records distributed to partitions per event-loop iteration; they take some 2 ms."""
IDEMPOTENCY_KEY = "Idempotency-Key"
KEY_CHARS_MAX = 255


_ACKS = {Acks.ALL: ACKS_ALL, Acks.LEADER: ACKS_LEADER, Acks.NONE: ACKS_NONE}


class WriteQuery(msgspec.Struct, frozen=True):
    """The encodings of the records, and the acknowledgement."""

    acks: Acks = Acks.ALL
    key_encoding: Encoding = Encoding.TEXT
    value_encoding: Encoding = Encoding.TEXT
    partition: PartitionIndex | None = None
    """For records without a partition of their own."""
    timestamp: Timestamp | None = None
    """For records without a timestamp of their own; the default is the time of the request. Milliseconds since 1970."""


class KeptRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position of a record. Without an offset the record is not known to be appended.

    `error` then has the reason, except with acks=0.
    """

    partition: int
    offset: int | None
    error: str | msgspec.UnsetType = msgspec.UNSET
    code: str | msgspec.UnsetType = msgspec.UNSET


class KeptRecords(msgspec.Struct, frozen=True):
    """The positions of the records, in the order of the request."""

    records: list[KeptRecord]


class NotAllKept(msgspec.Struct, frozen=True):
    """An error, with the result for each record."""

    error: str
    code: str
    records: list[KeptRecord]


async def write_records(asked: ApiRequest[WriteQuery, NewRecords]) -> web.Response:
    """Produce records. The response is sent once `acks` is satisfied."""
    context, request = asked.context, asked.request
    topic = _writable(asked.path["topic"], context)
    if context.accumulator.is_full:
        sentence = "This broker has too many records in progress: send them again later."
        raise HttpRefusal(429, sentence, ErrorCode.throttling_quota_exceeded)
    async with context.bodies.read(request) as content:
        if request.content_type == BYTES:
            records: Sequence[NewRecord] = [whole_body(content, request.headers)]
            encodings = (Encoding.BASE64, Encoding.BASE64)
        else:
            encodings = (asked.query.key_encoding, asked.query.value_encoding)
            await check_count(content)
            records = records_in(content, *encodings)
        once_key = request.headers.get(IDEMPOTENCY_KEY)
        once = None if once_key is None else _once(once_key, request, content)
        letter = Letter(topic, context, asked.query, once_key)
        for start in range(0, len(records), RECORDS_PER_TURN):
            letter.add(records[start : start + RECORDS_PER_TURN], *encodings)
            await asyncio.sleep(0)
        return await letter.send(_ACKS[asked.query.acks], once)


class Letter:
    """The records of one request, by partition."""

    def __init__(self, topic: TopicImage, context: Context, query: WriteQuery, once_key: str | None) -> None:
        self._topic, self._context, self._query = topic, context, query
        self._now_ms = context.wall_clock()
        self._by_partition: defaultdict[int, list[Record]] = defaultdict(list)
        self._places: list[tuple[int, int]] = []
        """The partition of each record, in the order of the request, and its index within that partition."""
        self._once_key, self._keyless = once_key, -1

    def add(self, given: Sequence[NewRecord], key_encoding: Encoding, value_encoding: Encoding) -> None:
        """Add records. Raises HttpRefusal for a partition that does not exist."""
        query, by_partition, places = self._query, self._by_partition, self._places
        late = self._now_ms if query.timestamp is None else query.timestamp
        for record in given:
            key = bytes_of(record.key, key_encoding)
            value = bytes_of(record.value, value_encoding)
            headers = tuple(_header(*header) for header in record.headers.items()) if record.headers else ()
            partition = record.partition if record.partition is not None else query.partition
            partition = self._partition(key) if partition is None else self._existing(partition)
            timestamp = late if record.timestamp is None else record.timestamp
            records = by_partition[partition]
            places.append((partition, len(records)))
            records.append(Record(0, timestamp, key, value, headers))

    async def send(self, acks: int, once: Once | None) -> web.Response:
        """Produce the records. Return the response, with the error of each refused record."""
        parcels: dict[int, ProducerBatch] = {}
        for partition, records in self._by_partition.items():
            parcel = parcels[partition] = ProducerBatch(records, once)
            place = TopicPartition(self._topic.name, partition)
            self._context.accumulator.send(place, acks, parcel, self._context.access.identity)
        if acks == ACKS_NONE:
            return json_response(KeptRecords([KeptRecord(partition, None) for partition, _ in self._places]), 202)
        if len(parcels) > 1:
            await asyncio.wait([parcel.kept for parcel in parcels.values()])
        kept: dict[int, int | NotKept] = {}
        for partition, parcel in parcels.items():
            try:
                kept[partition] = await parcel.kept
            except NotKept as refused:
                # Its traceback would refer to this frame, and the frame to it.
                kept[partition] = refused.with_traceback(None)
        return self._answer(kept)

    def _answer(self, kept: Mapping[int, int | NotKept]) -> web.Response:
        refused = [outcome for outcome in kept.values() if isinstance(outcome, NotKept)]
        records = [_kept(partition, at, kept[partition]) for partition, at in self._places]
        if not refused:
            return json_response(KeptRecords(records))
        worst = max(refused, key=lambda outcome: status_of(outcome.code))
        sentence, code = _in_words(worst, once=self._once_key is not None)
        status = status_of(code)
        if len(refused) == len(kept) == 1:
            return HttpRefusal(status, sentence, code).response()
        lost = sum(record.offset is None for record in records)
        mistake = f"{lost} of {len(records)} records were not acknowledged. {sentence}"
        response = HttpRefusal(status, mistake, code).response()
        response.body = msgspec.json.encode(NotAllKept(mistake, code.name.upper(), records))
        return response

    def _partition(self, key: bytes | None) -> int:
        """Choose the partition as Kafka's Java client does: by key. Records of a request without a key share one."""
        count = len(self._topic.partitions)
        if key is not None:
            return partition_of(key, count)
        if self._keyless < 0:
            self._keyless = self._sticky(count)
        return self._keyless

    def _sticky(self, count: int) -> int:
        """Choose the partition of records without a key.

        A repeated request with an Idempotency-Key gets the same partition again. Other requests go to the partition of
        the current shared batch, and the next batch goes to the next partition with a leader.
        """
        if self._once_key is not None:
            return partition_of(self._once_key.encode(), count)
        led = [at for at, partition in enumerate(self._topic.partitions) if partition.leader != NO_LEADER]
        return led[self._context.accumulator.batch_count % len(led)] if led else 0

    def _existing(self, partition: int) -> int:
        self._context.check_partition(self._topic, partition)
        return partition


def _writable(name: str, context: Context) -> TopicImage:
    topic = context.topic(name)
    if name in INTERNAL_TOPICS:
        raise HttpRefusal(
            400, f"Topic {name!r} is internal: write to another topic.", ErrorCode.invalid_topic_exception
        )
    return topic


def _once(key: str, request: web.Request, content: bytes) -> Once:
    """Return the producer id and sequence of the request, by which a duplicate is recognized. Raises HttpRefusal.

    A key is an idempotent producer that sends a single batch. The leader of a partition recognizes the batches of such
    a producer by number, across restarts and failover (KIP-98): a duplicate is answered with the offset of the first,
    and is not appended. A key has the same producer id on every broker, and the sequence number is a hash of the
    request's content (docs/adr/0018).
    """
    if not 1 <= len(key) <= KEY_CHARS_MAX or not key.isascii():
        sentence = f"{IDEMPOTENCY_KEY} must be 1 to {KEY_CHARS_MAX} ASCII characters, such as a UUID."
        raise HttpRefusal(400, sentence)
    names = (request.raw_path, request.content_type, *(request.headers.get(name, "") for name in _PART_OF_A_RECORD))
    named = "\n".join(names).encode("utf-8", "surrogateescape") + b"\n" + content
    return Once(FIRST_OF_ONE_BATCH | _hash(key.encode(), 62), _hash(named, 31))


_PART_OF_A_RECORD = (RECORD_KEY, RECORD_KEY_BASE64)


def _kept(partition: int, at: int, outcome: int | NotKept) -> KeptRecord:
    if isinstance(outcome, NotKept):
        return KeptRecord(partition, None, outcome.sentence, outcome.code.name.upper())
    return KeptRecord(partition, outcome + at)


def _in_words(refused: NotKept, *, once: bool) -> tuple[str, ErrorCode]:
    if once and refused.code is ErrorCode.out_of_order_sequence_number:
        return f"This {IDEMPOTENCY_KEY} was used for another request: use a new key for each request.", refused.code
    return refused.sentence, refused.code


def _header(name: str, text: str | None) -> tuple[str, bytes | None]:
    return name, None if text is None else text.encode()


_HEADERS = (
    (IDEMPOTENCY_KEY, "Requests with the same key and body are appended once and get the same response."),
    (RECORD_KEY, f"The key of a body that is one record ({BYTES}), as text."),
    (RECORD_KEY_BASE64, f"The key of a body that is one record ({BYTES}), in base64."),
)

ROUTE = Route(
    "POST",
    "/v1/topics/{topic}/records",
    write_records,
    WriteQuery,
    NewRecords,
    KeptRecords,
    requires=(WRITE_TOPIC,),
    statuses=(200, 202),
    refusals=(404, 503),
    content_types=(JSON, BYTES),
    headers=tuple(
        {"name": name, "in": "header", "description": text, "schema": {"type": "string"}} for name, text in _HEADERS
    ),
    reads_body_itself=True,
)


def _hash(content: bytes, bits: int) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> (64 - bits)
