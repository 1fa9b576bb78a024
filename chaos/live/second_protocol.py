"""Requests of the second transaction protocol (KIP-890), which no Python client has, as Java's client sends them."""

import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from kio.schema.end_txn.v5 import request as end_txn
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.produce.v12 import request as produce
from kio.schema.txn_offset_commit.v5 import request as txn_offset_commit

from cordwood.chaos.history import ACKS_ALL
from cordwood.chaos.live.broker_views import (
    GROUP_KEY,
    TRANSACTION_KEY,
    BrokerUnreachable,
    addresses_seen_by,
    coordinator_request,
    partitions_seen_by,
)
from cordwood.chaos.live.security import security
from cordwood.client.blocking import BlockingConnection, connect
from cordwood.storage.batch import TRANSACTIONAL
from cordwood.storage.records import Record, encode
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

APPEND_TIMEOUT = timedelta(seconds=3)
ANSWER_S = 4.0
PAUSE_S = 0.02


class NoRoute(OSError):
    """No broker, or no leader or coordinator, is known at the moment."""


class Connections(Protocol):
    """The connections on which requests go. Methods raise OSError if there is no answer."""

    def leader(self, place: TopicPartition, request: Any) -> Any:
        """Ask the leader of a partition."""

    def coordinator(self, key_type: int, key: str, request: Any) -> Any:
        """Ask the coordinator of a group or of a transactional id."""


class Produced(NamedTuple):
    """The answer to a Produce request for one partition."""

    code: ErrorCode
    offset: int


class SecondProtocolClient:
    """The requests of one transactional id, one after the other. Each method sends one request, and raises OSError."""

    def __init__(self, routes: Connections, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._routes, self._id = routes, transactional_id
        self._timeout = timedelta(milliseconds=timeout_ms)

    def init(self) -> ProducerIdAndEpoch | ErrorCode:
        """Return the next producer id and epoch, or an error code."""
        answer = self._coordinator(
            init_producer_id.InitProducerIdRequest(transactional_id=self._id, transaction_timeout=self._timeout)
        )
        code: ErrorCode = answer.error_code
        return code or ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def produce(self, producer: ProducerIdAndEpoch, sequence: int, place: TopicPartition, record: Record) -> Produced:
        """Append a record. The partition need not have been added to the transaction."""
        batch = encode(
            [record],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        partition = produce.PartitionProduceData(index=place.partition, records=batch)
        request = produce.ProduceRequest(
            transactional_id=self._id,
            acks=ACKS_ALL,
            timeout=APPEND_TIMEOUT,
            topic_data=(produce.TopicProduceData(name=place.topic, partition_data=(partition,)),),
        )
        answer = self._routes.leader(place, request).responses[0].partition_responses[0]
        return Produced(answer.error_code, answer.base_offset)

    def commit_offset(self, producer: ProducerIdAndEpoch, group: str, place: TopicPartition, offset: int) -> ErrorCode:
        """Commit the offset of a group as a part of the transaction, without adding the group to it first."""
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=""
        )
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=(txn_offset_commit.TxnOffsetCommitRequestTopic(name=place.topic, partitions=(partition,)),),
        )
        code: ErrorCode = self._routes.coordinator(GROUP_KEY, group, request).topics[0].partitions[0].error_code
        return code

    def end(self, producer: ProducerIdAndEpoch, *, is_commit: bool) -> ProducerIdAndEpoch | ErrorCode:
        """End the transaction. Return the producer id and epoch of the next one, or an error code."""
        answer = self._coordinator(
            end_txn.EndTxnRequest(
                transactional_id=self._id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=is_commit,
            )
        )
        code: ErrorCode = answer.error_code
        return code or ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def _coordinator(self, request: Any) -> Any:
        return self._routes.coordinator(TRANSACTION_KEY, self._id, request)


class ClusterRoutes:
    """The routes of a cluster, found by the brokers of `bootstrap` and kept until `forget`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap.split(",")
        self._connections: dict[str, BlockingConnection] = {}
        self._leaders: dict[TopicPartition, str] = {}
        self._coordinators: dict[tuple[int, str], str] = {}

    def leader(self, place: TopicPartition, request: Any) -> Any:
        """Ask the leader of a partition. Raises OSError."""
        if place not in self._leaders:
            self._leaders = self._asked(_leaders_seen_by)
        if place not in self._leaders:
            raise NoRoute(f"{place} has no leader")
        return self._ask(self._leaders[place], request)

    def coordinator(self, key_type: int, key: str, request: Any) -> Any:
        """Ask the coordinator of a group or of a transactional id. Raises OSError."""
        if (key_type, key) not in self._coordinators:
            answer = self._asked(lambda address: self._ask(address, coordinator_request(key_type, key)))
            [found] = answer.coordinators
            if found.error_code:
                raise NoRoute(f"{key}: {found.error_code.name}")
            self._coordinators[key_type, key] = f"{found.host}:{found.port}"
        return self._ask(self._coordinators[key_type, key], request)

    def forget(self) -> None:
        """Find every leader and coordinator again."""
        self._leaders.clear()
        self._coordinators.clear()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _asked(self, ask: Callable[[str], Any]) -> Any:
        """Ask the brokers of `bootstrap` in a random order until one answers. Raises NoRoute."""
        for address in random.sample(self._bootstrap, len(self._bootstrap)):
            try:
                return ask(address)
            except (BrokerUnreachable, OSError):
                continue
        raise NoRoute("no broker answers")

    def _ask(self, address: str, request: Any) -> Any:
        """Ask on the connection to an address, which is kept unless it fails. Raises OSError."""
        connection = self._connections.pop(address, None) or connect(address, ANSWER_S, security=security())
        try:
            answer = connection.ask(request)
        except OSError:
            connection.close()
            raise
        self._connections[address] = connection
        return answer


def _leaders_seen_by(address: str) -> dict[TopicPartition, str]:
    """Return the address of the leader of each partition that has one. Raises BrokerUnreachable."""
    addresses = addresses_seen_by(address)
    return {
        TopicPartition(view.topic, view.index): addresses[view.leader]
        for view in partitions_seen_by(address)
        if view.leader in addresses
    }


def initialized(client: SecondProtocolClient, routes: ClusterRoutes, seconds: float) -> ProducerIdAndEpoch | None:
    """Return the answer to InitProducerId, asked again until it is successful; None if it never is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            answer = client.init()
        except OSError:
            answer = ErrorCode.network_exception
        if isinstance(answer, ProducerIdAndEpoch):
            return answer
        routes.forget()
        time.sleep(PAUSE_S)
    return None
