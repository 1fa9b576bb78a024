"""The running controller: failover after a broker's death, including the death of the active controller."""

import asyncio

from members_fixture import SESSION_S, MembersFixture
from virtual_time import run

from cordwood.cluster.broker.controller_runner import PROBE_INTERVAL_S, REFUSED_S
from cordwood.cluster.metadata.commands import FenceBroker
from cordwood.cluster.metadata.image import NO_LEADER

MOMENT_S = 0.35
"""The time for a heartbeat in flight, one check by the controller, and a proposal."""


def test_another_broker_leads_a_session_after_the_leader_died() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2, 3)
        cluster.create(2, 3)
        await cluster.members[2].end()
        took_s = await cluster.until(lambda: cluster.partition.leader == 3, 5)
        assert SESSION_S - 0.2 <= took_s <= SESSION_S + MOMENT_S
        assert cluster.alive() == {1, 3}
        await cluster.close()

    run(story())


def test_a_new_controller_does_not_wait_for_another_session() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2, 3)
        cluster.create(1, 3)
        await cluster.members[1].end()
        await asyncio.sleep(SESSION_S)
        cluster.log.elect(2)
        assert await cluster.until(lambda: cluster.partition.leader == 3, 5) < 0.1
        await cluster.close()

    run(story())


def test_a_broker_that_comes_back_is_unfenced_without_delay() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2)
        cluster.create(2)
        await cluster.members[2].end()
        await cluster.until(lambda: cluster.partition.leader == NO_LEADER, 5)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await cluster.run(2).join()
        assert loop.time() - begun < 0.1
        assert cluster.partition.leader == 2
        await cluster.close()

    run(story())


def test_a_silent_broker_is_fenced_once() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2, 3)
        await cluster.members[2].end()
        await asyncio.sleep(10 * SESSION_S)
        assert sum(isinstance(command, FenceBroker) for command in cluster.log.proposed) == 1
        await cluster.close()

    run(story())


def test_only_the_active_controller_proposes() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2, 3)
        cluster.log.elect(None)
        await cluster.members[2].end()
        before = len(cluster.log.proposed)
        await asyncio.sleep(10 * SESSION_S)
        assert len(cluster.log.proposed) == before
        cluster.log.elect(3)
        await cluster.until(lambda: cluster.alive() == {1, 3}, 5)
        await cluster.close()

    run(story())


def test_a_controller_that_reaches_no_broker_goes_on_when_it_does_again() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2, 3)
        cluster.members[1].quorum.is_cut_off = True
        await asyncio.sleep(5 * SESSION_S)
        assert cluster.alive() == {1, 2, 3}, "nothing that it proposes is applied"
        cluster.members[1].quorum.is_cut_off = False
        await cluster.members[2].end()
        await cluster.until(lambda: cluster.alive() == {1, 3}, 5)
        await cluster.close()

    run(story())


KAFKAS = {"broker_session_timeout_ms": 9000, "broker_heartbeat_interval_ms": 2000}


def test_a_reset_connection_fences_no_broker() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2, 3, **KAFKAS)
        for _ in range(5):
            cluster.log.hang_up(2)
            await asyncio.sleep(1.9)
        assert not any(isinstance(command, FenceBroker) for command in cluster.log.proposed)
        await cluster.close()

    run(story())


def test_a_killed_broker_is_fenced_long_before_its_session_is_over() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2, 3, **KAFKAS)
        cluster.create(2, 3)
        await cluster.members[2].end()
        cluster.refusing.add(2)
        cluster.log.hang_up(2)
        assert await cluster.until(lambda: cluster.partition.leader == 3, 5) < REFUSED_S + MOMENT_S
        await cluster.close()

    run(story())


def test_a_killed_broker_whose_listener_closed_last_is_fenced_as_soon() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2, 3, **KAFKAS)
        cluster.create(2, 3)
        await cluster.members[2].end()
        cluster.log.hang_up(2)
        await asyncio.sleep(PROBE_INTERVAL_S / 2)
        cluster.refusing.add(2)
        took_s = await cluster.until(lambda: cluster.partition.leader == 3, 5)
        assert took_s < 2 * PROBE_INTERVAL_S + REFUSED_S + MOMENT_S
        await cluster.close()

    run(story())


def test_a_broker_that_hung_up_and_whose_host_is_silent_has_its_session() -> None:
    async def story() -> None:
        cluster = await MembersFixture().start(1, 2, 3, **KAFKAS)
        cluster.create(2, 3)
        await cluster.members[2].end()
        cluster.log.hang_up(2)
        assert await cluster.until(lambda: cluster.partition.leader == 3, 12) >= 9 - 2 - MOMENT_S
        await cluster.close()

    run(story())
