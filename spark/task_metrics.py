"""Metrics of a task: bytes of record batches from the archive and from brokers, as a line of JSON in a file of its own.

Spark shows no metrics of Python data sources.
"""

import json
from pathlib import Path

from pyspark import TaskContext

from cordwood.columnar.ranges import OffsetRange


class TaskMetrics:
    """What one task has read."""

    def __init__(self) -> None:
        self.archive_bytes = 0
        self.broker_bytes = 0

    def write(self, directory: str, part: OffsetRange) -> None:
        """Write the metrics of the task that reads this range. Raises OSError."""
        task = TaskContext.get()
        attempt = task.taskAttemptId() if task is not None else 0
        line = {
            "topic": part.topic,
            "partition": part.partition,
            "start": part.start,
            "end": part.end,
            "archive_bytes": self.archive_bytes,
            "broker_bytes": self.broker_bytes,
        }
        Path(directory).mkdir(parents=True, exist_ok=True)
        name = f"{part.topic}-{part.partition}-{part.start}-{part.end}-{attempt}.json"
        (Path(directory) / name).write_text(json.dumps(line) + "\n")
