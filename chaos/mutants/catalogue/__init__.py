"""The catalogue of all mutants, also by name."""

from cordwood.chaos.mutants.catalogue import (
    elections,
    follower,
    groups,
    leader,
    logs,
    metadata,
    partitions,
    quorum,
    requests,
    sequences,
    storage,
)
from cordwood.chaos.mutants.mutant import Mutant

ALL: tuple[Mutant, ...] = (
    *elections.MUTANTS,
    *follower.MUTANTS,
    *groups.MUTANTS,
    *leader.MUTANTS,
    *logs.MUTANTS,
    *metadata.MUTANTS,
    *partitions.MUTANTS,
    *quorum.MUTANTS,
    *requests.MUTANTS,
    *sequences.MUTANTS,
    *storage.MUTANTS,
)

BY_NAME: dict[str, Mutant] = {mutant.name: mutant for mutant in ALL}
