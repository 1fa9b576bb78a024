"""The check that an archive is only cut by retention, which goes by the newest metadata that any broker has had."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from cordwood.archive.manifest import PartitionArchive
from cordwood.chaos.sim.archive_checks import ArchiveChecks

PLACE = UUID(int=1), 0


def image(index: int, end: int) -> Any:
    return SimpleNamespace(index=index, archives={PLACE: SimpleNamespace(end=end, segments=(), uploads=(), removed=())})


def leader(known: Any) -> Any:
    """Return a broker that knows of this metadata and leads a log of 100 records."""
    log = SimpleNamespace(log_start=0, local_start=0, log_end=100)
    replica = SimpleNamespace(
        topic="t", topic_id=PLACE[0], index=0, log=log, is_offline=False, is_deleted=False, is_leader=True
    )
    return SimpleNamespace(broker_id=1, quorum=SimpleNamespace(image=known), replicas=[replica])


def checks() -> ArchiveChecks:
    objects: Any = SimpleNamespace(contents={})
    return ArchiveChecks(objects, lambda: image(0, 0))


def test_an_archive_that_ends_before_it_did_is_noticed() -> None:
    found, longer, shorter = checks(), image(10, 90), image(20, 86)
    assert list(found.look(longer, [leader(longer)])) == []
    assert [kind for kind, _ in found.look(shorter, [leader(shorter)])] == ["archive-cut"]


def test_a_leader_that_does_not_know_of_the_newest_archive_yet_is_not() -> None:
    """The broker that knew of it was killed."""
    found, newest, older = checks(), image(20, 90), image(10, 86)
    assert list(found.look(newest, [leader(newest)])) == []
    assert list(found.look(older, [leader(older)])) == []


def test_nothing_archived_is_nothing_cut() -> None:
    found, empty = checks(), SimpleNamespace(index=5, archives={PLACE: PartitionArchive()})
    known: Any = empty
    assert list(found.look(known, [leader(known)])) == []
