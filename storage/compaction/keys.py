"""Records without a key in the content of a batch that a client sent to a compacted topic, found without the values."""

from collections.abc import Sequence
from itertools import islice

from cordwood.storage.budget import Budget
from cordwood.storage.compaction.in_python import frames_of
from cordwood.storage.compaction.offset_map import IS_NATIVE
from cordwood.storage.contents import NATIVE_STEPS_PER_COST
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch, InvalidRecord

if IS_NATIVE:
    from cordwood.storage.compaction import record_filter

NAMED_MAX = 10_000
"""Records of one batch that are named. Clients put up to 10,000 into a batch (librdkafka)."""


def keyless_records(
    content: Bytes,
    end: int,
    count: int,
    budget: Budget,
    count_max: int = NAMED_MAX,
    *,
    is_native: bool = IS_NATIVE,
) -> Sequence[int]:
    """Return the places in the batch (0, 1, 2, …) of its first `count_max` records without a key.

    `content` up to `end` is `count` records, decompressed. Values and headers are not looked at: `contents.examine`
    does that. Raises InvalidRecord, OverBudget.
    """
    budget.spend_records(1 + count // NATIVE_STEPS_PER_COST if is_native else count)
    try:
        if is_native:
            return record_filter.keyless(content, end, count, count_max)
        keyless = (nth for nth, frame in enumerate(frames_of(bytes(content[:end]), count)) if frame.key is None)
        return list(islice(keyless, count_max))
    except (CorruptBatch, ValueError) as error:
        raise InvalidRecord(str(error)) from error
