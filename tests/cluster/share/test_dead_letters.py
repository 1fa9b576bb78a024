"""Dead-letter queues of share groups: what is copied, where it may be copied, and when records are archived."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode
from share_fixture import GROUP, TOPIC, ShareFixture, with_members

from cordwood.cluster.share.dead_letters import UNREADABLE_S
from cordwood.storage.records import Record

REJECT, RELEASE = 3, 2
QUEUE = "dlq.jobs"
ALLOWED = {"errors.deadletterqueue.group.enable": "true"}


def headers_of(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


async def rejected(group: ShareFixture, *values: str) -> None:
    """Have a member reject these records of the partition 1."""
    await group.produce(*values, partition=1)
    worker = group.member()
    fetched = await worker.fetch(partitions=(1,))
    first, last, _ = fetched.acquired[0]
    answer = await worker.ask(partitions=(1,), acks=[(first, last, REJECT)])
    assert all(row.acknowledge_error_code == ErrorCode.none for row in answer.responses[0].partitions)
    await asyncio.sleep(2)


def test_rejected_records_are_copied_with_their_origin() -> None:
    async def story(group: ShareFixture) -> None:
        await group.create(QUEUE, 2, **ALLOWED)
        await rejected(group, "bad", "worse")
        copies = group.records_of(QUEUE, 1)
        assert [copy.value for copy in copies] == [b"bad", b"worse"]
        assert headers_of(copies[1]) == {
            "__dlq.errors.topic": TOPIC,
            "__dlq.errors.partition": "1",
            "__dlq.errors.offset": "1",
            "__dlq.errors.group": GROUP,
            "__dlq.errors.delivery.count": "1",
            "__dlq.errors.message": "Offset rejected by client.",
        }
        assert group.view(1).start_offset == 2, "the group is done with them"
        assert group.measures.dead_letters == 2
        assert (group.measures.rejected, group.measures.archived) == (2, 2)

    with_members(story, errors_deadletterqueue_topic_name=QUEUE, errors_deadletterqueue_copy_record_enable="true")


def test_without_copies_only_the_origin_is_written() -> None:
    async def story(group: ShareFixture) -> None:
        await group.create(QUEUE, 2, **ALLOWED)
        await rejected(group, "bad")
        (copy,) = group.records_of(QUEUE, 1)
        assert (copy.key, copy.value) == (None, None)
        assert headers_of(copy)["__dlq.errors.offset"] == "0"

    with_members(story, errors_deadletterqueue_topic_name=QUEUE)


def test_a_record_that_was_delivered_too_often_is_copied() -> None:
    async def story(group: ShareFixture) -> None:
        await group.create(QUEUE, 1, **ALLOWED)
        await group.produce("poison")
        worker = group.member()
        for _ in range(2):
            await worker.fetch(wait_s=1)
            await worker.acknowledge(0, 0, RELEASE)
        await asyncio.sleep(2)
        (copy,) = group.records_of(QUEUE)
        assert headers_of(copy)["__dlq.errors.message"] == "Offset delivery count exceeded the threshold."
        assert (await worker.fetch()).acquired == []

    with_members(story, errors_deadletterqueue_topic_name=QUEUE, share_delivery_count_limit="2")


def test_a_topic_must_permit_it() -> None:
    async def story(group: ShareFixture) -> None:
        await group.create(QUEUE, 2)
        await rejected(group, "bad")
        assert group.records_of(QUEUE, 1) == []
        assert group.view(1).start_offset == 1, "the record is archived all the same"

    with_members(story, errors_deadletterqueue_topic_name=QUEUE)


def test_a_topic_must_have_the_prefix() -> None:
    async def story(group: ShareFixture) -> None:
        await group.create("payments", 2, **ALLOWED)
        await rejected(group, "bad")
        assert group.records_of("payments", 1) == []

    with_members(story, errors_deadletterqueue_topic_name="payments")


def test_a_compacted_topic_is_no_queue() -> None:
    async def story(group: ShareFixture) -> None:
        await group.create(QUEUE, 2, **{**ALLOWED, "cleanup.policy": "compact"})
        await rejected(group, "a record without a key, which no compacted topic takes")
        assert group.records_of(QUEUE, 1) == []
        assert group.view(1).start_offset == 1, "the record is archived all the same"

    with_members(story, errors_deadletterqueue_topic_name=QUEUE)


def test_a_queue_is_created_where_the_brokers_permit_it() -> None:
    async def story(group: ShareFixture) -> None:
        await rejected(group, "bad", "worse")
        topic = group.broker.image.topics_by_name[QUEUE]
        assert len(topic.partitions) == 3
        assert (topic.configs["errors.deadletterqueue.group.enable"], topic.configs["cleanup.policy"]) == (
            "true",
            "delete",
        )
        assert [copy.value for copy in group.records_of(QUEUE, 1)] == [b"bad", b"worse"]
        assert group.view(1).start_offset == 2

    settings = {"errors_deadletterqueue_auto_create_topics_enable": True, "num_partitions": 3}
    configs = {"errors_deadletterqueue_topic_name": QUEUE, "errors_deadletterqueue_copy_record_enable": "true"}
    with_members(story, settings, **configs)


@pytest.mark.parametrize(
    ("queue", "is_permitted"),
    [(QUEUE, False), ("payments", True), ("dlq.with a blank", True)],
    ids=["not permitted", "without the prefix", "no valid name"],
)
def test_a_queue_is_not_created_otherwise(queue: str, is_permitted: bool) -> None:
    async def story(group: ShareFixture) -> None:
        await rejected(group, "bad")
        assert queue not in group.broker.image.topics_by_name
        assert group.view(1).start_offset == 1, "the record is archived all the same"

    settings = {"errors_deadletterqueue_auto_create_topics_enable": is_permitted}
    with_members(story, settings, errors_deadletterqueue_topic_name=queue)


def test_records_wait_in_archiving_while_the_queue_cannot_be_written() -> None:
    async def story(group: ShareFixture) -> None:
        await group.create(QUEUE, 2, **{**ALLOWED, "max.message.bytes": "1"})
        await rejected(group, "bad")
        assert group.records_of(QUEUE, 1) == []
        assert group.view(1).start_offset == 0
        await group.restart()
        await group.configure_topic(QUEUE, **{"max.message.bytes": "10000"})
        worker = group.member()
        assert (await worker.fetch(partitions=(1,), wait_s=20)).acquired == [], "it is not delivered again"
        assert [headers_of(copy)["__dlq.errors.offset"] for copy in group.records_of(QUEUE, 1)] == ["0"]
        assert group.view(1).start_offset == 1

    with_members(story, errors_deadletterqueue_topic_name=QUEUE)


def test_copies_of_unreadable_records_have_no_contents() -> None:
    async def story(group: ShareFixture) -> None:
        await group.create(QUEUE, 2, **ALLOWED)
        await group.produce("lost", partition=1)
        worker = group.member()
        await worker.fetch(partitions=(1,))
        await asyncio.sleep(1)
        group.spoil(1)
        await worker.ask(partitions=(1,), acks=[(0, 0, REJECT)])
        await asyncio.sleep(UNREADABLE_S / 2)
        assert group.records_of(QUEUE, 1) == [], "the record may be repaired"
        assert group.view(1).start_offset == 0
        await asyncio.sleep(UNREADABLE_S)
        (copy,) = group.records_of(QUEUE, 1)
        assert (copy.value, headers_of(copy)["__dlq.errors.offset"]) == (None, "0")
        assert group.view(1).start_offset == 1
        assert (group.measures.dead_letters, group.measures.dead_letters_without_contents) == (1, 1)

    with_members(story, errors_deadletterqueue_topic_name=QUEUE, errors_deadletterqueue_copy_record_enable="true")


def test_a_copy_of_a_record_that_is_too_large_for_the_queue_has_no_contents() -> None:
    async def story(group: ShareFixture) -> None:
        await group.create(QUEUE, 2, **{**ALLOWED, "max.message.bytes": "2000"})
        await rejected(group, "x" * 3000, "small")
        large, small = group.records_of(QUEUE, 1)
        assert (large.value, small.value) == (None, b"small")
        assert group.view(1).start_offset == 2
        assert group.measures.dead_letters_without_contents == 1

    with_members(story, errors_deadletterqueue_topic_name=QUEUE, errors_deadletterqueue_copy_record_enable="true")
