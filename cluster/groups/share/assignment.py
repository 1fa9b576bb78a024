"""Computation of a share group's assignment, from the members as they are now."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.groups.share.assignor import assign
from cordwood.cluster.groups.share.member import ShareMember
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS, Partitions, TargetAssignment, encode_target
from cordwood.storage.steps import Steps, portions, same_items


class ShareAssignmentInput(NamedTuple):
    """A share group at one epoch. The mappings are copies, and their values never change."""

    epoch: int
    members: list[ShareMember]
    ids: Mapping[str, UUID]
    """The topics that exist and are read, by name."""
    initialized: Partitions
    """The partitions that can be assigned."""
    targets: Mapping[str, Partitions]


def compute(group: ShareAssignmentInput) -> Steps[TargetAssignment]:
    """Compute the assignment of an epoch."""
    subscriptions: dict[str, frozenset[UUID]] = {}
    known: dict[frozenset[str], frozenset[UUID]] = {}
    for member in group.members:
        if member.topics not in known:
            found = set()
            for portion in portions(member.topics):
                found.update([group.ids[name] for name in portion if name in group.ids])
                yield
            known[member.topics] = frozenset(found)
        subscriptions[member.id] = known[member.topics]
        yield
    read = {}
    for some in portions(group.ids.values()):
        read.update({topic_id: group.initialized[topic_id] for topic_id in some if topic_id in group.initialized})
        yield
    assigned = yield from assign(subscriptions, read, group.targets)
    changed = {}
    for member_id, target in assigned.items():
        if not (yield from same_items(target, group.targets.get(member_id, NO_PARTITIONS))):
            changed[member_id] = (target, (yield from encode_target(target)))
        yield
    return TargetAssignment(group.epoch, changed)
