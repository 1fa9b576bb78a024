"""The Fetch request decoder, hand-written: a consumer sends one request per few hundred KiB, often one per record."""

import struct
from typing import NamedTuple

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.codec import HAND_WRITTEN, RequestHead
from cordwood.cluster.kafka.fetch_sessions import FULL_EPOCH, NO_SESSION, FetchedPartition, PartitionKey
from cordwood.cluster.kafka.wire import (
    TAGS_MAX,
    Malformed,
    Topic,
    check_items,
    read_count,
    read_string,
    read_topic_id,
    read_uvarint,
    skip_tags,
)
from cordwood.storage.steps import Steps
from cordwood.storage.types import NO_EPOCH

REPLICA_ID_UNTIL = 14
SESSIONS_FROM = 7
LEADER_EPOCH_FROM = 9
LOG_START_FROM = 5
RACK_FROM = 11
FLEXIBLE_FROM = HAND_WRITTEN[ApiKey.FETCH]
TOPIC_IDS_FROM = 13
READ_UNCOMMITTED, READ_COMMITTED = ISOLATION_LEVELS = 0, 1
"""Isolation levels."""
REPLICA_STATE_TAG = 1
NEGATIVE_FROM = 0x80
"""The first byte of a negative number: a client's replica id is -1."""
ITEMS_PER_STEP = 8

_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_INDEX = struct.Struct(">i")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V4 = struct.Struct(">iqi")


class FetchRequest(NamedTuple):
    """A Fetch request: partitions, fetch session, size limits in bytes and the long-poll time in milliseconds."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    session_id: int
    session_epoch: int
    wanted: list[tuple[PartitionKey, FetchedPartition]]
    forgotten: list[PartitionKey]
    rack: str = ""
    isolation: int = READ_UNCOMMITTED
    """An isolation level, or a number that is none."""
    is_replica: bool = False
    """Whether the sender claims to be a follower. Cordwood's followers send no Fetch: it is a client."""


def read_fetch(head: RequestHead, frame: memoryview) -> Steps[FetchRequest]:
    """Decode a request of versions 4 to 18. If a partition is repeated, its last entry counts, as in Kafka.

    Raises Malformed.
    """
    try:
        return (yield from _read(head.version, frame, head.body))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"a malformed fetch request: {error}") from error


def _read(version: int, frame: memoryview, position: int) -> Steps[FetchRequest]:
    is_replica = False
    if version <= REPLICA_ID_UNTIL:
        is_replica = frame[position] < NEGATIVE_FROM
        position += _INDEX.size
    wait_ms, bytes_min, bytes_max, isolation = _LIMITS.unpack_from(frame, position)
    if version < SESSIONS_FROM and isolation not in ISOLATION_LEVELS:
        # These versions have no error code for the request as a whole.
        raise Malformed(f"there is no isolation level {isolation}")
    position += _LIMITS.size
    session_id, session_epoch = NO_SESSION, FULL_EPOCH
    if version >= SESSIONS_FROM:
        session_id, session_epoch = _SESSION.unpack_from(frame, position)
        position += _SESSION.size
    wanted, position = yield from _read_wanted(version, frame, position)
    forgotten: list[PartitionKey] = []
    if version >= SESSIONS_FROM:
        forgotten, position = yield from _read_forgotten(version, frame, position)
    rack = None
    if version >= RACK_FROM:
        rack, position = read_string(frame, position, version >= FLEXIBLE_FROM)
        if version > REPLICA_ID_UNTIL and position < len(frame) and frame[position]:
            is_replica = _is_replica(frame, position)
    everything = list(wanted.items())
    return FetchRequest(
        wait_ms,
        bytes_min,
        max(bytes_max, 0),
        session_id,
        session_epoch,
        everything,
        forgotten,
        rack or "",
        isolation,
        is_replica,
    )


def _is_replica(frame: memoryview, position: int) -> bool:
    """Return whether the request's tagged fields have the id of a replica."""
    count, position = read_uvarint(frame, position)
    for _ in range(min(count, TAGS_MAX)):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if tag == REPLICA_STATE_TAG:
            return frame[position] < NEGATIVE_FROM
        position += size
    return False


def _read_wanted(
    version: int, frame: memoryview, position: int
) -> Steps[tuple[dict[PartitionKey, FetchedPartition], int]]:
    flexible = version >= FLEXIBLE_FROM
    wanted: dict[PartitionKey, FetchedPartition] = {}
    count, position = read_count(frame, position, flexible, 2)
    items = 0
    for nth in range(1, count + 1):
        topic, position = _read_topic(version, frame, position)
        partitions, position = read_count(frame, position, flexible, _PARTITION_V4.size)
        items += partitions
        check_items(items)
        for number in range(partitions):
            index, fetched, position = _read_partition(version, frame, position)
            fetched.bytes_max = max(fetched.bytes_max, 0)
            wanted[topic, index] = fetched
            position = skip_tags(frame, position) if flexible else position
            if number % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
                yield
        position = skip_tags(frame, position) if flexible else position
        # Count topics, too: a topic without partitions still takes time.
        if items >= ITEMS_PER_STEP or nth % ITEMS_PER_STEP == 0:
            yield
    return wanted, position


def _read_partition(version: int, frame: memoryview, position: int) -> tuple[int, FetchedPartition, int]:
    if version >= FLEXIBLE_FROM:
        index, epoch, offset, _, _, size = _PARTITION_V12.unpack_from(frame, position)
        return index, FetchedPartition(offset, size, epoch), position + _PARTITION_V12.size
    if version >= LEADER_EPOCH_FROM:
        index, epoch, offset, _, size = _PARTITION_V9.unpack_from(frame, position)
        return index, FetchedPartition(offset, size, epoch), position + _PARTITION_V9.size
    if version >= LOG_START_FROM:
        index, offset, _, size = _PARTITION_V5.unpack_from(frame, position)
        return index, FetchedPartition(offset, size, NO_EPOCH), position + _PARTITION_V5.size
    index, offset, size = _PARTITION_V4.unpack_from(frame, position)
    return index, FetchedPartition(offset, size, NO_EPOCH), position + _PARTITION_V4.size


def _read_forgotten(version: int, frame: memoryview, position: int) -> Steps[tuple[list[PartitionKey], int]]:
    flexible = version >= FLEXIBLE_FROM
    forgotten: list[PartitionKey] = []
    count, position = read_count(frame, position, flexible, 2)
    for nth in range(1, count + 1):
        topic, position = _read_topic(version, frame, position)
        indexes, position = read_count(frame, position, flexible, _INDEX.size)
        check_items(len(forgotten) + indexes)
        for number in range(indexes):
            forgotten.append((topic, _INDEX.unpack_from(frame, position)[0]))
            position += _INDEX.size
            if number % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
                yield
        position = skip_tags(frame, position) if flexible else position
        if len(forgotten) >= ITEMS_PER_STEP or nth % ITEMS_PER_STEP == 0:
            yield
    return forgotten, position


def _read_topic(version: int, frame: memoryview, position: int) -> tuple[Topic, int]:
    if version >= TOPIC_IDS_FROM:
        return read_topic_id(frame, position)
    name, position = read_string(frame, position, version >= FLEXIBLE_FROM)
    if name is None:
        raise Malformed("a topic without a name")
    return name, position
