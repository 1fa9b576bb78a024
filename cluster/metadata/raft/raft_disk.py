"""A voter's disk work, one task at a time, off the event loop if possible: flush, snapshot, install, scrub."""

import asyncio
from collections.abc import Callable

import structlog

from cordwood.cluster.metadata import journal, snapshot
from cordwood.cluster.metadata.file_measures import FileMeasures
from cordwood.cluster.metadata.postponed_work import postponed
from cordwood.cluster.metadata.quorum import QuorumOptions
from cordwood.cluster.metadata.raft.log import RaftLog
from cordwood.cluster.metadata.raft.machine import Machine, unpacked
from cordwood.cluster.metadata.raft.messages import Install, MalformedMessage
from cordwood.cluster.metadata.raft.node import RaftNode
from cordwood.cluster.metadata.raft.storage import content_of
from cordwood.cluster.metadata.snapshot import Snapshot
from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog, OutOfResources, damage_of

_events = structlog.get_logger("quorum")

INSTALL_AGAIN_S = 1.0
"""The delay before another attempt to install an image, after resources were lacking."""
TAIL_ENTRIES = 1_000
"""Entries that stay in the log before a snapshot's end, for followers that were briefly disconnected."""


class RaftDisk:
    """The disk work of one voter. Constructed before the node, which `run` takes. An error from `run` is final."""

    def __init__(self, disk: Disk, directory: str, log: RaftLog, machine: Machine, options: QuorumOptions) -> None:
        self._disk, self._directory = disk, directory
        self._log, self._machine = log, machine
        self._run_blocking = options.run_blocking
        self._interval_bytes = self._snapshot_at_bytes = options.snapshot_interval_bytes
        self._snapshot_index = machine.image.index
        self.files = FileMeasures(log.bytes_on_disk)
        self._to_install: Install | None = None
        self._has_work = asyncio.Event()
        self._lock = asyncio.Lock()

    async def run(self, node: RaftNode, wake: Callable[[], None]) -> None:
        """Work until cancelled. `wake` is called when the node has something to send. Raises OSError."""
        while True:
            await self._has_work.wait()
            async with self._lock:
                self._has_work.clear()
                if self._to_install is not None:
                    await self._install(node)
                if self._log.is_dirty:
                    await self._flush(node)
                if self._log.bytes_on_disk > self._snapshot_at_bytes and self._can_go_further:
                    await self._take_snapshot(node)
                wake()

    def look(self) -> None:
        """Wake `run` if there is work."""
        if self._log.is_dirty or self._to_install is not None:
            self._has_work.set()

    def install(self, image: Install) -> None:
        """Install an image as soon as the disk is free."""
        self._to_install = image
        self.look()

    async def close(self, node: RaftNode, *, is_sound: bool) -> None:
        """Wait for the work in progress; flush the rest unless the disk has failed. Cancel `run` afterwards."""
        async with self._lock:
            if is_sound and self._log.is_dirty:
                self._log.flush(node.commit_index)
            self._log.close()

    async def scrub(self, node: RaftNode) -> list[DamagedLog]:
        """Compare the files with memory. Rewrite those that differ, and return the damage that was repaired."""
        found: list[DamagedLog] = []
        async with self._lock:
            if self._log.is_dirty:
                await self._flush(node)
            try:
                found += await self._scrub_snapshot()
                found += await self._scrub_journal(node)
            except (OSError, OutOfResources) as error:
                if not postponed("metadata.scrub_postponed", error):
                    raise
        self.look()
        return found

    @property
    def _can_go_further(self) -> bool:
        """True if a new snapshot would have more entries than the last one."""
        return self._machine.whole.image.index > self._snapshot_index

    async def _flush(self, node: RaftNode) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._run_blocking(self._log.begin_flush().sync)
        self.files.synced(loop.time() - began, self._log.bytes_on_disk)
        self._log.end_flush(node.commit_index)
        node.flushed()

    async def _scrub_journal(self, node: RaftNode) -> list[DamagedLog]:
        path = f"{self._directory}/{journal.NAME}"
        expected, end = self._log.entries, self._log.bytes_on_disk
        try:
            written = (await self._run_blocking(content_of, self._disk, path))[:end]
            content = journal.check(path, written)
            if content.end == end and content.entries == expected:
                return []
            damage = DamagedLog(path, content.end, "its content differs from what was written")
        except DamagedLog as found:
            damage = found
        self._log.rewrite(node.commit_index)
        return [damage]

    async def _scrub_snapshot(self) -> list[DamagedLog]:
        try:
            known = await self._run_blocking(snapshot.read_newest, self._disk, self._directory)
            if self._snapshot_index == 0 or (known is not None and known.image.index == self._snapshot_index):
                return []
            damage = DamagedLog(self._directory, 0, f"the snapshot of entry {self._snapshot_index} is missing")
        except DamagedLog as found:
            damage = found
        except OSError as error:
            damage = damage_of(error, self._directory, 0)
        await self._write_snapshot()
        return [damage]

    async def _take_snapshot(self, node: RaftNode) -> None:
        try:
            index = await self._write_snapshot()
            # Only now: until the snapshot is on disk, only the log has these entries.
            start = self._log.start_of_tail(index, TAIL_ENTRIES, self._interval_bytes // 2)
            self._log.drop_before(start, node.commit_index)
        except OSError as error:
            if not postponed("metadata.snapshot_postponed", error):
                raise
            return
        self._snapshot_at_bytes = self._log.bytes_on_disk + self._interval_bytes

    async def _write_snapshot(self) -> int:
        """Write a snapshot. Return the index of its image. Raises OSError."""
        taken = self._machine.whole
        self.files.snapshot_bytes = await self._run_blocking(snapshot.write, self._disk, self._directory, taken)
        self._snapshot_index = taken.image.index
        snapshot.remove_all_but_newest(self._disk, self._directory)
        return taken.image.index

    async def _install(self, node: RaftNode) -> None:
        message, self._to_install = self._to_install, None
        assert message is not None, "there is an image to install"
        index, term = message.index, message.index_term
        if index <= node.commit_index:
            return
        try:
            taken = Snapshot(await self._run_blocking(unpacked, message), term)
        except MalformedMessage as malformed:
            # The leader sends an image again; a later leader may send a valid one.
            _events.error("image.malformed", index=index, reason=str(malformed))
            return
        try:
            self.files.snapshot_bytes = await self._run_blocking(snapshot.write, self._disk, self._directory, taken)
            self._snapshot_index = index
            if index > node.commit_index:
                node.installed(index, term, taken.image.voters)
                self._machine.install(taken.image, term)
                self._snapshot_at_bytes = self._log.bytes_on_disk + self._interval_bytes
            snapshot.remove_all_but_newest(self._disk, self._directory)
        except OSError as error:
            if not postponed("metadata.image_postponed", error):
                raise
            self._to_install = self._to_install or message
            asyncio.get_running_loop().call_later(INSTALL_AGAIN_S, self.look)
