"""Features of the cluster that ApiVersions announces (KIP-584)."""

from typing import NamedTuple


class Feature(NamedTuple):
    """A feature: the levels that this broker supports, and the level at which the cluster runs it."""

    name: str
    oldest: int
    newest: int
    level: int


TRANSACTION_VERSION = Feature("transaction.version", 0, 2, 2)
"""Level 2: the first produce to a partition adds it to the transaction, and each EndTxn bumps the epoch (KIP-890)."""

FEATURES: tuple[Feature, ...] = (TRANSACTION_VERSION,)
"""The announced features."""
