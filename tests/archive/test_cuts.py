"""Cuts in the archive: an object for each cut that exists, which readers without brokers find."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cordwood.archive.commits import DamagedCommit
from cordwood.archive.cuts import CutObject, PinnedRange, cut_content, decode_cut, find_cut, read_cuts
from cordwood.archive.layout import cut_name
from cordwood.archive.obstore_store import ObstoreStore, open_store
from cordwood.cluster.metadata.cuts import Cut, CutPartition
from cordwood.cluster.metadata.image import Image, TopicImage
from cordwood.cluster.tiering.cut_objects import LIST_EVERY, CutObjects
from cordwood.storage.types import NEVER_EXPIRES

NOW_MS = 1_700_000_000_000
CLUSTER = "test-cluster"
ORDERS = TopicImage(UUID(int=7), "orders", ())
RANGES = (PinnedRange("orders", ORDERS.id, 0, 5, 9),)


@pytest.fixture
def files(tmp_path: Path) -> ObstoreStore:
    """Return a store in a directory."""
    return open_store(f"file://{tmp_path}/store", {})


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


def cut(name: str, created_ms: int = NOW_MS, expires_ms: int = NEVER_EXPIRES) -> Cut:
    return Cut(name, created_ms, expires_ms, (CutPartition(ORDERS.id, 0, 5, 9),))


def image(*cuts: Cut) -> Image:
    topics = {ORDERS.id: ORDERS}
    return Image(cluster_id=CLUSTER, topics_by_id=topics, cuts={one.name: one for one in cuts})


class NoQuorum:
    """Nothing: the tests pass images to `keep` themselves."""


def kept_in(store: ObstoreStore) -> CutObjects:
    return CutObjects(NoQuorum(), store)  # type: ignore[arg-type]


def test_a_cut_is_read_as_it_was_written_and_damage_is_noticed() -> None:
    written = CutObject("monday", NOW_MS, NEVER_EXPIRES, RANGES)
    content = cut_content(written)
    assert decode_cut(content) == written
    for damaged in (content.replace(b"orders", b"others"), content[:-5], b"[]"):
        with pytest.raises(DamagedCommit):
            decode_cut(damaged)


def test_each_cut_has_an_object_until_it_is_dropped(files: ObstoreStore) -> None:
    async def story() -> None:
        objects = kept_in(files)
        await objects.keep(image(cut("monday"), cut("monday-2", expires_ms=NOW_MS + 1)))
        assert await find_cut(files, CLUSTER, "monday", NOW_MS) == CutObject("monday", NOW_MS, NEVER_EXPIRES, RANGES)
        assert [found.name for found in await read_cuts(files, CLUSTER, NOW_MS)] == ["monday", "monday-2"]
        assert [found.name for found in await read_cuts(files, CLUSTER, NOW_MS + 1)] == ["monday"]
        await objects.keep(image(cut("monday", NOW_MS + 1)))
        newer = await find_cut(files, CLUSTER, "monday", NOW_MS)
        assert newer is not None
        assert newer.created_ms == NOW_MS + 1
        await objects.keep(image())
        assert await files.list("cuts") == []
        assert await find_cut(files, CLUSTER, "monday", NOW_MS) is None

    run(story())


def test_a_new_controller_keeps_what_exists_and_finds_what_was_dropped(files: ObstoreStore) -> None:
    async def story() -> None:
        await kept_in(files).keep(image(cut("kept"), cut("dropped")))
        objects = kept_in(files)
        for _ in range(LIST_EVERY + 1):
            assert len(await files.list("cuts")) == 2, "one list may be of a controller that lags"
            await objects.keep(image(cut("kept")))
        assert [one.name for one in await files.list("cuts")] == [cut_name(CLUSTER, "kept", NOW_MS)]

    run(story())
