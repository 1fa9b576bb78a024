"""Records without a key in the content of a batch: their numbers within the batch, found without decoding values."""

from array import array

from cordwood.storage.budget import RECORDS_PER_PART, Budget, Parts
from cordwood.storage.disk import Bytes

NAMED_MAX = 10_000
"""Records of one batch that are named. Clients put up to 10,000 into a batch (librdkafka)."""


def keyless_records(content: Bytes, count: int, budget: Budget) -> Parts["array[int]"]:
    """Return the numbers of the records without a key, the first NAMED_MAX of them, in parts of RECORDS_PER_PART.

    `content` is so many records, as `contents.examine` has found. Raises OverBudget.
    """
    budget.spend_records(count)
    if content.__class__ is memoryview:
        # Single octets of `bytes` are read faster.
        content = bytes(content)
    found, place = array("i"), 0
    for number in range(count):
        if number and number % RECORDS_PER_PART == 0:
            yield
        length, place = _number(content, place)
        _, at = _number(content, place + 1)
        _, at = _number(content, at)
        place += length >> 1
        if content[at] & 1:
            found.append(number)
            if len(found) == NAMED_MAX:
                break
    return found


def _number(content: Bytes, place: int) -> tuple[int, int]:
    """Return a number as it is written, zigzag, and the place after it."""
    number = shift = 0
    while (octet := content[place]) > 0x7F:
        number |= (octet & 0x7F) << shift
        shift += 7
        place += 1
    return number | octet << shift, place + 1
