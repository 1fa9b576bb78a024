"""A request of each Kafka API, with the error codes that a client without rights gets."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.rights import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID
from cordwood.cluster.metadata.acls import AclResource
from cordwood.cluster.security.authorizer import CLUSTER_NAME
from cordwood.storage.batch import TRANSACTIONAL
from cordwood.storage.records import Record, encode

FLIGHTS, NOWHERE, TEAM, PAY = "flights", "nowhere", "team", "pay"
NAMES = {TOPIC: FLIGHTS, GROUP: TEAM, CLUSTER: CLUSTER_NAME, TRANSACTIONAL_ID: PAY}
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
BATCH = encode([Record(0, 1_700_000_000_000, b"k", b"v")])
BATCH_IN_TRANSACTION = encode(
    [Record(0, 1_700_000_000_000, b"k", b"v")],
    attributes=TRANSACTIONAL,
    producer_id=77,
    producer_epoch=0,
    base_sequence=0,
)
REFUSALS = {
    TOPIC: ErrorCode.topic_authorization_failed,
    GROUP: ErrorCode.group_authorization_failed,
    CLUSTER: ErrorCode.cluster_authorization_failed,
    TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
    AclResource.USER: ErrorCode.delegation_token_authorization_failed,
}
TOPIC_29, GROUP_30, CLUSTER_31, ID_53, TOKEN_65 = REFUSALS.values()


class Case(NamedTuple):
    """A request, and the error codes in the response to a client without any right, with their counts."""

    fields: Mapping[str, Any]
    refused: Mapping[ErrorCode, int] = {}


def fetched(**fields: Any) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "current_leader_epoch": -1, "partition_max_bytes": 1000}
    return {"replica_id": -1, "min_bytes": 1, "max_bytes": 1 << 20, "partitions": (partition,), **fields}


PRODUCER = {"transactional_id": PAY, "producer_id": 77, "producer_epoch": 0}
MEMBER = {"group_id": TEAM, "member_id": "m", "generation_id": 1, "generation_id_or_member_epoch": 1}
OFFSET = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
ACL = {
    "resource_type": 2, "resource_name": "x", "resource_pattern_type": 3, "principal": "User:x", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
QUOTA = {
    "entity": ({"entity_type": "user", "entity_name": "x"},),
    "ops": ({"key": "producer_byte_rate", "value": 1e6, "remove": False},),
}
ACL_FILTER = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
INDEXES = {"partitions": (0,), "partition_indexes": (0,)}

Cases = dict[ApiKey, list[Case]]
Fields = dict[str, Any]


def cases(topic: str, topic_id: UUID) -> Cases:
    """Return the requests of each API, with this topic."""
    named = {"name": topic, "topic": topic, "topic_id": topic_id}
    families = (_of_records, _of_topics, _of_groups, _of_transactions, _of_brokers, _of_security, _of_shares)
    return {api: found for family in families for api, found in family(named).items()}


def _of_records(named: Fields) -> Cases:
    """Return the requests about records."""
    return {
        ApiKey.PRODUCE: [
            Case({"acks": -1, "timeout": MINUTE, "topic_data": produced(named, BATCH)}, {TOPIC_29: 1}),
            Case(
                {
                    "acks": -1,
                    "timeout": MINUTE,
                    "transactional_id": PAY,
                    "topic_data": produced(named, BATCH_IN_TRANSACTION),
                },
                {ID_53: 1},
            ),
        ],
        ApiKey.FETCH: [
            Case({**fetched(), "topics": ({**named, **fetched()},)}, {TOPIC_29: 1}),
            # It poses as a replica.
            Case(
                {
                    **fetched(replica_id=2),
                    "replica_state": {"replica_id": 2, "replica_epoch": 1},
                    "topics": ({**named, **fetched()},),
                },
                {TOPIC_29: 1},
            ),
        ],
        ApiKey.LIST_OFFSETS: [
            Case(
                {"replica_id": -1, "topics": ({**named, "partitions": ({"partition_index": 0, "timestamp": -1},)},)},
                {TOPIC_29: 1},
            )
        ],
        ApiKey.DELETE_RECORDS: [
            Case({"topics": ({**named, "partitions": ({"partition_index": 0, "offset": 1},)},)}, {TOPIC_29: 1})
        ],
        ApiKey.OFFSET_FOR_LEADER_EPOCH: [
            Case({"topics": ({**named, "partitions": ({"partition": 0, "leader_epoch": 0},)},)}, {TOPIC_29: 1})
        ],
        ApiKey.DESCRIBE_PRODUCERS: [Case({"topics": ({**named, **INDEXES},)}, {TOPIC_29: 1})],
    }


def _of_topics(named: Fields) -> Cases:
    """Return the requests about topics and configs."""
    topic = named["name"]
    topic_config = {"resource_type": 2, "resource_name": topic, "configs": ()}
    broker_config = {"resource_type": 4, "resource_name": "", "configs": ()}
    group_config = {"resource_type": 32, "resource_name": TEAM, "configs": ()}
    config = {"resources": (topic_config, broker_config, group_config)}
    of_config = {TOPIC_29: 1, CLUSTER_31: 1, GROUP_30: 1}
    return {
        ApiKey.METADATA: [Case({"topics": ({**named, "topic_id": None},)}, {TOPIC_29: 1})],
        ApiKey.API_VERSIONS: [Case({"client_software_name": "x", "client_software_version": "1"})],
        ApiKey.CREATE_TOPICS: [
            Case({"topics": ({"name": "new", "num_partitions": 1, "replication_factor": 1},)}, {TOPIC_29: 1})
        ],
        ApiKey.DELETE_TOPICS: [
            Case({"topics": ({"name": topic, "topic_id": None},), "topic_names": (topic,)}, {TOPIC_29: 1})
        ],
        ApiKey.CREATE_PARTITIONS: [Case({"topics": ({"name": topic, "count": 2},)}, {TOPIC_29: 1})],
        ApiKey.DESCRIBE_CONFIGS: [Case(config, of_config)],
        ApiKey.ALTER_CONFIGS: [Case(config, of_config)],
        ApiKey.INCREMENTAL_ALTER_CONFIGS: [Case(config, of_config)],
        ApiKey.LIST_CONFIG_RESOURCES: [Case({}, {CLUSTER_31: 1})],
        # Every client may push its own metrics, if it says which instance it is.
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: [Case({"client_instance_id": None})],
        ApiKey.PUSH_TELEMETRY: [
            Case(
                {
                    "client_instance_id": None,
                    "subscription_id": 1,
                    "terminating": False,
                    "compression_type": 0,
                    "metrics": b"",
                },
                {ErrorCode.invalid_request: 1},
            )
        ],
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: [
            Case({"topics": ({"name": topic},), "response_partition_limit": 10}, {TOPIC_29: 1})
        ],
    }


def _of_groups(named: Fields) -> Cases:
    """Return the requests about groups."""
    topic = named["name"]
    return {
        ApiKey.FIND_COORDINATOR: [
            Case({"key": TEAM, "coordinator_keys": (TEAM,)}, {GROUP_30: 1}),
            Case({"key": PAY, "coordinator_keys": (PAY,), "key_type": 1}, {ID_53: 1}),
        ],
        ApiKey.JOIN_GROUP: [
            Case(
                {
                    **MEMBER,
                    "session_timeout": timedelta(seconds=10),
                    "rebalance_timeout": MINUTE,
                    "protocol_type": "consumer",
                    "protocols": ({"name": "range", "metadata": b""},),
                },
                {GROUP_30: 1},
            )
        ],
        ApiKey.SYNC_GROUP: [Case({**MEMBER, "protocol_type": "consumer", "protocol_name": "range"}, {GROUP_30: 1})],
        ApiKey.HEARTBEAT: [Case(MEMBER, {GROUP_30: 1})],
        ApiKey.LEAVE_GROUP: [Case({**MEMBER, "members": ({"member_id": "m"},)}, {GROUP_30: 1})],
        ApiKey.OFFSET_COMMIT: [Case({**MEMBER, "topics": ({**named, "partitions": (OFFSET,)},)}, {GROUP_30: 1})],
        ApiKey.OFFSET_FETCH: [
            Case(
                {
                    "groups": ({"group_id": TEAM, "topics": ({**named, **INDEXES},)},),
                    "group_id": TEAM,
                    "topics": ({**named, **INDEXES},),
                },
                {GROUP_30: 1},
            )
        ],
        ApiKey.OFFSET_DELETE: [
            Case(
                {"group_id": TEAM, "topics": ({"name": topic, "partitions": ({"partition_index": 0},)},)}, {GROUP_30: 1}
            )
        ],
        ApiKey.DESCRIBE_GROUPS: [Case({"groups": (TEAM,)}, {GROUP_30: 1})],
        ApiKey.CONSUMER_GROUP_HEARTBEAT: [
            Case(
                {
                    "group_id": TEAM,
                    "member_id": "m",
                    "member_epoch": 0,
                    "rebalance_timeout": MINUTE,
                    "subscribed_topic_names": (topic,),
                    "topic_partitions": (),
                },
                {GROUP_30: 1},
            )
        ],
        ApiKey.CONSUMER_GROUP_DESCRIBE: [Case({"group_ids": (TEAM,)}, {GROUP_30: 1})],
        ApiKey.LIST_GROUPS: [Case({})],
        ApiKey.DELETE_GROUPS: [Case({"groups_names": (TEAM,)}, {GROUP_30: 1})],
        **_of_share_groups(topic),
    }


def _of_share_groups(topic: str) -> Cases:
    """Return the requests about share groups."""
    return {
        ApiKey.SHARE_GROUP_HEARTBEAT: [
            Case(
                {"group_id": TEAM, "member_id": "m", "member_epoch": 0, "subscribed_topic_names": (topic,)},
                {GROUP_30: 1},
            )
        ],
        ApiKey.SHARE_GROUP_DESCRIBE: [Case({"group_ids": (TEAM,)}, {GROUP_30: 1})],
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: [
            Case(
                {"groups": ({"group_id": TEAM, "topics": ({"topic_name": topic, "partitions": (0,)},)},)}, {GROUP_30: 1}
            )
        ],
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: [
            Case(
                {
                    "group_id": TEAM,
                    "topics": ({"topic_name": topic, "partitions": ({"partition_index": 0, "start_offset": 0},)},),
                },
                {GROUP_30: 1},
            )
        ],
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: [
            Case({"group_id": TEAM, "topics": ({"topic_name": topic},)}, {GROUP_30: 1})
        ],
    }


def _of_transactions(named: Fields) -> Cases:
    """Return the requests about transactions."""
    in_transaction = {**PRODUCER, "topics": ({**named, "partitions": (0,)},)}
    return {
        ApiKey.INIT_PRODUCER_ID: [
            Case({"transactional_id": PAY, "transaction_timeout": MINUTE}, {ID_53: 1}),
            Case({"transactional_id": None, "transaction_timeout": MINUTE}, {CLUSTER_31: 1}),
        ],
        ApiKey.TXN_OFFSET_COMMIT: [
            Case({**PRODUCER, **MEMBER, "topics": ({**named, "partitions": (OFFSET,)},)}, {ID_53: 1})
        ],
        ApiKey.ADD_PARTITIONS_TO_TXN: [
            Case(
                {
                    "transactions": (in_transaction,),
                    **{f"v3_and_below_{name}": value for name, value in in_transaction.items()},
                },
                {ID_53: 1},
            )
        ],
        ApiKey.ADD_OFFSETS_TO_TXN: [Case({**PRODUCER, "group_id": TEAM}, {ID_53: 1})],
        ApiKey.END_TXN: [Case({**PRODUCER, "committed": True}, {ID_53: 1})],
        ApiKey.DESCRIBE_TRANSACTIONS: [Case({"transactional_ids": (PAY,)}, {ID_53: 1})],
        ApiKey.LIST_TRANSACTIONS: [Case({})],
        ApiKey.WRITE_TXN_MARKERS: [
            Case(
                {"markers": ({**PRODUCER, "topics": ({**named, **INDEXES},), "coordinator_epoch": 1},)}, {CLUSTER_31: 1}
            )
        ],
    }


def _of_shares(named: Fields) -> Cases:
    """Return the requests of members of share groups, and those to share coordinators."""
    member = {"group_id": TEAM, "member_id": "m", "share_session_epoch": 0}
    fetched_from = {"partition_index": 0, "acknowledgement_batches": ()}
    limits = {"max_wait": timedelta(0), "min_bytes": 1, "max_bytes": 1000, "max_records": 10, "batch_size": 10}
    state = {"partition": 0, "state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "state_batches": ()}
    of_states = {"group_id": TEAM, "topics": ({**named, "partitions": (state,)},)}
    return {
        ApiKey.SHARE_FETCH: [
            Case({**member, **limits, "topics": ({**named, "partitions": (fetched_from,)},)}, {GROUP_30: 1})
        ],
        ApiKey.SHARE_ACKNOWLEDGE: [
            Case({**member, "topics": ({**named, "partitions": (fetched_from,)},)}, {GROUP_30: 1})
        ],
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: [Case(of_states, {CLUSTER_31: 1})],
        ApiKey.READ_SHARE_GROUP_STATE: [Case(of_states, {CLUSTER_31: 1})],
        ApiKey.WRITE_SHARE_GROUP_STATE: [Case(of_states, {CLUSTER_31: 1})],
        ApiKey.DELETE_SHARE_GROUP_STATE: [Case(of_states, {CLUSTER_31: 1})],
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: [Case(of_states, {CLUSTER_31: 1})],
    }


def _of_brokers(named: Fields) -> Cases:
    """Return the requests about brokers and replicas."""
    return {
        ApiKey.DESCRIBE_LOG_DIRS: [Case({"topics": None}, {CLUSTER_31: 1})],
        ApiKey.DESCRIBE_CLUSTER: [Case({})],
        ApiKey.ALTER_REPLICA_LOG_DIRS: [
            Case({"dirs": ({"path": "/other", "topics": ({**named, **INDEXES},)},)}, {CLUSTER_31: 1})
        ],
        ApiKey.ELECT_LEADERS: [Case({"topic_partitions": ({**named, **INDEXES},), "timeout": MINUTE}, {CLUSTER_31: 2})],
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: [
            Case({"topics": ({**named, "partitions": ({"partition_index": 0, "replicas": None},)},)}, {CLUSTER_31: 2})
        ],
        ApiKey.LIST_PARTITION_REASSIGNMENTS: [Case({"topics": None}, {CLUSTER_31: 1})],
        ApiKey.DESCRIBE_QUORUM: [
            Case(
                {"topics": ({"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 0},)},)},
                {CLUSTER_31: 1},
            )
        ],
        ApiKey.UNREGISTER_BROKER: [Case({"broker_id": 9}, {CLUSTER_31: 1})],
        ApiKey.UPDATE_FEATURES: [
            Case(
                {"feature_updates": ({"feature": "metadata.version", "max_version_level": 1},), "validate_only": True},
                {CLUSTER_31: 1},
            )
        ],
        **_of_voters(),
    }


def _of_voters() -> Cases:
    """Return the requests that change the voters of the metadata quorum."""
    voter = {"cluster_id": None, "voter_id": 9, "voter_directory_id": UUID(int=9)}
    listeners = ({"name": "CONTROLLER", "host": "localhost", "port": 9093},)
    kraft = {"min_supported_version": 0, "max_supported_version": 1}
    return {
        ApiKey.ADD_RAFT_VOTER: [Case({**voter, "timeout": MINUTE, "listeners": listeners}, {CLUSTER_31: 1})],
        ApiKey.REMOVE_RAFT_VOTER: [Case(voter, {CLUSTER_31: 1})],
        ApiKey.UPDATE_RAFT_VOTER: [
            Case(
                {**voter, "current_leader_epoch": 0, "listeners": listeners, "k_raft_version_feature": kraft},
                {CLUSTER_31: 1},
            )
        ],
    }


def _of_security(_named: Fields) -> Cases:
    """Return the requests about ACLs, users and tokens."""
    return {
        ApiKey.DESCRIBE_ACLS: [Case(ACL_FILTER, {CLUSTER_31: 1})],
        ApiKey.CREATE_ACLS: [Case({"creations": (ACL,)}, {CLUSTER_31: 1})],
        ApiKey.DELETE_ACLS: [Case({"filters": (ACL_FILTER,)}, {CLUSTER_31: 1})],
        ApiKey.SASL_HANDSHAKE: [Case({"mechanism": "PLAIN"}, {ErrorCode.illegal_sasl_state: 1})],
        ApiKey.SASL_AUTHENTICATE: [Case({"auth_bytes": b""}, {ErrorCode.illegal_sasl_state: 1})],
        ApiKey.DESCRIBE_CLIENT_QUOTAS: [Case({"components": ()}, {CLUSTER_31: 1})],
        ApiKey.ALTER_CLIENT_QUOTAS: [Case({"entries": (QUOTA,)}, {CLUSTER_31: 1})],
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [Case({"users": None}, {CLUSTER_31: 1})],
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [Case({"deletions": ({"name": "x", "mechanism": 1},)}, {CLUSTER_31: 1})],
        ApiKey.CREATE_DELEGATION_TOKEN: [
            Case({"owner_principal_type": "User", "owner_principal_name": "bob", "max_lifetime": MINUTE}, {TOKEN_65: 1})
        ],
        ApiKey.RENEW_DELEGATION_TOKEN: [
            Case({"hmac": b"x", "renew_period": MINUTE}, {ErrorCode.delegation_token_not_found: 1})
        ],
        ApiKey.EXPIRE_DELEGATION_TOKEN: [
            Case({"hmac": b"x", "expiry_time_period": MINUTE}, {ErrorCode.delegation_token_not_found: 1})
        ],
        ApiKey.DESCRIBE_DELEGATION_TOKEN: [Case({"owners": None})],
    }


def produced(named: Mapping[str, Any], records: bytes) -> tuple[Mapping[str, Any], ...]:
    return ({**named, "partition_data": ({"index": 0, "records": records},)},)
