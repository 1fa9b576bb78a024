"""Rounds of the log cleaner over one log: what stays, what a round may be interrupted by, and crashes at each step."""

import pytest
from compacted_log import WORK
from log_fixture import DIRECTORY, LogFixture

from cordwood.chaos.sim.faults import Died
from cordwood.storage.batch import TRANSACTIONAL, check, stamp
from cordwood.storage.compaction.offset_map import SEED_BYTES
from cordwood.storage.compaction.round import CleaningRound, Rewritten
from cordwood.storage.compaction.verify import verify_compacted
from cordwood.storage.errors import DamagedLog
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.scrub import verify, view_of
from cordwood.storage.verify import verify_partition

KEYS = 7
BUFFER_BYTES = 1 << 16
STEPS_MAX = 400


def keyed(count: int = 60) -> LogFixture:
    """Return a compacted topic's log. The record at each offset has one of KEYS keys, and its offset as its value."""
    log = LogFixture().configure(compacted=True)
    for offset in range(count):
        log.append(f"{offset:02}", key=f"key-{offset % KEYS}")
    log.disk.make_directories(WORK)
    log.disk.open_directory("/data").sync()
    return log.flush().checkpoint()


def round_of(log: LogFixture, limit: int | None = None, buffer_bytes: int = BUFFER_BYTES) -> CleaningRound:
    return CleaningRound(
        log.log, WORK, log.last_stable() if limit is None else limit, log.now, buffer_bytes, bytes(SEED_BYTES)
    )


def run(one: CleaningRound) -> CleaningRound:
    for step in one.steps():
        if isinstance(step, Rewritten):
            assert one.swap(step)
    assert one.finish()
    return one


def clean(log: LogFixture, limit: int | None = None, buffer_bytes: int = BUFFER_BYTES) -> CleaningRound:
    """Run a round, and delete what it has replaced, as the broker does."""
    replaced = list(log.log.segments)
    one = run(round_of(log, limit, buffer_bytes))
    log.checkpoint()
    for segment in log.log.replaced.take(replaced):
        segment.release()
        for path in filter(log.disk.exists, segment.paths()):
            log.disk.remove(path)
    return one


def last_values(log: LogFixture) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in log.records()}


def defects(log: LogFixture) -> list[object]:
    found = [proof for proof in verify(view_of(log.log)) if isinstance(proof, DamagedLog)]
    return [*log.damage, *found, *verify_partition(log.disk, DIRECTORY, None), *verify_compacted(log.disk, DIRECTORY)]


def test_one_record_of_each_key_is_left() -> None:
    log = keyed()
    expected, end = last_values(log), log.log.segments[-1].base_offset
    one = clean(log)
    assert (one.start, one.end, log.log.clean_end, log.end) == (0, end, end, 60)
    assert last_values(log) == expected
    assert len([record for record in log.records() if record.offset < end]) == KEYS
    assert (one.records_read, one.records_kept) == (end, KEYS)
    assert (defects(log), defects(log.reopen())) == ([], [])
    assert (last_values(log), log.log.clean_end) == (expected, end)


def test_later_rounds_read_new_records_and_rewrite_all() -> None:
    log = keyed()
    for number in range(4):
        clean(log)
        for offset in range(30):
            log.append(f"more {number} {offset}", key=f"key-{offset % (KEYS + number)}")
        log.flush().checkpoint()
    expected = last_values(log)
    one = clean(log)
    assert one.start > 0
    assert last_values(log) == expected
    assert len(log.log.segments) <= 3
    assert defects(log.reopen()) == []


def test_segments_with_very_many_offsets_are_not_rewritten_to_one() -> None:
    """The log of a follower whose leader has compacted most of it. An index row has an offset of 32 bits."""
    log, gap = keyed(), (1 << 31) - 10
    for number in range(1, 6):
        batch = encode([Record(0, log.now, f"key-{number}".encode(), b"far")])
        log.take_stamped(stamp(check(batch), 60 + number * gap, 0) + batch[16:])
    expected, end = last_values(log.flush().checkpoint()), log.bases[-1]
    for _ in range(3):
        clean(log)
    assert log.log.clean_end == end
    assert last_values(log) == expected
    assert (defects(log), defects(log.reopen())) == ([], [])


def test_a_log_with_more_keys_than_fit_takes_several_rounds() -> None:
    log = LogFixture().configure(compacted=True)
    for offset in range(300):
        log.append(f"{offset}", key=f"key-{offset % 100}")
    log.disk.make_directories(WORK)
    log.flush().checkpoint()
    expected, end = last_values(log), log.log.segments[-1].base_offset
    rounds = 0
    while log.log.clean_end < end:
        before = log.log.clean_end
        clean(log, buffer_bytes=800)
        assert log.log.clean_end > before
        rounds += 1
    assert rounds > 1
    assert last_values(log) == expected
    assert defects(log.reopen()) == []


def test_nothing_from_the_limit_on_is_touched() -> None:
    log = keyed()
    limit = log.bases[2] + 1
    before = [record for record in log.records() if record.offset >= log.bases[2]]
    clean(log, limit)
    assert log.log.clean_end < limit
    assert log.records(log.log.clean_end) == before


def test_what_the_manifest_does_not_list_is_not_cleaned() -> None:
    log = LogFixture().configure(compacted=True).append(*map(str, range(60)), key="key").flush()
    log.disk.make_directories(WORK)
    assert not round_of(log).is_needed
    assert round_of(log.checkpoint()).is_needed


@pytest.mark.parametrize("steps", range(16))
def test_a_round_that_is_given_up_leaves_no_files_and_the_next_one_does_it_all(steps: int) -> None:
    log = keyed()
    expected = last_values(log)
    one = round_of(log)
    for step, _ in zip(one.steps(), range(steps), strict=False):
        if isinstance(step, Rewritten):
            one.swap(step)
    one.abort()
    one.abort()
    assert [path for path in log.disk.files() if path.startswith(WORK)] == []
    assert (last_values(log), log.log.clean_end) == (expected, 0)
    clean(log.checkpoint())
    assert last_values(log) == expected
    assert defects(log.reopen()) == []


@pytest.mark.parametrize("what", ["truncated", "truncated fully", "dropped", "repaired"])
def test_a_log_that_has_changed_refuses_the_swap(what: str) -> None:
    log = keyed()
    one = round_of(log)
    [rewritten] = [step for step in one.steps() if isinstance(step, Rewritten)][:1]
    if what == "truncated":
        log.truncate(50)
    elif what == "truncated fully":
        log.truncate_fully(0)
    elif what == "dropped":
        log.delete_records(log.bases[2]).retain()
    else:
        log.log.segments[0] = type(log.log.segments[0]).listed(
            log.disk, DIRECTORY, log.log.segments[0].listing(), 200, log.log.opened
        )
    values = log.values()
    assert not one.swap(rewritten)
    one.abort()
    assert log.values() == values
    assert what.startswith("truncated") == (not one.finish())


def test_a_damaged_segment_is_not_cleaned() -> None:
    log = keyed()
    log.disk.flip(log.path(log.bases[1]), 300, 1)
    one = round_of(log)
    with pytest.raises(DamagedLog):
        run(one)
    one.abort()
    assert log.bases[:2] == keyed().bases[:2]
    assert [path for path in log.disk.files() if path.startswith(WORK)] == []


def send(log: LogFixture, sequence: int, key: str, value: str, producer: int, *, transactional: bool = True) -> None:
    batch = encode(
        [Record(0, log.now, key.encode(), value.encode())],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )
    log.log.append(batch, check(batch), log.leader_epoch, log.now)


def committed(log: LogFixture) -> dict[bytes | None, bytes | None]:
    """Return the last value of each key, as a read_committed consumer sees it."""
    values: dict[bytes | None, bytes | None] = {}
    offset = log.start
    while data := log.read(offset, 1, log.last_stable()):
        header = check(data)
        aborted = [first for producer, first in log.aborted(offset, header.end) if producer == header.producer_id]
        is_aborted = header.is_transactional and any(first <= header.base_offset for first in aborted)
        if not header.is_control and not is_aborted:
            values |= {record.key: record.value for record in decode(data[: header.size])}
        offset = header.end
    return values


def test_aborted_data_goes_and_committed_data_stays() -> None:
    log = LogFixture().configure(compacted=True)
    log.disk.make_directories(WORK)
    for number in range(20):
        send(log, number, f"key-{number % 3}", f"committed {number}", 7)
        log.commit()
        send(log, number, f"key-{number % 3}", f"aborted {number}", 8)
        log.abort(producer=8)
    send(log, 20, "key-0", "undecided", 7)
    for number in range(30):
        log.append(f"plain {number}", key="plain")
    log.flush().checkpoint()
    expected = committed(log)
    clean(log)
    assert log.log.clean_end <= log.last_stable()
    assert committed(log) == expected
    cleaned = [record.value or b"" for record in log.records() if record.offset < log.log.clean_end]
    assert not [value for value in cleaned if value.startswith(b"aborted")]
    log.commit()
    assert committed(log.reopen())[b"key-0"] == b"undecided"
    assert defects(log) == []


@pytest.mark.parametrize("is_recovery_lost", [False, True])
def test_producers_are_known_after_a_round_and_a_restart(is_recovery_lost: bool) -> None:
    log = LogFixture().configure(compacted=True)
    log.disk.make_directories(WORK)
    for number in range(10):
        for producer in (1, 2, 3):
            send(log, number, "key", f"{producer} {number}", producer, transactional=False)
    for _ in range(30):
        log.append("later", key="key")
    clean(log.flush().checkpoint())
    if is_recovery_lost:
        log.disk.flip(f"{DIRECTORY}/recovery", 30, 1)
    log.reopen()
    assert [log.log.producers.next_sequence(producer, 0) for producer in (1, 2, 3)] == [10, 10, 10]


@pytest.mark.parametrize("is_recovery_lost", [False, True])
@pytest.mark.parametrize("keep", [None, 0.0, 1.0])
def test_a_crash_at_any_step_loses_nothing_and_brings_nothing_back(keep: float | None, is_recovery_lost: bool) -> None:
    outcomes: set[frozenset[int]] = set()
    for step in range(STEPS_MAX):
        log = keyed(80)
        expected = last_values(log)
        clean(log, log.bases[2])
        before = frozenset(record.offset for record in log.records())
        log.disk.faults.die_after(step)
        try:
            clean(log)
        except Died:
            pass
        else:
            assert len(outcomes) > 1
            return
        log.power_cut(keep=keep)
        if is_recovery_lost:
            log.disk.flip(f"{DIRECTORY}/recovery", 30, 1)
        log.reopen()
        assert [damage for damage in log.damage if not damage.path.endswith("recovery")] == [], f"step {step}"
        offsets = frozenset(record.offset for record in log.records())
        assert offsets <= before, f"step {step}"
        assert (last_values(log), log.end) == (expected, 80), f"step {step}"
        outcomes.add(offsets)
        log.disk.make_directories(WORK)
        clean(log.checkpoint())
        assert last_values(log) == expected, f"step {step}"
        assert defects(log.reopen()) == [], f"step {step}"
    raise AssertionError("it never came to an end")
