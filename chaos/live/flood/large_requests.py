"""Valid requests of every API that a broker announces, with one array as long as a client may make it."""

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum
from typing import Any, get_origin

from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map

from cordwood.chaos.live.flood import batches
from cordwood.chaos.live.flood.aim import Names
from cordwood.chaos.live.wild_requests import VOCABULARY, Filling, Path, encode
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.schema import entity_in, members

COUNTS = (100, 1000, 10_000, 99_000)
DISTINCT_MAX = 1000
"""Longer arrays repeat their items: encoding distinct ones would take longer than answering them."""
CREATED_MAX = 100
"""The number of names that a flood may create topics or groups by: state that clients create is no leak."""
HUGE_CHARS = 30_000
"""Nearly the maximum length of a string in the older versions of Kafka's messages."""
LARGE_BYTES = (0, 10, 1 << 20)
REQUEST_BYTES_MAX = 32 << 20
FEW = 10
"""The number of batches in a request that may be large."""

READING = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    }
)
"""APIs that may name the bystander's topic and groups. All others, new ones included, name those of the flood."""


class Naming(Enum):
    """The names in the items of the long array."""

    SAME = "the same"
    EXISTING = "existing"
    UNKNOWN = "unknown"
    HUGE = "huge"


class UnknownApi(Exception):
    """A broker announces an API that no request can be made for."""


@dataclass(frozen=True, slots=True)
class LargeRequest:
    """One request with its length in front, and its description."""

    what: str
    frame: bytes
    is_answered: bool
    """False for a Produce with acks=0."""


def versions_known(key: int, oldest: int, newest: int) -> list[int]:
    """Return the announced versions of an API that kio can write. Raises UnknownApi where there are none."""
    known = schema_name_map.get(api_key_map.get(key, ""), ())
    if found := [version for version in range(oldest, newest + 1) if version in known]:
        return found
    raise UnknownApi(f"API {key} is announced in versions {oldest} to {newest}, and there is no schema for it")


def arrays(schema: type[Any], path: Path = ()) -> Iterator[Path]:
    """Yield the path of every array in a message, nested ones included."""
    for field in fields(schema):
        here = (*path, field.name)
        if any(get_origin(member) is tuple for member in members(field.type)):
            yield here
        inner = entity_in(field.type)
        if inner is not None:
            yield from arrays(inner, here)


def large_request(rng: random.Random, api_key: int, version: int, names: Names) -> LargeRequest:
    """Return a request that a broker may take long for."""
    schema = load_request_schema(api_key, version)
    naming, count = rng.choice(list(Naming)), rng.choice(COUNTS)
    array = rng.choice([*arrays(schema), ()])
    filling = LargeFilling(rng, api_key, array, _allowed(count, naming), naming, names)
    entity = filling.entity(schema)
    frame = encode(rng, entity).frame
    large = f"{'.'.join(array)} x {filling.count:,} {naming.value}" if array else f"{naming.value} names"
    what = f"{api_key_map[api_key]} v{version}, {large}, {len(frame):,} bytes"
    return LargeRequest(what, len(frame).to_bytes(4, "big") + frame, getattr(entity, "acks", None) != 0)


def _allowed(count: int, naming: Naming) -> int:
    return min(count, REQUEST_BYTES_MAX // HUGE_CHARS) if naming is Naming.HUGE else count


class LargeFilling(Filling):
    """A filling with plausible values, so that a request passes the first check, and with one long array."""

    def __init__(self, rng: random.Random, api_key: int, array: Path, count: int, naming: Naming, names: Names) -> None:
        super().__init__(rng)
        self.count, self._array, self._naming = count, array, naming
        topics, groups = names.topics, names.groups
        if api_key in READING:
            topics, groups = (*topics, names.bystander_topic), (*groups, *names.bystander_groups)
        self._topics, self._groups = topics, groups
        self._numbers = itertools.count()

    def items(self, path: Path, item: Callable[[], Any]) -> tuple[Any, ...]:
        if path == self._array:
            distinct = 1 if self._naming is Naming.SAME else min(self.count, DISTINCT_MAX)
            drawn = tuple(item() for _ in range(distinct))
            return (drawn * (self.count // distinct + 1))[: self.count]
        is_above = path == self._array[: len(path)]
        return tuple(item() for _ in range(1 if is_above else self.rng.choice((0, 1, 1, 2))))

    def null(self, path: Path) -> bool:
        return path != self._array[: len(path)] and self.rng.random() < 0.2

    def primitive(self, path: Path, kafka_type: str) -> Any:
        match kafka_type:
            case "string":
                return self._string(path)
            case "bytes":
                return bytes(self.rng.choice(LARGE_BYTES[: 2 if self._array else 3]))
            case "records":
                return self._records()
            case "timedelta_i32" | "timedelta_i64":
                return timedelta(milliseconds=self.rng.choice(TIMES_MS.get(path[-1], (0, 1000))))
        if path[-1] in NUMBERS:
            return self.rng.choice(NUMBERS[path[-1]])
        if kafka_type == "int32" and "partition" in path[-1]:
            return self._partition()
        return VOCABULARY[kafka_type](self.rng, path[-1])

    def _partition(self) -> int:
        return next(self._numbers) % DISTINCT_MAX if self._naming is Naming.UNKNOWN else 0

    def _string(self, path: Path) -> str:
        name = path[-1]
        if "configs" in path or name == "configuration_keys":
            return self.rng.choice(CONFIG_VALUES if name == "value" else CONFIG_NAMES)
        if name in WORDS:
            return self.rng.choice(WORDS[name])
        if self._naming is Naming.HUGE:
            return f"{next(self._numbers) % CREATED_MAX}".ljust(HUGE_CHARS, "x")
        if self._naming is Naming.UNKNOWN:
            return f"unknown-{next(self._numbers) % CREATED_MAX}"
        is_group = "group" in name or "key" in name or "member" in name
        return self.rng.choice(self._groups if is_group else self._topics)

    def _records(self) -> bytes:
        many = self._array and self.count > FEW
        return _batch(self.rng.choice(("tiny", "liar") if many else tuple(BATCHES)))


BATCHES: dict[str, Callable[[], bytes]] = {
    "tiny": batches.tiny,
    "liar": lambda: batches.liar(3_000_000),
    "bomb": batches.bomb,
    "honest bomb": batches.honest_bomb,
    "wide bomb": batches.wide_bomb,
    "1 MB": lambda: batches.plain(1_000_000),
}


@functools.cache
def _batch(name: str) -> bytes:
    return BATCHES[name]()


MOST = 2**31 - 1
NUMBERS: dict[str, tuple[int, ...]] = {
    "acks": (-1, -1, 1, 0),
    "committed_offset": (0, 1000),
    "config_operation": (0, 1, 2, 3),
    "count": (1, 2, 4),
    "current_leader_epoch": (-1, -1, 0),
    "delivery_count": (1, 5),
    "delivery_state": (0, 2, 4),
    "election_type": (0,),
    "fetch_offset": (0, 0, 100),
    "generation_id": (1, 2),
    "generation_id_or_member_epoch": (-1, 1),
    "isolation_level": (0, 1),
    "key_type": (0, 0, 1),
    "leader_epoch": (-1, 0, 1),
    "max_bytes": (1, 1 << 20, MOST),
    "max_records": (1, 500, MOST),
    "member_epoch": (0, 0, 0, 1, -1),
    "min_bytes": (0, 1, 1000, MOST),
    "num_partitions": (1, 1, 4, -1),
    "partition_max_bytes": (1, 1 << 20, MOST),
    "replica_id": (-1,),
    "replication_factor": (1, -1),
    "resource_type": (2, 2, 4),
    "response_partition_limit": (1, 2000, MOST),
    "session_epoch": (-1, 0),
    "session_id": (0,),
    "share_session_epoch": (0, 0, 1, -1),
    "start_offset": (-1, 0, 100),
    "state_epoch": (0, 1),
    "timestamp": (-1, -2, -3, 0, 1),
}
"""Values with which a request passes the first check, by field name."""
TIMES_MS = {
    "max_wait": (0, 0, 100, 30_000),
    "session_timeout": (6000, 30_000),
    "rebalance_timeout": (1000, 10_000),
    "retention_time": (-1, 1000),
    "transaction_timeout": (1000, 60_000),
}
WORDS: dict[str, tuple[str, ...]] = {
    "member_id": ("", "", "unknown"),
    "protocol_type": ("consumer",),
    "protocol_name": ("range",),
    "states_filter": ("Stable", "Empty", "Unknown"),
    "server_assignor": ("uniform", "range"),
    "subscribed_topic_regex": ("", ".*", "flood-.*", "((flood|unknown)-?)*[0-9]{1,3}"),
    "types_filter": ("classic", "consumer", "share"),
    "client_software_name": ("flood",),
    "client_software_version": ("1",),
    "principal": ("User:flood",),
    "host": ("*", "10.0.0.1"),
    "path": ("nowhere",),
    "cluster_id": ("",),
    "rack_id": ("",),
}
CONFIG_NAMES = ("retention.ms", "segment.bytes", "max.message.bytes", "cleanup.policy", "flush.policy", "unknown")
CONFIG_VALUES = ("3600000", "1048576", "delete", "compact", "group", "os")
