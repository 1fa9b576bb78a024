"""Offsets as JSON for the options `startingOffsets` and `endingOffsets`."""

import json

from pyspark.sql import DataFrame

from examples.pipelines.workplace import PARTITIONS

EARLIEST, LATEST = -2, -1


def offsets_json(topic: str, offsets: DataFrame, otherwise: int) -> str:
    """Encode rows of partition and offset; `otherwise` is the offset of partitions without a row."""
    known = {row[0]: row[1] for row in offsets.collect()}
    return json.dumps({topic: {str(partition): known.get(partition, otherwise) for partition in range(PARTITIONS)}})
