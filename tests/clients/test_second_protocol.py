"""Transactions of the second protocol (KIP-890), which no Python client speaks, by requests as Java's."""

from collections.abc import Iterator
from typing import Any

import pytest
from admin_fixture import message_of
from broker_fixture import RunningBroker
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from topics import make_topic
from transactional_clients import committed_offset, read_confluent

from cordwood.chaos.live.broker_views import (
    GROUP_KEY,
    TRANSACTION_KEY,
    addresses_seen_by,
    coordinator_request,
    coordinator_seen_by,
)
from cordwood.chaos.live.rounds import probe_of
from cordwood.chaos.live.second_protocol import ClusterRoutes, Produced, SecondProtocolClient, initialized
from cordwood.client.blocking import BlockingConnection, connect
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.records import Record
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

WAIT_S = 30.0
GROUP = "a group"


class OneBroker:
    """The routes of a cluster of one broker: everything goes on one connection."""

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection

    def leader(self, _place: TopicPartition, request: Any) -> Any:
        return self._connection.ask(request)

    def coordinator(self, _key_type: int, _key: str, request: Any) -> Any:
        return self._connection.ask(request)


class Client:
    """A client of one topic, whose name is its transactional id. It sends one request after the other."""

    def __init__(self, connection: BlockingConnection, topic: str) -> None:
        self._connection, self.topic = connection, topic
        self._requests = SecondProtocolClient(OneBroker(connection), topic)

    def ask(self, api: ApiKey, version: int, **fields: Any) -> Any:
        return self._connection.ask(message_of(load_request_schema(api, version), fields))

    def init(self) -> ProducerIdAndEpoch:
        """Return the next producer id and epoch, once no transaction is open any more."""
        while isinstance(answer := self._requests.init(), ErrorCode):
            assert answer in (ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress)
        return answer

    def produce(self, producer: ProducerIdAndEpoch, sequence: int, value: bytes, partition: int = 0) -> ErrorCode:
        """Append a record without adding its partition first, again while the transaction before ends."""
        place, record = TopicPartition(self.topic, partition), Record(0, 1_700_000_000_000, None, value)
        while True:
            code = self._requests.produce(producer, sequence, place, record).code
            if code not in (ErrorCode.concurrent_transactions, ErrorCode.not_enough_replicas):
                return code

    def commit_offset(self, producer: ProducerIdAndEpoch, offset: int) -> ErrorCode:
        return self._requests.commit_offset(producer, GROUP, TopicPartition(self.topic, 0), offset)

    def end(self, producer: ProducerIdAndEpoch, *, is_commit: bool) -> ProducerIdAndEpoch | ErrorCode:
        """End the transaction. Return the producer id and epoch of the next one, or an error code."""
        return self._requests.end(producer, is_commit=is_commit)


@pytest.fixture
def client(shared: RunningBroker, request: pytest.FixtureRequest) -> Iterator[Client]:
    topic = make_topic(shared.bootstrap, request.node.name.replace("_", "-"), 2)
    admin = connect(shared.bootstrap, WAIT_S)
    for key_type, key in ((TRANSACTION_KEY, topic), (GROUP_KEY, GROUP)):
        while admin.ask(coordinator_request(key_type, key)).coordinators[0].error_code is not ErrorCode.none:
            pass
    with connect(shared.bootstrap, WAIT_S) as connection:
        yield Client(connection, topic)
    admin.close()


def test_the_cluster_announces_the_second_protocol(client: Client) -> None:
    answer = client.ask(ApiKey.API_VERSIONS, 4, client_software_name="test", client_software_version="1")
    assert [(f.name, f.min_version, f.max_version) for f in answer.supported_features] == [
        ("metadata.version", 1, 3),
        ("transaction.version", 0, 2),
        ("group.version", 0, 1),
        ("share.version", 0, 1),
    ]
    levels = [("metadata.version", 3), ("transaction.version", 2), ("group.version", 1), ("share.version", 1)]
    assert [(f.name, f.max_version_level) for f in answer.finalized_features] == levels
    newest = {api.api_key: api.max_version for api in answer.api_keys}
    assert newest[ApiKey.PRODUCE] >= 12
    assert newest[ApiKey.END_TXN] >= 5
    assert newest[ApiKey.TXN_OFFSET_COMMIT] >= 5
    assert newest[ApiKey.INIT_PRODUCER_ID] == 5, "version 6 is not stable in Kafka (KIP-939)"


def test_the_first_append_adds_its_partition_and_each_end_raises_the_epoch(
    shared: RunningBroker, client: Client
) -> None:
    producer = client.init()
    for number, is_commit in enumerate((True, False, True, True)):
        assert client.produce(producer, 0, f"{number}a".encode()) is ErrorCode.none
        assert client.produce(producer, 1, f"{number}b".encode()) is ErrorCode.none
        assert client.produce(producer, 0, b"", partition=1) is ErrorCode.none
        assert client.commit_offset(producer, number) is ErrorCode.none
        following = client.end(producer, is_commit=is_commit)
        assert following == ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
        assert client.end(producer, is_commit=is_commit) == following, (
            "the answer was lost, and the request comes again"
        )
        assert client.produce(producer, 2, b"too late") is ErrorCode.invalid_producer_epoch
        producer = following
    assert client.produce(producer, 0, b"end") is ErrorCode.none
    client.end(producer, is_commit=True)
    values = read_confluent(shared.bootstrap, client.topic, committed=True)
    assert values == [f"{number}{which}".encode() for number in (0, 2, 3) for which in "ab"]
    assert committed_offset(shared.bootstrap, GROUP, client.topic) == 3


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(shared: RunningBroker, client: Client) -> None:
    first = client.init()
    assert client.produce(first, 0, b"lost") is ErrorCode.none
    second = client.init()
    assert second.epoch > first.epoch
    assert client.produce(first, 1, b"lost") is ErrorCode.invalid_producer_epoch
    assert client.end(first, is_commit=True) is ErrorCode.producer_fenced
    assert client.produce(second, 0, b"kept") is client.produce(second, 1, b"end") is ErrorCode.none
    assert client.end(second, is_commit=True) == ProducerIdAndEpoch(second.producer_id, second.epoch + 1)
    assert read_confluent(shared.bootstrap, client.topic, committed=True) == [b"kept"]


def test_an_empty_transaction_is_aborted_but_not_committed(client: Client) -> None:
    producer = client.init()
    assert client.end(producer, is_commit=True) is ErrorCode.invalid_txn_state
    following = client.end(producer, is_commit=False)
    assert following == ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    assert client.produce(following, 0, b"end") is ErrorCode.none
    client.end(following, is_commit=True)


def test_a_cluster_is_asked_at_its_leaders_and_coordinators(shared: RunningBroker, client: Client) -> None:
    routes = ClusterRoutes(shared.bootstrap)
    requests = SecondProtocolClient(routes, probe_of(3, 50))
    producer = initialized(requests, routes, WAIT_S)
    assert producer is not None
    place, record = TopicPartition(client.topic, 1), Record(0, 1_700_000_000_000, None, b"routed")
    assert requests.produce(producer, 0, place, record) == Produced(ErrorCode.none, 0)
    routes.forget()
    assert requests.end(producer, is_commit=True) == ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    routes.close()
    assert coordinator_seen_by(shared.bootstrap, probe_of(3, 50)) in addresses_seen_by(shared.bootstrap)
