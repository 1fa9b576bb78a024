"""Start and end positions of a read by offset or by time, before they are resolved to offsets."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cordwood.columnar.ranges import EARLIEST, LATEST
from cordwood.spark.errors import WrongOption
from cordwood.storage.types import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """An offset given by the user."""

    offset: int


@dataclass(frozen=True, slots=True)
class TimestampPosition:
    """The first record at or after a time in ms; or EARLIEST or LATEST."""

    timestamp_ms: int


Position = OffsetPosition | TimestampPosition

AT_EARLIEST, AT_LATEST = TimestampPosition(EARLIEST), TimestampPosition(LATEST)


@dataclass(frozen=True, slots=True)
class Positions:
    """One position for all partitions, or one for each named partition; `option` is the user's option."""

    option: str
    everywhere: Position | None = None
    named: Mapping[TopicPartition, Position] = field(default_factory=dict)

    def of(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """Return the position of each partition. Raises WrongOption unless exactly these partitions are named."""
        if self.everywhere is not None:
            return dict.fromkeys(places, self.everywhere)
        forgotten, unknown = sorted(set(places) - set(self.named)), sorted(set(self.named) - set(places))
        if forgotten:
            raise WrongOption(f"{self.option} lacks {_listed(forgotten)}: name every partition that is read")
        if unknown:
            raise WrongOption(
                f"{self.option} names {_listed(unknown)}, which is not among the partitions that are read"
            )
        return {place: self.named[place] for place in places}


def _listed(places: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, places))
