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
from cordwood.storage.steps import Steps, portions, same_items


class AssignmentInput(NamedTuple):
    """A group at one epoch. The mappings are copies, and their values never change."""

    epoch: int
    assignor: str
    members: list[ConsumerMember]
    resolved: Mapping[str, ResolvedRegex]
    targets: Mapping[str, Partitions]
    topics: TopicMap


def assign(group: AssignmentInput) -> Steps[TargetAssignment]:
    """Compute the assignment for an epoch."""
    known: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
    sets: dict[frozenset[UUID], frozenset[UUID]] = {}
    """One object for equal sets: sets of thousands of topics are compared only here, one in each step."""
    subscribers = []
    for member in group.members:
        subscription = (member.topics, member.regex)
        if subscription not in known:
            resolved = group.resolved.get(member.regex)
            names = member.topics if resolved is None else member.topics | resolved.topics
            ids = yield from ids_of(names, group.topics)
            known[subscription] = sets.setdefault(ids, ids)
        target = group.targets.get(member.id, NO_PARTITIONS)
        subscribers.append(Subscriber(member.id, member.instance_id, known[subscription], target))
        yield
    counts: dict[UUID, int] = {}
    for subscribed in sets:
        for portion in portions(subscribed):
            for topic_id in portion:
                counts[topic_id] = len(group.topics.by_id[topic_id].partitions)
            yield
    assigned = yield from ASSIGNORS[group.assignor](GroupToAssign(subscribers, counts))
    changed = {}
    for member_id, partitions in assigned.items():
        before = group.targets.get(member_id)
        if before is None or not (yield from same_items(partitions, before)):
            changed[member_id] = (partitions, (yield from encode_target(partitions)))
        yield
    return TargetAssignment(group.epoch, changed)
