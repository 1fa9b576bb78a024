"""Log starts, ends and positions of partitions for the HTTP API, from their leaders."""

from collections.abc import Iterable, Mapping
from typing import assert_never

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.refusal import refusal_of
from cordwood.cluster.kafka.fetch_request import READ_COMMITTED, READ_UNCOMMITTED
from cordwood.cluster.kafka.handlers.list_offsets import DEBUGGER, EARLIEST, LATEST
from cordwood.cluster.kafka.leader_offsets import LeaderOffsets
from cordwood.cluster.metadata.leaders import Offsets
from cordwood.cluster.operations.positions import AtOffset, AtTime, Edge, Position
from cordwood.storage.types import TopicPartition


async def starts(context: Context, places: Iterable[TopicPartition]) -> Offsets:
    """Return the log start offset of each partition. Partitions whose leader does not respond are left out."""
    return await _of_leaders(context).known(places, EARLIEST)


async def committed_ends(context: Context, places: Iterable[TopicPartition]) -> Offsets:
    """Return the end of what consumers may read. Partitions whose leader does not respond are left out."""
    return await _of_leaders(context).known(places, LATEST)


async def high_watermarks(context: Context, places: Iterable[TopicPartition]) -> Offsets:
    """Return the end of what consumers with read_uncommitted may read, as `committed_ends` does."""
    return await _of_leaders(context).known(places, LATEST, READ_UNCOMMITTED)


async def log_ends(context: Context, places: Iterable[TopicPartition]) -> Offsets:
    """Return the leader's log end, committed or not. Partitions whose leader does not respond are left out."""
    return await _of_leaders(context).known(places, LATEST, asker=DEBUGGER)


async def resolve(
    context: Context, position: Position, places: Iterable[TopicPartition], isolation: int = READ_COMMITTED
) -> Offsets:
    """Return the offset of a position in each partition, always within the log. Raises HttpRefusal."""
    names = list(places)
    match position:
        case Edge.EARLIEST:
            return await _all(context, names, EARLIEST, isolation)
        case Edge.LATEST:
            return await _all(context, names, LATEST, isolation)
        case AtOffset(offset):
            return await clamped(context, dict.fromkeys(names, offset), isolation)
        case AtTime(timestamp_ms):
            found = await _all(context, names, timestamp_ms, isolation)
            none_so_late = [name async for name in context.turns.each(names) if found[name] < 0]
            late = await _all(context, none_so_late, LATEST, isolation)
            return {**found, **late}
        case _:
            assert_never(position)


async def clamped(context: Context, wanted: Mapping[TopicPartition, int], isolation: int = READ_COMMITTED) -> Offsets:
    """Return the offsets, each limited to the range of its partition. Raises HttpRefusal."""
    begins = await _all(context, wanted, EARLIEST, isolation)
    ends = await _all(context, wanted, LATEST, isolation)
    return {
        place: min(max(offset, begins[place]), ends[place])
        async for place, offset in context.turns.each(wanted.items())
    }


async def _all(context: Context, places: Iterable[TopicPartition], timestamp: int, isolation: int) -> Offsets:
    try:
        return await _of_leaders(context).listed(places, timestamp, isolation)
    except Refused as refused:
        raise refusal_of(refused.code, refused.message) from refused


def _of_leaders(context: Context) -> LeaderOffsets:
    return LeaderOffsets(context.cluster, lambda: context.image, context.turns)
