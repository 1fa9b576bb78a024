"""A Kafka client inside a broker, for requests to this broker and to others.

The requests go to the same handlers as those of any Kafka client.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from cordwood.cluster.kafka.client_connection import ClientConnection, EncodedResponse, HungUp
from cordwood.cluster.kafka.message_writer import Answer, writing
from cordwood.cluster.kafka.wire import Malformed
from cordwood.cluster.resources.turns import Turns
from cordwood.replication.channel import Channel, Dial

ANSWER_S = 10.0
DIAL_S = 3.0
AT_ONCE_MAX = 8
"""Requests in flight to one broker; further ones wait."""
IDLE_SHARE = 4
"""The divisor of AT_ONCE_MAX that gives the idle connections kept open to one broker."""

OpenHere = Callable[[Callable[[memoryview], None]], Channel]
"""Opens a connection to this broker itself."""
Address = Callable[[int], tuple[str, int] | None]
"""Returns the address of another broker, or None if it is unknown."""


class Unanswered(Exception):
    """A broker did not respond. The message is for the client."""


class OutOfReach(Unanswered):
    """The request could not be sent: nothing has been done."""


class ClusterClient:
    """A Kafka client with connections to all brokers."""

    def __init__(
        self,
        broker_id: int,
        open_here: OpenHere,
        address: Address,
        dial: Dial,
        turns: Turns,
        client_id: str,
        at_once_max: int = AT_ONCE_MAX,
    ) -> None:
        self.broker_id, self._turns, self._client_id, self._at_once_max = broker_id, turns, client_id, at_once_max
        self._open_here, self._address, self._dial = open_here, address, dial
        self._idle: defaultdict[int, list[ClientConnection]] = defaultdict(list)
        self._asking: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(at_once_max))
        self._is_closed = False

    def apart(self, at_once_max: int) -> "ClusterClient":
        """Return a client of the same brokers with connections of its own, so that slow requests delay no others."""
        return ClusterClient(
            self.broker_id, self._open_here, self._address, self._dial, self._turns, self._client_id, at_once_max
        )

    async def ask(self, broker_id: int | None, request: Any, answer_s: float = ANSWER_S) -> Any:
        """Send a kio request to a broker, or to this one for None. Return the response. Raises Unanswered.

        The request may have been executed even if this raises.
        """
        asked = self.broker_id if broker_id is None else broker_id
        try:
            async with asyncio.timeout(answer_s), self._asking[asked]:
                return await self._ask(asked, request)
        except TimeoutError:
            raise Unanswered(f"Broker {asked} did not answer within {answer_s:.0f} s: try again later.") from None

    async def ask_all(self, broker_ids: Iterable[int], request: Callable[[int], Any]) -> dict[int, Any]:
        """Send each broker its own request. Return the responses; None for a broker that did not respond."""

        async def one(broker_id: int) -> tuple[int, Any]:
            try:
                return broker_id, await self.ask(broker_id, request(broker_id))
            except Unanswered:
                return broker_id, None

        return dict(await asyncio.gather(*map(one, dict.fromkeys(broker_ids))))

    async def open(self, broker_id: int) -> ClientConnection:
        """Open a connection for the caller alone, who closes it. Raises OutOfReach."""
        connection = ClientConnection(self._client_id)
        connection.begin(await self._connect(broker_id, connection.received))
        return connection

    async def close(self) -> None:
        """Close all idle connections, and keep none from now on."""
        self._is_closed = True
        for conversations in self._idle.values():
            for connection in conversations:
                connection.close()
        self._idle.clear()

    async def _ask(self, broker_id: int, request: Any) -> Any:
        encoded = Answer()
        await self._turns.run(writing(type(request), b"", request, encoded))
        connection = await self._borrow(broker_id)
        try:
            response = await connection.ask(request, encoded.chunks)
            if isinstance(response, EncodedResponse):
                return await self._turns.run(response.decoding())
            return response
        except (HungUp, Malformed) as error:
            raise Unanswered(f"Broker {broker_id} did not answer ({error}): try again later.") from error
        finally:
            self._give_back(broker_id, connection)

    async def _borrow(self, broker_id: int) -> ClientConnection:
        idle = self._idle[broker_id]
        while idle:
            connection = idle.pop()
            if connection.is_open:
                return connection
        return await self.open(broker_id)

    def _give_back(self, broker_id: int, connection: ClientConnection) -> None:
        """Keep an idle connection. Close one with a pending response, which the next request would get."""
        if connection.is_idle and not self._is_closed and len(self._idle[broker_id]) < self._at_once_max // IDLE_SHARE:
            self._idle[broker_id].append(connection)
        else:
            connection.close()

    def _connect(self, broker_id: int, received: Callable[[memoryview], None]) -> Awaitable[Channel]:
        return self._connect_here(received) if broker_id == self.broker_id else self._connect_there(broker_id, received)

    async def _connect_here(self, received: Callable[[memoryview], None]) -> Channel:
        return self._open_here(received)

    async def _connect_there(self, broker_id: int, received: Callable[[memoryview], None]) -> Channel:
        where = self._address(broker_id)
        if where is None:
            raise OutOfReach(f"Broker {broker_id} is not known to broker {self.broker_id}: try again later.")
        try:
            async with asyncio.timeout(DIAL_S):
                return await self._dial(*where, received)
        except OSError as error:
            # TimeoutError is an OSError.
            raise OutOfReach(
                f"Broker {broker_id} cannot be reached ({error or 'no answer'}): try again later."
            ) from error
