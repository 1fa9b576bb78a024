"""Clusters of leaders and followers: acknowledged records survive kills, network partitions and lost disks."""

import asyncio

import pytest

from cordwood.chaos.sim.replica_scenario import run_replica_scenario
from cordwood.chaos.sim.replicas import TOPIC, TOPIC_ID, ReplicaCluster, run_scenario
from cordwood.chaos.sim.strict import strictly
from cordwood.cluster.metadata.commands import AlterConfigs, BrokerId, ConfigChange, ReassignPartition, ResourceType


def test_an_acknowledged_record_is_on_every_in_sync_replica() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("a")
        for broker in cluster.ids:
            assert cluster.replica(broker).log.flushed_end == 1
            assert cluster.values(broker) == ["a"]

    run_scenario(scenario)


def test_an_idle_follower_learns_the_watermark() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("a")
        await cluster.until(lambda: all(cluster.replica(one).high_watermark == 1 for one in cluster.ids), "all know", 1)

    run_scenario(scenario)


async def deposed(cluster: ReplicaCluster) -> int:
    """Cut off the leader after it committed "a" and appended "lost". Return its id once another broker leads."""
    await cluster.produce("a")
    old = cluster.leader()
    cluster.cut_off(old)
    await cluster.append_unacknowledged(old, "lost")
    await cluster.until(lambda: cluster.leader() != old, "another leads")
    return old


def test_a_deposed_leader_gives_up_what_was_never_committed() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        old = await deposed(cluster)
        await cluster.produce("b")
        assert cluster.values(old)[:2] == ["a", "lost"]
        await cluster.settled()
        assert {tuple(cluster.values(broker)) for broker in cluster.ids} == {("a", "b")}

    run_scenario(scenario)


def test_a_log_is_not_cut_while_its_checkpoint_is_being_written() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        old = await deposed(cluster)
        cluster.replica(old).is_checkpoint_locked = True
        cluster.heal()
        await asyncio.sleep(2)
        assert cluster.values(old) == ["a", "lost"]
        cluster.replica(old).is_checkpoint_locked = False
        await cluster.settled()
        assert cluster.values(old) == ["a"]

    run_scenario(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_the_flush_policy_may_change_while_records_come(seed: int) -> None:
    """Records that were kept in memory under `flush.policy=os` still count, on the leader and on its followers."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("first")
        before: str | None = None
        for number in range(20):
            policy = ("os", "group")[number % 2]
            change = ConfigChange("flush.policy", before, policy)
            cluster.metadata.commit(AlterConfigs(ResourceType.TOPIC, TOPIC, (change,)))
            before = policy
            for record in range(20):
                await cluster.append_unacknowledged(cluster.leader(), f"{number}-{record}")
                await asyncio.sleep(0.002)
        await cluster.produce("last")
        await cluster.settled()
        assert cluster.leader() == 1, "no broker fenced the leader"
        assert len(cluster.values(cluster.leader())) == 402

    run_scenario(lambda cluster: strictly(scenario(cluster)), seed)


def test_a_leader_that_is_cut_off_acknowledges_nothing() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("a")
        old = cluster.leader()
        cluster.cut_off(old)
        watermark = cluster.replica(old).high_watermark
        await cluster.append_unacknowledged(old, "lost")
        await asyncio.sleep(20)
        assert cluster.replica(old).high_watermark == watermark

    run_scenario(scenario)


def test_with_too_few_replicas_nothing_is_committed_and_nothing_is_lost() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("a")
        first, second, third = cluster.leader(), *(set(cluster.ids) - {cluster.leader()})
        await cluster.kill(second)
        await cluster.kill(third)
        await cluster.until(lambda: cluster.isr() == {first}, "the others are out")
        await cluster.append_unacknowledged(first, "waits")
        await asyncio.sleep(5)
        assert cluster.replica(first).high_watermark == 1
        # The two that left the ISR have all committed records, and may lead once the last member is dead (KIP-966).
        await cluster.kill(first)
        cluster.start(second)
        cluster.start(third)
        await cluster.produce("b")
        await cluster.settled()
        assert cluster.values(first) == ["a", "b"]

    run_scenario(scenario)


def test_a_wiped_broker_is_in_no_isr_until_it_has_everything_again() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        for number in range(50):
            await cluster.produce(str(number))
        leader = cluster.leader()
        await cluster.wipe(leader)
        cluster.start(leader)
        assert leader not in cluster.isr()
        await cluster.settled()
        assert cluster.values(leader) == [str(number) for number in range(50)]

    run_scenario(scenario)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("records", [0, 1])
def test_an_idle_partition_is_moved(records: int, seed: int) -> None:
    """A follower may learn of its role before its leader does, and has no change of its flushed end to report later."""

    async def scenario(cluster: ReplicaCluster) -> None:
        for number in range(records):
            await cluster.produce(str(number))
        cluster.metadata.lag_max_s = 1.0
        target = tuple(map(BrokerId, (4, 5, 1)))
        cluster.metadata.commit(ReassignPartition(TOPIC_ID, 0, target))
        await cluster.until(lambda: cluster.image().replicas == target, "the partition has moved")
        assert cluster.leader() in target

    run_scenario(scenario, seed, brokers=5)


def test_all_lose_power_at_once() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        for number in range(30):
            await cluster.produce(str(number))
        for broker in cluster.ids:
            await cluster.power_cut(broker)
        await cluster.settled()
        assert cluster.values(cluster.leader()) == [str(number) for number in range(30)]

    run_scenario(scenario)


def test_a_silent_follower_leaves_the_isr_and_returns() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.produce("a")
        leader = cluster.leader()
        follower = next(broker for broker in cluster.ids if broker != leader)
        # The follower's reports to the leader are lost. Its heartbeats still reach the controller.
        cluster.cut(follower, leader)
        sending = asyncio.ensure_future(cluster.produce("b"))
        await cluster.until(lambda: follower not in cluster.isr(), "it has left")
        await sending
        await cluster.settled()

    run_scenario(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_others_lead_a_partition_that_has_failed_and_nothing_else(seed: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        for partition in range(3):
            await cluster.produce("a", partition)
        leader = cluster.leader()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        cluster.replica(leader).fail(AssertionError("an invariant"))
        await cluster.until(lambda: cluster.leader() != leader, "another leads", 5)
        assert leader not in cluster.isr()
        for partition in range(3):
            await cluster.produce("b", partition)
        assert leader in [cluster.leader(other) for other in (1, 2)] or cluster.isr(1) == cluster.isr(2) == {1, 2, 3}
        await cluster.kill(leader)
        await cluster.settled()
        assert [cluster.values(leader, partition) for partition in range(3)] == [["a", "b"]] * 3

    run_scenario(scenario, seed, partitions=3)


@pytest.mark.parametrize("seed", [*range(15), 21, 267])
def test_nothing_acknowledged_is_lost_whatever_happens(seed: int) -> None:
    """Seed 3 has a follower that refuses a batch: it must not append the batches after that one.

    Seed 21 has an index that is damaged with its segment, seed 267 damage on a broker that is alone until the end.
    """
    run_replica_scenario(seed)
