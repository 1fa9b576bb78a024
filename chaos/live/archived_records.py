"""The records of a topic that are only in the archive, for comparison with the clients' histories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from crc32c import crc32c

from cordwood.archive.blocking import wait
from cordwood.archive.catalog import DamagedObject, PartitionId, find_cluster, read_partition
from cordwood.archive.layout import segment_names
from cordwood.archive.obstore_store import open_store
from cordwood.chaos.live.histories import RawRecord
from cordwood.chaos.workload import decode as value_in
from cordwood.storage.batch import headers
from cordwood.storage.records import decode


@dataclass(frozen=True, slots=True)
class ArchivedRecords:
    """An archive with one cluster."""

    url: str
    credentials: Mapping[str, str]

    def before(self, topic_id: str, partition: int, end: int) -> Sequence[RawRecord]:
        """Return the records below `end`. Raises StoreError, DamagedObject."""
        store = open_store(self.url, self.credentials)
        place = PartitionId(wait(find_cluster(store, None)), UUID(topic_id), partition)
        found: list[RawRecord] = []
        for segment in wait(read_partition(store, place)).segments:
            content = wait(store.get(segment_names(*place, segment)[0]))
            if (len(content), crc32c(content)) != (segment.size, segment.crc):
                raise DamagedObject(str(segment.id), segment.start_offset, "does not match its checksum")
            position = 0
            for header in headers(content):
                producer, batch = (header.producer_id, header.producer_epoch), content[position:][: header.size]
                records = [RawRecord(record.offset, value_in(record.value), producer) for record in decode(batch)]
                found += [record for record in records if segment.start_offset <= record.offset < end]
                position += header.size
        return found
