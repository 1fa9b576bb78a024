"""A small Kafka client for the simulator: real bytes, encoded by kio, over the simulated network."""

import asyncio
import functools
import random
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from cordwood.chaos.sim.loop import SimulatedLoop
from cordwood.client.codec import BadResponse, ClientCodec, decode_response, encode_body
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.types import NO_EPOCH

Address = tuple[str, int]
_Send = Callable[[asyncio.Transport, Any, "asyncio.Future[Any]"], None]

VERSIONS = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 8,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 8,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.UNREGISTER_BROKER: 0,
}
VERSIONS_2 = {
    **VERSIONS,
    ApiKey.PRODUCE: 12,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
}
"""The versions of a client of the second version of the transaction protocol (KIP-890)."""
REQUEST_TIMEOUT_S = 5.0
DIAL_TIMEOUT_S = 1.0
REFRESH_S, REFRESH_MAX_S = 0.1, 0.8
"""The pause before metadata is refreshed, which doubles while no broker answers (KIP-580)."""
NO_OPERATIONS = {"include_topic_authorized_operations": False}
MESSAGES_KEPT = 512
"""Encoded requests and decoded responses that are kept: clients repeat themselves, and read the same batches."""
ID_BYTES = 4
"""The correlation id, with which a response begins."""


class NoAnswer(OSError):
    """The connection broke, or the answer did not come in time. The request may or may not have been executed."""


def message(api: ApiKey, version: int = 0, /, **fields: Any) -> Any:
    """Return a request; by default in the version of VERSIONS."""
    return _schema(api, version)(**fields)


def part(api: ApiKey, name: str, version: int = 0, /, **fields: Any) -> Any:
    """Return a nested struct of a request, by the name of its class."""
    return _classes(api, version)[name](**fields)


class PipelinedConnection(asyncio.Protocol):
    """One connection with pipelined requests, which are sent in the order in which they were made.

    Those that are made before the connection is open wait in it, so that no later one overtakes them.
    """

    def __init__(self, client_id: str) -> None:
        self._transport: asyncio.Transport | None = None
        self._codec = ClientCodec[asyncio.Future[Any]](client_id, decode=_decode)
        self._unsent: list[tuple[_Send, Any, asyncio.Future[Any]]] | None = []
        """Requests that wait for the connection. None once it was open, or was refused."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        unsent, self._unsent = self._unsent or [], None
        for send, request, waiter in unsent:
            if not waiter.done():
                send(transport, request, waiter)

    def refuse(self, reason: str) -> None:
        """Fail the requests that wait for the connection: it is not opened, and nothing was sent."""
        unsent, self._unsent = self._unsent or [], None
        for _, _, waiter in unsent:
            if not waiter.done():
                waiter.set_exception(OSError(reason))

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        for future in self._codec.abandon():
            if not future.done():
                future.set_exception(NoAnswer("the connection broke"))

    def data_received(self, data: bytes) -> None:
        """Complete the requests whose responses have arrived. Raises AssertionError for a bad response.

        The simulated network changes no bytes, so a bad response is a fault of the broker, and not a broken connection.
        """
        try:
            for future, response in self._codec.feed(data):
                if not future.done():
                    future.set_result(response)
        except BadResponse as bad:
            raise AssertionError(f"a broker sent {bad}") from bad

    def ask(self, request: Any) -> "asyncio.Future[Any]":
        """Send a request. Return the future of its response. Raises NoAnswer."""
        return self._in_order(self._ask, request)

    def tell(self, request: Any) -> "asyncio.Future[None]":
        """Send a request that has no response. Return a future that is done once it is sent. Raises NoAnswer."""
        return self._in_order(self._tell, request)

    def _in_order(self, send: "_Send", request: Any) -> "asyncio.Future[Any]":
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._transport is not None:
            send(self._transport, request, waiter)
        elif self._unsent is not None:
            self._unsent.append((send, request, waiter))
        else:
            raise NoAnswer("the connection is closed")
        return waiter

    def _ask(self, transport: asyncio.Transport, request: Any, waiter: "asyncio.Future[Any]") -> None:
        transport.write(b"".join(self._codec.frame(request, (_encoded(request),), waiter)))

    def _tell(self, transport: asyncio.Transport, request: Any, waiter: "asyncio.Future[Any]") -> None:
        transport.write(self._codec.encode_unanswered(request))
        waiter.set_result(None)

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def give_up(self, answer: "asyncio.Future[Any]") -> None:
        """Fail a request whose response is late, and abort the connection."""
        if not answer.done():
            answer.set_exception(NoAnswer("no answer in time"))
        self.hang_up()


def _ignored(_what: str) -> None:
    """Do not count."""


class SimulatedClient:
    """One client program: its connections, and its cached metadata of one topic."""

    def __init__(
        self,
        name: str,
        topic: str,
        bootstrap: Sequence[Address],
        rng: random.Random,
        did: Callable[[str], None] = _ignored,
    ) -> None:
        """Create a client. `did` is called with the name of each action that is counted."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.name, self.topic, self.rng, self.loop, self.did = name, topic, rng, loop, did
        self.leader_epochs: dict[int, int] = {}
        self._topic_id: UUID | None = None
        self._bootstrap = list(bootstrap)
        self._pause_s = REFRESH_S
        self._lines: dict[Address, PipelinedConnection] = {}
        self._dialling: dict[Address, PipelinedConnection] = {}
        self._addresses: dict[int, Address] = {}
        self._leaders: dict[int, int] = {}
        self._replicas: dict[int, tuple[int, ...]] = {}

    @property
    def now_ns(self) -> int:
        """Simulated nanoseconds, by the clock that all clients share."""
        return int(self.loop.passed_s * 1e9)

    @property
    def topic_id(self) -> UUID | None:
        """The id of the topic; None until the metadata has it."""
        return self._topic_id

    def leader(self, partition: int) -> Address | None:
        return self._addresses.get(self._leaders.get(partition, -1))

    def any_replica(self, partition: int) -> Address | None:
        """Return the address of a random replica (KIP-392); None if none is known."""
        known = [replica for replica in self._replicas.get(partition, ()) if replica in self._addresses]
        return self._addresses[self.rng.choice(known)] if known else None

    def anybody(self) -> Address:
        return self.rng.choice(self._bootstrap)

    async def ask(self, address: Address, request: Any, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Send a request and return the response. Raises OSError; NoAnswer if the outcome is unknown."""
        line = self._line(address)
        answer = line.ask(request)
        giving_up = self.loop.call_later(timeout_s, line.give_up, answer)
        try:
            return await answer
        finally:
            giving_up.cancel()

    async def tell(self, address: Address, request: Any) -> None:
        """Send a request that has no response. Raises OSError."""
        await self._line(address).tell(request)

    def set_aside(self, address: Address) -> PipelinedConnection | None:
        """Return the connection with a broker, if there is one. The next request opens another."""
        return self._lines.pop(address, None)

    def twin(self) -> "SimulatedClient":
        """Return a client with connections of its own, as another program on the same machine has."""
        return SimulatedClient(self.name, self.topic, self._bootstrap, self.rng, self.did)

    def hang_up(self) -> None:
        """Abort all connections, as a restart of the program does."""
        for line in self._lines.values():
            line.hang_up()
        self._lines.clear()

    async def refresh(self) -> None:
        """Refresh the metadata from any broker, except older leader epochs (KIP-320). Raises OSError."""
        topics = (part(ApiKey.METADATA, "MetadataRequestTopic", name=self.topic, topic_id=None),)
        request = message(ApiKey.METADATA, topics=topics, allow_auto_topic_creation=False, **NO_OPERATIONS)
        answer = await self.ask(self.anybody(), request)
        self._addresses = {int(broker.node_id): (broker.host, broker.port) for broker in answer.brokers}
        if answer.topics[0].topic_id != self._topic_id:
            # Another topic with the same name: the cached metadata belongs to the deleted topic.
            self._topic_id = answer.topics[0].topic_id
            for known in (self.leader_epochs, self._leaders, self._replicas):
                known.clear()
        for partition in answer.topics[0].partitions:
            index = int(partition.partition_index)
            if partition.leader_epoch >= self.leader_epochs.get(index, NO_EPOCH):
                self.leader_epochs[index] = int(partition.leader_epoch)
                self._leaders[index] = int(partition.leader_id)
                self._replicas[index] = tuple(int(replica) for replica in partition.replica_nodes)

    async def refresh_patiently(self) -> None:
        """Refresh the metadata after a pause. Errors are ignored, and make the next pause longer."""
        pause_s = self._pause_s
        await asyncio.sleep(self.rng.uniform(pause_s / 2, pause_s))
        try:
            await self.refresh()
        except OSError:
            self._pause_s = min(2 * pause_s, REFRESH_MAX_S)
        else:
            self._pause_s = REFRESH_S

    def _line(self, address: Address) -> PipelinedConnection:
        """Return the one connection with a broker, open or not yet. A single connection keeps requests in order."""
        line = self._lines.get(address)
        if line is not None and line.is_open:
            return line
        line = self._dialling.get(address)
        if line is None:
            line = self._dialling[address] = PipelinedConnection(self.name)
            self.loop.network.dial(line, address, DIAL_TIMEOUT_S, functools.partial(self._dialled, address))
        return line

    def _dialled(self, address: Address, error: OSError | None) -> None:
        line = self._dialling.pop(address)
        if error is None:
            self._lines[address] = line
        else:
            line.refuse(str(error))


def duration(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


@functools.lru_cache(MESSAGES_KEPT)
def _encoded(request: Any) -> bytes:
    return encode_body(request)


def _decode(request: type, frame: memoryview) -> Any:
    """Decode a response without its correlation id, which the codec has compared. Raises BadResponse."""
    return _decoded(request, bytes(frame[ID_BYTES:]))


@functools.lru_cache(MESSAGES_KEPT)
def _decoded(request: type, rest: bytes) -> Any:
    return decode_response(request, memoryview(bytes(ID_BYTES) + rest))


@functools.cache
def _schema(api: ApiKey, version: int) -> Any:
    return load_request_schema(api, version or VERSIONS[api])


@functools.cache
def _classes(api: ApiKey, version: int) -> dict[str, Any]:
    return vars(sys.modules[_schema(api, version).__module__])
