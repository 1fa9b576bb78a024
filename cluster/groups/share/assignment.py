"""Computation of a share group's assignment, from the members as they are now."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.groups.share.assignor import assign
from cordwood.cluster.groups.share.formats import encode_target
from cordwood.cluster.groups.share.member import NOTHING, PartitionsById, ShareMember
from cordwood.cluster.resources.turns import Steps


class ShareAssignmentInput(NamedTuple):
    """A share group at one epoch. The mappings are copies, and what they hold never changes."""

    epoch: int
    members: list[ShareMember]
    ids: Mapping[str, UUID]
    """The topics that exist and are read, by name."""
    initialized: PartitionsById
    """The partitions that can be assigned."""
    targets: Mapping[str, PartitionsById]


class ShareAssignment(NamedTuple):
    """The targets of an epoch that differ from the former ones, and their encoded records."""

    epoch: int
    changed: Mapping[str, tuple[PartitionsById, bytes]]


def compute(group: ShareAssignmentInput) -> Steps[ShareAssignment]:
    """Compute the assignment of an epoch."""
    subscriptions: dict[str, frozenset[UUID]] = {}
    known: dict[frozenset[str], frozenset[UUID]] = {}
    for member in group.members:
        if member.topics not in known:
            known[member.topics] = frozenset(group.ids[name] for name in member.topics if name in group.ids)
        subscriptions[member.id] = known[member.topics]
        yield
    read = {topic_id: group.initialized[topic_id] for topic_id in group.ids.values() if topic_id in group.initialized}
    assigned = yield from assign(subscriptions, read, group.targets)
    changed = {}
    for member_id, target in assigned.items():
        if target != group.targets.get(member_id, NOTHING):
            changed[member_id] = (target, encode_target(target))
        yield
    return ShareAssignment(group.epoch, changed)
