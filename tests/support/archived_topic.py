"""A topic of a running broker whose records the test archives, a segment at a time."""

import json
from dataclasses import replace
from pathlib import Path

from archive_writer import ArchiveWriter
from spark_scenario import Log, read_batch

from cordwood.columnar.ranges import Isolation, OffsetRange
from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.client.fetch import fetch
from cordwood.spark.read_options import read_options


class ArchivedTopic:
    """A topic with one partition and an archive in a directory."""

    def __init__(self, log: Log, directory: Path) -> None:
        self.log, self.directory, self.topic = log, directory, log.topic()
        client = read_options({"bootstrapServers": log.bootstrap, "subscribe": self.topic}).client
        self._client = replace(client, isolation=Isolation.READ_UNCOMMITTED)
        cluster_id, topics = ClusterReader(client).identities([self.topic])
        self.archive = ArchiveWriter(directory / "archive", self.topic, topics[self.topic], cluster_id=cluster_id)
        self.archive.put_topic()

    def append(self, *values: str) -> "ArchivedTopic":
        """Produce one record for each value, each in a batch of its own."""
        for value in values:
            self.log.append(self.topic, value)
        return self

    def upload(self, start: int, end: int) -> "ArchivedTopic":
        """Archive the batches of a range of offsets as a segment."""
        wanted = OffsetRange(self.topic, 0, start, end)
        batches = [
            fetched.data[one.position : one.position + one.header.size]
            for fetched in fetch(ClusterReader(self._client), wanted)
            for one in fetched.batches
            if start <= one.header.base_offset < end
        ]
        self.archive.put_batches(batches)
        return self

    def read(self, **options: str) -> list[str]:
        """Return the values of a batch read, sorted."""
        return read_batch(self.log.bootstrap, **{**self.options, **options})

    @property
    def options(self) -> dict[str, str]:
        """The options of a reader of topic and archive."""
        metrics = str(self.directory / "metrics")
        return {"subscribe": self.topic, "archive.url": self.archive.url, "readMetricsPath": metrics}

    def bytes_read(self) -> dict[str, int]:
        """Return the bytes that all tasks have read, by source, and remove the metrics."""
        total = {"archive_bytes": 0, "broker_bytes": 0}
        for path in (self.directory / "metrics").glob("*.json"):
            line = json.loads(path.read_text())
            total = {name: count + line[name] for name, count in total.items()}
            path.unlink()
        return total
