"""Every API, in every version: a client without rights gets nothing, and the declared rights are the required ones."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from closed_broker import ALICE, ROOT, ClosedBroker, with_broker
from request_of_each_api import (
    FLIGHTS,
    MINUTE,
    NAMES,
    NOWHERE,
    PAY,
    REFUSALS,
    TEAM,
    cases,
)
from requests_without_rights import MODULES, SUFFICIENT, Grant, codes_in, refused_in, texts_in

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.rights import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOKENS,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Right,
)
from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.security.authorizer import OPERATIONS_ON

TOKEN_KEY = {"delegation_token_secret_key": "a long random text"}
CLIENT = dataclasses.replace(ALICE, mechanism="SCRAM-SHA-256")
KEYS = [pytest.param(key, id=key.name) for key in MODULES]


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
    for module in MODULES.values():
        assert all(isinstance(right, Right) for right in module.RIGHTS), module.KEY.name
        # Kafka asks for DELETE on the cluster, which an ACL gives only with ALL.
        given = [right for right in module.RIGHTS if (right.operation, right.resource) != (DELETE, CLUSTER)]
        assert all(OPERATIONS_ON[right.resource] >> right.operation & 1 for right in given), module.KEY.name


@pytest.mark.parametrize("api", KEYS)
def test_without_rights_a_client_gets_nothing_and_changes_nothing(api: ApiKey) -> None:
    # A client may create tokens of its own.
    not_compared: dict[str, Any] = {"index": 0, "recent": None, "delegation_tokens": {}}

    async def story(broker: ClosedBroker) -> None:
        topic_id = await with_state(broker)
        before = dataclasses.replace(broker.image, **not_compared)
        for version in MODULES[api].KEY.versions:
            for number, case in enumerate(cases(FLIGHTS, topic_id)[api]):
                answer = await broker.ask(CLIENT, api, version, **dict(case.fields))
                assert Counter(codes_in(answer)) == refused_in(api, version, case), (version, number, answer)
                named = {FLIGHTS, TEAM, PAY}.intersection(_texts_of(case.fields))
                assert not {FLIGHTS, TEAM, PAY}.intersection(texts_in(answer)) - named
            # Whether the topic exists does not show.
            for known, unknown in zip(cases(FLIGHTS, topic_id)[api], cases(NOWHERE, UUID(int=99))[api], strict=True):
                answer = await broker.ask(CLIENT, api, version, **dict(unknown.fields))
                assert Counter(codes_in(answer)) == refused_in(api, version, known, is_known=False), (version, answer)
        assert dataclasses.replace(broker.image, **not_compared) == before
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


ASIDE: dict[ApiKey, set[Grant]] = {
    ApiKey.METADATA: {(CREATE, CLUSTER), (CREATE, TOPIC), (DESCRIBE, CLUSTER)},
    ApiKey.CREATE_TOPICS: {(DESCRIBE_CONFIGS, TOPIC)},
    ApiKey.DELETE_TOPICS: {(DELETE, CLUSTER), (DESCRIBE, TOPIC)},
    ApiKey.DESCRIBE_CLUSTER: {(DESCRIBE, CLUSTER)},
    ApiKey.FIND_COORDINATOR: {(CLUSTER_ACTION, CLUSTER)},
    ApiKey.SHARE_ACKNOWLEDGE: {(READ, TOPIC)},
    ApiKey.LIST_GROUPS: {(DESCRIBE, CLUSTER), (DESCRIBE, GROUP)},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {(DESCRIBE, TOPIC)},
    ApiKey.SHARE_GROUP_DESCRIBE: {(DESCRIBE, TOPIC)},
    ApiKey.ADD_PARTITIONS_TO_TXN: {(WRITE, TRANSACTIONAL_ID), (WRITE, TOPIC)},
    ApiKey.DESCRIBE_TRANSACTIONS: {(DESCRIBE, TOPIC)},
    ApiKey.LIST_TRANSACTIONS: {(DESCRIBE, TRANSACTIONAL_ID)},
    ApiKey.WRITE_TXN_MARKERS: {(ALTER, CLUSTER)},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {
        (DESCRIBE, AclResource.DELEGATION_TOKEN), (DESCRIBE_TOKENS, AclResource.USER),
    },
}  # fmt: skip
"""Rights of which a lack changes the response without an error, or that others of another version or key replace."""


def granted(api: ApiKey, rights: set[Grant]) -> list[Acl]:
    topic = "new" if api is ApiKey.CREATE_TOPICS else FLIGHTS
    names = {**NAMES, TOPIC: topic, AclResource.USER: "User:bob"}
    return [acl_of(operation, resource, names[resource]) for operation, resource in rights]


def test_the_declared_rights_are_the_required_ones() -> None:
    for module in MODULES.values():
        required = {grant for case in SUFFICIENT.get(module.KEY, []) for rights in case for grant in rights}
        declared = {(right.operation, right.resource) for right in module.RIGHTS}
        alternative = {(WRITE, TOPIC)} if module.KEY is ApiKey.INIT_PRODUCER_ID else set()
        assert declared == (required - alternative) | ASIDE.get(module.KEY, set()), module.KEY.name


@pytest.mark.parametrize("api", SUFFICIENT, ids=lambda api: api.name)
def test_the_rights_are_enough_and_each_of_them_is_required(api: ApiKey) -> None:
    version = MODULES[api].KEY.versions[-1]

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
