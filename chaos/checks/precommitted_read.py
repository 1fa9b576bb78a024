"""precommitted-read: the input of a transaction has a record that the transaction itself has sent.

The class is `precommitted-read` of Jepsen's kafka workload. A consumer with read_committed cannot receive the record
before the transaction has ended.
"""

from collections.abc import Iterator

import numpy as np

from cordwood.chaos.checks.anomaly import Anomaly, Proof, accuse
from cordwood.chaos.checks.evidence import Evidence


def precommitted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Find sends in the input of their own transaction. The operations of a case are the input and the send."""
    sends, offsets, landed = evidence.history.sends, evidence.history.transaction_offsets, evidence.landed
    in_transaction = np.flatnonzero(sends.transaction >= 0)
    input_of = np.full(len(evidence.history.transactions), -1, np.int64)
    input_of[offsets.transaction] = np.arange(len(offsets))
    with_input = in_transaction[input_of[sends.transaction[in_transaction]] >= 0]
    row = input_of[sends.transaction[with_input]]
    is_own = (sends.partition[with_input] == offsets.partition[row]) & (landed[with_input] >= offsets.begin[row])
    is_own &= landed[with_input] < offsets.end[row]

    def proof(send: int) -> Proof:
        return offsets.operation(int(input_of[sends.transaction[send]])), sends.operation(send)

    yield from accuse("precommitted-read", "A transaction has consumed its own record", with_input[is_own], proof)
