"""A connection's receive buffer: whole frames out of pieces of any size, growth in steps, and refused sizes."""

import struct

import pytest

from cordwood.cluster.kafka.receive_buffer import BUFFER_BYTES_MIN, BUFFER_BYTES_STEP, BUFFER_BYTES_USUAL, ReceiveBuffer
from cordwood.cluster.kafka.wire import Malformed
from cordwood.cluster.resources.memory import MIB, Memory

PRODUCE, FETCH = 0, 1
OTHER_BYTES_MAX, REQUEST_BYTES_MAX = MIB, 32 * MIB


def frame(size: int, key: int = PRODUCE) -> bytes:
    return struct.pack(">ih", size, key) + bytes(size - 2)


class BufferFixture:
    """A receive buffer whose pools grant every growth, unless `is_short` is set."""

    def __init__(self) -> None:
        self.memory = Memory.of(REQUEST_BYTES_MAX, 1)
        self.buffer = ReceiveBuffer(self.memory, REQUEST_BYTES_MAX, OTHER_BYTES_MAX)
        self.sizes: list[int] = []
        """The sizes of the frames that were returned."""
        self.is_short = False

    def receive(self, data: bytes) -> "BufferFixture":
        """Receive bytes as far as there is room for them, and take all frames."""
        rest = memoryview(data)
        while rest and not self.buffer.is_frozen:
            if self.buffer.room_wanted:
                self.buffer.resize()
            count = min(len(rest), self.buffer.room - self.buffer.end)
            if not count:
                break
            self.buffer.space[self.buffer.end : self.buffer.end + count] = rest[:count]
            self.buffer.end, rest = self.buffer.end + count, rest[count:]
            self.take_all()
        return self

    def take_all(self) -> None:
        while (found := self.buffer.next_frame()) is not None:
            self.sizes.append(len(found))
        if self.buffer.wanted_bytes and not self.is_short:
            assert self.buffer.grow(self.buffer.wanted_bytes)


@pytest.mark.parametrize("piece_bytes", [1, 3, 4, 5, 1000])
def test_frames_arrive_in_pieces_of_any_size(piece_bytes: int) -> None:
    data = frame(8) + frame(100) + frame(9)
    received = BufferFixture()
    for at in range(0, len(data), piece_bytes):
        received.receive(data[at : at + piece_bytes])
    assert received.sizes == [8, 100, 9]
    assert received.buffer.waiting_bytes == 0


def test_frames_follow_each_other_around_the_end_of_the_buffer() -> None:
    received = BufferFixture()
    for _ in range(100):
        received.receive(frame(3_000)[:1_500]).receive(frame(3_000)[1_500:] + frame(8))
    assert received.sizes == [3_000, 8] * 100
    assert received.buffer.held_bytes == 0


def test_a_large_frame_gets_its_memory_as_it_arrives() -> None:
    received, data = BufferFixture(), frame(20 * MIB)
    received.receive(data[:BUFFER_BYTES_MIN])
    assert received.buffer.held_bytes == BUFFER_BYTES_USUAL
    received.receive(data[BUFFER_BYTES_MIN : 10 * MIB])
    assert 10 * MIB <= received.buffer.held_bytes <= 10 * MIB + BUFFER_BYTES_STEP
    received.receive(data[10 * MIB :])
    assert received.sizes == [20 * MIB]
    assert (received.buffer.held_bytes, received.memory.receive.used, received.memory.large.used) == (0, 0, 0)


def test_without_memory_a_frame_waits_with_what_has_arrived() -> None:
    received, data = BufferFixture(), frame(10_000)
    received.is_short = True
    received.receive(data)
    assert (received.buffer.waiting_bytes, received.buffer.wanted_bytes) == (BUFFER_BYTES_MIN, BUFFER_BYTES_USUAL)
    received.memory.receive.limit = 0
    assert not received.buffer.grow(received.buffer.wanted_bytes)
    assert received.buffer.grow(received.buffer.wanted_bytes, by_force=True)
    assert received.receive(data[BUFFER_BYTES_MIN:]).sizes == [10_000]


def test_a_frozen_buffer_returns_its_next_frame_once_it_is_thawed() -> None:
    received = BufferFixture()
    received.buffer.is_frozen = True
    received.buffer.resize()
    received.buffer.space[:12] = frame(8)
    received.buffer.end = 12
    received.take_all()
    assert received.sizes == []
    received.buffer.is_frozen = False
    received.take_all()
    assert received.sizes == [8]


def test_a_frame_that_is_put_back_is_returned_again() -> None:
    received = BufferFixture().receive(frame(50) + frame(60)[:9])
    received.buffer.put_back(50)
    received.receive(frame(60)[9:])
    assert received.sizes == [50, 50, 60]


@pytest.mark.parametrize("size", [-1, 7, REQUEST_BYTES_MAX + 1])
def test_a_size_out_of_bounds_is_refused(size: int) -> None:
    with pytest.raises(Malformed, match=f"a request of {size} bytes"):
        BufferFixture().receive(struct.pack(">i", size))


def test_only_a_produce_may_be_large() -> None:
    size = struct.pack(">i", OTHER_BYTES_MAX + 1)
    BufferFixture().receive(size + struct.pack(">h", PRODUCE))
    with pytest.raises(Malformed, match=f"to API {FETCH}"):
        BufferFixture().receive(size + struct.pack(">h", FETCH))
