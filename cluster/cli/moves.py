"""Reassignments in progress and their throttle, as clients see and set them."""

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cordwood.cluster.cli.client import answer, running_brokers
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.operations.moves import MoveProgress, MoveRates, Place, minutes_left, progress_of

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from kafka import KafkaAdminClient

MEASURED_S = 1.0
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
UNLIMITED = (1 << 63) - 1
_RATE = re.compile(r"([0-9]+) *(|[KMG]i?)B?(?:/s)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


@dataclass(frozen=True, slots=True)
class ReassignmentProgress:
    """One reassignment in progress. Values that are not known are None."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    bytes_total: int | None
    bytes_left: int | None
    bytes_per_second: float | None
    minutes_left: float | None


def ongoing_moves(admin: "KafkaAdminClient") -> list[ReassignmentProgress]:
    """Return the reassignments in progress, with their rates over MEASURED_S. Raises KafkaError."""
    rates = MoveRates()
    moves = _moves(admin)
    if not moves:
        return []
    rates.observe(_left(moves), time.monotonic())
    time.sleep(MEASURED_S)
    moves = _moves(admin)
    per_second = rates.observe(_left(moves), time.monotonic())
    return [
        ReassignmentProgress(
            *place,
            found["replicas"],
            found["adding_replicas"],
            found["removing_replicas"],
            progress.bytes_total,
            progress.bytes_left,
            per_second[place],
            minutes_left(progress.bytes_left, per_second[place]),
        )
        for place, (found, progress) in sorted(moves.items())
    ]


def set_throttle(admin: "AdminClient", bytes_per_second: int | None) -> None:
    """Set the rate of every live broker, as leader and as follower; remove it for None.

    Raises Failure, KafkaException.
    """
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    if bytes_per_second is None:
        entries = [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in RATES]
    else:
        value = str(bytes_per_second)
        entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key in RATES]
    # One request for each broker: these clients have no name for all brokers.
    for broker in map(str, running_brokers(admin)):
        resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=entries)
        answer(admin.incremental_alter_configs([resource])[resource])


def throttle_of(admin: "AdminClient") -> int | None:
    """Return the lowest rate of the live brokers; None without any. Raises Failure, KafkaException."""
    from confluent_kafka.admin import ConfigResource, ResourceType

    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in running_brokers(admin)]
    described = [answer(admin.describe_configs([resource])[resource]) for resource in resources]
    lowest = min(
        (int(configs[key].value) for configs in described for key in RATES if key in configs), default=UNLIMITED
    )
    return None if lowest >= UNLIMITED else lowest


def parse_rate(text: str) -> int | None:
    """Parse bytes per second; `off` is None. Raises Failure with exit code 2."""
    if text == "off":
        return None
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise Failure(f"{text!r}: give bytes per second, such as 5000000, 500KiB or 20MiB, or off.", ExitCode.USAGE)
    return int(found[1]) * _UNITS[found[2].lower()]


def _moves(admin: "KafkaAdminClient") -> dict[Place, tuple[dict[str, Any], MoveProgress]]:
    moving = admin.list_partition_reassignments()
    topics: dict[str, list[int]] = {}
    for where in moving:
        topics.setdefault(where.topic, []).append(where.partition)
    sizes: dict[Place, dict[int, int]] = {}
    for broker in admin.describe_log_dirs(topics) if topics else ():
        rows = (
            (topic["name"], row)
            for directory in broker["log_dirs"]
            for topic in directory["topics"]
            for row in topic["partitions"]
            if not row["is_future_key"]
        )
        for name, row in rows:
            sizes.setdefault((name, row["partition_index"]), {})[broker["broker"]] = row["partition_size"]
    return {
        place: (found, progress_of(found["replicas"], found["adding_replicas"], sizes.get(place, {})))
        for where, found in moving.items()
        for place in ((where.topic, where.partition),)
    }


def _left(moves: dict[Place, tuple[dict[str, Any], MoveProgress]]) -> dict[Place, int | None]:
    return {place: progress.bytes_left for place, (_, progress) in moves.items()}
