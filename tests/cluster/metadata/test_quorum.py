"""The quorum of one voter: acknowledged commands survive a power cut, in order, and a disk failure ends the quorum."""

import asyncio
import errno
import gc
import random
import weakref
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from quorum_fixture import COPY, DIRECTORY, ONE, QuorumFixture, finished, run, started, topic

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.metadata import snapshot as snapshots
from cordwood.cluster.metadata.commands import (
    Command,
    CreateTopic,
    DeleteTopic,
)
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.quorum import Heartbeat, QuorumFailed, QuorumUnavailable


def test_what_was_answered_survives_a_power_cut() -> None:
    async def story() -> None:
        quorum = await started()
        await quorum.create("a", "b")
        before = quorum.voter.image
        assert quorum.power_cut() == before
        assert quorum.names() == ["a", "b"]

    run(story())


def test_a_new_cluster_gets_an_id_that_it_keeps() -> None:
    async def story() -> None:
        quorum = QuorumFixture()
        cluster_id = quorum.voter.image.cluster_id
        assert len(cluster_id) == 22
        assert quorum.power_cut().cluster_id == cluster_id
        with pytest.raises(CommandRefused, match=f"id is {cluster_id}"):
            quorum.open("another")

    run(story())


def test_a_new_cluster_may_be_given_its_id() -> None:
    async def story() -> None:
        quorum = QuorumFixture()
        quorum.disk = SimulatedDisk(random.Random(2))
        assert quorum.open("ours").cluster_id == "ours"
        assert quorum.open("ours").cluster_id == "ours"

    run(story())


def test_proposals_that_meet_a_sync_under_way_share_the_next() -> None:
    async def story() -> None:
        quorum = await started()
        quorum.gate.clear()
        first = asyncio.ensure_future(quorum.create("a"))
        while quorum.syncs < 2:
            await asyncio.sleep(0)
        others = asyncio.ensure_future(quorum.create(*(f"t{at}" for at in range(100))))
        await asyncio.sleep(0)
        assert quorum.names() == []
        quorum.gate.set()
        await asyncio.gather(first, others)
        assert quorum.syncs == 3
        assert len(quorum.names()) == 101

    run(story())


def test_listeners_have_seen_a_change_before_its_proposer_goes_on() -> None:
    async def story() -> None:
        quorum = await started()
        quorum.changes.clear()
        image = (await quorum.create("a", "b"))[0]
        assert quorum.changes == [(image.index - 2, image.index)]

    run(story())


def test_a_refused_command_changes_nothing_then_and_after_a_restart() -> None:
    async def story() -> None:
        quorum = await started()
        await quorum.create("a")
        with pytest.raises(CommandRefused) as refusal:
            await quorum.voter.propose(CreateTopic(UUID(int=77), "a", ((ONE,),)))
        assert refusal.value.code is ErrorCode.topic_already_exists
        await quorum.create("b")
        before = quorum.voter.image
        assert quorum.power_cut() == before

    run(story())


def test_a_refusal_is_freed_with_its_last_reference() -> None:
    async def story() -> None:
        quorum = await started()
        await quorum.create("a")
        refusals = []
        gc.disable()
        try:
            for _ in range(2):
                try:
                    await quorum.voter.propose(CreateTopic(UUID(int=77), "a", ((ONE,),)))
                except CommandRefused as refused:
                    refusals.append(weakref.ref(refused))
            await asyncio.sleep(0)
            assert [refusal() for refusal in refusals] == [None, None]
        finally:
            gc.enable()

    run(story())


def test_one_refusal_does_not_touch_its_neighbours() -> None:
    async def story() -> None:
        quorum = await started()
        commands: list[Command] = [topic("a"), CreateTopic(UUID(int=77), "a", ((ONE,),)), topic("b")]
        outcomes = await asyncio.gather(*map(quorum.voter.propose, commands), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Image, CommandRefused, Image]
        assert quorum.names() == ["a", "b"]

    run(story())


def test_a_proposer_that_goes_away_does_not_take_its_command_along() -> None:
    async def story() -> None:
        quorum = await started()
        quorum.gate.clear()
        proposer = asyncio.ensure_future(quorum.create("a"))
        while quorum.syncs < 2:
            await asyncio.sleep(0)
        proposer.cancel()
        quorum.gate.set()
        await quorum.create("b")
        assert quorum.names() == ["a", "b"]

    run(story())


@pytest.mark.parametrize("fault", ["sync", "write"])
def test_a_failing_disk_ends_it_for_good(fault: str) -> None:
    async def story() -> None:
        quorum = await started()
        if fault == "sync":
            quorum.disk.faults.fail_next_sync(f"{DIRECTORY}/journal")
        else:
            quorum.disk.faults.fail_next_write(f"{DIRECTORY}/journal")
        outcomes = await asyncio.gather(
            quorum.voter.propose(topic("a")), quorum.voter.propose(topic("b")), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [QuorumFailed, QuorumFailed]
        assert len(quorum.failures) == 1
        with pytest.raises(QuorumFailed, match="cannot be written"):
            await quorum.create("c")
        assert quorum.names() == []

    run(story())


def test_a_snapshot_takes_the_place_of_the_journal_before_it() -> None:
    async def story() -> None:
        quorum = await started(snapshot_interval_bytes=2000)
        for at in range(60):
            await quorum.create(f"t{at}")
        for directory in (DIRECTORY, COPY):
            (snapshot,) = snapshots.names(quorum.disk, directory)
            assert quorum.disk.content(f"{directory}/{snapshot}")
            assert len(quorum.disk.content(f"{directory}/journal")) < 2200
        before = quorum.voter.image
        assert quorum.power_cut() == before
        assert len(quorum.names()) == 60

    run(story())


@pytest.mark.parametrize("seed", range(25))
def test_a_power_cut_at_any_moment_loses_nothing_that_was_answered(seed: int) -> None:
    async def story() -> None:
        quorum = await started(seed=seed, snapshot_interval_bytes=600)
        rng = random.Random(seed)
        answered: set[str] = set()
        for life in range(6):
            quorum.disk.faults.die_after(rng.randrange(40))
            for at in range(20):
                proposer = asyncio.ensure_future(quorum.create(f"{life}-{at}"))
                if not await finished(proposer):
                    proposer.cancel()
                    break
                answered.add(f"{life}-{at}")
            quorum.disk.faults.die_after(None)
            quorum.power_cut(keep=None)
            assert answered <= set(quorum.names())

    run(story())


def test_closing_finishes_what_was_proposed() -> None:
    async def story() -> None:
        quorum = await started()
        proposed = asyncio.ensure_future(quorum.voter.propose(topic("a")))
        await asyncio.sleep(0)
        await quorum.voter.close()
        await proposed
        with pytest.raises(QuorumFailed, match="closed"):
            await quorum.create("b")
        assert quorum.power_cut().topics_by_name.keys() == {"a"}

    run(story())


def test_a_thousand_topics_take_one_sync() -> None:
    async def story() -> None:
        quorum = await started()
        await quorum.create(*(f"topic-{at}" for at in range(1000)))
        assert quorum.syncs == 2
        await asyncio.gather(*(quorum.voter.propose(DeleteTopic(topic(f"topic-{at}").topic_id)) for at in range(1000)))
        assert quorum.names() == []

    run(story())


def test_a_single_voter_leads_from_the_start_and_hears_its_own_heartbeats() -> None:
    async def story() -> None:
        quorum = await started()
        leads: list[bool] = []
        heard: list[Heartbeat] = []
        quorum.voter.on_leadership(leads.append)
        quorum.voter.on_heartbeat(heard.append)
        heartbeat = Heartbeat(ONE, UUID(int=1), 2, 3)
        quorum.voter.send_heartbeat(heartbeat)
        assert quorum.voter.is_leader
        assert leads == [True]
        assert heard == [heartbeat]
        status = quorum.voter.status()
        assert (status.leader_id, status.commit_index) == (ONE, quorum.voter.image.index)
        assert [voter.log_end for voter in status.voters] == [status.commit_index]

    run(story())


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (".snapshot", errno.EMFILE),
        (f"{COPY}/0", errno.EMFILE),
        ("journal", errno.EMFILE),
        ("journal", errno.ENFILE),
        ("journal", errno.ENOMEM),
        (f"{COPY}/journal", errno.EMFILE),
        ("", errno.EMFILE),
    ],
)
def test_a_snapshot_without_descriptors_is_taken_later(refused: str, code: int) -> None:
    async def story() -> None:
        quorum = await started(snapshot_interval_bytes=2000)
        quorum.disk.faults.refuse_opens(refused, code=code)
        for at in range(40):
            await quorum.create(f"t{at}")
        assert quorum.failures == []
        assert len(quorum.disk.content(f"{DIRECTORY}/journal")) > 2200
        quorum.disk.faults.heal()
        await quorum.create("last")
        for directory in (DIRECTORY, COPY):
            assert len(snapshots.names(quorum.disk, directory)) == 1
            assert len(quorum.disk.content(f"{directory}/journal")) < 2200
        await quorum.create("after")
        before, open_count = quorum.voter.image, quorum.disk.open_count
        assert quorum.power_cut(keep=0) == before
        assert len(quorum.names()) == 42
        assert quorum.disk.open_count == open_count

    run(story())


def test_a_snapshot_on_a_failing_disk_ends_it() -> None:
    async def story() -> None:
        quorum = await started(snapshot_interval_bytes=2000)
        quorum.disk.faults.refuse_opens("journal", code=errno.EIO)
        outcomes = [await asyncio.gather(quorum.create(f"t{at}"), return_exceptions=True) for at in range(40)]
        assert type(outcomes[-1][0]) is QuorumFailed
        assert len(quorum.failures) == 1

    run(story())


@pytest.mark.parametrize("place", [f"{DIRECTORY}/journal", f"{COPY}/journal"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM])
def test_commands_that_resources_are_lacking_for_may_be_proposed_again(place: str, code: int) -> None:
    async def story() -> None:
        for written in range(0, 400, 20):
            quorum = await started()
            quorum.disk.faults.fail_next_write(place, after=written, code=code)
            refused = [quorum.voter.propose(topic(name)) for name in ("a", "b", "c")]
            outcomes = await asyncio.gather(*refused, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [QuorumUnavailable] * 3
            assert quorum.names() == []
            # Shorter than what was written of the refused ones.
            await quorum.create("d")
            assert quorum.failures == []
            quorum.power_cut(keep=1)
            assert quorum.names() == ["d"]
            await quorum.create("a")

    run(story())
