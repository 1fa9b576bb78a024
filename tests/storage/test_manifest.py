"""The manifest of sealed segments: detection of missing, short and foreign segments, whose offsets are never reused."""

import sys
from collections.abc import Callable, Iterable
from types import FrameType, FunctionType

import pytest
from log_fixture import DIRECTORY, LogFixture

from cordwood.chaos.sim.faults import Died
from cordwood.storage import checkpoint, state
from cordwood.storage.batch import split
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.index import Index
from cordwood.storage.manifest import SealedSegment
from cordwood.storage.records import decode
from cordwood.storage.scrub import is_still_damaged, verify, view_of
from cordwood.storage.steps import at_once
from cordwood.storage.timestamps import first_at_or_after

MANY = [f"value-{number}" for number in range(60)]
OTHERS = [f"other-{number}" for number in range(40)]
STEPS_MAX = 80


@pytest.fixture
def filled(log: LogFixture) -> LogFixture:
    """Return a log with several sealed segments below the recovery point, and an active segment."""
    return log.append(*MANY).flush().checkpoint()


def lose(log: LogFixture, base: int, *suffixes: str) -> None:
    for suffix in suffixes or ("log", "index"):
        log.disk.remove(log.path(base, suffix))


def damaged_paths(log: LogFixture) -> set[str]:
    return {damage.path for damage in log.damage}


def found_by_scrub(log: LogFixture) -> list[DamagedLog]:
    """Return the damage that a scrub pass finds, but for indexes: a power cut may tear them, and they are rebuilt."""
    return but_for_indexes(proof for proof in verify(view_of(log.log)) if isinstance(proof, DamagedLog))


def but_for_indexes(damage: Iterable[DamagedLog]) -> list[DamagedLog]:
    return [found for found in damage if not found.path.endswith(".index")]


def sound(log: LogFixture, offset: int) -> str:
    """Return the value that a read of `offset` alone returns."""
    [batch, *_] = split(log.read(offset, 1))
    return next((record.value or b"").decode() for record in decode(batch) if record.offset == offset)


@pytest.mark.parametrize("at", [0, 1, -2], ids=["first", "middle", "last sealed"])
@pytest.mark.parametrize("suffixes", [("log",), ("log", "index")], ids=["segment", "segment and index"])
def test_a_sealed_segment_that_is_missing_at_opening_is_damage_of_its_offsets(
    filled: LogFixture, at: int, suffixes: tuple[str, ...]
) -> None:
    bases = filled.bases
    base, end = bases[at], bases[bases.index(bases[at]) + 1]
    lose(filled, base, *suffixes)
    filled.reopen()
    assert filled.path(base) in damaged_paths(filled)
    assert (filled.start, filled.end) == (0, len(MANY))
    assert filled.bases == bases
    for offset in range(len(MANY)):
        if base <= offset < end:
            with pytest.raises(DamagedLog):
                filled.read(offset)
        else:
            assert sound(filled, offset) == MANY[offset]


def test_a_sealed_segment_that_was_cut_short_is_damage_from_there_on(filled: LogFixture) -> None:
    base, end = filled.bases[1], filled.bases[2]
    first = next(filled.log.segments[1].headers(0, filled.log.segments[1].size))[1].size
    file = filled.disk.open(filled.path(base))
    file.truncate(first)
    file.close()
    filled.reopen()
    assert filled.path(base) in damaged_paths(filled)
    assert (filled.start, filled.end, filled.bases[1:3]) == (0, len(MANY), [base, end])
    with pytest.raises(DamagedLog):
        filled.read(end - 1)


def test_a_foreign_segment_is_named_and_its_records_are_never_read(filled: LogFixture) -> None:
    base = filled.bases[1]
    content = filled.disk.content(filled.path(filled.bases[0]))
    file = filled.disk.open(filled.path(base + 1), create=True)
    file.pwrite([content], 0)
    file.close()
    filled.reopen()
    assert filled.path(base + 1) in damaged_paths(filled)
    assert filled.values() == MANY


@pytest.mark.parametrize("suffixes", [("log",), ("log", "index")], ids=["segment", "segment and index"])
def test_a_scrub_pass_finds_a_segment_that_went_missing_meanwhile(
    filled: LogFixture, suffixes: tuple[str, ...]
) -> None:
    base = filled.bases[1]
    lose(filled, base, *suffixes)
    [damage] = [damage for damage in found_by_scrub(filled) if damage.path.endswith(".log")]
    assert damage.path == filled.path(base)
    assert is_still_damaged(filled.log, damage)


def test_a_scrub_pass_finds_a_segment_that_was_cut_short_meanwhile(filled: LogFixture) -> None:
    base = filled.bases[1]
    file = filled.disk.open(filled.path(base))
    file.truncate(file.size() - 1)
    file.close()
    [damage] = found_by_scrub(filled)
    assert damage.path == filled.path(base)
    assert is_still_damaged(filled.log, damage)


def test_a_scrub_pass_finds_a_foreign_segment(filled: LogFixture) -> None:
    path = filled.path(filled.bases[1] + 1)
    filled.disk.open(path, create=True).close()
    [damage] = found_by_scrub(filled)
    assert damage.path == path
    assert is_still_damaged(filled.log, damage)


def test_a_missing_segment_in_a_log_without_manifest_is_found_by_scrubbing_the_one_before(filled: LogFixture) -> None:
    bases = filled.bases
    lose(filled, bases[2])
    without_manifest(filled)
    filled.reopen()
    [damage] = found_by_scrub(filled)
    assert damage.path == filled.path(bases[1])
    assert is_still_damaged(filled.log, damage)
    with pytest.raises(DamagedLog):
        filled.read(bases[2])


def without_manifest(log: LogFixture) -> None:
    """Write the `recovery` checkpoint in the version that has no manifest."""
    kept = log.log.state()
    head = state.HEAD.pack(kept.log_start, kept.recovery_point)
    checkpoint.write(log.disk, f"{DIRECTORY}/{state.RECOVERY_FILE}", head, version=1)


def at_return_of(function: FunctionType, act: Callable[[], object]) -> None:
    """Call `act` when `function` returns for the first time, as if another thread ran between that and the caller."""

    def traced(frame: FrameType, event: str, _argument: object) -> None:
        if event == "return" and frame.f_code is function.__code__:
            sys.setprofile(None)
            act()

    sys.setprofile(traced)


def test_a_largest_timestamp_that_is_loaded_during_a_truncation_hides_no_later_one(filled: LogFixture) -> None:
    without_manifest(filled)
    filled.reopen()
    segment = filled.log.segments[0]
    cut, late = segment.base_offset + 3, filled.now + 10_000

    def replace_its_end() -> None:
        filled.truncate(cut).append("late", timestamp=late).append(*MANY[:8])

    assert not segment.is_timed
    at_return_of(Index.max_timestamp, replace_its_end)
    segment.load_max_timestamp()
    assert segment.max_timestamp == late
    found = at_once(first_at_or_after(filled.log, late, filled.end))
    assert found is not None
    assert found.offset == cut
    row = segment.listing()
    assert row.max_timestamp == late


def test_a_checkpoint_without_manifest_opens_and_the_next_one_has_it(filled: LogFixture) -> None:
    without_manifest(filled)
    filled.reopen()
    assert (filled.damage, filled.values()) == ([], MANY)
    filled.checkpoint()
    rows = state.load(filled.disk, DIRECTORY).segments
    assert rows is not None
    assert [row.base_offset for row in rows] == filled.bases[:-1]


def test_the_manifest_has_each_segments_end_size_and_largest_timestamp(log: LogFixture) -> None:
    log.append(*MANY[:20], timestamp=log.now + 5).append(*MANY[20:]).flush().checkpoint()
    rows = state.load(log.disk, DIRECTORY).segments
    assert rows is not None
    sizes = [len(log.disk.content(log.path(base))) for base in log.bases]
    assert rows == tuple(
        SealedSegment(base, end, size, log.now + 5 if base < 20 else log.now, base)
        for base, end, size in zip(log.bases, log.bases[1:], sizes, strict=False)
    )


def test_retention_by_age_reads_no_index(filled: LogFixture) -> None:
    filled.reopen()
    filled.disk.faults.fail_reads(".index")
    filled.configure(retention_ms=1000)
    assert filled.retain(after_ms=500) == 0
    assert filled.retain(after_ms=501) > 1


def act_on(log: LogFixture, act: str) -> None:
    match act:
        case "retention":
            log.configure(retention_bytes=1500)
            log.retain()
        case "delete records":
            log.delete_records(log.bases[2] + 1).checkpoint()
            log.retain()
        case "truncation":
            log.truncate(log.bases[2] + 1)
        case "start over":
            log.truncate_fully(log.bases[2] + 1)
        case _:
            log.append(*OTHERS[:12]).flush().checkpoint()


def test_a_file_below_the_log_start_that_no_manifest_lists_is_removed(filled: LogFixture) -> None:
    base = filled.bases[1]
    content = filled.disk.content(filled.path(base))
    filled.truncate_fully(500).append("more").flush()
    filled.disk.open(filled.path(base), create=True).pwrite([content], 0)
    filled.reopen()
    assert (filled.bases, filled.damage, filled.values()) == ([500], [], ["more"])
    assert not filled.disk.exists(filled.path(base))


@pytest.mark.parametrize("act", ["retention", "delete records", "truncation", "start over", "checkpoint"])
@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_what_removes_segments_may_die_at_any_step_and_leaves_no_damage(act: str, keep: float) -> None:
    steps = 0
    for step in range(STEPS_MAX):
        log = LogFixture().append(*MANY).flush().checkpoint()
        log.disk.faults.die_after(step)
        try:
            act_on(log, act)
        except Died:
            steps += 1
        else:
            break
        log.power_cut(keep=keep).reopen()
        assert but_for_indexes(log.damage) == [], f"step {step}"
        begin = log.end
        log.append(*OTHERS).flush().checkpoint()
        log.power_cut(keep=0.0).reopen()
        assert (log.damage, log.end) == ([], begin + len(OTHERS)), f"step {step}"
        assert found_by_scrub(log) == [], f"step {step}"
        assert log.values()[-len(OTHERS) :] == OTHERS, f"step {step}"
    assert 0 < steps < STEPS_MAX


def test_a_log_that_was_never_checkpointed_begins_at_offset_0(log: LogFixture) -> None:
    log.append(*MANY).flush()
    base, end = log.bases[:2]
    lose(log, base)
    log.reopen()
    assert [damage.path for damage in but_for_indexes(log.damage)] == [log.path(base)]
    assert (log.start, log.end, log.values(end)) == (0, len(MANY), MANY[end:])


def test_a_missing_segment_that_ends_at_the_log_start_is_no_damage(filled: LogFixture) -> None:
    """A crash may come between the removal of its file and the next manifest."""
    first, second = filled.bases[:2]
    filled.delete_records(second).checkpoint()
    lose(filled, first)
    filled.reopen()
    assert but_for_indexes(filled.damage) == []
    assert (filled.start, filled.values()) == (second, MANY[second:])


def test_all_segments_may_be_missing(filled: LogFixture) -> None:
    for base in filled.bases:
        lose(filled, base)
    filled.reopen()
    assert (filled.start, filled.end) == (0, len(MANY))
    for offset in range(len(MANY)):
        with pytest.raises(StorageError):
            filled.read(offset)
    filled.append("more").flush().checkpoint()
    assert sound(filled, len(MANY)) == "more"
