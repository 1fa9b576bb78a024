"""Target assignments of consumer and share groups: the partitions of each member, and their form in the records."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.coordination.fields import INT, SHORT, FieldReader, encode_compact_array, encode_tags
from cordwood.storage.steps import ITEMS_PER_STEP, Steps, portions

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id, without empty sets. Never changed in place."""

NO_PARTITIONS: Partitions = MappingProxyType({})

COMPUTED_AT_ONCE_MAX = 150
"""Members and partitions, in all, of a group whose assignment is computed within a request."""

VALUE_VERSION = SHORT.pack(0)
NO_TAGS = encode_tags({})


class TargetAssignment(NamedTuple):
    """The targets of an epoch that differ from the former ones, by member id, and their encoded records."""

    epoch: int
    changed: Mapping[str, tuple[Partitions, bytes]]


def encode_target_epoch(epoch: int) -> bytes:
    return VALUE_VERSION + INT.pack(epoch) + NO_TAGS


def decode_target_epoch(value: bytes) -> int:
    """Raises CorruptBatch."""
    return value_fields(value).int32()


def encode_target(target: Partitions) -> Steps[bytes]:
    return VALUE_VERSION + (yield from encode_partitions(target)) + NO_TAGS


def decode_target(value: bytes) -> Steps[Partitions]:
    """Raises CorruptBatch."""
    return (yield from read_partitions(value_fields(value)))


def encode_partitions(partitions: Partitions) -> Steps[bytes]:
    """Encode an array of topics with their partitions."""
    encoded: list[bytes] = []
    for portion in portions(partitions.items()):
        encoded += [topic_id.bytes + encode_indexes(indexes) + NO_TAGS for topic_id, indexes in portion]
        yield
    return encode_compact_array(encoded)


def encode_indexes(indexes: frozenset[int]) -> bytes:
    return encode_compact_array([INT.pack(index) for index in sorted(indexes)])


def read_partitions(fields: FieldReader) -> Steps[Partitions]:
    """Read an array of topics with their partitions. Raises CorruptBatch."""
    partitions = {}
    for number in range(fields.count()):
        topic_id, indexes = fields.uuid(), frozenset(fields.int32s())
        fields.tags()
        if indexes:
            partitions[topic_id] = indexes
        if number % ITEMS_PER_STEP == 0:
            yield
    return partitions


def value_fields(value: bytes) -> FieldReader:
    """Return a reader of the fields after the version. Raises CorruptBatch."""
    fields = FieldReader(value)
    fields.version(0, 0)
    return fields
