"""JSON encoding of partition offsets for Spark's checkpoints: {"topic": {"0": 23}}, always in the same order.

Spark compares offsets as text. A changed order would look like new data, and the stream would run empty batches.
"""

import json
from collections.abc import Mapping
from typing import Any

from cordwood.spark.ranges import TopicPartition
from cordwood.spark.user_errors import UserError

Offsets = dict[TopicPartition, int]
"""The next offset of each partition."""

Json = dict[str, Any]


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
