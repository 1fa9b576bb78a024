"""Transactions on a partition that a test's broker leads, without a transaction coordinator."""

from replica_fixture import NOW_MS

from cordwood.replication.partition import Partition
from cordwood.storage.batch import TRANSACTIONAL, check
from cordwood.storage.control import EndTransactionMarker
from cordwood.storage.log import Appended
from cordwood.storage.records import Record, encode
from cordwood.storage.types import ProducerIdAndEpoch

PRODUCER = 7


def transactional(*values: str, producer: int = PRODUCER, epoch: int = 0, sequence: int = 0) -> bytes:
    """Return a batch of a transaction."""
    records = [Record(0, NOW_MS, b"k", value.encode()) for value in values]
    return encode(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, attributes=TRANSACTIONAL)


def write(partition: Partition, *values: str, producer: int = PRODUCER, epoch: int = 0, sequence: int = 0) -> Appended:
    """Append a batch of a transaction, which the coordinator has verified."""
    batch = transactional(*values, producer=producer, epoch=epoch, sequence=sequence)
    guard = partition.leader.begin_verification(check(batch))
    return partition.append(batch, NOW_MS, guard=guard)


def decide(
    partition: Partition,
    *,
    commit: bool,
    producer: int = PRODUCER,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    is_v2: bool = False,
) -> Appended:
    """Append the marker that ends a producer's transaction."""
    marker = EndTransactionMarker(commit, coordinator_epoch)
    return partition.leader.append_marker(ProducerIdAndEpoch(producer, epoch), marker, NOW_MS, is_v2=is_v2)
