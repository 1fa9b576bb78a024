"""The encoded image that a voter sends to peers that need entries before its log."""

import asyncio
from collections.abc import Callable

from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.raft.log import RaftLog
from cordwood.cluster.metadata.raft.machine import Machine
from cordwood.cluster.metadata.raft.messages import Install
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.replication.tasks import RunBlocking


class PackedImage:
    """An image encoded once for all peers, and again when the log no longer has the entries after it."""

    def __init__(self, log: RaftLog, machine: Machine, run_blocking: RunBlocking, wake: Callable[[], None]) -> None:
        """`wake` is called when an image has been encoded."""
        self._log, self._machine, self._run_blocking, self._wake = log, machine, run_blocking, wake
        self._packed: tuple[int, int, bytes] | None = None
        """Index and term of the last entry, and the encoded image."""
        self._packing: asyncio.Task[None] | None = None

    def message(self, term: int) -> Install | None:
        """Return the image for the node's term, or None while it is being encoded."""
        if self._packed is None or self._packed[0] < self._log.base_index:
            if self._packing is None:
                work = self._pack(self._machine.whole)
                self._packing = asyncio.get_running_loop().create_task(work, name="metadata image")
            return None
        return Install(term, *self._packed)

    def close(self) -> None:
        if self._packing is not None:
            self._packing.cancel()

    async def _pack(self, whole: Snapshot) -> None:
        """Encode an image in a thread: 10,000 partitions take some 50 ms."""
        try:
            image: bytes = await self._run_blocking(snapshot.encode, whole.image)
            self._packed = whole.image.index, whole.term, image
        finally:
            self._packing = None
        self._wake()
