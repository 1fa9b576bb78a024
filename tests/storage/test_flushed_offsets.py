"""The flushed offset of each log, in one file of fixed slots, after kills, power cuts and bit flips."""

import random
from uuid import UUID

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.storage.flushed_offsets import ENTRIES_PER_READ, SLOT_BYTES, FlushedOffsets

TOPIC, OTHER = UUID(int=1), UUID(int=2)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(1))


def opened(disk: SimulatedDisk) -> FlushedOffsets:
    return FlushedOffsets(disk.open("/marks", create=True))


def note(marks: FlushedOffsets, topic: UUID, partition: int, end: int) -> None:
    marks.mark(topic, partition).note(end, end // 10)


def end_of(marks: FlushedOffsets, topic: UUID, partition: int) -> int | None:
    mark = marks.get(topic, partition)
    assert mark is None or mark.leader_epoch == mark.end_offset // 10
    return mark.end_offset if mark else None


def test_a_mark_is_there_after_a_kill(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    note(marks, TOPIC, 0, 10)
    note(marks, TOPIC, 1, 20)
    note(marks, OTHER, 0, 30)
    note(marks, TOPIC, 0, 11)
    disk.kill()
    marks = opened(disk)
    ends = [end_of(marks, TOPIC, 0), end_of(marks, TOPIC, 1), end_of(marks, OTHER, 0), end_of(marks, OTHER, 1)]
    assert ends == [11, 20, 30, None]
    assert marks.damage == []


def test_a_log_keeps_its_slot(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    note(marks, TOPIC, 0, 10)
    note(marks, TOPIC, 1, 20)
    disk.kill()
    marks = opened(disk)
    note(marks, TOPIC, 1, 21)
    note(marks, TOPIC, 2, 30)
    assert end_of(opened(disk), TOPIC, 1) == 21
    assert len(disk.content("/marks")) == 3 * SLOT_BYTES


def test_the_slot_of_a_deleted_log_serves_another(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    note(marks, TOPIC, 0, 10)
    note(marks, TOPIC, 1, 20)
    marks.forget(TOPIC, 0)
    marks.forget(TOPIC, 7)
    note(marks, OTHER, 0, 30)
    disk.kill()
    marks = opened(disk)
    assert [end_of(marks, TOPIC, 0), end_of(marks, TOPIC, 1), end_of(marks, OTHER, 0)] == [None, 20, 30]
    assert len(disk.content("/marks")) == 2 * SLOT_BYTES


def test_every_flipped_bit_costs_one_mark_and_is_named(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    for partition in range(3):
        note(marks, TOPIC, partition, 1000 + partition)
    for position in range(SLOT_BYTES, 2 * SLOT_BYTES):
        for bit in range(8):
            disk.flip("/marks", position, bit)
            marks = opened(disk)
            assert [end_of(marks, TOPIC, partition) for partition in range(3)] == [1000, None, 1002]
            assert [damage.position for damage in marks.damage] == [SLOT_BYTES]
            disk.flip("/marks", position, bit)


def test_a_power_cut_sets_a_mark_back_but_never_forward(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    note(marks, TOPIC, 0, 10)
    marks.file.sync()
    disk.open_directory("/").sync()
    for end in range(11, 20):
        note(marks, TOPIC, 0, end)
    disk.power_cut()
    assert end_of(opened(disk), TOPIC, 0) in (10, 19)


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_never_costs_a_mark(seed: int) -> None:
    disk = SimulatedDisk(random.Random(seed))
    marks = opened(disk)
    for partition in range(100):
        note(marks, TOPIC, partition, 1000)
    marks.file.sync()
    disk.open_directory("/").sync()
    for partition in range(100):
        note(marks, TOPIC, partition, 2**34 - 1)
    disk.power_cut(keep=0.5)
    marks = opened(disk)
    assert {end_of(marks, TOPIC, partition) for partition in range(100)} <= {1000, 2**34 - 1}
    assert marks.damage == []


def test_a_mark_whose_writing_was_cut_short_is_damage_and_its_slot_is_used_again(disk: SimulatedDisk) -> None:
    note(opened(disk), TOPIC, 0, 10)
    disk.power_cut_keeping(SLOT_BYTES - 1)
    marks = opened(disk)
    assert end_of(marks, TOPIC, 0) is None
    note(marks, TOPIC, 0, 12)
    assert end_of(opened(disk), TOPIC, 0) == 12


def test_a_mark_that_rots_while_it_is_in_use_is_named_until_it_is_noted_again(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    for partition in range(3):
        note(marks, TOPIC, partition, 1000 + partition)
    marks.mark(OTHER, 0)
    assert damaged(marks) == {}
    disk.flip("/marks", SLOT_BYTES + 20, 4)
    assert damaged(marks) == {(TOPIC, 1): SLOT_BYTES}
    note(marks, TOPIC, 1, 1001)
    assert damaged(marks) == {}


def test_many_entries_are_verified_in_reads_of_a_few_while_entries_come_and_go(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    for partition in range(3 * ENTRIES_PER_READ):
        note(marks, TOPIC, partition, 7)
    for slot in (1, 2 * ENTRIES_PER_READ, 2 * ENTRIES_PER_READ + 1):
        disk.flip("/marks", slot * SLOT_BYTES + 20, 4)
    parts = marks.damaged_entries()
    assert list(next(parts)) == [(TOPIC, 1)]
    marks.forget(TOPIC, 2 * ENTRIES_PER_READ)
    assert [list(part) for part in parts] == [[], [(TOPIC, 2 * ENTRIES_PER_READ + 1)]]


def test_a_slot_that_rots_after_its_log_was_removed_is_no_damage_of_that_log(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    for partition in range(3):
        note(marks, TOPIC, partition, 7)
    marks.forget(TOPIC, 1)
    disk.flip("/marks", SLOT_BYTES + 20, 4)
    assert damaged(marks) == {}


class CountedId(UUID):
    """A topic id that counts how often an entry is compared with it."""

    compared = 0

    @property
    def bytes(self) -> bytes:
        CountedId.compared += 1
        return super().bytes


def test_entries_that_were_intact_are_decoded_again_only_after_a_change(disk: SimulatedDisk) -> None:
    marks, topic_id = opened(disk), CountedId(int=1)
    for partition in range(2 * ENTRIES_PER_READ):
        note(marks, topic_id, partition, 7)

    def compared() -> int:
        CountedId.compared = 0
        list(marks.damaged_entries())
        return CountedId.compared

    assert [compared(), compared()] == [2 * ENTRIES_PER_READ, 0]
    note(marks, topic_id, 3, 8)
    assert [compared(), compared()] == [ENTRIES_PER_READ, 0]
    marks.forget(topic_id, 4)
    assert [compared(), compared()] == [ENTRIES_PER_READ - 1, 0]
    disk.flip("/marks", 6 * SLOT_BYTES + 20, 4)
    assert [compared(), compared()] == [ENTRIES_PER_READ - 1] * 2, "as long as an entry is damaged"


def damaged(marks: FlushedOffsets) -> dict[tuple[UUID, int], int]:
    """Return the positions of the damaged entries, which are the same one by one."""
    places = [*((TOPIC, partition) for partition in range(3)), (OTHER, 0), (OTHER, 1)]
    found = {place: damage for part in marks.damaged_entries() for place, damage in part.items()}
    assert found.keys() == {place for place in places if marks.damage_of(*place) is not None}
    return {place: damage.position for place, damage in found.items()}


def test_a_log_that_comes_back_has_no_mark_of_its_former_time(disk: SimulatedDisk) -> None:
    marks = opened(disk)
    note(marks, TOPIC, 0, 10)
    note(marks, TOPIC, 1, 20)
    marks.forget(TOPIC, 0)
    disk.kill()
    marks = opened(disk)
    assert [end_of(marks, TOPIC, partition) for partition in (0, 1)] == [None, 20]
