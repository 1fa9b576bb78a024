"""The aborted index of a segment on its disk: rows that a checkpoint saves, stale rows, damage, and the cache."""

import random

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.storage.aborted_index import (
    ROW_BYTES,
    ROWS_PER_BLOCK,
    AbortedIndex,
    AbortedRow,
    AbortedTransaction,
    aborted_between,
)
from cordwood.storage.errors import DamagedLog, NotInMemory
from cordwood.storage.open_segments import ABORTED_BYTES_MAX, OpenSegments

BASE = 100
PATH = f"/data/{BASE:020d}.log"


class IndexFixture:
    """An index with a transaction of one record, followed by its marker, at each even offset."""

    def __init__(self, rows: int = 0, disk: SimulatedDisk | None = None) -> None:
        self.disk, self.opened = disk or SimulatedDisk(random.Random(1)), OpenSegments()
        self.disk.make_directories("/data")
        self.index = AbortedIndex(self.disk, PATH, BASE, self.opened)
        self.append(rows)

    def append(self, rows: int) -> None:
        for at in range(self.index.count, self.index.count + rows):
            first = BASE + 2 * at
            self.index.append(AbortedRow(7, first, first + 1, first + 2))

    def save(self, end: int = 1 << 62, *, is_sealed: bool = False) -> None:
        unsaved = self.index.unsaved(end)
        assert unsaved is not None
        unsaved.write(self.disk)
        self.index.saved(unsaved.count, is_sealed=is_sealed)

    def reopened(self, count: int) -> "IndexFixture":
        """Return the index of the segment, sealed, after a restart with a checkpoint that lists so many rows."""
        again = IndexFixture(disk=self.disk)
        again.index.listed(BASE, count)
        return again

    @property
    def firsts(self) -> list[int]:
        return [row.first_offset for row in self.index.rows()]


def firsts(count: int) -> list[int]:
    return [BASE + 2 * at for at in range(count)]


def test_the_rows_below_the_recovery_point_are_saved() -> None:
    fixture = IndexFixture(3)
    fixture.save(BASE + 4)
    assert fixture.reopened(2).firsts == firsts(2)
    fixture.append(2)
    fixture.save()
    assert fixture.index.unsaved(1 << 62) is None
    assert fixture.reopened(5).firsts == firsts(5)
    assert fixture.reopened(3).firsts == firsts(3), "rows in excess are stale"


def test_rows_that_are_found_again_come_before_those_appended_meanwhile() -> None:
    fixture = IndexFixture(3)
    found = fixture.index.rows()
    fixture.append(1)
    fixture.index.replace_below(BASE + 6, found)
    assert fixture.firsts == firsts(4)
    fixture.save(is_sealed=True)
    fixture.index.replace_below(BASE + 8, [*found, *fixture.index.rows()[3:]])
    assert fixture.firsts == firsts(4)


def test_a_damaged_file_that_had_fewer_rows_than_the_batches_lacks_none() -> None:
    fixture = IndexFixture(2)
    fixture.save()
    fixture.disk.flip(fixture.index.path, 40, 3)
    again = IndexFixture(disk=fixture.disk)
    assert again.index.recovered(BASE, 2) is not None
    assert again.index.missing == 2
    again.index.restored(IndexFixture(3).index.rows(), is_all=False)
    assert (again.index.missing, again.firsts) == (0, firsts(3))


def test_an_index_without_rows_has_no_file() -> None:
    fixture = IndexFixture()
    assert fixture.index.unsaved(1 << 62) is None
    assert not fixture.disk.exists(fixture.index.path)
    assert (fixture.firsts, fixture.index.damage(), fixture.index.count_below(1 << 62)) == ([], None, 0)


def test_fewer_rows_than_the_checkpoint_lists_are_damage() -> None:
    fixture = IndexFixture(3)
    fixture.save()
    for count, is_damaged in ((3, False), (4, True)):
        again = fixture.reopened(count)
        damage = again.index.damage()
        assert (damage is not None) == is_damaged
    with pytest.raises(DamagedLog, match="3 of 4"):
        again.index.rows()


def test_a_torn_append_leaves_the_rows_before_it() -> None:
    fixture = IndexFixture(3)
    fixture.save()
    fixture.append(2)
    fixture.save()
    fixture.disk.shorten(fixture.index.path, len(fixture.disk.content(fixture.index.path)) - 1)
    assert fixture.reopened(3).firsts == firsts(3)
    assert fixture.reopened(5).index.damage() is not None


def test_after_a_failed_checkpoint_the_whole_file_is_written() -> None:
    fixture = IndexFixture(3)
    fixture.save()
    fixture.append(1)
    unsaved = fixture.index.unsaved(1 << 62)
    assert unsaved is not None
    assert (unsaved.is_whole, len(unsaved.rows)) == (False, ROW_BYTES)
    fixture.index.must_be_rewritten()
    unsaved = fixture.index.unsaved(1 << 62)
    assert unsaved is not None
    assert (unsaved.is_whole, len(unsaved.rows)) == (True, 4 * ROW_BYTES)


def test_the_stale_rows_of_a_segment_that_takes_appends_are_replaced() -> None:
    fixture = IndexFixture(5)
    fixture.save()
    again = IndexFixture(disk=fixture.disk)
    assert again.index.recovered(BASE, 2) is None
    again.append(1)
    again.save()
    assert again.reopened(3).firsts == firsts(3)
    assert again.reopened(4).index.damage() is not None


def test_a_truncation_removes_the_rows_of_its_markers() -> None:
    fixture = IndexFixture(5)
    fixture.save(is_sealed=True)
    fixture.index.truncate(BASE + 5)
    assert fixture.firsts == firsts(2)
    fixture.save()
    assert fixture.reopened(2).firsts == firsts(2)


def test_other_rows_after_a_truncation_are_saved_in_place_of_the_former_ones() -> None:
    fixture = IndexFixture(3)
    fixture.save()
    fixture.index.truncate(BASE + 2)
    others = [AbortedRow(9, BASE, BASE + 2, BASE), AbortedRow(9, BASE + 3, BASE + 4, BASE + 3)]
    for other in others:
        fixture.index.append(other)
    fixture.save()
    assert fixture.reopened(3).index.rows()[1:] == others


def test_the_rows_of_a_sealed_segment_are_read_when_they_are_needed() -> None:
    fixture = IndexFixture(3)
    fixture.save(is_sealed=True)
    again = fixture.reopened(3)
    with pytest.raises(NotInMemory):
        list(again.index.overlapping(BASE, BASE + 1, wait=False))
    assert len(list(again.index.overlapping(BASE, BASE + 1))) == 1
    assert len(list(again.index.overlapping(BASE, BASE + 1, wait=False))) == 1
    again.opened.forget_aborted(again.index)
    with pytest.raises(NotInMemory):
        list(again.index.overlapping(BASE, BASE + 1, wait=False))


def test_the_cache_keeps_the_rows_that_were_used_last() -> None:
    opened, rows = OpenSegments(), bytes(ABORTED_BYTES_MAX // 2)
    opened.hold_aborted("a", rows)
    opened.hold_aborted("b", rows)
    assert opened.aborted_of("a") is rows
    opened.hold_aborted("c", rows)
    assert [name for name in "abc" if opened.aborted_of(name) is not None] == ["a", "c"]


def test_a_read_ends_with_the_last_segment_that_may_end_its_transactions() -> None:
    disk, opened = SimulatedDisk(random.Random(1)), OpenSegments()
    indexes = [AbortedIndex(disk, f"/{base:020d}.log", base, opened) for base in (0, 10, 20, 30)]
    for index, undecided in zip(indexes, (0, 5, 5, 30), strict=True):
        index.undecided = undecided
    indexes[2].append(AbortedRow(7, 5, 25, 26))
    indexes[1].append(AbortedRow(8, 8, 12, 5))
    indexes[3].append(AbortedRow(9, 30, 31, 32))
    assert aborted_between(indexes, 0, 9) == [AbortedTransaction(7, 5), AbortedTransaction(8, 8)]
    assert aborted_between(indexes, 0, 8) == [AbortedTransaction(7, 5)]
    assert aborted_between(indexes, 0, 5) == []
    assert aborted_between(indexes[2:], 20, 31) == [AbortedTransaction(7, 5), AbortedTransaction(9, 30)]


def test_a_block_that_was_truncated_is_searched_for_what_came_later() -> None:
    fixture = IndexFixture()
    rows = [AbortedRow(7, BASE + 2 * at, BASE + 2 * at + 1, BASE) for at in range(2 * ROWS_PER_BLOCK)]
    for row in rows:
        fixture.index.append(row)
    assert list(fixture.index.overlapping(BASE, BASE + 2)) == rows[:1]
    fixture.index.truncate(rows[-1].marker_offset)
    from_before = AbortedRow(8, BASE, rows[-1].marker_offset, BASE)
    fixture.index.append(from_before)
    assert list(fixture.index.overlapping(BASE, BASE + 2)) == [rows[0], from_before]


def test_rows_that_do_not_overlap_are_passed_over_in_blocks_and_none_that_does() -> None:
    fixture, rng = IndexFixture(), random.Random(7)
    expected: list[AbortedRow] = []

    def found(start: int, end: int) -> list[AbortedRow]:
        return [row for row in expected if row.marker_offset >= start and row.first_offset < end]

    def append(count: int) -> None:
        for _ in range(count):
            marker = expected[-1].marker_offset + rng.randint(1, 3) if expected else BASE
            first = rng.choice([BASE, marker - 1, max(BASE, marker - rng.randint(1, 3000))])
            # A transaction from before is open all the time.
            expected.append(AbortedRow(7, first, marker, BASE))
            fixture.index.append(expected[-1])

    for count in (10, ROWS_PER_BLOCK, 5 * ROWS_PER_BLOCK):
        append(count)
        end = expected[-1].marker_offset + 1
        for start in rng.choices(range(BASE, end), k=30):
            for reach in (1, 50, 5000):
                assert list(fixture.index.overlapping(start, start + reach)) == found(start, start + reach)
        cut = rng.randrange(BASE, end)
        fixture.index.truncate(cut)
        expected = [row for row in expected if row.marker_offset < cut]
