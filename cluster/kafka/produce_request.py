"""The Produce request decoder, hand-written and zero-copy: a batch stays in the receive buffer until the log write.

kio's reader would copy each batch (25 microseconds per MB), and allocates by a request's claimed lengths.
"""

import struct
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.codec import HAND_WRITTEN, RequestHead
from cordwood.cluster.kafka.wire import (
    TOPIC_ID_BYTES,
    Malformed,
    Topic,
    end_of_field,
    read_count,
    read_string,
    read_topic_id,
    read_uvarint,
    skip_tags,
)
from cordwood.storage.disk import Bytes
from cordwood.storage.steps import Steps

FLEXIBLE_FROM = HAND_WRITTEN[ApiKey.PRODUCE]
TRANSACTIONAL_ID_FROM = 3
TOPIC_IDS_FROM = 13

ITEMS_MAX = 10_000
"""Maximum number of batches in a request: all of them may be committed in one event-loop iteration."""
ITEMS_PER_STEP = 8
TOPIC_NAME_CHARS_MAX = 249
"""No topic has a longer name, and the response would repeat all of it."""

_SETTINGS = struct.Struct(">hi")
_INDEX_AND_LENGTH = struct.Struct(">ii")
_read_index = struct.Struct(">i").unpack_from
_read_lone_head = struct.Struct(">bhibb").unpack_from
_LONE_HEAD_BYTES = 9
_NO_ID, _ONE, _LONE_NAME_MAX = 0, 2, 0x7F


class PartitionData(NamedTuple):
    """One partition's batch. `records` is a view of the receive buffer, valid until the connection reads on."""

    partition: int
    records: Bytes


class ProduceRequest(NamedTuple):
    """A Produce request: the batches to append, by topic and partition."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[Topic, list[PartitionData]]]
    partitions: int = 1


def read_produce(head: RequestHead, frame: memoryview) -> Steps[ProduceRequest]:
    """Decode a request of versions 0 to 13. Raises Malformed."""
    try:
        return (yield from _read(head.version, frame, head.body))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"a malformed produce request: {error}") from error


def read_lone(head: RequestHead, frame: memoryview) -> ProduceRequest | None:
    """Decode a flexible request with one batch and no tagged fields; return None for any other request.

    With small requests, decoding field by field would be a fifth of the broker's CPU time. Raises Malformed.
    """
    if head.version < FLEXIBLE_FROM:
        return None
    try:
        return _read_lone(head.version, frame, head.body)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"a produce request that does not parse: {error}") from error


def _read_lone(version: int, frame: memoryview, position: int) -> ProduceRequest | None:
    id_, acks, timeout_ms, topics, name_length = _read_lone_head(frame, position)
    if id_ != _NO_ID or topics != _ONE:
        return None
    position += _LONE_HEAD_BYTES
    if version >= TOPIC_IDS_FROM:
        # The byte that was read as a length is the first one of the topic's id.
        position -= 1
        name_end = position + TOPIC_ID_BYTES
    elif 1 < name_length <= _LONE_NAME_MAX:
        name_end = position + name_length - 1
    else:
        return None
    if frame[name_end] != _ONE:
        return None
    length, begin = read_uvarint(frame, name_end + 5)
    end = begin + length - 1
    if end < begin or frame[end] != 0 or frame[end + 1] != 0:
        return None
    data = PartitionData(_read_index(frame, name_end + 1)[0], frame[begin:end])
    name = frame[position:name_end]
    topic: Topic = UUID(bytes=bytes(name)) if version >= TOPIC_IDS_FROM else str(name, "utf-8")
    return ProduceRequest(None, acks, timeout_ms, [(topic, [data])])


def _read(version: int, frame: memoryview, position: int) -> Steps[ProduceRequest]:
    flexible = version >= FLEXIBLE_FROM
    transactional_id = None
    if version >= TRANSACTIONAL_ID_FROM:
        transactional_id, position = read_string(frame, position, flexible)
    acks, timeout_ms = _SETTINGS.unpack_from(frame, position)
    count, position = read_count(frame, position + _SETTINGS.size, flexible, 2)
    read_partitions = _read_flexible_partitions if flexible else _read_legacy_partitions
    # A topic id takes twice as long as a name.
    topics_per_step = ITEMS_PER_STEP // 2 if version >= TOPIC_IDS_FROM else ITEMS_PER_STEP
    topics: list[tuple[Topic, list[PartitionData]]] = []
    items = 0
    for _ in range(count):
        topic, position = _read_topic(version, frame, position)
        partitions, position = yield from read_partitions(frame, position, ITEMS_MAX - items)
        topics.append((topic, partitions))
        items += len(partitions)
        if len(topics) % topics_per_step == 0:
            yield
    return ProduceRequest(transactional_id, acks, timeout_ms, topics, items)


def _read_topic(version: int, frame: memoryview, position: int) -> tuple[Topic, int]:
    if version >= TOPIC_IDS_FROM:
        return read_topic_id(frame, position)
    name, position = read_string(frame, position, version >= FLEXIBLE_FROM)
    if name is None:
        raise Malformed("a topic without a name")
    if len(name) > TOPIC_NAME_CHARS_MAX:
        raise Malformed(f"a topic name of {len(name)} characters: the limit is {TOPIC_NAME_CHARS_MAX}")
    return name, position


def _check_items(count: int, items_left: int) -> None:
    if count > items_left:
        raise Malformed(f"more than {ITEMS_MAX} batches in one request")


def _read_flexible_partitions(
    frame: memoryview, position: int, items_left: int
) -> Steps[tuple[list[PartitionData], int]]:
    count, position = read_count(frame, position, True, 5)
    _check_items(count, items_left)
    partitions = []
    for number in range(1, count + 1):
        index = _read_index(frame, position)[0]
        length, position = read_uvarint(frame, position + 4)
        end = end_of_field(frame, position, max(length - 1, 0))
        partitions.append(PartitionData(index, frame[position:end]))
        # Fast path: 0 stands for no tagged fields, the usual case.
        position = end + 1 if frame[end] == 0 else skip_tags(frame, end)
        if number % ITEMS_PER_STEP == 0:
            yield
    return partitions, position + 1 if frame[position] == 0 else skip_tags(frame, position)


def _read_legacy_partitions(
    frame: memoryview, position: int, items_left: int
) -> Steps[tuple[list[PartitionData], int]]:
    count, position = read_count(frame, position, False, 8)
    _check_items(count, items_left)
    partitions = []
    for number in range(1, count + 1):
        index, length = _INDEX_AND_LENGTH.unpack_from(frame, position)
        position += _INDEX_AND_LENGTH.size
        end = end_of_field(frame, position, max(length, 0))
        partitions.append(PartitionData(index, frame[position:end]))
        position = end
        if number % ITEMS_PER_STEP == 0:
            yield
    return partitions, position
