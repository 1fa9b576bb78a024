"""The quarantine of damaged segments: a bounded number of copies, the newest first, and enough free space left."""

import random

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.storage.quarantine import COPIES_MAX, ROOM_LEFT_BYTES, keep

PLACE = "/data/quarantine"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(1))
    disk.make_directories("/data")
    disk.open("/data/0.log", create=True).pwrite([b"rotten"], 0)
    return disk


def copy(disk: SimulatedDisk) -> str | None:
    return keep(disk, PLACE, "t-0-0", ("/data/0.log", "/data/0.index"))


def test_a_copy_is_what_there_was_of_the_files(disk: SimulatedDisk) -> None:
    place = copy(disk)
    assert place == f"{PLACE}/t-0-0-1"
    assert [(path, disk.content(path)) for path in disk.files() if path.startswith(PLACE)] == [
        (f"{place}/0.log", b"rotten")
    ]


def test_the_oldest_copies_make_way(disk: SimulatedDisk) -> None:
    for _ in range(COPIES_MAX + 3):
        copy(disk)
    numbers = sorted(int(name.rpartition("-")[2]) for name in disk.list_directory(PLACE))
    assert numbers == list(range(4, COPIES_MAX + 4))


def test_nothing_is_kept_where_room_is_scarce(disk: SimulatedDisk) -> None:
    disk.leave_free(ROOM_LEFT_BYTES)
    assert copy(disk) is None
    assert disk.list_directory(PLACE) == []


def test_what_cannot_be_read_is_zeros_in_the_copy(disk: SimulatedDisk) -> None:
    disk.faults.fail_reads("/data/0.log")
    place = copy(disk)
    assert disk.content(f"{place}/0.log") == bytes(6)
