"""A broker's lifecycle in the cluster: registration, heartbeats, controlled shutdown, and duplicate broker ids."""

import asyncio

import pytest
from members_fixture import Member, MembersFixture
from virtual_time import run

from cordwood.cluster.metadata.commands import AlterPartitions, BrokerId, IsrChange, RegisterBroker
from cordwood.cluster.metadata.features import METADATA_VERSION, OF_FIRST_RELEASE, SUPPORTED, UpdateFeatures
from cordwood.cluster.metadata.image import CommandRefused


def test_brokers_join_and_may_lead() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2, 3)
        assert cluster.alive() == {1, 2, 3}
        assert all(member.lifecycle.why_not_ready() is None for member in cluster.members.values())
        await cluster.close()

    run(story())


def test_a_broker_that_has_not_registered_is_not_ready() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1)
        newcomer = cluster.run(2)
        assert "not joined" in reason(newcomer)
        await newcomer.lifecycle.register((), ("disk",))
        assert "fenced" in reason(newcomer)
        await cluster.close()

    run(story())


def test_registration_waits_for_a_quorum() -> None:
    async def story() -> None:
        cluster = MembersFixture()
        joining = asyncio.ensure_future(cluster.run(1).join())
        await asyncio.sleep(30)
        assert not joining.done()
        cluster.log.elect(1)
        await joining
        assert cluster.alive() == {1}
        await cluster.close()

    run(story())


def test_a_broker_out_of_touch_with_the_controller_is_not_ready() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2)
        cluster.members[2].quorum.is_cut_off = True
        assert "lost contact with the controller" in reason(cluster.members[2])
        cluster.members[2].quorum.is_cut_off = False
        assert cluster.members[2].lifecycle.why_not_ready() is None
        cluster.log.elect(None)
        assert cluster.members[2].lifecycle.why_not_ready()
        await cluster.close()

    run(story())


def test_a_broker_stops_as_soon_as_others_lead() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2)
        cluster.create(1, 2)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await cluster.members[1].lifecycle.begin_shutdown(10)
        assert cluster.partition.leader == 2
        assert loop.time() - begun < 0.1
        await cluster.close()

    run(story())


def test_a_broker_stops_at_once_where_no_other_has_a_replica_of_what_it_leads() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1)
        cluster.create(1)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await cluster.members[1].lifecycle.begin_shutdown(10)
        assert cluster.partition.leader == 1
        assert loop.time() - begun < 0.1
        await cluster.close()

    run(story())


def test_a_broker_that_stops_waits_for_a_follower_that_catches_up() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2)
        cluster.create(1, 2)
        propose_in_sync(cluster, 1)
        stopping = asyncio.ensure_future(cluster.members[1].lifecycle.begin_shutdown(10))
        await asyncio.sleep(5)
        assert not stopping.done()
        assert "shutting down" in reason(cluster.members[1])
        propose_in_sync(cluster, 1, 2)
        await asyncio.sleep(0)
        await stopping
        assert cluster.partition.leader == 2
        await cluster.close()

    run(story())


def test_a_broker_that_stops_does_not_wait_for_ever() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2)
        cluster.create(1, 2)
        propose_in_sync(cluster, 1)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await cluster.members[1].lifecycle.begin_shutdown(3)
        assert loop.time() - begun == pytest.approx(3, abs=0.1)
        await cluster.close()

    run(story())


def test_a_registration_has_levels_from_the_second_level_on() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1)
        assert [command.levels for command in registrations(cluster)] == [OF_FIRST_RELEASE]
        finalize(cluster, 2)
        await cluster.run(1).join()
        assert [command.levels for command in registrations(cluster)] == [OF_FIRST_RELEASE, SUPPORTED]
        await cluster.close()

    run(story())


def test_a_level_that_is_finalized_during_the_registration_is_no_obstacle() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1)
        joining = asyncio.ensure_future(cluster.run(2).join())
        await asyncio.sleep(0)
        finalize(cluster, 2)
        await joining
        assert cluster.alive() == {1, 2}
        assert cluster.log.image.brokers[BrokerId(2)].levels == SUPPORTED
        await cluster.close()

    run(story())


def test_a_broker_that_is_too_old_does_not_register() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1)
        finalize(cluster, SUPPORTED.newest + 1)
        with pytest.raises(CommandRefused, match=r"This broker is too old: broker 2 supports .* 1-3, and"):
            await cluster.run(2).join()
        assert cluster.members[1].failures == []
        await cluster.close()

    run(story())


def test_two_brokers_with_one_number_are_noticed() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2)
        first = cluster.members[2]
        await cluster.run(2).join()
        assert first.failures == ["another broker has registered with node.id 2: give each broker a unique node.id."]
        assert first.lifecycle.why_not_ready()
        await asyncio.sleep(5)
        assert cluster.alive() == {1, 2}, "the newer one is the broker now"
        assert cluster.members[2].failures == []
        await cluster.close()

    run(story())


def finalize(cluster: MembersFixture, level: int) -> None:
    """Finalize a level, which all brokers support."""
    brokers = tuple((broker.id, broker.epoch) for broker in cluster.log.image.brokers.values())
    cluster.log.apply(UpdateFeatures(((METADATA_VERSION, level),), brokers))


def registrations(cluster: MembersFixture) -> list[RegisterBroker]:
    return [command for command in cluster.log.proposed if isinstance(command, RegisterBroker)]


def reason(member: Member) -> str:
    """Return the reason for which the member is not ready."""
    why_not = member.lifecycle.why_not_ready()
    assert why_not
    return why_not


def propose_in_sync(cluster: MembersFixture, *members: int) -> None:
    """Apply the leader's ISR proposal of these members."""
    partition, brokers = cluster.partition, cluster.log.image.brokers
    known = tuple((BrokerId(member), brokers[BrokerId(member)].epoch) for member in members)
    topic = next(iter(cluster.log.image.topics_by_id))
    change = IsrChange(topic, 0, partition.leader_epoch, partition.partition_epoch, known)
    leader = brokers[partition.leader]
    cluster.log.apply(AlterPartitions(leader.id, leader.epoch, (change,)))
