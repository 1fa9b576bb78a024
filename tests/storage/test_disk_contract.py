"""The contract of `Disk`: one suite for the real and the simulated disk."""

import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from requirements import Requirement, needs

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.storage import real_disk
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.real_disk import RealDisk

MEMORY = "/dev/shm"


@dataclass(frozen=True, slots=True)
class Place:
    """A disk and an empty directory on it."""

    disk: Disk
    path: str

    def write(self, name: str, content: bytes) -> None:
        file = self.disk.open(f"{self.path}/{name}", create=True)
        file.pwrite([content], 0)
        file.close()

    def read(self, name: str) -> bytes:
        file = self.disk.open(f"{self.path}/{name}")
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "real":
        yield Place(RealDisk(), str(tmp_path))
    else:
        disk = SimulatedDisk(random.Random(1))
        disk.make_directories("/place")
        yield Place(disk, "/place")


def test_bytes_are_read_back_where_they_were_written(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.pwrite([b"abc", memoryview(b"def"), bytearray(b"g")], 0)
    file.pwrite([b"XY"], 2)
    assert file.pread(100, 0) == b"abXYefg"
    assert file.pread(2, 1) == b"bX"
    assert file.size() == 7


def test_a_read_past_the_end_is_short(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.pwrite([b"abc"], 0)
    assert file.pread(10, 2) == b"c"
    assert file.pread(10, 3) == file.pread(10, 1000) == b""


def test_a_write_past_the_end_leaves_zeros_between(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.pwrite([b"z"], 3)
    assert file.pread(10, 0) == b"\0\0\0z"


def test_what_memory_has_is_read_without_waiting_or_not_at_all(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.pwrite([b"abcdef"], 0)
    file.sync()
    assert file.pread_cached(3, 2) in (b"cde", None)


def test_an_empty_file_is_not_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4 would write what follows to the disk as soon as the file is closed, and delay the syncs of others."""
    truncated: list[int] = []
    truncate = os.ftruncate

    def noted(descriptor: int, size: int) -> None:
        truncated.append(size)
        truncate(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", noted)
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    file.truncate(0)
    assert truncated == []
    file.pwrite([b"abc"], 0)
    file.truncate(0)
    file.truncate(2)
    assert (truncated, file.size()) == ([0, 2], 2)


@needs(Requirement.TMPFS, os.access(MEMORY, os.W_OK), f"there is no file system in memory at {MEMORY}")
def test_a_file_system_that_does_not_know_what_is_in_memory_is_read_all_the_same() -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as path:
        file = RealDisk().open(f"{path}/f", create=True)
        file.pwrite([b"abcdef"], 0)
        assert file.pread_cached(3, 2) == b"cde"


def test_a_short_answer_is_never_taken_from_memory_for_a_whole_one(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.pwrite([b"abc"], 0)
    assert file.pread_cached(10, 0) in (b"abc", None)


def test_a_range_that_is_written_back_is_as_it_was(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    for position in (0, 3, 6):
        file.pwrite([b"abc"], position)
        file.write_back(position, 3)
    assert file.pread(10, 0) == b"abcabcabc"
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_back(0, 3)


def test_the_kernel_is_asked_for_a_range_and_waited_for_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int, int]] = []

    def sync_file_range(_descriptor: int, position: int, length: int, flag: int) -> int:
        asked.append((position, length, flag))
        return 0

    monkeypatch.setattr(real_disk, "_sync_file_range", sync_file_range)
    file = RealDisk().open(f"{tmp_path}/f", create=True)
    for position, length in ((0, 10), (10, 4), (14, 20)):
        file.write_back(position, length)
    write, wait = 2, 1
    assert asked == [(0, 10, write), (10, 4, write), (6, 4, wait), (14, 20, write), (0, 14, wait)]


def test_a_system_without_ranges_syncs_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(real_disk, "_sync_file_range", None)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    file = RealDisk().open(f"{tmp_path}/f", create=True)
    file.write_back(10, 10)
    assert synced == [file.fileno()]


def test_reserved_space_is_zero_and_grows_the_file(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.pwrite([b"abc"], 0)
    file.preallocate(3, 5000)
    assert file.size() == 5003
    assert file.pread(5003, 0) == b"abc" + bytes(5000)


def test_reserving_what_is_there_changes_nothing(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.pwrite([b"abcdef"], 0)
    file.preallocate(0, 3)
    assert file.pread(10, 0) == b"abcdef"


def test_a_truncated_file_forgets_what_it_held(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.pwrite([b"abcdef"], 0)
    file.truncate(2)
    assert (file.size(), file.pread(10, 0)) == (2, b"ab")
    file.truncate(5)
    assert file.pread(10, 0) == b"ab\0\0\0"


def test_two_handles_see_one_file(place: Place) -> None:
    one = place.disk.open(f"{place.path}/f", create=True)
    other = place.disk.open(f"{place.path}/f")
    one.pwrite([b"abc"], 0)
    assert other.pread(3, 0) == b"abc"


def test_opening_to_create_keeps_what_is_there(place: Place) -> None:
    place.write("f", b"abc")
    file = place.disk.open(f"{place.path}/f", create=True)
    assert file.pread(3, 0) == b"abc"
    assert file.path == f"{place.path}/f"


def test_a_missing_file_is_not_made_by_opening_it(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.open(f"{place.path}/nothing")
    assert not place.disk.exists(f"{place.path}/nothing")


def test_a_file_is_not_made_in_a_missing_directory(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.open(f"{place.path}/nowhere/f", create=True)


def test_names_are_listed_in_order(place: Place) -> None:
    for name in ("b", "a", "c"):
        place.write(name, b"")
    place.disk.make_directories(f"{place.path}/aa")
    assert place.disk.list_directory(place.path) == ["a", "aa", "b", "c"]


def test_what_is_no_directory_cannot_be_listed(place: Place) -> None:
    place.write("f", b"")
    with pytest.raises(FileNotFoundError):
        place.disk.list_directory(f"{place.path}/nowhere")
    with pytest.raises(NotADirectoryError):
        place.disk.list_directory(f"{place.path}/f")


def test_directories_are_made_with_their_parents(place: Place) -> None:
    changed = place.disk.make_directories(f"{place.path}/a/b/c")
    assert changed == [place.path, f"{place.path}/a", f"{place.path}/a/b"]
    assert place.disk.make_directories(f"{place.path}/a/b/c") == []
    assert place.disk.list_directory(f"{place.path}/a/b") == ["c"]


def test_a_renamed_file_replaces_its_target(place: Place) -> None:
    place.write("old", b"old")
    place.write("new", b"new")
    place.disk.rename(f"{place.path}/new", f"{place.path}/old")
    assert place.read("old") == b"new"
    assert place.disk.list_directory(place.path) == ["old"]


def test_a_directory_is_renamed_with_what_is_in_it(place: Place) -> None:
    place.disk.make_directories(f"{place.path}/a")
    place.write("a/f", b"abc")
    place.disk.rename(f"{place.path}/a", f"{place.path}/b")
    assert place.read("b/f") == b"abc"
    assert not place.disk.exists(f"{place.path}/a")


def test_what_is_missing_cannot_be_renamed_or_removed(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.rename(f"{place.path}/nothing", f"{place.path}/f")
    with pytest.raises(FileNotFoundError):
        place.disk.remove(f"{place.path}/nothing")
    with pytest.raises(FileNotFoundError):
        place.disk.remove_tree(f"{place.path}/nothing")


def test_a_removed_file_lives_on_for_those_who_hold_it(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.pwrite([b"abc"], 0)
    place.disk.remove(f"{place.path}/f")
    assert place.disk.list_directory(place.path) == []
    assert file.pread(3, 0) == b"abc"


def test_a_file_loses_its_end_unless_it_is_too_short_for_that(place: Place) -> None:
    place.write("f", b"abcde")
    assert [place.disk.shrink(f"{place.path}/f", 2) for _ in range(3)] == [5, 3, 1]
    assert place.read("f") == b"a"
    assert place.disk.shrink(place.path, 0) == 0, "it is a directory"
    with pytest.raises(FileNotFoundError):
        place.disk.shrink(f"{place.path}/nothing", 2)


def test_a_tree_goes_with_everything_in_it(place: Place) -> None:
    place.disk.make_directories(f"{place.path}/a/b")
    place.write("a/b/f", b"abc")
    place.write("a/g", b"abc")
    place.disk.remove_tree(f"{place.path}/a")
    assert place.disk.list_directory(place.path) == []


def test_files_and_directories_can_be_synced(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.pwrite([b"abc"], 0)
    file.sync()
    sync_directory(place.disk, place.path)
    assert file.pread(3, 0) == b"abc"


def test_only_directories_are_opened_as_directories(place: Place) -> None:
    place.write("f", b"")
    with pytest.raises(NotADirectoryError):
        place.disk.open_directory(f"{place.path}/f")
    with pytest.raises(FileNotFoundError):
        place.disk.open_directory(f"{place.path}/nowhere")


def test_a_closed_file_refuses_and_closes_again_in_peace(place: Place) -> None:
    file = place.disk.open(f"{place.path}/f", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)


def test_there_is_free_space(place: Place) -> None:
    assert 0 < place.disk.free_bytes(place.path) <= place.disk.total_bytes(place.path)
