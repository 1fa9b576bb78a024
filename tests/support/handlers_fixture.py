"""A broker's handlers, tested by raw frames through connection and dispatcher.

The partitions are on a simulated disk. The test plays the other broker, follower or leader.
"""

import ast
import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import ModuleType
from typing import Any
from uuid import UUID

from admin_fixture import message_of, services_with
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from peer_fixture import run_here
from replica_fixture import ME, NOW_MS
from roles_fixture import TOPIC, RolesFixture
from scripted_transactions import ScriptedTransactions
from virtual_time import run

from cordwood.client.codec import ClientCodec
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.kafka import refusals
from cordwood.cluster.kafka.answer_memory import AnswerMemory
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Services
from cordwood.cluster.kafka.client_throttle import ClientThrottle
from cordwood.cluster.kafka.dispatch import Dispatcher, FastPathHandler
from cordwood.cluster.kafka.fetch_sessions import FetchSessions
from cordwood.cluster.kafka.handlers.fetch import FetchHandler
from cordwood.cluster.kafka.handlers.produce import ProduceHandler
from cordwood.cluster.kafka.in_process import InProcess
from cordwood.cluster.kafka.leader_hints import Leader
from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.cluster.kafka.transaction_verifier import TransactionVerifier
from cordwood.cluster.metadata.acls import Acl
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.cluster.resources.memory import SESSION_PARTITION_BYTES, Memory, MemoryPool
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.security.acl_authorizer import AclAuthorizer
from cordwood.cluster.security.principal import NO_IDENTITY, Identity
from cordwood.replication.partition import Partition
from cordwood.storage.batch import split
from cordwood.storage.config import LogConfig
from cordwood.storage.records import decode

MB = 1 << 20
SESSION_PARTITIONS_MAX = 100
ANSWER_S = 1000.0
"""Virtual seconds until a request without a response fails."""


class Client:
    """A connection to the broker, and the responses on it."""

    def __init__(self, here: InProcess, dispatcher: Dispatcher, identity: Identity) -> None:
        self._channel = here.open("PLAINTEXT", dispatcher.handle, self._answered, identity)
        self._codec = ClientCodec[asyncio.Future[Any]]("client")
        self._exchanged: asyncio.Future[bytes] | None = None

    @property
    def is_open(self) -> bool:
        return self._channel.is_open

    def send(self, api: int, version: int, **fields: Any) -> asyncio.Future[Any]:
        """Send a request of one version. The response has that version's class. Nested fields are dicts."""
        request = message_of(load_request_schema(api, version), fields)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if fields.get("acks") == 0:
            self._channel.push([self._codec.encode_unanswered(request)])
        else:
            self._channel.push([self._codec.encode(request, future)])
        return future

    async def exchange(self, frame: bytes) -> bytes:
        """Send a request frame and return the response frame, both without their length prefix."""
        self._exchanged = asyncio.get_running_loop().create_future()
        self._channel.push([len(frame).to_bytes(4, "big") + frame])
        async with asyncio.timeout(ANSWER_S):
            return await self._exchanged

    def _answered(self, frame: memoryview) -> None:
        if self._exchanged is not None:
            self._exchanged.set_result(bytes(frame))
            return
        future, answer = self._codec.take(frame)
        future.set_result(answer)


class HandlersStory(RolesFixture):
    """A broker with one topic. A group commit ends when the test calls `sync`."""

    def __init__(
        self, config: LogConfig | None = None, *, response_bytes_max: int = 64 * MB, sessions: int = 10
    ) -> None:
        super().__init__(config or LogConfig(segment_bytes=MB, batch_bytes_max=64 * 1024))
        self.now_ms = NOW_MS
        self.near: dict[tuple[str, str, int], int] = {}
        """By topic, rack and offset: the preferred read replica of a client."""
        self.leaders: dict[tuple[str, int], Leader] = {}
        """The leaders of other partitions, as the metadata has them."""
        self.transactions = known = ScriptedTransactions()
        self.verifier = TransactionVerifier(ME, known, lambda: known.image, known.ask)
        turns, decoding = Turns(lambda: 0.0), DecodeQueue(run_here, Memory.unlimited().decoding)
        here: dict[str, Any] = {"settings": Settings(), "replicas": self.replicas, "turns": turns, "decoding": decoding}
        here |= {"run_blocking": run_here, "wall_clock": self._clock, "rng": random.Random(1)}
        pool = MemoryPool("sessions", 4 * SESSION_PARTITIONS_MAX * SESSION_PARTITION_BYTES)
        self.sessions = FetchSessions(sessions, pool, random.Random(1))
        self.throttle = ClientThrottle()
        fetching = FetchHandler(
            self.replicas,
            self.sessions,
            self._clock,
            response_bytes_max,
            self._nearest,
            self._find_leader,
            turns,
            throttle=self.throttle,
        )
        producing = ProduceHandler(self.replicas, decoding, self._clock, self._find_leader, turns, self.verifier)
        measures = RequestMeasures(asyncio.get_running_loop().time)
        answers = AnswerMemory(Memory.unlimited().answers, lambda _: None)
        self.services = Services(**services_with(here | {"throttle": self.throttle}))
        self._producing, self._fetching = producing, fetching
        fast_path: dict[int, FastPathHandler] = {ApiKey.PRODUCE: producing, ApiKey.FETCH: fetching}
        self._dispatcher = Dispatcher(self.services, fast_path, self.follower_connections, measures, answers)
        self._here = InProcess(self.end_of_tick, self.replicas.read_piece, lambda _: None, 100 * MB)
        self.client = self.connect()

    def connect(self, identity: Identity = NO_IDENTITY) -> Client:
        return Client(self._here, self._dispatcher, identity)

    def enforce(self, *acls: Acl) -> None:
        """Decide by these ACLs from now on."""
        authorizer = AclAuthorizer()
        authorizer.begin({UUID(int=number): acl for number, acl in enumerate(acls)})
        self.services.authorizer = authorizer
        self._producing._authorizer = self._fetching.authorizer = authorizer

    async def ask(self, api: int, version: int, **fields: Any) -> Any:
        """Send a request and return its response. Timers expire in virtual time."""
        async with asyncio.timeout(ANSWER_S):
            return await self.client.send(api, version, **fields)

    def _nearest(self, partition: Partition, rack: str, offset: int) -> int | None:
        return self.near.get((partition.topic, rack, offset))

    def _find_leader(self, topic: str, index: int, _listener: str) -> Leader | None:
        return self.leaders.get((topic, index))

    def _clock(self) -> int:
        return self.now_ms


def values_in(records: bytes | None) -> list[tuple[int, str]]:
    """Return offset and value of each record in a response."""
    found = [record for batch in split(bytes(records or b"")) for record in decode(bytes(batch))]
    return [(record.offset, (record.value or b"").decode()) for record in found]


def milliseconds(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def tell(story: Callable[[HandlersStory], Awaitable[None]], config: LogConfig | None = None, **options: Any) -> None:
    """Run a scenario of a broker with these settings in virtual time."""

    async def reported() -> None:
        await story(HandlersStory(config, **options))

    run(reported())


Provoke = Callable[[HandlersStory], Awaitable[ErrorCode]]

OF_EXPECTED = frozenset({*refusals._BY_ERROR.values(), *refusals._BY_REFUSAL.values(), ErrorCode.unknown_server_error})
"""The codes that `code_of` may return."""
OF_APPENDS = frozenset(
    {
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
        ErrorCode.unsupported_compression_type,
        ErrorCode.message_too_large,
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_txn_state,
        ErrorCode.transaction_coordinator_fenced,
        ErrorCode.not_enough_replicas,
    }
)
"""Those of them that refuse an append."""


class Provocations:
    """For each error code that a handler may return, a scenario that provokes it."""

    def __init__(self, handler: ModuleType, never: frozenset[ErrorCode]) -> None:
        """Take in `never` the codes of `code_of` that this handler never returns."""
        self._handler, self._never = handler, never
        self.by_code: dict[ErrorCode, Provoke] = {}

    def of(self, code: ErrorCode) -> Callable[[Provoke], Provoke]:
        """Register the decorated scenario, which returns the code of its response."""

        def note(provoke: Provoke) -> Provoke:
            self.by_code[code] = provoke
            return provoke

        return note

    def of_places(self, ask: Callable[[HandlersStory, str, int], Awaitable[ErrorCode]]) -> None:
        """Register the codes of partitions that are not served; `ask` takes a topic and the client's leader epoch."""

        async def unknown(broker: HandlersStory) -> ErrorCode:
            return await ask(broker, "nowhere", -1)

        async def follower(broker: HandlersStory) -> ErrorCode:
            broker.begin_to_follow()
            return await ask(broker, TOPIC, -1)

        async def old_epoch(broker: HandlersStory) -> ErrorCode:
            broker.elect(epoch=5)
            return await ask(broker, TOPIC, 4)

        async def future_epoch(broker: HandlersStory) -> ErrorCode:
            broker.elect(epoch=5)
            return await ask(broker, TOPIC, 6)

        async def offline(broker: HandlersStory) -> ErrorCode:
            broker.elect().directory.fail(OSError("the disk is gone"))
            return await ask(broker, TOPIC, -1)

        async def without_rights(broker: HandlersStory) -> ErrorCode:
            broker.enforce()
            return await ask(broker, TOPIC, -1)

        self.by_code |= {
            ErrorCode.topic_authorization_failed: without_rights,
            ErrorCode.unknown_topic_or_partition: unknown,
            ErrorCode.not_leader_or_follower: follower,
            ErrorCode.fenced_leader_epoch: old_epoch,
            ErrorCode.unknown_leader_epoch: future_epoch,
            ErrorCode.kafka_storage_error: offline,
        }

    def check_all(self) -> None:
        """Check that every code in the handler's source has a scenario, and that each scenario ends with its code."""
        assert codes_named_in(self._handler) == self.by_code.keys() | self._never
        assert not self.by_code.keys() & self._never
        for code, provoke in self.by_code.items():
            tell(_provoked(code, provoke))


def _provoked(code: ErrorCode, provoke: Provoke) -> Callable[[HandlersStory], Awaitable[None]]:
    async def story(broker: HandlersStory) -> None:
        assert await provoke(broker) is code

    return story


def codes_named_in(module: ModuleType) -> frozenset[ErrorCode]:
    """Return the error codes that a handler may return: those in its source, and those of `code_of` if it uses it."""
    tree = ast.parse(inspect.getsource(module))
    named = {
        ErrorCode[node.attr]
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ErrorCode"
    }
    asks = any(isinstance(node, ast.Name) and node.id in ("code_of", "EXPECTED") for node in ast.walk(tree))
    return frozenset(named | (OF_EXPECTED if asks else frozenset())) - {ErrorCode.none}
