"""A transactional producer with the offset of its orders, with one interface for both transaction protocols."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Place
from kio.schema.errors import ErrorCode

from cordwood.chaos.history import UNKNOWN
from cordwood.chaos.live.second_protocol import PAUSE_S, ClusterRoutes, SecondProtocolClient
from cordwood.chaos.live.security import client_settings
from cordwood.storage.records import Record
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

CALL_S = 5.0
OFFSETS_S = 8.0
GIVE_UP_S = 45.0
"""How long one operation is tried again; longer than any fault of a run keeps the cluster from answering."""

Answered = Callable[[int, int], None]
"""Takes the error code of a send, 0 for none, and the offset."""
Answer = TypeVar("Answer")


class MustAbort(Exception):
    """The transaction cannot be committed any more, and can be aborted."""


class SessionLost(Exception):
    """The producer cannot go on: it is fenced, or does not know how its transaction ended."""


class Orders(NamedTuple):
    """Where a client's progress is committed: a group, and a partition that no other client commits."""

    group: str
    place: TopicPartition


def transactional_id_of(topic: str, number: int) -> str:
    """Return the transactional id of a client of a run, which its topic names."""
    return f"{topic}-client-{number}"


def orders_topic_of(topic: str) -> str:
    """Return the topic whose offsets are the clients' progress. Each client has a partition; none has records."""
    return f"{topic}-orders"


def orders_of(topic: str, number: int) -> Orders:
    """Return where a client's progress is committed."""
    return Orders(transactional_id_of(topic, number), TopicPartition(orders_topic_of(topic), number))


class TransactionalProducer(Protocol):
    """A producer with a transactional id. Every method raises MustAbort and SessionLost."""

    def begin_session(self) -> ProducerIdAndEpoch:
        """Fence all earlier producers with this id. Return the identity, with UNKNOWN for what it does not know."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, partition: int, record: Record, answered: Answered) -> None:
        """Send a record; `answered` is called before `flush` returns."""

    def flush(self) -> None:
        """Wait until all records have been answered."""

    def send_offset(self, offset: int) -> None:
        """Commit the offset of the orders with the transaction."""

    def end(self, *, is_commit: bool) -> None:
        """Commit or abort the transaction."""

    def close(self) -> None:
        """Close the connections. An open transaction stays open."""


def committed_offset(bootstrap: str, orders: Orders) -> int:
    """Return the committed offset of the orders, once it is stable; 0 for none. Raises SessionLost."""
    # librdkafka's default isolation level is read_committed, and it then asks for stable offsets.
    consumer = Consumer({**client_settings(bootstrap), "group.id": orders.group})
    try:
        place = _until_answered(lambda: consumer.committed([Place(*orders.place)], CALL_S)[0], is_query=True)
    finally:
        consumer.close()
    return max(place.offset, 0)


class FirstProtocolProducer:
    """librdkafka's transactions: partitions are added before they are written to."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        transactional_id: str,
        orders: Orders,
        timeout_ms: int,
        settings: Mapping[str, str],
    ) -> None:
        self._topic, self._orders = topic, orders
        common = client_settings(bootstrap)
        identity = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        self._producer = Producer({**common, **settings, **identity})
        self._member = Consumer({**common, "group.id": orders.group})

    def begin_session(self) -> ProducerIdAndEpoch:
        _until_answered(lambda: self._producer.init_transactions(CALL_S))
        return ProducerIdAndEpoch(UNKNOWN, UNKNOWN)

    def begin(self) -> None:
        _until_answered(self._producer.begin_transaction)

    def send(self, partition: int, record: Record, answered: Answered) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            answered(error.code() if error is not None else 0, UNKNOWN if offset is None else offset)

        try:
            self._producer.produce(
                self._topic,
                record.value,
                key=record.key,
                partition=partition,
                on_delivery=delivered,
                timestamp=record.timestamp,
                headers=list(record.headers),
            )
        except KafkaException as error:
            answered(KafkaError._QUEUE_FULL, UNKNOWN)
            # librdkafka takes no record in a transaction that failed. Whether it can be aborted shows the abort.
            raise MustAbort(str(error)) from error

    def flush(self) -> None:
        if self._producer.flush(GIVE_UP_S):
            raise SessionLost("records without an answer")

    def send_offset(self, offset: int) -> None:
        places, member = [Place(*self._orders.place, offset)], self._member.consumer_group_metadata()
        producer = self._producer
        _left_after(
            OFFSETS_S, lambda: _until_answered(lambda: producer.send_offsets_to_transaction(places, member, CALL_S))
        )

    def end(self, *, is_commit: bool) -> None:
        end = self._producer.commit_transaction if is_commit else self._producer.abort_transaction
        _until_answered(lambda: end(CALL_S))

    def close(self) -> None:
        """Drop the producer; librdkafka closes its connections, and sends nothing for an open transaction."""
        self._member.close()
        del self._producer


def _left_after(seconds: float, call: Callable[[], object]) -> None:
    """Make a call in a thread, and leave it there after some seconds. Raises MustAbort, SessionLost.

    librdkafka's `send_offsets_to_transaction` ignores its timeout, and waits without end for a group coordinator that
    has left the metadata (issues 5456 and 5511).
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except (MustAbort, SessionLost) as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise SessionLost(f"no answer within {seconds:.0f} s")
    for failure in failures:
        raise failure


def _until_answered(call: Callable[[], Answer], *, is_query: bool = False) -> Answer:
    """Call librdkafka until the call succeeds; a query after any error. Raises MustAbort, SessionLost."""
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        try:
            return call()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.txn_requires_abort():
                raise MustAbort(str(reason)) from error
            if not (reason.retriable() or is_query) or time.monotonic() > deadline:
                raise SessionLost(str(reason)) from error
        time.sleep(PAUSE_S)


TRY_ELSEWHERE = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.leader_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.network_exception,
    }
)
TRY_AGAIN = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
    }
)
NO_COMMIT = frozenset(
    {
        ErrorCode.transaction_abortable,
        ErrorCode.invalid_txn_state,
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
    }
)
"""Errors of an append or an offset after which the client aborts."""


class SecondProtocolProducer:
    """Transactions of KIP-890 part 2: appends add their partitions, and each end raises the epoch."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str, orders: Orders, timeout_ms: int) -> None:
        self._routes = ClusterRoutes(bootstrap)
        self._client = SecondProtocolClient(self._routes, transactional_id, timeout_ms)
        self._topic, self._orders = topic, orders
        self._producer = ProducerIdAndEpoch(UNKNOWN, UNKNOWN)
        self._sequences: dict[int, int] = {}
        self._is_empty = True

    def begin_session(self) -> ProducerIdAndEpoch:
        answer = self._until_answered(self._client.init, frozenset())
        self._producer = answer
        return self._producer

    def begin(self) -> None:
        self._sequences.clear()
        self._is_empty = True

    def send(self, partition: int, record: Record, answered: Answered) -> None:
        sequence, place = self._sequences.get(partition, 0), TopicPartition(self._topic, partition)
        self._is_empty = False
        offset = UNKNOWN

        def append() -> ErrorCode:
            nonlocal offset
            code, offset = self._client.produce(self._producer, sequence, place, record)
            return code

        try:
            self._until_answered(append, NO_COMMIT)
        except (MustAbort, SessionLost):
            # An earlier try of the same append may have been written.
            answered(KafkaError._PURGE_INFLIGHT, UNKNOWN)
            raise
        self._sequences[partition] = sequence + 1
        answered(0, offset)

    def flush(self) -> None:
        """Do nothing: each send has been answered."""

    def send_offset(self, offset: int) -> None:
        self._is_empty = False
        self._until_answered(
            lambda: self._client.commit_offset(self._producer, self._orders.group, self._orders.place, offset),
            NO_COMMIT,
        )

    def end(self, *, is_commit: bool) -> None:
        assert not (is_commit and self._is_empty), "an empty transaction is not committed"
        abortable = frozenset({ErrorCode.transaction_abortable}) if is_commit else frozenset()
        self._producer = self._until_answered(lambda: self._client.end(self._producer, is_commit=is_commit), abortable)

    def close(self) -> None:
        self._routes.close()

    def _until_answered(self, ask: Callable[[], Any], abortable: frozenset[ErrorCode]) -> Any:
        """Ask until the answer is no error, or one that is final. Raises MustAbort, SessionLost."""
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            try:
                answer = ask()
            except OSError:
                answer = ErrorCode.network_exception
            if not isinstance(answer, ErrorCode) or answer is ErrorCode.none:
                return answer
            if answer in abortable:
                raise MustAbort(answer.name)
            if answer not in TRY_ELSEWHERE | TRY_AGAIN or time.monotonic() > deadline:
                raise SessionLost(answer.name)
            if answer in TRY_ELSEWHERE:
                self._routes.forget()
            time.sleep(PAUSE_S)
