"""poll-skip: a consumer that was not reassigned receives a later record than the next one.

The class is `poll-skip` of Jepsen's kafka workload. Adya has no such class, because Adya's classes do not order the
reads of one session.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.columns import Bools
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import Column


def poll_skips(evidence: Evidence) -> Iterator[Anomaly]:
    """Find pairs of consecutive polls with an offset between them that is known to have a record.

    Offsets without any observed record do not count: control records and compaction leave such gaps.
    """
    sends, polls, replicas = evidence.history.sends, evidence.history.polls, evidence.history.replicas
    earlier, later = evidence.irregular_polls
    partition, end = polls.partition[later], polls.offset[later]
    begin = np.maximum(polls.offset[earlier] + 1, evidence.log_start[partition])
    is_step = begin < end
    if not is_step.any():
        return
    earlier, later, partition = earlier[is_step], later[is_step], partition[is_step]
    numbers, placed, records = evidence.places.numbers, evidence.placed, np.flatnonzero(replicas.value >= 0)
    has_record = np.zeros(evidence.places.count + 1, np.bool_)
    has_record[numbers(polls.partition, polls.offset)] = True
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
