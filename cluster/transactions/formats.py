"""Record formats of `__transaction_state`: Kafka's own, so that its tools can read the topic.

TransactionLogKey 0 and TransactionLogValue 1 are written; value 0 is read as well. Two tagged fields are Cordwood's.
Without the client's last epoch, a repeated request after a failover looks like a fenced producer's. Without the topic
ids, a topic that is created again gets the markers of the deleted one.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from cordwood.cluster.coordination.fields import (
    LONG,
    SHORT,
    FieldReader,
    encode_compact_string,
    encode_string,
    encode_tags,
    encode_uvarint,
)
from cordwood.cluster.transactions.states import TransactionState
from cordwood.cluster.transactions.transaction import (
    AddedPartition,
    Transaction,
    shared_partitions,
    shared_timeout,
)
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

KEY_VERSION = 0
VALUE_VERSION = 1
_FIRST_FLEXIBLE = 1

_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")

_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = 0, 1, 2
_LAST_EPOCH, _TOPIC_IDS = 100, 101
"""Numbers of tagged fields. Kafka counts its own from 0; a reader passes over those that it does not know."""

_V2 = 2
_NO_PARTITIONS = encode_uvarint(0)

_NUMBERS = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
}
"""Kafka's numbers. The other states are never stored."""
_STATES = {number: state for state, number in _NUMBERS.items()}

Intern = Callable[[UUID | None, str, int], AddedPartition]
"""Returns the shared object of a partition; without a topic id, that of the topic that has the name now."""


def encode_key(transactional_id: str) -> bytes:
    return SHORT.pack(KEY_VERSION) + encode_string(transactional_id)


def decode_key(key: bytes) -> str | None:
    """Decode a key. Return None for a kind of record that this broker does not know. Raises CorruptBatch."""
    fields = FieldReader(key)
    return fields.string() if fields.int16() == KEY_VERSION else None


def encode_value(transaction: Transaction) -> bytes:
    by_topic = _by_topic(transaction.partitions)
    is_empty = transaction.state is TransactionState.EMPTY
    tags = {}
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_PRODUCER_ID] = LONG.pack(transaction.previous_producer_id)
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_PRODUCER_ID] = LONG.pack(transaction.next_producer_id)
    if transaction.is_v2:
        tags[_CLIENT_VERSION] = SHORT.pack(_V2)
    if transaction.last_epoch != NO_PRODUCER_EPOCH:
        tags[_LAST_EPOCH] = SHORT.pack(transaction.last_epoch)
    if by_topic:
        tags[_TOPIC_IDS] = b"".join(topic_id.bytes for topic_id, _, _ in by_topic)
    return b"".join(
        (
            _HEAD.pack(
                VALUE_VERSION,
                transaction.producer_id,
                transaction.epoch,
                transaction.timeout_ms,
                _NUMBERS[transaction.state],
            ),
            _NO_PARTITIONS if is_empty else encode_uvarint(len(by_topic) + 1),
            *(_topic(topic, indexes) for _, topic, indexes in by_topic),
            _TIMES.pack(transaction.update_ms, transaction.start_ms),
            encode_tags(tags),
        )
    )


def decode_value(value: bytes, intern: Intern) -> Transaction:
    """Decode a value. Raises CorruptBatch."""
    fields = FieldReader(value)
    fields.version(VALUE_VERSION, _FIRST_FLEXIBLE)
    producer_id, epoch, timeout_ms = fields.int64(), fields.int16(), fields.int32()
    state = _STATES.get(number := fields.int8())
    if state is None:
        raise CorruptBatch(f"the state {number} of a transaction, which is never stored")
    topics = [_read_topic(fields) for _ in range(max(fields.count(), 0))]
    update_ms, start_ms = fields.int64(), fields.int64()
    tags = fields.tags()
    return Transaction(
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=_tagged(tags, _LAST_EPOCH, SHORT, NO_PRODUCER_EPOCH),
        previous_producer_id=_tagged(tags, _PREVIOUS_PRODUCER_ID, LONG, NO_PRODUCER_ID),
        next_producer_id=_tagged(tags, _NEXT_PRODUCER_ID, LONG, NO_PRODUCER_ID),
        timeout_ms=shared_timeout(timeout_ms),
        state=state,
        partitions=shared_partitions(tuple(_partitions(topics, tags.get(_TOPIC_IDS, b""), intern))),
        start_ms=update_ms if start_ms == update_ms else start_ms,
        update_ms=update_ms,
        is_v2=_tagged(tags, _CLIENT_VERSION, SHORT, 0) >= _V2,
    )


def _by_topic(partitions: Iterable[AddedPartition]) -> list[tuple[UUID, str, list[int]]]:
    """Return the partitions by topic, both in order."""
    found: dict[tuple[int, str], tuple[UUID, list[int]]] = {}
    for topic_id, topic, partition in partitions:
        # Not the id itself, whose hash is computed in Python.
        key = (topic_id.int, topic)
        group = found.get(key)
        if group is None:
            group = found[key] = (topic_id, [])
        group[1].append(partition)
    return [(topic_id, topic, sorted(indexes)) for (_, topic), (topic_id, indexes) in sorted(found.items())]


def _topic(topic: str, indexes: list[int]) -> bytes:
    count, tags = encode_uvarint(len(indexes) + 1), encode_tags({})
    return b"".join((encode_compact_string(topic), count, struct.pack(f">{len(indexes)}i", *indexes), tags))


def _read_topic(fields: FieldReader) -> tuple[str, list[int]]:
    topic = fields.string()
    indexes = [fields.int32() for _ in range(max(fields.count(), 0))]
    fields.tags()
    return topic, indexes


def _partitions(topics: list[tuple[str, list[int]]], topic_ids: bytes, intern: Intern) -> Iterator[AddedPartition]:
    if topic_ids and len(topic_ids) != 16 * len(topics):
        raise CorruptBatch(f"{len(topic_ids)} bytes of topic ids for {len(topics)} topics")
    for number, (topic, indexes) in enumerate(topics):
        topic_id = UUID(bytes=topic_ids[16 * number : 16 * number + 16]) if topic_ids else None
        for index in indexes:
            yield intern(topic_id, topic, index)


def _tagged(tags: dict[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    content = tags.get(tag)
    if content is None:
        return default
    if len(content) != layout.size:
        raise CorruptBatch(f"a tagged field {tag} of {len(content)} bytes")
    number: int = layout.unpack(content)[0]
    return number
