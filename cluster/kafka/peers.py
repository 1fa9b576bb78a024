"""Outgoing connections to other brokers, for replication, repair and requests of the HTTP API."""

import asyncio
from collections.abc import Callable

from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.connection_memory import ConnectionMemory
from cordwood.cluster.kafka.keep_alive import KeepAlive
from cordwood.cluster.resources.memory import Memory
from cordwood.replication.channel import Channel, ReadPiece
from cordwood.replication.frames import MalformedFrame
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.errors import DamagedLog

PEER = "peer"
"""The listener name of outgoing connections in the log."""

FRAME_BYTES_MAX = (1 << 31) - 1
"""Frames of any size are accepted from a leader: a single batch may be as large as a topic allows."""


class Peers:
    """The dialler of other brokers. Every received frame is passed to the callback of its caller."""

    keep_alive = KeepAlive(idle_s=1, interval_s=1, probes=3, covers_unacknowledged=True)
    """Short intervals, so that an unreachable leader is dialled again: TCP's retransmission backoff is slower.

    A report that was on its way when the network failed must not keep the connection: a broker that comes back with
    another address would be a follower without data until TCP gives up.
    """

    def __init__(self, end_of_tick: EndOfTickScheduler, read_piece: ReadPiece) -> None:
        self.end_of_tick, self.read_piece = end_of_tick, read_piece
        self.request_bytes_max = self.other_bytes_max = FRAME_BYTES_MAX
        self.memory = ConnectionMemory(Memory.unlimited())

    async def dial(self, host: str, port: int, received: Callable[[memoryview], None]) -> Channel:
        """Connect to a broker; `received` is called with each frame. Raises OSError."""

        def handle(connection: Connection, frame: memoryview, _slot: Slot) -> None:
            connection.answers.withdraw()
            try:
                received(frame)
            except MalformedFrame as malformed:
                connection.close(f"broker at {host}:{port} sent {malformed}")

        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(self, PEER, handle), host, port)
        return connection

    def opened(self, _connection: Connection) -> None:
        """Do nothing: outgoing connections have no limit."""

    def closed(self, _connection: Connection) -> None:
        """Do nothing: the caller of `dial` has `on_closed`."""

    def damaged(self, _damage: DamagedLog) -> None:
        """Do nothing: a follower sends no slices of its log to a leader."""
