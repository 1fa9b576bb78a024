"""Members of share groups at a whole broker in simulated time, and the records that they get."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from closed_broker import ALICE, LISTENER, ROOT, ClosedBroker, with_broker
from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2.request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kio.schema.share_fetch.v2 import request as fetch_requests

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.client_connection import ClientConnection
from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.security.principal import Identity
from cordwood.cluster.share.coordinator import Initialization, StateRead
from cordwood.cluster.share.measures import ShareMeasures
from cordwood.cluster.share.share_partitions import SharePartitionView
from cordwood.cluster.share.state import UNINITIALIZED, SharePartitionState
from cordwood.cluster.share.states import SharePartitionKey
from cordwood.replication.partition import Partition
from cordwood.storage.batch import TRANSACTIONAL, check, split
from cordwood.storage.control import EndTransactionMarker
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.types import ProducerIdAndEpoch

GROUP, TOPIC = "workers", "jobs"
NOW_MS = 1_700_000_000_000
OPENED_S = 0.1
"""The wait of a fetch, for the states of its share partitions, which are read in the background."""
Range = tuple[int, int, int]
"""First and last offset, and the delivery count, as in a response."""


class Fetched(NamedTuple):
    """The answer about one partition."""

    acquired: list[Range]
    values: list[bytes]
    code: ErrorCode
    acknowledge_code: ErrorCode
    answer: Any


class ShareMember:
    """A member with a connection of its own."""

    def __init__(self, fixture: "ShareFixture", member_id: str, group_id: str, identity: Identity) -> None:
        self.id, self.group_id, self.epoch = member_id, group_id, 0
        self.is_assigned = True
        """Whether what the member fetches is assigned to its group, as by heartbeats."""
        self._fixture = fixture
        self.connection = ClientConnection(member_id)
        here = fixture.broker._here
        handle = fixture.broker.broker._dispatcher.handle
        self.connection.begin(here.open(LISTENER, handle, self.connection.received, identity))

    async def ask(
        self,
        *,
        partitions: Sequence[int] = (0,),
        acks: Sequence[tuple[int, ...]] = (),
        wait_s: float = OPENED_S,
        **fields: Any,
    ) -> Any:
        """Send a ShareFetch, with acknowledgements of the first partition: first, last and types each."""
        rows = tuple(
            fetch_requests.FetchPartition(
                partition_index=index,
                acknowledgement_batches=tuple(
                    fetch_requests.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                    for first, last, *types in acks
                )
                if index == partitions[0]
                else (),
            )
            for index in partitions
        )
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.id,
            "share_session_epoch": self.epoch,
            "max_wait": timedelta(seconds=wait_s),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": (fetch_requests.FetchTopic(topic_id=self._fixture.topic_id, partitions=rows),) if rows else (),
            "forgotten_topics_data": (),
            **fields,
        }
        if self.is_assigned:
            await self._fixture.assign(self.group_id, partitions)
        answer = await self.connection.ask(fetch_requests.ShareFetchRequest(**values))
        if answer.error_code is ErrorCode.none and self.epoch >= 0:
            self.epoch += 1
        return answer

    async def fetch(self, **fields: Any) -> Fetched:
        """Fetch the first partition. Return what was acquired, and the values of these records."""
        answer = await self.ask(**fields)
        assert answer.error_code is ErrorCode.none, answer
        rows = [row for topic in answer.responses for row in topic.partitions]
        if not rows:
            return Fetched([], [], ErrorCode.none, ErrorCode.none, answer)
        row = rows[0]
        acquired = [(one.first_offset, one.last_offset, one.delivery_count) for one in row.acquired_records]
        records = [record for batch in split(bytes(row.records or b"")) for record in decode(batch)]
        values = [
            record.value or b""
            for record in records
            if any(first <= record.offset <= last for first, last, _ in acquired)
        ]
        return Fetched(acquired, values, row.error_code, ErrorCode(row.acknowledge_error_code), answer)

    async def acknowledge(self, first: int, last: int, *types: int, **fields: Any) -> ErrorCode:
        """Acknowledge records of the first partition. Return the code of the request, or else of the partition."""
        batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types or (1,))
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=(batch,))
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.id,
            "share_session_epoch": self.epoch,
            "topics": (AcknowledgeTopic(topic_id=self._fixture.topic_id, partitions=(partition,)),),
            **fields,
        }
        answer = await self.connection.ask(ShareAcknowledgeRequest(**values))
        if answer.error_code is not ErrorCode.none:
            return ErrorCode(answer.error_code)
        self.epoch += 1
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    def hang_up(self) -> None:
        """Close the connection, as a client does that was killed."""
        self.connection.close()


class ShareFixture:
    """A broker with the topic `jobs`, and share groups that begin at its first record."""

    def __init__(self, broker: ClosedBroker) -> None:
        self.broker = broker
        self._members = 0
        self._assigned: set[SharePartitionKey] = set()

    async def open(self, **configs: str) -> "ShareFixture":
        await self.create(TOPIC)
        self.topic_id: UUID = self.broker.image.topics_by_name[TOPIC].id
        await self.configure(**{"share.auto.offset.reset": "earliest", **configs})
        return self

    async def create(self, topic: str, partitions: int = 2, **configs: str) -> None:
        rows = tuple({"name": key, "value": value} for key, value in configs.items())
        wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": rows}
        answer = await self.broker.ask(
            ROOT, ApiKey.CREATE_TOPICS, 7, topics=({**wanted, "assignments": ()},), timeout=timedelta(seconds=30)
        )
        assert answer.topics[0].error_code is ErrorCode.none, answer

    async def configure(self, group_id: str = GROUP, **configs: str) -> None:
        """Set configs of a share group."""
        rows = tuple({"name": key, "config_operation": 0, "value": value} for key, value in configs.items())
        answer = await self.broker.ask(
            ROOT,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=({"resource_type": 32, "resource_name": group_id, "configs": rows},),
        )
        assert answer.responses[0].error_code is ErrorCode.none, answer

    async def configure_topic(self, topic: str, **configs: str) -> None:
        """Set configs of a topic, internal ones too."""
        rows = tuple({"name": key, "config_operation": 0, "value": value} for key, value in configs.items())
        resources = ({"resource_type": 2, "resource_name": topic, "configs": rows},)
        answer = await self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
        assert answer.responses[0].error_code is ErrorCode.none, answer

    async def ask(self, api: int, version: int, **fields: Any) -> Any:
        """Send a request as a super user."""
        return await self.broker.ask(ROOT, api, version, **fields)

    async def restart(self) -> None:
        """Stop the broker in order, and start it."""
        await self.broker.broker.stop()
        await self._start_again(self.broker._host.kill)

    async def power_cut(self, keep: float | None = None) -> None:
        """Cut the power: what is not on the disk is lost, but for a share `keep`. Then start the broker."""
        await self._start_again(lambda: self.broker._host.power_cut(keep))

    def log_end(self) -> int:
        """Return the log end of the first partition."""
        return self._led(TOPIC).log.log_end

    async def _start_again(self, end: Callable[[], None]) -> None:
        end()
        self.broker._connections.clear()
        await self.broker.start()

    @property
    def measures(self) -> ShareMeasures:
        return self.broker.broker._shares.partitions.measures

    def view(self, partition: int = 0) -> SharePartitionView:
        """Return the group's share partition at its leader."""
        views = self.broker.broker._shares.partitions.views()
        (found,) = [view for view in views if (view.group_id, view.partition) == (GROUP, partition)]
        return found

    async def assign(self, group_id: str, partitions: Sequence[int]) -> None:
        """Have the states of share partitions initialized, as the coordinator of their group does."""
        topic = self.broker.image.topics_by_id.get(self.topic_id)
        known = () if topic is None or not group_id else range(len(topic.partitions))
        for key in {SharePartitionKey(group_id, self.topic_id, index) for index in known if index in partitions}:
            if key not in self._assigned:
                self._assigned.add(key)
                coordinator = self.broker.broker._shares.coordinator
                (answer,) = await coordinator.summarize([StateRead(key, -1)])
                if not answer.state.created_ms:
                    (answer,) = await coordinator.initialize([Initialization(key, 0, UNINITIALIZED)])
                assert answer.code is ErrorCode.none, answer

    async def stored(self) -> SharePartitionState:
        """Return the stored state of the group's first partition."""
        key = SharePartitionKey(GROUP, self.topic_id, 0)
        coordinator = self.broker.broker._shares.coordinator
        (answer,) = await coordinator.summarize([StateRead(key, -1)])
        while answer.code is ErrorCode.coordinator_load_in_progress:
            await asyncio.sleep(0.1)
            (answer,) = await coordinator.summarize([StateRead(key, -1)])
        return replace(answer.state, snapshot_epoch=0, leader_epoch=0, updates=0, changed=())

    async def produce(self, *values: str, topic: str = TOPIC, partition: int = 0) -> None:
        """Append one batch."""
        await self.append(encode([Record(0, NOW_MS, None, value.encode()) for value in values]), topic, partition)

    async def append(self, batch: bytes, topic: str = TOPIC, partition: int = 0) -> None:
        answer = await self.broker.ask(
            ROOT,
            ApiKey.PRODUCE,
            9,
            acks=-1,
            timeout=timedelta(seconds=30),
            topic_data=({"name": topic, "partition_data": ({"index": partition, "records": batch},)},),
        )
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none, answer

    def append_in_transaction(self, producer_id: int, value: str, sequence: int = 0) -> None:
        """Append a record of a transaction that a coordinator has confirmed."""
        led = self._led(TOPIC)
        producer = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": sequence,
            "attributes": TRANSACTIONAL,
        }
        batch = encode([Record(0, NOW_MS, None, value.encode())], **producer)
        guard = led.leader.begin_verification(check(batch))
        led.append(batch, NOW_MS, guard=guard)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Append the marker of a transaction."""
        marker = EndTransactionMarker(is_commit, 0)
        self._led(TOPIC).leader.append_marker(ProducerIdAndEpoch(producer_id, 0), marker, NOW_MS, is_v2=False)

    async def delete_records(self, before: int) -> None:
        partitions = ({"partition_index": 0, "offset": before},)
        topics = ({"name": TOPIC, "partitions": partitions},)
        answer = await self.broker.ask(ROOT, ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=timedelta(seconds=30))
        assert answer.topics[0].partitions[0].error_code is ErrorCode.none, answer

    async def allow_reading(self, group_id: str, topic: str = "") -> None:
        """Let Alice read a group, and a topic."""
        wanted = [(AclResource.GROUP, group_id), *([(AclResource.TOPIC, topic)] if topic else ())]
        for resource, name in wanted:
            on = ResourcePattern(resource, name, Pattern.LITERAL)
            await self.broker.allow(Acl(on, str(ALICE.principal), "*", AclOperation.READ, Permission.ALLOW))

    def now_ms(self) -> int:
        """Return the broker's wall clock."""
        return self.broker.broker._wall_clock()

    def _led(self, topic: str, partition: int = 0) -> Partition:
        return self.broker.broker._replicas.led(topic, partition)

    def spoil(self, partition: int) -> None:
        """Flip a bit of the records of a partition, on the disk and in the page cache."""
        (segment,) = self._led(TOPIC, partition).log.segments
        self.broker._host.disk.flip(segment.path, 70, 0)

    def member(self, group_id: str = GROUP, identity: Identity = ROOT) -> ShareMember:
        """Return a new member."""
        self._members += 1
        return ShareMember(self, f"member-{self._members}", group_id, identity)

    def records_of(self, topic: str, partition: int = 0) -> list[Record]:
        """Return all records of a partition."""
        log = self._led(topic, partition).log
        data = log.read(log.log_start, 1 << 20, log.log_end) if log.log_end else b""
        return [record for batch in split(data) for record in decode(batch)]


def with_members(
    story: Callable[[ShareFixture], Awaitable[None]], settings: Mapping[str, Any] | None = None, **configs: str
) -> None:
    """Run a scenario of members of a share group with these configs, at a broker with these settings."""

    async def reported(broker: ClosedBroker) -> None:
        fixture = await ShareFixture(broker).open(**{key.replace("_", "."): value for key, value in configs.items()})
        await story(fixture)

    # The bounds of group configs are those of the broker.
    bounds = {"group_share_min_delivery_count_limit": 2, "group_share_min_partition_max_record_locks": 100}
    with_broker(reported, **{"share_coordinator_state_topic_num_partitions": 1, **bounds, **(settings or {})})
