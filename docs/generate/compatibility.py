"""The table of Kafka's APIs: those that are served, their versions, and their differences from Kafka.

The texts are the handlers' docstrings: the first paragraph has the purpose of the API, the others its differences from
Kafka.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType

import kio.schema
import pages

from cordwood.cluster.kafka.registry import KAFKA_APIS, items_max_of, load, served_apis

NOT_SERVED: Mapping[str, tuple[str, ...]] = {
    ("Streams groups (KIP-1071) are not supported."): (
        "StreamsGroupHeartbeat",
        "StreamsGroupDescribe",
    ),
}
"""Kafka's APIs that are not served, by the reason."""

BETWEEN_BROKERS = frozenset(
    {
        "Vote",
        "BeginQuorumEpoch",
        "EndQuorumEpoch",
        "AlterPartition",
        "Envelope",
        "FetchSnapshot",
        "BrokerRegistration",
        "BrokerHeartbeat",
        "AllocateProducerIds",
        "ControllerRegistration",
        "AssignReplicasToDirs",
    }
)
"""What Kafka's brokers ask each other. Ours have protocols of their own."""

_INTRODUCTION = """\
Every Kafka client that supports Kafka 2.1 or newer works: the tests run librdkafka (and kcat), kafka-python, aiokafka
and franz-go. `make compat` runs the test suites of kafka-python and aiokafka, tests of groups and transactions from
librdkafka, franz-go and Kafka, with Java clients of both versions of the protocol, and Kafka's tools. It runs an
application of Kafka Streams with `exactly_once_v2` and exactly-once connectors of Kafka Connect, kills their processes
and the brokers, and checks each result. Clients negotiate the version of each API with ApiVersions.

The column "Kafka" has the versions in the message definitions of Kafka 4. The number after a name is the API key.
"""

_GENERAL = """
## General differences

- With `acks=all` a record is acknowledged once it is on disk; in Kafka, once it is in memory
  ([guarantees](../guarantees.md)).
- Record batches must have format 2 (Kafka 0.11 and newer). Older formats are refused.
- Batches are stored as their producer compressed them: a topic's `compression.type` has no effect.
- The log cleaner follows Kafka's rules. It also seals the active segment of a compacted topic that gets no more records
  once they exceed `max.compaction.lag.ms`, and that of an internal topic at 256 KiB. A log that a cut pins is not
  compacted before the cut is dropped.
- Without `authorizer.class.name`, ACLs are stored and not enforced; Kafka stores none. The only authorizer is one with
  the decisions of Kafka's StandardAuthorizer ([required rights](rights.md)). It compares addresses, not their texts.
- The table has the largest number of items in all arrays of one request together. A request other than Produce has at
  most 16 MiB, a response other than Fetch's at most 64 MiB. A request or response above a limit closes its connection,
  and the log has the reason.
- Partitions, groups and resources that a request names several times are described once. As in Kafka, ListOffsets
  refuses duplicate partitions.
- `a.b` and `a_b` may both be topics. Kafka refuses the second of them, because its metrics would have the same names;
  metrics here have the topic as a label.
- `segment.bytes` may be as small as 14 bytes; Kafka 4 requires 1 MiB (KIP-1030).
- The session timeout of a group member may be as short as one second (`group.min.session.timeout.ms`), and a new group
  does not wait for more members before its first rebalance (`group.initial.rebalance.delay.ms`), except in a cluster of
  `cordwood up`.
- A group member of kafka-python 3.0.12 with short poll timeouts may join before it knows its topic and then wait
  forever, with any broker. Request the topic's metadata (`consumer.partitions_for_topic`) before its first poll.
"""


def page() -> str:
    """docs/reference/kafka.md."""
    return "\n".join(_lines()) + "\n"


def kafka_apis() -> dict[str, tuple[int, int]]:
    """Oldest and newest version of every request that Kafka has, by its name."""
    found = {}
    for package in pkgutil.iter_modules(kio.schema.__path__):
        if not package.ispkg:
            continue
        module = importlib.import_module(f"kio.schema.{package.name}")
        versions = sorted(int(version.name[1:]) for version in pkgutil.iter_modules(module.__path__))
        name = _request_name(package.name, versions[-1]) if versions else None
        if name is not None:
            found[name] = (versions[0], versions[-1])
    return found


def served_names() -> set[str]:
    return {_name(load(key)) for key in KAFKA_APIS}


def _request_name(package: str, version: int) -> str | None:
    try:
        module = importlib.import_module(f"kio.schema.{package}.v{version}.request")
    except ModuleNotFoundError:
        return None
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    # The parts of a request are defined before it.
    return own[-1].removesuffix("Request")


def _lines() -> Iterator[str]:
    yield "# Kafka compatibility"
    yield ""
    yield pages.heading_note("cluster/kafka/api_keys.py and the handlers")
    yield _INTRODUCTION.rstrip()
    yield _GENERAL
    yield "## Supported APIs"
    yield ""
    kafka = kafka_apis()
    yield from pages.table(("API", "versions", "Kafka", "items", "description and differences"), _rows(kafka))
    yield ""
    yield "## Unsupported APIs"
    yield ""
    for why, names in NOT_SERVED.items():
        yield f"- {why} ({', '.join(names)})"
    yield ""
    yield ("Brokers use their own protocols between each other: the inter-broker APIs of Kafka are not supported.")


def _rows(kafka: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, ...]]:
    advertised = {api.key: api.oldest for api in served_apis()}
    for module in map(load, sorted(KAFKA_APIS)):
        purpose, *differences = (inspect.getdoc(module) or "").split("\n\n")
        name, what = _name(module), purpose.partition(": ")[2]
        oldest, newest = module.KEY.versions[0], module.KEY.versions[-1]
        if advertised[module.KEY] < oldest:
            old = _span(advertised[module.KEY], oldest - 1)
            differences.append(f"Versions {old} are advertised, because librdkafka checks for them, but refused.")
        text = "<br>".join([what[:1].upper() + what[1:], *differences])
        items = f"{items_max_of(module):,}"
        yield f"{name} ({int(module.KEY)})", _span(oldest, newest), _span(*kafka[name]), items, text


def _name(module: ModuleType) -> str:
    """Return the API's name, without the key that may follow in parentheses."""
    return (inspect.getdoc(module) or "").partition(":")[0].partition(" (")[0]


def _span(oldest: int, newest: int) -> str:
    return str(oldest) if oldest == newest else f"{oldest} to {newest}"
