"""Positions as an option, and offset look-ups: log start, last stable offset, a position in each partition."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, assert_never, cast

from cordwood.cluster.cli.client import answer, no_such_topic
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.operations.isolation import IsolationLevel
from cordwood.cluster.operations.positions import AtOffset, AtTime, Edge, NoPosition, Position, parse
from cordwood.storage.types import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription


Offsets = dict[TopicPartition, int]


def partitions_in(topic: "TopicDescription") -> list[TopicPartition]:
    """Return the partitions of a described topic, in its order."""
    return [TopicPartition(topic.name, partition.id) for partition in topic.partitions]


def parse_position(text: str, option: str) -> Position:
    """Parse the position given to `option`. Raises Failure with exit code 2."""
    try:
        return parse(text)
    except NoPosition as mistake:
        raise Failure(f"{option} {text.strip()!r} is {mistake}", ExitCode.USAGE) from None


def describe_topic(admin: "AdminClient", topic: str) -> "TopicDescription":
    """Return a topic's id and partitions. Raises Failure if there is no such topic; never creates it."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    try:
        return cast("TopicDescription", answer(admin.describe_topics(TopicCollection([topic]))[topic]))
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise no_such_topic(topic) from None
        raise


def log_starts(admin: "AdminClient", partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the log start offset of each partition."""
    from confluent_kafka.admin import OffsetSpec

    return _look_up(admin, partitions, OffsetSpec.earliest())


def readable_ends(
    admin: "AdminClient",
    partitions: Iterable[TopicPartition],
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> Offsets:
    """Return the end of what consumers may read now: the last stable offset, or with read_uncommitted the watermark."""
    from confluent_kafka.admin import OffsetSpec

    return _look_up(admin, partitions, OffsetSpec.latest(), isolation)


def resolve(
    admin: "AdminClient",
    position: Position,
    partitions: Iterable[TopicPartition],
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> Offsets:
    """Return the offset of a position in each partition, within the offsets that the partition has."""
    from confluent_kafka.admin import OffsetSpec

    names = list(partitions)
    match position:
        case Edge.EARLIEST:
            return log_starts(admin, names)
        case Edge.LATEST:
            return readable_ends(admin, names, isolation)
        case AtOffset(offset):
            starts, ends = log_starts(admin, names), readable_ends(admin, names, isolation)
            return {name: min(max(offset, starts[name]), ends[name]) for name in names}
        case AtTime(timestamp_ms):
            found = _look_up(admin, names, OffsetSpec.for_timestamp(timestamp_ms), isolation)
            late = readable_ends(admin, [name for name in names if found[name] < 0], isolation)
            return {name: late.get(name, found[name]) for name in names}
        case _:
            assert_never(position)


def _look_up(
    admin: "AdminClient",
    partitions: Iterable[TopicPartition],
    spec: "OffsetSpec",
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> Offsets:
    import confluent_kafka

    wanted = {confluent_kafka.TopicPartition(name.topic, name.partition): spec for name in partitions}
    if not wanted:
        return {}
    level = confluent_kafka.IsolationLevel[isolation.name]
    answers = admin.list_offsets(wanted, isolation_level=level, request_timeout=20)
    return {TopicPartition(where.topic, where.partition): answer(future).offset for where, future in answers.items()}
