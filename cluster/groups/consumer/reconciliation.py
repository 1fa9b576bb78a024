"""Reconciliation of one member with its target assignment: revoke first, then advance, then take free partitions.

A member keeps its epoch until it has revoked the partitions that are not in its target. It then advances to the target
epoch, and gets the partitions that no other member holds; it waits for the others (KIP-848).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from uuid import UUID

from cordwood.cluster.groups.consumer.member import AssignmentEpochs, ConsumerMember, MemberState
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS, Partitions
from cordwood.storage.steps import Steps, portions

_NONE = frozenset[int]()
OwnerOf = Callable[[UUID, int], str | None]
"""Returns the member that holds a partition, and be it to revoke it; None for a free partition."""


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    owner_of: OwnerOf,
    is_subscribed: Callable[[UUID], bool],
) -> Steps[ConsumerMember]:
    """Return the member's next state, or the same object if it cannot advance.

    `owned` are the partitions in the member's request; None if the request has none.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return (yield from _without_unsubscribed(member, owned, is_subscribed))
        case MemberState.UNREVOKED_PARTITIONS if (yield from _still_owns(owned, member.revoking)):
            return (yield from _without_unsubscribed(member, owned, is_subscribed))
    return (yield from _advanced(member, target_epoch, target, owned, owner_of, is_subscribed))


def places_in(partitions: Partitions) -> Iterator[tuple[UUID, int]]:
    """Yield each partition."""
    return ((topic_id, index) for topic_id, indexes in partitions.items() for index in indexes)


def united(one: Partitions, other: Partitions) -> Steps[Partitions]:
    """Return the partitions of both."""
    both: dict[UUID, frozenset[int]] = {}
    for portion in portions(chain(one.items(), other.items())):
        for topic_id, indexes in portion:
            both[topic_id] = both[topic_id] | indexes if topic_id in both else indexes
        yield
    return both


def not_taken(partitions: Partitions, taken: dict[UUID, set[int]]) -> Steps[Partitions]:
    """Return the partitions that no other member has taken, and add them to those that are taken."""
    own = {}
    for portion in portions(partitions.items()):
        for topic_id, indexes in portion:
            known = taken.setdefault(topic_id, set())
            if free := indexes - known:
                own[topic_id] = free
                known |= free
        yield
    return own


def all_in(partitions: Partitions, epoch: int) -> Steps[AssignmentEpochs]:
    """Return the assignment epochs of partitions that were all assigned in one epoch."""
    epochs = {}
    for portion in portions(partitions.items()):
        for topic_id, indexes in portion:
            epochs[topic_id] = dict.fromkeys(indexes, epoch)
        yield
    return epochs


def kept_epochs(epochs: AssignmentEpochs, partitions: Partitions) -> Steps[dict[UUID, Mapping[int, int]]]:
    """Return the assignment epochs of partitions that the member had before."""
    kept: dict[UUID, Mapping[int, int]] = {}
    for portion in portions(partitions.items()):
        for topic_id, indexes in portion:
            before = epochs[topic_id]
            kept[topic_id] = before if len(before) == len(indexes) else {index: before[index] for index in indexes}
        yield
    return kept


def contains(partitions: Partitions, some: Partitions) -> bool:
    """Return whether all of `some` are among the partitions."""
    return all(indexes <= partitions.get(topic_id, frozenset()) for topic_id, indexes in some.items())


def _still_owns(owned: Partitions | None, revoking: Partitions) -> Steps[bool]:
    """Return whether the member still owns a partition that it has to revoke, or does not say."""
    if owned is None:
        return True
    for portion in portions(revoking.items()):
        if any(not indexes.isdisjoint(owned.get(topic_id, ())) for topic_id, indexes in portion):
            return True
        yield
    return False


def _without_unsubscribed(
    member: ConsumerMember, owned: Partitions | None, is_subscribed: Callable[[UUID], bool]
) -> Steps[ConsumerMember]:
    """Revoke the topics that the member does not subscribe to any more, before there is a new target."""
    gone: dict[UUID, frozenset[int]] = {}
    assigned: dict[UUID, frozenset[int]] = {}
    for portion in portions(member.assigned.items()):
        for topic_id, indexes in portion:
            (assigned if is_subscribed(topic_id) else gone)[topic_id] = indexes
        yield
    if not gone:
        return member
    revoking = yield from united(member.revoking, gone)
    if (yield from _still_owns(owned, revoking)):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    assignment_epochs = yield from kept_epochs(member.assignment_epochs, (yield from united(assigned, member.revoking)))
    return replace(member, previous_epoch=member.epoch, assigned=assigned, assignment_epochs=assignment_epochs)


def _kept_and_revoked(
    member: ConsumerMember, target: Partitions, is_subscribed: Callable[[UUID], bool]
) -> Steps[tuple[dict[UUID, frozenset[int]], Partitions]]:
    """Return the partitions of the member that its target has, and those that it has to revoke."""
    kept: dict[UUID, frozenset[int]] = {}
    revoking: dict[UUID, frozenset[int]] = {}
    for portion in portions(member.assigned.items()):
        for topic_id, had in portion:
            wanted = target.get(topic_id, _NONE) if is_subscribed(topic_id) else _NONE
            if gone := had - wanted:
                revoking[topic_id] = gone
            if left := had & wanted:
                kept[topic_id] = left
        yield
    return kept, revoking


def _advanced(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    owner_of: OwnerOf,
    is_subscribed: Callable[[UUID], bool],
) -> Steps[ConsumerMember]:
    """Bring the member nearer to its target: it revokes what it has to, and then gets what no other member has."""
    assigned, revoking = yield from _kept_and_revoked(member, target, is_subscribed)
    if revoking and (yield from _still_owns(owned, revoking)):
        epochs = yield from kept_epochs(member.assignment_epochs, member.assigned)
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
            assignment_epochs=epochs,
        )
    is_waiting, assignment_epochs = False, (yield from kept_epochs(member.assignment_epochs, assigned))
    for portion in portions(target.items()):
        for topic_id, wanted in portion:
            missing = wanted - assigned.get(topic_id, _NONE)
            if not missing or not is_subscribed(topic_id):
                continue
            free = frozenset(index for index in missing if owner_of(topic_id, index) in (None, member.id))
            is_waiting |= len(free) < len(missing)
            if free:
                assigned[topic_id] = assigned.get(topic_id, _NONE) | free
                assignment_epochs[topic_id] = {
                    **assignment_epochs.get(topic_id, {}),
                    **dict.fromkeys(free, target_epoch),
                }
        yield
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=NO_PARTITIONS,
        assignment_epochs=assignment_epochs,
    )
