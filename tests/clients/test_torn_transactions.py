"""Delayed requests of version 1 transactions, over sockets: they do not land in the next transaction."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from admin_fixture import message_of
from broker_fixture import RunningBroker, wait_until
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from cordwood.client.blocking import BlockingConnection, connect
from cordwood.cluster.kafka.api_keys import ApiKey

WAIT_S = 30.0
NOT_YET = (
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class Producer:
    """A producer that may send each request on either of two connections."""

    def __init__(self, first: BlockingConnection, second: BlockingConnection, topic: str) -> None:
        self.first, self.second, self._topic = first, second, topic
        self._fields: dict[str, Any] = {"transactional_id": topic}
        self._ask(first, ApiKey.FIND_COORDINATOR, 3, key=topic, key_type=1)
        wait_until(self._init, WAIT_S, "a producer id")

    def add(self, connection: BlockingConnection) -> ErrorCode:
        fields = {**self._fields, "topics": ({"name": self._topic, "partitions": (0,)},)}
        named = {f"v3_and_below_{name}": value for name, value in fields.items()}
        answer = self._ask(connection, ApiKey.ADD_PARTITIONS_TO_TXN, 0, **named)
        code: ErrorCode = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return code

    def commit(self, connection: BlockingConnection) -> ErrorCode:
        code: ErrorCode = self._ask(connection, ApiKey.END_TXN, 1, **self._fields, committed=True).error_code
        return code

    def state(self) -> str:
        (state,) = self._ask(
            self.first, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=(self._topic,)
        ).transaction_states
        name: str = state.transaction_state
        return name

    def _init(self) -> bool:
        answer = self._ask(
            self.first, ApiKey.INIT_PRODUCER_ID, 0, **self._fields, transaction_timeout=timedelta(seconds=60)
        )
        assert answer.error_code in (ErrorCode.none, *NOT_YET)
        self._fields |= {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
        return answer.error_code is ErrorCode.none

    def _ask(self, connection: BlockingConnection, api: ApiKey, version: int, **fields: Any) -> Any:
        return connection.ask(message_of(load_request_schema(api, version), fields))


@pytest.fixture
def producer(shared: RunningBroker, topic: str) -> Iterator[Producer]:
    with connect(shared.bootstrap, WAIT_S) as first, connect(shared.bootstrap, WAIT_S) as second:
        yield Producer(first, second, topic)


def test_a_delayed_request_on_an_older_connection_is_refused(producer: Producer) -> None:
    assert producer.add(producer.first) is ErrorCode.none
    assert producer.commit(producer.second) is ErrorCode.none
    wait_until(lambda: producer.state() == "CompleteCommit", WAIT_S, "the end of the transaction")
    assert producer.add(producer.first) is ErrorCode.invalid_txn_state
    assert producer.add(producer.second) is ErrorCode.none
    assert producer.commit(producer.first) is ErrorCode.invalid_txn_state
    assert producer.state() == "Ongoing"
    assert producer.commit(producer.second) is ErrorCode.none
