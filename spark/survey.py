"""What the cluster has of what a reader wants: partitions, and the offsets that its positions stand for."""

from collections.abc import Mapping

from cordwood.spark.client.cluster import NO_OFFSET, ClusterReader
from cordwood.spark.errors import OffsetsGone
from cordwood.spark.mistakes import WrongOption
from cordwood.spark.offsets import Offsets
from cordwood.spark.positions import AtOffset, AtTime, Position
from cordwood.spark.ranges import EARLIEST, LATEST, OffsetRange, TopicPartition
from cordwood.spark.read_options import NoRecordSoLate, ReadOptions
from cordwood.spark.subscription import ByPartition, wanted_places, wanted_topics
from cordwood.spark.suggestions import nearest

HOW_TO_GO_ON = "set failOnDataLoss to false to go on with what is left"


class Survey:
    """Asks a cluster on behalf of one reader; every answer is as the reader's isolation sees it."""

    def __init__(self, options: ReadOptions) -> None:
        """Talks to nobody yet."""
        self._options = options
        self._cluster = ClusterReader(options.client)

    def places(self) -> set[TopicPartition]:
        """The wanted partitions that are there, in one request."""
        wanted = wanted_topics(self._options.subscription)
        partitions = self._cluster.partitions(wanted)
        return wanted_places(self._options.subscription, partitions)

    def all_places(self) -> set[TopicPartition]:
        """The same, where everything that is named has to be there. Raises WrongOption with what is there instead."""
        places = self.places()
        missing = (wanted_topics(self._options.subscription) or frozenset()) - {place.topic for place in places}
        if missing:
            there = self._cluster.topics()
            meant = nearest(min(missing), there)
            hint = f": did you mean {meant}?" if meant else f"; there are {', '.join(there) or 'no topics at all'}"
            raise WrongOption(f"there is no topic {', '.join(sorted(missing))}{hint}")
        if isinstance(self._options.subscription, ByPartition):
            absent = sorted(self._options.subscription.places - places)
            if absent:
                raise WrongOption(f"assign names {', '.join(map(str, absent))}, and the topic has fewer partitions")
        return places

    def earliest(self, places: set[TopicPartition]) -> Offsets:
        """The first offset of each that is still there."""
        return self._cluster.offsets(dict.fromkeys(places, EARLIEST))

    def latest(self, places: set[TopicPartition]) -> Offsets:
        """How far each can be read now."""
        return self._cluster.offsets(dict.fromkeys(places, LATEST))

    def starts(self, places: set[TopicPartition]) -> Offsets:
        """The offsets of `starting`, for exactly these partitions.

        Raises WrongOption for what is later than all records, and OffsetsGone for what is earlier, where these matter.
        """
        wanted = self._options.starting.of(places)
        named = self._within_log(wanted, self._options.starting.option)
        at_times = self._at_times(wanted)
        too_late = {place for place, offset in at_times.items() if offset == NO_OFFSET}
        if too_late and self._options.no_record_so_late is NoRecordSoLate.ERROR:
            option, where = self._options.starting.option, ", ".join(map(str, sorted(too_late)))
            raise WrongOption(
                f"{option} is later than every record of {where}: choose an earlier time, or set "
                "startingOffsetsByTimestampStrategy to latest"
            )
        return {**self._not_lost(named), **at_times, **self.latest(too_late)}

    def ends(self, places: set[TopicPartition]) -> Offsets:
        """The offsets of `ending`; a time that is later than all records means as far as there are any."""
        wanted = self._options.ending.of(places)
        named = self._within_log(wanted, self._options.ending.option)
        at_times = self._at_times(wanted)
        return {**named, **at_times, **self.latest({place for place, at in at_times.items() if at == NO_OFFSET})}

    def not_before(self, places: set[TopicPartition], timestamp_ms: int) -> Offsets:
        """The first offset with a record of that time or later; partitions without one are left out."""
        found = self._cluster.offsets(dict.fromkeys(places, timestamp_ms))
        return {place: offset for place, offset in found.items() if offset != NO_OFFSET}

    def _at_times(self, wanted: Mapping[TopicPartition, Position]) -> Offsets:
        return self._cluster.offsets({place: at.timestamp_ms for place, at in wanted.items() if isinstance(at, AtTime)})

    def _within_log(self, wanted: Mapping[TopicPartition, Position], option: str) -> Offsets:
        """The offsets that the user named. Raises WrongOption where one is beyond what there is."""
        named = {place: at.offset for place, at in wanted.items() if isinstance(at, AtOffset)}
        for place, end in self.latest(set(named)).items():
            if named[place] > end:
                raise WrongOption(f"{option} has {named[place]} for {place}, whose records end at {end}")
        return named

    def _not_lost(self, named: Offsets) -> Offsets:
        """The same, moved to where the log begins now. Raises OffsetsGone where that matters."""
        begins = self.earliest(set(named))
        for place, offset in named.items():
            if offset < begins[place] and self._options.fail_on_data_loss:
                gone = OffsetRange(place.topic, place.partition, offset, begins[place])
                raise OffsetsGone(gone, f"the log begins at {begins[place]} now; {HOW_TO_GO_ON}")
        return {place: max(offset, begins[place]) for place, offset in named.items()}
