"""Computations of some milliseconds for clients, such as the check of a password: one at a time, in turn by address."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from cordwood.replication.tasks import RunBlocking

WAITING_MAX = 256
"""Maximum number of computations that wait for the clients of one address."""

_T = TypeVar("_T")


class TooManyWait(Exception):
    """WAITING_MAX computations wait for clients of the same address."""


class SlowSteps:
    """A queue for each address. One thread takes the computations, the next one from the next address."""

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._is_running = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By address, in the order in which the addresses have their turn."""

    async def run(self, host: str, function: Callable[..., _T], *arguments: object) -> _T:
        """Run the function in a thread, when it is the address's turn. Raises TooManyWait."""
        if self._is_running:
            await self._turn_of(host)
        self._is_running = True
        try:
            result: _T = await self._run_blocking(function, *arguments)
            return result
        finally:
            self._pass_on()

    async def _turn_of(self, host: str) -> None:
        waiting = self._waiting.setdefault(host, deque())
        if len(waiting) >= WAITING_MAX:
            raise TooManyWait(f"{WAITING_MAX} clients of this address wait for authentication")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the next address its turn."""
        self._is_running = False
        while self._waiting and not self._is_running:
            host = next(iter(self._waiting))
            waiting = self._waiting.pop(host)
            turn = waiting.popleft()
            if waiting:
                self._waiting[host] = waiting
            if not turn.done():
                self._is_running = True
                turn.set_result(None)
