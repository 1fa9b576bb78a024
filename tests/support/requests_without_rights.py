"""Refusals of requests without rights, for each API and version, and the rights that are enough."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode
from request_of_each_api import (
    CLUSTER_31,
    GROUP_30,
    TOPIC_29,
    Case,
)

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.registry import KAFKA_APIS, load
from cordwood.cluster.kafka.rights import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    CREATE_TOKENS,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from cordwood.cluster.metadata.acls import AclOperation, AclResource

MODULES = {key: load(key) for key in KAFKA_APIS}


def codes_in(message: Any) -> Iterator[ErrorCode]:
    """Yield all error codes in a response, but NONE."""
    if isinstance(message, tuple):
        for item in message:
            yield from codes_in(item)
    elif dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            value = getattr(message, field.name)
            if field.name in ("error_code", "partition_error_code") and value:
                yield ErrorCode(value)
            else:
                yield from codes_in(value)


def texts_in(message: Any) -> Iterator[str]:
    if isinstance(message, str):
        yield message
    elif isinstance(message, tuple):
        for item in message:
            yield from texts_in(item)
    elif dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            yield from texts_in(getattr(message, field.name))


def refused_in(api: ApiKey, version: int, case: Case, *, is_known: bool = True) -> Counter[ErrorCode]:
    """Return the codes of a refused request in this version."""
    refused = Counter(dict(case.refused))
    if api is ApiKey.ADD_PARTITIONS_TO_TXN and version >= 4:
        refused = Counter({CLUSTER_31: 1})
    if api is ApiKey.ELECT_LEADERS and version == 0:
        refused = Counter({CLUSTER_31: 1})
    if api is ApiKey.FIND_COORDINATOR and version == 0:
        # It knows only groups.
        refused = Counter({GROUP_30: 1})
    if api is ApiKey.UPDATE_FEATURES and version < 2:
        # The error of the whole request is also that of each feature.
        refused = Counter({CLUSTER_31: 2})
    if (api, version) in {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}:
        # They have no field for an error.
        refused = Counter()
    if api is ApiKey.CREATE_DELEGATION_TOKEN and version < 3:
        # It names no owner: the token is the client's own.
        refused = Counter()
    is_by_id = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 13, ApiKey.OFFSET_COMMIT: 10}.get(api, 1000) <= version
    if is_by_id and not is_known and TOPIC_29 in refused and not _is_replica(case):
        refused = Counter({ErrorCode.unknown_topic_id: 1})
    return refused


def _is_replica(case: Case) -> bool:
    return case.fields.get("replica_id", -1) >= 0


Grant = tuple[AclOperation, AclResource]
SUFFICIENT: dict[ApiKey, list[list[set[Grant]]]] = {
    ApiKey.PRODUCE: [[{(WRITE, TOPIC)}], [{(WRITE, TOPIC), (WRITE, TRANSACTIONAL_ID)}]],
    ApiKey.FETCH: [[{(READ, TOPIC)}], [{(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.LIST_OFFSETS: [[{(DESCRIBE, TOPIC)}]],
    ApiKey.METADATA: [[{(DESCRIBE, TOPIC)}]],
    ApiKey.CREATE_TOPICS: [[{(CREATE, CLUSTER)}, {(CREATE, TOPIC)}]],
    ApiKey.DELETE_TOPICS: [[{(DELETE, TOPIC)}]],
    ApiKey.DELETE_RECORDS: [[{(DELETE, TOPIC)}]],
    ApiKey.INIT_PRODUCER_ID: [[{(WRITE, TRANSACTIONAL_ID)}], [{(IDEMPOTENT_WRITE, CLUSTER)}, {(WRITE, TOPIC)}]],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [[{(DESCRIBE, TOPIC)}, {(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.DESCRIBE_CONFIGS: [[{(DESCRIBE_CONFIGS, TOPIC), (DESCRIBE_CONFIGS, GROUP), (DESCRIBE_CONFIGS, CLUSTER)}]],
    ApiKey.ALTER_CONFIGS: [[{(ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, GROUP), (ALTER_CONFIGS, CLUSTER)}]],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [[{(ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, GROUP), (ALTER_CONFIGS, CLUSTER)}]],
    ApiKey.DESCRIBE_LOG_DIRS: [[{(DESCRIBE, CLUSTER)}]],
    ApiKey.CREATE_PARTITIONS: [[{(ALTER, TOPIC)}]],
    ApiKey.DESCRIBE_PRODUCERS: [[{(READ, TOPIC)}]],
    ApiKey.FIND_COORDINATOR: [[{(DESCRIBE, GROUP)}], [{(DESCRIBE, TRANSACTIONAL_ID)}]],
    ApiKey.JOIN_GROUP: [[{(READ, GROUP)}]],
    ApiKey.SYNC_GROUP: [[{(READ, GROUP)}]],
    ApiKey.HEARTBEAT: [[{(READ, GROUP)}]],
    ApiKey.LEAVE_GROUP: [[{(READ, GROUP)}]],
    ApiKey.OFFSET_COMMIT: [[{(READ, GROUP), (READ, TOPIC)}]],
    ApiKey.OFFSET_FETCH: [[{(DESCRIBE, GROUP), (DESCRIBE, TOPIC)}]],
    ApiKey.OFFSET_DELETE: [[{(DELETE, GROUP), (READ, TOPIC)}]],
    ApiKey.TXN_OFFSET_COMMIT: [[{(WRITE, TRANSACTIONAL_ID), (READ, GROUP), (READ, TOPIC)}]],
    ApiKey.DESCRIBE_GROUPS: [[{(DESCRIBE, GROUP)}]],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [[{(READ, GROUP), (DESCRIBE, TOPIC)}]],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [[{(DESCRIBE, GROUP)}]],
    ApiKey.DELETE_GROUPS: [[{(DELETE, GROUP)}]],
    ApiKey.SHARE_GROUP_HEARTBEAT: [[{(READ, GROUP), (DESCRIBE, TOPIC)}]],
    ApiKey.SHARE_GROUP_DESCRIBE: [[{(DESCRIBE, GROUP)}]],
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: [[{(DESCRIBE, GROUP), (DESCRIBE, TOPIC)}]],
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: [[{(READ, GROUP), (READ, TOPIC)}]],
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: [[{(DELETE, GROUP), (READ, TOPIC)}]],
    ApiKey.DESCRIBE_ACLS: [[{(DESCRIBE, CLUSTER)}]],
    ApiKey.CREATE_ACLS: [[{(ALTER, CLUSTER)}]],
    ApiKey.DELETE_ACLS: [[{(ALTER, CLUSTER)}]],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [[{(ALTER, CLUSTER)}]],
    ApiKey.ELECT_LEADERS: [[{(ALTER, CLUSTER)}]],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [[{(ALTER, CLUSTER)}]],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [[{(DESCRIBE, CLUSTER)}]],
    ApiKey.DESCRIBE_QUORUM: [[{(DESCRIBE, CLUSTER)}]],
    ApiKey.LIST_CONFIG_RESOURCES: [[{(DESCRIBE_CONFIGS, CLUSTER)}]],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [[{(DESCRIBE, TOPIC)}]],
    ApiKey.UNREGISTER_BROKER: [[{(ALTER, CLUSTER)}]],
    ApiKey.UPDATE_FEATURES: [[{(ALTER, CLUSTER)}]],
    ApiKey.ADD_RAFT_VOTER: [[{(ALTER, CLUSTER)}]],
    ApiKey.REMOVE_RAFT_VOTER: [[{(ALTER, CLUSTER)}]],
    ApiKey.UPDATE_RAFT_VOTER: [[{(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.ADD_PARTITIONS_TO_TXN: [[{(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.ADD_OFFSETS_TO_TXN: [[{(WRITE, TRANSACTIONAL_ID), (READ, GROUP)}]],
    ApiKey.END_TXN: [[{(WRITE, TRANSACTIONAL_ID)}]],
    ApiKey.DESCRIBE_TRANSACTIONS: [[{(DESCRIBE, TRANSACTIONAL_ID)}]],
    ApiKey.WRITE_TXN_MARKERS: [[{(ALTER, CLUSTER)}, {(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.SHARE_FETCH: [[{(READ, GROUP), (READ, TOPIC)}]],
    ApiKey.SHARE_ACKNOWLEDGE: [[{(READ, GROUP)}]],
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: [[{(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.READ_SHARE_GROUP_STATE: [[{(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.WRITE_SHARE_GROUP_STATE: [[{(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.DELETE_SHARE_GROUP_STATE: [[{(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: [[{(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.DESCRIBE_CLIENT_QUOTAS: [[{(DESCRIBE_CONFIGS, CLUSTER)}]],
    ApiKey.ALTER_CLIENT_QUOTAS: [[{(ALTER_CONFIGS, CLUSTER)}]],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [[{(DESCRIBE, CLUSTER)}]],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [[{(ALTER, CLUSTER)}]],
    ApiKey.CREATE_DELEGATION_TOKEN: [[{(CREATE_TOKENS, AclResource.USER)}]],
}
"""For each case of an API, in its newest version: the sets of rights of which each is enough."""
