"""Group state store: appends of groups and offsets to the `__consumer_offsets` partitions that this broker leads."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from cordwood.cluster.coordination.shard import Content, as_records
from cordwood.cluster.coordination.shard_store import ShardStore, chunks
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.formats import CommittedOffset, OffsetKey, encode_group_key
from cordwood.cluster.groups.offsets import Changes
from cordwood.cluster.groups.shard import Shard, changes_as_contents
from cordwood.replication.verification import VerificationGuard
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

GROUP_RECORDS_PER_BATCH_MAX = 500
"""Records that are encoded in one step of the event loop, some milliseconds."""
GROUP_BYTES_PER_BATCH_MAX = 1 << 20
"""Bytes of one batch with more than one record."""

Verify = Callable[[TopicPartition], Awaitable[None]]
"""Asks the transaction coordinator whether a partition is in a transaction. Raises Refused if it is not."""


class GroupStateStore(ShardStore[Shard]):
    """The shards of the `__consumer_offsets` partitions that this broker leads."""

    async def write(self, shard: Shard, changes: Changes, groups: Mapping[str, bytes | None] | None = None) -> None:
        """Append changes, groups before offsets, and apply them in memory once they are committed. Raises Refused.

        Up to GROUP_RECORDS_PER_BATCH_MAX offsets are one batch and one wait.
        """
        contents: list[Content] = [(encode_group_key(group_id), value) for group_id, value in (groups or {}).items()]
        await self._write_all(shard, contents, changes.items())

    async def delete(
        self, shard: Shard, offsets: Iterable[OffsetKey], records: Sequence[bytes], classic: str | None
    ) -> None:
        """Delete offsets, records of groups by key, and the record of a classic group. Raises Refused."""
        keys = [*records, *([] if classic is None else [encode_group_key(classic)])]
        await self._write_all(shard, [(key, None) for key in keys], ((key, None) for key in offsets))

    async def append_records(
        self, shard: Shard, contents: Sequence[Content], begun: Callable[[], None] = lambda: None
    ) -> None:
        """Append records of groups, some as one batch, and wait until they are committed.

        Many records are encoded in turns. Later appends here are written after all of them: the newest value of a
        record is the last one in the log. `begun` is called once the first of several batches is appended. Raises
        Refused.
        """
        if not contents:
            return
        *former, last = _batches(contents)
        async with shard.appending:
            for chunk in former:
                self.submit(shard, chunk)
                begun()
                await self._turns.turn()
        # Before the next suspension, and so before those that waited.
        await self.append(shard, last)

    async def _write_all(
        self, shard: Shard, contents: Sequence[Content], changes: Iterable[tuple[OffsetKey, CommittedOffset | None]]
    ) -> None:
        for number, chunk in enumerate(chunks(changes, GROUP_RECORDS_PER_BATCH_MAX)):
            if number:
                await self._turns.turn()
            elif contents:
                # The batch with the first offsets has all of these records.
                async with shard.appending:
                    pass
            await self._write_offsets(shard, contents, dict(chunk))
            contents = ()
        await self.append_records(shard, contents)

    async def verified(
        self, shard: Shard, producer: ProducerIdAndEpoch, verify: Verify, *, is_v2: bool
    ) -> VerificationGuard | None:
        """Verify that the shard's partition is in a producer's transaction, unless its log shows it. Raises Refused."""
        guard = self._topic.begin_verification(shard.leadership, producer, is_v2=is_v2)
        if guard is not None:
            await verify(TopicPartition(self._topic.name, shard.partition))
        return guard

    async def write_pending(
        self,
        shard: Shard,
        producer: ProducerIdAndEpoch,
        changes: Mapping[OffsetKey, CommittedOffset],
        guard: VerificationGuard | None,
    ) -> None:
        """Append offsets of a transaction, pending until its marker, and wait until they are committed.

        Raises Refused.
        """
        records = as_records(changes_as_contents(changes), self._wall_clock())
        appended = self._topic.append_in_transaction(shard.leadership, records, producer, guard)
        shard.offsets.write_pending(producer.producer_id, changes)
        await self._topic.committed(shard.leadership, appended.end)

    async def _write_offsets(self, shard: Shard, contents: Sequence[Content], changes: Changes) -> None:
        sequence = shard.offsets.begin(changes)
        try:
            await self.append(shard, [*contents, *changes_as_contents(changes)])
        except Refused:
            shard.offsets.abandon(sequence, changes)
            raise
        shard.offsets.settle(sequence, changes)


def _batches(contents: Sequence[Content]) -> list[list[Content]]:
    """Return the records as those of batches that are encoded in one step each, and fit the log."""
    batches: list[list[Content]] = [[]]
    size = 0
    for key, value in contents:
        added = len(key) + len(value or b"")
        is_full = len(batches[-1]) == GROUP_RECORDS_PER_BATCH_MAX or size + added > GROUP_BYTES_PER_BATCH_MAX
        if batches[-1] and is_full:
            batches.append([])
            size = 0
        batches[-1].append((key, value))
        size += added
    return batches
