"""Member of a consumer group: its subscription, its epochs, and the partitions that it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from uuid import UUID

from cordwood.cluster.groups.exchange import MemberProtocol
from cordwood.cluster.groups.heartbeat import JOIN_EPOCH
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS, Partitions
from cordwood.storage.steps import Steps, same_items

AssignmentEpochs = Mapping[UUID, Mapping[int, int]]
"""The epoch at which a member got each of its partitions, by topic id and index. Never changed in place."""

NO_EPOCHS: AssignmentEpochs = MappingProxyType({})
_NOT_ASSIGNED: Mapping[int, int] = MappingProxyType({})


class MemberState(IntEnum):
    """The states of a member, with Kafka's numbers."""

    STABLE = 0
    """The member holds its target assignment, as of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """The member has to revoke partitions before it may advance to the target epoch."""
    UNRELEASED_PARTITIONS = 2
    """Other members still hold partitions of the target assignment."""


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """The JoinGroup request of a member with the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member. A change makes a new object."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The topics that the member subscribes to by name."""
    regex: str = ""
    """The regular expression that the member subscribes with; empty for none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocols | None = None
    """None for a member with the consumer protocol."""
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    revoking: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """Partitions that the member has to revoke, and may still consume."""
    assignment_epochs: AssignmentEpochs = field(default_factory=lambda: NO_EPOCHS)
    """Of the assigned and revoking partitions, and of no others (KIP-1251)."""

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: UUID, index: int) -> int | None:
        """Return the epoch at which the member got a partition; None for one that it does not have."""
        return self.assignment_epochs.get(topic_id, _NOT_ASSIGNED).get(index)

    def has_same_metadata(self, other: "ConsumerMember") -> bool:
        """Return whether the members differ at most in epochs, state and partitions."""
        return (
            self.instance_id == other.instance_id
            and self.rack_id == other.rack_id
            and self.client_id == other.client_id
            and self.client_host == other.client_host
            and self.topics == other.topics
            and self.regex == other.regex
            and self.rebalance_timeout_ms == other.rebalance_timeout_ms
            and self.assignor == other.assignor
            and self.classic == other.classic
        )

    def has_same_assignment(self, other: "ConsumerMember") -> Steps[bool]:
        """Return whether the members have the same epochs, state and partitions."""
        return (
            self.epoch == other.epoch
            and self.previous_epoch == other.previous_epoch
            and self.state is other.state
            and (yield from same_items(self.assigned, other.assigned))
            and (yield from same_items(self.revoking, other.revoking))
            and (yield from same_items(self.assignment_epochs, other.assignment_epochs))
        )
