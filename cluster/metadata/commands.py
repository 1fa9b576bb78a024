"""Commands that change the metadata: frozen values that mean the same on every broker.

A command carries every choice and clock reading it needs, so that applying it is a pure function of the image before
it. It also carries what it expects to find, so that one that comes too late is refused. One that arrives twice is known
by the tag of its entry (`recent.py`).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, NewType, get_args
from uuid import UUID

import msgpack

from cordwood.cluster.metadata.acls import Acl, AclResource, Operation, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.fields import record_reader, text

BrokerId = NewType("BrokerId", int)

NEVER_REGISTERED = -1
"""In the place of a broker's epoch."""

Assignment = tuple[BrokerId, ...]
"""The brokers that hold one partition; the first is its preferred leader."""


class ResourceType(IntEnum):
    """What a dynamic configuration belongs to, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients reach a broker by one of its listeners: the advertised address."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One key of a resource: from `expected` to `value`. None stands for no value of its own."""

    key: str
    expected: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class FormatCluster:
    """The first command of a cluster, which gives it its id for ever."""

    KIND: ClassVar[int] = 1
    cluster_id: str


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker has started. `incarnation` is new with every start; `log_dirs` are the ids of its log directories.

    `expected_epoch` is that of the incarnation before it, NEVER_REGISTERED for a new broker: one that comes late must
    not take the place of a younger one. None expects nothing. `min_isr` is the broker's own min.insync.replicas.
    """

    KIND: ClassVar[int] = 2
    broker_id: BrokerId
    incarnation: UUID
    listeners: tuple[Endpoint, ...]
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()
    expected_epoch: int | None = None
    min_isr: int = 1


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic with one assignment a partition. Expects that neither its name nor its id is taken."""

    KIND: ClassVar[int] = 3
    topic_id: UUID
    name: str
    assignments: tuple[Assignment, ...]
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Ids are never used twice, so that a late one cannot delete a younger topic of the same name."""

    KIND: ClassVar[int] = 4
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """More partitions for a topic that has exactly `expected_count` now."""

    KIND: ClassVar[int] = 5
    topic_id: UUID
    expected_count: int
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Changes to the configs of a topic, or of a broker by its id; the broker "" stands for all brokers."""

    KIND: ClassVar[int] = 6
    resource_type: ResourceType
    name: str
    changes: tuple[ConfigChange, ...]


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """The block of producer ids from `expected_next` on, for one broker to hand out (KIP-730)."""

    KIND: ClassVar[int] = 7
    broker_id: BrokerId
    expected_next: int
    count: int


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """ACLs by their ids. One that is there already, under whatever id, is let be."""

    KIND: ClassVar[int] = 8
    acls: tuple[tuple[UUID, Acl], ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """By id, so that a late one cannot delete what was created alike since. Ids that are gone are passed over."""

    KIND: ClassVar[int] = 9
    ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """The broker has not been heard of for a session: it leads nothing and leaves the in-sync sets that have others.

    `broker_epoch` is that of the incarnation which fell silent; a later one is not fenced by it.
    """

    KIND: ClassVar[int] = 10
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """The broker is heard of, knows its assignments and has recovered their logs: it may lead again."""

    KIND: ClassVar[int] = 11
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BeginControlledShutdown:
    """The broker wants to stop: what it leads goes to others first, as far as there are others in sync (KIP-630)."""

    KIND: ClassVar[int] = 12
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The in-sync set that a partition's leader proposes, each member with the broker epoch that the leader knows."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """In-sync sets by compare-and-set on the partition epoch (KIP-497, KIP-841, KIP-903).

    A change that no longer fits is passed over, the others hold: the leader sees in the image which of its took.
    """

    KIND: ClassVar[int] = 13
    broker_id: BrokerId
    broker_epoch: int
    changes: tuple[IsrChange, ...]


class Election(IntEnum):
    """Who may be elected, by Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Have partitions led by their preferred replica, or one without a leader by a replica that may lack records.

    A partition for which nobody fits, or that is led as wanted already, is passed over. `candidate` names the replica
    of an unclean election; None stands for the first that is alive.
    """

    KIND: ClassVar[int] = 14
    election: Election
    partitions: tuple[tuple[UUID, int], ...]
    candidate: BrokerId | None = None


@dataclass(frozen=True, slots=True)
class ReassignPartition:
    """Move a partition to other brokers (KIP-455); None for `replicas` takes back a move that is under way."""

    KIND: ClassVar[int] = 15
    topic_id: UUID
    partition: int
    replicas: Assignment | None


@dataclass(frozen=True, slots=True)
class DropReplicas:
    """The broker's replicas of these partitions have lost records: they are in no in-sync set and lead nothing.

    `is_gone` says that nothing of them can be served (a failed disk), rather than that parts are damaged: where no
    other replica is in sync a damaged one goes on, being the best there is, and a gone one leaves no leader.
    """

    KIND: ClassVar[int] = 16
    broker_id: BrokerId
    broker_epoch: int
    partitions: tuple[tuple[UUID, int], ...]
    is_gone: bool


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Forget a broker that will not come back. Expects that it holds no partition (KIP-631)."""

    KIND: ClassVar[int] = 17
    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class ReportUnflushed:
    """The broker's machine lost its memory: its replicas of these partitions may lack what was never flushed (KIP-966).

    They are of topics with flush.policy=os. Such a replica is not counted on where another has everything committed;
    the only one that is left goes on.
    """

    KIND: ClassVar[int] = 18
    broker_id: BrokerId
    broker_epoch: int
    partitions: tuple[tuple[UUID, int], ...]


Command = (
    FormatCluster
    | RegisterBroker
    | CreateTopic
    | DeleteTopic
    | CreatePartitions
    | AlterConfigs
    | AllocateProducerIds
    | CreateAcls
    | DeleteAcls
    | FenceBroker
    | UnfenceBroker
    | BeginControlledShutdown
    | AlterPartitions
    | ElectLeaders
    | ReassignPartition
    | DropReplicas
    | UnregisterBroker
    | ReportUnflushed
)


def acl_of(fields: Any) -> Acl:
    """An ACL from the sequence it was packed as. Raises ValueError or TypeError."""
    resource, name, pattern, principal, host, operation, permission = fields
    on = ResourcePattern(AclResource(resource), text(name), Pattern(pattern))
    return Acl(on, text(principal), text(host), Operation(operation), Permission(permission))


# The numbers are in journals on users' disks: they are never changed and never given to another command.
_READERS = {kind.KIND: record_reader(kind, {Acl: acl_of}) for kind in get_args(Command)}

_UUID_EXTENSION = 1


PACKED_BYTES_USUAL = 1024


class UnknownCommand(Exception):
    """Bytes that are no command of this version; perhaps one of a newer version."""


def encode(command: Command) -> bytes:
    """The command's number and its fields in the order in which they are declared, as msgpack."""
    return pack([command.KIND, *(getattr(command, name) for name in command.__slots__)])


def decode(data: bytes) -> Command:
    """The command that was encoded, each value of its declared type. Raises UnknownCommand."""
    try:
        kind, *fields = unpack(data)
        if kind not in _READERS:
            raise UnknownCommand(f"no command has the number {kind}: a newer Cordwood wrote it")
        command: Command = _READERS[kind](tuple(fields))
    except (TypeError, ValueError) as error:
        raise UnknownCommand(f"{len(data)} bytes that do not read as a command: {error}") from None
    return command


def pack(value: object) -> bytes:
    """Plain values, tuples and UUIDs as msgpack."""
    # Most are small; `packb` would take 256 KiB for each of them, which the quorum's heartbeats are, too.
    packed: bytes = msgpack.Packer(default=_pack_ours, buf_size=PACKED_BYTES_USUAL).pack(value)
    return packed


def unpack(data: bytes) -> Any:
    """What was packed, with tuples for all sequences. Raises ValueError."""
    try:
        return msgpack.unpackb(data, use_list=False, ext_hook=_unpack_uuid, strict_map_key=False)
    except (msgpack.UnpackException, ValueError) as error:
        raise ValueError(str(error) or type(error).__name__) from None


def _pack_ours(value: object) -> object:
    match value:
        case UUID():
            return msgpack.ExtType(_UUID_EXTENSION, value.bytes)
        case Endpoint(listener, host, port):
            return (listener, host, port)
        case ConfigChange(key, expected, changed):
            return (key, expected, changed)
        case IsrChange(topic_id, partition, leader_epoch, partition_epoch, isr):
            return (topic_id, partition, leader_epoch, partition_epoch, isr)
        case Acl(ResourcePattern(resource, name, pattern), principal, host, operation, permission):
            return (resource, name, pattern, principal, host, operation, permission)
        case _:
            raise TypeError(f"{type(value).__name__} has no place in the metadata")


def _unpack_uuid(code: int, data: bytes) -> UUID:
    if code != _UUID_EXTENSION:
        raise ValueError(f"extension {code} is unknown")
    return UUID(bytes=data)
