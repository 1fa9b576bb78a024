"""Chains of commits: what readers without brokers find, also if some are missing or were written by several brokers."""

import asyncio
import itertools
import json
from pathlib import Path
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.archive import layout
from cordwood.archive.commits import (
    WHOLE_EVERY,
    Chain,
    DamagedCommit,
    TopicObject,
    commit_content,
    decode_commit,
    decode_topic,
    read_chain,
    read_clusters,
    read_topics,
    topic_content,
)
from cordwood.archive.manifest import (
    NO_LIMIT,
    ArchivedSegment,
    PartitionArchive,
    Upload,
    with_committed,
    with_replaced,
    with_upload,
    without,
)
from cordwood.archive.obstore_store import ObstoreStore, open_store

CLUSTER, TOPIC, PARTITION = "shed-1", UUID(int=7), 3
SPAN = 10


@pytest.fixture
def directory(tmp_path: Path) -> ObstoreStore:
    return open_store((tmp_path / "archive").as_uri())


def identity(number: int) -> UUID:
    return uuid5(TOPIC, str(number))


def segment(number: int, base: int) -> ArchivedSegment:
    """Return a segment with this identity, of SPAN offsets."""
    return ArchivedSegment(identity(number), base, base, base + SPAN, 1000, number, 100, number, 5, 1)


def grown(archive: PartitionArchive, number: int) -> PartitionArchive:
    """Return the archive with one segment more."""
    base = archive.end or 0
    announced = with_upload(archive, Upload(identity(number), base, base + SPAN, 0))
    return with_committed(announced, [segment(number, base)])


def history(count: int) -> list[PartitionArchive]:
    """Return `count` manifests after the empty one: each differs from the one before by one segment."""
    archives = [PartitionArchive()]
    for number in range(count):
        archives.append(grown(archives[-1], number))
    return archives


def write(store: ObstoreStore, before: PartitionArchive | None, after: PartitionArchive) -> None:
    name = layout.commit_name(CLUSTER, TOPIC, PARTITION, after.sequence)
    asyncio.run(store.put(name, commit_content(TOPIC, PARTITION, before, after)))


def write_all(store: ObstoreStore, archives: list[PartitionArchive], *, but: tuple[int, ...] = ()) -> None:
    for before, after in itertools.pairwise(archives):
        if after.sequence not in but:
            write(store, before, after)


def chain(store: ObstoreStore) -> Chain:
    return asyncio.run(read_chain(store, CLUSTER, TOPIC, PARTITION))


def as_of(archive: PartitionArchive, *gaps: int, newest: int | None = None) -> Chain:
    """Return the chain of a partition whose archive has never been shortened."""
    without_rest = PartitionArchive(archive.segments, sequence=archive.sequence)
    return Chain(without_rest, gaps, archive.sequence if newest is None else newest, archive.end or 0)


def test_a_partition_without_commits_is_empty(directory: ObstoreStore) -> None:
    assert chain(directory) == Chain(PartitionArchive())


@pytest.mark.parametrize("count", [1, 3, WHOLE_EVERY - 1, WHOLE_EVERY, WHOLE_EVERY * 2 + 5])
def test_the_chain_is_the_manifest(directory: ObstoreStore, count: int) -> None:
    archives = history(count)
    write_all(directory, archives)
    assert chain(directory) == as_of(archives[-1])


def test_removed_and_replaced_segments_are_gone(directory: ObstoreStore) -> None:
    archives = history(4)
    first, second = archives[-1].segments[:2]
    archives.append(without(archives[-1], first.end_offset, NO_LIMIT, 0))
    announced = with_upload(archives[-1], Upload(identity(9), second.base_offset, second.end_offset, 0))
    archives.append(with_replaced(announced, [second.id], [segment(9, second.base_offset)], 0))
    write_all(directory, archives)
    assert [one.id for one in chain(directory).archive.segments] == [identity(9), identity(2), identity(3)]


def test_the_end_is_known_after_all_segments_are_gone(directory: ObstoreStore) -> None:
    archives = history(3)
    archives.append(without(archives[-1], 3 * SPAN, NO_LIMIT, 0))
    write_all(directory, archives)
    assert chain(directory) == Chain(PartitionArchive(sequence=4, log_start=3 * SPAN), (), 4, 3 * SPAN)
    assert decode_commit(commit_content(TOPIC, PARTITION, None, archives[-1])).end == 3 * SPAN


def test_the_log_start_within_a_segment_is_known(directory: ObstoreStore) -> None:
    archives = history(3)
    archives.append(without(archives[-1], SPAN // 2, NO_LIMIT, 0))
    archives.append(without(archives[-1], SPAN + 1, NO_LIMIT, 0))
    write_all(directory, archives)
    assert (chain(directory).archive.log_start, chain(directory).archive.start) == (SPAN + 1, SPAN + 1)
    assert decode_commit(commit_content(TOPIC, PARTITION, None, archives[-1])).log_start == SPAN + 1


def test_the_chain_ends_at_its_first_gap(directory: ObstoreStore) -> None:
    archives = history(7)
    write_all(directory, archives, but=(4, 5))
    assert chain(directory) == as_of(archives[3], 4, 5, newest=7)


def test_a_later_commit_with_all_segments_closes_a_gap(directory: ObstoreStore) -> None:
    archives = history(8)
    write_all(directory, archives[:4])
    # A broker that did not see the changes writes all segments.
    write(directory, None, archives[6])
    write(directory, archives[6], archives[7])
    write(directory, archives[7], archives[8])
    assert chain(directory) == as_of(archives[8])


def test_without_its_first_commits_a_chain_begins_at_the_next_whole_one(directory: ObstoreStore) -> None:
    archives = history(WHOLE_EVERY + 2)
    write_all(directory, archives, but=(1,))
    assert chain(directory) == as_of(archives[-1])
    asyncio.run(directory.delete([layout.commit_name(CLUSTER, TOPIC, PARTITION, WHOLE_EVERY)]))
    assert chain(directory).archive.segments == ()
    assert chain(directory).gaps == (1, WHOLE_EVERY)


def test_a_damaged_commit_is_a_gap(directory: ObstoreStore, tmp_path: Path) -> None:
    archives = history(WHOLE_EVERY + 3)
    write_all(directory, archives)
    path = tmp_path / "archive" / layout.commit_name(CLUSTER, TOPIC, PARTITION, WHOLE_EVERY)
    path.write_text(path.read_text().replace('"end_offset": 10,', '"end_offset": 11,'))
    # The commits before it are read instead.
    assert chain(directory) == as_of(archives[WHOLE_EVERY - 1], WHOLE_EVERY, newest=WHOLE_EVERY + 3)


def test_a_commit_in_the_place_of_another_is_a_gap(directory: ObstoreStore) -> None:
    archives = history(2)
    write(directory, archives[0], archives[1])
    name = layout.commit_name(CLUSTER, TOPIC, PARTITION, 2)
    asyncio.run(directory.put(name, commit_content(TOPIC, PARTITION + 1, archives[1], archives[2])))
    assert chain(directory) == as_of(archives[1], 2, newest=2)


class LaggingStore(ObstoreStore):
    """A directory whose lists lack the newest objects."""

    lag = 0

    async def list(self, prefix: str, after: str = ""):  # type: ignore[no-untyped-def]
        found = await super().list(prefix, after)
        return found[: max(0, len(found) - self.lag)]


@pytest.mark.parametrize("lag", [1, 5, WHOLE_EVERY, WHOLE_EVERY + 3])
def test_commits_that_a_list_lacks_are_found(directory: ObstoreStore, lag: int) -> None:
    archives = history(WHOLE_EVERY + 3)
    write_all(directory, archives)
    directory.__class__ = LaggingStore
    directory.lag = lag  # type: ignore[attr-defined]
    assert chain(directory) == as_of(archives[-1])


@given(st.lists(st.tuples(st.sampled_from(["grow", "remove", "replace"]), st.booleans()), max_size=40))
def test_any_writer_that_knows_the_change_or_not_makes_the_same_chain(steps: list[tuple[str, bool]]) -> None:
    archive, commits = PartitionArchive(), {}
    for number, (step, knows_change) in enumerate(steps):
        before = archive
        if step == "grow" or not archive.segments:
            archive = grown(archive, number)
        elif step == "remove":
            archive = without(archive, archive.segments[0].end_offset, NO_LIMIT, 0)
        else:
            old = archive.segments[len(archive.segments) // 2]
            announced = with_upload(archive, Upload(identity(number), old.base_offset, old.end_offset, 0))
            archive = with_replaced(announced, [old.id], [segment(number, old.base_offset)], 0)
        content = commit_content(TOPIC, PARTITION, before if knows_change else None, archive)
        commits[archive.sequence] = decode_commit(content)
    folded: dict[UUID, ArchivedSegment] = {}
    for sequence in sorted(commits):
        commit = commits[sequence]
        kept = {} if commit.is_whole else {key: one for key, one in folded.items() if key not in commit.removed}
        folded = kept | {one.id: one for one in commit.added}
    assert sorted(folded.values(), key=lambda one: one.start_offset) == list(archive.segments)


def test_damaged_and_newer_objects_are_refused() -> None:
    content = commit_content(TOPIC, PARTITION, None, history(1)[-1])
    for wrong in (b"", b"[]", content[:-3], content.replace(b'"format": 1', b'"format": 2')):
        with pytest.raises(DamagedCommit):
            decode_commit(wrong)
    body = {**json.loads(topic_content(TopicObject(TOPIC, "a", 1, {}, 0)))["body"], "is_deleted": True}
    with pytest.raises(DamagedCommit, match="checksum"):
        decode_topic(json.dumps({"body": body, "crc32c": 1}).encode())
    with pytest.raises(DamagedCommit, match="not a topic"):
        decode_topic(content)


def test_the_newest_readable_object_of_each_topic_counts(directory: ObstoreStore) -> None:
    old = TopicObject(UUID(int=1), "barn", 2, {"retention.ms": "-1"}, 1000, sequence=12)
    new = old._replace(partitions=4, is_deleted=True, sequence=30)
    other = TopicObject(UUID(int=2), "attic", 1, {}, 0, sequence=9)

    async def scenario() -> None:
        for topic in (old, new, other):
            await directory.put(layout.topic_name(CLUSTER, topic.id, topic.sequence), topic_content(topic))
        await directory.put(layout.topic_name("shed-2", old.id, 1), topic_content(old))
        await directory.put(f"{layout.topics_prefix(CLUSTER)}notes.txt", b"")
        await directory.put(layout.topic_name(CLUSTER, old.id, 31), b"damaged")
        assert await read_clusters(directory) == ["shed-1", "shed-2"]
        assert await read_topics(directory, CLUSTER) == [other, new]

    asyncio.run(scenario())
