"""Recovery of a log: a torn tail is cut, flushed records stay, and damage is never cut (disk rule 4)."""

import random
import struct

import pytest
from log_fixture import DIRECTORY, MARKS, LogFixture

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.storage.batch import HEADER_BYTES, check
from cordwood.storage.errors import DamagedLog, OutOfOrderSequence, StaleProducerEpoch
from cordwood.storage.scrub import verify, view_of

MANY = [f"value {number}" for number in range(100)]
LARGE = "x" * 2000


def test_a_torn_tail_is_cut(log: LogFixture) -> None:
    log.append("a", "b").flush()
    log.append("c")
    log.power_cut(keep_bytes_of_unsynced=7)
    log.reopen()
    assert log.values() == ["a", "b"]
    assert log.append("d").flush().reopen().values() == ["a", "b", "d"]
    assert log.damage == []


@pytest.mark.parametrize("kept", range(0, 2100, 100))
def test_a_large_batch_torn_anywhere_is_cut(log: LogFixture, kept: int) -> None:
    log.append("a").flush().append(LARGE).power_cut(keep_bytes_of_unsynced=kept)
    log.reopen()
    whole = HEADER_BYTES + len(LARGE)
    assert log.values() == (["a"] if kept < whole else ["a", LARGE])
    assert log.damage == []


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_power_cut_leaves_of_unflushed_batches_is_cut_to_whole_ones(seed: int) -> None:
    log = LogFixture(disk=SimulatedDisk(random.Random(seed)))
    log.append(*MANY[:20]).flush().append(*MANY[20:]).power_cut().reopen()
    assert 20 <= log.end <= 100
    assert log.values() == MANY[: log.end]
    assert [damaged for damaged in log.damage if damaged.path.endswith(".log")] == []
    assert log.append("new").flush().power_cut(keep=0).reopen().values() == [*MANY[: log.end - 1], "new"]


def test_what_was_written_before_a_kill_is_all_there(log: LogFixture) -> None:
    log.append(*MANY[:50]).flush().append(*MANY[50:]).kill().reopen()
    assert (log.values(), log.damage) == (MANY, [])


def test_what_opening_found_is_sure(log: LogFixture) -> None:
    log.append(*MANY).kill().reopen()
    assert log.power_cut(keep=0).reopen().values() == MANY


@pytest.mark.parametrize("changes", range(8))
def test_a_process_that_died_making_the_log_leaves_nothing_in_the_way(log: LogFixture, changes: int) -> None:
    log.disk.faults.die_after(changes)
    try:
        log.append("lost").flush()
    except Died:
        log.reopen()
    log.disk.faults.die_after(None)
    kept = log.values()
    assert kept in ([], ["lost"])
    log.append("a").flush().power_cut(keep=0).reopen()
    assert log.values() == [*kept, "a"]
    assert log.damage == []


@pytest.mark.parametrize("what", ["roll", "checkpoint", "close", "reopen", "retain"])
@pytest.mark.parametrize("power", ["stays", "is cut"])
def test_dying_at_any_step_of_anything_loses_nothing_that_was_flushed(what: str, power: str) -> None:
    for changes in range(40):
        log = LogFixture(disk=SimulatedDisk(random.Random(changes)))
        log.append(*MANY[:30]).flush().configure(retention_bytes=1000)
        log.disk.faults.die_after(changes)
        try:
            match what:
                case "roll":
                    log.append(*MANY[30:50])
                case "retain":
                    log.retain()
                case "checkpoint" | "close" | "reopen":
                    getattr(log.append("value 30"), what)()
        except Died:
            pass
        else:
            return
        if power == "is cut":
            log.power_cut()
        log.reopen()
        assert log.end >= 30
        assert log.values() == MANY[log.start : log.end]
        assert [damaged for damaged in log.damage if damaged.path.endswith(".log")] == []
    raise AssertionError("it never came to an end")


def test_flushed_bytes_that_rotted_are_refused_and_never_cut(log: LogFixture) -> None:
    log.append("a", "b", "c").flush()
    log.disk.flip(log.path(0), 69 + HEADER_BYTES + 5, 0)
    log.kill().reopen()
    assert log.end == 3
    assert [damaged.path for damaged in log.damage] == [log.path(0)]
    assert log.values(2) == ["c"]
    with pytest.raises(DamagedLog):
        log.read(1)
    assert log.append("d").flush().reopen().values(2) == ["c", "d"]


def test_damage_at_the_very_end_is_not_taken_for_a_torn_tail(log: LogFixture) -> None:
    log.append("a", "b").flush()
    log.disk.flip(log.path(0), 69 + HEADER_BYTES + 5, 0)
    log.kill().reopen()
    assert log.end == 2
    with pytest.raises(DamagedLog):
        log.read(1)
    assert log.append("c").flush().reopen().values(2) == ["c"]
    with pytest.raises(DamagedLog):
        log.read(1)


def test_flushed_records_that_are_gone_are_named_and_their_offsets_never_given_away(log: LogFixture) -> None:
    log.append("a", "b", "c").flush()
    log.disk.open(log.path(0)).truncate(69)
    log.kill().reopen()
    assert [damaged.position for damaged in log.damage] == [69]
    assert log.append("d").end == 4
    assert log.values(3) == ["d"]
    with pytest.raises(DamagedLog):
        log.read(1)


def test_flushed_records_that_rotted_up_to_the_end_are_named_once_and_keep_their_offsets(log: LogFixture) -> None:
    log.append("a", "b", "c", "d").flush()
    for number in range(1, 4):
        log.disk.flip(log.path(0), number * 69 + HEADER_BYTES + 5, 0)
    log.kill().reopen()
    assert [damaged.position for damaged in log.damage] == [69]
    assert log.append("e").end == 5
    assert [(segment.base_offset, segment.end_offset) for segment in log.log.segments] == [(0, 4), (4, 5)]


def test_a_batch_at_the_recovery_point_counts_once_though_the_index_is_lost(log: LogFixture) -> None:
    log.send(0, "a", transactional=True)
    log.send(1, "b", transactional=True)
    log.abort()
    for sequence in (2, 3):
        log.send(sequence, "c")
    log.flush().checkpoint()
    producers, aborted = dict(log.log.producers), log.aborted()
    log.disk.remove(log.path(0, "index"))
    log.kill().reopen()
    assert (dict(log.log.producers), log.aborted()) == (producers, aborted)


def test_no_append_goes_to_a_last_segment_that_the_manifest_lists(log: LogFixture) -> None:
    log.append("a").flush().append(LARGE).checkpoint().truncate(1).reopen()
    assert (log.bases, log.end) == ([0], 1)
    # The time by which a segment is full does not help: this record has none.
    log.append("b", timestamp=-1).flush().power_cut(keep=0).reopen()
    assert (log.bases, log.values(), log.damage) == ([0, 1], ["a", "b"], [])


def test_a_whole_segment_that_is_gone_is_named(log: LogFixture) -> None:
    log.append(*MANY).flush()
    first, second, third = log.bases[:3]
    log.disk.remove(log.path(second))
    log.kill().reopen()
    assert log.damage != []
    assert log.values(third) == MANY[third:]
    with pytest.raises(DamagedLog):
        log.read(second)
    assert log.read(first, end=second) != b""


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_every_index_can_be_lost(log: LogFixture, stop: str) -> None:
    log.append(*MANY).flush().checkpoint()
    if stop == "close":
        log.close()
    for path in log.disk.files():
        if path.endswith(".index"):
            log.disk.remove(path)
    log.kill().reopen()
    assert [log.values(start) for start in (0, 33, 99)] == [MANY, MANY[33:], MANY[99:]]


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_an_index_of_zeros_or_of_another_segment_is_made_anew(log: LogFixture, stop: str) -> None:
    log.append(*MANY).flush().checkpoint()
    if stop == "close":
        log.close()
    other = log.disk.content(log.path(log.bases[1], "index"))
    for base in log.bases:
        path = log.path(base, "index")
        if log.disk.exists(path):
            file = log.disk.open(path)
            size = file.size()
            file.truncate(0)
            file.pwrite([other if base % 2 else bytes(size)], 0)
    log.kill().reopen()
    assert log.values() == MANY


@pytest.mark.parametrize("length", range(0, 200, 7))
def test_an_index_cut_short_is_made_anew(log: LogFixture, length: int) -> None:
    log.append(*MANY).flush().checkpoint().close()
    for base in log.bases[:-1]:
        log.disk.open(log.path(base, "index")).truncate(length)
    log.kill().reopen()
    assert log.values() == MANY
    assert log.append("new").close().reopen().values() == [*MANY, "new"]


def test_an_index_that_reaches_past_its_segment_is_rebuilt() -> None:
    for seed in range(20):
        log = LogFixture(disk=SimulatedDisk(random.Random(seed)))
        log.append(*MANY[:5]).flush().append(*MANY[5:11]).checkpoint()
        log.power_cut(keep=0.5).reopen()
        assert log.values() == MANY[: log.end]
        assert log.append(*MANY[log.end :]).close().reopen().values() == MANY


def seal_with_others_in_their_place(log: LogFixture) -> LogFixture:
    """Seal the first segment with fewer bytes than before. A power cut then brings its previous index back."""
    log.append("another", "yet another", LARGE).flush().checkpoint()
    assert len(log.bases) == 2, "the first segment is sealed"
    return log.power_cut(keep=0).reopen()


def accused(log: LogFixture) -> list[str]:
    """Return the paths of the files that the scrubber reports as damaged."""
    return [proof.path for proof in verify(view_of(log.log)) if type(proof) is DamagedLog]


def test_an_index_does_not_vouch_for_what_a_truncation_took(log: LogFixture) -> None:
    log.append(*MANY[:10]).close().reopen().truncate(3)
    seal_with_others_in_their_place(log)
    assert log.values() == [*MANY[:3], "another", "yet another", LARGE]
    assert accused(log) == []


def test_an_index_does_not_vouch_for_what_a_power_cut_took(log: LogFixture) -> None:
    log.append(*MANY[:3]).flush().append(*MANY[3:10]).checkpoint()
    log.disk.open(log.path(0, "index")).sync()
    log.power_cut(keep=0).reopen()
    assert log.values() == MANY[:3]
    seal_with_others_in_their_place(log)
    assert log.values() == [*MANY[:3], "another", "yet another", LARGE]
    assert accused(log) == []


@pytest.mark.parametrize("lost", ["index", "recovery", "leader-epochs", "marks"])
def test_batches_of_several_leaders_need_none_of_the_small_files(log: LogFixture, lost: str) -> None:
    for epoch in range(4):
        log.leader_epoch = epoch
        log.append(*MANY[epoch * 25 : epoch * 25 + 25]).flush().checkpoint()
    for path in log.disk.files():
        if path.endswith(lost):
            log.disk.remove(path)
    log.kill().reopen()
    assert (log.values(), log.damage) == (MANY, [])
    assert list(log.log.epochs) == [(epoch, epoch * 25) for epoch in range(4)]


@pytest.mark.parametrize("before", [50, 100])
@pytest.mark.parametrize("stop", ["close", "kill"])
@pytest.mark.parametrize("loss", ["gone", "damaged"])
def test_deleted_records_neither_come_back_nor_count_as_lost_without_the_checkpoint(
    log: LogFixture, loss: str, stop: str, before: int
) -> None:
    path = f"{DIRECTORY}/recovery"
    log.append(*MANY).flush().delete_records(before).retain()
    log.checkpoint()
    getattr(log, stop)()
    if loss == "gone":
        log.disk.remove(path)
    else:
        log.disk.flip(path, 20, 1)
    log.reopen()
    assert (log.start, log.end, log.values()) == (before, 100, MANY[before:])
    assert [damaged.path for damaged in log.damage] == ([] if loss == "gone" else [path])


def test_a_first_segment_that_is_gone_with_the_checkpoint_is_named(log: LogFixture) -> None:
    log.append(*MANY).flush().delete_records(50).retain()
    first, second = log.checkpoint().close().bases[:2]
    for path in (f"{DIRECTORY}/recovery", log.path(first)):
        log.disk.remove(path)
    log.reopen()
    assert (log.start, log.values(second)) == (50, MANY[second:])
    assert [damaged.what for damaged in log.damage] == [f"the records from offset 50 to {second} are missing"]


def test_a_flush_mark_over_deleted_records_is_no_damage(log: LogFixture) -> None:
    log.append("a", "b").flush().delete_records(2).flush().close()
    log.disk.remove(f"{DIRECTORY}/recovery")
    log.kill().reopen()
    assert (log.end, log.damage) == (2, [])


def test_without_its_mark_a_log_is_opened_all_the_same(log: LogFixture) -> None:
    log.append(*MANY).flush()
    log.disk.remove(MARKS)
    assert log.kill().reopen().values() == MANY


@pytest.mark.parametrize("segment", [0, -1])
def test_without_mark_and_epochs_the_checkpoint_tells_what_was_flushed(log: LogFixture, segment: int) -> None:
    log.append(*MANY).flush().checkpoint()
    base = log.bases[segment]
    for path in (MARKS, f"{DIRECTORY}/leader-epochs", log.path(base, "index")):
        if log.disk.exists(path):
            log.disk.remove(path)
    log.kill()
    log.disk.zero(log.path(base), 0, 600)
    log.reopen()
    assert log.end == 100
    assert [damaged.path for damaged in log.damage if damaged.path.endswith(".log")] == [log.path(base)]


def test_a_batch_that_a_power_cut_took_may_be_sent_again(log: LogFixture) -> None:
    log.send(0, "a")
    log.flush().send(1, "b")
    log.checkpoint().power_cut(keep=0).reopen()
    assert log.values() == ["a"]
    with pytest.raises(OutOfOrderSequence):
        log.send(2, "c")
    assert log.send(0, "a").is_duplicate
    assert not log.send(1, "b").is_duplicate
    assert log.values() == ["a", "b"]


@pytest.mark.parametrize("unflushed", range(8))
def test_a_checkpoint_ahead_of_the_flush_neither_forgets_a_batch_nor_knows_one_twice(
    log: LogFixture, unflushed: int
) -> None:
    for sequence in range(10):
        if sequence == 10 - unflushed:
            log.flush()
        log.send(sequence, f"value {sequence}")
    log.checkpoint().kill().reopen()
    assert [log.send(sequence, "again").is_duplicate for sequence in range(5, 10)] == [True] * 5
    with pytest.raises(OutOfOrderSequence):
        log.send(11, "gap")
    assert not log.send(10, "next").is_duplicate


@pytest.mark.parametrize("stop", ["close", "kill", "power cut"])
def test_producers_are_known_after_every_kind_of_stop(log: LogFixture, stop: str) -> None:
    for sequence in range(30):
        for producer in (1, 2):
            log.send(sequence, f"value {sequence}", producer=producer, epoch=3)
        if sequence == 20:
            log.flush().checkpoint()
    log.flush()
    match stop:
        case "close":
            log.close()
        case "power cut":
            log.power_cut(keep=0)
    log.reopen()
    for producer in (1, 2):
        for sequence in range(25, 30):
            assert log.send(sequence, f"value {sequence}", producer=producer, epoch=3).is_duplicate
        with pytest.raises(OutOfOrderSequence):
            log.send(31, "gap", producer=producer, epoch=3)
        with pytest.raises(StaleProducerEpoch):
            log.send(30, "stale", producer=producer, epoch=2)
        assert not log.send(30, "next", producer=producer, epoch=3).is_duplicate


def test_a_failed_sync_says_so_and_what_it_covered_may_be_lost(log: LogFixture) -> None:
    log.append("a").flush().append("b")
    log.disk.faults.fail_next_sync(log.path(0))
    with pytest.raises(OSError, match="Input/output"):
        log.flush()
    assert log.log.flushed_end == 1
    log.power_cut(keep=1).reopen()
    assert log.values() == ["a"]


def test_a_full_disk_refuses_and_the_log_is_as_it_was(log: LogFixture) -> None:
    log.append(*MANY[:5]).flush()
    log.disk.leave_free(0)
    with pytest.raises(OSError, match="No space"):
        log.append(*[LARGE] * 100_000)
    kept = log.values()
    assert kept[:5] == MANY[:5]
    log.disk.leave_free(1 << 24)
    log.append("after").flush()
    assert log.power_cut(keep=0).reopen().values() == [*kept, "after"]
    assert log.damage == []


@pytest.mark.parametrize("stop", ["kill", "power cut"])
def test_a_log_that_was_full_opens_on_a_full_disk(log: LogFixture, stop: str) -> None:
    log.append(*MANY[:20]).flush().append("unflushed")
    log.disk.leave_free(0)
    if stop == "power cut":
        log.power_cut(keep=0)
        log.disk.leave_free(0)
    assert log.reopen().values()[:20] == MANY[:20]


def test_a_wrong_length_misleads_no_reader(log: LogFixture) -> None:
    log.append(*MANY[:9]).flush()
    offset_3 = len(log.read(0, end=3))
    file = log.disk.open(log.path(0))
    file.pwrite([struct.pack(">i", check(log.read(3)).length + 40)], offset_3 + 8)
    log.kill().reopen()
    assert log.end == 9
    assert log.values(4) == MANY[4:9]
    with pytest.raises(DamagedLog):
        log.read(3)


def test_a_segment_that_ends_at_the_recovery_point_is_not_read(log: LogFixture) -> None:
    while len(log.bases) < 2:
        log.flush().checkpoint().append("x" * 100)
    before = log.log.segments[0]
    assert log.log.recovery_point == before.end_offset
    log.flush().kill()
    for path in before.paths():
        log.disk.faults.fail_reads(path)
    log.reopen()
    assert (log.damage, log.end) == ([], before.end_offset + 1)
