"""Mirrored metadata files: damage to one copy is reported and repaired from the other, and a power cut is no damage."""

import asyncio
import random
from collections.abc import Iterator
from itertools import count

import pytest
from quorum_fixture import COPY, DIRECTORY, QuorumFixture, finished, run, started

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.cluster.broker.verify import verify as findings_in
from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.mirror_repair import verify
from cordwood.storage.errors import DamagedLog

JOURNAL, SECOND_JOURNAL = f"{DIRECTORY}/journal", f"{COPY}/journal"
SMALL, LARGE = 300, 1 << 20
"""Journal bytes between snapshots: SMALL leads to a snapshot, LARGE to none."""


async def filled(snapshot_interval_bytes: int) -> QuorumFixture:
    """Return a killed quorum with a few topics, of which the newest is only in the journal."""
    quorum = await started(snapshot_interval_bytes=snapshot_interval_bytes)
    await quorum.create("a", "b", "c", "d")
    await quorum.create("e")
    quorum.disk.kill()
    return quorum


def flips(quorum: QuorumFixture) -> Iterator[tuple[str, int]]:
    for path in quorum.disk.files():
        for position in range(len(quorum.disk.content(path))):
            for bit in range(8):
                quorum.disk.flip(path, position, bit)
                yield path, position


def contents(quorum: QuorumFixture) -> dict[str, bytes]:
    return {path: quorum.disk.content(path) for path in quorum.disk.files()}


def assert_both_copies_are_sound(quorum: QuorumFixture) -> None:
    names = [*snapshot.names(quorum.disk, DIRECTORY), "journal"]
    assert quorum.disk.list_directory(COPY) == names
    assert quorum.disk.list_directory(DIRECTORY) == sorted([*names, "copy"])
    for name in names:
        assert quorum.disk.content(f"{DIRECTORY}/{name}") == quorum.disk.content(f"{COPY}/{name}")
    assert list(verify(quorum.disk, DIRECTORY)) == []


@pytest.mark.parametrize("interval", [SMALL, LARGE])
def test_any_flipped_bit_is_named_and_repaired(interval: int) -> None:
    async def story() -> None:
        quorum = await filled(interval)
        image, before = quorum.voter.image, contents(quorum)
        assert len(before) == (4 if interval == SMALL else 2)
        for path, position in flips(quorum):
            assert [found.path for found in findings_in(quorum.disk, DIRECTORY.rpartition("/")[0])] == [path]
            assert quorum.open() == image
            (damage,) = quorum.voter.damage
            assert damage.path == path
            # A snapshot has one checksum for the whole file.
            assert damage.position <= position or path.endswith(".snapshot")
            assert contents(quorum) == before

    run(story())


def test_each_copy_may_be_damaged_in_another_file() -> None:
    async def story() -> None:
        quorum = await filled(SMALL)
        image, before = quorum.voter.image, contents(quorum)
        (name,) = snapshot.names(quorum.disk, DIRECTORY)
        for journal, other in ((JOURNAL, f"{COPY}/{name}"), (SECOND_JOURNAL, f"{DIRECTORY}/{name}")):
            quorum.disk.flip(journal, 60, 1)
            quorum.disk.flip(other, 60, 1)
            assert quorum.open() == image
            assert {damage.path for damage in quorum.voter.damage} == {journal, other}
            assert contents(quorum) == before

    run(story())


@pytest.mark.parametrize("interval", [SMALL, LARGE])
def test_damage_to_both_copies_of_a_file_is_refused_with_both_places(interval: int) -> None:
    async def story() -> None:
        quorum = await filled(interval)
        names = [*snapshot.names(quorum.disk, DIRECTORY), "journal"]
        for name in names:
            for position, other in ((3, 3), (40, 50), (50, 40)):
                quorum.disk.flip(f"{DIRECTORY}/{name}", position, 1)
                quorum.disk.flip(f"{COPY}/{name}", other, 1)
                before = contents(quorum)
                with pytest.raises(DamagedLog, match=f"^{DIRECTORY}/{name} is damaged at byte") as damage:
                    quorum.open()
                assert position == other or f"{COPY}/{name} is damaged at byte" in str(damage.value)
                assert contents(quorum) == before
                quorum.disk.flip(f"{DIRECTORY}/{name}", position, 1)
                quorum.disk.flip(f"{COPY}/{name}", other, 1)

    run(story())


@pytest.mark.parametrize("interval", [SMALL, LARGE])
def test_a_file_that_is_gone_or_has_lost_its_end_comes_back(interval: int) -> None:
    async def story() -> None:
        quorum = await filled(interval)
        image, before = quorum.voter.image, contents(quorum)
        for path, content in before.items():
            quorum.disk.remove(path)
            assert quorum.open() == image
            assert contents(quorum) == before
            assert len(quorum.voter.damage) == 1
            quorum.disk.open(path).truncate(len(content) - 60)
            assert quorum.open() == image
            assert contents(quorum) == before
            assert [damage.path for damage in quorum.voter.damage] == [path]

    run(story())


def test_what_is_gone_from_both_copies_is_missed() -> None:
    async def story() -> None:
        for name, complaint in (("journal", "the file is missing"), (None, "no snapshot covers the entries before it")):
            quorum = await filled(SMALL)
            for directory in (DIRECTORY, COPY):
                quorum.disk.remove(f"{directory}/{name or snapshot.names(quorum.disk, directory)[-1]}")
            with pytest.raises(DamagedLog, match=complaint):
                quorum.open()

    run(story())


def test_one_copy_gone_and_the_other_damaged_is_no_new_cluster() -> None:
    async def story() -> None:
        for gone, damaged in ((JOURNAL, SECOND_JOURNAL), (SECOND_JOURNAL, JOURNAL)):
            quorum = await filled(LARGE)
            quorum.disk.remove(gone)
            quorum.disk.flip(damaged, 60, 1)
            with pytest.raises(DamagedLog, match="the other copy: there is nothing"):
                quorum.open()

    run(story())


@pytest.mark.parametrize("interval", [SMALL, LARGE])
def test_a_file_that_the_disk_cannot_read_is_as_good_as_damaged(interval: int) -> None:
    async def story() -> None:
        quorum = await filled(interval)
        image = quorum.voter.image
        # The read fault stays on this disk after the repair, so a faulty first copy would stay unreadable.
        for path in [path for path in quorum.disk.files() if path.startswith(COPY)]:
            quorum.disk.faults.fail_reads(path)
            assert quorum.open() == image
            assert {damage.path for damage in quorum.voter.damage} == {path}
            quorum.disk.faults.heal()
            assert_both_copies_are_sound(quorum)

    run(story())


def crashes(quorum: QuorumFixture) -> Iterator[int]:
    """Yield after a crash in the first disk change, then in the second, until `open` completes without a crash."""
    for step in count():
        quorum.disk.faults.die_after(step)
        try:
            quorum.open()
        except Died:
            yield step
            quorum.disk.faults.die_after(None)
        else:
            assert step > 0
            return


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("interval", [SMALL, LARGE])
def test_a_power_cut_in_the_middle_of_a_repair_loses_nothing(interval: int, seed: int) -> None:
    async def story() -> None:
        quorum = await filled(interval)
        quorum.disk.rng = random.Random(seed)
        image = quorum.voter.image
        for path in quorum.disk.files():
            quorum.disk.flip(path, 50, 1)
            for _ in crashes(quorum):
                assert quorum.power_cut(keep=None) == image
                assert_both_copies_are_sound(quorum)
                quorum.disk.flip(path, 50, 1)
            assert quorum.voter.image == image

    run(story())


def test_a_power_cut_while_a_cluster_is_founded_is_no_damage() -> None:
    for seed in range(10):
        for step in count():
            quorum = QuorumFixture(seed)
            quorum.disk = SimulatedDisk(random.Random(seed))
            quorum.disk.faults.die_after(step)
            try:
                quorum.open()
            except Died:
                quorum.power_cut(keep=None)
                assert quorum.voter.damage == []
                assert_both_copies_are_sound(quorum)
            else:
                break


@pytest.mark.parametrize("interval", [SMALL, 600, LARGE])
@pytest.mark.parametrize("seed", range(25))
def test_a_power_cut_at_any_moment_is_no_damage(interval: int, seed: int) -> None:
    async def story() -> None:
        quorum = await started(seed=seed, snapshot_interval_bytes=interval)
        rng = random.Random(seed)
        answered: set[str] = set()
        for life in range(8):
            await live(quorum, life, rng.randrange(60), answered)
            quorum.power_cut(keep=None)
            assert quorum.voter.damage == []
            assert answered <= set(quorum.names())
            assert_both_copies_are_sound(quorum)

    run(story())


@pytest.mark.parametrize("interval", [SMALL, 600, LARGE])
@pytest.mark.parametrize("seed", range(25))
def test_a_power_cut_and_damage_to_one_copy_at_once_lose_nothing(interval: int, seed: int) -> None:
    async def story() -> None:
        quorum = await started(seed=seed, snapshot_interval_bytes=interval)
        rng = random.Random(seed)
        answered: set[str] = set()
        for life in range(8):
            await live(quorum, life, rng.randrange(60), answered)
            quorum.disk.power_cut()
            directory = rng.choice((DIRECTORY, COPY))
            for path in quorum.disk.files():
                if path.rpartition("/")[0] == directory and quorum.disk.content(path):
                    quorum.disk.flip(path, rng.randrange(len(quorum.disk.content(path))), rng.randrange(8))
            quorum.open()
            assert all(damage.path.startswith(directory) for damage in quorum.voter.damage)
            assert answered <= set(quorum.names())
            assert_both_copies_are_sound(quorum)

    run(story())


async def live(quorum: QuorumFixture, life: int, changes: int, answered: set[str]) -> None:
    """Create topics until the process dies after `changes` disk changes. Add those acknowledged to `answered`."""
    quorum.disk.faults.die_after(changes)
    for at in range(30):
        name = f"{life}-{at}" + "x" * (at * 37 % 300)
        proposer = asyncio.ensure_future(quorum.create(name))
        if not await finished(proposer):
            proposer.cancel()
            break
        answered.add(name)
    quorum.disk.faults.die_after(None)


def test_metadata_can_be_verified_without_opening_it() -> None:
    async def story() -> None:
        quorum = await filled(SMALL)
        before = contents(quorum)
        assert list(verify(quorum.disk, DIRECTORY)) == []
        assert list(findings_in(quorum.disk, "/data")) == []
        quorum.disk.remove(JOURNAL)
        assert [found.path for found in findings_in(quorum.disk, "/data")] == [JOURNAL]
        quorum.disk.open(SECOND_JOURNAL).truncate(len(before[JOURNAL]) - 3)
        assert {found.path for found in findings_in(quorum.disk, "/data")} >= {SECOND_JOURNAL}

    run(story())
