"""Checkpoint files: atomic replacement over power cuts, failed syncs and full disks, and detection of damage."""

import random

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.storage import checkpoint
from cordwood.storage.disk import sync_directory
from cordwood.storage.errors import DamagedLog

PATH = "/d/checkpoint"
OLD, NEW = b"old" * 10, b"newer" * 300


def disk_with(payload: bytes | None, seed: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(seed))
    disk.make_directories("/d")
    sync_directory(disk, "/")
    if payload is not None:
        checkpoint.write(disk, PATH, payload)
    return disk


@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 100_000])
def test_what_was_written_survives_a_power_cut(payload: bytes) -> None:
    disk = disk_with(payload)
    disk.power_cut(keep=0)
    assert checkpoint.read(disk, PATH) == payload


def test_a_file_that_was_never_written_is_none() -> None:
    assert checkpoint.read(disk_with(None), PATH) is None


@pytest.mark.parametrize("seed", range(30))
def test_after_a_power_cut_at_any_step_it_holds_the_old_or_the_new(seed: int) -> None:
    for step in range(12):
        disk = disk_with(OLD, seed)
        disk.faults.die_after(step)
        try:
            checkpoint.write(disk, PATH, NEW)
        except Died:
            pass
        else:
            assert step >= 5, "create, write, sync, rename, sync of the directory"
            return
        disk.power_cut()
        assert checkpoint.read(disk, PATH) in (OLD, NEW)
        checkpoint.write(disk, PATH, NEW)
        disk.power_cut(keep=0)
        assert checkpoint.read(disk, PATH) == NEW


def test_what_an_interrupted_attempt_left_does_no_harm() -> None:
    disk = disk_with(OLD)
    disk.faults.die_after(3)
    with pytest.raises(Died):
        checkpoint.write(disk, PATH, NEW * 10)
    disk.kill()
    checkpoint.write(disk, PATH, b"short")
    assert checkpoint.read(disk, PATH) == b"short"


def test_a_sync_that_fails_leaves_the_old_payload() -> None:
    disk = disk_with(OLD)
    disk.faults.fail_next_sync(PATH)
    with pytest.raises(OSError, match="Input/output"):
        checkpoint.write(disk, PATH, NEW)
    assert checkpoint.read(disk, PATH) == OLD


def test_a_full_disk_leaves_the_old_payload() -> None:
    disk = disk_with(OLD)
    disk.leave_free(10)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.write(disk, PATH, NEW)
    assert checkpoint.read(disk, PATH) == OLD


def test_every_flipped_bit_is_damage() -> None:
    disk = disk_with(OLD)
    for position in range(len(disk.content(PATH))):
        for bit in range(8):
            disk.flip(PATH, position, bit)
            with pytest.raises(DamagedLog, match="checkpoint is damaged at byte"):
                checkpoint.read(disk, PATH)
            disk.flip(PATH, position, bit)


def test_every_missing_end_is_damage() -> None:
    disk = disk_with(OLD)
    whole = len(disk.content(PATH))
    for length in reversed(range(whole)):
        disk.open(PATH).truncate(length)
        with pytest.raises(DamagedLog):
            checkpoint.read(disk, PATH)
