"""The table of states: who may follow whom, and nothing else."""

from cordwood.cluster.transactions.states import PREVIOUS, TransactionState, may_follow

S = TransactionState
TABLE = """
Empty             <- Empty CompleteCommit CompleteAbort
Ongoing           <- Ongoing Empty CompleteCommit CompleteAbort
PrepareCommit     <- Ongoing
PrepareAbort      <- Ongoing PrepareEpochFence Empty CompleteCommit CompleteAbort
CompleteCommit    <- PrepareCommit
CompleteAbort     <- PrepareAbort
Dead              <- Empty CompleteCommit CompleteAbort
PrepareEpochFence <- Ongoing
"""


def test_each_state_has_its_previous_states() -> None:
    rows = (line.split(" <- ") for line in TABLE.strip().splitlines())
    wanted = {S(state.strip()): {S(name) for name in names.split()} for state, names in rows}
    assert dict(PREVIOUS) == wanted
    for new in S:
        assert {old for old in S if may_follow(old, new)} == wanted[new]
