"""Logs that have lost what only their `recovery` knew of archived records: the archive's producers, and a second look.

The archive's producer state is the replay of the log's batches below its local start, before retention deletes them.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from log_fixture import DIRECTORY, SMALL, LogFixture
from refetch import ReadOther, damaged_segment, rebuilt

from cordwood.storage import unseen_batches
from cordwood.storage.after_archive import AfterArchive
from cordwood.storage.boundaries import headers_from
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog, Unfinished
from cordwood.storage.log import Log
from cordwood.storage.producers import Producers
from cordwood.storage.state import ArchivedBeginning, Unseen
from cordwood.storage.transaction_log import replay
from cordwood.storage.unseen_batches import ON_LOOP_MAX_BYTES, UnseenBatches

ARCHIVED = replace(SMALL, is_archived=True, local_retention_bytes=0)
RECOVERY = f"{DIRECTORY}/recovery"
ABORTED = [(1, 0), (2, 5)]
"""Producer id and first offset: both begin where only the archive has batches, and the first has no other."""


def producers_below(log: Log, end: int) -> Producers:
    """Return the producers as of an offset, as the archive has them."""
    producers = Producers()
    for segment, position, header in headers_from(log.segments, 0, end):
        replay(producers, segment, position, header)
    return producers


def spanning() -> tuple[LogFixture, Producers]:
    """Return a log with transactions that began before its first batches here, and the producers as of those."""
    log = LogFixture(ARCHIVED)
    log.send(0, "gone", producer=1, transactional=True)
    log.send(0, "silent since", producer=9)
    for number in range(30):
        log.send(number // 2, f"{number} {'x' * 150}", producer=7 + number % 2)
        if number in (2, 20):
            log.send(number // 20, "begun", producer=2, transactional=True)
    for producer in (1, 2):
        log.abort(producer=producer)
    log.send(0, "open", producer=3, transactional=True)
    log.append("last").flush().checkpoint()
    before = producers_below(log.log, log.bases[3])
    log.retain(archived_end=log.bases[3])
    assert 5 < log.log.local_start < 20 < log.log.segments[-1].base_offset
    assert log.aborted(0, 6) == log.aborted() == ABORTED
    return log, before


@pytest.fixture
def good() -> LogFixture:
    return spanning()[0]


@pytest.fixture
def log() -> LogFixture:
    """Return the same log, whose recovery checkpoint is damaged."""
    return damaged(spanning()[0])


@pytest.fixture
def before() -> Producers:
    return spanning()[1]


def damaged(log: LogFixture) -> LogFixture:
    log.disk.flip(RECOVERY, 20, 0)
    return log.kill().reopen()


def replica(log: LogFixture) -> ReadOther:
    return lambda offset, end: log.read(offset, 1, min(log.end, end))


def state_of(log: LogFixture) -> dict[str, Any]:
    """Return everything that a log knows of its producers and transactions."""
    producers = {
        producer_id: (known.epoch, known.batches, known.current_transaction_first_offset, known.marker_offset)
        for producer_id, known in log.log.producers
    }
    rows = [segment.aborted.rows() for segment in log.log.segments]
    undecided = [segment.aborted.undecided for segment in log.log.segments]
    return {"producers": producers, "rows": rows, "undecided": undecided, "last stable": log.last_stable()}


def restore(log: LogFixture, before: Producers) -> LogFixture:
    look = AfterArchive(log.log, before)
    look.read_on()
    look.put_in_place({})
    return log


def test_a_lost_checkpoint_costs_what_began_in_the_archive_until_it_is_asked(
    log: LogFixture, before: Producers, good: LogFixture
) -> None:
    assert [damage.path for damage in log.damage] == [RECOVERY]
    assert log.log.lacks_archived_producers
    assert log.aborted(0, 6) == []
    assert state_of(restore(log, before)) == state_of(good)
    assert not log.log.lacks_archived_state
    log.checkpoint().power_cut(keep=0).reopen()
    assert (state_of(log), log.damage, log.log.unseen) == (state_of(good), [], None)


def test_a_restart_knows_that_the_archive_was_not_asked(log: LogFixture, before: Producers, good: LogFixture) -> None:
    for _ in range(2):
        log.checkpoint().power_cut(keep=0).reopen()
        assert [(type(damage), damage.path) for damage in log.damage] == [(Unfinished, RECOVERY)]
        assert log.log.lacks_archived_producers
    log.append("later").flush()
    good.append("later").flush()
    assert state_of(restore(log, before)) == state_of(good)


def test_what_is_appended_meanwhile_counts(log: LogFixture, before: Producers) -> None:
    look = AfterArchive(log.log, before)
    look.read_on()
    log.send(1, "x" * ON_LOOP_MAX_BYTES, producer=3, transactional=True)
    assert look.is_behind()
    look.read_on()
    assert not look.is_behind()
    log.abort(producer=3)
    look.read_on()
    look.put_in_place({})
    assert log.aborted()[-1] == (3, log.log.producers.transactions.replaced[-1].first_offset)
    assert log.last_stable() == log.end


def test_a_checkpoint_that_is_being_written_stays_as_it_was(log: LogFixture, before: Producers) -> None:
    state = log.log.state()
    encoded = state.producers.encode()
    restore(log, before)
    assert state.producers.encode() == encoded != log.log.producers.snapshot(log.end).encode()


def test_producers_live_as_long_as_the_broker_has_seen_them(log: LogFixture, before: Producers) -> None:
    hour_ms = 3_600_000
    log.now += hour_ms
    log.kill().reopen()
    seen = {producer_id: known.last_timestamp for producer_id, known in log.log.producers}
    assert seen[7] == log.now
    restore(log, before)
    now_seen = {producer_id: known.last_timestamp for producer_id, known in log.log.producers}
    assert seen.items() < now_seen.items()


def truncated(log: LogFixture) -> None:
    log.truncate(log.end - 1)


def dropped(log: LogFixture) -> None:
    assert log.log.drop(log.log.flushed_end, log.now, log.bases[1])


@pytest.mark.parametrize("change", [truncated, dropped])
def test_a_log_that_changes_meanwhile_is_read_once_more(
    log: LogFixture, before: Producers, change: Callable[[LogFixture], None]
) -> None:
    look = AfterArchive(log.log, before)
    look.read_on()
    change(log)
    assert look.is_outdated
    assert log.log.lacks_archived_producers


def test_it_waits_for_the_repair_of_damaged_batches(before: Producers, good: LogFixture) -> None:
    log, _ = spanning()
    log.disk.flip(log.log.segments[1].path, 100, 0)
    damaged(log)
    with pytest.raises(DamagedLog):
        AfterArchive(log.log, before).read_on()
    assert log.log.lacks_archived_producers
    harmed = damaged_segment(log)
    assert harmed is not None
    assert rebuilt(log, harmed, replica(good)).replace_segment()
    assert log.log.lacks_archived_producers
    assert state_of(restore(log, spanning()[1])) == state_of(good)
    assert log.log.unseen is None


def test_deleted_records_need_no_archive(log: LogFixture) -> None:
    log.delete_records(log.log.local_start - 1)
    assert log.log.lacks_archived_producers
    log.delete_records(log.log.local_start)
    assert not log.log.lacks_archived_state
    assert log.checkpoint().reopen().damage == []


def test_of_deleted_records_nothing_lacks_whatever_local_retention_removes_later(log: LogFixture) -> None:
    log.delete_records(log.log.local_start)
    log.append(*(f"{number} {'x' * 200}" for number in range(20))).flush()
    log.retain(archived_end=log.bases[-2])
    assert log.start < log.log.local_start
    assert not log.log.lacks_archived_producers


def test_a_log_that_is_truncated_to_its_first_batch_here_takes_the_archives_producers(
    log: LogFixture, before: Producers
) -> None:
    known = dict(before)
    log.truncate(log.log.local_start)
    assert log.log.lacks_archived_producers
    restore(log, before)
    assert dict(log.log.producers) == known
    assert not log.log.lacks_archived_producers


def test_a_lost_end_that_local_retention_removes_is_asked_of_the_archive() -> None:
    log = LogFixture(ARCHIVED).append(*(f"{number} {'x' * 200}" for number in range(20))).flush()
    log.log.has_not_seen(log.bases[1], log.bases[2])
    assert not log.log.lacks_archived_producers
    assert log.log.drop(log.log.flushed_end, log.now, log.bases[3])
    assert log.log.lacks_archived_producers


def test_a_log_without_batches_asks_the_archive(log: LogFixture, before: Producers) -> None:
    known = dict(before)
    log.truncate_fully(100, ArchivedBeginning(0, LeaderEpochs(), Producers()))
    log._note(100)
    damaged(log)
    assert log.log.lacks_archived_producers
    assert dict(restore(log, before).log.producers) == known


def test_a_log_without_any_files_asks_the_archive(log: LogFixture) -> None:
    log.close().disk.remove_tree(DIRECTORY)
    assert log.reopen().log.lacks_archived_producers
    assert [damage.path for damage in log.damage] == [DIRECTORY, RECOVERY]
    log.log.has_no_archived_producers()
    assert (log.log.unseen, log.log.lacks_archived_producers) == (None, False)


def test_an_aborted_index_that_a_start_finds_again_lacks_what_began_in_the_archive(
    before: Producers, good: LogFixture
) -> None:
    log, _ = spanning()
    log.disk.flip(log.log.segments[-1].aborted.path, 20, 0)
    log.kill().reopen()
    assert log.log.lacks_archived_producers
    assert log.aborted() != good.aborted()
    assert state_of(restore(log, before)) == state_of(good)


def test_an_aborted_index_without_such_transactions_is_just_found_again() -> None:
    log = LogFixture(ARCHIVED).append(*(f"{number} {'x' * 200}" for number in range(20)))
    log.send(0, "a", producer=1, transactional=True)
    log.abort(producer=1)
    log.flush().checkpoint().retain(archived_end=log.bases[3])
    log.disk.flip(log.log.segments[-1].aborted.path, 20, 0)
    log.kill().reopen()
    assert (log.log.lacks_archived_producers, log.aborted()) == (False, [(1, 20)])


def test_a_truncation_that_reads_batches_lacks_what_began_in_the_archive(log: LogFixture, before: Producers) -> None:
    restore(log, before)
    log.log.producers.transactions.committed_to(log.end)
    log.log.recovery_point = log.end
    log.truncate(log.log.producers.transactions.end - 3)
    for _ in range(2):
        assert log.log.lacks_archived_producers
        log.kill().reopen()


def test_a_lost_end_that_a_start_finds_back_lacks_what_began_in_the_archive(good: LogFixture) -> None:
    log, before = spanning()
    log.log.has_not_seen(log.end - 2, log.end)
    log.checkpoint().kill().reopen()
    assert log.log.lacks_archived_producers
    assert state_of(restore(log, before)) == state_of(good)


def test_what_is_lost_while_a_lost_end_is_read_again_stays_lost() -> None:
    log = LogFixture(ARCHIVED).append(*(f"{number} {'x' * 200}" for number in range(20)))
    log.flush().checkpoint().retain(archived_end=log.bases[3])
    unseen = Unseen(log.end - 1, log.end)
    log.log.has_not_seen(*unseen)
    look = UnseenBatches(log.log, unseen, lambda: log.log.segments)
    look.read_on()
    log.log.lost_archived_producers()
    look.put_in_place({})
    assert log.log.lacks_archived_producers


def test_a_refetched_marker_may_end_what_began_in_the_archive(before: Producers, good: LogFixture) -> None:
    log, _ = spanning()
    segment = next(segment for segment in log.log.segments if segment.aborted.listed_count)
    log.disk.flip(segment.path, segment.locate(segment.aborted.rows()[0].marker_offset) + 30, 0)
    assert damaged_segment(log) is segment
    assert rebuilt(log, segment, replica(good)).replace_segment()
    assert log.log.lacks_archived_producers
    assert restore(log, before).aborted() == good.aborted() == ABORTED


def test_the_batches_are_read_in_pieces(log: LogFixture, before: Producers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen_batches, "ON_LOOP_MAX_BYTES", 500)
    look, pieces = AfterArchive(log.log, before), 0
    while look.is_behind():
        look.read_on(500)
        pieces += 1
    assert pieces > 5
    look.read_on()
    look.put_in_place({})


def test_a_segment_that_is_replaced_meanwhile_is_read_once_more(log: LogFixture, before: Producers) -> None:
    look = AfterArchive(log.log, before)
    look.read_on()
    log.disk.flip(log.log.segments[1].path, 100, 0)
    harmed = damaged_segment(log)
    assert harmed is log.log.segments[1]
    assert rebuilt(log, harmed, replica(spanning()[0])).replace_segment()
    assert look.is_outdated


def test_what_another_look_has_found_stays(log: LogFixture, before: Producers, good: LogFixture) -> None:
    looks, producers = (AfterArchive(log.log, before), AfterArchive(log.log, spanning()[1])), log.log.producers
    for look in looks:
        look.read_on()
    looks[0].put_in_place({})
    assert looks[1].is_outdated
    assert log.log.producers is producers
    assert state_of(log) == state_of(good)


@pytest.mark.parametrize("seed", range(30))
def test_any_log_knows_afterwards_what_it_would_know_without_the_damage(seed: int) -> None:
    logs = random_log(seed), random_log(seed)
    at = random.Random(seed).randrange(1, len(logs[0].bases) - 1)
    before = producers_below(logs[0].log, logs[0].bases[at])
    for log in logs:
        log.retain(archived_end=log.bases[at])
    log, good = damaged(logs[0]), logs[1]
    restore(log, before)
    assert state_of(log) == state_of(good)
    for start in range(0, log.end, 3):
        assert log.aborted(start) == good.aborted(start)


def random_log(seed: int) -> LogFixture:
    """Return a log of plain, idempotent and transactional batches."""
    choice, log, sequences = random.Random(seed), LogFixture(ARCHIVED), defaultdict[int, int](int)
    for _ in range(choice.randrange(60, 150)):
        producer = choice.randrange(8)
        if producer == 0:
            log.append("plain " + "x" * choice.randrange(100))
        elif producer < 3 or choice.random() < 0.6:
            log.send(sequences[producer], "x" * choice.randrange(100), producer=producer, transactional=producer > 2)
            sequences[producer] += 1
        else:
            log.mark(commit=choice.random() < 0.4, producer=producer)
    return log.flush().checkpoint()
