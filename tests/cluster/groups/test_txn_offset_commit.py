"""TxnOffsetCommit in every version and with every error code, and what OffsetFetch makes of pending offsets."""

from collections.abc import Iterator

import pytest
from groups_fixture import GROUP, OFFSETS_PARTITIONS, GroupsFixture
from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.kafka.handlers import offset_fetch, txn_offset_commit
from cordwood.cluster.kafka.transaction_verifier import TransactionProtocol
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

FIRST_WITH_STABLE = 7
PARTITION = partition_of(GROUP, OFFSETS_PARTITIONS)


@pytest.fixture
def broker() -> Iterator[GroupsFixture]:
    fixture = GroupsFixture(offset_metadata_max_bytes=10)
    yield fixture
    fixture.close()


@pytest.mark.parametrize("version", txn_offset_commit.KEY.versions)
def test_what_is_committed_in_any_version_counts_after_the_marker(broker: GroupsFixture, version: int) -> None:
    assert broker.commit_in_transaction(42, version) is ErrorCode.none
    broker.end_transaction()
    (partition,) = broker.fetch(9, 0).topics[0].partitions
    assert (partition.committed_offset, partition.metadata, partition.error_code) == (42, "note", ErrorCode.none)
    assert partition.committed_leader_epoch == (3 if version >= 2 else -1)


@pytest.mark.parametrize("version", txn_offset_commit.KEY.versions)
def test_the_version_says_what_the_client_knows_of_transactions(broker: GroupsFixture, version: int) -> None:
    broker.commit_in_transaction(42, version)
    (asked,) = broker.verifier.asked
    place = TopicPartition("__consumer_offsets", PARTITION)
    assert asked[:3] == ("t", ProducerIdAndEpoch(7, 0), (place,))
    expected = {4: TransactionProtocol.KNOWS_ABORTABLE, 5: TransactionProtocol.ADDS}.get(
        version, TransactionProtocol.FIRST
    )
    assert asked.protocol is expected


@pytest.mark.parametrize("version", offset_fetch.KEY.versions)
def test_with_require_stable_pending_offsets_are_unstable(broker: GroupsFixture, version: int) -> None:
    broker.commit(41)
    broker.commit(41, partition=1)
    broker.commit_in_transaction(42)
    broker.commit_in_transaction(43, partition=2)
    answers = [broker.fetch(version, 0, 1, 2), *(broker.fetch(version) for _ in range(version >= 2))]
    for answer in answers:
        rows = [(row.committed_offset, row.error_code) for row in answer.topics[0].partitions]
        if version >= FIRST_WITH_STABLE:
            unstable = (-1, ErrorCode.unstable_offset_commit)
            assert rows == [unstable, (41, ErrorCode.none), unstable]
        else:
            assert rows[:2] == [(41, ErrorCode.none)] * 2
    broker.end_transaction()
    assert [row.committed_offset for row in broker.fetch(version, 0, 1, 2).topics[0].partitions] == [42, 41, 43]


def test_without_require_stable_the_last_stable_offset_is_found(broker: GroupsFixture) -> None:
    broker.commit(41)
    broker.commit_in_transaction(42)
    topics = ({"name": "flights", "partition_indexes": (0, 1)},)
    answer = broker.ask(offset_fetch, 9, groups=({"group_id": GROUP, "topics": topics},), require_stable=False)
    rows = answer.groups[0].topics[0].partitions
    assert [(row.committed_offset, row.error_code) for row in rows] == [(41, ErrorCode.none), (-1, ErrorCode.none)]


@pytest.mark.parametrize("version", [version for version in txn_offset_commit.KEY.versions if version >= 3])
def test_members_are_fenced(broker: GroupsFixture, version: int) -> None:
    member_id = broker.member()

    def commit(member: str, generation: int, instance: str | None = None, group_id: str = GROUP) -> ErrorCode:
        fields = {"member_id": member, "generation_id": generation, "group_instance_id": instance}
        return broker.commit_in_transaction(5, version, group_id=group_id, **fields)

    assert commit(member_id, 1) is ErrorCode.none
    assert commit(member_id, 0) is ErrorCode.illegal_generation
    assert commit("stranger", 1) is ErrorCode.unknown_member_id
    assert commit(member_id, 1, "rack") is ErrorCode.unknown_member_id
    assert commit("", -1) is ErrorCode.none
    assert commit(member_id, 1, group_id="other") is ErrorCode.illegal_generation


@pytest.mark.parametrize("version", [3, 5])
def test_a_static_member_that_was_replaced_is_fenced(broker: GroupsFixture, version: int) -> None:
    former = broker.join(group_instance_id="rack").member_id
    broker.join(group_instance_id="rack")
    fields = {"member_id": former, "generation_id": 1, "group_instance_id": "rack"}
    assert broker.commit_in_transaction(5, version, **fields) is ErrorCode.fenced_instance_id


@pytest.mark.parametrize("version", range(3))
def test_old_producers_name_no_member_and_may_commit_for_a_group_that_has_some(
    broker: GroupsFixture, version: int
) -> None:
    broker.member()
    assert broker.commit_in_transaction(5, version) is ErrorCode.none


@pytest.mark.parametrize("version", txn_offset_commit.KEY.versions)
def test_each_commit_that_is_no_good_has_its_code(broker: GroupsFixture, version: int) -> None:
    assert broker.commit_in_transaction(5, version, partition=3) is ErrorCode.unknown_topic_or_partition
    assert broker.commit_in_transaction(5, version, topic="trains") is ErrorCode.unknown_topic_or_partition
    assert broker.commit_in_transaction(5, version, metadata="x" * 11) is ErrorCode.offset_metadata_too_large
    assert broker.commit_in_transaction(5, version, group_id="") is ErrorCode.invalid_group_id
    assert broker.commit_in_transaction(5, version, metadata=None) is ErrorCode.none
    broker.topic.refusal = ErrorCode.message_too_large
    assert broker.commit_in_transaction(5, version) is ErrorCode.invalid_commit_offset_size
    broker.topic.refusal = ErrorCode.coordinator_not_available
    assert broker.commit_in_transaction(5, version) is ErrorCode.coordinator_not_available


@pytest.mark.parametrize("version", txn_offset_commit.KEY.versions)
def test_a_group_that_is_not_here_or_not_loaded_yet_is_not_coordinated(broker: GroupsFixture, version: int) -> None:
    broker.commit(5)
    broker.topic.read_gate.clear()
    broker.restart()
    loading = ErrorCode.coordinator_load_in_progress if version >= 2 else ErrorCode.coordinator_not_available
    assert broker.commit_in_transaction(5, version) is loading
    broker.topic.read_gate.set()
    broker.until_loaded()
    broker.topic.elect(PARTITION, 2)
    assert broker.commit_in_transaction(5, version) is ErrorCode.not_coordinator


@pytest.mark.parametrize("version", txn_offset_commit.KEY.versions)
@pytest.mark.parametrize(
    ("code", "known_from"),
    [
        (ErrorCode.invalid_producer_epoch, 0),
        (ErrorCode.invalid_producer_id_mapping, 0),
        (ErrorCode.invalid_txn_state, 0),
        (ErrorCode.transaction_abortable, 0),
        (ErrorCode.concurrent_transactions, 5),
        (ErrorCode.network_exception, 6),
        (ErrorCode.not_coordinator, 6),
        (ErrorCode.coordinator_not_available, 6),
    ],
)
def test_a_refusal_of_the_transaction_coordinator_is_one_that_the_client_understands(
    broker: GroupsFixture, version: int, code: ErrorCode, known_from: int
) -> None:
    """A client that gets NOT_COORDINATOR would look for another group coordinator."""
    broker.verifier.code = code
    loading = ErrorCode.coordinator_load_in_progress if version >= 2 else ErrorCode.coordinator_not_available
    assert broker.commit_in_transaction(5, version) is (code if version >= known_from else loading)
    assert broker.topic.records(PARTITION) == []


def test_a_producer_that_was_fenced_on_the_partition_is_refused(broker: GroupsFixture) -> None:
    assert broker.commit_in_transaction(5, producer_epoch=3) is ErrorCode.none
    assert broker.commit_in_transaction(5, producer_epoch=2) is ErrorCode.invalid_producer_epoch


def test_of_a_partition_that_is_named_twice_the_last_offset_counts(broker: GroupsFixture) -> None:
    partitions = tuple(
        {"partition_index": index % 3, "committed_offset": index, "committed_metadata": ""} for index in range(9)
    )
    fields = {"transactional_id": "t", "group_id": GROUP, "producer_id": 7, "producer_epoch": 0, "generation_id": -1}
    topics = ({"name": "flights", "partitions": partitions},)
    answer = broker.ask(txn_offset_commit, 5, topics=topics, **fields)
    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.none}
    broker.end_transaction()
    assert [row.committed_offset for row in broker.fetch(9).topics[0].partitions] == [6, 7, 8]
