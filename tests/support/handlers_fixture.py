"""A broker's handlers by raw frames: requests go in and answers come out as bytes, through connection and dispatcher.

The partitions lie on a simulated disk; the broker that follows them, or that they follow, is the test.
"""

import ast
import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import ModuleType
from typing import Any

from admin_fixture import message_of
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from peer_fixture import FOLLOWER, LEADER, LeaderStory, run_here
from replica_fixture import ME, NOW_MS, TOPIC_ID, housekeeping_of
from virtual_time import run

from cordwood.chaos.sim.values import batch_of
from cordwood.cluster.config import Settings
from cordwood.cluster.decoding import Decoding
from cordwood.cluster.kafka import refusals
from cordwood.cluster.kafka.call import Services
from cordwood.cluster.kafka.dispatch import Dispatcher
from cordwood.cluster.kafka.fetch_sessions import FetchSessions
from cordwood.cluster.kafka.handlers.fetch import Fetching
from cordwood.cluster.kafka.handlers.produce import Producing
from cordwood.cluster.kafka.in_process import InProcess
from cordwood.cluster.kafka.leader_hints import Leader
from cordwood.cluster.kafka.questions import correlation_id_of, decode_response, encode_request
from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.cluster.kafka.turns import Turns
from cordwood.cluster.memory import SESSION_PARTITION_BYTES, MemoryPool
from cordwood.replication import frames
from cordwood.replication.assignment import Assignment
from cordwood.replication.following import Following
from cordwood.replication.frames import Follow, Report
from cordwood.replication.partition import Partition, Place
from cordwood.storage.batch import check, split, stamp
from cordwood.storage.config import LogConfig
from cordwood.storage.records import decode

MB = 1 << 20
TOPIC = "t"
SESSION_PARTITIONS_MAX = 100
ANSWER_S = 1000.0
"""Of virtual time."""
TURNS = 12
"""Of the loop, for all that a story sets off and that waits for no timer."""


class Client:
    """A connection to the broker, and what it was answered."""

    def __init__(self, here: InProcess, dispatcher: Dispatcher) -> None:
        self._channel = here.open("PLAINTEXT", dispatcher.handle, self._answered)
        self._asked: dict[int, tuple[Any, asyncio.Future[Any]]] = {}
        self._next_id = 0

    @property
    def is_open(self) -> bool:
        return self._channel.is_open

    def send(self, api: int, version: int, **fields: Any) -> asyncio.Future[Any]:
        """A request of one version; the answer as that version's class. Nested fields are given as dicts."""
        request = message_of(load_request_schema(api, version), fields)
        self._next_id += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[self._next_id] = type(request), future
        self._channel.push([encode_request(request, self._next_id, b"client")])
        return future

    async def exchange(self, frame: bytes) -> bytes:
        """The answer's frame to a request's, of correlation id 1, both without their lengths."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[1] = None, future
        self._channel.push([len(frame).to_bytes(4, "big") + frame])
        async with asyncio.timeout(ANSWER_S):
            answer: bytes = await future
        return answer

    def _answered(self, frame: memoryview) -> None:
        request, future = self._asked.pop(correlation_id_of(frame))
        future.set_result(bytes(frame) if request is None else decode_response(request, frame))


class HandlersStory(LeaderStory):
    """A broker with one topic, told what to do in verbs. A group commit ends when the story says so, with `sync`."""

    def __init__(
        self, config: LogConfig | None = None, *, response_bytes_max: int = 64 * MB, sessions: int = 10
    ) -> None:
        super().__init__(config or LogConfig(segment_bytes=MB, batch_bytes_max=64 * 1024))
        self.now_ms = NOW_MS
        self.near: dict[tuple[str, str, int], int] = {}
        """By topic, rack and offset, the follower that a client is better served by."""
        self.leaders: dict[tuple[str, int], Leader] = {}
        """What the metadata knows of others that lead."""
        turns, decoding = Turns(lambda: 0.0), Decoding(run_here)
        here: dict[str, Any] = dict.fromkeys(Services.__slots__)
        here |= {"settings": Settings(), "replicas": self.replicas, "turns": turns, "decoding": decoding}
        here |= {"run_blocking": run_here, "wall_clock": self._clock, "rng": random.Random(1)}
        pool = MemoryPool("sessions", 4 * SESSION_PARTITIONS_MAX * SESSION_PARTITION_BYTES)
        self.sessions = FetchSessions(sessions, pool, random.Random(1))
        fetching = Fetching(
            self.replicas, self.sessions, run_here, self._clock, response_bytes_max, self._nearest, turns
        )
        producing = Producing(self.replicas, decoding, self._clock, self._find_leader, turns)
        self._dispatcher = Dispatcher(
            Services(**here), producing, fetching, self.links, RequestMeasures(asyncio.get_running_loop().time)
        )
        self._here = InProcess(self.wakeups, run_here, lambda _: None, 100 * MB)
        self.client = self.connect()
        self._housekeeping = housekeeping_of(self)

    def connect(self) -> Client:
        return Client(self._here, self._dispatcher)

    async def ask(self, api: int, version: int, **fields: Any) -> Any:
        """The answer to a request; timers pass at once where it waits for one."""
        async with asyncio.timeout(ANSWER_S):
            return await self.client.send(api, version, **fields)

    def elect(
        self, index: int = 0, *, epoch: int = 1, isr: tuple[int, ...] = (ME,), min_isr: int = 1, leader: int = ME
    ) -> Partition:
        """Another leader epoch begins, and this broker leads in it."""
        partition = self.held(index)
        partition.assigned(Assignment(leader, epoch, epoch, (ME, FOLLOWER), frozenset(isr), min_isr))
        return partition

    def follow(self, index: int = 0, end: int = 0, *, stream: int | None = None) -> None:
        """The follower has everything below `end`, all of it of the present epoch where there is something."""
        epoch = self.held(index).leader_epoch
        last_epoch = self.held(index).log.epochs.epoch_at(end - 1) if end else -1
        row = Follow(index if stream is None else stream, TOPIC_ID, index, epoch, end, last_epoch, end)
        self.send(frames.encode_follow([row]))

    def report(self, flushed_end: int, index: int = 0) -> None:
        """The follower has everything below `flushed_end` on its disk."""
        self.send(frames.encode_reports([Report(index, flushed_end, 0)]))

    def begin_to_follow(self, index: int = 0, *, epoch: int = 1) -> Following:
        """Another leader epoch begins, and another broker leads in it."""
        partition = self.held(index)
        isr = frozenset({ME, LEADER})
        assert partition.assigned(Assignment(LEADER, epoch, epoch, (ME, LEADER), isr, 1))
        partition.following = Following(_Nobody(), partition, index)
        return partition.following

    def append(self, *values: str, index: int = 0, now_ms: int = NOW_MS) -> None:
        """A batch with one record for each value, in memory."""
        partition = self.held(index)
        for value in values:
            partition.append(batch_of(value), now_ms)

    async def commit(self, *values: str, index: int = 0) -> None:
        """As `append`, and the group commit that makes them sure, here."""
        self.append(*values, index=index)
        await self.sync()

    def damage(self, index: int = 0) -> None:
        """A bit flips on disk, in the first batch."""
        self.disk.flip(self.held(index).log.segments[0].path, 20, 0)

    async def sync(self) -> None:
        """All group commits that are due, and what follows from them."""
        for _ in range(TURNS):
            await self.turn()
            while self.syncer.groups:
                self.syncer.let_go()
        await self.turn()

    async def save(self, index: int = 0) -> None:
        """As `sync`, and then checkpoint a log."""
        await self.sync()
        await self._housekeeping.save(self.held(index))
        await self.turn()

    def held(self, index: int = 0) -> Partition:
        """The partition, opened at the first call, in the role that it has."""
        if self.replicas.get(TOPIC, index) is None:
            self.replicas.open(Place(TOPIC, index, TOPIC_ID), self.config, NOW_MS)
        partition = self.replicas.get(TOPIC, index)
        assert partition is not None
        return partition

    def _nearest(self, partition: Partition, rack: str, offset: int) -> int | None:
        return self.near.get((partition.topic, rack, offset))

    def _find_leader(self, topic: str, index: int, _listener: str) -> Leader | None:
        return self.leaders.get((topic, index))

    def _clock(self) -> int:
        return self.now_ms


class _Nobody:
    """A leader that does not listen."""

    def report(self, following: Following) -> None: ...

    def start(self, following: Following) -> None: ...

    def leave(self, following: Following) -> None: ...


def stamped(value: str, offset: int, epoch: int) -> bytes:
    """A batch with one record as the leader of an epoch has it."""
    batch = batch_of(value)
    return stamp(check(batch), offset, epoch) + batch[16:]


def values_in(records: bytes | None) -> list[tuple[int, str]]:
    """Offset and value of each record in an answer."""
    found = [record for batch in split(bytes(records or b"")) for record in decode(bytes(batch))]
    return [(record.offset, (record.value or b"").decode()) for record in found]


def milliseconds(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def tell(story: Callable[[HandlersStory], Awaitable[None]], config: LogConfig | None = None, **options: Any) -> None:
    """Run a story of a broker with these settings, in no time."""

    async def told() -> None:
        await story(HandlersStory(config, **options))

    run(told())


Provoke = Callable[[HandlersStory], Awaitable[ErrorCode]]

OF_EXPECTED = frozenset({*refusals._BY_ERROR.values(), *refusals._BY_REFUSAL.values(), ErrorCode.unknown_server_error})
"""The codes that `code_of` may come to."""
OF_APPENDS = frozenset(
    {
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
        ErrorCode.message_too_large,
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.not_enough_replicas,
    }
)
"""Those of them that say why a batch is not taken."""


class Provocations:
    """For each error code that a handler may answer, a story of which it is the answer."""

    def __init__(self, handler: ModuleType, never: frozenset[ErrorCode]) -> None:
        """`never` are those of `code_of` that nothing this handler does is refused with."""
        self._handler, self._never = handler, never
        self.by_code: dict[ErrorCode, Provoke] = {}

    def of(self, code: ErrorCode) -> Callable[[Provoke], Provoke]:
        """The decorated story ends with the code that was answered."""

        def note(provoke: Provoke) -> Provoke:
            self.by_code[code] = provoke
            return provoke

        return note

    def of_places(self, ask: Callable[[HandlersStory, str, int], Awaitable[ErrorCode]]) -> None:
        """The codes for a place that is not served; `ask` takes a topic and the leader epoch that a client knows."""

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

        self.by_code |= {
            ErrorCode.unknown_topic_or_partition: unknown,
            ErrorCode.not_leader_or_follower: follower,
            ErrorCode.fenced_leader_epoch: old_epoch,
            ErrorCode.unknown_leader_epoch: future_epoch,
            ErrorCode.kafka_storage_error: offline,
        }

    def check_all(self) -> None:
        """None that the handler's source names is missing, and each is the answer of its story."""
        assert codes_named_in(self._handler) == self.by_code.keys() | self._never
        assert not self.by_code.keys() & self._never
        for code, provoke in self.by_code.items():
            tell(_provoked(code, provoke))


def _provoked(code: ErrorCode, provoke: Provoke) -> Callable[[HandlersStory], Awaitable[None]]:
    async def story(broker: HandlersStory) -> None:
        assert await provoke(broker) is code

    return story


def codes_named_in(module: ModuleType) -> frozenset[ErrorCode]:
    """The error codes that a handler may answer: those that its source names, and those of what is refused below it."""
    tree = ast.parse(inspect.getsource(module))
    named = {
        ErrorCode[node.attr]
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ErrorCode"
    }
    asks = any(isinstance(node, ast.Name) and node.id == "code_of" for node in ast.walk(tree))
    return frozenset(named | (OF_EXPECTED if asks else frozenset())) - {ErrorCode.none}
