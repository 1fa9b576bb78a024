"""A Kafka client inside a broker, for requests to this broker and to others.

The requests go to the same handlers as those of any Kafka client.
"""

import asyncio
import copy
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self

from cordwood.cluster.kafka.client_connection import ClientConnection, EncodedResponse, HungUp
from cordwood.cluster.kafka.message_writer import Answer, writing
from cordwood.cluster.kafka.on_behalf import encode_on_behalf
from cordwood.cluster.kafka.wire import Malformed
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.security.principal import ANONYMOUS, THIS_BROKER, Identity
from cordwood.replication.channel import Channel, Dial

ANSWER_S = 10.0
DIAL_S = 3.0
AT_ONCE_MAX = 8
"""Requests in flight to one broker; further ones wait."""
IDLE_SHARE = 4
"""The divisor of AT_ONCE_MAX that gives the idle connections kept open to one broker."""

IDENTITIES_MAX = 32
"""Identities whose idle connections are kept open; those of the least recently seen one are closed."""

OpenHere = Callable[[Callable[[memoryview], None], Identity], Channel]
"""Opens a connection of an identity to this broker itself."""
Address = Callable[[int], tuple[str, int] | None]
"""Returns the address of another broker, or None if it is unknown."""


class Unanswered(Exception):
    """A broker did not respond. The message is for the client."""


class OutOfReach(Unanswered):
    """The request could not be sent: nothing has been done."""


class IdleConnections:
    """Idle connections to brokers, for one identity each, and the requests in flight to each broker."""

    def __init__(self, at_once_max: int) -> None:
        self._kept_max = at_once_max // IDLE_SHARE
        self.asking: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(at_once_max))
        self._idle: OrderedDict[Identity, defaultdict[int, list[ClientConnection]]] = OrderedDict()
        self._is_closed = False

    def take(self, identity: Identity, broker_id: int) -> ClientConnection | None:
        """Return an open connection, which is no longer idle; None if there is none."""
        idle = self._of(identity)[broker_id]
        while idle:
            connection = idle.pop()
            if connection.is_open:
                return connection
        return None

    def give_back(self, identity: Identity, broker_id: int, connection: ClientConnection) -> None:
        """Keep an idle connection. Close one with a pending response, which the next request would get."""
        idle = self._of(identity)[broker_id]
        if connection.is_idle and not self._is_closed and len(idle) < self._kept_max:
            idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close all idle connections, and keep none from now on."""
        self._is_closed = True
        while self._idle:
            self._close_oldest()

    def _of(self, identity: Identity) -> defaultdict[int, list[ClientConnection]]:
        found = self._idle.setdefault(identity, defaultdict(list))
        self._idle.move_to_end(identity)
        if len(self._idle) > IDENTITIES_MAX:
            self._close_oldest()
        return found

    def _close_oldest(self) -> None:
        _, by_broker = self._idle.popitem(last=False)
        for connections in by_broker.values():
            for connection in connections:
                connection.close()


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
        *,
        has_acls: bool = False,
    ) -> None:
        self.broker_id, self._turns, self._client_id, self._has_acls = broker_id, turns, client_id, has_acls
        self._open_here, self._address, self._dial = open_here, address, dial
        self._identity = THIS_BROKER
        self._connections = IdleConnections(AT_ONCE_MAX)

    def apart(self, at_once_max: int) -> Self:
        """Return a client of the same brokers with connections of its own, so that slow requests delay no others."""
        client = copy.copy(self)
        client._connections = IdleConnections(at_once_max)
        return client

    def on_behalf_of(self, identity: Identity) -> Self:
        """Return a client whose requests have the rights of a user. It shares this client's limits.

        Without access control all anonymous users have the rights of this broker. Brokers of older versions do not know
        the frame that names a user.
        """
        if identity.principal == ANONYMOUS and not self._has_acls:
            return self
        client = copy.copy(self)
        client._identity = identity
        return client

    @property
    def identity(self) -> Identity:
        """The sender of the requests."""
        return self._identity

    async def ask(self, broker_id: int | None, request: Any, answer_s: float = ANSWER_S) -> Any:
        """Send a kio request to a broker, or to this one for None. Return the response. Raises Unanswered.

        The request may have been executed even if this raises.
        """
        asked = self.broker_id if broker_id is None else broker_id
        try:
            async with asyncio.timeout(answer_s), self._connections.asking[asked]:
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
        self._connections.close()

    async def _ask(self, broker_id: int, request: Any) -> Any:
        encoded = Answer()
        await self._turns.run(writing(type(request), b"", request, encoded))
        connection = self._connections.take(self._identity, broker_id) or await self.open(broker_id)
        try:
            response = await connection.ask(request, encoded.chunks)
            if isinstance(response, EncodedResponse):
                return await self._turns.run(response.decoding())
            return response
        except (HungUp, Malformed) as error:
            raise Unanswered(f"Broker {broker_id} did not answer ({error}): try again later.") from error
        finally:
            self._connections.give_back(self._identity, broker_id, connection)

    def _connect(self, broker_id: int, received: Callable[[memoryview], None]) -> Awaitable[Channel]:
        return self._connect_here(received) if broker_id == self.broker_id else self._connect_there(broker_id, received)

    async def _connect_here(self, received: Callable[[memoryview], None]) -> Channel:
        return self._open_here(received, self._identity)

    async def _connect_there(self, broker_id: int, received: Callable[[memoryview], None]) -> Channel:
        where = self._address(broker_id)
        if where is None:
            raise OutOfReach(f"Broker {broker_id} is not known to broker {self.broker_id}: try again later.")
        try:
            async with asyncio.timeout(DIAL_S):
                channel = await self._dial(*where, received)
        except OSError as error:
            # TimeoutError is an OSError.
            raise OutOfReach(
                f"Broker {broker_id} cannot be reached ({error or 'no answer'}): try again later."
            ) from error
        if self._identity is not THIS_BROKER:
            channel.push([encode_on_behalf(self._identity)])
        return channel
