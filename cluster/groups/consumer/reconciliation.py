"""Reconciliation of one member with its target assignment: revoke first, then advance, then take what is free.

A member keeps its epoch until it has revoked what is not its own any more. It then advances to the target epoch, and
gets the partitions that no other member holds; it waits for the others (KIP-848).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from uuid import UUID

from cordwood.cluster.groups.consumer.member import AssignmentEpochs, ConsumerMember, MemberState
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS, Partitions

OwnerOf = Callable[[UUID, int], str | None]
"""Returns the member that holds a partition, and be it to revoke it; None for a free partition."""


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    owner_of: OwnerOf,
    is_subscribed: Callable[[UUID], bool],
) -> ConsumerMember:
    """Return the member's next state, or the same object if it cannot advance.

    `owned` are the partitions that the member says it has; None if it does not say.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return _without_unsubscribed(member, owned, is_subscribed)
        case MemberState.UNREVOKED_PARTITIONS if _still_owns(owned, member.revoking):
            return _without_unsubscribed(member, owned, is_subscribed)
    return _advanced(member, target_epoch, target, owned, owner_of, is_subscribed)


def places_in(partitions: Partitions) -> Iterator[tuple[UUID, int]]:
    """Yield each partition."""
    return ((topic_id, index) for topic_id, indexes in partitions.items() for index in indexes)


def united(one: Partitions, other: Partitions) -> Partitions:
    """Return the partitions of both."""
    return {
        topic_id: one.get(topic_id, frozenset()) | other.get(topic_id, frozenset()) for topic_id in {**one, **other}
    }


def all_in(partitions: Partitions, epoch: int) -> AssignmentEpochs:
    """Return the assignment epochs of partitions that were all assigned in one epoch."""
    return {topic_id: dict.fromkeys(indexes, epoch) for topic_id, indexes in partitions.items()}


def kept_epochs(epochs: AssignmentEpochs, partitions: Partitions) -> dict[UUID, dict[int, int]]:
    """Return the assignment epochs of partitions that the member had before."""
    return {topic_id: {index: epochs[topic_id][index] for index in indexes} for topic_id, indexes in partitions.items()}


def contains(partitions: Partitions, some: Partitions) -> bool:
    """Return whether all of `some` are among the partitions."""
    return all(indexes <= partitions.get(topic_id, frozenset()) for topic_id, indexes in some.items())


def _still_owns(owned: Partitions | None, revoking: Partitions) -> bool:
    """Return whether the member still owns a partition that it has to revoke, or does not say."""
    if owned is None:
        return True
    return any(not indexes.isdisjoint(revoking.get(topic_id, ())) for topic_id, indexes in owned.items())


def _without_unsubscribed(
    member: ConsumerMember, owned: Partitions | None, is_subscribed: Callable[[UUID], bool]
) -> ConsumerMember:
    """Revoke the topics that the member does not subscribe to any more, before there is a new target."""
    gone = {topic_id: indexes for topic_id, indexes in member.assigned.items() if not is_subscribed(topic_id)}
    if not gone:
        return member
    assigned = {topic_id: indexes for topic_id, indexes in member.assigned.items() if topic_id not in gone}
    revoking = united(member.revoking, gone)
    if _still_owns(owned, revoking):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    assignment_epochs = kept_epochs(member.assignment_epochs, united(assigned, member.revoking))
    return replace(member, previous_epoch=member.epoch, assigned=assigned, assignment_epochs=assignment_epochs)


def _advanced(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    owner_of: OwnerOf,
    is_subscribed: Callable[[UUID], bool],
) -> ConsumerMember:
    assigned: dict[UUID, frozenset[int]] = {}
    revoking: dict[UUID, frozenset[int]] = {}
    for topic_id in dict.fromkeys(chain(target, member.assigned)):
        wanted = target.get(topic_id, frozenset()) if is_subscribed(topic_id) else frozenset()
        had = member.assigned.get(topic_id, frozenset())
        if had - wanted:
            revoking[topic_id] = had - wanted
        if had & wanted:
            assigned[topic_id] = had & wanted
    if revoking and _still_owns(owned, revoking):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
            assignment_epochs=kept_epochs(member.assignment_epochs, member.assigned),
        )
    is_waiting, assignment_epochs = False, kept_epochs(member.assignment_epochs, assigned)
    for topic_id, wanted in target.items():
        if not is_subscribed(topic_id):
            continue
        missing = wanted - assigned.get(topic_id, frozenset())
        free = frozenset(index for index in missing if owner_of(topic_id, index) in (None, member.id))
        is_waiting |= len(free) < len(missing)
        if free:
            assigned[topic_id] = assigned.get(topic_id, frozenset()) | free
            assignment_epochs.setdefault(topic_id, {}).update(dict.fromkeys(free, target_epoch))
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=NO_PARTITIONS,
        assignment_epochs=assignment_epochs,
    )
