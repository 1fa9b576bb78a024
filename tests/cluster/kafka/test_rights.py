"""Every API, in every version: a client without rights gets nothing, and the declared rights are the required ones."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from closed_broker import ALICE, ROOT, ClosedBroker, with_broker
from kio.schema.errors import ErrorCode
from request_of_each_api import (
    CLUSTER_31,
    FLIGHTS,
    GROUP_30,
    MINUTE,
    NAMES,
    NOWHERE,
    PAY,
    REFUSALS,
    TEAM,
    TOPIC_29,
    Case,
    cases,
)

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
from cordwood.cluster.security.authorizer import OPERATIONS_ON

MODULES = {module.KEY: module for module in HANDLERS}


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
