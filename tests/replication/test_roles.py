"""Changes of a replica's role between leader and follower: no state of one role is left in the next."""

import asyncio
from dataclasses import replace

import pytest
from peer_fixture import FOLLOWER
from replica_fixture import ME, NOW_MS, TOPIC_ID, Waiting
from roles_fixture import RolesFixture, stamped
from virtual_time import run

from cordwood.chaos.sim.values import batch_of
from cordwood.replication import frames
from cordwood.replication.assignment import Assignment
from cordwood.replication.frames import FollowRequest, PushKind, PushRow, Start
from cordwood.replication.partition import Partition
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.storage.batch import headers
from cordwood.storage.config import FlushPolicy, LogConfig

BOTH = (ME, FOLLOWER)
STRANGER = 9


def data_of(broker: RolesFixture) -> bytes:
    """Return the batches sent to the follower since the last call."""
    found = [(row, bytes(data)) for frame in broker.channel.take() for row, data in frames.decode_push(frame)]
    return b"".join(data for row, data in found if row.kind == PushKind.DATA)


def test_what_was_to_be_sent_in_one_role_is_not_sent_in_the_next() -> None:
    """A small batch waits in memory for the followers. It may be truncated before they fetch it."""

    async def scenario() -> None:
        broker = RolesFixture()
        broker.elect(epoch=1, isr=BOTH)
        broker.follow()
        await broker.turn()
        broker.append("lost")
        following = broker.begin_to_follow(epoch=2)
        await broker.truncate(following.partition, 0)
        following.replicate(stamped("kept", 0, 2), 0, 0, NOW_MS)
        await broker.sync()
        broker.elect(epoch=3, isr=BOTH)
        data_of(broker)
        broker.follow()
        await broker.sync()
        assert data_of(broker) == stamped("kept", 0, 2)

    run(scenario())


def test_a_deposed_leader_sends_nothing_and_hears_nothing() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1, isr=BOTH)
        deposed = partition.leader
        broker.follow()
        await broker.commit("a")
        following = broker.begin_to_follow(epoch=2)
        assert not deposed.streams
        data_of(broker)
        following.replicate(stamped("b", 1, 2), 0, 0, NOW_MS)
        await broker.sync()
        assert data_of(broker) == b""
        broker.elect(epoch=3, isr=BOTH)
        broker.report(2)
        await broker.sync()
        assert (partition.high_watermark, partition.leader.followers()[0].flushed_end) == (0, -1)

    run(scenario())


def test_a_new_leader_counts_what_is_on_its_disk() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        following = broker.begin_to_follow(epoch=1)
        following.replicate(stamped("a", 0, 1), 0, 0, NOW_MS)
        partition = following.partition
        await broker.turn()
        broker.syncer.let_go()
        following.replicate(stamped("b", 1, 1), 0, 0, NOW_MS)
        broker.elect(epoch=2)
        assert partition.high_watermark == 1, "the other is in memory alone"
        await broker.sync()
        assert partition.high_watermark == 2, "no append is needed for that"

    run(scenario())


def test_a_new_leader_waits_for_all_that_its_predecessor_may_have_shown() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        following = broker.begin_to_follow(epoch=1)
        following.replicate(stamped("a", 0, 1) + stamped("b", 1, 1), 1, 0, NOW_MS)
        await broker.sync()
        partition = broker.elect(epoch=2, isr=BOTH)
        for reported in (0, 1):
            broker.follow(end=reported)
            with pytest.raises(PartitionRefused) as refused:
                partition.known_high_watermark()
            assert refused.value.reason is Refusal.NOT_KNOWN_YET
        broker.report(2)
        assert partition.known_high_watermark() == 2

    run(scenario())


def test_no_follower_joins_the_isr_without_what_the_predecessor_may_have_shown() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        following = broker.begin_to_follow(epoch=1)
        following.replicate(stamped("a", 0, 1) + stamped("b", 1, 1), 1, 0, NOW_MS)
        partition = broker.elect(epoch=2)
        broker.follow(end=1)
        assert partition.leader.propose_isr(lambda _: True) is None
        broker.report(2)
        assert partition.leader.propose_isr(lambda _: True) == {ME, FOLLOWER}

    run(scenario())


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_leader_is_followed_in_its_own_epoch_only(epoch: int) -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=2, isr=BOTH)
        await broker.commit("a")
        broker.send(frames.encode_follow([FollowRequest(0, TOPIC_ID, 0, epoch, 0, -1, 0)]))
        await broker.turn()
        assert [row.kind for row in broker.rows()] == [PushKind.REFUSED]
        assert not partition.leader.streams
        broker.follow()
        await broker.turn()
        assert [row.kind for row in broker.rows()] == [PushKind.DATA]

    run(scenario())


def test_a_leader_is_followed_by_its_replicas_only() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.held()
        partition.assigned(Assignment(ME, 1, 1, (ME, STRANGER), frozenset({ME, STRANGER}), 1))
        broker.follow()
        await broker.turn()
        assert [row.kind for row in broker.rows()] == [PushKind.REFUSED]
        assert (len(partition.leader.streams), partition.error) == (0, None)

    run(scenario())


def test_who_waits_in_one_role_is_refused_in_the_next() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1, isr=BOTH)
        broker.append("a")
        waiting = [Waiting(), Waiting(), Waiting()]
        partition.leader.when_committed(1, waiting[0])
        partition.leader.when_durable(1, waiting[1])
        partition.leader._deletion_waiters.add(1, waiting[2])
        broker.begin_to_follow(epoch=2)
        for each in waiting:
            assert isinstance(each.outcome, PartitionRefused)
            assert each.outcome.reason is Refusal.NOT_LEADER

    run(scenario())


def test_who_waits_for_a_leader_waits_on_in_its_next_epoch() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1, isr=BOTH)
        broker.append("a")
        durable, committed, late = Waiting(), Waiting(), Waiting()
        partition.leader.when_durable(1, durable)
        partition.leader.when_committed(1, committed)
        partition.leader.when_committed(2, late)
        former = partition.leader
        broker.elect(epoch=2, isr=BOTH)
        await broker.sync()
        assert (durable.outcome, committed.outcome) == ("reached", "waits"), (
            "the follower has not reported in this epoch"
        )
        broker.follow(end=0)
        broker.report(1)
        assert (committed.outcome, late.outcome) == ("reached", "waits")
        assert not former._commit_waiters.queue
        broker.begin_to_follow(epoch=3)
        assert isinstance(late.outcome, PartitionRefused)

    run(scenario())


def test_who_waits_in_one_epoch_alone_is_refused_at_its_end() -> None:
    """A coordinator is fenced by the leader epoch, and its next shard is loaded from the log."""

    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1, isr=BOTH)
        broker.append("a")
        coordinators, producers = Waiting(spans_epochs=False), Waiting()
        partition.leader.when_committed(1, coordinators)
        partition.leader.when_committed(1, producers)
        broker.elect(epoch=2, isr=BOTH)
        assert isinstance(coordinators.outcome, PartitionRefused)
        assert producers.outcome == "waits"

    run(scenario())


def test_who_waits_for_a_leader_is_refused_if_another_may_have_led_meanwhile() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1, isr=BOTH)
        broker.append("a")
        waiting = Waiting()
        partition.leader.when_committed(1, waiting)
        broker.elect(epoch=3, isr=BOTH)
        assert isinstance(waiting.outcome, PartitionRefused)

    run(scenario())


def test_what_is_cut_is_neither_committed_nor_kept() -> None:
    """This includes records that counted from memory alone before the flush policy changed."""

    async def scenario() -> None:
        broker = RolesFixture(LogConfig(flush_policy=FlushPolicy.OS))
        partition = broker.elect(epoch=1)
        broker.append("a", "b", "c")
        assert (partition.high_watermark, partition.ack_end) == (3, 3)
        partition.configure(replace(partition.log.config, flush_policy=FlushPolicy.GROUP))
        following = broker.begin_to_follow(epoch=2)
        await broker.truncate(partition, 1)
        following.replicate(stamped("d", 1, 2) + stamped("e", 2, 2), 0, 0, NOW_MS)
        assert (partition.high_watermark, partition.ack_end) == (1, 1)
        await broker.sync()
        assert (partition.high_watermark, partition.ack_end) == (1, 3)

    run(scenario())


def test_a_follower_keeps_what_its_leader_has_above_the_high_watermark_too() -> None:
    """All in-sync replicas may have it, and the leader may have acknowledged it (KIP-101)."""

    async def scenario() -> None:
        broker = RolesFixture()
        following = broker.begin_to_follow(epoch=2)
        partition = following.partition
        following.replicate(stamped("a", 0, 1) + stamped("b", 1, 1) + stamped("c", 2, 2), 1, 0, NOW_MS)
        assert partition.high_watermark == 1
        assert following.truncation(1, 2).end == 2

    run(scenario())


@pytest.mark.parametrize("policy", FlushPolicy)
def test_a_changed_config_reaches_every_open_log(policy: FlushPolicy) -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        for index in range(3):
            broker.elect(index)
        changed = LogConfig(segment_bytes=1, flush_policy=policy)
        for partition in broker.replicas:
            partition.configure(changed)
        for index in range(3):
            broker.append("a", "b", index=index)
            assert len(broker.held(index).log.segments) == 2
            assert broker.held(index).ack_end == (2 if policy is FlushPolicy.OS else 0)

    run(scenario())


def test_a_follower_carries_on_the_producers_of_its_leaders() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        following = broker.begin_to_follow(epoch=1)
        sent = [stamped(str(number), number, 1, producer=7, sequence=number) for number in range(3)]
        following.replicate(b"".join(sent), 0, 0, NOW_MS)
        partition = following.partition
        await broker.truncate(partition, 2)
        broker.elect(epoch=2)
        # As the producer sends them, to the next leader.
        again = [
            partition.append(batch_of(str(number), producer=7, epoch=0, sequence=number), NOW_MS) for number in range(3)
        ]
        assert [(each.base_offset, each.is_duplicate) for each in again] == [(0, True), (1, True), (2, False)]
        epochs = [header.leader_epoch for header in headers(partition.log.read(0, 1 << 20, 3))]
        assert epochs == [1, 1, 2]

    run(scenario())


def watched(partition: Partition) -> list[Partition]:
    """Return the partitions whose in-sync set is to be considered, from now on."""
    found: list[Partition] = []
    partition.context = replace(partition.context, wants_isr_change=found.append)
    return found


def test_a_follower_that_caught_up_during_another_change_is_considered_after_it() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1)
        broker.follow()
        await broker.turn()
        assert partition.leader.propose_isr(lambda _: True) == set(BOTH)
        wanted = watched(partition)
        partition.leader.assignment_changed(Assignment(ME, 1, 2, BOTH, frozenset({ME}), 1))
        assert wanted == [partition]

    run(scenario())


def test_a_follower_that_has_deleted_what_the_leader_has_is_considered_at_once() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1)
        await broker.commit("a", "b")
        partition.leader.delete_records(1)
        broker.follow(end=2)
        await broker.turn()
        wanted = watched(partition)
        broker.send(frames.encode_starts([Start(0, 1)]))
        assert wanted == [partition]

    run(scenario())


def test_a_deletion_does_not_wait_for_who_has_left_the_isr() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1, isr=BOTH)
        broker.follow()
        await broker.turn()
        broker.append("a", "b")
        await broker.sync()
        broker.report(2)
        partition.leader.delete_records(1)
        await broker.save()
        waiting = Waiting()
        partition.leader._deletion_waiters.add(1, waiting)
        partition.leader.low_watermark_moved()
        assert waiting.outcome == "waits"
        partition.assigned(Assignment(ME, 1, 2, BOTH, frozenset({ME}), 1))
        assert waiting.outcome == "reached"

    run(scenario())


def test_a_deletion_reaches_a_follower_without_another_record() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1, isr=BOTH)
        broker.follow()
        broker.append("a", "b")
        await broker.sync()
        broker.report(2)
        await asyncio.sleep(1)
        broker.channel.take()
        partition.leader.delete_records(1)
        await asyncio.sleep(1)
        rows = [row for frame in broker.channel.take() for row, _ in frames.decode_push(frame)]
        assert rows == [PushRow(0, PushKind.DATA, 2, 1)]

    run(scenario())


def test_both_kinds_of_acknowledgements_time_out() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1)
        broker.append("a")
        waiting = [Waiting(deadline=5.0), Waiting(deadline=5.0)]
        partition.leader.when_committed(1, waiting[0])
        partition.leader.when_durable(1, waiting[1])
        partition.leader.expire_waiters(4.9)
        assert [each.outcome for each in waiting] == ["waits", "waits"]
        partition.leader.expire_waiters(5.0)
        for each in waiting:
            assert isinstance(each.outcome, PartitionRefused)
            assert each.outcome.reason is Refusal.TIMED_OUT

    run(scenario())


def test_a_follower_checkpoints_a_log_start_that_its_leader_has_raised() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        following = broker.begin_to_follow()
        partition, moved = following.partition, list[Partition]()
        partition.context = replace(partition.context, start_moved=moved.append)
        following.replicate(stamped("a", 0, 1) + stamped("b", 1, 1), 2, 0, NOW_MS)
        assert moved == []
        following.replicate(b"", 2, 1, NOW_MS)
        assert moved == [partition]

    run(scenario())


def test_a_follower_takes_no_log_start_beyond_its_log() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        following = broker.begin_to_follow()
        following.replicate(stamped("a", 0, 1), 5, 4, NOW_MS)
        assert following.partition.log.log_start == 1
        following.replicate(stamped("b", 1, 1), 5, 4, NOW_MS)
        assert following.partition.log.log_start == 2

    run(scenario())


def test_a_follower_that_has_hung_up_is_not_counted_as_attached() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1, isr=BOTH)
        broker.follow()
        await broker.turn()
        assert partition.leader.view.followers[FOLLOWER].is_attached
        broker.channel.close()
        assert not partition.leader.view.followers[FOLLOWER].is_attached

    run(scenario())


def test_a_follower_that_has_left_its_stream_joins_by_a_new_report_only() -> None:
    """Its connection may end afterwards, and the broker come back with an empty disk."""

    async def scenario() -> None:
        broker = RolesFixture()
        partition = broker.elect(epoch=1)
        broker.follow()
        broker.send(frames.encode_leave([0]))
        broker.channel.close()
        assert partition.leader.propose_isr(lambda _: True) is None

    run(scenario())


def test_the_high_watermark_of_a_log_that_begins_anew_is_not_before_it() -> None:
    async def scenario() -> None:
        broker = RolesFixture()
        following = broker.begin_to_follow()
        partition = following.partition
        partition.log.truncate_fully(7)
        partition.truncated()
        assert partition.high_watermark == 7

    run(scenario())
