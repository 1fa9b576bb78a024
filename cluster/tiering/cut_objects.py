"""Cuts in the archive, kept by the active controller: an object for each cut of the metadata, and no others."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import structlog

from cordwood.archive import layout
from cordwood.archive.cuts import CutObject, PinnedRange, cut_content
from cordwood.archive.store import ObjectExists, ObjectStore, StoreError
from cordwood.cluster.metadata.cuts import Cut
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.replication.tasks import Tasks

INTERVAL_S = 1.0
LIST_EVERY = 60
"""Rounds between two lists of the store, which find the objects of dropped cuts."""
RETRY_S = 10.0

_events = structlog.get_logger("archive")


class CutObjects:
    """The archive's cut objects, at work while this broker is the active controller."""

    def __init__(self, quorum: Quorum, store: ObjectStore) -> None:
        self._quorum, self._store = quorum, store
        self._kept: Mapping[str, Cut] | None = None
        """The cuts as of the last round that reached the store."""
        self._rounds = 0
        self._unknown: frozenset[str] = frozenset()
        """Objects of the last list that no cut of the metadata has."""
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.repeat(self._round, "cuts of the archive")

    async def close(self) -> None:
        await self._tasks.close()

    async def _round(self) -> None:
        pause_s, image = INTERVAL_S, self._quorum.image
        if not self._quorum.is_leader:
            self._kept, self._rounds, self._unknown = None, 0, frozenset()
        elif not image.passed_over:
            try:
                await self.keep(image)
            except StoreError as error:
                _events.warning("archive.cuts_postponed", reason=str(error))
                pause_s = RETRY_S
        await asyncio.sleep(pause_s)

    async def keep(self, image: Image) -> None:
        """Write the objects that are missing, and delete those of dropped cuts. Raises StoreError."""
        if self._kept is not image.cuts:
            before = self._kept or {}
            for cut in image.cuts.values():
                if before.get(cut.name) != cut:
                    with suppress(ObjectExists):
                        await self._store.put(_name_of(cut, image), cut_content(_object_of(cut, image)))
            dropped = [cut for cut in before.values() if image.cuts.get(cut.name) != cut]
            if dropped:
                await self._store.delete([_name_of(cut, image) for cut in dropped])
            self._kept = image.cuts
        if self._rounds % LIST_EVERY == 0:
            await self._sweep(image)
        self._rounds += 1

    async def _sweep(self, image: Image) -> None:
        """Delete the objects that no cut had at this list and at the one before.

        A new controller may not have applied the newest cuts yet.
        """
        names = {_name_of(cut, image) for cut in image.cuts.values()}
        listed = {one.name for one in await self._store.list(layout.cuts_prefix(image.cluster_id))}
        await self._store.delete(sorted(listed & self._unknown - names))
        self._unknown = frozenset(listed - names)


def _name_of(cut: Cut, image: Image) -> str:
    return layout.cut_name(image.cluster_id, cut.name, cut.created_ms)


def _object_of(cut: Cut, image: Image) -> CutObject:
    ranges = [
        PinnedRange(image.topics_by_id[row.topic_id].name, row.topic_id, row.partition, row.start, row.end)
        for row in cut.partitions
    ]
    return CutObject(cut.name, cut.created_ms, cut.expires_ms, tuple(ranges))
