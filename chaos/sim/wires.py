"""Simulated replication channels between brokers in one process: latency, ordered delivery, cuts and bit flips."""

import asyncio
import random
from collections.abc import Callable

from cordwood.replication.channel import Channel, Chunk, Received
from cordwood.replication.frames import MalformedFrame
from cordwood.storage.batch import CRC_COVERS_FROM, peek
from cordwood.storage.errors import StorageError
from cordwood.storage.steps import Steps, at_once

Handle = Callable[[Channel, memoryview], Steps[None] | None]

LATENCY_MAX_S = 0.02
ORDER_S = 1e-6
EPOCH_AT = 12
"""The position of the leader epoch in a batch."""


class Wire:
    """One end of a channel. `push` reads the chunks from the logs immediately."""

    def __init__(self, wires: "Wires", here: int, there: int, received: Received) -> None:
        self._wires, self.here, self.there, self._received = wires, here, there, received
        self.on_closed: Callable[[], None] | None = None
        self.is_open = True
        self.other: Wire | None = None
        self.is_left = False
        """Whether the other end is closed and a cut has hidden that from this end."""
        self._arrives_at = 0.0

    def push(self, chunks: list[Chunk]) -> None:
        if not self.is_open:
            return
        try:
            data = b"".join(chunk if isinstance(chunk, bytes) else self._wires.spoilt(_read(chunk)) for chunk in chunks)
        except (StorageError, OSError):
            self.close()
            return
        loop = asyncio.get_running_loop()
        # The loop calls timers with equal due times in no particular order.
        self._arrives_at = max(self._arrives_at + ORDER_S, loop.time() + self._wires.latency())
        loop.call_at(self._arrives_at, self._deliver, data)

    def close(self, _reason: str | None = None) -> None:
        """Close both ends, unless the wire is cut: then the other end stays open."""
        if self.is_open:
            self.is_open = False
            self._wires.forget(self)
            asyncio.get_running_loop().call_soon(self._tell)
            if self.other is not None and self._wires.is_cut(self.here, self.there):
                self.other.is_left = True
            elif self.other is not None:
                asyncio.get_running_loop().call_later(self._wires.latency(), self.other.close)

    def _tell(self) -> None:
        if self.on_closed is not None:
            self.on_closed()

    def _deliver(self, data: bytes) -> None:
        other = self.other
        if other is None or not other.is_open or self._wires.is_cut(self.here, self.there):
            return
        view = memoryview(data)
        while view and other.is_open:
            size = int.from_bytes(view[:4], "big")
            try:
                if (steps := other._received(view[4 : 4 + size])) is not None:
                    at_once(steps)
            except MalformedFrame:
                other.close()
            view = view[4 + size :]


class Wires:
    """The network of one-way wires. `cut(1, 2)` loses data from broker 1 to broker 2."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._handlers: dict[int, Handle] = {}
        self._open: list[Wire] = []
        self._cut: set[tuple[int, int]] = set()
        self.flips = 0
        """The number of next pushes that get one flipped bit in a batch."""

    def latency(self) -> float:
        return self._rng.uniform(0.0001, LATENCY_MAX_S)

    def listen(self, broker_id: int, handle: Handle) -> None:
        self._handlers[broker_id] = handle

    async def dial(self, here: int, there: int, received: Received) -> Wire:
        """Connect to a broker. Raises OSError where the broker does not listen, or a wire is cut."""
        await asyncio.sleep(self.latency())
        handle = self._handlers.get(there)
        if handle is None or self.is_cut(here, there) or self.is_cut(there, here) or here not in self._handlers:
            raise OSError("unreachable")
        mine = Wire(self, here, there, received)
        theirs = Wire(self, there, here, lambda frame: handle(theirs, frame))
        mine.other, theirs.other = theirs, mine
        self._open += [mine, theirs]
        return mine

    def spoilt(self, batches: bytes) -> bytes:
        """Return the batches as they arrive. The first may have a flipped bit in its leader epoch or checked part."""
        if not self.flips or not batches:
            return batches
        self.flips -= 1
        changed = bytearray(batches)
        at = self._rng.choice((EPOCH_AT, self._rng.randrange(CRC_COVERS_FROM, peek(batches).size)))
        changed[at] ^= 0x40 if at == EPOCH_AT else 1 << self._rng.randrange(8)
        return bytes(changed)

    def unplug(self, broker_id: int) -> None:
        """Close the connections of a broker whose process has ended."""
        self._handlers.pop(broker_id, None)
        for wire in [wire for wire in self._open if wire.here == broker_id]:
            wire.on_closed = None
            wire.close()

    def cut(self, here: int, there: int) -> None:
        self._cut.add((here, there))

    def is_cut(self, here: int, there: int) -> bool:
        return (here, there) in self._cut

    def heal(self) -> None:
        """End all cuts, and close the connections that lost data, as TCP would reset them."""
        for wire in [wire for wire in self._open if wire.is_left or self.is_cut(wire.here, wire.there)]:
            self._cut.discard((wire.here, wire.there))
            wire.close()
        self._cut.clear()

    def forget(self, wire: Wire) -> None:
        if wire in self._open:
            self._open.remove(wire)


def _read(chunk: "Chunk") -> bytes:
    assert not isinstance(chunk, bytes)
    pieces = []
    while chunk.size:
        pieces.append(bytes(chunk.next_piece()))
    return b"".join(pieces)
