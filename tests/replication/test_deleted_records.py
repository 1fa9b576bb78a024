"""DeleteRecords: deleted records stay deleted on every in-sync replica, over restarts, power cuts and failovers."""

import asyncio

import pytest
from peer_fixture import FOLLOWER, LeaderFixture
from replica_fixture import NOW_MS
from replica_fixture import TOPIC_ID as TOPIC_OF_ONE
from virtual_time import run

from cordwood.chaos.sim.replicas import ReplicaCluster, run_scenario
from cordwood.chaos.sim.strict import strictly
from cordwood.chaos.sim.values import batch_of
from cordwood.replication import frames
from cordwood.replication.frames import FollowRequest, PushKind, PushRow, Start
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.storage.records import Record, encode

RECORDS, BEFORE = 10, 6
LEFT = [str(number) for number in range(BEFORE, RECORDS)]


async def filled(cluster: ReplicaCluster) -> None:
    for number in range(RECORDS):
        await cluster.produce(str(number))
    await cluster.settled()


async def delete(cluster: ReplicaCluster, before: int = BEFORE) -> None:
    leader = cluster.replica(cluster.leader()).leader
    leader.delete_records(before)
    await leader.records_deleted(before)


def batch_of_many(first: int) -> bytes:
    return encode([Record(at, NOW_MS, b"k", str(first + at).encode()) for at in range(RECORDS)])


@pytest.mark.parametrize("seed", range(8))
def test_no_failover_brings_them_back(seed: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        old = cluster.leader()
        await delete(cluster)
        await cluster.power_cut(old)
        await cluster.until(lambda: cluster.leader() not in (old, -1), "another leads")
        new = cluster.leader()
        assert cluster.values(new) == LEFT
        await cluster.kill(new)
        await cluster.settled()
        assert {tuple(cluster.values(broker)) for broker in cluster.ids} == {tuple(LEFT)}

    run_scenario(lambda cluster: strictly(scenario(cluster)), seed)


@pytest.mark.parametrize("seed", range(8))
def test_no_power_cut_of_all_brings_them_back(seed: int) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        await delete(cluster)
        for broker in cluster.ids:
            await cluster.power_cut(broker)
        for broker in cluster.ids:
            cluster.start(broker)
            assert cluster.values(broker) == LEFT
        await cluster.settled()

    run_scenario(lambda cluster: strictly(scenario(cluster)), seed)


def test_a_follower_that_has_not_heard_of_it_is_waited_for_until_it_is_out_of_the_isr() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        leader = cluster.leader()
        deaf = next(broker for broker in cluster.ids if broker != leader)
        cluster.cut(leader, deaf)
        # Without this record the follower lacks nothing, and stays in the ISR.
        await cluster.append_unacknowledged(leader, "it lacks this")
        replica = cluster.replica(leader)
        replica.leader.delete_records(BEFORE)
        waiting = asyncio.ensure_future(replica.leader.records_deleted(BEFORE))
        await asyncio.sleep(1)
        assert not waiting.done()
        await cluster.until(lambda: deaf not in cluster.isr(), "it has left")
        await waiting
        await cluster.settled()
        assert cluster.values(deaf) == [*LEFT, "it lacks this"]

    run_scenario(lambda cluster: strictly(scenario(cluster)))


def test_who_waits_is_refused_when_another_leads() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await filled(cluster)
        leader = cluster.leader()
        cluster.cut_off(leader)
        replica = cluster.replica(leader)
        replica.leader.delete_records(BEFORE)
        waiting = asyncio.ensure_future(replica.leader.records_deleted(BEFORE))
        await cluster.until(lambda: cluster.leader() != leader, "another leads")
        cluster.heal()
        with pytest.raises(PartitionRefused) as refused:
            await waiting
        assert refused.value.reason is Refusal.NOT_LEADER
        await cluster.settled()

    run_scenario(lambda cluster: strictly(scenario(cluster)))


def test_no_follower_joins_the_isr_that_would_restore_them() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        partition = broker.lead(0, in_sync=False)
        for value in "abc":
            partition.append(batch_of(value), NOW_MS)
        await broker.turn()
        broker.syncer.let_go()
        partition.leader.delete_records(2)
        broker.send(frames.encode_follow([FollowRequest(0, TOPIC_OF_ONE, 0, 1, 3, 1, 3, 0)]))
        assert partition.leader.propose_isr(lambda _: True) is None
        broker.send(frames.encode_starts([Start(0, 2)]))
        assert partition.leader.propose_isr(lambda _: True) == {1, FOLLOWER}

    run(scenario())


@pytest.mark.parametrize("before", [3, RECORDS + BEFORE, 2 * RECORDS + 1])
@pytest.mark.parametrize("has", ["nothing", "the batches before", "all"])
def test_a_follower_begins_with_the_whole_batch_in_which_the_log_starts(before: int, has: str) -> None:
    batches = 3

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.settled()
        leader = cluster.leader()
        deaf = next(broker for broker in cluster.ids if broker != leader)
        for number in range(batches):
            if has == "the batches before" and number == before // RECORDS:
                await cluster.until(
                    lambda: cluster.replica(deaf).log.log_end == before // RECORDS * RECORDS, "it has it"
                )
                await cluster.kill(deaf)
            cluster.replica(leader).append(batch_of_many(number * RECORDS), NOW_MS)
        if has == "nothing":
            await cluster.wipe(deaf)
        await cluster.until(lambda: has == "all" or deaf not in cluster.isr(), "it has left")
        await cluster.until(lambda: cluster.replica(leader).high_watermark == batches * RECORDS, "all is committed")
        await delete(cluster, before)
        await cluster.settled()
        log = cluster.replica(deaf).log
        assert (log.log_start, log.log_end) == (before, batches * RECORDS)
        assert cluster.values(deaf) == [str(number) for number in range(before, batches * RECORDS)]

    run_scenario(lambda cluster: strictly(scenario(cluster)))


def test_a_follower_whose_log_begins_within_a_batch_begins_anew_with_all_of_it() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        partition = broker.lead(0, in_sync=False)
        partition.append(batch_of_many(0), NOW_MS)
        await broker.turn()
        broker.syncer.let_go()
        partition.leader.delete_records(BEFORE)
        broker.send(frames.encode_follow([FollowRequest(0, TOPIC_OF_ONE, 0, 1, BEFORE, -1, BEFORE, BEFORE)]))
        await broker.turn()
        assert broker.rows() == [PushRow(0, PushKind.DIFFERS, -1, 0)]

    run(scenario())
