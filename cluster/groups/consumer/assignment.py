"""Computation of a group's target assignment: from the members as they are now to the targets that change."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.groups.consumer.assignors import ASSIGNORS, GroupToAssign, Subscriber
from cordwood.cluster.groups.consumer.formats import ResolvedRegex
from cordwood.cluster.groups.consumer.member import ConsumerMember
from cordwood.cluster.groups.consumer.topics import ids_of
from cordwood.cluster.groups.context import TopicMap
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS, Partitions, TargetAssignment, encode_target
from cordwood.storage.steps import Steps


class AssignmentInput(NamedTuple):
    """A group at one epoch. The mappings are copies, and what they hold never changes."""

    epoch: int
    assignor: str
    members: list[ConsumerMember]
    resolved: Mapping[str, ResolvedRegex]
    targets: Mapping[str, Partitions]
    topics: TopicMap


def assign(group: AssignmentInput) -> Steps[TargetAssignment]:
    """Compute the assignment for an epoch."""
    known: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
    subscribers = []
    for member in group.members:
        subscription = (member.topics, member.regex)
        if subscription not in known:
            resolved = group.resolved.get(member.regex)
            names = member.topics if resolved is None else member.topics | resolved.topics
            known[subscription] = ids_of(names, group.topics)
        target = group.targets.get(member.id, NO_PARTITIONS)
        subscribers.append(Subscriber(member.id, member.instance_id, known[subscription], target))
        yield
    ids = {topic_id for subscribed in known.values() for topic_id in subscribed}
    counts = {topic_id: len(group.topics.by_id[topic_id].partitions) for topic_id in ids}
    assigned = yield from ASSIGNORS[group.assignor](GroupToAssign(subscribers, counts))
    changed = {}
    for member_id, partitions in assigned.items():
        if partitions != group.targets.get(member_id):
            changed[member_id] = (partitions, encode_target(partitions))
        yield
    return TargetAssignment(group.epoch, changed)
