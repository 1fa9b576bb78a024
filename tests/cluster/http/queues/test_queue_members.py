"""The members of share groups that a broker keeps for HTTP clients, at whole brokers in simulated time."""

import asyncio

import cramjam
import pytest
from kio.schema.errors import ErrorCode
from queue_fixture import QueueFixture, values_of, with_queues
from raw_batches import NOW_MS, body_of, raw_batch
from share_fixture import TOPIC

from cordwood.cluster.http.queues.member import FRESH_SHARE, PATIENCE_S, TakeAnswer
from cordwood.cluster.http.queues.members import QueueLimits
from cordwood.cluster.http.queues.session import ACCEPT, RELEASE, RENEW, Ack
from cordwood.cluster.http.records.portions import CONTENT_BYTES_MAX
from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.resources.turns import SLICE_STEPS
from cordwood.cluster.security.principal import ANONYMOUS, Identity
from cordwood.storage.batch import Compression
from cordwood.storage.records import Record

LOCK_S = 30.0
"""The broker's default, as of Kafka."""
E = ErrorCode
OTHER_USER = Identity(ANONYMOUS)


def test_a_take_after_a_closed_session_has_a_new_one() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a", "b", "c")
        lost = await queue.take(1, bytes_max=1)
        (session,) = queue.member._sessions.values()
        session._connection.close()
        assert await queue.send(ACCEPT, *lost.records) == [E.invalid_record_state], "the leader releases it"
        began = asyncio.get_running_loop().time()
        answers = [await queue.take()]
        assert values_of(answers[0])[-2:] == ["b", "c"], "nothing holds back what the lost session did not have"
        if len(answers[0].records) == 2:
            # A released record is locked until its release is stored (share rule 2), and others do not wait for it.
            answers.append(await queue.take())
        taken = [
            (value, one) for answer in answers for value, one in zip(values_of(answer), answer.records, strict=True)
        ]
        assert sorted((value, one.record.delivery_count) for value, one in taken) == [("a", 2), ("b", 1), ("c", 1)]
        assert asyncio.get_running_loop().time() - began < 1

    with_queues(story)


def test_records_that_no_client_has_end_with_their_session() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a", "b", "c")
        assert await queue.values(3, bytes_max=1) == ["a"]
        (session,) = queue.member._sessions.values()
        session._connection.close()
        queue.member._drop_session(session.leader)
        again = await queue.take(3)
        assert values_of(again) == ["a", "b", "c"]
        assert {taken.record.delivery_count for taken in again.records} <= {1, 2}
        await queue.acknowledge(*again.records)

    with_queues(story)


def test_a_client_that_is_gone_when_its_records_arrive_gives_them_back() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a")
        await queue.acknowledge(*(await queue.take()).records)
        taking = asyncio.ensure_future(queue.take(wait_s=20))
        await asyncio.sleep(1)
        (client,) = queue.member._waiting
        client.answer.add_done_callback(lambda _: taking.cancel())
        await queue.group.produce("b")
        await asyncio.wait((taking,))
        assert taking.cancelled()
        began = asyncio.get_running_loop().time()
        again = await queue.take(wait_s=LOCK_S + 5)
        assert [taken.record.delivery_count for taken in again.records] == [2]
        assert asyncio.get_running_loop().time() - began < LOCK_S / 2

    with_queues(story)


def test_a_client_that_hangs_up_while_its_answer_is_encoded_gives_its_records_back() -> None:
    async def story(queue: QueueFixture) -> None:
        count = 3 * SLICE_STEPS
        await queue.group.produce(*map(str, range(count)))
        taking = asyncio.ensure_future(queue.take_over_http(count))
        # More records than a slice of the event loop has steps: encoding takes several iterations after they are taken.
        while not queue.queues.measures.taken_records:
            assert not taking.done()
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait((taking,))
        assert taking.cancelled()
        began = asyncio.get_running_loop().time()
        again = await queue.take(count)
        assert {taken.record.delivery_count for taken in again.records} == {2}
        assert len(again.records) == count
        assert asyncio.get_running_loop().time() - began < LOCK_S / 2

    with_queues(story)


def test_the_lock_of_records_begins_with_their_acquisition_and_not_when_a_client_takes_them() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a", "b")
        first = await queue.take(2, bytes_max=1)
        await asyncio.sleep(LOCK_S / FRESH_SHARE - 2)
        second = await queue.take(1)
        assert [values_of(answer) for answer in (first, second)] == [["a"], ["b"]]
        assert second.lock_ms <= first.lock_ms - 1000 * (LOCK_S / FRESH_SHARE - 2)
        await asyncio.sleep(second.lock_ms / 1000 + 0.1)
        assert await queue.send(RENEW, *second.records) == [E.invalid_record_state]

    with_queues(story)


def test_partitions_that_the_group_takes_away_are_forgotten_in_the_session() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a")
        await queue.acknowledge(*(await queue.take()).records)
        assert queue.session_partitions() == {0, 1}
        (place, _) = sorted(queue.member._membership.places)
        queue.member._membership.places = frozenset({place})
        assert await queue.values(wait_s=0) == []
        assert queue.session_partitions() == {place.partition}

    with_queues(story)


def test_a_receipt_without_a_lock_costs_only_itself() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a", "b", "c", "d", "e")
        records = (await queue.take(5)).records
        session = queue.member._sessions[1]
        # The leader does not know the lock any more, and the member does not know that.
        assert await session.acknowledge([Ack(records[3].place, 3, 3, RELEASE)]) == [E.none]
        outcomes = await queue.send(ACCEPT, *records)
        assert outcomes == [E.none] * 3 + [E.invalid_record_state] + [E.none]
        assert await queue.values() == ["d"]

    with_queues(story)


def test_the_lock_of_an_answer_is_that_of_its_first_record_to_be_released() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.add_broker()
        await queue.create("spread", 1, 2)
        spread = {"topics": ("spread",)}
        assert await queue.values(wait_s=5, **spread) == []
        gone = asyncio.ensure_future(queue.take(wait_s=5, **spread))
        await asyncio.sleep(0.1)
        gone.cancel()
        await queue.group.produce("a", topic="spread")
        await asyncio.sleep(0.2)
        await queue.produce_there("spread", 1, "b")
        await asyncio.sleep(0.05)
        answer = await queue.take(**spread)
        assert values_of(answer) == ["a", "b"]
        assert answer.lock_ms <= (LOCK_S - 0.2) * 1000

    with_queues(story)


def test_a_closed_member_releases_its_records_at_once() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a")
        assert await queue.values() == ["a"]
        await queue.member.close()
        assert (await queue.share_member().fetch(wait_s=LOCK_S / 2)).values == [b"a"]

    with_queues(story)


def test_records_that_no_client_takes_are_released_before_their_lock_ends() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a", "b")
        began = asyncio.get_running_loop().time()
        assert await queue.values(2, bytes_max=1) == ["a"]
        fetched = await queue.share_member().fetch(wait_s=LOCK_S)
        assert fetched.values == [b"b"]
        assert asyncio.get_running_loop().time() - began < LOCK_S / 2

    with_queues(story)


def test_an_acknowledgement_goes_on_without_its_client_and_may_be_repeated() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a", "b")
        first, second = (await queue.take()).records
        lost = asyncio.ensure_future(queue.send(ACCEPT, first))
        await asyncio.sleep(0)
        lost.cancel()
        assert await queue.send(ACCEPT, first) == [E.none]
        lost = asyncio.ensure_future(queue.send(ACCEPT, second))
        await asyncio.sleep(0)
        lost.cancel()
        await asyncio.sleep(1)
        assert await queue.send(ACCEPT, second) == [E.none]
        assert (await queue.group.stored()).start_offset == 2

    with_queues(story)


def test_requests_that_overlap_have_one_outcome() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a", "b")
        records = (await queue.take()).records
        sent = [queue.send(kind, *records) for kind in (ACCEPT, ACCEPT, RELEASE)]
        assert await asyncio.gather(*sent) == [[E.none] * 2, [E.none] * 2, [E.invalid_record_state] * 2]

    with_queues(story)


def test_an_acknowledgement_waits_for_the_renewal_before_it() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a")
        records = (await queue.take()).records
        sent = [queue.send(kind, *records) for kind in (RENEW, ACCEPT)]
        assert await asyncio.gather(*sent) == [[E.none]] * 2

    with_queues(story)


def test_a_receipt_that_is_sent_twice_in_a_request_counts_once() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a")
        (record,) = (await queue.take()).records
        assert await queue.send(ACCEPT, record, record) == [E.none] * 2

    with_queues(story)


def test_an_acknowledgement_that_a_stop_interrupts_is_unknown() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a")
        (record,) = (await queue.take()).records
        sending = asyncio.ensure_future(queue.send(ACCEPT, record))
        await asyncio.sleep(0)
        await queue.queues.close()
        assert await sending == [E.request_timed_out]

    with_queues(story)


def test_a_leader_that_is_out_of_reach_does_not_keep_others_busy() -> None:
    async def story(queue: QueueFixture) -> None:
        host = await queue.add_broker()
        await queue.create("spread", 1, 2)
        assert await queue.values(wait_s=5, topics=("spread",)) == []
        host.pause()
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await queue.values(wait_s=0, topics=("spread",)) == []
        assert loop.time() - began < PATIENCE_S + 1

    with_queues(story)


def test_a_broker_that_was_killed_joins_as_the_member_that_the_group_still_has() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a")
        await queue.group.produce("b", partition=1)
        assert sorted([*await queue.values(1), *await queue.values(1)]) == ["a", "b"]
        queue.kill()
        restarted = QueueFixture(queue.group)
        taken = [*(await restarted.take(1)).records, *(await restarted.take(1)).records]
        assert {one.place.partition for one in taken} == {0, 1}
        await restarted.queues.close()

    with_queues(story)


def test_a_member_that_is_leaving_does_not_share_its_id() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce("a")
        assert await queue.values() == ["a"]
        former = queue.member
        former._fail(HttpRefusal(503, "The group is gone."))
        assert await queue.values(wait_s=20) == ["a"]
        assert queue.member.member_id != former.member_id

    with_queues(story)


def compressed(count: int, value: bytes) -> bytes:
    records = [Record(0, NOW_MS, None, value)] * count
    return raw_batch(bytes(cramjam.zstd.compress(body_of(records))), count, Compression.ZSTD)


def test_no_more_is_decoded_than_clients_take() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.append(compressed(200, b"x" * 50_000))
        first = await queue.take(200, bytes_max=1)
        assert len(first.records) == 1
        decoded = sum(ready.record.content_bytes for ready in queue.member._ready)
        assert decoded <= CONTENT_BYTES_MAX + 50_000
        rest = await queue.take(500, bytes_max=20_000_000)
        both = [*first.records, *rest.records]
        assert [taken.record.offset for taken in both] == list(range(200))
        assert {taken.record.delivery_count for taken in both} == {1}
        assert not queue.member._ready
        await queue.acknowledge(*both)

    with_queues(story)


def test_batches_that_no_client_takes_are_released_before_their_lock_ends() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.append(compressed(20, b"x" * 50_000))
        first = await queue.take(200, bytes_max=1)
        await asyncio.sleep(LOCK_S / FRESH_SHARE + 2)
        again = await queue.take(50, wait_s=0)
        assert [taken.record.offset for taken in again.records] == list(range(1, 20))
        assert {taken.record.delivery_count for taken in again.records} == {2}
        await queue.acknowledge(*first.records, *again.records)

    with_queues(story)


def test_batches_that_are_not_decoded_end_with_their_session() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.append(compressed(20, b"x" * 50_000))
        await queue.take(20, bytes_max=1)
        (session,) = queue.member._sessions.values()
        session._connection.close()
        queue.member._drop_session(session.leader)
        again = await queue.take(50)
        assert [taken.record.offset for taken in again.records] == list(range(20))
        await queue.acknowledge(*again.records)

    with_queues(story)


def test_one_user_has_half_of_the_members_and_a_free_one_makes_room() -> None:
    async def story(queue: QueueFixture) -> None:
        for topic in ("one", "two", "three"):
            await queue.create(topic, 1)
        held = [await hold(queue, topic) for topic in ("one", "two")]
        with pytest.raises(HttpRefusal, match="You already use 2 queues at this broker") as refused:
            await queue.take(topics=("three",))
        assert (refused.value.status, refused.value.code) == (429, E.throttling_quota_exceeded)
        # Another user is served all the same.
        assert (await queue.take(topics=("three",), identity=OTHER_USER, wait_s=0)).records == ()
        await queue.acknowledge(*held[0].records)
        assert (await queue.take(topics=("three",), wait_s=0)).records == ()

    with_queues(story, QueueLimits(members=4))


def test_one_user_has_a_limited_number_of_members_in_one_group() -> None:
    async def story(queue: QueueFixture) -> None:
        for topic in ("one", "two", "three"):
            await queue.create(topic, 1)
        held = [await hold(queue, topic) for topic in ("one", "two")]
        with pytest.raises(HttpRefusal, match="2 different sets of topics of the queue workers") as refused:
            await queue.take(topics=("three",))
        assert (refused.value.status, refused.value.code) == (429, E.throttling_quota_exceeded)
        assert (await queue.take(topics=("three",), identity=OTHER_USER, wait_s=0)).records == ()
        await queue.acknowledge(*held[0].records)
        assert (await queue.take(topics=("three",), wait_s=0)).records == ()

    with_queues(story, QueueLimits(topic_sets=2))


def test_members_share_the_memory_of_acknowledged_receipts() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce(*"abcd")
        answer = await queue.take(4)
        assert await queue.send(ACCEPT, *answer.records) == [E.none] * 4
        assert await queue.send(ACCEPT, *answer.records) == [E.none] * 4, "a repeated request has the same outcome"
        assert (await queue.take(topics=("later",), wait_s=0)).records == ()
        assert await queue.send(ACCEPT, *answer.records) == [E.invalid_record_state] * 2 + [E.none] * 2

    with_queues(story, QueueLimits(done=4))


def test_one_user_holds_half_of_the_records() -> None:
    async def story(queue: QueueFixture) -> None:
        await queue.group.produce(*"abcdefgh")
        first = await queue.take(1)
        waits = asyncio.ensure_future(queue.take(1, topics=("later",), wait_s=20))
        await asyncio.sleep(1)
        second = await queue.take(1)
        for topics in ((TOPIC,), ("later",)):
            with pytest.raises(HttpRefusal, match="You hold 2 records of queues at this broker") as refused:
                await queue.take(1, topics=topics)
            assert refused.value.status == 429
        await queue.create("later", 1)
        await queue.group.produce("late", topic="later")
        with pytest.raises(HttpRefusal, match="You hold 2 records"):
            await waits
        await queue.acknowledge(*first.records, *second.records)
        assert values_of(await queue.take(1)) == ["c"]

    with_queues(story, QueueLimits(held=4))


async def hold(queue: QueueFixture, topic: str) -> TakeAnswer:
    """Take a record of a topic, and hold it."""
    assert (await queue.take(topics=(topic,), wait_s=5)).records == ()
    await queue.group.produce("x", topic=topic)
    answer = await queue.take(1, topics=(topic,))
    assert values_of(answer) == ["x"]
    return answer
