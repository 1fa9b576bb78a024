"""Probe of a broker's address: a refused connection means that no process listens there."""

import asyncio
from collections.abc import Callable

PROBE_TIMEOUT_S = 0.5


class AddressProbe:
    """A probe. `address` returns the address between brokers; None if it is not known."""

    def __init__(self, address: Callable[[int], tuple[str, int] | None]) -> None:
        self._address = address

    async def is_refused(self, broker_id: int) -> bool:
        """Return True only for a refused connection. A silent or unreachable host says nothing about the broker."""
        address = self._address(broker_id)
        if address is None:
            return False
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, *address)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        transport.close()
        return False
