"""Raft invariants in the simulator: each detects the violation in the voters' logs."""

from cordwood.chaos.sim.quorum import SimulatedQuorum, formed, run
from cordwood.chaos.sim.raft_rules import counted_in_vain, first_truncation, rows_of, truncated_without_reason
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft.messages import Row


def rows(first: int, *terms: int) -> tuple[Row, ...]:
    """Return entries of these terms, from index `first` on, each a distinct object."""
    return tuple((bytes([term]), index, term) for index, term in enumerate(terms, first))


BEFORE = rows(5, 1, 1, 2)


def test_a_log_that_only_grows_or_loses_its_front_was_not_cut() -> None:
    assert first_truncation(BEFORE, BEFORE + rows(8, 2)) is None
    assert first_truncation(BEFORE, BEFORE[1:]) is None
    assert first_truncation(BEFORE, rows(9, 2)) is None
    assert first_truncation((), BEFORE) is None


def test_an_entry_that_is_cut_and_comes_back_is_noticed() -> None:
    cut = first_truncation(BEFORE, BEFORE[:1] + rows(6, 1, 3))
    assert cut is not None
    assert truncated_without_reason(cut) == "entry 6 of term 1 was cut, and is back"


def test_an_entry_that_another_takes_the_place_of_was_cut_for_a_reason() -> None:
    for now in (BEFORE[:2] + rows(7, 3), BEFORE[:2] + rows(7, 3, 3), BEFORE[:2]):
        cut = first_truncation(BEFORE, now)
        assert cut is not None
        assert cut[0] is BEFORE[2]
        assert truncated_without_reason(cut) == ""


def test_what_a_leader_counts_and_its_follower_lacks_is_noticed() -> None:
    async def scenario() -> None:
        quorum: SimulatedQuorum = await formed()
        await quorum.put(1, "a")
        await quorum.wait(1)
        leader, (follower, _) = await quorum.leader(), await quorum.followers()
        leads, follows = quorum.quorums[leader]._node, quorum.quorums[follower]._node
        assert list(counted_in_vain(leads, BrokerId(follower), follows)) == []
        assert rows_of(leads.log) == rows_of(follows.log)
        progress = leads.progress_of(BrokerId(follower))
        assert progress is not None
        progress.stored += 1
        assert "does not have it on disk" in next(counted_in_vain(leads, BrokerId(follower), follows))
        progress.stored -= 1
        follows._agreed += 1
        follows.log._flushed_end += 1
        assert "which is not its leader's" in next(counted_in_vain(leads, BrokerId(follower), follows))

    run(scenario())
