"""Dead letters of share groups (KIP-1191).

- missing-dead-letter: a record was rejected with success, and is not in the group's dead-letter topic at the end.
- invented-dead-letter: a record is in the dead-letter topic that was neither rejected nor delivered up to the limit.

Neither Jepsen nor Adya has these classes. The first is `lost` of Jepsen's total-queue checker, the second is its
`unexpected`, with the dead-letter topic as the queue.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import AckType, Outcome


def missing_dead_letters(evidence: Evidence) -> Iterator[Anomaly]:
    """Find rejected records without a dead letter. The operation of a case is the rejection.

    A rejection after an acceptance succeeds below the start offset, and changes nothing. A record that DeleteRecords or
    retention deletes before it is copied has no dead letter (promise 8).
    """
    history, shares = evidence.history, evidence.shares
    reported, letters, groups = history.acknowledgements, history.dead_letters, history.share_groups
    has_letters = groups.group[groups.has_dead_letters == 1]
    row, record = shares.finished
    is_due = (reported.type[row] == AckType.REJECT) & np.isin(reported.group[row], has_letters)
    written = shares.record_of(letters.group, letters.partition, letters.offset)
    is_acceptance = (reported.type == AckType.ACCEPT) & (reported.outcome != Outcome.FAIL)
    accepted = shares.acknowledged.record[is_acceptance[shares.acknowledged.row]]
    log_start = shares.record_of(reported.group, reported.partition, evidence.log_start[reported.partition])
    is_kept = record >= log_start[row]
    missing = row[is_due & is_kept & ~np.isin(record, written) & ~np.isin(record, accepted)]
    sentence = "A record was rejected, and is not among the dead letters"
    yield from accuse("missing-dead-letter", sentence, missing, lambda row: (reported.operation(row),))


def invented_dead_letters(evidence: Evidence) -> Iterator[Anomaly]:
    """Find dead letters of records that were alive. The operations of a case are the dead letter and the deliveries.

    Each fetch without an answer may have delivered the record once.
    """
    history, shares = evidence.history, evidence.shares
    acquisitions, reported, letters, groups = (
        history.acquisitions,
        history.acknowledgements,
        history.dead_letters,
        history.share_groups,
    )
    written = shares.record_of(letters.group, letters.partition, letters.offset)
    is_rejection = (reported.type == AckType.REJECT) & (reported.outcome != Outcome.FAIL)
    rejected = shares.acknowledged.record[is_rejection[shares.acknowledged.row]]
    limits = dict(zip(groups.group.tolist(), groups.delivery_limit.tolist(), strict=True))
    row, record = shares.deliveries
    invented = []
    for letter in np.flatnonzero(~np.isin(written, rejected)).tolist():
        is_place = (acquisitions.group == letters.group[letter]) & (acquisitions.partition == letters.partition[letter])
        unanswered = np.count_nonzero(is_place & (acquisitions.outcome == Outcome.INFO))
        count = int(acquisitions.delivery_count[row[record == written[letter]]].max(initial=0))
        if count + unanswered < limits.get(int(letters.group[letter]), 0):
            invented.append(letter)

    def proof(letter: int) -> Proof:
        deliveries = (acquisitions.operation(int(each)) for each in row[record == written[letter]])
        return letters.operation(letter), *deliveries

    sentence = "A record is among the dead letters that was neither rejected nor delivered up to the limit"
    yield from accuse("invented-dead-letter", sentence, np.array(invented, np.intp), proof)
