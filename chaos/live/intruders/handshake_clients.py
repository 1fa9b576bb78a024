"""Clients that never get past a handshake: idle ones, ones that fail in a loop, and slow ones. They run in a process.

Commands over a pipe: `("idle", silent, encrypted)` opens connections, and answers once they are open; `("attack",)`
begins to fail; `("rest",)` ends all of it. Each answers with the number of failed handshakes so far.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Coroutine
from multiprocessing.connection import Connection
from typing import Any

from cordwood.chaos.live.intruders.stage import BROKERS, CLIENTS, HOST, ClosedTarget

FAILING = 500
OPENING_MAX = 40
SLOW_EVERY_S, SLOW_BYTE_S = 1.0, 0.3
RETRY_S = 0.05
OPEN_S = 90.0
NICE = 19
HELLO = b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03"
NO_HELLO = (b"GET / HTTP/1.1\r\n\r\n", HELLO + b"\xff" * 250, b"\x16\x03\x01\xff\xff" + b"\x00" * 300)


class HandshakeClients:
    """All clients of one process."""

    def __init__(self, target: ClosedTarget) -> None:
        self._target = target
        self._context = ssl.create_default_context(cafile=target.ca_file)
        self._opening = asyncio.Semaphore(OPENING_MAX)
        self._tasks: list[asyncio.Task[None]] = []
        self._open = 0
        self.failed = 0

    async def idle(self, silent: int, encrypted: int) -> None:
        """Open connections that send nothing; some of them after a handshake. Wait until they are open."""
        before = self._open
        for number in range(silent + encrypted):
            self._spawn(self._idle(number, self._context if number < encrypted else None))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPEN_S):
                while self._open - before < silent + encrypted:
                    await asyncio.sleep(RETRY_S)

    def attack(self) -> None:
        """Let clients fail handshakes in a loop, and one begin a slow handshake each second."""
        for number in range(FAILING):
            self._spawn(self._fail(number))
        self._spawn(self._be_slow())

    async def rest(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _idle(self, number: int, context: ssl.SSLContext | None) -> None:
        while True:
            with contextlib.suppress(OSError):
                async with self._opening:
                    reader, writer = await self._connected(CLIENTS, number, context)
                self._open += 1
                try:
                    await reader.read()
                finally:
                    self._open -= 1
                    writer.transport.abort()
            await asyncio.sleep(RETRY_S)

    async def _fail(self, number: int) -> None:
        """Fail handshakes: with bytes that are none, or without the certificate that the broker requires."""
        while True:
            with contextlib.suppress(OSError):
                has_hello = number % 2 == 0
                reader, writer = await self._connected(BROKERS, number, self._context if has_hello else None)
                try:
                    if not has_hello:
                        writer.write(NO_HELLO[number % len(NO_HELLO)])
                    await reader.read()
                finally:
                    writer.transport.abort()
            self.failed += 1
            await asyncio.sleep(RETRY_S)

    async def _be_slow(self) -> None:
        number = 0
        while True:
            number += 1
            self._spawn(self._dribble(number))
            await asyncio.sleep(SLOW_EVERY_S)

    async def _dribble(self, number: int) -> None:
        """Send a handshake a byte at a time."""
        with contextlib.suppress(OSError):
            _, writer = await self._connected(CLIENTS, number, None)
            try:
                for byte in HELLO + bytes(200):
                    writer.write(bytes((byte,)))
                    await asyncio.sleep(SLOW_BYTE_S)
            finally:
                writer.transport.abort()

    async def _connected(
        self, listener: str, number: int, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect from an address of the client's own."""
        source = f"127.{1 + number % 50}.{number // 250 % 250}.{2 + number % 250}"
        return await asyncio.open_connection(
            HOST, self._target.ports[listener], ssl=context, local_addr=(source, 0), server_hostname=context and HOST
        )


def run(target: ClosedTarget, commands: Connection) -> None:
    """Follow the commands until the pipe ends. Runs in a process of its own."""
    os.nice(NICE)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        asyncio.run(_followed(target, commands))


async def _followed(target: ClosedTarget, commands: Connection) -> None:
    clients = HandshakeClients(target)
    while True:
        name, *arguments = await asyncio.to_thread(commands.recv)
        if name == "idle":
            await clients.idle(*arguments)
        elif name == "attack":
            clients.attack()
        else:
            await clients.rest()
        commands.send(clients.failed)
