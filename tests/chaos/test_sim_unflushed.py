"""`flush.policy=os`: records acknowledged from memory survive a power cut of some brokers, but not of all."""

import asyncio

import pytest

from cordwood.chaos.sim.replicas import SESSION_S, ReplicaCluster, run_scenario

LONG_S = 3 * SESSION_S


async def with_a_record_on_two(cluster: ReplicaCluster) -> tuple[int, int, int]:
    """Commit a record while the third broker is down. Return the leader, the follower and the third broker."""
    await cluster.produce("a")
    leader = cluster.leader()
    follower, absent = sorted(set(cluster.ids) - {leader})
    await cluster.kill(absent)
    await cluster.until(lambda: cluster.isr() == {leader, follower}, "the third is missed")
    await cluster.produce("b")
    return leader, follower, absent


def test_a_replica_back_from_a_power_cut_does_not_lead_before_one_that_has_the_records() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        leader, follower, _ = await with_a_record_on_two(cluster)
        await cluster.power_cut(follower, keep=0)
        await cluster.until(lambda: cluster.isr() == {leader}, "the follower is missed")
        await cluster.kill(leader)
        await asyncio.sleep(LONG_S)
        cluster.start(follower)
        await asyncio.sleep(LONG_S)
        assert cluster.leader() == -1, "unavailable rather than wrong"
        cluster.start(leader)
        await cluster.settled()
        assert cluster.values(leader) == cluster.values(follower) == ["a", "b"]

    run_scenario(scenario, policy="os")


def test_the_last_leader_back_from_a_power_cut_waits_for_one_that_has_the_records() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        leader, follower, _ = await with_a_record_on_two(cluster)
        await cluster.kill(follower)
        await cluster.until(lambda: cluster.isr() == {leader}, "the follower is missed")
        await cluster.power_cut(leader, keep=0)
        await asyncio.sleep(LONG_S)
        cluster.start(leader)
        await asyncio.sleep(LONG_S)
        assert cluster.leader() == -1, "unavailable rather than wrong"
        cluster.start(follower)
        await cluster.settled()
        assert cluster.values(leader) == cluster.values(follower) == ["a", "b"]

    run_scenario(scenario, policy="os")


def test_a_killed_replica_leads_as_soon_as_it_is_back() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        leader, follower, _ = await with_a_record_on_two(cluster)
        await cluster.kill(follower)
        await cluster.until(lambda: cluster.isr() == {leader}, "the follower is missed")
        await cluster.kill(leader)
        await asyncio.sleep(LONG_S)
        cluster.start(follower)
        await cluster.until(lambda: cluster.leader() == follower, "it leads: its page cache was kept")
        await cluster.settled()

    run_scenario(scenario, policy="os")


@pytest.mark.parametrize("policy", ["os", "group"])
@pytest.mark.parametrize("seed", range(3))
def test_after_a_power_cut_of_all_the_cluster_goes_on(policy: str, seed: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("a")
        for broker in cluster.ids:
            await cluster.power_cut(broker, keep=1)
        await asyncio.sleep(LONG_S)
        await cluster.settled()
        await cluster.produce("b")

    run_scenario(scenario, seed, policy=policy)
