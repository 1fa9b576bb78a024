"""JSON encoding of partition offsets for Spark's checkpoints: {"topic": {"0": 23}}, always in the same order.

Spark compares offsets as text. A changed order would look like new data, and the stream would run empty batches.

Spark checkpoints the end of a batch before the batch runs, but not the start of the first batch: for that it asks the
source again. After a crash in the first batch, "latest" would resolve to later offsets, and the records in between
would be lost silently. So the first end offset carries the start offsets into the checkpoint.
"""

import json
from collections.abc import Mapping
from typing import Any

from cordwood.spark.errors import UserError
from cordwood.storage.types import TopicPartition

Offsets = dict[TopicPartition, int]
"""The next offset of each partition."""

Json = dict[str, Any]

BEGAN = "@began"
"""The key of the start offsets among the topics of an end offset. No topic can have this name."""


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """Encode offsets, sorted by topic, then by partition."""
    grouped: Json = {}
    for place in sorted(offsets):
        grouped.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return grouped


def from_json(grouped: object) -> Offsets:
    """Decode offsets. Raises UserError with a message for any other JSON."""
    if not isinstance(grouped, Mapping):
        raise UserError(f'{json.dumps(grouped)} is not of the form {{"topic": {{"0": 23}}}}')
    offsets: Offsets = {}
    for topic, by_partition in grouped.items():
        if not isinstance(by_partition, Mapping) or not by_partition:
            raise UserError(
                f'topic {topic} needs its partitions and a number for each, as in {{"{topic}": {{"0": 23}}}}'
            )
        for partition, number in by_partition.items():
            if not partition.isdecimal():
                raise UserError(f"topic {topic} has no partition {partition!r}: they are numbers in quotes, from 0 on")
            if not isinstance(number, int) or isinstance(number, bool):
                raise UserError(f"partition {partition} of topic {topic} has {json.dumps(number)} instead of a number")
            offsets[TopicPartition(topic, int(partition))] = number
    return offsets


def first_end(began: Mapping[str, object], end: Json) -> Json:
    """Return the end offset of the first batch for Spark's checkpoint."""
    return {BEGAN: began, **end}


def batch_between(start: Json, end: Json) -> tuple[Offsets, Offsets]:
    """Return the start and end offsets of a micro-batch from Spark's start and end.

    Only the first batch has the start offsets in its end but not in its start, which may be newer after a restart.
    """
    if BEGAN in end and BEGAN not in start:
        start = end[BEGAN]
    return ends_of(start), ends_of(end)


def ends_of(kept: Json) -> Offsets:
    """Return the offsets of an end without the start offsets of the stream."""
    return from_json({topic: offsets for topic, offsets in kept.items() if topic != BEGAN})
