"""Objects that name the cuts of a cluster, for readers without brokers: one for each cut, until it is dropped.

An expired cut may still have its object: readers compare its expiry.
"""

from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from cordwood.archive import layout
from cordwood.archive.commits import FORMAT, DamagedCommit, opened, sealed
from cordwood.archive.store import ObjectMissing, ObjectStore
from cordwood.storage.types import NEVER_EXPIRES


class PinnedRange(NamedTuple):
    """The offsets of one partition that a cut pins: from `start` up to `end`.

    The end is a last stable offset: all records below it are decided, though a marker of one may be above it.
    """

    topic: str
    topic_id: UUID
    partition: int
    start: int
    end: int


class CutObject(NamedTuple):
    """A cut. Times are ms since 1970."""

    name: str
    created_ms: int
    expires_ms: int
    ranges: tuple[PinnedRange, ...]

    def has_expired(self, now_ms: int) -> bool:
        return self.expires_ms != NEVER_EXPIRES and self.expires_ms <= now_ms


def cut_content(cut: CutObject) -> bytes:
    """Return the content of a cut's object."""
    rows = [[row.topic, str(row.topic_id), row.partition, row.start, row.end] for row in cut.ranges]
    head = {"format": FORMAT, "name": cut.name, "created_ms": cut.created_ms, "expires_ms": cut.expires_ms}
    return sealed({**head, "ranges": rows})


def decode_cut(content: bytes) -> CutObject:
    """Return the cut. Raises DamagedCommit."""
    body = opened(content)
    try:
        ranges = [
            PinnedRange(str(topic), UUID(topic_id), int(partition), int(start), int(end))
            for topic, topic_id, partition, start, end in body["ranges"]
        ]
        return CutObject(str(body["name"]), int(body["created_ms"]), int(body["expires_ms"]), tuple(ranges))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedCommit(f"not a cut: {error!r}") from None


async def read_cuts(store: ObjectStore, cluster_id: str, now_ms: int) -> list[CutObject]:
    """Return the readable cuts of a cluster that have not expired, by name and time. Raises StoreError."""
    cuts = []
    for name in await _names(store, cluster_id, ""):
        with suppress(ObjectMissing, DamagedCommit):
            cuts.append(decode_cut(await store.get(name)))
    return sorted([cut for cut in cuts if not cut.has_expired(now_ms)], key=lambda cut: (cut.name, cut.created_ms))


async def find_cut(store: ObjectStore, cluster_id: str, name: str, now_ms: int) -> CutObject | None:
    """Return the newest cut of this name that has not expired, if any. Raises StoreError, DamagedCommit."""
    cuts = []
    for listed in await _names(store, cluster_id, f"{name}-"):
        # It may be dropped meanwhile.
        with suppress(ObjectMissing):
            cuts.append(decode_cut(await store.get(listed)))
    # A name may have a hyphen, and begin another one's.
    newest = max((cut for cut in cuts if cut.name == name), key=lambda cut: cut.created_ms, default=None)
    return None if newest is None or newest.has_expired(now_ms) else newest


async def _names(store: ObjectStore, cluster_id: str, begin: str) -> list[str]:
    """Return the names of the cut objects that begin so. A store lists by whole parts of a path only."""
    prefix = layout.cuts_prefix(cluster_id)
    return [one.name for one in await store.list(prefix) if one.name.startswith(f"{prefix}{begin}")]
