"""Topic creation and growth: checks of names and counts, replica placement, and the resulting commands. Pure."""

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.config import topic_configs
from cordwood.cluster.config.rows import BrokerConfig
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.commands import Assignment, BrokerId, CreatePartitions, CreateTopic
from cordwood.cluster.metadata.cordons import open_brokers
from cordwood.cluster.metadata.elections import target_of
from cordwood.cluster.metadata.image import BrokerImage, Image, TopicImage
from cordwood.cluster.proposals.texts import check_texts
from cordwood.storage.steps import Steps

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
AUDIT = "__audit"

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE, AUDIT})
"""Topics that only the broker creates, deletes or grows. All groups' offsets depend on the partition count."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Largest number of partitions in a request, as in Kafka: one request must not occupy the broker for long."""
PARTITIONS_PER_STEP = 64

DEFAULT = -1
"""A partition count or replication factor that stands for the broker's default."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
NAME_RULE = "1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and not '.' or '..'"
"""What a topic's name has to be, for messages."""


def check_name(name: str) -> None:
    """Raise Refused(INVALID_TOPIC_EXCEPTION) for an invalid name.

    `a.b` and `a_b` may both exist: they collide only in the names of Kafka's metrics.
    """
    if name in (".", "..") or not _NAME.fullmatch(name):
        message = f"Topic name is invalid: it must be {NAME_RULE}."
        raise Refused(ErrorCode.invalid_topic_exception, message)


def check_not_internal(name: str) -> None:
    """Raise Refused(INVALID_TOPIC_EXCEPTION) for an internal topic.

    Kafka lets an administrator change these topics, which loses the groups' offsets.
    """
    if name in INTERNAL_TOPICS:
        raise Refused(ErrorCode.invalid_topic_exception, f"Topic '{name}' is internal: only the broker changes it.")


def new_topic(
    name: str,
    image: Image,
    broker: BrokerConfig,
    rng: random.Random,
    *,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    assignments: Mapping[int, Assignment] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> Steps[CreateTopic]:
    """Return the command that creates a topic, in steps. Raises Refused with Kafka's error code.

    `assignments`, by partition index, replace both counts.
    """
    check_name(name)
    if name in image.topics_by_name:
        raise Refused(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    check_texts(value for value in (configs or {}).values() if value is not None)
    topic_configs.validate(configs or {}, broker)
    if assignments:
        if partitions != DEFAULT or replication_factor != DEFAULT:
            message = "A manual partition assignment was specified: partition count and replication factor must be -1."
            raise Refused(ErrorCode.invalid_request, message)
        placed = yield from _checked_assignments(assignments, image)
    else:
        placed = yield from _placed(partitions, replication_factor, image, broker, rng)
    texts = tuple((key, text) for key, text in (configs or {}).items() if text is not None)
    return CreateTopic(_new_topic_id(image, rng), name, placed, texts)


def more_partitions(
    topic: TopicImage, count: int, assignments: Sequence[Assignment] | None, image: Image, rng: random.Random
) -> Steps[CreatePartitions]:
    """Return the command that grows a topic to `count` partitions, in steps. Raises Refused."""
    have = len(topic.partitions)
    if count <= have:
        message = (
            f"Topic already has {have} partition(s)."
            if count == have
            else f"The topic {topic.name} currently has {have} partition(s); {count} would not be an increase."
        )
        raise Refused(ErrorCode.invalid_partitions, message)
    factor = len(target_of(topic.partitions[0]))
    if assignments is None:
        placed = yield from _place_on_open(image, count - have, factor, rng.randrange(1 << 16))
        return CreatePartitions(topic.id, have, placed)
    if len(assignments) != count - have:
        message = f"{count - have} partition(s) would be added, but {len(assignments)} assignment(s) were specified."
        raise Refused(ErrorCode.invalid_replica_assignment, message)
    yield from _check_assignments(assignments, factor, image)
    return CreatePartitions(topic.id, have, tuple(assignments))


def place(
    brokers: Iterable[BrokerImage], partitions: int, replication_factor: int, first: int
) -> Steps[tuple[Assignment, ...]]:
    """Place replicas round-robin on the live ones of these brokers, beginning with `first`, in steps. Raises Refused.

    Leaders go round the brokers; followers do too, one step further in each round. So every broker leads as many
    partitions as the next, and a lost broker's load is spread over all others. The replicas of a partition are in as
    many racks as possible (KIP-36); if any broker has no rack, each broker counts as its own rack. Where too few racks
    have a live broker, replicas are placed on brokers of the others that are down: one host, which is a rack, never
    gets two replicas of a partition while there are enough hosts.
    """
    registered = sorted(brokers, key=lambda broker: broker.id)
    alive = [broker for broker in registered if broker.is_alive]
    _check_replication_factor(replication_factor, len(registered), len(alive))
    rack_of = _racks([*alive, *_of_dark_racks(registered, alive, replication_factor)])
    ring = _by_turns(rack_of)
    count, rack_count = len(ring), len(set(rack_of.values()))
    alike: dict[tuple[int, int], Assignment] = {}
    placed = []
    for partition in range(partitions):
        if partition % PARTITIONS_PER_STEP == 0:
            yield
        lap, leader = divmod(first + partition, count)
        shift = lap * rack_count % max(count - 1, 1)
        if (leader, shift) not in alike:
            alike[leader, shift] = _spread(_candidates(ring, leader, shift), rack_of, rack_count, replication_factor)
        placed.append(alike[leader, shift])
    return tuple(placed)


def _place_on_open(image: Image, partitions: int, replication_factor: int, first: int) -> Steps[tuple[Assignment, ...]]:
    """Place replicas as `place` on the brokers that are not cordoned. Raises Refused."""
    brokers = list(open_brokers(image))
    try:
        return (yield from place(brokers, partitions, replication_factor, first))
    except Refused as refusal:
        if cordoned := len(image.brokers) - len(brokers):
            message = f"{refusal.message} {cordoned} more broker(s) are cordoned."
            raise Refused(refusal.code, message) from None
        raise


def _check_replication_factor(replication_factor: int, registered: int, alive: int) -> None:
    if replication_factor < 1:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
    elif replication_factor > registered:
        message = (
            f"Unable to replicate the partition {replication_factor} time(s):"
            f" only {registered} broker(s) are registered, {alive} of them alive."
        )
    elif replication_factor > alive:
        message = (
            f"Unable to replicate the partition {replication_factor} time(s):"
            f" {registered} broker(s) are registered, but only {alive} of them alive."
        )
    else:
        return
    raise Refused(ErrorCode.invalid_replication_factor, message)


def _of_dark_racks(
    registered: Sequence[BrokerImage], alive: Sequence[BrokerImage], replication_factor: int
) -> list[BrokerImage]:
    """Return the brokers of racks without a live broker, if the live racks are too few."""
    if any(broker.rack is None for broker in registered):
        return []
    lit = {broker.rack for broker in alive}
    if len(lit) >= replication_factor:
        return []
    return [broker for broker in registered if broker.rack not in lit]


def _racks(brokers: Sequence[BrokerImage]) -> dict[BrokerId, str]:
    if all(broker.rack is not None for broker in brokers):
        return {broker.id: broker.rack or "" for broker in brokers}
    return {broker.id: str(broker.id) for broker in brokers}


def _by_turns(rack_of: Mapping[BrokerId, str]) -> list[BrokerId]:
    """Return the brokers in an order in which their racks alternate."""
    seen: Counter[str] = Counter()
    turns = {}
    for broker_id, rack in rack_of.items():
        turns[broker_id] = (seen[rack], rack)
        seen[rack] += 1
    return sorted(rack_of, key=lambda broker_id: turns[broker_id])


def _candidates(ring: Sequence[BrokerId], leader: int, shift: int) -> Iterator[BrokerId]:
    """Yield the broker at index `leader` of the ring, then all others, beginning `shift` places after it."""
    yield ring[leader]
    for at in range(len(ring) - 1):
        yield ring[(leader + 1 + (shift + at) % (len(ring) - 1)) % len(ring)]


def _spread(
    candidates: Iterable[BrokerId], rack_of: Mapping[BrokerId, str], rack_count: int, replication_factor: int
) -> Assignment:
    """Return the first `replication_factor` candidates: one of each rack, then the others."""
    foremost: dict[str, BrokerId] = {}
    others = []
    for broker_id in candidates:
        if foremost.setdefault(rack_of[broker_id], broker_id) != broker_id:
            others.append(broker_id)
        if len(foremost) + len(others) >= replication_factor and len(foremost) >= min(rack_count, replication_factor):
            break
    return (*foremost.values(), *others)[:replication_factor]


def _placed(
    partitions: int, replication_factor: int, image: Image, broker: BrokerConfig, rng: random.Random
) -> Steps[tuple[Assignment, ...]]:
    if partitions == DEFAULT:
        partitions = broker.settings.num_partitions
    if replication_factor == DEFAULT:
        replication_factor = broker.settings.default_replication_factor
    if partitions < 1:
        raise Refused(ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value.")
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        raise Refused(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
    return (yield from _place_on_open(image, partitions, replication_factor, rng.randrange(1 << 16)))


def _checked_assignments(assignments: Mapping[int, Assignment], image: Image) -> Steps[tuple[Assignment, ...]]:
    if sorted(assignments) != list(range(len(assignments))):
        message = "The manual partition assignment must have the partitions 0, 1, 2 and so on, without a gap."
        raise Refused(ErrorCode.invalid_replica_assignment, message)
    yield from _check_assignments(assignments.values(), len(assignments[0]), image)
    return tuple(map(assignments.__getitem__, range(len(assignments))))


def _check_assignments(assignments: Iterable[Assignment], replication_factor: int, image: Image) -> Steps[None]:
    for number, assignment in enumerate(assignments):
        if number % PARTITIONS_PER_STEP == 0:
            yield
        _check_assignment(assignment, replication_factor, image)


def _check_assignment(assignment: Assignment, replication_factor: int, image: Image) -> None:
    if not assignment:
        message = "The manual partition assignment includes an empty replica list."
    elif len(assignment) > len(image.brokers):
        message = f"The manual partition assignment includes {len(assignment)} replicas of one partition, but no more"
        message += f" than {len(image.brokers)} broker(s) are registered."
    elif len(set(assignment)) < len(assignment):
        message = "The manual partition assignment includes a broker more than once for one partition."
    elif unknown := [broker_id for broker_id in assignment if broker_id not in image.brokers]:
        message = f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
    elif not any(map(image.is_alive, assignment)):
        message = "All brokers of the manual partition assignment are fenced or in controlled shutdown."
    elif len(assignment) != replication_factor:
        message = (
            f"The manual partition assignment includes a partition with {len(assignment)} replica(s), but this is not"
            f" consistent with other partitions, which have {replication_factor} replica(s)."
        )
    else:
        return
    raise Refused(ErrorCode.invalid_replica_assignment, message)


def _new_topic_id(image: Image, rng: random.Random) -> UUID:
    while True:
        topic_id = UUID(int=rng.getrandbits(128), version=4)
        if topic_id not in image.topics_by_id:
            return topic_id
