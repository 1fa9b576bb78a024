"""Hanging transactions: open in a partition for longer than any may be, so that consumers wait for them (KIP-664)."""

from collections.abc import Collection
from typing import NamedTuple

from cordwood.storage.types import TopicPartition


class OpenTransaction(NamedTuple):
    """A transaction that is undecided in the state of a partition's leader."""

    place: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """The epoch of the coordinator that wrote the producer's last marker there; -1 for none."""
    start_offset: int
    last_timestamp_ms: int
    """The time of the producer's last append."""


class CoordinatedTransaction(NamedTuple):
    """The transaction of a producer id in the state of its coordinator."""

    transactional_id: str
    state: str
    start_ms: int
    """-1 if no transaction is open."""
    partitions: Collection[TopicPartition]
    """Those that still get a marker of the transaction."""


def is_expected(found: OpenTransaction, known: CoordinatedTransaction | None) -> bool:
    """Return whether the coordinator is going to write the marker that ends the transaction."""
    return known is not None and found.place in known.partitions


def why_hanging(
    found: OpenTransaction, known: CoordinatedTransaction | None, now_ms: int, max_timeout_ms: int
) -> str | None:
    """Return why a transaction hangs, in words; None if it does not. `known` is the coordinator's state, if any."""
    if now_ms - found.last_timestamp_ms <= max_timeout_ms:
        return None
    if known is None:
        return "no coordinator has the producer"
    if not is_expected(found, known):
        return f"{known.transactional_id} is {known.state} without this partition"
    if now_ms - known.start_ms <= max_timeout_ms:
        return None
    return f"{known.transactional_id} is {known.state} for too long"
