"""The start offsets of a stream, stored in the end offset of its first micro-batch.

Spark checkpoints the end of a batch before the batch runs, but not the start of the first batch: for that it asks the
source again. After a crash in the first batch, "latest" would resolve to later offsets, and the records in between
would be lost silently. So the first end offset carries the start offsets into the checkpoint.
"""

from collections.abc import Mapping

from cordwood.spark.offsets import Json, Offsets, from_json

BEGAN = "@began"
"""The key of the start offsets among the topics of an end offset. No topic can have this name."""


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
