"""Verification finds every object that is not what was uploaded; a sweep finds only what no manifest has."""

import asyncio
import os
import time
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from archived_log import CLUSTER, ArchivedLog
from log_fixture import TOPIC_ID, LogFixture

from cordwood.archive import layout
from cordwood.archive.commits import WHOLE_EVERY, TopicObject, commit_content, read_chain, topic_content
from cordwood.archive.manifest import NO_LIMIT, PartitionArchive, Upload, without
from cordwood.archive.obstore_store import ObstoreStore, open_store
from cordwood.archive.sweep import Orphan, delete, orphans
from cordwood.archive.verify import PartitionVerified, verify

FAR_MS = 1 << 50


@pytest.fixture
def store(tmp_path: Path) -> ObstoreStore:
    return open_store((tmp_path / "archive").as_uri())


@pytest.fixture
def archived(store: ObstoreStore) -> ArchivedLog:
    """Return an archived partition of a topic with two, the other one empty."""
    log = LogFixture()
    for number in range(40):
        log.send(number, f"value {number:040}")
    archived = ArchivedLog(store, log.flush())

    async def scenario() -> None:
        await archived.upload()
        await archived.describe("barn", 2)

    asyncio.run(scenario())
    assert len(archived.archive.segments) >= 3
    return archived


def verified(store: ObstoreStore, *, reads_all: bool = True) -> list[PartitionVerified]:
    async def scenario() -> list[PartitionVerified]:
        return [one async for one in verify(store, CLUSTER, reads_all=reads_all)]

    return asyncio.run(scenario())


def swept(store: ObstoreStore, now_ms: int = FAR_MS, **options: object) -> list[str]:
    async def scenario() -> list[str]:
        return [one.name async for one in orphans(store, CLUSTER, now_ms, **options)]  # type: ignore[arg-type]

    return sorted(asyncio.run(scenario()))


def now_ms() -> int:
    return int(time.time() * 1000)


def make_older(directory: Path, *names: str, hours: int = 48) -> None:
    """Set the times of objects back, by two days."""
    for name in names:
        then = time.time() - hours * 3600
        os.utime(directory / "archive" / name, (then, then))


@pytest.mark.parametrize("reads_all", [True, False])
def test_a_sound_archive_has_no_findings(archived: ArchivedLog, store: ObstoreStore, reads_all: bool) -> None:
    first, second = verified(store, reads_all=reads_all)
    assert (first.start, first.end, first.segments) == (0, archived.archive.end, len(archived.archive.segments))
    assert (first.size, first.findings) == (archived.archive.size, ())
    assert (second.partition, second.segments, second.findings) == (1, 0, ())


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("fault", ["missing", "cut", "changed"])
def test_each_fault_is_found(archived: ArchivedLog, store: ObstoreStore, tmp_path: Path, kind: int, fault: str) -> None:
    name = archived.objects[1][kind]
    path = tmp_path / "archive" / name
    content = path.read_bytes()
    path.unlink()
    if fault != "missing":
        path.write_bytes(content[:-5] if fault == "cut" else content[:-5] + b"?" + content[-4:])
    found = verified(store)[0].findings
    assert [(one.topic, one.partition, one.name) for one in found] == [("barn", 0, name)]
    by_size = verified(store, reads_all=False)[0].findings
    assert [one.name for one in by_size] == ([] if fault == "changed" else [name])


@pytest.mark.usefixtures("archived")
def test_a_gap_in_the_commits_is_found(store: ObstoreStore) -> None:
    name = layout.commit_name(CLUSTER, TOPIC_ID, 0, 2)
    asyncio.run(store.delete([name]))
    assert [one.name for one in verified(store)[0].findings] == [name]


@pytest.mark.usefixtures("archived")
def test_nothing_of_a_sound_archive_is_swept(store: ObstoreStore) -> None:
    assert swept(store) == []


def test_objects_without_a_manifest_are_swept_after_the_grace_period(
    archived: ArchivedLog, store: ObstoreStore, tmp_path: Path
) -> None:
    names = layout.segment_names(CLUSTER, TOPIC_ID, 0, Upload(uuid4(), 0, 10, 0))
    elsewhere = layout.segment_names(CLUSTER, UUID(int=99), 0, Upload(uuid4(), 0, 10, 0))[0]
    for name in (*names, elsewhere, f"{layout.partition_prefix(CLUSTER, TOPIC_ID, 0)}notes.txt"):
        asyncio.run(store.put(name, b"content"))
    assert swept(store) == [], "the commit that has them may not have been written yet"
    make_older(tmp_path, *names, elsewhere)
    assert swept(store) == sorted(names), "of the other partition nothing is known"
    assert swept(store, now_ms=0) == []
    # A broker knows uploads that no commit has.
    stem = layout.segment_in(CLUSTER, names[0])
    assert stem is not None
    in_use = {(TOPIC_ID, 0): [stem.id, *(one.id for one in archived.archive.segments)]}
    assert swept(store, in_use=in_use) == [elsewhere]


@pytest.mark.usefixtures("archived")
def test_a_commit_may_be_written_within_the_grace_period_after_its_segment(store: ObstoreStore, tmp_path: Path) -> None:
    """The newest commit has the segments of a grace period before it, and of no later time."""
    names = layout.segment_names(CLUSTER, TOPIC_ID, 0, Upload(uuid4(), 0, 10, 0))
    for name in names:
        asyncio.run(store.put(name, b"content"))
    make_older(tmp_path, *names, hours=23)
    assert swept(store) == []
    make_older(tmp_path, *names, hours=25)
    assert swept(store) == sorted(names)


def remove_first(archived: ArchivedLog, store: ObstoreStore) -> str:
    """Commit the removal of the first segment. Return the name of the commit."""
    before = archived.archive
    archived.archive = without(before, before.segments[0].end_offset, NO_LIMIT, 0)
    name = layout.commit_name(CLUSTER, TOPIC_ID, 0, archived.archive.sequence)
    asyncio.run(store.put(name, commit_content(TOPIC_ID, 0, before, archived.archive)))
    return name


def test_removed_segments_are_swept_once_their_readers_have_ended(
    archived: ArchivedLog, store: ObstoreStore, tmp_path: Path
) -> None:
    commits = [layout.commit_name(CLUSTER, TOPIC_ID, 0, one) for one in range(1, archived.archive.sequence + 1)]
    remove_first(archived, store)
    make_older(tmp_path, *archived.objects[0], *commits)
    assert swept(store) == sorted(archived.objects[0])
    assert swept(store, now_ms=now_ms() + 1000) == [], "removed a moment ago"


def test_what_is_not_known_of_removed_segments_protects_them(
    archived: ArchivedLog, store: ObstoreStore, tmp_path: Path
) -> None:
    """Brokers delete old commits: the first one that is left may have removed a segment a moment ago."""
    remove_first(archived, store)
    whole = archived.archive
    last = layout.commit_name(CLUSTER, TOPIC_ID, 0, whole.sequence)
    asyncio.run(store.delete([layout.commit_name(CLUSTER, TOPIC_ID, 0, at) for at in range(1, whole.sequence + 1)]))
    asyncio.run(store.put(last, commit_content(TOPIC_ID, 0, None, whole)))
    make_older(tmp_path, *archived.objects[0])
    assert swept(store, now_ms=now_ms() + 1000) == []
    assert swept(store) == sorted(archived.objects[0])


def test_nothing_is_deleted_that_a_newer_commit_has(archived: ArchivedLog, store: ObstoreStore) -> None:
    found = [Orphan(name, 1, "") for names in archived.objects for name in names]
    unknown = layout.segment_names(CLUSTER, TOPIC_ID, 0, Upload(uuid4(), 0, 10, 0))[0]
    asyncio.run(store.put(unknown, b"content"))
    assert asyncio.run(delete(store, CLUSTER, [*found, Orphan(unknown, 7, "")])) == found
    assert verified(store)[0].findings == ()
    assert unknown not in [one.name for one in asyncio.run(store.list("segments/"))]


def test_a_partition_with_a_gap_in_its_commits_is_left_alone(
    archived: ArchivedLog, store: ObstoreStore, tmp_path: Path
) -> None:
    newest = archived.archive.sequence
    make_older(tmp_path, *(name for names in archived.objects for name in names))
    asyncio.run(store.delete([layout.commit_name(CLUSTER, TOPIC_ID, 0, newest - 1)]))
    assert swept(store) == []


@pytest.mark.usefixtures("archived")
def test_a_former_object_of_a_topic_is_swept_after_the_grace_period(store: ObstoreStore) -> None:
    """A reader may have listed the objects before the newer one was written."""
    changed = TopicObject(TOPIC_ID, "barn", 2, {"retention.ms": "1"}, 0)
    asyncio.run(store.put(layout.topic_name(CLUSTER, TOPIC_ID, 2), topic_content(changed)))
    assert swept(store, now_ms=now_ms() + 1000) == []
    assert swept(store) == [layout.topic_name(CLUSTER, TOPIC_ID, 1)]


def test_a_deleted_topic_is_swept_whole(archived: ArchivedLog, store: ObstoreStore) -> None:
    gone = TopicObject(TOPIC_ID, "barn", 2, {}, 0, is_deleted=True)
    asyncio.run(store.put(layout.topic_name(CLUSTER, TOPIC_ID, 9), topic_content(gone)))
    names = [name for names in archived.objects for name in names]
    assert swept(store) == sorted([*names, layout.topic_name(CLUSTER, TOPIC_ID, 1)])


def test_old_commits_are_swept_and_the_chain_stays(archived: ArchivedLog, store: ObstoreStore) -> None:
    archive, sequence = archived.archive, archived.archive.sequence
    for at in range(sequence + 1, WHOLE_EVERY + 3):
        after = PartitionArchive(archive.segments, sequence=at)
        name = layout.commit_name(CLUSTER, TOPIC_ID, 0, at)
        asyncio.run(store.put(name, commit_content(TOPIC_ID, 0, archive, after)))
        archive = after
    names = swept(store)
    assert names == [layout.commit_name(CLUSTER, TOPIC_ID, 0, at) for at in range(1, WHOLE_EVERY)]
    before = asyncio.run(read_chain(store, CLUSTER, TOPIC_ID, 0))
    asyncio.run(store.delete(names))
    assert asyncio.run(read_chain(store, CLUSTER, TOPIC_ID, 0)) == before
