"""Conversion of a classic group of consumers to a consumer group, and back."""

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.classic.members import Member
from cordwood.cluster.groups.consumer.embedded import (
    EmbeddedSubscription,
    MalformedConsumer,
    PartitionsByName,
    encode_assignment,
    read_assignment,
    read_subscription,
    version_of,
)
from cordwood.cluster.groups.consumer.member import ClassicProtocols, ConsumerMember
from cordwood.cluster.groups.consumer.reconciliation import all_in, not_taken
from cordwood.cluster.groups.context import TopicMap
from cordwood.cluster.groups.exchange import SavedGroup, SavedMember
from cordwood.cluster.groups.subscription import CONSUMER
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS, Partitions
from cordwood.storage.steps import Steps, portions

if TYPE_CHECKING:
    from cordwood.cluster.groups.classic.group import ClassicGroup
    from cordwood.cluster.groups.consumer.state import ConsumerGroupState

_converted_of = attrgetter(
    "id",
    "instance_id",
    "client_id",
    "client_host",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "protocols",
    "assignment",
)


def ids_of_names(partitions: PartitionsByName, topics: TopicMap) -> Steps[Partitions]:
    """Return partitions by topic id, without those that do not exist."""
    found: dict[UUID, frozenset[int]] = {}
    for portion in portions(partitions.items()):
        for name, indexes in portion:
            topic = topics.by_name.get(name)
            if topic is not None:
                known = frozenset(index for index in indexes if 0 <= index < len(topic.partitions))
                if known:
                    found[topic.id] = known
        yield
    return found


def names_of_ids(partitions: Partitions, topics: TopicMap) -> Steps[PartitionsByName]:
    """Return partitions by topic name, without those of deleted topics."""
    found = {}
    for portion in portions(partitions.items()):
        for topic_id, indexes in portion:
            if (topic := topics.by_id.get(topic_id)) is not None:
                found[topic.name] = indexes
        yield
    return found


def converted_state(group: "ClassicGroup") -> tuple[object, ...]:
    """Return all of a classic group that a conversion takes over, to see later whether it has changed."""
    return (group.protocol, group.generation, [_converted_of(member) for member in group.members])


def members_of_classic(group: "ClassicGroup", topics: TopicMap) -> Steps[list[ConsumerMember]]:
    """Return the members of a classic group, in its generation and with its assignments (group rule 4). Raises Refused.

    An assignor of a client may have given a partition to two members: the first one keeps it. The group may change
    between the steps: see `converted_state`.
    """
    protocol, generation = group.protocol or group.members.select_protocol(), group.generation
    taken: dict[UUID, set[int]] = {}
    subscriptions: dict[bytes, EmbeddedSubscription] = {}
    members = []
    try:
        for member in list(group.members):
            metadata = member.metadata(protocol)
            subscription = subscriptions.get(metadata)
            if subscription is None:
                subscription = subscriptions[metadata] = yield from read_subscription(metadata)
            members.append((yield from _of_classic(member, subscription, generation, topics, taken)))
            yield
    except MalformedConsumer as error:
        message = (
            f"Cannot upgrade the classic group {group.group_id} to consumer group because the embedded consumer"
            " protocol is malformed."
        )
        raise Refused(ErrorCode.group_id_not_found, message) from error
    return members


def _of_classic(
    member: Member,
    subscription: EmbeddedSubscription,
    generation: int,
    topics: TopicMap,
    taken: dict[UUID, set[int]],
) -> Steps[ConsumerMember]:
    before = yield from ids_of_names((yield from read_assignment(member.assignment)), topics)
    assigned = yield from not_taken(before, taken)
    return ConsumerMember(
        id=member.id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
        epoch=generation,
        previous_epoch=generation,
        assigned=assigned,
        assignment_epochs=(yield from all_in(assigned, generation)),
    )


def as_classic(group: "ConsumerGroupState", topics: TopicMap) -> Steps[SavedGroup]:
    """Return a consumer group of classic members alone as a classic group, with its targets as assignments.

    The generation is that of the newest members, not the group epoch: REBALANCE_IN_PROGRESS has the members join again,
    and their commits before that count.
    """
    protocol = _common_protocol(group)
    generation = max(member.epoch for member in group.members) or group.group_epoch
    members = []
    for member in group.members:
        members.append((yield from _saved(member, protocol, group.targets, topics)))
        yield
    return SavedGroup(CONSUMER, generation, protocol, members[0].member_id, tuple(members))


def _common_protocol(group: "ConsumerGroupState") -> str:
    supported, first = group.members.classic_protocols, next(iter(group.members))
    assert first.classic is not None, "all members are classic ones"
    names = [protocol.name for protocol in first.classic.protocols]
    return next((name for name in names if supported[name] == len(group.members)), names[0])


def _saved(
    member: ConsumerMember, protocol: str, targets: Mapping[str, Partitions], topics: TopicMap
) -> Steps[SavedMember]:
    assert member.classic is not None, "all members are classic ones"
    metadata = next((known.metadata for known in member.classic.protocols if known.name == protocol), b"")
    target = yield from names_of_ids(targets.get(member.id, NO_PARTITIONS), topics)
    return SavedMember(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        metadata,
        (yield from encode_assignment(version_of(member.classic.protocols[0].metadata), target)),
    )
