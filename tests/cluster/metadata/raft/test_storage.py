"""A voter's state on disk as read at start, and the findings of `cordwood log verify`."""

import random

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.quorum import DIRECTORY, SimulatedQuorum, formed, run
from cordwood.cluster.broker.verify import verify
from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.journal import Journal, JournalEntry
from cordwood.cluster.metadata.packed import pack
from cordwood.cluster.metadata.raft import storage
from cordwood.cluster.metadata.raft.messages import Standing
from cordwood.cluster.metadata.snapshot import NewerVersion, Snapshot
from cordwood.storage import checkpoint

JOURNAL = f"{DIRECTORY}/journal"


def disk_with(*entries: tuple[int, int], image: tuple[int, int] | None = None, vote: int = 3) -> SimulatedDisk:
    """Return a member's disk with entries, given as index and term, and optionally a snapshot at an index and term."""
    disk = SimulatedDisk(random.Random(1))
    disk.make_directories(DIRECTORY)
    journal = Journal.open(disk, JOURNAL)
    journal.set_vote(vote, "2")
    journal.append(JournalEntry(index, term, b"entry") for index, term in entries)
    journal.close()
    if image is not None:
        index, term = image
        snapshot.write(disk, DIRECTORY, Snapshot(Image(index, "cluster"), term))
    storage.write_standing(disk, DIRECTORY, Standing.MEMBER)
    return disk


def test_a_new_directory_is_that_of_a_voter_that_remembers_nothing() -> None:
    disk = SimulatedDisk(random.Random(1))
    assert storage.read(disk, DIRECTORY).standing is Standing.EMPTY
    assert storage.read(disk, DIRECTORY).standing is Standing.EMPTY


def test_an_entry_counts_as_committed_after_a_restart_once_it_is_on_this_disk() -> None:
    """The rest of a quorum may commit an entry that this voter loses in a power failure."""
    log = storage.read(disk_with((1, 1)), DIRECTORY).log
    log.begin_flush()
    log.extend(((b"entry", 2, 1),))
    log.end_flush(commit_index=2)
    assert log.getRaftCommitIndex() == 1
    log.flush(commit_index=2)
    assert log.getRaftCommitIndex() == 2


def test_nothing_is_committed_after_the_last_entry() -> None:
    """The snapshot has taken the place of all entries, since another one was at its index."""
    disk = disk_with((4, 1), (5, 1), (6, 1), image=(5, 2))
    journal = Journal.open(disk, JOURNAL)
    journal.synced(journal.end, 6)
    journal.close()
    log = storage.read(disk, DIRECTORY).log
    assert (log.end, log.getRaftCommitIndex()) == (5, 5)


def test_a_founder_is_a_member_once_it_has_voted() -> None:
    disk = SimulatedDisk(random.Random(1))
    log = storage.read(disk, DIRECTORY).log
    storage.write_standing(disk, DIRECTORY, Standing.FOUNDING)
    assert storage.read(disk, DIRECTORY).standing is Standing.FOUNDING
    log.setCurrentTerm(1, 1)
    assert storage.read(disk, DIRECTORY).standing is Standing.MEMBER


@pytest.mark.parametrize(
    ("entries", "image", "base", "end"),
    [
        (((1, 1), (2, 1)), None, 0, 2),
        (((1, 1), (2, 1), (3, 1)), (2, 1), 1, 3),
        (((3, 1), (4, 2)), (2, 1), 2, 4),
        ((), (2, 1), 2, 2),
        (((1, 1),), (5, 2), 5, 5),
        (((4, 1), (5, 1), (6, 1)), (5, 2), 5, 5),
    ],
)
def test_the_log_begins_where_the_snapshot_lets_it(
    entries: tuple[tuple[int, int], ...], image: tuple[int, int] | None, base: int, end: int
) -> None:
    disk = disk_with(*entries, image=image)
    for _ in range(2):
        stored = storage.read(disk, DIRECTORY)
        assert stored.damage == []
        assert (stored.log.base_index, stored.log.end) == (base, end)
        assert (stored.log.getCurrentTerm(), stored.log.getVotedForNodeId()) == (3, 2)


def test_a_gap_after_the_snapshot_is_damage() -> None:
    stored = storage.read(disk_with((5, 1), image=(2, 1)), DIRECTORY)
    assert stored.standing is Standing.AMNESIAC
    assert "the journal starts at entry 5" in stored.damage[0].what
    assert stored.log.end == 0


@pytest.mark.parametrize("name", ["journal", "standing"])
def test_a_file_that_is_gone_is_damage(name: str) -> None:
    disk = disk_with((1, 1))
    disk.remove(f"{DIRECTORY}/{name}")
    stored = storage.read(disk, DIRECTORY)
    assert stored.standing is Standing.AMNESIAC
    assert stored.damage[0].what == "the file is missing"


def test_the_last_entry_is_vouched_for_once_it_was_read_back() -> None:
    disk = disk_with((1, 1), (2, 1))
    storage.read(disk, DIRECTORY).log.close()
    disk.flip(JOURNAL, disk.content(JOURNAL).rindex(b"entry"), 2)
    assert storage.read(disk, DIRECTORY).standing is Standing.AMNESIAC


async def stopped_voter() -> tuple[SimulatedQuorum, SimulatedDisk]:
    quorum = await formed(snapshot_interval_bytes=1_000)
    await quorum.put(1, *(f"key {number}" for number in range(60)))
    await quorum.stop(1)
    return quorum, quorum.disks[BrokerId(1)]


def test_verify_finds_nothing_wrong_with_a_voter_that_was_stopped() -> None:
    async def story() -> None:
        _, disk = await stopped_voter()
        assert snapshot.names(disk, DIRECTORY)
        assert list(verify(disk, "/data")) == []

    run(story())


@pytest.mark.parametrize("what", ["journal", "snapshot", "standing"])
def test_verify_names_the_file_that_is_damaged(what: str) -> None:
    async def story() -> None:
        _, disk = await stopped_voter()
        name = snapshot.names(disk, DIRECTORY)[-1] if what == "snapshot" else what
        path = f"{DIRECTORY}/{name}"
        disk.flip(path, len(disk.content(path)) // 2, 1)
        assert [finding.path for finding in verify(disk, "/data")] == [path]

    run(story())


def test_a_snapshot_of_a_later_release_is_no_damage() -> None:
    disk = disk_with((1, 1))
    name = snapshot.name_of(Snapshot(Image(1), 1))
    checkpoint.write(disk, f"{DIRECTORY}/{name}", pack([snapshot.VERSION + 1, "of a later release"]))
    before = sorted(disk.list_directory(DIRECTORY))
    with pytest.raises(NewerVersion, match=r"start this broker with the release that wrote it\.$"):
        storage.read(disk, DIRECTORY)
    assert sorted(disk.list_directory(DIRECTORY)) == before
