"""API keys of the Kafka protocol that this broker serves, with their versions.

A new API is one line here, and a module in `handlers/` that has the name of the key in lower case.
"""

from enum import IntEnum

_LOOKUP = range(0)
"""For mypy: ApiKey(14) finds the member without its versions."""


class ApiKey(IntEnum):
    """An API of the Kafka protocol (https://kafka.apache.org/protocol#protocol_api_keys), or of our own from 512 on."""

    versions: range
    """The versions that are served."""

    def __new__(cls, key: int, versions: range = _LOOKUP) -> "ApiKey":
        api = int.__new__(cls, key)
        api._value_, api.versions = key, versions
        return api

    PRODUCE = 0, range(3, 14)
    FETCH = 1, range(4, 19)
    LIST_OFFSETS = 2, range(1, 12)
    METADATA = 3, range(14)
    OFFSET_COMMIT = 8, range(2, 11)
    OFFSET_FETCH = 9, range(1, 11)
    FIND_COORDINATOR = 10, range(7)
    JOIN_GROUP = 11, range(10)
    HEARTBEAT = 12, range(5)
    LEAVE_GROUP = 13, range(6)
    SYNC_GROUP = 14, range(6)
    DESCRIBE_GROUPS = 15, range(7)
    LIST_GROUPS = 16, range(6)
    SASL_HANDSHAKE = 17, range(2)
    API_VERSIONS = 18, range(5)
    CREATE_TOPICS = 19, range(2, 8)
    DELETE_TOPICS = 20, range(1, 7)
    DELETE_RECORDS = 21, range(3)
    INIT_PRODUCER_ID = 22, range(6)
    OFFSET_FOR_LEADER_EPOCH = 23, range(2, 5)
    ADD_PARTITIONS_TO_TXN = 24, range(6)
    ADD_OFFSETS_TO_TXN = 25, range(5)
    END_TXN = 26, range(6)
    WRITE_TXN_MARKERS = 27, range(1, 3)
    TXN_OFFSET_COMMIT = 28, range(6)
    DESCRIBE_ACLS = 29, range(1, 4)
    CREATE_ACLS = 30, range(1, 4)
    DELETE_ACLS = 31, range(1, 4)
    DESCRIBE_CONFIGS = 32, range(1, 5)
    ALTER_CONFIGS = 33, range(3)
    ALTER_REPLICA_LOG_DIRS = 34, range(1, 3)
    DESCRIBE_LOG_DIRS = 35, range(1, 5)
    SASL_AUTHENTICATE = 36, range(3)
    CREATE_PARTITIONS = 37, range(4)
    CREATE_DELEGATION_TOKEN = 38, range(1, 4)
    RENEW_DELEGATION_TOKEN = 39, range(1, 3)
    EXPIRE_DELEGATION_TOKEN = 40, range(1, 3)
    DESCRIBE_DELEGATION_TOKEN = 41, range(1, 4)
    DELETE_GROUPS = 42, range(3)
    ELECT_LEADERS = 43, range(3)
    INCREMENTAL_ALTER_CONFIGS = 44, range(2)
    ALTER_PARTITION_REASSIGNMENTS = 45, range(2)
    LIST_PARTITION_REASSIGNMENTS = 46, range(1)
    OFFSET_DELETE = 47, range(1)
    DESCRIBE_CLIENT_QUOTAS = 48, range(2)
    ALTER_CLIENT_QUOTAS = 49, range(2)
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, range(1)
    ALTER_USER_SCRAM_CREDENTIALS = 51, range(1)
    DESCRIBE_QUORUM = 55, range(3)
    UPDATE_FEATURES = 57, range(3)
    DESCRIBE_CLUSTER = 60, range(3)
    DESCRIBE_PRODUCERS = 61, range(1)
    UNREGISTER_BROKER = 64, range(1)
    DESCRIBE_TRANSACTIONS = 65, range(1)
    LIST_TRANSACTIONS = 66, range(3)
    CONSUMER_GROUP_HEARTBEAT = 68, range(2)
    CONSUMER_GROUP_DESCRIBE = 69, range(2)
    GET_TELEMETRY_SUBSCRIPTIONS = 71, range(1)
    PUSH_TELEMETRY = 72, range(1)
    LIST_CONFIG_RESOURCES = 74, range(2)
    DESCRIBE_TOPIC_PARTITIONS = 75, range(1)
    SHARE_GROUP_HEARTBEAT = 76, range(1, 2)
    SHARE_GROUP_DESCRIBE = 77, range(1, 2)
    SHARE_FETCH = 78, range(1, 3)
    SHARE_ACKNOWLEDGE = 79, range(1, 3)
    ADD_RAFT_VOTER = 80, range(2)
    REMOVE_RAFT_VOTER = 81, range(1)
    UPDATE_RAFT_VOTER = 82, range(1)
    INITIALIZE_SHARE_GROUP_STATE = 83, range(1)
    READ_SHARE_GROUP_STATE = 84, range(1)
    WRITE_SHARE_GROUP_STATE = 85, range(2)
    DELETE_SHARE_GROUP_STATE = 86, range(1)
    READ_SHARE_GROUP_STATE_SUMMARY = 87, range(2)
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, range(2)
    ALTER_SHARE_GROUP_OFFSETS = 91, range(1)
    DELETE_SHARE_GROUP_OFFSETS = 92, range(1)
    CREATE_CUT = 512, range(1)
    DESCRIBE_CUTS = 513, range(1)
    DROP_CUT = 514, range(1)
    ACKNOWLEDGE_QUEUE = 515, range(1)
    DESCRIBE_SHARE_PARTITIONS = 516, range(1)
