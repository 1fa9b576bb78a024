"""The rebuild of a damaged segment from another replica: the new file replaces the old one only once it is verified."""

import pytest
from compacted_log import Keeps, compact, nothing, odd
from log_fixture import ROOT, LogFixture

from cordwood.chaos.sim.faults import Died
from cordwood.storage.batch import headers
from cordwood.storage.compaction.run_writer import closing_batch
from cordwood.storage.errors import CorruptBatch, DamagedLog
from cordwood.storage.pins import NOT_PINNED, Pin
from cordwood.storage.scrub import verify, view_of
from cordwood.storage.segment_rebuild import Missing, SegmentRebuild

MANY = [f"value-{number}" for number in range(60)]
STAGING = f"{ROOT}/repair"
STEPS_MAX = 60


def filled() -> LogFixture:
    log = LogFixture().append(*MANY).flush().checkpoint()
    log.disk.make_directories(STAGING)
    return log


def rebuild_of(log: LogFixture, at: int = 1) -> SegmentRebuild:
    return SegmentRebuild(log.log, log.log.segments[at], STAGING)


def run(rebuild: SegmentRebuild, good: LogFixture) -> list[Missing]:
    """Fill the missing ranges from another replica of the same log. Return those ranges."""
    missing = [step for step in walk(rebuild, good) if isinstance(step, Missing)]
    assert rebuild.replace_segment()
    return missing


def walk(rebuild: SegmentRebuild, good: LogFixture) -> list[Missing | int]:
    steps = []
    for step in rebuild.steps():
        steps.append(step)
        while isinstance(step, Missing) and rebuild.due < step.end:
            rebuild.fill(step, good.read(rebuild.due, 300))
    return steps


def found(log: LogFixture) -> list[DamagedLog]:
    return [proof for proof in verify(view_of(log.log)) if isinstance(proof, DamagedLog)]


def test_only_the_damaged_interval_is_asked_for_and_the_file_is_what_it_was() -> None:
    log, good = filled(), filled()
    base, end = log.bases[1:3]
    path = log.path(base)
    before = log.disk.content(path)
    log.disk.flip(path, len(before) // 2, 3)
    [missing] = run(rebuild_of(log), good)
    assert base < missing.start < missing.end < end
    assert log.disk.content(path) == before
    assert (found(log), log.values()) == ([], MANY)
    assert (log.power_cut(keep=1.0).reopen().damage, log.values()) == ([], MANY)


def test_a_missing_file_is_asked_for_as_a_whole() -> None:
    log, good = filled(), filled()
    base, end = log.bases[:2]
    before = log.disk.content(log.path(base))
    log.disk.lose(log.path(base))
    log.disk.lose(log.path(base, "index"))
    log.reopen()
    assert run(rebuild_of(log, 0), good) == [Missing(base, end)]
    assert log.disk.content(log.path(base)) == before
    assert (found(log), log.values()) == ([], MANY)


def test_records_below_the_log_start_are_left_out() -> None:
    log, good = filled(), filled()
    base, end = log.bases[:2]
    start = (base + end) // 2
    log.delete_records(start)
    log.disk.lose(log.path(base))
    good.delete_records(start)
    assert run(rebuild_of(log, 0), good) == [Missing(start, end)]
    assert (found(log), log.values()) == ([], MANY[start:])


@pytest.mark.parametrize("what", ["checksum", "offset", "epoch", "other range"])
def test_batches_that_cannot_be_the_lost_ones_are_refused(what: str) -> None:
    log, good = filled(), filled()
    log.disk.flip(log.path(log.bases[1]), 70, 3)
    rebuild = rebuild_of(log)
    missing = next(step for step in rebuild.steps() if isinstance(step, Missing))
    data = bytearray(good.read(missing.end if what == "other range" else missing.start, 300))
    assert headers(data)
    data[{"checksum": 70, "offset": 7, "epoch": 15, "other range": 0}[what]] ^= 0 if what == "other range" else 1
    with pytest.raises(CorruptBatch):
        rebuild.fill(missing, bytes(data))
    assert rebuild.due == missing.start


def test_a_log_that_was_cut_there_meanwhile_keeps_what_it_has() -> None:
    log, good = filled(), filled()
    base = log.bases[1]
    log.disk.flip(log.path(base), 70, 3)
    rebuild = rebuild_of(log)
    walk(rebuild, good)
    log.truncate(base)
    assert not rebuild.replace_segment()
    rebuild.abort()
    assert not [path for path in log.disk.files() if path.startswith(STAGING)]
    assert log.values() == MANY[:base]


def test_a_process_that_dies_in_a_repair_leaves_the_old_segment_or_the_new_one() -> None:
    for step in range(STEPS_MAX):
        log, good = filled(), filled()
        path = log.path(log.bases[1])
        before = log.disk.content(path)
        log.disk.flip(path, 70, 3)
        spoilt = log.disk.content(path)
        log.disk.faults.die_after(step)
        try:
            run(rebuild_of(log), good)
        except Died:
            log.power_cut().reopen()
            assert log.disk.content(path) in (before, spoilt), f"step {step}"
            assert (log.start, log.end) == (0, len(MANY))
        else:
            assert step
            return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("suffix", ["log", "index"])
def test_a_rebuilt_file_is_on_disk_before_it_has_the_name_of_the_old_one(suffix: str) -> None:
    log, good = filled(), filled()
    path = log.path(log.bases[1], suffix)
    before = log.disk.content(path)
    log.disk.flip(path.replace("index", "log"), 70, 3)
    run(rebuild_of(log), good)
    log.power_cut(keep_bytes_of_unsynced=0)
    assert log.disk.content(path) == before


@pytest.mark.parametrize("is_compacted_here", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("keeps", [odd, nothing])
def test_what_another_replica_has_compacted_fills_a_damaged_range(
    is_compacted_here: bool, at: int, keeps: Keeps
) -> None:
    log, good = filled().configure(compacted=True), filled().configure(compacted=True)
    if is_compacted_here:
        compact(log, at, 1)
    compact(good, 0, 4, keeps)
    path = log.log.segments[at].path
    log.disk.flip(path, len(log.disk.content(path)) // 2, 3)
    run(rebuild_of(log, at), good)
    assert found(log) == []
    there = {record.offset for record in log.records()}
    assert {record.offset for record in good.records()} <= there
    log.checkpoint().power_cut(keep=1.0).reopen()
    assert (log.damage, {record.offset for record in log.records()}) == ([], there)
    assert log.end == len(MANY)


def test_a_batch_that_stands_for_removed_ones_tells_no_leader_epoch_of_theirs() -> None:
    log = LogFixture(leader_epoch=4).configure(compacted=True).append(*MANY[:10])
    log.leader_epoch = 5
    log.append(*MANY[10:]).flush().checkpoint().disk.make_directories(STAGING)
    at = log.log.segments.index(log.log.segment_of(10))
    log.disk.lose(log.log.segments[at].path)
    rebuild = rebuild_of(log, at)
    for step in rebuild.steps():
        if isinstance(step, Missing):
            assert step.start < 10 < step.end
            rebuild.fill(step, closing_batch(step.start, step.end, 5))
    assert rebuild.replace_segment()
    assert [tuple(start) for start in log.log.epochs] == [(4, 0), (5, 10)]


@pytest.mark.parametrize("is_in_place", [False, True])
def test_aborted_data_that_another_replica_still_has_stays_aborted(is_in_place: bool) -> None:
    def log_with_an_abort() -> LogFixture:
        log = LogFixture().configure(compacted=True).append("first")
        log.send(0, "aborted 0", transactional=True)
        log.send(1, "aborted 1", transactional=True)
        log.append(*MANY[:20])
        log.abort()
        return log.append(*MANY[20:]).flush().checkpoint()

    log, good = log_with_an_abort(), log_with_an_abort()
    log.disk.make_directories(STAGING)
    [aborted] = good.aborted()
    for at in (1, 0) if is_in_place else (1,):
        compact(log, at, 1, lambda header: header.base_offset not in (1, 2))
    log.log.clean_end = log.bases[2]
    assert log.checkpoint().aborted() == []
    path = log.log.segments[0].path
    log.disk.flip(path, 70, 3)
    run(rebuild_of(log, 0), good)
    assert log.values()[:3] == ["first", "aborted 0", "aborted 1"]
    assert log.aborted() == [aborted]
    assert log.log.clean_end == 0
    assert log.checkpoint().power_cut(keep=1.0).reopen().aborted() == [aborted]
    assert log.damage == []


def test_what_a_log_has_lost_after_the_damage_is_what_others_must_have_compacted() -> None:
    log = filled().configure(compacted=True)
    assert rebuild_of(log).lost_end() == 0
    compact(log, 2, 1)
    end = log.bases[3]
    assert rebuild_of(log).lost_end() == rebuild_of(log, 2).lost_end() == end
    assert rebuild_of(log, 3).lost_end() == 0
    log.log.pinned = Pin(0, log.bases[2])
    assert rebuild_of(log).lost_end() == rebuild_of(log, 2).lost_end() == 0
    log.log.pinned = NOT_PINNED
    log.disk.flip(log.log.segments[3].path, 70, 3)
    assert rebuild_of(log).lost_end() == log.log.segments[3].end_offset
    assert rebuild_of(log.configure(compacted=False)).lost_end() == 0
