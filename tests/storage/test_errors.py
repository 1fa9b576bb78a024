"""Classification of I/O errors: lacking resources, a failed disk, or damage to a range of bytes (disk rule 3)."""

import errno
from contextlib import closing

import pytest
from log_fixture import DIRECTORY, LogFixture

from cordwood.storage.config import LogConfig
from cordwood.storage.errors import (
    DamagedLog,
    DiskFailed,
    DiskFull,
    OutOfResources,
    StorageError,
    SyncFailed,
    change_failed,
    read_failed,
)
from cordwood.storage.index import Interval, load
from cordwood.storage.scrub import verify, view_of

MANY = [f"value {number}" for number in range(40)]


@pytest.fixture
def log() -> LogFixture:
    return LogFixture()


def of(code: int) -> OSError:
    return OSError(code, "text", "/file")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EMFILE, OutOfResources),
        (errno.ENFILE, OutOfResources),
        (errno.ENOMEM, OutOfResources),
        (errno.EAGAIN, OutOfResources),
        (errno.EINTR, OutOfResources),
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EIO, DiskFailed),
        (errno.EROFS, DiskFailed),
        (errno.ENOENT, DiskFailed),
    ],
)
def test_a_failed_change_is_for_another_time_or_final(code: int, kind: type[StorageError]) -> None:
    assert type(change_failed(of(code))) is kind


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ENOMEM, errno.EINTR])
def test_a_failed_sync_is_final_whatever_the_reason(code: int) -> None:
    assert type(change_failed(SyncFailed(code, "text", "/file"))) is DiskFailed


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EIO, DamagedLog),
        (errno.EUCLEAN, DamagedLog),
        (errno.ENOENT, DamagedLog),
        (errno.EMFILE, OutOfResources),
        (errno.ENOMEM, OutOfResources),
        (errno.ENODEV, DiskFailed),
    ],
)
def test_a_failed_read_is_damage_only_where_the_medium_says_so(code: int, kind: type[StorageError]) -> None:
    assert type(read_failed(of(code), "/file", 7)) is kind


def second_interval(log: LogFixture) -> Interval:
    return log.log.segments[0].index[1]


def test_a_range_that_cannot_be_read_is_damage_of_that_range_alone(log: LogFixture) -> None:
    log.append(*MANY).flush().close().reopen()
    bad = second_interval(log)
    log.disk.faults.fail_reads(log.path(0), bad.position + 1, bad.position + 2)
    with pytest.raises(DamagedLog) as caught:
        log.read(bad.offset)
    assert (caught.value.path, caught.value.position) == (log.path(0), bad.position)
    assert log.values(log.bases[1]) == MANY[log.bases[1] :]
    with pytest.raises(DamagedLog):
        log.values(0)
    assert 0 < len(log.read(0)) <= bad.position


def test_a_segment_that_is_gone_is_damage(log: LogFixture) -> None:
    log.append(*MANY).flush().close().reopen()
    log.disk.remove(log.path(0))
    with pytest.raises(DamagedLog, match=r"00\.log"):
        log.read(0)
    assert log.values(log.bases[1]) == MANY[log.bases[1] :]


def test_a_log_that_cannot_be_read_in_one_place_opens_without_it() -> None:
    log = LogFixture(config=LogConfig(segment_bytes=1 << 20, index_interval_bytes=1000))
    values = [letter * 2000 for letter in "abcdef"]
    log.append(*values[:2]).flush().checkpoint().append(*values[2:]).flush()
    bad = log.disk.content(log.path(0)).index(b"ddd") + 900
    log.disk.faults.fail_reads(log.path(0), bad, bad + 1)
    log.reopen()
    assert log.end == 6
    assert [damage.path for damage in log.damage] == [log.path(0)]
    assert log.values(4) == values[4:]
    with pytest.raises(DamagedLog):
        log.read(3)
    assert len(log.read(0)) > 3 * 2000


@pytest.mark.parametrize("part", [".log", ".index"])
def test_without_descriptors_a_read_is_refused_and_nothing_is_damaged(log: LogFixture, part: str) -> None:
    log.append(*MANY).flush().close().reopen()
    log.disk.faults.refuse_opens(part)
    with pytest.raises(OutOfResources):
        log.read(0)
    with pytest.raises(OutOfResources):
        list(verify(view_of(log.log)))
    log.disk.faults.heal()
    assert log.values() == MANY


def test_an_index_that_cannot_be_read_is_made_anew(log: LogFixture) -> None:
    log.append(*MANY).flush().close().reopen()
    log.disk.faults.fail_reads(log.path(0, "index"))
    assert log.values() == MANY
    damage = log.log.segments[0].take_index_damage()
    assert damage is not None
    assert damage.path == log.path(0, "index")


def test_a_checkpoint_that_cannot_be_read_is_damage_and_one_without_descriptors_is_not(log: LogFixture) -> None:
    log.append(*MANY).flush().checkpoint()
    log.disk.faults.fail_reads(f"{DIRECTORY}/recovery")
    log.reopen()
    assert [damage.path for damage in log.damage] == [f"{DIRECTORY}/recovery"]
    assert log.values() == MANY
    log.disk.faults.heal()
    log.disk.faults.refuse_opens("recovery")
    with pytest.raises(OutOfResources):
        log.reopen()


def test_what_was_written_of_a_refused_batch_is_not_found_after_a_shorter_one(log: LogFixture) -> None:
    log.append("a" * 300).flush()
    log.disk.faults.fail_next_write(log.path(0), after=250, code=errno.ENOMEM)
    with pytest.raises(OSError, match="allocate memory"):
        log.append("b" * 300)
    log.append("c").flush().kill().reopen()
    assert log.values() == ["a" * 300, "c"]
    assert log.damage == []


@pytest.mark.parametrize("after", [0, 4, 30])
def test_an_index_is_whole_again_after_a_write_of_it_that_failed(log: LogFixture, after: int) -> None:
    log.configure(segment_bytes=1 << 20)
    log.append(*MANY[:20]).flush().checkpoint().append(*MANY[20:]).flush()
    log.disk.faults.fail_next_write(".index", after=after, code=errno.ENOMEM)
    with pytest.raises(OSError, match="allocate memory"):
        log.checkpoint()
    log.append("last").flush().checkpoint().kill().reopen()
    assert log.damage == []
    with closing(log.disk.open(log.path(0, "index"))) as file:
        index, damage = load(file, 0)
    assert damage is None
    assert len(index) == len(log.log.segments[0].index)
