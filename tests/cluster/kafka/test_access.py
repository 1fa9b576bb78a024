"""Access control in a whole broker: lists, hidden names, producers, fetches that wait, and changes of ACLs."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from closed_broker import ALICE, ROOT, ClosedBroker, with_broker
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.rights import (
    ALTER,
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.security.authorizer import CLUSTER_NAME
from cordwood.storage.batch import TRANSACTIONAL
from cordwood.storage.records import Record, encode

OPEN, SECRET = "open-door", "secret-plans"
NOW_MS = 1_700_000_000_000
MINUTE = timedelta(minutes=1)
BOB = replace(ALICE, principal=ALICE.principal._replace(name="bob"))
DENIED = ErrorCode.topic_authorization_failed


def acl(
    operation: AclOperation,
    resource: AclResource = TOPIC,
    name: str = OPEN,
    *,
    pattern: Pattern = Pattern.LITERAL,
    denies: bool = False,
    host: str = "*",
) -> Acl:
    name = CLUSTER_NAME if resource is CLUSTER else name
    permission = Permission.DENY if denies else Permission.ALLOW
    return Acl(ResourcePattern(resource, name, pattern), str(ALICE.principal), host, operation, permission)


async def with_topics(broker: ClosedBroker) -> dict[str, UUID]:
    """Make both topics, and return their ids."""
    topics = tuple({"name": name, "num_partitions": 1, "replication_factor": 1} for name in (OPEN, SECRET))
    created = await broker.ask(ROOT, ApiKey.CREATE_TOPICS, 7, topics=topics)
    return {row.name: row.topic_id for row in created.topics}


def records(count: int = 1, **producer: int) -> bytes:
    return encode([Record(0, NOW_MS, b"k", b"v")] * count, **producer)


async def produce(
    broker: ClosedBroker, *topics: str, who: Any = ALICE, data: bytes = b"", **fields: Any
) -> list[ErrorCode]:
    """Produce to partition 0 of each topic, and return the codes."""
    version = fields.pop("version", 9)
    data = data or records()
    rows = tuple({"name": name, "partition_data": ({"index": 0, "records": data},)} for name in topics)
    answer = await broker.ask(who, ApiKey.PRODUCE, version, acks=-1, timeout=MINUTE, topic_data=rows, **fields)
    return [partition.error_code for row in answer.responses for partition in row.partition_responses]


def to_fetch(*topics: str, ids: dict[str, UUID] | None = None) -> tuple[dict[str, Any], ...]:
    partition = {"partition": 0, "fetch_offset": 0, "current_leader_epoch": -1, "partition_max_bytes": 1000}
    return tuple({"topic": name, "topic_id": (ids or {}).get(name), "partitions": (partition,)} for name in topics)


async def fetch(broker: ClosedBroker, version: int = 12, **fields: Any) -> Any:
    limits = {"replica_id": -1, "min_bytes": 1, "max_bytes": 1 << 20, "max_wait": timedelta(0), "rack_id": ""}
    return await broker.ask(ALICE, ApiKey.FETCH, version, **{**limits, **fields})


def fetched(answer: Any) -> dict[Any, tuple[ErrorCode, bool]]:
    """Return the code of each topic's partition, and whether it has records."""
    return {
        getattr(row, "topic", None) or row.topic_id: (partition.error_code, bool(partition.records))
        for row in answer.responses
        for partition in row.partitions
    }


def test_a_list_of_all_topics_has_those_that_the_client_may_describe() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(READ))
        for version in (0, 1, 12, 13):
            answer = await broker.ask(ALICE, ApiKey.METADATA, version, topics=() if version == 0 else None)
            assert [topic.name for topic in answer.topics] == [OPEN]
        described = await broker.ask(ALICE, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=(), response_partition_limit=9)
        assert [topic.name for topic in described.topics] == [OPEN]

    with_broker(story)


def test_a_hidden_topic_gets_no_name_for_its_id_and_no_id_for_its_name() -> None:
    async def story(broker: ClosedBroker) -> None:
        ids = await with_topics(broker)
        by_id = await broker.ask(
            ALICE, ApiKey.METADATA, 12, topics=tuple({"topic_id": one, "name": None} for one in ids.values())
        )
        assert {(row.error_code, row.name, row.topic_id) for row in by_id.topics} == {
            (DENIED, None, one) for one in ids.values()
        }
        by_name = await broker.ask(ALICE, ApiKey.METADATA, 12, topics=({"topic_id": None, "name": SECRET},))
        assert [(row.error_code, row.name, row.topic_id) for row in by_name.topics] == [(DENIED, SECRET, None)]
        for versions, asked in ((6, {"topic_id": ids[SECRET], "name": None}), (6, {"topic_id": None, "name": SECRET})):
            deleted = await broker.ask(ALICE, ApiKey.DELETE_TOPICS, versions, topics=(asked,), timeout=MINUTE)
            assert [(row.error_code, row.name, row.topic_id) for row in deleted.responses] == [
                (DENIED, asked["name"], asked["topic_id"])
            ]
        # Who may describe it sees the name.
        await broker.allow(acl(DESCRIBE, name=SECRET))
        deleted = await broker.ask(
            ALICE, ApiKey.DELETE_TOPICS, 6, topics=({"topic_id": ids[SECRET], "name": None},), timeout=MINUTE
        )
        assert [(row.error_code, row.name) for row in deleted.responses] == [(DENIED, SECRET)]

    with_broker(story)


def test_a_hidden_topic_does_not_show_that_it_is_internal() -> None:
    async def story(broker: ClosedBroker) -> None:
        await broker.ask(ROOT, ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("x",))
        asked = {"topics": ({"topic_id": None, "name": "__consumer_offsets"},)}
        shown = await broker.ask(ROOT, ApiKey.METADATA, 12, **asked)
        hidden = await broker.ask(ALICE, ApiKey.METADATA, 12, **asked)
        found = [(row.error_code, row.is_internal) for answer in (shown, hidden) for row in answer.topics]
        assert found == [(ErrorCode.none, True), (DENIED, False)]

    with_broker(story)


def test_metadata_creates_a_topic_only_with_the_right_to_create_it() -> None:
    async def story(broker: ClosedBroker) -> None:
        asked = {"topics": ({"topic_id": None, "name": "new"},), "allow_auto_topic_creation": True}
        for rights, code in (
            ((), DENIED),
            ((acl(CREATE, name="new"),), DENIED),
            ((acl(DESCRIBE, name="new"),), DENIED),
            ((acl(DESCRIBE, name="new"), acl(CREATE, name="new")), ErrorCode.none),
        ):
            await broker.allow(*rights)
            answer = await broker.ask(ALICE, ApiKey.METADATA, 12, **asked)
            assert [row.error_code for row in answer.topics] == [code]
            assert ("new" in broker.image.topics_by_name) is (code is ErrorCode.none)
            await broker.forget()

    with_broker(story)


def test_authorized_operations_are_those_of_the_client() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(READ), acl(AclOperation.DESCRIBE_CONFIGS), acl(READ, GROUP, "team"))
        asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
        answer = await broker.ask(ALICE, ApiKey.METADATA, 10, topics=({"name": OPEN},), **asked)
        assert answer.topics[0].topic_authorized_operations == 1 << READ | 1 << DESCRIBE | 1 << 10
        assert answer.cluster_authorized_operations == 0, "it may not describe the cluster"
        await broker.ask(ROOT, ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("team",))
        offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
        committed = {"group_id": "team", "generation_id_or_member_epoch": -1}
        await broker.ask(ROOT, ApiKey.OFFSET_COMMIT, 8, **committed, topics=({"name": OPEN, "partitions": (offset,)},))
        for version in (5, 6):
            groups = await broker.ask(
                ALICE, ApiKey.DESCRIBE_GROUPS, version, groups=("team",), include_authorized_operations=True
            )
            assert groups.groups[0].authorized_operations == 1 << READ | 1 << DESCRIBE
        await broker.allow(acl(ALTER, CLUSTER))
        for api, version in ((ApiKey.METADATA, 10), (ApiKey.DESCRIBE_CLUSTER, 1)):
            answer = await broker.ask(ALICE, api, version, topics=(), **asked)
            assert answer.cluster_authorized_operations == 1 << ALTER | 1 << DESCRIBE

    with_broker(story)


def test_lists_of_groups_and_of_transactional_ids_are_filtered() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        for kind in (0, 1):
            await broker.ask(ROOT, ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=("x",))
        offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
        topics = tuple({"name": name, "partitions": (offset,)} for name in (OPEN, SECRET))
        for name in ("mine", "theirs"):
            await broker.ask(
                ROOT, ApiKey.OFFSET_COMMIT, 8, group_id=name, generation_id_or_member_epoch=-1, topics=topics
            )
            await broker.ask(ROOT, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout=MINUTE)
        await broker.allow(acl(READ, GROUP, "mine"), acl(DESCRIBE, TRANSACTIONAL_ID, "mine"), acl(DESCRIBE))
        groups = await broker.ask(ALICE, ApiKey.LIST_GROUPS, 4)
        assert [row.group_id for row in groups.groups] == ["mine"]
        ids = await broker.ask(ALICE, ApiKey.LIST_TRANSACTIONS, 0)
        assert [row.transactional_id for row in ids.transaction_states] == ["mine"]
        for version in (8, 9):
            offsets = await broker.ask(
                ALICE, ApiKey.OFFSET_FETCH, version, groups=({"group_id": "mine", "topics": None},)
            )
            assert [topic.name for row in offsets.groups for topic in row.topics] == [OPEN]
        await broker.allow(acl(DESCRIBE, CLUSTER))
        groups = await broker.ask(ALICE, ApiKey.LIST_GROUPS, 4)
        assert sorted(row.group_id for row in groups.groups) == ["mine", "theirs"]

    with_broker(story)


def test_created_topics_have_no_configs_for_a_client_that_may_not_describe_them() -> None:
    async def story(broker: ClosedBroker) -> None:
        await broker.allow(acl(CREATE, name="new"))
        topics = tuple({"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("new", "other"))
        answer = await broker.ask(ALICE, ApiKey.CREATE_TOPICS, 7, topics=topics)
        new, other = sorted(answer.topics, key=lambda row: row.name)
        assert (new.error_code, new.topic_config_error_code, new.configs) == (ErrorCode.none, DENIED, ())
        assert (new.num_partitions, new.replication_factor) == (-1, -1)
        assert (other.error_code, other.error_message) == (DENIED, "Authorization failed.")

    with_broker(story)


def test_other_topics_of_the_same_produce_are_appended() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(WRITE))
        assert await produce(broker, OPEN, SECRET, "nowhere") == [ErrorCode.none, DENIED, DENIED]
        assert await produce(broker, OPEN) == [ErrorCode.none]
        assert await produce(broker, OPEN, who=BOB) == [DENIED]

    with_broker(story)


def test_a_change_of_acls_is_in_force_at_the_next_request() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        allowed = acl(WRITE, name="open", pattern=Pattern.PREFIXED)
        await broker.allow(allowed, acl(DESCRIBE))
        assert await produce(broker, OPEN) == [ErrorCode.none]
        await broker.allow(acl(WRITE, denies=True, host="10.0.0.0/24"))
        assert await produce(broker, OPEN) == [DENIED]
        await broker.forget()
        assert await produce(broker, OPEN) == [DENIED]

    with_broker(story)


def test_a_batch_of_a_transaction_requires_the_transactional_id() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(WRITE), acl(WRITE, name=SECRET))
        data = records(attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
        refused = ErrorCode.transactional_id_authorization_failed
        assert await produce(broker, OPEN, SECRET, data=data, transactional_id="pay") == [refused, refused]
        # One transactional batch is enough, and a transactional id without such a batch requires nothing.
        mixed = tuple(
            {"name": name, "partition_data": ({"index": 0, "records": each},)}
            for name, each in ((OPEN, records()), (SECRET, data))
        )
        for topics in (mixed, mixed[::-1]):
            answer = await broker.ask(
                ALICE, ApiKey.PRODUCE, 9, acks=-1, timeout=MINUTE, transactional_id="pay", topic_data=topics
            )
            assert [row.partition_responses[0].error_code for row in answer.responses] == [refused, refused]
        assert await produce(broker, OPEN, transactional_id="pay") == [ErrorCode.none]

    with_broker(story)


@pytest.mark.parametrize("version", [11, 12])
def test_a_topic_without_the_right_to_write_does_not_join_the_transaction(version: int) -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(WRITE), acl(WRITE, TRANSACTIONAL_ID, "pay"))
        await broker.ask(ALICE, ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=("pay",))
        begun = await broker.ask(ALICE, ApiKey.INIT_PRODUCER_ID, 4, transactional_id="pay", transaction_timeout=MINUTE)
        producer = {"transactional_id": "pay", "producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        if version < 12:
            added = {**producer, "topics": ({"name": OPEN, "partitions": (0,)},)}
            answer = await broker.ask(
                ALICE, ApiKey.ADD_PARTITIONS_TO_TXN, 3, **{f"v3_and_below_{name}": one for name, one in added.items()}
            )
            assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        data = records(
            attributes=TRANSACTIONAL,
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            base_sequence=0,
        )
        codes = await produce(broker, SECRET, OPEN, data=data, transactional_id="pay", version=version)
        assert codes == [DENIED, ErrorCode.none]
        states = await broker.ask(ROOT, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=("pay",))
        (state,) = states.transaction_states
        assert [topic.topic for topic in state.topics] == [OPEN]
        # Others see the transaction without the topics that they may not describe.
        await broker.forget()
        await broker.allow(acl(DESCRIBE, TRANSACTIONAL_ID, "pay"))
        states = await broker.ask(ALICE, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=("pay",))
        assert states.transaction_states[0].topics == ()

    with_broker(story)


def test_a_client_adds_no_partition_without_the_right_to_write_to_all_of_them() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(WRITE), acl(WRITE, TRANSACTIONAL_ID, "pay"))
        await broker.ask(ALICE, ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=("pay",))
        begun = await broker.ask(ALICE, ApiKey.INIT_PRODUCER_ID, 4, transactional_id="pay", transaction_timeout=MINUTE)
        asked = {
            "transactional_id": "pay",
            "producer_id": begun.producer_id,
            "producer_epoch": begun.producer_epoch,
            "topics": tuple({"name": name, "partitions": (0,)} for name in (OPEN, SECRET, "nowhere")),
        }
        answer = await broker.ask(
            ALICE, ApiKey.ADD_PARTITIONS_TO_TXN, 3, **{f"v3_and_below_{name}": one for name, one in asked.items()}
        )
        codes = {
            row.name: row.results_by_partition[0].partition_error_code for row in answer.results_by_topic_v3_and_below
        }
        assert codes == {OPEN: ErrorCode.operation_not_attempted, SECRET: DENIED, "nowhere": DENIED}

    with_broker(story)


@pytest.mark.parametrize(
    ("acls", "may"),
    [
        ((acl(WRITE),), True),
        ((acl(WRITE), acl(WRITE, name="*", denies=True)), False),
        ((acl(WRITE), acl(WRITE, name="op", pattern=Pattern.PREFIXED, denies=True)), False),
        ((acl(AclOperation.IDEMPOTENT_WRITE, CLUSTER),), True),
        ((acl(READ),), False),
    ],
)
def test_an_idempotent_producer_needs_a_topic_to_write_to(acls: tuple[Acl, ...], may: bool) -> None:
    async def story(broker: ClosedBroker) -> None:
        await broker.allow(*acls)
        answer = await broker.ask(ALICE, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=MINUTE)
        assert answer.error_code is (ErrorCode.none if may else ErrorCode.cluster_authorization_failed)
        assert (answer.producer_id >= 0) is may

    with_broker(story)


def test_a_fetch_session_loses_the_topic_with_its_right() -> None:
    async def story(broker: ClosedBroker) -> None:
        ids = await with_topics(broker)
        await produce(broker, OPEN, SECRET, who=ROOT)
        allowed = acl(READ)
        await broker.allow(allowed)
        for version, key in ((12, lambda name: name), (13, ids.__getitem__)):
            topics = to_fetch(OPEN, SECRET, ids=ids)
            answer = await fetch(broker, version, topics=topics, session_epoch=0)
            assert fetched(answer) == {key(OPEN): (ErrorCode.none, True), key(SECRET): (DENIED, False)}
            session = answer.session_id
            assert session
            answer = await fetch(broker, version, session_id=session, session_epoch=1, topics=())
            assert fetched(answer) == {key(OPEN): (ErrorCode.none, True), key(SECRET): (DENIED, False)}
            await broker.forget()
            answer = await fetch(broker, version, session_id=session, session_epoch=2, topics=())
            assert fetched(answer) == {key(OPEN): (DENIED, False), key(SECRET): (DENIED, False)}
            await broker.allow(allowed)

    with_broker(story)


def test_a_fetch_that_waits_gets_no_records_after_its_right_is_revoked() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(READ))
        waiting = asyncio.ensure_future(fetch(broker, topics=to_fetch(OPEN), max_wait=timedelta(seconds=50)))
        await asyncio.sleep(1)
        assert not waiting.done()
        await broker.forget()
        await produce(broker, OPEN, who=ROOT)
        assert fetched(await waiting) == {OPEN: (DENIED, False)}

    with_broker(story)


@pytest.mark.parametrize(("version", "replica"), [(4, 0), (12, 7), (14, 7), (15, 7), (18, 0)])
def test_a_client_that_poses_as_a_replica_gets_nothing_with_the_right_to_read(version: int, replica: int) -> None:
    async def story(broker: ClosedBroker) -> None:
        ids = await with_topics(broker)
        await produce(broker, OPEN, who=ROOT)
        await broker.allow(acl(READ))
        posed = {"replica_id": replica, "replica_state": {"replica_id": replica, "replica_epoch": 1}}
        (found,) = fetched(await fetch(broker, version, topics=to_fetch(OPEN, ids=ids), **posed)).values()
        assert found == (DENIED, False)
        (found,) = fetched(await fetch(broker, version, topics=to_fetch(OPEN, ids=ids))).values()
        assert found == (ErrorCode.none, True)

    with_broker(story)


def test_a_hidden_partition_that_is_named_twice_is_hidden() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(DESCRIBE))
        twice = ({"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1},) * 2
        topics = tuple({"name": name, "partitions": twice} for name in (OPEN, SECRET))
        answer = await broker.ask(ALICE, ApiKey.LIST_OFFSETS, 6, replica_id=-1, isolation_level=0, topics=topics)
        assert [[row.error_code for row in topic.partitions] for topic in answer.topics] == [
            [ErrorCode.invalid_request] * 2,
            [DENIED] * 2,
        ]

    with_broker(story)


def test_deleted_topics_need_the_right_to_delete_and_no_other() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(DELETE))
        names = tuple({"topic_id": None, "name": name} for name in (OPEN, SECRET, "nowhere"))
        answer = await broker.ask(ALICE, ApiKey.DELETE_TOPICS, 6, topics=names, timeout=MINUTE)
        assert {row.name: row.error_code for row in answer.responses} == {
            OPEN: ErrorCode.none, SECRET: DENIED, "nowhere": DENIED,
        }  # fmt: skip
        assert list(broker.image.topics_by_name) == [SECRET]

    with_broker(story)


def test_an_administrator_creates_acls_that_are_in_force_and_no_malformed_ones() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(ALTER, CLUSTER))

        def creation(host: str) -> dict[str, Any]:
            return {
                "resource_type": int(TOPIC), "resource_name": OPEN, "resource_pattern_type": 3,
                "principal": "User:bob", "host": host, "operation": int(WRITE), "permission_type": 3,
            }  # fmt: skip

        answer = await broker.ask(
            ALICE, ApiKey.CREATE_ACLS, 3, creations=(creation("10.0.0.0/33"), creation("10.0.0.0/30"))
        )
        assert [row.error_code for row in answer.results] == [ErrorCode.invalid_request, ErrorCode.none]
        assert "10.0.0.0/33" in answer.results[0].error_message
        assert await produce(broker, OPEN, who=BOB) == [ErrorCode.none]
        assert await produce(broker, OPEN, who=replace(BOB, host="10.0.0.4")) == [DENIED]

    with_broker(story)


def test_without_an_authorizer_acls_are_stored_and_not_enforced() -> None:
    async def story(broker: ClosedBroker) -> None:
        await with_topics(broker)
        await broker.allow(acl(WRITE, name="*", denies=True))
        assert await produce(broker, OPEN) == [ErrorCode.none]
        answer = await broker.ask(ALICE, ApiKey.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True)
        assert answer.cluster_authorized_operations == 0b1111110100000

    with_broker(story, authorizer_class_name="", super_users="")
