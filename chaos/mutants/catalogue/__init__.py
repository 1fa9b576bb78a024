"""All mutants there are, by name."""

from cordwood.chaos.mutants.catalogue import elections, follower, groups, leader, quorum, sequences, storage
from cordwood.chaos.mutants.mutant import Mutant

ALL: tuple[Mutant, ...] = (
    *storage.MUTANTS,
    *sequences.MUTANTS,
    *leader.MUTANTS,
    *follower.MUTANTS,
    *elections.MUTANTS,
    *quorum.MUTANTS,
    *groups.MUTANTS,
)

BY_NAME: dict[str, Mutant] = {mutant.name: mutant for mutant in ALL}
