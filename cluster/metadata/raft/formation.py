"""Whether a voter that finds nothing on its disk is new, or has lost what it promised. Pure (docs/adr/0011)."""

from collections.abc import Iterable, Mapping

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.messages import Standing

_NEW = (Standing.EMPTY, Standing.FOUNDING)


def decide(own: Standing, others: Iterable[BrokerId], heard: Mapping[BrokerId, Standing]) -> Standing:
    """What a voter that stood as `own` stands as, given what it heard from the others over connections that are up.

    One member is enough to know that there was a cluster. That there was none takes the word of everybody.
    """
    if own is not Standing.EMPTY:
        return own
    if Standing.MEMBER in heard.values():
        return Standing.AMNESIAC
    if all(heard.get(other) in _NEW for other in others):
        return Standing.FOUNDING
    return Standing.EMPTY


def is_stuck(own: Standing, others: Iterable[BrokerId], heard: Mapping[BrokerId, Standing]) -> bool:
    """Whether no cluster can come to life from these: too few remember. Then nobody may make one up, either."""
    standings = [own, *(heard.get(other, Standing.MEMBER) for other in others)]
    has_cluster = any(standing in (Standing.MEMBER, Standing.AMNESIAC) for standing in (own, *heard.values()))
    able = sum(standing.may_vote for standing in standings)
    return has_cluster and able <= len(standings) // 2
