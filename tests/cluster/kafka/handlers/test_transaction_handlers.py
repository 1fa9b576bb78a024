"""The transaction APIs in every version, and every error code of the coordinator."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from offsets_in_memory import FIRST
from transaction_handlers import ID, NOW_MS, TransactionHandlers

from cordwood.cluster.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_transactions,
)

FLIGHTS = ("flights", 0)


@pytest.fixture
def broker() -> Iterator[TransactionHandlers]:
    fixture = TransactionHandlers()
    yield fixture
    fixture.close()


def fenced_in(version: int, first: int) -> ErrorCode:
    """Return the code for a fenced producer in a version of an API."""
    return ErrorCode.producer_fenced if version >= first else ErrorCode.invalid_producer_epoch


# InitProducerId.


@pytest.mark.parametrize("version", init_producer_id.KEY.versions)
def test_each_producer_of_an_id_has_an_epoch(broker: TransactionHandlers, version: int) -> None:
    answers = [broker.init(version) for _ in range(3)]
    assert [(answer.error_code, answer.producer_id, answer.producer_epoch) for answer in answers] == [
        (ErrorCode.none, 0, epoch) for epoch in range(3)
    ]


@pytest.mark.parametrize("version", init_producer_id.KEY.versions)
def test_an_id_may_not_be_empty(broker: TransactionHandlers, version: int) -> None:
    answer = broker.init(version, transactional_id="")
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.invalid_request, -1, -1)


@pytest.mark.parametrize("milliseconds", [-1, 0, 900_001])
def test_a_timeout_out_of_range_is_refused(broker: TransactionHandlers, milliseconds: int) -> None:
    answer = broker.init(transaction_timeout=timedelta(milliseconds=milliseconds))
    assert answer.error_code is ErrorCode.invalid_transaction_timeout


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_goes_on_has_the_next_epoch_once(broker: TransactionHandlers, version: int) -> None:
    broker.init()
    for _ in range(2):
        answer = broker.init(version, producer_id=0, producer_epoch=0)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 1)
    broker.init()
    answer = broker.init(version, producer_id=0, producer_epoch=0)
    assert answer.error_code is fenced_in(version, 4)


@pytest.mark.parametrize("half", [{"producer_id": 0}, {"producer_epoch": 0}])
def test_half_of_a_producer_is_refused(broker: TransactionHandlers, half: dict[str, int]) -> None:
    broker.init()
    assert broker.init(**half).error_code is ErrorCode.invalid_request


def test_an_ongoing_transaction_is_aborted_first(broker: TransactionHandlers) -> None:
    broker.add(3, broker.producer(), FLIGHTS)
    assert broker.init().error_code is ErrorCode.concurrent_transactions
    broker.runner.run(settled(broker))
    assert broker.markers == [("flights", 0, False)]
    assert broker.init().producer_epoch == 2


# FindCoordinator.


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_an_id_is_found(broker: TransactionHandlers, version: int) -> None:
    assert version in find_coordinator.KEY.versions
    for key, code in (("pay", ErrorCode.none), ("", ErrorCode.invalid_request)):
        answer = broker.ask(find_coordinator, version, key=key, key_type=1, coordinator_keys=(key,))
        found = answer.coordinators[0] if version >= 4 else answer
        assert found.error_code is code
        assert found.node_id == (1 if code is ErrorCode.none else -1)


@pytest.mark.parametrize("key_type", [3, -1])
def test_other_keys_have_no_coordinator(broker: TransactionHandlers, key_type: int) -> None:
    answer = broker.ask(find_coordinator, 6, key_type=key_type, coordinator_keys=("pay",))
    assert answer.coordinators[0].error_code is ErrorCode.invalid_request


# AddPartitionsToTxn.


@pytest.mark.parametrize("version", add_partitions_to_txn.KEY.versions)
def test_partitions_are_added_in_every_version(broker: TransactionHandlers, version: int) -> None:
    producer = broker.producer()
    assert broker.add(version, producer, FLIGHTS, ("flights", 2)) == [ErrorCode.none] * 2
    assert broker.add(version, producer, FLIGHTS) == [ErrorCode.none]
    assert broker.add(version, producer) == []


@pytest.mark.parametrize("version", add_partitions_to_txn.KEY.versions)
def test_nothing_is_added_if_a_partition_is_missing(broker: TransactionHandlers, version: int) -> None:
    producer = broker.producer()
    codes = broker.add(version, producer, FLIGHTS, ("flights", 3), ("trains", 0))
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes == [ErrorCode.operation_not_attempted, unknown, unknown]
    assert broker.end(4, producer).error_code is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("version", add_partitions_to_txn.KEY.versions)
def test_only_the_current_producer_adds(broker: TransactionHandlers, version: int) -> None:
    producer = broker.producer()
    for changes, code in (
        ({"producer_epoch": 1}, fenced_in(version, 2)),
        ({"producer_epoch": -1}, fenced_in(version, 2)),
        ({"producer_id": 9}, ErrorCode.invalid_producer_id_mapping),
        ({"transactional_id": "other"}, ErrorCode.invalid_producer_id_mapping),
        ({"transactional_id": ""}, ErrorCode.invalid_request),
    ):
        assert broker.add(version, {**producer, **changes}, FLIGHTS) == [code]


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_partitions_without_adding_them(broker: TransactionHandlers, version: int) -> None:
    producer = broker.producer()
    broker.add(3, producer, FLIGHTS)
    codes = broker.add(version, producer, FLIGHTS, ("flights", 1), verify_only=True)
    assert codes == [ErrorCode.none, ErrorCode.transaction_abortable]
    other = {**producer, "producer_epoch": 1}
    assert broker.add(version, other, FLIGHTS, verify_only=True) == [ErrorCode.producer_fenced]
    other = {**producer, "producer_id": 9}
    assert broker.add(version, other, FLIGHTS, verify_only=True) == [ErrorCode.invalid_producer_id_mapping]
    other = {**producer, "transactional_id": ""}
    assert broker.add(version, other, FLIGHTS, verify_only=True) == [ErrorCode.invalid_request]
    broker.acknowledges = False
    broker.end(4, producer)
    assert broker.add(version, producer, FLIGHTS, verify_only=True) == [ErrorCode.concurrent_transactions]


def test_brokers_ask_for_many_transactions_at_once(broker: TransactionHandlers) -> None:
    producer = broker.producer()
    topics = ({"name": "flights", "partitions": (0,)},)
    transactions = ({**producer, "topics": topics}, {**producer, "transactional_id": "other", "topics": topics})
    answer = broker.ask(add_partitions_to_txn, 5, transactions=transactions)
    codes = [
        (result.transactional_id, result.topic_results[0].results_by_partition[0].partition_error_code)
        for result in answer.results_by_transaction
    ]
    assert codes == [(ID, ErrorCode.none), ("other", ErrorCode.invalid_producer_id_mapping)]


# AddOffsetsToTxn.


@pytest.mark.parametrize("version", add_offsets_to_txn.KEY.versions)
def test_a_groups_offsets_are_added(broker: TransactionHandlers, version: int) -> None:
    producer = broker.producer()
    assert broker.add_offsets(version, producer) is ErrorCode.none
    (topic,) = describe(broker).topics
    partition = broker.runner.run(broker.services.groups.place("group"))
    assert (topic.topic, topic.partitions) == ("__consumer_offsets", (partition,))


@pytest.mark.parametrize("version", add_offsets_to_txn.KEY.versions)
def test_only_the_current_producer_adds_offsets(broker: TransactionHandlers, version: int) -> None:
    producer = broker.producer()
    for changes, code in (
        ({"producer_epoch": 1}, fenced_in(version, 2)),
        ({"producer_id": 9}, ErrorCode.invalid_producer_id_mapping),
        ({"transactional_id": ""}, ErrorCode.invalid_request),
    ):
        assert broker.add_offsets(version, {**producer, **changes}) is code
    assert broker.add_offsets(version, producer, "g" * 32_001) is ErrorCode.invalid_group_id


# EndTxn.


@pytest.mark.parametrize("version", end_txn.KEY.versions)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_in_every_version(broker: TransactionHandlers, version: int, commit: bool) -> None:
    producer = broker.producer()
    broker.add(5 if version == 5 else 3, producer, FLIGHTS)
    for _ in range(2):
        # The second one is a repeated request, after the markers.
        answer = broker.end(version, producer, commit=commit)
        assert answer.error_code is ErrorCode.none
        if version == 5:
            assert (answer.producer_id, answer.producer_epoch) == (0, 1)
        broker.runner.run(settled(broker))
    assert broker.markers == [("flights", 0, commit)]
    assert broker.end(version, producer, commit=not commit).error_code is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("version", end_txn.KEY.versions)
def test_only_the_current_producer_ends(broker: TransactionHandlers, version: int) -> None:
    producer = broker.producer()
    broker.add(3, producer, FLIGHTS)
    for changes, code in (
        ({"producer_epoch": 1}, fenced_in(version, 2)),
        ({"producer_id": 9}, ErrorCode.invalid_producer_id_mapping),
        ({"transactional_id": "other"}, ErrorCode.invalid_producer_id_mapping),
        ({"transactional_id": ""}, ErrorCode.invalid_request),
    ):
        assert broker.end(version, {**producer, **changes}).error_code is code


@pytest.mark.parametrize("version", end_txn.KEY.versions)
def test_only_version_2_aborts_an_empty_transaction(broker: TransactionHandlers, version: int) -> None:
    producer = broker.producer()
    assert broker.end(version, producer).error_code is ErrorCode.invalid_txn_state
    answer = broker.end(version, producer, commit=False)
    assert answer.error_code is (ErrorCode.none if version == 5 else ErrorCode.invalid_txn_state)


@pytest.mark.parametrize("version", end_txn.KEY.versions)
def test_while_markers_are_missing_the_end_is_concurrent(broker: TransactionHandlers, version: int) -> None:
    broker.acknowledges = False
    producer = broker.producer()
    broker.add(5 if version == 5 else 3, producer, FLIGHTS)
    assert broker.end(version, producer).error_code is ErrorCode.none
    assert broker.end(version, producer).error_code is ErrorCode.concurrent_transactions
    assert broker.end(version, producer, commit=False).error_code is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("version", range(5))
def test_a_request_on_an_older_connection_is_refused(broker: TransactionHandlers, version: int) -> None:
    producer = broker.producer()
    topics = ({"name": "flights", "partitions": (0,)},)
    fields = {f"v3_and_below_{name}": value for name, value in {**producer, "topics": topics}.items()}

    def add(connection: int) -> ErrorCode:
        results = broker.ask(add_partitions_to_txn, 3, connection=connection, **fields).results_by_topic_v3_and_below
        code: ErrorCode = results[0].results_by_partition[0].partition_error_code
        return code

    def end(connection: int) -> ErrorCode:
        code: ErrorCode = broker.ask(end_txn, version, connection=connection, **producer, committed=True).error_code
        return code

    assert add(8) is ErrorCode.none
    assert end(9) is ErrorCode.none
    broker.runner.run(settled(broker))
    assert add(8) is ErrorCode.invalid_txn_state
    assert add(9) is ErrorCode.none
    assert end(8) is ErrorCode.invalid_txn_state
    offsets = broker.ask(add_offsets_to_txn, 3, connection=8, **producer, group_id="group")
    assert offsets.error_code is ErrorCode.invalid_txn_state
    assert end(10) is ErrorCode.none


def test_another_broker_coordinates(broker: TransactionHandlers) -> None:
    producer = broker.producer()
    for index in range(len(broker.topic.partitions)):
        broker.topic.elect(index, 2)
    code = ErrorCode.not_coordinator
    assert broker.init().error_code is code
    assert broker.add(3, producer, FLIGHTS) == [code]
    assert broker.add(5, producer, FLIGHTS, verify_only=True) == [code]
    assert broker.add_offsets(4, producer) is code
    assert broker.end(5, producer).error_code is code
    states = broker.ask(describe_transactions, 0, transactional_ids=(ID,)).transaction_states
    assert [state.error_code for state in states] == [code]


def codes_of_all(broker: TransactionHandlers, producer: dict[str, Any]) -> dict[str, ErrorCode]:
    """Return the code of a request to each API that changes a transaction."""
    return {
        "init": broker.init().error_code,
        "add": broker.add(3, producer, FLIGHTS)[0],
        "add for a client of version 2": broker.add(5, producer, FLIGHTS)[0],
        "offsets": broker.add_offsets(4, producer),
        "end": broker.end(4, producer).error_code,
    }


def test_while_markers_are_missing_no_other_transaction_begins(broker: TransactionHandlers) -> None:
    broker.acknowledges = False
    producer = broker.producer()
    broker.add(3, producer, FLIGHTS)
    assert broker.end(4, producer).error_code is ErrorCode.none
    assert set(codes_of_all(broker, producer).values()) == {ErrorCode.concurrent_transactions}


def test_a_decision_that_cannot_be_written_is_not_made(broker: TransactionHandlers) -> None:
    producer = broker.producer()
    broker.add(3, producer, ("flights", 1))
    broker.topic.refusal = ErrorCode.coordinator_not_available
    assert set(codes_of_all(broker, producer).values()) == {ErrorCode.coordinator_not_available}
    broker.topic.refusal = None
    assert describe(broker).transaction_state == "Ongoing"
    assert broker.end(4, producer).error_code is ErrorCode.none


def test_while_the_coordinator_loads_it_knows_nothing(broker: TransactionHandlers) -> None:
    producer = broker.producer()
    broker.topic.read_gate.clear()
    for index in range(len(broker.topic.partitions)):
        broker.topic.elect(index, FIRST)
    code = ErrorCode.coordinator_load_in_progress
    assert set(codes_of_all(broker, producer).values()) == {code}
    assert broker.add(5, producer, FLIGHTS, verify_only=True) == [code]
    assert describe(broker).error_code is code
    answer = broker.ask(list_transactions, 2)
    assert (answer.error_code, answer.transaction_states) == (code, ())
    broker.topic.read_gate.set()


# DescribeTransactions and ListTransactions.


def describe(broker: TransactionHandlers) -> Any:
    (state,) = broker.ask(describe_transactions, 0, transactional_ids=(ID,)).transaction_states
    return state


async def settled(broker: TransactionHandlers) -> None:
    while len(broker.services.transactions._markers.queue):
        await asyncio.sleep(0)


def test_a_transaction_is_described(broker: TransactionHandlers) -> None:
    broker.add(3, broker.producer(), FLIGHTS, ("flights", 2))
    answer = broker.ask(describe_transactions, 0, transactional_ids=(ID, "other", "", ID))
    state, unknown, empty = answer.transaction_states
    assert (state.error_code, state.transactional_id, state.transaction_state) == (ErrorCode.none, ID, "Ongoing")
    assert state.transaction_timeout == timedelta(seconds=60)
    assert state.transaction_start_time == datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert (state.producer_id, state.producer_epoch) == (0, 0)
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("flights", (0, 2))]
    assert unknown.error_code is ErrorCode.transactional_id_not_found
    assert empty.error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", list_transactions.KEY.versions)
def test_transactions_are_listed_by_state_and_producer(broker: TransactionHandlers, version: int) -> None:
    broker.add(3, broker.producer(), FLIGHTS)
    broker.init(transactional_id="other")

    def listed(**filters: Any) -> list[tuple[str, int, str]]:
        answer = broker.ask(list_transactions, version, **filters)
        assert answer.error_code is ErrorCode.none
        return sorted(
            (row.transactional_id, row.producer_id, row.transaction_state) for row in answer.transaction_states
        )

    pay, other = (ID, 0, "Ongoing"), ("other", 1, "Empty")
    assert listed() == [other, pay]
    assert listed(state_filters=("Ongoing",)) == [pay]
    assert listed(producer_id_filters=(1, 7)) == [other]
    assert listed(state_filters=("Sleeping",)) == []
    broker.now_ms += 1000
    assert listed(duration_filter=500) == ([pay] if version >= 1 else [other, pay])
    assert listed(duration_filter=1000) == ([] if version >= 1 else [other, pay])
    assert listed(transactional_id_pattern="o.*r") == ([other] if version >= 2 else [other, pay])


def test_filters_that_mean_nothing_are_named(broker: TransactionHandlers) -> None:
    answer = broker.ask(list_transactions, 2, state_filters=("Ongoing", "Sleeping"))
    assert answer.unknown_state_filters == ("Sleeping",)
    answer = broker.ask(list_transactions, 2, transactional_id_pattern="(")
    assert answer.error_code is ErrorCode.invalid_regular_expression
