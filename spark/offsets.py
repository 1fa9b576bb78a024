"""Offsets of many partitions in the JSON of Spark's checkpoints: {"topic": {"0": 23}}, always in the same order.

Spark compares offsets as text: an order that changed would look like new data, and the stream would spin on nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

from cordwood.spark.mistakes import Mistake
from cordwood.spark.ranges import TopicPartition

Offsets = dict[TopicPartition, int]
"""The next offset of each partition."""

Json = dict[str, Any]


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """Sorted by topic, then by the partition's number."""
    grouped: Json = {}
    for place in sorted(offsets):
        grouped.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return grouped


def from_json(grouped: object) -> Offsets:
    """The opposite. Raises Mistake with a sentence where it is something else."""
    if not isinstance(grouped, Mapping):
        raise Mistake(f'{json.dumps(grouped)} is not of the form {{"topic": {{"0": 23}}}}')
    offsets: Offsets = {}
    for topic, by_partition in grouped.items():
        if not isinstance(by_partition, Mapping) or not by_partition:
            raise Mistake(f'topic {topic} needs its partitions and a number for each, as in {{"{topic}": {{"0": 23}}}}')
        for partition, number in by_partition.items():
            if not partition.isdecimal():
                raise Mistake(f"topic {topic} has no partition {partition!r}: they are numbers in quotes, from 0 on")
            if not isinstance(number, int) or isinstance(number, bool):
                raise Mistake(f"partition {partition} of topic {topic} has {json.dumps(number)} where a number must be")
            offsets[TopicPartition(topic, int(partition))] = number
    return offsets
