"""Appends, reads, segment rolls, truncation, log start and retention of a log."""

import contextlib
import struct

import pytest
from crc32c import crc32c
from log_fixture import START_MS, LogFixture

from cordwood.chaos.sim.faults import Died
from cordwood.storage.batch import check, split
from cordwood.storage.config import LogConfig
from cordwood.storage.errors import (
    CorruptBatch,
    DamagedLog,
    NotInMemory,
    OffsetOutOfRange,
    Truncated,
    TruncationUnsynced,
)
from cordwood.storage.pins import NOT_PINNED, Pin
from cordwood.storage.records import Record, decode, encode

DAY_MS = 24 * 3600 * 1000
MANY = [f"value {number}" for number in range(100)]


def test_an_empty_log_has_nothing_and_puts_nothing_on_disk(log: LogFixture) -> None:
    assert (log.start, log.end, log.values()) == (0, 0, [])
    assert log.disk.files() == ["/data/marks"]
    assert log.reopen().values() == []


def test_what_is_appended_is_read(log: LogFixture) -> None:
    log.append("a", "b")
    assert log.append_batch("c", "d")[:2] == (2, 4)
    assert log.values() == ["a", "b", "c", "d"]
    assert (log.start, log.end) == (0, 4)


def test_records_that_no_segment_has_are_no_empty_answer(log: LogFixture) -> None:
    log.append("a", "b")
    log.log.log_end = 5
    with pytest.raises(DamagedLog):
        log.log.slice(3, 1000, 5)


def test_batches_are_kept_as_they_came_but_for_offset_and_epoch(log: LogFixture) -> None:
    log.append("a").leader_epoch = 9
    batch = encode([Record(0, 5, b"k", b"v", (("h", None),))], producer_id=3, producer_epoch=1, base_sequence=4)
    log.log.append(batch, check(batch), 9, log.now)
    kept = log.read(1)
    assert kept[16:] == batch[16:]
    assert (check(kept).base_offset, check(kept).leader_epoch) == (1, 9)


def test_a_log_spans_segments_without_a_seam(log: LogFixture) -> None:
    log.append(*MANY)
    assert len(log.bases) > 5
    assert log.values() == MANY
    for start in range(101):
        assert log.values(start) == MANY[start:]


def test_a_read_in_the_middle_of_a_batch_gets_the_whole_batch(log: LogFixture) -> None:
    log.append("a")
    log.append_batch("b", "c", "d")
    assert [record.value for record in decode(log.read(3))] == [b"b", b"c", b"d"]
    assert log.values(3) == ["d"]


def test_a_read_ends_at_its_upper_bound(log: LogFixture) -> None:
    log.append("a", "b", "c")
    assert [check(batch).base_offset for batch in split(log.read(0, end=2))] == [0, 1]
    assert log.read(2, end=2) == b""
    assert log.read(3) == b""


@pytest.mark.parametrize("max_bytes", [0, 1, 69, 70, 71, 140, 500, 1 << 20])
def test_a_read_is_as_long_as_asked_for_but_at_least_a_batch(log: LogFixture, max_bytes: int) -> None:
    log.append(*MANY)
    offset = 0
    while data := log.read(offset, max_bytes):
        batches = list(split(data))
        assert len(data) <= max_bytes or len(batches) == 1
        assert check(batches[0]).base_offset == offset
        offset = check(batches[-1]).end
    assert offset == 100


def test_reads_outside_the_log_are_refused(log: LogFixture) -> None:
    log.append("a", "b").flush().delete_records(1)
    for offset in (-1, 0, 3):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset)


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(log: LogFixture) -> None:
    log.append("a", "x" * 5000, "b", "c")
    assert log.bases == [0, 1, 2]
    assert [len(value) for value in log.values()] == [1, 5000, 1, 1]


def test_time_rolls_a_segment() -> None:
    log = LogFixture(LogConfig(segment_ms=DAY_MS))
    log.append("a", timestamp=START_MS).append("b", timestamp=START_MS + DAY_MS)
    assert log.bases == [0]
    log.append("c", timestamp=START_MS + DAY_MS + 1)
    assert log.bases == [0, 2]
    assert log.values() == ["a", "b", "c"]


def test_a_full_index_rolls_a_segment() -> None:
    log = LogFixture(LogConfig(index_interval_bytes=0, index_bytes_max=100))
    log.append(*MANY)
    assert len(log.bases) > 10
    assert log.values() == MANY


def test_too_many_offsets_roll_a_segment(log: LogFixture) -> None:
    log.configure(segment_bytes=1 << 30)
    for _ in range(3):
        log.take_stamped(spread(encode([Record(0, 0, None, b"x")], base_offset=log.end), 1 << 31))
    assert log.bases == [0, 1 << 31, 1 << 32]
    assert [record.offset for record in log.records()] == [0, 1 << 31, 1 << 32]


def test_a_clean_close_leaves_no_reserved_space_and_nothing_to_recover(log: LogFixture) -> None:
    log.append(*MANY).close()
    sizes = [len(log.disk.content(log.path(base))) for base in log.bases]
    assert sum(sizes) == log.log.size
    log.power_cut(keep=0).reopen()
    assert (log.values(), log.damage, log.end) == (MANY, [], 100)


def test_appending_goes_on_after_a_restart(log: LogFixture) -> None:
    for round_number in range(10):
        log.append(*MANY[round_number * 10 : round_number * 10 + 10])
        log = log.close().reopen() if round_number % 2 else log.flush().kill().reopen()
    assert log.values() == MANY
    assert log.damage == []


def test_many_segments_between_two_flushes_are_all_synced(log: LogFixture) -> None:
    log.append(*MANY * 5)
    assert len(log.bases) > 20
    log.values()
    log.append("last").flush()
    assert log.power_cut(keep=0).reopen().values() == [*MANY * 5, "last"]


def test_append_time_is_the_brokers() -> None:
    log = LogFixture(LogConfig(log_append_time=True))
    appended = log.append_batch("a", timestamp=5)
    assert appended.append_time == log.now
    assert [record.timestamp for record in log.records()] == [log.now]


def test_a_follower_appends_what_its_leader_stamped(log: LogFixture) -> None:
    leader = LogFixture()
    leader.append("a", "b").leader_epoch = 4
    leader.append("c", *MANY)
    while log.end < leader.end:
        log.take_stamped(leader.read(log.end, end=min(log.end + 10, leader.end)))
    assert log.records() == leader.records()
    assert list(log.log.epochs) == list(leader.log.epochs) == [(0, 0), (4, 2)]


def test_a_follower_refuses_what_does_not_follow_on(log: LogFixture) -> None:
    log.append("a", "b")
    one = encode([Record(0, 0, None, b"x")], base_offset=2)
    gap = encode([Record(0, 0, None, b"x")], base_offset=1)
    for data in (gap, one[:-1], one + gap, one + one, one[:30] + b"\xff" + one[31:]):
        with pytest.raises(CorruptBatch):
            log.take_stamped(data)
    assert log.values() == ["a", "b"]


def test_a_truncated_log_goes_on_from_there(log: LogFixture) -> None:
    log.append(*MANY).flush().truncate(37)
    assert log.values() == MANY[:37]
    log.append("new").flush()
    assert log.power_cut(keep=0).reopen().values() == [*MANY[:37], "new"]


@pytest.mark.parametrize("end", [0, 1, 14, 50, 99, 100])
def test_a_log_can_be_cut_anywhere(log: LogFixture, end: int) -> None:
    log.append(*MANY).flush().checkpoint().truncate(end)
    assert (log.end, log.values()) == (end, MANY[:end])
    log.append("new", "newer").checkpoint().flush()
    assert log.reopen().values() == [*MANY[:end], "new", "newer"]
    assert log.damage == []
    assert log.close().reopen().values() == [*MANY[:end], "new", "newer"]
    assert log.damage == []


def test_a_cut_takes_whole_batches(log: LogFixture) -> None:
    log.append("a")
    log.append_batch("b", "c", "d")
    log.truncate(2)
    assert (log.end, log.values()) == (1, ["a"])


@pytest.mark.parametrize("end", [0, 3, 50, 95])
@pytest.mark.parametrize("later", [0, 100])
def test_what_a_reader_was_promised_is_gone_when_the_log_is_cut(log: LogFixture, end: int, later: int) -> None:
    """Later appends may reuse the truncated offsets: one slice never mixes two versions of the log."""
    log.append(*MANY).flush()
    promised = [log.log.slice(offset, 1 << 20, log.end) for offset in (95, 99)]
    log.truncate(end).append(*MANY[:later])
    for found in promised:
        assert found is not None
        with pytest.raises(Truncated):
            found.next_piece()


def test_a_segment_that_a_cut_removed_needs_no_sync_any_more(log: LogFixture) -> None:
    log.append(*MANY).truncate(5).append("new").flush()
    assert log.power_cut(keep=0).reopen().values() == [*MANY[:5], "new"]


@pytest.mark.parametrize("changes", range(30))
def test_a_process_that_died_cutting_its_log_lost_nothing_else(log: LogFixture, changes: int) -> None:
    log.append(*MANY).flush().close().reopen()
    log.disk.faults.die_after(changes)
    with contextlib.suppress(Died):
        log.truncate(30)
    log.reopen()
    assert 30 <= log.end <= 100
    assert log.values() == MANY[: log.end]
    assert log.damage == []


def test_producers_are_known_after_a_cut_and_a_restart(log: LogFixture) -> None:
    log.send(0, "a", "b")
    log.append("c").flush().delete_records(1).checkpoint().truncate(2).kill().reopen()
    assert log.send(0, "a", "b").is_duplicate


@pytest.mark.parametrize("end", [0, 1, 37, 95])
def test_a_truncation_survives_a_power_cut(log: LogFixture, end: int) -> None:
    log.append(*MANY).flush().checkpoint().truncate(end)
    bases = log.bases
    log.power_cut(keep=0).reopen()
    assert (log.values(), log.damage) == (MANY[:end], [])
    assert log.bases[: len(bases)] == bases
    log.append("new").flush().power_cut(keep=0).reopen()
    assert (log.values(), log.damage) == ([*MANY[:end], "new"], [])


def test_a_new_log_start_survives_a_power_cut(log: LogFixture) -> None:
    log.append(*MANY).flush().checkpoint().truncate_fully(200)
    assert [name for name in log.disk.files() if name.endswith(".log")] == []
    log.power_cut(keep=0).reopen()
    assert (log.start, log.end, log.values(), log.damage) == (200, 200, [], [])
    assert [name for name in log.disk.files() if name.endswith(".log")] == []


def test_a_cut_within_the_batch_that_the_log_begins_in_takes_all_of_it(log: LogFixture) -> None:
    log.append("a")
    log.append_batch("b", "c", "d")
    log.flush().delete_records(2).checkpoint().truncate(3)
    assert (log.start, log.end, log.log.flushed_start) == (1, 1, 1)
    assert log.append("e").flush().power_cut(keep=0).reopen().values() == ["e"]


def test_where_the_log_begins_within_a_batch_is_looked_up_again_after_a_cut(log: LogFixture) -> None:
    log.append("a")
    log.append_batch("b", "c", "d")
    log.delete_records(2)
    assert log.log.start_boundary() == 1
    log.truncate(3).append("e", "f")
    assert log.start == 1
    log.delete_records(2)
    assert log.log.start_boundary() == 2
    assert log.values() == ["f"]


def test_a_checkpoint_says_nothing_of_what_is_not_flushed(log: LogFixture) -> None:
    log.send(0, "a")
    log.flush().send(1, "b")
    log.checkpoint().power_cut(keep=0).reopen()
    assert (log.values(), log.end, log.damage) == (["a"], 1, [])
    assert log.send(0, "a").is_duplicate
    assert log.send(1, "b")[:2] == (1, 2)
    assert log.flush().power_cut(keep=0).reopen().values() == ["a", "b"]


def test_producers_of_what_is_cut_may_send_it_again(log: LogFixture) -> None:
    log.send(0, "a", "b")
    log.send(2, "c")
    log.append("d").truncate(2)
    assert log.send(0, "a", "b").is_duplicate
    assert log.send(2, "c")[:2] == (2, 3)
    log.truncate(0)
    assert log.send(9, "anything").base_offset == 0


def test_a_repeated_batch_gets_the_offset_of_the_first(log: LogFixture) -> None:
    log.send(0, "a", "b")
    log.send(2, "c")
    assert log.send(0, "a", "b")[:2] == (0, 2)


def test_a_sync_that_failed_covers_nothing(log: LogFixture) -> None:
    pending = log.append("a").log.begin_flush()
    log.log.flush_failed(pending)
    assert log.log.flushed_end == 0


def test_a_cut_before_the_start_takes_the_start_along(log: LogFixture) -> None:
    log.append_batch("a", "b", "c")
    log.log.raise_log_start(2)
    log.truncate(2)
    assert (log.start, log.end, log.log.flushed_start) == (0, 0, 0)


def test_what_was_remembered_of_places_is_forgotten_with_a_cut(log: LogFixture) -> None:
    log.append("a", "b").flush().truncate(1).append("longer than what stood here", "c").flush()
    assert log.values(2) == ["c"]


def test_a_log_that_starts_over_knows_nothing_of_before(log: LogFixture) -> None:
    log.leader_epoch = 4
    log.send(0, "a", "b")
    log.log.clean_end = 2
    log.flush().checkpoint().truncate_fully(50)
    assert log.log.clean_end == 0, "a later round would pass over as many new records"
    assert (log.start, log.end, log.log.flushed_end, list(log.log.epochs)) == (50, 50, 50, [])
    assert log.send(7, "c")[:2] == (50, 51)
    assert list(log.log.epochs) == [(4, 50)]
    assert log.flush().power_cut(keep=0).reopen().values() == ["c"]
    assert (log.start, list(log.log.epochs)) == (50, [(4, 50)])


def test_a_flush_that_was_under_way_during_a_cut_says_nothing_of_what_came_after(log: LogFixture) -> None:
    log.append(*MANY[:10])
    pending = log.log.begin_flush()
    log.truncate(5)
    for file in pending.files:
        file.sync()
    log.log.flushed(pending)
    with pytest.raises(TruncationUnsynced):
        log.append(*MANY[50:60])
    log.flush().append(*MANY[50:60])
    assert log.log.flushed_end == 5


def test_deleted_records_stay_deleted(log: LogFixture) -> None:
    log.append(*MANY).flush().delete_records(42).checkpoint()
    assert (log.start, log.values()) == (42, MANY[42:])
    assert log.power_cut(keep=0).reopen().values() == MANY[42:]
    assert log.close().reopen().values() == MANY[42:]


def test_only_what_is_there_can_be_deleted(log: LogFixture) -> None:
    log.append("a", "b").flush().delete_records(1)
    for offset in (0, 3):
        with pytest.raises(OffsetOutOfRange):
            log.delete_records(offset)
    assert log.delete_records(2).values() == []


def test_segments_below_the_start_go(log: LogFixture) -> None:
    log.append(*MANY).flush().delete_records(log.bases[2] + 1)
    assert log.retain() == 2
    assert log.values() == MANY[log.start :]
    assert log.reopen().values() == MANY[log.start :]
    assert log.bases[0] <= log.start < log.bases[1]


def test_a_log_that_has_aged_away_goes_on_from_its_end(log: LogFixture) -> None:
    log.append(*MANY).flush().configure(retention_ms=1000)
    assert log.retain(after_ms=1000) == 0
    assert log.retain(after_ms=1) > 5
    assert (log.start, log.end, log.values()) == (100, 100, [])
    assert log.append("new").flush().power_cut(keep=0).reopen().values() == ["new"]
    assert (log.start, log.end) == (100, 101)


def test_retention_stops_at_a_pin(log: LogFixture) -> None:
    log.append(*MANY).flush().configure(retention_bytes=0)
    second, last = log.bases[2], log.bases[-1]
    log.log.pinned = Pin(second, second + 1)
    log.retain()
    assert log.start == second
    log.log.pinned = NOT_PINNED
    log.retain()
    assert log.start == last


def test_a_log_keeps_no_more_than_its_bytes(log: LogFixture) -> None:
    log.append(*MANY).flush().configure(retention_bytes=3000)
    log.retain()
    assert 3000 <= log.log.size < 4000
    assert log.values() == MANY[log.start :]


def test_a_reader_that_may_not_wait_gets_an_error(log: LogFixture) -> None:
    log.append(*MANY).flush()
    log.disk.cool()
    with pytest.raises(NotInMemory):
        log.log.slice(50, 1 << 20, 100, wait=False)
    assert log.values() == MANY
    assert log.log.slice(50, 1 << 20, 100, wait=False) is not None


def test_epochs_follow_the_batches_over_a_restart(log: LogFixture) -> None:
    log.append("a", "b").leader_epoch = 3
    log.append("c").flush().checkpoint().leader_epoch = 5
    log.append("d").flush()
    for _ in range(2):
        assert list(log.log.epochs) == [(0, 0), (3, 2), (5, 3)]
        log.kill().reopen()
    log.truncate(2)
    assert list(log.reopen().log.epochs) == [(0, 0)]


def spread(batch: bytes, offsets: int) -> bytes:
    """Return the batch as compaction leaves it: fewer records than offsets."""
    changed = bytearray(batch)
    struct.pack_into(">i", changed, 23, offsets - 1)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def test_threads_remember_no_places() -> None:
    """Only the event loop writes the cached positions: a thread could add one that a truncation has just removed."""
    log = LogFixture().append(*MANY[:30]).flush()
    positions = log.log._positions
    before = len(positions)
    for offset in range(29):
        assert log.log.slice(offset, 1 << 20, offset + 1) is not None
        assert log.log.read_for_replication(offset, 10) is not None
    assert len(positions) == before
    assert log.log.slice(3, 1 << 20, 5, wait=False) is not None
    assert 5 in positions


@pytest.mark.parametrize("taken_alone", [0, 1, 5])
def test_batches_that_arrive_together_leave_the_same_files_as_one_after_the_other(taken_alone: int) -> None:
    leader = LogFixture()
    for number in range(40):
        leader.leader_epoch = number // 15
        leader.send(number // 4, f"value {number}" * (number % 7), producer=number % 4)
    for number in range(8):
        leader.send(number, "in a transaction", producer=20, transactional=True)
    leader.commit(producer=20)
    leader.append(*MANY)

    def files(batches_at_first: int) -> dict[str, bytes]:
        follower = LogFixture()
        for _ in range(batches_at_first):
            follower.take_stamped(leader.read(follower.end, 1))
        while follower.end < leader.end:
            follower.take_stamped(leader.read(follower.end))
        follower.flush().checkpoint().close()
        return {path: follower.disk.content(path) for path in follower.disk.files()}

    assert files(taken_alone) == files(leader.end)


def test_the_batch_at_the_start_of_a_log_that_begins_again_is_not_that_of_before(log: LogFixture) -> None:
    log.append_batch("a", "b", "c")
    log.append_batch("d", "e", "f")
    assert log.flush().delete_records(4).log.start_boundary() == 3
    log.truncate_fully(1).append_batch("g", "h", "i", "j", "k")
    assert log.flush().delete_records(4).log.start_boundary() == 1
