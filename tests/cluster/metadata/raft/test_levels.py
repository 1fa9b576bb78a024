"""Voters and observers of other releases: admitted by the finalized metadata.version, and refused with the reason."""

from cordwood.chaos.sim.quorum import SimulatedQuorum, run
from cordwood.cluster.metadata.features import METADATA_VERSION, OF_FIRST_RELEASE, UpdateFeatures

SEVEN = 7
FINALIZED = UpdateFeatures(((METADATA_VERSION, 2),), ())
"""No broker is registered in these scenarios."""


async def of_level_1() -> SimulatedQuorum:
    """Return voters 1 and 2 of this release, voter 3 and observer 7 of release 0.1, in a cluster of level 1."""
    quorum = SimulatedQuorum().start(1, 2, founding_level=1)
    quorum.start(3, founding_level=1, levels=OF_FIRST_RELEASE)
    quorum.observe(SEVEN, levels=OF_FIRST_RELEASE)
    await quorum.formed()
    return quorum


def test_both_releases_form_a_quorum_until_the_level_is_finalized() -> None:
    async def story() -> None:
        quorum = await of_level_1()
        await quorum.put(3, "a")
        await quorum.put(SEVEN, "b")
        await quorum.propose(1, FINALIZED)
        await quorum.until(lambda: {broker for broker, _ in quorum.refusals} == {3, SEVEN})
        for broker, reason in quorum.refusals:
            assert reason.startswith(f"broker {broker} supports metadata.version 1, and the cluster has finalized 2: ")
        quorum.kill(3, SEVEN)
        quorum.start(3)
        quorum.observe(SEVEN)
        await quorum.formed()
        assert quorum.keys(3) == quorum.keys(SEVEN) == ["a", "b"]

    run(story())


def test_an_old_leader_steps_down_when_the_others_leave_it() -> None:
    async def story() -> None:
        quorum = await of_level_1()
        while await quorum.leader() != 3:
            quorum.cut_off(await quorum.leader())
            await quorum.wait(5)
            quorum.heal()
            await quorum.wait(1)
        await quorum.propose(1, FINALIZED)
        await quorum.until(lambda: not quorum.quorums[3].is_leader)
        assert await quorum.leader(1, 2) in (1, 2)
        await quorum.put(1, "a")

    run(story())
