"""A broker's queues over HTTP without HTTP: clients of its members, at whole brokers in simulated time."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from admin_fixture import message_of
from closed_broker import ROOT, START_S
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from share_fixture import GROUP, NOW_MS, TOPIC, ShareFixture, ShareMember, with_members

from cordwood.chaos.sim.cut_jobs import CutJobs
from cordwood.chaos.sim.host import KAFKA_PORT, RAFT_PORT, SimulatedHost, host_name
from cordwood.cluster.http.api.queues import Taking, take_records
from cordwood.cluster.http.bodies import Streams
from cordwood.cluster.http.queues.measures import QueueMeasures
from cordwood.cluster.http.queues.member import QueueContext, QueueMember, TakeAnswer, Taken
from cordwood.cluster.http.queues.members import LIMITS, QueueLimits, QueueMembers
from cordwood.cluster.http.queues.session import ACCEPT
from cordwood.cluster.http.route import ApiRequest, Nothing
from cordwood.cluster.http.security.access import Access
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.security.authorizer import OPEN_ACCESS
from cordwood.cluster.security.principal import ANONYMOUS, Identity
from cordwood.cluster.share.share_sessions import MemberKey
from cordwood.storage.records import Record, encode

OTHER_BROKER = 2
USUAL_BYTES = 1 << 20


class QueueFixture:
    """The topic `jobs` of a share group, whose records clients take at broker 1."""

    def __init__(self, group: ShareFixture, limits: QueueLimits = LIMITS) -> None:
        self.group = group
        broker = group.broker.broker
        self.cluster = broker._cluster_client("http")
        self.context = QueueContext(
            1, lambda: broker._quorum.image, broker._decoding, Streams(), random.Random(4).randbytes
        )
        self.queues = QueueMembers(self.cluster, self.context, QueueMeasures(), limits)

    @property
    def member(self) -> QueueMember:
        """The only member."""
        (member,) = self.queues.members()
        return member

    async def take(
        self,
        records_max: int = 10,
        *,
        bytes_max: int = USUAL_BYTES,
        wait_s: float = 5.0,
        topics: Sequence[str] = (TOPIC,),
        identity: Identity = ROOT,
    ) -> TakeAnswer:
        """Take records, as one client."""
        cluster = self.cluster.on_behalf_of(identity)
        return await self.queues.take(cluster, GROUP, topics, records_max, bytes_max, wait_s)

    async def take_over_http(self, records_max: int) -> Any:
        """Take records by the route of the HTTP API. Return its answer."""
        broker = self.group.broker.broker
        unused: Any = None
        context = replace(broker._context(broker._watch(), unused), queues=self.queues, cluster=self.cluster)
        wanted = Taking([TOPIC], max_records=records_max, wait_ms=5_000)
        under = context.under(Access(ROOT, OPEN_ACCESS))
        return await take_records(ApiRequest(under, {"group": GROUP}, Nothing(), wanted, unused))

    async def values(self, records_max: int = 10, **options: Any) -> list[str]:
        """Take records. Return their values."""
        return values_of(await self.take(records_max, **options))

    async def send(self, acknowledge_type: int, *records: Taken) -> list[ErrorCode]:
        """Acknowledge records with this type. Return the outcome of each."""
        receipts = [one.receipt for one in records]
        outcomes, _ = await self.queues.acknowledge(GROUP, receipts, acknowledge_type)
        return outcomes

    async def acknowledge(self, *records: Taken) -> None:
        assert await self.send(ACCEPT, *records) == [ErrorCode.none] * len(records)

    def kill(self) -> None:
        """End the member as the death of its process does: connections close, and it does not leave the group."""
        for task in self.member._tasks._running:
            task.cancel()
        for session in self.member._sessions.values():
            session._connection.close()
        self.queues._members.clear()
        self.queues._by_number.clear()

    def session_partitions(self) -> set[int]:
        """Return the partitions in the member's session at broker 1."""
        sessions = self.group.broker.broker._shares.partitions.sessions
        return {index for _, index in sessions._sessions[MemberKey(GROUP, self.member.member_id)].partitions}

    def share_member(self) -> ShareMember:
        """Return another member of the group, of the Kafka protocol."""
        return self.group.member()

    async def add_broker(self) -> SimulatedHost:
        """Start a second broker."""
        first = self.group.broker._host
        settings = replace(
            first.settings,
            node_id=OTHER_BROKER,
            listeners=(f"PLAINTEXT://{host_name(OTHER_BROKER)}:{KAFKA_PORT}",),
        )
        jobs = CutJobs(first.loop, random.Random(5), 0.0)
        host = SimulatedHost(first.network, settings, random.Random(6), [(0.0, 0.0)], jobs, self.group.broker._ended)
        first.loop.at_end.append(jobs.abandon)
        host.start()
        async with asyncio.timeout(START_S):
            await asyncio.wait([host._starting])
        return host

    async def produce_there(self, topic: str, partition: int, value: str) -> None:
        """Append a record at the second broker."""
        batch = encode([Record(0, NOW_MS, None, value.encode())])
        row = {"name": topic, "partition_data": ({"index": partition, "records": batch},)}
        fields = {"acks": -1, "timeout": timedelta(seconds=30), "topic_data": (row,)}
        request = message_of(load_request_schema(ApiKey.PRODUCE, 9), fields)
        answer = await self.cluster.ask(OTHER_BROKER, request)
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none, answer

    async def create(self, topic: str, *leaders: int) -> None:
        """Create a topic with a partition at each of these brokers."""
        rows = tuple({"partition_index": at, "broker_ids": (leader,)} for at, leader in enumerate(leaders))
        wanted = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": ()}
        answer = await self.group.ask(ApiKey.CREATE_TOPICS, 7, topics=(wanted,), timeout=timedelta(seconds=30))
        assert answer.topics[0].error_code is ErrorCode.none, answer


def values_of(answer: TakeAnswer) -> list[str]:
    """Return the values of taken records."""
    return [(taken.record.record.value or b"").decode() for taken in answer.records if taken.record.record is not None]


def with_queues(story: Callable[[QueueFixture], Awaitable[None]], limits: QueueLimits = LIMITS, **configs: str) -> None:
    """Run a scenario of queues whose share group has these configs."""

    async def as_group(group: ShareFixture) -> None:
        process = group.broker._host.process
        assert process is not None, "the broker runs"
        await asyncio.get_running_loop().create_task(at_the_broker(group), context=process.context())

    async def at_the_broker(group: ShareFixture) -> None:
        queues = QueueFixture(group, limits)
        await story(queues)
        await queues.queues.close()

    voters = (f"1@{host_name(1)}:{RAFT_PORT}",)
    brokers = f"{ROOT.principal};{ANONYMOUS}"
    with_members(as_group, {"controller_quorum_voters": voters, "super_users": brokers}, **configs)
