"""Changes of a log while a group commit or a checkpoint of it is under way."""

import pytest
from log_fixture import DIRECTORY, LogFixture

from cordwood.storage.errors import TruncationUnsynced
from cordwood.storage.state import write_checkpoint

TEN = [f"value-{number}" for number in range(10)]


def test_a_group_commit_does_not_cover_a_truncation_after_it_began() -> None:
    log = LogFixture().append(*TEN)
    log.truncate(8)
    log.log.truncate(7)
    pending = log.log.begin_flush()
    log.log.truncate(5)
    log.log.flushed(pending)
    with pytest.raises(TruncationUnsynced):
        log.append("too early")
    assert (log.log.flushed_end, log.log.has_unsynced_truncation) == (5, True)
    assert log.flush().append("in time").end == 6


def test_a_log_that_begins_anew_takes_records_once_that_is_on_disk() -> None:
    log = LogFixture().append(*TEN).flush()
    log.log.truncate_fully(20)
    for _ in range(2):
        with pytest.raises(TruncationUnsynced):
            log.append("too early")
        log.flush()
    assert (log.start, log.log.flushed_start) == (20, 0)
    log.log.begun_anew()
    assert log.log.flushed_start == 20
    assert log.append("in time").values() == ["in time"]


def test_a_group_commit_covers_nothing_of_a_log_that_began_anew_below_it() -> None:
    log = LogFixture().append(*TEN)
    pending = log.log.begin_flush()
    log.log.truncate_fully(4)
    log.log.flushed(pending)
    assert (log.log.flushed_end, log.log.has_unsynced_truncation) == (4, True)


def test_a_log_start_that_is_raised_during_a_checkpoint_is_not_on_disk() -> None:
    log = LogFixture().append(*TEN).flush().delete_records(3)
    state = log.log.state()
    log.delete_records(6)
    write_checkpoint(log.disk, DIRECTORY, state)
    log.log.checkpoint_written(state)
    assert (log.start, log.log.flushed_start) == (6, 3)
    assert log.checkpoint().log.flushed_start == 6


def test_what_no_checkpoint_has_written_is_in_the_next_one() -> None:
    log = LogFixture().append(*TEN).flush()
    log.log.replaced.new_names = ("first",)
    failed = log.log.state()
    again = log.log.state()
    assert failed.epochs is not None
    assert (again.epochs, again.new_names) == (failed.epochs, ("first",))
    log.log.replaced.new_names = ("first", "second")
    log.log.checkpoint_written(again)
    after = log.log.state()
    assert (after.epochs, after.new_names) == (None, ("second",))


def test_aborted_rows_replace_the_file_if_a_write_of_them_failed() -> None:
    log = LogFixture()
    log.send(0, "a", transactional=True)
    log.abort()
    log.flush().checkpoint()
    log.send(1, "b", transactional=True)
    log.abort()
    log.flush()
    state = log.log.state()
    assert [rows.is_whole for rows in state.aborted] == [False]
    log.disk.faults.fail_next_write(".txnindex")
    with pytest.raises(OSError, match="txnindex"):
        write_checkpoint(log.disk, DIRECTORY, state)
    assert [(rows.is_whole, rows.count) for rows in log.log.state().aborted] == [(True, 2)]


def test_a_checkpoint_ends_the_count_of_bytes_to_read_again() -> None:
    log = LogFixture().append(*TEN).flush()
    assert log.log.uncheckpointed_bytes == log.log.size
    assert log.checkpoint().log.uncheckpointed_bytes == 0


def test_a_checkpoint_lists_no_aborted_transaction_that_is_not_flushed() -> None:
    log = LogFixture()
    log.send(0, "a", transactional=True)
    log.flush()
    log.abort()
    log.checkpoint().power_cut(keep=0).reopen()
    assert (log.damage, log.end, log.last_stable()) == ([], 1, 0)


def test_a_truncation_takes_back_what_was_compacted() -> None:
    log = LogFixture().append(*(f"value-{number:02}" for number in range(60))).flush().checkpoint()
    log.log.clean_end = log.bases[2]
    log.checkpoint().truncate(5)
    assert log.log.clean_end == 5
    assert log.reopen().log.clean_end == 5


def test_a_restart_knows_that_its_log_start_is_on_disk() -> None:
    log = LogFixture().append(*TEN).flush().delete_records(3).checkpoint().reopen()
    assert (log.start, log.log.flushed_start) == (3, 3)


def test_a_log_start_takes_the_leader_epochs_before_it_along() -> None:
    log = LogFixture().append("a", "b")
    log.leader_epoch = 4
    log.append("c", "d").flush().delete_records(3)
    assert [tuple(start) for start in log.log.epochs] == [(4, 3)]
