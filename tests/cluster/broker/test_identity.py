"""The identity file of a log directory: its owner, repair of the file, and no new cluster if metadata is missing."""

import random
from uuid import UUID

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.broker.identity import Claim, WrongDirectory, claim, is_damaged, refuse_to_found

HERE, THERE = UUID(int=1), UUID(int=2)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(1))
    disk.make_directories("/data")
    return disk


def test_a_directory_keeps_its_first_owner(disk: SimulatedDisk) -> None:
    assert claim(disk, "/data", "cluster", 1, HERE) == Claim(HERE)
    assert claim(disk, "/data", "cluster", 1, THERE) == Claim(HERE)
    with pytest.raises(WrongDirectory, match="belongs to broker 1"):
        claim(disk, "/data", "cluster", 2, THERE)
    with pytest.raises(WrongDirectory, match="belongs to cluster cluster"):
        claim(disk, "/data", "another", 1, THERE)


def test_a_damaged_identity_is_named_and_written_anew(disk: SimulatedDisk) -> None:
    claim(disk, "/data", "cluster", 1, HERE)
    disk.flip("/data/identity", 20, 3)
    assert is_damaged(disk, "/data")
    claimed = claim(disk, "/data", "cluster", 1, HERE)
    assert claimed.damage is not None
    assert claimed.damage.path == "/data/identity"
    assert claim(disk, "/data", "cluster", 1, THERE) == Claim(HERE)


def test_no_cluster_is_founded_where_one_has_lost_its_metadata(disk: SimulatedDisk) -> None:
    refuse_to_found(disk, "/data/metadata", ["/data"])
    claim(disk, "/data", "cluster", 1, HERE)
    with pytest.raises(WrongDirectory, match="metadata is missing"):
        refuse_to_found(disk, "/data/metadata", ["/data"])
    disk.make_directories("/data/metadata/copy")
    disk.open("/data/metadata/copy/journal", create=True)
    refuse_to_found(disk, "/data/metadata", ["/data"])
