"""Resolution of a reader's subscription and positions to partitions and offsets, by queries to the cluster."""

from collections import Counter
from collections.abc import Iterable, Mapping

from cordwood.archive.catalog import PartitionId
from cordwood.columnar.errors import OffsetsGone
from cordwood.columnar.ranges import EARLIEST, LATEST, OffsetRange
from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.errors import WrongOption, nearest
from cordwood.spark.offsets import Offsets
from cordwood.spark.positions import OffsetPosition, Position, TimestampPosition
from cordwood.spark.read_options import NoRecordSoLate, ReadOptions
from cordwood.spark.subscription import ByPartition, wanted_places, wanted_topics
from cordwood.storage.types import NO_OFFSET, TopicPartition

HOW_TO_GO_ON = "set failOnDataLoss to false to continue with the remaining records"


class Survey:
    """The cluster queries of one reader, at its isolation level."""

    def __init__(self, options: ReadOptions) -> None:
        """Take the options. Do not connect yet."""
        self._options = options
        self._cluster = ClusterReader(options.client)

    def places(self) -> set[TopicPartition]:
        """Return the subscribed partitions that exist, with one request."""
        wanted = wanted_topics(self._options.subscription)
        partitions = self._cluster.partitions(wanted)
        return wanted_places(self._options.subscription, partitions)

    def all_places(self) -> set[TopicPartition]:
        """Return the subscribed partitions. Raises WrongOption if a named topic or partition does not exist."""
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
        """Return the log start offset of each partition."""
        return self._cluster.offsets(dict.fromkeys(places, EARLIEST))

    def latest(self, places: set[TopicPartition]) -> Offsets:
        """Return the end of the visible records of each partition."""
        return self._cluster.offsets(dict.fromkeys(places, LATEST))

    def starts(self, places: set[TopicPartition]) -> Offsets:
        """Return the offsets of the start positions of these partitions.

        Raises WrongOption for a position later than all records (by the option startingOffsetsByTimestampStrategy for a
        time), and OffsetsGone for an offset below the log start with failOnDataLoss.
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
        """Return the offsets of the end positions. A time later than all records means the end. Raises WrongOption."""
        wanted = self._options.ending.of(places)
        named = self._within_log(wanted, self._options.ending.option)
        at_times = self._at_times(wanted)
        return {**named, **at_times, **self.latest({place for place, at in at_times.items() if at == NO_OFFSET})}

    def not_before(self, places: set[TopicPartition], timestamp_ms: int) -> Offsets:
        """Return the first offset at or after a time, for the partitions that have one."""
        found = self._cluster.offsets(dict.fromkeys(places, timestamp_ms))
        return {place: offset for place, offset in found.items() if offset != NO_OFFSET}

    def cut(self, name: str) -> tuple[Offsets, Offsets]:
        """Return the start and end offsets of a cut, of the subscribed partitions. Raises WrongOption."""
        pinned = self._cluster.cut(name)
        if pinned is None:
            raise WrongOption(f"there is no cut {name!r}, or you may not describe all its topics")
        counts = Counter(place.topic for place in pinned)
        missing = (wanted_topics(self._options.subscription) or frozenset()) - set(counts)
        if missing:
            raise WrongOption(f"the cut {name} has no topic {min(missing)}: it has {', '.join(sorted(counts))}")
        wanted = wanted_places(self._options.subscription, counts) & set(pinned)
        return {place: pinned[place][0] for place in wanted}, {place: pinned[place][1] for place in wanted}

    def archived(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionId]:
        """Return where the archive has these partitions, if it has them; nothing if there is no archive to read.

        For a cut, leave out compacted topics: pinned records may be compacted in the log and not yet in the archive, so
        that two reads would differ.
        """
        there = sorted(set(places))
        if self._options.archive is None or not there:
            return {}
        if self._options.cut is not None:
            fixed = self._cluster.uncompacted({place.topic for place in there})
            there = [place for place in there if place.topic in fixed]
        cluster_id, topics = self._cluster.identities({place.topic for place in there})
        return {
            place: PartitionId(cluster_id, topics[place.topic], place.partition)
            for place in there
            if place.topic in topics
        }

    def _at_times(self, wanted: Mapping[TopicPartition, Position]) -> Offsets:
        return self._cluster.offsets(
            {place: at.timestamp_ms for place, at in wanted.items() if isinstance(at, TimestampPosition)}
        )

    def _within_log(self, wanted: Mapping[TopicPartition, Position], option: str) -> Offsets:
        """Return the offsets given by the user. Raises WrongOption if one is past the end."""
        named = {place: at.offset for place, at in wanted.items() if isinstance(at, OffsetPosition)}
        for place, end in self.latest(set(named)).items():
            if named[place] > end:
                raise WrongOption(f"{option} has {named[place]} for {place}, whose records end at {end}")
        return named

    def _not_lost(self, named: Offsets) -> Offsets:
        """Return the offsets, raised to the log start offset. Raises OffsetsGone instead with failOnDataLoss."""
        begins = self.earliest(set(named))
        for place, offset in named.items():
            if offset < begins[place] and self._options.fail_on_data_loss:
                gone = OffsetRange(place.topic, place.partition, offset, begins[place])
                raise OffsetsGone(gone, f"the log now begins at {begins[place]}; {HOW_TO_GO_ON}")
        return {place: max(offset, begins[place]) for place, offset in named.items()}
