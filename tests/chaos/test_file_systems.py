"""File systems of brokers in chaos runs: what is kept of those in memory."""

import os
from pathlib import Path

import pytest
from requirements import Requirement, check

from cordwood.chaos.live.file_systems import MemoryFileSystem


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_files_of_a_file_system_in_memory_are_kept_where_they_are_wanted(tmp_path: Path, *, is_kept: bool) -> None:
    check(Requirement.ROOT, os.geteuid() == 0, "it mounts a file system")
    home = tmp_path / "disk-1"
    home.mkdir()
    with MemoryFileSystem(home / "device", 1 << 20, home if is_kept else None) as device:
        (device.path / "disk.ext4").write_bytes(b"image")
    assert list((home / "device").iterdir()) == []
    assert sorted(path.name for path in home.iterdir()) == (["device", "disk.ext4"] if is_kept else ["device"])
