"""Metadata commands: the entries of the metadata log, as frozen values that mean the same on every broker.

A command carries every choice and clock reading that it needs, so that applying a command is a pure function of the
image before it. A command also carries the state that it expects, so that a late command is refused. A duplicate is
recognized by the tag of its entry (`recent.py`).
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, NewType
from uuid import UUID

from cordwood.cluster.metadata.acls import Acl
from cordwood.cluster.metadata.archive_commands import (
    BeginUpload,
    CommitUpload,
    ForgetArchived,
    GiveUpUploads,
    RemoveArchived,
)
from cordwood.cluster.metadata.client_quotas import AlterClientQuotas
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.metadata.cuts import CreateCut, DropCut
from cordwood.cluster.metadata.features import FIRST_LEVEL, OF_FIRST_RELEASE, UpdateFeatures
from cordwood.storage.types import NO_LEADER

BrokerId = NewType("BrokerId", int)
NO_BROKER = BrokerId(NO_LEADER)

VoterRow = tuple[BrokerId, str, str, int]
"""A voter of the metadata quorum: broker, id of its metadata directory, host and port."""

NEVER_REGISTERED = -1
"""The expected broker epoch of a broker that was never registered."""

Assignment = tuple[BrokerId, ...]
"""The replicas of one partition; the first is the preferred leader."""


class ResourceType(IntEnum):
    """The kind of resource that a dynamic config belongs to, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The advertised address of one listener of a broker."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one config key from `expected` to `value`. None means unset."""

    key: str
    expected: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class FormatCluster:
    """The first command of a cluster, which sets the cluster id permanently."""

    KIND: ClassVar[int] = 1
    cluster_id: str
    metadata_version: int = FIRST_LEVEL


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker has started. `incarnation` is new with every start; `log_dirs` are the ids of its log directories.

    `expected_epoch` is the broker epoch of the previous incarnation, NEVER_REGISTERED for a new broker: a late
    registration must not replace a newer one. None expects nothing. `min_isr` is the broker's static
    min.insync.replicas. `levels` are the oldest and newest metadata.version of its release.
    """

    KIND: ClassVar[int] = 2
    broker_id: BrokerId
    incarnation: UUID
    listeners: tuple[Endpoint, ...]
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()
    expected_epoch: int | None = None
    min_isr: int = 1
    levels: tuple[int, int] = OF_FIRST_RELEASE


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create a topic with one assignment per partition. Expects that neither its name nor its id exists."""

    KIND: ClassVar[int] = 3
    topic_id: UUID
    name: str
    assignments: tuple[Assignment, ...]
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic. Topic ids are never reused, so a late command cannot delete a newer topic of the same name."""

    KIND: ClassVar[int] = 4
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Add partitions to a topic that has exactly `expected_count` partitions."""

    KIND: ClassVar[int] = 5
    topic_id: UUID
    expected_count: int
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Change the configs of a topic, a group, or of a broker by its id. The broker "" stands for all brokers."""

    KIND: ClassVar[int] = 6
    resource_type: ResourceType
    name: str
    changes: tuple[ConfigChange, ...]


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Allocate a block of producer ids, from `expected_next` on, to one broker (KIP-730)."""

    KIND: ClassVar[int] = 7
    broker_id: BrokerId
    expected_next: int
    count: int


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """Create ACLs by id. An ACL that exists already, under any id, is left as it is."""

    KIND: ClassVar[int] = 8
    acls: tuple[tuple[UUID, Acl], ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """Delete ACLs by id. Unknown ids are passed over.

    A late command cannot delete an equal ACL that was created later under another id.
    """

    KIND: ClassVar[int] = 9
    ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """Fence a broker whose session timed out: it leads nothing and leaves every in-sync set that has another member.

    `broker_epoch` is that of the incarnation whose session timed out; a later incarnation is not fenced.
    """

    KIND: ClassVar[int] = 10
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """Unfence a broker that sends heartbeats, has its assignments and has recovered their logs: it may lead again."""

    KIND: ClassVar[int] = 11
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BeginControlledShutdown:
    """Begin a controlled shutdown: the broker's leaderships move to other in-sync replicas, if any (KIP-630)."""

    KIND: ClassVar[int] = 12
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The in-sync set that a partition's leader proposes. Each member has the broker epoch that the leader has seen."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """Change in-sync sets by compare-and-set on the partition epoch (KIP-497, KIP-841, KIP-903).

    A change that does not fit is passed over; the others are applied. The leader sees in the image which changes were
    applied.
    """

    KIND: ClassVar[int] = 13
    broker_id: BrokerId
    broker_epoch: int
    changes: tuple[IsrChange, ...]


class Election(IntEnum):
    """The kind of leader election, by Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect preferred leaders, or run unclean elections for partitions without a leader.

    A partition without a suitable candidate, or already led as requested, is passed over. `candidate` names the replica
    of an unclean election; None stands for the first that is alive.
    """

    KIND: ClassVar[int] = 14
    election: Election
    partitions: tuple[tuple[UUID, int], ...]
    candidate: BrokerId | None = None


@dataclass(frozen=True, slots=True)
class ReassignPartition:
    """Reassign a partition to other brokers (KIP-455). None for `replicas` cancels a reassignment in progress."""

    KIND: ClassVar[int] = 15
    topic_id: UUID
    partition: int
    replicas: Assignment | None


@dataclass(frozen=True, slots=True)
class DropReplicas:
    """Remove the broker's replicas of these partitions, which lost records, from every in-sync set and from leadership.

    `is_gone` is true for a failed disk, which can serve nothing, and false for damaged ranges. Where no other replica
    is in sync, a damaged replica stays leader, and a lost replica leaves no leader.
    """

    KIND: ClassVar[int] = 16
    broker_id: BrokerId
    broker_epoch: int
    partitions: tuple[tuple[UUID, int], ...]
    is_gone: bool


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Unregister a broker permanently. Expects that the broker holds no partition (KIP-631)."""

    KIND: ClassVar[int] = 17
    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class ReportUnflushed:
    """The broker's machine crashed: its replicas of these partitions may lack unflushed records (KIP-966).

    The partitions belong to topics with flush.policy=os. Such a replica leaves the in-sync set if another replica has
    every committed record; the only such replica stays.
    """

    KIND: ClassVar[int] = 18
    broker_id: BrokerId
    broker_epoch: int
    partitions: tuple[tuple[UUID, int], ...]


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A SCRAM credential that is set. It has no password and no salted password (RFC 5802, section 3)."""

    user: str
    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A SCRAM credential that is removed. Expects that it exists."""

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class AlterScramCredentials:
    """Set and remove SCRAM credentials of users (KIP-554)."""

    KIND: ClassVar[int] = 19
    upsertions: tuple[ScramUpsertion, ...]
    deletions: tuple[ScramDeletion, ...] = ()


@dataclass(frozen=True, slots=True)
class PutDelegationToken:
    """Create a delegation token, or replace the one of the same id to renew it (KIP-48). Times are ms since 1970.

    `expected_expiry_ms` is the expiry of the token that is replaced, -1 if there must be none: a late renewal cannot
    revive a token.
    """

    KIND: ClassVar[int] = 20
    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expiry_ms: int
    expected_expiry_ms: int = -1


@dataclass(frozen=True, slots=True)
class RemoveDelegationTokens:
    """Remove delegation tokens: each has its id, and the expiry at which it was found. A renewed token is left."""

    KIND: ClassVar[int] = 21
    tokens: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirs:
    """Record the log directory of each of a broker's replicas, by topic id, partition and directory id (KIP-858).

    Only brokers with several log directories send it: a missing directory then costs only what lay there.
    """

    KIND: ClassVar[int] = 30
    LEVEL: ClassVar[int] = 2
    broker_id: BrokerId
    broker_epoch: int
    replicas: tuple[tuple[UUID, int, str], ...]


@dataclass(frozen=True, slots=True)
class AddVoter:
    """Add a voter to the metadata quorum (KIP-853). `directory_id` distinguishes an empty disk from a known one.

    The leader fills in `voters`, all voters afterwards: an entry in the log has the whole set, in force once appended.
    """

    KIND: ClassVar[int] = 31
    LEVEL: ClassVar[int] = 2
    broker_id: BrokerId
    directory_id: str
    host: str
    port: int
    voters: tuple[VoterRow, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """Remove a voter from the metadata quorum (KIP-853)."""

    KIND: ClassVar[int] = 32
    LEVEL: ClassVar[int] = 2
    broker_id: BrokerId
    directory_id: str
    voters: tuple[VoterRow, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateVoter:
    """Change the address of a voter, or record its new directory (KIP-853)."""

    KIND: ClassVar[int] = 33
    LEVEL: ClassVar[int] = 2
    broker_id: BrokerId
    directory_id: str
    host: str
    port: int
    voters: tuple[VoterRow, ...] = ()


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
    | AlterScramCredentials
    | PutDelegationToken
    | RemoveDelegationTokens
    | BeginUpload
    | CommitUpload
    | RemoveArchived
    | ForgetArchived
    | GiveUpUploads
    | CreateCut
    | DropCut
    | UpdateFeatures
    | AlterClientQuotas
    | AssignReplicasToDirs
    | AddVoter
    | RemoveVoter
    | UpdateVoter
)


_LEVELS_OF_CONFIGS = {ResourceType.CLIENT_METRICS: 2, ResourceType.GROUP: 3}


def level_of(command: Command) -> int:
    """Return the metadata.version that a cluster must have before the command may be proposed."""
    if isinstance(command, RegisterBroker) and command.levels != OF_FIRST_RELEASE:
        return 2
    if isinstance(command, AlterConfigs):
        return _LEVELS_OF_CONFIGS.get(command.resource_type, FIRST_LEVEL)
    return getattr(command, "LEVEL", FIRST_LEVEL)
