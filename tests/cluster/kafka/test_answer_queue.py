"""A connection's response queue: order, gathering, pieces of slices, and when the next request has to wait."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from log_fixture import LogFixture

from cordwood.cluster.kafka.answer_queue import FREE_BYTES, JOINED_BYTES_MAX, PENDING_BYTES_MAX, AnswerQueue, Slot
from cordwood.cluster.resources.memory import Memory
from cordwood.storage.slices import Slice


@dataclass
class QueueFixture:
    """A response queue, and the connection as its slots see it."""

    memory: Memory = field(default_factory=lambda: Memory.of(1 << 20, 1))
    last_active: float = 0.0

    def __post_init__(self) -> None:
        self.answers, self.end_of_tick = AnswerQueue(self.memory), self

    def answered(self, _connection: object) -> None:
        """Do nothing: the test takes the output."""

    def admit(self, size: int = 100) -> Slot:
        me: Any = self
        slot = self.answers.admit(me, size)
        assert slot is not None, "there is room"
        return slot

    def outputs(self) -> list[Any]:
        """Return everything that may be written now."""
        found, output = [], self.answers.take_answered()
        while output is not None:
            found.append(output)
            output = self.answers.next_output()
        return found


@pytest.fixture
def queue() -> QueueFixture:
    return QueueFixture()


def slice_of(log: LogFixture) -> Slice:
    found = log.log.slice(0, 1 << 20, log.end)
    assert found is not None
    return found


def test_responses_leave_in_the_order_of_the_requests(queue: QueueFixture) -> None:
    first, second = queue.admit(), queue.admit()
    second.fill([b"second"])
    assert queue.outputs() == []
    first.fill([b"first"])
    assert queue.outputs() == [b"firstsecond"]
    assert queue.memory.pending.used == 0


def test_small_responses_are_joined_and_large_ones_are_gathered(queue: QueueFixture) -> None:
    large = b"x" * JOINED_BYTES_MAX
    queue.admit().fill([b"a", b"b"])
    assert queue.outputs() == [b"ab"]
    queue.admit().fill([b"a", large])
    assert queue.outputs() == [[b"a", large]]


def test_nothing_is_written_while_the_client_takes_nothing(queue: QueueFixture) -> None:
    queue.admit().fill([b"abc"])
    queue.answers.may_write = False
    assert queue.outputs() == []
    queue.answers.count_unsent(7)
    assert queue.memory.unsent.used == 10
    queue.answers.resume()
    assert queue.memory.unsent.used == 0
    assert queue.outputs() == [b"abc"]


def test_a_slice_leaves_together_with_the_head_of_its_response(queue: QueueFixture) -> None:
    log = LogFixture().append("a").flush()
    queue.admit().fill([b"head", slice_of(log), b"tail"])
    assert queue.outputs() == [b"head" + log.read(0), b"tail"]


def test_a_slice_that_is_not_in_memory_is_returned_once_to_be_read(queue: QueueFixture) -> None:
    log = LogFixture().append("a").flush()
    found = slice_of(log)
    log.disk.cool()
    queue.admit().fill([b"head", found, b"tail"])
    assert queue.outputs() == [b"head", found]
    assert queue.outputs() == []
    found.next_piece()
    queue.answers.piece_read(found)
    assert queue.outputs() == [b"tail"]


def test_one_request_alone_waits_for_those_before_it_and_holds_up_those_after_it(queue: QueueFixture) -> None:
    first, alone = queue.admit(), queue.admit()
    assert not queue.answers.reserve(alone, 10, alone=True)
    queue.answers.withdraw()
    assert not queue.answers.has_room()
    first.fill([b"first"])
    queue.outputs()
    assert queue.answers.reserve(queue.admit(), 10, alone=True)
    assert not queue.answers.has_room()


def test_the_oldest_request_gets_some_memory_even_from_a_full_pool(queue: QueueFixture) -> None:
    first, second = queue.admit(), queue.admit()
    queue.memory.pending.used = queue.memory.pending.limit
    assert not queue.answers.reserve(second, 1, alone=False)
    assert queue.answers.reserve(first, FREE_BYTES, alone=False)
    assert not queue.answers.reserve(first, FREE_BYTES + 1, alone=False)


def test_a_connection_with_much_pending_waits(queue: QueueFixture) -> None:
    slot = queue.admit()
    slot.held_bytes += PENDING_BYTES_MAX
    queue.answers.hold(PENDING_BYTES_MAX)
    assert not queue.answers.has_room()
    slot.fill([])
    assert queue.outputs() == []
    assert queue.answers.has_room()


def test_a_closed_connection_holds_nothing(queue: QueueFixture) -> None:
    slot = queue.admit()
    queue.admit().fill([b"second"])
    queue.answers.count_unsent(5)
    queue.answers.release()
    queue.answers.hold(100)
    slot.fill([b"late"])
    assert queue.outputs() == []
    assert (queue.memory.pending.used, queue.memory.unsent.used) == (0, 0)
