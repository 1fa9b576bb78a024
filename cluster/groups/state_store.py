"""Group state store: appends of groups and offsets to the `__consumer_offsets` partitions that this broker leads."""

from collections.abc import Mapping, Sequence

from cordwood.cluster.coordination.shard import Content
from cordwood.cluster.coordination.shard_store import RECORDS_PER_BATCH_MAX, ShardStore, chunks
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.formats import encode_group_key
from cordwood.cluster.groups.offsets import Changes
from cordwood.cluster.groups.shard import Shard, changes_as_contents


class GroupStateStore(ShardStore[Shard]):
    """The shards of the `__consumer_offsets` partitions that this broker leads."""

    async def write(self, shard: Shard, changes: Changes, groups: Mapping[str, bytes | None] | None = None) -> None:
        """Append changes, groups before offsets, and apply them in memory once they are committed. Raises Refused.

        Up to RECORDS_PER_BATCH_MAX offsets are one batch and one wait.
        """
        contents = [(encode_group_key(group_id), value) for group_id, value in (groups or {}).items()]
        for chunk in chunks(changes.items(), RECORDS_PER_BATCH_MAX):
            await self._write_offsets(shard, contents, dict(chunk))
            contents = []
        if contents:
            await self.append(shard, contents)
        self.compact_if_due(shard)

    async def _write_offsets(self, shard: Shard, contents: Sequence[Content], changes: Changes) -> None:
        sequence = shard.offsets.begin(changes)
        try:
            await self.append(shard, [*contents, *changes_as_contents(changes)])
        except Refused:
            shard.offsets.abandon(sequence, changes)
            raise
        shard.offsets.settle(sequence, changes)
