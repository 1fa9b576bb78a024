"""Record formats of consumer groups in `__consumer_offsets`: Kafka's own (KIP-848).

The key of a record begins with an int16, the type of the record, and names the group and the record's subject: a member
or a regular expression. A value begins with its int16 version, 0, and has compact fields.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.coordination.fields import (
    BYTE,
    INT,
    LONG,
    SHORT,
    FieldReader,
    encode_compact_array,
    encode_compact_bytes,
    encode_compact_nullable,
    encode_compact_string,
    encode_string,
    encode_tags,
    encode_uvarint,
)
from cordwood.cluster.groups.consumer.member import AssignmentEpochs, ClassicProtocols, ConsumerMember
from cordwood.cluster.groups.exchange import MemberProtocol
from cordwood.cluster.groups.target_assignment import (
    NO_TAGS,
    VALUE_VERSION,
    Partitions,
    value_fields,
)
from cordwood.storage.steps import ITEMS_PER_STEP, Steps, portions

_NULL = encode_uvarint(0)
_METADATA_HASH = 0
_CLASSIC = 0
_ASSIGNMENT_EPOCHS = 0
"""Tags."""


class RecordType(IntEnum):
    """The records of a consumer group, by the version of their key."""

    CLASSIC_GROUP = 2
    """Only deleted, when a classic group becomes a consumer group."""
    GROUP_METADATA = 3
    PARTITION_METADATA = 4
    """Written before Kafka 4.1 only; the group's metadata has a hash in its place."""
    MEMBER_METADATA = 5
    TARGET_METADATA = 6
    TARGET_MEMBER = 7
    CURRENT_ASSIGNMENT = 8
    REGULAR_EXPRESSION = 16


OF_GROUP = frozenset(
    {
        RecordType.CLASSIC_GROUP,
        RecordType.GROUP_METADATA,
        RecordType.PARTITION_METADATA,
        RecordType.TARGET_METADATA,
    }
)
"""The records of which a group has one. Of the others it has one for each member or regular expression."""
_ORDER = (
    RecordType.MEMBER_METADATA,
    RecordType.REGULAR_EXPRESSION,
    RecordType.GROUP_METADATA,
    RecordType.PARTITION_METADATA,
    RecordType.TARGET_MEMBER,
    RecordType.TARGET_METADATA,
    RecordType.CURRENT_ASSIGNMENT,
    RecordType.CLASSIC_GROUP,
)
"""The order in which Kafka replays a change: a member before its partitions, a target before its epoch.

The record of a classic group is deleted after all others are written: until then a new coordinator has the classic
group, with all its members (group rule 4).
"""


class RecordKey(NamedTuple):
    """The key of a record of one group. `of` is a member id, a regular expression, or empty."""

    type: RecordType
    of: str = ""


class GroupEpoch(NamedTuple):
    """The value of the group's metadata: its epoch, and the hash of the topics that it reads."""

    epoch: int
    metadata_hash: int


class ResolvedRegex(NamedTuple):
    """A regular expression's topics, as of a metadata version and a wall-clock time."""

    topics: frozenset[str]
    version: int
    resolved_ms: int


def place_of(key: RecordKey) -> int:
    """Return the place of a record among those of one write."""
    return _ORDER.index(key.type)


def encode_key(group_id: str, key: RecordKey) -> bytes:
    encoded = SHORT.pack(key.type) + encode_string(group_id)
    return encoded if key.type in OF_GROUP else encoded + encode_string(key.of)


def read_key(version: int, fields: FieldReader) -> tuple[str, RecordKey]:
    """Read a key after its version: the group id, and which record it is. Raises CorruptBatch."""
    kind, group_id = RecordType(version), fields.string()
    return group_id, RecordKey(kind, "" if kind in OF_GROUP else fields.string())


def encode_group_epoch(value: GroupEpoch) -> bytes:
    tags = {_METADATA_HASH: LONG.pack(value.metadata_hash)} if value.metadata_hash else {}
    return VALUE_VERSION + INT.pack(value.epoch) + encode_tags(tags)


def decode_group_epoch(value: bytes) -> GroupEpoch:
    """Raises CorruptBatch."""
    fields = value_fields(value)
    epoch, tags = fields.int32(), fields.tags()
    return GroupEpoch(epoch, FieldReader(tags[_METADATA_HASH]).int64() if _METADATA_HASH in tags else 0)


def encode_member(member: ConsumerMember) -> bytes:
    """Encode a member's metadata, without its epochs and partitions."""
    tags = {} if member.classic is None else {_CLASSIC: _classic(member.classic)}
    return b"".join(
        (
            VALUE_VERSION,
            encode_compact_nullable(member.instance_id),
            encode_compact_nullable(member.rack_id),
            encode_compact_string(member.client_id),
            encode_compact_string(member.client_host),
            encode_compact_array([encode_compact_string(topic) for topic in sorted(member.topics)]),
            encode_compact_nullable(member.regex),
            INT.pack(member.rebalance_timeout_ms),
            encode_compact_nullable(member.assignor),
            encode_tags(tags),
        )
    )


def decode_member(member_id: str, value: bytes) -> ConsumerMember:
    """Raises CorruptBatch."""
    fields = value_fields(value)
    instance_id, rack_id = fields.nullable(), fields.nullable()
    client_id, client_host = fields.string(), fields.string()
    topics = frozenset(fields.string() for _ in range(fields.count()))
    regex, rebalance_timeout_ms, assignor = fields.string(), fields.int32(), fields.nullable()
    tags = fields.tags()
    return ConsumerMember(
        id=member_id,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        regex=regex,
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=assignor,
        classic=_read_classic(tags[_CLASSIC]) if _CLASSIC in tags else None,
    )


def encode_current(member: ConsumerMember) -> Steps[bytes]:
    """Encode a member's epochs, state and partitions."""
    return b"".join(
        (
            VALUE_VERSION,
            INT.pack(member.epoch),
            INT.pack(member.previous_epoch),
            BYTE.pack(member.state),
            (yield from _encode_held(member.assigned, member.assignment_epochs)),
            (yield from _encode_held(member.revoking, member.assignment_epochs)),
            NO_TAGS,
        )
    )


class CurrentAssignment(NamedTuple):
    """The value of a member's current assignment."""

    epoch: int
    previous_epoch: int
    state: int
    """A number of MemberState, or of a state that a newer version has."""
    assigned: Partitions
    revoking: Partitions
    assignment_epochs: AssignmentEpochs


def decode_current(value: bytes) -> Steps[CurrentAssignment]:
    """Raises CorruptBatch."""
    fields = value_fields(value)
    epoch, previous_epoch, state = fields.int32(), fields.int32(), fields.int8()
    # Records of Kafka before 4.3 and of earlier releases have no assignment epochs.
    assigned, assignment_epochs = yield from _read_held(fields, max(epoch, 0))
    revoking, revoking_in = yield from _read_held(fields, max(epoch, 0))
    for portion in portions(revoking_in.items()):
        for topic_id, epochs in portion:
            assignment_epochs.setdefault(topic_id, {}).update(epochs)
        yield
    return CurrentAssignment(epoch, previous_epoch, state, assigned, revoking, assignment_epochs)


def encode_regex(resolved: ResolvedRegex) -> bytes:
    topics = encode_compact_array([encode_compact_string(topic) for topic in sorted(resolved.topics)])
    return VALUE_VERSION + topics + LONG.pack(resolved.version) + LONG.pack(resolved.resolved_ms) + NO_TAGS


def decode_regex(value: bytes) -> ResolvedRegex:
    """Raises CorruptBatch."""
    fields = value_fields(value)
    topics = frozenset(fields.string() for _ in range(fields.count()))
    return ResolvedRegex(topics, fields.int64(), fields.int64())


def _encode_held(partitions: Partitions, epochs: AssignmentEpochs) -> Steps[bytes]:
    """Encode an array of topics with their partitions and the assignment epochs of these (KIP-1251)."""
    encoded: list[bytes] = []
    for portion in portions(partitions.items()):
        encoded += [_held_topic(topic_id, indexes, epochs) for topic_id, indexes in portion]
        yield
    return encode_compact_array(encoded)


def _held_topic(topic_id: UUID, indexes: Iterable[int], epochs: AssignmentEpochs) -> bytes:
    ordered, known = sorted(indexes), epochs[topic_id]
    tags = {_ASSIGNMENT_EPOCHS: encode_compact_array([INT.pack(known[index]) for index in ordered])}
    return topic_id.bytes + encode_compact_array([INT.pack(index) for index in ordered]) + encode_tags(tags)


def _read_held(fields: FieldReader, default: int) -> Steps[tuple[Partitions, dict[UUID, dict[int, int]]]]:
    """Read an array of topics with their partitions and assignment epochs. Raises CorruptBatch.

    As in Kafka, epochs that do not fit the partitions count as if there were none.
    """
    partitions, epochs = {}, {}
    for number in range(fields.count()):
        if number % ITEMS_PER_STEP == 0:
            yield
        topic_id, indexes, tags = fields.uuid(), fields.int32s(), fields.tags()
        known = FieldReader(tags.get(_ASSIGNMENT_EPOCHS, _NULL), is_flexible=True).int32s()
        if indexes:
            partitions[topic_id] = frozenset(indexes)
            fits = len(known) == len(indexes)
            epochs[topic_id] = dict(zip(indexes, known, strict=True)) if fits else dict.fromkeys(indexes, default)
    return partitions, epochs


def _classic(classic: ClassicProtocols) -> bytes:
    protocols = [
        encode_compact_string(protocol.name) + encode_compact_bytes(protocol.metadata) + NO_TAGS
        for protocol in classic.protocols
    ]
    # A nullable structure begins with a byte: whether it is null.
    return encode_uvarint(1) + INT.pack(classic.session_timeout_ms) + encode_compact_array(protocols) + NO_TAGS


def _read_classic(content: bytes) -> ClassicProtocols | None:
    fields = FieldReader(content, is_flexible=True)
    if fields.int8() < 0:
        return None
    session_timeout_ms = fields.int32()
    protocols = []
    for _ in range(fields.count()):
        protocols.append(MemberProtocol(fields.string(), fields.content()))
        fields.tags()
    return ClassicProtocols(session_timeout_ms, tuple(protocols))
