"""Every API, in every version: a client without rights gets nothing, and the declared rights are the required ones."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from closed_broker import ALICE, ROOT, ClosedBroker, with_broker
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.registry import HANDLERS
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
    DESCRIBE_TOKENS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Right,
)
from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.security.authorizer import CLUSTER_NAME, OPERATIONS_ON
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
MODULES = {module.KEY: module for module in HANDLERS}
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
ACL_FILTER = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
INDEXES = {"partitions": (0,), "partition_indexes": (0,)}

Cases = dict[ApiKey, list[Case]]
Fields = dict[str, Any]


def cases(topic: str, topic_id: UUID) -> Cases:
    """Return the requests of each API, with this topic."""
    named = {"name": topic, "topic": topic, "topic_id": topic_id}
    families = (_of_records, _of_topics, _of_groups, _of_transactions, _of_brokers, _of_security)
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
    of_config = {TOPIC_29: 1, CLUSTER_31: 1}
    return {
        ApiKey.METADATA: [Case({"topics": ({**named, "topic_id": None},)}, {TOPIC_29: 1})],
        ApiKey.API_VERSIONS: [Case({})],
        ApiKey.CREATE_TOPICS: [
            Case({"topics": ({"name": "new", "num_partitions": 1, "replication_factor": 1},)}, {TOPIC_29: 1})
        ],
        ApiKey.DELETE_TOPICS: [
            Case({"topics": ({"name": topic, "topic_id": None},), "topic_names": (topic,)}, {TOPIC_29: 1})
        ],
        ApiKey.CREATE_PARTITIONS: [Case({"topics": ({"name": topic, "count": 2},)}, {TOPIC_29: 1})],
        ApiKey.DESCRIBE_CONFIGS: [Case({"resources": (topic_config, broker_config)}, of_config)],
        ApiKey.ALTER_CONFIGS: [Case({"resources": (topic_config, broker_config)}, of_config)],
        ApiKey.INCREMENTAL_ALTER_CONFIGS: [Case({"resources": (topic_config, broker_config)}, of_config)],
        ApiKey.LIST_CONFIG_RESOURCES: [Case({}, {CLUSTER_31: 1})],
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
        ApiKey.LIST_GROUPS: [Case({})],
        ApiKey.DELETE_GROUPS: [Case({"groups_names": (TEAM,)}, {GROUP_30: 1})],
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
    }


def _of_security(_named: Fields) -> Cases:
    """Return the requests about ACLs, users and tokens."""
    return {
        ApiKey.DESCRIBE_ACLS: [Case(ACL_FILTER, {CLUSTER_31: 1})],
        ApiKey.CREATE_ACLS: [Case({"creations": (ACL,)}, {CLUSTER_31: 1})],
        ApiKey.DELETE_ACLS: [Case({"filters": (ACL_FILTER,)}, {CLUSTER_31: 1})],
        ApiKey.SASL_HANDSHAKE: [Case({"mechanism": "PLAIN"}, {ErrorCode.illegal_sasl_state: 1})],
        ApiKey.SASL_AUTHENTICATE: [Case({"auth_bytes": b""}, {ErrorCode.illegal_sasl_state: 1})],
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


TOKEN_KEY = {"delegation_token_secret_key": "a long random text"}
CLIENT = dataclasses.replace(ALICE, mechanism="SCRAM-SHA-256")
KEYS = [pytest.param(module.KEY, id=module.KEY.name) for module in HANDLERS]


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


async def with_state(broker: ClosedBroker) -> UUID:
    """Make a topic with a record, a group with an offset, and a transactional id. Return the topic's id."""
    created = await broker.ask(
        ROOT, ApiKey.CREATE_TOPICS, 7, topics=({"name": FLIGHTS, "num_partitions": 1, "replication_factor": 1},)
    )
    topic_id: UUID = created.topics[0].topic_id
    await broker.ask(ROOT, ApiKey.PRODUCE, 9, **dict(cases(FLIGHTS, topic_id)[ApiKey.PRODUCE][0].fields))
    for key, kind in ((TEAM, 0), (PAY, 1)):
        answer = await broker.ask(ROOT, ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=(key,))
        assert list(codes_in(answer)) == []
    offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    topics = ({"name": FLIGHTS, "partitions": (offset,)},)
    answer = await broker.ask(
        ROOT, ApiKey.OFFSET_COMMIT, 8, group_id=TEAM, generation_id_or_member_epoch=-1, topics=topics
    )
    assert list(codes_in(answer)) == []
    answer = await broker.ask(ROOT, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=PAY, transaction_timeout=MINUTE)
    assert list(codes_in(answer)) == []
    return topic_id


def acl_of(operation: AclOperation, resource: AclResource, name: str = "") -> Acl:
    on = ResourcePattern(resource, name or NAMES[resource], Pattern.LITERAL)
    return Acl(on, str(ALICE.principal), "*", operation, Permission.ALLOW)


def test_every_api_has_rights_and_a_request_here() -> None:
    assert set(cases(FLIGHTS, UUID(int=1))) == set(MODULES)
    for module in HANDLERS:
        assert all(isinstance(right, Right) for right in module.RIGHTS), module.KEY.name
        # Kafka asks for DELETE on the cluster, which an ACL gives only with ALL.
        given = [right for right in module.RIGHTS if (right.operation, right.resource) != (DELETE, CLUSTER)]
        assert all(OPERATIONS_ON[right.resource] >> right.operation & 1 for right in given), module.KEY.name


@pytest.mark.parametrize("api", KEYS)
def test_without_rights_a_client_gets_nothing_and_changes_nothing(api: ApiKey) -> None:
    # A client may create tokens of its own.
    untold: dict[str, Any] = {"index": 0, "recent": None, "delegation_tokens": {}}

    async def story(broker: ClosedBroker) -> None:
        topic_id = await with_state(broker)
        before = dataclasses.replace(broker.image, **untold)
        for version in MODULES[api].VERSIONS:
            for number, case in enumerate(cases(FLIGHTS, topic_id)[api]):
                answer = await broker.ask(CLIENT, api, version, **dict(case.fields))
                assert Counter(codes_in(answer)) == refused_in(api, version, case), (version, number, answer)
                named = {FLIGHTS, TEAM, PAY}.intersection(_texts_of(case.fields))
                assert not {FLIGHTS, TEAM, PAY}.intersection(texts_in(answer)) - named
            # Whether the topic exists does not show.
            for known, unknown in zip(cases(FLIGHTS, topic_id)[api], cases(NOWHERE, UUID(int=99))[api], strict=True):
                answer = await broker.ask(CLIENT, api, version, **dict(unknown.fields))
                assert Counter(codes_in(answer)) == refused_in(api, version, known, is_known=False), (version, answer)
        assert dataclasses.replace(broker.image, **untold) == before
        partition = broker.broker._replicas.get(FLIGHTS, 0)
        assert partition is not None
        assert (partition.log.log_start, partition.log.log_end) == (0, 1)

    with_broker(story, **TOKEN_KEY)


def _texts_of(fields: object) -> Iterator[str]:
    if isinstance(fields, str):
        yield fields
    elif isinstance(fields, Mapping):
        for value in fields.values():
            yield from _texts_of(value)
    elif isinstance(fields, tuple):
        for value in fields:
            yield from _texts_of(value)


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
    ApiKey.DESCRIBE_CONFIGS: [[{(DESCRIBE_CONFIGS, TOPIC), (DESCRIBE_CONFIGS, CLUSTER)}]],
    ApiKey.ALTER_CONFIGS: [[{(ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, CLUSTER)}]],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [[{(ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, CLUSTER)}]],
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
    ApiKey.DELETE_GROUPS: [[{(DELETE, GROUP)}]],
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
    ApiKey.ADD_PARTITIONS_TO_TXN: [[{(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.ADD_OFFSETS_TO_TXN: [[{(WRITE, TRANSACTIONAL_ID), (READ, GROUP)}]],
    ApiKey.END_TXN: [[{(WRITE, TRANSACTIONAL_ID)}]],
    ApiKey.DESCRIBE_TRANSACTIONS: [[{(DESCRIBE, TRANSACTIONAL_ID)}]],
    ApiKey.WRITE_TXN_MARKERS: [[{(ALTER, CLUSTER)}, {(CLUSTER_ACTION, CLUSTER)}]],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [[{(DESCRIBE, CLUSTER)}]],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [[{(ALTER, CLUSTER)}]],
    ApiKey.CREATE_DELEGATION_TOKEN: [[{(CREATE_TOKENS, AclResource.USER)}]],
}
"""For each case of an API, in its newest version: the sets of rights of which each is enough."""

ASIDE: dict[ApiKey, set[Grant]] = {
    ApiKey.METADATA: {(CREATE, CLUSTER), (CREATE, TOPIC), (DESCRIBE, CLUSTER)},
    ApiKey.CREATE_TOPICS: {(DESCRIBE_CONFIGS, TOPIC)},
    ApiKey.DELETE_TOPICS: {(DELETE, CLUSTER), (DESCRIBE, TOPIC)},
    ApiKey.DESCRIBE_CLUSTER: {(DESCRIBE, CLUSTER)},
    ApiKey.LIST_GROUPS: {(DESCRIBE, CLUSTER), (DESCRIBE, GROUP)},
    ApiKey.ADD_PARTITIONS_TO_TXN: {(WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC)},
    ApiKey.DESCRIBE_TRANSACTIONS: {(DESCRIBE, TOPIC)},
    ApiKey.LIST_TRANSACTIONS: {(DESCRIBE, TRANSACTIONAL_ID)},
    ApiKey.WRITE_TXN_MARKERS: {(ALTER, CLUSTER)},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {
        (DESCRIBE, AclResource.DELEGATION_TOKEN), (DESCRIBE_TOKENS, AclResource.USER),
    },
}  # fmt: skip
"""Rights of which a lack changes the response without an error, or that others of another version replace."""


def granted(api: ApiKey, rights: set[Grant]) -> list[Acl]:
    topic = "new" if api is ApiKey.CREATE_TOPICS else FLIGHTS
    names = {**NAMES, TOPIC: topic, AclResource.USER: "User:bob"}
    return [acl_of(operation, resource, names[resource]) for operation, resource in rights]


def test_the_declared_rights_are_the_required_ones() -> None:
    for module in HANDLERS:
        required = {grant for case in SUFFICIENT.get(module.KEY, []) for rights in case for grant in rights}
        declared = {(right.operation, right.resource) for right in module.RIGHTS}
        alternative = {(WRITE, TOPIC)} if module.KEY is ApiKey.INIT_PRODUCER_ID else set()
        assert declared == (required - alternative) | ASIDE.get(module.KEY, set()), module.KEY.name


@pytest.mark.parametrize("api", SUFFICIENT, ids=lambda api: api.name)
def test_the_rights_are_enough_and_each_of_them_is_required(api: ApiKey) -> None:
    version = MODULES[api].VERSIONS[-1]

    async def story(broker: ClosedBroker) -> None:
        topic_id = await with_state(broker)
        for case, sufficient in zip(cases(FLIGHTS, topic_id)[api], SUFFICIENT[api], strict=True):
            ask = partial(broker.ask, CLIENT, api, version, **dict(case.fields))
            for rights in sufficient:
                for lacking in rights:
                    await broker.allow(*granted(api, rights - {lacking}))
                    code = REFUSALS[lacking[1]] if len(rights) > 1 else next(iter(refused_in(api, version, case)))
                    assert code in set(codes_in(await ask())), (case, lacking)
                    await broker.forget()
                await broker.allow(*granted(api, rights))
                assert not set(REFUSALS.values()).intersection(codes_in(await ask())), (case, rights)
                await broker.forget()

    with_broker(story, **TOKEN_KEY)
