"""The receive buffer of a connection: bytes in, length-prefixed frames out. No socket and no clock.

| state | holds | `next_frame` returns |
|---|---|---|
| empty | nothing | None: more bytes are needed |
| partial | a part of a frame, and room for more of it | None |
| full | a part of a frame, and no room | None, and `wanted_bytes` is set: memory is needed, which `grow` takes |
| complete | a frame | the frame, a view that stays valid until the next call |
| frozen | the frame that is being handled, and perhaps more | None, until `is_frozen` is reset |
"""

import mmap
import struct

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.wire import Malformed
from cordwood.cluster.resources.memory import Memory

BUFFER_BYTES_MIN = 4 << 10
BUFFER_BYTES_USUAL = 256 << 10
BUFFER_BYTES_GUARDED = 16 << 10
"""Size of the buffer of a client that is not authenticated, unless its request is larger."""
BUFFER_BYTES_KEPT = 16 << 20
"""Up to this size a buffer stays as large as its largest request, since allocation is slow. A larger one is freed."""
BUFFER_BYTES_STEP = 4 << 20
LENGTH_BYTES = 4
REQUEST_BYTES_MIN = 8
"""Size of API key, version and correlation id."""
KEY_BYTES = 2
_read_size = struct.Struct(">i").unpack_from
_read_key = struct.Struct(">h").unpack_from
_NOTHING = memoryview(bytearray())


class ReceiveBuffer:
    """One reused buffer, counted in the pools. A reader fills `space` from `end` to `room`, and advances `end`."""

    def __init__(self, pools: Memory, request_bytes_max: int, other_bytes_max: int) -> None:
        """`other_bytes_max` is the maximum size of a frame of any API but Produce."""
        self._pools = pools
        self.limit(request_bytes_max, other_bytes_max)
        self.start = self.end = self.room = self.held_bytes = 0
        self.is_frozen = False
        """Whether the buffer stays unchanged, with the frame that is being handled in it."""
        self.space: memoryview
        self._view: memoryview
        self._clear()

    def limit(self, request_bytes_max: int, other_bytes_max: int, *, guarded: bool = False) -> None:
        """Set the maximum size of a frame, and of a frame of any API but Produce.

        While `guarded`, before authentication, the buffer stays small, and a frame may lack a Kafka header.
        """
        self._request_bytes_max, self._other_bytes_max = request_bytes_max, other_bytes_max
        self._request_bytes_min = 0 if guarded else REQUEST_BYTES_MIN
        self.bytes_usual = BUFFER_BYTES_GUARDED if guarded else BUFFER_BYTES_USUAL

    @property
    def waiting_bytes(self) -> int:
        """Bytes received of an incomplete frame, or of frames that are not handled yet."""
        return self.end - self.start

    def next_frame(self) -> memoryview | None:
        """Return the next frame, if it is complete. Raises Malformed."""
        waiting = self.end - self.start
        if self.is_frozen:
            return None
        if not waiting:
            self.start = self.end = 0
            if self.held_bytes > BUFFER_BYTES_KEPT:
                self.shrink()
            return None
        if waiting >= LENGTH_BYTES:
            size: int = _read_size(self._view, self.start)[0]
            begin = self.start + LENGTH_BYTES
            if not REQUEST_BYTES_MIN <= size <= self._other_bytes_max:
                self._check(size, begin)
            if begin + size <= self.end:
                self.start = begin + size
                return self._view[begin : self.start]
        self.make_room()
        return None

    def put_back(self, size: int) -> None:
        """Take back the last frame, of `size` bytes: it is to be returned again later."""
        self.start -= LENGTH_BYTES + size

    def make_room(self) -> None:
        """Make room for more of an incomplete frame. The buffer grows as it fills, never by a claimed length alone."""
        waiting, need = self.end - self.start, LENGTH_BYTES
        if waiting >= LENGTH_BYTES:
            need += _read_size(self._view, self.start)[0]
        if self.start and self.start + max(need, waiting + 1) > self.room:
            self.space[:waiting] = self.space[self.start : self.end]
            self.start, self.end = 0, waiting
        if waiting == self.room and need > waiting:
            self._frame_bytes = need
            self.wanted_bytes = max(self.bytes_usual, min(4 * waiting, waiting + BUFFER_BYTES_STEP, need))

    def grow(self, size: int, *, by_force: bool = False) -> bool:
        """Reserve a buffer of `size` bytes for the next read. Return False if the pools are full."""
        if not by_force and not self._may_hold(size):
            return False
        self.room_wanted, self.wanted_bytes = size, 0
        self._count(size)
        return True

    def shrink(self) -> None:
        """Free the buffer if it is empty."""
        if self.start == self.end and not self.is_frozen:
            self.release()

    def release(self) -> None:
        """Free the buffer."""
        self._clear()
        self._count(0)

    def resize(self) -> None:
        """Set `room` to the reserved size. It may be less than the buffer: a large one is filled in steps."""
        self.room, self.room_wanted = self.room_wanted, 0
        if self.room > len(self.space):
            before = self.space[: self.end]
            if self.room <= BUFFER_BYTES_USUAL:
                self.space = memoryview(bytearray(self.room))
            else:
                # Pages that were never written take no memory, and munmap returns all pages immediately.
                size, flags = max(self.room, self._frame_bytes), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
                self.space = memoryview(mmap.mmap(-1, size, flags=flags))
            self.space[: self.end] = before
            self._view = self.space.toreadonly()

    def _clear(self) -> None:
        self.space = self._view = _NOTHING
        self.start = self.end = self.room = self.wanted_bytes = self._frame_bytes = 0
        self.room_wanted = BUFFER_BYTES_MIN

    def _may_hold(self, size: int) -> bool:
        receive, large = self._pools.receive, self._pools.large
        # A request that would not fit into the common limit beside the other pools may exceed it.
        above = receive.above if self._frame_bytes > large.limit - receive.above else 0
        return receive.has_room(size - self.held_bytes, above) and large.has_room(self._large(size))

    def _count(self, size: int) -> None:
        self._pools.receive.used += size - self.held_bytes
        self._pools.large.used += self._large(size)
        self.held_bytes = size

    def _large(self, size: int) -> int:
        """Return by how many bytes the pool of large buffers changes with a buffer of `size` bytes."""
        before = self.held_bytes
        return (size if size > BUFFER_BYTES_USUAL else 0) - (before if before > BUFFER_BYTES_USUAL else 0)

    def _check(self, size: int, begin: int) -> None:
        """Raise Malformed unless a frame of this size may be a Produce request, as far as is known yet."""
        least = self._request_bytes_min
        if not least <= size <= self._request_bytes_max:
            raise Malformed(
                f"a request of {size} bytes: the limits are {least} to {self._request_bytes_max}"
                " (socket.request.max.bytes)"
            )
        if (
            size > self._other_bytes_max
            and self.end - begin >= KEY_BYTES
            and (key := _read_key(self._view, begin)[0]) != ApiKey.PRODUCE
        ):
            raise Malformed(f"a request of {size} bytes to API {key}: the limit is {self._other_bytes_max}")
