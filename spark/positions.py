"""Where in its partitions a reader begins or ends, before anybody has asked the cluster."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cordwood.spark.mistakes import WrongOption
from cordwood.spark.ranges import EARLIEST, LATEST, TopicPartition


@dataclass(frozen=True, slots=True)
class AtOffset:
    """An offset that the user named."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time in ms, or EARLIEST, or LATEST."""

    timestamp_ms: int


Position = AtOffset | AtTime

AT_EARLIEST, AT_LATEST = AtTime(EARLIEST), AtTime(LATEST)


@dataclass(frozen=True, slots=True)
class Positions:
    """One position for all partitions, or one for each that is named; `option` is what the user said it with."""

    option: str
    everywhere: Position | None = None
    named: Mapping[TopicPartition, Position] = field(default_factory=dict)

    def of(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """The position of each of these partitions. Raises WrongOption unless exactly these are named."""
        if self.everywhere is not None:
            return dict.fromkeys(places, self.everywhere)
        forgotten, unknown = sorted(set(places) - set(self.named)), sorted(set(self.named) - set(places))
        if forgotten:
            raise WrongOption(f"{self.option} says nothing of {_listed(forgotten)}: name every partition that is read")
        if unknown:
            raise WrongOption(
                f"{self.option} names {_listed(unknown)}, which is not among the partitions that are read"
            )
        return {place: self.named[place] for place in places}


def _listed(places: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, places))
