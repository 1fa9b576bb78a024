"""The coordinator of one group as a simulated client knows it, found by FindCoordinator, and forgotten after errors."""

from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import UNKNOWN
from cordwood.chaos.sim.kafka import Address, SimulatedClient, message
from cordwood.cluster.kafka.api_keys import ApiKey

GROUP = 0
"""The key type of FindCoordinator."""
MOVED = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
    }
)
"""Codes of a coordinator that cannot serve now. The request is sent again, to the one that is found then."""


class CoordinatorOfGroup:
    """The coordinator of one group. `broker` is the one that is known; UNKNOWN for none."""

    def __init__(self, client: SimulatedClient, group: str) -> None:
        self._client, self._group = client, group
        self._address: Address | None = None
        self.broker = UNKNOWN

    async def address(self) -> Address:
        """Return the coordinator's address. Raises OSError."""
        if self._address is None:
            request = message(ApiKey.FIND_COORDINATOR, key_type=GROUP, coordinator_keys=(self._group,))
            answer = await self._client.ask(self._client.anybody(), request)
            (found,) = answer.coordinators
            if found.error_code is not ErrorCode.none:
                raise OSError(found.error_code.name)
            self._address, self.broker = (found.host, int(found.port)), int(found.node_id)
        return self._address

    async def ask(self, request: Any, timeout_s: float | None = None) -> Any:
        """Send a request to the coordinator, and return the response. Raises OSError."""
        address = await self.address()
        try:
            if timeout_s is None:
                return await self._client.ask(address, request)
            return await self._client.ask(address, request, timeout_s)
        except OSError:
            self.forget()
            raise

    def forget(self) -> None:
        """Ask for the coordinator before the next request."""
        self._address, self.broker = None, UNKNOWN
