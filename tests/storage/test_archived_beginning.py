"""Logs whose first records are only in the archive: local retention, reads, restarts, truncations."""

from dataclasses import replace

import pytest
from log_fixture import DIRECTORY, SMALL, LogFixture

from cordwood.storage.epochs import EpochStart, LeaderEpochs
from cordwood.storage.errors import ForeignSegment, NotLocal, OffsetOutOfRange, Unfinished
from cordwood.storage.scrub import verify, view_of
from cordwood.storage.state import ArchivedBeginning
from cordwood.storage.types import LeaderEpoch, Offset
from cordwood.storage.verify import verify_partition

ARCHIVED = replace(SMALL, is_archived=True, local_retention_bytes=0)
VALUES = [f"{number} {'x' * 200}" for number in range(20)]


@pytest.fixture
def log() -> LogFixture:
    return LogFixture(ARCHIVED).append(*VALUES).flush()


def test_a_replica_that_does_not_know_the_archive_keeps_everything(log: LogFixture) -> None:
    assert log.retain(archived_end=None) == 0
    assert (log.start, log.log.local_start) == (0, 0)


def test_local_retention_deletes_what_is_archived_and_the_log_still_begins_there(log: LogFixture) -> None:
    second, third = log.bases[1:3]
    assert log.retain(archived_end=third - 1) == 1
    assert (log.start, log.log.local_start) == (0, second)
    with pytest.raises(NotLocal):
        log.log.slice(second - 1, 1000, log.end)
    with pytest.raises(OffsetOutOfRange, match="is not within"):
        log.log.slice(-1, 1000, log.end)
    assert log.values(second) == VALUES[second:]


def test_it_comes_back_after_a_restart(log: LogFixture) -> None:
    log.retain(archived_end=log.bases[3])
    local, bases = log.log.local_start, log.bases
    log.close().power_cut(keep=0).reopen()
    assert (log.start, log.log.local_start, log.bases, log.damage) == (0, local, bases, [])
    assert not any(isinstance(one, ForeignSegment) for one in verify(view_of(log.log)))
    assert list(verify_partition(log.disk, DIRECTORY, None)) == []
    assert log.values(local) == VALUES[local:]


def test_a_compacted_log_stays_whole(log: LogFixture) -> None:
    log.configure(compacted=True)
    assert log.retain(archived_end=log.end) == 0


def test_deleted_records_go_whatever_is_archived(log: LogFixture) -> None:
    start = log.bases[2]
    log.delete_records(start)
    assert log.retain(archived_end=None) == 2
    assert (log.start, log.log.local_start) == (start, start)


def test_retention_of_all_records_is_not_that_of_the_disk(log: LogFixture) -> None:
    log.configure(local_retention_bytes=-1, local_retention_ms=-1, retention_bytes=0, retention_ms=0)
    assert log.retain(archived_end=log.end) == 0
    log.configure(local_retention_bytes=-2)
    assert log.retain(archived_end=log.bases[1]) == 1


def test_a_truncation_to_the_local_start_leaves_an_empty_log_there(log: LogFixture) -> None:
    log.retain(archived_end=log.bases[2])
    local = log.log.local_start
    log.truncate(local)
    assert (log.start, log.log.local_start, log.end) == (0, local, local)
    log.power_cut(keep=0).reopen()
    assert (log.start, log.log.local_start, log.end, log.damage) == (0, local, local, [])


def test_an_empty_log_begins_after_the_archive_and_knows_epochs_and_producers(log: LogFixture) -> None:
    log.send(0, "a", producer=9)
    epochs = LeaderEpochs((EpochStart(LeaderEpoch(0), Offset(0)), EpochStart(LeaderEpoch(3), Offset(70))))
    before = ArchivedBeginning(10, epochs, log.log.producers)
    log.truncate_fully(100, before)
    for _ in range(2):
        assert (log.start, log.log.local_start, log.end) == (10, 100, 100)
        assert log.log.epochs.end_of(0, 100) == (0, 70)
        assert dict(log.log.producers)[9].next_sequence == 1
        with pytest.raises(NotLocal):
            log.log.slice(99, 1000, 100)
        log.power_cut(keep=0).reopen()
    log.leader_epoch = 4
    assert log.append("b").flush().values(100) == ["b"]
    log.checkpoint().power_cut(keep=0).reopen()
    assert (log.start, log.log.local_start, log.end, log.damage) == (10, 100, 101, [])


def damage_file(log: LogFixture, name: str) -> None:
    log.checkpoint()
    log.disk.flip(f"{DIRECTORY}/{name}", 20, 0)
    log.reopen()
    assert [damage.path for damage in log.damage] == [f"{DIRECTORY}/{name}"]


def test_without_its_epochs_the_log_still_begins_in_the_archive(log: LogFixture) -> None:
    log.retain(archived_end=log.bases[3])
    local, bases = log.log.local_start, log.bases
    damage_file(log, "leader-epochs")
    for _ in range(2):
        assert (log.start, log.log.local_start, log.bases) == (0, local, bases)
        assert log.values(local) == VALUES[local:]
        log.log.epochs.must_be_rewritten()
        log.checkpoint().reopen()
    assert [damage.path for damage in log.damage] == [f"{DIRECTORY}/leader-epochs"]


EPOCHS = [EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in ((0, 0), (2, 9), (5, 17))]


@pytest.fixture
def in_epochs() -> LogFixture:
    """Return a log of which only the archive has the first of three leader epochs, and a part of the second."""
    log = LogFixture(ARCHIVED)
    for (epoch, start), end in zip(EPOCHS, (9, 17, len(VALUES)), strict=True):
        log.leader_epoch = epoch
        log.append(*VALUES[start:end])
    log.flush().retain(archived_end=next(base for base in log.bases if base > 9))
    assert 9 < log.log.local_start < 15
    return log


def test_leader_epochs_that_only_the_archive_has_stay_lost_until_it_is_asked(in_epochs: LogFixture) -> None:
    log = in_epochs
    damage_file(log, "leader-epochs")
    for _ in range(2):
        assert log.log.lacks_archived_epochs
        assert list(log.log.epochs) == [(2, log.log.local_start), EPOCHS[2]]
        log.checkpoint().reopen()
    log.log.restore_epochs(LeaderEpochs(tuple(EPOCHS[:2])), log.log.local_start)
    assert list(log.log.epochs) == EPOCHS
    log.checkpoint().reopen()
    assert (list(log.log.epochs), log.damage, log.log.lacks_archived_epochs) == (EPOCHS, [], False)


def test_a_damaged_batch_hides_no_epoch_of_those_after_it(in_epochs: LogFixture) -> None:
    segment = in_epochs.log.segment_of(15)
    assert segment is in_epochs.log.segment_of(17)
    in_epochs.checkpoint()
    in_epochs.disk.flip(segment.path, 100, 0)
    damage_file(in_epochs, "leader-epochs")
    assert list(in_epochs.log.epochs) == [(2, in_epochs.log.local_start), EPOCHS[2]]


def test_missing_epochs_of_archived_records_are_no_fault_of_the_disk(in_epochs: LogFixture) -> None:
    in_epochs.disk.remove(f"{DIRECTORY}/leader-epochs")
    in_epochs.kill().reopen()
    assert [type(damage) for damage in in_epochs.damage] == [Unfinished]
    assert in_epochs.log.lacks_archived_epochs


def test_an_empty_log_without_its_recovery_checkpoint_knows_the_epochs_before_it(log: LogFixture) -> None:
    before = ArchivedBeginning(0, LeaderEpochs(tuple(EPOCHS)), log.log.producers)
    log.truncate_fully(100, before)
    log._note(100)
    log.disk.flip(f"{DIRECTORY}/recovery", 20, 0)
    log.kill().reopen()
    assert (log.start, log.end, list(log.log.epochs), log.log.lacks_archived_epochs) == (0, 100, EPOCHS, False)


def test_a_log_without_any_files_lacks_the_epochs_of_archived_records(in_epochs: LogFixture) -> None:
    in_epochs.close().disk.remove_tree(DIRECTORY)
    assert in_epochs.reopen().log.lacks_archived_epochs


def test_restored_epochs_begin_at_the_log_start(in_epochs: LogFixture) -> None:
    damage_file(in_epochs, "leader-epochs")
    in_epochs.delete_records(4)
    in_epochs.log.restore_epochs(LeaderEpochs(tuple(EPOCHS[:2])), in_epochs.log.local_start)
    assert list(in_epochs.log.epochs) == [(0, 4), *EPOCHS[1:]]


def test_a_log_without_its_recovery_checkpoint_knows_the_leader_epochs_that_only_the_archive_has(
    in_epochs: LogFixture,
) -> None:
    damage_file(in_epochs, "recovery")
    assert (list(in_epochs.log.epochs), in_epochs.log.lacks_archived_epochs) == (EPOCHS, False)


def test_lost_leader_epochs_are_not_awaited_once_their_records_are_deleted(in_epochs: LogFixture) -> None:
    log = in_epochs
    damage_file(log, "leader-epochs")
    log.delete_records(log.log.local_start - 1)
    assert log.log.lacks_archived_epochs
    log.delete_records(log.log.local_start)
    assert not log.log.lacks_archived_epochs
    assert log.checkpoint().reopen().damage == []


def test_a_lost_log_start_is_not_taken_for_a_deletion_of_what_is_archived(log: LogFixture) -> None:
    log.retain(archived_end=log.bases[3])
    local = log.log.local_start
    damage_file(log, "recovery")
    assert (log.start, log.log.local_start) == (0, local)
    log.configure(is_archived=False)
    damage_file(log, "recovery")
    assert (log.start, log.log.local_start) == (local, local)


@pytest.mark.parametrize("is_archived", [True, False])
def test_a_log_without_any_files_is_not_taken_for_a_deletion_of_what_is_archived(*, is_archived: bool) -> None:
    log = LogFixture(replace(ARCHIVED, is_archived=is_archived)).append(*VALUES).flush().close()
    log.disk.remove_tree(DIRECTORY)
    log.reopen()
    assert (log.start, log.log.local_start, log.end) == (0 if is_archived else len(VALUES), len(VALUES), len(VALUES))
    assert log.damage
