"""Records for members of a share group: acquisition, acknowledgement, locks and sessions, by raw requests."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

from closed_broker import ALICE
from kio.schema.errors import ErrorCode
from kio.schema.share_fetch.v2.request import ForgottenTopic
from share_fixture import GROUP, TOPIC, ShareFixture, with_members

from cordwood.cluster.kafka.share_batches import BATCHES_MAX
from cordwood.cluster.share.share_partition import WRITE_BATCHES_MAX
from cordwood.storage.records import Record, encode

ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0
E = ErrorCode


def partitions_with_records(answer: Any) -> set[int]:
    """Return the partitions of a response that have acquired records. None has an error."""
    rows = [row for topic in answer.responses for row in topic.partitions]
    assert {row.error_code for row in rows} <= {E.none}
    return {row.partition_index for row in rows if row.acquired_records}


def test_a_member_gets_whole_batches_and_acknowledges_them() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b", "c")
        worker = group.member()
        fetched = await worker.fetch()
        assert fetched.acquired == [(0, 2, 1)]
        assert fetched.values == [b"a", b"b", b"c"]
        assert fetched.answer.acquisition_lock_timeout == timedelta(seconds=30)
        assert await worker.acknowledge(0, 2) is E.none
        assert (await worker.fetch(partitions=())).acquired == []
        await group.produce("d")
        assert (await worker.fetch(partitions=())).values == [b"d"]

    with_members(story)


def test_two_members_never_have_the_same_record() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b")
        await group.produce("c", "d")
        one, other = group.member(), group.member()
        assert (await one.fetch(max_records=1)).values == [b"a", b"b"], "whole batches"
        assert (await other.fetch()).values == [b"c", b"d"]
        assert await other.acknowledge(0, 1) is E.invalid_record_state
        assert await other.acknowledge(2, 3) is E.none

    with_members(story)


def test_a_record_limit_is_kept_within_a_batch() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b", "c", "d")
        one, other = group.member(), group.member()
        fetched = await one.fetch(max_records=3, share_acquire_mode=1)
        assert (fetched.acquired, fetched.values) == ([(0, 2, 1)], [b"a", b"b", b"c"])
        assert (await other.fetch(max_records=3, share_acquire_mode=1)).values == [b"d"]

    with_members(story)


def test_acquired_ranges_are_of_the_batch_size_that_was_asked_for() -> None:
    async def story(group: ShareFixture) -> None:
        for value in "abcdef":
            await group.produce(value)
        fetched = await group.member().fetch(batch_size=2)
        assert fetched.acquired == [(0, 1, 1), (2, 3, 1), (4, 5, 1)]

    with_members(story)


def test_acknowledgements_travel_with_the_next_fetch() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b")
        worker = group.member()
        await worker.fetch()
        await group.produce("c")
        fetched = await worker.fetch(acks=[(0, 0, ACCEPT), (1, 1, RELEASE)])
        assert fetched.acknowledge_code is E.none
        assert fetched.values in ([b"c"], [b"b", b"c"])
        await worker.fetch(acks=[(2, 2, ACCEPT)])
        assert (await worker.fetch(wait_s=1)).values in ([b"b"], [])

    with_members(story)


def test_released_records_are_delivered_again_and_counted() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b", "c")
        one, other = group.member(), group.member()
        await one.fetch()
        assert await one.acknowledge(0, 2, ACCEPT, RELEASE, ACCEPT) is E.none
        fetched = await other.fetch()
        assert (fetched.acquired, fetched.values) == ([(1, 1, 2)], [b"b"])

    with_members(story)


def test_a_record_is_archived_after_the_last_delivery() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("poison")
        await group.produce("good")
        worker = group.member()
        for count in (1, 2):
            fetched = await worker.fetch(max_records=1)
            assert fetched.acquired == [(0, 0, count)]
            assert await worker.acknowledge(0, 0, RELEASE) is E.none
        assert (await worker.fetch()).values == [b"good"]
        assert (group.measures.rejected, group.measures.archived) == (0, 1)

    with_members(story, share_delivery_count_limit="2")


def test_rejected_records_are_counted_apart() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b", "c")
        worker = group.member()
        await worker.fetch()
        assert await worker.acknowledge(0, 2, REJECT, RELEASE, REJECT) is E.none
        measures = group.measures
        assert (measures.rejected, measures.archived, measures.released) == (2, 2, 1)

    with_members(story)


def test_a_lock_that_ends_lets_others_have_the_record() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        one, other = group.member(), group.member()
        await one.fetch()
        began = asyncio.get_running_loop().time()
        fetched = await other.fetch(wait_s=60)
        assert fetched.acquired == [(0, 0, 2)]
        assert 30 <= asyncio.get_running_loop().time() - began < 32
        assert await one.acknowledge(0, 0) is E.invalid_record_state

    with_members(story)


def test_each_lock_ends_in_its_own_time() -> None:
    async def story(group: ShareFixture) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await group.produce("a")
        await group.member().fetch()
        await asyncio.sleep(20)
        await group.produce("b")
        await group.member().fetch()
        other = group.member()
        for offset, ends in ((0, 30), (1, 50)):
            assert (await other.fetch(wait_s=60)).acquired == [(offset, offset, 2)]
            assert ends <= loop.time() - began < ends + 2

    with_members(story)


def test_a_shorter_lock_does_not_wait_for_a_longer_one() -> None:
    async def story(group: ShareFixture) -> None:
        for value in "ab":
            await group.produce(value)
        await group.member().fetch(max_records=1)
        await group.configure(**{"share.record.lock.duration.ms": "20000"})
        await group.member().fetch(max_records=1)
        began = asyncio.get_running_loop().time()
        assert (await group.member().fetch(wait_s=60)).acquired == [(1, 1, 2)]
        assert 20 <= asyncio.get_running_loop().time() - began < 22

    with_members(story)


def test_a_renewed_lock_is_kept() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        worker = group.member()
        await worker.fetch()
        for _ in range(3):
            await asyncio.sleep(20)
            assert await worker.acknowledge(0, 0, RENEW, is_renew_ack=True) is E.none
        assert await worker.acknowledge(0, 0, RENEW) is E.invalid_request, "it must be announced"
        assert await worker.acknowledge(0, 0) is E.none

    with_members(story)


def test_a_renewal_by_a_fetch_fetches_nothing() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        worker = group.member()
        await worker.fetch()
        await group.produce("b")
        nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "wait_s": 0, "is_renew_ack": True}
        fetched = await worker.fetch(acks=[(0, 0, RENEW)], **nothing)
        assert (fetched.acquired, fetched.acknowledge_code) == ([], E.none)
        answer = await worker.ask(acks=[(0, 0, RENEW)], is_renew_ack=True)
        assert answer.error_code is E.invalid_request

    with_members(story)


def test_groups_may_forbid_renewals() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        worker = group.member()
        await worker.fetch()
        assert await worker.acknowledge(0, 0, RENEW, is_renew_ack=True) is E.invalid_record_state

    with_members(story, share_renew_acknowledge_enable="false")


def test_a_killed_member_gives_its_records_back_at_once() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        one, other = group.member(), group.member()
        await one.fetch()
        waiting = asyncio.ensure_future(other.fetch(wait_s=20))
        await asyncio.sleep(1)
        one.hang_up()
        began = asyncio.get_running_loop().time()
        assert (await waiting).acquired == [(0, 0, 2)], "as in Kafka, that delivery counts"
        assert asyncio.get_running_loop().time() - began < 1

    with_members(story)


def test_the_last_request_of_a_session_releases_the_rest() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b")
        one, other = group.member(), group.member()
        await one.fetch()
        assert await one.acknowledge(0, 0, ACCEPT, share_session_epoch=-1) is E.none
        assert (await other.fetch(wait_s=5)).values == [b"b"]
        assert await one.acknowledge(1, 1, ACCEPT) is E.share_session_not_found

    with_members(story)


def test_session_epochs() -> None:
    async def story(group: ShareFixture) -> None:
        worker = group.member()
        assert (await worker.ask(share_session_epoch=3)).error_code is E.share_session_not_found
        assert (await worker.ask(share_session_epoch=-1)).error_code is E.share_session_not_found
        assert (await worker.ask(acks=[(0, 0, ACCEPT)])).error_code is E.invalid_request
        await worker.fetch()
        assert (await worker.ask(share_session_epoch=7)).error_code is E.invalid_share_session_epoch
        assert await worker.acknowledge(0, 0, ACCEPT, share_session_epoch=0) is E.invalid_share_session_epoch
        assert await worker.acknowledge(0, 0, ACCEPT, share_session_epoch=9) is E.invalid_share_session_epoch
        assert (await worker.ask(member_id="")).error_code is E.invalid_request
        assert (await worker.ask(member_id="x" * 37)).error_code is E.invalid_request
        assert (await worker.ask(group_id="")).error_code is E.invalid_request

    with_members(story)


def test_a_broker_has_a_limited_number_of_sessions() -> None:
    async def story(group: ShareFixture) -> None:
        one, other = group.member(), group.member()
        await one.fetch()
        assert (await other.ask()).error_code is E.share_session_limit_reached
        one.hang_up()
        await asyncio.sleep(1)
        assert (await other.ask()).error_code is E.none

    with_members(story, {"group_share_max_share_sessions": 1})


def test_partitions_enter_and_leave_a_session() -> None:
    async def story(group: ShareFixture) -> None:
        worker = group.member()
        await worker.fetch()
        await group.produce("on 1", partition=1)
        assert (await worker.fetch(partitions=())).values == []
        assert (await worker.ask(partitions=(1,))).responses[0].partitions[0].acquired_records
        await group.produce("on 0")
        forgotten = (ForgottenTopic(topic_id=group.topic_id, partitions=(0,)),)
        assert (await worker.ask(partitions=(), forgotten_topics_data=forgotten)).responses == ()

    with_members(story)


def test_records_do_not_wait_until_the_state_of_another_partition_is_read() -> None:
    async def story(group: ShareFixture) -> None:
        worker = group.member()
        await worker.fetch()
        await group.produce("on 0")
        await group.produce("on 1", partition=1)
        assert partitions_with_records(await worker.ask(partitions=(0, 1), wait_s=5)) == {0}, "what is at hand"
        assert partitions_with_records(await worker.ask(partitions=(), wait_s=5)) == {1}, "its state was read meanwhile"

    with_members(story)


def test_the_first_state_that_is_read_ends_the_wait() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("on 0")
        await group.produce("on 1", partition=1)
        worker = group.member()
        first = partitions_with_records(await worker.ask(partitions=(0, 1), wait_s=5))
        assert len(first) == 1
        assert partitions_with_records(await worker.ask(partitions=(), wait_s=5)) == {0, 1} - first

    with_members(story)


def test_a_state_is_read_to_its_end_whatever_the_fetch_does() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("on 0")
        await group.produce("on 1", partition=1)
        worker, other = group.member(), group.member()
        assert (await worker.fetch(wait_s=0)).values == [], "the fetch does not wait"
        waiting = asyncio.ensure_future(other.fetch(partitions=(1,), wait_s=5))
        await asyncio.sleep(0.001)
        other.hang_up()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0.1)
        assert (await worker.fetch(wait_s=0)).values == [b"on 0"]
        assert (group.view(0).end_offset, group.view(1).start_offset) == (1, 0)

    with_members(story)


def test_no_partition_is_left_out_by_a_member_that_fetches_and_acknowledges_in_turn() -> None:
    async def story(group: ShareFixture) -> None:
        for number in range(8):
            await group.produce(f"{number} on 0")
            await group.produce(f"{number} on 1", partition=1)
        worker = group.member()
        served = set[int]()
        answer = await worker.ask(partitions=(0, 1), max_records=1, wait_s=5)
        for _ in range(4):
            (place,) = partitions_with_records(answer)
            served.add(place)
            # A request without partitions that has an epoch of its own, as each acknowledgement has.
            await worker.ask(partitions=(), max_records=0)
            answer = await worker.ask(partitions=(), max_records=1, wait_s=5)
        assert served == {0, 1}

    with_members(story)


def test_acknowledgements_that_are_not_valid() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b", "c")
        worker = group.member()
        await worker.fetch(max_records=2, share_acquire_mode=1)
        for first, last, types, code in (
            (1, 0, (ACCEPT,), E.invalid_request),
            (0, 1, (ACCEPT, ACCEPT, ACCEPT), E.invalid_request),
            (0, 1, (ACCEPT, 9), E.invalid_request),
            (0, 1, (-1,), E.invalid_request),
            (-3, 1, (ACCEPT,), E.invalid_request),
            (0, 2, (ACCEPT,), E.invalid_request),
            (5, 6, (ACCEPT,), E.invalid_request),
        ):
            assert await worker.acknowledge(first, last, *types) is code, (first, last, types)
        assert await worker.acknowledge(0, 1, GAP, ACCEPT) is E.none
        assert await worker.acknowledge(0, 1, ACCEPT) is E.none, "they are done already"

    with_members(story)


def test_fetches_of_invented_groups_leave_nothing_behind() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        shares = group.broker.broker._shares
        for number in range(20):
            stranger = group.member(group_id=f"invented-{number}")
            stranger.is_assigned = False
            assert (await stranger.fetch()).code is E.not_leader_or_follower
            stranger.hang_up()
        assert (shares.coordinator.count(), list(shares.partitions.views())) == (0, [])
        assert (await group.member().fetch()).values == [b"a"]
        assert shares.coordinator.count() == 1

    with_members(story)


def test_unknown_topics_and_partitions() -> None:
    async def story(group: ShareFixture) -> None:
        worker = group.member()
        answer = await worker.ask(partitions=(7,))
        assert answer.responses[0].partitions[0].error_code is E.unknown_topic_or_partition
        other = group.member()
        known, group.topic_id = group.topic_id, UUID(int=9)
        answer = await other.ask()
        assert answer.responses[0].partitions[0].error_code is E.unknown_topic_id
        assert await other.acknowledge(0, 0) is E.unknown_topic_id
        group.topic_id = known

    with_members(story)


def test_every_other_record_of_thousands_is_released() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce(*map(str, range(1800)))
        worker = group.member()
        assert (await worker.fetch(max_records=1800)).acquired == [(0, 1799, 1)]
        assert await worker.acknowledge(0, 1799, *(ACCEPT, RELEASE) * 900) is E.none
        fetched = await worker.fetch(max_records=1800)
        assert fetched.acquired == [(offset, offset, 2) for offset in range(1, 1800, 2)]
        batches = [(offset, offset, ACCEPT) for offset in range(1, 1800, 2)]
        assert (await worker.fetch(acks=batches)).acknowledge_code is E.none
        assert group.view().start_offset == 1800

    with_members(story)


def test_a_fetch_waits_for_records_and_for_bytes() -> None:
    async def story(group: ShareFixture) -> None:
        worker = group.member()
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(worker.fetch(wait_s=50))
        await asyncio.sleep(5)
        await group.produce("a")
        assert (await waiting).values == [b"a"]
        began = loop.time()
        waiting = asyncio.ensure_future(worker.fetch(wait_s=10, min_bytes=1000))
        await group.produce("b")
        assert (await waiting).values == [b"b"]
        assert loop.time() - began >= 10, "there were too few bytes"
        began = loop.time()
        waiting = asyncio.ensure_future(worker.fetch(wait_s=10, min_bytes=1000))
        await group.produce("c" * 1000)
        assert len((await waiting).values) == 1
        assert loop.time() - began < 5

    with_members(story)


def test_the_first_offset_of_a_group() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("before")
        latest = group.member(group_id="latest")
        assert (await latest.fetch()).values == []
        await group.produce("after")
        assert (await latest.fetch()).values == [b"after"]
        await group.configure("by-time", **{"share.auto.offset.reset": "by_duration:PT1H"})
        now_ms = group.now_ms()
        old, new = Record(0, now_ms - 7_200_000, None, b"old"), Record(0, now_ms - 60_000, None, b"new")
        await group.append(encode([old]), partition=1)
        await group.append(encode([new]), partition=1)
        assert (await group.member(group_id="by-time").fetch(partitions=(1,))).values == [b"new"]

    with_members(story)


def test_the_window_of_a_partition_is_limited() -> None:
    async def story(group: ShareFixture) -> None:
        for _ in range(3):
            await group.produce(*("x" for _ in range(60)))
        one, other = group.member(), group.member()
        assert (await one.fetch(max_records=1)).acquired == [(0, 59, 1)]
        assert (await other.fetch()).acquired == [(60, 119, 1)], "the batch at the limit is whole"
        waiting = asyncio.ensure_future(other.fetch(wait_s=20))
        await asyncio.sleep(1)
        assert not waiting.done()
        assert await one.acknowledge(0, 59) is E.none
        assert (await waiting).acquired == [(120, 179, 1)]

    with_members(story, share_partition_max_record_locks="100")


def test_deleted_records_are_passed_over() -> None:
    async def story(group: ShareFixture) -> None:
        for value in "abcd":
            await group.produce(value)
        worker = group.member()
        await worker.fetch(max_records=1)
        await group.delete_records(before=3)
        fetched = await worker.fetch()
        assert (fetched.acquired, fetched.values) == ([(3, 3, 1)], [b"d"])
        assert await worker.acknowledge(0, 0) is E.none, "the record is gone, and nothing is left to do"

    with_members(story)


def test_a_group_whose_last_records_are_deleted_has_no_lag() -> None:
    """The start offset passes them, and that is stored."""

    async def story(group: ShareFixture) -> None:
        await group.produce("a")
        worker = group.member()
        assert (await worker.fetch()).values == [b"a"]
        assert await worker.acknowledge(0, 0) is E.none
        await group.produce("b", "c")
        await group.delete_records(before=3)
        assert (await worker.fetch(wait_s=0.5)).values == []
        assert (await group.stored()).start_offset == 3

    with_members(story)


def test_aborted_records_are_not_delivered_with_read_committed() -> None:
    async def story(group: ShareFixture) -> None:
        for producer, value, is_commit in ((7, "aborted", False), (8, "committed", True)):
            group.append_in_transaction(producer, value)
            group.end_transaction(producer, is_commit=is_commit)
        await group.produce("plain")
        group.append_in_transaction(9, "open")
        await group.produce("after")
        committed, any_reader = group.member(), group.member(group_id="uncommitted")
        await group.configure("uncommitted", **{"share.auto.offset.reset": "earliest"})
        assert (await committed.fetch()).values == [b"committed", b"plain"]
        assert (await any_reader.fetch()).values == [b"aborted", b"committed", b"plain", b"open", b"after"]
        group.end_transaction(9, is_commit=False)
        assert (await committed.fetch(wait_s=1)).values == [b"after"]
        assert await committed.acknowledge(2, 2) is E.none

    with_members(story, share_isolation_level="read_committed")


def test_a_group_at_the_end_of_a_transactional_topic_has_no_lag() -> None:
    """The marker after the last record is passed over, and that is stored."""

    async def story(group: ShareFixture) -> None:
        group.append_in_transaction(7, "a")
        worker = group.member()
        assert (await worker.fetch()).values == [b"a"]
        assert await worker.acknowledge(0, 0) is E.none
        group.end_transaction(7, is_commit=True)
        assert (await worker.fetch(wait_s=0.5)).values == []
        assert (await group.stored()).start_offset == 2

    with_members(story)


def test_what_a_producer_commits_after_an_aborted_transaction_is_delivered() -> None:
    async def story(group: ShareFixture) -> None:
        for sequence, (value, is_commit) in enumerate((("aborted", False), ("committed", True))):
            group.append_in_transaction(7, value, sequence)
            group.end_transaction(7, is_commit=is_commit)
        assert (await group.member().fetch()).values == [b"committed"]

    with_members(story, share_isolation_level="read_committed")


def test_a_member_needs_the_rights_to_read_group_and_topic() -> None:
    async def story(group: ShareFixture) -> None:
        worker = group.member(identity=ALICE)
        assert (await worker.ask()).error_code is E.group_authorization_failed
        assert await worker.acknowledge(0, 0) is E.group_authorization_failed
        await group.allow_reading(GROUP)
        answer = await worker.ask()
        assert answer.responses[0].partitions[0].error_code is E.topic_authorization_failed
        await group.allow_reading(GROUP, TOPIC)
        await group.produce("a")
        assert (await worker.fetch()).values == [b"a"]

    with_members(story)


def test_many_small_batches_are_acquired_by_parts() -> None:
    async def story(group: ShareFixture) -> None:
        for number in range(BATCHES_MAX + 10):
            await group.produce(f"{number}")
        worker, every = group.member(), BATCHES_MAX + 10
        assert (await worker.fetch(max_records=every, batch_size=every)).acquired == [(0, BATCHES_MAX - 1, 1)]
        assert (await worker.fetch(max_records=every, batch_size=every)).acquired == [(BATCHES_MAX, every - 1, 1)]

    with_members(story)


def test_acknowledgements_of_more_batches_than_one_write_has_are_answered_once_all_are_stored() -> None:
    async def story(group: ShareFixture) -> None:
        records = 2 * WRITE_BATCHES_MAX + 100
        await group.produce(*map(str, range(records)))
        worker = group.member()
        await worker.fetch(max_records=records)
        before = group.measures.writes
        types = (RELEASE, ACCEPT) * (records // 2)
        assert await worker.acknowledge(0, records - 1, *types) is E.none
        assert group.measures.writes - before == 3
        assert len((await group.stored()).batches) == records
        assert group.view().in_flight == records // 2

    with_members(story)
