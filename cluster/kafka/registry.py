"""The registry of served APIs: a new API is a module in `handlers/` and one line here.

A handler's module and the classes of its messages are imported at the first request of the API. Most brokers are never
asked by most APIs, and all of them together would take as long as the rest of a start.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from cordwood.cluster.kafka import handlers, wire
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import ServedApi


class Handler(NamedTuple):
    """The handler of an API: the module in `handlers/` that has the name of the key and states the same versions."""

    key: ApiKey
    versions: range
    advertised_from: int | None = None
    """The oldest version that ApiVersions reports; None if it is the oldest that is served."""

    @property
    def is_loaded(self) -> bool:
        """Whether the module is imported."""
        return self._name in sys.modules

    @property
    def _name(self) -> str:
        return f"{handlers.__name__}.{self.key.name.lower()}"

    def load(self) -> ModuleType:
        """Return the module. Imports it if this is its first use, which takes tens of milliseconds."""
        module = import_module(self._name)
        stated = module.KEY, module.VERSIONS
        assert stated == (self.key, self.versions), f"{module.__name__} states other versions"
        return module


HANDLERS: tuple[Handler, ...] = (
    # librdkafka sends uncompressed to brokers that do not advertise Produce from 0 (KAFKA-18659); 0-2 are refused.
    Handler(ApiKey.PRODUCE, range(3, 14), advertised_from=0),
    Handler(ApiKey.FETCH, range(4, 19)),
    Handler(ApiKey.LIST_OFFSETS, range(1, 12)),
    Handler(ApiKey.METADATA, range(14)),
    Handler(ApiKey.API_VERSIONS, range(5)),
    Handler(ApiKey.CREATE_TOPICS, range(2, 8)),
    Handler(ApiKey.DELETE_TOPICS, range(1, 7)),
    Handler(ApiKey.DELETE_RECORDS, range(3)),
    Handler(ApiKey.INIT_PRODUCER_ID, range(6)),
    Handler(ApiKey.OFFSET_FOR_LEADER_EPOCH, range(2, 5)),
    Handler(ApiKey.DESCRIBE_CONFIGS, range(1, 5)),
    Handler(ApiKey.ALTER_CONFIGS, range(3)),
    Handler(ApiKey.DESCRIBE_LOG_DIRS, range(1, 5)),
    Handler(ApiKey.CREATE_PARTITIONS, range(4)),
    Handler(ApiKey.INCREMENTAL_ALTER_CONFIGS, range(2)),
    Handler(ApiKey.DESCRIBE_CLUSTER, range(3)),
    Handler(ApiKey.DESCRIBE_PRODUCERS, range(1)),
    Handler(ApiKey.FIND_COORDINATOR, range(7)),
    Handler(ApiKey.JOIN_GROUP, range(10)),
    Handler(ApiKey.SYNC_GROUP, range(6)),
    Handler(ApiKey.HEARTBEAT, range(5)),
    Handler(ApiKey.LEAVE_GROUP, range(6)),
    Handler(ApiKey.OFFSET_COMMIT, range(2, 11)),
    Handler(ApiKey.OFFSET_FETCH, range(1, 11)),
    Handler(ApiKey.OFFSET_DELETE, range(1)),
    Handler(ApiKey.TXN_OFFSET_COMMIT, range(6)),
    Handler(ApiKey.DESCRIBE_GROUPS, range(7)),
    Handler(ApiKey.CONSUMER_GROUP_HEARTBEAT, range(2)),
    Handler(ApiKey.CONSUMER_GROUP_DESCRIBE, range(2)),
    Handler(ApiKey.LIST_GROUPS, range(6)),
    Handler(ApiKey.DELETE_GROUPS, range(3)),
    Handler(ApiKey.DESCRIBE_ACLS, range(1, 4)),
    Handler(ApiKey.CREATE_ACLS, range(1, 4)),
    Handler(ApiKey.DELETE_ACLS, range(1, 4)),
    Handler(ApiKey.ALTER_REPLICA_LOG_DIRS, range(1, 3)),
    Handler(ApiKey.ELECT_LEADERS, range(3)),
    Handler(ApiKey.ALTER_PARTITION_REASSIGNMENTS, range(2)),
    Handler(ApiKey.LIST_PARTITION_REASSIGNMENTS, range(1)),
    Handler(ApiKey.DESCRIBE_QUORUM, range(3)),
    Handler(ApiKey.LIST_CONFIG_RESOURCES, range(2)),
    Handler(ApiKey.DESCRIBE_TOPIC_PARTITIONS, range(1)),
    Handler(ApiKey.UNREGISTER_BROKER, range(1)),
    Handler(ApiKey.UPDATE_FEATURES, range(3)),
    Handler(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, range(1)),
    Handler(ApiKey.PUSH_TELEMETRY, range(1)),
    Handler(ApiKey.ADD_PARTITIONS_TO_TXN, range(6)),
    Handler(ApiKey.ADD_OFFSETS_TO_TXN, range(5)),
    Handler(ApiKey.END_TXN, range(6)),
    Handler(ApiKey.DESCRIBE_TRANSACTIONS, range(1)),
    Handler(ApiKey.LIST_TRANSACTIONS, range(3)),
    Handler(ApiKey.WRITE_TXN_MARKERS, range(1, 3)),
    Handler(ApiKey.SASL_HANDSHAKE, range(2)),
    Handler(ApiKey.SASL_AUTHENTICATE, range(3)),
    Handler(ApiKey.DESCRIBE_CLIENT_QUOTAS, range(2)),
    Handler(ApiKey.ALTER_CLIENT_QUOTAS, range(2)),
    Handler(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, range(1)),
    Handler(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, range(1)),
    Handler(ApiKey.CREATE_DELEGATION_TOKEN, range(1, 4)),
    Handler(ApiKey.RENEW_DELEGATION_TOKEN, range(1, 3)),
    Handler(ApiKey.EXPIRE_DELEGATION_TOKEN, range(1, 3)),
    Handler(ApiKey.DESCRIBE_DELEGATION_TOKEN, range(1, 4)),
    Handler(ApiKey.ADD_RAFT_VOTER, range(2)),
    Handler(ApiKey.REMOVE_RAFT_VOTER, range(1)),
    Handler(ApiKey.UPDATE_RAFT_VOTER, range(1)),
    Handler(ApiKey.SHARE_FETCH, range(1, 3)),
    Handler(ApiKey.SHARE_ACKNOWLEDGE, range(1, 3)),
    Handler(ApiKey.INITIALIZE_SHARE_GROUP_STATE, range(1)),
    Handler(ApiKey.READ_SHARE_GROUP_STATE, range(1)),
    Handler(ApiKey.WRITE_SHARE_GROUP_STATE, range(2)),
    Handler(ApiKey.DELETE_SHARE_GROUP_STATE, range(1)),
    Handler(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, range(2)),
    Handler(ApiKey.SHARE_GROUP_HEARTBEAT, range(1, 2)),
    Handler(ApiKey.SHARE_GROUP_DESCRIBE, range(1, 2)),
    Handler(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, range(2)),
    Handler(ApiKey.ALTER_SHARE_GROUP_OFFSETS, range(1)),
    Handler(ApiKey.DELETE_SHARE_GROUP_OFFSETS, range(1)),
)

OWN_HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.CREATE_CUT, range(1)),
    Handler(ApiKey.DESCRIBE_CUTS, range(1)),
    Handler(ApiKey.DROP_CUT, range(1)),
    Handler(ApiKey.ACKNOWLEDGE_QUEUE, range(1)),
    Handler(ApiKey.DESCRIBE_SHARE_PARTITIONS, range(1)),
)
"""The APIs that Kafka does not have. ApiVersions leaves them out: Kafka's clients have no name for them."""


def load_handlers() -> None:
    """Import all handlers now: for a simulation, whose second run must not differ from its first."""
    for handler in (*HANDLERS, *OWN_HANDLERS):
        handler.load()


def served_apis() -> tuple[ServedApi, ...]:
    """Return the APIs and version ranges that ApiVersions reports, by API key."""
    return tuple(
        sorted(
            ServedApi(
                int(handler.key),
                handler.versions[0] if handler.advertised_from is None else handler.advertised_from,
                handler.versions[-1],
            )
            for handler in HANDLERS
        )
    )


def items_max_of(module: ModuleType) -> int:
    """Return the maximum number of items in all arrays of one request to this API."""
    items_max: int = getattr(module, "ITEMS_MAX", wire.ITEMS_MAX)
    return items_max
