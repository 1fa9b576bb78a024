"""Records without a key in a batch that a client sent to a compacted topic."""

from itertools import islice

from cordwood.storage.batch import BatchHeader
from cordwood.storage.budget import Budget
from cordwood.storage.compaction.in_python import frames_of
from cordwood.storage.compaction.offset_map import IS_NATIVE
from cordwood.storage.contents import NATIVE_STEPS_PER_COST
from cordwood.storage.decompression import whole_body
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch, InvalidRecord

if IS_NATIVE:
    from cordwood.storage.compaction import record_filter


def keyless_records(
    batch: Bytes, header: BatchHeader, budget: Budget, count_max: int, *, is_native: bool = IS_NATIVE
) -> list[int]:
    """Return the places in the batch (0, 1, 2, …) of its first `count_max` records without a key.

    Values and headers are not looked at: `contents.examine` does that. Raises InvalidRecord, OverBudget.
    """
    count = header.record_count
    budget.spend_records(1 + count // NATIVE_STEPS_PER_COST if is_native else count)
    try:
        content, end, _ = whole_body(batch, header, budget)
        if is_native:
            return record_filter.keyless(content, end, count, count_max)
        keyless = (nth for nth, frame in enumerate(frames_of(bytes(content[:end]), count)) if frame.key is None)
        return list(islice(keyless, count_max))
    except (CorruptBatch, ValueError) as error:
        raise InvalidRecord(str(error)) from error
