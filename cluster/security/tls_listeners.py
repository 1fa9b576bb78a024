"""TLS of all listeners of a broker: one `Tls` for each, and the watch for changed files."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cordwood.cluster.config.listeners import (
    HTTP,
    controller_listener,
    controller_name,
    is_tls,
    listeners_of,
    protocol_of,
)
from cordwood.cluster.config.settings import Settings
from cordwood.replication.tasks import RunBlocking, Tasks

if TYPE_CHECKING:
    from cordwood.cluster.security.tls import Tls

WATCH_INTERVAL_S = 3.0
"""The interval of the checks for changed certificates."""


class TlsListeners:
    """TLS by listener name, in upper case; empty for a broker whose listeners are all plain."""

    def __init__(self, settings: Settings, wall_clock: Callable[[], int], run_blocking: RunBlocking) -> None:
        """Load all certificates. Blocks. Raises TlsMistake."""
        encrypted = [(name, protocol) for name, protocol in _protocols(settings) if is_tls(protocol)]
        self._by_name: dict[str, Tls] = {}
        self._run_blocking, self._tasks = run_blocking, Tasks()
        if encrypted:
            # The library for certificates takes 10 MB.
            from cordwood.cluster.security import tls
            from cordwood.cluster.security.tls_options import options_of

            for name, protocol in encrypted:
                options = options_of(settings, name, is_sasl=protocol.startswith("SASL_"))
                self._by_name[name] = tls.Tls(options, wall_clock)

    def of(self, listener: str) -> "Tls | None":
        """Return the TLS of a listener, or None if it is plain."""
        return self._by_name.get(listener)

    def start(self) -> None:
        """Begin to look for changed files, if any listener has TLS."""

        async def look() -> None:
            await asyncio.sleep(WATCH_INTERVAL_S)
            await self._run_blocking(self._reload)

        if self._by_name:
            self._tasks.repeat(look, "certificates")

    def reload_soon(self) -> None:
        """Load all files again, whether they have changed or not."""
        self._tasks.spawn(self._reload_all(), "certificates")

    async def close(self) -> None:
        await self._tasks.close()

    async def _reload_all(self) -> None:
        await self._run_blocking(self._reload, True)

    def _reload(self, force: bool = False) -> None:
        for tls in self._by_name.values():
            tls.reload(force=force)


def _protocols(settings: Settings) -> Iterator[tuple[str, str]]:
    for listener in listeners_of(settings):
        yield listener.name, listener.protocol
    if settings.controller_quorum_voters or controller_listener(settings) is not None:
        yield controller_name(settings), protocol_of(settings, controller_name(settings))
    if settings.http_listen:
        yield HTTP, settings.http_security_protocol
