"""Share groups over restarts and power cuts of a broker: what was acknowledged is never delivered again."""

import asyncio
from datetime import timedelta

from kio.schema.errors import ErrorCode
from share_fixture import GROUP, TOPIC, ShareFixture, with_members

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.share.share_partition import WRITE_BATCHES_MAX

RELEASE, REJECT = 2, 3
NONE = ErrorCode.none


def test_acknowledged_records_are_not_delivered_after_a_power_cut() -> None:
    async def story(group: ShareFixture) -> None:
        for value in "abcd":
            await group.produce(value)
        worker = group.member()
        await worker.fetch(batch_size=1)
        assert await worker.acknowledge(1, 1) is NONE
        assert await worker.acknowledge(3, 3, REJECT) is NONE
        await group.power_cut()
        assert (await group.member().fetch(wait_s=5)).acquired == [(0, 0, 1), (2, 2, 1)]

    with_members(story)


def test_deliveries_are_counted_over_a_power_cut() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        worker = group.member()
        for count in (1, 2):
            assert (await worker.fetch(wait_s=1)).acquired == [(0, 0, count)]
            assert await worker.acknowledge(0, 0, RELEASE) is NONE
        await group.power_cut()
        assert (await group.member().fetch(wait_s=5)).acquired == [(0, 0, 3)]

    with_members(story)


def test_a_group_that_begins_at_the_end_misses_nothing_after_a_restart() -> None:
    async def story(group: ShareFixture) -> None:
        worker = group.member(group_id="latest")
        await worker.fetch()
        await group.produce("a")
        await group.restart()
        assert (await group.member(group_id="latest").fetch(wait_s=5)).values == [b"a"]

    with_members(story)


def test_updates_and_snapshots_are_restored() -> None:
    async def story(group: ShareFixture) -> None:
        worker = group.member()
        for number in range(30):
            await group.produce(f"{number}", f"{number} again")
            await worker.fetch(wait_s=1)
            assert await worker.acknowledge(2 * number, 2 * number) is NONE
        before = await group.stored()
        await group.restart()
        assert await group.stored() == before
        assert (before.start_offset, len(before.batches)) == (1, 29)

    with_members(story, {"share_coordinator_snapshot_update_records_per_snapshot": 4})


def test_states_are_initialized_summarized_and_deleted() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b", "c")
        states, topic_id = group.broker.broker._shares.persister, group.topic_id
        await states.initialize(GROUP, topic_id, 0, 1, 2)
        assert (await states.summarize(GROUP, topic_id, 0))[:3] == (1, 0, 2)
        worker = group.member()
        assert (await worker.fetch()).values == [b"c"]
        await states.initialize(GROUP, topic_id, 0, 2, 1)
        assert await worker.acknowledge(2, 2) is ErrorCode.not_leader_or_follower, "the leader is fenced"
        assert (await worker.fetch(wait_s=5)).values == [b"b", b"c"]
        await states.delete(GROUP, topic_id, 0)
        assert (await states.summarize(GROUP, topic_id, 0)).start_offset == -1

    with_members(story)


def test_a_state_without_an_offset_begins_in_its_epoch() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        states = group.broker.broker._shares.persister
        await states.initialize(GROUP, group.topic_id, 0, 7, -1)
        assert (await group.member().fetch(wait_s=1)).values == [b"a"]
        assert (await states.summarize(GROUP, group.topic_id, 0))[:2] == (7, 0)

    with_members(story)


def test_the_coordinator_fences_by_epochs() -> None:
    async def story(group: ShareFixture) -> None:
        state = {"partition": 0, "state_epoch": 3, "leader_epoch": 5, "start_offset": 4, "state_batches": ()}

        async def code(api: ApiKey, version: int, **fields: int) -> ErrorCode:
            partition = {**state, **fields}
            index = fields.get("topic", group.topic_id)
            topics = ({"topic_id": index, "partitions": (partition,)},)
            answer = await group.ask(api, version, group_id=GROUP, topics=topics)
            return ErrorCode(answer.results[0].partitions[0].error_code)

        write, read, start = (
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        )
        assert await code(write, 1) is ErrorCode.invalid_request, "nothing is initialized"
        assert await code(start, 0) is NONE
        assert await code(start, 0, state_epoch=2) is ErrorCode.fenced_state_epoch
        assert await code(read, 0) is NONE
        assert await code(read, 0, leader_epoch=4) is ErrorCode.fenced_leader_epoch
        assert await code(write, 0, leader_epoch=4) is ErrorCode.fenced_leader_epoch
        assert await code(write, 1, state_epoch=2) is ErrorCode.fenced_state_epoch
        assert await code(write, 1, partition=9) is ErrorCode.unknown_topic_or_partition
        assert await code(write, 1, partition=-1) is ErrorCode.invalid_request
        assert await code(write, 1) is NONE
        batch = {"first_offset": 4, "last_offset": 6, "delivery_state": 1, "delivery_count": 1}
        assert await code(write, 1, state_batches=(batch,)) is ErrorCode.invalid_request, "a lock is never stored"
        batches = tuple(
            {"first_offset": 2 * number, "last_offset": 2 * number, "delivery_state": 2, "delivery_count": 1}
            for number in range(WRITE_BATCHES_MAX + 1)
        )
        assert await code(write, 1, state_batches=batches) is ErrorCode.invalid_request, "more than a leader writes"
        assert await code(write, 1, state_batches=batches[1:]) is NONE

    with_members(story)


def test_acknowledgements_fail_while_their_state_cannot_be_stored() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        worker = group.member()
        await worker.fetch()
        await group.configure_topic("__share_group_state", **{"max.message.bytes": "1"})
        assert await worker.acknowledge(0, 0) is ErrorCode.unknown_server_error
        await group.configure_topic("__share_group_state", **{"max.message.bytes": "10000"})
        await asyncio.sleep(1)
        assert await worker.acknowledge(0, 0) is NONE, "the lock went on"

    with_members(story)


def test_a_lock_that_ends_while_nothing_can_be_stored_is_released_afterwards() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        await group.member().fetch()
        await group.configure_topic("__share_group_state", **{"max.message.bytes": "1"})
        waiting = asyncio.ensure_future(group.member().fetch(wait_s=60))
        await asyncio.sleep(35)
        assert not waiting.done()
        await group.configure_topic("__share_group_state", **{"max.message.bytes": "10000"})
        assert (await waiting).acquired == [(0, 0, 2)]

    with_members(story)


async def lose_acknowledged_records(group: ShareFixture) -> None:
    """Acknowledge the records 1 to 3 of four, of which a power cut then takes the last two."""
    await group.produce("a", "b")
    await group.configure_topic(TOPIC, **{"flush.policy": "os"})
    await group.produce("lost", "lost")
    worker = group.member()
    await worker.fetch()
    assert await worker.acknowledge(1, 3) is NONE
    await group.power_cut(keep=0.0)


def test_records_at_offsets_that_the_log_has_lost_are_delivered() -> None:
    async def story(group: ShareFixture) -> None:
        await lose_acknowledged_records(group)
        assert group.log_end() == 2
        worker = group.member()
        assert (await worker.fetch(wait_s=5)).values == [b"a"]
        await group.produce("c", "d")
        assert (await worker.fetch(wait_s=5)).values == [b"c", b"d"]

    with_members(story)


def test_a_group_that_was_past_the_end_of_a_log_goes_on_there() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b")
        await group.configure_topic(TOPIC, **{"flush.policy": "os"})
        await group.produce("lost", "lost")
        worker = group.member()
        await worker.fetch()
        assert await worker.acknowledge(0, 3) is NONE
        await group.power_cut(keep=0.0)
        assert group.log_end() == 2
        await group.member().fetch()
        await group.produce("c", "d")
        assert (await group.member().fetch(wait_s=5)).values == [b"c", b"d"]

    with_members(story)


def test_acknowledgements_after_lost_records_are_stored() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b")
        await group.configure_topic(TOPIC, **{"flush.policy": "os"})
        await group.produce(*("lost" for _ in range(6)))
        worker = group.member()
        await worker.fetch()
        assert await worker.acknowledge(0, 7) is NONE
        await group.power_cut(keep=0.0)
        await group.configure_topic(TOPIC, **{"flush.policy": "group"})
        worker = group.member()
        await worker.fetch()
        await group.produce("c", "d", "e")
        assert (await worker.fetch(wait_s=5)).values == [b"c", b"d", b"e"]
        assert await worker.acknowledge(2, 2) is NONE
        assert await worker.acknowledge(4, 4) is NONE
        await group.restart()
        await group.produce("f")
        assert (await group.member().fetch(wait_s=5)).values == [b"d", b"f"]

    with_members(story)


def test_states_of_lost_records_are_not_found_again_by_the_next_leader() -> None:
    async def story(group: ShareFixture) -> None:
        await lose_acknowledged_records(group)
        await group.configure_topic(TOPIC, **{"flush.policy": "group"})
        assert (await group.member().fetch(wait_s=5)).values == [b"a"]
        await group.produce("c", "d")
        await group.restart()
        assert (await group.member().fetch(wait_s=5)).values == [b"a", b"c", b"d"]

    with_members(story)


def test_an_acknowledgement_of_several_writes_waits_for_all_of_them() -> None:
    async def story(group: ShareFixture) -> None:
        count = WRITE_BATCHES_MAX + 400
        await group.produce(*map(str, range(count)))
        worker = group.member()
        await worker.fetch(max_records=count, batch_size=count)
        # The first write fits, and the second one, which has the changes of both, does not.
        await group.configure_topic("__share_group_state", **{"max.message.bytes": "15000"})
        assert await worker.acknowledge(0, count - 1, *(1, RELEASE) * (count // 2)) is ErrorCode.unknown_server_error
        assert len((await group.stored()).batches) < WRITE_BATCHES_MAX + 1

    with_members(story)


def test_what_could_not_be_stored_is_delivered_again() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b")
        worker = group.member()
        await worker.fetch()
        await group.configure_topic("__share_group_state", **{"max.message.bytes": "1"})
        assert await worker.acknowledge(0, 0) is ErrorCode.unknown_server_error
        assert await worker.acknowledge(1, 1, REJECT) is ErrorCode.unknown_server_error
        await group.configure_topic("__share_group_state", **{"max.message.bytes": "10000"})
        assert (await group.member().fetch(wait_s=60)).acquired == [(0, 1, 2)]
        assert (group.measures.acknowledged, group.measures.rejected) == (0, 0)

    with_members(story)


def test_the_states_of_a_deleted_topic_are_deleted() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        await group.member().fetch()
        assert group.broker.broker._shares.coordinator.count() == 1
        await group.ask(ApiKey.DELETE_TOPICS, 5, topic_names=(TOPIC,), timeout=timedelta(seconds=30))
        await asyncio.sleep(5)
        assert group.broker.broker._shares.coordinator.count() == 0
        await group.restart()
        await asyncio.sleep(5)
        assert group.broker.broker._shares.coordinator.count() == 0

    with_members(story)


def test_a_group_whose_offsets_were_altered_begins_there() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b", "c")
        worker = group.member()
        await worker.fetch()
        assert await worker.acknowledge(0, 2, share_session_epoch=-1) is NONE
        worker.hang_up()
        await asyncio.sleep(1)
        await group.broker.broker._shares.persister.initialize(GROUP, group.topic_id, 0, 9, 1)
        assert (await group.member().fetch(wait_s=5)).values == [b"b", b"c"]

    with_members(story)


def test_a_group_waits_while_its_state_cannot_be_read() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        await group.assign(GROUP, (0,))
        await group.configure_topic("__share_group_state", **{"max.message.bytes": "1"})
        assert (await group.member().fetch()).code is ErrorCode.unknown_server_error
        await group.configure_topic("__share_group_state", **{"max.message.bytes": "10000"})
        assert (await group.member().fetch()).values == [b"a"]

    with_members(story)
