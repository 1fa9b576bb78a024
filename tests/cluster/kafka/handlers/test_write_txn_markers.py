"""WriteTxnMarkers by raw frames: markers on the partitions of transactions, and every refusal."""

import asyncio
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest
from handlers_fixture import HandlersStory, Provocations, tell
from kio.schema.errors import ErrorCode
from peer_fixture import FOLLOWER
from replica_fixture import ME, NOW_MS
from roles_fixture import TOPIC
from transactions import PRODUCER, write

from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.kafka.handlers import write_txn_markers as handler
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.cluster.transactions.markers import Decided, Marker, MarkerRow
from cordwood.cluster.transactions.transaction import AddedPartition
from cordwood.replication.assignment import Assignment
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.storage.types import ProducerIdAndEpoch

NEWEST = handler.KEY.versions[-1]


def marker(
    *places: tuple[str, int],
    commit: bool = True,
    producer: int = PRODUCER,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> dict[str, Any]:
    return {
        "producer_id": producer,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": transaction_version,
        "topics": tuple({"name": topic, "partition_indexes": (index,)} for topic, index in places or ((TOPIC, 0),)),
    }


def send(broker: HandlersStory, *markers: dict[str, Any], version: int = NEWEST) -> "asyncio.Future[Any]":
    if version < 2:
        for each in markers:
            del each["transaction_version"]
    return broker.client.send(handler.KEY, version, markers=markers)


async def ask(broker: HandlersStory, *markers: dict[str, Any], version: int = NEWEST) -> list[list[ErrorCode]]:
    """Return the codes of each marker's partitions."""
    sent = send(broker, *markers, version=version)
    await broker.sync()
    return codes_of(await sent)


def codes_of(response: Any) -> list[list[ErrorCode]]:
    return [
        [partition.error_code for topic in each.topics for partition in topic.partitions] for each in response.markers
    ]


def state_of(partition: Partition, producer: int = PRODUCER) -> tuple[int, int, int]:
    """Return epoch, coordinator epoch and first offset of the transaction."""
    known = dict(partition.log.producers)[producer]
    return known.epoch, known.coordinator_epoch, known.current_transaction_first_offset


@pytest.mark.parametrize("version", handler.KEY.versions)
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_the_transaction_of_its_producer(version: int, commit: bool) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        write(partition, "a")
        write(partition, "b", producer=8)
        await broker.sync()
        assert await ask(broker, marker(commit=commit, coordinator_epoch=5), version=version) == [[ErrorCode.none]]
        assert state_of(partition) == (0, 5, -1)
        assert partition.last_stable_offset == 1
        assert await ask(broker, marker(commit=commit, producer=8, epoch=2), version=version) == [[ErrorCode.none]]
        assert state_of(partition, 8) == (2, 0, -1)
        assert partition.last_stable_offset == 4
        assert partition.log.aborted(0, 4) == ([] if commit else [(PRODUCER, 0), (8, 1)])

    tell(story)


def test_a_response_names_each_partition_of_each_marker() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        broker.elect(1)
        markers = (
            marker((TOPIC, 0), ("nowhere", 0), (TOPIC, 1)),
            marker((TOPIC, 1), producer=8),
        )
        expected = [
            [ErrorCode.none, ErrorCode.unknown_topic_or_partition, ErrorCode.none],
            [ErrorCode.none],
        ]
        assert await ask(broker, *markers) == expected

    tell(story)


def test_no_marker_is_acknowledged_before_it_is_committed() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect(isr=(ME, FOLLOWER))
        broker.follow()
        write(partition, "a")
        sent = send(broker, marker())
        await broker.sync()
        broker.report(1)
        await broker.turn()
        assert not sent.done()
        assert partition.last_stable_offset == 0
        broker.report(2)
        await broker.turn()
        assert codes_of(sent.result()) == [[ErrorCode.none]]
        assert partition.last_stable_offset == 2

    tell(story)


def test_in_the_second_protocol_a_marker_has_an_epoch_of_its_own() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        write(partition, "a")
        await broker.sync()
        assert await ask(broker, marker(transaction_version=2)) == [[ErrorCode.invalid_producer_epoch]]
        for _ in range(2):
            assert await ask(broker, marker(transaction_version=2, epoch=1)) == [[ErrorCode.none]]
        assert state_of(partition) == (1, 0, -1)
        write(partition, "b", epoch=1)
        assert await ask(broker, marker(transaction_version=2, epoch=1)) == [[ErrorCode.invalid_producer_epoch]]
        assert await ask(broker, marker(transaction_version=1, epoch=1)) == [[ErrorCode.none]]

    tell(story)


def test_a_marker_fails_with_its_leadership_while_that_of_another_partition_is_awaited() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(isr=(ME, FOLLOWER))
        broker.follow()
        write(broker.elect(1, isr=(ME, FOLLOWER)), "a")
        sent = send(broker, marker((TOPIC, 0), (TOPIC, 1)))
        await broker.sync()
        broker.begin_to_follow(1, epoch=2)
        broker.report(1)
        for _ in range(3):
            await broker.turn()
        assert codes_of(sent.result()) == [[ErrorCode.none, ErrorCode.not_leader_or_follower]]

    tell(story)


def row(*places: tuple[str, int], producer: int = PRODUCER) -> MarkerRow:
    partitions = [AddedPartition(UUID(int=1), topic, index) for topic, index in places]
    marker = Marker(ProducerIdAndEpoch(producer, 0), True, False, 5)
    return MarkerRow(Decided(None, marker, partitions, lambda: None), partitions)


def test_the_markers_of_this_brokers_coordinator_need_no_request() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect(isr=(ME, FOLLOWER))
        broker.follow()
        broker.elect(1)
        write(partition, "a")
        rows = [row((TOPIC, 0), ("nowhere", 0)), row((TOPIC, 1), producer=8)]
        writing = asyncio.ensure_future(handler.write_here(rows, broker.services))
        await broker.sync()
        assert not writing.done()
        broker.report(2)
        codes = [{(topic, index): code for (_, topic, index), code in each.items()} for each in await writing]
        unknown = ErrorCode.unknown_topic_or_partition
        assert codes == [{(TOPIC, 0): ErrorCode.none, ("nowhere", 0): unknown}, {(TOPIC, 1): ErrorCode.none}]
        assert state_of(partition) == (0, 5, -1)
        assert partition.last_stable_offset == 2

    tell(story)


def test_a_slow_partition_holds_back_the_others_for_two_seconds() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(isr=(ME, FOLLOWER))
        broker.elect(1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        sent = send(broker, marker((TOPIC, 0), (TOPIC, 1)))
        await broker.sync()
        assert codes_of(await sent) == [[ErrorCode.request_timed_out, ErrorCode.none]]
        assert loop.time() - began == pytest.approx(2, abs=0.1)

    tell(story)


PROVOKED = Provocations(
    handler,
    never=frozenset(
        {
            ErrorCode.topic_authorization_failed,
            ErrorCode.corrupt_message,
            ErrorCode.invalid_record,
            ErrorCode.invalid_timestamp,
            ErrorCode.unsupported_compression_type,
            ErrorCode.message_too_large,
            ErrorCode.out_of_order_sequence_number,
            ErrorCode.invalid_txn_state,
            ErrorCode.offset_out_of_range,
            ErrorCode.fenced_leader_epoch,
            ErrorCode.unknown_leader_epoch,
            ErrorCode.offset_not_available,
            ErrorCode.unknown_topic_id,
            ErrorCode.unknown_server_error,
        }
    ),
)
"""The broker makes the batch itself, names topics by name, and the request has no leader epoch."""


@PROVOKED.of(ErrorCode.cluster_authorization_failed)
async def _without_rights(broker: HandlersStory) -> ErrorCode:
    partition = broker.elect()
    broker.enforce()
    code = (await ask(broker, marker()))[0][0]
    assert partition.log.log_end == 0
    return code


@PROVOKED.of(ErrorCode.unknown_topic_or_partition)
async def _unknown(broker: HandlersStory) -> ErrorCode:
    return (await ask(broker, marker(("nowhere", 0))))[0][0]


@PROVOKED.of(ErrorCode.not_leader_or_follower)
async def _deposed(broker: HandlersStory) -> ErrorCode:
    write(broker.elect(isr=(ME, FOLLOWER)), "a")
    sent = send(broker, marker())
    await broker.sync()
    assert not sent.done()
    broker.begin_to_follow(epoch=2)
    assert codes_of(await sent) == [[ErrorCode.not_leader_or_follower]]
    return (await ask(broker, marker()))[0][0]


@PROVOKED.of(ErrorCode.not_enough_replicas)
async def _too_few_in_sync(broker: HandlersStory) -> ErrorCode:
    partition = broker.elect(isr=(ME,), min_isr=2)
    code = (await ask(broker, marker()))[0][0]
    assert partition.log.log_end == 0
    return code


@PROVOKED.of(ErrorCode.invalid_producer_epoch)
async def _older_producer_epoch(broker: HandlersStory) -> ErrorCode:
    write(broker.elect(), "a", epoch=3)
    return (await ask(broker, marker(epoch=2)))[0][0]


@PROVOKED.of(ErrorCode.invalid_request)
async def _no_producer(broker: HandlersStory) -> ErrorCode:
    partition = broker.elect()
    assert await ask(broker, marker(epoch=-1)) == [[ErrorCode.invalid_request]]
    code = (await ask(broker, marker(producer=-1)))[0][0]
    assert partition.log.log_end == 0
    return code


@PROVOKED.of(ErrorCode.transaction_coordinator_fenced)
async def _older_coordinator(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    assert await ask(broker, marker(coordinator_epoch=5)) == [[ErrorCode.none]]
    return (await ask(broker, marker(coordinator_epoch=4)))[0][0]


@PROVOKED.of(ErrorCode.request_timed_out)
async def _no_follower_confirms(broker: HandlersStory) -> ErrorCode:
    broker.elect(isr=(ME, FOLLOWER))
    sent = send(broker, marker())
    await broker.sync()
    return codes_of(await sent)[0][0]


@PROVOKED.of(ErrorCode.kafka_storage_error)
async def _failed_disk(broker: HandlersStory) -> ErrorCode:
    broker.elect().directory.fail(OSError("the disk is gone"))
    return (await ask(broker, marker()))[0][0]


def test_every_error_code_of_the_handler_is_provoked() -> None:
    PROVOKED.check_all()


class RecordedGroups:
    """A group coordinator that records which transactions have ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, ProducerIdAndEpoch, bool]] = []
        self.applied: list[Callable[[], None]] = []

    def transaction_ended(
        self, partition: int, producer: ProducerIdAndEpoch, is_commit: bool, applied: Callable[[], None]
    ) -> None:
        self.ended.append((partition, producer, is_commit))
        self.applied.append(applied)


def test_the_offsets_of_a_transaction_count_once_its_marker_is_committed() -> None:
    async def story(broker: HandlersStory) -> None:
        groups = RecordedGroups()
        broker.services.groups = cast(GroupCoordinator, groups)
        place = TopicIdPartition(CONSUMER_OFFSETS, 3, UUID(int=9))
        broker.replicas.open(place, broker.config, NOW_MS)
        partition = broker.replicas.get(CONSUMER_OFFSETS, 3)
        assert partition is not None
        partition.assigned(Assignment(ME, 1, 1, (ME, FOLLOWER), frozenset({ME}), 1))
        broker.elect()
        sent = send(broker, marker((CONSUMER_OFFSETS, 3), (TOPIC, 0), commit=False), marker((CONSUMER_OFFSETS, 9)))
        await broker.turn()
        assert groups.ended == []
        await broker.sync()
        assert groups.ended == [(3, ProducerIdAndEpoch(PRODUCER, 0), False)]
        # Many offsets are applied in turns, and the coordinator's next transaction waits for them.
        assert not sent.done()
        groups.applied[0]()
        codes = codes_of(await sent)
        assert codes == [[ErrorCode.none, ErrorCode.none], [ErrorCode.unknown_topic_or_partition]]

    tell(story)


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_group_coordinator_learns_of_a_marker_once_it_is_committed(is_commit: bool) -> None:
    async def story(broker: HandlersStory) -> None:
        groups = RecordedGroups()
        broker.services.groups = cast(GroupCoordinator, groups)
        stuck = broker.elect(isr=(ME, FOLLOWER))
        broker.partition(0, CONSUMER_OFFSETS)
        answer = send(broker, marker((TOPIC, 0), (CONSUMER_OFFSETS, 0), commit=is_commit))
        await broker.turn()
        assert groups.ended == []
        await broker.sync()
        assert not answer.done(), "the other partition's marker is not committed"
        assert stuck.high_watermark == 0
        assert groups.ended == [(0, ProducerIdAndEpoch(PRODUCER, 0), is_commit)]

    tell(story)
