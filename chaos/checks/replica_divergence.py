"""replica-divergence: two replicas that differ below the smaller of their high watermarks.

Neither Jepsen's kafka workload nor Adya has this class, because both observe clients only. Clients observe such
replicas as `inconsistent-offsets` or `lost-write` once another replica leads.
"""

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse
from cordwood.chaos.checks.columns import NOTHING, Bools, per_partition
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import Column, Operation, ReplicaRecords


def replica_divergences(evidence: Evidence) -> Iterator[Anomaly]:
    """Find places at which one of two brokers has another record or none. Control records count too.

    The operations of a case are both records, or one record and the log that lacks it.
    """
    for one, other in permutations([_Copy(evidence, broker) for broker in evidence.brokers], 2):
        yield from _differences(evidence.history.replicas, one, other)


def _differences(replicas: ReplicaRecords, one: "_Copy", other: "_Copy") -> Iterator[Anomaly]:
    is_bound = one.is_between(np.maximum(one.start, other.start), np.minimum(one.end, other.end))
    rows, theirs = one.rows[is_bound], other.value_at[one.places[is_bound]]
    # Each pair of brokers comes in both orders: records that both have are compared in the first order only.
    is_other = (theirs != replicas.value[rows]) & (one.broker < other.broker)
    yield from accuse(
        "replica-divergence",
        f"Broker {one.broker} has a committed record that broker {other.broker} has not, or not so",
        rows[(theirs == NOTHING) | is_other],
        lambda row: (replicas.operation(row), other.instead_of(row)),
    )


class _Copy:
    """The replicas of one broker: rows of the table of replicas, and the value at each place.

    `start` and `end` (by partition) bound the committed range, by the broker's own log start offset and high watermark.
    """

    def __init__(self, evidence: Evidence, broker: int) -> None:
        self.broker = broker
        self._replicas, self._logs = evidence.history.replicas, evidence.history.logs
        logs = np.flatnonzero(self._logs.broker == broker)
        partition = self._logs.partition[logs]
        self.start, self.end = per_partition(evidence.partitions, 0), per_partition(evidence.partitions, 0)
        self.start[partition], self.end[partition] = self._logs.log_start[logs], self._logs.high_watermark[logs]
        self.rows = np.flatnonzero(self._replicas.broker == broker)
        self.places = evidence.places.numbers(self._replicas.partition[self.rows], self._replicas.offset[self.rows])
        self.value_at = np.full(evidence.places.count, NOTHING, np.int64)
        self.value_at[self.places] = self._replicas.value[self.rows]

    def is_between(self, start: Column, end: Column) -> Bools:
        """Return which of the rows are between these bounds, which are by partition."""
        partition, offset = self._replicas.partition[self.rows], self._replicas.offset[self.rows]
        is_between: Bools = (offset >= start[partition]) & (offset < end[partition])
        return is_between

    def instead_of(self, row: int) -> Operation:
        """Return this broker's record at the offset of another broker's record, else its log without that record."""
        partition, offset = self._replicas.partition[row], self._replicas.offset[row]
        is_there = (self._replicas.partition == partition) & (self._replicas.offset == offset)
        mine = np.flatnonzero(is_there & (self._replicas.broker == self.broker))
        if len(mine):
            return self._replicas.operation(int(mine[-1]))
        is_log = (self._logs.broker == self.broker) & (self._logs.partition == partition)
        return self._logs.operation(int(np.flatnonzero(is_log)[0]))
