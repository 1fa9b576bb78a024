"""Cluster formation: whether a voter with an empty disk is a founder or an amnesiac. Pure (docs/adr/0011)."""

from collections.abc import Iterable, Mapping

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.messages import Standing

_NEW = (Standing.EMPTY, Standing.FOUNDING)


def decide(own: Standing, others: Iterable[BrokerId], heard: Mapping[BrokerId, Standing]) -> Standing:
    """Return the standing of a voter that was `own`, given the standings of the connected voters.

    One member proves that a cluster exists. Only the standings of all voters prove that none exists.
    """
    if own is not Standing.EMPTY:
        return own
    if Standing.MEMBER in heard.values():
        return Standing.AMNESIAC
    if all(heard.get(other) in _NEW for other in others):
        return Standing.FOUNDING
    return Standing.EMPTY


def is_stuck(own: Standing, others: Iterable[BrokerId], heard: Mapping[BrokerId, Standing]) -> bool:
    """Return whether the quorum is lost: a cluster exists, and too few voters remember it.

    Then no voter may form a new cluster, either.
    """
    standings = [own, *(heard.get(other, Standing.MEMBER) for other in others)]
    has_cluster = any(standing in (Standing.MEMBER, Standing.AMNESIAC) for standing in (own, *heard.values()))
    able = sum(standing.may_vote for standing in standings)
    return has_cluster and able <= len(standings) // 2
