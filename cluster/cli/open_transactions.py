"""Open transactions of partition leaders and coordinators, collected with kafka-python."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from cordwood.cluster.cli.admin import PATIENCE_S, answer_of
from cordwood.cluster.cli.client import no_such_topic
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.output import note
from cordwood.cluster.operations.hanging_transactions import CoordinatedTransaction, OpenTransaction
from cordwood.storage.types import NO_LEADER, NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from kafka import KafkaAdminClient
    from kafka.admin import ProducerState

ONE_BROKER_S = 5.0
"""Time for one broker to answer, so that a hung one does not delay the others for long."""
AT_ONCE_MAX = 500
"""Partitions or producer ids in one request."""
TRANSACTION_STATE = "__transaction_state"

Leaders = dict[TopicPartition, int]
T = TypeVar("T")


def listed(admin: "KafkaAdminClient", **filters: Any) -> tuple[dict[int, list[Any]], list[str]]:
    """Return the transactional ids that each broker lists, and why brokers did not answer."""
    from kafka.errors import RetriableError

    found: dict[int, list[Any]] = {}
    reasons = []
    for broker in _brokers(admin):
        try:
            answer = answer_of(partial(admin.list_transactions, [broker], **filters), time.monotonic() + ONE_BROKER_S)
        except RetriableError as error:
            reasons.append(f"broker {broker} does not answer ({error})")
        else:
            found.update(answer)
    return found, reasons


def leader_of(admin: "KafkaAdminClient", place: TopicPartition) -> int:
    """Return the leader of a partition. Raises Failure if there is no such partition, or no leader."""
    (leader,) = _of_topic(_leaders(admin), place.topic, place.partition).values()
    if leader == NO_LEADER:
        raise Failure(f"{place.topic}-{place.partition} has no leader now: see `cordwood status`.")
    return leader


def searched(admin: "KafkaAdminClient", topic: str | None, partition: int | None, broker: int | None) -> Leaders:
    """Return the partitions to search with their leaders, and note those that have none. Raises Failure."""
    if broker is not None:
        _check_broker(admin, broker)
    leaders = _leaders(admin)
    if topic is not None:
        leaders = _of_topic(leaders, topic, partition)
    for place in (place for place, leader in leaders.items() if leader == NO_LEADER):
        note(f"cordwood: {place.topic}-{place.partition} has no leader, and was not searched")
    return {place: leader for place, leader in leaders.items() if leader != NO_LEADER and broker in (None, leader)}


def producers_of(admin: "KafkaAdminClient", place: TopicPartition, broker: int) -> "Sequence[ProducerState]":
    """Return the producers in the state of a replica. Raises Failure."""
    from kafka.errors import NodeNotReadyError, NotLeaderForPartitionError

    _check_broker(admin, broker)
    wanted = _kafkas(place)
    try:
        producers: Sequence[ProducerState] = admin.describe_producers([wanted], broker)[wanted].active_producers
    except NotLeaderForPartitionError:
        raise Failure(f"broker {broker} does not lead {place.topic}-{place.partition}: leave out --broker.") from None
    except NodeNotReadyError:
        raise Failure(f"broker {broker} cannot be reached.", ExitCode.UNREACHABLE) from None
    return producers


def open_in(admin: "KafkaAdminClient", place: TopicPartition) -> list[OpenTransaction]:
    """Return the open transactions of a partition. Raises Failure."""
    return list(_open(place, producers_of(admin, place, leader_of(admin, place))))


def open_transactions(admin: "KafkaAdminClient", leaders: Leaders) -> list[OpenTransaction]:
    """Return the open transactions of partitions, in order, and note the partitions that cannot be asked."""
    led: dict[int, list[TopicPartition]] = defaultdict(list)
    for place, leader in leaders.items():
        led[leader].append(place)
    found: list[OpenTransaction] = []
    for leader, places in led.items():
        for some in _chunks(places):
            for place, producers in _asked(admin, some, leader):
                found += _open(place, producers)
    return sorted(found)


def coordinated(admin: "KafkaAdminClient", producer_ids: Collection[int]) -> dict[int, CoordinatedTransaction]:
    """Return the transactions of producer ids, as their coordinators know them. Raises Failure if one is missing."""
    from kafka.errors import TransactionalIdNotFoundError

    deadline_s = time.monotonic() + PATIENCE_S
    found: dict[int, CoordinatedTransaction] = {}
    if producer_ids:
        _check_coordinators(admin)
    for some in _chunks(sorted(producer_ids)):
        known = answer_of(partial(admin.list_transactions, producer_id_filters=some), deadline_s)
        for row in (row for of_broker in known.values() for row in of_broker):
            try:
                described = answer_of(partial(admin.describe_transactions, [row.transactional_id]), deadline_s)
            except TransactionalIdNotFoundError:
                # It has expired since.
                continue
            transaction = described[row.transactional_id]
            found[row.producer_id] = CoordinatedTransaction(
                row.transactional_id,
                transaction.state.value,
                transaction.transaction_start_time_ms,
                frozenset(TopicPartition(place.topic, place.partition) for place in transaction.topic_partitions),
            )
    return found


def write_abort_marker(admin: "KafkaAdminClient", found: OpenTransaction, coordinator_epoch: int) -> None:
    """Abort a transaction in its partition. Raises Failure if the marker is refused, and KafkaError."""
    from kafka.admin import AbortTransactionSpec
    from kafka.errors import InvalidProducerEpochError, TransactionCoordinatorFencedError

    spec = AbortTransactionSpec(_kafkas(found.place), found.producer_id, found.producer_epoch, coordinator_epoch)
    try:
        admin.abort_transaction(spec)
    except TransactionCoordinatorFencedError:
        raise Failure(
            f"the last marker of producer {found.producer_id} is of coordinator epoch {found.coordinator_epoch}:"
            " --coordinator-epoch must not be lower."
        ) from None
    except InvalidProducerEpochError:
        raise Failure(
            f"producer {found.producer_id} has a newer epoch than {found.producer_epoch} by now: look again."
        ) from None


def _brokers(admin: "KafkaAdminClient") -> list[int]:
    """Return the brokers that are not fenced, in ascending order."""
    cluster = answer_of(admin.describe_cluster, time.monotonic() + PATIENCE_S)
    return sorted(row["broker_id"] for row in cluster["brokers"] if not row.get("is_fenced"))


def _check_broker(admin: "KafkaAdminClient", broker: int) -> None:
    """Raise Failure unless the broker is registered."""
    if broker not in _brokers(admin):
        raise Failure(f"broker {broker} is not there: see `cordwood status`.")


def _check_coordinators(admin: "KafkaAdminClient") -> None:
    """Raise Failure unless every transactional id has a coordinator: without it, its transaction looks hanging."""
    for place, leader in _leaders(admin).items():
        if place.topic == TRANSACTION_STATE and leader == NO_LEADER:
            raise Failure(
                f"{place.topic}-{place.partition} has no leader, and its transactions are not known: see `cordwood"
                " status`."
            )


def _open(place: TopicPartition, producers: "Sequence[ProducerState]") -> Iterator[OpenTransaction]:
    for each in producers:
        start_offset = each.current_transaction_start_offset
        if start_offset != NO_OFFSET:
            yield OpenTransaction(
                place, each.producer_id, each.producer_epoch, each.coordinator_epoch, start_offset, each.last_timestamp
            )


def _leaders(admin: "KafkaAdminClient") -> Leaders:
    """Return the leader of every partition; -1 for none."""
    topics = answer_of(admin.describe_topics, time.monotonic() + PATIENCE_S)
    return {
        TopicPartition(topic["name"], row["partition_index"]): row["leader_id"]
        for topic in topics
        for row in topic["partitions"]
    }


def _of_topic(leaders: Leaders, topic: str, partition: int | None) -> Leaders:
    """Return the leaders of a topic's partitions, or of one. Raises Failure if there is none."""
    of_topic = {place: leader for place, leader in leaders.items() if place.topic == topic}
    if not of_topic:
        raise no_such_topic(topic)
    chosen = {place: leader for place, leader in of_topic.items() if partition in (None, place.partition)}
    if not chosen:
        sentence = f"{topic} has partitions 0 to {len(of_topic) - 1}: there is no partition {partition}."
        raise Failure(sentence, ExitCode.USAGE)
    return chosen


def _asked(
    admin: "KafkaAdminClient", places: Sequence[TopicPartition], leader: int
) -> "Iterator[tuple[TopicPartition, Sequence[ProducerState]]]":
    from kafka.errors import BrokerResponseError, KafkaError

    try:
        described = admin.describe_producers([*map(_kafkas, places)], leader)
    except BrokerResponseError as error:
        # The answer to one partition hides the others'.
        if len(places) > 1:
            for place in places:
                yield from _asked(admin, [place], leader)
        else:
            note(f"cordwood: {places[0].topic}-{places[0].partition} was not searched: {error}")
    except KafkaError as error:
        note(f"cordwood: broker {leader} was not searched: {error}")
    else:
        yield from ((place, described[_kafkas(place)].active_producers) for place in places)


def _kafkas(place: TopicPartition) -> Any:
    from kafka import TopicPartition as KafkasTopicPartition

    return KafkasTopicPartition(*place)


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, AT_ONCE_MAX)):
        yield chunk
