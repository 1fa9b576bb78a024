"""Moves of replicas between the log directories of this broker (KIP-113, ADR 46).

A copy is made below the log's end at a limited rate and catches up with it. Flushes of the replica then pause for a few
syncs, while the copy takes the log's place: appends go on, and their acknowledgements wait. A move survives a restart,
which begins its copy again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import structlog

from cordwood.replication.checkpoints import TRUNCATION_POLL_S
from cordwood.replication.file_removal import FileRemoval
from cordwood.replication.flusher import AGAIN_AFTER_S
from cordwood.replication.log_directory import MOVES, LogDirectory
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks, finished
from cordwood.replication.token_bucket import TokenBucket
from cordwood.storage.errors import DamagedLog, OutOfResources, StorageError
from cordwood.storage.log_copy import Goal, LogCopy, commit, remove_mark
from cordwood.storage.segment import Segment

NEAR_BYTES = 1 << 20
"""Bytes that a copy may lack when the log's checkpoint is taken for it."""
REST_BYTES_MIN, REST_BYTES_MAX = 256 << 10, 8 << 20
"""Bytes that are copied on the event loop. The limit doubles each time that more were appended meanwhile."""
RETRY_S = 5.0
POLL_S = 0.001

_events = structlog.get_logger("replica_moves")


@dataclass(slots=True, eq=False)
class DirectoryMove:
    """One replica's move to another log directory."""

    partition: Partition
    target: LogDirectory
    copy: LogCopy
    rest_bytes_max: int = REST_BYTES_MIN
    is_cancelled: bool = False

    @property
    def is_wanted(self) -> bool:
        partition = self.partition
        return not (self.is_cancelled or partition.is_deleted or partition.is_offline or self.target.is_offline)


class ReplicaMoves:
    """The moves of one broker: one at a time into each log directory."""

    def __init__(
        self,
        replicas: Replicas,
        file_removal: FileRemoval,
        unrecord: Callable[[Partition], Awaitable[None]],
        record: Callable[[], None],
        bytes_per_second: Callable[[], float],
        is_available: Callable[[], bool],
    ) -> None:
        """`unrecord` returns once the metadata does not say in which log directory the replica is.

        A broker that starts without one of its directories then counts the replica as lost. `record` lets the metadata
        have the directories of `Replicas.unrecorded` again. `bytes_per_second` is the limit of all moves together.
        """
        self.is_available = is_available
        """Returns whether replicas may move: `unrecord` needs a newer metadata.version than the first."""
        self._replicas, self._file_removal = replicas, file_removal
        self._unrecord, self._record, self._bytes_per_second = unrecord, record, bytes_per_second
        self._moves: dict[Partition, DirectoryMove] = {}
        self._running: set[LogDirectory] = set()
        self._allowance = TokenBucket()
        self._tasks = Tasks()
        self.completed = 0
        """Moves since the broker started."""

    def __iter__(self) -> Iterator[DirectoryMove]:
        return iter(list(self._moves.values()))

    @property
    def missing_bytes(self) -> int:
        """Bytes that all moves still have to copy."""
        return sum(move.copy.missing_bytes for move in self)

    def resume(self) -> None:
        """Begin the moves again that the last stop interrupted, and set aside the copies that moves have left."""
        for directory in self._replicas.directories:
            for topic_id, index in directory.unfinished_moves():
                partition = self._replicas.with_id(topic_id, index)
                if partition is None or partition.directory is directory:
                    try:
                        directory.set_aside(directory.move_path(topic_id, index))
                    except OSError as error:
                        _events.warning("copy.not_removed", directory=directory.path, error=str(error))
                else:
                    self.move(partition, directory)
        while self._replicas.superseded:
            self._file_removal.remove_copy(*self._replicas.superseded.pop())

    def move(self, partition: Partition, target: LogDirectory) -> None:
        """Move a replica to another log directory, or leave it where it is: the last call counts."""
        known = self._moves.get(partition)
        if known is not None and known.target is target and not known.is_cancelled:
            return
        if known is not None:
            known.is_cancelled = True
            del self._moves[partition]
        if partition.directory is not target:
            place = target.move_path(partition.topic_id, partition.index)
            self._moves[partition] = DirectoryMove(partition, target, LogCopy(partition.log, place))
            if target not in self._running:
                self._running.add(target)
                self._tasks.spawn(self._move_all(target), f"moves to {target.path}")

    async def close(self) -> None:
        """Stop copying. A replica that takes its place in another directory is there when this returns."""
        for move in self:
            move.is_cancelled = True
        await self._tasks.close()

    def _next(self, target: LogDirectory) -> DirectoryMove | None:
        return next((move for move in self._moves.values() if move.target is target), None)

    async def _move_all(self, target: LogDirectory) -> None:
        try:
            while (move := self._next(target)) is not None:
                is_over = await self._try(move)
                if is_over and self._moves.get(move.partition) is move:
                    del self._moves[move.partition]
                elif not is_over:
                    if self._moves.get(move.partition) is move:
                        # Last in the queue: the other moves come first.
                        self._moves[move.partition] = self._moves.pop(move.partition)
                    await asyncio.sleep(RETRY_S)
        finally:
            self._running.discard(target)

    async def _try(self, move: DirectoryMove) -> bool:
        """Move a replica. Return False if that failed, and is to be tried again."""
        partition, target = move.partition, move.target
        try:
            is_done = False
            while move.is_wanted and not is_done:
                is_done = await self._copied(move) and await self._switched(move)
        except DamagedLog as damage:
            # It is repaired meanwhile, and copied then.
            if damage.path.startswith(f"{partition.log.directory}/"):
                partition.report_damage(damage)
            reason: object = damage
        except (OSError, StorageError) as error:
            reason = target.write_failed(error) if isinstance(error, OSError) else error
        except Exception as error:
            reason = repr(error)
        else:
            reason = "it is not wanted any more"
        if not partition.is_deleted:
            self._replicas.unrecorded[partition] = None
            self._record()
        if partition.directory is target and not target.is_offline:
            self.completed += 1
            return True
        _events.warning("replica.not_moved", topic=partition.topic, partition=partition.index,
                        directory=target.path, reason=str(reason))  # fmt: skip
        if not target.is_offline:
            await self._abandon(move)
        return not move.is_wanted

    async def _abandon(self, move: DirectoryMove) -> None:
        try:
            await finished(move.target.run_blocking(move.copy.abandon))
            move.target.flushed_offsets.forget(move.partition.topic_id, move.partition.index)
        except OSError as error:
            move.target.write_failed(error)

    async def _copied(self, move: DirectoryMove) -> bool:
        """Copy the log up to NEAR_BYTES below its end. Return False if the move is not wanted any more."""
        partition, target, copy = move.partition, move.target, move.copy
        while move.is_wanted and self._has_left_copies(partition):
            # The replica has moved before, and its files there are removed once no reader uses them.
            await asyncio.sleep(RETRY_S)
        if partition.log.lacks_archived_state:
            # The copy would count as whole.
            raise OutOfResources("its log has lost leader epochs or producers, which the archive has to tell first")
        if not copy.size:
            await finished(target.run_blocking(copy.begin))
        while move.is_wanted:
            await self._reach(move, copy.goal())
            if copy.missing_bytes <= NEAR_BYTES:
                break
        return move.is_wanted

    def _has_left_copies(self, partition: Partition) -> bool:
        others = [other for other in self._replicas.directories if other is not partition.directory]
        return any(self._file_removal.has_left_copy(other, partition) for other in others if not other.is_offline)

    async def _reach(self, move: DirectoryMove, goal: Goal) -> None:
        steps = move.copy.steps(goal)
        try:
            while move.is_wanted and (size := await finished(move.target.run_blocking(next, steps, None))) is not None:
                await self._keep_to_the_rate(size)
        except DamagedLog:
            if not move.copy.has_changed(goal):
                raise

    async def _keep_to_the_rate(self, size: int) -> None:
        """Sleep to keep the rate of all moves together."""
        now = asyncio.get_running_loop().time()
        self._allowance.set_rate(self._bytes_per_second(), now)
        self._allowance.charge(size, now)
        await asyncio.sleep(self._allowance.debt_s(now))

    async def _switched(self, move: DirectoryMove) -> bool:
        """Let the replica continue in the copy. Return False if the log has gone on too far meanwhile."""
        partition = move.partition
        # Until the copy counts, the replica is in both directories, and is lost with any of them.
        await self._unrecord(partition)
        while partition.is_checkpoint_locked:
            await asyncio.sleep(TRUNCATION_POLL_S)
        if not move.is_wanted:
            return False
        partition.is_checkpoint_locked = True
        return await finished(self._switch(move))

    async def _switch(self, move: DirectoryMove) -> bool:
        partition, target, copy = move.partition, move.target, move.copy
        log, source, from_path = partition.log, partition.directory, partition.log.directory
        place = target.partition_path(partition.topic_id, partition.index)
        has_moved = False
        try:
            await source.run_blocking(remove_mark, source.disk, from_path)
            goal = copy.goal(with_state=True)
            await self._reach(move, goal)
            if not copy.is_current(goal):
                return False
            await target.run_blocking(copy.write_state, goal, place)
            flush_mark = target.flushed_offsets.mark(partition.topic_id, partition.index)
            partition.flusher = None
            while log.is_flushing and move.is_wanted:
                await asyncio.sleep(POLL_S)
            if not (move.is_wanted and copy.may_take_over(goal, move.rest_bytes_max)):
                move.rest_bytes_max = min(2 * move.rest_bytes_max, REST_BYTES_MAX)
                return False
            old = copy.take_over(goal, place)
            has_moved = True
            log.discard, partition.flush_mark = target.discard, flush_mark
            self._replicas.moved(partition, target)
            await self._commit(partition, target, place)
            self._file_removal.remove_copy(source, partition, old)
            _events.info("replica.moved", topic=partition.topic, partition=partition.index,
                         source=source.path, directory=target.path)  # fmt: skip
            return True
        finally:
            partition.is_checkpoint_locked = False
            log.producers.encoded()
            if not has_moved or not target.is_offline:
                partition.flusher = partition.directory.flusher
                partition.directory.flusher.touch(partition)

    async def _commit(self, partition: Partition, target: LogDirectory, place: str) -> None:
        """Make the copy count, before anything in it is acknowledged. An error takes its directory offline."""
        segments: list[Segment] = partition.log.segments
        file = segments[-1].file if segments and not segments[-1].is_sealed else None
        while True:
            try:
                await target.run_blocking(commit, target.disk, place, f"{target.path}/{MOVES}", file)
                if not partition.is_deleted:
                    partition.note_flushed()
                return
            except OSError as error:
                if not isinstance(target.write_failed(error), OutOfResources):
                    raise
                await asyncio.sleep(AGAIN_AFTER_S)
