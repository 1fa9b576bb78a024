"""Connections that this broker opens to others, of the same make as those that it is opened."""

import asyncio
from collections.abc import Callable

from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.connection_memory import ConnectionMemory
from cordwood.cluster.kafka.keep_alive import KeepAlive
from cordwood.cluster.kafka.slot import Slot
from cordwood.cluster.memory import Memory
from cordwood.replication.channel import Channel, ReadPiece
from cordwood.replication.frames import MalformedFrame
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.errors import DamagedLog

PEER = "peer"
"""The listener that such connections are logged under."""

FRAME_BYTES_MAX = (1 << 31) - 1
"""A leader is trusted with any size: a single batch may be as large as a topic allows."""


class Peers:
    """Dials other brokers. All that arrives is given to whoever dialled, frame by frame."""

    keep_alive = KeepAlive(idle_s=1, interval_s=1, probes=3)
    """A leader that is out of reach is dialled anew: a connection that lost packets for long takes as long to heal."""

    def __init__(self, end_of_tick: EndOfTickScheduler, read_piece: ReadPiece) -> None:
        self.end_of_tick, self.read_piece = end_of_tick, read_piece
        self.request_bytes_max = self.other_bytes_max = FRAME_BYTES_MAX
        self.memory = ConnectionMemory(Memory.unlimited())

    async def dial(self, host: str, port: int, received: Callable[[memoryview], None]) -> Channel:
        """Raises OSError."""

        def handle(connection: Connection, frame: memoryview, _slot: Slot) -> None:
            connection.no_answer_is_due()
            try:
                received(frame)
            except MalformedFrame as malformed:
                connection.close(f"broker at {host}:{port} sent {malformed}")

        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(self, PEER, handle), host, port)
        return connection

    def opened(self, _connection: Connection) -> None:
        """Whoever opens it has limits of its own."""

    def closed(self, _connection: Connection) -> None:
        """Whoever dialled has its own way to know."""

    def damaged(self, _damage: DamagedLog) -> None:
        """Nothing of our own log is sent to a leader."""
