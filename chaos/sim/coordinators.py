"""Requests of a transactional client to its coordinators: repeated until accepted, or late on an old connection."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.sim.kafka import REQUEST_TIMEOUT_S, Address, PipelinedConnection, SimulatedClient, message
from cordwood.chaos.sim.producer import RETRIABLE
from cordwood.cluster.kafka.api_keys import ApiKey

GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""
DELAYS_S = (0.0, 0.02), (0.0, 0.3), (0.0, 3.0)
"""How late a request arrives on an older connection."""
SOON_S = 0.02

MOVED = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})
RETRIED = RETRIABLE | MOVED | {ErrorCode.concurrent_transactions, ErrorCode.unstable_offset_commit}
"""Codes of which the request is sent again."""

Code = Callable[[Any], ErrorCode]
"""Returns the error code of a response."""


class ClientDied(Exception):
    """The client ends here, in the middle of its transaction."""


class SessionEnded(Exception):
    """The session can do nothing more."""

    def __init__(self, code: ErrorCode | None, asked: str) -> None:
        super().__init__(f"{code!r} to {asked}")
        self.code = code


class CoordinatorClient:
    """The requests of one client program to the coordinators of its keys, by key type."""

    def __init__(self, client: SimulatedClient, keys: Mapping[int, str], delayed_share: float) -> None:
        """`delayed_share` of the requests of `ask_perhaps_late` are late."""
        self._client, self._keys, self._delayed_share = client, keys, delayed_share
        self._coordinators: dict[int, Address] = {}
        self.steps_left: int | None = None
        """The number of further requests of a client that is to die."""
        self.is_unanswered = False
        """Whether a request was sent that may be handled although its answer has not come."""
        self._asked: Any = None
        """The request of `ask_perhaps_late` that is not accepted yet."""
        self._accepted = Counter[Address]()
        """The number of those that each broker has accepted."""

    def step(self) -> None:
        """Count a request of a client that is to die. Raises ClientDied."""
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise ClientDied
            self.steps_left -= 1

    async def ask_perhaps_late(self, request: Any, code_of: Code) -> Any:
        """Ask the transaction coordinator; sometimes so that the request arrives once more, on the old connection."""
        client, address = self._client, self._coordinators.get(TRANSACTION)
        if address is not None and client.rng.random() < self._delayed_share:
            old = client.set_aside(address)
            if old is not None and old.is_open:
                client.did("request-on-an-older-connection")
                self.is_unanswered = True
                delay_s = client.rng.uniform(*client.rng.choice(DELAYS_S))
                client.loop.create_task(self._arrive_late(old, address, request, delay_s))
        self._asked = request
        try:
            answer, _ = await self.ask(TRANSACTION, request, code_of)
        finally:
            self._asked = None
        self._accepted[self._coordinators[TRANSACTION]] += 1
        return answer

    async def ask(self, key_type: int, request: Any, code_of: Code) -> tuple[Any, bool]:
        """Ask a coordinator until it accepts. Return its answer, and whether an earlier request got none.

        Raises SessionEnded, ClientDied.
        """
        client, was_unanswered = self._client, False
        while True:
            self.step()
            try:
                answer = await client.ask(await self._coordinator(key_type), request)
            except OSError:
                was_unanswered = self.is_unanswered = True
                self._coordinators.pop(key_type, None)
            else:
                code = code_of(answer)
                if code is ErrorCode.none:
                    return answer, was_unanswered
                if code in MOVED:
                    self._coordinators.pop(key_type, None)
                elif code not in RETRIED:
                    raise SessionEnded(code, type(request).__name__)
                if code is ErrorCode.concurrent_transactions:
                    await asyncio.sleep(SOON_S)
                    continue
            await client.refresh_patiently()

    async def _coordinator(self, key_type: int) -> Address:
        """Return the address of a coordinator. Raises OSError."""
        known = self._coordinators.get(key_type)
        if known is not None:
            return known
        request = message(ApiKey.FIND_COORDINATOR, key_type=key_type, coordinator_keys=(self._keys[key_type],))
        answer = await self._client.ask(self._client.anybody(), request)
        found = answer.coordinators[0]
        if found.error_code is not ErrorCode.none:
            raise OSError(found.error_code.name)
        address = self._coordinators[key_type] = (found.host, int(found.port))
        return address

    async def _arrive_late(
        self, connection: PipelinedConnection, address: Address, request: Any, delay_s: float
    ) -> None:
        """Send a request on a connection that its client has left, and then close it.

        It does not arrive where only another broker has accepted requests since: the guarantees exclude that.
        """
        accepted = self._accepted[address]
        await asyncio.sleep(delay_s)
        if self._asked is request or self._accepted[address] > accepted:
            with contextlib.suppress(OSError):
                await asyncio.wait_for(connection.ask(request), REQUEST_TIMEOUT_S)
        connection.hang_up()
