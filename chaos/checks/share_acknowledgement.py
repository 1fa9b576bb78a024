"""Acknowledged records of a share group, and what must not happen to them.

- acknowledged-redelivery: a record is delivered again after its acceptance or rejection was answered.
- doubled-acknowledgement: two acknowledgements that finish one record both succeed.

The classes belong to `duplicated` of Jepsen's total-queue checker, an element that is dequeued more than once. A share
group delivers at least once, so only a record that was acknowledged counts. Adya has no such classes: his describe the
isolation of transactions.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse, accuse_pairs
from cordwood.chaos.checks.evidence import Evidence


def acknowledged_redeliveries(evidence: Evidence) -> Iterator[Anomaly]:
    """Find deliveries by fetches that were sent after the record was finished. The operations are both."""
    acquisitions, reported = evidence.history.acquisitions, evidence.history.acknowledgements
    delivered, finished = evidence.shares.deliveries, evidence.shares.finished
    place = np.searchsorted(finished.record, delivered.record, "left")
    is_finished = place < np.searchsorted(finished.record, delivered.record, "right")
    again = np.flatnonzero(is_finished)
    first = finished.row[place[again]]
    is_later = acquisitions.invoked_ns[delivered.row[again]] > reported.ended_ns[first]
    again, first = again[is_later], first[is_later]

    def proof(case: int) -> Proof:
        delivery = acquisitions.operation(int(delivered.row[again[case]]))
        return reported.operation(int(first[case])), delivery

    sentence = "A share group delivered a record again after it was acknowledged"
    yield from accuse("acknowledged-redelivery", sentence, np.arange(len(again)), proof)


def doubled_acknowledgements(evidence: Evidence) -> Iterator[Anomaly]:
    """Find records that were accepted or rejected twice with success. The operations are both acknowledgements.

    An acknowledgement of a record below the start offset succeeds, and changes nothing. So the start offset has to be
    at or below the record, as a later delivery of it or of an earlier record shows.
    """
    finished, reported = evidence.shares.finished, evidence.history.acknowledgements
    again = np.flatnonzero(finished.record[1:] == finished.record[:-1])
    earlier, later, record = finished.row[again], finished.row[again + 1], finished.record[again]
    counts = evidence.shares.delivered_after(record, reported.ended_ns[later])
    yield from accuse_pairs(
        "doubled-acknowledgement",
        "Two acknowledgements of one record succeeded",
        reported,
        earlier[counts],
        later[counts],
    )
