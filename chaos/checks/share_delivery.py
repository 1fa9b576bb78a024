"""The deliveries of share groups: each record at least once, with a count that goes up to the limit.

lost-delivery: a share group has passed a record that no member finished, and that was not delivered up to the limit.

The class is `lost` of Jepsen's total-queue checker, an element that was enqueued and never dequeued, extended to
records that were released, or whose lock was over, and that did not come back.

wrong-delivery-count: a delivery count below 1, above the limit, or one that does not go up.

Neither Jepsen nor Adya has this class. The count is durable once a record was released: any later delivery has a larger
one. Within one leader epoch it also increases after a lock has ended.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse, accuse_pairs
from cordwood.chaos.checks.columns import Rows
from cordwood.chaos.checks.evidence import Evidence
from cordwood.chaos.history import AckType, Column, Outcome

NEVER_DELIVERED = 0


def lost_deliveries(evidence: Evidence) -> Iterator[Anomaly]:
    """Find records below the start offset of a share group. The operations are the start offset and the deliveries.

    A fetch without an answer may have delivered each record that was there once.
    """
    history = evidence.history
    groups = history.share_groups
    for group, limit in zip(groups.group.tolist(), groups.delivery_limit.tolist(), strict=True):
        for partition in range(evidence.partitions):
            yield from _lost_from(evidence, group, partition, limit)


def _lost_from(evidence: Evidence, group: int, partition: int, limit: int) -> Iterator[Anomaly]:
    acquisitions, reported, starts = (
        evidence.history.acquisitions,
        evidence.history.acknowledgements,
        evidence.history.share_starts,
    )
    passed = np.flatnonzero((starts.group == group) & (starts.partition == partition))
    if not len(passed):
        return
    highest = int(passed[np.argmax(starts.start[passed])])
    offset, known_ns = _records(evidence, partition, int(starts.start[highest]))
    record = evidence.shares.record_of(group, partition, offset)
    is_final = np.isin(reported.type, (AckType.ACCEPT, AckType.REJECT)) & (reported.outcome != Outcome.FAIL)
    acknowledged = evidence.shares.acknowledged
    finished = acknowledged.record[is_final[acknowledged.row]]
    counts = _counts(evidence, record)
    is_open = (acquisitions.group == group) & (acquisitions.partition == partition)
    unanswered_ns = np.sort(acquisitions.at_ns[is_open & (acquisitions.outcome == Outcome.INFO)])
    unanswered = len(unanswered_ns) - np.searchsorted(unanswered_ns, known_ns, "left")
    lost = np.flatnonzero(~np.isin(record, finished) & (counts + unanswered < limit))

    def proof(case: int) -> Proof:
        row, record_of = evidence.shares.deliveries
        rows = row[record_of == record[case]]
        deliveries = tuple(acquisitions.operation(int(each)) for each in rows)
        return starts.operation(highest), *_send_at(evidence, partition, int(offset[case])), *deliveries

    sentence = f"A share group passed a record of partition {partition} that it has not delivered, or not brought back"
    yield from accuse("lost-delivery", sentence, lost, proof)


def _records(evidence: Evidence, partition: int, end: int) -> tuple[Column, Column]:
    """Return the offsets of the known records of a partition up to `end`, and when each was sent at the earliest."""
    sends, replicas = evidence.history.sends, evidence.history.replicas
    placed = evidence.placed[sends.partition[evidence.placed] == partition]
    held = np.flatnonzero((replicas.partition == partition) & (replicas.value >= 0))
    offset = np.concatenate([sends.offset[placed], replicas.offset[held]])
    known_ns = np.concatenate([sends.invoked_ns[placed], np.zeros(len(held), np.int64)])
    order = np.lexsort((-known_ns, offset))
    offset, known_ns = offset[order], known_ns[order]
    is_due = (offset < end) & (offset >= evidence.log_start[partition])
    is_due[1:] &= offset[1:] != offset[:-1]
    return offset[is_due], known_ns[is_due]


def _counts(evidence: Evidence, record: Column) -> Column:
    """Return, by record, the largest count with which it was delivered; NEVER_DELIVERED for none."""
    row, of_record = evidence.shares.deliveries
    counts = np.full(len(record), NEVER_DELIVERED, np.int64)
    place = np.searchsorted(record, of_record)
    is_known = place < len(record)
    is_known[is_known] = record[place[is_known]] == of_record[is_known]
    np.maximum.at(counts, place[is_known], evidence.history.acquisitions.delivery_count[row[is_known]])
    return counts


def _send_at(evidence: Evidence, partition: int, offset: int) -> Proof:
    sends = evidence.history.sends
    rows = np.flatnonzero((sends.partition == partition) & (evidence.landed == offset))[:1]
    return tuple(sends.operation(int(row)) for row in rows)


def impossible_counts(evidence: Evidence) -> Iterator[Anomaly]:
    """Find deliveries with a count that no delivery of the group has. The operation is the delivery."""
    acquisitions, groups = evidence.history.acquisitions, evidence.history.share_groups
    is_acquired = (acquisitions.outcome == Outcome.OK) & (acquisitions.begin < acquisitions.end)
    wrong = is_acquired & (acquisitions.delivery_count < 1)
    for group, limit in zip(groups.group.tolist(), groups.delivery_limit.tolist(), strict=True):
        wrong |= is_acquired & (acquisitions.group == group) & (acquisitions.delivery_count > limit)
    sentence = "A share group delivered a record with a count below 1 or above its limit"
    rows: Rows = np.flatnonzero(wrong)
    yield from accuse("wrong-delivery-count", sentence, rows, lambda row: (acquisitions.operation(row),))


def counts_after_expiry(evidence: Evidence) -> Iterator[Anomaly]:
    """Find deliveries after a lock was over, in one leader epoch, whose count does not go up. Operations are both."""
    acquisitions, shares = evidence.history.acquisitions, evidence.shares
    earlier, later = shares.successions
    row, next_row = shares.deliveries.row[earlier], shares.deliveries.row[later]
    stays = np.flatnonzero(acquisitions.delivery_count[next_row] <= acquisitions.delivery_count[row])
    earlier, row, next_row = earlier[stays], row[stays], next_row[stays]
    over_ns = shares.lock_over_ns(earlier)
    is_wrong = (acquisitions.invoked_ns[next_row] > over_ns) & (shares.alive_ns[row] > over_ns)
    is_wrong &= shares.has_one_leader(row, next_row)
    sentence = "A record was delivered after a lock was over, and its delivery count did not go up"
    yield from accuse_pairs("wrong-delivery-count", sentence, acquisitions, row[is_wrong], next_row[is_wrong])


def counts_after_release(evidence: Evidence) -> Iterator[Anomaly]:
    """Find deliveries after a release was answered whose count is not above the released one. Operations are both."""
    acquisitions, reported, shares = evidence.history.acquisitions, evidence.history.acknowledgements, evidence.shares
    is_release = (reported.type == AckType.RELEASE) & (reported.outcome == Outcome.OK)
    rows, records = shares.acknowledged.row, shares.acknowledged.record
    released = zip(rows[is_release[rows]].tolist(), records[is_release[rows]].tolist(), strict=True)
    delivered, record_of = shares.deliveries
    pairs: list[tuple[int, int]] = []
    for release, record in released:
        first, after = np.searchsorted(record_of, record, "left"), np.searchsorted(record_of, record, "right")
        deliveries = delivered[first:after]
        is_own = acquisitions.session[deliveries] == reported.session[release]
        own = deliveries[is_own & (acquisitions.at_ns[deliveries] <= reported.invoked_ns[release])]
        if len(own):
            is_later = acquisitions.invoked_ns[deliveries] > reported.ended_ns[release]
            stays = acquisitions.delivery_count[deliveries] <= acquisitions.delivery_count[own[-1]]
            pairs += ((int(own[-1]), int(row)) for row in deliveries[is_later & stays])
    earlier, later = (np.array(column, np.intp) for column in (zip(*pairs, strict=True) if pairs else ((), ())))
    sentence = "A record was delivered after it was released, and its delivery count did not go up"
    yield from accuse_pairs("wrong-delivery-count", sentence, acquisitions, earlier, later)
