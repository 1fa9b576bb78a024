"""The order of one client's polls and sends in a partition.

- nonmonotonic-poll: a consumer that was not reassigned receives the same record again, or an earlier one.
- poll-skip: a consumer that was not reassigned receives a later record than the next one.
- nonmonotonic-send: a later send of one producer has a lower or equal offset in the partition.

The classes are those of Jepsen's kafka workload. Adya has no such classes, because Adya's classes do not order the
reads and writes of one session.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.columns import Bools, consecutive
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import UNKNOWN, Column


def nonmonotonic_polls(evidence: Evidence) -> Iterator[Anomaly]:
    """Find pairs of consecutive polls that do not advance. The operations of a case are the two polls."""
    polls = evidence.history.polls
    earlier, later = evidence.irregular_polls
    goes_back = polls.offset[later] <= polls.offset[earlier]
    yield from accuse_pairs(
        "nonmonotonic-poll",
        "A consumer got a record, and then one that is not after it",
        polls,
        earlier[goes_back],
        later[goes_back],
    )


def poll_skips(evidence: Evidence) -> Iterator[Anomaly]:
    """Find pairs of consecutive polls with an offset between them that is known to have a record.

    Offsets without any observed record do not count: control records and compaction leave such gaps. Nor do, for a
    consumer with read_committed, records of transactions that may be aborted.
    """
    is_committed = evidence.transactions.by_committed_reader[evidence.irregular_polls[0]]
    yield from _poll_skips(evidence, ~is_committed)
    yield from _poll_skips(evidence, is_committed, evidence.transactions.is_shown)


def _poll_skips(evidence: Evidence, of_pairs: Bools, is_shown: Bools | None = None) -> Iterator[Anomaly]:
    """Find those of these pairs that skip a record; only a record of a send that `is_shown`, unless None."""
    sends, polls, replicas = evidence.history.sends, evidence.history.polls, evidence.history.replicas
    earlier, later = (rows[of_pairs] for rows in evidence.irregular_polls)
    partition, end = polls.partition[later], polls.offset[later]
    begin = np.maximum(polls.offset[earlier] + 1, evidence.log_start[partition])
    is_step = begin < end
    if not is_step.any():
        return
    earlier, later, partition = earlier[is_step], later[is_step], partition[is_step]
    numbers, placed, records = evidence.places.numbers, evidence.placed, np.flatnonzero(replicas.value >= 0)
    seen = np.arange(len(polls))
    if is_shown is not None:
        # The last row is that of NO_SEND.
        is_shown = np.append(is_shown, True)
        placed = placed[is_shown[placed]]
        seen = seen[is_shown[evidence.polled_sends]]
        records = records[is_shown[evidence.replicated_sends[records]]]
    has_record = np.zeros(evidence.places.count + 1, np.bool_)
    has_record[numbers(polls.partition[seen], polls.offset[seen])] = True
    has_record[numbers(sends.partition[placed], sends.offset[placed])] = True
    has_record[numbers(replicas.partition[records], replicas.offset[records])] = True
    records_below: Column = np.cumsum(has_record) - has_record
    is_skip: Bools = records_below[numbers(partition, begin[is_step])] < records_below[numbers(partition, end[is_step])]
    yield from accuse_pairs(
        "poll-skip",
        "A consumer was given a record, and then one that is not the next",
        polls,
        earlier[is_skip],
        later[is_skip],
    )


def nonmonotonic_sends(evidence: Evidence) -> Iterator[Anomaly]:
    """Find pairs of consecutive acknowledged sends out of order. Other sends may be appended at any later time."""
    sends, landed = evidence.history.sends, evidence.landed
    known = np.flatnonzero(evidence.is_acknowledged & (landed != UNKNOWN))
    earlier, later = (known[rows] for rows in consecutive(sends.producer[known], sends.partition[known]))
    goes_back = landed[later] <= landed[earlier]
    yield from accuse_pairs(
        "nonmonotonic-send",
        "A producer's later send landed at a lower or equal offset",
        sends,
        earlier[goes_back],
        later[goes_back],
    )
