"""The catalogue of all mutants, also by name."""

from cordwood.chaos.mutants.catalogue import (
    acls,
    archive_reads,
    clients,
    compaction,
    follower,
    generations,
    groups,
    http,
    leader,
    limits,
    links,
    logs,
    metadata,
    partitions,
    quorum,
    requests,
    sasl,
    sequences,
    spark,
    stable_offsets,
    storage,
    tls,
    tokens,
    transactions,
)
from cordwood.chaos.mutants.mutant import Mutant

_MODULES = (
    acls,
    archive_reads,
    clients,
    compaction,
    follower,
    generations,
    groups,
    http,
    leader,
    limits,
    links,
    logs,
    metadata,
    partitions,
    quorum,
    requests,
    sasl,
    sequences,
    spark,
    stable_offsets,
    storage,
    tokens,
    tls,
    transactions,
)
ALL: tuple[Mutant, ...] = tuple(mutant for module in _MODULES for mutant in module.MUTANTS)

BY_NAME: dict[str, Mutant] = {mutant.name: mutant for mutant in ALL}
