"""A quorum of several voters as its brokers see it: one leader, durable commands, recovery from network partitions."""

import asyncio
from uuid import UUID

import pytest

from cordwood.chaos.sim.network import current_process
from cordwood.chaos.sim.quorum import DIRECTORY, SimulatedQuorum, formed, host, run, setting
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import Heartbeat, QuorumFailed, QuorumUnavailable
from cordwood.cluster.metadata.raft import machine


def test_a_new_cluster_finds_together_and_gets_one_id() -> None:
    async def story() -> None:
        quorum = await formed()
        ids = {voter.image.cluster_id for voter in quorum.quorums.values()}
        assert len(ids) == 1
        assert len(ids.pop()) == 22

    run(story())


def test_no_voter_founds_a_cluster_before_it_has_heard_them_all() -> None:
    async def story() -> None:
        quorum = SimulatedQuorum().start(1, 2)
        await quorum.wait(20)
        assert not any(voter.is_leader for voter in quorum.quorums.values())
        await quorum.start(3).formed()

    run(story())


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_a_proposer_has_its_own_change_in_its_own_image(voters: int) -> None:
    async def story() -> None:
        quorum = await formed(voters=voters)
        for broker in quorum.quorums:
            image = await quorum.put(broker, f"of {broker}")
            assert f"of {broker}" in image.configs_of_all_brokers
            assert quorum.keys(broker)[-1] == f"of {broker}"

    run(story())


def test_a_refusal_reaches_its_proposer_and_changes_nothing() -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.put(1, "a")
        for broker in quorum.quorums:
            with pytest.raises(CommandRefused, match="changed by another request"):
                await quorum._in_process(broker, quorum.quorums[broker].propose(setting("a", "2")))
        await quorum.put(2, "b")
        await quorum.formed()
        images = [voter.image for voter in quorum.quorums.values()]
        assert images[0].configs_of_all_brokers == {"a": "1", "b": "1"}
        assert images[0].broker_configs == images[1].broker_configs == images[2].broker_configs

    run(story())


def test_listeners_are_called_before_the_proposer_goes_on() -> None:
    async def story() -> None:
        quorum = await formed()
        reported: list[tuple[int, int]] = []
        quorum.quorums[1].subscribe(lambda old, new: reported.append((old.index, new.index)))
        image = await quorum.put(1, "a")
        assert reported
        assert reported[-1][1] == image.index

    run(story())


def test_what_was_answered_survives_a_power_cut_of_all_voters() -> None:
    async def story() -> None:
        quorum = await formed()
        await quorum.put(1, "a", "b")
        await quorum.put(3, "c")
        quorum.power_cut(1, 2, 3, keep=0)
        await quorum.start().formed()
        assert quorum.keys(1) == quorum.keys(2) == quorum.keys(3) == ["a", "b", "c"]

    run(story())


def test_another_leads_soon_after_the_leader_died() -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        quorum.kill(leader)
        died_at_s = quorum.loop.time()
        await quorum.put(min(quorum.quorums), "a")
        assert quorum.loop.time() - died_at_s < 2.5

    run(story())


def test_a_leader_that_stops_hands_over_at_once() -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        await quorum.stop(leader)
        stopped_at_s = quorum.loop.time()
        await quorum.put(min(quorum.quorums), "a")
        assert quorum.loop.time() - stopped_at_s < 0.2

    run(story())


def test_a_voter_that_stops_in_the_midst_of_a_flush_loses_nothing_of_it() -> None:
    async def story() -> None:
        quorum = await formed()
        quorum.flush_s = (0.05, 0.1)
        leader = await quorum.leader()
        proposers = [asyncio.ensure_future(quorum.put(leader, f"key {number}")) for number in range(3)]
        await quorum.wait(0.02)
        end = quorum.quorums[leader]._log.end
        await quorum.stop(leader)
        outcomes = await asyncio.gather(*proposers, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [QuorumFailed] * 3
        quorum.disks[BrokerId(leader)].power_cut(keep=0)
        quorum.start(leader)
        assert quorum.quorums[leader]._log.end == end
        await quorum.formed()

    run(story())


def test_a_leader_that_is_cut_off_learns_it_and_what_it_proposed_is_not_known() -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        leads: list[bool] = []
        quorum.quorums[leader].on_leadership(leads.append)
        quorum.cut_off(leader)
        with pytest.raises(QuorumUnavailable):
            await quorum.put(leader, "lost")
        assert leads == [True, False]
        others = [broker for broker in quorum.quorums if broker != leader]
        await quorum.put(others[0], "kept")
        quorum.heal()
        await quorum.formed()
        assert quorum.keys(leader) == quorum.keys(others[0]) == ["kept"]

    run(story())


def test_a_cut_voter_that_comes_back_does_not_depose_the_leader() -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        term = quorum.quorums[leader].term
        follower = (await quorum.followers())[0]
        quorum.cut_off(follower)
        await quorum.wait(20)
        quorum.heal()
        await quorum.formed()
        assert quorum.quorums[leader].is_leader
        assert quorum.quorums[leader].term == term

    run(story())


def test_a_leader_that_is_heard_but_hears_no_voter_steps_down() -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        others = await quorum.followers()
        for other in others:
            quorum.network.cut_one_way(host(other), host(leader))
        await quorum.leader(*others)
        await quorum.put(others[0], "a")

    run(story())


def test_a_proposal_waits_for_a_leader() -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        quorum.kill(leader)
        await quorum.put(min(quorum.quorums), "without a leader")

    run(story())


def test_a_minority_answers_in_bounded_time_that_it_does_not_know() -> None:
    async def story() -> None:
        quorum = await formed()
        followers = await quorum.followers()
        quorum.kill(await quorum.leader(), followers[0])
        began_at_s = quorum.loop.time()
        with pytest.raises(QuorumUnavailable):
            await quorum.put(followers[1], "a")
        assert quorum.loop.time() - began_at_s == pytest.approx(machine.PROPOSAL_TIMEOUT_S, abs=0.1)

    run(story())


def test_a_failing_disk_stops_its_voter_for_good_and_no_other() -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        quorum.disks[BrokerId(leader)].faults.fail_next_sync(f"{DIRECTORY}/journal")
        with pytest.raises(QuorumFailed) as failure:
            await quorum.put(leader, "a")
        assert not isinstance(failure.value, QuorumUnavailable)
        assert [broker for broker, _ in quorum.failures] == [leader]
        quorum.kill(leader)
        await quorum.put(min(quorum.quorums), "b")

    run(story())


def test_a_follower_that_was_away_for_long_gets_an_image() -> None:
    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=2_000)
        follower = (await quorum.followers())[0]
        leader = await quorum.leader()
        quorum.kill(follower)
        await quorum.put(leader, *(f"key {number}" for number in range(200)))
        assert quorum.quorums[leader]._log.base_index > 10
        quorum.start(follower)
        await quorum.formed(follower)
        assert quorum.keys(follower) == quorum.keys(leader)
        quorum.power_cut(follower, keep=0)
        quorum.start(follower)
        await quorum.formed(follower)
        assert quorum.keys(follower) == quorum.keys(leader)

    run(story())


def test_heartbeats_reach_every_voter() -> None:
    async def story() -> None:
        quorum = await formed()
        heard: dict[int, list[Heartbeat]] = {broker: [] for broker in quorum.quorums}
        for broker, voter in quorum.quorums.items():
            voter.on_heartbeat(heard[broker].append)
        heartbeat = Heartbeat(BrokerId(2), UUID(int=1), 3, 4)
        quorum.quorums[2].send_heartbeat(heartbeat)
        await quorum.until(lambda: all(heard.values()))
        assert heard == {broker: [heartbeat] for broker in quorum.quorums}

    run(story())


def test_the_status_shows_the_leader_and_the_lags() -> None:
    async def story() -> None:
        quorum = await formed()
        leader = await quorum.leader()
        lagging = (await quorum.followers())[0]
        quorum.cut_off(lagging)
        await quorum.put(leader, "a")
        await quorum.wait(5)
        status = quorum.quorums[leader].status()
        assert status.leader_id == leader
        by_id = {voter.broker_id: voter for voter in status.voters}
        assert by_id[BrokerId(leader)].log_end == status.commit_index
        lag = by_id[BrokerId(lagging)]
        assert not lag.is_connected
        assert lag.log_end is not None
        assert lag.log_end < status.commit_index

    run(story())


def test_the_world_has_no_network_for_who_is_no_process() -> None:
    with pytest.raises(AssertionError, match="only a process"):
        current_process()


def test_an_image_is_packed_and_unpacked_beside_the_loop() -> None:
    """10,000 partitions take 50 to 150 ms each way."""

    async def story() -> None:
        quorum = await formed(snapshot_interval_bytes=2_000)
        beside: list[str] = []
        run_beside = quorum.run_beside

        def note(function: object, *arguments: object) -> object:
            beside.append(getattr(function, "__name__", ""))
            return run_beside(function, *arguments)  # type: ignore[arg-type]

        quorum.run_beside = note
        follower = (await quorum.followers())[0]
        quorum.wipe(follower)
        await quorum.put(await quorum.leader(), *(f"key {number}" for number in range(100)))
        quorum.start(follower)
        await quorum.formed()
        assert {"encode", "unpacked", "write"} <= set(beside)

    run(story())


def test_a_voter_that_is_cut_off_forgets_the_proposals_that_it_has_given_up() -> None:
    async def story() -> None:
        quorum = await formed()
        alone = next(broker for broker, voter in quorum.quorums.items() if not voter.is_leader)
        for other in quorum.quorums.keys() - {alone}:
            quorum.network.cut(host(alone), host(other))
        await quorum.wait(1)
        voter = quorum.quorums[alone]
        for _ in range(5):
            given_up = [quorum._in_process(alone, voter.propose(setting("a", "1"))) for _ in range(20)]
            outcomes = await asyncio.gather(*given_up, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {QuorumUnavailable}
        await quorum.wait(1)
        assert len(voter._forwarding) == 0

    run(story())
