"""Whom HTTP asks: this broker or another one, in Kafka's protocol, answered by the handlers that all clients meet."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from cordwood.cluster.http.client_connection import CLIENT_ID, ClientConnection, HungUp
from cordwood.cluster.kafka.questions import decode_response, encode_request
from cordwood.cluster.kafka.wire import Malformed
from cordwood.replication.channel import Channel, Dial

ANSWER_S = 10.0
DIAL_S = 3.0
AT_ONCE_MAX = 8
"""Questions that one broker is asked at the same time; further ones wait for their turn."""
IDLE_SHARE = 4
"""One in so many of its connections is kept open for the next question."""

OpenHere = Callable[[Callable[[memoryview], None]], Channel]
"""Opens a connection to this very broker."""
Address = Callable[[int], tuple[str, int] | None]
"""Where other brokers reach a broker; None where nobody knows."""


class Unanswered(Exception):
    """A broker that should have answered did not: a sentence for the client."""


class OutOfReach(Unanswered):
    """It could not even be asked: nothing has been done."""


class ClusterClient:
    """All brokers, as somebody sees them who may ask any of them."""

    def __init__(
        self, broker_id: int, open_here: OpenHere, address: Address, dial: Dial, at_once_max: int = AT_ONCE_MAX
    ) -> None:
        self.broker_id, self._at_once_max = broker_id, at_once_max
        self._open_here, self._address, self._dial = open_here, address, dial
        self._idle: defaultdict[int, list[ClientConnection]] = defaultdict(list)
        self._turns: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(at_once_max))
        self._is_closed = False

    def apart(self, at_once_max: int) -> "ClusterClient":
        """The same brokers over other connections, for questions that others should not have to wait for."""
        return ClusterClient(self.broker_id, self._open_here, self._address, self._dial, at_once_max)

    async def ask(self, broker_id: int | None, request: Any, answer_s: float = ANSWER_S) -> Any:
        """The answer of a broker, or of this one for None, to one of kio's requests. Raises Unanswered.

        What has been asked may have been done all the same.
        """
        asked = self.broker_id if broker_id is None else broker_id
        try:
            async with asyncio.timeout(answer_s), self._turns[asked]:
                return await self._ask(asked, request)
        except TimeoutError:
            raise Unanswered(f"Broker {asked} did not answer within {answer_s:.0f} s: ask again later.") from None

    async def ask_all(self, broker_ids: Iterable[int], request: Callable[[int], Any]) -> dict[int, Any]:
        """What each of these brokers answers to its own request; None for one that does not answer."""

        async def one(broker_id: int) -> tuple[int, Any]:
            try:
                return broker_id, await self.ask(broker_id, request(broker_id))
            except Unanswered:
                return broker_id, None

        return dict(await asyncio.gather(*map(one, dict.fromkeys(broker_ids))))

    async def open(self, broker_id: int) -> ClientConnection:
        """A connection for the caller alone, who closes it. Raises OutOfReach."""
        connection = ClientConnection()
        connection.begin(await self._connect(broker_id, connection.received))
        return connection

    async def close(self) -> None:
        """Hang up everywhere."""
        self._is_closed = True
        for conversations in self._idle.values():
            for connection in conversations:
                connection.close()
        self._idle.clear()

    async def _ask(self, broker_id: int, request: Any) -> Any:
        connection = await self._borrow(broker_id)
        try:
            frame = await connection.ask(lambda correlation_id: [encode_request(request, correlation_id, CLIENT_ID)])
            return decode_response(type(request), memoryview(frame))
        except (HungUp, Malformed) as error:
            raise Unanswered(f"Broker {broker_id} gave no answer: {error}.") from error
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
        """An answer that is still to come would be taken for that of the next question: such a connection is ended."""
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
            raise OutOfReach(f"Broker {broker_id} is not known to broker {self.broker_id}.")
        try:
            async with asyncio.timeout(DIAL_S):
                return await self._dial(*where, received)
        except OSError as error:
            # A timeout is one too.
            raise OutOfReach(f"Broker {broker_id} is out of reach: {error or 'no answer'}.") from error
