"""doubled-transaction: two committed transactions of one group have consumed the same records.

Jepsen's class `duplicate` is one value at two offsets; here it is one input with two results, which exactly-once
processing (KIP-447) excludes.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, accuse_pairs
from cordwood.chaos.checks.columns import consecutive
from cordwood.chaos.checks.evidence import Evidence


def doubled_transactions(evidence: Evidence) -> Iterator[Anomaly]:
    """Find committed inputs that overlap. The operations of a case are the two offsets that were sent."""
    offsets = evidence.history.transaction_offsets
    committed = np.flatnonzero(evidence.transactions.is_committed[offsets.transaction])
    committed = committed[np.lexsort((offsets.end[committed], offsets.begin[committed]))]
    earlier, later = consecutive(offsets.group[committed], offsets.partition[committed])
    earlier, later = committed[earlier], committed[later]
    overlaps = offsets.begin[later] < offsets.end[earlier]
    yield from accuse_pairs(
        "doubled-transaction",
        "Two committed transactions of a group have consumed the same records",
        offsets,
        earlier[overlaps],
        later[overlaps],
    )
