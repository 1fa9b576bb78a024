"""Records without a key in a batch that a client sent to a compacted topic."""

from cordwood.storage.batch import BatchHeader
from cordwood.storage.budget import Budget
from cordwood.storage.disk import Bytes


def keyless_records(batch: Bytes, header: BatchHeader, budget: Budget, count_max: int) -> list[int]:
    """Return the places in the batch (0, 1, 2, …) of its first `count_max` records without a key.

    The batch has passed `contents.examine`. Values and headers are not looked at. Raises OverBudget.
    """
    raise NotImplementedError
