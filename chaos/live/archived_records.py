"""The records of a topic that are only in the archive, for comparison with what clients know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from cordwood.archive.batches import ArchiveReader
from cordwood.archive.blocking import wait
from cordwood.archive.catalog import PartitionId, find_cluster, read_partition
from cordwood.archive.obstore_store import open_store
from cordwood.chaos.live.histories import RawRecord
from cordwood.chaos.workload import decode as value_in
from cordwood.columnar.ranges import Isolation, OffsetRange
from cordwood.storage.records import decode


@dataclass(frozen=True, slots=True)
class ArchivedRecords:
    """An archive with one cluster."""

    url: str
    credentials: Mapping[str, str]

    def before(self, topic_id: str, partition: int, end: int) -> Sequence[RawRecord]:
        """Return the records below `end`. Raises StoreError, CorruptRecords, OffsetsGone."""
        store = open_store(self.url, self.credentials)
        place = PartitionId(wait(find_cluster(store, None)), UUID(topic_id), partition)
        known = wait(read_partition(store, place))
        reader = ArchiveReader(store, known, isolation=Isolation.READ_UNCOMMITTED)
        found: list[RawRecord] = []
        for fetched in reader.fetch(OffsetRange(topic_id, partition, known.start, end)):
            for position, header in fetched.batches:
                producer = header.producer_id, header.producer_epoch
                batch = fetched.data[position : position + header.size]
                found += [RawRecord(record.offset, value_in(record.value), producer) for record in decode(batch)]
        return [record for record in found if record.offset < end]
