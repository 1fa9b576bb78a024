"""Whether a broker's host refuses connections at its address: then no process listens there any more."""

import asyncio
from collections.abc import Callable

PROBE_TIMEOUT_S = 0.5


class AddressProbe:
    """`address` is where brokers reach each other; None where it is not known."""

    def __init__(self, address: Callable[[int], tuple[str, int] | None]) -> None:
        self._address = address

    async def is_refused(self, broker_id: int) -> bool:
        """True only for a refusal. A host that is silent or out of reach says nothing about the broker's process."""
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
