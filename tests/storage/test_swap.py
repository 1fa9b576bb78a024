"""Swaps of rewritten segments: a crash at any step leaves the old segments or the new one, and nothing else."""

import pytest
from compacted_log import WORK, compact, nothing, odd, remove_replaced, rewritten_in
from log_fixture import DIRECTORY, START_MS, LogFixture

from cordwood.chaos.sim.faults import Died
from cordwood.storage.compaction.swap import discard, has_run
from cordwood.storage.errors import DamagedLog, Unfinished
from cordwood.storage.scrub import verify, view_of
from cordwood.storage.segment_files import files_in, segment_path
from cordwood.storage.steps import at_once
from cordwood.storage.timestamps import first_at_or_after
from cordwood.storage.verify import verify_partition

MANY = [f"value-{number:02}" for number in range(60)]
STEPS_MAX = 120


def filled() -> LogFixture:
    return LogFixture().append(*MANY).flush().checkpoint()


def after(log: LogFixture, count: int = 2) -> list[str]:
    """Return the values that a compaction of the first segments leaves."""
    end = log.bases[count]
    return [value for offset, value in enumerate(MANY) if offset % 2 or offset >= end]


def files(log: LogFixture) -> list[str]:
    return [segment_path(DIRECTORY, *file) for file in files_in(log.disk, DIRECTORY)]


def defects(log: LogFixture) -> list[object]:
    """Return what the loader, the scrubber and the verifier find, and segment files that are left over.

    After a power cut the indexes that appends made are incomplete, which is no defect.
    """
    found = [proof for proof in verify(view_of(log.log)) if isinstance(proof, DamagedLog)]
    found = [proof for proof in found if not isinstance(proof, Unfinished) or "-" in proof.path[len(DIRECTORY) :]]
    segments = [segment.path for segment in log.log.segments]
    return [*log.damage, *found, *verify_partition(log.disk, DIRECTORY, None), *set(files(log)) ^ set(segments)]


def test_a_swapped_segment_has_the_offsets_of_the_old_ones() -> None:
    log = filled()
    bases, expected = log.bases, after(log)
    old = compact(log)
    assert (log.bases, log.values()) == ([bases[0], *bases[2:]], expected)
    assert not has_run(log.log, old)
    remove_replaced(log.checkpoint(), old)
    assert (defects(log), defects(log.reopen())) == ([], [])
    assert log.values() == expected


def test_what_is_rewritten_goes_to_the_disk_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the last sync takes long, and so do the group commits of other logs, which wait for it."""
    log, ranges = filled(), list[tuple[int, int]]()
    kind = type(log.disk.open(log.path(0)))
    monkeypatch.setattr(kind, "write_back", lambda _file, position, length: ranges.append((position, length)))
    compact(log)
    assert [(sum(length for _, length in ranges[:place])) for place in range(len(ranges))] == [at for at, _ in ranges]
    assert sum(length for _, length in ranges) == log.log.segments[0].size


def test_every_offset_in_a_gap_leads_to_the_next_record() -> None:
    log = filled()
    compact(log, 1, 2)
    compact(log, 2, 1, nothing)
    assert [log.records(offset, 1)[0].offset for offset in range(60)] == [
        next(record.offset for record in log.records() if record.offset >= offset) for offset in range(60)
    ]


@pytest.mark.parametrize("keep", [None, 0.0, 1.0])
@pytest.mark.parametrize("is_recovery_lost", [False, True])
def test_a_crash_at_any_step_leaves_the_old_segments_or_the_new_one(keep: float | None, is_recovery_lost: bool) -> None:
    for step in range(STEPS_MAX):
        log = filled()
        expected = after(log, 3)
        compact(log, 0, 1)
        log.checkpoint()
        outcomes = log.values(), expected
        log.disk.faults.die_after(step)
        try:
            old = compact(log, 0, 3)
            log.checkpoint()
            remove_replaced(log, old)
        except Died:
            pass
        else:
            assert step > 10
            return
        log.power_cut(keep=keep)
        if is_recovery_lost:
            log.disk.flip(f"{DIRECTORY}/recovery", 30, 1)
        log.reopen()
        assert [damage for damage in log.damage if not damage.path.endswith("recovery")] == [], f"step {step}"
        assert log.values() in outcomes, f"step {step}"
        log.append("more").flush().checkpoint()
        assert log.values()[-1] == "more"
        log.power_cut(keep=0.0).reopen()
        assert defects(log) == [], f"step {step}"
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("position", [80, 140])
def test_a_damaged_rewritten_segment_does_not_count_without_a_manifest(position: int) -> None:
    log = filled()
    compact(log, 0, 3)
    [path] = [segment.path for segment in log.log.segments if segment.generation]
    log.power_cut(keep=1.0)
    log.disk.flip(path, position, 1)
    log.disk.flip(f"{DIRECTORY}/recovery", 30, 1)
    log.reopen()
    assert [damage.path for damage in log.damage] == [f"{DIRECTORY}/recovery"]
    assert log.values() == MANY


def test_without_a_manifest_a_restart_removes_what_a_rewritten_segment_covers() -> None:
    log = filled()
    compact(log, 0, 3)
    expected = log.checkpoint().values()
    log.disk.flip(f"{DIRECTORY}/recovery", 30, 1)
    log.reopen()
    assert (log.values(), files(log)) == (expected, [segment.path for segment in log.log.segments])


def test_names_are_on_disk_before_the_manifest_that_lists_them() -> None:
    log = filled()
    compact(log)
    synced: list[str] = []
    log.disk.on_sync = synced.append
    log.checkpoint()
    assert synced.index(DIRECTORY) < synced.index(f"{DIRECTORY}/recovery.new")


def test_a_rewritten_segment_that_is_not_swapped_leaves_nothing() -> None:
    log = filled()
    paths = log.disk.files()
    discard(log.log, rewritten_in(log.log, WORK, log.log.segments[:2], odd))
    assert log.disk.files() == paths
    compact(log)
    values = log.values()
    discard(log.log, rewritten_in(log.log, WORK, log.log.segments[:1], odd))
    assert (log.values(), defects(log.checkpoint().reopen())) == (values, [])


def test_files_of_an_older_generation_are_no_foreign_segments() -> None:
    log = filled()
    old = compact(log)
    log.checkpoint()
    assert [proof for proof in verify(view_of(log.log)) if isinstance(proof, DamagedLog)] == []
    assert list(verify_partition(log.disk, DIRECTORY, None)) == []
    log.log.replaced.take(old)
    assert [proof for proof in verify(view_of(log.log)) if isinstance(proof, DamagedLog)] == []


def test_times_are_found_beside_gaps() -> None:
    log = LogFixture()
    for number in range(60):
        log.append(f"{number:02}", timestamp=START_MS + number)
    log.flush().checkpoint()
    compact(log, 0, 2)
    found = at_once(first_at_or_after(log.log, START_MS + 4, log.end))
    assert found is not None
    assert (found.offset, found.timestamp) == (5, START_MS + 5)
    compact(log, 0, 1, nothing)
    found = at_once(first_at_or_after(log.log, START_MS, log.end))
    assert found is not None
    assert found.offset == log.log.segments[1].base_offset


def test_the_batch_with_the_log_start_is_looked_for_again_after_a_swap() -> None:
    log = LogFixture()
    log.append_batch("a", "b", "c")
    log.append(*MANY).flush().delete_records(2).checkpoint()
    assert log.log.start_boundary() == 0
    compact(log, keeps=lambda header: header.base_offset > 0)
    assert log.log.start_boundary() == 2
