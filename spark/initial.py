"""Where a stream began, kept in the end offset of its first micro-batch.

Spark writes down where a batch ends before it runs, but not where the first one begins: it asks the source again. After
a crash in the first batch, "latest" would then mean a later place, and the records in between would be lost in silence.
So the first end carries the beginning with it, into the checkpoint and out of it.
"""

from collections.abc import Mapping

from cordwood.spark.offsets import Json, Offsets, from_json

BEGAN = "@began"
"""Stands among the topics of an end offset; no topic can have this name."""


def first_end(began: Mapping[str, object], end: Json) -> Json:
    """The end of the first batch, as Spark is to keep it."""
    return {BEGAN: began, **end}


def batch_between(start: Json, end: Json) -> tuple[Offsets, Offsets]:
    """Where a micro-batch begins and ends, given what Spark has for it.

    Only a first batch has the beginning in its end and not in its start, which may have been asked for anew.
    """
    if BEGAN in end and BEGAN not in start:
        start = end[BEGAN]
    return ends_of(start), ends_of(end)


def ends_of(kept: Json) -> Offsets:
    """The offsets of the partitions alone."""
    return from_json({topic: offsets for topic, offsets in kept.items() if topic != BEGAN})
