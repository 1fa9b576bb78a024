"""The simulated disk: file contents and directory entries after a power cut, a kill, or a failure of the drive."""

import errno
import os
import random
from collections.abc import Callable

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.chaos.sim.pages import SECTOR_BYTES
from cordwood.storage.disk import File, sync_directory
from cordwood.storage.errors import SyncFailed

SEEDS = range(40)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(7))


def synced_file(disk: SimulatedDisk, path: str = "/f", content: bytes = b"") -> File:
    """Return an open file whose content and directory entry are synced."""
    file = disk.open(path, create=True)
    if content:
        file.pwrite([content], 0)
    file.sync()
    sync_directory(disk, "/")
    return file


def outcomes(scenario: Callable[[SimulatedDisk], None], keep: float | None = 0.5) -> set[bytes | None]:
    """Return the possible contents of `/f` after a story and a power cut; None where the file is gone."""
    found: set[bytes | None] = set()
    for seed in SEEDS:
        disk = SimulatedDisk(random.Random(seed))
        scenario(disk)
        disk.power_cut(keep)
        found.add(disk.content("/f") if disk.exists("/f") else None)
    return found


def test_synced_bytes_survive_a_power_cut(disk: SimulatedDisk) -> None:
    file = synced_file(disk, content=b"kept")
    file.pwrite([b"lost"], 4)
    disk.power_cut(keep=0)
    assert disk.content("/f") == b"kept"


def test_a_file_whose_entry_was_never_synced_is_gone(disk: SimulatedDisk) -> None:
    disk.open("/f", create=True).sync()
    disk.power_cut(keep=0)
    assert not disk.exists("/f")


def test_each_unsynced_sector_is_kept_or_lost_by_itself() -> None:
    sectors = [bytes([letter]) * SECTOR_BYTES for letter in b"abc"]

    def scenario(disk: SimulatedDisk) -> None:
        file = synced_file(disk, content=bytes(3 * SECTOR_BYTES))
        file.pwrite([b"".join(sectors)], 0)

    contents = outcomes(scenario)
    kept = {tuple(any(content[i * SECTOR_BYTES :][:SECTOR_BYTES]) for i in range(3)) for content in contents if content}
    assert len(kept) == 8, "every one of the 2³ combinations"


def test_a_sector_is_never_torn() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        synced_file(disk, content=b"a" * SECTOR_BYTES).pwrite([b"b" * SECTOR_BYTES], 0)

    assert outcomes(scenario) == {b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES}


def test_a_file_that_grew_may_be_short_zero_or_whole() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        synced_file(disk).pwrite([b"a" * 2 * SECTOR_BYTES], 0)

    lengths = {len(content) for content in outcomes(scenario) if content is not None}
    assert {0, 2 * SECTOR_BYTES} < lengths
    assert outcomes(scenario, keep=1) == {b"a" * 2 * SECTOR_BYTES}
    assert outcomes(scenario, keep=0) == {b""}


def test_reserved_space_that_was_not_synced_may_vanish() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        synced_file(disk, content=b"abc").preallocate(3, 1000)

    assert {b"abc", b"abc" + bytes(1000)} <= outcomes(scenario)


def test_what_was_truncated_may_come_back() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        synced_file(disk, content=b"abcdef").truncate(2)

    assert {b"ab", b"abcdef"} <= outcomes(scenario)


def test_what_was_truncated_and_synced_stays_away(disk: SimulatedDisk) -> None:
    file = synced_file(disk, content=b"abcdef")
    file.truncate(2)
    file.preallocate(2, 2)
    file.sync()
    disk.power_cut(keep=1)
    assert disk.content("/f") == b"ab\0\0"


def test_a_rename_may_revert() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        synced_file(disk, content=b"old")
        synced_file(disk, "/new", b"new")
        disk.rename("/new", "/f")

    assert outcomes(scenario) == {b"old", b"new"}


def test_a_rename_of_unsynced_bytes_may_leave_an_empty_file() -> None:
    def scenario(disk: SimulatedDisk) -> None:
        synced_file(disk, content=b"old")
        disk.open("/new", create=True).pwrite([b"new"], 0)
        disk.rename("/new", "/f")
        sync_directory(disk, "/")

    assert outcomes(scenario, keep=0) == {b""}


def test_a_removed_file_may_come_back(disk: SimulatedDisk) -> None:
    synced_file(disk, content=b"back")
    disk.remove("/f")
    disk.power_cut(keep=0)
    assert disk.content("/f") == b"back"


def test_a_synced_removal_is_final(disk: SimulatedDisk) -> None:
    synced_file(disk)
    disk.remove("/f")
    sync_directory(disk, "/")
    disk.power_cut(keep=1)
    assert not disk.exists("/f")


def test_a_directory_loses_its_newest_changes_first() -> None:
    left = set()
    for seed in SEEDS:
        disk = SimulatedDisk(random.Random(seed))
        for name in "abc":
            disk.open(f"/{name}", create=True)
        disk.power_cut(keep=0.7)
        left.add("".join(disk.list_directory("/")))
    assert left == {"", "a", "ab", "abc"}


def test_an_unsynced_directory_takes_its_files_with_it(disk: SimulatedDisk) -> None:
    disk.make_directories("/a/b")
    disk.open("/a/b/f", create=True).sync()
    sync_directory(disk, "/a/b")
    sync_directory(disk, "/")
    disk.power_cut(keep=0)
    assert disk.list_directory("/a") == []


def test_a_file_moved_between_directories_is_in_one_of_them(disk: SimulatedDisk) -> None:
    disk.make_directories("/a")
    disk.make_directories("/b")
    sync_directory(disk, "/")
    disk.open("/a/f", create=True)
    disk.rename("/a/f", "/b/f")
    sync_directory(disk, "/b")
    disk.power_cut(keep=1)
    assert (disk.list_directory("/a"), disk.list_directory("/b")) == ([], ["f"])


def test_a_kill_loses_nothing_but_the_handles(disk: SimulatedDisk) -> None:
    file = disk.open("/f", create=True)
    file.pwrite([b"abc"], 0)
    disk.kill()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite([b"xyz"], 0)
    file.close()
    assert disk.content("/f") == b"abc"


def test_what_a_kill_left_in_memory_a_later_power_cut_may_still_take(disk: SimulatedDisk) -> None:
    synced_file(disk).pwrite([b"abc"], 0)
    disk.kill()
    assert disk.content("/f") == b"abc"
    disk.power_cut(keep=0)
    assert disk.content("/f") == b""


def test_a_process_may_die_within_any_change(disk: SimulatedDisk) -> None:
    file = synced_file(disk)
    disk.faults.die_after(1)
    file.pwrite([b"abc"], 0)
    with pytest.raises(Died):
        file.pwrite([b"def" * 1000], 3)
    content = disk.content("/f")
    assert content.startswith(b"abc")
    assert (b"abc" + b"def" * 1000).startswith(content)
    assert len(content) in (3, 3003) or len(content) % SECTOR_BYTES == 0
    disk.open("/g", create=True).pwrite([b"the next process is well"], 0)


def test_a_failed_sync_loses_what_later_syncs_claim(disk: SimulatedDisk) -> None:
    file = synced_file(disk, content=b"old")
    file.pwrite([b"new"], 0)
    disk.faults.fail_next_sync("/f")
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    assert disk.content("/f") == b"new"
    disk.power_cut(keep=1)
    assert disk.content("/f") == b"old"


def test_a_failed_directory_sync_loses_its_entries(disk: SimulatedDisk) -> None:
    disk.open("/f", create=True)
    disk.faults.fail_next_sync()
    with pytest.raises(OSError, match="Input/output error"):
        sync_directory(disk, "/")
    sync_directory(disk, "/")
    disk.power_cut(keep=1)
    assert not disk.exists("/f")


def test_a_full_disk_takes_what_fits_and_no_more(disk: SimulatedDisk) -> None:
    file = synced_file(disk, content=b"abc")
    disk.leave_free(2)
    with pytest.raises(OSError, match="No space left") as full:
        file.pwrite([b"defg"], 3)
    assert full.value.errno == errno.ENOSPC
    assert disk.content("/f") == b"abcde"
    file.pwrite([b"ABC"], 0)
    assert disk.free_bytes("/") == 0


def test_space_that_is_not_there_is_not_reserved(disk: SimulatedDisk) -> None:
    file = synced_file(disk, content=b"abc")
    disk.leave_free(99)
    with pytest.raises(OSError, match="No space left"):
        file.preallocate(3, 100)
    file.preallocate(3, 99)
    assert file.size() == 102


def test_a_write_that_breaks_off_leaves_its_beginning(disk: SimulatedDisk) -> None:
    file = synced_file(disk)
    disk.faults.fail_next_write(after=2)
    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite([b"abc"], 0)
    assert disk.content("/f") == b"ab"


def test_a_bad_sector_cannot_be_read_until_faults_end(disk: SimulatedDisk) -> None:
    file = synced_file(disk, content=b"abcdef")
    disk.faults.fail_reads("/f", 2, 4)
    assert file.pread(2, 0) == b"ab"
    with pytest.raises(OSError, match="Input/output error"):
        file.pread(2, 3)
    disk.faults.heal()
    assert file.pread(2, 3) == b"de"


def test_a_flipped_byte_is_rotten_until_it_is_written_again(disk: SimulatedDisk) -> None:
    disk.open("/f", create=True).pwrite([b"abc"], 0)
    disk.flip("/f", 1, 0)
    pages = disk.pages("/f")
    assert pages.is_corrupt(0, 3)
    assert not pages.is_corrupt(0, 1)
    assert not pages.is_corrupt(2, 3)
    disk.open("/f").pwrite([b"b"], 1)
    assert not pages.is_corrupt(0, 3)


def test_a_byte_that_was_zero_is_not_corrupted_by_zeros(disk: SimulatedDisk) -> None:
    file = disk.open("/f", create=True)
    file.pwrite([b"a\0b"], 0)
    disk.zero("/f", 1, 2)
    pages = disk.pages("/f")
    assert (file.pread(3, 0), pages.is_corrupt(1, 2), pages.is_corrupt(2, 3)) == (b"a\0\0", False, True)


def test_a_flipped_bit_stays_flipped(disk: SimulatedDisk) -> None:
    synced_file(disk, content=b"abc")
    disk.flip("/f", 1, 0)
    assert disk.content("/f") == b"acc"
    disk.power_cut()
    assert disk.content("/f") == b"acc"
    with pytest.raises(IndexError):
        disk.flip("/f", 3, 0)


def test_only_the_first_unsynced_bytes_are_kept_if_a_test_says_so(disk: SimulatedDisk) -> None:
    file = synced_file(disk, content=b"abc")
    file.preallocate(3, 1000)
    file.pwrite([b"defghi"], 3)
    disk.power_cut_keeping(2)
    assert disk.content("/f") == b"abcde"


def test_a_cold_file_is_not_in_memory_until_it_was_read(disk: SimulatedDisk) -> None:
    file = synced_file(disk, content=b"abc")
    disk.cool()
    assert file.pread_cached(3, 0) is None
    assert file.pread(3, 0) == file.pread_cached(3, 0) == b"abc"


def test_equal_seeds_give_equal_disks() -> None:
    def scenario(seed: int) -> dict[str, bytes]:
        disk = SimulatedDisk(random.Random(seed))
        for name in "abcdef":
            file = disk.open(f"/{name}", create=True)
            file.pwrite([name.encode() * 3000], 0)
        sync_directory(disk, "/")
        disk.power_cut()
        return {path: disk.content(path) for path in disk.files()}

    assert all(scenario(seed) == scenario(seed) for seed in SEEDS)
    assert scenario(3) != scenario(4)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_opening_is_refused_until_faults_end_and_open_files_stay(disk: SimulatedDisk, code: int) -> None:
    disk.make_directories("/d")
    kept = disk.open("/d/f", create=True)
    disk.faults.refuse_opens("/d", code=code)
    for refused in (disk.open, disk.open_directory, disk.remove_tree):
        with pytest.raises(OSError, match=os.strerror(code)):
            refused("/d")
    kept.pwrite([b"x"], 0)
    disk.open("/elsewhere", create=True)
    disk.faults.heal()
    assert disk.open("/d/f").pread(1, 0) == b"x"


def test_a_failed_sync_says_that_it_was_one(disk: SimulatedDisk) -> None:
    file = disk.open("/f", create=True)
    disk.faults.fail_next_sync(code=errno.ENOSPC)
    with pytest.raises(SyncFailed, match="No space"):
        file.sync()
    file.sync()


def test_an_open_file_is_counted_until_its_last_handle_is_closed(disk: SimulatedDisk) -> None:
    files = [disk.open(f"/{number}", create=True) for number in range(3)]
    assert disk.open_count == 3
    files.pop().close()
    files.pop()
    assert disk.open_count == 1
    disk.kill()
    assert disk.open_count == 0
