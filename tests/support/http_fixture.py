"""Broker 1 of a cluster and its HTTP server: replicas on a simulated disk, metadata in memory."""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import aiohttp
from offsets_in_memory import FIRST, OffsetsInMemory
from prometheus_client.parser import text_string_to_metric_families
from quorum_fixture import run_here
from quorum_in_memory import MetadataLog
from replica_fixture import ME, NOW_MS, ReplicaFixture
from transactions_fixture import TransactionsFixture

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.groups.settings import group_settings
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.security.access import AccessControl
from cordwood.cluster.http.security.credentials import Checks, scram_credentials_of
from cordwood.cluster.http.server import HttpServer
from cordwood.cluster.http.watched import Pauses, Watched
from cordwood.cluster.kafka.cluster_client import ClusterClient, OutOfReach
from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.cluster.kafka.watchdog import Watchdog
from cordwood.cluster.metadata.commands import BrokerId, Endpoint, RegisterBroker
from cordwood.cluster.metadata.events import MetadataEventLog
from cordwood.cluster.metadata.file_measures import FileMeasures
from cordwood.cluster.repairs.damage import DamageRegister
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.security.audit.event import AuditEvent
from cordwood.cluster.security.authorizer import OPEN_ACCESS, Authorizer
from cordwood.cluster.telemetry.client_telemetry import ClientTelemetry
from cordwood.replication.assignment import Assignment
from cordwood.replication.channel import Channel
from cordwood.replication.log_cleaner import CleanerMeasures
from cordwood.replication.partition import Partition

LOOPBACK = "127.0.0.1"
OFFSETS_PARTITIONS = 4

Metrics = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    text: str
    json: Any


class HttpStory:
    """A broker's HTTP server. `async with HttpStory() as broker` starts it on a free port."""

    def __init__(
        self,
        directories: int = 1,
        settings: Settings = Settings(),  # noqa: B008
        checks: Checks = Checks(),  # noqa: B008
        authorizer: Authorizer = OPEN_ACCESS,
        *,
        has_api: bool = False,
    ) -> None:
        self.replicas = ReplicaFixture(directories=directories)
        self.metadata = MetadataLog()
        self.damage = DamageRegister()
        self.reason: str | None = None
        quorum = self.metadata.voter(ME)
        clock = asyncio.get_running_loop().time
        self.requests, self.event_log = RequestMeasures(clock), MetadataEventLog(quorum, BrokerId(ME))
        self.groups = _groups()
        self.transactions = TransactionsFixture()
        self.now_ms = NOW_MS
        """The time of the metrics."""
        self.watched = Watched(
            log_cleaner=CleanerMeasures(),
            telemetry=ClientTelemetry(lambda: quorum.image.client_metrics, 1 << 20, clock),
            broker_id=BrokerId(ME),
            quorum=quorum,
            replicas=self.replicas.replicas,
            damage=self.damage,
            why_not_ready=lambda: self.reason,
            connection_count=lambda: 3,
            groups=self.groups,
            transactions=self.transactions.coordinator,
            requests=self.requests,
            flushes=self.replicas.flusher.measures,
            event_log=self.event_log,
            metadata_files=FileMeasures(0),
            pauses=Pauses(clock),
            watchdog=Watchdog(clock, self.requests),
            memory=Memory.unlimited(),
            turns=Turns(clock),
            wall_clock=lambda: self.now_ms,
        )
        self.audited: list[AuditEvent] = []
        self.is_current = True
        self.now_s = 1000.0
        """The time of sessions and of the limits of logins."""
        self.access_control = AccessControl(
            settings=settings,
            authorizer=authorizer,
            checks=checks,
            credentials_of=lambda user: scram_credentials_of(user, self.metadata.image),
            is_current=lambda: self.is_current,
            audit=self,
            now=lambda: self.now_s,
            wall_clock=lambda: self.now_ms,
            random_bytes=random.Random(1).randbytes,
        )
        cluster = ClusterClient(ME, _no_channel, lambda _: None, _no_dial, self.watched.turns, "http", has_acls=True)
        decoding = DecodeQueue(run_here, self.watched.memory.decoding)
        control, randbytes = self.access_control, random.Random(1).randbytes
        context = Context.of(self.watched, cluster, settings, decoding, lambda: self.now_ms, control, randbytes)
        self.server = HttpServer(self.watched, control, context if has_api else None)
        self.port = 0

    def note(self, event: AuditEvent) -> None:
        """Take an audit event."""
        self.audited.append(event)

    async def __aenter__(self) -> "HttpStory":
        self.event_log.begin()
        self.groups.start()
        self.port = await self.server.start(LOOPBACK, 0)
        # Keeps no cookies: a test says which one a request has.
        self._client = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await self.server.close()
        await self.groups.close()
        await self.transactions.coordinator.close()

    def register(self, *brokers: int) -> None:
        """Register brokers in the metadata. They stay fenced."""
        for broker in brokers:
            endpoint = Endpoint("PLAINTEXT", LOOPBACK, 9091 + broker)
            self.metadata.apply(RegisterBroker(BrokerId(broker), UUID(int=broker), (endpoint,), None, ("disk",)))

    def lead(self, *in_sync: int, index: int = 0, epoch: int = 1, min_isr: int = 1) -> Partition:
        """Make broker 1 the leader of a partition with replicas on brokers 1, 2 and 3."""
        partition = self.replicas.partition(index)
        partition.assigned(Assignment(ME, epoch, epoch, (1, 2, 3), frozenset(in_sync), min_isr))
        return partition

    def follow(self, leader: int, index: int = 0) -> None:
        """Make another broker the leader of the partition, in the next leader epoch."""
        partition = self.replicas.partition(index)
        epoch = partition.leader_epoch + 1
        partition.assigned(Assignment(leader, epoch, epoch, (1, 2, 3), frozenset({1, 2, 3}), 1))

    async def ask(self, path: str, method: str = "GET", content: Any = None, **headers: str) -> Answer:
        """Send a request; `content` goes as JSON. Header names have `_` for `-`."""
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        url = f"http://{LOOPBACK}:{self.port}{path}"
        async with self._client.request(method, url, json=content, headers=named, allow_redirects=False) as response:
            is_json = response.content_type == "application/json"
            json = await response.json() if is_json else None
            return Answer(response.status, dict(response.headers), await response.text(), json)

    async def send(self, sent: bytes) -> bytes:
        """Send raw bytes, which need not be HTTP, and return the first bytes of the response."""
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        writer.write(sent)
        answer = await reader.read(1000)
        writer.close()
        return answer

    async def metrics(self) -> Metrics:
        """Return the metrics by name and labels."""
        return parsed((await self.ask("/metrics")).text)

    async def metric(self, name: str, **labels: str) -> float | None:
        """Return one sample, or None if it does not exist."""
        return (await self.metrics()).get((f"cordwood_{name}", frozenset(labels.items())))


def _no_channel(_received: object, _identity: object) -> Channel:
    raise OutOfReach("There is no handler of Kafka requests here.")


async def _no_dial(_host: str, _port: int, _received: object) -> Channel:
    raise OSError("there are no other brokers")


def _groups() -> GroupCoordinator:
    topic = OffsetsInMemory(OFFSETS_PARTITIONS)
    topic.create()
    return GroupCoordinator(
        context=GroupContext(group_settings(Settings())),
        topic=topic.seen_by(FIRST),
        topic_exists=lambda _: True,
        wall_clock=lambda: NOW_MS,
        rng=random.Random(1),
    )


def parsed(text: str) -> Metrics:
    """Parse metrics with Prometheus' own parser, and check that no sample is repeated."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples), "a sample is there twice"
    return found


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))
