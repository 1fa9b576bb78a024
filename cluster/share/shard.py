"""Shard: the share partitions of one partition of `__share_group_state`, in memory."""

from collections.abc import Iterable, Iterator

from cordwood.cluster.coordination.shard import Content, CoordinatorShard
from cordwood.cluster.coordination.topic import PartitionLeadership
from cordwood.cluster.share.formats import (
    SNAPSHOT,
    UPDATE,
    decode_key,
    decode_snapshot,
    decode_update,
    encode_key,
    encode_snapshot,
    encode_update,
)
from cordwood.cluster.share.state import SharePartitionState
from cordwood.cluster.share.states import SharePartitionKey

Changes = dict[SharePartitionKey, SharePartitionState | None]
"""The next states of share partitions; None for one that is deleted."""


class ShareShard(CoordinatorShard):
    """One partition's share partitions. Changes here have been appended to the partition."""

    def __init__(self, leadership: PartitionLeadership) -> None:
        super().__init__(leadership)
        self.states: dict[SharePartitionKey, SharePartitionState] = {}

    def restore(self, contents: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        updates: dict[SharePartitionKey, SharePartitionState] = {}
        for raw_key, value in contents:
            decoded = decode_key(raw_key)
            if decoded is None:
                continue
            if decoded.kind == SNAPSHOT:
                self.states[decoded.share_partition] = decode_snapshot(value)
            else:
                updates[decoded.share_partition] = decode_update(value)
            yield
        for key, update in updates.items():
            snapshot = self.states.get(key)
            if snapshot is not None:
                self.states[key] = snapshot.restored(update)
            yield

    def apply(self, changes: Changes) -> Changes:
        """Apply changes that are being appended. Return those that take them back."""
        before: Changes = {key: self.states.get(key) for key in changes}
        for key, state in changes.items():
            if state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = state
        return before


def records(key: SharePartitionKey, state: SharePartitionState | None, now_ms: int) -> list[Content]:
    """Return the records that store a state: an update, or a snapshot if nothing has changed since the last one."""
    if state is None:
        return [(encode_key(SNAPSHOT, key), None), (encode_key(UPDATE, key), None)]
    if state.updates:
        return [(encode_key(UPDATE, key), encode_update(state))]
    return [(encode_key(SNAPSHOT, key), encode_snapshot(state, now_ms))]
