"""The metadata journal under kills, power cuts and bit flips: no synced entry is lost silently."""

import random
from collections.abc import Iterator

import pytest

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.cluster.metadata.journal import Journal, JournalEntry, check
from cordwood.storage.disk import sync_directory
from cordwood.storage.errors import DamagedLog

PATH = "/m/journal"


class JournalFixture:
    """A journal on a simulated disk."""

    def __init__(self, seed: int = 1) -> None:
        self.disk = SimulatedDisk(random.Random(seed))
        self.disk.make_directories("/m")
        sync_directory(self.disk, "/")
        self.journal = Journal.open(self.disk, PATH)

    def append(self, *commands: str, term: int = 0) -> "JournalFixture":
        first = self.journal[len(self.journal) - 1].index + 1 if len(self.journal) else 1
        self.journal.append(JournalEntry(first + at, term, command.encode()) for at, command in enumerate(commands))
        return self

    def sync(self) -> "JournalFixture":
        end = self.journal.end
        self.journal.file.sync()
        self.journal.synced(end, self.journal[len(self.journal) - 1].index if len(self.journal) else 0)
        return self

    def reopen(self) -> "JournalFixture":
        self.journal = Journal.open(self.disk, PATH)
        return self

    def kill(self) -> "JournalFixture":
        self.disk.kill()
        return self.reopen()

    def power_cut(self, keep: float | None = None) -> "JournalFixture":
        self.disk.power_cut(keep)
        return self.reopen()

    def commands(self) -> list[str]:
        return [self.journal[position].command.decode() for position in range(len(self.journal))]


@pytest.fixture
def journal() -> JournalFixture:
    return JournalFixture()


def test_entries_are_read_back_with_their_index_and_term(journal: JournalFixture) -> None:
    journal.append("a", "b", term=3).append("c", term=4).sync().power_cut(keep=0)
    entries = [journal.journal[position] for position in range(3)]
    assert entries == [JournalEntry(1, 3, b"a"), JournalEntry(2, 3, b"b"), JournalEntry(3, 4, b"c")]


def test_how_far_the_log_was_committed_is_remembered(journal: JournalFixture) -> None:
    assert journal.append("a", "b").sync().append("c").kill().journal.committed == 2


def test_a_new_journal_survives_a_power_cut_and_is_empty(journal: JournalFixture) -> None:
    assert journal.power_cut(keep=0).commands() == []


def test_what_was_not_synced_is_cut_off_with_the_power(journal: JournalFixture) -> None:
    journal.append("a").sync().append("b", "c").power_cut(keep=0)
    assert journal.commands() == ["a"]
    assert journal.append("d").sync().power_cut(keep=0).commands() == ["a", "d"]


@pytest.mark.parametrize("kept", range(0, 90, 7))
def test_a_torn_write_is_cut_at_the_last_whole_entry(journal: JournalFixture, kept: int) -> None:
    journal.append("a").sync().append("bbbbbbbbbb").append("cccccccccc")
    journal.disk.power_cut_keeping(kept)
    journal.reopen()
    assert journal.commands() == ["a", "bbbbbbbbbb", "cccccccccc"][: len(journal.commands())]
    assert len(journal.commands()) >= 1
    assert journal.append("d").sync().kill().commands()[-1] == "d"


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_that_keeps_any_sectors_loses_nothing_that_was_synced(seed: int) -> None:
    """Sectors of a later write may survive while those of an earlier one are lost; that is no damage."""
    journal = JournalFixture(seed)
    synced: list[str] = []
    rng = random.Random(seed)
    for turn in range(30):
        journal.append(f"{turn}-" + "x" * rng.randrange(700))
        if rng.random() < 0.4:
            journal.sync()
            synced = journal.commands()
    everything = journal.commands()
    journal.power_cut()
    assert journal.commands()[: len(synced)] == synced
    assert journal.commands() == everything[: len(journal.commands())]


def test_entries_that_a_killed_process_left_unsynced_are_sure_once_they_were_read(journal: JournalFixture) -> None:
    journal.append("a")
    assert journal.kill().commands() == ["a"]
    assert journal.power_cut(keep=0).commands() == ["a"]


def flips(journal: JournalFixture) -> Iterator[int]:
    for position in range(len(journal.disk.content(PATH))):
        for bit in (0, 5):
            journal.disk.flip(PATH, position, bit)
            yield position
            journal.disk.flip(PATH, position, bit)


def test_any_flipped_bit_is_found_by_who_reads_strictly(journal: JournalFixture) -> None:
    journal.append("a", "b").sync().append("c").sync()
    assert [entry.command for entry in check(PATH, journal.disk.content(PATH)).entries] == [b"a", b"b", b"c"]
    for position in flips(journal):
        with pytest.raises(DamagedLog) as damage:
            check(PATH, journal.disk.content(PATH))
        assert damage.value.position <= position


def test_a_flipped_bit_never_costs_an_entry_in_silence() -> None:
    """The mark after the newest entry distinguishes damage from a torn write."""
    mark_bytes = 25
    length = len(JournalFixture().append("a", "b").sync().append("c").sync().disk.content(PATH))
    for position in range(length):
        journal = JournalFixture().append("a", "b").sync().append("c").sync()
        journal.disk.flip(PATH, position, position % 8)
        if position < length - mark_bytes:
            with pytest.raises(DamagedLog, match="journal is damaged at byte"):
                journal.reopen()
        else:
            assert journal.reopen().commands() == ["a", "b", "c"]


def test_a_hole_in_the_middle_is_refused_with_its_place(journal: JournalFixture) -> None:
    journal.append("a").sync()
    place = journal.journal.end
    journal.append("b", "c").sync()
    journal.disk.flip(PATH, place + 12, 3)
    with pytest.raises(DamagedLog, match=f"journal is damaged at byte {place}"):
        journal.reopen()


def test_a_journal_of_a_newer_version_is_refused(journal: JournalFixture) -> None:
    journal.disk.flip(PATH, 8, 1)
    with pytest.raises(DamagedLog, match="at byte 0"):
        journal.reopen()


def test_entries_from_a_position_on_are_taken_back(journal: JournalFixture) -> None:
    journal.append("a", "b", "c")
    journal.journal.truncate_from(1)
    journal.append("d").sync().power_cut(keep=0)
    assert journal.commands() == ["a", "d"]
    assert journal.journal[1].index == 2


def test_the_entries_that_a_snapshot_has_are_dropped(journal: JournalFixture) -> None:
    journal.append("a", "b", "c", term=2).sync()
    journal.journal.set_vote(5, "node-2")
    length = journal.journal.end
    journal.journal.drop_before(2)
    assert journal.commands() == ["c"]
    assert journal.journal.end < length
    journal.append("d").sync().power_cut(keep=0)
    assert journal.commands() == ["c", "d"]
    assert [journal.journal[at].index for at in (0, 1)] == [3, 4]
    assert (journal.journal.term, journal.journal.vote) == (5, "node-2")


def test_dropping_at_any_moment_of_a_crash_leaves_the_old_or_the_new() -> None:
    for step in range(12):
        journal = JournalFixture(step)
        journal.append("a", "b", "c").sync()
        journal.disk.faults.die_after(step)
        try:
            journal.journal.drop_before(2)
        except Died:
            pass
        else:
            assert step >= 5
            return
        journal.power_cut()
        assert journal.commands() in (["a", "b", "c"], ["c"])


def test_a_vote_is_durable_before_anyone_hears_of_it(journal: JournalFixture) -> None:
    journal.journal.set_vote(7, "node-3")
    journal.power_cut(keep=0)
    assert (journal.journal.term, journal.journal.vote) == (7, "node-3")
    journal.journal.set_vote(8, None)
    journal.power_cut(keep=0)
    assert (journal.journal.term, journal.journal.vote) == (8, None)


def test_a_gap_between_entries_is_a_broken_invariant(journal: JournalFixture) -> None:
    journal.append("a")
    with pytest.raises(AssertionError, match="without a gap"):
        journal.journal.append([JournalEntry(9, 0, b"x")])
