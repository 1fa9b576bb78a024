"""The consumer protocol that classic members embed in JoinGroup and SyncGroup: subscriptions and assignments.

All versions begin with an int16 version and an array of topics. Version 1 of a subscription adds the owned partitions,
2 the generation, and 3 the rack.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cordwood.cluster.coordination.fields import INT, SHORT, FieldReader, encode_string
from cordwood.cluster.groups.heartbeat import SUBSCRIBED_NAMES_MAX
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.steps import ITEMS_PER_STEP, Steps, portions

SUBSCRIPTION_BYTES_MAX = 1 << 20
_NEWEST = 3
_NO_USER_DATA = INT.pack(-1)

PartitionsByName = Mapping[str, frozenset[int]]


class EmbeddedSubscription(NamedTuple):
    """Subscription and owned partitions of a classic member."""

    version: int
    topics: frozenset[str]
    owned: PartitionsByName
    rack_id: str | None


class MalformedConsumer(Exception):
    """The bytes are no subscription or assignment of a consumer."""


def read_subscription(metadata: bytes) -> Steps[EmbeddedSubscription]:
    """Raises MalformedConsumer, also for what would take long to read."""
    if len(metadata) > SUBSCRIPTION_BYTES_MAX:
        raise MalformedConsumer(f"a subscription of {len(metadata)} bytes")
    try:
        fields = FieldReader(metadata)
        version = min(fields.int16(), _NEWEST)
        topic_count = fields.count()
        if topic_count > SUBSCRIBED_NAMES_MAX:
            raise MalformedConsumer(f"a subscription to {topic_count} topics")
        topics = frozenset(fields.string() for _ in range(topic_count))
        fields.content()
        owned = (yield from _read_partitions(fields)) if version >= 1 else {}
        if version >= 2:
            fields.int32()
        return EmbeddedSubscription(version, topics, owned, fields.nullable() if version >= 3 else None)
    except CorruptBatch as error:
        raise MalformedConsumer(str(error)) from error


def version_of(metadata: bytes) -> int:
    """Return the version of a subscription; 0 for bytes that are none."""
    return SHORT.unpack_from(metadata)[0] if len(metadata) >= SHORT.size else 0


def read_assignment(assignment: bytes) -> Steps[PartitionsByName]:
    """Raises MalformedConsumer. No bytes at all are an empty assignment."""
    if not assignment:
        return {}
    try:
        fields = FieldReader(assignment)
        fields.int16()
        return (yield from _read_partitions(fields))
    except CorruptBatch as error:
        raise MalformedConsumer(str(error)) from error


def encode_assignment(version: int, partitions: PartitionsByName) -> Steps[bytes]:
    topics: list[bytes] = []
    for portion in portions(sorted(partitions)):
        topics += [_encode_topic(name, partitions[name]) for name in portion]
        yield
    return SHORT.pack(max(version, 0)) + INT.pack(len(partitions)) + b"".join(topics) + _NO_USER_DATA


def _encode_topic(name: str, indexes: Iterable[int]) -> bytes:
    ordered = sorted(indexes)
    return encode_string(name) + INT.pack(len(ordered)) + b"".join(map(INT.pack, ordered))


def _read_partitions(fields: FieldReader) -> Steps[PartitionsByName]:
    partitions = {}
    for number in range(fields.count()):
        if number % ITEMS_PER_STEP == 0:
            yield
        name = fields.string()
        partitions[name] = frozenset(fields.int32s())
    return partitions
